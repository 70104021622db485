//! SSTables with values in the WAL as a user meets them: values are not written twice, every way of reading
//! finds them, their WAL files stay as long as they are needed and no longer, and damage in those is told.
#![expect(clippy::disallowed_methods, reason = "damages real files, and waits for real workers")]

use siltstone::schedule::SimScheduler;
use siltstone::storage::Env;
use siltstone::storage::sim::SimRandom;
use siltstone::{Builder, CheckReport, Db, FamilyOptions, Options, Tuning, check, repair};
use std::path::{Path, PathBuf};
use std::sync::Arc;

const KEYS: u32 = 660;
const VALUE_BYTES: usize = 400;

fn family(wal_values: bool) -> FamilyOptions {
    FamilyOptions {
        wal_values,
        wal_values_write_amp_max: 1e6,
        memtable_policy: "none".parse().unwrap(),
        compression: siltstone::Compression::None,
        strategy: "leveled{l0_runs_trigger=4}".parse().unwrap(),
        ..FamilyOptions::default()
    }
}

fn builder(write_memory: u64, wal_values: bool) -> Builder {
    let options = Options {
        write_memory,
        memory_budget: 4 * write_memory,
        tuning: Tuning { wal_file_bytes: 256 << 10, ..Tuning::default() },
        ..Options::default()
    };
    Builder::new().options(options).family("default", family(wal_values))
}

fn open_with(dir: &Path, wal_values: bool) -> Db {
    builder(1 << 20, wal_values).open(dir).unwrap()
}

fn open(dir: &Path) -> Db {
    open_with(dir, true)
}

fn key(n: u32) -> Vec<u8> {
    format!("key{:06}", n.wrapping_mul(7919) % 1_000_000).into_bytes()
}

fn value(n: u32, round: u32) -> Vec<u8> {
    (0..VALUE_BYTES as u32).map(|i| (n.wrapping_mul(31) ^ round.wrapping_mul(77) ^ i) as u8).collect()
}

fn fill(db: &Db, round: u32) {
    for n in 0..KEYS {
        db.put(key(n), value(n, round)).unwrap();
    }
}

fn assert_reads(db: &Db, round: u32) {
    for n in 0..KEYS {
        assert_eq!(db.get(key(n)).unwrap().expect("there"), value(n, round), "key {n}");
    }
    let mut expected: Vec<_> = (0..KEYS).map(|n| (key(n), value(n, round))).collect();
    expected.sort();
    let scanned: Vec<_> =
        db.scan::<&str>(..).map(|e| e.unwrap()).map(|e| (e.key, e.value.to_vec())).collect();
    assert_eq!(scanned, expected);
    expected.reverse();
    let backward = db.scan::<&str>(..).rev().map(|e| e.unwrap()).map(|e| (e.key, e.value.to_vec()));
    assert_eq!(backward.collect::<Vec<_>>(), expected);
}

/// The WAL files that tables have values in.
fn needed(db: &Db) -> Vec<u64> {
    let shape = db.default_family().shape();
    let mut files: Vec<u64> = shape.tables().flat_map(|(_, _, t)| t.logs.iter().map(|f| f.0)).collect();
    files.sort_unstable();
    files.dedup();
    files
}

fn log_path(dir: &Path, file: u64) -> PathBuf {
    dir.join(format!("{file:010}.log"))
}

fn logs_on_disk(dir: &Path) -> usize {
    let names = std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name());
    names.filter(|name| name.to_string_lossy().ends_with(".log")).count()
}

fn checked(dir: &Path) -> CheckReport {
    check(&Env::local(), dir, &mut |_| {}).unwrap()
}

/// A closed database with one SSTable with values in the WAL; its WAL files.
fn with_wal_values(dir: &Path) -> Vec<u64> {
    let db = open(dir);
    fill(&db, 1);
    db.flush().unwrap();
    let files = needed(&db);
    assert!(!files.is_empty());
    db.close().unwrap();
    files
}

