//! Backups and restores, on real files.
#![allow(clippy::disallowed_methods, reason = "damages and lists real files")]

use siltstone::schedule::SimScheduler;
use siltstone::storage::sim::{Event, Mode, OpKind, SimWorld};
use siltstone::storage::{Env, Storage};
use siltstone::testing::with_kill_hook;
use siltstone::{Backups, Builder, Compression, Db, ErrorKind, FamilyOptions, Options, Tuning};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

fn open(dir: &Path) -> Db {
    let options = Options {
        write_memory: 1 << 20,
        memory_budget: 4 << 20,
        tuning: Tuning { wal_file_bytes: 32 << 10, ..Tuning::default() },
        ..Options::default()
    };
    Builder::new().options(options).open(dir).unwrap()
}

fn backups(dir: &Path) -> Backups {
    Backups::new(&Env::local(), dir)
}

fn restore(from: &Path, id: Option<u64>, to: &Path) -> Db {
    backups(from).restore(id, to, &mut |_| {}).unwrap();
    let report = siltstone::check(&Env::local(), to, &mut |_| {}).unwrap();
    assert!(report.is_clean(), "{:?}", report.damages);
    open(to)
}

fn contents(db: &Db) -> BTreeMap<Vec<u8>, Vec<u8>> {
    db.scan::<&[u8]>(..).map(|e| e.unwrap()).map(|e| (e.key, e.value.to_vec())).collect()
}

fn fill(db: &Db, tag: &str, keys: u32) {
    for n in 0..keys {
        db.put(n.to_be_bytes(), format!("{tag} {n} {}", ".".repeat(40)).as_bytes()).unwrap();
    }
}

fn names(dir: &Path) -> Vec<String> {
    Env::local().storage.list(dir).unwrap()
}

#[test]
fn each_backup_restores_to_its_own_moment_memory_and_families_included() {
    let dir = tempfile::tempdir().unwrap();
    let (db, to) = (open(&dir.path().join("db")), dir.path().join("backups"));
    let other = db.create_family("other", FamilyOptions::default()).unwrap();
    let mut expected = Vec::new();
    for round in 0..4 {
        fill(&db, &format!("round {round}"), 3000);
        other.put(b"round", [round]).unwrap();
        if round == 2 {
            db.default_family().compact::<&[u8]>(..).unwrap();
        }
        let made = db.backup(&to).unwrap();
        assert_eq!((made.id, made.seq), (u64::from(round) + 1, db.snapshot().seq()));
        expected.push(contents(&db));
    }
    db.drop_family("other").unwrap();
    db.close().unwrap();
    for (round, expected) in expected.iter().enumerate() {
        let restored = restore(&to, Some(round as u64 + 1), &dir.path().join(format!("r{round}")));
        assert_eq!(contents(&restored), *expected, "round {round}");
        assert_eq!(restored.family("other").unwrap().get(b"round").unwrap().unwrap(), [round as u8]);
        restored.put(b"goes on", b"here").unwrap();
        restored.default_family().compact::<&[u8]>(..).unwrap();
    }
    assert_eq!(contents(&restore(&to, None, &dir.path().join("latest"))), expected[3]);
}

#[test]
fn tables_that_an_earlier_backup_has_are_not_copied_again() {
    let dir = tempfile::tempdir().unwrap();
    let (db, to) = (open(&dir.path().join("db")), dir.path().join("backups"));
    fill(&db, "first", 9000);
    db.flush().unwrap();
    db.wait_idle().unwrap();
    let first = db.backup(&to).unwrap();
    db.put(b"more", b"of it").unwrap();
    let second = db.backup(&to).unwrap();
    assert!(first.copied_bytes == first.bytes && first.tables > 0, "{first:?}");
    assert!(
        second.copied_bytes < first.bytes / 4 && second.bytes >= first.bytes,
        "{second:?} after {first:?}"
    );
    // A file that went missing is copied again.
    let table = names(&to).into_iter().find(|n| n.ends_with(".table")).unwrap();
    fs::remove_file(to.join(&table)).unwrap();
    let third = db.backup(&to).unwrap();
    assert!(third.copied_bytes > second.copied_bytes, "{third:?}");
    assert_eq!(contents(&restore(&to, None, &dir.path().join("r"))), contents(&db));
}

