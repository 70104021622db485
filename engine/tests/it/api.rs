//! What the API promises, one story each.

use siltstone::{
    Batch, Builder, CompactionControl, CompactionFilter, Db, Durability, ErrorKind, EventKind, FamilyOptions,
    MergeOperator, Options, SstableWriter, Timestamp, Timestamps, Tuning,
};
use std::ops::Bound;
use std::sync::Arc;

struct Sum;
impl MergeOperator for Sum {
    fn merge(&self, _: &[u8], base: Option<&[u8]>, operands: &[&[u8]]) -> siltstone::Result<Vec<u8>> {
        let refused = || siltstone::Error::new(ErrorKind::MergeRefused, "not a number");
        let number = |bytes: &[u8]| {
            assert_ne!(bytes, b"panic", "an operator's own bug");
            let text = std::str::from_utf8(bytes).map_err(|_| refused())?;
            text.parse::<i64>().map_err(|_| refused())
        };
        let mut sum = base.map_or(Ok(0), number)?;
        for operand in operands {
            sum += number(operand)?;
        }
        Ok(sum.to_string().into_bytes())
    }
}

struct NoDrafts;
impl CompactionFilter for NoDrafts {
    fn remove(&self, key: &[u8], _: Timestamp, _: &[u8], _: u64) -> bool {
        key.starts_with(b"draft/")
    }
}

fn builder() -> Builder {
    Builder::new().merge_operator("sum", Arc::new(Sum)).filter("no-drafts", Arc::new(NoDrafts))
}

fn keys(db: &Db) -> Vec<String> {
    db.scan::<&str>(..).map(|e| String::from_utf8(e.unwrap().key).unwrap()).collect()
}

#[test]
fn merge_operands_add_up_across_memtables_sstables_and_reopening() {
    let dir = tempfile::tempdir().unwrap();
    let options = FamilyOptions { merge_operator: Some("sum".into()), ..Default::default() };
    let db = builder().family("default", options).open(dir.path()).unwrap();
    let family = db.default_family();
    family.put(b"n", b"5").unwrap();
    db.flush().unwrap();
    family.merge(b"n", b"2").unwrap();
    let before = db.snapshot();
    db.flush().unwrap();
    family.merge(b"n", b"10").unwrap();
    family.merge(b"new", b"1").unwrap();
    let check = |db: &Db| {
        assert_eq!(db.get(b"n").unwrap().unwrap(), b"17");
        assert_eq!(db.get(b"new").unwrap().unwrap(), b"1");
        assert_eq!(db.scan::<&str>(..).next().unwrap().unwrap().value, b"17");
    };
    check(&db);
    family.compact::<&str>(..).unwrap();
    check(&db);
    assert_eq!(db.at(&before).get(b"n").unwrap().unwrap(), b"7");
    drop((before, family));
    db.close().unwrap();
    let without = Db::open(dir.path()).unwrap();
    assert_eq!(without.get(b"n").unwrap_err().kind(), ErrorKind::Unsupported);
    let refused = without.default_family().merge(b"n", b"1").unwrap_err().kind();
    assert_eq!(refused, ErrorKind::Unsupported, "operator not registered");
    without.close().unwrap();
    check(&builder().open(dir.path()).unwrap());
}

#[test]
fn range_deletes_hide_older_writes_everywhere_and_spare_newer_ones() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(dir.path()).unwrap();
    let family = db.default_family();
    for key in ["a", "b", "c", "d", "e"] {
        db.put(key.as_bytes(), b"1").unwrap();
    }
    db.flush().unwrap();
    let before = db.snapshot();
    family.delete_range("b".."d").unwrap();
    db.put(b"c", b"2").unwrap();
    for step in 0..4 {
        assert_eq!(keys(&db), ["a", "c", "d", "e"], "step {step}");
        assert_eq!(db.get(b"b").unwrap(), None);
        assert_eq!(db.get(b"c").unwrap().unwrap(), b"2");
        assert_eq!(db.at(&before).get(b"b").unwrap().unwrap(), b"1");
        match step {
            0 => db.flush().unwrap(),
            1 => family.compact::<&str>(..).unwrap(),
            _ => {}
        }
    }
    drop(before);
    family.compact::<&str>(..).unwrap();
    assert_eq!(keys(&db), ["a", "c", "d", "e"]);
    let (_, _, table) = family.shape().tables().next().map(|(l, r, t)| (l, r.id, t.clone())).unwrap();
    assert_eq!((table.cells, table.range_tombstones), (4, 0));
}

