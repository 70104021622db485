//! Counts and bounds of a memtable's cells. One writer, readers without locks.

use super::sync::{AtomicU64, AtomicUsize, Ordering};
use crate::types::{CellRef, Kind, RangeTombstone, SeqNo, Timestamp};
use std::ops::RangeInclusive;

/// The smallest range with all noted numbers; empty while `low > high`. Only one thread writes at a time.
struct Span {
    low: AtomicU64,
    high: AtomicU64,
}

impl Span {
    fn new() -> Self {
        Self { low: AtomicU64::new(u64::MAX), high: AtomicU64::new(0) }
    }

    #[inline]
    fn note(&self, low: u64, high: u64) {
        if low < self.low.load(Ordering::Relaxed) {
            self.low.store(low, Ordering::Relaxed);
        }
        if high > self.high.load(Ordering::Relaxed) {
            self.high.store(high, Ordering::Relaxed);
        }
    }

    #[inline]
    fn get(&self) -> Option<(u64, u64)> {
        let (low, high) = (self.low.load(Ordering::Relaxed), self.high.load(Ordering::Relaxed));
        (low <= high).then_some((low, high))
    }
}

/// Counts and bounds. A cell is noted before it is published, so that whoever can read a cell sees it
/// covered.
pub(super) struct Stats {
    cells: AtomicUsize,
    user_bytes: AtomicUsize,
    seqs: Span,
    times: Span,
}

impl Stats {
    pub(super) fn new() -> Self {
        Self {
            cells: AtomicUsize::new(0),
            user_bytes: AtomicUsize::new(0),
            seqs: Span::new(),
            times: Span::new(),
        }
    }

    #[inline]
    pub(super) fn note(&self, cell: &CellRef<'_>) {
        // Not `fetch_add`: there is one writer, and a locked instruction costs more than the rest of this.
        self.cells.store(self.cells.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        self.user_bytes.store(self.user_bytes.load(Ordering::Relaxed) + cell.user_bytes(), Ordering::Relaxed);
        self.seqs.note(cell.seq.0, cell.seq.0);
        // A tombstone affects every timestamp up to its own.
        let from = if cell.kind == Kind::Tombstone { 0 } else { cell.timestamp.0 };
        self.times.note(from, cell.timestamp.0);
    }

    /// Adds the counts of another memtable.
    pub(super) fn absorb(&self, other: &Stats) {
        self.cells.store(self.cells() + other.cells(), Ordering::Relaxed);
        self.user_bytes.store(self.user_bytes() + other.user_bytes(), Ordering::Relaxed);
        if let Some((low, high)) = other.seqs.get() {
            self.seqs.note(low, high);
        }
        if let Some((low, high)) = other.times.get() {
            self.times.note(low, high);
        }
    }

    pub(super) fn note_range(&self, tombstone: &RangeTombstone) {
        self.seqs.note(tombstone.seq.0, tombstone.seq.0);
        self.times.note(tombstone.from.0, tombstone.to.0);
    }

    pub(super) fn cells(&self) -> usize {
        self.cells.load(Ordering::Relaxed)
    }

    pub(super) fn user_bytes(&self) -> usize {
        self.user_bytes.load(Ordering::Relaxed)
    }

    #[inline]
    pub(super) fn seqs(&self) -> Option<RangeInclusive<SeqNo>> {
        self.seqs.get().map(|(low, high)| SeqNo(low)..=SeqNo(high))
    }

    pub(super) fn times(&self) -> Option<RangeInclusive<Timestamp>> {
        self.times.get().map(|(low, high)| Timestamp(low)..=Timestamp(high))
    }
}
