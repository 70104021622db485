//! The run of a compaction of SSTables, by this process ([`Local`]) or by another one (`crate::offload`).
//!
//! The interface is two calls. `begin` takes the compaction as plain data; [`MergeRun::advance`] does a
//! little of it, and returns a step as soon as its SSTables are durable. The caller installs the step before
//! it advances again. Blocks of a step's SSTables that entered the cache when they were written come with the
//! step.

use super::machine::{LocalMerge, Merge, Source};
use super::output::OutputRules;
use super::run::PassingRun;
use super::spec::{CompactionSpec, RULES_VERSION};
use crate::cache::BlockCache;
use crate::error::{Error, ErrorKind, Result};
use crate::operator::Registry;
use crate::shape::TableInfo;
use crate::sstable::{CursorOptions, Filled, Replaced};
use crate::storage::{Env, WriteFile};
use crate::types::{KeptCell, SeqNo, TableId};
use crate::version::{OpenTable, OpenTables};
use std::fmt::Debug;
use std::io;
use std::sync::Arc;

/// A running compaction.
pub(crate) trait MergeRun: Send {
    /// Does a little work. Must not be called again after the last step, whose `upto` is `None`.
    fn advance(&mut self) -> Result<Advance>;

    /// The totals so far.
    fn totals(&self) -> Totals;

    /// SSTables that were written but not returned, to be removed when the run is given up. For a run
    /// elsewhere the caller looks for them itself, as the other process may not answer any more.
    fn leftovers(&self) -> Vec<TableId> {
        Vec::new()
    }

    /// Also ends a step after so many bytes that it put into the cache.
    fn end_steps_at_filled(&mut self, _bytes: u64) {}

    /// Tells the run that its last step is refused, and why; returns the error.
    fn refused(&mut self, why: &str) -> Error {
        Error::new(ErrorKind::Io, format!("a merge handed out {why}"))
    }
}

/// The result of an advance.
pub(crate) enum Advance {
    /// There is more to do.
    Working,
    /// Nothing to do for so many nanoseconds.
    NotYet(u64),
    /// A step whose outputs are durable: install it before the next advance.
    Step(Step),
}

/// The result of one step.
pub(crate) struct Step {
    /// Finished, synced SSTables, whose names are not durable yet.
    pub(crate) outputs: Vec<Arc<TableInfo>>,
    /// The end of the step: the inputs' cells below this key are done; `None` for all, in the last step.
    pub(crate) upto: Option<Vec<u8>>,
    /// The step's cells that are in no output, in order.
    pub(crate) aside: Vec<KeptCell>,
    /// Blocks of each output in the cache. Dropped before the output is published, they are removed.
    pub(crate) filled: Vec<(TableId, Filled)>,
}

/// The totals of a run so far.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Totals {
    pub(crate) bytes_written: u64,
    /// Cells read, and cells kept.
    pub(crate) taken: u64,
    pub(crate) kept: u64,
    pub(crate) aside: u64,
    /// Range tombstones in finished SSTables.
    pub(crate) range_tombstones: u64,
    /// For every write newer than this so far, a cell of its key was kept.
    pub(crate) forgotten: SeqNo,
    /// Data blocks that entered the cache, and their bytes.
    pub(crate) filled: (u64, u64),
    /// Keys, and those of them that readers are likely to want, where that matters.
    pub(crate) keys: (u64, u64),
}

/// Runs compactions in this process.
pub(crate) struct Local {
    pub(crate) env: Env,
    pub(crate) tables: Arc<OpenTables>,
    pub(crate) cache: Arc<BlockCache>,
    pub(crate) registry: Registry,
    /// Whether an existing SSTable with an output's name may be overwritten. It is an error where names come
    /// from another process and may be wrong.
    pub(crate) writes_over: bool,
    /// A second place that SSTables are written to.
    pub(crate) written: Option<Arc<dyn WriteTo>>,
}

/// The inputs and outputs of a compaction that is run by a process without access to the database's storage.
/// Calls may wait.
pub trait MergeTables: Send + Sync + Debug {
    /// Fills the buffer from that offset of an input's file.
    ///
    /// # Errors
    /// `PermissionDenied` for an SSTable that is no input, `UnexpectedEof` behind its end; errors of the
    /// read.
    fn read(&self, table: TableId, offset: u64, into: &mut [u8]) -> io::Result<()>;

    /// Appends to an output's file, which the first call creates.
    ///
    /// # Errors
    /// `PermissionDenied` for an SSTable that is no output, or that exists already; errors of the write.
    fn write(&self, table: TableId, bytes: &[u8]) -> io::Result<()>;

    /// Makes the bytes written to an output durable.
    ///
    /// # Errors
    /// `PermissionDenied` for an SSTable that is no output, or was not written; errors of the sync.
    fn sync(&self, table: TableId) -> io::Result<()>;
}

/// A second place that SSTables are written to.
pub(crate) trait WriteTo: Send + Sync {
    /// A wrapper that writes the SSTable to the file and to the second place.
    fn also(&self, table: TableId, file: Box<dyn WriteFile>) -> Box<dyn WriteFile>;
}

impl Local {
    /// Begins a compaction in this process.
    pub(crate) fn begin(&self, spec: &CompactionSpec) -> Result<Box<dyn MergeRun>> {
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
        let (mut sources, mut replaced) = (Vec::new(), Replaced::default());
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
                cells: is_all.then_some(cells),
                aside: None,
            },
        );
        Ok(Box::new(merge))
    }
}

/// SSTables of one run, in order of keys, as a source.
pub(crate) fn run_source(tables: Vec<OpenTable>, options: CursorOptions, replaced: &mut Replaced) -> Source {
    let within = |open: &OpenTable| {
        let live = open.info.live_range();
        open.table().fragments().tombstones_within(&live).collect::<Vec<_>>()
    };
    let tombstones = tables.iter().flat_map(within).collect();
    replaced.add_run(tables.iter().map(OpenTable::table));
    Source { cursor: Box::new(PassingRun::new(tables, options)), tombstones }
}
