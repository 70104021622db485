//! Building a frame: one reusable buffer, filled item by item, its checksums finished when the place is
//! known.
//!
//! Checksums depend on the frame's offset, which only the appender knows, so the encoder remembers where its
//! items begin and end and computes all sums in one pass over bytes that are still in the CPU's cache. Only
//! then is it known whether the frame is a short one. It is built after space for a full head, and a short
//! head is then put right before its items.

use super::frame::Note;
use super::head::{
    ALIGN, AloneHead, Base, Behind, CELL_TIMESTAMP, CELL_WRITTEN, COPIED, FileIdentity, FrameKind,
    HEAD_BYTES, Head, SHORT_HEAD_BYTES_MAX, SYNCED_UNKNOWN, TAG_CELL, TAG_PART, TAG_TOMBSTONE, TOMBSTONE_END,
    TOMBSTONE_TIMES, U56_MAX, put_batch_head,
};
use crate::types::codec::{put_u64, put_varint};
use crate::types::{CellRef, Generation, Kind, LogPosition, RangeTombstone, SeqNo, StoreId, Timestamp};
use crc32c::crc32c_append;

/// A buffer that grew beyond this for one large batch is freed.
const KEEP_BYTES: usize = 1 << 20;

/// Encodes one frame at a time. Reuse it: a put then allocates nothing.
#[derive(Debug)]
pub(crate) struct FrameEncoder {
    bytes: Vec<u8>,
    items: Vec<Item>,
    kind: FrameKind,
    first_seq: u64,
    next_seq: u64,
    wall_us: u64,
    /// The parts of the first and the last entry.
    parts: Option<[(StoreId, Generation); 2]>,
    /// Whether it is padded and ready: no item may follow.
    closed: bool,
    /// The buffer for a short head.
    head: Vec<u8>,
}

/// A part header or an entry in the buffer.
#[derive(Clone, Copy, Debug)]
struct Item {
    start: usize,
    end: usize,
    is_entry: bool,
}

impl FrameEncoder {
    pub(crate) fn new() -> Self {
        Self {
            bytes: vec![0; HEAD_BYTES],
            items: Vec::new(),
            kind: FrameKind::Batch,
            first_seq: 0,
            next_seq: 0,
            wall_us: 0,
            parts: None,
            closed: false,
            head: Vec::with_capacity(SHORT_HEAD_BYTES_MAX),
        }
    }

    /// Starts a batch whose first entry gets `first_seq`, and drops the previous frame.
    pub(crate) fn begin(&mut self, first_seq: SeqNo, wall_us: u64) {
        self.start(FrameKind::Batch, first_seq, wall_us);
    }

    /// Makes the frame a note. `next_seq` is the first sequence number of the next batch.
    pub(crate) fn note(&mut self, note: Note, next_seq: SeqNo, wall_us: u64) {
        self.start(FrameKind::Note, next_seq, wall_us);
        put_u64(&mut self.bytes, note.manifest);
        put_u64(&mut self.bytes, note.length);
    }

    fn start(&mut self, kind: FrameKind, first_seq: SeqNo, wall_us: u64) {
        assert!(first_seq.0 <= U56_MAX, "sequence number {first_seq} over 56 bits");
        if self.bytes.capacity() > KEEP_BYTES {
            self.bytes = Vec::new();
            self.items = Vec::new();
        }
        self.bytes.clear();
        self.bytes.resize(HEAD_BYTES, 0);
        self.items.clear();
        self.kind = kind;
        self.first_seq = first_seq.0;
        self.next_seq = first_seq.0;
        self.wall_us = wall_us.min(U56_MAX);
        self.parts = None;
        self.closed = false;
    }

    /// Begins a part: the entries that follow were written to this store's memtable (invariant I1).
    pub(crate) fn part(&mut self, store: StoreId, generation: Generation) {
        self.assert_open();
        let start = self.bytes.len();
        self.bytes.push(TAG_PART);
        put_varint(&mut self.bytes, u64::from(store.0));
        put_varint(&mut self.bytes, generation.0);
        self.items.push(Item { start, end: self.bytes.len(), is_entry: false });
        let part = (store, generation);
        self.parts = Some([self.parts.map_or(part, |[first, _]| first), part]);
    }

    /// Adds a cell, gives it the frame's next sequence number (whatever its own field says) and returns that.
    pub(crate) fn cell(&mut self, cell: &CellRef<'_>) -> SeqNo {
        self.put_cell(cell, 0);
        self.next_seq()
    }

