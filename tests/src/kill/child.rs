//! The process that works on the database until it is killed, or until its time is over.

use crate::kill::oracle::{Oracle, Slot};
use crate::kill::work::{
    self, FAMILIES, INGESTED, INGESTED_CELLS, OVERWRITTEN, PASSING, Paths, STREAMS, batch, ingested_cell, ops,
};
use crate::kill::{adopting, copies};
use siltstone::storage::sim::Rng;
use siltstone::{Db, Durability, Family, FamilyOptions, Result, SstableWriter};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The orders of a child.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Orders {
    /// Seed of the directory.
    pub seed: u64,
    /// Which round it is.
    pub round: u64,
    /// After this it closes the database and ends.
    pub life: Duration,
}

/// Works. An error here is one that no kill explains.
pub fn run(dir: &Path, orders: Orders) -> Result<(), String> {
    no_core_dumps();
    let end = Instant::now() + orders.life;
    let paths = Paths::in_dir(dir);
    let oracle = Oracle::open(&paths.oracle).map_err(|e| format!("oracle: {e}"))?;
    let db = work::open(orders.seed, &paths.db).map_err(|e| format!("open: {e}"))?;
    let families: Vec<Family> =
        FAMILIES.iter().map(|name| db.family(name)).collect::<Result<_>>().map_err(text)?;
    let stop = AtomicBool::new(false);
    let mut next = Vec::new();
    for stream in 0..STREAMS {
        let newest = work::marked(&families, stream)?;
        next.push(newest + 1);
        oracle.set(Slot::Began(stream), newest + 1);
    }
    std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for (stream, &next) in next.iter().enumerate() {
            let (db, families, oracle, stop) = (&db, &families, &oracle, &stop);
            threads.push(scope.spawn(move || write(db, families, oracle, orders, stream, next, stop)));
        }
        threads.push(scope.spawn(|| chores(&db, &oracle, &paths, orders, &stop)));
        while Instant::now() < end && !threads.iter().any(|t| t.is_finished()) {
            std::thread::sleep(Duration::from_millis(1));
        }
        stop.store(true, Ordering::Relaxed);
        threads.into_iter().try_for_each(|t| t.join().map_err(|_| "a thread panicked".to_string())?)
    })?;
    db.close().map_err(|e| format!("close: {e}"))
}

fn text(e: siltstone::Error) -> String {
    e.to_string()
}

/// An abort must not leave a file behind.
fn no_core_dumps() {
    let none = rustix::process::Rlimit { current: Some(0), maximum: Some(0) };
    // Where it may not be set, dumps are only untidy.
    let _ = rustix::process::setrlimit(rustix::process::Resource::Core, none);
}

fn write(
    db: &Db,
    families: &[Family],
    oracle: &Oracle,
    orders: Orders,
    stream: usize,
    first: u64,
    stop: &AtomicBool,
) -> Result<(), String> {
    let mut rng = work::rng(orders.seed, [100 + stream as u64, orders.round, 0]);
    for n in first.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let batch = batch(families, &ops(orders.seed, stream, n, orders.round));
        let durability = if rng.one_in(30) { Durability::Sync } else { Durability::Buffered };
        oracle.set(Slot::Started(stream), n);
        db.write_with(&batch, durability).map_err(|e| format!("batch {n} of stream {stream}: {e}"))?;
        oracle.set(Slot::Acked(stream), n);
        if rng.one_in(3) {
            std::thread::sleep(Duration::from_micros(100));
        }
    }
    Ok(())
}

/// Which chore passes kill points whose names begin so.
const FIRST: &[(&[&str], usize)] = &[
    (&["flush"], 0),
    (&["checkpoint"], 1),
    (&["family"], 2),
    (&["ingest"], 3),
    (&["merge"], 4),
    (&["backup", "restore"], 7),
    (&["detach", "attach", "copy"], 8),
    // Of families.
    (&["split", "join-renamed", "join-before-commit", "join-committed"], 11),
    (&["adopt"], 13),
];

