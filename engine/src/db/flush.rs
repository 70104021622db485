//! Flushing: memory to tables, as a merge whose only sources are the segments of the flush set, in steps.
//!
//! After each step the manifest says which keys of which generation are in tables, the flush set's clip rises, and a
//! crash or a failure goes on from there. Before each such edit the log is synced to where it ended when the flush set
//! was taken (invariant I2): a table must not hold what the log could still lose, or a crash would leave a hole. What
//! was logged since is in no table, so it may wait: by the time of the first step those log files are mostly complete,
//! and syncing a complete one is cheap.
//!
//! Keys that were updated often are not written but stay in memory (`keep.rs`): a step's hot cells are logged again under
//! the generation reserved for them and synced before the step's edit. So a flush that keeps claims for its tables
//! only the generations of its segments, and one that keeps nothing claims the reserved one too: then whatever an
//! earlier attempt at it may have logged again counts as written.

use super::Inner;
use super::background::Advanced;
use super::install::{Flushed, Install};
use super::log_table::LogTableJob;
use super::store::Store;
use crate::error::{Error, Result};
use crate::event::EventKind;
use crate::merge::{AsideRules, Below, Merge, MergeSpec, OutputRules, Progress, Source};
use crate::strategy::{HotKeys, HotPlan, InputRun, KEPT_MAX, MergeKind, MergePlan, PipelineState, Target};
use crate::types::{Generation, KeyRange, LogPosition};
use crate::version::FlushSet;
use std::sync::Arc;

pub(crate) struct FlushJob {
    id: u32,
    store: Arc<Store>,
    merge: Merge,
    /// As a plan without inputs, so that a step is installed like any other.
    plan: MergePlan,
    /// Up to which its cells are in tables when they are.
    claims: Generation,
    /// Of the cells it keeps.
    reserved: Generation,
    hot: Option<HotPlan>,
    /// What it kept: cells, bytes of memory.
    kept: (u64, u64),
    /// Everything in the flush set was logged before this.
    logged_to: LogPosition,
    /// Keys below are done.
    clip: Vec<u8>,
    /// Where its values may stay in the log.
    log_table: Option<Box<LogTableJob>>,
    segments: u64,
    memory_bytes: u64,
    began_ns: u64,
    busy_ns: u64,
    reported: u64,
}

impl FlushJob {
    /// Freezes what the store has and takes it as flush set; or takes up one that an earlier job left. `None`
    /// when there is nothing, or a flush is under way. Hot keys stay if they `may_stay`: whoever asked for the flush
    /// wants memory empty. Of a flush that is taken up again they don't either.
    pub(crate) fn start(db: &Arc<Inner>, store: &Arc<Store>, reason: String, may_stay: bool) -> Option<Self> {
        let hot_state = {
            let mut work = store.work.lock();
            if work.flushing || store.is_dropped() {
                return None;
            }
            work.flushing = true;
            work.pipeline = PipelineState::default();
            work.flushes += 1;
            work.hot.clone()
        };
        let mut log_table = None;
        let left_over = !store.version().flush.segments.is_empty();
        if !left_over {
            log_table = db.prepare_log_table(store);
            db.freeze(store);
        }
        store.swap(|now| {
            if now.flush.segments.is_empty() {
                // What is newer than all of it is the active segment, whose id has the reserved one before it.
                let reserved = Generation(now.active.generation().0 - 1);
                let flush = FlushSet { segments: now.frozen.clone(), clip: Vec::new(), reserved };
                now.with_memory(now.active.clone(), Vec::new(), flush)
            } else {
                now.with_memory(now.active.clone(), now.frozen.clone(), now.flush.clone())
            }
        });
        let logged_to = db.log().map_or(LogPosition::default(), |log| log.end());
        let version = store.version_full();
        let Some(newest) = version.flush.segments.first() else {
            store.work.lock().flushing = false;
            return None;
        };
        // Cells that recovery put there may have been logged under a later generation than that of their segment.
        let generation = newest.generation().max(store.replayed_generation());
        let reserved = version.flush.reserved;
        let settings = store.settings();
        let memory_bytes = version.flush.segments.iter().map(|s| s.bytes() as u64).sum();
        let budget = db.keep_budget(store, memory_bytes);
        let hot = (settings.options.hot_keys != HotKeys::Off && !left_over).then(|| {
            // With an id of its own only where something was written since the last cells were kept.
            match may_stay && generation < reserved && !store.is_leaving() {
                true => settings.options.hot_keys.plan(budget, &hot_state),
                false => HotPlan { over: None, reason: "this flush is to keep nothing".into() },
            }
        });
        let over = hot.as_ref().and_then(|hot| hot.over);
        let claims = if over.is_some() { generation } else { generation.max(reserved) };
        let clip = version.flush.clip.clone();
        let range = KeyRange { start: clip.clone(), end: None };
        let below = version.shape.tables().map(|(_, _, table)| table.live_range()).collect();
        let sources = version.flush.segments.iter().map(|segment| Source {
            tombstones: segment.fragments().tombstones_within(&range).collect(),
            cursor: Box::new(segment.cursor()),
        });
        let log_table =
            log_table.map(|choice| Box::new(LogTableJob::new(db, store, choice, &version.flush, logged_to)));
        let id = db.next_job();
        let table_bytes = settings.options.strategy.strategy().table_bytes();
        let spec = MergeSpec {
            sources: sources.collect(),
            range: range.clone(),
            rules: db.keep_rules(&settings, Below::new(below)),
            output: OutputRules {
                dir: db.dir.clone(),
                table: settings.table_options(false),
                table_bytes,
                epoch: db.epoch,
                job: id,
                names: store.table_names(),
                cache: db.cache.clone(),
            },
            step_bytes: db.options.step_bytes,
            step_fill_bytes: u64::MAX,
            cells: clip.is_empty().then(|| version.flush.segments.iter().map(|s| s.cells() as u64).sum()),
            aside: hot.as_ref().map(|hot| AsideRules {
                over: hot.over,
                bytes_max: budget,
                kept_max: KEPT_MAX,
            }),
        };
        let plan = MergePlan {
            inputs: Vec::<InputRun>::new(),
            output: Target { level: 0, run: generation.0 },
            range,
            kind: MergeKind::Merge,
            bytes: memory_bytes,
            table_bytes,
            score: f64::MAX,
            reason,
        };
        let began_ns = db.env.clock.monotonic_ns();
        let merge = Merge::new(&db.env, spec);
        let (busy_ns, reported) = (0, 0);
        Some(Self {
            id,
            store: store.clone(),
            merge,
            plan,
            claims,
            reserved,
            hot,
            kept: (0, 0),
            logged_to,
            clip,
            log_table,
            segments: version.flush.segments.len() as u64,
            memory_bytes,
            began_ns,
            busy_ns,
            reported,
        })
    }

