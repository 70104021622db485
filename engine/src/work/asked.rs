//! Merges that a caller asked for: flush, compact a range, wait until nothing is due.
//!
//! A compaction is one merge, in steps, of all that it takes. Where memory is held by range it is a merge for each of
//! these ranges, one after another: memory of a range cannot be merged with its tables meanwhile, and so that of all others can.

use super::Work;
use super::jobs::Layout;
use crate::commit::Store;
use crate::error::{Error, ErrorKind, Result};
use crate::shape::Shape;
use crate::strategy::{Asked, MergePlan, Strategy, Target, cover, major_part};
use crate::sync::{AtomicBool, AtomicU64, Mutex, Ordering};
use crate::types::{Generation, KeyRange, SeqNo, StoreId, TableId, Timestamp};
use crate::version::Unions;
use std::cell::OnceCell;
use std::collections::HashSet;
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
    rewrite: bool,
    canceled: AtomicBool,
    written: AtomicU64,
    total: AtomicU64,
}

impl CompactionControl {
    /// That of a compaction which also writes anew what lies in its place and has nothing to drop, so that options that were
    /// changed (compression, block size, filter bits) hold for all of the range.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// let db = siltstone::Db::open(dir.path())?;
    /// let family = db.default_family();
    /// family.put(b"k", b"v")?;
    /// family.compact::<&str>(..)?;
    /// family.alter(siltstone::FamilyOptions { block_bytes: 16 << 10, ..family.options() })?;
    /// family.compact_with::<&str>(.., &siltstone::CompactionControl::rewriting())?;
    /// # Ok::<(), siltstone::Error>(())
    /// ```
    pub fn rewriting() -> Self {
        Self(Arc::new(Control { rewrite: true, ..Control::default() }))
    }

    /// Ends the compaction at its next advance; its finished steps stay. The call returns `Canceled`.
    pub fn cancel(&self) {
        self.0.canceled.store(true, Ordering::Relaxed);
    }

    /// Whether it was cancelled.
    pub fn is_canceled(&self) -> bool {
        self.0.canceled.load(Ordering::Relaxed)
    }

    /// (bytes written so far, bytes taken as input: about what will be written at most; where a strategy merges one
    /// range after another, with all bytes of the ranges to come).
    pub fn progress(&self) -> (u64, u64) {
        (self.0.written.load(Ordering::Relaxed), self.0.total.load(Ordering::Relaxed))
    }
}

/// A compaction that was asked for.
pub(crate) struct Manual {
    store: Arc<Store>,
    control: CompactionControl,
    range: KeyRange,
    /// What was written later need not be merged.
    upto: SeqNo,
    state: Mutex<State>,
}

struct State {
    progress: Progress,
    /// The keys whose merge has not ended.
    left: KeyRange,
    /// Where those that the running merge is for end.
    part_end: Option<Vec<u8>>,
    /// Where all is merged to.
    output: Option<Target>,
    /// The shape on which the last plan was refused.
    refused: Option<Arc<Shape>>,
    /// Bytes that merges of other keys took and wrote.
    taken: u64,
    written: u64,
}

enum Progress {
    Waiting,
    Running,
    Ended(Result<()>),
}

impl Manual {
    fn is_waiting_for(&self, store: StoreId) -> bool {
        self.store.id == store && matches!(self.state.lock().progress, Progress::Waiting)
    }

    fn is_running_for(&self, store: StoreId) -> bool {
        self.store.id == store && matches!(self.state.lock().progress, Progress::Running)
    }

    pub(crate) fn is_canceled(&self) -> bool {
        self.control.is_canceled()
    }

    /// What the running merge has written.
    pub(crate) fn note_written(&self, bytes: u64) {
        let before = self.state.lock().written;
        self.control.0.written.store(before + bytes, Ordering::Relaxed);
    }

    /// The running merge has ended.
    pub(crate) fn note_done(&self, plan: &MergePlan, written: u64) {
        let mut state = self.state.lock();
        state.taken += plan.bytes;
        state.written += written;
        let done = state.part_end.take();
        if state.leave_behind(done.as_deref()) {
            state.progress = Progress::Waiting;
        } else {
            self.end_well(&mut state);
        }
    }

    fn end_well(&self, state: &mut State) {
        self.control.0.written.store(state.written, Ordering::Relaxed);
        self.control.0.total.store(state.taken, Ordering::Relaxed);
        state.progress = Progress::Ended(Ok(()));
    }

    /// The running merge ended without its fault.
    pub(crate) fn begin_again(&self) {
        self.state.lock().progress = Progress::Waiting;
    }

    pub(crate) fn fail(&self, error: &Error) {
        self.state.lock().progress = Progress::Ended(Err(error.clone()));
    }

