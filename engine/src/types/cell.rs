//! A cell: (key, timestamp, sequence number, kind, value), and the one order of all cells.

use super::ids::{SeqNo, Timestamp};
use std::cmp::Ordering;

/// Bytes of the longest value, put or combined by a merge operator: just under 1 GiB.
pub const VALUE_BYTES_MAX: usize = (1 << 30) - (128 << 10);

/// The kind of a cell.
///
/// ```
/// use siltstone::Kind;
/// assert_eq!(Kind::from_u8(Kind::Value as u8), Some(Kind::Value));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum Kind {
    /// Deletes the older cells of its key whose timestamp is at most its own.
    Tombstone = 0,
    /// A value.
    Value = 1,
    /// A merge operand, combined with older cells of the same key and timestamp.
    Operand = 2,
    /// The remains of a value that the family's filter hides, after a compaction: no reader sees it, but
    /// among the versions that are kept it counts as the value did. Only in SSTables, and without a value.
    Hidden = 3,
}

impl Kind {
    /// The kind of that number.
    pub fn from_u8(n: u8) -> Option<Self> {
        match n {
            0 => Some(Kind::Tombstone),
            1 => Some(Kind::Value),
            2 => Some(Kind::Operand),
            3 => Some(Kind::Hidden),
            _ => None,
        }
    }
}

/// A cell borrowed from memory or from a block.
///
/// ```
/// use siltstone::{CellRef, Kind, SeqNo, Timestamp};
/// let (key, value) = (&b"k"[..], &b"v"[..]);
/// let cell = CellRef { key, timestamp: Timestamp(2), seq: SeqNo(7), kind: Kind::Value, written: 0, value };
/// let older = CellRef { timestamp: Timestamp(1), ..cell };
/// assert!(cell.order(&older).is_lt(), "newer versions come first");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CellRef<'a> {
    /// The user's key.
    pub key: &'a [u8],
    /// Zero in families with implicit timestamps.
    pub timestamp: Timestamp,
    /// Its sequence number.
    pub seq: SeqNo,
    /// Its kind.
    pub kind: Kind,
    /// Wall-clock microseconds of the write; only in families with a TTL and implicit timestamps, else zero.
    pub written: u64,
    /// The value; empty for tombstones and hidden versions.
    pub value: &'a [u8],
}

#[cfg(test)]
impl<'a> CellRef<'a> {
    /// A value without a timestamp.
    pub(crate) fn plain(key: &'a [u8], seq: u64, value: &'a [u8]) -> Self {
        let (timestamp, seq) = (Timestamp::ZERO, SeqNo(seq));
        Self { key, timestamp, seq, kind: Kind::Value, written: 0, value }
    }
}

impl CellRef<'_> {
    /// The order of cells everywhere: key ascending, timestamp descending, sequence number descending.
    pub fn order(&self, other: &CellRef<'_>) -> Ordering {
        self.key
            .cmp(other.key)
            .then_with(|| other.timestamp.cmp(&self.timestamp))
            .then_with(|| other.seq.cmp(&self.seq))
    }

    /// An owned copy.
    pub fn to_cell(&self) -> Cell {
        Cell {
            key: self.key.to_vec(),
            timestamp: self.timestamp,
            seq: self.seq,
            kind: self.kind,
            written: self.written,
            value: self.value.to_vec(),
        }
    }

    /// Wall-clock microseconds from which a TTL counts: the timestamp if explicit, else the time of writing.
    /// A cell written before its family had a TTL has no such time, and never expires.
    #[inline]
    pub(crate) fn born_us(&self, explicit: bool) -> u64 {
        born_us(explicit, self.timestamp, self.written)
    }

    /// Key and value bytes, as a user would count.
    pub fn user_bytes(&self) -> usize {
        self.key.len() + self.value.len()
    }
}

/// See [`CellRef::born_us`].
#[inline]
pub(crate) fn born_us(explicit: bool, timestamp: Timestamp, written: u64) -> u64 {
    match (explicit, written) {
        (true, _) => timestamp.0,
        (false, 0) => u64::MAX,
        (false, written) => written,
    }
}

/// An owned cell. See [`CellRef`] for the fields.
///
/// ```
/// use siltstone::{CellRef, Kind, SeqNo, Timestamp};
/// let (key, value) = (&b"k"[..], &b"v"[..]);
/// let cell = CellRef { key, timestamp: Timestamp(2), seq: SeqNo(7), kind: Kind::Value, written: 0, value };
/// let own = cell.to_cell();
/// assert_eq!(own.as_ref().value, cell.value);
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "the fields are those of CellRef")]
pub struct Cell {
    pub key: Vec<u8>,
    pub timestamp: Timestamp,
    pub seq: SeqNo,
    pub kind: Kind,
    pub written: u64,
    pub value: Vec<u8>,
}

impl Cell {
    /// Borrows it.
    pub fn as_ref(&self) -> CellRef<'_> {
        CellRef {
            key: &self.key,
            timestamp: self.timestamp,
            seq: self.seq,
            kind: self.kind,
            written: self.written,
            value: &self.value,
        }
    }
}
