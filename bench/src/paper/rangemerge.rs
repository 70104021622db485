//! Rangemerge (TPDS; sections 6 and 12): methods of compaction under its own load, a tenth of it at scale 1.
//! Puts of all keys in an order of no pattern: at a rate, beside scans of ten entries from due times (figure
//! 5); then as fast as they go, with write memory of a fifth, a twentieth and a hundredth of the data
//! (figures 7 and 13).
//!
//! Its machine has a disk that turns; ours need not. So latencies and times are related between methods, and
//! what the simulation says of the same shapes stands beside: it knows bytes, not latencies. A range's file
//! is a fortieth of the data, as in the paper's default, and where scans are timed a block has the paper's 64
//! KiB (C). Inserts end when nothing is left to compact, with memory as full as it is.

use super::Goal::{self, AtMost};
use super::{Cell, Contents, Figure, deviation, quantile, strings};
use crate::compare::{Figure as Metric, latency, number};
use crate::failure::Result;
use crate::record::{Latency, RunRecord};
use crate::store::strategy;
use crate::workload::{Scale, Workload, named};
use siltstone::simulate::{self, SimulateOptions, SimulateReport, simulate};
use std::collections::{BTreeMap, HashMap};

pub(super) const PACED: &str = "rangemerge";
const FILLS: [&str; 3] = ["rangemerge-fill:m5", "rangemerge-fill:m20", "rangemerge-fill:m100"];
/// The end of figure 8a: keys put in their order.
const SORTED: &str = "rangemerge-fill:m20:sorted";
/// The paper's own ratio of data to memory is 20.
const DEFAULT_FILL: &str = FILLS[1];

const SMA: &str = "none+sma4";
const GEOMETRIC: &str = "none+geo2";
const NOMERGE: &str = "none+nomerge";
/// Other methods in the paper's figure 7b: configuration, name, and the figure's hours to insert 80 GB.
const OTHERS: [(&str, &str, f64); 4] = [
    (NOMERGE, "nomerge", 1.5),
    ("none+geo3", "geometric r 3", 7.4),
    ("none+geop2", "geometric p 2", 7.7),
    ("none+remerge", "remerge", 13.9),
];
const LEVELED: &str = "default";
const ROCKSDB: &str = "rocksdb:tuned";
const UNIVERSAL: &str = "rocksdb:universal";
const PEERS: &[&str] = if cfg!(feature = "peers") { &[ROCKSDB, UNIVERSAL] } else { &[] };

/// A simulation takes no less; only at the smallest scales a store does.
const MEMORY_MIN: u64 = 1 << 16;

/// Not in the paper.
const NONE: f64 = f64::NAN;

/// A figure of a simulation.
type Simulated = fn(&SimulateReport) -> f64;

const SECONDS: (Metric, Simulated) =
    (|run| run.seconds + run.settle_seconds, |report| report.insert_seconds.unwrap_or(f64::NAN));
const BYTES: (Metric, Simulated) = (
    |run| run.flushed_merged_bytes().unwrap_or(f64::NAN),
    |report| report.fill_write_amplification.unwrap_or(f64::NAN),
);
const LARGEST: (Metric, Simulated) =
    (|run| number(run.largest_merge_bytes), |report| report.largest_compaction_bytes as f64);
const FILES: (Metric, Simulated) = (|run| number(run.runs_max), |report| report.runs_max as f64);

