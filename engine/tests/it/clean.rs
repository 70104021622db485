//! Cleaning the WAL from its front: what it lets go, and the histories that could break it.

use crate::crashes_at;
use siltstone::schedule::SimScheduler;
use siltstone::storage::sim::{SimWorld, Survive};
use siltstone::testing::with_kill_hook;
use siltstone::{Builder, Db, Durability, EventKind, FamilyOptions, Options, Tuning};
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

const WAL_FILE: u64 = 16 << 10;

fn options() -> Options {
    Options {
        write_memory: 256 << 10,
        memory_budget: 1 << 20,
        workers: 2,
        tuning: Tuning { wal_file_bytes: WAL_FILE, ..Tuning::default() },
        ..Options::default()
    }
}

fn open_with(world: &SimWorld, options: Options, memory: &str) -> (Db, Arc<SimScheduler>) {
    let scheduler = Arc::new(SimScheduler::new(world.random.clone()));
    let family = FamilyOptions { memtable_policy: memory.parse().unwrap(), ..FamilyOptions::default() };
    let db = Builder::new()
        .options(options)
        .env(world.env())
        .scheduler(scheduler.clone())
        .family("default", family.clone())
        .family("quiet", family)
        .open("/db")
        .unwrap();
    (db, scheduler)
}

/// A WAL that is cleaned from three files on.
fn open(world: &SimWorld) -> (Db, Arc<SimScheduler>) {
    open_with(
        world,
        Options { tuning: Tuning { wal_clean_bytes: 3 * WAL_FILE, ..options().tuning }, ..options() },
        "none",
    )
}

fn value(db: &Db, family: &str, key: &str) -> Option<String> {
    let found = db.family(family).unwrap().get(key.as_bytes()).unwrap();
    found.map(|value| String::from_utf8(value.to_vec()).unwrap().trim().to_string())
}

/// Overwrites few keys, so that little of the WAL is needed.
fn churn(db: &Db, scheduler: &SimScheduler, from: u64, writes: u64) {
    for n in from..from + writes {
        scheduler.run(u32::from(n % 8 == 0) * 4);
        db.put(format!("key{:02}", n % 10).as_bytes(), format!("{n:>100}").as_bytes()).unwrap();
    }
}

#[test]
fn a_full_wal_with_small_memory_flushes_nothing_and_goes_on_with_the_newest_cells() {
    let world = SimWorld::new(1);
    let (db, scheduler) = open_with(&world, options(), "eager");
    db.family("quiet").unwrap().put(b"once", b"written").unwrap();
    // 6 MB through a WAL of 1 MiB; memory never holds more than a tenth.
    churn(&db, &scheduler, 0, 60_000);
    db.wait_idle().unwrap();
    let done = db.statistics();
    assert!(done.wal_bytes <= 4 * options().write_memory, "{} bytes of WAL", done.wal_bytes);
    assert!(done.wal_cleanings > 5, "{} files cleaned", done.wal_cleanings);
    assert_eq!(value(&db, "quiet", "once").unwrap(), "written");
    assert_eq!(done.flushes, 0);
    assert!(done.wal_cleaned_bytes < done.user_bytes / 20, "{} bytes logged again", done.wal_cleaned_bytes);
    let (db, _) =
        open_with(&world.with_storage(world.storage.clone_crashed(Survive::All, 1)), options(), "none");
    assert_eq!(value(&db, "quiet", "once").unwrap(), "written");
    for n in 0..10 {
        assert_eq!(value(&db, "default", &format!("key{n:02}")).unwrap(), format!("{}", 59_990 + n));
    }
}

/// A WAL that filled up while its oldest two files are needed wholly.
fn with_needed_front(wal_flush_threshold: f64) -> Db {
    let (db, scheduler) = open_with(
        &SimWorld::new(1),
        Options { tuning: Tuning { wal_flush_threshold, ..options().tuning }, ..options() },
        "eager",
    );
    for n in 0..256u64 {
        db.family("quiet").unwrap().put(n.to_be_bytes(), [7; 100]).unwrap();
    }
    churn(&db, &scheduler, 0, 20_000);
    db.wait_idle().unwrap();
    db
}

