//! Families that move between databases, on real files.
#![allow(clippy::disallowed_methods, reason = "copies and removes real files")]

use siltstone::storage::Env;
use siltstone::{Db, ErrorKind, Family, FamilyOptions, Timestamp, Timestamps};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

fn history() -> FamilyOptions {
    FamilyOptions { timestamps: Timestamps::Explicit, versions: 2, ..FamilyOptions::default() }
}

/// Keys 0 to 99 in three versions, of which 30 to 39 were deleted; partly in tables, partly in memory.
fn filled(db: &Db, name: &str) -> Family {
    let family = db.create_family(name, history()).unwrap();
    for time in 1..=3 {
        for n in 0..100u8 {
            family.put_at([n], Timestamp(time), [n, time as u8]).unwrap();
        }
        if time == 2 {
            db.flush().unwrap();
        }
    }
    family.delete_range([30u8]..[40u8]).unwrap();
    family
}

fn check_filled(family: &Family) {
    for n in 0..100u8 {
        let found = family.get_versions([n], 9).unwrap();
        let found: Vec<(u64, Vec<u8>)> = found.iter().map(|(t, v)| (t.0, v.to_vec())).collect();
        let expected = [(3, vec![n, 3]), (2, vec![n, 2])];
        assert_eq!(found, if (30..40).contains(&n) { &[][..] } else { &expected }, "key {n}");
    }
}

fn is_clean(dir: &Path) {
    let report = siltstone::check(&Env::local(), dir, &mut |_| {}).unwrap();
    assert!(report.is_clean(), "{:?}", report.damages);
}

