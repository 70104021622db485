//! Keys and ranges of the writes of a shared database that are logged and not visible yet.
//!
//! A put into shared storage takes milliseconds. If a conditional write held the log stage until all before
//! it had landed, as one does where a sync is short, nobody could log anything meanwhile: one such write for
//! each put. So here each write notes what it touches. A conditional write that rests on none of that goes on
//! at once; one that does waits with the stage free, and is judged again.
//!
//! Costs O(log n) an operation, where n are in flight, and O(r) for each range deleted among them.

use crate::types::{KeyRange, StoreId};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;

/// See the page above. A write is known by its ticket.
#[derive(Default)]
pub(crate) struct InFlight {
    stores: BTreeMap<StoreId, Touched>,
    /// The touches to be forgotten, by ticket, oldest first.
    order: VecDeque<(u64, StoreId, Touch)>,
}

#[derive(Default)]
struct Touched {
    /// The newest write of each key.
    keys: BTreeMap<Vec<u8>, u64>,
    ranges: VecDeque<(u64, KeyRange)>,
}

enum Touch {
    Key(Vec<u8>),
    Range,
}

impl InFlight {
    /// Notes that a write touches a key; tickets ascend.
    pub(super) fn add_key(&mut self, ticket: u64, store: StoreId, key: &[u8]) {
        self.stores.entry(store).or_default().keys.insert(key.to_vec(), ticket);
        self.order.push_back((ticket, store, Touch::Key(key.to_vec())));
    }

    /// Notes that a write deletes a range.
    pub(super) fn add_range(&mut self, ticket: u64, store: StoreId, range: &KeyRange) {
        self.stores.entry(store).or_default().ranges.push_back((ticket, range.clone()));
        self.order.push_back((ticket, store, Touch::Range));
    }

    /// Forgets the writes before that ticket, which are visible or failed.
    pub(super) fn forget_before(&mut self, turn: u64) {
        while let Some((ticket, store, touch)) = self.order.pop_front_if(|(ticket, ..)| *ticket < turn) {
            let Some(touched) = self.stores.get_mut(&store) else { continue };
            match touch {
                Touch::Key(key) if touched.keys.get(&key) == Some(&ticket) => {
                    touched.keys.remove(&key);
                }
                Touch::Key(_) => {}
                Touch::Range => {
                    touched.ranges.pop_front();
                }
            }
            if touched.keys.is_empty() && touched.ranges.is_empty() {
                self.stores.remove(&store);
            }
        }
    }

    /// The newest write in flight that touches the key.
    pub(crate) fn newest_on(&self, store: StoreId, key: &[u8]) -> Option<u64> {
        let touched = self.stores.get(&store)?;
        let deletes = touched.ranges.iter().rev().find(|(_, range)| range.contains(key));
        touched.keys.get(key).copied().max(deletes.map(|(ticket, _)| *ticket))
    }

    /// The newest write in flight that touches a key of the range.
    pub(crate) fn newest_in(&self, store: StoreId, range: &KeyRange) -> Option<u64> {
        let touched = self.stores.get(&store)?;
        let end = range.end.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        let keys = (!range.is_empty())
            .then(|| touched.keys.range::<[u8], _>((Bound::Included(&range.start[..]), end)));
        let newest = keys.into_iter().flatten().map(|(_, ticket)| *ticket).max();
        let deletes = touched.ranges.iter().rev().find(|(_, deleted)| deleted.overlaps(range));
        newest.max(deletes.map(|(ticket, _)| *ticket))
    }
}

#[cfg(all(test, not(models)))]
mod tests {
    use super::*;

    const STORE: StoreId = StoreId(3);

    fn range(start: &str, end: &str) -> KeyRange {
        KeyRange { start: start.into(), end: Some(end.into()) }
    }

    #[test]
    fn the_newest_write_of_a_key_is_known_until_its_turn_is_over() {
        let mut all = InFlight::default();
        all.add_key(5, STORE, b"a");
        all.add_range(6, STORE, &range("b", "d"));
        all.add_key(7, STORE, b"a");
        all.add_key(8, StoreId(4), b"a");
        assert_eq!(all.newest_on(STORE, b"a"), Some(7));
        assert_eq!(all.newest_on(STORE, b"c"), Some(6));
        assert_eq!(all.newest_on(STORE, b"d"), None);
        assert_eq!(all.newest_in(STORE, &range("", "b")), Some(7));
        assert_eq!(all.newest_in(STORE, &range("c", "z")), Some(6));
        assert_eq!(all.newest_in(STORE, &range("d", "z")), None);
        assert_eq!(all.newest_in(STORE, &range("z", "a")), None);
        assert_eq!(all.newest_in(STORE, &KeyRange { start: vec![], end: None }), Some(7));
        all.forget_before(6);
        assert_eq!(all.newest_on(STORE, b"a"), Some(7), "written again since");
        all.forget_before(8);
        assert_eq!((all.newest_on(STORE, b"a"), all.newest_on(STORE, b"c")), (None, None));
        assert_eq!(all.newest_on(StoreId(4), b"a"), Some(8));
        all.forget_before(9);
        assert!(all.stores.is_empty() && all.order.is_empty());
    }
}
