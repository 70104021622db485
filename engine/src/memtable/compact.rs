//! In-memory compaction: several flat memtables become one, so that readers have fewer sources (ACC-4,
//! ACC-5).
//!
//! An *index compaction* merges the entries of all into one array over the chunk lists of all; no cell is
//! touched unless eight bytes of two keys are equal. A *data compaction* also drops cells that no reader can
//! see any more, and copies the others into fresh chunks, so that the memory of the dropped ones is freed.
//!
//! It runs in small pieces: [`MemtableCompaction::advance`] takes some entries at a time, so that a worker
//! can do something more urgent in between. It may be dropped at any moment; readers see nothing of it before
//! the memtable of [`MemtableCompaction::finish`] is swapped in.
//!
//! Entries are compared by the eight bytes after the prefix that *all* keys share. A source's own prefix may
//! be longer; its entries' eight bytes then begin with the difference.

use super::MemoryOptions;
use super::arena::{Arena, Chunk, Places};
use super::cell;
use super::flat::{Dead, FlatMemtable, Parts, fragments_of};
use super::flatten::{Judge, Visibility};
use super::stats::Stats;
use crate::types::{Fragments, KeyRange, Sketch, common_prefix, prefix64};
use std::cmp::Ordering;
use std::sync::Arc;

/// An in-memory compaction, in small pieces; see the page above.
// Over 15 fields: the state of one pass, whose buffers are reused for each key.
pub(crate) struct MemtableCompaction {
    sources: Vec<Source>,
    /// Sources that are not at their end, ordered by their present cell; of equal cells the newer source
    /// first.
    order: Vec<usize>,
    shared: Vec<u8>,
    /// The arena for surviving cells, in a data compaction.
    arena: Option<Arena>,
    judge: Judge,
    fragments: Arc<Fragments>,
    prefixes: Vec<u64>,
    places: Vec<u32>,
    updates: Vec<(u32, u32)>,
    /// How many flushes left each entry's cell in memory, as in [`FlatMemtable`]; `None` if no source has hot
    /// cells.
    kept: Option<Vec<u8>>,
    stats: Stats,
    /// The last cell taken of the present key; then where its cells begin in `places`, and its updates in all
    /// sources.
    last: Option<(usize, usize)>,
    first: usize,
    updated: u32,
    /// The numbers of cells and of keys taken.
    taken: usize,
    keys: usize,
    /// Dropped cells, in an index compaction, whose chunks stay.
    dead: Dead,
}

struct Source {
    flat: Arc<FlatMemtable>,
    at: usize,
    /// The part of its prefix beyond the shared one, in the upper bits, and its number of bits.
    lead: u64,
    lead_bits: u32,
    /// Number of its first chunk in the list of all chunks.
    chunk: usize,
    /// Its next entry in `updates`.
    next_update: usize,
    /// Whether it has cells of the present key.
    met: bool,
    /// Whether any of its cells is in the new memtable.
    lives: bool,
}

impl Source {
    #[inline]
    fn prefix(&self, entry: usize) -> u64 {
        let prefix = self.flat.prefixes[entry];
        if self.lead_bits == 0 { prefix } else { self.lead | prefix.checked_shr(self.lead_bits).unwrap_or(0) }
    }

    /// Updates of the key whose first cell is at `at`.
    fn take_updates(&mut self) -> u32 {
        match self.flat.updates.get(self.next_update) {
            Some(&(entry, updates)) if entry as usize == self.at => {
                self.next_update += 1;
                updates
            }
            _ => 1,
        }
    }
}

