//! Siltstone itself: its defaults, and the same with something changed.
//!
//! A configuration's name is made of parts, applied in order: `none+defer` is our own baseline with one
//! mechanism on, `adaptive+r0.2+s2` a policy with two of its settings. A new setting is one line in `PARTS`.

use super::{CacheCount, DEFAULT_CONFIG, Named, Session, Store, Wanted, Written};
use crate::compactor::{Servers, pin_to_first};
use crate::failure::{Error, Result};
use crate::record::Durability;
use crate::slow::{Pace, Slow, Switch};
use siltstone::storage::Env;
use siltstone::strategy::{
    AutoOptions, ExploringOptions, GeometricOptions, HotFactor, HotKeys, HotTop, LeveledOptions,
    MemtablePolicy, RangemergeOptions, SizeTieredOptions, StrategyOptions, Victim,
};
use siltstone::{
    Batch, CacheFill, Compression, Db, Entry, Event, EventKind, Family, FamilyOptions, Options, Scan,
    SstableReads,
};
use siltstone_compactor::CompactorState;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

pub(super) const STORE: &str = "siltstone";
/// Memory of a compaction server: the output of a compaction of 2 GB as one step fits.
const SERVER_MEMORY: u64 = 6 << 30;

/// The settings of a database.
struct Setup {
    options: Options,
    /// Options of each family.
    family: FamilyOptions,
    /// Keys are spread over so many families.
    families: u64,
    /// Compaction servers that run its compactions.
    servers: u64,
    /// It has the first processor alone; with servers always.
    pinned: bool,
    /// Each read of a file takes longer.
    slow: Duration,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            options: Options::default(),
            family: FamilyOptions::default(),
            families: 1,
            servers: 0,
            pinned: false,
            slow: Duration::ZERO,
        }
    }
}

/// Sets something, given the number behind the part's name if it has one; says whether it had anything to
/// set.
type Change = fn(&mut Setup, f64) -> bool;

