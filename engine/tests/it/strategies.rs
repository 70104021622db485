//! Merge strategies on whole databases: changed at run time and on reopening, and simulated as they run.

use siltstone::schedule::SimScheduler;
use siltstone::simulate::{SimulateOptions, SimulateReport, simulate};
use siltstone::storage::sim::{Rng, SimWorld};
use siltstone::strategy::StrategyOptions;
use siltstone::{Builder, Compression, Db, EventKind, FamilyOptions, Options, Tuning};
use std::collections::BTreeMap;
use std::sync::Arc;

fn open(world: &SimWorld, options: &Options, family: Option<FamilyOptions>) -> (Db, Arc<SimScheduler>) {
    let scheduler = Arc::new(SimScheduler::for_world(world));
    let builder = Builder::new().options(options.clone()).env(world.env()).scheduler(scheduler.clone());
    let builder = match family {
        Some(family) => builder.family("default", family),
        None => builder,
    };
    (builder.open("/db").unwrap(), scheduler)
}

fn strategy(text: &str) -> StrategyOptions {
    text.parse().unwrap()
}

#[test]
fn a_strategy_is_changed_while_compactions_run_and_every_answer_stays() {
    let strategies = crate::strategies(32 << 10);
    let (mut in_the_middle, mut changes) = (0, 0);
    for seed in 0..6 {
        let (mut rng, world) = (Rng::new(seed), SimWorld::new(seed));
        let options = Options {
            write_memory: 128 << 10,
            memory_budget: 1 << 20,
            workers: 2,
            tuning: Tuning { wal_file_bytes: 64 << 10, compaction_step_bytes: 16 << 10, ..Tuning::default() },
            ..Options::default()
        };
        let (mut db, mut scheduler) = open(&world, &options, None);
        let mut model = BTreeMap::new();
        for round in 0..40 {
            for _ in 0..300 {
                let key = rng.range(0..3_000).to_be_bytes();
                if rng.one_in(10) {
                    db.delete(key).unwrap();
                    model.remove(&key);
                } else {
                    let value = rng.bytes(100);
                    db.put(key, &value).unwrap();
                    model.insert(key, value);
                }
            }
            // Some turns, so that compactions stand in their middle.
            scheduler.run(rng.range(1..30) as u32);
            let family = db.default_family();
            in_the_middle += u32::from(family.shape().tables().any(|(_, _, table)| table.clip.is_some()));
            let next = rng.pick(&strategies).clone();
            changes += u32::from(next != family.options().strategy);
            family.alter(FamilyOptions { strategy: next.clone(), ..family.options() }).unwrap();
            assert_eq!(family.options().strategy, next);
            if rng.one_in(4) {
                drop(family);
                drop(db);
                (db, scheduler) = open(&world, &options, None);
                assert_eq!(
                    db.default_family().options().strategy,
                    next,
                    "seed {seed}: it is in the manifest"
                );
            }
            if rng.one_in(4) {
                db.wait_idle().unwrap();
            }
            db.default_family().shape().check().unwrap();
            let rows = db.scan::<&str>(..).map(|row| row.map(|row| (row.key.to_vec(), row.value.to_vec())));
            let rows: Vec<_> = rows.collect::<siltstone::Result<_>>().unwrap();
            let expected: Vec<_> = model.iter().map(|(k, v)| (k.to_vec(), v.clone())).collect();
            assert!(rows == expected, "seed {seed}, round {round}: another answer");
        }
        db.default_family().compact::<&str>(..).unwrap();
        db.wait_idle().unwrap();
        assert_eq!(
            db.default_family().shape().runs().count(),
            1,
            "seed {seed}: a major compaction leaves one run"
        );
        assert_eq!(db.scan::<&str>(..).count(), model.len());
    }
    assert!(
        in_the_middle > 10,
        "only {in_the_middle} of {changes} changes came while a compaction was under way"
    );
}

