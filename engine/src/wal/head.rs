//! What frames begin with: the head of a full frame, which also tells short ones behind it what they count
//! from ([`Base`]), the heads of short frames, and the tags of items. `frame` and `delta_frame` read what
//! follows.

use crate::types::codec::{Decoded as Read, Decoder, Malformed, put_varint};
use crate::types::{Generation, LogFileId, LogPosition, SeqNo, StoreId};
use crc32c::{crc32c, crc32c_append};
use std::fmt;

/// Bytes of a frame's head.
pub(crate) const HEAD_BYTES: usize = 32;
/// Frames begin at, and are padded to, multiples of this.
pub(crate) const ALIGN: u64 = 8;
/// The longest frame the head can describe.
pub(crate) const FRAME_BYTES_MAX: u64 = u32::MAX as u64 * ALIGN;
/// Sequence numbers and wall clocks have seven bytes in the head.
pub(super) const U56_MAX: u64 = (1 << 56) - 1;
/// In the head's byte for the file synced to: nothing known.
pub(super) const SYNCED_UNKNOWN: u8 = 255;

/// First byte of a part header.
pub(super) const TAG_PART: u8 = 0x01;
/// Bit of a cell's first byte; the two lowest bits are its kind.
pub(super) const TAG_CELL: u8 = 0x80;
pub(super) const CELL_TIMESTAMP: u8 = 0x04;
pub(super) const CELL_WRITTEN: u8 = 0x08;
/// Bit of a range tombstone's first byte.
pub(super) const TAG_TOMBSTONE: u8 = 0x40;
pub(super) const TOMBSTONE_END: u8 = 0x01;
pub(super) const TOMBSTONE_TIMES: u8 = 0x02;
/// Either: a copy made by cleaning, which carries its own sequence number.
pub(super) const COPIED: u8 = 0x10;

/// Which file bytes belong to: the part of a checksum's seed that is the same for the whole file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FileIdentity {
    pub(crate) file: LogFileId,
    base: u32,
}

impl FileIdentity {
    pub(crate) fn new(database_id: u64, file: LogFileId) -> Self {
        let base = crc32c_append(crc32c(&database_id.to_le_bytes()), &file.0.to_le_bytes());
        Self { file, base }
    }

    /// What a checksum of bytes at that offset starts from. The factors are odd, so that offsets which differ
    /// only in their lower or only in their upper half never share a seed.
    #[inline]
    pub(super) fn seed(self, offset: u64) -> u32 {
        let (low, high) = (offset as u32, (offset >> 32) as u32);
        self.base ^ low.wrapping_mul(0x9e37_79b1) ^ high.wrapping_mul(0x85eb_ca77)
    }
}

/// Why bytes are not the frame (or header) that should be there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fault {
    /// Too few bytes up to the end of the file (or of its history).
    Short { need: u64, have: u64 },
    /// A checksum differs.
    Checksum { of: &'static str, at: u64, stored: u32, computed: u32 },
    /// Intact bytes that make no sense, or a head that cannot be one.
    Malformed { what: &'static str, at: u64 },
    /// No such file.
    NoFile,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Short { need, have } => write!(f, "only {have} of {need} bytes"),
            Fault::Checksum { of, at, stored, computed } => {
                write!(f, "{of} at byte {at} with checksum {stored:08x} over bytes that give {computed:08x}")
            }
            Fault::Malformed { what, at } => write!(f, "{what} at byte {at}"),
            Fault::NoFile => f.write_str("no such file"),
        }
    }
}

/// What a frame holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum FrameKind {
    /// Cells and range tombstones, whole or not at all.
    Batch = 1,
    /// A [`Note`].
    Note = 2,
}

/// A frame's head, decoded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Head {
    pub(crate) kind: FrameKind,
    /// Bytes of the whole frame, padding included.
    pub(crate) length: u64,
    /// The sequence number of the frame's first entry that is not a copy.
    pub(crate) first_seq: SeqNo,
    /// Wall clock of the write, microseconds.
    pub(crate) wall_us: u64,
    /// Up to where the WAL was known synced when the frame was written.
    pub(crate) synced: Option<LogPosition>,
}

