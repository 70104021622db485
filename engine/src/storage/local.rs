//! The machine's own file system, clock and randomness.
#![expect(unsafe_code, reason = "memory-mapped WAL files; the mapping is the point (see `LocalMapped`)")]
#![allow(clippy::disallowed_methods, reason = "this is where the real world is let in")]

use super::direct::DirectRead;
use super::mapping::Mapping;
use super::place::{BoundDir, Place, is_same};
use super::process;
use super::{
    Clock, FileAccess, MappedFile, MappedRead, Random, ReadFile, Storage, WriteFile, check_reserved,
};
use crate::error::NoDescriptor;
use crate::types::random::{STEP, mix};
use rustix::fs::{FileType, OFlags};
use std::fs::{File, TryLockError};
use std::io::{self, Write};
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Files on the local file system.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// use siltstone::storage::{LocalStorage, Storage};
/// let storage = LocalStorage::new();
/// storage.create(&dir.path().join("a"))?.write(b"bytes")?;
/// assert_eq!(storage.list(dir.path())?, ["a"]);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct LocalStorage {
    access: FileAccess,
    /// Directories that are held open, for look-ups of paths in them.
    bound: Vec<Arc<BoundDir>>,
}

impl LocalStorage {
    /// The local file system; files are created for the process's own user alone ([`FileAccess::Owner`]).
    pub fn new() -> Self {
        Self::default()
    }

    fn place<'a>(&'a self, path: &'a Path) -> Place<'a> {
        Place::of(path, &self.bound)
    }

    fn open_file(&self, path: &Path, flags: OFlags) -> io::Result<File> {
        self.place(path).open(flags, self.access.file_mode()).map_err(with_limit)
    }
}

/// Flags of a file that must not exist.
const NEW: OFlags = OFlags::WRONLY.union(OFlags::CREATE).union(OFlags::EXCL);

/// The lock of a file. It is released explicitly, as a process that was forked meanwhile has the file open,
/// too.
struct Locked(File);

impl Drop for Locked {
    fn drop(&mut self) {
        let _ = self.0.unlock();
    }
}

impl Storage for LocalStorage {
    fn with_access(&self, access: FileAccess) -> Option<Arc<dyn Storage>> {
        Some(Arc::new(Self { access, ..self.clone() }))
    }

    fn bind(&self, dir: &Path) -> io::Result<Option<Arc<dyn Storage>>> {
        let mut bound = self.clone();
        bound.bound.push(Arc::new(BoundDir::open(dir).map_err(with_limit)?));
        Ok(Some(Arc::new(bound)))
    }

