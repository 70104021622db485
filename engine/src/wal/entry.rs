//! Reads one cell of the WAL alone, without its frame: the target of an SSTable's reference into the WAL.
//!
//! Every entry has its own checksum, seeded with database, file number and offset, so an entry proves by
//! itself that it is the one that was logged there: a flipped bit, a recycled file or a reference to a wrong
//! place fails. Whether the entry belongs to the SSTable's cell, the caller checks (key, timestamp, kind).

use super::file::file_path;
use super::frame::read_cell;
use super::head::{ALONE, AloneHead, FileIdentity, TAG_CELL};
use crate::error::{Error, Result};
use crate::storage::{ReadFile, Storage};
use crate::types::codec::{Decoder, Malformed};
use crate::types::{CellRef, LogFileId};
use crc32c::crc32c_append;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A WAL file that nobody writes to any more, open for reading.
pub(crate) struct ClosedWalFile {
    path: PathBuf,
    identity: FileIdentity,
    file: Arc<dyn ReadFile>,
}

impl ClosedWalFile {
    /// Opens the file; a missing one is damage, as an SSTable refers to it.
    pub(crate) fn open(storage: &dyn Storage, dir: &Path, database: u64, file: LogFileId) -> Result<Self> {
        let path = file_path(dir, file);
        let opened = storage.open(&path).map_err(|e| match e.kind() {
            io::ErrorKind::NotFound => Error::corruption(
                &path,
                0,
                "WAL file is missing, expected it by an SSTable with values in it",
            ),
            _ => Error::io("open a WAL file", &path, e),
        })?;
        Ok(Self { path, identity: FileIdentity::new(database, file), file: opened })
    }

    pub(crate) fn number(&self) -> LogFileId {
        self.identity.file
    }

    /// Fills the buffer with the bytes at that offset.
    pub(crate) fn read(&self, buffer: &mut [u8], offset: u64) -> Result<()> {
        self.file.read_exact_at(buffer, offset).map_err(|e| match e.kind() {
            io::ErrorKind::UnexpectedEof => {
                let message = format!("WAL file ends within the {} bytes expected here", buffer.len());
                Error::corruption(&self.path, offset, message)
            }
            _ => Error::io("read a WAL file", &self.path, e),
        })
    }

    /// The cell of the entry at `offset`, whose bytes, checksum included, are `bytes`. Its sequence number is
    /// zero, unless it was logged again by cleaning and so has its own.
    pub(crate) fn cell<'a>(&self, bytes: &'a [u8], offset: u64) -> Result<CellRef<'a>> {
        let bad = |message: String| Error::corruption(&self.path, offset, message);
        let short = || bad("an entry of the WAL shorter than its checksum".into());
        let (covered, stored) = bytes.split_last_chunk::<4>().ok_or_else(short)?;
        let (stored, found) =
            (u32::from_le_bytes(*stored), crc32c_append(self.identity.seed(offset), covered));
        if stored != found && !planted!(Bug::SkipWalChecksum) {
            return Err(bad(format!("checksum of a WAL entry is {found:08x}, expected {stored:08x}")));
        }
        let malformed = |Malformed(what)| bad(format!("WAL entry: {what}"));
        let mut rest = Decoder::new(covered);
        let mut tag = rest.u8().map_err(malformed)?;
        if tag & TAG_CELL == 0 {
            return Err(bad("WAL entry is no cell, expected one".into()));
        }
        if tag & ALONE != 0 {
            AloneHead::read(tag, &mut rest).map_err(malformed)?;
            tag = AloneHead::tag_in_batch(tag);
        }
        let cell = read_cell(tag, &mut rest, 0).map_err(malformed)?;
        rest.finish().map_err(malformed)?;
        Ok(cell)
    }

    /// The error for a sound entry that is not of that cell.
    pub(crate) fn mismatch(&self, offset: u64, key: &[u8]) -> Error {
        let message = format!("WAL entry is of another cell, expected one of key {}", key.escape_ascii());
        Error::corruption(&self.path, offset, message)
    }
}
