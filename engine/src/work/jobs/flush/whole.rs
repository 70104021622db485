//! Flushing all memory of a store to SSTables of L0, as a merge of the memtables in the flush set.
//!
//! Where memory is held by key range (`range.rs`) this is for what an interrupted flush left, and for all
//! memory that somebody asked for: in SSTables that end where ranges do.
//!
//! Keys that were updated often are not written but stay in memory (`hot_keys.rs`): a step's hot cells are
//! logged again under the generation reserved for them and synced before the step's edit. So a flush that
//! keeps claims for its SSTables only the generations of its memtables, and one that keeps nothing claims the
//! reserved one too: then whatever an earlier attempt at it may have logged again counts as written.

use super::hot_keys::{keep_budget, log_kept};
use super::steps::{FlushPolicy, FlushProgress, FlushStart, FlushSteps, bytes_of, plain};
use super::wal_values::{LogTableJob, prepare_log_table};
use crate::catalog::Catalog;
use crate::commit::{FlushTurn, Store};
use crate::compaction::{AsideRules, MergeRun};
use crate::error::{Error, Result};
use crate::event::EventKind;
use crate::memtable::Memtable;
use crate::strategy::{HotKeys, HotPlan, KEPT_MAX, LogTableChoice};
use crate::types::{Generation, KeyRange, LogPosition};
use crate::version::{FlushSet, flushed_run};
use crate::work::jobs::compaction::TableSources;
use crate::work::jobs::layout::Layout;
use crate::work::jobs::outcome::JobProgress;
use std::sync::Arc;

/// A flush of all memory.
pub(crate) struct FlushJob {
    steps: FlushSteps,
    hot: Option<HotPlan>,
    /// The generation of the cells it keeps.
    reserved: Generation,
    /// The bytes of memory that it may keep.
    keep_budget: u64,
    /// The cells and the bytes of memory that it kept.
    kept: (u64, u64),
    /// What leaves its values in the WAL, if they may stay there.
    log_table: Option<Box<LogTableJob>>,
}

impl FlushJob {
    /// Freezes what the store has and takes it as flush set; or takes up one that an earlier job left, of
    /// which nothing is kept. `None` when there is nothing. The flush has begun with that turn.
    pub(crate) fn start(
        catalog: &Catalog,
        store: &Arc<Store>,
        turn: FlushTurn,
        reason: String,
        policy: FlushPolicy,
    ) -> Option<Self> {
        let (left_over, log_table) = take_all(catalog, store, policy);
        let logged_to = catalog.commit.log().map_or(LogPosition::default(), |log| log.end());
        let id = catalog.next_job();
        let settings = store.settings();
        let layout = Layout::of(&settings);
        let version = store.version_full();
        if version.flush.is_empty() {
            return None;
        }
        // Recovery may have put cells there that were logged under a later generation than theirs.
        let generation = version.flush.generation.max(store.replayed_generation());
        let reserved = version.flush.reserved;
        let bytes = bytes_of(&version);
        let may_take = keep_budget(catalog, store, bytes);
        let hot = (settings.options.hot_keys != HotKeys::Off && !left_over && layout.is_whole()).then(|| {
            // They have an id of their own only where something was written since cells were last kept.
            match policy.keep && generation < reserved && !store.is_leaving() {
                true => {
                    let state = store.work.lock().flush.hot.clone();
                    settings.options.hot_keys.plan(may_take, &state)
                }
                false => HotPlan { over: None, reason: "this flush is to keep nothing".into() },
            }
        });
        let over = hot.as_ref().and_then(|hot| hot.over);
        let budget = if over.is_some() { may_take } else { 0 };
        catalog.commit.room.keeping.add(budget);
        let log_table = log_table
            .map(|choice| Box::new(LogTableJob::new(catalog, store, choice, &version.flush, logged_to)));
        let cuts = if version.flush.of_range { Vec::new() } else { layout.bounds(&version.shape) };
        let table_bytes = settings.options.strategy.strategy().table_bytes();
        let steps = FlushSteps::new(
            catalog,
            store,
            FlushStart {
                turn,
                running: None,
                id,
                version: &version,
                plan: plain(&version, table_bytes, reason),
                claims: if over.is_some() { generation } else { generation.max(reserved) },
                logged_to,
                tables: TableSources::none(),
                left_over,
                cuts,
                aside: hot.as_ref().map(|hot| AsideRules {
                    over: hot.over,
                    bytes_max: budget,
                    kept_max: KEPT_MAX,
                }),
            },
        );
        Some(Self { steps, hot, reserved, keep_budget: budget, kept: (0, 0), log_table })
    }

    pub(crate) fn id(&self) -> u32 {
        self.steps.id
    }

    /// Its number among the store's flushes.
    pub(crate) fn number(&self) -> u64 {
        self.steps.number
    }

