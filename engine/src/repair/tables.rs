//! Writing SSTables: what is readable of a damaged one, sorted cells, or one run out of many SSTables.

use super::check::CACHE_BYTES;
use crate::cache::BlockCache;
use crate::compaction::Merging;
use crate::error::Result;
use crate::options::FamilyOptions;
use crate::shape::TableInfo;
use crate::sstable::{CursorOptions, ScanReport, Sstable, TableBuilder, TableOptions, scan_readable};
use crate::storage::Env;
use crate::types::{CellRef, Cursor, Fragments, KeyRange, RangeTombstone, SeqNo, TableId, Timestamp, Within};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The size at which SSTables of a merged run end.
const TABLE_BYTES: u64 = 64 << 20;
/// Read ahead of each source while merging.
const READ_AHEAD_BYTES: usize = 256 << 10;

/// The options and properties of a family's new SSTables.
pub(super) struct Style {
    pub(super) options: TableOptions,
    pub(super) names: Vec<(&'static str, String)>,
}

impl Style {
    pub(super) fn new(options: &FamilyOptions, names: Vec<(&'static str, String)>) -> Self {
        let options = TableOptions {
            block_bytes: options.block_bytes,
            bloom_bits: options.bloom_bits,
            compression: options.compression,
            ..TableOptions::default()
        };
        Self { options, names }
    }
}

pub(super) struct Writer<'a> {
    pub(super) env: &'a Env,
    pub(super) dir: &'a Path,
    /// The database whose WAL files SSTables refer to.
    pub(super) database: u64,
    pub(super) epoch: u32,
    pub(super) job: u32,
    pub(super) tables: u64,
    pub(super) cells: u64,
}

/// A source of a compaction: a sound SSTable, of which keys from `floor` on count.
pub(super) struct Input {
    pub(super) table: Arc<Sstable>,
    pub(super) floor: Vec<u8>,
}

impl Input {
    pub(super) fn new(env: &Env, dir: &Path, info: &Arc<TableInfo>) -> Result<Self> {
        let path = dir.join(info.id.file_name());
        let table = Sstable::open(&env.storage, &path, info.clone(), &BlockCache::new(CACHE_BYTES))?;
        Ok(Self { table, floor: info.live_start().to_vec() })
    }

    fn live(&self) -> KeyRange {
        KeyRange { start: self.floor.clone(), end: None }
    }
}

impl Writer<'_> {
    fn builder(&mut self, style: &Style) -> Result<(TableBuilder, PathBuf)> {
        self.job += 1;
        let id = TableId { epoch: self.epoch, job: self.job, ..TableId::default() };
        let path = self.dir.join(id.file_name());
        let (identity, created) = (self.env.random.next_u64(), self.env.clock.wall_us());
        let mut builder =
            TableBuilder::new(&*self.env.storage, &path, id, identity, &style.options, created)?;
        style.names.iter().for_each(|(name, value)| builder.set_name(name, value));
        Ok((builder, path))
    }

    fn finish(&mut self, builder: TableBuilder, path: &Path) -> Result<Option<TableInfo>> {
        if builder.is_empty() {
            drop(builder);
            // No manifest names it yet; an orphan at worst.
            let _ = self.env.storage.remove(path);
            return Ok(None);
        }
        let info = builder.finish()?;
        self.tables += 1;
        self.cells += info.cells;
        Ok(Some(info))
    }

