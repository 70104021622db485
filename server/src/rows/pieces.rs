//! Rows that go through a filter, cell by cell.
//!
//! A row is read in pieces of a fixed size and goes through the filter in such, so memory depends neither on
//! its length nor on the filter's output. If the output depends on all of a row (conditions), a row that is
//! longer than a piece is read once or more before, at the same moment, to decide that.

use crate::cells::filter::{Cell, Filter, Need};
use crate::net::work::Work;
use crate::rows::moment::Moment;
use crate::rows::row_cursor::{Collected, RowCursor, Step};
use std::sync::Arc;
use std::vec::IntoIter;
use tonic::Status;

/// The next piece.
pub(crate) enum Next {
    /// A cell of the row.
    Cell(Cell),
    /// The end of the row, of which maybe nothing came through.
    Row,
    /// Nothing, as the work is over.
    Paused,
    /// The end of the range.
    End,
}

/// A filter, and the row that goes through it.
pub(crate) struct Pieces {
    filter: Filter,
    cells_at_once: usize,
    has_conditions: bool,
    collected: Collected,
    /// Cells that are to go through.
    before: IntoIter<Cell>,
    /// Cells that came through.
    through: IntoIter<Cell>,
    /// Cells that the filter made of others of the row.
    made: u64,
    /// A row has begun, and all of it was read.
    is_begun: bool,
    is_read: bool,
}

impl Pieces {
    pub(crate) fn new(filter: Filter) -> Self {
        Self {
            cells_at_once: filter.cells_at_once(),
            has_conditions: filter.has_conditions(),
            filter,
            collected: Collected::default(),
            before: IntoIter::default(),
            through: IntoIter::default(),
            made: 0,
            is_begun: false,
            is_read: false,
        }
    }

    /// The key of the row.
    pub(crate) fn row(&self) -> &[u8] {
        &self.collected.row
    }

    /// Whether something of a row is on its way.
    pub(crate) fn is_in_row(&self) -> bool {
        self.is_begun
    }

    /// The next cell of the rows, of which this is needed, that comes through the filter.
    pub(crate) fn next<M: Moment>(
        &mut self,
        rows: &mut RowCursor<M>,
        needs: &[(Arc<str>, Need)],
        work: &mut Work,
    ) -> Result<Next, Status> {
        loop {
            if let Some(cell) = self.through.next() {
                return Ok(Next::Cell(cell));
            }
            if self.before.len() > 0 {
                if work.is_over() {
                    return Ok(Next::Paused);
                }
                self.pass(work)?;
                continue;
            }
            if std::mem::take(&mut self.is_read) {
                self.is_begun = false;
                return Ok(Next::Row);
            }
            let step = rows.next(&mut self.collected, work)?;
            let cells = self.collected.take();
            match step {
                Step::End => return Ok(Next::End),
                Step::Paused if cells.is_empty() => return Ok(Next::Paused),
                Step::Paused => {}
                Step::Row => self.is_read = true,
            }
            if !self.is_begun {
                (self.is_begun, self.made) = (true, 0);
                let is_all = self.is_read && cells.len() <= self.cells_at_once;
                match self.has_conditions && !is_all {
                    true => self.decide(rows, needs, work)?,
                    false => self.filter.begin(),
                }
            }
            self.before = cells.into_iter();
        }
    }

    fn pass(&mut self, work: &mut Work) -> Result<(), Status> {
        let cells: Vec<Cell> = match self.before.len() <= self.cells_at_once {
            true => std::mem::take(&mut self.before).collect(),
            false => self.before.by_ref().take(self.cells_at_once).collect(),
        };
        let through = self.filter.pass(&self.collected.row, cells, &mut self.made, work)?;
        self.through = through.into_iter();
        Ok(())
    }

    /// Decides the filter's conditions for the row, of which this is not all.
    fn decide<M: Moment>(
        &mut self,
        rows: &RowCursor<M>,
        needs: &[(Arc<str>, Need)],
        work: &mut Work,
    ) -> Result<(), Status> {
        self.filter.begin_to_decide();
        loop {
            let (mut again, mut cells) = (rows.row_again(needs), Collected::default());
            let mut goes_on = true;
            while goes_on {
                goes_on = again.next(&mut cells, work)? == Step::Paused;
                let piece = cells.take();
                for some in piece.chunks(self.cells_at_once) {
                    // The output is dropped: only the predicates count.
                    self.filter.pass(&self.collected.row, some.to_vec(), &mut self.made, work)?;
                    goes_on &= self.filter.is_looking();
                }
            }
            let is_decided = self.filter.is_decided();
            self.filter.begin_again();
            if is_decided {
                self.made = 0;
                return Ok(());
            }
        }
    }
}