    /// Adds a cell that is logged again, with its sequence number.
    pub(crate) fn copied_cell(&mut self, cell: &CellRef<'_>) {
        self.put_cell(cell, COPIED);
    }

    /// Adds a range tombstone, gives it the frame's next sequence number and returns that.
    pub(crate) fn range_tombstone(&mut self, tombstone: &RangeTombstone) -> SeqNo {
        self.put_tombstone(tombstone, 0);
        self.next_seq()
    }

    /// Adds a range tombstone that is logged again, with its sequence number.
    pub(crate) fn copied_range_tombstone(&mut self, tombstone: &RangeTombstone) {
        self.put_tombstone(tombstone, COPIED);
    }

    /// The last sequence number of the frame, or the one before its first where it has none.
    pub(super) fn last_seq(&self) -> SeqNo {
        SeqNo(self.next_seq.saturating_sub(1))
    }

    /// The first sequence number of the frame.
    pub(super) fn first_seq(&self) -> SeqNo {
        SeqNo(self.first_seq)
    }

    /// The most bytes of the frame in the WAL: those of a full one.
    pub(crate) fn frame_bytes(&self) -> u64 {
        (self.bytes.len() as u64).next_multiple_of(ALIGN)
    }

    /// Memory held, for budgets.
    #[cfg(test)]
    pub(crate) fn buffer_bytes(&self) -> usize {
        self.bytes.capacity() + self.items.capacity() * size_of::<Item>()
    }

    #[inline]
    fn next_seq(&mut self) -> SeqNo {
        let seq = self.next_seq;
        assert!(seq <= U56_MAX, "sequence number {seq} over 56 bits");
        self.next_seq += 1;
        SeqNo(seq)
    }

    #[inline]
    fn assert_open(&self) {
        assert!(!self.closed && self.kind == FrameKind::Batch, "begin a batch before adding to it");
    }

    #[inline]
    fn put_cell(&mut self, cell: &CellRef<'_>, copied: u8) {
        self.assert_open();
        let out = &mut self.bytes;
        let start = out.len();
        out.reserve(cell.key.len() + cell.value.len() + 64);
        let timestamp = if cell.timestamp == Timestamp::ZERO { 0 } else { CELL_TIMESTAMP };
        let written = if cell.written == 0 { 0 } else { CELL_WRITTEN };
        out.push(TAG_CELL | cell.kind as u8 | copied | timestamp | written);
        if copied != 0 {
            put_varint(out, cell.seq.0);
        }
        if timestamp != 0 {
            put_varint(out, cell.timestamp.0);
        }
        if written != 0 {
            put_varint(out, cell.written);
        }
        put_varint(out, cell.key.len() as u64);
        if cell.kind == Kind::Tombstone {
            assert!(cell.value.is_empty(), "a tombstone with a value");
        } else {
            put_varint(out, cell.value.len() as u64);
        }
        out.extend_from_slice(cell.key);
        out.extend_from_slice(cell.value);
        self.end_entry(start);
    }

    fn put_tombstone(&mut self, tombstone: &RangeTombstone, copied: u8) {
        self.assert_open();
        let out = &mut self.bytes;
        let start = out.len();
        let all_times = tombstone.from == Timestamp::ZERO && tombstone.to == Timestamp::MAX;
        let times = if all_times { 0 } else { TOMBSTONE_TIMES };
        let end = if tombstone.range.end.is_none() { 0 } else { TOMBSTONE_END };
        out.push(TAG_TOMBSTONE | copied | times | end);
        if copied != 0 {
            put_varint(out, tombstone.seq.0);
        }
        if !all_times {
            put_varint(out, tombstone.from.0);
            put_varint(out, tombstone.to.0);
        }
        for key in std::iter::once(&tombstone.range.start).chain(&tombstone.range.end) {
            put_varint(out, key.len() as u64);
            out.extend_from_slice(key);
        }
        self.end_entry(start);
    }

    #[inline]
    fn end_entry(&mut self, start: usize) {
        self.bytes.extend_from_slice(&[0; 4]);
        self.items.push(Item { start, end: self.bytes.len(), is_entry: true });
    }

