//! How lately parts of an SSTable's data were read: two bits for each, in the open SSTable, since a cache
//! cannot be asked what it has. They show a compaction which cells readers are likely to want in its outputs.
//!
//! A part is about an eighth of a block's target size, as an offset in the file, so that one popular key in a
//! block does not make its neighbours look popular too. One bit means "in this period", the other "in the
//! last one"; a period lasts for so many reads of the data cache. ([`super::BlockCache`] counts reads, not
//! bytes that enter, since most of these are evicted soon.) After two unused periods the marks are gone. The
//! bits are a hint: concurrent readers and the end of a period may lose a mark, never add one.

use super::BlockCache;
use crate::sync::{AtomicU64, Ordering};
use std::ops::Range;
use std::sync::{Arc, OnceLock};

const PARTS: u64 = 32;
/// The bits that mean "in this period".
const NOW: u64 = 0x5555_5555_5555_5555;
/// The smallest part; larger blocks have `PARTS_A_BLOCK` of them in a block's target size.
const PART_BYTES_MIN: u64 = 64;
const PARTS_A_BLOCK: u64 = 8;

/// The marks of one SSTable. The first mark allocates them; they count as the SSTable's memory.
pub(crate) struct Warmth {
    part_bytes: u64,
    words: usize,
    marks: OnceLock<Marks>,
    counts: Arc<BlockCache>,
}

struct Marks {
    period: AtomicU64,
    words: Box<[AtomicU64]>,
}

impl Warmth {
    /// No marks yet, for an SSTable with `data_bytes` of blocks of about `block_bytes`.
    pub(crate) fn new(data_bytes: u64, block_bytes: u64, counts: &Arc<BlockCache>) -> Self {
        let part_bytes = (block_bytes / PARTS_A_BLOCK).max(PART_BYTES_MIN);
        let words = data_bytes.div_ceil(part_bytes).div_ceil(PARTS) as usize;
        Self { part_bytes, words, marks: OnceLock::new(), counts: Arc::clone(counts) }
    }

    /// Marks the part at that offset as read in this period.
    #[inline]
    pub(crate) fn touch(&self, offset: u64, period: u64) {
        let part = offset / self.part_bytes;
        if let Some(word) = self.marks(period).words.get((part / PARTS) as usize) {
            let bit = 1 << (part % PARTS * 2);
            if word.load(Ordering::Relaxed) & bit == 0 {
                word.fetch_or(bit, Ordering::Relaxed);
            }
        }
    }

    /// Marks all parts of the range as read in this period.
    pub(crate) fn touch_all(&self, range: Range<u64>, period: u64) {
        let last = range.end.saturating_sub(1) / self.part_bytes;
        for part in range.start / self.part_bytes..=last {
            self.touch(part * self.part_bytes, period);
        }
    }

    /// Whether the part at that offset was read in this period or the last.
    #[inline]
    pub(crate) fn is_warm(&self, offset: u64, period: u64) -> bool {
        if self.marks.get().is_none() {
            return false;
        }
        let part = offset / self.part_bytes;
        let word = self.marks(period).words.get((part / PARTS) as usize);
        word.is_some_and(|word| word.load(Ordering::Relaxed) >> (part % PARTS * 2) & 3 != 0)
    }

    /// The marks, updated to this period.
    #[inline]
    fn marks(&self, period: u64) -> &Marks {
        let marks = self.marks.get_or_init(|| {
            let words: Box<[_]> = (0..self.words).map(|_| AtomicU64::new(0)).collect();
            self.counts.count_table(size_of_val(&*words) as u64, true);
            Marks { period: AtomicU64::new(period), words }
        });
        let of = marks.period.load(Ordering::Relaxed);
        if of < period {
            marks.age(of, period);
        }
        marks
    }

    fn memory_bytes(&self) -> u64 {
        self.marks.get().map_or(0, |marks| size_of_val(&*marks.words) as u64)
    }
}

impl Drop for Warmth {
    fn drop(&mut self) {
        self.counts.count_table(self.memory_bytes(), false);
    }
}

impl Marks {
    #[cold]
    fn age(&self, from: u64, to: u64) {
        // Only the first thread does it.
        if self.period.compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed).is_err() {
            return;
        }
        for word in &self.words {
            let before = word.load(Ordering::Relaxed);
            if before != 0 {
                word.store(if to == from + 1 { (before & NOW) << 1 } else { 0 }, Ordering::Relaxed);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        /// The model remembers for each part in which period it was last read.
        #[test]
        fn a_part_is_warm_in_the_period_it_was_read_in_and_in_the_next(
            block_bytes in 64u64..8192,
            steps in proptest::collection::vec((0..4u8, 0u64..100_000, 0u64..9_000), 1..80),
        ) {
            let warmth = Warmth::new(100_000, block_bytes, &BlockCache::new(0));
            let part = (block_bytes / 8).max(64);
            let (mut read, mut period) = (BTreeMap::new(), 7);
            for (what, at, length) in steps {
                match what {
                    0 => period += at % 3,
                    1 => {
                        let end = (at + length.max(1)).min(100_000);
                        warmth.touch_all(at..end, period);
                        read.extend((at / part..=(end - 1) / part).map(|part| (part, period)));
                    }
                    2 => {
                        warmth.touch(at, period);
                        read.insert(at / part, period);
                    }
                    _ => {
                        let expected = read.get(&(at / part)).is_some_and(|then| then + 1 >= period);
                        prop_assert_eq!(warmth.is_warm(at, period), expected, "{} in period {}", at, period);
                    }
                }
            }
            for at in 0..100_000 / part {
                let expected = read.get(&at).is_some_and(|then| then + 1 >= period);
                prop_assert_eq!(warmth.is_warm(at * part, period), expected);
            }
        }
    }

    #[test]
    fn it_takes_memory_only_once_something_was_read_and_then_little() {
        let cache = BlockCache::new(0);
        let warmth = Warmth::new(64 << 20, 4096, &cache);
        assert!(!warmth.is_warm(0, 1));
        assert_eq!((warmth.memory_bytes(), cache.table_memory()), (0, 0));
        warmth.touch(1 << 20, 1);
        assert_eq!(warmth.memory_bytes(), 32 << 10, "two bits for each 512 bytes");
        assert_eq!(cache.table_memory(), 32 << 10);
        // After the end there are no marks, and asking does no harm.
        warmth.touch(u64::MAX, 1);
        assert!(!warmth.is_warm(u64::MAX, 1) && warmth.is_warm((1 << 20) + 511, 2));
        drop(warmth);
        assert_eq!(cache.table_memory(), 0);
    }
}
