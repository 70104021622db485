//! siltstone-bench: measures Siltstone, and beside it the stores it is compared with.
//!
//! - `workload/`: what is done, as streams of operations. `store/`: to whom. `drive/`: running it in this
//!   process.
//! - `measure`: what the kernel knows of a process. `limits/`: what the machine can do without any store.
//! - `child`: the process that measures. `compare`: the processes started one after another, and their
//!   ratios. `paper`: the same for what papers measured, with their figures beside ours. `reader_latency`:
//!   what a compaction may let readers feel. `tpcc`: TPC-C, apart from the workloads, as it is transactions.
//!   `capacity`: whether compaction servers suffice. `objects`: what tables in an object store cost.
//!   `restores`: what a restore costs that copies tables, or shares them. `shared`: what a shared database
//!   costs. `scaling`: what ten times as many
//!   of something cost. `strategies`: no measurement, but what a simulation says of every method.
//! - `server/`: the server, measured from outside. `compactor`: compaction servers for what is measured;
//!   `offload`: what a compaction costs the database's process, here or there.
//! - `record`: what a measurement is once it is over. `report/`: records as text and as a page. `scratch`: a
//!   directory for one. `slow`: storage of which reads take longer. `text`: sizes on the command line.
//!   `failure`: how a measurement fails.

mod capacity;
mod child;
mod compactor;
mod compare;
mod drive;
mod failure;
mod limits;
mod measure;
mod objects;
mod offload;
mod paper;
mod reader_latency;
mod record;
mod report;
mod restores;
mod scaling;
mod scratch;
mod server;
mod shared;
mod slow;
mod store;
mod strategies;
mod text;
mod tpcc;
mod workload;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser, Subcommand};
use compare::{How, Plan};
use paper::Paper;
use record::RunRecord;
use report::Records;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