#[test]
fn values_stay_in_the_wal_and_every_way_of_reading_finds_them() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    fill(&db, 1);
    db.flush().unwrap();
    let done = db.statistics();
    assert_eq!(
        (done.wal_value_sstables, done.wal_value_bytes_saved),
        (1, u64::from(KEYS) * VALUE_BYTES as u64)
    );
    assert!(done.flushed_bytes < done.wal_value_bytes_saved / 5, "{} bytes flushed", done.flushed_bytes);
    assert_reads(&db, 1);
    let pinned = db.get(key(5)).unwrap().unwrap();
    db.close().unwrap();
    drop(db);
    assert_eq!(pinned, value(5, 1), "a value outlives its database");
    assert_reads(&Builder::new().open_read_only(dir.path()).unwrap(), 1);
    assert_reads(&open(dir.path()), 1);
    assert!(checked(dir.path()).is_clean(), "{:?}", checked(dir.path()));
    assert!(checked(dir.path()).leftovers.is_empty());
}

#[test]
fn where_compactions_write_all_more_than_once_values_are_not_left_in_the_wal() {
    let wal_values = |wal_values_write_amp_max: f64| {
        let dir = tempfile::tempdir().unwrap();
        let family = FamilyOptions { wal_values_write_amp_max, ..family(true) };
        let db = builder(1 << 20, true).family("default", family).open(dir.path()).unwrap();
        for round in 1..3 {
            fill(&db, round);
            db.flush().unwrap();
            // Writes as much as came.
            db.default_family().compact::<&str>(..).unwrap();
        }
        assert_reads(&db, 2);
        let choices = db.events().into_iter().filter(|event| event.kind == siltstone::EventKind::WalValues);
        choices.map(|event| event.reason).collect::<Vec<_>>()
    };
    let left = "the WAL holds the values already".to_string();
    assert_eq!(wal_values(2.0), [left.clone(), left.clone()]);
    assert_eq!(wal_values(0.5), [left, "compactions write what comes too often".into()]);
}

#[test]
fn a_compaction_writes_the_values_and_the_wal_files_go() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    for round in 1..4 {
        fill(&db, round);
        db.flush().unwrap();
    }
    let before = needed(&db);
    assert!(before.len() >= 3, "{before:?}");
    let scan = db.scan::<&str>(..);
    db.default_family().compact::<&str>(..).unwrap();
    assert!(needed(&db).is_empty(), "what a compaction writes holds its values");
    assert!(before.iter().all(|file| log_path(dir.path(), *file).exists()), "a scan still reads them");
    assert_eq!(scan.filter(|e| e.is_ok()).count(), KEYS as usize);
    // The WAL lets go of its part with the next flush.
    db.put(b"key000000", value(0, 3)).unwrap();
    db.flush().unwrap();
    assert_gone(dir.path(), &before);
    assert_reads(&db, 3);
    db.close().unwrap();
    assert!(checked(dir.path()).is_clean());
}

