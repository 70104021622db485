//! The result of a call: nothing, or an error object.

use crate::text::text;
use siltstone::{Error as Cause, ErrorKind as Kind};
use std::ffi::{CString, c_char};
use std::os::unix::ffi::OsStrExt;
use std::ptr::null;

/// The kind of an error, which says what to do about it.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ErrorKind {
    /// No error: the pointer was NULL.
    None = 0,
    /// The call was wrong (a null pointer, a key over the limit, an unknown option): change the call.
    Invalid = 1,
    /// The key is not one of the family's: it was split, and another family answers for the key now.
    OutOfRange = 2,
    /// The named thing does not exist.
    NotFound = 3,
    /// A transaction met a newer write: read again and retry.
    Conflict = 4,
    /// Somebody else holds it (the directory's lock): wait or pick another.
    Busy = 5,
    /// Stored bytes are not what was written: restore, or repair. Nothing was answered from them.
    Corruption = 6,
    /// The file system failed; file and cause are in the message.
    Io = 7,
    /// No space left. Reads go on; writes resume by themselves once there is space.
    DiskFull = 8,
    /// A write or sync of the WAL failed before. Reads go on; reopen the database to write again.
    Poisoned = 9,
    /// The database, or what it belongs to, was closed.
    Closed = 10,
    /// The database was opened read-only.
    ReadOnly = 11,
    /// Written by a newer release, or needs a name (merge operator, filter) that was not registered.
    Unsupported = 12,
    /// A stream of changes asked for writes that are not in the WAL any more.
    ChangesLost = 13,
    /// Cancelled by its caller.
    Canceled = 14,
    /// The family's merge operator refused a key's operands. Other keys are not affected.
    MergeRefused = 15,
    /// A kind that is newer than this header.
    Other = 255,
}

impl From<Kind> for ErrorKind {
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::Invalid => Self::Invalid,
            Kind::OutOfRange => Self::OutOfRange,
            Kind::NotFound => Self::NotFound,
            Kind::Conflict => Self::Conflict,
            Kind::Busy => Self::Busy,
            Kind::Corruption => Self::Corruption,
            Kind::Io => Self::Io,
            Kind::DiskFull => Self::DiskFull,
            Kind::Poisoned => Self::Poisoned,
            Kind::Closed => Self::Closed,
            Kind::ReadOnly => Self::ReadOnly,
            Kind::Unsupported => Self::Unsupported,
            Kind::ChangesLost => Self::ChangesLost,
            Kind::Canceled => Self::Canceled,
            Kind::MergeRefused => Self::MergeRefused,
            _ => Self::Other,
        }
    }
}

/// Why a call failed. The caller frees it with `siltstone_error_free`.
#[derive(Debug)]
pub struct Error {
    cause: Cause,
    message: CString,
    file: Option<CString>,
}

/// NULL, or an error that the caller owns.
pub(crate) type Answer = Option<Box<Error>>;

/// Runs a call's body, and makes an error object of what failed.
#[inline]
pub(crate) fn answer(body: impl FnOnce() -> siltstone::Result<()>) -> Answer {
    match body() {
        Ok(()) => None,
        Err(cause) => Some(boxed(cause)),
    }
}

/// An error with its texts, without what C would take for their ends.
#[cold]
fn boxed(cause: Cause) -> Box<Error> {
    let message = text(cause.to_string().as_bytes());
    let file = cause.file().map(|file| text(file.as_os_str().as_bytes()));
    Box::new(Error { cause, message, file })
}

/// A wrong call.
#[cold]
pub(crate) fn invalid(message: impl Into<String>) -> Cause {
    Cause::new(Kind::Invalid, message)
}

/// How to react to an error; `SILTSTONE_KIND_NONE` for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn siltstone_error_kind(error: Option<&Error>) -> ErrorKind {
    error.map_or(ErrorKind::None, |error| error.cause.kind().into())
}

/// One line that says what happened, with file, offset and cause where they are known; empty for NULL. Lives
/// as long as the error.
#[unsafe(no_mangle)]
pub extern "C" fn siltstone_error_message(error: Option<&Error>) -> *const c_char {
    error.map_or(c"".as_ptr(), |error| error.message.as_ptr())
}

/// The file concerned, or NULL. Lives as long as the error.
#[unsafe(no_mangle)]
pub extern "C" fn siltstone_error_file(error: Option<&Error>) -> *const c_char {
    error.and_then(|error| error.file.as_ref()).map_or(null(), |file| file.as_ptr())
}

/// Puts the place in that file, in bytes, into `offset` and answers true, or answers false where none is
/// known.
#[unsafe(no_mangle)]
pub extern "C" fn siltstone_error_offset(error: Option<&Error>, offset: Option<&mut u64>) -> bool {
    match (error.and_then(|error| error.cause.offset()), offset) {
        (Some(at), Some(offset)) => {
            *offset = at;
            true
        }
        (at, _) => at.is_some(),
    }
}

/// Frees an error and sets the pointer to NULL. NULL, and a pointer to NULL, are fine.
#[unsafe(no_mangle)]
pub extern "C" fn siltstone_error_free(error: Option<&mut Option<Box<Error>>>) {
    drop(error.and_then(Option::take));
}
