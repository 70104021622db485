//! Damage of each kind, repaired.
#![allow(clippy::disallowed_methods, reason = "damages real files")]

use super::{CheckReport, Loss, RepairReport, check, repair};
use crate::options::{FamilyOptions, Options, Tuning};
use crate::storage::Env;
use crate::types::TableId;
use crate::{Builder, Db, ErrorKind, Timestamp, Timestamps};
use std::fs;
use std::path::{Path, PathBuf};

fn small() -> Options {
    Options {
        write_memory: 1 << 20,
        memory_budget: 4 << 20,
        tuning: Tuning { wal_file_bytes: 32 << 10, ..Tuning::default() },
        ..Options::default()
    }
}

fn open(dir: &Path) -> Db {
    Builder::new().options(small()).open(dir).unwrap()
}

const NONE: [u32; 0] = [];

fn key(n: u32) -> Vec<u8> {
    format!("key{n:06}").into_bytes()
}

/// Two families over SSTables and WAL: of `default` every third key deleted, keys 1000 to 1100 by range, key
/// 5 written last and only in the WAL.
fn fixture(dir: &Path) {
    let db = open(dir);
    let history = FamilyOptions { timestamps: Timestamps::Explicit, versions: 2, ..FamilyOptions::default() };
    let history = db.create_family("history", history).unwrap();
    for n in 0..3000 {
        db.put(key(n), format!("old {n}").as_bytes()).unwrap();
        history.put_at(key(n), Timestamp(1), b"v1").unwrap();
    }
    db.flush().unwrap();
    for n in 0..3000 {
        db.put(key(n), format!("value {n}").as_bytes()).unwrap();
    }
    for n in (0..3000).step_by(3) {
        db.delete(key(n)).unwrap();
    }
    db.flush().unwrap();
    db.default_family().delete_range(key(1000)..key(1100)).unwrap();
    db.wait_idle().unwrap();
    for n in 0..50 {
        history.put_at(key(n), Timestamp(2), b"v2").unwrap();
    }
    db.put(key(5), b"newest").unwrap();
    db.close().unwrap();
}

fn expected(n: u32) -> Option<Vec<u8>> {
    match n {
        5 => Some(b"newest".to_vec()),
        n if n % 3 == 0 || (1000..1100).contains(&n) => None,
        n => Some(format!("value {n}").into_bytes()),
    }
}

/// Keys of `default` that do not answer as they should.
fn wrong(db: &Db) -> Vec<u32> {
    (0..3000).filter(|n| db.get(key(*n)).unwrap().as_deref() != expected(*n).as_deref()).collect()
}

fn checked(dir: &Path) -> CheckReport {
    check(&Env::local(), dir, &mut |_| {}).unwrap()
}

fn repaired(dir: &Path) -> RepairReport {
    let report = repair(&Env::local(), dir, &mut |_| {}).unwrap();
    let after = checked(dir);
    assert!(after.is_clean(), "after a repair: {:?}", after.damages);
    report
}

fn files(dir: &Path, with: fn(&str) -> bool) -> Vec<PathBuf> {
    let names = Env::local().storage.list(dir).unwrap();
    names.into_iter().filter(|name| with(name)).map(|name| dir.join(name)).collect()
}

fn tables(dir: &Path) -> Vec<PathBuf> {
    files(dir, |name| TableId::parse_file_name(name).is_some())
}

fn is_manifest(name: &str) -> bool {
    name == "CURRENT" || name.starts_with("manifest-")
}

/// A copy of these files.
fn copied(dir: &Path, with: fn(&str) -> bool) -> tempfile::TempDir {
    let copy = tempfile::tempdir().unwrap();
    files(dir, with).iter().for_each(|f| drop(fs::copy(f, copy.path().join(f.file_name().unwrap()))));
    copy
}

/// Cuts off the end of an SSTable: what names its family stands there, behind all cells.
fn lose_end(table: &Path) {
    let file = fs::File::options().write(true).open(table).unwrap();
    file.set_len(file.metadata().unwrap().len() * 9 / 10).unwrap();
}

