//! The store that is damaged: all kinds of files, every compression, several levels, a compaction cut short
//! at a clip, range deletes, and writes that are only in the WAL; and what it must answer.
//!
//! Beside the answers the fixture knows which keys' reads touch which bytes of which SSTable: gets without a
//! cache are traced once on the sound disk. A damaged byte is then judged by the keys that read it.

use crate::strategies;
use siltstone::schedule::SimScheduler;
use siltstone::storage::Env;
use siltstone::storage::sim::{Mode, OpKind, Rng, SimClock, SimRandom, SimStorage};
use siltstone::{Builder, Compression, Db, FamilyOptions, Options, Timestamp, Timestamps, Tuning};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// By byte range of a file: the family and key of cells read from there.
type KeysByRange = BTreeMap<(u64, u64), Vec<(usize, Vec<u8>)>>;

/// The database's directory on the simulated disk.
pub(crate) const DIR: &str = "db";
/// Names of the families.
pub(crate) const FAMILIES: [&str; 3] = ["default", "plain", "dated"];
const KEYS: u64 = 2000;

/// How much a fixture holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Size {
    /// Some hundred kilobytes, in SSTables like those of a real store.
    Large,
    /// Some ten kilobytes in small SSTables, with all kinds of files and a clip all the same.
    Small,
}

impl Size {
    /// Bytes of SSTables to reach before the fixture ends; WAL and manifest add to them.
    fn bytes_min(self) -> u64 {
        match self {
            Size::Large => 230 << 10,
            Size::Small => 16 << 10,
        }
    }

    fn sstable_bytes(self) -> u64 {
        match self {
            Size::Large => 16 << 10,
            Size::Small => 4 << 10,
        }
    }

    fn strategy(self) -> String {
        let sstable_bytes = self.sstable_bytes();
        format!("leveled{{sstable_bytes={sstable_bytes}, base_bytes={}, multiplier=2}}", 3 * sstable_bytes)
    }

    fn options(self) -> Options {
        match self {
            Size::Large => options(),
            Size::Small => Options {
                tuning: Tuning {
                    wal_file_bytes: 4 << 10,
                    compaction_step_bytes: 4 << 10,
                    ..options().tuning
                },
                ..options()
            },
        }
    }

    /// Writes between two flushes.
    fn writes(self) -> u64 {
        match self {
            Size::Large => 200,
            Size::Small => 40,
        }
    }
}

/// A write as the history keeps it.
#[derive(Clone, Debug)]
pub struct Written {
    /// Its sequence number.
    pub seq: u64,
    /// The value that it set; `None` for a delete.
    pub value: Option<Vec<u8>>,
}

/// Every write of a key, oldest first.
pub(super) type History = BTreeMap<Vec<u8>, Vec<Written>>;

/// Bytes of an SSTable and keys whose reads touch them.
pub struct Touched {
    /// First byte.
    pub start: u64,
    /// Byte behind the last.
    pub end: u64,
    /// Family and keys, at most [`KEYS_KEPT`] of them: the first, the last, some between.
    pub keys: Vec<(usize, Vec<u8>)>,
}

/// The fixture.
pub struct Fixture {
    /// The sound disk.
    pub disk: SimStorage,
    /// The sound disk at an earlier time, for stale blocks.
    pub earlier: SimStorage,
    /// Per family, every key ever written.
    pub families: Vec<History>,
    /// Per family, what a full scan yields.
    pub contents: Vec<Vec<(Vec<u8>, Vec<u8>)>>,
    /// Per file of the database, its length up to where it is in use.
    pub files: Vec<(PathBuf, u64)>,
    /// SSTables with a clip, whose lower part nobody reads.
    pub clipped: BTreeSet<PathBuf>,
    /// By file.
    pub touched: BTreeMap<PathBuf, Vec<Touched>>,
}

impl Fixture {
    /// Bytes of all files in use.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|(_, bytes)| bytes).sum()
    }

    /// File and offset of a byte in use.
    pub(super) fn place(&self, mut at: u64) -> (PathBuf, u64) {
        for (file, bytes) in &self.files {
            if at < *bytes {
                return (file.clone(), at);
            }
            at -= bytes;
        }
        unreachable!("the place lies in some file")
    }
}

/// The environment of a disk.
pub(crate) fn env(disk: &SimStorage, seed: u64) -> Env {
    Env {
        storage: Arc::new(disk.clone()),
        clock: Arc::new(SimClock::new(1_700_000_000_000_000)),
        random: Arc::new(SimRandom::new(seed)),
    }
}

/// A small store without a cache, so that every read comes from the disk.
pub(crate) fn options() -> Options {
    Options {
        write_memory: 512 << 10,
        memory_budget: 4 << 20,
        tuning: Tuning {
            wal_file_bytes: 16 << 10,
            compaction_step_bytes: 16 << 10,
            events_max: 20,
            ..Tuning::default()
        },
        ..Options::default()
    }
}

