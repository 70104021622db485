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
    cursors.extend(concerned(waiting, range, read, times).map(Source::of_immutable));
    push_ranges(&mut cursors, ranges, range, read, times, &[]);
    if !flushing.is_empty() {
        let left = range.intersect(&flushing.range);
        push_ranges(&mut cursors, &flushing.ranges, &left, read, times, &flushing.range.start);
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

/// Adds cursors over the memtables of the ranges, from that key on: those of one range as they are, those of
/// several as chains.
fn push_ranges(
    cursors: &mut Vec<Source>,
    ranges: &Arc<MemtableRanges>,
    range: &KeyRange,
    read: SeqNo,
    times: TimeRange,
    floor: &[u8],
) {
    if ranges.is_empty() {
        return;
    }
    let within = if ranges.is_one() { 0..1 } else { ranges.within(range) };
    if within.len() > 1 {
        let chains = ranges.chains(range, times);
        cursors.extend(chains.map(|chain| Source::Chain(Within::above(chain, floor.to_vec()))));
        return;
    }
    let source = |memtable: &Memtable| match floor.is_empty() {
        true => Source::of_immutable(memtable),
        false => Source::Flushing(Within::above(memtable.cursor(), floor.to_vec())),
    };
    cursors.extend(concerned(ranges.memtables_of(within.start), range, read, times).map(source));
}

/// The memtables that may have something of the range at those timestamps.
fn concerned<'a>(
    memtables: &'a [Memtable],
    range: &'a KeyRange,
    read: SeqNo,
    times: TimeRange,
) -> impl Iterator<Item = &'a Memtable> {
    let concerns = move |one: &&Memtable| one.concerns(range, read) && one.speaks_of(times);
    memtables.iter().filter(concerns)
}

#[cfg(all(test, not(models)))]
mod tests {
    use super::*;
    use crate::memtable::{ActiveMemtable, MemoryOptions, Sizes, Visibility};
    use crate::types::{Generation, Kind, Timestamp};
    use crate::version::FlushSet;

    /// A memtable with those keys, all written as that sequence number.
    fn memtable(seq: u64, keys: &[&[u8]]) -> Memtable {
        let memory = MemoryOptions { chunks: Sizes::all(1 << 10), spares: None };
        let active = ActiveMemtable::new(Generation(seq), memory);
        for key in keys {
            let (timestamp, seq) = (Timestamp::ZERO, SeqNo(seq));
            assert!(active.writer().insert(&CellRef {
                key,
                timestamp,
                seq,
                kind: Kind::Value,
                written: 0,
                value: b"",
            }));
        }
        Arc::new(active).into()
    }

    fn flat(seq: u64, keys: &[&[u8]]) -> Memtable {
        memtable(seq, keys).flatten(&Visibility { counts: false, visible: SeqNo::ZERO, snapshots: &[] })
    }

    /// The sequence numbers of a key, in the order in which sources have it.
    fn order(version: &Version, key: &[u8], range: &KeyRange, reverse: bool) -> Vec<u64> {
        let mut found = Vec::new();
        for mut source in sources(version, range, SeqNo::MAX, TimeRange::ALL) {
            match reverse {
                false => source.seek(key).unwrap(),
                true => source.seek_before(Some(&[key, &[0]].concat())).unwrap(),
            }
            found.extend((source.valid() && source.key() == key).then(|| source.cell().seq.0));
        }
        found
    }

    /// The memory of a store in one range, or in two, of the same age: each key was written many times, and a
    /// flush is half done.
    fn version(is_one: bool, flushed_upto: &[u8]) -> Version {
        let (a, m, z): (&[u8], &[u8], &[u8]) = (b"a", b"m", b"z");
        let mut version = Version::new(memtable(9, &[a, m, z]));
        let lists = |seqs: [u64; 2]| match is_one {
            true => MemtableRanges::one(seqs.map(|seq| flat(seq, &[a, m, z])).to_vec(), Generation(seqs[0])),
            false => {
                let low = seqs.map(|seq| flat(seq, &[a])).to_vec();
                // One list is shorter: the next chain has nothing there.
                let high = vec![flat(seqs[0], &[m, z])];
                MemtableRanges::new(vec![b"k".to_vec()], vec![low, high], Generation(seqs[0]))
            }
        };
        version.memory.waiting = vec![memtable(8, &[a, m, z]), memtable(7, &[a, m, z])];
        version.memory.ranges = Arc::new(lists([6, 5]));
        let range = KeyRange { start: flushed_upto.to_vec(), end: None };
        let ranges = Arc::new(lists([4, 3]));
        version.memory.flushing = FlushSet { ranges, range, ..FlushSet::default() };
        version
    }

    #[test]
    fn gets_and_scans_meet_newer_memory_first_in_one_range_and_in_several() {
        for (is_one, key, flushed_upto, expected) in [
            (true, b"a", "", &[9, 8, 7, 6, 5, 4, 3][..]),
            (true, b"a", "b", &[9, 8, 7, 6, 5]),
            (true, b"m", "b", &[9, 8, 7, 6, 5, 4, 3]),
            (false, b"a", "", &[9, 8, 7, 6, 5, 4, 3]),
            (false, b"a", "b", &[9, 8, 7, 6, 5]),
            (false, b"m", "b", &[9, 8, 7, 6, 4]),
            (false, b"z", "n", &[9, 8, 7, 6, 4]),
        ] {
            let version = version(is_one, flushed_upto.as_bytes());
            let case =
                format!("one range: {is_one}, key {}, flushed up to {flushed_upto}", key.escape_ascii());
            let mut met = Vec::new();
            for memtable in version.memory.at(key) {
                let _ = memtable.get(key, SeqNo::MAX, &mut |cell, _| {
                    met.push(cell.seq.0);
                    std::ops::ControlFlow::Break(())
                });
            }
            assert_eq!(met, expected, "a get: {case}");
            for reverse in [false, true] {
                assert_eq!(order(&version, key, &KeyRange::all(), reverse), expected, "{case}");
                let only = KeyRange { start: key.to_vec(), end: Some([&key[..], &[1]].concat()) };
                assert_eq!(order(&version, key, &only, reverse), expected, "a short scan: {case}");
            }
        }
    }
}
