//! Compaction in memory (ACC-5) where a store holds its memory by key range (`scatter.rs`).
//!
//! When a range is about to be flushed, the family's memory policy is asked about the pieces of those ranges
//! where most could be dead, as it is about the memtables of other families: it may want the pieces of one
//! copied into one first, less what nobody can see any more. A chore does that, in one go, and then it is
//! decided anew whether a flush is due, and of which range. A range of one piece is left as it is, and one of
//! which little would be freed; after a compaction that freed little, a range is flushed first. So
//! compactions put a flush off but do not replace it. `adaptive` decides by what is expected to be redundant,
//! in place of what the last compaction met.
//!
//! The copy's memory counts nowhere, as that of dividing a memtable by range: it is there for a hundredth of
//! the time that the flush would take, which frees nothing before its end.
//!
//! What joining pieces drops when a memtable is scattered is dead within the pieces that are joined; here it
//! is all that is dead in the range. Nothing is copied for it before memory is full.

use super::facts::pipeline_facts;
use super::ranges::piece;
use super::visibility::Visible;
use crate::catalog::Catalog;
use crate::commit::Store;
use crate::event::EventKind;
use crate::memtable::{FlatMemtable, Memtable};
use crate::strategy::{MemtableCompactionKind, PipelineState};
use crate::version::Version;
use std::sync::Arc;

/// Ranges of which it is asked whether compacting them pays: that hashes the keys of their cells.
const CANDIDATES: usize = 4;
/// The part of a range's memory (one over this) that a compaction must free to be worth putting the range's
/// flush off: else it would be due again at the next memtable.
const FREES_MIN: u64 = 8;

/// Copies the pieces of the range that is to be compacted into one; whether there was such a range.
pub(crate) fn compact_range(catalog: &Catalog, store: &Store) -> bool {
    let Some((range, reason)) = store.work.lock().memory.compacts.clone() else { return false };
    let version = store.version_full();
    let number = version.scattered.find(&range.start);
    let pieces = version.scattered.pieces_of(number);
    if pieces.len() > 1 && version.scattered.range(number) == range {
        let seen = Visible::now(catalog);
        let began_ns = catalog.cx.env.clock.monotonic_ns();
        let sources: Vec<&Memtable> = pieces.iter().collect();
        let compacted: Vec<Memtable> = piece(&sources, &range, &seen.by(store)).into_iter().collect();
        kill_point!("compact-range-copied");
        let mut swapped = false;
        store.swap_if(|now| {
            swapped = Arc::ptr_eq(&now.scattered, &version.scattered);
            swapped.then(|| {
                let scattered = now.scattered.with(number, compacted.clone());
                now.with_scattered(now.frozen.clone(), Arc::new(scattered), now.flush.clone())
            })
        });
        if swapped {
            note_compaction(catalog, store, pieces, &compacted, began_ns, reason);
        }
    }
    store.work.lock().memory.compacts = None;
    catalog.commit.touch(store.id);
    // Writers may wait for the room, and a flush for the answer.
    catalog.cx.scheduler.notify();
    true
}

/// Counts the compaction and records its event.
fn note_compaction(
    catalog: &Catalog,
    store: &Store,
    pieces: &[Memtable],
    made: &[Memtable],
    began_ns: u64,
    reason: String,
) {
    catalog.commit.recount(store);
    let busy_ns = catalog.cx.env.clock.monotonic_ns() - began_ns;
    let bytes = |pieces: &[Memtable]| pieces.iter().map(Memtable::bytes).sum::<usize>();
    let cells = |pieces: &[Memtable]| pieces.iter().map(|piece| piece.cells() as u64).sum::<u64>();
    let (before, after) = (bytes(pieces) as u64, bytes(made) as u64);
    let freed = before.saturating_sub(after);
    {
        let mut work = store.work.lock();
        work.memory.note_copy(after, busy_ns);
        // What sketches do not know: that a cell's other versions are kept, or that a snapshot sees them.
        work.memory.compacted_in_vain = freed < before / FREES_MIN;
    }
    catalog.cx.metrics.memory_compactions.add(1);
    catalog.cx.metrics.memory_freed_bytes.add(freed);
    let numbers = [
        ("segments", pieces.len() as u64),
        ("cells_in", cells(pieces)),
        ("cells_out", cells(made)),
        ("freed_bytes", freed),
        ("micros", busy_ns / 1_000),
    ];
    catalog.cx.events.record(EventKind::MemoryCompaction, &store.name, reason, &numbers);
}

