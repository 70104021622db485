//! A sorted block in memory: entries, restart points, and beside each restart point eight key bytes.
//!
//! A search compares integers first. All keys of a block begin with its *common prefix*; behind it, the next
//! eight bytes of each restart key lie in one array, so bisection touches a few adjacent cache lines and decodes
//! nothing. Only where those bytes tie are whole keys compared. What is left is a scan of one restart interval,
//! which needs no key rebuilt: if the entry before is smaller than the target and shares `m` bytes with it, then
//! an entry that shares more than `m` bytes with its predecessor is smaller too, one that shares fewer is
//! larger, and only at exactly `m` are bytes compared. (The builder shares all it can, except at restarts, which
//! share nothing; and a scan crosses no restart.)
//!
//! The bytes come from a file and their checksum held, yet every length is checked again on use: a decoder may
//! answer wrongly on forged bytes but it neither panics nor runs away.

use super::Counted;
use crate::types::codec::{Decoded, Decoder, Malformed};
use crate::types::{Kind, SeqNo, Timestamp, common_prefix, prefix64};
use std::cmp::Ordering;
use std::ops::Range;

/// Low bits of an entry's flags are its kind.
pub(crate) const FLAG_KIND: u8 = 0b0000_0011;
pub(crate) const FLAG_TIMESTAMP: u8 = 0b0000_0100;
pub(crate) const FLAG_WRITTEN: u8 = 0b0000_1000;
pub(crate) const FLAG_SEQ: u8 = 0b0001_0000;
/// What stands for the value is a reference to the log.
pub(crate) const FLAG_REFERENCE: u8 = 0b0010_0000;
const FLAGS_KNOWN: u8 = FLAG_KIND | FLAG_TIMESTAMP | FLAG_WRITTEN | FLAG_SEQ | FLAG_REFERENCE;

/// Bytes a restart point takes: offset and key bytes.
pub(crate) const RESTART_BYTES: usize = 4 + 8;
/// Bytes at a block's very end: length of the common prefix, number of restarts.
pub(crate) const TAIL_BYTES: usize = 8;

/// An immutable, uncompressed block.
#[derive(Debug)]
pub(crate) struct Block {
    bytes: Vec<u8>,
    /// Where the entries end and the restart offsets begin.
    entries_end: usize,
    restarts: usize,
    /// The common prefix, as part of the first key.
    common: Range<usize>,
    _count: Option<Counted>,
}

/// One decoded entry. Its key is `shared` bytes of the key before and then `suffix`.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) at: usize,
    pub(crate) end: usize,
    pub(crate) shared: usize,
    pub(crate) suffix: Range<usize>,
    pub(crate) value: Range<usize>,
    pub(crate) kind: Kind,
    pub(crate) is_reference: bool,
    pub(crate) seq: SeqNo,
    pub(crate) timestamp: Timestamp,
    pub(crate) written: u64,
}

impl Block {
    /// Takes a decompressed payload, checking its frame.
    pub(crate) fn new(bytes: Vec<u8>) -> Decoded<Self> {
        let tail_at = bytes.len().checked_sub(TAIL_BYTES).ok_or(Malformed("block shorter than its tail"))?;
        let mut tail = Decoder::new(&bytes[tail_at..]);
        let (prefix, restarts) = (tail.u32()? as usize, tail.u32()? as usize);
        let array = restarts.checked_mul(RESTART_BYTES).ok_or(Malformed("too many restart points"))?;
        let entries_end =
            tail_at.checked_sub(array).ok_or(Malformed("restart points over the block's length"))?;
        let mut block = Self { bytes, entries_end, restarts, common: 0..0, _count: None };
        if restarts == 0 {
            return if entries_end == 0 {
                Ok(block)
            } else {
                Err(Malformed("entries without a restart point"))
            };
        }
        let mut before = None;
        for i in 0..restarts {
            let at = block.restart_offset(i);
            if at >= entries_end || before.map_or(at != 0, |before| at <= before) {
                return Err(Malformed("restart points out of order"));
            }
            before = Some(at);
        }
        let first = block.restart_entry(0)?;
        if first.suffix.len() < prefix {
            return Err(Malformed("common prefix longer than the first key"));
        }
        block.common = first.suffix.start..first.suffix.start + prefix;
        Ok(block)
    }

    /// The same, counted as long as it lives.
    pub(crate) fn with_count(self, count: Counted) -> Self {
        Self { _count: Some(count), ..self }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Memory it takes.
    pub(crate) fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.bytes.capacity()
    }

    pub(crate) fn entries_end(&self) -> usize {
        self.entries_end
    }

    pub(crate) fn restarts(&self) -> usize {
        self.restarts
    }

    #[inline]
    pub(crate) fn restart_offset(&self, i: usize) -> usize {
        let at = self.entries_end + 4 * i;
        match self.bytes[at..].first_chunk() {
            Some(offset) => u32::from_le_bytes(*offset) as usize,
            None => self.entries_end,
        }
    }

