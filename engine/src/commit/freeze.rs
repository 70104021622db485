//! Changes to WAL and memory between writes: freezing, copies, notes, and whatever needs that nothing is
//! being logged.

use super::Commit;
use super::store::Store;
use super::write::LogStage;
use crate::error::Result;
use crate::types::{Generation, LogPosition, SeqNo};
use crate::version::manifest::Mark;
use crate::wal::{Entry, Note};
use std::ops::Range;

/// Bytes of one frame of cells that are logged again.
const COPIES_BYTES: u64 = 64 << 10;

impl Commit {
    /// Freezes the store's active memtable and begins a fresh one, unless it is empty.
    pub(crate) fn freeze(&self, store: &Store) {
        self.renew_active(store, false);
    }

    /// Puts a fresh active memtable in the place of the present one, which is frozen; with `if_empty` also in
    /// the place of an empty one.
    pub(crate) fn renew_active(&self, store: &Store, if_empty: bool) {
        let Ok(stages) = self.stages() else { return };
        let stage = stages.stage.lock();
        stages.wait_applied(&stage);
        let is_empty = store.version().memory.active.is_empty();
        if (is_empty && !if_empty) || self.cx.check_open().is_err() {
            return;
        }
        let active = store.new_active(store.version().memory.active.bytes());
        store.swap(|now| now.with_fresh_active(active.clone()));
        if !is_empty {
            store.work.lock().memory.pipeline.froze();
            kill_point!("memtable-frozen");
        }
        self.recount(store);
        self.touch(store.id);
    }

    /// Begins a new WAL file, so that all logged so far is in complete ones.
    pub(crate) fn begin_wal_file(&self) -> Result<()> {
        let mut stage = self.stages()?.stage.lock();
        let next = stage.next_seq;
        stage.appender.begin_next(next)
    }

    /// Calls `run` while nothing is being logged and everything logged is applied, with the last sequence
    /// number.
    pub(crate) fn with_writes_held<T>(&self, run: impl FnOnce(SeqNo) -> T) -> Result<T> {
        let stages = self.stages()?;
        let stage = stages.stage.lock();
        stages.wait_applied(&stage);
        Ok(run(SeqNo(stage.next_seq.0 - 1)))
    }

    /// Calls `run` with the first unused sequence number, and with one above `floor` for its own use, while
    /// no write is logged; no write has any number between. If it returns `true`, its number is used up and
    /// becomes visible.
    pub(crate) fn with_one_seq(
        &self,
        floor: SeqNo,
        run: impl FnOnce(SeqNo, SeqNo) -> Result<bool>,
    ) -> Result<bool> {
        let stages = self.stages()?;
        let mut stage = stages.stage.lock();
        stages.wait_applied(&stage);
        self.cx.check_writable()?;
        let first = stage.next_seq;
        let seq = first.max(floor.next());
        let used = run(first, seq)?;
        if used {
            self.snapshots.publish(seq);
            stage.next_seq = seq.next();
        }
        Ok(used)
    }

    /// Logs entries again: hot cells that stay in memory, or cells from a WAL file that is to be released.
    /// They keep their sequence numbers and get this generation. Returns their place in the WAL, or `None` if
    /// there were no entries. The frames are small, so that writers get their turns between them; each cell
    /// stands for itself, so a crash may come between any two.
    pub(crate) fn log_copies<'c>(
        &self,
        store: &Store,
        generation: Generation,
        entries: impl Iterator<Item = Entry<'c>>,
    ) -> Result<Option<Range<LogPosition>>> {
        let stages = self.stages()?;
        let frame_bytes = COPIES_BYTES.min(self.cx.settings.options.tuning().wal_file_bytes / 4);
        let mut entries = entries.peekable();
        let mut copied: Option<Range<LogPosition>> = None;
        while entries.peek().is_some() {
            self.cx.check_not_poisoned()?;
            let mut stage = stages.stage.lock();
            let LogStage { appender, frame, next_seq, .. } = &mut *stage;
            frame.begin(*next_seq, self.cx.env.clock.wall_us());
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
            let start = copied.map_or(at.start, |copied| copied.start);
            copied = Some(start..at.end);
        }
        Ok(copied)
    }

    /// Logs how much of the manifest is durable, so that recovery notices a manifest that lost its tail. The
    /// note is only evidence: where the WAL takes nothing (full disk, poison), the edit is made all the same,
    /// so errors are ignored.
    pub(crate) fn log_note(&self, mark: Mark) {
        let Ok(stages) = self.stages() else { return };
        // A shared database has both in one stream.
        if self.wal().is_ok_and(|wal| wal.is_shared()) {
            return;
        }
        let mut stage = stages.stage.lock();
        let LogStage { appender, frame, next_seq, .. } = &mut *stage;
        let note = Note { manifest: mark.number, length: mark.length };
        frame.note(note, *next_seq, self.cx.env.clock.wall_us());
        let _ = appender.append(frame);
    }
}
