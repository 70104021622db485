//! An SSTable's inside: its blocks, and how its bytes are spread over the keys.

use super::block_cursor::BlockCursor;
use super::compression::Codec;
use super::footer::HEADER_BYTES;
use super::frame::{BlockKind, Handle};
use super::index::BlockEntry;
use super::reader::Sstable;
use crate::cache::block::Block;
use crate::error::Result;
use std::sync::Arc;

/// A data block of a table.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// use siltstone::{FamilyOptions, TableListing, SstableWriter, storage::Env};
/// let path = dir.path().join("prepared.table");
/// let mut table = SstableWriter::create(&path, &FamilyOptions::default())?;
/// table.put(b"k", b"v")?;
/// table.finish()?;
/// let blocks = TableListing::read(&Env::local(), &path)?.blocks;
/// assert_eq!((blocks.len(), &blocks[0].first_key[..], blocks[0].cells), (1, &b"k"[..], 1));
/// # Ok::<(), siltstone::Error>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct BlockListing {
    /// Where it begins in the file.
    pub offset: u64,
    /// Bytes in the file, head included.
    pub file_bytes: u64,
    /// Bytes when decompressed.
    pub raw_bytes: u64,
    /// How it is compressed; `none` where that did not pay.
    pub compression: String,
    /// Its first key.
    pub first_key: Vec<u8>,
    /// Cells.
    pub cells: u64,
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
                compression: compression.to_string(),
                first_key: if cursor.valid() { cursor.cell().key.to_vec() } else { Vec::new() },
                cells,
            })
        })
    }

    pub(super) fn open_data(&self, handle: Handle) -> Result<(Arc<Block>, Codec)> {
        let (raw, codec) = self.read(BlockKind::Data, handle)?;
        Ok((Arc::new(self.check(handle.offset, Block::new(raw))?), codec))
    }
}
