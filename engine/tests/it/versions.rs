//! Which versions and cells there are: whatever a filter hides, whenever compactions ran, and what
//! compactions leave.

use siltstone::schedule::SimScheduler;
use siltstone::storage::sim::{Rng, SimWorld};
use siltstone::{
    Builder, CompactionControl, CompactionFilter, Compression, Db, Family, FamilyOptions, MergeOperator,
    Result, Snapshot, Timestamp, Timestamps,
};
use std::sync::Arc;

fn counted(versions: u32) -> FamilyOptions {
    FamilyOptions { timestamps: Timestamps::Explicit, versions, ..FamilyOptions::default() }
}

/// Cells that the family's tables hold.
fn cells(f: &Family) -> u64 {
    f.shape().tables().map(|(_, _, table)| table.cells).sum()
}

/// Hides values that begin with `h`, and since that moment those that begin with `t` too.
struct Hiding(u64);

impl CompactionFilter for Hiding {
    fn remove(&self, _: &[u8], _: Timestamp, value: &[u8], now_us: u64) -> bool {
        value.starts_with(b"h") || (value.starts_with(b"t") && now_us >= self.0)
    }
}

#[derive(Clone, Debug)]
enum Call {
    Put(&'static str, u64, &'static str),
    Delete(&'static str, u64),
    DeleteRange(u64, u64),
    TimePasses,
}
use Call::{Delete, DeleteRange, Put, TimePasses};

/// Makes the calls with something between them, which may change no answer: 1 flushes, 2 compacts, 3 reopens.
/// What is read in the end.
fn read_after(versions: u32, calls: &[Call], stirred: &[u64]) -> Vec<(Vec<u8>, u64, Vec<u8>)> {
    const DAY_US: i64 = 86_400_000_000;
    let world = SimWorld::new(1);
    let later = world.env().clock.wall_us() + DAY_US as u64;
    let open = || {
        let options = FamilyOptions { compaction_filter: Some("hiding".into()), ..counted(versions) };
        let builder = Builder::new().env(world.env()).scheduler(Arc::new(SimScheduler::for_world(&world)));
        let builder = builder.filter("hiding", Arc::new(Hiding(later))).family("f", options);
        builder.open("/db").unwrap()
    };
    let mut db = open();
    for (call, how) in calls.iter().zip(stirred) {
        let f = db.family("f").unwrap();
        match call {
            Put(key, t, value) => _ = f.put_at(key, Timestamp(*t), value).unwrap(),
            Delete(key, t) => _ = f.delete_at(key, Timestamp(*t)).unwrap(),
            DeleteRange(from, to) => {
                f.delete_range_at("a".."z", Timestamp(*from), Timestamp(*to)).unwrap();
            }
            TimePasses => world.clock.jump_wall_us(2 * DAY_US),
        }
        match how {
            1 => f.flush().unwrap(),
            2 => f.compact::<&str>(..).unwrap(),
            3 => {
                drop(f);
                db.close().unwrap();
                db = open();
            }
            _ => {}
        }
    }
    let f = db.family("f").unwrap();
    let scanned = f.scan::<&str>(..).map(|entry| entry.unwrap());
    let scanned: Vec<_> = scanned.map(|e| (e.key, e.timestamp.0, e.value.to_vec())).collect();
    let mut got = Vec::new();
    for key in ["k", "l"] {
        let versions = f.get_versions(key, 9).unwrap();
        got.extend(versions.iter().map(|(t, value)| (key.as_bytes().to_vec(), t.0, value.to_vec())));
    }
    assert_eq!(scanned, got);
    scanned
}

/// Writes of any order of timestamps, of which a filter hides some, read the same wherever they were flushed,
/// merged and reopened between: as they do from the memory they were written to.
#[test]
fn which_versions_a_filter_leaves_depends_on_no_flush_and_no_compaction() {
    let mut rng = Rng::new(4);
    for _ in 0..100 {
        let versions = rng.range(1..4) as u32;
        let mut calls: Vec<Call> = Vec::new();
        for _ in 0..rng.range(3..9) {
            let (key, t) = (*rng.pick(&["k", "k", "l"]), rng.range(1..7));
            calls.push(match rng.range(0..10) {
                0 => Delete(key, t),
                1 => DeleteRange(t, t),
                2 => DeleteRange(t, t + 2),
                3 if rng.one_in(2) => DeleteRange(0, t),
                3 => TimePasses,
                _ => {
                    let value: &&str = rng.pick(&["v", "h", "t"]);
                    Put(key, t, value)
                }
            });
        }
        calls.push(TimePasses);
        let never_merged = read_after(versions, &calls, &vec![0; calls.len()]);
        for _ in 0..6 {
            let stirred: Vec<u64> = calls.iter().map(|_| rng.range(0..4)).collect();
            assert_eq!(
                read_after(versions, &calls, &stirred),
                never_merged,
                "{versions}: {calls:?} {stirred:?}"
            );
        }
    }
}

#[test]
fn of_versions_that_a_filter_hides_compactions_keep_no_value_and_no_more_than_count() {
    let world = SimWorld::new(1);
    let options = FamilyOptions { compaction_filter: Some("hiding".into()), ..counted(2) };
    let builder = Builder::new().env(world.env()).scheduler(Arc::new(SimScheduler::for_world(&world)));
    let builder = builder.filter("hiding", Arc::new(Hiding(0))).family("f", options);
    let db = builder.open("/db").unwrap();
    let f = db.family("f").unwrap();
    let mut rng = Rng::new(5);
    for t in 1..=9 {
        f.put_at("k", Timestamp(t), [b"h".to_vec(), rng.bytes(10_000)].concat()).unwrap();
    }
    f.compact::<&str>(..).unwrap();
    let bytes: u64 = f.shape().tables().map(|(_, _, table)| table.bytes).sum();
    assert!(cells(&f) == 2 && bytes < 10_000, "{} cells in {bytes} bytes", cells(&f));
    f.put_at("k", Timestamp(20), "v").unwrap();
    f.put_at("k", Timestamp(21), "v").unwrap();
    f.compact::<&str>(..).unwrap();
    assert_eq!((cells(&f), f.get_versions("k", 9).unwrap().len()), (2, 2));
    f.delete("k").unwrap();
    f.compact::<&str>(..).unwrap();
    assert_eq!(cells(&f), 0);
}

fn in_simulation(options: FamilyOptions) -> (Db, Family) {
    let world = SimWorld::new(1);
    let scheduler = Arc::new(SimScheduler::for_world(&world));
    let db = Builder::new().env(world.env()).scheduler(scheduler).family("f", options).open("/db").unwrap();
    let f = db.family("f").unwrap();
    (db, f)
}

/// Overwrites one key fifty times, each under a snapshot that is held as long as these are, among forty
/// others.
fn overwritten_under_snapshots(db: &Db, f: &Family) -> Vec<Snapshot> {
    let timestamp = match f.options().timestamps {
        Timestamps::Explicit => Timestamp(7),
        Timestamps::Implicit => Timestamp::ZERO,
    };
    let put = |key: &str| f.put_at(key, timestamp, "v").unwrap();
    (0..40).for_each(|n| _ = put(&format!("key{n}")));
    let held = (0..50).map(|_| {
        put("hot");
        db.snapshot()
    });
    let held = held.collect();
    f.compact::<&str>(..).unwrap();
    assert_eq!(cells(f), 90);
    held
}

#[test]
fn a_compaction_leaves_as_many_cells_as_a_scan_returns_where_no_snapshot_is_held() {
    let compact = |db: &Db, f: &Family| {
        f.compact::<&str>(..).unwrap();
        assert_eq!(cells(f), f.scan::<&str>(..).count() as u64);
        // Then there is nothing left to do.
        let compactions = db.statistics().compactions;
        f.compact::<&str>(..).unwrap();
        assert_eq!(db.statistics().compactions, compactions);
        cells(f)
    };
    for options in [FamilyOptions::default(), counted(0), counted(1)] {
        let (db, f) = in_simulation(options);
        drop(overwritten_under_snapshots(&db, &f));
        assert_eq!(compact(&db, &f), 41);
    }
    // Of one key there are more versions than are kept by now, though not on the average.
    let (db, f) = in_simulation(counted(5));
    for n in 0..20u64 {
        f.put_at(n.to_be_bytes(), Timestamp(1), "v").unwrap();
    }
    (2..6).for_each(|t| _ = f.put_at(7u64.to_be_bytes(), Timestamp(t), "v").unwrap());
    assert_eq!(compact(&db, &f), 24);
    f.alter(FamilyOptions { versions: 3, ..f.options() }).unwrap();
    assert_eq!(compact(&db, &f), 22);
}

#[test]
fn ranges_of_cells_that_nobody_needs_any_more_are_compacted_by_themselves() {
    for options in [FamilyOptions::default(), counted(0)] {
        let (db, f) = in_simulation(options);
        let held = overwritten_under_snapshots(&db, &f);
        db.wait_idle().unwrap();
        assert_eq!(cells(&f), 90, "snapshots need them");
        drop(held);
        db.wait_idle().unwrap();
        assert_eq!(cells(&f), 41);
    }
    let (db, f) = in_simulation(counted(5));
    for (n, t) in (0..100u64).flat_map(|n| (1..6).map(move |t| (n, t))) {
        f.put_at(n.to_be_bytes(), Timestamp(t), "v").unwrap();
    }
    f.compact::<&str>(..).unwrap();
    assert_eq!(cells(&f), 500);
    f.alter(FamilyOptions { versions: 1, ..f.options() }).unwrap();
    db.wait_idle().unwrap();
    assert_eq!(cells(&f), 100);
}

/// Combines nothing.
struct Refusing;

impl MergeOperator for Refusing {
    fn merge(&self, _: &[u8], _: Option<&[u8]>, _: &[&[u8]]) -> Result<Vec<u8>> {
        Err(siltstone::Error::new(siltstone::ErrorKind::MergeRefused, "it never does"))
    }
}

/// Operands that nothing can combine are not dead: else they would be merged again and again.
#[test]
fn operands_that_nothing_combines_are_not_merged_for_being_many() {
    let options = FamilyOptions { merge_operator: Some("refusing".into()), ..FamilyOptions::default() };
    let world = SimWorld::new(1);
    let open = |operator: bool| {
        let builder = Builder::new().env(world.env()).scheduler(Arc::new(SimScheduler::for_world(&world)));
        let builder = match operator {
            true => builder.merge_operator("refusing", Arc::new(Refusing)).family("f", options.clone()),
            false => builder,
        };
        builder.open("/db").unwrap()
    };
    let db = open(true);
    (0..50).for_each(|_| _ = db.family("f").unwrap().merge("k", "v").unwrap());
    db.close().unwrap();
    let db = open(false);
    let f = db.family("f").unwrap();
    f.compact::<&str>(..).unwrap();
    let compactions = db.statistics().compactions;
    db.wait_idle().unwrap();
    f.compact::<&str>(..).unwrap();
    assert_eq!((db.statistics().compactions, cells(&f)), (compactions, 50));
}

#[test]
fn a_compaction_that_is_to_writes_anew_what_has_nothing_to_drop() {
    let (db, f) = in_simulation(FamilyOptions { compression: Compression::None, ..FamilyOptions::default() });
    (0..200u32).for_each(|n| _ = f.put(n.to_be_bytes(), [7; 500]).unwrap());
    f.compact::<&str>(..).unwrap();
    let bytes = || f.shape().tables().map(|(_, _, table)| table.bytes).sum::<u64>();
    let before = bytes();
    f.alter(FamilyOptions { compression: Compression::Lz4, ..f.options() }).unwrap();
    f.compact::<&str>(..).unwrap();
    assert_eq!(bytes(), before);
    f.compact_with::<&str>(.., &CompactionControl::rewriting()).unwrap();
    assert!(bytes() < before / 2, "{} of {before} bytes", bytes());
    drop(db);
}