impl Head {
    /// Decodes and verifies a head at `offset`; `bytes` may go on behind it. O(1).
    pub(crate) fn decode(bytes: &[u8], identity: FileIdentity, offset: u64) -> Result<Self, Fault> {
        let Some(head) = bytes.first_chunk::<HEAD_BYTES>() else {
            return Err(Fault::Short { need: HEAD_BYTES as u64, have: bytes.len() as u64 });
        };
        let u32_at = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let u56_at = |at: usize| ((u64::from(u32_at(at + 4)) << 32) | u64::from(u32_at(at))) & U56_MAX;
        let malformed = |what| Fault::Malformed { what, at: offset };
        let kind = match head[23] {
            1 => FrameKind::Batch,
            2 => FrameKind::Note,
            _ => return Err(malformed("no frame")),
        };
        let length = u64::from(u32_at(4)) * ALIGN;
        if length < HEAD_BYTES as u64 {
            return Err(malformed("a frame shorter than its head"));
        }
        let (stored, computed) = (u32_at(0), crc32c_append(identity.seed(offset), &head[4..]));
        if stored != computed {
            return Err(Fault::Checksum { of: "a frame head", at: offset, stored, computed });
        }
        let synced = match head[31] {
            SYNCED_UNKNOWN => None,
            back => {
                let file = identity.file.0.checked_sub(u64::from(back)).map(LogFileId);
                let file = file.ok_or(malformed("a synced position before the first file"))?;
                Some(LogPosition { file, offset: u64::from(u32_at(12)) * ALIGN })
            }
        };
        if synced.is_some_and(|s| s > LogPosition { file: identity.file, offset }) {
            return Err(malformed("a synced position behind the frame that tells it"));
        }
        let (first_seq, wall_us) = (SeqNo(u56_at(16)), u56_at(24));
        Ok(Self { kind, length, first_seq, wall_us, synced })
    }

    /// For short frames behind it, if it is that of the full frame at `offset` whose last entry belongs to
    /// `part`.
    pub(super) fn base(&self, offset: u64, part: Option<(StoreId, Generation)>) -> Base {
        let Self { first_seq, wall_us, synced, .. } = *self;
        Base { offset, first_seq, wall_us, synced, part, told_before: false }
    }
}

/// Bit of a cell's tag: the cell is a frame by itself.
pub(super) const ALONE: u8 = 0x20;
/// Bit of such a cell's tag: its part follows.
pub(super) const ALONE_PART: u8 = 0x40;
/// First byte of a short batch.
pub(super) const TAG_SHORT: u8 = 0x02;
/// The longest short frame, padding included: so much is read before any of it is verified.
pub(super) const SHORT_BYTES_MAX: u64 = 4 << 10;
/// A short frame begins less than this behind its base.
pub(super) const REACH_BYTES: u64 = 4 << 10;
/// The least that a medium loses at once.
const SECTOR: u64 = 512;
/// A short frame is written less than this after its base, in microseconds.
const LATER_US_MAX: u64 = 1 << 28;
/// The first sequence number of a short frame is less than this above that of its base.
const LATER_SEQS_MAX: u64 = 1 << 14;
/// The longest head of either kind: tag, three differences, and store and generation or the length of the
/// body.
pub(super) const SHORT_HEAD_BYTES_MAX: usize = 1 + (2 + 2 + 4) + (5 + 10);

/// A full frame, for the short ones behind it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Base {
    pub(super) offset: u64,
    pub(super) first_seq: SeqNo,
    pub(super) wall_us: u64,
    pub(super) synced: Option<LogPosition>,
    /// The part that its last entry belongs to.
    pub(super) part: Option<(StoreId, Generation)>,
    /// Whether a full frame before it told of the same sync.
    pub(super) told_before: bool,
}

/// How far behind its base a short frame is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Behind {
    pub(super) eights: u64,
    seqs: u64,
    micros: u64,
}

