//! Whole databases with their SSTables in the bucket.

use crate::server::S3;
use siltstone::storage::Env;
use siltstone::{Backups, Builder, Db, FamilyOptions, Options};
use siltstone_storage_object::ObjectStores;
use std::path::Path;

fn options(tables: Option<&str>) -> Options {
    Options {
        sstable_store: tables.map(Into::into),
        write_memory: 1 << 20,
        memory_budget: 16 << 20,
        ..Options::default()
    }
}

pub(crate) fn builder(stores: &ObjectStores, tables: Option<&str>) -> Builder {
    let stores = stores.clone();
    let strategy = "leveled{sstable_bytes=256KiB, base_bytes=1MiB}".parse().unwrap();
    let family = FamilyOptions { strategy, ..FamilyOptions::default() };
    let builder = Db::builder().object_stores(move |location| stores.open(location)).options(options(tables));
    builder.family("default", family)
}

fn key(n: u32) -> Vec<u8> {
    format!("key{:08}", n.wrapping_mul(2_654_435_761) % 100_000_000).into_bytes()
}

fn value(n: u32) -> Vec<u8> {
    format!("value {n} ").into_bytes().repeat(8)
}

/// How many rows there are, all of which can be read.
fn rows<T>(scan: impl Iterator<Item = Result<T, siltstone::Error>>) -> usize {
    scan.fold(0, |rows, row| row.map(|_| rows + 1).unwrap())
}

/// 20,000 cells, about 2 MB, in several SSTables.
pub(crate) fn fill(db: &Db) {
    for n in 0..20_000 {
        db.put(key(n), value(n)).unwrap();
    }
    db.flush().unwrap();
}

pub(crate) fn check(db: &Db) {
    for n in (0..20_000).step_by(37) {
        assert_eq!(db.get(key(n)).unwrap().as_deref(), Some(&value(n)[..]), "{n}");
    }
    assert_eq!(rows(db.scan::<&[u8]>(..)), 20_000);
}

fn tables(dir: &Path) -> usize {
    let names =
        std::fs::read_dir(dir).map(|names| names.flatten().map(|name| name.file_name()).collect::<Vec<_>>());
    names.unwrap_or_default().iter().filter(|name| name.to_string_lossy().ends_with(".table")).count()
}

#[test]
fn everything_works_as_on_a_path() {
    let (s3, dir) = (S3::start(), tempfile::tempdir().unwrap());
    let (home, stores) = (dir.path().join("db"), s3.stores());
    let place = s3.bucket().join("orders");
    let db = builder(&stores, Some("s3://bucket/orders/")).open(&home).unwrap();
    fill(&db);
    check(&db);
    db.default_family().compact::<&[u8]>(..).unwrap();
    check(&db);
    assert!(tables(&place) > 1 && tables(&home) == 0);
    // Split, each part read on its own.
    let (left, right) = db.default_family().split(b"key5", "right").unwrap();
    let parts = [left, right].map(|part| rows(part.scan::<&[u8]>(..)));
    assert_eq!(parts.iter().sum::<usize>(), 20_000);
    assert!(parts.iter().all(|part| *part > 8_000), "{parts:?}");
    // A backup is a directory, and restored a database of its own.
    let backups = dir.path().join("backups");
    db.backup(&backups).unwrap();
    db.close().unwrap();
    let restored = dir.path().join("restored");
    Backups::new(&Env::local(), &backups).restore(None, &restored, &mut |_| {}).unwrap();
    assert_eq!(rows(Db::open(&restored).unwrap().scan::<&[u8]>(..)), parts[0]);
    assert_eq!(tables(&place), {
        let named = builder(&stores, None).open_read_only(&home).unwrap();
        let families = ["default", "right"].map(|family| named.family(family).unwrap().shape());
        families
            .iter()
            .flat_map(|shape| shape.tables().map(|(_, _, table)| table.id))
            .collect::<std::collections::BTreeSet<_>>()
            .len()
    });
    // Reopened it finds its SSTables by itself, and nobody else may use the place.
    let db = builder(&stores, None).open(&home).unwrap();
    assert_eq!(rows(db.scan::<&[u8]>(..)), parts[0]);
    drop(db);
    let other = builder(&stores, Some("s3://bucket/orders")).open(dir.path().join("other")).unwrap_err();
    assert!(other.to_string().contains("another database"), "{other}");
    let unsaid = Db::open(&home).unwrap_err();
    assert!(unsaid.to_string().contains("s3://bucket/orders"), "{unsaid}");
    let find = move |location: &str| stores.open(location);
    let report = siltstone::check_with_objects(&Env::local(), &home, &find, &mut |_| {}).unwrap();
    assert!(report.is_clean() && report.leftovers.is_empty(), "{report:?}");
    assert!(report.tables > 1);
}