#[test]
fn of_two_families_that_write_alike_each_leaves_values_in_files_that_the_other_needs_no_more() {
    let dir = tempfile::tempdir().unwrap();
    let db = builder(8 << 20, true).family("other", family(true)).open(dir.path()).unwrap();
    let families = [db.default_family(), db.family("other").unwrap()];
    for part in 0..6 {
        for n in part * KEYS..(part + 1) * KEYS {
            for family in &families {
                family.put(key(n), value(n, 1)).unwrap();
            }
        }
        families[part as usize % 2].flush().unwrap();
    }
    // Each flush but the first takes two parts, of which the other family had flushed one.
    let parts = db.statistics().wal_value_bytes_saved as f64 / f64::from(KEYS * VALUE_BYTES as u32);
    assert!(parts > 4.0 && parts < 6.5, "values of {parts} parts were left in the WAL");
    let check = |db: &Db| {
        for family in ["default", "other"].map(|name| db.family(name).unwrap()) {
            assert_eq!(family.scan::<&str>(..).filter(|e| e.is_ok()).count(), 6 * KEYS as usize);
            for n in 0..6 * KEYS {
                assert_eq!(family.get(key(n)).unwrap().expect("there"), value(n, 1), "key {n}");
            }
        }
    };
    check(&db);
    let files: Vec<u64> =
        (1..).take_while(|n| *n < 1_000).filter(|n| log_path(dir.path(), *n).exists()).collect();
    families.iter().for_each(|family| family.compact::<&str>(..).unwrap());
    db.put(b"more", b"1").unwrap();
    db.flush().unwrap();
    // But for the newest ones, which the WAL has.
    let (old, _) = files.split_at(files.len() - 4);
    assert!(old.len() > 4, "{files:?}");
    assert_gone(dir.path(), old);
    db.default_family().delete(b"more").unwrap();
    db.close().unwrap();
    assert!(checked(dir.path()).is_clean());
    check(&open(dir.path()));
}

#[test]
fn the_option_is_changed_at_run_time() {
    let dir = tempfile::tempdir().unwrap();
    let db = open_with(dir.path(), false);
    fill(&db, 1);
    db.flush().unwrap();
    assert_eq!(db.statistics().wal_value_sstables, 0);
    db.default_family().alter(family(true)).unwrap();
    fill(&db, 2);
    db.flush().unwrap();
    assert_eq!(db.statistics().wal_value_sstables, 1);
    db.default_family().alter(family(false)).unwrap();
    fill(&db, 3);
    db.flush().unwrap();
    assert_eq!(db.statistics().wal_value_sstables, 1);
    assert_reads(&db, 3);
}

#[test]
fn a_checkpoint_has_the_wal_files_of_its_tables_and_lives_on_alone() {
    let dir = tempfile::tempdir().unwrap();
    let copy = dir.path().join("copy");
    let db = open(&dir.path().join("db"));
    fill(&db, 1);
    db.flush().unwrap();
    fill(&db, 2);
    db.checkpoint(&copy).unwrap();
    fill(&db, 3);
    db.default_family().compact::<&str>(..).unwrap();
    db.close().unwrap();
    std::fs::remove_dir_all(dir.path().join("db")).unwrap();
    assert!(checked(&copy).is_clean(), "{:?}", checked(&copy));
    let db = open(&copy);
    assert!(!needed(&db).is_empty());
    assert_reads(&db, 2);
    db.default_family().compact::<&str>(..).unwrap();
    assert_reads(&db, 2);
}

