//! Nodes of the active memtable's index: fifteen entries and the word that publishes them.
//!
//! An entry is eight bytes of key (after the `skip` bytes that all keys of the node share) and the place of a
//! cell that has the whole key. Entries are filled in the order of arrival and are never moved or removed;
//! the *order word* has their count in its low four bits and above them the entries' numbers in key order,
//! four bits each. So one release store of the order word publishes an insert, and a reader that loaded the
//! word has an immutable snapshot of the node.
//!
//! A node of level 0 is a leaf. Its places are heads of version chains and change when a newer version comes.
//! On higher levels an entry is a separator: its key is the first of the child at its right; keys never leave
//! the index, so a separator is always the key of some entry below.
#![expect(unsafe_code, reason = "an inner node is reached through the header it begins with")]

use super::sync::{AtomicPtr, AtomicU32, AtomicU64, Ordering};
use crate::types::prefix64;

/// Entries of a node: as many as the order word can number. Fewer under a model checker, to reach splits
/// soon.
#[cfg(not(models))]
pub(super) const ENTRIES: usize = 15;
#[cfg(models)]
pub(super) const ENTRIES: usize = 3;

/// Resolves places to keys.
pub(super) trait Keys {
    /// The key of the cell at a place.
    ///
    /// # Safety
    /// The place stands in an index over these cells.
    unsafe fn key(&self, place: u32) -> &[u8];
}

/// The eight bytes of a key that a node's entry has.
#[inline]
pub(super) fn prefix_after(key: &[u8], skip: usize) -> u64 {
    // Every key searched for here is in the node's range, so it has the shared prefix.
    debug_assert!(skip <= key.len());
    prefix64(key.get(skip..).unwrap_or_default())
}

/// The state of a node at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Order(u64);

impl Order {
    /// The order of `len` entries that are already in key order.
    fn sorted(len: usize) -> Self {
        (0..len)
            .rev()
            .fold(Order(len as u64), |order, entry| Order(order.0 | (entry as u64) << (4 + 4 * entry)))
    }

    #[inline]
    pub(super) fn len(self) -> usize {
        (self.0 & 15) as usize
    }

    /// The entry that is `rank`-th in key order.
    #[inline]
    pub(super) fn entry(self, rank: usize) -> usize {
        (self.0 >> (4 + 4 * rank) & 15) as usize
    }

    /// The order with the next free entry at `rank`.
    #[inline]
    fn with_next_at(self, rank: usize) -> Self {
        let below = (1u64 << (4 + 4 * rank)) - 1;
        let entry = (self.0 & 15) << (4 + 4 * rank);
        // Whatever the shift moves in at `rank` is zero, and the count does not carry: it is at most 14
        // before.
        Order(((self.0 & below) | entry | (self.0 & !below) << 4) + 1)
    }
}

/// The common part of all nodes, three cache lines; the whole of a leaf.
#[repr(C, align(64))]
pub(super) struct Node {
    order: AtomicU64,
    prefixes: [AtomicU64; ENTRIES],
    level: u16,
    /// Length of the prefix that all keys of this node's range share and that its entries leave out.
    skip: u16,
    places: [AtomicU32; ENTRIES],
}

/// A node of a level above zero: the child left of all separators, then each separator's right child.
#[repr(C, align(64))]
pub(super) struct Inner {
    node: Node,
    children: [AtomicPtr<Node>; ENTRIES + 1],
}

#[cfg(not(models))]
const _: () = assert!(size_of::<Node>() == 192 && size_of::<Inner>() == 320);

/// An entry outside of a node: prefix and place.
pub(super) type Entry = (u64, u32);

impl Node {
    /// A node of sorted entries.
    pub(super) fn new(level: u16, skip: u16, entries: &[Entry]) -> Self {
        let entry = |i: usize| entries.get(i).copied().unwrap_or((0, 0));
        Node {
            order: AtomicU64::new(Order::sorted(entries.len()).0),
            prefixes: std::array::from_fn(|i| AtomicU64::new(entry(i).0)),
            level,
            skip,
            places: std::array::from_fn(|i| AtomicU32::new(entry(i).1)),
        }
    }

    #[inline]
    pub(super) fn order(&self) -> Order {
        Order(self.order.load(Ordering::Acquire))
    }

    #[inline]
    pub(super) fn level(&self) -> u16 {
        self.level
    }

    #[inline]
    pub(super) fn skip(&self) -> u16 {
        self.skip
    }

