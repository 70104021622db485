//! Which memtables of a range are to be compacted in memory (ACC-5), and when.
//!
//! Where a flush takes all memory, the family's policy is asked once for each memtable that is laid out,
//! about all that are: nothing else changes the answer, but for the draw.
//!
//! Where one range is flushed at a time, it is asked when one is about to be flushed, about those ranges
//! where most could be dead: the memtables of one may be worth copying into one first, less what nobody can
//! see any more. A range of one memtable is left as it is, and one of which little would be freed; after a
//! compaction that freed little, a range is flushed first. So compactions put a flush off but do not replace
//! it. A policy decides by what is expected to be redundant there, in place of what the last compaction met.
//! A flush waits for such a compaction only while that does not stop writers.

use super::facts::pipeline_facts;
use crate::catalog::Catalog;
use crate::commit::{FamilySettings, MemtableCompactionTurn, Store};
use crate::event::EventKind;
use crate::memtable::{FlatMemtable, MemoryOptions, Memtable, MemtableCompaction};
use crate::strategy::{MemtableCompactionKind, PipelineFacts, PipelineState};
use crate::types::KeyRange;
use crate::version::Version;
use std::sync::Arc;

/// Ranges of which it is asked whether compacting them pays: that hashes the keys of their cells.
const CANDIDATES: usize = 4;
/// The part of a range's memory (one over this) that a compaction must free to be worth putting the range's
/// flush off: else it would be due again at the next memtable.
pub(super) const FREES_MIN: u64 = 8;

/// A compaction of a range's memtables that is due, and has its turn.
pub(super) struct Due {
    /// While this is there no other begins.
    pub(super) _turn: MemtableCompactionTurn,
    pub(super) range: KeyRange,
    /// Whether it was found before a flush of that range; else it is of all memory that is laid out.
    pub(super) is_of_range: bool,
    /// The memtables to be compacted: the newest of the range.
    pub(super) sources: Vec<Memtable>,
    pub(super) kind: MemtableCompactionKind,
    pub(super) reason: String,
    pub(super) facts: PipelineFacts,
    /// Bytes that it is expected to take at most beside its sources.
    pub(super) expected: u64,
    /// Flushes of the store that had been tried.
    pub(super) flushes: u64,
}

pub(super) fn flats(memtables: &[Memtable]) -> Vec<Arc<FlatMemtable>> {
    memtables.iter().filter_map(|memtable| memtable.as_flat().cloned()).collect()
}

/// The compaction that is due now, if none is under way.
pub(super) fn due(catalog: &Catalog, store: &Arc<Store>, version: &Version) -> Option<Due> {
    match store.settings().by_range() {
        None => due_in_one(catalog, store, version),
        Some(_) => due_in_range(catalog, store, version),
    }
}

/// What the policy wants of all memtables, where all keys are one range.
fn due_in_one(catalog: &Catalog, store: &Arc<Store>, version: &Version) -> Option<Due> {
    let ranges = &version.memory.ranges;
    let mut sources = ranges.is_one().then(|| ranges.memtables_of(0).to_vec())?;
    if sources.is_empty() || store.flush_is_requested() {
        return None;
    }
    let flats = flats(&sources);
    let mut work = store.work.lock();
    if work.memory.is_compacting() || work.flush.is_under_way() || store.is_dropped() {
        return None;
    }
    let newest = sources[0].generation();
    if work.memory.joined_upto >= newest {
        return None;
    }
    let facts = pipeline_facts(catalog, work.memory.copy_ns_per_byte, &flats);
    work.memory.joined_upto = newest;
    let (kind, reason) = store.settings().options.memtable_policy.plan(&facts, &work.memory.pipeline)?;
    let copies = kind == MemtableCompactionKind::Indices && !MemtableCompaction::can_share_chunks(&flats);
    let kind = if copies { MemtableCompactionKind::Compact } else { kind };
    let expected = expected_bytes(kind, &facts);
    // Writers would stop for one that does not fit, and the flush that comes instead frees more.
    if is_memory_short(catalog, expected) {
        drop(work);
        let (taken, bound) = (catalog.commit.memory_taken(), catalog.cx.settings.write_memory());
        let reason = format!("{reason}; there is no room for it");
        let numbers = [("begun", 0), ("expected_bytes", expected), ("memory_bytes", taken), ("bound", bound)];
        catalog.cx.events.record(EventKind::MemtableAbort, &store.name, reason, &numbers);
        return None;
    }
    if kind == MemtableCompactionKind::CompactNewest {
        sources.truncate(1);
    }
    let flushes = work.flush.tries();
    let turn = MemtableCompactionTurn::begin(store, &mut work);
    Some(Due {
        _turn: turn,
        range: KeyRange::all(),
        is_of_range: false,
        sources,
        kind,
        reason,
        facts,
        expected,
        flushes,
    })
}

