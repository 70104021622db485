//! The effect of a compaction on the block cache: blocks of a new SSTable enter it, so that its first readers
//! find them, and blocks of a replaced one leave it.
//!
//! Blocks enter when they are cut, under the number that the SSTable will have when it is open. So nothing is
//! read again and no data waits in memory outside the cache, whose budget always holds; if the SSTable is
//! never published, they leave with their [`Filled`]. Index and filter partitions wait decoded and follow
//! when the step's SSTables are opened: those of a block that entered, and those that replace pinned ones, so
//! that a get costs no more after a compaction.
//!
//! Either all blocks enter, or those with a cell that was read lately in its input
//! ([`crate::cache::Warmth`]). The new SSTable takes over these marks, as of the last period: a cell that
//! nobody reads cools down however often it is compacted.

use super::block_cursor::BlockCursor;
use super::filled::{Filled, FilledPartition};
use super::frame::Handle;
use super::index::BlockEntry;
use super::reader::Sstable;
use crate::cache::{Block, BlockCache, Filling, Filter};
use std::sync::{Arc, Weak};

/// The SSTables that a compaction reads, each run in order of keys; they go as it passes them.
#[derive(Default)]
pub(crate) struct Replaced(Vec<Vec<Weak<Sstable>>>);

impl Replaced {
    pub(crate) fn add_run<'a>(&mut self, tables: impl Iterator<Item = &'a Arc<Sstable>>) {
        self.0.push(tables.map(Arc::downgrade).collect());
    }

    /// The heat of an index and filter over keys from `low` to `high`: the lowest of the runs with such keys.
    /// Where all of these are pinned, a get reads no block but data, and the new SSTable shall be no worse.
    /// O(runs x log SSTables).
    pub(super) fn heat(&self, low: &[u8], high: &[u8]) -> u8 {
        let mut least = None;
        for run in &self.0 {
            let ends_before = |table: Arc<Sstable>| !table.info().range.ends_after(low);
            let passed = run.partition_point(|table| table.upgrade().is_none_or(ends_before));
            let tables = run[passed..].iter().filter_map(Weak::upgrade);
            let within = tables.take_while(|table| table.info().range.start.as_slice() <= high);
            let Some(most) = within.filter_map(|table| table.heat_over(low, high)).max() else { continue };
            least = Some(least.map_or(most, |least: u8| least.min(most)));
            if most == 0 {
                break;
            }
        }
        least.unwrap_or(0)
    }
}

/// Fills the cache while an SSTable is built.
pub(super) struct Filler {
    /// The blocks put into the cache so far.
    pub(super) filled: Filled,
    replaced: Arc<Replaced>,
    all: bool,
    /// Positions of the warm cells in the present block.
    warm_cells: Vec<u32>,
}

impl Filler {
    /// `None` if nothing is to be filled.
    pub(super) fn new(cache: &Arc<BlockCache>, replaced: &Arc<Replaced>) -> Option<Self> {
        let all = match cache.filling() {
            Filling::Off => return None,
            Filling::All => true,
            Filling::Warm => false,
        };
        let filled = Filled::new(Arc::clone(cache));
        Some(Self { filled, replaced: Arc::clone(replaced), all, warm_cells: Vec::new() })
    }

    /// Notes that the present block has a warm cell at that position.
    pub(super) fn warm_cell(&mut self, at: usize) {
        if !self.all {
            self.warm_cells.push(at as u32);
        }
    }

    /// Ends the present block; returns whether it went into the cache.
    pub(super) fn block(&mut self, handle: Handle, raw: &[u8]) -> bool {
        // What is read from a mapping is not looked for in the cache.
        let is_mapped = self.filled.cache.serves_mapped() && handle.stored == handle.raw;
        if is_mapped || !self.all && self.warm_cells.is_empty() {
            self.warm_cells.clear();
            return false;
        }
        self.filled.warm.extend(self.warm_cells.drain(..).map(|at| handle.place(at as usize)));
        // A block just built decodes; if not, its first reader will report it.
        let Ok(block) = Block::new(raw.to_vec()) else { return false };
        self.filled.add_block(handle, block, !self.all);
        true
    }

    /// The heat of the partitions that one with keys from `low` to `high` replaces ([`Replaced::heat`]).
    /// Where all blocks enter it does not matter and is not computed.
    pub(super) fn heat(&self, low: &[u8], high: &[u8]) -> u8 {
        if self.all { 0 } else { self.replaced.heat(low, high) }
    }

    /// Adds a partition that readers shall find decoded.
    pub(super) fn partition(&mut self, number: usize, index: &[u8], filter: Option<&[u8]>, heat: u8) {
        let Ok(index) = Block::new(index.to_vec()) else { return };
        let filter = filter.and_then(|bytes| Filter::new(bytes.to_vec()).ok()).map(Arc::new);
        self.filled.partitions.push(FilledPartition { number, index: Arc::new(index), filter, heat });
    }
}

impl Sstable {
    /// The highest heat of a partition with keys from `low` to `high`; zero for a damaged one. `None` after
    /// the last cell, where the SSTable can only have range tombstones: a get of keys that these cover reads
    /// no partition.
    fn heat_over(&self, low: &[u8], high: &[u8]) -> Option<u8> {
        let Ok(first) = self.top.find(low) else { return Some(0) };
        let begins_by = |number: usize| {
            number == first || self.top.separator(number - 1).is_ok_and(|separator| separator < high)
        };
        let numbers = (first..self.top.partitions().len()).take_while(|number| begins_by(*number));
        numbers.map(|number| self.kept_heat(number)).max()
    }

    /// Removes from the cache the blocks with keys at or above `from`, all of them below `upto` (`None`: to
    /// the end). If a partition's index is not in memory its blocks are hardly in the cache either, and stay.
    /// Returns how many blocks and bytes were removed.
    pub(crate) fn evict(&self, from: &[u8], upto: Option<&[u8]>) -> (u64, u64) {
        let mut gone = (0, 0);
        // A damaged index is for readers to report.
        let Ok(first) = self.top.find(from) else { return gone };
        let mut cursor = BlockCursor::default();
        for (number, partition) in self.top.partitions().iter().enumerate().skip(first) {
            let Some(index) = self.index_at_hand(number) else { continue };
            cursor.set(index);
            let mut at = if number == first { cursor.seek(from) } else { cursor.first() };
            while at == Ok(true) {
                let entry = cursor.cell();
                if upto.is_some_and(|upto| entry.key >= upto) {
                    return gone;
                }
                if let Ok(entry) = BlockEntry::decode(entry.value, partition.data_end)
                    && let Some(bytes) = self.cache.evict_data(self.key_of(entry.handle))
                {
                    gone = (gone.0 + 1, gone.1 + bytes);
                }
                at = cursor.next();
            }
            self.cache.evict_meta(self.key_of(partition.index));
            if let Some(filter) = partition.filter {
                self.cache.evict_meta(self.key_of(filter));
            }
        }
        gone
    }
}
