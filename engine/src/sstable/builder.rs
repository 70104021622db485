//! Writes an SSTable from front to back: data blocks as they fill, then index, filters and the other blocks.
//!
//! Index and filter partitions wait in memory until the data blocks are done (about 2 % of the SSTable). A
//! block's index entry waits for the next key, from which its separator is made; only then may the partition
//! be cut, so that each key's hash lies in the filter of the partition that holds the first of its cells.

use super::block_builder::BlockBuilder;
use super::compression::Compressor;
use super::fill::{Filler, Replaced};
use super::filled::Filled;
use super::footer::{FOOTER_BYTES, Footer, HEADER_MAGIC, Header};
use super::frame::{BlockKind, Handle, Head};
use super::index::{BlockEntry, Partition, separator};
use super::properties::{Properties, VersionCounter};
use super::reference::Reference;
use super::{BLOCK_TARGET_BYTES_MAX, TableOptions, tombstones};
use crate::cache::block::FLAG_REFERENCE;
use crate::cache::{BlockCache, Filter};
use crate::error::{Error, Result};
use crate::shape::TableInfo;
use crate::storage::{Storage, WriteFile, begins_with, create_over_own};
use crate::types::{
    CellRef, KEY_BYTES_MAX, KeyRange, RangeTombstone, SeqNo, Sketch, TableId, Timestamp, VALUE_BYTES_MAX,
    hash, successor,
};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Bytes collected before a write.
const WRITE_BUFFER_BYTES: usize = 256 << 10;
/// Index blocks have a whole key every so many entries: they are searched most.
const INDEX_RESTART_INTERVAL: usize = 4;

/// Builds one SSTable. Dropped unfinished, it only closes the file.
// Over 15 fields: the open block, partition and SSTable, and the contents of the file's end.
pub(crate) struct TableBuilder {
    out: Output,
    id: TableId,
    options: TableOptions,
    block: BlockBuilder,
    index: BlockBuilder,
    partitions: Vec<PendingPartition>,
    /// Hashes of the keys that begin in the current partition.
    hashes: Vec<u64>,
    /// The last data block, until the next key gives its separator.
    pending: Option<BlockEntry>,
    blocks_in_partition: u64,
    last_key: Vec<u8>,
    last: Option<(Timestamp, SeqNo)>,
    first_key: Option<Vec<u8>>,
    tombstones: Vec<RangeTombstone>,
    sketch: Sketch,
    properties: Properties,
    versions: VersionCounter,
    log_database: u64,
    /// The last reference, encoded.
    reference: Vec<u8>,
    /// Bytes of finished index and filter partitions.
    waiting_bytes: usize,
    filler: Option<Filler>,
    /// Whether the last data block went into the cache, and whether any of the current partition did.
    pending_filled: bool,
    partition_filled: bool,
}

struct PendingPartition {
    separator: Vec<u8>,
    index: Vec<u8>,
    filter: Option<Vec<u8>>,
    data_end: u64,
    blocks: u64,
    /// Whether readers shall find it decoded, and its heat in the inputs.
    filled: bool,
    heat: u8,
}

impl TableBuilder {
    /// Creates the file, replacing one of that name.
    pub(crate) fn new(
        storage: &dyn Storage,
        path: &Path,
        id: TableId,
        identity: u64,
        options: &TableOptions,
        created: u64,
    ) -> Result<Self> {
        let mut options = *options;
        options.block_bytes = options.block_bytes.clamp(64, BLOCK_TARGET_BYTES_MAX);
        options.index_partition_bytes = options.index_partition_bytes.clamp(64, BLOCK_TARGET_BYTES_MAX);
        options.bloom_bits = options.bloom_bits.min(64);
        let compressor =
            Compressor::new(options.compression).map_err(|e| Error::io("set up compression for", path, e))?;
        // The name may have been used by another process that gave this compaction up.
        let begins = |head: &[u8]| begins_with(head, HEADER_MAGIC);
        let file = create_over_own(storage, path, begins).map_err(|e| Error::io("create table", path, e))?;
        let mut out =
            Output { file, path: path.to_path_buf(), buffer: Vec::new(), written: 0, identity, compressor };
        out.append(&Header { id, identity }.encode())?;
        Ok(Self {
            out,
            id,
            block: BlockBuilder::new(options.restart_interval),
            index: BlockBuilder::new(INDEX_RESTART_INTERVAL),
            partitions: Vec::new(),
            hashes: Vec::new(),
            pending: None,
            blocks_in_partition: 0,
            last_key: Vec::new(),
            last: None,
            first_key: None,
            tombstones: Vec::new(),
            sketch: Sketch::new(),
            properties: Properties {
                created,
                block_bytes: options.block_bytes as u64,
                bloom_bits: options.bloom_bits.into(),
                compression: options.compression,
                ..Properties::default()
            },
            versions: VersionCounter::default(),
            log_database: 0,
            reference: Vec::new(),
            waiting_bytes: 0,
            filler: None,
            pending_filled: false,
            partition_filled: false,
            options,
        })
    }

