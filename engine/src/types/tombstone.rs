//! Range tombstones, and the fragments they are searched by.
//!
//! A range tombstone deletes the cells of a key range that are older than it (by sequence number) and whose
//! timestamp lies in its bounds. Tombstones overlap freely; before they are searched they are cut at each
//! other's bounds into *fragments* that do not, each with the list of (sequence, timestamps) that cover it.

use super::ids::{SeqNo, Timestamp};
use super::key::KeyRange;
use super::time::TimeRange;

/// Deletes older cells of a range of keys.
///
/// ```
/// use siltstone::{KeyRange, RangeTombstone, SeqNo, Timestamp};
/// let range = KeyRange::prefix(b"user:");
/// let all = RangeTombstone { range, from: Timestamp::ZERO, to: Timestamp::MAX, seq: SeqNo(9) };
/// assert!(all.range.contains(b"user:ada"));
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RangeTombstone {
    /// The keys.
    pub range: KeyRange,
    /// Smallest timestamp deleted.
    pub from: Timestamp,
    /// Largest timestamp deleted.
    pub to: Timestamp,
    /// Deletes only cells with a smaller sequence number.
    pub seq: SeqNo,
}

/// What covers every key of one fragment: newest first.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Fragment {
    pub(crate) range: KeyRange,
    pub(crate) covers: Vec<Cover>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Cover {
    pub(crate) seq: SeqNo,
    pub(crate) from: Timestamp,
    pub(crate) to: Timestamp,
}

/// Range tombstones cut into sorted, disjoint fragments.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Fragments {
    list: Vec<Fragment>,
}

impl Fragments {
    /// Cuts the tombstones at each other's bounds. O(n log n + output).
    pub(crate) fn new(tombstones: impl IntoIterator<Item = RangeTombstone>) -> Self {
        let tombstones: Vec<_> = tombstones.into_iter().filter(|t| !t.range.is_empty()).collect();
        if tombstones.is_empty() {
            return Self::default();
        }
        let mut by_start: Vec<&RangeTombstone> = tombstones.iter().collect();
        by_start.sort_by(|a, b| a.range.start.cmp(&b.range.start));
        let mut bounds: Vec<&[u8]> = Vec::with_capacity(tombstones.len() * 2);
        for t in &tombstones {
            bounds.push(&t.range.start);
            bounds.extend(t.range.end.as_deref());
        }
        bounds.sort_unstable();
        bounds.dedup();
        let mut list = Vec::new();
        let mut active: Vec<&RangeTombstone> = Vec::new();
        let mut starting = by_start.into_iter().peekable();
        for (i, &bound) in bounds.iter().enumerate() {
            active.retain(|t| t.range.ends_after(bound));
            while let Some(t) = starting.next_if(|t| t.range.start.as_slice() == bound) {
                active.push(t);
            }
            if active.is_empty() {
                continue;
            }
            let mut covers: Vec<Cover> =
                active.iter().map(|t| Cover { seq: t.seq, from: t.from, to: t.to }).collect();
            covers.sort_unstable_by_key(|c| (std::cmp::Reverse(c.seq), c.from, c.to));
            covers.dedup();
            let end = bounds.get(i + 1).map(|end| end.to_vec());
            list.push(Fragment { range: KeyRange { start: bound.to_vec(), end }, covers });
        }
        Self { list }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Fragment> {
        self.list.iter()
    }

    /// Whether one of them deletes cells of those timestamps.
    pub(crate) fn speak_of(&self, times: TimeRange) -> bool {
        self.list
            .iter()
            .flat_map(|fragment| &fragment.covers)
            .any(|cover| times.overlaps(&(cover.from..=cover.to)))
    }

    /// The tombstones again, cut at `within`'s bounds.
    pub(crate) fn tombstones_within<'a>(
        &'a self,
        within: &'a KeyRange,
    ) -> impl Iterator<Item = RangeTombstone> + 'a {
        self.list.iter().filter(move |f| f.range.overlaps(within)).flat_map(move |f| {
            let range = f.range.intersect(within);
            f.covers.iter().map(move |c| RangeTombstone {
                range: range.clone(),
                from: c.from,
                to: c.to,
                seq: c.seq,
            })
        })
    }

    /// The fragment that holds `key`. O(log n).
    pub(crate) fn find(&self, key: &[u8]) -> Option<&Fragment> {
        let after = self.list.partition_point(|f| f.range.start.as_slice() <= key);
        let fragment = &self.list[after.checked_sub(1)?];
        fragment.range.ends_after(key).then_some(fragment)
    }

    /// The newest tombstone at or below `read` that deletes cells of `key` with this timestamp, if any: a cell
    /// with a smaller sequence number is deleted.
    pub(crate) fn newest_over(&self, key: &[u8], timestamp: Timestamp, read: SeqNo) -> Option<SeqNo> {
        self.find(key)?.newest_over(timestamp, read)
    }

    /// The smallest range that holds all fragments.
    pub(crate) fn bounds(&self) -> Option<KeyRange> {
        let (first, last) = (self.list.first()?, self.list.last()?);
        Some(KeyRange { start: first.range.start.clone(), end: last.range.end.clone() })
    }
}

