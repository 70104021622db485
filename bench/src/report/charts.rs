//! Which charts a block of the report gets: its course over time, from the run of each store whose rate is
//! the median, and how its latencies are distributed, over all runs together.

use super::columns::whole_seconds;
use super::plot::{Axis, Chart, Line, micros, plain, share, thousands};
use super::{Block, Row};
use crate::record::Second;
use std::collections::BTreeMap;

/// Buckets of the drawn histogram in a factor of ten.
const BUCKETS: f64 = 10.0;

/// The charts of a block; `style` gives a store its line.
pub(super) fn charts(block: &Block<'_>, style: impl Fn(&str) -> usize) -> Vec<Chart> {
    let line = |row: &Row<'_>, steps: bool, points: Vec<(f64, f64)>| Line {
        name: row.store.clone(),
        style: style(&row.store),
        steps,
        points,
        marked: None,
    };
    let over_time = |title: &str, y: Axis, points: fn(&Row<'_>) -> Vec<(f64, f64)>| Chart {
        title: title.into(),
        x: Axis { label: "time since the first operation (s)", log: false, tick: plain },
        y,
        lines: block.rows.iter().map(|row| line(row, false, points(row))).collect(),
    };
    let latency = |label| Axis { label, log: true, tick: micros };
    let mut charts = vec![
        over_time(
            "Operations a second over time",
            Axis { label: "operations a second", log: false, tick: thousands },
            rates,
        ),
        over_time("p99 of each second", latency("p99 latency"), |row| latencies(row, |s| s.p99_us)),
        over_time("Slowest operation of each second", latency("maximum latency"), |row| {
            latencies(row, |s| s.max_us)
        }),
    ];
    if block.rows.iter().any(|row| !row.typical().scan_timeline.is_empty()) {
        charts.push(over_time("Slowest scan of each second", latency("maximum latency"), |row| {
            row.typical().scan_timeline.iter().map(|second| (second.at, second.max_us)).collect()
        }));
    }
    let kinds = block.kinds();
    for kind in &kinds {
        let of = if kinds.len() > 1 { format!(" of a {kind}") } else { String::new() };
        let distribution =
            |title: &str, label, log, steps, points: fn(&Histogram) -> Vec<(f64, f64)>| Chart {
                title: format!("{title}{of}"),
                x: latency("latency"),
                y: Axis { label, log, tick: share },
                lines: block.rows.iter().map(|row| line(row, steps, points(&histogram(row, kind)))).collect(),
            };
        charts.push(distribution("Histogram of the latency", "share of operations", false, true, bars));
        charts.push(distribution("Tail of the latency", "share that took longer", true, false, longer));
    }
    charts
}

/// Operations in each second.
fn rates(row: &Row<'_>) -> Vec<(f64, f64)> {
    each_second(row, 0.0, |second| second.ops as f64)
}

/// A latency in each second; the line has a gap where no operation ended.
fn latencies(row: &Row<'_>, figure: fn(&Second) -> f64) -> Vec<(f64, f64)> {
    each_second(row, f64::NAN, figure)
}

fn each_second(row: &Row<'_>, nothing: f64, figure: fn(&Second) -> f64) -> Vec<(f64, f64)> {
    let seconds = whole_seconds(row.typical()).into_iter();
    seconds.map(|(at, second)| (at, second.map_or(nothing, figure))).collect()
}

/// Nanoseconds to operations.
type Histogram = BTreeMap<u64, u64>;

/// The operations of one kind of all runs.
fn histogram(row: &Row<'_>, kind: &str) -> Histogram {
    let mut sum = Histogram::new();
    for (nanos, count) in row.runs.iter().filter_map(|run| run.latency.get(kind)).flat_map(|l| &l.histogram) {
        *sum.entry(*nanos).or_default() += count;
    }
    sum
}

