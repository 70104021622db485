//! The active memtable, which takes a store's writes.
//!
//! Cells lie in an arena, with one index entry per key; the versions of a key form a chain from that entry,
//! ordered by timestamp and sequence number, newest first. A version newer than the chain's head costs one
//! store to the entry; the index grows with keys, not with updates.
//!
//! *One writer*: [`ActiveMemtable::writer`] is a guard, held for a whole group of inserts. It is never
//! contended, because the database inserts in the order of tickets, and readers never take it.
//!
//! *What a reader finds*: all cells inserted before its call began; of those inserted meanwhile, any subset.
//! The read point, loaded before, tells which of them count (I4).
#![expect(unsafe_code, reason = "cells and index are read without locks; the writer guard is the contract")]

use super::MemoryOptions;
use super::arena::{Arena, Chunk, ChunkRef, NOWHERE};
use super::cell::{self, CellAt};
use super::node::Keys;
use super::range_tombstones::Ranges;
use super::stats::Stats;
use super::sync::{AtomicU32, AtomicUsize, Ordering};
use super::tree::{Found, Leaf, To, Tree};
use crate::sync::{Mutex, MutexGuard};
use crate::types::{
    CellRef, Generation, KeyRange, RangeTombstone, SeqNo, Timestamp, Visit, Window, successor,
};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::{ControlFlow, RangeInclusive};
use std::sync::Arc;

/// The memtable that takes a store's writes; see the page above.
pub(crate) struct ActiveMemtable {
    generation: Generation,
    cells: Arena,
    tree: Tree,
    stats: Stats,
    ranges: Ranges,
    /// Bytes of the index, as the writer last noted them.
    index_bytes: AtomicUsize,
    writer: Mutex<Fingers>,
}

/// Shortcuts into long chains of versions, for the writer alone: without them an insert far from a chain's
/// head would walk to its position. A chain gets them when an insert first walks far; from then on no walk is
/// longer than a few steps.
#[derive(Default)]
struct Fingers {
    chains: BTreeMap<Box<[u8]>, Chain>,
    /// The number of fingers in all chains.
    count: usize,
}

/// A chain's fingers, in its order.
type Chain = BTreeMap<Reverse<(Timestamp, SeqNo)>, u32>;

/// The steps of a walk after which an insert gives its chain fingers, and the steps between two fingers.
const WALK_MAX: usize = 16;
/// The memory of a finger, about.
const FINGER_BYTES: usize = 48;

impl Fingers {
    /// The nearest finger before `order`, where a walk begins, if the key's chain has fingers.
    fn before(&self, key: &[u8], order: (Timestamp, SeqNo)) -> Option<u32> {
        let chain = if self.chains.is_empty() { None } else { self.chains.get(key) };
        chain?.range(..Reverse(order)).next_back().map(|(_, place)| *place)
    }

    fn set(&mut self, key: &[u8], at: CellAt<'_>, place: u32) {
        let chain = match self.chains.get_mut(key) {
            Some(chain) => chain,
            None => self.chains.entry(key.into()).or_default(),
        };
        let order = Reverse((at.timestamp(), at.seq()));
        self.count += usize::from(chain.insert(order, place).is_none());
    }

    fn bytes(&self) -> usize {
        self.count * FINGER_BYTES
    }
}

impl Keys for Arena {
    #[inline]
    unsafe fn key(&self, place: u32) -> &[u8] {
        // SAFETY: the caller's promise; what stands in the index was published with its cell.
        unsafe { CellAt::new(self.at(place)).key() }
    }
}

/// The right to insert. Readers go on meanwhile.
pub(crate) struct Writer<'a> {
    active: &'a ActiveMemtable,
    fingers: MutexGuard<'a, Fingers>,
}

/// `pub(crate)` methods that [`super::Memtable`] has too are described there.
impl ActiveMemtable {
    pub(crate) fn new(generation: Generation, options: MemoryOptions) -> Self {
        Self {
            generation,
            cells: Arena::new(options.chunks, options.spares.clone()),
            tree: Tree::new(options.chunks.of_index(), options.spares),
            stats: Stats::new(),
            ranges: Ranges::new(),
            index_bytes: AtomicUsize::new(0),
            writer: Mutex::new(Fingers::default()),
        }
    }

    pub(crate) fn generation(&self) -> Generation {
        self.generation
    }

