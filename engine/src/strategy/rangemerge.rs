//! Rangemerge: one run of SSTables, each the one file of its own key range, and memory divided by the same
//! ranges (RNG-1, RNG-2).
//!
//! *Ranges* tile the key space: the i-th reaches from the start of the run's i-th SSTable to the start of the
//! next one, the first from the very first key. When memory has to be freed, one range is the *victim*: its
//! memory is merged with its file, so flush and compaction are one. The output is cut into as many equal
//! parts as files of at most `sstable_bytes` bytes need; where the inputs are larger than that, their
//! sketches estimate its size. Neighbours that deletes made small are joined. So a key lies in one SSTable, a
//! get costs one access, a scan one and what follows in sequence; no compaction takes more than a range or
//! needs more extra space.
//!
//! *The victim.* `most-bytes`, the rule of the paper, takes the range with most bytes in memory: then every
//! range is merged at the same fill, and a byte is written some D/2M times, whatever the skew. `bytes-age`
//! takes the one with most bytes x age / cost, where the cost is the bytes that a compaction writes (with
//! deltas in the mean). This minimises the bytes rewritten at a given memory: if range i receives r bytes a
//! second and is merged every t seconds at a cost of c, the rewriting is the sum of c/t and the memory the
//! sum of rt/2. Minimising one with the other fixed makes r t t / c equal for all ranges when they are
//! merged; r t is a range's bytes, t its age. Ranges with many writes are merged more often but fuller, and
//! ranges with few writes wait.
//!
//! *Deltas.* With `deltas` k a flush writes a small SSTable beside the range's file instead, until there are
//! k, or they would together be larger than a file may be, or than this file; the next flush merges all of
//! them. A get may have to search k SSTables more, and a byte is rewritten about k+1 times less. Ranges with
//! equal writes would all have their last delta at the same time, and writers would wait while one after
//! another is merged. So a range at half of its limit is merged early when it and the ranges flushed since
//! its last compaction, which must be most, are over half of theirs in the mean. This spreads them, and one
//! compaction in k+1 flushes comes regularly; then few are merged long before their limit. (Ranges without
//! writes do not count.)
//!
//! *Levels and runs.* The run of files is the oldest of the deepest level, level 1 in a new store; the j-th
//! delta of every range is in one run of the same level whose id is greater by j, so that it is newer.
//! Everything else is *foreign*: SSTables of another strategy, ingested ones, and flushes of all memory in
//! L0. Foreign SSTables are merged, or moved, into the run by ordinary compactions; while one lies over
//! several ranges, their memory goes to L0 too.

use super::major::{Reached, reach};
use super::runs::within;
use super::triggered::{DEAD_SHARE, early};
use super::{
    ByRange, CompactionKind, CompactionPlan, Facts, InputRun, Plan, PlanState, RangeMemory,
    RunningCompaction, Strategy, Target, Unique, cover, ids, wrong_with_running,
};
use crate::shape::{Run, Shape, TableInfo};
use crate::types::{KeyRange, TableId, size_text};
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::sync::Arc;

/// How `rangemerge` chooses the range to flush.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Victim {
    /// The range with most bytes in memory.
    MostBytes,
    /// The range with most bytes x age / bytes to be written.
    #[default]
    BytesAge,
}

/// Settings of `rangemerge`.
///
/// ```
/// let options = siltstone::strategy::RangemergeOptions { deltas_max: 4, ..Default::default() };
/// assert_eq!(options.sstable_bytes, 256 << 20);
/// ```
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RangemergeOptions {
    /// The most bytes of a range's file, about.
    #[serde(alias = "f")]
    pub sstable_bytes: u64,
    /// Which range is flushed when memory has to be freed.
    pub victim: Victim,
    /// Small SSTables that may lie beside a range's file, together no larger than `sstable_bytes` or that
    /// file.
    #[serde(alias = "deltas")]
    pub deltas_max: u64,
}

impl Default for RangemergeOptions {
    fn default() -> Self {
        RangemergeOptions { sstable_bytes: 256 << 20, victim: Victim::default(), deltas_max: 0 }
    }
}

