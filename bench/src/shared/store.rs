//! The object store's process, and the process that is killed while it has a shared database open.

use super::Pairs;
use crate::compactor::pin_to_last;
use crate::drive::open::WRITTEN;
use crate::failure::Result;
use crate::measure::times;
use serde::{Deserialize, Serialize};
use siltstone::storage::{ObjectStore, PutOnce};
use siltstone::{Batch, Db, Options};
use siltstone_s3_memory::{Counts, Server};
use siltstone_storage_object::{ObjectStores, Settings};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Where the database lies, and where objects that are put to see how long that takes.
const DATABASE: &str = "s3://bucket/database";
const BARE: &str = "s3://bucket/bare";
const BARE_BYTES: usize = 1 << 10;
/// Such puts: at least so many, and more until enough or until it takes too long.
const BARE_PUTS: std::ops::Range<u64> = 20..500;
const BARE_SECONDS: u64 = 2;
const LIVE_VALUE_BYTES: usize = 1 << 10;

/// Requests of a store, and bytes of objects in them, both ways.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Requests {
    pub(super) puts: u64,
    pub(super) gets: u64,
    pub(super) all: u64,
    pub(super) bytes: u64,
}

impl Requests {
    fn of(counts: &Counts) -> Self {
        let Counts { puts, gets, heads, lists, deletes, bytes_in, bytes_out, .. } = *counts;
        Self { puts, gets, all: puts + gets + heads + lists + deletes, bytes: bytes_in + bytes_out }
    }

    pub(super) fn since(&self, earlier: &Self) -> Self {
        Self {
            puts: self.puts - earlier.puts,
            gets: self.gets - earlier.gets,
            all: self.all - earlier.all,
            bytes: self.bytes - earlier.bytes,
        }
    }
}

/// The store's process: says how it is reached; then each line says the latency from now on, in milliseconds,
/// and is answered by the requests so far. It ends with its standard input.
pub(crate) fn serve() -> Result<()> {
    pin_to_last()?;
    let server = Server::start(siltstone_s3_memory::Settings::default())?;
    println!("{}", serde_json::to_string(&server.variables())?);
    for line in std::io::stdin().lines() {
        server.set_latency(Duration::from_millis(line?.parse()?));
        println!("{}", serde_json::to_string(&Requests::of(&server.counts()))?);
    }
    Ok(())
}

/// An object store that runs as long as this.
pub(super) struct Store {
    process: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    latency_ms: u64,
    /// How it is reached.
    pub(super) variables: BTreeMap<String, String>,
    stores: ObjectStores,
}

