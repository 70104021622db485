//! Hot keys stay in memory when others go to disk (TRI-1): what a flush set aside becomes a memtable again.
//!
//! The flush set is dropped and with it the WAL files that it needed, so before a step's edit the cells that
//! stay in its interval are logged again and synced, under the generation reserved for them: it is above what
//! the edit says is in SSTables, so replay takes them, and below that of everything newer. In the swap of the
//! same step they join the old end of the memory list. They were the newest cells of their keys in the flush
//! set, the oldest memory there was, so everything before them in the list is newer and everything after it,
//! the SSTables, is older (invariant I3).

use crate::catalog::Catalog;
use crate::commit::Store;
use crate::error::Result;
use crate::memtable::{FlatMemtable, Memtable};
use crate::strategy;
use crate::types::{Generation, KeptCell, LogPosition};
use crate::wal::Entry;
use std::sync::Arc;

/// The cells of a step that stay in memory.
pub(super) struct HotCells {
    pub(super) segment: Memtable,
    /// The position up to which the WAL must be synced for them to be durable.
    pub(super) logged_to: LogPosition,
}

/// Logs the cells again and makes a memtable of them; `None` where there are none.
pub(super) fn log_kept(
    catalog: &Catalog,
    store: &Store,
    reserved: Generation,
    cells: &[KeptCell],
) -> Result<Option<HotCells>> {
    let entries = cells.iter().map(|kept| Entry::Cell(kept.cell.as_ref()));
    let copied = catalog.commit.log_copies(store, reserved, entries)?;
    Ok(copied.map(|copied| {
        let flat = FlatMemtable::of_kept(reserved, cells, store.memory_options());
        let segment = Memtable::logged_again(Arc::new(flat), copied.from.file);
        HotCells { segment, logged_to: copied.to }
    }))
}

/// The bytes of hot keys that a flush of `flush_bytes` may leave in memory.
pub(super) fn keep_budget(catalog: &Catalog, store: &Store, flush_bytes: u64) -> u64 {
    let all = catalog.cx.settings.write_memory();
    let limit = store.settings().options.write_limit(all);
    strategy::keep_budget(
        limit,
        all,
        catalog.commit.kept_by_others(store) + catalog.commit.room.keeping.get(),
        flush_bytes,
    )
}