struct RangeFiles {
    file: u64,
    beside: u64,
    deltas: u64,
    /// The newest of its SSTables, which shows which of two ranges was flushed later.
    newest: TableId,
}

/// Neighbouring ranges are joined if their sum is at most one part in so many of `sstable_bytes`: a part of a
/// split range has twice as much.
const JOINED_PART: u64 = 4;

/// The most SSTables whose sketches are read to estimate what a compaction would leave, as each costs a read;
/// with more, all is assumed to stay.
const SKETCHES_MAX: usize = 64;

impl RangemergeOptions {
    /// The run of the ranges' files.
    fn home(&self, shape: &Shape) -> Target {
        let deepest = shape.deepest().filter(|level| *level > 0);
        let oldest = |level: usize| shape.levels[level].runs.last().map(|run| Target { level, run: run.id });
        deepest.and_then(oldest).unwrap_or(Target { level: 1, run: 1 })
    }

    /// The number of the run's deltas, 0 for the files themselves; `None` for a foreign run.
    fn number(&self, home: Target, level: usize, run: u64) -> Option<u64> {
        let number = run.checked_sub(home.run).filter(|number| *number <= self.deltas_max);
        number.filter(|_| level == home.level)
    }

    /// Whether the SSTable has to be moved into the run of files: it is in a foreign run, or is a delta over
    /// several ranges.
    fn is_foreign(&self, place: Target, home: Target, bounds: &[Vec<u8>], table: &TableInfo) -> bool {
        match self.number(home, place.level, place.run) {
            None => true,
            Some(0) => false,
            Some(_) => !is_in_one_range(bounds, &table.live_range()),
        }
    }

    /// All foreign SSTables with their places, oldest first.
    fn foreign<'a>(&self, shape: &'a Shape) -> Vec<(Target, &'a Arc<TableInfo>)> {
        let (home, bounds) = (self.home(shape), self.bounds(shape));
        let all = shape.tables().map(|(level, run, table)| (Target { level, run: run.id }, table));
        let mut found: Vec<_> =
            all.filter(|(place, table)| self.is_foreign(*place, home, &bounds, table)).collect();
        found.reverse();
        found
    }

    /// The size of output SSTables: as many equal parts as files of `sstable_bytes` bytes are needed, with
    /// some slack, so that a part that comes out a little larger leaves no tiny one behind.
    fn part_bytes(&self, bytes: u64) -> u64 {
        let part = match bytes.div_ceil(self.sstable_bytes) {
            0 | 1 => self.sstable_bytes,
            parts => bytes.div_ceil(parts),
        };
        part + part / 16
    }

    /// Whether deltas of so many bytes may lie beside a file.
    fn fits(&self, beside: u64, file: u64) -> bool {
        beside <= self.sstable_bytes.max(file)
    }

    /// The progress of a range towards its next compaction, up to about 1.
    fn fill(&self, deltas: u64, beside: u64, file: u64) -> f64 {
        let of_number = deltas as f64 / self.deltas_max as f64;
        of_number.max(beside as f64 / self.sstable_bytes.max(file) as f64)
    }

    /// The SSTables of each range. O(ranges x deltas).
    fn held(&self, shape: &Shape, home: Target) -> Vec<RangeFiles> {
        let files = shape.run(home.level, home.run).map_or(&[][..], Run::tables);
        let only_file = |file: &Arc<TableInfo>| RangeFiles {
            file: file.live_bytes(),
            beside: 0,
            deltas: 0,
            newest: file.id,
        };
        let mut ranges: Vec<RangeFiles> = files.iter().map(only_file).collect();
        if files.is_empty() {
            return ranges;
        }
        for run in (1..=self.deltas_max).filter_map(|number| shape.run(home.level, home.run + number)) {
            let (mut at, mut counted) = (0, None);
            for table in run.tables() {
                while files.get(at + 1).is_some_and(|next| next.live_start() <= table.live_start()) {
                    at += 1;
                }
                let held = &mut ranges[at];
                held.beside += table.live_bytes();
                held.newest = held.newest.max(table.id);
                held.deltas += u64::from(counted.replace(at) != Some(at));
            }
        }
        ranges
    }

    fn parts_text(&self, bytes: u64) -> String {
        match bytes.div_ceil(self.sstable_bytes).max(1) {
            1 => String::new(),
            parts => format!(", in {parts} parts"),
        }
    }
}

