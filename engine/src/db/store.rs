//! One column family inside: its options, its memory and tables (the version), its merges in flight.

use super::unique::Unions;
use super::visible::ReadRules;
use crate::error::{Error, ErrorKind, Result};
use crate::memory::{Active, MemoryOptions, Spares, prefetch_value};
use crate::operator::Registry;
use crate::options::{FamilyOptions, Timestamps};
use crate::strategy::{Deferred, HotState, PipelineState, PlanState, RunningMerge};
use crate::sync::{ArcSwap, AtomicBool, AtomicU64, Guard, Mutex, Ordering};
use crate::table::TableOptions;
use crate::types::{Generation, SeqNo, StoreId};
use crate::shape::Shape;
use crate::version::{Graveyard, Version};
use std::sync::{Arc, OnceLock};

/// What freezing a segment costs beside its cells, in looks at one.
const DEAD_LOOKS_MIN: u64 = if cfg!(feature = "testing") { 500 } else { 20_000 };

/// With so many frozen segments none is added before it is full: each is one more to look into.
const FROZEN_MAX: usize = 8;

/// What each read and write touches comes first and stays together: among thousands of families all of it is cold. What
/// writes change follows, in cache lines of its own, so that a writer does not take the first from readers.
#[repr(C, align(64))]
pub(crate) struct Store {
    version: ArcSwap<Version>,
    settings: ArcSwap<Settings>,
    /// Bytes at which the active segment is frozen: from the write memory and the options.
    active_bytes: AtomicU64,
    /// Runs in level 0 beyond those that its strategy lets gather.
    level0_over: AtomicU64,
    pub(crate) id: StoreId,
    dropped: AtomicBool,
    /// It is being detached: takes no writes any more.
    leaving: AtomicBool,
    /// Writers wait.
    held: AtomicBool,
    pub(super) counted: Counted,
    pub(crate) name: String,
    graveyard: Arc<Graveyard>,
    next_generation: AtomicU64,
    /// The highest generation that recovery found in the log: all of it was in memory when the store was opened.
    replayed: AtomicU64,
    /// A store that was attached: the sequence number of that moment. Its cells have numbers of another database, so a
    /// read point from before would show some of them.
    attached_at: SeqNo,
    /// Of keys written up to this sequence number no cell may be left.
    forgotten: AtomicU64,
    /// The database's write memory.
    write_memory: AtomicU64,
    /// The database's chunks to be used again.
    spares: OnceLock<Arc<Spares>>,
    /// What the last active segment that was frozen had.
    active_expected: AtomicU64,
    pub(crate) work: Mutex<StoreWork>,
}

/// What was last counted of a store; see `tally`.
#[repr(align(64))]
pub(super) struct Counted {
    /// Held while memory and tables are counted anew, so that who read an older version does not have the last word.
    pub(super) counting: Mutex<()>,
    pub(super) memory: AtomicU64,
    pub(super) tables: AtomicU64,
    /// Of the memory, what flushes left there.
    pub(super) kept: AtomicU64,
    /// The log file that it stands under; the largest number where none.
    pub(super) front: AtomicU64,
    /// Cells that scans looked at though a range tombstone covers them, since the active segment was begun.
    dead_looks: AtomicU64,
}

impl Counted {
    fn new() -> Self {
        Self {
            counting: Mutex::new(()),
            memory: AtomicU64::new(0),
            tables: AtomicU64::new(0),
            kept: AtomicU64::new(0),
            front: AtomicU64::new(u64::MAX),
            dead_looks: AtomicU64::new(0),
        }
    }
}

