//! The state of background work on one store: what is under way, what was asked for, and what the planner
//! keeps.

use super::family::FamilySettings;
use crate::error::Error;
use crate::shape::Shape;
use crate::strategy::{HotState, PipelineFacts, PipelineState, PlanState, RunningCompaction};
use crate::types::{Generation, KeyRange};
use crate::version::Unions;
use std::sync::Arc;

/// The state that only background work looks at.
#[derive(Default)]
pub(crate) struct StoreWork {
    pub(crate) flush: FlushWork,
    pub(crate) compactions: CompactionWork,
    pub(crate) memory: MemoryWork,
}

/// The store's flushes.
#[derive(Default)]
pub(crate) struct FlushWork {
    /// One is under way.
    pub(super) under_way: bool,
    /// One is installed, or about to be, without its event so far.
    pub(super) ends: bool,
    /// A request: everything up to this generation is to be flushed.
    pub(crate) requested: Generation,
    /// No flush begins before this moment (monotonic ns), as the last one failed.
    pub(crate) not_before: u64,
    /// How often one was tried.
    pub(super) tries: u64,
    /// Which try was the last to fail, and why.
    pub(crate) failed: Option<(u64, Error)>,
    /// The history of flushes, for the choice of hot keys.
    pub(crate) hot: HotState,
    /// The share of its cells that the last flush wrote, where it noted that.
    pub(crate) survived: Option<f64>,
}

/// The store's compactions.
#[derive(Default)]
pub(crate) struct CompactionWork {
    pub(crate) plan_state: PlanState,
    /// The last question of the planner for which nothing of L0 could be compacted.
    pub(crate) nothing_of_level0: Option<LevelZeroQuestion>,
    pub(super) running: Vec<(u32, RunningCompaction)>,
    /// No compaction begins before this moment (monotonic ns), as the last one failed.
    pub(crate) not_before: u64,
    /// How many compactions have failed since the last that succeeded.
    pub(crate) failures: u32,
    /// Key counts of sets of SSTables that plans asked for lately.
    pub(crate) unions: Unions,
    /// Compaction debt found by the last plan, and the part of it that was not inherited.
    pub(crate) debt: u64,
    pub(crate) debt_of_writers: u64,
    /// The compaction that the last plan deferred.
    pub(crate) deferred: Vec<String>,
    /// How much compactions have rewritten.
    pub(crate) rewritten: Rewritten,
}

/// A question of the planner whether something of L0 can be compacted, by what the answer depends on most. It
/// is asked again when one of these has changed, or a compaction has progressed.
#[derive(Clone)]
pub(crate) struct LevelZeroQuestion {
    shape: Arc<Shape>,
    settings: Arc<FamilySettings>,
    flush_bytes: u64,
    /// The running compactions.
    running: Vec<u32>,
    waits: bool,
}

impl PartialEq for LevelZeroQuestion {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shape, &other.shape)
            && Arc::ptr_eq(&self.settings, &other.settings)
            && (self.flush_bytes, &self.running, self.waits)
                == (other.flush_bytes, &other.running, other.waits)
    }
}

/// The work on the store's memory.
#[derive(Default)]
pub(crate) struct MemoryWork {
    /// An immutable memtable is being laid out.
    pub(super) laying_out: bool,
    /// A compaction of memtables is under way.
    pub(super) joining: bool,
    /// Where memory is held by several ranges: the one to be compacted before one is flushed, why, and on
    /// which facts. Until that compaction has ended, or the store has other settings.
    pub(crate) compacts: Option<(KeyRange, String, PipelineFacts)>,
    /// Whether the last such compaction freed hardly anything, with no range flushed since.
    pub(crate) compacted_in_vain: bool,
    /// The newest memtable that the memtable policy was asked about.
    pub(crate) joined_upto: Generation,
    /// The memtable policy's state since the last flush began.
    pub(crate) pipeline: PipelineState,
    /// Measured cost of copying; zero before there was any.
    pub(crate) copy_ns_per_byte: f64,
}

impl FlushWork {
    pub(crate) fn is_under_way(&self) -> bool {
        self.under_way
    }

    /// Whether one is installed, or about to be, without its event so far.
    pub(crate) fn ends(&self) -> bool {
        self.ends
    }

    pub(crate) fn tries(&self) -> u64 {
        self.tries
    }
}

impl CompactionWork {
    /// The compactions that run, oldest first.
    pub(crate) fn running(&self) -> Vec<RunningCompaction> {
        self.running.iter().map(|(_, running)| running.clone()).collect()
    }

    /// The planner's question whether something of L0 can be compacted now; `waits`: whether a manual
    /// compaction waits.
    pub(crate) fn level_zero_question(
        &self,
        shape: &Arc<Shape>,
        settings: &Arc<FamilySettings>,
        flush_bytes: u64,
        waits: bool,
    ) -> LevelZeroQuestion {
        let running = self.running.iter().map(|(id, _)| *id).collect();
        LevelZeroQuestion { shape: shape.clone(), settings: settings.clone(), flush_bytes, running, waits }
    }

    pub(crate) fn is_running(&self) -> bool {
        !self.running.is_empty()
    }
}

impl MemoryWork {
    /// Whether a compaction of memtables is under way.
    pub(crate) fn is_compacting(&self) -> bool {
        self.joining
    }

    /// Records how long a copy of live cells into so many bytes took.
    pub(crate) fn note_copy(&mut self, bytes: u64, busy_ns: u64) {
        if bytes > COPY_NOTED_MIN {
            let measured = busy_ns as f64 / bytes as f64;
            let before = self.copy_ns_per_byte;
            self.copy_ns_per_byte = if before == 0.0 { measured } else { (3.0 * before + measured) / 4.0 };
        }
    }
}

/// A smaller copy is no measure of the cost.
const COPY_NOTED_MIN: u64 = 64 << 10;

/// The bytes that flushes brought to a store's SSTables and the bytes that compactions wrote; older ones
/// count less. Values left in the WAL count with the bytes that they would take in SSTables.
#[derive(Default)]
pub(crate) struct Rewritten {
    came: f64,
    merged: f64,
}

impl Rewritten {
    /// Counts the bytes of a flush. Once the sum exceeds 64 times `memory`, all earlier bytes count half.
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

    /// How often compactions have rewritten each flushed byte, on average.
    pub(crate) fn times(&self) -> f64 {
        self.merged / self.came.max(1.0)
    }
}
