//! Triggered compactions: of a key range before its turn, where most cells are dead, or where reads search
//! many runs in vain. Shared by all strategies that compact at all.
//!
//! *Dead ranges.* A tombstone with the cells it deletes, an expired cell, and one that only released
//! snapshots needed, take space, and the time of every scan that passes them, until a compaction meets them
//! in the last level. So do versions beyond a limit that was lowered. A range is compacted into the last
//! level as soon as that drops a given share of its cells. A tombstone counts twice, as it mostly deletes a
//! cell. What expired before an SSTable was made does not count, nor anything while a snapshot is older than
//! it: a compaction has not dropped it, or could not.
//!
//! *Read ranges.* SSTables count their seek misses: gets, and each seek of a scan, that searched them without
//! finding a decisive cell. With one run instead of R those into all but the oldest would be saved. A counted
//! miss costs some five microseconds: for a scan, the seek and the blocks it reads; for a get, the search
//! itself, and a hundred that the filter spared, at 0.05 to 0.1 each (docs/experiments/auto.md). In that time
//! a compaction gets through about `LOOK_BYTES`. Where blocks are not cached a miss takes longer; then
//! compactions come late. So the range is compacted as soon as the misses in its newer SSTables have taken as
//! long as the compaction will. Under writes, new SSTables come before that; without writes, readers soon
//! find one run. There is no such compaction where the newer runs have less than a `WRITTEN_MAX`-th of the
//! bytes: so little is in memory, so that a miss costs far less, and a large run would be rewritten for it.
//!
//! Either way such a compaction has been paid for, by the bytes it gives back or by the misses that led to
//! it. Its output has no dead cells and no misses, so it is not repeated. It is a major compaction of the
//! range that an SSTable covers, from that SSTable's run down: newer runs stay above it, so that a wide run
//! of new cells does not make a narrow range of old ones wide. It counts as no debt, and waits while writers
//! are delayed.
//!
//! All SSTables have to be looked at for this. So if nothing could be started, that is not repeated within
//! the same two seconds (`Facts::clock`); and of the ranges that one of their SSTables makes candidates only
//! some are weighed at a time, from a drawn position on.

use super::major::{reach, to_bottom};
use super::{CompactionPlan, Facts, PlanState, RunAge};
use crate::shape::{Run, Shape, TableInfo};
use crate::types::{TableId, size_text};
use std::collections::HashSet;
use std::sync::Arc;

/// Bytes that a compaction gets through in the time of one seek miss.
pub(super) const LOOK_BYTES: f64 = 640.0;
/// The most bytes that a read-triggered compaction may write, as a multiple of those in the newer runs.
const WRITTEN_MAX: f64 = 32.0;
/// The most compactions that are found at a time.
const FOUND_MAX: usize = 16;
/// The most ranges that are weighed at a time.
const WEIGHED_MAX: usize = 64;
/// The share of dead cells for methods without an option for it.
pub(super) const DEAD_SHARE: f64 = 0.5;

