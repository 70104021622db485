//! Outputs that are fetched from the memory of the server that wrote them (OFF-3, OFF-4).

use crate::support::{World, builder_with, connect, contents, eventually, merged, server, write};
use siltstone::{CacheFill, Compression, Db, EventKind, FamilyOptions, Options};
use siltstone_compactor::{CompactorConfig, CompactorServer};

const FILLS: [CacheFill; 5] =
    [CacheFill::None, CacheFill::WriteThrough, CacheFill::Before, CacheFill::Step, CacheFill::Remote];

fn read_all(db: &Db) {
    let keys: Vec<Vec<u8>> = db.scan::<&str>(..).map(|entry| entry.unwrap().key).collect();
    for _ in 0..3 {
        keys.iter().for_each(|key| _ = db.get(key).unwrap());
    }
}

fn with(fill: CacheFill, compression: Compression) -> siltstone::Builder {
    let family = FamilyOptions {
        merge_operator: Some("concat".into()),
        strategy: "leveled{sstable_bytes=32KiB}".parse().unwrap(),
        compression,
        ..FamilyOptions::default()
    };
    builder_with(|options: &mut Options| options.cache_fill = fill).family("default", family)
}

#[test]
fn every_way_to_fill_the_cache_gives_the_same_and_takes_blocks_from_the_servers_memory() {
    for (n, fill) in FILLS.into_iter().enumerate() {
        let compression = if n % 2 == 0 { Compression::None } else { Compression::default() };
        let world = World::new();
        let server = server(&world, 8);
        let here = world.open_as("here", with(fill, compression), None);
        let there = world.open_as("there", with(fill, compression), Some(connect(&[&server])));
        for round in 0..4 {
            for db in [&here, &there] {
                write(db, round, 4_000);
                read_all(db);
                merged(db);
                read_all(db);
            }
            assert!(contents(&here) == contents(&there), "{fill:?} after round {round}");
        }
        let came = there.statistics().remote_cache_bytes;
        assert_eq!(came > 0, fill != CacheFill::None, "{fill:?}: {came} bytes");
        let fills = there.events().into_iter().filter(|event| event.kind == EventKind::CacheFill);
        assert!(fills.into_iter().all(|event| !event.reason.contains("failed")), "{fill:?}");
        let seen = there.compactors.clone().unwrap();
        let state = || seen.servers()[0].state.clone().unwrap();
        eventually("what was fetched is counted there", || state().fetched_bytes >= came);
        let stays = fill == CacheFill::Remote;
        eventually("and goes when nobody wants it", || (state().kept_bytes > 0) == stays);
        assert!(state().kept_bytes < 5 << 20, "{fill:?}: {} bytes", state().kept_bytes);
        there.reopened_has(&contents(&here));
    }
}

#[test]
fn where_no_storage_is_shared_inputs_come_and_outputs_go_over_the_connection() {
    for fill in [CacheFill::None, CacheFill::Step, CacheFill::Remote] {
        let world = World::new();
        let config = CompactorConfig { memory: 9 << 20, merge_memory: 1 << 20, ..CompactorConfig::default() };
        let server = CompactorServer::start(config, crate::support::builder()).unwrap();
        let here = world.open_as("here", with(fill, Compression::default()), None);
        let there = world.open_as("there", with(fill, Compression::default()), Some(connect(&[&server])));
        for round in 0..4 {
            for db in [&here, &there] {
                write(db, round, 4_000);
                merged(db);
                read_all(db);
            }
            assert!(contents(&here) == contents(&there), "{fill:?} after round {round}");
        }
        let failed = |event: &siltstone::Event| event.kind == EventKind::OffloadFailure;
        assert!(!there.events().iter().any(failed), "{:?}", there.events());
        let seen = there.compactors.clone().unwrap();
        let state = || seen.servers()[0].state.clone().unwrap();
        eventually("it has merged", || state().done > 3 && !state().shares_storage);
        assert_eq!(there.statistics().remote_cache_bytes > 0, fill != CacheFill::None);
        let expected = contents(&here);
        there.reopened_has(&expected);

        // One that ends in the middle is done without, as any other.
        let db = world.open_as("there", with(fill, Compression::default()), Some(seen));
        std::thread::scope(|scope| {
            let writes = scope.spawn(|| {
                for round in 4..8 {
                    write(&db, round, 3_000);
                    merged(&db);
                }
            });
            drop(server);
            writes.join().unwrap();
        });
        for round in 4..8 {
            write(&here, round, 3_000);
            merged(&here);
        }
        db.reopened_has(&contents(&here));
    }
}

#[test]
fn nine_tenths_of_what_warms_the_cache_come_from_the_memory_of_the_server() {
    let world = World::new();
    let server = server(&world, 8);
    let db = world.open_as("db", with(CacheFill::Step, Compression::None), Some(connect(&[&server])));
    for round in 0..3 {
        write(&db, round, 4_000);
        merged(&db);
        read_all(&db);
    }
    let before = (db.statistics(), db.events().len());
    write(&db, 9, 500);
    db.flush().unwrap();
    let flushed = db.statistics().cache_filled_bytes;
    merged(&db);
    let filled = db.statistics().cache_filled_bytes - flushed;
    let came = db.statistics().remote_cache_bytes - before.0.remote_cache_bytes;
    assert!(filled > 50_000 && came * 10 >= filled * 9, "{came} bytes from there for {filled} in the cache");
}

#[test]
fn a_server_without_room_or_that_ends_leaves_the_rest_to_storage() {
    for fill in [CacheFill::WriteThrough, CacheFill::Before, CacheFill::Step, CacheFill::Remote] {
        let world = World::new();
        let config = |memory| CompactorConfig {
            tables: vec![world.dir.path().into()],
            memory,
            merge_memory: 4 << 10,
            ..CompactorConfig::default()
        };
        // Not even an SSTable fits.
        let small = CompactorServer::start(config(40 << 10), crate::support::builder()).unwrap();
        let here = |name, rounds: std::ops::Range<u64>| {
            let here = world.open_as(name, with(fill, Compression::None), None);
            rounds.for_each(|round| write(&here, round, 4_000));
            contents(&here)
        };
        let db = world.open_as("small", with(fill, Compression::None), Some(connect(&[&small])));
        for round in 0..3 {
            write(&db, round, 4_000);
            read_all(&db);
            merged(&db);
        }
        let expected = here("small-here", 0..3);
        assert!(contents(&db) == expected, "{fill:?}");
        read_all(&db);
        assert!(db.events().iter().all(|event| event.kind != EventKind::OffloadFailure), "{fill:?}");
        db.reopened_has(&expected);

        let ends = server(&world, 8);
        let db = world.open_as("ends", with(fill, Compression::None), Some(connect(&[&ends])));
        write(&db, 1, 4_000);
        merged(&db);
        drop(ends);
        read_all(&db);
        write(&db, 2, 4_000);
        merged(&db);
        let expected = here("ends-here", 1..3);
        assert!(contents(&db) == expected, "{fill:?}");
        db.reopened_has(&expected);
    }
}
