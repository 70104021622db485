//! Making the log durable, once and in order, and never again after a failure.
//!
//! The simple way, one fdatasync per call, would queue N callers for N syncs. Here callers take turns. Whose
//! turn it is looks at where the log ends *now* and syncs to there, holding no lock; everyone who arrived
//! while it worked is woken when it ends and finds either that his bytes are covered, and leaves without
//! waiting for the next sync to end, or becomes the one who syncs for all that arrived since. Appends never
//! wait here.
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

/// The last position before which there are whole pieces of a file.
fn whole_pieces(end: LogPosition) -> LogPosition {
    LogPosition { offset: end.offset / PIECE * PIECE, ..end }
}

impl Wal {
    /// Makes everything appended before this call durable. Never blocks an append; callers at the same time
    /// share the work.
    pub(crate) fn sync(&self) -> Result<LogPosition> {
        self.sync_to(self.end())
    }

    /// Makes the log durable at least up to `target`, a position it has reached.
    pub(crate) fn sync_to(&self, target: LogPosition) -> Result<LogPosition> {
        self.poison.check()?;
        if self.synced() >= target {
            return Ok(self.synced());
        }
        let Some(_turn) = self.sync_turn(target)? else { return Ok(self.synced()) };
        // A target in an earlier file asks for complete files only; else all that is there goes along.
        let end = self.end();
        let goal = if target.file == end.file { end } else { target };
        for part in self.unsynced_parts(goal) {
            self.make_name_durable(part.to.file)?;
            self.count_sync();
            if let Err(e) = part.map.sync()
                && !planted!(Bug::IgnoreFailedSync)
            {
                let failed = Error::io("sync the log", file_path(&self.dir, part.to.file), e);
                return Err(self.poison.set(&failed));
            }
            kill_point!("log-part-synced");
            // Somebody else may have met an error meanwhile.
            self.poison.check()?;
            self.set_synced(part.to);
        }
        self.unmap_synced();
        assert!(self.synced() >= target, "a sync must reach {target}, not only {}", self.synced());
        Ok(self.synced())
    }

    /// Whether there is a piece more of the newest file to write back. Cheap.
    pub(crate) fn needs_write_back(&self) -> bool {
        self.begun.load(Ordering::Relaxed) < self.pack(whole_pieces(self.end()))
    }

    /// For a background job, `ns` after the last piece: lets the device begin to write the newest file, piece
    /// by piece, as it is appended to. Written by the sync at its end alone, a log file would keep whoever
    /// reads waiting for as long as that takes. Where the file is soon full, and then synced, it is left to
    /// that, as pieces cost writers processor time.
    pub(crate) fn write_back(&self, ns: u64) -> Result<()> {
        self.poison.check()?;
        let to = whole_pieces(self.end());
        let from = self.unpack(self.begun.fetch_max(self.pack(to), Ordering::Relaxed));
        // What is left of an older file is synced as that is complete.
        let from = if from.file == to.file { from.offset } else { 0 };
        if from >= to.offset || ns < PIECE_NS {
            return Ok(());
        }
        let map = self.live.lock().iter().find(|live| live.file == to.file).and_then(|live| live.map.clone());
        let begun = map.map_or(Ok(()), |map| map.begin_write_back(from, to.offset));
        begun.map_err(|e| self.poison.set(&Error::io("write back the log", file_path(&self.dir, to.file), e)))
    }

    /// Waits until the log is durable up to `target` (`None`) or nobody is syncing: then it is the caller's
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
                return Ok(Some(SyncTurn { log: self }));
            }
            self.sync_ended.wait(&mut syncing);
        }
    }

    /// Makes the file's directory entry durable, once. All names created before come along.
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

/// The right to sync; given back when dropped, however the sync ended.
struct SyncTurn<'a> {
    log: &'a Wal,
}

impl Drop for SyncTurn<'_> {
    fn drop(&mut self) {
        *self.log.syncing.lock() = false;
        self.log.sync_ended.notify_all();
    }
}
