//! Flushing: memory to tables, as a merge whose only sources are the segments of the flush set, in steps.
//!
//! After each step the manifest says which keys of which generation are in tables, the flush set's clip rises, and a
//! crash or a failure goes on from there. Before each such edit the log is synced to where it ended when the flush set
//! was taken (invariant I2): a table must not hold what the log could still lose, or a crash would leave a hole. What
//! was logged since is in no table, so it may wait: by the time of the first step those log files are mostly complete,
//! and syncing a complete one is cheap.
//!
//! With a strategy that holds memory by range (`by_range.rs`) a flush takes the memory of one range, and where the shape
//! allows it merges that with the range's tables in the same act: these are sources behind the segments, and a step's
//! edit removes or clips them. Such a flush stands among the store's running merges, so that no other takes its tables.
//! Where something is in the way, and when all memory was asked for, what is in memory goes to level 0 as with other
//! strategies, in tables that end where ranges do.
//!
//! Keys that were updated often are not written but stay in memory (`keep.rs`): a step's hot cells are logged again under
//! the generation reserved for them and synced before the step's edit. So a flush that keeps claims for its tables
//! only the generations of its segments, and one that keeps nothing claims the reserved one too: then whatever an
//! earlier attempt at it may have logged again counts as written.

use super::Advanced;
use super::by_range::{plan_range, take_range};
use super::fills::Fills;
use super::keep::{keep_budget, log_kept};
use super::log_table::{LogTableJob, prepare_log_table};
use super::merge::{READ_AHEAD, keep_rules, table_sources};
use crate::catalog::{Catalog, Flushed, Install};
use crate::commit::Store;
use crate::error::{Error, Result};
use crate::event::EventKind;
use crate::memory::Segment;
use crate::merge::{AsideRules, Below, Merge, MergeSpec, OutputRules, Progress, Source};
use crate::shape::{Run, Shape};
use crate::strategy::{
    HotKeys, HotPlan, InputRun, KEPT_MAX, MergeKind, MergePlan, PipelineState, RunningMerge, Target,
    validate_flush,
};
use crate::types::{Generation, KeyRange, LogPosition, RangeTombstone, TableId, TimeRange};
use crate::version::{FlushSet, Unions, Version};
use std::collections::BTreeSet;
use std::sync::Arc;

/// A flush of less, but of a range, was asked for; what it costs says nothing of those for full memory.
const DRAIN_MIN: u64 = 64 << 10;

pub(crate) struct FlushJob {
    id: u32,
    /// Which of the store's flushes it is.
    number: u64,
    store: Arc<Store>,
    merge: Merge,
    /// As a plan, mostly without inputs, so that a step is installed like any other.
    plan: MergePlan,
    /// Up to which its cells are in tables when they are.
    claims: Generation,
    /// Of the cells it keeps.
    reserved: Generation,
    hot: Option<HotPlan>,
    /// What it may keep, in bytes of memory.
    keep_budget: u64,
    /// What it kept: cells, bytes of memory.
    kept: (u64, u64),
    fills: Fills,
    /// Everything in the flush set was logged before this.
    logged_to: LogPosition,
    /// Keys below are done.
    clip: Vec<u8>,
    /// Where its values may stay in the log.
    log_table: Option<Box<LogTableJob>>,
    segments: u64,
    memory_bytes: u64,
    /// Installed so far.
    steps: u64,
    began_ns: u64,
    busy_ns: u64,
    reported: u64,
}