    #[inline]
    fn restart_prefix(&self, i: usize) -> u64 {
        let at = self.entries_end + 4 * self.restarts + 8 * i;
        self.bytes[at..].first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes))
    }

    /// The entry at a restart point, which holds its whole key.
    pub(crate) fn restart_entry(&self, i: usize) -> Decoded<Entry> {
        let entry = self.entry(self.restart_offset(i))?;
        if entry.shared != 0 { Err(Malformed("restart point shares key bytes")) } else { Ok(entry) }
    }

    /// Decodes the entry at that offset.
    #[inline]
    pub(crate) fn entry(&self, at: usize) -> Decoded<Entry> {
        let mut d =
            Decoder::new(self.bytes.get(at..self.entries_end).ok_or(Malformed("entry beyond the block"))?);
        let (shared, unshared, value_len) = (d.length()?, d.length()?, d.length()?);
        let flags = d.u8()?;
        if flags & !FLAGS_KNOWN != 0 {
            return Err(Malformed("unknown flags in an entry"));
        }
        let kind = Kind::from_u8(flags & FLAG_KIND).ok_or(Malformed("unknown kind of cell"))?;
        let seq = if flags & FLAG_SEQ != 0 { d.varint()? } else { 0 };
        let timestamp = if flags & FLAG_TIMESTAMP != 0 { d.u64()? } else { 0 };
        let written = if flags & FLAG_WRITTEN != 0 { d.u64()? } else { 0 };
        let suffix_at = self.entries_end - d.rest().len();
        d.take(unshared)?;
        d.take(value_len)?;
        let value_at = suffix_at + unshared;
        Ok(Entry {
            at,
            end: value_at + value_len,
            shared,
            suffix: suffix_at..value_at,
            value: value_at..value_at + value_len,
            kind,
            is_reference: flags & FLAG_REFERENCE != 0,
            seq: SeqNo(seq),
            timestamp: Timestamp(timestamp),
            written,
        })
    }

    #[inline]
    pub(crate) fn suffix(&self, entry: &Entry) -> &[u8] {
        &self.bytes[entry.suffix.clone()]
    }

    #[inline]
    pub(crate) fn value(&self, entry: &Entry) -> &[u8] {
        &self.bytes[entry.value.clone()]
    }

    /// Whether the key of `entry`, which must be one found by `lower_bound(target)` or follow another entry of
    /// key `target`, is `target`.
    #[inline]
    pub(crate) fn is_key(&self, entry: &Entry, target: &[u8]) -> bool {
        target.get(entry.shared..).is_some_and(|rest| rest == self.suffix(entry))
    }

    /// The first entry whose key is at or after `target`. Its key is `target[..shared]` and then its suffix.
    #[inline]
    pub(crate) fn lower_bound(&self, target: &[u8]) -> Decoded<Option<Entry>> {
        let first = self.restart_lower_bound(target)?;
        if first == 0 {
            return if self.restarts == 0 { Ok(None) } else { self.restart_entry(0).map(Some) };
        }
        let end = if first < self.restarts { self.restart_offset(first) } else { self.entries_end };
        let mut entry = self.restart_entry(first - 1)?;
        let mut matched = common_prefix(self.suffix(&entry), target);
        while entry.end < end {
            entry = self.entry(entry.end)?;
            match entry.shared.cmp(&matched) {
                Ordering::Greater => {}
                Ordering::Less => return Ok(Some(entry)),
                Ordering::Equal => {
                    let (suffix, rest) = (self.suffix(&entry), &target[matched..]);
                    let common = common_prefix(suffix, rest);
                    // At or after the target: it equals the target, or is larger where they part.
                    let smaller = match (suffix.get(common), rest.get(common)) {
                        (Some(a), Some(b)) => a < b,
                        (None, Some(_)) => true,
                        (_, None) => false,
                    };
                    if !smaller {
                        return Ok(Some(entry));
                    }
                    matched += common;
                }
            }
        }
        if first < self.restarts { self.restart_entry(first).map(Some) } else { Ok(None) }
    }

    /// How many restart keys lie before `target`.
    #[inline]
    fn restart_lower_bound(&self, target: &[u8]) -> Decoded<usize> {
        let common = &self.bytes[self.common.clone()];
        let rest = match target.strip_prefix(common) {
            Some(rest) => rest,
            None if target < common => return Ok(0),
            None => return Ok(self.restarts),
        };
        let wanted = prefix64(rest);
        let mut low = partition_point(0, self.restarts, |i| Ok(self.restart_prefix(i) < wanted))?;
        if low < self.restarts && self.restart_prefix(low) == wanted {
            let high = partition_point(low, self.restarts, |i| Ok(self.restart_prefix(i) == wanted))?;
            low = partition_point(low, high, |i| {
                let entry = self.restart_entry(i)?;
                Ok(self.suffix(&entry) < target)
            })?;
        }
        Ok(low)
    }

    /// The number of the restart interval that holds the entry at `at`.
    pub(crate) fn restart_of(&self, at: usize) -> usize {
        let after = partition_point(0, self.restarts, |i| Ok(self.restart_offset(i) <= at)).unwrap_or(1);
        after.saturating_sub(1)
    }

    /// Number of the restart point `lower_bound(target)` would find in a block where every entry is one.
    pub(crate) fn ordinal(&self, target: &[u8]) -> Decoded<usize> {
        self.restart_lower_bound(target)
    }
}

#[inline]
fn partition_point(
    mut low: usize,
    mut high: usize,
    mut is_low: impl FnMut(usize) -> Decoded<bool>,
) -> Decoded<usize> {
    while low < high {
        let mid = low + (high - low) / 2;
        if is_low(mid)? {
            low = mid + 1;
        } else {
            high = mid;
        }
    }
    Ok(low)
}
