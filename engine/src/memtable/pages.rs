//! Memory for chunks, from the system.
//!
//! A chunk of 64 KiB or more is mapped, not allocated: with an allocator, memory freed by a flush would lie
//! between small allocations, and the process would keep it. Chunks are cut out of *regions* of 2 MiB, each a
//! huge page if the system has one: a put touches a few places far apart, and with pages of 4 KiB nearly each
//! costs a page table walk; and clearing one huge page takes a tenth of 512 faults. Pieces of a region are
//! unmapped one by one; the system may keep a huge page until it needs memory or all pieces are unmapped.
//!
//! With `--cfg free_chunks` all memory comes from the allocator, so that a sanitizer sees it.

#![expect(unsafe_code, reason = "maps and unmaps memory; each piece is its owner's until it is given back")]

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ptr::NonNull;
use std::sync::atomic::AtomicUsize;
#[cfg(target_os = "linux")]
use std::sync::atomic::Ordering::Relaxed;

/// Smaller chunks come from the allocator. A multiple of the usual page sizes of Linux: 4, 16 and 64 KiB.
const MAPPED_MIN: usize = 64 << 10;
/// The size of a huge page.
pub(super) const REGION_BYTES: usize = 2 << 20;
/// Chunks begin at a cache line.
pub(super) const ALIGN: usize = 64;
const MAPS: bool = cfg!(target_os = "linux") && !cfg!(free_chunks);

/// Mapped bytes, for tests that count memory at the allocator, which does not see them.
#[cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "nothing is mapped there"))]
pub(super) static MAPPED: AtomicUsize = AtomicUsize::new(0);

fn layout(len: usize) -> Layout {
    Layout::from_size_align(len.max(1), ALIGN).expect("a chunk is far smaller than the address space")
}

/// Memory of that length, from the system.
pub(super) fn allocate(len: usize) -> NonNull<u8> {
    let layout = layout(len);
    let base = if MAPS && len >= MAPPED_MIN {
        map(len)
    } else {
        // SAFETY: the layout's size is not zero.
        NonNull::new(unsafe { alloc(layout) })
    };
    base.unwrap_or_else(|| handle_alloc_error(layout))
}

/// A region cut into pieces of that length; `None` if such pieces are not cut from regions, or no memory is
/// left.
pub(super) fn region(len: usize) -> Option<impl Iterator<Item = NonNull<u8>>> {
    if !MAPS || !(MAPPED_MIN..=REGION_BYTES).contains(&len) || !len.is_power_of_two() {
        return None;
    }
    let base = aligned_region()?;
    #[cfg(target_os = "linux")]
    {
        use rustix::mm::{Advice, madvise};
        // SAFETY: the region is ours, and the advice changes no byte. Without it, pages are small.
        let _ = unsafe { madvise(base.as_ptr().cast(), REGION_BYTES, Advice::LinuxHugepage) };
    }
    // SAFETY: each piece lies within the region.
    Some((0..REGION_BYTES / len).map(move |i| unsafe { base.add(i * len) }))
}

/// A region aligned to its length, as a huge page must be. Recent systems align it by themselves, next to the
/// one before, which keeps the number of mappings small.
fn aligned_region() -> Option<NonNull<u8>> {
    let mapped = map(REGION_BYTES)?;
    if mapped.as_ptr().align_offset(REGION_BYTES) == 0 {
        return Some(mapped);
    }
    // SAFETY: nobody else has it.
    unsafe { unmap(mapped, REGION_BYTES) };
    // Twice the length contains an aligned region.
    let mapped = map(2 * REGION_BYTES)?;
    let before = mapped.as_ptr().align_offset(REGION_BYTES);
    // SAFETY: the mapping has room for a region behind `before`, which is less than one; nobody else has it.
    unsafe {
        let base = mapped.add(before);
        unmap(mapped, before);
        unmap(base.add(REGION_BYTES), REGION_BYTES - before);
        Some(base)
    }
}

