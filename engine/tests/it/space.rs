//! Disk space: what a major compaction of any strategy adds while it runs, and copies that are taken in its
//! middle.

use crate::turns::Between;
use siltstone::storage::Storage;
use siltstone::storage::sim::{Rng, SimWorld};
use siltstone::strategy::StrategyOptions;
use siltstone::{Backups, Builder, Compression, Db, FamilyOptions, Options, Tuning};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};

const STEP: u64 = 128 << 10;
const KEYS: u64 = 2_000;
/// Bytes below the clip that stay on disk in each run of a compaction: the block before the clip, and pages
/// of which a part is still needed.
const UNFREED: u64 = 12 << 10;
/// What each table has beside its cells is small against that.
const VALUE_BYTES: usize = 4_000;

type Contents = BTreeMap<Vec<u8>, Vec<u8>>;

/// All methods, with tables of one step.
fn strategies() -> Vec<StrategyOptions> {
    crate::strategies(STEP)
}

fn family(strategy: StrategyOptions) -> FamilyOptions {
    FamilyOptions { strategy, compression: Compression::None, ..FamilyOptions::default() }
}

/// A database of tables of several steps each, so that only their holes keep what a compaction adds small,
/// with runs that are not merged yet, as compactions may hardly write.
fn filled(world: &SimWorld, strategy: &StrategyOptions) -> (Db, Arc<Between>, Contents) {
    let options = Options {
        write_memory: 1 << 20,
        memory_budget: 4 << 20,
        workers: 1,
        tuning: Tuning { wal_file_bytes: 64 << 10, compaction_step_bytes: STEP, ..Tuning::default() },
        ..Options::default()
    };
    let scheduler = Between::new(world);
    let builder = Builder::new().options(options).env(world.env()).scheduler(scheduler.clone());
    let db =
        builder.family("default", family(strategy.clone().with_sstable_bytes(1 << 20))).open("/db").unwrap();
    let mut model = Contents::new();
    let mut put = |n: u64| {
        let (key, value) = ((n * 7919 % KEYS).to_be_bytes().to_vec(), vec![n as u8; VALUE_BYTES]);
        db.put(&key, &value).unwrap();
        model.insert(key, value);
    };
    (0..KEYS).for_each(&mut put);
    db.flush().unwrap();
    db.wait_idle().unwrap();
    db.default_family().alter(family(strategy.clone())).unwrap();
    db.wait_idle().unwrap();
    db.set_rate_limit(1);
    (KEYS..KEYS + 100).for_each(put);
    db.flush().unwrap();
    // WAL files are made ready, and what nobody reads goes.
    scheduler.run(50);
    db.set_rate_limit(0);
    (db, scheduler, model)
}

fn contents(db: &Db) -> Contents {
    db.scan::<&str>(..).map(|row| row.map(|row| (row.key, row.value.to_vec())).unwrap()).collect()
}

fn tables(world: &SimWorld) -> Vec<String> {
    let mut names = world.storage.list(Path::new("/db")).unwrap();
    names.retain(|name| name.ends_with(".table"));
    names
}

#[test]
fn a_major_compaction_of_any_strategy_adds_at_most_two_steps_to_the_bytes_on_disk() {
    let mut of_many = 0;
    for (seed, strategy) in strategies().iter().enumerate() {
        let world = SimWorld::new(seed as u64);
        let (db, scheduler, model) = filled(&world, strategy);
        let runs = db.default_family().shape().runs().count() as u64;
        let (inputs, fewest) = (tables(&world), Arc::new(Mutex::new(usize::MAX)));
        let (before, of_world, left, of_inputs) =
            (world.storage.used_bytes(), world.clone(), fewest.clone(), inputs.clone());
        world.storage.reset_peak();
        let family = db.default_family();
        let look = move || {
            let here = tables(&of_world);
            let inputs = of_inputs.iter().filter(|name| here.contains(name)).count();
            if inputs > 0 {
                let mut left = left.lock().unwrap();
                *left = inputs.min(*left);
            }
        };
        scheduler.during(look, || family.compact::<&str>(..)).unwrap();
        let added = world.storage.peak_bytes().saturating_sub(before);
        let most = 2 * STEP + runs * UNFREED;
        assert!(added <= most, "{strategy}: {added} bytes added to {before}, {most} at most");
        assert!(db.statistics().compactions > 0 && family.shape().runs().count() == 1, "{strategy}");
        let fewest = *fewest.lock().unwrap();
        // Of runs of several tables each.
        if inputs.len() as u64 >= 3 * runs {
            of_many += 1;
            let inputs = inputs.len();
            assert!(fewest * 2 <= inputs, "{strategy}: of {inputs} inputs {fewest} went at the end");
        }
        assert!(contents(&db) == model, "{strategy}: other contents");
    }
    assert!(of_many >= 3, "only {of_many} methods had runs of several tables");
}