#[test]
fn backups_lie_in_the_bucket_share_tables_and_are_copied_within_it() {
    let (s3, dir) = (S3::start(), tempfile::tempdir().unwrap());
    let stores = s3.stores();
    let backups = |place: &str, known: &[u64]| Backups::in_object_store(stores.open(place).unwrap(), known);
    let (home, other) = ("s3://bucket/backups/home", "s3://bucket/backups/other");
    let at = s3.bucket().join("backups");
    let db = builder(&stores, None).open(dir.path().join("db")).unwrap();
    fill(&db);
    // No compaction makes other SSTables between the two.
    db.wait_idle().unwrap();
    let first = db.backup_families_to(&backups(home, &[]), &|_| true, &mut |_| {}).unwrap();
    let copied = tables(&at.join("home"));
    db.put("late", "one").unwrap();
    let second = db.backup_families_to(&backups(home, &[1]), &|_| true, &mut |_| {}).unwrap();
    assert_eq!((first.id, second.id, tables(&at.join("home"))), (1, 2, copied), "tables are there once");
    assert!(copied > 1 && second.copied_bytes < first.copied_bytes);
    let restore = |of: &Backups, id: u64, late: bool| {
        let to = tempfile::tempdir().unwrap();
        of.restore(Some(id), to.path().join("db"), &mut |_| {}).unwrap();
        let db = builder(&stores, None).open(to.path().join("db")).unwrap();
        assert_eq!(
            (rows(db.scan::<&[u8]>(..)), db.get("late").unwrap().is_some()),
            (20_000 + usize::from(late), late)
        );
    };
    restore(&backups(home, &[1, 2]), 1, false);
    restore(&backups(home, &[1, 2]), 2, true);
    let copy = backups(home, &[2]).copy_to(2, &backups(other, &[])).unwrap();
    assert_eq!((copy.id, copy.bytes), (1, second.bytes));
    // What one has is not the other's; the SSTable of the first stays, as the second needs it.
    backups(home, &[2]).delete(1).unwrap();
    assert!(backups(home, &[2]).restore(Some(1), dir.path().join("gone"), &mut |_| {}).is_err());
    restore(&backups(home, &[2]), 2, true);
    backups(home, &[]).delete(2).unwrap();
    assert_eq!(tables(&at.join("home")), 0);
    restore(&backups(other, &[1]), 1, true);
    // A damaged byte is found, whoever copies it.
    let table = std::fs::read_dir(at.join("other")).unwrap().map(|file| file.unwrap().path());
    let table = { table }.find(|path| path.to_string_lossy().ends_with(".table")).unwrap();
    let mut bytes = std::fs::read(&table).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&table, bytes).unwrap();
    let refused = backups(other, &[1]).copy_to(1, &backups(home, &[])).unwrap_err();
    assert_eq!(refused.kind(), siltstone::ErrorKind::Corruption, "{refused}");
    assert!(backups(home, &[]).list().unwrap().is_empty());
}

/// A backup is not lost by a listing that does not have it yet.
#[test]
fn a_backup_that_the_caller_knows_of_keeps_its_files_though_a_listing_lacks_it() {
    let (s3, dir) = (S3::start(), tempfile::tempdir().unwrap());
    let stores = s3.stores();
    let place = "s3://bucket/backups";
    let backups = |known: &[u64]| Backups::in_object_store(stores.open(place).unwrap(), known);
    let db = builder(&stores, None).open(dir.path().join("db")).unwrap();
    fill(&db);
    db.backup_families_to(&backups(&[]), &|_| true, &mut |_| {}).unwrap();
    let before = tables(&s3.bucket().join("backups"));
    // As if it were listed later: nothing of that number is found, and nothing is removed.
    let (descriptor, away) = (s3.bucket().join("backups/00000001.backup"), dir.path().join("away"));
    std::fs::rename(&descriptor, &away).unwrap();
    let second = db.backup_families_to(&backups(&[1]), &|_| true, &mut |_| {}).unwrap();
    assert_eq!(second.id, 2);
    std::fs::copy(&away, &descriptor).unwrap();
    assert!(tables(&s3.bucket().join("backups")) >= before);
    backups(&[1, 2]).restore(Some(1), dir.path().join("restored"), &mut |_| {}).unwrap();
}

