//! Caches around merges: what is read stays warm, what is gone leaves, and nothing of it can make an answer
//! wrong or a compaction fail.

use siltstone::schedule::SimScheduler;
use siltstone::storage::sim::{Mode, OpKind, SimWorld};
use siltstone::strategy::{HotKeys, LeveledOptions, StrategyOptions};
use siltstone::testing::{CompactionFault, Elsewhere, with_kill_hook};
use siltstone::{
    Builder, CacheFill, Compression, Db, EventKind, Family, FamilyOptions, Options, Statistics, Tuning,
};
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

const KEYS: u64 = 4_000;
const POLICIES: [CacheFill; 4] =
    [CacheFill::None, CacheFill::WriteThrough, CacheFill::Before, CacheFill::Step];

fn open(world: &SimWorld, fill: CacheFill, cache: u64) -> Db {
    open_resting(world, fill, cache, Options::default().tuning.compaction_pacing)
}

fn open_resting(world: &SimWorld, fill: CacheFill, cache: u64, compaction_pacing: u32) -> Db {
    open_as(world, fill, cache, compaction_pacing, "leveled{sstable_bytes=32KiB,base_bytes=128KiB}")
}

fn open_as(world: &SimWorld, fill: CacheFill, cache: u64, compaction_pacing: u32, strategy: &str) -> Db {
    builder(world, fill, cache, compaction_pacing, strategy).open("/db").unwrap()
}

fn builder(world: &SimWorld, fill: CacheFill, cache: u64, compaction_pacing: u32, strategy: &str) -> Builder {
    let write_memory = 256 << 10;
    let options = Options {
        write_memory,
        memory_budget: write_memory + cache,
        workers: 1,
        cache_fill: fill,
        tuning: Tuning {
            wal_file_bytes: 64 << 10,
            compaction_step_bytes: 64 << 10,
            compaction_pacing,
            ..Tuning::default()
        },
        ..Options::default()
    };
    let strategy = strategy.parse().unwrap();
    let (compression, hot_keys) = (Compression::None, HotKeys::Off);
    let family = FamilyOptions { strategy, compression, hot_keys, ..Default::default() };
    Builder::new()
        .options(options)
        .env(world.env())
        .scheduler(Arc::new(SimScheduler::for_world(world)))
        .family("default", family)
}

fn key(n: u64) -> [u8; 8] {
    (n * 7919 % KEYS).to_be_bytes()
}

fn value(n: u64, round: u8) -> Vec<u8> {
    let mut value = vec![round; 200];
    value[..8].copy_from_slice(&n.to_be_bytes());
    value
}

fn put(family: &Family, n: u64, round: u8) {
    family.put(key(n), value(n, round)).unwrap();
}

/// All keys, then every third again, in tables of several levels.
fn fill(db: &Db) {
    (0..KEYS).for_each(|n| put(&db.default_family(), n, 1));
    db.flush().unwrap();
    db.wait_idle().unwrap();
    (0..KEYS).step_by(3).for_each(|n| put(&db.default_family(), n, 2));
    db.flush().unwrap();
}

fn check(db: &Db, n: u64) {
    let round = if n.is_multiple_of(3) { 2 } else { 1 };
    assert_eq!(db.get(key(n)).unwrap().as_deref(), Some(&*value(n, round)), "key number {n}");
}

/// Reads these keys; how often a data block was not in the cache.
fn misses(db: &Db, keys: impl Iterator<Item = u64>) -> u64 {
    let before = db.statistics().cache_misses;
    keys.for_each(|n| check(db, n));
    db.statistics().cache_misses - before
}

fn compact(db: &Db) {
    db.default_family().compact::<&str>(..).unwrap();
}

/// Numbers whose keys lie behind one another, so that they fill whole blocks: a tenth of all, in order of
/// keys.
fn popular() -> impl Iterator<Item = u64> {
    let mut numbers: Vec<u64> = (0..KEYS).filter(|n| n * 7919 % KEYS < KEYS / 10).collect();
    numbers.sort_by_key(|n| key(*n));
    numbers.into_iter()
}

