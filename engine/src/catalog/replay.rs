//! Replay of the WAL's history into memory, cell by cell.
//!
//! Cells that SSTables hold already are left out: those up to the generation that the manifest has for the
//! key (invariant I1). The others come in the order in which they were written, except those that were logged
//! *again*, as hot cells of a flush or by WAL cleaning. These are older than their neighbours in the WAL. A
//! memtable must hold only newer versions than the ones after it (invariant I3), so each memtable made here
//! holds a stretch of sequence numbers, and a cell that was logged again goes where its number belongs. If
//! the WAL still holds the cell at its first place too, both meet there, and it is in memory once.

use crate::commit::{Generations, Store};
use crate::error::Result;
use crate::memtable::Memtable;
use crate::types::{Generation, KeyRange, RangeTombstone, SeqNo, StoreId};
use crate::version::edit::{Flushed, State};
use crate::wal::{Entry, Frame, Logged};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub(crate) struct Replay {
    stores: BTreeMap<StoreId, Replayed>,
    /// The heirs of each store that was split or joined: the stores that now have the cells logged for it.
    heirs: BTreeMap<StoreId, Heirs>,
    generations: Arc<Generations>,
    /// The stores that the WAL mentions.
    logged_for: BTreeSet<StoreId>,
    pub(crate) max_seq: SeqNo,
}

/// The stores whose cells may have been logged for one: itself, those that it was split into, and those that
/// took it in. Each stands with the start of its keys, in the order of keys.
#[derive(Default)]
struct Heirs {
    all: Vec<(Vec<u8>, StoreId)>,
    /// Whether some share keys: parts of different families that were joined. Then all are tried.
    overlap: bool,
}

/// A store being filled.
struct Replayed {
    store: Arc<Store>,
    /// The keys of the store.
    bounds: Arc<KeyRange>,
    flushed: Flushed,
    /// All its memtables, oldest first, each with its first sequence number. The last one is active.
    memtables: Vec<(SeqNo, Memtable)>,
}

impl Replay {
    pub(crate) fn new(
        state: &State,
        stores: BTreeMap<StoreId, Arc<Store>>,
        generations: &Arc<Generations>,
    ) -> Self {
        let stores = stores.into_iter().map(|(id, store)| {
            let flushed = state.stores[&id].flushed.clone();
            let version = store.version_full();
            let memtables = vec![(SeqNo::ZERO, version.memory.active.clone())];
            (id, Replayed { store, bounds: version.bounds.clone(), flushed, memtables })
        });
        let mut heirs: BTreeMap<StoreId, Heirs> = BTreeMap::new();
        for (id, store) in &state.stores {
            for origin in &store.origins {
                heirs.entry(*origin).or_default().all.push((store.range.start.clone(), *id));
            }
        }
        for (origin, Heirs { all, overlap }) in &mut heirs {
            all.extend(state.stores.get(origin).map(|store| (store.range.start.clone(), *origin)));
            all.sort_unstable();
            *overlap = all.windows(2).any(|pair| state.stores[&pair[0].1].range.ends_after(&pair[1].0));
        }
        let (stores, generations) = (stores.collect(), generations.clone());
        Self { stores, heirs, generations, logged_for: BTreeSet::new(), max_seq: SeqNo::ZERO }
    }

    /// Removes origins from which no cells can come any more: stores that were dropped and that the WAL does
    /// not mention. A store whose replayed generations are all in SSTables has no origins at all.
    pub(crate) fn forget_origins(&self, state: &mut State) {
        let mut alive = self.logged_for.clone();
        alive.extend(state.stores.keys());
        for (id, store) in &mut state.stores {
            let found = self.stores.get(id).map_or(Generation::ZERO, |own| own.store.replayed_generation());
            match store.flushed.covers(&store.range, found) {
                true => store.origins.clear(),
                false => store.origins.retain(|origin| alive.contains(origin)),
            }
        }
    }

