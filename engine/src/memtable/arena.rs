//! Memory that only grows: chunks, and 32-bit *places* as addresses in them.
//!
//! One writer at a time appends; readers need no lock. Allocations never move, and a chunk lives as long as
//! anything holds its `Arc`: the arena, a flat memtable that took the chunks over, or a value pinned by a
//! caller.
//!
//! A place is a chunk's number and, in the low bits, an offset in units of 8 bytes. The low bits are just as
//! many as a chunk of the arena's size needs, so that a place always addresses 32 GiB of chunks, whatever
//! their size. An allocation too large for that (or larger than a quarter of a chunk, when the rest of the
//! current chunk is too small for it) gets a chunk of its own, exactly as large, and begins at its offset
//! zero.
//!
//! Readers find a chunk through the *directory*, an array of base addresses. When it is full the writer
//! publishes a copy of twice the size; the old ones stay until the arena is dropped; together they are
//! smaller than the last. A place reaches a reader only through a release store made after the directory had
//! its chunk, so the directory that the reader then loads has it too.
#![expect(unsafe_code, reason = "cells are built in place and read without a lock; invariants are above")]

use super::chunk_pool::Spares;
use super::pages::{ALIGN, allocate, free};
use super::prefetch::prefetch;
use super::sync::{AtomicPtr, AtomicUsize, Ordering};
use crate::types::Owner;
use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::any::Any;
use std::cell::UnsafeCell;
use std::marker::PhantomData;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::AtomicPtr as PlainPtr;

/// The value that is no place. Nothing is ever allocated in the last unit of the last chunk.
pub(super) const NOWHERE: u32 = u32::MAX;

const UNIT: usize = 8;

/// A piece of memory. With its last `Arc` it is freed, or goes back to its pool.
pub(super) struct Chunk {
    base: NonNull<u8>,
    len: usize,
    /// The pool that it came from and goes back to.
    spares: Option<Arc<Spares>>,
}

// SAFETY: a chunk is plain memory; who may touch which bytes is the arena's and the tree's contract.
unsafe impl Send for Chunk {}
// SAFETY: as above.
unsafe impl Sync for Chunk {}

impl Chunk {
    /// A chunk that is freed when it is dropped.
    fn new(len: usize) -> Self {
        Self { base: allocate(len), len, spares: None }
    }

    /// A chunk that comes from a pool and goes back to it.
    fn of(spares: &Arc<Spares>, len: usize) -> Self {
        Self { base: spares.take(len), len, spares: Some(spares.clone()) }
    }

    /// Its size in memory.
    pub(super) fn bytes(&self) -> usize {
        self.len
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        match &self.spares {
            // SAFETY: taken from there with that length; nobody has the chunk any more.
            Some(spares) => unsafe { spares.put(self.base, self.len) },
            // SAFETY: allocated in `new` with that length.
            None => unsafe { free(self.base, self.len) },
        }
    }
}

/// How places address the chunks of an arena, or of the flat memtable that took over its chunks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Places {
    unit_bits: u32,
}

impl Places {
    pub(super) fn new(chunk_bytes: usize) -> Self {
        assert!(chunk_bytes.is_power_of_two() && chunk_bytes >= ALIGN, "chunk size {chunk_bytes}");
        Self { unit_bits: (chunk_bytes / UNIT).ilog2() }
    }

    #[inline]
    fn place(self, chunk: usize, offset: usize) -> u32 {
        ((chunk << self.unit_bits) | (offset / UNIT)) as u32
    }

    #[inline]
    pub(super) fn chunk(self, place: u32) -> usize {
        (place >> self.unit_bits) as usize
    }

    #[inline]
    pub(super) fn offset(self, place: u32) -> usize {
        (place & ((1 << self.unit_bits) - 1)) as usize * UNIT
    }

    /// The place in a list that has `by` chunks in front of the present ones.
    #[inline]
    pub(super) fn raised(self, place: u32, by: usize) -> u32 {
        place + ((by as u32) << self.unit_bits)
    }