/// What only background work looks at.
#[derive(Default)]
pub(crate) struct StoreWork {
    /// A flush of this store is under way.
    pub(crate) flushing: bool,
    /// The flush is installed, or about to be, and not told of yet.
    pub(crate) flush_ends: bool,
    /// Somebody asked for a flush of everything up to this generation.
    pub(crate) flush_asked: Generation,
    pub(crate) plan_state: PlanState,
    /// A shape of which nothing of level 0 could be merged with so many merges running, and whether a compaction waited.
    pub(crate) nothing_of_level0: Option<(Arc<Shape>, usize, bool)>,
    pub(crate) running: Vec<(u32, RunningMerge)>,
    /// After a failed flush: not before this moment (monotonic ns).
    pub(crate) flush_not_before: u64,
    /// The same for merges.
    pub(crate) merge_not_before: u64,
    /// How many of its merges have failed since one was done.
    pub(crate) failures: u32,
    /// What plans asked for lately.
    pub(crate) unions: Unions,
    /// Debt found by the last plan, and what of it was not inherited.
    pub(crate) debt: u64,
    pub(crate) debt_of_writers: u64,
    /// What the last plan put off.
    pub(crate) deferred: Vec<Deferred>,
    /// A frozen segment is being laid out flat, or scattered.
    pub(crate) laying_out: bool,
    /// An in-memory merge is under way.
    pub(crate) joining: bool,
    /// The newest segment that the memory policy was asked about.
    pub(crate) joined_upto: Generation,
    /// What that policy remembers since the last disk flush began.
    pub(crate) pipeline: PipelineState,
    /// How often one was tried.
    pub(crate) flushes: u64,
    /// Which try was the last to fail, and why.
    pub(crate) flush_failed: Option<(u64, Error)>,
    /// What the store's flushes met, for the choice of hot keys.
    pub(crate) hot: HotState,
    /// The part of the cells that the last flush wrote, where it noted that.
    pub(crate) survived: Option<f64>,
    /// What merges have written of what came.
    pub(crate) rewritten: Rewritten,
    /// Measured cost of copying in memory; zero before there was any.
    pub(crate) copy_ns_per_byte: f64,
}

/// Bytes that came to a store's tables, those left in the log as tables would have them, and what its merges wrote; the
/// older the less they count.
#[derive(Default)]
pub(crate) struct Rewritten {
    came: f64,
    merged: f64,
}

impl Rewritten {
    /// A flush brought so much. What came before `memory` 64 times over counts half.
    pub(crate) fn came(&mut self, bytes: f64, memory: u64) {
        self.came += bytes;
        if self.came > 64.0 * memory as f64 {
            self.came /= 2.0;
            self.merged /= 2.0;
        }
    }

    pub(crate) fn merged(&mut self, bytes: u64) {
        self.merged += bytes as f64;
    }

    /// How often a byte that came was written by merges.
    pub(crate) fn times(&self) -> f64 {
        self.merged / self.came.max(1.0)
    }
}

/// Options with the names in them resolved.
#[repr(C)]
pub(crate) struct Settings {
    /// Whether cells keep the time of writing, and whether they have timestamps of their own: what each write asks.
    pub(crate) keeps_written: bool,
    pub(crate) explicit: bool,
    pub(crate) options: FamilyOptions,
    pub(crate) read: ReadRules,
    pub(crate) inherited: Arc<Inherited>,
}

/// What a strategy owed of a family when it took that over, by opening or `alter`. Tables that another strategy left may be
/// many times what backpressure allows, and no writer is to wait until all of them are merged. So it is not held
/// against writers: what they add is, while this is worked off.
pub(crate) struct Inherited {
    debt: AtomicU64,
    level0_runs: AtomicU64,
}

impl Inherited {
    fn new() -> Self {
        Self { debt: AtomicU64::new(u64::MAX), level0_runs: AtomicU64::new(u64::MAX) }
    }

    /// The part of the debt there is now that was not inherited. What it is asked first is what was inherited.
    pub(crate) fn debt_beyond(&self, now: u64) -> u64 {
        now - self.debt.fetch_min(now, Ordering::Relaxed).min(now)
    }

    /// The same of runs in level 0.
    pub(crate) fn level0_beyond(&self, now: u64) -> u64 {
        now - self.level0_runs.fetch_min(now, Ordering::Relaxed).min(now)
    }
}

