//! Compaction offloading (PVLDB 8(8), 2015, section 5, figure 7): what readers feel of a major compaction and after it, by
//! method of warming the cache with its result. Degradation of the mean latency, in percent of that before.
//!
//! Of its methods those of one machine: the standard one (SS, cold caches and one switch at the end), local write-through
//! (WTC), pre-switch warming (PSW), incremental warming (IW) and the same throttled (TIW). Ours merges and warms in one
//! go, step by step and without rests, so what the paper calls the warm-up phase is here the time after the merge. Updates beside the reads
//! are left out: they would begin merges of their own.

use super::Goal::AtMost;
use super::{Cell, Contents, Figure};
use crate::compare::Figure as Metric;
use crate::record::{RunRecord, Stage, Window};

const WORKLOAD: &str = "offload";

/// Method, ours by it, and the paper's percentages: gets and scans during compaction, then in the warm-up.
const METHODS: &[(&str, &str, [f64; 4])] = &[
    ("SS", "cold+onestep+rest0", [11.5, 53.0, 1020.0, 642.0]),
    ("WTC", "writethrough+onestep+rest0", [106.0, 274.0, 667.0, 408.0]),
    ("PSW", "before+rest0", [86.4, 202.0, 389.0, 238.0]),
    ("IW", "warm+rest0", [6.84, 27.6, 26.2, 19.7]),
    ("TIW", "warm+fill8+rest0", [6.51, 20.1, 9.30, 3.75]),
];

/// In the order of the percentages.
const METRICS: [(&str, Metric); 4] = [
    ("gets during compaction", |run| degradation(run, Stage::During, gets)),
    ("scans during compaction", |run| degradation(run, Stage::During, scans)),
    ("gets after it", |run| degradation(run, Stage::After, gets)),
    ("scans after it", |run| degradation(run, Stage::After, scans)),
];

pub(super) fn contents() -> Contents {
    let mut figures = Vec::new();
    for (method, config, percents) in METHODS {
        for ((what, metric), paper) in METRICS.into_iter().zip(*percents) {
            figures.push(Figure {
                id: format!("Offloading figure 7: degradation of {what}, {method}, %"),
                workload: WORKLOAD,
                metric,
                above: (*config).to_string(),
                below: Vec::new(),
                paper,
                simulated: None,
                goal: AtMost(paper),
            });
        }
    }
    let configs = METHODS.iter().map(|(_, config, _)| (*config).to_string()).collect();
    Contents { cells: vec![Cell { workload: WORKLOAD, memory: 1.0, configs }], figures }
}

/// Operations of a kind in a window, and their mean latency.
type Kind = fn(&Window) -> (u64, f64);

fn gets(window: &Window) -> (u64, f64) {
    (window.gets, window.get_mean_us)
}

fn scans(window: &Window) -> (u64, f64) {
    (window.scans, window.scan_mean_us)
}

/// By how many percent the mean of a stage is above that before the merge.
fn degradation(run: &RunRecord, stage: Stage, kind: Kind) -> f64 {
    let mean = |stage| {
        let windows = run.windows.iter().filter(|window| window.stage == stage).map(kind);
        let (count, sum) =
            windows.fold((0, 0.0), |(count, sum), (n, mean)| (count + n, sum + n as f64 * mean));
        sum / count as f64
    };
    (mean(stage) / mean(Stage::Before) - 1.0) * 100.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn degradation_is_in_percent_of_the_mean_before_weighted_by_operations() {
        let window = |stage, gets, get_mean_us| Window {
            at: 0.0,
            stage,
            gets,
            get_mean_us,
            get_p99_us: 0.0,
            scans: 10,
            scan_mean_us: 7.0,
            hit_ratio: None,
            rss_bytes: 0,
            stolen: None,
            calm: true,
        };
        let mut run = crate::report::made_up_run(WORKLOAD, "siltstone", "warm", 1, 200_000.0);
        run.windows = vec![
            window(Stage::Before, 100, 10.0),
            window(Stage::Before, 300, 20.0),
            window(Stage::During, 10, 35.0),
            window(Stage::After, 10, 14.0),
        ];
        let percent = METRICS.map(|(_, metric)| metric(&run));
        assert_eq!(percent.map(f64::round), [100.0, 0.0, -20.0, 0.0]);
        run.windows.pop();
        assert!(METRICS[2].1(&run).is_nan());
    }
}
