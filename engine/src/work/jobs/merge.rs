//! Merges of tables: from a strategy's plan to a running machine, step by step into the manifest.

use super::super::asked::Manual;
use super::Advanced;
use super::fills::{Before, Fills};
use crate::catalog::{Catalog, Install};
use crate::commit::{FamilySettings, Store};
use crate::error::{Error, ErrorKind, Result};
use crate::event::EventKind;
use crate::merge::{Below, KeepRules, Merge, MergeSpec, OutputRules, PassingRun, Progress, Source, Step};
use crate::schedule::Pace;
use crate::strategy::{MergeKind, MergePlan, RunningMerge, validate};
use crate::table::{CursorOptions, Replaced};
use crate::types::{SeqNo, TableId};
use crate::version::{OpenTable, TableHandle, Version};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Merges read this much of an input at once.
pub(crate) const READ_AHEAD: usize = 512 << 10;

/// One that rests beside readers, as a large read delays the small ones behind it.
const READ_AHEAD_RESTING: usize = 64 << 10;

/// Beside readers it syncs whenever it has written this much: a device that is given more at once keeps readers waiting
/// until it has written all of it.
const SYNC_RESTING: u64 = 256 << 10;

/// What the steps of all merges beside each other may put into the cache, as a part of the cache.
const FILL_STEPS: u64 = 32;

/// Not less, or every block of a small or absent cache would end a step.
const FILL_STEP_MIN: u64 = 64 << 10;

pub(crate) struct MergeJob {
    id: u32,
    store: Arc<Store>,
    plan: MergePlan,
    /// `None` for a move.
    merge: Option<Merge>,
    manual: Option<Arc<Manual>>,
    /// Of one that was asked for.
    pace: Pace,
    reported: u64,
    /// A step whose outputs are being read into the cache.
    before: Option<(Before, Step)>,
    fills: Fills,
    /// Whether a step may end for what it put into the cache, and what is held from when it put something there.
    steps_fill: bool,
    filling: Option<Arc<()>>,
    /// Installed so far.
    steps: u64,
    began_ns: u64,
}

impl MergeJob {
    /// Starts what the plan says; `None` when the store no longer fits it.
    pub(crate) fn start(
        catalog: &Arc<Catalog>,
        store: &Arc<Store>,
        plan: MergePlan,
        manual: Option<Arc<Manual>>,
    ) -> Option<Self> {
        let id = catalog.next_job();
        let mut work = store.work.lock();
        let version = store.version_full();
        let running: Vec<RunningMerge> = work.running.iter().map(|(_, running)| running.clone()).collect();
        if let Err(why) = validate(&version.shape, &plan, &running) {
            let reason = format!("plan refused: {why} ({})", plan.reason);
            catalog.commit.events.record(EventKind::Defer, &store.name, reason, &[]);
            return None;
        }
        let settings = store.settings();
        let rest = if manual.is_some() { catalog.commit.settings.options.compact_rest } else { 0 };
        let pace = Pace::new(rest, catalog.cache.blocks_asked_for());
        let read_ahead = if pace.rests() { READ_AHEAD_RESTING } else { READ_AHEAD };
        let merge = match plan.kind {
            MergeKind::Move => None,
            MergeKind::Merge => Some(machine(catalog, store, &settings, &version, &plan, id, read_ahead)?),
        };
        work.running.push((id, RunningMerge { plan: plan.clone(), clip: None }));
        drop(work);
        // A range keeps one file.
        let cuts = settings.options.strategy.strategy().by_range().is_none();
        let steps_fill = cuts && catalog.commit.settings.steps_end_by_fill();
        let began_ns = catalog.commit.env.clock.monotonic_ns();
        Some(Self {
            id,
            store: store.clone(),
            plan,
            merge,
            manual,
            pace,
            reported: 0,
            before: None,
            fills: Fills::default(),
            steps_fill,
            filling: None,
            steps: 0,
            began_ns,
        })
    }

    pub(crate) fn id(&self) -> u32 {
        self.id
    }