impl Settings {
    /// Refuses options that name an operator or filter that is not registered.
    pub(crate) fn resolve(name: &str, options: FamilyOptions, registry: &Registry) -> Result<Self> {
        let settings = Self::resolve_known(name, options, registry)?;
        let missing = settings.read.operator_missing.as_ref().or(settings.read.filter_missing.as_ref());
        missing.cloned().map_or(Ok(settings), Err)
    }

    /// The same of a family that is there: without them whatever does not need them goes on.
    pub(crate) fn resolve_known(name: &str, options: FamilyOptions, registry: &Registry) -> Result<Self> {
        options.validate()?;
        let missing = |what: &str, wanted: &Option<String>, found: bool| {
            let wanted = wanted.as_ref().filter(|_| !found)?;
            let message = format!("family {name} needs the {what} \"{wanted}\", which is not registered");
            Some(Error::new(ErrorKind::Unsupported, message))
        };
        let operator =
            options.merge_operator.as_ref().and_then(|wanted| registry.operators.get(wanted)).cloned();
        let filter = options.filter.as_ref().and_then(|wanted| registry.filters.get(wanted)).cloned();
        let read = ReadRules {
            explicit: options.timestamps == Timestamps::Explicit,
            versions: options.versions,
            ttl_us: options.ttl_us,
            operator_missing: missing("merge operator", &options.merge_operator, operator.is_some()),
            filter_missing: missing("filter", &options.filter, filter.is_some()),
            operator,
            filter,
        };
        let (keeps_written, explicit) = (options.keeps_written(), read.explicit);
        Ok(Self { keeps_written, explicit, options, read, inherited: Arc::new(Inherited::new()) })
    }

    /// Whether a number of versions is kept.
    pub(crate) fn counts_versions(&self) -> bool {
        self.read.explicit && self.read.versions > 0
    }

    /// How many cells of a key a merge keeps at most.
    pub(crate) fn versions_kept(&self) -> u64 {
        match (self.read.explicit, self.read.versions) {
            (true, 0) => u64::MAX,
            (true, versions) => versions.into(),
            (false, _) => 1,
        }
    }

    pub(crate) fn table_options(&self, last_level: bool) -> TableOptions {
        let o = &self.options;
        let compression = match (last_level, o.compression_last) {
            (true, Some(last)) => last,
            _ => o.compression,
        };
        TableOptions {
            block_bytes: o.block_bytes,
            bloom_bits: o.bloom_bits,
            compression,
            ..TableOptions::default()
        }
    }
}

/// Names in a table's properties: the number, name and options of the family it was written for.
pub(crate) const STORE: &str = "store";
pub(crate) const FAMILY: &str = "family";
pub(crate) const OPTIONS: &str = "options";

pub(crate) fn table_names(id: StoreId, name: &str, options: String) -> Vec<(&'static str, String)> {
    vec![(STORE, id.to_string()), (FAMILY, name.to_string()), (OPTIONS, options)]
}

/// How a family's segments use memory where the database's write memory is `write_memory`.
pub(crate) fn memory_options(family: &FamilyOptions, write_memory: u64) -> MemoryOptions {
    MemoryOptions::for_active_bytes(family.active_bytes(write_memory) as usize, 0, None)
}

impl Store {
    pub(crate) fn new(
        id: StoreId,
        name: String,
        settings: Settings,
        version: Version,
        next_generation: Generation,
        graveyard: Arc<Graveyard>,
    ) -> Arc<Self> {
        Self::attached(id, name, settings, version, next_generation, graveyard, SeqNo::ZERO)
    }

    /// One that comes from another database at that moment.
    pub(crate) fn attached(
        id: StoreId,
        name: String,
        settings: Settings,
        version: Version,
        next_generation: Generation,
        graveyard: Arc<Graveyard>,
        attached_at: SeqNo,
    ) -> Arc<Self> {
        Arc::new(Self {
            id,
            name,
            settings: ArcSwap::from_pointee(settings),
            version: ArcSwap::from_pointee(version),
            graveyard,
            next_generation: AtomicU64::new(next_generation.0),
            replayed: AtomicU64::new(0),
            dropped: AtomicBool::new(false),
            leaving: AtomicBool::new(false),
            held: AtomicBool::new(false),
            attached_at,
            forgotten: AtomicU64::new(attached_at.0),
            write_memory: AtomicU64::new(0),
            spares: OnceLock::new(),
            active_bytes: AtomicU64::new(0),
            active_expected: AtomicU64::new(0),
            level0_over: AtomicU64::new(0),
            counted: Counted::new(),
            work: Mutex::default(),
        })
    }

