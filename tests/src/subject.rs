//! The database under test in its simulated world: tiny settings drawn from a seed, random writes, and the
//! calls that all campaigns make.

use crate::model::{Filter, Op, Operator, Row, Rules};
use siltstone::schedule::SimScheduler;
use siltstone::storage::sim::{Rng, SimClock, SimObjects, SimRandom, SimStorage, SimWorld};
use siltstone::storage::{Clock, Storage};
use siltstone::strategy::StrategyOptions;
use siltstone::testing::{CompactionFault, Elsewhere};
use siltstone::{
    Batch, Builder, CompactionFilter, Compression, Db, Durability, Error, Family, FamilyOptions, KeyRange,
    MergeOperator, Options, SeqNo, SstableReads, Timestamp, Timestamps, Transaction, Tuning,
};
use std::path::Path;
use std::sync::Arc;

/// The directory of the database on the simulated disk.
pub const DIR: &str = "db";
/// This key of the first family holds the number of the newest batch, where a setup says so.
pub const MARKER: &[u8] = b"~batches";

/// A family, for the engine and for the model.
#[derive(Clone, Debug)]
pub struct FamilySetup {
    /// Its name.
    pub name: &'static str,
    /// For the engine.
    pub options: FamilyOptions,
    /// For the model.
    pub rules: Rules,
    /// Timestamps are drawn from here on.
    pub first_stamp: u64,
    /// In steps of this.
    pub stamp_step: u64,
}

/// The place of SSTables.
#[derive(Clone, Copy, Debug)]
pub enum Tables {
    /// In the database's directory.
    Beside,
    /// In another one.
    Directory,
    /// In an object store.
    Objects,
}

impl Tables {
    fn draw(rng: &mut Rng) -> Self {
        match rng.range(0..6) {
            0 => Tables::Directory,
            1 => Tables::Objects,
            _ => Tables::Beside,
        }
    }
}

/// Who runs compactions.
#[derive(Clone, Copy, Debug)]
pub enum Compactions {
    /// The database.
    Here,
    /// Somebody at the other end of a pipe.
    Elsewhere,
    /// Somebody at the other end of a pipe, where something goes wrong now and then, by this seed.
    Faulty(u64),
}

impl Compactions {
    fn draw(rng: &mut Rng) -> Self {
        match rng.range(0..8) {
            0 => Compactions::Elsewhere,
            1 => Compactions::Faulty(rng.next_u64()),
            _ => Compactions::Here,
        }
    }
}

/// Settings of one case.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Options of the database.
    pub options: Options,
    /// Settings of its families.
    pub families: Vec<FamilySetup>,
    /// Different keys written.
    pub keys: u64,
    /// Bytes of a value, mostly at most this.
    pub value_bytes: usize,
    /// Most writes go to the first family: otherwise most WAL files would have too much of two families for
    /// an SSTable to keep its values there.
    pub lopsided: bool,
    /// Who runs compactions.
    pub compactions: Compactions,
    /// The place of SSTables.
    pub tables: Tables,
    /// Each batch ends with a put of its number to [`MARKER`].
    pub marker: bool,
}

/// Appends operands.
pub struct Concat;

impl MergeOperator for Concat {
    fn merge(&self, _key: &[u8], base: Option<&[u8]>, operands: &[&[u8]]) -> siltstone::Result<Vec<u8>> {
        Ok(concat(base, operands))
    }
}

fn concat(base: Option<&[u8]>, operands: &[&[u8]]) -> Vec<u8> {
    let mut all = base.unwrap_or_default().to_vec();
    operands.iter().for_each(|operand| all.extend_from_slice(operand));
    all
}

/// Unwanted are some keys at odd timestamps.
pub struct OddOnes;

impl CompactionFilter for OddOnes {
    fn remove(&self, key: &[u8], timestamp: Timestamp, value: &[u8], now_us: u64) -> bool {
        odd_ones(key, timestamp.0, value, now_us)
    }
}

fn odd_ones(key: &[u8], timestamp: u64, _value: &[u8], _now_us: u64) -> bool {
    timestamp % 2 == 1 && key.last().is_some_and(|last| last % 3 == 0)
}

/// Seconds after which cells of families with a TTL are gone.
pub const TTL_US: u64 = 1_000_000_000;