#[test]
fn filtered_values_are_gone_at_once_and_their_bytes_with_the_next_compaction() {
    let dir = tempfile::tempdir().unwrap();
    let db = builder().open(dir.path()).unwrap();
    db.put(b"draft/1", b"x").unwrap();
    db.put(b"final/1", b"y").unwrap();
    let family = db.default_family();
    family.alter(FamilyOptions { compaction_filter: Some("no-drafts".into()), ..family.options() }).unwrap();
    assert_eq!(db.get(b"draft/1").unwrap(), None);
    assert_eq!(keys(&db), ["final/1"]);
    family.compact::<&str>(..).unwrap();
    assert_eq!(family.shape().tables().map(|(_, _, t)| t.cells).sum::<u64>(), 1);
}

#[test]
fn versions_timestamps_and_deletes_by_time() {
    let dir = tempfile::tempdir().unwrap();
    let options = FamilyOptions { timestamps: Timestamps::Explicit, versions: 0, ..Default::default() };
    let db = Builder::new().family("h", options).open(dir.path()).unwrap();
    let h = db.family("h").unwrap();
    for t in [5, 1, 9, 3, 7] {
        h.put_at(b"k", Timestamp(t), t.to_string().as_bytes()).unwrap();
        db.flush().unwrap();
    }
    let times = || h.get_versions(b"k", 100).unwrap().iter().map(|(t, _)| t.0).collect::<Vec<_>>();
    assert_eq!(times(), [9, 7, 5, 3, 1]);
    h.delete_at(b"k", Timestamp(3)).unwrap();
    assert_eq!(times(), [9, 7, 5]);
    h.delete_range_at("k".."l", Timestamp(6), Timestamp(8)).unwrap();
    assert_eq!(times(), [9, 5]);
    h.put_at(b"k", Timestamp(2), b"late").unwrap();
    assert_eq!(times(), [9, 5, 2]);
    h.compact::<&str>(..).unwrap();
    assert_eq!(times(), [9, 5, 2]);
    let back: Vec<u64> = h.scan::<&str>(..).rev().map(|e| e.unwrap().timestamp.0).collect();
    assert_eq!(back, [2, 5, 9]);
    h.alter(FamilyOptions { versions: 1, ..h.options() }).unwrap();
    assert_eq!(times(), [9]);
    assert_eq!(h.get(b"k").unwrap().unwrap(), b"9");
    assert!(db.put(b"", b"empty key").map(|_| db.get(b"").unwrap().is_some()).unwrap());
    let wrong = h.alter(FamilyOptions { timestamps: Timestamps::Implicit, versions: 1, ..h.options() });
    assert_eq!(wrong.unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(db.default_family().put_at(b"k", Timestamp(1), b"").unwrap_err().kind(), ErrorKind::Invalid);
    let bounded = db.default_family().delete_range_at("a".."z", Timestamp(0), Timestamp(1));
    assert_eq!(bounded.unwrap_err().kind(), ErrorKind::Invalid);
}

#[test]
fn reads_of_a_range_of_time_answer_from_what_speaks_of_it() {
    let dir = tempfile::tempdir().unwrap();
    let options = FamilyOptions { timestamps: Timestamps::Explicit, versions: 0, ..Default::default() };
    let db = Builder::new().family("h", options).open(dir.path()).unwrap();
    let h = db.family("h").unwrap();
    let at = Timestamp;
    // Three tables: of the times 1 to 3, 4 to 6 and 7 to 9; memory has the time 10.
    for t in 1..=10 {
        h.put_at(b"a", at(t), t.to_string().as_bytes()).unwrap();
        h.put_at(b"b", at(t), b"x").unwrap();
        if t % 3 == 0 {
            h.flush().unwrap();
        }
    }
    assert_eq!(h.shape().tables().count(), 3);
    let lookups = || db.statistics().cache_hits + db.statistics().cache_misses;
    let all = (Bound::Unbounded, Bound::Unbounded);
    let read = |times: (Bound<Timestamp>, Bound<Timestamp>)| {
        let before = lookups();
        let got = h.get_versions_in(b"a", times, 100).unwrap();
        let got: Vec<u64> = got.iter().map(|(t, _)| t.0).collect();
        let by_get = lookups() - before;
        let scanned: Vec<_> = h.scan("a"..="a").times(times).map(|e| e.unwrap().timestamp.0).collect();
        let by_scan = lookups() - before - by_get;
        let mut back: Vec<_> = h.scan("a"..="a").times(times).rev().map(|e| e.unwrap().timestamp.0).collect();
        back.reverse();
        assert_eq!((&got, &got), (&scanned, &back), "{times:?}");
        (got, by_get, by_scan)
    };
    let from_to = |from, to| (Bound::Included(at(from)), Bound::Excluded(at(to)));
    read(all); // whose first look opens the tables
    let (times, one_get, one_scan) = read(from_to(4, 7));
    assert_eq!(times, [6, 5, 4]);
    assert!(one_get > 0 && one_scan > 0);
    assert_eq!(read(from_to(5, 6)), (vec![5], one_get, one_scan), "one table");
    assert_eq!(read(from_to(3, 5)), (vec![4, 3], 2 * one_get, 2 * one_scan), "two tables");
    assert_eq!(read(from_to(10, 11)), (vec![10], 0, 0), "memory alone");
    assert_eq!(read(from_to(11, 99)), (vec![], 0, 0));
    assert_eq!(read(from_to(5, 5)), (vec![], 0, 0));
    assert_eq!(read((Bound::Excluded(at(8)), Bound::Unbounded)).0, [10, 9]);
    let two = h.get_versions_in(b"a", at(2)..at(9), 2).unwrap();
    assert_eq!(two.iter().map(|(t, _)| t.0).collect::<Vec<_>>(), [8, 7], "the newest of those");

    // A delete of later times hides earlier ones, from wherever it is.
    h.delete_at(b"a", at(5)).unwrap();
    h.flush().unwrap();
    assert_eq!(read(from_to(4, 5)).0, [0; 0], "by a table of the time 5 alone");
    h.delete_range_at("a".."b", at(7), at(8)).unwrap();
    for step in ["memory", "a table", "merged"] {
        assert_eq!(read(from_to(4, 9)).0, [6], "the deletes in {step}");
        assert_eq!(read(all).0, [10, 9, 6], "the deletes in {step}");
        match step {
            "memory" => h.flush().unwrap(),
            _ => h.compact::<&str>(..).unwrap(),
        }
    }

    // Which versions there are does not depend on the times asked for: b has 10, 9 and 8 left.
    let snapshot = db.snapshot();
    h.alter(FamilyOptions { versions: 3, ..h.options() }).unwrap();
    let stamps = |found: Vec<(Timestamp, siltstone::Pinned)>| found.iter().map(|f| f.0.0).collect::<Vec<_>>();
    for _ in 0..2 {
        assert_eq!(stamps(h.get_versions_in(b"b", at(1)..at(9), 9).unwrap()), [8]);
        assert_eq!(stamps(h.at(&snapshot).get_versions_in(b"b", at(7)..=at(9), 9).unwrap()), [9, 8]);
        let seen: Vec<_> = h.at(&snapshot).scan("b"..).times(..at(9)).map(|e| e.unwrap().timestamp).collect();
        assert_eq!(seen, [at(8)]);
        for t in 11..=12 {
            h.put_at(b"c", at(t), b"later").unwrap();
        }
        h.flush().unwrap();
    }
    h.put_at(b"b", at(20), b"x").unwrap();
    assert_eq!(stamps(h.get_versions_in(b"b", at(1)..at(9), 9).unwrap()), [0; 0], "memory's counts too");

    // Only the tables that a range tombstone speaks of are read for it.
    h.delete_range_at("a".."z", at(1), at(2)).unwrap();
    h.compact::<&str>(..).unwrap();
    h.put_at(b"z", at(90), b"x").unwrap();
    h.flush().unwrap();
    let read = |times| {
        let before = lookups();
        h.scan::<&str>(..).times(times).for_each(|entry| drop(entry.unwrap()));
        lookups() - before
    };
    h.alter(FamilyOptions { versions: 0, ..h.options() }).unwrap();
    drop(snapshot);
    let later = db.snapshot();
    h.delete_range_at("a".."z", at(1), at(2)).unwrap();
    h.put_at(b"zz", at(95), b"x").unwrap();
    h.flush().unwrap();
    assert_eq!(read(from_to(40, 50)), 0, "nothing is of those times");
    assert_eq!(read(from_to(90, 99)), 2 * read(from_to(95, 99)));
    assert!(read(from_to(2, 9)) > 0);
    drop(later);

    // Without timestamps there is no time to ask for.
    let plain = db.default_family();
    plain.put(b"k", b"v").unwrap();
    assert_eq!(plain.get_versions_in(b"k", .., 9).unwrap().len(), 1);
    assert_eq!(plain.scan::<&str>(..).times(..).count(), 1);
    let refused = plain.get_versions_in(b"k", at(1).., 9).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid);
    let scanned: Vec<_> = plain.scan::<&str>(..).times(..at(5)).map(|e| e.unwrap_err().kind()).collect();
    assert_eq!(scanned, [ErrorKind::Invalid]);
    let mut refused = plain.scan::<&str>(..).times(..at(5));
    assert!(refused.next().unwrap().is_err() && refused.next().is_none());
    let mut refused = plain.scan::<&str>(..).times(..at(5)).cursor();
    assert!(refused.first().is_err() && refused.seek("a").is_err() && refused.entry().is_none());
    let mut begun = plain.scan::<&str>(..);
    begun.next().unwrap().unwrap();
    assert_eq!(begun.times(..).next().unwrap().unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(plain.scan::<&str>(..).times(..at(5)).times(..).count(), 1, "the last that is said counts");
}

/// Merge operands outside the times read are not combined: their base may lie in an SSTable that the read
/// skips.
#[test]
fn reads_of_a_range_of_time_combine_nothing_of_other_times() {
    struct NeedsBase;
    impl MergeOperator for NeedsBase {
        fn merge(&self, _: &[u8], base: Option<&[u8]>, operands: &[&[u8]]) -> siltstone::Result<Vec<u8>> {
            Ok([base.expect("there is a base"), &operands.concat()].concat())
        }
    }
    let dir = tempfile::tempdir().unwrap();
    let options = FamilyOptions {
        timestamps: Timestamps::Explicit,
        versions: 0,
        merge_operator: Some("needs-base".into()),
        ..Default::default()
    };
    let builder = Builder::new().merge_operator("needs-base", Arc::new(NeedsBase));
    let db = builder.family("h", options).open(dir.path()).unwrap();
    let h = db.family("h").unwrap();
    h.put_at(b"k", Timestamp(20), b"base").unwrap();
    h.flush().unwrap();
    h.put_at(b"k", Timestamp(5), b"five").unwrap();
    let mut batch = Batch::new();
    batch.merge_at(&h, b"k", Timestamp(20), b"+more");
    db.write(&batch).unwrap();
    let found = h.get_versions_in(b"k", Timestamp(5)..Timestamp(6), 9).unwrap();
    assert_eq!(found.iter().map(|(t, v)| (t.0, v.to_vec())).collect::<Vec<_>>(), [(5, b"five".to_vec())]);
    let scanned: Vec<_> = h.scan::<&str>(..).times(..Timestamp(6)).map(|e| e.unwrap().timestamp.0).collect();
    assert_eq!(scanned, [5]);
    assert_eq!(h.get_versions_in(b"k", Timestamp(20).., 9).unwrap()[0].1, b"base+more");
}

#[test]
fn a_table_for_a_family_of_the_other_kind_of_timestamps_is_not_taken_in() {
    let dir = tempfile::tempdir().unwrap();
    let explicit = FamilyOptions { timestamps: Timestamps::Explicit, versions: 0, ..Default::default() };
    // Its cells know the moment of writing, which is no timestamp.
    let aging = FamilyOptions { ttl_us: u64::MAX, ..Default::default() };
    let db = Builder::new()
        .family("explicit", explicit.clone())
        .family("aging", aging.clone())
        .open(dir.path().join("db"))
        .unwrap();
    for (name, options) in [("explicit", explicit), ("aging", aging)] {
        let path = dir.path().join(name);
        let mut table = SstableWriter::create(&path, &options).unwrap();
        table.put(b"k", name.as_bytes()).unwrap();
        table.finish().unwrap();
    }
    for (table, family) in [("explicit", "aging"), ("aging", "explicit")] {
        let family = db.family(family).unwrap();
        let refused = family.ingest(&[dir.path().join(table)]).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Invalid);
        assert!(refused.to_string().contains(table), "{refused}");
        family.ingest(&[dir.path().join(family.name())]).unwrap();
        assert_eq!(family.get(b"k").unwrap().unwrap(), family.name().as_bytes());
    }
}