#[test]
fn a_family_moves_with_all_it_holds_and_both_databases_go_on() {
    let dir = tempfile::tempdir().unwrap();
    let (from, to, moving) = (dir.path().join("a"), dir.path().join("b"), dir.path().join("moving"));
    let (a, b) = (Db::open(&from).unwrap(), Db::open(&to).unwrap());
    let gone = filled(&a, "events");
    a.put(b"stays", b"here").unwrap();
    b.create_family("first", FamilyOptions::default()).unwrap();
    a.detach("events", &moving).unwrap();
    assert_eq!(gone.get(b"k").unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(gone.put_at(b"k", Timestamp(9), b"v").unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(
        (a.families(), a.get(b"stays").unwrap().unwrap().to_vec()),
        (vec!["default".into()], b"here".to_vec())
    );
    is_clean(&moving);

    let family = b.attach("moved", &moving).unwrap();
    check_filled(&family);
    fs::remove_dir_all(&moving).unwrap();
    // Newer writes win over what came, whatever numbers that has.
    family.put_at([5], Timestamp(3), b"newer").unwrap();
    assert_eq!(family.get([5]).unwrap().unwrap(), b"newer");
    b.flush().unwrap();
    family.compact::<&[u8]>(..).unwrap();
    assert_eq!(family.get([5]).unwrap().unwrap(), b"newer");
    family.put_at([5], Timestamp(3), [5, 3]).unwrap();
    check_filled(&family);
    drop(family);
    for (db, path) in [(a, &from), (b, &to)] {
        db.close().unwrap();
        is_clean(path);
    }
    let b = Db::open(&to).unwrap();
    check_filled(&b.family("moved").unwrap());
    assert_eq!(Db::open(&from).unwrap().families(), ["default"]);
}

#[test]
fn a_family_may_come_back_to_where_it_left_and_be_attached_twice() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(dir.path().join("db")).unwrap();
    filled(&db, "events");
    let moving = dir.path().join("moving");
    db.detach("events", &moving).unwrap();
    let (one, two) = (db.attach("events", &moving).unwrap(), db.attach("again", &moving).unwrap());
    one.delete([7]).unwrap();
    db.flush().unwrap();
    one.compact::<&[u8]>(..).unwrap();
    check_filled(&two);
    assert!(one.get([7]).unwrap().is_none());
    drop((one, two));
    db.close().unwrap();
    is_clean(&dir.path().join("db"));
    is_clean(&moving);
}

#[test]
fn a_snapshot_from_before_a_family_came_does_not_see_half_of_it() {
    let dir = tempfile::tempdir().unwrap();
    let (a, b) = (Db::open(dir.path().join("a")).unwrap(), Db::open(dir.path().join("b")).unwrap());
    filled(&a, "events");
    for n in 0..50u8 {
        b.put([n], b"v").unwrap();
    }
    let before = b.snapshot();
    let transaction = b.begin();
    a.detach("events", dir.path().join("moving")).unwrap();
    let family = b.attach("events", dir.path().join("moving")).unwrap();
    assert_eq!(family.at(&before).get([1]).unwrap_err().kind(), ErrorKind::Invalid);
    let scanned: Result<Vec<_>, _> = family.at(&before).scan::<&[u8]>(..).collect();
    assert_eq!(scanned.unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(transaction.get(&family, [1]).unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(b.at(&before).get([1]).unwrap().unwrap(), b"v", "other families are as they were");
    let after = b.snapshot();
    assert_eq!(family.at(&after).scan::<&[u8]>(..).count(), 180);
    assert!(b.put(b"next", b"v").unwrap() > after.seq());
}

#[test]
fn what_cannot_be_moved_is_refused_and_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(dir.path().join("db")).unwrap();
    let family = filled(&db, "events");
    let moving = dir.path().join("moving");
    let kind = |result: siltstone::Result<()>| result.unwrap_err().kind();
    assert_eq!(kind(db.detach("default", &moving)), ErrorKind::Invalid);
    assert_eq!(kind(db.detach("none", &moving)), ErrorKind::NotFound);
    assert_eq!(kind(db.detach("events", dir.path().join("db"))), ErrorKind::Invalid);
    let attach = |name: &str, from: &Path| kind(db.attach(name, from).map(|_| ()));
    assert_eq!(attach("x", &dir.path().join("nothing")), ErrorKind::NotFound);
    assert_eq!(attach("x", &dir.path().join("db")), ErrorKind::Busy);
    check_filled(&family);
    family.put_at([30], Timestamp(9), b"writable").unwrap();
    db.detach("events", &moving).unwrap();
    assert_eq!(attach("default", &moving), ErrorKind::Invalid);
    db.attach("events", &moving).unwrap();
    assert_eq!(attach("events", &moving), ErrorKind::Invalid);
    // Written to, it is a database like any other.
    let opened = Db::open(&moving).unwrap();
    opened.family("events").unwrap().put_at(b"k", Timestamp(1), b"v").unwrap();
    opened.close().unwrap();
    assert_eq!(attach("y", &moving), ErrorKind::Invalid);
}

fn repair_without_manifest(path: &Path) -> siltstone::RepairReport {
    for entry in fs::read_dir(path).unwrap().flatten() {
        let name = entry.file_name().into_string().unwrap();
        if name == "CURRENT" || name.starts_with("manifest-") {
            fs::remove_file(entry.path()).unwrap();
        }
    }
    siltstone::repair(&Env::local(), path, &mut |_| {}).unwrap()
}

/// Its tables say that they belong to a family of a number that is dropped or another's here.
#[test]
fn a_repair_without_a_manifest_keeps_attached_tables_apart() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    let db = Db::open(&path).unwrap();
    filled(&db, "events");
    db.put(b"stays", b"here").unwrap();
    db.flush().unwrap();
    let moving = dir.path().join("moving");
    db.detach("events", &moving).unwrap();
    drop(db.attach("events", &moving).unwrap());
    let second = db.create_family("second", history()).unwrap();
    second.put_at([1], Timestamp(50), b"of another family").unwrap();
    drop(second);
    db.flush().unwrap();
    db.close().unwrap();
    let report = repair_without_manifest(&path);
    assert!(report.lost.iter().any(|l| l.message.contains("attached")), "{report:?}");
    is_clean(&path);
    let db = Db::open(&path).unwrap();
    assert_eq!(db.get(b"stays").unwrap().unwrap(), b"here");
    check_filled(&db.family("events").unwrap());
    let second = db.family("second").unwrap();
    assert_eq!(second.get_versions([1], 9).unwrap().len(), 1);
    assert!(second.get([2]).unwrap().is_none());
}

/// All their tables say that they belong to the family that was copied.
#[test]
fn a_repair_without_a_manifest_keeps_copies_apart() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    let db = Db::open(&path).unwrap();
    let family = filled(&db, "events");
    let copies = db.copy_families(&db, &[("events", "one"), ("events", "two"), ("events", "three")]).unwrap();
    // Two go their own ways, in tables of theirs and in the WAL; of the third nothing says how it is called.
    copies[0].put_at([1], Timestamp(9), b"first").unwrap();
    copies[1].put_at([1], Timestamp(9), b"second").unwrap();
    copies[1].delete_range([50u8]..).unwrap();
    db.flush().unwrap();
    copies[0].put_at([2], Timestamp(9), b"logged").unwrap();
    drop((family, copies));
    db.close().unwrap();
    let report = repair_without_manifest(&path);
    is_clean(&path);
    let db = Db::open(&path).unwrap();
    let mut names = db.families();
    names.sort_unstable();
    let unnamed = names.iter().find(|name| name.starts_with("recovered-")).unwrap().clone();
    assert_eq!(names, ["default", "events", "one", &*unnamed, "two"]);
    let told = report.lost.iter().filter(|lost| lost.message.contains("copied"));
    assert_eq!(told.map(|lost| lost.family.as_deref()).collect::<Vec<_>>(), [Some(&*unnamed)]);
    check_filled(&db.family("events").unwrap());
    check_filled(&db.family(&unnamed).unwrap());
    let (one, two) = (db.family("one").unwrap(), db.family("two").unwrap());
    assert_eq!(
        (&*one.get([1]).unwrap().unwrap(), &*one.get([2]).unwrap().unwrap()),
        (&b"first"[..], &b"logged"[..])
    );
    assert_eq!(&*two.get([1]).unwrap().unwrap(), b"second");
    assert_eq!(two.get([2]).unwrap().unwrap(), [2u8, 3]);
    assert_eq!(one.get([60]).unwrap().unwrap(), [60u8, 3]);
    assert!(two.get([60]).unwrap().is_none());
}

