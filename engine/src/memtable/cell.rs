//! The layout of a cell in an arena.
//!
//! ```text
//! 0   next      u32   place of the key's next older version; the only part that changes, atomically
//! 4   value     u32   length of the value
//! 8   sequence  u64
//! 16  key       u32   length of the key in 24 bits, then kind (2 bits), has timestamp, has written time
//! 20  [timestamp u64] [written u64]  key  value
//! ```
#![expect(unsafe_code, reason = "cells are read where they lie")]

use super::arena::{Arena, NOWHERE};
use super::prefetch::prefetch;
use crate::types::{CellRef, Kind, SeqNo, Timestamp};
use std::marker::PhantomData;
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};

const HEADER: usize = 20;
const KEY_BITS: u32 = 24;
const HAS_TIMESTAMP: u32 = 1 << 26;
const HAS_WRITTEN: u32 = 1 << 27;

/// A cell in an arena or in chunks taken over from one, alive for `'a`.
#[derive(Clone, Copy)]
pub(super) struct CellAt<'a> {
    at: *const u8,
    _chunk: PhantomData<&'a [u8]>,
}

/// The number of cells ahead of a cursor that are prefetched, as they lie anywhere in the chunks.
pub(super) const FETCHED_AHEAD: usize = 8;
/// Bytes of a cell that are prefetched.
const FETCHED_BYTES: usize = 160;

/// Bytes of the cell in an arena.
pub(super) fn size(cell: &CellRef<'_>) -> usize {
    let optional = (cell.timestamp != Timestamp::ZERO) as usize + (cell.written != 0) as usize;
    HEADER + optional * 8 + cell.key.len() + cell.value.len()
}

/// Bytes from the cell's start to where the next may start: its size, rounded up for alignment.
pub(super) fn room(cell: &CellRef<'_>) -> usize {
    size(cell).next_multiple_of(8)
}

/// Writes a copy of the cell to new memory of the arena; its place is not published yet.
///
/// # Safety
/// As [`Arena::room`].
pub(super) unsafe fn write(arena: &Arena, cell: &CellRef<'_>, next: u32) -> u32 {
    assert!(cell.key.len() < 1 << KEY_BITS && cell.value.len() <= u32::MAX as usize, "cell over the limits");
    let mut meta = cell.key.len() as u32 | (cell.kind as u32) << KEY_BITS;
    // SAFETY: the caller's promise.
    let (place, at) = unsafe { arena.room(size(cell)) };
    // SAFETY: `size` bytes from `at` are ours, 8-byte aligned, and every write below lies within them.
    unsafe {
        at.cast::<u32>().write(next);
        at.add(4).cast::<u32>().write(cell.value.len() as u32);
        at.add(8).cast::<u64>().write(cell.seq.0);
        let mut rest = at.add(HEADER);
        if cell.timestamp != Timestamp::ZERO {
            meta |= HAS_TIMESTAMP;
            rest.cast::<u64>().write_unaligned(cell.timestamp.0);
            rest = rest.add(8);
        }
        if cell.written != 0 {
            meta |= HAS_WRITTEN;
            rest.cast::<u64>().write_unaligned(cell.written);
            rest = rest.add(8);
        }
        at.add(16).cast::<u32>().write(meta);
        ptr::copy_nonoverlapping(cell.key.as_ptr(), rest, cell.key.len());
        ptr::copy_nonoverlapping(cell.value.as_ptr(), rest.add(cell.key.len()), cell.value.len());
    }
    place
}

/// Writes a copy of the cell, like [`write`], into an arena that nobody else has.
pub(super) fn copy(arena: &mut Arena, cell: &CellRef<'_>) -> u32 {
    // SAFETY: the borrow is the only one.
    unsafe { write(arena, cell, NOWHERE) }
}

impl<'a> CellAt<'a> {
    /// # Safety
    /// A cell written by [`write`] lies there, was published to this thread, and its chunk lives for `'a`.
    #[inline]
    pub(super) unsafe fn new(at: *const u8) -> Self {
        Self { at, _chunk: PhantomData }
    }

    /// Prefetches the cell, which will be read soon.
    #[inline]
    pub(super) fn prefetch(self) {
        prefetch(self.at, FETCHED_BYTES);
    }

    #[inline]
    fn next_link(self) -> &'a AtomicU32 {
        // SAFETY: aligned, within the cell, alive for `'a`, and after publication touched only atomically.
        unsafe { AtomicU32::from_ptr(self.at.cast_mut().cast()) }
    }

    /// Place of the next version in the key's chain, or [`NOWHERE`].
    #[inline]
    pub(super) fn next(self) -> u32 {
        self.next_link().load(Ordering::Acquire)
    }

    /// Links a version behind this one in the chain.
    ///
    /// # Safety
    /// A cell written by [`write`] into the same arena lies at `place`, its own `next` is what follows this
    /// one now, and this thread alone changes the chain.
    pub(super) unsafe fn set_next(self, place: u32) {
        debug_assert_ne!(place, NOWHERE);
        self.next_link().store(place, Ordering::Release);
    }

    #[inline]
    fn meta(self) -> u32 {
        // SAFETY: a published cell's header, never written again.
        unsafe { self.at.add(16).cast::<u32>().read() }
    }

    #[inline]
    pub(super) fn seq(self) -> SeqNo {
        // SAFETY: as in `meta`.
        SeqNo(unsafe { self.at.add(8).cast::<u64>().read() })
    }

    #[inline]
    pub(super) fn kind(self) -> Kind {
        Kind::from_u8((self.meta() >> KEY_BITS & 3) as u8).expect("written from a Kind")
    }

    #[inline]
    pub(super) fn timestamp(self) -> Timestamp {
        match self.meta() & HAS_TIMESTAMP {
            0 => Timestamp::ZERO,
            // SAFETY: the flag says it is there; unaligned by design.
            _ => Timestamp(unsafe { self.at.add(HEADER).cast::<u64>().read_unaligned() }),
        }
    }

    #[inline]
    pub(super) fn key(self) -> &'a [u8] {
        let meta = self.meta();
        let optional = (meta & HAS_TIMESTAMP != 0) as usize + (meta & HAS_WRITTEN != 0) as usize;
        let len = (meta & ((1 << KEY_BITS) - 1)) as usize;
        // SAFETY: `write` put `len` key bytes there, and they never change.
        unsafe { std::slice::from_raw_parts(self.at.add(HEADER + optional * 8), len) }
    }

    /// The whole cell.
    #[inline]
    pub(super) fn get(self) -> CellRef<'a> {
        let meta = self.meta();
        let mut written_at = HEADER;
        let mut timestamp = Timestamp::ZERO;
        if meta & HAS_TIMESTAMP != 0 {
            timestamp = self.timestamp();
            written_at += 8;
        }
        let key = self.key();
        // SAFETY: header fields and value as `write` put them; the value follows the key.
        let (written, value) = unsafe {
            let written = match meta & HAS_WRITTEN {
                0 => 0,
                _ => self.at.add(written_at).cast::<u64>().read_unaligned(),
            };
            let len = self.at.add(4).cast::<u32>().read() as usize;
            let value_at = key.as_ptr().offset_from_unsigned(self.at) + key.len();
            (written, std::slice::from_raw_parts(self.at.add(value_at), len))
        };
        CellRef { key, timestamp, seq: self.seq(), kind: self.kind(), written, value }
    }
}