    pub(crate) fn id(&self) -> u32 {
        self.id
    }

    pub(crate) fn advance(&mut self, db: &Arc<Inner>) -> Result<Advanced> {
        let from = db.env.clock.monotonic_ns();
        if self.log_table.as_mut().is_some_and(|job| job.advance(db, &self.store, &mut self.merge)) {
            self.busy_ns += db.env.clock.monotonic_ns() - from;
            return Ok(Advanced::More);
        }
        let progress = self.merge.advance()?;
        // A flush frees memory that writers wait for, so it only takes from the rate limit and never waits.
        let written = self.merge.bytes_written().max(self.reported);
        db.limiter.take(written - self.reported);
        self.reported = written;
        let Progress::Step(step) = progress else {
            self.busy_ns += db.env.clock.monotonic_ns() - from;
            return Ok(Advanced::More);
        };
        let done = step.upto.is_none();
        let kept = db.log_kept(&self.store, self.reserved, &step.aside);
        let kept = kept.inspect_err(|_| db.remove_outputs(&step.outputs))?;
        let kept_to = kept.as_ref().map_or(LogPosition::default(), |kept| kept.logged_to);
        if kept.is_some() {
            kill_point!("flush-kept-logged");
        }
        if !planted!(Bug::CommitBeforeLogSync) {
            let upto = if planted!(Bug::KeepUnsynced) { self.logged_to } else { self.logged_to.max(kept_to) };
            db.log()?.sync_to(upto).inspect_err(|e| db.poison(e))?;
        }
        self.kept.0 += step.aside.len() as u64;
        self.kept.1 += kept.as_ref().map_or(0, |kept| kept.segment.bytes() as u64);
        kill_point!("flush-before-install");
        if let Some(job) = &mut self.log_table {
            job.note(db, &step.outputs);
        }
        let range = KeyRange { start: self.clip.clone(), end: step.upto.clone() };
        self.clip = step.upto.clone().unwrap_or_default();
        db.install(Install {
            store: &self.store,
            plan: &self.plan,
            outputs: step.outputs,
            upto: step.upto,
            flushed: Some(Flushed { range, generation: self.claims, kept: kept.map(|kept| kept.segment) }),
            filled: step.filled,
            opened: None,
        })?;
        kill_point!("flush-after-install");
        self.busy_ns += db.env.clock.monotonic_ns() - from;
        if !done {
            return Ok(Advanced::Wait(0));
        }
        self.finish(db);
        Ok(Advanced::Done)
    }

    fn finish(&mut self, db: &Arc<Inner>) {
        self.note_kept(db);
        self.store.work.lock().flushing = false;
        if let Some(job) = &self.log_table {
            job.finish(db, &self.store, self.merge.cells());
        }
        let (taken, survived) = self.merge.cells();
        let written = survived - self.merge.cells_aside();
        let bytes = self.merge.bytes_written();
        db.metrics.flushes.add(1);
        db.metrics.flushed_bytes.add(bytes);
        db.metrics.cells_dropped.add(taken - survived);
        db.note_drain(self.memory_bytes, self.busy_ns);
        let micros = (db.env.clock.monotonic_ns() - self.began_ns) / 1_000;
        let numbers = [
            ("segments", self.segments),
            ("memory_bytes", self.memory_bytes),
            ("bytes", bytes),
            ("cells_in", taken),
            ("cells_out", written),
            ("micros", micros),
        ];
        db.events.record(EventKind::Flush, &self.store.name, self.plan.reason.clone(), &numbers);
    }

    /// Tells of what was kept, and remembers what was met for the next flush.
    fn note_kept(&mut self, db: &Inner) {
        let Some(hot) = &self.hot else { return };
        let heats = self.merge.take_heats();
        let numbers = [
            ("keys", heats.keys),
            ("updates", heats.updates),
            ("kept_before", heats.kept),
            ("updated_since", heats.kept_updated),
            ("kept_cells", self.kept.0),
            ("kept_bytes", self.kept.1),
        ];
        db.metrics.kept_cells.add(self.kept.0);
        db.metrics.kept_bytes.add(self.kept.1);
        db.events.record(EventKind::Keep, &self.store.name, hot.reason.clone(), &numbers);
        self.store.work.lock().hot.learn(heats);
    }

    /// Gives up: what was installed stays, the rest of the flush set stays in memory for the next flush.
    pub(crate) fn abandon(self, db: &Inner, _why: &Error) -> Arc<Store> {
        self.store.work.lock().flushing = false;
        db.remove_leftovers(&self.merge.leftovers());
        self.store
    }
}
