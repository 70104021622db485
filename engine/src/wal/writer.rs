//! The WAL's write side: one appender, and the shared part that syncs, prepares and releases files.
//!
//! An append encodes checksums in the caller's buffer, writes the frame to the file and publishes the new end
//! by one atomic store. It takes no lock, and where files are mapped (`docs/filesystems.md`) it makes no
//! system call until a file is full. Rotation, in order:
//!
//!  1. Everything before the file that is now full must be synced (normally `prepare` did it long ago). So
//!     when a file is begun, all but the newest complete file is durable, and its header says so: a bad
//!     record that is followed by a complete later file can only be damage (invariant I2), and at most two
//!     files of history are ever at risk.
//!  2. A file is taken from the pool. If none can be reserved, nothing changes: the disk is full, and a later
//!     append tries again.
//!  3. Its header is written, with the end of the full file.
//!
//! From step 3 on a failure leaves an unknown state in the mapping and poisons the WAL.
//!
//! The WAL of a shared database is durable where the stream has it ([`Outbox`]): frames are queued there as
//! they are appended, a sync brings them into the stream, and the files here are only read. So they are never
//! synced, and step 1 waits for nothing: what a reader of the stream finds is a beginning of the WAL.

use super::WalFileInfo;
use super::encoder::FrameEncoder;
use super::file::{FILE_BYTES_MAX, HEADER_BYTES, Header, file_path};
use super::head::{ALIGN, Base, FRAME_BYTES_MAX, FileIdentity};
use super::poison::Poison;
use super::pool::{Pool, WrittenAhead};
use super::recover::{Recovered, give_back_tail};
use super::retained::{LiveFile, RetainedFiles};
use crate::error::{Error, ErrorKind, Result};
use crate::storage::{Env, MappedFile, Storage};
use crate::stream::{self, Outbox};
use crate::sync::{AtomicU64, Condvar, Mutex, Ordering};
use crate::types::{LogFileId, LogPosition, SeqNo};
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Settings of a WAL.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WalOptions {
    /// The length that files are reserved with.
    pub(crate) file_bytes: u64,
    /// The most released files that are kept for recycling.
    pub(crate) recycle_max: usize,
    /// Whether new files are filled with zeros.
    pub(crate) written_ahead: WrittenAhead,
    /// Bytes of released files that are retained without a follower.
    pub(crate) kept_bytes: u64,
    /// Bytes of released files that are retained while a follower has not read past them.
    pub(crate) followed_bytes: u64,
}

impl Default for WalOptions {
    fn default() -> Self {
        Self {
            file_bytes: 64 << 20,
            recycle_max: 2,
            written_ahead: WrittenAhead::default(),
            kept_bytes: 0,
            followed_bytes: 256 << 20,
        }
    }
}

/// Bytes of a WAL file that are written back together.
pub(super) const PIECE: u64 = 512 << 10;

/// How much is written ahead at once in a file that was not written ahead as a whole: the appender waits some
/// 15 us each time.
const WINDOW_BYTES: u64 = 128 << 10;

/// Sizes of the page cache's pages in WAL files: where each sync is for few bytes, and elsewhere.
const PAGE_BYTES: (u64, u64) = (4 << 10, 64 << 10);
/// Syncs are for few bytes if they come more often than once in this many.
const BYTES_A_SYNC: u64 = 1 << 20;

/// The claims of SSTables on a WAL file that memory needs no more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Claim {
    /// No SSTable ever had values in it: it may be recycled.
    Never,
    /// SSTables refer to values in it: it stays until they remove it.
    Held,
    /// SSTables had values in it but refer to none any more: it is removed.
    Past,
}

/// The start of writing a WAL.
#[derive(Clone, Debug)]
#[cfg_attr(test, derive(Default))]
pub(crate) struct WalStart {
    pub(crate) database_id: u64,
    /// The first file to write. No file of this or a higher number exists.
    pub(crate) file: LogFileId,
    /// The end of the earlier history; everything up to there is durable.
    pub(crate) after: LogPosition,
    /// Files of that history, oldest first; they are released like later ones.
    pub(crate) live: Vec<WalFileInfo>,
    /// Files before these that are retained for followers, oldest first.
    pub(crate) kept: Vec<WalFileInfo>,
    /// The way into the stream of a shared database.
    pub(crate) outbox: Option<Arc<Outbox>>,
}

