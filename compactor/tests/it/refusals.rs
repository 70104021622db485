//! What a server does not begin with.

use siltstone_compactor::{
    CompactionManager, CompactorConfig, CompactorServer, Compactors, CompactorsOptions, ManagerConfig,
};
use std::net::SocketAddr;

fn refused(config: CompactorConfig) -> String {
    CompactorServer::start(config, siltstone::Db::builder()).err().unwrap()
}

#[test]
fn a_server_that_anybody_could_reach_is_not_started() {
    let listen = SocketAddr::from(([0, 0, 0, 0], 0));
    let why = refused(CompactorConfig { listen, ..CompactorConfig::default() });
    assert!(why.contains("can be reached from other machines"), "{why}");
    let insecure = CompactorConfig { listen, insecure: true, ..CompactorConfig::default() };
    drop(CompactorServer::start(insecure, siltstone::Db::builder()).unwrap());
    let why = CompactionManager::start(ManagerConfig { listen, ..ManagerConfig::default() }).err().unwrap();
    assert!(why.contains("can be reached from other machines"), "{why}");
}

#[test]
fn a_machine_that_proves_nothing_is_not_reached_and_a_secret_that_is_none_is_told() {
    let connect = |at: &str, options| Compactors::connect_with([at], options).err();
    let why = connect("10.0.0.5:7400", CompactorsOptions::default()).unwrap();
    assert!(why.contains("compaction server 10.0.0.5:7400") && why.contains("not on this machine"), "{why}");
    let manager = Some("10.0.0.4:7401".to_string());
    let why = connect("127.0.0.1:7400", CompactorsOptions { manager, ..CompactorsOptions::default() });
    assert!(why.unwrap().contains("10.0.0.4:7401: it is not on this machine"));
    let insecure = CompactorsOptions { insecure: true, ..CompactorsOptions::default() };
    assert_eq!(connect("10.0.0.5:7400", insecure), None);
    let why = connect("user@127.0.0.1:7400", CompactorsOptions::default()).unwrap();
    assert!(why.contains("no address such as host:port"), "{why}");
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("secret");
    std::fs::write(&file, "short\n").unwrap();
    let secret_file = Some(file.clone());
    let why = refused(CompactorConfig { secret_file, ..CompactorConfig::default() });
    assert!(why.contains("fewer than 16 bytes") && why.contains(&file.display().to_string()), "{why}");
}

#[test]
fn directories_that_are_not_there_and_addresses_that_are_none_are_told() {
    let gone = CompactorConfig { tables: vec!["/not/there".into()], ..CompactorConfig::default() };
    assert!(refused(gone).contains("/not/there"));
    assert!(Compactors::connect(["not an address"]).err().unwrap().contains("not an address"));
}
