//! Rangemerge as a user meets it: each key in one table, memory flushed range by range, the WAL let go though
//! some ranges are hardly written, and the way from and to another strategy.

use siltstone::schedule::SimScheduler;
use siltstone::storage::sim::SimWorld;
use siltstone::{Builder, Compression, Db, ErrorKind, EventKind, FamilyOptions, KeyRange, Options, Tuning};
use std::collections::BTreeMap;
use std::sync::Arc;

const LEVELED: &str = "leveled{l0_runs_trigger=2, multiplier=2, base_bytes=16384, sstable_bytes=16384}";

fn options() -> Options {
    Options {
        write_memory: 64 << 10,
        memory_budget: 1 << 20,
        workers: 2,
        tuning: Tuning { wal_file_bytes: 16 << 10, compaction_step_bytes: 8 << 10, ..Tuning::default() },
        ..Options::default()
    }
}

fn open(world: &SimWorld, strategy: &str) -> (Db, Arc<SimScheduler>) {
    open_with(world, strategy, options())
}

fn open_with(world: &SimWorld, strategy: &str, options: Options) -> (Db, Arc<SimScheduler>) {
    let scheduler = Arc::new(SimScheduler::for_world(world));
    let family = FamilyOptions {
        strategy: strategy.parse().unwrap(),
        compression: Compression::None,
        compression_last: None,
        ..FamilyOptions::default()
    };
    let builder = Builder::new().options(options).env(world.env()).scheduler(scheduler.clone());
    (builder.family("default", family).open("/db").unwrap(), scheduler)
}

/// A history drawn from a seed, on a database and on a map.
struct History {
    model: BTreeMap<Vec<u8>, Vec<u8>>,
    random: u64,
}

impl History {
    fn new(seed: u64) -> Self {
        println!("seed {seed}");
        Self { model: BTreeMap::new(), random: seed }
    }

    fn draw(&mut self, below: u64) -> u64 {
        self.random = self.random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.random >> 33) % below
    }

    fn go_on(&mut self, db: &Db, scheduler: &SimScheduler, operations: u64) {
        let family = db.default_family();
        for _ in 0..operations {
            let draw = self.draw(8);
            scheduler.run(u32::from(draw == 0) * 4);
            let key = |n: u64| format!("key{n:05}").into_bytes();
            let at = self.draw(3000);
            match self.draw(100) {
                0 => {
                    let range = KeyRange::new(key(at), key(at + self.draw(400)));
                    if !range.is_empty() {
                        family.delete_range(range.start.clone()..range.end.clone().unwrap()).unwrap();
                        self.model.retain(|key, _| !range.contains(key));
                    }
                }
                1..10 => {
                    family.delete(key(at)).unwrap();
                    self.model.remove(&key(at));
                }
                _ => {
                    let value = format!("{:>60}", self.random).into_bytes();
                    family.put(key(at), &value).unwrap();
                    self.model.insert(key(at), value);
                }
            }
        }
    }

    fn agrees(&self, db: &Db) {
        let forward: Vec<_> =
            db.scan::<&str>(..).map(|e| e.map(|e| (e.key.to_vec(), e.value.to_vec())).unwrap()).collect();
        let mut backward: Vec<_> = db
            .scan::<&str>(..)
            .rev()
            .map(|e| e.map(|e| (e.key.to_vec(), e.value.to_vec())).unwrap())
            .collect();
        backward.reverse();
        let model: Vec<_> = self.model.iter().map(|(k, v)| (k.clone(), v.clone())).collect();
        assert!(forward == model, "a scan finds {} of {} keys", forward.len(), model.len());
        assert!(backward == model, "a scan backward finds {} of {} keys", backward.len(), model.len());
        for n in 0..3000 {
            let key = format!("key{n:05}").into_bytes();
            let found = db.get(&key).unwrap().map(|value| value.to_vec());
            assert_eq!(found.as_ref(), self.model.get(&key), "{}", String::from_utf8_lossy(&key));
        }
    }
}

/// Runs of the default family's shape, and tables.
fn runs_and_tables(db: &Db) -> (usize, usize) {
    let shape = db.default_family().shape();
    (shape.runs().count(), shape.tables().count())
}

