//! Rows of a range: the cells of all families put together, row by row, in order or in reverse.
//!
//! Each family is walked by a cursor of its own, region after region, all at one snapshot, so a row is as it
//! was at one moment. A region is opened when the walk comes to it; by then the table may have been split or
//! joined, and the store that has the keys is asked for again. What a filter does not need is stepped over by
//! seeks, not read.
//!
//! A walk may pause anywhere and go on later, so a row of any size is read piece by piece.

use crate::cells::filter::{Cell, Need};
use crate::cells::gc::Gc;
use crate::cells::row_key::{self, Span};
use crate::net::work::Work;
use crate::rows::moment::{Moment, Place};
use crate::status::status;
use crate::tables::layout::{Region, Stores, Table};
use crate::tables::registry::Tables;
use bytes::{Bytes, BytesMut};
use siltstone::{Entry, Pinned, Snapshot, Timestamp};
use std::sync::Arc;
use tonic::Status;

/// Versions that are stepped over one by one before a seek is tried.
const STEPS_BEFORE_SEEK: usize = 8;

/// Values shorter than this are copied, as holding what they lie in costs more.
const COPIED_BYTES: usize = 512;

/// Bytes of what copies are put into, from the first of a walk on.
const COPIES_BYTES: (usize, usize) = (256, 64 << 10);

/// Buffers for copies of small keys and values, many to one allocation.
#[derive(Default)]
struct Copies {
    room: BytesMut,
    last: usize,
}

impl Copies {
    fn of(&mut self, bytes: &[u8]) -> Bytes {
        if self.room.capacity() < bytes.len() {
            // A walk of one row takes little; a long one soon allocates seldom.
            self.last = (self.last * 4).clamp(COPIES_BYTES.0, COPIES_BYTES.1);
            self.room = BytesMut::with_capacity(self.last.max(bytes.len()));
        }
        self.room.extend_from_slice(bytes);
        self.room.split().freeze()
    }
}

/// Cells and bytes of a row that are collected before they go on.
const PIECE_CELLS: usize = 1_024;
const PIECE_BYTES: usize = 1 << 20;

/// The most cells of a row that a reverse scan visits one by one: longer rows it walks forward.
const REVERSED_CELLS: usize = 1_024;

/// The cost of opening a cursor, in units of [`Work`].
const OPEN_UNITS: u64 = 16;

/// How rows are read.
#[derive(Clone)]
pub(crate) struct View<M = Snapshot> {
    pub(crate) table: Arc<Table>,
    pub(crate) moment: M,
    pub(crate) now_us: u64,
    pub(crate) reversed: bool,
    /// The caller holds the table.
    pub(crate) held: bool,
}

impl View {
    /// A table as it is now.
    pub(crate) fn now(tables: &Tables, table: &Arc<Table>, reversed: bool) -> Arc<Self> {
        let (table, moment, now_us) = (table.clone(), tables.db.snapshot(), crate::time::now_us());
        Arc::new(Self { table, moment, now_us, reversed, held: false })
    }
}

/// A receiver of the cells of rows, in the order of families, qualifiers, newest first.
pub(crate) trait Cells {
    /// Begins a row. The one before, if it had no cell, does not count.
    fn begin(&mut self, row: &[u8]);

    /// The next cell of the row. Returns whether there is no room for another now; a few more may come all
    /// the same.
    fn add(&mut self, family: &Arc<str>, qualifier: &[u8], timestamp: i64, value: &Pinned) -> bool;
}

/// The cells of one row, or of a piece of it, collected.
#[derive(Default)]
pub(crate) struct Collected {
    pub(crate) row: Vec<u8>,
    cells: Vec<Cell>,
    bytes: usize,
    copies: Copies,
    qualifier: Bytes,
}

impl Collected {
    /// The collected cells, to make room for more.
    pub(crate) fn take(&mut self) -> Vec<Cell> {
        self.bytes = 0;
        std::mem::take(&mut self.cells)
    }
}

impl Cells for Collected {
    fn begin(&mut self, row: &[u8]) {
        self.row.clear();
        self.row.extend_from_slice(row);
        self.cells.clear();
        self.bytes = 0;
    }

