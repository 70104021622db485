//! The server, measured from outside: how fast it answers (`speed`), what readers feel of compactions
//! (`beside`), what ten thousand regions cost (`regions`). The servers are processes of their own (`peer`).

mod beside;
mod peer;
mod regions;
mod speed;

use clap::{Args, Subcommand};
use googleapis_tonic_google_bigtable_v2::google::bigtable::v2 as data;
use peer::TABLE;
use std::path::PathBuf;

pub(crate) use peer::{Client, Given, Peer, Served, table_name};

const ROWS_OF_A_CALL: u64 = 100;

/// The command's options.
#[derive(Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Server {
    /// Rows of 100 B that are there.
    #[arg(long, default_value_t = 200_000)]
    rows: u64,
    /// Seconds of each measurement.
    #[arg(long, default_value_t = 3)]
    seconds: u64,
    /// Turns.
    #[arg(long, default_value_t = 3)]
    runs: usize,
    /// Measure this alone.
    #[arg(long)]
    only: Option<speed::Workload>,
    /// Print one JSON object a line instead of a table.
    #[arg(long)]
    json: bool,
    /// Directory of the database.
    #[arg(long, default_value = "target/bench-server")]
    dir: PathBuf,
    /// The in-memory emulator, measured too: the program that `go install
    /// cloud.google.com/go/bigtable/cmd/emulator` makes.
    #[arg(long)]
    emulator: Option<PathBuf>,
    #[command(subcommand)]
    instead: Option<Instead>,
}

/// What else is measured.
#[derive(Subcommand)]
enum Instead {
    /// Latencies of reads that come at a steady rate: alone, beside automatic compactions, and beside a
    /// compaction of everything.
    Beside(beside::Beside),
    /// The cost of a table of ten thousand regions: made, at rest, beside one writer, watched, opened.
    Regions(regions::Regions),
}

fn key(n: u64) -> bytes::Bytes {
    // Spread over the table.
    key_text(n.wrapping_mul(0x9e37_79b9_7f4a_7c15) % 10_000_000_000).into()
}

fn key_text(n: u64) -> String {
    format!("row{n:010}")
}

fn set(value: &bytes::Bytes) -> data::Mutation {
    let set = data::mutation::SetCell {
        family_name: "f".into(),
        column_qualifier: "q".into(),
        timestamp_micros: 1_000,
        value: value.clone(),
    };
    data::Mutation { mutation: Some(data::mutation::Mutation::SetCell(set)) }
}

fn entries(from: u64, value: &bytes::Bytes) -> data::MutateRowsRequest {
    let entry = |n| data::mutate_rows_request::Entry {
        row_key: key(n),
        mutations: vec![set(value)],
        ..Default::default()
    };
    let entries = (from..from + ROWS_OF_A_CALL).map(entry).collect();
    data::MutateRowsRequest { table_name: TABLE.into(), entries, ..Default::default() }
}

/// Creates the table and writes its rows.
async fn fill(peer: &Peer, rows: u64, value: &bytes::Bytes) -> Result<(), String> {
    peer.create_table("bench", std::iter::empty()).await?;
    let mut client = peer.client().await?;
    for from in (0..rows).step_by(ROWS_OF_A_CALL as usize) {
        let answers = client.mutate_rows(entries(from, value)).await.map_err(|e| e.to_string())?;
        let mut answers = answers.into_inner();
        while answers.message().await.map_err(|e| e.to_string())?.is_some() {}
    }
    Ok(())
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

impl Server {
    pub(crate) fn run(self) -> Result<(), String> {
        let mut first = rustix::thread::CpuSet::new();
        first.set(0);
        rustix::thread::sched_setaffinity(None, &first).map_err(|e| e.to_string())?;
        let dir = match &self.instead {
            None => &self.dir,
            Some(Instead::Beside(beside)) => &beside.dir,
            Some(Instead::Regions(regions)) => &regions.dir,
        };
        let _ = std::fs::remove_dir_all(dir);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|e| e.to_string())?;
        match &self.instead {
            None => runtime.block_on(speed::measured(&self)),
            Some(Instead::Beside(beside)) => runtime.block_on(beside.measured()),
            Some(Instead::Regions(regions)) => runtime.block_on(regions.measured()),
        }
    }
}
