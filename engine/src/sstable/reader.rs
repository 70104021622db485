//! An open SSTable: the file, its top index, fragments of range tombstones and properties, and its pinned
//! indices and filters. `get` reads one key of it, `cursor` many.

use super::compression::Codec;
use super::filled::Filled;
use super::footer::{FOOTER_BYTES, Footer, HEADER_BYTES, Header};
use super::frame::{BlockKind, Handle, read_at, read_block};
use super::index::{Partition, TopIndex};
use super::properties::Properties;
use super::reference::{Fetched, Images, Logs};
use super::remote_footer::Tail;
use super::tombstones;
use crate::cache::{Block, BlockCache, BlockKey, Counter, Filling, Filter, Warmth};
use crate::error::{Error, ErrorKind, Result};
use crate::shape::TableInfo;
use crate::storage::{MappedRead, OpenFiles, ReadFile, Storage};
use crate::types::codec::{Decoded, Malformed};
use crate::types::{CellRef, Fragments, RangeTombstone, SeqNo, Sketch};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, OnceLock};

pub(crate) struct Sstable {
    pub(super) path: PathBuf,
    pub(super) file: Arc<dyn ReadFile>,
    /// The file's mapping, if the SSTable is read through one.
    pub(super) map: Option<Arc<dyn MappedRead>>,
    info: Arc<TableInfo>,
    pub(super) cache: Arc<BlockCache>,
    cache_id: u64,
    pub(super) top: TopIndex,
    /// Pinned index and filter of each partition, as far as the budget allows.
    kept: Box<[PinnedIndex]>,
    pub(super) footer: Footer,
    fragments: Fragments,
    properties: Properties,
    /// Marks of the cells that were read lately.
    pub(super) warmth: Warmth,
    /// Seek misses: reads that found nothing decisive here. They only guide decisions, so a relaxed counter
    /// will do.
    looks: Counter,
    /// The WAL files with the values that are not in this file.
    pub(super) logs: Logs,
}

#[derive(Default)]
pub(crate) struct Access<'f> {
    pub(crate) through: Through,
    /// The set of files that limits how many are open; without it the file stays open.
    pub(crate) files: Option<&'f Arc<OpenFiles>>,
    /// The blocks that were put into the cache while the file was written.
    pub(crate) filled: Option<&'f mut Filled>,
    /// The place of the WAL files with its values, if not beside it.
    pub(crate) logs: Option<(&'f dyn Storage, &'f Path)>,
    pub(crate) wrap: Option<&'f WrapFile<'f>>,
}

/// How the bytes of an SSTable are read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Through {
    #[default]
    PageCache,
    /// Past the page cache, so that the block cache is the only one.
    Device,
    /// From a mapping where blocks are uncompressed, else through the page cache.
    Mapping,
}

pub(crate) type WrapFile<'f> = dyn Fn(Arc<dyn ReadFile>) -> Arc<dyn ReadFile> + 'f;

/// The number of compactions, one after another without a read, that pass on a pinned index or filter.
pub(super) const KEPT_HEAT: u8 = 3;

/// The index and filter of a partition that an open SSTable pins, so that a read need not look them up in the
/// cache.
#[derive(Default)]
struct PinnedIndex {
    index: OnceLock<Arc<Block>>,
    filter: OnceLock<Arc<Filter>>,
    /// The number of compactions that still pass them on if nobody reads them.
    heat: AtomicU8,
}

impl PinnedIndex {
    #[inline]
    fn note_read(&self) {
        if self.heat.load(Ordering::Relaxed) != KEPT_HEAT {
            self.heat.store(KEPT_HEAT, Ordering::Relaxed);
        }
    }

    fn bytes(&self) -> u64 {
        let index = self.index.get().map_or(0, |block| block.memory_bytes());
        let filter = self.filter.get().map_or(0, |filter| filter.memory_bytes());
        (index + filter) as u64
    }
}

