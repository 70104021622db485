//! Simulates a strategy on any data size in seconds: the production `plan` and `apply` over SSTables that are
//! only numbers.
//!
//! An SSTable is a key range with its expected number of distinct keys (`content`, `line`); a flush and a
//! compaction are arithmetic on those. After every flush, compactions run until the strategy plans none. Two
//! phases: *fill* inserts every key once, in random order unless the workload says otherwise; *overwrite*
//! draws keys from the workload. Amplifications come from the second half of the overwrite phase (the whole
//! fill when there is none), when levels have reached their sizes.
//!
//! The report says what is scaled: SSTables are made larger, while memory and data keep their sizes, so that
//! a shape has at most `tables_max` of them; and where flushes would be too many, or touch too many SSTables,
//! the fill is loaded in key order instead and the overwrite phase cut short.
//!
//! Concurrency is not simulated. Debt is counted, not estimated: the bytes that compactions wrote after a
//! flush until the strategy planned no more. Time is computed from bytes: each put costs its caller `put_ns`,
//! and nothing is put while a flush and its compactions read and write at `device_bytes_s`. The clock that
//! strategies see stands still.
//!
//! `by_range` simulates memory by range, and `report` formats the result.

mod by_range;
mod content;
mod line;
mod report;

pub use content::Workload;
pub use report::SimulateReport;

use crate::shape::{Run, Shape, TableInfo};
use crate::strategy::{CompactionKind, CompactionPlan, Facts, PlanState, Step, StrategyOptions, apply};
use crate::types::{KeyRange, TableId, prefix64};
use by_range::MemoryOfRange;
use content::{Content, Density, Piece};
use line::{Line, Put};
use std::collections::HashMap;
use std::sync::Arc;

/// The strategy, data and workload to simulate.
///
/// ```
/// use siltstone::simulate::{SimulateOptions, simulate};
/// let options = SimulateOptions { data_bytes: 1 << 30, memory_bytes: 16 << 20, ..Default::default() };
/// let report = simulate(&options)?;
/// assert!(report.write_amplification > 1.0);
/// # Ok::<(), String>(())
/// ```
#[derive(Clone, PartialEq, Debug)]
pub struct SimulateOptions {
    /// The strategy.
    pub strategy: StrategyOptions,
    /// Bytes of distinct keys with their values at the end of the fill.
    pub data_bytes: u64,
    /// Bytes that a flush writes: in a database, half of [`Options::write_memory`](crate::Options).
    pub memory_bytes: u64,
    /// The active memtable's share of `memory_bytes` when it is full; with memory by range, it is not divided
    /// yet. By default a tenth, as in a database; 0 in the paper RNG.
    pub active_memtable_share: f64,
    /// Bytes of a key.
    pub key_bytes: u64,
    /// Bytes of a value.
    pub value_bytes: u64,
    /// Which keys are put.
    pub workload: Workload,
    /// Bytes overwritten after the fill, as a multiple of the data.
    pub overwrite: f64,
    /// Seed of all random choices: equal seeds and options give equal reports.
    pub seed: u64,
    /// The most SSTables that a shape may have; at most 20,000.
    pub tables_max: u64,
    /// Bytes a second that flushes and compactions read and write together.
    pub device_bytes_s: u64,
    /// Nanoseconds that a put takes its caller.
    pub put_ns: u64,
}

impl Default for SimulateOptions {
    fn default() -> Self {
        SimulateOptions {
            strategy: StrategyOptions::default(),
            data_bytes: 100_000_000_000,
            memory_bytes: 256 << 20,
            active_memtable_share: 0.1,
            key_bytes: 100,
            value_bytes: 1000,
            workload: Workload::Uniform,
            overwrite: 1.0,
            seed: 1,
            tables_max: 20_000,
            device_bytes_s: 200_000_000,
            put_ns: 2_000,
        }
    }
}

/// The most flushes in a phase. With more of them, or more SSTables read and written by compactions, it would
/// take minutes.
const FLUSHES_MAX: u64 = 500_000;
const TABLES_TOUCHED_MAX: u64 = 15_000_000;