impl Setup {
    /// A tiny store: a few dozen writes fill its memory, a few hundred several levels.
    pub fn draw(rng: &mut Rng, now_us: u64) -> Self {
        let write_memory = *rng.pick(&[16 << 10, 24 << 10, 64 << 10]);
        let options = Options {
            write_memory,
            memory_budget: write_memory + *rng.pick(&[0, 16 << 10, 1 << 20]),
            change_log_bytes: *rng.pick(&[0, 0, 0, 64 << 10, 1 << 30]),
            workers: rng.range(1..4) as usize,
            cache_fill: *rng.pick(&crate::settings::FILLS),
            sstable_reads: match (rng.one_in(3), rng.one_in(2)) {
                (true, _) => SstableReads::Direct,
                (_, true) => SstableReads::Mapped,
                _ => SstableReads::PageCache,
            },
            rate_limit: *rng.pick(&[0, 0, 1 << 20]),
            tuning: Tuning {
                wal_file_bytes: *rng.pick(&[4 << 10, 8 << 10, 32 << 10]),
                wal_clean_bytes: *rng.pick(&[0, 8 << 10, 12 << 10]),
                wal_flush_threshold: *rng.pick(&[0.0, 0.25, 1.0]),
                wal_prefill: rng.one_in(4),
                compaction_step_bytes: *rng.pick(&[4 << 10, 16 << 10, 1 << 20]),
                cache_fill_rate: *rng.pick(&[0, 0, 1 << 20]),
                scan_one_side: rng.one_in(3),
                compaction_pacing: *rng.pick(&[0, 7]),
                events_max: 10,
                ..Tuning::default()
            },
            open_files_max: *rng.pick(&[0, 0, 1, 3]),
            rate_limit_auto: *rng.pick(&[0, 0, 64 << 10]),
            ..Options::default()
        };
        let plain = FamilySetup {
            name: "default",
            options: FamilyOptions { merge_operator: Some("concat".into()), ..Self::family_options(rng) },
            rules: Rules { operator: Some(concat as Operator), ..Rules::default() },
            first_stamp: 0,
            stamp_step: 0,
        };
        let families = vec![plain, Self::versioned(rng, now_us)];
        Self {
            options,
            families,
            keys: *rng.pick(&[6, 30, 100, 300]),
            value_bytes: *rng.pick(&[20, 200, 600]),
            lopsided: rng.chance(50),
            marker: !rng.one_in(6),
            compactions: Compactions::draw(rng),
            tables: Tables::draw(rng),
        }
    }

    fn family_options(rng: &mut Rng) -> FamilyOptions {
        let strategy = crate::strategies::draw(rng);
        FamilyOptions {
            compression: *rng.pick(&[Compression::None, Compression::Lz4, Compression::Zstd { level: 3 }]),
            compression_last: *rng.pick(&[
                None,
                Some(Compression::Zstd { level: 3 }),
                Some(Compression::None),
            ]),
            block_bytes: *rng.pick(&[64, 300, 4096]),
            bloom_bits: *rng.pick(&[0, 4, 10]),
            strategy,
            write_memory: *rng.pick(&[0, 8 << 10]),
            active_memtable_share: *rng.pick(&[0.1, 0.02, 0.5]),
            wal_values_write_amp_max: 1e6,
            ..draw_mechanisms(rng, &FamilyOptions::default())
        }
    }

    fn versioned(rng: &mut Rng, now_us: u64) -> FamilySetup {
        let versions = *rng.pick(&[0, 1, 2, 3]);
        let ttl_us = *rng.pick(&[0, 0, TTL_US]);
        let filtered = rng.one_in(3);
        let options = FamilyOptions {
            timestamps: Timestamps::Explicit,
            versions,
            ttl_us,
            merge_operator: Some("concat".into()),
            compaction_filter: filtered.then(|| "odd ones".into()),
            ..Self::family_options(rng)
        };
        let rules = Rules {
            explicit: true,
            versions: versions as usize,
            ttl_us,
            operator: Some(concat as Operator),
            filter: filtered.then_some(odd_ones as Filter),
        };
        let (first_stamp, stamp_step) = match ttl_us {
            0 => (1, 1),
            ttl => (now_us - ttl, ttl / 8 + 1),
        };
        FamilySetup { name: "versions", options, rules, first_stamp, stamp_step }
    }

