//! SSTable files: opening them, removing them when nobody reads them any more, evicting their blocks from the
//! cache.

use super::Catalog;
use crate::commit::Store;
use crate::error::Result;
use crate::shape::TableInfo;
use crate::sstable::Filled;
use crate::strategy::{CompactionKind, CompactionPlan};
use crate::types::{LogFileId, TableId};
use crate::version::edit::Change;
use crate::version::{Dead, PinnedTables, TableHandle, Version};
use crate::wal::{self, Claim};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Holes begin behind an SSTable's header, at the file system's block size.
const PUNCH_FROM: u64 = 4096;

impl Catalog {
    /// Opens SSTables just written or ingested.
    pub(crate) fn open_tables(
        &self,
        infos: &[Arc<TableInfo>],
        filled: &mut [(TableId, Filled)],
    ) -> Result<BTreeMap<TableId, Arc<TableHandle>>> {
        let mut open = |info: &Arc<TableInfo>| {
            let of = filled.iter_mut().find(|(id, _)| *id == info.id);
            Ok((info.id, self.tables.open(info, of.map(|(_, filled)| filled))?))
        };
        infos.iter().map(&mut open).collect()
    }

    /// Pins the SSTables of these stores as they are now.
    pub(crate) fn hold_tables(&self, stores: &[Arc<Store>]) -> PinnedTables {
        let handles = |store: &Arc<Store>| -> Vec<Arc<TableHandle>> {
            store.version().tables().map(|open| open.handle.clone()).collect()
        };
        self.graveyard.hold(stores.iter().flat_map(handles).collect())
    }

    /// Removes SSTables that a compaction wrote before it was given up, and that no manifest names. What
    /// cannot be removed now is removed at the next open.
    pub(crate) fn remove_tables(&self, tables: &[TableId]) {
        for table in tables {
            let _ = self.tables.store().remove(*table);
        }
    }

    /// Removes outputs of a step that the manifest cannot name.
    pub(crate) fn remove_outputs(&self, outputs: &[Arc<TableInfo>]) {
        let tables: Vec<_> = outputs.iter().map(|info| info.id).collect();
        self.remove_tables(&tables);
    }

    /// Punches holes in files and removes files that nobody reads any more, until `end_ns` (monotonic);
    /// returns whether it did anything.
    pub(crate) fn sweep_until(&self, end_ns: u64) -> bool {
        if self.graveyard.is_empty() {
            return false;
        }
        self.graveyard.sweep();
        kill_point!("sweep-before-remove");
        let (mut failed, mut worked) = (Vec::new(), false);
        let is_over = || self.cx.env.clock.monotonic_ns() >= end_ns;
        let mut over = false;
        while !over && let Some((table, upto)) = self.graveyard.next_punch() {
            worked = true;
            if upto > PUNCH_FROM {
                // If holes cannot be punched, the bytes are freed with the file.
                let _ = self.tables.store().punch_hole(table, PUNCH_FROM, upto - PUNCH_FROM);
            }
            over = is_over();
        }
        // Removes at least one file: that frees more than holes do.
        while let Some(dead) = self.graveyard.next_file() {
            let removed = match &dead {
                Dead::Sstable(table, _) if self.give_up(*table) => Ok(()),
                Dead::Sstable(table, _) => self.tables.store().remove(*table),
                Dead::Wal(file) => self.cx.env.storage.remove(&self.dir.join(wal::file_name(*file))),
            };
            match removed {
                Err(e) if e.kind() != std::io::ErrorKind::NotFound => failed.push(dead),
                _ => worked = true,
            }
            if is_over() {
                break;
            }
        }
        self.graveyard.retry(failed);
        worked
    }

    /// Evicts the blocks that a step to `upto` has replaced, of SSTables in the version before it. How many
    /// blocks and bytes.
    pub(crate) fn evict_replaced(
        &self,
        before: &Version,
        plan: &CompactionPlan,
        upto: Option<&[u8]>,
    ) -> (u64, u64) {
        let mut gone = (0, 0);
        if plan.kind == CompactionKind::TrivialMove {
            return gone;
        }
        let inputs: BTreeSet<TableId> = plan.tables().collect();
        let upto = upto.or(plan.range.end.as_deref());
        for open in before.tables().filter(|open| inputs.contains(&open.info.id)) {
            if upto.is_none_or(|upto| open.start() < upto)
                && let Some(table) = open.opened()
            {
                let (blocks, bytes) = table.evict(open.start(), upto);
                gone = (gone.0 + blocks, gone.1 + bytes);
            }
        }
        gone
    }

    /// Gives the block cache what the budget leaves it: less write memory, or what writes take where that is
    /// more, less the memory of open SSTables. Those that are opened later, by their first readers, fit it
    /// again.
    pub(crate) fn fit_cache(&self) {
        let _one = self.fitting.lock();
        let (memory, write_memory) = (self.cx.settings.memory_budget(), self.cx.settings.write_memory());
        let left = memory.saturating_sub(write_memory.max(self.commit.memory_taken()));
        // Some cache always stays: without one, each read would read its index anew.
        let least = memory.saturating_sub(write_memory) / 8;
        self.cache.fit(left, least);
    }

    /// The manifest changes by which no WAL file before `front` is needed any more.
    pub(crate) fn front_changes(&self, front: LogFileId) -> Result<impl Iterator<Item = Change>> {
        let wal = self.commit.wal()?;
        if self.cx.settings.options.change_log_bytes > 0 && wal.synced().file < front {
            // History that the manifest lists as retained must be durable first.
            wal.sync().inspect_err(|e| self.cx.poison(e))?;
        }
        let kept = wal.to_keep(front).map(|(from, files)| Change::WalRetained { from, files });
        Ok(kept.into_iter().chain([Change::WalFirst(front)]))
    }

    /// Releases the WAL files before `front`, except for those that SSTables and streams of changes need.
    pub(crate) fn release_wal(&self, front: LogFileId) -> Result<()> {
        self.commit.wal()?.release_unless(front, &|file| self.claim_wal_file(file))
    }

    /// Releases WAL files that were retained for a stream of changes which has ended.
    pub(crate) fn trim_wal(&self) {
        // Another process may own the directory once this database is closed.
        if let (Ok(()), Ok(wal)) = (self.cx.check_open(), self.commit.wal()) {
            // The next open removes what cannot be removed now.
            let _ = wal.trim_kept(&|file| self.claim_wal_file(file));
        }
    }

    /// Releases all WAL files that are retained for streams of changes, as the disk is full; returns whether
    /// there were any. The streams report what they lost.
    pub(crate) fn give_up_retained_wal(&self) -> bool {
        self.commit.wal().is_ok_and(|wal| wal.drop_kept(&|file| self.claim_wal_file(file)))
    }

    fn claim_wal_file(&self, file: LogFileId) -> Claim {
        match planted!(Bug::RecycleReferencedWalFile) {
            false => self.graveyard.logs.claim(file),
            true => Claim::Never,
        }
    }

    /// The oldest WAL file that other stores need for memory that is in no flush.
    pub(crate) fn front_of_others(&self, store: &Store) -> LogFileId {
        let stores = self.stores();
        let others = stores.iter().filter(|other| other.id != store.id);
        let fronts = others.filter_map(|other| other.version().memory.wal_front_without_flush());
        fronts.min().unwrap_or(LogFileId::MAX)
    }
}
