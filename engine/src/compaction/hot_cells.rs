//! Hot cells: which cells of a flush stay in memory (TRI-1), decided while the cells pass in order.
//!
//! A key may stay if it was updated often enough and *one* cell is all that survives of it: its newest value
//! or tombstone, which every reader that the flush serves sees. So no snapshot loses its version, and the
//! cell is all that the flush set has of the key. It must not lie under a newer range tombstone of the flush
//! set: that goes to an SSTable, where readers would find it only after the cell (invariant I3). Operands do
//! not stay: they must not be applied twice. Nor do hidden versions, which no WAL has.
//!
//! All keys are counted, for the choice of the next flush.

use super::output::Output;
use super::retention::Retention;
use crate::error::Result;
use crate::types::{Cell, CellRef, Heat, Heats, HotCell, Kind};

/// The rules by which cells may stay in memory.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct AsideRules {
    /// The number of updates that a key must exceed to stay; `None`: no key stays, updates are only counted.
    pub(crate) over: Option<u32>,
    /// The most bytes of memory for cells that stay.
    pub(crate) bytes_max: u64,
    /// The number of flushes after which a cell may not stay again.
    pub(crate) kept_max: u8,
}

/// Picks a flush's cells that stay in memory; see the page above.
#[derive(Default)]
pub(crate) struct Aside {
    rules: AsideRules,
    /// The counts of updates of all keys so far.
    pub(super) heats: Heats,
    heat: Heat,
    /// The only cell of the present key so far, if the key may stay.
    waiting: Option<Cell>,
    may_stay: bool,
    /// The cells of the present step that stay.
    pub(super) kept: Vec<HotCell>,
    pub(super) cells: u64,
    bytes: u64,
}

impl Aside {
    pub(super) fn new(rules: AsideRules) -> Self {
        Self { rules, ..Self::default() }
    }

    /// Begins a key whose newest cell is `newest`; the cells that follow belong to the key.
    pub(super) fn begin_key(&mut self, newest: &CellRef<'_>, heat: Heat) {
        let bytes = HotCell::bytes(newest);
        self.heat = heat;
        self.heats.key(heat.updates, bytes);
        self.heats.kept += u64::from(heat.was_kept);
        self.heats.kept_updated += u64::from(heat.was_kept && heat.kept == 0);
        self.may_stay = self.rules.over.is_some_and(|over| heat.updates > over)
            && heat.kept < self.rules.kept_max
            && self.bytes + bytes <= self.rules.bytes_max;
    }

    pub(super) fn take(&mut self, cell: &CellRef<'_>, output: &mut Output) -> Result<()> {
        if self.may_stay && self.waiting.is_none() {
            self.waiting = Some(cell.to_cell());
            return Ok(());
        }
        self.may_stay = false;
        if let Some(first) = self.waiting.take() {
            output.add(&first.as_ref())?;
        }
        output.add(cell)
    }

    /// Ends the present key, all of whose cells were taken.
    pub(super) fn end_key(&mut self, keep: &Retention, output: &mut Output) -> Result<()> {
        let Some(cell) = self.waiting.take() else { return Ok(()) };
        if matches!(cell.kind, Kind::Operand | Kind::Hidden)
            || (keep.is_under_newer(&cell.key, cell.seq) && !planted!(Bug::KeepUnderTombstone))
        {
            return output.add(&cell.as_ref());
        }
        self.cells += 1;
        self.bytes += HotCell::bytes(&cell.as_ref());
        let updates = (self.heat.updates / 2).max(1);
        self.kept.push(HotCell { cell, updates, kept: self.heat.kept + 1 });
        Ok(())
    }
}
