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

use super::frame::{Frame, Item, Items, decode_full};
use super::head::{
    ALIGN, ALONE, AloneHead, Base, Behind, Fault, FileIdentity, SHORT_BYTES_MAX, TAG_CELL, TAG_SHORT,
};
use crate::types::codec::{Decoder, Malformed};
use crate::types::{Generation, SeqNo, StoreId};
use crc32c::crc32c_append;

/// Decodes and verifies the frame at `offset` of the file. `bytes` begin there and may go on behind the
/// frame; `base` is the last full frame before it in the file, if that was read. Any bytes are allowed;
/// nothing is allocated.
pub(crate) fn decode_frame<'a>(
    bytes: &'a [u8],
    identity: FileIdentity,
    offset: u64,
    base: Option<&Base>,
) -> Result<Frame<'a>, Fault> {
    // A full frame may begin like a short one, but not verify as one.
    match base.and_then(|base| decode(bytes, identity, offset, base)) {
        Some(Ok(frame)) => Ok(frame),
        Some(Err(fault @ Fault::Checksum { .. })) => decode_full(bytes, identity, offset).map_err(|_| fault),
        // Its first byte may be that of a damaged full frame.
        None | Some(Err(_)) => decode_full(bytes, identity, offset),
    }
}

/// The short frame at `offset`; `None` if none begins with such a byte.
fn decode<'a>(
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
    if computed != stored && !planted!(Bug::SkipWalChecksum) {
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
    let sum = crc32c_append(identity.seed(offset), &bytes[..body_at]);
    let (mut sums, sum) = items.sums(identity, sum, if alone { 1 } else { usize::MAX });
    if !alone {
        sums.push((body_at + body.len(), sum.to_le_bytes()));
    }
    for (at, crc) in sums {
        if let Some(stored) = bytes.get_mut(at..at + 4) {
            stored.copy_from_slice(&crc);
        }
    }
}
