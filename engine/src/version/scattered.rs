//! A store's memory held apart by key range, for a strategy that flushes one range at a time (RNG-2).
//!
//! The ranges tile the key space. Each has a short list of *pieces*, newest first: flat memtables whose cells
//! and range tombstones lie in that range alone. So flushing a range frees all memory of its pieces. A value
//! of this type is never changed; every change makes another one.
//!
//! *Order* (invariant I3). Frozen memtables are scattered oldest first, so in a store all scattered cells are
//! older than those in frozen memtables, and within a range each piece is newer than those behind it. Pieces
//! of different ranges share no key, so a reader goes through the pieces of its key's range only, and a scan
//! through *chains*: the n-th chain is the n-th piece of every range, one after the other, and is newer at
//! every key than the next chain.

use crate::error::Result;
use crate::memtable::{Memtable, SegmentCursor};
use crate::types::{CellRef, Cursor, Generation, Heat, KeyRange, Pinned, TimeRange};
use std::ops::Range;
use std::sync::Arc;

/// A store's memory held apart by key range; see the page above.
#[derive(Clone)]
pub(crate) struct Scattered {
    /// The keys at which the ranges behind the first begin.
    bounds: Vec<Vec<u8>>,
    /// The pieces of every range, newest first: one list more than bounds.
    ranges: Vec<Vec<Memtable>>,
    /// The generation up to which memory is in pieces only.
    newest: Generation,
    bytes: u64,
    /// The number of pieces in the range that has most.
    depth: usize,
    /// Whether any piece has range tombstones.
    has_ranges: bool,
}

impl Default for Scattered {
    fn default() -> Self {
        Self::new(Vec::new(), vec![Vec::new()], Generation::ZERO)
    }
}

impl Scattered {
    pub(crate) fn new(bounds: Vec<Vec<u8>>, ranges: Vec<Vec<Memtable>>, newest: Generation) -> Self {
        debug_assert_eq!(bounds.len() + 1, ranges.len());
        debug_assert!(bounds.is_sorted());
        let pieces = || ranges.iter().flatten();
        let bytes = pieces().map(|piece| piece.bytes() as u64).sum();
        let depth = ranges.iter().map(Vec::len).max().unwrap_or(0);
        let has_ranges = pieces().any(Memtable::has_ranges);
        Self { bounds, newest, bytes, depth, has_ranges, ranges }
    }

    pub(crate) fn bounds(&self) -> &[Vec<u8>] {
        &self.bounds
    }

    /// The highest generation that was ever scattered: all cells up to it are in pieces, or were flushed.
    pub(crate) fn newest(&self) -> Generation {
        self.newest
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.depth == 0
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The number of the range that holds the key. O(log n).
    pub(crate) fn find(&self, key: &[u8]) -> usize {
        self.bounds.partition_point(|bound| bound.as_slice() <= key)
    }

    /// The pieces that may hold the key, newest first.
    #[inline]
    pub(crate) fn at(&self, key: &[u8]) -> &[Memtable] {
        if self.is_empty() { &[] } else { &self.ranges[self.find(key)] }
    }

    /// Numbers of the ranges that share keys with this one. O(log n).
    pub(crate) fn within(&self, range: &KeyRange) -> Range<usize> {
        let to = range
            .end
            .as_deref()
            .map_or(self.bounds.len(), |end| self.bounds.partition_point(|bound| bound.as_slice() < end));
        let from = self.find(&range.start);
        from..to.max(from) + 1
    }

    /// All ranges with their pieces.
    pub(crate) fn ranges(&self) -> impl Iterator<Item = (KeyRange, &[Memtable])> {
        self.ranges.iter().enumerate().map(|(at, pieces)| (self.range(at), &pieces[..]))
    }

    /// The pieces of every range.
    pub(crate) fn pieces_by_range(&self) -> impl Iterator<Item = &[Memtable]> {
        self.ranges.iter().map(Vec::as_slice)
    }

    /// The pieces of the range of that number, newest first.
    pub(crate) fn pieces_of(&self, at: usize) -> &[Memtable] {
        &self.ranges[at]
    }

    pub(crate) fn range(&self, at: usize) -> KeyRange {
        let start = at.checked_sub(1).map_or(Vec::new(), |before| self.bounds[before].clone());
        KeyRange { start, end: self.bounds.get(at).cloned() }
    }

    /// All pieces.
    pub(crate) fn pieces(&self) -> impl Iterator<Item = &Memtable> {
        self.ranges.iter().flatten()
    }

    /// Bytes of the range that has most.
    pub(crate) fn largest(&self) -> u64 {
        let bytes = |pieces: &Vec<Memtable>| pieces.iter().map(|piece| piece.bytes() as u64).sum();
        self.ranges.iter().map(bytes).max().unwrap_or(0)
    }

    /// Whether a piece has range tombstones.
    pub(crate) fn has_ranges(&self) -> bool {
        self.has_ranges
    }

    /// The pieces with range tombstones that may concern the keys.
    pub(crate) fn with_ranges(&self, range: &KeyRange) -> impl Iterator<Item = &Memtable> {
        let ranges = if self.has_ranges { self.within(range) } else { 0..0 };
        self.ranges[ranges].iter().flatten().filter(|piece| piece.has_ranges())
    }

    /// The pieces of that range, and the rest without them.
    pub(crate) fn without(&self, at: usize) -> (Vec<Memtable>, Scattered) {
        (self.ranges[at].clone(), self.with(at, Vec::new()))
    }

    /// A copy with other pieces in that range.
    pub(crate) fn with(&self, at: usize, pieces: Vec<Memtable>) -> Scattered {
        let mut ranges = self.ranges.clone();
        ranges[at] = pieces;
        Scattered::new(self.bounds.clone(), ranges, self.newest)
    }

    /// Cursors over all pieces that may concern the keys at those timestamps, newest first.
    pub(crate) fn chains(
        self: &Arc<Self>,
        range: &KeyRange,
        times: TimeRange,
    ) -> impl Iterator<Item = Chain> + use<'_> {
        let depth = match self.is_empty() {
            true => 0,
            false => self.ranges[self.within(range)].iter().map(Vec::len).max().unwrap_or(0),
        };
        (0..depth).map(move |depth| Chain { all: self.clone(), depth, times, at: None })
    }
}

