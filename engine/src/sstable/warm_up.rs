//! Warm-up: blocks of a compaction's outputs that another process wrote, or that were not written through the
//! cache, enter it before the step is published (OFF-4).
//!
//! Either all blocks in order of keys, or the *wanted* ones ([`Wanted`]): those whose predecessors were
//! cached. What the cache has of these is gathered before: keys that were read lately, and the first key of
//! each other cached block. An output block with one of the former comes first; one with one of the latter
//! comes afterwards, in order of keys, as long as the cache has room that nothing else takes.
//!
//! A [`WarmUp`] names blocks in pieces and takes their bytes as they are in the file. Whether these come from
//! a file or from the memory of the process that wrote it is up to the caller; each block is verified like
//! one that is read.

use super::block_cursor::BlockCursor;
use super::fill::Replaced;
use super::frame::{BlockKind, Handle, open_block, read_at};
use super::index::BlockEntry;
use super::reader::{KEPT_HEAT, Sstable};
use crate::cache::{Block, Filter};
use crate::error::Result;
use std::ops::Range;
use std::sync::Arc;

/// Bytes of the blocks in one piece, about.
const PIECE_BYTES: u64 = 128 << 10;
/// The most blocks considered for one piece: a worker does other work in between.
const PIECE_LOOKS: usize = 1 << 10;

/// What the cache has of the inputs of a step.
#[derive(Default)]
pub(crate) struct Wanted {
    /// Keys that were read lately.
    warm: Keys,
    /// First keys of the other blocks that are in the cache.
    cached: Keys,
}

/// Keys in one buffer.
#[derive(Default)]
struct Keys {
    bytes: Vec<u8>,
    at: Vec<Range<usize>>,
}

impl Keys {
    fn push(&mut self, key: &[u8]) {
        let begin = self.bytes.len();
        self.bytes.extend_from_slice(key);
        self.at.push(begin..self.bytes.len());
    }

    fn get(&self, n: usize) -> Option<&[u8]> {
        self.at.get(n).map(|range| &self.bytes[range.clone()])
    }

    fn sort(&mut self) {
        let bytes = &self.bytes;
        self.at.sort_unstable_by(|a, b| bytes[a.clone()].cmp(&bytes[b.clone()]));
        self.at.dedup_by(|a, b| bytes[a.clone()] == bytes[b.clone()]);
    }

    /// The numbers of the keys, from number `from` on, that are at or before `last`.
    fn upto(&self, from: usize, last: &[u8]) -> Range<usize> {
        let end = self.at[from..].iter().take_while(|range| &self.bytes[(*range).clone()] <= last).count();
        from..from + end
    }
}

impl Wanted {
    /// Sorts the keys, once all are gathered.
    pub(crate) fn sort(&mut self) {
        self.warm.sort();
        self.cached.sort();
    }

    fn keys(&self, pass: Pass) -> &Keys {
        if pass == Pass::Cached { &self.cached } else { &self.warm }
    }
}

/// Gathers which keys of an input SSTable are in the cache.
pub(crate) struct Gather {
    table: Arc<Sstable>,
    /// The key from which on keys are gathered.
    from: Vec<u8>,
    partition: usize,
}

impl Gather {
    pub(crate) fn new(table: &Arc<Sstable>, from: &[u8]) -> Self {
        // A damaged index gives no keys; readers report it.
        let partition = table.top.find(from).unwrap_or(usize::MAX);
        Self { table: Arc::clone(table), from: from.to_vec(), partition }
    }

    /// Gathers the keys below `upto` of one more partition; returns whether there are more. Reads nothing: if
    /// an index is not in memory, its blocks are hardly in the cache.
    pub(crate) fn advance(&mut self, upto: Option<&[u8]>, wanted: &mut Wanted) -> bool {
        let (table, from) = (&self.table, self.from.as_slice());
        let Some(partition) = table.top.partitions().get(self.partition) else { return false };
        let number = self.partition;
        self.partition += 1;
        let Some(index) = table.index_at_hand(number) else { return true };
        let (mut blocks, mut cells) = (BlockCursor::default(), BlockCursor::default());
        blocks.set(index);
        let mut at = blocks.seek(from);
        while at == Ok(true) {
            let entry = blocks.cell();
            if let Ok(BlockEntry { handle, .. }) = BlockEntry::decode(entry.value, partition.data_end)
                && let Some(block) = table.cache.peek_data(table.key_of(handle))
            {
                cells.set(block);
                table.gather_block(handle, &mut cells, from, upto, wanted);
            }
            if upto.is_some_and(|upto| entry.key >= upto) {
                return false;
            }
            at = blocks.next();
        }
        true
    }
}

