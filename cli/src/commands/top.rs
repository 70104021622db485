//! A display of a running server, refreshed again and again.

use super::table::At;
use crate::failure::{Failure, Outcome};
use crate::interrupt;
use clap::Args;
use serde_json::Value;
use siltstone::size_text;
use std::fmt::Write as _;
use std::io::{IsTerminal, Write as _};
use std::time::{Duration, Instant};

/// Show what a running server does: calls, latencies, memory, compactions, tables
///
/// Ctrl-C ends it.
#[derive(Args)]
#[command(after_help = "\
Example: siltstone top
         siltstone top --server https://store.example:8086 --every 5
         siltstone top --json")]
pub(crate) struct Top {
    #[command(flatten)]
    at: At,
    /// Seconds between two refreshes
    #[arg(long, default_value_t = 2.0, value_parser = seconds)]
    every: f64,
    /// Refresh so many times [default: until Ctrl-C]
    #[arg(long)]
    count: Option<u64>,
    /// Print all that the server says, once
    #[arg(long)]
    json: bool,
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(seconds) if (0.1..=3_600.0).contains(&seconds) => Ok(seconds),
        _ => Err("expected a number of seconds from 0.1 to 3600".into()),
    }
}

impl Top {
    pub(crate) fn run(self) -> Outcome {
        let remote = self.at.connect()?;
        let look = || -> Outcome<Value> {
            let json = remote.wait(remote.operator().state(()))?.into_inner();
            serde_json::from_str(&json.json)
                .map_err(|e| Failure::Failed(format!("what the server answered: {e}")))
        };
        if self.json {
            println!("{}", serde_json::to_string_pretty(&look()?)?);
            return Ok(());
        }
        let mut out = std::io::stdout();
        let clears = out.is_terminal();
        interrupt::on_signal(|| None);
        let (mut before, mut at) = (look()?, Instant::now());
        for _ in 0..self.count.unwrap_or(u64::MAX) {
            let until = at + Duration::from_secs_f64(self.every);
            while Instant::now() < until {
                std::thread::sleep(Duration::from_millis(50));
                if interrupt::came() {
                    return Ok(());
                }
            }
            let (now, looked) = (look()?, Instant::now());
            let text = screen(&before, &now, (looked - at).as_secs_f64());
            if clears {
                write!(out, "\x1b[H\x1b[2J")?;
            }
            writeln!(out, "{text}")?;
            out.flush()?;
            (before, at) = (now, looked);
        }
        Ok(())
    }
}

fn number(value: &Value, name: &str) -> u64 {
    value[name].as_u64().unwrap_or(0)
}

/// The bound, in seconds, below which this share of calls was; `None` where there were none.
fn quantile(counts: &[u64], bounds: &[f64], share: f64) -> Option<f64> {
    let all: u64 = counts.iter().sum();
    let mut seen = 0;
    let at = counts.iter().position(|count| {
        seen += count;
        all > 0 && seen as f64 >= all as f64 * share
    })?;
    Some(bounds.get(at).copied().unwrap_or(f64::INFINITY))
}

fn latency(seconds: Option<f64>) -> String {
    match seconds {
        None => "-".into(),
        Some(seconds) if seconds.is_infinite() => "longer".into(),
        Some(seconds) if seconds < 0.001 => format!("{:.0} us", seconds * 1e6),
        Some(seconds) if seconds < 1.0 => format!("{} ms", seconds * 1e3),
        Some(seconds) => format!("{seconds} s"),
    }
}

