//! The write path: from a caller's write to the WAL and memory.
//!
//! [`Commit`] owns the WAL and the stages that a write goes through (`write`, `turns`), what is visible
//! (snapshots), what is logged and not visible yet (`in_flight`), write stalls (`write_stall`,
//! `write_memory`, with what `store_counters` counts) and the stores whose compactions fail (`failing`).
//! `store` is one column family as writers and readers meet it, `family` its options, `rules` what readers
//! may see of it, `emptied` where they found nothing, `store_work` the state of its background work,
//! `work_turns` the guards of the jobs that are under way. `freeze` changes WAL and memory between two
//! writes.
//!
//! Not owned here: which stores there are, SSTables and the manifest (`catalog`), and who flushes and
//! compacts (`work`).

mod emptied;
mod failing;
mod family;
mod freeze;
mod in_flight;
#[cfg(all(test, models))]
mod model;
mod rules;
mod store;
mod store_counters;
mod store_work;
mod turns;
mod work_turns;
mod write;
mod write_memory;
mod write_stall;

pub(crate) use emptied::EmptyRanges;
pub use family::DEFAULT_FAMILY;
pub(crate) use family::{FAMILY, FamilySettings, OPTIONS, PapersMissing, STORE, first_active, table_names};
pub(crate) use in_flight::InFlight;
pub(crate) use rules::ReadRules;
pub(crate) use store::{Generations, Store};
pub(crate) use store_counters::{Tally, by_id};
pub(crate) use store_work::StoreWork;
pub(crate) use work_turns::{CompactionTurn, FlushTurn, LayoutTurn, MemtableCompactionTurn};
pub(crate) use write::{Action, CELL_BYTES, Depends, Op, Stages};
pub(crate) use write_memory::Room;
pub(crate) use write_stall::Drain;

use crate::context::{Context, read_only_error};
use crate::error::{Error, ErrorKind, Result};
use crate::snapshot::{Snapshot, Snapshots};
use crate::wal::Wal;
use failing::FailingStores;
use std::sync::Arc;

/// The path of a write; see the page above.
pub(crate) struct Commit {
    pub(crate) cx: Arc<Context>,
    pub(crate) snapshots: Arc<Snapshots>,
    pub(crate) generations: Arc<Generations>,
    /// The WAL; absent when read-only, as are the stages.
    wal: Option<Arc<Wal>>,
    stages: Option<Stages>,
    pub(crate) failing: FailingStores,
    /// Counts of what stores hold, and which of them background work has to look at.
    pub(crate) tally: Tally,
    pub(crate) room: Room,
    pub(crate) drain: Drain,
}

impl Commit {
    /// The write path of a database that is being opened; without `writing` it is opened read-only.
    pub(crate) fn new(
        cx: &Arc<Context>,
        generations: Arc<Generations>,
        writing: Option<(Arc<Wal>, Stages)>,
    ) -> Arc<Self> {
        let (wal, stages) = writing.map_or((None, None), |(wal, stages)| (Some(wal), Some(stages)));
        Arc::new(Self {
            cx: cx.clone(),
            snapshots: Arc::default(),
            generations,
            wal,
            stages,
            failing: FailingStores::default(),
            tally: Tally::default(),
            room: Room::default(),
            drain: Drain::default(),
        })
    }

    pub(crate) fn wal(&self) -> Result<&Arc<Wal>> {
        self.wal.as_ref().ok_or_else(read_only_error)
    }

    pub(crate) fn check_snapshot(&self, snapshot: &Snapshot) -> Result<()> {
        if snapshot.belongs_to(&self.snapshots) {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Invalid, "the snapshot is of another database"))
    }
}
