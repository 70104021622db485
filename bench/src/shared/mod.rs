//! The cost of a shared database: puts of many writers, gets right after an open, an open after a kill, and
//! requests at rest; beside it puts into a local database, and SlateDB if asked (`peer`).
//!
//! The object store is a process of its own (`store`), new for each measurement, whose requests take as long
//! as asked. It has the last processor, what is measured the first. Rounds alternate: every second one goes
//! the other way round. Latencies are also told in puts: as multiples of what one put of 1 KiB takes that
//! nobody disturbs, measured on the same store right before.

#[cfg(feature = "slatedb")]
mod peer;
mod store;

pub(crate) use store::{Writer, serve};

use crate::compactor::pin_to_first;
use crate::compare::median;
use crate::drive::open::write_and_kill;
use crate::failure::Result;
use crate::measure::{Usage, times};
use crate::record::FigureRecord;
use crate::report::digits;
use crate::scratch::Scratch;
use crate::workload::bytes::{Form, Keys, Values};
use crate::workload::random::{Rng, mix};
use hdrhistogram::Histogram;
use serde::Serialize;
use siltstone::{Batch, Db, Durability, Options};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use store::{Live, Requests, Store};

const KEYS: Keys = Keys { form: Form::Scattered, bytes: 16 };
const NANOSECONDS: u64 = 1_000_000_000;
/// Keys of the database of which some are read after an open, those written together, and the reads.
const LOADED: u64 = 200_000;
const LOADED_TOGETHER: u64 = 1_000;
const READ: u64 = 10_000;
/// The latency that the bars are for, in milliseconds.
const BARS_MS: u64 = 20;

/// See the page above.
#[derive(clap::Args)]
pub(crate) struct Shared {
    /// Milliseconds that each request to the object store takes, with commas between them.
    #[arg(long, value_delimiter = ',', default_value = "0,5,20")]
    latency_ms: Vec<u64>,
    /// Seconds of each measurement of puts.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..))]
    seconds: u64,
    /// Threads that put, or get, at a time.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u64).range(1..=1_000))]
    writers: u64,
    /// Rounds; medians are printed.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Bytes of a value; keys have 16.
    #[arg(long, default_value_t = 100)]
    value_bytes: usize,
    #[command(flatten)]
    live: Live,
    /// Seconds in which requests of a database at rest are counted, once, at the longest of the latencies.
    #[arg(long, default_value_t = 0)]
    idle_seconds: u64,
    /// Measure SlateDB, too (feature `slatedb`).
    #[arg(long)]
    peer: bool,
    /// Directory for what lies here, which is made anew and removed.
    #[arg(long, default_value = "bench-shared")]
    dir: PathBuf,
    /// Print one JSON object a line, of every round.
    #[arg(long)]
    json: bool,
}

