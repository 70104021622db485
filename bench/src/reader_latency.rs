//! The effect of compactions on readers, of one in the middle of a run or of automatic ones, and the limits
//! that Siltstone must keep.
//!
//! The windows of such a run tell latencies and the cache's hits before the compaction, during it and after
//! it. The effect is the difference of the worst of them to the usual before: a mean over the compaction
//! would hide the moment in which everybody waits.

use crate::compare::median;
use crate::record::{FigureRecord, RunRecord, Stage, Window};

/// The workloads that the bars are for.
const IN_THE_MIDDLE: &str = "unseen";
const AS_THEY_COME: &str = "felt:p50";
/// Whom they are for.
const STORE: &str = "siltstone";

/// One run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Felt {
    /// p99 of all gets before the compaction.
    pub(crate) before_us: f64,
    /// p99 of the worst calm window during the compaction, and of the worst after it.
    pub(crate) during_us: f64,
    pub(crate) after_us: f64,
    /// Share of blocks found in the cache before the compaction, and in the worst window from then on.
    pub(crate) hits: Option<(f64, f64)>,
    /// The most memory beyond that when the compaction began, over the cache's size.
    pub(crate) memory: Option<f64>,
}

impl Felt {
    /// `None` for a run without a compaction in its middle.
    pub(crate) fn of(run: &RunRecord) -> Option<Felt> {
        let of = |stage| run.windows.iter().filter(move |window| window.stage == stage);
        // What others did to a window says nothing, as long as some are left.
        let calm =
            |stage| of(stage).filter(|window| window.calm).map(|window| window.get_p99_us).reduce(f64::max);
        let worst =
            |stage| calm(stage).or_else(|| of(stage).map(|window| window.get_p99_us).reduce(f64::max));
        let weighted = |window: &Window| Some((window.hit_ratio?, window.gets as f64));
        let (sum, gets) = of(Stage::Before)
            .filter_map(weighted)
            .fold((0.0, 0.0), |(sum, gets), (hits, n)| (sum + hits * n, gets + n));
        let later = run.windows.iter().filter(|window| window.stage != Stage::Before);
        let lowest = later.filter_map(|window| window.hit_ratio).reduce(f64::min);
        let cache: Option<f64> = run.settings.get("memory_cache").and_then(|bytes| bytes.parse().ok());
        Some(Felt {
            before_us: run.before_p99_us?,
            during_us: worst(Stage::During)?,
            after_us: worst(Stage::After)?,
            hits: lowest.filter(|_| gets > 0.0).map(|lowest| (sum / gets, lowest)),
            memory: run.extra_memory_bytes.zip(cache).map(|(extra, cache)| extra as f64 / cache),
        })
    }

    /// The worst window's p99 over that before.
    pub(crate) fn p99_ratio(&self) -> f64 {
        self.during_us.max(self.after_us) / self.before_us
    }

    /// By how many points of a percent the hit ratio fell, at its lowest.
    fn points(&self) -> Option<f64> {
        self.hits.map(|(before, lowest)| (before - lowest) * 100.0)
    }
}

/// A bar: of which workload, what is measured, how much of it there may be.
struct Bar {
    workload: &'static str,
    what: &'static str,
    at_most: f64,
    ours: fn(&RunRecord) -> Option<f64>,
}

const BARS: [Bar; 6] = [
    Bar {
        workload: IN_THE_MIDDLE,
        what: "p99 of gets in the worst window, over that before the compaction",
        at_most: 1.10,
        ours: |run| Some(Felt::of(run)?.p99_ratio()),
    },
    Bar {
        workload: IN_THE_MIDDLE,
        what: "points by which the hit ratio falls",
        at_most: 2.0,
        ours: |run| Felt::of(run)?.points(),
    },
    Bar {
        workload: IN_THE_MIDDLE,
        what: "extra memory, % of the cache",
        at_most: 5.0,
        ours: |run| Some(Felt::of(run)?.memory? * 100.0),
    },
    Bar {
        workload: AS_THEY_COME,
        what: "p99 of gets in seconds with a compaction, over that in the others",
        at_most: 1.10,
        ours: |run| run.beside_merges.as_ref()?.ratio("read", |l| l.p99_us),
    },
    Bar {
        workload: AS_THEY_COME,
        what: "p99.9 of gets in seconds with a compaction, over that in the others",
        at_most: 1.5,
        ours: |run| run.beside_merges.as_ref()?.ratio("read", |l| l.p999_us),
    },
    Bar {
        workload: AS_THEY_COME,
        what: "longest put, ms",
        at_most: 20.0,
        ours: |run| Some(run.latency.get("write")?.max_us / 1000.0),
    },
];

