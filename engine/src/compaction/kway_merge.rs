//! K-way merge: one sorted stream from sorted sources, in both directions.
//!
//! Sources come newest first, so that of two cells that compare equal (the same cell in two sources) the
//! newer source wins and the reader drops the other. The live sources are kept in a small sorted list by
//! their current cell: with the handful of sources a read or merge has, moving one entry along a sorted array
//! is cheaper than a heap, and the usual case, the same source staying in front, costs one comparison. Keys
//! are compared by their first eight bytes before the cells are looked at.

use crate::error::Result;
use crate::types::{CellRef, Cursor, Heat, Pinned, prefix64, successor};
use std::cmp::Ordering;

pub(crate) struct Merging<C> {
    /// Newest first.
    sources: Vec<C>,
    /// Valid sources in order of their cells, with the first key bytes of each: the front one is the
    /// position.
    order: Vec<(u64, usize)>,
    forward: bool,
}

impl<C: Cursor> Merging<C> {
    /// A cursor over `sources`, newest first.
    pub(crate) fn new(sources: Vec<C>) -> Self {
        let order = Vec::with_capacity(sources.len());
        Self { sources, order, forward: true }
    }

    /// The number of the current cell's source. Must be valid.
    pub(crate) fn source(&self) -> usize {
        self.order[0].1
    }

    /// The current cell's source. Must be valid.
    pub(crate) fn front(&self) -> &C {
        &self.sources[self.order[0].1]
    }

    /// Lets each source that has cells left skip unwanted ones, in the present direction.
    pub(crate) fn pass(&mut self, mut pass: impl FnMut(&mut C) -> Result<()>) -> Result<()> {
        let order = std::mem::take(&mut self.order);
        for &(_, i) in &order {
            pass(&mut self.sources[i])?;
        }
        self.order = order;
        self.rebuild();
        Ok(())
    }

    fn compare(&self, a: (u64, usize), b: (u64, usize)) -> Ordering {
        let by_cell = a.0.cmp(&b.0).then_with(|| self.sources[a.1].cell().order(&self.sources[b.1].cell()));
        let by_cell = if self.forward { by_cell } else { by_cell.reverse() };
        // Equal cells: the newer source first forward, last backward.
        by_cell.then_with(|| if self.forward { a.1.cmp(&b.1) } else { b.1.cmp(&a.1) })
    }

    fn rebuild(&mut self) {
        let mut order = std::mem::take(&mut self.order);
        order.clear();
        for (i, source) in self.sources.iter().enumerate() {
            if source.valid() {
                order.push((prefix64(source.key()), i));
            }
        }
        order.sort_unstable_by(|a, b| self.compare(*a, *b));
        self.order = order;
    }

    /// Restores the order after the front source's cursor moved.
    fn settle_front(&mut self) {
        let i = self.order[0].1;
        if !self.sources[i].valid() {
            self.order.remove(0);
            return;
        }
        // A single source needs no comparison.
        if self.order.len() == 1 {
            return;
        }
        let moved = (prefix64(self.sources[i].key()), i);
        let mut at = 0;
        while at + 1 < self.order.len() && self.compare(moved, self.order[at + 1]) == Ordering::Greater {
            self.order[at] = self.order[at + 1];
            at += 1;
        }
        self.order[at] = moved;
    }

    /// Turns around at the current cell: every other source moves to its far side.
    fn turn(&mut self, forward: bool) -> Result<()> {
        self.forward = forward;
        let front = self.order[0].1;
        let here = self.sources[front].cell().to_cell();
        for i in 0..self.sources.len() {
            if i == front {
                continue;
            }
            let source = &mut self.sources[i];
            if forward {
                // To the first cell after `here` (or equal, in an older source).
                source.seek(&here.key)?;
                while source.valid() && on_near_side(source.cell().order(&here.as_ref()), i < front) {
                    source.next()?;
                }
            } else {
                // To the last cell before `here` (or equal, in a newer source).
                source.seek_before(Some(&successor(&here.key)))?;
                while source.valid() && on_near_side(source.cell().order(&here.as_ref()).reverse(), i > front)
                {
                    source.prev()?;
                }
            }
        }
        self.rebuild();
        // `here` itself must be in front again.
        if let Some(at) = self.order.iter().position(|(_, i)| *i == front) {
            self.order[..=at].rotate_right(1);
        }
        Ok(())
    }
}

/// Whether a cell with that order to the turning point has been passed already.
fn on_near_side(order: Ordering, passes_before: bool) -> bool {
    order.is_lt() || order.is_eq() && passes_before
}

impl<C: Cursor> Cursor for Merging<C> {
    fn seek(&mut self, key: &[u8]) -> Result<()> {
        self.forward = true;
        self.order.clear();
        for source in &mut self.sources {
            source.seek(key)?;
        }
        self.rebuild();
        Ok(())
    }

    fn seek_before(&mut self, key: Option<&[u8]>) -> Result<()> {
        self.forward = false;
        self.order.clear();
        for source in &mut self.sources {
            source.seek_before(key)?;
        }
        self.rebuild();
        Ok(())
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        if !self.forward {
            self.turn(true)?;
        }
        let front = self.order[0].1;
        if let Err(e) = self.sources[front].next() {
            self.order.clear();
            return Err(e);
        }
        self.settle_front();
        Ok(())
    }