#[test]
fn families_come_and_go_and_batches_span_them() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(dir.path()).unwrap();
    let other = db.create_family("other", FamilyOptions::default()).unwrap();
    assert_eq!(db.create_family("other", FamilyOptions::default()).unwrap_err().kind(), ErrorKind::Invalid);
    let mut batch = Batch::new();
    batch.put(&db.default_family(), b"k", b"1").put(&other, b"k", b"2").delete(&other, b"x");
    db.write_with(&batch, Durability::Sync).unwrap();
    db.drop_family("other").unwrap();
    assert_eq!(other.put(b"k", b"3").unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(other.get(b"k").unwrap_err().kind(), ErrorKind::NotFound);
    let again = db.create_family("other", FamilyOptions::default()).unwrap();
    assert_eq!(again.get(b"k").unwrap(), None, "a new family of an old name is empty");
    drop((batch, other, again));
    db.close().unwrap();
    let db = Db::open(dir.path()).unwrap();
    assert_eq!(db.families(), ["default", "other"]);
    assert_eq!(db.family("other").unwrap().get(b"k").unwrap(), None);
    assert_eq!(db.get(b"k").unwrap().unwrap(), b"1");
    assert!(db.events().iter().any(|e| e.kind == EventKind::Family));
}

#[test]
fn ingested_tables_are_newer_than_memory_and_older_than_later_writes() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("in.table");
    let mut table = SstableWriter::create(&path, &FamilyOptions::default()).unwrap();
    for n in 0..100u8 {
        table.put([n], b"ingested").unwrap();
    }
    assert_eq!(table.put([5], b"").unwrap_err().kind(), ErrorKind::Invalid);
    table.finish().unwrap();
    let db = Db::open(dir.path().join("db")).unwrap();
    db.put([7], b"older").unwrap();
    let before = db.snapshot();
    db.default_family().ingest(&[&path]).unwrap();
    db.put([8], b"newer").unwrap();
    for _ in 0..2 {
        assert_eq!(db.get([7]).unwrap().unwrap(), b"ingested");
        assert_eq!(db.get([8]).unwrap().unwrap(), b"newer");
        assert_eq!(db.at(&before).get([7]).unwrap().unwrap(), b"older");
        assert_eq!(db.at(&before).get([9]).unwrap(), None);
        assert_eq!(db.scan::<&str>(..).count(), 100);
        db.default_family().compact::<&str>(..).unwrap();
    }
    assert_eq!(db.default_family().ingest(&[dir.path().join("none")]).unwrap_err().kind(), ErrorKind::Io);
}

