//! A flat memtable: the layout of an immutable memtable.
//!
//! Two arrays in cell order, with one entry per cell: eight bytes of key after the prefix that all keys of
//! the memtable share, and the cell's place in the chunks, which are those of the active memtable that it was
//! made from. 12 bytes per cell; nothing else grows with the number of cells, except the update counts of
//! keys with more than one.
//!
//! The chunk list is the memtable's: an entry's place names a chunk by its position there. To merge the
//! indices of several memtables, the lists are concatenated and the chunk numbers raised (ACC-4).
#![expect(unsafe_code, reason = "cells are read where the active memtable put them")]

use super::active::ActiveMemtable;
use super::arena::{Chunk, ChunkAt, ChunkRef, NOWHERE, Places};
use super::cell::{CellAt, FETCHED_AHEAD};
use super::flatten::{Judge, Visibility};
use super::stats::Stats;
use super::tree::To;
use crate::error::Result;
use crate::types::{
    CellRef, Cursor, Fragments, Generation, Heat, KeyRange, Pinned, RangeTombstone, SeqNo, Sketch, Timestamp,
    Visit, Window, common_prefix, hash, prefix64, successor,
};
use std::cmp::Ordering;
use std::ops::{ControlFlow, Range, RangeInclusive};
use std::sync::Arc;

/// An immutable memtable, indexed by sorted arrays; see the page above.
pub(crate) struct FlatMemtable {
    generation: Generation,
    /// The prefix that all keys share and `prefixes` leave out.
    pub(super) shared: Vec<u8>,
    /// Eight bytes of each entry's key.
    pub(super) prefixes: Box<[u64]>,
    places: Box<[u32]>,
    chunks: Chunks,
    /// Update counts: (entry of a key's first cell, its updates) for keys with more than one, ascending.
    pub(super) updates: Box<[(u32, u32)]>,
    /// How many flushes left each entry's cell in memory; empty if there are no hot cells.
    pub(super) kept: Box<[u8]>,
    /// The sketch of distinct keys; absent where it would take more than the cells.
    sketch: Option<Sketch>,
    pub(super) stats: Stats,
    fragments: Arc<Fragments>,
    key_range: Option<KeyRange>,
    bytes: usize,
    dead: Dead,
    kept_bytes: usize,
}

/// Cells in a memtable's chunks that nobody sees and its index does not have, and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Dead {
    pub(crate) cells: usize,
    pub(crate) bytes: usize,
}

impl Dead {
    pub(super) fn note(&mut self, cell: &CellRef<'_>) {
        self.add(Dead { cells: 1, bytes: super::cell::room(cell) });
    }

    pub(super) fn add(&mut self, other: Dead) {
        self.cells += other.cells;
        self.bytes += other.bytes;
    }
}

/// The parts of a flat memtable.
pub(super) struct Parts {
    pub(super) generation: Generation,
    /// The prefix of all keys.
    pub(super) shared: Vec<u8>,
    /// Eight bytes of key after `shared`, and the place, of every cell in order.
    pub(super) prefixes: Vec<u64>,
    pub(super) places: Vec<u32>,
    /// How places address the chunks, and the chunks.
    pub(super) addressing: Places,
    pub(super) chunks: Vec<Arc<Chunk>>,
    /// Update counts and hot counts, as in [`FlatMemtable`].
    pub(super) updates: Vec<(u32, u32)>,
    pub(super) kept: Vec<u8>,
    pub(super) sketch: Option<Sketch>,
    pub(super) stats: Stats,
    pub(super) fragments: Arc<Fragments>,
    pub(super) dead: Dead,
    /// Bytes of hot cells that flushes left in memory, at most.
    pub(super) kept_bytes: usize,
}

/// Chunks and how places address them.
struct Chunks {
    places: Places,
    at: Box<[ChunkAt]>,
    /// The owners of the chunks in `at`.
    held: Vec<Arc<Chunk>>,
}

// SAFETY: `at` points to chunks that `held` keeps alive; their cells' bytes are never written again, except
// the links of chains, which are atomic and which nothing here follows.
unsafe impl Send for Chunks {}
// SAFETY: as above.
unsafe impl Sync for Chunks {}

/// The range tombstones of some memtables, cut to the range, without what no reader needs.
pub(super) fn fragments_of(
    flats: &[Arc<FlatMemtable>],
    range: &KeyRange,
    keep: &Visibility<'_>,
) -> Arc<Fragments> {
    let all: Vec<Arc<Fragments>> = flats.iter().map(|flat| flat.fragments()).collect();
    keep.reduced(all.iter().flat_map(|fragments| fragments.tombstones_within(range)))
}