    fn absolute(&self, path: &Path) -> io::Result<PathBuf> {
        std::path::absolute(path)
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn WriteFile>> {
        Ok(Box::new(LocalWrite::new(self.open_file(path, NEW)?, 0)))
    }

    fn append(&self, path: &Path) -> io::Result<Box<dyn WriteFile>> {
        let file = self.open_file(path, OFlags::WRONLY | OFlags::APPEND)?;
        let len = file.metadata()?.len();
        Ok(Box::new(LocalWrite::new(file, len)))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn ReadFile>> {
        Ok(Arc::new(LocalRead(self.open_file(path, OFlags::RDONLY)?)))
    }

    fn open_direct(&self, path: &Path) -> io::Result<Arc<dyn ReadFile>> {
        let file = self.open_file(path, OFlags::RDONLY | OFlags::DIRECT).map_err(DirectRead::refused)?;
        Ok(Arc::new(DirectRead(file)))
    }

    fn map(&self, path: &Path, len: u64, written_ahead: bool) -> io::Result<Box<dyn MappedFile>> {
        let file = self.open_file(path, OFlags::RDWR)?;
        let had = file.metadata()?.len();
        if had > len {
            file.set_len(len)?;
        }
        check_file_limit(len)?;
        reserve(&file, len)?;
        if written_ahead && had < len {
            write_zeros(&file, had, len, u64::MAX)?;
            file.sync_data()?;
        }
        if !rustix::fs::fstatfs(&file).is_ok_and(is_in_place) {
            return Ok(Box::new(LocalReserved { file, len, is_new: had == 0 }));
        }
        // SAFETY: the file is reserved to `len` and only this database, which holds its directory's lock,
        // maps or truncates it; `LocalMapped` never forms a reference into the mapping.
        let map = memmap2::MmapOptions::new().len(len as usize).map_raw(&file)?;
        // A new file has nothing to read, and read-ahead of faults would fill pages that are about to be
        // overwritten. Only advice, so it may fail.
        #[cfg(unix)]
        if had == 0 {
            let _ = map.advise(memmap2::Advice::Random);
        }
        let (written, gone) = (AtomicU64::new(0), AtomicU64::new(0));
        Ok(Box::new(LocalMapped { file: Arc::new(file), map, written, gone }))
    }

    fn writes_in_place(&self, dir: &Path) -> bool {
        let place = self.place(dir);
        match place.bound_itself() {
            Some(bound) => rustix::fs::fstatfs(bound.file()).is_ok_and(is_in_place),
            None => rustix::fs::statfs(dir).is_ok_and(is_in_place),
        }
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.place(from).rename(&self.place(to))
    }

    fn rename_new(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.place(from).rename_new(&self.place(to))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.place(path).remove()
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        if self.second_name(from, to)? {
            return Ok(());
        }
        let mut source = self.open_file(from, OFlags::RDONLY)?;
        let mut target = self.open_file(to, NEW)?;
        io::copy(&mut source, &mut target)?;
        target.sync_all()
    }

    fn second_name(&self, from: &Path, to: &Path) -> io::Result<bool> {
        match self.place(from).link(&self.place(to)) {
            // Not permitted: some file systems and containers allow no links.
            Err(e)
                if matches!(
                    e.kind(),
                    io::ErrorKind::CrossesDevices
                        | io::ErrorKind::Unsupported
                        | io::ErrorKind::PermissionDenied
                        | io::ErrorKind::TooManyLinks
                ) =>
            {
                Ok(false)
            }
            linked => linked.map(|()| true),
        }
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let entries = self.place(dir).entries()?.into_iter();
        let files = entries.filter(|(_, kind)| *kind != FileType::Directory);
        let mut names: Vec<String> = files.filter_map(|(name, _)| String::from_utf8(name).ok()).collect();
        names.sort_unstable();
        Ok(names)
    }

    fn list_all(&self, dir: &Path) -> io::Result<Vec<String>> {
        let entries = self.place(dir).entries()?.into_iter().map(|(name, kind)| {
            let end = if kind == FileType::Directory { "/" } else { "" };
            String::from_utf8_lossy(&name).into_owned() + end
        });
        let mut names: Vec<String> = entries.collect();
        names.sort_unstable();
        Ok(names)
    }

    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        self.place(dir).create_dir(self.access)
    }

    fn remove_dir(&self, dir: &Path) -> io::Result<()> {
        self.place(dir).remove_dir()
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        let place = self.place(dir);
        if let Some(bound) = place.bound_itself() {
            return bound.file().sync_all();
        }
        dir_handle(dir, &place)?.sync_all()
    }

    fn lock(&self, path: &Path, create: bool) -> io::Result<Box<dyn Send + Sync>> {
        loop {
            let file = match create {
                true => self.open_file(path, OFlags::WRONLY | OFlags::CREATE)?,
                // A lock needs no right to write, which a reader may not have.
                false => match self.open_file(path, OFlags::WRONLY) {
                    Err(e) if is_denied(&e) => self.open_file(path, OFlags::RDONLY)?,
                    opened => opened?,
                },
            };
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => return Err(io::ErrorKind::WouldBlock.into()),
                Err(TryLockError::Error(e)) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(TryLockError::Error(e)) => return Err(e),
            }
            // The last holder may have deleted the file with its directory meanwhile: then another one may be
            // created, and locked.
            let ours = file.metadata()?;
            match self.place(path).stat() {
                Ok(there) if (there.st_dev, there.st_ino) == (ours.dev(), ours.ino()) => {
                    return Ok(Box::new(Locked(file)));
                }
                Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
                _ => {}
            }
        }
    }

    fn is_bound_still(&self, dir: &Path) -> io::Result<bool> {
        match self.place(dir).bound_itself().map(BoundDir::is_named) {
            Some(Err(e)) if e.kind() == io::ErrorKind::NotFound => Ok(false),
            Some(named) => named,
            None => Ok(true),
        }
    }

    fn open_files_max(&self) -> Option<u64> {
        use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
        let limit = getrlimit(Resource::Nofile);
        if limit.current != limit.maximum {
            let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
            // Best effort: a limit that cannot be raised stays.
            let _ = setrlimit(Resource::Nofile, raised);
        }
        getrlimit(Resource::Nofile).current
    }

    fn process(&self) -> Option<String> {
        process::own()
    }

    fn has_ended(&self, process: &str) -> bool {
        process::has_ended(process)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.place(path).exists()
    }

