//! Streams of changes.
#![allow(clippy::disallowed_methods, reason = "damages and lists real files")]

use siltstone::{
    Batch, Change, ChangeKind, Db, ErrorKind, FamilyOptions, Options, SeqNo, SstableWriter, Tuning,
};
use std::path::Path;
use std::time::Duration;

fn open(dir: &Path, kept: u64, held: u64) -> Db {
    let options = Options {
        write_memory: 4 << 20,
        change_log_bytes: kept,
        tuning: Tuning { wal_file_bytes: 64 << 10, change_log_open_bytes_max: held, ..Tuning::default() },
        ..Options::default()
    };
    Db::builder().options(options).open(dir).unwrap()
}

fn put_of(change: &Change) -> (&[u8], &[u8]) {
    let ChangeKind::Put { key, value, .. } = &change.kind else { panic!("{change:?}") };
    (key, value)
}

/// Writes `count` values from that number on, and flushes now and then.
fn fill(db: &Db, from: u32, count: u32) {
    for n in from..from + count {
        db.put(n.to_be_bytes(), [b'v'; 1000]).unwrap();
        if n % 200 == 199 {
            db.flush().unwrap();
        }
    }
    db.flush().unwrap();
}

#[test]
fn every_batch_comes_once_whole_and_in_order_though_memory_is_flushed() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path(), 0, 64 << 20);
    let other = db.create_family("other", FamilyOptions::default()).unwrap();
    let mut early = db.changes_since(SeqNo::ZERO).unwrap();
    fill(&db, 0, 1_000);
    let mut batch = Batch::new();
    batch.put(&other, "a", "1").delete(&other, "b").delete_range(&db.default_family(), "x".."y");
    let last = db.write(&batch).unwrap();
    assert!(db.statistics().change_log_bytes > 500_000, "the stream holds what it has not read");
    for n in 0..1_000u32 {
        let batch = early.next_batch().unwrap().unwrap();
        assert_eq!(batch.changes.len(), 1);
        assert_eq!(put_of(&batch.changes[0]), (&n.to_be_bytes()[..], &[b'v'; 1000][..]));
        assert_eq!(batch.changes[0].family.as_deref(), Some("default"));
    }
    let three = early.next_batch().unwrap().unwrap();
    assert_eq!((three.last, three.changes.len()), (last, 3));
    let names: Vec<_> = three.changes.iter().map(|change| change.family.as_deref().unwrap()).collect();
    assert_eq!(names, ["other", "other", "default"]);
    assert!(early.next_batch().unwrap().is_none());
    // A stream may begin inside a batch, and at the end.
    let inside = db.changes_since(SeqNo(last.0 - 1)).unwrap().next().unwrap().unwrap();
    assert_eq!(inside.changes, three.changes[2..]);
    assert_eq!(db.changes_since(last).unwrap().count(), 0);
    // Who waits is told of what comes.
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| db.put("late", "1").unwrap());
        let late = early.wait(Duration::from_secs(30)).unwrap().unwrap();
        assert_eq!(late.last, writer.join().unwrap());
    });
    assert_eq!(early.wait(Duration::from_millis(5)).unwrap(), None);
    drop(early);
    assert_eq!(db.statistics().change_log_bytes, 0, "nobody reads it any more");
}

#[test]
fn a_stream_that_falls_behind_is_told_what_it_lost_and_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path(), 0, 300_000);
    let mut changes = db.changes_since(SeqNo::ZERO).unwrap();
    fill(&db, 0, 10);
    for _ in 0..10 {
        changes.next().unwrap().unwrap();
    }
    fill(&db, 10, 3_000);
    assert!(db.statistics().change_log_bytes <= 300_000);
    let lost = changes.next_batch().unwrap_err();
    assert_eq!(lost.kind(), ErrorKind::ChangesLost);
    let rest: Vec<_> = changes.by_ref().map(|batch| batch.unwrap().last.0).collect();
    let first = rest[0];
    assert!(lost.to_string().contains(&format!("the writes 11 to {}", first - 1)), "{lost}");
    assert!(first > 11 && rest.iter().copied().eq(first..=3_010));
}

