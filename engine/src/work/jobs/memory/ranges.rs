//! The key ranges into which a store's memory is divided (see `scatter.rs`), and their pieces of memtables.

use super::facts::bytes_per_user_byte;
use super::visibility::Visible;
use crate::catalog::Catalog;
use crate::commit::Store;
use crate::memtable::{FlatMemtable, LogPlace, Memtable, Visibility};
use crate::strategy::{ByRange, RangeMemory};
use crate::types::{KeyRange, SeqNo};
use crate::version::{Scattered, Version};
use std::sync::Arc;

/// Brings the ranges of memory in line with the tables, while no flush is under way.
pub(crate) fn fit_ranges(catalog: &Catalog, store: &Store, by_range: &dyn ByRange) -> Arc<Version> {
    loop {
        let version = store.version_full();
        let bounds = by_range.bounds(&version.shape);
        if bounds == version.scattered.bounds() {
            return version;
        }
        let fitted = Arc::new(fit(&version.scattered, bounds, &Visible::now(catalog).by(store)));
        store.swap_if(|now| {
            Arc::ptr_eq(&now.scattered, &version.scattered)
                .then(|| now.with_scattered(now.frozen.clone(), fitted.clone(), now.flush.clone()))
        });
        catalog.commit.recount(store);
    }
}

/// The memory of each range that has any, with the range's number.
pub(crate) fn memory_by_range(catalog: &Catalog, version: &Version) -> Vec<(usize, RangeMemory)> {
    let visible = catalog.commit.snapshots.visible();
    let ranges = version.scattered.ranges().enumerate();
    let held = ranges.filter(|(_, (_, pieces))| !pieces.is_empty());
    held.map(|(number, (range, pieces))| (number, range_memory(version, range, pieces, visible))).collect()
}

/// What is known of some pieces of a range.
pub(crate) fn range_memory(
    version: &Version,
    range: KeyRange,
    pieces: &[Memtable],
    visible: SeqNo,
) -> RangeMemory {
    let oldest = pieces.iter().filter_map(|piece| piece.seqs()).map(|seqs| *seqs.start()).min();
    let user_bytes: usize = pieces.iter().map(Memtable::user_bytes).sum();
    RangeMemory {
        range,
        bytes: pieces.iter().map(|piece| piece.bytes() as u64).sum(),
        written: (user_bytes as f64 * bytes_per_user_byte(version)) as u64,
        age: visible.0.saturating_sub(oldest.unwrap_or(visible).0),
    }
}

/// One piece of what flat memtables, newest first, have of a range; `None` where they have nothing of it.
pub(super) fn piece(sources: &[&Memtable], range: &KeyRange, keep: &Visibility<'_>) -> Option<Memtable> {
    let flats: Vec<Arc<FlatMemtable>> =
        sources.iter().filter_map(|segment| segment.as_flat().cloned()).collect();
    // Before the cells are looked at: cleaning moves places on only.
    let places: Vec<LogPlace> = sources.iter().map(|segment| segment.log_place()).collect();
    let gathered = FlatMemtable::gathered(&flats, range, keep)?;
    Some(Memtable::flat(Arc::new(gathered), LogPlace::of_all(&places)))
}

/// Memory in other ranges than before. O(ranges log ranges), and the copies of pieces that a new bound cuts.
fn fit(before: &Scattered, bounds: Vec<Vec<u8>>, keep: &Visibility<'_>) -> Scattered {
    let shell = Scattered::new(bounds.clone(), vec![Vec::new(); bounds.len() + 1], before.newest());
    let ranges = shell.ranges().map(|(range, _)| {
        let mut pieces = Vec::new();
        for old in before.within(&range) {
            for segment in before.pieces_of(old) {
                match segment.key_range() {
                    Some(keys) if range.covers(&keys) => pieces.push(segment.clone()),
                    Some(keys) if range.overlaps(&keys) => pieces.extend(piece(&[segment], &range, keep)),
                    _ => {}
                }
            }
        }
        pieces
    });
    Scattered::new(bounds, ranges.collect(), before.newest())
}
