//! Shared databases in an S3 server in memory that answers late, refuses, loses answers and is restarted,
//! with writers on threads: so several puts are in flight, and writers share them.

use siltstone::{Db, Durability, ErrorKind, Options};
use siltstone_s3_memory::{Faults, Server, Settings as Memory};
use siltstone_storage_object::{ObjectStores, Settings};
use std::path::Path;
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

const WRITERS: u32 = 8;
const WRITES: u32 = 60;

fn open(server: &Server, dir: &Path) -> siltstone::Result<Db> {
    let stores =
        ObjectStores::new(&Settings { variables: server.variables(), ..Settings::default() }).unwrap();
    let shared = format!("s3://{}/prod", server.bucket());
    let options = Options { shared: Some(shared.into()), write_memory: 256 << 10, ..Options::default() };
    Db::builder().object_stores(move |location| stores.open(location)).options(options).open(dir)
}

fn key(writer: u32, n: u32) -> String {
    format!("{writer}/{n:04}")
}

/// Writers at a time, with what was acknowledged to each; they end at the first error.
fn write(db: &Db, from: u32) -> Vec<String> {
    let acknowledged = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for writer in 0..WRITERS {
            let acknowledged = &acknowledged;
            scope.spawn(move || {
                for n in from..from + WRITES {
                    let key = key(writer, n);
                    let value = [n as u8; 2_000];
                    if db.default_family().put_with(&key, value, Durability::Sync).is_err() {
                        return;
                    }
                    acknowledged.lock().unwrap().push(key);
                }
            });
        }
    });
    acknowledged.into_inner().unwrap()
}

fn finds_all(db: &Db, keys: &[String]) {
    for key in keys {
        assert!(db.get(key).unwrap().is_some(), "{key} was acknowledged and is lost");
    }
}

#[test]
fn writers_share_puts_and_nothing_acknowledged_is_lost_with_the_directory() {
    let latency = Duration::from_millis(20);
    let server = Server::start(Memory { latency, ..Memory::default() }).unwrap();
    let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let db = open(&server, one.path()).unwrap();
    let before = server.counts();
    let written = write(&db, 0);
    let puts = server.counts().puts - before.puts;
    assert_eq!(written.len() as u32, WRITERS * WRITES);
    // Two puts at a time serve eight writers. Flushes put SSTables and edits, too.
    assert!(puts < u64::from(WRITERS * WRITES), "{puts} puts");
    drop(db);
    drop(one);
    let db = open(&server, two.path()).unwrap();
    finds_all(&db, &written);
    assert_eq!(db.scan::<&[u8]>(..).count(), written.len());
}

#[test]
fn a_store_that_refuses_loses_answers_and_is_restarted_loses_nothing() {
    let server = Server::start(Memory::default()).unwrap();
    server.set_faults(Some(Faults { seed: 7, unavailable_in: 40, lost_answers_in: 40 }));
    let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let db = open(&server, one.path()).unwrap();
    let mut written = write(&db, 0);
    assert_eq!(written.len() as u32, WRITERS * WRITES, "calls that fail are made again");
    // It is away for a moment, while writers go on.
    let theirs = db.clone();
    let writers = thread::spawn(move || write(&theirs, 1_000));
    thread::sleep(Duration::from_millis(30));
    let port = server.port();
    let objects = server.stop();
    thread::sleep(Duration::from_millis(200));
    let server = Server::start(Memory { port, objects: Some(objects), ..Memory::default() }).unwrap();
    let more = writers.join().unwrap();
    assert_eq!(more.len() as u32, WRITERS * WRITES);
    written.extend(more);
    // Another machine takes the database over; the former owner's writers are told.
    let next = open(&server, two.path()).unwrap();
    finds_all(&next, &written);
    let refused = db.put(b"late", b"1").unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Poisoned, "{refused}");
    assert_eq!(next.get(b"late").unwrap(), None);
    // Before the server, for which a close would wait.
    drop((db, next));
}
