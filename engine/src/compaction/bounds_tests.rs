//! Compactions of many shapes, done cell by cell, compared with their bounds.

use super::*;
use crate::cache::BlockCache;
use crate::compaction::retention::Retention;
use crate::compaction::spec::sample;
use crate::operator::Registry;
use crate::shape::Clip;
use crate::sstable::{Sstable, TableBuilder, TableOptions};
use crate::storage::Storage;
use crate::storage::sim::SimWorld;
use crate::types::{Cell, Fragments, Kind, RangeTombstone, Rng, SeqNo, TableId, Timestamp};
use crate::version::{Graveyard, TableHandle};
use std::path::Path;

/// Where SSTables are made.
struct World {
    storage: Arc<dyn Storage>,
    cache: Arc<BlockCache>,
    graveyard: Arc<Graveyard>,
    made: u32,
}

impl World {
    fn new() -> Self {
        Self {
            storage: SimWorld::new(1).env().storage,
            cache: BlockCache::new(1 << 20),
            graveyard: Arc::default(),
            made: 0,
        }
    }

    /// An SSTable of these sorted cells, clipped at `clip`.
    fn table(&mut self, cells: &[Cell], tombstones: &[RangeTombstone], clip: Option<Vec<u8>>) -> OpenTable {
        self.made += 1;
        let id = TableId { epoch: 1, job: self.made, ..TableId::default() };
        let path = Path::new("/").join(id.file_name());
        let options =
            TableOptions { block_bytes: 128, index_partition_bytes: 128, ..TableOptions::default() };
        let mut builder = TableBuilder::new(&*self.storage, &path, id, 7, &options, 0).unwrap();
        cells.iter().for_each(|cell| builder.add(&cell.as_ref()).unwrap());
        tombstones.iter().for_each(|tombstone| builder.add_range_tombstone(tombstone.clone()).unwrap());
        let info = Arc::new(builder.finish().unwrap());
        let table = Sstable::open(&self.storage, &path, info.clone(), &self.cache).unwrap();
        let clip = clip.map(|key| Clip { key, bytes_below: 1 });
        let info = Arc::new(TableInfo { clip, ..TableInfo::clone(&info) });
        OpenTable { info, handle: TableHandle::new(table, self.graveyard.clone()) }
    }
}

fn key(n: u64) -> Vec<u8> {
    format!("key{n:04}").into_bytes()
}

fn put(key: Vec<u8>, timestamp: u64, seq: u64) -> Cell {
    let timestamp = Timestamp(timestamp);
    Cell { key, timestamp, seq: SeqNo(seq), kind: Kind::Value, written: 0, value: vec![b'v'; 20] }
}

fn sort(cells: &mut [Cell]) {
    cells.sort_by(|a, b| a.key.cmp(&b.key).then(b.timestamp.cmp(&a.timestamp)).then(b.seq.cmp(&a.seq)));
}

/// A compaction that keeps everything but overwritten cells.
fn plain() -> CompactionSpec {
    let mut spec = sample::spec("a", "z", 0);
    spec.range = KeyRange::all();
    (spec.keep.operator, spec.keep.versions, spec.keep.read_points) = (None, 0, Vec::new());
    spec.keep.below = crate::compaction::TombstoneElision::default();
    spec
}

/// The cells read and kept, of cells in order, below each of these keys and in all.
fn done(
    spec: &CompactionSpec,
    cells: &[Cell],
    tombstones: Vec<RangeTombstone>,
    ends: &[Vec<u8>],
) -> Vec<(u64, u64)> {
    let mut keep = Retention::new(spec.keep.resolve(&Registry::default()), Fragments::new(tombstones));
    let (mut steps, mut at) = (Vec::new(), 0);
    for end in ends.iter().map(Some).chain([None]) {
        while let Some(cell) = cells.get(at).filter(|cell| end.is_none_or(|end| cell.key < *end)) {
            keep.push(&cell.as_ref(), &mut |_| Ok(())).unwrap();
            at += 1;
        }
        keep.end_key(&mut |_| Ok(())).unwrap();
        steps.push((keep.taken, keep.kept));
    }
    steps
}

fn fits(counts: &Counts, (taken, kept): (u64, u64)) -> bool {
    (counts.taken.0..=counts.taken.1).contains(&taken)
        && kept >= counts.kept
        && taken - kept <= counts.dropped
}

