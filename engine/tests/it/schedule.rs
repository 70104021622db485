//! Who gets a worker when, and how fast compactions may write.

use crate::turns::Between;
use siltstone::storage::sim::{Rng, SimClock, SimWorld};
use siltstone::storage::{Clock, Env, Storage};
use siltstone::strategy::{HotKeys, MemtablePolicy};
use siltstone::{Builder, Compression, Db, ErrorKind, EventKind, Family, FamilyOptions, Options, Tuning};
use std::path::Path;
use std::sync::{Arc, Mutex};

const LEVELED: &str = "leveled{base_bytes=128KiB, sstable_bytes=64KiB}";

/// All methods, with tables of a quarter of a step.
fn strategies() -> impl Iterator<Item = String> {
    crate::strategies(64 << 10).into_iter().map(|strategy| strategy.to_string())
}

/// A clock on which looking takes time, some 50 microseconds: without that all work in memory would take
/// none.
#[derive(Debug)]
struct Ticking(Arc<SimClock>);

impl Clock for Ticking {
    fn wall_us(&self) -> u64 {
        self.0.wall_us()
    }
    fn monotonic_ns(&self) -> u64 {
        self.0.advance_us(50);
        self.0.monotonic_ns()
    }
}

fn open(world: &SimWorld, options: Options, strategy: &str) -> (Db, Arc<Between>) {
    let scheduler = Between::new(world);
    let env = Env { clock: Arc::new(Ticking(world.clock.clone())), ..world.env() };
    let family = FamilyOptions {
        strategy: strategy.parse().unwrap(),
        compression: Compression::None,
        memtable_policy: MemtablePolicy::None,
        hot_keys: HotKeys::Off,
        ..FamilyOptions::default()
    };
    let builder = Builder::new().options(options).env(env).scheduler(scheduler.clone());
    (builder.family("default", family).open("/db").unwrap(), scheduler)
}

fn options() -> Options {
    Options {
        write_memory: 256 << 10,
        memory_budget: 1 << 20,
        workers: 1,
        tuning: Tuning { wal_file_bytes: 64 << 10, compaction_step_bytes: 256 << 10, ..Tuning::default() },
        ..Options::default()
    }
}

#[test]
fn a_flush_starts_within_10_ms_of_being_due_though_a_major_compaction_holds_the_only_worker() {
    for (seed, strategy) in strategies().enumerate() {
        let world = SimWorld::new(seed as u64);
        // A device that takes its time, too.
        let clock = world.clock.clone();
        world.storage.on_op(move |_, _| clock.advance_us(50));
        let (db, scheduler) = open(&world, options(), &strategy);
        let mut rng = Rng::new(seed as u64);
        for n in 0..16_000u64 {
            db.put((n * 7919 % 12_000).to_be_bytes(), rng.bytes(250)).unwrap();
        }
        db.flush().unwrap();
        db.wait_idle().unwrap();
        // Runs that are not merged when the major compaction comes.
        db.set_rate_limit(1);
        (0..400u64).for_each(|n| drop(db.put((n * 30).to_be_bytes(), rng.bytes(250))));
        db.flush().unwrap();
        db.set_rate_limit(0);
        let compactions = db.statistics().compactions;
        let waits: Arc<Mutex<Vec<u64>>> = Arc::default();
        let (told, writer, clock, mut due) = (waits.clone(), db.clone(), world.clock.clone(), None);
        let act = move || {
            let flushing = writer.default_family().memtables().iter().any(|s| s.state == "flushing");
            match due {
                Some((since, flushes)) if writer.statistics().flushes > flushes => {
                    let events = writer.events();
                    let flush = events.iter().rev().find(|event| event.kind == EventKind::Flush).unwrap();
                    told.lock().unwrap().push((flush.at_us - flush.numbers["micros"]).saturating_sub(since));
                    due = None;
                }
                // Memory that is scattered by range shrinks by that.
                Some(_) if writer.statistics().write_memory <= 128 << 10 => due = None,
                None if !flushing => {
                    // Until memory is over the low mark, half of the write memory.
                    while writer.statistics().write_memory <= 128 << 10 {
                        writer.put(rng.range(0..12_000).to_be_bytes(), rng.bytes(250)).unwrap();
                    }
                    due = Some((clock.wall_us(), writer.statistics().flushes));
                }
                _ => {}
            }
        };
        let family = db.default_family();
        scheduler.during(act, || family.compact::<&str>(..)).unwrap();
        world.storage.clear_on_op();
        assert!(db.statistics().compactions > compactions, "{strategy}: nothing was merged");
        let waits = waits.lock().unwrap();
        assert!(waits.len() >= 3, "{strategy}: only {} flushes came due in the compaction", waits.len());
        let longest = waits.iter().max().unwrap();
        println!("{strategy}: at most {longest} us of {} flushes", waits.len());
        assert!(*longest <= 10_000, "{strategy}: a flush waited {longest} us of {} flushes", waits.len());
    }
}

