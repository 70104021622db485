//! Answers where one would not look for them: after merges, with failing disks, among many families.

use siltstone::schedule::SimScheduler;
use siltstone::storage::sim::{Mode, OpKind, Rng, SimWorld, Survive};
use siltstone::testing::{with_kill_hook, work_of};
use siltstone::{
    Batch, Builder, Condition, Db, Durability, ErrorKind, Expected, Family, FamilyOptions, Options, Pinned,
    Result, SeqNo, Timestamp, Timestamps, Tuning,
};
use std::sync::Arc;
use std::sync::atomic::Ordering;

fn counted(versions: u32) -> FamilyOptions {
    FamilyOptions { timestamps: Timestamps::Explicit, versions, ..FamilyOptions::default() }
}

fn write_if(db: &Db, family: &Family, expected: Expected) -> Result<SeqNo> {
    let condition = [Condition::new(family, b"k", expected)];
    db.write_if(&condition, Batch::new().put(family, b"other", b"v"), Durability::Buffered)
}

/// What is done to a family between two calls, none of which may change an answer.
fn stir(family: &Family, how: usize) {
    match how {
        0 => {}
        1 => family.flush().unwrap(),
        _ => family.compact::<&[u8]>(..).unwrap(),
    }
}

#[test]
fn a_stale_writer_is_refused_though_a_compaction_dropped_what_deleted_the_key() {
    type Delete = fn(&Family);
    let deletes: [(&str, Delete); 3] = [
        ("delete", |f| _ = f.delete(b"k").unwrap()),
        ("delete_range", |f| _ = f.delete_range(&b"a"[..]..&b"z"[..]).unwrap()),
        ("put and delete", |f| {
            f.put(b"k", b"w").unwrap();
            f.delete(b"k").unwrap();
        }),
    ];
    for options in [FamilyOptions::default(), counted(1), counted(0)] {
        for (name, delete) in deletes {
            for how in 0..3 {
                let dir = tempfile::tempdir().unwrap();
                let open = || Builder::new().family("f", options.clone()).open(dir.path()).unwrap();
                let db = open();
                let f = db.family("f").unwrap();
                let stale = f.put(b"k", b"v").unwrap();
                stir(&f, how);
                delete(&f);
                stir(&f, how);
                let refused = |db: &Db| {
                    let f = db.family("f").unwrap();
                    write_if(db, &f, Expected::NotNewerThan(stale)).map_err(|e| e.kind())
                };
                assert_eq!(refused(&db), Err(ErrorKind::Conflict), "{name}, stirred {how}");
                let fresh = db.snapshot();
                stir(&f, how);
                write_if(&db, &f, Expected::NotNewerThan(fresh.seq())).unwrap();
                drop((fresh, f));
                db.close().unwrap();
                assert_eq!(refused(&open()), Err(ErrorKind::Conflict), "{name}, stirred {how}, reopened");
            }
        }
    }
}

#[test]
fn of_an_attached_family_nothing_is_known_to_be_unchanged_since_before() {
    let dir = tempfile::tempdir().unwrap();
    let from = Db::open(dir.path().join("from")).unwrap();
    from.create_family("f", FamilyOptions::default()).unwrap().put(b"k", b"v").unwrap();
    from.detach("f", dir.path().join("moving")).unwrap();
    let open = || Db::open(dir.path().join("to")).unwrap();
    let to = open();
    for i in 0..100u8 {
        to.put([i], b"v").unwrap();
    }
    let before = to.snapshot().seq();
    to.attach("f", dir.path().join("moving")).unwrap();
    let refused = |db: &Db| {
        write_if(db, &db.family("f").unwrap(), Expected::NotNewerThan(before)).map_err(|e| e.kind())
    };
    assert_eq!(refused(&to), Err(ErrorKind::Conflict));
    to.close().unwrap();
    assert_eq!(refused(&open()), Err(ErrorKind::Conflict), "nor after a reopen");
}