/// Runs the simulation. Wrong options give one sentence.
///
/// ```
/// use siltstone::simulate::{SimulateOptions, simulate};
/// let options = SimulateOptions { data_bytes: 20_000_000_000, ..Default::default() };
/// let report = simulate(&options).unwrap();
/// assert!(report.write_amplification > 3.0 && report.space_amplification < 1.5);
/// ```
pub fn simulate(options: &SimulateOptions) -> Result<SimulateReport, String> {
    check(options)?;
    let mut simulator = Simulator::new(options);
    simulator.fill();
    simulator.overwrite();
    Ok(simulator.report)
}

fn check(options: &SimulateOptions) -> Result<(), String> {
    let entry = options.key_bytes.saturating_add(options.value_bytes);
    options.strategy.check()?;
    options.workload.check()?;
    let at_least = |name: &str, value: u64, least: u64| match value >= least {
        true => Ok(()),
        false => Err(format!("{name} must be at least {least}, not {value}")),
    };
    at_least("key and value bytes together", entry, 1)?;
    at_least("memory bytes", options.memory_bytes, 1 << 16)?;
    at_least("memory bytes", options.memory_bytes, entry.saturating_mul(16))?;
    at_least("data bytes", options.data_bytes, options.memory_bytes.saturating_mul(4))?;
    at_least("tables at most", options.tables_max, 100)?;
    at_least("device bytes a second", options.device_bytes_s, 1)?;
    if options.tables_max > 20_000 {
        return Err(format!("tables at most must not exceed 20000, but is {}", options.tables_max));
    }
    if options.data_bytes > 1 << 56 {
        return Err("data bytes must be at most 64 PiB".to_string());
    }
    let (share, overwrite) = (options.active_memtable_share, options.overwrite);
    if !(0.0..=0.5).contains(&share) {
        return Err(format!("the active share must lie between 0 and 0.5, not {share}"));
    }
    if !(0.0..=100.0).contains(&overwrite) {
        return Err(format!("overwrite must lie between 0 and 100, not {overwrite}"));
    }
    Ok(())
}

/// The end of the key line, on which each key is a position.
const KEYS_END: u64 = 1 << 60;

// Over 15 fields: a whole store in numbers: its shape, its clock and its counts.
struct Simulator<'a> {
    options: &'a SimulateOptions,
    strategy: StrategyOptions,
    density: Density,
    line: Line,
    shape: Shape,
    state: PlanState,
    /// The content of each SSTable, in key order.
    contents: HashMap<TableId, Vec<Piece>>,
    next_table: u64,
    next_flush: u64,
    random: u64,
    /// Bytes of one key with its value.
    entry: f64,
    keys: f64,
    filled: f64,
    /// The memory of each range, if the strategy divides memory by range.
    memory: Vec<MemoryOfRange>,
    /// The active memtable's pieces, not divided by range yet: one item for each part of the puts.
    active: Vec<Vec<Piece>>,
    active_bytes: f64,
    /// The number of parts of memory that were put.
    clock: u64,
    /// SSTables read and written in this phase.
    touched: u64,
    report: SimulateReport,
    measure: Measure,
}

#[derive(Default)]
struct Measure {
    flushes: u64,
    inserted: f64,
    written: f64,
    runs: f64,
    space: f64,
}

impl<'a> Simulator<'a> {
    fn new(options: &'a SimulateOptions) -> Self {
        let entry = (options.key_bytes + options.value_bytes) as f64;
        let keys = options.data_bytes as f64 / entry;
        let (strategy, scale) =
            options.strategy.with_tables_for(options.data_bytes, by_range::tables_max(options));
        Simulator {
            options,
            strategy,
            density: Density::new(options.workload, keys),
            line: Line::new(options.workload, keys),
            shape: Shape::default(),
            state: PlanState::default(),
            contents: HashMap::new(),
            next_table: 0,
            next_flush: 0,
            random: options.seed,
            entry,
            keys,
            filled: 0.0,
            memory: Vec::new(),
            active: Vec::new(),
            active_bytes: 0.0,
            clock: 0,
            touched: 0,
            report: SimulateReport::new(options, scale),
            measure: Measure::default(),
        }
    }

