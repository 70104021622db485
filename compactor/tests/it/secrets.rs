//! Servers and managers that have a secret: who lacks it gives them nothing and gets nothing, and is not
//! named. A name that is not allowed is not connected to.

use crate::support::{self, World, builder, contents, eventually, merged, write};
use siltstone_compactor::{
    CompactionManager, CompactorConfig, CompactorServer, Compactors, CompactorsOptions, ManagerConfig,
};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

fn secret(dir: &Path, name: &str, text: &str) -> PathBuf {
    let file = dir.join(name);
    std::fs::write(&file, text).unwrap();
    file
}

fn server(world: &World, secret: Option<&PathBuf>, manager: Option<&CompactionManager>) -> CompactorServer {
    let config = CompactorConfig {
        tables: vec![world.dir.path().into()],
        secret_file: secret.cloned(),
        manager: manager.map(|manager| manager.listens_at().to_string()),
        ..CompactorConfig::default()
    };
    CompactorServer::start(config, builder()).unwrap()
}

fn with(secret: Option<&PathBuf>) -> CompactorsOptions {
    CompactorsOptions { secret_file: secret.cloned(), ..support::options() }
}

fn connect(server: &CompactorServer, secret: Option<&PathBuf>) -> Arc<Compactors> {
    Arc::new(Compactors::connect_with([server.listens_at().to_string()], with(secret)).unwrap())
}

fn answers(compactors: &Compactors) -> bool {
    compactors.servers().iter().any(|server| server.state.is_some())
}

#[test]
fn only_who_has_the_secret_is_served_and_only_a_server_that_has_it_is_given_compactions() {
    let (world, dir) = (World::new(), tempfile::tempdir().unwrap());
    let ours = secret(dir.path(), "ours", "of our compaction servers");
    let theirs = secret(dir.path(), "theirs", "of somebody else's servers");
    let (guarded, open) = (server(&world, Some(&ours), None), server(&world, None, None));
    let good = connect(&guarded, Some(&ours));
    let strangers = [
        ("without a secret", connect(&guarded, None)),
        ("with another secret", connect(&guarded, Some(&theirs))),
        ("a server without one", connect(&open, Some(&ours))),
    ];
    eventually("it answers who has the secret", || answers(&good));
    // The others have asked about as often.
    std::thread::sleep(Duration::from_secs(1));
    for (who, compactors) in &strangers {
        assert!(!answers(compactors), "{who}: it was answered");
    }
    let (here, there) = (world.open("here", None), world.open_with("there", Some(good.clone())));
    for round in 0..2 {
        for db in [&here, &there] {
            write(db, round, 3_000);
            merged(db);
        }
    }
    assert_eq!(contents(&here), contents(&there));
    let done = |state: &siltstone_compactor::CompactorState| state.done > 0 && state.failed == 0;
    eventually("it has merged", || good.servers()[0].state.as_ref().is_some_and(done));
    there.reopened_has(&contents(&here));
}

#[test]
fn another_secret_in_the_file_shuts_out_who_has_the_old_one() {
    let (world, dir) = (World::new(), tempfile::tempdir().unwrap());
    let in_force = secret(dir.path(), "in force", "the first of two secrets");
    let old = secret(dir.path(), "old", "the first of two secrets");
    let new = secret(dir.path(), "new", "the other of two secrets");
    let server = server(&world, Some(&in_force), None);
    let (before, after) = (connect(&server, Some(&old)), connect(&server, Some(&new)));
    eventually("it answers to the first", || answers(&before));
    assert!(!answers(&after));
    std::fs::write(&in_force, "none").unwrap();
    std::thread::sleep(Duration::from_secs(2));
    assert!(answers(&before) && !answers(&after), "what is no secret changes nothing");
    std::fs::copy(&new, &in_force).unwrap();
    eventually("it answers to the other", || answers(&after));
    eventually("and not to the first", || !answers(&before));
}

#[test]
fn a_manager_names_only_servers_that_have_its_secret_and_only_to_who_has_it() {
    let (world, dir) = (World::new(), tempfile::tempdir().unwrap());
    let ours = secret(dir.path(), "ours", "of our compaction servers");
    let theirs = secret(dir.path(), "theirs", "of somebody else's servers");
    let config = ManagerConfig { secret_file: Some(ours.clone()), ..ManagerConfig::default() };
    let manager = CompactionManager::start(config).unwrap();
    let strangers = [server(&world, None, Some(&manager)), server(&world, Some(&theirs), Some(&manager))];
    let good = server(&world, Some(&ours), Some(&manager));
    let of = |secret| {
        let options = CompactorsOptions { manager: Some(manager.listens_at().to_string()), ..with(secret) };
        Compactors::connect_with(Vec::<String>::new(), options).unwrap()
    };
    let (known, none, other) = (of(Some(&ours)), of(None), of(Some(&theirs)));
    eventually("it is named", || answers(&known));
    std::thread::sleep(Duration::from_secs(1));
    let named: Vec<String> = known.servers().into_iter().map(|server| server.address).collect();
    assert_eq!(named, [good.listens_at().to_string()], "and not {strangers:?}");
    for stranger in [none, other] {
        assert!(stranger.servers().is_empty() && !stranger.manager().unwrap().answers);
    }
}

#[test]
fn a_name_that_is_not_allowed_is_not_connected_to() {
    let ear = TcpListener::bind("127.0.0.1:0").unwrap();
    ear.set_nonblocking(true).unwrap();
    let manager = CompactionManager::start(ManagerConfig::default()).unwrap();
    let config = CompactorConfig {
        manager: Some(manager.listens_at().to_string()),
        advertise: Some(ear.local_addr().unwrap().to_string()),
        ..CompactorConfig::default()
    };
    let _announces = CompactorServer::start(config, builder()).unwrap();
    let of = |allow: &[&str]| {
        let allow = allow.iter().map(ToString::to_string).collect();
        let manager = Some(manager.listens_at().to_string());
        let options = CompactorsOptions { manager, allow, ..support::options() };
        Compactors::connect_with(Vec::<String>::new(), options).unwrap()
    };
    let elsewhere = of(&["10.0.0.*", "127.0.0.1:1"]);
    eventually("the manager answers", || elsewhere.manager().unwrap().answers);
    std::thread::sleep(Duration::from_secs(2));
    assert!(elsewhere.servers().is_empty() && ear.accept().is_err(), "a name that is not allowed");
    let here = of(&[]);
    eventually("one that is allowed is connected to", || ear.accept().is_ok());
    assert_eq!(here.servers().len(), 1);
}
