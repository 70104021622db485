//! In-memory merging as a user meets it: memory holds more updates, the log is let go, reads are the same.

use siltstone::strategy::MemoryPolicy;
use siltstone::{Builder, Db, FamilyOptions, Options};

fn options() -> Options {
    Options {
        write_memory: 256 << 10,
        memory_budget: 1 << 20,
        log_file_bytes: 64 << 10,
        ..Options::default()
    }
}

fn open(dir: &std::path::Path, policy: &str) -> Db {
    let memory: MemoryPolicy = policy.parse().unwrap();
    let family = FamilyOptions { memory, ..FamilyOptions::default() };
    Builder::new().options(options()).family("default", family).open(dir).unwrap()
}

/// Writes the same 200 keys again and again, `rounds` times; the value says the round.
fn overwrite(db: &Db, rounds: u32) {
    for round in 0..rounds {
        for n in 0..200 {
            let value = format!("{round:>80}");
            db.put(format!("key{n:03}").as_bytes(), value.as_bytes()).unwrap();
        }
    }
}

fn newest(db: &Db) -> Vec<String> {
    let value = |n: u32| db.get(format!("key{n:03}").as_bytes()).unwrap().unwrap();
    (0..200).map(|n| String::from_utf8(value(n).to_vec()).unwrap().trim().to_string()).collect()
}

#[test]
fn updates_of_few_keys_stay_in_memory_and_the_log_is_let_go() {
    for policy in ["eager", "sketch"] {
        let dir = tempfile::tempdir().unwrap();
        let db = open(dir.path(), policy);
        // 12 MB of writes through 256 KiB of memory.
        overwrite(&db, 600);
        db.settle().unwrap();
        let done = db.statistics();
        assert!(done.memory_compactions > 0, "{policy}");
        assert!(done.user_bytes > 30 * options().write_memory);
        let flushed = done.flushed_bytes as f64 / done.user_bytes as f64;
        assert!(
            flushed < 0.1,
            "{policy}: {flushed:.3} of what was written was flushed, {} flushes",
            done.flushes
        );
        assert!(done.log_bytes <= 5 * options().write_memory, "{policy}: {} bytes of log", done.log_bytes);
        assert_eq!(newest(&db), vec!["599"; 200]);
        drop(db);
        let db = open(dir.path(), policy);
        assert_eq!(newest(&db), vec!["599"; 200], "{policy}: after replaying what is left of the log");
    }
}

#[test]
fn every_policy_gives_the_same_answers_to_snapshots_scans_and_gets() {
    for policy in ["none", "basic{segments=2}", "eager", "adaptive{segments=1, r=0.2}", "sketch{segments=2}"]
    {
        let dir = tempfile::tempdir().unwrap();
        let db = open(dir.path(), policy);
        overwrite(&db, 3);
        let snapshot = db.snapshot();
        overwrite(&db, 40);
        db.default_family().delete_range("key100".."key150").unwrap();
        overwrite(&db, 1);
        db.default_family().delete_range("key190"..).unwrap();
        let found: Vec<String> =
            db.scan::<&str>(..).map(|e| String::from_utf8(e.unwrap().key).unwrap()).collect();
        assert_eq!(found, (0..190).map(|n| format!("key{n:03}")).collect::<Vec<_>>(), "{policy}");
        for n in [0, 120, 199] {
            let old = db.at(&snapshot).get(format!("key{n:03}").as_bytes()).unwrap().unwrap();
            assert_eq!(old.trim_ascii(), b"2", "{policy} at the snapshot");
        }
        if policy == "none" {
            let done = db.statistics();
            assert_eq!((done.index_merges, done.memory_compactions), (0, 0));
        }
    }
}

#[test]
fn a_policy_changes_at_run_time() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path(), "none");
    overwrite(&db, 30);
    assert_eq!(db.statistics().memory_compactions, 0);
    let family = db.default_family();
    family.alter(FamilyOptions { memory: "eager".parse().unwrap(), ..family.options() }).unwrap();
    overwrite(&db, 60);
    db.settle().unwrap();
    assert!(db.statistics().memory_compactions > 0);
    assert_eq!(newest(&db), vec!["59"; 200]);
}
