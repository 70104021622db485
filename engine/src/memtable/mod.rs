//! A store's memory: the active memtable and the immutable ones that wait for a flush.
//!
//! * `active` is the memtable being written: cells in an arena, a B+-tree over their keys, the versions of a
//!   key in a chain. One writer at a time, readers without locks.
//! * `flat` is the layout of an immutable memtable: a sorted array with 8 bytes of key and the cell's place,
//!   over the chunks of the active memtable it was made from. `flatten` decides which versions it leaves out.
//! * `compact` makes one flat memtable of several: an index or data compaction.
//! * `gather` copies the cells of one key range out of flat memtables.
//! * `hot_cells` makes a flat memtable of the hot cells that a flush leaves in memory.
//! * `memtable` is a memtable of either layout, as readers and the version see it; `by_range` holds those
//!   that are laid out, by key range, and has the argument for invariant I1.
//! * `chunk_pool` keeps chunks that became free for later memtables.
//! * `prefetch` asks the processor for memory that a write is about to touch.
//! * `arena`, `cell`, `node` and `tree` are the parts of an active memtable, over `pages` from the system;
//!   most `unsafe` code is in them. `sync` has the atomics of the read path, for loom to replace.
//!   `active_cursor` walks an active memtable both ways.
//! * `range_tombstones` has an active memtable's range tombstones, `stats` the counts and bounds of its
//!   cells.
//! * `probe` makes these available to `benches/active.rs`.
//!
//! Not owned here: the WAL and files, when to freeze and flush, and visibility,
//! except for what flattening may drop. Readers filter by their own read point.

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
pub(crate) use memtable::{Again, Memtable, MemtableCursor, WalPlace};
pub(crate) use prefetch::prefetch_value;
pub(crate) use range_tombstones::Ranges;

use std::sync::Arc;

/// The smallest chunk.
const FIRST_CHUNK: usize = 1 << 10;

/// How a memtable uses memory.
#[derive(Clone, Debug)]
pub(crate) struct MemoryOptions {
    /// Sizes of the chunks for cells: powers of two of at least 64.
    pub(crate) chunks: Sizes,
    /// The pool that chunks are taken from and returned to.
    pub(crate) spares: Option<Arc<Spares>>,
}

impl MemoryOptions {
    /// Options for active memtables that are frozen at about this size: chunks are an eighth of it, at most 2
    /// MiB (ACC-10). The first chunks fit a memtable of `expected` bytes, the size of its predecessor: the
    /// memtable of a family with few writes takes little memory.
    pub(crate) fn for_active_bytes(bytes: usize, expected: usize, spares: Option<Arc<Spares>>) -> Self {
        let power = |bytes: usize| 1 << (bytes / 8).clamp(FIRST_CHUNK, 2 << 20).ilog2();
        Self { chunks: Sizes { chunk_bytes: power(bytes), first_bytes: power(expected) }, spares }
    }

    /// Options for a copy of about this size that stays as it is: its last chunk is a sixteenth of it.
    pub(crate) fn for_copy_of(bytes: usize) -> Self {
        Self { chunks: Sizes::all(1 << (bytes / 16).clamp(64, 2 << 20).ilog2()), spares: None }
    }
}