/// What is measured, and how; the latency of requests is in milliseconds.
type Measure = (&'static str, fn(&Shared, u64) -> Result<Figures>);

const BUFFERED: Measure = ("puts, local, `buffered`", |plan, _| plan.local(Durability::Buffered));
const SYNC: Measure = ("puts, local, `sync`", |plan, _| plan.local(Durability::Sync));
const SHARED: Measure = ("puts, shared", Shared::shared);
const GETS: Measure = ("gets after an open, shared", Shared::gets);
const OPEN: Measure = ("open after a kill, shared", Shared::opened);
const IDLE: Measure = ("at rest, shared", Shared::idle);
#[cfg(feature = "slatedb")]
const PEERS: &[Measure] = &peer::MEASURES;
#[cfg(not(feature = "slatedb"))]
const PEERS: &[Measure] = &[];

/// The figures of a measurement by the names of [`COLUMNS`].
type Figures = BTreeMap<&'static str, f64>;

/// What figures are named, here and in the table. Requests and bytes are the store's, bytes both ways.
const COLUMNS: &[(&str, &str)] = &[
    ("ops_s", "ops/s"),
    ("p50_us", "p50 us"),
    ("p99_us", "p99 us"),
    ("put_us", "a put us"),
    ("p50_puts", "p50 puts"),
    ("p99_puts", "p99 puts"),
    ("puts_op", "puts/op"),
    ("gets_op", "gets/op"),
    ("bytes_op", "bytes/op"),
    ("cpu_us_op", "CPU s/million ops"),
    ("seconds", "s"),
    ("requests", "requests"),
    ("mb", "MB"),
    ("requests_hour", "requests/h"),
];

/// One measurement of one round, or its medians over all. It has no latency if it asks no object store.
#[derive(Clone, Serialize)]
struct Record {
    kind: &'static str,
    what: &'static str,
    latency_ms: Option<u64>,
    round: u32,
    #[serde(flatten)]
    figures: Figures,
}

impl Record {
    fn is_of(&self, other: &Self) -> bool {
        (self.what, self.latency_ms) == (other.what, other.latency_ms)
    }
}

/// Writes the key and the value of a number.
struct Pairs {
    values: Values,
    value_bytes: usize,
}

impl Pairs {
    fn new(value_bytes: usize) -> Self {
        Self { values: Values::new(1, value_bytes), value_bytes }
    }

    fn write(&self, number: u64, key: &mut Vec<u8>, value: &mut Vec<u8>) {
        KEYS.write(number, key);
        self.values.write(number, mix(number) as u32, 0, self.value_bytes, value);
    }
}

/// The numbers of a writer's own keys, until then.
fn puts_until(writer: u64, until: Instant) -> impl Iterator<Item = u64> {
    (0..).map(move |n: u64| (writer << 40) | n).take_while(move |_| Instant::now() < until)
}

/// A reader's part of the numbers that are read.
fn reads_of(reader: u64, readers: u64) -> impl Iterator<Item = u64> {
    let mut rng = Rng::new(2, "shared", reader);
    (0..READ / readers + u64::from(reader < READ % readers)).map(move |_| rng.below(LOADED))
}

/// Operations that are over.
struct Done {
    took: Histogram<u64>,
    seconds: f64,
    cpu_seconds: f64,
}

impl Done {
    fn new(took: Histogram<u64>, began: Instant, used: &Usage) -> Self {
        let cpu = Usage::now().since(used).cpu;
        Self { took, seconds: began.elapsed().as_secs_f64(), cpu_seconds: cpu.as_secs_f64() }
    }

    /// The figures, with what was asked of the object store, and with latencies in puts if a put takes
    /// `put_us`.
    fn figures(&self, used: Option<Requests>, put_us: Option<f64>) -> Figures {
        let ops = self.took.len() as f64;
        let us = |quantile| self.took.value_at_quantile(quantile) as f64 / 1e3;
        let mut figures = Figures::from([
            ("ops_s", ops / self.seconds),
            ("p50_us", us(0.5)),
            ("p99_us", us(0.99)),
            ("cpu_us_op", self.cpu_seconds * 1e6 / ops),
        ]);
        if let Some(Requests { puts, gets, bytes, .. }) = used {
            let counts = [("puts_op", puts), ("gets_op", gets), ("bytes_op", bytes)];
            figures.extend(counts.map(|(name, count)| (name, count as f64 / ops)));
        }
        if let Some(put) = put_us {
            figures.extend([("put_us", put), ("p50_puts", us(0.5) / put), ("p99_puts", us(0.99) / put)]);
        }
        figures
    }
}

impl Shared {
    pub(crate) fn run(self) -> Result<()> {
        if self.peer && !cfg!(feature = "slatedb") {
            return Err("this build has no SlateDB: build it with --features slatedb".into());
        }
        pin_to_first()?;
        let mut records = Vec::new();
        for round in 1..=self.rounds {
            for ((what, measure), latency_ms) in self.measures(round) {
                let _scratch = Scratch::new(&self.dir);
                std::fs::create_dir_all(&self.dir)?;
                let figures = measure(&self, latency_ms.unwrap_or_default())?;
                let record = Record { kind: "shared", what, latency_ms, round, figures };
                if self.json {
                    println!("{}", serde_json::to_string(&record)?);
                }
                records.push(record);
            }
        }
        let rows = medians(&records);
        let bars = bars(&rows);
        if self.json {
            for bar in &bars {
                println!("{}", serde_json::to_string(bar)?);
            }
            return Ok(());
        }
        let Self { writers, value_bytes, seconds, rounds, .. } = self;
        println!("{writers} writers, values of {value_bytes} B, {seconds} s, medians of {rounds} rounds\n");
        println!("{}\n{}", table(&rows), bars_table(&bars));
        Ok(())
    }

    /// What a round measures, each with the latency of requests if there are any.
    fn measures(&self, round: u32) -> Vec<(Measure, Option<u64>)> {
        let mut all = vec![(BUFFERED, None), (SYNC, None)];
        for latency in &self.latency_ms {
            all.push((SHARED, Some(*latency)));
            if self.peer {
                let beside = std::iter::once(&GETS).chain(PEERS);
                all.extend(beside.map(|measure| (*measure, Some(*latency))));
            }
        }
        let longest = self.latency_ms.iter().max().copied();
        all.extend((self.live.mib > 0).then_some((OPEN, longest)));
        all.extend((self.idle_seconds > 0 && round == 1).then_some((IDLE, longest)));
        if round.is_multiple_of(2) {
            all.reverse();
        }
        all
    }

    fn home(&self) -> PathBuf {
        self.dir.join("db")
    }

    fn open(&self, store: &Store, options: Options) -> Result<Db> {
        Ok(Db::builder().shared(store.database()?).options(options).open(self.home())?)
    }

    fn local(&self, durability: Durability) -> Result<Figures> {
        let db = Db::open(self.home())?;
        let done = self.puts(&db, durability)?;
        db.close()?;
        Ok(done.figures(None, None))
    }

    fn shared(&self, latency_ms: u64) -> Result<Figures> {
        let mut store = Store::start(latency_ms)?;
        let put_us = store.put_us()?;
        let db = self.open(&store, Options::default())?;
        let before = store.requests()?;
        let done = self.puts(&db, Durability::Sync)?;
        let used = store.requests()?.since(&before);
        db.close()?;
        Ok(done.figures(Some(used), Some(put_us)))
    }

    fn gets(&self, latency_ms: u64) -> Result<Figures> {
        let mut store = Store::start(0)?;
        let db = self.open(&store, Options::default())?;
        let family = db.default_family();
        let (pairs, mut key, mut value) = (Pairs::new(self.value_bytes), Vec::new(), Vec::new());
        for first in (0..LOADED).step_by(LOADED_TOGETHER as usize) {
            let mut batch = Batch::new();
            for number in first..first + LOADED_TOGETHER {
                pairs.write(number, &mut key, &mut value);
                batch.put(&family, &key, &value);
            }
            db.write(&batch)?;
        }
        db.flush()?;
        db.wait_idle()?;
        db.close()?;
        drop((family, db));
        std::fs::remove_dir_all(self.home())?;
        store.set_latency(latency_ms)?;
        let db = self.open(&store, Options::default())?;
        let (family, before) = (db.default_family(), store.requests()?);
        let numbers = |reader| reads_of(reader, self.writers);
        let done = self.by_threads(numbers, |key, value| {
            let is_right = family.get(key)?.as_deref() == Some(value);
            is_right.then_some(()).ok_or_else(|| "a value is not as it was written".into())
        })?;
        let used = store.requests()?.since(&before);
        db.close()?;
        Ok(done.figures(Some(used), None))
    }

    /// Opens a database, in a directory that is new, whose process was killed.
    fn opened(&self, latency_ms: u64) -> Result<Figures> {
        let mut store = Store::start(latency_ms)?;
        write_and_kill(Writer::command(&store, &self.dir.join("killed"), &self.live, self.writers)?)?;
        let (before, began) = (store.requests()?, Instant::now());
        let db = self.open(&store, self.live.options())?;
        self.live.check(&db, 1)?;
        let seconds = began.elapsed().as_secs_f64();
        let used = store.requests()?.since(&before);
        self.live.check(&db, 1_000)?;
        db.close()?;
        Ok(Figures::from([
            ("seconds", seconds),
            ("requests", used.all as f64),
            ("mb", used.bytes as f64 / 1e6),
        ]))
    }

    fn idle(&self, latency_ms: u64) -> Result<Figures> {
        let mut store = Store::start(latency_ms)?;
        let db = self.open(&store, Options::default())?;
        db.put(b"key", b"value")?;
        db.flush()?;
        db.wait_idle()?;
        let before = store.requests()?;
        std::thread::sleep(Duration::from_secs(self.idle_seconds));
        let used = store.requests()?.since(&before);
        db.close()?;
        Ok(Figures::from([("requests_hour", used.all as f64 * 3_600.0 / self.idle_seconds as f64)]))
    }

    fn puts(&self, db: &Db, durability: Durability) -> Result<Done> {
        let (family, until) = (db.default_family(), Instant::now() + Duration::from_secs(self.seconds));
        self.by_threads(
            |writer| puts_until(writer, until),
            |key, value| {
                family.put_with(key, value, durability)?;
                Ok(())
            },
        )
    }

    /// Runs an operation on key and value of each of a thread's numbers, in as many threads as there are
    /// writers.
    fn by_threads<I: Iterator<Item = u64>>(
        &self,
        numbers: impl Fn(u64) -> I + Sync,
        operation: impl Fn(&[u8], &[u8]) -> Result<()> + Sync,
    ) -> Result<Done> {
        let pairs = Pairs::new(self.value_bytes);
        let thread = |thread: u64| -> Result<Histogram<u64>> {
            let (mut took, mut key, mut value) = (times(NANOSECONDS), Vec::new(), Vec::new());
            for number in numbers(thread) {
                pairs.write(number, &mut key, &mut value);
                let began = Instant::now();
                operation(&key, &value)?;
                took.saturating_record(began.elapsed().as_nanos() as u64);
            }
            Ok(took)
        };
        let (used, began) = (Usage::now(), Instant::now());
        let took = std::thread::scope(|scope| -> Result<Histogram<u64>> {
            let (mut all, thread) = (times(NANOSECONDS), &thread);
            let threads: Vec<_> =
                (0..self.writers).map(|number| scope.spawn(move || thread(number))).collect();
            for thread in threads {
                let took = thread.join().map_err(|_| "a thread panicked")??;
                all.add(took).map_err(|e| e.to_string())?;
            }
            Ok(all)
        })?;
        Ok(Done::new(took, began, &used))
    }
}

/// The medians of each measurement over the rounds.
fn medians(records: &[Record]) -> Vec<Record> {
    let mut rows: Vec<Record> = Vec::new();
    for record in records {
        if !rows.iter().any(|row| row.is_of(record)) {
            rows.push(record.clone());
        }
    }
    for row in &mut rows {
        let rounds: Vec<&Record> = records.iter().filter(|record| record.is_of(row)).collect();
        for (name, figure) in &mut row.figures {
            let mut values: Vec<f64> = rounds.iter().filter_map(|r| r.figures.get(name).copied()).collect();
            values.sort_by(f64::total_cmp);
            *figure = median(&values);
        }
    }
    rows
}

/// What must hold, as far as it was measured.
fn bars(rows: &[Record]) -> Vec<FigureRecord> {
    let ours = |(what, _): Measure, latency_ms: Option<u64>, figure: &str| {
        let row = rows.iter().find(|row| (row.what, row.latency_ms) == (what, latency_ms))?;
        row.figures.get(figure).copied()
    };
    let at_bars = |measure: Measure, figure: &str| ours(measure, Some(BARS_MS), figure);
    let rates = ours(SHARED, Some(0), "ops_s").zip(ours(SYNC, None, "ops_s"));
    let bars = [
        ("shared over `sync`, ops/s, at 0 ms", 0.7, true, rates.map(|(shared, sync)| shared / sync)),
        ("puts, shared, p50 in puts, at 20 ms", 1.3, false, at_bars(SHARED, "p50_puts")),
        ("puts, shared, p99 in puts, at 20 ms", 2.5, false, at_bars(SHARED, "p99_puts")),
        ("open after a kill, s, at 20 ms", 3.0, false, at_bars(OPEN, "seconds")),
    ];
    let record = |(id, bar, is_least, ours): (&str, f64, bool, Option<f64>)| {
        let ours = ours?;
        Some(FigureRecord {
            kind: "figure".into(),
            id: id.into(),
            paper: Some(bar),
            simulated: None,
            ours,
            goal: format!("at {} {}", if is_least { "least" } else { "most" }, digits(bar)),
            holds: if is_least { ours >= bar } else { ours <= bar },
        })
    };
    bars.into_iter().filter_map(record).collect()
}

fn markdown(heads: Vec<String>, lines: impl Iterator<Item = Vec<String>>) -> String {
    let rule = vec!["---".to_string(); heads.len()];
    [heads, rule].into_iter().chain(lines).map(|cells| format!("| {} |\n", cells.join(" | "))).collect()
}

/// The medians as a Markdown table, without the columns of which nothing was measured.
fn table(rows: &[Record]) -> String {
    let is_there = |name: &str| rows.iter().any(|row| row.figures.contains_key(name));
    let columns: Vec<_> = COLUMNS.iter().filter(|(name, _)| is_there(name)).collect();
    let heads = ["what", "latency ms"].into_iter().chain(columns.iter().map(|(_, head)| *head));
    let lines = rows.iter().map(|row| {
        let cell = |name: &str| row.figures.get(name).map_or_else(String::new, |figure| digits(*figure));
        let latency = row.latency_ms.map_or_else(String::new, |ms| ms.to_string());
        let named = [row.what.to_string(), latency].into_iter();
        named.chain(columns.iter().map(|(name, _)| cell(name))).collect()
    });
    markdown(heads.map(str::to_string).collect(), lines)
}

fn bars_table(bars: &[FigureRecord]) -> String {
    let heads = ["bar", "goal", "ours", ""].map(str::to_string).to_vec();
    let lines = bars.iter().map(|bar| {
        let told = if bar.holds { "ok" } else { "falls short" };
        vec![bar.id.clone(), bar.goal.clone(), digits(bar.ours), told.to_string()]
    });
    markdown(heads, lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_the_medians_of_its_rounds_and_a_bar_that_is_missed_falls_short() {
        let mut records = Vec::new();
        for (round, ops) in [(1, 80.0), (2, 60.0), (3, 90.0)] {
            let mut add = |(what, _): Measure, latency_ms, figures: &[(&'static str, f64)]| {
                let figures = figures.iter().copied().collect();
                records.push(Record { kind: "shared", what, latency_ms, round, figures });
            };
            add(SYNC, None, &[("ops_s", 100.0)]);
            add(SHARED, Some(0), &[("ops_s", ops)]);
            add(SHARED, Some(20), &[("ops_s", 1.0), ("p50_puts", 1.4)]);
        }
        let rows = medians(&records);
        assert_eq!(rows.len(), 3);
        assert_eq!(rows[1].figures["ops_s"], 80.0);
        let bars = bars(&rows);
        let told: Vec<_> = bars.iter().map(|bar| (bar.ours, bar.holds)).collect();
        assert_eq!(told, [(0.8, true), (1.4, false)], "what was not measured has no bar");
        let text = table(&rows);
        assert!(text.starts_with("| what | latency ms | ops/s | p50 puts |\n| --- |"), "{text}");
        assert!(text.contains("| puts, local, `sync` |  | 100 |  |\n"), "{text}");
        assert!(bars_table(&bars).ends_with("| at most 1.30 | 1.40 | falls short |\n"));
    }

    #[test]
    fn readers_share_the_reads_and_writers_have_keys_of_their_own() {
        assert_eq!((0..7).map(|reader| reads_of(reader, 7).count() as u64).sum::<u64>(), READ);
        let until = Instant::now() + Duration::from_secs(60);
        let first = |writer| puts_until(writer, until).take(3).collect::<Vec<_>>();
        assert!(first(0).iter().all(|number| !first(1).contains(number)));
    }
}
