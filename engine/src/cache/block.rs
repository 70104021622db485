//! A sorted block in memory: entries, restart points, and eight key bytes for each restart point.
//!
//! A search compares integers first. All keys of a block begin with its *common prefix*; behind it, the next
//! eight bytes of each restart key lie in one array, so bisection touches a few adjacent cache lines and
//! decodes nothing. Only where those bytes tie are whole keys compared. What is left is a scan of one restart
//! interval, which needs no key rebuilt: if the entry before is smaller than the target and shares `m` bytes
//! with it, then an entry that shares more than `m` bytes with its predecessor is smaller too, one that
//! shares fewer is larger, and only at exactly `m` are bytes compared. (The builder shares all it can, except
//! at restarts, which share nothing; and a scan crosses no restart.)
//!
//! The bytes come from a file and their checksum is right, yet every length is checked again on use: with
//! forged bytes a decoder may answer wrongly, but it neither panics nor loops without end.

use super::Counted;
use super::buffers::{Buffer, prefetch};
use crate::types::codec::{Decoded, Decoder, Malformed, varint_in, varint_len};
use crate::types::{Kind, SeqNo, Timestamp, common_prefix, prefix64};
use std::cmp::Ordering;
use std::marker::PhantomData;
use std::ops::{Deref, Range};

/// Low bits of an entry's flags are its kind.
pub(crate) const FLAG_KIND: u8 = 0b0000_0011;
pub(crate) const FLAG_TIMESTAMP: u8 = 0b0000_0100;
pub(crate) const FLAG_WRITTEN: u8 = 0b0000_1000;
pub(crate) const FLAG_SEQ: u8 = 0b0001_0000;
/// Flag of an entry whose value is a reference to the WAL.
pub(crate) const FLAG_REFERENCE: u8 = 0b0010_0000;
const FLAGS_KNOWN: u8 = FLAG_KIND | FLAG_TIMESTAMP | FLAG_WRITTEN | FLAG_SEQ | FLAG_REFERENCE;

/// Bytes a restart point takes: offset and key bytes.
pub(crate) const RESTART_BYTES: usize = 4 + 8;
/// The error for a restart point whose key is not stored in full.
const SHARING_RESTART: &str = "restart point shares key bytes";
/// Bytes of an entry's lengths and flags, nearly always.
const HEAD_BYTES: usize = 5;
/// Bytes at a block's very end: length of the common prefix, number of restarts.
pub(crate) const TAIL_BYTES: usize = 8;

/// An immutable, uncompressed block.
#[derive(Debug)]
pub(crate) struct Block {
    bytes: Buffer,
    /// The end of the entries, where the restart offsets begin.
    entries_end: usize,
    restarts: usize,
    /// The common prefix, as part of the first key.
    common: Range<usize>,
    _count: Option<Counted>,
}

pub(crate) struct Borrowed<'a> {
    block: Block,
    _bytes: PhantomData<&'a [u8]>,
}

impl Deref for Borrowed<'_> {
    type Target = Block;

    #[inline]
    fn deref(&self) -> &Block {
        &self.block
    }
}

/// One decoded entry. Its key is `shared` bytes of the key before and then its suffix. Small, as it is passed
/// by value.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    at: u32,
    end: u32,
    shared: u32,
    key_at: u32,
    value_at: u32,
    pub(crate) kind: Kind,
    pub(crate) is_reference: bool,
    pub(crate) seq: SeqNo,
    pub(crate) timestamp: Timestamp,
    pub(crate) written: u64,
}

impl Entry {
    /// Its offset in the block.
    #[inline]
    pub(crate) fn at(&self) -> usize {
        self.at as usize
    }

    /// Its end, where the next one begins.
    #[inline]
    pub(crate) fn end(&self) -> usize {
        self.end as usize
    }

    /// The number of bytes that its key shares with the key before.
    #[inline]
    pub(crate) fn shared(&self) -> usize {
        self.shared as usize
    }

    /// The range of its key's suffix: the bytes after the shared ones.
    #[inline]
    pub(crate) fn suffix(&self) -> Range<usize> {
        self.key_at as usize..self.value_at as usize
    }

