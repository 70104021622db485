//! Data blocks that are read in place, in a mapping of the SSTable's file.
//!
//! Only uncompressed blocks are; compressed ones, whose index entries show that they are shorter in the file,
//! are read through the cache. Mapped blocks need no cache, no lock and no reference count. A block is
//! checked like one that is read from the file, unless that was done within the last second
//! (`cache/recently_checked.rs`). A block that fails the check is read from the file, and that read reports
//! what is wrong.
//!
//! A page that the device cannot deliver reads as zeros, and the mapping is marked as failed
//! (`storage/mapping.rs`). So a reader of a mapped block checks that afterwards ([`Sstable::check_mapping`]),
//! and hands out only copies. A failed mapping is not used any more.

use super::frame::{BlockKind, HEAD_BYTES, Handle, is_sound};
use super::reader::Sstable;
use crate::cache::buffers::Buffer;
use crate::cache::{Block, Borrowed};
use crate::error::{Error, Result};
use crate::storage::MappedRead;
use std::io;
use std::ops::Range;
use std::sync::Arc;

impl Sstable {
    /// The data block, borrowed from the mapping for as long as the SSTable is open.
    #[inline]
    pub(super) fn borrowed_data(&self, handle: Handle) -> Option<Borrowed<'_>> {
        self.mapped_block(handle, |map, payload, is_known| {
            Block::borrowed(map.bytes().get(payload)?, is_known).ok()
        })
    }

    /// The data block in a form that a caller may keep: it keeps the mapping alive.
    pub(super) fn mapped_data(&self, handle: Handle) -> Option<Arc<Block>> {
        let kept = self.mapped_block(handle, |map, payload, is_known| {
            Block::over(Buffer::mapped(map, payload)?, is_known).ok()
        });
        kept.map(Arc::new)
    }

    /// A block that `make` makes of its payload, which was verified lately (then it `is_known`), or is now.
    #[inline]
    fn mapped_block<'a, B>(
        &'a self,
        handle: Handle,
        make: impl FnOnce(&'a Arc<dyn MappedRead>, Range<usize>, bool) -> Option<B>,
    ) -> Option<B> {
        let map = self.map.as_ref()?;
        if handle.stored != handle.raw || map.failed() {
            return None;
        }
        let (from, to) = (usize::try_from(handle.offset).ok()?, usize::try_from(handle.end()).ok()?);
        let is_known = self.cache.believes(self.key_of(handle));
        if !is_known {
            let whole = map.bytes().get(from..to)?;
            if !is_sound(whole, self.footer.identity, BlockKind::Data, handle) || map.failed() {
                return None;
            }
        }
        let block = make(map, from + HEAD_BYTES..to, is_known)?;
        if !is_known {
            self.cache.note_checked(self.key_of(handle));
        }
        Some(block)
    }

    /// Checks that the bytes read from the mapping so far were valid.
    #[inline]
    pub(super) fn check_mapping(&self, offset: u64) -> Result<()> {
        match &self.map {
            Some(map) if map.failed() => Err(self.unreadable(offset)),
            _ => Ok(()),
        }
    }

    #[cold]
    fn unreadable(&self, offset: u64) -> Error {
        let why = format!("a part of the file's mapping could not be read, at or behind offset {offset}");
        Error::io("read table", &self.path, io::Error::other(why))
    }
}