    /// The fill phase: puts every key once.
    fn fill(&mut self) {
        let memory_keys = self.options.memory_bytes as f64 / self.entry;
        let flushes = (self.keys / memory_keys).ceil() as u64;
        if flushes > FLUSHES_MAX {
            self.load_in_key_order(format!("would be {flushes} flushes, over {FLUSHES_MAX}"));
            return;
        }
        for n in 0..flushes {
            if let Some(why) = self.too_much() {
                self.load_in_key_order(format!("{why} by flush {n} of {flushes}"));
                return;
            }
            let share = (memory_keys / self.keys).min(1.0 - self.filled);
            let put = Put::New { from: self.filled, share };
            self.filled += share;
            self.flush(put);
        }
        self.report.fill_write_amplification = Some(self.end_of_measure());
        self.report.insert_seconds = Some(self.seconds());
    }

    /// The seconds so far, if puts wait for flushes and compactions.
    fn seconds(&self) -> f64 {
        let puts = self.report.inserted_bytes as f64 / self.entry;
        puts * self.options.put_ns as f64 / 1e9
            + self.report.moved_bytes as f64 / self.options.device_bytes_s as f64
    }

    /// Whether compactions touched the most SSTables of a phase, or the shape has the most it may.
    fn too_much(&self) -> Option<String> {
        let tables = self.tables_now();
        if tables >= self.options.tables_max {
            return Some(format!("left {tables} tables"));
        }
        (self.touched > TABLES_TOUCHED_MAX).then(|| format!("touched {} tables", self.touched))
    }

    fn tables_now(&self) -> u64 {
        self.shape.runs().map(|(_, run)| run.tables().len() as u64).sum()
    }

    /// Gives up the fill, for this reason, and starts over from data loaded in key order.
    fn load_in_key_order(&mut self, why: String) {
        let mut notes = std::mem::take(&mut self.report.notes);
        notes.push(format!("the fill {why}: loaded in key order instead, so its cost is left out"));
        self.report = SimulateReport { notes, ..SimulateReport::new(self.options, self.report.table_scale) };
        (self.shape, self.measure) = (Shape::default(), Measure::default());
        self.contents.clear();
        self.memory.clear();
        self.active.clear();
        self.active_bytes = 0.0;
        self.state = PlanState::default();
        let tables = (self.options.data_bytes).div_ceil(self.strategy.strategy().sstable_bytes());
        self.touched = 0;
        let level = self.strategy.strategy().last_level(&self.shape);
        let pieces = self.line.pieces(Put::New { from: 0.0, share: 1.0 });
        let tables = self.cut(&pieces, tables as usize);
        self.next_flush += 1;
        let added = tables.into_iter().map(|table| (level, self.next_flush, table)).collect();
        let change = crate::shape::ShapeChange { added, ..Default::default() };
        self.shape.change(&change).expect("a first run");
        self.filled = 1.0;
    }

    /// The overwrite phase: draws keys from the workload. Memory keeps one version per key.
    fn overwrite(&mut self) {
        let memory = self.options.memory_bytes as f64 / self.entry / self.keys;
        let draws = self.line.draws_for(&self.density, memory).min(self.options.overwrite);
        if draws <= 0.0 {
            return;
        }
        let wanted = (self.options.overwrite / draws).ceil() as u64;
        let flushes = wanted.min(FLUSHES_MAX);
        self.touched = 0;
        let mut done = flushes;
        for i in 0..flushes {
            if i == flushes / 2 {
                self.end_of_measure();
            }
            if self.too_much().is_some() {
                done = i;
                break;
            }
            self.flush(Put::Draws(draws));
        }
        if done < wanted {
            self.report.notes.push(format!("the overwrite phase is cut from {wanted} to {done} flushes"));
        }
        if done > 0 && self.end_of_measure() < 1.0 {
            let why = "most overwritten keys were overwritten again in memory";
            self.report.notes.push(format!("write amplification is below 1: {why}"));
        }
    }

