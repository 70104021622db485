//! Flushing: all memory of a store to tables of level 0, as a merge whose only sources are the segments of the flush set.
//!
//! Where memory is held by key range (`flush_range.rs`) this is for what an interrupted flush left, and for all memory that
//! somebody asked for: in tables that end where ranges do.
//!
//! Keys that were updated often are not written but stay in memory (`keep.rs`): a step's hot cells are logged again under
//! the generation reserved for them and synced before the step's edit. So a flush that keeps claims for its tables
//! only the generations of its segments, and one that keeps nothing claims the reserved one too: then whatever an
//! earlier attempt at it may have logged again counts as written.

use super::Advanced;
use super::flushing::{Begin, Flushes, Flushing, bytes_of, plain};
use super::keep::{keep_budget, log_kept};
use super::log_table::{LogTableJob, prepare_log_table};
use super::merge::TableSources;
use crate::catalog::Catalog;
use crate::commit::Store;
use crate::error::{Error, Result};
use crate::event::EventKind;
use crate::memory::Segment;
use crate::merge::AsideRules;
use crate::merge::MergeRun;
use crate::strategy::{HotKeys, HotPlan, KEPT_MAX, LogTableChoice};
use crate::types::{Generation, KeyRange, LogPosition};
use crate::version::{FlushSet, flushed_run};
use std::sync::Arc;

pub(crate) struct FlushJob {
    flushing: Flushing,
    hot: Option<HotPlan>,
    /// Of the cells it keeps.
    reserved: Generation,
    /// What it may keep, in bytes of memory.
    keep_budget: u64,
    /// What it kept: cells, bytes of memory.
    kept: (u64, u64),
    /// Where its values may stay in the log.
    log_table: Option<Box<LogTableJob>>,
}

/// What a flush of a store may do.
#[derive(Clone, Copy)]
pub(crate) struct May {
    /// Hot keys may stay in memory: whoever asks for a flush wants it empty.
    pub(crate) keep: bool,
    /// Values may stay in the log: not while its front is being cleaned.
    pub(crate) leave_in_log: bool,
}