    /// The parts that the model is made of.
    pub fn rules(&self) -> Vec<Rules> {
        self.families.iter().map(|family| family.rules).collect()
    }

    /// How to open a database in that directory: a copy has its SSTables beside it.
    pub fn builder_at(&self, world: &SimWorld, dir: impl AsRef<Path>) -> Builder {
        if dir.as_ref() == Path::new(DIR) {
            return self.builder(world);
        }
        Self { compactions: Compactions::Here, tables: Tables::Beside, ..self.clone() }.builder(world)
    }

    /// The object store in which its SSTables lie, if they do.
    pub fn objects(&self, world: &SimWorld) -> Option<Arc<SimObjects>> {
        let storage: Arc<dyn Storage> = Arc::new(world.storage.clone());
        let store = || SimObjects::new(storage, world.clock.clone(), Path::new("objects"), None);
        matches!(self.tables, Tables::Objects).then(store)
    }

    /// How to open it.
    pub fn builder(&self, world: &SimWorld) -> Builder {
        let mut options = self.options.clone();
        if matches!(self.tables, Tables::Directory) {
            options.sstable_store = Some("/tables".into());
        }
        let builder = Builder::new()
            .options(options)
            .env(world.env())
            .scheduler(Arc::new(SimScheduler::for_world(world)))
            .merge_operator("concat", Arc::new(Concat))
            .filter("odd ones", Arc::new(OddOnes));
        let builder = match self.objects(world) {
            Some(objects) => builder.object_store(objects),
            None => builder,
        };
        let builder = self
            .families
            .iter()
            .fold(builder, |builder, family| builder.family(family.name, family.options.clone()));
        let elsewhere = match self.compactions {
            Compactions::Here => return builder,
            Compactions::Elsewhere => Elsewhere::beside(&builder),
            Compactions::Faulty(seed) => {
                // A lie in half of them, as it is what could do most harm.
                let kinds = CompactionFault::ALL;
                let kind = if seed % 2 == 0 {
                    CompactionFault::Lie
                } else {
                    kinds[(seed / 2) as usize % kinds.len()]
                };
                Elsewhere::faulty(&builder, &[kind], seed)
            }
        };
        builder.offload(Arc::new(elsewhere))
    }

    /// A key.
    pub fn key(&self, rng: &mut Rng) -> Vec<u8> {
        // Half of them from few, so that keys have histories; of different lengths and with shared prefixes.
        let n = if rng.chance(50) { rng.range(0..self.keys) } else { rng.range(0..self.keys.div_ceil(6)) };
        let mut key = format!("key{n:03}").into_bytes();
        if n % 7 == 3 {
            key.extend_from_slice(&[0; 9]);
        }
        if n % 5 == 1 {
            key.extend_from_slice(b"/with/a/longer/tail");
        }
        key
    }

    /// A timestamp for that family.
    pub fn stamp(&self, family: usize, rng: &mut Rng) -> u64 {
        let family = &self.families[family];
        family.first_stamp + rng.range(0..12) * family.stamp_step
    }

    /// A range of keys, seldom empty.
    pub fn range(&self, rng: &mut Rng) -> KeyRange {
        let (a, b) = (self.key(rng), self.key(rng));
        match rng.range(0..8) {
            0 => KeyRange { start: a, end: None },
            1 => KeyRange { start: Vec::new(), end: Some(b) },
            2 if rng.one_in(4) => KeyRange::all(),
            2 => KeyRange::prefix(&a),
            _ if a <= b => KeyRange::new(a, b),
            _ => KeyRange::new(b, a),
        }
    }

    /// A value or an operand.
    pub fn value(&self, rng: &mut Rng) -> Vec<u8> {
        let most = if rng.one_in(30) { 8 * self.value_bytes } else { self.value_bytes };
        let len = rng.range(0..most as u64 + 1) as usize;
        // Half of the bytes compress.
        let mut value = rng.bytes(len.div_ceil(2));
        value.resize(len, b'.');
        value
    }