/// Whether some range is to be compacted before one is flushed; the chore for it is then due.
pub(crate) fn compacts_before(catalog: &Catalog, store: &Store, version: &Version) -> bool {
    let copy_ns = {
        let work = store.work.lock();
        if work.memory.compacts.is_some() {
            return true;
        }
        if work.memory.compacted_in_vain {
            return false;
        }
        work.memory.copy_ns_per_byte
    };
    let settings = store.settings();
    let policy = &settings.options.memory;
    if !policy.compacts() || store.is_leaving() {
        return false;
    }
    let bytes = version.scattered.pieces_by_range().map(|pieces| pieces.iter().map(Memtable::bytes));
    for at in candidates(bytes) {
        let pieces = version.scattered.pieces_of(at);
        let flats: Vec<Arc<FlatMemtable>> =
            pieces.iter().filter_map(|piece| piece.as_flat().cloned()).collect();
        let facts = pipeline_facts(catalog, copy_ns, &flats);
        let state = PipelineState::expecting(facts.distinct, facts.cells);
        let Some((MemtableCompactionKind::Compact, reason)) = policy.plan(&facts, &state) else { continue };
        let expected = facts.stays(MemtableCompactionKind::Compact);
        if facts.bytes.saturating_sub(expected) < facts.bytes / FREES_MIN {
            continue;
        }
        store.work.lock().memory.compacts = Some((version.scattered.range(at), reason));
        catalog.commit.touch(store.id);
        catalog.cx.scheduler.notify();
        return true;
    }
    false
}

/// The numbers of the ranges of which most could be dead, the one with most first. For each range it is given
/// what its pieces take: of what is in several pieces at most all but the largest is dead, as none holds a
/// dead cell itself. O(pieces + ranges log ranges).
fn candidates(ranges: impl Iterator<Item = impl Iterator<Item = usize>>) -> Vec<usize> {
    let most_dead = |pieces: &mut dyn Iterator<Item = usize>| {
        let (all, largest) = pieces.fold((0, 0), |(all, largest), bytes| (all + bytes, bytes.max(largest)));
        all - largest
    };
    let dead = ranges.map(|mut pieces| most_dead(&mut pieces)).enumerate();
    let mut found: Vec<(usize, usize)> = dead.filter(|(_, dead)| *dead > 0).collect();
    found.sort_by_key(|(_, dead)| std::cmp::Reverse(*dead));
    found.into_iter().take(CANDIDATES).map(|(at, _)| at).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    /// Counted work: the question which of 10,000 ranges are to be compacted looks at each piece once, and
    /// hashes those of four.
    #[test]
    fn of_ten_thousand_ranges_the_four_with_most_to_free_are_found_in_one_look_at_each() {
        let looks = Cell::new(0);
        let looked = |bytes: usize| {
            looks.set(looks.get() + 1);
            bytes
        };
        // Of each range a large piece, and small ones whose sum is different everywhere; every third is in
        // one piece.
        let small = |at: usize| at * 7_919 % 10_007;
        let pieces = |at: usize| {
            let several = if at.is_multiple_of(3) { 0 } else { small(at) };
            [1 << 20, several / 2, several - several / 2].into_iter().map(looked)
        };
        let found = candidates((0..10_000).map(pieces));
        assert_eq!(looks.get(), 30_000);
        let mut all: Vec<usize> = (0..10_000).filter(|at| at % 3 != 0).collect();
        all.sort_by_key(|at| std::cmp::Reverse(small(*at)));
        assert_eq!(found, all[..4]);
    }

    #[test]
    fn ranges_of_one_piece_are_not_compacted() {
        assert!(candidates([vec![5], vec![], vec![9]].into_iter().map(Vec::into_iter)).is_empty());
    }
}
