//! What to compact: pure functions from a shape to ranked compactions. No I/O, no clock, no lock, so that
//! every strategy is tested on shapes written as text (`testdata/`) and simulated at 100 TB
//! (`crate::simulate`) by the code that runs in production.
//!
//! - `Strategy` is the interface: `plan` ranks compactions, `debt` says how many bytes are still to be
//!   compacted.
//! - `options` names the strategies; each is one file (`leveled`, `auto`, `size_tiered`, `geometric`,
//!   `exploring`) with its options. `runs` is shared by strategies that compact whole runs, `window` chooses
//!   runs of about one size. `papers` refuses strategies that a build does not have.
//! - `by_range` has the decisions of a strategy that divides memory by key range (`rangemerge`).
//! - `validate` has the rules that every plan must obey, whoever made it; `apply` says how a step of a
//!   compaction changes the shape, as a `ShapeChange` that the manifest stores.
//! - `major` plans a manual compaction of a key range; `triggered` finds ranges that are worth one: with many
//!   tombstones and dead cells, or with many seek misses.
//! - `memtable_policy` says when immutable memtables are compacted, and how; `hot` which keys stay in memory
//!   when the others are flushed.
//! - `wal_values` says whether a flush leaves values in the WAL.
//! - `plan_db` decides across stores, `clean` about the WAL's oldest file; `backpressure` how much a writer
//!   waits, `rate` how fast compactions write.
//!
//! A `CompactionPlan` is a proposal; a `RunningCompaction` is one that was accepted, with the key its steps
//! have reached. Not owned here: running it (`compaction`), giving it a worker (`schedule`), and keeping the
//! state between calls.

mod apply;
mod auto;
mod backpressure;
mod by_range;
mod clean;
#[cfg(feature = "papers")]
mod exploring;
mod geometric;
mod hot;
mod leveled;
mod major;
mod memtable_policy;
mod options;
#[cfg(any(not(feature = "papers"), feature = "testing"))]
mod papers;
mod plan_db;
mod rangemerge;
mod rate;
mod runs;
mod size_tiered;
mod triggered;
mod validate;
mod wal_values;
mod window;

#[cfg(test)]
mod golden;
#[cfg(test)]
mod properties;

pub(crate) use apply::{Step, apply};
pub use auto::AutoOptions;
pub(crate) use backpressure::{Delay, Pressure, backpressure};
pub(crate) use by_range::{ByRange, RangeMemory, Unique, memtables_to_join, victim_beside};
pub(crate) use clean::{FrontFacts, FrontPlan, plan_front};
#[cfg(feature = "papers")]
pub use exploring::ExploringOptions;
pub use geometric::GeometricOptions;
#[cfg(feature = "papers")]
pub use hot::HotTop;
pub use hot::{HotFactor, HotKeys};
pub(crate) use hot::{HotPlan, HotState, KEPT_MAX, keep_budget};
pub use leveled::LeveledOptions;
pub(crate) use major::{Asked, major_part};
#[cfg(feature = "papers")]
pub use memtable_policy::Adaptive;
pub use memtable_policy::{MemoryPolicy, MemtableLimit};
pub(crate) use memtable_policy::{MemtableCompactionKind, PipelineFacts, PipelineState};
pub use options::{METHODS, StrategyOptions};
#[cfg(any(not(feature = "papers"), feature = "testing"))]
pub(crate) use papers::NEEDS_PAPERS;
pub(crate) use plan_db::{DbAction, DbFacts, StoreFacts, plan_db};
pub use rangemerge::{RangemergeOptions, Victim};
pub(crate) use rate::{merge_rate, pacing};
pub(crate) use runs::long_bytes;
pub use size_tiered::SizeTieredOptions;
pub(crate) use validate::{validate, validate_flush, wrong_with_running};
pub(crate) use wal_values::{WalValuesChoice, WalValuesFacts, leave_in_wal};

use crate::shape::{Shape, TableInfo};
use crate::types::{KeyRange, SeqNo, TableId};
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::sync::Arc;