#[test]
fn a_change_of_strategy_is_an_event_and_rewrites_nothing() {
    let world = SimWorld::new(1);
    let options = Options { write_memory: 256 << 10, memory_budget: 1 << 20, ..Options::default() };
    let (db, _) = open(&world, &options, None);
    for n in 0..2_000u32 {
        db.put((n % 500).to_be_bytes(), [7; 200]).unwrap();
    }
    db.default_family().compact::<&str>(..).unwrap();
    db.wait_idle().unwrap();
    let written = db.statistics().compaction_written_bytes;
    let family = db.default_family();
    for text in ["size_tiered{runs=4}", "nomerge", "geometric{ratio=2}", "leveled"] {
        family.alter(FamilyOptions { strategy: strategy(text), ..family.options() }).unwrap();
        db.wait_idle().unwrap();
        let told = db
            .events()
            .into_iter()
            .any(|event| event.reason.ends_with(&format!("gives way to {}", strategy(text))));
        assert!(told, "{text}");
    }
    assert_eq!(db.statistics().compaction_written_bytes, written, "one small run is in order everywhere");
}

#[test]
fn what_a_strategy_left_stops_no_writer_of_the_next_one() {
    for next in ["leveled", "rangemerge{sstable_bytes=65536}"] {
        let world = SimWorld::new(1);
        let options = Options { write_memory: 64 << 10, memory_budget: 1 << 20, ..Options::default() };
        let never = FamilyOptions {
            strategy: strategy("nomerge"),
            compression: Compression::None,
            compression_last: None,
            ..FamilyOptions::default()
        };
        let (db, scheduler) = open(&world, &options, Some(never));
        let mut rng = Rng::new(1);
        let mut put = |db: &Db| {
            db.put(rng.range(0..1 << 40).to_be_bytes(), [7; 100]).unwrap();
        };
        (0..60_000).for_each(|_| put(&db));
        db.wait_idle().unwrap();
        let family = db.default_family();
        let runs = family.shape().levels[0].runs.len();
        assert!(runs > 60 && db.statistics().compaction_debt_bytes == 0, "{runs} runs");
        family.alter(FamilyOptions { strategy: strategy(next), ..family.options() }).unwrap();
        let held_up = |db: &Db| {
            let now = db.statistics();
            (now.write_stops, now.write_delays)
        };
        let before = held_up(&db);
        // Compactions are slow, so that all of it is still there, here and after reopening.
        db.set_rate_limit(64 << 10);
        scheduler.run(1);
        put(&db);
        assert_eq!(held_up(&db), before, "{next}");
        drop((family, db, scheduler));
        let (db, scheduler) = open(&world, &Options { rate_limit: 64 << 10, ..options.clone() }, None);
        put(&db);
        scheduler.run(1);
        put(&db);
        assert_eq!(held_up(&db), (0, 0), "{next}");
        let debt = db.statistics().compaction_debt_bytes;
        assert!(debt > 32 * options.write_memory, "{next}: a debt of {debt}");
        // What is added to it counts.
        while held_up(&db) == (0, 0) && db.statistics().flushes < 100 {
            put(&db);
        }
        assert_ne!(held_up(&db), (0, 0), "{next}");
        db.set_rate_limit(0);
        db.wait_idle().unwrap();
        assert_eq!(db.statistics().compaction_debt_bytes, 0, "{next}");
    }
}

/// A family whose tables take what their cells take, as in the simulator.
fn counted_in_bytes(strategy: &StrategyOptions) -> FamilyOptions {
    FamilyOptions {
        strategy: strategy.clone(),
        compression: Compression::None,
        bloom_bits: 0,
        ..FamilyOptions::default()
    }
}

/// What a database did.
#[derive(Default)]
struct Done {
    flushes: u64,
    flushed: u64,
    merged: u64,
    /// The most after a flush and its compactions.
    runs: u64,
    /// Bytes in of the largest compaction.
    largest: u64,
}

