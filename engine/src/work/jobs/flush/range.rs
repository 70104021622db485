//! Flushing the memory of one key range, where a store holds it by range (`memtable/scatter.rs`), and where
//! the shape allows it merging that with the range's SSTables in the same act: these are sources behind the
//! memtables, and a step's edit removes or clips them. Such a flush stands among the store's running merges,
//! so that no other takes its SSTables. Where something is in the way, what is in memory goes to L0. It keeps
//! no hot keys and leaves nothing in the WAL.

use super::steps::{FlushProgress, FlushStart, FlushSteps, plain};
use crate::catalog::Catalog;
use crate::commit::{CompactionTurn, FlushTurn, Store};
use crate::compaction::MergeRun;
use crate::error::{Error, Result};
use crate::strategy::{ByRange, CompactionPlan, RangeMemory, validate_flush, victim_beside};
use crate::types::{KeyRange, LogPosition, TableId};
use crate::version::{FlushSet, Unions, Version, flushed_run};
use crate::work::jobs::compaction::{TableSources, table_sources};
use crate::work::jobs::memory::{compacts_before, fit_ranges, memory_by_range, range_memory};
use crate::work::jobs::outcome::JobProgress;
use std::sync::Arc;

/// A flush of one range of memory.
pub(crate) struct FlushRangeJob {
    steps: FlushSteps,
}

impl FlushRangeJob {
    /// Takes the memory of one range as flush set, that of the key `at` if that is given, else the strategy's
    /// victim. `None` when there is nothing to take yet. The flush has begun with that turn.
    pub(crate) fn start(
        catalog: &Catalog,
        store: &Arc<Store>,
        turn: FlushTurn,
        by_range: &dyn ByRange,
        reason: String,
        at: Option<&[u8]>,
    ) -> Option<Self> {
        let reason = match take_range(catalog, store, by_range, at) {
            Some(why) => format!("{reason}; {why}"),
            None => reason,
        };
        let logged_to = catalog.commit.log().map_or(LogPosition::default(), |log| log.end());
        let id = catalog.next_job();
        let begun = plan(catalog, store, by_range, id, reason);
        let (version, plan, tables, running) = begun?;
        // Recovery may have put cells there that were logged under a later generation than theirs.
        let generation = version.flush.generation.max(store.replayed_generation());
        let begin = FlushStart {
            turn,
            running,
            id,
            version: &version,
            plan,
            claims: generation.max(version.flush.reserved),
            logged_to,
            tables,
            left_over: false,
            cuts: Vec::new(),
            aside: None,
        };
        Some(Self { steps: FlushSteps::new(catalog, store, begin) })
    }

    pub(crate) fn id(&self) -> u32 {
        self.steps.id
    }

    /// Its number among the store's flushes.
    pub(crate) fn number(&self) -> u64 {
        self.steps.number
    }

    /// Whether it merges the memory of the range with the range's SSTables.
    pub(crate) fn reads_tables(&self) -> bool {
        !self.steps.plan.inputs.is_empty()
    }

    /// Does a little.
    pub(crate) fn advance(&mut self, catalog: &Arc<Catalog>) -> Result<JobProgress> {
        match self.steps.advance(catalog, |_| Ok(None))? {
            FlushProgress::More => return Ok(JobProgress::More),
            FlushProgress::Step(_) => return Ok(JobProgress::Wait(0)),
            FlushProgress::Done(_) => {}
        }
        self.steps.note_done(catalog);
        self.steps.tell(catalog, self.steps.plan.reason.clone());
        if self.reads_tables() {
            let keys = self.steps.merge.totals().keys;
            self.steps.fills.tell(catalog, &self.steps.store, keys);
        }
        self.steps.leave();
        Ok(JobProgress::Done)
    }

    /// Gives up: what was installed stays, the rest of the flush set stays in memory for the next flush.
    pub(crate) fn abandon(mut self, catalog: &Catalog, why: &Error) -> Arc<Store> {
        if self.steps.installed > 0 {
            self.steps.tell(catalog, format!("{}; given up: {why}", self.steps.plan.reason));
        }
        self.steps.leave();
        catalog.remove_tables(&self.steps.merge.leftovers());
        self.steps.store
    }
}

/// Takes one range's memory as flush set, that of the key `at` or else the one that the strategy chooses, and
/// says why that. `None` when there is nothing to take yet: then it is on the way.
fn take_range(
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
                store.work.lock().merges.running().iter().map(|merge| merge.range_left()).collect();
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
            catalog.cx.scheduler.notify();
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

/// The plan by which the range is flushed: made under the lock under which merges come and go, on a shape
/// that nobody changes, and from then on among the running merges.
fn plan(
    catalog: &Catalog,
    store: &Arc<Store>,
    by_range: &dyn ByRange,
    id: u32,
    reason: String,
) -> Option<(Arc<Version>, CompactionPlan, TableSources, Option<CompactionTurn>)> {
    let settings = store.settings();
    let unions = Unions::default();
    let merged_range = |version: &Version, early: bool| {
        plan_range(catalog, version, by_range, early, settings.versions_kept(), &unions)
    };
    // Once before the lock: it looks at all ranges, and reads sketches, which are known then.
    let before = store.version_full();
    let early = before.flush.of_range && by_range.is_early(&before.shape, &before.flush.range());
    merged_range(&before, early);
    drop(before);
    let mut work = store.work.lock();
    let version = store.version_full();
    if version.flush.is_empty() {
        return None;
    }
    let range = version.flush.range();
    let running = work.merges.running();
    // Not where its tables are being merged: beside them it may still be a delta.
    let early = early && !running.iter().any(|merge| merge.range_left().overlaps(&range));
    let merged =
        merged_range(&version, early).filter(|plan| validate_flush(&version.shape, plan, &running).is_ok());
    let table_bytes = settings.options.strategy.strategy().table_bytes();
    let plan = match merged {
        Some(plan) => CompactionPlan { reason: format!("{reason}: {}", plan.reason), ..plan },
        None => plain(&version, table_bytes, reason),
    };
    let tables = table_sources(&version, &plan)?;
    let reads_tables = plan.output.level > 0;
    let turn = reads_tables.then(|| CompactionTurn::begin(store, &mut work, id, plan.clone()));
    drop(work);
    Some((version, plan, tables, turn))
}

/// The plan by which the range whose memory is the flush set is merged with its SSTables; `None` where it
/// goes to L0, and where all is flushed.
fn plan_range(
    catalog: &Catalog,
    version: &Version,
    by_range: &dyn ByRange,
    early: bool,
    versions_kept: u64,
    unions: &Unions,
) -> Option<CompactionPlan> {
    let flush = &version.flush;
    if !flush.of_range {
        return None;
    }
    let memory = range_memory(version, flush.range(), &flush.segments, catalog.commit.snapshots.visible());
    let unique = |tables: &[TableId]| unions.left(version, &flush.segments, tables, versions_kept);
    by_range.flush(&version.shape, &memory, early, &unique)
}
