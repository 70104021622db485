//! Rows of a range: the cells of all families put together, row by row, in order or in reverse.
//!
//! Each family is walked by a cursor of its own, region after region, all at one snapshot, so a row is as it was at one moment. A
//! region is opened when the walk comes to it; by then the table may have been split or joined, and the store that has the
//! keys is asked for again. What a filter does not need is stepped over by seeks, not read.

use crate::filter::{Cell, Need};
use crate::gc::Gc;
use crate::rows::{self, Span};
use crate::status::status;
use crate::tables::{Region, Stores, Table};
use bytes::{Bytes, BytesMut};
use siltstone::{Cursor, Entry, Pinned, Snapshot, Timestamp};
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tonic::Status;

/// Versions that are stepped over one by one before a seek is tried.
const STEPS_BEFORE_SEEK: usize = 8;

/// Values shorter than this are copied, as holding what they lie in costs more.
const COPIED_BYTES: usize = 512;

/// Bytes of what copies are put into, from the first of a walk on.
const COPIES_BYTES: (usize, usize) = (256, 64 << 10);

/// Where small keys and values are copied to, many into one allocation.
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

/// How rows are read.
pub(crate) struct View {
    pub(crate) table: Arc<Table>,
    pub(crate) snapshot: Snapshot,
    pub(crate) now_us: u64,
    pub(crate) reversed: bool,
    /// The caller holds the table.
    pub(crate) held: bool,
    /// Nobody waits for the rows any more.
    pub(crate) canceled: Arc<AtomicBool>,
}

impl View {
    fn check(&self) -> Result<(), Status> {
        match self.canceled.load(Ordering::Relaxed) {
            true => Err(Status::cancelled("the client is gone")),
            false => Ok(()),
        }
    }
}

/// Where a walk puts the cells of a row, in the order of families, qualifiers, newest first.
pub(crate) trait Cells {
    /// A row begins. What came of the one before, if that had no cell, was nothing.
    fn begin(&mut self, row: &[u8]);

    /// The next cell of the row.
    fn add(&mut self, family: &Arc<str>, qualifier: &[u8], timestamp: i64, value: &Pinned);
}

/// The cells of one row, collected.
#[derive(Default)]
pub(crate) struct Collected {
    pub(crate) row: Vec<u8>,
    pub(crate) cells: Vec<Cell>,
    copies: Copies,
    qualifier: Bytes,
}

impl Cells for Collected {
    fn begin(&mut self, row: &[u8]) {
        self.row.clear();
        self.row.extend_from_slice(row);
        self.cells.clear();
    }

    fn add(&mut self, family: &Arc<str>, qualifier: &[u8], timestamp: i64, value: &Pinned) {
        // Rows have the same columns as a rule.
        if self.qualifier != qualifier {
            self.qualifier = Bytes::copy_from_slice(qualifier);
        }
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
    }
}

/// A walk over the rows of a range.
pub(crate) struct Rows {
    view: Arc<View>,
    families: Vec<FamilyRows>,
    /// The first cells of a row that are needed.
    first: Option<usize>,
    /// Cells looked at.
    pub(crate) cells_seen: u64,
    /// The row's part of the keys of the row that was read last.
    pub(crate) part: Vec<u8>,
}

impl Rows {
    /// The rows of a span of keys, as far as is needed of each family.
    pub(crate) fn new(view: Arc<View>, needs: &[(Arc<str>, Need)], span: &Span) -> Result<Self, Status> {
        let families: Result<Vec<_>, _> =
            needs.iter().map(|(name, need)| FamilyRows::new(&view, name, need, span)).collect();
        let first = needs.first().and_then(|(_, need)| need.first);
        Ok(Self { view, families: families?, first, cells_seen: 0, part: Vec::new() })
    }

