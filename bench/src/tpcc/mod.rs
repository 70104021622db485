//! TPC-C, embedded, each transaction a serializable one, or on a server: its mix as the paper on offloaded
//! compaction has it, no terminals and no think time. With a compaction of Stock or Order-Line in the middle
//! it is the experiment of that paper's Figure 8.
//!
//! One of a hundred New-Orders names an item that there is not. It ends before it writes anything, so that
//! nothing has to be taken back on a server either; the standard wants the database to take it back.
//!
//! `schema` are tables, keys and rows, `load` what they hold at first, `transactions` the five, `access` how
//! tables are reached, `served` those of a server, `check` what must hold afterwards.

mod access;
mod check;
mod load;
mod schema;
mod served;
mod transactions;

use crate::compactor::{Servers, pin_to_first};
use crate::failure::Result;
use crate::measure::times;
use crate::scratch::Scratch;
use crate::server::Given;
use crate::slow::Pace;
use crate::workload::random::Rng;
use access::{Embedded, Outcome, Tables};
use clap::{Args, ValueEnum};
use hdrhistogram::Histogram;
use schema::Table;
use serde::Serialize;
use served::Served;
use siltstone::{CacheFill, Db, Options, Tuning};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use transactions::{Kind, OldestWaiting, Planned, Size};

/// Rows loaded at once.
const LOADED: u32 = 1_000;

/// A table that is compacted while transactions run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Merged {
    Stock,
    OrderLine,
    /// A control: as much time as there is before and after it, and no compaction.
    Nothing,
}

impl Merged {
    fn table(self) -> Option<Table> {
        match self {
            Merged::Stock => Some(Table::Stock),
            Merged::OrderLine => Some(Table::OrderLine),
            Merged::Nothing => None,
        }
    }
}

/// Runs TPC-C.
#[derive(Args)]
pub(crate) struct Tpcc {
    /// Warehouses, of about 100 MB each.
    #[arg(long, default_value_t = 2)]
    warehouses: u32,
    /// The part of the standard's customers, orders and items that there are.
    #[arg(long, default_value_t = 1.0)]
    scale: f64,
    /// Threads, each at home in one warehouse.
    #[arg(long, default_value_t = 2)]
    threads: u32,
    /// How long transactions run; a third of it before the compaction, if there is one.
    #[arg(long, default_value_t = 30)]
    seconds: u64,
    /// On a server, by calls of single rows: a transaction is then not atomic, only each of its rows is.
    #[arg(long)]
    server: bool,
    /// Memory of the database.
    #[arg(long, default_value = "256M", value_parser = crate::text::size)]
    memory: u64,
    /// Compact this table after a third of the time, and report the times before, during and after it apart.
    #[arg(long)]
    merge: Option<Merged>,
    /// The compaction runs on a compaction server on the last processor, all else on the first.
    #[arg(long, requires = "merge")]
    elsewhere: bool,
    /// Everything runs on the first processor.
    #[arg(long, conflicts_with = "elsewhere")]
    first: bool,
    /// The blocks that compactions put into the cache.
    #[arg(long, default_value = "step", value_parser = crate::text::cache_fill)]
    cache_fill: CacheFill,
    /// Seed of the transactions' input.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Directory for the database, which is made anew and removed.
    #[arg(long, default_value = "bench-tpcc")]
    dir: PathBuf,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// Times of the transactions of a kind in a phase, in microseconds.
#[derive(Debug, Serialize)]
struct Told {
    phase: &'static str,
    transaction: &'static str,
    count: u64,
    mean_us: f64,
    p50_us: u64,
    p99_us: u64,
    longest_us: u64,
}

#[derive(Debug, Serialize)]
struct Report {
    /// By calls of single rows, or in serializable transactions.
    single_rows: bool,
    warehouses: u32,
    threads: u32,
    seconds: f64,
    /// New-Orders that were committed, a minute.
    tpmc: f64,
    /// Transactions, on a server rows, that were tried again because of others.
    conflicts: u64,
    rolled_back: u64,
    merge_seconds: Option<f64>,
    /// Compactions that a compaction server has done, those while the tables were loaded among them.
    merges_elsewhere: Option<u64>,
    transactions: Vec<Told>,
}

const PHASES: [&str; 3] = ["before", "during", "after"];

/// The record of one thread: latencies by phase and kind.
struct Seen {
    latencies: Vec<Histogram<u64>>,
    new_orders: u64,
    conflicts: u64,
    rolled_back: u64,
}

impl Seen {
    fn new() -> Self {
        let kinds = PHASES.len() * Kind::ALL.len();
        let latencies = (0..kinds).map(|_| times(1_000_000)).collect();
        Self { latencies, new_orders: 0, conflicts: 0, rolled_back: 0 }
    }

