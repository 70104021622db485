//! In-memory merging as a user meets it: memory holds more updates, the WAL is let go, reads are the same.

use siltstone::schedule::SimScheduler;
use siltstone::storage::sim::{Mode, OpKind, SimWorld};
use siltstone::strategy::{HotKeys, MemtablePolicy};
use siltstone::testing::with_kill_hook;
use siltstone::{
    Builder, Compression, Db, Event, EventKind, Family, FamilyOptions, Options, Statistics, Tuning,
};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

fn options() -> Options {
    Options {
        write_memory: 256 << 10,
        memory_budget: 1 << 20,
        tuning: Tuning { wal_file_bytes: 64 << 10, ..Tuning::default() },
        ..Options::default()
    }
}

fn open(dir: &std::path::Path, policy: &str) -> Db {
    let memory: MemtablePolicy = policy.parse().unwrap();
    let family = FamilyOptions { memtable_policy: memory, ..FamilyOptions::default() };
    Builder::new().options(options()).family("default", family).open(dir).unwrap()
}

/// Writes the same 200 keys again and again; the value says the round.
fn overwrite(db: &Db, rounds: std::ops::Range<u32>) {
    for round in rounds {
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
fn updates_of_few_keys_stay_in_memory_and_the_wal_is_let_go() {
    for policy in ["eager", "sketch"] {
        let dir = tempfile::tempdir().unwrap();
        let db = open(dir.path(), policy);
        // 12 MB of writes through 256 KiB of memory.
        overwrite(&db, 0..600);
        db.wait_idle().unwrap();
        let done = db.statistics();
        assert!(done.memtable_data_compactions > 0, "{policy}");
        assert!(done.user_bytes > 30 * options().write_memory);
        let flushed = done.flushed_bytes as f64 / done.user_bytes as f64;
        assert!(
            flushed < 0.1,
            "{policy}: {flushed:.3} of what was written was flushed, {} flushes",
            done.flushes
        );
        assert!(done.wal_bytes <= 5 * options().write_memory, "{policy}: {} bytes of WAL", done.wal_bytes);
        assert_eq!(newest(&db), vec!["599"; 200]);
        drop(db);
        let db = open(dir.path(), policy);
        assert_eq!(newest(&db), vec!["599"; 200], "{policy}: after replaying what is left of the WAL");
    }
}

#[test]
fn every_policy_gives_the_same_answers_to_snapshots_scans_and_gets() {
    for policy in
        ["none", "basic{memtables=2}", "eager", "adaptive{memtables=1, r=0.2}", "sketch{memtables=2}"]
    {
        let dir = tempfile::tempdir().unwrap();
        let db = open(dir.path(), policy);
        overwrite(&db, 0..3);
        let snapshot = db.snapshot();
        overwrite(&db, 0..40);
        db.default_family().delete_range("key100".."key150").unwrap();
        overwrite(&db, 0..1);
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
            assert_eq!((done.memtable_index_compactions, done.memtable_data_compactions), (0, 0));
        }
    }
}

#[test]
fn a_policy_changes_at_run_time() {
    let (db, scheduler) = simulated(&SimWorld::new(1), options(), policy("none"));
    let rounds = |rounds: std::ops::Range<u32>| {
        for round in rounds {
            overwrite(&db, round..round + 1);
            scheduler.run(100);
        }
    };
    rounds(0..30);
    assert_eq!(db.statistics().memtable_data_compactions, 0);
    let family = db.default_family();
    family.alter(policy("eager")).unwrap();
    rounds(30..60);
    assert!(db.statistics().memtable_data_compactions > 0);
    assert_eq!(newest(&db), vec!["59"; 200]);
}

fn simulated(world: &SimWorld, options: Options, family: FamilyOptions) -> (Db, Arc<SimScheduler>) {
    let scheduler = Arc::new(SimScheduler::for_world(world));
    let builder = Builder::new().options(options).env(world.env()).scheduler(scheduler.clone());
    (builder.family("default", family).open("/db").unwrap(), scheduler)
}

fn policy(text: &str) -> FamilyOptions {
    FamilyOptions { memtable_policy: text.parse().unwrap(), ..FamilyOptions::default() }
}

/// What is seen of the database at every visit of that place.
fn seen_at<T: 'static>(
    point: &'static str,
    db: &Db,
    see: impl Fn(&Db) -> T + 'static,
    run: impl FnOnce(),
) -> Vec<T> {
    let seen: Rc<RefCell<Vec<T>>> = Rc::default();
    let (into, of) = (seen.clone(), db.clone());
    let hook = move |name| {
        if name == point {
            let now = see(&of);
            into.borrow_mut().push(now);
        }
    };
    with_kill_hook(hook, run);
    let seen = seen.take();
    assert!(!seen.is_empty(), "{point} was not passed");
    seen
}