/// What a backup restored goes into a database with its SSTables in a bucket, and out of it again.
#[test]
fn a_family_of_a_restored_backup_goes_into_the_bucket_and_out_of_it() {
    let (s3, dir) = (S3::start(), tempfile::tempdir().unwrap());
    let (backups, restored) = (dir.path().join("backups"), dir.path().join("restored"));
    let (moving, back) = (dir.path().join("moving"), dir.path().join("back"));
    let stores = s3.stores();
    let home = dir.path().join("db");
    let db = builder(&stores, Some("s3://bucket/t")).open(&home).unwrap();
    let rivers = db.create_family("rivers", FamilyOptions::default()).unwrap();
    (0..5_000).for_each(|n| _ = rivers.put(key(n), value(n)).unwrap());
    db.backup(&backups).unwrap();
    rivers.delete_range(b"key0".to_vec()..b"key9".to_vec()).unwrap();
    Backups::new(&Env::local(), &backups).restore(None, &restored, &mut |_| {}).unwrap();
    Db::open(&restored).unwrap().detach("rivers", &moving).unwrap();
    let place = s3.bucket().join("t");
    let before = tables(&place);
    let again = db.attach("rivers again", &moving).unwrap();
    std::fs::remove_dir_all(&moving).unwrap();
    assert!(tables(&place) > before, "its tables are objects now");
    let whole = |family: &siltstone::Family| {
        assert_eq!(rows(family.scan::<&[u8]>(..)), 5_000);
        (0..5_000).step_by(97).for_each(|n| assert_eq!(family.get(key(n)).unwrap().unwrap(), value(n)));
    };
    whole(&again);
    drop((rivers, again));
    db.close().unwrap();
    let db = builder(&stores, None).open(&home).unwrap();
    whole(&db.family("rivers again").unwrap());
    assert!(rows(db.family("rivers").unwrap().scan::<&[u8]>(..)) < 1_000);
    db.detach("rivers again", &back).unwrap();
    db.close().unwrap();
    let local = Db::open(dir.path().join("local")).unwrap();
    whole(&local.attach("rivers", &back).unwrap());
}

#[test]
fn a_get_that_misses_costs_one_request_a_run_and_an_open_one_a_table() {
    let (s3, dir) = (S3::start(), tempfile::tempdir().unwrap());
    let home = dir.path().join("db");
    let stores = s3.stores();
    let db = builder(&stores, Some("s3://bucket/t")).open(&home).unwrap();
    fill(&db);
    // Nothing is due when it is opened.
    db.wait_idle().unwrap();
    db.close().unwrap();
    s3.requests();
    let db = builder(&stores, None).open(&home).unwrap();
    let shape = db.default_family().shape();
    let (tables, runs) = (shape.tables().count(), shape.runs().count());
    // Behind the open, SSTables are opened that nobody has asked for.
    db.wait_idle().unwrap();
    let opened = s3.requests();
    // One for each SSTable, one to see whose place it is and how long that says so, one listing.
    assert!(opened.len() <= tables + 4, "{} requests for {tables} tables: {opened:#?}", opened.len());
    let mut most = 0;
    for n in (0..20_000).step_by(501) {
        assert_eq!(db.get(key(n)).unwrap().as_deref(), Some(&value(n)[..]));
        most = most.max(s3.requests().len());
    }
    assert!((1..=runs).contains(&most), "{most} requests for {runs} runs");
    // A scan reads in larger pieces than blocks.
    assert_eq!(rows(db.scan::<&[u8]>(..)), 20_000);
    let bytes: u64 = shape.tables().map(|(_, _, table)| table.bytes).sum();
    let (scanned, blocks) = (s3.requests().len() as u64, bytes / 4096);
    assert!(scanned * 10 < blocks + 10 * tables as u64, "{scanned} requests for {blocks} blocks");
}

#[test]
fn with_a_disk_cache_a_second_look_and_a_second_open_ask_for_nothing() {
    let (s3, dir) = (S3::start(), tempfile::tempdir().unwrap());
    let (home, disk) = (dir.path().join("db"), dir.path().join("disk"));
    let look = |db: &Db| {
        for n in (0..20_000).step_by(501) {
            assert_eq!(db.get(key(n)).unwrap().as_deref(), Some(&value(n)[..]));
        }
    };
    {
        let stores = s3.stores_with_disk(&disk);
        let db = builder(&stores, Some("s3://bucket/t")).open(&home).unwrap();
        fill(&db);
        db.close().unwrap();
        drop(db);
        let db = builder(&stores, None).open(&home).unwrap();
        look(&db);
        db.close().unwrap();
        drop(db);
        stores.close().unwrap();
    }
    let stores = s3.stores_with_disk(&disk);
    s3.requests();
    let db = builder(&stores, None).open(&home).unwrap();
    look(&db);
    let asked = s3.requests();
    // Whose place it is, and what lies there.
    assert!(asked.len() <= 4, "{asked:#?}");
}