    /// Writes what is readable of a damaged SSTable, of keys from `floor` on. `known` is what the manifest
    /// says of it.
    pub(super) fn rewrite(
        &mut self,
        file: &str,
        known: Option<&TableInfo>,
        style: impl FnOnce(&ScanReport) -> Style,
    ) -> Result<(Option<TableInfo>, ScanReport)> {
        let storage = &*self.env.storage;
        let path = self.dir.join(file);
        let identity = known.map(|info| info.identity);
        // Read twice: the properties about its family stand after its cells.
        let report = scan_readable(storage, &path, identity, self.database, &mut |_| {})?;
        let (mut builder, target) = self.builder(&style(&report))?;
        let floor = known.map_or(&[][..], |info| info.live_start());
        let mut written = Ok(());
        let mut last: Option<(Vec<u8>, Timestamp, SeqNo)> = None;
        scan_readable(storage, &path, identity, self.database, &mut |cell| {
            let here = (cell.key.to_vec(), cell.timestamp, cell.seq);
            // A sound block cannot be out of order, but an SSTable written by a faulty program might.
            let in_order = last.as_ref().is_none_or(|(key, timestamp, seq)| {
                CellRef { key, timestamp: *timestamp, seq: *seq, ..cell }.order(&cell).is_lt()
            });
            if written.is_ok() && cell.key >= floor && in_order {
                written = builder.add(&cell);
                last = Some(here);
            }
        })?;
        written?;
        for tombstone in report.tombstones.iter().flatten() {
            let range = tombstone.range.intersect(&KeyRange { start: floor.to_vec(), end: None });
            builder.add_range_tombstone(RangeTombstone { range, ..tombstone.clone() })?;
        }
        let mut info = self.finish(builder, &target)?;
        if let (Some(info), Some(seq)) = (&mut info, known.and_then(|info| info.ingested_at)) {
            // Its cells go on taking the sequence number it was ingested at.
            (info.ingested_at, info.seqs) = (Some(seq), (seq, seq));
        }
        Ok((info, report))
    }

    /// Writes cells in their order, each once, and range tombstones.
    pub(super) fn write<'c>(
        &mut self,
        style: &Style,
        cells: impl Iterator<Item = CellRef<'c>>,
        tombstones: Vec<RangeTombstone>,
    ) -> Result<Option<TableInfo>> {
        let (mut builder, path) = self.builder(style)?;
        for cell in cells {
            builder.add(&cell)?;
        }
        tombstones.into_iter().try_for_each(|tombstone| builder.add_range_tombstone(tombstone))?;
        self.finish(builder, &path)
    }

    /// Writes every cell and range tombstone of the inputs, in whatever order these are, into one run. The
    /// cells' own sequence numbers say which is newer, so nothing needs to be known of the inputs.
    pub(super) fn merge(&mut self, style: &Style, inputs: &[Input]) -> Result<Vec<TableInfo>> {
        let all = Fragments::new(inputs.iter().flat_map(|input| {
            let live = input.live();
            input.table.fragments().tombstones_within(&live).collect::<Vec<_>>()
        }));
        let options = CursorOptions { read_ahead_bytes: READ_AHEAD_BYTES, ..CursorOptions::default() };
        let cursors =
            inputs.iter().map(|input| Within::above(input.table.cursor(options), input.floor.clone()));
        let mut merging = Merging::new(cursors.collect());
        merging.seek(&[])?;
        let mut tables = Vec::new();
        let mut low = Vec::new();
        let (mut builder, mut path) = self.builder(style)?;
        let mut last: Option<(Vec<u8>, Timestamp, SeqNo)> = None;
        while merging.valid() {
            let cell = merging.cell();
            let same_key = last.as_ref().is_some_and(|(key, _, _)| key == cell.key);
            if !same_key && builder.estimated_bytes() >= TABLE_BYTES {
                let interval = KeyRange::new(std::mem::replace(&mut low, cell.key.to_vec()), cell.key);
                all.tombstones_within(&interval).try_for_each(|t| builder.add_range_tombstone(t))?;
                let fresh = self.builder(style)?;
                let (full, at) =
                    (std::mem::replace(&mut builder, fresh.0), std::mem::replace(&mut path, fresh.1));
                tables.extend(self.finish(full, &at)?);
            }
            // The same cell may lie in several SSTables: a compaction's input and its output.
            let again =
                same_key && last.as_ref().is_some_and(|(_, t, s)| (*t, *s) == (cell.timestamp, cell.seq));
            if !again {
                builder.add(&cell)?;
                last = Some((cell.key.to_vec(), cell.timestamp, cell.seq));
            }
            merging.next()?;
        }
        let interval = KeyRange { start: low, end: None };
        all.tombstones_within(&interval).try_for_each(|t| builder.add_range_tombstone(t))?;
        tables.extend(self.finish(builder, &path)?);
        Ok(tables)
    }
}
