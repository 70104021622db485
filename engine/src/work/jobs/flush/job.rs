//! A flush under way: a compaction of the flush set, with SSTables if its plan reads any, in steps, that is
//! counted as a flush.
//!
//! After each step the manifest says which keys of which generation are in SSTables, the flush set's range
//! begins later, and a crash or a failure goes on from there. Before each such edit the WAL is synced to
//! where it ended when the flush set was taken (invariant I2): an SSTable must not hold what the WAL could
//! still lose, or a crash would leave a hole. What was logged since is in no SSTable, so it may wait: by the
//! time of the first step those WAL files are mostly complete, and syncing a complete one is cheap.

use super::carry::Carry;
use super::hot_keys::HotKeysStage;
use super::take::{FlushPolicy, Planned, Take, plan_plain, plan_range, take_all, take_range};
use super::wal_values::{WalValuesJob, prepare_wal_values};
use crate::catalog::{Catalog, Flushed, Install, check_bounds};
use crate::commit::{CompactionTurn, FlushTurn, Store};
use crate::compaction::{Advance, CompactionSpec, MemoryInputs, Source, Step, Totals};
use crate::error::{Error, Result};
use crate::event::EventKind;
use crate::memtable::Memtable;
use crate::shape::{Run, Shape, TableInfo};
use crate::strategy::{CompactionPlan, Target, WalValuesChoice};
use crate::types::{Generation, KeyRange, LogPosition, TimeRange};
use crate::version::{OpenTable, Version};
use crate::work::jobs::compaction::{FillStats, Opened, Running, flush_spec};
use crate::work::jobs::outcome::JobProgress;
use std::sync::Arc;

/// The least memory of a flush whose cost says anything about flushes of full memory, unless it is of a
/// range: a smaller one was asked for.
const DRAIN_MIN: u64 = 64 << 10;

/// A flush under way.
pub(crate) struct FlushJob {
    pub(crate) id: u32,
    /// The store's flush, and its place among the compactions that run, where it reads SSTables; `None` once
    /// it has ended.
    turns: Option<(FlushTurn, Option<CompactionTurn>)>,
    /// Its number among the store's flushes.
    pub(crate) number: u64,
    store: Arc<Store>,
    /// The flush as a plan, mostly without inputs, so that a step is installed like any other.
    plan: CompactionPlan,
    /// The store's keys when it began.
    bounds: Arc<KeyRange>,
    /// The generation up to which cells are in SSTables once a step is installed.
    claims: Generation,
    /// Everything in the flush set was logged before this.
    logged_to: LogPosition,
    /// What does the work; `None` until the first advance.
    running: Option<Running>,
    /// Whether the set was left by an earlier flush, so that what it holds is not all to be written.
    left_over: bool,
    /// The memory on its way to whoever is to do the work, or there.
    carry: Option<Carry>,
    hot: Option<HotKeysStage>,
    /// What leaves its values in the WAL, if they may stay there.
    wal_values: Option<Box<WalValuesJob>>,
    progress: Progress,
}

/// How far a flush is, and what it took.
#[derive(Default)]
struct Progress {
    memtables: u64,
    memory_bytes: u64,
    /// Keys below are done.
    clip: Vec<u8>,
    /// Steps that are installed.
    steps: u64,
    /// How often another process has failed, or not taken it.
    failures: u32,
    /// What was done before the run that is under way.
    before: Totals,
    fills: FillStats,
    began_ns: u64,
    busy_ns: u64,
    /// Bytes written that the rate limit knows of.
    reported: u64,
}

