//! The read of one key in an SSTable.
//!
//! It probes the filter partition, searches the index partition, then one data block. All three come through
//! the block cache, or the block is in a mapping; nothing is copied or allocated on hits. It answers for the
//! whole file: where part of the SSTable has moved (its *clip*), the caller asks only for keys of the live
//! range.

use super::frame::{BlockKind, Handle};
use super::index::BlockEntry;
use super::pin::Copied;
use super::reader::Sstable;
use super::reference::Fetched;
use crate::cache::block::Entry;
use crate::cache::{Block, Filling};
use crate::error::Result;
use crate::types::{CellRef, Owner, SeqNo, Visit};
use std::ops::ControlFlow;
use std::sync::Arc;

enum Visited {
    /// The visitor stopped.
    Stopped,
    /// A larger key was found.
    Passed,
    /// The block ended within the key's cells.
    End,
}

/// The key and read point of a get, with its visitor.
struct Read<'a, 'v> {
    key: &'a [u8],
    hash: u64,
    seq: SeqNo,
    visit: &'a mut Visit<'v>,
}

impl Sstable {
    /// Visits the cells of `key` with a sequence number at most `read`, newest first. `hash` is the key's.
    /// The visited cell's value lies in its block and may be pinned; its key is the caller's own. Visits
    /// count only if this returns no error.
    #[inline]
    pub(crate) fn get(
        &self,
        key: &[u8],
        hash: u64,
        read: SeqNo,
        visit: &mut Visit<'_>,
    ) -> Result<ControlFlow<()>> {
        self.get_in(&mut |handle| self.data(handle), &mut Read { key, hash, seq: read, visit })
    }

    /// Visits the cells of one of many keys that are read in order, as [`Sstable::get`] does: `last` is the
    /// block in which the previous key was found.
    pub(crate) fn get_next(
        &self,
        last: &mut Option<(u64, Arc<Block>)>,
        key: &[u8],
        hash: u64,
        read: SeqNo,
        visit: &mut Visit<'_>,
    ) -> Result<ControlFlow<()>> {
        let mut data = |handle: Handle| match last {
            Some((offset, block)) if *offset == handle.offset => Ok(Arc::clone(block)),
            _ => {
                let block = self.data(handle)?;
                *last = Some((handle.offset, Arc::clone(&block)));
                Ok(block)
            }
        };
        self.get_in(&mut data, &mut Read { key, hash, seq: read, visit })
    }

    #[inline]
    fn get_in(
        &self,
        data: &mut impl FnMut(Handle) -> Result<Arc<Block>>,
        read: &mut Read<'_, '_>,
    ) -> Result<ControlFlow<()>> {
        let first = self.check(self.footer.top.offset, self.top.find(read.key))?;
        let Some(partition) = self.top.partitions().get(first) else { return Ok(ControlFlow::Continue(())) };
        if let Some(filter) = partition.filter
            && !self.filter(first, filter)?.may_contain(read.hash)
        {
            return Ok(ControlFlow::Continue(()));
        }
        let found = self.search(data, first, read)?;
        if found.is_continue() {
            self.note_look();
        }
        Ok(found)
    }

    /// Searches the index from partition `first` on, and the data blocks, without probing a filter.
    fn search(
        &self,
        data: &mut impl FnMut(Handle) -> Result<Arc<Block>>,
        first: usize,
        read: &mut Read<'_, '_>,
    ) -> Result<ControlFlow<()>> {
        // Nearly always one round of each loop: more only where a key's cells go on in the next block.
        for (number, partition) in self.top.partitions().iter().enumerate().skip(first) {
            let index = self.index(number, partition)?;
            let mut at = self.check(partition.index.offset, index.lower_bound(read.key))?;
            while let Some(entry) = at {
                let BlockEntry { handle, continues, .. } = self.check(
                    partition.index.offset,
                    BlockEntry::decode(index.value(&entry), partition.data_end),
                )?;
                let visited = match self.borrowed_data(handle) {
                    Some(block) => {
                        let visited = self.visit_block(&block, &Copied, handle, read);
                        self.check_mapping(handle.offset).and(visited)
                    }
                    None => {
                        let block = data(handle)?;
                        self.visit_block(&block, &block, handle, read)
                    }
                };
                match visited? {
                    Visited::Stopped => return Ok(ControlFlow::Break(())),
                    Visited::Passed => return Ok(ControlFlow::Continue(())),
                    Visited::End if !continues => return Ok(ControlFlow::Continue(())),
                    Visited::End => {}
                }
                at = match entry.end() < index.entries_end() {
                    true => Some(self.check(partition.index.offset, index.entry(entry.end()))?),
                    false => None,
                };
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// A data block, from the cache if it is there.
    fn data(&self, handle: Handle) -> Result<Arc<Block>> {
        if let Some(block) = self.cached_data(handle) {
            return Ok(block);
        }
        let (bytes, _) = self.read(BlockKind::Data, handle)?;
        let block = self.cache.adopt(self.check(handle.offset, Block::new(bytes))?);
        self.cache_data(handle, &block);
        Ok(block)
    }

    /// Visits the cells of the key in a data block.
    fn visit_block(
        &self,
        block: &Block,
        owner: &dyn Owner,
        handle: Handle,
        read: &mut Read<'_, '_>,
    ) -> Result<Visited> {
        let first = self.check(handle.offset, block.lower_bound(read.key))?;
        let Some(mut entry) = first else { return Ok(Visited::Passed) };
        if block.is_key(&entry, read.key) && !block.is_mapped() {
            self.touch(handle, entry.at());
        }
        while block.is_key(&entry, read.key) {
            if self.visit_cell(block, owner, handle.offset, &entry, read)?.is_break() {
                return Ok(Visited::Stopped);
            }
            if entry.end() >= block.entries_end() {
                return Ok(Visited::End);
            }
            entry = self.check(handle.offset, block.entry(entry.end()))?;
        }
        Ok(Visited::Passed)
    }

    /// Visits the cell, if it is visible to the read.
    #[inline]
    fn visit_cell(
        &self,
        block: &Block,
        owner: &dyn Owner,
        offset: u64,
        entry: &Entry,
        read: &mut Read<'_, '_>,
    ) -> Result<ControlFlow<()>> {
        let seq = self.seq(entry.seq);
        if seq > read.seq {
            return Ok(ControlFlow::Continue(()));
        }
        let cell = CellRef {
            key: read.key,
            timestamp: entry.timestamp,
            seq,
            kind: entry.kind,
            written: entry.written,
            value: block.value(entry),
        };
        if !entry.is_reference {
            return Ok((read.visit)(&cell, owner));
        }
        let mut fetched = Fetched::default();
        self.fetch(offset, &cell, None, &mut fetched)?;
        let fetched = Arc::new(fetched);
        Ok((read.visit)(&CellRef { value: fetched.value(), ..cell }, &fetched))
    }

    /// Notes that the cell at that position in a block is read.
    #[inline]
    fn touch(&self, handle: Handle, at: usize) {
        if self.cache.filling() == Filling::Warm {
            self.warmth.touch(handle.place(at), self.cache.period());
        }
    }
}
