//! Which versions of a key stay in a flat memtable (I4).
//!
//! A cell is dropped when at every read point that could show it, now or later, a newer cell *covers* it.
//! Read points are the registered snapshots, the visible sequence number, and everything after that. A cover
//! is
//!
//! * a tombstone of the key with the same or a later timestamp, or
//! * a range tombstone over the key and timestamp, of a tombstone over all earlier timestamps too, or
//! * a value of the same key and timestamp. It covers no tombstone, because that still hides cells of earlier
//!   timestamps in older sources, unless the tombstone's timestamp is the smallest.
//!
//! A merge operand covers nothing. The relation is transitive, so it does not matter that the cell that
//! covers may itself be dropped: what covers it covers both.

use crate::types::{Cover, Fragments, Kind, RangeTombstone, SeqNo, Timestamp};
use std::collections::BTreeSet;
use std::sync::Arc;

/// The readers that may still see old versions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Visibility<'s> {
    /// Whether the family keeps a number of versions. Then all cells of a key stay where a range of time of
    /// it was deleted, because the existence of deleted versions matters (`types/version_limit.rs`). A
    /// tombstone over all earlier timestamps also deletes what a version had pushed out with it.
    pub(crate) counts: bool,
    /// The sequence number that new readers see; read before the flattening.
    pub(crate) visible: SeqNo,
    /// Registered snapshots, ascending.
    pub(crate) snapshots: &'s [SeqNo],
}

impl Visibility<'_> {
    /// The tombstones without those that no reader needs.
    pub(super) fn reduced(&self, tombstones: impl IntoIterator<Item = RangeTombstone>) -> Arc<Fragments> {
        Arc::new(Fragments::reduced(tombstones, self.snapshots, self.visible))
    }
}

/// Decides which versions stay, key by key, each key's in order: timestamp, then sequence number, descending.
pub(crate) struct Judge {
    /// Whether versions are counted and there are range tombstones.
    careful: bool,
    /// Whether all cells of the present key stay.
    keeps_key: bool,
    visible: SeqNo,
    snapshots: Vec<SeqNo>,
    /// The present timestamp, and the oldest value or tombstone seen with it.
    timestamp: Timestamp,
    over_timestamp: Option<SeqNo>,
    /// Sequence numbers of the key's tombstones so far, whose timestamps are the same or later.
    tombstones: BTreeSet<SeqNo>,
    /// The range tombstones of the memtables, and those over the key.
    ranges: Arc<Fragments>,
    over_key: Vec<Cover>,
}

impl Judge {
    /// A judge of cells of memtables, of which some have range tombstones or none has.
    pub(crate) fn new(visibility: Visibility<'_>, has_ranges: bool) -> Self {
        let Visibility { counts, visible, snapshots } = visibility;
        debug_assert!(snapshots.is_sorted());
        Self {
            careful: counts && has_ranges,
            keeps_key: counts && has_ranges,
            visible,
            snapshots: snapshots.to_vec(),
            timestamp: Timestamp::ZERO,
            over_timestamp: None,
            tombstones: BTreeSet::new(),
            ranges: Arc::default(),
            over_key: Vec::new(),
        }
    }

    /// This judge, which also drops cells that these range tombstones cover; the tombstones stay.
    pub(crate) fn under(self, ranges: Arc<Fragments>) -> Self {
        Self { ranges, ..self }
    }

    /// Whether even the only cell of a key may be dropped.
    pub(crate) fn has_ranges(&self) -> bool {
        !self.ranges.is_empty()
    }

    /// The smallest read point that can show a cell written at `seq`.
    fn first_reader(&self, seq: SeqNo) -> SeqNo {
        let snapshot = self.snapshots.get(self.snapshots.partition_point(|&s| s < seq));
        let later = self.visible.max(seq);
        snapshot.map_or(later, |&s| s.min(later))
    }

