//! What background work knows of one store.

use super::store::Store;
use crate::error::Error;
use crate::memory::Segment;
use crate::shape::Shape;
use crate::strategy::{Deferred, HotState, PipelineState, PlanState, RunningMerge};
use crate::types::{Generation, KeyRange};
use crate::version::Unions;
use std::sync::Arc;

/// State of a store that only background work uses.
#[derive(Default)]
pub(crate) struct StoreWork {
    pub(crate) flush: FlushWork,
    pub(crate) merges: MergeWork,
    pub(crate) memory: MemoryWork,
}

/// State of a store's flushes.
#[derive(Default)]
pub(crate) struct FlushWork {
    /// Whether a flush is under way.
    pub(crate) under_way: bool,
    /// Whether its last step is installed, or about to be, but the flush is not reported as ended yet.
    pub(crate) ends: bool,
    /// The generation up to which somebody asked for a flush.
    pub(crate) asked: Generation,
    /// No flush begins before this moment (monotonic ns), as the last one failed.
    pub(crate) not_before: u64,
    /// How many flushes were tried.
    pub(crate) tries: u64,
    /// Which try was the last to fail, and why.
    pub(crate) failed: Option<(u64, Error)>,
    /// What is remembered of past flushes, for the choice of hot keys.
    pub(crate) hot: HotState,
    /// The share of its cells that the last flush wrote, where it noted that.
    pub(crate) survived: Option<f64>,
}

/// State of a store's compactions.
#[derive(Default)]
pub(crate) struct MergeWork {
    pub(crate) plan_state: PlanState,
    /// The planner's memo that L0 of this shape has nothing to compact, while so many compactions run and a
    /// manual compaction waits or not.
    pub(crate) nothing_of_level0: Option<(Arc<Shape>, usize, bool)>,
    pub(crate) running: Vec<(u32, RunningMerge)>,
    /// No compaction begins before this moment (monotonic ns), as the last one failed.
    pub(crate) not_before: u64,
    /// How many compactions have failed since the last that succeeded.
    pub(crate) failures: u32,
    /// Key counts of sets of tables that plans asked for lately.
    pub(crate) unions: Unions,
    /// Compaction debt found by the last plan, and the part of it that was not inherited.
    pub(crate) debt: u64,
    pub(crate) debt_of_writers: u64,
    /// What the last plan put off.
    pub(crate) deferred: Vec<Deferred>,
    /// How much compactions have rewritten.
    pub(crate) rewritten: Rewritten,
}

/// State of work on a store's memtables.
#[derive(Default)]
pub(crate) struct MemoryWork {
    /// Whether an immutable memtable is being laid out, flat or by range.
    pub(crate) laying_out: bool,
    /// Whether an in-memory compaction is under way.
    pub(crate) joining: bool,
    /// The range whose memory is to be compacted before one is flushed, and why; where memory is held by
    /// range.
    pub(crate) compacts: Option<(KeyRange, String)>,
    /// Whether the last such compaction freed hardly anything, with no range flushed since.
    pub(crate) compacted_in_vain: bool,
    /// The newest memtable that the memory policy was asked about.
    pub(crate) joined_upto: Generation,
    /// What the memory policy remembers since the last disk flush began.
    pub(crate) pipeline: PipelineState,
    /// Measured cost of copying; zero before there was any.
    pub(crate) copy_ns_per_byte: f64,
}

impl MemoryWork {
    /// Notes how long it took to copy live cells into so many bytes.
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

/// The bytes that flushes brought to a store's tables and the bytes that compactions wrote; older ones count
/// less. Values left in the WAL count with the bytes that they would take in tables.
#[derive(Default)]
pub(crate) struct Rewritten {
    came: f64,
    merged: f64,
}

impl Rewritten {
    /// Counts what a flush brought. Once the sum exceeds 64 times `memory`, all so far counts half.
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

    /// How often compactions have written a byte that came, in the mean.
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

    /// Whether a flush of the active memtable was asked for.
    pub(crate) fn flush_is_asked_of_active(&self) -> bool {
        let active = self.version().active.generation();
        active <= self.work.lock().flush.asked
    }
}