    fn punch_hole(&self, path: &Path, offset: u64, len: u64) -> io::Result<bool> {
        use rustix::fs::{FallocateFlags, fallocate};
        let file = self.open_file(path, OFlags::WRONLY)?;
        if file.metadata()?.nlink() != 1 {
            return Ok(false);
        }
        match fallocate(&file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, offset, len) {
            Ok(()) => Ok(true),
            Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => Ok(false),
            Err(e) => Err(e.into()),
        }
    }
}

/// Whether the error is a missing right to write there.
fn is_denied(e: &io::Error) -> bool {
    matches!(e.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem)
}

/// Synced directories stay open, so that the next sync of one needs no descriptor: otherwise a process
/// without free descriptors could not make its files' names durable.
fn dir_handle(dir: &Path, place: &Place<'_>) -> io::Result<Arc<File>> {
    static OPEN: Mutex<Vec<(PathBuf, Arc<File>)>> = Mutex::new(Vec::new());
    let mut open = OPEN.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    if let Some(at) = open.iter().position(|(path, _)| path == dir) {
        if is_same(&open[at].1, dir)? {
            return Ok(open[at].1.clone());
        }
        open.remove(at);
    }
    let file = Arc::new(place.open_as_dir().map_err(with_limit)?);
    if open.len() >= DIRECTORIES {
        open.remove(0);
    }
    open.push((dir.to_path_buf(), file.clone()));
    Ok(file)
}

/// Refuses a file longer than the process may write (`ulimit -f`), whose write would kill the process
/// (SIGXFSZ).
fn check_file_limit(len: u64) -> io::Result<()> {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Fsize).current;
    match limit {
        Some(limit) if len > limit => Err(io::Error::new(
            io::ErrorKind::FileTooLarge,
            format!("files of this process may have {limit} bytes, this one needs {len} (see `ulimit -f`)"),
        )),
        _ => Ok(()),
    }
}

/// The most directories kept open.
const DIRECTORIES: usize = 32;

/// Adds the limit of open files to an error about missing descriptors.
fn with_limit(e: io::Error) -> io::Error {
    if e.raw_os_error() != Some(libc::EMFILE) {
        return e;
    }
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let limit = limit.map_or("no limit".into(), |limit| limit.to_string());
    let message = format!("{e}: the process may have {limit} files open (see `ulimit -n`)");
    io::Error::new(e.kind(), NoDescriptor(message))
}

/// Whether overwriting files of a file system keeps their blocks.
fn is_in_place(found: rustix::fs::StatFs) -> bool {
    is_in_place_number(found.f_type as u64)
}

/// Whether overwriting files of the file system with this number (`statfs(2)`) keeps their blocks. If that is
/// unknown, a write into a mapping may find the disk full, which kills the process (SIGBUS): copy-on-write
/// file systems (btrfs, bcachefs, ZFS; XFS where a file shares blocks with a copy), log-structured ones
/// (F2FS), overlays over any of them, and network file systems.
fn is_in_place_number(number: u64) -> bool {
    const EXT4: u64 = 0xef53;
    const TMPFS: u64 = 0x0102_1994;
    [EXT4, TMPFS].contains(&number)
}

/// Reserves disk space to `len` so that writing into a mapping cannot fail for lack of it.
fn reserve(file: &File, len: u64) -> io::Result<()> {
    use rustix::fs::{FallocateFlags, fallocate};
    match fallocate(file, FallocateFlags::empty(), 0, len) {
        Ok(()) => Ok(()),
        Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => {
            // This file system cannot reserve: writing the missing part does.
            write_zeros(file, file.metadata()?.len(), len, u64::MAX)
        }
        Err(e) => Err(e.into()),
    }
}

/// Writes zeros from one offset to another, in pieces of at most that many bytes.
fn write_zeros(file: &File, from: u64, to: u64, piece: u64) -> io::Result<()> {
    static ZEROS: [u8; 64 << 10] = [0; 64 << 10];
    let mut at = from;
    while at < to {
        let piece = &ZEROS[..(to - at).min(piece.max(1)).min(ZEROS.len() as u64) as usize];
        file.write_all_at(piece, at)?;
        at += piece.len() as u64;
    }
    Ok(())
}

/// The bytes written after which the kernel is told to start write-back. Otherwise all of an SSTable is
/// written by the sync at its end, which blocks the worker, and with it all its other jobs, for that long.
const WRITE_BACK: u64 = 1 << 20;