impl FlushJob {
    /// Takes memory as flush set, or takes up one that an earlier job left, of which nothing stays in memory.
    /// `None` when there is nothing to take yet. The flush has begun with that turn.
    pub(crate) fn start(
        catalog: &Catalog,
        store: &Arc<Store>,
        turn: FlushTurn,
        take: &Take,
        reason: String,
        policy: FlushPolicy,
    ) -> Option<Self> {
        let left_over = !store.version().memory.flushing.is_empty();
        let id = catalog.next_job();
        let (logged_to, choice, planned) = taken(catalog, store, take, id, reason, policy, left_over);
        let (version, plan, running) = planned?;
        let flushing = &version.memory.flushing;
        let generation = store.claimed(flushing.generation);
        let is_range = matches!(take, Take::Range(_));
        let hot = match left_over || is_range {
            true => None,
            false => HotKeysStage::new(catalog, store, &version, policy, generation),
        };
        let leaves = hot.as_ref().is_some_and(HotKeysStage::leaves);
        let wal_values =
            choice.map(|choice| Box::new(WalValuesJob::new(catalog, store, choice, flushing, logged_to)));
        let progress = Progress {
            memtables: flushing.all().count() as u64,
            memory_bytes: flushing.bytes(),
            clip: flushing.range.start.clone(),
            began_ns: catalog.cx.env.clock.monotonic_ns(),
            ..Progress::default()
        };
        Some(Self {
            id,
            number: turn.number(),
            turns: Some((turn, running)),
            store: store.clone(),
            plan,
            bounds: version.bounds.clone(),
            claims: if leaves { generation } else { generation.max(flushing.reserved) },
            logged_to,
            running: None,
            left_over,
            carry: None,
            hot,
            wal_values,
            progress,
        })
    }

    /// Whether it compacts the memory of a range with the range's SSTables.
    pub(crate) fn reads_tables(&self) -> bool {
        !self.plan.inputs.is_empty()
    }

    pub(crate) fn advance(&mut self, catalog: &Arc<Catalog>) -> Result<JobProgress> {
        let from = catalog.cx.env.clock.monotonic_ns();
        let worked = self.work(catalog);
        self.progress.busy_ns += catalog.cx.env.clock.monotonic_ns() - from;
        let worked = worked?;
        if matches!(worked, JobProgress::Done) {
            self.note_done(catalog);
            self.record_event(catalog, self.plan.reason.clone());
            self.leave(catalog);
        }
        Ok(worked)
    }

    /// Describes what is to be done with all that is not in SSTables yet.
    fn described(&self, catalog: &Catalog, version: &Version) -> CompactionSpec {
        let plan = &self.plan;
        // They keep an SSTable of L0 from lying over many ranges.
        let mut cuts = match plan.output.level {
            0 => self.store.settings().range_bounds(&version.shape),
            _ => Vec::new(),
        };
        cuts.extend(bounds_in_run(&version.shape, plan.output));
        cuts.sort();
        cuts.dedup();
        // Names of its own: what was written elsewhere may still appear.
        let id = if self.progress.failures > 0 { catalog.next_job() } else { self.id };
        let mut spec = flush_spec(catalog, &self.store, version, plan, id, cuts);
        spec.range = self.range_left();
        spec
    }

    /// The keys that are not in SSTables yet.
    fn range_left(&self) -> KeyRange {
        KeyRange { start: self.progress.clip.clone(), end: self.plan.range.end.clone() }
    }

    /// The flush set as what a compaction reads of it, newest first.
    fn memory(&self, version: &Version) -> MemoryInputs {
        let (set, range) = (&version.memory.flushing, self.range_left());
        let source = |memtable: &Memtable| Source {
            tombstones: memtable.tombstones_within(&range),
            cursor: Box::new(memtable.cursor()),
        };
        let sources = match set.ranges.is_one() {
            true => set.ranges.memtables_of(0).iter().map(source).collect(),
            false => {
                let chains = set.ranges.chains(&range, TimeRange::ALL);
                let mut chains: Vec<Source> =
                    chains.map(|chain| Source { tombstones: Vec::new(), cursor: Box::new(chain) }).collect();
                if let Some(last) = chains.last_mut() {
                    let tombstones = set.ranges.with_tombstones(&range);
                    last.tombstones = tombstones.flat_map(|one| one.tombstones_within(&range)).collect();
                }
                chains
            }
        };
        // Of a set that was left, and of parts of memtables, not all cells are in the range.
        let is_cut = self.left_over || self.progress.steps > 0 || set.all().any(Memtable::is_part);
        let cells = (!is_cut).then(|| set.all().map(|memtable| memtable.cells() as u64).sum());
        MemoryInputs { sources, cells, aside: self.hot.as_ref().map(HotKeysStage::rules) }
    }