    /// The range of its value.
    #[inline]
    pub(crate) fn value(&self) -> Range<usize> {
        self.value_at as usize..self.end as usize
    }
}

/// The fields before an entry's key, as far as a search needs them.
struct Head {
    shared: usize,
    flags: u8,
    /// Offset of sequence number and times.
    numbers_at: usize,
    key_at: usize,
    value_at: usize,
    end: usize,
}

impl Block {
    /// A block of a decompressed payload, whose layout is checked.
    pub(crate) fn new(bytes: Vec<u8>) -> Decoded<Self> {
        Self::over(Buffer::from(bytes), false)
    }

    /// A block over a decompressed payload, wherever that is. If `is_known`, the same payload was checked
    /// before, and its restart points are not checked again.
    pub(crate) fn over(bytes: Buffer, is_known: bool) -> Decoded<Self> {
        if u32::try_from(bytes.len()).is_err() {
            return Err(Malformed("block of 4 GiB or more"));
        }
        let tail_at = bytes.len().checked_sub(TAIL_BYTES).ok_or(Malformed("block shorter than its tail"))?;
        let mut tail = Decoder::new(&bytes[tail_at..]);
        let (prefix, restarts) = (tail.u32()? as usize, tail.u32()? as usize);
        let array = restarts.checked_mul(RESTART_BYTES).ok_or(Malformed("too many restart points"))?;
        let entries_end =
            tail_at.checked_sub(array).ok_or(Malformed("restart points over the block's length"))?;
        let mut block = Self { bytes, entries_end, restarts, common: 0..0, _count: None };
        if restarts == 0 {
            return (entries_end == 0).then_some(block).ok_or(Malformed("entries without a restart point"));
        }
        let mut before = None;
        for i in 0..if is_known { 0 } else { restarts } {
            let at = block.restart_offset(i);
            if at >= entries_end || before.map_or(at != 0, |before| at <= before) {
                return Err(Malformed("restart points out of order"));
            }
            before = Some(at);
        }
        // At offset 0, so this need not wait until the first restart's offset is loaded.
        let first = block.entry(0)?;
        if first.shared() != 0 {
            return Err(Malformed(SHARING_RESTART));
        }
        if first.suffix().len() < prefix {
            return Err(Malformed("common prefix longer than the first key"));
        }
        block.common = first.suffix().start..first.suffix().start + prefix;
        Ok(block)
    }