    /// Wraps the file to be written. Called before the first cell.
    pub(crate) fn write_by(&mut self, by: impl FnOnce(Box<dyn WriteFile>) -> Box<dyn WriteFile>) {
        let file = std::mem::replace(&mut self.out.file, Box::new(NoFile));
        self.out.file = by(file);
    }

    /// Names something in the properties (a writer, a merge operator).
    pub(crate) fn set_name(&mut self, name: &str, value: &str) {
        self.properties.names.insert(name.to_string(), value.to_string());
    }

    /// Lets finished blocks enter the cache, if it is filled for the replaced SSTables.
    pub(crate) fn fill(&mut self, cache: &Arc<BlockCache>, replaced: &Arc<Replaced>) {
        self.filler = Filler::new(cache, replaced);
    }

    /// Notes that the next cell was read lately in its input.
    pub(crate) fn next_is_warm(&mut self) {
        let at = self.block.next_entry();
        if let Some(filler) = &mut self.filler {
            filler.warm_cell(at);
        }
    }

    /// Adds the next cell.
    ///
    /// # Panics
    /// If the cell does not come after the last one in the order of cells.
    pub(crate) fn add(&mut self, cell: &CellRef<'_>) -> Result<()> {
        self.add_with(cell, None)
    }

    /// Sets the database whose WAL has the values of cells that are added with a reference.
    pub(crate) fn set_log_database(&mut self, database: u64) {
        self.log_database = database;
    }

    /// Adds the next cell; with a reference its value stays in the WAL.
    pub(crate) fn add_with(&mut self, cell: &CellRef<'_>, reference: Option<&Reference>) -> Result<()> {
        if cell.key.len() > KEY_BYTES_MAX || cell.value.len() > VALUE_BYTES_MAX {
            let (key, value) = (cell.key.len(), cell.value.len());
            return Err(Error::invalid(format!("key of {key} or value of {value} bytes is over the limit")));
        }
        let same_key = match self.last {
            None => false,
            Some((timestamp, seq)) => {
                let same_key = match self.last_key.as_slice().cmp(cell.key) {
                    std::cmp::Ordering::Less => false,
                    std::cmp::Ordering::Equal => true,
                    std::cmp::Ordering::Greater => panic!("cells added to a table out of order"),
                };
                assert!(
                    !same_key || (timestamp, seq) > (cell.timestamp, cell.seq),
                    "versions of a key added to a table out of order"
                );
                same_key
            }
        };
        self.index_pending(cell.key);
        if !same_key {
            let hash = hash(cell.key);
            self.sketch.add_hash(hash);
            if self.options.bloom_bits > 0 {
                self.hashes.push(hash);
            }
            self.properties.distinct += 1;
            self.first_key.get_or_insert_with(|| cell.key.to_vec());
            self.last_key.clear();
            self.last_key.extend_from_slice(cell.key);
        }
        self.note_seq(cell.seq);
        self.properties.count(cell, self.properties.cells == 0);
        self.versions.count(&mut self.properties, cell, same_key);
        self.last = Some((cell.timestamp, cell.seq));
        match reference {
            None => self.block.add(cell),
            Some(reference) => {
                let p = &mut self.properties;
                p.log_database = self.log_database;
                p.log_bytes += cell.value.len() as u64;
                let end = p.logs.entry(reference.file).or_default();
                *end = reference.end().max(*end);
                reference.encode(&mut self.reference);
                self.block.put(&CellRef { value: &self.reference, ..*cell }, FLAG_REFERENCE);
            }
        }
        if self.block.size() >= self.options.block_bytes {
            self.cut_block()?;
        }
        Ok(())
    }

    /// Adds a range tombstone, in any order. An empty range is ignored.
    pub(crate) fn add_range_tombstone(&mut self, tombstone: RangeTombstone) -> Result<()> {
        let ends = [Some(&tombstone.range.start), tombstone.range.end.as_ref()];
        // A range may end just above the largest key.
        if ends.into_iter().flatten().any(|key| key.len() > KEY_BYTES_MAX + 1) {
            return Err(Error::invalid("a bound of a range tombstone is over the limit of a key"));
        }
        if !tombstone.range.is_empty() {
            self.waiting_bytes += tombstone.range.start.len() + 32;
            self.note_seq(tombstone.seq);
            self.properties.range_tombstones += 1;
            self.tombstones.push(tombstone);
        }
        Ok(())
    }

