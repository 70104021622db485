//! Ranges in which scans found that all keys are deleted.
//!
//! Rows that are deleted one by one may lie in SSTables for long, each under a tombstone of its own. A scan
//! has to go through all of them once. Its finding stays true whatever is written and compacted later: a
//! reader at its read point or later sees nothing of what was written to these keys before that. So the range
//! is noted, like a range tombstone, and later scans skip its keys at once (`db/tombstone_skip.rs`).
//!
//! The ranges are known in memory only. A split or join changes which keys a store has, so they are
//! forgotten.

use crate::sync::ArcSwap;
use crate::types::{KeyRange, RangeTombstone, SeqNo, Timestamp};
use std::sync::Arc;

/// Ranges that are remembered: a store may hold several queues.
const RANGES: usize = 16;

pub(crate) struct Emptied(ArcSwap<EmptyRanges>);

/// The ranges found so far, of a store that has the keys `bounds`.
#[derive(Default)]
pub(crate) struct EmptyRanges {
    bounds: Arc<KeyRange>,
    /// Newest first.
    ranges: Vec<RangeTombstone>,
}

impl Emptied {
    pub(crate) fn new() -> Self {
        Self(ArcSwap::from_pointee(EmptyRanges::default()))
    }

    /// The ranges found so far.
    pub(crate) fn found(&self) -> Arc<EmptyRanges> {
        self.0.load_full()
    }

    /// Notes that a scan at that read point found nothing left in the range. If two threads do so at once,
    /// one range may be forgotten.
    pub(crate) fn note(&self, bounds: &Arc<KeyRange>, range: KeyRange, read: SeqNo) {
        let before = self.found();
        let known = if Arc::ptr_eq(&before.bounds, bounds) { &before.ranges[..] } else { &[] };
        let others = known.iter().filter(|t| t.seq > read || !range.covers(&t.range)).cloned();
        let (from, to) = (Timestamp::ZERO, Timestamp::MAX);
        let new = RangeTombstone { range: range.clone(), from, to, seq: read };
        let ranges = std::iter::once(new).chain(others).take(RANGES).collect();
        self.0.store(Arc::new(EmptyRanges { bounds: bounds.clone(), ranges }));
    }
}

impl EmptyRanges {
    /// The newest range found that has the key and counts at read point `read`, if the store still has the
    /// keys `bounds`.
    pub(crate) fn over(&self, bounds: &Arc<KeyRange>, key: &[u8], read: SeqNo) -> Option<&RangeTombstone> {
        let counts = |t: &&RangeTombstone| t.seq <= read && t.range.contains(key);
        let known = self.ranges.iter().filter(|_| Arc::ptr_eq(&self.bounds, bounds));
        known.filter(counts).max_by_key(|t| t.seq)
    }
}

#[cfg(all(test, not(models)))]
mod tests {
    use super::*;

    #[test]
    fn what_was_found_counts_for_readers_there_or_later_as_long_as_the_store_has_the_same_keys() {
        let (emptied, bounds) = (Emptied::new(), Arc::new(KeyRange::all()));
        emptied.note(&bounds, KeyRange::new("b", "d"), SeqNo(5));
        emptied.note(&bounds, KeyRange::new("m", "p"), SeqNo(6));
        let over = |bounds: &Arc<KeyRange>, key: &str, read| {
            emptied.found().over(bounds, key.as_bytes(), SeqNo(read)).map(|t| t.seq.0)
        };
        assert_eq!(over(&bounds, "c", 5), Some(5));
        assert_eq!(over(&bounds, "c", 4), None, "who reads before that");
        assert_eq!(over(&bounds, "d", 9), None);
        emptied.note(&bounds, KeyRange::new("a", "f"), SeqNo(9));
        assert_eq!((over(&bounds, "c", 9), over(&bounds, "n", 9)), (Some(9), Some(6)));
        assert_eq!(over(&Arc::new(KeyRange::all()), "c", 9), None, "a split came between");
        (0..100)
            .for_each(|n| emptied.note(&bounds, KeyRange::new(format!("x{n}"), format!("x{n}y")), SeqNo(10)));
        assert_eq!(emptied.found().ranges.len(), RANGES);
    }
}
