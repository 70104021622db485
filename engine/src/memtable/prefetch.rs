//! Prefetches memory before it is touched.
//!
//! A write to one of thousands of families finds all of its family's memory cold: the store, its version, the
//! memtable, a node of the index, the place of the next cell. Touched one after the other, each costs a wait
//! of some 100 ns. Prefetched as soon as their addresses are known, the waits overlap with each other and
//! with logging.

/// The most cache lines that are prefetched at once: processors wait for about ten at a time, and a long
/// value must not evict everything else from their caches.
#[cfg(all(target_arch = "x86_64", not(models)))]
const LINES_MAX: usize = 8;
#[cfg(all(target_arch = "x86_64", not(models)))]
const LINE: usize = 64;

/// Prefetches the cache lines of these bytes, [`LINES_MAX`] at most. The address need not be valid.
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

/// On other processors, memory is fetched when it is touched.
#[inline]
#[cfg(not(all(target_arch = "x86_64", not(models))))]
pub(super) fn prefetch(_from: *const u8, _bytes: usize) {}

/// Prefetches a whole value.
#[inline]
pub(crate) fn prefetch_value<T>(value: &T) {
    prefetch(std::ptr::from_ref(value).cast(), size_of::<T>());
}
