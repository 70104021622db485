//! Figures 8 and 9 of the paper on offloaded compaction: TPC-C beside a compaction of one of its tables, and
//! many stores that share compaction servers. Each is a command of its own (`tpcc`, `capacity`), run in a
//! process of its own, which chooses its processors.

use super::Goal::{self, AtLeast, AtMost};
use crate::failure::Result;
use crate::record::FigureRecord;
use serde_json::Value;
use std::process::{Command, Stdio};

/// A table, and the transaction that the paper shows beside its compaction.
const TABLES: [(&str, &str, &str, Option<f64>); 2] =
    [("stock", "Stock", "New-Order", Some(1.11)), ("order-line", "Order-Line", "Stock-Level", None)];

/// Stores, servers, and of their compactions the share that goes to the servers.
const SHARES: [(u64, u64, Goal); 3] = [(5, 1, AtLeast(80.0)), (10, 1, AtMost(70.0)), (10, 2, AtLeast(80.0))];

/// Shorter, where it is to go quickly.
pub(super) fn figures(quick: bool) -> Result<Vec<FigureRecord>> {
    let mut figures = Vec::new();
    let mut add = |figure, what: String, paper, ours: f64, goal: Goal| {
        let (id, holds) = (format!("Offloading figure {figure}: {what}"), goal.holds(ours));
        let kind = "figure".into();
        figures.push(FigureRecord { kind, id, paper, simulated: None, ours, goal: goal.words(), holds });
    };
    let seconds = if quick { "12" } else { "30" };
    let tpcc = |more: &[&str]| told(&[&["tpcc", "--memory", "512M", "--seconds", seconds], more].concat());
    let control = tpcc(&["--merge", "nothing", "--first"])?;
    for (option, table, transaction, paper) in TABLES {
        let runs = [
            ("nothing", control.clone()),
            ("SS", tpcc(&["--merge", option, "--first", "--cache-fill", "none"])?),
            ("IW", tpcc(&["--merge", option, "--elsewhere"])?),
        ];
        for (method, report) in &runs {
            let what = match *method {
                "nothing" => format!("{transaction} in the second third over the first, no merge, %"),
                method => format!("degradation of {transaction} during a merge of {table}, {method}, %"),
            };
            let mean = |phase| mean_us(&report[0], phase, transaction);
            add(8, what, None, (mean("during") / mean("before") - 1.0) * 100.0, AtMost(f64::INFINITY));
        }
        let rate = |report: &[Value]| report[0]["tpmc"].as_f64().unwrap_or(f64::NAN);
        let what = format!("tpmC with a merge of {table}, IW over SS");
        add(8, what, paper, rate(&runs[2].1) / rate(&runs[1].1), AtLeast(1.0));
    }
    let (interval, keys) = if quick { ("6", "5000") } else { ("12", "10000") };
    let cases = told(&["capacity", "--interval", interval, "--intervals", "3", "--keys", keys])?;
    for (stores, servers, goal) in SHARES {
        let case = cases.iter().find(|case| case["stores"] == stores && case["servers"] == servers);
        let count = |of: &str| case.and_then(|case| case[of].as_f64()).unwrap_or(f64::NAN);
        let share = count("elsewhere") / (count("elsewhere") + count("here")) * 100.0;
        let what = format!("merges of {stores} stores that {servers} servers take, %");
        add(9, what, None, share, goal);
    }
    Ok(figures)
}

/// The mean of a transaction's times.
fn mean_us(report: &Value, phase: &str, transaction: &str) -> f64 {
    let all = report["transactions"].as_array().map_or(&[][..], Vec::as_slice);
    let its = |one: &&Value| one["phase"] == phase && one["transaction"] == transaction;
    all.iter().find(its).and_then(|one| one["mean_us"].as_f64()).unwrap_or(f64::NAN)
}

/// The JSON output of a command of this program.
fn told(args: &[&str]) -> Result<Vec<Value>> {
    let mut command = Command::new(std::env::current_exe()?);
    let output = command.args(args).arg("--json").stderr(Stdio::inherit()).output()?;
    if !output.status.success() {
        return Err(format!("{} ended with {}", args.join(" "), output.status).into());
    }
    let lines = output.stdout.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    let told: Vec<Value> = lines.map(serde_json::from_slice).collect::<std::result::Result<_, _>>()?;
    if told.is_empty() { Err(format!("{} said nothing", args.join(" ")).into()) } else { Ok(told) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_mean_is_that_of_its_phase_and_transaction_and_none_where_there_is_none() {
        let one = |phase: &str, mean| json!({"phase": phase, "transaction": "New-Order", "mean_us": mean});
        let report = json!({"tpmc": 7.0, "transactions": [one("before", 10.0), one("during", 15.0)]});
        assert_eq!(mean_us(&report, "during", "New-Order"), 15.0);
        assert!(mean_us(&report, "after", "New-Order").is_nan());
        assert!(mean_us(&report, "before", "Payment").is_nan());
    }
}