struct LocalWrite {
    file: File,
    len: u64,
    /// The offset up to which write-back was started.
    begun: u64,
    /// The length up to which the process is known to be allowed to write (`ulimit -f`).
    allowed: u64,
}

impl LocalWrite {
    fn new(file: File, len: u64) -> Self {
        Self { file, len, begun: len, allowed: 0 }
    }

    fn write_back(&mut self) -> io::Result<()> {
        write_back(&self.file, self.begun..self.len)?;
        self.begun = self.len;
        Ok(())
    }
}

/// Tells the kernel to start write-back of a part of a file, without waiting. Only a sync makes bytes
/// durable, so this must not swallow its error, as waiting would. But an error here fails the file now,
/// before more is written to it.
fn write_back(file: &File, part: Range<u64>) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    if !part.is_empty() {
        use std::os::fd::AsRawFd;
        let (from, len) = (part.start as i64, (part.end - part.start) as i64);
        // SAFETY: the descriptor is open as long as the file is, and no memory is passed.
        let result =
            unsafe { libc::sync_file_range(file.as_raw_fd(), from, len, libc::SYNC_FILE_RANGE_WRITE) };
        let error = (result != 0).then(io::Error::last_os_error);
        if let Some(e) = error.filter(is_lost) {
            return Err(e);
        }
    }
    Ok(())
}

impl WriteFile for LocalWrite {
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let len = self.len + bytes.len() as u64;
        if len > self.allowed {
            check_file_limit(len)?;
            // Checked again now and then, not for each write.
            self.allowed = rustix::process::getrlimit(rustix::process::Resource::Fsize)
                .current
                .map_or(u64::MAX, |limit| limit.min(len + WRITE_BACK));
        }
        self.file.write_all(bytes)?;
        self.len = len;
        if self.len - self.begun >= WRITE_BACK {
            self.write_back()?;
        }
        Ok(())
    }
    fn sync(&mut self) -> io::Result<()> {
        self.begun = self.len;
        self.file.sync_data()
    }
}

/// Whether bytes could not be written back; other errors of the call (such as a file system without it) do
/// not matter.
fn is_lost(e: &io::Error) -> bool {
    [libc::EIO, libc::ENOSPC, libc::EDQUOT].map(Some).contains(&e.raw_os_error())
}

struct LocalRead(File);

impl ReadFile for LocalRead {
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.0.read_exact_at(buffer, offset)
    }
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }
    fn data_from(&self, offset: u64) -> io::Result<u64> {
        // This moves the position of calls without an offset; all others have one.
        #[cfg(target_os = "linux")]
        match rustix::fs::seek(&self.0, rustix::fs::SeekFrom::Data(offset)) {
            Ok(at) => return Ok(at),
            Err(rustix::io::Errno::NXIO) => return Ok(self.len()?.max(offset)),
            // Some file systems do not know.
            Err(_) => {}
        }
        Ok(offset)
    }
    fn mapped(&self) -> Option<Arc<dyn MappedRead>> {
        // Without one, as when the process has too many, the file is read by calls.
        let mapping = Mapping::new(&self.0).ok()?;
        Some(Arc::new(mapping))
    }
}

/// A mapped WAL file. Invariants: `map` covers `len` reserved bytes; bytes are only copied in through raw
/// pointers, within bounds, and nobody reads through this mapping, so no reference ever aliases a write.
struct LocalMapped {
    file: Arc<File>,
    map: memmap2::MmapRaw,
    /// The end of the bytes written.
    written: AtomicU64,
    /// The end of the pages that were unmapped.
    gone: AtomicU64,
}

/// Pages are unmapped in units of this: a multiple of every machine's page size, and enough to be worth a
/// call.
#[cfg(target_os = "linux")]
const LET_GO_BYTES: u64 = 64 << 10;

impl LocalMapped {
    /// Removes pages behind the last write from the mapping, all at once. They stay in the page cache, and a
    /// write to one maps it again. Left in, each one that a sync writes back interrupts every core that has
    /// the mapping.
    #[cfg(target_os = "linux")]
    fn let_go(&self) {
        // The writer has passed these pages: it writes at ever higher offsets.
        let to = self.written.load(Ordering::Acquire) / LET_GO_BYTES * LET_GO_BYTES;
        let from = self.gone.fetch_max(to, Ordering::Relaxed);
        if to > from {
            let (at, len) = (from as usize, (to - from) as usize);
            // SAFETY: a shared mapping of a file, whose contents are in the page cache and not in the
            // mapping, so that nothing is lost by this. Only advice, so it may fail.
            let _ = unsafe { self.map.unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, at, len) };
        }
    }

    #[cfg(not(target_os = "linux"))]
    fn let_go(&self) {}
}

