//! A store's levels as plain data: levels of runs of SSTables. Strategies, the simulator and the manifest all
//! speak this; it imports nothing but `types`.
//!
//! L0 holds whole flushes, newest run first; a deeper level of `leveled` holds one run. SSTables of a run are
//! sorted and do not overlap. An SSTable's *clip* is the key below which the steps of a compaction have
//! already moved its cells: the SSTable answers only for keys at or above it.
//!
//! `change` changes a shape, `check` checks the invariants of every shape, `regions` splits and joins shapes,
//! and `text` writes and reads shapes for people and tests.

mod change;
mod check;
mod regions;
mod text;

pub use change::{ShapeChange, TablePlace};
pub(crate) use text::key_text;
#[cfg(test)]
pub(crate) use text::{parse_key, parse_range, range_text};

use crate::types::{KeyRange, LogFileId, SeqNo, TableId, Timestamp};
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

/// Everything known about an SSTable without opening it; stored in the manifest.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// let db = siltstone::Db::open(dir.path())?;
/// db.put(b"k", b"v")?;
/// db.flush()?;
/// let shape = db.default_family().shape();
/// let (_, _, table) = shape.tables().next().unwrap();
/// assert_eq!((table.cells, table.range.contains(b"k")), (1, true));
/// # Ok::<(), siltstone::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
// Over 15 fields: all that the manifest has of an SSTable.
pub struct TableInfo {
    /// Its name.
    pub id: TableId,
    /// Random number in the file's header and under every checksum in it, so that no other file is taken for
    /// it.
    pub identity: u64,
    /// File size.
    pub bytes: u64,
    /// Cells of any kind, except range tombstones.
    pub cells: u64,
    /// Point tombstones among them.
    pub tombstones: u64,
    /// Range tombstones.
    pub range_tombstones: u64,
    /// Estimated number of distinct keys.
    pub distinct: u64,
    /// The keys it covers, including its range tombstones.
    pub range: KeyRange,
    /// Smallest and largest sequence number.
    pub seqs: (SeqNo, SeqNo),
    /// Smallest and largest timestamp; with a TTL and implicit timestamps, of the time of writing.
    pub times: (Timestamp, Timestamp),
    /// Wall-clock microseconds of its creation.
    pub created: u64,
    /// Bytes of values that are in the WAL; zero unless it is an SSTable with values in the WAL.
    pub log_bytes: u64,
    /// The WAL files of those values, ascending.
    pub logs: Vec<LogFileId>,
    /// The sequence number of all its cells, if it was ingested.
    pub ingested_at: Option<SeqNo>,
    /// Set once a compaction step has moved its lower part, or where another store has the lower part after a
    /// split.
    pub clip: Option<Clip>,
    /// Set where another store has the upper part, so that `range` ends before the file does: about how many
    /// of the SSTable's bytes lie there.
    pub above: Option<u64>,
}

/// The lower part of an SSTable, which has moved.
///
/// ```
/// use siltstone::shape::Clip;
/// let clip = Clip { key: b"m".to_vec(), bytes_below: 4096 };
/// assert!(clip.key.as_slice() > b"k".as_slice(), "the key k is read elsewhere");
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Clip {
    /// Only keys at or above this one are read from the SSTable.
    pub key: Vec<u8>,
    /// About how many of the SSTable's bytes lie below.
    pub bytes_below: u64,
}

impl TableInfo {
    /// The keys the SSTable still answers for.
    pub fn live_range(&self) -> KeyRange {
        match &self.clip {
            Some(clip) if clip.key > self.range.start => {
                KeyRange { start: clip.key.clone(), end: self.range.end.clone() }
            }
            _ => self.range.clone(),
        }
    }

    /// The first key the SSTable still answers for. The same as `live_range().start`, without a copy.
    pub fn live_start(&self) -> &[u8] {
        match &self.clip {
            Some(clip) if clip.key > self.range.start => &clip.key,
            _ => &self.range.start,
        }
    }

    /// Whether the live range shares a key with `range`.
    pub fn overlaps(&self, range: &KeyRange) -> bool {
        !range.is_empty()
            && range.ends_after(self.live_start())
            && self.range.ends_after(&range.start)
            && self.range.ends_after(self.live_start())
    }

    /// Tombstones of both kinds.
    pub fn all_tombstones(&self) -> u64 {
        self.tombstones + self.range_tombstones
    }