#[test]
fn what_a_compaction_in_memory_takes_while_it_runs_is_write_memory_and_stays_within_the_bound() {
    let world = SimWorld::new(1);
    let (db, scheduler) = simulated(&world, options(), policy("eager"));
    let see = |db: &Db| {
        let listed: u64 = db.default_family().memtables().iter().map(|memtable| memtable.bytes).sum();
        (db.statistics().write_memory, listed)
    };
    let seen = seen_at("join-before-swap", &db, see, || {
        for n in 0..20_000u32 {
            db.put((n * 7919 % 20_000).to_be_bytes(), [7; 100]).unwrap();
            // So few turns that compactions are due while a flush is under way.
            if n % 20 == 0 {
                scheduler.run(1);
            }
        }
    });
    // Keys that are written once: the copy is as large as what is copied.
    assert!(seen.iter().all(|(counted, listed)| *counted > listed + listed / 8), "{seen:?}");
    assert!(seen.iter().all(|(counted, _)| *counted <= options().write_memory * 11 / 10), "{seen:?}");
    db.flush().unwrap();
    db.wait_idle().unwrap();
    let left: u64 = db.default_family().memtables().iter().map(|memtable| memtable.bytes).sum();
    assert_eq!(db.statistics().write_memory, left, "nothing of it stays counted");
}

#[test]
fn each_memtable_freeze_is_an_event_that_says_of_how_much() {
    let (db, scheduler) = simulated(&SimWorld::new(1), options(), policy("none"));
    for n in 0..3_000u32 {
        db.put(n.to_be_bytes(), [7; 100]).unwrap();
        scheduler.run(2);
    }
    db.wait_idle().unwrap();
    let flat: Vec<_> = db.events().into_iter().filter(|e| e.kind == EventKind::MemtableFreeze).collect();
    assert_eq!(flat.len() as u64, db.statistics().memtable_freezes);
    let cells: u64 = flat.iter().map(|event| event.numbers["cells"]).sum();
    // A flush also takes what is not full.
    assert!(flat.len() > 8 && (2_000..=3_000).contains(&cells), "{cells} cells in {} memtables", flat.len());
    assert!(flat.iter().all(|event| event.numbers["bytes"] >= event.numbers["share"]));
}

