//! The real server, a process of its own, under clients that write while it is killed, that flood it, lie to
//! it, and say nothing.
//!
//! Each row prints its seed and counts, and ends with 0 only if all held. A row is a module: `kills`,
//! `offload` (compaction servers that fail), `ring` (rows that point to each other), `hostile` and `attack`
//! (those who mean no good), `overload`, `messages` and `peers` (damaged ones, to the server and to
//! compaction servers) and `beside` (Bigtable's emulator). `child` is the server as a process.

mod attack;
mod beside;
mod child;
mod hostile;
mod kills;
#[cfg(test)]
#[allow(dead_code, reason = "what it says of other programs is not read here")]
#[path = "../../../xtask/src/list.rs"]
mod list;
mod messages;
mod offload;
mod overload;
mod peers;
mod ring;

use clap::{Parser, ValueEnum};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A row of the campaign.
#[derive(Clone, Copy, ValueEnum)]
enum Row {
    /// Kills under writers: every acknowledged row is there, no row is half, streams of changes and backups
    /// are whole
    Kills,
    /// A ring of rows that point to each other, with kills and splits: none points to nothing
    Ring,
    /// Twelve attacks beside a client that behaves
    Hostile,
    /// Each attack on a server of its own, beside a client that behaves: memory, deadlines, rights
    Attack,
    /// More writes than compactions can take
    Overload,
    /// Damaged and random messages to every method
    Messages,
    /// Damaged and random messages to a compaction server and a compaction manager
    Peers,
    /// Compaction servers that are killed and paused, and the server with them, under writers
    Offload,
    /// Calls to the server and to Bigtable's emulator: both answer alike
    Beside,
}

/// Lay siege to the server.
#[derive(Parser)]
struct Arguments {
    row: Row,
    /// How many: kills, nodes, bad requests, attacks, seconds, messages, calls
    #[arg(long)]
    count: u64,
    /// End after this many seconds, however far it came
    #[arg(long)]
    seconds: Option<u64>,
    /// Where it begins, to run a failing case again
    #[arg(long)]
    seed: Option<u64>,
    /// Run only the attack of this name
    #[arg(long)]
    only: Option<String>,
    /// How many seconds each attack lasts; from some 70 on, limits of time are looked at, too
    #[arg(long)]
    each: Option<u64>,
}

/// How far a row goes, and how far it has come.
struct Extent {
    count: u64,
    until: Option<Instant>,
    done: AtomicU64,
}

impl Extent {
    fn new(count: u64, seconds: Option<u64>) -> Self {
        let until = seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds));
        Self { count, until, done: AtomicU64::new(0) }
    }

    fn done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }

    /// Counts what more was done.
    fn advance(&self, by: u64) {
        self.done.fetch_add(by, Ordering::Relaxed);
    }

    fn goes_on(&self) -> bool {
        self.done() < self.count && self.until.is_none_or(|until| Instant::now() < until)
    }
}

impl Row {
    /// The fewest of what it counts whose success says something: from so many on it asks what it has met.
    #[cfg(test)]
    fn least(self) -> u64 {
        match self {
            Row::Kills => kills::LEAST,
            Row::Ring => ring::LEAST,
            Row::Messages => messages::LEAST,
            Row::Peers => peers::LEAST,
            Row::Offload => offload::LEAST,
            Row::Attack => attack::LEAST,
            Row::Beside => beside::LEAST,
            Row::Hostile | Row::Overload => 1,
        }
    }
}

fn main() -> ExitCode {
    let Arguments { row, count, seconds, seed, only, each } = Arguments::parse();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let seed = seed.unwrap_or(now);
    let extent = Arc::new(Extent::new(count, seconds));
    println!("seed {seed}, at most {count}");
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.expect("a runtime");
    let result = runtime.block_on(async {
        match row {
            Row::Kills => kills::run(&extent, seed).await,
            Row::Ring => ring::run(&extent, seed).await,
            Row::Hostile => hostile::run(&extent, seed).await,
            Row::Attack => attack::run(&extent, seed, only.as_deref(), each).await,
            Row::Overload => overload::run(&extent, seed).await,
            Row::Messages => messages::run(&extent, seed).await,
            Row::Peers => peers::run(&extent, seed).await,
            Row::Offload => offload::run(&extent, seed).await,
            Row::Beside => beside::run(&extent, seed).await,
        }
    });
    // An attack that hangs has a thread that does not end.
    runtime.shutdown_background();
    println!("count {}", extent.done());
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_of_campaigns_has_every_row_with_the_count_from_which_it_asks_what_was_met() {
        for row in Row::value_variants() {
            let name = row.to_possible_value().expect("no row is hidden").get_name().to_string();
            let run = format!("siltstone-siege {name}");
            let listed = list::CAMPAIGNS.iter().find(|campaign| campaign.run == run);
            assert_eq!(listed.map(|campaign| campaign.least), Some(row.least()), "{run}");
        }
    }
}