    fn prev(&mut self) -> Result<()> {
        if self.forward {
            self.turn(false)?;
        }
        let front = self.order[0].1;
        if let Err(e) = self.sources[front].prev() {
            self.order.clear();
            return Err(e);
        }
        self.settle_front();
        Ok(())
    }

    #[inline]
    fn valid(&self) -> bool {
        !self.order.is_empty()
    }

    #[inline]
    fn cell(&self) -> CellRef<'_> {
        self.sources[self.order[0].1].cell()
    }

    #[inline]
    fn key(&self) -> &[u8] {
        self.sources[self.order[0].1].key()
    }

    fn pin_value(&self, into: &mut Pinned) -> Result<()> {
        self.sources[self.order[0].1].pin_value(into)
    }

    /// The heat of the present key over all sources positioned at it; forward, these are all that have it.
    fn heat(&self) -> Heat {
        let (prefix, front) = self.order[0];
        let key = self.sources[front].key();
        let mut heat = self.sources[front].heat();
        for &(other, i) in &self.order[1..] {
            if other != prefix || self.sources[i].key() != key {
                break;
            }
            heat.add_older(self.sources[i].heat());
        }
        heat
    }

    /// Whether the present key is warm in any source that has it, or was updated more than once in memory.
    fn is_warm(&self) -> bool {
        let (prefix, front) = self.order[0];
        let key = self.sources[front].key();
        let has_it = |&&(other, i): &&(u64, usize)| other == prefix && self.sources[i].key() == key;
        self.sources[front].is_warm()
            || self.order[1..].iter().take_while(has_it).any(|&(_, i)| self.sources[i].is_warm())
            || self.heat().updates > 1
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::types::{Cell, Kind, SeqNo, Timestamp};
    use proptest::prelude::*;

    /// A sorted list as a cursor.
    pub(crate) struct List {
        cells: Vec<Cell>,
        at: Option<usize>,
    }

    impl List {
        pub(crate) fn new(mut cells: Vec<Cell>) -> Self {
            cells.sort_by(|a, b| a.as_ref().order(&b.as_ref()));
            Self { cells, at: None }
        }
    }

    impl Cursor for List {
        fn seek(&mut self, key: &[u8]) -> Result<()> {
            let at = self.cells.partition_point(|c| c.key.as_slice() < key);
            self.at = (at < self.cells.len()).then_some(at);
            Ok(())
        }
        fn seek_before(&mut self, key: Option<&[u8]>) -> Result<()> {
            let end =
                key.map_or(self.cells.len(), |key| self.cells.partition_point(|c| c.key.as_slice() < key));
            self.at = end.checked_sub(1);
            Ok(())
        }
        fn next(&mut self) -> Result<()> {
            self.at = self.at.map(|at| at + 1).filter(|at| *at < self.cells.len());
            Ok(())
        }
        fn prev(&mut self) -> Result<()> {
            self.at = self.at.and_then(|at| at.checked_sub(1));
            Ok(())
        }
        fn valid(&self) -> bool {
            self.at.is_some()
        }
        fn cell(&self) -> CellRef<'_> {
            self.cells[self.at.unwrap()].as_ref()
        }
        fn pin_value(&self, into: &mut Pinned) -> Result<()> {
            *into = Pinned::from(self.cell().value.to_vec());
            Ok(())
        }
    }

    pub(crate) fn cell(key: &str, seq: u64, kind: Kind, value: &str) -> Cell {
        let (key, value) = (key.as_bytes().to_vec(), value.as_bytes().to_vec());
        Cell { key, timestamp: Timestamp::ZERO, seq: SeqNo(seq), kind, written: 0, value }
    }

    proptest! {
        #[test]
        fn walks_like_one_sorted_list_whichever_way_it_turns(
            sources in prop::collection::vec(prop::collection::btree_map((0..20u8, 0..50u64), any::<u8>(), 0..30), 1..5),
            moves in prop::collection::vec(0..5u8, 1..60),
            start in 0..22u8,
        ) {
            // Every sequence number is of one source only, as in a real store.
            let lists: Vec<Vec<Cell>> = sources.iter().enumerate().map(|(i, s)| {
                s.keys().map(|(k, seq)| cell(&format!("{k:02}"), seq * 8 + i as u64, Kind::Value, "")).collect()
            }).collect();
            let mut model = List::new(lists.iter().flatten().cloned().collect());
            let mut merging = Merging::new(lists.into_iter().map(List::new).collect());
            let key = format!("{start:02}");
            if moves.len() % 2 == 0 {
                model.seek(key.as_bytes()).unwrap();
                merging.seek(key.as_bytes()).unwrap();
            } else {
                model.seek_before(Some(key.as_bytes())).unwrap();
                merging.seek_before(Some(key.as_bytes())).unwrap();
            }
            for go in moves {
                prop_assert_eq!(merging.valid(), model.valid());
                if !model.valid() { break; }
                prop_assert_eq!(merging.cell(), model.cell());
                if go < 3 {
                    model.next().unwrap();
                    merging.next().unwrap();
                } else {
                    model.prev().unwrap();
                    merging.prev().unwrap();
                }
            }
        }
    }
}