/// An example that ends with the part (a number in it says that the part takes one), what the example is, how
/// it is made.
const PARTS: &[(&str, &str, Change)] = &[
    (DEFAULT_CONFIG, "its defaults", |_, _| true),
    ("none", "with no mechanism on memory, log or level 0: our own baseline", |Setup { family, .. }, _| {
        let leveled = LeveledOptions { defer_below: None, ..LeveledOptions::default() };
        (family.memtable_policy, family.strategy) = (MemtablePolicy::None, StrategyOptions::Leveled(leveled));
        family.hot_keys = HotKeys::Off;
        true
    }),
    ("basic", "in-memory merging of indices only", |Setup { family, .. }, _| {
        family.memtable_policy = MemtablePolicy::Basic(Default::default());
        true
    }),
    ("eager", "in-memory compaction at every freeze", |Setup { family, .. }, _| {
        family.memtable_policy = MemtablePolicy::Eager(Default::default());
        true
    }),
    ("adaptive", "Accordion's adaptive in-memory compaction", |Setup { family, .. }, _| {
        family.memtable_policy = MemtablePolicy::Adaptive(Default::default());
        true
    }),
    (
        "adaptive+r0.2",
        "the same where the last compaction met more than 20 % redundant (R)",
        |Setup { family, .. }, share| {
            match &mut family.memtable_policy {
                MemtablePolicy::Adaptive(adaptive) => adaptive.r = share,
                _ => return false,
            }
            true
        },
    ),
    ("sketch", "in-memory compaction where sketches say that it pays", |Setup { family, .. }, _| {
        family.memtable_policy = MemtablePolicy::Sketch(Default::default());
        true
    }),
    ("basic+s2", "a pipeline of at most 2 memtables (S)", |Setup { family, .. }, memtables| {
        let bound = match &mut family.memtable_policy {
            MemtablePolicy::None => return false,
            MemtablePolicy::Basic(s) | MemtablePolicy::Eager(s) | MemtablePolicy::Sketch(s) => {
                &mut s.memtables
            }
            MemtablePolicy::Adaptive(adaptive) => &mut adaptive.memtables,
        };
        *bound = memtables as u32;
        memtables.fract() == 0.0
    }),
    ("basic+a2", "segments of 2 % of what a flush takes (A)", |Setup { family, .. }, percent| {
        family.active_memtable_share = percent / 100.0;
        true
    }),
    ("none+l4", "level 0 merges at 4 flushes", |Setup { family, .. }, flushes| {
        let StrategyOptions::Leveled(leveled) = &mut family.strategy else { return false };
        leveled.l0_runs_trigger = flushes as u64;
        flushes.fract() == 0.0
    }),
    ("none+tables2", "tables of 2 MiB", |Setup { family, .. }, mib| {
        let StrategyOptions::Leveled(leveled) = &mut family.strategy else { return false };
        leveled.sstable_bytes = bytes_of(mib);
        true
    }),
    (
        "none+defer",
        "level 0 waits, for at most 6 flushes, while under 40 % of it is redundant",
        |Setup { family, .. }, _| {
            let StrategyOptions::Leveled(leveled) = &mut family.strategy else { return false };
            *leveled = LeveledOptions { defer_below: Some(0.4), defer_runs_max: 6, ..leveled.clone() };
            true
        },
    ),
    ("auto", "level 0 is merged as late as reads allow", |Setup { family, .. }, _| {
        family.strategy = StrategyOptions::Auto(AutoOptions::default());
        true
    }),
    ("sma4", "size-tiered merging, 4 runs a level (k)", |Setup { family, .. }, k| {
        family.strategy =
            StrategyOptions::SizeTiered(SizeTieredOptions { runs: k as u64, ..Default::default() });
        k.fract() == 0.0
    }),
    ("nomerge", "flushes are never merged", |Setup { family, .. }, _| {
        family.strategy = StrategyOptions::SizeTiered(SizeTieredOptions {
            runs: SizeTieredOptions::NEVER,
            ..Default::default()
        });
        true
    }),
    (
        "range",
        "Rangemerge by the paper's rule: one file a range, the fullest range is flushed",
        |Setup { family, .. }, _| {
            let victim = Victim::MostBytes;
            family.strategy = StrategyOptions::Rangemerge(RangemergeOptions { victim, ..Default::default() });
            true
        },
    ),
    (
        "range+age",
        "the range with most bytes x age per byte to be written is flushed",
        |Setup { family, .. }, _| {
            let StrategyOptions::Rangemerge(rangemerge) = &mut family.strategy else { return false };
            rangemerge.victim = Victim::BytesAge;
            true
        },
    ),
    ("range+d4", "up to 4 small tables beside a range's file (deltas)", |Setup { family, .. }, deltas| {
        let StrategyOptions::Rangemerge(rangemerge) = &mut family.strategy else { return false };
        rangemerge.deltas_max = deltas as u64;
        deltas.fract() == 0.0
    }),
    ("range+f64", "files of at most 64 MiB (F)", |Setup { family, .. }, mib| {
        let StrategyOptions::Rangemerge(rangemerge) = &mut family.strategy else { return false };
        rangemerge.sstable_bytes = bytes_of(mib);
        true
    }),
    ("range+b64", "blocks of 64 KiB (C)", |Setup { family, .. }, kib| {
        family.block_bytes = (kib * 1024.0) as usize;
        kib >= 0.0625
    }),
    ("geo2", "geometric merging, levels grow by 2 (r)", |Setup { family, .. }, r| {
        family.strategy =
            StrategyOptions::Geometric(GeometricOptions { ratio: Some(r as u64), ..Default::default() });
        r.fract() == 0.0
    }),
    ("geop2", "geometric merging into at most 2 runs (p)", |Setup { family, .. }, p| {
        family.strategy =
            StrategyOptions::Geometric(GeometricOptions { runs: Some(p as u64), ..Default::default() });
        p.fract() == 0.0
    }),
    ("remerge", "every flush is merged with all data", |Setup { family, .. }, _| {
        family.strategy =
            StrategyOptions::Geometric(GeometricOptions { runs: Some(1), ..Default::default() });
        true
    }),
    ("exploring", "HBase's exploring selection", |Setup { family, .. }, _| {
        family.strategy = StrategyOptions::Exploring(ExploringOptions::default());
        true
    }),
    (
        "none+hot2",
        "keys updated more than 2 times the mean stay in memory at a flush",
        |Setup { family, .. }, hot_factor| {
            family.hot_keys = HotKeys::Factor(HotFactor { hot_factor });
            true
        },
    ),
    (
        "none+top1",
        "the most updated 1 % of the keys stay in memory at a flush",
        |Setup { family, .. }, percent| {
            family.hot_keys = HotKeys::Top(HotTop { percent });
            true
        },
    ),
    ("ahead", "log files written ahead of use", |Setup { options, .. }, _| {
        options.tuning.wal_prefill = true;
        true
    }),
    ("nofilter", "without filters", |Setup { family, .. }, _| {
        family.bloom_bits = 0;
        true
    }),
    ("uncompressed", "without compression", |Setup { family, .. }, _| {
        family.compression = Compression::None;
        true
    }),
    ("mapped", "without compression, tables read through mappings", |Setup { options, family, .. }, _| {
        family.compression = Compression::None;
        options.sstable_reads = SstableReads::Mapped;
        true
    }),
    ("cold", "compactions put nothing into the cache", |Setup { options, .. }, _| {
        options.cache_fill = CacheFill::None;
        true
    }),
    ("writethrough", "merges put all that they write into the cache", |Setup { options, .. }, _| {
        options.cache_fill = CacheFill::WriteThrough;
        true
    }),
    (
        "before",
        "merges read their whole output into the cache before they publish it",
        |Setup { options, .. }, _| {
            options.cache_fill = CacheFill::Before;
            true
        },
    ),
    (
        "warm",
        "compactions put into the cache what was read lately, step by step",
        |Setup { options, .. }, _| {
            options.cache_fill = CacheFill::Step;
            true
        },
    ),
    ("warm+fill8", "the same, at most 8 MiB a second", |Setup { options, .. }, mib| {
        options.tuning.cache_fill_rate = bytes_of(mib);
        true
    }),
    ("cold+onestep", "a compaction is one step", |Setup { options, .. }, _| {
        options.tuning.compaction_step_bytes = 1 << 50;
        true
    }),
    ("warm+step16", "steps of 16 MiB", |Setup { options, .. }, mib| {
        options.tuning.compaction_step_bytes = bytes_of(mib);
        true
    }),
    ("warm+rate32", "merges and flushes write at most 32 MiB a second", |Setup { options, .. }, mib| {
        options.rate_limit = bytes_of(mib);
        true
    }),
    (
        "warm+rest0",
        "compactions rest at most 0 times as long as they work while others read",
        |Setup { options, .. }, rest| {
            options.tuning.compaction_pacing = rest as u32;
            rest.fract() == 0.0
        },
    ),
    (
        "warm+auto8",
        "compactions write 8 MiB a second while nothing is owed, and faster with the debt",
        |Setup { options, .. }, mib| {
            options.rate_limit_auto = bytes_of(mib);
            true
        },
    ),
    (
        "range+abrupt",
        "writers are not slowed before a bound, but stopped there",
        |Setup { options, .. }, _| {
            options.tuning.slow_writers = false;
            true
        },
    ),
    (
        "none+flushth0",
        "a full log has memory flushed, however small (FLUSH_TH)",
        |Setup { options, .. }, share| {
            options.tuning.wal_flush_threshold = share;
            true
        },
    ),
    ("none+logtables", "values stay in the log at a flush where that pays", |Setup { family, .. }, _| {
        family.wal_values = true;
        true
    }),
    (
        "none+logtables+w2",
        "the same as long as compactions have written what came at most 2 times (W)",
        |Setup { family, .. }, times| {
            family.wal_values_write_amp_max = times;
            family.wal_values
        },
    ),
    ("families64", "keys spread over 64 families", |setup, families| {
        setup.families = families as u64;
        families.fract() == 0.0 && setup.families > 0
    }),
    (
        "remote",
        "blocks of compactions elsewhere are read from the memory there",
        |Setup { options, .. }, _| {
            options.cache_fill = CacheFill::Remote;
            true
        },
    ),
    ("warm+served1", "1 compaction servers run its merges, on another processor", |setup, servers| {
        setup.servers = servers as u64;
        servers.fract() == 0.0 && setup.servers > 0
    }),
    ("warm+pinned", "it has the first processor alone", |setup, _| {
        setup.pinned = true;
        true
    }),
    ("warm+slow20", "each read of a file takes 20 ms longer once it is loaded", |setup, millis| {
        setup.slow = Duration::from_secs_f64(millis / 1000.0);
        true
    }),
    ("none+cache512", "a block cache of 512 MiB whatever the workload's is", |Setup { options, .. }, mib| {
        options.memory_budget = options.write_memory + bytes_of(mib);
        true
    }),
];

