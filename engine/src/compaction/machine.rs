//! Runs one compaction: `advance()` does at most one output block's work or two milliseconds of it, and
//! reports when a step is ready to be made durable. It never waits and knows no database, so workers can
//! switch between compactions at every advance, a simulation can interleave them, and a compaction server can
//! run it.

use super::hot_cells::{Aside, AsideRules};
use super::kway_merge::Merging;
use super::merge_run::{Advance, CompactionRun, LeftInWal, Step, Totals};
use super::output::{Output, OutputRules};
use super::retention::{Retention, RetentionRules};
use crate::error::{Error, Result};
use crate::storage::Env;
use crate::types::{CellRef, Cursor, Fragments, Heats, KeyRange, RangeTombstone, SeqNo, TableId};
use std::mem::take;

const ADVANCE_NS: u64 = 2_000_000;
/// The clock is read once in so many cells.
const CELLS_PER_LOOK: u32 = 64;

/// A sorted input and its range tombstones, both restricted to the live keys.
pub(crate) struct Source {
    pub(crate) cursor: Box<dyn Cursor>,
    pub(crate) tombstones: Vec<RangeTombstone>,
}

/// A compaction to run in this process, with its inputs open.
pub(crate) struct LocalCompaction {
    /// Newest first.
    pub(crate) sources: Vec<Source>,
    pub(crate) range: KeyRange,
    pub(crate) rules: RetentionRules,
    pub(crate) output: OutputRules,
    /// Output bytes of a step: it ends with the SSTable after which another like it would exceed them.
    pub(crate) step_bytes: u64,
    /// The number of cells in the sources, if it is known: checked at the end (invariant I5).
    pub(crate) cells: Option<u64>,
    /// For a flush: which keys stay in memory and come with the step.
    pub(crate) aside: Option<AsideRules>,
}

pub(crate) struct LocalCompactionRun {
    env: Env,
    cursor: Merging<Box<dyn Cursor>>,
    range: KeyRange,
    keep: Retention,
    aside: Option<Aside>,
    output: Output,
    step_bytes: u64,
    step_fill_bytes: u64,
    step_began: u64,
    /// Bytes in the cache at the beginning of the step.
    step_filled: u64,
    cells: Option<u64>,
    /// Keys so far, and those that readers are likely to want, where that matters.
    keys: u64,
    warm_keys: u64,
    started: bool,
    done: bool,
}

impl LocalCompactionRun {
    pub(crate) fn new(env: &Env, spec: LocalCompaction) -> Self {
        let (mut tombstones, mut cursors) = (Vec::new(), Vec::new());
        for source in spec.sources {
            let within = |t: RangeTombstone| RangeTombstone { range: t.range.intersect(&spec.range), ..t };
            tombstones.extend(source.tombstones.into_iter().map(within));
            cursors.push(source.cursor);
        }
        let tombstones = Fragments::reduced(tombstones, &spec.rules.read_points, SeqNo::MAX);
        Self {
            env: env.clone(),
            cursor: Merging::new(cursors),
            keep: Retention::new(spec.rules, tombstones),
            aside: spec.aside.map(Aside::new),
            output: Output::new(env.clone(), spec.output, spec.range.start.clone()),
            range: spec.range,
            step_bytes: spec.step_bytes,
            step_fill_bytes: u64::MAX,
            step_began: 0,
            step_filled: 0,
            cells: spec.cells,
            keys: 0,
            warm_keys: 0,
            started: false,
            done: false,
        }
    }

    /// Where the table should end before this key, the next one.
    #[inline]
    fn end_before<'a>(&'a self, key: &'a [u8]) -> Option<&'a [u8]> {
        let has_filled = self.has_filled() && self.output.is_eighth_full();
        self.output.end_before(key).or_else(|| has_filled.then_some(key))
    }

    /// Whether the step has put enough into the cache.
    fn has_filled(&self) -> bool {
        self.output.filled_so_far().1 - self.step_filled >= self.step_fill_bytes
    }

    /// Ends the SSTable before `key`, once all cells before it were pushed and none after it; ends the step
    /// too when it has put enough into the cache, or when another SSTable like this one would exceed
    /// `step_bytes`.
    fn end_table(&mut self, key: &[u8]) -> Result<Option<Step>> {
        let before = self.output.bytes;
        self.output.cut(Some(key), &self.keep)?;
        let (table, step) = (self.output.bytes - before, self.output.bytes - self.step_began);
        if step + table <= self.step_bytes.saturating_add(table / 8) && !self.has_filled() {
            return Ok(None);
        }
        (self.step_began, self.step_filled) = (self.output.bytes, self.output.filled_so_far().1);
        Ok(Some(self.step(Some(key.to_vec()))))
    }

