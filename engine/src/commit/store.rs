//! One column family inside: its options, its memory and SSTables (the version), its compactions in flight.

use super::emptied::Emptied;
use super::family::{FamilySettings, table_names};
use super::store_work::StoreWork;
use crate::error::{Error, ErrorKind, Result};
use crate::memtable::{ActiveMemtable, MemoryOptions, Memtable, Spares, prefetch_value};
use crate::metrics::StoreMetrics;
use crate::sync::{ArcSwap, AtomicBool, AtomicU64, Guard, Mutex, Ordering};
use crate::types::{Generation, LogFileId, SeqNo, StoreId};
use crate::version::{Graveyard, Version};
use std::sync::{Arc, OnceLock};

/// The fixed cost of freezing a memtable, as a number of cells that scans visit at that cost.
const DEAD_LOOKS_MIN: u64 = if cfg!(feature = "testing") { 500 } else { 20_000 };

/// The number of immutable memtables from which on no memtable is frozen before it is full: each is one more
/// source for readers.
const FROZEN_MAX: usize = 8;

/// Fields that each read and write touches come first, together: among thousands of families all of it is
/// cold. Fields that writes change follow, in other cache lines, so that a writer does not invalidate the
/// first for readers.
#[repr(C, align(64))]
// Over 15 fields: one atomic for each thing that writers look at without a lock.
pub(crate) struct Store {
    version: ArcSwap<Version>,
    settings: ArcSwap<FamilySettings>,
    /// Bytes at which the active memtable is frozen: from the write memory and the options.
    active_bytes: AtomicU64,
    /// Runs in L0 beyond the number that its strategy allows.
    pub(super) level0_over: AtomicU64,
    pub(crate) id: StoreId,
    dropped: AtomicBool,
    gone: AtomicBool,
    /// Whether it refuses writes, as it is being detached or copied.
    leaving: AtomicBool,
    /// Whether its writers wait.
    held: AtomicBool,
    pub(crate) counted: Counted,
    pub(crate) name: String,
    graveyard: Arc<Graveyard>,
    generations: Arc<Generations>,
    /// The highest generation that recovery found in the WAL: all of it was in memory when the store was
    /// opened.
    replayed: AtomicU64,
    /// The highest generation of memory that came from other stores, by a split or join, or that recovery may
    /// have found under their names.
    inherited: AtomicU64,
    /// The sequence number at which the store was attached, or zero. Its cells have numbers of another
    /// database, so an older read point would show some of them.
    pub(crate) attached_at: SeqNo,
    /// The first sequence number that the attach skipped: no write has one from here to `attached_at`.
    pub(crate) attached_from: SeqNo,
    /// The sequence number up to which compactions may have dropped every cell of a key: see
    /// [`Store::forgotten`].
    forgotten: AtomicU64,
    /// The database's write memory, not the family's.
    write_memory: AtomicU64,
    /// The database's pool of memory chunks.
    spares: OnceLock<Arc<Spares>>,
    /// Bytes of the last active memtable that was replaced.
    active_expected: AtomicU64,
    /// Ranges in which scans found nothing left.
    pub(crate) emptied: Emptied,
    pub(crate) metrics: StoreMetrics,
    pub(crate) work: Mutex<StoreWork>,
}

/// A store's part of the sums in `tally`, as last counted.
#[repr(align(64))]
pub(crate) struct Counted {
    /// Locked while memory and SSTables are recounted, so that the last count is of the last version.
    pub(crate) counting: Mutex<()>,
    pub(crate) memory: AtomicU64,
    pub(crate) tables: AtomicU64,
    /// The part of `memory` that flushes left there: hot cells.
    pub(crate) kept: AtomicU64,
    /// The WAL file that the store is listed under in `tally`; the largest number if it is listed nowhere.
    pub(crate) front: AtomicU64,
    /// Visits by scans of cells that a range tombstone covers, since the active memtable was begun.
    seek_misses: AtomicU64,
}

impl Default for Counted {
    fn default() -> Self {
        Self {
            counting: Mutex::default(),
            memory: AtomicU64::new(0),
            tables: AtomicU64::new(0),
            kept: AtomicU64::new(0),
            front: AtomicU64::new(LogFileId::MAX.0),
            seek_misses: AtomicU64::new(0),
        }
    }
}

/// The source of generations, each given out once in a database, so that memory and SSTables of stores that
/// are joined have one order.
#[derive(Default)]
pub(crate) struct Generations(AtomicU64);

impl Generations {
    /// A generation for a new active memtable; the one before it stays reserved for cells that a flush keeps
    /// in memory (invariant I1).
    pub(crate) fn take(&self) -> Generation {
        Generation(self.0.fetch_add(2, Ordering::Relaxed) + 1)
    }

    /// Makes all later generations higher than that.
    pub(crate) fn above(&self, taken: Generation) {
        self.0.fetch_max(taken.0.next_multiple_of(2) + 2, Ordering::Relaxed);
    }
}

