//! A pool of chunks for later memtables.
//!
//! Fresh memory from the system costs a page fault and clearing for every page, more than copying a cell into
//! it. So chunks that a flush frees are given to the next memtables. The pool holds at most what write memory
//! has free (plus the pieces of a region that was begun, see `pages.rs`): `set_room` sets that whenever
//! memory is counted anew, and what memtables take in between, from the pool or the system, is deducted.
//! Chunks that nobody needed for a while are freed step by step (`rest`).
//!
//! With `--cfg free_chunks` nothing is pooled, so that a sanitizer sees every use of a freed chunk.

#![expect(unsafe_code, reason = "owns raw memory; each piece is in one list until it is taken or freed")]

use super::pages::{REGION_BYTES, allocate, free, region};
use crate::sync::Mutex;
use std::collections::BTreeMap;
use std::fmt::{Debug, Formatter};
use std::ptr::NonNull;

/// A pool of chunks for later memtables; see the page above.
#[derive(Default)]
pub(crate) struct Spares(Mutex<State>);

#[derive(Default)]
struct State {
    /// Free pieces by their size.
    lists: BTreeMap<usize, Vec<Piece>>,
    held: usize,
    room: usize,
    /// The least that was held since the last call of `rest`.
    least: usize,
    /// Bytes that were taken and not returned.
    out: usize,
}

/// A piece of unused memory.
struct Piece(NonNull<u8>);

// SAFETY: plain memory that only its list knows.
unsafe impl Send for Piece {}

impl Spares {
    /// A piece of that size from the pool, or a new one.
    pub(super) fn take(&self, len: usize) -> NonNull<u8> {
        let mut state = self.0.lock();
        if state.lists.get(&len).is_none_or(Vec::is_empty) && state.held + REGION_BYTES <= state.room {
            state.add_region(len);
        }
        let piece = state.lists.get_mut(&len).and_then(Vec::pop);
        if piece.is_some() {
            state.held -= len;
        }
        state.out += len;
        let gone = state.grew(len);
        drop(state);
        release(gone);
        piece.map_or_else(|| allocate(len), |piece| piece.0)
    }

    /// Notes that a memtable took memory from elsewhere.
    pub(super) fn grew(&self, len: usize) {
        let gone = self.0.lock().grew(len);
        release(gone);
    }

    /// Takes back a piece of that size, or frees it if the pool is full.
    ///
    /// # Safety
    /// It was allocated with that size, and nobody uses it any more.
    pub(super) unsafe fn put(&self, piece: NonNull<u8>, len: usize) {
        if cfg!(debug_assertions) {
            // A late reader must not take the old bytes for cells.
            // SAFETY: the caller's promise.
            unsafe { std::ptr::write_bytes(piece.as_ptr(), 0xd5, len) };
        }
        let mut state = self.0.lock();
        state.out -= len;
        if state.held + len <= state.room && !cfg!(free_chunks) {
            state.held += len;
            state.lists.entry(len).or_default().push(Piece(piece));
            return;
        }
        drop(state);
        release(vec![(len, Piece(piece))]);
    }

    /// Sets the bytes that the pool may hold.
    pub(crate) fn set_room(&self, room: usize) {
        let gone = self.0.lock().fit(room);
        release(gone);
    }

    /// Frees half of what was not needed since the last call. Called about once a second.
    pub(crate) fn rest(&self) {
        let mut state = self.0.lock();
        let idle = state.least.div_ceil(2);
        let upto = state.held - idle.min(state.held);
        let gone = state.shrink(upto);
        state.least = state.held;
        drop(state);
        release(gone);
    }

    /// Bytes of pieces from the pool that are in use.
    pub(crate) fn out(&self) -> usize {
        self.0.lock().out
    }

    /// Bytes in the pool.
    pub(crate) fn held(&self) -> usize {
        self.0.lock().held
    }
}

impl State {
    /// Adds a region's pieces, if regions are cut into pieces of that size.
    fn add_region(&mut self, len: usize) {
        for piece in region(len).into_iter().flatten() {
            self.held += len;
            self.lists.entry(len).or_default().push(Piece(piece));
        }
    }

    /// Sets the bytes that the pool may hold, and returns pieces beyond them.
    fn fit(&mut self, room: usize) -> Vec<(usize, Piece)> {
        self.room = room;
        self.shrink(room)
    }

    /// Deducts memory that a memtable took, from the pool or from elsewhere.
    fn grew(&mut self, len: usize) -> Vec<(usize, Piece)> {
        self.fit(self.room.saturating_sub(len))
    }