#[test]
fn a_front_of_which_most_is_needed_flushes_its_store_once_the_wal_is_over_its_limit() {
    let db = with_needed_front(0.0);
    assert!(db.statistics().wal_bytes <= 4 * options().write_memory);
    let events = db.events();
    let flushed = events.iter().find(|e| e.kind == EventKind::Flush).expect("a flush");
    assert!(
        flushed.family == "quiet" && flushed.reason.contains("of the oldest file are needed"),
        "{flushed}"
    );
    assert!(events.iter().any(|e| e.kind == EventKind::WalClean && e.family == "quiet"));
}

#[test]
fn a_front_of_which_most_is_needed_is_left_below_the_limit_and_not_looked_at_again() {
    let (db, scheduler) = open(&SimWorld::new(1));
    for n in 0..256u64 {
        db.family("quiet").unwrap().put(n.to_be_bytes(), [7; 100]).unwrap();
    }
    churn(&db, &scheduler, 0, 300);
    let events = db.events();
    let of_front: Vec<_> =
        events.iter().filter(|e| e.kind == EventKind::WalClean && e.numbers["file"] == 1).collect();
    assert!(of_front.len() == 1 && of_front[0].reason.ends_with("it is left"), "{of_front:?}");
    let wal_bytes = db.statistics().wal_bytes;
    assert!(wal_bytes > 4 * WAL_FILE, "{wal_bytes} bytes of WAL, so it was due all the time");
}

/// Memory counts as small (TRI-2), because the threshold is above what it has. So its cells in the oldest WAL
/// files are logged again, and nothing is flushed.
#[test]
fn a_front_of_which_most_is_needed_is_logged_again_while_memory_is_small() {
    let db = with_needed_front(0.5);
    let done = db.statistics();
    assert!(done.flushes == 0 && done.wal_bytes <= 4 * options().write_memory, "{done:?}");
    let small = |e: &&siltstone::Event| e.kind == EventKind::WalClean && e.reason.contains("memory has only");
    let events = db.events();
    let cleaned: Vec<_> = events.iter().filter(small).collect();
    assert!(!cleaned.is_empty());
    assert!(
        cleaned.iter().all(|e| e.numbers["is_gone"] == 1 && e.numbers["logged_bytes"] > 0),
        "{cleaned:?}"
    );
}

/// Not the one that was looked at first, though the other has so much memory that not all of it is looked at
/// at once.
#[test]
fn of_two_stores_that_need_the_front_the_one_that_needs_more_is_flushed() {
    let world = SimWorld::new(1);
    let options = Options {
        write_memory: 4 << 20,
        memory_budget: 16 << 20,
        tuning: Tuning { wal_file_bytes: 256 << 10, wal_flush_threshold: 0.0, ..options().tuning },
        ..options()
    };
    let (db, scheduler) = open_with(&world, options, "eager");
    let (less, more) =
        (db.family("quiet").unwrap(), db.create_family("more", FamilyOptions::default()).unwrap());
    let put = |family: &siltstone::Family, n: u64| {
        family.put(n.to_be_bytes(), [7; 100]).unwrap();
        scheduler.run(1);
    };
    // Of each seven cells of the oldest files three are of one and four of the other.
    for n in 0..3_500u64 {
        put(if n % 7 < 3 { &less } else { &more }, n * 5);
    }
    // What comes later lies among them.
    for n in (0..17_500u64).filter(|n| n % 5 == 2) {
        put(&more, n);
    }
    churn(&db, &scheduler, 0, 160_000);
    db.wait_idle().unwrap();
    let events = db.events();
    let flushed = events.iter().find(|e| e.kind == EventKind::Flush).expect("a flush");
    assert!(flushed.family == "more" && flushed.reason.contains("of the oldest file"), "{flushed}");
}

