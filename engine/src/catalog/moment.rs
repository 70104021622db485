//! The database at one moment, for a copy of it: the contents of the copy, pinned until it is made.
//!
//! The moment is taken under the manifest's lock, with no write between WAL and memory. It gives the WAL's
//! end E; the copy's manifest is ours plus "history ends at E". From then on SSTables and WAL files are
//! pinned, and the lock is free.

use super::Catalog;
use super::recover::needed_wal_files;
use crate::DEFAULT_FAMILY;
use crate::error::{Error, Result};
use crate::shape::TableInfo;
use crate::types::{StoreId, TableId};
use crate::version::PinnedTables;
use crate::version::edit::{Change, State, StoreState};
use crate::wal::{WalEnd, WalHold, file_name};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The contents of a copy of the database as it is at one moment, with everything pinned that it needs.
pub(crate) struct PinnedCopy {
    /// The state for the copy's manifest: it ends history at this moment.
    pub(crate) state: State,
    /// The number that the copy's manifest must have.
    pub(crate) manifest_number: u64,
    /// Names of the WAL files that hold history, and how much of each does.
    pub(crate) logs: Vec<(String, u64)>,
    /// Names of the WAL files that only SSTables need. They stay as long as the SSTables do.
    pub(crate) wal_files_of_tables: Vec<String>,
    pub(crate) created_us: u64,
    pub(crate) tables: Vec<Arc<TableInfo>>,
    pub(crate) held_wal: WalHold,
    pub(crate) held_tables: PinnedTables,
}

impl Catalog {
    /// The database between two writes, without the families that are not picked.
    pub(crate) fn hold_moment(&self, picks: &dyn Fn(&str) -> bool) -> Result<PinnedCopy> {
        // No family may be on its way between the manifest and the list of families.
        let _one = self.families.lock();
        // As long as it stays locked, SSTables and WAL files stay too.
        let manifest = self.manifest.lock();
        let wal = self.commit.wal()?;
        let held_wal = wal.hold();
        let (last, end) = self.commit.with_writes_held(|last| (last, wal.end()))?;
        let mut state = manifest.state().clone();
        let is_left = |store: &StoreState| store.name != DEFAULT_FAMILY && !picks(&store.name);
        let left: Vec<StoreId> =
            state.stores.iter().filter(|(_, store)| is_left(store)).map(|(id, _)| *id).collect();
        for id in left {
            // The copy is as if the family had just been dropped.
            state.apply(&Change::DropStore { id }).map_err(Error::invalid)?;
        }
        let mut logs = Vec::new();
        let mut next = end.file;
        for file in wal.files() {
            next = next.max(file.file);
            if file.file >= state.wal_first && file.file <= end.file {
                // The newest file is copied up to the end only.
                let bytes = if file.file == end.file { end.offset } else { file.used };
                logs.push((file_name(file.file), bytes));
            }
        }
        let wal_files_of_tables =
            needed_wal_files(&state).range(..state.wal_first).map(|file| file_name(*file)).collect();
        state.last_seq = last;
        // A copy has its SSTables beside its manifest.
        state.tables.clear();
        state.wal_synced = end;
        state.wal_retained = Arc::default();
        state.wal_ends.push(WalEnd { at: end, next: next.next() });
        // Its number follows the manifest's, which the WAL's notes name.
        let manifest_number = manifest.mark().number + 1;
        let created_us = self.cx.env.clock.wall_us();
        let mut tables: BTreeMap<TableId, Arc<TableInfo>> = BTreeMap::new();
        for (_, _, info) in state.stores.values().flat_map(|store| store.shape.tables()) {
            // An SSTable that several stores have is copied once, with all that any of them reads.
            let known = tables.entry(info.id).or_insert_with(|| info.clone());
            if info.live_start() < known.live_start() {
                *known = info.clone();
            }
        }
        let tables = tables.into_values().collect();
        let held_tables = self.hold_tables(&self.stores());
        Ok(PinnedCopy {
            state,
            manifest_number,
            logs,
            wal_files_of_tables,
            created_us,
            tables,
            held_wal,
            held_tables,
        })
    }
}