fn bytes_of(mib: f64) -> u64 {
    (mib * f64::from(1 << 20)) as u64
}

/// The name of a part, and the number behind it.
fn split(part: &str) -> (&str, Option<f64>) {
    let name = part.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    (name, part[name.len()..].parse().ok())
}

/// The changes of a configuration.
fn change(config: &str, setup: &mut Setup) -> Result<(), String> {
    for part in config.split('+') {
        let (name, number) = split(part);
        let is_it = |example: &str| {
            let (known, takes) = split(example.rsplit('+').next().unwrap_or(example));
            known == name && takes.is_some() == number.is_some()
        };
        let known = PARTS.iter().find(|(example, ..)| is_it(example));
        let (.., set) = known.ok_or_else(|| format!("`{part}` is no part of a configuration"))?;
        if !set(setup, number.unwrap_or_default()) {
            return Err(format!("`{part}` has nothing to set here"));
        }
    }
    let valid = setup.family.validate().and_then(|()| setup.options.validate());
    valid.map_err(|e| e.to_string())
}

pub(super) fn named(config: &str) -> Result<Named, String> {
    let mut setup = Setup::default();
    change(config, &mut setup)?;
    let compression = if setup.family.compression == Compression::None { "none" } else { "lz4" };
    let of = PARTS.iter().find(|(example, ..)| *example == config);
    let what = of.map_or("a configuration made of parts", |(_, what, _)| what);
    let config = config.to_string().into();
    Ok(Named { store: STORE, config, compression, what, package: STORE, open })
}

