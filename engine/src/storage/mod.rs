//! The only access to the outside: files, clock and randomness as traits, so that a whole database runs on a
//! simulated disk from one seed (`sim`, feature `testing`) exactly as it runs on a real one (`local`).
//!
//! The traits promise this and nothing more: bytes written survive a process kill; they survive a power loss
//! only once synced; a created, renamed or removed name survives a power loss only once its directory is
//! synced. A failed sync leaves the file's unsynced bytes in an unknown state and must not be retried
//! (invariant I2). Not owned here: the contents of the files.
//!
//! Above `local` are `direct` (reads past the page cache), `mapping` (reads through memory mappings) and
//! `process` (whether another process has ended); `place` binds calls to the directory that was opened, `own`
//! distinguishes a database's files from foreign ones, `copied` cleans up a directory that could not be
//! filled. `tables` is the place of a database's SSTables, `objects` puts them into an object store (`folder`
//! is a part of one), and `open_files` bounds how many are open. `directory_objects` is an object store in a
//! directory that processes share.

mod copied;
mod direct;
mod directory_objects;
mod folder;
mod local;
mod mapping;
mod objects;
mod open_files;
mod own;
mod place;
mod process;
#[cfg(any(test, feature = "testing"))]
pub mod sim;
mod tables;

pub use directory_objects::DirectoryObjects;
pub use local::{LocalStorage, OsRandom, SystemClock};
pub use objects::{ObjectStore, OpenObjectStore, PutOnce, Upload};

pub(crate) use copied::Copied;
pub(crate) use folder::Folder;
pub(crate) use objects::ObjectFiles;
pub(crate) use open_files::OpenFiles;
pub(crate) use own::{
    BEGUN, Maker, begins_with, create_over_own, is_blank, is_mark, is_own, is_own_lock, maker, mark_begun,
    remove_mark, remove_own,
};
pub(crate) use tables::{LOST_AND_FOUND, NOTE, TableStore, begins_with_number};

use crate::error::{Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};
use std::fmt::Debug;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Who may read the files that a database creates.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// use siltstone::{Builder, Options, storage::FileAccess};
/// let options = Options { file_access: FileAccess::Group, ..Options::default() };
/// let db = Builder::new().options(options).open(dir.path().join("db"))?;
/// # db.put(b"k", b"v")?;
/// # Ok::<(), siltstone::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FileAccess {
    /// The process's user alone: files have mode 0600, directories 0700.
    #[default]
    Owner,
    /// The process's user, and its group for reading: 0640 and 0750.
    Group,
    /// Everyone whom the process's umask allows: 0666 and 0777 without the bits of the umask.
    Umask,
}

impl FileAccess {
    fn file_mode(self) -> u32 {
        match self {
            Self::Owner => 0o600,
            Self::Group => 0o640,
            Self::Umask => 0o666,
        }
    }

    fn dir_mode(self) -> u32 {
        match self {
            Self::Owner => 0o700,
            Self::Group => 0o750,
            Self::Umask => 0o777,
        }
    }
}

/// A file system. All calls block. Paths are whole paths; directories must exist before files are made in
/// them.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// use siltstone::storage::Env;
/// let storage = Env::local().storage;
/// let (path, dir) = (dir.path().join("a"), dir.path());
/// let mut file = storage.create(&path)?;
/// file.write(b"bytes")?;
/// file.sync()?;
/// storage.sync_dir(dir)?; // now a power loss keeps them
/// assert!(storage.exists(&path)?);
/// # Ok::<(), std::io::Error>(())
/// ```
pub trait Storage: Send + Sync + Debug {
    /// This storage with the directory held open: paths in it keep leading to this directory, even if another
    /// one takes its name. Links in it are refused, not followed. `None` if names cannot change their
    /// meaning.
    fn bind(&self, _dir: &Path) -> io::Result<Option<Arc<dyn Storage>>> {
        Ok(None)
    }

    /// This storage, with new files and directories readable by those whom `access` names. `None` if files
    /// have no access rights.
    fn with_access(&self, _access: FileAccess) -> Option<Arc<dyn Storage>> {
        None
    }

    /// The path, made absolute without a look at the file system, as the working directory may change.
    fn absolute(&self, path: &Path) -> io::Result<PathBuf> {
        Ok(path.to_path_buf())
    }