impl Base {
    /// How far behind this base a frame is, if it may be a short one.
    pub(super) fn behind(&self, offset: u64, head: &Head) -> Option<Behind> {
        let bytes = offset - self.offset;
        let seqs = head.first_seq.0.checked_sub(self.first_seq.0).filter(|seqs| *seqs < LATER_SEQS_MAX)?;
        let micros = head.wall_us.checked_sub(self.wall_us).filter(|micros| *micros < LATER_US_MAX)?;
        let is_near = match self.told_before {
            true => bytes < REACH_BYTES,
            false => offset / SECTOR == self.offset / SECTOR,
        };
        let may = head.kind == FrameKind::Batch
            && head.synced == self.synced
            && head.length <= SHORT_BYTES_MAX
            && is_near;
        may.then_some(Behind { eights: bytes / ALIGN, seqs, micros })
    }
}

impl Behind {
    fn put(self, out: &mut Vec<u8>) {
        put_varint(out, self.eights);
        put_varint(out, self.seqs);
        put_varint(out, self.micros);
    }

    pub(super) fn read(from: &mut Decoder<'_>) -> Read<Self> {
        Ok(Self { eights: from.varint()?, seqs: from.varint()?, micros: from.varint()? })
    }

    /// The head of such a frame, whose bytes before padding are the first `end` of these.
    pub(super) fn head(self, bytes: &[u8], end: usize, offset: u64, base: &Base) -> Result<Head, Fault> {
        let malformed = |what| Fault::Malformed { what, at: offset };
        if self.eights.checked_mul(ALIGN).and_then(|bytes| offset.checked_sub(bytes)) != Some(base.offset) {
            return Err(malformed("a short frame of another base"));
        }
        let (length, have) = ((end as u64).next_multiple_of(ALIGN), bytes.len() as u64);
        let padding = bytes.get(end..length as usize).ok_or(Fault::Short { need: length, have })?;
        if padding.iter().any(|byte| *byte != 0) {
            return Err(malformed("padding that is not zero"));
        }
        let sum = |base: u64, more: u64| base.checked_add(more).filter(|sum| *sum <= U56_MAX);
        let first_seq = sum(base.first_seq.0, self.seqs).ok_or(malformed("sequence numbers over 56 bits"))?;
        let wall_us = sum(base.wall_us, self.micros).ok_or(malformed("a wall clock over 56 bits"))?;
        let (kind, synced) = (FrameKind::Batch, base.synced);
        Ok(Head { kind, length, first_seq: SeqNo(first_seq), wall_us, synced })
    }

    pub(super) fn first_seq(self, base: &Base) -> SeqNo {
        SeqNo(base.first_seq.0.saturating_add(self.seqs))
    }
}

/// The head of a cell alone, behind its tag.
pub(super) struct AloneHead {
    pub(super) behind: Behind,
    /// The part, where it is not that of the base.
    pub(super) part: Option<(StoreId, Generation)>,
}

impl AloneHead {
    /// The tag of the same cell in a batch.
    pub(super) fn tag_in_batch(tag: u8) -> u8 {
        tag & !(ALONE | ALONE_PART)
    }

    /// Reads the head that follows a tag.
    pub(super) fn read(tag: u8, item: &mut Decoder<'_>) -> Read<Self> {
        if tag & (TAG_CELL | ALONE) != TAG_CELL | ALONE {
            return Err(Malformed("no cell alone"));
        }
        let behind = Behind::read(item)?;
        let part = if tag & ALONE_PART != 0 { Some(read_part(item)?) } else { None };
        Ok(Self { behind, part })
    }

    /// The head with its tag, for a cell of that tag.
    pub(super) fn put(out: &mut Vec<u8>, tag: u8, behind: Behind, part: Option<(StoreId, Generation)>) {
        out.push(tag | ALONE | if part.is_some() { ALONE_PART } else { 0 });
        behind.put(out);
        if let Some((store, generation)) = part {
            put_varint(out, u64::from(store.0));
            put_varint(out, generation.0);
        }
    }
}

/// Store and generation of a part.
pub(super) fn read_part(item: &mut Decoder<'_>) -> Read<(StoreId, Generation)> {
    let store = u32::try_from(item.varint()?).map_err(|_| Malformed("a store id over 32 bits"))?;
    Ok((StoreId(store), Generation(item.varint()?)))
}

/// The head of a short batch with a body of that many bytes.
pub(super) fn put_batch_head(out: &mut Vec<u8>, behind: Behind, body_bytes: usize) {
    out.push(TAG_SHORT);
    behind.put(out);
    put_varint(out, body_bytes as u64);
}
