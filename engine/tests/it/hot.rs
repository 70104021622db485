//! Hot keys that stay in memory when their store is flushed: what it saves, and the histories that could
//! break it.

use crate::crashes_at;
use siltstone::schedule::SimScheduler;
use siltstone::storage::sim::{Mode, OpKind, SimStorage, SimWorld, Survive};
use siltstone::testing::with_kill_hook;
use siltstone::{
    Batch, Builder, Db, EventKind, Family, FamilyOptions, Options, SstableWriter, Statistics, Tuning,
};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

const WRITE_MEMORY: u64 = 64 << 10;

fn family(hot_keys: &str) -> FamilyOptions {
    // Compactions in memory would leave flushes no updates to count.
    let memory = "none".parse().unwrap();
    FamilyOptions { hot_keys: hot_keys.parse().unwrap(), memtable_policy: memory, ..FamilyOptions::default() }
}

fn open_with(world: &SimWorld, hot_keys: &str) -> Db {
    open_scheduled(world, hot_keys).0
}

fn open_scheduled(world: &SimWorld, hot_keys: &str) -> (Db, Arc<SimScheduler>) {
    let scheduler = Arc::new(SimScheduler::new(world.random.clone()));
    let options = Options {
        write_memory: WRITE_MEMORY,
        memory_budget: 4 * WRITE_MEMORY,
        workers: 1,
        tuning: Tuning { wal_file_bytes: 32 << 10, ..Tuning::default() },
        ..Options::default()
    };
    let db = Builder::new()
        .options(options)
        .env(world.env())
        .scheduler(scheduler.clone())
        .family("default", family(hot_keys))
        .family("other", family("off"))
        .open("/db")
        .unwrap();
    (db, scheduler)
}

fn open(world: &SimWorld) -> Db {
    open_with(world, "factor{hot_factor=1}")
}

fn hot(n: u64) -> Vec<u8> {
    format!("hot{n:02}").into_bytes()
}

/// Keys written once among ten that are written again and again; the value says the round.
fn rounds(db: &Db, rounds: std::ops::Range<u64>) {
    for round in rounds {
        for n in 0..10 {
            db.put(hot(n), format!("{round:>100}").as_bytes()).unwrap();
        }
        for n in 0..5 {
            db.put(format!("cold{round:06}{n}").as_bytes(), [7; 100]).unwrap();
        }
    }
}

fn value(db: &Family, key: &[u8]) -> Option<String> {
    db.get(key).unwrap().map(|value| String::from_utf8(value.to_vec()).unwrap().trim().to_string())
}

/// Writes rounds until the last flush kept something; how many rounds that took.
fn until_kept(db: &Db) -> u64 {
    let mut round = 0;
    while db.statistics().hot_cells == 0 {
        rounds(db, round..round + 1);
        db.wait_idle().unwrap();
        round += 1;
        assert!(round < 1_000, "nothing is ever kept");
    }
    round
}

fn hot_memtables(db: &Db) -> usize {
    let memtables = db.default_family().memtables();
    let newest = memtables.iter().map(|s| s.generation).max().unwrap();
    // The first of a pair of ids is for kept cells.
    memtables.iter().filter(|s| s.state == "flat" && (newest - s.generation) % 2 == 1).count()
}

#[test]
fn hot_keys_stay_in_memory_and_cold_ones_go_to_disk() {
    let run = |hot_keys: &str| -> Statistics {
        let world = SimWorld::new(1);
        let db = open_with(&world, hot_keys);
        rounds(&db, 0..600);
        db.wait_idle().unwrap();
        let done = db.statistics();
        let stay = |world: &SimWorld| {
            let db = open_with(world, hot_keys);
            for n in 0..10 {
                assert_eq!(value(&db.default_family(), &hot(n)).unwrap(), "599", "{hot_keys}");
            }
            assert_eq!(db.scan::<&str>(..).count(), 10 + 3_000);
        };
        stay(&world.with_storage(world.storage.clone_crashed(Survive::All, 1)));
        db.close().unwrap();
        drop(db);
        stay(&world);
        done
    };
    let (off, on) = (run("off"), run("factor{hot_factor=1}"));
    assert_eq!(off.hot_cells, 0);
    assert!(on.hot_cells >= 10 * (on.flushes - 3), "{} kept in {} flushes", on.hot_cells, on.flushes);
    assert!(on.hot_bytes / on.flushes <= WRITE_MEMORY / 10, "{} bytes", on.hot_bytes);
    let (on, off) = (on.flushed_bytes / on.flushes, off.flushed_bytes / off.flushes);
    assert!(on < off, "{on} of {off} bytes a flush");
}