#[test]
fn a_stale_writer_to_an_attached_family_is_refused_though_a_compaction_dropped_the_delete() {
    let dir = tempfile::tempdir().unwrap();
    let from = Db::open(dir.path().join("from")).unwrap();
    from.create_family("f", FamilyOptions::default()).unwrap().put(b"k", b"v").unwrap();
    from.detach("f", dir.path().join("moving")).unwrap();
    let to = Db::open(dir.path().join("to")).unwrap();
    let f = to.attach("f", dir.path().join("moving")).unwrap();
    let stale = to.snapshot().seq();
    f.delete(b"k").unwrap();
    stir(&f, 2);
    let refused = write_if(&to, &f, Expected::NotNewerThan(stale)).map_err(|e| e.kind());
    assert_eq!(refused, Err(ErrorKind::Conflict));
}

#[test]
fn a_stale_writer_is_refused_though_a_range_tombstone_is_all_that_is_left() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(dir.path()).unwrap();
    let f = db.default_family();
    f.put(b"m", b"below").unwrap();
    f.flush().unwrap();
    // It stays because of `m`, while of `k` nothing does.
    let stale = f.delete_range("a".."z").unwrap();
    f.put(b"k", b"v").unwrap();
    f.delete(b"k").unwrap();
    f.flush().unwrap();
    let refused = write_if(&db, &f, Expected::NotNewerThan(stale)).map_err(|e| e.kind());
    assert_eq!(refused, Err(ErrorKind::Conflict));
}

/// Every way to put flushes and compactions between a few calls gives the same versions at the end.
#[test]
fn which_versions_there_are_depends_on_no_flush_and_no_compaction() {
    enum Call {
        Put(u64),
        Delete(u64),
        DeleteAlone(u64),
    }
    use Call::{Delete, DeleteAlone, Put};
    let stories: &[(u32, &[Call], &[u64])] = &[
        (1, &[Put(5), Put(9), DeleteAlone(9)], &[]),
        (1, &[Put(9), Put(5), DeleteAlone(9)], &[]),
        (1, &[Put(9), DeleteAlone(9), Put(5)], &[5]),
        (1, &[Put(5), Put(9), DeleteAlone(9), Put(4)], &[4]),
        (2, &[Put(1), Put(8), Put(10), DeleteAlone(8), Put(10)], &[10]),
        (2, &[Put(5), Put(8), Put(9), Delete(8)], &[9]),
        (2, &[Put(8), Put(9), DeleteAlone(8), Put(5)], &[9, 5]),
    ];
    for (versions, calls, expected) in stories {
        for stirred in 0..3usize.pow(calls.len() as u32) {
            let world = SimWorld::new(1);
            let db = Builder::new().env(world.env()).family("f", counted(*versions));
            let scheduler = SimScheduler::for_world(&world);
            let db = db.scheduler(Arc::new(scheduler)).open("/db").unwrap();
            let f = db.family("f").unwrap();
            let held = db.snapshot();
            for (at, call) in calls.iter().enumerate() {
                match call {
                    Put(t) => _ = f.put_at(b"k", Timestamp(*t), b"v").unwrap(),
                    Delete(t) => _ = f.delete_at(b"k", Timestamp(*t)).unwrap(),
                    DeleteAlone(t) => {
                        let (from, to) = (Timestamp(*t), Timestamp(*t));
                        f.delete_range_at(&b"a"[..]..&b"z"[..], from, to).unwrap();
                    }
                }
                stir(&f, stirred / 3usize.pow(at as u32) % 3);
            }
            let found: Vec<u64> = f.get_versions(b"k", 9).unwrap().iter().map(|(t, _)| t.0).collect();
            assert_eq!(found, *expected, "stirred {stirred}");
            let scanned: Vec<u64> = f.scan::<&str>(..).map(|e| e.unwrap().timestamp.0).collect();
            assert_eq!(scanned, *expected, "stirred {stirred}, scanned");
            assert!(f.at(&held).get(b"k").unwrap().is_none());
        }
    }
}