fn most_runs(strategy: &str) -> usize {
    if strategy.contains("deltas_max=3") { 4 } else { 1 }
}

#[test]
fn each_key_lies_in_one_table_and_in_as_many_deltas_as_are_allowed() {
    for strategy in [
        "rangemerge{sstable_bytes=16384, victim=most-bytes}",
        "rangemerge{sstable_bytes=16384}",
        "rangemerge{sstable_bytes=16384, deltas_max=3}",
        "rangemerge{sstable_bytes=4096, deltas_max=3, victim=most-bytes}",
    ] {
        let world = SimWorld::new(7);
        let (db, scheduler) = open(&world, strategy);
        let mut history = History::new(1);
        for _ in 0..6 {
            history.go_on(&db, &scheduler, 1500);
            history.agrees(&db);
        }
        db.wait_idle().unwrap();
        let (runs, tables) = runs_and_tables(&db);
        assert!(runs <= most_runs(strategy), "{strategy}: {runs} runs\n{}", db.default_family().shape());
        assert!(tables > 6, "{strategy}: {tables} tables");
        let flushes = db.events().into_iter().filter(|e| e.kind == EventKind::Flush).collect::<Vec<_>>();
        assert!(flushes.iter().any(|e| e.reason.contains("in memory")), "{strategy}");
        let wal_bytes = db.statistics().wal_bytes;
        assert!(wal_bytes <= 6 * options().write_memory, "{strategy}: {wal_bytes} bytes of WAL");
        history.agrees(&db);
        drop(db);
        let (db, scheduler) = open(&world, strategy);
        history.agrees(&db);
        history.go_on(&db, &scheduler, 1500);
        db.flush().unwrap();
        db.wait_idle().unwrap();
        assert!(runs_and_tables(&db).0 <= most_runs(strategy), "{strategy}");
        history.agrees(&db);
    }
}

#[test]
fn strategies_change_on_reopen_and_while_open_and_answers_stay() {
    let world = SimWorld::new(3);
    let mut history = History::new(2);
    let strategies = [
        LEVELED,
        "rangemerge{sstable_bytes=16384}",
        "rangemerge{sstable_bytes=16384, deltas_max=3}",
        "rangemerge{sstable_bytes=65536}",
        LEVELED,
    ];
    for strategy in strategies {
        let (db, scheduler) = open(&world, strategy);
        history.agrees(&db);
        history.go_on(&db, &scheduler, 1200);
        history.agrees(&db);
        for strategy in strategies {
            let family = db.default_family();
            family.alter(FamilyOptions { strategy: strategy.parse().unwrap(), ..family.options() }).unwrap();
            history.go_on(&db, &scheduler, 300);
            history.agrees(&db);
        }
        let family = db.default_family();
        family.alter(FamilyOptions { strategy: strategy.parse().unwrap(), ..family.options() }).unwrap();
        db.wait_idle().unwrap();
        if strategy != LEVELED {
            assert!(runs_and_tables(&db).0 <= most_runs(strategy), "{}", family.shape());
        }
    }
}

/// A flush of a range reads the range's tables, so that damage there must not keep memory from being written.
#[test]
fn a_damaged_table_of_a_range_stops_no_writer() {
    let world = SimWorld::new(5);
    let (db, scheduler) = open(&world, "rangemerge{sstable_bytes=16384}");
    let put = |n: u32, fill: u8| {
        db.put(format!("key{n:05}").as_bytes(), [fill; 60]).unwrap();
    };
    (0..3000).for_each(|n| put(n, 7));
    db.flush().unwrap();
    db.wait_idle().unwrap();
    let shape = db.default_family().shape();
    let (_, _, table) = shape.tables().nth(shape.tables().count() / 2).unwrap();
    let path = std::path::Path::new("/db").join(table.id.file_name());
    world.storage.corrupt(&path, table.bytes / 3, 1).unwrap();
    for round in 0..30_000u32 {
        scheduler.run(u32::from(round % 8 == 0) * 4);
        put(round * 7919 % 3000, 8);
    }
    let events = db.events();
    let failed =
        events.iter().filter(|e| e.kind == EventKind::Failure && e.reason.starts_with("flush failed"));
    assert!(failed.count() > 0, "the damage was met");
    // No flush waits for the range.
    let range = table.live_range();
    for n in 0..3000u32 {
        let key = format!("key{n:05}");
        if !range.contains(key.as_bytes()) {
            assert_eq!(*db.get(key.as_bytes()).unwrap().unwrap(), [8; 60], "{key}");
        }
    }
    assert!(db.statistics().wal_bytes <= 6 * options().write_memory);
    // At last so much lies above the damage, which no compaction passes, that writers are told of it; they do
    // not wait for ever.
    let told = (0..2_000_000u64)
        .find_map(|n| db.put(format!("key{:05}", n * 7919 % 3000).as_bytes(), [9; 60]).err());
    assert_eq!(told.expect("an error").kind(), ErrorKind::Corruption);
}