impl Drop for Sstable {
    fn drop(&mut self) {
        self.cache.count_table(self.memory_bytes() as u64, false);
        self.cache.let_go(self.kept.iter().map(PinnedIndex::bytes).sum());
    }
}

/// A block that the SSTable pins, or one from the cache.
pub(super) enum BlockRef<'a, T> {
    Pinned(&'a T),
    Cached(Arc<T>),
}

impl<T> std::ops::Deref for BlockRef<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        match self {
            BlockRef::Pinned(block) => block,
            BlockRef::Cached(block) => block,
        }
    }
}

impl std::fmt::Debug for Sstable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Table({})", self.path.display())
    }
}

impl Sstable {
    /// Opens the SSTable that the manifest describes as `info`; anything else under that name is corruption.
    pub(crate) fn open(
        storage: &Arc<dyn Storage>,
        path: &Path,
        info: Arc<TableInfo>,
        cache: &Arc<BlockCache>,
    ) -> Result<Arc<Self>> {
        Self::open_with(storage, path, info, cache, Access::default())
    }

    /// Opens the SSTable as `open` does, in the way that `access` describes.
    pub(crate) fn open_with(
        storage: &Arc<dyn Storage>,
        path: &Path,
        info: Arc<TableInfo>,
        cache: &Arc<BlockCache>,
        access: Access<'_>,
    ) -> Result<Arc<Self>> {
        let read = || {
            let opened = Opened::read(&**storage, path, access.through, access.files, info.bytes)?;
            opened.compare(path, &info)?;
            Ok(opened)
        };
        let mut opened = read().or_else(|e: Error| match e.kind() {
            // A disk cache may have another file that once had this name.
            ErrorKind::Corruption if storage.forget(path) => read(),
            _ => Err(e),
        })?;
        // A wrapped file is read elsewhere for now, so it is not mapped.
        if access.through == Through::Mapping && access.wrap.is_none() {
            opened.map = opened.file.mapped();
        }
        if let Some(wrap) = access.wrap {
            opened.file = wrap(opened.file);
        }
        let logs = access.logs.unwrap_or_else(|| beside(&**storage, path));
        opened.table(logs, path, info, cache, access.filled)
    }