/// SSTables of a run, and their live cells.
fn run(
    world: &mut World,
    rng: &mut Rng,
    cells: Vec<Cell>,
    tombstones: &[RangeTombstone],
) -> (Vec<OpenTable>, Vec<Cell>) {
    let (mut tables, mut live) = (Vec::new(), Vec::new());
    let mut rest = &cells[..];
    while !rest.is_empty() {
        let mut len = (rng.range(20..200) as usize).min(rest.len());
        while len < rest.len() && rest[len].key == rest[len - 1].key {
            len += 1;
        }
        let (part, behind) = rest.split_at(len);
        let clip = (tables.is_empty() && rng.one_in(3)).then(|| part[rng.index(len)].key.clone());
        live.extend(part.iter().filter(|cell| clip.as_ref().is_none_or(|clip| cell.key >= *clip)).cloned());
        tables.push(world.table(part, if tables.is_empty() { tombstones } else { &[] }, clip));
        rest = behind;
    }
    (tables, live)
}

#[test]
fn no_compaction_that_was_done_right_is_refused_whatever_its_shape() {
    for seed in 0..300 {
        let (mut rng, mut world) = (Rng::new(seed), World::new());
        let mut spec = plain();
        let keys = *rng.pick(&[30, 300, 2_000]);
        spec.keep.explicit = rng.chance(50);
        spec.keep.versions = *rng.pick(&[0, 0, 1, 3]);
        let tombstones = rng.chance(40);
        (spec.keep.ttl_us, spec.keep.now_us) = if rng.one_in(5) { (50, 100) } else { (0, 100) };
        let (mut seq, mut runs, mut all) = (1_000_000, Vec::new(), Vec::new());
        let (covers, mut covering) = (if rng.one_in(3) { rng.range(1..6) } else { 0 }, Vec::new());
        for _ in 0..rng.range(1..5) {
            let (low, count) = (rng.range(0..keys), rng.range(1..400));
            let mut cells = Vec::new();
            for n in 0..count {
                // Some runs in order, others anywhere, some keys twice.
                let number = if seed % 3 == 0 { low + n } else { rng.range(0..keys) };
                let timestamp = if spec.keep.explicit { rng.range(1..120) } else { 0 };
                seq -= 1;
                let mut cell = put(key(number), timestamp, seq);
                if tombstones && rng.one_in(10) {
                    (cell.kind, cell.value) = (Kind::Tombstone, Vec::new());
                }
                cells.push(cell);
            }
            seq -= 1_000;
            sort(&mut cells);
            let tombstones: Vec<RangeTombstone> = (0..covers)
                .map(|_| {
                    let low = rng.range(0..keys);
                    RangeTombstone {
                        range: KeyRange::new(key(low), key(low + rng.range(1..30))),
                        from: Timestamp::ZERO,
                        to: *rng.pick(&[Timestamp(50), Timestamp::MAX]),
                        seq: SeqNo(rng.range(seq..1_000_000)),
                    }
                })
                .collect();
            let (tables, live) = run(&mut world, &mut rng, cells, &tombstones);
            covering.extend(tombstones);
            runs.push(tables);
            all.extend(live);
        }
        spec.keep.read_points = (0..rng.range(0..4)).map(|_| SeqNo(rng.range(seq..1_000_000))).collect();
        spec.keep.read_points.sort();
        if rng.one_in(3) {
            spec.range.start = key(rng.range(0..keys));
        }
        if rng.one_in(3) {
            spec.range.end = Some([spec.range.start.as_slice(), &key(rng.range(0..keys))].concat());
        }
        all.retain(|cell| spec.range.contains(&cell.key));
        sort(&mut all);
        let mut ends: Vec<Vec<u8>> = (0..rng.range(0..8)).map(|_| key(rng.range(0..keys))).collect();
        ends.retain(|end| spec.range.contains(end));
        ends.sort();
        let mut bounds = Bounds::new(&spec, runs).unwrap();
        let mut before = (0, 0);
        for (end, now) in ends.iter().map(Some).chain([None]).zip(done(&spec, &all, covering, &ends)) {
            let expected = bounds.below(end.map(Vec::as_slice)).unwrap();
            let step = (now.0 - before.0, now.1 - before.1);
            assert!(
                fits(&expected.so_far, now) && fits(&expected.step, step),
                "seed {seed}: {now:?} met and kept, {step:?} in the step, {expected:?}"
            );
            before = now;
        }
        assert!(bounds.inputs.iter().all(|input| input.open.is_none()), "seed {seed}: files are held");
    }
}