#[test]
fn with_every_policy_answers_are_right_between_all_steps() {
    for fill_by in POLICIES {
        // A cache for a tenth of the data, and one for all.
        for cache in [100 << 10, 4 << 20] {
            let world = SimWorld::new(11);
            let db = open(&world, fill_by, cache);
            fill(&db);
            misses(&db, popular());
            let (reader, steps) = (db.clone(), Rc::new(Cell::new(0)));
            let counted = steps.clone();
            let hook = move |point: &'static str| {
                if point == "compaction-after-install" {
                    counted.set(counted.get() + 1);
                    (0..KEYS).step_by(7).for_each(|n| check(&reader, n));
                    let Statistics { cache_bytes, cache_capacity, .. } = reader.statistics();
                    assert!(cache_bytes <= cache_capacity, "{cache_bytes} bytes of {cache_capacity}");
                }
            };
            with_kill_hook(hook, || compact(&db));
            let expected = if fill_by == CacheFill::Before { 1 } else { 5 };
            assert!(steps.get() >= expected, "{fill_by:?}: {} steps", steps.get());
            (0..KEYS).for_each(|n| check(&db, n));
            assert_eq!(db.scan::<&[u8]>(..).count() as u64, KEYS, "{fill_by:?}");
        }
    }
}

#[test]
fn what_was_read_before_a_compaction_is_in_the_cache_after_it() {
    for fill_by in POLICIES {
        let world = SimWorld::new(12);
        let db = open(&world, fill_by, 300 << 10);
        fill(&db);
        // A cache lets a new block wait until it is read again, beside others that are not.
        for _ in 0..2 {
            misses(&db, popular());
        }
        assert_eq!(misses(&db, popular()), 0, "{fill_by:?}");
        compact(&db);
        let after = misses(&db, popular());
        let blocks = KEYS / 10 * 210 / 4096;
        match fill_by {
            CacheFill::Step => assert!(after <= 1, "{after} of about {blocks} blocks were read again"),
            CacheFill::None => assert!(after >= blocks, "{after} of about {blocks}"),
            // Depends on where they lie.
            CacheFill::WriteThrough | CacheFill::Before | CacheFill::Remote => {}
        }
        let stats = db.statistics();
        let fills = db.events().into_iter().rfind(|e| e.kind == EventKind::CacheFill).unwrap();
        let data = KEYS * 210 / 4096;
        match fill_by {
            CacheFill::None => assert_eq!(stats.cache_filled_blocks, 0),
            CacheFill::Step => {
                let filled = fills.numbers["filled_blocks"];
                assert!((blocks..2 * blocks).contains(&filled), "{filled} of about {blocks}\n{fills}")
            }
            _ => assert!(stats.cache_filled_blocks > data, "{stats:?}"),
        }
        let warm = (fills.numbers["warm_keys"], fills.numbers["keys"]);
        if fill_by == CacheFill::Step {
            assert!((400..=480).contains(&warm.0) && warm.1 == KEYS, "{fills}");
            assert!(fills.numbers["evicted_blocks"] > blocks, "{fills}");
        } else {
            assert_eq!(warm, (0, 0), "{fills}");
        }
    }
}

#[test]
fn what_was_read_of_a_range_stays_in_the_cache_when_memory_is_merged_into_its_file() {
    for fill_by in [CacheFill::None, CacheFill::Step] {
        let world = SimWorld::new(23);
        let db = open_as(&world, fill_by, 300 << 10, 0, "rangemerge{sstable_bytes=4MiB}");
        fill(&db);
        db.wait_idle().unwrap();
        for _ in 0..2 {
            misses(&db, popular());
        }
        assert_eq!(misses(&db, popular()), 0, "{fill_by:?}");
        let (earlier, flushes) = (db.events().len(), db.statistics().flushes);
        let others = (0..KEYS).filter(|n| n * 7919 % KEYS >= KEYS / 10);
        others.for_each(|n| put(&db.default_family(), n, if n.is_multiple_of(3) { 2 } else { 1 }));
        db.wait_idle().unwrap();
        assert!(db.statistics().flushes > flushes, "memory was merged into the file");
        let after = misses(&db, popular());
        let blocks = KEYS / 10 * 210 / 4096;
        let fills =
            db.events().split_off(earlier).into_iter().filter(|event| event.kind == EventKind::CacheFill);
        let told: u64 = fills.map(|event| event.numbers["filled_blocks"]).sum();
        match fill_by {
            CacheFill::None => {
                assert!(after >= blocks && told == 0, "{after} of about {blocks}, {told} told of")
            }
            _ => {
                assert!(after <= 1 && told >= blocks, "{after} of about {blocks} read again, {told} told of")
            }
        }
    }
}