impl Store {
    pub(super) fn start(latency_ms: u64) -> Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        let mut process = command.arg("shared-store").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let pipes = process.stdin.take().zip(process.stdout.take());
        let (input, output) = pipes.ok_or("the object store's process has no pipes")?;
        let mut output = BufReader::new(output);
        let variables: BTreeMap<String, String> = heard(&mut output)?;
        let settings = Settings { variables: variables.clone(), ..Settings::default() };
        let stores = ObjectStores::new(&settings)?;
        let mut store = Self { process, input, output, latency_ms, variables, stores };
        store.set_latency(latency_ms)?;
        Ok(store)
    }

    pub(super) fn set_latency(&mut self, latency_ms: u64) -> Result<()> {
        self.latency_ms = latency_ms;
        self.requests().map(|_| ())
    }

    /// The requests so far.
    pub(super) fn requests(&mut self) -> Result<Requests> {
        writeln!(self.input, "{}", self.latency_ms)?;
        heard(&mut self.output)
    }

    /// Where a shared database of this store lies.
    pub(super) fn database(&self) -> Result<Arc<dyn ObjectStore>> {
        Ok(self.stores.open(DATABASE)?)
    }

    /// The median time of a put of 1 KiB while there is no other, in microseconds.
    pub(super) fn put_us(&self) -> Result<f64> {
        let (place, mut took) = (self.stores.open(BARE)?, times(super::NANOSECONDS));
        let until = Instant::now() + Duration::from_secs(BARE_SECONDS);
        let is_over = |number| number >= BARE_PUTS.start && Instant::now() > until;
        for number in (0..BARE_PUTS.end).take_while(|number| !is_over(*number)) {
            let began = Instant::now();
            if place.put_once(&number.to_string(), &[7; BARE_BYTES])? != PutOnce::Mine {
                return Err("a new store has an object already".into());
            }
            took.saturating_record(began.elapsed().as_nanos() as u64);
        }
        Ok(took.value_at_quantile(0.5) as f64 / 1e3)
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The next line of the store's process.
fn heard<T: serde::de::DeserializeOwned>(output: &mut impl BufRead) -> Result<T> {
    let mut line = String::new();
    output.read_line(&mut line)?;
    serde_json::from_str(&line).map_err(|e| format!("the object store's process said {line:?}: {e}").into())
}

/// The live stream of a process that is killed before it flushed anything; the open after that reads it, at
/// the longest of the latencies.
#[derive(clap::Args, Clone, Copy, Debug)]
pub(crate) struct Live {
    /// MiB of stream, of values of 1 KiB, that an open after a kill reads, at the longest of the latencies; 0
    /// for not measuring it.
    #[arg(long = "live-mib", default_value_t = 256)]
    pub(super) mib: u64,
    /// Values of one write of it. With fewer it takes longer to write, and has more and smaller objects.
    #[arg(long = "live-batch", default_value_t = 8, value_parser = clap::value_parser!(u64).range(1..))]
    batch: u64,
}

impl Live {
    fn count(&self) -> u64 {
        (self.mib << 20) / LIVE_VALUE_BYTES as u64
    }

    /// Memory is flushed from half of its bound on, so this is four times what is written.
    pub(super) fn options(&self) -> Options {
        let write_memory = (4 * self.mib.max(16)) << 20;
        Options { write_memory, memory_budget: write_memory + (64 << 20), ..Options::default() }
    }

    /// Reads about so many of its values.
    pub(super) fn check(&self, db: &Db, reads: u64) -> Result<()> {
        let (pairs, mut key, mut value) = (Pairs::new(LIVE_VALUE_BYTES), Vec::new(), Vec::new());
        for number in (0..self.count()).step_by(self.count().div_ceil(reads) as usize) {
            pairs.write(number, &mut key, &mut value);
            if db.get(&key)?.as_deref() != Some(&value[..]) {
                return Err(format!("value {number} was acknowledged and is lost").into());
            }
        }
        Ok(())
    }
}

/// The process that is killed: writes to a shared database, in the store that its environment names, says so
/// and waits.
#[derive(clap::Args)]
pub(crate) struct Writer {
    #[arg(long)]
    dir: PathBuf,
    #[arg(long)]
    writers: u64,
    #[command(flatten)]
    live: Live,
}

impl Writer {
    /// The process itself.
    pub(super) fn command(store: &Store, dir: &Path, live: &Live, writers: u64) -> Result<Command> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("shared-writer").arg("--dir").arg(dir).args(["--writers", &writers.to_string()]);
        command.args(["--live-mib", &live.mib.to_string(), "--live-batch", &live.batch.to_string()]);
        command.envs(&store.variables);
        Ok(command)
    }

    pub(crate) fn run(self) -> Result<()> {
        let stores = ObjectStores::new(&Settings::default())?;
        let options = self.live.options();
        let db = Db::builder().shared(stores.open(DATABASE)?).options(options).open(&self.dir)?;
        let (family, pairs, next) = (db.default_family(), Pairs::new(LIVE_VALUE_BYTES), AtomicU64::new(0));
        let (count, together) = (self.live.count(), self.live.batch);
        let writer = || -> Result<()> {
            let (mut key, mut value) = (Vec::new(), Vec::new());
            loop {
                let first = next.fetch_add(together, Ordering::Relaxed);
                if first >= count {
                    return Ok(());
                }
                let mut batch = Batch::new();
                for number in first..count.min(first + together) {
                    pairs.write(number, &mut key, &mut value);
                    batch.put(&family, &key, &value);
                }
                db.write(&batch)?;
            }
        };
        std::thread::scope(|scope| -> Result<()> {
            let threads: Vec<_> = (0..self.writers).map(|_| scope.spawn(writer)).collect();
            for thread in threads {
                thread.join().map_err(|_| "a writer panicked")??;
            }
            Ok(())
        })?;
        println!("{WRITTEN}");
        std::io::stdin().read_line(&mut String::new())?;
        Err("nobody killed this process".into())
    }
}
