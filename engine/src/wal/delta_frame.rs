//! Short frames: batches whose head is relative to a full frame before them, their *base*, and so takes few
//! bytes.
//!
//! Most of a full head is the same as in the frame before: the file, the position up to which the WAL was
//! synced, and usually the store and memtable written to. A short frame has only the differences: how far
//! behind its base it is, in bytes, sequence numbers and time, and its part where that differs. There are two
//! kinds. A *cell alone* has its head in its own entry, right behind the tag, and the checksum of the entry
//! is the frame's; so it can still be read and verified alone, as SSTables with values in the WAL do. A
//! *short batch* has a head of some seven bytes before its items and one checksum behind them, over head,
//! parts and the checksums of its entries.
//!
//! A frame is full where it cannot be short: the first of a file, where the WAL was synced since its base was
//! written, where the clock went back, where it is longer than [`SHORT_BYTES_MAX`], and [`REACH_BYTES`]
//! behind its base. Full frames are the evidence of how far the WAL was synced. The first one after a sync
//! lies right behind the synced bytes, often in the same sector, so the next frame that begins in another
//! sector is full too: no single bad sector destroys both synced bytes and all evidence that they were
//! synced.
//!
//! A short frame names its base and depends on no frame between. So behind a damaged frame all others can
//! still be read, unless the damaged one was their base. Without it their sequence numbers are unknown, but
//! their checksums still prove that they were written.
//!
//! In both forms the checksum shows whether a frame begins at an offset; a short one can be read only with
//! its base. The short form is tried first: the inside of a short frame is user data, and must not be taken
//! for a head.

use super::frame::{ALIGN, Fault, FileIdentity, Frame, FrameKind, Head, Item, Items, TAG_CELL, U56_MAX};
use crate::types::codec::{Decoded as Read, Decoder, Malformed, put_varint};
use crate::types::{Generation, LogPosition, SeqNo, StoreId};
use crc32c::crc32c_append;

/// Bit of a cell's tag: the cell alone is a frame.
pub(super) const ALONE: u8 = 0x20;
/// Bit of such a cell's tag: its part follows.
pub(super) const ALONE_PART: u8 = 0x40;
/// First byte of a short batch.
pub(super) const TAG_SHORT: u8 = 0x02;
/// The longest short frame, padding included: so many bytes are read before any is verified.
pub(super) const SHORT_BYTES_MAX: u64 = 4 << 10;
/// The distance behind its base at which a short frame no longer may begin.
pub(super) const REACH_BYTES: u64 = 4 << 10;
/// The smallest unit that a medium loses.
const SECTOR: u64 = 512;
/// The limit, in microseconds, of the time between a short frame and its base.
const LATER_US_MAX: u64 = 1 << 28;
/// The limit of the difference between their first sequence numbers.
const LATER_SEQS_MAX: u64 = 1 << 14;
/// The longest head of either kind: tag, three differences, and store and generation or the length of the
/// body.
pub(super) const SHORT_HEAD_BYTES_MAX: usize = 1 + (2 + 2 + 4) + (5 + 10);

/// A full frame as the base of the short frames after it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Base {
    pub(super) offset: u64,
    pub(super) first_seq: SeqNo,
    pub(super) wall_us: u64,
    pub(super) synced: Option<LogPosition>,
    /// The part that its last entry belongs to.
    pub(super) part: Option<(StoreId, Generation)>,
    /// Whether an earlier full frame recorded the same sync.
    pub(super) told_before: bool,
}

/// The distance of a short frame behind its base.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Behind {
    eights: u64,
    seqs: u64,
    micros: u64,
}

impl Base {
    /// The distance of a frame behind this base, if it may be a short one.
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

    fn read(from: &mut Decoder<'_>) -> Read<Self> {
        Ok(Self { eights: from.varint()?, seqs: from.varint()?, micros: from.varint()? })
    }

    /// The head of a frame at this distance, whose bytes before padding are the first `end` of these.
    fn head(self, bytes: &[u8], end: usize, offset: u64, base: &Base) -> Result<Head, Fault> {
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

    fn first_seq(self, base: &Base) -> SeqNo {
        SeqNo(base.first_seq.0.saturating_add(self.seqs))
    }
}

/// The head of a cell alone, after its tag.
pub(super) struct AloneHead {
    behind: Behind,
    /// The part, if it is not the base's.
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

/// Encodes the head of a short batch with a body of that many bytes.
pub(super) fn put_batch_head(out: &mut Vec<u8>, behind: Behind, body_bytes: usize) {
    out.push(TAG_SHORT);
    behind.put(out);
    put_varint(out, body_bytes as u64);
}

/// The short frame at `offset`; `None` if none begins with such a byte.
pub(super) fn decode<'a>(
    bytes: &'a [u8],
    identity: FileIdentity,
    offset: u64,
    base: &Base,
) -> Option<Result<Frame<'a>, Fault>> {
    let bytes = &bytes[..bytes.len().min(SHORT_BYTES_MAX as usize)];
    match *bytes.first()? {
        TAG_SHORT => Some(batch(bytes, identity, offset, base)),
        tag if tag & (TAG_CELL | ALONE) == TAG_CELL | ALONE => Some(alone(bytes, identity, offset, base)),
        _ => None,
    }
}

