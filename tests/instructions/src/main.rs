//! Work of a fixed amount for `cargo xtask instructions`, which counts its instructions under callgrind:
//! `siltstone-instructions get DIR` makes a database in that directory, prints over how many operations the
//! count is to be divided, and does them in `measured`. (Flushes and compactions run elsewhere; those are
//! counted by the name of the engine's function.)
//!
//! Files are real, as their mappings are part of what a put costs; clock, randomness and background work are
//! simulated, so that the same work is done each time, in one thread.

use siltstone::schedule::SimScheduler;
use siltstone::storage::sim::SimWorld;
use siltstone::storage::{Env, LocalStorage};
use siltstone::{Batch, Db, Options, Result};
use std::process::ExitCode;
use std::sync::Arc;

/// Cells that are there before.
const CELLS: u64 = 20_000;
/// Operations that are measured.
const OPERATIONS: u64 = 4_000;
const VALUE: [u8; 100] = [b'v'; 100];

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let done = match &args[..] {
        [what, dir] => open(dir).and_then(|db| run(what, &db)),
        _ => Ok(None),
    };
    match done {
        Ok(Some(operations)) => {
            println!("operations {operations}");
            ExitCode::SUCCESS
        }
        Ok(None) => {
            eprintln!(
                "usage: siltstone-instructions put|wal|batch|get|get-memory|missing|scan|short-scan|seek|compaction DIR"
            );
            ExitCode::FAILURE
        }
        Err(e) => {
            eprintln!("siltstone-instructions: {e}");
            ExitCode::FAILURE
        }
    }
}

fn open(dir: &str) -> Result<Db> {
    let world = SimWorld::new(1);
    let scheduler = Arc::new(SimScheduler::for_world(&world));
    let env = Env { storage: Arc::new(LocalStorage::new()), ..world.env() };
    Db::builder().options(options()).env(env).scheduler(scheduler).open(dir)
}

/// Memory that takes everything, so that nothing is flushed that was not asked for.
fn options() -> Options {
    Options { write_memory: 64 << 20, memory_budget: 128 << 20, ..Options::default() }
}

/// Does the work of that name; its operations, or `None` where there is no such work.
fn run(what: &str, db: &Db) -> Result<Option<u64>> {
    // Keys in no order.
    let key = |n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes();
    let fill = |from: u64| {
        (from..from + CELLS).try_for_each(|n| db.put(key(n), VALUE).map(|_| ()))?;
        db.wait_idle()
    };
    let in_tables = || fill(0).and_then(|()| db.flush());
    let operations = match what {
        "put" => {
            fill(0)?;
            measured(OPERATIONS, |n| db.put(key(CELLS + n), VALUE).map(|_| ()))?;
            OPERATIONS
        }
        // Everything after the WAL is not counted for a put.
        "wal" => {
            fill(0)?;
            CELLS
        }
        "batch" => {
            fill(0)?;
            let mut batch = Batch::new();
            (0..OPERATIONS).for_each(|n| _ = batch.put(&db.default_family(), key(CELLS + n), VALUE));
            measured(1, |_| db.write(&batch).map(|_| ()))?;
            OPERATIONS
        }
        "get-memory" => {
            fill(0)?;
            measured(OPERATIONS, |n| db.get(key(n)).map(|found| assert!(found.is_some())))?;
            OPERATIONS
        }
        // All blocks are in the cache: the first walk put them there.
        "get" => {
            in_tables()?;
            (0..CELLS).try_for_each(|n| db.get(key(n)).map(|_| ()))?;
            measured(OPERATIONS, |n| db.get(key(n)).map(|found| assert!(found.is_some())))?;
            OPERATIONS
        }
        "missing" => {
            in_tables()?;
            measured(OPERATIONS, |n| db.get(key(CELLS + n)).map(|found| assert!(found.is_none())))?;
            OPERATIONS
        }
        "scan" => {
            in_tables()?;
            (0..CELLS).try_for_each(|n| db.get(key(n)).map(|_| ()))?;
            measured(1, |_| db.scan::<&[u8]>(..).try_for_each(|entry| entry.map(|_| ())))?;
            CELLS
        }
        // From where it begins to the tenth entry.
        "short-scan" => {
            in_tables()?;
            (0..CELLS).try_for_each(|n| db.get(key(n)).map(|_| ()))?;
            measured(OPERATIONS, |n| db.scan(key(n)..).take(10).try_for_each(|entry| entry.map(|_| ())))?;
            OPERATIONS
        }
        // From where it begins to the first entry.
        "seek" => {
            in_tables()?;
            (0..CELLS).try_for_each(|n| db.get(key(n)).map(|_| ()))?;
            measured(OPERATIONS, |n| db.scan(key(n)..).cursor().first().map(|_| ()))?;
            OPERATIONS
        }
        // Two flushes, and the compaction of what they wrote.
        "compaction" => {
            in_tables()?;
            fill(CELLS / 2)?;
            db.flush()?;
            db.default_family().compact::<&[u8]>(..)?;
            4 * CELLS
        }
        _ => return Ok(None),
    };
    Ok(Some(operations))
}

/// What is counted, by this name.
#[inline(never)]
fn measured(times: u64, operation: impl Fn(u64) -> Result<()>) -> Result<()> {
    (0..times).try_for_each(operation)
}
