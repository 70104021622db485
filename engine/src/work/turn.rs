//! What a worker does in one turn: chores, then it starts what is due, then a slice of the most urgent job.
//! If there is none, it opens an SSTable that the open left unread (`open_behind`).
//!
//! A worker takes the most urgent job that is ready, advances it for a slice of time, and puts it back. So a
//! flush never waits for a compaction to end, and one worker can carry any number of compactions. What failed
//! is tried again after a pause.

use super::Work;
use super::jobs::{Job, JobProgress};
use super::queue::{SLICE_NS, Slot, Urgency};
use crate::commit::Store;
use crate::error::{Error, ErrorKind};
use crate::event::EventKind;
use crate::schedule::Turn;
use std::sync::Arc;

/// For how long a compaction waits where a flush must not be held up, before that is looked at again.
const HELD_NS: u64 = 2_000_000;

/// Pause before failed work is tried again.
const RETRY_NS: u64 = 250_000_000;

/// Compactions of a family that fail one after the other before callers that wait for compactions are told.
const FAILURES_TOLD: u32 = 2;

/// Pause before a compaction that met damaged input is tried again.
const RETRY_DAMAGED_NS: u64 = 30_000_000_000;

impl Work {
    pub(super) fn turn(&self) -> Turn {
        if !self.cx.health.is_open() {
            return Turn::Idle;
        }
        let chores = self.chores();
        let now = self.cx.env.clock.monotonic_ns();
        let mut found = self.take_job(now);
        if !matches!(found, Some((_, Urgency::Flush, _))) {
            if let Some(_planning) = self.queue.planning.try_lock() {
                self.start_due();
            }
            if let Some((id, _, job)) = found.take() {
                self.queue.give_back(id, job);
            }
            found = self.take_job(now);
        }
        let gives_way = |found: &mut (_, Urgency, _)| found.1 < Urgency::Clean && self.is_flush_pressed();
        if let Some((id, _, job)) = found.take_if(gives_way) {
            self.queue.give_back(id, job);
            return Turn::Until(HELD_NS);
        }
        let Some((id, _, job)) = found else {
            return if chores || self.open_behind() { Turn::Worked } else { self.idle(now) };
        };
        self.run_slice(id, job, now);
        Turn::Worked
    }

    /// Compactions of SSTables that have begun and not ended. O(jobs).
    pub(crate) fn compactions_running(&self) -> u64 {
        let list = self.queue.list.lock();
        list.iter().filter(|slot| slot.urgency.is_compaction()).count() as u64
    }

    /// The most urgent job that is ready.
    fn take_job(&self, now: u64) -> Option<(u32, Urgency, Job)> {
        self.queue.take(now, self.commit.pacing_left(now) > 0, self.cx.rates.pace.until())
    }

    /// A turn without work, until the first job may go on.
    fn idle(&self, now: u64) -> Turn {
        let rest = self.commit.pacing_left(now);
        let list = self.queue.list.lock();
        let wait = |slot: &Slot| {
            let wait = slot.not_before_ns.saturating_sub(now);
            if slot.rests { wait.max(rest) } else { wait }
        };
        match list.iter().filter(|slot| slot.job.is_some()).map(wait).min() {
            Some(ns) => Turn::Until(ns.max(1)),
            None => Turn::Idle,
        }
    }

    /// Whether another worker is flushing and memory fills meanwhile. Compactions wait then: on few
    /// processors they would take from the flush, and from the writer, what both need to stay clear of a
    /// write stop.
    fn is_flush_pressed(&self) -> bool {
        self.commit.tally.memory.get() > self.commit.memory_wait()
            && self.queue.list.lock().iter().any(|slot| slot.urgency == Urgency::Flush && slot.job.is_none())
    }

    fn end_job(&self, id: u32) {
        let mut list = self.queue.list.lock();
        if let Some(at) = list.iter().position(|slot| slot.id == id)
            && let Some(store) = list.remove(at).store
        {
            drop(list);
            self.commit.touch(store);
        }
    }

    /// Advances a job for a slice of time, and puts it back or ends it.
    fn run_slice(&self, id: u32, mut job: Job, began: u64) {
        let mut worked = false;
        loop {
            let advanced = job.advance(&self.catalog);
            let now = self.cx.env.clock.monotonic_ns();
            match advanced {
                Ok(JobProgress::More) if now - began < SLICE_NS && self.cx.health.is_open() => worked = true,
                Ok(JobProgress::More) => return self.queue.put_back(id, job, now, Some(now)),
                Ok(JobProgress::Wait(ns)) => return self.queue.put_back(id, job, now + ns, Some(now + ns)),
                // A job that could do nothing goes on waiting, counted from when that began.
                Ok(JobProgress::NotYet(ns)) => {
                    return self.queue.put_back(id, job, now + ns, worked.then_some(now + ns));
                }
                Ok(JobProgress::Done) => {
                    if let Job::Clean(job) = &mut job {
                        self.cleaned(std::mem::take(&mut job.outcome));
                    }
                    if !matches!(job, Job::MemtableCompaction(_) | Job::Clean(_)) {
                        *self.cx.health.flush_error.lock() = None;
                        self.commit.room.beyond_full.set(0);
                    }
                    if let Job::Compaction(job) = &job {
                        self.commit.gets_on(job.store());
                    }
                    self.end_job(id);
                    return self.cx.scheduler.notify();
                }
                Err(e) => {
                    self.fail_job(job, &e);
                    self.end_job(id);
                    return self.cx.scheduler.notify();
                }
            }
        }
    }