impl FlushJob {
    /// Freezes what the store has and takes it as flush set; or takes up one that an earlier job left. `None`
    /// when there is nothing, or a flush is under way. Hot keys stay if they `may_stay`: whoever asked for the flush
    /// wants memory empty. Of a flush that is taken up again they don't either.
    ///
    /// With a strategy that holds memory by range it takes the memory of one range, that of the key `at` if that is
    /// given; of all when it was asked for.
    pub(crate) fn start(
        catalog: &Arc<Catalog>,
        store: &Arc<Store>,
        reason: String,
        may_stay: bool,
        at: Option<&[u8]>,
        is_cleaning: bool,
    ) -> Option<Self> {
        let (number, hot_state) = {
            let mut work = store.work.lock();
            if work.flushing || store.is_dropped() {
                return None;
            }
            work.flushing = true;
            work.pipeline = PipelineState::default();
            work.flushes += 1;
            (work.flushes, work.hot.clone())
        };
        let settings = store.settings();
        let strategy = settings.options.strategy.strategy();
        let by_range = strategy.by_range();
        let left_over = !store.version().flush.is_empty();
        let (mut log_table, mut reason) = (None, reason);
        match by_range.filter(|_| may_stay && !store.is_leaving()) {
            _ if left_over => {
                // Not at every try: each would leave a segment, until there is room for the first.
                if store.flush_is_asked_of_active() {
                    catalog.commit.freeze(store);
                }
                take_frozen(catalog, store);
            }
            Some(by_range) => {
                if let Some(why) = take_range(catalog, store, by_range, at) {
                    reason = format!("{reason}; {why}");
                }
            }
            None => {
                log_table = prepare_log_table(catalog, store, is_cleaning);
                catalog.commit.freeze(store);
                take_frozen(catalog, store);
            }
        }
        let logged_to = catalog.commit.log().map_or(LogPosition::default(), |log| log.end());
        let id = catalog.next_job();
        let unions = Unions::default();
        // What an earlier job left goes to level 0: the range's tables may be what it failed at.
        let to_range = by_range.filter(|_| !left_over);
        let merged_range = |version: &Version, early: bool| {
            plan_range(catalog, version, to_range?, early, settings.versions_kept(), &unions)
        };
        // Once before the lock: it looks at all ranges, and reads sketches, which are known then.
        let before = store.version_full();
        let of_range = to_range.filter(|_| before.flush.of_range);
        let early = of_range.is_some_and(|by_range| by_range.is_early(&before.shape, &before.flush.range()));
        merged_range(&before, early);
        drop(before);
        let mut work = store.work.lock();
        // Under the lock under which merges come and go, so that the plan is judged on a shape that nobody changes.
        let version = store.version_full();
        if version.flush.is_empty() {
            work.flushing = false;
            return None;
        }
        // Cells that recovery put there may have been logged under a later generation than that of their segment.
        let generation = version.flush.generation.max(store.replayed_generation());
        let reserved = version.flush.reserved;
        let memory_bytes = version.flush.all().map(|s| s.bytes() as u64).sum();
        let range = version.flush.range();
        let running: Vec<_> = work.running.iter().map(|(_, running)| running.clone()).collect();
        // Not where its tables are being merged: beside them it may still be a delta.
        let early = early && !running.iter().any(|merge| merge.range_left().overlaps(&range));
        let merged = merged_range(&version, early)
            .filter(|plan| validate_flush(&version.shape, plan, &running).is_ok());
        // Whatever is in the way: level 0 is above it.
        let plain = |reason: String| MergePlan {
            inputs: Vec::<InputRun>::new(),
            output: Target { level: 0, run: generation.0 },
            range: range.clone(),
            kind: MergeKind::Merge,
            bytes: memory_bytes,
            table_bytes: strategy.table_bytes(),
            score: f64::MAX,
            reason,
        };
        let plan = match merged {
            Some(plan) => MergePlan { reason: format!("{reason}: {}", plan.reason), ..plan },
            None => plain(reason),
        };
        let Some(tables) = table_sources(&version, &plan, READ_AHEAD) else {
            work.flushing = false;
            return None;
        };
        if plan.output.level > 0 {
            work.running.push((id, RunningMerge { plan: plan.clone(), clip: None }));
        }
        drop(work);
        let budget = keep_budget(catalog, store, memory_bytes);
        let keeps = settings.options.hot_keys != HotKeys::Off && !left_over && by_range.is_none();
        let hot = keeps.then(|| {
            // With an id of its own only where something was written since the last cells were kept.
            match may_stay && generation < reserved && !store.is_leaving() {
                true => settings.options.hot_keys.plan(budget, &hot_state),
                false => HotPlan { over: None, reason: "this flush is to keep nothing".into() },
            }
        });
        let over = hot.as_ref().and_then(|hot| hot.over);
        let budget = if over.is_some() { budget } else { 0 };
        catalog.commit.room.keeping.add(budget);
        let claims = if over.is_some() { generation } else { generation.max(reserved) };
        let clip = version.flush.clip.clone();
        let inputs: BTreeSet<TableId> = plan.tables().collect();
        let others = version.shape.tables().filter(|(_, _, table)| !inputs.contains(&table.id));
        let below = others.map(|(_, _, table)| table.live_range()).collect();
        let tombstones = tombstones_of(&range);
        let sources = version
            .flush
            .segments
            .iter()
            .map(|segment| Source { tombstones: tombstones(segment), cursor: Box::new(segment.cursor()) });
        let apart = version
            .flush
            .scattered
            .chains(&range, TimeRange::ALL)
            .map(|chain| Source { tombstones: Vec::new(), cursor: Box::new(chain) });
        let apart_tombstones = version.flush.scattered.with_ranges(&range).flat_map(&tombstones);
        let mut sources: Vec<Source> = sources.chain(apart).collect();
        if let Some(last) = sources.last_mut() {
            last.tombstones.extend(apart_tombstones);
        }
        sources.extend(tables.sources);
        let in_memory: u64 = version.flush.all().map(|s| s.cells() as u64).sum();
        let log_table = log_table
            .map(|choice| Box::new(LogTableJob::new(catalog, store, choice, &version.flush, logged_to)));
        let last = plan.output.level > 0 && plan.output.level + 1 >= version.shape.levels.len();
        let ranges = by_range.filter(|_| !version.flush.of_range);
        let mut cuts = ranges.map_or(Vec::new(), |by_range| by_range.bounds(&version.shape));
        cuts.extend(bounds_in_run(&version.shape, plan.output));
        cuts.sort();
        cuts.dedup();
        let spec = MergeSpec {
            sources,
            range: range.clone(),
            rules: keep_rules(catalog, &settings, Below::new(below)),
            output: OutputRules {
                dir: catalog.dir.clone(),
                table: settings.table_options(last),
                table_bytes: plan.table_bytes,
                cuts,
                epoch: catalog.epoch,
                job: id,
                names: store.table_names(),
                cache: catalog.cache.clone(),
                replaced: tables.replaced,
            },
            step_bytes: catalog.commit.settings.options.step_bytes,
            cells: tables.cells.filter(|_| !left_over).map(|cells| cells + in_memory),
            aside: hot.as_ref().map(|hot| AsideRules {
                over: hot.over,
                bytes_max: budget,
                kept_max: KEPT_MAX,
            }),
        };
        let began_ns = catalog.commit.env.clock.monotonic_ns();
        let merge = Merge::new(&catalog.commit.env, spec);
        let (busy_ns, reported) = (0, 0);
        Some(Self {
            id,
            number,
            store: store.clone(),
            merge,
            plan,
            claims,
            reserved,
            hot,
            keep_budget: budget,
            kept: (0, 0),
            fills: Fills::default(),
            logged_to,
            clip,
            log_table,
            segments: version.flush.segments.len() as u64,
            memory_bytes,
            steps: 0,
            began_ns,
            busy_ns,
            reported,
        })
    }

