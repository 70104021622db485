//! The storage traits over a simulated disk. Each call is counted and recorded, and may fail as planned.

use super::disk::{FileId, normal};
use super::faults::{Failure, OpKind};
use super::{Shared, SimStorage, State, crashed};
use crate::storage::{MappedFile, MappedRead, ReadFile, Storage, WriteFile, check_reserved};
use parking_lot::MutexGuard;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

impl Shared {
    /// Admits an operation that takes effect as a whole or not at all.
    fn admit(&self, op: OpKind, path: &Path, offset: u64, len: u64) -> io::Result<MutexGuard<'_, State>> {
        match self.meet(op, path, offset, len, &[])? {
            (state, None) => Ok(state),
            (_, Some(Failure::Injected(error))) => Err(error),
            (_, Some(Failure::Crashed)) => Err(crashed()),
        }
    }

    /// Counts an operation; the caller applies its planned failure.
    fn meet(
        &self,
        op: OpKind,
        path: &Path,
        offset: u64,
        len: u64,
        content: &[u8],
    ) -> io::Result<(MutexGuard<'_, State>, Option<Failure>)> {
        let hook = {
            let state = self.state.lock();
            if state.frozen {
                return Err(crashed());
            }
            state.hook.clone()
        };
        // Outside the lock, so that the hook may copy the disk.
        if let Some(hook) = hook {
            hook(op, path);
        }
        let mut state = self.state.lock();
        if state.frozen {
            return Err(crashed());
        }
        if let Some(clock) = &state.clock {
            clock.advance_us(op.takes_us());
        }
        let failure = state.faults.meet(op, path, offset, len, content);
        state.frozen = matches!(failure, Some(Failure::Crashed));
        Ok((state, failure))
    }

    /// Writes as much as the planned failure and quota allow.
    fn write(&self, file: &Handle, offset: Option<u64>, bytes: &[u8]) -> io::Result<()> {
        let at = offset.unwrap_or(0);
        let (mut state, failure) = self.meet(OpKind::Write, &file.path, at, bytes.len() as u64, bytes)?;
        let state = &mut *state;
        let offset = offset.unwrap_or_else(|| state.disk.inode(file.id).len());
        let mut n = match failure {
            None => bytes.len(),
            Some(_) => state.rng.index(bytes.len() + 1),
        };
        let free = state.disk.free();
        let growth = state.disk.inode(file.id).growth(offset, n);
        let full = growth > free;
        if full {
            n = n.saturating_sub((growth - free) as usize);
        }
        state.bytes_written += n as u64;
        state.disk.edit(file.id, |inode| inode.write(offset, &bytes[..n]));
        match failure {
            Some(Failure::Injected(error)) => Err(error),
            Some(Failure::Crashed) => Err(crashed()),
            None if full => Err(io::ErrorKind::StorageFull.into()),
            None => Ok(()),
        }
    }

    fn sync(&self, file: &Handle) -> io::Result<()> {
        let (mut state, failure) = self.meet(OpKind::Sync, &file.path, 0, 0, &[])?;
        match failure {
            None => {
                state.disk.edit(file.id, |inode| inode.sync());
                Ok(())
            }
            Some(Failure::Injected(error)) => {
                state.disk.edit(file.id, |inode| inode.fail_sync());
                Err(error)
            }
            Some(Failure::Crashed) => Err(crashed()),
        }
    }
}

/// An open file: it lives, even nameless, until this is dropped.
struct Handle {
    shared: Arc<Shared>,
    id: FileId,
    path: PathBuf,
}

impl Handle {
    fn open(shared: &Arc<Shared>, state: &mut State, id: FileId, path: PathBuf) -> Self {
        state.disk.opened(id);
        Self { shared: shared.clone(), id, path }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.shared.state.lock().disk.closed(self.id);
    }
}

struct SimFile(Handle);

impl WriteFile for SimFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.shared.write(&self.0, None, bytes)
    }
    fn sync(&mut self) -> io::Result<()> {
        self.0.shared.sync(&self.0)
    }
}

impl ReadFile for SimFile {
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let state = self.0.shared.admit(OpKind::Read, &self.0.path, offset, buffer.len() as u64)?;
        state.disk.inode(self.0.id).content().read_exact_at(buffer, offset)
    }
    fn len(&self) -> io::Result<u64> {
        let state = self.0.shared.admit(OpKind::Read, &self.0.path, 0, 0)?;
        Ok(state.disk.inode(self.0.id).len())
    }
    fn mapped(&self) -> Option<Arc<dyn MappedRead>> {
        let Handle { shared, id, path } = &self.0;
        let mut state = shared.admit(OpKind::Map, path, 0, 0).ok()?;
        let bytes = state.disk.inode(*id).content().to_vec();
        let file = Handle::open(shared, &mut state, *id, path.clone());
        Some(Arc::new(SimMappedRead { file, bytes, torn: OnceLock::new() }))
    }
}

/// A mapped file. Taking its bytes counts as one read. If that fails, every other page is zeros.
struct SimMappedRead {
    file: Handle,
    bytes: Vec<u8>,
    torn: OnceLock<Vec<u8>>,
}

const PAGE: usize = 4 << 10;

