//! The sources of scans and conflict checks: memtables and SSTables of one version, as one kind of cursor.

use crate::compaction::RunCursor;
use crate::error::Result;
use crate::memtable::{Chain, Memtable, MemtableCursor, MemtableRanges};
use crate::sstable::CursorOptions;
use crate::types::{CellRef, Cursor, KeyRange, Pinned, SeqNo, TimeRange, Within};
use crate::version::{Memtables, Version};
use std::sync::Arc;

/// One source of a scan, some with the newest sequence number there; an enum, as a call through a table of
/// functions for each cell would cost more than the step.
pub(super) enum Source {
    Memtable(MemtableCursor, Option<SeqNo>),
    Flushing(Within<MemtableCursor>),
    Chain(Within<Chain>),
    Run(Box<RunCursor>),
}

macro_rules! each {
    ($self:ident, $cursor:ident => $call:expr) => {
        match $self {
            Source::Memtable($cursor, _) => $call,
            Source::Flushing($cursor) => $call,
            Source::Chain($cursor) => $call,
            Source::Run($cursor) => $call,
        }
    };
}

impl Cursor for Source {
    fn seek(&mut self, key: &[u8]) -> Result<()> {
        each!(self, cursor => cursor.seek(key))
    }
    fn seek_before(&mut self, key: Option<&[u8]>) -> Result<()> {
        each!(self, cursor => cursor.seek_before(key))
    }
    #[inline]
    fn next(&mut self) -> Result<()> {
        each!(self, cursor => cursor.next())
    }
    fn prev(&mut self) -> Result<()> {
        each!(self, cursor => cursor.prev())
    }
    #[inline]
    fn valid(&self) -> bool {
        each!(self, cursor => cursor.valid())
    }
    #[inline]
    fn cell(&self) -> CellRef<'_> {
        each!(self, cursor => cursor.cell())
    }
    #[inline]
    fn key(&self) -> &[u8] {
        each!(self, cursor => cursor.key())
    }
    fn pin_value(&self, into: &mut Pinned) -> Result<()> {
        each!(self, cursor => cursor.pin_value(into))
    }
}

impl Source {
    /// A cursor over an immutable memtable, whose newest cell stays the newest.
    fn of_immutable(memtable: &Memtable) -> Self {
        Source::Memtable(memtable.cursor(), memtable.seqs().map(|seqs| *seqs.end()))
    }

    pub(super) fn is_active(&self) -> bool {
        matches!(self, Source::Memtable(_, None))
    }

    /// Goes past the cells of the range that are all older than `whole`, if it knows that they are.
    pub(super) fn pass(&mut self, range: &KeyRange, whole: SeqNo, reverse: bool) -> Result<()> {
        // Otherwise it is beyond them already.
        if !range.contains(self.key()) {
            return Ok(());
        }
        match self {
            Source::Memtable(cursor, Some(newest)) if *newest < whole => match (reverse, &range.end) {
                (true, _) => cursor.seek_before(Some(&range.start)),
                (false, Some(end)) => cursor.seek(end),
                // There is nothing after it.
                (false, None) => {
                    cursor.seek_before(None)?;
                    if cursor.valid() { cursor.next() } else { Ok(()) }
                }
            },
            Source::Run(cursor) => cursor.pass(range, whole, reverse),
            _ => Ok(()),
        }
    }
}

/// Cursors over everything in the version that overlaps the range and may have those times, newest first.
pub(super) fn sources(version: &Version, range: &KeyRange, read: SeqNo, times: TimeRange) -> Vec<Source> {
    let mut cursors = Vec::new();
    let Memtables { active, waiting, ranges, flushing } = &version.memory;
    if !active.is_empty() && active.speaks_of(times) {
        cursors.push(Source::Memtable(active.cursor(), None));
    }
    let concerns = |memtable: &&Memtable| memtable.concerns(range, read) && memtable.speaks_of(times);
    cursors.extend(waiting.iter().filter(concerns).map(Source::of_immutable));
    cursors.extend(of_ranges(ranges, range, read, times, &[]));
    if !flushing.is_empty() {
        let left = range.intersect(&flushing.range);
        cursors.extend(of_ranges(&flushing.ranges, &left, read, times, &flushing.range.start));
    }
    let options = CursorOptions { fill_cache: true, read_ahead_bytes: 0, through_cache: true };
    for run in version.runs.iter() {
        let within = run.within(range);
        if within.is_empty() {
            continue;
        }
        let tables = &run.tables[within.clone()];
        let cursor = match times == TimeRange::ALL || tables.iter().all(|open| open.speaks_of(times)) {
            true => RunCursor::new(&run.tables, within, options),
            false => {
                let some: Arc<[_]> = tables.iter().filter(|open| open.speaks_of(times)).cloned().collect();
                if some.is_empty() {
                    continue;
                }
                RunCursor::new(&some, 0..some.len(), options)
            }
        };
        cursors.push(Source::Run(Box::new(cursor)));
    }
    cursors
}

/// Cursors over the memtables of the ranges, from that key on: those of one range as they are, those of
/// several as chains.
fn of_ranges(
    ranges: &Arc<MemtableRanges>,
    range: &KeyRange,
    read: SeqNo,
    times: TimeRange,
    floor: &[u8],
) -> Vec<Source> {
    let within = ranges.within(range);
    if within.len() > 1 {
        let chains = ranges.chains(range, times);
        return chains.map(|chain| Source::Chain(Within::above(chain, floor.to_vec()))).collect();
    }
    let concerns = |memtable: &&Memtable| memtable.concerns(range, read) && memtable.speaks_of(times);
    let source = |memtable: &Memtable| match floor.is_empty() {
        true => Source::of_immutable(memtable),
        false => Source::Flushing(Within::above(memtable.cursor(), floor.to_vec())),
    };
    ranges.memtables_of(within.start).iter().filter(concerns).map(source).collect()
}
