//! Has the processor fetch memory before it is touched.
//!
//! A write to one of thousands of families finds all of its family's memory cold: the store, its version, the
//! segment, a node of the index, the place of the next cell. Touched one after the other each is a wait of
//! some 100 ns. Fetched as soon as its address is known, the waits overlap with each other and with logging.

/// No more cache lines than these are fetched at once: processors wait for about ten at a time, and a long
/// value must not push everything else out of their caches.
#[cfg(all(target_arch = "x86_64", not(models)))]
const LINES_MAX: usize = 8;
#[cfg(all(target_arch = "x86_64", not(models)))]
const LINE: usize = 64;

/// The cache lines of the bytes from there on, [`LINES_MAX`] at most. The address need not be valid.
#[inline]
#[cfg(all(target_arch = "x86_64", not(models)))]
#[expect(unsafe_code, reason = "there is no safe way to say it; a wrong address does no harm")]
pub(super) fn prefetch(from: *const u8, bytes: usize) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    let into_line = from.addr() % LINE;
    let (first, bytes) = (from.wrapping_sub(into_line), bytes + into_line);
    for at in (0..bytes).step_by(LINE).take(LINES_MAX) {
        // SAFETY: a hint, which never faults and changes nothing.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(first.wrapping_add(at).cast()) };
    }
}

/// Other processors fetch when memory is touched.
#[inline]
#[cfg(not(all(target_arch = "x86_64", not(models))))]
pub(super) fn prefetch(_from: *const u8, _bytes: usize) {}

/// A whole value.
#[inline]
pub(crate) fn prefetch_value<T>(value: &T) {
    prefetch(std::ptr::from_ref(value).cast(), size_of::<T>());
}
