//! The write path, and the order it keeps.
//!
//! The naive write: give the batch its sequence numbers, append it to the WAL, sync if asked, insert it into
//! memory, make it visible. Under one lock that is correct, but an fdatasync under the lock would make
//! everybody wait and give each `Sync` writer a sync of its own. So there are two stages with a ticket
//! between them:
//!
//! 1. *Log stage*, under `stage`: take sequence numbers and a ticket, append one frame. Some 100 ns.
//! 2. If `Sync` was asked: [`crate::wal::Wal::sync`], which serves everyone who arrived before it began.
//! 3. *Apply stage*, in ticket order (`turns`): insert into active memtables, publish the sequence number.
//!    For a writer that would wait long for its turn, the thread that had the turn before does this.
//!
//! A lone writer goes straight through two uncontended locks. Under contention appends of one writer overlap
//! inserts of another, and `Sync` writers share their syncs: that is the group commit. A batch becomes
//! visible only after its own sync, and never before an older one.
//!
//! A thread that needs everything logged so far in memory (to freeze, or for a conditional write) keeps
//! `stage` locked and waits for the last ticket: nothing new is logged meanwhile, so a record's generation is
//! that of the memtable its cells are inserted into (invariants I1, I4). A conditional write of a shared
//! database waits for those alone that touch what it rests on, and not with `stage` locked (`in_flight`).
//!
//! A batch whose sync failed is not inserted. Its outcome is unknown until the next open; the WAL is
//! poisoned.

use super::Commit;
use super::in_flight::InFlight;
use super::store::Store;
use super::turns::{Patience, Turns, spin_or_yield};
use crate::context::read_only_error;
use crate::error::{Error, ErrorKind, Result};
use crate::options::Durability;
use crate::sync::{Mutex, MutexGuard};
use crate::types::{
    CellRef, KEY_BYTES_MAX, KeyRange, Kind, RangeTombstone, SeqNo, StoreId, Timestamp, VALUE_BYTES_MAX,
};
use crate::version::Version;
use crate::wal::{Appended, Appender, FrameEncoder};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

/// One operation of a batch.
pub(crate) struct Op<'a> {
    store: &'a Arc<Store>,
    action: Action<'a>,
    /// Whether the cell stores its time of writing: read once, so that WAL and memory agree though the
    /// family's options may change meanwhile.
    keeps_written: bool,
    /// Whether the family has options that this build does not.
    needs_papers: bool,
}

pub(crate) enum Action<'a> {
    Cell { kind: Kind, key: &'a [u8], timestamp: Timestamp, value: &'a [u8] },
    DeleteRange { range: &'a KeyRange, from: Timestamp, to: Timestamp },
}

impl<'a> Op<'a> {
    pub(crate) fn new(store: &'a Arc<Store>, action: Action<'a>) -> Self {
        let settings = store.settings();
        let needs_papers = settings.papers_missing.is_some();
        Self { store, action, keeps_written: settings.keeps_written, needs_papers }
    }

    pub(crate) fn deletes(&self) -> bool {
        matches!(&self.action, Action::DeleteRange { .. } | Action::Cell { kind: Kind::Tombstone, .. })
    }

    pub(crate) fn deletes_range(&self) -> bool {
        matches!(self.action, Action::DeleteRange { .. })
    }