    /// Opens an unknown SSTable; its info comes from the file.
    pub(crate) fn open_unknown(
        storage: &Arc<dyn Storage>,
        path: &Path,
        cache: &Arc<BlockCache>,
    ) -> Result<Arc<Self>> {
        let opened = Opened::read(&**storage, path, Through::PageCache, None, 0)?;
        let info = Arc::new(opened.info());
        opened.table(beside(&**storage, path), path, info, cache, None)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The SSTable's description, as given to `open`.
    pub(crate) fn info(&self) -> &Arc<TableInfo> {
        &self.info
    }

    pub(crate) fn properties(&self) -> &Properties {
        &self.properties
    }

    /// The range tombstones; those of an ingested SSTable have the sequence number of its ingestion.
    pub(crate) fn fragments(&self) -> &Fragments {
        &self.fragments
    }

    /// Memory of the open SSTable outside the cache.
    pub(crate) fn memory_bytes(&self) -> usize {
        let covers: usize =
            self.fragments.iter().map(|f| f.range.start.len() + 24 * f.covers.len() + 64).sum();
        size_of::<Self>() + self.top.memory_bytes() + covers
    }

    /// The sketch over its distinct keys, read from the file.
    pub(crate) fn sketch(&self) -> Result<Sketch> {
        let handle = self.footer.sketch;
        let (bytes, _) = self.read(BlockKind::Sketch, handle)?;
        self.check(handle.offset, Sketch::from_bytes(&bytes))
    }

    /// Counts a seek miss: a reader searched here without finding a decisive cell.
    pub(crate) fn note_look(&self) {
        self.looks.0.fetch_add(1, Ordering::Relaxed);
    }

    /// The number of seek misses since the SSTable was opened.
    pub(crate) fn looks(&self) -> u64 {
        self.looks.0.load(Ordering::Relaxed)
    }

    /// The effective sequence number of a cell of this SSTable.
    #[inline]
    pub(super) fn seq(&self, stored: SeqNo) -> SeqNo {
        self.info.ingested_at.unwrap_or(stored)
    }

    /// Fetches from the WAL the value of a cell of the block at `offset` that has a reference.
    pub(super) fn fetch(
        &self,
        offset: u64,
        cell: &CellRef<'_>,
        images: Option<&mut Images>,
        into: &mut Fetched,
    ) -> Result<()> {
        self.check(offset, self.logs.fetch(cell, images, into)?)
    }

    /// Adds file and offset to a decoder's error.
    #[inline]
    pub(super) fn check<T>(&self, offset: u64, decoded: Decoded<T>) -> Result<T> {
        decoded.map_err(|e| self.bad(offset, e.0))
    }

    #[cold]
    pub(super) fn bad(&self, offset: u64, message: impl Into<String>) -> Error {
        Error::corruption(&self.path, offset, message)
    }

    /// A block's payload from the file.
    pub(super) fn read(&self, kind: BlockKind, handle: Handle) -> Result<(Vec<u8>, Codec)> {
        read_block(&*self.file, &self.path, self.footer.identity, kind, handle)
    }

    pub(super) fn touch_block(&self, handle: Handle) {
        if self.cache.filling() == Filling::Warm {
            self.warmth.touch_all(handle.offset..handle.end(), self.cache.period());
        }
    }

    /// Whether the block is in the cache, if compactions fill it by that.
    pub(super) fn holds_for_compaction(&self, handle: Handle) -> bool {
        self.cache.filling() == Filling::Warm && self.cache.holds_data(self.key_of(handle))
    }

    /// Whether the cell at that position in a block was read lately.
    pub(super) fn is_warm(&self, handle: Handle, at: usize) -> bool {
        self.warmth.is_warm(handle.place(at), self.cache.period())
    }

    /// Notes that the cell at that position in a block was read in its input, in the last period.
    pub(super) fn note_warm(&self, handle: Handle, at: usize) {
        self.warmth.touch(handle.place(at), self.cache.period().saturating_sub(1));
    }

    /// The number of compactions that still pass on a partition's index and filter; 0 if neither is pinned.
    pub(super) fn kept_heat(&self, number: usize) -> u8 {
        let kept = &self.kept[number];
        let is_kept = kept.index.get().is_some() || kept.filter.get().is_some();
        if is_kept { kept.heat.load(Ordering::Relaxed) } else { 0 }
    }

    /// A partition's index, if it is in memory.
    pub(super) fn index_at_hand(&self, number: usize) -> Option<Arc<Block>> {
        let cached = || self.cache.peek_index(self.key_of(self.top.partitions()[number].index));
        self.kept[number].index.get().cloned().or_else(cached)
    }

    /// Takes over the marks and decoded blocks of the SSTable from when it was written.
    fn take_filled(&self, filled: &mut Filled) {
        let period = self.cache.period().saturating_sub(1);
        std::mem::take(&mut filled.warm).into_iter().for_each(|place| self.warmth.touch(place, period));
        for one in std::mem::take(&mut filled.partitions) {
            // There is one of `kept` for each partition.
            let Some(partition) = self.top.partitions().get(one.number) else { continue };
            self.kept[one.number].heat.store(one.heat, Ordering::Relaxed);
            self.hold_index(one.number, partition.index, one.index);
            if let (Some(handle), Some(filter)) = (partition.filter, one.filter) {
                self.hold_filter(one.number, handle, filter);
            }
        }
    }

    pub(super) fn key_of(&self, handle: Handle) -> BlockKey {
        BlockKey { table: self.cache_id, offset: handle.offset }
    }

    #[inline]
    pub(super) fn filter(&self, partition: usize, handle: Handle) -> Result<BlockRef<'_, Filter>> {
        let kept = &self.kept[partition];
        kept.note_read();
        match kept.filter.get() {
            Some(filter) => Ok(BlockRef::Pinned(filter)),
            None => self.unkept_filter(partition, handle).map(BlockRef::Cached),
        }
    }

