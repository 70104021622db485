//! Leveled compaction: L0 has whole flushes, every level below is one run, some `multiplier` times as large
//! as the level above.
//!
//! *Level sizes* follow the data. The last level has nearly all of it; each level above gets a
//! `multiplier`-th of the one below, up to the *base level*, the first whose share reaches a *unit*:
//! `base_bytes`, or the size of L0 at its trigger, if that is more. L0 is compacted into it, past the levels
//! above, so that old versions take little space at any data size without a chain of levels of a few
//! kilobytes.
//!
//! The *gathering level* is the one above the base. Where a compaction of L0 would overlap far more of the
//! base than it brings, L0 goes here first, up to two units; when that would be too much, all of both goes to
//! the base in one compaction. With a base of R times what L0 brings, n rounds rewrite 1 + 2 + .. + n and R,
//! where n compactions straight into the base rewrite n (R + 1). Where the same keys are written again and
//! again they are dropped here, the level hardly grows, and the base is hardly ever rewritten. The SSTables'
//! sketches estimate beforehand how large the level will get.
//!
//! *What is compacted*, best first:
//! 1. L0, at `l0_runs_trigger` runs or as many flushes' bytes: all of it with what it overlaps in its target.
//! 2. A level over its size: a group of neighbouring SSTables with what it overlaps one level down. The
//!    groups are taken in turn, from the key where the last compaction of the level ended; of the next
//!    `candidates` groups the one with the least overlap per byte is taken, and grows by neighbours that fit
//!    into the overlap for nothing.
//! 3. A level of several runs, which another strategy left: the newest run goes into the next.
//! 4. Key ranges for a triggered compaction, down to the last level (`early`), unless L0 is due.
//! 5. SSTables dense with tombstones, one level down before their turn.
//!
//! Where nothing overlaps, SSTables are moved and not rewritten. If L0 is due and a compaction out of the
//! base is in its way, no further one starts there, so that L0 waits for one compaction at most. Where that
//! takes long, the flushes that have come meanwhile are compacted within L0 (`runs::gather`).
//!
//! *Debt* counts, for every border between two levels, the bytes above it beyond the sizes of the levels
//! above, times how much crossing rewrites. Compactions move bytes down and never up, so each term falls. A
//! level that the base is about to reach counts by degrees, so that growth makes no jump.

use super::runs::{are_apart, gather, within};
use super::triggered::{LOOK_BYTES, early};
use super::{
    CompactionKind, CompactionPlan, Facts, InputRun, Plan, PlanState, RunAge, RunningCompaction, Strategy,
    Target, cover, ids, wrong_with_running,
};
use crate::shape::{Run, Shape, TableInfo};
use crate::types::{KeyRange, TableId, size_text};
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::sync::Arc;

/// Settings of `leveled`.
///
/// ```
/// let options = siltstone::strategy::LeveledOptions { multiplier: 8, ..Default::default() };
/// assert_eq!(options.l0_runs_trigger, 4);
/// ```
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LeveledOptions {
    /// Flushes in L0 that make a compaction due.
    pub l0_runs_trigger: u64,
    /// The size ratio of a level to the one above.
    pub multiplier: u64,
    /// Number of levels, L0 included.
    pub levels: u64,
    /// The smallest unit of level sizes: the base level's share is at least this.
    pub base_bytes: u64,
    /// Target size of output SSTables.
    #[serde(alias = "table_bytes")]
    pub sstable_bytes: u64,
    /// Groups of SSTables among which the one with least overlap is taken; 1 is plain round robin.
    pub candidates: u64,
    /// An SSTable in which at least this share of cells are tombstones is compacted before its turn, and so
    /// is a range that would lose at least this share of its cells.
    pub tombstone_share: f64,
    /// TRIAD-DISK: while less than this share of L0 is redundant, L0 waits for more where the base is far
    /// larger; 0 or none: it never waits.
    pub defer_below: Option<f64>,
    /// The most runs for which L0 waits.
    pub defer_runs_max: u64,
}

impl Default for LeveledOptions {
    fn default() -> Self {
        LeveledOptions {
            l0_runs_trigger: 4,
            multiplier: 10,
            levels: 7,
            base_bytes: 4 << 20,
            sstable_bytes: 64 << 20,
            candidates: 16,
            tombstone_share: 0.5,
            defer_below: Some(0.4),
            defer_runs_max: 6,
        }
    }
}

