//! The contents of index blocks. A partition has one entry per data block: a separator (at or after the
//! block's last key, before the next block's first; equal to both where a key's cells go on in the next
//! block) and the block's handle. The top index has one entry per partition and stays in memory while the
//! SSTable is open.

use super::frame::Handle;
use crate::cache::block::Block;
use crate::types::codec::{Decoded, Decoder, Malformed, put_varint};
use crate::types::common_prefix;

/// A data block as its index entry describes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct BlockEntry {
    pub(crate) handle: Handle,
    pub(crate) cells: u64,
    /// Whether the next block begins with this one's last key.
    pub(crate) continues: bool,
}

impl BlockEntry {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(16);
        self.handle.put(&mut out);
        put_varint(&mut out, self.cells << 1 | u64::from(self.continues));
        out
    }

    /// Decodes an entry, whose data block must end at or before the byte `data_end`.
    #[inline]
    pub(super) fn decode(bytes: &[u8], data_end: u64) -> Decoded<Self> {
        let mut d = Decoder::new(bytes);
        let handle = Handle::decode(&mut d, data_end)?;
        let count = d.varint()?;
        let entry = Self { handle, cells: count >> 1, continues: count & 1 != 0 };
        d.finish()?;
        Ok(entry)
    }
}

/// A partition as the top index describes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Partition {
    pub(super) index: Handle,
    pub(super) filter: Option<Handle>,
    /// The end of the partition's last data block.
    pub(super) data_end: u64,
    pub(super) blocks: u64,
}

impl Partition {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(32);
        self.index.put(&mut out);
        out.push(u8::from(self.filter.is_some()));
        if let Some(filter) = &self.filter {
            filter.put(&mut out);
        }
        put_varint(&mut out, self.data_end);
        put_varint(&mut out, self.blocks);
        out
    }

    fn decode(bytes: &[u8], file_end: u64) -> Decoded<Self> {
        let mut d = Decoder::new(bytes);
        let index = Handle::decode(&mut d, file_end)?;
        let filter = match d.u8()? {
            0 => None,
            1 => Some(Handle::decode(&mut d, file_end)?),
            _ => return Err(Malformed("filter flag is neither 0 nor 1")),
        };
        let (data_end, blocks) = (d.varint()?, d.varint()?);
        d.finish()?;
        if data_end > index.offset {
            return Err(Malformed("partition's data ends behind its index"));
        }
        Ok(Self { index, filter, data_end, blocks })
    }
}

/// The top index: every entry is a restart point, so a search is one binary search and gives the entry's
/// number.
#[derive(Debug)]
pub(super) struct TopIndex {
    block: Block,
    partitions: Vec<Partition>,
}

impl TopIndex {
    pub(super) fn new(block: Block, file_end: u64) -> Decoded<Self> {
        let mut partitions: Vec<Partition> = Vec::with_capacity(block.restarts());
        let mut at = 0;
        for i in 0..block.restarts() {
            let entry = block.restart_entry(i)?;
            if entry.at() != at {
                return Err(Malformed("top index entry is no restart point"));
            }
            at = entry.end();
            let partition = Partition::decode(block.value(&entry), file_end)?;
            if partitions.last().is_some_and(|before| before.data_end >= partition.data_end) {
                return Err(Malformed("partitions out of order"));
            }
            partitions.push(partition);
        }
        if at != block.entries_end() {
            return Err(Malformed("top index entry is no restart point"));
        }
        Ok(Self { block, partitions })
    }

    /// Number of the first partition whose separator is at or after the key.
    #[inline]
    pub(super) fn find(&self, key: &[u8]) -> Decoded<usize> {
        self.block.restart_lower_bound(key)
    }

    pub(super) fn partitions(&self) -> &[Partition] {
        &self.partitions
    }

    /// A key at or after the keys of a partition, before those that begin in the next.
    pub(super) fn separator(&self, i: usize) -> Decoded<&[u8]> {
        let suffix = self.block.restart_entry(i)?.suffix();
        Ok(&self.block.bytes()[suffix])
    }

    pub(super) fn data_end(&self) -> Option<u64> {
        self.partitions.last().map(|p| p.data_end)
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.block.memory_bytes() + self.partitions.capacity() * size_of::<Partition>()
    }
}

/// A short key at or after `last` and before `next`; `last` itself if they are equal or nothing is shorter.
pub(super) fn separator(last: &[u8], next: &[u8]) -> Vec<u8> {
    let common = common_prefix(last, next);
    if let (Some(&a), Some(&b)) = (last.get(common), next.get(common)) {
        if common + 1 < last.len() && a + 1 < b {
            let mut short = last[..=common].to_vec();
            short[common] = a + 1;
            return short;
        }
        if common + 1 < last.len() && common + 1 < next.len() {
            return next[..=common].to_vec();
        }
    }
    last.to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_separator_separates(mut a in proptest::collection::vec(0u8..4, 0..6), mut b in proptest::collection::vec(0u8..4, 0..6)) {
            if a > b { std::mem::swap(&mut a, &mut b); }
            let s = separator(&a, &b);
            prop_assert!(a <= s && (s < b || a == b), "{a:?} {s:?} {b:?}");
            prop_assert!(s.len() <= a.len());
        }
    }
}
