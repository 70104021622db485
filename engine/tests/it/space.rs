//! Disk space: what a major merge adds while it runs.

use siltstone::schedule::SimScheduler;
use siltstone::storage::sim::SimWorld;
use siltstone::{Builder, FamilyOptions, Options};
use std::sync::Arc;

#[test]
fn a_major_merge_adds_at_most_two_steps_to_the_bytes_on_disk() {
    for seed in 0..5 {
        let world = SimWorld::new(seed);
        let step = 64 << 10;
        let options = Options {
            write_memory: 1 << 20,
            memory_budget: 4 << 20,
            log_file_bytes: 64 << 10,
            step_bytes: step,
            workers: 1,
            ..Options::default()
        };
        // Inputs are tables of several steps, so that only their holes keep the bound.
        let strategy = "leveled{table_bytes=512KiB,base_bytes=128KiB}".parse().unwrap();
        let family =
            FamilyOptions { strategy, compression: siltstone::Compression::None, ..Default::default() };
        let db = Builder::new()
            .options(options)
            .env(world.env())
            .scheduler(Arc::new(SimScheduler::new(world.random.clone())))
            .family("default", family.clone())
            .open("/db")
            .unwrap();
        for n in 0..6_000u64 {
            let key = (n * 7919 % 5_000).to_be_bytes();
            db.put(&key, &[n as u8; 200]).unwrap();
        }
        db.flush().unwrap();
        db.settle().unwrap();
        let strategy = "leveled{table_bytes=32KiB,base_bytes=128KiB}".parse().unwrap();
        db.default_family().alter(FamilyOptions { strategy, ..family }).unwrap();
        let before = world.storage.used_bytes();
        world.storage.reset_peak();
        db.default_family().compact::<&str>(..).unwrap();
        let added = world.storage.peak_bytes().saturating_sub(before);
        assert!(added <= 2 * step, "seed {seed}: {added} bytes added to {before}");
        assert_eq!(db.scan::<&str>(..).count(), 5_000);
    }
}

#[test]
fn cache_and_open_tables_share_what_write_memory_leaves_of_the_budget() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options { write_memory: 256 << 10, memory_budget: 1 << 20, ..Options::default() };
    let strategy = "leveled{table_bytes=16KiB,base_bytes=64KiB}".parse().unwrap();
    let family = FamilyOptions { strategy, compression: siltstone::Compression::None, ..Default::default() };
    let open = || {
        Builder::new().options(options.clone()).family("default", family.clone()).open(dir.path()).unwrap()
    };
    let db = open();
    let empty = db.statistics();
    assert_eq!((empty.table_memory, empty.cache_capacity), (0, 768 << 10));
    for n in 0..4_000u32 {
        db.put(&n.to_be_bytes(), &[n as u8; 200]).unwrap();
    }
    db.flush().unwrap();
    let full = |db: &siltstone::Db| {
        let s = db.statistics();
        assert!(
            s.tables > 20 && s.table_memory > 20 * 100,
            "{} bytes in {} tables",
            s.table_memory,
            s.tables
        );
        assert_eq!(s.cache_capacity + s.table_memory, 768 << 10);
    };
    db.settle().unwrap();
    full(&db);
    db.close().unwrap();
    full(&open());
}