#[test]
fn an_attach_that_fails_half_way_leaves_no_tables() {
    let dir = tempfile::tempdir().unwrap();
    let (from, to, moving) = (dir.path().join("a"), dir.path().join("b"), dir.path().join("moving"));
    let (a, b) = (Db::open(&from).unwrap(), Db::open(&to).unwrap());
    let family = a.create_family("events", history()).unwrap();
    for n in 0..3u8 {
        family.put_at([n], Timestamp(1), b"v").unwrap();
        a.flush().unwrap();
    }
    a.detach("events", &moving).unwrap();
    let last = tables(&moving).into_iter().max().unwrap();
    assert!(tables(&moving).len() > 1);
    // One that cannot be linked, then one that cannot be opened.
    let bytes = fs::read(&last).unwrap();
    fs::remove_file(&last).unwrap();
    assert!(b.attach("moved", &moving).is_err());
    assert_eq!(tables(&to).len(), 0);
    fs::write(&last, &bytes[..bytes.len() / 2]).unwrap();
    assert!(b.attach("moved", &moving).is_err());
    assert_eq!(tables(&to).len(), 0);
    fs::write(&last, &bytes).unwrap();
    let family = b.attach("moved", &moving).unwrap();
    assert_eq!(family.scan::<&[u8]>(..).count(), 3);
}

#[test]
fn values_in_the_wal_go_into_tables_before_a_family_leaves() {
    for merged in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let (here, there) =
            (Db::open(dir.path().join("a")).unwrap(), Db::open(dir.path().join("b")).unwrap());
        let options = FamilyOptions { wal_values: true, wal_values_write_amp_max: 1e6, ..Default::default() };
        let family = here.create_family("events", options).unwrap();
        let value = |n: u32| vec![n as u8; 5_000];
        for n in 0..2_000u32 {
            family.put(n.to_be_bytes(), value(n)).unwrap();
        }
        family.flush().unwrap();
        let in_the_log = || family.shape().tables().filter(|(_, _, table)| table.log_bytes > 0).count();
        assert!(in_the_log() > 0);
        if merged {
            // Where nothing else is to be merged with it.
            family.compact::<&[u8]>(..).unwrap();
            family.put(1u32.to_be_bytes(), value(1)).unwrap();
        }
        let moving = dir.path().join("moving");
        here.detach("events", &moving).unwrap();
        here.close().unwrap();
        fs::remove_dir_all(dir.path().join("a")).unwrap();
        let moved = there.attach("events", &moving).unwrap();
        for n in 0..2_000u32 {
            assert_eq!(moved.get(n.to_be_bytes()).unwrap().unwrap(), value(n), "{n}, merged before {merged}");
        }
    }
}

fn tables(dir: &Path) -> Vec<PathBuf> {
    let paths = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    paths.filter(|path| path.extension().is_some_and(|extension| extension == "table")).collect()
}

#[test]
fn copies_of_a_family_share_its_tables_and_go_their_own_ways() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    let db = Db::open(&path).unwrap();
    let family = filled(&db, "events");
    let before = db.snapshot();
    let copies = db.copy_families(&db, &[("events", "one"), ("events", "two")]).unwrap();
    copies.iter().for_each(check_filled);
    let links = tables(&path).iter().map(|path| path.metadata().unwrap().nlink()).max();
    assert_eq!(links, Some(3), "each has a name of the same file");
    assert_eq!(copies[0].at(&before).get([1]).unwrap_err().kind(), ErrorKind::Invalid);
    // The source takes writes again, and what becomes of it is nothing to the copies.
    family.put_at([1], Timestamp(9), b"later").unwrap();
    family.delete_range::<&[u8]>(..).unwrap();
    db.flush().unwrap();
    family.compact::<&[u8]>(..).unwrap();
    copies.iter().for_each(check_filled);
    copies[0].put_at([1], Timestamp(9), b"later").unwrap();
    check_filled(&copies[1]);
    drop((family, copies));
    db.drop_family("events").unwrap();
    db.drop_family("one").unwrap();
    db.close().unwrap();
    is_clean(&path);
    let db = Db::open(&path).unwrap();
    check_filled(&db.family("two").unwrap());
    db.drop_family("two").unwrap();
    db.close().unwrap();
    drop(db);
    drop(Db::open(&path).unwrap());
    assert_eq!(tables(&path).len(), 0, "nobody has them any more");
}