    /// Somebody asked for it, who is told of what becomes of it.
    pub(crate) fn is_asked(&self) -> bool {
        self.manual.is_some()
    }

    pub(crate) fn store(&self) -> &Store {
        &self.store
    }

    /// Does a little, and rests after it where that is wanted.
    pub(crate) fn advance(&mut self, catalog: &Arc<Catalog>) -> Result<Advanced> {
        if !self.pace.rests() {
            return self.work(catalog);
        }
        let began_ns = catalog.commit.env.clock.monotonic_ns();
        let mut worked = self.work(catalog)?;
        if let Some(merge) = self.merge.as_mut().filter(|_| self.pace.is_beside_readers()) {
            merge.sync_written(SYNC_RESTING)?;
        }
        let rest = self
            .pace
            .worked(catalog.commit.env.clock.monotonic_ns() - began_ns, catalog.cache.blocks_asked_for());
        if rest > 0 && !catalog.commit.merges_press(&self.store) {
            worked = match worked {
                Advanced::More => Advanced::Wait(rest),
                Advanced::Wait(wait) => Advanced::Wait(wait.max(rest)),
                Advanced::NotYet(wait) => Advanced::NotYet(wait.max(rest)),
                Advanced::Done => Advanced::Done,
            };
        }
        Ok(worked)
    }

    fn work(&mut self, catalog: &Arc<Catalog>) -> Result<Advanced> {
        if self.manual.as_ref().is_some_and(|m| m.is_canceled()) || self.store.is_dropped() {
            return Err(Error::new(ErrorKind::Canceled, "the compaction was cancelled"));
        }
        let Some(merge) = &mut self.merge else {
            let (store, plan) = (&self.store, &self.plan);
            catalog.install(Install {
                store,
                plan,
                outputs: Vec::new(),
                upto: None,
                flushed: None,
                filled: Vec::new(),
                forgotten: SeqNo::ZERO,
                opened: None,
            })?;
            catalog.commit.metrics.moves.add(1);
            self.tell(catalog, EventKind::Move, self.plan.reason.clone());
            self.leave(None);
            return Ok(Advanced::Done);
        };
        let wait = catalog.commit.rates.merges.wait().max(catalog.commit.rates.fills.wait());
        if wait > 0 {
            return Ok(Advanced::NotYet(wait));
        }
        if let Some((before, _)) = &mut self.before {
            if let Some((blocks, bytes)) = before.advance() {
                self.fills.blocks += blocks;
                self.fills.bytes += bytes;
                catalog.commit.rates.fills.take(bytes);
                return Ok(Advanced::More);
            }
            return self.publish_filled(catalog);
        }
        if self.steps_fill {
            if self.fills.bytes > 0 {
                self.filling.get_or_insert_with(|| catalog.commit.rates.filling.clone());
            }
            merge.end_steps_at_filled(step_fill_bytes(catalog));
        }
        let progress = merge.advance()?;
        // What is still in the builder is an estimate, which may turn out too high.
        let written = merge.bytes_written().max(self.reported);
        catalog.commit.rates.merges.take(written - self.reported);
        self.reported = written;
        catalog.commit.rates.fills.take(self.fills.note(merge));
        if let Some(manual) = &self.manual {
            manual.note_written(written);
        }
        let Progress::Step(step) = progress else {
            return Ok(Advanced::More);
        };
        if catalog.commit.settings.reads_back() && !step.outputs.is_empty() {
            self.before = Some((Before::new(catalog, &step.outputs)?, step));
            return Ok(Advanced::More);
        }
        self.publish(catalog, step, None)
    }

    /// What was to be read into the cache is there, as far as it could be read.
    fn publish_filled(&mut self, catalog: &Arc<Catalog>) -> Result<Advanced> {
        let Some((mut before, step)) = self.before.take() else { return Ok(Advanced::More) };
        self.fills.failed = before.failed.take();
        let published = self.publish(catalog, step, Some(before.opened.clone()));
        if published.is_err() {
            before.undo();
        }
        published
    }