    /// A write.
    pub fn op(&self, rng: &mut Rng) -> Op {
        let family = if self.lopsided && rng.chance(90) { 0 } else { rng.index(self.families.len()) };
        let rules = &self.families[family].rules;
        let key = self.key(rng);
        let timestamp = if rules.explicit { self.stamp(family, rng) } else { 0 };
        match rng.range(0..100) {
            0..60 => Op::Put { family, key, timestamp, value: self.value(rng) },
            60..78 => {
                let all = rules.explicit && rng.chance(30);
                Op::Delete { family, key, timestamp: if all { u64::MAX } else { timestamp } }
            }
            78..92 => {
                let len = rng.range(0..20) as usize;
                Op::Merge { family, key, timestamp, operand: rng.bytes(len) }
            }
            _ => {
                let bounded = rules.explicit && rng.chance(60);
                let (mut from, mut to) = (0, u64::MAX);
                if bounded {
                    (from, to) = (self.stamp(family, rng), self.stamp(family, rng));
                    (from, to) = (from.min(to), from.max(to));
                }
                Op::DeleteRange { family, range: self.range(rng), from, to }
            }
        }
    }

    /// The writes of a batch; `number` is how many batches there are with it.
    pub fn batch(&self, rng: &mut Rng, number: usize) -> Vec<Op> {
        let writes = if rng.chance(50) { 1 } else { rng.range(2..8) };
        let mut ops: Vec<Op> = (0..writes).map(|_| self.op(rng)).collect();
        if self.marker {
            let value = (number as u64).to_le_bytes().to_vec();
            ops.push(Op::Put { family: 0, key: MARKER.to_vec(), timestamp: 0, value });
        }
        ops
    }
}

/// Another division of memory that these options allow: write memory and budget.
pub fn draw_memory(options: &Options, rng: &mut Rng) -> (u64, u64) {
    let most = if options.wal_bytes_max == 0 { u64::MAX } else { options.wal_bytes_max / 4 };
    let write_memory = most.min(*rng.pick(&[16 << 10, 24 << 10, 64 << 10]));
    (write_memory, write_memory + *rng.pick(&[0, 16 << 10, 1 << 20]))
}

/// The options with policies of memory, hot keys and values in the WAL drawn anew, all of which may change at
/// run time.
pub fn draw_mechanisms(rng: &mut Rng, options: &FamilyOptions) -> FamilyOptions {
    FamilyOptions {
        memtable_policy: (rng.pick(&[
            "none",
            "basic{memtables=2}",
            "eager",
            "adaptive{memtables=1, r=0.1}",
            "sketch",
        ]))
        .parse()
        .expect("the policy is written as it should be"),
        // Zero: every key that was written more than once.
        hot_keys: (rng.pick(&[
            "off",
            "factor{hot_factor=0}",
            "factor{hot_factor=1}",
            "factor",
            "top{percent=20}",
        ]))
        .parse()
        .expect("the rule is written as it should be"),
        wal_values: rng.one_in(2),
        ..options.clone()
    }
}

/// Gives the family other policies, and often another strategy, at run time.
pub fn change_options(family: &Family, rng: &mut Rng) -> siltstone::Result<()> {
    let options = draw_mechanisms(rng, &family.options());
    let strategy = if rng.one_in(3) { options.strategy.clone() } else { crate::strategies::draw(rng) };
    family.alter(FamilyOptions { strategy, ..options })
}

/// Gives the family another strategy at run time.
pub fn change_strategy(family: &Family, strategy: StrategyOptions) -> siltstone::Result<()> {
    family.alter(FamilyOptions { strategy, ..family.options() })
}

/// A world around a copied disk, with a clock and randomness of its own.
pub fn world_of(storage: SimStorage, now_us: u64, seed: u64) -> SimWorld {
    let clock = Arc::new(SimClock::new(now_us));
    storage.set_clock(clock.clone());
    SimWorld { storage, clock, random: Arc::new(SimRandom::new(seed)) }
}

/// An open database.
pub struct Subject {
    /// The directory of the database.
    pub world: SimWorld,
    /// Its workers.
    pub scheduler: Arc<SimScheduler>,
    /// Itself.
    pub db: Db,
    /// Its families as in the setup.
    pub families: Vec<Family>,
}

impl Subject {
    /// Opens it, creating it if there is none.
    pub fn open(setup: &Setup, world: &SimWorld) -> Result<Self, Error> {
        let scheduler = Arc::new(SimScheduler::for_world(world));
        let db = setup.builder(world).scheduler(scheduler.clone()).open(DIR)?;
        let families = setup.families.iter().map(|family| db.family(family.name));
        let families = families.collect::<Result<_, _>>()?;
        Ok(Self { world: world.clone(), scheduler, db, families })
    }