impl WalStart {
    /// The start of a new database's WAL.
    #[cfg(test)]
    pub(crate) fn fresh(database_id: u64) -> Self {
        Self { database_id, file: LogFileId(1), ..Self::default() }
    }

    /// The start after a recovered history, which was made durable and whose end was recorded.
    pub(crate) fn behind(database_id: u64, recovered: &Recovered) -> Self {
        let (file, after) = (recovered.next_file, recovered.end);
        let live = recovered.files.clone();
        Self { database_id, file, after, live, kept: Vec::new(), outbox: None }
    }
}

/// Counts of a WAL's work since it was opened.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct WalStats {
    pub(crate) frames: u64,
    pub(crate) appended_bytes: u64,
    pub(crate) syncs: u64,
    pub(crate) files_reserved: u64,
    pub(crate) files_recycled: u64,
    pub(crate) written_ahead_bytes: u64,
}

/// The position of an appended frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Appended {
    pub(crate) start: LogPosition,
    pub(crate) end: LogPosition,
}

impl Appended {
    /// Whether the frame ends a piece, which may be written back now.
    #[inline]
    pub(crate) fn ends_piece(&self) -> bool {
        self.start.offset / PIECE != self.end.offset / PIECE
    }
}

/// The shared part of a WAL.
// Over 15 fields: positions and counts are atomics, so that an append takes no lock that a sync holds.
pub(crate) struct Wal {
    pub(super) storage: Arc<dyn Storage>,
    pub(super) dir: PathBuf,
    pub(super) options: WalOptions,
    database_id: u64,
    pool: Pool,
    pub(super) poison: Poison,
    /// Makes it durable, in a shared database.
    pub(super) outbox: Option<Arc<Outbox>>,
    /// Positions are packed (see `pack`), relative to this file.
    pub(super) first: LogFileId,
    end: AtomicU64,
    pub(super) synced: AtomicU64,
    /// The end of the part whose write-back to the device was begun.
    pub(super) begun: AtomicU64,
    /// The end of the complete files: everything before must be synced before another file is begun.
    complete_to: AtomicU64,
    /// Length of the newest file, zero before there is one.
    newest_bytes: AtomicU64,
    /// The highest file number whose name is known durable.
    pub(super) named: AtomicU64,
    /// Whether a thread is syncing; others wait for its end.
    pub(super) syncing: Mutex<bool>,
    pub(super) sync_ended: Condvar,
    pub(super) live: Mutex<VecDeque<LiveFile>>,
    /// Released files that are retained for followers. Locked after `live`.
    pub(super) kept: Mutex<RetainedFiles>,
    /// The number of [`WalHold`]s. Read and changed under `live`.
    holds: AtomicU64,
    frames: AtomicU64,
    appended_bytes: AtomicU64,
    pub(super) syncs: AtomicU64,
}

/// A hold on all live files: while it exists no WAL file is released, so that they can be copied.
pub(crate) struct WalHold(Arc<Wal>);

