//! How a step of a compaction changes the shape.
//!
//! A compaction goes through its key range in steps. After a step up to key `k`, the target has the step's
//! outputs, inputs that end at or below `k` are removed, and inputs with keys on both sides are clipped at
//! `k`:
//!
//! ```text
//! before   L0      [a--------------z)          after a step to m   L0           [m-------z)
//!          L5   [a--f)[f--m)[m--t)                                 L5   [a-g)[g-m)[m--t)
//! ```

use super::{CompactionKind, CompactionPlan};
use crate::shape::{Clip, Shape, ShapeChange, TableInfo, TablePlace};
use crate::types::TableId;
use std::sync::Arc;

#[derive(Clone, Debug, Default)]
pub(crate) struct Step {
    /// SSTables written, all below `upto` and at or above the previous step's. None for a trivial move.
    pub(crate) outputs: Vec<Arc<TableInfo>>,
    /// The end of the step: everything below this key is compacted; `None` when the compaction is finished.
    pub(crate) upto: Option<Vec<u8>>,
    /// For each input clipped at `upto`: about how many of its bytes lie below it.
    pub(crate) bytes_below: Vec<(TableId, u64)>,
}

impl CompactionPlan {
    /// The change of the shape that this step makes. Inputs that earlier steps used up are not in the shape
    /// any more.
    pub(crate) fn change(&self, shape: &Shape, step: &Step) -> ShapeChange {
        let mut change = ShapeChange { range: self.range.clone(), ..ShapeChange::default() };
        for (place, table) in self.live_inputs(shape) {
            let at = TablePlace { level: place.level, run: place.run(), table: table.id };
            match &step.upto {
                Some(key) if table.live_start() >= key.as_slice() => {}
                Some(key) if table.range.ends_after(key) => {
                    let known =
                        step.bytes_below.iter().find(|(id, _)| *id == table.id).map(|(_, bytes)| *bytes);
                    let before = table.clip.as_ref().map_or(0, |clip| clip.bytes_below);
                    let bytes_below = known.unwrap_or(before).clamp(before, table.bytes.max(before));
                    change.clipped.push((at, Clip { key: key.clone(), bytes_below }));
                }
                _ => {
                    change.removed.push(at);
                    if self.kind == CompactionKind::TrivialMove {
                        change.added.push((self.output.level, self.output.run, table.clone()));
                    }
                }
            }
        }
        let outputs = step.outputs.iter().cloned();
        change.added.extend(outputs.map(|table| (self.output.level, self.output.run, table)));
        change
    }
}

pub(crate) fn apply(shape: &mut Shape, plan: &CompactionPlan, step: &Step) -> Result<(), String> {
    shape.change(&plan.change(shape, step))
}