/// The difference between two states.
fn screen(before: &Value, now: &Value, seconds: f64) -> String {
    let mut text = String::new();
    let bounds: Vec<f64> = now["bounds"].as_array().into_iter().flatten().filter_map(Value::as_f64).collect();
    let _ = writeln!(text, "{:<20} {:>10} {:>10} {:>10}", "call", "a second", "p50 below", "p99 below");
    for (name, call) in now["calls"].as_object().into_iter().flatten() {
        let old = &before["calls"][name]["buckets"];
        let buckets = call["buckets"].as_array().map_or(&[][..], |all| all);
        let counts: Vec<u64> = (0..)
            .zip(buckets)
            .map(|(at, count): (usize, _)| {
                count.as_u64().unwrap_or(0).saturating_sub(old[at].as_u64().unwrap_or(0))
            })
            .collect();
        let all: u64 = counts.iter().sum();
        if all > 0 {
            let of = |share| latency(quantile(&counts, &bounds, share));
            let _ =
                writeln!(text, "{name:<20} {:>10.0} {:>10} {:>10}", all as f64 / seconds, of(0.5), of(0.99));
        }
    }
    let (old, new) = (&before["statistics"], &now["statistics"]);
    let rate = |name| {
        let bytes = number(new, name).saturating_sub(number(old, name)) as f64 / seconds;
        size_text(bytes as u64)
    };
    let size = |name| size_text(number(new, name));
    let _ = write!(
        text,
        "\nwritten {}/s, flushed {}/s, compacted {}/s\nmemory {}, cache {} of {}, WAL {}, SSTables {}, compaction debt {}\n",
        rate("user_bytes"),
        rate("flushed_bytes"),
        rate("compaction_written_bytes"),
        size("write_memory"),
        size("cache_bytes"),
        size("cache_capacity"),
        size("wal_bytes"),
        size("sstable_bytes"),
        size("compaction_debt_bytes"),
    );
    if let Some(error) = new["background_error"].as_str() {
        let _ = writeln!(text, "failing: {error}");
    }
    let _ = writeln!(text, "\n{:<50} {:>8} {:>10} {:>10}", "table", "regions", "SSTables", "memory");
    for table in now["tables"].as_array().into_iter().flatten() {
        let families = table["families"].as_array().map_or(&[][..], |all| all);
        let sum = |name| size_text(families.iter().map(|family| number(&family["statistics"], name)).sum());
        let regions = families.iter().map(|family| number(family, "count")).max();
        let name = table["name"].as_str().unwrap_or_default();
        let regions = regions.unwrap_or(0);
        let _ = writeln!(
            text,
            "{name:<50} {regions:>8} {:>10} {:>10}",
            sum("sstable_bytes"),
            sum("memory_bytes")
        );
    }
    if let Some(manager) = now["manager"]["address"].as_str() {
        let says = if now["manager"]["answers"] == true { "" } else { " (does not answer)" };
        let _ = writeln!(text, "\ncompaction manager {manager}{says}");
    }
    if let Some(servers) = now["compactors"].as_array().filter(|servers| !servers.is_empty()) {
        let _ = writeln!(
            text,
            "\n{:<30} {:>7} {:>7} {:>6} {:>8} {:>8} {:>12} {:>5}",
            "compaction server", "running", "waiting", "slots", "done", "failed", "written/s", "cpu"
        );
        for server in servers {
            let address = server["address"].as_str().unwrap_or_default();
            if server["answers"].as_bool() != Some(true) {
                let _ = writeln!(text, "{address:<30} does not answer");
                continue;
            }
            let of = |name| number(server, name);
            let rate = size_text(of("bytes_per_second"));
            let _ = writeln!(
                text,
                "{address:<30} {:>7} {:>7} {:>6} {:>8} {:>8} {rate:>12} {:>4}%",
                of("running"),
                of("queued"),
                of("slots"),
                of("done"),
                of("failed"),
                of("cpu_percent"),
            );
        }
    }
    if let Some(event) = now["events"].as_array().and_then(|events| events.first()) {
        let of = |name: &str| event[name].as_str().unwrap_or_default().to_string();
        let _ = writeln!(text, "\nlast: {} {}: {}", of("kind"), of("family"), of("reason"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn rates_and_latencies_are_of_what_happened_in_between() {
        let state = |calls: [u64; 3], bytes: u64| {
            json!({
                "bounds": [0.001, 0.5],
                "calls": { "ReadRows": { "buckets": calls }, "MutateRow": { "buckets": [7, 0, 0] } },
                "statistics": { "user_bytes": bytes },
                "tables": [{ "name": "t", "families": [
                    { "count": 2, "statistics": { "sstable_bytes": 2_048 } },
                ]}],
            })
        };
        let text = screen(&state([10, 0, 0], 0), &state([28, 1, 1], 4 << 20), 2.0);
        let line = text.lines().find(|line| line.starts_with("ReadRows")).unwrap();
        assert_eq!(line.split_whitespace().collect::<Vec<_>>(), ["ReadRows", "10", "1", "ms", "longer"]);
        assert!(!text.contains("compaction server"));
        let mut with = state([0; 3], 0);
        with["compactors"] = json!([
            { "address": "10.0.0.5:7400", "answers": true, "running": 1, "slots": 7, "done": 12, "cpu_percent": 93 },
            { "address": "10.0.0.6:7400", "answers": false },
        ]);
        let shown = screen(&with, &with, 1.0);
        let line = |address: &str| -> Vec<&str> {
            shown.lines().find(|line| line.starts_with(address)).unwrap().split_whitespace().collect()
        };
        assert_eq!(line("10.0.0.5")[1..], ["1", "0", "7", "12", "0", "0", "B", "93%"]);
        assert_eq!(line("10.0.0.6")[1..], ["does", "not", "answer"]);
        assert!(!text.contains("MutateRow") && text.contains("written 2 MiB/s"), "{text}");
        let table = text.lines().find(|line| line.starts_with("t ")).unwrap();
        assert!(table.contains(" 2 ") && table.contains("2 KiB"), "{table}");
    }
}