impl Strategy for RangemergeOptions {
    fn check(&self) -> Result<(), String> {
        within("sstable_bytes", self.sstable_bytes, 4096, 1 << 50)?;
        within("deltas_max", self.deltas_max, 0, 64)
    }

    fn plan(&self, shape: &Shape, facts: &Facts<'_>, state: &PlanState) -> Plan {
        let mut planner = Planner {
            options: self,
            shape,
            facts,
            home: self.home(shape),
            bounds: self.bounds(shape),
            busy: facts.running.iter().flat_map(|compaction| compaction.plan.tables()).collect(),
            taken: facts.running.to_vec(),
            compactions: Vec::new(),
        };
        planner.bring_home();
        planner.join_small();
        let mut state = state.clone();
        // Foreign SSTables come first: while there are any, new bounds could create more.
        if !planner.full() && self.foreign(shape).is_empty() {
            let before = planner.compactions.len();
            let found =
                early(shape, facts, &state, self.last_level(shape), self.sstable_bytes, DEAD_SHARE, false);
            found.into_iter().for_each(|compaction| planner.accept_triggered(compaction));
            state.triggered_at = (planner.compactions.len() == before).then_some(facts.clock);
        }
        let mut compactions = planner.compactions;
        compactions.sort_by(|a, b| b.score.total_cmp(&a.score));
        Plan { compactions, state, ..Plan::default() }
    }

    fn debt(&self, shape: &Shape, _: &Facts<'_>, _: &PlanState) -> u64 {
        // A foreign SSTable overlaps about as much in the run of files. A delta over several ranges (whose
        // files are gone) is moved there too, but adds no debt.
        let home = self.home(shape);
        let foreign = shape.runs().filter(|(level, run)| self.number(home, *level, run.id).is_none());
        2 * foreign.map(|(_, run)| run.live_bytes()).sum::<u64>()
    }

    fn last_level(&self, shape: &Shape) -> usize {
        self.home(shape).level
    }

    fn level0_runs(&self) -> usize {
        4
    }

    fn sstable_bytes(&self) -> u64 {
        self.sstable_bytes
    }

    fn by_range(&self) -> Option<&dyn ByRange> {
        Some(self)
    }
}

impl ByRange for RangemergeOptions {
    fn cut(&self, plan: &mut CompactionPlan, unique: Unique<'_>) {
        let tables: Vec<TableId> = plan.tables().collect();
        let share =
            match plan.bytes <= self.sstable_bytes || plan.inputs.len() == 1 || tables.len() > SKETCHES_MAX {
                true => 1.0,
                false => unique(&tables),
            };
        let written = (plan.bytes as f64 * share) as u64;
        plan.sstable_bytes = self.part_bytes(written);
        plan.reason += &self.parts_text(written);
    }

    fn bounds(&self, shape: &Shape) -> Vec<Vec<u8>> {
        let home = self.home(shape);
        let tables = shape.run(home.level, home.run).map_or(&[][..], Run::tables);
        tables.iter().skip(1).map(|table| table.live_start().to_vec()).collect()
    }

    fn rewritten(&self, shape: &Shape) -> u64 {
        let home = self.home(shape);
        let (files, tables) =
            shape.run(home.level, home.run).map_or((0, 1), |run| (run.live_bytes(), run.tables().len()));
        files / tables as u64 / (self.deltas_max + 1)
    }