impl LeveledOptions {
    fn sizes(&self, shape: &Shape, facts: &Facts<'_>, state: &PlanState, lazy: Option<u64>) -> Sizes {
        let last = self.last_level(shape);
        let m = self.multiplier as f64;
        let runs = lazy.unwrap_or(self.l0_runs_trigger);
        let level0 = (runs * facts.flush_bytes.max(1)) as f64;
        let unit = level0.max(self.base_bytes as f64);
        let ideal =
            |level: usize| state.reference_bytes as f64 * (m - 1.0) / m / m.powi((last - level) as i32);
        let by_size = (1..=last).find(|level| ideal(*level) >= unit).unwrap_or(last);
        // One run above the first level with a share has gathered; several were left by another strategy.
        let gathered = |level: usize| level + 1 == by_size && shape.levels[level].runs.len() == 1;
        let occupied = (1..=last).find(|level| shape.level_bytes(*level) > 0 && !gathered(*level));
        let occupied = occupied.unwrap_or(last);
        Sizes {
            level0,
            waiting: (runs.max(self.level0_runs() as u64) * facts.flush_bytes.max(1)) as f64,
            unit,
            last,
            base: by_size.min(occupied),
            ideal: (0..=last).map(ideal).collect(),
            by_size,
        }
    }
}

/// The most units of the gathering level.
const GATHERED_UNITS: f64 = 2.0;
/// The base must be so many times as large as the gathering level, or gathering saves little and only adds a
/// level to reads.
const BASE_OVER_GATHERED: f64 = 2.0;
/// L0 waits for redundancy only where the base is so many times as large: there waiting saves much.
const BASE_OVER_LEVEL0: f64 = 4.0;
/// `auto` waits for readers only while less than this share of the inputs of a compaction of L0 is redundant.
const REDUNDANT_MAX: f64 = 0.4;
/// Flushes without readers from which on L0 may have a run more than usual for each so many that come.
const UNREAD_MIN: u64 = 16;
const UNREAD_FOR_ONE: u64 = 4;

struct Sizes {
    level0: f64,
    /// The size of L0 up to which it may wait.
    waiting: f64,
    /// The unit: the least share of the base level.
    unit: f64,
    last: usize,
    /// The level that L0 is compacted into.
    base: usize,
    /// The first level that gets a share of the data.
    by_size: usize,
    ideal: Vec<f64>,
}

impl Sizes {
    /// The size at which the level is due; zero for a level above the base.
    fn target(&self, level: usize) -> f64 {
        match level + 1 {
            below if below == self.by_size => self.gathered(),
            _ if level < self.by_size => 0.0,
            _ => self.ideal[level],
        }
    }

    /// The largest size of the gathering level.
    fn gathered(&self) -> f64 {
        GATHERED_UNITS * self.unit
    }

    /// The gathering level: none above level 1, and none where runs of another strategy are in the way.
    fn gathering_level(&self) -> Option<usize> {
        (self.base == self.by_size && self.base > 1).then(|| self.base - 1)
    }

    /// The weight of a level: 0 while its share is under a `multiplier`-th of the unit, 1 from the unit.
    fn weight(&self, level: usize, multiplier: f64) -> f64 {
        let least = 1.0 / multiplier;
        ((self.ideal[level] / self.unit - least) / (1.0 - least)).clamp(0.0, 1.0)
    }
}

