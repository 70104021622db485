//! Local databases that move into shared storage: what they hold moves with them, a kill at any point leaves
//! one that goes on or can be undone, and of two copies one moves.

use super::crashes_at;
use siltstone::schedule::SimScheduler;
use siltstone::storage::sim::{SimObjects, SimWorld, Survive};
use siltstone::storage::{ObjectStore, Storage};
use siltstone::testing::with_kill_hook;
use siltstone::{
    Adopted, Builder, ChangeBatch, Db, ErrorKind, Family, FamilyOptions, Options, Result, SeqNo, Timestamp,
    Timestamps, Tuning,
};
use std::path::Path;
use std::sync::Arc;

const DATA: &str = "/data";
const PLACE: &str = "/place";
/// Kill points before the step that decides, in their order, and those from there on.
const BEFORE: &[&str] =
    &["adopt-marked", "adopt-reserved", "adopt-table-uploaded", "adopt-wal-shared", "adopt-state-shared"];
const AFTER: &[&str] =
    &["adopt-decided", "adopt-tables-removed", "adopt-local-part", "adopt-current-removed"];

type Cells = Vec<(Vec<u8>, Timestamp, Vec<u8>)>;

/// All that must be the same before and after.
#[derive(PartialEq, Debug)]
struct Facts {
    families: Vec<(String, FamilyOptions, Cells)>,
    seq: SeqNo,
    changes: Vec<ChangeBatch>,
}

fn options() -> Options {
    Options {
        write_memory: 64 << 10,
        memory_budget: 1 << 20,
        change_log_bytes: 16 << 20,
        tuning: Tuning { wal_file_bytes: 16 << 10, ..Tuning::default() },
        ..Options::default()
    }
}

fn builder(world: &SimWorld) -> Builder {
    Builder::new().options(options()).env(world.env()).scheduler(Arc::new(SimScheduler::for_world(world)))
}

fn store(world: &SimWorld) -> Arc<dyn ObjectStore> {
    SimObjects::new(Arc::new(world.storage.clone()), world.clock.clone(), Path::new(PLACE), None)
}

fn shared(world: &SimWorld) -> Builder {
    builder(world).shared(store(world))
}

fn adopt(world: &SimWorld) -> Result<Adopted> {
    shared(world).adopt(DATA, &mut |_| {})
}

fn undo(world: &SimWorld) -> Result<()> {
    shared(world).undo_adoption(DATA)
}

fn history() -> FamilyOptions {
    FamilyOptions { timestamps: Timestamps::Explicit, versions: 2, ..FamilyOptions::default() }
}

/// A closed database: families of both kinds, one of them split, in SSTables of several runs and in the WAL.
fn filled(seed: u64) -> SimWorld {
    let world = SimWorld::new(seed);
    let db = builder(&world).open(DATA).unwrap();
    fill(&db);
    db.close().unwrap();
    world
}

fn fill(db: &Db) {
    let family = db.create_family("history", history()).unwrap();
    for round in 1..=3u8 {
        for n in 0..60u8 {
            db.put([n], [round, n].repeat(80)).unwrap();
            family.put_at([n], Timestamp(u64::from(round)), [n, round]).unwrap();
        }
        if round < 3 {
            db.flush().unwrap();
        }
    }
    db.default_family().delete_range([20u8]..[30u8]).unwrap();
    family.split([40u8], "history/late").unwrap();
    db.delete([7]).unwrap();
}

fn facts(db: &Db) -> Facts {
    let cells = |family: &Family| {
        let mut cells = Cells::new();
        for entry in family.scan::<&[u8]>(..) {
            let entry = entry.unwrap();
            if family.options().timestamps == Timestamps::Explicit {
                let versions = family.get_versions(&entry.key, 9).unwrap();
                cells.extend(versions.into_iter().map(|(at, v)| (entry.key.clone(), at, v.to_vec())));
            } else {
                cells.push((entry.key, entry.timestamp, entry.value.to_vec()));
            }
        }
        cells
    };
    let families = db.all_families();
    let families = families.iter().map(|family| (family.name().to_string(), family.options(), cells(family)));
    let families = families.collect();
    let seq = db.snapshot().seq();
    let changes = db.changes_since(SeqNo::ZERO).unwrap().map(|batch| batch.unwrap()).collect();
    Facts { families, seq, changes }
}

