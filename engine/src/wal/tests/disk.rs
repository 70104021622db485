//! A disk in memory for the tests of this folder: loses unsynced bytes and names, sector by sector and name
//! by name, fails on demand, and after a failed sync calls lost bytes clean, as real systems do.

use crate::storage::{Env, MappedFile, OsRandom, ReadFile, Storage, SystemClock, WriteFile};
use parking_lot::Mutex;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const SECTOR: usize = 512;

/// Calls that can be made to fail.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Call {
    Map,
    MapWrite,
    Sync,
    SyncDir,
    WriteBack,
    Rename,
    Remove,
}

#[derive(Debug, Default)]
struct Inode {
    data: Vec<u8>,
    durable: Vec<u8>,
    dirty: BTreeSet<usize>,
}

impl Inode {
    fn resize(&mut self, len: usize) {
        // Reserving is journalled with the name; only contents are at stake here.
        self.data.resize(len, 0);
        self.durable.resize(len, 0);
    }
    fn write(&mut self, offset: usize, bytes: &[u8]) {
        self.data[offset..offset + bytes.len()].copy_from_slice(bytes);
        let last = (offset + bytes.len()).saturating_sub(1) / SECTOR;
        self.dirty.extend(offset / SECTOR..=last);
    }
    /// Makes the dirty sectors durable for which `keep` says so.
    fn sync(&mut self, keep: &mut dyn FnMut() -> bool) {
        for sector in std::mem::take(&mut self.dirty) {
            let at = sector * SECTOR..((sector + 1) * SECTOR).min(self.data.len());
            if keep() {
                self.durable[at.clone()].copy_from_slice(&self.data[at]);
            }
        }
    }
    fn crash(&mut self, keep: &mut dyn FnMut() -> bool) {
        self.sync(keep);
        self.data.clone_from(&self.durable);
    }
}

type Names = BTreeMap<PathBuf, Arc<Mutex<Inode>>>;

#[derive(Debug, Default)]
struct State {
    names: Names,
    durable_names: Names,
    fail: Option<(Call, u32)>,
    syncs: usize,
    /// Parts whose write-back was started before a sync, in order.
    written_back: Vec<(u64, u64)>,
}

/// The disk. Clones are the same disk.
#[derive(Clone, Debug, Default)]
pub(super) struct Disk(Arc<Mutex<State>>);

impl Disk {
    pub(super) fn env(&self) -> Env {
        let (clock, random) = (Arc::new(SystemClock::new()), Arc::new(OsRandom::new()));
        Env { storage: Arc::new(self.clone()), clock, random }
    }
    /// Makes the `nth` call of that kind from now on (0 is the next) fail, once.
    pub(super) fn fail(&self, call: Call, nth: u32) {
        self.0.lock().fail = Some((call, nth));
    }
    pub(super) fn syncs(&self) -> usize {
        self.0.lock().syncs
    }
    pub(super) fn written_back(&self) -> Vec<(u64, u64)> {
        self.0.lock().written_back.clone()
    }
    /// Power loss: every unsynced sector and name survives or not as `keep` says.
    pub(super) fn crash(&self, keep: &mut dyn FnMut() -> bool) {
        let mut state = self.0.lock();
        let all: BTreeSet<PathBuf> = state.names.keys().chain(state.durable_names.keys()).cloned().collect();
        let mut names = Names::new();
        for path in all {
            let (now, then) = (state.names.get(&path), state.durable_names.get(&path));
            let same = matches!((now, then), (Some(a), Some(b)) if Arc::ptr_eq(a, b));
            let survivor = if same || keep() { now } else { then };
            names.extend(survivor.map(|inode| (path.clone(), inode.clone())));
        }
        let mut seen = BTreeSet::new();
        for inode in names.values().filter(|inode| seen.insert(Arc::as_ptr(inode))) {
            inode.lock().crash(keep);
        }
        state.durable_names.clone_from(&names);
        state.names = names;
        state.fail = None;
    }
    pub(super) fn bytes(&self, path: &Path) -> Vec<u8> {
        self.0.lock().names[path].lock().data.clone()
    }
    /// Puts bytes in a file durably, as damage or as a fixture.
    pub(super) fn set_bytes(&self, path: &Path, bytes: Vec<u8>) {
        let inode =
            Arc::new(Mutex::new(Inode { durable: bytes.clone(), data: bytes, dirty: BTreeSet::new() }));
        let mut state = self.0.lock();
        state.names.insert(path.to_path_buf(), inode.clone());
        state.durable_names.insert(path.to_path_buf(), inode);
    }
    /// An independent disk with the same files, all durable.
    pub(super) fn copy(&self) -> Disk {
        let copy = Disk::default();
        for (path, inode) in &self.0.lock().names {
            copy.set_bytes(path, inode.lock().data.clone());
        }
        copy
    }
    /// An independent disk with what would surely survive a power loss now.
    #[cfg(models)]
    pub(super) fn survivor(&self) -> Disk {
        let copy = Disk::default();
        for (path, inode) in &self.0.lock().durable_names {
            copy.set_bytes(path, inode.lock().durable.clone());
        }
        copy
    }
    fn gate(&self, call: Call, error: io::ErrorKind) -> io::Result<()> {
        let mut state = self.0.lock();
        match &mut state.fail {
            Some((failing, nth)) if *failing == call && *nth == 0 => state.fail = None,
            Some((failing, nth)) if *failing == call => {
                *nth -= 1;
                return Ok(());
            }
            _ => return Ok(()),
        }
        Err(error.into())
    }
    fn inode(&self, path: &Path) -> io::Result<Arc<Mutex<Inode>>> {
        self.0.lock().names.get(path).cloned().ok_or(io::ErrorKind::NotFound.into())
    }
}

