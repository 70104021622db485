//! Workers on threads of their own.
#![allow(clippy::disallowed_methods, reason = "this is where real threads and waits are let in")]

use super::{Scheduler, Turn, Worker};
use crate::sync::{AtomicBool, AtomicU64, AtomicUsize, Condvar, Mutex, Ordering, thread};
use std::sync::Arc;
use std::time::Duration;

/// An idle worker looks for work this often even when nobody notifies it.
const IDLE: Duration = Duration::from_millis(500);

/// The default nice value of workers' threads.
const NICE: u8 = 10;

/// Runs each worker on a thread.
///
/// Threads run at nice 10 ([`with_nice`](Self::with_nice)), so that with fewer processors than threads the
/// callers' come first: background work is late rather than noticed. If it falls too far behind, write stalls
/// give it processor time. Linux only; elsewhere all threads are alike.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// use siltstone::schedule::ThreadScheduler;
/// let scheduler = std::sync::Arc::new(ThreadScheduler::new());
/// let db = siltstone::Builder::new().scheduler(scheduler).open(dir.path())?;
/// db.put(b"k", b"v")?;
/// # Ok::<(), siltstone::Error>(())
/// ```
#[derive(Debug)]
pub struct ThreadScheduler {
    nice: u8,
    shared: Arc<Shared>,
    threads: Mutex<Vec<thread::JoinHandle<()>>>,
}

#[derive(Debug, Default)]
struct Shared {
    /// Incremented with every notification.
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

    fn wait(&self, condition: &mut dyn FnMut() -> bool) {
        loop {
            let round = self.round.load(Ordering::SeqCst);
            if condition() {
                return;
            }
            self.sleep(round, IDLE);
        }
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
    /// A scheduler without threads yet.
    pub fn new() -> Self {
        Self::with_nice(NICE)
    }

    /// A scheduler without threads yet, whose threads will have this nice value: 0 to 19.
    pub fn with_nice(nice: u8) -> Self {
        Self { nice: nice.min(19), shared: Arc::default(), threads: Mutex::default() }
    }
}

impl Default for ThreadScheduler {
    fn default() -> Self {
        Self::new()
    }
}

/// Sets the calling thread's nice value. Failure, where the system forbids it, does no harm.
#[cfg(target_os = "linux")]
fn stand_back(nice: u8) {
    let now = rustix::process::getpriority_process(None).unwrap_or(0);
    let _ = rustix::process::setpriority_process(None, now.max(i32::from(nice)));
}

#[cfg(not(target_os = "linux"))]
fn stand_back(_: u8) {}

impl Scheduler for ThreadScheduler {
    fn start(&self, workers: Vec<Box<dyn Worker>>) -> std::io::Result<()> {
        let mut threads = Vec::new();
        for (i, worker) in workers.into_iter().enumerate() {
            let shared = self.shared.clone();
            let (name, nice) = (format!("siltstone-{i}"), self.nice);
            let worker = thread::Builder::new().name(name).spawn(move || {
                stand_back(nice);
                shared.run(worker);
            });
            match worker {
                Ok(worker) => threads.push(worker),
                Err(e) => {
                    self.threads.lock().extend(threads);
                    self.stop();
                    return Err(e);
                }
            }
        }
        self.threads.lock().extend(threads);
        Ok(())
    }

    fn notify(&self) {
        self.shared.notify();
    }

    fn wait(&self, condition: &mut dyn FnMut() -> bool) {
        self.shared.wait(condition);
    }

    fn pause(&self, ns: u64) {
        thread::sleep(Duration::from_nanos(ns));
    }

    fn stop(&self) {
        self.shared.stopping.store(true, Ordering::SeqCst);
        self.shared.notify();
        let threads = std::mem::take(&mut *self.threads.lock());
        for worker in threads {
            // The last handle to a database may be dropped by one of its own workers.
            if worker.thread().id() != thread::current().id() {
                let _ = worker.join();
            }
        }
    }
}

/// Models of the shared state; see `crate::sync`. Not for loom, which weakens sequentially consistent
/// accesses, and sleepers and notifiers rely on these.
#[cfg(all(test, models))]
mod model {
    use super::*;
    use crate::sync::thread::{JoinHandle, spawn};
    use crate::sync::{Limits, check};

    const LIMITS: Limits = Limits { preemptions: 0, schedules: 20_000 };

    /// Has work as long as the count is above what was done.
    struct Counter {
        asked: Arc<AtomicU64>,
        done: Arc<AtomicU64>,
        shared: Arc<Shared>,
    }

    impl Worker for Counter {
        fn turn(&mut self) -> Turn {
            let done = self.done.load(Ordering::SeqCst);
            if done < self.asked.load(Ordering::SeqCst)
                && self.done.compare_exchange(done, done + 1, Ordering::SeqCst, Ordering::SeqCst).is_ok()
            {
                // Wakes the waiting callers.
                self.shared.notify();
                return Turn::Worked;
            }
            Turn::Idle
        }
    }

    fn start(shared: &Arc<Shared>, workers: usize) -> (Arc<AtomicU64>, Arc<AtomicU64>, Vec<JoinHandle<()>>) {
        let (asked, done) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let threads = (0..workers).map(|_| {
            let worker = Counter { asked: asked.clone(), done: done.clone(), shared: shared.clone() };
            let shared = shared.clone();
            spawn(move || shared.run(Box::new(worker)))
        });
        let threads = threads.collect();
        (asked, done, threads)
    }

    fn stop(shared: &Shared, threads: Vec<JoinHandle<()>>) {
        shared.stopping.store(true, Ordering::SeqCst);
        shared.notify();
        threads.into_iter().for_each(|t| t.join().unwrap());
    }

    #[test]
    fn a_notification_wakes_a_worker_that_is_about_to_sleep() {
        check(LIMITS, || {
            let shared = Arc::new(Shared::default());
            let (asked, done, threads) = start(&shared, 1);
            for n in 1..=2 {
                asked.fetch_add(1, Ordering::SeqCst);
                shared.notify();
                shared.wait(&mut || done.load(Ordering::SeqCst) == n);
            }
            stop(&shared, threads);
        });
    }

    #[test]
    fn workers_that_sleep_all_hear_that_they_must_stop() {
        check(LIMITS, || {
            let shared = Arc::new(Shared::default());
            let (_, _, threads) = start(&shared, 3);
            stop(&shared, threads);
        });
    }

    #[test]
    fn two_callers_and_two_workers_do_not_wait_for_each_other_for_ever() {
        check(LIMITS, || {
            let shared = Arc::new(Shared::default());
            let (asked, done, threads) = start(&shared, 2);
            let callers: Vec<_> = (0..2)
                .map(|_| {
                    let (shared, asked, done) = (shared.clone(), asked.clone(), done.clone());
                    spawn(move || {
                        let mine = asked.fetch_add(1, Ordering::SeqCst) + 1;
                        shared.notify();
                        shared.wait(&mut || done.load(Ordering::SeqCst) >= mine);
                    })
                })
                .collect();
            callers.into_iter().for_each(|c| c.join().unwrap());
            assert_eq!(done.load(Ordering::SeqCst), 2);
            stop(&shared, threads);
        });
    }
}
