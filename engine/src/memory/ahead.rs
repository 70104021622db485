//! Asks the processor for memory before it is touched.
//!
//! A write to one of thousands of families finds all of its family's memory cold: the store, its version, the segment, a node
//! of the index, the place of the next cell. Touched one after the other each is a wait of some 100 ns. Asked for as soon as
//! its address is known, the waits overlap with each other and with logging.
#![expect(unsafe_code, reason = "there is no safe way to say it; a wrong address does no harm")]

/// The cache lines from there on, so many bytes. The address need not be valid.
#[inline]
pub(super) fn ask_for(from: *const u8, bytes: usize) {
    #[cfg(all(target_arch = "x86_64", not(models)))]
    for at in (0..bytes).step_by(64) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a hint, which never faults and changes nothing.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(from.wrapping_add(at).cast()) };
    }
    #[cfg(not(all(target_arch = "x86_64", not(models))))]
    let _ = (from, bytes);
}

/// A whole value.
#[inline]
pub(crate) fn ask_for_value<T>(value: &T) {
    ask_for(std::ptr::from_ref(value).cast(), size_of::<T>());
}
