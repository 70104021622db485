//! Compacted memtables against all cells of their sources.

use super::tests::{SMALL, active_of, cell, histories, model_of, same, seen, sketch_of, upto, walk};
use super::{FlatMemtable, Memtable, MemtableCompaction, Visibility};
use crate::types::*;
use proptest::prelude::*;
use std::sync::Arc;

/// The history cut into memtables, newest first, flattened without dropping anything.
fn memtables(cells: &[Cell], cuts: &[usize]) -> Vec<Memtable> {
    let mut bounds: Vec<usize> =
        cuts.iter().map(|cut| cut % (cells.len() + 1)).chain([0, cells.len()]).collect();
    bounds.sort_unstable();
    let piece = |w: &[usize]| Memtable::from(active_of(&cells[w[0]..w[1]])).flatten(&upto(0));
    bounds.windows(2).rev().map(piece).collect()
}

fn flats(memtables: &[Memtable]) -> Vec<Arc<FlatMemtable>> {
    memtables.iter().map(|s| s.as_flat().unwrap().clone()).collect()
}

/// Compacts, `grain` entries at a time.
fn join(memtables: &[Memtable], keep: Option<Visibility<'_>>, grain: usize) -> Memtable {
    let mut join = MemtableCompaction::new(&flats(memtables), &keep.unwrap_or(upto(0)), keep.map(|_| SMALL));
    while join.advance(grain) {}
    Memtable::flat(Arc::new(join.finish(true)), None)
}

fn keep(visible: u64, snapshots: &[SeqNo]) -> Option<Visibility<'_>> {
    Some(Visibility { counts: false, visible: SeqNo(visible), snapshots })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn merged_indices_hold_every_cell_in_order(
        cells in histories(),
        cuts in prop::collection::vec(any::<usize>(), 0..5),
        grain in 1usize..50,
        probes in prop::collection::vec(super::tests::keys(), 4),
    ) {
        let sources = memtables(&cells, &cuts);
        let joined = join(&sources, None, grain);
        same(&joined, &model_of(&cells), &probes);
        let flat = joined.as_flat().unwrap();
        let mut sketch = Sketch::new();
        flat.sketch_into(&mut sketch);
        prop_assert_eq!(&sketch, &sketch_of(&cells));
        for (key, updates) in updates(&cells) {
            let mut cursor = flat.cursor();
            cursor.seek(&key).unwrap();
            prop_assert_eq!((cursor.cell().key, cursor.heat().updates), (&key[..], updates));
        }
    }

    #[test]
    fn a_compaction_answers_every_possible_reader_as_its_sources(
        cells in histories(),
        cuts in prop::collection::vec(any::<usize>(), 0..5),
        points in prop::collection::vec(0u64..600, 0..4),
        visible in 0u64..700,
        grain in 1usize..50,
    ) {
        let mut snapshots: Vec<SeqNo> = points.into_iter().filter(|&p| p <= visible).map(SeqNo).collect();
        snapshots.sort();
        let joined = join(&memtables(&cells, &cuts), keep(visible, &snapshots), grain);
        let kept = model_of(&walk(&joined, b""));
        same(&joined, &kept, &[]);
        // The result is as if one memtable of the whole history had been flattened.
        let keep = Visibility { counts: false, visible: SeqNo(visible), snapshots: &snapshots };
        let whole = Memtable::from(active_of(&cells)).flatten(&keep);
        prop_assert_eq!(walk(&joined, b""), walk(&whole, b""));
        for read in snapshots.iter().copied().chain((visible..visible + 3).chain([700]).map(SeqNo)) {
            prop_assert_eq!(seen(walk(&joined, b""), read), seen(model_of(&cells).into_values().collect(), read));
        }
    }
}

fn updates(cells: &[Cell]) -> std::collections::BTreeMap<Vec<u8>, u32> {
    let mut counts = std::collections::BTreeMap::new();
    cells.iter().for_each(|c| *counts.entry(c.key.clone()).or_default() += 1);
    counts
}

