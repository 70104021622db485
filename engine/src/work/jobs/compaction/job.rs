//! A compaction as a job: from a strategy's plan to a running machine, step by step into the manifest.

use super::cache_fill::{FillProgress, FillStats, Opened, Prefill, Publishing};
use super::running::Running;
use super::spec::{compaction_spec, open_runs, step_fill_bytes};
use crate::catalog::{Catalog, Install, check_bounds};
use crate::commit::{CompactionTurn, Store};
use crate::compaction::{Advance, Step, Totals};
use crate::error::{Error, ErrorKind, Result};
use crate::event::EventKind;
use crate::strategy::{CompactionKind, CompactionPlan, validate};
use crate::types::{KeyRange, SeqNo};
use crate::work::jobs::outcome::JobProgress;
use crate::work::manual::ManualCompaction;
use std::sync::Arc;

/// Failures elsewhere after which a compaction is finished here.
const FAILURES_ELSEWHERE: u32 = 3;

/// Pause before it is looked again for blocks that are on their way.
const LOOK_AGAIN_NS: u64 = 500_000;

/// The phase in which a compaction is.
enum Phase {
    /// A trivial move: nothing is read.
    Move,
    Merging(Running),
    /// A step is ready; blocks of it may still be on their way into the cache.
    Publishing(Running, Box<Publishing>),
}

impl Phase {
    fn running(&self) -> Option<&Running> {
        match self {
            Phase::Move => None,
            Phase::Merging(running) | Phase::Publishing(running, _) => Some(running),
        }
    }

    fn running_mut(&mut self) -> Option<&mut Running> {
        match self {
            Phase::Move => None,
            Phase::Merging(running) | Phase::Publishing(running, _) => Some(running),
        }
    }

    /// The step is ready.
    fn begin_publishing(&mut self, publishing: Publishing) {
        *self = match std::mem::replace(self, Phase::Move) {
            Phase::Move => Phase::Move,
            Phase::Merging(running) | Phase::Publishing(running, _) => {
                Phase::Publishing(running, Box::new(publishing))
            }
        };
    }

    /// The step that was ready, which is published now, or given up.
    fn end_publishing(&mut self) -> Option<Publishing> {
        match std::mem::replace(self, Phase::Move) {
            Phase::Publishing(running, publishing) => {
                *self = Phase::Merging(running);
                Some(*publishing)
            }
            other => {
                *self = other;
                None
            }
        }
    }
}

/// How far a compaction has come.
#[derive(Default)]
struct Progress {
    /// The keys below this are done.
    clip: Option<Vec<u8>>,
    /// Steps that are installed.
    steps: u64,
    /// Bytes written that the rates have been told of.
    reported: u64,
    /// What was done elsewhere before that failed, and how often it failed.
    carried: Totals,
    failures: u32,
}

/// What a compaction puts into the cache as it writes.
struct StepFill {
    stats: FillStats,
    /// Whether a step may end for it.
    ends_steps: bool,
    /// This compaction's copy of [`Rates::filling`](crate::context::Rates), once it put something there.
    filling: Option<Arc<()>>,
}

/// A compaction under way.
pub(crate) struct CompactionJob {
    id: u32,
    /// `None` once it has ended.
    turn: Option<CompactionTurn>,
    store: Arc<Store>,
    plan: CompactionPlan,
    /// The store's keys when this began.
    bounds: Arc<KeyRange>,
    phase: Phase,
    progress: Progress,
    fill: StepFill,
    manual: Option<Arc<ManualCompaction>>,
    began_ns: u64,
}

