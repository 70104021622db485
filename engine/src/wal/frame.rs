//! The frame: one batch, or one note, in a WAL file; here in its full form. `docs/format-wal.md` has the byte
//! layout.
//!
//! Each checksum has its purpose. The *head* has its own, so that one cheap check of 32 bytes shows whether a
//! frame begins at an offset; so recovery can search for frames after a damaged one without trusting lengths.
//! Every *entry* (cell or range tombstone) has its own, so that one cell can be read and verified alone. The
//! *body* checksum in the head covers the part headers and the entries' checksums, so that entries cannot be
//! lost or swapped, and no byte is checksummed twice.
//!
//! All of them start from a seed made of database, file number and offset. Two seeds of one offset differ
//! whenever the file numbers do, and a CRC maps different seeds over equal bytes to different sums, so a
//! frame left over in a recycled file is refused with certainty, not just with high odds.
//!
//! A head of 32 bytes for a put of twenty would be most of the WAL, so most frames are *short*
//! (`delta_frame`): they count from the last full one and have only the differences.

use super::head::{
    ALIGN, AloneHead, Base, CELL_TIMESTAMP, CELL_WRITTEN, COPIED, Fault, FileIdentity, FrameKind, HEAD_BYTES,
    Head, TAG_CELL, TAG_PART, TAG_TOMBSTONE, TOMBSTONE_END, TOMBSTONE_TIMES, U56_MAX, read_part,
};
use crate::types::codec::{Decoded as Read, Decoder, Malformed};
use crate::types::{CellRef, Generation, KeyRange, Kind, LogFileId, LogPosition, RangeTombstone};
use crate::types::{SeqNo, StoreId, Timestamp};
use crc32c::crc32c_append;

/// A note: "the manifest was durable up to here when this was written". It lets an open notice a manifest
/// that lost its end. Ordered as manifests grow.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Note {
    pub(crate) manifest: u64,
    pub(crate) length: u64,
}

/// The position of an entry in the WAL, with its length, checksum included.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct EntryPosition {
    pub(crate) at: LogPosition,
    pub(crate) length: u64,
}

/// A verified frame.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frame<'a> {
    pub(crate) head: Head,
    pub(crate) start: LogPosition,
    /// The highest sequence number that this frame assigns, if any.
    pub(crate) last_seq: Option<SeqNo>,
    /// The base of short frames after it: itself, if it is a full one.
    pub(super) base: Base,
    items: Items<'a>,
}

/// A cell or range tombstone of a frame, with its store and memtable.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Logged<'a> {
    pub(crate) store: StoreId,
    pub(crate) generation: Generation,
    pub(crate) place: EntryPosition,
    /// Whether it was logged again by cleaning, with its first sequence number.
    pub(crate) copied: bool,
    pub(crate) entry: Entry<'a>,
}

impl Logged<'_> {
    /// Its sequence number.
    pub(crate) fn seq(&self) -> SeqNo {
        match &self.entry {
            Entry::Cell(cell) => cell.seq,
            Entry::RangeTombstone(tombstone) => tombstone.seq,
        }
    }
}

/// A cell or range tombstone.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Entry<'a> {
    Cell(CellRef<'a>),
    RangeTombstone(RangeTombstone),
}

impl<'a> Frame<'a> {
    /// The position of the next frame.
    pub(crate) fn end(&self) -> LogPosition {
        LogPosition { file: self.start.file, offset: self.start.offset + self.head.length }
    }

    /// The note, if the frame is one.
    pub(crate) fn note(&self) -> Option<Note> {
        let mut body = self.items.rest;
        match self.head.kind {
            FrameKind::Batch => None,
            FrameKind::Note => Some(Note { manifest: body.u64().ok()?, length: body.u64().ok()? }),
        }
    }

