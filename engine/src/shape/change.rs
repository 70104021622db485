//! A change of a shape as plain data, which the manifest stores and replays; each step of a compaction is
//! one. It has no reasons, only places, so that replay needs no strategy.

use super::{Clip, Run, Shape, TableInfo};
use crate::types::{KeyRange, TableId};
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

/// The place of an SSTable in a shape.
///
/// ```
/// use siltstone::TableId;
/// use siltstone::shape::TablePlace;
/// let place = TablePlace { level: 0, run: 1, table: TableId { epoch: 1, job: 1, ..Default::default() } };
/// assert!(place < TablePlace { level: 1, ..place });
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TablePlace {
    /// The level.
    pub level: usize,
    /// The run's id.
    pub run: u64,
    /// The SSTable.
    pub table: TableId,
}

/// A change of a shape: SSTables that are removed, clipped and added.
///
/// ```
/// use siltstone::shape::{Shape, ShapeChange};
/// let mut shape = Shape::default();
/// shape.change(&ShapeChange::default())?;
/// assert_eq!(shape, Shape::default());
/// # Ok::<(), String>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ShapeChange {
    /// A range that overlaps every SSTable removed or clipped. It only shortens the search in long runs.
    pub range: KeyRange,
    /// SSTables that are removed; a run left empty is removed too.
    pub removed: Vec<TablePlace>,
    /// New clips.
    pub clipped: Vec<(TablePlace, Clip)>,
    /// Level, run and SSTable. A missing run is created at the position of its id.
    pub added: Vec<(usize, u64, Arc<TableInfo>)>,
}

/// More levels than any strategy has; a larger number in a change is damage.
const LEVELS_MAX: usize = 64;

impl Shape {
    /// Makes the change. After an error the shape is inconsistent and must be thrown away.
    pub fn change(&mut self, change: &ShapeChange) -> Result<(), String> {
        let mut removed: BTreeMap<(usize, u64), HashSet<TableId>> = BTreeMap::new();
        for place in &change.removed {
            if !removed.entry((place.level, place.run)).or_default().insert(place.table) {
                return Err(format!("table {} is removed twice", place.table));
            }
        }
        for ((level, run), ids) in &removed {
            self.run_mut(*level, *run)?.remove(ids, &change.range)?;
        }
        for (place, clip) in &change.clipped {
            self.run_mut(place.level, place.run)?.clip(place.table, clip.clone(), &change.range)?;
        }
        for (level, run, table) in &change.added {
            self.run_or_new(*level, *run)?.insert(table.clone())?;
        }
        for level in removed.keys().map(|(level, _)| *level) {
            self.levels[level].runs.retain(|run| !run.tables().is_empty());
        }
        self.drop_empty_levels();
        Ok(())
    }

    /// Adds the output of a flush as the newest run of L0.
    pub fn add_flush(&mut self, run: Run) -> Result<(), String> {
        if self.levels.is_empty() {
            self.levels.push(Default::default());
        }
        let runs = &mut self.levels[0].runs;
        if let Some(newest) = runs.first().filter(|newest| newest.id >= run.id) {
            return Err(format!("flush #{} is not newer than #{}", run.id, newest.id));
        }
        runs.insert(0, run);
        Ok(())
    }

    fn run_mut(&mut self, level: usize, id: u64) -> Result<&mut Run, String> {
        self.levels
            .get_mut(level)
            .and_then(|l| l.runs.iter_mut().find(|run| run.id == id))
            .ok_or_else(|| format!("level {level} has no run #{id}"))
    }

    fn run_or_new(&mut self, level: usize, id: u64) -> Result<&mut Run, String> {
        if level >= LEVELS_MAX {
            return Err(format!("level {level} is beyond the last possible one, {}", LEVELS_MAX - 1));
        }
        if self.levels.len() <= level {
            self.levels.resize_with(level + 1, Default::default);
        }
        let runs = &mut self.levels[level].runs;
        let at = runs.partition_point(|run| run.id > id);
        if runs.get(at).is_none_or(|run| run.id != id) {
            runs.insert(at, Run::new(id, Vec::new()));
        }
        Ok(&mut runs[at])
    }
}