/// The WAL file with the last write, and its bytes.
fn last_log(dir: &Path) -> (PathBuf, Vec<u8>) {
    let logs = files(dir, |name| name.ends_with(".log")).into_iter();
    let mut read = logs.map(|path| (path.clone(), fs::read(path).unwrap()));
    read.find(|(_, bytes)| bytes.windows(6).any(|w| w == b"newest")).unwrap()
}

/// The place of a version of the key. Key and value side by side stand in an entry and nowhere else; two
/// bytes alone may be part of a checksum.
fn place_of(n: u32, bytes: &[u8]) -> usize {
    let entry = [&key(n)[..], b"v2"].concat();
    bytes.windows(entry.len()).position(|w| w == entry).expect("a version in the WAL")
}

fn flip(path: &Path, at: usize) {
    let mut bytes = fs::read(path).unwrap();
    bytes[at] ^= 0x10;
    fs::write(path, bytes).unwrap();
}

#[test]
fn a_sound_database_is_clean_and_a_repair_leaves_it_alone() {
    let dir = tempfile::tempdir().unwrap();
    fixture(dir.path());
    let before = files(dir.path(), |_| true);
    let report = checked(dir.path());
    assert!(report.is_clean() && report.leftovers.is_empty(), "{report:?}");
    assert!(
        report.families == 2 && report.tables > 0 && report.cells > 0 && report.log_frames > 50,
        "{report:?}"
    );
    let repair = repaired(dir.path());
    assert_eq!((repair.tables_kept, repair.tables_written, repair.is_complete()), (report.tables, 0, true));
    assert_eq!(files(dir.path(), |_| true), before);
}

#[test]
fn an_open_database_is_busy_and_an_empty_directory_is_no_database() {
    let dir = tempfile::tempdir().unwrap();
    let nothing = check(&Env::local(), dir.path(), &mut |_| {}).unwrap_err();
    assert_eq!(nothing.kind(), ErrorKind::NotFound);
    let _db = open(dir.path());
    assert_eq!(check(&Env::local(), dir.path(), &mut |_| {}).unwrap_err().kind(), ErrorKind::Busy);
    assert_eq!(repair(&Env::local(), dir.path(), &mut |_| {}).unwrap_err().kind(), ErrorKind::Busy);
}

#[test]
fn a_damaged_block_costs_the_keys_it_held_and_no_other() {
    let dir = tempfile::tempdir().unwrap();
    fixture(dir.path());
    for table in tables(dir.path()) {
        let copy = copied(dir.path(), |_| true);
        let bytes = fs::metadata(&table).unwrap().len() as usize;
        flip(&copy.path().join(table.file_name().unwrap()), bytes / 3);
        assert_eq!(checked(copy.path()).damages.len(), 1);
        let report = repaired(copy.path());
        assert!(!report.rebuilt && report.tables_written <= 1 && report.moved.len() == 1, "{report:?}");
        let db = open(copy.path());
        let of_default = |l: &&Loss| l.family.as_deref() == Some("default");
        let keys: Vec<_> = report.lost.iter().filter(of_default).filter_map(|l| l.keys.as_ref()).collect();
        let lost = |n: u32| keys.iter().any(|keys| keys.contains(&key(n)));
        let wrong = wrong(&db);
        assert!(wrong.len() < 500 && wrong.iter().all(|n| lost(*n)), "{wrong:?} {report:?}");
    }
}

#[test]
fn a_missing_table_is_named_with_its_keys() {
    let dir = tempfile::tempdir().unwrap();
    fixture(dir.path());
    let table = tables(dir.path()).remove(0);
    fs::remove_file(&table).unwrap();
    let damage = checked(dir.path()).damages;
    assert!(damage.len() == 1 && damage[0].message.contains("missing"), "{damage:?}");
    let report = repaired(dir.path());
    assert!(report.lost.len() == 1 && report.lost[0].keys.is_some(), "{report:?}");
    drop(open(dir.path()));
}