/// `pub(crate)` methods that [`super::Memtable`] has too are described there.
impl FlatMemtable {
    /// Flattens an immutable memtable, into which nobody inserts any more. Its cells stay where they are.
    /// O(cells), one touch of each.
    pub(crate) fn from_active(active: &Arc<ActiveMemtable>, keep: &Visibility<'_>) -> FlatMemtable {
        let mut build = Build::default();
        let stats = Stats::new();
        let tombstones = active.tombstones_within(&KeyRange::all());
        tombstones.iter().for_each(|tombstone| stats.note_range(tombstone));
        let fragments = keep.reduced(tombstones);
        let mut judge = Judge::new(*keep, active.has_ranges()).under(fragments.clone());
        let mut leaf = active.leaf(To::First);
        let mut ends: Option<(u32, u32)> = None;
        while let Some(here) = leaf {
            for rank in 0..here.len() {
                let head = here.head(rank);
                ends = Some((ends.map_or(head, |(first, _)| first), head));
                // SAFETY: the leaf is of the memtable's index.
                unsafe { build.key(active, head, &mut judge, &stats) };
            }
            leaf = active.after(&here).map(|(next, _)| next);
        }
        // SAFETY: both places are of the memtable's index.
        let key_at = |place| unsafe { active.cell_at(place) }.key();
        let shared = ends.map_or(0, |(first, last)| common_prefix(key_at(first), key_at(last)));
        FlatMemtable::assemble(Parts {
            generation: active.generation(),
            shared: ends.map_or(Vec::new(), |(first, _)| key_at(first)[..shared].to_vec()),
            prefixes: build.places.iter().map(|&place| prefix64(&key_at(place)[shared..])).collect(),
            places: build.places,
            addressing: active.arena().places(),
            chunks: active.chunks(),
            updates: build.updates,
            kept: Vec::new(),
            sketch: Some(build.sketch),
            stats,
            fragments,
            dead: build.dead,
            kept_bytes: 0,
        })
    }

    /// Puts the parts together, which the caller promises are consistent.
    pub(super) fn assemble(parts: Parts) -> FlatMemtable {
        let Parts { generation, shared, prefixes, places, addressing, chunks, updates, .. } = parts;
        let fragments = parts.fragments;
        let chunk_bytes: usize = chunks.iter().map(|chunk| chunk.bytes()).sum();
        let arrays = places.len() * (size_of::<u64>() + size_of::<u32>())
            + updates.len() * size_of::<(u32, u32)>()
            + parts.kept.len()
            + parts.sketch.as_ref().map_or(0, |_| Sketch::BYTES);
        // Rare, so an estimate will do.
        let ranges: usize = fragments.iter().map(|f| f.range.start.len() + 24 * f.covers.len() + 96).sum();
        let mut flat = FlatMemtable {
            generation,
            shared,
            prefixes: prefixes.into(),
            places: places.into(),
            chunks: Chunks { places: addressing, at: chunks.iter().map(ChunkAt::of).collect(), held: chunks },
            updates: updates.into(),
            kept: parts.kept.into(),
            sketch: parts.sketch,
            stats: parts.stats,
            key_range: fragments.bounds(),
            fragments,
            bytes: chunk_bytes + arrays + ranges,
            dead: parts.dead,
            kept_bytes: parts.kept_bytes,
        };
        if let Some((first, last)) = flat.ends() {
            let keys = KeyRange { start: first.to_vec(), end: Some(successor(last)) };
            flat.key_range = Some(flat.key_range.map_or(keys.clone(), |ranges| keys.cover(&ranges)));
        }
        flat
    }

    /// The keys of the first and the last cell.
    pub(crate) fn ends(&self) -> Option<(&[u8], &[u8])> {
        let last = self.places.len().checked_sub(1)?;
        Some((self.cell_at(0).key(), self.cell_at(last).key()))
    }

    pub(crate) fn generation(&self) -> Generation {
        self.generation
    }

    pub(crate) fn get(&self, key: &[u8], read: SeqNo, visit: &mut Visit<'_>) -> ControlFlow<()> {
        if self.all_newer_than(read) {
            return ControlFlow::Continue(());
        }
        let from = self.first_at_or_after(key);
        for entry in from..self.places.len() {
            // Another key: nearly always decided by the prefix, without touching the cell.
            if self.prefixes[entry] != self.prefixes[from] {
                break;
            }
            let at = self.cell_at(entry);
            if at.key() != key {
                break;
            }
            if at.seq() <= read {
                visit(&at.get(), &self.held(entry))?;
            }
        }
        ControlFlow::Continue(())
    }

    /// Whether it may have a cell or range tombstone over a key of the range that a reader at `read` sees
    /// (ACC-10).
    pub(crate) fn concerns(&self, range: &KeyRange, read: SeqNo) -> bool {
        !self.all_newer_than(read) && self.key_range.as_ref().is_some_and(|mine| mine.overlaps(range))
    }