impl MappedRead for SimMappedRead {
    fn bytes(&self) -> &[u8] {
        if self.torn.get().is_none() && self.file.shared.admit(OpKind::Read, &self.file.path, 0, 0).is_err() {
            let mut torn = self.bytes.clone();
            torn.chunks_mut(PAGE).step_by(2).for_each(|page| page.fill(0));
            let _ = self.torn.set(torn);
        }
        self.torn.get().unwrap_or(&self.bytes)
    }
    fn failed(&self) -> bool {
        self.torn.get().is_some()
    }
}

struct SimMapped {
    file: Handle,
    len: u64,
}

impl MappedFile for SimMapped {
    fn len(&self) -> u64 {
        self.len
    }
    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        check_reserved(offset, bytes.len() as u64, self.len)?;
        self.file.shared.write(&self.file, Some(offset), bytes)
    }
    fn sync(&self) -> io::Result<()> {
        self.file.shared.sync(&self.file)
    }
}

/// Holds a lock file's lock until dropped.
struct SimLock {
    shared: Arc<Shared>,
    path: PathBuf,
}

impl Drop for SimLock {
    fn drop(&mut self) {
        self.shared.state.lock().locks.remove(&self.path);
    }
}

impl Storage for SimStorage {
    fn create(&self, path: &Path) -> io::Result<Box<dyn WriteFile>> {
        let path = normal(path);
        let mut state = self.shared.admit(OpKind::Create, &path, 0, 0)?;
        if state.disk.lookup(&path).is_ok() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let id = state.disk.file_or_new(&path)?;
        Ok(Box::new(SimFile(Handle::open(&self.shared, &mut state, id, path))))
    }

    fn append(&self, path: &Path) -> io::Result<Box<dyn WriteFile>> {
        let path = normal(path);
        let mut state = self.shared.admit(OpKind::Append, &path, 0, 0)?;
        let id = state.disk.file(&path)?;
        Ok(Box::new(SimFile(Handle::open(&self.shared, &mut state, id, path))))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn ReadFile>> {
        let path = normal(path);
        let mut state = self.shared.admit(OpKind::Open, &path, 0, 0)?;
        let id = state.disk.file(&path)?;
        Ok(Arc::new(SimFile(Handle::open(&self.shared, &mut state, id, path))))
    }

    fn map(&self, path: &Path, len: u64, written_ahead: bool) -> io::Result<Box<dyn MappedFile>> {
        let path = normal(path);
        let mut state = self.shared.admit(OpKind::Map, &path, 0, len)?;
        let id = state.disk.file(&path)?;
        let had = state.disk.inode(id).len();
        if len.saturating_sub(had) > state.disk.free() {
            return Err(io::ErrorKind::StorageFull.into());
        }
        state.disk.edit(id, |inode| {
            inode.set_len(len);
            if written_ahead && had < len {
                inode.sync();
            }
        });
        if written_ahead {
            state.bytes_written += len.saturating_sub(had);
        }
        let file = Handle::open(&self.shared, &mut state, id, path);
        Ok(Box::new(SimMapped { file, len }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let (from, to) = (normal(from), normal(to));
        self.shared.admit(OpKind::Rename, &from, 0, 0)?.disk.rename(&from, &to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let path = normal(path);
        self.shared.admit(OpKind::Remove, &path, 0, 0)?.disk.remove(&path)
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        let (from, to) = (normal(from), normal(to));
        self.shared.admit(OpKind::Link, &from, 0, 0)?.disk.link(&from, &to)
    }

    fn second_name(&self, from: &Path, to: &Path) -> io::Result<bool> {
        self.link(from, to).map(|()| true)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let dir = normal(dir);
        self.shared.admit(OpKind::List, &dir, 0, 0)?.disk.list(&dir)
    }

    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        let dir = normal(dir);
        self.shared.admit(OpKind::CreateDir, &dir, 0, 0)?.disk.create_dir(&dir)
    }

    fn remove_dir(&self, dir: &Path) -> io::Result<()> {
        let dir = normal(dir);
        self.shared.admit(OpKind::RemoveDir, &dir, 0, 0)?.disk.remove_dir(&dir)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        let dir = normal(dir);
        self.shared.admit(OpKind::SyncDir, &dir, 0, 0)?.disk.sync_dir(&dir)
    }

    fn list_all(&self, dir: &Path) -> io::Result<Vec<String>> {
        let dir = normal(dir);
        self.shared.admit(OpKind::List, &dir, 0, 0)?.disk.list_all(&dir)
    }

    fn lock(&self, path: &Path, create: bool) -> io::Result<Box<dyn Send + Sync>> {
        let path = normal(path);
        let mut state = self.shared.admit(OpKind::Lock, &path, 0, 0)?;
        if state.locks.contains(&path) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        match create {
            true => state.disk.file_or_new(&path)?,
            false => state.disk.file(&path)?,
        };
        state.locks.insert(path.clone());
        Ok(Box::new(SimLock { shared: self.shared.clone(), path }))
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        let path = normal(path);
        Ok(self.shared.admit(OpKind::Exists, &path, 0, 0)?.disk.lookup(&path).is_ok())
    }

    fn punch_hole(&self, path: &Path, offset: u64, len: u64) -> io::Result<bool> {
        let path = normal(path);
        let mut state = self.shared.admit(OpKind::Punch, &path, offset, len)?;
        let id = state.disk.file(&path)?;
        if state.disk.links(id) != 1 {
            return Ok(false);
        }
        state.disk.edit(id, |inode| inode.punch(offset, len));
        Ok(true)
    }
}
