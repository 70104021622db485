//! Databases whose compactions run at compaction servers: the same contents as without, whatever happens to
//! the servers.

mod certificates;
mod failures;
mod hand_over;
mod hostile;
mod manager;
mod network;
mod refusals;
mod secrets;
mod support;

use siltstone::{EventKind, FamilyOptions};
use siltstone_compactor::{Compactors, CompactorsOptions, MeasuredRates};
use std::sync::Arc;
use support::{World, contents, eventually, merged, server, write};

#[test]
fn compactions_run_at_a_server_give_what_they_give_here() {
    let world = World::new();
    let server = server(&world, 4);
    std::fs::create_dir(world.dir.path().join("beside")).unwrap();
    // A name that the server would take for one that leads out of its directory, if it were told that.
    let (here, there) = (world.open("here", None), world.open("beside/../there", Some(&[&server])));
    for round in 0..4 {
        for db in [&here, &there] {
            write(db, round, 4_000);
            merged(db);
        }
        assert_eq!(contents(&here), contents(&there), "after round {round}");
    }
    let seen = there.compactors.as_ref().unwrap();
    eventually("all compactions are done", || {
        let state = seen.servers()[0].state.clone();
        state.is_some_and(|state| state.done >= 4 && state.running + state.queued + state.failed == 0)
    });
    let went = |event: &siltstone::Event| event.kind == EventKind::Offload;
    assert!(there.events().iter().any(|event| went(event) && event.reason.contains("goes to")));
    assert!(!here.events().iter().any(went));
    let state = seen.servers()[0].state.clone().unwrap();
    assert!(state.bytes_written > 100_000 && state.slots == 4 && state.memory_bytes > 0, "{state:?}");
    let MeasuredRates { merge_rate, handover_rate, memory, merge_bytes } = MeasuredRates::of(&state).unwrap();
    assert!((1e5..1e10).contains(&merge_rate) && handover_rate > 1e5, "{state:?}");
    assert!(memory == state.memory_max as f64 && (1e4..1e7).contains(&merge_bytes), "{state:?}");
    there.reopened_has(&contents(&here));
}

/// A flush of `rangemerge` compacts a range's memory with its SSTables, at the server: with as many steps as
/// it has, while readers look, and when the server goes away.
#[test]
fn a_flush_of_a_range_runs_at_a_server_with_its_memory() {
    let world = World::new();
    let server = server(&world, 4);
    let builder = || {
        let strategy = "rangemerge{sstable_bytes=32KiB}".parse().unwrap();
        let family =
            FamilyOptions { strategy, merge_operator: Some("concat".into()), ..FamilyOptions::default() };
        support::builder_with(|options| options.tuning.offload_range_flushes = true).family("default", family)
    };
    let here = world.open_as("here", builder(), None);
    let there = world.open_as("there", builder(), Some(support::connect(&[&server])));
    let events = |kind: EventKind| there.events().into_iter().filter(|event| event.kind == kind).count();
    for round in 0..6 {
        for db in [&here, &there] {
            write(db, round, 4_000);
        }
        assert_eq!(contents(&here), contents(&there), "after round {round}");
    }
    there.wait_idle().unwrap();
    let state = there.compactors.as_ref().unwrap().servers()[0].state.clone().unwrap();
    let (compactions, offers) = (events(EventKind::Compaction), events(EventKind::Offload));
    println!("{} done there, {offers} offers, {compactions} compactions", state.done);
    assert!(offers > compactions + 10 && events(EventKind::OffloadFailure) == 0);
    drop(server);
    for round in 6..9 {
        for db in [&here, &there] {
            write(db, round, 4_000);
        }
    }
    for db in [&here, &there] {
        db.wait_idle().unwrap();
    }
    assert_eq!(contents(&here), contents(&there), "without the server");
    let files = std::fs::read_dir(&there.dir).unwrap().map(|file| file.unwrap().file_name());
    let tables = files.filter(|name| name.to_string_lossy().ends_with(".table")).count();
    assert_eq!(tables, there.default_family().shape().tables().count(), "what was carried is gone");
    there.reopened_has(&contents(&here));
}

#[test]
fn small_compactions_stay_and_are_not_told_of() {
    let world = World::new();
    let server = server(&world, 4);
    let options = CompactorsOptions { bytes_min: 1 << 40, ..support::options() };
    let compactors = Arc::new(Compactors::connect_with([server.listens_at().to_string()], options).unwrap());
    let db = world.open_with("db", Some(compactors.clone()));
    write(&db, 1, 4_000);
    merged(&db);
    assert!(!db.events().iter().any(|event| event.kind == EventKind::Offload));
    assert_eq!(compactors.servers()[0].given, 0);
}

#[test]
fn compactions_are_spread_over_servers() {
    let world = World::new();
    let servers = [server(&world, 1), server(&world, 1)];
    let (here, db) = (world.open("here", None), world.open("db", Some(&[&servers[0], &servers[1]])));
    for round in 0..6 {
        for db in [&here, &db] {
            write(db, round, 3_000);
            merged(db);
        }
    }
    assert!(contents(&db) == contents(&here));
    let to = |server: &siltstone_compactor::CompactorServer| {
        let address = server.listens_at().to_string();
        let goes = |event: &siltstone::Event| event.reason.ends_with(&format!("goes to {address}"));
        db.events().iter().filter(|event| goes(event)).count()
    };
    assert!(to(&servers[0]) > 0 && to(&servers[1]) > 0, "{} and {}", to(&servers[0]), to(&servers[1]));
}
