//! A store's memory: memtables, from the one that is written to the ones that wait to be flushed.
//!
//! * `active` is the memtable being written: cells in an arena, a B+-tree over their keys, the versions of a
//!   key in a chain. One writer at a time, readers without locks.
//! * `flat` is the layout of an immutable memtable: an ordered array of 8 bytes of key and the cell's place,
//!   over the chunks of the active memtable it came from. `flatten` decides which versions it leaves out.
//! * `compact` makes one flat memtable of several, with or without what nobody can see any more.
//! * `gather` copies the cells of one key range out of flat memtables.
//! * `hot_cells` makes a flat memtable of the hot cells that a flush leaves in memory.
//! * `memtable` is a memtable of either layout, as readers and the version see it; `by_range` holds those that
//!   are laid out by key range, with what makes flushes of them correct.
//! * `chunk_pool` is a pool of chunks that became free, for memtables to come.
//! * `prefetch` asks the processor for memory that a write is about to touch.
//! * `arena`, `cell`, `node` and `tree` are what these are made of, over `pages` from the system; `unsafe`
//!   lives there. `sync` has the atomics that readers walk by, for loom to replace. `active_cursor` walks an
//!   active memtable both ways.
//! * `range_tombstones` has an active memtable's range tombstones, `stats` what is known of a memtable's
//!   cells as a whole.
//! * `probe` opens these to `benches/active.rs`.
//!
//! This folder does not know the WAL, files, or when to freeze and flush; it judges no visibility except what
//! flattening may drop. Readers filter by their own read point.

mod active;
mod active_cursor;
mod arena;
mod by_range;
mod cell;
mod chunk_pool;
mod compact;
#[cfg(all(test, not(models)))]
mod compact_tests;
mod flat;
mod flatten;
mod gather;
mod hot_cells;
#[expect(clippy::module_inception, reason = "the file is named for its main type")]
mod memtable;
#[cfg(all(test, models))]
mod model;
mod node;
mod pages;
mod prefetch;
mod range_tombstones;
mod stats;
mod sync;
#[cfg(all(test, not(models)))]
mod tests;
mod tree;

#[cfg(feature = "testing")]
pub mod probe;

pub(crate) use active::ActiveMemtable;
pub(crate) use arena::Sizes;
pub(crate) use by_range::{Chain, MemtableRanges};
pub(crate) use chunk_pool::Spares;
pub(crate) use compact::MemtableCompaction;
pub(crate) use flat::FlatMemtable;
pub(crate) use flatten::{Judge, Visibility};
pub(crate) use memtable::{Again, LogPlace, Memtable, SegmentCursor};
pub(crate) use prefetch::prefetch_value;
pub(crate) use range_tombstones::Ranges;

use std::sync::Arc;

/// The smallest chunk.
const FIRST_CHUNK: usize = 1 << 10;

/// How a memtable uses memory.
#[derive(Clone, Debug)]
pub(crate) struct MemoryOptions {
    /// Sizes of the chunks that cells are put in: powers of two of at least 64.
    pub(crate) chunks: Sizes,
    /// The pool that chunks come from and go back to.
    pub(crate) spares: Option<Arc<Spares>>,
}

impl MemoryOptions {
    /// Options for active memtables that are frozen at about this size: chunks are an eighth of it, at most 2
    /// MiB (ACC-10). The first chunks fit a memtable that is going to have `expected` bytes, as its
    /// predecessor had: that of a family that is seldom written takes next to nothing.
    pub(crate) fn for_active_bytes(bytes: usize, expected: usize, spares: Option<Arc<Spares>>) -> Self {
        let power = |bytes: usize| 1 << (bytes / 8).clamp(FIRST_CHUNK, 2 << 20).ilog2();
        Self { chunks: Sizes { chunk_bytes: power(bytes), first_bytes: power(expected) }, spares }
    }

    /// Options for a copy of about this size that stays as it is: its last chunk is a sixteenth of it.
    pub(crate) fn for_copy_of(bytes: usize) -> Self {
        Self { chunks: Sizes::all(1 << (bytes / 16).clamp(64, 2 << 20).ilog2()), spares: None }
    }
}
