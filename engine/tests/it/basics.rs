//! Writing, reading, flushing, merging, reopening.

use siltstone::{Batch, Builder, Db, Durability, ErrorKind, KEY_BYTES_MAX, Options, Tuning};

fn small() -> Options {
    Options {
        write_memory: 256 << 10,
        memory_budget: 2 << 20,
        tuning: Tuning { wal_file_bytes: 64 << 10, compaction_step_bytes: 64 << 10, ..Tuning::default() },
        ..Options::default()
    }
}

fn key(n: u32) -> Vec<u8> {
    format!("key{n:06}").into_bytes()
}

#[test]
fn what_was_written_is_read_back_from_memory_tables_and_after_reopening() {
    let dir = tempfile::tempdir().unwrap();
    let db = Builder::new().options(small()).open(dir.path()).unwrap();
    for round in 0..3u32 {
        for n in 0..20_000 {
            db.put(key(n), format!("{round}-{n}").as_bytes()).unwrap();
        }
    }
    for n in (0..20_000).step_by(7) {
        db.delete(key(n)).unwrap();
    }
    let check = |db: &Db| {
        for n in 0..20_000 {
            let expected = (n % 7 != 0).then(|| format!("2-{n}").into_bytes());
            assert_eq!(db.get(key(n)).unwrap().as_deref(), expected.as_deref(), "key {n}");
        }
        let found = db.scan::<&str>(..).map(|e| e.unwrap().key).collect::<Vec<_>>();
        let expected: Vec<_> = (0..20_000).filter(|n| n % 7 != 0).map(key).collect();
        assert_eq!(found, expected);
        let mut back = db.scan::<&str>(..).rev().map(|e| e.unwrap().key).collect::<Vec<_>>();
        back.reverse();
        assert_eq!(back, expected);
    };
    check(&db);
    assert!(db.statistics().flushes > 0);
    db.wait_idle().unwrap();
    check(&db);
    db.default_family().compact::<&str>(..).unwrap();
    check(&db);
    db.close().unwrap();
    assert_eq!(db.get(b"x").unwrap_err().kind(), ErrorKind::Closed);
    let db = Builder::new().options(small()).open(dir.path()).unwrap();
    check(&db);
    drop(db);
    let reader = Builder::new().open_read_only(dir.path()).unwrap();
    check(&reader);
    assert_eq!(reader.put(b"k", b"v").unwrap_err().kind(), ErrorKind::ReadOnly);
}

#[test]
fn a_dropped_database_without_close_is_whole_again() {
    let dir = tempfile::tempdir().unwrap();
    for round in 0..5u32 {
        let db = Builder::new().options(small()).open(dir.path()).unwrap();
        assert_eq!(db.scan::<&str>(..).count() as u32, round * 100);
        for n in round * 100..(round + 1) * 100 {
            db.default_family().put_with(key(n), b"v", Durability::Sync).unwrap();
        }
    }
}

#[test]
fn many_writers_share_the_wal_and_nothing_is_lost() {
    let dir = tempfile::tempdir().unwrap();
    let db = Builder::new().options(small()).open(dir.path()).unwrap();
    std::thread::scope(|scope| {
        for t in 0..4u32 {
            let db = db.clone();
            scope.spawn(move || {
                let family = db.default_family();
                for n in 0..5_000u32 {
                    let mut batch = Batch::new();
                    batch.put(&family, key(t * 10_000 + n), n.to_be_bytes());
                    batch.put(&family, key(100_000 + t * 10_000 + n), n.to_be_bytes());
                    let durability = if n % 500 == 0 { Durability::Sync } else { Durability::Buffered };
                    db.write_with(&batch, durability).unwrap();
                }
            });
        }
    });
    assert_eq!(db.scan::<&str>(..).count(), 40_000);
}

#[test]
fn a_directory_in_use_and_a_missing_database_are_clear_errors() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(dir.path()).unwrap();
    assert_eq!(Db::open(dir.path()).unwrap_err().kind(), ErrorKind::Busy);
    drop(db);
    Db::open(dir.path()).unwrap();
    let none = Builder::new().options(Options { create_if_missing: false, ..Options::default() });
    assert_eq!(none.open(dir.path().join("none")).unwrap_err().kind(), ErrorKind::NotFound);
    let again = Builder::new().options(Options { error_if_exists: true, ..Options::default() });
    assert_eq!(again.open(dir.path()).unwrap_err().kind(), ErrorKind::Invalid);
}

#[test]
fn a_checkpoint_is_the_database_at_its_moment() {
    let dir = tempfile::tempdir().unwrap();
    let db = Builder::new().options(small()).open(dir.path().join("db")).unwrap();
    for n in 0..10_000 {
        db.put(key(n), b"before").unwrap();
    }
    db.checkpoint(dir.path().join("copy")).unwrap();
    for n in 0..10_000 {
        db.put(key(n), b"after").unwrap();
    }
    let copy = Builder::new().options(small()).open(dir.path().join("copy")).unwrap();
    assert_eq!(copy.scan::<&str>(..).filter(|e| e.as_ref().unwrap().value == b"before").count(), 10_000);
    assert_eq!(db.get(key(5)).unwrap().unwrap(), b"after");
}