/// The triggered compactions that are worth it, best first. They may conflict with each other and with
/// running ones. `below` says whether newer runs may stay above a compaction.
pub(super) fn early(
    shape: &Shape,
    facts: &Facts<'_>,
    state: &PlanState,
    last_level: usize,
    sstable_bytes: u64,
    share: f64,
    below: bool,
) -> Vec<CompactionPlan> {
    if facts.pressed || state.triggered_at == Some(facts.clock) {
        return Vec::new();
    }
    let busy: HashSet<TableId> =
        facts.running.iter().flat_map(|compaction| compaction.plan.tables()).collect();
    // A range can only be worth it if one of its SSTables alone would be. SSTables of the oldest run have no
    // run below, and have the most misses, so they would take the place of others.
    let oldest = shape.runs().last().filter(|_| below).map(|(level, run)| (level, run.id));
    let is_worth = |(level, run, seed): &(usize, &Run, &Arc<TableInfo>)| {
        let of_seed = Worth::of([seed.as_ref()], facts);
        let is_read = of_seed.is_read() && Some((*level, run.id)) != oldest;
        (of_seed.is_dead(share) || is_read) && !busy.contains(&seed.id)
    };
    let mut seeds: Vec<_> = shape.tables().filter(is_worth).collect();
    // The most that misses in all newer runs could pay for.
    let above = shape.tables().filter(|(level, run, _)| Some((*level, run.id)) != oldest);
    let above = Worth::of(above.map(|(_, _, table)| table.as_ref()), facts);
    if !seeds.is_empty() {
        let from = (facts.draw % seeds.len() as u64) as usize;
        seeds.rotate_left(from);
    }
    let mut found: Vec<CompactionPlan> = Vec::new();
    for (level, run, seed) in seeds.into_iter().take(WEIGHED_MAX) {
        if found.iter().any(|compaction| compaction.tables().any(|table| table == seed.id)) {
            continue;
        }
        let newest = below.then(|| RunAge::of(level, run.id));
        let compaction = reach(shape, newest, &seed.live_range())
            .and_then(|reached| to_bottom(shape, reached, last_level, sstable_bytes));
        let Some(compaction) = compaction else { continue };
        if !above.pays_for(compaction.bytes as f64) && !Worth::of([seed.as_ref()], facts).is_dead(share) {
            continue;
        }
        let Some(oldest) = compaction.inputs.last().map(|run| RunAge::of(run.level, run.run)) else {
            continue;
        };
        let (of_oldest, of_newer): (Vec<_>, Vec<_>) =
            compaction.live_inputs(shape).into_iter().partition(|(place, _)| *place == oldest);
        let tables = || of_newer.iter().chain(&of_oldest).map(|(_, table)| table.as_ref());
        let (all, newer) =
            (Worth::of(tables(), facts), Worth::of(of_newer.iter().map(|(_, table)| table.as_ref()), facts));
        let runs = compaction.inputs.len();
        let what = format!("{} SSTables of {} in {runs} runs", tables().count(), size_text(compaction.bytes));
        if all.is_dead(share) {
            let dead = (all.dead / all.cells).min(1.0);
            let reason =
                format!("{:.0} % of the cells in {} are dead: {what}", dead * 100.0, compaction.range);
            found.push(CompactionPlan { score: dead * 0.9, reason, ..compaction });
        } else if newer.pays_for(all.bytes) {
            let reason = format!("{} is read much, {:.0} seek misses: {what}", compaction.range, newer.looks);
            found.push(CompactionPlan { score: 0.5, reason, ..compaction });
        }
        if found.len() == FOUND_MAX {
            break;
        }
    }
    found.sort_by(|a, b| b.score.total_cmp(&a.score));
    found
}

#[derive(Default)]
struct Worth {
    bytes: f64,
    cells: f64,
    /// Cells that the compaction would drop.
    dead: f64,
    looks: f64,
}

impl Worth {
    fn of<'a>(tables: impl IntoIterator<Item = &'a TableInfo>, facts: &Facts<'_>) -> Self {
        tables.into_iter().fold(Worth::default(), |sum, table| {
            let cells = (table.cells + table.range_tombstones) as f64;
            Worth {
                bytes: sum.bytes + table.live_bytes() as f64,
                cells: sum.cells + cells,
                dead: sum.dead + dead(table, facts) * cells,
                looks: sum.looks + (facts.looks)(table.id) as f64,
            }
        })
    }

    fn is_dead(&self, share: f64) -> bool {
        self.dead > 0.0 && self.dead >= share * self.cells
    }

    /// Whether misses in these SSTables, the newer ones of a compaction of `bytes`, have cost as much as it
    /// will.
    fn pays_for(&self, bytes: f64) -> bool {
        self.looks > 0.0 && self.looks * LOOK_BYTES >= bytes && self.bytes * WRITTEN_MAX >= bytes
    }

    fn is_read(&self) -> bool {
        self.pays_for(self.bytes)
    }
}

