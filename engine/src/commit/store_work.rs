//! What background work knows of one store.

use super::store::Store;
use crate::error::Error;
use crate::memory::Segment;
use crate::shape::Shape;
use crate::strategy::{Deferred, HotState, PipelineState, PlanState, RunningMerge};
use crate::types::{Generation, KeyRange};
use crate::version::Unions;
use std::sync::Arc;

/// What only background work looks at.
#[derive(Default)]
pub(crate) struct StoreWork {
    pub(crate) flush: FlushWork,
    pub(crate) merges: MergeWork,
    pub(crate) memory: MemoryWork,
}

/// Of its flushes.
#[derive(Default)]
pub(crate) struct FlushWork {
    /// One is under way.
    pub(crate) under_way: bool,
    /// It is installed, or about to be, and not told of yet.
    pub(crate) ends: bool,
    /// Somebody asked for one of everything up to this generation.
    pub(crate) asked: Generation,
    /// After one that failed: not before this moment (monotonic ns).
    pub(crate) not_before: u64,
    /// How often one was tried.
    pub(crate) tries: u64,
    /// Which try was the last to fail, and why.
    pub(crate) failed: Option<(u64, Error)>,
    /// What they met, for the choice of hot keys.
    pub(crate) hot: HotState,
    /// The part of the cells that the last one wrote, where it noted that.
    pub(crate) survived: Option<f64>,
}

/// Of merges of its tables.
#[derive(Default)]
pub(crate) struct MergeWork {
    pub(crate) plan_state: PlanState,
    /// A shape of which nothing of level 0 could be merged with so many merges running, and whether a
    /// compaction waited.
    pub(crate) nothing_of_level0: Option<(Arc<Shape>, usize, bool)>,
    pub(crate) running: Vec<(u32, RunningMerge)>,
    /// After one that failed: not before this moment (monotonic ns).
    pub(crate) not_before: u64,
    /// How many have failed since one was done.
    pub(crate) failures: u32,
    /// What plans asked for lately.
    pub(crate) unions: Unions,
    /// Debt found by the last plan, and what of it was not inherited.
    pub(crate) debt: u64,
    pub(crate) debt_of_writers: u64,
    /// What the last plan put off.
    pub(crate) deferred: Vec<Deferred>,
    /// What merges have written of what came.
    pub(crate) rewritten: Rewritten,
}

/// Of what is done in memory.
#[derive(Default)]
pub(crate) struct MemoryWork {
    /// A frozen segment is being laid out flat, or scattered.
    pub(crate) laying_out: bool,
    /// A merge of segments is under way.
    pub(crate) joining: bool,
    /// Where memory is held by range: the range to be compacted before one is flushed, and why.
    pub(crate) compacts: Option<(KeyRange, String)>,
    /// The last such compaction freed hardly anything, and no range was flushed since.
    pub(crate) compacted_in_vain: bool,
    /// The newest segment that the memory policy was asked about.
    pub(crate) joined_upto: Generation,
    /// What that policy remembers since the last disk flush began.
    pub(crate) pipeline: PipelineState,
    /// Measured cost of copying; zero before there was any.
    pub(crate) copy_ns_per_byte: f64,
}

impl MemoryWork {
    /// Copying what is live into so many bytes took so long.
    pub(crate) fn note_copy(&mut self, bytes: u64, busy_ns: u64) {
        if bytes > COPY_NOTED_MIN {
            let measured = busy_ns as f64 / bytes as f64;
            let before = self.copy_ns_per_byte;
            self.copy_ns_per_byte = if before == 0.0 { measured } else { (3.0 * before + measured) / 4.0 };
        }
    }
}

/// A copy of less says nothing about what copying costs.
const COPY_NOTED_MIN: u64 = 64 << 10;

/// Bytes that came to a store's tables, those left in the log as tables would have them, and what its merges
/// wrote; the older the less they count.
#[derive(Default)]
pub(crate) struct Rewritten {
    came: f64,
    merged: f64,
}

impl Rewritten {
    /// A flush brought so much. What came before `memory` 64 times over counts half.
    pub(crate) fn came(&mut self, bytes: f64, memory: u64) {
        self.came += bytes;
        if self.came > 64.0 * memory as f64 {
            self.came /= 2.0;
            self.merged /= 2.0;
        }
    }

    pub(crate) fn merged(&mut self, bytes: u64) {
        self.merged += bytes as f64;
    }

    /// How often a byte that came was written by merges.
    pub(crate) fn times(&self) -> f64 {
        self.merged / self.came.max(1.0)
    }
}

impl Store {
    pub(crate) fn flush_is_asked(&self) -> bool {
        let asked = self.work.lock().flush.asked;
        let version = self.version();
        let oldest = version.segments().map(Segment::generation).min();
        let oldest =
            oldest.into_iter().chain((!version.active.is_empty()).then(|| version.active.generation())).min();
        oldest.is_some_and(|oldest| oldest <= asked)
    }

    /// Whether that is asked of what is written now.
    pub(crate) fn flush_is_asked_of_active(&self) -> bool {
        let active = self.version().active.generation();
        active <= self.work.lock().flush.asked
    }
}
