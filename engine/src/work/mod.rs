//! Background work: what runs, what is to be started, and the turns that workers take.
//!
//! [`Work`] owns the jobs (`queue`), decides what is due with the strategies' help (`planner`), answers callers who ask for a
//! flush or a compaction (`asked`), and does small things in between (`chores`). The kinds of jobs are in `jobs`.
//!
//! Not owned here: what is worth doing (`strategy`), how a merge runs (`merge`), what a finished step changes (`catalog`).

mod asked;
mod chores;
mod jobs;
mod planner;
mod queue;

pub use asked::CompactionControl;
pub(crate) use queue::DbWorker;

use crate::catalog::Catalog;
use crate::commit::Commit;
use crate::sync::{AtomicU64, Mutex};
use asked::Manual;
use queue::Queue;
use std::sync::Arc;

/// See the page above.
pub(crate) struct Work {
    pub(crate) commit: Arc<Commit>,
    pub(crate) catalog: Arc<Catalog>,
    queue: Queue,
    /// Compactions that were asked for.
    manual: Mutex<Vec<Arc<Manual>>>,
    events_saved: AtomicU64,
    /// When a piece of the log was last looked at, to be written back (monotonic ns).
    log_written_ns: AtomicU64,
}

impl Work {
    pub(crate) fn new(catalog: &Arc<Catalog>) -> Arc<Self> {
        Arc::new(Self {
            commit: catalog.commit.clone(),
            catalog: catalog.clone(),
            queue: Queue::default(),
            manual: Mutex::default(),
            events_saved: AtomicU64::new(0),
            log_written_ns: AtomicU64::new(0),
        })
    }
}
