//! Whether compaction servers suffice (the pattern of Figure 9 of the paper on offloaded compaction): 5
//! stores without a server and on one, 10 stores on one and on two. `siltstone plan-compactors` says the same
//! by arithmetic and by simulation.
//!
//! Each store has all of its tables compacted once an interval, the stores one after another at equal
//! distances. Each server runs one compaction at a time and reads no faster than its rate, so that it is busy
//! without taking the processor from the stores: what runs out is servers, not cores. A compaction for which
//! no server has room is run by its store (where the paper's waits), so too few servers show by how many
//! compactions the stores run, and by what these cost their readers.

use crate::compactor::{Servers, pin_to_first};
use crate::failure::Result;
use crate::measure::{Usage, times};
use crate::scratch::Scratch;
use crate::slow::Pace;
use crate::workload::bytes::Values;
use crate::workload::random::Rng;
use hdrhistogram::Histogram;
use serde::Serialize;
use siltstone::offload::{Decision, Offer, Offload};
use siltstone::{Compression, DEFAULT_FAMILY, Db, FamilyOptions, Options, SstableReads, Tuning};
use siltstone_compactor::Compactors;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const VALUE_BYTES: usize = 1000;

/// Stores and servers, as the paper has them.
const CASES: [(u64, u64); 4] = [(5, 0), (5, 1), (10, 1), (10, 2)];

/// See the page above.
#[derive(clap::Args)]
pub(crate) struct Measured {
    /// Keys of each store, with values of 1,000 B.
    #[arg(long, default_value_t = 16_000)]
    keys: u64,
    /// Bytes that a compaction on a server reads a second.
    #[arg(long, default_value = "6M", value_parser = crate::text::size)]
    rate: u64,
    /// Seconds in which each store has one compaction.
    #[arg(long, default_value_t = 20)]
    interval: u64,
    /// Intervals.
    #[arg(long, default_value_t = 4)]
    intervals: u64,
    /// Gets a second, over all stores.
    #[arg(long, default_value_t = 2_000)]
    gets: u64,
    /// Directory for the databases, which is made anew and removed.
    #[arg(long, default_value = "bench-capacity")]
    dir: PathBuf,
    /// Print one JSON object a line.
    #[arg(long)]
    json: bool,
}

/// The result of one case.
#[derive(Debug, Serialize)]
struct Case {
    stores: u64,
    servers: u64,
    /// Compactions of whole stores, on servers and in the process of the stores.
    elsewhere: u64,
    here: u64,
    merge_mean_seconds: f64,
    merge_longest_seconds: f64,
    get_mean_us: f64,
    get_p99_us: f64,
    /// Processor time of the process of the stores, as a share of one core.
    stores_cpu: f64,
    servers_cpu: f64,
}

/// Counts where compactions go. Small ones do not count.
#[derive(Debug)]
struct Counted {
    of: Option<Arc<Compactors>>,
    least: u64,
    elsewhere: AtomicU64,
    here: AtomicU64,
}

impl Offload for Counted {
    fn decide(&self, offer: &Offer<'_>) -> Decision {
        let decision = self.of.as_ref().map_or_else(Decision::here, |of| of.decide(offer));
        if offer.spec.input_bytes() >= self.least {
            let count = if decision.run.is_some() { &self.elsewhere } else { &self.here };
            count.fetch_add(1, Ordering::Relaxed);
        }
        decision
    }
}

impl Measured {
    pub(crate) fn run(self) -> Result<()> {
        pin_to_first()?;
        if !self.json {
            println!(
                "{} keys of {VALUE_BYTES} B a store, merged every {} s for {} s; a server merges {:.1} MB/s, one store at a time",
                self.keys,
                self.interval,
                self.interval * self.intervals,
                self.rate as f64 / 1e6
            );
            println!(
                "{:>6} {:>8} {:>10} {:>6} {:>8} {:>10} {:>10} {:>10} {:>11} {:>12}",
                "stores",
                "servers",
                "elsewhere",
                "here",
                "merge s",
                "longest s",
                "get us",
                "get p99",
                "CPU stores",
                "CPU servers"
            );
        }
        for (stores, servers) in CASES {
            let scratch = Scratch::new(&self.dir);
            let case = self.case(stores, servers)?;
            drop(scratch);
            if self.json {
                println!("{}", serde_json::to_string(&case)?);
                continue;
            }
            println!(
                "{:>6} {:>8} {:>10} {:>6} {:>8.1} {:>10.1} {:>10.0} {:>10.0} {:>11.2} {:>12.2}",
                case.stores,
                case.servers,
                case.elsewhere,
                case.here,
                case.merge_mean_seconds,
                case.merge_longest_seconds,
                case.get_mean_us,
                case.get_p99_us,
                case.stores_cpu,
                case.servers_cpu
            );
        }
        Ok(())
    }