impl LeveledOptions {
    /// The plan; `lazy` is the number of runs that L0 may have before reads have paid for its compaction
    /// (`auto`).
    pub(super) fn planned(
        &self,
        shape: &Shape,
        facts: &Facts<'_>,
        state: &PlanState,
        lazy: Option<u64>,
    ) -> Plan {
        let unread = lazy.map_or(0, |_| self.unread(shape, state));
        let state = PlanState { unread, ..state.observe(shape) };
        let sizes = self.sizes(shape, facts, &state, lazy);
        let mut planner = Planner {
            options: self,
            lazy: lazy.map(|most| Lazy { most, now: trusted(unread, self.l0_runs_trigger, most) }),
            shape,
            facts,
            sizes,
            busy: facts.running.iter().flat_map(|compaction| compaction.plan.tables()).collect(),
            taken: facts.running.to_vec(),
            plan: Plan { state, ..Plan::default() },
        };
        if facts.within_level0 {
            planner.gather();
            return planner.plan;
        }
        let base_is_reserved = planner.level0();
        planner.extra_runs();
        planner.levels_over_size(base_is_reserved);
        if !base_is_reserved {
            planner.early();
        }
        planner.dense_tables();
        let mut plan = planner.plan;
        plan.compactions.sort_by(|a, b| b.score.total_cmp(&a.score));
        plan
    }

    /// Flushes since reads last paid for a compaction. For a state that was lost, enough that L0 may go on
    /// waiting.
    fn unread(&self, shape: &Shape, state: &PlanState) -> u64 {
        let Some(level0) = shape.levels.first() else { return state.unread };
        let came = level0.runs.iter().filter(|run| run.id > state.newest_run).count() as u64;
        if state.newest_run == 0 && came >= self.l0_runs_trigger {
            return UNREAD_MIN + UNREAD_FOR_ONE * (came + 1 - self.l0_runs_trigger);
        }
        state.unread.saturating_add(came)
    }

    pub(super) fn debt_with(
        &self,
        shape: &Shape,
        facts: &Facts<'_>,
        state: &PlanState,
        lazy: Option<u64>,
    ) -> u64 {
        let state = state.observe(shape);
        let sizes = self.sizes(shape, facts, &state, lazy);
        let m = self.multiplier as f64;
        let mut above = shape.level_bytes(0) as f64;
        let mut allowed = sizes.waiting;
        // L0 overlaps about as much in the base as it brings.
        let mut debt = 2.0 * (above - allowed).max(0.0);
        allowed += sizes.gathered();
        for level in 1..sizes.last {
            let weight = sizes.weight(level, m);
            above += shape.level_bytes(level) as f64;
            allowed += weight * sizes.ideal[level];
            debt += weight * (1.0 + m) * (above - allowed).max(0.0);
        }
        debt as u64
    }
}

impl Strategy for LeveledOptions {
    fn check(&self) -> Result<(), String> {
        within("l0_runs_trigger", self.l0_runs_trigger, 1, 1000)?;
        within("multiplier", self.multiplier, 2, 1000)?;
        within("levels", self.levels, 2, 20)?;
        within("base_bytes", self.base_bytes, 4096, 1 << 50)?;
        within("sstable_bytes", self.sstable_bytes, 4096, 1 << 50)?;
        within("candidates", self.candidates, 1, 1000)?;
        within("defer_runs_max", self.defer_runs_max, 1, 1000)?;
        for (name, share) in
            [("tombstone_share", self.tombstone_share), ("defer_below", self.defer_below.unwrap_or(0.0))]
        {
            if !(0.0..=1.0).contains(&share) {
                return Err(format!("{name} must lie between 0 and 1, not {share}"));
            }
        }
        Ok(())
    }

    fn plan(&self, shape: &Shape, facts: &Facts<'_>, state: &PlanState) -> Plan {
        self.planned(shape, facts, state, None)
    }

    fn debt(&self, shape: &Shape, facts: &Facts<'_>, state: &PlanState) -> u64 {
        self.debt_with(shape, facts, state, None)
    }

    fn last_level(&self, shape: &Shape) -> usize {
        (self.levels as usize - 1).max(shape.deepest().unwrap_or(0))
    }

    fn level0_runs(&self) -> usize {
        match self.defer_below {
            Some(least) if least > 0.0 => self.l0_runs_trigger.max(self.defer_runs_max) as usize,
            _ => self.l0_runs_trigger as usize,
        }
    }

    fn sstable_bytes(&self) -> u64 {
        self.sstable_bytes
    }
}

/// The number of runs that may wait for readers after so many flushes without any.
fn trusted(unread: u64, least: u64, most: u64) -> u64 {
    (least + unread.saturating_sub(UNREAD_MIN) / UNREAD_FOR_ONE).min(most)
}

