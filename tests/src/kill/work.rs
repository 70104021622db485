//! The writes of a child, as a function of numbers.

use crate::strategies;
use siltstone::storage::sim::Rng;
use siltstone::strategy::StrategyOptions;
use siltstone::{
    Batch, Builder, Compression, Db, ErrorKind, Family, FamilyOptions, Options, Result, SstableReads, Tuning,
};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

/// Writers at the same time, each with keys and batch numbers of its own.
pub const STREAMS: usize = 2;
/// The families every batch writes to.
pub const FAMILIES: [&str; 2] = ["default", "second"];
/// The family that SSTables are ingested into.
pub const INGESTED: &str = "ingested";
/// The family that comes and goes.
pub const PASSING: &str = "passing";
/// A family whose values are their keys eight times.
pub const OVERWRITTEN: &str = "overwritten";
/// What is cut off the passing one, for a while.
pub const CUT_OFF: &str = "passing-cut-off";
/// Cells of one ingested SSTable.
pub const INGESTED_CELLS: u64 = 20;
const KEYS: u64 = 400;

/// One operation of a batch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Op {
    /// Sets a value.
    Put(usize, Vec<u8>, Vec<u8>),
    /// Deletes a key.
    Delete(usize, Vec<u8>),
    /// Deletes the keys from the first up to the second.
    DeleteRange(usize, Vec<u8>, Vec<u8>),
}

/// A draw that depends on all of the numbers.
pub fn rng(seed: u64, numbers: [u64; 3]) -> Rng {
    numbers.into_iter().fold(Rng::new(seed), |mut rng, n| Rng::new(rng.next_u64() ^ n))
}

/// The key under which a stream keeps the number of its newest batch, in both families.
pub fn marker(stream: usize) -> Vec<u8> {
    format!("marker-{stream}").into_bytes()
}

fn key(stream: usize, n: u64) -> Vec<u8> {
    format!("s{stream}-{n:06}").into_bytes()
}

/// The operations of a stream's batch `n`, if it is written in that round.
pub fn ops(seed: u64, stream: usize, n: u64, round: u64) -> Vec<Op> {
    // In half of the runs most of it goes to one family: no SSTable keeps its values in a WAL file of two
    // families' cells.
    let lopsided = rng(seed, [4, 5, 6]).chance(50);
    let mut rng = rng(seed, [stream as u64, n, round]);
    let mut ops = Vec::new();
    for _ in 0..rng.range(1..5) {
        let family = if lopsided && rng.chance(90) { 0 } else { rng.index(FAMILIES.len()) };
        let at = rng.range(0..KEYS);
        ops.push(match rng.range(0..40) {
            0 => Op::DeleteRange(family, key(stream, at), key(stream, at + 8)),
            1..6 => Op::Delete(family, key(stream, at)),
            6 => Op::Put(family, key(stream, at), rng.bytes(6_000)),
            _ => {
                let len = rng.range(0..400) as usize;
                // Half of it compresses.
                let mut value = rng.bytes(len);
                value.resize(2 * len, b'x');
                Op::Put(family, key(stream, at), value)
            }
        });
    }
    for family in 0..FAMILIES.len() {
        ops.push(Op::Put(family, marker(stream), n.to_be_bytes().to_vec()));
    }
    ops
}

/// The operations as a batch.
pub fn batch(families: &[Family], ops: &[Op]) -> Batch {
    let mut batch = Batch::new();
    for op in ops {
        match op {
            Op::Put(family, key, value) => batch.put(&families[*family], key, value),
            Op::Delete(family, key) => batch.delete(&families[*family], key),
            Op::DeleteRange(family, from, to) => batch.delete_range(&families[*family], &from[..]..&to[..]),
        };
    }
    batch
}

/// The contents of a family.
pub type Contents = BTreeMap<Vec<u8>, Vec<u8>>;

/// Applies operations to what the families hold.
pub fn apply(contents: &mut [Contents], ops: &[Op]) {
    for op in ops {
        match op {
            Op::Put(family, key, value) => drop(contents[*family].insert(key.clone(), value.clone())),
            Op::Delete(family, key) => drop(contents[*family].remove(key)),
            Op::DeleteRange(family, from, to) => contents[*family].retain(|key, _| key < from || key >= to),
        }
    }
}

/// Cell `i` of the `k`th ingested SSTable.
pub fn ingested_cell(seed: u64, k: u64, i: u64) -> (Vec<u8>, Vec<u8>) {
    (format!("i{k:06}-{i:03}").into_bytes(), rng(seed, [77, k, i]).bytes(60))
}

/// Opens the directory of that seed. A process that another lane is just starting has our lock, too, for the
/// moment between fork and exec, so a database in use is tried again for a while.
pub fn open(seed: u64, dir: &Path) -> Result<Db> {
    let until = Instant::now() + Duration::from_secs(1);
    loop {
        match builder(seed).open(dir) {
            Err(e) if e.kind() == ErrorKind::Busy && Instant::now() < until => {
                std::thread::sleep(Duration::from_millis(1))
            }
            opened => return opened,
        }
    }
}

