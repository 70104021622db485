//! What a database has logged and what of it is in the stream: frames of the WAL and edits of the manifest,
//! in the one order in which they were queued.
//!
//! The naive way, a put for each frame, would cost a request for each write and let a writer wait for all
//! before it. Here frames gather while puts are under way: [`Outbox::ship`] puts all that is queued as one
//! entry, unless two puts are in flight already; then it waits, and what was queued meanwhile goes with the
//! next. The caller's thread makes the put and holds no lock. Entries get their places under the lock, so
//! their order is that of the queue; they are acknowledged in that order ([`SharedLog::put`]). Queueing never
//! waits for a put, so it may be done with the write path's lock held.
//!
//! Whoever reads the stream makes a request for each entry, however short. So where its length is bounded, an
//! entry counts as a 4,096th of the bound at least: live entries are bounded in bytes and in number.
//!
//! The writers of an entry that has landed write again at once, but not all at the same moment. If the first
//! of them put its frame alone, the others would wait for the next put after it. So while another put is in
//! flight its writer waits until as many frames have come as the entry had, for an eighth of a put at most.
//!
//! With hundreds of writers what is dear is to wake them: of those that wait, each entry that lands wakes its
//! own, and one more that puts the next.
//!
//! A put that fails is the end: its outcome is unknown, so nothing more is put, and every later call fails.

use super::item::Item;
use super::object::{Entry, PAYLOAD_BYTES_MAX, Start};
use super::place::Place;
use super::shared_log::SharedLog;
use crate::error::{Error, ErrorKind, Result};
use crate::storage::Clock;
use crate::sync::{Condvar, Mutex, MutexGuard};
use crate::types::{LogFileId, LogPosition, SeqNo};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// The most puts in flight.
const IN_FLIGHT_MAX: usize = 2;
/// The least and the most time that an entry gathers frames, and its share of a put's.
const GATHER_NS: (u64, u64) = (200_000, 20_000_000);
const GATHER_SHARE: u64 = 8;
/// What is queued beyond this goes into another entry.
const PAYLOAD_BYTES: usize = 16 << 20;
/// The most live entries, about.
const ENTRIES_MAX: u64 = 4_096;
/// Bytes of the longest frame, which must fit an entry.
pub(crate) const FRAME_BYTES_MAX: u64 = PAYLOAD_BYTES_MAX as u64 - 64;

/// See the page above.
pub(crate) struct Outbox {
    log: Arc<dyn SharedLog>,
    /// The bound of the WAL's bytes: after so many the owner ends its incarnation, so that its entries can be
    /// collected.
    wal_limit: u64,
    clock: Arc<dyn Clock>,
    queue: Mutex<Queue>,
    /// Notified when as much has been queued as is waited for.
    gathered: Condvar,
    /// An entry landed, a new incarnation began, or no more is put; for those that wait for no one entry.
    moved: Condvar,
}

// Over 15 fields: one lock orders all of it.
struct Queue {
    waiting: VecDeque<Batch>,
    /// The number of items that were ever queued, and that are in the stream.
    queued: u64,
    shared: u64,
    /// The number of items that were given a place.
    sent: u64,
    /// Up to where the WAL is in the stream, and up to where it was given a place.
    wal_shared: LogPosition,
    wal_sent: LogPosition,
    /// The entries under way: up to which item they go, and who is to be told.
    under_way: VecDeque<(u64, Arc<Condvar>)>,
    /// Whether a thread waits for more to be queued before it puts an entry.
    gathers: bool,
    /// How many items the entry had that landed last, and how long its put took.
    landed: (u64, u64),
    /// The newest place known to be there.
    at: Place,
    /// The entries in which WAL files begin.
    files: BTreeMap<LogFileId, Begun>,
    /// How many entries there were.
    entries: u64,
    /// From where a reader starts, if the next entry is to say so.
    start: Option<Start>,
    /// Bytes put, as the bounds count them, in this incarnation and since the last checkpoint.
    bytes: u64,
    since_checkpoint: u64,
    /// Whether an incarnation is being ended and the next begun: nothing is put meanwhile.
    rolls: bool,
    failed: Option<Error>,
}

/// The entry in which a WAL file begins.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Begun {
    pub(crate) place: Place,
    /// How many entries a reader of that file finds before it.
    pub(crate) entries: u64,
}

/// Items that go into one entry.
#[derive(Default)]
struct Batch {
    payload: Vec<u8>,
    /// The number of items queued up to its end.
    upto: u64,
    /// The WAL's end then.
    wal_end: Option<LogPosition>,
    last_seq: SeqNo,
    /// WAL files that begin in it.
    begun: Vec<LogFileId>,
    /// Notified when its entry has landed, and, of those who wait for that, one when it can be put.
    landed: Arc<Condvar>,
}