/// A world with a copy of the disk, as a killed process leaves it.
fn copy(world: &SimWorld) -> SimWorld {
    world.with_storage(world.storage.clone_killed())
}

/// What the local database holds, looked at in a copy of the world.
fn local_facts(world: &SimWorld) -> Facts {
    let db = builder(&copy(world)).open(DATA).unwrap();
    let facts = facts(&db);
    db.close().unwrap();
    facts
}

/// What the shared database holds, for a machine with that directory, looked at in a copy of the world.
fn shared_facts(world: &SimWorld, dir: &str) -> Facts {
    let db = shared(&copy(world)).open(dir).unwrap();
    let facts = facts(&db);
    db.close().unwrap();
    facts
}

fn names(world: &SimWorld, dir: &str) -> Vec<String> {
    world.storage.list(Path::new(dir)).unwrap()
}

/// Nobody but the move itself does anything with the directory, and all say why.
#[track_caller]
fn is_refused(world: &SimWorld) {
    let open = builder(world).open(DATA).map(drop);
    let read = builder(world).open_read_only(DATA).map(drop);
    let checked = siltstone::check(&world.env(), Path::new(DATA), &mut |_| {}).map(drop);
    let repaired = siltstone::repair(&world.env(), Path::new(DATA), &mut |_| {}).map(drop);
    for (call, result) in [("open", open), ("read", read), ("check", checked), ("repair", repaired)] {
        let error = result.expect_err(call);
        let says = error.to_string();
        // A local part without WAL files is nothing to check or repair.
        let is_nothing = error.kind() == ErrorKind::NotFound && says.contains("holds no database");
        assert!(
            error.kind() == ErrorKind::Invalid && says.contains(PLACE) || is_nothing,
            "{call}: {error:?}"
        );
    }
}

#[test]
fn all_that_a_database_holds_moves_and_it_goes_on_there() {
    for is_closed in [true, false] {
        let mut world = SimWorld::new(1);
        let db = builder(&world).open(DATA).unwrap();
        fill(&db);
        if is_closed {
            db.close().unwrap();
        } else {
            world = world.kill();
        }
        let expected = local_facts(&world);
        assert!(expected.changes.len() > 300 && expected.families.len() == 3, "{expected:?}");
        let (mut told, mut files) = (0, Vec::new());
        let adopted = shared(&world).adopt(DATA, &mut |progress| {
            told = progress.done;
            files.push(progress.file);
        });
        let adopted = adopted.unwrap();
        assert!(adopted.tables > 1 && adopted.bytes > 0, "{adopted:?}");
        assert_eq!((adopted.uploaded_bytes, told), (adopted.bytes, adopted.bytes));
        assert!(files.iter().all(|file| file.ends_with(".table")), "{files:?}");

        is_refused(&world);
        let left = |name: &String| !matches!(name.as_str(), "LOCK" | "SHARED" | "EVENTS");
        assert!(!names(&world, DATA).iter().any(left), "{:?}", names(&world, DATA));
        for dir in ["/elsewhere", DATA] {
            assert_eq!(shared_facts(&world, dir), expected, "{dir}, closed {is_closed}");
        }
        assert_eq!(adopt(&world).unwrap(), Adopted::default(), "again");
        assert_eq!(undo(&world).unwrap_err().kind(), ErrorKind::Invalid);

        let db = shared(&world).open(DATA).unwrap();
        assert!(db.put(b"more", b"1").unwrap() > expected.seq);
        db.flush().unwrap();
        db.default_family().compact::<&[u8]>(..).unwrap();
        db.close().unwrap();
        let after = shared_facts(&world, "/elsewhere");
        assert_eq!(after.changes.len(), expected.changes.len() + 1);
        assert_eq!(after.changes[..expected.changes.len()], expected.changes);
        // A backup of it is a local database as any other.
        let db = shared(&world).open(DATA).unwrap();
        db.backup("/backups").unwrap();
        let backups = siltstone::Backups::new(&world.env(), "/backups");
        backups.restore(None, "/restored", &mut |_| {}).unwrap();
        let restored = builder(&world).open("/restored").unwrap();
        assert_eq!(restored.get(b"more").unwrap().unwrap(), b"1");
    }
}

