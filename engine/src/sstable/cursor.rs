//! An SSTable as a sorted stream, in both directions.
//!
//! The cursor has a position in an index partition and in a data block, each a `BlockCursor` that owns its
//! block, so moving allocates nothing. Forward, it reads ahead: after a seek one block, then, while it goes
//! from block to block, twice as much each time up to the limit, so that a short scan wastes little and a
//! compaction reads in large pieces.

use super::block_cursor::BlockCursor;
use super::compression::Codec;
use super::frame::{BlockKind, Handle, open_block, read_at};
use super::index::BlockEntry;
use super::pin::pin_fetched;
use super::reader::Sstable;
use super::reference::{Fetched, Images};
use crate::cache::block::Block;
use crate::error::{ErrorKind, Result};
use crate::types::codec::Decoded;
use crate::types::{CellRef, Cursor, Pinned};
use std::sync::Arc;

/// First size of a read-ahead.
const READ_AHEAD_MIN: usize = 16 << 10;
/// First size of a read-ahead where each read is a request, as a part of the most bytes of one request.
const FAR_FIRST_PART: usize = 8;

#[derive(Clone, Copy, Debug)]
pub(crate) struct CursorOptions {
    /// Blocks read from the file enter the cache.
    pub(crate) fill_cache: bool,
    /// The most bytes of one read-ahead; 0 reads block by block.
    pub(crate) read_ahead_bytes: usize,
    /// Blocks are looked up in the cache.
    pub(crate) through_cache: bool,
}

impl Default for CursorOptions {
    /// The options of a reader: through the cache, filling it, reading ahead a little.
    fn default() -> Self {
        Self { fill_cache: true, read_ahead_bytes: 128 << 10, through_cache: true }
    }
}

/// A cursor over an SSTable's cells; its range tombstones are `Sstable::fragments`.
pub(crate) struct TableCursor {
    table: Arc<Sstable>,
    options: CursorOptions,
    /// The partition of `index`.
    partition: usize,
    index: BlockCursor,
    data: BlockCursor,
    /// The block of `data`.
    handle: Handle,
    window: Window,
    /// The key below which blocks are not read, if all their keys lie below it.
    floor: Vec<u8>,
    /// The current cell's value, if it is in the WAL.
    fetched: Option<Arc<Fetched>>,
    /// For a compaction: WAL files that were read whole.
    images: Option<Images>,
    /// For a compaction: whether the current block was in the cache when it was entered.
    is_cached: bool,
    /// Whether the current block is in the SSTable's mapping.
    is_mapped: bool,
}

#[derive(Default)]
struct Window {
    offset: u64,
    bytes: Vec<u8>,
    /// Bytes of the next read-ahead; 0 after a seek.
    ahead: usize,
}

impl Sstable {
    /// A new cursor, not valid until a seek.
    pub(crate) fn cursor(self: &Arc<Self>, options: CursorOptions) -> TableCursor {
        TableCursor {
            table: Arc::clone(self),
            options,
            partition: 0,
            index: BlockCursor::default(),
            data: BlockCursor::default(),
            handle: Handle::default(),
            window: Window::default(),
            floor: Vec::new(),
            fetched: None,
            images: (!options.through_cache && !self.logs.is_empty())
                .then(|| Images::new(&self.logs, &self.cache)),
            is_cached: false,
            is_mapped: false,
        }
    }
}

impl TableCursor {
    /// From now on, blocks whose keys all lie below `floor` (the SSTable's clip) are not read, because their
    /// bytes may be gone. Cells below it in a block with keys on both sides are still returned.
    pub(crate) fn set_floor(&mut self, floor: &[u8]) {
        self.floor.clear();
        self.floor.extend_from_slice(floor);
    }

    /// Counts a seek as a seek miss: a merged read seeks in each run.
    pub(crate) fn note_look(&self) {
        self.table.note_look();
    }

