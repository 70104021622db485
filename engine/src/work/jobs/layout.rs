//! How a store's memory is laid out, as its strategy wants it: as one list of memtables, or by key range.
//!
//! Only facts are told here; `jobs/mod.rs` acts on them.

use crate::commit::FamilySettings;
use crate::memtable::Memtable;
use crate::shape::Shape;
use crate::strategy::{ByRange, CompactionPlan};
use crate::types::TableId;
use crate::version::Version;

/// The layout of a store's memory.
pub(crate) enum Layout<'a> {
    Whole,
    ByRange(&'a dyn ByRange),
}

/// How much a flush takes and writes.
pub(crate) struct FlushSize {
    pub(crate) freed: u64,
    /// Bytes of memory, before what is dead in it is left out.
    pub(crate) memory: u64,
    /// Bytes of SSTables that are merged with it.
    pub(crate) rewritten: u64,
}

impl<'a> Layout<'a> {
    /// The layout of a store with these settings.
    pub(crate) fn of(settings: &'a FamilySettings) -> Self {
        match settings.options.strategy.strategy().by_range() {
            None => Layout::Whole,
            Some(by_range) => Layout::ByRange(by_range),
        }
    }

    pub(crate) fn is_whole(&self) -> bool {
        matches!(self, Layout::Whole)
    }

    /// Whether an immutable memtable is still to be laid out.
    pub(crate) fn is_due(&self, segment: &Memtable) -> bool {
        !self.is_whole() || segment.as_active().is_some() || segment.is_part()
    }

    /// The size of a flush that begins now, with `due` bytes in memory.
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

    /// The keys where the ranges of memory begin, but for the first.
    pub(crate) fn bounds(&self, shape: &Shape) -> Vec<Vec<u8>> {
        match self {
            Layout::Whole => Vec::new(),
            Layout::ByRange(by_range) => by_range.bounds(shape),
        }
    }

    /// Says in the plan of a compaction how its output is cut.
    pub(crate) fn cut(&self, plan: &mut CompactionPlan, unique: &dyn Fn(&[TableId]) -> f64) {
        if let Layout::ByRange(by_range) = self {
            by_range.cut(plan, unique);
        }
    }
}