#[test]
fn a_move_that_was_killed_goes_on_or_is_undone_until_it_is_decided() {
    let base = filled(2);
    let expected = local_facts(&base);
    for point in BEFORE.iter().chain(AFTER).copied() {
        let is_decided = AFTER.contains(&point);
        let world = copy(&base);
        for image in crashes_at(&world, point, || _ = adopt(&world).unwrap()) {
            let world = world.with_storage(image);
            is_refused(&copy(&world));
            let elsewhere = copy(&world);
            let options = Options { create_if_missing: false, ..Options::default() };
            let opened = shared(&elsewhere).options(options).open("/elsewhere").map(drop);
            match opened {
                Ok(()) => assert!(is_decided, "{point}"),
                Err(e) => {
                    let refused = matches!(e.kind(), ErrorKind::NotFound | ErrorKind::Invalid);
                    assert!(!is_decided && refused, "{point}: {e:?}");
                }
            }

            let goes_on = copy(&world);
            adopt(&goes_on).unwrap();
            assert_eq!(shared_facts(&goes_on, "/elsewhere"), expected, "{point}");
            assert_eq!(shared_facts(&goes_on, DATA), expected, "{point}");

            let undone = copy(&world);
            match undo(&undone) {
                Ok(()) => assert!(!is_decided, "{point}"),
                Err(e) => {
                    assert!(is_decided && e.kind() == ErrorKind::Invalid, "{point}: {e:?}");
                    continue;
                }
            }
            assert_eq!(local_facts(&undone), expected, "{point}, undone");
            // It is a local database that goes on, and may move later.
            let db = builder(&undone).open(DATA).unwrap();
            db.put(b"later", b"1").unwrap();
            db.flush().unwrap();
            db.close().unwrap();
            let expected = local_facts(&undone);
            adopt(&undone).unwrap();
            assert_eq!(shared_facts(&undone, "/elsewhere"), expected, "{point}, again");
        }
    }
}

#[test]
fn undoing_that_was_killed_goes_on_too() {
    let base = filled(3);
    let expected = local_facts(&base);
    for point in BEFORE.iter().copied() {
        let world = copy(&base);
        for image in crashes_at(&world, point, || _ = adopt(&world).unwrap()) {
            let world = world.with_storage(image);
            for image in crashes_at(&world, "adopt-undone", || undo(&world).unwrap()) {
                let ended = world.with_storage(image);
                let again = copy(&ended);
                undo(&again).unwrap();
                assert_eq!(local_facts(&again), expected, "{point}");
                // Or it moves after all.
                adopt(&ended).unwrap();
                assert_eq!(shared_facts(&ended, "/elsewhere"), expected, "{point}");
            }
        }
    }
}

#[test]
fn a_power_cut_at_any_operation_of_the_disk_leaves_a_move_that_goes_on() {
    let base = filled(4);
    let expected = local_facts(&base);
    let whole = copy(&base);
    let before = whole.storage.op_counts().total();
    adopt(&whole).unwrap();
    let operations = whole.storage.op_counts().total() - before;
    for nth in (1..=operations).step_by((operations as usize / 150).max(1)) {
        let mut world = copy(&base);
        // The second power cut meets a move that goes on.
        for again in 0..2 {
            world.storage.crash_at(nth + 7 * again);
            let _ = adopt(&world);
            world = world.crash(Survive::Half, nth);
        }
        adopt(&world).unwrap();
        assert_eq!(shared_facts(&world, "/elsewhere"), expected, "power cut at operation {nth}");
    }
}

#[test]
fn a_store_that_fails_and_answers_late_delays_a_move() {
    for seed in 0..30 {
        let world = filled(5);
        let expected = local_facts(&world);
        let (disk, clock) = (Arc::new(world.storage.clone()), world.clock.clone());
        let faulty = SimObjects::new(disk, clock, Path::new(PLACE), Some(seed));
        faulty.put_late();
        let adopt = || builder(&world).shared(faulty.clone()).adopt(DATA, &mut |_| {});
        let tries = (0..200).find(|_| adopt().is_ok());
        assert!(tries.is_some(), "seed {seed}");
        // What is late comes now.
        (0..400).for_each(|_| _ = faulty.len("id/0000000000000001"));
        assert_eq!(shared_facts(&world, "/elsewhere"), expected, "seed {seed}, {tries:?}");
    }
}

