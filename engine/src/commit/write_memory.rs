//! Write memory: what takes it, and at how much of it flushing begins.
//!
//! The low watermark (RNG-9) is half of write memory, so that as much can be written while one flush is under
//! way. A flush costs the same however little it writes, and where memory is spread over many stores each is
//! short: there the mark is up to three quarters, with room left for some flushes of the largest store.
//!
//! The largest store is looked up when memory is over the mark, in O(stores). Until the next look-up, all
//! growth of memory is attributed to it. So the mark sinks as memory grows, and look-ups are rare; a store
//! that grows alone is found before it needs the room.

use super::Commit;
use crate::memtable::Spares;
use crate::metrics::Counter;
use std::sync::Arc;

/// The users of write memory beside memtables.
#[derive(Default)]
pub(crate) struct Room {
    /// The pool of memory chunks.
    pub(crate) spares: Arc<Spares>,
    /// Bytes that in-memory compactions take while they run.
    pub(crate) joining: Counter,
    /// Bytes that flushes under way may leave in memory.
    pub(crate) keeping: Counter,
    /// Bytes of deletes that were taken while the disk is full, since the last flush or compaction that
    /// succeeded.
    pub(crate) beyond_full: Counter,
    pub(crate) largest: Largest,
}

/// Flushes of the largest store for which there is room when flushing begins.
const ROOM_FLUSHES: u64 = 8;

/// The store with most of write memory, at the last look-up.
pub(crate) struct Largest {
    bytes: Counter,
    /// All memory at that look-up, or the least since.
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
    pub(crate) fn note(&self, bytes: u64, memory: u64) {
        self.bytes.set(bytes);
        self.memory.set(memory);
    }

    /// Notes the sum of all memory now. Growth from there may be one store's.
    pub(crate) fn note_memory(&self, memory: u64) {
        if memory < self.memory.get() {
            self.memory.set(memory);
        }
    }

    /// The mark at which flushing begins, with so much write memory, `memory` of it taken.
    fn low(&self, write_memory: u64, memory: u64) -> u64 {
        let grown = memory.saturating_sub(self.memory.get());
        let largest = self.bytes.get().saturating_add(grown);
        let room = largest.saturating_mul(ROOM_FLUSHES);
        write_memory - room.clamp(write_memory / 4, write_memory.div_ceil(2))
    }
}

impl Commit {
    /// Write memory at which flushing begins.
    pub(crate) fn memory_low(&self) -> u64 {
        self.room.largest.low(self.cx.settings.write_memory(), self.tally.memory.get())
    }

    /// Write memory up to which a flush waits for compactions in memory: well before writers are delayed.
    pub(crate) fn memory_wait(&self) -> u64 {
        let all = self.cx.settings.write_memory();
        let low = self.room.largest.low(all, self.tally.memory.get());
        low + (all - low) / 4
    }

    /// Whether memory came over the mark as it grew from one to the other.
    #[inline]
    pub(crate) fn passes_low(&self, before: u64, after: u64) -> bool {
        let all = self.cx.settings.write_memory();
        after > self.room.largest.low(all, after) && before <= self.room.largest.low(all, before)
    }

    /// Bytes of unflushed writes, and what in-memory compactions take while they run.
    pub(crate) fn memory_taken(&self) -> u64 {
        self.tally.memory.get() + self.room.joining.get()
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