/// Puts of 1 KB to drawn keys of so many.
fn load(db: &Db, rng: &mut Rng, puts: u64, keys: u64) {
    for _ in 0..puts {
        db.put(rng.range(0..keys).to_be_bytes(), rng.bytes(1000)).unwrap();
    }
}

#[test]
fn without_debt_a_compaction_writes_no_faster_than_the_floor() {
    const FLOOR: u64 = 100_000;
    let world = SimWorld::new(1);
    let options = Options { rate_limit_auto: FLOOR, ..options() };
    let (db, _) = open(&world, options, "leveled{base_bytes=64MiB, sstable_bytes=64KiB}");
    load(&db, &mut Rng::new(1), 1_000, 800);
    db.flush().unwrap();
    db.wait_idle().unwrap();
    assert_eq!((db.statistics().compaction_debt_bytes, db.statistics().compaction_rate), (0, FLOOR));
    let (before, from) = (db.statistics().compaction_written_bytes, world.clock.monotonic_ns());
    db.default_family().compact::<&str>(..).unwrap();
    let written = db.statistics().compaction_written_bytes - before;
    let seconds = (world.clock.monotonic_ns() - from) as f64 / 1e9;
    let rate = written as f64 / seconds;
    assert!(written > 400_000, "only {written} bytes were merged");
    assert!((0.5..1.2).contains(&(rate / FLOOR as f64)), "{rate} bytes a second, the floor is {FLOOR}");
    // The fixed limit stays above the floor.
    db.set_rate_limit(FLOOR / 10);
    assert_eq!(db.statistics().compaction_rate, FLOOR / 10);
}

#[test]
fn a_rate_that_follows_the_debt_slows_no_writer_where_a_fixed_one_stops_them() {
    let slowed_or_not = |rate_limit: u64, rate_limit_auto: u64, slow_writers: bool| {
        let world = SimWorld::new(2);
        let options = Options {
            rate_limit,
            rate_limit_auto,
            tuning: Tuning { slow_writers, ..options().tuning },
            ..options()
        };
        let (db, _) = open(&world, options, "leveled{base_bytes=128KiB, sstable_bytes=64KiB, multiplier=4}");
        let mut rng = Rng::new(2);
        let (mut least, mut most) = (u64::MAX, 0);
        for _ in 0..80 {
            load(&db, &mut rng, 100, 20_000);
            db.flush().unwrap();
            // A tenth of a second of work in the background.
            for _ in 0..100 {
                world.clock.advance_us(1_000);
                db.get(b"").unwrap();
            }
            let rate = db.statistics().compaction_rate;
            (least, most) = (least.min(rate), most.max(rate));
        }
        let now = db.statistics();
        println!(
            "{rate_limit} {rate_limit_auto}: {} stops, {} delays, rates {least} to {most}",
            now.write_stops, now.write_delays
        );
        (now.write_stops, now.write_delay_ns, least, most)
    };
    let held_up = |rate_limit, rate_limit_auto| slowed_or_not(rate_limit, rate_limit_auto, true);
    let (stops, slowed_ns, ..) = held_up(10_000, 0);
    assert!(stops > 0 && slowed_ns > 0, "a limit of 10 kB/s stops writers of a megabyte a second");
    let (stops, slowed_ns, ..) = slowed_or_not(10_000, 0, false);
    assert!(stops > 0 && slowed_ns == 0, "without `slow_writers` they were slowed by {slowed_ns} ns");
    let (stops, delayed_ns, _, most) = held_up(0, 10_000);
    let (free_stops, free_delayed_ns, ..) = held_up(0, 0);
    assert_eq!((stops, free_stops), (0, 0));
    assert!(
        delayed_ns <= free_delayed_ns + 100_000_000,
        "{delayed_ns} ns, without a limit {free_delayed_ns}"
    );
    assert!(most == 0 || most > 100_000, "the rate never rose: {most}");
}