/// A world with the database and a copy of its directory, both of which were written to since.
fn two_copies() -> SimWorld {
    let world = filled(6);
    let db = builder(&world).open(DATA).unwrap();
    db.checkpoint("/copy").unwrap();
    db.put(b"of", b"the first").unwrap();
    db.flush().unwrap();
    db.close().unwrap();
    let db = builder(&world).open("/copy").unwrap();
    db.put(b"of", b"the copy").unwrap();
    db.flush().unwrap();
    db.close().unwrap();
    world
}

#[test]
fn of_two_copies_one_moves_and_the_other_is_told_what_to_do() {
    let world = two_copies();
    let adopt_copy = |world: &SimWorld| shared(world).adopt("/copy", &mut |_| {}).map(drop);
    let of = |db: &Db| db.get(b"of").unwrap().unwrap().to_vec();
    // The copy has marked its manifest, or reserved the place, when the first one moves.
    for (point, wins) in [("adopt-marked", false), ("adopt-reserved", true)] {
        let world = copy(&world);
        let (of_hook, mut is_first) = (world.clone(), true);
        let hook = move |name| {
            if name == point && std::mem::take(&mut is_first) {
                let moved = adopt(&of_hook);
                assert_eq!(moved.is_err(), wins, "{point}: {moved:?}");
            }
        };
        let moved = with_kill_hook(hook, || adopt_copy(&world));
        let expected: &[u8] = if wins { b"the copy" } else { b"the first" };
        let db = shared(&copy(&world)).open("/elsewhere").unwrap();
        assert_eq!(of(&db), expected, "{point}");
        drop(db);
        if wins {
            moved.unwrap();
            // The one that was refused was not marked.
            assert_eq!(of(&builder(&world).open(DATA).unwrap()), b"the first");
            continue;
        }
        let refused = moved.unwrap_err();
        let says = refused.to_string();
        assert!(
            refused.kind() == ErrorKind::Invalid && says.contains("another copy of /copy"),
            "{refused:?}"
        );
        assert!(says.contains("--undo"), "{says}");
        assert_eq!(builder(&world).open("/copy").unwrap_err().kind(), ErrorKind::Invalid);
        shared(&world).undo_adoption("/copy").unwrap();
        assert_eq!(of(&builder(&copy(&world)).open("/copy").unwrap()), b"the copy");
        let refused = adopt_copy(&world).unwrap_err();
        assert!(!refused.to_string().contains("--undo"), "it was not marked again: {refused}");
        assert_eq!(of(&builder(&world).open("/copy").unwrap()), b"the copy");
    }
}

/// The marked directory itself was copied: both go on, and what was written since stays.
#[test]
fn a_copy_of_a_marked_directory_does_not_bring_an_old_state_back() {
    for point in BEFORE.iter().copied() {
        let base = filled(7);
        let world = copy(&base);
        for image in crashes_at(&world, point, || _ = adopt(&world).unwrap()) {
            let world = world.with_storage(image);
            for name in names(&world, DATA) {
                world.storage.create_dir(Path::new("/copy")).unwrap();
                let (from, to) = (Path::new(DATA).join(&name), Path::new("/copy").join(&name));
                world.storage.link(&from, &to).unwrap();
            }
            world.storage.sync_dir(Path::new("/copy")).unwrap();
            adopt(&world).unwrap();
            let db = shared(&world).open(DATA).unwrap();
            db.put(b"since", b"1").unwrap();
            db.close().unwrap();
            shared(&world).adopt("/copy", &mut |_| {}).unwrap();
            let db = shared(&world).open("/copy").unwrap();
            assert_eq!(db.get(b"since").unwrap().unwrap(), b"1", "{point}");
        }
    }
}

