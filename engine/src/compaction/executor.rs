//! A merge of tables as it is run, by this process ([`Local`]) or by another one (`crate::offload`).
//!
//! The seam is two calls. `begin` takes the merge as plain data; [`MergeRun::advance`] does a little of it,
//! and hands out a step as soon as its tables are durable. Whoever drives a run makes the step true before it
//! advances again. What the cache has of a step's tables, put there while they were written, comes with the
//! step.

use super::hot_cells::AsideRules;
use super::machine::{LocalMerge, Merge, Source};
use super::output::{LeftInLog, OutputRules};
use super::run::PassingRun;
use super::spec::{CompactionSpec, RULES_VERSION};
use crate::cache::BlockCache;
use crate::error::{Error, ErrorKind, Result};
use crate::operator::Registry;
use crate::shape::TableInfo;
use crate::sstable::{CursorOptions, Filled, Replaced};
use crate::storage::{Env, WriteFile};
use crate::types::{Heats, KeptCell, SeqNo, TableId};
use crate::version::{OpenTable, OpenTables};
use std::fmt::Debug;
use std::io;
use std::sync::Arc;

/// A merge that is under way.
pub(crate) trait MergeRun: Send {
    /// Does a little. After the last step (`upto` is `None`) it must not be called again.
    fn advance(&mut self) -> Result<Advance>;

    /// What it has done so far.
    fn totals(&self) -> Totals;

    /// Tables that were written and not handed out, to be removed when it is given up. Of a run elsewhere the
    /// caller looks for them itself, as the other end may not answer any more.
    fn leftovers(&self) -> Vec<TableId> {
        Vec::new()
    }

    /// A step also ends after so many bytes that it put into the cache.
    fn end_steps_at_filled(&mut self, _bytes: u64) {}

    /// Values of the outputs stay in the WAL where these places are known. To be said before the first advance
    /// of a flush; others have no such places.
    fn leave_in_log(&mut self, _left: LeftInLog) {}

    /// How often the keys of a flush were updated.
    fn take_heats(&mut self) -> Heats {
        Heats::default()
    }

    /// What it handed out last is not believed, for that reason: the error that tells of it.
    fn refused(&mut self, why: &str) -> Error {
        Error::new(ErrorKind::Io, format!("a merge handed out {why}"))
    }
}

/// What an advance came to.
pub(crate) enum Advance {
    /// There is more to do.
    Working,
    /// There is nothing to do for so many nanoseconds.
    NotYet(u64),
    /// A step's outputs are durable: make them true before advancing again.
    Step(Step),
}

/// The result of one step.
pub(crate) struct Step {
    /// Finished, synced tables (their names are not durable yet).
    pub(crate) outputs: Vec<Arc<TableInfo>>,
    /// The inputs' cells below this key are done; `None`: all are, this was the last step.
    pub(crate) upto: Option<Vec<u8>>,
    /// Cells of the step's interval that are in no output, in order.
    pub(crate) aside: Vec<KeptCell>,
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

/// The memory of a flush, which is merged with the SSTables of its description and is newer than all of them.
#[derive(Default)]
pub(crate) struct MemoryInputs {
    /// Newest first.
    pub(crate) sources: Vec<Source>,
    /// The number of their cells, where all of them are within the range of the flush.
    pub(crate) cells: Option<u64>,
    /// Which keys are not written but handed out with the step.
    pub(crate) aside: Option<AsideRules>,
}

/// Runs merges in this process.
pub(crate) struct Local {
    pub(crate) env: Env,
    pub(crate) tables: Arc<OpenTables>,
    pub(crate) cache: Arc<BlockCache>,
    pub(crate) registry: Registry,
    /// A table of an output's name is nobody's. Where that is not sure, as names come from elsewhere, one
    /// that is there is an error.
    pub(crate) writes_over: bool,
    /// Where else tables are written to.
    pub(crate) written: Option<Arc<dyn WriteTo>>,
}

/// The inputs and outputs of a merge that is run by a process without access to the database's storage. Calls
/// may wait.
pub trait MergeTables: Send + Sync + Debug {
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

impl Local {
    /// Begins a merge here, of memory too if it is a flush.
    pub(crate) fn begin(
        &self,
        spec: &CompactionSpec,
        memory: Option<MemoryInputs>,
    ) -> Result<Box<dyn MergeRun>> {
        if spec.rules_version != RULES_VERSION {
            let (theirs, ours) = (spec.rules_version, RULES_VERSION);
            let message = format!("a merge by rules of version {theirs}, this release has version {ours}");
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
        let options = CursorOptions {
            fill_cache: false,
            read_ahead_bytes: spec.read_ahead as usize,
            through_cache: false,
        };
        let in_memory = memory.as_ref().map_or(Some(0), |memory| memory.cells);
        let MemoryInputs { mut sources, aside, .. } = memory.unwrap_or_default();
        let mut replaced = Replaced::default();
        for run in &spec.inputs {
            let open = |info: &TableInfo| {
                let info = Arc::new(info.clone());
                Ok(OpenTable { handle: self.tables.open(&info, None)?, info })
            };
            let tables = run.iter().map(open).collect::<Result<Vec<OpenTable>>>()?;
            sources.push(run_source(tables, options, &mut replaced));
        }
        let (cells, is_all) = spec.cells();
        let merge = Merge::new(
            &self.env,
            LocalMerge {
                sources,
                range: spec.range.clone(),
                rules: spec.keep.resolve(&self.registry),
                output: OutputRules {
                    tables: self.tables.store().clone(),
                    spec: spec.output.clone(),
                    cache: self.cache.clone(),
                    replaced: Arc::new(replaced),
                    writes_over: self.writes_over,
                    written: self.written.clone(),
                },
                step_bytes: spec.step_bytes,
                cells: in_memory.filter(|_| is_all).map(|in_memory| cells + in_memory),
                aside,
            },
        );
        Ok(Box::new(merge))
    }
}

/// Tables of one run, in order of keys, as a source.
pub(crate) fn run_source(tables: Vec<OpenTable>, options: CursorOptions, replaced: &mut Replaced) -> Source {
    let within = |open: &OpenTable| {
        let live = open.info.live_range();
        open.table().fragments().tombstones_within(&live).collect::<Vec<_>>()
    };
    let tombstones = tables.iter().flat_map(within).collect();
    replaced.add_run(tables.iter().map(OpenTable::table));
    Source { cursor: Box::new(PassingRun::new(tables, options)), tombstones }
}