    /// Whether a read would find that filter in memory.
    pub(super) fn has_filter(&self, partition: usize, handle: Handle) -> bool {
        self.kept[partition].filter.get().is_some() || self.cache.holds_meta(self.key_of(handle))
    }

    /// Puts a filter into memory for readers to find.
    pub(super) fn hold_filter(&self, partition: usize, handle: Handle, filter: Arc<Filter>) {
        if !self.keep(&self.kept[partition].filter, &filter, filter.memory_bytes()) {
            self.cache.insert_filter(self.key_of(handle), filter);
        }
    }

    fn unkept_filter(&self, partition: usize, handle: Handle) -> Result<Arc<Filter>> {
        if let Some(filter) = self.cache.filter(self.key_of(handle)) {
            return Ok(filter);
        }
        let filter = Arc::new(self.uncached_filter(handle)?);
        self.hold_filter(partition, handle, Arc::clone(&filter));
        Ok(filter)
    }

    #[inline]
    pub(super) fn index(&self, number: usize, partition: &Partition) -> Result<BlockRef<'_, Block>> {
        let kept = &self.kept[number];
        kept.note_read();
        match kept.index.get() {
            Some(block) => Ok(BlockRef::Pinned(block)),
            None => self.unkept_index(number, partition).map(BlockRef::Cached),
        }
    }

    fn unkept_index(&self, number: usize, partition: &Partition) -> Result<Arc<Block>> {
        let handle = partition.index;
        if let Some(block) = self.cache.index(self.key_of(handle)) {
            return Ok(block);
        }
        let block = self.uncached_index(partition)?;
        self.hold_index(number, handle, Arc::clone(&block));
        Ok(block)
    }

    /// Puts an index partition into memory for readers to find.
    fn hold_index(&self, number: usize, handle: Handle, block: Arc<Block>) {
        if !self.keep(&self.kept[number].index, &block, block.memory_bytes()) {
            self.cache.insert_index(self.key_of(handle), block);
        }
    }

    /// Puts an index partition into memory, if it is not there already, and sets its `heat`: the number of
    /// compactions that pass it on.
    pub(super) fn hold_warm_index(&self, number: usize, handle: Handle, block: Arc<Block>, heat: u8) {
        self.kept[number].heat.store(heat, Ordering::Relaxed);
        if self.index_at_hand(number).is_none() {
            self.hold_index(number, handle, block);
        }
    }

    /// Pins the block, if the budget allows it.
    fn keep<T>(&self, slot: &OnceLock<Arc<T>>, block: &Arc<T>, bytes: usize) -> bool {
        if !self.cache.may_keep(bytes as u64) {
            return false;
        }
        if slot.set(Arc::clone(block)).is_err() {
            // Another reader was first.
            self.cache.let_go(bytes as u64);
        }
        true
    }

    /// Pins the indices and filters that were read with the end of the file, as far as the budget allows.
    fn keep_from(&self, tail: &Tail) {
        let read = |kind, handle: Handle| {
            let block = || read_block(tail, &self.path, self.footer.identity, kind, handle).ok();
            tail.has(handle.offset).then(block)?.map(|(bytes, _)| bytes)
        };
        // Damage is reported when the block is needed.
        for (kept, partition) in self.kept.iter().zip(self.top.partitions()) {
            if kept.index.get().is_none() {
                let index = read(BlockKind::Index, partition.index).and_then(|bytes| Block::new(bytes).ok());
                let Some(index) = index.map(Arc::new) else { continue };
                if !self.keep(&kept.index, &index, index.memory_bytes()) {
                    return;
                }
            }
            if let (None, Some(handle)) = (kept.filter.get(), partition.filter) {
                let filter = read(BlockKind::Filter, handle).and_then(|bytes| Filter::new(bytes).ok());
                let Some(filter) = filter.map(Arc::new) else { continue };
                if !self.keep(&kept.filter, &filter, filter.memory_bytes()) {
                    return;
                }
            }
        }
    }

    pub(super) fn uncached_index(&self, partition: &Partition) -> Result<Arc<Block>> {
        let (bytes, _) = self.read(BlockKind::Index, partition.index)?;
        Ok(Arc::new(self.check(partition.index.offset, Block::new(bytes))?))
    }

    /// An index partition; it is put into the cache only with `fill`.
    pub(super) fn index_for(&self, number: usize, through_cache: bool, fill: bool) -> Result<Arc<Block>> {
        let partition = &self.top.partitions()[number];
        if fill {
            self.kept[number].note_read();
        }
        if let Some(block) = self.kept[number].index.get() {
            return Ok(Arc::clone(block));
        }
        if through_cache && fill {
            return self.unkept_index(number, partition);
        }
        let cached = through_cache.then(|| self.cache.index(self.key_of(partition.index))).flatten();
        cached.map_or_else(|| self.uncached_index(partition), Ok)
    }

    pub(super) fn uncached_filter(&self, handle: Handle) -> Result<Filter> {
        let (bytes, _) = self.read(BlockKind::Filter, handle)?;
        self.check(handle.offset, Filter::new(bytes))
    }

    pub(super) fn cached_data(&self, handle: Handle) -> Option<Arc<Block>> {
        self.cache.data(self.key_of(handle))
    }

    pub(super) fn cache_data(&self, handle: Handle, block: &Arc<Block>) {
        self.cache.insert_data(self.key_of(handle), Arc::clone(block));
    }
}