    /// The file's length if finished now, about.
    pub(crate) fn estimated_bytes(&self) -> u64 {
        let open =
            self.block.size() + self.index.size() + self.hashes.len() * self.options.bloom_bits as usize / 8;
        self.out.offset() + (open + self.waiting_bytes) as u64 + FOOTER_BYTES as u64
    }

    /// Bytes of values left in the WAL so far.
    pub(crate) fn log_bytes(&self) -> u64 {
        self.properties.log_bytes
    }

    /// Data blocks that entered the cache so far, and their bytes.
    pub(crate) fn filled(&self) -> (u64, u64) {
        self.filler.as_ref().map_or((0, 0), |filler| filler.filled.so_far())
    }

    pub(crate) fn data_blocks(&self) -> u64 {
        self.properties.data_blocks
    }

    /// Bytes written to the file so far, with those in the write buffer.
    pub(crate) fn bytes_written(&self) -> u64 {
        self.out.offset()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.properties.cells == 0 && self.tombstones.is_empty()
    }

    /// Writes the remaining blocks and syncs the file. Its name is durable once the caller has synced the
    /// directory.
    pub(crate) fn finish(self) -> Result<TableInfo> {
        self.finish_filled().map(|(info, _)| info)
    }

    /// Finishes the file as `finish` does, and returns the blocks that went into the cache.
    pub(crate) fn finish_filled(mut self) -> Result<(TableInfo, Option<Filled>)> {
        let forgotten = planted!(Bug::LoseLastBlock) && self.data_blocks() > 1;
        if !self.block.is_empty() && !forgotten {
            self.cut_block()?;
        }
        if let Some(entry) = self.pending.take() {
            self.index.add_plain(&self.last_key, &entry.encode());
            self.blocks_in_partition += 1;
            self.partition_filled |= self.pending_filled;
        }
        let data_end = self.out.offset();
        if !self.index.is_empty() {
            self.cut_partition(data_end);
        }
        let mut partitions = std::mem::take(&mut self.partitions);
        let mut filters = Vec::with_capacity(partitions.len());
        for (number, partition) in partitions.iter_mut().enumerate() {
            if let Some(filler) = self.filler.as_mut().filter(|_| partition.filled) {
                let heat = partition.heat.saturating_sub(1);
                filler.partition(number, &partition.index, partition.filter.as_deref(), heat);
            }
            let filter = partition.filter.take();
            filters.push(filter.map(|filter| self.out.block_raw(BlockKind::Filter, &filter)).transpose()?);
        }
        let mut top = BlockBuilder::new(1);
        for (partition, filter) in partitions.into_iter().zip(filters) {
            let index = self.out.block(BlockKind::Index, &partition.index)?;
            let entry = Partition { index, filter, data_end: partition.data_end, blocks: partition.blocks };
            top.add_plain(&partition.separator, &entry.encode());
        }
        self.properties.range = self.range();
        kill_point!("sstable-cells-written");
        let tombstones = self.out.block(BlockKind::Tombstones, &tombstones::encode(&self.tombstones))?;
        let sketch = self.out.block(BlockKind::Sketch, self.sketch.as_bytes())?;
        let properties = self.out.block_raw(BlockKind::Properties, &self.properties.encode())?;
        let top = self.out.block(BlockKind::Top, top.finish())?;
        let file_bytes = self.out.offset() + FOOTER_BYTES as u64;
        let identity = self.out.identity;
        let footer = Footer { tombstones, sketch, properties, top, file_bytes, id: self.id, identity };
        self.out.append(&footer.encode())?;
        self.out.flush()?;
        kill_point!("sstable-written-not-synced");
        self.out.sync()?;
        let info = self.properties.info(self.id, identity, file_bytes);
        Ok((info, self.filler.map(|filler| filler.filled)))
    }

    fn cut_block(&mut self) -> Result<()> {
        let cells = self.block.entries();
        let raw = self.block.finish();
        let handle = self.out.block(BlockKind::Data, raw)?;
        self.pending_filled = self.filler.as_mut().is_some_and(|filler| filler.block(handle, raw));
        self.block.clear(4 * self.options.block_bytes);
        self.out.compressor.shrink(WRITE_BUFFER_BYTES.max(2 * self.options.block_bytes));
        self.properties.data_blocks += 1;
        self.pending = Some(BlockEntry { handle, cells, continues: false });
        Ok(())
    }

    /// Gives the last data block its index entry, now that the key after it is known.
    fn index_pending(&mut self, next_key: &[u8]) {
        let Some(mut entry) = self.pending.take() else { return };
        entry.continues = self.last_key == next_key;
        let separator = separator(&self.last_key, next_key);
        self.index.add_plain(&separator, &entry.encode());
        self.blocks_in_partition += 1;
        self.partition_filled |= self.pending_filled;
        if self.index.size() >= self.options.index_partition_bytes {
            self.cut_partition(entry.handle.end());
        }
    }

