//! Measuring several stores fairly, and relating them.
//!
//! Every store and group of workloads of every round is a fresh process with a fresh directory, so memory,
//! CPU time and bytes are its own. Within a round the stores take turns on each group, so what changes on the
//! machine over minutes meets all of them; every second round goes the other way round, so none always comes
//! after the same neighbour.
//!
//! A ratio is made round by round between runs of one durability class that were both settled. Where these
//! differ there is no ratio, and a refusal says why.

use crate::child::Child;
use crate::failure::Result;
use crate::record::{Latency, RatioRecord, RefusalRecord, RunRecord};
use crate::store::{self, Named};
use crate::workload::{Scale, named};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

/// How often a run is done again because of what else the machine did.
const AGAIN: u32 = 4;
/// The ending of a configuration's name in records of the build before ([`Plan::before`]).
const BEFORE: &str = "@before";

/// What to measure.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Plan {
    /// Workloads, with commas between them.
    #[arg(long, value_delimiter = ',', required_unless_present = "matrix")]
    pub(crate) workload: Vec<String>,
    /// Stores, with commas between them; the first is above the line in ratios [default: siltstone].
    #[arg(long, value_delimiter = ',')]
    pub(crate) stores: Vec<String>,
    /// All workloads that users compare stores by, on all stores of this build, where none are named.
    #[arg(long)]
    pub(crate) matrix: bool,
    /// Another build of this program, for `compare`: every store runs in it too, in turns, and ratios are of
    /// this build to it. Its records have `@before` behind the store's configuration.
    #[arg(long, value_name = "PROGRAM")]
    pub(crate) before: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) how: How,
    #[command(flatten)]
    pub(crate) scale: Scale,
}

/// How to measure, whatever it is.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct How {
    /// Rounds.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) runs: u32,
    /// Seed of all keys, values and choices.
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Folder for stores, each in a directory that is removed afterwards (default: beside this program's
    /// folder).
    #[arg(long)]
    pub(crate) dir: Option<PathBuf>,
    /// Seconds after which a process that measures is ended and counted as failed.
    #[arg(long, default_value_t = 900)]
    pub(crate) limit: u64,
    /// Per cent of the processors' time that other machines on the same hardware may take of a run: beyond
    /// it, it is done again, up to four times, and the one of which they took least counts.
    #[arg(long, value_name = "PERCENT")]
    pub(crate) stolen: Option<f64>,
    /// Print one JSON object a line, runs as they end, instead of a table.
    #[arg(long)]
    pub(crate) json: bool,
    /// Measure the machine's own limits before.
    #[arg(long)]
    pub(crate) limits: bool,
    /// Write a page with plots to this file, with the machine's limits.
    #[arg(long)]
    pub(crate) html: Option<PathBuf>,
    /// Write the figures of papers and bars as a Markdown table to this file.
    #[arg(long)]
    pub(crate) markdown: Option<PathBuf>,
}

/// Workloads that one process measures on one store.
#[derive(Debug, PartialEq, Eq)]
struct Group {
    /// Empty for a workload that shares its store with none.
    name: &'static str,
    workloads: Vec<String>,
}

/// A store of a round, and the build that runs it: `None` for this one.
type Turn<'a> = (&'a Named, Option<&'a Path>);

/// A plan whose names are all known.
pub(crate) struct Checked<'a> {
    plan: &'a Plan,
    stores: Vec<Named>,
    groups: Vec<Group>,
}

/// What the matrix measures: its reads right after opening and when steady, its threads.
const MATRIX: &str = "fillrandom,overwrite,overwrite:t2,overwrite:t4,overwrite:t8,readrandom,readrandom:steady,\
    readrandom:steady:t1,readrandom:steady:t4,readrandom:steady:t8,readmissing,seekrandom,seekrandom:steady,readseq,\
    readwhilewriting,ycsb-load,ycsb-a,ycsb-b,ycsb-c,ycsb-c:steady,ycsb-d,ycsb-e,ycsb-f,syncput:1,syncput:8,ws1,ws2,ws3,\
    mixgraph,deleteseq";
const MATRIX_STORES: [&str; 9] = [
    "siltstone",
    "siltstone:mapped",
    "siltstone:auto",
    "rocksdb:default",
    "rocksdb:tuned",
    "rocksdb:universal",
    "fjall",
    "pebble",
    "lmdb",
];