impl Sstable {
    fn gather_block(
        &self,
        handle: Handle,
        cells: &mut BlockCursor,
        from: &[u8],
        upto: Option<&[u8]>,
        wanted: &mut Wanted,
    ) {
        let (mut first, mut is_warm) = (None, false);
        let mut at = cells.seek(from);
        while at == Ok(true) {
            let key = cells.key();
            if upto.is_some_and(|upto| key >= upto) {
                break;
            }
            if cells.place().is_some_and(|place| self.is_warm(handle, place)) {
                wanted.warm.push(key);
                is_warm = true;
            }
            if first.is_none() {
                first = Some(key.to_vec());
            }
            at = cells.next();
        }
        if let Some(first) = first.filter(|_| !is_warm) {
            wanted.cached.push(&first);
        }
    }

    pub(crate) fn partitions(&self) -> usize {
        self.top.partitions().len()
    }

    /// Bytes of the data blocks of a partition, and how many of them are in the cache.
    pub(crate) fn cached_bytes(&self, number: usize) -> (u64, u64) {
        let Some(partition) = self.top.partitions().get(number) else { return (0, 0) };
        let begin = number.checked_sub(1).map_or(0, |before| self.top.partitions()[before].data_end);
        let (all, mut cached) = (partition.data_end.saturating_sub(begin), 0);
        let Some(index) = self.index_at_hand(number) else { return (all, 0) };
        let mut blocks = BlockCursor::default();
        blocks.set(index);
        let mut at = blocks.first();
        while at == Ok(true) {
            if let Ok(entry) = BlockEntry::decode(blocks.cell().value, partition.data_end)
                && self.cache.holds_data(self.key_of(entry.handle))
            {
                cached += entry.handle.file_bytes();
            }
            at = blocks.next();
        }
        (all, cached)
    }
}

pub(crate) enum Choice {
    All,
    /// The wanted blocks; and the replaced SSTables, because the outputs' indices and filters are pinned
    /// where theirs were.
    Wanted(Wanted, Replaced),
}

