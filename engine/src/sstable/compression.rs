//! How blocks are compressed, and the codecs with their reused working memory.

use super::zstd;
use crate::cache::buffers;
use crate::error::{Error, ErrorKind};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// How the blocks of an SSTable are compressed. Written `none`, `lz4`, `zstd` (level 3) or `zstd:LEVEL`.
///
/// ```
/// use siltstone::Compression;
/// assert_eq!("zstd:7".parse::<Compression>().unwrap(), Compression::Zstd { level: 7 });
/// assert_eq!(Compression::Lz4.to_string(), "lz4");
/// assert!("zip".parse::<Compression>().is_err());
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Compression {
    /// No compression.
    None,
    /// Fast to write and to read.
    #[default]
    Lz4,
    /// Smaller; slower to write and to read. Needs the crate's feature `zstd`.
    Zstd {
        /// 1 (fastest) to 22 (smallest).
        level: i32,
    },
}

impl Compression {
    /// Whether this build supports it: zstd needs the crate's feature `zstd`.
    ///
    /// ```
    /// use siltstone::Compression;
    /// assert!(Compression::Lz4.is_supported());
    /// assert_eq!(Compression::Zstd { level: 3 }.is_supported(), cfg!(feature = "zstd"));
    /// ```
    pub fn is_supported(self) -> bool {
        cfg!(feature = "zstd") || !matches!(self, Compression::Zstd { .. })
    }

    pub(crate) fn check_supported(self) -> Result<(), Error> {
        match self.is_supported() {
            true => Ok(()),
            false => Err(Error::new(ErrorKind::Unsupported, zstd::WITHOUT_ZSTD)),
        }
    }
}

const ZSTD_LEVEL_DEFAULT: i32 = 3;
const ZSTD_LEVEL_MAX: i32 = 22;

impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Compression::None => f.write_str("none"),
            Compression::Lz4 => f.write_str("lz4"),
            Compression::Zstd { level: ZSTD_LEVEL_DEFAULT } => f.write_str("zstd"),
            Compression::Zstd { level } => write!(f, "zstd:{level}"),
        }
    }
}

impl FromStr for Compression {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, String> {
        match s {
            "none" => Ok(Compression::None),
            "lz4" => Ok(Compression::Lz4),
            "zstd" => Ok(Compression::Zstd { level: ZSTD_LEVEL_DEFAULT }),
            other => {
                let level = other.strip_prefix("zstd:").and_then(|level| level.parse().ok());
                match level {
                    Some(level @ 1..=ZSTD_LEVEL_MAX) => Ok(Compression::Zstd { level }),
                    _ => Err(format!("compression is none, lz4, zstd or zstd:1 to zstd:22, not `{other}`")),
                }
            }
        }
    }
}

impl TryFrom<String> for Compression {
    type Error = String;
    fn try_from(s: String) -> Result<Self, String> {
        s.parse()
    }
}

impl From<Compression> for String {
    fn from(compression: Compression) -> String {
        compression.to_string()
    }
}

/// The compression of one block; a block that would not shrink is stored as it is, whatever the SSTable's
/// setting.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Codec {
    Raw = 0,
    Lz4 = 1,
    Zstd = 2,
}

impl Codec {
    pub(super) fn from_u8(n: u8) -> Option<Self> {
        match n {
            0 => Some(Codec::Raw),
            1 => Some(Codec::Lz4),
            2 => Some(Codec::Zstd),
            _ => None,
        }
    }
}

impl fmt::Display for Codec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Codec::Raw => "none",
            Codec::Lz4 => "lz4",
            Codec::Zstd => "zstd",
        })
    }
}

/// Compresses the blocks of one SSTable, one after another, in one buffer.
pub(super) struct Compressor {
    method: Method,
    buffer: Vec<u8>,
}

enum Method {
    None,
    Lz4(lz4_flex::block::CompressTable),
    Zstd(zstd::Compressor),
}

