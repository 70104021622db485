//! All workloads by all stores, a table for each figure: what `compare --matrix` is about. A cell is the
//! median of its runs, coloured by how far it is behind the best of its row.
//!
//! And its bars: on no workload may the first store do fewer operations a second, or take more CPU time for
//! one, than the best of the other log-structured stores.

use super::plot::escape;
use super::{Block, Row, blocks, digits};
use crate::record::{FigureRecord, RunRecord};
use std::collections::BTreeSet;

/// Fewer workloads or stores are no matrix; a store counts once, however many configurations it has.
const WORKLOADS_MIN: usize = 4;
const STORES_MIN: usize = 2;
/// So many times behind the best a cell has the full colour.
const FULL: f64 = 4.0;
/// Stores that compact nothing.
const B_TREES: [&str; 1] = ["lmdb"];

/// A figure that has a table.
struct Metric {
    title: &'static str,
    figure: fn(&RunRecord) -> Option<f64>,
    /// Whether more is better.
    more: bool,
}

const METRICS: [Metric; 7] = [
    Metric { title: "Thousand operations a second", figure: |run| Some(run.ops_s / 1e3), more: true },
    Metric { title: "CPU time an operation, us", figure: |run| Some(run.cpu_us_op), more: false },
    Metric {
        title: "Written to the device, MB",
        // What is read alone writes nothing worth a comparison.
        figure: |run| (run.user_bytes > 0).then_some(run.device_write_bytes as f64 / 1e6),
        more: false,
    },
    Metric { title: "p99, us", figure: |run| Some(run.p99_us), more: false },
    Metric { title: "p99.9, us", figure: |run| Some(run.p999_us), more: false },
    Metric {
        title: "Most memory resident, MB",
        figure: |run| Some(run.peak_rss_bytes as f64 / 1e6),
        more: false,
    },
    Metric {
        title: "Most disk taken, MB",
        figure: |run| Some(run.peak_disk_bytes as f64 / 1e6),
        more: false,
    },
];

/// One table: the names of the stores, and a line for each workload.
struct Table {
    title: &'static str,
    stores: Vec<String>,
    lines: Vec<(String, Vec<Option<Cell>>)>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Cell {
    value: f64,
    /// How many times the best of the row is better.
    behind: f64,
}

impl Metric {
    fn table(&self, blocks: &[Block<'_>], stores: &[String]) -> Table {
        let lines = blocks.iter().map(|block| {
            let of = |store: &String| {
                let row = block.rows.iter().find(|row| row.store == *store)?;
                row.over(self.figure).map(|spread| spread.median)
            };
            let values: Vec<Option<f64>> = stores.iter().map(of).collect();
            let better = |a: f64, b: f64| if self.more { a.max(b) } else { a.min(b) };
            let best = values.iter().flatten().copied().reduce(better).unwrap_or_default();
            let behind = |value: f64| if self.more { best / value } else { value / best };
            let cell = |value: f64| Cell { value, behind: if value == best { 1.0 } else { behind(value) } };
            (block.title(), values.into_iter().map(|value| value.map(cell)).collect())
        });
        Table { title: self.title, stores: stores.to_vec(), lines: lines.collect() }
    }
}

fn tables(runs: &[RunRecord]) -> Vec<Table> {
    let blocks = blocks(runs);
    let mut stores: Vec<String> = Vec::new();
    for row in blocks.iter().flat_map(|block| &block.rows) {
        if !stores.contains(&row.store) {
            stores.push(row.store.clone());
        }
    }
    // A store's own configurations beside each other are a paper's comparison.
    let makers: BTreeSet<&str> = runs.iter().map(|run| run.store.as_str()).collect();
    if blocks.len() < WORKLOADS_MIN || makers.len() < STORES_MIN {
        return Vec::new();
    }
    METRICS.iter().map(|metric| metric.table(&blocks, &stores)).collect()
}

/// The tables as a part of the page; empty where there are too few workloads or stores.
pub(super) fn html(runs: &[RunRecord]) -> String {
    let tables = tables(runs);
    if tables.is_empty() {
        return String::new();
    }
    let mut text =
        "<h2>Matrix</h2>\n<p class=\"soft\">Medians. The darker a cell, the further it is behind the best \
                    of its row; the best is bold.</p>\n"
            .to_string();
    for table in tables {
        let heads: String = table.stores.iter().map(|store| format!("<th>{}</th>", escape(store))).collect();
        text += &format!(
            "<h3>{}</h3>\n<div class=\"wide\"><table>\n<thead><tr><th>workload</th>{heads}</tr></thead>\n<tbody>\n",
            table.title
        );
        for (workload, cells) in table.lines {
            let cells: String = cells.into_iter().map(shaded).collect();
            text += &format!("<tr><td>{}</td>{cells}</tr>\n", escape(&workload));
        }
        text += "</tbody>\n</table></div>\n";
    }
    text
}

fn shaded(cell: Option<Cell>) -> String {
    match cell {
        None => "<td>-</td>".into(),
        Some(Cell { value, behind }) if behind <= 1.0 => format!("<td><b>{}</b></td>", digits(value)),
        Some(Cell { value, behind }) => {
            let percent = (behind.ln() / FULL.ln() * 60.0).min(60.0);
            format!(
                "<td style=\"background: color-mix(in srgb, var(--s1) {percent:.0}%, transparent)\">{}</td>",
                digits(value)
            )
        }
    }
}

/// The tables in Markdown.
pub(super) fn markdown(runs: &[RunRecord]) -> String {
    let mut text = String::new();
    for table in tables(runs) {
        let rule = "---|".repeat(table.stores.len());
        text += &format!("{}:\n\n| workload | {} |\n|---|{rule}\n", table.title, table.stores.join(" | "));
        for (workload, cells) in table.lines {
            let cells = cells.iter().map(|cell| match cell {
                None => "-".to_string(),
                Some(Cell { value, behind }) if *behind <= 1.0 => format!("**{}**", digits(*value)),
                Some(Cell { value, .. }) => digits(*value),
            });
            text += &format!("| {workload} | {} |\n", cells.collect::<Vec<_>>().join(" | "));
        }
        text += "\n";
    }
    text
}

/// Whether a figure is one of `bars`.
pub(super) fn is_bar(figure: &FigureRecord) -> bool {
    figure.id.starts_with(BAR)
}

/// The prefix of bars' names.
const BAR: &str = "matrix: ";

/// For each workload operations a second and CPU time of the first store over those of the best other
/// log-structured one.
pub(crate) fn bars(runs: &[RunRecord]) -> Vec<FigureRecord> {
    if tables(runs).is_empty() {
        return Vec::new();
    }
    let blocks = blocks(runs);
    let Some(first) = blocks.first().and_then(|block| block.rows.first()) else { return Vec::new() };
    let (name, maker) = (&first.store, &first.runs[0].store);
    let figures = blocks.iter().flat_map(|block| {
        let ours = block.rows.iter().find(|row| row.store == *name);
        let peers = block.rows.iter().filter(|row| {
            let store = &row.runs[0].store;
            store != maker && !B_TREES.contains(&store.as_str())
        });
        let peers: Vec<&Row<'_>> = peers.collect();
        let median = |row: &Row<'_>, figure: fn(&RunRecord) -> f64| {
            row.over(|run| Some(figure(run))).map(|s| s.median)
        };
        let bar = |what: &str, figure: fn(&RunRecord) -> f64, more: bool| {
            let all = peers.iter().filter_map(|row| Some((median(row, figure)?, row.store.as_str())));
            let best = match more {
                true => all.max_by(|a, b| a.0.total_cmp(&b.0)),
                false => all.min_by(|a, b| a.0.total_cmp(&b.0)),
            };
            let (best, name) = best?;
            let ratio = median(ours?, figure)? / best;
            Some(FigureRecord {
                kind: "figure".into(),
                id: format!("{BAR}{}, {what} over the best peer's ({name})", block.title()),
                paper: None,
                simulated: None,
                ours: ratio,
                goal: format!("at {} 1", if more { "least" } else { "most" }),
                holds: if more { ratio >= 1.0 } else { ratio <= 1.0 },
            })
        };
        let both = [bar("operations", |run| run.ops_s, true), bar("CPU time", |run| run.cpu_us_op, false)];
        both.into_iter().flatten()
    });
    figures.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::made_up_run;