    /// About how many bytes the live range holds, values in the WAL included.
    pub fn live_bytes(&self) -> u64 {
        // A description from another process may have any numbers, so nothing here overflows.
        let below = self.clip.as_ref().map_or(0, |clip| clip.bytes_below);
        let live = self.bytes.saturating_sub(below.saturating_add(self.above.unwrap_or(0)));
        // Values are taken to be spread over the file as its own bytes are.
        let values = u128::from(self.log_bytes) * u128::from(live) / u128::from(self.bytes.max(1));
        live.saturating_add(values as u64)
    }

    /// Whether it answers for all cells of its file.
    pub fn is_whole(&self) -> bool {
        self.clip.is_none() && self.above.is_none()
    }

    /// Whether it is an SSTable with values in the WAL.
    pub fn has_wal_values(&self) -> bool {
        !self.logs.is_empty()
    }
}

/// SSTables that do not overlap, sorted by key. They change through its methods only, because it keeps their
/// totals: a plan over 20,000 SSTables needs these all the time.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// let db = siltstone::Db::open(dir.path())?;
/// db.put(b"k", b"v")?;
/// db.flush()?;
/// let shape = db.default_family().shape();
/// let (level, run) = shape.runs().next().unwrap();
/// assert!(run.tables().len() == 1 && shape.run(level, run.id) == Some(run));
/// # Ok::<(), siltstone::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Run {
    /// Orders the runs of a level by age: larger is newer. In L0 the number of the flush; in deeper levels
    /// the id of the newest run that it was made from.
    pub id: u64,
    tables: Vec<Arc<TableInfo>>,
    live_bytes: u64,
    tombstones: u64,
}

/// The most bytes, cells or tombstones of an SSTable, so that sums over many SSTables do not overflow.
pub(crate) const TABLE_COUNT_MAX: u64 = 1 << 44;

impl Run {
    /// A run of these SSTables, which are sorted here and must not overlap ([`Shape::check`] says so if they
    /// do).
    pub fn new(id: u64, mut tables: Vec<Arc<TableInfo>>) -> Self {
        tables.sort_by(|a, b| a.live_start().cmp(b.live_start()));
        let mut run = Run { id, tables, live_bytes: 0, tombstones: 0 };
        run.live_bytes = run.tables.iter().map(|t| t.live_bytes()).sum();
        run.tombstones = run.tables.iter().map(|t| t.all_tombstones()).sum();
        run
    }

    /// Its SSTables, sorted by live range.
    pub fn tables(&self) -> &[Arc<TableInfo>] {
        &self.tables
    }

    /// Bytes the run still answers for.
    pub fn live_bytes(&self) -> u64 {
        self.live_bytes
    }

    /// Tombstones of both kinds in its SSTables.
    pub fn tombstones(&self) -> u64 {
        self.tombstones
    }

    /// The positions of the SSTables whose live range overlaps `range`. O(log n).
    pub fn window(&self, range: &KeyRange) -> Range<usize> {
        let first = self.tables.partition_point(|t| !t.range.ends_after(&range.start));
        let last = self.tables.partition_point(|t| range.ends_after(t.live_start()));
        first..last.max(first)
    }

