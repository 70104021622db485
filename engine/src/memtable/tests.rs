//! Memtables against a sorted map, alone and with readers beside the writer.

use super::{ActiveMemtable, FlatMemtable, MemoryOptions, Memtable, MemtableCompaction, Sizes, Visibility};
use crate::types::*;
use proptest::prelude::*;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

pub(super) const SMALL: MemoryOptions =
    MemoryOptions { chunks: Sizes { chunk_bytes: 256, first_bytes: 256 }, spares: None };
const CASES: u32 = if cfg!(miri) { 3 } else { 200 };

/// What flattening must leave to readers at `visible` and later, without snapshots.
pub(super) fn upto(visible: u64) -> Visibility<'static> {
    Visibility { counts: false, visible: SeqNo(visible), snapshots: &[] }
}

pub(super) type Model = BTreeMap<(Vec<u8>, Reverse<Timestamp>, Reverse<SeqNo>), Cell>;

pub(super) fn cell(key: impl Into<Vec<u8>>, timestamp: u64, seq: u64, value: impl Into<Vec<u8>>) -> Cell {
    let (timestamp, seq) = (Timestamp(timestamp), SeqNo(seq));
    Cell { key: key.into(), timestamp, seq, kind: Kind::Value, written: 0, value: value.into() }
}

pub(super) fn active_of<'a>(cells: impl IntoIterator<Item = &'a Cell>) -> Arc<ActiveMemtable> {
    let active = Arc::new(ActiveMemtable::new(Generation(7), SMALL));
    let mut writer = active.writer();
    for cell in cells {
        assert!(writer.insert(&cell.as_ref()));
    }
    drop(writer);
    active
}

pub(super) fn model_of<'a>(cells: impl IntoIterator<Item = &'a Cell>) -> Model {
    let entry = |c: &Cell| ((c.key.clone(), Reverse(c.timestamp), Reverse(c.seq)), c.clone());
    cells.into_iter().map(entry).collect()
}

/// Keys with common prefixes, keys that differ in length only, unrelated keys, and the empty key.
pub(super) fn keys() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        Just(Vec::new()),
        prop::collection::vec(prop_oneof![Just(0u8), Just(1), Just(255)], 0..4),
        (0u32..400).prop_map(|n| format!("{n:016}").into_bytes()),
        (0u32..200).prop_map(|n| [b"some/long/path/shared/by/all/", &n.to_be_bytes()[..]].concat()),
        any::<[u8; 3]>().prop_map(|k| k.to_vec()),
    ]
}

fn kinds() -> impl Strategy<Value = Kind> {
    prop_oneof![4 => Just(Kind::Value), 1 => Just(Kind::Tombstone), 1 => Just(Kind::Operand)]
}

/// Cells with sequence numbers in order of insertion, some timestamps, a few large values.
pub(super) fn histories() -> impl Strategy<Value = Vec<Cell>> {
    let len = if cfg!(miri) { 60 } else { 600 };
    let one = (keys(), 0u64..3, kinds(), prop_oneof![9 => 0usize..20, 1 => 100usize..600], 0u64..2);
    prop::collection::vec(one, 1..len).prop_map(|list| {
        let numbered = list.into_iter().enumerate();
        let cell = |(i, (key, timestamp, kind, len, written)): (usize, (Vec<u8>, u64, Kind, usize, u64))| {
            Cell { kind, written, ..cell(key, timestamp, i as u64 + 1, vec![i as u8; len]) }
        };
        numbered.map(cell).collect()
    })
}

fn got(memtable: &Memtable, key: &[u8], read: SeqNo) -> Vec<Cell> {
    let mut found = Vec::new();
    let flow = memtable.get(key, read, &mut |cell, _| {
        found.push(cell.to_cell());
        ControlFlow::Continue(())
    });
    assert!(flow.is_continue());
    found
}

pub(super) fn walk(memtable: &Memtable, from: &[u8]) -> Vec<Cell> {
    let mut cursor = memtable.cursor();
    let mut found = Vec::new();
    cursor.seek(from).unwrap();
    while cursor.valid() {
        let mut value = Pinned::default();
        cursor.pin_value(&mut value).unwrap();
        assert_eq!(value, cursor.cell().value);
        found.push(cursor.cell().to_cell());
        cursor.next().unwrap();
    }
    found
}

fn walk_back(memtable: &Memtable, before: Option<&[u8]>) -> Vec<Cell> {
    let mut cursor = memtable.cursor();
    let mut found = Vec::new();
    cursor.seek_before(before).unwrap();
    while cursor.valid() {
        found.push(cursor.cell().to_cell());
        cursor.prev().unwrap();
    }
    found.reverse();
    found
}

