//! The stepped-merge algorithm, also called size-tiered compaction: a level has up to `runs` runs; when one
//! more comes, its `runs` oldest are compacted into one run of the next level. A flush is a run of L0.
//!
//! Rangemerge's paper (section 3) merges a level "when k runs accumulate". Its figures (up to 8 files for 20
//! flushes at k 4, 6 at k 2, a largest compaction of 9 and 29 flushes' bytes, cascade included) follow only
//! if the level is merged when a run comes to a full one, so that is the rule here. Where flushes are of one
//! size, Cassandra's size-tiered compaction has the same pattern.
//!
//! Compactions out of different levels run side by side, and each level is a queue: runs come in by age and
//! leave by `runs` in the same order. So whichever compaction is faster, the same runs are compacted
//! together.
//!
//! *Debt* is the bytes of the newest runs of L0 beyond `2 k`: those of a full level and those that are being
//! compacted. A compaction makes them fewer and never newer. Debt of deeper levels shows there too, when
//! their compactions leave L0 no worker; so a cascade through all levels delays nobody as long as L0 keeps
//! up.
//!
//! Triggered compactions run too (`early`). Runs that wait in L0 behind a long compaction of other levels,
//! such as a manual one, are compacted within L0 (`runs::gather`).
//!
//! With `runs` infinite nothing is ever compacted: `nomerge`.

use super::runs::{DEEPEST, RunPlanner, within};
use super::{Facts, Plan, PlanState, Strategy};
use crate::shape::{Run, Shape};
use crate::types::size_text;
use serde::{Deserialize, Serialize};

/// Settings of `size_tiered`.
///
/// ```
/// use siltstone::strategy::{SizeTieredOptions, StrategyOptions};
/// let never = SizeTieredOptions { runs: SizeTieredOptions::NEVER, ..Default::default() };
/// assert_eq!(StrategyOptions::SizeTiered(never).to_string(), "nomerge");
/// ```
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SizeTieredOptions {
    /// The number of runs that a level may have and that are compacted at once.
    #[serde(alias = "k")]
    pub runs: u64,
    /// Target size of output SSTables.
    #[serde(alias = "table_bytes")]
    pub sstable_bytes: u64,
}

impl SizeTieredOptions {
    /// The value of `runs` with which runs are never compacted. The strategy is then called `nomerge`.
    pub const NEVER: u64 = u64::MAX;
}

impl Default for SizeTieredOptions {
    fn default() -> Self {
        SizeTieredOptions { runs: 4, sstable_bytes: 64 << 20 }
    }
}

impl Strategy for SizeTieredOptions {
    fn check(&self) -> Result<(), String> {
        #[cfg(not(feature = "papers"))]
        if self.runs == Self::NEVER {
            return Err(super::papers::needs_papers("strategy", "nomerge"));
        }
        if self.runs != Self::NEVER {
            within("runs", self.runs, 2, 1000)?;
        }
        within("sstable_bytes", self.sstable_bytes, 4096, 1 << 50)
    }

    fn plan(&self, shape: &Shape, facts: &Facts<'_>, state: &PlanState) -> Plan {
        let mut planner = RunPlanner::new(shape, facts, self.sstable_bytes, state.clone());
        let levels = if facts.within_level0 { 0 } else { shape.levels.len().min(DEEPEST) };
        for level in 0..levels {
            let runs = planner.resting(level);
            if runs.len() as u64 <= self.runs || planner.full() {
                continue;
            }
            let oldest = &runs[runs.len() - self.runs as usize..];
            let bytes: u64 = oldest.iter().map(|(_, run)| run.live_bytes()).sum();
            let (found, most, bytes) = (runs.len(), self.runs, size_text(bytes));
            let what = format!("L{level} has {found} runs, {most} at most: the oldest, {bytes}");
            // More urgent the fuller the level, and the smaller the compaction among equals.
            let score = runs.len() as f64 / self.runs as f64 + 0.1 / (level + 1) as f64;
            let output = planner.output(level + 1, oldest);
            planner.compact(oldest, output, score, what);
        }
        planner.gather(self.level0_runs());
        if self.runs != Self::NEVER && !facts.within_level0 {
            planner.early(self.last_level(shape));
        }
        planner.finish()
    }

    fn debt(&self, shape: &Shape, _facts: &Facts<'_>, _state: &PlanState) -> u64 {
        let runs = shape.levels.first().map_or(&[][..], |level| level.runs.as_slice());
        let most = usize::try_from(self.runs.saturating_mul(2)).unwrap_or(usize::MAX);
        runs[..runs.len().saturating_sub(most)].iter().map(Run::live_bytes).sum()
    }

    fn level0_runs(&self) -> usize {
        usize::try_from(self.runs.saturating_add(1)).unwrap_or(usize::MAX)
    }

    fn sstable_bytes(&self) -> u64 {
        self.sstable_bytes
    }
}