#[test]
fn compacting_frees_the_memory_of_what_is_gone_and_tells_which_sources_live() {
    let round = |from: u64| -> Vec<Cell> {
        (0..40).map(|n| cell(format!("key{n:02}"), 0, from + n, vec![7; 50])).collect()
    };
    let cells: Vec<Cell> = [round(1), round(41), round(81)].concat();
    let sources = memtables(&cells, &[40, 80]);
    let before: usize = sources.iter().map(Memtable::bytes).sum();
    let mut join = MemtableCompaction::new(&flats(&sources), &keep(200, &[]).unwrap(), Some(SMALL));
    while join.advance(7) {}
    assert_eq!(join.taken(), (120, 40));
    let taken = join.bytes();
    assert_eq!(join.lives().collect::<Vec<_>>(), [true, false, false], "only the newest has cells left");
    let joined = join.finish(true);
    // A sketch of 4 KiB stands in each.
    let left = joined.bytes() - Sketch::BYTES;
    assert!(left < (before - 3 * Sketch::BYTES) / 2, "{left} of {before}");
    assert!(taken >= left, "{taken} were counted of {left}");
    assert_eq!(joined.cells(), 40);
    assert_eq!(joined.generation(), Generation(7));
}

#[test]
fn what_is_dead_in_a_memtable_is_known_to_the_byte_and_a_compaction_of_it_is_without() {
    let write = |keys: u64, rounds: u64| -> Vec<Cell> {
        let all = (0..rounds).flat_map(|round| (0..keys).map(move |n| (round, n)));
        all.map(|(round, n)| cell(format!("key{n:02}"), 0, 1 + round * keys + n, vec![7; 53])).collect()
    };
    let flatten = |cells: &[Cell]| Memtable::from(active_of(cells)).flatten(&upto(u64::MAX));
    let dead = |memtable: &Memtable| memtable.as_flat().unwrap().dead().bytes;
    let (once, thrice) = (flatten(&write(40, 1)), flatten(&write(40, 3)));
    // A header of 20 bytes, the key's 5, the value's 53, up to a multiple of 8.
    assert_eq!((dead(&once), dead(&thrice)), (0, 80 * 80));
    let both = [thrice.clone(), once];
    assert_eq!(dead(&join(&both, None, 9)), 80 * 80, "indices only: their chunks are still there");
    let alone = join(std::slice::from_ref(&thrice), keep(u64::MAX, &[]), 9);
    assert_eq!((dead(&alone), alone.cells()), (0, 40));
    let (left, before) = (alone.bytes(), thrice.bytes());
    assert!(left + 80 * 80 <= before + SMALL.chunks.chunk_bytes, "{left} of {before}");
    for (key, updates) in updates(&write(40, 3)) {
        let mut cursor = alone.as_flat().unwrap().cursor();
        cursor.seek(&key).unwrap();
        assert_eq!((cursor.heat().updates, cursor.cell().seq.0 > 80), (updates, true));
    }
}

#[test]
fn range_tombstones_of_all_sources_are_in_the_joined_memtable() {
    let deletes = |from: &str, to: &str, seq| {
        let active = active_of(&[]);
        let range = KeyRange::new(from, to);
        let tombstone = RangeTombstone { range, from: Timestamp(0), to: Timestamp(9), seq: SeqNo(seq) };
        active.writer().add_range_tombstone(tombstone);
        Memtable::from(active).flatten(&upto(0))
    };
    let cells = memtables(&[cell("c", 0, 2, "v")], &[]);
    let sources = [&[deletes("b", "f", 5), deletes("d", "h", 4)], &cells[..]].concat();
    for keep in [None, keep(9, &[])] {
        let joined = join(&sources, keep, 3);
        let over = |key: &str| joined.newest_over(key.as_bytes(), Timestamp(0), SeqNo::MAX);
        assert_eq!(
            (over("c"), over("e"), over("g"), over("h")),
            (Some(SeqNo(5)), Some(SeqNo(5)), Some(SeqNo(4)), None)
        );
        assert_eq!(joined.key_range(), Some(KeyRange::new("b", "h")));
        // Cells that they cover are dropped where they may be.
        let oldest = if keep.is_some() { 4 } else { 2 };
        assert_eq!(joined.seqs(), Some(SeqNo(oldest)..=SeqNo(5)));
    }
}
