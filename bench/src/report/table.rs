//! Records as aligned text: a block for each workload, its ratios below it, then how far all of it repeats
//! and what the machine can do.

use super::columns::COLUMNS;
use super::{
    Block, Records, Row, beside, blocks, compression_of_both, describe, digits, figure_cells, unseen,
};
use crate::record::{FigureRecord, LimitRecord};
use std::fmt::Write;

/// All records as text; each part is left out where there is nothing to say.
pub(crate) fn table(records: &Records) -> String {
    let mut parts = Vec::new();
    let blocks = blocks(&records.runs);
    for (at, block) in blocks.iter().enumerate() {
        let mut part = results(block);
        // A ratio does not name its threads, so it stands after the last block of its workload.
        if blocks[at + 1..].iter().all(|later| later.workload != block.workload) {
            part += &relations(records, |workload| workload == block.workload);
        }
        parts.push(part);
    }
    parts.push(relations(records, |workload| blocks.iter().all(|block| block.workload != workload)));
    parts.push(repeats(&blocks));
    parts.push(figures(&records.figures));
    parts.push(machine(&records.limits));
    parts.retain(|part| !part.is_empty());
    parts.join("\n")
}

fn results(block: &Block<'_>) -> String {
    let ops = block.ops().map_or(String::new(), |ops| format!(", {ops} operations a run"));
    let mut lines =
        vec![std::iter::once("store").chain(COLUMNS.iter().map(|c| c.head)).map(str::to_string).collect()];
    for row in &block.rows {
        lines.push(std::iter::once(row.store.clone()).chain(COLUMNS.iter().map(|c| (c.cell)(row))).collect());
    }
    let mut text = format!("{}{ops}\n{}", block.title(), align(&lines, 1));
    let kinds = block.kinds();
    if kinds.len() > 1 {
        let heads = ["store", "operation", "count", "mean us", "p50", "p99", "p99.9", "max"];
        let mut lines = vec![heads.map(str::to_string).to_vec()];
        for row in &block.rows {
            lines.extend(kinds.iter().filter_map(|kind| by_kind(row, kind)));
        }
        text += &align(&lines, 2);
    }
    let around = unseen::rows(block);
    if !around.is_empty() {
        let heads = unseen::HEADS.map(|(head, _)| head.to_string()).to_vec();
        text += &align(&[&[heads], &around[..]].concat(), 1);
    }
    let beside = beside::rows(block);
    if !beside.is_empty() {
        let heads = beside::HEADS.map(|(head, _)| head.to_string()).to_vec();
        text += &align(&[&[heads], &beside[..]].concat(), 1);
    }
    text
}

/// The latencies of one kind of operation, medians over the runs.
fn by_kind(row: &Row<'_>, kind: &str) -> Option<Vec<String>> {
    let mut cells = vec![row.store.clone(), kind.to_string()];
    let count = row.over(|run| Some(run.latency.get(kind)?.count as f64))?;
    cells.push(format!("{:.0}", count.median));
    for figure in super::LATENCIES {
        cells.push(digits(row.over(|run| Some(figure(run.latency.get(kind)?)))?.median));
    }
    Some(cells)
}

/// A line for each pair of stores on the workloads that `wanted` takes: its ratios, or why there are none.
fn relations(records: &Records, wanted: impl Fn(&str) -> bool) -> String {
    let mut pairs: Vec<(String, String)> = Vec::new();
    for ratio in records.ratios.iter().filter(|ratio| wanted(&ratio.workload)) {
        let both = compression_of_both(&records.runs, &ratio.workload, &ratio.a, &ratio.b);
        let pair = format!("  {}: {} / {}{both}", ratio.workload, ratio.a, ratio.b);
        let runs = if ratio.runs == 1 { "" } else { "s" };
        let (median, min, max) = (digits(ratio.median), digits(ratio.min), digits(ratio.max));
        let text = format!("  {} {median} ({min}..{max}, {} run{runs})", ratio.metric, ratio.runs);
        match pairs.iter_mut().find(|(known, _)| *known == pair) {
            Some((_, line)) => *line += &text,
            None => pairs.push((pair, text)),
        }
    }
    for refusal in records.refusals.iter().filter(|refusal| wanted(&refusal.workload)) {
        let pair = format!("  {}: {} / {}", refusal.workload, refusal.a, refusal.b);
        pairs.push((pair, format!("  no ratio: {}", refusal.why)));
    }
    let wide = pairs.iter().map(|(pair, _)| pair.len()).max().unwrap_or_default();
    pairs.iter().fold(String::new(), |mut text, (pair, line)| {
        let _ = writeln!(text, "{pair:wide$}{line}");
        text
    })
}

/// One line for each figure that should repeat: the worst of all rows, and where that was.
fn repeats(blocks: &[Block<'_>]) -> String {
    super::repeats(blocks).iter().fold(String::new(), |text, line| text + line + "\n")
}

fn figures(figures: &[FigureRecord]) -> String {
    if figures.is_empty() {
        return String::new();
    }
    let (heads, rows) = figure_cells(figures);
    let mut lines = vec![heads.into_iter().map(str::to_string).collect()];
    lines.extend(rows);
    format!("figures of papers, and bars\n{}", align(&lines, 2))
}

fn machine(limits: &[LimitRecord]) -> String {
    if limits.is_empty() {
        return String::new();
    }
    let lines: Vec<Vec<String>> = limits
        .iter()
        .map(|limit| vec![describe(&limit.what).to_string(), digits(limit.value), limit.unit.clone()])
        .collect();
    format!("limits of this machine\n{}", align(&lines, 1))
}

/// Columns of equal width, two spaces in front of each: the first `left` to the left, the others to the
/// right. A last column of words, as units are, needs no padding either way.
fn align(lines: &[Vec<String>], left: usize) -> String {
    let columns = lines.iter().map(Vec::len).max().unwrap_or_default();
    let wide: Vec<usize> = (0..columns)
        .map(|at| {
            lines.iter().filter_map(|line| line.get(at)).map(|cell| cell.chars().count()).max().unwrap_or(0)
        })
        .collect();
    let mut text = String::new();
    for line in lines {
        let mut row = String::new();
        for (at, (cell, wide)) in line.iter().zip(&wide).enumerate() {
            let _ = if at < left { write!(row, "  {cell:<wide$}") } else { write!(row, "  {cell:>wide$}") };
        }
        text += row.trim_end();
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::made_up;

    const GOLDEN: &str = include_str!("table_golden.txt");

    #[test]
    fn the_text_of_made_up_records_is_as_written_down() {
        let text = table(&made_up::records());
        assert_eq!(text, GOLDEN, "now:\n{text}");
    }

    #[test]
    fn nothing_is_no_text_and_a_part_alone_is_that_part() {
        let made = made_up::records();
        assert_eq!(table(&Records::default()), "");
        let ratios = table(&Records { ratios: made.ratios, ..Records::default() });
        assert_eq!(ratios.lines().count(), 2);
        assert!(ratios.contains("ops_s 1.81 (1.77..1.86, 3 runs)  cpu_us_op 0.550"), "{ratios}");
        let limits = table(&Records { limits: made.limits, ..Records::default() });
        assert!(limits.starts_with("limits of this machine\n"));
        let once = table(&Records { runs: made.runs[..1].to_vec(), ..Records::default() });
        assert!(!once.contains("repeat"), "one run says nothing about repeating: {once}");
    }
}
