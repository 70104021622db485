//! Laying out: the oldest memtable that waits goes into the ranges that the store's memory has.
//!
//! What that means, and why no reader, flush or recovery is misled by it, stands in `memtable/by_range.rs`.
//! The memtable becomes flat over its own chunks, without the versions that nobody sees (ACC-3, I4). Where
//! the strategy flushes one range at a time its cells are copied then, once, together with as many of the
//! ranges' newest memtables as keep their lists short.
//!
//! *Bounds* come from the SSTables (`ByRange::bounds`), where the strategy has any. They are chosen when
//! nothing is laid out and nothing is being flushed, and looked at again before a flush chooses its range
//! (`ranges.rs`).

use super::ranges::gathered;
use super::visibility::{Visible, note_memory_flush};
use crate::catalog::Catalog;
use crate::commit::Store;
use crate::memtable::{Memtable, MemtableRanges, Visibility};
use crate::strategy::memtables_to_join;
use crate::version::Memtables;
use std::sync::Arc;

/// Lays out the oldest memtable that waits; whether there was one.
pub(crate) fn lay_out_oldest(catalog: &Catalog, store: &Store) -> bool {
    let version = store.version_full();
    let Some(oldest) = version.memory.waiting.last() else { return false };
    let settings = store.settings();
    let seen = Visible::now(catalog);
    let began_ns = catalog.cx.env.clock.monotonic_ns();
    let flat = oldest.flatten(&seen.by(store));
    let before = match version.memory.ranges.is_empty() && version.memory.flushing.is_empty() {
        true => Arc::new(version.memory.ranges.emptied_into(settings.range_bounds(&version.shape))),
        false => version.memory.ranges.clone(),
    };
    let divides = settings.by_range().is_some() || !before.is_one();
    let divided = divides.then(|| Arc::new(divided(&before, &flat, &seen.by(store))));
    kill_point!("lay-out-copied");
    let mut swapped = false;
    store.swap_if(|now| {
        let waits = now.memory.waiting.last().is_some_and(|last| last.is(oldest));
        let is_same = Arc::ptr_eq(&now.memory.ranges, &version.memory.ranges);
        let ranges = match &divided {
            Some(divided) => is_same.then(|| divided.clone()),
            // Whatever was compacted or flushed meanwhile is older.
            None => {
                let is_one = now.memory.ranges.is_one();
                let one = if is_one { Some(&now.memory.ranges) } else { is_same.then_some(&before) };
                let flat = || flat.as_flat().is_some().then(|| flat.clone());
                one.map(|one| Arc::new(one.with_newest(flat(), oldest.generation())))
            }
        };
        swapped = waits && ranges.is_some();
        ranges.filter(|_| waits).map(|ranges| {
            let waiting = now.memory.waiting[..now.memory.waiting.len() - 1].to_vec();
            now.with_memory(Memtables { waiting, ranges, ..now.memory.clone() })
        })
    });
    if swapped {
        note_memory_flush(catalog, store, oldest, began_ns);
    }
    true
}

/// The memory by range with a flat memtable that is newer than all, divided among the ranges.
fn divided(before: &MemtableRanges, flat: &Memtable, keep: &Visibility<'_>) -> MemtableRanges {
    // It may be a part in which there is nothing.
    let Some(cells) = flat.as_flat() else { return before.clone() };
    let ranges = before.ranges().map(|(range, memtables)| {
        if !cells.touches(&range) {
            return memtables.to_vec();
        }
        let sizes: Vec<u64> = memtables.iter().map(|one| one.bytes() as u64).collect();
        let joined = memtables_to_join(cells.bytes_within(&range), &sizes);
        let sources: Vec<&Memtable> = std::iter::once(flat).chain(&memtables[..joined]).collect();
        gathered(&sources, &range, keep).into_iter().chain(memtables[joined..].iter().cloned()).collect()
    });
    let newest = before.newest().max(flat.generation());
    MemtableRanges::new(before.bounds().to_vec(), ranges.collect(), newest)
}
