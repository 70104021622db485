//! Records in a form for people: aligned text, and one page of HTML. Made from records only, so that a file
//! of them can be printed again years later.
//!
//! Records are put into blocks, one for each workload and number of threads, and in a block into rows, one
//! for each store and its configuration. A row's figures are medians over its runs; what `table` and `html`
//! print of a row is listed once, in `columns`.
//!
//! - `columns`: the figures of a row. `table`: text. `plot`: one chart as SVG. `charts`: which charts a block
//!   gets. `sweep`: those of a setting that its rows vary. `unseen`: what readers felt of a compaction that
//!   was asked for, `beside`: of those that came. `matrix`: workloads by stores. `bars`: figures of papers.
//!   `html`: the page around them. `costs`: a drawing of its own, strategies by what they cost.

mod bars;
mod beside;
mod charts;
mod columns;
mod costs;
mod html;
mod matrix;
mod plot;
mod sweep;
mod table;
mod unseen;

#[cfg(test)]
mod made_up;

pub(crate) use costs::{Cost, Panel, costs};
pub(crate) use html::html;
#[cfg(test)]
pub(crate) use made_up::{
    around_a_merge as made_up_around_a_merge, beside_merges as made_up_beside_merges, run as made_up_run,
};
pub(crate) use matrix::bars as matrix_bars;
pub(crate) use table::table;

use crate::record::{FigureRecord, Latency, LimitRecord, RatioRecord, RefusalRecord, RunRecord};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// The command: prints the records of files, and writes them as a page, as Markdown, and their plot of
/// latency around a compaction as a file of its own.
pub(crate) fn run(
    files: &[PathBuf],
    page: Option<&Path>,
    text: Option<&Path>,
    svg: Option<&Path>,
) -> io::Result<()> {
    let mut records = Records::default();
    for file in files {
        let read = std::fs::read_to_string(file)?;
        records.read(&read).map_err(|e| io::Error::other(format!("{}: {e}", file.display())))?;
    }
    // Of all rounds together, in the place of those that a file has of its own.
    records.figures.retain(|figure| !matrix::is_bar(figure));
    records.figures.extend(matrix::bars(&records.runs));
    if let Some(page) = page {
        std::fs::write(page, html(&records))?;
    }
    if let Some(text) = text {
        std::fs::write(text, markdown(&records))?;
    }
    if let Some(svg) = svg {
        let drawn = around_merges(&records);
        let none = || io::Error::other("there is no run of `unseen` or `felt`");
        std::fs::write(svg, drawn.ok_or_else(none)?)?;
    }
    io::stdout().lock().write_all(table(&records).as_bytes())
}

/// The plot of latency of the first workload with a compaction in its middle, or beside compactions that
/// came, as a file of its own. Runs as fast as they go are not among them.
fn around_merges(records: &Records) -> Option<String> {
    blocks(&records.runs).iter().filter(|block| block.workload != "felt:max").find_map(|block| {
        let style = |name: &str| block.rows.iter().position(|row| row.store == name).unwrap_or_default();
        let mut charts = unseen::charts(block, style).into_iter().chain(beside::charts(block, style));
        charts.next()?.file()
    })
}

/// Records by kind.
#[derive(Default)]
pub(crate) struct Records {
    pub(crate) runs: Vec<RunRecord>,
    pub(crate) ratios: Vec<RatioRecord>,
    pub(crate) refusals: Vec<RefusalRecord>,
    pub(crate) figures: Vec<FigureRecord>,
    pub(crate) limits: Vec<LimitRecord>,
}

impl Records {
    /// Reads one JSON object a line. Kinds that are not known are passed over, so that older reports read
    /// newer files; a line that is no record is an error.
    pub(crate) fn read(&mut self, text: &str) -> Result<(), String> {
        for (at, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            self.take(line).map_err(|e| format!("line {}: {e}", at + 1))?;
        }
        Ok(())
    }

    fn take(&mut self, line: &str) -> serde_json::Result<()> {
        #[derive(serde::Deserialize)]
        struct Kind {
            kind: String,
        }
        match serde_json::from_str::<Kind>(line)?.kind.as_str() {
            "run" => self.runs.push(serde_json::from_str(line)?),
            "ratio" => self.ratios.push(serde_json::from_str(line)?),
            "refusal" => self.refusals.push(serde_json::from_str(line)?),
            "figure" => self.figures.push(serde_json::from_str(line)?),
            "limit" => self.limits.push(serde_json::from_str(line)?),
            _ => {}
        }
        Ok(())
    }
}

