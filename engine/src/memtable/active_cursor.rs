//! A cursor over an active memtable, in both directions, while it grows.
//!
//! The cursor walks a snapshot of one leaf, taken when it entered the leaf; at the end it descends again, to
//! the key that bounded the leaf. So it misses no cell inserted before it entered, whatever is inserted
//! meanwhile. Versions form a chain that leads only forward; stepping back into a key collects its chain
//! once.
#![expect(unsafe_code, reason = "a leaf's picture is kept beside the Arc of the memtable it lies in")]

use super::active::ActiveMemtable;
use super::arena::NOWHERE;
use super::cell::{CellAt, FETCHED_AHEAD};
use super::tree::{Leaf, To};
use crate::error::Result;
use crate::types::{CellRef, Cursor, Heat, Pinned};
use std::sync::Arc;

/// A cursor over an active memtable; see the page above.
pub(crate) struct ActiveCursor {
    /// Borrows from `active`, whose nodes live as long as it does. Dropped before it.
    leaf: Option<Leaf<'static>>,
    /// The key's rank in the leaf.
    rank: usize,
    /// The current cell, or [`NOWHERE`].
    place: u32,
    /// Places of the chain's versions before `place`, the nearest last; exact while `backward`.
    newer: Vec<u32>,
    backward: bool,
    active: Arc<ActiveMemtable>,
}

impl ActiveMemtable {
    /// A cursor over the cells of this memtable. It shows all cells inserted before its last seek.
    pub(crate) fn cursor(self: &Arc<Self>) -> ActiveCursor {
        ActiveCursor {
            leaf: None,
            rank: 0,
            place: NOWHERE,
            newer: Vec::new(),
            backward: false,
            active: self.clone(),
        }
    }
}

impl ActiveCursor {
    /// The current cell; the cursor must be valid.
    #[inline]
    fn here(&self) -> CellAt<'_> {
        // SAFETY: `place` is only ever given by the index or a chain of the memtable, and callers of a cursor
        // have asked whether it is valid.
        unsafe { self.active.cell_at(self.place) }
    }

    /// Extends the lifetime of a leaf of `self.active`, which this cursor keeps alive.
    fn keep(leaf: Leaf<'_>) -> Leaf<'static> {
        // SAFETY: the leaf lies in the memtable that `active` keeps alive for longer than this cursor keeps
        // it; no method hands it out with that lifetime.
        unsafe { std::mem::transmute::<Leaf<'_>, Leaf<'static>>(leaf) }
    }

    /// Moves to the newest version of the `rank`-th key, or of the first key after the leaf.
    fn settle_at(&mut self, leaf: Leaf<'static>, rank: usize) {
        self.backward = false;
        let there = if rank < leaf.len() { Some((leaf, rank)) } else { self.active.after(&leaf) };
        let there = there.map(|(leaf, rank)| (Self::keep(leaf), rank));
        self.place = NOWHERE;
        if let Some((leaf, rank)) = there {
            (self.leaf, self.rank, self.place) = (Some(leaf), rank, leaf.head(rank));
            let ahead = rank + FETCHED_AHEAD;
            // On entering a leaf, all near cells are prefetched.
            let from = if rank == 0 { 1 } else { ahead };
            for rank in from..(ahead + 1).min(leaf.len()) {
                // SAFETY: the place is of the memtable's index.
                unsafe { self.active.cell_at(leaf.head(rank)) }.prefetch();
            }
        }
    }

    /// Moves to the oldest version of the key before the `rank`-th, or of the last key before the leaf.
    fn settle_before(&mut self, leaf: Leaf<'static>, rank: usize) {
        let there = match rank.checked_sub(1) {
            Some(rank) => Some((leaf, rank)),
            None => self.active.before(&leaf),
        };
        let there = there.map(|(leaf, rank)| (Self::keep(leaf), rank));
        self.place = NOWHERE;
        if let Some((leaf, rank)) = there {
            (self.leaf, self.rank) = (Some(leaf), rank);
            self.collect(leaf.head(rank), NOWHERE);
        }
    }

    /// Collects a chain up to the version before `until`, and moves to the last one collected.
    fn collect(&mut self, mut place: u32, until: u32) {
        self.newer.clear();
        while place != until {
            self.newer.push(place);
            // SAFETY: the place is of the memtable's index, or of a chain that began there.
            place = unsafe { self.active.cell_at(place) }.next();
        }
        self.backward = true;
        if let Some(last) = self.newer.pop() {
            self.place = last;
        }
    }
}

impl Cursor for ActiveCursor {
    fn seek(&mut self, key: &[u8]) -> Result<()> {
        self.place = NOWHERE;
        if let Some(leaf) = self.active.leaf(To::Key(key)).map(Self::keep) {
            let (rank, _) = leaf.search(key, self.active.keys());
            self.settle_at(leaf, rank);
        }
        Ok(())
    }

    fn seek_before(&mut self, key: Option<&[u8]>) -> Result<()> {
        self.place = NOWHERE;
        if let Some(leaf) = self.active.leaf(key.map_or(To::Last, To::Before)).map(Self::keep) {
            let rank = key.map_or(leaf.len(), |key| leaf.search(key, self.active.keys()).0);
            self.settle_before(leaf, rank);
        }
        Ok(())
    }

    fn next(&mut self) -> Result<()> {
        let next = self.here().next();
        self.backward = false;
        if next != NOWHERE {
            self.place = next;
        } else if let Some(leaf) = self.leaf {
            self.settle_at(leaf, self.rank + 1);
        }
        Ok(())
    }

    fn prev(&mut self) -> Result<()> {
        let Some(leaf) = self.leaf else { return Ok(()) };
        if !self.backward {
            // From the present head: versions put before this one since the seek are newer than it.
            let place = self.place;
            self.collect(leaf.head(self.rank), place);
            if self.place != place {
                return Ok(());
            }
        } else if let Some(newer) = self.newer.pop() {
            self.place = newer;
            return Ok(());
        }
        self.settle_before(leaf, self.rank);
        Ok(())
    }

    fn valid(&self) -> bool {
        self.place != NOWHERE
    }

    fn cell(&self) -> CellRef<'_> {
        self.here().get()
    }

    #[inline]
    fn key(&self) -> &[u8] {
        self.here().key()
    }

    fn pin_value(&self, into: &mut Pinned) -> Result<()> {
        // SAFETY: the place is of the memtable, as in `here`; the value lies in the chunk of its own cell.
        unsafe { into.hold(self.cell().value, &self.active.held(self.place)) };
        Ok(())
    }

    /// O(versions of the key).
    fn heat(&self) -> Heat {
        let (mut updates, mut place) = (0, self.place);
        while place != NOWHERE {
            updates += 1;
            // SAFETY: as in `here`; the chain leads on within the memtable.
            place = unsafe { self.active.cell_at(place) }.next();
        }
        Heat { updates, ..Heat::default() }
    }
}
