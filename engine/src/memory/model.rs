//! The index's publication protocol under loom, which tries the interleavings and the reorderings that the memory
//! model allows. Nodes hold three entries here, so that a few keys split leaves, inner nodes and the root.
//!
//! `RUSTFLAGS="--cfg loom" LOOM_MAX_PREEMPTIONS=2 LOOM_MAX_BRANCHES=10000 cargo test --release -p siltstone memory::model`
#![expect(unsafe_code, reason = "drives the tree by its contract: one writer")]

use super::node::Keys;
use super::sync::as_writer;
use super::tree::{Found, To, Tree};
use loom::sync::Arc;

/// Key number n is n in big-endian; its place is n.
struct Numbers(Vec<[u8; 8]>);

impl Keys for Numbers {
    unsafe fn key(&self, place: u32) -> &[u8] {
        &self.0[place as usize]
    }
}

fn insert(tree: &Tree, keys: &Numbers, n: u32) {
    // SAFETY: one thread inserts at a time in all tests; the place's key is the key looked for.
    let found = unsafe { tree.find_or_insert(&keys.0[n as usize], keys, || n) };
    assert!(matches!(found, Found::Inserted));
}

fn forward(tree: &Tree, keys: &Numbers) -> Vec<u32> {
    let mut found = Vec::new();
    let mut at = tree.leaf(To::First, keys).map(|leaf| (leaf, 0));
    while let Some((leaf, rank)) = at {
        found.extend((rank..leaf.len()).map(|rank| leaf.head(rank)));
        at = tree.after(&leaf, keys);
    }
    found
}

fn backward(tree: &Tree, keys: &Numbers) -> Vec<u32> {
    let mut found = Vec::new();
    let mut at = tree.leaf(To::Last, keys).map(|leaf| (leaf, leaf.len() - 1));
    while let Some((leaf, rank)) = at {
        found.extend((0..=rank).rev().map(|rank| leaf.head(rank)));
        at = tree.before(&leaf, keys);
    }
    found.reverse();
    found
}

/// A reader beside a writer that adds `new` to `old` finds all of `old`, each once and in order.
fn check(old: &'static [u32], new: &'static [u32], read: fn(&Tree, &Numbers) -> Vec<u32>) {
    loom::model(move || {
        let keys = Arc::new(Numbers((0..64u64).map(u64::to_be_bytes).collect()));
        let tree = Arc::new(Tree::new(8 << 10));
        old.iter().for_each(|&n| insert(&tree, &keys, n));
        let writer = {
            let (tree, keys) = (tree.clone(), keys.clone());
            loom::thread::spawn(move || as_writer(|| new.iter().for_each(|&n| insert(&tree, &keys, n))))
        };
        let found = read(&tree, &keys);
        assert!(found.is_sorted_by(|a, b| a < b), "{found:?}");
        assert!(old.iter().all(|n| found.contains(n)), "{found:?} lacks some of {old:?}");
        assert!(found.iter().all(|n| old.contains(n) || new.contains(n)), "{found:?}");
        writer.join().unwrap();
        assert_eq!(forward(&tree, &keys).len(), old.len() + new.len());
    });
}

fn each(tree: &Tree, keys: &Numbers) -> Vec<u32> {
    let finds = |n: &u32| {
        let key = &keys.0[*n as usize];
        tree.leaf(To::Key(key), keys).is_some_and(|leaf| leaf.search(key, keys).1)
    };
    // Late keys first: they are what a split moves away.
    let mut found: Vec<u32> = (0..64).rev().filter(|n| n % 10 == 0).filter(finds).collect();
    found.reverse();
    found
}

/// One full leaf; two leaves under a root; a full root over full leaves.
const ONE_LEAF: &[u32] = &[10, 20, 30];
const TWO_LEAVES: &[u32] = &[10, 20, 30, 40, 50];
const FULL_ROOT: &[u32] = &[10, 20, 30, 40, 50, 60, 25, 35, 45, 55];

#[test]
fn gets_beside_the_first_split() {
    check(ONE_LEAF, &[15, 16], each);
}

#[test]
fn gets_beside_a_split_under_a_root() {
    check(TWO_LEAVES, &[15, 16, 12], each);
}

#[test]
fn walks_forward_beside_the_first_split() {
    check(ONE_LEAF, &[15, 16], forward);
}

#[test]
fn walks_forward_beside_a_split_under_a_root() {
    check(TWO_LEAVES, &[15, 16, 12], forward);
}

#[test]
fn walks_backward_beside_a_split_under_a_root() {
    check(TWO_LEAVES, &[15, 16, 12], backward);
}

#[test]
fn walks_forward_beside_a_growing_root() {
    check(FULL_ROOT, &[15, 16], forward);
}

#[test]
fn walks_backward_beside_a_growing_root() {
    check(FULL_ROOT, &[15, 16], backward);
}