impl CompactionJob {
    /// Begins what the plan says; `None` when the store no longer fits it. Whoever is to run it may fail to.
    pub(crate) fn start(
        catalog: &Arc<Catalog>,
        store: &Arc<Store>,
        plan: CompactionPlan,
        manual: Option<Arc<ManualCompaction>>,
    ) -> Result<Option<Self>> {
        let id = catalog.next_job();
        let mut work = store.work.lock();
        let version = store.version_full();
        let running = work.compactions.running();
        if let Err(why) = validate(&version.shape, &plan, &running) {
            let reason = format!("plan refused: {why} ({})", plan.reason);
            catalog.cx.events.record(EventKind::CompactionDeferred, &store.name, reason, &[]);
            return Ok(None);
        }
        let settings = store.settings();
        let spec = match plan.kind {
            CompactionKind::TrivialMove => None,
            CompactionKind::Merge => Some(compaction_spec(catalog, store, &version, &plan, id)),
        };
        let turn = CompactionTurn::begin(store, &mut work, id, plan.clone());
        drop(work);
        // Without the lock: who runs it may take a while to answer.
        let run = spec.map(|spec| Running::begin(catalog, store, &version, &spec)).transpose()?;
        // A range keeps one file.
        let ends_steps = settings.by_range().is_none() && catalog.cx.settings.steps_end_by_fill();
        Ok(Some(Self {
            id,
            turn: Some(turn),
            store: store.clone(),
            plan,
            bounds: version.bounds.clone(),
            phase: run.map_or(Phase::Move, Phase::Merging),
            progress: Progress::default(),
            fill: StepFill { stats: FillStats::default(), ends_steps, filling: None },
            manual,
            began_ns: catalog.cx.env.clock.monotonic_ns(),
        }))
    }

    pub(crate) fn id(&self) -> u32 {
        self.id
    }

    /// Whether a caller waits for it, who is told what becomes of it.
    pub(crate) fn is_manual(&self) -> bool {
        self.manual.is_some()
    }

    pub(crate) fn store(&self) -> &Store {
        &self.store
    }

    /// Does a little. What runs here rests after it beside readers, as far as compaction debt allows.
    pub(crate) fn advance(&mut self, catalog: &Arc<Catalog>) -> Result<JobProgress> {
        let commit = &catalog.commit;
        let times = commit.pacing();
        if times == 0.0 || !self.runs_here() {
            return self.work(catalog);
        }
        let began_ns = commit.cx.env.clock.monotonic_ns();
        let worked = self.work(catalog)?;
        let now = commit.cx.env.clock.monotonic_ns();
        let rest = commit.cx.rates.pace.worked(now - began_ns, now, catalog.cache.blocks_asked_for(), times);
        Ok(match worked {
            // Whoever takes jobs passes over all that rest.
            JobProgress::More if rest > 0 => JobProgress::Wait(0),
            worked => worked,
        })
    }

    /// Whether this process does the work, and so rests. A compaction elsewhere has little to do here.
    pub(crate) fn runs_here(&self) -> bool {
        self.phase.running().is_some_and(|running| !running.is_elsewhere())
    }

    /// Does a little, without a rest.
    fn work(&mut self, catalog: &Arc<Catalog>) -> Result<JobProgress> {
        if self.manual.as_ref().is_some_and(|m| m.is_canceled()) || self.store.is_dropped() {
            return Err(Error::new(ErrorKind::Canceled, "the compaction was cancelled"));
        }
        if matches!(self.phase, Phase::Move) {
            return self.make_move(catalog);
        }
        let wait = catalog.cx.rates.compactions.wait().max(catalog.cx.rates.fills.wait());
        if wait > 0 {
            return Ok(JobProgress::NotYet(wait));
        }
        let Phase::Merging(running) = &mut self.phase else { return self.bring(catalog) };
        if self.fill.ends_steps {
            if self.fill.stats.bytes > 0 {
                self.fill.filling.get_or_insert_with(|| catalog.cx.rates.filling.clone());
            }
            running.run.end_steps_at_filled(step_fill_bytes(catalog, 0));
        }
        let advance = match running.run.advance() {
            Err(e) if running.is_elsewhere() => return self.resume(catalog, &e),
            advance => advance?,
        };
        self.account(catalog);
        let step = match advance {
            Advance::Working => return Ok(JobProgress::More),
            Advance::NotYet(ns) => return Ok(JobProgress::NotYet(ns)),
            Advance::Step(step) => step,
        };
        let verified = self.phase.running_mut().map_or(Ok(None), |running| running.verify(catalog, &step));
        let opened = match verified {
            Err(e) => return self.resume(catalog, &e),
            Ok(opened) => opened,
        };
        self.account(catalog);
        let publishing = self.publishing(catalog, step, opened)?;
        self.phase.begin_publishing(publishing);
        self.bring(catalog)
    }

