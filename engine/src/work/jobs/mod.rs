//! The kinds of jobs: machines driven by `advance`, which take the [`Catalog`] and through it the `Commit`.
//!
//! * `outcome` is what jobs answer: how far they are, and a flush that is wanted next.
//! * `compaction` brings SSTables to other SSTables, and has what flushes share with that.
//! * `memory` lays memtables that wait out, and compacts them in memory.
//! * `flush` brings memory to SSTables, all of it or that of one key range.
//! * `clean_wal` logs again what memory still needs of the WAL's oldest file, so that the file can go.
//!
//! Each imports only what stands above it here. Jobs are made in this file alone: none begins another, nor
//! knows who runs it.

mod clean_wal;
mod compaction;
mod flush;
mod memory;
mod outcome;

pub(super) use clean_wal::Cleaned;
pub(super) use memory::{compactable_bytes, surviving_share};
pub(super) use outcome::{FlushRequest, JobProgress};

use super::manual::ManualCompaction;
use crate::catalog::Catalog;
use crate::commit::{FlushTurn, LayoutTurn, Store};
use crate::error::{Error, Result};
use crate::strategy::CompactionPlan;
use clean_wal::CleanJob;
use compaction::CompactionJob;
use flush::{FlushJob, FlushPolicy, Take};
use memory::MemtableCompactionJob;
use std::sync::Arc;

/// Work that is under way.
pub(super) enum Job {
    Flush(Box<FlushJob>),
    Compaction(Box<CompactionJob>),
    MemtableCompaction(Box<MemtableCompactionJob>),
    Clean(Box<CleanJob>),
}

impl Job {
    /// Begins a flush: of all memory, of what an earlier one left, or of one range. `None` when there is
    /// nothing to take yet, or one is under way. No values stay in the WAL while that is being cleaned.
    pub(super) fn begin_flush(catalog: &Catalog, request: FlushRequest, is_cleaning: bool) -> Option<Self> {
        let FlushRequest { store, reason, may_stay, at } = request;
        // First, so that nobody takes or leaves a flush set from here on.
        let turn = FlushTurn::begin(&store)?;
        let is_by_range = store.settings().by_range().is_some();
        let take = if is_by_range && may_stay && !store.is_leaving() { Take::Range(at) } else { Take::All };
        let policy = FlushPolicy { keep: may_stay, leave_in_wal: !is_cleaning };
        let job = FlushJob::start(catalog, &store, turn, &take, reason, policy)?;
        Some(Job::Flush(Box::new(job)))
    }

    /// Begins what the plan says, for a caller if one waits for it. `None` when the store no longer fits the
    /// plan. An error is one of whoever is to run it.
    pub(super) fn begin_compaction(
        catalog: &Arc<Catalog>,
        store: &Arc<Store>,
        plan: CompactionPlan,
        manual: Option<Arc<ManualCompaction>>,
    ) -> Result<Option<Self>> {
        let job = CompactionJob::start(catalog, store, plan, manual)?;
        Ok(job.map(|job| Job::Compaction(Box::new(job))))
    }

    /// Begins a compaction of the store's memtables in memory, if its policy wants one and none is under way.
    pub(super) fn begin_memtable_compaction(catalog: &Catalog, store: &Arc<Store>) -> Option<Self> {
        MemtableCompactionJob::start(catalog, store).map(|job| Job::MemtableCompaction(Box::new(job)))
    }

    /// Begins to clean the WAL's oldest file, if that is complete and no flush is about to free it.
    pub(super) fn begin_cleaning(catalog: &Catalog) -> Option<Self> {
        CleanJob::start(catalog).map(|job| Job::Clean(Box::new(job)))
    }

    pub(super) fn id(&self) -> u32 {
        match self {
            Job::Flush(job) => job.id,
            Job::Compaction(job) => job.id(),
            Job::MemtableCompaction(job) => job.id,
            Job::Clean(job) => job.id,
        }
    }

    /// Whether it rests beside readers.
    pub(super) fn rests(&self) -> bool {
        matches!(self, Job::Compaction(job) if job.runs_here())
    }

    /// Does a little.
    pub(super) fn advance(&mut self, catalog: &Arc<Catalog>) -> Result<JobProgress> {
        match self {
            Job::Flush(job) => job.advance(catalog),
            Job::Compaction(job) => job.advance(catalog),
            Job::MemtableCompaction(job) => job.advance(catalog),
            Job::Clean(job) => job.advance(catalog),
        }
    }

    /// A flush's number among its store's flushes, and whether it also reads SSTables; `None` for other jobs.
    pub(super) fn as_flush(&self) -> Option<(u64, bool)> {
        match self {
            Job::Flush(job) => Some((job.number, job.reads_tables())),
            _ => None,
        }
    }

    /// Gives up: what was installed stays. Says whose job it was, and what it was; cleaning is no store's.
    pub(super) fn abandon(self, catalog: &Catalog, why: &Error) -> Option<(Arc<Store>, &'static str)> {
        match self {
            Job::Flush(job) => Some((job.abandon(catalog, why), "flush")),
            Job::Compaction(job) => Some((job.abandon(catalog, why), "compaction")),
            Job::MemtableCompaction(job) => Some((job.abandon(catalog), "memtable compaction")),
            Job::Clean(mut job) => {
                job.abandon(catalog, why, 0);
                None
            }
        }
    }
}

/// Lays out one memtable of the store that waits; whether there was one. This is done in one go, as a chore.
pub(super) fn lay_out_one(catalog: &Catalog, store: &Store) -> bool {
    if store.version().memory.waiting.is_empty() {
        return false;
    }
    let Some(_turn) = LayoutTurn::begin(store) else { return false };
    memory::lay_out_oldest(catalog, store)
}

/// Cleans the WAL's oldest file at once, whatever is needed of it, and says what that leads to. `None` if the
/// file is not complete, or a flush is about to free it.
pub(super) fn clean_now(catalog: &Arc<Catalog>) -> Option<Cleaned> {
    let mut job = CleanJob::start(catalog)?;
    job.must = true;
    while let Ok(JobProgress::More) = job.advance(catalog) {}
    Some(job.outcome)
}
