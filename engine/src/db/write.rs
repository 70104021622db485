//! The write path, and the order it keeps.
//!
//! The naive write: give the batch its sequence numbers, append it to the log, sync if asked, insert it into memory,
//! make it visible. Done under one lock that is correct, but an fdatasync under the lock would hold everybody up
//! and give each `Sync` writer a sync of its own. So there are two stages with a ticket between them:
//!
//! 1. *Log stage*, under `stage`: take sequence numbers and a ticket, append one frame. Some 100 ns.
//! 2. If `Sync` was asked: [`crate::log::Log::sync`], which serves everyone who arrived before it began.
//! 3. *Apply stage*, under `turn`, in ticket order: insert into the active segments, publish the sequence number.
//!
//! A lone writer goes straight through two uncontended locks. Under contention appends of one writer overlap
//! inserts of another, and `Sync` writers share their syncs: that is the group commit. A batch becomes visible
//! only after its own sync, and never before an older one.
//!
//! Who needs memory to hold everything logged so far (freezing, conditional writes) keeps `stage` locked and waits
//! for the last ticket: nothing new is logged meanwhile, so a record's generation is that of the segment its
//! cells are inserted into (invariants I1, I4).
//!
//! A batch whose sync failed is not inserted. Its outcome is unknown until the next open; the log is poisoned.

use super::Inner;
use super::store::Store;
use super::transaction::Depends;
use super::turns::{Patience, Turns, look_again};
use crate::error::{Error, ErrorKind, Result};
use crate::log::{Appended, Appender, Entry, FrameEncoder, Note};
use crate::options::{Durability, KEY_BYTES_MAX, VALUE_BYTES_MAX};
use crate::sync::{Mutex, MutexGuard};
use crate::types::{
    CellRef, Generation, KeyRange, Kind, LogPosition, RangeTombstone, SeqNo, StoreId, Timestamp,
};
use crate::version::manifest::Mark;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

/// One operation of a batch.
pub(crate) struct Op<'a> {
    store: &'a Arc<Store>,
    action: Action<'a>,
    /// Whether the cell keeps its time of writing: asked once, so that log and memory say the same though the
    /// family's options change meanwhile.
    keeps_written: bool,
}

pub(crate) enum Action<'a> {
    Cell { kind: Kind, key: &'a [u8], timestamp: Timestamp, value: &'a [u8] },
    DeleteRange { range: &'a KeyRange, from: Timestamp, to: Timestamp },
}

impl<'a> Op<'a> {
    pub(crate) fn new(store: &'a Arc<Store>, action: Action<'a>) -> Self {
        Self { store, action, keeps_written: store.settings().keeps_written }
    }

    fn deletes(&self) -> bool {
        matches!(&self.action, Action::DeleteRange { .. } | Action::Cell { kind: Kind::Tombstone, .. })
    }

    fn first_key(&self) -> &[u8] {
        match &self.action {
            Action::Cell { key, .. } => key,
            Action::DeleteRange { range, .. } => &range.start,
        }
    }

    fn bytes(&self) -> usize {
        match &self.action {
            Action::Cell { key, value, .. } => key.len() + value.len(),
            Action::DeleteRange { range, .. } => range.start.len() + range.end.as_ref().map_or(0, Vec::len),
        }
    }

