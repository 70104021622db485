//! The database's present settings, for all its parts.
//!
//! Most never change while it is open. The division of the memory budget can: two numbers, the budget and the
//! part of it that is write memory. All limits on memory and WAL follow from them: when active memtables are
//! frozen, when flushes begin, where writers stop, how large the WAL may be. The cache gets the rest, less
//! the memory of open SSTables.
//!
//! A change sets the numbers at once and waits for nothing. A smaller cache is evicted in the call. A smaller
//! write memory may still be full of writes: as soon as they are over the new marks `strategy/plan_db.rs`
//! flushes them, and the cache, whose size allows for writes beyond their limit, grows as they are freed. So
//! the two together never exceed the budget. Like the rate limit this lasts until the database is closed.

use crate::cache::Filling;
use crate::metrics::Counter;
use crate::options::{CacheFill, Options};

/// The database's settings at present; see the page above.
#[derive(Debug)]
pub(crate) struct Settings {
    /// The options as they were at the open.
    pub(crate) options: Options,
    memory: Counter,
    write_memory: Counter,
}

impl Settings {
    pub(crate) fn of(options: &Options) -> Self {
        let settings =
            Self { options: options.clone(), memory: Counter::default(), write_memory: Counter::default() };
        settings.set_memory_limits(options.write_memory, options.memory_budget);
        settings
    }

    pub(crate) fn set_memory_limits(&self, write_memory: u64, memory_budget: u64) {
        self.write_memory.set(write_memory);
        self.memory.set(memory_budget);
    }

    /// Bytes that write memory, cache and open SSTables may take together.
    pub(crate) fn memory_budget(&self) -> u64 {
        self.memory.get()
    }

    /// Bytes of unflushed writes at which writers stop.
    #[inline]
    pub(crate) fn write_memory(&self) -> u64 {
        self.write_memory.get()
    }

    /// Half of the write memory: as much can be written during one flush.
    pub(crate) fn half(&self) -> u64 {
        self.write_memory() / 2
    }

    /// The options with the present division of memory.
    pub(crate) fn now(&self) -> Options {
        let (write_memory, memory_budget) = (self.write_memory(), self.memory_budget());
        Options { write_memory, memory_budget, ..self.options.clone() }
    }

    /// Which blocks compactions and flushes put into the block cache as they write.
    pub(crate) fn filling(&self) -> Filling {
        match self.options.cache_fill {
            CacheFill::None => Filling::Off,
            #[cfg(feature = "papers")]
            CacheFill::Before | CacheFill::Remote => Filling::Off,
            CacheFill::WriteThrough => Filling::All,
            CacheFill::Step => Filling::Warm,
        }
    }

    /// Output bytes of one compaction step; unlimited where a compaction is published as a whole.
    pub(crate) fn step_bytes(&self) -> u64 {
        match self.options.cache_fill {
            #[cfg(feature = "papers")]
            CacheFill::Before => u64::MAX,
            _ => self.options.tuning().compaction_step_bytes,
        }
    }

    /// Whether a step may end because of the bytes it put into the cache.
    pub(crate) fn steps_end_by_fill(&self) -> bool {
        self.options.cache_fill == CacheFill::Step
    }
}
