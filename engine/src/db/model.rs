//! Whole databases on simulated disks under shuttle: callers and workers in schedules drawn at random.

use crate::schedule::ThreadScheduler;
use crate::storage::sim::{SimStorage, SimWorld, Survive};
use crate::sync::thread::{JoinHandle, spawn};
use crate::sync::{Limits, check};
use crate::{Batch, Compression, Db, Durability, ErrorKind, FamilyOptions, Options, Tuning};
use std::sync::Arc;

const LIMITS: Limits = Limits { preemptions: 0, schedules: 2_000 };

fn options() -> Options {
    Options {
        write_memory: 16 << 10,
        memory_budget: 24 << 10,
        tuning: Tuning { wal_file_bytes: 4 << 10, ..Tuning::default() },
        ..Options::default()
    }
}

fn open(world: &SimWorld) -> Db {
    open_with(world, options(), FamilyOptions::default())
}

fn open_with(world: &SimWorld, options: Options, family: FamilyOptions) -> Db {
    let builder = Db::builder().options(options).env(world.env()).family("default", family);
    builder.scheduler(Arc::new(ThreadScheduler::new())).open("db").unwrap()
}

/// A world around what is left of a disk.
fn world_of(storage: SimStorage) -> SimWorld {
    SimWorld { storage, ..SimWorld::new(2) }
}

fn beside(db: &Db, work: impl FnOnce(Db) + Send + 'static) -> JoinHandle<()> {
    let db = db.clone();
    spawn(move || work(db))
}

fn value(db: &Db, key: &[u8]) -> Option<Vec<u8>> {
    db.get(key).unwrap().map(|value| value.to_vec())
}