#[test]
fn nothing_is_kept_where_keys_are_written_once_and_the_rule_can_be_switched_off_at_run_time() {
    let world = SimWorld::new(1);
    let db = open(&world);
    for n in 0..3_000u64 {
        db.put((n * 7919 % 3_000).to_be_bytes(), [7; 100]).unwrap();
    }
    db.wait_idle().unwrap();
    let done = db.statistics();
    assert!(done.flushes > 3 && done.hot_cells == 0, "{} in {} flushes", done.hot_cells, done.flushes);
    assert!(db.events().iter().any(|e| e.kind == EventKind::HotKeys && e.reason.contains("few are hot")));
    until_kept(&db);
    db.default_family().alter(family("off")).unwrap();
    let before = db.statistics();
    rounds(&db, 1_000..1_200);
    let after = db.statistics();
    assert!(after.flushes > before.flushes && after.hot_cells == before.hot_cells);
}

#[test]
fn a_cell_kept_eight_times_without_an_update_goes_to_disk() {
    let world = SimWorld::new(1);
    let db = open_with(&world, "factor{hot_factor=0}");
    let from = until_kept(&db);
    // So often that it is hot by its count for longer than that.
    for round in 0..3_000 {
        db.put(b"once hot", format!("{round}").as_bytes()).unwrap();
    }
    let before = db.events().len();
    rounds(&db, from..from + 300);
    db.wait_idle().unwrap();
    let kept =
        |event: &siltstone::Event| (event.kind == EventKind::HotKeys).then(|| event.numbers["hot_cells"]);
    let kept: Vec<u64> = db.events()[before..].iter().filter_map(kept).collect();
    assert!(kept.len() > 12, "{} flushes", kept.len());
    let (with, without) = kept.split_at(8);
    assert_eq!((with, without.iter().max()), (&[11; 8][..], Some(&10)), "{kept:?}");
    assert_eq!(value(&db.default_family(), b"once hot").unwrap(), "2999");
}

#[test]
fn flushes_that_were_asked_for_leave_memory_empty() {
    let world = SimWorld::new(1);
    let db = open(&world);
    let round = until_kept(&db) + 5;
    assert!(hot_memtables(&db) > 0);
    rounds(&db, round - 5..round);
    db.flush().unwrap();
    let memtables = db.default_family().memtables();
    assert!(memtables.iter().all(|s| s.cells == 0), "{memtables:?}");
    assert_eq!(value(&db.default_family(), &hot(3)).unwrap(), format!("{}", round - 1));
}

/// Guard: the sync before a step's edit reaches behind the cells that were logged again.
#[test]
fn a_hot_write_back_is_synced_before_the_manifest_commit() {
    for point in
        ["flush-hot-keys-logged", "install-before-commit", "install-after-commit", "install-after-swap"]
    {
        let world = SimWorld::new(1);
        let db = open(&world);
        let round = until_kept(&db);
        // Everything before the next flush is durable.
        rounds(&db, round..round + 5);
        db.sync().unwrap();
        let kept = db.statistics().hot_cells;
        let images = crashes_at(&world, point, || {
            let mut at = round + 5;
            // Often enough that the WAL went on in another file after the flush set was taken.
            while db.statistics().hot_cells < kept + 200 {
                rounds(&db, at..at + 1);
                db.wait_idle().unwrap();
                at += 1;
            }
        });
        for (i, image) in images.into_iter().enumerate() {
            let world = world.with_storage(image);
            let db = open(&world);
            for n in 0..10 {
                let found = value(&db.default_family(), &hot(n)).and_then(|v| v.parse::<u64>().ok());
                assert!(found >= Some(round + 4), "{point}, image {i}: {found:?} of round {}", round + 4);
            }
        }
    }
}

/// Guard: what lies under a newer range tombstone of its flush set is not kept (`compaction/hot_cells.rs`).
#[test]
fn a_cell_under_a_newer_range_tombstone_is_not_kept() {
    let world = SimWorld::new(1);
    let db = open(&world);
    let round = until_kept(&db);
    rounds(&db, round..round + 2);
    // The snapshot holds on to the deleted cells, so that they survive the flush.
    let snapshot = db.snapshot();
    let flushes = db.statistics().flushes;
    db.default_family().delete_range("hot05"..).unwrap();
    let mut at = round + 2;
    while db.statistics().flushes == flushes {
        for n in 0..5 {
            db.put(hot(n), format!("{at:>100}").as_bytes()).unwrap();
        }
        at += 1;
        db.wait_idle().unwrap();
    }
    let check = |db: &Db| {
        for n in 0..10 {
            assert_eq!(value(&db.default_family(), &hot(n)).is_some(), n < 5, "{n}");
        }
    };
    check(&db);
    for n in 5..10 {
        let old = db.at(&snapshot).get(hot(n)).unwrap().unwrap();
        assert_eq!(old.trim_ascii(), format!("{}", round + 1).as_bytes());
    }
    drop(snapshot);
    check(&open(&world.crash(Survive::All, 1)));
}

