//! Bytes of the caller's, and what is handed out: texts, values, errors.

use crate::bytes::bytes_fit;
use crate::text::handed_out;
use siltstone::Result;
use std::ffi::{c_char, c_void};

/// Bytes of the caller's, to be used during the call alone. More than there can be end the process: most
/// calls of this interface have no way to tell of an error.
///
/// # Safety
/// The caller's promise, as in LevelDB: unless `data` is NULL, `len` bytes may be read there during the call.
pub(super) unsafe fn given<'a>(data: *const c_char, len: usize) -> &'a [u8] {
    if data.is_null() {
        return &[];
    }
    assert!(bytes_fit::<u8>(len), "{len} bytes were given, more than there can be");
    // SAFETY: the caller's promise, and there can be so many.
    unsafe { std::slice::from_raw_parts(data.cast(), len) }
}

/// Tells by `errptr` what failed.
pub(super) fn told<T>(result: Result<T>, errptr: Option<&mut *mut c_char>) -> Option<T> {
    match result {
        Ok(made) => Some(made),
        Err(why) => {
            if let Some(errptr) = errptr {
                leveldb_free(errptr.cast());
                *errptr = handed_out(why.to_string().as_bytes());
            }
            None
        }
    }
}

/// Frees what this library handed out.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_free(memory: *mut c_void) {
    // SAFETY: it came from `malloc`, as LevelDB asks for; NULL is fine.
    unsafe { libc::free(memory) }
}

/// The version of LevelDB whose interface this is.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_major_version() -> i32 {
    1
}

/// See `leveldb_major_version`.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_minor_version() -> i32 {
    23
}
