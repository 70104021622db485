//! Flushes: memory is merged into SSTables, step by step into the manifest.
//!
//! * `hot_keys` leaves the cells of keys in memory that were updated often.
//! * `steps` is what both kinds of flushes share: a merge of memory, in steps.
//! * `wal_values` lets a flush leave values in the WAL.
//! * `range` flushes one range of a memory that is held by key range, together with the range's SSTables.
//! * `whole` flushes all memory of a store into L0.
//!
//! Each imports only what stands above it here.

mod hot_keys;
mod range;
mod steps;
mod wal_values;
mod whole;

pub(super) use range::FlushRangeJob;
pub(super) use steps::FlushPolicy;
pub(super) use whole::FlushJob;