impl MemtableCompaction {
    /// Begins a compaction of flat memtables, newest first. Range tombstones that no reader needs (`seen`)
    /// are dropped. With `keep` it is a data compaction: cells that no reader needs are dropped too, and the
    /// others are copied.
    pub(crate) fn new(
        flats: &[Arc<FlatMemtable>],
        seen: &Visibility<'_>,
        keep: Option<MemoryOptions>,
    ) -> Self {
        let filled = || flats.iter().filter_map(|flat| flat.ends());
        let mut ends = filled().flat_map(|(first, last)| [first, last]);
        let shared = match ends.next() {
            Some(key) => {
                // The shared prefix may not hold for cells that were dropped, only for those in the index.
                let known = flats.iter().filter(|flat| flat.ends().is_some()).map(|flat| flat.shared.len());
                let shared = ends.map(|other| common_prefix(key, other)).chain(known).min();
                key[..shared.unwrap_or(0)].to_vec()
            }
            None => Vec::new(),
        };
        let mut chunk = 0;
        let sources: Vec<Source> = flats
            .iter()
            .map(|flat| {
                let beyond = flat.shared.get(shared.len()..).unwrap_or(&[]);
                let source = Source {
                    flat: flat.clone(),
                    at: 0,
                    lead: prefix64(beyond),
                    lead_bits: beyond.len().min(8) as u32 * 8,
                    chunk,
                    next_update: 0,
                    met: false,
                    lives: flat.has_ranges(),
                };
                chunk += flat.chunk_list().len();
                source
            })
            .collect();
        let cells = flats.iter().map(|flat| flat.cells()).sum();
        let fragments = fragments_of(flats, &KeyRange::all(), seen);
        let judge = Judge::new(*seen, !fragments.is_empty()).under(fragments.clone());
        let arena = keep.map(|memory| Arena::new(memory.chunks, memory.spares));
        let mut join = Self {
            order: Vec::with_capacity(sources.len()),
            sources,
            shared,
            arena,
            judge,
            fragments,
            prefixes: Vec::with_capacity(cells),
            places: Vec::with_capacity(cells),
            updates: Vec::new(),
            kept: flats.iter().any(|flat| !flat.kept.is_empty()).then(|| Vec::with_capacity(cells)),
            stats: Stats::new(),
            last: None,
            first: 0,
            updated: 0,
            taken: 0,
            keys: 0,
            dead: Dead::default(),
        };
        let mut order: Vec<usize> = (0..join.sources.len()).filter(|&i| !join.at_end(i)).collect();
        order.sort_by(|&a, &b| join.compare(a, b));
        join.order = order;
        join
    }

    /// Whether all indices address chunks in the same way, so that they can be merged without copying cells.
    pub(crate) fn can_share_chunks(flats: &[Arc<FlatMemtable>]) -> bool {
        let Some(first) = flats.first() else { return false };
        let chunks: usize = flats.iter().map(|flat| flat.chunk_list().len()).sum();
        flats.iter().all(|flat| flat.addressing() == first.addressing()) && first.addressing().holds(chunks)
    }

    fn at_end(&self, i: usize) -> bool {
        self.sources[i].at == self.sources[i].flat.cells()
    }

    fn compare(&self, a: usize, b: usize) -> Ordering {
        let (one, other) = (&self.sources[a], &self.sources[b]);
        one.prefix(one.at)
            .cmp(&other.prefix(other.at))
            .then_with(|| one.flat.cell(one.at).order(&other.flat.cell(other.at)))
            .then(a.cmp(&b))
    }

    /// Takes up to `entries` more entries; returns whether there are others after them.
    pub(crate) fn advance(&mut self, entries: usize) -> bool {
        for _ in 0..entries {
            let Some(&front) = self.order.first() else { return false };
            self.take(front);
            self.sources[front].at += 1;
            self.settle_front();
        }
        !self.order.is_empty()
    }

    fn settle_front(&mut self) {
        let front = self.order[0];
        if self.at_end(front) {
            self.order.remove(0);
            return;
        }
        let mut at = 0;
        while at + 1 < self.order.len() && self.compare(front, self.order[at + 1]) == Ordering::Greater {
            self.order[at] = self.order[at + 1];
            at += 1;
        }
        self.order[at] = front;
    }

