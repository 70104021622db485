//! Positions of one store's cells in closed WAL files, which a flush needs to leave its values in the WAL.
//!
//! Cells in memory do not have their position (eight bytes each, for all of memory, all of the time). They
//! have their sequence number, and every operation has its own, in the order of the WAL. So one pass over the
//! files gives a dense array, from sequence number to offset, of five bytes per operation, which exists for
//! one flush only.
//!
//! The pass reads frames as recovery does and so verifies each byte that an SSTable will depend on while the
//! same cells are still in memory. A file with any fault is left out: its cells are flushed from memory.

use super::WalFileInfo;
use super::file::HEADER_BYTES;
use super::frame::{Entry, EntryPosition};
use super::head::{Base, FileIdentity};
use super::scan::WalReader;
use crate::error::Result;
use crate::storage::Env;
use crate::types::{CellRef, Kind, LogFileId, LogPosition, StoreId};
use std::collections::VecDeque;
use std::path::{Path, PathBuf};

/// The positions of one store's values in some WAL files.
#[derive(Default)]
pub(crate) struct ValuePositions {
    /// The WAL's database.
    pub(crate) database: u64,
    /// Oldest first.
    files: Vec<FilePlaces>,
}

/// One file's part.
pub(crate) struct FilePlaces {
    pub(crate) file: LogFileId,
    /// Sequence number of the first operation in `offsets`.
    first_seq: u64,
    /// Offset of each operation's entry; zero if that is not a value of the store.
    offsets: Vec<u32>,
    /// Additional bytes of each entry compared with one in a batch: a cell alone contains its frame's head.
    beyond: Vec<u8>,
    /// Bytes of the file that are entries of the store.
    pub(crate) owned: u64,
    /// Bytes of the file that are entries of any store.
    pub(crate) entries: u64,
    /// Bytes of history in the file.
    used: u64,
}

impl ValuePositions {
    /// The position of that value's entry, written under its sequence number.
    pub(crate) fn find(&self, value: &CellRef<'_>) -> Option<EntryPosition> {
        let after = self.files.partition_point(|f| f.first_seq <= value.seq.0);
        let found = &self.files[after.checked_sub(1)?];
        let index = usize::try_from(value.seq.0 - found.first_seq).ok()?;
        let offset = found.offsets.get(index).copied().filter(|offset| *offset != 0)?;
        let at = LogPosition { file: found.file, offset: u64::from(offset) };
        Some(EntryPosition { at, length: entry_bytes(value) + u64::from(found.beyond[index]) })
    }

    /// The number of files.
    pub(crate) fn files(&self) -> usize {
        self.files.len()
    }

    #[cfg(test)]
    pub(super) fn memory_bytes(&self) -> usize {
        self.files.iter().map(|file| size_of_val(&file.offsets[..]) + file.beyond.len()).sum()
    }

    /// Drops the files for which `wanted` is false.
    pub(crate) fn retain(&mut self, wanted: impl FnMut(&FilePlaces) -> bool) {
        self.files.retain(wanted);
    }
}

/// The pass over the files, one frame at a time.
pub(crate) struct PlaceScan {
    env: Env,
    dir: PathBuf,
    store: StoreId,
    left: VecDeque<WalFileInfo>,
    reading: Option<Reading>,
    found: ValuePositions,
}

struct Reading {
    reader: WalReader,
    at: u64,
    base: Option<Base>,
    places: FilePlaces,
}

impl PlaceScan {
    /// A pass over `files`, which are complete, oldest first.
    pub(crate) fn new(env: &Env, dir: &Path, database: u64, store: StoreId, files: Vec<WalFileInfo>) -> Self {
        let found = ValuePositions { database, files: Vec::new() };
        // Offsets have 32 bits; only a single huge batch makes a longer file.
        let left = files.into_iter().filter(|f| f.used <= u64::from(u32::MAX)).collect();
        Self { env: env.clone(), dir: dir.to_path_buf(), store, left, reading: None, found }
    }

    /// Reads one frame; returns whether there is more to do.
    pub(crate) fn advance(&mut self) -> Result<bool> {
        let Some(reading) = &mut self.reading else {
            let Some(info) = self.left.pop_front() else { return Ok(false) };
            let identity = FileIdentity::new(self.found.database, info.file);
            let reader = WalReader::open(&self.env, &self.dir, identity)?;
            // Space reserved after the history would otherwise be read and brought into memory too.
            let reader = reader.map(|reader| reader.up_to(info.used));
            let (file, used) = (info.file, info.used);
            let (offsets, beyond) = (Vec::new(), Vec::new());
            let places = FilePlaces { file, first_seq: 0, offsets, beyond, owned: 0, entries: 0, used };
            self.reading = reader.map(|reader| Reading { reader, at: HEADER_BYTES, base: None, places });
            return Ok(true);
        };
        let sound = reading.at < reading.places.used && reading.take_frame(self.store)?;
        if !sound {
            let whole = reading.at == reading.places.used;
            if let Some(done) = self.reading.take()
                && whole
                && !done.places.offsets.is_empty()
            {
                self.found.files.push(done.places);
            }
        }
        Ok(true)
    }

    /// The positions found.
    pub(crate) fn finish(self) -> ValuePositions {
        self.found
    }
}

impl Reading {
    /// Notes the values of the next frame and moves past it; false if there is no sound frame.
    fn take_frame(&mut self, store: StoreId) -> Result<bool> {
        let Self { reader, at, base, places } = self;
        let Ok(frame) = reader.frame(*at, base.as_ref())? else { return Ok(false) };
        for logged in frame.entries() {
            places.entries += logged.place.length;
            if logged.store == store {
                places.owned += logged.place.length;
            }
            // A copy has an old number, which would blow up the array; hot cells are few.
            let Entry::Cell(cell) = &logged.entry else { continue };
            if logged.copied || logged.store != store || cell.kind != Kind::Value {
                continue;
            }
            if places.offsets.is_empty() {
                places.first_seq = cell.seq.0;
            }
            // Numbers ascend, one per operation, and each operation takes at least a few bytes.
            let index = cell.seq.0.checked_sub(places.first_seq).filter(|index| *index <= places.used / 4);
            let beyond = logged.place.length.checked_sub(entry_bytes(cell)).map(u8::try_from);
            let (Some(index), Some(Ok(beyond))) = (index.map(|index| index as usize), beyond) else {
                return Ok(false);
            };
            if index >= places.offsets.len() {
                places.offsets.resize(index + 1, 0);
                places.beyond.resize(index + 1, 0);
            }
            places.offsets[index] = logged.place.at.offset as u32;
            places.beyond[index] = beyond;
        }
        (*at, *base) = (frame.end().offset, Some(frame.base));
        Ok(true)
    }
}

/// Bytes of a value's entry in a batch, as [`super::FrameEncoder`] writes it.
pub(crate) fn entry_bytes(cell: &CellRef<'_>) -> u64 {
    let varint = |n: u64| u64::from((64 - (n | 1).leading_zeros()).div_ceil(7));
    let optional = |n: u64| if n == 0 { 0 } else { varint(n) };
    let lengths = varint(cell.key.len() as u64) + varint(cell.value.len() as u64);
    1 + optional(cell.timestamp.0) + optional(cell.written) + lengths + cell.user_bytes() as u64 + 4
}