    /// Whether the flush is to be offered to whoever runs compactions elsewhere.
    fn is_offered(&self, catalog: &Catalog) -> bool {
        catalog.offload.is_some()
            && catalog.cx.settings.options.tuning().offload_range_flushes
            && self.reads_tables()
            && self.progress.failures == 0
    }

    /// Carries memory to whoever is to do the work, a little; `None` until all of it is there.
    fn carried(&mut self, catalog: &Catalog, version: &Version) -> Result<Option<Vec<OpenTable>>> {
        if let Some(carry) = &mut self.carry {
            return Ok(carry.advance(catalog)?.map(<[OpenTable]>::to_vec));
        }
        self.carry = Some(Carry::begin(catalog, &self.store, version, self.memory(version))?);
        Ok(None)
    }

    /// Begins to work: elsewhere, once memory is carried there, or here. Does a little of that.
    fn begin(&mut self, catalog: &Catalog) -> Result<()> {
        let version = self.store.version_full();
        check_bounds(&self.store, &version, &self.bounds)?;
        if !self.is_offered(catalog) {
            let (spec, memory) = (self.described(catalog, &version), self.memory(&version));
            self.running = Some(Running::here(catalog, &spec, Some(memory))?);
            return Ok(());
        }
        // What cannot be carried is flushed here.
        let carried = match self.carried(catalog, &version) {
            Ok(None) => return Ok(()),
            carried => carried.ok().flatten(),
        };
        if let Some(carried) = carried {
            let mut spec = self.described(catalog, &version);
            spec.inputs.insert(0, carried.iter().map(|open| TableInfo::clone(&open.info)).collect());
            self.running = Running::elsewhere(catalog, &self.store, &version, &spec, &carried);
        }
        let totals = self.carry.as_ref().map(Carry::totals).unwrap_or_default();
        // What was dropped on the way; the rest is met again.
        let dropped = totals.taken - totals.kept;
        self.progress.before = Totals { taken: dropped, kept: 0, ..totals };
        // What is not taken elsewhere is not offered again.
        self.progress.failures += u32::from(self.running.is_none());
        Ok(())
    }

    fn work(&mut self, catalog: &Arc<Catalog>) -> Result<JobProgress> {
        let Some(running) = &mut self.running else {
            self.begin(catalog)?;
            return Ok(JobProgress::More);
        };
        if let Some(wal_values) = &mut self.wal_values
            && wal_values.advance(catalog, &self.store, &mut *running.run)
        {
            return Ok(JobProgress::More);
        }
        let advance = match running.run.advance() {
            Err(e) if running.is_elsewhere() => return Ok(self.go_on_here(catalog, &e)),
            advance => advance?,
        };
        let totals = self.totals();
        // A flush frees memory that writers wait for, so it only takes from the rate limit and never waits.
        let written = totals.bytes_written.max(self.progress.reported);
        catalog.cx.rates.compactions.take_without_limit(written - self.progress.reported);
        self.progress.reported = written;
        let filled = self.progress.fills.note(&totals);
        if self.reads_tables() {
            catalog.cx.rates.fills.take_without_limit(filled);
        }
        let step = match advance {
            Advance::Working => return Ok(JobProgress::More),
            Advance::NotYet(ns) => return Ok(JobProgress::NotYet(ns)),
            Advance::Step(step) => step,
        };
        let verified = self.running.as_mut().map_or(Ok(None), |running| running.verify(catalog, &step));
        match verified {
            Err(e) => Ok(self.go_on_here(catalog, &e)),
            Ok(opened) => self.publish(catalog, step, opened),
        }
    }