#[test]
fn where_all_fits_every_policy_that_fills_reads_nothing_after_a_compaction() {
    for fill_by in [CacheFill::WriteThrough, CacheFill::Before, CacheFill::Step] {
        let world = SimWorld::new(13);
        let db = open(&world, fill_by, 8 << 20);
        fill(&db);
        misses(&db, 0..KEYS);
        compact(&db);
        let reads = world.storage.op_counts().of(OpKind::Read);
        assert_eq!(misses(&db, 0..KEYS), 0, "{fill_by:?}");
        let reads = world.storage.op_counts().of(OpKind::Read) - reads;
        assert_eq!(reads, 0, "{fill_by:?}: index and filter blocks came with the data");
    }
}

#[test]
fn what_nobody_reads_any_more_is_not_taken_along() {
    let world = SimWorld::new(14);
    let db = open(&world, CacheFill::Step, 300 << 10);
    fill(&db);
    misses(&db, popular());
    // Others are read until the cache has been replaced three times.
    for _ in 0..6 {
        misses(&db, (0..KEYS).filter(|n| n * 7919 % KEYS > KEYS / 2));
    }
    let before = db.statistics().cache_filled_blocks;
    compact(&db);
    assert!(db.statistics().cache_filled_blocks > before, "those are");
    let after = misses(&db, popular());
    assert!(after >= KEYS / 10 * 210 / 4096 / 2, "only {after} blocks were read again");
}

#[test]
fn blocks_of_files_that_are_gone_leave_the_cache() {
    for fill_by in POLICIES {
        let world = SimWorld::new(15);
        let db = open(&world, fill_by, 8 << 20);
        fill(&db);
        misses(&db, 0..KEYS);
        let full = db.statistics().cache_bytes;
        assert!(full > KEYS * 200, "{full}");
        compact(&db);
        db.wait_idle().unwrap();
        let left = db.statistics().cache_bytes;
        match fill_by {
            CacheFill::None => assert!(left < KEYS * 20, "{left} bytes of {full} are left"),
            _ => assert!(left > KEYS * 200 && left < KEYS * 250, "{fill_by:?}: {left}, and {full} before"),
        }
        // What a dropped family had too.
        let other = db.create_family("other", FamilyOptions::default()).unwrap();
        (0..KEYS).for_each(|n| put(&other, n, 1));
        other.flush().unwrap();
        (0..KEYS).for_each(|n| drop(other.get(key(n)).unwrap()));
        assert!(db.statistics().cache_bytes > left + KEYS * 100);
        drop(other);
        db.drop_family("other").unwrap();
        db.wait_idle().unwrap();
        assert!(db.statistics().cache_bytes <= left + 4096, "{fill_by:?}");
    }
}

#[test]
fn a_compaction_that_fails_leaves_nothing_in_the_cache_of_tables_that_never_were() {
    for fill_by in [CacheFill::WriteThrough, CacheFill::Before] {
        let mut failed = 0;
        let fresh = || {
            let world = SimWorld::new(16);
            let db = open(&world, fill_by, 8 << 20);
            fill(&db);
            db.wait_idle().unwrap();
            (world, db)
        };
        let (_world, db) = fresh();
        compact(&db);
        db.wait_idle().unwrap();
        let usual = db.statistics().cache_bytes;
        for nth in (1..60).step_by(3) {
            let (world, db) = fresh();
            world.storage.fail_at_path(OpKind::Write, ".table", nth, Mode::Once, std::io::ErrorKind::Other);
            let compacted = db.default_family().compact::<&str>(..);
            world.storage.clear_faults();
            if compacted.is_err() {
                failed += 1;
                compact(&db);
                db.wait_idle().unwrap();
                let bytes = db.statistics().cache_bytes;
                assert!(bytes <= usual + usual / 33, "{bytes} bytes, {usual} where nothing failed");
            }
            (0..KEYS).for_each(|n| check(&db, n));
        }
        assert!(failed > 5, "{fill_by:?}: {failed} compactions failed");
    }
}

