use super::*;
use crate::store;
use clap::{Parser, ValueEnum};
use std::collections::BTreeMap;

#[test]
fn every_figure_relates_configurations_that_exist_and_are_run() {
    for (which, _) in QUICK {
        let name = which.to_possible_value().unwrap();
        let args = ["paper", name.get_name(), "--scale", &SCALE_MIN.to_string(), "--local"];
        let paper = Command::parse_from(args).paper;
        let Contents { cells, figures } = paper.contents().unwrap();
        for cell in &cells {
            assert!(Scale::of(cell.workload, SCALE_MIN, cell.memory).is_ok(), "{}", cell.workload);
            for config in &cell.configs {
                assert!(store::named(&full_name(config)).is_ok(), "{config}");
            }
        }
        for figure in &figures {
            let cell = cells.iter().find(|cell| cell.workload == figure.workload).unwrap();
            let all = std::iter::once(&figure.above).chain(&figure.below);
            all.for_each(|config| assert!(cell.configs.contains(config), "{}: {config}", figure.id));
            assert!(figure.paper > 0.0 || figure.paper.is_nan());
        }
        let mut ids: Vec<&str> = figures.iter().map(|figure| figure.id.as_str()).collect();
        ids.sort_unstable();
        assert!(!ids.is_empty() && ids.windows(2).all(|two| two[0] != two[1]), "{ids:?}");
    }
}

fn run(config: &str, round: u32, ops_s: f64, flushes: u64) -> RunRecord {
    let latency = crate::record::Latency {
        count: 100,
        histogram: vec![(1_000, 90), (2_000, 6), (9_000, 4)],
        ..Default::default()
    };
    RunRecord {
        ops_s,
        flushes: Some(flushes),
        latency: BTreeMap::from([("read".to_string(), latency)]),
        ..crate::report::made_up_run("accordion-zipf", "siltstone", config, round, 200_000.0)
    }
}

fn figure(metric: Metric, below: &[&str], goal: Goal) -> Figure {
    let (id, workload) = ("table 0".to_string(), "accordion-zipf");
    let (above, below) = ("basic+s5".into(), strings(below));
    Figure { id, workload, metric, above, below, paper: 0.8, simulated: Some(0.7), goal }
}

#[test]
fn a_figure_is_the_median_over_the_rounds_and_holds_or_not() {
    let runs = [(1, 6), (2, 8), (3, 10)].map(|(round, flushes)| run("basic+s5", round, 1.0, flushes));
    let runs = [runs, [1, 2, 3].map(|round| run("none", round, 1.0, 10))].concat();
    let made = |goal| figure(|r| crate::compare::number(r.flushes), &["none"], goal).record(&runs).unwrap();
    let record = made(Goal::AtMost(0.8));
    assert_eq!(
        (record.ours, record.paper, record.simulated, record.goal.as_str(), record.holds),
        (0.8, Some(0.8), Some(0.7), "at most 0.8", true)
    );
    assert!(
        !made(Goal::AtMost(0.7)).holds && made(Goal::AtLeast(0.7)).holds && !made(Goal::AtLeast(0.9)).holds
    );
}

#[test]
fn below_the_line_stands_the_fastest() {
    let runs = [run("basic+s5", 1, 90.0, 1), run("none", 1, 50.0, 1), run("eager", 1, 100.0, 1)];
    let record = figure(ops_s, &["none", "eager"], Goal::AtLeast(1.0)).record(&runs).unwrap();
    assert_eq!((record.ours, record.holds), (0.9, false));
}

#[test]
fn a_figure_without_its_runs_or_without_anything_counted_is_not_made() {
    let flushes: Metric = |r| crate::compare::number(r.flushes);
    let alone = [run("basic+s5", 1, 1.0, 1)];
    assert!(figure(flushes, &["none"], Goal::AtMost(1.0)).record(&alone).is_none());
    let nothing = [run("basic+s5", 1, 1.0, 0), run("none", 1, 1.0, 0)];
    assert!(figure(flushes, &["none"], Goal::AtMost(1.0)).record(&nothing).is_none());
}

