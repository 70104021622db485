//! The range tombstones of an active segment. They are rare, and a reader wants them as fragments; so they are
//! collected in a list and cut into fragments by the first reader that comes after new ones.

use crate::sync::{ArcSwap, AtomicUsize, Mutex, Ordering};
use crate::types::{Fragments, RangeTombstone};
use std::sync::Arc;

pub(super) struct Ranges {
    list: Mutex<Vec<RangeTombstone>>,
    /// Length of `list`, so that readers of a segment without range tombstones touch nothing else.
    len: AtomicUsize,
    prepared: ArcSwap<Prepared>,
}

struct Prepared {
    /// How many of the list are in it.
    len: usize,
    fragments: Arc<Fragments>,
}

impl Ranges {
    pub(super) fn new() -> Self {
        let empty = Prepared { len: 0, fragments: Arc::default() };
        Self { list: Mutex::default(), len: AtomicUsize::new(0), prepared: ArcSwap::from_pointee(empty) }
    }

    pub(super) fn add(&self, tombstone: RangeTombstone) {
        let mut list = self.list.lock();
        list.push(tombstone);
        self.len.store(list.len(), Ordering::Release);
    }

    pub(super) fn len(&self) -> usize {
        self.len.load(Ordering::Acquire)
    }

    /// All of them that were added before this call.
    pub(super) fn fragments(&self) -> Arc<Fragments> {
        let len = self.len();
        let prepared = self.prepared.load();
        if prepared.len >= len {
            return prepared.fragments.clone();
        }
        let list = self.list.lock();
        let prepared = self.prepared.load();
        if prepared.len == list.len() {
            return prepared.fragments.clone();
        }
        let fragments = Arc::new(Fragments::new(list.iter().cloned()));
        self.prepared.store(Arc::new(Prepared { len: list.len(), fragments: fragments.clone() }));
        fragments
    }

    /// About how much memory they take.
    pub(super) fn bytes(&self) -> usize {
        match self.len() {
            0 => 0,
            len => {
                let list = self.list.lock();
                let keys =
                    |t: &RangeTombstone| t.range.start.len() + t.range.end.as_ref().map_or(0, Vec::len);
                // Once in the list, about twice in the fragments.
                3 * (len * size_of::<RangeTombstone>() + list.iter().map(keys).sum::<usize>())
            }
        }
    }
}