impl Storage for Disk {
    fn create(&self, path: &Path) -> io::Result<Box<dyn WriteFile>> {
        match self.0.lock().names.entry(path.to_path_buf()) {
            Entry::Occupied(_) => Err(io::ErrorKind::AlreadyExists.into()),
            Entry::Vacant(name) => {
                name.insert(Arc::default());
                Ok(Box::new(Empty))
            }
        }
    }
    fn open(&self, path: &Path) -> io::Result<Arc<dyn ReadFile>> {
        Ok(Arc::new(Handle { inode: self.inode(path)?, disk: self.clone() }))
    }
    fn map(&self, path: &Path, len: u64, _written_ahead: bool) -> io::Result<Box<dyn MappedFile>> {
        let inode = self.inode(path)?;
        self.gate(Call::Map, io::ErrorKind::StorageFull)?;
        inode.lock().resize(len as usize);
        Ok(Box::new(Handle { inode, disk: self.clone() }))
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.gate(Call::Rename, io::ErrorKind::Other)?;
        let mut state = self.0.lock();
        let inode = state.names.remove(from).ok_or(io::ErrorKind::NotFound)?;
        state.names.insert(to.to_path_buf(), inode);
        Ok(())
    }
    fn remove(&self, path: &Path) -> io::Result<()> {
        self.gate(Call::Remove, io::ErrorKind::Other)?;
        self.0.lock().names.remove(path).map(|_| ()).ok_or(io::ErrorKind::NotFound.into())
    }
    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let state = self.0.lock();
        let inside = state.names.keys().filter(|path| path.parent() == Some(dir));
        Ok(inside.filter_map(|path| path.file_name()?.to_str().map(String::from)).collect())
    }
    fn create_dir(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }
    fn remove_dir(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }
    fn sync_dir(&self, _: &Path) -> io::Result<()> {
        self.gate(Call::SyncDir, io::ErrorKind::Other)?;
        let mut state = self.0.lock();
        state.durable_names = state.names.clone();
        Ok(())
    }
    fn exists(&self, path: &Path) -> io::Result<bool> {
        Ok(self.0.lock().names.contains_key(path))
    }
}

/// A new file, which is mapped before anything is written.
struct Empty;

impl WriteFile for Empty {
    fn write(&mut self, _: &[u8]) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
    fn sync(&mut self) -> io::Result<()> {
        Ok(())
    }
}

struct Handle {
    inode: Arc<Mutex<Inode>>,
    disk: Disk,
}

impl ReadFile for Handle {
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let inode = self.inode.lock();
        let from = inode.data.get(offset as usize..).and_then(|rest| rest.get(..buffer.len()));
        buffer.copy_from_slice(from.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }
    fn len(&self) -> io::Result<u64> {
        Ok(self.inode.lock().data.len() as u64)
    }
}

impl MappedFile for Handle {
    fn len(&self) -> u64 {
        self.inode.lock().data.len() as u64
    }
    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.disk.gate(Call::MapWrite, io::ErrorKind::Other)?;
        self.inode.lock().write(offset as usize, bytes);
        Ok(())
    }
    fn sync(&self) -> io::Result<()> {
        self.disk.0.lock().syncs += 1;
        if let Err(e) = self.disk.gate(Call::Sync, io::ErrorKind::Other) {
            self.inode.lock().dirty.clear();
            return Err(e);
        }
        self.inode.lock().sync(&mut || true);
        Ok(())
    }
    fn begin_write_back(&self, from: u64, to: u64) -> io::Result<()> {
        self.disk.gate(Call::WriteBack, io::ErrorKind::Other)?;
        self.disk.0.lock().written_back.push((from, to));
        Ok(())
    }
}