fn ingest(world: &SimWorld, db: &Db, value: &[u8]) {
    let mut table = SstableWriter::create_in(&world.env(), "/prepared", &family("off")).unwrap();
    (0..10).for_each(|n| table.put(hot(n), value).unwrap());
    table.finish().unwrap();
    db.default_family().ingest(&["/prepared"]).unwrap();
}

/// Guard: a flush for an ingest keeps nothing, and claims the generation of all that was logged again.
#[test]
fn ingested_cells_are_above_kept_ones_also_after_a_crash() {
    let world = SimWorld::new(1);
    let db = open(&world);
    until_kept(&db);
    assert!(hot_memtables(&db) > 0);
    ingest(&world, &db, b"ingested");
    let check = |db: &Db| {
        for n in 0..10 {
            assert_eq!(value(&db.default_family(), &hot(n)).unwrap(), "ingested");
        }
    };
    check(&db);
    check(&open(&world.crash(Survive::All, 1)));
}

/// Guard: a flush that is taken up again claims the generation reserved for kept cells.
#[test]
fn cells_logged_again_by_a_flush_that_failed_do_not_come_back_over_ingested_ones() {
    let world = SimWorld::new(1);
    let db = open(&world);
    let round = until_kept(&db);
    let disk = world.storage.clone();
    let failed = Rc::new(RefCell::new(false));
    let (mut logged, once) = (false, failed.clone());
    let hook = move |name| {
        logged |= name == "flush-hot-keys-logged";
        if name == "flush-before-install" && logged && !once.replace(true) {
            // What was logged again is durable; the edit is not made.
            disk.fail_at(OpKind::SyncDir, 1, Mode::Once, std::io::ErrorKind::Other);
        }
    };
    with_kill_hook(hook, || {
        let mut at = round;
        while !*failed.borrow() {
            rounds(&db, at..at + 1);
            let _ = db.wait_idle();
            at += 1;
        }
    });
    world.storage.clear_faults();
    assert!(db.events().iter().any(|e| e.kind == EventKind::Failure), "the flush failed");
    world.clock.advance_us(1_000_000);
    ingest(&world, &db, b"ingested");
    let again = open(&world.crash(Survive::All, 1));
    for n in 0..10 {
        assert_eq!(value(&again.default_family(), &hot(n)).unwrap(), "ingested");
    }
}

/// Guard: each store's part of a batch has its own generation, and the WAL is synced before a part is in
/// tables.
#[test]
fn a_batch_over_two_families_is_whole_when_one_was_flushed_and_kept_its_part() {
    for point in ["flush-hot-keys-logged", "install-after-commit", "install-after-note", "wal-before-release"]
    {
        let world = SimWorld::new(1);
        let db = open(&world);
        let round = until_kept(&db);
        let (one, other) = (db.default_family(), db.family("other").unwrap());
        let kept = db.statistics().hot_cells;
        let images = crashes_at(&world, point, || {
            let mut at = round;
            while db.statistics().hot_cells == kept {
                for n in 0..10 {
                    let mut batch = Batch::new();
                    let text = format!("{at:>100}");
                    batch.put(&one, hot(n), text.as_bytes()).put(&other, hot(n), text.as_bytes());
                    db.write(&batch).unwrap();
                }
                db.put(format!("cold{at:06}").as_bytes(), [7; 200]).unwrap();
                db.wait_idle().unwrap();
                at += 1;
            }
        });
        for (i, image) in images.into_iter().enumerate() {
            let db = open(&world.with_storage(image));
            for n in 0..10 {
                let of = |name: &str| value(&db.family(name).unwrap(), &hot(n));
                // The other family has no part in the rounds before.
                if let Some(found) = of("other") {
                    assert_eq!(of("default").unwrap(), found, "{point}, image {i}");
                } else {
                    let found: u64 = of("default").unwrap().parse().unwrap();
                    assert!(found < round, "{point}, image {i}: {found} in one family only");
                }
            }
        }
    }
}