#[test]
fn a_range_that_is_hardly_written_does_not_hold_the_wal() {
    let world = SimWorld::new(5);
    let (db, scheduler) = open(&world, "rangemerge{sstable_bytes=16384}");
    for n in 0..3000u32 {
        db.put(format!("key{n:05}").as_bytes(), [7; 60]).unwrap();
    }
    db.wait_idle().unwrap();
    assert!(runs_and_tables(&db).1 > 6);
    for round in 0..20_000u32 {
        scheduler.run(u32::from(round % 8 == 0) * 4);
        let n = if round % 100 == 0 { round / 100 * 13 % 3000 } else { 1000 + round % 100 };
        db.put(format!("key{n:05}").as_bytes(), [8; 60]).unwrap();
        let wal_bytes = db.statistics().wal_bytes;
        assert!(wal_bytes <= 6 * options().write_memory, "{wal_bytes} bytes of WAL after {round} writes");
    }
    assert!(db.statistics().wal_cleanings > 0);
}

#[cfg(feature = "testing")]
#[test]
fn a_get_costs_one_access_and_a_scan_one_a_block_once_indices_are_read() {
    let world = SimWorld::new(8);
    let (db, _) = open(&world, "rangemerge{sstable_bytes=65536}");
    let key = |n: u64| format!("key{n:05}").into_bytes();
    for n in 0..4_000 {
        db.put(key(n * 7919 % 4_000), [n as u8; 200]).unwrap();
    }
    db.flush().unwrap();
    db.wait_idle().unwrap();
    let (runs, tables) = runs_and_tables(&db);
    assert!(runs == 1 && tables > 8, "{runs} runs of {tables} tables");
    // All indices and filters, which open tables keep.
    for n in 0..400 {
        db.get(key(n * 10)).unwrap();
    }
    // No block of data stays in a cache of nothing.
    db.set_memory_limits(options().write_memory, options().write_memory).unwrap();
    for n in 0..100 {
        let cost = crate::reads(&world, || assert!(db.get(key(n * 37 + 5)).unwrap().is_some()));
        assert!(cost <= 1, "the get of key {n} took {cost} accesses");
    }
    assert_eq!(
        crate::reads(&world, || assert!(db.get(b"key00000x").unwrap().is_none())),
        0,
        "its filter says so"
    );
    let cost = crate::reads(&world, || assert_eq!(db.scan(key(100)..key(110)).count(), 10));
    assert!((1..=2).contains(&cost), "ten cells of 220 bytes took {cost} accesses");
}

/// Readers keep filters alone, as what they look for is not there, so that no block of data is taken along.
#[test]
fn a_get_costs_one_access_right_after_its_range_was_merged_while_anybody_looks_there() {
    let key = |n: u64| format!("key{n:05}").into_bytes();
    let dearest = |looks: &dyn Fn(u64) -> bool| {
        let world = SimWorld::new(8);
        let (db, scheduler) = open(&world, "rangemerge{sstable_bytes=65536}");
        for n in 0..16_000 {
            scheduler.run(u32::from(n % 8 == 0) * 4);
            db.put(key(n * 7919 % 4_000), [n as u8; 200]).unwrap();
            for absent in (0..if looks(n) { 4_000 } else { 0 }).step_by(100) {
                assert!(db.get(format!("key{absent:05}x").as_bytes()).unwrap().is_none());
            }
        }
        db.wait_idle().unwrap();
        let costs = (0..4_000).map(|n| crate::reads(&world, || assert!(db.get(key(n)).unwrap().is_some())));
        costs.max().unwrap()
    };
    assert_eq!(dearest(&|_| false), 3, "index, filter and data");
    assert_eq!(dearest(&|n| n % 50 == 0), 1);
    assert_eq!(dearest(&|n| n == 4_000), 3, "what nobody reads is not handed on for ever");
}