/// Returns memory to the system.
///
/// # Safety
/// It came from [`allocate`] or [`region`] with the same length and is used by nobody.
pub(super) unsafe fn free(base: NonNull<u8>, len: usize) {
    if MAPS && len >= MAPPED_MIN {
        // SAFETY: the caller's promise; a mapping, or a whole number of pages of one.
        unsafe { unmap(base, len) }
    } else {
        // SAFETY: the caller's promise.
        unsafe { dealloc(base.as_ptr(), layout(len)) }
    }
}

#[cfg(target_os = "linux")]
fn map(len: usize) -> Option<NonNull<u8>> {
    use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
    // SAFETY: new memory at an address of the system's choice.
    let base = unsafe {
        mmap_anonymous(std::ptr::null_mut(), len, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE)
    };
    let base = NonNull::new(base.ok()?.cast());
    MAPPED.fetch_add(len, Relaxed);
    base
}

/// # Safety
/// The pages are mapped and used by nobody.
#[cfg(target_os = "linux")]
unsafe fn unmap(base: NonNull<u8>, len: usize) {
    if len > 0 {
        MAPPED.fetch_sub(len, Relaxed);
        // SAFETY: the caller's promise. It fails only if the system cannot split a mapping; then the memory
        // stays.
        let _ = unsafe { rustix::mm::munmap(base.as_ptr().cast(), len) };
    }
}

#[cfg(not(target_os = "linux"))]
fn map(_: usize) -> Option<NonNull<u8>> {
    unreachable!("nothing is mapped on this system")
}

/// # Safety
/// Never called.
#[cfg(not(target_os = "linux"))]
unsafe fn unmap(_: NonNull<u8>, _: usize) {
    unreachable!("nothing is mapped on this system")
}

#[cfg(all(test, not(any(models, free_chunks))))]
mod tests {
    use super::*;

    fn fill(base: NonNull<u8>, len: usize, byte: u8) {
        // SAFETY: `len` bytes are ours.
        unsafe { std::ptr::write_bytes(base.as_ptr(), byte, len) };
    }

    fn is_filled(base: NonNull<u8>, len: usize, byte: u8) -> bool {
        // SAFETY: as above, and written.
        unsafe { std::slice::from_raw_parts(base.as_ptr(), len) }.iter().all(|b| *b == byte)
    }

    #[test]
    fn memory_of_every_size_is_its_owners_until_it_is_given_back() {
        let sizes = [8, 1 << 10, MAPPED_MIN - 8, MAPPED_MIN, MAPPED_MIN + 8, 300_000, REGION_BYTES, 5 << 20];
        let all = sizes.map(|len| (allocate(len), len));
        for (i, (base, len)) in all.iter().enumerate() {
            assert_eq!(base.as_ptr().align_offset(ALIGN), 0);
            fill(*base, *len, i as u8);
        }
        for (i, (base, len)) in all.iter().enumerate() {
            assert!(is_filled(*base, *len, i as u8), "{len} bytes");
            // SAFETY: allocated above with that length.
            unsafe { free(*base, *len) };
        }
    }

    #[test]
    fn a_region_is_cut_into_pieces_that_go_one_by_one() {
        for len in [MAPPED_MIN, 512 << 10, REGION_BYTES].into_iter().filter(|_| MAPS) {
            let mut pieces: Vec<_> = region(len).expect("a region").collect();
            assert_eq!(pieces.len(), REGION_BYTES / len);
            assert_eq!(pieces[0].as_ptr().align_offset(REGION_BYTES), 0, "else it is no large page");
            pieces.iter().enumerate().for_each(|(i, piece)| fill(*piece, len, i as u8));
            // Every other piece is freed first.
            let (even, odd): (Vec<_>, Vec<_>) = pieces.drain(..).enumerate().partition(|(i, _)| i % 2 == 0);
            // SAFETY: pieces of that length, used by nobody any more.
            even.into_iter().for_each(|(_, piece)| unsafe { free(piece, len) });
            for (i, piece) in odd {
                assert!(is_filled(piece, len, i as u8));
                // SAFETY: as above.
                unsafe { free(piece, len) };
            }
        }
        for len in [1 << 10, MAPPED_MIN + 4096, 2 * REGION_BYTES] {
            assert!(region(len).is_none(), "pieces of {len} bytes are not cut from regions");
        }
    }
}