    /// Replays one frame. O(log n) for a cell, where n counts the heirs of the store it was logged for.
    pub(crate) fn frame(&mut self, frame: &Frame<'_>) -> Result<()> {
        for logged in frame.entries() {
            self.logged_for.insert(logged.store);
            self.generations.above(logged.generation);
            // Cells of a dropped family are skipped.
            match self.heirs.get(&logged.store) {
                None => replay(&mut self.stores, &mut self.max_seq, logged.store, &logged),
                // Chooses by key, as the store was split or joined since.
                Some(heirs) => {
                    for (_, id) in heirs.concerned(&logged.entry) {
                        replay(&mut self.stores, &mut self.max_seq, *id, &logged);
                    }
                }
            }
        }
        Ok(())
    }

    /// The stores, each with an active memtable whose generation is above all that the WAL holds.
    pub(crate) fn finish(self) -> Vec<Arc<Store>> {
        let stores: Vec<_> = self.stores.into_values().map(|replayed| replayed.store).collect();
        for store in &stores {
            let active = store.new_active(0);
            store.swap(|now| now.with_fresh_active(active.clone()));
        }
        stores
    }
}

impl Heirs {
    /// The heirs that may have keys of an entry. O(log heirs) for a cell, unless heirs overlap.
    fn concerned(&self, entry: &Entry<'_>) -> &[(Vec<u8>, StoreId)] {
        if self.overlap {
            return &self.all;
        }
        let upto = |key: &[u8]| self.all.partition_point(|(start, _)| start.as_slice() <= key);
        let (first, last) = match entry {
            Entry::Cell(cell) => (upto(cell.key), upto(cell.key)),
            Entry::RangeTombstone(tombstone) => {
                let KeyRange { start, end } = &tombstone.range;
                let before = |end: &Vec<u8>| self.all.partition_point(|(start, _)| start < end);
                (upto(start), end.as_ref().map_or(self.all.len(), before))
            }
        };
        let first = first.saturating_sub(1);
        &self.all[first..last.max(first)]
    }
}

/// Replays an entry into the memory of a store, if the store exists and has keys of the entry.
fn replay(stores: &mut BTreeMap<StoreId, Replayed>, max_seq: &mut SeqNo, id: StoreId, logged: &Logged<'_>) {
    let Some(replayed) = stores.get_mut(&id) else { return };
    let seq = logged.seq();
    *max_seq = seq.max(*max_seq);
    if replayed.concerns(&logged.entry) {
        replayed.store.note_replayed(logged.generation);
        if !logged.copied {
            replayed.begin_segment_if_full(seq);
        }
        replayed.entry(logged, seq);
    }
}

impl Replayed {
    /// Begins a new memtable for entries from that sequence number on, if the last one is full.
    fn begin_segment_if_full(&mut self, seq: SeqNo) {
        if (self.store.version().memory.active.bytes() as u64) < self.store.active_bytes() {
            return;
        }
        let active = self.store.new_active(0);
        self.store.swap(|now| now.with_fresh_active(active.clone()));
        // The version's own, so that both know which WAL file it needs.
        self.memtables.push((seq, self.store.version().memory.active.clone()));
    }

    /// Whether a key of the entry is the store's.
    fn concerns(&self, entry: &Entry<'_>) -> bool {
        match entry {
            Entry::Cell(cell) => self.bounds.contains(cell.key),
            Entry::RangeTombstone(tombstone) => self.bounds.overlaps(&tombstone.range),
        }
    }

    fn entry(&self, logged: &Logged<'_>, seq: SeqNo) {
        let generation = logged.generation;
        let after = self.memtables.partition_point(|(first, _)| *first <= seq);
        let (_, memtable) = &self.memtables[after.max(1) - 1];
        let file = logged.place.at.file;
        let active = || memtable.as_active().expect("nothing is flattened before recovery has ended");
        match &logged.entry {
            Entry::Cell(cell) => {
                if generation > self.flushed.at(cell.key) || planted!(Bug::ReplayFlushedGenerations) {
                    active().writer().insert(cell);
                    memtable.fed_by(file);
                }
            }
            Entry::RangeTombstone(tombstone) => {
                // The parts of a range that no SSTable holds yet.
                for (interval, at) in self.flushed.intervals() {
                    let range = tombstone.range.intersect(&interval).intersect(&self.bounds);
                    if at < generation && !range.is_empty() {
                        active().writer().add_range_tombstone(RangeTombstone { range, ..tombstone.clone() });
                        memtable.fed_by(file);
                    }
                }
            }
        }
    }
}