/// Waits until the sweep has removed them.
fn assert_gone(dir: &Path, files: &[u64]) {
    let there = || files.iter().any(|file| log_path(dir, *file).exists());
    for _ in 0..1000 {
        if !there() {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    assert!(!there(), "of {files:?}");
}

#[cfg(feature = "testing")]
#[test]
fn a_read_costs_one_access_to_the_wal_and_a_compaction_reads_wal_files_whole() {
    use siltstone::schedule::SimScheduler;
    use siltstone::storage::sim::SimWorld;
    let [plain, left] = [false, true].map(|wal_values| {
        let world = SimWorld::new(1);
        let scheduler = Arc::new(SimScheduler::for_world(&world));
        let options = Options {
            write_memory: 1 << 20,
            memory_budget: 8 << 20,
            cache_fill: siltstone::CacheFill::None,
            workers: 1,
            tuning: Tuning { wal_file_bytes: 256 << 10, ..Tuning::default() },
            ..Options::default()
        };
        let builder = Builder::new().options(options).env(world.env()).scheduler(scheduler);
        let db = builder.family("default", family(wal_values)).open("/db").unwrap();
        fill(&db, 1);
        db.flush().unwrap();
        assert_eq!(db.statistics().wal_value_sstables, u64::from(wal_values));
        let few = (0..KEYS).step_by(60);
        let once = few.clone().map(|n| crate::reads(&world, || drop(db.get(key(n)).unwrap().unwrap())));
        let gets: Vec<u64> = once.collect();
        let compaction = crate::reads(&world, || db.default_family().compact::<&str>(..).unwrap());
        assert_eq!(few.filter(|n| db.get(key(*n)).unwrap().unwrap() == value(*n, 1)).count(), gets.len());
        (gets, compaction)
    });
    println!("gets and merges: {plain:?} plain, {left:?} with values in the WAL");
    let more = left.0.iter().sum::<u64>() as f64 / left.0.len() as f64;
    let less = plain.0.iter().sum::<u64>() as f64 / plain.0.len() as f64;
    assert!(more <= less + 1.0, "{more} reads a get, {less} plain");
    assert!(left.0.iter().all(|reads| *reads >= 1));
    // 600 values in some two WAL files.
    assert!(left.1 < plain.1 + 12, "{} reads by a compaction, {} plain", left.1, plain.1);
}

/// Guard: a backup holds its tables by their handles, and these their WAL files.
#[cfg(feature = "testing")]
#[test]
fn wal_files_of_tables_that_a_running_backup_copies_stay_until_it_has_ended() {
    for point in ["backup-moment", "backup-wal-copied", "backup-sstable-copied"] {
        let dir = tempfile::tempdir().unwrap();
        let [from, to, back] = ["db", "backups", "restored"].map(|name| dir.path().join(name));
        let db = open(&from);
        for round in 1..4 {
            fill(&db, round);
            db.flush().unwrap();
        }
        let files = needed(&db);
        assert!(files.len() >= 3, "{files:?}");
        let (inner, at, held) = (db.clone(), from.clone(), files.clone());
        let mut once = true;
        let hook = move |name| {
            if name == point && std::mem::take(&mut once) {
                // Meanwhile the tables are merged away, and memory and WAL let go of everything.
                fill(&inner, 4);
                inner.default_family().compact::<&str>(..).unwrap();
                inner.wait_idle().unwrap();
                assert!(needed(&inner).is_empty());
                let gone = |file: &&u64| !log_path(&at, **file).exists();
                assert_eq!(held.iter().find(gone), None, "at {point}");
            }
        };
        siltstone::testing::with_kill_hook(hook, || db.backup(&to).unwrap());
        // What the WAL could not release while it was copied goes with the next flush.
        fill(&db, 5);
        db.default_family().compact::<&str>(..).unwrap();
        assert_gone(&from, &files);
        assert_reads(&db, 5);
        siltstone::Backups::new(&Env::local(), &to).restore(None, &back, &mut |_| {}).unwrap();
        assert!(checked(&back).is_clean(), "{:?}", checked(&back));
        assert_reads(&open(&back), 3);
    }
}

#[test]
fn files_that_only_tables_need_survive_an_open_and_go_when_they_are_not_needed() {
    let dir = tempfile::tempdir().unwrap();
    let files = with_wal_values(dir.path());
    for _ in 0..3 {
        let db = open(dir.path());
        assert_eq!(needed(&db), files);
        db.put(b"more", b"1").unwrap();
        db.flush().unwrap();
        db.close().unwrap();
    }
    let db = open(dir.path());
    db.default_family().compact::<&str>(..).unwrap();
    db.close().unwrap();
    drop(db);
    let db = open(dir.path());
    assert!(files.iter().all(|file| !log_path(dir.path(), *file).exists()));
    db.close().unwrap();
    let report = checked(dir.path());
    assert!(report.is_clean() && report.leftovers.is_empty(), "{report:?}");
    assert_eq!(logs_on_disk(dir.path()) as u64, report.log_files);
}

#[test]
fn a_flipped_bit_in_a_wal_file_is_an_error_that_names_it_and_never_a_wrong_answer() {
    let dir = tempfile::tempdir().unwrap();
    let files = with_wal_values(dir.path());
    let path = log_path(dir.path(), files[0]);
    let mut bytes = std::fs::read(&path).unwrap();
    let n = (0..KEYS).find(|n| bytes.windows(VALUE_BYTES).any(|w| w == value(*n, 1))).unwrap();
    let at = bytes.windows(VALUE_BYTES).position(|w| w == value(n, 1)).unwrap();
    bytes[at + 100] ^= 4;
    // Written in place: the file is not another one.
    std::fs::write(&path, &bytes).unwrap();
    let report = checked(dir.path());
    assert_eq!(report.damages.len(), 1, "{report:?}");
    let name = path.file_name().unwrap().to_str().unwrap();
    assert_eq!(report.damages[0].file, name);
    assert!(report.damages[0].offset.unwrap() as usize <= at);
    let db = open(dir.path());
    let mut wrong = 0;
    for n in 0..KEYS {
        match db.get(key(n)) {
            Ok(found) => assert_eq!(found.unwrap(), value(n, 1)),
            Err(e) => {
                assert!(e.to_string().contains(name), "{e}");
                wrong += 1;
            }
        }
    }
    assert_eq!(wrong, 1);
    assert!(db.scan::<&str>(..).any(|e| e.is_err()));
    drop(db);
    let mended = repair(&Env::local(), dir.path(), &mut |_| {}).unwrap();
    assert_eq!(mended.lost.len(), 1, "{mended:?}");
    let lost = mended.lost[0].keys.clone().unwrap();
    assert!(lost.contains(&key(n)), "{lost:?}");
    assert!(checked(dir.path()).is_clean());
    let db = open(dir.path());
    let there = (0..KEYS).filter(|n| db.get(key(*n)).unwrap().is_some()).count();
    assert_eq!(there, KEYS as usize - 1);
}

#[test]
fn a_missing_wal_file_is_one_clear_error_and_a_repair_says_what_was_in_it() {
    let dir = tempfile::tempdir().unwrap();
    let files = with_wal_values(dir.path());
    let path = log_path(dir.path(), files[0]);
    std::fs::remove_file(&path).unwrap();
    let refused = Builder::new().open(dir.path()).unwrap_err();
    assert!(refused.to_string().contains("WAL file is missing"), "{refused}");
    assert!(refused.to_string().contains(path.file_name().unwrap().to_str().unwrap()), "{refused}");
    assert!(!checked(dir.path()).is_clean());
    let mended = repair(&Env::local(), dir.path(), &mut |_| {}).unwrap();
    assert!(!mended.is_complete());
    assert!(checked(dir.path()).is_clean());
    let db = open(dir.path());
    for n in 0..KEYS {
        if let Some(found) = db.get(key(n)).unwrap() {
            assert_eq!(found, value(n, 1));
        } else {
            assert!(mended.lost.iter().any(|loss| loss.keys.as_ref().is_some_and(|k| k.contains(&key(n)))));
        }
    }
}

#[test]
fn short_values_and_dead_ones_are_written_as_ever() {
    let dir = tempfile::tempdir().unwrap();
    // Memory for all of it, so that nothing is flushed but what is asked for; memtables are laid out flat as
    // they fill.
    let scheduler = Arc::new(SimScheduler::new(Arc::new(SimRandom::new(1))));
    let db = builder(4 << 20, true).scheduler(scheduler.clone()).open(dir.path()).unwrap();
    for n in 0..5_000u32 {
        db.put(key(n), b"a short value").unwrap();
    }
    db.flush().unwrap();
    assert_eq!(db.statistics().wal_value_sstables, 0);
    // The same few keys, again and again: the WAL is mostly dead.
    for round in 0..400 {
        for n in 0..5 {
            db.put(key(n), value(n, round)).unwrap();
        }
        scheduler.run(1);
    }
    assert!(db.default_family().memtables().iter().any(|memtable| memtable.state == "flat"));
    db.flush().unwrap();
    assert_eq!(db.statistics().wal_value_sstables, 0, "{:?}", db.events());
}
