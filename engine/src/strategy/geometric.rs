//! Geometric partitioning: one run a level, the i-th of at most `(r-1) r^(i-1) M` bytes, where M is what a
//! flush of full memory writes. All of them together are at most `r^i - 1` flushes, so there are about
//! log_r(data / M) runs.
//!
//! A flush arrives in L0 and leaves it at once: it is compacted with levels 1 to j at once, where j is the
//! first level whose bound allows all of that together. With r 2 this counts flushes in binary: a level is
//! empty, or has as much as all levels above it and one flush more. Where nothing overlaps, SSTables are
//! moved and not rewritten.
//!
//! With `runs` (the paper's p) their number is fixed and r is found from the data: the smallest whole number
//! for which p runs may hold all of it, `r^p - 1 >= data / M`. The p-th run itself has no bound. With p 1
//! there is always one run: that is `remerge`. (The paper's Remerge merges memory with the file at once; here
//! the flush is written first, then compacted.)
//!
//! *Shapes of other strategies*: a level of several runs, or over its bound, is compacted into the first
//! deeper level that has room; the deepest such level first, so that runs mostly move. With `runs`, levels
//! below the p-th go to the deepest.
//!
//! When nothing else is due, triggered compactions run (`early`).
//!
//! *Debt* is the bytes in L0 times how often the method rewrites a byte, r times per level; but never more
//! than all data, as one compaction takes all of L0. The data size is that of the last flush, so no finished
//! compaction raises it.

use super::runs::{DEEPEST, Placed, RunPlanner, within};
use super::{Facts, Plan, PlanState, Strategy, Target};
use crate::shape::Shape;
use crate::types::size_text;
use serde::{Deserialize, Serialize};

/// Settings of `geometric`. At most one of `ratio` and `runs`; with neither, the ratio is 2.
///
/// ```
/// use siltstone::strategy::{GeometricOptions, StrategyOptions};
/// let one = GeometricOptions { runs: Some(1), ..Default::default() };
/// assert_eq!(StrategyOptions::Geometric(one).to_string(), "remerge");
/// ```
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GeometricOptions {
    /// r: the i-th run has at most (r-1) r^(i-1) times the bytes of a flush.
    #[serde(alias = "r")]
    pub ratio: Option<u64>,
    /// At most this many runs; r follows from the data.
    #[serde(alias = "p")]
    pub runs: Option<u64>,
    /// Target size of output SSTables.
    #[serde(alias = "table_bytes")]
    pub sstable_bytes: u64,
}

impl Default for GeometricOptions {
    fn default() -> Self {
        GeometricOptions { ratio: None, runs: None, sstable_bytes: 64 << 20 }
    }
}

const DEFAULT_RATIO: u64 = 2;

impl GeometricOptions {
    fn bounds(&self, shape: &Shape, facts: &Facts<'_>, state: &PlanState) -> Bounds {
        let memory = facts.flush_bytes.max(1) as f64;
        let flushes = state.reference_bytes as f64 / memory;
        match self.runs {
            None => Bounds { r: self.ratio.unwrap_or(DEFAULT_RATIO) as f64, memory, fixed: None },
            Some(p) => {
                let deepest = shape.deepest().unwrap_or(0).max(p as usize);
                let r = exact_r(flushes, p).ceil().max(2.0);
                Bounds { r, memory, fixed: Some((p as usize, deepest)) }
            }
        }
    }
}

/// The r for which p runs have exactly so many flushes, without the last bits, so that a whole number stays
/// whole.
fn exact_r(flushes: f64, p: u64) -> f64 {
    (flushes + 1.0).powf(1.0 / p as f64) - 1e-9
}

struct Bounds {
    r: f64,
    memory: f64,
    /// With p: p and the deepest level.
    fixed: Option<(usize, usize)>,
}

impl Bounds {
    fn of(&self, level: usize) -> f64 {
        let geometric = || (self.r - 1.0) * self.r.powi(level as i32 - 1) * self.memory;
        match self.fixed {
            Some((_, deepest)) if level >= deepest => f64::INFINITY,
            Some((p, _)) if level >= p => 0.0,
            _ if level >= DEEPEST => f64::INFINITY,
            _ => geometric(),
        }
    }

