//! The jobs that run, and the turns that workers take with them.
//!
//! A worker takes the most urgent job that is ready, advances it for a slice of time, and puts it back. So a flush never waits
//! for a merge to end, and one worker can carry any number of merges.

use super::Work;
use super::jobs::{Advanced, Cleaned, Job};
use crate::commit::Store;
use crate::error::{Error, ErrorKind};
use crate::event::EventKind;
use crate::schedule::{Turn, Worker};
use crate::sync::{AtomicU64, Mutex, Ordering};
use crate::types::{LogFileId, StoreId};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};

/// How long a worker stays with one job before it looks at the others.
pub(super) const SLICE_NS: u64 = 4_000_000;

/// For how long a merge waits where a flush must not be held up, before that is looked at again.
const HELD_NS: u64 = 2_000_000;

/// A merge that has waited so long for a worker goes before others.
const MERGE_WAITS_NS: u64 = 20_000_000;

/// Pause before failed work is tried again.
const RETRY_NS: u64 = 250_000_000;

/// So many merges of a family fail one after the other before callers that wait for merges are told.
const FAILURES_TOLD: u32 = 2;

/// Pause before a merge that met damaged input is tried again.
const RETRY_DAMAGED_NS: u64 = 30_000_000_000;

/// The jobs and what they share.
#[derive(Default)]
pub(crate) struct Queue {
    pub(super) list: Mutex<Vec<Slot>>,
    /// One planner at a time.
    planning: Mutex<()>,
    /// The log is not looked at before this moment (monotonic ns).
    pub(super) clean_not_before: AtomicU64,
    /// This oldest file was found to be needed too much for cleaning below the log's limit.
    pub(super) front_left: AtomicU64,
}

impl Queue {
    /// Whether there is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.list.lock().is_empty()
    }

    /// Cleaning comes again after that moment; if a file was left it is not looked at again below the log's limit.
    pub(crate) fn pause_cleaning(&self, until_ns: u64, left: Option<LogFileId>) {
        self.clean_not_before.store(until_ns, Ordering::Relaxed);
        if let Some(file) = left {
            self.front_left.store(file.0, Ordering::Relaxed);
        }
    }
}

pub(super) struct Slot {
    pub(super) id: u32,
    pub(super) urgency: Urgency,
    /// A merge that was asked for. It takes no other merge's place, as it may last for hours.
    pub(super) asked: bool,
    /// Whose it is; `None` of one that cleans the log.
    pub(super) store: Option<StoreId>,
    /// `None` while a worker has it.
    pub(super) job: Option<Job>,
    /// It is a merge that runs here, which rests beside readers.
    pub(super) rests: bool,
    pub(super) not_before_ns: u64,
    /// Since when it could go on.
    pub(super) since_ns: u64,
}

impl Slot {
    /// The most urgent first. Of flushes the oldest, as only its last step frees memory; merges take turns. One that has
    /// waited long goes before other merges, however urgent: else one over all data would never end under a load whose
    /// merges of level 0 keep the only worker busy, or take all that a limited rate allows.
    fn order(&self, now: u64, rested_until: u64) -> impl Ord + use<> {
        // A rest of all is no waiting.
        let waited = now.saturating_sub(self.since_ns.max(rested_until));
        let (urgency, waited) = match self.urgency {
            Urgency::Merge | Urgency::Level0Merge if waited > MERGE_WAITS_NS => {
                (Urgency::LongWaiting, waited)
            }
            Urgency::Merge | Urgency::Level0Merge => (self.urgency, waited),
            urgency => (urgency, 0),
        };
        (urgency, waited, std::cmp::Reverse(self.id))
    }
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Urgency {
    Merge,
    Level0Merge,
    /// Of no job for ever.
    LongWaiting,
    Join,
    Clean,
    Flush,
}

impl Urgency {
    fn is_of_merge(self) -> bool {
        matches!(self, Urgency::Merge | Urgency::Level0Merge)
    }
}

/// Takes turns on behalf of a database, as long as that is there.
pub(crate) struct DbWorker(pub(crate) Weak<Work>);

impl Worker for DbWorker {
    fn turn(&mut self) -> Turn {
        match self.0.upgrade() {
            Some(db) => {
                // Our own bug must not leave writers waiting for work that nobody does any more.
                let turn = catch_unwind(AssertUnwindSafe(|| db.turn()));
                turn.unwrap_or_else(|_| {
                    db.commit.poison(&Error::new(
                        ErrorKind::Poisoned,
                        "a background worker panicked (see standard error)",
                    ));
                    Turn::Idle
                })
            }
            None => Turn::Idle,
        }
    }
}

impl Work {
    fn turn(&self) -> Turn {
        if !self.commit.health.is_open() {
            return Turn::Idle;
        }
        let chores = self.chores();
        let now = self.commit.env.clock.monotonic_ns();
        let mut found = self.take_job(now);
        if !matches!(found, Some((_, Urgency::Flush, _))) {
            if let Some(_planning) = self.queue.planning.try_lock() {
                self.start_due();
            }
            if let Some((id, _, job)) = found.take() {
                self.give_back(id, job);
            }
            found = self.take_job(now);
        }
        if matches!(found, Some((_, urgency, _)) if urgency < Urgency::Clean) && self.is_flush_pressed() {
            let (id, _, job) = found.expect("just matched");
            self.give_back(id, job);
            return Turn::Until(HELD_NS);
        }
        let Some((id, _, job)) = found else {
            return if chores { Turn::Worked } else { self.idle(now) };
        };
        self.run_slice(id, job, now);
        Turn::Worked
    }

