//! Memory in the background: immutable memtables are laid out, and compacted.
//!
//! * `visibility` is what readers may see, and what is told when a memtable was laid out.
//! * `facts` is what is known of memtables before anything is decided about them.
//! * `ranges` are the key ranges into which a store's memory is divided, for a strategy that wants that.
//! * `flatten` makes a flat memtable of one that was written; `scatter` divides it among the ranges instead.
//! * `compact` compacts a store's flat memtables, as a job; `compact_range` those of one range, as a chore.
//!
//! Each imports only what stands above it here.

mod compact;
mod compact_range;
mod facts;
mod flatten;
mod ranges;
mod scatter;
mod visibility;

pub(super) use compact::MemtableCompactionJob;
pub(super) use compact_range::{compact_range, compacts_before};
pub(super) use facts::bytes_per_user_byte;
pub(in crate::work) use facts::{compactable_bytes, surviving_share};
pub(super) use flatten::flatten_oldest;
pub(super) use ranges::{fit_ranges, memory_by_range, range_memory};
pub(super) use scatter::scatter_oldest;
