//! Compaction offloading (PVLDB 8(8), 2015, section 5, figures 4 to 7; 8 and 9: `shared`): what readers feel
//! of a major compaction and after it, by method of warming the cache with its result. Degradation of the
//! mean latency, in percent of that before.
//!
//! All methods of the paper: the standard one (SS, cold caches and one switch at the end), local
//! write-through (WTC), and with a compaction server, which has the other processor: offloading alone (CO),
//! the server's memory as a cache (RC), warming from there before one switch (PSW), step by step (IW) and the
//! same throttled (TIW). `TIW here` is ours without a server: steps that put into the cache what was read
//! lately, as they are written.
//!
//! Ours compacts and warms in one go, step by step and without rests, so what the paper calls the warm-up
//! phase is here the time after the compaction; where a method is held to another one, the two phases count
//! together. Updates beside the reads are left out: they would begin compactions of their own.
//!
//! A run of which the mean before the compaction is not known to a tenth, as its windows differ by too much,
//! says nothing of degradation: its figures are no numbers.

use super::Goal::AtMost;
use super::{Cell, Contents, Figure, flushed_merged_bytes, strings};
use crate::compare::Figure as Metric;
use crate::record::{RunRecord, Stage, Window};

const WORKLOAD: &str = "offload";

/// Where minor compactions are compared.
const MINOR: &str = "ws3";
const EXPLORING: &str = "none+exploring";
const LEVELED: &str = "none";

/// The standard error that the mean before the compaction may have, as a part of it.
const SWING: f64 = 0.10;

/// A method, ours by it on one processor or with a server, and the paper's percentages: gets and scans during
/// compaction, then in the warm-up.
struct Method {
    name: &'static str,
    config: &'static str,
    paper: [f64; 4],
}

const METHODS: [Method; 8] = [
    Method { name: "SS", config: "cold+onestep+rest0+pinned", paper: [11.5, 53.0, 1020.0, 642.0] },
    Method { name: "WTC", config: "writethrough+onestep+rest0+pinned", paper: [106.0, 274.0, 667.0, 408.0] },
    Method { name: "CO", config: "cold+onestep+rest0+served1", paper: [6.67, 23.3, 1040.0, 642.0] },
    Method { name: "RC", config: "remote+onestep+rest0+served1", paper: [6.91, 28.8, 121.0, 224.0] },
    Method { name: "PSW", config: "before+rest0+served1", paper: [86.4, 202.0, 389.0, 238.0] },
    Method { name: "IW", config: "warm+rest0+served1", paper: [6.84, 27.6, 26.2, 19.7] },
    Method { name: "TIW", config: "warm+fill8+rest0+served1", paper: [6.51, 20.1, 9.30, 3.75] },
    Method { name: "TIW here", config: "warm+fill8+rest0+pinned", paper: [f64::NAN; 4] },
];

/// Ours here with a limit of what compactions write.
const THROTTLED: Method =
    Method { name: "TIW here, throttled", config: "warm+fill8+rate16+rest0+pinned", paper: [f64::NAN; 4] };

/// What the throttled method is held to, in the order of the percentages.
const BARS: [f64; 4] = [5.0, 10.0, 5.0, 4.0];

/// In the order of the percentages.
const METRICS: [(&str, Metric); 4] = [
    ("gets during compaction", |run| degradation(run, Stage::During, gets)),
    ("scans during compaction", |run| degradation(run, Stage::During, scans)),
    ("gets after it", |run| degradation(run, Stage::After, gets)),
    ("scans after it", |run| degradation(run, Stage::After, scans)),
];

/// Both phases together, and which of the percentages they are.
const BOTH: [(&str, Metric, [usize; 2]); 2] =
    [("gets", |run| slowdown(run, gets), [0, 2]), ("scans", |run| slowdown(run, scans), [1, 3])];