/// What events say adds up to what statistics count.
#[test]
fn statistics_are_the_sums_of_events() {
    let world = SimWorld::new(3);
    let (db, scheduler) = simulated(
        &world,
        options(),
        FamilyOptions { wal_values: true, wal_values_write_amp_max: 1e6, ..policy("sketch") },
    );
    for round in 0..40u32 {
        for n in 0..150u32 {
            db.put(format!("key{:03}", n % 100).as_bytes(), format!("{round:>80}").as_bytes()).unwrap();
            db.put(format!("once{:06}", round * 150 + n).as_bytes(), [n as u8; 200]).unwrap();
            scheduler.run(1);
        }
    }
    db.wait_idle().unwrap();
    let (events, done) = (db.events(), db.statistics());
    let of = |kind: EventKind| events.iter().filter(move |e| e.kind == kind);
    let sum = |kind, name: &str| of(kind).map(|e| e.numbers[name]).sum::<u64>();
    assert_eq!(of(EventKind::Flush).count() as u64, done.flushes);
    assert_eq!(sum(EventKind::Flush, "bytes"), done.flushed_bytes);
    assert_eq!(of(EventKind::Compaction).count() as u64, done.compactions);
    assert_eq!(sum(EventKind::Compaction, "bytes"), done.compaction_written_bytes);
    assert_eq!(of(EventKind::MemtableDataCompaction).count() as u64, done.memtable_data_compactions);
    assert_eq!(of(EventKind::MemtableIndexCompaction).count() as u64, done.memtable_index_compactions);
    let freed = sum(EventKind::MemtableDataCompaction, "freed_bytes")
        + sum(EventKind::MemtableIndexCompaction, "freed_bytes");
    assert_eq!(freed, done.memtable_freed_bytes);
    assert_eq!(
        (sum(EventKind::HotKeys, "hot_cells"), sum(EventKind::HotKeys, "hot_bytes")),
        (done.hot_cells, done.hot_bytes)
    );
    assert_eq!(sum(EventKind::WalValues, "left_bytes"), done.wal_value_bytes_saved);
    assert_eq!(sum(EventKind::WalClean, "logged_bytes"), done.wal_cleaned_bytes);
    assert_eq!(sum(EventKind::MemtableAbort, "begun"), done.memtable_compactions_aborted);
    assert!(done.flushes > 2 && done.compactions > 0 && done.memtable_data_compactions > 0, "{done:?}");
    assert!(done.hot_cells > 0 && done.wal_value_bytes_saved > 0, "{done:?}");
}

/// Two families have as much in memory each. The one with fewer bytes to write is flushed first; so is the
/// one that needs the front of the WAL, before one that needs less of it.
#[test]
fn the_family_is_flushed_that_gains_most_of_memory_and_wal_for_what_is_written() {
    let first_flushed = |fill: &dyn Fn(&Family, &Family, u32)| {
        let world = SimWorld::new(5);
        let family =
            FamilyOptions { hot_keys: HotKeys::Off, compression: Compression::None, ..policy("none") };
        let builder = Builder::new().options(options()).env(world.env()).family("a", family.clone());
        let scheduler = Arc::new(SimScheduler::for_world(&world));
        let db = builder.family("b", family).scheduler(scheduler.clone()).open("/db").unwrap();
        let [a, b] = ["a", "b"].map(|name| db.family(name).unwrap());
        for n in 0.. {
            fill(&a, &b, n);
            scheduler.run(20);
            let events = db.events();
            if let Some(flush) = events.into_iter().find(|event| event.kind == EventKind::Flush) {
                return flush.family;
            }
        }
        unreachable!("memory is bounded")
    };
    fn fresh(family: &Family, n: u32) {
        family.put(n.to_be_bytes(), [n as u8; 200]).unwrap();
    }
    fn again(family: &Family, n: u32) {
        fresh(family, n % 5);
    }
    fn later(family: &Family, n: u32) {
        if n >= 400 {
            fresh(family, n);
        }
    }
    let both = |of_a: fn(&Family, u32), of_b: fn(&Family, u32)| {
        first_flushed(&|a, b, n| {
            of_a(a, n);
            of_b(b, n);
        })
    };
    assert_eq!(both(fresh, again), "b", "what is written again is dropped");
    assert_eq!(both(again, fresh), "a");
    assert_eq!(both(fresh, later), "a", "the WAL from its front on is a's alone");
    assert_eq!(both(later, fresh), "b");
}