pub(super) fn contents(scale: f64) -> Result<Contents> {
    // In MiB, to the hundredth.
    let file = (1e9 * scale / 40.0 / f64::from(1 << 20) * 100.0).round() / 100.0;
    let range = format!("range+f{file}");
    let deltas = format!("range+d4+f{file}");
    // What it takes to write far less than leveled compaction, and no slower than geometric, where data is a
    // hundred times the memory.
    let many = format!("range+d32+f{file}");
    let ours = [range.as_str(), deltas.as_str(), SMA, GEOMETRIC, LEVELED];
    let mut configs = strings(&[&ours[..], PEERS].concat());
    // Table 3: files of 32, 64 and 128 MB where the default has 256, and its minutes, 53.8 with the default.
    let tables = [(8.0, 54.2), (4.0, 51.6), (2.0, 51.6)].map(|(part, minutes)| {
        let file = (file / part * 1e4_f64).round() / 1e4;
        (format!("range+f{file}"), minutes / 53.8)
    });
    let cell = |workload, configs: &Vec<String>| Cell { workload, memory: 1.0, configs: configs.clone() };
    // At a rate each takes as long as its puts do: those alone that a figure relates.
    let paced = [&[range.as_str(), SMA, GEOMETRIC][..], PEERS].concat().into_iter().map(scanned).collect();
    let mut cells = vec![cell(PACED, &paced), cell(FILLS[0], &configs)];
    let smaller = tables.iter().map(|(config, _)| config.clone());
    let others = OTHERS.iter().map(|(config, ..)| (*config).to_string());
    let abrupt = format!("{range}+abrupt");
    let more = others.chain(smaller).chain([abrupt.clone()]);
    cells.push(cell(FILLS[1], &configs.iter().cloned().chain(more).collect()));
    cells.push(cell(SORTED, &strings(&[&range, NOMERGE])));
    configs.insert(2, many.clone());
    cells.push(cell(FILLS[2], &configs));

    let mut figures = Vec::new();
    latencies(&mut figures, &range);
    watermarks(&mut figures, &range, &abrupt);
    let mut simulations = Simulations { scale, done: HashMap::new() };
    let short = |config: &str| {
        match config {
            _ if config == range => "rangemerge",
            _ if config == deltas => "with deltas",
            _ if config == many => "with 32 deltas",
            SMA => "sma k 4",
            GEOMETRIC => "geometric r 2",
            LEVELED => "leveled",
            ROCKSDB => "RocksDB leveled",
            UNIVERSAL => "RocksDB universal",
            _ => match OTHERS.iter().find(|(other, ..)| *other == config) {
                Some((_, name, _)) => name,
                None => return format!("rangemerge with files of {} MiB", &config["range+f".len()..]),
            },
        }
        .to_string()
    };
    // To be as good as the paper, to three digits.
    let as_paper = |paper: f64| AtMost((paper * 1000.0).round() / 1000.0);
    let mut figure = |figure: &str,
                      workload: &'static str,
                      (metric, simulated): (Metric, Simulated),
                      above: &str,
                      below: &[&str],
                      paper,
                      goal: Goal|
     -> Result<()> {
        let memory = workload.split_once(":m").map_or("", |(_, part)| part).replace(':', ", ");
        let over = below.first().map_or(String::new(), |below| format!(" over {}", short(below)));
        let simulated = match below.first() {
            Some(below) if PEERS.contains(below) => None,
            Some(below) => {
                let (a, b) = (simulations.of(workload, above)?, simulations.of(workload, below)?);
                Some(simulated(&a) / simulated(&b))
            }
            None => Some(simulated(&simulations.of(workload, above)?)),
        };
        figures.push(Figure {
            id: format!("Rangemerge {figure}, D/M {memory}, {}{over}", short(above)),
            workload,
            metric,
            above: above.into(),
            below: strings(below),
            paper,
            simulated,
            goal,
        });
        Ok(())
    };
    // 15.2 minutes to 19.3 and 19.8; 6.4 hours to 5.8 and 2.9.
    for (name, fill, geometric, sma) in [
        ("figure 13: insert time", FILLS[0], 15.2 / 19.3, 15.2 / 19.8),
        ("figure 7b: insert time", FILLS[1], 6.4 / 5.8, 6.4 / 2.9),
        ("insert time", FILLS[2], NONE, NONE),
    ] {
        figure(name, fill, SECONDS, &range, &[GEOMETRIC], geometric, AtMost(1.1))?;
        if sma.is_finite() {
            figure(name, fill, SECONDS, &range, &[SMA], sma, as_paper(sma))?;
        }
        figure(name, fill, SECONDS, &deltas, &[GEOMETRIC], NONE, AtMost(1.0))?;
    }
    for (other, _, hours) in OTHERS {
        let paper = 6.4 / hours;
        figure("figure 7b: insert time", FILLS[1], SECONDS, &range, &[other], paper, as_paper(paper))?;
    }
    // Of figure 8 the paper gives no numbers.
    figure("figure 8: insert time", SORTED, SECONDS, &range, &[NOMERGE], NONE, AtMost(1.4))?;
    for (smaller, paper) in &tables {
        figure("table 3: insert time", FILLS[1], SECONDS, smaller, &[&range], *paper, AtMost(1.1))?;
    }
    figure("insert time", FILLS[2], SECONDS, &many, &[GEOMETRIC], NONE, AtMost(1.0))?;
    for below in [&[LEVELED][..], PEERS].concat() {
        for above in [&deltas, &many] {
            figure("bytes written", FILLS[2], BYTES, above, &[below], NONE, AtMost(0.6))?;
        }
    }
    figure("bytes written", FILLS[1], BYTES, &range, &[GEOMETRIC], NONE, AtMost(1.1))?;
    // 594 MB to 4.5 and 16.5 GB.
    for (below, gb) in [(SMA, 4.5), (GEOMETRIC, 16.5)] {
        let paper = 0.594 / gb;
        figure("figure 14: largest merge", DEFAULT_FILL, LARGEST, &range, &[below], paper, as_paper(paper))?;
    }
    for (above, paper, most) in
        [(range.as_str(), 1.0, 1.0), (&deltas, NONE, 5.0), (SMA, 8.0, 8.0), (GEOMETRIC, 4.0, 4.0)]
    {
        figure("figure 6: files of a key", DEFAULT_FILL, FILES, above, &[], paper, AtMost(most))?;
    }
    Ok(Contents { cells, figures })
}