#[test]
fn too_many_runs_in_level_0_of_one_family_hold_up_its_own_writers_only() {
    let world = SimWorld::new(3);
    // At a byte a second it takes long to merge what comes.
    let (db, _) = open(&world, Options { rate_limit: 1, ..options() }, "remerge");
    let mut rng = Rng::new(3);
    let (slow, other) = (db.default_family(), db.create_family("other", FamilyOptions::default()).unwrap());
    while slow.shape().levels.first().is_none_or(|level| level.runs.len() < 37) {
        load(&db, &mut rng, 5, 1_000_000);
        db.flush().unwrap();
    }
    other.put(b"key", b"value").unwrap();
    db.flush().unwrap();
    let before = db.statistics();
    for n in 0..100u64 {
        other.put(n.to_be_bytes(), [7; 100]).unwrap();
    }
    let now = db.statistics();
    assert_eq!(
        (now.write_stops, now.write_delays),
        (before.write_stops, before.write_delays),
        "writers of the other family wait"
    );
    db.set_rate_limit(0);
    slow.put(b"key", b"value").unwrap();
    assert_eq!(db.statistics().write_stops, before.write_stops + 1, "the writer of this one does not");
}

/// A load beside a compaction.
struct Load {
    db: Db,
    family: Family,
    rng: Rng,
    turns: u64,
}

/// What became of it: flushes, and the most runs that level 0 had.
type Told = Arc<Mutex<(u64, usize)>>;

impl Load {
    /// To be called at every turn: each twentieth time puts twenty keys and flushes them, up to sixty times.
    fn act(mut self, told: &Told) -> impl FnMut() + Send + 'static {
        let told = told.clone();
        move || {
            self.turns += 1;
            if self.turns.is_multiple_of(20) && self.turns <= 60 * 20 {
                for _ in 0..20 {
                    self.family.put(self.rng.range(0..12_000).to_be_bytes(), self.rng.bytes(250)).unwrap();
                }
                self.db.flush().unwrap();
                let runs = self.family.shape().levels.first().map_or(0, |level| level.runs.len());
                let mut told = told.lock().unwrap();
                *told = (told.0 + 1, told.1.max(runs));
            }
        }
    }
}

/// A database of 4 MB, to be merged at 2 MB a second.
fn loaded(world: &SimWorld, strategy: &str) -> (Db, Arc<Between>, Rng) {
    let options = Options {
        write_memory: 96 << 10,
        tuning: Tuning { compaction_step_bytes: 16 << 10, ..options().tuning },
        ..options()
    };
    let (db, scheduler) = open(world, options, strategy);
    let mut rng = Rng::new(7);
    load(&db, &mut rng, 4_000, 1_000_000);
    db.flush().unwrap();
    db.wait_idle().unwrap();
    db.set_rate_limit(2_000_000);
    load(&db, &mut rng, 100, 1_000_000);
    (db, scheduler, rng)
}

#[test]
fn what_comes_to_level_0_behind_a_long_compaction_is_merged_among_itself_and_stops_nobody() {
    for strategy in [
        "leveled{base_bytes=128KiB, sstable_bytes=64KiB}",
        "size_tiered{runs=4, sstable_bytes=64KiB}",
        "geometric{ratio=2, sstable_bytes=64KiB}",
        "remerge{sstable_bytes=64KiB}",
        "exploring{sstable_bytes=64KiB}",
    ] {
        let world = SimWorld::new(7);
        let (db, scheduler, rng) = loaded(&world, strategy);
        let (family, before, told) = (db.default_family(), db.statistics(), Told::default());
        let load = Load { db: db.clone(), family: family.clone(), rng, turns: 0 };
        scheduler.during(load.act(&told), || family.compact::<&str>(..)).unwrap();
        let ((flushes, most), now) = (*told.lock().unwrap(), db.statistics());
        assert_eq!(flushes, 60, "{strategy}: the compaction ended before the load");
        // It begins at 12 more than usual, beside which others come.
        assert!(most <= 24, "{strategy}: level 0 had {most} runs of 60 flushes");
        assert_eq!(now.write_stops, before.write_stops, "{strategy}: writers were stopped");
    }
}

