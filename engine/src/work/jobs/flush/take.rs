//! The flush set: what a flush takes of a store's memory, and by which plan that is brought to SSTables.
//!
//! All memory goes to L0. The memory of one key range (RNG-2) is compacted with the range's SSTables in the
//! same act, where the shape allows it: these are inputs behind the memtables, and a step's edit removes or
//! clips them. Such a flush stands among the store's running compactions, so that no other takes its
//! SSTables. Where something is in the way, the range's memory goes to L0, too.
//!
//! What may be claimed for a flush set (I1) is argued in `memtable/by_range.rs`.

use crate::catalog::Catalog;
use crate::commit::{CompactionTurn, FamilySettings, Store};
use crate::memtable::{Memtable, MemtableRanges};
use crate::strategy::{
    ByRange, CompactionKind, CompactionPlan, RangeMemory, Target, validate_flush, victim_beside,
};
use crate::types::{Generation, KeyRange, TableId};
use crate::version::{FlushSet, Memtables, Unions, Version, flushed_run};
use crate::work::jobs::memory::{compacts_before, compacts_first, fit_ranges, memory_by_range, range_memory};
use std::sync::Arc;

/// What a flush takes.
pub(crate) enum Take {
    /// All memory, or what an earlier flush left of its set.
    All,
    /// The memory of one range: that of the key, or the one that the strategy chooses.
    Range(Option<Vec<u8>>),
}

/// What a flush of a store may do.
#[derive(Clone, Copy)]
pub(crate) struct FlushPolicy {
    /// Hot keys may stay in memory: a caller who asks for a flush wants it empty.
    pub(crate) keep: bool,
    /// Values may stay in the WAL: not while its oldest file is being cleaned.
    pub(crate) leave_in_wal: bool,
}

/// The plan of a flush, with its turn among the running compactions if it reads SSTables.
pub(super) type Planned = (Arc<Version>, CompactionPlan, Option<CompactionTurn>);

/// Makes all memory of the store the flush set, or takes up one that is there. Where memory is held by
/// several ranges, nothing is taken before all that waits is laid out.
pub(super) fn take_all(catalog: &Catalog, store: &Store) {
    let version = store.version();
    let Memtables { ranges, flushing, waiting, .. } = &version.memory;
    let takes_waiting = ranges.counts_as_one();
    // Not at every try: each would leave a memtable, until there is room for the first.
    let freezes = match flushing.is_empty() {
        true => takes_waiting || (waiting.is_empty() && store.active_flush_is_requested()),
        false => store.active_flush_is_requested(),
    };
    drop(version);
    if freezes {
        catalog.commit.freeze(store);
        catalog.cx.scheduler.notify();
    }
    let settings = store.settings();
    store.swap_if(|now| with_all_taken(now, store, || settings.range_bounds(&now.shape)));
    catalog.commit.recount(store);
}

/// The version whose flush set is all memory. It joins one that a job left of which nothing is installed:
/// what is newer may be the delete without which there is no room for what that set holds. `None`: there is
/// another set, or something is still to be laid out.
///
/// No older cell may stay in memory, not even in a memtable of a higher generation: a flush claims what
/// recovery put there with its own generations ([`Store::claimed`]).
fn with_all_taken(now: &Version, store: &Store, bounds: impl FnOnce() -> Vec<Vec<u8>>) -> Option<Version> {
    let Memtables { active, waiting, ranges, flushing } = &now.memory;
    if !now.memory.may_join_flush() {
        return None;
    }
    let takes_waiting = ranges.counts_as_one();
    let taken = match takes_waiting {
        true => {
            let all = now.memory.unflushed().chain(flushing.all()).cloned().collect();
            MemtableRanges::one(all, ranges.newest())
        }
        false if waiting.is_empty() => MemtableRanges::clone(ranges),
        false => return None,
    };
    if taken.is_empty() {
        return None;
    }
    let newest = taken.memtables().map(Memtable::generation).max().unwrap_or_default();
    let generation = if takes_waiting { newest } else { ranges.newest() };
    let flushing = FlushSet {
        ranges: Arc::new(taken),
        range: KeyRange::all(),
        generation,
        // What is newer than all of it is the active memtable, whose id has the reserved one before it.
        reserved: Generation(active.generation().0 - 1),
        run: flushed_run(&now.shape, store.claimed(generation), &KeyRange::all()),
    };
    let ranges = Arc::new(ranges.emptied_into(bounds()));
    Some(now.with_memory(Memtables { active: active.clone(), waiting: Vec::new(), ranges, flushing }))
}

