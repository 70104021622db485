//! The lock-free reads of an active memtable under loom, which tries the interleavings and reorderings that
//! the memory model allows. Nodes have three entries here, so that a few keys split leaves, inner nodes and
//! the root.
#![expect(unsafe_code, reason = "drives the tree by its contract: one writer")]

use super::active::ActiveMemtable;
use super::node::Keys;
use super::range_tombstones::Ranges;
use super::sync::as_writer;
use super::tree::{Found, To, Tree};
use super::{MemoryOptions, Memtable, Sizes};
use crate::sync::{Limits, check as run};
use crate::types::{CellRef, Generation, KeyRange, LogFileId, RangeTombstone, SeqNo, Timestamp};
use loom::sync::Arc;
use std::ops::ControlFlow;

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
fn check(
    preemptions: usize,
    old: &'static [u32],
    new: &'static [u32],
    read: fn(&Tree, &Numbers) -> Vec<u32>,
) {
    run(Limits { preemptions, schedules: 0 }, move || {
        let keys = Arc::new(Numbers((0..64u64).map(u64::to_be_bytes).collect()));
        let tree = Arc::new(Tree::new(Sizes::all(8 << 10), None));
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
    // Late keys first: a split moves them.
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
    check(2, ONE_LEAF, &[15, 16], each);
}

#[test]
fn gets_beside_a_split_under_a_root() {
    check(2, TWO_LEAVES, &[15, 16, 12], each);
}

#[test]
fn walks_forward_beside_the_first_split() {
    check(3, ONE_LEAF, &[15, 16], forward);
}

#[test]
fn walks_forward_beside_a_split_under_a_root() {
    check(2, TWO_LEAVES, &[15, 16, 12], forward);
}

#[test]
fn walks_backward_beside_a_split_under_a_root() {
    check(2, TWO_LEAVES, &[15, 16, 12], backward);
}

#[test]
fn walks_forward_beside_a_growing_root() {
    check(2, FULL_ROOT, &[15, 16], forward);
}

#[test]
fn walks_backward_beside_a_growing_root() {
    check(2, FULL_ROOT, &[15, 16], backward);
}

fn put(active: &ActiveMemtable, seq: u64) {
    assert!(active.writer().insert(&CellRef::plain(b"key", seq, b"value")));
}

/// The versions of the key, newest first.
fn versions(active: &ActiveMemtable) -> Vec<u64> {
    let mut found = Vec::new();
    let _ = active.get(b"key", SeqNo::MAX, &mut |cell, _| {
        assert_eq!((cell.key, cell.value), (&b"key"[..], &b"value"[..]));
        found.push(cell.seq.0);
        ControlFlow::Continue(())
    });
    found
}

/// Writes `before` versions, then two more beside a reader.
fn updates(before: u64, preemptions: usize) {
    run(Limits { preemptions, schedules: 0 }, move || {
        // A chunk for each cell.
        let active = Arc::new(ActiveMemtable::new(
            Generation(1),
            MemoryOptions { chunks: Sizes::all(64), spares: None },
        ));
        (1..=before).for_each(|seq| put(&active, seq));
        let writer = {
            let active = active.clone();
            loom::thread::spawn(move || {
                as_writer(|| (before + 1..=before + 2).for_each(|seq| put(&active, seq)))
            })
        };
        let found = versions(&active);
        assert!(found.len() as u64 >= before, "{found:?}");
        assert!(found.iter().rev().copied().eq(1..=found.len() as u64), "{found:?}");
        writer.join().unwrap();
        assert_eq!(versions(&active).len() as u64, before + 2);
    });
}

#[test]
fn gets_beside_updates_see_a_whole_chain_of_versions() {
    updates(1, 3);
}

#[test]
fn gets_beside_updates_find_cells_in_chunks_that_a_new_directory_lists() {
    updates(15, 2);
}

#[test]
fn a_range_tombstone_is_found_by_whoever_comes_after_it_was_added() {
    run(Limits { preemptions: 3, schedules: 0 }, || {
        let ranges = Arc::new(Ranges::new());
        let tombstone = |seq| RangeTombstone {
            range: KeyRange::all(),
            from: Timestamp::ZERO,
            to: Timestamp::MAX,
            seq: SeqNo(seq),
        };
        let newest =
            |ranges: &Ranges| ranges.newest_over(b"key", Timestamp::ZERO, SeqNo::MAX).map_or(0, |seq| seq.0);
        ranges.add(tombstone(1));
        let other = {
            let ranges = ranges.clone();
            loom::thread::spawn(move || assert!(newest(&ranges) >= 1))
        };
        ranges.add(tombstone(2));
        assert_eq!(newest(&ranges), 2);
        ranges.add(tombstone(3));
        other.join().unwrap();
        assert_eq!((newest(&ranges), ranges.len()), (3, 3));
    });
}

#[test]
fn a_memtable_knows_the_first_wal_file_that_fed_any_of_its_clones() {
    run(Limits { preemptions: 3, schedules: 0 }, || {
        let memtable = Memtable::from(std::sync::Arc::new(ActiveMemtable::new(
            Generation(1),
            MemoryOptions { chunks: Sizes::all(64), spares: None },
        )));
        let other = {
            let memtable = memtable.clone();
            loom::thread::spawn(move || memtable.fed_by(LogFileId(2)))
        };
        memtable.fed_by(LogFileId(3));
        assert!(memtable.log_front().is_some_and(|file| file <= LogFileId(3)));
        other.join().unwrap();
        assert_eq!(memtable.log_front(), Some(LogFileId(2)));
    });
}
