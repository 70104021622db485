//! Background work: what runs, what is to be started, and the turns that workers take.
//!
//! [`Work`] is one object for callers and workers. Its files import only what stands above them here, and
//! from `planner` on [`Work`] itself:
//!
//! * `manual` is a compaction that a caller waits for, and the caller's handle on it.
//! * `jobs` has the kinds of jobs.
//! * `queue` is the list of jobs, and which of them is the most urgent.
//! * `planner` decides with the strategies' help what is due, and starts it.
//! * `chores` does small things between jobs, `open_behind` opens SSTables that an open left unread.
//! * `requests` is what callers ask for: flush, compact a range, wait until nothing is due.
//! * `turn` is what a worker does in one turn, and what follows when a job ends or fails.
//!
//! Not owned here: what is worth doing (`strategy`), how a compaction runs (`compaction`), what a finished
//! step changes (`catalog`).

mod chores;
mod jobs;
mod manual;
mod open_behind;
mod planner;
mod queue;
mod requests;
mod turn;

pub use manual::CompactionControl;

use crate::catalog::Catalog;
use crate::commit::Commit;
use crate::context::Context;
use crate::error::{Error, ErrorKind};
use crate::schedule::{Turn, Worker};
use crate::sync::{AtomicU64, Mutex};
use manual::ManualCompaction;
use queue::Queue;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};

/// The background work of a database: see the page above.
pub(crate) struct Work {
    pub(crate) cx: Arc<Context>,
    pub(crate) commit: Arc<Commit>,
    pub(crate) catalog: Arc<Catalog>,
    queue: Queue,
    /// Compactions that callers wait for.
    manual: Mutex<Vec<Arc<ManualCompaction>>>,
    events_saved: AtomicU64,
    /// When a piece of the WAL was last looked at, to be written back (monotonic ns).
    wal_written_ns: AtomicU64,
}

impl Work {
    pub(crate) fn new(catalog: &Arc<Catalog>) -> Arc<Self> {
        Arc::new(Self {
            cx: catalog.cx.clone(),
            commit: catalog.commit.clone(),
            catalog: catalog.clone(),
            queue: Queue::default(),
            manual: Mutex::default(),
            events_saved: AtomicU64::new(0),
            wal_written_ns: AtomicU64::new(0),
        })
    }
}

/// A worker of a database. It has nothing to do once the database is gone.
pub(crate) struct DbWorker(pub(crate) Weak<Work>);

impl Worker for DbWorker {
    fn turn(&mut self) -> Turn {
        let Some(work) = self.0.upgrade() else { return Turn::Idle };
        // Our own bug must not leave writers waiting for work that nobody does any more.
        catch_unwind(AssertUnwindSafe(|| work.turn())).unwrap_or_else(|_| {
            let why = "a background worker panicked (see standard error)";
            work.cx.poison(&Error::new(ErrorKind::Poisoned, why));
            Turn::Idle
        })
    }
}