#[test]
fn compactions_that_fail_again_and_again_are_told_to_whoever_waits_for_them() {
    let world = SimWorld::new(3);
    let scheduler = SimScheduler::for_world(&world);
    let strategy = "leveled{l0_runs_trigger=2, defer_below=0}".parse().unwrap();
    let options = FamilyOptions { strategy, ..FamilyOptions::default() };
    let db = Builder::new().env(world.env()).scheduler(Arc::new(scheduler)).family("default", options);
    let db = db.open("/db").unwrap();
    db.put(b"k", b"v").unwrap();
    db.flush().unwrap();
    db.wait_idle().unwrap();
    assert_eq!(db.statistics().background_error, None);
    db.close().unwrap();
    // With nothing of the table in the cache.
    let scheduler = Arc::new(SimScheduler::for_world(&world));
    let db = Builder::new().env(world.env()).scheduler(scheduler).open("/db").unwrap();
    let names = world.env().storage.list("/db".as_ref()).unwrap();
    let table = names.iter().find(|name| name.ends_with(".table")).unwrap();
    // Of this table alone, so that flushes, which open what they wrote, succeed.
    world.storage.fail_at_path(OpKind::Read, table, 1, Mode::Sticky, std::io::ErrorKind::Other);
    for i in 0..4u8 {
        // Over the same key, so that compactions are no moves.
        db.put(b"k", [i]).unwrap();
        db.flush().unwrap();
    }
    assert_eq!(db.wait_idle().unwrap_err().kind(), ErrorKind::Io);
    assert!(db.statistics().background_error.is_some_and(|text| text.contains(".table")));
    world.storage.clear_faults();
    world.clock.advance_us(60_000_000);
    db.default_family().compact::<&[u8]>(..).unwrap();
    db.wait_idle().unwrap();
    assert_eq!(db.statistics().background_error, None);
}

#[test]
fn writers_to_the_same_key_under_a_condition_never_both_win() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::builder().options(Options { write_memory: 64 << 10, ..Options::default() });
    let db = db.open(dir.path()).unwrap();
    let family = db.default_family();
    family.put(b"counter", 0u64.to_be_bytes().as_slice()).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let (db, family) = (db.clone(), family.clone());
            scope.spawn(move || {
                for n in 0..300u64 {
                    loop {
                        let before = family.get(b"counter").unwrap().unwrap().to_vec();
                        let next = u64::from_be_bytes(before[..].try_into().unwrap()) + 1;
                        let mut batch = Batch::new();
                        batch.put(&family, b"counter", next.to_be_bytes());
                        batch.put(&family, [thread.to_be_bytes(), n.to_be_bytes()].concat(), [7; 100]);
                        let expected = [Condition::new(&family, b"counter", Expected::Value(before))];
                        match db.write_if(&expected, &batch, Durability::Buffered) {
                            Ok(_) => break,
                            Err(e) => assert_eq!(e.kind(), ErrorKind::Conflict),
                        }
                    }
                }
            });
        }
    });
    assert_eq!(family.get(b"counter").unwrap().unwrap(), 1200u64.to_be_bytes());
}

/// What planning looks at follows what changes, however many families there are.
#[test]
fn the_work_of_a_flush_does_not_grow_with_the_number_of_families() {
    let looked_at = |families: u64| {
        let world = SimWorld::new(1);
        let scheduler = SimScheduler::for_world(&world);
        let options =
            Options { tuning: Tuning { events_max: 10, ..Tuning::default() }, ..Options::default() };
        let db = Builder::new().options(options).env(world.env()).scheduler(Arc::new(scheduler));
        let db = db.open("/db").unwrap();
        for i in 0..families {
            let family = db.create_family(&format!("f{i}"), FamilyOptions::default()).unwrap();
            family.put(b"k", b"v").unwrap();
        }
        db.wait_idle().unwrap();
        let memory = db.statistics().write_memory;
        assert!(memory < families * 1024, "{families} families with a cell each take {memory} bytes");
        let family = db.default_family();
        family.put(b"k", b"v").unwrap();
        family.flush().unwrap();
        let before = db.statistics().families_planned;
        for i in 0..50u8 {
            family.put([i], b"v").unwrap();
            family.flush().unwrap();
        }
        db.statistics().families_planned - before
    };
    let (few, many) = (looked_at(10), looked_at(1_000));
    assert!(many <= 2 * few, "{few} with 10 families, {many} with 1,000");
}

/// A database with 8 MiB of write memory, and so many families in it.
fn with_families(families: usize, world: &SimWorld, scheduler: Arc<SimScheduler>) -> (Db, Vec<Family>) {
    let options = Options { write_memory: 8 << 20, ..Options::default() };
    let db = Builder::new().options(options).env(world.env()).scheduler(scheduler).open("/db").unwrap();
    let make = |i| db.create_family(&format!("f{i}"), FamilyOptions::default()).unwrap();
    let families = (0..families).map(make).collect();
    (db, families)
}