#[test]
fn old_backups_go_with_the_files_that_nobody_else_names() {
    let dir = tempfile::tempdir().unwrap();
    let (db, to) = (open(&dir.path().join("db")), dir.path().join("backups"));
    for round in 0..3 {
        fill(&db, &format!("round {round}"), 2000);
        db.default_family().compact::<&[u8]>(..).unwrap();
        db.backup(&to).unwrap();
    }
    let before = names(&to).len();
    assert_eq!(backups(&to).keep_last(0).unwrap_err().kind(), ErrorKind::Invalid);
    assert!(backups(&to).keep_last(5).unwrap().is_empty());
    assert_eq!(names(&to).len(), before);
    backups(&to).delete(2).unwrap();
    assert_eq!(backups(&to).delete(2).unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(backups(&to).keep_last(1).unwrap(), [1]);
    let left = names(&to);
    assert!(left.iter().all(|n| n == "LOCK" || n.starts_with("00000003")), "{left:?}");
    assert_eq!(contents(&restore(&to, None, &dir.path().join("r"))), contents(&db));
}

#[test]
fn a_backup_damaged_in_any_file_names_it_and_leaves_nothing_that_opens() {
    let dir = tempfile::tempdir().unwrap();
    let (db, to) = (open(&dir.path().join("db")), dir.path().join("backups"));
    fill(&db, "first", 2000);
    db.flush().unwrap();
    db.put(b"in", b"the WAL").unwrap();
    db.backup(&to).unwrap();
    let files: Vec<String> = names(&to).into_iter().filter(|n| n != "LOCK").collect();
    let kinds = [".table", ".log", "-manifest", ".backup"];
    assert!(kinds.iter().all(|kind| files.iter().any(|f| f.ends_with(kind))), "{files:?}");
    for (number, file) in files.iter().enumerate() {
        let path = to.join(file);
        let whole = fs::read(&path).unwrap();
        let mut flipped = whole.clone();
        flipped[whole.len() / 2] ^= 1;
        for damaged in [Some(flipped), Some(whole[..whole.len() - 1].to_vec()), None] {
            match &damaged {
                Some(bytes) => fs::write(&path, bytes).unwrap(),
                None => fs::remove_file(&path).unwrap(),
            }
            let target = dir.path().join(format!("r{number}"));
            let error = backups(&to).restore(None, &target, &mut |_| {}).unwrap_err();
            if damaged.is_some() || !file.ends_with(".backup") {
                assert_eq!(error.kind(), ErrorKind::Corruption, "{file}: {error}");
                assert!(error.to_string().contains(file.as_str()), "{file}: {error}");
            }
            assert!(!target.exists(), "{file}");
        }
        fs::write(&path, &whole).unwrap();
    }
    assert_eq!(contents(&restore(&to, Some(1), &dir.path().join("sound"))), contents(&db));
}

#[test]
fn a_damaged_descriptor_costs_no_other_backup_a_file() {
    let dir = tempfile::tempdir().unwrap();
    let (db, to) = (open(&dir.path().join("db")), dir.path().join("backups"));
    fill(&db, "first", 1000);
    db.flush().unwrap();
    db.backup(&to).unwrap();
    fs::write(to.join("00000001.backup"), b"rotten").unwrap();
    db.backup(&to).unwrap();
    let error = backups(&to).list().unwrap_err();
    assert!(error.to_string().contains("00000001.backup"), "{error}");
    assert!(names(&to).iter().any(|n| n == "00000001-manifest"), "it may still be of use to somebody");
    backups(&to).keep_last(1).unwrap();
    assert_eq!(backups(&to).list().unwrap().len(), 1);
    assert!(!names(&to).iter().any(|n| n.starts_with("00000001")));
    assert_eq!(contents(&restore(&to, None, &dir.path().join("r"))), contents(&db));
}

#[test]
fn a_directory_takes_the_backups_of_one_database_only() {
    let dir = tempfile::tempdir().unwrap();
    let (a, b) = (open(&dir.path().join("a")), open(&dir.path().join("b")));
    let to = dir.path().join("backups");
    a.backup(&to).unwrap();
    let error = b.backup(&to).unwrap_err();
    assert!(error.kind() == ErrorKind::Invalid && error.to_string().contains("database"), "{error}");
    assert_eq!(
        a.backup(dir.path().join("b")).unwrap_err().kind(),
        ErrorKind::Invalid,
        "a database lies there"
    );
    assert_eq!(backups(&to).list().unwrap().len(), 1);
    let full = dir.path().join("full");
    fs::create_dir(&full).unwrap();
    fs::write(full.join("letter"), b"x").unwrap();
    let refused = backups(&to).restore(None, &full, &mut |_| {}).unwrap_err();
    assert!(refused.kind() == ErrorKind::Invalid && full.join("letter").exists(), "{refused}");
    let none = backups(&dir.path().join("nowhere"));
    assert_eq!(none.list().unwrap(), []);
    assert_eq!(
        none.restore(None, dir.path().join("r"), &mut |_| {}).unwrap_err().kind(),
        ErrorKind::NotFound
    );
}

/// A restored database makes tables of the same names as the one it was restored from, with other contents.
#[test]
fn databases_that_grew_apart_share_a_directory_of_backups() {
    let dir = tempfile::tempdir().unwrap();
    let to = dir.path().join("backups");
    // Tables are made by flushes alone, one after the other, so that both databases count them alike.
    let open = |name: &str| {
        let strategy = "leveled{l0_runs_trigger=1000}".parse().unwrap();
        let family = FamilyOptions { strategy, ..FamilyOptions::default() };
        Builder::new().family("default", family).open(dir.path().join(name)).unwrap()
    };
    let db = open("db");
    fill(&db, "common", 1000);
    db.backup(&to).unwrap();
    db.close().unwrap();
    backups(&to).restore(None, dir.path().join("twin"), &mut |_| {}).unwrap();
    let (one, two) = (open("db"), open("twin"));
    let newest = |db: &Db| db.default_family().shape().tables().map(|(_, _, t)| t.id).max();
    let grow = |db: &Db, tag: &str| {
        fill(db, tag, 1000);
        db.flush().unwrap();
    };
    grow(&one, "one");
    grow(&two, "two");
    while newest(&one) < newest(&two) {
        grow(&one, "one");
    }
    while newest(&two) < newest(&one) {
        grow(&two, "two");
    }
    assert_eq!(newest(&one), newest(&two), "two tables of one name");
    one.backup(&to).unwrap();
    two.backup(&to).unwrap();
    assert_eq!(contents(&restore(&to, Some(2), &dir.path().join("r2"))), contents(&one));
    assert_eq!(contents(&restore(&to, Some(3), &dir.path().join("r3"))), contents(&two));
}

#[test]
fn backups_under_writers_and_compactions_hold_a_prefix_up_to_their_sequence_number() {
    let dir = tempfile::tempdir().unwrap();
    let to = dir.path().join("backups");
    let options = Options {
        write_memory: 256 << 10,
        memory_budget: 1 << 20,
        tuning: Tuning { wal_file_bytes: 32 << 10, compaction_step_bytes: 16 << 10, ..Tuning::default() },
        ..Options::default()
    };
    let strategy = "leveled{l0_runs_trigger=2, multiplier=2, base_bytes=65536, sstable_bytes=32768}";
    let family = FamilyOptions { strategy: strategy.parse().unwrap(), ..FamilyOptions::default() };
    let db = Builder::new().options(options).family("default", family).open(dir.path().join("db")).unwrap();
    let ended = AtomicBool::new(false);
    // One writer, one put a sequence number: number n writes key n mod 5000.
    let base = db.snapshot().seq().0;
    let made = std::thread::scope(|scope| {
        scope.spawn(|| {
            for n in 0u64.. {
                if ended.load(Ordering::Relaxed) {
                    break;
                }
                let seq = db.put((n % 5000).to_be_bytes(), [n.to_be_bytes(); 16].concat()).unwrap();
                assert_eq!(seq.0, base + n + 1);
            }
        });
        let made: Vec<_> = (0..6)
            .map(|_| {
                std::thread::sleep(std::time::Duration::from_millis(150));
                db.backup(&to).unwrap()
            })
            .collect();
        ended.store(true, Ordering::Relaxed);
        made
    });
    assert!(db.statistics().compactions > 0, "nothing was merged meanwhile");
    for backup in made {
        let restored = restore(&to, Some(backup.id), &dir.path().join(format!("r{}", backup.id)));
        let mut expected = BTreeMap::new();
        for n in 0..backup.seq.0 - base {
            expected.insert((n % 5000).to_be_bytes().to_vec(), [n.to_be_bytes(); 16].concat());
        }
        assert!(contents(&restored) == expected, "backup {} at {}", backup.id, backup.seq);
    }
}

/// What the database does between the moment of a backup and its copying.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Meanwhile {
    /// A compaction frees the lower part of tables that the backup is to have.
    HalfACompaction,
    /// All of them are merged away, and the WAL goes on in files that were needed.
    All,
}