/// The runs of one workload with one number of threads.
struct Block<'a> {
    workload: &'a str,
    threads: u32,
    rows: Vec<Row<'a>>,
}

/// The runs of one store in a block.
struct Row<'a> {
    /// `store:config`.
    store: String,
    /// Never empty.
    runs: Vec<&'a RunRecord>,
}

/// The blocks, and the rows in each, in the order in which they first appear.
fn blocks(runs: &[RunRecord]) -> Vec<Block<'_>> {
    let mut blocks: Vec<Block<'_>> = Vec::new();
    for run in runs {
        let same = |b: &Block<'_>| b.workload == run.workload && b.threads == run.threads;
        let at = blocks.iter().position(same).unwrap_or_else(|| {
            blocks.push(Block { workload: &run.workload, threads: run.threads, rows: Vec::new() });
            blocks.len() - 1
        });
        let (rows, store) = (&mut blocks[at].rows, store(run));
        match rows.iter_mut().find(|row| row.store == store) {
            Some(row) => row.runs.push(run),
            None => rows.push(Row { store, runs: vec![run] }),
        }
    }
    blocks
}

fn store(run: &RunRecord) -> String {
    format!("{}:{}", run.store, run.config)
}

impl Block<'_> {
    /// One line that says what was run.
    fn title(&self) -> String {
        let plural = if self.threads == 1 { "" } else { "s" };
        format!("{}, {} thread{plural}", self.workload, self.threads)
    }

    /// Operations of each run, where all agree.
    fn ops(&self) -> Option<u64> {
        let mut runs = self.rows.iter().flat_map(|row| &row.runs);
        let ops = runs.next()?.ops;
        runs.all(|run| run.ops == ops).then_some(ops)
    }

    /// Kinds of operations, where there are several.
    fn kinds(&self) -> Vec<&str> {
        let runs = self.rows.iter().flat_map(|row| &row.runs);
        let mut kinds: Vec<&str> = runs.flat_map(|run| run.latency.keys()).map(String::as_str).collect();
        kinds.sort_unstable();
        kinds.dedup();
        kinds
    }
}

/// The word that tells a ratio apart whose stores do not compress alike.
fn compression_of_both(runs: &[RunRecord], workload: &str, a: &str, b: &str) -> String {
    let of = |name: &str| runs.iter().find(|run| run.workload == workload && store(run) == name);
    match (of(a), of(b)) {
        (Some(a), Some(b)) if a.compression != b.compression => {
            format!(" (compression {} against {})", a.compression, b.compression)
        }
        _ => String::new(),
    }
}

impl<'a> Row<'a> {
    /// A figure over the runs that have it.
    fn over(&self, figure: impl Fn(&RunRecord) -> Option<f64>) -> Option<Spread> {
        Spread::of(self.runs.iter().filter_map(|run| figure(run)).collect())
    }

    /// The run whose rate is the median; its course over time stands for all.
    fn typical(&self) -> &'a RunRecord {
        let mut runs = self.runs.clone();
        runs.sort_by(|a, b| a.ops_s.total_cmp(&b.ops_s));
        runs[(runs.len() - 1) / 2]
    }
}

/// Several values of one figure.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Spread {
    median: f64,
    min: f64,
    max: f64,
    count: usize,
}

impl Spread {
    fn of(mut values: Vec<f64>) -> Option<Self> {
        values.sort_by(f64::total_cmp);
        let (min, max) = (*values.first()?, *values.last()?);
        let middle = values.len() / 2;
        let odd = values.len() % 2 == 1;
        let median = if odd { values[middle] } else { f64::midpoint(values[middle - 1], values[middle]) };
        Some(Self { median, min, max, count: values.len() })
    }

    /// How far the farthest value is from the median, as a share of it. One value repeats nothing.
    fn deviation(&self) -> Option<f64> {
        let far = (self.max - self.median).max(self.median - self.min);
        (self.count > 1 && self.median > 0.0).then(|| far / self.median)
    }
}

/// The figures of the latencies of one kind of operation: mean, p50, p99, p99.9, max.
const LATENCIES: [fn(&Latency) -> f64; 5] =
    [|l| l.mean_us, |l| l.p50_us, |l| l.p99_us, |l| l.p999_us, |l| l.max_us];