/// The place of WAL files beside an SSTable.
fn beside<'a>(storage: &'a dyn Storage, path: &'a Path) -> (&'a dyn Storage, &'a Path) {
    (storage, path.parent().unwrap_or(Path::new("")))
}

/// The contents of a file's end, before it becomes a `Sstable`.
struct Opened {
    file: Arc<dyn ReadFile>,
    map: Option<Arc<dyn MappedRead>>,
    /// The file's last bytes, if they were read together.
    tail: Option<Tail>,
    footer: Footer,
    top: TopIndex,
    tombstones: Vec<RangeTombstone>,
    properties: Properties,
}

impl Opened {
    /// Reads footer, index and properties of an SSTable of about that size.
    fn read(
        storage: &dyn Storage,
        path: &Path,
        through: Through,
        files: Option<&Arc<OpenFiles>>,
        about: u64,
    ) -> Result<Self> {
        let direct = through == Through::Device;
        let file = match files {
            Some(files) => files.open(path, direct),
            None if direct => storage.open_direct(path),
            None => storage.open(path),
        };
        let file = file.map_err(|e| Error::io("open table", path, e))?;
        let measuring = |e| Error::io("measure table", path, e);
        let tail = Tail::read(&file, about).map_err(measuring)?;
        let from = tail.as_ref().map_or(&*file, |tail| tail as &dyn ReadFile);
        let len = from.len().map_err(measuring)?;
        if len < (HEADER_BYTES + FOOTER_BYTES) as u64 {
            return Err(Error::corruption(path, 0, format!("file of {len} bytes is too short for a table")));
        }
        let header = match &tail {
            Some(_) => None,
            None => {
                let mut header = [0; HEADER_BYTES];
                read_at(from, path, &mut header, 0)?;
                Some(Header::decode(path, &header)?)
            }
        };
        let mut footer = [0; FOOTER_BYTES];
        let footer_at = len - FOOTER_BYTES as u64;
        read_at(from, path, &mut footer, footer_at)?;
        let footer = Footer::decode(path, &footer, len)?;
        if let Some(header) = header
            && (header.id, header.identity) != (footer.id, footer.identity)
        {
            let message = format!(
                "footer is of table {} ({:016x}), header of {} ({:016x})",
                footer.id, footer.identity, header.id, header.identity
            );
            return Err(Error::corruption(path, footer_at, message));
        }
        let block = |kind, handle: Handle| Ok(read_block(from, path, footer.identity, kind, handle)?.0);
        let bad = |at: u64| move |e: Malformed| Error::corruption(path, at, e.0);
        let properties = Properties::decode(&block(BlockKind::Properties, footer.properties)?)
            .map_err(bad(footer.properties.offset))?;
        let tombstones = tombstones::decode(&block(BlockKind::Tombstones, footer.tombstones)?)
            .map_err(bad(footer.tombstones.offset))?;
        let top = Block::new(block(BlockKind::Top, footer.top)?)
            .and_then(|block| TopIndex::new(block, footer_at))
            .map_err(bad(footer.top.offset))?;
        let (found, expected) = (tombstones.len() as u64, properties.range_tombstones);
        if found != expected {
            let message = format!("found {found} range tombstones, expected {expected}");
            return Err(Error::corruption(path, footer.tombstones.offset, message));
        }
        Ok(Self { file, map: None, tail, footer, top, tombstones, properties })
    }

