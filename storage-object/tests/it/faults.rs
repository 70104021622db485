//! A server that refuses, forgets, cuts and is slow: nothing is lost, and no answer is wrong.

use crate::server::{Fate, S3};
use siltstone::{Db, Error, ErrorKind, FamilyOptions, Options};
use std::collections::BTreeMap;

/// A number drawn from the last.
fn draw(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

fn insist<T>(what: &str, mut call: impl FnMut() -> Result<T, Error>) -> T {
    let mut last = None;
    for _ in 0..100 {
        match call() {
            Ok(done) => return done,
            Err(e) if e.kind() == ErrorKind::Io => last = Some(e),
            Err(e) => panic!("{what}: {e:?}"),
        }
    }
    panic!("{what}: {last:?}")
}

/// One case: writes, deletes, reads, compactions and opens while that happens to one request of eight.
fn case(fault: Fate, seed: u64) {
    let (s3, dir) = (S3::start(), tempfile::tempdir().unwrap());
    let stores = s3.stores();
    let mut rng = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    s3.decide(move |_| if draw(&mut rng).is_multiple_of(8) { fault } else { Fate::Served });
    let open = || {
        let stores = stores.clone();
        let options = Options {
            sstable_store: Some("s3://bucket/t".into()),
            write_memory: 32 << 10,
            memory_budget: 1 << 20,
            ..Options::default()
        };
        let family = FamilyOptions {
            strategy: "leveled{sstable_bytes=16KiB, base_bytes=32KiB}".parse().unwrap(),
            ..FamilyOptions::default()
        };
        let builder = Db::builder().object_stores(move |location| stores.open(location)).options(options);
        insist("open", || builder.clone().family("default", family.clone()).open(dir.path().join("db")))
    };
    let mut model = BTreeMap::new();
    let mut db = open();
    let mut rng = seed.wrapping_mul(0xD1B5_4A32_D192_ED03) | 1;
    for call in 0..250 {
        let key = format!("key{:03}", draw(&mut rng) % 300).into_bytes();
        match draw(&mut rng) % 40 {
            0 => insist("flush", || db.flush()),
            1 if call % 3 == 0 => insist("compact", || db.default_family().compact::<&[u8]>(..)),
            2 if call % 7 == 0 => {
                insist("close", || db.close());
                drop(db);
                db = open();
            }
            3..10 => {
                insist("delete", || db.delete(&key));
                model.remove(&key);
            }
            10..20 => {
                let found = insist("get", || db.get(&key)).map(|value| value.to_vec());
                assert_eq!(found.as_ref(), model.get(&key), "seed {seed}, call {call}");
            }
            _ => {
                let value = format!("{call} ").into_bytes().repeat(40);
                insist("put", || db.put(&key, &value));
                model.insert(key, value);
            }
        }
    }
    let all = || db.scan::<&[u8]>(..).map(|row| row.map(|row| (row.key, row.value.to_vec()))).collect();
    let found: BTreeMap<Vec<u8>, Vec<u8>> = insist("scan", all);
    assert!(found == model, "seed {seed}: {} rows, expected {}", found.len(), model.len());
    insist("close", || db.close());
    drop(db);
    // In good weather nothing lies there but what the database names.
    s3.serve_all();
    let db = open();
    // Then no compaction is under way.
    db.default_family().compact::<&[u8]>(..).unwrap();
    db.close().unwrap();
    drop(db);
    let found = stores.clone();
    let db = Db::builder().object_stores(move |location| found.open(location));
    let db = db.open_read_only(dir.path().join("db")).unwrap();
    let named = db.default_family().shape().tables().count();
    let there = stores.open("s3://bucket/t").unwrap().list().unwrap();
    assert_eq!(there.iter().filter(|name| name.ends_with(".table")).count(), named, "seed {seed}: {there:?}");
}

fn cases(fault: Fate) {
    let fresh = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().subsec_nanos();
    // Before a release many more.
    let count = std::env::var("SILTSTONE_SEEDS").ok().and_then(|count| count.parse().ok()).unwrap_or(2);
    for seed in std::iter::once(1).chain(u64::from(fresh)..).take(count) {
        println!("{fault:?}: seed {seed}");
        case(fault, seed);
    }
}

#[test]
fn refused_for_a_while() {
    cases(Fate::Refused(503));
}

#[test]
fn told_to_slow_down() {
    cases(Fate::Refused(429));
}

#[test]
fn failing_inside() {
    cases(Fate::Refused(500));
}

#[test]
fn closed_before_the_request_is_done() {
    cases(Fate::Reset);
}

#[test]
fn closed_after_it_was_done() {
    cases(Fate::Unanswered);
}

#[test]
fn cut_in_the_answer() {
    cases(Fate::Cut);
}

#[test]
fn slow() {
    cases(Fate::Slow);
}