    pub(crate) fn id(&self) -> u32 {
        self.id
    }

    /// Which of its store's flushes it is, as they are begun.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Whether it merges the memory of a range with the range's tables.
    pub(crate) fn reads_tables(&self) -> bool {
        !self.plan.inputs.is_empty()
    }

    pub(crate) fn advance(&mut self, catalog: &Arc<Catalog>) -> Result<Advanced> {
        let from = catalog.commit.env.clock.monotonic_ns();
        if self.log_table.as_mut().is_some_and(|job| job.advance(catalog, &self.store, &mut self.merge)) {
            self.busy_ns += catalog.commit.env.clock.monotonic_ns() - from;
            return Ok(Advanced::More);
        }
        let progress = self.merge.advance()?;
        // A flush frees memory that writers wait for, so it only takes from the rate limit and never waits.
        let written = self.merge.bytes_written().max(self.reported);
        catalog.commit.rates.merges.take_unasked(written - self.reported);
        self.reported = written;
        let filled = self.fills.note(&self.merge);
        if self.reads_tables() {
            catalog.commit.rates.fills.take_unasked(filled);
        }
        let Progress::Step(step) = progress else {
            self.busy_ns += catalog.commit.env.clock.monotonic_ns() - from;
            return Ok(Advanced::More);
        };
        let done = step.upto.is_none();
        let kept = log_kept(catalog, &self.store, self.reserved, &step.aside);
        let kept = kept.inspect_err(|_| catalog.remove_outputs(&step.outputs))?;
        let kept_to = kept.as_ref().map_or(LogPosition::default(), |kept| kept.logged_to);
        if kept.is_some() {
            kill_point!("flush-kept-logged");
        }
        if !planted!(Bug::CommitBeforeLogSync) {
            let upto = if planted!(Bug::KeepUnsynced) { self.logged_to } else { self.logged_to.max(kept_to) };
            catalog.commit.log()?.sync_to(upto).inspect_err(|e| catalog.commit.poison(e))?;
        }
        self.kept.0 += step.aside.len() as u64;
        self.kept.1 += kept.as_ref().map_or(0, |kept| kept.segment.bytes() as u64);
        kill_point!("flush-before-install");
        if done {
            self.store.work.lock().flush_ends = true;
        }
        let end = step.upto.clone().or_else(|| self.plan.range.end.clone());
        let range = KeyRange { start: self.clip.clone(), end };
        self.clip = step.upto.clone().unwrap_or_default();
        let outputs = step.outputs.clone();
        let (blocks, bytes) = catalog.install(Install {
            store: &self.store,
            plan: &self.plan,
            outputs: step.outputs,
            upto: step.upto,
            flushed: Some(Flushed { range, generation: self.claims, kept: kept.map(|kept| kept.segment) }),
            filled: step.filled,
            forgotten: self.merge.forgotten(),
            opened: None,
        })?;
        if let Some(job) = &mut self.log_table {
            job.note(catalog, &outputs);
        }
        self.fills.note_evicted(blocks, bytes);
        kill_point!("flush-after-install");
        self.steps += 1;
        self.busy_ns += catalog.commit.env.clock.monotonic_ns() - from;
        if !done {
            let mut work = self.store.work.lock();
            if let Some((_, running)) = work.running.iter_mut().find(|(id, _)| *id == self.id) {
                running.clip = Some(self.clip.clone());
            }
            return Ok(Advanced::Wait(0));
        }
        if self.plan.output.level > 0 || self.memory_bytes > DRAIN_MIN {
            catalog.commit.note_drain(self.memory_bytes, self.busy_ns);
        }
        let (taken, survived) = self.merge.cells();
        catalog.commit.metrics.cells_dropped.add(taken - survived);
        self.store.work.lock().survived = Some(survived as f64 / taken.max(1) as f64);
        self.tell(catalog, self.plan.reason.clone());
        if self.reads_tables() {
            self.fills.tell(catalog, &self.store, Some(&self.merge));
        }
        self.leave(catalog);
        Ok(Advanced::Done)
    }