/// An SSTable in one of these older runs that the compaction would pass, and so must not.
fn passed<'a>(compaction: &CompactionPlan, mut older: impl Iterator<Item = &'a Run>) -> Option<String> {
    let taken: HashSet<TableId> = compaction.tables().collect();
    let table =
        older.find_map(|run| run.overlapping(&compaction.range).find(|table| !taken.contains(&table.id)))?;
    Some(format!("SSTable {} of L0 cannot come along", table.id))
}

/// The number of runs that L0 may have while reads have not paid for its compaction (`auto`).
#[derive(Clone, Copy)]
struct Lazy {
    /// The bound for any number of flushes without readers.
    most: u64,
    /// The bound for the present number of flushes without readers.
    now: u64,
}

struct Due {
    /// Runs or bytes of L0, as a multiple of those at which it is due.
    due: f64,
    score: f64,
    /// Bytes of compaction that reads have paid for (`auto`).
    paid: f64,
}

struct Planner<'a> {
    options: &'a LeveledOptions,
    lazy: Option<Lazy>,
    shape: &'a Shape,
    facts: &'a Facts<'a>,
    sizes: Sizes,
    /// SSTables in running and in planned compactions.
    busy: HashSet<TableId>,
    /// Running and planned compactions.
    taken: Vec<RunningCompaction>,
    plan: Plan,
}

impl<'a> Planner<'a> {
    fn full(&self) -> bool {
        self.plan.compactions.len() >= self.facts.compactions_max
    }

    fn conflict(&self, compaction: &CompactionPlan) -> Option<String> {
        self.taken.iter().find_map(|other| wrong_with_running(compaction, other))
    }

    fn accept(&mut self, compaction: CompactionPlan) {
        self.busy.extend(compaction.tables());
        self.taken.push(RunningCompaction { plan: compaction.clone(), clip: None });
        self.plan.compactions.push(compaction);
    }

    fn free(&self, table: &TableInfo) -> bool {
        !self.busy.contains(&table.id)
    }

    /// The target run in the level: its newest, or the one that a compaction is just making, or a new one as
    /// new as the input.
    fn run_to_join(&self, level: usize, newest_input: u64) -> Target {
        let there = self.shape.levels.get(level).and_then(|l| l.runs.first()).map(|run| run.id);
        let coming = || self.taken.iter().find(|m| m.plan.output.level == level).map(|m| m.plan.output.run);
        Target { level, run: there.or_else(coming).unwrap_or(newest_input) }
    }

    /// Whether a compaction of L0 is worth considering.
    fn level0_due(&self, runs: &[(&Run, Vec<&Arc<TableInfo>>)], bytes: u64) -> Option<Due> {
        let by_runs = runs.len() as f64 / self.options.l0_runs_trigger as f64;
        let by_bytes = bytes as f64 / self.sizes.level0;
        let due = by_runs.max(by_bytes);
        let paid = if self.lazy.is_some() { self.paid_by_reads(runs) } else { 0.0 };
        let score = match self.lazy {
            Some(lazy) if due >= 1.0 => (runs.len() as f64 / lazy.now as f64).max(by_bytes).max(1.0),
            _ => due,
        };
        let is_paid = paid > 0.0 && paid >= bytes as f64;
        (!runs.is_empty() && (due >= 1.0 || is_paid)).then_some(Due { due, score, paid })
    }

    fn level0_text(&self, runs: usize, bytes: u64) -> String {
        let (trigger, bound) = (self.options.l0_runs_trigger, size_text(self.sizes.level0 as u64));
        format!("L0 has {runs} runs of {trigger}, {} of {bound}", size_text(bytes))
    }

