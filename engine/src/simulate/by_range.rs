//! Memory by range: puts gather in the active memtable and, when that is full, in the memory of each range.
//! While all of it exceeds its limit the strategy's victim is merged with its SSTables, as in
//! `memtable/by_range.rs` and `work/jobs/flush/take.rs`.

use super::content::{self, Piece};
use super::line::Put;
use super::{KEYS_END, SimulateOptions, Simulator};
use crate::strategy::{ByRange, RangeMemory, Step, apply, validate_flush};
use crate::types::{KeyRange, TableId, prefix64};

/// The parts of memory in which puts come.
const PARTS: u32 = 32;

/// The most visits of ranges: every flush visits every range, and there are about as many flushes in a memory
/// of puts as ranges. More would take minutes.
const LOOKS_MAX: f64 = 2e7;

pub(super) struct MemoryOfRange {
    start: u64,
    end: u64,
    /// In key order, one per stretch of the key line.
    pieces: Vec<Piece>,
    bytes: f64,
    /// The clock when it was last empty.
    since: u64,
}

/// The most SSTables that the shape may have. Fewer with memory by range and very frequent flushes, whose
/// cost hardly depends on the number of ranges.
pub(super) fn tables_max(options: &SimulateOptions) -> u64 {
    if options.strategy.strategy().by_range().is_none() {
        return options.tables_max;
    }
    let memories = options.data_bytes as f64 / options.memory_bytes as f64 * (1.0 + options.overwrite);
    // Ranges are a third of the planned SSTables.
    options.tables_max.min((3.0 * (LOOKS_MAX / memories).sqrt()) as u64).max(30)
}

