//! Merges that a caller asked for: flush, compact a range, wait until nothing is due.

use super::Inner;
use super::store::Store;
use crate::error::{Error, ErrorKind, Result};
use crate::strategy::major;
use crate::sync::{AtomicBool, AtomicU64, Mutex, Ordering};
use crate::types::{Generation, KeyRange, StoreId};
use std::sync::Arc;

/// A handle to cancel a compaction and to see how far it is. Clones share it.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// let db = siltstone::Db::open(dir.path())?;
/// db.put(b"k", b"v")?;
/// let control = siltstone::CompactionControl::default();
/// db.default_family().compact_with::<&str>(.., &control)?;
/// assert!(!control.is_canceled());
/// # Ok::<(), siltstone::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct CompactionControl(Arc<Control>);

#[derive(Debug, Default)]
struct Control {
    canceled: AtomicBool,
    written: AtomicU64,
    total: AtomicU64,
}

impl CompactionControl {
    /// Ends the compaction at its next advance; its finished steps stay. The call returns `Canceled`.
    pub fn cancel(&self) {
        self.0.canceled.store(true, Ordering::Relaxed);
    }

    /// Whether it was cancelled.
    pub fn is_canceled(&self) -> bool {
        self.0.canceled.load(Ordering::Relaxed)
    }

    /// (bytes written so far, bytes taken as input: about what will be written at most).
    pub fn progress(&self) -> (u64, u64) {
        (self.0.written.load(Ordering::Relaxed), self.0.total.load(Ordering::Relaxed))
    }
}

/// A compaction that was asked for.
pub(crate) struct Manual {
    store: Arc<Store>,
    range: KeyRange,
    control: CompactionControl,
    state: Mutex<Progress>,
}

enum Progress {
    Waiting,
    Running,
    Ended(Result<()>),
}

impl Manual {
    fn is_waiting_for(&self, store: StoreId) -> bool {
        self.store.id == store && matches!(*self.state.lock(), Progress::Waiting)
    }

    fn is_running_for(&self, store: StoreId) -> bool {
        self.store.id == store && matches!(*self.state.lock(), Progress::Running)
    }

    pub(super) fn is_canceled(&self) -> bool {
        self.control.is_canceled()
    }

    pub(super) fn note_progress(&self, written: u64, total: u64) {
        self.control.0.written.store(written, Ordering::Relaxed);
        self.control.0.total.store(total, Ordering::Relaxed);
    }

    pub(super) fn end(&self, error: Option<&Error>) {
        *self.state.lock() = Progress::Ended(error.map_or(Ok(()), |e| Err(e.clone())));
    }

    fn ended(&self) -> Option<Result<()>> {
        match &*self.state.lock() {
            Progress::Ended(result) => Some(result.clone()),
            _ => None,
        }
    }
}

impl Inner {
    /// Starts compactions that wait, as soon as no running merge is in their way.
    pub(super) fn start_manual(self: &Arc<Self>) {
        let waiting: Vec<_> = self.jobs.manual.lock().clone();
        for manual in waiting {
            let store = &manual.store;
            if !manual.is_waiting_for(store.id) {
                continue;
            }
            if manual.is_canceled() || store.is_dropped() {
                manual.end(Some(&Error::new(ErrorKind::Canceled, "the compaction was cancelled")));
                continue;
            }
            if !store.work.lock().running.is_empty() {
                continue;
            }
            let version = store.version_full();
            let settings = store.settings();
            let strategy = settings.options.strategy.strategy();
            let last_level = strategy.last_level(&version.shape);
            match major(&version.shape, &manual.range, last_level, strategy.table_bytes()) {
                None => manual.end(None),
                Some(plan) => {
                    *manual.state.lock() = Progress::Running;
                    if self.start_merge(store, plan, Some(manual.clone())) {
                        continue;
                    }
                    if store.work.lock().running.is_empty() {
                        let refused = Error::new(
                            ErrorKind::Conflict,
                            "the compaction's plan was refused; see the events",
                        );
                        manual.end(Some(&refused));
                    } else {
                        // A flush of a range came between.
                        *manual.state.lock() = Progress::Waiting;
                    }
                }
            }
        }
    }

    /// Whether a compaction of the store waits for its other merges to end, so that no long one should begin. Where it waits
    /// for another compaction, which may take long, they go on.
    pub(super) fn waits_for_merges(&self, store: &Store) -> bool {
        let manual = self.jobs.manual.lock();
        manual.iter().any(|m| m.is_waiting_for(store.id))
            && !manual.iter().any(|m| m.is_running_for(store.id))
    }

    /// Merges everything in the range into the last level.
    pub(crate) fn compact(
        self: &Arc<Self>,
        store: &Arc<Store>,
        range: KeyRange,
        control: &CompactionControl,
    ) -> Result<()> {
        self.flush(store)?;
        let state = Mutex::new(Progress::Waiting);
        let manual = Arc::new(Manual { store: store.clone(), range, control: control.clone(), state });
        self.jobs.manual.lock().push(manual.clone());
        self.scheduler.notify();
        let mut result = Ok(());
        self.scheduler.wait(&mut || {
            if let Some(ended) = manual.ended() {
                result = ended;
                return true;
            }
            if let Err(e) = self.check_writable() {
                control.cancel();
                result = Err(e);
                return true;
            }
            if control.is_canceled() {
                self.scheduler.notify();
            }
            false
        });
        self.jobs.manual.lock().retain(|m| !Arc::ptr_eq(m, &manual));
        result
    }

    /// Writes everything now in the store's memory to tables.
    pub(crate) fn flush(self: &Arc<Self>, store: &Arc<Store>) -> Result<()> {
        self.check_writable()?;
        let upto: Generation = {
            let version = store.version();
            let newest = version.segments().map(|s| s.generation()).max().unwrap_or_default();
            // A flush under way may keep cells under the id reserved for it.
            let newest = match version.flush.is_empty() {
                true => newest,
                false => newest.max(version.flush.reserved),
            };
            if version.active.is_empty() { newest } else { version.active.generation() }
        };
        {
            let mut work = store.work.lock();
            work.flush_asked = work.flush_asked.max(upto);
        }
        *self.background_error.lock() = None;
        self.scheduler.notify();
        let mut failed = None;
        self.scheduler.wait(&mut || {
            failed = self.check_writable().err().or_else(|| self.background_error.lock().clone());
            failed.is_some() || store.is_dropped() || !self.flush_is_asked(store)
        });
        failed.map_or(Ok(()), Err)
    }

    /// Waits until no flush or merge runs or is due, and frees what nobody reads any more.
    pub(crate) fn settle(self: &Arc<Self>) -> Result<()> {
        self.scheduler.notify();
        let mut failed = None;
        self.scheduler.wait(&mut || {
            failed = self.check_writable().err().or_else(|| self.background_error.lock().clone());
            failed.is_some() || self.is_settled()
        });
        if failed.is_none() {
            self.sweep_until(u64::MAX);
        }
        failed.map_or(Ok(()), Err)
    }
}