fn has_clip(db: &Db) -> bool {
    db.default_family().shape().tables().any(|(_, _, table)| table.clip.is_some())
}

/// Guards: a backup's hold on the WAL, on its tables, and on their holes (`db/backup.rs`).
#[test]
fn what_a_backup_is_to_copy_stays_whole_while_compactions_and_the_wal_go_on() {
    for meanwhile in [Meanwhile::HalfACompaction, Meanwhile::All] {
        let world = SimWorld::new(1);
        let scheduler = Arc::new(SimScheduler::for_world(&world));
        let family = FamilyOptions {
            compression: Compression::None,
            strategy: "leveled{sstable_bytes=32KiB, l0_runs_trigger=6}".parse().unwrap(),
            ..FamilyOptions::default()
        };
        let options = Options {
            write_memory: 1 << 20,
            memory_budget: 2 << 20,
            workers: 1,
            tuning: Tuning { wal_file_bytes: 16 << 10, compaction_step_bytes: 4 << 10, ..Tuning::default() },
            ..Options::default()
        };
        let builder = Builder::new().options(options).env(world.env()).scheduler(scheduler.clone());
        let db = builder.clone().family("default", family).open("/db").unwrap();
        let write = |db: &Db, round: u8| {
            for n in 0..100u32 {
                // Of other lengths, so that tables of different rounds end at different keys.
                db.put(n.to_be_bytes(), vec![round; 1000 - 300 * usize::from(round % 2)]).unwrap();
            }
        };
        for round in 0..2 {
            write(&db, round);
            db.flush().unwrap();
        }
        // These are in the WAL alone.
        for n in 0..50u32 {
            db.put(n.to_be_bytes(), [7; 1000]).unwrap();
        }
        let expected = contents(&db);
        let (of, disk, turns) = (db.clone(), world.storage.clone(), scheduler.clone());
        let mut at_moment = true;
        let hook = move |name| {
            if name != "backup-moment" || !std::mem::take(&mut at_moment) {
                return;
            }
            disk.record_trace();
            write(&of, 9);
            of.flush().unwrap();
            match meanwhile {
                Meanwhile::HalfACompaction => {
                    disk.fail_at_path(OpKind::Create, ".table", 3, Mode::Once, std::io::ErrorKind::Other);
                    let _ = of.default_family().compact::<&[u8]>(..);
                    disk.clear_faults();
                    assert!(has_clip(&of), "it failed after a step");
                    turns.run(3);
                }
                Meanwhile::All => {
                    of.default_family().compact::<&[u8]>(..).unwrap();
                    (0..3).for_each(|_| write(&of, 10));
                    of.flush().unwrap();
                    turns.settle();
                }
            }
        };
        with_kill_hook(hook, || db.backup("/backups")).unwrap();
        let punched = || world.storage.take_trace().iter().filter(|event| event.op == OpKind::Punch).count();
        assert_eq!(punched(), 0, "{meanwhile:?}: nothing was freed meanwhile");
        Backups::new(&world.env(), "/backups").restore(None, "/restored", &mut |_| {}).unwrap();
        let report = siltstone::check(&world.env(), Path::new("/restored"), &mut |_| {}).unwrap();
        assert!(report.is_clean(), "{meanwhile:?}: {:?}", report.damages);
        let other = Arc::new(SimScheduler::for_world(&world));
        let restored = builder.scheduler(other).open("/restored").unwrap();
        assert_eq!(contents(&restored), expected, "{meanwhile:?}");
        if meanwhile == Meanwhile::HalfACompaction {
            world.storage.record_trace();
            scheduler.run(3);
            assert!(punched() > 0, "what was held back comes after it");
        }
    }
}

