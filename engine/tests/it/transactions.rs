//! Transactions and conditional writes.

use siltstone::{Batch, Condition, Db, Durability, ErrorKind, Isolation};
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

/// Two doctors are on call and each goes off duty if the other stays: under snapshot isolation both may go, unless they read
/// for update; serializable transactions let one go.
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