/// The steps that were installed before a flush or a compaction failed are in tables, so they count.
#[test]
fn what_a_flush_and_a_compaction_wrote_before_they_failed_is_counted() {
    for (point, kind) in
        [("flush-before-install", EventKind::Flush), ("compaction-before-install", EventKind::Compaction)]
    {
        let world = SimWorld::new(1);
        let options =
            Options { tuning: Tuning { compaction_step_bytes: 16 << 10, ..options().tuning }, ..options() };
        let strategy = "leveled{sstable_bytes=16384}".parse().unwrap();
        let (compression, compression_last) = (Compression::None, None);
        let hot_keys = "factor{hot_factor=0}".parse().unwrap();
        let family = FamilyOptions { strategy, compression, compression_last, hot_keys, ..policy("none") };
        let (db, _) = simulated(&world, options, family);
        let (disk, mut met) = (world.storage.clone(), 0);
        let hook = move |name| {
            met += u32::from(name == point);
            if name == point && met == 3 {
                disk.fail_at(OpKind::SyncDir, 1, Mode::Once, std::io::ErrorKind::Other);
            }
        };
        let put = |n: u32| {
            // Whoever waits for the flush is told.
            let _ = db.put((n * 7919 % 4_000).to_be_bytes(), [n as u8; 100]);
            let _ = db.put([n as u8 % 8], [n as u8; 10]);
        };
        // What is hot is known from the flush before.
        (0..1_000).for_each(put);
        db.flush().unwrap();
        with_kill_hook(hook, || {
            (1_000..5_000).for_each(put);
            let _ = (db.flush(), db.default_family().compact::<&str>(..));
        });
        world.clock.advance_us(1_000_000);
        db.flush().unwrap();
        let (events, done) = (db.events(), db.statistics());
        let of = |kind: EventKind| events.iter().filter(move |e| e.kind == kind);
        let given_up: Vec<_> = of(kind).filter(|e| e.reason.contains("given up")).collect();
        let failures = of(EventKind::Failure).count();
        assert!(failures == 1 && given_up.len() == 1, "{kind:?}: {failures} failures, {given_up:?}");
        assert!(given_up[0].numbers["steps"] == 2 && given_up[0].numbers["bytes"] > 0, "{given_up:?}");
        let told = |kind| (of(kind).count() as u64, of(kind).map(|e| e.numbers["bytes"]).sum::<u64>());
        assert_eq!(told(EventKind::Flush), (done.flushes, done.flushed_bytes));
        assert_eq!(told(EventKind::Compaction), (done.compactions, done.compaction_written_bytes));
        let sum = |kind, number: &str| of(kind).map(|e| e.numbers[number]).sum::<u64>();
        let kept = sum(EventKind::HotKeys, "hot_cells");
        assert!(kept == done.hot_cells && kept > 0, "{kept} told of, {done:?}");
    }
}

/// ACC-5 within one memtable, by the rule of `sketch`.
#[test]
fn old_versions_within_a_memtable_leave_memory_once_it_is_flat_and_snapshots_keep_theirs() {
    let run = |text: &str| {
        let family = FamilyOptions { active_memtable_share: 0.2, ..policy(text) };
        let (db, scheduler) = simulated(&SimWorld::new(1), options(), family);
        overwrite(&db, 0..1);
        let snapshot = db.snapshot();
        // Ten keys ten times each in every memtable, and as many written once.
        for n in 0..1_000u32 {
            db.put(format!("key{:03}", n % 10).as_bytes(), format!("{n:>80}").as_bytes()).unwrap();
            db.put(format!("once{n:04}").as_bytes(), [7; 20]).unwrap();
            scheduler.run(1);
        }
        for n in 0..200 {
            let then =
                db.default_family().at(&snapshot).get(format!("key{n:03}").as_bytes()).unwrap().unwrap();
            assert_eq!(String::from_utf8(then.to_vec()).unwrap().trim(), "0", "{text}: key {n}");
        }
        let now = newest(&db);
        assert!((0..10).all(|n| now[n] == (990 + n).to_string()), "{text}: {:?}", &now[..10]);
        let frozen: Vec<_> = db.default_family().memtables();
        let bytes = frozen.iter().filter(|memtable| memtable.state == "flat").map(|memtable| memtable.bytes);
        let freed = db
            .events()
            .into_iter()
            .filter(|event| event.reason.starts_with("dead cells in the newest memtable"));
        (bytes.sum::<u64>(), freed.count())
    };
    let ((kept, none), (left, freed)) = (run("none"), run("sketch{memtables=64}"));
    assert!(none == 0 && freed > 4, "{none} and {freed}");
    assert!(left < kept * 3 / 4, "{left} of {kept} bytes");
}