    fn add(&mut self, other: &Seen) -> Result<()> {
        for (mine, theirs) in self.latencies.iter_mut().zip(&other.latencies) {
            mine.add(theirs)?;
        }
        self.new_orders += other.new_orders;
        self.conflicts += other.conflicts;
        self.rolled_back += other.rolled_back;
        Ok(())
    }
}

impl Tpcc {
    pub(crate) fn run(self) -> Result<()> {
        if self.warehouses == 0 || self.threads == 0 || !(0.0..=1.0).contains(&self.scale) {
            return Err("tpcc wants at least one warehouse and thread, and a scale of at most 1".into());
        }
        let _scratch = Scratch::new(&self.dir);
        let servers = match self.elsewhere {
            true => {
                pin_to_first()?;
                Some(Servers::start(1, &self.dir, 4 << 30, Pace::default())?)
            }
            false => None,
        };
        if self.first {
            pin_to_first()?;
        }
        let mut report = match self.server {
            true => {
                let mut more = vec![
                    "--cache-fill".to_string(),
                    serde_json::to_value(self.cache_fill)?.as_str().unwrap_or_default().to_string(),
                ];
                for address in servers.iter().flat_map(|servers| &servers.addresses) {
                    more.extend(["--compactors".to_string(), address.clone()]);
                }
                let (memory, write_memory) = (self.memory, self.memory / 4);
                let given = Given {
                    memory,
                    write_memory,
                    on_first: self.elsewhere || self.first,
                    more,
                    ..Given::default()
                };
                let served = Served::start(&self.dir.join("db"), &given)?;
                let report = self.measure(&served)?;
                served.stop()?;
                report
            }
            false => {
                let options = Options {
                    memory_budget: self.memory,
                    write_memory: self.memory / 4,
                    cache_fill: self.cache_fill,
                    tuning: Tuning { compaction_pacing: 0, ..Tuning::default() },
                    ..Options::default()
                };
                let mut builder = Db::builder().options(options);
                if let Some(servers) = &servers {
                    builder = builder.offload(servers.compactors.clone());
                }
                let db = builder.open(self.dir.join("db"))?;
                let report = self.measure(&Embedded::new(&db)?)?;
                db.close()?;
                report
            }
        };
        if let Some(servers) = servers {
            report.merges_elsewhere = Some(servers.done());
        }
        match self.json {
            true => println!("{}", serde_json::to_string(&report)?),
            false => print!("{}", text(&report)),
        }
        Ok(())
    }