impl Simulator<'_> {
    /// Puts a whole memory, and makes the flushes that are due.
    pub(super) fn put_by_range(&mut self, put: Put, inserted: f64, by_range: &dyn ByRange) {
        self.fit_memory(by_range);
        let active_parts = (f64::from(PARTS) * self.options.active_memtable_share).round() as usize;
        for part in 0..PARTS {
            self.clock += 1;
            let put = self.line.pieces(put.part(part, PARTS));
            self.active_bytes += self.bytes_of(&put);
            self.active.push(put);
            if self.active.len() > active_parts {
                let active = std::mem::take(&mut self.active);
                active.iter().for_each(|put| self.hold(put));
                self.active_bytes = 0.0;
            }
            while self.memory_now() > self.options.memory_bytes as f64 {
                self.flush_range(by_range);
            }
        }
        self.report.inserted_bytes += inserted as u64;
        self.measure.inserted += inserted;
        self.settle();
        self.count_shape();
    }

    fn memory_now(&self) -> f64 {
        self.active_bytes + self.memory.iter().map(|held| held.bytes).sum::<f64>()
    }

    pub(super) fn bytes_of(&self, pieces: &[Piece]) -> f64 {
        pieces.iter().map(|piece| self.piece_bytes(piece)).sum()
    }

    /// Adds the pieces to the memory of their ranges.
    fn hold(&mut self, put: &[Piece]) {
        let mut memory = std::mem::take(&mut self.memory);
        for held in &mut memory {
            let new = within(put, held.start, held.end);
            if new.is_empty() {
                continue;
            }
            if held.pieces.is_empty() {
                held.since = self.clock;
            }
            let alike = held.pieces.len() == new.len()
                && held.pieces.iter().zip(&new).all(|(a, b)| (a.start, a.end) == (b.start, b.end));
            if alike {
                held.pieces.iter_mut().zip(&new).for_each(|(a, b)| a.content = a.content.add(b.content));
            } else {
                held.pieces.extend(new);
                held.pieces = self.line.even(&content::union(&held.pieces));
            }
            held.bytes = self.bytes_of(&held.pieces);
        }
        self.memory = memory;
    }

    /// Divides memory by the ranges of the present SSTables.
    fn fit_memory(&mut self, by_range: &dyn ByRange) {
        let bounds: Vec<u64> = by_range.bounds(&self.shape).iter().map(|bound| prefix64(bound)).collect();
        let starts = std::iter::once(0).chain(bounds.iter().copied());
        let ends = bounds.iter().copied().chain([KEYS_END]);
        let fitted = starts.zip(ends).map(|(start, end)| {
            let first = self.memory.partition_point(|old| old.end <= start);
            let old = self.memory[first..].iter().take_while(|old| old.start < end);
            let (mut pieces, mut since) = (Vec::new(), self.clock);
            for old in old {
                pieces.extend(within(&old.pieces, start, end));
                since = since.min(old.since);
            }
            MemoryOfRange { start, end, bytes: self.bytes_of(&pieces), pieces, since }
        });
        self.memory = fitted.collect();
    }

    fn flush_range(&mut self, by_range: &dyn ByRange) {
        let facts: Vec<RangeMemory> = self.memory.iter().map(|held| self.facts(held)).collect();
        let (at, _) = by_range.victim(&self.shape, &facts).expect("there is a range");
        let held = &self.memory[at].pieces;
        let unique = |tables: &[TableId]| {
            let taken = tables.iter().filter_map(|id| self.contents.get(id)).chain([held]);
            let all: Vec<Piece> = taken.flatten().copied().collect();
            self.bytes_of(&content::union(&all)) / self.bytes_of(&all)
        };
        let early = by_range.is_early(&self.shape, &facts[at].range);
        let plan = by_range.flush(&self.shape, &facts[at], early, &unique);
        let plan = plan.expect("nothing is in the way of a simulated flush");
        validate_flush(&self.shape, &plan, &[]).expect("a lawful flush");
        let inputs: Vec<TableId> = plan.live_inputs(&self.shape).iter().map(|(_, t)| t.id).collect();
        let held = &mut self.memory[at];
        (held.bytes, held.since) = (0.0, self.clock);
        let mut taken = std::mem::take(&mut held.pieces);
        taken.extend(inputs.iter().flat_map(|id| self.contents.remove(id).unwrap_or_default()));
        let before = self.shape.live_bytes();
        let pieces = content::union(&taken);
        let parts = (self.bytes_of(&pieces) / plan.sstable_bytes as f64).round().max(1.0) as usize;
        let step = Step { outputs: self.cut(&pieces, parts), ..Step::default() };
        let written: u64 = step.outputs.iter().map(|table| table.bytes).sum();
        apply(&mut self.shape, &plan, &step).expect("a flush can be applied");
        let (report, moved) = (&mut self.report, plan.bytes - facts[at].bytes + written);
        report.flushes += 1;
        report.flushed_bytes += written;
        report.moved_bytes += moved;
        report.largest_compaction_input_bytes = report.largest_compaction_input_bytes.max(plan.bytes);
        report.largest_compaction_bytes = report.largest_compaction_bytes.max(moved);
        report.peak_space_bytes = report.peak_space_bytes.max(before + written);
        self.touched += (inputs.len() + step.outputs.len()) as u64;
        self.measure.written += written as f64;
        // One output for one input leaves the ranges as they are.
        if step.outputs.len() > 1 {
            self.fit_memory(by_range);
        }
    }

    fn facts(&self, held: &MemoryOfRange) -> RangeMemory {
        let bytes = held.bytes as u64;
        let start = if held.start == 0 { Vec::new() } else { held.start.to_be_bytes().to_vec() };
        let end = (held.end < KEYS_END).then(|| held.end.to_be_bytes().to_vec());
        let age = self.clock - held.since + 1;
        RangeMemory { range: KeyRange { start, end }, bytes, written: bytes, age }
    }
}

/// The parts of pieces in key order that lie between two positions.
fn within(pieces: &[Piece], start: u64, end: u64) -> Vec<Piece> {
    let first = pieces.partition_point(|piece| piece.end <= start);
    let over = pieces[first..].iter().take_while(|piece| piece.start < end);
    over.map(|piece| Piece { start: piece.start.max(start), end: piece.end.min(end), ..*piece }).collect()
}
