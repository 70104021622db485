//! HBase's exploring selection (OFF-8): of all windows of runs adjacent in age, compact the best one that
//! obeys the rules.
//!
//! *Minor.* A window has `min_runs` to `max_runs` runs and at most `max_bytes`; each of its runs has at most
//! `ratio` times the bytes of the others together, so that no large run is rewritten for the sake of small
//! ones. Windows smaller than a flush need not keep the ratio. The window of most runs is best; among equals,
//! the one of least bytes. From `blocking_runs` runs on the selection may be stuck: then the window that
//! removes most runs per byte is best, and if none keeps the ratio, the smallest of all is taken. In off-peak
//! hours a larger ratio applies, so that more is compacted.
//!
//! *Major.* When the oldest SSTable is older than `major_period_s`, give or take a drawn share of
//! `major_jitter`, all runs become one. The draw is made once for each oldest SSTable, so that families
//! opened together are not compacted together. Idle workers plan twice a second, so it is also made where
//! nothing is written. While it is due and compactions are in its way, no minor compaction starts, so that it
//! waits only for running ones. It takes the SSTables that a running flush has written so far. In between,
//! triggered compactions run (`early`).
//!
//! *Where runs are.* Flushes come to L0. A window that takes the oldest of them goes to level 1, as its
//! newest run, or into the deeper run that ends the window; a window within L0 stays there. Runs of a running
//! compaction, and all older ones, are not selected.
//!
//! *Debt* is the bytes of the newest runs of L0 beyond `blocking_runs`: a compaction makes them fewer and
//! never newer.

use super::major::{ManualRequest, major};
use super::runs::{Placed, RunPlanner, within};
use super::window::{RATIO, WindowRules};
use super::{Facts, Plan, PlanState, RunningCompaction, Strategy, Target};
use crate::shape::{Run, Shape};
use crate::types::{KeyRange, size_text};
use serde::{Deserialize, Serialize};

/// Settings of `exploring`.
///
/// ```
/// let options = siltstone::strategy::ExploringOptions::default();
/// assert_eq!((options.min_runs, options.max_runs, options.ratio), (3, 10, 1.2));
/// ```
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ExploringOptions {
    /// The fewest runs of a minor compaction.
    pub min_runs: u64,
    /// The most runs of a minor compaction.
    pub max_runs: u64,
    /// The most bytes of a minor compaction, while the selection is not stuck.
    pub max_bytes: u64,
    /// The most bytes that a run may have, as a multiple of the others in the compaction together.
    pub ratio: f64,
    /// The ratio in off-peak hours.
    pub off_peak_ratio: f64,
    /// The hour (UTC) in which the off-peak time begins.
    pub off_peak_start: u64,
    /// The hour in which the off-peak time ends; none if it equals `off_peak_start`.
    pub off_peak_end: u64,
    /// The number of runs from which the selection counts as stuck.
    pub blocking_runs: u64,
    /// Seconds after which a major compaction makes all runs one, about; 0: never.
    pub major_period_s: u64,
    /// Share of the period by which a major compaction comes earlier or later.
    pub major_jitter: f64,
    /// Target size of output SSTables.
    #[serde(alias = "table_bytes")]
    pub sstable_bytes: u64,
}

impl Default for ExploringOptions {
    fn default() -> Self {
        ExploringOptions {
            min_runs: WindowRules::default().min_runs as u64,
            max_runs: WindowRules::default().max_runs as u64,
            max_bytes: WindowRules::default().max_bytes,
            ratio: RATIO,
            off_peak_ratio: 5.0,
            off_peak_start: 0,
            off_peak_end: 0,
            blocking_runs: 16,
            major_period_s: 7 * 24 * 3600,
            major_jitter: 0.5,
            sstable_bytes: 64 << 20,
        }
    }
}

impl ExploringOptions {
    /// The ratio at this time, and its name.
    fn ratio_at(&self, clock: u64) -> (f64, &'static str) {
        let hour = clock / 3600 % 24;
        let (start, end) = (self.off_peak_start, self.off_peak_end);
        let is_off_peak =
            if start <= end { (start..end).contains(&hour) } else { hour >= start || hour < end };
        if is_off_peak { (self.off_peak_ratio, "off-peak ratio") } else { (self.ratio, "ratio") }
    }