    /// Prefetches the memory, beside this struct, that an insert touches.
    #[inline]
    pub(crate) fn prefetch_for_insert(&self, cell_bytes: usize) {
        self.tree.prefetch_root();
        self.cells.prefetch_room(cell_bytes);
    }

    /// Prefetches the index node that the key belongs to, which costs the search for it: worth it for a
    /// memtable without recent writes, whose node is likely to be cold.
    pub(crate) fn prefetch_leaf(&self, key: &[u8]) {
        self.tree.prefetch_leaf(key, &self.cells);
    }

    /// The right to insert, until dropped.
    pub(crate) fn writer(&self) -> Writer<'_> {
        Writer { active: self, fingers: self.writer.lock() }
    }

    #[inline]
    pub(crate) fn get(&self, key: &[u8], read: SeqNo, visit: &mut Visit<'_>) -> ControlFlow<()> {
        let Some(leaf) = self.tree.leaf(To::Key(key), &self.cells) else { return ControlFlow::Continue(()) };
        let (rank, true) = leaf.search(key, &self.cells) else { return ControlFlow::Continue(()) };
        let mut place = leaf.head(rank);
        while place != NOWHERE {
            // SAFETY: the place is of this memtable's index, or of a chain that began there.
            let at = unsafe { self.cell_at(place) };
            if at.seq() <= read {
                // SAFETY: as above.
                visit(&at.get(), &unsafe { self.held(place) })?;
            }
            place = at.next();
        }
        ControlFlow::Continue(())
    }

    /// The range tombstones, cut to the range. O(n).
    pub(crate) fn tombstones_within(&self, range: &KeyRange) -> Vec<RangeTombstone> {
        self.ranges.within(range)
    }

    /// The range tombstones over a key that are visible at read point `read`; `only` is the range of that key
    /// alone.
    pub(crate) fn tombstones_over(&self, only: &KeyRange, read: SeqNo) -> Vec<RangeTombstone> {
        self.ranges.over(only, read)
    }

    /// Adds the range tombstones that cover the key and are visible at read point `read` to the window, and
    /// narrows the window to the keys that the same ones cover.
    pub(crate) fn look_around(&self, key: &[u8], read: SeqNo, window: &mut Window) {
        self.ranges.look_around(key, read, window);
    }

    pub(crate) fn newest_over(&self, key: &[u8], timestamp: Timestamp, read: SeqNo) -> Option<SeqNo> {
        self.ranges.newest_over(key, timestamp, read)
    }

    pub(crate) fn has_newer_tombstone(&self, range: &KeyRange, seq: SeqNo) -> bool {
        self.ranges.has_newer(range, seq)
    }

    #[inline]
    pub(crate) fn has_ranges(&self) -> bool {
        self.ranges.len() > 0
    }

    /// Memory of cells and index, without the unused end of the newest chunks.
    pub(crate) fn bytes(&self) -> usize {
        self.cells.taken() + self.index_bytes.load(Ordering::Relaxed) + self.ranges.bytes()
    }

    pub(crate) fn user_bytes(&self) -> usize {
        self.stats.user_bytes()
    }

    pub(crate) fn cells(&self) -> usize {
        self.stats.cells()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.cells() == 0 && self.ranges.len() == 0
    }

    pub(crate) fn key_range(&self) -> Option<KeyRange> {
        let ends = self.tree.leaf(To::First, &self.cells).zip(self.tree.leaf(To::Last, &self.cells));
        let keys = ends.map(|(first, last)| {
            // SAFETY: both places are of this memtable's index.
            let (first, last) =
                unsafe { (self.cell_at(first.head(0)), self.cell_at(last.head(last.len() - 1))) };
            KeyRange { start: first.key().to_vec(), end: Some(successor(last.key())) }
        });
        match (keys, self.ranges.bounds()) {
            (Some(keys), Some(ranges)) => Some(keys.cover(&ranges)),
            (keys, ranges) => keys.or(ranges),
        }
    }

    pub(crate) fn seqs(&self) -> Option<RangeInclusive<SeqNo>> {
        self.stats.seqs()
    }

    /// Timestamps that this memtable can affect: a tombstone affects all up to its own, a range tombstone
    /// those in its bounds. A read of other timestamps may skip the memtable.
    pub(crate) fn times(&self) -> Option<RangeInclusive<Timestamp>> {
        self.stats.times()
    }

    #[inline]
    pub(super) fn leaf(&self, to: To<'_>) -> Option<Leaf<'_>> {
        self.tree.leaf(to, &self.cells)
    }

    pub(super) fn after<'a>(&'a self, leaf: &Leaf<'a>) -> Option<(Leaf<'a>, usize)> {
        self.tree.after(leaf, &self.cells)
    }

    pub(super) fn before<'a>(&'a self, leaf: &Leaf<'a>) -> Option<(Leaf<'a>, usize)> {
        self.tree.before(leaf, &self.cells)
    }

    #[inline]
    pub(super) fn keys(&self) -> &impl Keys {
        &self.cells
    }

    /// The cell at a place.
    ///
    /// # Safety
    /// The index or a chain of this memtable gave the place.
    #[inline]
    pub(super) unsafe fn cell_at(&self, place: u32) -> CellAt<'_> {
        debug_assert_ne!(place, NOWHERE);
        // SAFETY: places in index and chains were published, with their cells, by release stores and loaded
        // by acquire loads; the caller has one of them.
        unsafe { CellAt::new(self.cells.at(place)) }
    }

    /// The chunk that keeps the cell at a place alive.
    ///
    /// # Safety
    /// As for [`ActiveMemtable::cell_at`].
    #[inline]
    pub(super) unsafe fn held(&self, place: u32) -> ChunkRef<'_> {
        // SAFETY: as in `cell_at`.
        unsafe { self.cells.held(place) }
    }

    pub(super) fn arena(&self) -> &Arena {
        &self.cells
    }

    /// The chunks, for a flat memtable to share.
    pub(super) fn chunks(&self) -> Vec<Arc<Chunk>> {
        let _only = self.writer.lock();
        // SAFETY: no writer is active.
        unsafe { self.cells.chunks() }
    }
}