/// `slow` milliseconds are added to each read of a file; without `servers` the methods of one machine.
pub(super) fn contents(servers: bool, slow: u32) -> Contents {
    let methods = || METHODS.iter().filter(|method| servers || !method.config.contains("served"));
    let config = |method: &Method| match slow {
        0 => method.config.to_string(),
        slow => format!("{}+slow{slow}", method.config),
    };
    let mut figures = Vec::new();
    let best = if servers { "TIW" } else { "TIW here" };
    let Some(tiw) = METHODS.iter().find(|method| method.name == best) else { unreachable!() };
    let figure = |id: String, metric, above: &Method, below: Option<&Method>, paper, goal| Figure {
        id: format!("Offloading figure 7: {id}"),
        workload: WORKLOAD,
        metric,
        above: config(above),
        below: below.map(config).into_iter().collect(),
        paper,
        simulated: None,
        goal: AtMost(goal),
    };
    for (((what, metric), paper), bar) in METRICS.into_iter().zip(tiw.paper).zip(BARS) {
        let id = format!("degradation of {what}, {}, %", tiw.name);
        figures.push(figure(id, metric, tiw, None, paper, bar));
    }
    for (what, metric, of) in BOTH {
        let both = |method: &Method| of.iter().map(|n| 1.0 + method.paper[*n] / 100.0).sum::<f64>() / 2.0;
        for other in methods().filter(|other| other.name != tiw.name) {
            let id = format!("{what} in both phases over those before, {} over {}", tiw.name, other.name);
            figures.push(figure(id, metric, tiw, Some(other), both(tiw) / both(other), 1.0));
        }
    }
    // What the others cost stands there to be read; it is no goal.
    for method in methods().filter(|method| method.name != tiw.name) {
        for ((what, metric), paper) in METRICS.into_iter().zip(method.paper) {
            let id = format!("degradation of {what}, {}, %", method.name);
            figures.push(figure(id, metric, method, None, paper, f64::INFINITY));
        }
    }
    // Minor compactions by HBase's selection, and a throttle: the paper uses both and has no figure of them.
    let here = METHODS.iter().find(|method| method.name == "TIW here");
    let during: Metric = |run| mean(run, Stage::During, gets);
    let throttled = Figure {
        id: "Offloading section 2: gets during a merge of 16 MiB a second, over one without a limit".into(),
        ..figure(String::new(), during, &THROTTLED, here, f64::NAN, 1.0)
    };
    let configs = methods().map(config).chain([throttled.above.clone()]).collect();
    let minor = Figure {
        id: "Offloading section 2: flushed and merged bytes, ws3, exploring over leveled".into(),
        workload: MINOR,
        metric: flushed_merged_bytes,
        above: EXPLORING.into(),
        below: strings(&[LEVELED]),
        ..figure(String::new(), during, &THROTTLED, None, f64::NAN, 1.0)
    };
    figures.extend([throttled, minor]);
    let minor = Cell { workload: MINOR, memory: 1.0, configs: strings(&[EXPLORING, LEVELED]) };
    Contents { cells: vec![Cell { workload: WORKLOAD, memory: 1.0, configs }, minor], figures }
}

/// Operations of a kind in a window, and their mean latency.
type Kind = fn(&Window) -> (u64, f64);

fn gets(window: &Window) -> (u64, f64) {
    (window.gets, window.get_mean_us)
}

fn scans(window: &Window) -> (u64, f64) {
    (window.scans, window.scan_mean_us)
}

/// The mean latency of a stage.
fn mean(run: &RunRecord, stage: Stage, kind: Kind) -> f64 {
    let windows = run.windows.iter().filter(|window| window.stage == stage).map(kind);
    let (count, sum) = windows.fold((0, 0.0), |(count, sum), (n, mean)| (count + n, sum + n as f64 * mean));
    sum / count as f64
}

/// The mean latency before the compaction; no number where it swings.
fn baseline(run: &RunRecord, kind: Kind) -> f64 {
    let mean = mean(run, Stage::Before, kind);
    let windows = run.windows.iter().filter(|window| window.stage == Stage::Before).map(kind);
    let (count, squares) = windows
        .fold((0.0, 0.0), |(count, squares), (_, of)| (count + 1.0, squares + (of / mean - 1.0).powi(2)));
    // Of the mean of so many windows.
    let error = (squares / count).sqrt() / f64::sqrt(count);
    if error > SWING { f64::NAN } else { mean }
}

/// By how many percent the mean of a stage is above that before the compaction.
fn degradation(run: &RunRecord, stage: Stage, kind: Kind) -> f64 {
    (mean(run, stage, kind) / baseline(run, kind) - 1.0) * 100.0
}

/// The mean of both phases, each counting the same, over that before the compaction.
fn slowdown(run: &RunRecord, kind: Kind) -> f64 {
    (mean(run, Stage::During, kind) + mean(run, Stage::After, kind)) / 2.0 / baseline(run, kind)
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
            window(Stage::Before, 100, 17.0),
            window(Stage::Before, 300, 18.0),
            window(Stage::During, 10, 35.5),
            window(Stage::After, 10, 14.2),
        ];
        let percent = METRICS.map(|(_, metric)| metric(&run));
        assert_eq!(percent.map(f64::round), [100.0, 0.0, -20.0, 0.0]);
        assert_eq!((BOTH[0].1(&run) * 100.0).round(), 140.0);
        // A baseline that swings says nothing of gets, and scans are as they were.
        run.windows[0].get_mean_us = 10.0;
        assert!(METRICS[0].1(&run).is_nan() && BOTH[0].1(&run).is_nan() && METRICS[1].1(&run) == 0.0);
        run.windows[0].get_mean_us = 17.0;
        run.windows.pop();
        assert!(METRICS[2].1(&run).is_nan());
    }

    #[test]
    fn one_method_is_held_to_bars_and_to_all_others() {
        let figures = contents(true, 20).figures;
        let is_7 = |figure: &&Figure| figure.id.contains("figure 7");
        let held = |figure: &&Figure| is_7(figure) && matches!(figure.goal, AtMost(goal) if goal.is_finite());
        assert_eq!(figures.iter().filter(held).count(), 4 + 2 * 7);
        assert!(figures.iter().filter(is_7).all(|figure| figure.above.ends_with("+slow20")));
        let over = |what: &str| figures.iter().find(|figure| figure.id.contains(what)).unwrap().paper;
        assert_eq!((over("gets in both phases over those before, TIW over SS") * 1000.0).round(), 175.0);
        let here = contents(false, 0);
        assert_eq!(here.cells[0].configs.len(), 4);
        assert!(here.figures.iter().all(|figure| !figure.above.contains("served")));
    }
}