impl Plan {
    /// With the names that are not given.
    pub(crate) fn completed(mut self) -> Self {
        let split = |names: &str| names.split(',').map(str::to_string).collect::<Vec<_>>();
        if self.workload.is_empty() && self.matrix {
            self.workload = split(MATRIX);
        }
        if self.stores.is_empty() {
            let known = MATRIX_STORES.iter().filter(|name| store::named(name).is_ok());
            self.stores =
                if self.matrix { known.map(|name| (*name).into()).collect() } else { split("siltstone") };
        }
        self
    }

    pub(crate) fn check(&self) -> Result<Checked<'_>, String> {
        let stores = self.stores.iter().map(|name| store::named(name)).collect::<Result<_, String>>()?;
        let mut groups: Vec<Group> = Vec::new();
        for name in &self.workload {
            for workload in named(name, &self.scale)? {
                if groups.iter().any(|group| group.workloads.contains(&workload.name)) {
                    continue;
                }
                let shared =
                    groups.iter_mut().find(|group| !group.name.is_empty() && group.name == workload.group);
                match shared {
                    Some(group) => group.workloads.push(workload.name),
                    None => groups.push(Group { name: workload.group, workloads: vec![workload.name] }),
                }
            }
        }
        Ok(Checked { plan: self, stores, groups })
    }
}

impl How {
    /// Where stores are made: as said, or target/bench-data for target/release/siltstone-bench.
    pub(crate) fn base(&self) -> Result<PathBuf> {
        let base = match &self.dir {
            Some(dir) => dir.clone(),
            None => {
                let program = std::env::current_exe()?;
                let target = program.parent().and_then(Path::parent);
                target.ok_or("this program lies in no folder")?.join("bench-data")
            }
        };
        std::fs::create_dir_all(&base)?;
        Ok(base)
    }

    /// The records of one run, and how it ended. Where other machines took too much of the processors, the
    /// run is repeated, at most [`AGAIN`] times, and the one from which they took least counts.
    fn calmest(
        &self,
        mut run: impl FnMut(&mut Vec<RunRecord>) -> Result<()>,
    ) -> (Vec<RunRecord>, Result<()>) {
        let mut run = || {
            let mut told = Vec::new();
            let ended = run(&mut told);
            (told, ended)
        };
        let stolen = |(told, _): &(Vec<RunRecord>, _)| {
            told.iter().filter_map(|record| record.stolen).fold(0.0, f64::max) * 100.0
        };
        let mut calmest = run();
        for again in 1..=AGAIN {
            let most = self.stolen.unwrap_or(f64::INFINITY);
            if calmest.1.is_err() || stolen(&calmest) <= most {
                break;
            }
            let percent = stolen(&calmest);
            eprintln!(
                "siltstone-bench: others took {percent:.1} % of the processors; again, {again} of {AGAIN}"
            );
            let next = run();
            if stolen(&next) < percent && next.1.is_ok() {
                calmest = next;
            } else {
                calmest.1 = next.1;
            }
        }
        calmest
    }
}