/// Flushes keys, so many at once as are given, into a database on a simulated disk.
fn really(strategy: &StrategyOptions, keys: impl Iterator<Item = Vec<u64>>, memory: u64) -> Done {
    let world = SimWorld::new(3);
    let options = Options {
        write_memory: 2 * memory,
        memory_budget: 4 * memory,
        workers: 1,
        tuning: Tuning { compaction_step_bytes: 256 << 10, ..Tuning::default() },
        ..Options::default()
    };
    let (db, _scheduler) = open(&world, &options, Some(counted_in_bytes(strategy)));
    let (mut rng, mut done) = (Rng::new(3), Done::default());
    for keys in keys {
        for key in keys {
            db.put(key.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes(), rng.bytes(1000)).unwrap();
        }
        db.flush().unwrap();
        db.wait_idle().unwrap();
        done.runs = done.runs.max(db.default_family().shape().runs().count() as u64);
        let events = db.events().into_iter().filter(|event| event.kind == EventKind::Compaction);
        done.largest = events.map(|event| event.numbers["bytes_in"]).fold(done.largest, u64::max);
    }
    let now = db.statistics();
    Done { flushes: now.flushes, flushed: now.flushed_bytes, merged: now.compaction_written_bytes, ..done }
}

/// What a database does with every key put once, then as much again of keys drawn among all, in so many
/// flushes each; and what the simulation says of that.
fn both(strategy: &StrategyOptions, in_fill: u64) -> (Done, SimulateReport) {
    const PER_FLUSH: u64 = 250;
    // What a flush of so many keys takes in memory decides when one begins by itself, and bounds runs.
    let memory = PER_FLUSH * 1016 * 105 / 100;
    let mut rng = Rng::new(5);
    let mut drawn = move || -> Vec<u64> {
        let mut keys = std::collections::BTreeSet::new();
        while keys.len() < PER_FLUSH as usize {
            keys.insert(rng.range(0..PER_FLUSH * in_fill));
        }
        keys.into_iter().collect()
    };
    let fill = (0..in_fill).map(|n| (0..PER_FLUSH).map(|i| i * in_fill + n).collect());
    let keys = fill.chain(std::iter::from_fn(|| Some(drawn())).take(in_fill as usize));
    let real = really(strategy, keys, memory);
    let flush_bytes = real.flushed / real.flushes;
    let simulated = simulate(&SimulateOptions {
        strategy: strategy.clone(),
        data_bytes: flush_bytes * in_fill,
        memory_bytes: flush_bytes,
        key_bytes: 8,
        value_bytes: flush_bytes / PER_FLUSH - 8,
        overwrite: 1.0,
        ..SimulateOptions::default()
    });
    (real, simulated.unwrap())
}

#[test]
fn simulated_bytes_runs_and_largest_compactions_agree_with_a_real_run_within_5_percent() {
    for text in [
        "leveled{base_bytes=1MiB, sstable_bytes=128KiB, defer_below=0}",
        "size_tiered{runs=4, sstable_bytes=128KiB}",
        "size_tiered{runs=2, sstable_bytes=128KiB}",
        "nomerge{sstable_bytes=128KiB}",
        "geometric{ratio=2, sstable_bytes=128KiB}",
        "geometric{ratio=3, sstable_bytes=128KiB}",
        "geometric{runs=2, sstable_bytes=128KiB}",
        "remerge{sstable_bytes=128KiB}",
        "exploring{sstable_bytes=128KiB}",
    ] {
        let strategy = strategy(text);
        // Among windows of one size a byte decides which exploring takes, and so when a large compaction
        // comes: of several amounts of data the middle one counts. Whether leveled gathers, a sketch decides;
        // that evens out over more flushes.
        let (fills, largest_max): (&[u64], f64) = match text {
            _ if text.starts_with("leveled") => (&[100], 0.05),
            _ if text.starts_with("exploring") => (&[50, 70, 90], 0.1),
            _ => (&[20], 0.05),
        };
        let off = |real: u64, simulated: u64| simulated.abs_diff(real) as f64 / real.max(1) as f64;
        let (mut merged_off, mut runs_off, mut largest_off) = (Vec::new(), Vec::new(), Vec::new());
        for in_fill in fills.iter().copied() {
            let (real, simulated) = both(&strategy, in_fill);
            println!(
                "{text}: {} bytes merged, {} simulated; {} runs, {}; the largest compaction {}, {}",
                real.merged,
                simulated.compaction_written_bytes,
                real.runs,
                simulated.runs_max,
                real.largest,
                simulated.largest_compaction_input_bytes
            );
            assert_eq!(real.flushes, 2 * in_fill, "{text}: no flush but those asked for");
            assert!(
                off(real.flushed, simulated.flushed_bytes) < 0.05,
                "{text}: {}\n{simulated}",
                real.flushed
            );
            merged_off.push(off(real.merged, simulated.compaction_written_bytes));
            runs_off.push(off(real.runs, simulated.runs_max));
            largest_off.push(off(real.largest, simulated.largest_compaction_input_bytes));
        }
        let middle = |mut offs: Vec<f64>| {
            offs.sort_by(f64::total_cmp);
            offs[offs.len() / 2]
        };
        let (merged, runs, largest) = (middle(merged_off), middle(runs_off), middle(largest_off));
        assert!(merged < 0.05 && runs == 0.0 && largest < largest_max, "{text}: {merged}, {runs}, {largest}");
    }
}