impl Drop for WalHold {
    fn drop(&mut self) {
        self.0.holds.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The right to append. There is one; its owner serialises writers (the database keeps it under its commit
/// lock).
pub(crate) struct Appender {
    wal: Arc<Wal>,
    newest: Option<Newest>,
    /// The end of history before the newest file.
    previous: LogPosition,
    takes_small: bool,
}

struct Newest {
    identity: FileIdentity,
    map: Arc<dyn MappedFile>,
    offset: u64,
    /// The end of the blocks that were written at least once.
    zeros_to: u64,
    /// The base of the next short frames.
    base: Option<Base>,
}

impl Wal {
    /// Opens a WAL to be written from `start` on. Creates no file yet: the first append or `prepare` does.
    pub(crate) fn open(
        env: &Env,
        dir: &Path,
        options: WalOptions,
        start: WalStart,
    ) -> Result<(Arc<Wal>, Appender)> {
        let file_bytes = options.file_bytes.next_multiple_of(ALIGN);
        if !(512..=FILE_BYTES_MAX).contains(&file_bytes) {
            return Err(Error::invalid(format!(
                "WAL files of {file_bytes} bytes; allowed are 512 to 32 GiB"
            )));
        }
        let kept = start.kept.iter().map(LiveFile::recovered).collect();
        assert!(start.after.file < start.file, "history goes on in a new file, never inside a recovered one");
        let wal = Arc::new(Wal {
            storage: env.storage.clone(),
            dir: dir.to_path_buf(),
            options,
            database_id: start.database_id,
            pool: Pool::new(env.storage.clone(), dir, file_bytes, options.recycle_max, start.file),
            poison: Poison::default(),
            outbox: start.outbox,
            first: start.file,
            end: AtomicU64::new(0),
            synced: AtomicU64::new(0),
            begun: AtomicU64::new(0),
            complete_to: AtomicU64::new(0),
            newest_bytes: AtomicU64::new(0),
            named: AtomicU64::new(0),
            syncing: Mutex::new(false),
            sync_ended: Condvar::new(),
            live: Mutex::new(start.live.iter().map(LiveFile::recovered).collect()),
            kept: Mutex::new(RetainedFiles { files: kept, ..RetainedFiles::default() }),
            holds: AtomicU64::new(0),
            frames: AtomicU64::new(0),
            appended_bytes: AtomicU64::new(0),
            syncs: AtomicU64::new(0),
        });
        Ok((wal.clone(), Appender { wal, newest: None, previous: start.after, takes_small: false }))
    }

    /// The end of the last frame appended.
    pub(crate) fn end(&self) -> LogPosition {
        self.unpack(self.end.load(Ordering::Acquire))
    }

    /// The position up to which the WAL is known durable.
    pub(crate) fn synced(&self) -> LogPosition {
        self.unpack(self.synced.load(Ordering::Acquire))
    }

    /// Whether it is durable in a shared database's stream, and not in its files.
    pub(crate) fn is_shared(&self) -> bool {
        self.outbox.is_some()
    }

    /// The error of a poisoned WAL.
    pub(crate) fn check(&self) -> Result<()> {
        self.poison.check()
    }

    /// Whether `prepare` has something to do that appends would otherwise wait for. Cheap.
    pub(crate) fn needs_prepare(&self) -> bool {
        let half_used = self.end().offset * 2 >= self.newest_bytes.load(Ordering::Relaxed);
        (half_used && !self.pool.is_ready()) || self.has_unsynced_complete_file()
    }

    /// For a background job: syncs complete files and reserves the next one. Returns whether it did anything.
    /// An error of kind `DiskFull` is temporary; try again after a while.
    pub(crate) fn prepare(&self) -> Result<bool> {
        self.poison.check()?;
        let syncs = self.has_unsynced_complete_file();
        if syncs {
            self.sync_to(self.unpack(self.complete_to.load(Ordering::Acquire)))?;
        }
        let Some(file) = self.pool.prepare(self.write_ahead())? else { return Ok(syncs) };
        kill_point!("wal-prepared-not-named");
        if !self.is_shared() {
            self.make_name_durable(file)?;
        }
        Ok(true)
    }

    /// Releases files in tests, where no SSTable refers to any.
    #[cfg(test)]
    pub(crate) fn release(&self, before: LogFileId) -> Result<()> {
        self.release_unless(before, &|_| Claim::Never)
    }

    /// Releases the files below `before`: nothing in memory came from them, and the manifest says so durably.
    /// They are recycled or removed, unless `claim`, which is called once for each file, says that SSTables
    /// need them; then only the space after their history is freed. The WAL is synced first, unless it is
    /// durable into file `before` already, so that the remaining history is not behind what was removed.
    pub(crate) fn release_unless(&self, before: LogFileId, claim: &dyn Fn(LogFileId) -> Claim) -> Result<()> {
        self.poison.check()?;
        if self.synced().file < before {
            self.sync()?;
        }
        let released = {
            let mut live = self.live.lock();
            if self.is_held() {
                // They are being copied; the next release takes these too.
                return Ok(());
            }
            let synced = self.synced();
            let mut kept = self.kept.lock();
            while live.front().is_some_and(|f| f.file < before && f.is_complete_within(synced)) {
                kept.files.extend(live.pop_front());
            }
            self.take_over(&mut kept)
        };
        kill_point!("wal-before-release");
        self.let_go(&released, claim)
    }

    /// Whether live files are being copied. Called with `live` locked.
    pub(super) fn is_held(&self) -> bool {
        self.holds.load(Ordering::Relaxed) > 0
    }

    pub(super) fn take_over(&self, kept: &mut RetainedFiles) -> Vec<LiveFile> {
        kept.take_over(self.options.kept_bytes, self.options.followed_bytes)
    }

    /// Gives up all these files: one that cannot be removed is stale and is removed at the next open.
    pub(super) fn let_go(&self, files: &[LiveFile], claim: &dyn Fn(LogFileId) -> Claim) -> Result<()> {
        let let_go = |f: &LiveFile| match claim(f.file) {
            // A file from before this open may once have had values of SSTables, so a checkpoint may be
            // linked to it.
            Claim::Never if f.file < self.first => self.pool.remove(f.file),
            Claim::Never => self.pool.give_back(f.file, f.reserved, f.written_to),
            Claim::Past => self.pool.remove(f.file),
            Claim::Held => {
                let used = f.used.unwrap_or(f.reserved);
                give_back_tail(&*self.storage, &self.dir, f.file, used, f.reserved);
                Ok(())
            }
        };
        let results: Vec<_> = files.iter().map(let_go).collect();
        results.into_iter().collect()
    }

    /// Syncs to the end, removes the files without history and frees the reserved space of the newest. The
    /// appender must not be used after.
    pub(crate) fn close(&self) -> Result<LogPosition> {
        let end = self.sync()?;
        self.pool.clear()?;
        if let Some(newest) = self.live.lock().iter_mut().find(|f| f.file == end.file) {
            newest.reserved =
                give_back_tail(&*self.storage, &self.dir, newest.file, end.offset, newest.reserved);
        }
        Ok(end)
    }

    /// Prevents the release of the present live files until the hold is dropped.
    pub(crate) fn hold(self: &Arc<Self>) -> WalHold {
        // Under the lock, so that no release is in the middle of taking them.
        let _live = self.live.lock();
        self.holds.fetch_add(1, Ordering::Relaxed);
        WalHold(self.clone())
    }

    /// The files with history, oldest first.
    pub(crate) fn files(&self) -> Vec<WalFileInfo> {
        let end = self.end();
        let live = self.live.lock();
        let info = |f: &LiveFile| {
            let unfinished = if f.file == end.file { end.offset } else { HEADER_BYTES };
            f.info(f.used.unwrap_or(unfinished))
        };
        live.iter().map(info).collect()
    }

    /// The files that are complete, oldest first.
    pub(crate) fn complete_files(&self) -> Vec<WalFileInfo> {
        self.live.lock().iter().filter_map(|f| Some(f.info(f.used?))).collect()
    }

    /// The number of the database that the WAL belongs to.
    pub(crate) fn database(&self) -> u64 {
        self.database_id
    }

    /// Bytes of history in live files, or what they count in a shared database, whose readers make a request
    /// for each entry.
    pub(crate) fn bytes(&self) -> u64 {
        let files = self.files();
        let weight = match (&self.outbox, files.first()) {
            (Some(outbox), Some(first)) => outbox.weight_from(first.file),
            _ => 0,
        };
        weight.max(files.iter().map(|f| f.used).sum())
    }

    /// Whether a shared database should begin the next file: the newest is spread over many entries.
    pub(crate) fn is_spread(&self) -> bool {
        self.outbox.as_ref().is_some_and(|outbox| outbox.is_spread())
    }

    /// Bytes on disk: live and retained files as reserved, the prepared one, and those to be recycled.
    pub(crate) fn disk_bytes(&self) -> u64 {
        let kept: u64 = self.kept.lock().files.iter().map(|f| f.reserved).sum();
        kept + self.files().iter().map(|f| f.reserved).sum::<u64>() + self.pool.idle_bytes()
    }

    pub(crate) fn stats(&self) -> WalStats {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        WalStats {
            frames: load(&self.frames),
            appended_bytes: load(&self.appended_bytes),
            syncs: load(&self.syncs),
            files_reserved: load(&self.pool.reserved),
            files_recycled: load(&self.pool.recycled),
            written_ahead_bytes: load(&self.pool.written_ahead_bytes),
        }
    }

    /// The parts between the synced position and `goal`, oldest first: the file of each, and where it ends.
    pub(super) fn unsynced_parts(&self, goal: LogPosition) -> Vec<(Arc<dyn MappedFile>, LogPosition)> {
        let synced = self.synced();
        let mut live = self.live.lock();
        let mut parts = Vec::new();
        for f in live.iter_mut().filter(|f| synced.file <= f.file && f.file <= goal.file) {
            // Nobody writes to a complete file; the appender has dropped its mapping.
            if f.used.is_some()
                && let Some(sealed) = f.map.as_ref().and_then(|map| map.sealed())
            {
                f.map = Some(sealed.into());
            }
            let Some(map) = &f.map else { continue };
            let offset = if f.file == goal.file { goal.offset } else { f.used.unwrap_or(goal.offset) };
            let to = LogPosition { file: f.file, offset };
            if to > synced {
                parts.push((map.clone(), to));
            }
        }
        parts
    }

    /// Drops the mappings of complete, synced files.
    pub(super) fn unmap_synced(&self) {
        let synced = self.synced();
        for f in self.live.lock().iter_mut().filter(|f| f.is_complete_within(synced)) {
            f.map = None;
        }
    }

    /// The error for a failed write into a reserved file. It poisons the WAL (I2), except where files are not
    /// overwritten in place: there a full disk may refuse even reserved blocks. Then nothing is appended, and
    /// a later write may succeed.
    fn write_failed(&self, file: LogFileId, e: std::io::Error) -> Error {
        let failed = Error::io("write to the WAL", file_path(&self.dir, file), e);
        match !self.pool.in_place && failed.kind() == ErrorKind::DiskFull {
            true => failed,
            false => self.poison.set(&failed),
        }
    }

    fn has_unsynced_complete_file(&self) -> bool {
        !self.is_shared() && self.synced.load(Ordering::Acquire) < self.complete_to.load(Ordering::Acquire)
    }

    fn write_ahead(&self) -> bool {
        if self.is_shared() {
            return false;
        }
        let (syncs, frames) = (self.syncs.load(Ordering::Relaxed), self.frames.load(Ordering::Relaxed));
        self.options.written_ahead == WrittenAhead::WhenSyncsDominate && frames > 0 && syncs * 2 >= frames
    }

    /// The page size for WAL files. Each page costs a fault, and another after a sync; but a sync writes
    /// dirty pages as a whole.
    fn page_bytes(&self) -> u64 {
        let (syncs, bytes) =
            (self.syncs.load(Ordering::Relaxed), self.appended_bytes.load(Ordering::Relaxed));
        if syncs * BYTES_A_SYNC >= bytes { PAGE_BYTES.0 } else { PAGE_BYTES.1 }
    }

    /// A position in one atomic word: files since `first`, and offset in units of `ALIGN`. The order is the
    /// same.
    pub(super) fn pack(&self, position: LogPosition) -> u64 {
        let files = position.file.0.checked_sub(self.first.0).expect("a position of this WAL");
        assert!(files <= u64::from(u32::MAX) && position.offset < FILE_BYTES_MAX + ALIGN);
        (files << 32) | (position.offset / ALIGN)
    }

    pub(super) fn unpack(&self, word: u64) -> LogPosition {
        let offset = (word & u64::from(u32::MAX)) * ALIGN;
        LogPosition { file: LogFileId(self.first.0 + (word >> 32)), offset }
    }
}

impl Appender {
    /// Appends the encoded frame. It survives a process kill once this returns, a power loss once synced.
    /// After an error nothing was appended; the kind says whether trying again makes sense (`DiskFull`) or
    /// not.
    pub(crate) fn append(&mut self, frame: &mut FrameEncoder) -> Result<Appended> {
        self.wal.poison.check()?;
        let length = frame.frame_bytes();
        if self.wal.is_shared() && length > stream::FRAME_BYTES_MAX {
            let most = stream::FRAME_BYTES_MAX;
            let message = format!("a batch of {length} bytes does not fit the stream, which takes {most}");
            return Err(Error::invalid(message));
        }
        if self.newest.as_ref().is_none_or(|newest| newest.offset + length > newest.map.len()) {
            self.begin_file(length, frame.first_seq())?;
        }
        self.write_window(length)?;
        let Appender { wal, newest: Some(newest), .. } = self else { unreachable!("a file was begun") };
        let (file, offset, last_seq) = (newest.identity.file, newest.offset, frame.last_seq());
        let bytes = frame.finish(newest.identity, offset, Some(wal.synced()), &mut newest.base);
        let length = bytes.len() as u64;
        if let Err(e) = newest.map.write(offset, bytes) {
            // A part of the frame may lie after the WAL's end, where the next one is written: that must be a
            // full one.
            newest.base = None;
            return Err(wal.write_failed(file, e));
        }
        if let Some(outbox) = &wal.outbox {
            outbox.wal(LogPosition { file, offset }, bytes, last_seq);
        }
        kill_point!("wal-copied-not-ended");
        newest.offset += length;
        let end = LogPosition { file, offset: newest.offset };
        wal.end.store(wal.pack(end), Ordering::Release);
        // Only this appender counts, so a load and a store will do.
        wal.frames.store(wal.frames.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        wal.appended_bytes.store(wal.appended_bytes.load(Ordering::Relaxed) + length, Ordering::Relaxed);
        Ok(Appended { start: LogPosition { file, offset }, end })
    }

    /// Ends the newest file, if it has any frame, and begins the next, for frames from `first_seq` on: then
    /// all that was logged is in complete files.
    pub(crate) fn begin_next(&mut self, first_seq: SeqNo) -> Result<()> {
        self.wal.poison.check()?;
        match &self.newest {
            Some(newest) if newest.offset > HEADER_BYTES => self.begin_file(0, first_seq),
            _ => Ok(()),
        }
    }

    /// Writes zeros a window ahead of the frames, in a file whose blocks were not written before: a window
    /// costs less than page faults for its pages one after the other, and syncing bytes in a block that was
    /// never written costs a commit of the file system's journal each time. Only the appender writes after
    /// the WAL's end, so the zeros cannot meet a frame.
    fn write_window(&mut self, length: u64) -> Result<()> {
        let Appender { wal, newest: Some(newest), .. } = self else { return Ok(()) };
        let need = newest.offset + length;
        if need <= newest.zeros_to {
            return Ok(());
        }
        let from = newest.zeros_to.max(newest.offset);
        let to = need.max(from + WINDOW_BYTES).next_multiple_of(WINDOW_BYTES).min(newest.map.len());
        if let Err(e) = newest.map.zero(from, to - from, wal.page_bytes()) {
            return Err(wal.write_failed(newest.identity.file, e));
        }
        newest.zeros_to = to;
        if wal.write_ahead() && wal.pool.in_place {
            // Synced before the frames are, so the device writes these blocks twice.
            wal.pool.written_ahead_bytes.fetch_add(to - from, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Sets whether small files may be begun on a full disk: for writes that make room.
    pub(crate) fn take_small_files(&mut self, may: bool) {
        self.takes_small = may;
    }

    /// Begins a new file with room for a frame of that length and sequence number.
    #[cold]
    fn begin_file(&mut self, frame_bytes: u64, first_seq: SeqNo) -> Result<()> {
        if frame_bytes > FRAME_BYTES_MAX - HEADER_BYTES {
            return Err(Error::invalid(format!("a batch of {frame_bytes} bytes does not fit the WAL")));
        }
        let wal = &*self.wal;
        if wal.has_unsynced_complete_file() {
            wal.sync_to(wal.unpack(wal.complete_to.load(Ordering::Acquire)))?;
        }
        let (file, reserved) = match wal.pool.take(frame_bytes, wal.write_ahead()) {
            Err(e) if e.kind() == ErrorKind::DiskFull && self.takes_small => {
                wal.pool.take_small(frame_bytes)?
            }
            taken => taken?,
        };
        kill_point!("wal-file-taken");
        let map: Arc<dyn MappedFile> = reserved.map.into();
        let previous = match &self.newest {
            Some(full) => LogPosition { file: full.identity.file, offset: full.offset },
            None => self.previous,
        };
        let header = Header {
            database_id: wal.database_id,
            file,
            reserved: map.len(),
            previous,
            synced: wal.synced(),
        };
        let header = header.encode();
        if let Err(e) = map.write(0, &header) {
            let failed = wal.write_failed(file, e);
            // Its number is skipped, as that of a file that could not be reserved.
            let _ = wal.pool.remove(file);
            return Err(failed);
        }
        if let Some(outbox) = &wal.outbox {
            outbox.wal(LogPosition { file, offset: 0 }, &header, SeqNo::ZERO);
        }
        {
            let mut live = wal.live.lock();
            if let Some(newest) = &self.newest {
                let full = live.back_mut().expect("the newest file stays until another is begun");
                full.used = Some(previous.offset);
                full.written_to = newest.zeros_to;
                wal.complete_to.store(wal.pack(previous), Ordering::Release);
            }
            let (reserved, map) = (map.len(), Some(map.clone()));
            live.push_back(LiveFile { file, reserved, used: None, written_to: 0, first_seq, map });
        }
        kill_point!("wal-file-begun");
        wal.newest_bytes.store(map.len(), Ordering::Relaxed);
        let identity = FileIdentity::new(wal.database_id, file);
        let zeros_to = reserved.written_to.max(HEADER_BYTES);
        self.newest = Some(Newest { identity, map, offset: HEADER_BYTES, zeros_to, base: None });
        Ok(())
    }
}
