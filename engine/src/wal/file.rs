//! A WAL file's name and header. `docs/format-wal.md` has the byte layout.
//!
//! The header is written when the file becomes the WAL's newest, not when it is reserved. So a reserved or
//! recycled file that was not begun has no valid header under its number and counts as absent, and a header
//! says exactly where the previous file ended: a rotation is verified to the byte.

use super::head::{FRAME_BYTES_MAX, Fault};
use crate::error::{Error, ErrorKind, Result};
use crate::storage::{self, Storage, begins_with};
use crate::types::{LogFileId, LogPosition};
use crc32c::crc32c;
use std::path::{Path, PathBuf};

/// Bytes of the header. Fixed for all format versions, so that any release can read which one it is.
pub(crate) const HEADER_BYTES: u64 = 80;
const MAGIC: [u8; 8] = *b"siltlog\n";
/// The version that is written. Format 1 has no short frames.
const VERSION: u32 = 2;
const VERSIONS_READ: std::ops::RangeInclusive<u32> = 1..=VERSION;
/// The longest file: offsets must fit the head of a frame, which counts them in eights.
pub(super) const FILE_BYTES_MAX: u64 = FRAME_BYTES_MAX;

/// The name of a WAL file within the database directory.
pub(crate) fn file_name(file: LogFileId) -> String {
    format!("{:010}.log", file.0)
}

/// Parses [`file_name`]; `None` for any other name.
pub(crate) fn parse_file_name(name: &str) -> Option<LogFileId> {
    let file = LogFileId(name.strip_suffix(".log")?.parse().ok()?);
    (file_name(file) == name).then_some(file)
}

/// Whether a file with the name of a WAL file belongs to that database, or to any: by its header, or because
/// it was reserved and not begun, and so has zeros for a header, or the header of the file it was before.
pub(crate) fn is_own(storage: &dyn Storage, path: &Path, database: Option<u64>) -> std::io::Result<bool> {
    let id = database.map(u64::to_le_bytes);
    let is_of = |head: &[u8]| id.is_none_or(|id| head.get(16..24).is_none_or(|found| found == id));
    storage::is_own(storage, path, |head| begins_with(head, &MAGIC) && is_of(head))
}

/// The path of a WAL file.
pub(crate) fn file_path(dir: &Path, file: LogFileId) -> PathBuf {
    dir.join(file_name(file))
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Header {
    pub(crate) database_id: u64,
    pub(crate) file: LogFileId,
    /// The length that the file was reserved with.
    pub(crate) reserved: u64,
    /// The end of the history before this file, in the previous file or where a recovery ended it.
    pub(crate) previous: LogPosition,
    /// The position that the WAL was known synced to when this file was begun.
    pub(crate) synced: LogPosition,
}

impl Header {
    pub(crate) fn encode(&self) -> [u8; HEADER_BYTES as usize] {
        let mut out = [0; HEADER_BYTES as usize];
        out[..8].copy_from_slice(&MAGIC);
        out[8..12].copy_from_slice(&VERSION.to_le_bytes());
        let words = [
            self.database_id,
            self.file.0,
            self.reserved,
            self.previous.file.0,
            self.previous.offset,
            self.synced.file.0,
            self.synced.offset,
        ];
        for (i, word) in words.iter().enumerate() {
            out[16 + 8 * i..24 + 8 * i].copy_from_slice(&word.to_le_bytes());
        }
        let crc = crc32c(&out[..76]);
        out[76..].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// Decodes the header that `file` must have. The inner error says why there is none: never begun, torn,
    /// or damaged, which the caller distinguishes by what is known to be synced. The outer one is certain:
    /// the file is whole and belongs to another database, or to a newer release.
    pub(crate) fn decode(
        bytes: &[u8],
        database_id: u64,
        file: LogFileId,
        path: &Path,
    ) -> Result<Result<Self, Fault>> {
        let malformed = |what| Ok(Err(Fault::Malformed { what, at: 0 }));
        let Some(bytes) = bytes.first_chunk::<{ HEADER_BYTES as usize }>() else {
            return Ok(Err(Fault::Short { need: HEADER_BYTES, have: bytes.len() as u64 }));
        };
        let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
        if bytes[..8] != MAGIC {
            return malformed("no WAL file header");
        }
        let (stored, computed) = ((word(72) >> 32) as u32, crc32c(&bytes[..76]));
        if stored != computed {
            return Ok(Err(Fault::Checksum { of: "a WAL file header", at: 0, stored, computed }));
        }
        let version = word(8) as u32;
        if !VERSIONS_READ.contains(&version) {
            let message =
                format!("WAL format {version} in {}; this release reads 1 to {VERSION}", path.display());
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
        if word(16) != database_id {
            let message = format!("expected database {database_id:016x}, found {:016x}", word(16));
            return Err(Error::corruption(path, 16, message));
        }
        if word(24) != file.0 {
            return malformed("a header of another file number");
        }
        if word(8) >> 32 != 0 || word(72) as u32 != 0 {
            return malformed("reserved bytes that are not zero");
        }
        let position = |at: usize| LogPosition { file: LogFileId(word(at)), offset: word(at + 8) };
        let (reserved, previous, synced) = (word(32), position(40), position(56));
        if previous.file >= file || synced > (LogPosition { file, offset: 0 }) {
            return malformed("a header that points ahead");
        }
        Ok(Ok(Self { database_id, file, reserved, previous, synced }))
    }
}

/// The length that a sound header says its file was reserved with, for any database and file.
pub(super) fn reserved_by(bytes: &[u8]) -> Option<u64> {
    let word = |at: usize| Some(u64::from_le_bytes(*bytes.get(at..at + 8)?.first_chunk()?));
    let is_whole = bytes.get(..8)? == MAGIC && (word(72)? >> 32) as u32 == crc32c(bytes.get(..76)?);
    is_whole.then(|| word(32)).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_sort_as_numbers_and_only_canonical_ones_are_parsed() {
        assert_eq!(file_name(LogFileId(7)), "0000000007.log");
        assert!(file_name(LogFileId(9)) < file_name(LogFileId(10)));
        assert_eq!(parse_file_name("0000000007.log"), Some(LogFileId(7)));
        for other in ["7.log", "+000000007.log", "0000000007.table", "x000000007.log", "00000000007.log"] {
            assert_eq!(parse_file_name(other), None, "{other}");
        }
    }

    #[test]
    fn every_flipped_bit_of_a_header_is_noticed() {
        let position = |file, offset| LogPosition { file: LogFileId(file), offset };
        let header = Header {
            database_id: 77,
            file: LogFileId(5),
            reserved: 4096,
            previous: position(4, 400),
            synced: position(3, 96),
        };
        let bytes = header.encode();
        let decode = |bytes: &[u8]| Header::decode(bytes, 77, LogFileId(5), Path::new("x"));
        assert_eq!(decode(&bytes).unwrap().unwrap(), header);
        for bit in 0..bytes.len() * 8 {
            let mut bad = bytes;
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(decode(&bad).unwrap().is_err(), "bit {bit}");
        }
        let other = Header::decode(&bytes, 78, LogFileId(5), Path::new("x")).unwrap_err();
        assert_eq!(other.kind(), ErrorKind::Corruption);
        assert!(Header::decode(&bytes, 77, LogFileId(6), Path::new("x")).unwrap().is_err());
    }
}
