//! Compactions of a database whose SSTables lie in the bucket, run by a compaction server that reaches the
//! bucket itself.

use crate::databases::{builder, check, fill};
use crate::server::S3;
use siltstone::Db;
use siltstone_compactor::{CompactorConfig, CompactorServer, Compactors, CompactorsOptions};
use std::sync::Arc;

/// A database that offers all its compactions to a server that may work in those places; what it and the
/// server did.
fn merged(s3: &S3, places: &[&str]) -> (u64, u64) {
    let dir = tempfile::tempdir().unwrap();
    let stores = s3.stores();
    let config =
        CompactorConfig { tables: places.iter().map(Into::into).collect(), ..CompactorConfig::default() };
    let of_server = s3.stores();
    let runner = Db::builder().object_stores(move |location| of_server.open(location));
    let server = CompactorServer::start(config, runner).unwrap();
    let options = CompactorsOptions { bytes_min: 0, by_cost: false, ..CompactorsOptions::default() };
    let compactors = Arc::new(Compactors::connect_with([server.listens_at().to_string()], options).unwrap());
    let db = builder(&stores, Some("s3://bucket/orders"))
        .offload(compactors.clone())
        .open(dir.path().join("db"))
        .unwrap();
    fill(&db);
    db.default_family().compact::<&[u8]>(..).unwrap();
    check(&db);
    let compactions = db.statistics().compactions;
    db.close().unwrap();
    // What it says of itself is a second old.
    let done = || compactors.servers()[0].state.as_ref().map_or(0, |state| state.done);
    for _ in 0..30 {
        if done() > 0 {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    (done(), compactions)
}

#[test]
fn the_server_reads_and_writes_the_bucket_itself() {
    let s3 = S3::start();
    let (offloaded, compactions) = merged(&s3, &["s3://bucket/orders"]);
    assert!(offloaded > 0, "none of {compactions} compactions went to the server");
}

#[test]
fn what_lies_above_a_place_covers_it() {
    let (offloaded, _) = merged(&S3::start(), &["s3://bucket"]);
    assert!(offloaded > 0);
}

#[test]
fn a_server_that_was_given_another_place_refuses_and_the_database_compacts_itself() {
    let (offloaded, compactions) = merged(&S3::start(), &["s3://bucket/order", "s3://bucke"]);
    assert_eq!(offloaded, 0);
    assert!(compactions > 0);
}

#[test]
fn without_any_place_tables_go_over_the_connection() {
    let (offloaded, compactions) = merged(&S3::start(), &[]);
    assert!(offloaded > 0, "none of {compactions} compactions went to the server");
}