    fn all_newer_than(&self, read: SeqNo) -> bool {
        self.stats.seqs().is_none_or(|seqs| *seqs.start() > read)
    }

    /// The range tombstones, cut for searching.
    pub(crate) fn fragments(&self) -> Arc<Fragments> {
        self.fragments.clone()
    }

    #[inline]
    pub(crate) fn has_ranges(&self) -> bool {
        !self.fragments.is_empty()
    }

    /// Its memory: whole chunks, whether used or not, and the index.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Key and value bytes of the cells in the index.
    pub(crate) fn user_bytes(&self) -> usize {
        self.stats.user_bytes()
    }

    /// The cells in its chunks that nobody sees. A copy of the indexed cells would be without them.
    pub(crate) fn dead(&self) -> Dead {
        self.dead
    }

    pub(crate) fn cells(&self) -> usize {
        self.places.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.cells() == 0 && self.fragments.is_empty()
    }

    pub(crate) fn key_range(&self) -> Option<KeyRange> {
        self.key_range.clone()
    }

    pub(crate) fn tombstones_within(&self, range: &KeyRange) -> Vec<RangeTombstone> {
        self.fragments.tombstones_within(range).collect()
    }

    /// The range tombstones over a key, for any read point; `only` is the range of that key alone.
    pub(crate) fn tombstones_over(&self, only: &KeyRange, _read: SeqNo) -> Vec<RangeTombstone> {
        let over = self.fragments.find(&only.start).into_iter().flat_map(|fragment| &fragment.covers);
        over.map(|c| RangeTombstone { range: only.clone(), from: c.from, to: c.to, seq: c.seq }).collect()
    }

    pub(crate) fn look_around(&self, key: &[u8], read: SeqNo, window: &mut Window) {
        self.fragments.look_around(key, read, window);
    }

    pub(crate) fn newest_over(&self, key: &[u8], timestamp: Timestamp, read: SeqNo) -> Option<SeqNo> {
        self.fragments.newest_over(key, timestamp, read)
    }

    pub(crate) fn has_newer_tombstone(&self, range: &KeyRange, seq: SeqNo) -> bool {
        self.fragments.has_newer(range, seq)
    }

    pub(crate) fn seqs(&self) -> Option<RangeInclusive<SeqNo>> {
        self.stats.seqs()
    }

    pub(crate) fn times(&self) -> Option<RangeInclusive<Timestamp>> {
        self.stats.times()
    }

    /// Adds the distinct keys to a sketch, for estimates over several memtables and SSTables.
    pub(crate) fn sketch_into(&self, sketch: &mut Sketch) {
        match &self.sketch {
            Some(mine) => sketch.merge(mine),
            None => (0..self.cells()).for_each(|entry| sketch.add_hash(hash(self.cell_at(entry).key()))),
        }
    }

    /// Bytes of hot cells that flushes left in memory, at most: compactions count those that they drop as
    /// well.
    pub(crate) fn kept_bytes(&self) -> usize {
        self.kept_bytes
    }

    /// The entries of the keys in the range.
    pub(super) fn entries(&self, range: &KeyRange) -> Range<usize> {
        let end = range.end.as_deref().map_or(self.cells(), |end| self.first_at_or_after(end));
        self.first_at_or_after(&range.start).min(end)..end
    }

    /// How many flushes left the entry's cell in memory.
    #[inline]
    pub(super) fn kept(&self, entry: usize) -> u8 {
        self.kept.get(entry).copied().unwrap_or(0)
    }

    /// A cursor over the cells of this memtable.
    pub(crate) fn cursor(self: &Arc<Self>) -> FlatCursor {
        FlatCursor { entry: self.places.len(), flat: self.clone() }
    }

