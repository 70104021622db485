//! What both kinds of flushes share: a merge of memory, in steps, that is told like a flush.
//!
//! After each step the manifest says which keys of which generation are in SSTables, the flush set's clip
//! rises, and a crash or a failure goes on from there. Before each such edit the WAL is synced to where it
//! ended when the flush set was taken (invariant I2): an SSTable must not hold what the WAL could still lose,
//! or a crash would leave a hole. What was logged since is in no SSTable, so it may wait: by the time of the
//! first step those WAL files are mostly complete, and syncing a complete one is cheap.

use super::hot_keys::HotCells;
use crate::catalog::{Catalog, Flushed, Install};
use crate::commit::{CompactionTurn, FlushTurn, Store};
use crate::compaction::{
    Advance, AsideRules, LocalMerge, Merge, MergeRun, OutputRules, Source, Step, TombstoneElision,
};
use crate::error::Result;
use crate::event::EventKind;
use crate::memtable::Memtable;
use crate::shape::{Run, Shape, TableInfo};
use crate::strategy::{CompactionKind, CompactionPlan, InputRun, Target};
use crate::types::{Generation, KeyRange, LogPosition, RangeTombstone, TableId, TimeRange};
use crate::version::Version;
use crate::work::jobs::compaction::{FillStats, TableSources, keep_spec, output_spec};
use std::collections::BTreeSet;
use std::sync::Arc;

/// The least memory of a flush whose cost says anything about flushes of full memory, unless it is of a
/// range: a smaller one was asked for.
const DRAIN_MIN: u64 = 64 << 10;

/// What a flush of a store may do.
#[derive(Clone, Copy)]
pub(crate) struct FlushPolicy {
    /// Hot keys may stay in memory: a caller who asks for a flush wants it empty.
    pub(crate) keep: bool,
    /// Values may stay in the WAL: not while its oldest file is being cleaned.
    pub(crate) leave_in_log: bool,
}

/// The steps of a flush that is under way.
// Over 15 fields: the job as it was planned, and how far it has come.
pub(super) struct FlushSteps {
    pub(super) id: u32,
    /// The store's flush, and its place among the compactions that run, where it reads SSTables; `None` once
    /// it has ended.
    turns: Option<(FlushTurn, Option<CompactionTurn>)>,
    pub(super) number: u64,
    pub(super) store: Arc<Store>,
    pub(super) merge: Merge,
    /// The flush as a plan, mostly without inputs, so that a step is installed like any other.
    pub(super) plan: CompactionPlan,
    /// The store's keys when it began.
    bounds: Arc<KeyRange>,
    /// The generation up to which cells are in SSTables once a step is installed.
    claims: Generation,
    pub(super) fills: FillStats,
    /// Everything in the flush set was logged before this.
    logged_to: LogPosition,
    /// Keys below are done.
    clip: Vec<u8>,
    segments: u64,
    memory_bytes: u64,
    /// Steps that are installed.
    pub(super) installed: u64,
    began_ns: u64,
    busy_ns: u64,
    reported: u64,
}

/// What the steps of a flush begin with.
pub(super) struct FlushStart<'a> {
    pub(super) turn: FlushTurn,
    pub(super) running: Option<CompactionTurn>,
    pub(super) id: u32,
    pub(super) version: &'a Version,
    pub(super) plan: CompactionPlan,
    pub(super) claims: Generation,
    pub(super) logged_to: LogPosition,
    /// The SSTables that the plan reads.
    pub(super) tables: TableSources,
    /// Whether its set was left by an earlier flush, so that what it holds is not all to be written.
    pub(super) left_over: bool,
    /// Keys where SSTables end too.
    pub(super) cuts: Vec<Vec<u8>>,
    pub(super) aside: Option<AsideRules>,
}

/// How far an advance has brought a flush.
pub(super) enum FlushProgress {
    More,
    /// A step is installed.
    Step(Vec<Arc<TableInfo>>),
    Done(Vec<Arc<TableInfo>>),
}

/// The plan of a flush of memory alone, into L0: whatever is in the way below, L0 is above it.
pub(super) fn plain(version: &Version, table_bytes: u64, reason: String) -> CompactionPlan {
    CompactionPlan {
        inputs: Vec::<InputRun>::new(),
        output: Target { level: 0, run: version.flush.run },
        range: version.flush.range(),
        kind: CompactionKind::Merge,
        bytes: bytes_of(version),
        table_bytes,
        score: f64::MAX,
        reason,
    }
}