impl std::fmt::Debug for Outbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Outbox").field("log", &self.log).finish_non_exhaustive()
    }
}

impl Outbox {
    /// The outbox of an owner that has put nothing since its claim, which is at `claim`. WAL files begin in
    /// `files`, among so many entries.
    pub(crate) fn new(
        log: Arc<dyn SharedLog>,
        claim: Place,
        (files, entries): (BTreeMap<LogFileId, Begun>, u64),
        wal_limit: u64,
        clock: &Arc<dyn Clock>,
    ) -> Self {
        let queue = Queue {
            waiting: VecDeque::new(),
            queued: 0,
            shared: 0,
            sent: 0,
            wal_shared: LogPosition::default(),
            wal_sent: LogPosition::default(),
            under_way: VecDeque::new(),
            gathers: false,
            landed: (0, 0),
            at: claim,
            files,
            entries,
            start: None,
            bytes: 0,
            since_checkpoint: 0,
            rolls: false,
            failed: None,
        };
        let (queue, clock) = (Mutex::new(queue), clock.clone());
        Self { log, wal_limit, clock, queue, gathered: Condvar::new(), moved: Condvar::new() }
    }

    /// Queues bytes of a WAL file: its header, where `at` is its beginning, or a frame with writes up to
    /// `last_seq`.
    pub(crate) fn wal(&self, at: LogPosition, bytes: &[u8], last_seq: SeqNo) {
        let mut queue = self.queue.lock();
        let batch = queue.add(&Item::Wal(at, bytes), bytes.len());
        batch.wal_end = Some(LogPosition { offset: at.offset + bytes.len() as u64, ..at });
        batch.last_seq = batch.last_seq.max(last_seq);
        if at.offset == 0 {
            batch.begun.push(at.file);
        }
        if queue.gathers && queue.has_gathered() {
            self.gathered.notify_all();
        }
    }

    /// Queues an encoded edit of the manifest.
    pub(crate) fn edit(&self, edit: &[u8]) {
        self.queue.lock().add(&Item::Edit(edit), edit.len());
    }

    /// Brings all that is queued into the stream; returns up to where the WAL is there, if anything of it
    /// was queued.
    ///
    /// # Errors
    /// `Busy` if another process owns the stream now. Whatever it is, no later call succeeds.
    pub(crate) fn ship(&self) -> Result<LogPosition> {
        let mut queue = self.queue.lock();
        let goal = queue.queued;
        while queue.shared < goal {
            // Items that were given a place may have landed, whatever became of later ones.
            if queue.sent < goal || queue.under_way.is_empty() {
                queue.check()?;
            }
            // Whose items are under way waits for them alone.
            if !queue.can_put() || queue.sent >= goal {
                match queue.landing_of(goal) {
                    Some(landed) => landed.wait(&mut queue),
                    // Its own failed, and an earlier one is under way.
                    None => self.moved.wait(&mut queue),
                }
                continue;
            }
            if !queue.under_way.is_empty() && !queue.has_gathered() {
                queue = self.gather(queue);
                if queue.rolls || queue.failed.is_some() {
                    continue;
                }
            }
            let batch = queue.waiting.pop_front().unwrap_or_default();
            queue = self.put(queue, batch);
        }
        Ok(queue.wal_shared)
    }

    /// Brings all that is queued into the stream, and an entry though nothing is. Where it succeeds, nobody
    /// else had taken the database over when this call began.
    ///
    /// # Errors
    /// As [`Outbox::ship`].
    pub(crate) fn ship_something(&self) -> Result<()> {
        self.queue.lock().add_nothing();
        self.ship().map(|_| ())
    }

    /// Waits for more to be queued, while another put is in flight. Models, where nothing times out, may wait
    /// until that has landed.
    fn gather<'a>(&'a self, mut queue: MutexGuard<'a, Queue>) -> MutexGuard<'a, Queue> {
        let ns = (queue.landed.1 / GATHER_SHARE).clamp(GATHER_NS.0, GATHER_NS.1);
        queue.gathers = true;
        self.gathered.wait_for(&mut queue, Duration::from_nanos(ns));
        queue.gathers = false;
        queue
    }