/// A way to lay out SSTables and compact them.
pub(crate) trait Strategy: Send + Sync {
    /// The compactions worth running now, best first. They do not conflict with each other or with running
    /// ones, so as many may start as there are workers.
    fn plan(&self, shape: &Shape, facts: &Facts<'_>, state: &PlanState) -> Plan;

    /// Compaction debt: the bytes still to be compacted beyond what the strategy lets gather; zero when
    /// `plan` has nothing to do. Triggered compactions count as no debt. A continuous function of the
    /// SSTables' sizes; under the same state no step of a compaction raises it.
    fn debt(&self, shape: &Shape, facts: &Facts<'_>, state: &PlanState) -> u64;

    /// Says which setting is out of bounds.
    fn check(&self) -> Result<(), String>;

    /// The level that a major compaction ends in.
    fn last_level(&self, shape: &Shape) -> usize {
        shape.deepest().unwrap_or(0).max(1)
    }

    /// Runs in L0 from which reads begin to suffer, for write stalls and for ranking across stores.
    fn level0_runs(&self) -> usize;

    /// The target size of a flush's SSTables.
    fn sstable_bytes(&self) -> u64;

    /// The strategy's decisions about memory, if it divides memory by key range. Otherwise memory is flushed
    /// as a whole.
    fn by_range(&self) -> Option<&dyn ByRange> {
        None
    }
}

/// What a plan may depend on, besides the shape.
pub(crate) struct Facts<'a> {
    /// Wall clock in seconds, coarse enough that plans are reproducible.
    pub(crate) clock: u64,
    pub(crate) draw: u64,
    pub(crate) running: &'a [RunningCompaction],
    /// The L0 run that a flush is still writing. More SSTables will come to it, so a strategy that compacts
    /// whole runs waits for it.
    pub(crate) flushing: Option<u64>,
    /// Bytes that a flush of full memory writes.
    pub(crate) flush_bytes: u64,
    /// Whether compaction debt or L0 delays or stops writers: then every possible compaction runs.
    pub(crate) pressed: bool,
    /// Whether only short compactions within L0 are wanted.
    pub(crate) within_level0: bool,
    /// The most compactions that are wanted.
    pub(crate) merges_max: usize,
    /// The share of cells that a compaction of the given SSTables would leave.
    pub(crate) unique: Unique<'a>,
    /// Seek misses of the SSTable: reads since it was opened that searched it in vain.
    pub(crate) looks: &'a dyn Fn(TableId) -> u64,
    /// A lower bound on the cells of the SSTable that only snapshots need: overwritten ones and surplus
    /// versions, without deletes and the cells they delete.
    pub(crate) surplus: &'a dyn Fn(TableId) -> u64,
    /// The sequence number up to which every snapshot sees all writes.
    pub(crate) settled_to: SeqNo,
    /// The time to live of a cell in microseconds; 0 for no limit.
    pub(crate) ttl_us: u64,
}

impl Default for Facts<'_> {
    /// The facts where nothing runs, nobody reads or has a snapshot, and no cell is redundant.
    fn default() -> Self {
        Facts {
            clock: 0,
            draw: 0,
            running: &[],
            flushing: None,
            flush_bytes: 0,
            pressed: false,
            within_level0: false,
            merges_max: 0,
            unique: &|_| 1.0,
            looks: &|_| 0,
            surplus: &|_| 0,
            settled_to: SeqNo::MAX,
            ttl_us: 0,
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Plan {
    /// Best first.
    pub(crate) merges: Vec<CompactionPlan>,
    /// The reasons for which due compactions wait, each a sentence with numbers. An event is recorded when
    /// such a wait begins.
    pub(crate) deferred: Vec<String>,
    /// The state to be given to the next call.
    pub(crate) state: PlanState,
}

/// A strategy's state between calls. It may be lost: it is rebuilt from the shape.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct PlanState {
    /// The data size that level sizes are derived from: grows with the shape at once and shrinks only when a
    /// flush comes, so that no finished compaction makes the levels above too large.
    pub(crate) reference_bytes: u64,
    /// The newest flush seen.
    pub(crate) newest_run: u64,
    /// Flushes since reads last paid for a compaction (only `auto` counts them).
    pub(crate) unread: u64,
    /// By level: the end key of the last compaction out of it.
    pub(crate) cursors: Vec<Vec<u8>>,
    /// When the oldest SSTable was created, and when a major compaction is due for it, in seconds.
    pub(crate) major_due: Option<(u64, u64)>,
    /// When the last search of all SSTables found no triggered compaction to start, in seconds.
    pub(crate) early_at: Option<u64>,
}

impl PlanState {
    /// The state, updated for this shape.
    fn observe(&self, shape: &Shape) -> PlanState {
        let newest = shape.levels.first().and_then(|l| l.runs.first()).map_or(0, |run| run.id);
        let total = shape.live_bytes();
        let mut state = self.clone();
        if newest > state.newest_run {
            state.newest_run = newest;
            state.reference_bytes = total;
        }
        state.reference_bytes = state.reference_bytes.max(total);
        state
    }
}

/// How cells get from inputs to output.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum CompactionKind {
    /// Inputs are read and written to new SSTables.
    Merge,
    /// A trivial move: nothing overlaps, so SSTables change their place in the shape, and no byte is read.
    TrivialMove,
}

/// The level and run that a compaction writes to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Target {
    pub(crate) level: usize,
    /// The run's id. If the level has no such run, the first step creates it, at the position of its id.
    pub(crate) run: u64,
}