    fn info(&self) -> TableInfo {
        self.properties.info(self.footer.id, self.footer.identity, self.footer.file_bytes)
    }

    /// Compares the file with the manifest's description of the SSTable. An attached or ingested SSTable may
    /// have its name from another database; its identity shows which file it is. The cells of an ingested one
    /// were numbered by another database.
    fn compare(&self, path: &Path, expected: &TableInfo) -> Result<()> {
        let mut found = self.info();
        found.id = expected.id;
        if expected.ingested_at.is_some() {
            found.seqs = expected.seqs;
        }
        (found.ingested_at, found.clip) = (expected.ingested_at, expected.clip.clone());
        // For an SSTable that was split, the manifest describes a part.
        if expected.above.is_some() && found.range.covers(&expected.range) {
            (found.above, found.range) = (expected.above, expected.range.clone());
        }
        if found == *expected {
            return Ok(());
        }
        let message = if found.identity != expected.identity {
            format!("table has identity {:016x}, expected {:016x}", found.identity, expected.identity)
        } else {
            format!("table says {found:?}, expected {expected:?}")
        };
        Err(Error::corruption(path, 0, message))
    }

    fn table(
        self,
        (storage, dir): (&dyn Storage, &Path),
        path: &Path,
        info: Arc<TableInfo>,
        cache: &Arc<BlockCache>,
        filled: Option<&mut Filled>,
    ) -> Result<Arc<Sstable>> {
        self.properties
            .compression
            .check_supported()
            .map_err(|e| Error::new(e.kind(), format!("{}: {e}", path.display())))?;
        let logs = Logs::open(storage, dir, self.properties.log_database, &self.properties.logs)?;
        let mut tombstones = self.tombstones;
        if let Some(seq) = info.ingested_at {
            tombstones.iter_mut().for_each(|t| t.seq = seq);
        }
        let cache_id = filled.as_ref().map_or_else(|| cache.next_table_id(), |filled| filled.table);
        let data_end = self.top.data_end().unwrap_or(0);
        let table = Sstable {
            path: path.to_path_buf(),
            file: self.file,
            map: self.map,
            info,
            cache: Arc::clone(cache),
            cache_id,
            warmth: Warmth::new(data_end, self.properties.block_bytes, cache),
            looks: Counter::default(),
            kept: self.top.partitions().iter().map(|_| PinnedIndex::default()).collect(),
            top: self.top,
            footer: self.footer,
            fragments: Fragments::new(tombstones),
            properties: self.properties,
            logs,
        };
        if let Some(filled) = filled {
            table.take_filled(filled);
        }
        if let Some(tail) = self.tail {
            table.keep_from(&tail);
        }
        cache.count_table(table.memory_bytes() as u64, true);
        Ok(Arc::new(table))
    }
}
