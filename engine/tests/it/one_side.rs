//! Scans over the key up to which a compaction has come: of both sides, or of the old one alone if that is
//! asked for.

use siltstone::schedule::SimScheduler;
use siltstone::storage::Storage;
use siltstone::storage::sim::SimWorld;
use siltstone::testing::with_kill_hook;
use siltstone::{Builder, CacheFill, Compression, Db, FamilyOptions, Options, Tuning};
use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

const KEYS: u64 = 4_000;

fn open(world: &SimWorld, scan_one_side: bool) -> Db {
    let options = Options {
        write_memory: 2 << 20,
        memory_budget: (2 << 20) + (100 << 10),
        workers: 1,
        cache_fill: CacheFill::None,
        tuning: Tuning {
            wal_file_bytes: 64 << 10,
            compaction_step_bytes: 64 << 10,
            compaction_pacing: 0,
            scan_one_side,
            ..Tuning::default()
        },
        ..Options::default()
    };
    let family = FamilyOptions {
        strategy: "leveled{sstable_bytes=32KiB,base_bytes=128KiB}".parse().unwrap(),
        compression: Compression::None,
        ..FamilyOptions::default()
    };
    Builder::new()
        .options(options)
        .env(world.env())
        .scheduler(Arc::new(SimScheduler::for_world(world)))
        .family("default", family)
        .open("/db")
        .unwrap()
}

fn put_all(db: &Db, round: u8) {
    (0..KEYS).for_each(|n| _ = db.put(n.to_be_bytes(), [round; 200]).unwrap());
    db.flush().unwrap();
}

/// Scans all, in both directions by turns; how many blocks were not in the cache.
fn scanned(db: &Db, backwards: bool) -> u64 {
    let before = db.statistics().cache_misses;
    let rows: Vec<_> = match backwards {
        false => db.scan::<&[u8]>(..).map(Result::unwrap).collect(),
        true => {
            let mut rows: Vec<_> = db.scan::<&[u8]>(..).rev().map(Result::unwrap).collect();
            rows.reverse();
            rows
        }
    };
    // Some are gone by a range delete, the rest is of the second round.
    let expected: Vec<u64> = (0..KEYS).filter(|n| !(1_000..1_300).contains(n)).collect();
    assert!(rows.iter().map(|row| row.key.to_vec()).eq(expected.iter().map(|n| n.to_be_bytes().to_vec())));
    assert!(rows.iter().all(|row| row.value[..] == [2; 200]));
    db.statistics().cache_misses - before
}

/// Blocks that a scan of everything read before a compaction, after each of its steps but the last, and after
/// it.
fn measured(scan_one_side: bool) -> (u64, Vec<u64>, u64) {
    let world = SimWorld::new(5);
    let db = open(&world, scan_one_side);
    put_all(&db, 1);
    db.wait_idle().unwrap();
    put_all(&db, 2);
    db.default_family().delete_range(1_000_u64.to_be_bytes()..1_300_u64.to_be_bytes()).unwrap();
    db.flush().unwrap();
    let before = scanned(&db, false);
    let steps = Rc::new(RefCell::new(Vec::new()));
    let (reader, seen) = (db.clone(), steps.clone());
    let hook = move |point: &'static str| {
        if point == "compaction-after-install" {
            let backwards = seen.borrow().len() % 2 == 1;
            let blocks = scanned(&reader, backwards);
            seen.borrow_mut().push(blocks);
            // What is newer than the compaction is seen by every scan.
            if seen.borrow().len() == 3 {
                reader.put(7_u64.to_be_bytes(), [9; 200]).unwrap();
                assert_eq!(
                    reader.scan::<&[u8]>(..).filter(|row| row.as_ref().unwrap().value[0] == 9).count(),
                    1
                );
                reader.put(7_u64.to_be_bytes(), [2; 200]).unwrap();
            }
        }
    };
    with_kill_hook(hook, || db.default_family().compact::<&[u8]>(..).unwrap());
    db.wait_idle().unwrap();
    let after = scanned(&db, true);
    let tables = db.default_family().shape().tables().count();
    let files = world.storage.list(Path::new("/db")).unwrap();
    assert_eq!(
        files.iter().filter(|name| name.ends_with(".table")).count(),
        tables,
        "what was replaced is gone"
    );
    let mut steps = steps.take();
    steps.pop();
    (before, steps, after)
}

#[test]
fn a_scan_over_the_key_that_a_compaction_has_come_to_reads_one_side_if_that_is_asked_for() {
    let (before, steps, after) = measured(false);
    assert!(steps.len() > 8 && after * 10 < before * 7, "{before}, {steps:?}, {after}");
    let last = steps[steps.len() - 1];
    assert!(last * 10 < before * 8, "both sides: {before} blocks, then {steps:?}, and {after}");
    let (before, steps, one_after) = measured(true);
    assert!(steps.iter().all(|blocks| blocks * 10 > before * 8), "one side: {before} blocks, then {steps:?}");
    assert!(one_after * 10 < before * 7, "{one_after} blocks after it, of {before}");
}