impl Checked<'_> {
    /// Runs everything. `seen` gets each record as it comes; the answer is what failed.
    pub(crate) fn measure(&self, mut seen: impl FnMut(&RunRecord)) -> Result<Vec<String>> {
        let base = self.plan.how.base()?;
        let mut failures = Vec::new();
        for run in 1..=self.plan.how.runs {
            let mut scale = self.plan.scale.clone();
            for group in &self.groups {
                let mut turns = self.turns();
                if run % 2 == 0 {
                    turns.reverse();
                }
                for turn in turns {
                    let (store, build) = turn;
                    let (records, ended) =
                        self.plan.how.calmest(|told| self.child(turn, group, &scale, run, &base, told));
                    if self.plan.scale.most_puts.is_none() {
                        records.iter().for_each(|record| scale.note_most(record));
                    }
                    records.iter().for_each(&mut seen);
                    if let Err(why) = ended {
                        let name = store.name() + build.map_or("", |_| BEFORE);
                        let what = format!("{name} on {}, run {run}: {why}", group.workloads.join(","));
                        eprintln!("siltstone-bench: {what}");
                        failures.push(what);
                    }
                }
            }
        }
        Ok(failures)
    }

    /// The processes of one round in order.
    fn turns(&self) -> Vec<Turn<'_>> {
        let builds = || [None].into_iter().chain(self.plan.before.as_deref().map(Some));
        self.stores.iter().flat_map(|store| builds().map(move |build| (store, build))).collect()
    }

    /// One process. Its records count even if it failed.
    fn child(
        &self,
        (store, build): Turn<'_>,
        group: &Group,
        scale: &Scale,
        run: u32,
        base: &Path,
        told: &mut Vec<RunRecord>,
    ) -> Result<()> {
        let dir = tempfile::Builder::new().prefix("bench-").tempdir_in(base)?;
        // What the run before left to be written out is not this one's burden.
        rustix::fs::sync();
        let child = Child {
            workload: group.workloads.clone(),
            store: store.name(),
            run,
            seed: self.plan.how.seed,
            dir: dir.path().into(),
            killed: false,
            program: build.map(Path::to_path_buf),
            scale: scale.clone(),
        };
        let mut child = child.command()?.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
        let lines = child.stdout.take().map(BufReader::new);
        let reader = std::thread::spawn(move || {
            let lines = lines.into_iter().flat_map(|lines| lines.lines().map_while(std::result::Result::ok));
            lines.map(|line| serde_json::from_str(&line)).collect::<serde_json::Result<Vec<RunRecord>>>()
        });
        let deadline = Instant::now() + Duration::from_secs(self.plan.how.limit);
        let status = loop {
            if let Some(status) = child.try_wait()? {
                break Ok(status);
            }
            if Instant::now() > deadline {
                child.kill()?;
                child.wait()?;
                break Err(format!("not done after {} s", self.plan.how.limit));
            }
            std::thread::sleep(Duration::from_millis(20));
        };
        let records = reader.join().map_err(|_| "its output could not be read")?;
        let records = records?.into_iter().map(|mut record| {
            if build.is_some() {
                record.config.push_str(BEFORE);
            }
            record
        });
        told.extend(records);
        let status = status?;
        if status.success() { Ok(()) } else { Err(format!("ended with {status}").into()) }
    }

    /// The configurations that are related, as records name them: each store's of this build to that of the
    /// build before, or else the first store's to each other one's.
    fn related(&self) -> Vec<[(&'static str, String); 2]> {
        let name = |store: &Named| (store.store, store.config.to_string());
        if self.plan.before.is_some() {
            let before = |store: &Named| (store.store, format!("{}{BEFORE}", store.config));
            return self.stores.iter().map(|store| [name(store), before(store)]).collect();
        }
        let Some((first, others)) = self.stores.split_first() else { return Vec::new() };
        others.iter().map(|other| [name(first), name(other)]).collect()
    }

    /// The ratios of what is related, and where there is none.
    pub(crate) fn ratios(&self, runs: &[RunRecord]) -> (Vec<RatioRecord>, Vec<RefusalRecord>) {
        let (mut ratios, mut refusals) = (Vec::new(), Vec::new());
        let mut workloads: Vec<&str> = Vec::new();
        for run in runs {
            if !workloads.contains(&run.workload.as_str()) {
                workloads.push(&run.workload);
            }
        }
        for workload in workloads {
            let of = |(store, config): &(&str, String)| -> Vec<&RunRecord> {
                let its = |run: &&RunRecord| {
                    run.workload == workload && run.store == *store && run.config == *config
                };
                runs.iter().filter(its).collect()
            };
            for [a, b] in self.related() {
                match relate(&of(&a), &of(&b)) {
                    Ok(made) => ratios.extend(made),
                    Err(Some(refusal)) => refusals.push(refusal),
                    Err(None) => {}
                }
            }
        }
        (ratios, refusals)
    }
}

/// A figure of a run; not a number where it has none.
pub(crate) type Figure = fn(&RunRecord) -> f64;

/// The metrics of which ratios are made.
const METRICS: &[(&str, Figure)] = &[
    ("ops_s", |run| run.ops_s),
    ("cpu_us_op", |run| run.cpu_us_op),
    // Where nothing is written, the few bytes that are all the same relate to nothing.
    ("device_write_bytes", |run| if run.user_bytes > 0 { run.device_write_bytes as f64 } else { f64::NAN }),
    ("flushes", |run| number(run.flushes)),
    ("flushed_bytes", |run| number(run.flushed_bytes)),
    ("flushed_merged_bytes", |run| run.flushed_merged_bytes().unwrap_or(f64::NAN)),
    ("p99_us", |run| run.p99_us),
    // Of reads beside writes, and of scans: all operations together would hide them.
    ("read_p99_us", |run| if mixed(run) { latency(run, "read", |l| l.p99_us) } else { f64::NAN }),
    ("scan_mean_us", |run| if mixed(run) { latency(run, "scan", |l| l.mean_us) } else { f64::NAN }),
];

pub(crate) fn number(figure: Option<u64>) -> f64 {
    figure.map_or(f64::NAN, |n| n as f64)
}

fn mixed(run: &RunRecord) -> bool {
    run.latency.len() > 1
}

pub(crate) fn latency(run: &RunRecord, kind: &str, figure: fn(&Latency) -> f64) -> f64 {
    run.latency.get(kind).map_or(f64::NAN, figure)
}