/// Guard: what cleaning logs again carries the generation of the memtable it was found in.
#[test]
fn a_deleted_key_does_not_come_back_after_cleaning_raced_a_flush() {
    let world = SimWorld::new(1);
    let (db, scheduler) = open(&world);
    db.put(b"doomed", b"alive").unwrap();
    let raced = Rc::new(Cell::new(false));
    let (inner, once) = (db.clone(), raced.clone());
    let hook = move |name| {
        if name == "clean-looked" && !once.replace(true) {
            // Cleaning has found the cell and logs it again only after it went to a table, was deleted, and
            // both were merged away: the other worker does that.
            inner.flush().unwrap();
            inner.delete(b"doomed").unwrap();
            inner.flush().unwrap();
            inner.default_family().compact::<&str>(..).unwrap();
        }
    };
    with_kill_hook(hook, || {
        churn(&db, &scheduler, 0, 600);
        db.wait_idle().unwrap();
    });
    assert!(raced.get() && db.statistics().wal_cleaned_bytes > 0);
    db.sync().unwrap();
    for survive in [Survive::None, Survive::All] {
        let (again, _) = open(&world.with_storage(world.storage.clone_crashed(survive, 1)));
        assert_eq!(value(&again, "default", "doomed"), None, "{survive:?}");
    }
}

/// Guard: what was logged again is synced before the file it came from goes.
#[test]
fn sync_data_is_there_when_its_wal_file_was_cut_while_the_successor_was_not_synced() {
    for point in ["clean-copied", "clean-synced", "clean-marked", "clean-committed", "wal-before-release"] {
        let world = SimWorld::new(1);
        let (db, scheduler) = open(&world);
        let quiet = db.family("quiet").unwrap();
        for n in 0..20 {
            quiet.put_with(format!("sync{n:02}").as_bytes(), b"promised", Durability::Sync).unwrap();
        }
        let images = crashes_at(&world, point, || {
            for round in 0..30 {
                churn(&db, &scheduler, round * 60, 60);
                db.wait_idle().unwrap();
            }
        });
        assert!(images.len() > 10, "{point}: {} images", images.len());
        for (i, image) in images.into_iter().enumerate() {
            // Twice, as recovery may be cut off too.
            let world = world.with_storage(image);
            drop(open(&world));
            let (db, _) = open(&world.with_storage(world.storage.clone_crashed(Survive::None, 1)));
            for n in 0..20 {
                let key = format!("sync{n:02}");
                assert_eq!(value(&db, "quiet", &key).as_deref(), Some("promised"), "{point} {i} {key}");
            }
        }
    }
}

/// Guard: range tombstones of the oldest file are logged again as cells are.
#[test]
fn a_range_tombstone_and_what_it_deletes_keep_their_order_through_cleaning() {
    let world = SimWorld::new(1);
    let (db, scheduler) = open(&world);
    let quiet = db.family("quiet").unwrap();
    (0..10).for_each(|n| drop(quiet.put(format!("q{n}").as_bytes(), b"old").map(|_| ())));
    quiet.delete_range("q3".."q7").unwrap();
    quiet.put(b"q5", b"new").unwrap();
    for n in 0..3_000 {
        churn(&db, &scheduler, n, 1);
        scheduler.run(1);
        if n % 200 == 199 {
            let (again, _) = open(&world.with_storage(world.storage.clone_killed()));
            for n in 0..10 {
                let expected = match n {
                    5 => Some("new"),
                    3 | 4 | 6 => None,
                    _ => Some("old"),
                };
                assert_eq!(value(&again, "quiet", &format!("q{n}")).as_deref(), expected, "q{n}");
            }
        }
    }
    assert!(db.statistics().wal_cleanings > 5, "{} cleanings", db.statistics().wal_cleanings);
}
