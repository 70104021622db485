//! Blocks of mapped tables that were checked a moment ago.
//!
//! A mapped block is checked when it is read, as one that is read from the file is. One that is read again
//! and again would cost as much each time, so it is believed until the clock's second ends, and by a cursor
//! as long as that stands in it: while a page is read so often it stays in memory, and what is in memory the
//! block cache believes, too. A page that was away meanwhile comes from the device and is checked anew. (The
//! seconds come round in 194 days.)
//!
//! One table of fixed size for all tables of a database, without locks: a slot holds a part of the block's
//! hash and the second of the check. Blocks that meet in a slot push each other out and are checked more
//! often. (Two whose hashes also agree in 40 bits are taken for each other: then one of them is believed
//! although it was not checked this second.)

use super::{BlockKey, Spread};
use crate::storage::Clock;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The number of bits of a slot that hold the second of the check; the others hold the block's hash.
const SECOND_BITS: u32 = 24;
const SECONDS: u64 = (1 << SECOND_BITS) - 1;
const NS: u64 = 1_000_000_000;
/// The table takes this part of the cache's size, or up to twice that since the number of slots is a power of
/// two. It has at most `SLOTS_MAX` slots: enough for blocks of 4 GiB.
const CACHE_PART: u64 = 16;
const SLOTS_MAX: u64 = 1 << 20;

/// See the page above.
pub(crate) struct Believed {
    slots: Box<[AtomicU64]>,
    clock: Arc<dyn Clock>,
}

impl Believed {
    /// A table for a cache of that size.
    pub(crate) fn new(capacity: u64, clock: &Arc<dyn Clock>) -> Self {
        let slots = (capacity / CACHE_PART / 8).clamp(1, SLOTS_MAX).next_power_of_two();
        Self { slots: (0..slots).map(|_| AtomicU64::new(0)).collect(), clock: clock.clone() }
    }

    pub(crate) fn memory_bytes(&self) -> u64 {
        8 * self.slots.len() as u64
    }

    /// The block's slot, and the value in it if the block was checked this second.
    #[inline]
    fn mark(&self, key: BlockKey) -> (&AtomicU64, u64) {
        let hash = Spread(0).hash_one(key);
        // From 1, as an empty slot has 0.
        let second = (self.clock.monotonic_ns() / NS + 1) & SECONDS;
        let slot = &self.slots[hash as usize & (self.slots.len() - 1)];
        (slot, hash >> SECOND_BITS << SECOND_BITS | second)
    }

    /// Whether the block was checked in this second.
    #[inline]
    pub(crate) fn has(&self, key: BlockKey) -> bool {
        let (slot, mark) = self.mark(key);
        slot.load(Ordering::Relaxed) == mark
    }

    /// Notes that the block was checked just now.
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