#[test]
fn deleted_keys_stay_deleted_through_many_reopenings_and_flushes() {
    let dir = tempfile::tempdir().unwrap();
    for round in 0..12u32 {
        let db = Builder::new().options(small()).open(dir.path()).unwrap();
        for n in 0..2_000 {
            if round > 0 {
                let expected = (n % 3 != round.wrapping_sub(1) % 3).then(|| (round - 1).to_be_bytes());
                assert_eq!(
                    db.get(key(n)).unwrap().as_deref(),
                    expected.as_ref().map(|v| &v[..]),
                    "round {round}"
                );
            }
            db.put(key(n), round.to_be_bytes()).unwrap();
        }
        if round % 2 == 0 {
            db.flush().unwrap();
        }
        for n in (0..2_000).filter(|n| n % 3 == round % 3) {
            db.delete(key(n)).unwrap();
        }
        if round % 3 == 0 {
            db.default_family().compact::<&str>(..).unwrap();
        }
    }
}

#[test]
fn a_long_replay_tells_how_far_it_is_before_the_database_is_open() {
    use siltstone::{Builder, Event, EventKind};
    use std::sync::{Arc, Mutex};
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(dir.path()).unwrap();
    for n in 0..20_000u32 {
        db.put(n.to_be_bytes(), [7; 1000]).unwrap();
    }
    db.close().unwrap();
    let told: Arc<Mutex<Vec<Event>>> = Arc::default();
    let into = told.clone();
    let builder = Builder::new().listener(move |event| into.lock().unwrap().push(event.clone()));
    let read_only = builder.clone().open_read_only(dir.path()).unwrap();
    assert!(read_only.events().iter().any(|event| event.kind == EventKind::Replay));
    drop(read_only);
    told.lock().unwrap().clear();
    let db = builder.open(dir.path()).unwrap();
    let kinds: Vec<EventKind> = told.lock().unwrap().iter().map(|event| event.kind).collect();
    let open = kinds.iter().position(|kind| *kind == EventKind::Open).unwrap();
    assert!(open >= 3 && kinds[..open].iter().all(|kind| *kind == EventKind::Replay), "{kinds:?}");
    let told = told.lock().unwrap();
    let (mut last, bytes) = (0, told[open].numbers["wal_bytes"]);
    for event in &told[..open] {
        let (done, total) = (event.numbers["bytes"], event.numbers["total"]);
        assert!(done > last && done <= bytes && (bytes..bytes + (32 << 20)).contains(&total), "{event}");
        last = done;
    }
    assert!(bytes > 20_000_000 && last > bytes / 2, "{last} of {bytes}");
    // They are among those that a later process shows.
    assert!(db.events().iter().filter(|event| event.kind == EventKind::Replay).count() >= 3);
}

/// Counted work: keys that lie side by side are found with one look at each block, as of one moment, in the
/// order asked.
#[test]
fn many_keys_at_once_look_at_each_block_once() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(dir.path()).unwrap();
    let key = |n: u32| format!("{n:06}");
    (0..20_000).for_each(|n| _ = db.put(key(n), [b'v'; 40]).unwrap());
    db.default_family().compact::<&str>(..).unwrap();
    db.put(key(5), "in memory").unwrap();
    let keys: Vec<_> = (0..4_000).rev().map(key).chain(["absent".to_string(), key(5)]).collect();
    let looks = |db: &Db| db.statistics().cache_hits + db.statistics().cache_misses;
    let before = looks(&db);
    let values = db.multi_get(&keys).unwrap();
    let blocks = looks(&db) - before;
    // 4,000 keys of 50 bytes fill some 60 blocks of 4 KiB.
    assert!(blocks < 200, "{blocks} looks");
    for (key, value) in keys.iter().zip(&values) {
        assert_eq!(*value, db.get(key).unwrap(), "{key}");
    }
    assert_eq!(values.last().unwrap().as_ref().unwrap(), "in memory");
}

#[test]
fn a_range_that_begins_or_ends_with_the_longest_key_can_be_deleted() {
    use std::ops::Bound::{Excluded, Included, Unbounded};
    let dir = tempfile::tempdir().unwrap();
    let mut db = Db::open(dir.path()).unwrap();
    let (longest, behind) = (vec![b'y'; KEY_BYTES_MAX], "z");
    for key in [&b"a"[..], &longest, behind.as_bytes()] {
        db.put(key, "v").unwrap();
    }
    let keys = |db: &Db| db.scan::<&str>(..).keys().map(|key| key.unwrap()[0]).collect::<Vec<_>>();
    let family = db.default_family();
    family.delete_range((Excluded(longest.clone()), Unbounded)).unwrap();
    assert_eq!(keys(&db), b"ay");
    family.delete_range((Included(b"y".to_vec()), Included(longest.clone()))).unwrap();
    assert_eq!(keys(&db), b"a");
    drop(family);
    db.close().unwrap();
    db = Db::open(dir.path()).unwrap();
    assert_eq!(keys(&db), b"a");
    db.flush().unwrap();
    assert_eq!(keys(&db), b"a");
    db.default_family().compact::<&str>(..).unwrap();
    assert_eq!(keys(&db), b"a");
    let longer = vec![b'y'; KEY_BYTES_MAX + 1];
    let refused = db.default_family().delete_range(..=longer).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid);
}
