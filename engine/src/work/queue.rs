//! The jobs that are under way, and which of them is the most urgent.

use super::jobs::Job;
use crate::catalog::Catalog;
use crate::commit::Store;
use crate::sync::{AtomicU64, Mutex, Ordering};
use crate::types::{LogFileId, StoreId};

/// How long a worker stays with one job before it looks at the others.
pub(super) const SLICE_NS: u64 = 4_000_000;

/// A compaction that has waited so long for a worker goes before others.
const COMPACTION_WAITS_NS: u64 = 20_000_000;

/// The jobs and what they share.
#[derive(Default)]
pub(super) struct Queue {
    pub(super) list: Mutex<Vec<Slot>>,
    /// One planner at a time.
    pub(super) planning: Mutex<()>,
    /// The WAL's oldest file is not looked at before this moment (monotonic ns).
    pub(super) clean_not_before: AtomicU64,
    /// The oldest file that was found to be needed too much for cleaning below the WAL's limit.
    pub(super) front_left: AtomicU64,
}

/// A job in the queue.
pub(super) struct Slot {
    pub(super) id: u32,
    pub(super) urgency: Urgency,
    /// A compaction that was asked for. It takes no other compaction's place, as it may last for hours.
    pub(super) is_manual: bool,
    /// The store whose job it is; `None` for cleaning the WAL.
    pub(super) store: Option<StoreId>,
    /// `None` while a worker has it.
    pub(super) job: Option<Job>,
    /// It is a compaction that runs here, which rests beside readers.
    pub(super) rests: bool,
    pub(super) not_before_ns: u64,
    /// The moment from which on it could go on.
    pub(super) since_ns: u64,
}

impl Slot {
    /// A job that nobody asked for and that could go on from that moment.
    pub(super) fn new(urgency: Urgency, store: Option<StoreId>, job: Job, since_ns: u64) -> Self {
        let (id, rests) = (job.id(), job.rests());
        Self { id, urgency, is_manual: false, store, job: Some(job), rests, not_before_ns: 0, since_ns }
    }

    /// The order of jobs, the most urgent last. Of flushes the oldest comes first, as only its last step
    /// frees memory; compactions take turns. A compaction that has waited long goes before others, however
    /// urgent: else one over all data would never end under a load whose compactions of L0 keep the only
    /// worker busy, or take all that a limited rate allows.
    fn order(&self, now: u64, rested_until: u64) -> impl Ord + use<> {
        // A rest of all is no waiting.
        let waited = now.saturating_sub(self.since_ns.max(rested_until));
        let (urgency, waited) = match self.urgency {
            Urgency::Compaction | Urgency::Level0Compaction if waited > COMPACTION_WAITS_NS => {
                (Urgency::LongWaiting, waited)
            }
            Urgency::Compaction | Urgency::Level0Compaction => (self.urgency, waited),
            urgency => (urgency, 0),
        };
        (urgency, waited, std::cmp::Reverse(self.id))
    }
}

/// How urgent a job is, the least urgent first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Urgency {
    Compaction,
    Level0Compaction,
    /// A compaction that has waited long; no job is added with it.
    LongWaiting,
    MemtableCompaction,
    Clean,
    Flush,
}

impl Urgency {
    pub(super) fn is_compaction(self) -> bool {
        matches!(self, Urgency::Compaction | Urgency::Level0Compaction)
    }
}

impl Queue {
    /// Whether the WAL's oldest file is being cleaned. Flushes and cleanings are started by one planner at a
    /// time, so the answer holds until the planner is done.
    pub(super) fn is_cleaning(&self) -> bool {
        self.list.lock().iter().any(|slot| slot.urgency == Urgency::Clean)
    }

    /// Takes the most urgent job that is ready. Compactions rest together: no job needs a turn to find that
    /// out.
    pub(super) fn take(&self, now: u64, resting: bool, rested_until: u64) -> Option<(u32, Urgency, Job)> {
        let mut list = self.list.lock();
        let best = list
            .iter_mut()
            .filter(|slot| slot.job.is_some() && slot.not_before_ns <= now)
            .filter(|slot| !(resting && slot.rests))
            .max_by_key(|slot| slot.order(now, rested_until))?;
        Some((best.id, best.urgency, best.job.take()?))
    }

    /// Puts a job back that was not advanced.
    pub(super) fn give_back(&self, id: u32, job: Job) {
        self.put_back(id, job, 0, None);
    }

    /// Puts a job back. It goes on not before `not_before_ns`; `since_ns` is given where the moment from
    /// which on it could go on has changed.
    pub(super) fn put_back(&self, id: u32, job: Job, not_before_ns: u64, since_ns: Option<u64>) {
        if let Some(slot) = self.list.lock().iter_mut().find(|slot| slot.id == id) {
            slot.rests = job.rests();
            slot.job = Some(job);
            slot.not_before_ns = not_before_ns;
            slot.since_ns = since_ns.unwrap_or(slot.since_ns);
        }
    }

    /// Drops a compaction in memory whose memtables a flush has taken, so that it does not hold them until
    /// its next turn. One that a worker is advancing finds out by itself.
    pub(super) fn drop_join_of(&self, catalog: &Catalog, store: &Store) {
        let is_of =
            |slot: &mut Slot| matches!(&slot.job, Some(Job::MemtableCompaction(job)) if job.is_of(store));
        let dropped: Vec<Slot> = self.list.lock().extract_if(.., is_of).collect();
        for slot in dropped {
            if let Some(Job::MemtableCompaction(join)) = slot.job {
                join.overtaken(catalog);
                join.abandon(catalog);
            }
        }
    }

    /// Cleaning comes again after that moment; if a file was left it is not looked at again below the WAL's
    /// limit.
    pub(super) fn pause_cleaning(&self, until_ns: u64, left: Option<LogFileId>) {
        self.clean_not_before.store(until_ns, Ordering::Relaxed);
        if let Some(file) = left {
            self.front_left.store(file.0, Ordering::Relaxed);
        }
    }
}