    /// Takes out pieces, largest first, until at most `upto` bytes are left.
    fn shrink(&mut self, upto: usize) -> Vec<(usize, Piece)> {
        let mut gone = Vec::new();
        while self.held > upto {
            let Some(mut list) = self.lists.last_entry() else { break };
            let len = *list.key();
            match list.get_mut().pop() {
                Some(piece) => {
                    self.held -= len;
                    gone.push((len, piece));
                }
                None => drop(list.remove()),
            }
        }
        self.least = self.least.min(self.held);
        gone
    }
}

fn release(pieces: Vec<(usize, Piece)>) {
    for (len, piece) in pieces {
        // SAFETY: allocated with that size, and out of its list.
        unsafe { free(piece.0, len) };
    }
}

impl Drop for Spares {
    fn drop(&mut self) {
        self.set_room(0);
    }
}

impl Debug for Spares {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        f.write_str("Spares")
    }
}

#[cfg(all(test, not(any(models, free_chunks))))]
mod tests {
    use super::*;
    use crate::memtable::tests::{upto, walk};
    use crate::memtable::{ActiveMemtable, MemoryOptions, Memtable, Sizes};
    use crate::types::{CellRef, Generation};
    use std::sync::Arc;

    #[test]
    fn pieces_come_back_as_long_as_there_is_room() {
        let spares = Spares::default();
        spares.set_room(300);
        let pieces = [0; 4].map(|_| spares.take(100));
        assert_eq!(spares.held(), 0);
        spares.set_room(300);
        for piece in pieces {
            // SAFETY: taken above, used by nobody.
            unsafe { spares.put(piece, 100) };
        }
        assert_eq!(spares.held(), 300, "the fourth went back to the system");
        let again = spares.take(100);
        assert!(pieces.contains(&again), "it is one of them");
        assert_eq!(spares.held(), 200);
        // What is in use leaves less room: a piece of another size, and memory from elsewhere.
        let other = spares.take(100 / 2);
        assert_eq!(spares.held(), 100, "room for 150");
        spares.grew(60);
        assert_eq!(spares.held(), 0, "room for 90");
        spares.set_room(150);
        // SAFETY: taken above, used by nobody.
        unsafe { (spares.put(again, 100), spares.put(other, 50)) };
        assert_eq!(spares.held(), 150);
        spares.set_room(120);
        assert_eq!(spares.held(), 50, "the largest goes first");
    }

    #[test]
    fn what_is_still_looked_at_is_not_used_again() {
        let spares = Arc::new(Spares::default());
        spares.set_room(1 << 20);
        let fill = |generation: u64| {
            let memory = MemoryOptions { chunks: Sizes::all(256), spares: Some(spares.clone()) };
            let active = Arc::new(ActiveMemtable::new(Generation(generation), memory));
            for n in 0..200u64 {
                let (key, value) = (format!("key {n:04}"), format!("{generation} {n}"));
                active.writer().insert(&CellRef::plain(key.as_bytes(), n + 1, value.as_bytes()));
            }
            Memtable::from(active)
        };
        let values = |memtable: &Memtable| -> Vec<Vec<u8>> {
            walk(memtable, b"").into_iter().map(|cell| cell.value).collect()
        };
        let expected =
            |generation: u64| (0..200).map(|n| format!("{generation} {n}").into_bytes()).collect::<Vec<_>>();
        let first = fill(1);
        let flat = first.flatten(&upto(u64::MAX));
        drop(first);
        let after_index = spares.held();
        assert!(after_index > 0, "its index is free, its cells are the flat memtable's");
        let second = fill(2);
        assert_eq!((values(&flat), values(&second)), (expected(1), expected(2)));
        let room = spares.0.lock().room;
        drop(flat);
        assert!(spares.held() > 0 && spares.held() <= room);
        let third = fill(3);
        assert_eq!((values(&second), values(&third)), (expected(2), expected(3)));
    }

    #[test]
    fn what_nobody_needed_for_a_while_goes_by_and_by() {
        let spares = Spares::default();
        let pieces = [0; 8].map(|_| spares.take(100));
        spares.set_room(800);
        for piece in pieces {
            // SAFETY: taken above, used by nobody.
            unsafe { spares.put(piece, 100) };
        }
        spares.rest();
        assert_eq!(spares.held(), 800, "they have only just come");
        // Three were needed in the next second, five were not.
        let needed = [0; 3].map(|_| spares.take(100));
        spares.set_room(800);
        for piece in needed {
            // SAFETY: taken above, used by nobody.
            unsafe { spares.put(piece, 100) };
        }
        spares.rest();
        assert_eq!(spares.held(), 500);
        for _ in 0..10 {
            spares.rest();
        }
        assert_eq!(spares.held(), 0);
    }
}