impl Fragment {
    pub(crate) fn newest_over(&self, timestamp: Timestamp, read: SeqNo) -> Option<SeqNo> {
        self.covers.iter().find(|c| c.seq <= read && c.from <= timestamp && timestamp <= c.to).map(|c| c.seq)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tombstone(start: &str, end: &str, seq: u64) -> RangeTombstone {
        let range = KeyRange::new(start, end);
        RangeTombstone { range, from: Timestamp::ZERO, to: Timestamp::MAX, seq: SeqNo(seq) }
    }

    #[test]
    fn overlapping_tombstones_are_cut_at_each_others_bounds() {
        let fragments =
            Fragments::new([tombstone("b", "f", 5), tombstone("d", "h", 9), tombstone("x", "y", 1)]);
        let shown: Vec<String> = fragments
            .iter()
            .map(|f| format!("{}:{:?}", f.range, f.covers.iter().map(|c| c.seq.0).collect::<Vec<_>>()))
            .collect();
        assert_eq!(shown, ["[b, d):[5]", "[d, f):[9, 5]", "[f, h):[9]", "[x, y):[1]"]);
        assert_eq!(fragments.newest_over(b"e", Timestamp::ZERO, SeqNo::MAX), Some(SeqNo(9)));
        assert_eq!(fragments.newest_over(b"e", Timestamp::ZERO, SeqNo(8)), Some(SeqNo(5)));
        assert_eq!(fragments.newest_over(b"h", Timestamp::ZERO, SeqNo::MAX), None);
        assert_eq!(fragments.newest_over(b"a", Timestamp::ZERO, SeqNo::MAX), None);
    }

    #[test]
    fn a_tombstone_without_end_covers_every_later_key() {
        let mut open = tombstone("m", "", 3);
        open.range.end = None;
        let fragments = Fragments::new([open, tombstone("a", "p", 7)]);
        assert_eq!(fragments.newest_over(b"zzz", Timestamp(4), SeqNo::MAX), Some(SeqNo(3)));
        assert_eq!(fragments.newest_over(b"n", Timestamp(4), SeqNo::MAX), Some(SeqNo(7)));
    }

    #[test]
    fn timestamps_outside_the_bounds_are_not_deleted() {
        let mut t = tombstone("a", "b", 7);
        (t.from, t.to) = (Timestamp(10), Timestamp(20));
        let fragments = Fragments::new([t]);
        let covered = |ts| fragments.newest_over(b"a", Timestamp(ts), SeqNo::MAX).is_some();
        assert_eq!([9, 10, 20, 21].map(covered), [false, true, true, false]);
    }
}
