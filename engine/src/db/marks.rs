//! Where in write memory flushing begins, and whether some is due.
//!
//! The low watermark (RNG-9) is half of write memory, so that as much can be written while one flush is under way. A flush
//! costs the same however little it writes, and where memory is spread over many stores each is short: there the mark is
//! up to three quarters, with room left for some flushes of the largest store.
//!
//! The largest store is looked for when memory is over the mark, in O(stores). Until the next look it is taken to have all
//! that memory has grown by since. So the mark sinks towards memory as that grows, and a look is due now and then, not
//! at each turn; a store that grows alone is found before it needs the room.

use super::Inner;
use super::store::Store;
use crate::metrics::Counter;
use crate::strategy::{DbFacts, plan_db};
use std::sync::Arc;

/// Flushes of the largest store for which there is room when flushing begins.
const ROOM_FLUSHES: u64 = 8;

/// The store with most of write memory, as it was looked at last.
pub(crate) struct Largest {
    bytes: Counter,
    /// All memory then, or the least it has fallen to since.
    memory: Counter,
}

impl Default for Largest {
    fn default() -> Self {
        let largest = Self { bytes: Counter::default(), memory: Counter::default() };
        // Not known yet.
        largest.bytes.set(u64::MAX);
        largest
    }
}

impl Largest {
    fn note(&self, bytes: u64, memory: u64) {
        self.bytes.set(bytes);
        self.memory.set(memory);
    }

    /// All memory is that now. What it grows by from there may be one store's.
    pub(super) fn note_memory(&self, memory: u64) {
        if memory < self.memory.get() {
            self.memory.set(memory);
        }
    }

    /// Where flushing begins, of so much write memory, with that much of it taken.
    fn low(&self, write_memory: u64, memory: u64) -> u64 {
        let grown = memory.saturating_sub(self.memory.get());
        let largest = self.bytes.get().saturating_add(grown);
        let room = largest.saturating_mul(ROOM_FLUSHES);
        write_memory - room.clamp(write_memory / 4, write_memory.div_ceil(2))
    }
}

impl Inner {
    /// Write memory at which flushing begins.
    pub(super) fn memory_low(&self) -> u64 {
        self.largest.low(self.budget.write_memory(), self.tally.memory.get())
    }

    /// Write memory up to which a flush waits for compactions in memory: well before writers are slowed.
    pub(super) fn memory_wait(&self) -> u64 {
        let all = self.budget.write_memory();
        let low = self.largest.low(all, self.tally.memory.get());
        low + (all - low) / 4
    }

    /// Whether memory came over the mark as it grew from one to the other.
    #[inline]
    pub(super) fn passes_low(&self, before: u64, after: u64) -> bool {
        let all = self.budget.write_memory();
        after > self.largest.low(all, after) && before <= self.largest.low(all, before)
    }

    /// Whether memory is over the mark, with the largest store looked for. O(stores) where it may be.
    pub(super) fn is_over_low(&self, stores: &[Arc<Store>]) -> bool {
        let memory = self.tally.memory.get();
        if memory <= self.memory_low() {
            return false;
        }
        let largest = stores.iter().map(|store| store.counted_memory()).max().unwrap_or(0);
        // What was flushed meanwhile is gone from what the next growth is counted from.
        self.largest.note(largest, memory.min(self.tally.memory.get()));
        memory > self.memory_low()
    }

    /// Nothing runs and nothing is due.
    pub(super) fn is_settled(self: &Arc<Self>) -> bool {
        if !self.jobs.is_empty() {
            return false;
        }
        let now = self.env.clock.monotonic_ns();
        // Most that are not done are among those that were touched.
        self.touched().iter().all(|store| self.is_store_settled(store, now))
            && self.stores().iter().all(|store| self.is_store_settled(store, now))
            && !self.memory_is_due(now)
    }

    /// Whether nothing of one store runs or is due; else it is looked at again.
    fn is_store_settled(self: &Arc<Self>, store: &Arc<Store>, now: u64) -> bool {
        // A job that is just being started is known to its store before it is in the list.
        let begun = {
            let work = store.work.lock();
            // What failed is tried again.
            work.flushing || !work.running.is_empty() || work.failures > 0
        };
        let version = store.version();
        let by_range = store.settings().options.strategy.strategy().by_range().is_some();
        let flat = version.frozen.iter().all(|s| s.as_active().is_none() && !by_range);
        let settled = !begun
            && !self.is_compacting(store.id)
            && flat
            && version.flush.is_empty()
            && version.unflushed_bytes() <= self.budget.half()
            && self.plan_store(store, 1, now).is_empty();
        if !settled {
            self.touch(store.id);
        }
        settled
    }

    /// Whether some store is to be flushed as all memory together is over its mark. O(stores) where it is.
    fn memory_is_due(&self, now: u64) -> bool {
        let stores = self.stores();
        if !self.is_over_low(&stores) {
            return false;
        }
        let facts: Vec<_> = stores.iter().map(|store| self.store_facts(store, &[], 0, now)).collect();
        !plan_db(&facts, &DbFacts { workers_free: 1, ..self.memory_facts(&stores) }).is_empty()
    }

    /// The marks, and the memory of all other stores; the rest is zero.
    pub(super) fn memory_facts(&self, stores: &[Arc<Store>]) -> DbFacts {
        let counted: u64 = stores.iter().map(|store| store.counted_memory()).sum();
        DbFacts {
            memory_elsewhere: self.tally.memory.get().saturating_sub(counted),
            memory_low: self.memory_low(),
            memory_wait: self.memory_wait(),
            ..DbFacts::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mark_is_half_until_the_largest_store_is_known_to_be_small_and_sinks_as_memory_grows() {
        let largest = Largest::default();
        assert_eq!(largest.low(640, 0), 320);
        largest.note(10, 330);
        assert_eq!(largest.low(640, 330), 480);
        // Room for eight of 30, then of 40.
        assert_eq!(largest.low(640, 350), 400);
        assert_eq!(largest.low(640, 360), 320);
        largest.note_memory(300);
        assert_eq!(largest.low(640, 330), 320);
        for all in 0..9 {
            assert!(largest.low(all, 0) <= all);
        }
    }
}
