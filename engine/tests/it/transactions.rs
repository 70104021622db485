//! Transactions and conditional writes.

use siltstone::{
    Batch, Condition, Db, Durability, ErrorKind, Expected, Family, FamilyOptions, Isolation, Timestamp,
    Timestamps,
};
use std::sync::atomic::{AtomicUsize, Ordering};

#[test]
fn a_transaction_conflicts_with_writes_into_ranges_it_scanned() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(dir.path()).unwrap();
    let family = db.default_family();
    db.put(b"a1", b"x").unwrap();
    let count = |key: &[u8]| {
        let mut transaction = db.begin();
        let seen = transaction.scan(&family, "a".."b").count();
        transaction.put(&family, b"count", seen.to_string().as_bytes());
        db.put(key, b"y").unwrap();
        db.flush().unwrap();
        transaction.commit(Durability::Sync)
    };
    assert_eq!(count(b"a2").unwrap_err().kind(), ErrorKind::Conflict);
    count(b"b2").unwrap();
    assert_eq!(db.get(b"count").unwrap().unwrap(), b"2");
    let mut deleting = db.begin();
    deleting.get(&family, b"a1").unwrap();
    deleting.put(&family, b"z", b"");
    db.delete(b"a1").unwrap();
    family.compact::<&str>(..).unwrap();
    assert_eq!(deleting.commit(Durability::Buffered).unwrap_err().kind(), ErrorKind::Conflict);
}

#[test]
fn a_transaction_commits_whatever_is_written_deleted_and_merged_beside_it() {
    type Beside = fn(&Family);
    let beside: [(&str, bool, Beside); 3] = [
        ("a put under a range delete", false, |f| {
            f.put("queue/1", "v").unwrap();
            f.delete_range("queue/".."queue0").unwrap();
        }),
        ("a delete under a range delete", false, |f| {
            f.delete("queue/1").unwrap();
            f.delete_range("queue/".."queue0").unwrap();
        }),
        ("a version that came too late", true, |f| {
            f.put_at("queue/1", Timestamp(9), "v").unwrap();
            f.put_at("queue/1", Timestamp(8), "v").unwrap();
        }),
    ];
    let stirs: [fn(&Family); 2] = [|f| f.flush().unwrap(), |f| f.compact::<&str>(..).unwrap()];
    for explicit in [false, true] {
        for (name, of_explicit, beside) in beside {
            for (at, stir) in stirs.into_iter().enumerate().filter(|_| explicit || !of_explicit) {
                let dir = tempfile::tempdir().unwrap();
                let timestamps = if explicit { Timestamps::Explicit } else { Timestamps::Implicit };
                let options = FamilyOptions { timestamps, ..Default::default() };
                let db = Db::builder().family("f", options).open(dir.path()).unwrap();
                let (f, other) = (db.family("f").unwrap(), db.default_family());
                f.put("present", "v").unwrap();
                f.put("deleted", "v").unwrap();
                f.delete("deleted").unwrap();
                let (mut reading, mut scanning) = (db.begin(), db.begin());
                let mut inserting = db.begin_with(Isolation::Snapshot);
                for key in ["absent", "deleted", "present"] {
                    reading.get(&f, key).unwrap();
                }
                assert_eq!(scanning.scan(&f, "a".."q").count(), 1);
                inserting.put(&f, "inserted", "v");
                reading.put(&other, "k", "v");
                scanning.put(&other, "k", "v");
                let held = db.snapshot();
                beside(&f);
                stir(&f);
                for transaction in [reading, scanning, inserting] {
                    let committed = transaction.commit(Durability::Buffered);
                    committed.unwrap_or_else(|e| panic!("{name}, explicit {explicit}, stirred {at}: {e}"));
                }
                let unchanged = [Condition::new(&f, "absent", Expected::NotNewerThan(held.seq()))];
                let mut batch = Batch::new();
                batch.put(&other, "k", "v");
                db.write_if(&unchanged, &batch, Durability::Buffered).unwrap();
                // Of the keys themselves it is told.
                let changed = [Condition::new(&f, "queue/1", Expected::NotNewerThan(held.seq()))];
                let refused = db.write_if(&changed, &batch, Durability::Buffered).unwrap_err();
                assert_eq!(refused.kind(), ErrorKind::Conflict);
                assert!(refused.to_string().contains("was written to"), "{refused}");
            }
        }
    }
}