    fn publish(
        &mut self,
        catalog: &Arc<Catalog>,
        step: Step,
        opened: Option<BTreeMap<TableId, Arc<TableHandle>>>,
    ) -> Result<Advanced> {
        let upto = step.upto.clone();
        kill_point!("merge-before-install");
        let (blocks, bytes) = catalog.install(Install {
            store: &self.store,
            plan: &self.plan,
            outputs: step.outputs,
            upto: step.upto,
            flushed: None,
            filled: step.filled,
            forgotten: self.merge.as_ref().map_or(SeqNo::ZERO, Merge::forgotten),
            opened,
        })?;
        kill_point!("merge-after-install");
        self.fills.note_evicted(blocks, bytes);
        catalog.commit.metrics.merge_steps.add(1);
        self.steps += 1;
        match upto {
            Some(key) => {
                let mut work = self.store.work.lock();
                if let Some((_, running)) = work.running.iter_mut().find(|(id, _)| *id == self.id) {
                    running.clip = Some(key);
                }
                work.nothing_of_level0 = None;
                drop(work);
                Ok(Advanced::Wait(0))
            }
            None => {
                catalog.commit.metrics.merged_in_bytes.add(self.plan.bytes);
                let (taken, kept) = self.merge.as_ref().map_or((0, 0), Merge::cells);
                catalog.commit.metrics.cells_dropped.add(taken - kept);
                self.tell(catalog, EventKind::Merge, self.plan.reason.clone());
                self.leave(None);
                self.fills.tell(catalog, &self.store, self.merge.as_ref());
                Ok(Advanced::Done)
            }
        }
    }

    /// Counts it and tells of it.
    fn tell(&self, catalog: &Catalog, kind: EventKind, reason: String) {
        let (taken, kept) = self.merge.as_ref().map_or((0, 0), Merge::cells);
        let bytes = self.merge.as_ref().map_or(0, Merge::bytes_written);
        catalog.commit.metrics.merged_bytes.add(bytes);
        self.store.work.lock().rewritten.merged(bytes);
        if kind == EventKind::Merge {
            catalog.commit.metrics.merges.add(1);
        }
        let micros = (catalog.commit.env.clock.monotonic_ns() - self.began_ns) / 1_000;
        let numbers = [
            ("score_percent", (self.plan.score * 100.0) as u64),
            ("bytes_in", self.plan.bytes),
            ("bytes", bytes),
            ("cells_in", taken),
            ("cells_out", kept),
            ("steps", self.steps),
            ("to_level", self.plan.output.level as u64),
            ("micros", micros),
        ];
        catalog.commit.events.record(kind, &self.store.name, reason, &numbers);
    }

    fn leave(&self, error: Option<&Error>) {
        {
            let mut work = self.store.work.lock();
            work.running.retain(|(id, _)| *id != self.id);
            work.nothing_of_level0 = None;
        }
        match (&self.manual, error) {
            (Some(manual), Some(error)) => manual.fail(error),
            (Some(manual), None) => manual.note_done(&self.plan, self.reported),
            (None, _) => {}
        }
    }

    /// Gives up: the steps that were installed stay.
    pub(crate) fn abandon(self, catalog: &Catalog, why: &Error) -> Arc<Store> {
        self.leave(Some(why));
        if self.steps > 0 {
            self.tell(catalog, EventKind::Merge, format!("{}; given up: {why}", self.plan.reason));
        }
        let left = self.merge.as_ref().map(Merge::leftovers).unwrap_or_default();
        catalog.remove_leftovers(&left);
        if let Some((before, step)) = self.before {
            before.undo();
            catalog.remove_outputs(&step.outputs);
        }
        self.store
    }
}

/// What a plan reads.
pub(crate) struct TableSources {
    /// Newest first.
    pub(crate) sources: Vec<Source>,
    /// How many cells they hold, where that is known.
    pub(crate) cells: Option<u64>,
    pub(crate) replaced: Arc<Replaced>,
}

