//! The cache around the switch from a merge's inputs to its outputs. With `step` and `write-through` blocks went in while the
//! tables were written (`table/fill.rs`); here is what is told of it, and what comes at the end of a step: reading a whole
//! output back before it is published (`before`), and taking out what the inputs have below the step's clip once it is.
//!
//! Reading back goes piece by piece between advances. It may fail, and then readers warm the rest: a fill that fails is no
//! failure of the merge.

use crate::catalog::Catalog;
use crate::commit::Store;
use crate::error::Result;
use crate::event::EventKind;
use crate::merge::Totals;
use crate::shape::TableInfo;
use crate::table::ReadBack;
use crate::types::TableId;
use crate::version::TableHandle;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What a merge, or a flush that merged, did to the cache.
#[derive(Default)]
pub(crate) struct Fills {
    pub(crate) blocks: u64,
    pub(crate) bytes: u64,
    evicted_blocks: u64,
    evicted_bytes: u64,
    /// Blocks and bytes that the merge had filled when it was asked last.
    noted: (u64, u64),
    /// Why reading back ended.
    pub(crate) failed: Option<String>,
}

impl Fills {
    /// Takes down what the merge has put there by now; the bytes since the last time.
    pub(crate) fn note(&mut self, totals: &Totals) -> u64 {
        let filled = totals.filled;
        let (blocks, bytes) = (filled.0 - self.noted.0, filled.1 - self.noted.1);
        self.noted = filled;
        self.blocks += blocks;
        self.bytes += bytes;
        bytes
    }

    /// Takes down what left as a step was installed.
    pub(crate) fn note_evicted(&mut self, blocks: u64, bytes: u64) {
        self.evicted_blocks += blocks;
        self.evicted_bytes += bytes;
    }

    pub(crate) fn tell(&self, catalog: &Catalog, store: &Store, (keys, warm_keys): (u64, u64)) {
        if self.blocks + self.evicted_blocks == 0 && self.failed.is_none() {
            return;
        }
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
        catalog.commit.events.record(EventKind::Fill, &store.name, reason, &numbers);
    }
}

/// The outputs of a step being read into the cache.
pub(crate) struct Before {
    /// To be published. What is read of them stays then.
    pub(crate) opened: BTreeMap<TableId, Arc<TableHandle>>,
    /// What is read, what is still to be, and what is done.
    reading: Option<ReadBack>,
    to_read: Vec<TableId>,
    done: Vec<ReadBack>,
    /// Why nothing more is read.
    pub(crate) failed: Option<String>,
}

impl Before {
    pub(crate) fn new(catalog: &Catalog, outputs: &[Arc<TableInfo>]) -> Result<Self> {
        let opened =
            catalog.open_tables(outputs, &mut []).inspect_err(|_| catalog.remove_outputs(outputs))?;
        let to_read = outputs.iter().rev().map(|info| info.id).collect();
        Ok(Self { opened, reading: None, to_read, done: Vec::new(), failed: None })
    }

    /// Reads a piece; its blocks and bytes, `None` when all is read or reading failed.
    pub(crate) fn advance(&mut self) -> Option<(u64, u64)> {
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
    pub(crate) fn undo(self) {
        self.done.into_iter().chain(self.reading).for_each(ReadBack::undo);
    }
}