#[test]
fn the_event_of_a_compaction_tells_of_every_block_that_it_put_into_the_cache() {
    for fill_by in [CacheFill::WriteThrough, CacheFill::Before, CacheFill::Step] {
        let world = SimWorld::new(20);
        let db = open(&world, fill_by, 8 << 20);
        fill(&db);
        misses(&db, 0..KEYS);
        let (filled, events) = (db.statistics().cache_filled_blocks, db.events().len());
        compact(&db);
        let fills =
            db.events().split_off(events).into_iter().filter(|event| event.kind == EventKind::CacheFill);
        let told: u64 = fills.map(|event| event.numbers["filled_blocks"]).sum();
        let filled = db.statistics().cache_filled_blocks - filled;
        assert!(filled > 100 && told == filled, "{fill_by:?}: {told} told of {filled}");
    }
}

#[test]
fn compactions_beside_each_other_share_what_their_steps_may_put_into_the_cache() {
    // Of what two families have in the cache, all of it read, and merge one after the other or at once: the
    // steps.
    let steps = |at_once: bool| {
        let world = SimWorld::new(22);
        let write_memory = 1 << 20;
        let options = Options {
            write_memory,
            memory_budget: write_memory + (8 << 20),
            workers: 2,
            cache_fill: CacheFill::Step,
            ..Options::default()
        };
        let waits = "nomerge".parse().unwrap();
        let leveled = StrategyOptions::Leveled(LeveledOptions {
            sstable_bytes: 256 << 10,
            l0_runs_trigger: 100,
            ..Default::default()
        });
        let family = FamilyOptions {
            strategy: waits,
            compression: Compression::None,
            hot_keys: HotKeys::Off,
            ..Default::default()
        };
        let builder = Builder::new().options(options).env(world.env());
        let builder = builder.scheduler(Arc::new(SimScheduler::for_world(&world)));
        let db = builder.family("a", family.clone()).family("b", family).open("/db").unwrap();
        let families = ["a", "b"].map(|name| db.family(name).unwrap());
        for round in 1..=2 {
            for family in &families {
                (0..KEYS).for_each(|n| put(family, n, round));
                family.flush().unwrap();
            }
        }
        for family in &families {
            assert_eq!(family.scan::<&[u8]>(..).count() as u64, KEYS);
        }
        for family in &families {
            family.alter(FamilyOptions { strategy: leveled.clone(), ..family.options() }).unwrap();
        }
        let [a, b] = families;
        let (other, begun) = (b.clone(), Cell::new(!at_once));
        // When the first step of one is done, and it has the cache's share for itself, the other is merged.
        let hook = move |point: &'static str| {
            if point == "compaction-after-install" && !begun.replace(true) {
                other.compact::<&[u8]>(..).unwrap();
            }
        };
        with_kill_hook(hook, || a.compact::<&[u8]>(..).unwrap());
        b.compact::<&[u8]>(..).unwrap();
        let events = db.events();
        let of = |kind, number: &str| -> Vec<u64> {
            events.iter().filter(|event| event.kind == kind).map(|event| event.numbers[number]).collect()
        };
        let (steps, filled) = (of(EventKind::Compaction, "steps"), of(EventKind::CacheFill, "filled_bytes"));
        assert!(
            filled.iter().sum::<u64>() > (8 << 20) / 32 * 4,
            "{filled:?} bytes filled in {steps:?} steps"
        );
        steps
    };
    let (alone, beside) = (steps(false), steps(true));
    assert_eq!((alone.len(), beside.len()), (2, 2), "{alone:?} {beside:?}");
    // The second to begin is the first to end.
    assert!(beside[0] * 2 >= alone[0] * 3, "{beside:?} steps beside each other, {alone:?} alone");
}