/// A family split in two, one beside it, all in memory, tables and WAL; only the split one is picked.
#[test]
fn a_backup_of_some_families_has_these_whole_and_nothing_of_the_others() {
    let dir = tempfile::tempdir().unwrap();
    let (db, to) = (open(&dir.path().join("db")), dir.path().join("backups"));
    let left = db.create_family("t.left", FamilyOptions::default()).unwrap();
    let other = db.create_family("other", FamilyOptions::default()).unwrap();
    let write = |round: u32| {
        for n in 0..2_000u32 {
            let value = format!("{round} {n} {}", "x".repeat(100));
            let family = db.family(if n < 1_000 { "t.left" } else { "t.right" });
            family.as_ref().unwrap_or(&left).put(n.to_be_bytes(), &value).unwrap();
            other.put(n.to_be_bytes(), &value).unwrap();
        }
    };
    write(0);
    db.flush().unwrap();
    left.split(1_000u32.to_be_bytes(), "t.right").unwrap();
    write(1);
    let expected: Vec<_> = (0..2_000u32).map(|n| format!("1 {n} {}", "x".repeat(100)).into_bytes()).collect();
    let whole = db.backup(dir.path().join("whole")).unwrap();
    let some = db.backup_families(&to, &|name| name.starts_with("t."), &mut |_| {}).unwrap();
    assert!(some.bytes < whole.bytes, "{} of {}", some.bytes, whole.bytes);
    // The tables of a backup of all serve one of some, and the other way round.
    let again = db.backup_families(&to, &|name| name.starts_with("t."), &mut |_| {}).unwrap();
    assert!(again.copied_bytes < some.copied_bytes);
    write(2);
    let restored = restore(&to, Some(some.id), &dir.path().join("restored"));
    assert_eq!(restored.families(), ["default", "t.left", "t.right"]);
    let all = |db: &Db, names: [&str; 2]| -> Vec<Vec<u8>> {
        let entries = names.into_iter().flat_map(|name| db.family(name).unwrap().scan::<&[u8]>(..));
        entries.map(|entry| entry.unwrap().value.to_vec()).collect()
    };
    assert_eq!(all(&restored, ["t.left", "t.right"]), expected);
    // From there the families move into the database that goes on.
    for name in ["left", "right"] {
        let moving = dir.path().join(name);
        restored.detach(&format!("t.{name}"), &moving).unwrap();
        let attached = db.attach(&format!("u.{name}"), &moving).unwrap();
        assert_eq!(attached.range(), db.family(&format!("t.{name}")).unwrap().range());
    }
    assert_eq!(all(&db, ["u.left", "u.right"]), expected);
}

