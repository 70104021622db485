//! Blocks in the file. Each carries a head of 15 bytes, so that an SSTable whose index is lost can still be
//! walked block by block, and a checksum over head and payload that is seeded with the SSTable's random
//! identity and the block's offset: a block of another SSTable, from another place or from an earlier life of
//! the file fails.
//!
//! The head has a check of its own, of two bytes, only to make the search for the next block in damaged bytes
//! cheap; nothing is trusted before the whole checksum holds.

use super::BLOCK_TARGET_BYTES_MAX;
use super::compression::{Codec, decompress};
use crate::error::{Error, ErrorKind, Result};
use crate::storage::ReadFile;
use crate::types::KEY_BYTES_MAX;
use crate::types::codec::{Decoded, Decoder, Malformed, put_varint};
use std::cell::RefCell;
use std::path::Path;

/// Bytes before a block's payload.
pub(super) const HEAD_BYTES: usize = 15;

/// The largest uncompressed block that is accepted: a target-sized one plus one cell and its key, restarts
/// included. (The format allows values of 1 GiB.)
pub(super) const RAW_BYTES_MAX: usize = (1 << 30) + 16 * BLOCK_TARGET_BYTES_MAX + 16 * KEY_BYTES_MAX;

/// The kind of a block; part of its checksum.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum BlockKind {
    Data = 1,
    Filter = 2,
    Index = 3,
    Tombstones = 4,
    Sketch = 5,
    Properties = 6,
    Top = 7,
}

impl BlockKind {
    fn from_u8(n: u8) -> Option<Self> {
        use BlockKind::*;
        [Data, Filter, Index, Tombstones, Sketch, Properties, Top].into_iter().find(|kind| *kind as u8 == n)
    }
}

/// The place and length of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Handle {
    /// File offset of the block's head.
    pub(crate) offset: u64,
    /// Payload bytes in the file.
    pub(crate) stored: u32,
    /// Payload bytes uncompressed.
    pub(crate) raw: u32,
}

impl Handle {
    /// The offset after the block.
    pub(crate) fn end(&self) -> u64 {
        self.offset + self.file_bytes()
    }

    /// Bytes of head and payload.
    pub(crate) fn file_bytes(&self) -> u64 {
        HEAD_BYTES as u64 + u64::from(self.stored)
    }

    /// The file offset of the byte at `at` of the uncompressed payload, about.
    #[inline]
    pub(super) fn place(&self, at: usize) -> u64 {
        self.offset + at as u64 * self.file_bytes() / u64::from(self.raw.max(1))
    }

    pub(super) fn put(&self, out: &mut Vec<u8>) {
        put_varint(out, self.offset);
        put_varint(out, u64::from(self.stored));
        put_varint(out, u64::from(self.raw));
    }

    /// Decodes a handle and checks that its block ends at or before `file_end`.
    pub(super) fn decode(from: &mut Decoder<'_>, file_end: u64) -> Decoded<Self> {
        let (offset, stored, raw) = (from.varint()?, from.varint()?, from.varint()?);
        Self::checked(offset, stored, raw, file_end)
    }

    pub(super) fn checked(offset: u64, stored: u64, raw: u64, file_end: u64) -> Decoded<Self> {
        if raw > RAW_BYTES_MAX as u64 || stored > raw {
            return Err(Malformed("block length over the limit"));
        }
        let handle = Handle { offset, stored: stored as u32, raw: raw as u32 };
        match offset.checked_add(handle.file_bytes()) {
            Some(end) if end <= file_end => Ok(handle),
            _ => Err(Malformed("block reaches over the end of the file")),
        }
    }
}

/// The start value of the checksum of a block at that offset.
pub(super) fn seed(identity: u64, offset: u64) -> u32 {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&identity.to_le_bytes());
    bytes[8..].copy_from_slice(&offset.to_le_bytes());
    crc32c::crc32c(&bytes)
}