/// A table of range tombstones costs a get no access, so what lies under it is as warm as it was.
#[cfg(feature = "testing")]
#[test]
fn a_get_costs_one_access_right_after_a_delete_of_a_range_was_merged_into_its_file() {
    let world = SimWorld::new(9);
    let (db, _) = open(&world, "rangemerge{sstable_bytes=1MiB}");
    let key = |n: u64| format!("key{n:05}").into_bytes();
    for n in 0..4_000 {
        db.put(key(n * 7919 % 4_000), [n as u8; 200]).unwrap();
    }
    db.flush().unwrap();
    db.wait_idle().unwrap();
    let absent = |n: u64| format!("key{n:05}x").into_bytes();
    (0..4_000).for_each(|n| assert!(db.get(absent(n)).unwrap().is_none()));
    let merged = db.statistics().compaction_written_bytes;
    db.default_family().delete_range(key(1_990)..key(2_010)).unwrap();
    db.flush().unwrap();
    db.wait_idle().unwrap();
    assert!(db.statistics().compaction_written_bytes > merged + 100_000, "with the file");
    for n in (0..1_990).chain(2_010..4_000) {
        let cost = crate::reads(&world, || assert!(db.get(key(n)).unwrap().is_some()));
        assert!(cost <= 1, "the get of key {n} took {cost} accesses");
    }
}

/// Files are cut by what comes out, so that writing the same keys again makes no more of them.
#[test]
fn keys_written_again_leave_as_many_files_as_they_need() {
    let world = SimWorld::new(4);
    let (db, scheduler) = open(&world, "rangemerge{sstable_bytes=65536}");
    let put = |n: u64| db.put(format!("key{:05}", n * 7919 % 2_000).as_bytes(), [n as u8; 200]).unwrap();
    for n in 0..60_000 {
        scheduler.run(u32::from(n % 8 == 0) * 4);
        put(n);
    }
    db.wait_idle().unwrap();
    let shape = db.default_family().shape();
    let (files, bytes) = (shape.tables().count() as u64, shape.live_bytes());
    assert!(files <= bytes * 3 / 2 / 65536, "{files} files of 64 KiB for {bytes} bytes");
}

#[test]
fn a_major_compaction_takes_one_range_after_another() {
    let world = SimWorld::new(9);
    let (db, scheduler) = open(&world, "rangemerge{sstable_bytes=16384, deltas_max=2}");
    let mut history = History::new(4);
    history.go_on(&db, &scheduler, 8_000);
    db.flush().unwrap();
    db.wait_idle().unwrap();
    history.go_on(&db, &scheduler, 1_000);
    let ranges = db.default_family().shape().levels.last().unwrap().runs.last().unwrap().tables().len();
    assert!(ranges > 8, "{ranges} ranges");
    let control = siltstone::CompactionControl::default();
    db.default_family().compact_with::<&str>(.., &control).unwrap();
    let compactions = db.events().iter().filter(|e| e.reason.starts_with("major")).count();
    assert!(compactions * 2 > ranges, "{compactions} compactions of {ranges} ranges");
    let (written, total) = control.progress();
    assert!(written > 0 && written <= total, "{written} of {total}");
    assert_eq!(runs_and_tables(&db).0, 1, "{}", db.default_family().shape());
    history.agrees(&db);
}