fn count(trace: &[Event], op: OpKind, end: &str) -> usize {
    trace.iter().filter(|event| event.op == op && event.path.to_string_lossy().ends_with(end)).count()
}

/// By reference it takes a link for each table, and a handful of syncs and edits for all of them.
#[test]
fn two_thousand_tables_are_restored_without_reading_writing_or_syncing_one() {
    let world = SimWorld::new(1);
    let family = FamilyOptions {
        compression: Compression::None,
        strategy: "leveled{sstable_bytes=4KiB}".parse().unwrap(),
        ..FamilyOptions::default()
    };
    let options = Options { write_memory: 16 << 20, memory_budget: 32 << 20, ..Options::default() };
    let open = |dir: &str| {
        let scheduler = Arc::new(SimScheduler::for_world(&world));
        let builder = Builder::new().options(options.clone()).env(world.env()).scheduler(scheduler);
        builder.family("default", family.clone()).open(dir).unwrap()
    };
    let db = open("/db");
    for n in 0..2_100u32 {
        db.put(n.to_be_bytes(), vec![n as u8; 5_000]).unwrap();
    }
    db.flush().unwrap();
    db.default_family().compact::<&[u8]>(..).unwrap();
    let made = db.backup("/backups").unwrap();
    let tables = made.tables as usize;
    assert!(tables >= 2_000, "{tables}");
    let backups = Backups::new(&world.env(), "/backups");

    world.storage.record_trace();
    backups.restore_shared(Some(made.id), "/whole", &mut |_| {}).unwrap();
    let restore = world.storage.take_trace();
    let whole = open("/whole");
    let second = open("/second");
    let written = world.storage.bytes_written();
    world.storage.take_trace();
    let clone = second.copy_families(&whole, &[("default", "clone")]).unwrap().remove(0);
    let copy = world.storage.take_trace();
    for (what, trace) in [("restore", &restore), ("copy", &copy)] {
        assert_eq!(count(trace, OpKind::Link, ".table"), tables, "{what}");
        for op in [OpKind::Create, OpKind::Write, OpKind::Sync] {
            assert_eq!(count(trace, op, ".table"), 0, "{what}: {op:?}");
        }
        let syncs = count(trace, OpKind::Sync, "") + count(trace, OpKind::SyncDir, "");
        assert!(syncs <= 16, "{what}: {syncs} syncs");
    }
    // Its length alone is asked for.
    let is_read = |event: &&Event| {
        event.op == OpKind::Read && event.len > 0 && event.path.to_string_lossy().ends_with(".table")
    };
    assert_eq!(restore.iter().filter(is_read).count(), 0);
    // Of the links, and where the edit begins a new manifest of that.
    let synced = count(&copy, OpKind::SyncDir, "second");
    assert!((1..=2).contains(&synced), "{synced} syncs of the directory");
    let edit = world.storage.bytes_written() - written;
    assert!(edit < 2 << 20, "{edit} bytes for the edit");

    // With backup and copy both gone the tables are the clone's alone.
    whole.close().unwrap();
    backups.delete(made.id).unwrap();
    for name in world.storage.list(Path::new("/whole")).unwrap() {
        world.storage.remove(&Path::new("/whole").join(name)).unwrap();
    }
    clone.put(7u32.to_be_bytes(), b"its own").unwrap();
    second.flush().unwrap();
    clone.compact::<&[u8]>(..).unwrap();
    let found: Vec<_> = clone.scan::<&[u8]>(..).map(|entry| entry.unwrap().value.to_vec()).collect();
    let expected = |n: u32| if n == 7 { b"its own".to_vec() } else { vec![n as u8; 5_000] };
    assert!(found.into_iter().eq((0..2_100).map(expected)));
}