    /// The SSTables whose live range overlaps `range`, in order. O(log n + output).
    pub fn overlapping<'a>(&'a self, range: &KeyRange) -> impl Iterator<Item = &'a Arc<TableInfo>> + use<'a> {
        self.tables[self.window(range)].iter()
    }

    /// Live bytes of the SSTables that overlap `range`.
    pub(crate) fn bytes_within(&self, range: &KeyRange) -> u64 {
        if range.is_empty() { 0 } else { self.overlapping(range).map(|table| table.live_bytes()).sum() }
    }

    /// Adds an SSTable at its position by key; refuses one that overlaps a neighbour.
    pub(crate) fn insert(&mut self, table: Arc<TableInfo>) -> Result<(), String> {
        let at = self.tables.partition_point(|t| t.live_start() < table.live_start());
        let before = at.checked_sub(1).and_then(|i| self.tables.get(i));
        for near in before.into_iter().chain(self.tables.get(at)) {
            if near.overlaps(&table.live_range()) {
                return Err(format!("table {} overlaps table {} of run #{}", table.id, near.id, self.id));
            }
        }
        self.live_bytes += table.live_bytes();
        self.tombstones += table.all_tombstones();
        self.tables.insert(at, table);
        Ok(())
    }

    /// Removes these SSTables, all of which overlap `range`; an error if one is missing.
    pub(crate) fn remove(&mut self, ids: &HashSet<TableId>, range: &KeyRange) -> Result<(), String> {
        let window = self.window(range);
        let mut kept = Vec::with_capacity(window.len().saturating_sub(ids.len()));
        let (mut bytes, mut tombstones) = (0, 0);
        for table in &self.tables[window.clone()] {
            if ids.contains(&table.id) {
                bytes += table.live_bytes();
                tombstones += table.all_tombstones();
            } else {
                kept.push(table.clone());
            }
        }
        if kept.len() + ids.len() != window.len() {
            return Err(format!("run #{} lacks tables that are to be removed from it", self.id));
        }
        self.live_bytes -= bytes;
        self.tombstones -= tombstones;
        self.tables.splice(window, kept);
        Ok(())
    }

    /// Raises the clip of an SSTable that overlaps `range`.
    pub(crate) fn clip(&mut self, id: TableId, clip: Clip, range: &KeyRange) -> Result<(), String> {
        let (window, run) = (self.window(range), self.id);
        let table = self.tables[window].iter_mut().find(|t| t.id == id);
        let table = table.ok_or_else(|| format!("run #{run} lacks table {id}, which is to be clipped"))?;
        if clip.key.as_slice() < table.live_start() || !table.range.ends_after(&clip.key) {
            return Err(format!("the clip {} lies outside table {id}", key_text(&clip.key)));
        }
        self.live_bytes -= table.live_bytes();
        Arc::make_mut(table).clip = Some(clip);
        self.live_bytes += table.live_bytes();
        Ok(())
    }
}

/// One level: runs, newest first.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// let db = siltstone::Db::open(dir.path())?;
/// db.put(b"k", b"v")?;
/// db.flush()?;
/// let shape = db.default_family().shape();
/// let bytes: u64 = shape.levels.iter().map(|level| level.live_bytes()).sum();
/// assert_eq!(bytes, shape.live_bytes());
/// # Ok::<(), siltstone::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Level {
    /// Newest first, that is, by falling id.
    pub runs: Vec<Run>,
}

impl Level {
    /// Bytes the level still answers for.
    pub fn live_bytes(&self) -> u64 {
        self.runs.iter().map(Run::live_bytes).sum()
    }

    /// The run with this id.
    pub fn run(&self, id: u64) -> Option<&Run> {
        self.runs.iter().find(|run| run.id == id)
    }
}

/// A store's SSTables. For the same key, a level has newer data than the levels below.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// let db = siltstone::Db::open(dir.path())?;
/// db.put(b"k", b"v")?;
/// db.flush()?;
/// let shape = db.default_family().shape();
/// println!("{shape}");
/// assert_eq!(shape.tables().count(), 1);
/// # Ok::<(), siltstone::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Shape {
    /// L0 first.
    pub levels: Vec<Level>,
}

impl Shape {
    /// All SSTables with level and run, newest data first.
    pub fn tables(&self) -> impl Iterator<Item = (usize, &Run, &Arc<TableInfo>)> {
        self.runs().flat_map(|(level, run)| run.tables.iter().map(move |table| (level, run, table)))
    }

    /// All runs with their level, newest data first.
    pub fn runs(&self) -> impl Iterator<Item = (usize, &Run)> {
        self.levels.iter().enumerate().flat_map(|(level, l)| l.runs.iter().map(move |run| (level, run)))
    }

    /// The run of that id in that level.
    pub fn run(&self, level: usize, id: u64) -> Option<&Run> {
        self.levels.get(level)?.run(id)
    }

    /// Live bytes of a level; zero for a level that does not exist.
    pub fn level_bytes(&self, level: usize) -> u64 {
        self.levels.get(level).map_or(0, Level::live_bytes)
    }

    /// The deepest level that holds anything.
    pub fn deepest(&self) -> Option<usize> {
        self.levels.iter().rposition(|level| !level.runs.is_empty())
    }

    fn drop_empty_levels(&mut self) {
        self.levels.truncate(self.deepest().map_or(0, |deepest| deepest + 1));
    }

    /// Live bytes of all levels.
    pub fn live_bytes(&self) -> u64 {
        self.levels.iter().map(Level::live_bytes).sum()
    }

    /// Live bytes of all SSTables that overlap the range. O(runs x log SSTables + output).
    pub(crate) fn bytes_within(&self, range: &KeyRange) -> u64 {
        self.runs().map(|(_, run)| run.bytes_within(range)).sum()
    }
}