    /// Whether the name of a bound directory still leads to it.
    fn is_bound_still(&self, _dir: &Path) -> io::Result<bool> {
        Ok(true)
    }

    /// Creates a file to be written from its start; `AlreadyExists` if the name is taken. The *name* is
    /// durable after `sync_dir`, the bytes after `WriteFile::sync`.
    fn create(&self, path: &Path) -> io::Result<Box<dyn WriteFile>>;

    /// Opens a file to be appended to at its end. Like `map`, `link` and `lock` this is not needed of a
    /// storage that has whole SSTables and nothing else.
    fn append(&self, _path: &Path) -> io::Result<Box<dyn WriteFile>> {
        unsupported()
    }

    /// Opens a file for reading at any offset.
    fn open(&self, path: &Path) -> io::Result<Arc<dyn ReadFile>>;

    /// Opens a file for reading past the operating system's cache, so that every read goes to the device.
    /// `Unsupported` if that is impossible. A storage without such a cache opens the file as usual.
    fn open_direct(&self, path: &Path) -> io::Result<Arc<dyn ReadFile>> {
        self.open(path)
    }

    /// Reserves `len` bytes on disk for a file that is there, keeping the bytes it has, and maps it. A full
    /// disk shows here, and in a later write only where files are not written in place. With `written_ahead`
    /// the bytes beyond what exists are written as zeros and synced, so that later syncs need no metadata.
    fn map(&self, _path: &Path, _len: u64, _written_ahead: bool) -> io::Result<Box<dyn MappedFile>> {
        unsupported()
    }

    /// Whether overwriting files in the directory keeps their blocks, so that space once reserved is enough
    /// for ever. If not, as on copy-on-write file systems, WAL files are not recycled, and `map` writes
    /// through the file.
    fn writes_in_place(&self, _dir: &Path) -> bool {
        true
    }

    /// Renames, replacing the target. Durable after `sync_dir`.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Renames if the new name is free, else `AlreadyExists`. Durable after `sync_dir`.
    fn rename_new(&self, from: &Path, to: &Path) -> io::Result<()> {
        match self.exists(to)? {
            true => Err(io::ErrorKind::AlreadyExists.into()),
            false => self.rename(from, to),
        }
    }

    /// Removes a file. Durable after `sync_dir`.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Makes `to` a second name of the same, no longer changing file; copies where links are not supported.
    /// Of a symbolic link in a directory that is not bound, what it leads to is linked.
    fn link(&self, _from: &Path, _to: &Path) -> io::Result<()> {
        unsupported()
    }

    /// Makes `to` a second name of the file without ever copying: `false`, with nothing created, if that is
    /// impossible.
    fn second_name(&self, _from: &Path, _to: &Path) -> io::Result<bool> {
        Ok(false)
    }

    /// File names (not directories) in a directory, sorted.
    fn list(&self, dir: &Path) -> io::Result<Vec<String>>;

    /// All names in a directory, sorted, directories with a trailing slash. Invalid UTF-8 is replaced.
    fn list_all(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.list(dir)
    }

    /// Creates the directory and its missing parents.
    fn create_dir(&self, dir: &Path) -> io::Result<()>;

    /// Removes an empty directory.
    fn remove_dir(&self, dir: &Path) -> io::Result<()>;

    /// Makes names that were created, renamed and removed in the directory durable.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;

    /// Takes an exclusive lock by this file, held until dropped. With `create` the file is created if needed;
    /// without it nothing is changed, and the right to read the file is enough. `WouldBlock` if another
    /// holder, in this process or another, has it.
    fn lock(&self, _path: &Path, _create: bool) -> io::Result<Box<dyn Send + Sync>> {
        unsupported()
    }

    /// The most files that may be open at a time, if there is such a limit, which is raised as far as this
    /// process may.
    fn open_files_max(&self) -> Option<u64> {
        None
    }

    /// This process, told apart from every other one of its machine, if that is possible.
    fn process(&self) -> Option<String> {
        None
    }

    /// Whether the process that [`Storage::process`] told apart is proved to have ended. It is not if it ran
    /// elsewhere, or may have.
    fn has_ended(&self, _process: &str) -> bool {
        false
    }

    /// Whether a file or directory exists.
    fn exists(&self, path: &Path) -> io::Result<bool>;