pub(super) fn strategy(config: &str) -> Result<StrategyOptions, String> {
    let mut setup = Setup::default();
    change(config, &mut setup)?;
    Ok(setup.family.strategy)
}

/// The examples.
pub(super) fn all() -> Vec<Named> {
    PARTS.iter().filter_map(|(example, ..)| named(example).ok()).collect()
}

struct Siltstone {
    db: Db,
    servers: Option<Servers>,
    slow: Switch,
    /// At least one.
    families: Vec<Family>,
    setup: Setup,
    durability: siltstone::Durability,
    largest_merge_bytes: Arc<AtomicU64>,
}

fn open(wanted: &Wanted<'_>, config: &str) -> Result<Box<dyn Store>> {
    let memory = wanted.memory;
    // One budget for what the others give to memtables, a cache, and, beyond both, the metadata of SSTables.
    // Our write memory is a bound on all of it, where others bound a memtable and may hold two (RocksDB's
    // default) to four of them (tuned): we get two, so that a flush begins at the same size.
    let options = Options {
        memory_budget: 2 * memory.write + memory.cache,
        write_memory: 2 * memory.write,
        ..Options::default()
    };
    let mut setup = Setup { options, ..Setup::default() };
    change(config, &mut setup)?;
    // Whatever the configuration says.
    if wanted.direct_reads {
        setup.options.sstable_reads = SstableReads::Direct;
    }
    let largest_merge_bytes = Arc::new(AtomicU64::new(0));
    let largest = largest_merge_bytes.clone();
    // Before any thread is begun.
    if setup.pinned || setup.servers > 0 {
        pin_to_first()?;
    }
    let pace = Pace { by: setup.slow, rate: 0 };
    let servers = match setup.servers {
        0 => None,
        count => Some(Servers::start(count, wanted.dir, SERVER_MEMORY, pace)?),
    };
    let slow = Switch::default();
    let env = Slow::env(Env::local(), pace, &slow);
    let mut builder = Db::builder().env(env).options(setup.options.clone()).listener(move |event| {
        largest.fetch_max(moved_bytes(event), Ordering::Relaxed);
    });
    if let Some(servers) = &servers {
        builder = builder.offload(servers.compactors.clone());
    }
    let name = |n: u64| if n == 0 { siltstone::DEFAULT_FAMILY.to_owned() } else { format!("f{n}") };
    let builder =
        (0..setup.families).fold(builder, |builder, n| builder.family(&name(n), setup.family.clone()));
    let db = builder.open(wanted.dir)?;
    let durability = match wanted.durability {
        Durability::Sync => siltstone::Durability::Sync,
        Durability::Buffered | Durability::Volatile => siltstone::Durability::Buffered,
    };
    let families = (0..setup.families).map(|n| db.family(&name(n))).collect::<Result<_, _>>()?;
    Ok(Box::new(Siltstone { families, db, servers, slow, setup, durability, largest_merge_bytes }))
}