impl Choice {
    fn first_pass(&self) -> Pass {
        if matches!(self, Self::All) { Pass::All } else { Pass::Warm }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Pass {
    All,
    Warm,
    Cached,
}

pub(crate) struct WarmUp {
    tables: Vec<Arc<Sstable>>,
    choice: Choice,
    pass: Pass,
    /// The number of the present SSTable, and of its present partition.
    table: usize,
    partition: usize,
    /// A cursor in that partition's index; `None` before it.
    blocks: Option<BlockCursor>,
    /// Whether that partition's index and filter are pinned already.
    is_kept: bool,
    /// The number of the next wanted key.
    next_key: usize,
    /// For each SSTable, whether it is skipped from now on.
    skipped: Vec<bool>,
    block_max: u64,
    /// The blocks that entered the cache: the number of the SSTable, and the offset.
    put: Vec<(usize, u64)>,
}

/// Blocks of an SSTable that are fetched together.
pub(crate) struct Piece {
    table: usize,
    blocks: Vec<(Handle, What)>,
    /// Bytes of all blocks, as they are fetched.
    pub(crate) bytes: u64,
}

enum What {
    /// A data block, with the numbers of its keys that were read lately.
    Data(Range<usize>),
    Filter(usize),
}

impl Piece {
    /// The byte ranges of these blocks in the file; adjacent ones are joined.
    pub(crate) fn parts(&self) -> Vec<Range<u64>> {
        let mut parts: Vec<Range<u64>> = Vec::new();
        for (handle, _) in &self.blocks {
            let (begin, end) = (handle.offset, handle.end());
            match parts.last_mut() {
                Some(last) if last.end == begin => last.end = end,
                _ => parts.push(begin..end),
            }
        }
        parts
    }
}

impl WarmUp {
    /// A warm-up of these SSTables, which are in order of keys. Blocks of more than `block_max` bytes in the
    /// file are left to readers.
    pub(crate) fn new(tables: Vec<Arc<Sstable>>, choice: Choice, block_max: u64) -> Self {
        let skipped = vec![false; tables.len()];
        Self {
            tables,
            pass: choice.first_pass(),
            choice,
            table: 0,
            partition: 0,
            blocks: None,
            is_kept: false,
            next_key: 0,
            skipped,
            block_max,
            put: Vec::new(),
        }
    }

    /// Sets the choice of blocks, before the first piece.
    pub(crate) fn choose(&mut self, choice: Choice) {
        (self.pass, self.choice) = (choice.first_pass(), choice);
    }

    /// The SSTable with the blocks of a piece.
    pub(crate) fn table(&self, piece: &Piece) -> &Arc<Sstable> {
        &self.tables[piece.table]
    }

    /// The next piece, perhaps without blocks; `None` after the last.
    pub(crate) fn next(&mut self) -> Result<Option<Piece>> {
        let mut piece = Piece { table: self.table, blocks: Vec::new(), bytes: 0 };
        let Some(table) = self.tables.get(self.table).cloned() else {
            return Ok(self.next_pass().then_some(piece));
        };
        if self.pass == Pass::Cached && !table.cache.has_room() {
            self.table = self.tables.len();
            return Ok(Some(piece));
        }
        let (number, at) = (self.partition, table.top.partitions().get(self.partition));
        let Some(partition) = at.filter(|_| !self.skipped[self.table]) else {
            self.blocks = None;
            (self.table, self.partition) = (self.table + 1, 0);
            return Ok(Some(piece));
        };
        let in_index = |moved| table.check(partition.index.offset, moved);
        let mut there = self.blocks.is_some();
        if !there {
            let blocks = self.blocks.insert(BlockCursor::default());
            blocks.set(table.index_for(number, true, false)?);
            there = in_index(blocks.first())?;
            self.is_kept = false;
        }
        let mut blocks = self.blocks.take().unwrap_or_default();
        let mut looks = 0;
        while there && piece.bytes < PIECE_BYTES && looks < PIECE_LOOKS {
            looks += 1;
            let entry = blocks.cell();
            let handle = table
                .check(partition.index.offset, BlockEntry::decode(entry.value, partition.data_end))?
                .handle;
            if let Some(keys) =
                self.wants(&table, handle, entry.key).filter(|_| handle.file_bytes() <= self.block_max)
            {
                piece.bytes += handle.file_bytes();
                piece.blocks.push((handle, What::Data(keys)));
            }
            there = in_index(blocks.next())?;
        }
        let heat = self.heat(&table, number, !piece.blocks.is_empty());
        if !self.is_kept && heat > 0 {
            self.is_kept = true;
            if let Some(index) = blocks.in_block() {
                table.hold_warm_index(number, partition.index, Arc::clone(index), heat);
            }
            if let Some(handle) = partition.filter.filter(|handle| !table.has_filter(number, *handle)) {
                piece.bytes += handle.file_bytes();
                piece.blocks.push((handle, What::Filter(number)));
            }
        }
        match there {
            true => self.blocks = Some(blocks),
            false => self.partition += 1,
        }
        Ok(Some(piece))
    }

    /// Begins the next pass after the last SSTable; returns whether there is one.
    fn next_pass(&mut self) -> bool {
        if self.pass != Pass::Warm {
            return false;
        }
        self.pass = Pass::Cached;
        (self.table, self.partition, self.next_key) = (0, 0, 0);
        true
    }

    /// Whether the block, whose keys are at or before `last` and after the previous block, is wanted; if so,
    /// the numbers of its keys that were read lately.
    fn wants(&mut self, table: &Sstable, handle: Handle, last: &[u8]) -> Option<Range<usize>> {
        let Choice::Wanted(wanted, _) = &self.choice else { return Some(0..0) };
        let keys = wanted.keys(self.pass).upto(self.next_key, last);
        self.next_key = keys.end;
        match self.pass {
            _ if keys.is_empty() => None,
            Pass::Cached => (!table.cache.holds_data(table.key_of(handle))).then_some(0..0),
            _ => Some(keys),
        }
    }

    /// The heat of a partition's index and filter, which readers shall find decoded: of those with a block in
    /// the cache, and of those that replace pinned ones. 0 for others.
    fn heat(&self, table: &Sstable, number: usize, has_blocks: bool) -> u8 {
        let Choice::Wanted(_, replaced) = &self.choice else { return KEPT_HEAT };
        if has_blocks {
            return KEPT_HEAT;
        }
        if self.pass != Pass::Warm {
            return 0;
        }
        let high = table.top.separator(number).unwrap_or_default();
        let low = number.checked_sub(1).map_or(Ok(&table.info().range.start[..]), |n| table.top.separator(n));
        replaced.heat(low.unwrap_or_default(), high)
    }

    /// Whether the next piece belongs to another pass.
    pub(crate) fn ends_pass(&self) -> bool {
        self.table >= self.tables.len()
    }

    /// Skips the remaining blocks of that piece's SSTable.
    pub(crate) fn skip(&mut self, piece: &Piece) {
        self.skipped[piece.table] = true;
    }

    pub(crate) fn skips(&self, piece: &Piece) -> bool {
        self.skipped[piece.table]
    }

    /// Puts a piece's blocks into the cache, given the bytes of its parts one after the other; returns their
    /// number and bytes.
    pub(crate) fn put(&mut self, piece: &Piece, mut bytes: &[u8]) -> Result<(u64, u64)> {
        let table = Arc::clone(self.table(piece));
        let (mut blocks, mut filled) = (0, 0);
        for (handle, what) in &piece.blocks {
            let Some((block, rest)) = bytes.split_at_checked(handle.file_bytes() as usize) else {
                return Err(table.bad(handle.offset, "a block's bytes end too early"));
            };
            bytes = rest;
            match what {
                What::Data(keys) => {
                    filled += table.put_data(*handle, block, self.warm_keys(keys))?;
                    self.put.push((piece.table, handle.offset));
                    blocks += 1;
                }
                What::Filter(number) => table.put_filter(*number, *handle, block)?,
            }
        }
        Ok((blocks, filled))
    }

    fn warm_keys(&self, keys: &Range<usize>) -> impl Iterator<Item = &[u8]> {
        let wanted = if let Choice::Wanted(wanted, _) = &self.choice { Some(wanted) } else { None };
        keys.clone().filter_map(move |n| wanted?.warm.get(n))
    }

    pub(crate) fn read(&self, piece: &Piece) -> Result<Vec<u8>> {
        let table = self.table(piece);
        let mut bytes = vec![0; piece.bytes as usize];
        let mut left = &mut bytes[..];
        for part in piece.parts() {
            let (to, rest) = left.split_at_mut((part.end - part.start) as usize);
            read_at(&*table.file, &table.path, to, part.start)?;
            left = rest;
        }
        Ok(bytes)
    }

    /// Removes the warmed-up blocks from the cache.
    pub(crate) fn undo(&self) {
        for (table, offset) in &self.put {
            let (table, handle) = (&self.tables[*table], Handle { offset: *offset, ..Handle::default() });
            table.cache.evict_data(table.key_of(handle));
        }
    }
}

impl Sstable {
    /// Puts a data block into the cache, and marks these keys of it as read lately; returns its bytes.
    fn put_data<'k>(
        &self,
        handle: Handle,
        bytes: &[u8],
        warm: impl Iterator<Item = &'k [u8]>,
    ) -> Result<u64> {
        if self.map.is_some() && handle.stored == handle.raw {
            return Ok(0);
        }
        let (raw, _) = open_block(&self.path, bytes, self.footer.identity, BlockKind::Data, handle)?;
        let block = self.cache.adopt(self.check(handle.offset, Block::new(raw))?);
        let (memory, mut is_warm) = (block.memory_bytes() as u64, false);
        for key in warm {
            is_warm = true;
            if let Some(entry) = self.check(handle.offset, block.lower_bound(key))?
                && block.is_key(&entry, key)
            {
                self.note_warm(handle, entry.at());
            }
        }
        self.cache.fill_data(self.key_of(handle), block, is_warm);
        Ok(memory)
    }

    fn put_filter(&self, number: usize, handle: Handle, bytes: &[u8]) -> Result<()> {
        let (raw, _) = open_block(&self.path, bytes, self.footer.identity, BlockKind::Filter, handle)?;
        self.hold_filter(number, handle, Arc::new(self.check(handle.offset, Filter::new(raw))?));
        Ok(())
    }
}
