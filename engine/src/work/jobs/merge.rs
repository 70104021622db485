//! Merges of tables: from a strategy's plan to a running machine, step by step into the manifest.

use super::super::asked::Manual;
use super::Advanced;
use super::fills::{Brought, Fills, Origin, WarmingUp};
use super::layout::Layout;
use crate::catalog::{Catalog, Install, check_bounds};
use crate::commit::{FamilySettings, Store};
use crate::error::{Error, ErrorKind, Result};
use crate::event::EventKind;
use crate::merge::{
    Advance, Below, Bounds, KeepSpec, MergeRun, MergeSpec, OutputSpec, RULES_VERSION, Source, Step, Totals,
    Verifier, run_source,
};
use crate::offload::{
    Decision, MergeTables, Offer, OffloadedMerge, OwnTables, RemoteCache, RemoteFile, There,
};
use crate::options::CacheFill;
use crate::shape::TableInfo;
use crate::storage::ReadFile;
use crate::strategy::{InputRun, MergeKind, MergePlan, RunningMerge, validate};
use crate::table::{CursorOptions, Replaced};
use crate::types::{KeyRange, SeqNo, TableId};
use crate::version::{OpenTable, TableHandle, Unions, Version};
use std::cell::LazyCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Merges read this much of an input at once.
pub(crate) const READ_AHEAD: usize = 512 << 10;

/// One that begins beside readers, as a large read delays the small ones behind it.
const READ_AHEAD_RESTING: usize = 256 << 10;

/// A merge that has failed elsewhere so often is finished here.
const FAILURES_ELSEWHERE: u32 = 3;

/// After how long it is looked again for blocks that are on their way.
const LOOK_AGAIN_NS: u64 = 500_000;

/// Sketches that are read to say how much a merge will write, at most; each is a read of a file.
const SKETCHES: usize = 32;

/// Index partitions that are looked at to say how much of a merge's inputs is in the cache, about.
const PARTITIONS: usize = 64;

/// What the steps of all merges beside each other may put into the cache, as a part of the cache.
const FILL_STEPS: u64 = 32;

/// Not less, or every block of a small or absent cache would end a step.
const FILL_STEP_MIN: u64 = 64 << 10;

// Over 15 fields: the job as it was planned, and how far it has come.
pub(crate) struct MergeJob {
    id: u32,
    store: Arc<Store>,
    plan: MergePlan,
    /// The store's keys when it began.
    bounds: Arc<KeyRange>,
    /// `None` for a move.
    run: Option<Running>,
    /// What was done elsewhere before that failed, and how often it did.
    carried: Totals,
    failures: u32,
    /// Up to where it is done.
    clip: Option<Vec<u8>>,
    manual: Option<Arc<Manual>>,
    reported: u64,
    /// A step of which blocks are brought into the cache.
    publishing: Option<Publishing>,
    fills: Fills,
    /// Whether a step may end for what it put into the cache, and what is held from when it put something there.
    steps_fill: bool,
    filling: Option<Arc<()>>,
    /// Installed so far.
    steps: u64,
    began_ns: u64,
}

