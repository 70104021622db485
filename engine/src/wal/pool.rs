//! The next WAL files: one reserved ahead, and released ones to be recycled.
//!
//! A file from the pool always has the next free number, so numbers ascend with history. Recycling renames a
//! released file to its new number. This loses no live file: the file is in the pool because the manifest
//! durably needs it no more, and the new number was never used in the directory. If the rename does not
//! survive a crash, the file is back under its old number, below the manifest's first file, and is deleted as
//! stale (not recycled, as it may have frames sealed for the lost number). If it survives, its old frames and
//! header belong to another number and are not valid under this one.

use super::file::{HEADER_BYTES, file_path};
use crate::error::{Error, Result};
use crate::storage::{MappedFile, Storage};
use crate::sync::{AtomicBool, AtomicU64, Mutex, Ordering};
use crate::types::LogFileId;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The least length of a WAL file that is reserved on a full disk.
const SMALL_BYTES: u64 = 32 << 10;

/// Whether a new file is filled with zeros when it is reserved, which makes syncing it cheaper and costs its
/// length in device bytes. Released files are recycled first and do not need it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum WrittenAhead {
    /// Never.
    Never,
    /// While at least every second append is followed by a sync.
    #[default]
    WhenSyncsDominate,
}

pub(super) struct Pool {
    storage: Arc<dyn Storage>,
    dir: PathBuf,
    file_bytes: u64,
    recycle_max: usize,
    /// Whether overwriting files in `dir` keeps their blocks.
    pub(super) in_place: bool,
    state: Mutex<State>,
    /// Whether `state.ready` is set; read without the lock, which a reservation holds for long.
    ready: AtomicBool,
    pub(super) reserved: AtomicU64,
    pub(super) recycled: AtomicU64,
    pub(super) written_ahead_bytes: AtomicU64,
}

struct State {
    next: LogFileId,
    ready: Option<Reserved>,
    spares: Vec<Spare>,
}

/// A released file to be recycled.
struct Spare {
    file: LogFileId,
    written_to: u64,
}

/// A file to be written.
pub(super) struct Reserved {
    pub(super) map: Box<dyn MappedFile>,
    /// The end of the blocks that were written before; syncing new bytes in them needs no metadata.
    pub(super) written_to: u64,
}

impl Pool {
    pub(super) fn new(
        storage: Arc<dyn Storage>,
        dir: &Path,
        file_bytes: u64,
        recycle_max: usize,
        next: LogFileId,
    ) -> Self {
        // Where files are not overwritten in place, overwriting takes new blocks.
        let in_place = storage.writes_in_place(dir);
        let recycle_max = if in_place { recycle_max } else { 0 };
        Self {
            storage,
            dir: dir.to_path_buf(),
            file_bytes,
            recycle_max,
            in_place,
            state: Mutex::new(State { next, ready: None, spares: Vec::new() }),
            ready: AtomicBool::new(false),
            reserved: AtomicU64::new(0),
            recycled: AtomicU64::new(0),
            written_ahead_bytes: AtomicU64::new(0),
        }
    }

    /// Whether a reserved file is ready.
    pub(super) fn is_ready(&self) -> bool {
        self.ready.load(Ordering::Relaxed)
    }

    /// Reserves the next file if none is ready; returns its number if it did. The name is not yet durable.
    pub(super) fn prepare(&self, written_ahead: bool) -> Result<Option<LogFileId>> {
        let mut state = self.state.lock();
        if state.ready.is_some() {
            return Ok(None);
        }
        let file = self.reserve(&mut state, self.file_bytes, written_ahead)?;
        state.ready = Some(file);
        self.ready.store(true, Ordering::Relaxed);
        Ok(Some(state.next))
    }

    /// The next file, with room for `need` bytes after its header: the one that is ready, or a new one. A
    /// frame larger than a WAL file gets a file of exactly its size (the ready one is extended).
    pub(super) fn take(&self, need: u64, written_ahead: bool) -> Result<(LogFileId, Reserved)> {
        let length = self.file_bytes.max(HEADER_BYTES + need);
        self.hand_out(length, length, written_ahead)
    }

    /// The next file, no longer than needed: on a full disk, for writes that make room.
    pub(super) fn take_small(&self, need: u64) -> Result<(LogFileId, Reserved)> {
        let least = HEADER_BYTES + need;
        let length = least.max(SMALL_BYTES).next_multiple_of(4096).min(self.file_bytes.max(least));
        // One may have been made ready meanwhile: it has the next number.
        self.hand_out(least, length, false)
    }

    /// The next file: the one that is ready, if it has `least` bytes, or one of that length.
    fn hand_out(&self, least: u64, length: u64, written_ahead: bool) -> Result<(LogFileId, Reserved)> {
        let mut state = self.state.lock();
        self.ready.store(false, Ordering::Relaxed);
        let file = match state.ready.take() {
            Some(ready) if ready.map.len() >= least => ready,
            Some(ready) => self.map(&mut state, length, ready.written_to, false)?,
            None => self.reserve(&mut state, length, written_ahead)?,
        };
        let id = state.next;
        state.next = id.next();
        Ok((id, file))
    }