    pub(crate) fn borrowed(bytes: &[u8], is_known: bool) -> Decoded<Borrowed<'_>> {
        // SAFETY: the block is handed out with the lifetime of the bytes.
        #[expect(unsafe_code, reason = "a block that is read once where it lies needs no count")]
        let buffer = unsafe { Buffer::lent(bytes) };
        Ok(Borrowed { block: Self::over(buffer, is_known)?, _bytes: PhantomData })
    }

    /// Whether its bytes are in a mapping or borrowed, rather than its own memory.
    #[inline]
    pub(crate) fn is_mapped(&self) -> bool {
        self.bytes.is_mapped()
    }

    /// This block, with its memory counted as long as it lives.
    pub(crate) fn with_count(self, count: Counted) -> Self {
        Self { _count: Some(count), ..self }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

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

    /// Eight key bytes of every restart point.
    #[inline]
    fn restart_prefixes(&self) -> &[[u8; 8]] {
        let at = self.entries_end + 4 * self.restarts;
        self.bytes[at..at + 8 * self.restarts].as_chunks().0
    }

    /// The entry at a restart point, which has its whole key.
    pub(crate) fn restart_entry(&self, i: usize) -> Decoded<Entry> {
        let entry = self.entry(self.restart_offset(i))?;
        if entry.shared() != 0 { Err(Malformed(SHARING_RESTART)) } else { Ok(entry) }
    }

    /// The fields before the key of the entry at that offset.
    #[inline(always)]
    fn head(&self, at: usize) -> Decoded<Head> {
        if at >= self.entries_end {
            return Err(Malformed("entry beyond the block"));
        }
        // Nearly always lengths of one byte, and one or two for the value; after the last entry there are
        // restart points.
        let Some(bytes) = self.bytes[at..].first_chunk::<HEAD_BYTES>() else { return self.unusual_head(at) };
        let [shared, unshared, value, more, flags] = *bytes;
        // The branch is predictable, as values of one block are mostly alike: so no load waits for another.
        if (shared | unshared | value) < 0x80 {
            self.head_of([shared.into(), unshared.into(), value.into()], more, at + 4)
        } else if (shared | unshared | more) < 0x80 {
            let value = usize::from(value & 0x7f) | usize::from(more) << 7;
            self.head_of([shared.into(), unshared.into(), value], flags, at + 5)
        } else {
            self.unusual_head(at)
        }
    }

    #[cold]
    fn unusual_head(&self, at: usize) -> Decoded<Head> {
        let mut d = Decoder::new(&self.bytes[at..self.entries_end]);
        let (lengths, flags) = ([d.length()?, d.length()?, d.length()?], d.u8()?);
        self.head_of(lengths, flags, self.entries_end - d.rest().len())
    }

    /// The head with those lengths (shared, not shared, of the value), and numbers from `numbers_at` on.
    #[inline(always)]
    fn head_of(
        &self,
        [shared, unshared, value_len]: [usize; 3],
        flags: u8,
        numbers_at: usize,
    ) -> Decoded<Head> {
        let key_at = numbers_at
            + if flags & FLAG_SEQ != 0 { self.varint_len_at(numbers_at) } else { 0 }
            + if flags & FLAG_TIMESTAMP != 0 { 8 } else { 0 }
            + if flags & FLAG_WRITTEN != 0 { 8 } else { 0 };
        let value_at = key_at.saturating_add(unshared);
        let end = value_at.saturating_add(value_len);
        if end > self.entries_end {
            return Err(Malformed("length over the bytes at hand"));
        }
        Ok(Head { shared, flags, numbers_at, key_at, value_at, end })
    }

    #[inline(always)]
    fn varint_len_at(&self, at: usize) -> usize {
        let ends = |byte: &u8| *byte < 0x80;
        let one_by_one = || self.bytes[at..].iter().position(ends).map_or(self.bytes.len(), |last| last + 1);
        match self.bytes[at..].first_chunk().map(|eight| varint_len(u64::from_le_bytes(*eight))) {
            Some(len) if len <= 8 => len,
            _ => one_by_one(),
        }
    }

    /// The varint at that offset, and its length in bytes.
    #[inline]
    fn varint_at(&self, at: usize) -> Decoded<(u64, usize)> {
        let bytes = &self.bytes[at..];
        if let Some(found) = bytes.first_chunk().and_then(|eight| varint_in(u64::from_le_bytes(*eight))) {
            return Ok(found);
        }
        let mut d = Decoder::new(bytes);
        let number = d.varint()?;
        Ok((number, bytes.len() - d.rest().len()))
    }

    /// Decodes the entry at that offset.
    #[inline]
    pub(crate) fn entry(&self, at: usize) -> Decoded<Entry> {
        let head = self.head(at)?;
        if head.flags & !FLAGS_KNOWN != 0 {
            return Err(Malformed("unknown flags in an entry"));
        }
        let kind = Kind::from_u8(head.flags & FLAG_KIND).ok_or(Malformed("unknown kind of cell"))?;
        let (seq, len) = if head.flags & FLAG_SEQ != 0 { self.varint_at(head.numbers_at)? } else { (0, 0) };
        let mut times = Decoder::new(self.bytes.get(head.numbers_at + len..head.key_at).unwrap_or(&[]));
        let timestamp = if head.flags & FLAG_TIMESTAMP != 0 { times.u64()? } else { 0 };
        let written = if head.flags & FLAG_WRITTEN != 0 { times.u64()? } else { 0 };
        Ok(Entry {
            at: at as u32,
            end: head.end as u32,
            shared: u32::try_from(head.shared)
                .map_err(|_| Malformed("entry shares more bytes than a block has"))?,
            key_at: head.key_at as u32,
            value_at: head.value_at as u32,
            kind,
            is_reference: head.flags & FLAG_REFERENCE != 0,
            seq: SeqNo(seq),
            timestamp: Timestamp(timestamp),
            written,
        })
    }

    #[inline]
    pub(crate) fn suffix(&self, entry: &Entry) -> &[u8] {
        &self.bytes[entry.suffix()]
    }

    /// The suffix of the key of an entry with that head.
    #[inline]
    fn key_of(&self, head: &Head) -> &[u8] {
        &self.bytes[head.key_at..head.value_at]
    }

    #[inline]
    pub(crate) fn value(&self, entry: &Entry) -> &[u8] {
        &self.bytes[entry.value()]
    }

    /// Whether the key of `entry`, which must be one found by `lower_bound(target)` or follow another entry
    /// of key `target`, is `target`.
    #[inline]
    pub(crate) fn is_key(&self, entry: &Entry, target: &[u8]) -> bool {
        target.get(entry.shared()..).is_some_and(|rest| rest == self.suffix(entry))
    }

    /// The first entry whose key is at or after `target`. Its key is `target[..shared]` and then its suffix.
    #[inline]
    pub(crate) fn lower_bound(&self, target: &[u8]) -> Decoded<Option<Entry>> {
        let first = self.restart_lower_bound(target)?;
        if first == 0 {
            return if self.restarts == 0 { Ok(None) } else { self.restart_entry(0).map(Some) };
        }
        let end = if first < self.restarts { self.restart_offset(first) } else { self.entries_end };
        let start = self.restart_offset(first - 1);
        prefetch(self.bytes.get(start..end).unwrap_or(&[]));
        let restart = self.head(start)?;
        if restart.shared != 0 {
            return Err(Malformed(SHARING_RESTART));
        }
        let mut matched = common_prefix(self.key_of(&restart), target);
        let mut at = restart.end;
        while at < end {
            let head = self.head(at)?;
            match head.shared.cmp(&matched) {
                Ordering::Greater => {}
                Ordering::Less => return self.entry(at).map(Some),
                Ordering::Equal => {
                    let (suffix, rest) = (self.key_of(&head), &target[matched..]);
                    let common = common_prefix(suffix, rest);
                    // At or after the target: it equals the target, or is larger where they differ.
                    let smaller = match (suffix.get(common), rest.get(common)) {
                        (Some(a), Some(b)) => a < b,
                        (None, Some(_)) => true,
                        (_, None) => false,
                    };
                    if !smaller {
                        return self.entry(at).map(Some);
                    }
                    matched += common;
                }
            }
            at = head.end;
        }
        if first < self.restarts { self.restart_entry(first).map(Some) } else { Ok(None) }
    }

    /// The number of restart keys before `target`; only where every entry is a restart point is that the
    /// number of the entry that [`Block::lower_bound`] finds.
    #[inline]
    pub(crate) fn restart_lower_bound(&self, target: &[u8]) -> Decoded<usize> {
        let common = &self.bytes[self.common.clone()];
        let rest = match target.strip_prefix(common) {
            Some(rest) => rest,
            None if target < common => return Ok(0),
            None => return Ok(self.restarts),
        };
        let wanted = prefix64(rest);
        let prefixes = self.restart_prefixes();
        let mut low = prefixes.partition_point(|bytes| u64::from_be_bytes(*bytes) < wanted);
        let ties = |bytes: &[u8; 8]| u64::from_be_bytes(*bytes) == wanted;
        if prefixes.get(low).is_some_and(ties) {
            let high = low + prefixes[low..].partition_point(ties);
            low = partition_point(low, high, |i| {
                let entry = self.restart_entry(i)?;
                Ok(self.suffix(&entry) < target)
            })?;
        }
        Ok(low)
    }

    /// The number of the restart interval with the entry at `at`.
    pub(crate) fn restart_of(&self, at: usize) -> usize {
        let after = partition_point(0, self.restarts, |i| Ok(self.restart_offset(i) <= at)).unwrap_or(1);
        after.saturating_sub(1)
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