    /// The cells and range tombstones, in the order written. None for a note.
    pub(crate) fn entries(&self) -> impl Iterator<Item = Logged<'a>> + use<'a> {
        let file = self.start.file;
        let mut items = match self.head.kind {
            FrameKind::Batch => self.items,
            FrameKind::Note => Items { rest: Decoder::new(&[]), ..self.items },
        };
        // Decoding has verified every item, so there is no error here; one would end the iteration.
        std::iter::from_fn(move || {
            loop {
                match items.next().ok()? {
                    Item::Part(_) => {}
                    Item::Entry(entry) => return Some(entry.logged(file)),
                    Item::End => return None,
                }
            }
        })
    }

    /// Verifies the items of a batch, with a checksum over all of them that continues from `sum`; returns the
    /// frame, which is its own base if it has no other, and that checksum.
    pub(super) fn verified(
        head: Head,
        identity: FileIdentity,
        items: Items<'a>,
        base: Option<&Base>,
        sum: u32,
    ) -> Result<(Self, u32), Fault> {
        let mut walked = items;
        let sum = walked.verify(identity, sum)?;
        let last_seq = (walked.next_seq > head.first_seq.0).then(|| SeqNo(walked.next_seq - 1));
        let offset = items.frame_at;
        let base = base.copied().unwrap_or(head.base(offset, walked.part));
        let start = LogPosition { file: identity.file, offset };
        Ok((Self { head, start, last_seq, base, items }, sum))
    }
}

/// Decodes and verifies the full frame at `offset`. `bytes` begin there and may go on behind the frame.
pub(super) fn decode_full(bytes: &[u8], identity: FileIdentity, offset: u64) -> Result<Frame<'_>, Fault> {
    let head = Head::decode(bytes, identity, offset)?;
    let have = bytes.len() as u64;
    let whole = usize::try_from(head.length).ok().and_then(|n| bytes.get(..n));
    let Some(whole) = whole else { return Err(Fault::Short { need: head.length, have }) };
    let body = &whole[HEAD_BYTES..];
    work!(body.len());
    let items = Items::new(body, offset, offset + HEAD_BYTES as u64, head.first_seq);
    let (frame, computed) = match head.kind {
        FrameKind::Batch => Frame::verified(head, identity, items, None, identity.seed(offset))?,
        FrameKind::Note if body.len() == 16 => {
            let start = LogPosition { file: identity.file, offset };
            let frame = Frame { head, start, last_seq: None, base: head.base(offset, None), items };
            (frame, crc32c_append(identity.seed(offset), body))
        }
        FrameKind::Note => return Err(Fault::Malformed { what: "a note of wrong length", at: offset }),
    };
    let stored = u32::from_le_bytes([whole[8], whole[9], whole[10], whole[11]]);
    if computed != stored && !planted!(Bug::SkipWalChecksum) {
        return Err(Fault::Checksum { of: "a frame body", at: offset, stored, computed });
    }
    Ok(frame)
}

/// Fixes all checksums of a frame after its bytes were changed, as a forger would.
#[cfg(any(test, feature = "testing"))]
pub(super) fn sign_frame(bytes: &mut [u8], identity: FileIdentity, offset: u64) {
    let seed = identity.seed(offset);
    let body = &bytes[HEAD_BYTES..];
    let (sums, sum) = if bytes[23] == FrameKind::Note as u8 {
        (Vec::new(), crc32c_append(seed, body))
    } else {
        Items::new(body, offset, offset + HEAD_BYTES as u64, SeqNo(1)).sums(identity, seed, usize::MAX)
    };
    for (at, crc) in sums {
        bytes[at..at + 4].copy_from_slice(&crc);
    }
    bytes[8..12].copy_from_slice(&sum.to_le_bytes());
    let head = crc32c_append(seed, &bytes[4..HEAD_BYTES]);
    bytes[..4].copy_from_slice(&head.to_le_bytes());
}