    /// Whether a list of so many chunks can be addressed. (The last unit of the last chunk is [`NOWHERE`].)
    pub(super) fn holds(self, chunks: usize) -> bool {
        chunks <= self.chunks_max()
    }

    fn chunks_max(self) -> usize {
        1 << (32 - self.unit_bits)
    }
}

/// A chunk's address. Valid while the owner of the list with this entry holds the chunk's `Arc`.
#[derive(Clone, Copy)]
pub(super) struct ChunkAt {
    base: *mut u8,
    chunk: *const Chunk,
}

impl ChunkAt {
    pub(super) fn of(chunk: &Arc<Chunk>) -> Self {
        Self { base: chunk.base.as_ptr(), chunk: Arc::as_ptr(chunk) }
    }

    #[inline]
    pub(super) fn base(self) -> *mut u8 {
        self.base
    }
}

/// Keeps a cell's bytes alive: its chunk, borrowed until pinned.
pub(super) struct ChunkRef<'a> {
    chunk: *const Chunk,
    _list: PhantomData<&'a Chunk>,
}

impl<'a> ChunkRef<'a> {
    /// # Safety
    /// The chunk's `Arc` is held for `'a`.
    pub(super) unsafe fn new(at: ChunkAt) -> ChunkRef<'a> {
        ChunkRef { chunk: at.chunk, _list: PhantomData }
    }
}

// SAFETY: cells handed out with this lie in the chunk; their key and value bytes are never written again.
unsafe impl Owner for ChunkRef<'_> {
    fn pin(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        // SAFETY: the pointer came from `Arc::as_ptr` and that `Arc` is held for `'a` (contract of `new`).
        unsafe {
            Arc::increment_strong_count(self.chunk);
            Some(Arc::from_raw(self.chunk))
        }
    }
}

/// Appends to chunks and hands out addresses. The first chunks are small, and each later one grows with the
/// arena's contents, up to the arena's chunk size: an almost empty arena takes little memory, and about a
/// quarter of any but the smallest may be unused.
struct Bump {
    chunk_bytes: usize,
    /// The smallest size of a shared chunk.
    first_bytes: usize,
    chunks: Vec<Arc<Chunk>>,
    /// The chunk being filled: its number, address, length, and how much is filled.
    current: usize,
    base: *mut u8,
    length: usize,
    used: usize,
    capacity: usize,
    /// Bytes handed out, alignment included.
    taken: usize,
    /// The pool that chunks come from, except those made for one large allocation.
    spares: Option<Arc<Spares>>,
}

impl Bump {
    fn new(sizes: Sizes, spares: Option<Arc<Spares>>) -> Self {
        let Sizes { chunk_bytes, first_bytes } = sizes;
        let first_bytes = first_bytes.min(chunk_bytes);
        Self {
            chunk_bytes,
            first_bytes,
            chunks: Vec::new(),
            current: 0,
            base: ptr::null_mut(),
            length: 0,
            used: 0,
            capacity: 0,
            taken: 0,
            spares,
        }
    }

    /// Allocates `len` bytes: chunk number, offset and address, aligned to `align` (a power of two up to 64).
    #[inline]
    fn take(&mut self, len: usize, align: usize) -> (usize, usize, *mut u8) {
        let start = self.used.next_multiple_of(align);
        if start + len > self.length {
            return self.take_in_new_chunk(len);
        }
        self.taken += start + len - self.used;
        self.used = start + len;
        // SAFETY: `start + len` is within the chunk, which `chunks` holds.
        (self.current, start, unsafe { self.base.add(start) })
    }

