//! A run of SSTables as one sorted source, for readers and for compactions, opened lazily.

use crate::error::Result;
use crate::sstable::{CursorOptions, TableCursor};
use crate::types::{CellRef, Cursor, KeyRange, Pinned, SeqNo};
use crate::version::OpenTable;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

/// Walks the live ranges of a run's SSTables one after the other. Opens each SSTable only when it gets there.
pub(crate) struct RunCursor {
    tables: Arc<[OpenTable]>,
    /// The numbers of its SSTables.
    within: Range<usize>,
    options: CursorOptions,
    at: Option<(usize, TableCursor)>,
}

impl RunCursor {
    /// A cursor over some neighbouring `tables` of one run.
    pub(crate) fn new(tables: &Arc<[OpenTable]>, within: Range<usize>, options: CursorOptions) -> Self {
        Self { tables: tables.clone(), within, options, at: None }
    }

    /// The number of the first SSTable for which `holds` is false; it is true for all before and for none
    /// after.
    fn first_not(&self, holds: impl FnMut(&OpenTable) -> bool) -> usize {
        self.within.start + self.tables[self.within.clone()].partition_point(holds)
    }

    /// Skips the cells of the range that are older than `whole`, as far as SSTables show: to the range's end,
    /// or to the next SSTable with a newer cell; backward, to its beginning.
    pub(crate) fn pass(&mut self, range: &KeyRange, whole: SeqNo, reverse: bool) -> Result<()> {
        let is_older = |open: &OpenTable| open.info.seqs.1 < whole;
        let Some((at, _)) = self.at else { return Ok(()) };
        if reverse {
            let tables = self.tables[self.within.start..=at].iter().rev();
            let mut tables = tables.take_while(|open| open.info.range.ends_after(&range.start));
            let newer = tables.find(|open| !is_older(open));
            return match newer {
                None => self.seek_before(Some(&range.start)),
                Some(open) if open.covers(self.key()) => Ok(()),
                Some(open) => {
                    let end = open.info.range.end.clone();
                    self.seek_before(end.as_deref())
                }
            };
        }
        let tables = self.tables[at..self.within.end].iter();
        let newer = tables.take_while(|open| range.ends_after(open.start())).find(|open| !is_older(open));
        match (newer, &range.end) {
            (Some(open), _) if open.covers(self.key()) => Ok(()),
            (Some(open), _) => {
                let start = open.start().to_vec();
                self.seek(&start)
            }
            (None, Some(end)) => self.seek(end),
            (None, None) => {
                self.at = None;
                Ok(())
            }
        }
    }

    /// The SSTable of that number with its cursor, opened if it is not the present one. After an error the
    /// cursor is not valid.
    fn open(&mut self, i: usize) -> Result<(&mut TableCursor, &OpenTable)> {
        let open = &self.tables[i];
        if self.at.as_ref().is_none_or(|(at, _)| *at != i) {
            self.at = None;
            self.at = Some((i, open.cursor(self.options)?));
        }
        Ok((&mut self.at.as_mut().expect("just set").1, open))
    }

    /// While the cursor is past its SSTable's end, goes on to the first cell of the next SSTables.
    fn skip_forward(&mut self) -> Result<()> {
        while let Some((i, cursor)) = &self.at {
            if cursor.valid() && self.tables[*i].ends_after(cursor.key()) {
                return Ok(());
            }
            let next = i + 1;
            if next == self.within.end {
                self.at = None;
                return Ok(());
            }
            let (cursor, open) = self.open(next)?;
            cursor.seek(open.start())?;
        }
        Ok(())
    }

