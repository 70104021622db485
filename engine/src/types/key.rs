//! Keys and ranges of keys. A range has an inclusive start and an exclusive, optional end; the exclusive end
//! just above a key `k` is `k` followed by a zero byte, so one kind of range serves SSTables, clips and
//! deletes.

use serde::{Deserialize, Serialize};
use std::cmp::Ordering;
use std::fmt;
use std::ops::{Bound, RangeBounds};

/// Bytes of the longest key: 64 KiB. (The end of a range may be the one just above it.)
pub const KEY_BYTES_MAX: usize = 64 << 10;

/// A half-open range of keys.
///
/// ```
/// let range = siltstone::KeyRange::prefix(b"user:");
/// assert!(range.contains(b"user:ada") && !range.contains(b"users"));
/// ```
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
pub struct KeyRange {
    /// First key inside; empty for the very first.
    pub start: Vec<u8>,
    /// First key behind the range; `None` when it has no end.
    pub end: Option<Vec<u8>>,
}

/// Lets a range be passed to any call that takes Rust ranges.
impl RangeBounds<Vec<u8>> for KeyRange {
    fn start_bound(&self) -> Bound<&Vec<u8>> {
        Bound::Included(&self.start)
    }

    fn end_bound(&self) -> Bound<&Vec<u8>> {
        self.end.as_ref().map_or(Bound::Unbounded, Bound::Excluded)
    }
}

impl KeyRange {
    /// Every key.
    pub fn all() -> Self {
        Self::default()
    }

    /// The range from `start` (inclusive) to `end` (exclusive).
    pub fn new(start: impl Into<Vec<u8>>, end: impl Into<Vec<u8>>) -> Self {
        Self { start: start.into(), end: Some(end.into()) }
    }

    /// The range of any Rust range over byte strings.
    pub fn from_bounds<K: AsRef<[u8]>>(range: &impl RangeBounds<K>) -> Self {
        let start = match range.start_bound() {
            Bound::Included(k) => k.as_ref().to_vec(),
            Bound::Excluded(k) => successor(k.as_ref()),
            Bound::Unbounded => Vec::new(),
        };
        let end = match range.end_bound() {
            Bound::Included(k) => Some(successor(k.as_ref())),
            Bound::Excluded(k) => Some(k.as_ref().to_vec()),
            Bound::Unbounded => None,
        };
        Self { start, end }
    }

    /// The range of all keys that begin with `prefix`.
    pub fn prefix(prefix: &[u8]) -> Self {
        let mut end = prefix.to_vec();
        while let Some(last) = end.pop() {
            if last < 0xff {
                end.push(last + 1);
                return Self { start: prefix.to_vec(), end: Some(end) };
            }
        }
        Self { start: prefix.to_vec(), end: None }
    }

    /// Whether it has no key at all.
    pub fn is_empty(&self) -> bool {
        self.end.as_ref().is_some_and(|end| *end <= self.start)
    }

    /// Whether it has the key.
    pub fn contains(&self, key: &[u8]) -> bool {
        key >= self.start.as_slice() && self.ends_after(key)
    }

    /// Whether the key lies before the end.
    pub fn ends_after(&self, key: &[u8]) -> bool {
        self.end.as_ref().is_none_or(|end| key < end.as_slice())
    }

    /// Whether one begins where the other ends.
    pub(crate) fn adjoins(&self, other: &KeyRange) -> bool {
        let ends_at = |a: &KeyRange, b: &KeyRange| a.end.as_ref() == Some(&b.start);
        ends_at(self, other) || ends_at(other, self)
    }

    /// Whether some key lies in both.
    pub fn overlaps(&self, other: &KeyRange) -> bool {
        !self.is_empty()
            && !other.is_empty()
            && self.ends_after(&other.start)
            && other.ends_after(&self.start)
    }

    /// The keys that lie in both (possibly an empty range).
    #[must_use]
    pub fn intersect(&self, other: &KeyRange) -> KeyRange {
        let start = self.start.as_slice().max(other.start.as_slice()).to_vec();
        let end = match cmp_end(self.end.as_deref(), other.end.as_deref()) {
            Ordering::Greater => other.end.clone(),
            _ => self.end.clone(),
        };
        KeyRange { start, end }
    }

    /// The smallest range that holds both.
    #[must_use]
    pub fn cover(&self, other: &KeyRange) -> KeyRange {
        let start = self.start.as_slice().min(other.start.as_slice()).to_vec();
        let end = match cmp_end(self.end.as_deref(), other.end.as_deref()) {
            Ordering::Less => other.end.clone(),
            _ => self.end.clone(),
        };
        KeyRange { start, end }
    }

    /// Whether every key of `other` lies inside.
    pub fn covers(&self, other: &KeyRange) -> bool {
        other.is_empty()
            || (self.start <= other.start
                && cmp_end(self.end.as_deref(), other.end.as_deref()) != Ordering::Less)
    }
}

/// Orders exclusive ends; `None` is after every key.
fn cmp_end(a: Option<&[u8]>, b: Option<&[u8]>) -> Ordering {
    a.is_none().cmp(&b.is_none()).then_with(|| a.cmp(&b))
}

impl fmt::Display for KeyRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}, ", self.start.escape_ascii())?;
        match &self.end {
            Some(end) => write!(f, "{})", end.escape_ascii()),
            None => f.write_str("end)"),
        }
    }
}

/// The first key after `key`.
pub(crate) fn successor(key: &[u8]) -> Vec<u8> {
    let mut next = Vec::with_capacity(key.len() + 1);
    next.extend_from_slice(key);
    next.push(0);
    next
}

/// The first eight bytes of the key as a big-endian number, padded with zeros: ordered as keys are, except
/// that equal numbers decide nothing.
#[inline]
pub(crate) fn prefix64(key: &[u8]) -> u64 {
    match key.first_chunk::<8>() {
        Some(bytes) => u64::from_be_bytes(*bytes),
        None => {
            let mut bytes = [0; 8];
            bytes[..key.len()].copy_from_slice(key);
            u64::from_be_bytes(bytes)
        }
    }
}

/// Length of the common prefix.
#[inline]
pub(crate) fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    let n = a.len().min(b.len());
    let mut i = 0;
    while i + 8 <= n {
        let x = u64::from_le_bytes(a[i..i + 8].try_into().expect("eight bytes"));
        let y = u64::from_le_bytes(b[i..i + 8].try_into().expect("eight bytes"));
        if x != y {
            return i + ((x ^ y).trailing_zeros() / 8) as usize;
        }
        i += 8;
    }
    while i < n && a[i] == b[i] {
        i += 1;
    }
    i
}

/// The hash of a key that filters and sketches use: stable across releases, part of the format.
#[inline]
pub(crate) fn hash(key: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64(key)
}