    /// The next merge, of the first part of what is left that there is something to do about; `None` at the end.
    fn plan(
        &self,
        shape: &Shape,
        strategy: &dyn Strategy,
        bounds: &[Vec<u8>],
        asked: Asked<'_>,
    ) -> Option<MergePlan> {
        let mut state = self.state.lock();
        loop {
            let (part, plan) = match state.left.is_empty() {
                true => (state.left.clone(), None),
                false => major_part(shape, &state.left, bounds, asked, strategy),
            };
            if let Some(plan) = plan {
                // Another strategy has another place for it, also for what is done.
                if state.output.replace(plan.output).is_some_and(|before| before != plan.output) {
                    state.left = self.range.clone();
                    continue;
                }
                let after = part.end.as_ref().map_or(0, |end| {
                    shape.bytes_within(&KeyRange { start: end.clone(), end: state.left.end.clone() })
                });
                self.control.0.total.store(state.taken + plan.bytes + after, Ordering::Relaxed);
                state.part_end = part.end;
                return Some(plan);
            }
            if !state.leave_behind(part.end.as_deref()) {
                self.end_well(&mut state);
                return None;
            }
        }
    }

    fn ended(&self) -> Option<Result<()>> {
        match &self.state.lock().progress {
            Progress::Ended(result) => Some(result.clone()),
            _ => None,
        }
    }
}

impl State {
    /// The keys up to `end` are merged; whether there are others.
    fn leave_behind(&mut self, end: Option<&[u8]>) -> bool {
        match end {
            Some(end) if self.left.ends_after(end) => {
                self.left.start = end.to_vec();
                true
            }
            _ => false,
        }
    }
}

impl Work {
    /// Starts compactions that wait, as soon as no running merge is in their way.
    pub(crate) fn start_manual(&self) {
        let waiting: Vec<_> = self.manual.lock().clone();
        for manual in waiting {
            let store = &manual.store;
            if !manual.is_waiting_for(store.id) {
                continue;
            }
            if manual.is_canceled() || store.is_dropped() {
                manual.fail(&Error::new(ErrorKind::Canceled, "the compaction was cancelled"));
                self.commit.scheduler.notify();
                continue;
            }
            let settings = store.settings();
            let (strategy, layout) = (settings.options.strategy.strategy(), Layout::of(&settings));
            let running = store.work.lock().merges.running.clone();
            // Beside flushes of other ranges, of which there is always one.
            if !running.is_empty() && layout.is_whole() {
                continue;
            }
            let version = store.version_full();
            let ttl_us = Some(settings.options.ttl_us).filter(|ttl_us| *ttl_us > 0);
            let expired = ttl_us.and_then(|ttl_us| self.commit.env.clock.wall_us().checked_sub(ttl_us));
            let (kept, having) = (settings.versions_kept(), OnceCell::new());
            let find = || -> HashSet<TableId> {
                let tables = version.tables().filter(|open| open.table().properties().has_surplus(kept));
                tables.map(|open| open.info.id).collect()
            };
            let asked = Asked {
                upto: manual.upto,
                rewrite: manual.control.0.rewrite || settings.options.filter.is_some(),
                expired: expired.map(Timestamp),
                surplus: &|table| having.get_or_init(find).contains(&table),
            };
            let Some(mut plan) = manual.plan(&version.shape, strategy, &layout.bounds(&version.shape), asked)
            else {
                self.commit.scheduler.notify();
                continue;
            };
            if running.iter().any(|(_, other)| other.range_left().overlaps(&plan.range)) {
                continue;
            }
            let unions = Unions::default();
            layout.cut(&mut plan, &|tables| unions.left(&version, &[], tables, settings.versions_kept()));
            manual.state.lock().progress = Progress::Running;
            if self.start_merge(store, plan, Some(manual.clone())) {
                continue;
            }
            // Unless a flush of a range came between.
            let refused = manual.state.lock().refused.replace(version.shape.clone());
            if running.is_empty() && refused.is_some_and(|before| Arc::ptr_eq(&before, &version.shape)) {
                let refused =
                    Error::new(ErrorKind::Conflict, "the compaction's plan was refused; see the events");
                manual.fail(&refused);
                self.commit.scheduler.notify();
            } else {
                manual.state.lock().progress = Progress::Waiting;
            }
        }
    }

    /// Whether a compaction of the store has not ended.
    pub(crate) fn is_compacting(&self, store: StoreId) -> bool {
        let manual = self.manual.lock();
        manual.iter().any(|m| m.is_waiting_for(store) || m.is_running_for(store))
    }