#[test]
fn where_compactions_dropped_what_would_tell_a_conflict_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(dir.path()).unwrap();
    let family = db.default_family();
    let stale = db.put("k", "v").unwrap();
    db.put("gone", "v").unwrap();
    db.delete("gone").unwrap();
    family.compact::<&str>(..).unwrap();
    let mut batch = Batch::new();
    batch.put(&family, "other", "v");
    let condition = [Condition::new(&family, "absent", Expected::NotNewerThan(stale))];
    let refused = db.write_if(&condition, &batch, Durability::Buffered).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Conflict);
    assert!(refused.to_string().contains("may have been written to"), "{refused}");
    let condition = [Condition::new(&family, "k", Expected::NotNewerThan(stale))];
    db.write_if(&condition, &batch, Durability::Buffered).unwrap();
}

#[test]
fn a_batch_that_is_appended_is_seen_and_written_as_its_writes_are_one_by_one() {
    let dir = tempfile::tempdir().unwrap();
    let options = FamilyOptions { timestamps: Timestamps::Explicit, versions: 2, ..Default::default() };
    let db = Db::builder().family("f", options).open(dir.path()).unwrap();
    let (f, implicit) = (db.family("f").unwrap(), db.default_family());
    f.put_at("deleted", Timestamp(1), "v").unwrap();
    f.put_at("k", Timestamp(1), "1").unwrap();
    let mut batch = Batch::new();
    batch.put(&implicit, "a", "1").put(&implicit, "b", "2").delete(&implicit, "a").delete(&f, "deleted");
    (2..5).for_each(|at| _ = batch.put_at(&f, "k", Timestamp(at), at.to_string()));
    batch.delete_range_at(&f, "k".."l", Timestamp(4), Timestamp(4));
    let mut transaction = db.begin();
    transaction.put(&implicit, "b", "overwritten");
    transaction.append(&batch);
    let shown = |scan: &mut dyn Iterator<Item = siltstone::Result<siltstone::Entry>>| -> Vec<_> {
        scan.map(|entry| entry.map(|e| (e.key, e.timestamp.0, e.value.to_vec())).unwrap()).collect()
    };
    let expected = vec![(b"k".to_vec(), 3, b"3".to_vec())];
    assert_eq!(shown(&mut transaction.scan::<&[u8]>(&f, ..)), expected);
    let of_default = shown(&mut transaction.scan::<&[u8]>(&implicit, ..));
    assert_eq!(of_default, [(b"b".to_vec(), 0, b"2".to_vec())]);
    transaction.commit(Durability::Buffered).unwrap();
    assert_eq!(shown(&mut f.scan::<&[u8]>(..)), expected);
    assert_eq!(shown(&mut implicit.scan::<&[u8]>(..)), of_default);
}

