//! The kinds of jobs, a file each: machines driven by `advance`, which take the [`Catalog`] and through it the `Commit`.
//!
//! `flush` brings all memory of a store to tables, `flush_range` that of one key range (`flushing` is what they share), `merge`
//! tables to other tables, `join` segments in memory to one, `clean` what memory still needs of the log's oldest file to its end.
//! `layout` is the one place that knows how a store holds its memory; `lay_out` turns frozen segments flat, `by_range` over the
//! ranges of memory, which `compact_range` compacts. `keep`, `log_table` and `fills` are parts of flushes and merges.
//!
//! No job knows another, nor who runs it: what is to be done next it hands out.

mod by_range;
mod clean;
mod compact_range;
mod fills;
mod flush;
mod flush_range;
mod flushing;
mod join;
mod keep;
mod lay_out;
mod layout;
mod log_table;
mod merge;

pub(super) use clean::{CleanJob, Cleaned};
pub(super) use join::{JoinJob, compactable_bytes, surviving_share};
pub(super) use lay_out::lay_out_one;
pub(super) use layout::{FlushWanted, Layout};
pub(super) use merge::MergeJob;

use crate::catalog::Catalog;
use crate::commit::Store;
use crate::error::{Error, Result};
use flush::FlushJob;
use flush_range::FlushRangeJob;
use std::sync::Arc;

/// Work that is under way.
pub(super) enum Job {
    Flush(Box<FlushJob>),
    FlushRange(Box<FlushRangeJob>),
    Merge(Box<MergeJob>),
    Join(Box<JoinJob>),
    Clean(Box<CleanJob>),
}

/// What an advance of a job came to.
pub(crate) enum Advanced {
    More,
    /// Not before that many nanoseconds have passed. Zero after a step, so that what it made free goes first.
    Wait(u64),
    /// The same of one that could not do anything.
    NotYet(u64),
    Done,
}

impl Job {
    pub(super) fn id(&self) -> u32 {
        match self {
            Job::Flush(job) => job.id(),
            Job::FlushRange(job) => job.id(),
            Job::Merge(job) => job.id(),
            Job::Join(job) => job.id(),
            Job::Clean(job) => job.id(),
        }
    }

    /// Whether it rests beside readers.
    pub(super) fn rests(&self) -> bool {
        matches!(self, Job::Merge(job) if job.runs_here())
    }

    pub(super) fn advance(&mut self, catalog: &Arc<Catalog>) -> Result<Advanced> {
        match self {
            Job::Flush(job) => job.advance(catalog),
            Job::FlushRange(job) => job.advance(catalog),
            Job::Merge(job) => job.advance(catalog),
            Job::Join(job) => job.advance(catalog),
            Job::Clean(job) => job.advance(catalog),
        }
    }

    /// Of a flush, which of its store's it is, and whether it also reads tables.
    pub(super) fn flush(&self) -> Option<(u64, bool)> {
        match self {
            Job::Flush(job) => Some((job.number(), false)),
            Job::FlushRange(job) => Some((job.number(), job.reads_tables())),
            _ => None,
        }
    }

    /// Gives up: what was installed stays. Whose it was, and what it was; cleaning is no store's.
    pub(super) fn abandon(self, catalog: &Catalog, why: &Error) -> Option<(Arc<Store>, &'static str)> {
        match self {
            Job::Flush(job) => Some((job.abandon(catalog, why), "flush")),
            Job::FlushRange(job) => Some((job.abandon(catalog, why), "flush")),
            Job::Merge(job) => Some((job.abandon(catalog, why), "merge")),
            Job::Join(job) => Some((job.abandon(catalog), "in-memory merge")),
            Job::Clean(mut job) => {
                job.abandon(catalog, why, 0);
                None
            }
        }
    }
}
