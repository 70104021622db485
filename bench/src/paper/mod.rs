//! The papers' own comparisons, run on ours: what each paper measured against what it was built on, here
//! measured against our own store with the mechanism off, and the paper's figure beside ours.
//!
//! A paper is two lists: cells, which say what is run (workloads and the configurations that take turns on
//! them), and figures, each of which relates two configurations of a cell. What a figure aims at is the
//! paper's figure where it counts flushes, compactions or bytes, and where our own aim is written down, that
//! one. For throughput it is less: part of what the papers gained came from a garbage collector or a skiplist
//! that ours never had. Where strategies are compared, what our simulation says stands between the paper's
//! figure and the measured one.
//!
//! A paper is a file: `accordion`, `triad`, `rangemerge`, and of compaction offloading `offload` and, with
//! what several stores or tables share, `shared`.

mod accordion;
mod offload;
mod rangemerge;
mod shared;
mod triad;

use crate::compare::{Figure as Metric, How, Plan, Relation, median, pairs};
use crate::failure::Result;
use crate::record::{FigureRecord, RunRecord};
use crate::report::Records;
use crate::workload::Scale;

/// Which paper, and how much of it.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Paper {
    #[arg(value_enum)]
    paper: Which,
    /// Multiplies keys, operations and memory of all workloads, which stay in proportion.
    #[arg(long, default_value_t = 1.0, value_parser = factor)]
    scale: f64,
    /// With `all`: scale each paper so that all of them take about 20 minutes on two processors.
    #[arg(long, conflicts_with_all = ["scale", "full"])]
    quick: bool,
    /// With `all`: run each paper at full size, in three rounds. That takes a day.
    #[arg(long, conflicts_with = "scale")]
    full: bool,
    /// With `offload`: run only the methods of one machine, without a compaction server.
    #[arg(long)]
    local: bool,
    /// With `offload`: milliseconds that each read of a file takes longer once the store is loaded, like a
    /// read over a network.
    #[arg(long, default_value_t = 0)]
    slow: u32,
    /// With `rangemerge`: run only the inserts that go as fast as they can, which at `--scale 10` take
    /// minutes, not hours.
    #[arg(long)]
    unthrottled: bool,
    /// With `rangemerge`: run only the puts and scans at a fixed rate, which take six minutes a method at
    /// `--scale 1`.
    #[arg(long, conflicts_with = "unthrottled")]
    paced: bool,
    #[command(flatten)]
    pub(crate) how: How,
}

#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum Which {
    /// All of them, one after another: with `--quick` or `--full`.
    All,
    /// Accordion: policies of in-memory compaction.
    Accordion,
    /// TRIAD: its parts, each alone and all together.
    Triad,
    /// Rangemerge: methods of compaction, each with puts and scans at a rate, and inserts as fast as they go.
    Rangemerge,
    /// Compaction offloading: warming caches with a compaction's result, here and with a compaction server.
    Offload,
}

/// The papers, and the scale of each with `--quick`.
const QUICK: [(Which, f64); 4] =
    [(Which::Accordion, 0.2), (Which::Triad, 0.5), (Which::Rangemerge, 0.1), (Which::Offload, 0.08)];

/// Rounds with `--full`, at least.
const FULL_RUNS: u32 = 3;

/// The smallest scale: below, memory holds a few cells only and says nothing.
const SCALE_MIN: f64 = 0.002;

fn factor(text: &str) -> Result<f64, String> {
    let factor = text.parse().ok().filter(|factor| (SCALE_MIN..=100.0).contains(factor));
    factor.ok_or_else(|| format!("{text} is not between {SCALE_MIN} and 100"))
}

/// One workload, and the configurations that take turns on it: our own, and other stores by their full names.
struct Cell {
    workload: &'static str,
    /// Multiplies its memory, keys and operations left as they are.
    memory: f64,
    configs: Vec<String>,
}

/// `siltstone:none+defer`, `rocksdb:tuned`.
fn full_name(config: &str) -> String {
    if config.contains(':') { config.to_string() } else { format!("siltstone:{config}") }
}

/// A figure of a paper: on one workload, a metric of one configuration over that of another.
struct Figure {
    /// Names the paper's figure or table and what is related.
    id: String,
    workload: &'static str,
    metric: Metric,
    above: String,
    /// The one with the most operations a second of these; with none of them the metric itself is the figure.
    below: Vec<String>,
    /// Not a number where the paper does not say.
    paper: f64,
    simulated: Option<f64>,
    goal: Goal,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Goal {
    AtLeast(f64),
    AtMost(f64),
}

impl Goal {
    fn words(self) -> String {
        match self {
            Goal::AtLeast(bound) => format!("at least {bound}"),
            Goal::AtMost(bound) if bound.is_infinite() => "-".into(),
            Goal::AtMost(bound) => format!("at most {bound}"),
        }
    }

    fn holds(self, ours: f64) -> bool {
        match self {
            Goal::AtLeast(bound) => ours >= bound,
            Goal::AtMost(bound) => ours <= bound,
        }
    }
}

/// The cells and the figures of a paper.
struct Contents {
    cells: Vec<Cell>,
    figures: Vec<Figure>,
}

impl Paper {
    fn contents(&self) -> Result<Contents> {
        Ok(match self.paper {
            Which::All => return Err("each paper has its own contents".into()),
            Which::Accordion => accordion::contents(),
            Which::Triad => triad::contents(triad::PARTS),
            Which::Rangemerge => {
                let mut contents = rangemerge::contents(self.scale)?;
                if self.paced || self.unthrottled {
                    let asked = |workload: &str| (workload == rangemerge::PACED) == self.paced;
                    contents.cells.retain(|cell| asked(cell.workload));
                    contents.figures.retain(|figure| asked(figure.workload));
                }
                contents
            }
            Which::Offload => offload::contents(!self.local, self.slow),
        })
    }