/// The bounds on the cells of a whole compaction of these runs.
fn in_the_end(spec: &CompactionSpec, runs: Vec<Vec<Cell>>) -> Counts {
    let mut world = World::new();
    let tables = runs.into_iter().map(|mut cells| {
        sort(&mut cells);
        vec![world.table(&cells, &[], None)]
    });
    let tables = tables.collect();
    Bounds::new(spec, tables).unwrap().below(None).unwrap().so_far
}

#[test]
fn where_nothing_can_drop_a_cell_all_must_be_kept() {
    let spec = plain();
    let run = |from: u64| (from..from + 300).map(|n| put(key(n), 0, 1 + n)).collect::<Vec<_>>();
    let all = Counts { taken: (900, 900), kept: 900, dropped: 0 };
    assert_eq!(in_the_end(&spec, vec![run(0), run(300), run(600)]), all);
    // Versions of different times, each once, of the same keys.
    let mut spec = plain();
    spec.keep.explicit = true;
    let run = |at: u64| {
        let cells = (0..300).map(|n| put(key(n / 3), at + n % 3, at * 1_000 + n));
        cells.collect::<Vec<_>>()
    };
    assert_eq!(in_the_end(&spec, vec![run(20), run(10), run(1)]), all);
    // With the same times they may be overwritten; where one is kept of each key they must.
    let some = Counts { taken: (900, 900), kept: 300, dropped: 600 };
    assert_eq!(in_the_end(&spec, vec![run(21), run(20), run(1)]), some);
    spec.keep.versions = 1;
    let few = Counts { taken: (900, 900), kept: 100, dropped: 800 };
    assert_eq!(in_the_end(&spec, vec![run(20), run(10), run(1)]), few);
}

#[test]
fn where_a_compaction_ends_within_blocks_nothing_that_it_took_in_may_be_missing() {
    let mut spec = plain();
    spec.keep.explicit = true;
    spec.range = KeyRange::new(key(0), key(101));
    let run = |at: u64| (0..300).map(|n| put(key(n), at, at * 1_000 + n)).collect::<Vec<_>>();
    let found = in_the_end(&spec, vec![run(2), run(1)]);
    assert!(found.taken.0 < 202 && 202 < found.taken.1, "within blocks: {found:?}");
    assert_eq!(found.dropped, 0);
    // With one version of each key, those of one run may be dropped.
    spec.keep.versions = 1;
    assert_eq!(in_the_end(&spec, vec![run(2), run(1)]).dropped, found.taken.1 / 2);
}

#[test]
fn keys_that_runs_do_not_share_are_told_by_their_sketches() {
    let run = |from: u64| (0..1_000).map(|n| put(key(n * 4 + from), 0, 1 + n)).collect::<Vec<_>>();
    let kept = in_the_end(&plain(), vec![run(0), run(1), run(2), run(3)]).kept;
    assert!((3_200..=3_500).contains(&kept), "{kept} of 4,000 keys");
    let shared = in_the_end(&plain(), vec![run(0), run(0), run(0)]).kept;
    assert_eq!(shared, 1_000);
}

#[test]
fn a_tombstone_takes_one_key_at_most_and_where_cells_may_go_for_other_reasons_nothing_is_told() {
    let run = || (0..300).map(|n| put(key(n), 5, 1_000 + n)).collect::<Vec<_>>();
    let mut deletes = run();
    deletes.iter_mut().take(100).for_each(|cell| cell.kind = Kind::Tombstone);
    assert_eq!(in_the_end(&plain(), vec![deletes, run()]).kept, 200);
    // A range of ten keys deletes no more than the blocks that have them, of four cells each.
    let mut world = World::new();
    let range = KeyRange::new(key(100), key(110));
    let tombstone = RangeTombstone { range, from: Timestamp::ZERO, to: Timestamp::MAX, seq: SeqNo(1 << 30) };
    let tables = vec![vec![world.table(&run(), &[tombstone], None)]];
    let kept = Bounds::new(&plain(), tables).unwrap().below(None).unwrap().so_far.kept;
    assert!((270..=290).contains(&kept), "{kept} of 300 keys, of which ten are deleted");
    let mut filtered = plain();
    filtered.keep.filter = Some("some".into());
    let mut expiring = plain();
    (expiring.keep.explicit, expiring.keep.ttl_us, expiring.keep.now_us) = (true, 10, 15);
    for spec in [filtered, expiring.clone()] {
        assert_eq!(in_the_end(&spec, vec![run()]), Counts { taken: (300, 300), kept: 0, dropped: u64::MAX });
    }
    expiring.keep.now_us = 14;
    assert_eq!(in_the_end(&expiring, vec![run()]).kept, 300);
}