#[test]
fn a_compaction_in_memory_that_a_flush_overtook_says_nothing_of_the_pipeline_after_it() {
    let is_merge = |event: &&Event| {
        matches!(event.kind, EventKind::MemtableIndexCompaction | EventKind::MemtableDataCompaction)
    };
    for seed in 0..8 {
        let world = SimWorld::new(seed);
        let (db, _) = simulated(&world, options(), policy("adaptive{memtables=1, r=0}"));
        let flushed = Rc::new(RefCell::new(None));
        let (once, of) = (flushed.clone(), db.clone());
        let hook = move |name| {
            if name == "join-after-swap" && once.borrow().is_none() {
                *once.borrow_mut() = Some(0);
                of.flush().unwrap();
                // Behind the event of the compaction that stands here.
                *once.borrow_mut() = Some(of.events().len() + 1);
            }
        };
        with_kill_hook(hook, || {
            for _ in 0..60 {
                overwrite(&db, 0..1);
                db.wait_idle().unwrap();
            }
        });
        let from = flushed.borrow().expect("a compaction in memory");
        let events = db.events();
        let next = events[from..].iter().find(is_merge).expect("one more");
        // The first one after a flush merges indices: what it meets decides about the next.
        assert_eq!(next.kind, EventKind::MemtableIndexCompaction, "seed {seed}: {next}");
    }
}

#[test]
fn a_compaction_in_memory_that_a_flush_overtook_is_an_event() {
    let (db, _) = simulated(&SimWorld::new(1), options(), policy("eager"));
    let (of, mut overtaken) = (db.clone(), 0);
    let hook = move |name| {
        if name == "join-before-swap" && overtaken < 3 {
            overtaken += 1;
            of.flush().unwrap();
        }
    };
    with_kill_hook(hook, || {
        for _ in 0..60 {
            overwrite(&db, 0..1);
            db.wait_idle().unwrap();
        }
    });
    let begun = |event: &Event| event.kind == EventKind::MemtableAbort && event.numbers["begun"] == 1;
    let told = db.events().iter().filter(|event| begun(event)).count() as u64;
    assert!(told == 3 && db.statistics().memtable_compactions_aborted == 3, "{told} are told of");
}

#[test]
fn a_compaction_in_memory_that_would_not_fit_under_the_bound_is_not_begun() {
    let world = SimWorld::new(1);
    let (db, scheduler) = simulated(&world, options(), policy("eager"));
    // Nothing is flushed, so that memory fills up.
    world.storage.fail_at_path(OpKind::Create, ".table", 1, Mode::Sticky, std::io::ErrorKind::Other);
    let seen = seen_at(
        "join-before-swap",
        &db,
        |db| db.statistics().write_memory,
        || {
            for n in 0..1_500u32 {
                db.put((n * 7919 % 20_000).to_be_bytes(), [7; 100]).unwrap();
                scheduler.run(4);
            }
        },
    );
    let bound = options().write_memory;
    let filled = db.statistics().write_memory;
    assert!(filled > bound * 3 / 4, "{filled} of {bound}");
    // Keys that are written once: the copy is as large as what is copied.
    assert!(seen.len() > 2 && seen.iter().all(|taken| *taken <= bound), "{seen:?} of {bound}");
}

