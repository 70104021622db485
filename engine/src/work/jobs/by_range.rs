//! Memory by key range, for a strategy that flushes one range at a time (`strategy/by_range.rs`; Rangemerge).
//!
//! *How memory is held.* Writes go to one active segment, as ever. When that is frozen, a chore *scatters* it: its cells
//! are copied once into one exactly sized piece a range, range tombstones cut at the ranges' bounds, and it goes. A
//! range has a short list of pieces (`version/scattered.rs`), kept short by copying the newest of them along with what
//! comes (`pieces_to_join`), less what nobody can see any more. A flush takes all pieces of one range as flush set,
//! merges them with the range's tables (`flush.rs`), and by its last step they are gone: no flushed cell stays
//! readable, and what it freed is counted to the byte.
//!
//! Before a range is flushed its pieces may be compacted (`compact_range.rs`).
//! Hot keys and log tables are off: what they could save is measured in docs/experiments/rangemerge.md.
//!
//! *Bounds* come from the tables (`ByRange::bounds`). They are looked at before a flush chooses its range; where a file was
//! split since, the few pieces that came meanwhile are copied apart, where two were joined their lists are put together.
//!
//! *Generations* (I1). A piece has the generation of the segment it came from, the highest if it came of several. A
//! range is flushed only when nothing frozen waits to be scattered, so all its cells of generations up to the newest one
//! scattered, in any range, are in its pieces: that is what the flush claims, for the range's keys alone. (So too after
//! a recovery, which puts cells of all generations that the log held into segments of its own: what it put in
//! memory was frozen then.)
//!
//! *What a reader visits* (I3): active, frozen, the pieces of its key's range, the flush set, tables. Segments are scattered
//! oldest first, so that all of what is scattered is older than what waits. While a flush set of *all* memory is under
//! way nothing is scattered: the cells it keeps would come in front of newer ones.
//!
//! *The log.* A piece needs the log from where its segment did; what it left out is covered by cells that stand in the log
//! behind that. A scatter or a copy tells nobody but memory, so a crash at any point of it loses nothing: the log
//! replays. A crash between two steps of a range's merge finds a manifest that says which keys of the range are in
//! tables up to which generation, and the inputs' clips; the rest of the range is replayed, and its tables still answer
//! above the clip.

use super::compact_range::compacts_before;
use super::lay_out::{Seen, note_memory_flush};
use crate::catalog::Catalog;
use crate::commit::Store;
use crate::memory::{Flat, LogPlace, Segment, Visibility};
use crate::strategy::{ByRange, MergePlan, RangeMemory, pieces_to_join, victim_beside};
use crate::types::{KeyRange, SeqNo, TableId};
use crate::version::{FlushSet, Scattered, Unions, Version, flushed_run};
use std::sync::Arc;

/// Scatters the oldest frozen segment of a store whose memory is held by range; whether there was one.
pub(super) fn scatter_oldest(catalog: &Catalog, store: &Store, by_range: &dyn ByRange) -> bool {
    let version = store.version_full();
    let Some(oldest) = version.frozen.last().filter(|_| may_scatter(&version)) else { return false };
    let seen = Seen::now(catalog);
    let began_ns = catalog.commit.env.clock.monotonic_ns();
    let scattered = Arc::new(scatter(&version, oldest, by_range, &seen.by(store)));
    kill_point!("scatter-copied");
    let mut swapped = false;
    store.swap_if(|now| {
        swapped = may_scatter(now)
            && Arc::ptr_eq(&now.scattered, &version.scattered)
            && now.frozen.last().is_some_and(|last| last.is(oldest));
        swapped.then(|| {
            let frozen = now.frozen[..now.frozen.len() - 1].to_vec();
            now.with_scattered(frozen, scattered.clone(), now.flush.clone())
        })
    });
    if swapped {
        note_memory_flush(catalog, store, oldest, began_ns);
    }
    true
}

/// Takes one range's memory as flush set, that of the key `at` or else the one that the strategy chooses, and says
/// why that. `None` when there is nothing to take yet: then it is on the way.
pub(super) fn take_range(
    catalog: &Catalog,
    store: &Arc<Store>,
    by_range: &dyn ByRange,
    at: Option<&[u8]>,
) -> Option<String> {
    let version = fit_ranges(catalog, store, by_range);
    let memory = memory_by_range(catalog, &version);
    let facts: Vec<RangeMemory> = memory.iter().map(|(_, memory)| memory.clone()).collect();
    let chosen = match at {
        Some(key) => memory
            .iter()
            .find(|(_, memory)| memory.range.contains(key))
            .map(|(number, m)| (*number, format!("the range {} has most of it", m.range))),
        None => {
            let merging: Vec<KeyRange> =
                store.work.lock().merges.running.iter().map(|(_, merge)| merge.range_left()).collect();
            let chosen = victim_beside(by_range, &version.shape, &facts, &merging);
            chosen.map(|(best, why)| (memory[best].0, why))
        }
    };
    let (number, why) = match chosen {
        // Most of it is still to be scattered.
        _ if !version.frozen.is_empty() => return None,
        Some(chosen) if at.is_some() || version.scattered.bytes() >= version.active.bytes() as u64 => chosen,
        _ => {
            catalog.commit.freeze(store);
            catalog.commit.scheduler.notify();
            return None;
        }
    };
    if at.is_none() && compacts_before(catalog, store, &version) {
        return None;
    }
    let range = version.scattered.range(number);
    let mut taken = false;
    store.swap_if(|now| {
        taken =
            now.frozen.is_empty() && now.flush.is_empty() && Arc::ptr_eq(&now.scattered, &version.scattered);
        taken.then(|| {
            let (segments, rest) = now.scattered.without(number);
            let flush = FlushSet {
                segments,
                scattered: Arc::default(),
                of_range: true,
                clip: range.start.clone(),
                end: range.end.clone(),
                generation: now.scattered.newest(),
                run: flushed_run(&now.shape, now.scattered.newest().max(store.replayed_generation()), &range),
                reserved: now.scattered.newest(),
            };
            now.with_scattered(Vec::new(), Arc::new(rest), flush)
        })
    });
    if taken {
        store.work.lock().memory.compacted_in_vain = false;
    }
    taken.then_some(why)
}

