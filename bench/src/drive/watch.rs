//! Looks at a phase from outside, five times a second: how far it is, for the bar on the terminal, and how
//! large the directory has become, what others take of the processors, whether a compaction runs, and how
//! many runs of SSTables there are, for the peaks.

use super::worker::Shared;
use crate::measure::{Stolen, directory_bytes};
use crate::store::Store;
use indicatif::{ProgressBar, ProgressStyle};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread::{Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

const LOOK_EVERY: Duration = Duration::from_millis(200);

pub(super) struct Watch<'a> {
    dir: &'a Path,
    store: &'a dyn Store,
    shared: &'a Shared,
    bar: ProgressBar,
    peak: AtomicU64,
    peak_runs: AtomicU64,
    over: AtomicBool,
    stolen: Mutex<Stolen>,
    compactions: Mutex<Vec<Look>>,
}

/// A store's report of its compactions.
#[derive(Clone, Copy)]
pub(super) struct Look {
    pub(super) at: Instant,
    /// Whether one ran, or ended since the check before.
    pub(super) merging: bool,
    pub(super) debt: Option<u64>,
}

/// The thread that watches.
pub(super) struct Watching<'scope> {
    thread: ScopedJoinHandle<'scope, ()>,
    over: &'scope AtomicBool,
}

impl<'a> Watch<'a> {
    pub(super) fn new(
        dir: &'a Path,
        store: &'a dyn Store,
        shared: &'a Shared,
        title: &str,
        ops: u64,
    ) -> Self {
        let style = ProgressStyle::with_template("{prefix} {wide_bar} {pos}/{len} {per_sec}");
        let bar = ProgressBar::new(ops).with_prefix(title.to_string());
        let bar = style.map_or(bar.clone(), |style| bar.with_style(style));
        let (peak, peak_runs) = (AtomicU64::new(0), AtomicU64::new(0));
        Watch {
            dir,
            store,
            shared,
            bar,
            peak,
            peak_runs,
            over: AtomicBool::new(false),
            stolen: Mutex::default(),
            compactions: Mutex::default(),
        }
    }

    pub(super) fn spawn<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>) -> Watching<'scope> {
        let look = || {
            let mut ended = self.ended_merges();
            while !self.over.load(Ordering::Relaxed) {
                self.peak.fetch_max(directory_bytes(self.dir), Ordering::Relaxed);
                self.look_at_processors();
                self.look_at_merges(&mut ended);
                self.peak_runs.fetch_max(self.store.runs().unwrap_or(0), Ordering::Relaxed);
                self.bar.set_position(self.shared.done.load(Ordering::Relaxed));
                std::thread::park_timeout(LOOK_EVERY);
            }
            self.look_at_processors();
            self.bar.finish_and_clear();
        };
        Watching { thread: scope.spawn(look), over: &self.over }
    }

    fn look_at_processors(&self) {
        self.stolen.lock().unwrap_or_else(PoisonError::into_inner).look();
    }

    fn look_at_merges(&self, ended: &mut u64) {
        let (Some(runs), at) = (self.store.merging(), Instant::now()) else { return };
        let before = std::mem::replace(ended, self.ended_merges());
        let look = Look { at, merging: runs || before != *ended, debt: self.store.debt() };
        self.compactions.lock().unwrap_or_else(PoisonError::into_inner).push(look);
    }

    fn ended_merges(&self) -> u64 {
        self.store.written().map_or(0, |written| written.compactions)
    }

    /// The processor time of others, and the store's report of its compactions, if it gives one.
    pub(super) fn looks(self) -> (Stolen, Vec<Look>) {
        let stolen = self.stolen.into_inner().unwrap_or_else(PoisonError::into_inner);
        (stolen, self.compactions.into_inner().unwrap_or_else(PoisonError::into_inner))
    }

    /// The most bytes the directory was seen to take.
    pub(super) fn peak(&self) -> u64 {
        self.peak.load(Ordering::Relaxed)
    }

    /// The most runs of SSTables that were seen, if the store reports them.
    pub(super) fn peak_runs(&self) -> Option<u64> {
        let now = self.store.runs()?;
        Some(self.peak_runs.load(Ordering::Relaxed).max(now))
    }
}

impl Watching<'_> {
    pub(super) fn end(self) {
        self.over.store(true, Ordering::Relaxed);
        self.thread.thread().unpark();
    }
}
