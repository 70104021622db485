//! The rules that every compaction obeys, whether a strategy, a person or another process planned it.
//!
//! Runs have one order of age. A compaction takes cells out of their runs and puts them into one run of that
//! order. Reads stay right if no cell passes an overlapping run on the way: an SSTable between an input and
//! the target, or in the target itself, that shares keys with that input must be an input too (invariant I3).
//! The target's other SSTables must not reach into the compaction's range, as an output may lie anywhere in
//! it.
//!
//! Two compactions may run together if their key ranges do not overlap, or if their stretches of the order do
//! not. These may touch: one may write the run that the other reads, since they take different SSTables.

use super::{CompactionKind, CompactionPlan, RunAge, RunningCompaction};
use crate::shape::{Shape, TableInfo};
use crate::types::{KeyRange, TableId};
use std::collections::HashSet;
use std::sync::Arc;

/// Checks a planned compaction; the error says why it must not run on this shape beside the `running` ones.
pub(crate) fn validate(
    shape: &Shape,
    plan: &CompactionPlan,
    running: &[RunningCompaction],
) -> Result<(), String> {
    let inputs = inputs_are_there(shape, plan)?;
    nothing_is_passed(shape, plan, &inputs)?;
    if plan.kind == CompactionKind::TrivialMove {
        move_is_trivial(plan, &inputs)?;
    }
    running.iter().find_map(|other| wrong_with_running(plan, other)).map_or(Ok(()), Err)
}

/// Checks a planned flush that merges memory with SSTables. Memory is newer than all of them, so its cells
/// pass every run that is not older than the target: overlapping SSTables there must be inputs.
pub(crate) fn validate_flush(
    shape: &Shape,
    plan: &CompactionPlan,
    running: &[RunningCompaction],
) -> Result<(), String> {
    if plan.range.is_empty() || plan.kind != CompactionKind::Merge {
        return Err("memory is merged, over some keys".to_string());
    }
    if !plan.inputs.is_empty() {
        let inputs = inputs_are_there(shape, plan)?;
        nothing_is_passed(shape, plan, &inputs)?;
    }
    let (target, taken) = (plan.target(), plan.tables().collect::<HashSet<TableId>>());
    for (level, run) in shape.runs().filter(|(level, run)| RunAge::of(*level, run.id) <= target) {
        if let Some(table) = run.overlapping(&plan.range).find(|table| !taken.contains(&table.id)) {
            return Err(format!("memory would pass SSTable {} in L{level}", table.id));
        }
    }
    running.iter().find_map(|other| wrong_with_running(plan, other)).map_or(Ok(()), Err)
}

type Inputs<'a> = Vec<(RunAge, Vec<&'a Arc<TableInfo>>)>;

fn inputs_are_there<'a>(shape: &'a Shape, plan: &CompactionPlan) -> Result<Inputs<'a>, String> {
    if plan.inputs.is_empty() || plan.range.is_empty() {
        return Err("the compaction has no inputs".to_string());
    }
    if plan.output.level > 63 {
        return Err(format!("L{} is too deep", plan.output.level));
    }
    let mut seen = HashSet::new();
    let mut inputs = Inputs::new();
    for input in &plan.inputs {
        let place = RunAge::of(input.level, input.run);
        let run = shape
            .run(input.level, input.run)
            .ok_or_else(|| format!("L{} has no run #{}", input.level, input.run))?;
        let wanted: HashSet<TableId> = input.tables.iter().copied().collect();
        if wanted.is_empty() || wanted.len() != input.tables.len() || inputs.iter().any(|(p, _)| *p == place)
        {
            return Err(format!("run #{} of L{} is named twice or for nothing", input.run, input.level));
        }
        let tables: Vec<_> = run.overlapping(&plan.range).filter(|t| wanted.contains(&t.id)).collect();
        if tables.len() != wanted.len() {
            return Err(format!("run #{} of L{} lacks an input", input.run, input.level));
        }
        for table in &tables {
            if !plan.range.covers(&table.live_range()) {
                return Err(format!("SSTable {} reaches out of the compaction's range", table.id));
            }
            if !seen.insert(table.id) {
                return Err(format!("SSTable {} is named twice", table.id));
            }
        }
        inputs.push((place, tables));
    }
    Ok(inputs)
}

fn nothing_is_passed(shape: &Shape, plan: &CompactionPlan, inputs: &Inputs<'_>) -> Result<(), String> {
    let target = plan.target();
    let (newest, oldest) = plan.span();
    let taken: HashSet<TableId> = plan.tables().collect();
    for (level, run) in shape.runs() {
        let place = RunAge::of(level, run.id);
        if place < newest || place > oldest {
            continue;
        }
        for table in run.overlapping(&plan.range).filter(|t| !taken.contains(&t.id)) {
            let range = table.live_range();
            if place == target && plan.kind == CompactionKind::Merge {
                return Err(format!("SSTable {} of the target run lies in the compaction's range", table.id));
            }
            // Inputs pass this SSTable if it lies between them and the target.
            let passes =
                |from: RunAge| (from < place && place <= target) || (target <= place && place < from);
            let passing = inputs.iter().filter(|(from, _)| passes(*from)).flat_map(|(_, tables)| tables);
            if let Some(input) = passing.into_iter().find(|input| input.overlaps(&range)) {
                let (id, passed) = (input.id, table.id);
                return Err(format!("SSTable {id} would pass SSTable {passed} and is newer or older"));
            }
        }
    }
    Ok(())
}

fn move_is_trivial(plan: &CompactionPlan, inputs: &Inputs<'_>) -> Result<(), String> {
    if inputs.iter().any(|(place, _)| *place == plan.target()) {
        return Err("an SSTable is moved to where it is".to_string());
    }
    let mut ranges: Vec<KeyRange> =
        inputs.iter().flat_map(|(_, tables)| tables.iter().map(|t| t.live_range())).collect();
    ranges.sort_by(|a, b| a.start.cmp(&b.start));
    match ranges.windows(2).find(|pair| pair[0].overlaps(&pair[1])) {
        Some(pair) => Err(format!("SSTables moved together overlap at {}", pair[1])),
        None => Ok(()),
    }
}

/// The reason why the compaction cannot run beside another one; `None` if it can.
pub(crate) fn wrong_with_running(plan: &CompactionPlan, other: &RunningCompaction) -> Option<String> {
    let left = other.range_left();
    if !plan.range.overlaps(&left) {
        return None;
    }
    let theirs: HashSet<TableId> = other.plan.tables().collect();
    if let Some(id) = plan.tables().find(|id| theirs.contains(id)) {
        return Some(format!("SSTable {id} is in a running compaction"));
    }
    let (a, b) = (plan.span(), other.plan.span());
    let (newest, oldest) = (a.0.max(b.0), a.1.min(b.1));
    let touch = newest == oldest && a.0 != b.0 && a.1 != b.1;
    if newest > oldest || touch {
        return None;
    }
    Some(format!("a running compaction works on {left} at the same depth"))
}
