//! How a store's memory is laid out: as one list of segments, or apart by key range, as its strategy wants it. What differs for
//! background work stands behind this one interface.

use super::Job;
use super::by_range::scatter_oldest;
use super::flush::{FlushJob, May};
use super::flush_range::FlushRangeJob;
use super::flushing::begin;
use super::lay_out::flatten_oldest;
use crate::catalog::Catalog;
use crate::commit::{FamilySettings, Store};
use crate::memory::Segment;
use crate::shape::Shape;
use crate::strategy::{ByRange, MergePlan};
use crate::types::TableId;
use crate::version::Version;
use std::sync::Arc;

/// A flush that is wanted.
pub(crate) struct FlushWanted {
    pub(crate) store: Arc<Store>,
    pub(crate) reason: String,
    /// Whether a part of memory may stay: hot keys, or other ranges.
    pub(crate) may_stay: bool,
    /// A key of the range to be flushed, where memory is held by range.
    pub(crate) at: Option<Vec<u8>>,
}

/// How much a flush takes and writes.
pub(crate) struct FlushSize {
    pub(crate) freed: u64,
    /// Of memory, before what is dead in it is left out.
    pub(crate) memory: u64,
    /// Of tables that are merged with it.
    pub(crate) rewritten: u64,
}

/// See the page above.
pub(crate) enum Layout<'a> {
    Whole,
    ByRange(&'a dyn ByRange),
}

impl<'a> Layout<'a> {
    /// Of a store with these settings.
    pub(crate) fn of(settings: &'a FamilySettings) -> Self {
        match settings.options.strategy.strategy().by_range() {
            None => Layout::Whole,
            Some(by_range) => Layout::ByRange(by_range),
        }
    }

    pub(crate) fn is_whole(&self) -> bool {
        matches!(self, Layout::Whole)
    }

    /// Whether a frozen segment is still to be laid out.
    pub(crate) fn is_due(&self, segment: &Segment) -> bool {
        !self.is_whole() || segment.as_active().is_some() || segment.is_part()
    }

    /// Lays the oldest such segment out; whether there was one.
    pub(super) fn lay_out_oldest(&self, catalog: &Catalog, store: &Store) -> bool {
        match self {
            Layout::Whole => flatten_oldest(catalog, store),
            Layout::ByRange(by_range) => scatter_oldest(catalog, store, *by_range),
        }
    }

    /// What a flush that begins now would take, of `due` bytes in memory.
    pub(crate) fn flush_size(&self, version: &Version, due: u64, left_over: bool) -> FlushSize {
        match self {
            Layout::Whole => FlushSize { freed: due, memory: version.unflushed_bytes(), rewritten: 0 },
            Layout::ByRange(by_range) => {
                // A range, or what has not been scattered yet.
                let part = version.scattered.largest().max(version.active.bytes() as u64);
                FlushSize {
                    freed: if left_over { due } else { due.min(part) },
                    memory: part,
                    rewritten: by_range.rewritten(&version.shape),
                }
            }
        }
    }

    /// Begins a flush: of all memory, of what an earlier one left, or of one range. `None` when there is nothing to take yet, or
    /// one is under way.
    pub(crate) fn flush(&self, catalog: &Catalog, wanted: FlushWanted, is_cleaning: bool) -> Option<Job> {
        let FlushWanted { store, reason, may_stay, at } = wanted;
        // First, so that nobody takes or leaves a flush set from here on.
        let number = begin(&store)?;
        match self {
            Layout::ByRange(by_range)
                if may_stay && !store.is_leaving() && store.version().flush.is_empty() =>
            {
                let job = FlushRangeJob::start(catalog, &store, number, *by_range, reason, at.as_deref());
                job.map(|job| Job::FlushRange(Box::new(job)))
            }
            _ => {
                let may = May { keep: may_stay, leave_in_log: !is_cleaning };
                FlushJob::start(catalog, &store, number, reason, may).map(|job| Job::Flush(Box::new(job)))
            }
        }
    }

    /// Where the ranges begin into which memory is parted, but for the first.
    pub(crate) fn bounds(&self, shape: &Shape) -> Vec<Vec<u8>> {
        match self {
            Layout::Whole => Vec::new(),
            Layout::ByRange(by_range) => by_range.bounds(shape),
        }
    }

    /// Says in the plan of a merge how what it makes is cut.
    pub(crate) fn cut(&self, plan: &mut MergePlan, unique: &dyn Fn(&[TableId]) -> f64) {
        if let Layout::ByRange(by_range) = self {
            by_range.cut(plan, unique);
        }
    }
}