/// Bytes of memory in the flush set.
pub(super) fn bytes_of(version: &Version) -> u64 {
    version.flush.all().map(|s| s.bytes() as u64).sum()
}

impl FlushSteps {
    pub(super) fn new(catalog: &Catalog, store: &Arc<Store>, begin: FlushStart<'_>) -> Self {
        let FlushStart { turn, running, id, version, plan, claims, logged_to, tables, .. } = begin;
        let FlushStart { left_over, mut cuts, aside, .. } = begin;
        let settings = store.settings();
        let inputs: BTreeSet<TableId> = plan.tables().collect();
        let others = version.shape.tables().filter(|(_, _, table)| !inputs.contains(&table.id));
        let below = TombstoneElision::new(others.map(|(_, _, table)| table.live_range()).collect());
        let mut sources = memory_sources(version, &plan.range);
        sources.extend(tables.sources);
        let is_shared = version.flush.all().any(Memtable::is_part);
        let in_memory: u64 = version.flush.all().map(|s| s.cells() as u64).sum();
        let last = plan.output.level > 0 && plan.output.level + 1 >= version.shape.levels.len();
        cuts.extend(bounds_in_run(&version.shape, plan.output));
        cuts.sort();
        cuts.dedup();
        let merge = LocalMerge {
            sources,
            range: plan.range.clone(),
            rules: keep_spec(catalog, &settings, below).resolve(&catalog.registry),
            output: OutputRules {
                writes_over: true,
                written: None,
                tables: catalog.tables.store().clone(),
                spec: output_spec(catalog, store, &plan, id, last, cuts),
                cache: catalog.cache.clone(),
                replaced: Arc::new(tables.replaced),
            },
            step_bytes: catalog.cx.settings.options.experimental.step_bytes,
            cells: tables.cells.filter(|_| !left_over && !is_shared).map(|cells| cells + in_memory),
            aside,
        };
        let env = &catalog.cx.env;
        Self {
            id,
            number: turn.number(),
            turns: Some((turn, running)),
            store: store.clone(),
            merge: Merge::new(env, merge),
            bounds: version.bounds.clone(),
            claims,
            fills: FillStats::default(),
            logged_to,
            clip: version.flush.clip.clone(),
            segments: version.flush.segments.len() as u64,
            memory_bytes: bytes_of(version),
            plan,
            installed: 0,
            began_ns: env.clock.monotonic_ns(),
            busy_ns: 0,
            reported: 0,
        }
    }

    /// Does what `work` does, as a part of this flush.
    pub(super) fn busy<T>(&mut self, catalog: &Catalog, work: impl FnOnce(&mut Self) -> T) -> T {
        let from = catalog.cx.env.clock.monotonic_ns();
        let done = work(self);
        self.busy_ns += catalog.cx.env.clock.monotonic_ns() - from;
        done
    }

    /// Does a little. `keep` logs cells again that a step set aside; they stay in memory.
    pub(super) fn advance(
        &mut self,
        catalog: &Arc<Catalog>,
        keep: impl FnOnce(&Step) -> Result<Option<HotCells>>,
    ) -> Result<FlushProgress> {
        self.busy(catalog, |steps| steps.work(catalog, keep))
    }

