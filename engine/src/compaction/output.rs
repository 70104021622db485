//! Writes surviving cells into SSTables and decides where these end.
//!
//! An SSTable ends only between two keys. Output *i* covers the keys from its own lower bound to the next
//! one's, and takes the range tombstones of exactly that interval, so tombstones are cut at SSTable bounds
//! and no SSTable of a run affects its neighbour's keys.

use super::merge_run::{LeftInWal, WriteTo};
use super::retention::Retention;
use super::spec::OutputSpec;
use crate::cache::{BlockCache, Filling};
use crate::error::{Error, Result};
use crate::shape::TableInfo;
use crate::sstable::{Filled, Replaced, TableBuilder};
use crate::storage::{Env, TableStore};
use crate::types::{CellRef, KeyRange, TableId};
use std::path::PathBuf;
use std::sync::Arc;

#[derive(Clone)]
pub(crate) struct OutputRules {
    pub(crate) tables: TableStore,
    pub(crate) spec: OutputSpec,
    /// The cache, whose fill decides which blocks of outputs enter it.
    pub(crate) cache: Arc<BlockCache>,
    pub(crate) replaced: Arc<Replaced>,
    /// Whether an existing SSTable with the name of an output is overwritten; otherwise it is an error.
    pub(crate) writes_over: bool,
    /// A second place that SSTables are written to.
    pub(crate) written: Option<Arc<dyn WriteTo>>,
}

pub(crate) struct Output {
    env: Env,
    rules: OutputRules,
    builder: Option<TableBuilder>,
    /// The SSTable that was begun but not finished; also set if finishing it failed.
    unfinished: Option<TableId>,
    pub(super) left: Option<LeftInWal>,
    part: u32,
    /// The lower bound of the current SSTable's interval.
    low: Vec<u8>,
    /// The number of cuts at or before `low`.
    cuts_passed: usize,
    /// SSTables finished and synced since the last step.
    pub(super) finished: Vec<Arc<TableInfo>>,
    /// Blocks of these SSTables in the cache.
    pub(super) filled: Vec<(TableId, Filled)>,
    /// Blocks and bytes put into the cache since the compaction began, without the current SSTable's.
    filled_before: (u64, u64),
    /// Whether the present key is warm: read lately, or updated in memory.
    pub(super) is_warm: bool,
    pub(crate) bytes: u64,
    /// Cells of all finished SSTables, and their range tombstones.
    pub(crate) cells: u64,
    pub(crate) range_tombstones: u64,
}

impl Output {
    pub(crate) fn new(env: Env, rules: OutputRules, low: Vec<u8>) -> Self {
        let cuts_passed = rules.spec.cuts.partition_point(|cut| *cut <= low);
        Self {
            env,
            rules,
            builder: None,
            unfinished: None,
            left: None,
            part: 0,
            low,
            cuts_passed,
            finished: Vec::new(),
            filled: Vec::new(),
            filled_before: (0, 0),
            is_warm: false,
            bytes: 0,
            cells: 0,
            range_tombstones: 0,
        }
    }

    fn builder(&mut self) -> Result<&mut TableBuilder> {
        if self.builder.is_none() {
            let id = TableId { part: self.part, ..self.rules.spec.id };
            if !self.rules.writes_over && self.rules.tables.exists(id)? {
                return Err(Error::invalid(format!("table {id} is there already")));
            }
            self.part += 1;
            self.unfinished = Some(id);
            let (path, storage) = (self.rules.tables.path(id), &**self.rules.tables.storage());
            let (identity, created) = (self.env.random.next_u64(), self.env.clock.wall_us());
            let mut builder =
                TableBuilder::new(storage, &path, id, identity, &self.rules.spec.table, created)?;
            if let Some(written) = &self.rules.written {
                builder.write_by(|file| written.also(id, file));
            }
            if let Some(left) = &self.left {
                builder.set_log_database(left.database);
            }
            for (name, value) in &self.rules.spec.names {
                builder.set_name(name, value);
            }
            builder.fill(&self.rules.cache, &self.rules.replaced);
            self.builder = Some(builder);
        }
        Ok(self.builder.as_mut().expect("just set"))
    }