#[test]
fn a_place_with_another_database_is_refused_before_anything_is_marked() {
    let world = filled(8);
    let expected = local_facts(&world);
    let other = shared(&world).open("/other").unwrap();
    other.put(b"of", b"another").unwrap();
    other.close().unwrap();
    let refused = adopt(&world).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid);
    assert!(
        refused.to_string().contains("another database") && refused.to_string().contains(PLACE),
        "{refused}"
    );
    assert_eq!(local_facts(&world), expected);
    assert_eq!(shared(&world).open("/third").unwrap().get(b"of").unwrap().unwrap(), b"another");
    let nothing = shared(&world).adopt("/nothing", &mut |_| {}).unwrap_err();
    assert_eq!(nothing.kind(), ErrorKind::NotFound, "{nothing}");
}

#[test]
fn a_move_goes_on_to_its_own_place_alone() {
    let base = filled(9);
    let world = copy(&base);
    let images = crashes_at(&world, "adopt-reserved", || _ = adopt(&world).unwrap());
    let world = world.with_storage(images[0].clone_killed());
    let disk = Arc::new(world.storage.clone());
    let elsewhere = SimObjects::new(disk, world.clock.clone(), Path::new("/another"), None);
    let refused = builder(&world).shared(elsewhere.clone()).adopt(DATA, &mut |_| {}).unwrap_err();
    assert!(refused.to_string().contains(PLACE), "{refused}");
    assert!(builder(&world).shared(elsewhere).undo_adoption(DATA).is_err());
    assert!(builder(&world).adopt(DATA, &mut |_| {}).is_err(), "no place is named");
    adopt(&world).unwrap();
}

#[test]
fn sstables_that_lie_elsewhere_move_too() {
    let world = SimWorld::new(10);
    let options = Options { sstable_store: Some("/tables".into()), ..options() };
    let db = builder(&world).options(options).open(DATA).unwrap();
    fill(&db);
    db.close().unwrap();
    let expected = local_facts(&world);
    adopt(&world).unwrap();
    assert_eq!(shared_facts(&world, DATA), expected);
    assert!(!names(&world, "/tables").iter().any(|name| name.ends_with(".table")));
}

fn with_wal_values(wal_values: bool) -> Builder {
    let family = FamilyOptions {
        wal_values,
        wal_values_write_amp_max: 1e6,
        memtable_policy: "none".parse().unwrap(),
        compression: siltstone::Compression::None,
        strategy: "leveled{l0_runs_trigger=4}".parse().unwrap(),
        ..FamilyOptions::default()
    };
    let options = Options {
        write_memory: 1 << 20,
        memory_budget: 4 << 20,
        tuning: Tuning { wal_file_bytes: 256 << 10, ..Tuning::default() },
        ..Options::default()
    };
    Builder::new().options(options).family("default", family)
}

#[test]
fn values_in_the_wal_are_merged_first_and_families_that_leave_them_there_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (data, place) = (dir.path().join("data"), dir.path().join("place"));
    let has_wal_values =
        |db: &Db| db.default_family().shape().tables().any(|(_, _, table)| table.has_wal_values());
    let db = with_wal_values(true).open(&data).unwrap();
    (0..660u32).for_each(|n| _ = db.put(n.to_be_bytes(), [n as u8; 400]).unwrap());
    db.flush().unwrap();
    assert!(has_wal_values(&db));
    db.close().unwrap();
    drop(db);
    let shared = Builder::new().options(Options { shared: Some(place), ..Options::default() });
    let refused = shared.clone().adopt(&data, &mut |_| {}).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unsupported);
    assert!(refused.to_string().contains("family default has the option wal_values"), "{refused}");

    let db = with_wal_values(false).open(&data).unwrap();
    assert!(has_wal_values(&db), "the option is for what is flushed from then on");
    db.close().unwrap();
    drop(db);
    shared.clone().adopt(&data, &mut |_| {}).unwrap();
    let db = shared.open(dir.path().join("elsewhere")).unwrap();
    assert!(!has_wal_values(&db));
    for n in 0..660u32 {
        assert_eq!(db.get(n.to_be_bytes()).unwrap().unwrap(), [n as u8; 400], "key {n}");
    }
}