/// Each of our configurations against the bars: medians over its runs.
pub(crate) fn figures(runs: &[RunRecord]) -> Vec<FigureRecord> {
    let mut configs: Vec<(&str, &str)> = Vec::new();
    for run in runs.iter().filter(|run| run.store == STORE) {
        let both = (run.workload.as_str(), run.config.as_str());
        if !configs.contains(&both) {
            configs.push(both);
        }
    }
    let figure = |workload: &str, config: &str, bar: &Bar| {
        let is_it = |run: &&RunRecord| {
            (run.store.as_str(), run.workload.as_str(), run.config.as_str()) == (STORE, workload, config)
        };
        let mut values: Vec<f64> = runs.iter().filter(is_it).filter_map(bar.ours).collect();
        values.sort_by(f64::total_cmp);
        let ours = (!values.is_empty()).then(|| median(&values))?;
        Some(FigureRecord {
            kind: "figure".into(),
            id: format!("{workload}: {}, {STORE}:{config}", bar.what),
            paper: Some(bar.at_most),
            simulated: None,
            ours,
            goal: format!("at most {}", bar.at_most),
            holds: ours <= bar.at_most,
        })
    };
    let of = |(workload, config): &(&str, &str)| {
        let bars = BARS.iter().filter(|bar| bar.workload == *workload);
        bars.filter_map(|bar| figure(workload, config, bar)).collect::<Vec<_>>()
    };
    configs.iter().flat_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{made_up_around_a_merge as made_up, made_up_beside_merges};

    #[test]
    fn the_worst_window_counts_and_hits_before_are_weighted_by_gets() {
        let run = made_up("siltstone", "default", [(100, 0.9), (300, 0.7)], [240.0, 260.0, 250.0]);
        let felt = Felt::of(&run).unwrap();
        assert_eq!((felt.before_us, felt.during_us, felt.after_us), (200.0, 260.0, 250.0));
        assert_eq!(felt.p99_ratio(), 1.3);
        assert_eq!(felt.points().map(f64::round), Some(15.0), "from 0.75 to 0.6");
        assert_eq!(felt.memory, Some(0.1));
        let mut disturbed = run.clone();
        disturbed.windows[3].calm = false;
        assert_eq!(Felt::of(&disturbed).unwrap().during_us, 240.0);
        disturbed.windows[2].calm = false;
        assert_eq!(Felt::of(&disturbed).unwrap().during_us, 260.0, "no window of the compaction was calm");
        assert_eq!(Felt::of(&RunRecord { windows: Vec::new(), ..run }), None);
    }

    #[test]
    fn our_configurations_are_held_to_the_bars_by_the_median_of_their_runs() {
        let run = |store, worst| made_up(store, "default", [(100, 0.61), (100, 0.61)], [worst, 200.0, 200.0]);
        let runs =
            [run("siltstone", 210.0), run("siltstone", 900.0), run("siltstone", 216.0), run("rocksdb", 1.0)];
        let figures = figures(&runs);
        let told: Vec<_> = figures.iter().map(|f| (f.paper, digits(f.ours), f.holds)).collect();
        assert_eq!(told, [(Some(1.1), 1.08, true), (Some(2.0), 1.0, true), (Some(5.0), 10.0, false)]);
        assert!(figures[0].id.ends_with("siltstone:default") && figures[0].goal == "at most 1.1");
        let other = RunRecord { workload: "offload".into(), ..run("siltstone", 1.0) };
        assert!(super::figures(&[other]).is_empty());
    }

    #[test]
    fn compactions_that_came_are_held_to_the_contrast_of_seconds_with_and_without_them() {
        let runs = [made_up_beside_merges(STORE, 109.0), made_up_beside_merges("rocksdb", 900.0)];
        let told: Vec<_> = figures(&runs).iter().map(|f| (digits(f.ours), f.holds)).collect();
        assert_eq!(told, [(1.09, true), (1.09, true), (3.1, true)]);
        let told: Vec<_> = figures(&[made_up_beside_merges(STORE, 160.0)]).iter().map(|f| f.holds).collect();
        assert_eq!(told, [false, false, true]);
    }

    fn digits(value: f64) -> f64 {
        (value * 100.0).round() / 100.0
    }
}
