//! Capacity of compaction servers.

use crate::failure::{Failure, Outcome};
use clap::Args;
use siltstone::{parse_size, size_text};
use siltstone_compactor::{Capacity, CapacityPlan, ClientTls, Compactors, CompactorsOptions, MeasuredRates};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Work out how many compaction servers a workload needs
///
/// By the formula of the paper on offloaded compaction: a compaction of b bytes takes D = b/c + b/w; a server
/// has l = floor(m/b) at a time, does h = l t/D in t, and serves floor(h/T) regions. A table shows what other
/// memory and other sizes of compactions come to, and a simulation how long compactions wait with that number
/// of servers and with one less. A compaction server that has been at work reports c, w, m and b
/// (`--measured`).
#[derive(Args)]
#[command(after_help = "\
Example: siltstone plan-compactors --merge-rate 20MB --handover-rate 8MB --memory 6GB --merge-bytes 4GB --regions 10
         siltstone plan-compactors --measured 10.0.0.5:7400 --regions 200 --merges 4 --every 1day
         siltstone plan-compactors --memory 32GiB --merge-bytes 2GiB --regions 200 --merges 4 --every 1day --json")]
pub(crate) struct PlanCompactors {
    /// A compaction server to ask: what it measured stands for what is not given
    #[arg(long, value_name = "HOST:PORT")]
    measured: Option<String>,
    /// A file with the secret of the compaction server, if it has one
    #[arg(long, env = "SILTSTONE_COMPACTION_SECRET_FILE", value_name = "FILE")]
    secret_file: Option<PathBuf>,
    /// Authority for the certificate of the compaction server, in PEM, if it speaks TLS
    #[arg(long, value_name = "FILE", requires = "measured")]
    ca: Option<PathBuf>,
    /// c: bytes a second at which a server reads and compacts [default: 100MB]
    #[arg(long, value_parser = parse_size)]
    merge_rate: Option<u64>,
    /// w: bytes a second at which outputs are handed over [default: 50MB]
    #[arg(long, value_parser = parse_size)]
    handover_rate: Option<u64>,
    /// m: memory of a server
    #[arg(long, value_parser = parse_size, required_unless_present = "measured")]
    memory: Option<u64>,
    /// b: bytes of a compaction
    #[arg(long, value_parser = parse_size, required_unless_present = "measured")]
    merge_bytes: Option<u64>,
    /// R: regions
    #[arg(long)]
    regions: u64,
    /// T: compactions of each region in that time
    #[arg(long, default_value_t = 1.0)]
    merges: f64,
    /// t: the time, such as 1h or 1day
    #[arg(long, default_value = "1h", value_parser = humantime::parse_duration)]
    every: Duration,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// The table's memory and compactions, as multiples of the given figures.
const MEMORIES: [f64; 3] = [1.0, 2.0, 4.0];
const SIZES: [f64; 4] = [0.25, 0.5, 1.0, 2.0];
/// Times t that are simulated, with compactions due at moments that follow from the seed.
const INTERVALS: u32 = 4;
const SEED: u64 = 1;
/// More compactions than that are not simulated.
const MERGES_MAX: f64 = 1e6;

/// How long the compaction server may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// A rate of handing over beyond this is none that was measured: nothing had to wait.
const AT_ONCE: f64 = 1e12;

/// The measurements of the compaction server.
fn ask(server: &str, options: CompactorsOptions) -> Outcome<MeasuredRates> {
    let failed = |why: String| Failure::Failed(format!("compaction server {server}: {why}"));
    let known = Compactors::connect_with([server], options).map_err(Failure::Usage)?;
    let began = Instant::now();
    loop {
        if let Some(state) = known.servers().first().and_then(|server| server.state.as_ref()) {
            return MeasuredRates::of(state).map_err(failed);
        }
        if began.elapsed() > PATIENCE {
            return Err(failed("it does not answer".into()));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

impl PlanCompactors {
    pub(crate) fn run(self) -> Outcome {
        let measured = match &self.measured {
            Some(server) => {
                let tls = self.ca.clone().map(|ca| ClientTls { ca, ..ClientTls::default() });
                // It is asked how it is, and given nothing.
                let insecure = true;
                let secret_file = self.secret_file.clone();
                ask(server, CompactorsOptions { tls, secret_file, insecure, ..CompactorsOptions::default() })?
            }
            None => MeasuredRates { merge_rate: 100e6, handover_rate: 50e6, memory: 0.0, merge_bytes: 0.0 },
        };
        let or = |given: Option<u64>, measured: f64| given.map_or(measured, |given| given as f64);
        let given = Capacity {
            merge_rate: or(self.merge_rate, measured.merge_rate),
            handover_rate: or(self.handover_rate, measured.handover_rate),
            memory: or(self.memory, measured.memory),
            merge_bytes: or(self.merge_bytes, measured.merge_bytes),
            merges: self.merges,
            interval_seconds: self.every.as_secs_f64(),
            regions: self.regions,
        };
        let plan = given.plan().map_err(Failure::Usage)?;
        let CapacityPlan { merge_seconds, at_a_time, per_interval, regions_each, servers } = plan;
        let is_small = given.merges * given.regions as f64 * f64::from(INTERVALS) <= MERGES_MAX;
        let mut waits = Vec::new();
        for servers in (servers.max(2) - 1..=servers).filter(|_| is_small) {
            waits.push((servers, given.waits(servers, INTERVALS, SEED).map_err(Failure::Usage)?));
        }
        if self.json {
            println!(
                "{}",
                serde_json::json!({
                    "merge_rate": given.merge_rate, "handover_rate": given.handover_rate,
                    "memory": given.memory, "merge_bytes": given.merge_bytes,
                    "merge_seconds": merge_seconds, "at_a_time": at_a_time, "per_interval": per_interval,
                    "regions_each": regions_each, "servers": servers,
                    "waits": waits.iter().map(|(servers, waits)| serde_json::json!({
                        "servers": servers,
                        "mean_seconds": waits.iter().map(|waits| waits.mean_seconds).collect::<Vec<_>>(),
                        "longest_seconds": waits.iter().map(|waits| waits.longest_seconds).collect::<Vec<_>>(),
                    })).collect::<Vec<_>>(),
                })
            );
            return Ok(());
        }
        let every = humantime::format_duration(self.every);
        if self.measured.is_some() {
            println!("c  compacted a second       {}", size_text(given.merge_rate as u64));
            let handover = match given.handover_rate {
                rate if rate >= AT_ONCE => "at once".into(),
                rate => size_text(rate as u64),
            };
            println!("w  handed over a second     {handover}");
            println!("m  memory of a server       {}", size_text(given.memory as u64));
            println!("b  a compaction             {}", size_text(given.merge_bytes as u64));
        }
        println!("D  a compaction takes       {merge_seconds:.1} s");
        println!("l  compactions at a time    {at_a_time}");
        println!("h  compactions of a server  {per_interval:.2} in {every}");
        println!("   regions of a server      {regions_each}");
        println!("C  compaction servers       {servers}");
        println!("\nservers by size of a compaction (down) and memory of a server (across):");
        let heads = MEMORIES.map(|times| format!("{:>12}", size_text((given.memory * times) as u64)));
        println!("{:>12}{}", "", heads.concat());
        for size in SIZES {
            let merge_bytes = given.merge_bytes * size;
            // Smaller regions are more of them.
            let regions = ((given.regions as f64) / size).ceil() as u64;
            let cells = MEMORIES.map(|times| {
                let memory = given.memory * times;
                let plan = Capacity { memory, merge_bytes, regions, ..given }.plan();
                format!("{:>12}", plan.map_or("-".to_string(), |plan| plan.servers.to_string()))
            });
            println!("{:>12}{}", size_text(merge_bytes as u64), cells.concat());
        }
        println!(
            "(the data stays the same: compactions of half the size are of twice the regions; - cannot be)"
        );
        if is_small {
            println!("\nhow long compactions wait at longest, simulated over {INTERVALS} times {every}:");
        }
        for (servers, waits) in waits {
            let cells =
                waits.iter().map(|waits| format!("{:>12}", format!("{:.0} s", waits.longest_seconds)));
            println!("{:>12}{}", format!("{servers} servers"), cells.collect::<String>());
        }
        Ok(())
    }
}