/// The tables of a plan as sources; `None` when the version lacks one.
pub(crate) fn table_sources(version: &Version, plan: &MergePlan, read_ahead: usize) -> Option<TableSources> {
    let open: BTreeMap<TableId, _> = version.tables().map(|open| (open.info.id, open)).collect();
    let options = CursorOptions { fill_cache: false, read_ahead_bytes: read_ahead, through_cache: false };
    let mut sources = Vec::new();
    // A clipped table's cells are counted below its clip too, so their number says nothing.
    let (mut cells, mut replaced) = (Some(0), Replaced::default());
    for input in &plan.inputs {
        let tables: Vec<_> =
            input.tables.iter().map(|id| open.get(id).copied().cloned()).collect::<Option<_>>()?;
        for open in &tables {
            cells = cells.filter(|_| open.info.clip.is_none()).map(|n| n + open.info.cells);
        }
        let tombstones = tables
            .iter()
            .flat_map(|t| t.table().fragments().tombstones_within(&t.info.live_range()).collect::<Vec<_>>())
            .collect();
        replaced.add_run(tables.iter().map(OpenTable::table));
        sources.push(Source { cursor: Box::new(PassingRun::new(tables, options)), tombstones });
    }
    Some(TableSources { sources, cells, replaced: Arc::new(replaced) })
}

fn machine(
    catalog: &Catalog,
    store: &Store,
    settings: &FamilySettings,
    version: &Version,
    plan: &MergePlan,
    id: u32,
    read_ahead: usize,
) -> Option<Merge> {
    let inputs: BTreeSet<TableId> = plan.tables().collect();
    let TableSources { sources, cells, replaced } = table_sources(version, plan, read_ahead)?;
    let oldest = plan.inputs.last().map_or((0, 0), |input| (input.level, input.run));
    // Older than the oldest input: deeper levels, older runs of its level, and what its own run holds beside it.
    let below = version
        .shape
        .tables()
        .filter(|(level, run, table)| {
            !inputs.contains(&table.id) && (*level > oldest.0 || (*level == oldest.0 && run.id <= oldest.1))
        })
        .map(|(_, _, table)| table.live_range());
    let below = Below::new(below.collect());
    let last = plan.output.level + 1 >= version.shape.levels.len();
    let spec = MergeSpec {
        sources,
        range: plan.range.clone(),
        rules: keep_rules(catalog, settings, below),
        output: OutputRules {
            dir: catalog.dir.clone(),
            table: settings.table_options(last),
            table_bytes: plan.table_bytes,
            cuts: Vec::new(),
            epoch: catalog.epoch,
            job: id,
            names: store.table_names(),
            cache: catalog.cache.clone(),
            replaced,
        },
        // Read back as a whole, it is published as a whole.
        step_bytes: catalog.commit.settings.step_bytes(),
        cells,
        aside: None,
    };
    Some(Merge::new(&catalog.commit.env, spec))
}

/// What a step may put into the cache: merges that do it share what is there twice meanwhile. (The paper warms one
/// region after another; here regions merge beside each other.) Not those of `rangemerge`, whose tables are not cut.
pub(super) fn step_fill_bytes(catalog: &Catalog) -> u64 {
    let merges = Arc::strong_count(&catalog.commit.rates.filling) as u64 - 1;
    (catalog.cache.capacity() / FILL_STEPS / merges.max(1)).max(FILL_STEP_MIN)
}

pub(super) fn keep_rules(catalog: &Catalog, settings: &FamilySettings, below: Below) -> KeepRules {
    let read = &settings.read;
    let mut read_points = catalog.commit.snapshots.read_points();
    if planted!(Bug::IgnoreSnapshotInMerge) {
        read_points = Arc::default();
    }
    KeepRules {
        read_points,
        explicit: read.explicit,
        versions: read.versions,
        ttl_us: read.ttl_us,
        now_us: catalog.commit.env.clock.wall_us(),
        operator: read.operator.clone(),
        filter: read.filter.clone(),
        below: if planted!(Bug::DropTombstoneEarly) { Below::default() } else { below },
    }
}
