//! The cost of a compaction to the database's process: run here, or by a compaction server on the other
//! processor; and how fast blocks are handed over.
//!
//! Each row is a database of its own, loaded alike: all keys, then a fifth again. A cache that holds it,
//! SSTables past the page cache. Then all is compacted, once, with nobody else at work. The hand-over is
//! timed from the first block asked for to the last one that is there, with what the database does to put
//! each into its cache.

use crate::compactor::{Servers, pin_to_first};
use crate::failure::Result;
use crate::measure::Usage;
use crate::scratch::Scratch;
use crate::slow::Pace;
use crate::workload::bytes::Values;
use siltstone::offload::{
    CompactionAnswer, Decision, Offer, Offload, OffloadedCompaction, RemoteCache, RemoteRead,
};
use siltstone::{CacheFill, Compression, Db, FamilyOptions, Options, SstableReads, TableId, Tuning};
use siltstone_compactor::Compactors;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const VALUE_BYTES: usize = 1000;
/// Part of the keys that is written again.
const UPDATED: u64 = 5;

#[derive(clap::Args)]
pub(crate) struct Costs {
    /// Folder for databases, each in a directory that is removed afterwards
    #[arg(long, default_value = "siltstone-bench-offload")]
    dir: PathBuf,
    /// Keys, with values of 1,000 B
    #[arg(long, default_value_t = 500_000)]
    keys: u64,
    /// Rounds; medians are printed
    #[arg(long, default_value_t = 3)]
    runs: u32,
}

/// A place of the compaction: this process or a server.
struct Way {
    name: &'static str,
    elsewhere: bool,
    fill: CacheFill,
    compression: Compression,
}

/// The result of one compaction.
#[derive(Clone, Copy, Default)]
struct Cost {
    seconds: f64,
    cpu: f64,
    written_mb: f64,
    read_mb: f64,
    fetched_mb: f64,
    /// MB in the file, and in the cache, a second.
    rate: f64,
    cached_rate: f64,
}

impl Costs {
    pub(crate) fn run(self) -> Result<()> {
        pin_to_first()?;
        let lz4 = Compression::default();
        let ways = [
            Way { name: "here, cache left alone", elsewhere: false, fill: CacheFill::None, compression: lz4 },
            Way {
                name: "elsewhere, cache left alone",
                elsewhere: true,
                fill: CacheFill::None,
                compression: lz4,
            },
            Way {
                name: "here, all into the cache",
                elsewhere: false,
                fill: CacheFill::WriteThrough,
                compression: lz4,
            },
            Way {
                name: "elsewhere, all into the cache",
                elsewhere: true,
                fill: CacheFill::WriteThrough,
                compression: lz4,
            },
            Way {
                name: "the same, tables not compressed",
                elsewhere: true,
                fill: CacheFill::WriteThrough,
                compression: Compression::None,
            },
        ];
        println!("{} keys of {VALUE_BYTES} B, medians of {} runs", self.keys, self.runs);
        println!(
            "{:<34} {:>8} {:>8} {:>10} {:>10} {:>10} {:>10} {:>10}",
            "a compaction of everything",
            "s",
            "CPU s",
            "written MB",
            "read MB",
            "fetched MB",
            "MB/s",
            "cached MB/s"
        );
        let mut costs = vec![Vec::new(); ways.len()];
        for run in 0..self.runs {
            for (way, costs) in ways.iter().zip(&mut costs) {
                let _scratch = Scratch::new(&self.dir);
                costs.push(self.cost(way, &self.dir, u64::from(run))?);
            }
        }
        for (way, costs) in ways.iter().zip(&costs) {
            let median = |of: fn(&Cost) -> f64| {
                let mut values: Vec<f64> = costs.iter().map(of).collect();
                values.sort_by(f64::total_cmp);
                values[values.len() / 2]
            };
            println!(
                "{:<34} {:>8.2} {:>8.2} {:>10.1} {:>10.1} {:>10.1} {:>10.0} {:>10.0}",
                way.name,
                median(|cost| cost.seconds),
                median(|cost| cost.cpu),
                median(|cost| cost.written_mb),
                median(|cost| cost.read_mb),
                median(|cost| cost.fetched_mb),
                median(|cost| cost.rate),
                median(|cost| cost.cached_rate),
            );
        }
        Ok(())
    }

