//! How often keys were written lately: one key, all keys of a flush, and a hot cell that stays in memory.

use super::cell::{Cell, CellRef};

/// What a source of cells knows of its current key, at the key's first cell.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Heat {
    /// Updates, including those of dropped versions. Zero if nothing is known.
    pub(crate) updates: u32,
    /// How many flushes left the newest cell in memory since it was written.
    pub(crate) kept: u8,
    /// Whether a flush left any cell of the key in memory.
    pub(crate) was_kept: bool,
}

impl Heat {
    /// Adds an older source's counts of the same key.
    pub(crate) fn add_older(&mut self, older: Heat) {
        self.updates = self.updates.saturating_add(older.updates);
        self.was_kept |= older.was_kept;
    }
}

/// A hot cell that a flush leaves in memory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct HotCell {
    pub(crate) cell: Cell,
    /// The key's updates that stay with it.
    pub(crate) updates: u32,
    /// How many flushes left it in memory since it was written, this one included.
    pub(crate) kept: u8,
}

impl HotCell {
    /// Memory that a hot cell takes, about: header, index entry and counts beside its bytes.
    pub(crate) fn bytes(cell: &CellRef<'_>) -> u64 {
        cell.user_bytes() as u64 + 48
    }
}

/// Up to here each number of updates has its own bucket, beyond it a quarter of a power of two.
const EXACT: u32 = 64;
const BUCKETS: usize = EXACT as usize + 4 * 26;

fn bucket(updates: u32) -> usize {
    if updates < EXACT {
        return updates as usize;
    }
    let power = updates.ilog2();
    let quarter = (updates >> (power - 2)) & 3;
    (EXACT + 4 * (power - EXACT.ilog2()) + quarter) as usize
}

/// The largest number of updates in a bucket.
fn last_of(bucket: usize) -> u32 {
    let Some(beyond) = (bucket as u32).checked_sub(EXACT) else { return bucket as u32 };
    let (power, quarter) = (EXACT.ilog2() + beyond / 4, beyond % 4);
    let next = u64::from(quarter + 5) << (power - 2);
    u32::try_from(next - 1).unwrap_or(u32::MAX)
}

/// The keys of a flush, by number of updates.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Heats {
    pub(crate) keys: u64,
    pub(crate) updates: u64,
    /// By number of updates: keys, and bytes of their newest cells.
    pub(crate) buckets: Vec<(u64, u64)>,
    /// Cells that an earlier flush left in memory, and those of them that were written again since.
    pub(crate) kept: u64,
    pub(crate) kept_updated: u64,
}

impl Default for Heats {
    fn default() -> Self {
        Self { keys: 0, updates: 0, buckets: vec![(0, 0); BUCKETS], kept: 0, kept_updated: 0 }
    }
}

impl Heats {
    /// Counts a key and the memory of its newest cell. O(1).
    pub(crate) fn key(&mut self, updates: u32, bytes: u64) {
        self.keys += 1;
        self.updates += u64::from(updates);
        let bucket = &mut self.buckets[bucket(updates)];
        bucket.0 += 1;
        bucket.1 += bytes;
    }

    /// The smallest number of updates that at most `most` keys exceed.
    #[cfg(feature = "papers")]
    pub(crate) fn keys_over(&self, most: u64) -> u32 {
        self.over(most, |bucket| bucket.0)
    }

    /// The smallest number of updates such that the keys that exceed it take at most `most` bytes.
    pub(crate) fn bytes_over(&self, most: u64) -> u32 {
        self.over(most, |bucket| bucket.1)
    }

    fn over(&self, most: u64, of: impl Fn(&(u64, u64)) -> u64) -> u32 {
        let mut sum = 0;
        for at in (0..BUCKETS).rev() {
            sum += of(&self.buckets[at]);
            if sum > most {
                return last_of(at);
            }
        }
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_hold_all_numbers_of_updates_in_order() {
        let mut before = 0;
        for updates in (0..5_000).chain([1 << 20, u32::MAX / 2, u32::MAX]) {
            let at = bucket(updates);
            assert!(at >= before && at < BUCKETS && last_of(at) >= updates, "{updates}");
            assert!(at == 0 || last_of(at - 1) < updates, "{updates}");
            before = at;
        }
    }
}