/// The configuration whose scans are timed: ours with the paper's blocks.
fn scanned(config: &str) -> String {
    if PEERS.contains(&config) { config.into() } else { format!("{config}+b64") }
}

/// Figure 5, in milliseconds: mean 15.6 against 28.6 and 23.5, deviation 8.2 against 24.3 and 20.5, the
/// longest 30.5 against 93.3 and 64.5. It gives no number for p99.
fn latencies(figures: &mut Vec<Figure>, range: &str) {
    let others = [
        (SMA, "sma k 4", [15.6 / 28.6, 8.2 / 24.3, NONE, 30.5 / 93.3]),
        (GEOMETRIC, "geometric r 2", [15.6 / 23.5, 8.2 / 20.5, NONE, 30.5 / 64.5]),
        (ROCKSDB, "RocksDB leveled", [NONE; 4]),
        (UNIVERSAL, "RocksDB universal", [NONE; 4]),
    ];
    let metrics: [(&str, Metric, f64); 4] = [
        ("mean", |run| latency(&calm(run), "scan", |l| l.mean_us), 0.7),
        ("deviation", |run| deviation(&calm(run), "scan"), 0.5),
        ("p99", |run| quantile(&calm(run), "scan", 0.99), 0.5),
        ("longest", |run| latency(&calm(run), "scan", |l| l.max_us), 0.5),
    ];
    for (below, name, papers) in others {
        if below.contains(':') && !PEERS.contains(&below) {
            continue;
        }
        for ((what, metric, most), paper) in metrics.into_iter().zip(papers) {
            figures.push(Figure {
                id: format!("Rangemerge figure 5: {what} of scans, rangemerge over {name}"),
                workload: PACED,
                metric,
                above: scanned(range),
                below: vec![scanned(below)],
                paper,
                simulated: None,
                goal: AtMost(most),
            });
        }
    }
}