    fn victim(&self, shape: &Shape, memory: &[RangeMemory]) -> Option<(usize, String)> {
        // Its SSTables are rewritten once in so many flushes.
        let flushes = |m: &RangeMemory| 1 + self.deltas_max.min(self.sstable_bytes / m.written.max(1));
        let cost = |m: &RangeMemory| m.written + shape.bytes_within(&m.range) / flushes(m);
        let worth = |m: &RangeMemory| match self.victim {
            Victim::MostBytes => m.bytes as f64,
            Victim::BytesAge => m.bytes as f64 * m.age.max(1) as f64 / cost(m).max(1) as f64,
        };
        let best = (0..memory.len()).max_by(|a, b| worth(&memory[*a]).total_cmp(&worth(&memory[*b])))?;
        let m = &memory[best];
        let of = format!("the range {} has {} in memory", m.range, size_text(m.bytes));
        let why = match self.victim {
            Victim::MostBytes => format!("{of}, the most of {}", memory.len()),
            Victim::BytesAge => {
                let (age, cost) = (m.age, size_text(cost(m)));
                format!("{of}, {age} operations old, and costs {cost}: the best of {}", memory.len())
            }
        };
        Some((best, why))
    }

    /// Whether a range is merged before it has to be; see *Deltas* on the page above.
    fn is_early(&self, shape: &Shape, range: &KeyRange) -> bool {
        let home = self.home(shape);
        let bytes =
            |number| shape.run(home.level, home.run + number).map_or(0, |run| run.bytes_within(range));
        let beside: Vec<u64> = (1..=self.deltas_max).map(bytes).filter(|bytes| *bytes > 0).collect();
        if 2.0 * self.fill(beside.len() as u64, beside.iter().sum(), bytes(0)) < 1.0 {
            return false;
        }
        let ranges = self.held(shape, home);
        let files = shape.run(home.level, home.run).map_or(&[][..], Run::tables);
        let bounds = files.get(1..).unwrap_or_default();
        let Some(own) = ranges.get(bounds.partition_point(|file| file.live_start() <= &range.start[..]))
        else {
            return false;
        };
        let since = ranges.iter().filter(|other| other.newest >= own.newest);
        let since: Vec<f64> = since.map(|o| self.fill(o.deltas, o.beside, o.file)).collect();
        let others = since.len() as f64;
        // One more, because a single range needs no spreading. And a few are no measure: they have the most
        // writes, and chance spreads them.
        2 * since.len() >= ranges.len() && 2.0 * since.iter().sum::<f64>() >= others + 1.0
    }

    fn flush(
        &self,
        shape: &Shape,
        memory: &RangeMemory,
        early: bool,
        unique: Unique<'_>,
    ) -> Option<CompactionPlan> {
        let home = self.home(shape);
        let mut inputs = Vec::new();
        let (mut bytes, mut file, mut deltas, mut foreign) = (0, None, 0, false);
        for (level, run) in shape.runs() {
            let tables: Vec<_> = run.overlapping(&memory.range).collect();
            if tables.is_empty() {
                continue;
            }
            if tables.iter().any(|table| !memory.range.covers(&table.live_range())) {
                return None;
            }
            let run_bytes: u64 = tables.iter().map(|table| table.live_bytes()).sum();
            match self.number(home, level, run.id) {
                None => foreign = true,
                Some(0) => file = Some(run_bytes),
                Some(number) => deltas = deltas.max(number),
            }
            bytes += run_bytes;
            inputs.push(InputRun { level, run: run.id, tables: ids(&tables) });
        }
        let brought = size_text(memory.written);
        let fits = file.is_some_and(|file| self.fits(bytes - file + memory.written, file));
        let room = fits && !foreign && deltas < self.deltas_max;
        let beside = room && !early;
        let all = bytes + memory.written;
        let tables = || inputs.iter().flat_map(|input| input.tables.iter().copied()).collect::<Vec<_>>();
        let written = match beside {
            true => memory.written,
            false if all <= self.sstable_bytes => all,
            false => (all as f64 * unique(&tables())) as u64,
        };
        let (there, most) = (size_text(bytes), self.deltas_max);
        let reason = if beside {
            format!("{brought} of memory beside a file of {there}, delta {}", deltas + 1)
        } else {
            let ahead = match room {
                true => format!(", at delta {deltas} of {most}, before the others are so far"),
                false => String::new(),
            };
            format!("{brought} of memory meet {there}{ahead}{}", self.parts_text(written))
        };
        let (inputs, bytes) = if beside { (Vec::new(), 0) } else { (inputs, bytes) };
        Some(CompactionPlan {
            inputs,
            output: Target { run: home.run + if beside { deltas + 1 } else { 0 }, ..home },
            range: memory.range.clone(),
            kind: CompactionKind::Merge,
            bytes: bytes + memory.bytes,
            sstable_bytes: self.part_bytes(written),
            score: 1.0,
            reason,
        })
    }
}

