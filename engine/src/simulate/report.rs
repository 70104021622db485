//! The result of a simulation, for people and as JSON.

use super::SimulateOptions;
use crate::types::size_text;
use serde::Serialize;
use std::fmt;

/// The result of [`super::simulate`].
///
/// ```
/// use siltstone::simulate::{SimulateOptions, simulate};
/// let options = SimulateOptions { data_bytes: 1 << 30, memory_bytes: 16 << 20, ..Default::default() };
/// let report = simulate(&options)?;
/// println!("{report}");
/// assert!(report.space_amplification >= 1.0);
/// # Ok::<(), String>(())
/// ```
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
// Over 15 fields: one figure each.
pub struct SimulateReport {
    /// The strategy with its settings.
    pub strategy: String,
    /// The workload.
    pub workload: String,
    /// Bytes of distinct keys and values at the end.
    pub data_bytes: u64,
    /// Write memory.
    pub memory_bytes: u64,
    /// Bytes written to SSTables per byte inserted, without the WAL; measured when levels have their sizes.
    pub write_amplification: f64,
    /// Write amplification of the fill; `None` when the fill was loaded in key order.
    pub fill_write_amplification: Option<f64>,
    /// Blocks that a get of an existing key reads, with one false positive of filters in a hundred.
    pub read_amplification: f64,
    /// Runs that a get may have to search, on average.
    pub runs_mean: f64,
    /// The most runs after a flush and its compactions.
    pub runs_max: u64,
    /// SSTable bytes over data bytes, on average.
    pub space_amplification: f64,
    /// The most bytes on disk at any moment, with two steps of a running compaction.
    pub peak_space_bytes: u64,
    /// Input bytes of the largest compaction.
    pub largest_compaction_input_bytes: u64,
    /// The most bytes caused by one flush: those it wrote, and those that the compactions due after it read
    /// and wrote. The papers' "compaction".
    pub largest_compaction_bytes: u64,
    /// Seconds that the fill takes if puts wait for flushes and compactions; `None` when the fill was loaded
    /// in key order.
    pub insert_seconds: Option<f64>,
    /// The largest compaction debt after a flush: the bytes that compactions wrote until the strategy planned
    /// no more.
    pub peak_debt_bytes: u64,
    /// Compactions that rewrote SSTables.
    pub compactions: u64,
    /// Trivial moves: compactions that only moved SSTables.
    pub trivial_moves: u64,
    /// Flushes.
    pub flushes: u64,
    /// Bytes inserted, in all phases.
    pub inserted_bytes: u64,
    /// Bytes flushed.
    pub flushed_bytes: u64,
    /// Bytes that compactions wrote.
    pub compaction_written_bytes: u64,
    /// Bytes that flushes wrote and compactions read and wrote.
    pub moved_bytes: u64,
    /// The most SSTables in a shape.
    pub tables_max: u64,
    /// The factor by which SSTables are larger than the strategy's own, to limit their number.
    pub table_scale: f64,
    /// Other ways in which the simulation differs from a real run.
    pub notes: Vec<String>,
}

impl SimulateReport {
    pub(super) fn new(options: &SimulateOptions, table_scale: f64) -> Self {
        SimulateReport {
            strategy: options.strategy.to_string(),
            workload: options.workload.to_string(),
            memory_bytes: options.memory_bytes,
            table_scale,
            ..SimulateReport::default()
        }
    }
}

impl fmt::Display for SimulateReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fill = self.fill_write_amplification.map_or(String::new(), |fill| format!(" (fill {fill:.2})"));
        let SimulateReport { compactions, trivial_moves: moves, flushes, tables_max: most, .. } = self;
        let runs = format!("{:.1} runs, at most {}", self.runs_mean, self.runs_max);
        let [largest, caused] =
            [self.largest_compaction_input_bytes, self.largest_compaction_bytes].map(size_text);
        let [put, flushed] = [self.inserted_bytes, self.flushed_bytes].map(size_text);
        let [compacted, all] = [self.compaction_written_bytes, self.moved_bytes].map(size_text);
        let time = |seconds| format!("{} if puts wait for flushes and compactions", duration_text(seconds));
        let rows = [
            ("strategy", self.strategy.clone()),
            ("workload", self.workload.clone()),
            ("data, memory", format!("{}, {}", size_text(self.data_bytes), size_text(self.memory_bytes))),
            ("write amplification", format!("{:.2}{fill}", self.write_amplification)),
            ("read amplification", format!("{:.2} blocks a get; {runs}", self.read_amplification)),
            ("space amplification", format!("{:.3}", self.space_amplification)),
            ("peak space", size_text(self.peak_space_bytes)),
            ("largest compaction", format!("{largest}; a flush sets in motion at most {caused}")),
            ("peak debt", size_text(self.peak_debt_bytes)),
            ("compactions", format!("{compactions}, and {moves} trivial moves, after {flushes} flushes")),
            (
                "bytes",
                format!("{put} inserted, {flushed} flushed, {compacted} compacted; {all} read and written"),
            ),
            ("time of the fill", self.insert_seconds.map_or("not simulated".into(), time)),
            ("tables", format!("at most {most}, each {:.1} times the strategy's size", self.table_scale)),
        ];
        for (name, value) in rows {
            writeln!(f, "{name:<20} {value}")?;
        }
        for note in &self.notes {
            writeln!(f, "{:<20} {note}", "note")?;
        }
        Ok(())
    }
}

/// Text of a duration for people: `12 s`, `3.4 min`, `5.8 h`, `12.1 days`.
fn duration_text(seconds: f64) -> String {
    match seconds {
        s if s < 100.0 => format!("{s:.0} s"),
        s if s < 6_000.0 => format!("{:.1} min", s / 60.0),
        s if s < 360_000.0 => format!("{:.1} h", s / 3_600.0),
        s => format!("{:.1} days", s / 86_400.0),
    }
}