/// Every way of reading gives the model's cells.
pub(super) fn same(memtable: &Memtable, model: &Model, probes: &[Vec<u8>]) {
    let all: Vec<Cell> = model.values().cloned().collect();
    assert_eq!(walk(memtable, b""), all);
    assert_eq!(walk_back(memtable, None), all);
    assert_eq!(memtable.cells(), all.len());
    assert_eq!(memtable.user_bytes(), all.iter().map(|c| c.as_ref().user_bytes()).sum::<usize>());
    for key in probes {
        let read = SeqNo(all.len() as u64 / 2);
        let expected: Vec<Cell> = all.iter().filter(|c| c.key == *key && c.seq <= read).cloned().collect();
        assert_eq!(got(memtable, key, read), expected);
        let behind: Vec<Cell> = all.iter().filter(|c| c.key >= *key).cloned().collect();
        assert_eq!(walk(memtable, key), behind);
        let before: Vec<Cell> = all.iter().filter(|c| c.key < *key).cloned().collect();
        assert_eq!(walk_back(memtable, Some(key)), before);
    }
    let range = memtable.key_range();
    assert_eq!(range.as_ref().map(|r| r.start.clone()), all.first().map(|c| c.key.clone()));
    assert!(all.iter().all(|c| range.as_ref().unwrap().contains(&c.key)));
    let seqs = all.iter().map(|c| c.seq);
    assert_eq!(memtable.seqs(), seqs.clone().min().map(|min| min..=seqs.max().unwrap()));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: CASES, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn an_active_memtable_reads_as_a_sorted_map(cells in histories(), probes in prop::collection::vec(keys(), 4)) {
        let model = model_of(&cells);
        same(&Memtable::from(active_of(&cells)), &model, &probes);
    }

    #[test]
    fn order_of_arrival_does_not_matter(cells in histories(), seed in any::<u64>()) {
        let mut shuffled = cells.clone();
        shuffled.sort_by_key(|c| hash(&[&c.seq.0.to_le_bytes()[..], &seed.to_le_bytes()].concat()));
        same(&Memtable::from(active_of(&shuffled)), &model_of(&cells), &[]);
    }

    #[test]
    fn a_cell_inserted_twice_is_there_once(cells in histories()) {
        let active = active_of(&cells);
        let again: Vec<bool> = cells.iter().map(|c| active.writer().insert(&c.as_ref())).collect();
        prop_assert!(again.iter().all(|inserted| !inserted));
        same(&Memtable::from(active), &model_of(&cells), &[]);
    }

    #[test]
    fn a_flat_memtable_answers_every_possible_reader_as_before(
        cells in histories(),
        points in prop::collection::vec(0u64..600, 0..4),
        visible in 0u64..700,
        probes in prop::collection::vec(keys(), 4),
    ) {
        let mut snapshots: Vec<SeqNo> = points.into_iter().filter(|&p| p <= visible).map(SeqNo).collect();
        snapshots.sort();
        let keep = Visibility { counts: false, visible: SeqNo(visible), snapshots: &snapshots };
        let active = Memtable::from(active_of(&cells));
        let flat = active.flatten(&keep);
        let kept = model_of(&walk(&flat, b""));
        same(&flat, &kept, &probes);
        let later = (visible..visible + 3).chain([700]).map(SeqNo);
        for read in snapshots.iter().copied().chain(later) {
            prop_assert_eq!(seen(walk(&flat, b""), read), seen(walk(&active, b""), read));
        }
        let mut sketch = Sketch::new();
        flat.as_flat().unwrap().sketch_into(&mut sketch);
        prop_assert_eq!(&sketch, &sketch_of(&cells));
    }

    #[test]
    fn a_cursor_turns_round_anywhere(cells in histories(), turns in prop::collection::vec(any::<bool>(), 1..200)) {
        let active = Memtable::from(active_of(&cells));
        let all: Vec<Cell> = model_of(&cells).into_values().collect();
        for memtable in [active.flatten(&upto(0)), active] {
            let mut cursor = memtable.cursor();
            cursor.seek(&all[all.len() / 2].key).unwrap();
            let mut at = all.iter().position(|c| c.key == all[all.len() / 2].key);
            for &forward in &turns {
                prop_assert_eq!(cursor.valid(), at.is_some());
                let Some(here) = at else { break };
                prop_assert_eq!(cursor.cell().to_cell(), all[here].clone());
                if forward {
                    cursor.next().unwrap();
                    at = (here + 1 < all.len()).then_some(here + 1);
                } else {
                    cursor.prev().unwrap();
                    at = here.checked_sub(1);
                }
            }
        }
    }
}