struct Planner<'a> {
    options: &'a RangemergeOptions,
    shape: &'a Shape,
    facts: &'a Facts<'a>,
    home: Target,
    bounds: Vec<Vec<u8>>,
    /// SSTables in running and in planned compactions.
    busy: HashSet<TableId>,
    /// Running and planned compactions.
    taken: Vec<RunningCompaction>,
    compactions: Vec<CompactionPlan>,
}

impl Planner<'_> {
    fn full(&self) -> bool {
        self.compactions.len() >= self.facts.compactions_max
    }

    /// Plans the compaction if nothing conflicts with it, and sets the size of its output SSTables.
    fn accept(&mut self, mut compaction: CompactionPlan) {
        if self.taken.iter().any(|other| wrong_with_running(&compaction, other).is_some()) {
            return;
        }
        if compaction.kind == CompactionKind::Merge {
            self.options.cut(&mut compaction, self.facts.unique);
        }
        self.busy.extend(compaction.tables());
        self.taken.push(RunningCompaction { plan: compaction.clone(), clip: None });
        self.compactions.push(compaction);
    }

    /// Plans a triggered compaction, but not where another SSTable reaches into its range: new files would
    /// end inside that one, and it would be a delta over several ranges.
    fn accept_triggered(&mut self, compaction: CompactionPlan) {
        let all = reach(self.shape, None, &compaction.range).map(|reached| reached.inputs);
        if !self.full() && all.as_ref() == Some(&compaction.inputs) {
            self.accept(compaction);
        }
    }

    /// Plans compactions that take foreign SSTables into the run of files, those of the oldest run first.
    fn bring_home(&mut self) {
        for (place, table) in self.options.foreign(self.shape) {
            if self.full() {
                return;
            }
            // The more runs there are, the more urgent.
            let score = 1.0 + self.shape.levels[place.level].runs.len() as f64 / 10.0;
            if !self.busy.contains(&table.id)
                && let Some(compaction) = self.to_home(place, table, score)
            {
                self.accept(compaction);
            }
        }
    }

    /// The compaction of a foreign SSTable with all that it overlaps.
    fn to_home(&self, place: Target, table: &Arc<TableInfo>, score: f64) -> Option<CompactionPlan> {
        let Reached { inputs, range, bytes, .. } = reach(self.shape, None, &table.live_range())?;
        let number = |input: &InputRun| self.options.number(self.home, input.level, input.run);
        let is_own = |input: &InputRun| (input.level, input.run) == (place.level, place.run);
        let own = inputs.iter().find(|input| is_own(input))?;
        let only = own.tables == [table.id] && inputs.iter().all(|i| is_own(i) || number(i).is_some());
        let what = format!("SSTable {} of {} is not in the run", table.id, size_text(table.live_bytes()));
        let moved = |run: u64, reason: String| CompactionPlan {
            inputs: vec![own.clone()],
            output: Target { run, ..self.home },
            range: table.live_range(),
            kind: CompactionKind::TrivialMove,
            bytes: table.live_bytes(),
            sstable_bytes: self.options.sstable_bytes,
            score,
            reason,
        };
        if only && inputs.len() == 1 && table.live_bytes() <= self.options.sstable_bytes {
            return Some(moved(self.home.run, format!("{what} and moves there: nothing is in its place")));
        }
        let has_file = inputs.iter().any(|input| number(input) == Some(0));
        let delta = inputs.iter().filter(|input| !is_own(input)).filter_map(number).max().unwrap_or(0) + 1;
        if only && has_file && delta <= self.options.deltas_max && self.fits_beside(table) {
            let reason = format!("{what} and becomes delta {delta} of its range");
            return Some(moved(self.home.run + delta, reason));
        }
        let tables: usize = inputs.iter().map(|input| input.tables.len()).sum();
        Some(CompactionPlan {
            reason: format!("{what}: {tables} SSTables of {} become part of it", size_text(bytes)),
            inputs,
            output: self.home,
            range,
            kind: CompactionKind::Merge,
            bytes,
            sstable_bytes: self.options.sstable_bytes,
            score,
        })
    }

    /// Whether the SSTable lies in one range and may lie beside its file.
    fn fits_beside(&self, table: &TableInfo) -> bool {
        let at = self.bounds.partition_point(|bound| bound.as_slice() <= table.live_start());
        let start = at.checked_sub(1).map_or(Vec::new(), |before| self.bounds[before].clone());
        let range = KeyRange { start, end: self.bounds.get(at).cloned() };
        let bytes = |number: u64| {
            self.shape.run(self.home.level, self.home.run + number).map_or(0, |run| run.bytes_within(&range))
        };
        let beside: u64 = (1..=self.options.deltas_max).map(bytes).sum();
        range.covers(&table.live_range()) && self.options.fits(beside + table.live_bytes(), bytes(0))
    }

    /// Plans compactions that join neighbouring ranges which together are far smaller than a file may be.
    fn join_small(&mut self) {
        let shape = self.shape;
        let Some(run) = shape.run(self.home.level, self.home.run) else { return };
        for pair in run.tables().windows(2) {
            let files: u64 = pair.iter().map(|table| table.live_bytes()).sum();
            if self.full()
                || files > self.options.sstable_bytes / JOINED_PART
                || pair.iter().any(|t| self.busy.contains(&t.id))
            {
                continue;
            }
            let Some(reached) = cover(pair).and_then(|both| reach(shape, None, &both)) else { continue };
            let Reached { inputs, range, bytes, .. } = reached;
            if bytes > self.options.sstable_bytes / JOINED_PART {
                continue;
            }
            let reason = format!("neighbours of {} together are joined", size_text(bytes));
            self.accept(CompactionPlan {
                inputs,
                output: self.home,
                range,
                kind: CompactionKind::Merge,
                bytes,
                sstable_bytes: self.options.sstable_bytes,
                score: 0.5,
                reason,
            });
        }
    }
}