/// ACC-7, ACC-9: the flush takes the memtables as they are, and the join finds them gone.
#[test]
fn a_compaction_in_memory_that_a_flush_overtakes_is_dropped_and_brings_nothing_back() {
    for seed in 0..4 {
        let world = SimWorld::new(seed);
        let (db, _) = simulated(&world, options(), policy("eager"));
        let (mut once, of) = (true, db.clone());
        let hook = move |name| {
            if name == "join-before-swap" && std::mem::take(&mut once) {
                // What is about to be swapped in goes to tables and is deleted there, the tombstone too.
                of.flush().unwrap();
                of.delete(b"key007").unwrap();
                of.flush().unwrap();
                of.default_family().compact::<&str>(..).unwrap();
            }
        };
        with_kill_hook(hook, || {
            for _ in 0..60 {
                for n in (0..200).filter(|n| *n != 7 || db.statistics().flushes == 0) {
                    db.put(format!("key{n:03}").as_bytes(), [n as u8; 80]).unwrap();
                }
                db.wait_idle().unwrap();
            }
        });
        let done = db.statistics();
        assert!(done.memtable_compactions_aborted >= 1 && done.memtable_data_compactions >= 1, "{done:?}");
        let check = |db: &Db| {
            assert_eq!(db.get(b"key007").unwrap(), None, "seed {seed}");
            assert_eq!(db.scan::<&str>(..).count(), 199);
        };
        check(&db);
        check(&simulated(&world.with_storage(world.storage.clone_killed()), options(), policy("eager")).0);
    }
}

fn fill(db: &Db, keys: std::ops::Range<u32>) {
    for n in keys {
        db.put(n.wrapping_mul(2_654_435_761).to_be_bytes(), [7; 200]).unwrap();
    }
}

fn memory_event(db: &Db) -> Event {
    db.events().into_iter().rfind(|event| event.kind == EventKind::Memory).expect("an event")
}

#[test]
fn what_a_flush_makes_free_is_used_again_within_the_bound() {
    const MIB: u64 = 1 << 20;
    let options = Options { write_memory: 8 * MIB, memory_budget: 16 * MIB, ..Options::default() };
    // Nothing runs beside what is written, so nobody still looks at what was flushed when its memory is
    // counted.
    let (db, _scheduler) = simulated(&SimWorld::new(1), options, FamilyOptions::default());
    assert_eq!(db.statistics().spare_memory, 0);
    fill(&db, 0..30_000);
    db.flush().unwrap();
    db.wait_idle().unwrap();
    let now = db.statistics();
    assert!(now.spare_memory > MIB && now.spare_memory + now.write_memory <= 8 * MIB, "{now:?}");
    // What is written next takes from it.
    let left = now.spare_memory;
    fill(&db, 0..3_000);
    let now = db.statistics();
    assert!(now.spare_memory < left && now.spare_memory + now.write_memory <= 8 * MIB, "{now:?}");
    db.set_memory_limits(MIB, 16 * MIB).unwrap();
    let now = db.statistics();
    assert!(now.spare_memory + now.write_memory <= MIB.max(now.write_memory), "{now:?}");
}