/// How the store is opened.
pub(crate) fn builder(disk: &SimStorage, seed: u64) -> Builder {
    let env = env(disk, seed);
    let scheduler = SimScheduler::new(env.random.clone());
    Builder::new().options(options()).env(env).scheduler(Arc::new(scheduler))
}

/// The third family of a large fixture has another strategy for each seed.
fn family_options(family: usize, size: Size, seed: u64) -> FamilyOptions {
    let strategy = match family {
        2 if size == Size::Large => {
            strategies::other((seed % strategies::others().count() as u64) as usize, size.sstable_bytes())
        }
        _ => size.strategy().parse().expect("a strategy"),
    };
    let options = FamilyOptions { block_bytes: 1 << 10, strategy, ..FamilyOptions::default() };
    match family {
        0 => FamilyOptions { compression_last: Some(Compression::Zstd { level: 3 }), ..options },
        // Its values are left in the WAL where they are long enough.
        1 => FamilyOptions {
            compression: Compression::None,
            wal_values: true,
            wal_values_write_amp_max: 1e6,
            ..options
        },
        _ => FamilyOptions {
            timestamps: Timestamps::Explicit,
            compression: Compression::Zstd { level: 1 },
            ..options
        },
    }
}

fn key(n: u64) -> Vec<u8> {
    format!("key-{n:05}").into_bytes()
}

/// Writes the fixture.
pub fn fixture(seed: u64, size: Size) -> Fixture {
    let mut rng = Rng::new(seed);
    let disk = SimStorage::new(seed);
    let (families, earlier) = write(&disk, seed, size, &mut rng);
    let contents: Vec<Vec<_>> = families.iter().map(contents).collect();
    let db = builder(&disk.clone_killed(), seed).open_read_only(DIR).expect("the fixture opens");
    let mut clipped = BTreeSet::new();
    for (i, name) in FAMILIES.iter().enumerate() {
        let family = db.family(name).expect("a family of the fixture");
        let found: Vec<_> = family.scan::<&[u8]>(..).map(|e| e.map(|e| (e.key, e.value.to_vec()))).collect();
        let found: Vec<_> = found.into_iter().collect::<Result<_, _>>().expect("the fixture is sound");
        assert!(found == contents[i], "family {name} of the sound fixture is not what was written");
        let shape = family.shape();
        let tables = shape.tables().filter(|(_, _, info)| info.clip.is_some());
        clipped.extend(tables.map(|(_, _, info)| Path::new(DIR).join(info.id.file_name())));
    }
    drop(db);
    let files = disk.list_all().into_iter().filter(|(path, _)| path.starts_with(DIR));
    let files = files
        .filter(|(path, _)| !matches!(path.file_name().and_then(|n| n.to_str()), Some("LOCK" | "EVENTS")));
    let files = files.map(|(path, _)| (path.clone(), used(&disk, &path))).collect();
    let touched = touched(&disk, seed, &families);
    Fixture { disk, earlier, families, contents, files, clipped, touched }
}

/// Length of a file up to its last byte that is not zero: reserved space of a WAL file is no history.
fn used(disk: &SimStorage, path: &Path) -> u64 {
    let bytes = disk.file_bytes(path).expect("a file of the fixture");
    bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last as u64 + 1)
}

/// Runs until the live files are large enough and a compaction stands at a clip; the disk at half the way
/// comes back too.
fn write(disk: &SimStorage, seed: u64, size: Size, rng: &mut Rng) -> (Vec<History>, SimStorage) {
    let env = env(disk, seed);
    let scheduler = Arc::new(SimScheduler::new(env.random.clone()));
    let mut builder = Builder::new().options(size.options()).env(env).scheduler(scheduler.clone());
    for (i, name) in FAMILIES.iter().enumerate() {
        builder = builder.family(name, family_options(i, size, seed));
    }
    let db = builder.open(DIR).expect("a new database");
    let mut families = vec![History::new(); FAMILIES.len()];
    let mut earlier = None;
    let mut round = 0;
    loop {
        for _ in 0..size.writes() {
            put_one(&db, rng, &mut families);
        }
        // Flushed by turns, so that two families always have writes in the WAL alone.
        let family = db.family(FAMILIES[round % FAMILIES.len()]).expect("a family");
        family.flush().expect("a flush");
        scheduler.run(3);
        round += 1;
        let tables: u64 = FAMILIES.iter().map(|name| sstable_bytes(&db, name)).sum();
        if earlier.is_none() && tables >= size.bytes_min() / 2 {
            earlier = Some(disk.clone_killed());
        }
        if tables >= size.bytes_min() && has_unflushed(&db, size) && stop_at_clip(disk, &db, size) {
            break;
        }
        assert!(round < 200, "no compaction stopped at a clip: {tables} bytes of tables");
    }
    leave_in_wal(&db, size, rng, &mut families);
    db.close().expect("the fixture closes");
    (families, earlier.unwrap_or_else(|| disk.clone_killed()))
}