    #[cold]
    fn take_in_new_chunk(&mut self, len: usize) -> (usize, usize, *mut u8) {
        let own = len > self.chunk_bytes / 4;
        let size = match own {
            true => len.next_multiple_of(UNIT),
            // A power of two, as the largest is, so that the pool can reuse it for others.
            false => {
                let grown = (self.capacity / 4).max(4 * len).max(self.first_bytes).next_power_of_two();
                grown.min(self.chunk_bytes)
            }
        };
        let chunk = Arc::new(match &self.spares {
            Some(spares) if !own => Chunk::of(spares, size),
            Some(spares) => {
                spares.grew(size);
                Chunk::new(size)
            }
            None => Chunk::new(size),
        });
        let base = chunk.base.as_ptr();
        let number = self.chunks.len();
        self.chunks.push(chunk);
        self.capacity += size;
        self.taken += if own { size } else { len };
        if !own {
            (self.current, self.base, self.length, self.used) = (number, base, size, len);
        }
        (number, 0, base)
    }
}

/// Memory for index nodes, for one user at a time; it hands out addresses. Freed when dropped.
pub(super) struct Nodes(Bump);

impl Nodes {
    pub(super) fn new(sizes: Sizes, spares: Option<Arc<Spares>>) -> Self {
        Self(Bump::new(sizes, spares))
    }

    /// Memory for a `T`, at least 64-byte aligned, not initialised, valid until this is dropped.
    #[inline]
    pub(super) fn room<T>(&mut self) -> *mut T {
        const { assert!(align_of::<T>() <= ALIGN) };
        self.0.take(size_of::<T>(), ALIGN).2.cast()
    }

    /// Bytes of the nodes so far.
    pub(super) fn taken(&self) -> usize {
        self.0.taken
    }
}

/// The sizes of an arena's chunks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Sizes {
    /// The size of chunks once the arena has grown: a power of two.
    pub(crate) chunk_bytes: usize,
    /// The size of the first chunk.
    pub(crate) first_bytes: usize,
}

impl Sizes {
    /// Chunks of one size.
    pub(crate) fn all(chunk_bytes: usize) -> Self {
        Self { chunk_bytes, first_bytes: chunk_bytes }
    }

    /// The sizes for the index of cells in chunks of these sizes.
    pub(super) fn of_index(self) -> Self {
        let part = |bytes: usize| (bytes / 4).max(1 << 10);
        Self { chunk_bytes: part(self.chunk_bytes), first_bytes: part(self.first_bytes) }
    }
}

/// Chunks whose contents are addressed by places. See the page above.
pub(super) struct Arena {
    places: Places,
    directory: AtomicPtr<ChunkAt>,
    taken: AtomicUsize,
    /// The end of the filled part of the present chunk. Only prefetched, never read; so models ignore it.
    front: PlainPtr<u8>,
    writer: UnsafeCell<Writer>,
}

struct Writer {
    bump: Bump,
    /// All directories so far; readers may still be using any of them.
    directories: Vec<Directory>,
}

struct Directory {
    list: NonNull<ChunkAt>,
    room: usize,
}

impl Directory {
    fn new(room: usize) -> Self {
        let layout = Layout::array::<ChunkAt>(room).expect("directories are small");
        // SAFETY: the room is never zero.
        let list = NonNull::new(unsafe { alloc(layout) }).unwrap_or_else(|| handle_alloc_error(layout));
        Self { list: list.cast(), room }
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let layout = Layout::array::<ChunkAt>(self.room).expect("as in `new`");
        // SAFETY: allocated in `new` with the same layout.
        unsafe { dealloc(self.list.as_ptr().cast(), layout) }
    }
}

// SAFETY: chunks and directories are plain memory; `writer` is touched by one thread at a time (contract of
// the unsafe methods), the rest is atomic or reached through places as the page above says.
unsafe impl Send for Arena {}
// SAFETY: as above.
unsafe impl Sync for Arena {}

impl Arena {
    pub(super) fn new(sizes: Sizes, spares: Option<Arc<Spares>>) -> Self {
        Self {
            places: Places::new(sizes.chunk_bytes),
            directory: AtomicPtr::new(ptr::null_mut()),
            taken: AtomicUsize::new(0),
            front: Default::default(),
            writer: UnsafeCell::new(Writer { bump: Bump::new(sizes, spares), directories: Vec::new() }),
        }
    }