    fn add(&mut self, family: &Arc<str>, qualifier: &[u8], timestamp: i64, value: &Pinned) -> bool {
        // Rows have the same columns as a rule.
        if self.qualifier != qualifier {
            self.qualifier = Bytes::copy_from_slice(qualifier);
        }
        self.bytes += qualifier.len() + value.len();
        self.cells.push(Cell {
            family: family.clone(),
            qualifier: self.qualifier.clone(),
            timestamp,
            value: match value.len() {
                0..COPIED_BYTES => self.copies.of(value),
                _ => Bytes::from_owner(value.clone()),
            },
            labels: Vec::new(),
        });
        self.cells.len() >= PIECE_CELLS || self.bytes >= PIECE_BYTES
    }
}

/// How far a walk came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// To the end of a row that has cells.
    Row,
    /// Somewhere in a row or between two: there is no room for more cells, or the work is over.
    Paused,
    /// To the end of the range.
    End,
}

/// A walk over the rows of a range.
pub(crate) struct RowCursor<M: Moment = Snapshot> {
    view: Arc<View<M>>,
    families: Vec<FamilyCursor<M>>,
    /// The first cells of a row that are needed.
    first: Option<usize>,
    /// Within a row, the family that is being walked.
    at: Option<usize>,
    /// Cells that were given out of the row.
    cells: usize,
    /// Cells looked at.
    pub(crate) cells_seen: u64,
    /// The row's part of the keys of the row that was read last, or is being read.
    pub(crate) part: Vec<u8>,
}

impl<M: Moment> RowCursor<M> {
    /// The rows of a span of keys, as far as is needed of each family.
    pub(crate) fn new(view: Arc<View<M>>, needs: &[(Arc<str>, Need)], span: &Span) -> Self {
        let families =
            needs.iter().map(|(name, need)| FamilyCursor::new(&view, name, need, span, view.reversed));
        let families = families.collect();
        let first = needs.first().and_then(|(_, need)| need.first);
        Self { view, families, first, at: None, cells: 0, cells_seen: 0, part: Vec::new() }
    }

    /// A walk over the row that is being read, from its beginning, at the same moment.
    pub(crate) fn row_again(&self, needs: &[(Arc<str>, Need)]) -> Self {
        let view = View { reversed: false, ..View::<M>::clone(&self.view) };
        let span = Span { start: self.part.clone(), end: Some(behind_row(&self.part)) };
        Self::new(Arc::new(view), needs, &span)
    }

    /// Whether it stands within a row.
    pub(crate) fn is_in_row(&self) -> bool {
        self.at.is_some()
    }

    /// Cells that were given out of the row that was read last, or is being read.
    pub(crate) fn cells(&self) -> usize {
        self.cells
    }

    /// Goes on to the end of the next row that has a cell, unless there is no room for its cells, or the work
    /// is over.
    pub(crate) fn next(&mut self, into: &mut impl Cells, work: &mut Work) -> Result<Step, Status> {
        loop {
            let is_going_on = self.at.is_some();
            if !is_going_on {
                work.check_gone()?;
                for family in &mut self.families {
                    if !family.settle(&self.view, work)? {
                        return Ok(Step::Paused);
                    }
                }
                let parts = self.families.iter().filter_map(FamilyCursor::row_part);
                let part = match self.view.reversed {
                    false => parts.min(),
                    true => parts.max(),
                };
                let Some(part) = part else { return Ok(Step::End) };
                if work.is_over() {
                    return Ok(Step::Paused);
                }
                self.part.clear();
                self.part.extend_from_slice(part);
                into.begin(&row_key::row_of(&self.part));
                self.cells = 0;
            }
            let mut at = self.at.take().unwrap_or(0);
            let mut goes_on = is_going_on;
            while let Some(family) = self.families.get_mut(at) {
                if goes_on || family.row_part() == Some(&self.part[..]) {
                    let most = self.first.map_or(usize::MAX, |first| first - self.cells);
                    let taken = family.take_row(&self.view, &self.part, (most, goes_on), into, work)?;
                    self.cells_seen += taken.seen;
                    self.cells += taken.cells;
                    if taken.is_paused {
                        self.at = Some(at);
                        return Ok(Step::Paused);
                    }
                }
                goes_on = false;
                at += 1;
            }
            if self.cells > 0 {
                return Ok(Step::Row);
            }
        }
    }
}

/// Counts of what a family gave of a row.
#[derive(Default)]
struct Taken {
    /// Cells looked at.
    seen: u64,
    /// Cells given out.
    cells: usize,
    /// There is more.
    is_paused: bool,
}

