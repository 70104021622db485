//! Memory held by range: puts gather in a piece a range, and while memory has more than its limit the strategy's victim is
//! merged with its tables, as `db/scatter.rs` and `db/flush.rs` do it.

use super::content::{self, Content, Piece};
use super::{KEYS_END, Simulator, place};
use crate::strategy::{ByRange, RangeMemory, Step, apply, validate_flush};
use crate::types::{KeyRange, TableId};

/// Puts come in so many parts of memory at a time.
const PARTS: u32 = 32;

impl Simulator<'_> {
    /// Puts of a whole memory, and the flushes they make due.
    pub(super) fn put_by_range(&mut self, content: Content, inserted: f64, by_range: &dyn ByRange) {
        let part = 1.0 / f64::from(PARTS);
        let part = Content { filled: content.filled * part, draws: content.draws * part };
        for _ in 0..PARTS {
            self.clock += 1;
            self.fit_memory(by_range);
            for (piece, since) in &mut self.memory {
                if piece.content == Content::default() {
                    *since = self.clock;
                }
                piece.content = piece.content.add(part);
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
        self.memory.iter().map(|(piece, _)| self.piece_bytes(piece)).sum()
    }

    /// A piece a range, as the tables have them now.
    fn fit_memory(&mut self, by_range: &dyn ByRange) {
        let bounds: Vec<u64> = by_range.bounds(&self.shape).iter().map(|bound| place(bound)).collect();
        let starts = std::iter::once(0).chain(bounds.iter().copied());
        let ends = bounds.iter().copied().chain([KEYS_END]);
        let fitted = starts.zip(ends).map(|(start, end)| {
            let old = self.memory.iter().find(|(piece, _)| piece.end > start);
            let (content, since) =
                old.map_or((Content::default(), self.clock), |(p, since)| (p.content, *since));
            (Piece { start, end, content }, since)
        });
        self.memory = fitted.collect();
    }

    fn flush_range(&mut self, by_range: &dyn ByRange) {
        let facts: Vec<RangeMemory> =
            self.memory.iter().map(|(piece, since)| self.facts(piece, *since)).collect();
        let (at, _) = by_range.victim(&self.shape, &facts).expect("there is a range");
        let plan =
            by_range.flush(&self.shape, &facts[at]).expect("nothing is in the way of a simulated flush");
        validate_flush(&self.shape, &plan, &[]).expect("a lawful flush");
        let inputs = plan.live_inputs(&self.shape);
        let span = |range: &KeyRange| (place(&range.start), range.end.as_deref().map_or(KEYS_END, place));
        let inputs: Vec<(TableId, (u64, u64))> = inputs.iter().map(|(_, t)| (t.id, span(&t.range))).collect();
        let mut taken = vec![self.memory[at].0];
        taken.extend(inputs.iter().map(|(id, (start, end))| Piece {
            start: *start,
            end: *end,
            content: self.contents.remove(id).unwrap_or_default(),
        }));
        let before = self.shape.live_bytes();
        let pieces = content::union(&taken);
        let bytes: f64 = pieces.iter().map(|piece| self.piece_bytes(piece)).sum();
        let parts = (bytes / plan.table_bytes as f64).round().max(1.0) as usize;
        let step = Step { outputs: self.cut(&pieces, parts), ..Step::default() };
        let written: u64 = step.outputs.iter().map(|table| table.bytes).sum();
        apply(&mut self.shape, &plan, &step).expect("a flush can be applied");
        self.memory[at].0.content = Content::default();
        let report = &mut self.report;
        report.flushes += 1;
        report.flushed_bytes += written;
        report.moved_bytes += plan.bytes - facts[at].bytes + written;
        report.largest_merge_bytes = report.largest_merge_bytes.max(plan.bytes);
        report.largest_compaction_bytes =
            report.largest_compaction_bytes.max(plan.bytes - facts[at].bytes + written);
        report.peak_space_bytes = report.peak_space_bytes.max(before + written);
        self.touched += (inputs.len() + step.outputs.len()) as u64;
        self.measure.written += written as f64;
        self.fit_memory(by_range);
    }

    fn facts(&self, piece: &Piece, since: u64) -> RangeMemory {
        let bytes = self.piece_bytes(piece) as u64;
        let start = if piece.start == 0 { Vec::new() } else { piece.start.to_be_bytes().to_vec() };
        let end = (piece.end < KEYS_END).then(|| piece.end.to_be_bytes().to_vec());
        RangeMemory { range: KeyRange { start, end }, bytes, written: bytes, age: self.clock - since + 1 }
    }
}