    /// Puts a batch as the next entry.
    fn put<'a>(&'a self, mut queue: MutexGuard<'a, Queue>, batch: Batch) -> MutexGuard<'a, Queue> {
        let Batch { payload, upto, wal_end, last_seq, begun, landed } = batch;
        let weight = (payload.len() as u64).max(self.entry_bytes());
        queue.bytes += weight;
        queue.since_checkpoint += weight;
        let entry = Entry { numbers_upto: last_seq.0, start: queue.start.take(), payload };
        let place = match self.log.place(&entry) {
            Ok(place) => place,
            Err(e) => {
                queue.failed.get_or_insert(e);
                landed.notify_all();
                self.tell(&queue);
                return queue;
            }
        };
        let entries = queue.entries;
        queue.files.extend(begun.into_iter().map(|file| (file, Begun { place, entries })));
        queue.entries += 1;
        queue.under_way.push_back((upto, landed));
        queue.wal_sent = wal_end.unwrap_or(queue.wal_sent);
        let items = upto - queue.sent;
        queue.sent = upto;
        let (wal_end, began_ns) = (queue.wal_sent, self.clock.monotonic_ns());
        let mut landing = Landing { outbox: self, place, upto, items, wal_end, began_ns, outcome: None };
        // If yet another can be put, somebody is to put it.
        self.tell(&queue);
        drop(queue);
        landing.outcome = Some(self.log.put(place, entry));
        drop(landing);
        self.queue.lock()
    }

    /// Says in the next entry that readers start from a checkpoint of the manifest, with its `payload`, which
    /// is as of now and needs the WAL from file `first` on. No edit may be queued meanwhile. Returns once
    /// that is acknowledged, in a new incarnation if the present one is long.
    ///
    /// # Errors
    /// As [`Outbox::ship`].
    pub(crate) fn checkpoint(&self, payload: &[u8], first: LogFileId) -> Result<Start> {
        let (place, start) = {
            let mut queue = self.queue.lock();
            queue.check()?;
            // Those before are needed no more.
            queue.files = queue.files.split_off(&first);
            // A file that begins in no entry known to be there begins in a later one.
            let place = queue.at;
            let begun = queue.files.values().next().filter(|_| !planted!(Bug::ReplayFromCheckpoint));
            let first = begun.map_or(place.next(), |first| first.place.min(place.next()));
            (place, Start { checkpoint: Some(place), first })
        };
        self.log.put_checkpoint(place, payload)?;
        let rolls = {
            let mut queue = self.queue.lock();
            queue.start = Some(start);
            queue.add_nothing();
            queue.since_checkpoint = 0;
            queue.bytes >= self.wal_limit
        };
        self.ship()?;
        if rolls {
            self.roll()?;
        }
        Ok(start)
    }

    /// Ends the incarnation and begins the next.
    fn roll(&self) -> Result<()> {
        let mut queue = self.queue.lock();
        while queue.rolls {
            self.moved.wait(&mut queue);
        }
        queue.rolls = true;
        while !queue.under_way.is_empty() {
            self.moved.wait(&mut queue);
        }
        let rolled = queue.check();
        drop(queue);
        let mut rolling = Rolling { outbox: self, outcome: None };
        let rolled = rolled.and_then(|()| self.log.roll());
        rolling.outcome = Some(rolled.clone());
        drop(rolling);
        rolled.map(|_| ())
    }

    /// Deletes what no reader needs any more; returns how many objects.
    pub(crate) fn collect(&self, start: Start) -> Result<u64> {
        self.queue.lock().check()?;
        let checkpoints = match start.checkpoint {
            Some(place) => self.log.delete_checkpoints(place)?,
            None => 0,
        };
        Ok(checkpoints + self.log.collect(start.replay_from())?)
    }

    /// Wakes who has something to do now: one for each entry that waits, or all, if no more is put.
    fn tell(&self, queue: &Queue) {
        if queue.failed.is_some() {
            queue.waiting.iter().for_each(|batch| _ = batch.landed.notify_all());
            queue.under_way.iter().for_each(|(_, landed)| _ = landed.notify_all());
            self.moved.notify_all();
        } else if queue.can_put() {
            // Nobody may wait for the first of them: frames that need no acknowledgement.
            queue.waiting.iter().for_each(|batch| _ = batch.landed.notify_one());
        }
    }

    /// The least that an entry counts.
    fn entry_bytes(&self) -> u64 {
        (self.wal_limit / ENTRIES_MAX).max(1)
    }

    /// What the entries count, by their number, from the one on in which that WAL file begins.
    pub(crate) fn weight_from(&self, file: LogFileId) -> u64 {
        let queue = self.queue.lock();
        let before = queue.files.range(file..).next().map_or(queue.entries, |(_, begun)| begun.entries);
        (queue.entries - before) * self.entry_bytes()
    }

    /// Whether the newest WAL file is spread over so many entries that the next should begin.
    pub(crate) fn is_spread(&self) -> bool {
        let queue = self.queue.lock();
        let newest = queue.files.values().next_back();
        newest.is_some_and(|begun| queue.entries - begun.entries > ENTRIES_MAX / 4)
    }