    fn finish(&mut self) -> Result<Step> {
        self.done = true;
        end_key(&mut self.keep, &mut self.aside, &mut self.output)?;
        let end = self.range.end.clone();
        // There may be range tombstones after the last cell.
        while let Some(cut) = self.output.next_cut().map(<[u8]>::to_vec)
            && self.range.ends_after(&cut)
        {
            self.output.cut(Some(&cut), &self.keep)?;
        }
        self.output.cut(end.as_deref(), &self.keep)?;
        self.check_counts()?;
        Ok(self.step(None))
    }

    fn step(&mut self, upto: Option<Vec<u8>>) -> Step {
        let aside = self.aside.as_mut().map_or(Vec::new(), |aside| take(&mut aside.kept));
        Step { outputs: take(&mut self.output.finished), upto, aside, filled: take(&mut self.output.filled) }
    }

    /// Checks that every cell of the inputs was read, and that every cell kept is in an SSTable or stays in
    /// memory.
    fn check_counts(&self) -> Result<()> {
        let (taken, kept) = (self.keep.taken, self.keep.kept);
        let wrong = match self.cells {
            Some(held) if held != taken => format!("compaction met {taken} cells, its inputs hold {held}"),
            _ if self.output.cells + self.cells_aside() != kept => {
                let (cells, aside) = (self.output.cells, self.cells_aside());
                format!("compaction kept {kept} cells, its outputs hold {cells} and {aside} were set aside")
            }
            _ => return Ok(()),
        };
        Err(Error::corruption(self.output.place(), 0, wrong))
    }

    fn cells_aside(&self) -> u64 {
        self.aside.as_ref().map_or(0, |aside| aside.cells)
    }
}

impl CompactionRun for LocalCompactionRun {
    fn leave_in_wal(&mut self, left: LeftInWal) {
        self.output.left = Some(left);
    }

    fn take_heats(&mut self) -> Heats {
        self.aside.as_mut().map_or_else(Heats::default, |aside| take(&mut aside.heats))
    }

    fn advance(&mut self) -> Result<Advance> {
        assert!(!self.done, "advance after the last step");
        if !self.started {
            self.started = true;
            self.cursor.seek(&self.range.start)?;
            return Ok(Advance::Working);
        }
        let began = self.env.clock.monotonic_ns();
        let blocks = self.output.data_blocks();
        let asks_warm = self.output.asks_what_is_warm();
        let mut looks = 0;
        while self.cursor.valid() {
            let cell = self.cursor.cell();
            if !self.range.ends_after(cell.key) {
                break;
            }
            if (self.aside.is_some() || asks_warm || self.end_before(cell.key).is_some())
                && self.keep.is_new_key(cell.key)
            {
                end_key(&mut self.keep, &mut self.aside, &mut self.output)?;
                if let Some(end) = self.end_before(cell.key) {
                    let end = end.to_vec();
                    return Ok(self.end_table(&end)?.map_or(Advance::Working, Advance::Step));
                }
                if asks_warm {
                    let is_warm = self.cursor.is_warm();
                    self.keys += 1;
                    self.warm_keys += u64::from(is_warm);
                    self.output.is_warm = is_warm;
                }
                if let Some(aside) = &mut self.aside {
                    aside.begin_key(&cell, self.cursor.heat());
                }
            }
            let (output, aside) = (&mut self.output, &mut self.aside);
            self.keep.push(&cell, &mut |cell| put(cell, aside, output))?;
            self.cursor.next()?;
            looks += 1;
            if self.output.data_blocks() > blocks
                || looks % CELLS_PER_LOOK == 0 && self.env.clock.monotonic_ns() - began >= ADVANCE_NS
            {
                return Ok(Advance::Working);
            }
        }
        self.finish().map(Advance::Step)
    }

    fn totals(&self) -> Totals {
        Totals {
            bytes_written: self.output.bytes_so_far(),
            taken: self.keep.taken,
            kept: self.keep.kept,
            aside: self.cells_aside(),
            range_tombstones: self.output.range_tombstones,
            forgotten: self.keep.forgotten(),
            filled: self.output.filled_so_far(),
            keys: (self.keys, self.warm_keys),
        }
    }

    fn leftovers(&self) -> Vec<TableId> {
        self.output.leftovers()
    }

    /// For this an SSTable may end at an eighth of its size: until the step is published, its blocks are in
    /// the cache beside those that it replaces. May change at any time.
    fn end_steps_at_filled(&mut self, bytes: u64) {
        self.step_fill_bytes = bytes;
    }
}

/// Passes a surviving cell to memory or to the output.
fn put(cell: &CellRef<'_>, aside: &mut Option<Aside>, output: &mut Output) -> Result<()> {
    match aside {
        Some(aside) => aside.take(cell, output),
        None => output.add(cell),
    }
}

/// Ends the present key, of which nothing is held back afterwards.
fn end_key(keep: &mut Retention, aside: &mut Option<Aside>, output: &mut Output) -> Result<()> {
    keep.end_key(&mut |cell| put(cell, aside, output))?;
    match aside {
        Some(aside) => aside.end_key(keep, output),
        None => Ok(()),
    }
}