/// One family's part of a [`RowCursor`].
struct FamilyCursor<M: Moment> {
    name: Arc<str>,
    need: Need,
    reversed: bool,
    /// Keys that are still to be walked, behind the cursor's.
    left: Span,
    /// A cursor over the region that is being walked.
    cursor: Option<M::Place>,
    /// The cursor stands on the next cell that is needed, or there is none.
    is_settled: bool,
    /// Bytes of the row's part of the key under the cursor, where it is settled.
    row_len: usize,
    column: Column,
    /// In reverse, the walk over the row that is being read, if that is long.
    forward: Option<Box<FamilyCursor<M>>>,
}

impl<M: Moment> FamilyCursor<M> {
    fn new(view: &View<M>, name: &Arc<str>, need: &Need, span: &Span, reversed: bool) -> Self {
        let column = Column::new(view, name, need);
        Self {
            name: name.clone(),
            need: need.clone(),
            reversed,
            left: span.clone(),
            cursor: None,
            is_settled: false,
            row_len: 0,
            column,
            forward: None,
        }
    }

    fn entry(&self) -> Option<&Entry> {
        self.cursor.as_ref().and_then(Place::entry)
    }

    /// The row's part of the key of the next cell. It is settled.
    fn row_part(&self) -> Option<&[u8]> {
        self.entry().map(|entry| &entry.key[..self.row_len])
    }

    /// Opens the next region.
    fn open_next(&mut self, view: &View<M>, work: &mut Work) -> Result<(), Status> {
        work.count(OPEN_UNITS)?;
        let mut cursor = {
            let _hold = (!view.held).then(|| view.table.hold());
            let layout = view.table.now();
            let left = self.left.clone();
            // A family that was dropped meanwhile has no more cells.
            let next = layout.family(&self.name).ok().and_then(|stores| self.next_region(stores));
            let Some((Region { store, traffic, .. }, part)) = next else {
                self.left = Span { start: Vec::new(), end: Some(Vec::new()) };
                return Ok(());
            };
            traffic.note(&part.start);
            if self.left == left {
                return Err(Status::unavailable(format!("store {} does not have its keys", store.name())));
            }
            let times = match self.need.times {
                _ if self.column.gc.is_some() => None,
                (0, None) => None,
                (from, to) => Some(timestamp(from)..to.map_or(Timestamp::MAX, timestamp)),
            };
            view.moment.entries(store, part, times)
        };
        match self.reversed {
            false => cursor.first(),
            true => cursor.last(),
        }
        .map_err(status)?;
        self.cursor = Some(cursor);
        Ok(())
    }