impl MergeJob {
    /// Starts what the plan says; `None` when the store no longer fits it. An error is one of who is to run it.
    pub(crate) fn start(
        catalog: &Arc<Catalog>,
        store: &Arc<Store>,
        plan: MergePlan,
        manual: Option<Arc<Manual>>,
    ) -> Result<Option<Self>> {
        let id = catalog.next_job();
        let mut work = store.work.lock();
        let version = store.version_full();
        let running: Vec<RunningMerge> =
            work.merges.running.iter().map(|(_, running)| running.clone()).collect();
        if let Err(why) = validate(&version.shape, &plan, &running) {
            let reason = format!("plan refused: {why} ({})", plan.reason);
            catalog.commit.events.record(EventKind::Defer, &store.name, reason, &[]);
            return Ok(None);
        }
        let settings = store.settings();
        let spec = match plan.kind {
            MergeKind::Move => None,
            MergeKind::Merge => Some(spec(catalog, store, &version, &plan, id)),
        };
        work.merges.running.push((id, RunningMerge { plan: plan.clone(), clip: None }));
        drop(work);
        // Without the lock: who runs it may take a while to answer.
        let run = spec.map(|spec| begin(catalog, store, &version, &spec)).transpose();
        let run = run.inspect_err(|_| store.work.lock().merges.running.retain(|(other, _)| *other != id))?;
        // A range keeps one file.
        let steps_fill = Layout::of(&settings).is_whole() && catalog.commit.settings.steps_end_by_fill();
        let began_ns = catalog.commit.env.clock.monotonic_ns();
        Ok(Some(Self {
            id,
            store: store.clone(),
            plan,
            bounds: version.bounds.clone(),
            run,
            carried: Totals::default(),
            failures: 0,
            clip: None,
            manual,
            reported: 0,
            publishing: None,
            fills: Fills::default(),
            steps_fill,
            filling: None,
            steps: 0,
            began_ns,
        }))
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

    /// Does a little. What runs here rests after it beside readers, by as much as what is owed allows.
    pub(crate) fn advance(&mut self, catalog: &Arc<Catalog>) -> Result<Advanced> {
        let commit = &catalog.commit;
        let times = commit.rest();
        if times == 0.0 || !self.runs_here() {
            return self.work(catalog);
        }
        let began_ns = commit.env.clock.monotonic_ns();
        let worked = self.work(catalog)?;
        let now = commit.env.clock.monotonic_ns();
        let rest = commit.rates.pace.worked(now - began_ns, now, catalog.cache.blocks_asked_for(), times);
        Ok(match worked {
            // Whoever takes jobs passes over all that rest.
            Advanced::More if rest > 0 => Advanced::Wait(0),
            worked => worked,
        })
    }

    /// Whether it is this process that works, and rests: of one elsewhere there is little to do here, which others wait for.
    pub(crate) fn runs_here(&self) -> bool {
        self.run.as_ref().is_some_and(|running| running.verifier.is_none())
    }

    fn work(&mut self, catalog: &Arc<Catalog>) -> Result<Advanced> {
        if self.manual.as_ref().is_some_and(|m| m.is_canceled()) || self.store.is_dropped() {
            return Err(Error::new(ErrorKind::Canceled, "the compaction was cancelled"));
        }
        let Some(Running { run, verifier, .. }) = &mut self.run else {
            let (store, plan, bounds) = (&self.store, &self.plan, &self.bounds);
            catalog.install(Install {
                store,
                plan,
                bounds,
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
        if self.publishing.is_some() {
            return self.fill(catalog);
        }
        if self.steps_fill {
            if self.fills.bytes > 0 {
                self.filling.get_or_insert_with(|| catalog.commit.rates.filling.clone());
            }
            run.end_steps_at_filled(step_fill_bytes(catalog, 0));
        }
        let advance = match run.advance() {
            Err(e) if verifier.is_some() => return self.go_on(catalog, &e),
            advance => advance?,
        };
        self.account(catalog);
        let step = match advance {
            Advance::Working => return Ok(Advanced::More),
            Advance::NotYet(ns) => return Ok(Advanced::NotYet(ns)),
            Advance::Step(step) => step,
        };
        let opened = match self.verify(catalog, &step) {
            Err(e) => return self.go_on(catalog, &e),
            Ok(opened) => opened,
        };
        self.account(catalog);
        self.publishing = Some(self.publishing(catalog, step, opened)?);
        self.fill(catalog)
    }

    /// Counts what was written since the last time, against the rates too.
    fn account(&mut self, catalog: &Catalog) {
        let totals = self.totals();
        // What is still in the builder is an estimate, which may turn out too high.
        let written = totals.bytes_written.max(self.reported);
        catalog.commit.rates.merges.take(written - self.reported);
        self.reported = written;
        catalog.commit.rates.fills.take(self.fills.note(&totals));
        if let Some(manual) = &self.manual {
            manual.note_written(written);
        }
    }

    /// Checks a step that was made elsewhere before it is made true; its outputs, open.
    fn verify(&mut self, catalog: &Catalog, step: &Step) -> Result<Option<Opened>> {
        let Some(Running { run, verifier: Some((verifier, bounds)), remote }) = &mut self.run else {
            return Ok(None);
        };
        let expected = bounds.below(step.upto.as_deref())?;
        let next = verifier
            .step(&step.outputs, step.upto.as_deref(), &run.totals(), &expected)
            .map_err(|why| run.refused(&format!("what cannot be: {why}")))?;
        let keeps = catalog.commit.settings.options.cache_fill == CacheFill::Remote;
        let remote = remote.as_ref().filter(|_| keeps);
        let open = |info: &Arc<TableInfo>| {
            // As it is in storage.
            let handle = catalog.tables.open(info, None)?;
            handle.table.verify_index()?;
            let Some(remote) = remote else { return Ok((info.id, handle)) };
            let bytes = &catalog.remote_bytes;
            let wrap = |file| -> Arc<dyn ReadFile> {
                Arc::new(RemoteFile::new(file, info.id, remote.clone(), bytes.clone()))
            };
            Ok((info.id, catalog.tables.open_by(info, None, Some(&wrap))?))
        };
        let opened = step.outputs.iter().map(open).collect::<Result<Opened>>();
        let opened = opened.map_err(|e| run.refused(&format!("a table that is not as it says: {e}")))?;
        *verifier = next;
        Ok(Some(opened))
    }

    /// What is to be brought into the cache of a step before it is published, and from where.
    fn publishing(&self, catalog: &Catalog, step: Step, opened: Option<Opened>) -> Result<Publishing> {
        let outputs = &step.outputs;
        let remote = self.run.as_ref().and_then(|run| run.remote.clone()).filter(|_| !outputs.is_empty());
        let fill = catalog.commit.settings.options.cache_fill;
        let (warming_up, opened) = match (fill, remote, opened) {
            (CacheFill::Before, None, opened) if !outputs.is_empty() => {
                let open = || catalog.open_tables(outputs, &mut []);
                let opened = opened.map_or_else(open, Ok).inspect_err(|_| catalog.remove_outputs(outputs))?;
                (Some(WarmingUp::all(opened, outputs, Origin::Storage)), None)
            }
            (CacheFill::Before | CacheFill::WriteThrough, Some(remote), Some(opened)) => {
                (Some(WarmingUp::all(opened, outputs, Origin::Remote(remote))), None)
            }
            (CacheFill::Step, Some(remote), Some(opened)) => {
                let (runs, low) = (self.inputs_left(), self.clip.as_ref().unwrap_or(&self.plan.range.start));
                let keys = (low.as_slice(), step.upto.as_deref().or(self.plan.range.end.as_deref()));
                (Some(WarmingUp::wanted(opened, outputs, Origin::Remote(remote), &runs, keys)), None)
            }
            (_, _, opened) => (None, opened),
        };
        Ok(Publishing { step, opened, warming_up })
    }

    /// The inputs that are not done, run by run.
    fn inputs_left(&self) -> Vec<Vec<OpenTable>> {
        let version = self.store.version_full();
        let open: BTreeMap<TableId, _> = version.tables().map(|open| (open.info.id, open)).collect();
        let of_run =
            |input: &InputRun| input.tables.iter().filter_map(|id| open.get(id).copied().cloned()).collect();
        self.plan.inputs.iter().map(of_run).collect()
    }

    /// Removes what the run has written and was not made true; of one elsewhere what lies there and can be nothing else.
    fn remove_left(&self, catalog: &Catalog) {
        let Some(Running { run, verifier, .. }) = &self.run else { return };
        match verifier {
            None => catalog.remove_tables(&run.leftovers()),
            Some((verifier, _)) => catalog.remove_strays_of(verifier),
        }
    }

    /// Who ran the merge elsewhere failed: the rest of it, from the last step that is true, is offered again, and in the end run
    /// here.
    fn go_on(&mut self, catalog: &Catalog, why: &Error) -> Result<Advanced> {
        self.remove_left(catalog);
        self.carried = self.totals();
        self.run = None;
        self.failures += 1;
        let reason = format!("a merge failed elsewhere: {why}");
        let numbers = [("steps", self.steps), ("failures", u64::from(self.failures))];
        catalog.commit.events.record(EventKind::OffloadFailure, &self.store.name, reason, &numbers);
        let version = self.store.version_full();
        check_bounds(&self.store, &version, &self.bounds)?;
        // Names of its own: what was written elsewhere may still appear.
        let mut spec = spec(catalog, &self.store, &version, &self.plan, catalog.next_job());
        spec.range.start = self.clip.clone().unwrap_or(spec.range.start);
        self.run = Some(match self.failures < FAILURES_ELSEWHERE {
            true => begin(catalog, &self.store, &version, &spec)?,
            false => Running::here(catalog, &spec)?,
        });
        Ok(Advanced::More)
    }

    /// Brings a piece of what the cache is to have of a step there; publishes the step when that is all.
    fn fill(&mut self, catalog: &Arc<Catalog>) -> Result<Advanced> {
        let Some(Publishing { warming_up, .. }) = &mut self.publishing else { return Ok(Advanced::More) };
        match warming_up.as_mut().map_or(Brought::All, WarmingUp::advance) {
            Brought::NotYet => return Ok(Advanced::NotYet(LOOK_AGAIN_NS)),
            Brought::Blocks(blocks, bytes) => {
                self.fills.blocks += blocks;
                self.fills.bytes += bytes;
                catalog.commit.rates.fills.take(bytes);
                return Ok(Advanced::More);
            }
            Brought::All => {}
        }
        let Some(Publishing { step, opened, warming_up }) = self.publishing.take() else {
            return Ok(Advanced::More);
        };
        let Some(mut warmed) = warming_up else { return self.publish(catalog, step, opened) };
        if let Some(run) = self.run.as_mut().filter(|_| warmed.failed.is_some() && warmed.remote_bytes == 0) {
            // Later steps do not wait for it again.
            run.remote = None;
        }
        self.fills.failed = self.fills.failed.take().or(warmed.failed.take());
        self.fills.remote_bytes += warmed.remote_bytes;
        catalog.remote_bytes.fetch_add(warmed.remote_bytes, Ordering::Relaxed);
        let published = self.publish(catalog, step, Some(warmed.opened.clone()));
        if published.is_err() {
            warmed.undo();
        }
        published
    }

    fn publish(&mut self, catalog: &Arc<Catalog>, step: Step, opened: Option<Opened>) -> Result<Advanced> {
        let upto = step.upto.clone();
        kill_point!("merge-before-install");
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
        kill_point!("merge-after-install");
        self.fills.note_evicted(blocks, bytes);
        catalog.commit.metrics.merge_steps.add(1);
        self.steps += 1;
        match upto {
            Some(key) => {
                let mut work = self.store.work.lock();
                if let Some((_, running)) = work.merges.running.iter_mut().find(|(id, _)| *id == self.id) {
                    running.clip = Some(key.clone());
                }
                work.merges.nothing_of_level0 = None;
                drop(work);
                self.clip = Some(key);
                Ok(Advanced::Wait(0))
            }
            None => {
                catalog.commit.metrics.merged_in_bytes.add(self.plan.bytes);
                self.store.metrics.merged_in_bytes.add(self.plan.bytes);
                let totals = self.totals();
                catalog.commit.metrics.cells_dropped.add(totals.taken - totals.kept);
                self.tell(catalog, EventKind::Merge, self.plan.reason.clone());
                self.leave(None);
                self.fills.tell(catalog, &self.store, totals.keys);
                Ok(Advanced::Done)
            }
        }
    }

    /// Whether the store's keys are not those with which it began.
    fn is_of_other_keys(&self) -> bool {
        !Arc::ptr_eq(&self.store.version().bounds, &self.bounds) && !self.store.is_dropped()
    }

    /// What was done so far; nothing of a move.
    fn totals(&self) -> Totals {
        let now = self.run.as_ref().map(Running::totals).unwrap_or_default();
        Totals {
            // What was done elsewhere is as it was told.
            bytes_written: self.carried.bytes_written.saturating_add(now.bytes_written),
            taken: self.carried.taken.saturating_add(now.taken),
            kept: self.carried.kept.saturating_add(now.kept),
            forgotten: self.carried.forgotten.max(now.forgotten),
            ..now
        }
    }

    /// Counts it and tells of it.
    fn tell(&self, catalog: &Catalog, kind: EventKind, reason: String) {
        let Totals { taken, kept, bytes_written: bytes, .. } = self.totals();
        catalog.commit.metrics.merged_bytes.add(bytes);
        self.store.metrics.merged_bytes.add(bytes);
        self.store.work.lock().merges.rewritten.merged(bytes);
        if kind == EventKind::Merge {
            catalog.commit.metrics.merges.add(1);
            self.store.metrics.merges.add(1);
        }
        let ns = catalog.commit.env.clock.monotonic_ns() - self.began_ns;
        if kind == EventKind::Merge {
            catalog.commit.metrics.timers.merge.note_ns(ns);
        }
        let micros = ns / 1_000;
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
            work.merges.running.retain(|(id, _)| *id != self.id);
            work.merges.nothing_of_level0 = None;
        }
        match (&self.manual, error) {
            // Of a store that was split or joined meanwhile: it is planned anew.
            (Some(manual), Some(error)) if self.is_of_other_keys() && error.kind() == ErrorKind::Canceled => {
                manual.begin_again();
            }
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
        self.remove_left(catalog);
        if let Some(Publishing { step, warming_up, .. }) = self.publishing {
            if let Some(warming_up) = warming_up {
                warming_up.undo();
            }
            catalog.remove_outputs(&step.outputs);
        }
        self.store
    }
}

/// Outputs that are open before they are published.
type Opened = BTreeMap<TableId, Arc<TableHandle>>;

/// A step that is ready, with its outputs being brought into the cache where that is wanted.
struct Publishing {
    step: Step,
    /// The outputs, if they are open already.
    opened: Option<Opened>,
    warming_up: Option<WarmingUp>,
}

/// The merge as whoever runs it does it, and what is checked of that.
struct Running {
    run: Box<dyn MergeRun>,
    /// What is checked; `None` of one that runs here.
    verifier: Option<(Verifier, Bounds)>,
    /// The memory of who runs it.
    remote: Option<Arc<dyn RemoteCache>>,
}

impl Running {
    /// The merge run here.
    fn here(catalog: &Catalog, spec: &MergeSpec) -> Result<Self> {
        Ok(Self { run: catalog.local.begin(spec)?, verifier: None, remote: None })
    }

    /// The merge run elsewhere, of tables of that version.
    fn there(run: Box<dyn OffloadedMerge>, version: &Version, spec: &MergeSpec) -> Self {
        let open: BTreeMap<TableId, &OpenTable> = version.tables().map(|open| (open.info.id, open)).collect();
        let of_run = |run: &Vec<TableInfo>| -> Vec<OpenTable> {
            run.iter().filter_map(|table| open.get(&table.id).copied().cloned()).collect()
        };
        let bounds = Bounds::new(spec, spec.inputs.iter().map(of_run).collect());
        let remote = run.remote_cache();
        Self { run: Box::new(There::new(run, spec)), verifier: Some((Verifier::new(spec), bounds)), remote }
    }

    /// What was done; of one elsewhere what was found to be true.
    fn totals(&self) -> Totals {
        self.verifier.as_ref().map_or_else(|| self.run.totals(), |(verifier, _)| verifier.totals())
    }
}

/// Begins the merge: elsewhere if somebody takes it, else here.
fn begin(catalog: &Catalog, store: &Store, version: &Version, spec: &MergeSpec) -> Result<Running> {
    if let Some(offload) = &catalog.offload {
        let keep = catalog.commit.settings.options.cache_fill.into();
        let kept = store.settings().versions_kept();
        let cached = LazyCell::new(|| cached(version, spec));
        let there = in_small_steps(catalog, store, spec, &|| *cached);
        let (predicted, cached) = (&|| predicted(version, spec, kept), &|| *cached);
        let tables = &|| -> Arc<dyn MergeTables> { Arc::new(OwnTables::new(catalog.tables.store(), &there)) };
        let offer = Offer { spec: &there, keep, predicted, cached, tables };
        let Decision { run, reason, numbers } = offload.decide(&offer);
        if !reason.is_empty() {
            catalog.commit.events.record(EventKind::Offload, &store.name, reason, &numbers);
        }
        if let Some(run) = run {
            return Ok(Running::there(run, version, &there));
        }
    }
    Running::here(catalog, spec)
}

/// The merge as it is run elsewhere: in steps of which each brings about as much into the cache as a step of one that runs here
/// may, as who runs it knows nothing of the cache. Tables end with them, but not below an eighth of their size.
fn in_small_steps(catalog: &Catalog, store: &Store, spec: &MergeSpec, cached: &dyn Fn() -> u64) -> MergeSpec {
    let mut spec = MergeSpec { read_ahead: READ_AHEAD as u64, ..spec.clone() };
    if catalog.commit.settings.steps_end_by_fill() && Layout::of(&store.settings()).is_whole() {
        let (input, cached) = (spec.input_bytes().max(1), cached().max(1));
        let bytes = u128::from(step_fill_bytes(catalog, 1)) * u128::from(input) / u128::from(cached);
        let least = spec.output.table_bytes / 8;
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX).max(least);
        spec.output.table_bytes = spec.output.table_bytes.min(bytes);
        spec.step_bytes = spec.step_bytes.min(bytes);
    }
    spec
}

/// About how many bytes a merge will write, where so many versions of a key are kept.
fn predicted(version: &Version, spec: &MergeSpec, kept: u64) -> u64 {
    let tables: Vec<TableId> = spec.inputs().map(|table| table.id).collect();
    let left = match tables.len() {
        0..=SKETCHES => Unions::default().left(version, &[], &tables, kept),
        _ => 1.0,
    };
    (spec.input_bytes() as f64 * left) as u64
}

/// About how many of its input bytes are in the cache, by a sample of their indices.
fn cached(version: &Version, spec: &MergeSpec) -> u64 {
    let tables: BTreeSet<TableId> = spec.inputs().map(|table| table.id).collect();
    let inputs = || version.tables().filter(|open| tables.contains(&open.info.id)).map(OpenTable::table);
    let partitions = inputs().flat_map(|table| (0..table.partitions()).map(move |number| (table, number)));
    let all: usize = inputs().map(|table| table.partitions()).sum();
    let looked =
        partitions.step_by(all.div_ceil(PARTITIONS).max(1)).map(|(table, number)| table.cached_bytes(number));
    let (bytes, cached) = looked.fold((0u64, 0u64), |sum, of| (sum.0 + of.0, sum.1 + of.1));
    (u128::from(spec.input_bytes()) * u128::from(cached) / u128::from(bytes.max(1))) as u64
}

/// What a plan reads, open.
pub(super) struct TableSources {
    /// Newest first.
    pub(super) sources: Vec<Source>,
    /// How many cells they hold, where that is known.
    pub(super) cells: Option<u64>,
    pub(super) replaced: Replaced,
}

impl TableSources {
    /// Of a plan that reads no tables.
    pub(super) fn none() -> Self {
        Self { sources: Vec::new(), cells: Some(0), replaced: Replaced::default() }
    }
}

/// The tables of a plan as sources; `None` when the version lacks one.
pub(super) fn table_sources(version: &Version, plan: &MergePlan, read_ahead: usize) -> Option<TableSources> {
    let open: BTreeMap<TableId, _> = version.tables().map(|open| (open.info.id, open)).collect();
    let options = CursorOptions { fill_cache: false, read_ahead_bytes: read_ahead, through_cache: false };
    let mut all = TableSources::none();
    for input in &plan.inputs {
        let tables: Vec<OpenTable> =
            input.tables.iter().map(|id| open.get(id).copied().cloned()).collect::<Option<_>>()?;
        // A clipped table's cells are counted below its clip too, so their number says nothing.
        for open in &tables {
            all.cells = all.cells.filter(|_| open.info.is_whole()).map(|n| n + open.info.cells);
        }
        all.sources.push(run_source(tables, options, &mut all.replaced));
    }
    Some(all)
}

/// The merge that the plan asks for, as plain data, of those of its tables that are still there.
fn spec(catalog: &Catalog, store: &Store, version: &Version, plan: &MergePlan, id: u32) -> MergeSpec {
    let settings = store.settings();
    let beside_readers = catalog.commit.rates.pace.begin(catalog.cache.blocks_asked_for());
    let resting = beside_readers && catalog.commit.rest() > 0.0 && catalog.tables.store().writes_in_pieces();
    let inputs: BTreeSet<TableId> = plan.tables().collect();
    let infos: BTreeMap<TableId, _> = version.tables().map(|open| (open.info.id, &open.info)).collect();
    let of_run = |input: &InputRun| {
        let there = input.tables.iter().filter_map(|id| infos.get(id));
        there.map(|info| TableInfo::clone(info)).collect()
    };
    let oldest = plan.inputs.last().map_or((0, 0), |input| (input.level, input.run));
    // Older than the oldest input: deeper levels, older runs of its level, and what its own run holds beside it.
    let is_below = |level: usize, run: u64| level > oldest.0 || (level == oldest.0 && run <= oldest.1);
    let below = version
        .shape
        .tables()
        .filter(|(level, run, table)| !inputs.contains(&table.id) && is_below(*level, run.id))
        .map(|(_, _, table)| table.live_range());
    let last = plan.output.level + 1 >= version.shape.levels.len();
    MergeSpec {
        rules_version: RULES_VERSION,
        database: catalog.database,
        place: catalog.tables.store().location(),
        log_dir: catalog.dir.clone(),
        inputs: plan.inputs.iter().map(of_run).collect(),
        range: plan.range.clone(),
        keep: keep_spec(catalog, &settings, Below::new(below.collect())),
        output: output_spec(catalog, store, plan, id, last, Vec::new()),
        step_bytes: catalog.commit.settings.step_bytes(),
        read_ahead: if resting { READ_AHEAD_RESTING } else { READ_AHEAD } as u64,
    }
}

/// How the plan's outputs are made.
pub(super) fn output_spec(
    catalog: &Catalog,
    store: &Store,
    plan: &MergePlan,
    id: u32,
    last: bool,
    cuts: Vec<Vec<u8>>,
) -> OutputSpec {
    let names = store.table_names().into_iter().map(|(name, value)| (name.to_string(), value));
    OutputSpec {
        table: store.settings().table_options(last),
        table_bytes: plan.table_bytes,
        cuts,
        id: TableId { store: store.id, epoch: catalog.epoch, job: id, part: 0 },
        names: names.collect(),
    }
}

/// What a merge of the family keeps that begins now.
pub(super) fn keep_spec(catalog: &Catalog, settings: &FamilySettings, below: Below) -> KeepSpec {
    let options = &settings.options;
    KeepSpec {
        read_points: catalog.commit.snapshots.read_points().to_vec(),
        explicit: settings.read.explicit,
        versions: settings.read.versions,
        ttl_us: settings.read.ttl_us,
        now_us: catalog.commit.env.clock.wall_us(),
        operator: options.merge_operator.clone(),
        filter: options.filter.clone(),
        strategy: options.strategy.to_string(),
        below,
    }
}

/// What a step may put into the cache: merges that do it share what is there twice meanwhile. (The paper warms one
/// region after another; here regions merge beside each other.) Not those of `rangemerge`, whose tables are not cut.
/// `more` are to begin.
pub(super) fn step_fill_bytes(catalog: &Catalog, more: u64) -> u64 {
    let merges = Arc::strong_count(&catalog.commit.rates.filling) as u64 - 1 + more;
    (catalog.cache.capacity() / FILL_STEPS / merges.max(1)).max(FILL_STEP_MIN)
}