#[test]
fn what_was_written_for_a_step_that_failed_is_removed_at_once() {
    for (fill_by, op) in [
        (CacheFill::Before, OpKind::Open),
        (CacheFill::Step, OpKind::Open),
        (CacheFill::Step, OpKind::SyncDir),
        (CacheFill::Step, OpKind::Sync),
    ] {
        for flushes in [false, true] {
            let world = SimWorld::new(21);
            let db = open(&world, fill_by, 8 << 20);
            fill(&db);
            db.wait_idle().unwrap();
            if flushes {
                (0..KEYS).step_by(7).for_each(|n| put(&db.default_family(), n, 3));
            }
            let (storage, armed) = (world.storage.clone(), Cell::new(false));
            let hook = move |point: &'static str| {
                if point == "sstable-written-not-synced" && !armed.replace(true) {
                    storage.fail_at_path(op, "/db", 1, Mode::Once, std::io::ErrorKind::Other);
                }
            };
            let failed = with_kill_hook(hook, || match flushes {
                true => db.flush(),
                false => db.default_family().compact::<&str>(..),
            });
            failed.unwrap_err();
            assert_eq!(world.storage.faults_injected(), 1);
            // What failed is tried again after a while.
            world.clock.advance_us(1_000_000);
            db.flush().unwrap();
            db.wait_idle().unwrap();
            let names = world.env().storage.list(std::path::Path::new("/db")).unwrap();
            let tables = names.iter().filter(|name| name.ends_with(".table")).count();
            let named = db.statistics().sstables;
            assert_eq!(tables as u64, named, "{fill_by:?}, {op:?}, flushes: {flushes}");
        }
    }
}

#[test]
fn a_fill_that_cannot_be_read_is_no_failure_of_the_compaction() {
    let mut failed_fills = 0;
    for nth in (100..300).step_by(9) {
        let world = SimWorld::new(17);
        let db = open(&world, CacheFill::Before, 8 << 20);
        fill(&db);
        db.wait_idle().unwrap();
        // From the last output's making on only the fill reads.
        let (storage, armed) = (world.storage.clone(), Rc::new(Cell::new(0)));
        let at = armed.clone();
        let hook = move |point: &'static str| {
            if point == "sstable-written-not-synced" {
                at.set(at.get() + 1);
                storage.clear_faults();
                storage.fail_at(OpKind::Read, nth, Mode::Once, std::io::ErrorKind::Other);
            }
        };
        let compacted = with_kill_hook(hook, || db.default_family().compact::<&str>(..));
        world.storage.clear_faults();
        let fill = db.events().into_iter().rfind(|e| e.kind == EventKind::CacheFill);
        if fill.is_some_and(|fill| fill.reason.contains("failed")) {
            failed_fills += 1;
            compacted.unwrap();
        }
        (0..KEYS).for_each(|n| check(&db, n));
    }
    assert!(failed_fills > 0, "no fill failed");
}

#[test]
fn a_flush_fills_what_was_updated_in_memory_and_not_the_rest() {
    let world = SimWorld::new(18);
    let db = open(&world, CacheFill::Step, 4 << 20);
    (0..400).for_each(|n| put(&db.default_family(), n, 1));
    // In order of keys, those below a tenth: a second time.
    popular().filter(|n| *n < 400).for_each(|n| put(&db.default_family(), n, 1));
    let low = |n: &u64| n * 7919 % KEYS < KEYS / 10;
    db.flush().unwrap();
    let (filled, hits) = (db.statistics().cache_filled_blocks, db.statistics().cache_hits);
    assert!((1..8).contains(&filled), "{filled} blocks");
    let updated: Vec<u64> = (0..400).filter(low).collect();
    for n in &updated {
        db.get(key(*n)).unwrap().unwrap();
    }
    assert_eq!(db.statistics().cache_hits - hits, updated.len() as u64);
}

#[test]
fn a_throttled_compaction_takes_as_long_as_its_fills() {
    let took = |rate: u64| {
        let world = SimWorld::new(19);
        let db = open(&world, CacheFill::Step, 8 << 20);
        fill(&db);
        misses(&db, 0..KEYS);
        db.set_cache_fill_rate(rate);
        let before = world.env().clock.monotonic_ns();
        compact(&db);
        (world.env().clock.monotonic_ns() - before) as f64 / 1e9
    };
    // About 0.85 MB.
    let (free, slow) = (took(0), took(100_000));
    assert!(slow > 5.0 && slow > 3.0 * free, "{slow} s at 100 kB/s, {free} s without a limit");
}

#[test]
fn a_compaction_rests_beside_readers_and_not_where_nobody_reads() {
    let took = |compaction_pacing: u32, reads: bool| {
        let world = SimWorld::new(20);
        let db = open_resting(&world, CacheFill::Step, 8 << 20, compaction_pacing);
        fill(&db);
        let reader = db.clone();
        let hook = move |_: &str| (0..4).filter(|_| reads).for_each(|n| check(&reader, n));
        let before = world.env().clock.monotonic_ns();
        with_kill_hook(hook, || compact(&db));
        (world.env().clock.monotonic_ns() - before) as f64 / 1e9
    };
    assert_eq!(took(7, false), took(0, false));
    let (free, resting) = (took(0, true), took(7, true));
    assert!(resting > 2.0 * free, "{resting} s, without rests {free} s");
}