    /// Whether a compaction of the store waits for its other merges to end, so that no long one should begin. Where it waits
    /// for another compaction, which may take long, they go on.
    pub(crate) fn waits_for_merges(&self, store: &Store) -> bool {
        let manual = self.manual.lock();
        manual.iter().any(|m| m.is_waiting_for(store.id))
            && !manual.iter().any(|m| m.is_running_for(store.id))
    }

    /// Merges everything in the range into the last level.
    pub(crate) fn compact(
        &self,
        store: &Arc<Store>,
        range: KeyRange,
        control: &CompactionControl,
    ) -> Result<()> {
        let compacted = self.compact_once(store, range.clone(), control);
        let is_full = compacted.as_ref().is_err_and(|e| e.kind() == ErrorKind::DiskFull);
        // What is set aside for a full disk is for what makes room.
        let again = is_full && self.catalog.manifest.lock().free_reserve();
        let compacted = if again { self.compact_once(store, range, control) } else { compacted };
        // Also where nothing was deleted and so no room made: the delete to come needs it.
        if (again || compacted.is_ok()) && self.commit.check_writable().is_ok() {
            if again {
                self.catalog.sweep_until(u64::MAX);
            }
            self.catalog.manifest.lock().make_reserve();
        }
        compacted
    }

    fn compact_once(&self, store: &Arc<Store>, range: KeyRange, control: &CompactionControl) -> Result<()> {
        self.flush(store)?;
        // What comes before the first key of now, or behind the last, was written later.
        let held = cover(store.version().shape.tables().map(|(_, _, table)| table));
        let range = range.intersect(&held.unwrap_or(KeyRange::new("", "")));
        let upto = self.commit.snapshots.visible();
        let state = State {
            progress: Progress::Waiting,
            left: range.clone(),
            part_end: None,
            output: None,
            refused: None,
            taken: 0,
            written: 0,
        };
        let manual = Arc::new(Manual {
            store: store.clone(),
            control: control.clone(),
            range,
            upto,
            state: Mutex::new(state),
        });
        self.manual.lock().push(manual.clone());
        self.commit.touch(store.id);
        self.commit.scheduler.notify();
        let mut result = Ok(());
        self.commit.scheduler.wait(&mut || {
            if let Some(ended) = manual.ended() {
                result = ended;
                return true;
            }
            if let Err(e) = self.commit.check_writable() {
                control.cancel();
                result = Err(e);
                return true;
            }
            if control.is_canceled() {
                self.commit.scheduler.notify();
            }
            false
        });
        self.manual.lock().retain(|m| !Arc::ptr_eq(m, &manual));
        self.commit.touch(store.id);
        result
    }

    /// Writes everything now in the store's memory to tables. Its error is that of a flush of this store which began
    /// after the call.
    pub(crate) fn flush(&self, store: &Arc<Store>) -> Result<()> {
        self.commit.check_writable()?;
        // All memory, with the id under which a flush of it may keep cells: the one behind that of the newest segment.
        let upto = {
            let version = store.version();
            let active = version.active.generation().0;
            Generation(if version.active.is_empty() { active - 1 } else { active + 1 })
        };
        let begun = {
            let mut work = store.work.lock();
            work.flush.asked = work.flush.asked.max(upto);
            // Whoever asks wants to know now.
            work.flush.not_before = 0;
            work.flush.tries
        };
        // Writers that are stopped wait for the outcome, too.
        *self.commit.health.background_error.lock() = None;
        self.commit.touch(store.id);
        self.commit.scheduler.notify();
        let mut failed = None;
        self.commit.scheduler.wait(&mut || {
            // One that had begun may have failed for want of what was written or freed since; it is tried again.
            let failure = store.work.lock().flush.failed.clone().filter(|(number, _)| *number > begun);
            failed = self.commit.check_writable().err().or(failure.map(|(_, error)| error));
            // Its statistics and events are there when it returns.
            let is_told = || !store.work.lock().flush.ends;
            failed.is_some() || store.is_dropped() || (!store.flush_is_asked() && is_told())
        });
        failed.map_or(Ok(()), Err)
    }

    /// Waits until no flush or merge runs or is due, and frees what nobody reads any more.
    pub(crate) fn settle(&self) -> Result<()> {
        for store in self.catalog.stores().iter() {
            // Snapshots may have gone since they were last looked at.
            store.work.lock().merges.plan_state.early_at = None;
        }
        self.catalog.touch_all();
        self.commit.scheduler.notify();
        let mut failed = None;
        self.commit.scheduler.wait(&mut || {
            failed = self.commit.check_writable().err().or_else(|| self.commit.background_failure());
            failed.is_some() || self.is_settled()
        });
        if failed.is_none() {
            self.catalog.sweep_until(u64::MAX);
        }
        failed.map_or(Ok(()), Err)
    }
}
