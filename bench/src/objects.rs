//! The cost of SSTables in an object store: the same work on a directory, in the object store, and there with
//! a disk cache.
//!
//! Each is a database of its own, made anew: all keys are written in random order, a fifth of them again, and
//! compacted into one run; the database is opened again, keys are read at random with a block cache that
//! holds a sixteenth of the data, the same keys once more, and everything is scanned. The disk cache holds
//! everything, so that what is read once more comes from there. Every value is checked.
//! At last a shared database there is taken over and read.

use crate::failure::Result;
use crate::measure::times;
use crate::scratch::Scratch;
use crate::workload::bytes::Values;
use crate::workload::random::Rng;
use hdrhistogram::Histogram;
use serde::Serialize;
use siltstone::{Db, Options, SstableReads, Tuning};
use siltstone_storage_object::{DiskCache, ObjectStores, Settings};
use std::path::{Path, PathBuf};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

const VALUE_BYTES: usize = 1000;
/// A prime: keys come in an order that looks random, each once.
const SPREAD: u64 = 2_654_435_761;

/// See the page above.
#[derive(clap::Args)]
pub(crate) struct Objects {
    /// Location of SSTables, such as `s3://bucket/bench`, each run into folders of its own. Credentials and
    /// endpoint come from the environment (`AWS_ENDPOINT_URL`, `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`,
    /// `AWS_REGION`).
    #[arg(long)]
    place: String,
    /// Keys, with values of 1,000 B.
    #[arg(long, default_value_t = 200_000)]
    keys: u64,
    /// Keys that are read.
    #[arg(long, default_value_t = 2_000)]
    gets: u64,
    /// Directory for what lies here, which is made anew and removed.
    #[arg(long, default_value = "bench-objects")]
    dir: PathBuf,
    /// Print one JSON object a line.
    #[arg(long)]
    json: bool,
}

/// The result of one place.
#[derive(Debug, Serialize)]
struct Told {
    place: &'static str,
    load_mb_s: f64,
    merge_mb_s: f64,
    open_seconds: f64,
    get_mean_us: f64,
    get_p99_us: f64,
    /// Latencies of the gets when they are repeated.
    again_mean_us: f64,
    again_p99_us: f64,
    scan_mb_s: f64,
}

impl Objects {
    pub(crate) fn run(self) -> Result<()> {
        if self.keys == 0 || self.keys.is_multiple_of(SPREAD) || self.keys > u64::from(u32::MAX) {
            return Err(format!("{} keys cannot be measured", self.keys).into());
        }
        if !self.json {
            println!("{} keys of {VALUE_BYTES} B, {} gets", self.keys, self.gets);
            println!(
                "{:<24}{:>10}{:>11}{:>8}{:>9}{:>9}{:>10}{:>10}{:>10}",
                "",
                "load MB/s",
                "merge MB/s",
                "open s",
                "get us",
                "p99 us",
                "again us",
                "p99 us",
                "scan MB/s"
            );
        }
        for (name, is_far, has_disk) in
            [("a directory", false, false), ("object store", true, false), ("with a disk cache", true, true)]
        {
            let told = self.measured(name, is_far, has_disk)?;
            match self.json {
                true => println!("{}", serde_json::to_string(&told)?),
                false => println!(
                    "{name:<24}{:>10.1}{:>11.1}{:>8.2}{:>9.0}{:>9.0}{:>10.0}{:>10.0}{:>10.1}",
                    told.load_mb_s,
                    told.merge_mb_s,
                    told.open_seconds,
                    told.get_mean_us,
                    told.get_p99_us,
                    told.again_mean_us,
                    told.again_p99_us,
                    told.scan_mb_s
                ),
            }
        }
        self.check_shared()
    }