    /// Offset of the current data block. All blocks before it lie below the current cell (a clip there has
    /// moved about this many bytes); after the last cell, the end of the data.
    pub(crate) fn offset(&self) -> u64 {
        if self.data.valid() { self.handle.offset } else { self.table.data_end() }
    }

    /// Offset before which no reader that stays at or above `key` reads any more. A seek to the key may begin
    /// one block before the first live cell, if a separator lies above its block's last key, and a step back
    /// from that cell reads the block before it to see that it is dead: so one block before the seek's stays.
    /// The cursor is not valid afterwards.
    pub(crate) fn dead_below(&mut self, key: &[u8]) -> Result<u64> {
        let before = |cursor: &mut Self| {
            cursor.data.reset();
            if !cursor.seek_index(key)? {
                return Ok(None);
            }
            let moved = cursor.index.prev();
            if !cursor.check_index(moved)? {
                cursor.index.reset();
                let Some(partition) = cursor.partition.checked_sub(1) else { return Ok(None) };
                cursor.enter_partition(partition)?;
                let last = cursor.index.last();
                cursor.check_index(last)?;
            }
            let end = cursor.table.top.partitions()[cursor.partition].data_end;
            let entry = cursor.check_index(BlockEntry::decode(cursor.index.cell().value, end))?;
            Ok(Some(entry.handle.offset))
        };
        let found: Result<Option<u64>> = before(self);
        self.index.reset();
        Ok(found?.unwrap_or(0))
    }

    /// Fetches the current cell's value if it is in the WAL, so that the cell is complete.
    #[inline]
    fn fetch(&mut self) -> Result<()> {
        if self.data.is_reference() { self.fetch_reference() } else { Ok(()) }
    }

    /// Leaves the current block, with all state about it.
    fn leave_block(&mut self) {
        self.data.reset();
        self.is_mapped = false;
    }

    /// Checks that the bytes read from a mapped block were valid.
    #[inline]
    fn check_mapping(&self) -> Result<()> {
        if self.is_mapped { self.table.check_mapping(self.handle.offset) } else { Ok(()) }
    }

    fn fetch_reference(&mut self) -> Result<()> {
        let fetched = self.fetched.get_or_insert_default();
        if Arc::get_mut(fetched).is_none() {
            *fetched = Arc::default();
        }
        let Some(into) = Arc::get_mut(fetched) else { return Ok(()) };
        self.table.fetch(self.handle.offset, &self.data.cell(), self.images.as_mut(), into)
    }

    /// Makes one move and fetches the new cell's value; on an error the cursor is not valid.
    fn guarded(&mut self, step: impl FnOnce(&mut Self) -> Result<()>) -> Result<()> {
        let result = step(self);
        let result = self.check_mapping().and(result).and_then(|()| self.fetch());
        if result.is_err() {
            self.leave_block();
            self.index.reset();
        }
        result
    }

    /// Enters a partition's index block; false if there is no such partition.
    fn enter_partition(&mut self, i: usize) -> Result<bool> {
        if i >= self.table.top.partitions().len() {
            return Ok(false);
        }
        if !(self.partition == i && self.index.valid()) {
            let block = self.table.index_for(i, self.options.through_cache, self.options.fill_cache)?;
            self.index.set(block);
            self.partition = i;
        }
        Ok(true)
    }

    fn check_index<T>(&self, decoded: Decoded<T>) -> Result<T> {
        let offset = self.table.top.partitions().get(self.partition).map_or(0, |p| p.index.offset);
        self.table.check(offset, decoded)
    }

    fn check_data<T>(&self, decoded: Decoded<T>) -> Result<T> {
        self.table.check(self.handle.offset, decoded)
    }

    /// Enters the data block that `index` points to.
    fn enter_block(&mut self, forward: bool) -> Result<()> {
        // The move to this block was decided by bytes of the previous one.
        self.check_mapping()?;
        let end = self.table.top.partitions().get(self.partition).map_or(0, |p| p.data_end);
        let handle = self.check_index(BlockEntry::decode(self.index.cell().value, end))?.handle;
        let sequential = forward && self.data_follows(handle);
        if !sequential {
            self.window.ahead = 0;
        }
        self.handle = handle;
        let block = self.load(handle, sequential)?;
        self.data.set(block);
        Ok(())
    }