/// The share of operations in buckets of equal width on a logarithmic axis, each at its lower end; both ends
/// at zero.
fn bars(histogram: &Histogram) -> Vec<(f64, f64)> {
    let total = histogram.values().sum::<u64>() as f64;
    let bucket = |nanos: u64| (nanos.max(1) as f64 / 1e3).log10().mul_add(BUCKETS, 1e-9).floor() as i32;
    let lower = |bucket: i32| 10_f64.powf(f64::from(bucket) / BUCKETS);
    let (Some((first, _)), Some((last, _))) = (histogram.first_key_value(), histogram.last_key_value())
    else {
        return Vec::new();
    };
    let (first, last) = (bucket(*first), bucket(*last));
    let mut counts = vec![0; (last - first + 2) as usize];
    for (nanos, count) in histogram {
        counts[(bucket(*nanos) - first) as usize] += count;
    }
    let mut points = vec![(lower(first), 0.0)];
    points.extend((first..).zip(&counts).map(|(at, count)| (lower(at), *count as f64 / total)));
    points
}

/// For each latency, the share of operations that took longer. Ends before nothing is left.
fn longer(histogram: &Histogram) -> Vec<(f64, f64)> {
    let total: u64 = histogram.values().sum();
    let mut left = total;
    let mut points = Vec::new();
    for (nanos, count) in histogram {
        left -= count;
        points.push((*nanos as f64 / 1e3, left as f64 / total as f64));
    }
    points.pop();
    points
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{blocks, made_up};

    #[test]
    fn the_tail_falls_from_all_to_the_last_operation() {
        let histogram = Histogram::from([(1_000, 90), (2_000, 9), (50_000, 1)]);
        assert_eq!(longer(&histogram), [(1.0, 0.1), (2.0, 0.01)]);
        assert_eq!(longer(&Histogram::new()), []);
    }

    #[test]
    fn the_bars_hold_every_operation_once_and_begin_and_end_at_zero() {
        let histogram = Histogram::from([(999, 5), (1_000, 60), (1_100, 30), (20_000, 5)]);
        let bars = bars(&histogram);
        assert_eq!((bars[0].1, bars[bars.len() - 1].1), (0.0, 0.0));
        assert!((bars.iter().map(|(_, share)| share).sum::<f64>() - 1.0).abs() < 1e-9);
        assert_eq!(bars.iter().find(|(at, _)| (at - 1.0).abs() < 1e-9).unwrap().1, 0.9);
        assert!(super::bars(&Histogram::new()).is_empty());
    }

    #[test]
    fn each_kind_of_operation_has_its_own_distribution() {
        let made = made_up::records();
        let blocks = blocks(&made.runs);
        let titles =
            |at: usize| -> Vec<String> { charts(&blocks[at], |_| 0).into_iter().map(|c| c.title).collect() };
        assert_eq!(titles(0).len(), 5);
        assert_eq!(titles(1).len(), 7);
        assert!(titles(1).contains(&"Tail of the latency of a read".to_string()));
        let mut scanned = made.runs.clone();
        scanned[0].scan_timeline = scanned[0].timeline.clone();
        scanned.truncate(1);
        let with_scans = charts(&super::super::blocks(&scanned)[0], |_| 0);
        assert_eq!(with_scans[3].title, "Slowest scan of each second");
        assert_eq!(with_scans[3].lines[0].points.len(), scanned[0].timeline.len());
        let first = &charts(&blocks[0], |store| store.len())[0];
        assert_eq!((first.lines.len(), first.lines[0].style), (3, "siltstone:default".len()));
    }

    #[test]
    fn a_second_in_which_nothing_ended_has_no_operations_and_no_latency() {
        let mut made = made_up::records();
        made.runs.truncate(1);
        let second = |at: f64, ops| Second { at, ops, p99_us: 7.0, ..Second::default() };
        made.runs[0].timeline = vec![second(0.0, 100), second(2.0, 50)];
        made.runs[0].seconds = 3.5;
        let row = &blocks(&made.runs)[0].rows[0];
        assert_eq!(rates(row), [(0.0, 100.0), (1.0, 0.0), (2.0, 50.0)]);
        let p99 = latencies(row, |s| s.p99_us);
        assert!(p99[0].1 == 7.0 && p99[1].1.is_nan() && p99[2].1 == 7.0, "{p99:?}");
    }
}
