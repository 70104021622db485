//! Bytes on their way in and out, and texts on their way in.
//!
//! All that is read through a pointer of the caller's is read here. The caller's promise, which the header
//! states: a slice's bytes and a text up to its end may be read during the call.

use crate::error::invalid;
use siltstone::{Pinned, Result};
use std::ffi::{CStr, OsStr, c_char};
use std::mem::{ManuallyDrop, MaybeUninit};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::null;

/// Bytes that belong to somebody else. NULL with length 0 is no bytes where bytes are asked for, and nothing
/// given where that may be left out.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Slice {
    /// The first byte.
    pub data: *const u8,
    /// How many there are.
    pub len: usize,
}

impl Slice {
    /// Nothing given.
    pub(crate) const NONE: Self = Self { data: null(), len: 0 };

    /// A valid address for empty bytes, as some languages check pointers.
    #[inline]
    pub(crate) fn of(bytes: &[u8]) -> Self {
        static NOWHERE: u8 = 0;
        let data = if bytes.is_empty() { &raw const NOWHERE } else { bytes.as_ptr() };
        Self { data, len: bytes.len() }
    }

    /// Its bytes, to be used during the call alone.
    #[inline]
    pub(crate) fn bytes<'a>(self, name: &str) -> Result<&'a [u8]> {
        Ok(self.given(name)?.unwrap_or_default())
    }

    /// Its bytes, if there are any.
    #[inline]
    pub(crate) fn given<'a>(self, name: &str) -> Result<Option<&'a [u8]>> {
        match (self.data.is_null(), self.len) {
            // SAFETY: the caller's promise; `name` says whose it is.
            (false, len) if bytes_fit::<u8>(len) => {
                Ok(Some(unsafe { std::slice::from_raw_parts(self.data, len) }))
            }
            (true, 0) => Ok(None),
            (true, len) => Err(invalid(format!("{name} is NULL, of {len} bytes"))),
            (false, len) => Err(invalid(format!("{name} has {len} bytes, more than there can be"))),
        }
    }
}

/// Whether memory can hold so many in a row.
pub(crate) fn bytes_fit<T>(count: usize) -> bool {
    count.checked_mul(size_of::<T>()).is_some_and(|bytes| bytes <= isize::MAX as usize)
}

/// Checks a row of so many that the caller has, or has room for.
pub(crate) fn check_row<T>(first: *const T, count: usize, name: &str) -> Result<()> {
    match (first.is_null(), count) {
        (true, 1..) => Err(invalid(format!("{name} is NULL"))),
        (_, count) if bytes_fit::<T>(count) => Ok(()),
        (_, count) => Err(invalid(format!("{name} are {count}, more than there can be"))),
    }
}

/// Several slices in a row.
///
/// # Safety
/// The caller's promise: `count` of them may be read there during the call.
pub(crate) unsafe fn slices<'a>(first: *const Slice, count: usize, name: &str) -> Result<&'a [Slice]> {
    check_row(first, count, name)?;
    match count {
        0 => Ok(&[]),
        // SAFETY: the caller's promise, and there can be so many.
        count => Ok(unsafe { std::slice::from_raw_parts(first, count) }),
    }
}

/// A text that ends with a zero byte.
///
/// # Safety
/// The caller's promise: unless it is NULL, it may be read up to its end during the call.
unsafe fn of_text<'a>(text: *const c_char, name: &str) -> Result<&'a CStr> {
    match text.is_null() {
        true => Err(invalid(format!("{name} is NULL"))),
        // SAFETY: the caller's promise.
        false => Ok(unsafe { CStr::from_ptr(text) }),
    }
}

/// A text in UTF-8.
pub(crate) fn utf8<'a>(text: *const c_char, name: &str) -> Result<&'a str> {
    // SAFETY: the caller's promise, which the header states.
    unsafe { of_text(text, name) }?.to_str().map_err(|why| invalid(format!("{name} is not UTF-8: {why}")))
}

/// A text in UTF-8, or nothing for NULL.
pub(crate) fn utf8_if_given<'a>(text: *const c_char, name: &str) -> Result<Option<&'a str>> {
    if text.is_null() { Ok(None) } else { utf8(text, name).map(Some) }
}

/// A path.
pub(crate) fn path<'a>(text: *const c_char, name: &str) -> Result<&'a Path> {
    // SAFETY: the caller's promise, which the header states.
    let text = unsafe { of_text(text, name) }?;
    Ok(Path::new(OsStr::from_bytes(text.to_bytes())))
}

/// A value, held where it lies: in memory or in the block cache. What it holds is kept until it is freed,
/// also when the key is written anew or the database closed. Must not be copied as a struct and freed twice.
#[repr(C)]
#[derive(Debug)]
pub struct Value {
    /// The first byte; NULL where the key is not there. Not NULL for a value of no bytes.
    pub data: *const u8,
    /// How many there are.
    pub len: usize,
    /// The library's own: more than it needs, so that it may grow.
    pub reserved: [MaybeUninit<usize>; 6],
}

const _: () = assert!(
    size_of::<Pinned>() <= 6 * size_of::<usize>() && align_of::<Pinned>() <= align_of::<usize>(),
    "what holds a value fits"
);

impl Value {
    pub(crate) const NONE: Self =
        Self { data: null(), len: 0, reserved: [const { MaybeUninit::uninit() }; 6] };

    /// Takes what was found.
    #[inline]
    pub(crate) fn of(found: Option<Pinned>) -> Self {
        let mut value = Self::NONE;
        if let Some(found) = found {
            let slice = Slice::of(&found);
            (value.data, value.len) = (slice.data, slice.len);
            // SAFETY: it fits, as is asserted above. `free` takes it back.
            unsafe { value.reserved.as_mut_ptr().cast::<Pinned>().write(found) };
        }
        value
    }

    /// Lets go of what it holds. Nothing for one that was not found or was freed.
    #[inline]
    fn free(&mut self) {
        if !self.data.is_null() {
            // SAFETY: with `data` set it holds a `Pinned`, from `of`.
            drop(ManuallyDrop::into_inner(unsafe {
                self.reserved.as_ptr().cast::<ManuallyDrop<Pinned>>().read()
            }));
            *self = Self::NONE;
        }
    }
}

/// Lets go of a value, whose `data` becomes NULL. One without data, and NULL, are fine.
#[unsafe(no_mangle)]
pub extern "C" fn siltstone_value_free(value: Option<&mut Value>) {
    if let Some(value) = value {
        value.free();
    }
}
