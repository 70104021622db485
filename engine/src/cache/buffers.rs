//! Reuse of the memory of evicted blocks.
//!
//! A read of a block that is not in the cache evicts another of about the same size. Its memory serves the
//! thread's next block: this needs no allocator, whose locks two readers would contend for (one thread frees
//! what another allocated), and no zeroing.
//!
//! The memory of a block depends on its length alone, not on the buffer it reuses: evictions must be
//! reproducible.
//!
//! Blocks of mapped SSTables have no memory: their bytes stay in the mapping.
#![expect(unsafe_code, reason = "a block reads its bytes without asking each time where they lie")]

use crate::storage::MappedRead;
use std::cell::RefCell;
use std::ops::{Deref, Range};
use std::sync::Arc;

/// Bytes of a block. When a buffer in memory is dropped, the thread keeps it for its next block.
pub(crate) struct Buffer {
    /// Invariant: `len` bytes there are alive and do not move as long as `of` lives (for `Lent`, as its
    /// caller promises).
    at: *const u8,
    len: usize,
    of: Of,
}

enum Of {
    Memory(Vec<u8>),
    /// Held to keep the bytes alive.
    Mapping(#[expect(dead_code, reason = "it keeps the bytes alive")] Arc<dyn MappedRead>),
    Lent,
}

// SAFETY: the bytes are only read, and what holds them may be sent and shared.
unsafe impl Send for Buffer {}
// SAFETY: as above.
unsafe impl Sync for Buffer {}

impl std::fmt::Debug for Buffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Buffer({} bytes)", self.len)
    }
}

#[cfg(target_arch = "x86_64")]
const LINE_BYTES: usize = 64;
/// The most cache lines that are prefetched.
#[cfg(target_arch = "x86_64")]
const LINES_AHEAD: usize = 16;

/// The most buffers that a thread keeps, which are counted nowhere, and the size of the largest.
const KEPT: usize = 4;
const BYTES_MAX: usize = 32 << 10;
/// Number of sizes between a power of two and the next: a buffer wastes less than one part in so many. Blocks
/// of an SSTable differ by about the length of an entry.
const SIZES: usize = 64;

thread_local! {
    static FREE: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// Prefetches bytes that are about to be read, at most 1 KiB. The processor's own prefetching starts only
/// after a few misses.
#[inline]
pub(crate) fn prefetch(bytes: &[u8]) {
    #[cfg(target_arch = "x86_64")]
    for line in bytes.chunks(LINE_BYTES).take(LINES_AHEAD) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a hint, which reads nothing.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(line.as_ptr().cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = bytes;
}

/// Memory for that many bytes. It has bytes of another block, to be overwritten.
pub(crate) fn take(len: usize) -> Vec<u8> {
    let size = size_for(len);
    let kept = FREE.with_borrow_mut(|free| {
        let at = free.iter().position(|bytes| bytes.capacity() == size)?;
        Some(free.swap_remove(at))
    });
    kept.unwrap_or_else(|| Vec::with_capacity(size))
}

fn size_for(len: usize) -> usize {
    let step = (len.next_power_of_two() / (2 * SIZES)).max(1);
    len.next_multiple_of(step)
}

impl Buffer {
    /// A part of a mapped file, if the file is long enough.
    pub(crate) fn mapped(map: &Arc<dyn MappedRead>, part: Range<usize>) -> Option<Self> {
        let bytes = map.bytes().get(part)?;
        // Nobody can change or unmap the bytes while an `Arc` of the mapping is held.
        Some(Self { at: bytes.as_ptr(), len: bytes.len(), of: Of::Mapping(map.clone()) })
    }

    /// # Safety
    /// The bytes must outlive the buffer.
    pub(crate) unsafe fn lent(bytes: &[u8]) -> Self {
        Self { at: bytes.as_ptr(), len: bytes.len(), of: Of::Lent }
    }

    /// Whether the bytes are in a mapping or borrowed.
    #[inline]
    pub(crate) fn is_mapped(&self) -> bool {
        !matches!(self.of, Of::Memory(_))
    }

    pub(crate) fn capacity(&self) -> usize {
        if let Of::Memory(bytes) = &self.of { bytes.capacity() } else { 0 }
    }
}

impl From<Vec<u8>> for Buffer {
    fn from(bytes: Vec<u8>) -> Self {
        // They do not move with the vector.
        Self { at: bytes.as_ptr(), len: bytes.len(), of: Of::Memory(bytes) }
    }
}

impl Deref for Buffer {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: the invariant of `at`.
        unsafe { std::slice::from_raw_parts(self.at, self.len) }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let Of::Memory(bytes) = &mut self.of else { return };
        if bytes.capacity() <= BYTES_MAX {
            let bytes = std::mem::take(bytes);
            // A thread that ends keeps nothing.
            let _ = FREE.try_with(|free| {
                let mut free = free.borrow_mut();
                if free.len() == KEPT {
                    free.remove(0);
                }
                free.push(bytes);
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_a_block_serves_the_next_of_its_size() {
        let first = Buffer::from(take(4070));
        let at = first.as_ptr();
        drop(first);
        let small = take(100);
        assert_ne!(small.as_ptr(), at, "a small block does not take the memory of a large one");
        let next = take(4090);
        assert_eq!(next.as_ptr(), at);
    }

    #[test]
    fn how_much_a_block_takes_depends_on_its_length_alone() {
        for len in (0..5000).chain([100_000, 1 << 20]) {
            let bytes = take(len);
            assert_eq!(bytes.capacity(), size_for(len));
            assert!(bytes.capacity() - len <= len / SIZES, "{len}");
            drop(Buffer::from(bytes));
        }
    }

    #[test]
    fn a_thread_keeps_few_buffers_and_no_large_one() {
        for n in 0..100 {
            drop(Buffer::from(Vec::with_capacity(1000 * n)));
        }
        let (count, largest) = FREE.with_borrow(|free| (free.len(), free.iter().map(Vec::capacity).max()));
        assert_eq!((count, largest), (KEPT, Some(32_000)));
    }
}