#[test]
fn quantiles_come_from_the_raw_histogram() {
    let run = run("none", 1, 1.0, 1);
    assert_eq!([0.5, 0.9, 0.95, 0.99].map(|share| quantile(&run, "read", share)), [1e3, 1e3, 2e3, 9e3]);
    assert!(quantile(&run, "scan", 0.5).is_nan());
}

#[test]
fn the_deviation_is_that_of_the_raw_histogram() {
    // 90 of 1, 6 of 2 and 4 of 9: 1.38 on average, squares 4.38.
    let run = run("none", 1, 1.0, 1);
    let expected = (4.38 - 1.38_f64.powi(2)).sqrt() * 1000.0;
    assert!((deviation(&run, "read") - expected).abs() < 1e-6, "{}", deviation(&run, "read"));
    assert!(deviation(&run, "scan").is_nan());
}

#[test]
fn a_store_of_others_is_related_by_its_full_name() {
    let mut theirs = run("tuned", 1, 50.0, 1);
    theirs.store = "rocksdb".into();
    let runs = [run("basic+s5", 1, 100.0, 1), run("tuned", 1, 1.0, 1), theirs];
    let record = figure(ops_s, &["rocksdb:tuned"], Goal::AtLeast(1.0)).record(&runs).unwrap();
    assert_eq!(record.ours, 2.0);
}

#[test]
fn of_rangemerge_the_puts_at_a_rate_and_those_as_fast_as_they_go_are_measured_apart() {
    let workloads = |options: &[&str]| {
        let args = [&["paper", "rangemerge", "--scale", "0.002"][..], options].concat();
        let contents = Command::parse_from(args).paper.contents().unwrap();
        let cells: Vec<_> = contents.cells.iter().map(|cell| cell.workload).collect();
        assert!(contents.figures.iter().all(|figure| cells.contains(&figure.workload)));
        (cells, contents.figures.len())
    };
    let (paced, paced_figures) = workloads(&["--paced"]);
    let (fills, fill_figures) = workloads(&["--unthrottled"]);
    let (all, all_figures) = workloads(&[]);
    assert_eq!((paced, all.len()), (vec![rangemerge::PACED], 1 + fills.len()));
    assert!(!fills.contains(&rangemerge::PACED) && fills.len() > 3);
    assert_eq!(all_figures, paced_figures + fill_figures);
}

#[test]
fn all_papers_are_run_quickly_or_in_full_and_one_by_its_scale() {
    let papers = |args: &str| {
        let parsed = Command::try_parse_from(["paper"].into_iter().chain(args.split(' ')));
        let papers = parsed.map_err(|e| e.to_string())?.paper.papers().map_err(|e| e.to_string())?;
        Ok::<_, String>(
            papers.into_iter().map(|one| (one.paper, one.scale, one.how.runs)).collect::<Vec<_>>(),
        )
    };
    let quick = papers("all --quick").unwrap();
    assert_eq!(quick.iter().map(|(which, scale, _)| (*which, *scale)).collect::<Vec<_>>(), QUICK);
    assert!(quick.iter().all(|(_, _, runs)| *runs == 1));
    let full = papers("all --full").unwrap();
    assert!(full.len() == 4 && full.iter().all(|(_, scale, runs)| (*scale, *runs) == (1.0, FULL_RUNS)));
    assert!(papers("all --full --runs 5").unwrap().iter().all(|(_, _, runs)| *runs == 5));
    assert_eq!(papers("triad --scale 0.5").unwrap(), [(Which::Triad, 0.5, 1)]);
    assert!(papers("all").unwrap_err().contains("--quick or --full"));
    assert!(papers("triad --quick").unwrap_err().contains("--scale"));
    assert!(papers("all --quick --scale 0.5").is_err() && papers("all --quick --full").is_err());
}

#[derive(clap::Parser)]
struct Command {
    #[command(flatten)]
    paper: Paper,
}