    pub(crate) fn add(&mut self, cell: &CellRef<'_>) -> Result<()> {
        let reference = self.left.as_ref().and_then(|left| (left.find)(cell));
        let is_warm = self.is_warm;
        let builder = self.builder()?;
        if is_warm {
            builder.next_is_warm();
        }
        builder.add_with(cell, reference.as_ref())
    }

    /// Whether it makes a difference which keys are warm.
    pub(super) fn asks_what_is_warm(&self) -> bool {
        self.rules.cache.filling() == Filling::Warm
    }

    /// The bound at or below the next key where the SSTable should end, if there is one.
    #[inline]
    pub(crate) fn end_before<'a>(&'a self, key: &'a [u8]) -> Option<&'a [u8]> {
        self.next_cut().filter(|cut| *cut <= key).or_else(|| self.is_full().then_some(key))
    }

    /// The next cut, after what the SSTable covers so far.
    pub(crate) fn next_cut(&self) -> Option<&[u8]> {
        self.rules.spec.cuts.get(self.cuts_passed).map(Vec::as_slice)
    }

    fn is_full(&self) -> bool {
        self.builder
            .as_ref()
            .is_some_and(|b| b.estimated_bytes() + b.log_bytes() >= self.rules.spec.sstable_bytes)
    }

    /// Whether it has an eighth of its full size.
    pub(crate) fn is_eighth_full(&self) -> bool {
        self.builder.as_ref().is_some_and(|b| b.estimated_bytes() >= self.rules.spec.sstable_bytes / 8)
    }

    /// Data blocks of the current SSTable so far.
    pub(crate) fn data_blocks(&self) -> u64 {
        self.builder.as_ref().map_or(0, TableBuilder::data_blocks)
    }

    /// Bytes of all SSTables since the compaction began, the current one included.
    pub(crate) fn bytes_so_far(&self) -> u64 {
        self.bytes + self.builder.as_ref().map_or(0, TableBuilder::estimated_bytes)
    }

    /// Ends the current SSTable before `high` (`None`: at the very end), with the range tombstones of its
    /// interval.
    pub(crate) fn cut(&mut self, high: Option<&[u8]>, keep: &Retention) -> Result<()> {
        let interval = KeyRange { start: std::mem::take(&mut self.low), end: high.map(<[u8]>::to_vec) };
        let tombstones = keep.tombstones_within(&interval);
        if self.builder.is_some() || !tombstones.is_empty() {
            let builder = self.builder()?;
            if !planted!(Bug::LoseRangeTombstoneAtCut) || high.is_none() {
                tombstones.into_iter().try_for_each(|t| builder.add_range_tombstone(t))?;
            }
            if let Some(builder) = self.builder.take() {
                let (info, filled) = builder.finish_filled()?;
                self.unfinished = None;
                if let Some(filled) = filled {
                    let (blocks, bytes) = filled.so_far();
                    self.filled_before = (self.filled_before.0 + blocks, self.filled_before.1 + bytes);
                    self.filled.push((info.id, filled));
                }
                self.bytes += info.bytes;
                self.cells += info.cells;
                self.range_tombstones += info.range_tombstones;
                self.finished.push(Arc::new(info));
            }
        }
        self.low = high.unwrap_or_default().to_vec();
        while self.next_cut().is_some_and(|cut| cut <= self.low.as_slice()) {
            self.cuts_passed += 1;
        }
        Ok(())
    }

    /// The path of the first SSTable.
    pub(crate) fn place(&self) -> PathBuf {
        self.rules.tables.path(self.rules.spec.id)
    }

    /// Data blocks that entered the cache since the compaction began, and their bytes.
    pub(crate) fn filled_so_far(&self) -> (u64, u64) {
        let (blocks, bytes) = self.builder.as_ref().map_or((0, 0), TableBuilder::filled);
        (self.filled_before.0 + blocks, self.filled_before.1 + bytes)
    }

    /// Files that were not returned: the unfinished SSTable and those finished since the last step.
    pub(crate) fn leftovers(&self) -> Vec<TableId> {
        self.finished.iter().map(|info| info.id).chain(self.unfinished).collect()
    }
}
