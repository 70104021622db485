//! A store's levels as plain data: levels of runs of tables. Strategies, the simulator and the manifest all
//! speak this; it imports nothing but `types`.
//!
//! Level 0 holds whole flushes, newest run first; a deeper level of `leveled` holds one run. Tables of a run are
//! sorted and do not overlap. A table's *clip* is the key below which a step merge has already moved its cells
//! elsewhere: the table answers only for keys at or above it (idea 3 of the design).

use crate::types::{KeyRange, SeqNo, TableId, Timestamp};
use std::sync::Arc;

/// Everything known about a table without opening it. What the manifest stores.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TableInfo {
    /// Its name.
    pub id: TableId,
    /// Random number in the file's header and under every checksum in it, so that no other file passes for it.
    pub identity: u64,
    /// File size.
    pub bytes: u64,
    /// Cells of any kind, range tombstones apart.
    pub cells: u64,
    /// Point tombstones among them.
    pub tombstones: u64,
    /// Range tombstones.
    pub range_tombstones: u64,
    /// Estimated number of distinct keys.
    pub distinct: u64,
    /// The keys it covers, range tombstones included.
    pub range: KeyRange,
    /// Smallest and largest sequence number.
    pub seqs: (SeqNo, SeqNo),
    /// Smallest and largest timestamp; in families with a TTL and implicit timestamps of the time of writing.
    pub times: (Timestamp, Timestamp),
    /// Wall-clock microseconds when it was made.
    pub created: u64,
    /// Ingested tables: the sequence number that all their cells take.
    pub ingested_at: Option<SeqNo>,
    /// Set while (or after) a step merge moved its lower part elsewhere.
    pub clip: Option<Clip>,
}

/// The part of a table that has moved.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Clip {
    /// Only keys at or above this one are read from the table.
    pub key: Vec<u8>,
    /// About how many of the table's bytes lie below.
    pub bytes_below: u64,
}

impl TableInfo {
    /// The keys the table still answers for.
    pub fn live_range(&self) -> KeyRange {
        match &self.clip {
            Some(clip) if clip.key > self.range.start => {
                KeyRange { start: clip.key.clone(), end: self.range.end.clone() }
            }
            _ => self.range.clone(),
        }
    }

    /// About how many bytes the live range holds.
    pub fn live_bytes(&self) -> u64 {
        self.bytes - self.clip.as_ref().map_or(0, |clip| clip.bytes_below.min(self.bytes))
    }
}

/// Tables that do not overlap, sorted by key.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Run {
    /// Grows with recency within level 0; the number of the flush that made it.
    pub id: u64,
    /// Sorted by live range.
    pub tables: Vec<Arc<TableInfo>>,
}

impl Run {
    /// Bytes the run still answers for.
    pub fn live_bytes(&self) -> u64 {
        self.tables.iter().map(|t| t.live_bytes()).sum()
    }

    /// The tables whose live range overlaps `range`, in order. O(log n + output).
    pub fn overlapping<'a>(&'a self, range: &'a KeyRange) -> impl Iterator<Item = &'a Arc<TableInfo>> {
        let first = self.tables.partition_point(|t| !t.range.ends_after(&range.start));
        self.tables[first..]
            .iter()
            .take_while(move |t| range.ends_after(&t.range.start) || range.ends_after(&t.live_range().start))
            .filter(move |t| t.live_range().overlaps(range))
    }
}

/// One level: runs, newest first.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Level {
    /// Newest first.
    pub runs: Vec<Run>,
}

impl Level {
    /// Bytes the level still answers for.
    pub fn live_bytes(&self) -> u64 {
        self.runs.iter().map(Run::live_bytes).sum()
    }
}

/// A store's tables. Everything in a level is newer than what lies below it at the same key.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Shape {
    /// Level 0 first.
    pub levels: Vec<Level>,
}

impl Shape {
    /// All tables with level and run, newest data first.
    pub fn tables(&self) -> impl Iterator<Item = (usize, &Run, &Arc<TableInfo>)> {
        self.levels.iter().enumerate().flat_map(|(level, l)| {
            l.runs.iter().flat_map(move |run| run.tables.iter().map(move |table| (level, run, table)))
        })
    }

    /// Bytes that answer reads.
    pub fn live_bytes(&self) -> u64 {
        self.levels.iter().map(Level::live_bytes).sum()
    }
}
