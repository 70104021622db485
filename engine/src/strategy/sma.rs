//! The stepped-merge algorithm, also called size-tiered merging: a level holds up to `k` runs; when one more comes, its
//! `k` oldest are merged into one run of the next level. A flush is a run of level 0.
//!
//! Rangemerge's paper (section 3) merges a level "when k runs accumulate". Its figures (up to 8 files for 20 flushes at
//! k 4, 6 at k 2, a largest compaction of 9 and 29 flushes' bytes, cascade included) follow only if the level is merged
//! when a run comes to a full one, so that is the rule here. It is the pattern of Cassandra's size-tiered compaction, too,
//! where the flushes are of one size.
//!
//! Merges out of different levels run beside each other, and each level is a queue: runs come in by age and leave by `k`
//! in the same order. So whichever merge is faster, the same runs are merged with each other, and what is still to be
//! written is known exactly.
//!
//! *Debt* is what the merges now due would write, level by level, but for what a level may have under way: one merge of
//! runs of their usual size, `k^(level+1)` flushes. So a cascade through all levels owes nothing as long as every level keeps
//! up, and writers are slowed down only if merges fall behind.
//!
//! With `k` infinite nothing is ever merged: `nomerge`, the other end of the scale.

use super::runs::{DEEPEST, RunPlanner, within};
use super::{Facts, Plan, PlanState, Strategy, Target};
use crate::types::size_text;
use crate::version::shape::{Run, Shape};
use serde::{Deserialize, Serialize};
use std::collections::{HashSet, VecDeque};

/// Settings of `sma`.
///
/// ```
/// use siltstone::strategy::{SmaOptions, StrategyOptions};
/// let never = SmaOptions { k: SmaOptions::NEVER, ..Default::default() };
/// assert_eq!(StrategyOptions::Sma(never).to_string(), "nomerge");
/// ```
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SmaOptions {
    /// Runs that a level holds and that are merged at once.
    pub k: u64,
    /// Size at which output tables are cut.
    pub table_bytes: u64,
}

impl SmaOptions {
    /// As `k`: runs are never merged. The strategy is then called `nomerge`.
    pub const NEVER: u64 = u64::MAX;

    pub(crate) fn check(&self) -> Result<(), String> {
        if self.k != Self::NEVER {
            within("k", self.k, 2, 1000)?;
        }
        within("table_bytes", self.table_bytes, 4096, 1 << 50)
    }

    /// What a level may have under way without owing anything.
    fn usual(&self, level: usize, facts: &Facts<'_>) -> u64 {
        let power = self.k.saturating_pow(level as u32 + 1);
        power.saturating_mul(facts.flush_bytes.max(1))
    }
}

impl Default for SmaOptions {
    fn default() -> Self {
        SmaOptions { k: 4, table_bytes: 64 << 20 }
    }
}

impl Strategy for SmaOptions {
    fn plan(&self, shape: &Shape, facts: &Facts<'_>, state: &PlanState) -> Plan {
        let mut planner = RunPlanner::new(shape, facts, self.table_bytes, state.clone());
        for level in 0..shape.levels.len().min(DEEPEST) {
            let runs = planner.resting(level);
            if runs.len() as u64 <= self.k || planner.full() {
                continue;
            }
            let oldest = &runs[runs.len() - self.k as usize..];
            let bytes: u64 = oldest.iter().map(|(_, run)| run.live_bytes()).sum();
            let what = format!(
                "level {level} has {} runs, {} at most: the oldest, {}",
                runs.len(),
                self.k,
                size_text(bytes)
            );
            // More urgent the fuller the level, and the smaller the merge among equals.
            let score = runs.len() as f64 / self.k as f64 + 0.1 / (level + 1) as f64;
            let output = Target { level: level + 1, run: oldest[0].1.id };
            planner.merge(oldest, output, score, what);
        }
        planner.finish()
    }

    fn debt(&self, shape: &Shape, facts: &Facts<'_>, _state: &PlanState) -> u64 {
        let steps = || {
            facts.running.iter().filter(|m| m.plan.inputs.iter().all(|i| i.level + 1 == m.plan.output.level))
        };
        let made: HashSet<(usize, u64)> = steps().map(|m| (m.plan.output.level, m.plan.output.run)).collect();
        let mut debt = 0u64;
        // Sizes of the runs that will have come from the level above, oldest first.
        let mut coming: Vec<u64> = Vec::new();
        for (level, here) in shape.levels.iter().enumerate().take(DEEPEST) {
            debt = debt.saturating_add(self.owed(level, &here.runs, &made, &mut coming, shape, facts));
        }
        for level in shape.levels.len()..DEEPEST {
            if coming.len() as u64 <= self.k {
                break;
            }
            debt = debt.saturating_add(self.owed(level, &[], &made, &mut coming, shape, facts));
        }
        debt
    }

    fn last_level(&self, shape: &Shape) -> usize {
        shape.deepest().unwrap_or(0).max(1)
    }

    fn level0_runs(&self) -> usize {
        usize::try_from(self.k.saturating_add(1)).unwrap_or(usize::MAX)
    }

    fn table_bytes(&self) -> u64 {
        self.table_bytes
    }
}

impl SmaOptions {
    /// What merges out of this level are still to write beyond the usual; `coming` is what comes to it, and becomes what
    /// comes to the next.
    fn owed(
        &self,
        level: usize,
        runs: &[Run],
        made: &HashSet<(usize, u64)>,
        coming: &mut Vec<u64>,
        shape: &Shape,
        facts: &Facts<'_>,
    ) -> u64 {
        let mut leaving = Vec::new();
        let (mut owed, mut taken) = (0, HashSet::new());
        let from_here = |i: &super::InputRun| i.level == level;
        for merge in facts.running.iter().filter(|m| m.plan.output.level == level + 1) {
            if !merge.plan.inputs.iter().all(from_here) {
                continue;
            }
            let inputs = merge.plan.live_inputs(shape);
            let left: u64 = inputs.iter().map(|(_, table)| table.live_bytes()).sum();
            let done = shape.run(level + 1, merge.plan.output.run).map_or(0, Run::live_bytes);
            taken.extend(merge.plan.inputs.iter().map(|input| input.run));
            leaving.push(left + done);
            owed += left;
        }
        let here =
            runs.iter().rev().filter(|run| !taken.contains(&run.id) && !made.contains(&(level, run.id)));
        let mut queue: VecDeque<u64> = here.map(Run::live_bytes).chain(coming.drain(..)).collect();
        while queue.len() as u64 > self.k {
            let group: u64 = queue.drain(..self.k as usize).sum();
            owed += group;
            leaving.push(group);
        }
        *coming = leaving;
        owed.saturating_sub(self.usual(level, facts))
    }
}