#[test]
fn keys_appended_beside_a_compaction_do_not_prolong_it() {
    for strategy in strategies() {
        let world = SimWorld::new(7);
        let (db, scheduler, mut rng) = loaded(&world, &strategy);
        let family = db.default_family();
        let ranges = family.shape().tables().count();
        let act = {
            let (family, mut n) = (family.clone(), 2_000_000u64);
            move || {
                n += 1;
                family.put(n.to_be_bytes(), rng.bytes(250)).unwrap();
            }
        };
        scheduler.during(act, || family.compact::<&str>(..)).unwrap();
        let compactions = db.events().iter().filter(|event| event.reason.starts_with("major")).count();
        let most = if strategy.starts_with("rangemerge") { ranges } else { 1 };
        assert!((1..=most).contains(&compactions), "{strategy}: {compactions} compactions");
    }
}

#[test]
fn beside_a_major_compaction_by_ranges_the_memory_of_other_ranges_goes_to_their_tables() {
    let world = SimWorld::new(7);
    let (db, scheduler, mut rng) = loaded(&world, "rangemerge{sstable_bytes=64KiB, deltas_max=4}");
    db.set_rate_limit(0);
    let (family, told) = (db.default_family(), Told::default());
    let before = db.statistics();
    let act = {
        let (family, told) = (family.clone(), told.clone());
        move || {
            for _ in 0..if told.lock().unwrap().0 < 500 { 4 } else { 0 } {
                family.put(rng.range(0..1_000_000).to_be_bytes(), rng.bytes(250)).unwrap();
            }
            let runs = family.shape().levels.first().map_or(0, |level| level.runs.len());
            let mut told = told.lock().unwrap();
            *told = (told.0 + 1, told.1.max(runs));
        }
    };
    scheduler.during(act, || family.compact::<&str>(..)).unwrap();
    let ((_, most), now) = (*told.lock().unwrap(), db.statistics());
    assert!(now.flushes - before.flushes > 300, "{} flushes", now.flushes - before.flushes);
    // Where all went to L0 there would be dozens.
    assert!(most <= 12, "L0 had {most} runs");
    assert_eq!(now.write_stops, before.write_stops, "writers were stopped");
}

#[test]
fn behind_an_automatic_compaction_of_all_data_the_only_worker_compacts_what_comes() {
    let world = SimWorld::new(9);
    let (db, scheduler, rng) = loaded(&world, "remerge{sstable_bytes=64KiB}");
    let (family, told) = (db.default_family(), Told::default());
    let mut act = Load { db: db.clone(), family: family.clone(), rng, turns: 0 }.act(&told);
    db.flush().unwrap();
    let before = db.statistics();
    let mut ended = 0;
    while told.lock().unwrap().0 < 60 {
        scheduler.run(1);
        world.clock.advance_us(1_000);
        act();
        ended = ended.max(db.statistics().compactions);
    }
    let (_, most) = *told.lock().unwrap();
    assert!(most <= 24, "level 0 had {most} runs of 60 flushes");
    assert_eq!(db.statistics().write_stops, before.write_stops, "writers were stopped");
    let compaction_of_all =
        |event: &siltstone::Event| event.kind == EventKind::Compaction && event.numbers["to_level"] > 0;
    let compactions = || db.events().iter().filter(|event| compaction_of_all(event)).count();
    let then = compactions();
    // And it gets on, and ends.
    for _ in 0..4_000 {
        scheduler.run(1);
        world.clock.advance_us(1_000);
    }
    assert!(compactions() > then || then > 1, "the compaction of all has not ended");
}

#[test]
fn a_long_compaction_of_one_family_keeps_no_other_family_from_merging() {
    let world = SimWorld::new(8);
    let (db, scheduler, rng) = loaded(&world, LEVELED);
    let (family, told) = (db.default_family(), Told::default());
    let other = db.create_family("other", family.options()).unwrap();
    let load = Load { db: db.clone(), family: other, rng, turns: 0 };
    scheduler.during(load.act(&told), || family.compact::<&str>(..)).unwrap();
    let (flushes, most) = *told.lock().unwrap();
    assert_eq!(flushes, 60, "the compaction ended before the load");
    assert!(most <= 16, "level 0 of the other family had {most} runs of 60 flushes");
}