fn is_in_one_range(bounds: &[Vec<u8>], keys: &KeyRange) -> bool {
    let after = bounds.partition_point(|bound| *bound <= keys.start);
    bounds.get(after).is_none_or(|bound| !keys.ends_after(bound))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How often a byte is written by puts over ranges of one size, each range with its share. Deltas are not
    /// counted.
    fn write_amplification(strategy: &str, data_over_memory: f64, shares: &[f64]) -> f64 {
        let options: RangemergeOptions = match strategy.parse() {
            Ok(crate::strategy::StrategyOptions::Rangemerge(options)) => options,
            other => panic!("{other:?}"),
        };
        let file = 100 << 20;
        let key = |n: usize| (n as u32).to_be_bytes().to_vec();
        let range = |n: usize| KeyRange::new(key(n), key(n + 1));
        let tables = (0..shares.len()).map(|n| Arc::new(TableInfo::over(n as u32, range(n), file)));
        let mut shape = Shape::default();
        shape.levels.resize_with(2, Default::default);
        shape.levels[1].runs.push(Run::new(1, tables.collect()));
        let memory_max = (shares.len() as u64 * file) as f64 / data_over_memory;
        let all: f64 = shares.iter().sum();
        let (mut held, mut since) = (vec![0.0; shares.len()], vec![0u64; shares.len()]);
        let (mut put, mut written, mut half) = (0.0, 0.0, (0.0, 0.0));
        let rounds = 40_000;
        for now in 0..rounds {
            let part = memory_max / 500.0;
            put += part;
            held.iter_mut().zip(shares).for_each(|(held, share)| *held += part * share / all);
            while held.iter().sum::<f64>() > memory_max {
                let of_range = |n: usize| {
                    let bytes = held[n] as u64;
                    RangeMemory { range: range(n), bytes, written: bytes, age: now - since[n] }
                };
                let memory: Vec<RangeMemory> = (0..shares.len()).map(of_range).collect();
                let (victim, _) = options.victim(&shape, &memory).expect("a range");
                let plan = options.flush(&shape, &memory[victim], false, &|_| 1.0).expect("a compaction");
                written += plan.bytes as f64;
                (held[victim], since[victim]) = (0.0, now);
            }
            if now == rounds / 2 {
                half = (put, written);
            }
        }
        (written - half.1) / (put - half.0)
    }

    /// Flushes of equal ranges with equal writes: the most flushes in a row that rewrote a range, and the
    /// mean number of flushes per rewrite.
    fn compactions_of(deltas: u64, ranges: u32, f: u64) -> (u64, f64) {
        let options = RangemergeOptions { sstable_bytes: f, deltas_max: deltas, ..Default::default() };
        let range = |n: u32| KeyRange::new(n.to_be_bytes(), (n + 1).to_be_bytes());
        let mut next = 0;
        let mut table = |n: u32| {
            next += 1;
            Arc::new(TableInfo::over(next, range(n), 1 << 20))
        };
        let mut shape = Shape::default();
        shape.levels.resize_with(2, Default::default);
        shape.levels[1].runs.push(Run::new(1, (0..ranges).map(&mut table).collect()));
        let (mut row, mut longest, mut merged) = (0, 0, 0.0);
        let rounds = 20 * (deltas as u32 + 1);
        for n in (0..rounds).flat_map(|_| 0..ranges) {
            let memory = RangeMemory { range: range(n), bytes: 1 << 20, written: 1 << 20, age: 1 };
            let early = options.is_early(&shape, &memory.range);
            let plan = options.flush(&shape, &memory, early, &|_| 1.0).expect("a compaction");
            row = if plan.inputs.is_empty() { 0 } else { row + 1 };
            longest = row.max(longest);
            merged += f64::from(u32::from(row > 0));
            let step = crate::strategy::Step { outputs: vec![table(n)], ..Default::default() };
            crate::strategy::apply(&mut shape, &plan, &step).expect("a flush");
        }
        (longest, f64::from(rounds * ranges) / merged)
    }

    #[test]
    fn ranges_written_alike_are_merged_one_in_so_many_flushes_and_not_all_at_once() {
        // Either the number of deltas is the limit, or their bytes.
        for (deltas, ranges, f, flushes) in
            [(4, 1, 100, 5.0), (4, 40, 100, 5.0), (12, 40, 100, 13.0), (8, 300, 100, 9.0), (16, 40, 6, 7.0)]
        {
            let (longest, one_in) = compactions_of(deltas, ranges, f << 20);
            assert!(longest <= 4, "{deltas} deltas, {ranges} ranges: {longest} compactions in a row");
            assert!(one_in > 0.9 * flushes, "{deltas} deltas, {ranges} ranges: one in {one_in}");
        }
        assert_eq!(compactions_of(0, 10, 100 << 20).1, 1.0);
        assert_eq!(compactions_of(4, 1, 100 << 20), (1, 5.0));
    }

    #[test]
    fn the_papers_rule_writes_a_byte_half_of_data_over_memory_times_whatever_the_skew() {
        let zipf: Vec<f64> = (1..=100).map(|rank| 1.0 / f64::from(rank)).collect();
        for shares in [vec![1.0; 100], zipf.clone()] {
            for ratio in [20.0, 100.0] {
                let found = write_amplification("rangemerge{victim=most-bytes}", ratio, &shares);
                assert!((found / (1.0 + ratio / 2.0) - 1.0).abs() < 0.15, "D/M {ratio}: {found}");
            }
        }
        let uniform = write_amplification("rangemerge", 100.0, &vec![1.0; 100]);
        assert!((45.0..60.0).contains(&uniform), "{uniform}");
        let skewed = write_amplification("rangemerge", 100.0, &zipf);
        assert!((25.0..40.0).contains(&skewed), "{skewed}");
    }
}