    fn first_key(&self) -> &[u8] {
        match &self.action {
            Action::Cell { key, .. } => key,
            Action::DeleteRange { range, .. } => &range.start,
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        match &self.action {
            Action::Cell { key, value, .. } => key.len() + value.len(),
            Action::DeleteRange { range, .. } => range.start.len() + range.end.as_ref().map_or(0, Vec::len),
        }
    }

    /// Refuses keys that are not the store's. (A range delete was cut to the store's keys when it was asked
    /// for.)
    #[inline]
    fn check_bounds(&self, version: &Version) -> Result<()> {
        match &self.action {
            Action::Cell { key, .. } => version.check_key(key),
            Action::DeleteRange { range, .. } => version.check_range(range),
        }
    }

    fn check(&self) -> Result<()> {
        self.store.check_not_dropped()?;
        if self.needs_papers {
            self.store.settings().check_papers()?;
        }
        let (key_bytes, limit) = match &self.action {
            Action::Cell { key, .. } => (key.len(), KEY_BYTES_MAX),
            // A range may begin or end behind the longest key.
            Action::DeleteRange { range, .. } => {
                (range.start.len().max(range.end.as_ref().map_or(0, Vec::len)), KEY_BYTES_MAX + 1)
            }
        };
        if key_bytes > limit {
            return Err(Error::invalid(format!("key has {key_bytes} bytes, the limit is {KEY_BYTES_MAX}")));
        }
        let names_times = match self.action {
            Action::Cell { timestamp, .. } => timestamp != Timestamp::ZERO,
            Action::DeleteRange { from, to, .. } => (from, to) != (Timestamp::ZERO, Timestamp::MAX),
        };
        if names_times && !self.store.settings().explicit {
            return Err(Error::invalid(format!("family {} keeps no timestamps", self.store.name)));
        }
        if let Action::Cell { value, kind, .. } = &self.action {
            if value.len() > VALUE_BYTES_MAX {
                let message = format!("value has {} bytes, the limit is {VALUE_BYTES_MAX}", value.len());
                return Err(Error::invalid(message));
            }
            if *kind == Kind::Operand {
                let settings = self.store.settings();
                if let Some(missing) = &settings.read.operator_missing {
                    return Err(missing.clone());
                }
                if settings.read.operator.is_none() {
                    return Err(Error::invalid(format!("family {} has no merge operator", self.store.name)));
                }
            }
        }
        Ok(())
    }
}

/// The condition of a conditional write. It is judged from SSTables and memory before the log stage, so that
/// nobody waits for a read. In the log stage only writes made meanwhile are checked, which are in memory.
pub(crate) trait Depends {
    /// Judges the condition as of now; the write fails with its error.
    fn judge(&self) -> Result<()>;
    /// Whether anything that the condition depends on may have been written after `since`. Reads no file; a
    /// `true` may be wrong.
    fn may_have_changed(&self, since: SeqNo) -> bool;
    /// The newest write in flight that may change what the condition depends on.
    fn newest_in_flight(&self, in_flight: &InFlight) -> Option<u64>;
}

/// How often a condition is judged while other writers go on, before they have to wait for it.
const JUDGED_OUTSIDE: usize = 3;
/// How often after that in a shared database, by one such writer at a time.
const JUDGED_ALONE: usize = 16;

/// About the bytes of a cell in memory beside key and value.
pub(crate) const CELL_BYTES: usize = 24;

/// The number of operations of a batch whose memory is prefetched: more would push each other out of the
/// processor's caches.
const FETCHED_AHEAD: usize = 64;

/// The stages a write goes through.
pub(crate) struct Stages {
    pub(super) stage: Mutex<LogStage>,
    turns: Turns,
    /// Held by the conditional writer of a shared database that others have overtaken several times.
    overtaken: Mutex<()>,
}

pub(crate) struct LogStage {
    pub(super) appender: Appender,
    pub(super) frame: FrameEncoder,
    pub(super) next_seq: SeqNo,
    next_ticket: u64,
    /// The store of the last operation logged.
    last_store: Option<StoreId>,
    /// The keys and ranges that writes of a shared database touch; empty in others.
    in_flight: InFlight,
}

impl Stages {
    pub(crate) fn new(appender: Appender, next_seq: SeqNo) -> Self {
        let stage = LogStage {
            appender,
            frame: FrameEncoder::new(),
            next_seq,
            next_ticket: 0,
            last_store: None,
            in_flight: InFlight::default(),
        };
        Self { stage: Mutex::new(stage), turns: Turns::new(), overtaken: Mutex::new(()) }
    }

    /// Locks the stage, for a writer. The lock is held for some microseconds, so a thread that finds it taken
    /// tries again before it sleeps.
    fn lock_stage(&self, patience: Patience) -> MutexGuard<'_, LogStage> {
        spin_or_yield(patience, || self.stage.try_lock()).unwrap_or_else(|| self.stage.lock())
    }

