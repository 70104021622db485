//! Latencies beside compactions and without them, in runs that leave the time of compactions to the store
//! (`felt`), as a table and over time.

use super::plot::{Axis, Chart, Line, micros, plain};
use super::{Block, Row, digits};
use crate::record::{BesideMerges, Latency, RunRecord, Second};

/// The heads of the table, and what they mean.
pub(super) const HEADS: [(&str, &str); 15] = [
    ("store", ""),
    ("merging %", "Seconds of the run in which a compaction of tables ran, in percent"),
    ("get p99 us", "p99 of gets in the seconds without a compaction"),
    ("beside", "The same in the seconds with one"),
    ("ratio", "The one over the other"),
    ("get p99.9", "p99.9 of gets in the seconds without a compaction"),
    ("beside", "The same in the seconds with one"),
    ("ratio", "The one over the other"),
    ("scan p99", "p99 of scans in the seconds with a compaction"),
    ("put p99.9", "p99.9 of all puts"),
    ("longest put", "The slowest put"),
    (
        "idle p99",
        "By how much a thread was late at p99 that did nothing at due times, for the machine and for the store's threads",
    ),
    ("p99.9", "The same at p99.9"),
    ("hits %", "Data blocks found in the cache"),
    ("debt MB", "Merging that the store said it owed, in the mean"),
];

/// A row for each store that reported its compactions, medians over its runs.
pub(super) fn rows(block: &Block<'_>) -> Vec<Vec<String>> {
    let row = |row: &Row<'_>| {
        row.over(|run| run.beside_merges.as_ref().map(|_| 0.0))?;
        let cell = |figure: &dyn Fn(&RunRecord) -> Option<f64>| {
            row.over(figure).map_or("-".into(), |spread| digits(spread.median))
        };
        let told =
            |figure: fn(&BesideMerges) -> Option<f64>| cell(&|run| figure(run.beside_merges.as_ref()?));
        let puts = |figure: fn(&Latency) -> f64| cell(&|run| run.latency.get("write").map(figure));
        Some(vec![
            row.store.clone(),
            told(|told| {
                Some(100.0 * told.with_seconds as f64 / (told.with_seconds + told.without_seconds) as f64)
            }),
            told(|told| Some(told.without.get("read")?.p99_us)),
            told(|told| Some(told.with.get("read")?.p99_us)),
            told(|told| told.ratio("read", |l| l.p99_us)),
            told(|told| Some(told.without.get("read")?.p999_us)),
            told(|told| Some(told.with.get("read")?.p999_us)),
            told(|told| told.ratio("read", |l| l.p999_us)),
            told(|told| Some(told.with.get("scan")?.p99_us)),
            puts(|l| l.p999_us),
            puts(|l| l.max_us),
            cell(&|run| Some(run.control.as_ref()?.p99_us)),
            cell(&|run| Some(run.control.as_ref()?.p999_us)),
            told(|told| Some(told.hit_ratio? * 100.0)),
            told(|told| Some(told.debt_mean? / 1e6)),
        ])
    };
    block.rows.iter().filter_map(row).collect()
}

/// Gets and puts over time, in runs with automatic compactions.
pub(super) fn charts(block: &Block<'_>, style: impl Fn(&str) -> usize) -> Vec<Chart> {
    let chart = |title: &str, label: &'static str, kind: &str, figure: fn(&Second) -> f64| {
        let line = |row: &Row<'_>| {
            let seconds = row.typical().beside_merges.as_ref()?.timelines.get(kind)?;
            Some(Line {
                name: row.store.clone(),
                style: style(&row.store),
                steps: false,
                points: seconds.iter().map(|second| (second.at, figure(second))).collect(),
                marked: None,
            })
        };
        Chart {
            title: title.into(),
            x: Axis { label: "time (s)", log: false, tick: plain },
            y: Axis { label, log: true, tick: micros },
            lines: block.rows.iter().filter_map(line).collect(),
        }
    };
    let charts = [
        chart("p99 latency of gets beside puts and their merges", "p99 latency of gets", "read", |s| {
            s.p99_us
        }),
        chart("Slowest put of each second", "slowest put", "write", |s| s.max_us),
    ];
    charts.into_iter().filter(|chart| !chart.lines.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{blocks, made_up};

    #[test]
    fn the_table_tells_both_kinds_of_seconds_and_the_charts_all_of_them() {
        let runs = [made_up::beside_merges("siltstone", 110.0), made_up::beside_merges("rocksdb", 900.0)];
        let blocks = blocks(&runs);
        let rows = rows(&blocks[0]);
        assert_eq!(rows[1][..5], ["rocksdb:default", "25.0", "100", "900", "9.00"]);
        assert_eq!(rows[0][11..], ["-", "-", "60.0", "5.00"]);
        assert_eq!((rows[0].len(), rows.len()), (HEADS.len(), 2));
        let charts = charts(&blocks[0], |_| 0);
        assert_eq!((charts.len(), charts[0].lines.len(), charts[0].lines[0].points.len()), (2, 2, 4));
        let mut without = runs.to_vec();
        without.iter_mut().for_each(|run| run.beside_merges = None);
        let none = super::super::blocks(&without);
        assert!(super::rows(&none[0]).is_empty() && super::charts(&none[0], |_| 0).is_empty());
    }
}