/// Measures Siltstone, and beside it the stores it is compared with.
///
/// Each measurement is a process of its own with a directory of its own. Runs end settled: memory written out
/// and all compactions done, with the wait, its CPU time and its bytes counted. Exit codes: 0 fine, 1 a
/// measurement failed or a store answered wrongly, 2 wrong usage.
#[derive(Parser)]
#[command(name = "siltstone-bench", version, disable_help_subcommand = true, after_help = workload::help())]
struct Cli {
    #[command(subcommand)]
    command: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Runs workloads on stores and prints a record of each.
    #[command(after_help = "Examples:
  siltstone-bench run --workload fillrandom,readrandom,ycsb-a
  siltstone-bench run --workload ws1:r50 --stores siltstone,rocksdb:tuned --keys 100000 --ops 100000 --json")]
    Run(Plan),
    /// Runs workloads on several stores in turns and prints the ratios of the first to each other one.
    #[command(after_help = "Examples:
  siltstone-bench compare --workload fillrandom,overwrite --stores siltstone,rocksdb:tuned --runs 3
  siltstone-bench compare --workload ws1 --stores siltstone,rocksdb:tuned --runs 3 --json
  siltstone-bench compare --workload ws1 --before ../before/target/release/siltstone-bench --runs 5
  siltstone-bench compare --matrix --runs 3 --html matrix.html --markdown matrix.md
  siltstone-bench compare --workload unseen --stores siltstone,rocksdb:tuned,rocksdb:universal --json > unseen.jsonl")]
    Compare(Plan),
    /// Runs a paper's own comparisons on ours and prints its figures beside ours.
    #[command(after_help = "Examples:
  siltstone-bench paper accordion --scale 0.1 --runs 3
  siltstone-bench paper triad --json --html triad.html
  siltstone-bench paper rangemerge --runs 3 --html rangemerge.html
  siltstone-bench paper offload --local --scale 0.1
  siltstone-bench paper all --quick --html papers.html --markdown papers.md")]
    Paper(Paper),
    /// Simulates every strategy with data of ten, a hundred and a thousand times the memory, and draws what
    /// each costs.
    Strategies {
        /// File for the drawing.
        #[arg(long)]
        svg: Option<PathBuf>,
    },
    /// Measures the machine's own limits, in about ten seconds.
    Limits {
        /// Directory whose file system is measured.
        #[arg(long, default_value = ".")]
        dir: PathBuf,
        /// Print one JSON object a line instead of a table.
        #[arg(long)]
        json: bool,
    },
    /// Prints the records of files as tables, and writes them as a page, as Markdown or as a plot.
    #[command(after_help = "Examples:
  siltstone-bench report records.jsonl --html records.html
  siltstone-bench report two-rounds.jsonl third-round.jsonl --markdown matrix.md
  siltstone-bench report unseen.jsonl --svg unseen.svg")]
    Report {
        /// Records, one JSON object a line; of several files they count together.
        #[arg(required = true)]
        files: Vec<PathBuf>,
        /// File for the page, which needs no other.
        #[arg(long)]
        html: Option<PathBuf>,
        /// File for the matrix, its bars and the figures of papers as Markdown tables.
        #[arg(long)]
        markdown: Option<PathBuf>,
        /// File for a plot of latency over time around a compaction, of the first workload that has one in
        /// its middle (unseen).
        #[arg(long)]
        svg: Option<PathBuf>,
    },
    /// Measures the server beside an empty service of the same messages, or what else its commands say.
    #[command(after_help = "Examples:
  siltstone-bench server
  siltstone-bench server --rows 1000000 --seconds 10 --runs 5
  siltstone-bench server beside --rate 10000
  siltstone-bench server regions --count 1000")]
    Server(server::Server),
    /// Measures what a compaction costs here, and what where a compaction server runs it; and how fast blocks
    /// are handed over.
    #[command(after_help = "Examples:
  siltstone-bench offload
  siltstone-bench offload --keys 2000000 --runs 5")]
    Offload(offload::Costs),
    /// Measures what tables in an object store cost: loading, compacting, opening, gets and scans, beside a
    /// directory.
    #[command(after_help = "Examples:
  siltstone-bench objects --place s3://bucket/bench
  AWS_ENDPOINT_URL=http://127.0.0.1:9000 siltstone-bench objects --place s3://bucket/bench --keys 1000000")]
    Objects(objects::Objects),
    /// Measures what restoring a backup into a database costs, with its tables copied and shared.
    #[command(after_help = "Examples:
  siltstone-bench restores
  siltstone-bench restores --keys 2000000 --table-bytes 1MiB")]
    Restores(restores::Restores),
    /// Measures what a shared database costs: puts of many writers, an open after a kill and requests, beside
    /// a local database, with an object store of given latencies.
    #[command(after_help = "Examples:
  siltstone-bench shared
  siltstone-bench shared --latency-ms 20 --live-batch 1 --idle-seconds 60
  siltstone-bench shared --peer")]
    Shared(shared::Shared),
    /// Measures whether compaction servers suffice: stores that are compacted once an interval, on servers of
    /// a given rate.
    #[command(after_help = "Examples:
  siltstone-bench capacity
  siltstone-bench capacity --interval 60 --keys 100000 --rate 20M")]
    Capacity(capacity::Measured),
    /// Runs TPC-C, embedded or on a server, if asked with a compaction of one of its large tables in the
    /// middle.
    #[command(after_help = "Examples:
  siltstone-bench tpcc --warehouses 4 --threads 4 --seconds 60
  siltstone-bench tpcc --server --threads 4
  siltstone-bench tpcc --merge stock --elsewhere --json")]
    Tpcc(tpcc::Tpcc),
    /// Lists the stores that this build can measure.
    Peers,
    #[command(hide = true)]
    Child(child::Child),
    #[command(hide = true)]
    Served(server::Served),
    #[command(hide = true)]
    Compactor(compactor::Server),
    #[command(hide = true)]
    SharedStore,
    #[command(hide = true)]
    SharedWriter(shared::Writer),
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Task::Run(plan) => measured(&plan.completed(), false),
        Task::Compare(plan) => measured(&plan.completed(), true),
        Task::Paper(paper) => papers(&paper),
        Task::Strategies { svg } => strategies::run(svg.as_deref()).map(|()| ExitCode::SUCCESS),
        Task::Limits { dir, json } => limits::run(&dir, json).map(|()| ExitCode::SUCCESS).map_err(Into::into),
        Task::Report { files, html, markdown, svg } => {
            let told = report::run(&files, html.as_deref(), markdown.as_deref(), svg.as_deref());
            told.map(|()| ExitCode::SUCCESS).map_err(Into::into)
        }
        Task::Server(server) => server.run().map(|()| ExitCode::SUCCESS).map_err(Into::into),
        Task::Offload(costs) => costs.run().map(|()| ExitCode::SUCCESS),
        Task::Objects(objects) => objects.run().map(|()| ExitCode::SUCCESS),
        Task::Restores(restores) => restores.run().map(|()| ExitCode::SUCCESS),
        Task::Shared(shared) => shared.run().map(|()| ExitCode::SUCCESS),
        Task::SharedStore => shared::serve().map(|()| ExitCode::SUCCESS),
        Task::SharedWriter(writer) => writer.run().map(|()| ExitCode::SUCCESS),
        Task::Capacity(capacity) => capacity.run().map(|()| ExitCode::SUCCESS),
        Task::Tpcc(tpcc) => tpcc.run().map(|()| ExitCode::SUCCESS),
        Task::Compactor(server) => server.run().map(|()| ExitCode::SUCCESS),
        Task::Served(served) => served.run().map(|()| ExitCode::SUCCESS).map_err(Into::into),
        Task::Peers => peers(),
        Task::Child(child) => child::run(&child).map(|()| ExitCode::SUCCESS),
    };
    result.unwrap_or_else(|e| {
        eprintln!("siltstone-bench: {e}");
        ExitCode::FAILURE
    })
}