    /// Merges of tables that have begun and not ended. O(jobs).
    pub(crate) fn merges_running(&self) -> u64 {
        self.queue.list.lock().iter().filter(|slot| slot.urgency.is_of_merge()).count() as u64
    }

    /// Until when there is nothing to do.
    pub(super) fn idle(&self, now: u64) -> Turn {
        let rest = self.commit.rest_left(now);
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

    /// Whether another worker is flushing and memory fills meanwhile. Merges wait then: on few processors they would take
    /// from the flush, and from the writer, what both need to stay clear of the bound where writers are held up.
    pub(super) fn is_flush_pressed(&self) -> bool {
        self.commit.tally.memory.get() > self.commit.memory_wait()
            && self.queue.list.lock().iter().any(|slot| slot.urgency == Urgency::Flush && slot.job.is_none())
    }

    /// Whether the log's front is being cleaned. Flushes and cleanings are started by one planner at a time, so what this
    /// says holds until the planner is done.
    pub(crate) fn is_cleaning(&self) -> bool {
        self.queue.list.lock().iter().any(|slot| slot.urgency == Urgency::Clean)
    }

    /// The most urgent job that is ready. Merges rest together: no job needs a turn to find that out.
    pub(super) fn take_job(&self, now: u64) -> Option<(u32, Urgency, Job)> {
        let resting = self.commit.rest_left(now) > 0;
        let rested_until = self.commit.rates.pace.until();
        let mut list = self.queue.list.lock();
        let best = list
            .iter_mut()
            .filter(|slot| slot.job.is_some() && slot.not_before_ns <= now)
            .filter(|slot| !(resting && slot.rests))
            .max_by_key(|slot| slot.order(now, rested_until))?;
        Some((best.id, best.urgency, best.job.take()?))
    }

    /// Does what a look at the log's oldest file leads to.
    pub(super) fn cleaned(&self, outcome: Cleaned) {
        if let Some(wanted) = outcome.flush {
            self.start_flush(wanted);
        }
        if let Some(until_ns) = outcome.pause_until {
            self.queue.pause_cleaning(until_ns, outcome.left);
        }
    }

    /// Puts a job back that was not advanced.
    pub(super) fn give_back(&self, id: u32, job: Job) {
        self.put_back(id, job, 0, None);
    }

    /// Puts a job back: not before that moment, and since when it could go on if that is another moment than before.
    pub(super) fn put_back(&self, id: u32, job: Job, not_before_ns: u64, since_ns: Option<u64>) {
        if let Some(slot) = self.queue.list.lock().iter_mut().find(|slot| slot.id == id) {
            slot.rests = job.rests();
            slot.job = Some(job);
            slot.not_before_ns = not_before_ns;
            slot.since_ns = since_ns.unwrap_or(slot.since_ns);
        }
    }

    /// Forgets a job that has ended.
    pub(super) fn end_job(&self, id: u32) {
        let mut list = self.queue.list.lock();
        if let Some(at) = list.iter().position(|slot| slot.id == id)
            && let Some(store) = list.remove(at).store
        {
            drop(list);
            self.commit.touch(store);
        }
    }

    pub(super) fn run_slice(&self, id: u32, mut job: Job, began: u64) {
        let mut worked = false;
        loop {
            let advanced = job.advance(&self.catalog);
            let now = self.commit.env.clock.monotonic_ns();
            match advanced {
                Ok(Advanced::More) if now - began < SLICE_NS && self.commit.health.is_open() => worked = true,
                Ok(Advanced::More) => return self.put_back(id, job, now, Some(now)),
                Ok(Advanced::Wait(ns)) => return self.put_back(id, job, now + ns, Some(now + ns)),
                // Of one that could do nothing the waiting goes on, counted from when it began.
                Ok(Advanced::NotYet(ns)) => {
                    return self.put_back(id, job, now + ns, worked.then_some(now + ns));
                }
                Ok(Advanced::Done) => {
                    if let Job::Clean(job) = &mut job {
                        self.cleaned(job.outcome());
                    }
                    if !matches!(job, Job::Join(_) | Job::Clean(_)) {
                        *self.commit.health.background_error.lock() = None;
                        self.commit.room.beyond_full.set(0);
                    }
                    if let Job::Merge(job) = &job {
                        self.commit.gets_on(job.store());
                    }
                    self.end_job(id);
                    return self.commit.scheduler.notify();
                }
                Err(e) => {
                    self.fail_job(job, &e);
                    self.end_job(id);
                    return self.commit.scheduler.notify();
                }
            }
        }
    }

    pub(super) fn fail_job(&self, job: Job, error: &Error) {
        let is_damage = error.kind() == ErrorKind::Corruption;
        let now = self.commit.env.clock.monotonic_ns();
        let pause = if is_damage { RETRY_DAMAGED_NS } else { RETRY_NS };
        let not_before = now + pause;
        // Work on a family that was dropped meanwhile ends, and concerns nobody else.
        let matters = |store: &Store| error.kind() != ErrorKind::Canceled && !store.is_dropped();
        let job = match job {
            Job::Clean(mut job) => {
                job.abandon(&self.catalog, error, pause);
                return self.cleaned(job.outcome());
            }
            job => job,
        };
        let flush = job.flush();
        let (is_merge, is_asked) = match &job {
            Job::Merge(job) => (true, job.is_asked()),
            _ => (false, false),
        };
        let Some((store, what)) = job.abandon(&self.catalog, error) else { return };
        let matter = matters(&store);
        match flush {
            // One of a range that met damage in the range's tables is taken up again at once, and goes around them.
            Some((_, true)) if is_damage => {}
            Some((number, _)) if matter => self.flush_failed(&store, number, error, not_before),
            Some(_) => {}
            None if is_merge && matter && !is_asked => self.merge_failed(&store, error, now, pause),
            None if !is_merge && matter => {
                store.work.lock().merges.not_before = not_before;
                self.commit.touch_at(store.id, not_before);
            }
            None => {}
        }
        if matters(&store) {
            self.commit.events.record(
                EventKind::Failure,
                &store.name,
                format!("{what} failed: {error}"),
                &[],
            );
            if error.kind() == ErrorKind::DiskFull {
                // What may go makes room for the next try.
                self.catalog.give_up_kept_log();
                *self.commit.health.background_error.lock() = Some(error.clone());
            }
        }
        if self.catalog.manifest.lock().is_poisoned() {
            self.commit.poison(error);
        }
    }

    /// The store's flush of that number failed: the next one comes not before that moment.
    fn flush_failed(&self, store: &Store, number: u64, error: &Error, not_before: u64) {
        let mut work = store.work.lock();
        work.flush.not_before = not_before;
        work.flush.failed = Some((number, error.clone()));
        drop(work);
        self.commit.touch_at(store.id, not_before);
        *self.commit.health.background_error.lock() = Some(error.clone());
    }

    /// Who is to run a merge of the store did not begin it.
    pub(super) fn merge_not_begun(&self, store: &Arc<Store>, error: &Error, asked: bool) {
        self.commit.events.record(
            EventKind::Failure,
            &store.name,
            format!("a merge could not be begun: {error}"),
            &[],
        );
        if !asked && !store.is_dropped() {
            let pause = if error.kind() == ErrorKind::Corruption { RETRY_DAMAGED_NS } else { RETRY_NS };
            self.merge_failed(store, error, self.commit.env.clock.monotonic_ns(), pause);
        }
    }

    /// A merge of the store's strategy failed. What fails again and again is tried ever more seldom.
    fn merge_failed(&self, store: &Arc<Store>, error: &Error, now: u64, pause: u64) {
        let is_damage = error.kind() == ErrorKind::Corruption;
        let mut work = store.work.lock();
        work.merges.failures += u32::from(!planted!(Bug::HideFailingMerges));
        let longer = (pause << work.merges.failures.saturating_sub(1).min(7)).min(RETRY_DAMAGED_NS);
        work.merges.not_before = now + longer;
        let again = work.merges.failures >= FAILURES_TOLD && error.kind() != ErrorKind::DiskFull;
        if again || (is_damage && !planted!(Bug::HideFailingMerges)) {
            let mut failing = self.commit.health.failing.lock();
            if !store.is_dropped() {
                failing.insert(store.id, (store.clone(), error.clone()));
            }
        }
        drop(work);
        self.commit.touch_at(store.id, now + longer);
    }

    /// Drops a join whose segments a flush has taken, so that it does not hold their memory until its next turn. One that
    /// a worker is advancing finds out by itself.
    pub(super) fn drop_join_of(&self, store: &Store) {
        let mut dropped = Vec::new();
        self.queue.list.lock().retain_mut(|slot| match &slot.job {
            Some(Job::Join(join)) if join.is_of(store) => {
                dropped.extend(slot.job.take());
                false
            }
            _ => true,
        });
        for job in dropped {
            if let Job::Join(join) = job {
                join.overtaken(&self.catalog);
                join.abandon(&self.catalog);
            }
        }
    }

    pub(super) fn add_job(&self, urgency: Urgency, store: Option<StoreId>, job: Job) {
        let id = job.id();
        let since_ns = self.commit.env.clock.monotonic_ns();
        let rests = job.rests();
        let slot =
            Slot { id, urgency, asked: false, store, job: Some(job), rests, not_before_ns: 0, since_ns };
        self.queue.list.lock().push(slot);
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
