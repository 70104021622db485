//! Leveled compaction that decides by itself how long L0 may wait, from what reads cost and what is
//! overwritten.
//!
//! The cost of compacting L0, per byte written, falls with the number of flushes that are compacted at once,
//! as the level below is rewritten once for all of them. The cost of waiting is paid by reads, which search
//! one run more for each flush, and by the disk, which keeps what was overwritten. Neither is known
//! beforehand, and both change. So L0, from `RUNS_MIN` runs on, waits until one of these says that the
//! compaction is worth it:
//!
//! * *Scans and gets.* SSTables count their seek misses. Once these have taken as long as the compaction will
//!   (`triggered` says how long one takes), it is due, also with fewer runs. As with renting until the rent
//!   has reached the price of buying, this costs at most twice the best choice.
//! * *Skew and overlap.* Sketches estimate the share of cells that a compaction would drop: of L0, of the
//!   gathering level, and of the base where that is not far larger. From two fifths on it is due. So space
//!   stays bounded, and keys that are written again and again are compacted early, when that is cheap.
//! * *Limits.* At `runs_max` runs, or as many flushes' bytes, and wherever writers would stall for
//!   compactions. A family that was just loaded may be read next, so it begins with `RUNS_MIN` and may have a
//!   run more for every few flushes without reads that pay for a compaction.
//!
//! Everything else is `leveled`, with levels sized as if L0 were compacted at `runs_max`. Only the moment of
//! a compaction depends on the load, so nothing is rewritten when the load changes.

use super::leveled::LeveledOptions;
use super::runs::within;
use super::{Facts, Plan, PlanState, Strategy};
use crate::shape::Shape;
use serde::{Deserialize, Serialize};

/// Runs in L0 that are compacted only for other reasons than their number.
const RUNS_MIN: u64 = 4;

/// Settings of `auto`.
///
/// ```
/// let options = siltstone::strategy::AutoOptions { runs_max: 24, ..Default::default() };
/// assert_eq!(siltstone::strategy::StrategyOptions::Auto(options).to_string(), "auto{runs_max=24}");
/// ```
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AutoOptions {
    /// Flushes in L0 that make a compaction due in any case. Default 16.
    pub runs_max: u64,
    /// Target size of output SSTables. Default 64 MiB.
    #[serde(alias = "table_bytes")]
    pub sstable_bytes: u64,
}

impl Default for AutoOptions {
    fn default() -> Self {
        AutoOptions { runs_max: 16, sstable_bytes: LeveledOptions::default().sstable_bytes }
    }
}

impl AutoOptions {
    fn leveled(&self) -> LeveledOptions {
        LeveledOptions {
            l0_runs_trigger: RUNS_MIN,
            sstable_bytes: self.sstable_bytes,
            defer_below: None,
            ..LeveledOptions::default()
        }
    }
}

impl Strategy for AutoOptions {
    fn check(&self) -> Result<(), String> {
        within("runs_max", self.runs_max, RUNS_MIN, 1000)?;
        within("sstable_bytes", self.sstable_bytes, 4096, 1 << 50)
    }

    fn plan(&self, shape: &Shape, facts: &Facts<'_>, state: &PlanState) -> Plan {
        self.leveled().planned(shape, facts, state, Some(self.runs_max))
    }

    fn debt(&self, shape: &Shape, facts: &Facts<'_>, state: &PlanState) -> u64 {
        self.leveled().debt_with(shape, facts, state, Some(self.runs_max))
    }

    fn last_level(&self, shape: &Shape) -> usize {
        self.leveled().last_level(shape)
    }

    fn level0_runs(&self) -> usize {
        usize::try_from(self.runs_max).unwrap_or(usize::MAX)
    }

    fn sstable_bytes(&self) -> u64 {
        self.sstable_bytes
    }
}
