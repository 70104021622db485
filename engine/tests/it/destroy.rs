//! Deleting databases.
#![allow(clippy::disallowed_methods, reason = "makes, lists and damages real files")]

use siltstone::schedule::SimScheduler;
use siltstone::storage::Env;
use siltstone::storage::sim::{Mode, SimWorld, Survive};
use siltstone::{Builder, Db, ErrorKind, Options, destroy};
use std::fs;
use std::path::Path;
use std::sync::Arc;

fn filled(dir: &Path) -> Db {
    let db = Db::open(dir).unwrap();
    for n in 0..100 {
        db.put(format!("{n:03}"), [b'v'; 100]).unwrap();
    }
    db.flush().unwrap();
    db.put("in the WAL", "alone").unwrap();
    db
}

fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_database_is_deleted_with_its_directory_and_copies_stay() {
    let dir = tempfile::tempdir().unwrap();
    let (path, copy) = (dir.path().join("db"), dir.path().join("copy"));
    let db = filled(&path);
    db.checkpoint(&copy).unwrap();
    db.close().unwrap();
    destroy(&Env::local(), &path).unwrap();
    assert!(!path.exists());
    assert_eq!(Db::open(&copy).unwrap().scan::<&str>(..).count(), 101);
    assert_eq!(destroy(&Env::local(), &path).unwrap_err().kind(), ErrorKind::NotFound);
}

#[test]
fn one_that_is_open_is_refused_and_whole() {
    let dir = tempfile::tempdir().unwrap();
    let db = filled(dir.path());
    assert_eq!(destroy(&Env::local(), dir.path()).unwrap_err().kind(), ErrorKind::Busy);
    db.close().unwrap();
    assert_eq!(filled(dir.path()).scan::<&str>(..).count(), 101);
}

#[test]
fn files_of_others_stay_and_a_directory_without_a_database_is_untouched() {
    let dir = tempfile::tempdir().unwrap();
    let made = dir.path().join("made");
    let others = ["000003.log", "MANIFEST-000002", "a.table", "manifest-1", "notes.txt", "x.new"];
    for name in others {
        fs::write(dir.path().join(name), "theirs").unwrap();
    }
    assert_eq!(destroy(&Env::local(), dir.path()).unwrap_err().kind(), ErrorKind::NotFound);
    for wrong in ["CURRENT", "DESTROYED"] {
        fs::write(dir.path().join(wrong), "MANIFEST-000002\n").unwrap();
        assert_eq!(destroy(&Env::local(), dir.path()).unwrap_err().kind(), ErrorKind::Corruption);
        fs::remove_file(dir.path().join(wrong)).unwrap();
    }
    assert_eq!(names(dir.path()), others);
    filled(&made).close().unwrap();
    for name in others {
        fs::write(made.join(name), "theirs").unwrap();
    }
    Db::open(&made).unwrap().close().unwrap();
    destroy(&Env::local(), &made).unwrap();
    assert_eq!(names(&made), others);
}

/// Names alone are no evidence: another database may have its tables there.
#[test]
fn a_directory_of_tables_is_no_database() {
    let dir = tempfile::tempdir().unwrap();
    let (path, tables) = (dir.path().join("db"), dir.path().join("tables"));
    let options = Options { sstable_store: Some(tables.clone()), ..Options::default() };
    let db = Db::builder().options(options).open(&path).unwrap();
    for n in 0..100 {
        db.put(format!("{n:03}"), [b'v'; 100]).unwrap();
    }
    db.flush().unwrap();
    db.close().unwrap();
    let before = names(&tables);
    assert!(destroy(&Env::local(), &tables).is_err());
    assert_eq!(names(&tables), before);
    // Nor is the database's own directory once it has lost what says where its tables lie.
    fs::remove_file(path.join("CURRENT")).unwrap();
    let before = names(&path);
    assert_eq!(destroy(&Env::local(), &path).unwrap_err().kind(), ErrorKind::Unsupported);
    assert_eq!(names(&path), before);
    for lone in ["RESERVE", "EVENTS", "0000000001.log"] {
        let lonely = tempfile::tempdir().unwrap();
        fs::write(lonely.path().join(lone), "").unwrap();
        assert!(destroy(&Env::local(), lonely.path()).is_err(), "{lone}");
        assert_eq!(names(lonely.path()), [lone]);
    }
}

