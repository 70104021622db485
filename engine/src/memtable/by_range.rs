//! A store's immutable memtables that are laid out, held by key range.
//!
//! The ranges tile the key space. Each has a list of memtables, newest first, all flat, whose cells and
//! range tombstones lie in that range alone. A strategy that flushes one range at a time (RNG-2) has many
//! ranges; any other has one, which is Accordion's pipeline (ACC-2). A value of this type is never changed;
//! every change makes another one.
//!
//! *Laying out.* A memtable that is full is frozen and waits. A chore lays the oldest one that waits out into
//! the ranges that there are. Where the strategy flushes all memory at once the only range takes it as it is,
//! flat over the chunks that it was written to, so nothing is copied. Else each range gets a copy of its
//! cells, exactly sized, into which the newest memtables of the range are copied too as `memtables_to_join`
//! says: so lists are short, and flushing a range frees all its memory.
//!
//! *Order* (I3). Memtables are laid out oldest first, so all of what is laid out is older than what waits,
//! and in a range each memtable is newer than those behind it. Hot cells that a flush leaves in memory come
//! from the flush set, which is older than all ranges: they join the old end of theirs. Memtables of
//! different ranges share no key, so a read of a key visits one range. A scan over several visits *chains*:
//! the n-th chain is the n-th memtable of every range, one after the other, and is newer at every key than
//! the next chain.
//!
//! *Generations* (I1). A memtable has the generation of the one it was laid out from, the highest if it is of
//! several; `newest` is the highest that was laid out, in any range. A flush of all memory where there is one
//! range takes what waits along; any other flush begins only when no memtable waits. So whatever is not in
//! the flush set, as far as the flush's keys go, is in the active memtable, and the set has all cells of
//! generations up to its own. That is what the flush claims, for these keys alone. Hot cells that it leaves
//! in memory have a generation reserved above that and below the active memtable's; `newest` is at least that
//! from then on. Recovery puts cells of all generations that the WAL held into memtables of its own, so after
//! it a flush claims all of these generations, too: what was replayed is never in the active memtable, and so
//! in the set of the first flush of its keys.
//!
//! *The WAL.* A memtable that was laid out needs the WAL from where it did before; what was left out of it is
//! covered by cells that stand in the WAL behind that. Nothing but memory is touched here, so a crash at any
//! point loses nothing: the WAL replays.

use super::memtable::{Memtable, MemtableCursor};
use crate::error::Result;
use crate::types::{CellRef, Cursor, Generation, Heat, KeyRange, Pinned, TimeRange};
use std::ops::Range;
use std::sync::Arc;

/// A store's immutable memtables by key range; see the page above.
#[derive(Clone)]
pub(crate) struct MemtableRanges {
    /// The keys at which the ranges behind the first begin.
    bounds: Vec<Vec<u8>>,
    /// The memtables of every range, newest first: one list more than bounds.
    ranges: Vec<Vec<Memtable>>,
    /// The highest generation that was ever laid out: all older cells are in here, or were flushed.
    newest: Generation,
    bytes: u64,
    /// Bytes of the cells that flushes left in memory.
    hot_bytes: u64,
    /// The number of memtables in the range that has most.
    depth: usize,
    /// Whether any memtable has range tombstones.
    has_tombstones: bool,
}

impl Default for MemtableRanges {
    fn default() -> Self {
        Self::one(Vec::new(), Generation::ZERO)
    }
}

impl MemtableRanges {
    pub(crate) fn new(bounds: Vec<Vec<u8>>, ranges: Vec<Vec<Memtable>>, newest: Generation) -> Self {
        debug_assert_eq!(bounds.len() + 1, ranges.len());
        debug_assert!(bounds.is_sorted());
        let all = || ranges.iter().flatten();
        let bytes = all().map(|memtable| memtable.bytes() as u64).sum();
        let hot_bytes = all().filter_map(Memtable::as_flat).map(|flat| flat.kept_bytes() as u64).sum();
        let depth = ranges.iter().map(Vec::len).max().unwrap_or(0);
        let has_tombstones = all().any(Memtable::has_ranges);
        Self { bounds, newest, bytes, hot_bytes, depth, has_tombstones, ranges }
    }

