//! The kinds of jobs, a file each: machines driven by `advance`, which take the [`Catalog`] and through it the `Commit`.
//!
//! `flush` brings memory to tables, `merge` tables to other tables, `join` segments in memory to one, `clean` what memory
//! still needs of the log's oldest file to its end. `lay_out` turns frozen segments flat, `by_range` over the ranges of memory.
//! `keep`, `log_table` and `fills` are parts of flushes and merges.
//!
//! No job knows another, nor who runs it: what is to be done next it hands out.

mod by_range;
mod clean;
mod fills;
mod flush;
mod join;
mod keep;
mod lay_out;
mod log_table;
mod merge;

pub(super) use clean::{CleanJob, Cleaned, FlushWanted};
pub(super) use flush::FlushJob;
pub(super) use join::{JoinJob, compactable_bytes, surviving_share};
pub(super) use lay_out::lay_out_one;
pub(super) use merge::MergeJob;

/// What an advance of a job came to.
pub(crate) enum Advanced {
    More,
    /// Not before that many nanoseconds have passed. Zero after a step, so that what it made free goes first.
    Wait(u64),
    /// The same of one that could not do anything.
    NotYet(u64),
    Done,
}
