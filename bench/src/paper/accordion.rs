//! Accordion (PVLDB 11(12), 2018, section 4): its policies of in-memory compaction against none.
//!
//! Figures are of its cluster with flash disks, where there are several. Its scans ran while memory was full;
//! here memory is made so small that the inserts between scans fill it again and again.

use super::Goal::{AtLeast, AtMost};
use super::{Cell, Contents, Figure, flushed_merged_bytes, ops_s, quantile, strings};
use crate::compare::{Figure as Metric, latency, number};

const ZIPF: &str = "accordion-zipf";
const UNIFORM: &str = "accordion-uniform";
const MIX: &str = "accordion-mix";
const SCANS: &str = "ycsb-e";
const SCANS_MEMORY: f64 = 0.025;

const NONE: &str = "none";
/// With as many memtables as the paper found best.
const BASIC: &str = "basic+s5";
/// The threshold of redundancy that the paper recommends for skewed keys.
const ADAPTIVE: &str = "adaptive+r0.2";
/// The default of Siltstone.
const OURS: &str = "default";
const POLICIES: &[&str] = &[NONE, BASIC, "eager", "adaptive+r0.5", "adaptive+r0.35", ADAPTIVE, "sketch"];
/// Bounds of the pipeline.
const MEMTABLES: &[&str] = &["basic+s1", "basic+s2", "basic+s3", "basic+s4", BASIC];
/// Shares of memory at which the active memtable is frozen (A), with the pipeline of the paper's figure.
const SHARES: &[&str] = &["basic+s2+a2", "basic+s2+a5", "basic+s2+a10", "basic+s2+a25"];

pub(super) fn contents() -> Contents {
    let cell = |workload, memory, configs: &[&[&str]]| {
        let mut configs = strings(&configs.concat());
        let mut seen = std::collections::HashSet::new();
        configs.retain(|config| seen.insert(config.clone()));
        Cell { workload, memory, configs }
    };
    let cells = vec![
        cell(ZIPF, 1.0, &[&[OURS], POLICIES, MEMTABLES, SHARES]),
        cell(UNIFORM, 1.0, &[&[OURS], POLICIES]),
        cell(MIX, 1.0, &[&[OURS, NONE, BASIC, ADAPTIVE]]),
        cell(SCANS, SCANS_MEMORY, &[&[OURS, NONE, "basic+s2", BASIC]]),
    ];
    Contents { cells, figures: figures() }
}

fn figures() -> Vec<Figure> {
    let mut figures = Vec::new();
    let mut figure = |id: &str, workload, metric, above: &str, below: &[&str], paper, goal| {
        let (id, above, below) = (format!("Accordion {id}"), above.to_string(), strings(below));
        figures.push(Figure { id, workload, metric, above, below, paper, simulated: None, goal });
    };
    let none = &[NONE];

    figure("table 1: puts/s, zipf, basic over none", ZIPF, ops_s, BASIC, none, 1.476, AtLeast(1.0));
    figure("table 1: puts/s, uniform, basic over none", UNIFORM, ops_s, BASIC, none, 1.238, AtLeast(1.0));
    figure("table 1: puts/s, uniform, ours over none", UNIFORM, ops_s, OURS, none, 1.238, AtLeast(1.0));
    // "3 to 7 % slower": the less it compacts, the nearer it is.
    for (r, paper) in [("0.5", 0.97), ("0.2", 0.93)] {
        let (id, above) =
            (format!("4.2.1: puts/s, zipf, adaptive R {r} over basic"), format!("adaptive+r{r}"));
        figure(&id, ZIPF, ops_s, &above, &[BASIC], paper, AtLeast(0.93));
    }
    // What the paper recommends is as far from what it found fastest.
    for (name, workload, paper) in [("zipf", ZIPF, 0.93), ("uniform", UNIFORM, 1.0)] {
        let id = format!("4.2.1: puts/s, {name}, ours over the best policy");
        figure(&id, workload, ops_s, OURS, POLICIES, paper, AtLeast(0.95));
    }

    let flushes: Metric = |run| number(run.flushes);
    let merges: Metric = |run| number(run.compactions);
    for (config, flushed, merged) in [
        (BASIC, 0.834, 0.677),
        ("adaptive+r0.5", 0.628, 0.59),
        ("adaptive+r0.35", 0.514, 0.498),
        (ADAPTIVE, 0.43, 0.399),
    ] {
        let id = |what| format!("table 2: {what}, {config} over none");
        figure(&id("flushes"), ZIPF, flushes, config, none, flushed, AtMost(flushed));
        figure(&id("merges"), ZIPF, merges, config, none, merged, AtMost(merged));
    }
    figure("table 2: flushes, ours over none", ZIPF, flushes, OURS, none, 0.43, AtMost(0.5));
    for (config, paper) in [(BASIC, 0.87), (ADAPTIVE, 0.7)] {
        let id = format!("figure 6: flushed and merged bytes, {config} over none");
        figure(&id, ZIPF, flushed_merged_bytes, config, none, paper, AtMost(paper));
    }
    let flushed: Metric = |run| number(run.flushed_bytes);
    figure("figure 6: flushed bytes, ours over none", ZIPF, flushed, OURS, none, 0.7, AtMost(0.7));

    let gets: Metric = |run| quantile(run, "read", 0.95);
    for (config, name, most) in [(ADAPTIVE, ADAPTIVE, 1.061), (OURS, "ours", 1.05)] {
        let id = format!("4.2.2: p95 of gets beside writes, {name} over none");
        figure(&id, MIX, gets, config, none, 1.061, AtMost(most));
    }
    let gets: Metric = |run| quantile(run, "read", 0.99);
    figure("4.2.2: p99 of gets beside writes, ours over none", MIX, gets, OURS, none, 1.061, AtMost(1.05));
    let scans: Metric = |run| latency(run, "scan", |l| l.mean_us);
    for (config, name, paper) in [(BASIC, BASIC, 1.08), ("basic+s2", "basic+s2", 1.03), (OURS, "ours", 1.03)]
    {
        let id = format!("figure 10: scans, {name} over none");
        figure(&id, SCANS, scans, config, none, paper, AtMost(paper));
    }
    let id = "figure 12: puts/s, zipf, S 5 over the best of S 1 to 5";
    figure(id, ZIPF, ops_s, BASIC, MEMTABLES, 1.0, AtLeast(0.95));
    // The smaller the faster, on its heap; with cells in chunks, as ours are, the paper recommends a tenth.
    for (share, config) in [("0.02", SHARES[0]), ("0.1", SHARES[2])] {
        let id = format!("figure 11: puts/s, zipf, A {share} over the best of A 0.02 to 0.25");
        figure(&id, ZIPF, ops_s, config, SHARES, 1.0, AtLeast(0.95));
    }
    figures
}