    /// All keys as one range, with these memtables, newest first.
    pub(crate) fn one(memtables: Vec<Memtable>, newest: Generation) -> Self {
        Self::new(Vec::new(), vec![memtables], newest)
    }

    /// A copy of the ranges, with nothing in them.
    pub(crate) fn emptied(&self) -> Self {
        self.emptied_into(self.bounds.clone())
    }

    /// Ranges with nothing in them, which begin at these keys; the first one begins before all.
    pub(crate) fn emptied_into(&self, bounds: Vec<Vec<u8>>) -> Self {
        let ranges = vec![Vec::new(); bounds.len() + 1];
        Self::new(bounds, ranges, self.newest)
    }

    /// A copy of the ranges, with what the memtables have of these keys.
    pub(crate) fn parts(&self, keys: &KeyRange) -> Self {
        let part = |memtables: &Vec<Memtable>| memtables.iter().filter_map(|one| one.part(keys)).collect();
        Self::new(self.bounds.clone(), self.ranges.iter().map(part).collect(), self.newest)
    }

    /// Whether all keys are one range.
    pub(crate) fn is_one(&self) -> bool {
        self.bounds.is_empty()
    }

    /// Whether a memtable that waits may stand in front of all that is here, as in one range.
    pub(crate) fn counts_as_one(&self) -> bool {
        self.is_one() || self.is_empty()
    }

    pub(crate) fn bounds(&self) -> &[Vec<u8>] {
        &self.bounds
    }

