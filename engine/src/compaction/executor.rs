//! Compactions that this process runs: from a compaction as plain data, and the memory of a flush beside it,
//! to its run.

use super::hot_cells::AsideRules;
use super::machine::{LocalCompaction, LocalCompactionRun, Source};
use super::merge_run::{CompactionRun, WriteTo};
use super::output::OutputRules;
use super::run::PassingRun;
use super::spec::{CompactionSpec, RULES_VERSION};
use crate::cache::BlockCache;
use crate::error::{Error, ErrorKind, Result};
use crate::operator::Registry;
use crate::shape::TableInfo;
use crate::sstable::{CursorOptions, Replaced, Sstable};
use crate::storage::Env;
use crate::version::{OpenTable, OpenTables};
use std::sync::Arc;

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

impl Local {
    /// Begins a compaction here, of memory too if it is a flush.
    pub(crate) fn begin(
        &self,
        spec: &CompactionSpec,
        memory: Option<MemoryInputs>,
    ) -> Result<Box<dyn CompactionRun>> {
        if spec.rules_version != RULES_VERSION {
            let (theirs, ours) = (spec.rules_version, RULES_VERSION);
            let message =
                format!("a compaction by rules of version {theirs}, this release has version {ours}");
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
            let opened = tables.iter().map(OpenTable::table).collect::<Result<Vec<_>>>()?;
            let within = |(open, table): (&OpenTable, &&Arc<Sstable>)| {
                let live = open.info.live_range();
                table.fragments().tombstones_within(&live).collect::<Vec<_>>()
            };
            let tombstones = tables.iter().zip(&opened).flat_map(within).collect();
            replaced.add_run(opened.into_iter());
            sources.push(Source { cursor: Box::new(PassingRun::new(tables, options)), tombstones });
        }
        let (cells, is_all) = spec.cells();
        let compaction = LocalCompactionRun::new(
            &self.env,
            LocalCompaction {
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
        Ok(Box::new(compaction))
    }
}