#[test]
fn a_lost_current_costs_nothing() {
    let dir = tempfile::tempdir().unwrap();
    fixture(dir.path());
    fs::remove_file(dir.path().join("CURRENT")).unwrap();
    assert!(!checked(dir.path()).is_clean());
    let report = repaired(dir.path());
    assert!(!report.rebuilt && report.is_complete(), "{report:?}");
    assert_eq!(wrong(&open(dir.path())), NONE);
}

#[test]
fn without_any_manifest_tables_and_wal_give_everything_back_families_included() {
    let dir = tempfile::tempdir().unwrap();
    fixture(dir.path());
    files(dir.path(), is_manifest).iter().for_each(|file| fs::remove_file(file).unwrap());
    let report = repaired(dir.path());
    assert!(report.rebuilt && report.families == ["default", "history"], "{report:?}");
    let db = open(dir.path());
    assert_eq!(wrong(&db), NONE);
    let history = db.family("history").unwrap();
    assert_eq!(history.options().versions, 2);
    let versions = history.get_versions(key(7), 9).unwrap();
    assert_eq!(versions.iter().map(|(t, _)| t.0).collect::<Vec<_>>(), [2, 1]);
    db.put(b"after", b"works").unwrap();
    drop((db, history));
    assert_eq!(open(dir.path()).get(b"after").unwrap().unwrap(), b"works");
}

#[test]
fn a_manifest_whose_end_is_lost_is_noticed_and_nothing_goes_wrong() {
    let dir = tempfile::tempdir().unwrap();
    fixture(dir.path());
    let manifest = files(dir.path(), |name| name.starts_with("manifest-")).remove(0);
    let length = fs::metadata(&manifest).unwrap().len() as usize;
    for at in [40, length / 3, length / 2, length - 5] {
        let copy = copied(dir.path(), |_| true);
        flip(&copy.path().join(manifest.file_name().unwrap()), at);
        assert!(!checked(copy.path()).is_clean(), "at {at} of {length}");
        let report = repaired(copy.path());
        assert!(report.rebuilt, "at {at}: {report:?}");
        assert_eq!(wrong(&open(copy.path())), NONE, "at {at}");
    }
}

#[test]
fn a_table_of_which_nothing_says_into_which_family_it_belongs_is_told_with_its_keys() {
    let dir = tempfile::tempdir().unwrap();
    fixture(dir.path());
    let mut alone = 0;
    for table in tables(dir.path()) {
        let copy = copied(dir.path(), |name| !is_manifest(name));
        lose_end(&copy.path().join(table.file_name().unwrap()));
        let report = repaired(copy.path());
        let told = |n: u32| {
            report.lost.iter().any(|loss| loss.keys.as_ref().is_some_and(|keys| keys.contains(&key(n))))
        };
        let db = open(copy.path());
        let deleted = |n: &u32| expected(*n).is_none();
        let silent: Vec<u32> = wrong(&db).into_iter().filter(|n| !told(*n) && !deleted(n)).collect();
        assert_eq!(silent, NONE, "{}: {report:?}", table.display());
        alone += usize::from(report.lost.iter().any(|loss| loss.message.contains("kept in one of its own")));
    }
    assert!(alone > 0);
}

#[test]
fn a_table_that_does_not_say_its_family_is_told_also_where_only_one_is_known() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    db.put(b"key", b"of default").unwrap();
    db.flush().unwrap();
    let other = db.create_family("other", FamilyOptions::default()).unwrap();
    for n in 0..3000 {
        other.put(key(n), b"of another").unwrap();
    }
    other.flush().unwrap();
    db.close().unwrap();
    drop((other, db));
    let large = tables(dir.path()).into_iter().max_by_key(|path| fs::metadata(path).unwrap().len()).unwrap();
    lose_end(&large);
    let others = files(dir.path(), |name| !name.ends_with(".table"));
    others.iter().for_each(|file| fs::remove_file(file).unwrap());
    let report = repaired(dir.path());
    assert_eq!(report.families, ["default"], "{report:?}");
    let told =
        report.lost.iter().find(|loss| loss.message.contains("into which family")).expect("it is told");
    assert!(told.keys.as_ref().is_some_and(|keys| keys.contains(&key(0))), "{told:?}");
}