impl MappedFile for LocalMapped {
    fn len(&self) -> u64 {
        self.map.len() as u64
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        check_reserved(offset, bytes.len() as u64, self.len())?;
        // SAFETY: offset + length lies within the mapping (checked above); source and mapping cannot overlap,
        // as no reference into the mapping exists.
        unsafe {
            let target = self.map.as_mut_ptr().add(offset as usize);
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), target, bytes.len());
        }
        // Only a hint: one writer at a time.
        self.written.store(offset + bytes.len() as u64, Ordering::Release);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        self.let_go();
        self.file.sync_data()
    }

    fn begin_write_back(&self, from: u64, to: u64) -> io::Result<()> {
        self.let_go();
        write_back(&self.file, from..to)
    }

    /// Writes through the file: so the page cache uses pages as large as the pieces, which later cost one
    /// fault each, and each is written to the device as a whole.
    fn zero(&self, offset: u64, len: u64, piece: u64) -> io::Result<()> {
        check_reserved(offset, len, self.len())?;
        write_zeros(&self.file, offset, offset + len, piece)
    }

    /// Write-back of a mapped page interrupts every core that has the mapping, once per page.
    fn sealed(&self) -> Option<Box<dyn MappedFile>> {
        Some(Box::new(LocalSealed { file: self.file.clone(), len: self.len() }))
    }
}

/// A WAL file that is written through the file, because its file system does not keep reserved blocks: a full
/// disk is an error of the write.
struct LocalReserved {
    file: File,
    len: u64,
    is_new: bool,
}

impl MappedFile for LocalReserved {
    fn len(&self) -> u64 {
        self.len
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        check_reserved(offset, bytes.len() as u64, self.len)?;
        self.file.write_all_at(bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn begin_write_back(&self, from: u64, to: u64) -> io::Result<()> {
        write_back(&self.file, from..to)
    }

    /// Newly reserved space reads as zeros, and writing blocks twice would cost twice.
    fn zero(&self, offset: u64, len: u64, _: u64) -> io::Result<()> {
        if self.is_new { Ok(()) } else { self.write(offset, &vec![0; len as usize]) }
    }
}

/// A complete WAL file that only has to be synced.
struct LocalSealed {
    file: Arc<File>,
    len: u64,
}

impl MappedFile for LocalSealed {
    fn len(&self) -> u64 {
        self.len
    }

    fn write(&self, _: u64, _: &[u8]) -> io::Result<()> {
        Err(io::Error::new(io::ErrorKind::InvalidInput, "the WAL file is sealed"))
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }
}

/// The machine's clock.
///
/// ```
/// use siltstone::storage::{Clock, SystemClock};
/// let clock = SystemClock::new();
/// let before = clock.monotonic_ns();
/// assert!(clock.monotonic_ns() >= before);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct SystemClock {
    start: Instant,
}

impl SystemClock {
    /// Monotonic time counts from now.
    pub fn new() -> Self {
        Self { start: Instant::now() }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    fn wall_us(&self) -> u64 {
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_micros() as u64)
    }
    fn monotonic_ns(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }
    #[cfg(target_os = "linux")]
    fn boottime_ns(&self) -> u64 {
        use rustix::time::{ClockId, clock_gettime};
        let now = clock_gettime(ClockId::Boottime);
        now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
    }
}

/// Randomness for identities and choices, not for secrets: splitmix64 seeded by the process's hash keys.
///
/// ```
/// use siltstone::storage::{OsRandom, Random};
/// let random = OsRandom::new();
/// assert_ne!((random.next_u64(), random.next_u64()), (0, 0));
/// ```
#[derive(Debug)]
pub struct OsRandom {
    state: AtomicU64,
}

impl OsRandom {
    /// Seeds from the standard library's random hash keys.
    pub fn new() -> Self {
        use std::hash::{BuildHasher, Hasher};
        let seed = std::collections::hash_map::RandomState::new().build_hasher().finish();
        Self { state: AtomicU64::new(seed) }
    }
}

impl Default for OsRandom {
    fn default() -> Self {
        Self::new()
    }
}

impl Random for OsRandom {
    fn next_u64(&self) -> u64 {
        mix(self.state.fetch_add(STEP, Ordering::Relaxed))
    }
}

#[cfg(test)]
#[path = "local_tests.rs"]
mod tests;
