//! Background work of a database: what is running, what to start, and the turns workers take.
//!
//! Jobs (flushes, merges) are machines driven by `advance()` and shared by all workers: a worker takes the most urgent
//! job that is ready, advances it for a slice of time, and puts it back. So a flush never waits for a merge to end,
//! and one worker can carry any number of merges.
//!
//! Owns: the list of jobs, pauses after failures, the rate limiter. Does not own: what is worth doing (`strategy`),
//! how a merge runs (`merge`), what a finished step changes (`install.rs`).

use super::clean::CleanJob;
use super::flush::FlushJob;
use super::manual::Manual;
use super::merges::MergeJob;
use super::pipeline::JoinJob;
use super::store::Store;
use super::tally::by_id;
use super::{Inner, State};
use crate::error::{Error, ErrorKind};
use crate::event::EventKind;
use crate::memory::{Segment, Visibility};
use crate::schedule::{Turn, Worker};
use crate::strategy::{DbAction, DbFacts, MergePlan, StoreFacts, plan_db};
use crate::sync::{AtomicU64, Mutex, Ordering};
use crate::types::{LogFileId, StoreId};
use crate::shape::TableInfo;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};

/// How long a worker stays with one job before it looks at the others.
const SLICE_NS: u64 = 4_000_000;
/// For how long a merge waits where a flush must not be held up, before that is looked at again.
const HELD_NS: u64 = 2_000_000;
/// A merge that has waited so long for a worker goes before others.
const MERGE_WAITS_NS: u64 = 20_000_000;
/// So many merges for each worker may be started at once though no place is free, each of another family.
const BEYOND_MAX: usize = 4;
/// Pause before failed work is tried again.
const RETRY_NS: u64 = 250_000_000;
/// So many merges of a family fail one after the other before callers that wait for merges are told.
const FAILURES_TOLD: u32 = 2;
/// Pause before the log is looked at again when a flush is about to free its oldest file.
const CLEAN_AGAIN_NS: u64 = 10_000_000;
/// Pause before a merge that met damaged input is tried again.
const RETRY_DAMAGED_NS: u64 = 30_000_000_000;

/// Holes begin behind a table's header, at the file system's block size.
const PUNCH_FROM: u64 = 4096;

/// The jobs and what they share.
#[derive(Default)]
pub(crate) struct Jobs {
    list: Mutex<Vec<Slot>>,
    /// One planner at a time.
    planning: Mutex<()>,
    pub(crate) manual: Mutex<Vec<Arc<Manual>>>,
    /// The log is not looked at before this moment (monotonic ns).
    clean_not_before: AtomicU64,
    /// This oldest file was found to be needed too much for cleaning below the log's limit.
    front_left: AtomicU64,
}

impl Jobs {
    /// Whether there is none.
    pub(super) fn is_empty(&self) -> bool {
        self.list.lock().is_empty()
    }

    /// Cleaning comes again after that moment; if a file was left it is not looked at again below the log's limit.
    pub(super) fn pause_cleaning(&self, until_ns: u64, left: Option<LogFileId>) {
        self.clean_not_before.store(until_ns, Ordering::Relaxed);
        if let Some(file) = left {
            self.front_left.store(file.0, Ordering::Relaxed);
        }
    }
}

struct Slot {
    id: u32,
    urgency: Urgency,
    /// A merge that was asked for. It takes no other merge's place, as it may last for hours and rests beside readers.
    asked: bool,
    /// Whose it is; `None` of one that cleans the log.
    store: Option<StoreId>,
    /// `None` while a worker has it.
    job: Option<Job>,
    not_before_ns: u64,
    /// Since when it could go on.
    since_ns: u64,
}

