//! A manual compaction: everything in a key range ends in one run at the bottom, by one compaction, or by one
//! for each key range with memory of its own.

use super::{CompactionKind, CompactionPlan, InputRun, RunAge, Strategy, Target, cover, ids};
use crate::shape::{Shape, TableInfo};
use crate::types::{KeyRange, SeqNo, TableId, Timestamp};

#[derive(Clone, Copy)]
pub(crate) struct ManualRequest<'a> {
    /// The newest data that has to be compacted: SSTables with later writes only may be left out.
    pub(crate) upto: SeqNo,
    /// Whether SSTables that are in the last level already are rewritten, too.
    pub(crate) rewrite: bool,
    /// Cells this old or older have expired: SSTables with such cells are rewritten, too.
    pub(crate) expired: Option<Timestamp>,
    /// Whether an SSTable has cells that nobody needs without snapshots: it is rewritten, too.
    pub(crate) surplus: &'a dyn Fn(TableId) -> bool,
}

impl ManualRequest<'_> {
    /// The plain compaction: SSTables that are not in the last level, and those there with deletes or values
    /// in the WAL.
    #[cfg(any(test, feature = "papers"))]
    pub(crate) const ALL: ManualRequest<'static> =
        ManualRequest { upto: SeqNo::MAX, rewrite: false, expired: None, surplus: &|_| false };
}

/// One compaction of all that overlaps `range` into the oldest run of `last_level`; `None` if everything is
/// there already, no cell could be dropped and no value is in the WAL. As it runs in steps, its size does not
/// matter.
pub(crate) fn major(
    shape: &Shape,
    range: &KeyRange,
    request: ManualRequest<'_>,
    last_level: usize,
    sstable_bytes: u64,
) -> Option<CompactionPlan> {
    let compaction = to_bottom(shape, reach(shape, None, range)?, last_level, sstable_bytes)?;
    let wants = |place: RunAge, table: &TableInfo| {
        let expired = request.expired.is_some_and(|moment| table.times.0 <= moment);
        let less = expired || table.all_tombstones() > 0 || table.has_wal_values();
        request.rewrite || less || place != compaction.target() || (request.surplus)(table.id)
    };
    let inputs = compaction.live_inputs(shape);
    let is_due = inputs.iter().any(|(place, table)| table.seqs.0 <= request.upto && wants(*place, table));
    is_due.then_some(compaction)
}

/// The first of the compactions that make one run of all that overlaps `left`, if there is anything to do,
/// and the part of `left` that it covers. With `bounds` of ranges it covers the first range; ranges with a
/// common SSTable form one part, with all newer SSTables there. O(SSTables it takes + log ranges).
pub(crate) fn major_part(
    shape: &Shape,
    left: &KeyRange,
    bounds: &[Vec<u8>],
    request: ManualRequest<'_>,
    strategy: &dyn Strategy,
) -> (KeyRange, Option<CompactionPlan>) {
    let up_to = |bound: usize| {
        let end = bounds.get(bound).filter(|bound| left.ends_after(bound)).cloned();
        KeyRange { start: left.start.clone(), end: end.or_else(|| left.end.clone()) }
    };
    let mut part = up_to(bounds.partition_point(|bound| *bound <= left.start));
    loop {
        let plan = major(shape, &part, request, strategy.last_level(shape), strategy.sstable_bytes());
        let reaches_to = |plan: &CompactionPlan| match (part.end.as_deref(), &plan.range.end) {
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

/// One compaction of all inputs into the last level, even those that are there already.
pub(super) fn to_bottom(
    shape: &Shape,
    reached: Reached,
    last_level: usize,
    sstable_bytes: u64,
) -> Option<CompactionPlan> {
    let level = last_level.max(shape.deepest()?);
    let Reached { inputs, range, bytes, .. } = reached;
    let oldest = shape.levels.get(level).and_then(|l| l.runs.last()).map(|run| run.id);
    // A new last run is older than all others, and takes the id of its newest input.
    let newest_input = inputs.first()?.run;
    let output = Target { level, run: oldest.unwrap_or(newest_input) };
    let tables: usize = inputs.iter().map(|input| input.tables.len()).sum();
    let size = crate::types::size_text(bytes);
    Some(CompactionPlan {
        reason: format!("major: all {tables} SSTables in {range}, {size}, into L{level}"),
        inputs,
        output,
        range,
        kind: CompactionKind::Merge,
        bytes,
        sstable_bytes,
        score: 1.0,
    })
}

/// The runs, range and bytes that a compaction of a key range has to take.
pub(super) struct Reached {
    /// Newest first.
    pub(super) inputs: Vec<InputRun>,
    pub(super) range: KeyRange,
    pub(super) bytes: u64,
}

/// Collects what a compaction of `range` has to take, from the run `newest` (`None`: the newest of all) down:
/// each run adds the SSTables that overlap the range so far, and these widen it. Cells of an SSTable that is
/// wider pass older runs, never newer ones; runs newer than `newest` stay where they are. `None` if there is
/// nothing.
pub(super) fn reach(shape: &Shape, newest: Option<RunAge>, range: &KeyRange) -> Option<Reached> {
    let mut range = range.clone();
    let mut inputs: Vec<InputRun> = Vec::new();
    let (mut bytes, mut used) = (0, None::<KeyRange>);
    let runs = shape.runs().filter(|(level, run)| Some(RunAge::of(*level, run.id)) >= newest);
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