pub(super) fn sketch_of(cells: &[Cell]) -> Sketch {
    let mut sketch = Sketch::new();
    cells.iter().for_each(|c| sketch.add(&c.key));
    sketch
}

/// What a reader at a point sees of cells in order: values and operands that nothing newer deletes or
/// replaces. Written by definition, cell against cell, so that it shares nothing with the rules of
/// flattening.
pub(super) fn seen(cells: Vec<Cell>, read: SeqNo) -> Vec<Cell> {
    let visible: Vec<&Cell> = cells.iter().filter(|c| c.seq <= read).collect();
    let hidden = |c: &Cell| {
        visible.iter().any(|d| {
            let newer = d.key == c.key && d.seq > c.seq;
            newer
                && match d.kind {
                    Kind::Tombstone => d.timestamp >= c.timestamp,
                    Kind::Value | Kind::Hidden => d.timestamp == c.timestamp,
                    Kind::Operand => false,
                }
        })
    };
    visible.iter().filter(|c| c.kind != Kind::Tombstone && !hidden(c)).map(|c| (*c).clone()).collect()
}

#[test]
fn a_flat_memtable_hides_as_much_in_older_sources() {
    // What a tombstone with timestamp 5 hides in an older source must stay hidden, whatever shadows it.
    let tombstone = Cell { kind: Kind::Tombstone, ..cell("k", 5, 10, "") };
    let active = Memtable::from(active_of(&[tombstone.clone(), cell("k", 5, 11, "new")]));
    let flat = active.flatten(&upto(20));
    assert!(walk(&flat, b"").contains(&tombstone));
    assert_eq!(flat.times(), Some(Timestamp(0)..=Timestamp(5)));
}

#[test]
fn large_keys_and_values_are_kept_whole() {
    let cells = [
        cell(vec![b'k'; 64 << 10], 0, 1, vec![1; 3 << 20]),
        cell(vec![b'k'; (64 << 10) - 1], 9, 2, vec![2; 100]),
        cell("", 0, 3, vec![3; 1 << 20]),
        cell([vec![b'k'; (64 << 10) - 1], vec![b'a']].concat(), 0, 4, ""),
    ];
    let memtable = Memtable::from(active_of(&cells));
    let probes: Vec<Vec<u8>> = cells.iter().map(|c| c.key.clone()).collect();
    same(&memtable, &model_of(&cells), &probes);
    assert!(memtable.bytes() >= 4 << 20);
    same(&memtable.flatten(&upto(4)), &model_of(&cells), &probes);
}

#[test]
fn ascending_and_descending_long_shared_prefixes_are_all_found() {
    let n = if cfg!(miri) { 80 } else { 5000 };
    let key = |i: u64| [vec![b'p'; 300], format!("{i:012}").into_bytes()].concat();
    let ascending: Vec<Cell> = (0..n).map(|i| cell(key(i), 0, i + 1, "v")).collect();
    let descending: Vec<Cell> = ascending.iter().rev().cloned().collect();
    for cells in [ascending, descending] {
        let probes = [key(0), key(n / 2), key(n), b"p".to_vec(), b"q".to_vec()];
        let memtable = Memtable::from(active_of(&cells));
        same(&memtable, &model_of(&cells), &probes);
        same(&memtable.flatten(&upto(u64::MAX)), &model_of(&cells), &probes);
    }
}

#[test]
fn update_counts_include_dropped_versions() {
    let mut cells: Vec<Cell> = (1..=5).map(|seq| cell("hot", 0, seq, "v")).collect();
    cells.push(cell("cold", 0, 6, "v"));
    let flat = Arc::new(FlatMemtable::from_active(&active_of(&cells), &upto(6)));
    assert_eq!(flat.cells(), 2);
    let mut cursor = flat.cursor();
    cursor.seek(b"").unwrap();
    let cold = cursor.heat().updates;
    cursor.next().unwrap();
    assert_eq!((cold, cursor.heat().updates), (1, 5));
}

