//! References: values that an SSTable leaves in the WAL (TRI-4).
//!
//! In the data blocks of such an SSTable the value of a cell may be a *reference*: file, offset and length of
//! the cell's entry in the WAL. The entry has a checksum of its own, seeded with its position, so reading a
//! referenced value takes one data block and one access to the WAL and is as well protected as any other
//! read; key, timestamp and kind of the entry are compared with the cell's as well. A value for which a
//! reference would hardly be shorter stays in the block.
//!
//! A compaction reads an SSTable's cells in key order, which is no order in the WAL. So before its first
//! access to a WAL file it reads the whole file once, sequentially. Within the budget for pinned blocks it
//! keeps these bytes until it is done with the SSTable; beyond it they only enter the page cache, and each
//! value is then fetched from there.
//!
//! Not owned here: which WAL files SSTables need (`version`), when a flush leaves values in the WAL
//! (`strategy`, `work`).

use crate::cache::BlockCache;
use crate::error::Result;
use crate::storage::Storage;
use crate::types::codec::{Decoded, Decoder, Malformed, put_varint};
use crate::types::{CellRef, KEY_BYTES_MAX, LogFileId, VALUE_BYTES_MAX};
use crate::wal::ClosedWalFile;
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// The length from which a value is left in the WAL: for shorter ones the saved bytes would not pay for the
/// access.
pub(crate) const VALUE_BYTES_MIN: usize = 48;
/// The size of the pieces in which a WAL file is read whole.
const PIECE_BYTES: u64 = 64 << 10;
/// The largest buffer that is kept for the next value.
const KEEP_BYTES: usize = 1 << 20;

/// The position of a cell's entry in the WAL.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Reference {
    pub(crate) file: LogFileId,
    pub(crate) offset: u64,
    /// Length of the whole entry, with its checksum.
    pub(crate) length: u64,
}

impl Reference {
    /// The offset after the entry.
    pub(super) fn end(&self) -> u64 {
        self.offset + self.length
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.clear();
        put_varint(out, self.file.0);
        put_varint(out, self.offset);
        put_varint(out, self.length);
    }

    pub(super) fn decode(bytes: &[u8]) -> Decoded<Self> {
        let mut d = Decoder::new(bytes);
        let reference = Self { file: LogFileId(d.varint()?), offset: d.varint()?, length: d.varint()? };
        d.finish()?;
        let entry_max = (VALUE_BYTES_MAX + KEY_BYTES_MAX + 64) as u64;
        if reference.length > entry_max || reference.offset.checked_add(reference.length).is_none() {
            return Err(Malformed("reference to an entry of the WAL over the limit"));
        }
        Ok(reference)
    }
}

/// A value fetched from the WAL: the entry's bytes, and the value's position in them. Not changed once it is
/// shared.
#[derive(Default, Debug)]
pub(super) struct Fetched {
    bytes: Vec<u8>,
    value: Range<usize>,
}

impl Fetched {
    #[inline]
    pub(super) fn value(&self) -> &[u8] {
        &self.bytes[self.value.clone()]
    }
}

/// The open WAL files of one SSTable.
pub(super) struct Logs {
    files: Vec<ClosedWalFile>,
    /// For each file, the end of the last entry referred to.
    ends: Vec<u64>,
}