    /// Does the rest here after a failure elsewhere, from the last installed step on.
    fn go_on_here(&mut self, catalog: &Catalog, why: &Error) -> JobProgress {
        self.progress.before = self.totals();
        if let Some(running) = self.running.take() {
            running.remove_left(catalog);
        }
        self.progress.failures += 1;
        let reason = format!("a flush failed elsewhere: {why}");
        let numbers = [("steps", self.progress.steps), ("failures", u64::from(self.progress.failures))];
        catalog.cx.events.record(EventKind::OffloadFailure, &self.store.name, reason, &numbers);
        JobProgress::More
    }

    fn totals(&self) -> Totals {
        let now = self.running.as_ref().map(Running::totals).unwrap_or_default();
        now.after(&self.progress.before)
    }

    /// Makes what a step says true.
    fn publish(&mut self, catalog: &Arc<Catalog>, step: Step, opened: Option<Opened>) -> Result<JobProgress> {
        let done = step.upto.is_none();
        let hot = match &mut self.hot {
            Some(hot) => hot.log(catalog, &self.store, &step),
            None => Ok(None),
        };
        let hot = hot.inspect_err(|_| catalog.remove_outputs(&step.outputs))?;
        let hot_to = hot.as_ref().map_or(LogPosition::default(), |hot| hot.logged_to);
        if hot.is_some() {
            kill_point!("flush-hot-keys-logged");
        }
        if !planted!(Bug::CommitBeforeWalSync) {
            let upto = if planted!(Bug::KeepUnsynced) { self.logged_to } else { self.logged_to.max(hot_to) };
            catalog.commit.wal()?.sync_to(upto).inspect_err(|e| catalog.cx.poison(e))?;
        }
        kill_point!("flush-before-install");
        if let Some((turn, _)) = self.turns.as_ref().filter(|_| done) {
            turn.note_end();
        }
        let end = step.upto.clone().or_else(|| self.plan.range.end.clone());
        let range = KeyRange { start: self.progress.clip.clone(), end };
        self.progress.clip = step.upto.clone().unwrap_or_default();
        let outputs = step.outputs.clone();
        let (blocks, bytes) = catalog.install(Install {
            store: &self.store,
            plan: &self.plan,
            bounds: &self.bounds,
            outputs: step.outputs,
            upto: step.upto,
            flushed: Some(Flushed { range, generation: self.claims, kept: hot.map(|hot| hot.memtable) }),
            filled: step.filled,
            forgotten: self.totals().forgotten,
            opened,
        })?;
        self.progress.fills.note_evicted(blocks, bytes);
        kill_point!("flush-after-install");
        self.progress.steps += 1;
        if let Some(wal_values) = &mut self.wal_values {
            wal_values.note(catalog, &outputs);
        }
        if done {
            return Ok(JobProgress::Done);
        }
        if let Some((_, Some(running))) = &self.turns {
            running.raise_clip(&self.progress.clip);
        }
        Ok(JobProgress::Wait(0))
    }

    /// Counts the flush and records its events, when it is done or given up; also of what it left in memory
    /// and in the WAL.
    fn record_event(&mut self, catalog: &Catalog, reason: String) {
        if let (Some(hot), Some(running)) = (&self.hot, &mut self.running) {
            hot.note(catalog, &self.store, &mut *running.run);
        }
        if let Some(wal_values) = &self.wal_values {
            wal_values.finish(catalog, &self.store);
        }
        let totals = self.totals();
        let metrics = &catalog.cx.metrics;
        metrics.flushes.add(1);
        metrics.flushed_bytes.add(totals.bytes_written);
        self.store.metrics.flushes.add(1);
        self.store.metrics.flushed_bytes.add(totals.bytes_written);
        let memory = catalog.cx.settings.write_memory();
        self.store.work.lock().compactions.rewritten.came(totals.bytes_written as f64, memory);
        let ns = catalog.cx.env.clock.monotonic_ns() - self.progress.began_ns;
        metrics.timers.flush.note_ns(ns);
        let numbers = [
            ("memtables", self.progress.memtables),
            ("steps", self.progress.steps),
            ("memory_bytes", self.progress.memory_bytes),
            ("bytes_in", self.plan.bytes),
            ("bytes", totals.bytes_written),
            ("cells_in", totals.taken),
            ("cells_out", totals.kept - totals.aside),
            ("micros", ns / 1_000),
        ];
        catalog.cx.events.record(EventKind::Flush, &self.store.name, reason, &numbers);
        if self.reads_tables() {
            self.progress.fills.record_event(catalog, &self.store, totals.keys);
        }
    }