    /// Makes one flush and all compactions that are due after it.
    fn flush(&mut self, put: Put) {
        let inserted = put.per_key() * self.keys * self.entry;
        let strategy = self.strategy.clone();
        if let Some(by_range) = strategy.strategy().by_range() {
            return self.put_by_range(put, inserted, by_range);
        }
        let pieces = self.line.pieces(put);
        if pieces.is_empty() {
            return;
        }
        self.next_flush += 1;
        let parts = self.options.memory_bytes.div_ceil(self.strategy.strategy().sstable_bytes());
        let tables = self.cut(&pieces, parts as usize);
        let written: u64 = tables.iter().map(|t| t.bytes).sum();
        self.shape.add_flush(Run::new(self.next_flush, tables)).expect("flushes are numbered");
        self.report.flushes += 1;
        self.report.inserted_bytes += inserted as u64;
        self.report.flushed_bytes += written;
        let moved_before = self.report.moved_bytes;
        self.report.moved_bytes += written;
        self.measure.inserted += inserted;
        self.measure.written += written as f64;
        self.settle();
        let moved = self.report.moved_bytes - moved_before;
        self.report.largest_compaction_bytes = self.report.largest_compaction_bytes.max(moved);
        self.count_shape();
    }

    fn count_shape(&mut self) {
        let runs = self.shape.runs().count();
        self.report.runs_max = self.report.runs_max.max(runs as u64);
        self.report.tables_max = self.report.tables_max.max(self.tables_now());
        self.measure.flushes += 1;
        // A run may lack a part of the keys, as the deltas of ranges do.
        let wide = |table: &TableInfo| {
            let end = table.range.end.as_deref().map_or(KEYS_END, prefix64);
            end.saturating_sub(prefix64(&table.range.start)) as f64 / KEYS_END as f64
        };
        self.measure.runs += self.shape.tables().map(|(_, _, table)| wide(table)).sum::<f64>();
        self.measure.space += self.shape.live_bytes() as f64 / (self.filled * self.keys * self.entry);
    }

    fn settle(&mut self) {
        let strategy = self.strategy.clone();
        let merged_before = self.report.compaction_written_bytes;
        loop {
            self.random = crate::types::random::after(self.random);
            // The SSTables of one call cover about the same keys, or their union is that of disjoint ones.
            let unique = |ids: &[TableId]| {
                let each = || ids.iter().filter_map(|id| self.contents.get(id));
                let union = each().fold(Content::default(), |sum, pieces| sum.add(content::mean(pieces)));
                let all = each().map(|pieces| self.bytes_of(pieces)).sum::<f64>() / self.entry;
                (self.density.of(union) * self.keys / all).min(1.0)
            };
            let flush_bytes = self.options.memory_bytes;
            let facts = Facts {
                draw: self.random,
                flush_bytes,
                compactions_max: 8,
                unique: &unique,
                ..Facts::default()
            };
            let plan = strategy.strategy().plan(&self.shape, &facts, &self.state);
            self.state = plan.state;
            if plan.compactions.is_empty() {
                break;
            }
            for compaction in &plan.compactions {
                self.run(compaction);
            }
        }
        let debt = self.report.compaction_written_bytes - merged_before;
        self.report.peak_debt_bytes = self.report.peak_debt_bytes.max(debt);
        let live = self.shape.live_bytes();
        self.report.peak_space_bytes = self.report.peak_space_bytes.max(live);
    }

    fn run(&mut self, compaction: &CompactionPlan) {
        let before = self.shape.live_bytes();
        let mut step = Step::default();
        if compaction.kind == CompactionKind::TrivialMove {
            self.report.trivial_moves += 1;
        } else {
            let inputs: Vec<TableId> =
                compaction.live_inputs(&self.shape).iter().map(|(_, t)| t.id).collect();
            let taken: Vec<Piece> =
                inputs.iter().flat_map(|id| self.contents.remove(id).unwrap_or_default()).collect();
            let pieces = content::union(&taken);
            let bytes = self.bytes_of(&pieces);
            step.outputs =
                self.cut(&pieces, (bytes / compaction.sstable_bytes as f64).round().max(1.0) as usize);
            let written: u64 = step.outputs.iter().map(|t| t.bytes).sum();
            self.touched += (inputs.len() + step.outputs.len()) as u64;
            self.report.compactions += 1;
            self.report.compaction_written_bytes += written;
            self.report.moved_bytes += compaction.bytes + written;
            self.report.largest_compaction_input_bytes =
                self.report.largest_compaction_input_bytes.max(compaction.bytes);
            self.measure.written += written as f64;
            // A compaction in steps needs space for two steps beside its inputs, and a step is one output
            // SSTable.
            let beside = written.min(2 * self.options.strategy.strategy().sstable_bytes());
            self.report.peak_space_bytes = self.report.peak_space_bytes.max(before + beside);
        }
        apply(&mut self.shape, compaction, &step).expect("a planned compaction can be applied");
    }