/// Also what is newer in ranges that a table of another kind takes along.
#[test]
fn a_major_compaction_takes_tables_that_lie_over_several_ranges() {
    let world = SimWorld::new(6);
    let (db, scheduler) = open(&world, LEVELED);
    let mut history = History::new(5);
    history.go_on(&db, &scheduler, 6_000);
    db.flush().unwrap();
    db.wait_idle().unwrap();
    let family = db.default_family();
    let strategy = "rangemerge{sstable_bytes=16384}".parse().unwrap();
    // Nothing is brought home on its way.
    db.set_rate_limit(1);
    family.alter(FamilyOptions { strategy, ..family.options() }).unwrap();
    history.go_on(&db, &scheduler, 100);
    db.flush().unwrap();
    db.set_rate_limit(0);
    family.compact::<&str>(..).unwrap();
    assert_eq!(runs_and_tables(&db).0, 1, "{}", family.shape());
    history.agrees(&db);
}

#[test]
fn a_cancelled_compaction_leaves_what_it_has_merged() {
    let world = SimWorld::new(6);
    let (db, scheduler) = open(&world, "rangemerge{sstable_bytes=16384, deltas_max=4}");
    let mut history = History::new(6);
    history.go_on(&db, &scheduler, 8_000);
    let control = siltstone::CompactionControl::default();
    let cancel = control.clone();
    let compactions = db.statistics().compactions;
    let (watched, family) = (db.clone(), db.default_family());
    world.storage.on_op(move |_, path| {
        // Statistics wait for who reserves a WAL file.
        let is_table = path.extension().is_some_and(|end| end == "table");
        if is_table && watched.statistics().compactions > compactions + 2 {
            cancel.cancel();
        }
    });
    let ended = family.compact_with::<&str>(.., &control);
    assert_eq!(ended.expect_err("cancelled").kind(), ErrorKind::Canceled);
    assert!(runs_and_tables(&db).0 > 1);
    history.agrees(&db);
    family.compact::<&str>(..).unwrap();
    assert_eq!(runs_and_tables(&db).0, 1);
    history.agrees(&db);
}

/// A twentieth of the keys takes 49 of 50 puts. What is dead in a range that is to be flushed goes first, so
/// that memory holds many more puts; where no policy wants that, a range is flushed with it.
#[test]
fn memory_of_hot_keys_is_compacted_before_a_range_is_flushed() {
    let flushes = |memory: &str| {
        let world = SimWorld::new(4);
        let (db, scheduler) = open(&world, "rangemerge{sstable_bytes=16384, deltas_max=3}");
        let family = db.default_family();
        family.alter(FamilyOptions { memtable_policy: memory.parse().unwrap(), ..family.options() }).unwrap();
        let key = |n: u64| format!("key{n:05}").into_bytes();
        let mut last = BTreeMap::new();
        for n in 0..40_000u64 {
            scheduler.run(u32::from(n % 8 == 0) * 4);
            let at = if n % 50 == 0 { n * 7919 % 3_000 } else { n * 31 % 150 * 20 };
            db.put(key(at), n.to_be_bytes().repeat(8)).unwrap();
            last.insert(at, n);
        }
        for (at, n) in last {
            assert_eq!(*db.get(key(at)).unwrap().unwrap(), n.to_be_bytes().repeat(8)[..], "key {at}");
        }
        let statistics = db.statistics();
        (statistics.flushed_bytes, statistics.memtable_data_compactions)
    };
    let (plain, compactions) = flushes("none");
    assert_eq!(compactions, 0);
    // Here only the disk takes time, so that flushing costs too little for `sketch`. `adaptive` compacts half
    // of the times.
    for (policy, share) in [("eager", 0.1), ("adaptive{r=0.2}", 0.8)] {
        let (bytes, compactions) = flushes(policy);
        println!("{policy}: {bytes} bytes flushed, {compactions} compactions; {plain} bytes without");
        assert!(compactions > 0 && (bytes as f64) < share * plain as f64);
    }
}

