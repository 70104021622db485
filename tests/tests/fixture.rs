//! Databases that were written once and are read ever since: one of format version 1 (row 20 of the
//! campaigns' table), and one of a build with the feature `papers`, for builds without it.
//!
//! `SILTSTONE_WRITE_FIXTURE=NAME cargo test -p siltstone-tests --test fixture` writes `fixtures/NAME` anew:
//! only for a new format version, in a directory of its own.

use siltstone::storage::Env;
use siltstone::testing::lack_papers;
use siltstone::{
    Builder, Compression, Db, Entry, ErrorKind, Family, FamilyOptions, MergeOperator, Options, Timestamp,
    Timestamps, Tuning,
};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// By family, what a scan shows: key, timestamp and value as text.
type Contents = BTreeMap<String, Vec<(String, u64, String)>>;

struct Append;

impl MergeOperator for Append {
    fn merge(&self, _key: &[u8], base: Option<&[u8]>, operands: &[&[u8]]) -> siltstone::Result<Vec<u8>> {
        Ok(base.into_iter().chain(operands.iter().copied()).collect::<Vec<_>>().concat())
    }
}

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures").join(name)
}

fn builder() -> Builder {
    let tuning = Tuning { wal_file_bytes: 32 << 10, ..Tuning::default() };
    let options = Options { write_memory: 64 << 10, memory_budget: 8 << 20, tuning, ..Options::default() };
    Builder::new().options(options).merge_operator("append", Arc::new(Append))
}

fn contents(db: &Db) -> Contents {
    let text = |bytes: &[u8]| bytes.escape_ascii().to_string();
    let row = |entry: Entry| (text(&entry.key), entry.timestamp.0, text(&entry.value));
    let rows = |family: Family| family.scan::<&[u8]>(..).map(|entry| row(entry.unwrap())).collect();
    db.families().into_iter().map(|name| (name.clone(), rows(db.family(&name).unwrap()))).collect()
}

fn value(n: u32, len: usize) -> String {
    format!("{:x}", u64::from(n).wrapping_mul(0x9e37_79b9_7f4a_7c15)).repeat(len)
}

/// Everything that leaves its own bytes in SSTables, manifest and WAL.
// Over 70 lines: all that the fixture has, one thing after another.
fn write_format_1(dir: &Path) -> Contents {
    let db = builder().open(dir).unwrap();
    let family = |name: &str, options: FamilyOptions| db.create_family(name, options).unwrap();
    let versions = family(
        "versions",
        FamilyOptions {
            timestamps: Timestamps::Explicit,
            versions: 3,
            compression: Compression::Zstd { level: 3 },
            ..FamilyOptions::default()
        },
    );
    let sums = family(
        "operands",
        FamilyOptions {
            merge_operator: Some("append".into()),
            compression: Compression::None,
            ..Default::default()
        },
    );
    let ranges = family(
        "ranges",
        FamilyOptions {
            strategy: "rangemerge{sstable_bytes=8K}".parse().unwrap(),
            ..FamilyOptions::default()
        },
    );
    let logged = family(
        "values in the WAL",
        FamilyOptions {
            wal_values: true,
            wal_values_write_amp_max: 1e6,
            memtable_policy: "none".parse().unwrap(),
            compression: Compression::None,
            ..FamilyOptions::default()
        },
    );
    let aged = family("aged", FamilyOptions { ttl_us: u64::MAX / 4, ..FamilyOptions::default() });
    let mut events = vec![family("events", FamilyOptions::default())];
    for round in 0..3u32 {
        for n in 0..150u32 {
            let key = format!("{:04}", n * 7919 % 1000);
            db.put(&key, value(n + round, 3)).unwrap();
            versions.put_at(&key, Timestamp(u64::from(n % 5 + round)), value(n, 2)).unwrap();
            sums.merge(format!("{}", n % 20), [b'a' + round as u8]).unwrap();
            ranges.put(&key, value(n * 3 + round, 2)).unwrap();
            logged.put(format!("{round}/{key}"), value(n, 60)).unwrap();
            aged.put(&key, [round as u8]).unwrap();
            let of = events.iter().find(|family| family.range().contains(key.as_bytes())).unwrap();
            of.put(&key, value(n + round, 2)).unwrap();
        }
        versions.delete_at("0919", Timestamp(2)).unwrap();
        versions.delete_range_at("03".."04", Timestamp(0), Timestamp(1)).unwrap();
        db.default_family().delete_range(format!("5{round}")..format!("5{round}5")).unwrap();
        db.delete("0838").unwrap();
        if round < 2 {
            db.flush().unwrap();
        }
        if round == 1 {
            versions.compact::<&[u8]>(..).unwrap();
            let (_, right) = events[0].split("05", "events/05").unwrap();
            let (middle, right) = right.split("08", "events/08").unwrap();
            events.extend([middle, right]);
        }
    }
    assert!(db.statistics().wal_value_sstables > 0, "values are left in the WAL");
    let contents = contents(&db);
    db.close().unwrap();
    contents
}

/// Families with options of the feature `papers`, by option and value, and what refuses a write without it.
const PAPERS: [(&str, &str, &str); 9] = [
    ("strategy", "exploring", "strategy `exploring`"),
    ("strategy", "remerge", "strategy `remerge`"),
    ("strategy", "nomerge", "strategy `nomerge`"),
    ("memtable_policy", "basic", "memtable_policy `basic`"),
    ("memtable_policy", "eager{memtables=3}", "memtable_policy `eager`"),
    ("memtable_policy", "adaptive", "memtable_policy `adaptive`"),
    ("hot_keys", "top{percent=2}", "hot_keys `top`"),
    ("active_memtable_share", "0.2", "active_memtable_share"),
    ("wal_values_write_amp_max", "2", "wal_values_write_amp_max"),
];

