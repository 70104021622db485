//! The memory of a store: its memtables, from the active one to those that are being flushed (invariant I3).

use crate::memtable::{ActiveMemtable, Memtable, MemtableRanges};
use crate::shape::{Run, Shape};
use crate::types::{Generation, KeyRange, LogFileId};
use std::sync::Arc;

/// A store's memtables, in the order in which a reader visits them.
#[derive(Clone)]
pub(crate) struct Memtables {
    /// The memtable that takes the writes.
    pub(crate) active: Memtable,
    /// Immutable memtables that are not laid out yet, newest first.
    pub(crate) waiting: Vec<Memtable>,
    /// Immutable memtables that are laid out, older than `waiting`.
    pub(crate) ranges: Arc<MemtableRanges>,
    /// The flush set, older than both.
    pub(crate) flushing: FlushSet,
}

crate::types::sent!(Memtables { active, waiting, ranges, flushing });

/// The memtables being flushed: those of one range of keys, or all that there were.
#[derive(Clone, Default)]
pub(crate) struct FlushSet {
    pub(crate) ranges: Arc<MemtableRanges>,
    /// The keys that are still to be flushed. Cells of others are in SSTables already, or left in memory as
    /// hot.
    pub(crate) range: KeyRange,
    /// The generation up to which no cell of its keys is in memory elsewhere.
    pub(crate) generation: Generation,
    /// The generation for the cells that the flush leaves in memory: above those of its memtables, below that
    /// of any newer one (invariant I1).
    pub(crate) reserved: Generation,
    /// The run of L0 that it becomes.
    pub(crate) run: u64,
}

/// The run of L0 that memory up to that generation becomes. As a rule it has that number, as newer runs come
/// after it. Where the store has taken in a neighbour whose newer memory was flushed before, it is the one
/// after the newest run.
pub(crate) fn flushed_run(shape: &Shape, generation: Generation, range: &KeyRange) -> u64 {
    let level0 = shape.levels.first().map_or(&[][..], |level| &level.runs);
    let is_over =
        |run: &Run| run.id >= generation.0 && run.tables().iter().any(|table| table.overlaps(range));
    match level0.first() {
        Some(newest) if level0.iter().any(is_over) => newest.id + 1,
        _ => generation.0,
    }
}

impl FlushSet {
    pub(crate) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// The memtables that may hold the key, newest first, where it is still to be flushed.
    #[inline]
    pub(crate) fn at(&self, key: &[u8]) -> &[Memtable] {
        if self.is_empty() || !self.range.contains(key) { &[] } else { self.ranges.at(key) }
    }

    /// All its memtables; those that share keys newest first.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Memtable> {
        self.ranges.memtables()
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.ranges.bytes()
    }
}

impl Memtables {
    /// A store's first memtable.
    pub(crate) fn new(active: Memtable) -> Self {
        Self { active, waiting: Vec::new(), ranges: Arc::default(), flushing: FlushSet::default() }
    }

    /// These with the active memtable frozen (left out if empty) and `active` in its place.
    pub(crate) fn with_fresh_active(&self, active: Arc<ActiveMemtable>) -> Memtables {
        let frozen = (!self.active.is_empty()).then(|| self.active.clone());
        let waiting = frozen.into_iter().chain(self.waiting.iter().cloned()).collect();
        Memtables { active: active.into(), waiting, ..self.clone() }
    }

    /// The immutable memtables that are not being flushed; those that share keys newest first.
    pub(crate) fn unflushed(&self) -> impl Iterator<Item = &Memtable> {
        self.waiting.iter().chain(self.ranges.memtables())
    }

    /// The immutable memtables; those that share keys newest first, the flush set last.
    pub(crate) fn immutable(&self) -> impl Iterator<Item = &Memtable> {
        self.unflushed().chain(self.flushing.all())
    }

    /// All memtables, the active one first.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Memtable> {
        std::iter::once(&self.active).chain(self.immutable())
    }

    /// The memtables that may hold the key, newest first.
    #[inline]
    pub(crate) fn at<'a>(&'a self, key: &[u8]) -> impl Iterator<Item = &'a Memtable> {
        let immutable = self.waiting.iter().chain(self.ranges.at(key)).chain(self.flushing.at(key));
        std::iter::once(&self.active).chain(immutable)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.active.is_empty() && self.immutable().next().is_none()
    }

    /// The newest generation with cells in memory.
    pub(crate) fn newest_generation(&self) -> Generation {
        let written = self.all().filter(|memtable| !memtable.is_empty());
        written.map(Memtable::generation).max().unwrap_or_default()
    }

    /// Bytes of memory they take.
    pub(crate) fn bytes(&self) -> u64 {
        self.unflushed_bytes() + self.flushing.bytes()
    }

    /// Bytes that a flush of all memory would take if it began now.
    pub(crate) fn unflushed_bytes(&self) -> u64 {
        let waiting: u64 = self.waiting.iter().map(|memtable| memtable.bytes() as u64).sum();
        self.active.bytes() as u64 + waiting + self.ranges.bytes()
    }

    /// The oldest WAL file that holds cells of theirs; `None` when there is none.
    pub(crate) fn log_front(&self) -> Option<LogFileId> {
        let flushing = self.flushing.all().filter_map(Memtable::log_front);
        flushing.chain(self.wal_front_without_flush()).min()
    }

    /// The oldest WAL file that holds cells of theirs, the flush set apart.
    pub(crate) fn wal_front_without_flush(&self) -> Option<LogFileId> {
        self.unflushed().filter_map(Memtable::log_front).chain(self.active.log_front()).min()
    }

    /// Whether newer memory may join the flush set: one that a failed flush left with all its keys, where all
    /// keys are one range. True too where there is no flush set.
    pub(crate) fn may_join_flush(&self) -> bool {
        let FlushSet { ranges, range, .. } = &self.flushing;
        self.flushing.is_empty() || (*range == KeyRange::all() && ranges.is_one() && self.ranges.is_one())
    }
}
