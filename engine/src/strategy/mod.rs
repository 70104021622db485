//! What to compact: pure functions from a shape to ranked compactions. No I/O, no clock, no lock, so that
//! every strategy is tested on shapes written as text (`testdata/`) and simulated at 100 TB
//! (`crate::simulate`) by the code that runs in production.
//!
//! - `Strategy` is the interface: `plan` ranks compactions, `debt` says how many bytes are still to be
//!   compacted.
//! - `StrategyOptions` names the strategies; each is one file (`leveled`, `auto`, `size_tiered`, `geometric`,
//!   `exploring`) with its options. `options` has the parts for reading and printing settings as text. `runs`
//!   is shared by strategies that compact whole runs, `window` chooses runs of about one size. `papers`
//!   refuses strategies that a build does not have.
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
pub(crate) use major::{ManualRequest, major_part};
#[cfg(feature = "papers")]
pub use memtable_policy::Adaptive;
pub(crate) use memtable_policy::{MemtableCompactionKind, PipelineFacts, PipelineState};
pub use memtable_policy::{MemtableLimit, MemtablePolicy};
#[cfg(any(not(feature = "papers"), feature = "testing"))]
pub(crate) use papers::NEEDS_PAPERS;
pub(crate) use plan_db::{DbAction, DbFacts, StoreFacts, plan_db};
pub use rangemerge::{RangemergeOptions, Victim};
pub(crate) use rate::{compaction_rate, pacing};
pub(crate) use runs::long_bytes;
pub use size_tiered::SizeTieredOptions;
pub(crate) use validate::{validate, validate_flush, wrong_with_running};
pub(crate) use wal_values::{WalValuesChoice, WalValuesFacts, leave_in_wal};

use crate::shape::{Shape, TableInfo};
use crate::types::{KeyRange, SeqNo, TableId};
#[cfg(feature = "papers")]
use options::parse_named;
use options::{changed, parse_settings, split_settings, without};
#[cfg(not(feature = "papers"))]
use papers::needs_papers;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::HashSet;
use std::fmt;
use std::str::FromStr;
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

/// The strategies, with settings worth comparing: none is best at everything. `auto` is missing, because its
/// costs depend on readers, and a simulation has none.
///
/// ```
/// use siltstone::strategy::{METHODS, StrategyOptions};
/// assert!(METHODS.iter().all(|text| text.parse::<StrategyOptions>().is_ok()));
/// ```
pub const METHODS: &[&str] = &[
    "leveled",
    "size_tiered{runs=4}",
    "size_tiered{runs=2}",
    "geometric{ratio=2}",
    "geometric{ratio=3}",
    "geometric{runs=2}",
    #[cfg(feature = "papers")]
    "remerge",
    "rangemerge",
    "rangemerge{deltas_max=4}",
    #[cfg(feature = "papers")]
    "exploring",
    #[cfg(feature = "papers")]
    "nomerge",
];

/// A compaction strategy and its settings, chosen per column family.
///
/// ```
/// use siltstone::strategy::StrategyOptions;
/// let strategy: StrategyOptions = "leveled{multiplier=8}".parse().unwrap();
/// assert_eq!(strategy.to_string(), "leveled{multiplier=8}");
/// let error = "leveled{multiplyer=8}".parse::<StrategyOptions>().unwrap_err();
/// assert!(error.contains("multiplyer"));
/// ```
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StrategyOptions {
    /// `leveled`, with an L0 that is compacted as late as reads allow.
    Auto(AutoOptions),
    /// One run per level below L0, each level some ten times as large as the one above.
    Leveled(LeveledOptions),
    /// One run of files, each with a key range of its own; memory is merged with one of them at a time.
    Rangemerge(RangemergeOptions),
    /// Size-tiered: the `runs` runs of a level become one run of the next when another comes. `nomerge` is
    /// `runs` without end.
    #[serde(alias = "sma")]
    SizeTiered(SizeTieredOptions),
    /// One run per level, each bounded `ratio` times higher than the one above, or `runs` runs at all sizes.
    /// `remerge` is `runs` 1.
    Geometric(GeometricOptions),
    /// HBase's selection of runs adjacent in age, of about one size.
    #[cfg(feature = "papers")]
    Exploring(ExploringOptions),
}

impl Default for StrategyOptions {
    fn default() -> Self {
        StrategyOptions::Leveled(LeveledOptions::default())
    }
}

#[cfg(feature = "papers")]
const NAMES: &str = "auto, leveled, size_tiered, nomerge, geometric, remerge, exploring, rangemerge";
#[cfg(not(feature = "papers"))]
const NAMES: &str = "auto, leveled, size_tiered, geometric, rangemerge";

/// The name of `size_tiered` in settings of tables that older servers kept as text.
const OLD_SIZE_TIERED: &str = "sma";

impl StrategyOptions {
    /// The strategy behind the name.
    pub(crate) fn strategy(&self) -> &dyn Strategy {
        match self {
            StrategyOptions::Auto(options) => options,
            StrategyOptions::Leveled(options) => options,
            StrategyOptions::Rangemerge(options) => options,
            StrategyOptions::SizeTiered(options) => options,
            StrategyOptions::Geometric(options) => options,
            #[cfg(feature = "papers")]
            StrategyOptions::Exploring(options) => options,
        }
    }