/// A flush costs the same however little it writes, so those of many small families begin later.
#[test]
fn memory_of_many_small_families_is_flushed_later_than_that_of_one() {
    let flushes_at = |families: usize, percent: u64| {
        let world = SimWorld::new(1);
        let scheduler = Arc::new(SimScheduler::for_world(&world));
        let (db, families) = with_families(families, &world, scheduler);
        let mut n = 0u64;
        while db.statistics().write_memory < (8 << 20) * percent / 100 && db.statistics().flushes == 0 {
            for family in &families {
                n += 1;
                family.put(n.to_be_bytes(), [7; 100]).unwrap();
            }
        }
        db.wait_idle().unwrap();
        let stays = db.statistics().write_memory;
        assert!(stays <= 6 << 20, "{stays} bytes stay");
        db.statistics().flushes
    };
    assert_eq!(flushes_at(1, 65), 1);
    assert_eq!(flushes_at(300, 65), 0);
    // From 85 percent to 75, a family at a time.
    let flushes = flushes_at(300, 85);
    assert!((30..=60).contains(&flushes), "{flushes} flushes");
}

#[test]
fn memory_over_the_mark_wakes_a_worker_though_no_family_has_much_of_it() {
    let world = SimWorld::new(1);
    let scheduler = Arc::new(SimScheduler::for_world(&world));
    let (db, families) = with_families(300, &world, scheduler.clone());
    let before = scheduler.notices();
    let mut woken_at = None;
    for n in 0u64..40_000 {
        families[n as usize % families.len()].put(n.to_be_bytes(), [7; 100]).unwrap();
        // A worker is also woken for each piece of the WAL, to write it back.
        let now = db.statistics();
        if scheduler.notices() > before + now.wal_bytes_written.div_ceil(512 << 10) {
            woken_at = woken_at.or(Some(now.write_memory));
        }
    }
    assert!(woken_at.is_some_and(|bytes| (4 << 20..5 << 20).contains(&bytes)), "{woken_at:?}");
}

/// WAL files of a database that was opened again and again, each time for one write.
#[test]
fn a_thousand_short_lives_leave_no_more_than_a_few_wal_files() {
    for killed in [false, true] {
        let mut world = SimWorld::new(5);
        let files = |world: &SimWorld| {
            let names = world.env().storage.list("/db".as_ref()).unwrap();
            names.iter().filter(|name| name.ends_with(".log")).count()
        };
        let mut first = 0;
        for n in 0..1_000u32 {
            let options = Options {
                tuning: Tuning { wal_file_bytes: 256 << 10, ..Tuning::default() },
                ..Options::default()
            };
            let scheduler = Arc::new(SimScheduler::for_world(&world));
            let db =
                Builder::new().options(options).env(world.env()).scheduler(scheduler).open("/db").unwrap();
            db.put(n.to_be_bytes(), [7; 300]).unwrap();
            if killed {
                let next = world.kill();
                std::mem::forget(db);
                world = next;
            } else {
                db.close().unwrap();
            }
            let now = files(&world);
            first = if n == 0 { now } else { first };
            // Two with much in them; and eight small ones where all is too much to be logged again at every
            // open.
            assert!(now <= first + 10, "{now} after {n} lives, {first} after the first; killed: {killed}");
        }
        let db = Builder::new().env(world.env()).open("/db").unwrap();
        assert_eq!(db.scan::<&str>(..).count(), 1_000);
    }
}

/// Counted work: syncs of each of many starts over a WAL with much in it, after closes and kills, none of
/// which a worker survives.
fn syncs_of_starts(families: usize) -> Vec<u64> {
    let options =
        Options { tuning: Tuning { wal_file_bytes: 1 << 20, ..Tuning::default() }, ..Options::default() };
    let open = |world: &SimWorld| {
        let scheduler = Arc::new(SimScheduler::for_world(world));
        Builder::new().options(options.clone()).env(world.env()).scheduler(scheduler).open("/db").unwrap()
    };
    let mut world = SimWorld::new(8);
    let mut db = open(&world);
    let make = |i| db.create_family(&format!("f{i}"), FamilyOptions::default()).unwrap();
    let made: Vec<Family> = (0..families).map(make).collect();
    (0..2_000u64).for_each(|n| _ = made[n as usize % families].put(n.to_be_bytes(), [7; 200]).unwrap());
    drop(made);
    let mut syncs: Vec<u64> = Vec::new();
    for life in 0..30u64 {
        if life % 2 == 0 {
            db.close().unwrap();
        } else {
            let next = world.kill();
            std::mem::forget(db);
            world = next;
        }
        let before = world.storage.op_counts();
        db = open(&world);
        let after = world.storage.op_counts();
        syncs.push([OpKind::Sync, OpKind::SyncDir].iter().map(|op| after.of(*op) - before.of(*op)).sum());
        assert_eq!(db.statistics().sstables, 0, "a start writes no table");
        db.put(life.to_be_bytes(), b"v").unwrap();
    }
    let cells = |family: Family| family.scan::<&str>(..).count();
    assert_eq!(db.all_families().into_iter().map(cells).sum::<usize>(), 2_030);
    syncs
}