/// The input SSTables of a compaction from one run.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct InputRun {
    pub(crate) level: usize,
    pub(crate) run: u64,
    /// In key order.
    pub(crate) tables: Vec<TableId>,
}

/// A compaction as a strategy proposes it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct CompactionPlan {
    /// Newest data first.
    pub(crate) inputs: Vec<InputRun>,
    pub(crate) output: Target,
    /// A range that covers the live range of every input. No other compaction may work in it between the
    /// inputs and the output.
    pub(crate) range: KeyRange,
    pub(crate) kind: CompactionKind,
    /// Live bytes of the inputs, which the compaction reads.
    pub(crate) bytes: u64,
    pub(crate) sstable_bytes: u64,
    /// The urgency: the compaction is due above one.
    pub(crate) score: f64,
    /// A sentence with the numbers behind the decision.
    pub(crate) reason: String,
}

impl CompactionPlan {
    pub(crate) fn tables(&self) -> impl Iterator<Item = TableId> + '_ {
        self.inputs.iter().flat_map(|run| run.tables.iter().copied())
    }

    /// The input SSTables that the shape still holds.
    pub(crate) fn live_inputs<'a>(&self, shape: &'a Shape) -> Vec<(RunAge, &'a Arc<TableInfo>)> {
        let mut found = Vec::new();
        for input in &self.inputs {
            let Some(run) = shape.run(input.level, input.run) else { continue };
            let ids: HashSet<TableId> = input.tables.iter().copied().collect();
            let here = run.overlapping(&self.range).filter(|t| ids.contains(&t.id));
            found.extend(here.map(|t| (RunAge::of(input.level, input.run), t)));
        }
        found
    }

    /// The newest and the oldest run that the compaction reads or writes.
    fn span(&self) -> (RunAge, RunAge) {
        let target = self.target();
        let places = || self.inputs.iter().map(|i| RunAge::of(i.level, i.run));
        (places().min().unwrap_or(target).min(target), places().max().unwrap_or(target).max(target))
    }

    fn target(&self) -> RunAge {
        RunAge::of(self.output.level, self.output.run)
    }

    /// Whether the compaction is due, and removes runs of L0.
    pub(crate) fn is_urgent(&self) -> bool {
        self.empties_level0() && self.score >= 1.0
    }

    /// Whether the compaction removes runs of L0.
    pub(crate) fn empties_level0(&self) -> bool {
        self.inputs.iter().any(|input| input.level == 0)
    }
}

#[derive(Clone, PartialEq, Debug)]
pub(crate) struct RunningCompaction {
    pub(crate) plan: CompactionPlan,
    /// The key that its steps have reached.
    pub(crate) clip: Option<Vec<u8>>,
}

impl RunningCompaction {
    /// The keys still to be compacted.
    pub(crate) fn range_left(&self) -> KeyRange {
        let start =
            self.clip.as_ref().map_or(&self.plan.range.start, |clip| clip.max(&self.plan.range.start));
        KeyRange { start: start.clone(), end: self.plan.range.end.clone() }
    }
}

/// A run's position in the order of age: smaller is newer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct RunAge {
    pub(crate) level: usize,
    age: std::cmp::Reverse<u64>,
}

impl RunAge {
    pub(crate) fn of(level: usize, run: u64) -> Self {
        RunAge { level, age: std::cmp::Reverse(run) }
    }

    pub(crate) fn run(self) -> u64 {
        self.age.0
    }
}

/// The smallest range that holds the live ranges of all these SSTables.
pub(crate) fn cover<'a>(tables: impl IntoIterator<Item = &'a Arc<TableInfo>>) -> Option<KeyRange> {
    tables.into_iter().map(|t| t.live_range()).reduce(|a, b| a.cover(&b))
}

fn ids(tables: &[&Arc<TableInfo>]) -> Vec<TableId> {
    tables.iter().map(|t| t.id).collect()
}
