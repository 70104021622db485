//! What a server does not begin with.

use siltstone_compactor::{CompactorConfig, CompactorServer, Compactors};
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
}

#[test]
fn directories_that_are_not_there_and_addresses_that_are_none_are_told() {
    let gone = CompactorConfig { tables: vec!["/not/there".into()], ..CompactorConfig::default() };
    assert!(refused(gone).contains("/not/there"));
    assert!(Compactors::connect(["not an address"]).err().unwrap().contains("not an address"));
}