/// What one figure of runs of one store is over that of another's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Relation {
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
    /// Rounds.
    pub(crate) runs: u32,
}

impl Relation {
    /// Round by round. Nothing where a round has no number: nothing was written by either, or by the other
    /// alone.
    pub(crate) fn of(pairs: &[(&RunRecord, &RunRecord)], figure: Figure) -> Option<Relation> {
        let mut values: Vec<f64> = pairs.iter().map(|(a, b)| figure(a) / figure(b)).collect();
        values.sort_by(f64::total_cmp);
        let all = !values.is_empty() && values.iter().all(|value| value.is_finite());
        all.then(|| Relation {
            median: median(&values),
            min: values[0],
            max: values[values.len() - 1],
            runs: values.len() as u32,
        })
    }
}

/// The runs of two stores on one workload, paired by round.
pub(crate) fn pairs<'a>(a: &[&'a RunRecord], b: &[&'a RunRecord]) -> Vec<(&'a RunRecord, &'a RunRecord)> {
    a.iter().filter_map(|a| Some((*a, *b.iter().find(|b| b.run == a.run)?))).collect()
}

/// The ratios of the runs of `a` to those of `b` on one workload, paired by round; or why there are none:
/// nothing to pair, or no common ground.
fn relate(a: &[&RunRecord], b: &[&RunRecord]) -> Result<Vec<RatioRecord>, Option<RefusalRecord>> {
    let pairs = pairs(a, b);
    let Some((one, other)) = pairs.first() else { return Err(None) };
    let name = |run: &RunRecord| format!("{}:{}", run.store, run.config);
    for (a, b) in &pairs {
        // What only reads loses nothing.
        let writes = a.user_bytes > 0 || b.user_bytes > 0;
        let why = if writes && a.durability != b.durability {
            format!("durability differs: {:?} against {:?}", a.durability, b.durability).to_lowercase()
        } else if a.settled != b.settled {
            "only one of them was settled".to_string()
        } else {
            continue;
        };
        let (kind, workload) = ("refusal".into(), a.workload.clone());
        return Err(Some(RefusalRecord { kind, workload, a: name(a), b: name(b), why }));
    }
    let ratio = |(metric, figure): &(&str, Figure)| {
        let Relation { median, min, max, runs } = Relation::of(&pairs, *figure)?;
        let (kind, workload, metric) = ("ratio".into(), one.workload.clone(), (*metric).into());
        Some(RatioRecord { kind, workload, metric, a: name(one), b: name(other), median, min, max, runs })
    };
    Ok(METRICS.iter().filter_map(ratio).collect())
}

/// The median of sorted values, of which there is at least one.
pub(crate) fn median(values: &[f64]) -> f64 {
    let middle = values.len() / 2;
    if values.len() % 2 == 1 { values[middle] } else { f64::midpoint(values[middle - 1], values[middle]) }
}

impl Scale {
    /// Notes how fast a store can go; over all stores, the smallest maximum counts.
    fn note_most(&mut self, record: &RunRecord) {
        if record.workload != "felt:max" {
            return;
        }
        let rate = |kinds: &[&str]| {
            let count = |kind: &&str| record.latency.get(*kind).map_or(0, |latency| latency.count);
            kinds.iter().map(count).sum::<u64>() as f64 / record.seconds
        };
        let least = |so_far: Option<f64>, rate: f64| Some(so_far.map_or(rate, |so_far| so_far.min(rate)));
        self.most_puts = least(self.most_puts, rate(&["write"]));
        self.most_reads = least(self.most_reads, rate(&["read", "scan"]));
    }

    /// The arguments that give this scale to a child process.
    pub(crate) fn args(&self) -> Vec<String> {
        let options = [
            ("--keys", self.keys.map(|n| n.to_string())),
            ("--ops", self.ops.map(|n| n.to_string())),
            ("--value-size", self.value_size.map(|n| n.to_string())),
            ("--key-size", self.key_size.map(|n| n.to_string())),
            ("--threads", self.threads.map(|n| n.to_string())),
            ("--memory", self.memory.map(|n| n.to_string())),
            ("--seconds", self.seconds.map(|n| n.to_string())),
            ("--most-puts", self.most_puts.map(|n| n.to_string())),
            ("--most-reads", self.most_reads.map(|n| n.to_string())),
        ];
        let given =
            options.into_iter().filter_map(|(name, value)| Some([name.to_string(), value?])).flatten();
        given.chain(self.direct_reads.then(|| "--direct-reads".to_string())).collect()
    }
}

#[cfg(test)]
mod tests;