    /// Whether so much was put since the last checkpoint that readers of the stream should start later.
    pub(crate) fn is_far(&self) -> bool {
        self.queue.lock().since_checkpoint > self.wal_limit / 4
    }

    /// An error if no more is put.
    pub(crate) fn check(&self) -> Result<()> {
        self.queue.lock().check()
    }
}

impl Queue {
    /// Notes why no more is put. That another owns the stream is known for the entries behind its seal; what
    /// leaves the outcome of one open weighs more.
    fn fail(&mut self, why: Error) {
        let is_sure = |e: &Error| e.kind() == ErrorKind::Busy;
        if self.failed.as_ref().is_none_or(|before| is_sure(before) && !is_sure(&why)) {
            self.failed = Some(why);
        }
    }

    fn check(&self) -> Result<()> {
        self.failed.as_ref().map_or(Ok(()), |e| Err(e.clone()))
    }

    /// Whether another entry may be put.
    fn can_put(&self) -> bool {
        !self.rolls && !self.gathers && self.under_way.len() < IN_FLIGHT_MAX
    }

    /// The signal that the entry with that item has landed.
    fn landing_of(&self, item: u64) -> Option<Arc<Condvar>> {
        let under_way = self.under_way.iter().map(|(upto, landed)| (*upto, landed));
        let waiting = self.waiting.iter().map(|batch| (batch.upto, &batch.landed));
        let mut all = under_way.chain(waiting);
        // Where its entry failed, a later one does as well: all are told.
        all.find(|(upto, _)| *upto >= item).map(|(_, landed)| landed.clone())
    }

    /// Whether as much waits as the last entry had.
    fn has_gathered(&self) -> bool {
        self.queued - self.sent >= self.landed.0
    }

    fn add(&mut self, item: &Item<'_>, bytes: usize) -> &mut Batch {
        let is_full =
            |batch: &Batch| batch.payload.len() + bytes > PAYLOAD_BYTES && !batch.payload.is_empty();
        if self.waiting.back().is_none_or(is_full) {
            self.waiting.push_back(Batch::default());
        }
        self.queued += 1;
        let last = self.waiting.len() - 1;
        let batch = &mut self.waiting[last];
        item.put(&mut batch.payload);
        batch.upto = self.queued;
        batch
    }

    /// Queues an entry though it may have no item.
    fn add_nothing(&mut self) {
        self.queued += 1;
        match self.waiting.back_mut() {
            Some(batch) => batch.upto = self.queued,
            None => self.waiting.push_back(Batch { upto: self.queued, ..Batch::default() }),
        }
    }
}

/// The end of an incarnation under way. Where its thread panics, nobody waits for it for ever.
struct Rolling<'a> {
    outbox: &'a Outbox,
    outcome: Option<Result<Place>>,
}

impl Drop for Rolling<'_> {
    fn drop(&mut self) {
        let mut queue = self.outbox.queue.lock();
        queue.rolls = false;
        match self.outcome.take().unwrap_or_else(|| Err(panicked())) {
            Ok(claim) => (queue.at, queue.bytes) = (claim, 0),
            Err(e) => _ = queue.failed.get_or_insert(e),
        }
        self.outbox.moved.notify_all();
        self.outbox.tell(&queue);
    }
}

fn panicked() -> Error {
    Error::new(ErrorKind::Poisoned, "a put panicked (see standard error)")
}

/// A put in flight. Where its thread panics, nobody waits for it for ever.
struct Landing<'a> {
    outbox: &'a Outbox,
    place: Place,
    /// All items and all of the WAL up to here are in the stream once it has landed.
    upto: u64,
    wal_end: LogPosition,
    items: u64,
    began_ns: u64,
    outcome: Option<Result<()>>,
}

impl Drop for Landing<'_> {
    fn drop(&mut self) {
        let ns = self.outbox.clock.monotonic_ns().saturating_sub(self.began_ns);
        let mut queue = self.outbox.queue.lock();
        queue.landed = (self.items, ns);
        match self.outcome.take().unwrap_or_else(|| Err(panicked())) {
            // All before it are there, too.
            Ok(()) => {
                queue.at = queue.at.max(self.place);
                queue.shared = queue.shared.max(self.upto);
                queue.wal_shared = queue.wal_shared.max(self.wal_end);
            }
            Err(e) => queue.fail(e),
        }
        if let Some(at) = queue.under_way.iter().position(|(upto, _)| *upto == self.upto)
            && let Some((_, landed)) = queue.under_way.remove(at)
        {
            landed.notify_all();
        }
        self.outbox.gathered.notify_all();
        self.outbox.moved.notify_all();
        self.outbox.tell(&queue);
    }
}

#[cfg(all(test, models))]
#[path = "outbox_model.rs"]
mod model;