/// A copy says of which WAL its sources needed when it began. When it is swapped in, that file may be gone,
/// and what it held logged again.
#[cfg(feature = "testing")]
#[test]
fn the_wal_is_cleaned_while_memory_is_divided_by_range_and_nothing_is_lost() {
    use siltstone::storage::sim::Survive;
    use siltstone::testing::with_kill_hook;
    use std::cell::Cell;
    let raced = std::rc::Rc::new(Cell::new((0, 0)));
    // Nearly always there is a file to be cleaned.
    let mut settings = options();
    (settings.tuning.wal_file_bytes, settings.tuning.wal_clean_bytes) = (8 << 10, 20 << 10);
    for seed in 0..6 {
        let world = SimWorld::new(seed);
        let (db, scheduler) =
            open_with(&world, "rangemerge{sstable_bytes=16384, deltas_max=3}", settings.clone());
        let family = db.default_family();
        let memory = if seed % 2 == 0 { "none" } else { "eager" };
        family.alter(FamilyOptions { memtable_policy: memory.parse().unwrap(), ..family.options() }).unwrap();
        let key = |n: u64| format!("key{n:05}").into_bytes();
        let (of, turns, seen, inside) = (db.clone(), scheduler.clone(), raced.clone(), Cell::new(false));
        let clock = world.clock.clone();
        let hook = move |name: &str| {
            if !["lay-out-copied", "join-before-swap"].contains(&name) || inside.replace(true) {
                return;
            }
            let before = of.statistics().wal_cleanings;
            // Until it was cleaned, and no further: a flush that ends meanwhile makes the copy vain.
            let cleaned = (0..60).any(|_| {
                clock.advance_us(1_000);
                turns.run(1);
                of.statistics().wal_cleanings > before
            });
            let cleaned = u32::from(cleaned);
            let (laid_out, compacted) = seen.get();
            seen.set(match name {
                "lay-out-copied" => (laid_out + cleaned, compacted),
                _ => (laid_out, compacted + cleaned),
            });
            inside.set(false);
        };
        let mut last = BTreeMap::new();
        with_kill_hook(hook, || {
            for n in 0..20_000u64 {
                scheduler.run(u32::from(n % 8 == 0) * 4);
                let at = if n % 100 == 0 { n * 7919 % 3_000 } else { n * 31 % 150 * 20 };
                db.put(key(at), n.to_be_bytes().repeat(8)).unwrap();
                last.insert(at, n);
            }
        });
        db.sync().unwrap();
        let image = world.with_storage(world.storage.clone_crashed(Survive::None, seed));
        let (again, _) = open_with(&image, "rangemerge{sstable_bytes=16384, deltas_max=3}", settings.clone());
        for (at, n) in last {
            let value = again.get(key(at)).unwrap().map(|value| value.to_vec());
            assert_eq!(value, Some(n.to_be_bytes().repeat(8)), "seed {seed}, key {at}");
        }
    }
    let (laid_out, compacted) = raced.get();
    println!("the WAL was cleaned during {laid_out} layouts and {compacted} compactions");
    assert!(laid_out > 0);
}

/// What recovery put in memory was logged under other generations than its memtables have. A flush that takes
/// some of them must not say that all are in SSTables.
#[cfg(feature = "testing")]
#[test]
fn a_flush_of_all_memory_after_a_recovery_leaves_nothing_that_it_claims() {
    use siltstone::storage::sim::Survive;
    let world = SimWorld::new(3);
    let mut history = History::new(8);
    {
        let (db, scheduler) = open(&world, "rangemerge{sstable_bytes=16384}");
        history.go_on(&db, &scheduler, 6_000);
        db.sync().unwrap();
    }
    let written = world.storage.clone_crashed(Survive::None, 1);
    for turns in 0..12 {
        let image = world.with_storage(written.clone_crashed(Survive::None, 1));
        let (db, scheduler) = open(&image, "rangemerge{sstable_bytes=16384}");
        scheduler.run(turns);
        let family = db.default_family();
        family.alter(FamilyOptions { strategy: LEVELED.parse().unwrap(), ..family.options() }).unwrap();
        // Enough for a flush that nobody asks for.
        for n in 0..60 {
            db.put(format!("more{n:05}"), [7; 300]).unwrap();
        }
        for more in 0..40 {
            scheduler.run(1);
            let crashed = image.with_storage(image.storage.clone_crashed(Survive::None, more));
            let (again, _) = open(&crashed, LEVELED);
            for (key, value) in &history.model {
                let found = again.get(key).unwrap().map(|value| value.to_vec());
                let when = format!("after {turns} and {more} turns, {}", key.escape_ascii());
                assert_eq!(found.as_ref(), Some(value), "{when}");
            }
        }
    }
}