#[test]
fn what_is_kept_is_there_after_a_reopen_and_what_is_not_logged_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let database = dir.path().join("db");
    {
        let db = open(&database, 10 << 20, 0);
        fill(&db, 0, 1_000);
        db.close().unwrap();
    }
    for _ in 0..3 {
        let db = open(&database, 10 << 20, 0);
        let changes: Vec<_> = db.changes_since(SeqNo::ZERO).unwrap().map(|batch| batch.unwrap()).collect();
        assert_eq!(changes.len(), 1_000);
        assert_eq!(put_of(&changes[999].changes[0]).0, 999u32.to_be_bytes());
    }
    let db = open(&database, 10 << 20, 0);
    let path = dir.path().join("ingested");
    let mut table = SstableWriter::create(&path, &db.default_family().options()).unwrap();
    table.put("ingested", "1").unwrap();
    table.finish().unwrap();
    db.default_family().ingest(&[&path]).unwrap();
    let after = db.put("after", "2").unwrap();
    let mut changes = db.changes_since(SeqNo(1_000)).unwrap();
    let lost = changes.next_batch().unwrap_err();
    assert!(lost.to_string().contains("the writes 1001 to 1001"), "{lost}");
    assert_eq!(changes.next_batch().unwrap().unwrap().last, after);
    drop(changes);
    db.close().unwrap();
    drop(db);
    let report = siltstone::check(&siltstone::storage::Env::local(), &database, &mut |_| {}).unwrap();
    assert!(report.is_clean(), "kept log is no damage: {report:?}");
    // Without the option it goes at the next open.
    let db = open(&database, 0, 0);
    let lost = db.changes_since(SeqNo::ZERO).unwrap().next().unwrap().unwrap_err();
    assert_eq!(lost.kind(), ErrorKind::ChangesLost);
    assert_eq!(db.statistics().change_log_bytes, 0);
}

#[test]
fn writes_to_a_family_that_is_no_more_bear_its_name() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path(), 0, 1 << 20);
    let mut changes = db.changes_since(SeqNo::ZERO).unwrap();
    let left = db.create_family("rows", FamilyOptions::default()).unwrap();
    left.put("a", "1").unwrap();
    let (left, right) = left.split("m", "rows/m").unwrap();
    right.put("z", "2").unwrap();
    left.join(&right).unwrap();
    left.put("z", "3").unwrap();
    db.drop_family("rows").unwrap();
    let names: Vec<_> = changes.by_ref().map(|batch| batch.unwrap().changes[0].family.clone()).collect();
    let names: Vec<_> = names.iter().map(|name| name.as_deref()).collect();
    assert_eq!(names, [Some("rows"), Some("rows/m"), Some("rows")]);
}

#[test]
fn a_number_that_was_never_given_out_is_refused_and_an_error_ends_the_iterator() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path(), 0, 1 << 20);
    let last = db.put("k", "v").unwrap();
    for seq in [SeqNo(last.0 + 1), SeqNo::MAX] {
        assert_eq!(db.changes_since(seq).unwrap_err().kind(), ErrorKind::ChangesLost);
    }
    let mut changes = db.changes_since(SeqNo::ZERO).unwrap();
    assert_eq!(changes.next().unwrap().unwrap().last, last);
    db.close().unwrap();
    assert_eq!(changes.next().unwrap().unwrap_err().kind(), ErrorKind::Closed);
    assert!(changes.next().is_none());
}

#[test]
fn damage_in_a_kept_file_is_lost_changes_and_no_reason_not_to_open() {
    let dir = tempfile::tempdir().unwrap();
    let file = {
        let db = open(dir.path(), 10 << 20, 0);
        fill(&db, 0, 1_000);
        let kept = std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().path());
        let mut logs: Vec<_> = kept.filter(|path| path.extension().is_some_and(|e| e == "log")).collect();
        logs.sort();
        db.close().unwrap();
        logs[2].clone()
    };
    let mut bytes = std::fs::read(&file).unwrap();
    bytes[20_000] ^= 1;
    std::fs::write(&file, &bytes).unwrap();
    let db = open(dir.path(), 10 << 20, 0);
    let (mut shown, mut lost) = (0, 0);
    for batch in db.changes_since(SeqNo::ZERO).unwrap() {
        match batch {
            Ok(batch) => shown += batch.changes.len(),
            Err(e) => {
                assert_eq!(e.kind(), ErrorKind::ChangesLost, "{e}");
                lost += 1;
            }
        }
    }
    assert!(lost == 1 && (900..1_000).contains(&shown), "{shown} shown, {lost} times lost");
    drop(db);
    bytes[3] ^= 1;
    std::fs::write(&file, &bytes).unwrap();
    let db = open(dir.path(), 10 << 20, 0);
    assert!(db.changes_since(SeqNo::ZERO).unwrap().next().unwrap().is_err(), "from there on it is kept");
    assert!(db.changes_since(SeqNo::ZERO).unwrap().filter(Result::is_ok).count() > 500);
}
