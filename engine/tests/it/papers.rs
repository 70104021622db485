//! A database with options of the feature `papers`, opened by a build without it: what has no such options
//! goes on, what has them can be read, is refused by name when it is written to, and is a family like any
//! other once it is altered.

#![allow(clippy::disallowed_methods, reason = "loses real files")]

use siltstone::storage::Env;
use siltstone::testing::lack_papers;
use siltstone::{Builder, Db, ErrorKind, Family, FamilyOptions, check, repair};
use std::path::Path;

/// A family for each option that needs the feature, and what the refusal says.
const FAMILIES: [(&str, &str, &str); 9] = [
    ("strategy", "exploring", "strategy `exploring`"),
    ("strategy", "remerge", "strategy `remerge`"),
    ("strategy", "nomerge", "strategy `nomerge`"),
    ("memtable_policy", "basic", "memtable_policy `basic`"),
    ("memtable_policy", "eager{memtables=3}", "memtable_policy `eager`"),
    ("memtable_policy", "adaptive", "memtable_policy `adaptive`"),
    ("hot_keys", "top{percent=2}", "hot_keys `top`"),
    ("active_memtable_share", "0.2", "active_memtable_share `0.2`"),
    ("wal_values_write_amp_max", "2.0", "wal_values_write_amp_max `2.0`"),
];

const ROWS: u32 = 200;

fn options(option: &str, value: &str) -> FamilyOptions {
    let mut options = FamilyOptions { block_bytes: 1 << 10, ..FamilyOptions::default() };
    options.set(option, value).unwrap();
    options
}

/// A database as a build with the feature makes it: some rows in SSTables, some in the WAL alone.
fn made(dir: &Path) {
    let db = Db::open(dir).unwrap();
    let mut families = vec![db.default_family()];
    for (option, value, _) in FAMILIES {
        families.push(db.create_family(value, options(option, value)).unwrap());
    }
    for half in [0..ROWS / 2, ROWS / 2..ROWS] {
        for key in half {
            for family in &families {
                family.put(key.to_be_bytes(), "v".repeat(50)).unwrap();
            }
        }
        if db.statistics().flushes == 0 {
            db.flush().unwrap();
        }
    }
    db.close().unwrap();
}

/// The thread is one of a build without the feature as long as this lives.
struct WithoutPapers;

impl WithoutPapers {
    fn new() -> Self {
        lack_papers(true);
        Self
    }
}

impl Drop for WithoutPapers {
    fn drop(&mut self) {
        lack_papers(false);
    }
}

fn rows(family: &Family) -> u32 {
    family.scan::<&[u8]>(..).map(|entry| entry.map(|_| 1).unwrap()).sum()
}

#[test]
fn families_that_need_the_feature_stop_nothing_and_are_refused_by_name_until_they_are_altered() {
    let dir = tempfile::tempdir().unwrap();
    made(dir.path());
    let _without = WithoutPapers::new();
    let report = check(&Env::local(), dir.path(), &mut |_| {}).unwrap();
    assert!(report.is_clean(), "{:?}", report.damages);
    for _ in 0..2 {
        let db = Db::open(dir.path()).unwrap();
        db.put("beside", "goes on").unwrap();
        for (_, value, says) in FAMILIES {
            let family = db.family(value).unwrap();
            assert_eq!(rows(&family), ROWS, "{value}");
            let refused = family.put("k", "v").unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::Unsupported, "{value}: {refused}");
            let text = refused.to_string();
            assert!(text.contains(says) && text.contains("feature `papers`"), "{text}");
        }
        db.flush().unwrap();
        db.wait_idle().unwrap();
        db.close().unwrap();
    }
    // By its handle, and by what is said at an open.
    let db = Db::open(dir.path()).unwrap();
    let altered = db.family(FAMILIES[0].1).unwrap();
    altered.alter(FamilyOptions::default()).unwrap();
    altered.put("k", "v").unwrap();
    db.close().unwrap();
    let all = FAMILIES.iter();
    let builder =
        all.fold(Builder::new(), |builder, (_, value, _)| builder.family(value, FamilyOptions::default()));
    builder.open(dir.path()).unwrap().close().unwrap();
    let db = Db::open(dir.path()).unwrap();
    for (at, (_, value, _)) in FAMILIES.iter().enumerate() {
        let family = db.family(value).unwrap();
        assert_eq!(rows(&family), ROWS + u32::from(at == 0), "{value}");
        family.put("k", "v").unwrap();
        family.compact::<&[u8]>(..).unwrap();
        assert_eq!(rows(&family), ROWS + 1, "{value}");
    }
    db.close().unwrap();
}

#[test]
fn a_family_that_needs_the_feature_keeps_its_options_for_builds_that_have_it() {
    let dir = tempfile::tempdir().unwrap();
    made(dir.path());
    {
        let _without = WithoutPapers::new();
        let db = Db::open(dir.path()).unwrap();
        db.default_family().compact::<&[u8]>(..).unwrap();
        let moved = dir.path().join("moved");
        db.detach("exploring", &moved).unwrap();
        let back = db.attach("back", &moved).unwrap();
        assert_eq!(back.put("k", "v").unwrap_err().kind(), ErrorKind::Unsupported);
        assert_eq!(back.compact::<&[u8]>(..).unwrap_err().kind(), ErrorKind::Unsupported);
        let (left, right) = back.split(50u32.to_be_bytes(), "right").unwrap();
        assert!([&left, &right].iter().all(|region| region.missing_options().is_some()));
        assert_eq!(right.put([255], "v").unwrap_err().kind(), ErrorKind::Unsupported);
        left.join(&right).unwrap();
        db.close().unwrap();
    }
    let db = Db::open(dir.path()).unwrap();
    for (option, value, _) in FAMILIES {
        let family = db.family(if value == "exploring" { "back" } else { value }).unwrap();
        assert_eq!(family.options(), options(option, value), "{value}");
        family.put("k", "v").unwrap();
        assert_eq!(rows(&family), ROWS + 1, "{value}");
    }
    db.close().unwrap();
}

#[test]
fn a_repair_says_which_options_it_could_not_keep() {
    let dir = tempfile::tempdir().unwrap();
    made(dir.path());
    let current = dir.path().join("CURRENT");
    std::fs::remove_file(&current).unwrap();
    for entry in std::fs::read_dir(dir.path()).unwrap() {
        let path = entry.unwrap().path();
        if path.file_name().unwrap().to_string_lossy().starts_with("manifest-") {
            std::fs::remove_file(path).unwrap();
        }
    }
    let _without = WithoutPapers::new();
    let report = repair(&Env::local(), dir.path(), &mut |_| {}).unwrap();
    for (_, value, says) in FAMILIES {
        let told = report.lost.iter().any(|loss| loss.message.contains(says));
        assert!(told, "{value}: {:?}", report.lost);
    }
    let db = Db::open(dir.path()).unwrap();
    for (_, value, _) in FAMILIES {
        let family = db.family(value).unwrap();
        assert_eq!(rows(&family), ROWS, "{value}");
        family.put("k", "v").unwrap();
    }
    db.close().unwrap();
}