    /// Moves the SSTables to their target by a manifest edit alone.
    fn make_move(&mut self, catalog: &Catalog) -> Result<JobProgress> {
        catalog.install(Install {
            store: &self.store,
            plan: &self.plan,
            bounds: &self.bounds,
            outputs: Vec::new(),
            upto: None,
            flushed: None,
            filled: Vec::new(),
            forgotten: SeqNo::ZERO,
            opened: None,
        })?;
        catalog.cx.metrics.trivial_moves.add(1);
        self.record_event(catalog, EventKind::TrivialMove, self.plan.reason.clone());
        self.leave(None);
        Ok(JobProgress::Done)
    }

    /// Counts what was written since the last time, against the rates too.
    fn account(&mut self, catalog: &Catalog) {
        let totals = self.totals();
        // What is still in the builder is an estimate, which may turn out too high.
        let written = totals.bytes_written.max(self.progress.reported);
        catalog.cx.rates.compactions.take(written - self.progress.reported);
        self.progress.reported = written;
        catalog.cx.rates.fills.take(self.fill.stats.note(&totals));
        if let Some(manual) = &self.manual {
            manual.note_written(written);
        }
    }

    /// The step as it is published, with what of it is to be brought into the cache before.
    fn publishing(&self, catalog: &Catalog, step: Step, opened: Option<Opened>) -> Result<Publishing> {
        let remote = self.phase.running().and_then(|running| running.remote.clone());
        let keys = KeyRange {
            start: self.progress.clip.as_ref().unwrap_or(&self.plan.range.start).clone(),
            end: step.upto.as_ref().or(self.plan.range.end.as_ref()).cloned(),
        };
        let inputs = || {
            let runs = self.plan.inputs.iter().map(|input| input.tables.iter().copied());
            open_runs(&self.store.version_full(), runs)
        };
        Publishing::new(catalog, step, opened, remote, inputs, keys)
    }

    /// Offers the rest again after a failure elsewhere, from the last true step on; in the end it runs here.
    fn resume(&mut self, catalog: &Catalog, why: &Error) -> Result<JobProgress> {
        let carried = self.totals();
        if let Some(running) = self.phase.running() {
            running.remove_left(catalog);
        }
        self.progress.failures += 1;
        let reason = format!("a compaction failed elsewhere: {why}");
        let numbers = [("steps", self.progress.steps), ("failures", u64::from(self.progress.failures))];
        catalog.cx.events.record(EventKind::OffloadFailure, &self.store.name, reason, &numbers);
        let version = self.store.version_full();
        check_bounds(&self.store, &version, &self.bounds)?;
        // Names of its own: what was written elsewhere may still appear.
        let mut spec = compaction_spec(catalog, &self.store, &version, &self.plan, catalog.next_job());
        spec.range.start = self.progress.clip.clone().unwrap_or(spec.range.start);
        self.phase = Phase::Merging(match self.progress.failures < FAILURES_ELSEWHERE {
            true => Running::begin(catalog, &self.store, &version, &spec)?,
            false => Running::here(catalog, &spec, None)?,
        });
        self.progress.carried = carried;
        Ok(JobProgress::More)
    }

    /// Brings a piece of what the cache is to have of a step; publishes the step when all is there.
    fn bring(&mut self, catalog: &Arc<Catalog>) -> Result<JobProgress> {
        let Phase::Publishing(_, publishing) = &mut self.phase else {
            return Ok(JobProgress::More);
        };
        match publishing.prefill.as_mut().map_or(FillProgress::All, Prefill::advance) {
            FillProgress::NotYet => return Ok(JobProgress::NotYet(LOOK_AGAIN_NS)),
            FillProgress::Blocks(blocks, bytes) => {
                self.fill.stats.note_brought(blocks, bytes);
                catalog.cx.rates.fills.take(bytes);
                return Ok(JobProgress::More);
            }
            FillProgress::All => {}
        }
        let Some(Publishing { step, opened, prefill }) = self.phase.end_publishing() else {
            return Ok(JobProgress::More);
        };
        let Some(prefill) = prefill else { return self.publish(catalog, step, opened) };
        let is_in_vain = prefill.failed.is_some() && prefill.remote_bytes == 0;
        if let Some(running) = self.phase.running_mut().filter(|_| is_in_vain) {
            // Later steps do not wait for it again.
            running.remote = None;
        }
        self.fill.stats.note_prefilled(catalog, &prefill);
        let published = self.publish(catalog, step, Some(prefill.opened.clone()));
        if published.is_err() {
            prefill.undo();
        }
        published
    }