/// A family for each of these options, with SSTables, with memtables of which only the WAL knows, and with a
/// key that is hot.
fn write_papers(dir: &Path) -> Contents {
    let db = builder().open(dir).unwrap();
    let mut families = vec![db.default_family()];
    for (option, value, _) in PAPERS {
        let mut options = FamilyOptions::default();
        options.set(option, value).unwrap();
        families.push(db.create_family(value, options).unwrap());
    }
    for round in 0..4u32 {
        for n in 0..100u32 {
            let key = format!("{:04}", n * 7919 % 1000);
            for family in &families {
                family.put(&key, value(n + round, 3)).unwrap();
                family.put("hot", value(n * round, 2)).unwrap();
            }
        }
        for family in &families {
            family.delete_range(format!("5{round}")..format!("5{round}5")).unwrap();
            family.delete(format!("{:04}", round * 7919 % 1000)).unwrap();
        }
        if round < 3 {
            db.flush().unwrap();
            db.wait_idle().unwrap();
        }
    }
    let contents = contents(&db);
    db.close().unwrap();
    contents
}

/// The contents of the fixture of that name; it is written first where that was asked for.
fn expected(name: &str, write: fn(&Path) -> Contents) -> Contents {
    let dir = fixture(name);
    if std::env::var("SILTSTONE_WRITE_FIXTURE").is_ok_and(|wanted| wanted == name) {
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(&dir).unwrap();
        let contents = write(&dir);
        ["LOCK", "RESERVE"].iter().for_each(|name| fs::remove_file(dir.join(name)).unwrap());
        fs::write(dir.join("contents.json"), serde_json::to_string_pretty(&contents).unwrap()).unwrap();
    }
    serde_json::from_str(&fs::read_to_string(dir.join("contents.json")).unwrap()).unwrap()
}

fn copied(name: &str, to: &Path) {
    for entry in fs::read_dir(fixture(name)).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
    fs::remove_file(to.join("contents.json")).unwrap();
}

#[test]
fn a_database_of_format_1_is_read_checked_and_written_on() {
    let expected = expected("format-1", write_format_1);
    assert_eq!(expected.len(), 9);
    let dir = tempfile::tempdir().unwrap();
    copied("format-1", dir.path());
    let report = siltstone::check(&Env::local(), dir.path(), &mut |_| {}).unwrap();
    assert!(report.is_clean() && report.tables > 8 && report.log_frames > 100, "{report:?}");
    assert_eq!(contents(&builder().open_read_only(dir.path()).unwrap()), expected);
    let db = builder().open(dir.path()).unwrap();
    assert_eq!(contents(&db), expected);
    assert!(db.statistics().sstable_bytes > 0);
    for name in db.families() {
        db.family(&name).unwrap().compact::<&[u8]>(..).unwrap();
    }
    assert_eq!(contents(&db), expected);
    db.family("events").unwrap().join(&db.family("events/05").unwrap()).unwrap();
    db.put("0838", "written on").unwrap();
    db.close().unwrap();
    let db = builder().open(dir.path()).unwrap();
    assert_eq!(db.get("0838").unwrap().unwrap(), "written on");
    let events = db.family("events").unwrap().scan::<&[u8]>(..).count();
    assert_eq!(events, expected["events"].len() + expected["events/05"].len());
}

#[test]
fn a_database_of_a_build_with_the_feature_papers_is_read_without_it_and_written_once_altered() {
    let expected = expected("papers", write_papers);
    assert_eq!(expected.len(), 1 + PAPERS.len());
    let written_on = |family: &Family| {
        family.put("k", "v").unwrap();
        family.delete("k").unwrap();
        family.compact::<&[u8]>(..).unwrap();
    };
    let dir = tempfile::tempdir().unwrap();
    copied("papers", dir.path());
    let db = builder().open(dir.path()).unwrap();
    for (option, value, _) in PAPERS {
        let family = db.family(value).unwrap();
        let mut options = family.options();
        options.set(option, value).unwrap();
        assert_eq!(family.options(), options, "{value} is kept");
        written_on(&family);
    }
    assert_eq!(contents(&db), expected);
    db.close().unwrap();
    // The same bytes, opened by this thread as a build without the feature opens them.
    let dir = tempfile::tempdir().unwrap();
    copied("papers", dir.path());
    lack_papers(true);
    let report = siltstone::check(&Env::local(), dir.path(), &mut |_| {}).unwrap();
    assert!(report.is_clean() && report.tables >= 8 && report.log_frames > 0, "{report:?}");
    assert_eq!(contents(&builder().open_read_only(dir.path()).unwrap()), expected);
    let db = builder().open(dir.path()).unwrap();
    written_on(&db.default_family());
    for (_, value, says) in PAPERS {
        let refused = db.family(value).unwrap().put("k", "v").unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Unsupported, "{value}: {refused}");
        assert!(refused.to_string().contains(says), "{value}: {refused}");
    }
    assert_eq!(contents(&db), expected);
    for (_, value, _) in PAPERS {
        let family = db.family(value).unwrap();
        family.alter(FamilyOptions::default()).unwrap();
        written_on(&family);
    }
    db.close().unwrap();
    assert_eq!(contents(&builder().open(dir.path()).unwrap()), expected);
    lack_papers(false);
}