    /// Begins a key: the next cells belong to it.
    pub(crate) fn next_key(&mut self, key: &[u8]) {
        self.over_timestamp = None;
        self.tombstones.clear();
        self.over_key.clear();
        if let Some(fragment) = self.ranges.find(key) {
            self.over_key.extend_from_slice(&fragment.covers);
        }
        let is_partly_deleted = || self.over_key.iter().any(|cover| cover.from > Timestamp::ZERO);
        self.keeps_key = self.careful && (self.ranges.is_empty() || is_partly_deleted());
    }

    /// Whether this cell, the next of its key, stays.
    pub(crate) fn keeps(&mut self, timestamp: Timestamp, seq: SeqNo, kind: Kind) -> bool {
        if self.keeps_key {
            return true;
        }
        if timestamp != self.timestamp {
            (self.timestamp, self.over_timestamp) = (timestamp, None);
        }
        let until = self.first_reader(seq);
        let by_timestamp = match kind {
            Kind::Tombstone if timestamp > Timestamp::ZERO => None,
            _ => self.over_timestamp,
        };
        // The oldest cover newer than the cell. Versions of one timestamp come newest first, so the last one
        // seen is the oldest.
        let by_tombstone = || self.tombstones.range(seq.next()..).next().copied();
        // A tombstone deletes all earlier timestamps too, so its cover must do that as well.
        let from = if kind == Kind::Tombstone { Timestamp::ZERO } else { timestamp };
        let by_range = |c: &Cover| c.from <= from && timestamp <= c.to && seq < c.seq && c.seq <= until;
        let covered = by_timestamp.is_some_and(|cover| cover <= until)
            || self.over_key.iter().any(by_range)
            || !self.tombstones.is_empty() && by_tombstone().is_some_and(|cover| cover <= until);
        if kind != Kind::Operand {
            self.over_timestamp = Some(seq);
        }
        if kind == Kind::Tombstone {
            self.tombstones.insert(seq);
        }
        !covered
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{KeyRange, RangeTombstone};

    /// Returns those that stay of cells like `v5@2` (value, sequence 5, timestamp 2), `t` tombstone, `o`
    /// operand.
    fn kept(cells: &str, visible: u64, snapshots: &[u64]) -> String {
        let snapshots: Vec<SeqNo> = snapshots.iter().map(|&s| SeqNo(s)).collect();
        let mut judge =
            Judge::new(Visibility { counts: false, visible: SeqNo(visible), snapshots: &snapshots }, false);
        let keeps = |cell: &&str| {
            let (seq, timestamp) = cell[1..].split_once('@').unwrap_or((&cell[1..], "0"));
            let kind = match &cell[..1] {
                "v" => Kind::Value,
                "t" => Kind::Tombstone,
                _ => Kind::Operand,
            };
            judge.keeps(Timestamp(timestamp.parse().unwrap()), SeqNo(seq.parse().unwrap()), kind)
        };
        cells.split(' ').filter(keeps).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn what_a_range_tombstone_covers_goes_but_not_a_delete_of_more_than_that() {
        let range = |from, to, seq| RangeTombstone {
            range: KeyRange::new("a", "m"),
            from: Timestamp(from),
            to: Timestamp(to),
            seq: SeqNo(seq),
        };
        let kept = |tombstone: RangeTombstone, key: &[u8], snapshots: &[SeqNo]| {
            let visibility = Visibility { counts: false, visible: SeqNo(20), snapshots };
            let mut judge = Judge::new(visibility, true).under(Arc::new(Fragments::new([tombstone])));
            judge.next_key(key);
            [(7, 9, Kind::Value), (5, 8, Kind::Tombstone), (3, 2, Kind::Operand)]
                .map(|(timestamp, seq, kind)| judge.keeps(Timestamp(timestamp), SeqNo(seq), kind))
        };
        let all = range(0, u64::MAX, 10);
        assert_eq!(kept(all.clone(), b"k", &[]), [false, false, false]);
        assert_eq!(kept(all.clone(), b"x", &[]), [true, true, false], "another key");
        assert_eq!(kept(all.clone(), b"k", &[SeqNo(9)]), [true, true, false], "a snapshot before it");
        assert_eq!(kept(all, b"k", &[SeqNo(4)]), [false, false, true], "one that sees the oldest alone");
        assert_eq!(kept(range(4, 9, 10), b"k", &[]), [false, true, false], "it deletes what is below 4, too");
        assert_eq!(kept(range(0, 9, 6), b"k", &[]), [true, true, false], "older than two");
    }

    #[test]
    fn where_versions_are_counted_only_a_delete_of_a_range_of_time_keeps_all_of_its_key() {
        let range = |start: &str, end: &str, from, seq| RangeTombstone {
            range: KeyRange::new(start, end),
            from: Timestamp(from),
            to: Timestamp::MAX,
            seq: SeqNo(seq),
        };
        let ranges = [range("a", "m", 0, 10), range("f", "h", 4, 12)];
        let visibility = Visibility { counts: true, visible: SeqNo(20), snapshots: &[] };
        let mut judge = Judge::new(visibility, true).under(Arc::new(Fragments::new(ranges)));
        let mut kept = |key: &[u8]| {
            judge.next_key(key);
            [(7, 11, Kind::Value), (5, 8, Kind::Value)]
                .map(|(timestamp, seq, kind)| judge.keeps(Timestamp(timestamp), SeqNo(seq), kind))
        };
        assert_eq!(kept(b"b"), [true, false], "a row that was deleted and written again");
        assert_eq!(kept(b"g"), [true, true], "versions that were deleted alone");
        assert_eq!(kept(b"i"), [true, false], "behind them");
    }

    #[test]
    fn stories_of_versions_kept_and_dropped() {
        let stories: &[(&str, &str, u64, &[u64], &str)] = &[
            ("only the newest visible version stays", "v9 v7 v5", 9, &[], "v9"),
            ("what is not visible yet covers nothing", "v9 v7 v5", 7, &[], "v9 v7"),
            ("one that nobody sees yet and all below", "v9 v7 v5", 4, &[], "v9 v7 v5"),
            ("a snapshot keeps the version it sees", "v9 v7 v5 v3", 9, &[6], "v9 v5"),
            ("two snapshots between two versions keep one", "v9 v5 v3", 9, &[6, 7], "v9 v5"),
            ("a snapshot at a version's own number sees it", "v9 v7 v5", 9, &[7], "v9 v7"),
            ("a snapshot before all keeps nothing", "v9 v7", 9, &[2], "v9"),
            ("a tombstone covers and stays", "t9 v7 v5", 9, &[], "t9"),
            ("a value covers an older tombstone without timestamps", "v9 t7 v5", 9, &[], "v9"),
            ("operands keep the value below them", "o9 o8 v7 v5", 9, &[], "o9 o8 v7"),
            ("a newer value covers operands", "v9 o8 o7 v5", 9, &[], "v9"),
            ("a tombstone covers operands", "o9 t8 o7 v5", 9, &[], "o9 t8"),
            ("a snapshot between operands keeps its base", "v9 o7 v5", 9, &[8], "v9 o7 v5"),
            ("other timestamps are other versions", "v5@3 v9@2 v7@1", 9, &[], "v5@3 v9@2 v7@1"),
            ("the same timestamp is shadowed", "v5@3 v9@2 v8@2 v7@1", 9, &[], "v5@3 v9@2 v7@1"),
            ("a tombstone covers smaller timestamps", "v5@3 t9@2 v8@2 v7@1", 9, &[], "v5@3 t9@2"),
            ("but only what is older", "t5@3 v9@2 v4@2", 9, &[], "t5@3 v9@2"),
            ("a snapshot before the tombstone", "t9@3 v5@2 v4@2", 9, &[6], "t9@3 v5@2"),
            ("the older tombstone is enough for a snapshot", "t9@3 t6@2 v5@1", 9, &[7], "t9@3 t6@2"),
            ("a tombstone with a timestamp outlives a value", "v9@3 t7@3 v5@2", 9, &[], "v9@3 t7@3"),
            ("but not a later tombstone", "t9@4 v8@3 t7@3", 9, &[], "t9@4"),
        ];
        for &(story, cells, visible, snapshots, expected) in stories {
            assert_eq!(kept(cells, visible, snapshots), expected, "{story}");
        }
    }
}