    /// Wall time.
    pub fn now_us(&self) -> u64 {
        self.world.clock.wall_us()
    }

    /// The engine's batch of these writes.
    pub fn batch_of(&self, setup: &Setup, ops: &[Op]) -> Batch {
        let mut batch = Batch::new();
        for op in ops {
            match op {
                Op::Put { family, key, timestamp, value } if setup.families[*family].rules.explicit => {
                    batch.put_at(&self.families[*family], key, Timestamp(*timestamp), value)
                }
                Op::Put { family, key, value, .. } => batch.put(&self.families[*family], key, value),
                Op::Delete { family, key, timestamp } if setup.families[*family].rules.explicit => {
                    batch.delete_at(&self.families[*family], key, Timestamp(*timestamp))
                }
                Op::Delete { family, key, .. } => batch.delete(&self.families[*family], key),
                Op::Merge { family, key, timestamp, operand } if setup.families[*family].rules.explicit => {
                    batch.merge_at(&self.families[*family], key, Timestamp(*timestamp), operand)
                }
                Op::Merge { family, key, operand, .. } => batch.merge(&self.families[*family], key, operand),
                Op::DeleteRange { family, range, from, to } => batch.delete_range_at::<&[u8]>(
                    &self.families[*family],
                    bounds(range),
                    Timestamp(*from),
                    Timestamp(*to),
                ),
            };
        }
        batch
    }

    /// Writes it in a transaction.
    pub fn write_in(&self, setup: &Setup, transaction: &mut Transaction, op: &Op) {
        match op {
            Op::Put { family, key, timestamp, value } if setup.families[*family].rules.explicit => {
                transaction.put_at(&self.families[*family], key, Timestamp(*timestamp), value);
            }
            Op::Put { family, key, value, .. } => transaction.put(&self.families[*family], key, value),
            Op::Delete { family, key, timestamp } if setup.families[*family].rules.explicit => {
                transaction.delete_at(&self.families[*family], key, Timestamp(*timestamp));
            }
            Op::Delete { family, key, .. } => transaction.delete(&self.families[*family], key),
            Op::Merge { family, key, timestamp, operand } if setup.families[*family].rules.explicit => {
                transaction.merge_at(&self.families[*family], key, Timestamp(*timestamp), operand);
            }
            Op::Merge { family, key, operand, .. } => {
                transaction.merge(&self.families[*family], key, operand)
            }
            Op::DeleteRange { family, range, from, to } => {
                let (from, to) = (Timestamp(*from), Timestamp(*to));
                transaction.delete_range_at(&self.families[*family], range.clone(), from, to);
            }
        }
    }

    /// Writes them as one batch.
    pub fn write(&self, setup: &Setup, ops: &[Op], durability: Durability) -> Result<SeqNo, Error> {
        self.db.write_with(&self.batch_of(setup, ops), durability)
    }

    /// Everything each family shows.
    pub fn contents(&self) -> Result<Vec<Vec<Row>>, Error> {
        self.families.iter().map(|family| rows(family.scan::<&[u8]>(..))).collect()
    }
}

/// The range as the engine's calls take it.
pub fn bounds(range: &KeyRange) -> (std::ops::Bound<&[u8]>, std::ops::Bound<&[u8]>) {
    use std::ops::Bound::{Excluded, Included, Unbounded};
    (Included(range.start.as_slice()), range.end.as_ref().map_or(Unbounded, |end| Excluded(end.as_slice())))
}

/// The rows that a scan yields.
pub fn rows(scan: impl Iterator<Item = Result<siltstone::Entry, Error>>) -> Result<Vec<Row>, Error> {
    scan.map(|entry| entry.map(|entry| (entry.key, entry.timestamp.0, entry.value.to_vec()))).collect()
}

/// The first difference of two lists of rows.
pub fn difference(expected: &[Row], found: &[Row]) -> String {
    let same = expected.iter().zip(found).take_while(|(a, b)| a == b).count();
    let name = |row: Option<&Row>| {
        row.map_or("nothing more".into(), |(key, timestamp, value)| {
            let shown = value[..value.len().min(24)].escape_ascii();
            format!("{}@{timestamp} = {} bytes {shown}", key.escape_ascii(), value.len())
        })
    };
    format!("row {same}: expected {}, found {}", name(expected.get(same)), name(found.get(same)))
}