#[test]
fn range_tombstones_count_for_ranges_and_survive_flattening() {
    let active = active_of(&[cell("m", 4, 3, "v")]);
    assert!(!active.has_ranges());
    let range = KeyRange::new("a", "c");
    let tombstone = RangeTombstone { range, from: Timestamp(8), to: Timestamp(9), seq: SeqNo(5) };
    active.writer().add_range_tombstone(tombstone.clone());
    assert_eq!(active.newest_over(b"b", Timestamp(8), SeqNo::MAX), Some(SeqNo(5)));
    let later = RangeTombstone { range: KeyRange::new("b", "x"), seq: SeqNo(6), ..tombstone };
    active.writer().add_range_tombstone(later);
    let memtable = Memtable::from(active);
    for memtable in [memtable.flatten(&upto(9)), memtable] {
        assert_eq!(memtable.newest_over(b"b", Timestamp(8), SeqNo::MAX), Some(SeqNo(6)));
        assert_eq!(memtable.key_range(), Some(KeyRange::new("a", "x")));
        assert_eq!(memtable.seqs(), Some(SeqNo(3)..=SeqNo(6)));
        assert_eq!(memtable.times(), Some(Timestamp(4)..=Timestamp(9)));
        assert_eq!(memtable.generation(), Generation(7));
    }
}

#[test]
fn an_empty_memtable_has_nothing_in_any_form() {
    let memtable = Memtable::from(Arc::new(ActiveMemtable::new(Generation(1), SMALL)));
    for memtable in [memtable.flatten(&upto(9)), memtable] {
        same(&memtable, &Model::new(), &[b"k".to_vec()]);
        assert!(memtable.is_empty() && memtable.times().is_none() && memtable.log_front().is_none());
    }
}

#[test]
fn the_wal_front_is_the_smallest_file_and_outlives_flattening() {
    let memtable = Memtable::from(active_of(&[cell("k", 0, 1, "v")]));
    memtable.fed_by(LogFileId(9));
    let flat = memtable.flatten(&upto(1));
    memtable.fed_by(LogFileId(4));
    memtable.fed_by(LogFileId(12));
    assert_eq!(flat.log_front(), Some(LogFileId(4)));
}

#[test]
fn a_pinned_value_outlives_its_memtables() {
    let memtable = Memtable::from(active_of(&[cell("k", 0, 1, "value")]));
    let flat = memtable.flatten(&upto(1));
    let mut pinned = Vec::new();
    for memtable in [memtable, flat] {
        let _ = memtable.get(b"k", SeqNo::MAX, &mut |cell, owner| {
            // SAFETY: the value and the owner that were handed out together.
            #[expect(unsafe_code, reason = "what the read path does")]
            pinned.push(unsafe { Pinned::held(cell.value, owner) });
            ControlFlow::Break(())
        });
    }
    assert_eq!(pinned, [b"value", b"value"]);
}

#[test]
fn a_flat_memtable_takes_twelve_bytes_a_cell_beside_its_chunks() {
    let n = if cfg!(miri) { 50 } else { 20_000u64 };
    let cells: Vec<Cell> = (0..n).map(|i| cell((i * 7919 % n).to_be_bytes(), 0, i + 1, "v")).collect();
    let active = active_of(&cells);
    let flat = FlatMemtable::from_active(&active, &upto(u64::MAX));
    let cell_chunks = flat.bytes() - Sketch::BYTES - 12 * n as usize;
    assert!(cell_chunks <= active.bytes() + SMALL.chunks.chunk_bytes);
}

/// TRI-5: a hot key has, beside its cell, its updates and the number of flushes that left it in memory.
#[test]
fn a_kept_cell_takes_nine_bytes_more_than_others() {
    let kept: Vec<HotCell> = (0..500u64)
        .map(|i| HotCell { cell: cell(i.to_be_bytes(), 0, i + 1, "v"), updates: 3, kept: 1 })
        .collect();
    let flat = FlatMemtable::of_kept(Generation(1), &kept, SMALL);
    let chunks: usize = flat.chunk_list().iter().map(|chunk| chunk.bytes()).sum();
    assert_eq!(flat.bytes() - chunks, 500 * (12 + 8 + 1));
    let cells: usize = kept.iter().map(|kept| super::cell::room(&kept.cell.as_ref())).sum();
    assert_eq!(flat.kept_bytes(), cells);
    // Compacted with others they still count.
    let flat = Arc::new(flat);
    let all = upto(u64::MAX);
    let newer = FlatMemtable::from_active(&active_of(&[cell(b"other", 0, 900, "v")]), &all);
    let mut join = MemtableCompaction::new(&[Arc::new(newer), flat.clone()], &all, None);
    while join.advance(100) {}
    assert_eq!(join.finish(true).kept_bytes(), cells);
}