    /// Rule 1. Returns whether the base level is reserved for L0.
    fn level0(&mut self) -> bool {
        let Some(level0) = self.shape.levels.first().filter(|l| !l.runs.is_empty()) else { return false };
        // If a compaction of a key range takes part of a run, the remaining SSTables are not free: they must
        // not be passed.
        let free = |run: &'a Run| -> Vec<&'a Arc<TableInfo>> {
            run.tables().iter().filter(|table| self.free(table)).collect()
        };
        let runs: Vec<(&Run, Vec<&Arc<TableInfo>>)> =
            level0.runs.iter().map(|run| (run, free(run))).filter(|(_, tables)| !tables.is_empty()).collect();
        let bytes: u64 = runs.iter().flat_map(|(_, tables)| tables).map(|table| table.live_bytes()).sum();
        let Some(Due { due, score, paid }) = self.level0_due(&runs, bytes) else { return false };
        let mut reason = self.level0_text(runs.len(), bytes);
        let mut sources: Vec<(usize, &Run, Vec<&Arc<TableInfo>>)> =
            runs.iter().map(|(run, tables)| (0, *run, tables.clone())).collect();
        let gathering = self.sizes.gathering_level();
        let gathered = gathering.and_then(|level| Some((level, self.shape.levels.get(level)?.runs.first()?)));
        sources.extend(gathered.map(|(level, run)| (level, run, run.tables().iter().collect())));
        let output = self.run_to_join(self.sizes.base, runs[0].0.id);
        let Some(mut compaction) = self.compact(&sources, output, score, reason.clone(), false) else {
            return false;
        };
        let met = self.shape.run(output.level, output.run);
        if let Some(lazy) = self.lazy {
            if paid > 0.0 && paid >= compaction.bytes as f64 {
                self.plan.state.unread = 0;
                reason = format!("read much: {reason}");
                compaction.reason = format!("read much: {}", compaction.reason);
            } else if due < 1.0 || self.waits_for_readers(&sources, runs.len(), &compaction, met, lazy) {
                return false;
            }
        }
        let older = level0.runs.iter().filter(|run| run.id < runs[0].0.id);
        if let Some(why) = self.conflict(&compaction).or_else(|| passed(&compaction, older)) {
            if due < 1.0 {
                return false;
            }
            self.plan.deferred.push(format!("{}, but {why}", compaction.reason));
            self.gather();
            return true;
        }
        let base_bytes = met.map_or(0, |run| run.bytes_within(&compaction.range)) as f64;
        if compaction.kind == CompactionKind::Merge {
            if bytes as f64 <= self.sizes.waiting
                && base_bytes > BASE_OVER_LEVEL0 * bytes as f64
                && let Some(why) = self.wait_for_redundancy(&sources[..runs.len()])
            {
                self.plan.deferred.push(why);
                return false;
            }
            let gathered = || sources.iter().flat_map(|(_, _, tables)| tables.iter());
            let bytes: u64 = gathered().map(|t| t.live_bytes()).sum();
            let stays = bytes as f64 * (self.facts.unique)(&gathered().map(|t| t.id).collect::<Vec<_>>());
            if let Some(level) = gathering
                && stays <= self.sizes.gathered()
                && stays * BASE_OVER_GATHERED <= base_bytes
            {
                reason += &format!(", less to gather ({}) than to meet below", size_text(stays as u64));
                sources.truncate(runs.len());
                let output = self.run_to_join(level, runs[0].0.id);
                let Some(less) = self.compact(&sources, output, score, reason, false) else { return true };
                compaction = less;
            }
        }
        if !self.full() {
            self.accept(compaction);
        }
        true
    }

    /// Compacts some runs within L0 that wait for a long compaction.
    fn gather(&mut self) {
        let usual = self.options.level0_runs();
        let most = self.lazy.map_or(usual, |lazy| usize::try_from(lazy.most).unwrap_or(usize::MAX));
        let sstable_bytes = self.options.sstable_bytes;
        let waiting = gather(self.shape, self.facts, &self.taken, most, sstable_bytes);
        if let Some(waiting) =
            waiting.filter(|compaction| !self.full() && self.conflict(compaction).is_none())
        {
            self.accept(waiting);
        }
    }

    /// TRIAD-DISK: L0 waits while its compaction would drop little, unless writers wait for compactions.
    fn wait_for_redundancy(&self, level0: &[(usize, &Run, Vec<&Arc<TableInfo>>)]) -> Option<String> {
        let least = self.options.defer_below.filter(|least| *least > 0.0 && !self.facts.pressed)?;
        if level0.len() as u64 > self.options.defer_runs_max {
            return None;
        }
        let tables = || level0.iter().flat_map(|(_, _, tables)| tables.iter());
        let all: u64 = tables().map(|t| t.distinct).sum();
        let redundant = 1.0 - (self.facts.unique)(&tables().map(|t| t.id).collect::<Vec<_>>());
        (all > 0 && redundant < least).then(|| {
            let (runs, most) = (level0.len(), self.options.defer_runs_max);
            let found = format!("of {all} keys in {runs} runs {:.0} % are redundant", redundant * 100.0);
            format!("L0 waits: {found}, under {:.0} %, and the runs are at most {most}", least * 100.0)
        })
    }