#[test]
fn memory_moves_between_writes_and_cache_at_run_time() {
    const MIB: u64 = 1 << 20;
    let dir = tempfile::tempdir().unwrap();
    let big = Options {
        write_memory: MIB,
        memory_budget: 16 * MIB,
        tuning: Tuning { wal_file_bytes: 64 << 10, ..Tuning::default() },
        ..Options::default()
    };
    let db = Builder::new().options(big.clone()).open(dir.path()).unwrap();
    // Tables larger than the cache will be, all of it read once.
    fill(&db, 0..60_000);
    db.flush().unwrap();
    db.wait_idle().unwrap();
    assert!(db.scan::<&[u8]>(..).all(|entry| entry.is_ok()));
    let before = db.statistics();
    assert!(before.cache_bytes > 8 * MIB, "{} cached", before.cache_bytes);

    db.set_memory_limits(12 * MIB, 16 * MIB).unwrap();
    let now = db.statistics();
    assert!(now.cache_bytes <= now.cache_capacity && now.cache_capacity <= 4 * MIB, "{now:?}");
    assert_eq!((db.options().write_memory, db.options().memory_budget), (12 * MIB, 16 * MIB));
    let event = memory_event(&db);
    assert_eq!((event.numbers["write_memory"], event.numbers["memory_budget"]), (12 * MIB, 16 * MIB));
    // As much as would have been flushed several times before stays in memory.
    let flushes = now.flushes;
    fill(&db, 100_000..116_000);
    db.wait_idle().unwrap();
    let now = db.statistics();
    assert!(now.flushes == flushes && now.write_memory > 3 * MIB, "{now:?}");

    db.set_memory_limits(MIB, 16 * MIB).unwrap();
    let at_once = db.statistics();
    assert!(
        at_once.cache_capacity + at_once.write_memory + at_once.sstable_memory_bytes <= 16 * MIB,
        "{at_once:?}"
    );
    db.wait_idle().unwrap();
    let now = db.statistics();
    assert!(now.flushes > flushes && now.write_memory <= MIB / 2 + MIB / 10, "{now:?}");
    assert!(now.cache_capacity >= 14 * MIB, "{now:?}");
    assert_eq!(db.scan::<&[u8]>(..).filter(|entry| entry.is_ok()).count(), 76_000);
    drop(db);
    let db = Builder::new().options(big.clone()).open(dir.path()).unwrap();
    assert_eq!(db.options(), big, "the next open takes what it is told");
}

#[test]
fn a_quarter_of_a_gigabyte_moves_to_writes_and_back_in_less_than_a_second() {
    use siltstone::storage::Env;
    const MIB: u64 = 1 << 20;
    let dir = tempfile::tempdir().unwrap();
    let (little, much, all) = (64 * MIB, 320 * MIB, 384 * MIB);
    let options = Options { write_memory: little, memory_budget: all, ..Options::default() };
    let db = Builder::new().options(options).open(dir.path()).unwrap();
    let put = |keys: std::ops::Range<u32>| {
        for n in keys {
            db.put(n.to_be_bytes(), [n as u8; 8 << 10]).unwrap();
        }
    };
    put(0..24_000);
    db.flush().unwrap();
    (0..24_000u32).for_each(|n| drop(db.get(n.to_be_bytes()).unwrap().unwrap()));
    assert!(db.statistics().cache_bytes > 180 * MIB, "{:?}", db.statistics());
    let clock = Env::local().clock;
    let move_to = |write_memory| {
        let began = clock.monotonic_ns();
        db.set_memory_limits(write_memory, all).unwrap();
        let micros = (clock.monotonic_ns() - began) / 1_000;
        println!("{} MiB of write memory after {micros} us", write_memory / MIB);
        assert!(micros < 1_000_000, "{micros} us");
    };
    move_to(much);
    assert!(db.statistics().cache_bytes <= 64 * MIB);
    let flushes = db.statistics().flushes;
    put(24_000..42_000);
    assert!(db.statistics().write_memory > 128 * MIB && db.statistics().flushes == flushes);
    move_to(little);
    db.wait_idle().unwrap();
    assert!(db.statistics().cache_capacity > 256 * MIB, "{:?}", db.statistics());
    assert!((0..42_000u32).step_by(100).all(|n| db.get(n.to_be_bytes()).unwrap().is_some()));
}

#[test]
fn a_division_of_memory_that_makes_no_sense_is_refused_and_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let limited = Options { wal_bytes_max: 2 << 20, ..options() };
    let db = Builder::new().options(limited.clone()).open(dir.path()).unwrap();
    for (write_memory, memory_budget) in [(1, 1 << 20), (2 << 20, 1 << 20), (1 << 20, 8 << 20)] {
        db.set_memory_limits(write_memory, memory_budget).unwrap_err();
    }
    assert_eq!(db.options(), limited);
    db.close().unwrap();
    db.set_memory_limits(128 << 10, 1 << 20).unwrap_err();
}