    fn work(
        &mut self,
        catalog: &Arc<Catalog>,
        keep: impl FnOnce(&Step) -> Result<Option<HotCells>>,
    ) -> Result<FlushProgress> {
        let advance = self.merge.advance()?;
        let totals = self.merge.totals();
        // A flush frees memory that writers wait for, so it only takes from the rate limit and never waits.
        let written = totals.bytes_written.max(self.reported);
        catalog.cx.rates.merges.take_unasked(written - self.reported);
        self.reported = written;
        let filled = self.fills.note(&totals);
        if !self.plan.inputs.is_empty() {
            catalog.cx.rates.fills.take_unasked(filled);
        }
        let Advance::Step(mut step) = advance else { return Ok(FlushProgress::More) };
        let done = step.upto.is_none();
        let kept = keep(&step).inspect_err(|_| catalog.remove_outputs(&step.outputs))?;
        let kept_to = kept.as_ref().map_or(LogPosition::default(), |kept| kept.logged_to);
        if kept.is_some() {
            kill_point!("flush-kept-logged");
        }
        if !planted!(Bug::CommitBeforeLogSync) {
            let upto = if planted!(Bug::KeepUnsynced) { self.logged_to } else { self.logged_to.max(kept_to) };
            catalog.commit.log()?.sync_to(upto).inspect_err(|e| catalog.cx.poison(e))?;
        }
        kill_point!("flush-before-install");
        if let Some((turn, _)) = self.turns.as_ref().filter(|_| done) {
            turn.note_end();
        }
        let end = step.upto.clone().or_else(|| self.plan.range.end.clone());
        let range = KeyRange { start: self.clip.clone(), end };
        self.clip = step.upto.clone().unwrap_or_default();
        let outputs = step.outputs.clone();
        let (blocks, bytes) = catalog.install(Install {
            store: &self.store,
            plan: &self.plan,
            bounds: &self.bounds,
            outputs: step.outputs,
            upto: step.upto,
            flushed: Some(Flushed { range, generation: self.claims, kept: kept.map(|kept| kept.segment) }),
            filled: std::mem::take(&mut step.filled),
            forgotten: totals.forgotten,
            opened: None,
        })?;
        self.fills.note_evicted(blocks, bytes);
        kill_point!("flush-after-install");
        self.installed += 1;
        if done {
            return Ok(FlushProgress::Done(outputs));
        }
        if let Some((_, Some(running))) = &self.turns {
            running.raise_clip(&self.clip);
        }
        Ok(FlushProgress::Step(outputs))
    }

    /// Counts the flush and records its event, when it is done or given up.
    pub(super) fn tell(&self, catalog: &Catalog, reason: String) {
        let totals = self.merge.totals();
        let metrics = &catalog.cx.metrics;
        metrics.flushes.add(1);
        metrics.flushed_bytes.add(totals.bytes_written);
        self.store.metrics.flushes.add(1);
        self.store.metrics.flushed_bytes.add(totals.bytes_written);
        let memory = catalog.cx.settings.write_memory();
        self.store.work.lock().merges.rewritten.came(totals.bytes_written as f64, memory);
        let ns = catalog.cx.env.clock.monotonic_ns() - self.began_ns;
        metrics.timers.flush.note_ns(ns);
        let micros = ns / 1_000;
        let numbers = [
            ("segments", self.segments),
            ("steps", self.installed),
            ("memory_bytes", self.memory_bytes),
            ("bytes_in", self.plan.bytes),
            ("bytes", totals.bytes_written),
            ("cells_in", totals.taken),
            ("cells_out", totals.kept - totals.aside),
            ("micros", micros),
        ];
        catalog.cx.events.record(EventKind::Flush, &self.store.name, reason, &numbers);
    }

    /// Notes what the flush cost, and which part of its cells was written.
    pub(super) fn note_done(&self, catalog: &Catalog) {
        if self.plan.output.level > 0 || self.memory_bytes > DRAIN_MIN {
            catalog.commit.note_drain(self.memory_bytes, self.busy_ns);
        }
        let totals = self.merge.totals();
        catalog.cx.metrics.cells_dropped.add(totals.taken - totals.kept);
        self.store.work.lock().flush.survived = Some(totals.kept as f64 / totals.taken.max(1) as f64);
    }

    /// Ends the flush for the store.
    pub(super) fn leave(&mut self) {
        if let Some((turn, running)) = self.turns.take() {
            drop(running);
            drop(turn);
        }
    }
}

/// The flush set as sources, newest first.
fn memory_sources(version: &Version, range: &KeyRange) -> Vec<Source> {
    let tombstones = |segment: &Memtable| -> Vec<RangeTombstone> { segment.tombstones_within(range) };
    let segments = version
        .flush
        .segments
        .iter()
        .map(|segment| Source { tombstones: tombstones(segment), cursor: Box::new(segment.cursor()) });
    let apart = version
        .flush
        .scattered
        .chains(range, TimeRange::ALL)
        .map(|chain| Source { tombstones: Vec::new(), cursor: Box::new(chain) });
    let apart_tombstones = version.flush.scattered.with_ranges(range).flat_map(tombstones);
    let mut sources: Vec<Source> = segments.chain(apart).collect();
    if let Some(last) = sources.last_mut() {
        last.tombstones.extend(apart_tombstones);
    }
    sources
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
    use crate::shape::TableInfo;

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
