//! A compaction that a caller waits for: what is left of it, and the caller's handle on it.
//!
//! It is one compaction, in steps, of all that it takes. Where memory is held by range it is a compaction for
//! each of these ranges, one after another: memory of a range cannot be merged with its SSTables meanwhile,
//! and so that of all others can.

use crate::commit::Store;
use crate::error::{Error, Result};
use crate::shape::Shape;
use crate::strategy::{CompactionPlan, ManualRequest, Strategy, Target, major_part};
use crate::sync::{AtomicBool, AtomicU64, Mutex, Ordering};
use crate::types::{KeyRange, SeqNo, StoreId};
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
    /// A handle on a compaction which also rewrites what lies in its place and has nothing to drop, so that
    /// options that were changed (compression, block size, filter bits) hold for all of the range.
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

    /// (bytes written so far, bytes taken as input: about what will be written at most; where a strategy
    /// merges one range after another, with all bytes of the ranges to come).
    pub fn progress(&self) -> (u64, u64) {
        (self.0.written.load(Ordering::Relaxed), self.0.total.load(Ordering::Relaxed))
    }
}

/// A compaction that a caller waits for.
pub(crate) struct ManualCompaction {
    pub(super) store: Arc<Store>,
    control: CompactionControl,
    range: KeyRange,
    /// What was written later need not be merged.
    pub(super) upto: SeqNo,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    progress: Progress,
    /// The keys whose compaction has not ended.
    left: KeyRange,
    /// The end of the keys that the running compaction is for.
    part_end: Option<Vec<u8>>,
    /// Where all is merged to.
    output: Option<Target>,
    /// The shape on which the last plan was refused.
    refused: Option<Arc<Shape>>,
    /// Bytes that compactions of other keys took and wrote.
    taken: u64,
    written: u64,
}

#[derive(Default)]
enum Progress {
    #[default]
    Waiting,
    Running,
    Ended(Result<()>),
}

impl ManualCompaction {
    /// A compaction of the keys in `range` that were written up to `upto`. It waits to be started.
    pub(super) fn new(store: Arc<Store>, control: CompactionControl, range: KeyRange, upto: SeqNo) -> Self {
        let state = State { left: range.clone(), ..State::default() };
        Self { store, control, range, upto, state: Mutex::new(state) }
    }

    pub(super) fn is_waiting_for(&self, store: StoreId) -> bool {
        self.store.id == store && matches!(self.state.lock().progress, Progress::Waiting)
    }

    pub(super) fn is_running_for(&self, store: StoreId) -> bool {
        self.store.id == store && matches!(self.state.lock().progress, Progress::Running)
    }

    /// Whether what has nothing to drop is rewritten too.
    pub(super) fn rewrites(&self) -> bool {
        self.control.0.rewrite
    }

    pub(crate) fn is_canceled(&self) -> bool {
        self.control.is_canceled()
    }

    /// A compaction for it is about to be started.
    pub(super) fn note_started(&self) {
        self.state.lock().progress = Progress::Running;
    }

    /// The plan made on that shape was refused. Whether so was the plan before it, on the same shape.
    pub(super) fn note_refused(&self, shape: &Arc<Shape>) -> bool {
        let before = self.state.lock().refused.replace(shape.clone());
        before.is_some_and(|before| Arc::ptr_eq(&before, shape))
    }

    /// The running compaction has written so many bytes.
    pub(crate) fn note_written(&self, bytes: u64) {
        let before = self.state.lock().written;
        self.control.0.written.store(before + bytes, Ordering::Relaxed);
    }

    /// The running compaction has ended.
    pub(crate) fn note_done(&self, plan: &CompactionPlan, written: u64) {
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

    /// It waits again: the compaction for it did not begin, or ended without its fault.
    pub(crate) fn begin_again(&self) {
        self.state.lock().progress = Progress::Waiting;
    }

    pub(crate) fn fail(&self, error: &Error) {
        self.state.lock().progress = Progress::Ended(Err(error.clone()));
    }

    /// The next compaction, of the first part of what is left in which there is something to do; `None` at
    /// the end.
    pub(super) fn plan(
        &self,
        shape: &Shape,
        strategy: &dyn Strategy,
        bounds: &[Vec<u8>],
        request: ManualRequest<'_>,
    ) -> Option<CompactionPlan> {
        let mut state = self.state.lock();
        loop {
            let (part, plan) = match state.left.is_empty() {
                true => (state.left.clone(), None),
                false => major_part(shape, &state.left, bounds, request, strategy),
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

    pub(super) fn ended(&self) -> Option<Result<()>> {
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
