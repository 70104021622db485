//! The memory of a flush, carried to the process that is to run it.
//!
//! A flush that compacts a range with its SSTables may run elsewhere, like a compaction
//! (`offload_range_flushes`). Its memory is first written, as a flush into L0 would write it, to SSTables
//! that no manifest names; in the description these stand before the others, as the newest run. They are
//! obsolete from the moment they are there, so that they go when the flush lets go of them; what a crash
//! leaves of them is removed at the next open, like other files that the manifest does not name. Where
//! anything fails the flush runs here, on the memtables that it has.

use super::take::plan_plain;
use crate::catalog::Catalog;
use crate::commit::Store;
use crate::compaction::{Advance, MemoryInputs, Totals};
use crate::error::Result;
use crate::shape::TableInfo;
use crate::version::{OpenTable, Version};
use crate::work::jobs::compaction::{Running, flush_spec};
use std::sync::Arc;

/// A flush set on its way into SSTables that only a compaction elsewhere reads.
pub(super) struct Carry {
    running: Running,
    outputs: Vec<Arc<TableInfo>>,
    /// The SSTables, once all are written.
    tables: Option<Vec<OpenTable>>,
}

impl Carry {
    pub(super) fn begin(
        catalog: &Catalog,
        store: &Store,
        version: &Version,
        memory: MemoryInputs,
    ) -> Result<Self> {
        let plan = plan_plain(version, store, String::new());
        // A job of its own, so that its names are nobody else's.
        let spec = flush_spec(catalog, store, version, &plan, catalog.next_job(), Vec::new());
        let running = Running::here(catalog, &spec, Some(memory))?;
        Ok(Self { running, outputs: Vec::new(), tables: None })
    }

    /// Writes a little; the SSTables once all are there.
    pub(super) fn advance(&mut self, catalog: &Catalog) -> Result<Option<&[OpenTable]>> {
        if self.tables.is_none()
            && let Advance::Step(step) = self.running.run.advance()?
        {
            self.outputs.extend(step.outputs);
            if step.upto.is_none() {
                catalog.tables.store().sync_names()?;
                let open = |info: &Arc<TableInfo>| {
                    let handle = catalog.tables.open(info, None)?;
                    handle.make_obsolete();
                    Ok(OpenTable { info: info.clone(), handle })
                };
                self.tables = Some(self.outputs.iter().map(open).collect::<Result<_>>()?);
            }
        }
        Ok(self.tables.as_deref())
    }

    pub(super) fn totals(&self) -> Totals {
        self.running.totals()
    }

    /// Removes what was written, unless the last reader of it does.
    pub(super) fn remove(self, catalog: &Catalog) {
        self.running.remove_left(catalog);
        if self.tables.is_none() {
            catalog.remove_outputs(&self.outputs);
        }
    }
}
