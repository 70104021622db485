//! The key ranges by which a store's memory is held: brought in line with the SSTables, and what is known of
//! each.

use super::facts::bytes_per_user_byte;
use super::visibility::Visible;
use crate::catalog::Catalog;
use crate::commit::Store;
use crate::memtable::{FlatMemtable, Memtable, MemtableRanges, Visibility, WalPlace};
use crate::strategy::{ByRange, RangeMemory};
use crate::types::{KeyRange, SeqNo};
use crate::version::{Memtables, Version};
use std::sync::Arc;

/// Brings the ranges of memory in line with the tables, while no flush is under way.
pub(crate) fn fit_ranges(catalog: &Catalog, store: &Store, by_range: &dyn ByRange) -> Arc<Version> {
    loop {
        let version = store.version_full();
        let bounds = by_range.bounds(&version.shape);
        if bounds == version.memory.ranges.bounds() {
            return version;
        }
        let fitted = Arc::new(fit(&version.memory.ranges, bounds, &Visible::now(catalog).by(store)));
        store.swap_if(|now| {
            Arc::ptr_eq(&now.memory.ranges, &version.memory.ranges)
                .then(|| now.with_memory(Memtables { ranges: fitted.clone(), ..now.memory.clone() }))
        });
        catalog.commit.recount(store);
    }
}

/// The memory of each range that has any, with the range's number.
pub(crate) fn memory_by_range(catalog: &Catalog, version: &Version) -> Vec<(usize, RangeMemory)> {
    let visible = catalog.commit.snapshots.visible();
    let ranges = version.memory.ranges.ranges().enumerate();
    let filled = ranges.filter(|(_, (_, memtables))| !memtables.is_empty());
    let facts = filled.map(|(at, (range, memtables))| (at, range_memory(version, range, memtables, visible)));
    facts.collect()
}

/// What is known of a range's memtables.
pub(crate) fn range_memory(
    version: &Version,
    range: KeyRange,
    memtables: &[Memtable],
    visible: SeqNo,
) -> RangeMemory {
    let oldest = memtables.iter().filter_map(|one| one.seqs()).map(|seqs| *seqs.start()).min();
    let user_bytes: usize = memtables.iter().map(Memtable::user_bytes).sum();
    RangeMemory {
        range,
        bytes: memtables.iter().map(|one| one.bytes() as u64).sum(),
        written: (user_bytes as f64 * bytes_per_user_byte(version)) as u64,
        age: visible.0.saturating_sub(oldest.unwrap_or(visible).0),
    }
}

/// One memtable of what flat ones, newest first, have of a range; `None` where they have nothing of it.
pub(super) fn gathered(sources: &[&Memtable], range: &KeyRange, keep: &Visibility<'_>) -> Option<Memtable> {
    let flats: Vec<Arc<FlatMemtable>> = sources.iter().filter_map(|one| one.as_flat().cloned()).collect();
    // Before the cells are looked at: cleaning moves places on only.
    let places: Vec<WalPlace> = sources.iter().map(|one| one.wal_place()).collect();
    let gathered = FlatMemtable::gathered(&flats, range, keep)?;
    Some(Memtable::flat(Arc::new(gathered), WalPlace::of_all(&places)))
}

/// Memory in other ranges than before. O(ranges log ranges), and copies of the memtables that a new bound
/// cuts.
fn fit(before: &MemtableRanges, bounds: Vec<Vec<u8>>, keep: &Visibility<'_>) -> MemtableRanges {
    let empty = before.emptied_into(bounds.clone());
    let ranges = empty.ranges().map(|(range, _)| {
        let mut fitted = Vec::new();
        for old in before.within(&range) {
            for memtable in before.memtables_of(old) {
                match memtable.key_range() {
                    Some(keys) if range.covers(&keys) => fitted.push(memtable.clone()),
                    Some(keys) if range.overlaps(&keys) => fitted.extend(gathered(&[memtable], &range, keep)),
                    _ => {}
                }
            }
        }
        fitted
    });
    MemtableRanges::new(bounds, ranges.collect(), before.newest())
}