impl Slot {
    /// The most urgent first. Of flushes the oldest, as only its last step frees memory; merges take turns. One that has
    /// waited long goes before other merges, however urgent: else one over all data would never end under a load whose
    /// merges of level 0 keep the only worker busy, or take all that a limited rate allows.
    fn order(&self, now: u64) -> impl Ord + use<> {
        let waited = now.saturating_sub(self.since_ns);
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
enum Urgency {
    Merge,
    Level0Merge,
    /// Of no job for ever.
    LongWaiting,
    Join,
    Clean,
    Flush,
}

enum Job {
    Flush(Box<FlushJob>),
    Merge(Box<MergeJob>),
    Join(Box<JoinJob>),
    Clean(Box<CleanJob>),
}

/// What an advance of a job came to.
pub(crate) enum Advanced {
    More,
    /// Not before that many nanoseconds have passed. Zero after a step, so that what it made free goes first.
    Wait(u64),
    /// The same of one that could not do anything.
    NotYet(u64),
    Done,
}

/// Takes turns on behalf of a database, as long as that is there.
pub(crate) struct DbWorker(pub(crate) Weak<Inner>);

impl Worker for DbWorker {
    fn turn(&mut self) -> Turn {
        match self.0.upgrade() {
            Some(db) => {
                // Our own bug must not leave writers waiting for work that nobody does any more.
                let turn = catch_unwind(AssertUnwindSafe(|| db.turn()));
                turn.unwrap_or_else(|_| {
                    db.poison(&Error::new(
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

impl Inner {
    fn turn(self: &Arc<Self>) -> Turn {
        if self.state() != State::Open {
            return Turn::Idle;
        }
        let chores = self.chores();
        let now = self.env.clock.monotonic_ns();
        let mut found = self.take_job(now);
        if !matches!(found, Some((_, Urgency::Flush, _))) {
            if let Some(_planning) = self.jobs.planning.try_lock() {
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

    /// Until when there is nothing to do.
    fn idle(&self, now: u64) -> Turn {
        let list = self.jobs.list.lock();
        let next = list.iter().filter(|s| s.job.is_some()).map(|s| s.not_before_ns.saturating_sub(now)).min();
        match next {
            Some(ns) => Turn::Until(ns.max(1)),
            None => Turn::Idle,
        }
    }

    /// Whether another worker is flushing and memory fills meanwhile. Merges wait then: on few processors they would take
    /// from the flush, and from the writer, what both need to stay clear of the bound where writers are held up.
    fn is_flush_pressed(&self) -> bool {
        self.tally.memory.get() > self.memory_wait()
            && self.jobs.list.lock().iter().any(|slot| slot.urgency == Urgency::Flush && slot.job.is_none())
    }

    /// Whether the log's front is being cleaned. Flushes and cleanings are started by one planner at a time, so what this
    /// says holds until the planner is done.
    pub(super) fn is_cleaning(&self) -> bool {
        self.jobs.list.lock().iter().any(|slot| slot.urgency == Urgency::Clean)
    }

    fn take_job(&self, now: u64) -> Option<(u32, Urgency, Job)> {
        let mut list = self.jobs.list.lock();
        let best = list
            .iter_mut()
            .filter(|slot| slot.job.is_some() && slot.not_before_ns <= now)
            .max_by_key(|slot| slot.order(now))?;
        Some((best.id, best.urgency, best.job.take()?))
    }

    /// Puts a job back that was not advanced.
    fn give_back(&self, id: u32, job: Job) {
        self.put_back(id, job, 0, None);
    }

    /// Puts a job back: not before that moment, and since when it could go on if that is another moment than before.
    fn put_back(&self, id: u32, job: Job, not_before_ns: u64, since_ns: Option<u64>) {
        if let Some(slot) = self.jobs.list.lock().iter_mut().find(|slot| slot.id == id) {
            slot.job = Some(job);
            slot.not_before_ns = not_before_ns;
            slot.since_ns = since_ns.unwrap_or(slot.since_ns);
        }
    }

    /// Forgets a job that has ended.
    fn end_job(&self, id: u32) {
        let mut list = self.jobs.list.lock();
        if let Some(at) = list.iter().position(|slot| slot.id == id)
            && let Some(store) = list.remove(at).store
        {
            drop(list);
            self.touch(store);
        }
    }

    fn run_slice(self: &Arc<Self>, id: u32, mut job: Job, began: u64) {
        let mut worked = false;
        loop {
            let advanced = match &mut job {
                Job::Flush(job) => job.advance(self),
                Job::Merge(job) => job.advance(self),
                Job::Join(job) => job.advance(self),
                Job::Clean(job) => job.advance(self),
            };
            let now = self.env.clock.monotonic_ns();
            match advanced {
                Ok(Advanced::More) if now - began < SLICE_NS && self.state() == State::Open => worked = true,
                Ok(Advanced::More) => return self.put_back(id, job, now, Some(now)),
                Ok(Advanced::Wait(ns)) => return self.put_back(id, job, now + ns, Some(now + ns)),
                // Of one that could do nothing the waiting goes on, counted from when it began.
                Ok(Advanced::NotYet(ns)) => {
                    return self.put_back(id, job, now + ns, worked.then_some(now + ns));
                }
                Ok(Advanced::Done) => {
                    if !matches!(job, Job::Join(_) | Job::Clean(_)) {
                        *self.background_error.lock() = None;
                        self.beyond_full.set(0);
                    }
                    if let Job::Merge(job) = &job {
                        self.gets_on(job.store());
                    }
                    self.end_job(id);
                    return self.scheduler.notify();
                }
                Err(e) => {
                    self.fail_job(job, &e);
                    self.end_job(id);
                    return self.scheduler.notify();
                }
            }
        }
    }

    fn fail_job(&self, job: Job, error: &Error) {
        let is_damage = error.kind() == ErrorKind::Corruption;
        let now = self.env.clock.monotonic_ns();
        let pause = if is_damage { RETRY_DAMAGED_NS } else { RETRY_NS };
        let not_before = now + pause;
        // Work on a family that was dropped meanwhile ends, and concerns nobody else.
        let matters = |store: &Store| error.kind() != ErrorKind::Canceled && !store.is_dropped();
        let (store, what) = match job {
            Job::Flush(job) => {
                // One of a range that met damage in the range's tables is taken up again at once, and goes around them.
                let goes_around = job.reads_tables() && is_damage;
                let number = job.number();
                let store = job.abandon(self, error);
                if matters(&store) && !goes_around {
                    let mut work = store.work.lock();
                    work.flush_not_before = not_before;
                    work.flush_failed = Some((number, error.clone()));
                    drop(work);
                    self.touch_at(store.id, not_before);
                    *self.background_error.lock() = Some(error.clone());
                }
                (store, "flush")
            }
            Job::Merge(job) => {
                let asked = job.is_asked();
                let store = job.abandon(self, error);
                if matters(&store) && !asked {
                    let mut work = store.work.lock();
                    work.failures += u32::from(!planted!(Bug::HideFailingMerges));
                    // What fails again and again is tried ever more seldom.
                    let longer = (pause << work.failures.saturating_sub(1).min(7)).min(RETRY_DAMAGED_NS);
                    work.merge_not_before = now + longer;
                    let again = work.failures >= FAILURES_TOLD && error.kind() != ErrorKind::DiskFull;
                    if again || (is_damage && !planted!(Bug::HideFailingMerges)) {
                        self.failing.lock().insert(store.id, error.clone());
                    }
                    self.touch_at(store.id, now + longer);
                }
                (store, "merge")
            }
            Job::Join(job) => {
                let store = job.abandon(self);
                if matters(&store) {
                    store.work.lock().merge_not_before = not_before;
                    self.touch_at(store.id, not_before);
                }
                (store, "in-memory merge")
            }
            Job::Clean(job) => return job.abandon(self, error, pause),
        };
        if matters(&store) {
            self.events.record(EventKind::Failure, &store.name, format!("{what} failed: {error}"), &[]);
            if error.kind() == ErrorKind::DiskFull {
                *self.background_error.lock() = Some(error.clone());
            }
        }
        if self.manifest.lock().is_poisoned() {
            self.poison(error);
        }
    }

    /// A merge of the store is done, or what it failed for is to be tried anew.
    pub(super) fn gets_on(&self, store: &Store) {
        if std::mem::take(&mut store.work.lock().failures) > 0 {
            self.failing.lock().remove(&store.id);
        }
    }

    /// Removes what a merge that was given up had written and nobody was told of. What cannot be removed is at the
    /// next open.
    pub(super) fn remove_leftovers(&self, files: &[std::path::PathBuf]) {
        for path in files {
            let _ = self.env.storage.remove(path);
        }
    }

    /// The same of tables that were never given to a manifest.
    pub(super) fn remove_outputs(&self, outputs: &[Arc<TableInfo>]) {
        let paths: Vec<_> = outputs.iter().map(|info| self.dir.join(info.id.file_name())).collect();
        self.remove_leftovers(&paths);
    }

    /// Small work that belongs to no job; whether there was any.
    fn chores(&self) -> bool {
        let mut worked = false;
        if let Ok(log) = self.log()
            && log.needs_prepare()
        {
            // A full disk shows again when the file is really needed.
            worked |= log.prepare().unwrap_or(false);
        }
        for store in self.touched() {
            worked |= self.lay_out_one(&store);
        }
        worked |= self.sweep();
        let now = self.env.clock.monotonic_ns();
        let saved = self.events_saved.load(Ordering::Relaxed);
        if now.saturating_sub(saved) > 1_000_000_000
            && self.events_saved.compare_exchange(saved, now, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        {
            // For people only: a failure to write it is not worth failing for.
            let _ = self.events.save();
            self.spares.rest();
        }
        worked
    }

    /// Lays one frozen segment out: flat, or over the ranges of a store whose memory is held by range. Whether there was one.
    fn lay_out_one(&self, store: &Store) -> bool {
        let settings = store.settings();
        let by_range = settings.options.strategy.strategy().by_range();
        let is_due = |segment: &Segment| by_range.is_some() || segment.as_active().is_some();
        if !store.version().frozen.iter().any(is_due)
            || std::mem::replace(&mut store.work.lock().laying_out, true)
        {
            return false;
        }
        let laid_out = match by_range {
            Some(by_range) => self.scatter_oldest(store, by_range),
            None => self.flatten_oldest(store),
        };
        store.work.lock().laying_out = false;
        laid_out
    }

    /// Turns one frozen segment into a flat one (ACC-3, invariant I4).
    fn flatten_oldest(&self, store: &Store) -> bool {
        let version = store.version_full();
        let Some(segment) = version.frozen.iter().rev().find(|s| s.as_active().is_some()) else {
            return false;
        };
        // Visible first, snapshots second: one taken between them is at or above what is visible now.
        let visible = self.snapshots.visible();
        let snapshots = self.snapshots.read_points();
        let began_ns = self.env.clock.monotonic_ns();
        let flat = segment.flatten(&Visibility {
            counts: store.settings().counts_versions(),
            visible,
            snapshots: &snapshots,
        });
        let generation = segment.generation();
        let mut swapped = false;
        store.swap_if(|now| {
            // A flush may have taken it.
            let is_it = |s: &Segment| s.generation() == generation && s.as_active().is_some();
            swapped = now.frozen.iter().any(is_it);
            swapped.then(|| {
                let flattened = |s: &Segment| if is_it(s) { flat.clone() } else { s.clone() };
                let frozen = now.frozen.iter().map(flattened).collect();
                now.with_memory(now.active.clone(), frozen, now.flush.clone())
            })
        });
        if swapped {
            self.note_memory_flush(store, segment, began_ns);
        }
        true
    }

    /// A full segment was laid out flat, or over the ranges of memory.
    pub(super) fn note_memory_flush(&self, store: &Store, segment: &Segment, began_ns: u64) {
        self.metrics.freezes.add(1);
        self.recount(store);
        self.touch(store.id);
        let version = store.version();
        let numbers = [
            ("cells", segment.cells() as u64),
            ("bytes", segment.bytes() as u64),
            ("generation", segment.generation().0),
            ("segments", version.frozen.len() as u64),
            ("share", store.active_bytes()),
            ("micros", (self.env.clock.monotonic_ns() - began_ns) / 1_000),
        ];
        self.events.record(EventKind::MemoryFlush, &store.name, "a segment was frozen".into(), &numbers);
    }

    /// Frees what nobody reads any more, for a slice of time at most; whether there was something.
    fn sweep(&self) -> bool {
        self.sweep_until(self.env.clock.monotonic_ns().saturating_add(SLICE_NS))
    }

    /// The same up to a moment.
    pub(super) fn sweep_until(&self, end_ns: u64) -> bool {
        if self.graveyard.is_empty() {
            return false;
        }
        self.graveyard.sweep();
        kill_point!("sweep-before-remove");
        let (mut failed, mut worked) = (Vec::new(), false);
        let is_over = || self.env.clock.monotonic_ns() >= end_ns;
        let mut over = false;
        while !over && let Some((path, upto)) = self.graveyard.next_punch() {
            worked = true;
            if upto > PUNCH_FROM {
                // Where holes cannot be punched the bytes go with the file.
                let _ = self.env.storage.punch_hole(&path, PUNCH_FROM, upto - PUNCH_FROM);
            }
            over = is_over();
        }
        // One at least: it gives back more than holes do.
        while let Some(path) = self.graveyard.next_file() {
            match self.env.storage.remove(&path) {
                Err(e) if e.kind() != std::io::ErrorKind::NotFound => failed.push(path),
                _ => worked = true,
            }
            if is_over() {
                break;
            }
        }
        self.graveyard.retry(failed);
        worked
    }

    /// Starts what is due: flushes, asked-for merges, merges by strategy. It looks at the stores that are due to be looked
    /// at (`tally`).
    fn start_due(self: &Arc<Self>) {
        let now = self.env.clock.monotonic_ns();
        self.start_manual();
        let (flushing, merging, working) = {
            let list = self.jobs.list.lock();
            let count = |urgency| list.iter().filter(|s| s.urgency == urgency && !s.asked).count();
            let merging = count(Urgency::Merge) + count(Urgency::Level0Merge);
            let working: Vec<StoreId> = list.iter().filter_map(|slot| slot.store).collect();
            (count(Urgency::Flush), merging, working)
        };
        let stores = self.take_due(&working, now);
        self.metrics.planned.add(stores.len() as u64);
        for store in &stores {
            if let Some(job) = JoinJob::start(self, store) {
                self.add_job(job.id(), Urgency::Join, Some(store.id), Job::Join(Box::new(job)));
            }
        }
        let merges_free = self.options.workers.saturating_sub(merging);
        let plans: Vec<_> = stores.iter().map(|store| self.plan_store(store, merges_free, now)).collect();
        // Those that a store may start whatever else runs.
        let urgent = if merges_free == 0 { plans.iter().map(Vec::len).sum() } else { 0 };
        let beyond = urgent.min(BEYOND_MAX * self.options.workers);
        // What a flush would gain is of use when some are to be chosen.
        let chosen = self.tally.memory.get() > self.memory_low();
        let held_alone = if chosen { self.log_held_alone(&stores) } else { None };
        let log_freed =
            |store: &Store| held_alone.filter(|(id, _)| *id == store.id).map_or(0, |(_, bytes)| bytes);
        let facts: Vec<StoreFacts<'_>> = stores
            .iter()
            .zip(&plans)
            .map(|(store, merges)| self.store_facts(store, merges, log_freed(store), now))
            .collect();
        let db = DbFacts {
            log_bytes: self.log().map_or(0, |log| log.bytes()),
            log_clean_bytes: self.options_now().log_clean_limit(),
            can_clean: self.can_clean(now),
            workers_free: stores.len() + merges_free + beyond - flushing.min(stores.len()),
            ..self.memory_facts(&stores)
        };
        let mut merges_left = merges_free + beyond;
        for action in plan_db(&facts, &db) {
            match action {
                DbAction::Flush { store, reason } => {
                    if let Some(store) = by_id(&stores, store) {
                        let may_stay = !self.flush_is_asked(store);
                        self.start_flush(store, reason, may_stay, None);
                    }
                }
                DbAction::Clean => match CleanJob::start(self) {
                    Some(job) => self.add_job(job.id(), Urgency::Clean, None, Job::Clean(Box::new(job))),
                    None => self.jobs.pause_cleaning(now + CLEAN_AGAIN_NS, None),
                },
                DbAction::Merge { store, index } => {
                    let Some(at) = stores.iter().position(|s| s.id == store) else { continue };
                    if merges_left > 0 {
                        merges_left -= 1;
                        self.start_merge(&stores[at], plans[at][index].clone(), None);
                    }
                }
            }
        }
        for (store, plans) in stores.iter().zip(&plans) {
            let asked = self.flush_is_asked(store);
            if asked && now >= store.work.lock().flush_not_before {
                self.start_flush(store, "it was asked for".into(), false, None);
            }
            if plans.is_empty() && merges_free > 0 {
                self.forget_failures(store, now);
            }
            if asked || !plans.is_empty() || self.has_more(store) {
                self.touch(store.id);
            }
        }
    }

    /// Nothing is to be merged any more: what failed before is nobody's concern.
    fn forget_failures(&self, store: &Store, now: u64) {
        let is_over = {
            let work = store.work.lock();
            work.failures > 0 && now >= work.merge_not_before && work.running.is_empty()
        };
        if is_over {
            self.gets_on(store);
            self.scheduler.notify();
        }
    }

    /// Whether there is something to do about the store's memory in another turn: segments to be laid out, what an
    /// interrupted flush left, more than the store may have.
    fn has_more(&self, store: &Store) -> bool {
        let version = store.version();
        let settings = store.settings();
        let by_range = settings.options.strategy.strategy().by_range().is_some();
        let limit = settings.options.write_memory;
        !store.is_dropped()
            && (version.frozen.iter().any(|segment| by_range || segment.as_active().is_some())
                || (!version.flush.is_empty() && !store.work.lock().flushing)
                || (limit > 0 && version.unflushed_bytes() > limit))
    }

    /// Whether it is of use to look at the log's oldest file.
    fn can_clean(&self, now: u64) -> bool {
        let Ok(log) = self.log() else { return false };
        let files = log.files();
        let left = self.jobs.front_left.load(Ordering::Relaxed);
        let is_left = files.first().is_some_and(|file| file.file.0 == left);
        files.len() > 1
            && now >= self.jobs.clean_not_before.load(Ordering::Relaxed)
            && (!is_left || log.bytes() > self.options_now().log_limit())
            && !self.jobs.list.lock().iter().any(|slot| slot.urgency == Urgency::Clean)
    }

    pub(super) fn store_facts<'a>(
        &self,
        store: &Store,
        merges: &'a [MergePlan],
        log_freed_bytes: u64,
        now: u64,
    ) -> StoreFacts<'a> {
        let version = store.version();
        let work = store.work.lock();
        let memory_bytes = version.unflushed_bytes();
        let left_over = !version.flush.is_empty() && !work.flushing;
        let flushing_bytes = if work.flushing { version.memory_bytes() - memory_bytes } else { 0 };
        // After a failure the store waits; what an interrupted flush left over is due at once.
        let waits = now < work.flush_not_before;
        let settings = store.settings();
        let by_range = settings.options.strategy.strategy().by_range();
        let rewritten = by_range.map_or(0, |by_range| by_range.rewritten(&version.shape));
        let by_range = by_range.is_some();
        let empty = version.active.is_empty() && version.waiting().next().is_none();
        let due = match () {
            () if waits || (empty && !left_over) => 0,
            () if left_over => self.budget.write_memory(),
            () => memory_bytes,
        };
        // A range, or what has not been scattered yet.
        let part = version.scattered.largest().max(version.active.bytes() as u64);
        let written = if by_range { part } else { memory_bytes };
        let survive = if self.tally.memory.get() > self.memory_low() {
            super::pipeline::surviving_share(&version, work.survived)
        } else {
            1.0
        };
        StoreFacts {
            store: store.id,
            memory_bytes: due,
            freed_bytes: if by_range && !left_over { due.min(part) } else { due },
            memory_limit: settings.options.write_memory,
            compactable_bytes: super::pipeline::compactable_bytes(store, &version, &work),
            flushing_bytes,
            flush_write_bytes: (written as f64 * survive) as u64 + rewritten,
            log_freed_bytes,
            merges,
        }
    }

    /// The store whose memory needs the log's front, and the log that only it needs from there on. O(stores log stores).
    fn log_held_alone(&self, stores: &[Arc<Store>]) -> Option<(StoreId, u64)> {
        let front = |store: &Arc<Store>| super::install::front_without_flush(&store.version());
        let mut fronts: Vec<_> = stores.iter().filter_map(|store| Some((front(store)?, store.id))).collect();
        fronts.sort_unstable();
        let (_, first) = *fronts.first()?;
        let upto = fronts.get(1).map_or(LogFileId::MAX, |(front, _)| *front);
        let files = self.log().ok()?.files();
        Some((first, files.iter().filter(|file| file.file < upto).map(|file| file.used).sum()))
    }

    pub(super) fn flush_is_asked(&self, store: &Store) -> bool {
        let asked = store.work.lock().flush_asked;
        let version = store.version();
        let oldest = version.segments().map(Segment::generation).min();
        let oldest =
            oldest.into_iter().chain((!version.active.is_empty()).then(|| version.active.generation())).min();
        oldest.is_some_and(|oldest| oldest <= asked)
    }

    /// Whether that is asked of what is written now.
    pub(super) fn flush_is_asked_of_active(&self, store: &Store) -> bool {
        let active = store.version().active.generation();
        active <= store.work.lock().flush_asked
    }

    /// See [`FlushJob::start`].
    pub(super) fn start_flush(
        self: &Arc<Self>,
        store: &Arc<Store>,
        reason: String,
        may_stay: bool,
        at: Option<&[u8]>,
    ) {
        if let Some(job) = FlushJob::start(self, store, reason, may_stay, at) {
            self.drop_join_of(store);
            self.add_job(job.id(), Urgency::Flush, Some(store.id), Job::Flush(Box::new(job)));
        }
    }

    /// Drops a join whose segments a flush has taken, so that it does not hold their memory until its next turn. One that
    /// a worker is advancing finds out by itself.
    fn drop_join_of(&self, store: &Store) {
        let mut dropped = Vec::new();
        self.jobs.list.lock().retain_mut(|slot| match &slot.job {
            Some(Job::Join(join)) if join.is_of(store) => {
                dropped.extend(slot.job.take());
                false
            }
            _ => true,
        });
        for job in dropped {
            if let Job::Join(join) = job {
                join.overtaken(self);
                join.abandon(self);
            }
        }
    }

    pub(super) fn start_merge(
        self: &Arc<Self>,
        store: &Arc<Store>,
        plan: MergePlan,
        manual: Option<Arc<Manual>>,
    ) -> bool {
        let (asked, since_ns) = (manual.is_some(), self.env.clock.monotonic_ns());
        let urgency = if plan.is_urgent() && !asked { Urgency::Level0Merge } else { Urgency::Merge };
        match MergeJob::start(self, store, plan, manual) {
            Some(job) => {
                let (id, job) = (job.id(), Some(Job::Merge(Box::new(job))));
                let store = Some(store.id);
                self.jobs.list.lock().push(Slot {
                    id,
                    urgency,
                    asked,
                    store,
                    job,
                    not_before_ns: 0,
                    since_ns,
                });
                true
            }
            None => false,
        }
    }

    fn add_job(&self, id: u32, urgency: Urgency, store: Option<StoreId>, job: Job) {
        let since_ns = self.env.clock.monotonic_ns();
        let slot = Slot { id, urgency, asked: false, store, job: Some(job), not_before_ns: 0, since_ns };
        self.jobs.list.lock().push(slot);
    }

    /// Number for the names of a job's outputs.
    pub(super) fn next_job(&self) -> u32 {
        self.next_job.fetch_add(1, Ordering::Relaxed)
    }

    /// Drops all jobs; their finished steps stay.
    pub(super) fn abandon_jobs(&self) {
        let closed = Error::new(ErrorKind::Closed, "the database was closed");
        for slot in std::mem::take(&mut *self.jobs.list.lock()) {
            match slot.job {
                Some(Job::Flush(job)) => drop(job.abandon(self, &closed)),
                Some(Job::Merge(job)) => drop(job.abandon(self, &closed)),
                Some(Job::Join(job)) => drop(job.abandon(self)),
                Some(Job::Clean(job)) => job.abandon(self, &closed, 0),
                None => {}
            }
        }
    }
}