/// How the directory of that seed is opened.
fn builder(seed: u64) -> Builder {
    let mut rng = rng(seed, [1, 2, 3]);
    let options = Options {
        write_memory: 32 << (10 + rng.range(0..3)),
        memory_budget: 2 << 20,
        workers: 1 + rng.index(2),
        cache_fill: *rng.pick(&crate::settings::FILLS),
        sstable_reads: if rng.one_in(2) { SstableReads::Mapped } else { SstableReads::PageCache },
        rate_limit: *rng.pick(&[0, 0, 0, 16 << 20]),
        tuning: Tuning {
            wal_file_bytes: 16 << (10 + 2 * rng.range(0..4)),
            wal_prefill: rng.chance(30),
            wal_clean_bytes: *rng.pick(&[0, 48 << 10]),
            wal_flush_threshold: *rng.pick(&[0.0, 0.25, 1.0]),
            compaction_step_bytes: 16 << (10 + 2 * rng.range(0..2)),
            ..Tuning::default()
        },
        rate_limit_auto: *rng.pick(&[0, 0, 0, 4 << 20]),
        ..Options::default()
    };
    let mut family = || FamilyOptions {
        compression: *rng.pick(&[Compression::None, Compression::Lz4, Compression::Zstd { level: 1 }]),
        block_bytes: *rng.pick(&[256, 1024, 4096]),
        bloom_bits: *rng.pick(&[0, 10]),
        strategy: strategy(&mut rng),
        memtable_policy: rng
            .pick(&["none", "basic", "eager", "adaptive{r=0.1}", "sketch"])
            .parse()
            .expect("a policy"),
        hot_keys: rng
            .pick(&["off", "factor{hot_factor=0}", "factor{hot_factor=1}", "top{percent=20}"])
            .parse()
            .expect("a rule"),
        wal_values: rng.chance(70),
        wal_values_write_amp_max: 1e6,
        ..FamilyOptions::default()
    };
    let builder = Builder::new().options(options);
    [FAMILIES[0], FAMILIES[1], INGESTED].iter().fold(builder, |builder, name| builder.family(name, family()))
}

/// A family's strategy, leveled as often as all others together.
pub fn strategy(rng: &mut Rng) -> StrategyOptions {
    if rng.chance(55) {
        return "leveled{sstable_bytes=64KiB, multiplier=4}".parse().expect("a strategy");
    }
    let sstable_bytes = if rng.one_in(4) { 16 << 10 } else { 64 << 10 };
    strategies::draw_other(rng, sstable_bytes)
}

/// The number in a stream's marker, the same in both families; 0 when there is none.
pub fn marked(families: &[Family], stream: usize) -> Result<u64, String> {
    let mut numbers = Vec::new();
    for family in families {
        let value = family.get(marker(stream)).map_err(|e| format!("marker {stream}: {e}"))?;
        let number = match value.as_deref() {
            None => 0,
            Some(bytes) => {
                u64::from_be_bytes(bytes.try_into().map_err(|_| format!("marker {stream} is {bytes:?}"))?)
            }
        };
        numbers.push(number);
    }
    if numbers.iter().any(|n| *n != numbers[0]) {
        return Err(format!("half a batch: stream {stream} is at {numbers:?} in the families {FAMILIES:?}"));
    }
    Ok(numbers[0])
}

/// The newest ingested SSTable of which the database holds a cell; 0 for none.
pub fn newest_ingested(family: &Family) -> Result<u64, String> {
    match family.scan::<&str>(..).next_back() {
        None => Ok(0),
        Some(Err(e)) => Err(format!("family {INGESTED}: {e}")),
        Some(Ok(entry)) => std::str::from_utf8(&entry.key[1..7])
            .ok()
            .and_then(|digits| digits.parse().ok())
            .ok_or_else(|| format!("family {INGESTED} holds the key {}", entry.key.escape_ascii())),
    }
}

/// Where things lie in the directory of a campaign's lane.
#[derive(Clone, Debug)]
pub struct Paths {
    /// The database.
    pub db: std::path::PathBuf,
    /// The oracle's file.
    pub oracle: std::path::PathBuf,
    /// The checkpoint of the round.
    pub checkpoint: std::path::PathBuf,
    /// The SSTable about to be ingested.
    pub prepared: std::path::PathBuf,
    /// The backups.
    pub backups: std::path::PathBuf,
    /// The newest of them, restored.
    pub restored: std::path::PathBuf,
    /// Where the passing family is while it moves.
    pub moving: std::path::PathBuf,
    /// A small database that moves into shared storage.
    pub adopted: std::path::PathBuf,
    /// The shared storage.
    pub place: std::path::PathBuf,
    /// The directory of another machine.
    pub elsewhere: std::path::PathBuf,
}

impl Paths {
    /// Below a lane's directory.
    pub fn in_dir(dir: &Path) -> Self {
        Self {
            db: dir.join("db"),
            oracle: dir.join("oracle"),
            checkpoint: dir.join("checkpoint"),
            prepared: dir.join("prepared.table"),
            backups: dir.join("backups"),
            restored: dir.join("restored"),
            moving: dir.join("moving"),
            adopted: dir.join("adopted"),
            place: dir.join("place"),
            elsewhere: dir.join("elsewhere"),
        }
    }
}