/// Walks a batch's body. It trusts nothing, so it serves both for verifying and for reading.
#[derive(Clone, Copy, Debug)]
pub(super) struct Items<'a> {
    rest: Decoder<'a>,
    /// The body's end, as an offset in the file.
    body_end: u64,
    next_seq: u64,
    pub(super) part: Option<(StoreId, Generation)>,
    frame_at: u64,
    /// Whether the body is one cell, which begins with a short frame's head.
    pub(super) is_alone: bool,
}

pub(super) enum Item<'a> {
    Part(&'a [u8]),
    Entry(RawEntry<'a>),
    End,
}

pub(super) struct RawEntry<'a> {
    store: StoreId,
    generation: Generation,
    pub(super) at: u64,
    /// The item's bytes from the tag to before the checksum.
    pub(super) bytes: &'a [u8],
    crc: u32,
    copied: bool,
    what: Raw<'a>,
}

enum Raw<'a> {
    Cell(CellRef<'a>),
    RangeTombstone { start: &'a [u8], end: Option<&'a [u8]>, from: Timestamp, to: Timestamp, seq: SeqNo },
}

impl<'a> Items<'a> {
    /// Walks the body, at `body_at`, of the frame at `frame_at`.
    pub(super) fn new(body: &'a [u8], frame_at: u64, body_at: u64, first_seq: SeqNo) -> Self {
        Self {
            rest: Decoder::new(body),
            body_end: body_at + body.len() as u64,
            next_seq: first_seq.0,
            part: None,
            frame_at,
            is_alone: false,
        }
    }

    fn at(&self) -> u64 {
        self.body_end - self.rest.rest().len() as u64
    }

    /// Checks every entry's checksum and returns the checksum of the whole body, continued from `sum`.
    fn verify(&mut self, identity: FileIdentity, mut sum: u32) -> Result<u32, Fault> {
        loop {
            let at = self.at();
            match self.next().map_err(|Malformed(what)| Fault::Malformed { what, at })? {
                Item::Part(bytes) => sum = crc32c_append(sum, bytes),
                Item::Entry(entry) => {
                    let computed = crc32c_append(identity.seed(entry.at), entry.bytes);
                    if computed != entry.crc && !planted!(Bug::SkipWalChecksum) {
                        return Err(Fault::Checksum { of: "an entry", at, stored: entry.crc, computed });
                    }
                    sum = crc32c_append(sum, &entry.crc.to_le_bytes());
                }
                Item::End => return Ok(sum),
            }
        }
    }

    /// The checksums that the entries among the first `most` items should have, each behind its place in the
    /// frame, and that of all these items, continued from `sum`.
    #[cfg(any(test, feature = "testing"))]
    pub(super) fn sums(
        mut self,
        identity: FileIdentity,
        mut sum: u32,
        most: usize,
    ) -> (Vec<(usize, [u8; 4])>, u32) {
        let mut sums = Vec::new();
        for _ in 0..most {
            match self.next() {
                Ok(Item::Part(part)) => sum = crc32c_append(sum, part),
                Ok(Item::Entry(entry)) => {
                    let crc = crc32c_append(identity.seed(entry.at), entry.bytes).to_le_bytes();
                    sum = crc32c_append(sum, &crc);
                    sums.push(((entry.at - self.frame_at) as usize + entry.bytes.len(), crc));
                }
                Ok(Item::End) | Err(_) => break,
            }
        }
        (sums, sum)
    }