/// Takes one range's memory as flush set, that of the key `at` or else the one that the strategy chooses, and
/// says why that. `None` when there is nothing to take yet: then it is on the way.
pub(super) fn take_range(
    catalog: &Catalog,
    store: &Arc<Store>,
    settings: &Arc<FamilySettings>,
    by_range: &dyn ByRange,
    at: Option<&[u8]>,
) -> Option<String> {
    // Before all ranges are looked at, as this is asked again and again.
    if !store.version().memory.waiting.is_empty() || (at.is_none() && compacts_first(catalog, store)) {
        return None;
    }
    let version = fit_ranges(catalog, store, by_range);
    let memory = memory_by_range(catalog, &version);
    let facts: Vec<RangeMemory> = memory.iter().map(|(_, memory)| memory.clone()).collect();
    let chosen = match at {
        Some(key) => memory
            .iter()
            .find(|(_, memory)| memory.range.contains(key))
            .map(|(number, m)| (*number, format!("the range {} has most of it", m.range))),
        None => {
            let merging: Vec<KeyRange> = store
                .work
                .lock()
                .compactions
                .running()
                .iter()
                .map(|compaction| compaction.range_left())
                .collect();
            let chosen = victim_beside(by_range, &version.shape, &facts, &merging);
            chosen.map(|(best, why)| (memory[best].0, why))
        }
    };
    let Memtables { active, waiting, ranges, .. } = &version.memory;
    let (number, why) = match chosen {
        // Most of it is still to be laid out.
        _ if !waiting.is_empty() => return None,
        Some(chosen) if at.is_some() || ranges.bytes() >= active.bytes() as u64 => chosen,
        _ => {
            catalog.commit.freeze(store);
            catalog.cx.scheduler.notify();
            return None;
        }
    };
    if at.is_none() && compacts_before(catalog, store, settings, &version) {
        return None;
    }
    let range = ranges.range(number);
    let mut taken = false;
    store.swap_if(|now| {
        let Memtables { waiting, ranges, flushing, .. } = &now.memory;
        taken = waiting.is_empty() && flushing.is_empty() && Arc::ptr_eq(ranges, &version.memory.ranges);
        taken.then(|| {
            let generation = ranges.newest();
            let memtables = ranges.memtables_of(number).to_vec();
            let flushing = FlushSet {
                ranges: Arc::new(MemtableRanges::one(memtables, generation)),
                range: range.clone(),
                generation,
                reserved: generation,
                run: flushed_run(&now.shape, store.claimed(generation), &range),
            };
            let ranges = Arc::new(ranges.with(number, Vec::new()));
            now.with_memory(Memtables { ranges, flushing, ..now.memory.clone() })
        })
    });
    if taken {
        store.work.lock().memory.compacted_in_vain = false;
    }
    taken.then_some(why)
}

/// The plan of a flush of memory alone, into L0: whatever is in the way below, L0 is above it.
pub(super) fn plan_plain(version: &Version, store: &Store, reason: String) -> CompactionPlan {
    let flushing = &version.memory.flushing;
    CompactionPlan {
        inputs: Vec::new(),
        output: Target { level: 0, run: flushing.run },
        range: flushing.range.clone(),
        kind: CompactionKind::Merge,
        bytes: flushing.bytes(),
        sstable_bytes: store.settings().options.strategy.strategy().sstable_bytes(),
        score: f64::MAX,
        reason,
    }
}

/// The plan by which the range whose memory is the flush set is flushed: made under the lock under which
/// compactions come and go, on a shape that nobody changes, and from then on among those that run. `None`
/// where there is no flush set.
pub(super) fn plan_range(
    catalog: &Catalog,
    store: &Arc<Store>,
    by_range: &dyn ByRange,
    id: u32,
    reason: String,
) -> Option<Planned> {
    let versions_kept = store.settings().versions_kept();
    let unions = Unions::default();
    let with_tables = |version: &Version, early: bool| {
        let FlushSet { ranges, range, .. } = &version.memory.flushing;
        let memtables: Vec<Memtable> = ranges.memtables().cloned().collect();
        let memory = range_memory(version, range.clone(), &memtables, catalog.commit.snapshots.visible());
        let unique = |tables: &[TableId]| unions.left(version, &memtables, tables, versions_kept);
        by_range.flush(&version.shape, &memory, early, &unique)
    };
    // Once before the lock: it looks at all ranges, and reads sketches, which are known then.
    let before = store.version_full();
    if before.memory.flushing.is_empty() {
        return None;
    }
    let early = by_range.is_early(&before.shape, &before.memory.flushing.range);
    with_tables(&before, early);
    drop(before);
    let mut work = store.work.lock();
    let version = store.version_full();
    let FlushSet { range, .. } = &version.memory.flushing;
    let running = work.compactions.running();
    // Not where its tables are being compacted: beside them it may still be a delta.
    let early = early && !running.iter().any(|other| other.range_left().overlaps(range));
    let with_tables =
        with_tables(&version, early).filter(|plan| validate_flush(&version.shape, plan, &running).is_ok());
    let plan = match with_tables {
        Some(plan) => CompactionPlan { reason: format!("{reason}: {}", plan.reason), ..plan },
        None => plan_plain(&version, store, reason),
    };
    let reads_tables = plan.output.level > 0;
    let turn = reads_tables.then(|| CompactionTurn::begin(store, &mut work, id, plan.clone()));
    drop(work);
    Some((version, plan, turn))
}