impl Writer<'_> {
    /// Inserts a cell. Returns `false` and changes nothing if a cell of that key, timestamp and sequence
    /// number exists already. O(log keys) and, for a version that is not its key's newest, O(log versions).
    pub(crate) fn insert(&mut self, cell: &CellRef<'_>) -> bool {
        let active = self.active;
        let cells = &active.cells;
        // SAFETY: this guard is the one writer of arena and tree; the cell made has the key looked for.
        let found = unsafe {
            active.tree.find_or_insert(cell.key, cells, || {
                active.stats.note(cell);
                cell::write(cells, cell, NOWHERE)
            })
        };
        let inserted = match found {
            Found::Inserted => true,
            Found::Key(head) => self.insert_version(head, cell),
        };
        // SAFETY: as above.
        let index_bytes = unsafe { active.tree.taken() } + self.fingers.bytes();
        active.index_bytes.store(index_bytes, Ordering::Relaxed);
        inserted
    }

    fn insert_version(&mut self, head: &AtomicU32, cell: &CellRef<'_>) -> bool {
        let active = self.active;
        let order = (cell.timestamp, cell.seq);
        let first = head.load(Ordering::Relaxed);
        let mut before: Option<CellAt<'_>> = None;
        let mut next = first;
        if let Some(finger) = self.fingers.before(cell.key, order) {
            // SAFETY: a finger is a place in a chain of this memtable.
            let at = unsafe { active.cell_at(finger) };
            (before, next) = (Some(at), at.next());
        }
        let mut walked = 0;
        while next != NOWHERE {
            // SAFETY: the place is of this memtable's index, or of a chain that began there.
            let at = unsafe { active.cell_at(next) };
            let other = (at.timestamp(), at.seq());
            if other == order {
                return false;
            }
            if other < order {
                break;
            }
            walked += 1;
            if walked % WALK_MAX == 0 {
                self.fingers.set(cell.key, at, next);
            }
            before = Some(at);
            next = at.next();
        }
        active.stats.note(cell);
        // SAFETY: this guard is the arena's one writer.
        let place = unsafe { cell::write(&active.cells, cell, next) };
        match before {
            // SAFETY: the cell at `place` is of this arena and was made with what follows `before`, and
            // nobody else inserts.
            Some(before) => unsafe { before.set_next(place) },
            None => head.store(place, Ordering::Release),
        }
        true
    }

    /// Adds a range tombstone.
    pub(crate) fn add_range_tombstone(&mut self, tombstone: RangeTombstone) {
        self.active.stats.note_range(&tombstone);
        self.active.ranges.add(tombstone);
    }
}