/// Walks over one piece of every range, the one of a certain age, in key order.
pub(crate) struct Chain {
    all: Arc<Scattered>,
    depth: usize,
    /// The timestamps that are read; pieces without any of them are left out.
    times: TimeRange,
    /// The range, and a valid cursor in its piece.
    at: Option<(usize, SegmentCursor)>,
}

impl Chain {
    fn cursor(&self, range: usize) -> Option<SegmentCursor> {
        let piece = self.all.ranges[range].get(self.depth)?;
        piece.speaks_of(self.times).then(|| piece.cursor())
    }

    /// Moves to the first cell in that range or behind.
    fn first_from(&mut self, from: usize) -> Result<()> {
        self.at = None;
        for range in from..self.all.ranges.len() {
            if let Some(mut cursor) = self.cursor(range) {
                cursor.seek(&[])?;
                if cursor.valid() {
                    self.at = Some((range, cursor));
                    break;
                }
            }
        }
        Ok(())
    }

    /// Moves to the last cell before that range.
    fn last_before(&mut self, range: usize) -> Result<()> {
        self.at = None;
        for range in (0..range).rev() {
            if let Some(mut cursor) = self.cursor(range) {
                cursor.seek_before(None)?;
                if cursor.valid() {
                    self.at = Some((range, cursor));
                    break;
                }
            }
        }
        Ok(())
    }
}

impl Cursor for Chain {
    fn seek(&mut self, key: &[u8]) -> Result<()> {
        let range = self.all.find(key);
        if let Some(mut cursor) = self.cursor(range) {
            cursor.seek(key)?;
            if cursor.valid() {
                self.at = Some((range, cursor));
                return Ok(());
            }
        }
        self.first_from(range + 1)
    }

    fn seek_before(&mut self, key: Option<&[u8]>) -> Result<()> {
        let Some(key) = key else { return self.last_before(self.all.ranges.len()) };
        let range = self.all.find(key);
        if let Some(mut cursor) = self.cursor(range) {
            cursor.seek_before(Some(key))?;
            if cursor.valid() {
                self.at = Some((range, cursor));
                return Ok(());
            }
        }
        self.last_before(range)
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        let (range, cursor) = self.at.as_mut().expect("next on a valid cursor");
        let range = *range;
        cursor.next()?;
        if cursor.valid() { Ok(()) } else { self.first_from(range + 1) }
    }

    fn prev(&mut self) -> Result<()> {
        let (range, cursor) = self.at.as_mut().expect("prev on a valid cursor");
        let range = *range;
        cursor.prev()?;
        if cursor.valid() { Ok(()) } else { self.last_before(range) }
    }

    #[inline]
    fn valid(&self) -> bool {
        self.at.is_some()
    }

    #[inline]
    fn cell(&self) -> CellRef<'_> {
        self.at.as_ref().expect("cell of a valid cursor").1.cell()
    }

    #[inline]
    fn key(&self) -> &[u8] {
        self.at.as_ref().expect("key of a valid cursor").1.key()
    }

    fn pin_value(&self, into: &mut Pinned) -> Result<()> {
        self.at.as_ref().expect("value of a valid cursor").1.pin_value(into)
    }

    fn heat(&self) -> Heat {
        self.at.as_ref().expect("heat of a valid cursor").1.heat()
    }
}
