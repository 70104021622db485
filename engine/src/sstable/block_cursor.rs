//! A position in one block, with the block and the current key, rebuilt in a reused buffer.

use super::pin::pin;
use crate::cache::block::{Block, Entry};
use crate::types::codec::{Decoded, Malformed};
use crate::types::{CellRef, Pinned};
use std::sync::Arc;

/// Every move returns whether there is an entry at the new position.
#[derive(Default)]
pub(super) struct BlockCursor {
    block: Option<Arc<Block>>,
    entry: Option<Entry>,
    key: Vec<u8>,
}

impl BlockCursor {
    /// Enters another block, at no entry.
    pub(super) fn set(&mut self, block: Arc<Block>) {
        self.entry = None;
        self.block = Some(block);
    }

    pub(super) fn reset(&mut self) {
        self.entry = None;
        self.block = None;
    }

    pub(super) fn valid(&self) -> bool {
        self.entry.is_some()
    }

    pub(super) fn in_block(&self) -> Option<&Arc<Block>> {
        self.block.as_ref()
    }

    fn block(&self) -> Decoded<&Arc<Block>> {
        self.block.as_ref().ok_or(Malformed("cursor is in no block"))
    }

    /// Moves to `entry`; the buffer has its predecessor's key (at least the shared bytes).
    #[inline]
    fn take(&mut self, entry: Entry) -> Decoded<bool> {
        let Some(block) = &self.block else { return Ok(false) };
        if entry.shared() > self.key.len() {
            self.entry = None;
            return Err(Malformed("entry shares more bytes than the key before has"));
        }
        self.key.truncate(entry.shared());
        self.key.extend_from_slice(block.suffix(&entry));
        self.entry = Some(entry);
        Ok(true)
    }

    fn decode(&mut self, at: usize) -> Decoded<bool> {
        self.entry = None;
        let block = self.block()?;
        if at >= block.entries_end() {
            return Ok(false);
        }
        let entry = block.entry(at)?;
        self.take(entry)
    }

    pub(super) fn first(&mut self) -> Decoded<bool> {
        self.key.clear();
        self.decode(0)
    }

    pub(super) fn last(&mut self) -> Decoded<bool> {
        self.entry = None;
        let block = self.block()?;
        let Some(restart) = block.restarts().checked_sub(1) else { return Ok(false) };
        let end = block.entries_end();
        self.walk_to(restart, end)
    }

    /// Moves to the first entry at or after the key.
    pub(super) fn seek(&mut self, target: &[u8]) -> Decoded<bool> {
        self.entry = None;
        let Some(entry) = self.block()?.lower_bound(target)? else { return Ok(false) };
        let known = target.get(..entry.shared()).ok_or(Malformed("entry shares bytes with no key"))?;
        self.key.clear();
        self.key.extend_from_slice(known);
        self.take(entry)
    }

    /// Moves to the last entry before the key.
    pub(super) fn seek_before(&mut self, target: &[u8]) -> Decoded<bool> {
        if self.seek(target)? { self.prev() } else { self.last() }
    }

    #[inline]
    pub(super) fn next(&mut self) -> Decoded<bool> {
        let Some(end) = self.entry.as_ref().map(Entry::end) else { return Ok(false) };
        self.decode(end)
    }

    pub(super) fn prev(&mut self) -> Decoded<bool> {
        let Some(at) = self.entry.take().map(|entry| entry.at()) else { return Ok(false) };
        if at == 0 {
            return Ok(false);
        }
        let restart = self.block()?.restart_of(at - 1);
        self.walk_to(restart, at)
    }

    /// Walks from a restart point to the entry that ends at `end`.
    fn walk_to(&mut self, restart: usize, end: usize) -> Decoded<bool> {
        let start = self.block()?.restart_offset(restart);
        self.key.clear();
        self.decode(start)?;
        while let Some(entry) = &self.entry {
            if entry.end() == end {
                return Ok(true);
            }
            let next = entry.end();
            if next > end {
                break;
            }
            self.decode(next)?;
        }
        self.entry = None;
        Err(Malformed("restart point is not at an entry"))
    }

    /// The current entry's offset in the block.
    #[inline]
    pub(super) fn place(&self) -> Option<usize> {
        self.entry.as_ref().map(|entry| entry.at())
    }

    #[inline]
    pub(super) fn is_reference(&self) -> bool {
        self.entry.as_ref().is_some_and(|entry| entry.is_reference)
    }

    /// The current cell, with the reference if its value is in the WAL. Must be valid.
    #[inline]
    pub(super) fn cell(&self) -> CellRef<'_> {
        let (Some(block), Some(entry)) = (&self.block, &self.entry) else {
            panic!("the cursor is not valid");
        };
        CellRef {
            key: &self.key,
            timestamp: entry.timestamp,
            seq: entry.seq,
            kind: entry.kind,
            written: entry.written,
            value: block.value(entry),
        }
    }

    /// The current key. Must be valid.
    #[inline]
    pub(super) fn key(&self) -> &[u8] {
        &self.key
    }

    /// The current value, pinned. Must be valid.
    #[inline]
    pub(super) fn pin_value(&self, into: &mut Pinned) {
        let (Some(block), Some(entry)) = (&self.block, &self.entry) else {
            panic!("the cursor is not valid");
        };
        pin(block, entry.value(), into);
    }
}