    /// One paper after another, each with its scale.
    fn papers(&self) -> Result<Vec<Paper>> {
        let all = self.paper == Which::All;
        match (all, self.quick || self.full) {
            (false, false) => return Ok(vec![self.clone()]),
            (false, true) => {
                return Err("--quick and --full are of `paper all`; one paper takes --scale".into());
            }
            (true, false) => return Err("`paper all` takes --quick or --full".into()),
            (true, true) => {}
        }
        let mut of_all = self.clone();
        if self.full {
            of_all.how.runs = of_all.how.runs.max(FULL_RUNS);
        }
        let one =
            |(paper, scale)| Paper { paper, scale: if self.full { 1.0 } else { scale }, ..of_all.clone() };
        Ok(QUICK.map(one).into())
    }

    /// Runs everything and relates it. `seen` gets each run as it comes; the answer is what failed. Of all
    /// papers, one that cannot be run leaves the others their figures.
    pub(crate) fn measure(&self, records: &mut Records, seen: impl Fn(&RunRecord)) -> Result<Vec<String>> {
        let mut failures = Vec::new();
        for paper in self.papers()? {
            match paper.measure_one(records, &seen) {
                Ok(failed) => failures.extend(failed),
                Err(e) if self.paper == Which::All => {
                    eprintln!("siltstone-bench: {:?}: {e}", paper.paper);
                    failures.push(e.to_string());
                }
                Err(e) => return Err(e),
            }
        }
        Ok(failures)
    }

    fn measure_one(&self, records: &mut Records, seen: &impl Fn(&RunRecord)) -> Result<Vec<String>> {
        let Contents { cells, figures } = self.contents()?;
        let (mut failures, before) = (Vec::new(), records.runs.len());
        for cell in cells {
            let plan = Plan {
                workload: vec![cell.workload.into()],
                stores: cell.configs.iter().map(|config| full_name(config)).collect(),
                matrix: false,
                before: None,
                how: self.how.clone(),
                scale: Scale::of(cell.workload, self.scale, cell.memory)?,
            };
            failures.extend(plan.check()?.measure(|run| {
                seen(run);
                records.runs.push(run.clone());
            })?);
        }
        for figure in &figures {
            match figure.record(&records.runs[before..]) {
                Some(made) => records.figures.push(made),
                None => eprintln!("siltstone-bench: no figure for want of numbers: {}", figure.id),
            }
        }
        // Of those storage is not slow, and there are servers.
        if matches!(self.paper, Which::Offload) && !self.local && self.slow == 0 {
            records.figures.extend(shared::figures(self.quick)?);
        }
        Ok(failures)
    }
}

impl Figure {
    /// Nothing if a run is missing, or if what was counted is zero: too little was written.
    fn record(&self, runs: &[RunRecord]) -> Option<FigureRecord> {
        let of = |config: &str| -> Vec<&RunRecord> {
            let name = full_name(config);
            let its = |run: &&RunRecord| {
                run.workload == self.workload && format!("{}:{}", run.store, run.config) == name
            };
            runs.iter().filter(its).collect()
        };
        let rate = |config: &&String| {
            let mut rates: Vec<f64> = of(config).iter().map(|run| run.ops_s).collect();
            rates.sort_by(f64::total_cmp);
            if rates.is_empty() { 0.0 } else { median(&rates) }
        };
        let ours = match self.below.iter().max_by(|a, b| rate(a).total_cmp(&rate(b))) {
            Some(below) => Relation::of(&pairs(&of(&self.above), &of(below)), self.metric)?.median,
            None => {
                let mut values: Vec<f64> = of(&self.above).into_iter().map(self.metric).collect();
                values.sort_by(f64::total_cmp);
                let all = !values.is_empty() && values.iter().all(|value| value.is_finite());
                all.then(|| median(&values))?
            }
        };
        Some(FigureRecord {
            kind: "figure".into(),
            id: self.id.clone(),
            paper: self.paper.is_finite().then_some(self.paper),
            simulated: self.simulated,
            ours,
            goal: self.goal.words(),
            holds: self.goal.holds(ours),
        })
    }
}

/// Operations a second.
fn ops_s(run: &RunRecord) -> f64 {
    run.ops_s
}

fn flushed_merged_bytes(run: &RunRecord) -> f64 {
    run.flushed_merged_bytes().unwrap_or(f64::NAN)
}

fn strings(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_string()).collect()
}

/// The standard deviation of the latencies of one kind of operation, from their raw histogram.
fn deviation(run: &RunRecord, kind: &str) -> f64 {
    let Some(latency) = run.latency.get(kind) else { return f64::NAN };
    let mean_of = |value: &dyn Fn(f64) -> f64| {
        let sum: f64 = latency.histogram.iter().map(|(nanos, n)| value(*nanos as f64) * *n as f64).sum();
        sum / latency.count as f64
    };
    let mean = mean_of(&|nanos| nanos);
    mean_of(&|nanos| (nanos - mean).powi(2)).sqrt()
}

/// A latency of one kind of operation, from its raw histogram, as `share` of the operations did not exceed
/// it.
fn quantile(run: &RunRecord, kind: &str, share: f64) -> f64 {
    let Some(latency) = run.latency.get(kind) else { return f64::NAN };
    let wanted = (latency.count as f64 * share).ceil() as u64;
    let sums = latency.histogram.iter().scan(0, |sum, (nanos, count)| {
        *sum += count;
        Some((*sum, *nanos))
    });
    sums.into_iter().find(|(sum, _)| *sum >= wanted).map_or(f64::NAN, |(_, nanos)| nanos as f64)
}

#[cfg(test)]
mod tests;