    /// Ends a job that failed, and notes when its like is tried again.
    fn fail_job(&self, job: Job, error: &Error) {
        let is_damage = error.kind() == ErrorKind::Corruption;
        let now = self.cx.env.clock.monotonic_ns();
        let pause = if is_damage { RETRY_DAMAGED_NS } else { RETRY_NS };
        let not_before = now + pause;
        // Work on a family that was dropped meanwhile ends, and concerns nobody else.
        let matters = |store: &Store| error.kind() != ErrorKind::Canceled && !store.is_dropped();
        let job = match job {
            Job::Clean(mut job) => {
                job.abandon(&self.catalog, error, pause);
                return self.cleaned(job.outcome);
            }
            job => job,
        };
        let flush = job.as_flush();
        let (is_compaction, is_manual) = match &job {
            Job::Compaction(job) => (true, job.is_manual()),
            _ => (false, false),
        };
        let Some((store, what)) = job.abandon(&self.catalog, error) else { return };
        let matter = matters(&store);
        match flush {
            // A flush of a range that met damage in the range's SSTables is taken up again at once, and goes
            // around them.
            Some((_, true)) if is_damage => {}
            Some((number, _)) if matter => self.flush_failed(&store, number, error, not_before),
            Some(_) => {}
            None if is_compaction && matter && !is_manual => {
                self.compaction_failed(&store, error, now, pause)
            }
            None if !is_compaction && matter => {
                store.work.lock().compactions.not_before = not_before;
                self.commit.touch_at(store.id, not_before);
            }
            None => {}
        }
        if matters(&store) {
            self.cx.events.record(EventKind::Failure, &store.name, format!("{what} failed: {error}"), &[]);
            if error.kind() == ErrorKind::DiskFull {
                // What may go makes room for the next try.
                self.catalog.give_up_retained_wal();
                *self.cx.health.flush_error.lock() = Some(error.clone());
            }
        }
        if self.catalog.manifest.lock().is_poisoned() {
            self.cx.poison(error);
        }
    }

    /// The store's flush of that number failed: the next one comes not before `not_before`.
    fn flush_failed(&self, store: &Store, number: u64, error: &Error, not_before: u64) {
        let mut work = store.work.lock();
        work.flush.not_before = not_before;
        work.flush.failed = Some((number, error.clone()));
        drop(work);
        self.commit.touch_at(store.id, not_before);
        *self.cx.health.flush_error.lock() = Some(error.clone());
    }

    /// A compaction of the store was not begun by whoever is to run it.
    pub(super) fn compaction_not_begun(&self, store: &Arc<Store>, error: &Error, is_manual: bool) {
        let reason = format!("a compaction could not be begun: {error}");
        self.cx.events.record(EventKind::Failure, &store.name, reason, &[]);
        if !is_manual && !store.is_dropped() {
            let pause = if error.kind() == ErrorKind::Corruption { RETRY_DAMAGED_NS } else { RETRY_NS };
            self.compaction_failed(store, error, self.cx.env.clock.monotonic_ns(), pause);
        }
    }

    /// A compaction of the store's strategy failed. What fails again and again is tried ever more seldom.
    fn compaction_failed(&self, store: &Arc<Store>, error: &Error, now: u64, pause: u64) {
        let is_damage = error.kind() == ErrorKind::Corruption;
        let mut work = store.work.lock();
        work.compactions.failures += u32::from(!planted!(Bug::HideFailingCompactions));
        let longer = (pause << work.compactions.failures.saturating_sub(1).min(7)).min(RETRY_DAMAGED_NS);
        work.compactions.not_before = now + longer;
        let again = work.compactions.failures >= FAILURES_TOLD && error.kind() != ErrorKind::DiskFull;
        if again || (is_damage && !planted!(Bug::HideFailingCompactions)) {
            self.commit.failing.insert(store, error);
        }
        drop(work);
        self.commit.touch_at(store.id, now + longer);
    }

    /// Drops all jobs; their finished steps stay.
    pub(crate) fn abandon_jobs(&self) {
        let closed = Error::new(ErrorKind::Closed, "the database was closed");
        // Without the lock: what a job gives up may ask what runs.
        let all = std::mem::take(&mut *self.queue.list.lock());
        for slot in all {
            if let Some(job) = slot.job {
                drop(job.abandon(&self.catalog, &closed));
            }
        }
    }
}
