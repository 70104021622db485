//! How long calls take from Rust: what `calls.c` and `calls.py` measure, without a language between. `calls
//! DIR`

use siltstone::{Batch, Db, FamilyOptions};
use std::io::Result;
use std::time::Instant;

/// Rows, as many in all three languages: so few that memory holds them before they are flushed.
const ROWS: u64 = 200_000;
const BATCH: u64 = 1_000;
const NOTHING: u64 = 3_000_000;
const VALUE: [u8; 100] = [b'x'; 100];

/// A key; over all numbers, each once, in no order.
fn key(number: u64) -> Vec<u8> {
    format!("{:016}", number * 7_919 % ROWS).into_bytes()
}

/// Prints what one of many calls took.
fn told(what: &str, calls: u64, work: impl FnOnce() -> siltstone::Result<()>) -> Result<()> {
    let begun = Instant::now();
    work().map_err(std::io::Error::other)?;
    let us = begun.elapsed().as_secs_f64() * 1e6 / calls as f64;
    println!("rust\t{what}\t{us:.4}");
    Ok(())
}

fn run(dir: &str) -> Result<()> {
    let keys: Vec<Vec<u8>> = (0..ROWS).map(key).collect();
    let db = Db::open(dir).map_err(std::io::Error::other)?;
    let family = db.default_family();
    let empty = db.create_family("empty", FamilyOptions::default()).map_err(std::io::Error::other)?;
    told("get of nothing", NOTHING, || {
        for _ in 0..NOTHING {
            assert!(empty.get(&keys[0])?.is_none(), "it is empty");
        }
        Ok(())
    })?;
    told("put", ROWS, || keys.iter().try_for_each(|key| family.put(key, VALUE).map(drop)))?;
    let get = || {
        for key in &keys {
            assert!(family.get(key)?.is_some(), "it was put");
        }
        Ok(())
    };
    told("get from memory", ROWS, get)?;
    db.flush().and_then(|()| db.wait_idle()).map_err(std::io::Error::other)?;
    told("get from tables, first", ROWS, get)?;
    told("get from tables", ROWS, get)?;
    told("scan", ROWS, || {
        let mut rows = 0;
        for entry in family.scan::<&[u8]>(..) {
            rows += u64::from(entry?.value.len() == VALUE.len());
        }
        assert_eq!(rows, ROWS);
        Ok(())
    })?;
    told("batch", ROWS, || {
        for keys in keys.chunks(BATCH as usize) {
            let mut batch = Batch::new();
            for key in keys {
                batch.put(&family, key, VALUE);
            }
            db.write(&batch)?;
        }
        Ok(())
    })
}

fn main() {
    let dir = std::env::args().nth(1).expect("usage: calls DIR");
    run(&dir).expect("it runs");
}
