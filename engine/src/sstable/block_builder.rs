//! Writes the sorted block that `block` reads.

use crate::cache::block::{FLAG_SEQ, FLAG_TIMESTAMP, FLAG_WRITTEN, RESTART_BYTES, TAIL_BYTES};
use crate::types::codec::{put_u32, put_varint};
use crate::types::{CellRef, Kind, SeqNo, Timestamp, common_prefix, prefix64};

#[derive(Default)]
pub(super) struct BlockBuilder {
    bytes: Vec<u8>,
    /// Offset of each restart, and where in `keys` its key ends.
    restarts: Vec<(u32, usize)>,
    /// Restart keys, one after the other: their eight bytes are known only with the common prefix.
    keys: Vec<u8>,
    last_key: Vec<u8>,
    interval: usize,
    since_restart: usize,
    entries: u64,
}

impl BlockBuilder {
    pub(super) fn new(interval: usize) -> Self {
        Self { interval: interval.max(1), ..Self::default() }
    }

    /// Appends a cell; the caller ensures the order.
    pub(super) fn add(&mut self, cell: &CellRef<'_>) {
        self.put(cell, 0);
    }

    /// Appends a cell; with `FLAG_REFERENCE` its value is an encoded reference.
    #[inline]
    pub(super) fn put(&mut self, cell: &CellRef<'_>, reference: u8) {
        let shared = if self.entries == 0 || self.since_restart == self.interval {
            self.restarts.push((self.bytes.len() as u32, self.keys.len() + cell.key.len()));
            self.keys.extend_from_slice(cell.key);
            self.since_restart = 0;
            0
        } else {
            common_prefix(&self.last_key, cell.key)
        };
        let mut flags = cell.kind as u8 | reference;
        flags |= if cell.seq != SeqNo::ZERO { FLAG_SEQ } else { 0 };
        flags |= if cell.timestamp != Timestamp::ZERO { FLAG_TIMESTAMP } else { 0 };
        flags |= if cell.written != 0 { FLAG_WRITTEN } else { 0 };
        let out = &mut self.bytes;
        put_varint(out, shared as u64);
        put_varint(out, (cell.key.len() - shared) as u64);
        put_varint(out, cell.value.len() as u64);
        out.push(flags);
        if flags & FLAG_SEQ != 0 {
            put_varint(out, cell.seq.0);
        }
        if flags & FLAG_TIMESTAMP != 0 {
            out.extend_from_slice(&cell.timestamp.0.to_le_bytes());
        }
        if flags & FLAG_WRITTEN != 0 {
            out.extend_from_slice(&cell.written.to_le_bytes());
        }
        out.extend_from_slice(&cell.key[shared..]);
        out.extend_from_slice(cell.value);
        self.last_key.truncate(shared);
        self.last_key.extend_from_slice(&cell.key[shared..]);
        self.since_restart += 1;
        self.entries += 1;
    }

    /// Appends a key with a plain value, for index blocks.
    pub(super) fn add_plain(&mut self, key: &[u8], value: &[u8]) {
        self.add(&CellRef {
            key,
            timestamp: Timestamp::ZERO,
            seq: SeqNo::ZERO,
            kind: Kind::Value,
            written: 0,
            value,
        });
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries == 0
    }

    pub(super) fn entries(&self) -> u64 {
        self.entries
    }

    pub(super) fn last_key(&self) -> &[u8] {
        &self.last_key
    }

    /// Size of the block if it were finished now.
    pub(super) fn size(&self) -> usize {
        self.bytes.len() + self.restarts.len() * RESTART_BYTES + TAIL_BYTES
    }

    /// The offset of the next entry.
    pub(super) fn next_entry(&self) -> usize {
        self.bytes.len()
    }

    /// The block's bytes; valid until `clear`.
    pub(super) fn finish(&mut self) -> &[u8] {
        // In a sorted list, all keys share the common prefix of the first and last one.
        let first_end = self.restarts.first().map_or(0, |r| r.1);
        let common = common_prefix(&self.keys[..first_end], &self.last_key);
        for (offset, _) in &self.restarts {
            put_u32(&mut self.bytes, *offset);
        }
        let mut start = 0;
        for (_, end) in &self.restarts {
            self.bytes.extend_from_slice(&prefix64(&self.keys[start + common..*end]).to_be_bytes());
            start = *end;
        }
        put_u32(&mut self.bytes, common as u32);
        put_u32(&mut self.bytes, self.restarts.len() as u32);
        &self.bytes
    }

    /// Starts the next block in the same memory, unless a huge cell made that larger than `keep`.
    pub(super) fn clear(&mut self, keep: usize) {
        self.bytes.clear();
        self.bytes.shrink_to(keep);
        self.restarts.clear();
        self.keys.clear();
        self.last_key.clear();
        self.since_restart = 0;
        self.entries = 0;
    }
}
