//! A manual compaction: everything in a key range ends in one run at the bottom.

use super::{InputRun, MergeKind, MergePlan, Place, Target, cover, ids};
use crate::types::KeyRange;
use crate::version::shape::Shape;

/// One merge of all that overlaps `range` into the oldest run of `last_level`; `None` when that is already where
/// everything is and no tombstone could go. As it runs in steps, its size does not matter.
pub(crate) fn major(
    shape: &Shape,
    range: &KeyRange,
    last_level: usize,
    table_bytes: u64,
) -> Option<MergePlan> {
    let reached = reach(shape, range)?;
    let tombstones = reached.tombstones;
    let merge = to_bottom(shape, reached, last_level, table_bytes)?;
    let at_rest = |input: &InputRun| (input.level, input.run) == (merge.output.level, merge.output.run);
    (!merge.inputs.iter().all(at_rest) || tombstones > 0).then_some(merge)
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
    pub(super) tombstones: u64,
}

/// From the newest run down, each run gives what overlaps the range so far, and widens it: the cells of a table
/// that reaches out pass what is below it, never what is above. `None` where there is nothing.
pub(super) fn reach(shape: &Shape, range: &KeyRange) -> Option<Reached> {
    reach_from(shape, None, range)
}

/// The same from a run down; what is newer stays where it is.
pub(super) fn reach_from(shape: &Shape, newest: Option<Place>, range: &KeyRange) -> Option<Reached> {
    let mut range = range.clone();
    let mut inputs: Vec<InputRun> = Vec::new();
    let (mut bytes, mut tombstones, mut used) = (0, 0, None::<KeyRange>);
    let runs = shape.runs().filter(|(level, run)| Some(Place::of(*level, run.id)) >= newest);
    for (level, run) in runs {
        let tables: Vec<_> = run.overlapping(&range).collect();
        if let Some(reach) = cover(tables.iter().copied()) {
            range = range.cover(&reach);
            used = Some(used.map_or(reach.clone(), |used| used.cover(&reach)));
            bytes += tables.iter().map(|t| t.live_bytes()).sum::<u64>();
            tombstones += tables.iter().map(|t| t.all_tombstones()).sum::<u64>();
            inputs.push(InputRun { level, run: run.id, tables: ids(&tables) });
        }
    }
    Some(Reached { inputs, range: used?, bytes, tombstones })
}