/// How far the figures that should repeat do: a line each, with the row that repeats worst.
fn repeats(blocks: &[Block<'_>]) -> Vec<String> {
    let line = |what: &str, goal: u32, figure: fn(&RunRecord) -> Option<f64>| {
        let rows = blocks.iter().flat_map(|block| block.rows.iter().map(move |row| (block, row)));
        let deviations = rows.filter_map(|(block, row)| Some((row.over(figure)?.deviation()?, block, row)));
        let (worst, block, row) = deviations.max_by(|a, b| a.0.total_cmp(&b.0))?;
        let (percent, title) = (worst * 100.0, block.title());
        Some(format!(
            "{what}: every run within {percent:.1} % of its median, goal {goal} %; worst {} on {title}",
            row.store
        ))
    };
    let bytes = line("written bytes repeat", 3, columns::device_bytes);
    bytes.into_iter().chain(line("CPU time repeats", 5, columns::cpu)).collect()
}

/// Figures of papers as heads and rows of cells; what was simulated only where anything was.
fn figure_cells(figures: &[FigureRecord]) -> (Vec<&'static str>, Vec<Vec<String>>) {
    let simulated = figures.iter().any(|figure| figure.simulated.is_some());
    let mut heads = vec!["figure", "goal", "paper or bar"];
    heads.extend(simulated.then_some("simulated"));
    heads.extend(["ours", "holds"]);
    let maybe = |figure: Option<f64>| figure.map_or("-".to_string(), digits);
    let row = |f: &FigureRecord| {
        let mut cells = vec![f.id.clone(), f.goal.clone(), maybe(f.paper)];
        cells.extend(simulated.then(|| maybe(f.simulated)));
        cells.extend([digits(f.ours), if f.holds { "yes" } else { "no" }.to_string()]);
        cells
    };
    (heads, figures.iter().map(row).collect())
}

/// The matrix and the figures as Markdown tables.
pub(crate) fn markdown(records: &Records) -> String {
    let matrix = matrix::markdown(&records.runs);
    if records.figures.is_empty() {
        return matrix;
    }
    let (heads, rows) = figure_cells(&records.figures);
    let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
    let heads: Vec<String> = heads.into_iter().map(str::to_string).collect();
    let rule: Vec<String> = heads.iter().map(|_| "---".to_string()).collect();
    let lines = [line(&heads), line(&rule)].into_iter().chain(rows.iter().map(|row| line(row)));
    std::iter::once(matrix).chain(lines).collect()
}

/// Three digits that count, or whole numbers from 100.
pub(crate) fn digits(value: f64) -> String {
    match value.abs() {
        0.0 => "0".into(),
        v if v < 0.9995 => format!("{value:.3}"),
        v if v < 9.995 => format!("{value:.2}"),
        v if v < 99.95 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

/// The description of a limit.
fn describe(what: &str) -> &str {
    match what {
        "cores" => "processors",
        "memory" => "memory",
        "cpu_pressure" => "time in which work waited for a processor, ten seconds before this began",
        "seq_write_direct" => "sequential write, 1 MiB x 8, O_DIRECT, then fdatasync",
        "seq_write_buffered" => "sequential write, 1 MiB x 8, buffered, then fdatasync",
        "seq_read_direct" => "sequential read, 1 MiB x 8, O_DIRECT",
        "seq_read_buffered" => "sequential read, 1 MiB x 8, buffered, after dropping the file's cache",
        "pread_4k_cached" => "random pread of 4 KiB from the page cache, 1 thread",
        "fdatasync_4k_p50" => "fdatasync after overwriting 4 KiB, 1 thread, median",
        "fdatasync_4k_p99" => "fdatasync after overwriting 4 KiB, 1 thread, p99",
        "overwrite_fdatasync_4k_1t" => "overwrite of 4 KiB + fdatasync, 1 thread",
        "fdatasync_4k_8t_p50" => "fdatasync after overwriting 4 KiB, 8 threads on 8 files, median",
        "fdatasync_4k_8t_p99" => "fdatasync after overwriting 4 KiB, 8 threads on 8 files, p99",
        "overwrite_fdatasync_4k_8t" => "overwrite of 4 KiB + fdatasync, 8 threads on 8 files",
        "memcpy" => "memcpy of 128 MiB, 1 thread",
        "crc32c_4k" => "CRC-32C of 4 KiB, 1 thread",
        "xxh3_4k" => "XXH3 of 4 KiB, 1 thread",
        "lz4_compress_16k" => "LZ4 compression of 16 KiB that halve, 1 thread",
        "lz4_decompress_16k" => "LZ4 decompression to 16 KiB, 1 thread",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_records_is_read_back_by_kind_and_newer_kinds_are_passed_over() {
        let made = made_up::records();
        let mut text = String::new();
        for run in &made.runs {
            text += &(serde_json::to_string(run).unwrap() + "\n\n");
        }
        text += "{\"kind\":\"of-tomorrow\",\"x\":1}\n";
        text += &(serde_json::to_string(&made.limits[0]).unwrap() + "\n");
        text += &(serde_json::to_string(&made.refusals[0]).unwrap() + "\n");
        text += &serde_json::to_string(&made.figures[0]).unwrap();
        let mut read = Records::default();
        read.read(&text).unwrap();
        assert_eq!((read.runs.len(), read.ratios.len(), read.limits.len()), (made.runs.len(), 0, 1));
        assert_eq!((read.refusals.len(), read.figures.len()), (1, 1));
        assert_eq!(read.runs[0].latency["write"].histogram, made.runs[0].latency["write"].histogram);
        let wrong = read.read("\n{\"kind\":\"run\"}").unwrap_err();
        assert!(wrong.starts_with("line 2: missing field"), "{wrong}");
    }

    #[test]
    fn runs_are_grouped_by_workload_and_threads_then_by_store() {
        let mut made = made_up::records();
        made.runs.push(RunRecord { threads: 8, ..made.runs[0].clone() });
        let blocks = blocks(&made.runs);
        let titles: Vec<String> = blocks.iter().map(Block::title).collect();
        assert_eq!(titles, ["fillrandom, 1 thread", "ycsb-a, 2 threads", "fillrandom, 8 threads"]);
        let rows: Vec<_> = blocks[0].rows.iter().map(|row| (row.store.as_str(), row.runs.len())).collect();
        assert_eq!(rows, [("siltstone:default", 3), ("rocksdb:tuned", 3), ("lmdb:default", 1)]);
        assert_eq!(blocks[0].rows[0].typical().ops_s, 262_000.0);
        assert_eq!(blocks[1].kinds(), ["read", "write"]);
    }

    #[test]
    fn a_spread_has_the_median_and_the_farthest_from_it() {
        let spread = Spread::of(vec![9.0, 10.0, 12.0]).unwrap();
        assert_eq!((spread.median, spread.min, spread.max), (10.0, 9.0, 12.0));
        assert_eq!(spread.deviation(), Some(0.2));
        assert_eq!(Spread::of(vec![1.0, 2.0]).unwrap().median, 1.5);
        assert_eq!(Spread::of(vec![1.0]).unwrap().deviation(), None);
        assert_eq!(Spread::of(vec![]), None);
    }

    #[test]
    fn what_was_simulated_has_a_column_only_where_anything_was() {
        let mut figures = made_up::records().figures;
        assert_eq!(figure_cells(&figures).0, ["figure", "goal", "paper or bar", "ours", "holds"]);
        figures.push(FigureRecord { paper: None, simulated: Some(2.6), ..figures[0].clone() });
        let (heads, rows) = figure_cells(&figures);
        assert_eq!(heads, ["figure", "goal", "paper or bar", "simulated", "ours", "holds"]);
        assert_eq!(
            (&rows[0][2..4], &rows[1][2..4]),
            (&["2.50".into(), "-".into()][..], &["-".into(), "2.60".into()][..])
        );
    }

    #[test]
    fn figures_are_a_markdown_table() {
        let text = markdown(&made_up::records());
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[..2],
            ["| figure | goal | paper or bar | ours | holds |", "| --- | --- | --- | --- | --- |"]
        );
        assert_eq!(lines.len(), 2 + made_up::records().figures.len());
        assert!(lines.iter().all(|line| line.matches('|').count() == 6), "{text}");
    }

    #[test]
    fn numbers_keep_three_digits() {
        let printed: Vec<String> = [0.0, 0.12345, 1.0, 9.996, 99.96, 12345.6].map(digits).into();
        assert_eq!(printed, ["0", "0.123", "1.00", "10.0", "100", "12346"]);
    }
}