    /// The next store and its part of what is left, which is taken away.
    fn next_region<'a>(&mut self, stores: &'a Stores) -> Option<(&'a Region, Span)> {
        let reversed = self.reversed;
        let within = stores.within(&self.left.start, self.left.end.as_deref());
        let region = if reversed { within.last() } else { within.first() }?;
        let range = region.store.range();
        let part = self.left.intersect(&range.start, range.end.as_deref());
        match reversed {
            false => self.left.start = range.end.unwrap_or_else(|| self.left.end.clone().unwrap_or_default()),
            true => self.left.end = Some(range.start),
        }
        if !reversed && part.end == self.left.end {
            self.left = Span { start: Vec::new(), end: Some(Vec::new()) };
        }
        Some((region, part))
    }

    /// Goes on to a cell that is needed, region after region, if the cursor stands on none; false where the
    /// work is over before.
    fn settle(&mut self, view: &View<M>, work: &mut Work) -> Result<bool, Status> {
        while !self.is_settled {
            let Some(cursor) = &mut self.cursor else {
                match self.left.is_empty() {
                    true => self.is_settled = true,
                    false if work.is_over() => return Ok(false),
                    false => self.open_next(view, work)?,
                }
                continue;
            };
            let Some(entry) = cursor.entry() else {
                self.cursor = None;
                continue;
            };
            let Some(row_len) = row_key::row_len(&entry.key) else {
                return Err(Status::data_loss(format!(
                    "\"{}\" is the key of no cell",
                    entry.key.escape_ascii()
                )));
            };
            self.row_len = row_len;
            let (row, qualifier) = entry.key.split_at(row_len);
            if self.need.has(qualifier) {
                self.is_settled = true;
                continue;
            }
            if work.is_over() {
                return Ok(false);
            }
            work.count_cell(entry.key.len())?;
            if self.reversed {
                cursor.prev().map_err(status)?;
                continue;
            }
            let to = next_column(&self.need, row, qualifier);
            cursor.seek(to).map_err(status)?;
        }
        Ok(true)
    }

    /// Takes the cells of the row that the cursor stands in, `most` at most, and goes on behind it, unless it
    /// has to pause. A row may be gone on with.
    fn take_row(
        &mut self,
        view: &View<M>,
        part: &[u8],
        (most, is_going_on): (usize, bool),
        into: &mut impl Cells,
        work: &mut Work,
    ) -> Result<Taken, Status> {
        if !is_going_on {
            self.column.began = false;
        }
        let taken = match self.reversed {
            false => self.take_forward(part, most, into, work)?,
            true => self.take_reversed(view, part, most, into, work)?,
        };
        if !taken.is_paused {
            self.is_settled = false;
            self.settle(view, work)?;
        }
        Ok(taken)
    }

    fn take_forward(
        &mut self,
        part: &[u8],
        most: usize,
        into: &mut impl Cells,
        work: &mut Work,
    ) -> Result<Taken, Status> {
        let column = &mut self.column;
        let (mut taken, mut is_full) = (Taken::default(), false);
        let Some(cursor) = &mut self.cursor else { return Ok(taken) };
        while let Some(entry) = cursor.entry() {
            if !entry.key.starts_with(part) {
                break;
            }
            if taken.cells >= most {
                cursor.seek(behind_row(part)).map_err(status)?;
                break;
            }
            if is_full || work.is_over() {
                taken.is_paused = true;
                break;
            }
            let qualifier = &entry.key[part.len()..];
            // Skipped cells are not counted: the caller may have no right to know of them.
            if !self.need.has(qualifier) {
                work.count_cell(entry.key.len())?;
                let to = next_column(&self.need, part, qualifier);
                cursor.seek(to).map_err(status)?;
                continue;
            }
            taken.seen += 1;
            let given = column.take(qualifier, entry.timestamp, &entry.value, into);
            taken.cells += usize::from(given.is_some());
            is_full = given == Some(true);
            work.count(column.units)?;
            work.count_cell(entry.key.len() + given.map_or(0, |_| entry.value.len()))?;
            if column.over >= STEPS_BEFORE_SEEK {
                column.over = 0;
                let next = [part, &column.qualifier[..], b"\0"].concat();
                cursor.seek(next).map_err(status)?;
            } else {
                cursor.next().map_err(status)?;
            }
        }
        Ok(taken)
    }

    /// The cells of a short row are judged when all are there; a long one is walked forward.
    fn take_reversed(
        &mut self,
        view: &View<M>,
        part: &[u8],
        most: usize,
        into: &mut impl Cells,
        work: &mut Work,
    ) -> Result<Taken, Status> {
        if self.forward.is_some() {
            return self.take_long_row(view, part, most, into, work);
        }
        let (mut taken, mut unjudged, mut walked, mut bytes) = (Taken::default(), Vec::new(), 0, 0);
        let Some(cursor) = &mut self.cursor else { return Ok(taken) };
        while let Some(entry) = cursor.entry() {
            if !entry.key.starts_with(part) {
                break;
            }
            walked += 1;
            let qualifier = &entry.key[part.len()..];
            bytes += entry.key.len();
            work.count_cell(entry.key.len())?;
            if self.need.has(qualifier) {
                bytes += entry.value.len();
                unjudged.push((qualifier.to_vec(), entry.timestamp, entry.value.clone()));
            }
            if walked > REVERSED_CELLS || bytes > PIECE_BYTES {
                // Before the row: its first cell may have the shortest of its keys.
                cursor.seek(part).map_err(status)?;
                cursor.prev().map_err(status)?;
                let span = Span { start: part.to_vec(), end: Some(behind_row(part)) };
                let forward = Self::new(view, &self.name, &self.need, &span, false);
                self.forward = Some(Box::new(forward));
                return self.take_long_row(view, part, most, into, work);
            }
            cursor.prev().map_err(status)?;
        }
        for (qualifier, timestamp, value) in unjudged.iter().rev() {
            if taken.cells >= most {
                break;
            }
            let given = self.column.take(qualifier, *timestamp, value, into);
            taken.cells += usize::from(given.is_some());
            // As many as a walk forward looks at.
            taken.seen += u64::from(self.column.over <= STEPS_BEFORE_SEEK);
            work.count(self.column.units)?;
            work.count_cell(value.len())?;
        }
        Ok(taken)
    }

    /// The cells of a long row, by a walk of its own.
    fn take_long_row(
        &mut self,
        view: &View<M>,
        part: &[u8],
        most: usize,
        into: &mut impl Cells,
        work: &mut Work,
    ) -> Result<Taken, Status> {
        let Some(forward) = &mut self.forward else { return Ok(Taken::default()) };
        if !forward.settle(view, work)? {
            return Ok(Taken { is_paused: true, ..Taken::default() });
        }
        let taken = forward.take_forward(part, most, into, work)?;
        if !taken.is_paused {
            self.forward = None;
        }
        Ok(taken)
    }
}