    /// Notes what the flush cost, and which part of its cells was written.
    fn note_done(&self, catalog: &Catalog) {
        let memory_bytes = self.progress.memory_bytes;
        if self.reads_tables() || memory_bytes > DRAIN_MIN {
            catalog.commit.note_drain(memory_bytes, self.progress.busy_ns);
        }
        let totals = self.totals();
        catalog.cx.metrics.cells_dropped.add(totals.taken - totals.kept);
        self.store.work.lock().flush.survived = Some(totals.kept as f64 / totals.taken.max(1) as f64);
    }

    fn leave(&mut self, catalog: &Catalog) {
        if let Some(carry) = self.carry.take() {
            carry.remove(catalog);
        }
        if let Some(hot) = &mut self.hot {
            hot.leave(catalog);
        }
        if let Some((turn, running)) = self.turns.take() {
            drop(running);
            drop(turn);
        }
    }

    /// Gives up: what was installed stays, the rest of the flush set stays in memory for the next flush.
    pub(crate) fn abandon(mut self, catalog: &Catalog, why: &Error) -> Arc<Store> {
        if self.progress.steps > 0 {
            self.record_event(catalog, format!("{}; given up: {why}", self.plan.reason));
        }
        self.leave(catalog);
        if let Some(running) = &self.running {
            running.remove_left(catalog);
        }
        self.store
    }
}

/// Takes memory for a flush. The position before which all of it was logged, whether values may stay in the
/// WAL, and the plan; none where there is nothing to take yet.
fn taken(
    catalog: &Catalog,
    store: &Arc<Store>,
    take: &Take,
    id: u32,
    reason: String,
    policy: FlushPolicy,
    left_over: bool,
) -> (LogPosition, Option<WalValuesChoice>, Option<Planned>) {
    let settings = store.settings();
    if let (Take::Range(at), Some(by_range), false) = (take, settings.by_range(), left_over) {
        let reason = match take_range(catalog, store, &settings, by_range, at.as_deref()) {
            Some(why) => format!("{reason}; {why}"),
            None => reason,
        };
        return (logged_to(catalog), None, plan_range(catalog, store, by_range, id, reason));
    }
    let memory = &store.version_full().memory;
    // Not where nothing may be taken yet: it begins a WAL file.
    let may_take = !left_over && memory.ranges.counts_as_one();
    let choice = if may_take { prepare_wal_values(catalog, store, policy) } else { None };
    take_all(catalog, store);
    let (logged_to, version) = (logged_to(catalog), store.version_full());
    let is_taken = !version.memory.flushing.is_empty();
    let plan = is_taken.then(|| plan_plain(&version, store, reason));
    (logged_to, choice, plan.map(|plan| (version, plan, None)))
}

fn logged_to(catalog: &Catalog) -> LogPosition {
    catalog.commit.wal().map_or(LogPosition::default(), |wal| wal.end())
}

/// The keys where SSTables begin and end in the run of L0 that a flush is to write. There are some where
/// other ranges were flushed of the same generations: none of what is in memory now lies within these
/// SSTables, but one of those that are written might reach over them.
fn bounds_in_run(shape: &Shape, target: Target) -> Vec<Vec<u8>> {
    let run = shape.run(target.level, target.run).filter(|_| target.level == 0);
    let ranges = run.map_or(&[][..], Run::tables).iter().map(|table| table.live_range());
    ranges.flat_map(|range| std::iter::once(range.start).chain(range.end)).collect()
}

#[cfg(all(test, not(models)))]
mod tests {
    use super::*;
    use crate::types::TableId;

    #[test]
    fn tables_of_a_flush_end_where_those_of_its_run_begin_and_end() {
        let table = |part: u32, start: &str, end: &str| {
            let mut table = TableInfo::plain(TableId { epoch: 1, job: 1, part, ..TableId::default() }, 100);
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