/// A block's head: kind and codec, lengths, then the two checks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Head {
    pub(super) kind: BlockKind,
    pub(super) codec: Codec,
    pub(super) handle: Handle,
    crc: u32,
}

impl Head {
    /// Head bytes for a payload at `offset`.
    pub(super) fn encode(
        kind: BlockKind,
        codec: Codec,
        raw_len: usize,
        payload: &[u8],
        identity: u64,
        offset: u64,
    ) -> [u8; HEAD_BYTES] {
        let mut head = [0; HEAD_BYTES];
        head[0] = (kind as u8) << 4 | codec as u8;
        head[1..5].copy_from_slice(&(payload.len() as u32).to_le_bytes());
        head[5..9].copy_from_slice(&(raw_len as u32).to_le_bytes());
        let start = crc32c::crc32c_append(seed(identity, offset), &head[..9]);
        head[9..11].copy_from_slice(&(start as u16).to_le_bytes());
        let crc = crc32c::crc32c_append(start, payload);
        head[11..].copy_from_slice(&crc.to_le_bytes());
        head
    }

    /// Decodes a head at `offset`, if its own check holds and its lengths are possible.
    pub(super) fn decode(
        bytes: &[u8; HEAD_BYTES],
        identity: u64,
        offset: u64,
        file_end: u64,
    ) -> Decoded<Self> {
        let start = crc32c::crc32c_append(seed(identity, offset), &bytes[..9]);
        let mut fields = Decoder::new(bytes);
        let (tag, stored, raw) = (fields.u8()?, fields.u32()?, fields.u32()?);
        let check = fields.take(2)?;
        let crc = fields.u32()?;
        if check != (start as u16).to_le_bytes() {
            return Err(Malformed("check of the block's head does not match"));
        }
        let kind = BlockKind::from_u8(tag >> 4).ok_or(Malformed("unknown kind of block"))?;
        let codec = Codec::from_u8(tag & 15).ok_or(Malformed("unknown compression"))?;
        let handle = Handle::checked(offset, stored.into(), raw.into(), file_end)?;
        Ok(Self { kind, codec, handle, crc })
    }

    /// Checks the checksum over head and payload.
    fn check(&self, head: &[u8], payload: &[u8], identity: u64) -> Result<(), String> {
        let start = crc32c::crc32c_append(seed(identity, self.handle.offset), &head[..9]);
        let crc = crc32c::crc32c_append(start, payload);
        if crc != self.crc && !planted!(Bug::SkipBlockChecksum) {
            return Err(format!("block checksum is {crc:08x}, expected {:08x}", self.crc));
        }
        Ok(())
    }

    /// The uncompressed payload, if the checksum holds.
    pub(super) fn open(&self, head: &[u8], payload: &[u8], identity: u64) -> Result<Vec<u8>, String> {
        self.check(head, payload, identity)?;
        decompress(self.codec, payload, self.handle.raw as usize)
    }
}

/// Whether `bytes`, head and payload at `handle`, are that block, uncompressed.
pub(super) fn is_sound(bytes: &[u8], identity: u64, kind: BlockKind, handle: Handle) -> bool {
    let Some((first, payload)) = bytes.split_first_chunk() else { return false };
    Head::decode(first, identity, handle.offset, handle.end()).is_ok_and(|head| {
        head.handle == handle
            && head.kind == kind
            && head.codec == Codec::Raw
            && head.check(first, payload, identity).is_ok()
    })
}

/// The uncompressed payload of the head and payload in `bytes`, as read from `handle`.
pub(super) fn open_block(
    path: &Path,
    bytes: &[u8],
    identity: u64,
    kind: BlockKind,
    handle: Handle,
) -> Result<(Vec<u8>, Codec)> {
    let bad = |message: String| Error::corruption(path, handle.offset, message);
    let (first, payload) = bytes.split_first_chunk().ok_or_else(|| bad("block cut short".into()))?;
    let head = Head::decode(first, identity, handle.offset, handle.end()).map_err(|e| bad(e.0.into()))?;
    if head.handle != handle || head.kind != kind {
        return Err(bad(format!(
            "found a {:?} block of {} (raw {}) bytes, expected {kind:?} of {} (raw {})",
            head.kind, head.handle.stored, head.handle.raw, handle.stored, handle.raw
        )));
    }
    let raw = head.open(first, payload, identity).map_err(bad)?;
    Ok((raw, head.codec))
}