    /// The bytes that could have been compacted in the time of the seek misses in L0.
    fn paid_by_reads(&self, level0: &[(&Run, Vec<&Arc<TableInfo>>)]) -> f64 {
        let tables = level0.iter().flat_map(|(_, tables)| tables);
        tables.map(|table| (self.facts.looks)(table.id)).sum::<u64>() as f64 * LOOK_BYTES
    }

    /// `auto`: L0 waits while reads have not paid for its compaction, it has few runs, and the compaction
    /// would drop little. `sources` are its runs and the gathering level.
    fn waits_for_readers(
        &mut self,
        sources: &[(usize, &Run, Vec<&Arc<TableInfo>>)],
        runs: usize,
        compaction: &CompactionPlan,
        base: Option<&Run>,
        lazy: Lazy,
    ) -> bool {
        let bytes_of = |sources: &[(usize, &Run, Vec<&Arc<TableInfo>>)]| -> u64 {
            sources.iter().flat_map(|(_, _, tables)| tables).map(|table| table.live_bytes()).sum()
        };
        let is_full = runs as u64 >= lazy.now
            || bytes_of(&sources[..runs]) >= lazy.now.saturating_mul(self.facts.flush_bytes.max(1));
        if self.facts.pressed || is_full || compaction.kind == CompactionKind::TrivialMove {
            return false;
        }
        // Little of a far larger base can be overwritten by L0.
        let met = base.map_or(0, |run| run.bytes_within(&compaction.range)) as f64;
        let of_base = base.filter(|_| met <= BASE_OVER_LEVEL0 * bytes_of(sources) as f64);
        let below = of_base.into_iter().flat_map(|run| run.overlapping(&compaction.range));
        let ids = sources.iter().flat_map(|(_, _, tables)| tables.iter().copied()).chain(below);
        let redundant = 1.0 - (self.facts.unique)(&ids.map(|table| table.id).collect::<Vec<_>>());
        if redundant >= REDUNDANT_MAX {
            return false;
        }
        // Only numbers that change with each flush: the event is recorded again whenever this text changes.
        let why = format!("L0 waits for reads that pay for its compaction: {runs} runs of {}", lazy.now);
        self.plan.deferred.push(why);
        true
    }

    /// Rule 3.
    fn extra_runs(&mut self) {
        for level in 1..self.shape.levels.len() {
            let runs = &self.shape.levels[level].runs;
            for pair in runs.windows(2) {
                let score = 1.0 + runs.len() as f64 / 10.0;
                while !self.full() {
                    let output = Target { level, run: pair[1].id };
                    let what = format!("L{level} has {} runs, one is right", runs.len());
                    let Some(compaction) = self.pick(level, &pair[0], output, score, &what) else { break };
                    self.accept(compaction);
                }
            }
        }
    }

    /// Rule 2.
    fn levels_over_size(&mut self, base_is_reserved: bool) {
        for level in 1..self.sizes.last {
            if base_is_reserved && (level == self.sizes.base || level + 1 == self.sizes.base) {
                continue;
            }
            let Some([run]) = self.shape.levels.get(level).map(|l| l.runs.as_slice()) else { continue };
            let target = self.sizes.target(level);
            let mut bytes = run.live_bytes().saturating_sub(self.leaving(level, run));
            while bytes as f64 > target && !self.full() {
                let score = match target > 0.0 {
                    true => bytes as f64 / target,
                    false => 1.0 + bytes as f64 / self.sizes.unit,
                };
                let what = format!("L{level} has {} of {}", size_text(bytes), size_text(target as u64));
                let output = self.run_to_join(level + 1, run.id);
                let Some(compaction) = self.pick(level, run, output, score, &what) else { break };
                let moved =
                    compaction.inputs[0].tables.iter().filter_map(|id| bytes_of(run, &compaction.range, *id));
                bytes = bytes.saturating_sub(moved.sum());
                self.accept(compaction);
            }
        }
    }