    fn take(&mut self, i: usize) {
        let prefix = self.sources[i].prefix(self.sources[i].at);
        let entry = self.sources[i].at;
        self.taken += 1;
        let same_key = self.last.is_some_and(|(source, last)| {
            // Nearly always decided by the prefix.
            let before = &self.sources[source];
            let before_prefix = before.prefix(last);
            before_prefix == prefix && before.flat.cell(last).key == self.sources[i].flat.cell(entry).key
        });
        if !same_key {
            self.keys += 1;
            self.end_key();
            self.sources.iter_mut().for_each(|source| source.met = false);
        }
        let source = &mut self.sources[i];
        if !source.met {
            source.met = true;
            self.updated += source.take_updates();
        }
        self.last = Some((i, entry));
        let source = &self.sources[i];
        // An index compaction looks at no cell unless range tombstones may cover it.
        let looks = self.arena.is_some() || self.judge.has_ranges();
        let cell = looks.then(|| source.flat.cell(entry));
        if let Some(cell) = &cell {
            if !same_key {
                self.judge.next_key(cell.key);
            }
            if !self.judge.keeps(cell.timestamp, cell.seq, cell.kind) {
                self.dead.note(cell);
                return;
            }
        }
        let place = match (&mut self.arena, &cell) {
            (Some(arena), Some(cell)) => {
                self.stats.note(cell);
                cell::copy(arena, cell)
            }
            _ => source.flat.place_in(entry, source.chunk),
        };
        self.prefixes.push(prefix);
        self.places.push(place);
        if let Some(kept) = &mut self.kept {
            kept.push(self.sources[i].flat.kept(entry));
        }
        self.sources[i].lives = true;
    }

    fn end_key(&mut self) {
        if self.updated > 1 && self.places.len() > self.first {
            self.updates.push((self.first as u32, self.updated));
        }
        self.first = self.places.len();
        self.updated = 0;
    }

    /// Cells and keys taken so far. The cells include those that are in the sources' chunks but not in their
    /// indices.
    pub(crate) fn taken(&self) -> (usize, usize) {
        let dead: usize = self.sources.iter().map(|source| source.flat.dead().cells).sum();
        (self.taken + dead, self.keys)
    }

    /// Memory in addition to its sources, with unused capacity.
    pub(crate) fn bytes(&self) -> usize {
        let chunks = self.arena.as_ref().map_or(0, Arena::taken);
        chunks
            + self.prefixes.capacity() * size_of::<u64>()
            + self.places.capacity() * size_of::<u32>()
            + self.updates.capacity() * size_of::<(u32, u32)>()
            + self.kept.as_ref().map_or(0, Vec::capacity)
    }

    /// For every source, whether any of its cells is in the new memtable: if not, the WAL need not keep them.
    pub(crate) fn lives(&self) -> impl Iterator<Item = bool> {
        self.sources.iter().map(|source| source.lives)
    }

    /// The joined memtable, once `advance` has come to the end; with a sketch of its keys, or without one to
    /// take less memory.
    pub(crate) fn finish(mut self, with_sketch: bool) -> FlatMemtable {
        assert!(self.order.is_empty(), "a join is finished when every entry was taken");
        self.end_key();
        let sketch = with_sketch.then(|| {
            let mut sketch = Sketch::default();
            self.sources.iter().for_each(|source| source.flat.sketch_into(&mut sketch));
            sketch
        });
        let fragments = self.fragments;
        let (chunks, addressing, dead): (Vec<Arc<Chunk>>, Places, Dead) = match self.arena {
            Some(arena) => {
                let addressing = arena.places();
                (arena.into_chunks(), addressing, Dead::default())
            }
            None => {
                self.sources.iter().for_each(|source| self.stats.absorb(&source.flat.stats));
                let all = self.sources.iter().flat_map(|s| s.flat.chunk_list().iter().cloned());
                let mut dead = self.dead;
                self.sources.iter().for_each(|source| dead.add(source.flat.dead()));
                (all.collect(), self.sources[0].flat.addressing(), dead)
            }
        };
        for tombstone in fragments.tombstones_within(&KeyRange::all()) {
            self.stats.note_range(&tombstone);
        }
        let generation = self.sources.iter().map(|source| source.flat.generation()).max();
        let kept_bytes = self.sources.iter().map(|source| source.flat.kept_bytes()).sum();
        FlatMemtable::assemble(Parts {
            generation: generation.expect("a join has sources"),
            shared: self.shared,
            prefixes: self.prefixes,
            places: self.places,
            addressing,
            chunks,
            updates: self.updates,
            kept: self.kept.unwrap_or_default(),
            sketch,
            stats: self.stats,
            fragments,
            dead,
            kept_bytes,
        })
    }
}