impl Logs {
    pub(super) fn open(
        storage: &dyn Storage,
        dir: &Path,
        database: u64,
        logs: &BTreeMap<LogFileId, u64>,
    ) -> Result<Self> {
        let files = logs.keys().map(|file| ClosedWalFile::open(storage, dir, database, *file));
        Ok(Self { files: files.collect::<Result<_>>()?, ends: logs.values().copied().collect() })
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    fn find(&self, file: LogFileId) -> Decoded<usize> {
        let found = self.files.iter().position(|wal| wal.number() == file);
        found.ok_or(Malformed("reference to a WAL file that the table does not list"))
    }

    /// Fetches the value of a cell that has the reference.
    pub(super) fn fetch(
        &self,
        cell: &CellRef<'_>,
        images: Option<&mut Images>,
        into: &mut Fetched,
    ) -> Result<Decoded<()>> {
        let found =
            Reference::decode(cell.value).and_then(|reference| Ok((reference, self.find(reference.file)?)));
        let (reference, at) = match found {
            Ok(found) => found,
            Err(e) => return Ok(Err(e)),
        };
        let wal = &self.files[at];
        let image = match images {
            Some(images) => images.bytes(at, wal, self.ends[at])?,
            None => None,
        };
        into.fill(wal, &reference, cell, image).map(Ok)
    }
}

impl Fetched {
    /// Fetches the referenced entry, from the image of the file if there is one.
    fn fill(
        &mut self,
        wal: &ClosedWalFile,
        reference: &Reference,
        cell: &CellRef<'_>,
        image: Option<&[u8]>,
    ) -> Result<()> {
        let length = reference.length as usize;
        let from_image = image.and_then(|bytes| bytes.get(reference.offset as usize..)?.get(..length));
        self.bytes.clear();
        self.bytes.shrink_to(KEEP_BYTES);
        match from_image {
            Some(bytes) => self.bytes.extend_from_slice(bytes),
            None => {
                self.bytes.resize(length, 0);
                wal.read(&mut self.bytes, reference.offset)?;
            }
        }
        let found = match wal.cell(&self.bytes, reference.offset) {
            Ok(found) => found,
            // The bits may have flipped in the transfer, so the entry is read once more.
            Err(first) => {
                wal.read(&mut self.bytes, reference.offset)?;
                wal.cell(&self.bytes, reference.offset).map_err(|_| first)?
            }
        };
        if (found.key, found.timestamp, found.kind) != (cell.key, cell.timestamp, cell.kind) {
            return Err(wal.mismatch(reference.offset, cell.key));
        }
        // The value is the last part before the checksum.
        let value = found.value.len();
        self.value = length - 4 - value..length - 4;
        Ok(())
    }
}

/// The WAL files that a rescue has found.
pub(super) struct FoundWalFiles<'s> {
    storage: &'s dyn Storage,
    dir: &'s Path,
    database: u64,
    files: BTreeMap<LogFileId, Option<ClosedWalFile>>,
}

impl<'s> FoundWalFiles<'s> {
    pub(super) fn new(storage: &'s dyn Storage, dir: &'s Path, database: u64) -> Self {
        Self { storage, dir, database, files: BTreeMap::new() }
    }

    /// Fetches the value of a cell that has a reference, if it can still be read.
    pub(super) fn fetch(&mut self, cell: &CellRef<'_>, into: &mut Fetched) -> bool {
        let Ok(reference) = Reference::decode(cell.value) else { return false };
        let wal = self.files.entry(reference.file).or_insert_with(|| {
            ClosedWalFile::open(self.storage, self.dir, self.database, reference.file).ok()
        });
        wal.as_ref().is_some_and(|wal| into.fill(wal, &reference, cell, None).is_ok())
    }
}

/// The bytes of an SSTable's WAL files that a compaction has in memory. See the page above.
pub(super) struct Images {
    cache: Arc<BlockCache>,
    /// The image of each file. `None`: not touched yet. Empty: the file was read, but not kept.
    files: Vec<Option<Vec<u8>>>,
}

impl Images {
    pub(super) fn new(logs: &Logs, cache: &Arc<BlockCache>) -> Self {
        Self { cache: Arc::clone(cache), files: logs.files.iter().map(|_| None).collect() }
    }

    fn bytes(&mut self, at: usize, wal: &ClosedWalFile, length: u64) -> Result<Option<&[u8]>> {
        if self.files[at].is_none() {
            let mut image = Vec::new();
            let kept = self.cache.may_keep(length);
            let read = read_through(wal, length, kept, &mut image);
            if read.is_err() && kept {
                self.cache.let_go(length);
            }
            read?;
            self.files[at] = Some(image);
        }
        Ok(self.files[at].as_deref().filter(|image| !image.is_empty()))
    }
}

/// Reads a file sequentially, and keeps the bytes if asked to.
fn read_through(wal: &ClosedWalFile, length: u64, keep: bool, image: &mut Vec<u8>) -> Result<()> {
    *image = vec![0; if keep { length } else { length.min(PIECE_BYTES) } as usize];
    let mut at = 0;
    while at < length {
        let piece = (length - at).min(PIECE_BYTES) as usize;
        let from = if keep { at as usize } else { 0 };
        wal.read(&mut image[from..from + piece], at)?;
        at += piece as u64;
    }
    if !keep {
        *image = Vec::new();
    }
    Ok(())
}

impl Drop for Images {
    fn drop(&mut self) {
        self.cache.let_go(self.files.iter().flatten().map(|image| image.len() as u64).sum());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reference_reads_back_and_no_cut_or_longer_one_passes() {
        let reference = Reference { file: LogFileId(9), offset: 70_000, length: 300 };
        let mut bytes = Vec::new();
        reference.encode(&mut bytes);
        assert_eq!(Reference::decode(&bytes), Ok(reference));
        for n in 0..bytes.len() {
            assert!(Reference::decode(&bytes[..n]).is_err(), "{n} bytes");
        }
        bytes.push(0);
        assert!(Reference::decode(&bytes).is_err());
    }
}