/// Whichever of its files a crash left: no open finds anything in them, and another try removes them.
#[test]
fn what_a_crash_left_of_it_is_deleted_by_the_next_try() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    filled(&path).close().unwrap();
    let all: Vec<(String, Vec<u8>)> =
        names(&path).into_iter().map(|name| (name.clone(), fs::read(path.join(name)).unwrap())).collect();
    let (current, rest): (Vec<_>, Vec<_>) = all.into_iter().partition(|(name, _)| name == "CURRENT");
    assert!(rest.len() > 4, "{:?}", rest.iter().map(|(name, _)| name).collect::<Vec<_>>());
    fs::remove_dir_all(&path).unwrap();
    for left in 0..1u32 << rest.len() {
        let lay = || {
            fs::create_dir_all(&path).unwrap();
            fs::write(path.join("DESTROYED"), &current[0].1).unwrap();
            for (_, (name, bytes)) in rest.iter().enumerate().filter(|(i, _)| left & 1 << i != 0) {
                fs::write(path.join(name), bytes).unwrap();
            }
        };
        lay();
        if let Ok(db) = Db::open(&path) {
            assert_eq!(db.scan::<&str>(..).count(), 0, "{left:b}");
        }
        let _ = fs::remove_dir_all(&path);
        lay();
        destroy(&Env::local(), &path).unwrap();
        assert!(!path.exists(), "{left:b}: {:?}", names(&path));
    }
}

#[test]
fn what_a_repair_put_aside_stays() {
    let dir = tempfile::tempdir().unwrap();
    filled(dir.path()).close().unwrap();
    let table = names(dir.path()).into_iter().find(|name| name.ends_with(".table")).unwrap();
    let mut bytes = fs::read(dir.path().join(&table)).unwrap();
    bytes[100] ^= 1;
    fs::write(dir.path().join(&table), bytes).unwrap();
    siltstone::repair(&Env::local(), dir.path(), &mut |_| {}).unwrap();
    destroy(&Env::local(), dir.path()).unwrap();
    assert_eq!(names(dir.path()), ["lost"]);
}

#[test]
fn tables_that_lie_elsewhere_are_not_left_behind_in_silence() {
    let dir = tempfile::tempdir().unwrap();
    let (path, tables) = (dir.path().join("db"), dir.path().join("tables"));
    let options = Options { sstable_store: Some(tables.clone()), ..Options::default() };
    let db = Db::builder().options(options).open(&path).unwrap();
    db.put("k", "v").unwrap();
    db.close().unwrap();
    let why = destroy(&Env::local(), &path).unwrap_err();
    assert_eq!(why.kind(), ErrorKind::Unsupported);
    assert!(why.to_string().contains(tables.to_str().unwrap()), "{why}");
    assert_eq!(Db::open(&path).unwrap().get("k").unwrap().unwrap(), b"v");
}

/// On a simulated disk, a closed database.
fn simulated(seed: u64) -> SimWorld {
    let world = SimWorld::new(seed);
    let db = open_simulated(&world).unwrap();
    for n in 0..100 {
        db.put(format!("{n:03}"), [b'v'; 100]).unwrap();
    }
    db.flush().unwrap();
    db.put("in the WAL", "alone").unwrap();
    db.close().unwrap();
    world
}

fn open_simulated(world: &SimWorld) -> siltstone::Result<Db> {
    Builder::new().env(world.env()).scheduler(Arc::new(SimScheduler::for_world(world))).open("/db")
}

/// It is whole, or nothing of it is found; and another try deletes it, if there is anything left of it.
fn is_whole_or_gone(world: &SimWorld, what: &str) {
    let ended = destroy(&world.with_storage(world.storage.clone_killed()).env(), "/db");
    let is_deleted = ended.as_ref().err().is_none_or(|why| why.kind() == ErrorKind::NotFound);
    assert!(is_deleted, "{what}: {ended:?}");
    if let Ok(db) = open_simulated(world) {
        let rows = db.scan::<&str>(..).count();
        assert!([0, 101].contains(&rows), "{what}: {rows} rows");
    }
}

#[test]
fn whichever_operation_fails_or_is_the_last_before_a_power_loss() {
    let mut failed = 0;
    for nth in 1.. {
        let world = simulated(nth);
        world.storage.fail_at_any(nth, Mode::Once, std::io::ErrorKind::Other);
        let ended = destroy(&world.env(), "/db");
        if world.storage.faults_injected() == 0 {
            ended.unwrap();
            break;
        }
        world.storage.clear_faults();
        failed += u32::from(ended.is_err());
        is_whole_or_gone(&world, &format!("operation {nth} failed"));
        for survive in [Survive::None, Survive::Half, Survive::All] {
            let world = simulated(nth);
            world.storage.crash_at(nth);
            let _ = destroy(&world.env(), "/db");
            is_whole_or_gone(
                &world.crash(survive, nth),
                &format!("power lost at operation {nth}, {survive:?}"),
            );
        }
    }
    assert!(failed > 8, "{failed} failures were told");
}