#[test]
fn a_start_syncs_no_more_often_for_two_thousand_families_than_for_one() {
    let most = |families| syncs_of_starts(families).into_iter().max().unwrap();
    let (one, many) = (most(1), most(2_000));
    assert!(many <= one + 10, "{many} for many, {one} for one");
}

/// Counted work: operations on files and bytes of manifest and WAL that a start looks at, over so many
/// families with a table each.
fn work_of_a_start(families: usize) -> [u64; 2] {
    let world = SimWorld::new(8);
    let open = || {
        let options =
            Options { tuning: Tuning { events_max: 10, ..Tuning::default() }, ..Options::default() };
        let scheduler = Arc::new(SimScheduler::for_world(&world));
        Builder::new().options(options).env(world.env()).scheduler(scheduler).open("/db").unwrap()
    };
    let db = open();
    for i in 0..families {
        let family = db.create_family(&format!("f{i}"), FamilyOptions::default()).unwrap();
        family.put(b"k", b"v").unwrap();
        family.flush().unwrap();
    }
    db.close().unwrap();
    drop(db);
    let before = world.storage.op_counts().total();
    let (db, looked_at) = work_of(open);
    let operations = world.storage.op_counts().total() - before;
    assert_eq!(db.statistics().sstables, families as u64);
    let cells = |family: Family| family.scan::<&str>(..).count();
    assert_eq!(db.all_families().into_iter().map(cells).sum::<usize>(), families);
    [operations, looked_at]
}

#[test]
fn the_work_of_a_start_follows_the_number_of_tables() {
    let (few, many) = (work_of_a_start(200), work_of_a_start(2_000));
    // Ten times as many; were each looked at for each other, it would be a hundred times as much.
    for (few, many) in few.into_iter().zip(many) {
        assert!(few > 0 && many <= 15 * few, "{many} for 2,000 tables, {few} for 200");
    }
}

#[test]
fn the_options_of_many_families_change_at_the_cost_of_one_and_all_or_none_do() {
    let world = SimWorld::new(8);
    let (db, families) = with_families(100, &world, Arc::new(SimScheduler::for_world(&world)));
    let syncs = || world.storage.op_counts().of(OpKind::Sync);
    let options = FamilyOptions { ttl_us: 1_000_000, ..FamilyOptions::default() };
    let before = syncs();
    db.alter_families(families.iter().map(|family| (family.clone(), options.clone()))).unwrap();
    assert!(syncs() - before <= 2, "{} syncs", syncs() - before);
    assert!(families.iter().all(|family| family.options() == options));
    // The last of these cannot be.
    let other = FamilyOptions { ttl_us: 2_000_000, ..FamilyOptions::default() };
    let refused = [(families[0].clone(), other), (families[1].clone(), counted(1))];
    assert_eq!(db.alter_families(refused).unwrap_err().kind(), ErrorKind::Invalid);
    drop((db, families));
    let again = with_families(0, &world, Arc::new(SimScheduler::for_world(&world))).0;
    let asked = again.all_families().into_iter().filter(|family| family.name() != "default");
    assert!(asked.map(|family| family.options()).all(|found| found == options));
}