    fn data_follows(&self, handle: Handle) -> bool {
        self.handle.offset != 0 && self.handle.end() == handle.offset
    }

    fn load(&mut self, handle: Handle, sequential: bool) -> Result<Arc<Block>> {
        if self.options.through_cache {
            let mapped = self.table.mapped_data(handle);
            self.is_mapped = mapped.is_some();
            if let Some(block) = mapped {
                return Ok(block);
            }
            if self.options.fill_cache {
                self.table.touch_block(handle);
            }
            if let Some(block) = self.table.cached_data(handle) {
                return Ok(block);
            }
        } else {
            self.is_cached = self.table.holds_for_compaction(handle);
        }
        let table = &self.table;
        let (raw, _) = match self.options.read_ahead_bytes.max(table.file.request_bytes()) {
            0 => table.read(BlockKind::Data, handle)?,
            limit => self.window.block(table, handle, sequential, limit)?,
        };
        let block = table.cache.adopt(table.check(handle.offset, Block::new(raw))?);
        if self.options.fill_cache {
            table.cache_data(handle, &block);
        }
        Ok(block)
    }

    /// Moves to the first cell of the next data block (or of the first one of the next partition).
    fn next_block(&mut self) -> Result<()> {
        loop {
            let moved = self.index.next();
            let mut found = self.check_index(moved)?;
            if !found {
                self.index.reset();
                if !self.enter_partition(self.partition + 1)? {
                    self.data.reset();
                    return Ok(());
                }
                let first = self.index.first();
                found = self.check_index(first)?;
            }
            if found {
                self.enter_block(true)?;
                let first = self.data.first();
                if self.check_data(first)? {
                    return Ok(());
                }
            }
        }
    }

    /// Moves to the last cell of the data block before.
    fn prev_block(&mut self) -> Result<()> {
        loop {
            let moved = self.index.prev();
            let mut found = self.check_index(moved)?;
            if !found {
                self.index.reset();
                let Some(before) = self.partition.checked_sub(1) else {
                    self.data.reset();
                    return Ok(());
                };
                self.enter_partition(before)?;
                let last = self.index.last();
                found = self.check_index(last)?;
            }
            if found {
                if self.index.key() < self.floor.as_slice() {
                    self.data.reset();
                    return Ok(());
                }
                self.enter_block(false)?;
                let last = self.data.last();
                if self.check_data(last)? {
                    return Ok(());
                }
            }
        }
    }

    /// Moves `index` to the first block that may have keys at or after `key`; false if all keys are before
    /// it.
    fn seek_index(&mut self, key: &[u8]) -> Result<bool> {
        let found = self.table.check(self.table.footer.top.offset, self.table.top.find(key))?;
        if !self.enter_partition(found)? {
            return Ok(false);
        }
        let sought = self.index.seek(key);
        self.check_index(sought)
    }

    fn go_to_last(&mut self) -> Result<()> {
        self.index.reset();
        self.partition = self.table.top.partitions().len();
        self.prev_block()
    }
}

impl Cursor for TableCursor {
    fn seek(&mut self, key: &[u8]) -> Result<()> {
        self.guarded(|cursor| {
            cursor.leave_block();
            if !cursor.seek_index(key)? {
                return Ok(());
            }
            cursor.enter_block(false)?;
            let found = cursor.data.seek(key);
            // The separator may lie above the block's last key: then the next block begins at or after the
            // key.
            if cursor.check_data(found)? { Ok(()) } else { cursor.next_block() }
        })
    }

