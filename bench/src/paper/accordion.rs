//! Accordion (PVLDB 11(12), 2018, section 4): its policies of in-memory merging against none.
//!
//! Figures are of its cluster with flash disks, where there are several. Its scans ran while memory was full; here
//! memory is made so small that the inserts between scans fill it again and again.

use super::Goal::{AtLeast, AtMost};
use super::{Cell, Contents, Figure, flushed_merged_bytes, ops_s, quantile, strings};
use crate::compare::{Figure as Metric, latency, number};

const ZIPF: &str = "accordion-zipf";
const UNIFORM: &str = "accordion-uniform";
const MIX: &str = "accordion-mix";
const SCANS: &str = "ycsb-e";
const SCANS_MEMORY: f64 = 0.025;

const NONE: &str = "none";
/// With as many segments as the paper found best.
const BASIC: &str = "basic+s5";
/// The threshold of redundancy that the paper recommends for skewed keys.
const ADAPTIVE: &str = "adaptive+r0.2";
/// What ours does by itself.
const OURS: &str = "default";
const POLICIES: &[&str] = &[NONE, BASIC, "eager", "adaptive+r0.5", "adaptive+r0.35", ADAPTIVE, "sketch"];
/// Bounds of the pipeline.
const SEGMENTS: &[&str] = &["basic+s1", "basic+s2", "basic+s3", "basic+s4", BASIC];

pub(super) fn contents() -> Contents {
    let cell = |workload, memory, configs: &[&[&str]]| {
        let mut configs = strings(&configs.concat());
        let mut seen = std::collections::HashSet::new();
        configs.retain(|config| seen.insert(config.clone()));
        Cell { workload, memory, configs }
    };
    let cells = vec![
        cell(ZIPF, 1.0, &[&[OURS], POLICIES, SEGMENTS]),
        cell(UNIFORM, 1.0, &[&[OURS], POLICIES]),
        cell(MIX, 1.0, &[&[OURS, NONE, BASIC, ADAPTIVE]]),
        cell(SCANS, SCANS_MEMORY, &[&[OURS, NONE, "basic+s2", BASIC]]),
    ];
    Contents { cells, figures: figures() }
}

fn figures() -> Vec<Figure> {
    let flushes: Metric = |run| number(run.flushes);
    let merges: Metric = |run| number(run.merges);
    let flushed: Metric = |run| number(run.flushed_bytes);
    let gets: Metric = |run| quantile(run, "read", 0.95);
    let scans: Metric = |run| latency(run, "scan", |l| l.mean_us);
    let figure = |id: &str, workload, metric, above: &str, below: &[&str], paper, goal| Figure {
        id: format!("Accordion {id}"),
        workload,
        metric,
        above: above.into(),
        below: strings(below),
        paper,
        goal,
    };
    let none = &[NONE];
    vec![
        figure("table 1: puts/s, zipf, basic over none", ZIPF, ops_s, BASIC, none, 1.476, AtLeast(1.0)),
        figure("table 1: puts/s, uniform, basic over none", UNIFORM, ops_s, BASIC, none, 1.238, AtLeast(1.0)),
        figure(
            "4.2.1: puts/s, zipf, adaptive R 0.5 over basic",
            ZIPF,
            ops_s,
            "adaptive+r0.5",
            &[BASIC],
            0.97,
            AtLeast(0.93),
        ),
        figure(
            "4.2.1: puts/s, zipf, adaptive R 0.2 over basic",
            ZIPF,
            ops_s,
            ADAPTIVE,
            &[BASIC],
            0.93,
            AtLeast(0.93),
        ),
        figure(
            "4.2.1: puts/s, zipf, ours over the best policy",
            ZIPF,
            ops_s,
            OURS,
            POLICIES,
            0.93,
            AtLeast(0.95),
        ),
        figure(
            "4.2.1: puts/s, uniform, ours over the best policy",
            UNIFORM,
            ops_s,
            OURS,
            POLICIES,
            1.0,
            AtLeast(0.95),
        ),
        figure("4.2.1: puts/s, uniform, ours over none", UNIFORM, ops_s, OURS, none, 1.238, AtLeast(1.0)),
        figure("table 2: flushes, basic over none", ZIPF, flushes, BASIC, none, 0.834, AtMost(0.834)),
        figure(
            "table 2: flushes, adaptive R 0.5 over none",
            ZIPF,
            flushes,
            "adaptive+r0.5",
            none,
            0.628,
            AtMost(0.628),
        ),
        figure(
            "table 2: flushes, adaptive R 0.35 over none",
            ZIPF,
            flushes,
            "adaptive+r0.35",
            none,
            0.514,
            AtMost(0.514),
        ),
        figure(
            "table 2: flushes, adaptive R 0.2 over none",
            ZIPF,
            flushes,
            ADAPTIVE,
            none,
            0.43,
            AtMost(0.43),
        ),
        figure("table 2: flushes, ours over none", ZIPF, flushes, OURS, none, 0.43, AtMost(0.5)),
        figure("table 2: merges, basic over none", ZIPF, merges, BASIC, none, 0.677, AtMost(0.677)),
        figure(
            "table 2: merges, adaptive R 0.5 over none",
            ZIPF,
            merges,
            "adaptive+r0.5",
            none,
            0.59,
            AtMost(0.59),
        ),
        figure(
            "table 2: merges, adaptive R 0.35 over none",
            ZIPF,
            merges,
            "adaptive+r0.35",
            none,
            0.498,
            AtMost(0.498),
        ),
        figure(
            "table 2: merges, adaptive R 0.2 over none",
            ZIPF,
            merges,
            ADAPTIVE,
            none,
            0.399,
            AtMost(0.399),
        ),
        figure(
            "figure 6: flushed and merged bytes, basic over none",
            ZIPF,
            flushed_merged_bytes,
            BASIC,
            none,
            0.87,
            AtMost(0.87),
        ),
        figure(
            "figure 6: flushed and merged bytes, adaptive R 0.2 over none",
            ZIPF,
            flushed_merged_bytes,
            ADAPTIVE,
            none,
            0.7,
            AtMost(0.7),
        ),
        figure("figure 6: flushed bytes, ours over none", ZIPF, flushed, OURS, none, 0.7, AtMost(0.7)),
        figure(
            "4.2.2: p95 of gets beside writes, adaptive R 0.2 over none",
            MIX,
            gets,
            ADAPTIVE,
            none,
            1.061,
            AtMost(1.061),
        ),
        figure(
            "4.2.2: p95 of gets beside writes, ours over none",
            MIX,
            gets,
            OURS,
            none,
            1.061,
            AtMost(1.05),
        ),
        figure("figure 10: scans, basic S 5 over none", SCANS, scans, BASIC, none, 1.08, AtMost(1.08)),
        figure("figure 10: scans, basic S 2 over none", SCANS, scans, "basic+s2", none, 1.03, AtMost(1.03)),
        figure("figure 10: scans, ours over none", SCANS, scans, OURS, none, 1.03, AtMost(1.03)),
        figure(
            "figure 12: puts/s, zipf, S 5 over the best of S 1 to 5",
            ZIPF,
            ops_s,
            BASIC,
            SEGMENTS,
            1.0,
            AtLeast(0.95),
        ),
    ]
}