    fn runs() -> Vec<RunRecord> {
        let mut runs = Vec::new();
        for workload in ["fillrandom", "overwrite", "readrandom", "ycsb-a"] {
            for (store, config, ops_s) in [
                ("siltstone", "default", 300_000.0),
                ("rocksdb", "tuned", 200_000.0),
                ("fjall", "default", if workload == "ycsb-a" { 400_000.0 } else { 100_000.0 }),
                ("lmdb", "default", 900_000.0),
            ] {
                runs.push(made_up_run(workload, store, config, 1, ops_s));
            }
        }
        runs
    }

    #[test]
    fn a_cell_says_how_far_it_is_behind_the_best_of_its_row() {
        let tables = tables(&runs());
        let (workload, cells) = &tables[0].lines[0];
        assert_eq!((workload.as_str(), cells.len()), ("fillrandom, 1 thread", 4));
        assert_eq!(cells[0], Some(Cell { value: 300.0, behind: 3.0 }));
        assert_eq!(cells[3], Some(Cell { value: 900.0, behind: 1.0 }));
        let page = html(&runs());
        assert!(
            page.contains("<td><b>900</b></td>") && page.contains("color-mix(in srgb, var(--s1) 48%"),
            "{page}"
        );
        assert!(markdown(&runs()).contains("| fillrandom, 1 thread | 300 | 200 | 100 | **900** |"));
        assert!(html(&runs()[..8]).is_empty(), "two workloads are no matrix");
    }

    #[test]
    fn bars_are_set_by_the_best_log_structured_peer() {
        let bars = bars(&runs());
        assert_eq!(bars.len(), 8);
        let operations: Vec<_> = bars.iter().filter(|bar| bar.id.contains("operations")).collect();
        assert!(operations[0].holds && (operations[0].ours - 1.5).abs() < 1e-9, "{}", operations[0].id);
        assert!(
            !operations[3].holds && operations[3].id.ends_with("(fjall:default)"),
            "{}",
            operations[3].id
        );
    }
}