    fn piece_bytes(&self, piece: &Piece) -> f64 {
        self.density.of(piece.content) * self.keys * self.entry * (piece.end - piece.start) as f64
            / KEYS_END as f64
    }

    /// Cuts the pieces (in key order) into this many SSTables of about the same bytes.
    fn cut(&mut self, pieces: &[Piece], parts: usize) -> Vec<Arc<TableInfo>> {
        let total = self.bytes_of(pieces);
        let mut tables = Vec::with_capacity(parts);
        let mut builder: Vec<Piece> = Vec::new();
        let (mut done, mut limit) = (0.0, self.limit(total, 1, parts));
        for piece in pieces {
            let mut piece = *piece;
            loop {
                let bytes = self.piece_bytes(&piece);
                if done + bytes <= limit || tables.len() + 1 >= parts || bytes <= 0.0 {
                    done += bytes;
                    builder.push(piece);
                    break;
                }
                let share = ((limit - done) / bytes).clamp(0.0, 1.0);
                let at = piece.start + ((piece.end - piece.start) as f64 * share) as u64;
                if at > piece.start && at < piece.end {
                    builder.push(Piece { end: at, ..piece });
                    piece.start = at;
                }
                done = limit;
                tables.extend(self.table(&builder));
                builder.clear();
                limit = self.limit(total, tables.len() + 1, parts);
            }
        }
        tables.extend(self.table(&builder));
        tables
    }

    /// The end of the n-th of `parts` SSTables, give or take some: exactly equal parts would line up across
    /// levels.
    fn limit(&mut self, total: f64, n: usize, parts: usize) -> f64 {
        self.random = crate::types::random::after(self.random);
        let jitter = (self.random >> 40) as f64 / (1u64 << 24) as f64 - 0.5;
        total * (n as f64 + 0.2 * jitter) / parts as f64
    }

    fn table(&mut self, pieces: &[Piece]) -> Option<Arc<TableInfo>> {
        let (first, last) = (pieces.first()?, pieces.last()?);
        let cells = self.bytes_of(pieces) / self.entry;
        self.next_table += 1;
        let (job, part) = ((self.next_table >> 32) as u32, self.next_table as u32);
        let id = TableId { job, part, ..TableId::default() };
        let mut table = TableInfo::plain(id, (cells * self.entry).max(1.0) as u64);
        table.range = KeyRange::new(first.start.to_be_bytes(), last.end.to_be_bytes());
        (table.cells, table.distinct) = (cells as u64, cells as u64);
        self.contents.insert(id, self.line.even(pieces));
        Some(Arc::new(table))
    }

    /// Turns the sums into the report's numbers and starts new ones; the last call's numbers stay.
    fn end_of_measure(&mut self) -> f64 {
        let m = std::mem::take(&mut self.measure);
        let flushes = m.flushes.max(1) as f64;
        let write_amplification = m.written / m.inserted.max(1.0);
        self.report.write_amplification = write_amplification;
        self.report.runs_mean = m.runs / flushes;
        self.report.space_amplification = m.space / flushes;
        // A filter has a false positive once in a hundred; one block has the key.
        self.report.read_amplification = 1.0 + 0.01 * (m.runs / flushes - 1.0).max(0.0);
        self.report.data_bytes = (self.filled * self.keys * self.entry) as u64;
        write_amplification
    }
}

#[cfg(test)]
mod tests;