/// The compaction of the range that was found to be compacted before one is flushed.
fn due_in_range(catalog: &Catalog, store: &Arc<Store>, version: &Version) -> Option<Due> {
    let mut work = store.work.lock();
    if work.memory.is_compacting() || store.is_dropped() {
        return None;
    }
    let (range, reason, facts) = work.memory.compacts.clone()?;
    let ranges = &version.memory.ranges;
    let number = ranges.find(&range.start);
    let sources = ranges.memtables_of(number).to_vec();
    if sources.len() < 2 || ranges.range(number) != range {
        work.memory.compacts = None;
        drop(work);
        catalog.cx.scheduler.notify();
        return None;
    }
    let (kind, flushes) = (MemtableCompactionKind::Compact, work.flush.tries());
    let expected = expected_bytes(kind, &facts);
    let turn = MemtableCompactionTurn::begin(store, &mut work);
    Some(Due { _turn: turn, range, is_of_range: true, sources, kind, reason, facts, expected, flushes })
}

/// How the compaction uses memory: as active memtables do, or, of one range among several, in chunks that
/// its share fills.
pub(super) fn memory_options(store: &Store, due: &Due) -> MemoryOptions {
    match due.is_of_range {
        false => store.memory_options(),
        true => MemoryOptions::for_copy_of(due.expected as usize),
    }
}

/// The bytes that a compaction is expected to take at most beside its sources.
fn expected_bytes(kind: MemtableCompactionKind, facts: &PipelineFacts) -> u64 {
    match kind {
        MemtableCompactionKind::Indices => facts.cells * (size_of::<u64>() + size_of::<u32>()) as u64,
        _ => facts.stays(kind),
    }
}

/// Whether a compaction of a range is under way, or due, for which a flush waits. Where memory is short none
/// waits, and one that has not begun is given up.
pub(crate) fn compacts_first(catalog: &Catalog, store: &Store) -> bool {
    let is_short = is_memory_short(catalog, 0);
    let mut work = store.work.lock();
    if is_short && !work.memory.is_compacting() {
        work.memory.compacts = None;
    }
    work.memory.compacts.is_some() && !is_short
}

/// Whether writers would stop for so many bytes more.
fn is_memory_short(catalog: &Catalog, more: u64) -> bool {
    catalog.commit.memory_taken() + more > catalog.cx.settings.write_memory()
}

/// Whether some range is to be compacted before one is flushed; the compaction is then due.
///
/// The settings are those by which the caller flushes one range. Where the store has others meanwhile nothing
/// is noted, as it might never become due.
pub(crate) fn compacts_before(
    catalog: &Catalog,
    store: &Store,
    settings: &Arc<FamilySettings>,
    version: &Version,
) -> bool {
    let copy_ns = {
        let work = store.work.lock();
        if work.memory.compacted_in_vain || work.memory.is_compacting() {
            return false;
        }
        work.memory.copy_ns_per_byte
    };
    let policy = &settings.options.memtable_policy;
    if !policy.compacts() || store.is_leaving() {
        return false;
    }
    let ranges = &version.memory.ranges;
    let bytes = ranges.ranges().map(|(_, memtables)| memtables.iter().map(Memtable::bytes));
    for number in candidates(bytes) {
        let facts = pipeline_facts(catalog, copy_ns, &flats(ranges.memtables_of(number)));
        let state = PipelineState::expecting(facts.distinct, facts.cells);
        let Some((MemtableCompactionKind::Compact, reason)) = policy.plan(&facts, &state) else { continue };
        let expected = facts.stays(MemtableCompactionKind::Compact);
        let frees_little = facts.bytes.saturating_sub(expected) < facts.bytes / FREES_MIN;
        if frees_little || is_memory_short(catalog, expected) {
            continue;
        }
        let mut work = store.work.lock();
        if !store.has_settings(settings) {
            return false;
        }
        work.memory.compacts = Some((ranges.range(number), reason, facts));
        drop(work);
        catalog.commit.touch(store.id);
        catalog.cx.scheduler.notify();
        return true;
    }
    false
}

/// The numbers of the ranges of which most could be dead, the one with most first. For each range it is given
/// what its memtables take: of what is in several at most all but the largest is dead, as none holds a dead
/// cell itself. O(memtables + ranges log ranges).
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

    /// Counted work: the question which of 10,000 ranges are to be compacted looks at each memtable once, and
    /// hashes those of four.
    #[test]
    fn of_ten_thousand_ranges_the_four_with_most_to_free_are_found_in_one_look_at_each() {
        let looks = Cell::new(0);
        let looked = |bytes: usize| {
            looks.set(looks.get() + 1);
            bytes
        };
        // Of each range a large memtable, and small ones whose sum is different everywhere; every third has
        // one.
        let small = |at: usize| at * 7_919 % 10_007;
        let memtables = |at: usize| {
            let several = if at.is_multiple_of(3) { 0 } else { small(at) };
            [1 << 20, several / 2, several - several / 2].into_iter().map(looked)
        };
        let found = candidates((0..10_000).map(memtables));
        assert_eq!(looks.get(), 30_000);
        let mut all: Vec<usize> = (0..10_000).filter(|at| at % 3 != 0).collect();
        all.sort_by_key(|at| std::cmp::Reverse(small(*at)));
        assert_eq!(found, all[..4]);
    }

    #[test]
    fn ranges_of_one_memtable_are_not_compacted() {
        assert!(candidates([vec![5], vec![], vec![9]].into_iter().map(Vec::into_iter)).is_empty());
    }
}
