//! Building a frame: one reusable buffer, filled item by item, its checksums finished when the place is known.
//!
//! Checksums depend on where the frame will lie, which only the appender knows, so the encoder remembers where
//! its items begin and end and computes all sums in one pass over bytes that are still in the CPU's cache.

use super::frame::{
    ALIGN, CELL_TIMESTAMP, CELL_WRITTEN, COPIED, FileIdentity, FrameKind, HEAD_BYTES, Note, Place,
    SYNCED_UNKNOWN, TAG_CELL, TAG_PART, TAG_TOMBSTONE, TOMBSTONE_END, TOMBSTONE_TIMES, U56_MAX,
};
use crate::types::codec::{put_u64, put_varint};
use crate::types::{CellRef, Generation, Kind, LogPosition, RangeTombstone, SeqNo, StoreId, Timestamp};
use crc32c::crc32c_append;

/// A buffer that grew beyond this for one large batch is not kept for the next.
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
    /// Padded and ready: no item may follow.
    closed: bool,
}

/// A part header or an entry in the buffer.
#[derive(Clone, Copy, Debug)]
struct Item {
    start: usize,
    end: usize,
    is_entry: bool,
}

impl Default for FrameEncoder {
    fn default() -> Self {
        Self::new()
    }
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
            closed: false,
        }
    }

    /// Starts a batch whose first entry gets `first_seq`; forgets what was encoded before.
    pub(crate) fn begin(&mut self, first_seq: SeqNo, wall_us: u64) {
        self.start(FrameKind::Batch, first_seq, wall_us);
    }

    /// Makes the frame a note. `next_seq` is the sequence number the next batch will begin with.
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
        self.closed = false;
    }

    /// The entries that follow were written for this store's segment (invariant I1).
    pub(crate) fn part(&mut self, store: StoreId, generation: Generation) {
        self.assert_open();
        let start = self.bytes.len();
        self.bytes.push(TAG_PART);
        put_varint(&mut self.bytes, u64::from(store.0));
        put_varint(&mut self.bytes, generation.0);
        self.items.push(Item { start, end: self.bytes.len(), is_entry: false });
    }

    /// Adds a cell, gives it the frame's next sequence number (whatever its own field says) and returns that.
    pub(crate) fn cell(&mut self, cell: &CellRef<'_>) -> SeqNo {
        self.put_cell(cell, 0);
        self.next_seq()
    }

    /// Adds a cell written again: it keeps its sequence number.
    pub(crate) fn copied_cell(&mut self, cell: &CellRef<'_>) {
        self.put_cell(cell, COPIED);
    }

    /// Adds a range tombstone, gives it the frame's next sequence number and returns that.
    pub(crate) fn range_tombstone(&mut self, tombstone: &RangeTombstone) -> SeqNo {
        self.put_tombstone(tombstone, 0);
        self.next_seq()
    }

    /// Adds a range tombstone written again: it keeps its sequence number.
    pub(crate) fn copied_range_tombstone(&mut self, tombstone: &RangeTombstone) {
        self.put_tombstone(tombstone, COPIED);
    }

    /// The sequence number that the frame began with.
    pub(super) fn first_seq(&self) -> SeqNo {
        SeqNo(self.first_seq)
    }

    /// Bytes the frame takes in the log.
    pub(crate) fn frame_bytes(&self) -> u64 {
        (self.bytes.len() as u64).next_multiple_of(ALIGN)
    }

    /// Where the entries lie (in the order added) once the frame was appended at `start`.
    #[allow(dead_code, reason = "for log tables")]
    pub(crate) fn places(&self, start: LogPosition) -> impl Iterator<Item = Place> + '_ {
        self.items.iter().filter(|item| item.is_entry).map(move |item| {
            let at = LogPosition { file: start.file, offset: start.offset + item.start as u64 };
            Place { at, length: (item.end - item.start) as u64 }
        })
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

    /// Computes all checksums for a frame at `offset` of the file and returns its bytes, padded.
    pub(super) fn finish(
        &mut self,
        identity: FileIdentity,
        offset: u64,
        synced: Option<LogPosition>,
    ) -> &[u8] {
        let length = self.frame_bytes();
        let seed = identity.seed(offset);
        let mut body_crc = seed;
        match self.kind {
            FrameKind::Note => body_crc = crc32c_append(body_crc, &self.bytes[HEAD_BYTES..]),
            FrameKind::Batch => {
                for item in &self.items {
                    if !item.is_entry {
                        body_crc = crc32c_append(body_crc, &self.bytes[item.start..item.end]);
                        continue;
                    }
                    let entry = &mut self.bytes[item.start..item.end];
                    let (covered, stored) = entry.split_at_mut(entry.len() - 4);
                    let seed = identity.seed(offset + item.start as u64);
                    let crc = crc32c_append(seed, covered).to_le_bytes();
                    stored.copy_from_slice(&crc);
                    body_crc = crc32c_append(body_crc, &crc);
                }
            }
        }
        self.bytes.resize(length as usize, 0);
        self.closed = true;
        let (back, synced_units) = match synced {
            Some(s) => match u8::try_from(identity.file.0 - s.file.0) {
                Ok(back) if back < SYNCED_UNKNOWN => (back, (s.offset / ALIGN) as u32),
                _ => (SYNCED_UNKNOWN, 0),
            },
            None => (SYNCED_UNKNOWN, 0),
        };
        let head = &mut self.bytes[..HEAD_BYTES];
        head[4..8].copy_from_slice(&((length / ALIGN) as u32).to_le_bytes());
        head[8..12].copy_from_slice(&body_crc.to_le_bytes());
        head[12..16].copy_from_slice(&synced_units.to_le_bytes());
        head[16..24].copy_from_slice(&(self.first_seq | ((self.kind as u64) << 56)).to_le_bytes());
        head[24..32].copy_from_slice(&(self.wall_us | (u64::from(back) << 56)).to_le_bytes());
        let head_crc = crc32c_append(seed, &head[4..]);
        head[..4].copy_from_slice(&head_crc.to_le_bytes());
        &self.bytes
    }
}