    /// The first level at or below `from` that has room for `coming` bytes and all levels on the way.
    fn room(&self, shape: &Shape, from: usize, coming: u64) -> (usize, u64) {
        let mut bytes = coming;
        for level in from..DEEPEST {
            bytes += shape.level_bytes(level);
            if bytes as f64 <= self.of(level) {
                return (level, bytes);
            }
        }
        (DEEPEST, bytes)
    }
}

impl Strategy for GeometricOptions {
    fn check(&self) -> Result<(), String> {
        if self.ratio.is_some() && self.runs.is_some() {
            return Err("ratio and runs exclude each other: with runs, ratio follows from the data".into());
        }
        #[cfg(not(feature = "papers"))]
        if self.runs == Some(1) {
            return Err(super::papers::needs_papers("strategy", "remerge"));
        }
        within("ratio", self.ratio.unwrap_or(DEFAULT_RATIO), 2, 1000)?;
        within("runs", self.runs.unwrap_or(1), 1, 20)?;
        within("sstable_bytes", self.sstable_bytes, 4096, 1 << 50)
    }

    fn plan(&self, shape: &Shape, facts: &Facts<'_>, state: &PlanState) -> Plan {
        let state = state.observe(shape);
        let bounds = self.bounds(shape, facts, &state);
        let mut planner = RunPlanner::new(shape, facts, self.sstable_bytes, state);
        if facts.within_level0 {
            planner.gather(self.level0_runs());
            return planner.finish();
        }
        let wrong = |level: &usize| {
            shape.levels[*level].runs.len() > 1 || shape.level_bytes(*level) as f64 > bounds.of(*level)
        };
        let misplaced = (1..shape.levels.len()).rev().find(wrong);
        if let Some(level) = misplaced {
            let (to, _) = bounds.room(shape, level, 0);
            let (runs, bytes) = (shape.levels[level].runs.len(), size_text(shape.level_bytes(level)));
            let what = format!("L{level} has {runs} runs, {bytes} of {}", bound_text(bounds.of(level)));
            down(&mut planner, level..=to, 1.0, what);
        }
        let waiting = planner.resting(0);
        if !waiting.is_empty() {
            let coming = waiting.iter().map(|(_, run)| run.live_bytes()).sum();
            let (to, bytes) = bounds.room(shape, 1, coming);
            let (runs, most, bytes) = (waiting.len(), bound_text(bounds.of(to)), size_text(bytes));
            let what =
                format!("{runs} runs came; L{to} may hold {most}, with them and all above it has {bytes}");
            match misplaced {
                Some(level) if level <= to => {
                    planner.plan.deferred.push(format!("{what}, but L{level} is not in order"));
                }
                _ => down(&mut planner, 0..=to, waiting.len() as f64, what),
            }
        }
        planner.gather(self.level0_runs());
        if waiting.is_empty() && misplaced.is_none() {
            planner.early(self.last_level(shape));
        }
        planner.finish()
    }

    fn debt(&self, shape: &Shape, facts: &Facts<'_>, state: &PlanState) -> u64 {
        let state = state.observe(shape);
        let flushes = state.reference_bytes as f64 / facts.flush_bytes.max(1) as f64;
        let rewritten = match self.runs {
            None => {
                let r = self.ratio.unwrap_or(DEFAULT_RATIO) as f64;
                r * ((flushes + 1.0).ln() / r.ln()).max(1.0)
            }
            Some(p) => (exact_r(flushes, p) + 1.0) * p as f64,
        };
        ((shape.level_bytes(0) as f64 * rewritten) as u64).min(shape.live_bytes())
    }

    fn level0_runs(&self) -> usize {
        1
    }

    fn sstable_bytes(&self) -> u64 {
        self.sstable_bytes
    }
}

/// Compacts all runs of these levels that are not in a compaction into the last of the levels.
fn down(planner: &mut RunPlanner<'_>, levels: std::ops::RangeInclusive<usize>, score: f64, what: String) {
    let to = *levels.end();
    let runs: Vec<Placed<'_>> = levels.flat_map(|level| planner.resting(level)).collect();
    let Some(((_, newest), (oldest_level, oldest))) = runs.first().zip(runs.last()) else { return };
    let run = if *oldest_level == to { oldest.id } else { newest.id };
    planner.compact(&runs, Target { level: to, run }, score, what);
}

fn bound_text(bound: f64) -> String {
    if bound.is_finite() { size_text(bound as u64) } else { "anything".to_string() }
}