fn alone<'a>(bytes: &'a [u8], identity: FileIdentity, offset: u64, base: &Base) -> Result<Frame<'a>, Fault> {
    let malformed = |Malformed(what)| Fault::Malformed { what, at: offset };
    let AloneHead { behind, .. } =
        AloneHead::read(bytes[0], &mut Decoder::new(&bytes[1..])).map_err(malformed)?;
    let items = |bytes| {
        let mut items = Items::new(bytes, offset, offset, behind.first_seq(base));
        (items.part, items.is_alone) = (base.part, true);
        items
    };
    let end = match items(bytes).next().map_err(malformed)? {
        Item::Entry(entry) => entry.bytes.len() + 4,
        Item::Part(_) | Item::End => return Err(malformed(Malformed("no cell alone"))),
    };
    let head = behind.head(bytes, end, offset, base)?;
    Ok(Frame::verified(head, identity, items(&bytes[..end]), Some(base), 0)?.0)
}

fn batch<'a>(bytes: &'a [u8], identity: FileIdentity, offset: u64, base: &Base) -> Result<Frame<'a>, Fault> {
    let malformed = |Malformed(what)| Fault::Malformed { what, at: offset };
    let mut from = Decoder::new(&bytes[1..]);
    let behind = Behind::read(&mut from).map_err(malformed)?;
    let body = from.length().map_err(malformed)?;
    let body_at = bytes.len() - from.rest().len();
    let body = from.take(body).map_err(malformed)?;
    let stored = from.u32().map_err(malformed)?;
    let head = behind.head(bytes, bytes.len() - from.rest().len(), offset, base)?;
    let mut items = Items::new(body, offset, offset + body_at as u64, head.first_seq);
    items.part = base.part;
    let sum = crc32c_append(identity.seed(offset), &bytes[..body_at]);
    let (frame, computed) = Frame::verified(head, identity, items, Some(base), sum)?;
    if computed != stored && !planted!(Bug::SkipLogChecksum) {
        return Err(Fault::Checksum { of: "a short batch", at: offset, stored, computed });
    }
    Ok(frame)
}

/// The length of the short frame at `offset` whose base was not read, if a whole one is there. Its contents
/// cannot be decoded without the base.
pub(super) fn orphan(bytes: &[u8], identity: FileIdentity, offset: u64) -> Option<u64> {
    let behind = Behind::read(&mut Decoder::new(bytes.get(1..)?)).ok()?;
    let base = Base {
        offset: offset.checked_sub(behind.eights.checked_mul(ALIGN)?)?,
        first_seq: SeqNo::ZERO,
        wall_us: 0,
        synced: None,
        part: Some((StoreId(0), Generation(0))),
        told_before: false,
    };
    Some(decode(bytes, identity, offset, &base)?.ok()?.head.length)
}

/// Fixes the checksums of a short frame after its bytes were changed, as a forger would.
#[cfg(any(test, feature = "testing"))]
pub(super) fn sign(bytes: &mut [u8], identity: FileIdentity, offset: u64, base: &Base) {
    let alone = bytes.first() != Some(&TAG_SHORT);
    let mut head = Decoder::new(bytes.get(1..).unwrap_or_default());
    let body = if alone { Ok(&*bytes) } else { Behind::read(&mut head).and_then(|_| head.bytes()) };
    let Ok(body) = body else { return };
    let body_at = if alone { 0 } else { bytes.len() - head.rest().len() - body.len() };
    let mut items = Items::new(body, offset, offset + body_at as u64, base.first_seq);
    (items.part, items.is_alone) = (base.part, alone);
    let mut sum = crc32c_append(identity.seed(offset), &bytes[..body_at]);
    let mut sums = Vec::new();
    while let Ok(item) = items.next() {
        match item {
            Item::Part(part) => sum = crc32c_append(sum, part),
            Item::Entry(entry) => {
                let crc = crc32c_append(identity.seed(entry.at), entry.bytes).to_le_bytes();
                sum = crc32c_append(sum, &crc);
                sums.push(((entry.at - offset) as usize + entry.bytes.len(), crc));
            }
            Item::End => break,
        }
        if alone {
            break;
        }
    }
    if !alone {
        sums.push((body_at + body.len(), sum.to_le_bytes()));
    }
    for (at, crc) in sums {
        if let Some(stored) = bytes.get_mut(at..at + 4) {
            stored.copy_from_slice(&crc);
        }
    }
}
