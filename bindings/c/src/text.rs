//! Texts on their way out.

use std::ffi::{CString, c_char};

/// Bytes as a text for C; zero bytes in them are left out.
pub(crate) fn text(bytes: &[u8]) -> CString {
    let kept: Vec<u8> = bytes.iter().copied().filter(|byte| *byte != 0).collect();
    CString::new(kept).unwrap_or_default()
}

/// Bytes in memory of `malloc`, with a zero byte behind them, for callers to change and free as they like.
pub(crate) fn handed_out(bytes: &[u8]) -> *mut c_char {
    // SAFETY: the memory is as large as what is written, and nobody else's.
    unsafe {
        let memory = libc::malloc(bytes.len() + 1).cast::<u8>();
        if memory.is_null() {
            // As wherever memory is short.
            std::process::abort();
        }
        memory.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
        memory.add(bytes.len()).write(0);
        memory.cast()
    }
}

/// Frees a text of this library's and sets the pointer to NULL. NULL, and a pointer to NULL, are fine.
#[unsafe(no_mangle)]
pub extern "C" fn siltstone_text_free(text: Option<&mut *mut c_char>) {
    if let Some(text) = text {
        // SAFETY: it came from `handed_out`, which the header asks for; NULL is fine.
        unsafe { libc::free(text.cast()) };
        *text = std::ptr::null_mut();
    }
}