fn join(threads: impl IntoIterator<Item = JoinHandle<()>>) {
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

/// Two keys that are always written together.
fn pair(db: &Db, n: u8) -> Batch {
    let mut batch = Batch::new();
    batch.put(&db.default_family(), b"a", &[n]).put(&db.default_family(), b"b", &[n]);
    batch
}

#[test]
fn a_batch_is_seen_whole_and_its_writer_sees_it_at_once() {
    check(LIMITS, || {
        let db = open(&SimWorld::new(1));
        db.write(&pair(&db, 1)).unwrap();
        let writers = (2..4).map(|n| {
            beside(&db, move |db| {
                let seq = db.write(&pair(&db, n)).unwrap();
                assert!(db.snapshot().seq() >= seq, "a writer sees its own write");
            })
        });
        let writers: Vec<_> = writers.collect();
        for _ in 0..8 {
            let snapshot = db.snapshot();
            let at = db.at(&snapshot);
            let seen = at.get(b"a").unwrap().map(|v| v.to_vec());
            assert_eq!(seen, at.get(b"b").unwrap().map(|v| v.to_vec()), "a half of a batch");
            assert!(seen.is_some());
        }
        join(writers);
        db.close().unwrap();
    });
}

#[test]
fn what_a_sync_acknowledged_survives_a_power_cut_with_all_before_it() {
    check(LIMITS, || {
        let world = SimWorld::new(1);
        let db = open(&world);
        let other = beside(&db, |db| {
            db.put(b"x", b"1").unwrap();
            db.default_family().put_with(b"y", b"2", Durability::Sync).unwrap();
        });
        let storage = world.storage.clone();
        let third = beside(&db, move |db| {
            db.default_family().put_with(b"z", b"3", Durability::Sync).unwrap();
            let left = open(&world_of(storage.clone_crashed(Survive::None, 7)));
            assert_eq!(value(&left, b"z").as_deref(), Some(&b"3"[..]));
            assert!(value(&left, b"y").is_none() || value(&left, b"x").is_some(), "a hole");
            left.close().unwrap();
        });
        join([other, third]);
        let left = open(&world_of(world.storage.clone_crashed(Survive::None, 7)));
        for key in [b"x", b"y", b"z"] {
            assert!(value(&left, key).is_some(), "{}", key.escape_ascii());
        }
        left.close().unwrap();
        db.close().unwrap();
    });
}

#[test]
fn nothing_is_lost_from_sight_while_memory_becomes_tables() {
    check(LIMITS, || {
        let db = open(&SimWorld::new(1));
        db.put(b"old", &[1; 700]).unwrap();
        let writer = beside(&db, |db| {
            db.put(b"new", &[2; 900]).unwrap();
            db.put(b"old", &[3; 900]).unwrap();
        });
        let flusher = beside(&db, |db| db.flush().unwrap());
        let snapshot = db.snapshot();
        let first = db.at(&snapshot).get(b"old").unwrap().map(|v| v[0]);
        for _ in 0..8 {
            let now = value(&db, b"old").map(|v| v[0]);
            assert!(first.is_some() && now >= first, "{first:?}, then {now:?}");
        }
        join([flusher]);
        assert_eq!(db.at(&snapshot).get(b"old").unwrap().map(|v| v[0]), first, "a snapshot does not move");
        join([writer]);
        assert_eq!(value(&db, b"old").map(|v| v[0]), Some(3));
        assert_eq!(value(&db, b"new").map(|v| v[0]), Some(2));
        db.close().unwrap();
    });
}

#[test]
fn who_finds_memory_flushed_finds_the_flush_counted() {
    check(LIMITS, || {
        let db = open(&SimWorld::new(1));
        db.put(b"key", &[1; 700]).unwrap();
        let other = beside(&db, |db| db.flush().unwrap());
        while db.default_family().memtables().iter().any(|memtable| memtable.cells > 0) {}
        db.flush().unwrap();
        assert_eq!(db.statistics().flushes, 1);
        join([other]);
        db.close().unwrap();
    });
}

#[test]
fn readers_share_cached_blocks_with_a_compaction_that_replaces_their_tables() {
    check(LIMITS, || {
        let db = open(&SimWorld::new(1));
        for n in 1..=2 {
            db.put(b"k", &[n; 100]).unwrap();
            db.put(&[n], &[n; 100]).unwrap();
            db.flush().unwrap();
        }
        let readers = (1..=2).map(|n| {
            beside(&db, move |db| {
                assert_eq!(value(&db, &[n]).map(|v| v[0]), Some(n));
                assert_eq!(value(&db, b"k").map(|v| v[0]), Some(2));
            })
        });
        let readers: Vec<_> = readers.collect();
        db.default_family().compact::<&[u8]>(..).unwrap();
        join(readers);
        let found: Vec<u8> = db.scan::<&[u8]>(..).map(|entry| entry.unwrap().value[0]).collect();
        assert_eq!(found, [1, 2, 2]);
        db.close().unwrap();
    });
}

#[test]
fn what_was_acknowledged_before_a_close_is_there_after_it() {
    check(LIMITS, || {
        let world = SimWorld::new(1);
        let db = open(&world);
        let written = Arc::new(parking_lot::Mutex::new(Vec::new()));
        let writers = (0..2u8).map(|n| {
            let written = written.clone();
            beside(&db, move |db| {
                for key in [n, n + 10] {
                    match db.put(&[key], &[key; 900]) {
                        Ok(_) => written.lock().push(key),
                        Err(e) => assert_eq!(e.kind(), ErrorKind::Closed),
                    }
                }
            })
        });
        let writers: Vec<_> = writers.collect();
        db.close().unwrap();
        join(writers);
        drop(db);
        let again = open(&world_of(world.storage.clone_crashed(Survive::None, 7)));
        for key in written.lock().iter() {
            assert_eq!(value(&again, &[*key]), Some(vec![*key; 900]));
        }
        again.close().unwrap();
    });
}

#[test]
fn values_left_in_the_wal_are_in_sight_while_its_files_are_cleaned_and_let_go() {
    check(LIMITS, || {
        let options = Options {
            memory_budget: 1 << 20,
            tuning: Tuning { wal_clean_bytes: 8 << 10, ..options().tuning },
            ..options()
        };
        let family = FamilyOptions {
            wal_values: true,
            wal_values_write_amp_max: 1e6,
            compression: Compression::None,
            ..FamilyOptions::default()
        };
        let world = SimWorld::new(1);
        let db = open_with(&world, options.clone(), family.clone());
        for n in 0..4u8 {
            db.put(&[n], &[n; 900]).unwrap();
        }
        db.flush().unwrap();
        assert!(db.statistics().wal_value_sstables > 0);
        let writer = beside(&db, |db| {
            for n in 4..8u8 {
                db.put(&[n], &[n; 900]).unwrap();
            }
            db.put(&[0], &[9; 900]).unwrap();
            db.flush().unwrap();
        });
        let merger = beside(&db, |db| db.default_family().compact::<&[u8]>(..).unwrap());
        for n in 1..4 {
            assert_eq!(value(&db, &[n]), Some(vec![n; 900]));
        }
        join([writer, merger]);
        db.sync().unwrap();
        let left = open_with(&world_of(world.storage.clone_crashed(Survive::None, 7)), options, family);
        for db in [&db, &left] {
            assert_eq!(value(db, &[0]), Some(vec![9; 900]));
            for n in 1..8 {
                assert_eq!(value(db, &[n]), Some(vec![n; 900]));
            }
        }
        left.close().unwrap();
        db.close().unwrap();
    });
}

#[test]
fn every_key_is_in_sight_while_memory_is_flushed_range_by_range() {
    check(LIMITS, || {
        let strategy = "rangemerge{sstable_bytes=16384, deltas_max=1}".parse().unwrap();
        let compression = Compression::None;
        let family = FamilyOptions { strategy, compression, ..FamilyOptions::default() };
        let world = SimWorld::new(1);
        let db = open_with(&world, options(), family.clone());
        let keys = 12u8;
        for n in 0..keys {
            db.put(&[n * 20], &[1; 900]).unwrap();
        }
        let writer = beside(&db, move |db| {
            for n in (0..keys).rev() {
                db.put(&[n * 20], &[2; 900]).unwrap();
            }
        });
        let flusher = beside(&db, |db| db.flush().unwrap());
        for _ in 0..2 {
            let seen: Vec<u8> = db.scan::<&[u8]>(..).map(|entry| entry.unwrap().value[0]).collect();
            assert_eq!(seen.len(), usize::from(keys), "{seen:?}");
            assert!(seen.is_sorted(), "the later keys were written first: {seen:?}");
        }
        join([writer, flusher]);
        db.sync().unwrap();
        let left = open_with(&world_of(world.storage.clone_crashed(Survive::None, 7)), options(), family);
        for db in [&db, &left] {
            assert!((0..keys).all(|n| value(db, &[n * 20]) == Some(vec![2; 900])));
        }
        left.close().unwrap();
        db.close().unwrap();
    });
}
