//! Shared by the strategies that compact whole runs: which runs are free, and a compaction of runs adjacent
//! in age.
//!
//! Flushes come to L0. A level may have any number of runs, and all runs of a shape have one order of age, so
//! every such strategy can take over any shape from another.

use super::triggered::{DEAD_SHARE, early};
use super::window::{RATIO, WindowRules};
use super::{
    CompactionKind, CompactionPlan, Facts, InputRun, Plan, PlanState, RunningCompaction, Target, cover, ids,
    validate,
};
use crate::shape::{Run, Shape, TableInfo};
use crate::types::{KeyRange, size_text};
use std::collections::HashSet;
use std::sync::Arc;

/// A run and its level.
pub(super) type Placed<'a> = (usize, &'a Run);

/// Collects compactions that do not conflict with each other or with running ones.
pub(super) struct RunPlanner<'a> {
    pub(super) shape: &'a Shape,
    facts: &'a Facts<'a>,
    sstable_bytes: u64,
    /// Running and planned compactions.
    taken: Vec<RunningCompaction>,
    /// Runs that they read or write.
    busy: HashSet<(usize, u64)>,
    pub(super) plan: Plan,
}

impl<'a> RunPlanner<'a> {
    pub(super) fn new(shape: &'a Shape, facts: &'a Facts<'a>, sstable_bytes: u64, state: PlanState) -> Self {
        let mut planner = RunPlanner {
            shape,
            facts,
            sstable_bytes,
            taken: Vec::new(),
            busy: HashSet::new(),
            plan: Plan { state, ..Plan::default() },
        };
        facts.running.iter().for_each(|compaction| planner.take(compaction.clone()));
        planner
    }

    fn take(&mut self, compaction: RunningCompaction) {
        self.busy.extend(compaction.plan.inputs.iter().map(|input| (input.level, input.run)));
        self.busy.insert((compaction.plan.output.level, compaction.plan.output.run));
        self.taken.push(compaction);
    }

    pub(super) fn full(&self) -> bool {
        self.plan.compactions.len() >= self.facts.compactions_max
    }

    /// Whether no compaction or flush reads or writes the run.
    pub(super) fn at_rest(&self, level: usize, run: &Run) -> bool {
        let is_flushed = level == 0 && self.facts.flushing == Some(run.id);
        !is_flushed && !self.busy.contains(&(level, run.id))
    }