    /// Installs the step.
    fn publish(&mut self, catalog: &Arc<Catalog>, step: Step, opened: Option<Opened>) -> Result<JobProgress> {
        let upto = step.upto.clone();
        kill_point!("compaction-before-install");
        let (blocks, bytes) = catalog.install(Install {
            store: &self.store,
            plan: &self.plan,
            bounds: &self.bounds,
            outputs: step.outputs,
            upto: step.upto,
            flushed: None,
            filled: step.filled,
            forgotten: self.totals().forgotten,
            opened,
        })?;
        kill_point!("compaction-after-install");
        self.fill.stats.note_evicted(blocks, bytes);
        catalog.cx.metrics.compaction_steps.add(1);
        self.progress.steps += 1;
        match upto {
            Some(key) => {
                if let Some(turn) = &self.turn {
                    turn.raise_clip(&key);
                }
                self.progress.clip = Some(key);
                Ok(JobProgress::Wait(0))
            }
            None => {
                catalog.cx.metrics.compaction_read_bytes.add(self.plan.bytes);
                self.store.metrics.compaction_read_bytes.add(self.plan.bytes);
                let totals = self.totals();
                catalog.cx.metrics.cells_dropped.add(totals.taken - totals.kept);
                self.record_event(catalog, EventKind::Compaction, self.plan.reason.clone());
                self.leave(None);
                self.fill.stats.record_event(catalog, &self.store, totals.keys);
                Ok(JobProgress::Done)
            }
        }
    }

    /// Whether the store was split or joined since this began, so that it has other keys.
    fn is_of_other_keys(&self) -> bool {
        !Arc::ptr_eq(&self.store.version().bounds, &self.bounds) && !self.store.is_dropped()
    }

    /// What was done so far; nothing for a trivial move.
    fn totals(&self) -> Totals {
        let now = self.phase.running().map(Running::totals).unwrap_or_default();
        now.after(&self.progress.carried)
    }

    /// Counts the compaction and records its event.
    fn record_event(&self, catalog: &Catalog, kind: EventKind, reason: String) {
        let Totals { taken, kept, bytes_written: bytes, .. } = self.totals();
        catalog.cx.metrics.compaction_written_bytes.add(bytes);
        self.store.metrics.compaction_written_bytes.add(bytes);
        self.store.work.lock().compactions.rewritten.merged(bytes);
        let ns = catalog.cx.env.clock.monotonic_ns() - self.began_ns;
        if kind == EventKind::Compaction {
            catalog.cx.metrics.compactions.add(1);
            self.store.metrics.compactions.add(1);
            catalog.cx.metrics.timers.compaction.note_ns(ns);
        }
        let numbers = [
            ("score_percent", (self.plan.score * 100.0) as u64),
            ("bytes_in", self.plan.bytes),
            ("bytes", bytes),
            ("cells_in", taken),
            ("cells_out", kept),
            ("steps", self.progress.steps),
            ("to_level", self.plan.output.level as u64),
            ("micros", ns / 1_000),
        ];
        catalog.cx.events.record(kind, &self.store.name, reason, &numbers);
    }

    /// Ends the compaction for the store, and for a caller who waits for it.
    fn leave(&mut self, error: Option<&Error>) {
        self.turn = None;
        match (&self.manual, error) {
            // The store was split or joined meanwhile: it is planned anew.
            (Some(manual), Some(error)) if self.is_of_other_keys() && error.kind() == ErrorKind::Canceled => {
                manual.begin_again();
            }
            (Some(manual), Some(error)) => manual.fail(error),
            (Some(manual), None) => manual.note_done(&self.plan, self.progress.reported),
            (None, _) => {}
        }
    }

    /// Gives up: the steps that were installed stay.
    pub(crate) fn abandon(mut self, catalog: &Catalog, why: &Error) -> Arc<Store> {
        self.leave(Some(why));
        if self.progress.steps > 0 {
            self.record_event(
                catalog,
                EventKind::Compaction,
                format!("{}; given up: {why}", self.plan.reason),
            );
        }
        if let Some(running) = self.phase.running() {
            running.remove_left(catalog);
        }
        if let Some(Publishing { step, prefill, .. }) = self.phase.end_publishing() {
            if let Some(prefill) = prefill {
                prefill.undo();
            }
            catalog.remove_outputs(&step.outputs);
        }
        self.store
    }
}
