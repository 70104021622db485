//! The sorted index of an active memtable: a B+-tree with one writer and readers that never wait.
//!
//! *Growing.* An insert into a node publishes one entry (see `node`). A full node is never changed: it is
//! replaced by two copies of its halves, L and R. First the parent gets the new separator with R at its right
//! (one store of its order word), then its pointer to the old node is changed to L. Inner nodes are split on
//! the way down, so that a parent always has room. Nodes are freed with the whole tree only.
//!
//! *Why a reader finds everything that was inserted before it began.* Call a node complete for a moment if it
//! has, or leads to, all keys of its range inserted before that moment. A node in the tree is complete for
//! now; a replaced one stays complete for the moment of its replacement, and readers that can still reach it
//! began before that. The one place where a reader could mix two moments is an inner node being changed: with
//! the order word from before the separator and the pointer from after it, it would look for a key of R in L.
//! So the order word is loaded again after the pointer, and if it changed the node is searched again. The
//! writer changes the word first, so a reader that got the pointer to L sees it changed.
//!
//! *No links between leaves.* A walk that reaches the end of a leaf descends again to the separator that
//! bounded it on its way down (`Tree::after`, `Tree::before`): some 30 ns every ten keys, and no pointer of a
//! neighbour to keep right.
//!
//! *Shared prefixes.* When two neighbours in a full node have the same eight bytes, its successors leave out
//! what both bounds of their range have in common, so that keys with a long common beginning (zero-padded
//! numbers, paths) are still told apart inside the node. Only nodes at the edges of the tree, without a
//! bound, compare whole keys then.
#![expect(unsafe_code, reason = "nodes are shared by raw pointers; who may write is a contract")]

use super::arena::{NOWHERE, Nodes, Sizes};
use super::chunk_pool::Spares;
use super::node::{ENTRIES, Entry, Inner, Keys, Node, Order, prefix_after};
use super::prefetch::prefetch;
use super::sync::{AtomicPtr, AtomicU32, Ordering};
use crate::types::common_prefix;
use std::cell::UnsafeCell;
use std::sync::Arc;

const HALF: usize = ENTRIES.div_ceil(2);

/// The B+-tree over an active memtable's keys; see the page above.
pub(super) struct Tree {
    root: AtomicPtr<Node>,
    nodes: UnsafeCell<Nodes>,
}

// SAFETY: nodes are atomics or constant after publication; `nodes` is touched by the one writer only
// (contract of `find_or_insert`).
unsafe impl Send for Tree {}
// SAFETY: as above.
unsafe impl Sync for Tree {}

/// The target of a descent.
#[derive(Clone, Copy)]
pub(super) enum To<'k> {
    /// The leaf of the key, whether it is in the index or not.
    Key(&'k [u8]),
    /// The leaf with the last key before this one.
    Before(&'k [u8]),
    First,
    Last,
}

/// A snapshot of a leaf: its entries at one moment and the bounds of its range.
#[derive(Clone, Copy)]
pub(super) struct Leaf<'t> {
    node: &'t Node,
    order: Order,
    /// Place of the first key of the range, or [`NOWHERE`] in the first leaf.
    low: u32,
    /// Place of the first key after the range, or [`NOWHERE`] in the last leaf.
    high: u32,
}

impl Leaf<'_> {
    pub(super) fn len(&self) -> usize {
        self.order.len()
    }

    /// The head of the version chain of the `rank`-th key.
    #[inline]
    pub(super) fn head(&self, rank: usize) -> u32 {
        self.node.place(self.order.entry(rank))
    }

    /// The number of its keys that are smaller, and whether the next one is this key.
    #[inline]
    pub(super) fn search(&self, key: &[u8], keys: &impl Keys) -> (usize, bool) {
        self.node.search(self.order, key, keys)
    }
}

/// The result of the writer's search.
pub(super) enum Found<'t> {
    /// The key exists; this is the head of its chain.
    Key(&'t AtomicU32),
    /// The key did not exist and was inserted.
    Inserted,
}

/// The bounds of a node's range, as places of keys.
#[derive(Clone, Copy)]
struct Bounds {
    low: u32,
    high: u32,
}