    /// Computes all checksums for a frame at `offset` of the file and returns its bytes, padded. It is a
    /// short one if it may count from `base`; otherwise it is the new base.
    pub(super) fn finish(
        &mut self,
        identity: FileIdentity,
        offset: u64,
        synced: Option<LogPosition>,
        base: &mut Option<Base>,
    ) -> &[u8] {
        assert!(!self.closed, "a frame is finished once: its beginning is written over");
        self.closed = true;
        let head = Head {
            kind: self.kind,
            length: self.frame_bytes(),
            first_seq: SeqNo(self.first_seq),
            wall_us: self.wall_us,
            synced,
        };
        let short = base.as_ref().and_then(|base| {
            let behind = base.behind(offset, &head)?;
            self.finish_short(identity, offset, behind, base)
        });
        let start = short.unwrap_or_else(|| {
            self.finish_full(identity, offset, &head);
            let told_before = base.as_ref().is_some_and(|before| before.synced == synced);
            *base = Some(Base { told_before, ..head.base(offset, self.parts.map(|[_, last]| last)) });
            0
        });
        let padded = (self.bytes.len() - start).next_multiple_of(ALIGN as usize);
        self.bytes.resize(start + padded, 0);
        &self.bytes[start..]
    }

    /// Makes it a short frame, if it may be one; returns where that begins in the buffer.
    fn finish_short(
        &mut self,
        identity: FileIdentity,
        offset: u64,
        behind: Behind,
        base: &Base,
    ) -> Option<usize> {
        let first = *self.items.first().filter(|item| !item.is_entry)?;
        let new_part = self.parts.map(|[first, _]| first).filter(|first| base.part != Some(*first));
        self.head.clear();
        if let [_, Item { start, end, is_entry: true }] = self.items[..]
            && self.bytes[start] & TAG_CELL != 0
        {
            AloneHead::put(&mut self.head, self.bytes[start], behind, new_part);
            let from = self.put_head(start + 1);
            let crc = crc32c_append(identity.seed(offset), &self.bytes[from..end - 4]);
            self.bytes[end - 4..end].copy_from_slice(&crc.to_le_bytes());
            return Some(from);
        }
        // The first part is left out if it is the base's.
        let (skipped, body) = if new_part.is_some() { (0, first.start) } else { (1, first.end) };
        put_batch_head(&mut self.head, behind, self.bytes.len() - body);
        let from = self.put_head(body);
        let sum = crc32c_append(identity.seed(offset), &self.bytes[from..body]);
        let sum = self.sum_items(skipped, identity, offset.wrapping_sub(from as u64), sum);
        self.bytes.extend_from_slice(&sum.to_le_bytes());
        Some(from)
    }

    /// Puts the short head before that position; returns where it begins.
    fn put_head(&mut self, before: usize) -> usize {
        let from = before - self.head.len();
        self.bytes[from..before].copy_from_slice(&self.head);
        from
    }

    /// Writes the checksums of the entries from that item on; returns the checksum of all these items. `base`
    /// is the offset in the file of the buffer's beginning (which may lie before the file's).
    fn sum_items(&mut self, from: usize, identity: FileIdentity, base: u64, mut sum: u32) -> u32 {
        for item in &self.items[from..] {
            if !item.is_entry {
                sum = crc32c_append(sum, &self.bytes[item.start..item.end]);
                continue;
            }
            let entry = &mut self.bytes[item.start..item.end];
            let (covered, stored) = entry.split_at_mut(entry.len() - 4);
            let seed = identity.seed(base.wrapping_add(item.start as u64));
            let crc = crc32c_append(seed, covered).to_le_bytes();
            stored.copy_from_slice(&crc);
            sum = crc32c_append(sum, &crc);
        }
        sum
    }

    fn finish_full(&mut self, identity: FileIdentity, offset: u64, head: &Head) {
        let seed = identity.seed(offset);
        let body_crc = match self.kind {
            FrameKind::Note => crc32c_append(seed, &self.bytes[HEAD_BYTES..]),
            FrameKind::Batch => self.sum_items(0, identity, offset, seed),
        };
        let (back, synced_units) = match head.synced {
            Some(s) => match u8::try_from(identity.file.0 - s.file.0) {
                Ok(back) if back < SYNCED_UNKNOWN => (back, (s.offset / ALIGN) as u32),
                _ => (SYNCED_UNKNOWN, 0),
            },
            None => (SYNCED_UNKNOWN, 0),
        };
        let out = &mut self.bytes[..HEAD_BYTES];
        out[4..8].copy_from_slice(&((head.length / ALIGN) as u32).to_le_bytes());
        out[8..12].copy_from_slice(&body_crc.to_le_bytes());
        out[12..16].copy_from_slice(&synced_units.to_le_bytes());
        out[16..24].copy_from_slice(&(self.first_seq | ((self.kind as u64) << 56)).to_le_bytes());
        out[24..32].copy_from_slice(&(self.wall_us | (u64::from(back) << 56)).to_le_bytes());
        let head_crc = crc32c_append(seed, &out[4..]);
        out[..4].copy_from_slice(&head_crc.to_le_bytes());
    }
}
