//! A run of tables as one sorted source, opened lazily, and a floor under any source.

use crate::error::Result;
use crate::table::{CursorOptions, TableCursor};
use crate::types::{CellRef, Cursor, Pinned};
use crate::version::OpenTable;
use std::ops::Range;
use std::sync::Arc;

/// Walks the live ranges of a run's tables one after the other. Opens a table only when it gets there.
pub(crate) struct RunCursor {
    tables: Arc<[OpenTable]>,
    /// Which of them it walks over.
    within: Range<usize>,
    options: CursorOptions,
    /// Tables that were passed are let go, so that their files can go before the merge ends.
    forward_only: bool,
    /// The open table and its cursor.
    at: Option<(usize, TableCursor)>,
}

impl RunCursor {
    /// Some neighbours of the `tables` of one run, which are in order.
    pub(crate) fn new(tables: &Arc<[OpenTable]>, within: Range<usize>, options: CursorOptions) -> Self {
        Self { tables: tables.clone(), within, options, forward_only: false, at: None }
    }

    /// For a merge: after the first seek only `next` may be called.
    pub(crate) fn forward_only(tables: Vec<OpenTable>, options: CursorOptions) -> Self {
        let within = 0..tables.len();
        Self { tables: tables.into(), within, options, forward_only: true, at: None }
    }

    /// The number of the first table in which that does not hold, which holds of the first ones only.
    fn first_not(&self, holds: impl FnMut(&OpenTable) -> bool) -> usize {
        self.within.start + self.tables[self.within.clone()].partition_point(holds)
    }

    fn open(&mut self, i: usize) -> &mut TableCursor {
        if self.at.as_ref().is_none_or(|(open, _)| *open != i) {
            let mut cursor = self.tables[i].table().cursor(self.options);
            cursor.set_floor(self.tables[i].start());
            self.at = Some((i, cursor));
        }
        &mut self.at.as_mut().expect("just set").1
    }

    /// A reader's seek is a look into each run that it has to merge.
    fn note_look(&self, at: usize) {
        if !self.forward_only {
            self.tables[at].table().note_look();
        }
    }

    /// While the cursor is behind its table's end, goes on to the first cell of the next tables.
    fn skip_forward(&mut self) -> Result<()> {
        while let Some((i, cursor)) = &self.at {
            if cursor.valid() {
                return Ok(());
            }
            let mut next = i + 1;
            if self.forward_only {
                self.at = None;
                self.tables = self.tables[next..self.within.end].into();
                self.within = 0..self.tables.len();
                next = 0;
            }
            if next == self.within.end {
                self.at = None;
                return Ok(());
            }
            let start = self.tables[next].start().to_vec();
            self.open(next).seek(&start)?;
        }
        Ok(())
    }

    /// While the cursor is before its table's live range, goes on to the last cell of the previous tables.
    fn skip_backward(&mut self) -> Result<()> {
        while let Some((i, cursor)) = &self.at {
            if cursor.valid() && cursor.cell().key >= self.tables[*i].start() {
                return Ok(());
            }
            if *i == self.within.start {
                self.at = None;
                return Ok(());
            }
            let previous = i - 1;
            self.open(previous).seek_before(None)?;
        }
        Ok(())
    }
}

impl Cursor for RunCursor {
    fn seek(&mut self, key: &[u8]) -> Result<()> {
        let at = self.first_not(|t| !t.info.range.ends_after(key));
        if at == self.within.end {
            self.at = None;
            return Ok(());
        }
        let start = self.tables[at].start().max(key).to_vec();
        self.note_look(at);
        self.open(at).seek(&start)?;
        self.skip_forward()
    }

    fn seek_before(&mut self, key: Option<&[u8]>) -> Result<()> {
        let end = key.map_or(self.within.end, |key| self.first_not(|t| t.start() < key));
        if end == self.within.start {
            self.at = None;
            return Ok(());
        }
        self.note_look(end - 1);
        self.open(end - 1).seek_before(key)?;
        self.skip_backward()
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        let (_, cursor) = self.at.as_mut().expect("next on a valid cursor");
        cursor.next()?;
        if cursor.valid() { Ok(()) } else { self.skip_forward() }
    }

    fn prev(&mut self) -> Result<()> {
        let (_, cursor) = self.at.as_mut().expect("prev on a valid cursor");
        cursor.prev()?;
        self.skip_backward()
    }

    #[inline]
    fn valid(&self) -> bool {
        self.at.as_ref().is_some_and(|(_, cursor)| cursor.valid())
    }

    #[inline]
    fn cell(&self) -> CellRef<'_> {
        self.at.as_ref().expect("cell of a valid cursor").1.cell()
    }

    fn is_warm(&self) -> bool {
        self.at.as_ref().is_some_and(|(_, cursor)| cursor.is_warm())
    }

    fn pinned_value(&self) -> Pinned {
        self.at.as_ref().expect("value of a valid cursor").1.pinned_value()
    }
}

/// A source of which only keys at or above a floor count: a flush set whose lower part is in tables already.
pub(crate) struct Floor<C> {
    cursor: C,
    floor: Vec<u8>,
}

impl<C: Cursor> Floor<C> {
    pub(crate) fn new(cursor: C, floor: Vec<u8>) -> Self {
        Self { cursor, floor }
    }
}

impl<C: Cursor> Cursor for Floor<C> {
    fn seek(&mut self, key: &[u8]) -> Result<()> {
        self.cursor.seek(key.max(&self.floor))
    }
    fn seek_before(&mut self, key: Option<&[u8]>) -> Result<()> {
        self.cursor.seek_before(key)
    }
    fn next(&mut self) -> Result<()> {
        self.cursor.next()
    }
    fn prev(&mut self) -> Result<()> {
        self.cursor.prev()
    }
    #[inline]
    fn valid(&self) -> bool {
        self.cursor.valid() && self.cursor.cell().key >= self.floor.as_slice()
    }
    #[inline]
    fn cell(&self) -> CellRef<'_> {
        self.cursor.cell()
    }
    fn pinned_value(&self) -> Pinned {
        self.cursor.pinned_value()
    }
}