#[test]
fn simulated_bytes_of_rangemerge_agree_with_a_real_run_within_5_percent() {
    const KEYS: u64 = 8_000;
    let mut far = Vec::new();
    for text in [
        "rangemerge{sstable_bytes=512KiB, victim=most-bytes}",
        "rangemerge{sstable_bytes=512KiB}",
        "rangemerge{sstable_bytes=512KiB, deltas_max=3}",
    ] {
        let strategy = strategy(text);
        let world = SimWorld::new(3);
        let options =
            Options { write_memory: 2 << 20, memory_budget: 4 << 20, workers: 1, ..Options::default() };
        let (db, _scheduler) = open(&world, &options, Some(counted_in_bytes(&strategy)));
        // Every key once, in no order, then as many drawn among all. Nothing is put while a flush is due.
        let mut rng = Rng::new(3);
        let fill = (0..KEYS).map(|i| i.wrapping_mul(3) % KEYS);
        let mut drawn = Rng::new(5);
        let overwrite = (0..KEYS).map(|_| drawn.range(0..KEYS));
        let (mut held, mut flushed_by_fill) = (0, 0);
        for (n, key) in (0u64..).zip(fill.chain(overwrite)) {
            db.put(key.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes(), rng.bytes(1000)).unwrap();
            if n % 16 == 15 {
                db.wait_idle().unwrap();
                held = held.max(db.default_family().memtables().iter().map(|memtable| memtable.cells).sum());
            }
            if n + 1 == KEYS {
                flushed_by_fill = db.statistics().flushed_bytes;
            }
        }
        let now = db.statistics();
        let rows: u64 = db.default_family().shape().tables().map(|(_, _, table)| table.cells).sum();
        let entry = db.default_family().shape().live_bytes() / rows;
        let simulated = simulate(&SimulateOptions {
            strategy,
            data_bytes: KEYS * entry,
            memory_bytes: held * entry,
            key_bytes: 8,
            value_bytes: entry - 8,
            overwrite: 1.0,
            ..SimulateOptions::default()
        })
        .unwrap();
        let written = now.flushed_bytes + now.compaction_written_bytes;
        let ours = simulated.flushed_bytes + simulated.compaction_written_bytes;
        println!(
            "{text}: {held} rows held, {} flushes, {written} bytes written ({flushed_by_fill} by the fill), {ours} simulated in {}",
            now.flushes, simulated.flushes
        );
        if ours.abs_diff(written) as f64 > 0.05 * written as f64 {
            far.push(simulated);
        }
    }
    assert!(far.is_empty(), "{far:?}");
}

#[test]
fn a_shorter_period_of_major_compactions_holds_from_the_change_on() {
    let world = SimWorld::new(11);
    let of = |period: u64| FamilyOptions {
        strategy: strategy(&format!("exploring{{major_period_s={period}, major_jitter=0}}")),
        ..FamilyOptions::default()
    };
    let (db, _) = open(&world, &Options::default(), Some(of(7 * 24 * 3600)));
    for value in [b"one", b"two"] {
        db.put(b"key", value).unwrap();
        db.flush().unwrap();
    }
    let runs_after = |seconds: u64| {
        world.clock.advance_us(seconds * 1_000_000);
        db.wait_idle().unwrap();
        db.default_family().shape().runs().count()
    };
    assert_eq!(runs_after(7200), 2, "a week has not passed");
    db.default_family().alter(of(3600)).unwrap();
    assert_eq!(runs_after(60), 1, "an hour has");
}