    /// The entry's place: in a leaf the newest version published so far.
    #[inline]
    pub(super) fn place(&self, entry: usize) -> u32 {
        self.places[entry].load(Ordering::Acquire)
    }

    #[inline]
    pub(super) fn place_link(&self, entry: usize) -> &AtomicU32 {
        &self.places[entry]
    }

    /// The sorted entries.
    pub(super) fn entries(&self, order: Order) -> impl Iterator<Item = Entry> + '_ {
        (0..order.len()).map(move |rank| {
            let entry = order.entry(rank);
            (self.prefixes[entry].load(Ordering::Relaxed), self.place(entry))
        })
    }

    /// The number of entries, in that order, with a smaller key, and whether the next one has this very key.
    #[inline]
    pub(super) fn search(&self, order: Order, key: &[u8], keys: &impl Keys) -> (usize, bool) {
        let prefix = prefix_after(key, self.skip as usize);
        // Entries in order of arrival: no branch depends on a comparison, so none is mispredicted.
        let entries = &self.prefixes[..order.len()];
        let mut low: usize = entries.iter().map(|p| (p.load(Ordering::Relaxed) < prefix) as usize).sum();
        let mut high = low;
        while high < order.len() && self.prefixes[order.entry(high)].load(Ordering::Relaxed) == prefix {
            high += 1;
        }
        while low < high {
            let middle = (low + high) / 2;
            // SAFETY: the place stands in this index.
            let other = unsafe { keys.key(self.place(order.entry(middle))) };
            match other.cmp(key) {
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Equal => return (middle, true),
                std::cmp::Ordering::Greater => high = middle,
            }
        }
        (low, false)
    }

    /// Publishes a new entry at `rank`. The node must have room; only for the one writer.
    #[inline]
    pub(super) fn insert(&self, rank: usize, prefix: u64, place: u32) {
        let order = self.order();
        let free = order.len();
        self.prefixes[free].store(prefix, Ordering::Relaxed);
        self.places[free].store(place, Ordering::Relaxed);
        self.order.store(order.with_next_at(rank).0, Ordering::Release);
    }

    /// The inner node whose header this is; `None` for a leaf.
    ///
    /// # Safety
    /// `node` points to a live node with access to all of its allocation.
    #[inline]
    pub(super) unsafe fn inner<'a>(node: *const Node) -> Option<&'a Inner> {
        // SAFETY: nodes of a level above zero are always the header of an `Inner`, its first field in C
        // layout.
        unsafe { if (*node).level == 0 { None } else { Some(&*node.cast::<Inner>()) } }
    }
}

impl Inner {
    /// An inner node of sorted separators and one more child.
    pub(super) fn new(level: u16, skip: u16, separators: &[Entry], children: &[*mut Node]) -> Self {
        debug_assert!(level > 0 && separators.len() + 1 == children.len());
        let child = |i: usize| children.get(i).copied().unwrap_or(std::ptr::null_mut());
        Inner {
            node: Node::new(level, skip, separators),
            children: std::array::from_fn(|i| AtomicPtr::new(child(i))),
        }
    }

    #[inline]
    pub(super) fn node(&self) -> &Node {
        &self.node
    }

    /// The child with the keys from separator `rank - 1` to separator `rank`.
    #[inline]
    pub(super) fn child(&self, order: Order, rank: usize) -> &AtomicPtr<Node> {
        match rank {
            0 => &self.children[0],
            _ => &self.children[order.entry(rank - 1) + 1],
        }
    }

    /// Publishes a separator at `rank` with the child at its right. The node must have room; only for the
    /// writer.
    pub(super) fn insert(&self, rank: usize, (prefix, place): Entry, right: *mut Node) {
        self.children[self.node.order().len() + 1].store(right, Ordering::Relaxed);
        self.node.insert(rank, prefix, place);
    }
}

#[cfg(all(test, not(models)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_order_word_is_a_list_with_inserts(ranks in prop::collection::vec(0usize..15, 0..15)) {
            let (mut order, mut list) = (Order::sorted(0), Vec::new());
            for (entry, rank) in ranks.into_iter().enumerate() {
                let rank = rank.min(list.len());
                list.insert(rank, entry);
                order = order.with_next_at(rank);
            }
            prop_assert_eq!(order.len(), list.len());
            prop_assert_eq!((0..list.len()).map(|rank| order.entry(rank)).collect::<Vec<_>>(), list);
        }
    }
}