#[test]
fn a_full_disk_does_not_keep_a_database_from_being_opened_deleted_from_and_compacted() {
    // The second time workers have tried to flush what the WAL had before anything is deleted.
    for turns in [0, 1_000] {
        let (_disk, db) = opened_full(turns);
        assert_eq!(db.statistics().background_error.is_some(), turns > 0);
        assert!(db.get(1u64.to_be_bytes()).unwrap().is_some());
        db.default_family().delete_range(&b""[..]..).unwrap();
        db.default_family().compact::<&[u8]>(..).unwrap();
        db.put(b"k", b"v").unwrap();
        assert_eq!(db.scan::<&str>(..).count(), 1);
    }
}

/// What failed for want of space before there was some is tried again, and is no answer any more.
#[test]
fn settling_on_a_disk_that_was_given_room_does_not_tell_of_the_time_before() {
    let (disk, db) = opened_full(1_000);
    assert!(db.is_disk_full());
    assert_eq!(db.wait_idle().unwrap_err().kind(), ErrorKind::DiskFull, "there is no room yet");
    disk.storage.set_quota(None);
    db.wait_idle().unwrap();
    assert!(!db.is_disk_full());
    assert!(db.get(1u64.to_be_bytes()).unwrap().is_some());
}

/// A database that was killed, opened on a disk that is full, after so many turns of its workers.
fn opened_full(turns: u32) -> (SimWorld, Db) {
    let world = SimWorld::new(6);
    let (db, _) = filled(&world);
    let next = world.kill();
    std::mem::forget(db);
    next.storage.set_quota(Some(next.storage.used_bytes()));
    let scheduler = Arc::new(SimScheduler::for_world(&next));
    let builder = Builder::new().options(of_small_disks()).env(next.env()).scheduler(scheduler.clone());
    let db = builder.open("/db").unwrap();
    scheduler.run(turns);
    (next, db)
}

fn of_small_disks() -> Options {
    Options {
        write_memory: 256 << 10,
        memory_budget: 1 << 20,
        tuning: Tuning { wal_file_bytes: 128 << 10, ..Tuning::default() },
        ..Options::default()
    }
}

/// A database in a directory of 4 MiB, and how many keys were put before one was refused for want of space.
/// Then somebody else takes what is left, to the last byte but for what is set aside.
fn filled(world: &SimWorld) -> (Db, u64) {
    let scheduler = Arc::new(SimScheduler::for_world(world));
    let builder = Builder::new().options(of_small_disks()).env(world.env()).scheduler(scheduler);
    let db = builder.open("/db").unwrap();
    world.storage.set_quota(Some(4 << 20));
    let (mut rng, mut n) = (Rng::new(6), 0u64);
    let full = loop {
        n += 1;
        if let Err(e) = db.put(n.to_be_bytes(), rng.bytes(1000)) {
            break e;
        }
    };
    assert_eq!(full.kind(), ErrorKind::DiskFull);
    world.storage.set_quota(Some(world.storage.used_bytes()));
    (db, n - 1)
}

#[test]
fn deletes_on_a_full_disk_leave_room_for_what_makes_use_of_them() {
    let world = SimWorld::new(7);
    let (db, puts) = filled(&world);
    let deleted = (1..=puts).cycle().take(20_000).take_while(|n| db.delete(n.to_be_bytes()).is_ok()).count();
    assert!((500..20_000).contains(&deleted), "{deleted} deletes");
    let memory = db.statistics().write_memory;
    assert!(memory < 448 << 10, "{memory} bytes in memory");
    assert!(db.get(puts.to_be_bytes()).unwrap().is_some());
    db.create_family("an edit", FamilyOptions::default()).unwrap();
    let family = db.default_family();
    family.delete_range(&b""[..]..).unwrap();
    family.compact::<&[u8]>(..).unwrap();
    db.put(b"k", b"v").unwrap();
    assert_eq!(db.scan::<&str>(..).count(), 1);
}

#[test]
fn a_flush_that_fails_for_hours_leaves_no_memtable_of_every_try() {
    let world = SimWorld::new(9);
    let scheduler = Arc::new(SimScheduler::for_world(&world));
    let (db, _) = with_families(0, &world, scheduler.clone());
    world.storage.fail_at_path(OpKind::Write, ".table", 1, Mode::Sticky, std::io::ErrorKind::Other);
    for n in 0..6_000u64 {
        db.put(n.to_be_bytes(), [7; 1000]).unwrap();
    }
    scheduler.run(20);
    assert!(db.statistics().background_error.is_some());
    let memtables = || db.default_family().memtables().len();
    let (memtables_before, failures) = (memtables(), world.storage.faults_injected());
    for n in 0..100u64 {
        db.put(n.to_be_bytes(), b"v").unwrap();
        world.clock.advance_us(1_000_000);
        scheduler.run(20);
    }
    assert!(world.storage.faults_injected() >= failures + 100, "it is tried again and again");
    assert!(memtables() <= memtables_before + 1, "{} memtables", memtables());
    world.storage.clear_faults();
    world.clock.advance_us(1_000_000);
    db.flush().unwrap();
    assert_eq!(db.scan::<&str>(..).count(), 6_000);
}