    /// A place in the object store that nothing used before.
    fn new_place(&self, name: &str) -> Result<String> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
        Ok(format!("{}/{now}-{name}", self.place.trim_end_matches('/')))
    }

    /// A shared database there is written, taken over by a second open, and read.
    fn check_shared(&self) -> Result<()> {
        let _scratch = Scratch::new(&self.dir);
        std::fs::create_dir_all(&self.dir)?;
        let stores = ObjectStores::new(&Settings::default())?;
        let shared = self.new_place("shared")?;
        let open = |home: &str| {
            let options = Options { shared: Some((&shared).into()), ..Options::default() };
            let stores = stores.clone();
            let builder = Db::builder().object_stores(move |location| stores.open(location)).options(options);
            builder.open(self.dir.join(home))
        };
        let one = open("one")?;
        one.put(b"river", b"silt")?;
        let two = open("two")?;
        if one.put(b"river", b"late").is_ok() {
            return Err("a shared database that was taken over still took a write".into());
        }
        drop(one);
        two.put(b"sea", b"sand")?;
        two.close()?;
        let three = open("three")?;
        for (key, value) in [("river", "silt"), ("sea", "sand")] {
            if three.get(key.as_bytes())?.as_deref() != Some(value.as_bytes()) {
                return Err(format!("{key} of the shared database is not as it was written").into());
            }
        }
        Ok(three.close()?)
    }

    fn measured(&self, name: &'static str, is_far: bool, has_disk: bool) -> Result<Told> {
        let _scratch = Scratch::new(&self.dir);
        std::fs::create_dir_all(&self.dir)?;
        let data = self.keys * VALUE_BYTES as u64;
        let disk = has_disk.then(|| DiskCache { dir: self.dir.join("cache"), bytes: 2 * data + (64 << 20) });
        let stores = ObjectStores::new(&Settings { disk, ..Settings::default() })?;
        let place = self.new_place(if has_disk { "cached" } else { "bare" })?;
        let tables = is_far.then_some(place);
        let home = self.dir.join("db");
        let mb = |bytes: u64| bytes as f64 / 1e6;
        let db = open(&home, tables.as_deref(), &stores, data)?;
        let (values, mut value) = (Values::new(1, VALUE_BYTES), Vec::new());
        let mut written = |number: u64| -> Vec<u8> {
            value.clear();
            values.write(number, 0, 0, VALUE_BYTES, &mut value);
            value.clone()
        };
        let began = Instant::now();
        for n in 0..self.keys {
            let number = n * SPREAD % self.keys;
            db.put(number.to_be_bytes(), written(number))?;
        }
        db.flush()?;
        db.wait_idle()?;
        let load_mb_s = mb(data) / began.elapsed().as_secs_f64();
        // So that all of it has something to be compacted with.
        for number in (0..self.keys).step_by(5) {
            db.put(number.to_be_bytes(), written(number))?;
        }
        db.flush()?;
        let began = Instant::now();
        db.default_family().compact::<&[u8]>(..)?;
        let merge_mb_s = mb(data) / began.elapsed().as_secs_f64();
        db.close()?;
        let began = Instant::now();
        let db = open(&home, tables.as_deref(), &stores, data)?;
        let open_seconds = began.elapsed().as_secs_f64();
        let mut gets = || -> Result<Histogram<u64>> {
            let (mut rng, mut took) = (Rng::new(2, "objects", 0), times(1_000_000_000));
            for _ in 0..self.gets {
                let number = rng.below(self.keys);
                let began = Instant::now();
                let found = db.get(number.to_be_bytes())?;
                took.saturating_record(began.elapsed().as_nanos() as u64);
                if found.as_deref() != Some(&written(number)[..]) {
                    return Err(format!("key {number} is not as it was written").into());
                }
            }
            Ok(took)
        };
        let (first, again) = (gets()?, gets()?);
        let began = Instant::now();
        let rows = db.scan::<&[u8]>(..).try_fold(0, |rows, row| row.map(|_| rows + 1))?;
        if rows != self.keys {
            return Err(format!("{rows} rows of {}", self.keys).into());
        }
        let scan_mb_s = mb(data) / began.elapsed().as_secs_f64();
        // What it has put into the object store goes, but for the file that says whose place it was.
        db.default_family().delete_range::<&[u8]>(..)?;
        db.flush()?;
        db.default_family().compact::<&[u8]>(..)?;
        db.close()?;
        let us = |histogram: &Histogram<u64>| {
            (histogram.mean() / 1e3, histogram.value_at_quantile(0.99) as f64 / 1e3)
        };
        let ((get_mean_us, get_p99_us), (again_mean_us, again_p99_us)) = (us(&first), us(&again));
        Ok(Told {
            place: name,
            load_mb_s,
            merge_mb_s,
            open_seconds,
            get_mean_us,
            get_p99_us,
            again_mean_us,
            again_p99_us,
            scan_mb_s,
        })
    }
}

fn open(home: &Path, tables: Option<&str>, stores: &ObjectStores, data: u64) -> Result<Db> {
    let write_memory = (data / 16).max(4 << 20);
    let options = Options {
        sstable_store: tables.map(Into::into),
        memory_budget: 2 * write_memory,
        write_memory,
        sstable_reads: SstableReads::Direct,
        tuning: Tuning { compaction_pacing: 0, ..Tuning::default() },
        ..Options::default()
    };
    let stores = stores.clone();
    Ok(Db::builder().object_stores(move |location| stores.open(location)).options(options).open(home)?)
}