    /// The runs of a level that no compaction or flush uses, newest first.
    pub(super) fn resting(&self, level: usize) -> Vec<Placed<'a>> {
        let runs = self.shape.levels.get(level).map_or(&[][..], |l| l.runs.as_slice());
        runs.iter().filter(|run| self.at_rest(level, run)).map(|run| (level, run)).collect()
    }

    /// The target of a compaction of these runs, newest first, in that level: the run with the newest one's
    /// id, even if it exists and ends where they begin (an earlier attempt wrote a part of it). But newer
    /// than all existing and planned runs: part of a run may have been compacted before its turn, and then
    /// that part has its id.
    pub(super) fn output(&self, level: usize, runs: &[Placed<'_>]) -> Target {
        let id = runs[0].1.id;
        let there = self.shape.levels.get(level).and_then(|l| l.runs.first());
        let range = cover(runs.iter().flat_map(|(_, run)| run.tables()));
        let apart = |run: &Run| range.as_ref().is_none_or(|range| run.overlapping(range).next().is_none());
        let there = there.filter(|run| run.id != id || !apart(run)).map(|run| run.id);
        let outputs = self.taken.iter().map(|compaction| compaction.plan.output);
        let coming = outputs.filter(|output| output.level == level).map(|output| output.run);
        let newest = coming.chain(there).max();
        Target { level, run: newest.map_or(id, |newest| id.max(newest + 1)) }
    }

    /// Plans a compaction of these runs, newest first and adjacent, into the output, which is the oldest of
    /// them or a new run right behind it. Returns whether it may run now; if not, it is deferred.
    pub(super) fn compact(&mut self, runs: &[Placed<'_>], output: Target, score: f64, what: String) -> bool {
        let compaction = compaction_of_runs(runs, output, self.sstable_bytes, score, what);
        compaction.is_some_and(|compaction| self.accept(compaction))
    }

    pub(super) fn accept(&mut self, compaction: CompactionPlan) -> bool {
        if self.full() {
            return false;
        }
        if let Err(why) = validate(self.shape, &compaction, &self.taken) {
            self.plan.deferred.push(format!("{}, but {why}", compaction.reason));
            return false;
        }
        self.take(RunningCompaction { plan: compaction.clone(), clip: None });
        self.plan.compactions.push(compaction);
        true
    }

    /// Compacts some runs of L0 ([`gather`]) where a running compaction keeps L0 waiting, and there are far
    /// more runs than `most`.
    pub(super) fn gather(&mut self, most: usize) {
        let is_planned = self.plan.compactions.iter().any(CompactionPlan::empties_level0);
        let waits = self.facts.within_level0 || !(self.plan.deferred.is_empty() || is_planned);
        if waits && !self.full() {
            let compaction = gather(self.shape, self.facts, &self.taken, most, self.sstable_bytes);
            compaction.map(|compaction| self.accept(compaction));
        }
    }

    /// Plans the triggered compactions that nothing conflicts with.
    pub(super) fn early(&mut self, last_level: usize) {
        if self.full() {
            return;
        }
        let state = &self.plan.state;
        let found = early(self.shape, self.facts, state, last_level, self.sstable_bytes, DEAD_SHARE, true);
        let before = self.plan.compactions.len();
        for compaction in found {
            if !self.full() && validate(self.shape, &compaction, &self.taken).is_ok() {
                self.accept(compaction);
            }
        }
        if self.plan.compactions.len() == before {
            self.plan.state.triggered_at = Some(self.facts.clock);
        }
    }

    pub(super) fn finish(mut self) -> Plan {
        self.plan.compactions.sort_by(|a, b| b.score.total_cmp(&a.score));
        self.plan
    }
}

/// A compaction is long if it reads as much as this many flushes of full memory write, or twice as many of
/// the actual ones, which may be smaller. Runs that gather in L0 behind a shorter one are better compacted
/// once, by the next one (compacting them within L0 rewrites a third more bytes in `ws2`).
const LONG_FLUSHES: u64 = 64;
/// The number of runs more than usual that may gather behind a long compaction; so many hardly delay writers.
const GATHERED_MAX: usize = 12;

/// The bytes from which on a compaction is long.
pub(crate) fn long_bytes(shape: &Shape, flush_bytes: u64) -> u64 {
    let came = shape.levels.first().map_or(0, |level| {
        2 * level.runs.iter().map(Run::live_bytes).sum::<u64>() / level.runs.len().max(1) as u64
    });
    LONG_FLUSHES * flush_bytes.min(came).max(1)
}

/// A compaction of runs that gather in L0 behind a long compaction (a major or triggered one, or one of all
/// data): some of them become the oldest of them, chosen as `exploring` chooses. So while that lasts there
/// are some runs more for each power of the number of flushes, each byte is rewritten as often, and nobody
/// waits for it. `most` is the usual number of runs.
pub(super) fn gather(
    shape: &Shape,
    facts: &Facts<'_>,
    taken: &[RunningCompaction],
    most: usize,
    sstable_bytes: u64,
) -> Option<CompactionPlan> {
    let busy: HashSet<_> = taken.iter().flat_map(|compaction| compaction.plan.tables()).collect();
    let outputs: Vec<_> =
        taken.iter().map(|compaction| (compaction.plan.output.level, compaction.plan.output.run)).collect();
    let at_rest = |run: &Run| {
        !outputs.contains(&(0, run.id)) && !run.tables().iter().any(|table| busy.contains(&table.id))
    };
    let level0 = shape.levels.first()?;
    let waiting: Vec<Placed<'_>> = level0
        .runs
        .iter()
        .skip_while(|run| facts.flushing == Some(run.id))
        .take_while(|run| facts.flushing != Some(run.id) && at_rest(run))
        .map(|run| (0, run))
        .collect();
    let rules = WindowRules::default();
    let is_full = level0.runs.len() > most.saturating_add(GATHERED_MAX);
    let long = long_bytes(shape, facts.flush_bytes);
    if !taken.iter().any(|compaction| compaction.plan.bytes >= long)
        || !is_full
        || waiting.len() <= most.max(rules.min_runs)
    {
        return None;
    }
    let sizes: Vec<u64> = waiting.iter().rev().map(|(_, run)| run.live_bytes()).collect();
    // Never stuck: three flushes of about one size keep the ratio as soon as they come.
    let (window, _) = rules.select(&sizes, false, facts.flush_bytes, RATIO)?;
    let window = sizes.len() - window.end..sizes.len() - window.start;
    let picked = &waiting[window];
    let output = Target { level: 0, run: picked.last()?.1.id };
    let (picks, all) = (picked.len(), waiting.len());
    let bytes = size_text(picked.iter().map(|(_, run)| run.live_bytes()).sum());
    let what = format!("{picks} of {all} runs that wait in L0 behind a compaction, {bytes}");
    compaction_of_runs(picked, output, sstable_bytes, 1.0 + waiting.len() as f64 / 10.0, what)
}

/// A compaction of these runs, newest first. Of the output's own run only overlapping SSTables take part; if
/// nothing overlaps, it is a trivial move.
fn compaction_of_runs(
    runs: &[Placed<'_>],
    output: Target,
    sstable_bytes: u64,
    score: f64,
    what: String,
) -> Option<CompactionPlan> {
    let is_target = |placed: &&Placed<'_>| (placed.0, placed.1.id) == (output.level, output.run);
    let brought: Vec<&Placed<'_>> = runs.iter().filter(|placed| !is_target(placed)).collect();
    let target = runs.iter().find(is_target).map(|(_, run)| *run);
    let tables: Vec<&Arc<TableInfo>> = brought.iter().flat_map(|(_, run)| run.tables()).collect();
    let mut range = cover(tables.iter().copied())?;
    let input = |(level, run): &&Placed<'_>| InputRun {
        level: *level,
        run: run.id,
        tables: run.tables().iter().map(|t| t.id).collect(),
    };
    let mut inputs: Vec<InputRun> = brought.iter().map(input).collect();
    let mut bytes: u64 = brought.iter().map(|(_, run)| run.live_bytes()).sum();
    let moves = are_apart(&tables, target);
    let mut reason = format!("{what}: {} runs of {}", brought.len(), size_text(bytes));
    if moves {
        reason += &format!(" overlap nothing and move to L{}", output.level);
    } else if let Some(target) = target {
        let met: Vec<_> = target.overlapping(&range).collect();
        let met_bytes = target.bytes_within(&range);
        reason += &format!(" meet {} of {}", size_text(met_bytes), size_text(target.live_bytes()));
        bytes += met_bytes;
        if let Some(reach) = cover(met.iter().copied()) {
            range = range.cover(&reach);
            inputs.push(InputRun { level: output.level, run: output.run, tables: ids(&met) });
        }
    }
    let kind = if moves { CompactionKind::TrivialMove } else { CompactionKind::Merge };
    Some(CompactionPlan { inputs, output, range, kind, bytes, sstable_bytes, score, reason })
}

/// Whether no two of the SSTables overlap, nor any SSTable of the run.
pub(super) fn are_apart(tables: &[&Arc<TableInfo>], below: Option<&Run>) -> bool {
    let mut ranges: Vec<KeyRange> = tables.iter().map(|t| t.live_range()).collect();
    ranges.sort_by(|a, b| a.start.cmp(&b.start));
    ranges.windows(2).all(|pair| !pair[0].overlaps(&pair[1]))
        && below.is_none_or(|run| ranges.iter().all(|range| run.overlapping(range).next().is_none()))
}

/// Says which number is out of bounds.
pub(super) fn within(name: &str, value: u64, least: u64, most: u64) -> Result<(), String> {
    match value {
        v if v < least => Err(format!("{name} must be at least {least}, not {v}")),
        v if v > most => Err(format!("{name} must be at most {most}, not {v}")),
        _ => Ok(()),
    }
}

/// The deepest level a strategy writes to.
pub(super) const DEEPEST: usize = 62;
