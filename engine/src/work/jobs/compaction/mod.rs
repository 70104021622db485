//! Compactions: SSTables are merged into others, step by step into the manifest.
//!
//! * `spec` describes a compaction, from its plan, and what it is expected to write and to find in the cache.
//! * `cache_fill` brings blocks of a step's outputs into the cache, and tells what that came to.
//! * `remote_reads` has readers read a step's outputs from where they were written (feature `papers`).
//! * `running` is a compaction as whoever runs it does it: here, or elsewhere and then checked.
//! * `job` takes a plan through its steps.
//!
//! Each imports only what stands above it here. Flushes use the first two and `running`.

mod cache_fill;
mod job;
#[cfg(feature = "papers")]
mod remote_reads;
mod running;
mod spec;

pub(super) use cache_fill::{FillStats, Opened};
pub(super) use job::CompactionJob;
pub(super) use running::Running;
pub(super) use spec::flush_spec;