#[test]
fn a_family_knows_which_sequence_numbers_its_coming_took() {
    let dir = tempfile::tempdir().unwrap();
    let to = dir.path().join("b");
    let (a, b) = (Db::open(dir.path().join("a")).unwrap(), Db::open(&to).unwrap());
    filled(&a, "events");
    let last = b.put(b"k", b"v").unwrap();
    let taken = |family: &Family| (family.attached_from().unwrap().0, family.attached_at().unwrap().0);
    let copies = b.copy_families(&a, &[("events", "one")]).unwrap();
    let expected = (last.0 + 1, a.snapshot().seq().0 + 1);
    assert_eq!(taken(&copies[0]), expected);
    assert!(expected.0 < expected.1 && b.put(b"k", b"w").unwrap().0 == expected.1 + 1);
    // Where the database is ahead it is one.
    let more = b.copy_families(&a, &[("events", "two")]).unwrap();
    assert_eq!(taken(&more[0]), (expected.1 + 2, expected.1 + 2));
    assert!(b.default_family().attached_from().is_none());
    drop((copies, more));
    b.close().unwrap();
    let b = Db::open(&to).unwrap();
    assert_eq!(taken(&b.family("one").unwrap()), expected);
    assert_eq!(taken(&b.family("two").unwrap()), (expected.1 + 2, expected.1 + 2));
}

#[test]
fn copies_come_from_where_the_source_is_now() {
    let dir = tempfile::tempdir().unwrap();
    let (from, moved) = (dir.path().join("a"), dir.path().join("moved"));
    let (a, b) = (Db::open(&from).unwrap(), Db::open(dir.path().join("b")).unwrap());
    filled(&a, "events");
    fs::rename(&from, &moved).unwrap();
    check_filled(&b.copy_families(&a, &[("events", "alone")]).unwrap()[0]);
    // Another database has the place, and tables of the same names.
    let other = Db::open(&from).unwrap();
    filled(&other, "events").put_at([1], Timestamp(9), b"other").unwrap();
    other.flush().unwrap();
    check_filled(&b.copy_families(&a, &[("events", "beside")]).unwrap()[0]);
    // Within itself it finds its own.
    check_filled(&a.copy_families(&a, &[("events", "own")]).unwrap()[0]);
    assert_eq!(tables(&moved).iter().map(|path| path.metadata().unwrap().nlink()).max(), Some(2));
    assert_eq!(tables(&from).iter().map(|path| path.metadata().unwrap().nlink()).max(), Some(1));
}

#[test]
fn copies_come_all_together_or_not_at_all() {
    let dir = tempfile::tempdir().unwrap();
    let (from, to) = (dir.path().join("a"), dir.path().join("b"));
    let (a, b) = (Db::open(&from).unwrap(), Db::open(&to).unwrap());
    let (events, other) = (filled(&a, "events"), filled(&a, "other"));
    b.create_family("taken", FamilyOptions::default()).unwrap();
    let kind = |families: &[(&str, &str)]| b.copy_families(&a, families).map(drop).unwrap_err().kind();
    assert_eq!(kind(&[("events", "x"), ("none", "y")]), ErrorKind::NotFound);
    assert_eq!(kind(&[("events", "x"), ("other", "taken")]), ErrorKind::Invalid);
    assert_eq!(kind(&[("events", "x"), ("other", "x")]), ErrorKind::Invalid);
    assert_eq!(kind(&[("events", "")]), ErrorKind::Invalid);
    // One table that cannot be linked.
    let last = tables(&from).into_iter().max().unwrap();
    let aside = dir.path().join("aside");
    fs::rename(&last, &aside).unwrap();
    assert_eq!(kind(&[("events", "x"), ("other", "y")]), ErrorKind::Io);
    fs::rename(&aside, &last).unwrap();
    assert_eq!((tables(&to).len(), b.families()), (0, vec!["default".into(), "taken".into()]));
    // After a failure the source takes writes as before.
    events.put_at([100], Timestamp(1), b"v").unwrap();
    other.put_at([100], Timestamp(1), b"v").unwrap();
    let copied = b.copy_families(&a, &[("events", "x"), ("other", "y")]).unwrap();
    assert!(copied.iter().all(|family| family.get([100]).unwrap().unwrap() == b"v"));
    assert_eq!(copied[0].attached_at(), copied[1].attached_at(), "one edit, at one moment");
    assert!(b.copy_families(&a, &[]).unwrap().is_empty());
    for (db, path) in [(a, &from), (b, &to)] {
        db.close().unwrap();
        is_clean(path);
    }
}