    fn measure(&self, tables: &dyn Tables) -> Result<Report> {
        let size = Size::new(self.warehouses, self.scale);
        load(tables, size)?;
        tables.settle()?;
        consistent(tables, size)?;
        let (phase, unique) = (AtomicU8::new(0), AtomicU64::new(2));
        let oldest = OldestWaiting::new(size, tables.is_atomic());
        let began = Instant::now();
        let end = began + Duration::from_secs(self.seconds);
        let (seen, merge_seconds) = std::thread::scope(|scope| -> Result<_> {
            let threads: Vec<_> = (0..self.threads)
                .map(|number| {
                    let shared = (&phase, &unique, &oldest);
                    scope.spawn(move || self.terminal(tables, size, number, end, shared))
                })
                .collect();
            let merge_seconds = match self.merge {
                None => None,
                Some(merged) => {
                    let third = Duration::from_secs(self.seconds) / 3;
                    std::thread::sleep(third);
                    phase.store(1, Ordering::Relaxed);
                    let began = Instant::now();
                    match merged.table() {
                        Some(table) => tables.merge(table)?,
                        None => std::thread::sleep(third),
                    }
                    phase.store(2, Ordering::Relaxed);
                    Some(began.elapsed().as_secs_f64())
                }
            };
            let mut seen = Seen::new();
            for thread in threads {
                seen.add(&thread.join().map_err(|_| "a thread ended by a panic")??)?;
            }
            Ok((seen, merge_seconds))
        })?;
        let seconds = began.elapsed().as_secs_f64();
        // Also of what is on disk.
        tables.settle()?;
        consistent(tables, size)?;
        let mut told = Vec::new();
        for (at, histogram) in
            seen.latencies.iter().enumerate().filter(|(_, histogram)| !histogram.is_empty())
        {
            let (phase, kind) = (at / Kind::ALL.len(), at % Kind::ALL.len());
            told.push(Told {
                phase: if self.merge.is_some() { PHASES[phase] } else { "" },
                transaction: Kind::ALL[kind].2,
                count: histogram.len(),
                mean_us: histogram.mean(),
                p50_us: histogram.value_at_quantile(0.5),
                p99_us: histogram.value_at_quantile(0.99),
                longest_us: histogram.max(),
            });
        }
        Ok(Report {
            single_rows: self.server,
            warehouses: self.warehouses,
            threads: self.threads,
            seconds,
            tpmc: seen.new_orders as f64 / seconds * 60.0,
            conflicts: seen.conflicts,
            rolled_back: seen.rolled_back,
            merge_seconds,
            merges_elsewhere: None,
            transactions: told,
        })
    }