impl Tree {
    pub(super) fn new(sizes: Sizes, spares: Option<Arc<Spares>>) -> Self {
        let nodes = UnsafeCell::new(Nodes::new(sizes, spares));
        Self { root: AtomicPtr::new(std::ptr::null_mut()), nodes }
    }

    /// Prefetches the root.
    #[inline]
    pub(super) fn prefetch_root(&self) {
        if cfg!(models) {
            return;
        }
        prefetch(self.root.load(Ordering::Relaxed).cast_const().cast(), size_of::<Node>());
    }

    /// Prefetches the leaf that a key belongs to. If that has changed when it is needed, this was useless but
    /// harmless.
    pub(super) fn prefetch_leaf(&self, key: &[u8], keys: &impl Keys) {
        let mut node: *const Node = self.root.load(Ordering::Acquire);
        // Models would have more accesses for no benefit.
        if node.is_null() || cfg!(models) {
            return;
        }
        // SAFETY: loaded from the tree, whose nodes live as long as it does.
        while let Some(inner) = unsafe { Node::inner(node) } {
            let order = inner.node().order();
            let (rank, equal) = inner.node().search(order, key, keys);
            node = inner.child(order, rank + usize::from(equal)).load(Ordering::Acquire);
            // After a concurrent split the key may not be in that node's range.
            if inner.node().order() != order {
                return;
            }
            if inner.node().level() == 1 {
                return prefetch(node.cast(), size_of::<Node>());
            }
        }
    }

    /// Descends to a leaf; `None` while the tree is empty.
    #[inline]
    pub(super) fn leaf(&self, to: To<'_>, keys: &impl Keys) -> Option<Leaf<'_>> {
        let mut node: *const Node = self.root.load(Ordering::Acquire);
        if node.is_null() {
            return None;
        }
        let (mut low, mut high) = (NOWHERE, NOWHERE);
        // SAFETY: loaded from the tree, whose nodes live as long as it does.
        while let Some(inner) = unsafe { Node::inner(node) } {
            loop {
                let order = inner.node().order();
                let rank = match to {
                    To::Key(key) => {
                        let (rank, equal) = inner.node().search(order, key, keys);
                        rank + equal as usize
                    }
                    To::Before(key) => inner.node().search(order, key, keys).0,
                    To::First => 0,
                    To::Last => order.len(),
                };
                let child = inner.child(order, rank).load(Ordering::Acquire);
                if inner.node().order() != order {
                    continue;
                }
                if rank > 0 {
                    low = inner.node().place(order.entry(rank - 1));
                }
                if rank < order.len() {
                    high = inner.node().place(order.entry(rank));
                }
                node = child;
                break;
            }
        }
        // SAFETY: as above.
        let node = unsafe { &*node };
        Some(Leaf { node, order: node.order(), low, high })
    }

    /// The first leaf, as a snapshot, with a key after all of `leaf`'s, and that key's rank.
    ///
    /// The bound alone does not suffice: where the parent has a separator already but still points to the
    /// node that is being split, the leaf also has keys at or after that separator, its bound.
    pub(super) fn after<'t>(&'t self, leaf: &Leaf<'t>, keys: &impl Keys) -> Option<(Leaf<'t>, usize)> {
        if leaf.high == NOWHERE {
            return None;
        }
        // SAFETY: places of this index.
        let (last, bound) = unsafe { (keys.key(leaf.head(leaf.len() - 1)), keys.key(leaf.high)) };
        if last < bound {
            // The bound is a key of the index, so its leaf has it.
            let next = self.leaf(To::Key(bound), keys)?;
            let rank = next.search(bound, keys).0;
            return Some((next, rank));
        }
        // After a descent to `last`, the bound is after it.
        let next = self.leaf(To::Key(last), keys)?;
        let rank = next.search(last, keys).0 + 1;
        if rank < next.len() { Some((next, rank)) } else { self.after(&next, keys) }
    }

