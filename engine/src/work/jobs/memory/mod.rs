//! Memory in the background: memtables that wait are laid out, and compacted.
//!
//! * `visibility` is what readers may see, and what is told when a memtable was laid out.
//! * `facts` is what is known of memtables before anything is decided about them.
//! * `ranges` are the key ranges by which a store's memory is held.
//! * `lay_out` lays a memtable that waits out into these ranges.
//! * `due` says which memtables of a range are to be compacted, and when; `compact` does that, as a job.
//!
//! Each imports only what stands above it here.

mod compact;
mod due;
mod facts;
mod lay_out;
mod ranges;
mod visibility;

pub(super) use compact::MemtableCompactionJob;
pub(super) use due::{compacts_before, compacts_first};
pub(super) use facts::bytes_per_user_byte;
pub(in crate::work) use facts::{compactable_bytes, surviving_share};
pub(super) use lay_out::lay_out_oldest;
pub(super) use ranges::{fit_ranges, memory_by_range, range_memory};