impl Store {
    /// A store with that version. If it comes from another database, the attach skipped the sequence numbers
    /// from the first of the two to the last, so no write has them; else both are zero.
    pub(crate) fn new(
        id: StoreId,
        name: String,
        settings: FamilySettings,
        version: Version,
        generations: &Arc<Generations>,
        graveyard: Arc<Graveyard>,
        (attached_from, attached_at): (SeqNo, SeqNo),
    ) -> Arc<Self> {
        Arc::new(Self {
            id,
            name,
            settings: ArcSwap::from_pointee(settings),
            version: ArcSwap::from_pointee(version),
            graveyard,
            generations: generations.clone(),
            replayed: AtomicU64::new(0),
            inherited: AtomicU64::new(0),
            dropped: AtomicBool::new(false),
            gone: AtomicBool::new(false),
            leaving: AtomicBool::new(false),
            held: AtomicBool::new(false),
            attached_at,
            attached_from,
            forgotten: AtomicU64::new(attached_at.0),
            write_memory: AtomicU64::new(0),
            spares: OnceLock::new(),
            active_bytes: AtomicU64::new(0),
            active_expected: AtomicU64::new(0),
            level0_over: AtomicU64::new(0),
            counted: Counted::default(),
            emptied: Emptied::new(),
            metrics: StoreMetrics::default(),
            work: Mutex::default(),
        })
    }

    pub(crate) fn settings(&self) -> Guard<Arc<FamilySettings>> {
        self.settings.load()
    }

    /// The properties by which its SSTables name it.
    pub(crate) fn table_names(&self) -> Vec<(&'static str, String)> {
        let settings = self.settings();
        let options = match &settings.papers_missing {
            Some((_, stored)) => stored.to_string(),
            None => serde_json::to_string(&settings.options).expect("options are plain data"),
        };
        table_names(self.id, &self.name, options)
    }

    pub(crate) fn set_settings(&self, settings: FamilySettings) {
        self.settings.store(Arc::new(settings));
        // A flush that still has the old settings finds them changed when it has the lock. A compaction under
        // way, for which flushes wait, ends by itself.
        let mut work = self.work.lock();
        if !work.memory.is_compacting() {
            work.memory.compacts = None;
        }
        drop(work);
        self.fit_memory(self.write_memory.load(Ordering::Relaxed));
    }

    /// Whether it still has those settings.
    pub(crate) fn has_settings(&self, settings: &Arc<FamilySettings>) -> bool {
        Arc::ptr_eq(settings, &self.settings())
    }

    /// Sets the database's write memory. Must be called for each new store before it takes writes.
    pub(crate) fn fit_memory(&self, write_memory: u64) {
        self.write_memory.store(write_memory, Ordering::Relaxed);
        self.active_bytes.store(self.settings().options.active_bytes(write_memory), Ordering::Relaxed);
    }

    /// Runs in L0 beyond those that its strategy allows, as last counted.
    pub(crate) fn level0_over(&self) -> u64 {
        self.level0_over.load(Ordering::Relaxed)
    }

    /// Makes its memtables take chunks from that pool.
    pub(crate) fn use_spares(&self, spares: &Arc<Spares>) {
        let _ = self.spares.set(spares.clone());
    }