    /// While the cursor is before its SSTable's live range, goes on to the last cell of the previous
    /// SSTables.
    fn skip_backward(&mut self) -> Result<()> {
        while let Some((i, cursor)) = &self.at {
            if cursor.valid() && cursor.key() >= self.tables[*i].start() {
                return Ok(());
            }
            if *i == self.within.start {
                self.at = None;
                return Ok(());
            }
            let previous = i - 1;
            let (cursor, open) = self.open(previous)?;
            cursor.seek_before(open.end_of_part())?;
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
        let (cursor, open) = self.open(at)?;
        cursor.note_look();
        cursor.seek(open.start().max(key))?;
        self.skip_forward()
    }

    fn seek_before(&mut self, key: Option<&[u8]>) -> Result<()> {
        let end = key.map_or(self.within.end, |key| self.first_not(|t| t.start() < key));
        if end == self.within.start {
            self.at = None;
            return Ok(());
        }
        let (cursor, open) = self.open(end - 1)?;
        cursor.note_look();
        let key = match (key, open.end_of_part()) {
            (Some(key), Some(part_end)) => Some(key.min(part_end)),
            (key, part_end) => key.or(part_end),
        };
        cursor.seek_before(key)?;
        self.skip_backward()
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        let (at, cursor) = self.at.as_mut().expect("next on a valid cursor");
        cursor.next()?;
        let goes_on = cursor.valid() && self.tables[*at].ends_after(cursor.key());
        if goes_on { Ok(()) } else { self.skip_forward() }
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

    #[inline]
    fn key(&self) -> &[u8] {
        self.at.as_ref().expect("key of a valid cursor").1.key()
    }

    fn pin_value(&self, into: &mut Pinned) -> Result<()> {
        self.at.as_ref().expect("value of a valid cursor").1.pin_value(into)
    }
}

/// A run as the source of a compaction, which only goes forward. SSTables that it has passed are dropped, so
/// that their files can be removed before the compaction ends.
pub(crate) struct PassingRun {
    /// The SSTables not passed yet, in order.
    tables: VecDeque<OpenTable>,
    options: CursorOptions,
    /// The cursor over the first of `tables`.
    at: Option<TableCursor>,
}

impl PassingRun {
    pub(crate) fn new(tables: Vec<OpenTable>, options: CursorOptions) -> Self {
        Self { tables: tables.into(), options, at: None }
    }

    /// Moves to the first cell at or after the key in the remaining SSTables.
    fn enter(&mut self, key: &[u8]) -> Result<()> {
        self.at = None;
        while let Some(table) = self.tables.front() {
            let mut cursor = table.cursor(self.options)?;
            cursor.seek(table.start().max(key))?;
            if cursor.valid() && table.ends_after(cursor.key()) {
                self.at = Some(cursor);
                return Ok(());
            }
            self.tables.pop_front();
        }
        Ok(())
    }
}

impl Cursor for PassingRun {
    fn seek(&mut self, key: &[u8]) -> Result<()> {
        self.enter(key)
    }

    fn seek_before(&mut self, _key: Option<&[u8]>) -> Result<()> {
        unreachable!("a compaction goes forward")
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        let cursor = self.at.as_mut().expect("next on a valid cursor");
        cursor.next()?;
        if cursor.valid() && self.tables[0].ends_after(cursor.key()) {
            return Ok(());
        }
        // Its file may be removed only when no cursor reads it.
        self.at = None;
        self.tables.pop_front();
        self.enter(&[])
    }

    fn prev(&mut self) -> Result<()> {
        unreachable!("a compaction goes forward")
    }

    #[inline]
    fn valid(&self) -> bool {
        self.at.as_ref().is_some_and(TableCursor::valid)
    }

    #[inline]
    fn cell(&self) -> CellRef<'_> {
        self.at.as_ref().expect("cell of a valid cursor").cell()
    }

    fn is_warm(&self) -> bool {
        self.at.as_ref().is_some_and(TableCursor::is_warm)
    }

    #[inline]
    fn key(&self) -> &[u8] {
        self.at.as_ref().expect("key of a valid cursor").key()
    }

    fn pin_value(&self, into: &mut Pinned) -> Result<()> {
        self.at.as_ref().expect("value of a valid cursor").pin_value(into)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::BlockCache;
    use crate::sstable::{Sstable, TableBuilder, TableOptions};
    use crate::storage::Storage;
    use crate::storage::sim::SimWorld;
    use crate::types::{Kind, SeqNo, TableId, Timestamp};
    use crate::version::{Graveyard, TableHandle};
    use std::path::Path;

    const TABLES: u32 = 40;

    fn key(table: u32, half: u32) -> Vec<u8> {
        format!("{table:03}{half}").into_bytes()
    }

    /// SSTables of two keys each.
    fn run() -> Vec<OpenTable> {
        let storage: Arc<dyn Storage> = SimWorld::new(1).env().storage;
        let (cache, graveyard) = (BlockCache::new(1 << 20), Arc::new(Graveyard::default()));
        let open = |table: u32| {
            let id = TableId { epoch: 1, job: 1, part: table, ..TableId::default() };
            let path = Path::new("/").join(id.file_name());
            let options = TableOptions::default();
            let mut builder = TableBuilder::new(&*storage, &path, id, 7, &options, 0).unwrap();
            for half in 0..2 {
                let (key, timestamp, seq) = (key(table, half), Timestamp::ZERO, SeqNo(1));
                let (kind, written, value) = (Kind::Value, 0, &b"v"[..]);
                builder.add(&CellRef { key: &key, timestamp, seq, kind, written, value }).unwrap();
            }
            let info = Arc::new(builder.finish().unwrap());
            let open = Sstable::open(&storage, &path, info.clone(), &cache).unwrap();
            OpenTable { info, handle: TableHandle::new(open, graveyard.clone()) }
        };
        (0..TABLES).map(open).collect()
    }

    #[test]
    fn a_compaction_holds_the_tables_of_its_runs_that_it_has_not_passed_and_no_others() {
        let tables = run();
        let handles: Vec<_> = tables.iter().map(|open| Arc::downgrade(&open.handle)).collect();
        let held =
            || -> Vec<u32> { (0..TABLES).filter(|n| handles[*n as usize].strong_count() > 0).collect() };
        let mut run = PassingRun::new(tables, CursorOptions::default());
        assert_eq!(held().len(), TABLES as usize);
        // Some lie below the start of the compaction.
        run.seek(&key(3, 1)).unwrap();
        for at in 7..2 * TABLES {
            assert_eq!(run.cell().key, key(at / 2, at % 2));
            assert_eq!(held(), (at / 2..TABLES).collect::<Vec<_>>());
            run.next().unwrap();
        }
        assert!(!run.valid() && held().is_empty());
    }
}