#[test]
fn wrong_calls_are_refused_and_harm_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options { write_memory: 64 << 10, memory_budget: 1 << 20, ..Options::default() };
    let db = Builder::new().options(options).open(dir.path()).unwrap();
    let invalid = |result: siltstone::Result<siltstone::SeqNo>| {
        assert_eq!(result.unwrap_err().kind(), ErrorKind::Invalid);
    };
    invalid(db.put(vec![0; (64 << 10) + 1], b""));
    db.put(vec![0; 64 << 10], b"longest key").unwrap();
    invalid(db.default_family().merge(b"k", b"no operator"));
    let mut batch = Batch::new();
    for n in 0..100u8 {
        batch.put(&db.default_family(), [n], [0; 4 << 10]);
    }
    invalid(db.write(&batch));
    let control = CompactionControl::default();
    control.cancel();
    let canceled = db.default_family().compact_with::<&str>(.., &control);
    assert_eq!(canceled.unwrap_err().kind(), ErrorKind::Canceled);
    assert_eq!(db.scan::<&str>(..).count(), 1);
    let bad = Options { write_memory: 1, ..Options::default() };
    assert_eq!(
        Builder::new().options(bad).open(dir.path().join("x")).unwrap_err().kind(),
        ErrorKind::Invalid
    );
}

