//! The blocks that a compaction put into the cache for an SSTable before it is published. `fill` decides
//! which; the open SSTable takes over what else was kept for it.

use super::frame::Handle;
use crate::cache::{Block, BlockCache, BlockKey, Filter};
use std::sync::Arc;

/// The blocks put into the cache for an SSTable that is not published yet. Dropped before, it removes them.
pub(crate) struct Filled {
    pub(super) cache: Arc<BlockCache>,
    /// The cache's number for the SSTable.
    pub(super) table: u64,
    /// Offsets of the data blocks that went into the cache.
    offsets: Vec<u64>,
    /// Bytes that these blocks take in the cache.
    bytes: u64,
    pub(super) partitions: Vec<FilledPartition>,
    /// Offsets of cells that were read lately where they came from.
    pub(super) warm: Vec<u64>,
}

/// Index and filter of a partition, decoded.
pub(super) struct FilledPartition {
    pub(super) number: usize,
    pub(super) index: Arc<Block>,
    pub(super) filter: Option<Arc<Filter>>,
    /// The number of compactions that still hand it on if nobody reads it.
    pub(super) heat: u8,
}

impl Filled {
    pub(super) fn new(cache: Arc<BlockCache>) -> Self {
        let table = cache.next_table_id();
        Self { cache, table, offsets: Vec::new(), bytes: 0, partitions: Vec::new(), warm: Vec::new() }
    }

    /// Puts a data block into the cache; a `lasting` one does not make way at once.
    pub(super) fn add_block(&mut self, handle: Handle, block: Block, lasting: bool) {
        let key = BlockKey { table: self.table, offset: handle.offset };
        self.bytes += block.memory_bytes() as u64;
        self.cache.fill_data(key, self.cache.adopt(block), lasting);
        self.offsets.push(handle.offset);
    }

    /// The number of data blocks that went into the cache so far, and their bytes.
    pub(crate) fn so_far(&self) -> (u64, u64) {
        (self.offsets.len() as u64, self.bytes)
    }

    /// Leaves the blocks in the cache: the SSTable is published, and readers use them now.
    pub(crate) fn published(mut self) {
        self.offsets.clear();
    }
}

impl Drop for Filled {
    fn drop(&mut self) {
        for &offset in &self.offsets {
            self.cache.evict_data(BlockKey { table: self.table, offset });
        }
    }
}