    /// Counts it and tells of it, of what it kept and of what it left in the log.
    fn tell(&mut self, catalog: &Catalog, reason: String) {
        self.note_kept(catalog);
        if let Some(job) = &self.log_table {
            job.finish(catalog, &self.store);
        }
        let (taken, survived) = self.merge.cells();
        let written = survived - self.merge.cells_aside();
        let bytes = self.merge.bytes_written();
        catalog.commit.metrics.flushes.add(1);
        catalog.commit.metrics.flushed_bytes.add(bytes);
        self.store.work.lock().rewritten.came(bytes as f64, catalog.commit.settings.write_memory());
        let micros = (catalog.commit.env.clock.monotonic_ns() - self.began_ns) / 1_000;
        let numbers = [
            ("segments", self.segments),
            ("steps", self.steps),
            ("memory_bytes", self.memory_bytes),
            ("bytes_in", self.plan.bytes),
            ("bytes", bytes),
            ("cells_in", taken),
            ("cells_out", written),
            ("micros", micros),
        ];
        catalog.commit.events.record(EventKind::Flush, &self.store.name, reason, &numbers);
    }

    /// Tells of what was kept, and remembers what was met for the next flush.
    fn note_kept(&mut self, catalog: &Catalog) {
        let Some(hot) = &self.hot else { return };
        let heats = self.merge.take_heats();
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
        catalog.commit.events.record(EventKind::Keep, &self.store.name, hot.reason.clone(), &numbers);
        self.store.work.lock().hot.learn(heats);
    }