/// The share of the SSTable's cells that a compaction of all runs at its keys would drop because of it; more
/// than 1 where its tombstones delete much.
fn dead(table: &TableInfo, facts: &Facts<'_>) -> f64 {
    let newest = table.ingested_at.map_or(table.seqs.1, |at| at.max(table.seqs.1));
    if newest > facts.settled_to {
        return 0.0;
    }
    let cells = (table.cells + table.range_tombstones).max(1) as f64;
    let surplus = (facts.surplus)(table.id) as f64;
    (2.0 * table.all_tombstones() as f64 + surplus) / cells + expired(table, facts)
}

/// The share of the SSTable's cells that have expired since it was made, as if their times were spread
/// evenly.
fn expired(table: &TableInfo, facts: &Facts<'_>) -> f64 {
    if facts.ttl_us == 0 {
        return 0.0;
    }
    // Cells up to these two times had expired when the SSTable was made, and have expired now.
    let (before, now) =
        (table.created.saturating_sub(facts.ttl_us), (facts.clock * 1_000_000).saturating_sub(facts.ttl_us));
    let (from, to) = (table.times.0.0, table.times.1.0);
    if to <= before || from > now {
        return 0.0;
    }
    match to - from {
        0 => 1.0,
        all => to.min(now).saturating_sub(from.max(before)) as f64 / all as f64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::SeqNo;
    use std::cell::Cell;

    /// Counted work: each SSTable's misses are read a few times, whatever the number of SSTables.
    #[test]
    fn of_ten_thousand_tables_that_were_read_the_few_above_them_are_found_at_once() {
        let base: Vec<_> = (0..10_000).map(|n| format!("[k{n:05},k{:05}) 1M", n + 1)).collect();
        let newer = "L0 #3: [k00003,k00004) 64K, [k07000,k07001) 64K, [k08000,k08001) 1K";
        let shape: Shape = format!("{newer}\nL6 #1: {}\n", base.join(", ")).parse().expect("a shape");
        let asked = Cell::new(0);
        let looks = |_: TableId| {
            asked.set(asked.get() + 1);
            1_000_000
        };
        let facts = Facts { draw: 5_000, looks: &looks, ..Facts::default() };
        let found = early(&shape, &facts, &PlanState::default(), 6, 1 << 20, DEAD_SHARE, true);
        let ranges: Vec<_> =
            found.iter().map(|compaction| (compaction.inputs.len(), compaction.bytes >> 20)).collect();
        assert_eq!(ranges, [(2, 1), (2, 1)], "and not for a sixty-fourth that is newer");
        assert!(asked.get() < 3 * 10_003, "{} times", asked.get());
    }

    #[test]
    fn a_range_of_cells_that_only_snapshots_needed_is_merged_once_those_are_gone() {
        let shape: Shape = "L6 #1: 1:[a,m) 1M cells 1000, 2:[m,z) 1M cells 1000\n".parse().expect("a shape");
        let found = |surplus: u64, newest: u64, settled_to: SeqNo| {
            let mut shape = shape.clone();
            for run in &mut shape.levels[6].runs {
                let newer = |table: &Arc<TableInfo>| {
                    Arc::new(TableInfo { seqs: (SeqNo(1), SeqNo(newest)), ..TableInfo::clone(table) })
                };
                *run = Run::new(run.id, run.tables().iter().map(newer).collect());
            }
            let surplus = |table: TableId| if table.part == 2 { surplus } else { 0 };
            let facts = Facts { surplus: &surplus, settled_to, ..Facts::default() };
            let found = early(&shape, &facts, &PlanState::default(), 6, 1 << 20, DEAD_SHARE, true);
            found
                .iter()
                .flat_map(|compaction| compaction.tables())
                .map(|table| table.part)
                .collect::<Vec<_>>()
        };
        assert_eq!(found(500, 9, SeqNo::MAX), [2]);
        assert_eq!(found(500, 9, SeqNo(9)), [2]);
        assert!(found(500, 9, SeqNo(8)).is_empty(), "a snapshot may need them");
        assert!(found(499, 9, SeqNo::MAX).is_empty(), "less than half");
    }
}
