//! A manual compaction: everything in a key range ends in one run at the bottom, by one merge, or by one for
//! each range of keys whose memory is held apart.

use super::{InputRun, MergeKind, MergePlan, Place, Strategy, Target, cover, ids};
use crate::shape::{Shape, TableInfo};
use crate::types::{KeyRange, SeqNo, TableId, Timestamp};

/// What a compaction is for.
#[derive(Clone, Copy)]
pub(crate) struct Asked<'a> {
    /// Tables of which all was written later need not be merged.
    pub(crate) upto: SeqNo,
    /// Also what is in its place is to be written again.
    pub(crate) rewrite: bool,
    /// So is what has cells as old as this, where time takes them.
    pub(crate) expired: Option<Timestamp>,
    /// And what has cells that nobody needs once no snapshot holds them.
    pub(crate) surplus: &'a dyn Fn(TableId) -> bool,
}

impl Asked<'_> {
    /// All that has to change its place, or has deletes or values in the log there.
    pub(crate) const ALL: Asked<'static> =
        Asked { upto: SeqNo::MAX, rewrite: false, expired: None, surplus: &|_| false };
}

/// One merge of all that overlaps `range` into the oldest run of `last_level`; `None` when that is already
/// where everything is, no cell could go and no value is in the log. As it runs in steps, its size does not
/// matter.
pub(crate) fn major(
    shape: &Shape,
    range: &KeyRange,
    asked: Asked<'_>,
    last_level: usize,
    table_bytes: u64,
) -> Option<MergePlan> {
    let merge = to_bottom(shape, reach(shape, range)?, last_level, table_bytes)?;
    let wants = |place: Place, table: &TableInfo| {
        let expired = asked.expired.is_some_and(|moment| table.times.0 <= moment);
        let less = expired || table.all_tombstones() > 0 || table.is_log_table();
        asked.rewrite || less || place != merge.target() || (asked.surplus)(table.id)
    };
    let inputs = merge.live_inputs(shape);
    let is_due = inputs.iter().any(|(place, table)| table.seqs.0 <= asked.upto && wants(*place, table));
    is_due.then_some(merge)
}

/// The first of the merges that make one run of all that overlaps `left`, if there is anything to do, and the
/// part of `left` that it is for. With `bounds` of ranges it is the first of these; tables that lie over
/// several make one part of them, with all that is newer there. O(tables it takes + log ranges).
pub(crate) fn major_part(
    shape: &Shape,
    left: &KeyRange,
    bounds: &[Vec<u8>],
    asked: Asked<'_>,
    strategy: &dyn Strategy,
) -> (KeyRange, Option<MergePlan>) {
    let up_to = |bound: usize| {
        let end = bounds.get(bound).filter(|bound| left.ends_after(bound)).cloned();
        KeyRange { start: left.start.clone(), end: end.or_else(|| left.end.clone()) }
    };
    let mut part = up_to(bounds.partition_point(|bound| *bound <= left.start));
    loop {
        let plan = major(shape, &part, asked, strategy.last_level(shape), strategy.table_bytes());
        let reaches_to = |plan: &MergePlan| match (part.end.as_deref(), &plan.range.end) {
            (Some(end), Some(to)) if plan.range.ends_after(end) => {
                up_to(bounds.partition_point(|bound| bound < to))
            }
            (Some(_), None) => up_to(bounds.len()),
            _ => part.clone(),
        };
        let wider = plan.as_ref().map_or(part.clone(), reaches_to);
        if wider == part {
            return (part, plan);
        }
        part = wider;
    }
}

/// The same of what was reached, even where it is at the bottom.
pub(super) fn to_bottom(
    shape: &Shape,
    reached: Reached,
    last_level: usize,
    table_bytes: u64,
) -> Option<MergePlan> {
    let level = last_level.max(shape.deepest()?);
    let Reached { inputs, range, bytes, .. } = reached;
    let oldest = shape.levels.get(level).and_then(|l| l.runs.last()).map(|run| run.id);
    // A new bottom run is older than all else, and as new as its newest input.
    let newest_input = inputs.first()?.run;
    let output = Target { level, run: oldest.unwrap_or(newest_input) };
    let tables: usize = inputs.iter().map(|input| input.tables.len()).sum();
    let size = crate::types::size_text(bytes);
    Some(MergePlan {
        reason: format!("major: all {tables} tables in {range}, {size}, into level {level}"),
        inputs,
        output,
        range,
        kind: MergeKind::Merge,
        bytes,
        table_bytes,
        score: 1.0,
    })
}

/// What a merge of a key range has to take.
pub(super) struct Reached {
    /// Newest first.
    pub(super) inputs: Vec<InputRun>,
    /// Covers them.
    pub(super) range: KeyRange,
    pub(super) bytes: u64,
}

/// From the newest run down, each run gives what overlaps the range so far, and widens it: the cells of a
/// table that reaches out pass what is below it, never what is above. `None` where there is nothing.
pub(super) fn reach(shape: &Shape, range: &KeyRange) -> Option<Reached> {
    reach_from(shape, None, range)
}

/// The same from a run down; what is newer stays where it is.
pub(super) fn reach_from(shape: &Shape, newest: Option<Place>, range: &KeyRange) -> Option<Reached> {
    let mut range = range.clone();
    let mut inputs: Vec<InputRun> = Vec::new();
    let (mut bytes, mut used) = (0, None::<KeyRange>);
    let runs = shape.runs().filter(|(level, run)| Some(Place::of(*level, run.id)) >= newest);
    for (level, run) in runs {
        let tables: Vec<_> = run.overlapping(&range).collect();
        if let Some(reach) = cover(tables.iter().copied()) {
            range = range.cover(&reach);
            used = Some(used.map_or(reach.clone(), |used| used.cover(&reach)));
            bytes += tables.iter().map(|t| t.live_bytes()).sum::<u64>();
            inputs.push(InputRun { level, run: run.id, tables: ids(&tables) });
        }
    }
    Some(Reached { inputs, range: used?, bytes })
}
