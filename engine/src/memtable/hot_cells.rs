//! Hot cells that a flush leaves in memory (TRI-1): the newest cell of each hot key, as a flat memtable of
//! its own.
//!
//! The cells are copied, so that the memory they came from is freed when the flush is done. Each has the
//! number of flushes that left it in memory since it was written, and as the key's updates the count that the
//! flush passed on.

use super::MemoryOptions;
use super::arena::{Arena, Sizes};
use super::cell;
use super::flat::{Dead, FlatMemtable, Parts};
use super::stats::Stats;
use crate::types::{Fragments, Generation, HotCell, common_prefix, prefix64};
use std::sync::Arc;

impl FlatMemtable {
    /// The memtable of these cells, in order, at most one per key. `memory` is that of the store's other
    /// memtables, so that their indices can be merged.
    pub(crate) fn of_kept(generation: Generation, cells: &[HotCell], memory: MemoryOptions) -> FlatMemtable {
        debug_assert!(cells.is_sorted_by(|a, b| a.cell.key < b.cell.key));
        let bytes: usize = cells.iter().map(|kept| cell::size(&kept.cell.as_ref())).sum();
        let first_bytes = (bytes / 4).next_power_of_two().max(64);
        let mut arena = Arena::new(Sizes { first_bytes, ..memory.chunks }, memory.spares);
        let stats = Stats::new();
        let places = cells.iter().map(|kept| {
            let cell = kept.cell.as_ref();
            stats.note(&cell);
            cell::copy(&mut arena, &cell)
        });
        let places: Vec<u32> = places.collect();
        let ends = cells.first().zip(cells.last());
        let shared = ends.map_or(0, |(first, last)| common_prefix(&first.cell.key, &last.cell.key));
        let updates = cells.iter().enumerate().filter(|(_, kept)| kept.updates > 1);
        FlatMemtable::assemble(Parts {
            generation,
            shared: cells.first().map_or(Vec::new(), |first| first.cell.key[..shared].to_vec()),
            prefixes: cells.iter().map(|kept| prefix64(&kept.cell.key[shared..])).collect(),
            places,
            addressing: arena.places(),
            chunks: arena.into_chunks(),
            updates: updates.map(|(entry, kept)| (entry as u32, kept.updates)).collect(),
            kept: cells.iter().map(|kept| kept.kept).collect(),
            sketch: None,
            stats,
            fragments: Arc::new(Fragments::default()),
            dead: Dead::default(),
            kept_bytes: cells.iter().map(|kept| cell::room(&kept.cell.as_ref())).sum(),
        })
    }
}