/// Compactions that run elsewhere, and the database that has them run there.
fn open_elsewhere(world: &SimWorld, fill: CacheFill, cache: u64, damaged: bool) -> (Db, Elsewhere) {
    let rest = Options::default().tuning.compaction_pacing;
    let builder = builder(world, fill, cache, rest, "leveled{sstable_bytes=32KiB,base_bytes=128KiB}");
    let elsewhere = match damaged {
        true => Elsewhere::faulty(&builder, &[CompactionFault::Damage], 1),
        false => Elsewhere::beside(&builder),
    };
    let db = builder.offload(Arc::new(elsewhere.clone())).open("/db").unwrap();
    (db, elsewhere)
}

/// Bytes that were read from tables beside their ends and indices, about: what `work` reads of the simulated
/// disk.
fn table_reads(world: &SimWorld, work: impl FnOnce()) -> u64 {
    let before = world.storage.op_counts().of(OpKind::Read);
    work();
    world.storage.op_counts().of(OpKind::Read) - before
}

const REMOTE_POLICIES: [CacheFill; 5] =
    [CacheFill::None, CacheFill::WriteThrough, CacheFill::Before, CacheFill::Step, CacheFill::Remote];

#[test]
fn what_was_read_before_a_compaction_elsewhere_comes_from_the_memory_there() {
    for fill_by in REMOTE_POLICIES {
        let world = SimWorld::new(31);
        let (db, elsewhere) = open_elsewhere(&world, fill_by, 1 << 20, false);
        fill(&db);
        for _ in 0..3 {
            misses(&db, popular());
        }
        let before = elsewhere.remote_bytes();
        let filled_before = db.statistics().cache_filled_blocks;
        let inputs = db.default_family().shape().tables().count() as u64;
        compact(&db);
        let came = elsewhere.remote_bytes() - before;
        let blocks = KEYS / 10 * 210 / 4096;
        let all = KEYS * 210 / 4096;
        let filled = db.statistics().cache_filled_blocks - filled_before;
        let fills = db.events().into_iter().rfind(|event| event.kind == EventKind::CacheFill);
        let after = misses(&db, popular());
        match fill_by {
            CacheFill::None => {
                assert_eq!((came, filled), (0, 0));
                assert!(after >= blocks, "{after} of about {blocks} blocks");
            }
            CacheFill::WriteThrough | CacheFill::Before => {
                assert!(filled >= all, "{filled} of about {all} blocks, {came} bytes");
                assert!(came >= all * 4096, "{came} bytes");
                assert_eq!(after, 0, "{fill_by:?}");
            }
            CacheFill::Step => {
                assert!((blocks..3 * blocks).contains(&filled), "{filled} of about {blocks} blocks");
                // All of it, with filters.
                assert!(came >= filled * 3_900, "{came} bytes for {filled} blocks");
                assert!(after <= 1, "{after} of about {blocks} blocks were read again");
                let remote = fills.unwrap().numbers["remote_bytes"];
                assert!(remote > 0 && remote <= came, "{remote} of {came} bytes");
            }
            CacheFill::Remote => {
                // Its outputs are checked by a sketch and the index of each input, which lie there, too.
                assert!(came < (1 + inputs) * (8 << 10), "{came} bytes of {inputs} tables");
                assert_eq!(filled, 0, "readers fetch them");
                assert!(after >= blocks, "{after} of about {blocks} blocks");
                assert!(elsewhere.remote_bytes() - before >= after * 3_900, "{after} blocks came from there");
                let reads = table_reads(&world, || (0..KEYS).for_each(|n| check(&db, n)));
                assert_eq!(reads, 0, "nothing is read from storage");
            }
        }
        if fill_by != CacheFill::None {
            assert_eq!(db.statistics().remote_cache_bytes, elsewhere.remote_bytes(), "{fill_by:?}");
        }
        (0..KEYS).for_each(|n| check(&db, n));
    }
}