    pub(crate) fn settings(&self) -> Guard<Arc<Settings>> {
        self.settings.load()
    }

    /// What its tables say of it.
    pub(crate) fn table_names(&self) -> Vec<(&'static str, String)> {
        let options = serde_json::to_string(&self.settings().options).expect("options are plain data");
        table_names(self.id, &self.name, options)
    }

    pub(crate) fn set_settings(&self, settings: Settings) {
        self.settings.store(Arc::new(settings));
        self.fit_memory(self.write_memory.load(Ordering::Relaxed));
    }

    /// The database's write memory is that from now on. To be said of each new store before it takes writes.
    pub(crate) fn fit_memory(&self, write_memory: u64) {
        self.write_memory.store(write_memory, Ordering::Relaxed);
        self.active_bytes.store(self.settings().options.active_bytes(write_memory), Ordering::Relaxed);
    }

    /// How many runs level 0 has beyond those that its strategy lets gather, when it was counted last.
    pub(crate) fn level0_over(&self) -> u64 {
        self.level0_over.load(Ordering::Relaxed)
    }

    /// How many it had before.
    pub(crate) fn set_level0_over(&self, runs: u64) -> u64 {
        self.level0_over.swap(runs, Ordering::Relaxed)
    }

    /// Its segments take chunks from there from now on.
    pub(crate) fn use_spares(&self, spares: &Arc<Spares>) {
        let _ = self.spares.set(spares.clone());
    }

    /// Bytes at which its active segment is frozen.
    #[inline]
    pub(crate) fn active_bytes(&self) -> u64 {
        self.active_bytes.load(Ordering::Relaxed)
    }

    /// How its segments use memory.
    pub(crate) fn memory_options(&self) -> MemoryOptions {
        let expected = self.active_expected.load(Ordering::Relaxed) as usize;
        MemoryOptions::for_active_bytes(self.active_bytes() as usize, expected, self.spares.get().cloned())
    }

    /// Prefetches what a write touches of its version and counters. For single writes: a batch meets its stores one after
    /// the other before it comes to the first of them again.
    #[inline]
    pub(crate) fn prefetch(&self) {
        prefetch_value(&self.counted);
        prefetch_value(&self.version.load().active);
    }

    /// The store as it is now. A reader calls this first and takes its read point second.
    #[inline]
    pub(crate) fn version(&self) -> Guard<Arc<Version>> {
        self.version.load()
    }

    pub(crate) fn version_full(&self) -> Arc<Version> {
        self.version.load_full()
    }

    /// Swaps in what `change` makes of the present version, trying again when another change came between.
    pub(crate) fn swap(&self, change: impl Fn(&Version) -> Version) {
        let before = self.version.rcu(|now| Arc::new(change(now)));
        self.graveyard.bury(before);
    }

    /// As `swap`, unless `change` finds that there is nothing to change any more.
    pub(crate) fn swap_if(&self, mut change: impl FnMut(&Version) -> Option<Version>) {
        let mut changed = false;
        let before = self.version.rcu(|now| {
            let next = change(now);
            changed = next.is_some();
            next.map_or_else(|| now.clone(), Arc::new)
        });
        if changed {
            self.graveyard.bury(before);
        }
    }

    /// The generation for a new active segment; the one before it stays reserved for cells that a flush keeps
    /// in memory (invariant I1).
    pub(crate) fn take_generation(&self) -> Generation {
        Generation(self.next_generation.fetch_add(2, Ordering::Relaxed) + 1)
    }

    pub(crate) fn replayed_generation(&self) -> Generation {
        Generation(self.replayed.load(Ordering::Relaxed))
    }