#[test]
fn files_that_a_scan_held_go_a_few_at_a_time() {
    let world = SimWorld::new(9);
    let (db, scheduler) = open(&world, options(), "size_tiered{runs=4, sstable_bytes=4096}");
    load(&db, &mut Rng::new(9), 1_000, 1_000_000);
    db.flush().unwrap();
    db.wait_idle().unwrap();
    let scan = db.scan::<&str>(..);
    db.default_family().compact::<&str>(..).unwrap();
    scheduler.run(10);
    let tables =
        || world.storage.list(Path::new("/db")).unwrap().iter().filter(|f| f.ends_with(".table")).count();
    let (held, live) = (tables(), db.default_family().shape().tables().count());
    assert!(held > 2 * live - 20, "{held} tables, {live} of them live");
    drop(scan);
    let mut left = held;
    while left > live {
        scheduler.run(1);
        // At 50 us each time it looks at the clock, some 80 of them in the 4 ms of a slice.
        assert!(left - tables() <= 90, "{left} tables, and in one turn {} of them went", left - tables());
        assert!(tables() < left, "nothing went");
        left = tables();
    }
}

#[test]
fn a_range_that_scans_find_in_many_runs_is_merged_when_they_looked_often_enough() {
    for strategy in [
        "leveled{l0_runs_trigger=8, defer_below=0}",
        "size_tiered{runs=8}",
        "exploring{min_runs=8}",
        "rangemerge{deltas_max=8}",
    ] {
        let world = SimWorld::new(4);
        let (db, _) = open(&world, options(), strategy);
        let mut rng = Rng::new(4);
        for _ in 0..4 {
            for key in 0..50u64 {
                db.put(key.to_be_bytes(), rng.bytes(200)).unwrap();
            }
            db.flush().unwrap();
            db.wait_idle().unwrap();
        }
        let runs = db.default_family().shape().runs().count();
        assert!(runs >= 3, "{strategy}: {runs} runs to begin with");
        let scan = |times: u64| {
            for _ in 0..times {
                assert_eq!(db.scan::<&str>(..).take(3).count(), 3);
            }
            world.clock.advance_us(61_000_000);
            db.wait_idle().unwrap();
            db.default_family().shape().runs().count()
        };
        assert_eq!(scan(3), runs, "{strategy}: a few scans are no reason");
        // Which of the tables the compaction begins at is drawn, and a run newer than that one may stay above
        // it.
        let left = scan(200);
        assert!(left < 3, "{strategy}: {left} runs");
        let told = db.events().iter().any(|event| event.reason.contains("is read much"));
        assert!(told, "{strategy}: no event says why");
        let compactions = db.statistics().compactions;
        assert_eq!(scan(200), left, "{strategy}");
        assert_eq!(
            db.statistics().compactions,
            compactions,
            "{strategy}: one run is read as often as anybody likes"
        );
    }
}

#[test]
fn two_runs_become_one_once_reads_have_paid_since_the_newer_one_came() {
    for strategy in ["leveled", "size_tiered{runs=4}", "exploring{min_runs=8}"] {
        let world = SimWorld::new(6);
        let (db, _) = open(&world, options(), strategy);
        let family = db.default_family();
        let put = |keys: std::ops::Range<u64>| {
            for key in keys {
                family.put(key.to_be_bytes(), [key as u8; 200]).unwrap();
            }
            db.flush().unwrap();
        };
        let scan = |times: u64| {
            (0..times).for_each(|_| assert_eq!(db.scan::<&str>(..).take(3).count(), 3));
            world.clock.advance_us(3_000_000);
            db.wait_idle().unwrap();
            family.shape().runs().count()
        };
        put(0..400);
        family.compact::<&str>(..).unwrap();
        assert_eq!(scan(1_000), 1, "{strategy}");
        put(0..20);
        // What was read before it came would have been read in one run as well.
        assert_eq!(scan(3), 2, "{strategy}: a few scans are no reason");
        assert_eq!(scan(20), 2, "{strategy}: nor are some");
        assert_eq!(scan(400), 1, "{strategy}: what merging costs has been paid");
    }
}