/// What failed began before the caller freed what was in its way.
#[test]
fn a_flush_that_is_asked_for_while_another_fails_is_tried_anew() {
    let world = SimWorld::new(8);
    let scheduler = Arc::new(SimScheduler::for_world(&world));
    let options = Options { write_memory: 1 << 20, ..Options::default() };
    let builder = Builder::new().options(options).env(world.env()).scheduler(scheduler.clone());
    let db = builder.open("/db").unwrap();
    let mut rng = Rng::new(8);
    for n in 0..600u64 {
        db.put(n.to_be_bytes(), rng.bytes(1000)).unwrap();
    }
    let tables = || {
        world.storage.list_all().iter().filter(|(path, _)| path.extension() == Some("table".as_ref())).count()
    };
    // A disk so slow that a worker's turn ends with each write.
    let clock = world.clock.clone();
    world.storage.on_op(move |_, _| clock.advance_us(100_000));
    while tables() == 0 {
        scheduler.run(1);
    }
    assert_eq!(db.statistics().flushes, 0, "it is under way");
    let table = ".table";
    world.storage.fail_at_path(OpKind::Write, table, 1, Mode::Once, std::io::ErrorKind::StorageFull);
    db.flush().unwrap();
    assert_eq!(world.storage.faults_injected(), 1);
    assert_eq!(db.statistics().write_memory, 0);
    world.storage.fail_at_path(OpKind::Write, table, 1, Mode::Once, std::io::ErrorKind::StorageFull);
    db.put(b"k", b"v").unwrap();
    assert_eq!(db.flush().unwrap_err().kind(), ErrorKind::DiskFull, "it began after the call");
    db.flush().unwrap();
}

#[test]
fn a_value_that_may_come_alone_may_come_in_a_batch() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options { write_memory: 64 << 10, ..Options::default() };
    let db = Db::builder().options(options).open(dir.path()).unwrap();
    let family = db.default_family();
    let large = vec![7; 200 << 10];
    family.put(b"alone", &large).unwrap();
    let mut batch = Batch::new();
    batch.put(&family, b"large", &large).put(&family, b"small", b"v");
    db.write(&batch).unwrap();
    batch.put(&family, b"another", &large);
    assert_eq!(db.write(&batch).unwrap_err().kind(), ErrorKind::Invalid);
}

