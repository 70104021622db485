//! Memory of blocks that are gone, for blocks that come.
//!
//! Who reads a block that is not in the cache pushes another of about the same size out of it. Its memory serves the new
//! one: the allocator is not asked, whose locks two readers would meet at (what one thread allocated another frees), and
//! nothing is filled with zeros first.

use std::cell::RefCell;
use std::ops::Deref;

/// Bytes of a block; when they go, the thread that lets go of them keeps their memory for its next block.
#[derive(Debug)]
pub(crate) struct Buffer(Vec<u8>);

/// What a thread keeps at most: so many buffers, none larger than that.
const KEPT: usize = 8;
const BYTES_MAX: usize = 32 << 10;

thread_local! {
    static FREE: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// Bytes to be overwritten, whatever they are, of that length.
pub(crate) fn take(len: usize) -> Vec<u8> {
    // An eighth more than is needed may be wasted.
    let fits = |bytes: &Vec<u8>| bytes.capacity() >= len && bytes.capacity() - len <= len / 8;
    let kept = FREE.with_borrow_mut(|free| {
        let best = (0..free.len()).filter(|&i| fits(&free[i])).min_by_key(|&i| free[i].capacity());
        best.map(|i| free.remove(i))
    });
    match kept {
        Some(mut bytes) => {
            bytes.resize(len, 0);
            bytes
        }
        None => vec![0; len],
    }
}

impl Buffer {
    /// Bytes of memory it takes.
    pub(crate) fn capacity(&self) -> usize {
        self.0.capacity()
    }
}

impl From<Vec<u8>> for Buffer {
    fn from(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }
}

impl Deref for Buffer {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if self.0.capacity() <= BYTES_MAX {
            let bytes = std::mem::take(&mut self.0);
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
        let first = Buffer::from(vec![7; 4000]);
        let at = first.as_ptr();
        drop(first);
        let next = take(3900);
        assert_eq!((next.as_ptr(), next.len()), (at, 3900));
        drop(Buffer::from(next));
        let small = take(100);
        assert_ne!(small.as_ptr(), at, "a small block does not take the memory of a large one");
        assert_eq!(take(4000).len(), 4000);
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