#[test]
fn savepoints_are_nested_and_rolled_back_range_deletes_are_forgotten() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(dir.path()).unwrap();
    let family = db.default_family();
    (0..9u8).for_each(|n| _ = db.put([n], "old").unwrap());
    let mut transaction = db.begin();
    let shown = |transaction: &siltstone::Transaction| -> Vec<_> {
        let rows = transaction.scan::<&[u8]>(&family, ..).map(|entry| entry.unwrap());
        rows.map(|entry| (entry.key[0], entry.value.to_vec())).collect()
    };
    transaction.delete_range(&family, [1]..[3]);
    transaction.savepoint();
    transaction.put(&family, [1], "new");
    transaction.savepoint();
    transaction.delete_range(&family, [0]..);
    assert!(shown(&transaction).is_empty() && transaction.get(&family, [1]).unwrap().is_none());
    assert!(transaction.rollback_to_savepoint());
    assert_eq!(shown(&transaction).iter().map(|row| row.0).collect::<Vec<_>>(), [0, 1, 3, 4, 5, 6, 7, 8]);
    assert_eq!(transaction.get(&family, [1]).unwrap().unwrap(), "new");
    assert!(transaction.rollback_to_savepoint() && !transaction.rollback_to_savepoint());
    assert!(transaction.get(&family, [1]).unwrap().is_none());
    assert_eq!(transaction.batch().len(), 1);
    transaction.savepoint();
    transaction.put(&family, [2], "kept");
    assert!(transaction.release_savepoint() && !transaction.release_savepoint());
    transaction.commit(Durability::Buffered).unwrap();
    let keys: Vec<_> = db.scan::<&[u8]>(..).keys().map(|key| key.unwrap()[0]).collect();
    assert_eq!(keys, [0, 2, 3, 4, 5, 6, 7, 8]);
}

/// Two doctors are on call and each goes off duty if the other stays: under snapshot isolation both may go,
/// unless they read for update; serializable transactions let one go.
#[test]
fn write_skew_is_met_by_serializable_transactions_and_by_reads_for_update() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(dir.path()).unwrap();
    let family = db.default_family();
    let both = |isolation, for_update: bool| {
        for doctor in ["ada", "ben"] {
            db.put(doctor, "on call").unwrap();
        }
        let mut transactions = [db.begin_with(isolation), db.begin_with(isolation)];
        for (transaction, (me, other)) in transactions.iter_mut().zip([("ada", "ben"), ("ben", "ada")]) {
            let read = match for_update {
                true => transaction.get_for_update(&family, other),
                false => transaction.get(&family, other),
            };
            assert_eq!(read.unwrap().unwrap(), "on call");
            transaction.put(&family, me, "off duty");
        }
        transactions.map(|transaction| transaction.commit(Durability::Buffered).map_err(|e| e.kind()).is_ok())
    };
    assert_eq!(both(Isolation::Snapshot, false), [true, true]);
    assert_eq!(both(Isolation::Snapshot, true), [true, false]);
    assert_eq!(both(Isolation::Serializable, false), [true, false]);
    // Of two that write the same key the second fails in both.
    for isolation in [Isolation::Snapshot, Isolation::Serializable] {
        let mut transactions = [db.begin_with(isolation), db.begin_with(isolation)];
        for transaction in &mut transactions {
            transaction.get(&family, "counter").unwrap();
            transaction.put(&family, "counter", "1");
        }
        let committed = transactions.map(|transaction| transaction.commit(Durability::Buffered).is_ok());
        assert_eq!(committed, [true, false]);
    }
}

#[test]
fn threads_whose_writes_rest_on_a_closure_never_go_over_the_limit_it_keeps() {
    const SEATS: usize = 60;
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(dir.path()).unwrap();
    let family = db.default_family();
    let refused = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (db, family, refused) = (&db, &family, &refused);
            scope.spawn(move || {
                for n in 0..40 {
                    let reader = family.clone();
                    let is_free = move || Ok(reader.scan_prefix("seat/").keys().count() < SEATS);
                    let is_free = Condition::when(is_free).rests_on(family, "seat/".."seat0");
                    let mut batch = Batch::new();
                    batch.put(family, format!("seat/{thread}-{n}"), "taken");
                    match db.write_if(&[is_free], &batch, Durability::Buffered) {
                        Ok(_) => {}
                        Err(e) if e.kind() == ErrorKind::Conflict => {
                            _ = refused.fetch_add(1, Ordering::Relaxed)
                        }
                        Err(e) => panic!("{e}"),
                    }
                }
            });
        }
    });
    assert_eq!(family.scan_prefix("seat/").count(), SEATS);
    assert_eq!(refused.into_inner(), 4 * 40 - SEATS);
}