impl Siltstone {
    /// The family that has the key.
    fn family(&self, key: &[u8]) -> &Family {
        match &self.families[..] {
            [family] => family,
            families => {
                // By eight bytes: a hash by the byte would cost as much as a part of the put.
                let eight = |bytes: &[u8]| bytes.iter().fold(0, |all, byte| all << 8 | u64::from(*byte));
                let mixed = |hash: u64, bytes| (hash ^ eight(bytes)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                &families[(key.chunks(8).fold(0, mixed) >> 32) as usize % families.len()]
            }
        }
    }
}

/// The bytes of SSTables that a compaction, or a flush with input SSTables, read and wrote.
fn moved_bytes(event: &Event) -> u64 {
    let number = |name| event.numbers.get(name).copied().unwrap_or(0);
    match event.kind {
        EventKind::Compaction => number("bytes_in") + number("bytes"),
        EventKind::Flush => number("bytes_in").saturating_sub(number("memory_bytes")) + number("bytes"),
        _ => 0,
    }
}

impl Store for Siltstone {
    fn session(&self) -> Result<Box<dyn Session + '_>> {
        Ok(Box::new(Thread { store: self, batch: Batch::new() }))
    }

    fn settle(&self) -> Result<()> {
        self.db.flush()?;
        Ok(self.db.wait_idle()?)
    }

    fn slow_down(&self) -> Result<()> {
        self.slow.store(true, Ordering::Relaxed);
        self.servers.as_ref().map_or(Ok(()), Servers::slow_down)
    }

    fn drain(&self) -> Result<()> {
        Ok(self.db.wait_idle()?)
    }

    fn settings(&self) -> Vec<(&'static str, String)> {
        let Setup { options, family, .. } = &self.setup;
        let mut settings = vec![
            ("memory_budget", options.memory_budget.to_string()),
            ("write_memory", options.write_memory.to_string()),
        ];
        let (memory, strategy) = (family.memtable_policy.to_string(), family.strategy.to_string());
        settings.extend([("memtable_policy", memory), ("strategy", strategy)]);
        settings.push(("hot_keys", family.hot_keys.to_string()));
        let fill = format!("{:?}", options.cache_fill).to_lowercase();
        settings.push(("cache_fill", fill));
        settings.push(("compaction_pacing", options.tuning.compaction_pacing.to_string()));
        settings.push(("active_memtable_share", family.active_memtable_share.to_string()));
        if self.setup.families > 1 {
            settings.push(("families", self.setup.families.to_string()));
        }
        if let Some(servers) = &self.servers {
            let now = servers.compactors.servers();
            let sum = |of: fn(&CompactorState) -> u64| {
                now.iter().filter_map(|s| s.state.as_ref()).map(of).sum::<u64>()
            };
            settings.push(("offloaded_merges", sum(|state| state.done).to_string()));
            settings.push(("offloaded_bytes", sum(|state| state.bytes_written).to_string()));
            settings.push(("fetched_bytes", sum(|state| state.fetched_bytes).to_string()));
            settings.push(("filled_bytes", self.db.statistics().cache_filled_bytes.to_string()));
        }
        if options.tuning.wal_prefill {
            settings.push(("wal_prefill", "true".into()));
        }
        if family.bloom_bits != FamilyOptions::default().bloom_bits {
            settings.push(("bloom_bits", family.bloom_bits.to_string()));
        }
        settings
    }

