//! The cache around the switch from a merge's inputs to its outputs. With `step` and `write-through` blocks went in while the
//! tables were written (`table/fill.rs`); here is what is told of it, and what comes at the end of a step: reading a whole
//! output back before it is published (`before`), and taking out what the inputs have below the step's clip once it is.
//!
//! Reading back goes piece by piece between advances. It may fail, and then readers warm the rest: a fill that fails is no
//! failure of the merge.

use super::Inner;
use super::store::Store;
use crate::cache::Filling;
use crate::error::Result;
use crate::event::EventKind;
use crate::merge::Merge;
use crate::options::CacheFill;
use crate::strategy::{MergeKind, MergePlan};
use crate::table::ReadBack;
use crate::types::TableId;
use crate::shape::TableInfo;
use crate::version::{TableHandle, Version};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

impl CacheFill {
    pub(super) fn filling(self) -> Filling {
        match self {
            CacheFill::None | CacheFill::Before => Filling::Off,
            CacheFill::WriteThrough => Filling::All,
            CacheFill::Step => Filling::Warm,
        }
    }
}

/// What a merge, or a flush that merged, did to the cache.
#[derive(Default)]
pub(super) struct Fills {
    pub(super) blocks: u64,
    pub(super) bytes: u64,
    evicted_blocks: u64,
    evicted_bytes: u64,
    /// Blocks and bytes that the merge had filled when it was asked last.
    noted: (u64, u64),
    /// Why reading back ended.
    pub(super) failed: Option<String>,
}

impl Fills {
    /// Takes down what the merge has put there by now; the bytes since the last time.
    pub(super) fn note(&mut self, merge: &Merge) -> u64 {
        let filled = merge.filled();
        let (blocks, bytes) = (filled.0 - self.noted.0, filled.1 - self.noted.1);
        self.noted = filled;
        self.blocks += blocks;
        self.bytes += bytes;
        bytes
    }

    /// Takes down what left as a step was installed.
    pub(super) fn note_evicted(&mut self, blocks: u64, bytes: u64) {
        self.evicted_blocks += blocks;
        self.evicted_bytes += bytes;
    }

    pub(super) fn tell(&self, db: &Inner, store: &Store, merge: Option<&Merge>) {
        if self.blocks + self.evicted_blocks == 0 && self.failed.is_none() {
            return;
        }
        let (keys, warm_keys) = merge.map_or((0, 0), Merge::keys_warm);
        let reason = match &self.failed {
            None => "blocks of a merge's outputs in, of its inputs out".into(),
            Some(why) => format!("reading outputs into the cache failed, the rest is left to readers: {why}"),
        };
        let numbers = [
            ("filled_blocks", self.blocks),
            ("filled_bytes", self.bytes),
            ("evicted_blocks", self.evicted_blocks),
            ("evicted_bytes", self.evicted_bytes),
            ("keys", keys),
            ("warm_keys", warm_keys),
        ];
        db.events.record(EventKind::Fill, &store.name, reason, &numbers);
    }
}

/// The outputs of a step being read into the cache.
pub(super) struct Before {
    /// To be published. What is read of them stays then.
    pub(super) opened: BTreeMap<TableId, Arc<TableHandle>>,
    /// What is read, what is still to be, and what is done.
    reading: Option<ReadBack>,
    to_read: Vec<TableId>,
    done: Vec<ReadBack>,
    /// Why nothing more is read.
    pub(super) failed: Option<String>,
}

impl Before {
    pub(super) fn new(db: &Inner, outputs: &[Arc<TableInfo>]) -> Result<Self> {
        let opened = db.open_tables(outputs, &mut []).inspect_err(|_| db.remove_outputs(outputs))?;
        let to_read = outputs.iter().rev().map(|info| info.id).collect();
        Ok(Self { opened, reading: None, to_read, done: Vec::new(), failed: None })
    }

    /// Reads a piece; its blocks and bytes, `None` when all is read or reading failed.
    pub(super) fn advance(&mut self) -> Option<(u64, u64)> {
        if self.reading.is_none() {
            let next = self.to_read.pop()?;
            self.reading = Some(ReadBack::new(&self.opened[&next].table));
        }
        match self.reading.as_mut()?.advance() {
            Ok(Some(piece)) => Some(piece),
            Ok(None) => {
                self.done.extend(self.reading.take());
                Some((0, 0))
            }
            Err(e) => {
                self.failed = Some(e.to_string());
                None
            }
        }
    }

    /// The merge has come to nothing: what was read leaves again.
    pub(super) fn undo(self) {
        self.done.into_iter().chain(self.reading).for_each(ReadBack::undo);
    }
}

impl Inner {
    /// Takes out of the cache what a step to `upto` has replaced, in the version before it. Blocks and bytes.
    pub(super) fn evict_replaced(
        &self,
        before: &Version,
        plan: &MergePlan,
        upto: Option<&[u8]>,
    ) -> (u64, u64) {
        let mut gone = (0, 0);
        if plan.kind == MergeKind::Move {
            return gone;
        }
        let inputs: BTreeSet<TableId> = plan.tables().collect();
        let upto = upto.or(plan.range.end.as_deref());
        for open in before.tables().filter(|open| inputs.contains(&open.info.id)) {
            if upto.is_none_or(|upto| open.start() < upto) {
                let (blocks, bytes) = open.table().evict(open.start(), upto);
                gone = (gone.0 + blocks, gone.1 + bytes);
            }
        }
        gone
    }
}