#[test]
fn a_value_larger_than_memory_and_wal_files_is_stored_whole() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options {
        write_memory: 64 << 10,
        memory_budget: 1 << 20,
        tuning: Tuning { wal_file_bytes: 16 << 10, ..Tuning::default() },
        ..Options::default()
    };
    let big: Vec<u8> = (0..3_000_000u32).map(|n| (n ^ (n >> 8)) as u8).collect();
    for _ in 0..2 {
        let db = Builder::new().options(options.clone()).open(dir.path()).unwrap();
        db.put(b"big", &big).unwrap();
        db.put(b"small", b"x").unwrap();
        assert_eq!(db.get(b"big").unwrap().unwrap(), big);
        db.default_family().compact::<&str>(..).unwrap();
        assert_eq!(db.get(b"big").unwrap().unwrap(), big);
    }
}

#[test]
fn after_closing_nothing_is_written_by_any_call() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(dir.path()).unwrap();
    let mut batch = Batch::new();
    batch.put(&db.default_family(), b"k", b"v");
    let transaction = db.begin();
    db.close().unwrap();
    let other = Db::open(dir.path()).unwrap();
    assert_eq!(db.write(&batch).unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(db.write_if(&[], &batch, Durability::Sync).unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(transaction.commit(Durability::Buffered).unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(db.create_family("f", FamilyOptions::default()).unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(db.flush().unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(other.scan::<&str>(..).count(), 0);
}

#[test]
fn writes_after_reopening_are_newer_than_tables_ingested_before() {
    let dir = tempfile::tempdir().unwrap();
    let open = || Db::open(dir.path().join("db")).unwrap();
    let db = open();
    for n in 0..3u8 {
        let path = dir.path().join(format!("{n}.table"));
        let mut table = SstableWriter::create(&path, &FamilyOptions::default()).unwrap();
        table.put(b"k", [n]).unwrap();
        table.finish().unwrap();
        db.default_family().ingest(&[&path]).unwrap();
    }
    db.close().unwrap();
    let db = open();
    db.put(b"k", b"new").unwrap();
    for _ in 0..2 {
        db.flush().unwrap();
        assert_eq!(db.get(b"k").unwrap().unwrap(), b"new");
        db.default_family().compact::<&str>(..).unwrap();
    }
    assert_eq!(db.get(b"k").unwrap().unwrap(), b"new");
}

#[test]
fn a_ttl_given_later_does_not_take_what_was_written_before() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(dir.path()).unwrap();
    let family = db.default_family();
    db.put(b"old", b"1").unwrap();
    family.alter(FamilyOptions { ttl_us: 3_600_000_000, ..family.options() }).unwrap();
    db.put(b"new", b"2").unwrap();
    let path = dir.path().join("in.table");
    let mut table = SstableWriter::create(&path, &family.options()).unwrap();
    table.put(b"ingested", b"3").unwrap();
    table.finish().unwrap();
    family.ingest(&[&path]).unwrap();
    assert_eq!(keys(&db), ["ingested", "new", "old"]);
    family.compact::<&str>(..).unwrap();
    assert_eq!(keys(&db), ["ingested", "new", "old"]);
    assert_eq!(db.get(b"old").unwrap().unwrap(), b"1");
}

#[test]
fn a_strategy_that_lets_many_runs_gather_does_not_stop_writers() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options { write_memory: 64 << 10, memory_budget: 1 << 20, ..Options::default() };
    let family =
        FamilyOptions { strategy: "leveled{l0_runs_trigger=100}".parse().unwrap(), ..Default::default() };
    let db = Builder::new().options(options).family("default", family).open(dir.path()).unwrap();
    for n in 0..60u32 {
        db.put(n.to_be_bytes(), b"v").unwrap();
        db.flush().unwrap();
    }
    assert_eq!(db.scan::<&str>(..).count(), 60);
}

/// What an estimate says of parts of a family, in several runs, with SSTables with values in the WAL, and
/// beside memory.
#[test]
fn an_estimate_is_about_what_is_there() {
    let dir = tempfile::tempdir().unwrap();
    let options = FamilyOptions { wal_values: true, block_bytes: 1 << 10, ..FamilyOptions::default() };
    let db = builder().family("f", options).open(dir.path()).unwrap();
    let f = db.family("f").unwrap();
    assert_eq!(f.estimate::<&str>(..).unwrap().cells, 0);
    for round in 0..3 {
        for n in (round..30_000).step_by(3) {
            f.put(format!("{n:05}"), [n as u8; 100]).unwrap();
        }
        f.flush().unwrap();
    }
    let about = |found: siltstone::Estimate, cells: u64| {
        let near = |found: u64, expected: u64| found.abs_diff(expected) <= expected / 20 + 200;
        assert!(near(found.cells, cells), "{found:?}, there are {cells}");
        let bytes = db.statistics().sstable_bytes * cells / 30_000;
        assert!(found.bytes.abs_diff(bytes) <= bytes / 20 + (30 << 10), "{found:?}, about {bytes} bytes");
    };
    let halves = |f: &siltstone::Family| {
        about(f.estimate::<&str>(..).unwrap(), 30_000);
        about(f.estimate("10000".."20000").unwrap(), 10_000);
        about(f.estimate(.."03000").unwrap(), 3_000);
        about(f.estimate("29000"..).unwrap(), 1_000);
        assert_eq!(f.estimate("5".."9").unwrap(), siltstone::Estimate::default());
    };
    halves(&f);
    f.put("0", "in memory").unwrap();
    halves(&f);
    let (left, right) = f.split("12345", "right").unwrap();
    about(left.estimate::<&str>(..).unwrap(), 12_345);
    about(right.estimate::<&str>(..).unwrap(), 30_000 - 12_345);
    about(right.estimate("10000".."20000").unwrap(), 20_000 - 12_345);
    left.join(&right).unwrap();
    left.compact::<&str>(..).unwrap();
    halves(&left);
    assert_eq!(db.statistics().sstables as usize, left.shape().tables().count());
}