/// Runs a plan and prints what came of it; with ratios or without.
fn measured(plan: &Plan, compared: bool) -> failure::Result<ExitCode> {
    if !compared && plan.before.is_some() {
        Cli::command().error(ErrorKind::ArgumentConflict, "--before is for `compare`").exit();
    }
    if !compared && plan.workload.iter().all(|name| scaling::is_cliff(name)) {
        return cliff(plan);
    }
    let checked = match plan.check() {
        Ok(checked) => checked,
        Err(why) => Cli::command().error(ErrorKind::InvalidValue, why).exit(),
    };
    let (how, mut records) = (&plan.how, begun(&plan.how)?);
    let failures = checked.measure(|run| {
        seen(how, run);
        records.runs.push(run.clone());
    })?;
    records.figures = reader_latency::figures(&records.runs);
    if plan.matrix {
        records.figures.extend(report::matrix_bars(&records.runs));
    }
    if compared {
        (records.ratios, records.refusals) = checked.ratios(&records.runs);
    }
    ended(how, &records, &failures)
}

/// Runs workloads that ask what ten times as many cost, and prints that.
fn cliff(plan: &Plan) -> failure::Result<ExitCode> {
    let base = plan.how.base()?;
    for name in &plan.workload {
        let costs = scaling::run(name, &base, 1.0)?;
        match plan.how.json {
            true => costs.iter().for_each(line),
            false => print!("{}", scaling::table(&costs)),
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Runs a paper's comparisons and prints what came of it.
fn papers(paper: &Paper) -> failure::Result<ExitCode> {
    let how = &paper.how;
    let mut records = begun(how)?;
    let failures = paper.measure(&mut records, |run| seen(how, run))?;
    ended(how, &records, &failures)
}

/// What is known before anything runs: the machine's limits, where they are wanted.
fn begun(how: &How) -> failure::Result<Records> {
    let mut records = Records::default();
    if how.limits || how.html.is_some() {
        records.limits = limits::measure(&how.base()?)?;
        how.json.then(|| records.limits.iter().for_each(line));
    }
    Ok(records)
}

fn seen(how: &How, run: &RunRecord) {
    how.json.then(|| line(run));
}

/// The page, and what has not been printed yet.
fn ended(how: &How, records: &Records, failures: &[String]) -> failure::Result<ExitCode> {
    if let Some(page) = &how.html {
        std::fs::write(page, report::html(records))?;
    }
    if let Some(tables) = &how.markdown {
        std::fs::write(tables, report::markdown(records))?;
    }
    if how.json {
        records.ratios.iter().for_each(line);
        records.refusals.iter().for_each(line);
        records.figures.iter().for_each(line);
    } else {
        print!("{}", report::table(records));
    }
    Ok(if failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// One record, one line. A reader that went away is not worth an error.
fn line(record: &impl serde::Serialize) {
    let mut out = std::io::stdout().lock();
    let _ = serde_json::to_writer(&mut out, record);
    let _ = out.write_all(b"\n").and_then(|()| out.flush());
}

fn peers() -> failure::Result<ExitCode> {
    for named in store::all() {
        println!("{:24} {:10} {:5} {}", named.name(), named.version(), named.compression, named.what);
    }
    if !cfg!(feature = "peers") {
        println!("Built without peers: `cargo xtask peers` builds them.");
    }
    Ok(ExitCode::SUCCESS)
}