    pub(super) fn next(&mut self) -> Read<Item<'a>> {
        let (before, at) = (self.rest.rest(), self.at());
        let Some(&tag) = before.first() else { return Ok(Item::End) };
        let mut item = self.rest;
        item.u8()?;
        let taken = |item: &Decoder<'_>| before.len() - item.rest().len();
        if tag == 0 {
            let padding = before.len() < ALIGN as usize && before.iter().all(|&b| b == 0);
            return if padding { Ok(Item::End) } else { Err(Malformed("padding that is not zero")) };
        }
        if tag == TAG_PART {
            self.part = Some(read_part(&mut item)?);
            self.rest = item;
            return Ok(Item::Part(&before[..taken(&item)]));
        }
        let tag = match self.is_alone {
            true => {
                let head = AloneHead::read(tag, &mut item)?;
                self.part = head.part.or(self.part);
                AloneHead::tag_in_batch(tag)
            }
            false => tag,
        };
        let (store, generation) = self.part.ok_or(Malformed("an entry outside any part"))?;
        let copied = tag & COPIED != 0;
        let what = if tag & TAG_CELL != 0 {
            Raw::Cell(read_cell(tag, &mut item, self.next_seq)?)
        } else if tag & TAG_TOMBSTONE != 0 {
            read_tombstone(tag, &mut item, self.next_seq)?
        } else {
            return Err(Malformed("an unknown item"));
        };
        let bytes = &before[..taken(&item)];
        let crc = item.u32()?;
        if !copied {
            if self.next_seq > U56_MAX {
                return Err(Malformed("sequence numbers over 56 bits"));
            }
            self.next_seq += 1;
        }
        self.rest = item;
        Ok(Item::Entry(RawEntry { store, generation, at, bytes, crc, copied, what }))
    }
}

pub(super) fn read_cell<'a>(tag: u8, item: &mut Decoder<'a>, next_seq: u64) -> Read<CellRef<'a>> {
    if tag & !(TAG_CELL | COPIED | CELL_TIMESTAMP | CELL_WRITTEN | 3) != 0 {
        return Err(Malformed("unknown bits in a cell's tag"));
    }
    let kind = Kind::from_u8(tag & 3).filter(|kind| *kind != Kind::Hidden);
    let kind = kind.ok_or(Malformed("an unknown kind of cell"))?;
    let seq = if tag & COPIED != 0 { item.varint()? } else { next_seq };
    let timestamp = if tag & CELL_TIMESTAMP != 0 { item.varint()? } else { 0 };
    let written = if tag & CELL_WRITTEN != 0 { item.varint()? } else { 0 };
    let (key, value) = (item.length()?, if kind == Kind::Tombstone { 0 } else { item.length()? });
    Ok(CellRef {
        key: item.take(key)?,
        timestamp: Timestamp(timestamp),
        seq: SeqNo(seq),
        kind,
        written,
        value: item.take(value)?,
    })
}

fn read_tombstone<'a>(tag: u8, item: &mut Decoder<'a>, next_seq: u64) -> Read<Raw<'a>> {
    if tag & !(TAG_TOMBSTONE | COPIED | TOMBSTONE_END | TOMBSTONE_TIMES) != 0 {
        return Err(Malformed("unknown bits in a range tombstone's tag"));
    }
    let seq = SeqNo(if tag & COPIED != 0 { item.varint()? } else { next_seq });
    let (from, to) =
        if tag & TOMBSTONE_TIMES != 0 { (item.varint()?, item.varint()?) } else { (0, u64::MAX) };
    let start = item.bytes()?;
    let end = if tag & TOMBSTONE_END != 0 { Some(item.bytes()?) } else { None };
    Ok(Raw::RangeTombstone { start, end, from: Timestamp(from), to: Timestamp(to), seq })
}

impl<'a> RawEntry<'a> {
    fn logged(self, file: LogFileId) -> Logged<'a> {
        let at = LogPosition { file, offset: self.at };
        let place = EntryPosition { at, length: self.bytes.len() as u64 + 4 };
        let entry = match self.what {
            Raw::Cell(cell) => Entry::Cell(cell),
            Raw::RangeTombstone { start, end, from, to, seq } => {
                let range = KeyRange { start: start.to_vec(), end: end.map(<[u8]>::to_vec) };
                Entry::RangeTombstone(RangeTombstone { range, from, to, seq })
            }
        };
        Logged { store: self.store, generation: self.generation, place, copied: self.copied, entry }
    }
}