    fn terminal(
        &self,
        tables: &dyn Tables,
        size: Size,
        number: u32,
        end: Instant,
        (phase, unique, oldest): (&AtomicU8, &AtomicU64, &OldestWaiting),
    ) -> Result<Seen> {
        let mut rng = Rng::new(self.seed, "terminal", u64::from(number));
        let (home, mut seen) = (number % size.warehouses + 1, Seen::new());
        loop {
            let began = Instant::now();
            if began >= end {
                return Ok(seen);
            }
            let planned = Planned::draw(size, home, unique.fetch_add(1, Ordering::Relaxed), &mut rng);
            let in_phase = usize::from(phase.load(Ordering::Relaxed));
            let (outcome, conflicts) = tables.run(&mut |access| planned.run(access, oldest))?;
            let at = in_phase * Kind::ALL.len() + planned.kind as usize;
            seen.latencies[at].saturating_record(began.elapsed().as_micros() as u64);
            seen.conflicts += conflicts;
            match outcome {
                Outcome::RolledBack => seen.rolled_back += 1,
                Outcome::Committed if planned.kind == Kind::NewOrder => seen.new_orders += 1,
                Outcome::Committed => {}
            }
        }
    }
}

/// Fills the tables, part by part.
fn load(tables: &dyn Tables, size: Size) -> Result<()> {
    let parts =
        || (1..=size.items).step_by(LOADED as usize).map(|from| from..(from + LOADED).min(size.items + 1));
    for items in parts() {
        tables.load(&mut |rows| load::items(rows, items.clone()))?;
    }
    for w in 1..=size.warehouses {
        tables.load(&mut |rows| load::warehouse(rows, size, w))?;
        for items in parts() {
            tables.load(&mut |rows| load::stock(rows, w, items.clone()))?;
        }
        for d in 1..=size.districts {
            tables.load(&mut |rows| load::district(rows, size, w, d))?;
        }
    }
    Ok(())
}

/// Looks at all tables.
fn consistent(tables: &dyn Tables, size: Size) -> Result<()> {
    tables
        .run(&mut |access| check::check(access, size, tables.is_atomic()).map(|()| Outcome::RolledBack))
        .map(drop)
}

fn text(report: &Report) -> String {
    let Report { warehouses, threads, seconds, tpmc, conflicts, rolled_back, .. } = report;
    let how = match report.single_rows {
        true => "on a server, by calls of single rows: no transaction is atomic",
        false => "embedded, in serializable transactions",
    };
    let mut text = format!(
        "{how}\n{warehouses} warehouses, {threads} threads, {seconds:.1} s: {tpmc:.0} tpmC, {conflicts} conflicts, {rolled_back} \
         rolled back\n"
    );
    if let Some(merges) = report.merges_elsewhere {
        text += &format!("{merges} compactions ran elsewhere\n");
    }
    if let Some(seconds) = report.merge_seconds {
        text += &format!("the compaction took {seconds:.1} s\n");
    }
    text += &format!(
        "{:<8}{:<14}{:>10}{:>12}{:>10}{:>10}{:>12}\n",
        "", "", "count", "mean us", "p50 us", "p99 us", "longest us"
    );
    for Told { phase, transaction, count, mean_us, p50_us, p99_us, longest_us } in &report.transactions {
        text += &format!(
            "{phase:<8}{transaction:<14}{count:>10}{mean_us:>12.0}{p50_us:>10}{p99_us:>10}{longest_us:>12}\n"
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use access::Access;
    use schema::{district, key};

    fn tables() -> (tempfile::TempDir, Embedded, Size) {
        let dir = tempfile::tempdir().unwrap();
        let db = Db::builder().open(dir.path().join("db")).unwrap();
        let (tables, size) = (Embedded::new(&db).unwrap(), Size::new(2, 0.01));
        load(&tables, size).unwrap();
        (dir, tables, size)
    }

    #[test]
    fn the_tables_are_consistent_before_and_after_all_transactions_of_two_terminals() {
        let (_dir, tables, size) = tables();
        consistent(&tables, size).unwrap();
        let oldest = OldestWaiting::new(size, true);
        let mut counts = [0; 5];
        let counted = std::sync::Mutex::new(&mut counts);
        std::thread::scope(|scope| {
            for number in 0..2_u32 {
                let (tables, counted, oldest) = (&tables, &counted, &oldest);
                scope.spawn(move || {
                    let mut rng = Rng::new(7, "terminal", u64::from(number));
                    for n in 0..500 {
                        let unique = u64::from(number) << 32 | n;
                        let planned = Planned::draw(size, number + 1, unique, &mut rng);
                        tables.run(&mut |access| planned.run(access, oldest)).unwrap();
                        counted.lock().unwrap()[planned.kind as usize] += 1;
                    }
                });
            }
        });
        consistent(&tables, size).unwrap();
        assert!(counts[0] > 350 && counts[1] > 350 && counts[2..].iter().all(|n| *n > 15), "{counts:?}");
    }

    #[test]
    fn what_is_not_consistent_is_found() {
        let (_dir, tables, size) = tables();
        let spoil = |change: &dyn Fn(&mut dyn Access) -> Result<()>| {
            tables.run(&mut |access| change(access).map(|()| Outcome::Committed)).unwrap();
            consistent(&tables, size).unwrap_err().to_string()
        };
        let at = key(&[1, 3]);
        let add = |number: usize, by: i64| {
            let at = at.clone();
            move |access: &mut dyn Access| {
                access.change(Table::District, &at, &mut |row| row.numbers[number] += by).map(drop)
            }
        };
        assert!(spoil(&add(district::YTD, 1)).contains("warehouse 1 took"));
        assert!(spoil(&add(district::NEXT_ORDER, 1)).contains("district 3 of warehouse 1: the last order"));
        assert!(
            spoil(&|access| access.take(Table::OrderLine, &key(&[1, 1, 1, 1])).map(drop))
                .contains("district 1")
        );
    }
}