#[test]
fn what_a_split_or_join_gave_to_another_family_counts_as_written_to() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(dir.path()).unwrap();
    let (left, other) = (db.create_family("left", Default::default()).unwrap(), db.default_family());
    for key in ["b", "k", "p"] {
        left.put(key, "1").unwrap();
    }
    let kind = |result: siltstone::Result<siltstone::SeqNo>| result.unwrap_err().kind();
    let (mut ranged, mut keyed, mut within) = (db.begin(), db.begin(), db.begin());
    assert_eq!(ranged.scan(&left, "a".."z").count(), 3);
    keyed.get(&left, "p").unwrap();
    assert_eq!(within.scan(&left, "a".."l").count(), 2);
    for transaction in [&mut ranged, &mut keyed, &mut within] {
        transaction.put(&other, "x", "1");
    }
    let (left, right) = left.split("m", "right").unwrap();
    right.put("p", "2").unwrap();
    assert_eq!(kind(ranged.commit(Durability::Buffered)), ErrorKind::Conflict);
    assert_eq!(kind(keyed.commit(Durability::Buffered)), ErrorKind::OutOfRange);
    within.commit(Durability::Buffered).unwrap();
    let (ranged, keyed) = (db.begin(), db.begin());
    assert_eq!(ranged.scan(&right, "n"..).count(), 1);
    keyed.get(&right, "p").unwrap();
    left.join(&right).unwrap();
    left.put("p", "3").unwrap();
    for mut transaction in [ranged, keyed] {
        transaction.put(&other, "x", "2");
        assert_eq!(kind(transaction.commit(Durability::Buffered)), ErrorKind::NotFound);
    }
}

#[test]
fn a_range_delete_of_others_is_not_seen_under_own_operands() {
    struct Append;
    impl siltstone::MergeOperator for Append {
        fn merge(&self, _: &[u8], base: Option<&[u8]>, operands: &[&[u8]]) -> siltstone::Result<Vec<u8>> {
            Ok(base.into_iter().chain(operands.iter().copied()).collect::<Vec<_>>().concat())
        }
    }
    let dir = tempfile::tempdir().unwrap();
    let options = FamilyOptions { merge_operator: Some("append".into()), ..Default::default() };
    let builder = Db::builder().merge_operator("append", std::sync::Arc::new(Append));
    let db = builder.family("default", options).open(dir.path()).unwrap();
    let family = db.default_family();
    family.put("k", "base").unwrap();
    let mut transaction = db.begin();
    transaction.merge(&family, "k", "+own");
    family.delete_range("a".."z").unwrap();
    assert_eq!(transaction.get_untracked(&family, "k").unwrap().unwrap(), "base+own");
    family.flush().unwrap();
    assert_eq!(transaction.get_untracked(&family, "k").unwrap().unwrap(), "base+own");
    transaction.commit(Durability::Buffered).unwrap();
    assert_eq!(family.get("k").unwrap().unwrap(), "+own");
}

/// Counted work: many small scans side by side are one range at the commit.
#[test]
fn a_thousand_scans_side_by_side_are_checked_as_one() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(dir.path()).unwrap();
    let family = db.default_family();
    (0..1_000u32).for_each(|n| _ = db.put(n.to_be_bytes(), "v").unwrap());
    db.flush().unwrap();
    let mut transaction = db.begin();
    for n in 0..1_000u32 {
        assert_eq!(transaction.scan(&family, n.to_be_bytes()..(n + 1).to_be_bytes()).count(), 1);
        drop(transaction.scan::<&[u8]>(&family, ..));
    }
    transaction.put(&family, "k", "v");
    let looks = |db: &Db| db.statistics().cache_hits + db.statistics().cache_misses;
    let before = looks(&db);
    transaction.commit(Durability::Buffered).unwrap();
    assert!(looks(&db) - before < 100, "{} blocks", looks(&db) - before);
}