/// Two guards, of which each is enough: recovery records where history ended, and the header of the file that
/// it goes on in says it too (`wal/recover.rs`, `recorded_end` and `successor`). Without both this fails.
#[test]
fn a_second_crash_after_a_torn_tail_loses_no_kept_cell() {
    // Where the newest WAL file has no header yet, has one that is not synced, or ends in half a frame.
    for point in ["wal-file-taken", "wal-file-begun", "wal-copied-not-ended"] {
        let world = SimWorld::new(1);
        let db = open(&world);
        let round = until_kept(&db);
        rounds(&db, round..round + 5);
        // So that the WAL is needed from here on.
        db.family("other").unwrap().put(b"stays", b"in memory").unwrap();
        db.sync().unwrap();
        let kept = db.statistics().hot_cells;
        let mut images = crashes_at(&world, point, || {
            let mut at = round + 5;
            while db.statistics().hot_cells < kept + 60 {
                rounds(&db, at..at + 1);
                db.wait_idle().unwrap();
                at += 1;
            }
        });
        let step = images.len().div_ceil(60);
        for (i, image) in images.drain(..).enumerate().step_by(step) {
            let mut world = world.with_storage(image);
            let mut synced = round + 4;
            for life in 0..6 {
                let db = open(&world);
                for n in 0..10 {
                    let found = value(&db.default_family(), &hot(n)).and_then(|v| v.parse::<u64>().ok());
                    assert!(found >= Some(synced), "{point}, image {i}, life {life}: {found:?} of {synced}");
                }
                assert_eq!(value(&db.family("other").unwrap(), b"stays").unwrap(), "in memory");
                if life % 2 == 0 {
                    // The manifest tells of a WAL behind the torn tail before anything of that is durable.
                    db.default_family().flush().unwrap();
                } else {
                    synced = 10_000 * (life + 1);
                    rounds(&db, synced..synced + 1);
                    db.sync().unwrap();
                    // These may be torn.
                    rounds(&db, synced + 1..synced + 2);
                }
                let survive = [Survive::None, Survive::Half][life as usize / 2 % 2];
                let storage = world.storage.crash(survive, i as u64);
                drop(db);
                world = world.with_storage(storage);
                // The next one dies while it opens, with a file behind the torn tail of which nothing may be
                // durable.
                let mut deaths = crashes_at(&world, "wal-file-begun", || drop(open(&world)));
                world = world.with_storage(deaths.swap_remove((i + life as usize) % 3));
            }
        }
    }
}

/// Guard: each memtable that recovery makes is for a stretch of sequence numbers (`catalog/replay.rs`).
#[test]
fn what_was_logged_again_behind_newer_writes_of_its_key_hides_none_of_them_after_a_crash() {
    for seed in 0..3 {
        let world = SimWorld::new(seed);
        let (db, scheduler) = open_scheduled(&world, "factor{hot_factor=0}");
        let (next, images) = (Rc::new(Cell::new(0)), Rc::<RefCell<Vec<(SimStorage, u64)>>>::default());
        let writer = db.clone();
        let (at, into, disk) = (next.clone(), images.clone(), world.storage.clone());
        let write = move |writes: u64| {
            for n in at.get()..at.get() + writes {
                writer.put(hot(n % 20), format!("{n:>100}").as_bytes()).unwrap();
                at.set(n + 1);
            }
        };
        let (at, beside, writer) = (next.clone(), write.clone(), db.clone());
        let mut cold = 0;
        let hook = move |name| match name {
            // Before a flush logs its hot keys again they are written once more, and behind that more than a
            // memtable of others.
            "sstable-written-not-synced" => {
                beside(20);
                for _ in 0..60 {
                    writer.put(format!("cold{cold:08}").as_bytes(), [7; 100]).unwrap();
                    cold += 1;
                }
            }
            "flush-hot-keys-logged" | "flush-after-install" => {
                into.borrow_mut().push((disk.clone_killed(), at.get() - 1));
            }
            _ => {}
        };
        with_kill_hook(hook, || {
            while next.get() < 6_000 {
                write(1);
                scheduler.run(1);
            }
        });
        let images = images.take();
        assert!(images.len() > 20 && db.statistics().hot_cells > 200, "{} images", images.len());
        for (image, n) in images {
            let again = open(&world.with_storage(image));
            for last in n - 19..=n {
                let found = value(&again.default_family(), &hot(last % 20)).unwrap();
                assert_eq!(found, last.to_string(), "seed {seed} after {n} writes");
            }
        }
    }
}
