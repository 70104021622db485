//! The seam behind which a compaction of tables runs, in this process (`executor`) or in another one
//! (`crate::offload`): its run and the steps it hands out, and what it reads from and writes to elsewhere.
//!
//! [`CompactionRun::advance`] does a little of the compaction, and hands out a step as soon as its tables are
//! durable. Whoever drives a run makes the step true before it advances again. What the cache has of a step's
//! tables, put there while they were written, comes with the step.

use crate::error::{Error, ErrorKind, Result};
use crate::shape::TableInfo;
use crate::sstable::{Filled, Reference};
use crate::storage::WriteFile;
use crate::types::{CellRef, Heats, HotCell, SeqNo, TableId};
use std::fmt::Debug;
use std::io;
use std::sync::Arc;

pub(crate) trait CompactionRun: Send {
    /// Does a little. After the last step (`upto` is `None`) it must not be called again.
    fn advance(&mut self) -> Result<Advance>;

    fn totals(&self) -> Totals;

    /// Tables that were written and not handed out, to be removed when it is given up. Of a run elsewhere the
    /// caller looks for them itself, as the other end may not answer any more.
    fn leftovers(&self) -> Vec<TableId> {
        Vec::new()
    }

    /// A step also ends after so many bytes that it put into the cache.
    fn end_steps_at_filled(&mut self, _bytes: u64) {}

    /// Values of the outputs stay in the WAL where these places are known. To be said before the first
    /// advance of a flush; others have no such places.
    fn leave_in_wal(&mut self, _left: LeftInWal) {}

    /// How often the keys of a flush were updated.
    fn take_heats(&mut self) -> Heats {
        Heats::default()
    }

    /// What it handed out last is not believed, for that reason: the error that tells of it.
    fn refused(&mut self, why: &str) -> Error {
        Error::new(ErrorKind::Io, format!("a compaction handed out {why}"))
    }
}

/// Tells where in the WAL a cell is, if its value is to stay there.
pub(super) type FindPlace = dyn Fn(&CellRef<'_>) -> Option<Reference> + Send;

/// Values that stay in the WAL of a database, where `find` tells their places.
pub(crate) struct LeftInWal {
    pub(crate) database: u64,
    pub(crate) find: Box<FindPlace>,
}
pub(crate) enum Advance {
    Working,
    /// There is nothing to do for so many nanoseconds.
    NotYet(u64),
    /// A step's outputs are durable: make them true before advancing again.
    Step(Step),
}

impl Totals {
    /// These, of a run that went on where another one, which had come to `before`, was given up.
    pub(crate) fn after(self, before: &Totals) -> Totals {
        Totals {
            // What was done elsewhere is taken as the other process said it.
            bytes_written: before.bytes_written.saturating_add(self.bytes_written),
            taken: before.taken.saturating_add(self.taken),
            kept: before.kept.saturating_add(self.kept),
            forgotten: before.forgotten.max(self.forgotten),
            ..self
        }
    }
}

pub(crate) struct Step {
    /// Finished, synced tables (their names are not durable yet).
    pub(crate) outputs: Vec<Arc<TableInfo>>,
    /// The inputs' cells below this key are done; `None`: all are, this was the last step.
    pub(crate) upto: Option<Vec<u8>>,
    /// Cells of the step's interval that are in no output, in order.
    pub(crate) aside: Vec<HotCell>,
    /// What the cache was given of each output. It leaves again with what stands for it, unless that is
    /// published.
    pub(crate) filled: Vec<(TableId, Filled)>,
}

/// What a run has done so far.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Totals {
    pub(crate) bytes_written: u64,
    /// Cells taken in, and passed on.
    pub(crate) taken: u64,
    pub(crate) kept: u64,
    pub(crate) aside: u64,
    /// In finished tables.
    pub(crate) range_tombstones: u64,
    /// Everything newer than this that was met so far left a cell of its key.
    pub(crate) forgotten: SeqNo,
    /// Data blocks that entered the cache, and their bytes.
    pub(crate) filled: (u64, u64),
    /// Keys, and those of them that readers are likely to want, where that matters.
    pub(crate) keys: (u64, u64),
}

/// The inputs and outputs of a compaction that is run by a process without access to the database's storage.
/// Calls may wait.
pub trait CompactionTables: Send + Sync + Debug {
    /// Fills the buffer from that offset of an input's file.
    ///
    /// # Errors
    /// `PermissionDenied` for a table that is no input, `UnexpectedEof` behind its end; what reading meets.
    fn read(&self, table: TableId, offset: u64, into: &mut [u8]) -> io::Result<()>;

    /// Writes on at the end of an output's file, which is made with the first call.
    ///
    /// # Errors
    /// `PermissionDenied` for a table that is no output, or that is there already; what writing meets.
    fn write(&self, table: TableId, bytes: &[u8]) -> io::Result<()>;

    /// Makes what was written of an output durable.
    ///
    /// # Errors
    /// `PermissionDenied` for a table that is no output, or was not written; what syncing meets.
    fn sync(&self, table: TableId) -> io::Result<()>;
}

/// Where tables are written to beside their files.
pub(crate) trait WriteTo: Send + Sync {
    /// What writes the table to the file, and there.
    fn also(&self, table: TableId, file: Box<dyn WriteFile>) -> Box<dyn WriteFile>;
}