    /// An arena for allocations of exactly these sizes, in one chunk that they fill.
    pub(super) fn exact(sizes: impl Iterator<Item = usize>) -> Self {
        let bytes: usize = sizes.map(|size| size.next_multiple_of(UNIT)).sum();
        let mut arena = Self::new(Sizes::all(bytes.next_power_of_two().max(ALIGN)), None);
        if bytes > 0 {
            let writer = arena.writer.get_mut();
            // Addressed as if the chunk were as large as the next power of two.
            let chunk = Arc::new(Chunk::new(bytes));
            let base = chunk.base.as_ptr();
            writer.bump = Bump { base, length: bytes, capacity: bytes, ..Bump::new(Sizes::all(bytes), None) };
            writer.bump.chunks.push(chunk);
        }
        arena
    }

    /// Allocates `len` bytes, 8-byte aligned, not initialised; returns their place and address.
    ///
    /// # Safety
    /// One caller at a time, counting [`Arena::chunks`] too.
    #[inline]
    pub(super) unsafe fn room(&self, len: usize) -> (u32, *mut u8) {
        // SAFETY: the only caller now.
        let writer = unsafe { &mut *self.writer.get() };
        let before = writer.bump.chunks.len();
        let (chunk, offset, at) = writer.bump.take(len, UNIT);
        if chunk >= before {
            self.enter_chunk(writer, chunk);
        }
        self.taken.store(writer.bump.taken, Ordering::Relaxed);
        self.front.store(writer.bump.base.wrapping_add(writer.bump.used), Ordering::Relaxed);
        (self.places.place(chunk, offset), at)
    }

    /// Prefetches the memory of the next allocation, if it goes into the chunk being filled.
    #[inline]
    pub(super) fn prefetch_room(&self, len: usize) {
        prefetch(self.front.load(Ordering::Relaxed), len);
    }

    #[cold]
    fn enter_chunk(&self, writer: &mut Writer, number: usize) {
        assert!(number < self.places.chunks_max(), "a memtable addresses at most 32 GiB of chunks");
        let full = writer.directories.last().is_none_or(|d| number == d.room);
        if full {
            let larger = Directory::new((number * 2).max(16));
            if let Some(last) = writer.directories.last() {
                // SAFETY: both are at least `number` long, distinct, and the old one is initialised up to
                // there.
                unsafe { ptr::copy_nonoverlapping(last.list.as_ptr(), larger.list.as_ptr(), number) };
            }
            writer.directories.push(larger);
        }
        let list = writer.directories.last().expect("just made sure").list;
        // SAFETY: within the list; no reader touches this entry before it acquires a place in the chunk.
        unsafe { list.add(number).write(ChunkAt::of(&writer.bump.chunks[number])) };
        if full {
            self.directory.store(list.as_ptr(), Ordering::Release);
        }
    }

    /// The chunks so far.
    ///
    /// # Safety
    /// As [`Arena::room`]: nobody else is in either method.
    pub(super) unsafe fn chunks(&self) -> Vec<Arc<Chunk>> {
        // SAFETY: the only caller now.
        unsafe { &*self.writer.get() }.bump.chunks.clone()
    }

    /// The chunks of an arena that was never shared.
    pub(super) fn into_chunks(self) -> Vec<Arc<Chunk>> {
        self.writer.into_inner().bump.chunks
    }

    pub(super) fn places(&self) -> Places {
        self.places
    }

    /// The address of a place.
    ///
    /// # Safety
    /// The place came from this arena's `room`, through an acquire load if another thread made it.
    #[inline]
    pub(super) unsafe fn at(&self, place: u32) -> *mut u8 {
        // SAFETY: of the entry: see `chunk_at`; of the offset: `room` gave it within the chunk.
        unsafe { self.chunk_at(place).base.add(self.places.offset(place)) }
    }

