//! Charts of a setting: where configurations of a store differ in one number only, as `basic+s1` to
//! `basic+s5` do, the number is the axis.

use super::plot::{Axis, Chart, Line, plain, thousands};
use super::{Block, Row};

/// Fewer points are no course.
const POINTS: usize = 3;

/// One setting of one family of configurations.
struct Sweep<'a> {
    /// The configuration with a letter for the number.
    name: String,
    points: Vec<(f64, &'a Row<'a>)>,
}

/// A chart of operations a second and one of the bytes of tables written, for each setting that the block
/// varies.
pub(super) fn charts(block: &Block<'_>) -> Vec<Chart> {
    let mut charts = Vec::new();
    for sweep in sweeps(&block.rows) {
        let mut chart = |title: &str, y: Axis, figure: fn(&Row<'_>) -> Option<f64>| {
            let points = sweep.points.iter().filter_map(|(x, row)| Some((*x, figure(row)?))).collect();
            let line = Line { name: sweep.name.clone(), style: 0, steps: false, points, marked: None };
            charts.push(Chart {
                title: format!("{title}, {}", sweep.name),
                x: Axis { label: "N", log: false, tick: plain },
                y,
                lines: vec![line],
            });
        };
        chart(
            "Operations a second",
            Axis { label: "operations a second", log: false, tick: thousands },
            |row| Some(row.over(|run| Some(run.ops_s))?.median),
        );
        chart("Flushed and merged", Axis { label: "MB", log: false, tick: plain }, |row| {
            Some(row.over(|run| Some(run.flushed_merged_bytes()? / 1e6))?.median)
        });
    }
    charts
}

fn sweeps<'a>(rows: &'a [Row<'a>]) -> Vec<Sweep<'a>> {
    let mut sweeps: Vec<Sweep<'a>> = Vec::new();
    for row in rows {
        let parts: Vec<&str> = row.store.split('+').collect();
        for (at, part) in parts.iter().enumerate() {
            let name = part.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
            let Ok(number) = part[name.len()..].parse() else { continue };
            let mut general: Vec<String> = parts.iter().map(|part| (*part).to_string()).collect();
            general[at] = format!("{name}N");
            let name = general.join("+");
            match sweeps.iter_mut().find(|sweep| sweep.name == name) {
                Some(sweep) => sweep.points.push((number, row)),
                None => sweeps.push(Sweep { name, points: vec![(number, row)] }),
            }
        }
    }
    sweeps.retain(|sweep| sweep.points.len() >= POINTS);
    for sweep in &mut sweeps {
        sweep.points.sort_by(|a, b| a.0.total_cmp(&b.0));
    }
    sweeps
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::RunRecord;
    use crate::report::{blocks, made_up};

    #[test]
    fn configurations_that_differ_in_one_number_make_a_line() {
        let made = made_up::records().runs.remove(0);
        let run = |config: &str| RunRecord { config: config.into(), ..made.clone() };
        let configs =
            ["basic+s5", "basic+s1", "basic+s2", "adaptive+r0.2", "adaptive+r0.5", "none+l4", "sketch"];
        let runs = configs.map(run);
        let blocks = blocks(&runs);
        let charts = charts(&blocks[0]);
        let titles: Vec<&str> = charts.iter().map(|chart| chart.title.as_str()).collect();
        assert_eq!(
            titles,
            ["Operations a second, siltstone:basic+sN", "Flushed and merged, siltstone:basic+sN"]
        );
        let at: Vec<f64> = charts[0].lines[0].points.iter().map(|point| point.0).collect();
        assert_eq!(at, [1.0, 2.0, 5.0]);
        assert!(charts[0].svg().is_some());
    }
}