/// Reads and checks the block at `handle`, whose lengths the file's bounds. A block that fails is read once
/// more: the bits may have flipped in the transfer.
pub(super) fn read_block(
    file: &dyn ReadFile,
    path: &Path,
    identity: u64,
    kind: BlockKind,
    handle: Handle,
) -> Result<(Vec<u8>, Codec)> {
    STORED.with_borrow_mut(|buffer| {
        let len = handle.file_bytes() as usize;
        if buffer.len() < len {
            buffer.resize(len, 0);
        }
        let bytes = &mut buffer[..len];
        let read = read_at(file, path, bytes, handle.offset);
        let opened = read.and_then(|()| open_block(path, bytes, identity, kind, handle));
        let opened = opened.or_else(|first| match first.kind() {
            ErrorKind::Corruption if file.read_again_at(bytes, handle.offset).is_ok() => {
                open_block(path, bytes, identity, kind, handle).map_err(|_| first)
            }
            _ => Err(first),
        });
        if buffer.len() > STORED_KEPT_MAX {
            *buffer = Vec::new();
        }
        opened
    })
}

thread_local! {
    /// The compressed bytes of a block: a new buffer for each would have to be zeroed first.
    static STORED: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// The most bytes that a thread keeps of `STORED`.
const STORED_KEPT_MAX: usize = 1 << 20;

/// Reads, and distinguishes a file that is too short (corruption) from one that cannot be read.
pub(super) fn read_at(file: &dyn ReadFile, path: &Path, buffer: &mut [u8], offset: u64) -> Result<()> {
    file.read_exact_at(buffer, offset).map_err(|e| match e.kind() {
        std::io::ErrorKind::UnexpectedEof => {
            let message = format!("file ends within the {} bytes expected here", buffer.len());
            Error::corruption(path, offset, message)
        }
        _ => Error::io("read table", path, e),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;
    use std::sync::atomic::{AtomicU32, Ordering};

    /// A file whose first reads have a flipped bit.
    struct Noisy {
        bytes: Vec<u8>,
        bad_reads: AtomicU32,
    }

    impl ReadFile for Noisy {
        fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
            buffer.copy_from_slice(&self.bytes[offset as usize..][..buffer.len()]);
            let left = self.bad_reads.load(Ordering::Relaxed);
            if left > 0 {
                self.bad_reads.store(left - 1, Ordering::Relaxed);
                buffer[HEAD_BYTES + 3] ^= 4;
            }
            Ok(())
        }

        fn len(&self) -> io::Result<u64> {
            Ok(self.bytes.len() as u64)
        }
    }

    #[test]
    fn a_bit_flipped_on_the_way_costs_one_more_read_and_one_on_the_medium_is_told() {
        let payload = b"what stands in the block";
        let mut bytes = vec![0; 40];
        let head = Head::encode(BlockKind::Data, Codec::Raw, payload.len(), payload, 7, 40);
        bytes.extend_from_slice(&head);
        bytes.extend_from_slice(payload);
        let handle = Handle { offset: 40, stored: payload.len() as u32, raw: payload.len() as u32 };
        let read = |bad_reads| {
            let file = Noisy { bytes: bytes.clone(), bad_reads: AtomicU32::new(bad_reads) };
            read_block(&file, Path::new("t"), 7, BlockKind::Data, handle)
        };
        assert_eq!(read(1).unwrap().0, payload);
        let told = read(2).unwrap_err();
        assert!(told.to_string().contains("checksum"), "{told}");
    }
}