    fn cost(&self, way: &Way, dir: &Path, seed: u64) -> Result<Cost> {
        let servers = match way.elsewhere {
            true => Some(Servers::start(1, dir, 4 << 30, Pace::default())?),
            false => None,
        };
        let timed = servers.as_ref().map(|servers| Arc::new(Timed::new(servers.compactors.clone())));
        let data = self.keys * VALUE_BYTES as u64;
        let options = Options {
            memory_budget: 3 * data + (128 << 20),
            write_memory: 64 << 20,
            cache_fill: way.fill,
            sstable_reads: SstableReads::Direct,
            tuning: Tuning { compaction_pacing: 0, ..Tuning::default() },
            ..Options::default()
        };
        let family = FamilyOptions { compression: way.compression, ..FamilyOptions::default() };
        let mut builder = Db::builder().options(options).family("default", family);
        if let Some(timed) = &timed {
            builder = builder.offload(timed.clone());
        }
        let db = builder.open(dir.join("db"))?;
        let values = Values::new(seed, VALUE_BYTES);
        let mut value = Vec::new();
        for (salt, step) in [(0, 1), (1, UPDATED), (2, 20 * UPDATED)] {
            for number in (0..self.keys).step_by(step as usize) {
                let number = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) % self.keys / step * step;
                value.clear();
                values.write(number, salt, 0, VALUE_BYTES, &mut value);
                db.put(number.to_be_bytes(), &value)?;
            }
            db.flush()?;
            db.wait_idle()?;
        }
        rustix::fs::sync();
        if let Some(timed) = &timed {
            *timed.read.lock().unwrap_or_else(|e| e.into_inner()) = Fetched::default();
        }
        let filled = db.statistics().cache_filled_bytes;
        let (began, before) = (Instant::now(), Usage::now());
        db.family("default")?.compact::<&[u8]>(..)?;
        let used = Usage::now().since(&before);
        let mb = |bytes: u64| bytes as f64 / 1e6;
        let mut cost = Cost {
            seconds: began.elapsed().as_secs_f64(),
            cpu: used.cpu.as_secs_f64(),
            written_mb: mb(used.device_write_bytes),
            read_mb: mb(used.device_read_bytes),
            ..Cost::default()
        };
        if let Some(timed) = &timed {
            let read = timed.read.lock().unwrap_or_else(|e| e.into_inner());
            cost.fetched_mb = mb(read.bytes);
            let seconds = read.seconds;
            if seconds > 0.0 {
                cost.rate = cost.fetched_mb / seconds;
                cost.cached_rate = mb(db.statistics().cache_filled_bytes - filled) / seconds;
            }
        }
        Ok(cost)
    }
}

/// Compaction servers of which fetches are timed.
#[derive(Debug)]
struct Timed {
    of: Arc<Compactors>,
    read: Arc<Mutex<Fetched>>,
}

#[derive(Debug, Default)]
struct Fetched {
    bytes: u64,
    /// Reads under way, and since when there were some.
    under_way: u64,
    since: Option<Instant>,
    /// During which there were some.
    seconds: f64,
}

impl Timed {
    fn new(of: Arc<Compactors>) -> Self {
        Self { of, read: Arc::default() }
    }
}

impl Offload for Timed {
    fn decide(&self, offer: &Offer<'_>) -> Decision {
        let mut decision = self.of.decide(offer);
        decision.run = decision.run.map(|run| -> Box<dyn OffloadedCompaction> {
            Box::new(TimedCompaction { run, read: self.read.clone() })
        });
        decision
    }
}

struct TimedCompaction {
    run: Box<dyn OffloadedCompaction>,
    read: Arc<Mutex<Fetched>>,
}

impl OffloadedCompaction for TimedCompaction {
    fn advance(&mut self) -> siltstone::Result<Option<CompactionAnswer>> {
        self.run.advance()
    }

    fn refused(&mut self, why: &str) -> siltstone::Error {
        self.run.refused(why)
    }

    fn remote_cache(&self) -> Option<Arc<dyn RemoteCache>> {
        let of = self.run.remote_cache()?;
        Some(Arc::new(TimedCache { of, read: self.read.clone() }))
    }
}

#[derive(Debug)]
struct TimedCache {
    of: Arc<dyn RemoteCache>,
    read: Arc<Mutex<Fetched>>,
}

impl RemoteCache for TimedCache {
    fn read(&self, table: TableId, parts: Vec<Range<u64>>) -> Box<dyn RemoteRead> {
        let mut read = self.read.lock().unwrap_or_else(|e| e.into_inner());
        read.under_way += 1;
        read.since.get_or_insert_with(Instant::now);
        Box::new(TimedRead { of: self.of.read(table, parts), read: self.read.clone() })
    }
}

struct TimedRead {
    of: Box<dyn RemoteRead>,
    read: Arc<Mutex<Fetched>>,
}

impl RemoteRead for TimedRead {
    fn advance(&mut self, wait: Duration) -> siltstone::Result<Option<Vec<u8>>> {
        let come = self.of.advance(wait)?;
        if let Some(bytes) = &come {
            self.read.lock().unwrap_or_else(|e| e.into_inner()).bytes += bytes.len() as u64;
        }
        Ok(come)
    }
}

impl Drop for TimedRead {
    fn drop(&mut self) {
        let mut read = self.read.lock().unwrap_or_else(|e| e.into_inner());
        read.under_way -= 1;
        if read.under_way == 0
            && let Some(since) = read.since.take()
        {
            read.seconds += since.elapsed().as_secs_f64();
        }
    }
}