#[test]
fn reading_beside_a_writer_meets_no_damage() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options {
        write_memory: 256 << 10,
        tuning: Tuning { wal_file_bytes: 64 << 10, ..Tuning::default() },
        ..Options::default()
    };
    let db = Db::builder().options(options).open(dir.path()).unwrap();
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for n in (0..5_000u64).cycle().take_while(|_| !stop.load(Ordering::Relaxed)) {
                db.put(n.to_be_bytes(), [n as u8; 300]).unwrap();
            }
        });
        for _ in 0..200 {
            match Builder::new().open_read_only(dir.path()) {
                Ok(reader) => drop(reader),
                Err(e) => assert_eq!(e.kind(), ErrorKind::Busy, "{e}"),
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
}

#[test]
fn many_more_tables_than_may_be_open_all_give_right_answers() {
    let dir = tempfile::tempdir().unwrap();
    let strategy = "nomerge".parse().unwrap();
    let options = Options { cache_fill: siltstone::CacheFill::None, open_files_max: 8, ..Options::default() };
    let family = FamilyOptions { strategy, ..FamilyOptions::default() };
    let builder = Builder::new().options(options).family("default", family);
    let db = builder.clone().open(dir.path()).unwrap();
    let open_tables = || {
        let all = std::fs::read_dir("/proc/self/fd").unwrap().filter_map(|entry| entry.ok());
        let names = all.filter_map(|entry| std::fs::read_link(entry.path()).ok());
        names.filter(|name| name.starts_with(dir.path()) && name.to_string_lossy().contains(".table")).count()
    };
    for n in 0..300u64 {
        db.put(n.to_be_bytes(), [n as u8; 50]).unwrap();
        db.flush().unwrap();
        assert!(open_tables() <= 8 + 4, "{} tables are open", open_tables());
    }
    db.close().unwrap();
    drop(db);
    let db = builder.open(dir.path()).unwrap();
    for n in (0..300u64).chain((0..300).rev()) {
        assert_eq!(db.get(n.to_be_bytes()).unwrap().unwrap(), [n as u8; 50]);
    }
    assert!(open_tables() <= 8 + 4, "{} tables are open", open_tables());
    assert_eq!(db.scan::<&str>(..).count(), 300);
}

#[test]
fn what_kept_values_hold_is_counted_until_they_are_copied() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options { memory_budget: 8 << 20, write_memory: 4 << 20, ..Options::default() };
    let db = Builder::new().options(options).open(dir.path()).unwrap();
    let value = |n: u32| [n.to_be_bytes(); 250].concat();
    let put = || (0..2_000u32).for_each(|n| _ = db.put(n.to_be_bytes(), value(n)).unwrap());
    let kept = |step| (0..2_000u32).step_by(step).map(|n| db.get(n.to_be_bytes()).unwrap().unwrap());
    put();
    let from_memory: Vec<Pinned> = kept(100).collect();
    db.flush().unwrap();
    let held = db.statistics().pinned_bytes;
    assert!(held >= 256 << 10, "20 values of 1 KB hold whole chunks: {held}");
    drop(from_memory);
    // Workers may hold an old version a moment longer.
    let is_free = || {
        std::thread::yield_now();
        db.statistics().pinned_bytes == 0
    };
    assert!((0..20_000_000).any(|_| is_free()));

    // A second table, so that the cache lets go of the first one's blocks.
    let from_tables: Vec<Pinned> = kept(10).collect();
    put();
    db.default_family().compact::<&[u8]>(..).unwrap();
    let held = db.statistics().pinned_bytes;
    assert!(held > 200 * 1_000, "200 blocks whose table is gone: {held}");
    let copied: Vec<Vec<u8>> = from_tables.into_iter().map(Pinned::into_owned).collect();
    assert!((0..20_000_000).any(|_| is_free()));
    assert!(copied.iter().zip((0..2_000u32).step_by(10)).all(|(found, n)| *found == value(n)));
}

/// Until the manifest has forgotten a family, the WAL has what was written to it: also where another family's
/// flush ends just then.
#[test]
fn a_family_that_is_being_dropped_is_there_after_a_crash_before_that_is_durable() {
    let world = SimWorld::new(5);
    let scheduler = SimScheduler::for_world(&world);
    let open = |world: &SimWorld, scheduler: SimScheduler| {
        let options =
            Options { tuning: Tuning { wal_file_bytes: 4 << 10, ..Tuning::default() }, ..Options::default() };
        Db::builder().options(options).env(world.env()).scheduler(Arc::new(scheduler)).open("db").unwrap()
    };
    let db = open(&world, scheduler);
    let going = db.create_family("going", FamilyOptions::default()).unwrap();
    going.put_with(b"key", b"value", Durability::Sync).unwrap();
    // So that the other family needs later files only.
    for n in 0..100u32 {
        db.put(n.to_be_bytes(), [1; 100]).unwrap();
    }
    let left = std::rc::Rc::new(std::cell::RefCell::new(None));
    let (into, storage, other) = (left.clone(), world.storage.clone(), db.clone());
    let hook = move |point: &'static str| {
        if point == "family-drop-marked" {
            other.default_family().flush().unwrap();
            *into.borrow_mut() = Some(storage.clone_crashed(Survive::All, 1));
        }
    };
    with_kill_hook(hook, || db.drop_family("going").unwrap());
    let storage = left.borrow_mut().take().unwrap();
    let world = SimWorld { storage, ..SimWorld::new(6) };
    let scheduler = SimScheduler::for_world(&world);
    let db = open(&world, scheduler);
    let going = db.family("going").unwrap();
    assert_eq!(going.get(b"key").unwrap().as_deref(), Some(b"value".as_slice()));
    db.close().unwrap();
}
