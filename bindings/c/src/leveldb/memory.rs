//! Bytes of the caller's, and what is handed out: texts, values, errors.

use crate::bytes::handed_out;
use siltstone::Result;
use std::ffi::{c_char, c_void};

/// Bytes of the caller's, to be used during the call alone.
pub(super) fn given<'a>(data: *const c_char, len: usize) -> &'a [u8] {
    match data.is_null() {
        true => &[],
        // SAFETY: the caller's promise, as in LevelDB.
        false => unsafe { std::slice::from_raw_parts(data.cast(), len) },
    }
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