/// Brings the ranges of memory in line with the tables, while no flush is under way.
pub(super) fn fit_ranges(catalog: &Catalog, store: &Store, by_range: &dyn ByRange) -> Arc<Version> {
    loop {
        let version = store.version_full();
        let bounds = by_range.bounds(&version.shape);
        if bounds == version.scattered.bounds() {
            return version;
        }
        let fitted = Arc::new(fit(&version.scattered, bounds, &Seen::now(catalog).by(store)));
        store.swap_if(|now| {
            Arc::ptr_eq(&now.scattered, &version.scattered)
                .then(|| now.with_scattered(now.frozen.clone(), fitted.clone(), now.flush.clone()))
        });
        catalog.commit.recount(store);
    }
}

/// What each range that has memory has, with the range's number.
pub(super) fn memory_by_range(catalog: &Catalog, version: &Version) -> Vec<(usize, RangeMemory)> {
    let visible = catalog.commit.snapshots.visible();
    let ranges = version.scattered.ranges().enumerate();
    let held = ranges.filter(|(_, (_, pieces))| !pieces.is_empty());
    held.map(|(number, (range, pieces))| (number, range_memory(version, range, pieces, visible))).collect()
}

/// How the range whose memory is the flush set is merged with its tables; `None` where it goes to level 0, and where all is
/// flushed.
pub(super) fn plan_range(
    catalog: &Catalog,
    version: &Version,
    by_range: &dyn ByRange,
    early: bool,
    versions_kept: u64,
    unions: &Unions,
) -> Option<MergePlan> {
    let flush = &version.flush;
    if !flush.of_range {
        return None;
    }
    let memory = range_memory(version, flush.range(), &flush.segments, catalog.commit.snapshots.visible());
    let unique = |tables: &[TableId]| unions.left(version, &flush.segments, tables, versions_kept);
    by_range.flush(&version.shape, &memory, early, &unique)
}

/// What is known of some pieces of a range.
fn range_memory(version: &Version, range: KeyRange, pieces: &[Segment], visible: SeqNo) -> RangeMemory {
    let oldest = pieces.iter().filter_map(|piece| piece.seqs()).map(|seqs| *seqs.start()).min();
    let user_bytes: usize = pieces.iter().map(Segment::user_bytes).sum();
    RangeMemory {
        range,
        bytes: pieces.iter().map(|piece| piece.bytes() as u64).sum(),
        written: (user_bytes as f64 * compressed(version)) as u64,
        age: visible.0.saturating_sub(oldest.unwrap_or(visible).0),
    }
}

/// What a byte of keys and values takes in a table, as one of the tables has it.
fn compressed(version: &Version) -> f64 {
    let Some(open) = version.tables().find(|open| open.info.cells > 0 && !open.info.is_log_table()) else {
        return 1.0;
    };
    let properties = open.table().properties();
    open.info.bytes as f64 / (properties.key_bytes + properties.value_bytes).max(1) as f64
}

/// Not while a flush of all memory is under way; see the page above.
fn may_scatter(version: &Version) -> bool {
    version.flush.is_empty() || version.flush.of_range
}

/// What is scattered when the segment is.
fn scatter(version: &Version, segment: &Segment, by_range: &dyn ByRange, keep: &Visibility<'_>) -> Scattered {
    let before = &version.scattered;
    let bounds = match before.is_empty() {
        true => by_range.bounds(&version.shape),
        false => before.bounds().to_vec(),
    };
    let empty = Scattered::new(bounds.clone(), vec![Vec::new(); bounds.len() + 1], before.newest());
    let before = if before.is_empty() { &empty } else { &**before };
    let flat = segment.flatten(keep);
    // Of a part in which there is nothing.
    let Some(cells) = flat.as_flat() else { return before.clone() };
    let ranges = before.ranges().map(|(range, pieces)| {
        if !cells.touches(&range) {
            return pieces.to_vec();
        }
        let sizes: Vec<u64> = pieces.iter().map(|piece| piece.bytes() as u64).collect();
        let joined = pieces_to_join(cells.bytes_within(&range), &sizes);
        let sources: Vec<&Segment> = std::iter::once(&flat).chain(&pieces[..joined]).collect();
        piece(&sources, &range, keep).into_iter().chain(pieces[joined..].iter().cloned()).collect()
    });
    let newest = before.newest().max(segment.generation());
    Scattered::new(bounds, ranges.collect(), newest)
}

/// One piece of what flat segments, newest first, have of a range.
pub(super) fn piece(sources: &[&Segment], range: &KeyRange, keep: &Visibility<'_>) -> Option<Segment> {
    let flats: Vec<Arc<Flat>> = sources.iter().filter_map(|segment| segment.as_flat().cloned()).collect();
    // Before the cells are looked at: cleaning moves places on only.
    let places: Vec<LogPlace> = sources.iter().map(|segment| segment.log_place()).collect();
    let gathered = Flat::gathered(&flats, range, keep)?;
    Some(Segment::flat(Arc::new(gathered), LogPlace::of_all(&places)))
}

/// The same memory in other ranges. O(ranges log ranges), and the copies of pieces that a new bound cuts.
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
