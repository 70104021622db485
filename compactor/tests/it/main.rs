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

use siltstone::EventKind;
use siltstone_compactor::{Compactors, CompactorsOptions, MeasuredRates};
use std::sync::Arc;
use support::{World, contents, eventually, merged, server, write};

#[test]
fn merges_run_at_a_server_give_what_they_give_here() {
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
    eventually("all merges are done", || {
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

#[test]
fn small_merges_stay_and_are_not_told_of() {
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
fn merges_are_spread_over_servers() {
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
