//! Walking an active segment both ways while it grows.
//!
//! The cursor stands in the picture of one leaf that it took when it came there; at the end it descends again
//! to what bounded that leaf. So it misses no cell that was there when it came, whatever is inserted meanwhile.
//! Versions hang in a chain that leads only forward; stepping back into a key collects its chain once.
#![expect(unsafe_code, reason = "a leaf's picture is kept beside the Arc of the segment it lies in")]

use super::active::Active;
use super::arena::NOWHERE;
use super::tree::{Leaf, To};
use crate::error::Result;
use crate::types::{CellRef, Cursor, Pinned};
use std::sync::Arc;

/// See the page above.
pub(crate) struct ActiveCursor {
    /// Borrows from `active`, whose nodes live and stay as long as it does. Dropped before it.
    leaf: Option<Leaf<'static>>,
    /// Which key of the leaf.
    rank: usize,
    /// The cell here, or [`NOWHERE`].
    place: u32,
    /// Places of the chain's versions in front of `place`, the nearest last; exact while `backward`.
    newer: Vec<u32>,
    backward: bool,
    active: Arc<Active>,
}

impl Active {
    /// A cursor over the cells of this segment. It shows all that were inserted before its last seek.
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
    fn enter(&mut self, to: To<'_>) -> Option<Leaf<'static>> {
        let leaf = self.active.leaf(to);
        // SAFETY: the leaf lies in the segment that `active` keeps alive for longer than this cursor keeps it;
        // no method hands it out with that lifetime.
        self.leaf = leaf.map(|leaf| unsafe { std::mem::transmute::<Leaf<'_>, Leaf<'static>>(leaf) });
        self.place = NOWHERE;
        self.leaf
    }

    /// To the newest version of the `rank`-th key, or of the first key behind the leaf.
    fn to_first_version(&mut self, mut leaf: Leaf<'static>, mut rank: usize) {
        self.backward = false;
        self.place = NOWHERE;
        if rank == leaf.len() {
            if leaf.high == NOWHERE {
                return;
            }
            // A key of the index, so its leaf holds it.
            let active = self.active.clone();
            let bound = active.cell_at(leaf.high).key();
            let Some(next) = self.enter(To::Key(bound)) else { return };
            leaf = next;
            rank = leaf.search(bound, active.keys()).0;
        }
        self.rank = rank;
        self.place = leaf.head(rank);
    }

    /// To the oldest version of the key before the `rank`-th, or of the last key before the leaf.
    fn to_last_version_before(&mut self, mut leaf: Leaf<'static>, mut rank: usize) {
        self.place = NOWHERE;
        if rank == 0 {
            if leaf.low == NOWHERE {
                return;
            }
            let active = self.active.clone();
            let bound = active.cell_at(leaf.low).key();
            let Some(before) = self.enter(To::Before(bound)) else { return };
            leaf = before;
            rank = leaf.search(bound, active.keys()).0;
            if rank == 0 {
                return;
            }
        }
        self.rank = rank - 1;
        self.collect(leaf.head(rank - 1), NOWHERE);
    }

    /// Collects a chain up to the version in front of `until` and stands on the last one collected.
    fn collect(&mut self, mut place: u32, until: u32) {
        self.newer.clear();
        while place != until {
            self.newer.push(place);
            place = self.active.cell_at(place).next();
        }
        self.backward = true;
        if let Some(last) = self.newer.pop() {
            self.place = last;
        }
    }
}

impl Cursor for ActiveCursor {
    fn seek(&mut self, key: &[u8]) -> Result<()> {
        if let Some(leaf) = self.enter(To::Key(key)) {
            let (rank, _) = leaf.search(key, self.active.keys());
            self.to_first_version(leaf, rank);
        }
        Ok(())
    }

    fn seek_before(&mut self, key: Option<&[u8]>) -> Result<()> {
        if let Some(leaf) = self.enter(key.map_or(To::Last, To::Before)) {
            let rank = key.map_or(leaf.len(), |key| leaf.search(key, self.active.keys()).0);
            self.to_last_version_before(leaf, rank);
        }
        Ok(())
    }

    fn next(&mut self) -> Result<()> {
        let next = self.active.cell_at(self.place).next();
        self.backward = false;
        if next != NOWHERE {
            self.place = next;
        } else if let Some(leaf) = self.leaf {
            self.to_first_version(leaf, self.rank + 1);
        }
        Ok(())
    }

    fn prev(&mut self) -> Result<()> {
        let Some(leaf) = self.leaf else { return Ok(()) };
        if !self.backward {
            // From the head as it is now: what was put in front of this version since is newer than the seek.
            let place = self.place;
            self.collect(leaf.head(self.rank), place);
            if self.place != place {
                return Ok(());
            }
        } else if let Some(newer) = self.newer.pop() {
            self.place = newer;
            return Ok(());
        }
        self.to_last_version_before(leaf, self.rank);
        Ok(())
    }

    fn valid(&self) -> bool {
        self.place != NOWHERE
    }

    fn cell(&self) -> CellRef<'_> {
        self.active.cell_at(self.place).get()
    }

    fn pinned_value(&self) -> Pinned {
        // SAFETY: the value lies in the chunk of its own cell.
        unsafe { Pinned::held(self.cell().value, &self.active.held(self.place)) }
    }
}