#[test]
fn warming_up_reads_no_data_from_storage() {
    let reads = |fill_by| {
        let world = SimWorld::new(32);
        let (db, _elsewhere) = open_elsewhere(&world, fill_by, 2 << 20, false);
        fill(&db);
        misses(&db, 0..KEYS);
        table_reads(&world, || compact(&db))
    };
    let (none, step, all) = (reads(CacheFill::None), reads(CacheFill::Step), reads(CacheFill::WriteThrough));
    // The index of each table once more, in two merges one after the other.
    let tables = 2 * (KEYS * 210 / (32 << 10) + 1);
    let most = none + tables;
    assert!(step <= most && all <= most, "{none} reads without, {step} and {all} with {tables} tables");
}

#[test]
fn what_is_in_the_cache_but_was_not_read_lately_comes_while_there_is_room() {
    let filled = |cache: u64| {
        let world = SimWorld::new(33);
        let (db, _elsewhere) = open_elsewhere(&world, CacheFill::Step, cache, false);
        fill(&db);
        // All of it is in the cache if it fits; what was read lately is a tenth.
        misses(&db, 0..KEYS);
        let periods = db.statistics().cache_hits;
        while db.statistics().cache_hits < periods + 200 * KEYS {
            misses(&db, popular());
        }
        let before = db.statistics().cache_filled_blocks;
        compact(&db);
        (db.statistics().cache_filled_blocks - before, misses(&db, 0..KEYS))
    };
    let all = KEYS * 210 / 4096;
    let (roomy, missed) = filled(4 << 20);
    assert!(
        roomy >= all * 8 / 10 && missed <= all / 10,
        "{roomy} of {all} blocks came, {missed} were missed"
    );
    let (scarce, _) = filled(120 << 10);
    assert!(scarce < all / 2, "{scarce} of {all} blocks came to a cache for a tenth");
}

#[test]
fn wrong_bits_from_the_memory_elsewhere_harm_nobody() {
    for fill_by in REMOTE_POLICIES {
        for seed in [1, 2, 3] {
            let world = SimWorld::new(34 + seed);
            let (db, elsewhere) = open_elsewhere(&world, fill_by, 512 << 10, true);
            fill(&db);
            (0..2).for_each(|_| _ = misses(&db, popular()));
            compact(&db);
            (0..KEYS).for_each(|n| check(&db, n));
            assert_eq!(db.scan::<&[u8]>(..).count() as u64, KEYS);
            let failed = |event: &siltstone::Event| {
                event.kind == EventKind::CacheFill && event.reason.contains("failed")
            };
            let told = db.events().iter().any(failed);
            let expected = !matches!(fill_by, CacheFill::None | CacheFill::Remote);
            assert_eq!(elsewhere.faults() > 0, fill_by != CacheFill::None, "{fill_by:?}, seed {seed}");
            assert_eq!(told, expected, "{fill_by:?}, seed {seed}");
            assert!(!db.events().iter().any(|event| event.kind == EventKind::OffloadFailure));
        }
    }
}

#[test]
fn steps_of_a_compaction_elsewhere_bring_as_much_into_the_cache_as_those_here_may() {
    let steps = |fill_by, is_read: bool| {
        let world = SimWorld::new(36);
        let open = || {
            let strategy = "leveled{sstable_bytes=512KiB,base_bytes=1MiB}";
            let builder = builder(&world, fill_by, 2 << 20, 0, strategy);
            let elsewhere = Elsewhere::beside(&builder);
            (builder.offload(Arc::new(elsewhere.clone())).open("/db").unwrap(), elsewhere)
        };
        let (db, _) = open();
        fill(&db);
        db.close().unwrap();
        // With an empty cache.
        let (db, elsewhere) = open();
        if is_read {
            misses(&db, 0..KEYS);
        }
        let before = elsewhere.steps();
        compact(&db);
        (0..KEYS).for_each(|n| check(&db, n));
        elsewhere.steps() - before
    };
    let bytes = KEYS * 210;
    assert_eq!(
        steps(CacheFill::Step, false),
        bytes.div_ceil(512 << 10),
        "nothing comes, so tables are whole"
    );
    assert_eq!(steps(CacheFill::None, true), bytes.div_ceil(512 << 10));
    let many = steps(CacheFill::Step, true);
    assert!((8..=14).contains(&many), "{many} steps of about 64 KiB");
}