#[test]
fn a_major_compaction_under_load_on_a_disk_that_is_95_percent_full_refuses_no_write() {
    for (seed, strategy) in strategies().iter().enumerate() {
        let world = SimWorld::new(seed as u64);
        let (db, scheduler, model) = filled(&world, strategy);
        let runs = db.default_family().shape().runs().count() as u64;
        let (before, start) = (world.storage.used_bytes(), db.statistics());
        world.storage.set_quota(Some(before * 100 / 95));
        world.storage.reset_peak();
        let model = Arc::new(Mutex::new((model, Rng::new(seed as u64), 0, start.wal_bytes)));
        let (shared, writer) = (model.clone(), db.clone());
        let write = move || {
            let (model, rng, writes, most_log) = &mut *shared.lock().unwrap();
            if *writes < 60 {
                *writes += 1;
                let (key, value) = (rng.range(0..KEYS).to_be_bytes().to_vec(), rng.bytes(VALUE_BYTES));
                writer.put(&key, &value).unwrap_or_else(|e| panic!("write {writes}: {e:?}"));
                model.insert(key, value);
            }
            if *writes == 40 {
                writer.flush().unwrap_or_else(|e| panic!("flush: {e:?}"));
            }
            *most_log = writer.statistics().wal_bytes.max(*most_log);
        };
        let family = db.default_family();
        scheduler
            .during(write, || family.compact::<&str>(..))
            .unwrap_or_else(|e| panic!("{strategy}: {e:?}"));
        let (model, _, writes, most_log) = &*model.lock().unwrap();
        assert_eq!(*writes, 60, "{strategy}: the compaction ended before the load");
        let now = db.statistics();
        assert!(now.flushes > start.flushes, "{strategy}: no flush came");
        let of_load = now.flushed_bytes - start.flushed_bytes + most_log - start.wal_bytes;
        let of_merges = (now.compactions - start.compactions) * 2 * STEP + runs * UNFREED;
        let added = world.storage.peak_bytes().saturating_sub(before);
        assert!(
            added <= of_merges + of_load,
            "{strategy}: {added} bytes added, of load {of_load}, of {} merges {of_merges}",
            now.compactions - start.compactions
        );
        assert!(contents(&db) == *model, "{strategy}: other contents");
    }
}

#[test]
fn checkpoints_and_backups_in_the_middle_of_a_major_compaction_are_exact() {
    for (seed, strategy) in strategies().iter().enumerate() {
        let world = SimWorld::new(seed as u64);
        let (db, scheduler, model) = filled(&world, strategy);
        let shared = Arc::new(Mutex::new((model, Rng::new(seed as u64), 0)));
        let copies: Arc<Mutex<Vec<(String, Contents)>>> = Arc::default();
        let (model, writer, made) = (shared.clone(), db.clone(), copies.clone());
        let act = move || {
            let (model, rng, turns) = &mut *model.lock().unwrap();
            *turns += 1;
            let (key, value) = (rng.range(0..KEYS).to_be_bytes().to_vec(), rng.bytes(VALUE_BYTES));
            writer.put(&key, &value).unwrap();
            model.insert(key, value);
            let clipped = writer.default_family().shape().tables().any(|(_, _, table)| table.clip.is_some());
            let mut made = made.lock().unwrap();
            // The names count the turns.
            if clipped && *turns % 10 == 0 && made.len() < 6 {
                let backup = made.len() % 2 == 1;
                let name = if backup { "backup".to_string() } else { format!("/checkpoint-{turns}") };
                if backup { writer.backup("/backups").map(drop) } else { writer.checkpoint(&name).map(drop) }
                    .unwrap();
                made.push((name, model.clone()));
            }
        };
        let family = db.default_family();
        scheduler.during(act, || family.compact::<&str>(..)).unwrap();
        let copies = std::mem::take(&mut *copies.lock().unwrap());
        assert!(copies.len() >= 4, "{strategy}: only {} copies in its middle", copies.len());
        let mut backups = 0;
        for (name, expected) in copies {
            let dir = match name.as_str() {
                "backup" => {
                    backups += 1;
                    let to = format!("/restored-{backups}");
                    Backups::new(&world.env(), "/backups").restore(Some(backups), &to, &mut |_| {}).unwrap();
                    to
                }
                _ => name,
            };
            let copy = Builder::new().env(world.env()).scheduler(Between::new(&world)).open(&dir).unwrap();
            assert!(contents(&copy) == expected, "{strategy}: {dir} is not exact");
        }
        assert!(contents(&db) == shared.lock().unwrap().0, "{strategy}: other contents");
    }
}

#[test]
fn cache_and_open_tables_share_what_write_memory_leaves_of_the_budget() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options { write_memory: 256 << 10, memory_budget: 1 << 20, ..Options::default() };
    let strategy = "leveled{sstable_bytes=16KiB,base_bytes=64KiB}".parse().unwrap();
    let family = FamilyOptions { strategy, compression: Compression::None, ..Default::default() };
    let open = || {
        Builder::new().options(options.clone()).family("default", family.clone()).open(dir.path()).unwrap()
    };
    let db = open();
    let empty = db.statistics();
    assert_eq!((empty.sstable_memory_bytes, empty.cache_capacity), (0, 768 << 10));
    for n in 0..4_000u32 {
        db.put(n.to_be_bytes(), [n as u8; 200]).unwrap();
    }
    db.flush().unwrap();
    let full = |db: &Db| {
        let s = db.statistics();
        assert!(
            s.sstables > 20 && s.sstable_memory_bytes > 20 * 100,
            "{} bytes in {} tables",
            s.sstable_memory_bytes,
            s.sstables
        );
        assert_eq!(s.cache_capacity + s.sstable_memory_bytes, 768 << 10);
    };
    db.wait_idle().unwrap();
    full(&db);
    // Reads leave marks in tables, which count as theirs until they go.
    let before = db.statistics().sstable_memory_bytes;
    (0..4_000u32).for_each(|n| assert!(db.get(n.to_be_bytes()).unwrap().is_some()));
    assert!(db.statistics().sstable_memory_bytes > before);
    for _ in 0..3 {
        db.default_family().compact::<&[u8]>(..).unwrap();
        db.wait_idle().unwrap();
        let now = db.statistics();
        assert!(now.sstable_memory_bytes < 2 * before && now.cache_capacity > 512 << 10, "{now:?}");
    }
    db.close().unwrap();
    full(&open());
}