    #[inline]
    pub(crate) fn active_bytes(&self) -> u64 {
        self.active_bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn memory_options(&self) -> MemoryOptions {
        let expected = self.active_expected.load(Ordering::Relaxed) as usize;
        MemoryOptions::for_active_bytes(self.active_bytes() as usize, expected, self.spares.get().cloned())
    }

    /// Prefetches what a write touches of its version and counters. For single writes only: a batch touches
    /// several stores, one after another, before it returns to the first.
    #[inline]
    pub(crate) fn prefetch(&self) {
        prefetch_value(&self.counted);
        prefetch_value(&self.version.load().memory.active);
    }

    /// The store's present version. A reader calls this first and takes its read point second.
    #[inline]
    pub(crate) fn version(&self) -> Guard<Arc<Version>> {
        self.version.load()
    }

    pub(crate) fn version_full(&self) -> Arc<Version> {
        self.version.load_full()
    }

    /// Swaps in the version that `change` makes of the present one; calls it again if another change came
    /// between.
    pub(crate) fn swap(&self, change: impl Fn(&Version) -> Version) {
        let before = self.version.rcu(|now| Arc::new(change(now)));
        self.graveyard.bury(before);
    }

    /// Swaps like [`Store::swap`], unless `change` finds that there is nothing to change any more.
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

    pub(crate) fn take_generation(&self) -> Generation {
        self.generations.take()
    }

    pub(crate) fn replayed_generation(&self) -> Generation {
        Generation(self.replayed.load(Ordering::Relaxed))
    }

    /// The generation that a flush of cells up to that one claims for its keys. Recovery may have put cells
    /// there that were logged under later generations than their memtable's.
    pub(crate) fn claimed(&self, flushed: Generation) -> Generation {
        flushed.max(self.replayed_generation())
    }

    /// The highest generation of memory that may come from other stores, or that recovery found in the WAL.
    pub(crate) fn inherited(&self) -> Generation {
        Generation(self.inherited.load(Ordering::Relaxed)).max(self.replayed_generation())
    }

    /// Notes that it has memory of other stores, up to that generation.
    pub(crate) fn inherit(&self, newest: Generation) {
        self.inherited.fetch_max(newest.0, Ordering::Relaxed);
    }

    /// Whether a flush of some of its memory was asked for.
    pub(crate) fn flush_is_requested(&self) -> bool {
        let requested = self.work.lock().flush.requested;
        let version = self.version();
        let oldest = version.memory.immutable().map(Memtable::generation).min();
        let oldest = oldest
            .into_iter()
            .chain((!version.memory.active.is_empty()).then(|| version.memory.active.generation()))
            .min();
        oldest.is_some_and(|oldest| oldest <= requested)
    }

    /// Whether a flush of the active memtable was asked for.
    pub(crate) fn active_flush_is_requested(&self) -> bool {
        let active = self.version().memory.active.generation();
        active <= self.work.lock().flush.requested
    }

    /// Notes that recovery found this generation in the WAL.
    pub(crate) fn note_replayed(&self, taken: Generation) {
        self.replayed.fetch_max(taken.0, Ordering::Relaxed);
        self.generations.above(taken);
    }

    /// A new active memtable, to replace one that had so many bytes.
    pub(crate) fn new_active(&self, before: usize) -> Arc<ActiveMemtable> {
        self.active_expected.store(before as u64, Ordering::Relaxed);
        self.counted.seek_misses.store(0, Ordering::Relaxed);
        Arc::new(ActiveMemtable::new(self.take_generation(), self.memory_options()))
    }

    /// Notes that a scan visited so many cells that a range tombstone covers.
    pub(crate) fn note_dead_looks(&self, looks: u64) {
        self.counted.seek_misses.fetch_add(looks, Ordering::Relaxed);
    }

    /// Whether scans have spent more on covered cells than it would cost to freeze the active memtable and
    /// lay it out without them.
    #[inline]
    pub(crate) fn is_mostly_dead(&self, version: &Version) -> bool {
        let looks = self.counted.seek_misses.load(Ordering::Relaxed);
        let active = &version.memory.active;
        looks > DEAD_LOOKS_MIN
            && active.has_ranges()
            && looks > 4 * active.cells() as u64
            && version.memory.waiting.len() + version.memory.ranges.depth() < FROZEN_MAX
    }

    pub(crate) fn is_dropped(&self) -> bool {
        self.dropped.load(Ordering::Acquire)
    }

    pub(crate) fn set_dropped(&self, dropped: bool) {
        self.dropped.store(dropped, Ordering::Release);
    }

    /// Notes that the manifest no longer names it.
    pub(crate) fn mark_gone(&self) {
        self.gone.store(true, Ordering::Release);
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }

    /// Makes its writers wait for a moment, or lets them go on.
    pub(crate) fn set_held(&self, held: bool) {
        self.held.store(held, Ordering::Release);
    }

    #[inline]
    pub(crate) fn is_held(&self) -> bool {
        self.held.load(Ordering::Acquire)
    }

    /// Makes it refuse writes while it is being detached or copied, or take them again.
    pub(crate) fn set_leaving(&self, leaving: bool) {
        self.leaving.store(leaving, Ordering::Release);
    }

    pub(crate) fn is_leaving(&self) -> bool {
        self.leaving.load(Ordering::Acquire)
    }

    pub(crate) fn check_takes_writes(&self) -> Result<()> {
        if self.is_leaving() {
            let message = format!("family {} is being detached or copied and takes no writes", self.name);
            return Err(Error::new(ErrorKind::Busy, message));
        }
        self.check_not_dropped()
    }

    /// The sequence number up to which compactions may have dropped every cell of a key. So a search that
    /// finds no cell of a key may have missed writes up to here, but no later ones. Read it after loading the
    /// version that is searched.
    pub(crate) fn forgotten(&self) -> SeqNo {
        SeqNo(self.forgotten.load(Ordering::Acquire))
    }

    pub(crate) fn forget(&self, upto: SeqNo) {
        self.forgotten.fetch_max(upto.0, Ordering::AcqRel);
    }

    /// Refuses a read point from before the store was attached.
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

    /// Bytes of memory, as last counted.
    pub(crate) fn counted_memory(&self) -> u64 {
        self.counted.memory.load(Ordering::Relaxed)
    }

    /// The WAL file that it is listed under in `tally`; `None` while it has no memory.
    #[inline]
    pub(crate) fn front(&self) -> Option<LogFileId> {
        Some(LogFileId(self.counted.front.load(Ordering::Relaxed))).filter(|front| *front != LogFileId::MAX)
    }
}