    /// When the major compaction is due, with a new draw if the oldest SSTable has changed.
    fn major_due(&self, shape: &Shape, facts: &Facts<'_>, state: &mut PlanState) -> Option<u64> {
        let oldest = shape.tables().map(|(_, _, table)| table.created / 1_000_000).min()?;
        if self.major_period_s == 0 {
            return None;
        }
        let drawn = state.major_due.filter(|(of, _)| *of == oldest);
        let (_, due) = drawn.unwrap_or_else(|| {
            let share = (facts.draw >> 11) as f64 / (1u64 << 53) as f64;
            let factor = 1.0 + self.major_jitter * (2.0 * share - 1.0);
            (oldest, oldest.saturating_add((self.major_period_s as f64 * factor) as u64))
        });
        state.major_due = Some((oldest, due));
        Some(due)
    }

    /// Whether there are too many runs that may be compacted. HBase also counts the ones behind running
    /// compactions, and then compacts the few newest again and again.
    fn is_stuck(&self, sizes: &[u64]) -> bool {
        sizes.len() as u64 >= self.blocking_runs
    }

    fn rules(&self) -> WindowRules {
        let (min_runs, max_runs) = (self.min_runs as usize, self.max_runs as usize);
        WindowRules { min_runs, max_runs, max_bytes: self.max_bytes }
    }
}

impl Strategy for ExploringOptions {
    fn check(&self) -> Result<(), String> {
        within("min_runs", self.min_runs, 2, 1000)?;
        within("max_runs", self.max_runs, self.min_runs, 1000)?;
        within("blocking_runs", self.blocking_runs, self.min_runs, 10_000)?;
        within("off_peak_start", self.off_peak_start, 0, 23)?;
        within("off_peak_end", self.off_peak_end, 0, 23)?;
        within("sstable_bytes", self.sstable_bytes, 4096, 1 << 50)?;
        for (name, ratio) in [("ratio", self.ratio), ("off_peak_ratio", self.off_peak_ratio)] {
            if !(0.1..=1000.0).contains(&ratio) {
                return Err(format!("{name} must lie between 0.1 and 1000, not {ratio}"));
            }
        }
        match self.major_jitter {
            jitter if (0.0..=1.0).contains(&jitter) => Ok(()),
            jitter => Err(format!("major_jitter must lie between 0 and 1, not {jitter}")),
        }
    }

    fn plan(&self, shape: &Shape, facts: &Facts<'_>, state: &PlanState) -> Plan {
        let mut state = state.clone();
        let due = self.major_due(shape, facts, &mut state);
        let mut planner = RunPlanner::new(shape, facts, self.sstable_bytes, state);
        let surplus = |table| (facts.surplus)(table) > 0;
        let request = ManualRequest { surplus: &surplus, ..ManualRequest::ALL };
        // A running compaction that takes the oldest run will change it when it ends, or is the major
        // compaction itself.
        let in_hand = facts.running.iter().any(|compaction| takes_oldest(shape, compaction));
        if due.is_some_and(|due| facts.clock >= due)
            && !in_hand
            && let Some(mut compaction) =
                major(shape, &KeyRange::all(), request, self.last_level(shape), self.sstable_bytes)
        {
            compaction.reason =
                format!("{}, older than {} s give or take", compaction.reason, self.major_period_s);
            if !planner.accept(compaction) {
                return planner.finish();
            }
        }
        while !planner.full() && self.minor(&mut planner, facts) {}
        planner.early(self.last_level(shape));
        planner.finish()
    }

    fn debt(&self, shape: &Shape, _facts: &Facts<'_>, _state: &PlanState) -> u64 {
        let runs = shape.levels.first().map_or(&[][..], |l| l.runs.as_slice());
        let surplus = runs.len().saturating_sub(self.blocking_runs as usize);
        runs[..surplus].iter().map(Run::live_bytes).sum()
    }

    fn level0_runs(&self) -> usize {
        self.blocking_runs as usize
    }

    fn sstable_bytes(&self) -> u64 {
        self.sstable_bytes
    }
}

