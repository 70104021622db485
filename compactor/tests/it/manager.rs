//! A manager that knows the servers and says which stores' compactions go where (OFF-2).

use crate::support::{self, World, builder, contents, eventually, merged, server};
use siltstone::{Db, FamilyOptions, Rng};
use siltstone_compactor::{
    CompactionManager, CompactorConfig, CompactorServer, Compactors, CompactorsOptions, ManagerConfig, Spread,
};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;

const FAMILIES: usize = 6;

fn manager(listen: SocketAddr, servers: Vec<String>, spread: Spread) -> CompactionManager {
    CompactionManager::start(ManagerConfig { listen, servers, spread, ..ManagerConfig::default() }).unwrap()
}

fn any() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

/// A server that announces itself there.
fn announced(world: &World, manager: SocketAddr) -> CompactorServer {
    let config = CompactorConfig {
        tables: vec![world.dir.path().into()],
        memory: 20 << 20,
        merge_memory: 1 << 20,
        manager: Some(manager.to_string()),
        ..CompactorConfig::default()
    };
    CompactorServer::start(config, builder()).unwrap()
}

fn managed(manager: SocketAddr, servers: &[&CompactorServer]) -> Arc<Compactors> {
    let options = CompactorsOptions { manager: Some(manager.to_string()), ..support::options() };
    let addresses: Vec<String> = servers.iter().map(|server| server.listens_at().to_string()).collect();
    Arc::new(Compactors::connect_with(addresses, options).unwrap())
}

fn knows(compactors: &Compactors, servers: &[&CompactorServer]) -> bool {
    let seen = compactors.servers();
    let answers = |server: &&CompactorServer| {
        let address = server.listens_at().to_string();
        seen.iter().any(|seen| seen.address == address && seen.state.is_some())
    };
    servers.iter().all(answers)
}

fn of_families() -> siltstone::Builder {
    let families = (0..FAMILIES).map(|n| format!("f{n}"));
    let of = |builder: siltstone::Builder, name: String| builder.family(&name, FamilyOptions::default());
    families.fold(builder(), of)
}

fn open(world: &World, name: &str, compactors: &Arc<Compactors>) -> Db {
    of_families().offload(compactors.clone()).open(world.dir.path().join(name)).unwrap()
}

fn work(db: &Db, seed: u64) {
    let mut rng = Rng::new(seed);
    for n in 0..FAMILIES {
        let family = db.family(&format!("f{n}")).unwrap();
        for _ in 0..400 {
            family.put(format!("key{:05}", rng.range(0..3_000)).as_bytes(), rng.bytes(100)).unwrap();
        }
        db.flush().unwrap();
        family.compact::<&str>(..).unwrap();
    }
    db.wait_idle().unwrap();
}

/// Where each family's compactions went.
fn went(db: &Db) -> BTreeMap<String, BTreeSet<String>> {
    let mut went: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for event in db.events() {
        if let Some((_, to)) = event.reason.split_once("goes to ") {
            went.entry(event.family.to_string()).or_default().insert(to.to_string());
        }
    }
    went
}

#[test]
fn servers_that_announce_themselves_get_the_stores_in_turn_and_a_manager_that_ends_is_done_without() {
    let world = World::new();
    let manager_at = manager(any(), Vec::new(), Spread::RoundRobin);
    let at = manager_at.listens_at();
    let compactors = managed(at, &[]);
    assert!(compactors.servers().is_empty());
    let (first, second) = (announced(&world, at), announced(&world, at));
    eventually("both are known", || knows(&compactors, &[&first, &second]));
    assert!(compactors.manager().unwrap().answers);
    // The ring, which both are on, comes with them.
    let db = open(&world, "db", &compactors);
    // The same is written to a database that compacts by itself.
    let here = of_families().open(world.dir.path().join("here")).unwrap();
    let both = |seed| [&db, &here].into_iter().for_each(|db| work(db, seed));
    (0..3).for_each(both);
    let by_family = went(&db);
    assert!(
        by_family.values().all(|to| to.len() == 1),
        "a store's compactions go to one server: {by_family:?}"
    );
    let on = |server: &CompactorServer| {
        let to = BTreeSet::from([server.listens_at().to_string()]);
        by_family.values().filter(|went| **went == to).count()
    };
    assert_eq!((on(&first), on(&second)), (FAMILIES / 2, FAMILIES / 2), "{by_family:?}");

    // Without the manager compactions go on, at those that are known.
    drop(manager_at);
    eventually("it does not answer", || !compactors.manager().unwrap().answers);
    let third = announced(&world, at);
    let before = db.events().len();
    both(4);
    let after = db.events().into_iter().skip(before);
    assert!(after.into_iter().any(|event| event.reason.contains("goes to")));
    assert!(!knows(&compactors, &[&third]));
    // One that begins anew knows all of them soon, and the new one gets its part.
    let manager_at = manager(at, Vec::new(), Spread::RoundRobin);
    eventually("the third is known", || knows(&compactors, &[&first, &second, &third]));
    let third_at = third.listens_at().to_string();
    eventually("and gets merges", || {
        both(5);
        went(&db).values().any(|to| to.contains(&third_at))
    });
    // A server that ends leaves its stores to the others.
    drop(second);
    (6..9).for_each(both);
    assert!((0..FAMILIES).all(|n| entries(&db, n) == entries(&here, n)));
    db.close().unwrap();
    let db = open(&world, "db", &compactors);
    assert!((0..FAMILIES).all(|n| entries(&db, n) == entries(&here, n)), "opened again");
    drop(manager_at);
}

fn entries(db: &Db, n: usize) -> Vec<(Vec<u8>, Vec<u8>)> {
    let all = db.family(&format!("f{n}")).unwrap().scan::<&str>(..);
    all.map(|entry| entry.unwrap()).map(|entry| (entry.key, entry.value.to_vec())).collect()
}

#[test]
fn servers_of_a_list_are_asked_and_by_load_each_has_some() {
    let world = World::new();
    let servers = [server(&world, 8), server(&world, 8)];
    let list = servers.iter().map(|server| server.listens_at().to_string()).collect();
    let manager = manager(any(), list, Spread::Load);
    // One of them is known without the manager.
    let compactors = managed(manager.listens_at(), &[&servers[0]]);
    eventually("both are known", || knows(&compactors, &[&servers[0], &servers[1]]));
    assert_eq!(compactors.servers().len(), 2, "none is known twice");
    let db = world.open_with("db", Some(compactors));
    let here = world.open("here", None);
    for db in [&db, &here] {
        support::write(db, 1, 4_000);
        merged(db);
    }
    assert!(db.events().iter().any(|event| event.reason.contains("goes to")));
    assert!(contents(&db) == contents(&here));
    db.reopened_has(&contents(&here));
}