/// Merges of a clone free no part of a file that its backup still has.
#[test]
fn a_backup_is_whole_after_clones_of_it_were_overwritten_and_merged() {
    let dir = tempfile::tempdir().unwrap();
    let (db, to) = (open(&dir.path().join("db")), dir.path().join("backups"));
    fill(&db, "first", 3_000);
    db.flush().unwrap();
    fill(&db, "second", 1_000);
    let expected = contents(&db);
    db.backup(&to).unwrap();
    for round in 0..2 {
        let at = dir.path().join(format!("clone-{round}"));
        backups(&to).restore_shared(None, &at, &mut |_| {}).unwrap();
        let clone = open(&at);
        assert_eq!(contents(&clone), expected, "round {round}");
        fill(&clone, "over", 2_000);
        clone.flush().unwrap();
        clone.default_family().compact::<&[u8]>(..).unwrap();
        clone.close().unwrap();
        let report = siltstone::check(&Env::local(), &at, &mut |_| {}).unwrap();
        assert!(report.is_clean(), "{:?}", report.damages);
    }
    // Compares every byte with what it was.
    assert_eq!(contents(&restore(&to, None, &dir.path().join("restored"))), expected);
}

/// What is read of the backups that there are grows with them once, for each that is made and for all that
/// are deleted together.
#[test]
fn each_descriptor_is_read_once_to_make_a_backup_and_once_to_delete_many() {
    let world = SimWorld::new(1);
    let scheduler = Arc::new(SimScheduler::for_world(&world));
    let db = Builder::new().env(world.env()).scheduler(scheduler).open("/db").unwrap();
    db.put(b"k", b"v").unwrap();
    for _ in 0..6 {
        db.backup("/backups").unwrap();
    }
    let backups = Backups::new(&world.env(), "/backups");
    let opened = || count(&world.storage.take_trace(), OpKind::Open, ".backup");
    world.storage.record_trace();
    assert_eq!((backups.ids().unwrap(), opened()), (vec![1, 2, 3, 4, 5, 6], 0), "names say enough");
    db.backup("/backups").unwrap();
    // One more to see whose directory it is.
    let making = opened();
    assert!((6..=7).contains(&making), "{making}");
    backups.delete_all(&[1, 2, 3, 4, 9]).unwrap();
    assert_eq!((opened(), backups.ids().unwrap()), (3, vec![5, 6, 7]));
    backups.delete_all(&[1, 2]).unwrap();
    assert_eq!(backups.list().unwrap().iter().map(|made| made.id).collect::<Vec<_>>(), [5, 6, 7]);
}