impl ExploringOptions {
    /// Plans one minor compaction; returns whether there was one.
    fn minor(&self, planner: &mut RunPlanner<'_>, facts: &Facts<'_>) -> bool {
        let shape = planner.shape;
        let newest = facts.flushing;
        // Runs newer than all running compactions, without the one of a running flush.
        let mut runs: Vec<Placed<'_>> = shape
            .runs()
            .skip_while(|(level, run)| *level == 0 && newest == Some(run.id))
            .take_while(|(level, run)| planner.at_rest(*level, run))
            .collect();
        runs.reverse();
        let sizes: Vec<u64> = runs.iter().map(|(_, run)| run.live_bytes()).collect();
        let (ratio, name) = self.ratio_at(facts.clock);
        let stuck = self.is_stuck(&sizes);
        let Some((window, keeps)) = self.rules().select(&sizes, stuck, facts.flush_bytes, ratio) else {
            return false;
        };
        let bytes: u64 = sizes[window.clone()].iter().sum();
        let mut picked = runs[window.clone()].to_vec();
        picked.reverse();
        let (level, oldest) = picked[picked.len() - 1];
        let takes_oldest = |runs: &[Run]| runs.last().is_some_and(|last| last.id == oldest.id);
        let output = match level {
            0 if takes_oldest(&shape.levels[0].runs) => planner.output(1, &picked),
            _ => Target { level, run: oldest.id },
        };
        let (picks, all, bytes) = (window.len(), sizes.len(), size_text(bytes));
        let keeps = if keeps { "keep" } else { "the smallest, break" };
        let what = format!("{picks} of {all} runs, {bytes}, {keeps} the {name} {ratio}");
        planner.compact(&picked, output, sizes.len() as f64 / self.min_runs as f64, what)
    }
}

/// Whether the compaction takes the oldest run, as a major one does.
fn takes_oldest(shape: &Shape, compaction: &RunningCompaction) -> bool {
    let Some((level, run)) = shape.runs().last() else { return false };
    let plan = &compaction.plan;
    let mut places = plan.inputs.iter().map(|input| Target { level: input.level, run: input.run });
    plan.output == Target { level, run: run.id } || places.any(|place| place == Target { level, run: run.id })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ops::Range;

    fn select(sizes: &[u64]) -> Option<Range<usize>> {
        let options = ExploringOptions::default();
        options.rules().select(sizes, options.is_stuck(sizes), 10, 1.2).map(|(window, _)| window)
    }

    #[test]
    fn the_window_of_most_runs_in_ratio_is_taken_and_of_as_many_the_smallest() {
        assert_eq!(select(&[1000, 100, 100, 100]), Some(1..4), "the large one is over 1.2 times the rest");
        assert_eq!(select(&[300, 100, 100, 100]), Some(0..4));
        assert_eq!(select(&[1000, 300, 100]), None);
        assert_eq!(select(&[300, 300, 300, 5000, 100, 100, 100]), Some(4..7));
        assert_eq!(select(&[100, 5, 1]), None, "3 runs, over a flush together");
        assert_eq!(select(&[5, 1, 1]), Some(0..3), "less than a flush together");
        assert_eq!(select(&[100; 12]).map(|window| window.len()), Some(10));
    }

    #[test]
    fn a_stuck_selection_removes_most_runs_a_byte_and_takes_the_smallest_if_none_keeps_the_ratio() {
        let doubling: Vec<u64> = (0..15).rev().map(|n| 100 << (2 * n)).collect();
        assert_eq!(select(&doubling), None);
        let doubling: Vec<u64> = (0..16).rev().map(|n| 100 << (2 * n)).collect();
        assert_eq!(select(&doubling), Some(13..16));
        let mut runs = vec![1000; 13];
        runs.extend([10, 10, 10]);
        assert_eq!(select(&runs), Some(13..16));
    }

    #[test]
    fn off_peak_hours_may_go_over_midnight() {
        let options = ExploringOptions { off_peak_start: 22, off_peak_end: 6, ..Default::default() };
        let ratio = |hour: u64| options.ratio_at(hour * 3600).0;
        assert_eq!([21, 22, 23, 0, 5, 6].map(ratio), [1.2, 5.0, 5.0, 5.0, 5.0, 1.2]);
        assert_eq!(ExploringOptions::default().ratio_at(0).0, 1.2);
    }
}