    fn check(&self) -> Result<()> {
        self.store.check_not_dropped()?;
        let key_bytes = match &self.action {
            Action::Cell { key, .. } => key.len(),
            Action::DeleteRange { range, .. } => {
                range.start.len().max(range.end.as_ref().map_or(0, Vec::len))
            }
        };
        if key_bytes > KEY_BYTES_MAX {
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

/// How often a condition is judged beside other writers before they are made to wait for it.
const JUDGED_OUTSIDE: usize = 3;
/// About what a cell in memory has beside key and value.
const CELL_BYTES: usize = 24;

/// Of that many operations of a batch the memory is fetched ahead: more would push each other out of the processor's caches.
const FETCHED_AHEAD: usize = 64;
/// Bytes of deletes of keys that are taken with the disk full, until a flush or merge is done; with those of ranges twice
/// as many.
const BEYOND_FULL_BYTES: u64 = 64 << 10;
/// Bytes of a frame of copies.
const COPIES_BYTES: u64 = 64 << 10;

/// Where copies stand in the log.
#[derive(Clone, Copy)]
pub(crate) struct Copied {
    pub(crate) from: LogPosition,
    pub(crate) to: LogPosition,
}

/// The stages a write goes through.
pub(crate) struct Commit {
    stage: Mutex<LogStage>,
    turns: Turns,
}

pub(crate) struct LogStage {
    appender: Appender,
    frame: FrameEncoder,
    next_seq: SeqNo,
    next_ticket: u64,
    /// That was written to last.
    last_store: Option<StoreId>,
}

impl Commit {
    pub(crate) fn new(appender: Appender, next_seq: SeqNo) -> Self {
        let stage =
            LogStage { appender, frame: FrameEncoder::new(), next_seq, next_ticket: 0, last_store: None };
        Self { stage: Mutex::new(stage), turns: Turns::new() }
    }

    /// The stage's lock, for a writer: it is held for some microseconds, so who finds it taken looks again before sleeping.
    fn stage_soon(&self, patience: Patience) -> MutexGuard<'_, LogStage> {
        look_again(patience, || self.stage.try_lock()).unwrap_or_else(|| self.stage.lock())
    }

    /// Waits until everything logged so far is in memory.
    fn wait_applied(&self, stage: &LogStage) {
        self.turns.wait_all(stage.next_ticket);
    }
}

impl Inner {
    /// Writes the operations, all or none, if what they rest on holds with everything older in memory and nothing newer
    /// logged; its error is the answer. The sequence number of the last operation.
    pub(crate) fn write(
        &self,
        ops: &[Op<'_>],
        durability: Durability,
        depends: Option<&dyn Depends>,
    ) -> Result<SeqNo> {
        let written = self.write_once(ops, durability, depends, false);
        let is_full = written.as_ref().is_err_and(|e| e.kind() == ErrorKind::DiskFull);
        if !is_full || !ops.iter().all(Op::deletes) {
            return written;
        }
        // What is set aside for a full disk is for what makes room: with memory full too, deletes make it in both. Not all of
        // it, as a table and edits must fit; keys one by one leave some to a range, which may empty all.
        let bytes = ops.iter().map(|op| (op.bytes() + CELL_BYTES) as u64).sum();
        let is_range = ops.iter().any(|op| matches!(op.action, Action::DeleteRange { .. }));
        let most = if is_range { 2 * BEYOND_FULL_BYTES } else { BEYOND_FULL_BYTES };
        if self.beyond_full.get() + bytes > most {
            return written;
        }
        self.manifest.lock().free_reserve();
        let written = self.write_once(ops, durability, depends, true);
        if written.is_ok() {
            self.beyond_full.add(bytes);
        }
        written
    }

    /// With `makes_room` it does not wait for room in memory, and a small log file will do.
    fn write_once(
        &self,
        ops: &[Op<'_>],
        durability: Durability,
        depends: Option<&dyn Depends>,
        makes_room: bool,
    ) -> Result<SeqNo> {
        // Batches come straight here; after a failed sync of the manifest the log itself would still take them.
        self.check_writable()?;
        let commit = self.commit()?;
        let mut bytes = 0;
        for op in ops {
            op.check()?;
            bytes += op.bytes() as u64;
        }
        let logged = bytes + 32 * ops.len() as u64;
        let limit = self.options.batch_bytes_max(self.budget.write_memory());
        let largest = ops.iter().map(Op::bytes).max().unwrap_or(0) as u64;
        // A value larger than that may come alone, so it may come with others.
        if logged > limit.saturating_add(largest) {
            return Err(Error::invalid(format!(
                "batch has {bytes} bytes, the limit is {limit} and one value"
            )));
        }
        let mut fetched = None;
        for op in ops.iter().take(FETCHED_AHEAD) {
            if fetched.replace(op.store.id) != Some(op.store.id) {
                op.store.version().active.prefetch_active();
            }
        }
        if !makes_room {
            let fullest = || ops.iter().map(|op| &**op.store).max_by_key(|store| store.level0_over());
            self.throttle(bytes, &fullest)?;
        }
        let wall_us = self.env.clock.wall_us();

        let patience = if durability == Durability::Sync { Patience::Short } else { Patience::Long };
        let is_held = || ops.iter().any(|op| op.store.is_held());
        let mut stage = loop {
            let stage = match depends {
                None => commit.stage_soon(patience),
                Some(depends) => self.stage_for(commit, depends, patience)?,
            };
            if !is_held() {
                break stage;
            }
            drop(stage);
            self.scheduler.wait(&mut || !is_held() || self.check_writable().is_err());
        };
        // Under the stage's lock: closing and dropping a family wait for it after they have said so.
        self.check_writable()?;
        for op in ops {
            op.store.check_takes_writes()?;
        }
        if ops.is_empty() {
            return Ok(SeqNo(stage.next_seq.0 - 1));
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
        drop(stage);

        let acked_early = planted!(Bug::AcknowledgeBeforeSync);
        let synced = match durability {
            Durability::Sync if !acked_early && !planted!(Bug::SkipLogSync) => self.log()?.sync().map(|_| ()),
            _ => Ok(()),
        };
        kill_point!("write-logged-not-applied");
        let turn = commit.turns.wait(ticket, patience);
        let synced = synced.and_then(|()| self.check_not_poisoned());
        let mut flush_is_due = false;
        if synced.is_ok() {
            match catch_unwind(AssertUnwindSafe(|| self.apply_ops(ops, first, wall_us))) {
                Ok(is_due) => flush_is_due = is_due,
                Err(panic) => {
                    // Our own bug: nobody may see a part of the batch, and nobody may wait for this turn for ever.
                    self.poison(&Error::new(ErrorKind::Poisoned, "a write panicked (see standard error)"));
                    commit.turns.end(turn);
                    resume_unwind(panic);
                }
            }
            self.snapshots.publish(last);
        }
        kill_point!("write-applied-not-acknowledged");
        commit.turns.end(turn);
        if let Err(e) = synced {
            self.poison(&e);
            return Err(e);
        }
        self.metrics.writes.add(ops.len() as u64);
        self.metrics.user_bytes.add(bytes);
        for op in ops {
            self.freeze_if_full(op.store);
        }
        if flush_is_due {
            // Where memory is spread over many families none of them may be full.
            self.scheduler.notify();
        }
        Ok(last)
    }

    /// The log stage, with what a write rests on found to hold there.
    fn stage_for<'c>(
        &self,
        commit: &'c Commit,
        depends: &dyn Depends,
        patience: Patience,
    ) -> Result<MutexGuard<'c, LogStage>> {
        for _ in 0..JUDGED_OUTSIDE {
            let judged_at = self.snapshots.visible();
            depends.judge(self)?;
            let stage = commit.stage_soon(patience);
            commit.wait_applied(&stage);
            let is_newest = SeqNo(stage.next_seq.0 - 1) == judged_at;
            if is_newest || planted!(Bug::JudgeOutsideAlone) || !depends.may_have_changed(self, judged_at) {
                return Ok(stage);
            }
        }
        // Others write to the same keys all the time: now they wait.
        let stage = commit.stage_soon(patience);
        commit.wait_applied(&stage);
        depends.judge(self)?;
        Ok(stage)
    }

    fn log_ops(&self, stage: &mut LogStage, ops: &[Op<'_>], wall_us: u64) -> Result<()> {
        let LogStage { appender, frame, next_seq, last_store, .. } = stage;
        frame.begin(*next_seq, wall_us);
        let mut part = None;
        for op in ops {
            if part.as_ref().is_none_or(|(store, _)| *store != op.store.id) {
                let version = op.store.version();
                frame.part(op.store.id, version.active.generation());
                version.active().prefetch_for_insert(op.bytes() + CELL_BYTES);
                if last_store.replace(op.store.id) != Some(op.store.id) {
                    version.active().prefetch_leaf(op.first_key());
                }
                part = Some((op.store.id, version));
            }
            let _seq = match &op.action {
                Action::Cell { .. } => frame.cell(&cell_of(op, SeqNo::ZERO, wall_us)),
                Action::DeleteRange { range, from, to } => {
                    let seq = SeqNo::ZERO;
                    frame.range_tombstone(&RangeTombstone {
                        range: (*range).clone(),
                        from: *from,
                        to: *to,
                        seq,
                    })
                }
            };
        }
        let at = self.append(appender, frame)?;
        let mut fed = None;
        for op in ops.iter().rev() {
            if fed == Some(op.store.id) {
                continue;
            }
            // The stage is held, so no active segment has been frozen since the frame was begun.
            let version = match part.take() {
                Some((store, version)) if store == op.store.id => version,
                _ => op.store.version(),
            };
            version.active.fed_by(at.start.file);
            if op.store.front().is_none() {
                self.tally.enter_front(op.store, at.start.file);
            }
            fed = Some(op.store.id);
        }
        Ok(())
    }

    fn append(&self, appender: &mut Appender, frame: &mut FrameEncoder) -> Result<Appended> {
        appender.append(frame).inspect_err(|_| {
            // Failing to reserve a file is no poison; the log knows.
            if let Err(poison) = self.log().and_then(|log| log.check()) {
                self.poison(&poison);
            }
        })
    }

    /// Whether memory has come over the mark at which flushing begins.
    fn apply_ops(&self, ops: &[Op<'_>], first: SeqNo, wall_us: u64) -> bool {
        let mut all = 0;
        for (i, op) in ops.iter().enumerate() {
            let seq = SeqNo(first.0 + i as u64);
            let version = op.store.version();
            let before = version.active.bytes();
            match &op.action {
                Action::Cell { .. } => {
                    version.active().writer().insert(&cell_of(op, seq, wall_us));
                }
                Action::DeleteRange { range, from, to } => {
                    let tombstone = RangeTombstone { range: (*range).clone(), from: *from, to: *to, seq };
                    version.active().writer().add_range_tombstone(tombstone);
                }
            }
            let grown = (version.active.bytes() - before) as u64;
            if grown > 0 {
                op.store.grew(grown);
                all += grown;
            }
        }
        if all == 0 {
            return false;
        }
        let before = self.tally.memory.take_add(all);
        self.passes_low(before, before + all)
    }

    /// Freezes the store's active segment once it is full, and wakes the background.
    fn freeze_if_full(&self, store: &Arc<Store>) {
        let version = store.version();
        if version.active.bytes() as u64 >= store.active_bytes() || store.is_mostly_dead(&version) {
            self.freeze(store);
            self.scheduler.notify();
        }
    }

    /// Puts a fresh active segment in the place of the store's present one, unless that is empty.
    pub(crate) fn freeze(&self, store: &Store) {
        self.renew_active(store, false);
    }

    /// The same; also in the place of an empty one if that is wanted.
    pub(super) fn renew_active(&self, store: &Store, if_empty: bool) {
        let Ok(commit) = self.commit() else { return };
        let stage = commit.stage.lock();
        commit.wait_applied(&stage);
        let is_empty = store.version().active.is_empty();
        if (is_empty && !if_empty) || self.check_open().is_err() {
            return;
        }
        let active = store.new_active(store.version().active.bytes());
        store.swap(|now| now.with_fresh_active(active.clone()));
        if !is_empty {
            store.work.lock().pipeline.froze();
            kill_point!("segment-frozen");
        }
        self.recount(store);
        self.touch(store.id);
    }

    /// Begins a new log file, so that all logged so far is in complete ones.
    pub(crate) fn begin_log_file(&self) -> Result<()> {
        let mut stage = self.commit()?.stage.lock();
        let next = stage.next_seq;
        stage.appender.begin_next(next)
    }

    /// Runs with nothing being logged and everything logged applied.
    pub(crate) fn with_writes_held<T>(&self, run: impl FnOnce(SeqNo) -> T) -> Result<T> {
        let commit = self.commit()?;
        let stage = commit.stage.lock();
        commit.wait_applied(&stage);
        Ok(run(SeqNo(stage.next_seq.0 - 1)))
    }

    /// Runs with writes held and one sequence number of its own, above `floor`; if it answers `true`, the number is used
    /// up and becomes visible.
    pub(crate) fn with_one_seq(&self, floor: SeqNo, run: impl FnOnce(SeqNo) -> Result<bool>) -> Result<bool> {
        let commit = self.commit()?;
        let mut stage = commit.stage.lock();
        commit.wait_applied(&stage);
        self.check_writable()?;
        let seq = stage.next_seq.max(floor.next());
        let used = run(seq)?;
        if used {
            self.snapshots.publish(seq);
            stage.next_seq = seq.next();
        }
        Ok(used)
    }

    /// Logs entries again that stay in memory, or came from a log file that is to go: they keep their sequence numbers and
    /// get this generation. Where the log holds them, or `None` where there were none. In frames of limited size, so
    /// that writers get their turns between; each cell stands for itself, so it does not matter where a crash ends
    /// that.
    pub(crate) fn log_copies<'c>(
        &self,
        store: &Store,
        generation: Generation,
        entries: impl Iterator<Item = Entry<'c>>,
    ) -> Result<Option<Copied>> {
        let commit = self.commit()?;
        let frame_bytes = COPIES_BYTES.min(self.options.log_file_bytes / 4);
        let mut entries = entries.peekable();
        let mut copied: Option<Copied> = None;
        while entries.peek().is_some() {
            self.check_not_poisoned()?;
            let mut stage = commit.stage.lock();
            let LogStage { appender, frame, next_seq, .. } = &mut *stage;
            frame.begin(*next_seq, self.env.clock.wall_us());
            frame.part(store.id, generation);
            while frame.frame_bytes() < frame_bytes
                && let Some(entry) = entries.next()
            {
                match entry {
                    Entry::Cell(cell) => frame.copied_cell(&cell),
                    Entry::RangeTombstone(tombstone) => frame.copied_range_tombstone(&tombstone),
                }
            }
            let at = self.append(appender, frame)?;
            let from = copied.map_or(at.start, |copied| copied.from);
            copied = Some(Copied { from, to: at.end });
        }
        Ok(copied)
    }

    /// Tells the log how much of the manifest is durable, so that a manifest that lost its tail is noticed. Evidence
    /// only: where the log takes nothing (full disk, poison), the edit is still made, so nobody is told.
    pub(crate) fn log_note(&self, mark: Mark) {
        let Ok(commit) = self.commit() else { return };
        let mut stage = commit.stage.lock();
        let LogStage { appender, frame, next_seq, .. } = &mut *stage;
        let note = Note { manifest: mark.number, length: mark.length };
        frame.note(note, *next_seq, self.env.clock.wall_us());
        let _ = appender.append(frame);
    }
}

fn cell_of<'a>(op: &'a Op<'_>, seq: SeqNo, wall_us: u64) -> CellRef<'a> {
    let Action::Cell { kind, key, timestamp, value } = &op.action else { unreachable!("only for cells") };
    let written = if op.keeps_written { wall_us } else { 0 };
    CellRef { key, timestamp: *timestamp, seq, kind: *kind, written, value }
}