/// Gives the second family an SSTable whose values are in the WAL, and the others something in the WAL alone
/// once more.
fn leave_in_wal(db: &Db, size: Size, rng: &mut Rng, families: &mut [History]) {
    let family = db.family(FAMILIES[1]).expect("a family");
    family.flush().expect("a flush");
    // Alone, as only files stay that are nearly all of one family.
    for n in 0..size.writes() / 2 {
        let (at, value) = (key(n * 7), rng.bytes(200));
        let seq = family.put(&at, &value).expect("a put").0;
        families[1].entry(at).or_default().push(Written { seq, value: Some(value) });
    }
    family.flush().expect("a flush");
    let has_wal_values = family.shape().tables().any(|(_, _, table)| !table.logs.is_empty());
    assert!(has_wal_values, "values were left in the WAL");
    (0..size.writes() / 2).for_each(|_| put_one(db, rng, families));
}

fn sstable_bytes(db: &Db, name: &str) -> u64 {
    db.family(name).expect("a family").shape().tables().map(|(_, _, info)| info.bytes).sum()
}

/// Lets a compaction of the whole first family fail after some of its steps.
fn stop_at_clip(disk: &SimStorage, db: &Db, size: Size) -> bool {
    let last_table = if size == Size::Small { 2 } else { 4 };
    disk.fail_at_path(OpKind::Create, ".table", last_table, Mode::Once, std::io::ErrorKind::Other);
    // It fails as planned, or had too little to do.
    let _ = db.default_family().compact::<&[u8]>(..);
    disk.clear_faults();
    has_clip(db, FAMILIES[0])
}

fn has_clip(db: &Db, name: &str) -> bool {
    db.family(name).expect("a family").shape().tables().any(|(_, _, info)| info.clip.is_some())
}

/// Whether two families have a fair amount of writes that no SSTable holds.
fn has_unflushed(db: &Db, size: Size) -> bool {
    let cells =
        |name: &str| db.family(name).expect("a family").memtables().iter().map(|s| s.cells).sum::<u64>();
    FAMILIES.iter().filter(|name| cells(name) > size.writes() / 10).count() > 1
}

/// One write: mostly puts, some deletes, now and then a range delete.
fn put_one(db: &Db, rng: &mut Rng, families: &mut [History]) {
    let i = rng.index(FAMILIES.len());
    let family = db.family(FAMILIES[i]).expect("a family");
    let n = rng.range(0..KEYS);
    let at = key(n);
    if rng.one_in(300) {
        let end = key(n + rng.range(1..12));
        let seq = family.delete_range(at.clone()..end.clone()).expect("a range delete").0;
        for (_, history) in families[i].range_mut(at..end) {
            history.push(Written { seq, value: None });
        }
        return;
    }
    let (seq, value) = if rng.chance(12) {
        (family.delete(&at).expect("a delete"), None)
    } else {
        let length = rng.range(8..120) as usize;
        // Half noise, half text that compresses.
        let mut value = format!("value {n} ").into_bytes();
        value.extend(rng.bytes(length / 2));
        value.resize(value.len() + length / 2, b'.');
        let seq = match i {
            2 => {
                let next = families[i].get(&at).map_or(0, Vec::len) as u64;
                family.put_at(&at, Timestamp(1_700_000_000_000_000 + next), &value)
            }
            _ => family.put(&at, &value),
        };
        (seq.expect("a put"), Some(value))
    };
    families[i].entry(at).or_default().push(Written { seq: seq.0, value });
}

fn contents(history: &History) -> Vec<(Vec<u8>, Vec<u8>)> {
    let live = history.iter().filter_map(|(key, writes)| Some((key.clone(), writes.last()?.value.clone()?)));
    live.collect()
}

/// Which bytes each get reads.
fn touched(disk: &SimStorage, seed: u64, families: &[History]) -> BTreeMap<PathBuf, Vec<Touched>> {
    let disk = disk.clone_killed();
    let db = builder(&disk, seed).open_read_only(DIR).expect("the fixture opens");
    let mut ranges: BTreeMap<PathBuf, KeysByRange> = BTreeMap::new();
    disk.record_trace();
    for (i, history) in families.iter().enumerate() {
        let family = db.family(FAMILIES[i]).expect("a family");
        for key in history.keys() {
            disk.take_trace();
            family.get(key).expect("the fixture is sound");
            for event in disk.take_trace().into_iter().filter(|event| event.op == OpKind::Read) {
                let range = (event.offset, event.offset + event.len);
                ranges.entry(event.path).or_default().entry(range).or_default().push((i, key.clone()));
            }
        }
    }
    let few = |mut keys: Vec<(usize, Vec<u8>)>| {
        let picks = [0, keys.len() / 2, keys.len() - 1];
        let mut picks: Vec<_> = picks.iter().map(|at| std::mem::take(&mut keys[*at])).collect();
        picks.retain(|(_, key)| !key.is_empty());
        picks
    };
    let list = |ranges: BTreeMap<(u64, u64), Vec<_>>| {
        ranges.into_iter().map(|((start, end), keys)| Touched { start, end, keys: few(keys) }).collect()
    };
    ranges.into_iter().map(|(path, ranges)| (path, list(ranges))).collect()
}