impl Compressor {
    pub(super) fn new(compression: Compression) -> std::io::Result<Self> {
        let method = match compression {
            Compression::None => Method::None,
            Compression::Lz4 => Method::Lz4(lz4_flex::block::CompressTable::default()),
            Compression::Zstd { level } => Method::Zstd(zstd::Compressor::new(level)?),
        };
        Ok(Self { method, buffer: Vec::new() })
    }

    /// The bytes to store for `raw`. Compression must save an eighth to be worth the time of reads.
    pub(super) fn compress<'a>(&'a mut self, raw: &'a [u8]) -> (Codec, &'a [u8]) {
        let bound = match &self.method {
            Method::None => return (Codec::Raw, raw),
            Method::Lz4(_) => lz4_flex::block::get_maximum_output_size(raw.len()),
            Method::Zstd(_) => zstd::compress_bound(raw.len()),
        };
        if self.buffer.len() < bound {
            self.buffer.resize(bound, 0);
        }
        let (codec, len) = match &mut self.method {
            Method::None => unreachable!("returned above"),
            Method::Lz4(table) => (
                Codec::Lz4,
                lz4_flex::block::compress_into_with_table(raw, &mut self.buffer, table).unwrap_or(usize::MAX),
            ),
            Method::Zstd(zstd) => {
                (Codec::Zstd, zstd.compress_to_buffer(raw, &mut self.buffer[..]).unwrap_or(usize::MAX))
            }
        };
        if len > raw.len() - raw.len() / 8 || len >= raw.len() {
            (Codec::Raw, raw)
        } else {
            (codec, &self.buffer[..len])
        }
    }

    /// Frees memory beyond `keep`, after a block with a huge value.
    pub(super) fn shrink(&mut self, keep: usize) {
        if self.buffer.len() > keep {
            self.buffer.truncate(keep);
            self.buffer.shrink_to_fit();
        }
    }
}

/// LZ4 stores at most 255 bytes for each byte of input (a run of length bytes).
const LZ4_RATIO_MAX: usize = 255;

/// The `raw_len` bytes that `stored` was compressed from. The caller has bounded `raw_len`.
pub(super) fn decompress(codec: Codec, stored: &[u8], raw_len: usize) -> Result<Vec<u8>, String> {
    let short = |found: usize| format!("block decompresses to {found} bytes, expected {raw_len}");
    match codec {
        Codec::Raw if stored.len() == raw_len => {
            let mut raw = buffers::take(raw_len);
            raw.clear();
            raw.extend_from_slice(stored);
            Ok(raw)
        }
        Codec::Raw => Err(short(stored.len())),
        Codec::Lz4 => {
            if raw_len / LZ4_RATIO_MAX > stored.len() {
                return Err(format!("{} bytes of lz4 cannot hold the expected {raw_len}", stored.len()));
            }
            let mut raw = buffers::take(raw_len);
            // The codec must overwrite every byte, or fail: the buffer has bytes of another block.
            raw.resize(raw_len, 0);
            match lz4_flex::block::decompress_into(stored, &mut raw) {
                Ok(n) if n == raw_len => Ok(raw),
                Ok(n) => Err(short(n)),
                Err(e) => Err(format!("lz4: {e}")),
            }
        }
        Codec::Zstd => {
            let raw = zstd::decompress(stored, raw_len)?;
            if raw.len() == raw_len { Ok(raw) } else { Err(short(raw.len())) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::buffers::Buffer;

    /// Blocks that a compressor never writes must not show old bytes of the buffer.
    #[test]
    fn what_another_block_left_in_memory_is_never_part_of_an_answer() {
        for (name, stored) in [
            ("a copy from where it is to be written", &[0x1f, b'x', 0, 0, 255, 60, 0x50, 1, 2, 3, 4, 5][..]),
            ("a copy from before the beginning", &[0x1f, b'x', 9, 0, 255, 60, 0x50, 1, 2, 3, 4, 5][..]),
            ("too little", &[0x50, 1, 2, 3, 4, 5][..]),
        ] {
            let mut before = buffers::take(340);
            before.resize(340, b's');
            drop(Buffer::from(before));
            let answer = decompress(Codec::Lz4, stored, 340);
            assert!(answer.is_err(), "{name}: {answer:?}");
        }
    }
}