    /// Does a little.
    pub(crate) fn advance(&mut self, catalog: &Arc<Catalog>) -> Result<JobProgress> {
        if let Some(job) = &mut self.log_table {
            let looks = |steps: &mut FlushSteps| job.advance(catalog, &steps.store, &mut steps.merge);
            let more = self.steps.busy(catalog, looks);
            if more {
                return Ok(JobProgress::More);
            }
        }
        let (store, reserved, all_kept) = (self.steps.store.clone(), self.reserved, &mut self.kept);
        let progress = self.steps.advance(catalog, |step| {
            let kept = log_kept(catalog, &store, reserved, &step.aside)?;
            all_kept.0 += step.aside.len() as u64;
            all_kept.1 += kept.as_ref().map_or(0, |kept| kept.segment.bytes() as u64);
            Ok(kept)
        })?;
        let (outputs, advanced) = match progress {
            FlushProgress::More => return Ok(JobProgress::More),
            FlushProgress::Step(outputs) => (outputs, JobProgress::Wait(0)),
            FlushProgress::Done(outputs) => (outputs, JobProgress::Done),
        };
        if let Some(job) = &mut self.log_table {
            job.note(catalog, &outputs);
        }
        if matches!(advanced, JobProgress::Done) {
            self.steps.note_done(catalog);
            self.tell(catalog, self.steps.plan.reason.clone());
            self.leave(catalog);
        }
        Ok(advanced)
    }

    /// Counts the flush and records its events, also of what it kept and of what it left in the WAL.
    fn tell(&mut self, catalog: &Catalog, reason: String) {
        self.note_kept(catalog);
        if let Some(job) = &self.log_table {
            job.finish(catalog, &self.steps.store);
        }
        self.steps.tell(catalog, reason);
    }

    /// Records what was kept, and remembers for the next flush what this one met.
    fn note_kept(&mut self, catalog: &Catalog) {
        let Some(hot) = &self.hot else { return };
        let heats = self.steps.merge.take_heats();
        let numbers = [
            ("over", hot.over.map_or(0, u64::from)),
            ("budget_bytes", self.keep_budget),
            ("keys", heats.keys),
            ("updates", heats.updates),
            ("kept_before", heats.kept),
            ("updated_since", heats.kept_updated),
            ("kept_cells", self.kept.0),
            ("kept_bytes", self.kept.1),
        ];
        catalog.cx.metrics.kept_cells.add(self.kept.0);
        catalog.cx.metrics.kept_bytes.add(self.kept.1);
        catalog.cx.events.record(EventKind::Keep, &self.steps.store.name, hot.reason.clone(), &numbers);
        self.steps.store.work.lock().flush.hot.learn(heats);
    }

    fn leave(&mut self, catalog: &Catalog) {
        catalog.commit.room.keeping.sub(self.keep_budget);
        self.steps.leave();
    }

    /// Gives up: what was installed stays, the rest of the flush set stays in memory for the next flush.
    pub(crate) fn abandon(mut self, catalog: &Catalog, why: &Error) -> Arc<Store> {
        if self.steps.installed > 0 {
            self.tell(catalog, format!("{}; given up: {why}", self.steps.plan.reason));
        }
        self.leave(catalog);
        catalog.remove_tables(&self.steps.merge.leftovers());
        self.steps.store
    }
}

/// Makes all memory of the store the flush set, or takes up one that is there; whether it took one up, and
/// whether values may stay in the WAL.
fn take_all(catalog: &Catalog, store: &Store, policy: FlushPolicy) -> (bool, Option<LogTableChoice>) {
    let left_over = !store.version().flush.is_empty();
    let mut log_table = None;
    if !left_over {
        log_table = prepare_log_table(catalog, store, policy);
        catalog.commit.freeze(store);
    } else if store.flush_is_asked_of_active() {
        // Not at every try: each would leave a segment, until there is room for the first.
        catalog.commit.freeze(store);
    }
    take_frozen(catalog, store);
    (left_over, log_table)
}

/// Makes all frozen memory the flush set. It joins one that a job left of which nothing is installed: what is
/// newer may be the delete without which there is no room for what that set holds.
fn take_frozen(catalog: &Catalog, store: &Store) {
    store.swap_if(|now| {
        now.may_join_flush().then(|| {
            let all = now.waiting().chain(now.flush.all());
            let generation = all.map(Memtable::generation).max().unwrap_or_default();
            // Recovery may have put cells there that were logged under a later generation than theirs.
            let replayed = generation.max(store.replayed_generation());
            let flush = FlushSet {
                segments: now.frozen.iter().chain(&now.flush.segments).cloned().collect(),
                scattered: now.scattered.clone(),
                generation,
                run: flushed_run(&now.shape, replayed, &KeyRange::all()),
                // What is newer than all of it is the active memtable, whose id has the reserved one before
                // it.
                reserved: Generation(now.active.generation().0 - 1),
                ..FlushSet::default()
            };
            now.with_scattered(Vec::new(), Arc::default(), flush)
        })
    });
    catalog.commit.recount(store);
}