    fn seek_before(&mut self, key: Option<&[u8]>) -> Result<()> {
        self.guarded(|cursor| {
            cursor.leave_block();
            let found = match key {
                Some(key) => cursor.seek_index(key)?,
                None => false,
            };
            let Some(key) = key.filter(|_| found) else { return cursor.go_to_last() };
            cursor.enter_block(false)?;
            let found = cursor.data.seek_before(key);
            if cursor.check_data(found)? { Ok(()) } else { cursor.prev_block() }
        })
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        match self.data.next() {
            Ok(true) if !self.data.is_reference() => match self.check_mapping() {
                Ok(()) => Ok(()),
                Err(e) => self.guarded(|_| Err(e)),
            },
            Ok(true) => self.guarded(|_| Ok(())),
            Ok(false) => self.guarded(Self::next_block),
            Err(e) => self.guarded(|cursor| cursor.check_data(Err(e))),
        }
    }

    fn prev(&mut self) -> Result<()> {
        match self.data.prev() {
            Ok(true) => self.guarded(|_| Ok(())),
            Ok(false) => self.guarded(Self::prev_block),
            Err(e) => self.guarded(|cursor| cursor.check_data(Err(e))),
        }
    }

    #[inline]
    fn valid(&self) -> bool {
        self.data.valid()
    }

    #[inline]
    fn cell(&self) -> CellRef<'_> {
        let mut cell = self.data.cell();
        if self.data.is_reference() {
            cell.value = self.fetched.as_ref().map_or(&[], |fetched| fetched.value());
        }
        cell.seq = self.table.seq(cell.seq);
        cell
    }

    #[inline]
    fn key(&self) -> &[u8] {
        self.data.key()
    }

    fn is_warm(&self) -> bool {
        self.is_cached && self.data.place().is_some_and(|at| self.table.is_warm(self.handle, at))
    }

    #[inline]
    fn pin_value(&self, into: &mut Pinned) -> Result<()> {
        if !self.data.is_reference() {
            self.data.pin_value(into);
            return self.check_mapping();
        }
        if let Some(fetched) = &self.fetched {
            pin_fetched(fetched, into);
        }
        Ok(())
    }
}

impl Window {
    fn find(&self, handle: Handle) -> Option<&[u8]> {
        let start = usize::try_from(handle.offset.checked_sub(self.offset)?).ok()?;
        self.bytes.get(start..start.checked_add(handle.file_bytes() as usize)?)
    }

    /// The block, decoded; a sequential read also reads the following blocks.
    fn block(
        &mut self,
        table: &Sstable,
        handle: Handle,
        sequential: bool,
        limit: usize,
    ) -> Result<(Vec<u8>, Codec)> {
        if self.find(handle).is_none() {
            self.fill(table, handle, sequential, limit)?;
        }
        let bytes = self.find(handle).unwrap_or(&[]);
        let opened = open_block(&table.path, bytes, table.footer.identity, BlockKind::Data, handle);
        opened.or_else(|first| match first.kind() {
            ErrorKind::Corruption => table.read(BlockKind::Data, handle).map_err(|_| first),
            _ => Err(first),
        })
    }

    /// Reads the block and, in a sequential read, those that follow.
    fn fill(&mut self, table: &Sstable, handle: Handle, sequential: bool, limit: usize) -> Result<()> {
        // From an object store, larger pieces are read, even if read-ahead is left to the operating system.
        let far = table.file.request_bytes();
        let limit = limit.max(far);
        if sequential {
            self.ahead = (self.ahead * 2).max(READ_AHEAD_MIN).max(far / FAR_FIRST_PART).min(limit);
        }
        let wanted = handle.file_bytes().max(self.ahead as u64);
        let len = wanted.min(table.data_end().saturating_sub(handle.offset)).max(handle.file_bytes());
        self.offset = handle.offset;
        self.bytes.clear();
        // Frees the memory of a block with a huge value.
        self.bytes.shrink_to(limit.max(4 * READ_AHEAD_MIN));
        self.bytes.resize(len as usize, 0);
        let read = read_at(&*table.file, &table.path, &mut self.bytes, handle.offset);
        if read.is_err() {
            self.bytes.clear();
        }
        read
    }
}