#[test]
fn deleted_and_expired_ranges_give_their_space_back_before_their_turn() {
    for strategy in ["leveled", "size_tiered{runs=4}", "geometric{ratio=2}", "exploring", "rangemerge"] {
        for expire in [false, true] {
            let world = SimWorld::new(5);
            let (db, _) = open(&world, options(), strategy);
            let family = db.default_family();
            if expire {
                family.alter(FamilyOptions { ttl_us: 3_600_000_000, ..family.options() }).unwrap();
            }
            for n in 0..500u64 {
                family.put(n.to_be_bytes(), [n as u8; 500]).unwrap();
            }
            db.flush().unwrap();
            family.compact::<&str>(..).unwrap();
            let snapshot = db.snapshot();
            match expire {
                true => world.clock.advance_us(3_600_000_000),
                false => (0..500u64).for_each(|n| {
                    family.delete(n.to_be_bytes()).unwrap();
                }),
            }
            db.flush().unwrap();
            world.clock.advance_us(61_000_000);
            db.wait_idle().unwrap();
            if !expire {
                let left = db.statistics().sstable_bytes;
                assert!(left > 200_000, "{strategy}: {left} bytes left under a snapshot");
            }
            drop(snapshot);
            world.clock.advance_us(61_000_000);
            db.wait_idle().unwrap();
            let left = db.statistics().sstable_bytes;
            assert!(
                left < 20_000,
                "{strategy}, by time {expire}: {left} bytes of dead cells are left\n{}{:?}",
                family.shape(),
                family.shape().tables().map(|(_, _, t)| (t.times, t.created, t.seqs)).collect::<Vec<_>>()
            );
        }
    }
}

#[test]
fn a_compaction_that_is_put_off_is_told_as_an_event_once() {
    let world = SimWorld::new(6);
    let (db, _) = open(&world, options(), "leveled{l0_runs_trigger=2, defer_below=0.9, base_bytes=64KiB}");
    let mut rng = Rng::new(6);
    for n in 0..2_000u64 {
        db.put(n.to_be_bytes(), rng.bytes(500)).unwrap();
    }
    db.flush().unwrap();
    db.wait_idle().unwrap();
    for round in 0..3u64 {
        for n in 0..40u64 {
            db.put((n * 50 + round).to_be_bytes(), rng.bytes(500)).unwrap();
        }
        db.flush().unwrap();
        db.wait_idle().unwrap();
        db.wait_idle().unwrap();
    }
    let mut told: Vec<_> = db
        .events()
        .into_iter()
        .filter(|e| e.kind == EventKind::CompactionDeferred)
        .map(|e| e.reason)
        .collect();
    let all = told.len();
    assert!(told.iter().any(|why| why.contains("L0 waits")), "{told:?}");
    told.sort();
    told.dedup();
    assert_eq!(told.len(), all, "each is told once");
}

#[test]
fn a_writer_at_a_hard_bound_is_turned_away_after_its_time_and_nothing_of_it_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options {
        write_memory: 1 << 20,
        memory_budget: 4 << 20,
        rate_limit: 16 << 10,
        write_stop_ms_max: 50,
        ..Options::default()
    };
    let whole = Db::builder().options(options).open(dir.path()).unwrap();
    let strategy = "leveled{base_bytes=128KiB, sstable_bytes=64KiB}".parse().unwrap();
    let db = whole.create_family("f", FamilyOptions { strategy, ..FamilyOptions::default() }).unwrap();
    let mut random = Rng::new(1);
    let mut value = || (0..2_000).flat_map(|_| random.next_u64().to_le_bytes()).collect::<Vec<u8>>();
    let (mut written, mut refused) = (Vec::new(), None);
    // Not ascending, so that compactions have something to do.
    for n in (0..2_000u32).map(|n| n.wrapping_mul(0x9e37_79b9)) {
        match db.put(n.to_be_bytes(), value()) {
            Ok(_) => written.push(n),
            Err(e) => {
                assert_eq!(e.kind(), ErrorKind::Busy, "{e}");
                refused = Some(n);
                break;
            }
        }
    }
    let refused = refused.expect("compactions cannot keep up");
    assert!(db.get(refused.to_be_bytes()).unwrap().is_none() && written.len() > 10);
    // Where compactions get on it is worth another try.
    whole.set_rate_limit(0);
    let mut tries = 0;
    while let Err(e) = db.put(refused.to_be_bytes(), value()) {
        tries += 1;
        assert!(e.kind() == ErrorKind::Busy && tries < 1_000, "{e}");
    }
    assert!(written.iter().all(|n| db.get(n.to_be_bytes()).unwrap().is_some()));
}
