//! The database's settings as they are now: the one object that everything asks.
//!
//! Most are as at the open. How the memory budget is divided can change while the database runs: two numbers,
//! the budget and the part of it that is write memory. All limits on memory and WAL follow from them: when
//! active memtables are frozen, when flushing begins, where writers stop, how much WAL there may be. The
//! cache has what is left, less what open tables hold.
//!
//! A change sets the numbers at once and waits for nothing. What the cache gives up is evicted in the call.
//! What write memory gives up may still hold writes: as soon as they are over the new marks
//! `strategy/plan_db.rs` has them flushed, and the cache, which counts what writes really take where that is
//! more than their limit, grows as they go. So the two together stay within the budget all along. Like the
//! rate limit this lasts until the database is closed.

use crate::cache::Filling;
use crate::metrics::Counter;
use crate::options::{CacheFill, Options};

/// See the page above.
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
        settings.set_memory(options.write_memory, options.memory_budget);
        settings
    }

    pub(crate) fn set_memory(&self, write_memory: u64, memory_budget: u64) {
        self.write_memory.set(write_memory);
        self.memory.set(memory_budget);
    }

    /// Bytes that write memory, cache and open tables may take together.
    pub(crate) fn memory_budget(&self) -> u64 {
        self.memory.get()
    }

    /// Bytes of unflushed writes at which writers stop.
    #[inline]
    pub(crate) fn write_memory(&self) -> u64 {
        self.write_memory.get()
    }

    /// Half of the write memory: as much can be written while one flush is under way.
    pub(crate) fn half(&self) -> u64 {
        self.write_memory() / 2
    }

    /// The options with the division of memory as it is now.
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

    /// Output bytes of one step of a compaction: all of it where it is published as a whole.
    pub(crate) fn step_bytes(&self) -> u64 {
        match self.options.cache_fill {
            #[cfg(feature = "papers")]
            CacheFill::Before => u64::MAX,
            _ => self.options.experimental.step_bytes,
        }
    }

    /// Whether a step may end for what it put into the cache.
    pub(crate) fn steps_end_by_fill(&self) -> bool {
        self.options.cache_fill == CacheFill::Step
    }
}