#[test]
fn less_write_memory_also_means_smaller_memtables_wal_and_batches() {
    let dir = tempfile::tempdir().unwrap();
    let wide = Options {
        write_memory: 4 << 20,
        memory_budget: 8 << 20,
        tuning: Tuning { wal_file_bytes: 64 << 10, ..Tuning::default() },
        ..Options::default()
    };
    // Nothing joins memtables.
    let db = Builder::new().options(wide).family("default", policy("none")).open(dir.path()).unwrap();
    fill(&db, 0..10);
    db.create_family("empty", FamilyOptions::default()).unwrap();
    let mut batch = siltstone::Batch::new();
    for n in 0..10u32 {
        batch.put(&db.default_family(), n.to_be_bytes(), [7; 100 << 10]);
    }
    db.write(&batch).unwrap();
    db.set_memory_limits(128 << 10, 8 << 20).unwrap();
    assert!(db.write(&batch).unwrap_err().to_string().contains("the limit is 131072"));
    fill(&db, 0..20_000);
    db.family("empty").unwrap().put(b"k", b"v").unwrap();
    let first = db.family("empty").unwrap().memtables();
    assert!(first.iter().all(|s| s.bytes < 16 << 10), "a chunk of the size it has now: {first:?}");
    db.wait_idle().unwrap();
    let now = db.statistics();
    assert!(now.wal_bytes <= 8 * (128 << 10), "{} bytes of WAL", now.wal_bytes);
    assert!(db.default_family().memtables().iter().all(|s| s.bytes <= 32 << 10), "{now:?}");
}

#[test]
fn the_share_at_which_memtables_are_frozen_is_an_option_of_the_family() {
    let freezes = |active_memtable_share: f64, write_memory: u64| -> Statistics {
        let world = SimWorld::new(1);
        let family = FamilyOptions { active_memtable_share, write_memory, ..policy("none") };
        let roomy = Options { write_memory: 4 << 20, memory_budget: 8 << 20, ..options() };
        let (db, _) = simulated(&world, roomy, family);
        fill(&db, 0..6_000);
        db.wait_idle().unwrap();
        assert_eq!(db.statistics().flushes, 0);
        db.statistics()
    };
    let [little, usual, much, own] =
        [(0.04, 0), (0.2, 0), (0.5, 0), (0.2, 1600 << 10)].map(|(a, own)| freezes(a, own).memtable_freezes);
    assert!(little > 3 * usual && usual > much, "{little}, {usual} and {much} memtables");
    assert!(own > usual, "a share of its own limit: {own} and {usual}");
    assert!(FamilyOptions { active_memtable_share: 0.6, ..FamilyOptions::default() }.validate().is_err());
    assert!(FamilyOptions { active_memtable_share: 0.01, ..FamilyOptions::default() }.validate().is_err());
}

#[test]
fn every_policy_that_merges_in_memory_does_so_at_its_default_settings() {
    for name in ["basic", "eager", "adaptive", "sketch"] {
        let world = SimWorld::new(1);
        let roomy = Options { write_memory: 4 << 20, memory_budget: 8 << 20, ..options() };
        let (db, scheduler) = simulated(&world, roomy, policy(name));
        // Four of five writes go to a hundred keys, the others to keys of their own.
        for n in 0..60_000u32 {
            let key = if n % 5 == 0 { n } else { n.wrapping_mul(2_654_435_761) % 100 };
            db.put(key.to_be_bytes(), [7; 200]).unwrap();
            scheduler.run(u32::from(n % 8 == 0) * 8);
        }
        db.wait_idle().unwrap();
        let done = db.statistics();
        assert!(done.flushes > 0, "{name}: {done:?}");
        assert!(
            done.memtable_index_compactions + done.memtable_data_compactions >= done.flushes,
            "{name}: {done:?}"
        );
        assert_eq!(done.memtable_data_compactions > 0, name != "basic", "{name}: {done:?}");
    }
}
