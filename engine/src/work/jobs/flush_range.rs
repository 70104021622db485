//! Flushing the memory of one key range, where a store holds it by range (`by_range.rs`), and where the shape allows it
//! merging that with the range's tables in the same act: these are sources behind the segments, and a step's edit removes
//! or clips them. Such a flush stands among the store's running merges, so that no other takes its tables. Where something
//! is in the way, what is in memory goes to level 0. It keeps no hot keys and leaves nothing in the log.

use super::Advanced;
use super::by_range::{plan_range, take_range};
use super::flushing::{Begin, Flushes, Flushing, plain};
use super::merge::{READ_AHEAD, TableSources, table_sources};
use crate::catalog::Catalog;
use crate::commit::Store;
use crate::error::{Error, Result};
use crate::merge::MergeRun;
use crate::strategy::{ByRange, MergePlan, RunningMerge, validate_flush};
use crate::types::LogPosition;
use crate::version::{Unions, Version};
use std::sync::Arc;

pub(crate) struct FlushRangeJob {
    flushing: Flushing,
}

impl FlushRangeJob {
    /// Takes the memory of one range as flush set, that of the key `at` if that is given, else the strategy's victim.
    /// `None` when there is nothing to take yet. The flush has begun under that number.
    pub(super) fn start(
        catalog: &Catalog,
        store: &Arc<Store>,
        number: u64,
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
        let Some((version, plan, tables)) = begun else {
            store.work.lock().flush.under_way = false;
            return None;
        };
        // Cells that recovery put there may have been logged under a later generation than that of their segment.
        let generation = version.flush.generation.max(store.replayed_generation());
        let begin = Begin {
            number,
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
        Some(Self { flushing: Flushing::new(catalog, store, begin) })
    }

    pub(super) fn id(&self) -> u32 {
        self.flushing.id
    }

    pub(super) fn number(&self) -> u64 {
        self.flushing.number
    }

    /// Whether it merges the memory of the range with the range's tables.
    pub(super) fn reads_tables(&self) -> bool {
        !self.flushing.plan.inputs.is_empty()
    }

    pub(super) fn advance(&mut self, catalog: &Arc<Catalog>) -> Result<Advanced> {
        match self.flushing.advance(catalog, |_| Ok(None))? {
            Flushes::More => return Ok(Advanced::More),
            Flushes::Step(_) => return Ok(Advanced::Wait(0)),
            Flushes::Done(_) => {}
        }
        self.flushing.note_done(catalog);
        self.flushing.tell(catalog, self.flushing.plan.reason.clone());
        if self.reads_tables() {
            let keys = self.flushing.merge.totals().keys;
            self.flushing.fills.tell(catalog, &self.flushing.store, keys);
        }
        self.flushing.leave();
        Ok(Advanced::Done)
    }

    /// Gives up: what was installed stays, the rest of the flush set stays in memory for the next flush.
    pub(super) fn abandon(self, catalog: &Catalog, why: &Error) -> Arc<Store> {
        if self.flushing.steps > 0 {
            self.flushing.tell(catalog, format!("{}; given up: {why}", self.flushing.plan.reason));
        }
        self.flushing.leave();
        catalog.remove_tables(&self.flushing.merge.leftovers());
        self.flushing.store
    }
}

/// How the range is flushed: judged under the lock under which merges come and go, on a shape that nobody changes, and
/// from then on among the running merges.
fn plan(
    catalog: &Catalog,
    store: &Store,
    by_range: &dyn ByRange,
    id: u32,
    reason: String,
) -> Option<(Arc<Version>, MergePlan, TableSources)> {
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
    let running: Vec<_> = work.merges.running.iter().map(|(_, running)| running.clone()).collect();
    // Not where its tables are being merged: beside them it may still be a delta.
    let early = early && !running.iter().any(|merge| merge.range_left().overlaps(&range));
    let merged =
        merged_range(&version, early).filter(|plan| validate_flush(&version.shape, plan, &running).is_ok());
    let table_bytes = settings.options.strategy.strategy().table_bytes();
    let plan = match merged {
        Some(plan) => MergePlan { reason: format!("{reason}: {}", plan.reason), ..plan },
        None => plain(&version, table_bytes, reason),
    };
    let tables = table_sources(&version, &plan, READ_AHEAD)?;
    if plan.output.level > 0 {
        work.merges.running.push((id, RunningMerge { plan: plan.clone(), clip: None }));
    }
    drop(work);
    Some((version, plan, tables))
}