    fn leave(&self, catalog: &Catalog) {
        catalog.commit.room.keeping.sub(self.keep_budget);
        let mut work = self.store.work.lock();
        (work.flushing, work.flush_ends) = (false, false);
        work.running.retain(|(id, _)| *id != self.id);
    }

    /// Gives up: what was installed stays, the rest of the flush set stays in memory for the next flush.
    pub(crate) fn abandon(mut self, catalog: &Catalog, why: &Error) -> Arc<Store> {
        if self.steps > 0 {
            self.tell(catalog, format!("{}; given up: {why}", self.plan.reason));
        }
        self.leave(catalog);
        catalog.remove_leftovers(&self.merge.leftovers());
        self.store
    }
}

/// All frozen memory becomes the flush set. It joins one that a job left of which nothing is installed: what is newer may
/// be the delete without which there is no room for what that set holds.
fn take_frozen(catalog: &Catalog, store: &Store) {
    store.swap_if(|now| {
        now.may_join_flush().then(|| {
            let all = now.waiting().chain(now.flush.all());
            let flush = FlushSet {
                segments: now.frozen.iter().chain(&now.flush.segments).cloned().collect(),
                scattered: now.scattered.clone(),
                generation: all.map(Segment::generation).max().unwrap_or_default(),
                // What is newer than all of it is the active segment, whose id has the reserved one before it.
                reserved: Generation(now.active.generation().0 - 1),
                ..FlushSet::default()
            };
            now.with_scattered(Vec::new(), Arc::default(), flush)
        })
    });
    catalog.commit.recount(store);
}

/// Where tables begin and end in the run of level 0 that a flush is to write. There are some where other ranges were flushed of
/// the same generations: none of what is in memory now lies within these tables, but one of its tables might reach
/// over them.
fn bounds_in_run(shape: &Shape, target: Target) -> Vec<Vec<u8>> {
    let run = shape.run(target.level, target.run).filter(|_| target.level == 0);
    let ranges = run.map_or(&[][..], Run::tables).iter().map(|table| table.live_range());
    ranges.flat_map(|range| std::iter::once(range.start).chain(range.end)).collect()
}

/// The range tombstones of a segment within the range.
fn tombstones_of(range: &KeyRange) -> impl Fn(&Segment) -> Vec<RangeTombstone> + '_ {
    move |segment| segment.tombstones_within(range)
}

#[cfg(all(test, not(models)))]
mod tests {
    use super::*;
    use crate::shape::TableInfo;

    #[test]
    fn tables_of_a_flush_end_where_those_of_its_run_begin_and_end() {
        let table = |part: u32, start: &str, end: &str| {
            let mut table = TableInfo::plain(TableId { epoch: 1, job: 1, part }, 100);
            table.range = KeyRange::new(start, end);
            Arc::new(table)
        };
        let mut shape = Shape::default();
        shape.levels.resize_with(2, Default::default);
        shape.levels[0].runs.push(Run::new(7, vec![table(1, "b", "d"), table(2, "f", "g")]));
        shape.levels[1].runs.push(Run::new(1, vec![table(3, "k", "m")]));
        let told = |level, run| {
            let bounds = bounds_in_run(&shape, Target { level, run });
            bounds.into_iter().map(|bound| String::from_utf8(bound).unwrap()).collect::<Vec<_>>()
        };
        assert_eq!(told(0, 7), ["b", "d", "f", "g"]);
        assert_eq!(told(0, 8), [""; 0]);
        assert_eq!(told(1, 1), [""; 0], "below, what is in the way is merged");
    }
}