    /// Bytes of the run that running compactions already take down.
    fn leaving(&self, level: usize, run: &Run) -> u64 {
        let down = self.taken.iter().filter(|compaction| compaction.plan.output.level > level);
        down.flat_map(|compaction| compaction.plan.live_inputs(self.shape))
            .filter(|(place, _)| *place == RunAge::of(level, run.id))
            .map(|(_, table)| table.live_bytes())
            .sum()
    }

    /// Rule 5: the densest free SSTable of each level, one per plan.
    fn dense_tables(&mut self) {
        for level in 1..self.sizes.last {
            let Some([run]) = self.shape.levels.get(level).map(|l| l.runs.as_slice()) else { continue };
            if run.tombstones() == 0 || self.full() {
                continue;
            }
            let dense = run.tables().iter().filter(|t| self.free(t)).map(|t| (density(t), t));
            let Some((share, table)) = dense.max_by(|a, b| a.0.total_cmp(&b.0)) else { continue };
            if share < self.options.tombstone_share {
                continue;
            }
            let output = self.run_to_join(level + 1, run.id);
            let reason = format!("SSTable {} of L{level} is {:.0} % tombstones", table.id, share * 100.0);
            let sources = [(level, run, vec![table])];
            // Rewritten even where it could be moved: in the last level its tombstones are dropped.
            let compaction = self.compact(&sources, output, share, reason, true);
            if let Some(compaction) = compaction.filter(|compaction| self.conflict(compaction).is_none()) {
                self.accept(compaction);
            }
        }
    }

    /// Rule 4.
    fn early(&mut self) {
        if self.full() {
            return;
        }
        let (options, state) = (self.options, &self.plan.state);
        let last = options.last_level(self.shape);
        let share = options.tombstone_share;
        let found = early(self.shape, self.facts, state, last, options.sstable_bytes, share, true);
        let before = self.plan.compactions.len();
        for compaction in found {
            if !self.full() && self.conflict(&compaction).is_none() {
                self.accept(compaction);
            }
        }
        if self.plan.compactions.len() == before {
            self.plan.state.triggered_at = Some(self.facts.clock);
        }
    }

    /// The next group of SSTables to take out of a run, as a compaction into `output`.
    fn pick(
        &mut self,
        level: usize,
        run: &'a Run,
        output: Target,
        score: f64,
        what: &str,
    ) -> Option<CompactionPlan> {
        let below = self.shape.run(output.level, output.run);
        let tables = run.tables();
        let cursor = self.plan.state.cursors.get(level).map_or(&[][..], Vec::as_slice);
        let from = tables.partition_point(|t| t.live_start() < cursor);
        let (mut best, mut found) = (None::<(f64, usize, usize)>, 0);
        let mut at = 0;
        while at < tables.len() && found < self.options.candidates {
            let first = (from + at) % tables.len();
            let end = self.group(tables, first);
            at += end.saturating_sub(first).max(1);
            if end == first {
                continue;
            }
            let group: Vec<_> = tables[first..end].iter().collect();
            let Some(range) = cover(group.iter().copied()) else { continue };
            if below.is_some_and(|run| run.overlapping(&range).any(|t| !self.free(t))) {
                continue;
            }
            found += 1;
            let bytes: u64 = group.iter().map(|t| t.live_bytes()).sum();
            let dead = group.iter().map(|t| t.all_tombstones()).sum::<u64>() as f64
                / group.iter().map(|t| t.cells + t.range_tombstones).sum::<u64>().max(1) as f64;
            let cost = below.map_or(0, |run| run.bytes_within(&range)) as f64 / bytes.max(1) as f64
                * (1.0 - dead.min(1.0));
            if best.is_none_or(|(least, ..)| cost < least) && self.is_clear(level, run, &range, output) {
                best = Some((cost, first, end));
            }
        }
        let (_, mut first, mut end) = best?;
        // Neighbours within the range that is rewritten anyway are taken too.
        let range = cover(tables[first..end].iter())?;
        if let Some(wide) = cover(below.into_iter().flat_map(|run| run.overlapping(&range))) {
            let fits = |t: &Arc<TableInfo>| wide.covers(&t.live_range()) && self.free(t);
            while first > 0 && fits(&tables[first - 1]) {
                first -= 1;
            }
            while end < tables.len() && fits(&tables[end]) {
                end += 1;
            }
        }
        let group: Vec<_> = tables[first..end].iter().collect();
        let compaction = self.compact(&[(level, run, group)], output, score, what.to_string(), false)?;
        if self.conflict(&compaction).is_some() {
            return None;
        }
        let cursors = &mut self.plan.state.cursors;
        if cursors.len() <= level {
            cursors.resize(level + 1, Vec::new());
        }
        cursors[level] = tables.get(end).map_or(Vec::new(), |next| next.live_start().to_vec());
        Some(compaction)
    }

