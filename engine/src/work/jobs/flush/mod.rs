//! Flushes: memory is brought to SSTables, step by step into the manifest.
//!
//! * `take` takes memory as the flush set: all of it, or that of one key range.
//! * `hot_keys` leaves the cells of keys in memory that were updated often.
//! * `wal_values` lets a flush leave values in the WAL.
//! * `carry` writes the memory of a flush for a compaction server.
//! * `job` takes a flush through its steps.
//!
//! Each imports only what stands above it here.

mod carry;
mod hot_keys;
mod job;
mod take;
mod wal_values;

pub(super) use job::FlushJob;
pub(super) use take::{FlushPolicy, Take};