#[test]
fn frames_behind_a_damaged_one_are_saved() {
    let dir = tempfile::tempdir().unwrap();
    fixture(dir.path());
    let (path, bytes) = last_log(dir.path());
    flip(&path, place_of(20, &bytes));
    assert_eq!(checked(dir.path()).damages.len(), 1);
    let report = repaired(dir.path());
    assert!(!report.rebuilt && report.lost.len() == 1, "{report:?}");
    let seqs = report.lost[0].seqs.unwrap();
    assert_eq!(seqs.0, seqs.1, "one write is lost: {report:?}");
    let db = open(dir.path());
    assert_eq!(wrong(&db), NONE);
    let history = db.family("history").unwrap();
    let saved = (0..50).filter(|n| history.get(key(*n)).unwrap().unwrap() == b"v2").count();
    assert_eq!(saved, 49);
}

#[test]
fn every_damage_of_a_wal_and_of_a_manifest_is_listed() {
    let dir = tempfile::tempdir().unwrap();
    fixture(dir.path());
    let (path, bytes) = last_log(dir.path());
    let place = |n: u32| place_of(n, &bytes);
    // None of them the first frame in its sector, which those behind it count from.
    let behind_others = |n: &u32| place(n - 2) / 512 == place(*n) / 512;
    for range in [10..20, 20..30, 30..40] {
        flip(&path, place(range.into_iter().find(behind_others).expect("a frame behind others")));
    }
    let of = |suffix: &str| {
        let damages = checked(dir.path()).damages;
        let offsets = damages.into_iter().filter(|damage| damage.file.ends_with(suffix));
        offsets.map(|damage| damage.offset.unwrap()).collect::<std::collections::BTreeSet<_>>().len()
    };
    assert_eq!(of(".log"), 3, "{:?}", checked(dir.path()).damages);

    let db = open(dir.path().join("other").as_path());
    for n in 0..4 {
        db.create_family(&format!("family {n} of four"), FamilyOptions::default()).unwrap();
    }
    drop(db);
    let manifests = files(&dir.path().join("other"), |name| name.starts_with("manifest-"));
    let bytes = fs::read(&manifests[0]).unwrap();
    for name in [b"family 0 of four", b"family 2 of four"] {
        flip(&manifests[0], bytes.windows(name.len()).position(|w| w == name).expect("a record"));
    }
    let damages = checked(&dir.path().join("other")).damages;
    assert_eq!(damages.len(), 2, "{damages:?}");
}

#[test]
fn without_a_manifest_a_dropped_family_that_comes_back_from_the_wal_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    let family = FamilyOptions {
        wal_values: true,
        wal_values_write_amp_max: 1e6,
        memtable_policy: "none".parse().unwrap(),
        ..FamilyOptions::default()
    };
    let db = Builder::new().options(small()).family("default", family).open(dir.path()).unwrap();
    let gone = db.create_family("gone", FamilyOptions::default()).unwrap();
    for n in 0..600 {
        db.put(key(n), [n as u8; 400]).unwrap();
        if n % 10 == 0 {
            gone.put(key(n), b"dropped").unwrap();
        }
    }
    db.flush().unwrap();
    assert!(db.statistics().wal_value_sstables > 0, "the WAL's files stay");
    drop(gone);
    db.drop_family("gone").unwrap();
    db.put(b"after", b"1").unwrap();
    db.flush().unwrap();
    db.close().unwrap();
    drop(db);
    files(dir.path(), is_manifest).iter().for_each(|file| fs::remove_file(file).unwrap());
    let report = repaired(dir.path());
    let back: Vec<&String> = report.families.iter().filter(|name| *name != "default").collect();
    assert_eq!(back.len(), 1, "nothing says that it was dropped: {report:?}");
    let told = report.lost.iter().find(|loss| loss.family.as_ref() == Some(back[0])).expect("it is told");
    assert!(told.message.contains("may have been dropped"), "{told:?}");
    let db = open(dir.path());
    assert!((0..600).all(|n| db.get(key(n)).unwrap().unwrap() == [n as u8; 400]));
}
