//! Workers on threads of their own.
#![allow(clippy::disallowed_methods, reason = "this is where real threads and waits are let in")]

use super::{Scheduler, Turn, Worker};
use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// An idle worker looks for work this often even when nobody notifies it.
const IDLE: Duration = Duration::from_millis(500);

/// Runs each worker on a thread.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// use siltstone::schedule::ThreadScheduler;
/// let scheduler = std::sync::Arc::new(ThreadScheduler::new());
/// let db = siltstone::Builder::new().scheduler(scheduler).open(dir.path())?;
/// db.put(b"k", b"v")?;
/// # Ok::<(), siltstone::Error>(())
/// ```
#[derive(Debug, Default)]
pub struct ThreadScheduler {
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

#[derive(Debug, Default)]
struct Shared {
    /// Grows with every notification.
    round: AtomicU64,
    sleepers: AtomicUsize,
    stopping: AtomicBool,
    lock: Mutex<()>,
    changed: Condvar,
}

impl Shared {
    fn notify(&self) {
        self.round.fetch_add(1, Ordering::SeqCst);
        if self.sleepers.load(Ordering::SeqCst) > 0 {
            drop(self.lock.lock());
            self.changed.notify_all();
        }
    }

    /// Sleeps unless a notification came after `round` was read.
    fn sleep(&self, round: u64, limit: Duration) {
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        let mut guard = self.lock.lock();
        if self.round.load(Ordering::SeqCst) == round && !self.stopping.load(Ordering::SeqCst) {
            self.changed.wait_for(&mut guard, limit);
        }
        drop(guard);
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
    }

    fn run(&self, mut worker: Box<dyn Worker>) {
        while !self.stopping.load(Ordering::SeqCst) {
            let round = self.round.load(Ordering::SeqCst);
            match worker.turn() {
                Turn::Worked => {}
                Turn::Idle => self.sleep(round, IDLE),
                Turn::Until(ns) => self.sleep(round, Duration::from_nanos(ns).min(IDLE)),
            }
        }
    }
}

impl ThreadScheduler {
    /// No threads yet.
    pub fn new() -> Self {
        Self::default()
    }
}

impl Scheduler for ThreadScheduler {
    fn start(&self, workers: Vec<Box<dyn Worker>>) {
        let mut threads = self.threads.lock();
        for (i, worker) in workers.into_iter().enumerate() {
            let shared = self.shared.clone();
            let name = format!("siltstone-{i}");
            let thread = std::thread::Builder::new().name(name).spawn(move || shared.run(worker));
            threads.push(thread.expect("the system can start a thread"));
        }
    }

    fn notify(&self) {
        self.shared.notify();
    }

    fn wait(&self, condition: &mut dyn FnMut() -> bool) {
        loop {
            let round = self.shared.round.load(Ordering::SeqCst);
            if condition() {
                return;
            }
            self.shared.sleep(round, IDLE);
        }
    }

    fn pause(&self, ns: u64) {
        std::thread::sleep(Duration::from_nanos(ns));
    }

    fn stop(&self) {
        self.shared.stopping.store(true, Ordering::SeqCst);
        self.shared.notify();
        let threads = std::mem::take(&mut *self.threads.lock());
        for thread in threads {
            // The last handle to a database may be dropped by one of its own workers.
            if thread.thread().id() != std::thread::current().id() {
                let _ = thread.join();
            }
        }
    }
}