    /// Frees the bytes of a range of the file (they read as zeros after); the length stays. `Ok(false)` where
    /// not supported or where the file has other names (hard links).
    fn punch_hole(&self, _path: &Path, _offset: u64, _len: u64) -> io::Result<bool> {
        Ok(false)
    }

    /// Tells the storage that its cached bytes of a file seem to be wrong, so that they are read anew from
    /// now on. Returns whether anything may have been cached.
    fn forget(&self, _path: &Path) -> bool {
        false
    }
}

fn unsupported<T>() -> io::Result<T> {
    Err(io::Error::new(io::ErrorKind::Unsupported, "the storage has no such call"))
}

/// Creates the directory and its missing parents, and makes their names durable. All parents are synced, also
/// those that were there: an earlier try may have made them and failed to sync. One that may not be read is
/// left out.
pub(crate) fn create_dir_durably(storage: &dyn Storage, dir: &Path) -> io::Result<()> {
    storage.create_dir(dir)?;
    for parent in dir.ancestors().skip(1) {
        match storage.sync_dir(parent) {
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {}
            synced => synced?,
        }
    }
    Ok(())
}

/// Name of the file that is locked while a directory is in use.
pub(crate) const LOCK_FILE: &str = "LOCK";

/// A directory's lock, held until dropped.
pub(crate) type DirLock = Box<dyn Send + Sync>;

/// Takes the directory's lock; without `create` only if its file exists, so that nothing is changed. `None`
/// also if the file may not even be read: then nobody with the same rights can hold it.
pub(crate) fn lock_dir(storage: &dyn Storage, dir: &Path, create: bool) -> Result<Option<DirLock>> {
    let path = dir.join(LOCK_FILE);
    if !create && !storage.exists(&path).map_err(|e| Error::io("look for", &path, e))? {
        return Ok(None);
    }
    match storage.lock(&path, create) {
        Ok(lock) => Ok(Some(lock)),
        Err(e) if !create && e.kind() == io::ErrorKind::PermissionDenied => Ok(None),
        Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
            let message = format!("{} is in use: {} is locked", dir.display(), path.display());
            Err(Error::new(ErrorKind::Busy, message))
        }
        Err(e) => Err(Error::io("lock", &path, e)),
    }
}

/// The size of the pieces in which files are copied.
const COPY_PIECE: u64 = 1 << 20;

/// Copies the first `bytes` of a file, durably but for its name; returns the crc32c of the bytes read.
/// `advanced` is called with the length of each piece.
pub(crate) fn copy_file(
    source: &dyn Storage,
    from: &Path,
    target: &dyn Storage,
    to: &Path,
    bytes: u64,
    advanced: &mut dyn FnMut(u64),
) -> Result<u32> {
    let reading = |e| Error::io("read", from, e);
    let writing = |e| Error::io("write", to, e);
    let source = source.open(from).map_err(reading)?;
    let mut target = target.create(to).map_err(writing)?;
    let mut piece = vec![0; bytes.min(COPY_PIECE) as usize];
    let (mut at, mut sum) = (0, 0);
    while at < bytes {
        let piece = &mut piece[..(bytes - at).min(COPY_PIECE) as usize];
        source.read_exact_at(piece, at).map_err(reading)?;
        sum = crc32c::crc32c_append(sum, piece);
        target.write(piece).map_err(writing)?;
        at += piece.len() as u64;
        advanced(piece.len() as u64);
    }
    target.sync().map_err(writing)?;
    Ok(sum)
}

/// A file being written from front to back.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// let storage = siltstone::storage::Env::local().storage;
/// let mut file = storage.create(&dir.path().join("a"))?;
/// file.write(b"one ")?;
/// file.write(b"two")?;
/// file.sync()?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub trait WriteFile: Send {
    /// Appends the bytes: all, or an error (after which the file's end is unknown).
    fn write(&mut self, bytes: &[u8]) -> io::Result<()>;
    /// Makes all written bytes durable.
    fn sync(&mut self) -> io::Result<()>;
}

