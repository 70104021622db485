//! Makes the WAL durable, in order, and never again after a failure (see `poison`).
//!
//! The simple way, one fdatasync per call, would queue N callers for N syncs. Here callers take turns. The
//! one whose turn it is syncs up to the *present* end of the WAL, holding no lock. Callers that arrived
//! meanwhile are woken when it is done. Those whose bytes are covered return; one of the others syncs for all
//! that have arrived since. Appends never wait here.
//!
//! Order: files are synced oldest first, so the position known synced covers everything before it, and a new
//! file's name is made durable before any byte in it counts as synced.

use super::file::file_path;
use super::writer::{PIECE, Wal};
use crate::error::{Error, Result};
use crate::sync::Ordering;
use crate::types::{LogFileId, LogPosition};

/// A piece that is full sooner is not written back by itself: some 100 MB a second.
const PIECE_NS: u64 = 5_000_000;

/// The end of the last whole piece of a file.
fn whole_pieces(end: LogPosition) -> LogPosition {
    LogPosition { offset: end.offset / PIECE * PIECE, ..end }
}

impl Wal {
    /// Makes everything appended before this call durable. Never blocks an append; concurrent callers share
    /// the work.
    pub(crate) fn sync(&self) -> Result<LogPosition> {
        self.sync_to(self.end())
    }

    /// Makes the WAL durable at least up to `target`, a position it has reached.
    pub(crate) fn sync_to(&self, target: LogPosition) -> Result<LogPosition> {
        // What is durable stays so, whatever failed since.
        if self.is_shared() && self.synced() >= target {
            return Ok(self.synced());
        }
        self.poison.check()?;
        if self.synced() >= target {
            return Ok(self.synced());
        }
        if let Some(outbox) = &self.outbox {
            let shared = outbox.ship().map_err(|e| self.poison.set(&e))?;
            if shared.file >= self.first {
                self.synced.fetch_max(self.pack(shared), Ordering::AcqRel);
                self.unmap_synced();
            }
            return Ok(self.synced());
        }
        let Some(_turn) = self.sync_turn(target)? else { return Ok(self.synced()) };
        // A target in an earlier file needs complete files only; otherwise the sync goes to the end.
        let end = self.end();
        let goal = if target.file == end.file { end } else { target };
        for (map, to) in self.unsynced_parts(goal) {
            self.make_name_durable(to.file)?;
            self.syncs.fetch_add(1, Ordering::Relaxed);
            if let Err(e) = map.sync()
                && !planted!(Bug::IgnoreFailedSync)
            {
                let failed = Error::io("sync the WAL", file_path(&self.dir, to.file), e);
                return Err(self.poison.set(&failed));
            }
            kill_point!("wal-part-synced");
            // Another caller may have met an error meanwhile.
            self.poison.check()?;
            self.synced.fetch_max(self.pack(to), Ordering::AcqRel);
        }
        self.unmap_synced();
        assert!(self.synced() >= target, "a sync must reach {target}, not only {}", self.synced());
        Ok(self.synced())
    }

    /// Whether there is another piece of the newest file to write back. Cheap.
    pub(crate) fn needs_write_back(&self) -> bool {
        !self.is_shared() && self.begun.load(Ordering::Relaxed) < self.pack(whole_pieces(self.end()))
    }

    /// Background job, `ns` after the last piece: starts write-back of the newest file, piece by piece, as it
    /// is appended to. A whole WAL file written by the sync at its end alone would delay reads for that long.
    /// A file that fills fast, and is then synced, is left to that sync, as pieces cost writers processor
    /// time.
    pub(crate) fn write_back(&self, ns: u64) -> Result<()> {
        self.poison.check()?;
        let to = whole_pieces(self.end());
        let from = self.unpack(self.begun.fetch_max(self.pack(to), Ordering::Relaxed));
        // The remainder of an older file is synced when it is complete.
        let from = if from.file == to.file { from.offset } else { 0 };
        if from >= to.offset || ns < PIECE_NS {
            return Ok(());
        }
        let map = self.live.lock().iter().find(|live| live.file == to.file).and_then(|live| live.map.clone());
        let begun = map.map_or(Ok(()), |map| map.begin_write_back(from, to.offset));
        begun.map_err(|e| self.poison.set(&Error::io("write back the WAL", file_path(&self.dir, to.file), e)))
    }

    /// Waits until the WAL is durable up to `target` (`None`) or nobody is syncing: then it is the caller's
    /// turn.
    fn sync_turn(&self, target: LogPosition) -> Result<Option<SyncTurn<'_>>> {
        let mut syncing = self.syncing.lock();
        loop {
            self.poison.check()?;
            if self.synced() >= target {
                return Ok(None);
            }
            if !*syncing {
                *syncing = true;
                return Ok(Some(SyncTurn(self)));
            }
            self.sync_ended.wait(&mut syncing);
        }
    }

    /// Makes the file's directory entry durable, once, with all names created before.
    pub(super) fn make_name_durable(&self, file: LogFileId) -> Result<()> {
        if self.named.load(Ordering::Acquire) >= file.0 {
            return Ok(());
        }
        let synced = self.storage.sync_dir(&self.dir);
        synced.map_err(|e| self.poison.set(&Error::io("sync the directory", &self.dir, e)))?;
        self.named.fetch_max(file.0, Ordering::AcqRel);
        Ok(())
    }
}

/// The right to sync; returned when dropped, however the sync ended.
struct SyncTurn<'a>(&'a Wal);

impl Drop for SyncTurn<'_> {
    fn drop(&mut self) {
        *self.0.syncing.lock() = false;
        self.0.sync_ended.notify_all();
    }
}
