//! Blocks of mapped SSTables that were verified a moment ago.
//!
//! A mapped block's checksum is verified when the block is read. For a block that is read again and again
//! this would cost as much each time, so it counts as verified until the clock's second ends, and for a
//! cursor as long as it stays in the block: a page that is read so often stays in memory, and blocks in
//! memory are not verified again in the block cache either. A page that was evicted meanwhile comes from the
//! device and is verified again. (The seconds wrap around after 194 days.)
//!
//! One hash table of fixed size for all SSTables of a database, without locks: a slot has a part of the
//! block's hash and the second of the check. Blocks that share a slot replace each other and are verified
//! more often. (Two whose hashes also agree in 40 bits are confused: then one of them counts as verified
//! although it was not in this second.)

use super::{BlockKey, Spreading};
use crate::storage::Clock;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The number of bits of a slot for the second of the check; the others have the block's hash.
const SECOND_BITS: u32 = 24;
const SECONDS: u64 = (1 << SECOND_BITS) - 1;
const NS: u64 = 1_000_000_000;
/// The hash table's size as a part of the cache's, or up to twice that since the number of slots is a power
/// of two. It has at most `SLOTS_MAX` slots: enough for blocks of 4 GiB.
const CACHE_PART: u64 = 16;
const SLOTS_MAX: u64 = 1 << 20;

/// The blocks of mapped SSTables that were verified this second; see the page above.
pub(crate) struct Believed {
    slots: Box<[AtomicU64]>,
    clock: Arc<dyn Clock>,
}

impl Believed {
    /// A hash table for a cache of that size.
    pub(crate) fn new(capacity: u64, clock: &Arc<dyn Clock>) -> Self {
        let slots = (capacity / CACHE_PART / 8).clamp(1, SLOTS_MAX).next_power_of_two();
        Self { slots: (0..slots).map(|_| AtomicU64::new(0)).collect(), clock: clock.clone() }
    }

    pub(crate) fn memory_bytes(&self) -> u64 {
        8 * self.slots.len() as u64
    }

    /// The block's slot, and the value in it if the block was verified this second.
    #[inline]
    fn mark(&self, key: BlockKey) -> (&AtomicU64, u64) {
        let hash = Spreading::default().hash_one(key);
        // From 1, as an empty slot has 0.
        let second = (self.clock.monotonic_ns() / NS + 1) & SECONDS;
        let slot = &self.slots[hash as usize & (self.slots.len() - 1)];
        (slot, hash >> SECOND_BITS << SECOND_BITS | second)
    }

    /// Whether the block was verified in this second.
    #[inline]
    pub(crate) fn has(&self, key: BlockKey) -> bool {
        let (slot, mark) = self.mark(key);
        slot.load(Ordering::Relaxed) == mark
    }

    /// Notes that the block was verified just now.
    pub(crate) fn note(&self, key: BlockKey) {
        let (slot, mark) = self.mark(key);
        slot.store(mark, Ordering::Relaxed);
    }
}

#[cfg(all(test, not(models)))]
mod tests {
    use super::*;
    use crate::storage::sim::SimWorld;

    #[test]
    fn a_block_is_believed_for_a_second_and_no_other_block_is() {
        let world = SimWorld::new(1);
        let believed = Believed::new(64 << 20, &world.env().clock);
        let key = |n: u64| BlockKey { table: 1 + n % 3, offset: n / 3 * 4111 };
        (0..1000).for_each(|n| believed.note(key(n)));
        let has = |range: std::ops::Range<u64>| range.filter(|n| believed.has(key(*n))).count();
        assert!(has(0..1000) > 950, "few of them meet in a slot");
        assert_eq!(has(1000..100_000), 0);
        world.clock.advance_us(1_000_000);
        assert_eq!(has(0..1000), 0);
        believed.note(key(5));
        assert_eq!(has(0..1000), 1);
        assert_eq!(believed.memory_bytes(), 4 << 20);
    }
}