/// Everything beside writing, in an order that is drawn; first what passes the kill point that was asked for.
fn chores(db: &Db, oracle: &Oracle, paths: &Paths, orders: Orders, stop: &AtomicBool) -> Result<(), String> {
    let mut rng = work::rng(orders.seed, [200, orders.round, 0]);
    let point = std::env::var("SILTSTONE_KILL").unwrap_or_default();
    let mut first = FIRST.iter().find(|(names, _)| names.iter().any(|name| point.starts_with(name)));
    let mut checkpointed = false;
    copies::finish_move(db, oracle, paths)?;
    copies::finish_cut(db, oracle)?;
    adopting::finish(oracle, paths)?;
    while !stop.load(Ordering::Relaxed) {
        let chore = first.take().map_or_else(|| rng.index(19), |(_, chore)| *chore);
        match chore {
            0 => db.flush().map_err(|e| format!("flush: {e}"))?,
            1 if !checkpointed => {
                checkpointed = true;
                checkpoint(db, oracle, paths)?;
            }
            2 => passing_family(db, oracle, &mut rng)?,
            3 => ingest(db, oracle, paths, orders.seed)?,
            4 => {
                let family = db.family(FAMILIES[rng.index(FAMILIES.len())]).map_err(text)?;
                family.compact::<&str>(..).map_err(|e| format!("compact: {e}"))?;
            }
            5 => db.sync().map_err(|e| format!("sync: {e}"))?,
            6 => drop(db.get(work::marker(0)).map_err(|e| format!("get: {e}"))?),
            7 => copies::backup(db, oracle, paths)?,
            8 => {
                if !db.families().iter().any(|name| name == PASSING) {
                    passing_family(db, oracle, &mut rng)?;
                }
                copies::move_passing(db, oracle, paths)?;
            }
            11 => {
                if !db.families().iter().any(|name| name == PASSING) {
                    passing_family(db, oracle, &mut rng)?;
                }
                copies::cut_passing(db, oracle)?;
            }
            12 => overwrite(db, &mut rng, stop)?,
            13 => adopting::adopt(oracle, paths, rng.range(20..200))?,
            9 => {
                let write_memory = (32 << 10) << rng.range(0..3);
                db.set_memory_limits(write_memory, 2 << 20).map_err(|e| format!("move memory: {e}"))?;
            }
            10 => {
                let family = db.family(FAMILIES[rng.index(FAMILIES.len())]).map_err(text)?;
                let options = FamilyOptions { strategy: work::strategy(&mut rng), ..family.options() };
                family.alter(options).map_err(|e| format!("alter: {e}"))?;
            }
            _ => std::thread::sleep(Duration::from_millis(2)),
        }
    }
    Ok(())
}

fn checkpoint(db: &Db, oracle: &Oracle, paths: &Paths) -> Result<(), String> {
    for stream in 0..STREAMS {
        oracle.set(Slot::CheckpointFrom(stream), oracle.get(Slot::Acked(stream)));
    }
    db.checkpoint(&paths.checkpoint).map_err(|e| format!("checkpoint: {e}"))?;
    oracle.set(Slot::CheckpointDone, 1);
    Ok(())
}

/// Creates the passing family and puts something into it, or drops it if it is there.
fn passing_family(db: &Db, oracle: &Oracle, rng: &mut Rng) -> Result<(), String> {
    let there = db.families().iter().any(|name| name == PASSING);
    let began = oracle.get(Slot::FamilyStarted);
    let done = if (began % 2 == 1) == there { began } else { oracle.get(Slot::FamilyAcked) };
    if (done % 2 == 1) != there {
        return Err(format!("family {PASSING} there: {there}, but it was created and dropped {done} times"));
    }
    oracle.set(Slot::FamilyAcked, done);
    oracle.set(Slot::FamilyStarted, done + 1);
    if there {
        db.drop_family(PASSING).map_err(|e| format!("drop family: {e}"))?;
        oracle.set(Slot::FamilyAcked, done + 1);
    } else {
        let family =
            db.create_family(PASSING, FamilyOptions::default()).map_err(|e| format!("create family: {e}"))?;
        oracle.set(Slot::FamilyAcked, done + 1);
        for n in 0..rng.range(0..100) {
            family.put(format!("p{n}").as_bytes(), rng.bytes(100)).map_err(text)?;
        }
    }
    Ok(())
}

/// Writes few keys of many again and again, so that ranges of memory are worth compacting.
fn overwrite(db: &Db, rng: &mut Rng, stop: &AtomicBool) -> Result<(), String> {
    let options = FamilyOptions {
        strategy: "rangemerge{sstable_bytes=16384, deltas_max=3}".parse()?,
        memtable_policy: "eager".parse()?,
        ..FamilyOptions::default()
    };
    let family = match db.family(OVERWRITTEN) {
        Ok(family) => family,
        Err(_) => db.create_family(OVERWRITTEN, options).map_err(|e| format!("create family: {e}"))?,
    };
    for _ in 0..3_000 {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let n = if rng.one_in(50) { rng.range(0..3_000) } else { rng.range(0..150) * 20 };
        let key = format!("o{n:05}");
        family.put(&key, key.repeat(8)).map_err(|e| format!("put: {e}"))?;
    }
    Ok(())
}

fn ingest(db: &Db, oracle: &Oracle, paths: &Paths, seed: u64) -> Result<(), String> {
    let family = db.family(INGESTED).map_err(text)?;
    let newest = work::newest_ingested(&family)?;
    if newest < oracle.get(Slot::IngestAcked) {
        return Err(format!(
            "lost: ingest {} was acknowledged, found {newest}",
            oracle.get(Slot::IngestAcked)
        ));
    }
    oracle.set(Slot::IngestAcked, newest);
    let next = newest + 1;
    let prepared = &paths.prepared;
    let mut table = SstableWriter::create(prepared, &FamilyOptions::default()).map_err(text)?;
    for i in 0..INGESTED_CELLS {
        let (key, value) = ingested_cell(seed, next, i);
        table.put(&key, &value).map_err(text)?;
    }
    table.finish().map_err(text)?;
    oracle.set(Slot::IngestStarted, next);
    family.ingest(&[prepared]).map_err(|e| format!("ingest: {e}"))?;
    oracle.set(Slot::IngestAcked, next);
    std::fs::remove_file(prepared).map_err(|e| format!("remove {}: {e}", prepared.display()))
}