    fn case(&self, stores: u64, servers: u64) -> Result<Case> {
        let pace = Pace { by: Duration::ZERO, rate: self.rate };
        let running = Servers::start(servers, &self.dir, 1 << 30, pace)?;
        let counted = Arc::new(Counted {
            of: (servers > 0).then(|| running.compactors.clone()),
            least: self.keys * VALUE_BYTES as u64 / 4,
            elsewhere: AtomicU64::new(0),
            here: AtomicU64::new(0),
        });
        let mut opened = Vec::new();
        for store in 0..stores {
            opened.push(Store::open(&self.dir.join(store.to_string()), store, self.keys, counted.clone())?);
        }
        running.slow_down()?;
        counted.elsewhere.store(0, Ordering::Relaxed);
        counted.here.store(0, Ordering::Relaxed);
        let (began, before, servers_before) = (Instant::now(), Usage::now(), running.cpu());
        let (interval, is_over) = (Duration::from_secs(self.interval), AtomicBool::new(false));
        let (merges, gets) = std::thread::scope(|scope| -> Result<_> {
            let mut merging = Vec::new();
            for (store, number) in opened.iter().zip(0..) {
                let first = began + interval * number / stores as u32;
                merging.push(scope.spawn(move || self.merges(store, first, interval)));
            }
            let reading = scope.spawn(|| self.gets(&opened, &is_over));
            let merges =
                merging.into_iter().map(|thread| thread.join().map_err(|_| "a thread ended by a panic")?);
            let merges = merges.collect::<Result<Vec<Vec<f64>>>>();
            is_over.store(true, Ordering::Relaxed);
            Ok((merges?.concat(), reading.join().map_err(|_| "a thread ended by a panic")??))
        })?;
        let seconds = began.elapsed().as_secs_f64();
        Ok(Case {
            stores,
            servers,
            elsewhere: counted.elsewhere.load(Ordering::Relaxed),
            here: counted.here.load(Ordering::Relaxed),
            merge_mean_seconds: merges.iter().sum::<f64>() / merges.len() as f64,
            merge_longest_seconds: merges.iter().copied().fold(0.0, f64::max),
            get_mean_us: gets.mean() / 1e3,
            get_p99_us: gets.value_at_quantile(0.99) as f64 / 1e3,
            stores_cpu: Usage::now().since(&before).cpu.as_secs_f64() / seconds,
            servers_cpu: (running.cpu() - servers_before).as_secs_f64() / seconds,
        })
    }

    /// Updates a tenth of a store and compacts all of it, once an interval; the seconds of each compaction
    /// from when it was due.
    fn merges(&self, store: &Store, first: Instant, interval: Duration) -> Result<Vec<f64>> {
        let mut took = Vec::new();
        for n in 0..self.intervals {
            if n > 0 {
                store.write(10, n as u32 + 1)?;
            }
            let due = first + interval * n as u32;
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            store.db.default_family().compact::<&[u8]>(..)?;
            took.push(due.elapsed().as_secs_f64());
        }
        Ok(took)
    }

    /// Gets at the rate until all is over, each timed from when it was due, so that the time in which the
    /// thread wakes up counts. In nanoseconds.
    fn gets(&self, stores: &[Store], is_over: &AtomicBool) -> Result<Histogram<u64>> {
        let (mut rng, mut took) = (Rng::new(1, "gets", 0), times(1_000_000_000));
        let (began, apart) = (Instant::now(), Duration::from_secs(1) / self.gets.max(1) as u32);
        for n in 0_u32.. {
            if is_over.load(Ordering::Relaxed) {
                break;
            }
            let due = began + apart * n;
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            let store = &stores[rng.below(stores.len() as u64) as usize];
            let key = rng.below(store.keys).to_be_bytes();
            let found = store.db.get(key)?;
            took.saturating_record(due.elapsed().as_nanos() as u64);
            if found.is_none() {
                return Err("a key is missing".into());
            }
        }
        Ok(took)
    }
}

/// A database that stands for a store, or a region.
struct Store {
    db: Db,
    number: u64,
    keys: u64,
}

impl Store {
    /// Makes it, with all of its keys in tables.
    fn open(dir: &Path, number: u64, keys: u64, counted: Arc<Counted>) -> Result<Self> {
        let data = keys * VALUE_BYTES as u64;
        let options = Options {
            memory_budget: 2 * data + (16 << 20),
            write_memory: 8 << 20,
            sstable_reads: SstableReads::Direct,
            tuning: Tuning { compaction_pacing: 0, ..Tuning::default() },
            ..Options::default()
        };
        let family = FamilyOptions { compression: Compression::None, ..FamilyOptions::default() };
        let builder = Db::builder().options(options).offload(counted).family(DEFAULT_FAMILY, family);
        let store = Self { db: builder.open(dir)?, number, keys };
        store.write(1, 0)?;
        store.db.wait_idle()?;
        store.write(10, 1)?;
        Ok(store)
    }

    /// Writes each so-and-so-many-th key anew, and all that was written to tables.
    fn write(&self, step: u64, salt: u32) -> Result<()> {
        let (values, mut value) = (Values::new(self.number, VALUE_BYTES), Vec::new());
        for key in (0..self.keys).step_by(step as usize) {
            value.clear();
            values.write(key, salt, 0, VALUE_BYTES, &mut value);
            self.db.put(key.to_be_bytes(), &value)?;
        }
        Ok(self.db.flush()?)
    }
}