    /// The last leaf, as a snapshot, with a key before all of `leaf`'s, and that key's rank.
    pub(super) fn before<'t>(&'t self, leaf: &Leaf<'t>, keys: &impl Keys) -> Option<(Leaf<'t>, usize)> {
        if leaf.low == NOWHERE {
            return None;
        }
        // SAFETY: a place of this index.
        let bound = unsafe { keys.key(leaf.low) };
        let before = self.leaf(To::Before(bound), keys)?;
        let rank = before.search(bound, keys).0.checked_sub(1)?;
        Some((before, rank))
    }

    /// Finds the key, or inserts it with the place that `make` gives.
    ///
    /// # Safety
    /// One caller at a time. `make` gives the place of a cell with this key that `keys` can resolve.
    pub(super) unsafe fn find_or_insert(
        &self,
        key: &[u8],
        keys: &impl Keys,
        make: impl FnOnce() -> u32,
    ) -> Found<'_> {
        // SAFETY: the only caller now.
        let nodes = unsafe { &mut *self.nodes.get() };
        let root = self.root.load(Ordering::Relaxed);
        if root.is_null() {
            let entry = (prefix_after(key, 0), make());
            self.root.store(publishable(nodes, Node::new(0, 0, &[entry])), Ordering::Release);
            return Found::Inserted;
        }
        // SAFETY: nodes of the tree are live, and no other writer changes them.
        unsafe { Insert { tree: self, nodes, keys, key }.run(root, make) }
    }

    /// Bytes of all nodes.
    ///
    /// # Safety
    /// As [`Tree::find_or_insert`].
    pub(super) unsafe fn taken(&self) -> usize {
        // SAFETY: the only caller now.
        unsafe { &*self.nodes.get() }.taken()
    }
}

/// A kind of node in the tree's memory. Both begin with a [`Node`], as an [`Inner`] is `repr(C)`.
trait InTree {}
impl InTree for Node {}
impl InTree for Inner {}

/// Puts it into memory of the tree.
fn publishable<N: InTree>(nodes: &mut Nodes, node: N) -> *mut Node {
    let room = nodes.room::<N>();
    // SAFETY: fresh, aligned room for it.
    unsafe { room.write(node) };
    // The pointer keeps access to the whole of an inner node, as `Node::inner` asks.
    room.cast()
}

/// A running insert.
struct Insert<'t, 'k, K> {
    tree: &'t Tree,
    nodes: &'t mut Nodes,
    keys: &'k K,
    key: &'k [u8],
}

/// An inner node on the way down, and the number of the child taken.
type Parent<'t> = (&'t Inner, usize);