    /// Reads the next row that has a cell. Returns how many cells it has; 0 at the end.
    pub(crate) fn next(&mut self, into: &mut impl Cells) -> Result<usize, Status> {
        loop {
            self.view.check()?;
            let parts = self.families.iter().filter_map(FamilyRows::row_part);
            let part = match self.view.reversed {
                false => parts.min(),
                true => parts.max(),
            };
            let Some(part) = part else { return Ok(0) };
            self.part.clear();
            self.part.extend_from_slice(part);
            let part = &self.part[..];
            into.begin(&rows::row_of(part));
            let mut cells = 0;
            for family in &mut self.families {
                if family.row_part() == Some(part) {
                    let most = self.first.map_or(usize::MAX, |first| first - cells);
                    let (seen, taken) = family.take_row(&self.view, part, most, into)?;
                    self.cells_seen += seen;
                    cells += taken;
                }
            }
            if cells > 0 {
                return Ok(cells);
            }
        }
    }
}

/// One family's part of a [`Rows`].
struct FamilyRows {
    name: Arc<str>,
    need: Need,
    /// Keys that are still to be walked, behind the cursor's.
    left: Span,
    /// Of the region that is being walked: stands on the next cell that is needed.
    cursor: Option<Cursor>,
    /// Bytes of the row's part of the key under the cursor.
    row_len: usize,
    column: Column,
}

impl FamilyRows {
    fn new(view: &View, name: &Arc<str>, need: &Need, span: &Span) -> Result<Self, Status> {
        let column = Column::new(view, name, need);
        let mut rows = Self {
            name: name.clone(),
            need: need.clone(),
            left: span.clone(),
            cursor: None,
            row_len: 0,
            column,
        };
        rows.open_next(view)?;
        Ok(rows)
    }

    fn entry(&self) -> Option<&Entry> {
        self.cursor.as_ref().and_then(Cursor::entry)
    }

    /// The row's part of the key of the next cell.
    fn row_part(&self) -> Option<&[u8]> {
        self.entry().map(|entry| &entry.key[..self.row_len])
    }

    /// Opens regions until one has a cell that is needed.
    fn open_next(&mut self, view: &View) -> Result<(), Status> {
        self.cursor = None;
        while self.cursor.is_none() && !self.left.is_empty() {
            let mut cursor = {
                let _hold = (!view.held).then(|| view.table.hold());
                let layout = view.table.now();
                // A family that was dropped meanwhile has no more cells.
                let Ok(stores) = layout.family(&self.name) else { return Ok(()) };
                let before = self.left.clone();
                let part = self.next_region(stores, view.reversed);
                let Some((Region { store, traffic, .. }, part)) = part else { return Ok(()) };
                traffic.note(&part.start);
                if self.left == before {
                    return Err(Status::unavailable(format!(
                        "store {} does not have its keys",
                        store.name()
                    )));
                }
                let reader = store.at(&view.snapshot);
                let bounds =
                    (Bound::Included(part.start), part.end.map_or(Bound::Unbounded, Bound::Excluded));
                let scan = reader.scan::<Vec<u8>>(bounds);
                match self.need.times {
                    _ if self.column.gc.is_some() => scan,
                    (0, None) => scan,
                    (from, to) => scan.times(timestamp(from)..to.map_or(Timestamp::MAX, timestamp)),
                }
                .cursor()
            };
            match view.reversed {
                false => cursor.first(),
                true => cursor.last(),
            }
            .map_err(status)?;
            self.cursor = Some(cursor);
            self.settle(view)?;
        }
        Ok(())
    }

