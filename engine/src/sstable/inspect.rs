//! An SSTable's inside: its blocks, and how its bytes are spread over the keys.

use super::block_cursor::BlockCursor;
use super::compression::Codec;
use super::footer::HEADER_BYTES;
use super::frame::{BlockKind, Handle};
use super::index::BlockEntry;
use super::reader::Sstable;
use crate::cache::block::Block;
use crate::error::Result;
use crate::types::KeyRange;
use std::sync::Arc;

/// A data block, described for people.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct BlockListing {
    pub(crate) offset: u64,
    /// Bytes in the file, with the head.
    pub(crate) file_bytes: u64,
    pub(crate) raw_bytes: u64,
    pub(crate) compression: Codec,
    pub(crate) first_key: Vec<u8>,
    pub(crate) cells: u64,
}

/// The progress of counting an SSTable's cells: those of all partitions before this one are counted.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct CountedTo {
    partition: usize,
    cells: u64,
}

impl Sstable {
    /// How many cells of the file lie below the key, at least and at most, by the index: those of blocks that
    /// end below it, and with them those of the block that may have keys on both sides. Goes on from the last
    /// count, so keys must not descend. Reads the index from there to the key.
    pub(crate) fn cells_below(&self, key: &[u8], from: &mut CountedTo) -> Result<(u64, u64)> {
        while let Some(partition) = self.top.partitions().get(from.partition) {
            let at = partition.index.offset;
            let mut cursor = BlockCursor::default();
            cursor.set(self.index_for(from.partition, true, false)?);
            let (mut cells, mut is_entry) = (from.cells, self.check(at, cursor.first())?);
            while is_entry {
                let (separator, entry) = self.block_entry(&cursor, at, partition.data_end)?;
                let with = cells.saturating_add(entry.cells);
                if separator.as_slice() >= key {
                    return Ok((cells, with));
                }
                cells = with;
                is_entry = self.check(at, cursor.next())?;
            }
            *from = CountedTo { partition: from.partition + 1, cells };
        }
        Ok((from.cells, from.cells))
    }

    /// The end of the last data block.
    pub(crate) fn data_end(&self) -> u64 {
        self.top.data_end().unwrap_or(HEADER_BYTES as u64)
    }

    /// Every data block in order with its separator, from the index; nothing enters the cache.
    pub(super) fn block_entries(&self) -> impl Iterator<Item = Result<(Vec<u8>, BlockEntry)>> + '_ {
        let partitions = self.top.partitions();
        let mut next = 0usize;
        let mut cursor = BlockCursor::default();
        let mut failed = false;
        std::iter::from_fn(move || {
            let mut step = || -> Result<Option<(Vec<u8>, BlockEntry)>> {
                loop {
                    let moved = if cursor.valid() { cursor.next() } else { Ok(false) };
                    let partition = |i: usize| partitions.get(i);
                    if let Some(current) = next.checked_sub(1).and_then(partition)
                        && self.check(current.index.offset, moved)?
                    {
                        return self.block_entry(&cursor, current.index.offset, current.data_end).map(Some);
                    }
                    let Some(entered) = partition(next) else { return Ok(None) };
                    cursor.set(self.index_for(next, true, false)?);
                    next += 1;
                    if self.check(entered.index.offset, cursor.first())? {
                        return self.block_entry(&cursor, entered.index.offset, entered.data_end).map(Some);
                    }
                }
            };
            if failed {
                return None;
            }
            let item = step().transpose();
            failed = matches!(item, Some(Err(_)));
            item
        })
    }

    fn block_entry(&self, cursor: &BlockCursor, at: u64, data_end: u64) -> Result<(Vec<u8>, BlockEntry)> {
        let cell = cursor.cell();
        Ok((cell.key.to_vec(), self.check(at, BlockEntry::decode(cell.value, data_end))?))
    }

    /// All data blocks, each read from the file.
    pub(crate) fn blocks(&self) -> impl Iterator<Item = Result<BlockListing>> + '_ {
        self.block_entries().map(|item| {
            let (_, BlockEntry { handle, cells, .. }) = item?;
            let (block, compression) = self.open_data(handle)?;
            let mut cursor = BlockCursor::default();
            cursor.set(block);
            self.check(handle.offset, cursor.first())?;
            Ok(BlockListing {
                offset: handle.offset,
                file_bytes: handle.file_bytes(),
                raw_bytes: handle.raw.into(),
                compression,
                first_key: if cursor.valid() { cursor.cell().key.to_vec() } else { Vec::new() },
                cells,
            })
        })
    }

    /// A data block from the file.
    pub(super) fn open_data(&self, handle: Handle) -> Result<(Arc<Block>, Codec)> {
        let (raw, codec) = self.read(BlockKind::Data, handle)?;
        Ok((Arc::new(self.check(handle.offset, Block::new(raw))?), codec))
    }

    /// Bytes of the file with the range's cells, about.
    #[allow(dead_code, reason = "for splitting stores")]
    pub(crate) fn approximate_bytes(&self, range: &KeyRange) -> Result<u64> {
        if range.is_empty() {
            return Ok(0);
        }
        let start = self.offset_of(&range.start)?;
        let end = match &range.end {
            Some(end) => self.offset_of(end)?,
            None => self.data_end(),
        };
        Ok(end.saturating_sub(start))
    }

    /// Offset of the first block that may have keys at or after `key`.
    #[allow(dead_code, reason = "for splitting stores")]
    fn offset_of(&self, key: &[u8]) -> Result<u64> {
        let found = self.check(self.footer.top.offset, self.top.find(key))?;
        let Some(partition) = self.top.partitions().get(found) else { return Ok(self.data_end()) };
        let index = self.index_for(found, true, false)?;
        match self.check(partition.index.offset, index.lower_bound(key))? {
            Some(entry) => {
                let decoded = BlockEntry::decode(index.value(&entry), partition.data_end);
                Ok(self.check(partition.index.offset, decoded)?.handle.offset)
            }
            None => Ok(partition.data_end),
        }
    }

    /// At most `n` ascending keys that cut the SSTable into about equal parts, for parallel or stepwise work.
    #[allow(dead_code, reason = "for splitting stores")]
    pub(crate) fn split_points(&self, n: usize) -> Result<Vec<Vec<u8>>> {
        let partitions = self.top.partitions();
        let mut points: Vec<Vec<u8>> = Vec::new();
        let (start, parts) = (HEADER_BYTES as u64, n as u64 + 1);
        let bytes = self.data_end() - start;
        // The offset at which the next cut is due.
        let due = |points: &[Vec<u8>]| start + bytes / parts * (points.len() as u64 + 1);
        let mut consider = |separator: &[u8], end: u64| {
            if points.len() < n && end >= due(&points) && end < self.data_end() {
                points.push(separator.to_vec());
            }
        };
        if partitions.len() >= 8 * (n + 1) {
            for (i, partition) in partitions.iter().enumerate() {
                consider(self.check(self.footer.top.offset, self.top.separator(i))?, partition.data_end);
            }
        } else {
            for item in self.block_entries() {
                let (separator, entry) = item?;
                consider(&separator, entry.handle.end());
            }
        }
        points.dedup();
        Ok(points)
    }
}
