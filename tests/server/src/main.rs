//! The real server, a process of its own, under clients that write while it is killed, that flood it, lie to it, and say nothing.
//!
//! Each row prints its seed and counts, and ends with 0 only if all held.

mod child;
mod hostile;
mod kills;
mod messages;
mod overload;
mod ring;

use clap::{Parser, ValueEnum};
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

/// What is done to the server.
#[derive(Clone, Copy, ValueEnum)]
enum Row {
    /// Kills under writers: every acknowledged row is there, no row is half, streams of changes and backups are whole
    Kills,
    /// A ring of rows that point to each other, with kills and splits: none points to nothing
    Ring,
    /// Twelve attacks beside a client that behaves
    Hostile,
    /// More writes than merges can take
    Overload,
    /// Damaged and random messages to every method
    Messages,
}

/// Lay siege to the server.
#[derive(Parser)]
struct Arguments {
    row: Row,
    /// How many: kills, nodes, bad requests, seconds, messages
    #[arg(long)]
    count: u64,
    /// Where it begins, to run a failing case again
    #[arg(long)]
    seed: Option<u64>,
}

fn main() -> ExitCode {
    let Arguments { row, count, seed } = Arguments::parse();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let seed = seed.unwrap_or(now);
    println!("seed {seed}, count {count}");
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.expect("a runtime");
    let result = runtime.block_on(async {
        match row {
            Row::Kills => kills::run(count, seed).await,
            Row::Ring => ring::run(count, seed).await,
            Row::Hostile => hostile::run(count, seed).await,
            Row::Overload => overload::run(count, seed).await,
            Row::Messages => messages::run(count, seed).await,
        }
    });
    match result {
        Ok(said) => {
            println!("held: {said}");
            ExitCode::SUCCESS
        }
        Err(said) => {
            println!("FAILED with seed {seed}: {said}");
            ExitCode::FAILURE
        }
    }
}