    /// Waits until everything logged so far is in memory.
    pub(super) fn wait_applied(&self, stage: &LogStage) {
        self.turns.wait_all(stage.next_ticket);
    }
}

impl Commit {
    pub(super) fn stages(&self) -> Result<&Stages> {
        self.stages.as_ref().ok_or_else(read_only_error)
    }

    /// Writes the operations, all or none; returns the sequence number of the last. They are written only if
    /// `depends` holds, judged with everything older in memory and nothing newer logged; else its error is
    /// returned.
    ///
    /// With `makes_room` it does not wait for room in memory, and a small WAL file will do.
    pub(crate) fn write(
        &self,
        ops: &[Op<'_>],
        durability: Durability,
        depends: Option<&dyn Depends>,
        makes_room: bool,
    ) -> Result<SeqNo> {
        // Batches come straight here; after a failed sync of the manifest the WAL itself would still take
        // them.
        self.cx.check_writable()?;
        let stages = self.stages()?;
        let bytes = self.check_batch(ops)?;
        prefetch(ops);
        if !makes_room {
            let fullest = || ops.iter().map(|op| &**op.store).max_by_key(|store| store.level0_over());
            self.throttle(bytes, &fullest)?;
        }
        let wall_us = self.cx.env.clock.wall_us();

        // A shared database has no weaker promise.
        let syncs = durability == Durability::Sync || self.wal()?.is_shared();
        let patience = if syncs { Patience::Short } else { Patience::Long };
        let mut stage = self.lock_stage_when_open(stages, ops, depends, patience)?;
        if ops.is_empty() {
            drop(stage);
            return Ok(self.snapshots.visible());
        }
        let first = stage.next_seq;
        stage.appender.take_small_files(makes_room);
        let logged = self.log_ops(&mut stage, ops, wall_us);
        stage.appender.take_small_files(false);
        logged?;
        let last = SeqNo(first.0 + ops.len() as u64 - 1);
        let ticket = stage.next_ticket;
        stage.next_seq = last.next();
        stage.next_ticket += 1;
        if self.wal()?.is_shared() {
            stage.in_flight.forget_before(stages.turns.now());
            for op in ops {
                match &op.action {
                    Action::Cell { key, .. } => stage.in_flight.add_key(ticket, op.store.id, key),
                    Action::DeleteRange { range, .. } => {
                        stage.in_flight.add_range(ticket, op.store.id, range);
                    }
                }
            }
        }
        drop(stage);

        let acked_early = planted!(Bug::AcknowledgeBeforeSync);
        let synced = match syncs {
            true if !acked_early && !planted!(Bug::SkipWalSync) => self.wal()?.sync().map(|_| ()),
            _ => Ok(()),
        };
        kill_point!("write-logged-not-applied");
        let applied = stages.turns.run(ticket, patience, || self.apply(&synced, ops, last, wall_us));
        kill_point!("write-applied-not-acknowledged");
        let flush_is_due = applied.unwrap_or_else(|panic| resume_unwind(panic))?;
        self.cx.metrics.writes.add(ops.len() as u64);
        self.cx.metrics.user_bytes.add(bytes);
        for op in ops {
            self.freeze_if_full(op.store);
        }
        if flush_is_due {
            // If memory is spread over many families, none of them may be full.
            self.cx.scheduler.notify();
        }
        Ok(last)
    }

    /// Whether a write was logged that is not visible yet, or is just being logged.
    pub(crate) fn has_writes_in_flight(&self) -> bool {
        let Some(stages) = &self.stages else { return false };
        let stage = stages.stage.try_lock();
        stage.is_none_or(|stage| SeqNo(stage.next_seq.0 - 1) > self.snapshots.visible())
    }

    /// Bytes of the keys and values, if the batch is within all limits.
    #[inline]
    fn check_batch(&self, ops: &[Op<'_>]) -> Result<u64> {
        let mut bytes = 0;
        for op in ops {
            op.check()?;
            bytes += op.bytes() as u64;
        }
        let logged = bytes + 32 * ops.len() as u64;
        let limit = self.cx.settings.options.batch_bytes_max(self.cx.settings.write_memory());
        let largest = ops.iter().map(Op::bytes).max().unwrap_or(0) as u64;
        // A larger value is allowed alone, so it is allowed with others.
        if logged > limit.saturating_add(largest) {
            let message = format!("batch has {bytes} bytes, the limit is {limit} and one value");
            return Err(Error::invalid(message));
        }
        Ok(bytes)
    }

    /// Locks the log stage once no store of the batch makes its writers wait and the write's condition holds.
    #[inline]
    fn lock_stage_when_open<'c>(
        &self,
        stages: &'c Stages,
        ops: &[Op<'_>],
        depends: Option<&dyn Depends>,
        patience: Patience,
    ) -> Result<MutexGuard<'c, LogStage>> {
        let is_held = || ops.iter().any(|op| op.store.is_held());
        let stage = loop {
            let stage = match depends {
                None => stages.lock_stage(patience),
                Some(depends) => self.lock_stage_if(stages, depends, patience)?,
            };
            if !is_held() {
                break stage;
            }
            drop(stage);
            self.cx.scheduler.wait(&mut || !is_held() || self.cx.check_writable().is_err());
        };
        // Under the stage's lock: closing and dropping a family wait for it after they have said so.
        self.cx.check_writable()?;
        for op in ops {
            op.store.check_takes_writes()?;
        }
        Ok(stage)
    }

    /// Locks the log stage with a write's condition found to hold there.
    fn lock_stage_if<'c>(
        &self,
        stages: &'c Stages,
        depends: &dyn Depends,
        patience: Patience,
    ) -> Result<MutexGuard<'c, LogStage>> {
        let is_shared = self.wal()?.is_shared();
        let mut overtaken = None;
        for n in 0..JUDGED_OUTSIDE + if is_shared { JUDGED_ALONE } else { 0 } {
            if n == JUDGED_OUTSIDE {
                overtaken = Some(stages.overtaken.lock());
            }
            let judged_at = self.snapshots.visible();
            depends.judge()?;
            let mut stage = stages.lock_stage(patience);
            if is_shared {
                // What comes into memory from here on counts as in flight.
                stage.in_flight.forget_before(stages.turns.now());
                if let Some(ticket) = depends.newest_in_flight(&stage.in_flight) {
                    drop(stage);
                    stages.turns.wait_for(ticket);
                    self.cx.check_writable()?;
                    continue;
                }
            } else {
                stages.wait_applied(&stage);
            }
            let is_newest = SeqNo(stage.next_seq.0 - 1) == judged_at;
            if is_newest || planted!(Bug::JudgeOutsideAlone) || !depends.may_have_changed(judged_at) {
                return Ok(stage);
            }
        }
        drop(overtaken);
        // Others write to the same keys all the time: now they wait.
        let stage = stages.lock_stage(patience);
        stages.wait_applied(&stage);
        depends.judge()?;
        Ok(stage)
    }

    fn log_ops(&self, stage: &mut LogStage, ops: &[Op<'_>], wall_us: u64) -> Result<()> {
        let LogStage { appender, frame, next_seq, last_store, .. } = stage;
        frame.begin(*next_seq, wall_us);
        let mut part = None;
        for op in ops {
            if part.as_ref().is_none_or(|(store, _)| *store != op.store.id) {
                let version = op.store.version();
                frame.part(op.store.id, version.memory.active.generation());
                version.active().prefetch_for_insert(op.bytes() + CELL_BYTES);
                if last_store.replace(op.store.id) != Some(op.store.id) {
                    version.active().prefetch_leaf(op.first_key());
                }
                part = Some((op.store.id, version));
            }
            if let Some((_, version)) = &part {
                op.check_bounds(version)?;
            }
            let _seq = match &op.action {
                Action::Cell { .. } => frame.cell(&cell_of(op, SeqNo::ZERO, wall_us)),
                Action::DeleteRange { range, from, to } => {
                    let (range, seq) = ((*range).clone(), SeqNo::ZERO);
                    frame.range_tombstone(&RangeTombstone { range, from: *from, to: *to, seq })
                }
            };
        }
        let at = self.append(appender, frame)?;
        let mut fed = None;
        for op in ops.iter().rev() {
            if fed == Some(op.store.id) {
                continue;
            }
            // The stage is locked, so no active memtable has been frozen since the frame was begun.
            let version = match part.take() {
                Some((store, version)) if store == op.store.id => version,
                _ => op.store.version(),
            };
            version.memory.active.fed_by(at.start.file);
            if op.store.front().is_none() {
                self.tally.enter_front(op.store, at.start.file);
            }
            fed = Some(op.store.id);
        }
        Ok(())
    }

    pub(super) fn append(&self, appender: &mut Appender, frame: &mut FrameEncoder) -> Result<Appended> {
        let appended = appender.append(frame).inspect_err(|_| {
            // A failure to reserve a file does not poison the WAL.
            if let Err(poison) = self.wal().and_then(|wal| wal.check()) {
                self.cx.poison(&poison);
            }
        })?;
        if appended.ends_piece() {
            // The background writes it back.
            self.cx.scheduler.notify();
        }
        Ok(appended)
    }

    /// Inserts a logged batch into memory and makes it visible; called in its turn, by whichever thread has
    /// that. Returns whether memory has passed the mark at which flushing begins, or the panic, which is for
    /// the writer.
    fn apply(
        &self,
        synced: &Result<()>,
        ops: &[Op<'_>],
        last: SeqNo,
        wall_us: u64,
    ) -> std::thread::Result<Result<bool>> {
        if let Err(why) = synced.as_ref().map_err(Error::clone).and_then(|()| self.cx.check_not_poisoned()) {
            // Before the turn ends, so that no later write becomes visible.
            self.cx.poison(&why);
            return Ok(Err(why));
        }
        let first = SeqNo(last.0 + 1 - ops.len() as u64);
        let applied = catch_unwind(AssertUnwindSafe(|| self.apply_ops(ops, first, wall_us)));
        match &applied {
            Ok(_) => self.snapshots.publish(last),
            // A panic is a bug: nobody may see a part of the batch.
            Err(_) => {
                self.cx.poison(&Error::new(ErrorKind::Poisoned, "a write panicked (see standard error)"))
            }
        }
        applied.map(Ok)
    }

    /// Inserts the operations; whether memory has passed the mark at which flushing begins.
    fn apply_ops(&self, ops: &[Op<'_>], first: SeqNo, wall_us: u64) -> bool {
        let mut is_due = false;
        for (i, op) in ops.iter().enumerate() {
            let seq = SeqNo(first.0 + i as u64);
            let version = op.store.version();
            let before = version.memory.active.bytes();
            match &op.action {
                Action::Cell { .. } => {
                    version.active().writer().insert(&cell_of(op, seq, wall_us));
                }
                Action::DeleteRange { range, from, to } => {
                    let tombstone = RangeTombstone { range: (*range).clone(), from: *from, to: *to, seq };
                    version.active().writer().add_range_tombstone(tombstone);
                }
            }
            let grown = (version.memory.active.bytes() - before) as u64;
            if grown > 0 {
                let before = self.tally.grew(op.store, grown);
                is_due |= self.passes_low(before, before + grown);
            }
        }
        is_due
    }

    /// Freezes the store's active memtable if it is full, and wakes background work.
    fn freeze_if_full(&self, store: &Arc<Store>) {
        let version = store.version();
        if version.memory.active.bytes() as u64 >= store.active_bytes() || store.is_mostly_dead(&version) {
            self.freeze(store);
            self.cx.scheduler.notify();
        }
    }
}

/// Prefetches the memory that the operations will touch.
#[inline]
fn prefetch(ops: &[Op<'_>]) {
    let mut fetched = None;
    for op in ops.iter().take(FETCHED_AHEAD) {
        if fetched.replace(op.store.id) != Some(op.store.id) {
            op.store.version().memory.active.prefetch_active();
        }
    }
}

fn cell_of<'a>(op: &'a Op<'_>, seq: SeqNo, wall_us: u64) -> CellRef<'a> {
    let Action::Cell { kind, key, timestamp, value } = &op.action else { unreachable!("only for cells") };
    let written = if op.keeps_written { wall_us } else { 0 };
    CellRef { key, timestamp: *timestamp, seq, kind: *kind, written, value }
}