    fn written(&self) -> Option<Written> {
        let now = self.db.statistics();
        Some(Written {
            flushed_bytes: now.flushed_bytes,
            compaction_written_bytes: now.compaction_written_bytes,
            wal_bytes: now.wal_bytes_written + now.wal_bytes_written_ahead,
            flushes: now.flushes,
            compactions: now.compactions,
        })
    }

    fn major(&self) -> Result<()> {
        Ok(self.families.iter().try_for_each(|family| family.compact::<&[u8]>(..))?)
    }

    fn runs(&self) -> Option<u64> {
        self.families.iter().map(|family| family.shape().runs().count() as u64).max()
    }

    fn largest_merge_bytes(&self) -> Option<u64> {
        Some(self.largest_merge_bytes.load(Ordering::Relaxed))
    }

    fn merging(&self) -> Option<bool> {
        Some(self.db.statistics().compactions_running > 0)
    }

    fn debt(&self) -> Option<u64> {
        Some(self.db.statistics().compaction_debt_bytes)
    }

    fn cache(&self) -> Option<CacheCount> {
        let now = self.db.statistics();
        Some(CacheCount { hits: now.cache_hits, misses: now.cache_misses })
    }
}

fn walk(
    entries: impl Iterator<Item = siltstone::Result<Entry>>,
    each: &mut dyn FnMut(&[u8], &[u8]) -> bool,
) -> Result<()> {
    for entry in entries {
        let entry = entry?;
        if !each(&entry.key, &entry.value) {
            break;
        }
    }
    Ok(())
}

/// The entries of all, in order of keys; an error comes first.
fn merged(scans: Vec<Scan>) -> impl Iterator<Item = siltstone::Result<Entry>> {
    let mut scans: Vec<_> = scans.into_iter().map(Iterator::peekable).collect();
    std::iter::from_fn(move || {
        let heads = scans.iter_mut().enumerate().filter_map(|(at, scan)| {
            let head = scan.peek()?.as_ref().map_or(&[][..], |entry| &entry.key);
            Some((head, at))
        });
        let (_, first) = heads.min()?;
        scans[first].next()
    })
}

struct Thread<'a> {
    store: &'a Siltstone,
    batch: Batch,
}

impl Session for Thread<'_> {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.store.family(key).put_with(key, value, self.store.durability)?;
        Ok(())
    }

    fn delete(&mut self, key: &[u8]) -> Result<()> {
        self.batch.clear();
        self.batch.delete(self.store.family(key), key);
        self.store.db.write_with(&self.batch, self.store.durability)?;
        Ok(())
    }

    fn get(&mut self, key: &[u8], seen: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let value = self.store.family(key).get(key)?;
        if let Some(value) = &value {
            seen(value);
        }
        Ok(value.is_some())
    }

    fn scan(&mut self, from: &[u8], each: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<()> {
        match &self.store.families[..] {
            [family] => {
                let mut cursor = family.scan(from..).cursor();
                let mut found = cursor.first()?;
                while found && cursor.entry().is_some_and(|entry| each(&entry.key, &entry.value)) {
                    found = cursor.next()?;
                }
                Ok(())
            }
            families => walk(merged(families.iter().map(|family| family.scan(from..)).collect()), each),
        }
    }

    fn put_many(&mut self, entries: &[(Vec<u8>, Vec<u8>)]) -> Result<()> {
        self.batch.clear();
        for (key, value) in entries {
            self.batch.put(self.store.family(key), key, value);
        }
        self.store.db.write_with(&self.batch, self.store.durability)?;
        Ok(())
    }

    fn get_many(&mut self, keys: &[Vec<u8>], seen: &mut dyn FnMut(usize, &[u8])) -> Result<()> {
        let [family] = &self.store.families[..] else {
            for (at, key) in keys.iter().enumerate() {
                self.get(key, &mut |value| seen(at, value))?;
            }
            return Ok(());
        };
        let values = family.multi_get(keys).map_err(Error::from)?;
        for (at, value) in values.iter().enumerate() {
            if let Some(value) = value {
                seen(at, value);
            }
        }
        Ok(())
    }
}