/// One writer inserts keys in a scattered order, three versions of each, and publishes its progress; readers
/// check that all keys published before they began are found, by get and by walks in both directions.
#[test]
fn readers_beside_the_writer_miss_nothing_published_before_they_began() {
    let n: u64 = if cfg!(miri) { 90 } else { 30_000 };
    let key = |i: u64| format!("{:016}", i * 7919 % n).into_bytes();
    let active = Arc::new(ActiveMemtable::new(Generation(1), SMALL));
    let published = AtomicU64::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for seq in 1..=3 * n {
                let inserted =
                    active.writer().insert(&cell(key(seq % n), seq % 2, seq, seq.to_le_bytes()).as_ref());
                assert!(inserted);
                published.store(seq, Ordering::Release);
            }
        });
        for reader in 0..2 {
            let (active, published) = (Memtable::from(active.clone()), &published);
            scope.spawn(move || {
                let mut round = reader;
                loop {
                    let read = published.load(Ordering::Acquire);
                    for probe in 0..read.min(500) {
                        let seq = read - probe * 31 % read;
                        let all = got(&active, &key(seq % n), SeqNo(read));
                        assert!(all.iter().any(|c| c.seq.0 == seq && c.value == seq.to_le_bytes()));
                    }
                    let found = if round % 2 == 0 { walk(&active, b"") } else { walk_back(&active, None) };
                    let below = found.iter().filter(|c| c.seq.0 <= read).count() as u64;
                    assert_eq!(below, read);
                    assert!(found.is_sorted_by(|a, b| a.as_ref().order(&b.as_ref()).is_lt()));
                    if read == 3 * n {
                        break;
                    }
                    round += 1;
                }
            });
        }
    });
}

#[test]
fn a_chunk_is_an_eighth_of_its_memtable_in_powers_of_two_up_to_two_mebibytes() {
    let chunk = |bytes| MemoryOptions::for_active_bytes(bytes, 0, None).chunks.chunk_bytes;
    let found = [0, 8 << 10, 300 << 10, 1 << 20, 16 << 20, 1 << 30].map(chunk);
    assert_eq!(found, [1 << 10, 1 << 10, 32 << 10, 128 << 10, 2 << 20, 2 << 20]);
}

#[test]
fn a_flat_memtable_is_left_out_of_reads_it_says_nothing_about() {
    let active = active_of(&[cell("g", 4, 3, "v"), cell("m", 4, 5, "v")]);
    let tombstone = RangeTombstone {
        range: KeyRange::new("p", "r"),
        from: Timestamp(0),
        to: Timestamp(9),
        seq: SeqNo(4),
    };
    active.writer().add_range_tombstone(tombstone);
    let active = Memtable::from(active);
    let flat = active.flatten(&upto(9));
    let asked =
        |range: KeyRange, read| (active.concerns(&range, SeqNo(read)), flat.concerns(&range, SeqNo(read)));
    assert_eq!(asked(KeyRange::new("a", "g"), 9), (true, false), "before its first key");
    assert_eq!(asked(KeyRange::new("a", "h"), 9), (true, true), "from its first key on");
    assert_eq!(asked(KeyRange::new("q", "z"), 9), (true, true), "only under a range tombstone");
    assert_eq!(asked(KeyRange::new("r", "z"), 9), (true, false), "behind all it says");
    assert_eq!(asked(KeyRange::all(), 2), (true, false), "at a read point before its first write");
    let times = |from, to| TimeRange::from_bounds(&(Timestamp(from)..Timestamp(to)));
    let of = |times| (active.speaks_of(times), flat.speaks_of(times));
    assert_eq!(of(times(9, 10)), (true, true), "the last of its range tombstone's times");
    assert_eq!(of(times(10, 99)), (false, false), "later than all it says");
    let dated = Memtable::from(active_of(&[cell("g", 4, 3, "v"), cell("m", 6, 5, "v")]));
    assert!(dated.speaks_of(times(6, 7)) && !dated.speaks_of(times(7, 99)) && !dated.speaks_of(times(0, 4)));
    assert!(!dated.speaks_of(times(6, 6)), "no time at all");
    let dated = Memtable::from(active_of(&[Cell { kind: Kind::Tombstone, ..cell("g", 4, 3, "") }]));
    assert!(dated.speaks_of(times(0, 1)), "a tombstone speaks of all times up to its own");
    for key in ["a", "g", "h", "m", "z"] {
        let expected = usize::from(key == "g" || key == "m");
        assert_eq!(got(&flat, key.as_bytes(), SeqNo(9)).len(), expected, "{key}");
        assert_eq!(got(&flat, key.as_bytes(), SeqNo(2)).len(), 0, "{key}");
    }
}