/// Section 14 names them, and has no figure: writers slowed before a bound, over writers that are stopped
/// there. With puts as fast as they go.
fn watermarks(figures: &mut Vec<Figure>, range: &str, abrupt: &str) {
    let metrics: [(&str, Metric); 2] =
        [("longest put", |run| latency(run, "write", |l| l.max_us)), ("puts a second", |run| run.ops_s)];
    for ((what, metric), goal) in metrics.into_iter().zip([AtMost(1.0), Goal::AtLeast(0.95)]) {
        figures.push(Figure {
            id: format!("Rangemerge section 14: {what}, D/M 20, with watermarks over without"),
            workload: DEFAULT_FILL,
            metric,
            above: range.into(),
            below: vec![abrupt.into()],
            paper: NONE,
            simulated: None,
            goal,
        });
    }
}

/// The run as if there had been none but its calm seconds, if these have a tenth of its scans. A store that
/// keeps both processors busy has fewer of them, and those are missing in which it was busiest: that is to
/// its advantage.
fn calm(run: &RunRecord) -> RunRecord {
    let scans = |of: &BTreeMap<String, Latency>| of.get("scan").map_or(0, |scans| scans.count);
    let latency = if scans(&run.calm) * 10 >= scans(&run.latency) { &run.calm } else { &run.latency };
    RunRecord { latency: latency.clone(), ..run.clone() }
}

/// Fills of our own configurations, each once.
struct Simulations {
    scale: f64,
    done: HashMap<(&'static str, String), SimulateReport>,
}

impl Simulations {
    fn of(&mut self, workload: &'static str, config: &str) -> Result<SimulateReport> {
        let key = (workload, config.to_string());
        if let Some(done) = self.done.get(&key) {
            return Ok(done.clone());
        }
        let scale = Scale::of(workload, self.scale, 1.0)?;
        let fill: Workload = named(workload, &scale)?.remove(0);
        let (key_bytes, value_bytes) = (fill.row_key_bytes(), fill.row_value_bytes(0));
        let options = SimulateOptions {
            strategy: strategy(config)?,
            data_bytes: fill.keys * (key_bytes + value_bytes),
            memory_bytes: fill.memory.write.max(MEMORY_MIN),
            key_bytes,
            value_bytes,
            overwrite: 0.0,
            workload: if workload == SORTED {
                simulate::Workload::Sorted(1.0)
            } else {
                simulate::Workload::Uniform
            },
            ..SimulateOptions::default()
        };
        let report = simulate(&options)?;
        self.done.insert(key, report.clone());
        Ok(report)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calm_seconds_count_where_there_are_enough() {
        let mut run = crate::report::made_up_run(PACED, SMA, "default", 1, 200_000.0);
        let scans = |count, mean_us| -> BTreeMap<String, Latency> {
            [("scan".to_string(), Latency { count, mean_us, ..run.latency["write"].clone() })].into()
        };
        let mean = |run: &RunRecord| latency(&calm(run), "scan", |l| l.mean_us);
        (run.latency, run.calm) = (scans(1000, 90.0), scans(100, 2.0));
        assert_eq!(mean(&run), 2.0);
        run.calm.clear();
        assert_eq!(mean(&run), 90.0);
    }

    #[test]
    fn the_simulation_of_each_figure_is_beside_it_and_the_paper_where_it_has_one() {
        let Contents { cells, figures } = contents(1.0).unwrap();
        assert_eq!(cells.len(), 5);
        let of = |id: &str| figures.iter().find(|figure| figure.id == id).unwrap();
        let files = of("Rangemerge figure 6: files of a key, D/M 20, rangemerge");
        assert_eq!((files.paper, files.simulated), (1.0, Some(1.0)));
        let largest = of("Rangemerge figure 14: largest merge, D/M 20, rangemerge over geometric r 2");
        let off = largest.simulated.unwrap() / largest.paper;
        assert!((0.7..1.4).contains(&off), "the paper {}, simulated {:?}", largest.paper, largest.simulated);
        assert!(of("Rangemerge figure 5: p99 of scans, rangemerge over sma k 4").paper.is_nan());
    }
}