    /// The next store and its part of what is left, which is taken away.
    fn next_region<'a>(&mut self, stores: &'a Stores, reversed: bool) -> Option<(&'a Region, Span)> {
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

    /// Goes on to a cell that is needed, if the cursor stands on none. Without one the cursor goes.
    fn settle(&mut self, view: &View) -> Result<(), Status> {
        let Some(cursor) = &mut self.cursor else { return Ok(()) };
        loop {
            view.check()?;
            let Some(entry) = cursor.entry() else {
                self.cursor = None;
                return Ok(());
            };
            let Some(row_len) = rows::row_len(&entry.key) else {
                return Err(Status::data_loss(format!(
                    "\"{}\" is the key of no cell",
                    entry.key.escape_ascii()
                )));
            };
            self.row_len = row_len;
            let (row, qualifier) = entry.key.split_at(row_len);
            if self.need.all_columns() || self.need.columns.contains(qualifier) {
                return Ok(());
            }
            if view.reversed {
                cursor.prev().map_err(status)?;
                continue;
            }
            let to = next_column(&self.need, row, qualifier);
            cursor.seek(to).map_err(status)?;
        }
    }

    /// Takes the cells of the row that the cursor stands in, `most` at most, and goes on behind it. Returns how many it looked at,
    /// and how many it took.
    fn take_row(
        &mut self,
        view: &View,
        part: &[u8],
        most: usize,
        into: &mut impl Cells,
    ) -> Result<(u64, usize), Status> {
        let column = &mut self.column;
        column.began = false;
        let (mut seen, mut taken) = (0, 0);
        // Those of a row in reverse, which are judged when all are there.
        let mut unjudged = Vec::new();
        let mut behind: Option<Vec<u8>> = None;
        while let Some(cursor) = &mut self.cursor {
            let Some(entry) = cursor.entry() else { break };
            if entry.key.len() < part.len() || &entry.key[..part.len()] != part {
                break;
            }
            if taken >= most && !view.reversed {
                behind = Some(behind_row(part));
                break;
            }
            seen += 1;
            let qualifier = &entry.key[part.len()..];
            let is_needed = self.need.columns.contains(qualifier);
            if !is_needed && !view.reversed {
                let to = next_column(&self.need, part, qualifier);
                cursor.seek(to).map_err(status)?;
                continue;
            }
            if is_needed {
                match view.reversed {
                    false => {
                        taken += usize::from(column.take(qualifier, entry.timestamp, &entry.value, into))
                    }
                    true => unjudged.push((qualifier.to_vec(), entry.timestamp, entry.value.clone())),
                }
            }
            if !view.reversed && column.over >= STEPS_BEFORE_SEEK {
                column.over = 0;
                let next = [part, &column.qualifier[..], b"\0"].concat();
                cursor.seek(next).map_err(status)?;
            } else if view.reversed {
                cursor.prev().map_err(status)?;
            } else {
                cursor.next().map_err(status)?;
            }
        }
        if let (Some(behind), Some(cursor)) = (behind, &mut self.cursor) {
            cursor.seek(behind).map_err(status)?;
        }
        for (qualifier, timestamp, value) in unjudged.iter().rev() {
            if taken >= most {
                break;
            }
            taken += usize::from(column.take(qualifier, *timestamp, value, into));
        }
        self.settle(view)?;
        if self.cursor.is_none() {
            self.open_next(view)?;
        }
        Ok((seen, taken))
    }
}

/// Judges the cells of a column after one another.
struct Column {
    family: Arc<str>,
    times: (i64, Option<i64>),
    newest: Option<usize>,
    /// Rules that the engine does not know.
    gc: Option<Gc>,
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
    fn new(view: &View, family: &Arc<str>, need: &Need) -> Self {
        let gc = view.table.now().family(family).map_or(Gc::Never, |stores| stores.gc.clone());
        Self {
            family: family.clone(),
            times: need.times,
            newest: need.newest,
            gc: gc.is_judged_here().then_some(gc),
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

    /// Gives out the next cell of a row if it is wanted, and tells whether it is.
    fn take(&mut self, qualifier: &[u8], at: Timestamp, value: &Pinned, into: &mut impl Cells) -> bool {
        self.begin(qualifier);
        let is_wanted = self.wants(at.0);
        if is_wanted {
            into.add(&self.family, qualifier, i64::try_from(at.0).unwrap_or(i64::MAX), value);
        }
        is_wanted
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
    match &need.columns.0 {
        Bound::Included(at) if qualifier < &at[..] => [row, &at[..]].concat(),
        Bound::Excluded(at) if qualifier <= &at[..] => [row, &at[..], b"\0"].concat(),
        _ => behind_row(row),
    }
}