    /// The highest generation that was ever laid out.
    pub(crate) fn newest(&self) -> Generation {
        self.newest
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.depth == 0
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Bytes of the cells that flushes left in memory.
    pub(crate) fn hot_bytes(&self) -> u64 {
        self.hot_bytes
    }

    /// The number of memtables in the range that has most.
    pub(crate) fn depth(&self) -> usize {
        self.depth
    }

    /// The number of the range that holds the key. O(log n).
    pub(crate) fn find(&self, key: &[u8]) -> usize {
        self.bounds.partition_point(|bound| bound.as_slice() <= key)
    }

    /// The memtables that may hold the key, newest first.
    #[inline]
    pub(crate) fn at(&self, key: &[u8]) -> &[Memtable] {
        if self.is_empty() { &[] } else { &self.ranges[self.find(key)] }
    }

    /// The numbers of the ranges that share keys with this one. O(log n).
    pub(crate) fn within(&self, range: &KeyRange) -> Range<usize> {
        let to = range
            .end
            .as_deref()
            .map_or(self.bounds.len(), |end| self.bounds.partition_point(|bound| bound.as_slice() < end));
        let from = self.find(&range.start);
        from..to.max(from) + 1
    }

    /// All ranges with their memtables.
    pub(crate) fn ranges(&self) -> impl Iterator<Item = (KeyRange, &[Memtable])> {
        self.ranges.iter().enumerate().map(|(number, memtables)| (self.range(number), &memtables[..]))
    }

    /// The memtables of the range of that number, newest first.
    pub(crate) fn memtables_of(&self, number: usize) -> &[Memtable] {
        &self.ranges[number]
    }

    /// The range of that number.
    pub(crate) fn range(&self, number: usize) -> KeyRange {
        let start = number.checked_sub(1).map_or(Vec::new(), |before| self.bounds[before].clone());
        KeyRange { start, end: self.bounds.get(number).cloned() }
    }

    /// All memtables; those that share keys newest first.
    pub(crate) fn memtables(&self) -> impl Iterator<Item = &Memtable> {
        self.ranges.iter().flatten()
    }

    /// Bytes of the range that has most.
    pub(crate) fn largest(&self) -> u64 {
        let bytes = |memtables: &Vec<Memtable>| memtables.iter().map(|one| one.bytes() as u64).sum();
        self.ranges.iter().map(bytes).max().unwrap_or(0)
    }

    /// Whether a memtable has range tombstones.
    pub(crate) fn has_tombstones(&self) -> bool {
        self.has_tombstones
    }

    /// The memtables with range tombstones that may concern the keys.
    pub(crate) fn with_tombstones(&self, range: &KeyRange) -> impl Iterator<Item = &Memtable> {
        let ranges = if self.has_tombstones { self.within(range) } else { 0..0 };
        self.ranges[ranges].iter().flatten().filter(|memtable| memtable.has_ranges())
    }

    /// A copy with other memtables in that range.
    pub(crate) fn with(&self, number: usize, memtables: Vec<Memtable>) -> MemtableRanges {
        let mut ranges = self.ranges.clone();
        ranges[number] = memtables;
        MemtableRanges::new(self.bounds.clone(), ranges, self.newest)
    }

    /// A copy with a memtable that is newer than all: as it is in the only range. `None`: none of it is left.
    pub(crate) fn with_newest(&self, memtable: Option<Memtable>, generation: Generation) -> MemtableRanges {
        assert!(self.is_one(), "several ranges are divided");
        let memtables = memtable.into_iter().chain(self.ranges[0].iter().cloned()).collect();
        MemtableRanges::one(memtables, self.newest.max(generation))
    }

    /// A copy with the hot cells that a flush left in memory, which are older than all: at the old end of the
    /// only range. (Hot cells stay only where there is one, and no other bounds are chosen during a flush.)
    pub(crate) fn with_hot_cells(&self, hot: Memtable) -> MemtableRanges {
        assert!(self.is_one(), "hot cells stay where all keys are one range");
        let newest = self.newest.max(hot.generation());
        MemtableRanges::one(self.ranges[0].iter().cloned().chain([hot]).collect(), newest)
    }

    /// Cursors over all memtables that may concern the keys at those timestamps, newest first.
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

/// A walk over one memtable of every range, the one of a certain age, in key order.
pub(crate) struct Chain {
    all: Arc<MemtableRanges>,
    depth: usize,
    /// The timestamps that are read; memtables without any of them are left out.
    times: TimeRange,
    /// The range, and a valid cursor in its memtable.
    at: Option<(usize, MemtableCursor)>,
}

impl Chain {
    fn cursor(&self, range: usize) -> Option<MemtableCursor> {
        let memtable = self.all.ranges[range].get(self.depth)?;
        memtable.speaks_of(self.times).then(|| memtable.cursor())
    }

    /// Moves to where `seek` leads in that range's memtable; returns whether there is a cell.
    #[inline]
    fn enter(&mut self, range: usize, seek: impl FnOnce(&mut MemtableCursor) -> Result<()>) -> Result<bool> {
        self.at = None;
        if let Some(mut cursor) = self.cursor(range) {
            seek(&mut cursor)?;
            if cursor.valid() {
                self.at = Some((range, cursor));
            }
        }
        Ok(self.at.is_some())
    }

    /// Moves to the first cell in that range or behind.
    fn first_from(&mut self, from: usize) -> Result<()> {
        self.at = None;
        for range in from..self.all.ranges.len() {
            if self.enter(range, |cursor| cursor.seek(&[]))? {
                break;
            }
        }
        Ok(())
    }

    /// Moves to the last cell before that range.
    fn last_before(&mut self, range: usize) -> Result<()> {
        self.at = None;
        for range in (0..range).rev() {
            if self.enter(range, |cursor| cursor.seek_before(None))? {
                break;
            }
        }
        Ok(())
    }
}

impl Cursor for Chain {
    fn seek(&mut self, key: &[u8]) -> Result<()> {
        let range = self.all.find(key);
        if self.enter(range, |cursor| cursor.seek(key))? { Ok(()) } else { self.first_from(range + 1) }
    }

    fn seek_before(&mut self, key: Option<&[u8]>) -> Result<()> {
        let Some(key) = key else { return self.last_before(self.all.ranges.len()) };
        let range = self.all.find(key);
        if self.enter(range, |cursor| cursor.seek_before(Some(key)))? {
            return Ok(());
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