    /// The chunk that keeps the bytes at a place alive.
    ///
    /// # Safety
    /// As [`Arena::at`].
    pub(super) unsafe fn held(&self, place: u32) -> ChunkRef<'_> {
        // SAFETY: this arena holds the chunk's `Arc` until it is dropped.
        unsafe { ChunkRef::new(*self.chunk_at(place)) }
    }

    /// # Safety
    /// As [`Arena::at`].
    #[inline]
    unsafe fn chunk_at(&self, place: u32) -> &ChunkAt {
        // SAFETY: the chunk was entered before its place was published, so this directory has it.
        unsafe { &*self.directory.load(Ordering::Acquire).add(self.places.chunk(place)) }
    }

    /// Bytes handed out, alignment included.
    pub(super) fn taken(&self) -> usize {
        self.taken.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_handed_out_keeps_place_and_bytes_while_the_arena_grows() {
        let arena = Arena::new(Sizes { chunk_bytes: 256, first_bytes: 64 }, None);
        let mut made = Vec::new();
        for i in 0..500usize {
            let len = if i % 50 == 49 { 700 } else { 8 + i % 60 };
            // SAFETY: one thread.
            let (place, at) = unsafe { arena.room(len) };
            // SAFETY: `len` bytes are ours.
            unsafe { ptr::write_bytes(at, i as u8, len) };
            made.push((place, at, len));
        }
        for (i, &(place, at, len)) in made.iter().enumerate() {
            // SAFETY: handed out above, on this thread.
            unsafe {
                assert_eq!(arena.at(place), at);
                assert!(std::slice::from_raw_parts(at, len).iter().all(|&b| b == i as u8));
            }
        }
        let places: std::collections::BTreeSet<u32> = made.iter().map(|m| m.0).collect();
        assert_eq!((places.len(), places.contains(&NOWHERE)), (500, false));
    }

    #[test]
    fn a_held_chunk_outlives_its_arena() {
        let arena = Arena::new(Sizes::all(64), None);
        // SAFETY: one thread; the bytes are written before they are read and lie in the pinned chunk.
        let bytes = unsafe {
            let (place, at) = arena.room(3);
            ptr::copy_nonoverlapping(b"abc".as_ptr(), at, 3);
            crate::types::Pinned::held(std::slice::from_raw_parts(at, 3), &arena.held(place))
        };
        drop(arena);
        assert_eq!(bytes, b"abc");
    }

    #[test]
    fn chunks_grow_with_what_is_in_them_and_few_bytes_take_few() {
        let sizes = Sizes { chunk_bytes: 64 << 10, first_bytes: 512 };
        for bytes in [100, 2_000, 50_000, 1_000_000] {
            let arena = Arena::new(sizes, None);
            // SAFETY: one thread.
            (0..bytes / 100).for_each(|_| unsafe { _ = arena.room(100) });
            // SAFETY: one thread.
            let chunks: Vec<usize> = unsafe { arena.chunks() }.iter().map(|chunk| chunk.bytes()).collect();
            let all: usize = chunks.iter().sum();
            assert!(all <= 512 + bytes * 3 / 2, "{all} for {bytes}: {chunks:?}");
            assert!(chunks.len() <= 80, "{chunks:?}");
        }
    }

    #[test]
    fn what_is_handed_out_is_counted_and_places_reach_32_gib() {
        let arena = Arena::new(Sizes::all(1024), None);
        // SAFETY: one thread.
        unsafe { (arena.room(10), arena.room(5000), arena.room(10)) };
        assert_eq!(arena.taken(), 10 + 5000 + 16);
        for chunk_bytes in [32 << 10, 2 << 20] {
            let places = Places::new(chunk_bytes);
            assert_eq!(places.chunks_max() * chunk_bytes, 32 << 30);
            let place = places.place(places.chunks_max() - 1, chunk_bytes - 16);
            assert_eq!(
                (places.chunk(place), places.offset(place)),
                (places.chunks_max() - 1, chunk_bytes - 16)
            );
        }
    }
}
