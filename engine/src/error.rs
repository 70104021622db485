//! Errors: a public kind that says how to react, and the context of the cause.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The result of every fallible call.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The kind of an error: what to do about it.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// let db = siltstone::Db::open(dir.path())?;
/// let second = siltstone::Db::open(dir.path());
/// assert_eq!(second.unwrap_err().kind(), siltstone::ErrorKind::Busy);
/// # Ok::<(), siltstone::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The call was wrong (a key over the limit, an unknown option): change the call.
    Invalid,
    /// The key does not belong to the family: it was split, and another family has the key now. Use that one.
    OutOfRange,
    /// The named thing does not exist.
    NotFound,
    /// A condition did not hold or a transaction met a newer write: read again and retry.
    Conflict,
    /// Another holder has it (the directory's lock): wait or use another.
    Busy,
    /// Stored bytes are not what was written: restore, or `siltstone repair`. No answer was given from them.
    Corruption,
    /// The file system failed; file and cause are in the message.
    Io,
    /// No space left. Reads go on; writes resume by themselves once there is space. Deletes are still
    /// accepted, those of single keys up to 64 KiB of them; a compaction then frees the space of the deleted
    /// cells.
    DiskFull,
    /// A write or sync of the WAL failed earlier, or another process has taken the shared database over.
    /// Reads go on; reopen the database to write again.
    Poisoned,
    /// The database (or what it belongs to) was closed.
    Closed,
    /// The database was opened read-only.
    ReadOnly,
    /// Written by a newer release, or needs a name (merge operator, filter) that was not registered.
    Unsupported,
    /// A stream of changes needs writes that are not in the WAL, or not any more: read the present state and
    /// go on from there.
    ChangesLost,
    /// Cancelled by its caller.
    Canceled,
    /// The family's merge operator refused a key's operands. Other keys are not affected: put or delete the
    /// key, or register an operator that takes them.
    MergeRefused,
}

/// An error with its context. One line by `Display`; causes by `source`. Cheap to clone.
///
/// ```
/// let error = siltstone::Error::new(siltstone::ErrorKind::Invalid, "no such thing");
/// assert_eq!((error.to_string().as_str(), error.file()), ("no such thing", None));
/// ```
#[derive(Clone)]
pub struct Error(Arc<Inner>);

struct Inner {
    kind: ErrorKind,
    message: String,
    file: Option<PathBuf>,
    offset: Option<u64>,
    source: Option<io::Error>,
}

impl Error {
    /// An error of that kind.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Error(Arc::new(Inner { kind, message: message.into(), file: None, offset: None, source: None }))
    }

    /// Stored bytes at `offset` of `file` are wrong; the message says what was expected and found.
    pub(crate) fn corruption(file: impl AsRef<Path>, offset: u64, message: impl Into<String>) -> Self {
        let (kind, file) = (ErrorKind::Corruption, Some(file.as_ref().to_path_buf()));
        Error(Arc::new(Inner { kind, message: message.into(), file, offset: Some(offset), source: None }))
    }

    /// A storage call failed. A full disk has its own kind.
    pub(crate) fn io(doing: &str, file: impl AsRef<Path>, source: io::Error) -> Self {
        let kind = match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => ErrorKind::DiskFull,
            _ => ErrorKind::Io,
        };
        let (message, file) = (doing.to_string(), Some(file.as_ref().to_path_buf()));
        Error(Arc::new(Inner { kind, message, file, offset: None, source: Some(source) }))
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Invalid, message)
    }

    /// The kind, which says how to react.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The file concerned, if there is one.
    pub fn file(&self) -> Option<&Path> {
        self.0.file.as_deref()
    }

    /// Whether a file could not be opened for want of a file descriptor: another try may find one.
    ///
    /// ```
    /// assert!(!siltstone::Error::new(siltstone::ErrorKind::Io, "no such thing").is_for_descriptors());
    /// ```
    pub fn is_for_descriptors(&self) -> bool {
        self.0.source.as_ref().is_some_and(is_for_descriptors)
    }

    /// Byte offset in that file, if known.
    pub fn offset(&self) -> Option<u64> {
        self.0.offset
    }
}

/// Whether a descriptor is missing, and there may be one later.
fn is_for_descriptors(e: &io::Error) -> bool {
    matches!(e.raw_os_error(), Some(libc::EMFILE | libc::ENFILE))
        || e.get_ref().is_some_and(|inner| inner.is::<NoDescriptor>())
}

/// The reason why a file was not opened: the process, or the system, has no descriptor left.
#[derive(Debug)]
pub(crate) struct NoDescriptor(pub(crate) String);

impl fmt::Display for NoDescriptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for NoDescriptor {}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let e = &*self.0;
        f.write_str(&e.message)?;
        if let Some(file) = &e.file {
            write!(f, " ({}", file.display())?;
            if let Some(offset) = e.offset {
                write!(f, " at byte {offset}")?;
            }
            f.write_str(")")?;
        }
        if let Some(source) = &e.source {
            write!(f, ": {source}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {self}", self.0.kind)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source.as_ref().map(|e| e as _)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_names_file_offset_and_cause() {
        let e = Error::corruption("db/x.table", 4096, "checksum is 1, expected 2");
        assert_eq!(e.to_string(), "checksum is 1, expected 2 (db/x.table at byte 4096)");
        let full = Error::io("write", "db/y.table", io::ErrorKind::StorageFull.into());
        assert_eq!((full.kind(), full.to_string().contains("db/y.table")), (ErrorKind::DiskFull, true));
        let full = Error::io("create table", "db/y.table", io::Error::from_raw_os_error(24));
        assert!(full.kind() == ErrorKind::Io && full.is_for_descriptors());
    }
}