/// Judges the cells of a column after one another.
struct Column {
    family: Arc<str>,
    times: (i64, Option<i64>),
    newest: Option<usize>,
    /// Rules that the engine does not know.
    gc: Option<Gc>,
    /// The cost of judging a cell by them, in units of [`Work`].
    units: u64,
    now_us: u64,
    qualifier: Vec<u8>,
    began: bool,
    /// Versions met, and given out.
    met: usize,
    given: usize,
    /// Nothing more of this column is wanted, and how many came all the same.
    is_done: bool,
    over: usize,
}

impl Column {
    fn new<M>(view: &View<M>, family: &Arc<str>, need: &Need) -> Self {
        let gc = view.table.now().family(family).map_or(Gc::Never, |stores| stores.gc.clone());
        let gc = gc.is_judged_here().then_some(gc);
        Self {
            family: family.clone(),
            times: need.times,
            newest: need.newest,
            units: gc.as_ref().map_or(0, parts),
            gc,
            now_us: view.now_us,
            qualifier: Vec::new(),
            began: false,
            met: 0,
            given: 0,
            is_done: false,
            over: 0,
        }
    }

    fn begin(&mut self, qualifier: &[u8]) {
        let is_same = self.qualifier == qualifier;
        if !self.began || !is_same {
            if !is_same {
                self.qualifier.clear();
                self.qualifier.extend_from_slice(qualifier);
            }
            self.began = true;
            (self.met, self.given, self.is_done, self.over) = (0, 0, false, 0);
        }
    }

    /// Whether the next version of the column is wanted.
    fn wants(&mut self, timestamp: u64) -> bool {
        if self.is_done {
            self.over += 1;
            return false;
        }
        let newest = self.met;
        self.met += 1;
        let (at, (from, to)) = (i64::try_from(timestamp).unwrap_or(i64::MAX), self.times);
        let is_gone = self.gc.as_ref().is_some_and(|gc| gc.is_gone(newest, timestamp, self.now_us));
        if is_gone || at < from || to.is_some_and(|to| at >= to) {
            return false;
        }
        self.given += 1;
        self.is_done = self.newest.is_some_and(|newest| self.given >= newest);
        true
    }

    /// Gives out the next cell of a row if it is wanted, and tells then whether there is no room for more.
    fn take(
        &mut self,
        qualifier: &[u8],
        at: Timestamp,
        value: &Pinned,
        into: &mut impl Cells,
    ) -> Option<bool> {
        self.begin(qualifier);
        let at_us = i64::try_from(at.0).unwrap_or(i64::MAX);
        self.wants(at.0).then(|| into.add(&self.family, qualifier, at_us, value))
    }
}

/// Rules within a rule.
fn parts(gc: &Gc) -> u64 {
    match gc {
        Gc::Union(all) | Gc::Intersection(all) => all.iter().map(parts).sum::<u64>() + 1,
        _ => 1,
    }
}

fn timestamp(us: i64) -> Timestamp {
    Timestamp(u64::try_from(us).unwrap_or(0))
}

/// Behind the cells of the row with this part of the key.
pub(crate) fn behind_row(part: &[u8]) -> Vec<u8> {
    let mut key = part.to_vec();
    if let Some(last) = key.last_mut() {
        *last = 2;
    }
    key
}

/// Where to go on from a column of a row that is not needed: before the first that is, or behind the row.
fn next_column(need: &Need, row: &[u8], qualifier: &[u8]) -> Vec<u8> {
    need.next(qualifier).map_or_else(|| behind_row(row), |next| [row, &next[..]].concat())
}