    fn cut_partition(&mut self, data_end: u64) {
        let separator = self.index.last_key().to_vec();
        let index = self.index.finish().to_vec();
        self.index.clear(4 * self.options.index_partition_bytes);
        let bits = self.options.bloom_bits;
        // A filter probe never enters first a partition in which no key begins (all its cells are later
        // versions of one key), so an empty filter will do.
        let filter = (bits > 0).then(|| Filter::build(&self.hashes, bits));
        self.hashes.clear();
        self.waiting_bytes += index.len() + filter.as_ref().map_or(0, Vec::len) + separator.len();
        let blocks = std::mem::take(&mut self.blocks_in_partition);
        // The first key that may begin in the partition.
        let behind = |before: &PendingPartition| [&before.separator[..], &[0]].concat();
        let low = self.partitions.last().map(behind).or_else(|| self.first_key.clone());
        let heat = match (&self.filler, low) {
            (Some(filler), Some(low)) => filler.heat(&low, &separator),
            _ => 0,
        };
        let filled = std::mem::take(&mut self.partition_filled) || heat > 0;
        self.partitions.push(PendingPartition { separator, index, filter, data_end, blocks, filled, heat });
    }

    fn note_seq(&mut self, seq: SeqNo) {
        let is_first = self.properties.cells == 0 && self.properties.range_tombstones == 0;
        self.properties.note_seq(seq, is_first);
    }

    /// The smallest range over cells and range tombstones.
    fn range(&self) -> KeyRange {
        let cells = self.first_key.as_ref().map(|first| KeyRange::new(&first[..], successor(&self.last_key)));
        let ranges = self.tombstones.iter().map(|t| t.range.clone()).chain(cells);
        ranges.reduce(|a, b| a.cover(&b)).unwrap_or(KeyRange::new("", ""))
    }
}

/// The file with its write buffer.
struct Output {
    file: Box<dyn WriteFile>,
    path: PathBuf,
    buffer: Vec<u8>,
    written: u64,
    identity: u64,
    compressor: Compressor,
}

impl Output {
    fn offset(&self) -> u64 {
        self.written + self.buffer.len() as u64
    }

    /// Writes a block, compressed if that pays.
    fn block(&mut self, kind: BlockKind, raw: &[u8]) -> Result<Handle> {
        let offset = self.offset();
        let (codec, payload) = self.compressor.compress(raw);
        let head = Head::encode(kind, codec, raw.len(), payload, self.identity, offset);
        let stored = payload.len() as u32;
        self.buffer.extend_from_slice(&head);
        if payload.len() < WRITE_BUFFER_BYTES {
            self.buffer.extend_from_slice(payload);
            self.flush_full()?;
        } else {
            // A huge value bypasses the buffer, which saves a copy.
            write(&mut *self.file, &self.path, &self.buffer)?;
            write(&mut *self.file, &self.path, payload)?;
            self.written += (self.buffer.len() + payload.len()) as u64;
            self.buffer.clear();
        }
        Ok(Handle { offset, stored, raw: raw.len() as u32 })
    }

    /// Writes a block uncompressed: filters do not shrink, and properties are small.
    fn block_raw(&mut self, kind: BlockKind, raw: &[u8]) -> Result<Handle> {
        let offset = self.offset();
        let head = Head::encode(kind, super::compression::Codec::Raw, raw.len(), raw, self.identity, offset);
        self.append(&head)?;
        self.append(raw)?;
        Ok(Handle { offset, stored: raw.len() as u32, raw: raw.len() as u32 })
    }

    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.buffer.extend_from_slice(bytes);
        self.flush_full()
    }

    fn flush_full(&mut self) -> Result<()> {
        if self.buffer.len() >= WRITE_BUFFER_BYTES { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<()> {
        write(&mut *self.file, &self.path, &self.buffer)?;
        self.written += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    fn sync(&mut self) -> Result<()> {
        self.file.sync().map_err(|e| Error::io("sync table", &self.path, e))
    }
}

struct NoFile;

impl WriteFile for NoFile {
    fn write(&mut self, _: &[u8]) -> std::io::Result<()> {
        Err(std::io::ErrorKind::Unsupported.into())
    }

    fn sync(&mut self) -> std::io::Result<()> {
        Err(std::io::ErrorKind::Unsupported.into())
    }
}

fn write(file: &mut dyn WriteFile, path: &Path, bytes: &[u8]) -> Result<()> {
    file.write(bytes).map_err(|e| Error::io("write table", path, e))
}