/// A file being read.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// let storage = siltstone::storage::Env::local().storage;
/// let path = dir.path().join("a");
/// storage.create(&path)?.write(b"one two")?;
/// let mut word = [0; 3];
/// storage.open(&path)?.read_exact_at(&mut word, 4)?;
/// assert_eq!(&word, b"two");
/// # Ok::<(), std::io::Error>(())
/// ```
pub trait ReadFile: Send + Sync {
    /// Fills the buffer from that offset; `UnexpectedEof` when the file ends before.
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()>;
    /// Fills the buffer again after its bytes proved wrong: from where the file is stored, past any cache in
    /// between.
    fn read_again_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.read_exact_at(buffer, offset)
    }
    /// Length in bytes.
    fn len(&self) -> io::Result<u64>;
    /// Length in bytes, and the last `bytes` bytes, or all if there are fewer.
    fn tail(&self, bytes: u64) -> io::Result<(u64, Vec<u8>)> {
        let len = self.len()?;
        let from = len.saturating_sub(bytes);
        let mut tail = vec![0; (len - from) as usize];
        self.read_exact_at(&mut tail, from)?;
        Ok((len, tail))
    }
    /// The first offset at or after `offset` with written bytes, as far as is known: the bytes in between are
    /// a hole, which reads as zeros. The file's length if there are none.
    fn data_from(&self, offset: u64) -> io::Result<u64> {
        Ok(offset)
    }
    /// The file mapped into memory, if that is possible and the file is no longer written: it is read without
    /// a call and without a copy.
    fn mapped(&self) -> Option<Arc<dyn MappedRead>> {
        None
    }
    /// The bytes that one read may take for little more time than a few bytes, if each read is a request to a
    /// remote store; otherwise 0.
    fn request_bytes(&self) -> usize {
        0
    }
    /// Whether the file has no bytes.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }
}

/// A file's bytes in memory, as they were when it was mapped.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// let storage = siltstone::storage::Env::local().storage;
/// let path = dir.path().join("a");
/// storage.create(&path)?.write(b"bytes")?;
/// let mapped = storage.open(&path)?.mapped().expect("local files can be mapped");
/// assert_eq!((mapped.bytes(), mapped.failed()), (&b"bytes"[..], false));
/// # Ok::<(), std::io::Error>(())
/// ```
pub trait MappedRead: Send + Sync {
    /// The bytes of the whole file.
    fn bytes(&self) -> &[u8];
    /// Whether some part could not be read from the device. Bytes read before the call may then be wrong, and
    /// the file must be read by [`ReadFile::read_exact_at`], which gives the error.
    fn failed(&self) -> bool;
}

/// A file of reserved length for the WAL, mapped into memory where that is safe. One thread writes at a time;
/// any thread may sync meanwhile.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// let storage = siltstone::storage::Env::local().storage;
/// let path = dir.path().join("a");
/// storage.create(&path)?;
/// let file = storage.map(&path, 4096, false)?;
/// assert_eq!(file.len(), 4096);
/// # Ok::<(), std::io::Error>(())
/// ```
pub trait MappedFile: Send + Sync {
    /// The reserved length.
    fn len(&self) -> u64;
    /// Whether nothing is reserved.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Copies the bytes in at that offset. Survives a process kill once it returns. Bytes beyond the reserved
    /// length are an error and nothing is written.
    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()>;
    /// Writes zeros in pieces of that many bytes, where nothing was written before. This makes later writes
    /// there cheaper; see the WAL.
    fn zero(&self, offset: u64, len: u64, _piece: u64) -> io::Result<()> {
        self.write(offset, &vec![0; len as usize])
    }
    /// Makes everything written so far durable. Until then any 512-byte sector written since the last sync
    /// may or may not survive a power loss, in any combination.
    fn sync(&self) -> io::Result<()>;
    /// Starts write-back of those bytes to the device, so that a later sync waits less and other calls find
    /// the device less busy. Does not wait for it, and guarantees nothing: only a sync makes bytes durable,
    /// and this call must not swallow its error. An error returned here means that bytes may be lost.
    fn begin_write_back(&self, _from: u64, _to: u64) -> io::Result<()> {
        Ok(())
    }
    /// A handle of the same file that can only sync, if that is cheaper than keeping this one: the caller
    /// writes no more and drops this one. `None` if it makes no difference.
    fn sealed(&self) -> Option<Box<dyn MappedFile>> {
        None
    }
}