impl FlushJob {
    /// Freezes what the store has and takes it as flush set; or takes up one that an earlier job left, of which nothing is kept.
    /// `None` when there is nothing. The flush has begun under that number.
    pub(super) fn start(
        catalog: &Catalog,
        store: &Arc<Store>,
        number: u64,
        reason: String,
        may: May,
    ) -> Option<Self> {
        let (left_over, log_table) = take_all(catalog, store, may);
        let logged_to = catalog.commit.log().map_or(LogPosition::default(), |log| log.end());
        let id = catalog.next_job();
        let settings = store.settings();
        let strategy = settings.options.strategy.strategy();
        let version = store.version_full();
        if version.flush.is_empty() {
            store.work.lock().flush.under_way = false;
            return None;
        }
        // Cells that recovery put there may have been logged under a later generation than that of their segment.
        let generation = version.flush.generation.max(store.replayed_generation());
        let reserved = version.flush.reserved;
        let bytes = bytes_of(&version);
        let by_range = strategy.by_range();
        let may_take = keep_budget(catalog, store, bytes);
        let hot =
            (settings.options.hot_keys != HotKeys::Off && !left_over && by_range.is_none()).then(|| {
                // With an id of its own only where something was written since the last cells were kept.
                match may.keep && generation < reserved && !store.is_leaving() {
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
        let whole = by_range.filter(|_| !version.flush.of_range);
        let flushing = Flushing::new(
            catalog,
            store,
            Begin {
                number,
                id,
                version: &version,
                plan: plain(&version, strategy.table_bytes(), reason),
                claims: if over.is_some() { generation } else { generation.max(reserved) },
                logged_to,
                tables: TableSources::none(),
                left_over,
                cuts: whole.map_or(Vec::new(), |by_range| by_range.bounds(&version.shape)),
                aside: hot.as_ref().map(|hot| AsideRules {
                    over: hot.over,
                    bytes_max: budget,
                    kept_max: KEPT_MAX,
                }),
            },
        );
        Some(Self { flushing, hot, reserved, keep_budget: budget, kept: (0, 0), log_table })
    }

    pub(super) fn id(&self) -> u32 {
        self.flushing.id
    }

    pub(super) fn number(&self) -> u64 {
        self.flushing.number
    }

    pub(super) fn advance(&mut self, catalog: &Arc<Catalog>) -> Result<Advanced> {
        if let Some(job) = &mut self.log_table {
            let looks = |flushing: &mut Flushing| job.advance(catalog, &flushing.store, &mut flushing.merge);
            let more = self.flushing.busy(catalog, looks);
            if more {
                return Ok(Advanced::More);
            }
        }
        let (store, reserved, all_kept) = (self.flushing.store.clone(), self.reserved, &mut self.kept);
        let flushes = self.flushing.advance(catalog, |step| {
            let kept = log_kept(catalog, &store, reserved, &step.aside)?;
            all_kept.0 += step.aside.len() as u64;
            all_kept.1 += kept.as_ref().map_or(0, |kept| kept.segment.bytes() as u64);
            Ok(kept)
        })?;
        let (outputs, advanced) = match flushes {
            Flushes::More => return Ok(Advanced::More),
            Flushes::Step(outputs) => (outputs, Advanced::Wait(0)),
            Flushes::Done(outputs) => (outputs, Advanced::Done),
        };
        if let Some(job) = &mut self.log_table {
            job.note(catalog, &outputs);
        }
        if matches!(advanced, Advanced::Done) {
            self.flushing.note_done(catalog);
            self.tell(catalog, self.flushing.plan.reason.clone());
            self.leave(catalog);
        }
        Ok(advanced)
    }

    /// Counts it and tells of it, of what it kept and of what it left in the log.
    fn tell(&mut self, catalog: &Catalog, reason: String) {
        self.note_kept(catalog);
        if let Some(job) = &self.log_table {
            job.finish(catalog, &self.flushing.store);
        }
        self.flushing.tell(catalog, reason);
    }

    /// Tells of what was kept, and remembers what was met for the next flush.
    fn note_kept(&mut self, catalog: &Catalog) {
        let Some(hot) = &self.hot else { return };
        let heats = self.flushing.merge.take_heats();
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
        catalog.commit.metrics.kept_cells.add(self.kept.0);
        catalog.commit.metrics.kept_bytes.add(self.kept.1);
        catalog.commit.events.record(
            EventKind::Keep,
            &self.flushing.store.name,
            hot.reason.clone(),
            &numbers,
        );
        self.flushing.store.work.lock().flush.hot.learn(heats);
    }

    fn leave(&self, catalog: &Catalog) {
        catalog.commit.room.keeping.sub(self.keep_budget);
        self.flushing.leave();
    }

    /// Gives up: what was installed stays, the rest of the flush set stays in memory for the next flush.
    pub(super) fn abandon(mut self, catalog: &Catalog, why: &Error) -> Arc<Store> {
        if self.flushing.steps > 0 {
            self.tell(catalog, format!("{}; given up: {why}", self.flushing.plan.reason));
        }
        self.leave(catalog);
        catalog.remove_tables(&self.flushing.merge.leftovers());
        self.flushing.store
    }
}

/// Makes all memory of the store the flush set, or takes up one that is there; whether it did that, and whether values may
/// stay in the log.
fn take_all(catalog: &Catalog, store: &Store, may: May) -> (bool, Option<LogTableChoice>) {
    let left_over = !store.version().flush.is_empty();
    let mut log_table = None;
    if !left_over {
        log_table = prepare_log_table(catalog, store, may);
        catalog.commit.freeze(store);
    } else if store.flush_is_asked_of_active() {
        // Not at every try: each would leave a segment, until there is room for the first.
        catalog.commit.freeze(store);
    }
    take_frozen(catalog, store);
    (left_over, log_table)
}

/// All frozen memory becomes the flush set. It joins one that a job left of which nothing is installed: what is newer may
/// be the delete without which there is no room for what that set holds.
fn take_frozen(catalog: &Catalog, store: &Store) {
    store.swap_if(|now| {
        now.may_join_flush().then(|| {
            let all = now.waiting().chain(now.flush.all());
            let generation = all.map(Segment::generation).max().unwrap_or_default();
            // Cells that recovery put there may have been logged under a later generation than that of their segment.
            let replayed = generation.max(store.replayed_generation());
            let flush = FlushSet {
                segments: now.frozen.iter().chain(&now.flush.segments).cloned().collect(),
                scattered: now.scattered.clone(),
                generation,
                run: flushed_run(&now.shape, replayed, &KeyRange::all()),
                // What is newer than all of it is the active segment, whose id has the reserved one before it.
                reserved: Generation(now.active.generation().0 - 1),
                ..FlushSet::default()
            };
            now.with_scattered(Vec::new(), Arc::default(), flush)
        })
    });
    catalog.commit.recount(store);
}