impl<'t, K: Keys> Insert<'t, '_, K> {
    /// # Safety
    /// `root` is the tree's; no other writer.
    unsafe fn run(&mut self, root: *mut Node, make: impl FnOnce() -> u32) -> Found<'t> {
        const NONE: Bounds = Bounds { low: NOWHERE, high: NOWHERE };
        let (mut bounds, mut parent, mut at) = (NONE, None::<Parent<'t>>, root);
        // SAFETY: `at` is always a live node of the tree.
        while let Some(inner) = unsafe { Node::inner(at) } {
            let order = inner.node().order();
            if order.len() == ENTRIES {
                // Its halves have room: descend again, through one of them.
                self.split_inner(inner, order, parent, bounds);
                (bounds, parent, at) = (NONE, None, self.tree.root.load(Ordering::Relaxed));
                continue;
            }
            let (rank, equal) = inner.node().search(order, self.key, self.keys);
            let rank = rank + equal as usize;
            if rank > 0 {
                bounds.low = inner.node().place(order.entry(rank - 1));
            }
            if rank < order.len() {
                bounds.high = inner.node().place(order.entry(rank));
            }
            parent = Some((inner, rank));
            at = inner.child(order, rank).load(Ordering::Relaxed);
        }
        // SAFETY: as above; a leaf.
        let leaf: &'t Node = unsafe { &*at };
        let order = leaf.order();
        let (rank, found) = leaf.search(order, self.key, self.keys);
        if found {
            return Found::Key(leaf.place_link(order.entry(rank)));
        }
        let entry = (prefix_after(self.key, leaf.skip() as usize), make());
        if order.len() < ENTRIES {
            leaf.insert(rank, entry.0, entry.1);
        } else {
            self.split_leaf(leaf, order, rank, entry, parent, bounds);
        }
        Found::Inserted
    }

    /// Replaces a full leaf by two with one more entry.
    fn split_leaf(
        &mut self,
        leaf: &Node,
        order: Order,
        rank: usize,
        entry: Entry,
        parent: Option<Parent<'_>>,
        bounds: Bounds,
    ) {
        let mut entries = [(0, 0); ENTRIES + 1];
        entries.iter_mut().zip(leaf.entries(order)).for_each(|(to, from)| *to = from);
        entries.copy_within(rank..ENTRIES, rank + 1);
        entries[rank] = entry;
        // Ascending keys leave full leaves behind.
        let ascending = rank == ENTRIES && bounds.high == NOWHERE;
        let half = if ascending { ENTRIES } else { HALF };
        let middle = entries[half].1;
        let left = self.leaf_of(&entries[..half], leaf.skip(), Bounds { high: middle, ..bounds });
        let right = self.leaf_of(&entries[half..], leaf.skip(), Bounds { low: middle, ..bounds });
        self.replace(parent, 0, left, middle, right);
    }

    fn leaf_of(&mut self, entries: &[Entry], skip: u16, bounds: Bounds) -> *mut Node {
        let mut copy = [(0, 0); ENTRIES];
        let copy = &mut copy[..entries.len()];
        copy.copy_from_slice(entries);
        let skip = self.spread(copy, skip, bounds);
        publishable(self.nodes, Node::new(0, skip, copy))
    }

    /// Replaces a full inner node by two; its middle separator moves up.
    fn split_inner(&mut self, inner: &Inner, order: Order, parent: Option<Parent<'_>>, bounds: Bounds) {
        let mut separators = [(0, 0); ENTRIES];
        separators.iter_mut().zip(inner.node().entries(order)).for_each(|(to, from)| *to = from);
        let children: [*mut Node; ENTRIES + 1] =
            std::array::from_fn(|rank| inner.child(order, rank).load(Ordering::Relaxed));
        let (level, skip) = (inner.node().level(), inner.node().skip());
        let middle_at = ENTRIES / 2;
        let middle = separators[middle_at].1;
        let (left, right) = separators.split_at_mut(middle_at);
        let right = &mut right[1..];
        let skip_left = self.spread(left, skip, Bounds { high: middle, ..bounds });
        let skip_right = self.spread(right, skip, Bounds { low: middle, ..bounds });
        let (children_left, children_right) = children.split_at(middle_at + 1);
        let left = publishable(self.nodes, Inner::new(level, skip_left, left, children_left));
        let right = publishable(self.nodes, Inner::new(level, skip_right, right, children_right));
        self.replace(parent, level, left, middle, right);
    }

    /// Puts two nodes of `level` where the parent (or the root) points to the one that they replace.
    fn replace(
        &mut self,
        parent: Option<Parent<'_>>,
        level: u16,
        left: *mut Node,
        middle: u32,
        right: *mut Node,
    ) {
        // SAFETY: `middle` stands in a node of this index, or is the place just made.
        let middle_key = unsafe { self.keys.key(middle) };
        match parent {
            Some((inner, rank)) => {
                let node = inner.node();
                let old = inner.child(node.order(), rank);
                let separator = (prefix_after(middle_key, node.skip() as usize), middle);
                inner.insert(rank, separator, right);
                old.store(left, Ordering::Release);
            }
            None => {
                let separator = (prefix_after(middle_key, 0), middle);
                let root = Inner::new(level + 1, 0, &[separator], &[left, right]);
                let root = publishable(self.nodes, root);
                self.tree.root.store(root, Ordering::Release);
            }
        }
    }

    /// Makes neighbours with equal prefixes differ by leaving out what the bounds share; returns the skip.
    fn spread(&self, entries: &mut [Entry], skip: u16, bounds: Bounds) -> u16 {
        let tied = entries.windows(2).any(|pair| pair[0].0 == pair[1].0);
        if !tied || bounds.low == NOWHERE || bounds.high == NOWHERE {
            return skip;
        }
        // SAFETY: separators and entries of this index, or the place just made.
        let shared = unsafe { common_prefix(self.keys.key(bounds.low), self.keys.key(bounds.high)) };
        let shared = u16::try_from(shared).unwrap_or(u16::MAX);
        if shared <= skip {
            return skip;
        }
        for (prefix, place) in entries {
            // SAFETY: as above.
            *prefix = prefix_after(unsafe { self.keys.key(*place) }, shared as usize);
        }
        shared
    }
}
