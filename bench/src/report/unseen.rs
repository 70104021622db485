//! The effect on readers of the compaction in the middle of a run, as a table and over time.
//!
//! Windows are drawn at their middles. A bar above the plot says of each store when its compaction ran: all
//! begin at the same time and end when they end.

use super::plot::{Axis, Chart, Line, micros, plain, share};
use super::{Block, Row, digits};
use crate::reader_latency::Felt;
use crate::record::{RunRecord, Stage, Window};

/// The heads of the table, and what they mean.
pub(super) const HEADS: [(&str, &str); 10] = [
    ("store", ""),
    ("rate", "Operations a second that were due"),
    ("merge s", "How long the compaction took"),
    ("p99 before us", "p99 of all gets before the compaction"),
    ("during", "p99 of gets in the worst window of the compaction"),
    ("after", "p99 of gets in the worst window after it"),
    ("worst / before", "The worse of the two over that before"),
    ("hits before %", "Data blocks found in the cache before the compaction"),
    ("lowest %", "The same in the worst window from then on"),
    ("extra MB", "The most memory beyond that when the compaction began"),
];

/// A row for each store that had a compaction in the middle of its run, medians over its runs.
pub(super) fn rows(block: &Block<'_>) -> Vec<Vec<String>> {
    let row = |row: &Row<'_>| {
        row.over(|run| Felt::of(run).map(|felt| felt.before_us))?;
        let cell = |figure: fn(&RunRecord) -> Option<f64>| {
            row.over(figure).map_or("-".into(), |spread| digits(spread.median))
        };
        Some(vec![
            row.store.clone(),
            cell(|run| number(run, "rate")),
            cell(|run| number(run, "merge_seconds")),
            cell(|run| Some(Felt::of(run)?.before_us)),
            cell(|run| Some(Felt::of(run)?.during_us)),
            cell(|run| Some(Felt::of(run)?.after_us)),
            cell(|run| Some(Felt::of(run)?.p99_ratio())),
            cell(|run| Some(Felt::of(run)?.hits?.0 * 100.0)),
            cell(|run| Some(Felt::of(run)?.hits?.1 * 100.0)),
            cell(|run| Some(run.extra_memory_bytes? as f64 / 1e6)),
        ])
    };
    block.rows.iter().filter_map(row).collect()
}

fn number(run: &RunRecord, setting: &str) -> Option<f64> {
    run.settings.get(setting)?.parse().ok()
}

/// Latency and hits over time, where there was such a compaction.
pub(super) fn charts(block: &Block<'_>, style: impl Fn(&str) -> usize) -> Vec<Chart> {
    let chart = |title: &str, y: Axis, figure: fn(&Window) -> f64| {
        let line = |row: &Row<'_>| {
            let run = row.typical();
            let width = width(run)?;
            let middle = |window: &Window| (window.at + width / 2.0, figure(window));
            Some(Line {
                name: row.store.clone(),
                style: style(&row.store),
                steps: false,
                points: run.windows.iter().map(middle).collect(),
                marked: merged(run, width),
            })
        };
        Chart {
            title: title.into(),
            x: Axis {
                label: "time since the first get (s); bars above: while the compaction ran",
                log: false,
                tick: plain,
            },
            y,
            lines: block.rows.iter().filter_map(line).collect(),
        }
    };
    let charts = [
        chart(
            "p99 latency of gets while everything is merged",
            Axis { label: "p99 latency of gets", log: true, tick: micros },
            |window| window.get_p99_us,
        ),
        chart(
            "Blocks found in the cache",
            Axis { label: "share of data blocks", log: false, tick: share },
            |window| window.hit_ratio.unwrap_or(f64::NAN),
        ),
    ];
    charts.into_iter().filter(|chart| !chart.lines.is_empty()).collect()
}

/// How long a window is.
fn width(run: &RunRecord) -> Option<f64> {
    Some(run.windows.get(1)?.at - run.windows.first()?.at)
}

/// From when to when the compaction ran, in whole windows.
fn merged(run: &RunRecord, width: f64) -> Option<(f64, f64)> {
    let mut during = run.windows.iter().filter(|window| window.stage == Stage::During);
    let first = during.next()?;
    Some((first.at, during.next_back().unwrap_or(first).at + width))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{Records, around_merges, blocks, made_up_around_a_merge as made_up};

    fn records() -> Records {
        let runs = ["siltstone", "rocksdb"]
            .map(|store| made_up(store, "default", [(100, 0.6), (100, 0.6)], [240.0, 9_000.0, 250.0]));
        Records { runs: runs.to_vec(), ..Records::default() }
    }

    #[test]
    fn each_store_has_a_line_of_its_windows_and_a_bar_where_its_compaction_was() {
        let records = records();
        let blocks = blocks(&records.runs);
        let charts = charts(&blocks[0], |_| 0);
        let line = &charts[0].lines[1];
        assert_eq!(line.points, [(2.5, 200.0), (7.5, 200.0), (12.5, 240.0), (17.5, 9_000.0), (22.5, 250.0)]);
        assert_eq!((line.name.as_str(), line.marked), ("rocksdb:default", Some((10.0, 20.0))));
        assert_eq!((charts.len(), charts[1].lines[0].points[0].1), (2, 0.6));
    }

    #[test]
    fn the_table_tells_what_was_felt() {
        let records = records();
        let rows = rows(&blocks(&records.runs)[0]);
        assert_eq!(rows[0][3..], ["200", "9000", "250", "45.0", "60.0", "60.0", "10.0"]);
        assert_eq!((rows[0].len(), rows.len()), (HEADS.len(), 2));
    }

    #[test]
    fn the_file_stands_alone_and_runs_without_a_compaction_have_none() {
        let file = around_merges(&records()).unwrap();
        assert!(file.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\""));
        for part in [
            "prefers-color-scheme: dark",
            "p99 latency of gets",
            "(s)",
            ">siltstone:default</text>",
            "class=\"paper\"",
        ] {
            assert!(file.contains(part), "{part}");
        }
        assert_eq!(file.matches("<svg").count(), 1);
        let mut records = records();
        records.runs.iter_mut().for_each(|run| run.windows.clear());
        assert!(around_merges(&records).is_none() && rows(&blocks(&records.runs)[0]).is_empty());
    }
}