    /// Makes a file with the next free number: a recycled one, or a new one.
    fn reserve(&self, state: &mut State, length: u64, written_ahead: bool) -> Result<Reserved> {
        let spare = if length == self.file_bytes { state.spares.pop() } else { None };
        let spare = self.name(state, spare)?;
        kill_point!("wal-reserve-before-map");
        let written_ahead = written_ahead && spare.is_none() && self.in_place;
        let written_to =
            if written_ahead { length } else { spare.as_ref().map_or(0, |spare| spare.written_to) };
        let reserved = self.map(state, length, written_to, written_ahead)?;
        let counter = if spare.is_some() { &self.recycled } else { &self.reserved };
        counter.fetch_add(1, Ordering::Relaxed);
        if written_ahead {
            self.written_ahead_bytes.fetch_add(length, Ordering::Relaxed);
        }
        Ok(reserved)
    }

    /// Renames a released file to the next number, or creates a new file with it; returns which of the two. A
    /// number whose name is taken, for example by a foreign file, is skipped.
    fn name(&self, state: &mut State, mut spare: Option<Spare>) -> Result<Option<Spare>> {
        loop {
            let path = file_path(&self.dir, state.next);
            let named = match &spare {
                Some(spare) => self.storage.rename_new(&file_path(&self.dir, spare.file), &path),
                None => self.storage.create(&path).map(drop),
            };
            match named {
                Ok(()) => return Ok(spare),
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => state.next = state.next.next(),
                // One that cannot be renamed is left as a stale file; a new one takes its place.
                Err(_) if spare.is_some() => spare = None,
                Err(e) => {
                    // The name may or may not have been created, so it is not used again.
                    state.next = state.next.next();
                    return Err(Error::io("reserve a WAL file", &path, e));
                }
            }
        }
    }

    /// Reserves the existing file of the next number.
    fn map(&self, state: &mut State, length: u64, written_to: u64, written_ahead: bool) -> Result<Reserved> {
        let path = file_path(&self.dir, state.next);
        match self.storage.map(&path, length, written_ahead) {
            Ok(map) => Ok(Reserved { map, written_to }),
            Err(e) => {
                // A partial reservation is freed, as the disk may be full. Its number is not reused: its name
                // may count as durable already, which would be wrong for another file of that name.
                let _ = self.storage.remove(&path);
                state.next = state.next.next();
                Err(Error::io("reserve a WAL file", &path, e))
            }
        }
    }

    /// Takes a file that is no longer needed and whose blocks before `written_to` were written: keeps it to
    /// be recycled, or removes it.
    pub(super) fn give_back(&self, file: LogFileId, reserved: u64, written_to: u64) -> Result<()> {
        let mut state = self.state.lock();
        if reserved == self.file_bytes && state.spares.len() < self.recycle_max {
            // The oldest is at the end of the list and is recycled first.
            state.spares.insert(0, Spare { file, written_to });
            return Ok(());
        }
        drop(state);
        self.remove(file)
    }

    /// Bytes on disk of files without history.
    pub(super) fn idle_bytes(&self) -> u64 {
        let state = self.state.lock();
        state.ready.as_ref().map_or(0, |file| file.map.len()) + state.spares.len() as u64 * self.file_bytes
    }

    /// Removes the files without history.
    pub(super) fn clear(&self) -> Result<()> {
        let mut state = self.state.lock();
        while let Some(spare) = state.spares.pop() {
            self.remove(spare.file)?;
        }
        if state.ready.take().is_some() {
            self.ready.store(false, Ordering::Relaxed);
            self.remove(state.next)?;
        }
        Ok(())
    }

    pub(super) fn remove(&self, file: LogFileId) -> Result<()> {
        let path = file_path(&self.dir, file);
        match self.storage.remove(&path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(Error::io("remove", &path, e)),
            _ => Ok(()),
        }
    }
}

#[cfg(all(test, not(models)))]
mod tests {
    use super::*;
    use crate::storage::sim::SimWorld;

    #[test]
    fn a_file_that_was_made_ready_meanwhile_is_handed_out_under_its_own_number() {
        let env = SimWorld::new(1).env();
        env.storage.create_dir(Path::new("db")).unwrap();
        let pool = Pool::new(env.storage.clone(), Path::new("db"), 4096, 2, LogFileId(1));
        let ready = pool.prepare(false).unwrap().unwrap();
        assert_eq!(pool.take_small(100).unwrap().0, ready);
        let (next, file) = pool.take(100, false).unwrap();
        assert_eq!((next, file.map.len()), (LogFileId(2), 4096));
        file.map.write(0, b"two").unwrap();
        let mut found = [0; 3];
        env.storage.open(&file_path(Path::new("db"), next)).unwrap().read_exact_at(&mut found, 0).unwrap();
        assert_eq!(&found, b"two");
    }

    #[test]
    fn a_file_used_again_is_known_to_be_written_as_far_as_it_was() {
        let env = SimWorld::new(1).env();
        env.storage.create_dir(Path::new("db")).unwrap();
        let pool = Pool::new(env.storage.clone(), Path::new("db"), 4096, 2, LogFileId(1));
        let (first, new) = pool.take(100, false).unwrap();
        let (second, ahead) = pool.take(100, true).unwrap();
        assert_eq!((new.written_to, ahead.written_to), (0, 4096));
        pool.give_back(first, 4096, 1024).unwrap();
        pool.give_back(second, 4096, 4096).unwrap();
        // The oldest first; recycled files are not filled with zeros.
        let again = [(); 3].map(|()| pool.take(100, true).unwrap().1.written_to);
        assert_eq!(again, [1024, 4096, 4096]);
        assert_eq!(
            (pool.recycled.load(Ordering::Relaxed), pool.written_ahead_bytes.load(Ordering::Relaxed)),
            (2, 8192)
        );
    }
}