    /// Whether no compaction conflicts with one over this range and what it overlaps in the output.
    fn is_clear(&self, level: usize, run: &Run, range: &KeyRange, output: Target) -> bool {
        let below = self.shape.run(output.level, output.run);
        let wide = cover(below.into_iter().flat_map(|run| run.overlapping(range)));
        let trial = CompactionPlan {
            inputs: vec![InputRun { level, run: run.id, tables: Vec::new() }],
            output,
            range: wide.map_or(range.clone(), |wide| wide.cover(range)),
            kind: CompactionKind::Merge,
            bytes: 0,
            sstable_bytes: 0,
            score: 0.0,
            reason: String::new(),
        };
        self.conflict(&trial).is_none()
    }

    /// The end of the group that begins at `first`: neighbours up to one SSTable's size.
    fn group(&self, tables: &[Arc<TableInfo>], first: usize) -> usize {
        let (mut end, mut bytes) = (first, 0);
        while end < tables.len() && self.free(&tables[end]) {
            let more = tables[end].live_bytes();
            if end > first && bytes + more > self.options.sstable_bytes {
                break;
            }
            bytes += more;
            end += 1;
        }
        end
    }

    /// A compaction of these SSTables with all that they overlap in the output.
    fn compact(
        &self,
        sources: &[(usize, &Run, Vec<&Arc<TableInfo>>)],
        output: Target,
        score: f64,
        what: String,
        rewrite: bool,
    ) -> Option<CompactionPlan> {
        let source_tables: Vec<&Arc<TableInfo>> =
            sources.iter().flat_map(|(_, _, tables)| tables.clone()).collect();
        let below = self.shape.run(output.level, output.run);
        let trivial = !rewrite && are_apart(&source_tables, below);
        let mut range = cover(source_tables.iter().copied())?;
        let mut inputs: Vec<InputRun> = sources
            .iter()
            .map(|(level, run, tables)| InputRun { level: *level, run: run.id, tables: ids(tables) })
            .collect();
        let brought: u64 = source_tables.iter().map(|t| t.live_bytes()).sum();
        let mut met = 0;
        let mut reason = format!("{what}: {} SSTables of {}", source_tables.len(), size_text(brought));
        if trivial {
            reason += &format!(" overlap nothing in L{} and move there", output.level);
        } else {
            let tables: Vec<_> = below.into_iter().flat_map(|run| run.overlapping(&range)).collect();
            met = tables.iter().map(|t| t.live_bytes()).sum();
            if let Some(reach) = cover(tables.iter().copied()) {
                range = range.cover(&reach);
                inputs.push(InputRun { level: output.level, run: output.run, tables: ids(&tables) });
            }
            reason += &format!(" meet {} of {} in L{}", tables.len(), size_text(met), output.level);
        }
        Some(CompactionPlan {
            inputs,
            output,
            range,
            kind: if trivial { CompactionKind::TrivialMove } else { CompactionKind::Merge },
            bytes: brought + met,
            sstable_bytes: self.options.sstable_bytes,
            score,
            reason,
        })
    }
}

/// The share of tombstones among an SSTable's cells.
fn density(table: &TableInfo) -> f64 {
    table.all_tombstones() as f64 / (table.cells + table.range_tombstones).max(1) as f64
}

fn bytes_of(run: &Run, range: &KeyRange, id: TableId) -> Option<u64> {
    run.overlapping(range).find(|t| t.id == id).map(|t| t.live_bytes())
}