    /// The entry of the first cell whose key is at or after this one.
    fn first_at_or_after(&self, key: &[u8]) -> usize {
        let shared = self.shared.len();
        match key[..key.len().min(shared)].cmp(&self.shared) {
            Ordering::Less => return 0,
            Ordering::Greater => return self.places.len(),
            Ordering::Equal => {}
        }
        let prefix = prefix64(&key[shared..]);
        // A key outside the memtable's range costs no binary search.
        match (self.prefixes.first(), self.prefixes.last()) {
            (Some(&first), Some(&last)) if prefix < first || prefix > last => {
                return if prefix < first { 0 } else { self.places.len() };
            }
            _ => {}
        }
        let from = self.prefixes.partition_point(|&p| p < prefix);
        let tied = self.prefixes[from..].iter().take(8).take_while(|&&p| p == prefix).count();
        let tied = if tied < 8 { tied } else { self.prefixes[from..].partition_point(|&p| p == prefix) };
        let (mut low, mut high) = (from, from + tied);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.cell_at(middle).key() < key {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    /// The number of updates, in the memtable, of the key whose first cell is at this entry, dropped versions
    /// included.
    pub(super) fn updates_at(&self, entry: usize) -> u32 {
        let found = self.updates.binary_search_by_key(&entry, |&(entry, _)| entry as usize);
        found.map_or(1, |at| self.updates[at].1)
    }

    #[inline]
    pub(super) fn cell(&self, entry: usize) -> CellRef<'_> {
        self.cell_at(entry).get()
    }

    /// The entry's place in a list of chunks in which this memtable's begin at number `chunk`.
    #[inline]
    pub(super) fn place_in(&self, entry: usize, chunk: usize) -> u32 {
        self.chunks.places.raised(self.places[entry], chunk)
    }

    pub(super) fn addressing(&self) -> Places {
        self.chunks.places
    }

    pub(super) fn chunk_list(&self) -> &[Arc<Chunk>] {
        &self.chunks.held
    }

    #[inline]
    fn cell_at(&self, entry: usize) -> CellAt<'_> {
        let place = self.places[entry];
        let chunk = self.chunks.at[self.chunks.places.chunk(place)];
        // SAFETY: places in the array are of cells in these chunks, which live as long as `self`.
        unsafe { CellAt::new(chunk.base().add(self.chunks.places.offset(place))) }
    }

    fn held(&self, entry: usize) -> ChunkRef<'_> {
        let chunk = self.chunks.at[self.chunks.places.chunk(self.places[entry])];
        // SAFETY: the chunk's Arc is in `held`.
        unsafe { ChunkRef::new(chunk) }
    }
}

#[derive(Default)]
struct Build {
    places: Vec<u32>,
    updates: Vec<(u32, u32)>,
    sketch: Sketch,
    dead: Dead,
}

impl Build {
    /// Adds the surviving versions of a key's chain.
    ///
    /// # Safety
    /// The memtable's index gave the head.
    unsafe fn key(&mut self, active: &ActiveMemtable, head: u32, judge: &mut Judge, stats: &Stats) {
        let first = self.places.len() as u32;
        // SAFETY: the caller's promise.
        let key = unsafe { active.cell_at(head) }.key();
        judge.next_key(key);
        let (mut place, mut updates) = (head, 0);
        while place != NOWHERE {
            // SAFETY: as above; the chain leads on within the memtable.
            let at = unsafe { active.cell_at(place) };
            let next = at.next();
            updates += 1;
            // Nothing but a range tombstone can cover the only version.
            let is_alone = updates == 1 && next == NOWHERE && !judge.has_ranges();
            if is_alone || judge.keeps(at.timestamp(), at.seq(), at.kind()) {
                stats.note(&at.get());
                self.places.push(place);
            } else {
                self.dead.note(&at.get());
            }
            place = next;
        }
        if self.places.len() as u32 == first {
            return;
        }
        self.sketch.add_hash(hash(key));
        if updates > 1 {
            self.updates.push((first, updates));
        }
    }
}

/// A position in a flat memtable.
pub(crate) struct FlatCursor {
    flat: Arc<FlatMemtable>,
    /// The number of entries when not valid.
    entry: usize,
}

impl Cursor for FlatCursor {
    fn seek(&mut self, key: &[u8]) -> Result<()> {
        self.entry = self.flat.first_at_or_after(key);
        Ok(())
    }

    fn seek_before(&mut self, key: Option<&[u8]>) -> Result<()> {
        let len = self.flat.places.len();
        let after = key.map_or(len, |key| self.flat.first_at_or_after(key));
        self.entry = after.checked_sub(1).unwrap_or(len);
        Ok(())
    }

    fn next(&mut self) -> Result<()> {
        self.entry += 1;
        let ahead = self.entry + FETCHED_AHEAD;
        if ahead < self.flat.places.len() {
            self.flat.cell_at(ahead).prefetch();
        }
        Ok(())
    }

    fn prev(&mut self) -> Result<()> {
        self.entry = self.entry.checked_sub(1).unwrap_or(self.flat.places.len());
        Ok(())
    }

    fn valid(&self) -> bool {
        self.entry < self.flat.places.len()
    }

    fn cell(&self) -> CellRef<'_> {
        self.flat.cell_at(self.entry).get()
    }

    #[inline]
    fn key(&self) -> &[u8] {
        self.flat.cell_at(self.entry).key()
    }

    fn pin_value(&self, into: &mut Pinned) -> Result<()> {
        // SAFETY: the value lies in the chunk of its own cell.
        unsafe { into.hold(self.cell().value, &self.flat.held(self.entry)) };
        Ok(())
    }

    fn heat(&self) -> Heat {
        let kept = self.flat.kept(self.entry);
        Heat { updates: self.flat.updates_at(self.entry), kept, was_kept: kept > 0 }
    }
}