    /// The run of level 0 that the flush under way, or to be taken up again, writes.
    pub(crate) fn flushing_run(&self, version: &Version) -> Option<u64> {
        // Cells that recovery put there may have been logged under a later generation than that of their segment.
        (!version.flush.is_empty()).then(|| version.flush.generation.max(self.replayed_generation()).0)
    }

    /// Recovery met this generation in the log.
    pub(crate) fn note_replayed(&self, taken: Generation) {
        self.replayed.fetch_max(taken.0, Ordering::Relaxed);
        self.next_generation.fetch_max(taken.0 + 1, Ordering::Relaxed);
    }

    /// An active segment that takes the place of one of that many bytes.
    pub(crate) fn new_active(&self, before: usize) -> Arc<Active> {
        self.active_expected.store(before as u64, Ordering::Relaxed);
        self.counted.dead_looks.store(0, Ordering::Relaxed);
        Arc::new(Active::new(self.take_generation(), self.memory_options()))
    }

    /// A scan looked at so many cells that a range tombstone covers.
    pub(super) fn note_dead_looks(&self, looks: u64) {
        self.counted.dead_looks.fetch_add(looks, Ordering::Relaxed);
    }

    /// Whether scans have looked at covered cells for longer than it takes to lay the active segment out without them.
    #[inline]
    pub(super) fn is_mostly_dead(&self, version: &Version) -> bool {
        let looks = self.counted.dead_looks.load(Ordering::Relaxed);
        let active = &version.active;
        looks > DEAD_LOOKS_MIN
            && active.has_ranges()
            && looks > 4 * active.cells() as u64
            && version.frozen.len() < FROZEN_MAX
    }

    pub(crate) fn is_dropped(&self) -> bool {
        self.dropped.load(Ordering::Acquire)
    }

    pub(crate) fn mark_dropped(&self) {
        self.dropped.store(true, Ordering::Release);
    }

    pub(crate) fn unmark_dropped(&self) {
        self.dropped.store(false, Ordering::Release);
    }

    /// Whether its writers wait, for a moment.
    pub(crate) fn set_held(&self, held: bool) {
        self.held.store(held, Ordering::Release);
    }

    #[inline]
    pub(crate) fn is_held(&self) -> bool {
        self.held.load(Ordering::Acquire)
    }

    /// Whether it is to take writes, which it is not while it is being detached.
    pub(crate) fn set_leaving(&self, leaving: bool) {
        self.leaving.store(leaving, Ordering::Release);
    }

    pub(crate) fn is_leaving(&self) -> bool {
        self.leaving.load(Ordering::Acquire)
    }

    pub(crate) fn check_takes_writes(&self) -> Result<()> {
        if self.is_leaving() {
            let message = format!("family {} is being detached and takes no writes", self.name);
            return Err(Error::new(ErrorKind::Busy, message));
        }
        self.check_not_dropped()
    }

    /// Of keys written up to this sequence number no cell may be left: whoever finds none of a key cannot know whether it was
    /// written after an older one. To be asked after the version that was searched was taken.
    pub(crate) fn forgotten(&self) -> SeqNo {
        SeqNo(self.forgotten.load(Ordering::Acquire))
    }

    pub(crate) fn forget(&self, upto: SeqNo) {
        self.forgotten.fetch_max(upto.0, Ordering::AcqRel);
    }

    /// When it came from another database; zero where it did not.
    pub(crate) fn attached_at(&self) -> SeqNo {
        self.attached_at
    }

    /// Refuses a read point from before the store was there.
    #[inline]
    pub(crate) fn check_read_point(&self, seq: SeqNo) -> Result<()> {
        if seq >= self.attached_at {
            return Ok(());
        }
        let message = format!("family {} was attached after the snapshot was taken", self.name);
        Err(Error::new(ErrorKind::Invalid, message))
    }

    pub(crate) fn check_not_dropped(&self) -> Result<()> {
        if self.is_dropped() {
            return Err(Error::new(ErrorKind::NotFound, format!("family {} was dropped", self.name)));
        }
        Ok(())
    }
}