    /// This strategy with SSTables so large that this much data has at most about `tables_max` of them, and
    /// the factor by which they grew.
    pub(crate) fn with_tables_for(&self, data_bytes: u64, tables_max: u64) -> (Self, f64) {
        // Levels above the last add a good tenth, runs of other strategies as much again, and SSTables come
        // out smaller than their target.
        let least = match self {
            StrategyOptions::Leveled(_) | StrategyOptions::Auto(_) => data_bytes / tables_max / 2 * 3,
            _ => data_bytes / tables_max * 3,
        };
        let mut scaled = self.clone();
        let sstable_bytes = scaled.sstable_bytes();
        let factor = (least as f64 / *sstable_bytes as f64).max(1.0);
        *sstable_bytes = least.max(*sstable_bytes);
        (scaled, factor)
    }

    /// This strategy with SSTables of that size, for tests that take all of [`METHODS`].
    #[cfg(any(test, feature = "testing"))]
    #[doc(hidden)]
    #[must_use]
    pub fn with_sstable_bytes(mut self, sstable_bytes: u64) -> Self {
        *self.sstable_bytes() = sstable_bytes;
        self
    }

    /// The option for the target size of SSTables.
    fn sstable_bytes(&mut self) -> &mut u64 {
        match self {
            StrategyOptions::Auto(options) => &mut options.sstable_bytes,
            StrategyOptions::Leveled(options) => &mut options.sstable_bytes,
            StrategyOptions::Rangemerge(options) => &mut options.sstable_bytes,
            StrategyOptions::SizeTiered(options) => &mut options.sstable_bytes,
            StrategyOptions::Geometric(options) => &mut options.sstable_bytes,
            #[cfg(feature = "papers")]
            StrategyOptions::Exploring(options) => &mut options.sstable_bytes,
        }
    }

    /// Says which setting is out of bounds.
    pub fn check(&self) -> Result<(), String> {
        self.strategy().check()
    }

    fn name_and_settings(&self) -> (&'static str, Map<String, Value>) {
        match self {
            StrategyOptions::Auto(options) => ("auto", changed(options)),
            StrategyOptions::Leveled(options) => ("leveled", changed(options)),
            StrategyOptions::Rangemerge(options) => ("rangemerge", changed(options)),
            StrategyOptions::SizeTiered(options) => match options.runs {
                SizeTieredOptions::NEVER => ("nomerge", without(changed(options), "runs")),
                _ => ("size_tiered", changed(options)),
            },
            StrategyOptions::Geometric(options) => match options.runs {
                Some(1) => ("remerge", without(changed(options), "runs")),
                _ => ("geometric", changed(options)),
            },
            #[cfg(feature = "papers")]
            StrategyOptions::Exploring(options) => ("exploring", changed(options)),
        }
    }
}

impl FromStr for StrategyOptions {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, settings) = split_settings("strategy", text)?;
        let strategy = match name {
            "auto" => StrategyOptions::Auto(parse_settings(name, settings)?),
            "leveled" => StrategyOptions::Leveled(parse_settings(name, settings)?),
            "rangemerge" => StrategyOptions::Rangemerge(parse_settings(name, settings)?),
            "size_tiered" | OLD_SIZE_TIERED => StrategyOptions::SizeTiered(parse_settings(name, settings)?),
            #[cfg(not(feature = "papers"))]
            "nomerge" | "remerge" | "exploring" => return Err(needs_papers("strategy", name)),
            #[cfg(feature = "papers")]
            "nomerge" => StrategyOptions::SizeTiered(SizeTieredOptions {
                runs: SizeTieredOptions::NEVER,
                ..parse_named(name, settings, &["runs"])?
            }),
            "geometric" => StrategyOptions::Geometric(parse_settings(name, settings)?),
            #[cfg(feature = "papers")]
            "remerge" => StrategyOptions::Geometric(GeometricOptions {
                runs: Some(1),
                ..parse_named(name, settings, &["ratio", "runs"])?
            }),
            #[cfg(feature = "papers")]
            "exploring" => StrategyOptions::Exploring(parse_settings(name, settings)?),
            _ => return Err(format!("unknown strategy `{name}`; there is: {NAMES}")),
        };
        strategy.check().map_err(|why| format!("strategy {name}: {why}"))?;
        Ok(strategy)
    }
}

impl fmt::Display for StrategyOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, settings) = self.name_and_settings();
        f.write_str(name)?;
        let mut open = "{";
        for (key, value) in &settings {
            match value {
                Value::String(word) => write!(f, "{open}{key}={word}")?,
                value => write!(f, "{open}{key}={value}")?,
            }
            open = ", ";
        }
        if settings.is_empty() { Ok(()) } else { f.write_str("}") }
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
    pub(crate) compactions_max: usize,
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
    /// The facts where nothing runs, up to eight compactions may, nobody reads or has a snapshot, and no cell
    /// is redundant.
    fn default() -> Self {
        Facts {
            clock: 0,
            draw: 0,
            running: &[],
            flushing: None,
            flush_bytes: 0,
            pressed: false,
            within_level0: false,
            compactions_max: 8,
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
    pub(crate) compactions: Vec<CompactionPlan>,
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
    pub(crate) triggered_at: Option<u64>,
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