/// Refuses bytes beyond the reserved length of a mapped file.
pub(crate) fn check_reserved(offset: u64, bytes: u64, reserved: u64) -> io::Result<()> {
    match offset.checked_add(bytes) {
        Some(end) if end <= reserved => Ok(()),
        _ => Err(io::Error::new(io::ErrorKind::InvalidInput, "write beyond the reserved WAL file")),
    }
}

/// Time. Wall time may jump; monotonic time does not.
///
/// ```
/// use siltstone::storage::Env;
/// assert!(Env::local().clock.wall_us() > 0);
/// ```
pub trait Clock: Send + Sync + Debug {
    /// Microseconds since the Unix epoch.
    fn wall_us(&self) -> u64;
    /// Nanoseconds since some fixed moment.
    fn monotonic_ns(&self) -> u64;
    /// Nanoseconds since some fixed moment, those included in which the machine was suspended.
    fn boottime_ns(&self) -> u64 {
        self.monotonic_ns()
    }
}

/// Randomness.
///
/// ```
/// use siltstone::storage::Env;
/// println!("{:016x}", Env::local().random.next_u64());
/// ```
pub trait Random: Send + Sync + Debug {
    /// A uniformly random number.
    fn next_u64(&self) -> u64;
}

/// Storage, clock and randomness together: the environment of a database.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// let env = siltstone::storage::Env::local();
/// let db = siltstone::Builder::new().env(env).open(dir.path())?;
/// db.put(b"k", b"v")?;
/// # Ok::<(), siltstone::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Env {
    /// Files.
    pub storage: Arc<dyn Storage>,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Randomness.
    pub random: Arc<dyn Random>,
}

impl Env {
    /// The machine's own file system, clock and randomness.
    pub fn local() -> Self {
        Self {
            storage: Arc::new(LocalStorage::new()),
            clock: Arc::new(SystemClock::new()),
            random: Arc::new(OsRandom::new()),
        }
    }

    /// This environment with the directory, which must exist, held open ([`Storage::bind`]).
    pub(crate) fn bound_to(&self, dir: &Path) -> Result<Self> {
        let bound = self.storage.bind(dir).map_err(|e| Error::io("open the directory", dir, e))?;
        Ok(Self { storage: bound.unwrap_or_else(|| self.storage.clone()), ..self.clone() })
    }

    /// This environment with the directory held open if it exists; otherwise a plain copy.
    pub(crate) fn bound_if_there(&self, dir: &Path) -> Result<Self> {
        match self.storage.exists(dir).map_err(|e| Error::io("look for", dir, e))? {
            true => self.bound_to(dir),
            false => Ok(self.clone()),
        }
    }

    /// This environment with new files readable by those whom `access` names.
    pub(crate) fn with_access(&self, access: FileAccess) -> Self {
        let storage = self.storage.with_access(access).unwrap_or_else(|| self.storage.clone());
        Self { storage, ..self.clone() }
    }
}

/// A directory's path that no longer depends on the working directory, which may change.
pub(crate) fn absolute(env: &Env, dir: &Path) -> Result<PathBuf> {
    if dir.as_os_str().is_empty() {
        return Err(Error::invalid("the path of the directory is empty"));
    }
    env.storage.absolute(dir).map_err(|e| Error::io("find the working directory for", dir, e))
}

/// The longest file that is read as a whole, except manifests and descriptors of backups: no other file of a
/// database is longer.
pub(crate) const SMALL_FILE_BYTES: u64 = 64 << 20;

/// Reads a whole file of at most `bytes_max` bytes; `Corruption` if it is longer.
pub(crate) fn read_file(env: &Env, path: &Path, bytes_max: u64) -> Result<Vec<u8>> {
    read_whole(&*env.storage, path, bytes_max)
}

/// Reads a whole file of any storage; `Corruption` if it is longer than `bytes_max`.
fn read_whole(storage: &dyn Storage, path: &Path, bytes_max: u64) -> Result<Vec<u8>> {
    let failed = |e| Error::io("read", path, e);
    let file = storage.open(path).map_err(failed)?;
    let len = file.len().map_err(failed)?;
    if len > bytes_max {
        let message = format!("file has {len} bytes, expected at most {bytes_max}");
        return Err(Error::corruption(path, bytes_max, message));
    }
    let mut bytes = vec![0; len as usize];
    file.read_exact_at(&mut bytes, 0).map_err(failed)?;
    Ok(bytes)
}
