//! How the memory budget is divided, which can change while the database runs.
//!
//! Two numbers: the budget, and the part of it that is write memory. All limits on memory and log follow from them: when
//! active segments are frozen, when flushing begins, where writers stop, how much log there may be. The cache has what is
//! left, less what open tables hold.
//!
//! A move changes the numbers at once and waits for nothing. What the cache gives up is evicted in the call. What write
//! memory gives up may still hold writes: as soon as they are over the new marks `strategy/plan_db.rs` has them flushed,
//! and the cache, which counts what writes really take where that is more than their limit, grows as they go. So the two
//! together stay within the budget all along.
//!
//! Like the rate limit this lasts until the database is closed: the next open says anew what it is to be.

use super::Inner;
use super::store::Store;
use crate::error::Result;
use crate::event::EventKind;
use crate::metrics::Counter;
use crate::options::Options;
use crate::types::size_text;

/// The numbers as they are now; those in `Inner::options` are as they were at the open.
#[derive(Debug, Default)]
pub(crate) struct Budget {
    memory: Counter,
    write_memory: Counter,
}

impl Budget {
    pub(super) fn of(options: &Options) -> Self {
        let budget = Self::default();
        budget.set(options.write_memory, options.memory_budget);
        budget
    }

    fn set(&self, write_memory: u64, memory_budget: u64) {
        self.write_memory.set(write_memory);
        self.memory.set(memory_budget);
    }

    /// Bytes of everything that grows.
    pub(crate) fn memory(&self) -> u64 {
        self.memory.get()
    }

    /// Bytes of unflushed writes at which writers stop.
    #[inline]
    pub(crate) fn write_memory(&self) -> u64 {
        self.write_memory.get()
    }

    /// Half of them: as much can be written while one flush is under way.
    pub(super) fn half(&self) -> u64 {
        self.write_memory() / 2
    }
}

impl Inner {
    /// The options with the division of memory as it is now.
    pub(super) fn options_now(&self) -> Options {
        let (write_memory, memory_budget) = (self.budget.write_memory(), self.budget.memory());
        Options { write_memory, memory_budget, ..self.options.clone() }
    }

    pub(super) fn set_memory(&self, write_memory: u64, memory_budget: u64) -> Result<()> {
        self.check_open()?;
        // Stores take their part of it under the same lock when they are made.
        let _one = self.families.lock();
        self.check_open()?;
        let before = self.options_now();
        Options { write_memory, memory_budget, ..before.clone() }.validate()?;
        self.budget.set(write_memory, memory_budget);
        for store in self.stores().iter() {
            store.fit_memory(write_memory);
            store.work.lock().nothing_of_level0 = None;
            self.fit_active(store);
        }
        self.recount_all();
        self.touch_all();
        self.fit_cache();
        let reason = format!(
            "write memory {} of {}, it was {} of {}",
            size_text(write_memory),
            size_text(memory_budget),
            size_text(before.write_memory),
            size_text(before.memory_budget)
        );
        let numbers = [
            ("write_memory", write_memory),
            ("memory_budget", memory_budget),
            ("written_bytes", self.memory_taken()),
            ("cache_capacity", self.cache.stats().capacity),
        ];
        self.events.record(EventKind::Memory, "", reason, &numbers);
        self.scheduler.notify();
        Ok(())
    }

    /// Begins a new active segment where the present one is too large by now, or could only begin with a chunk of the old
    /// size.
    fn fit_active(&self, store: &Store) {
        let active = store.version().active.clone();
        if active.is_empty() || active.bytes() as u64 >= store.active_bytes() {
            self.renew_active(store, true);
        }
    }

    /// Gives the block cache what the budget leaves it: less write memory, or what writes take where that is more, less what
    /// open tables hold.
    pub(crate) fn fit_cache(&self) {
        let _one = self.fitting.lock();
        let (memory, write_memory) = (self.budget.memory(), self.budget.write_memory());
        let left = memory.saturating_sub(write_memory.max(self.memory_taken()));
        // However much the others hold, a little cache stays: without one each read would read its index anew.
        let least = memory.saturating_sub(write_memory) / 8;
        self.cache.set_capacity(left.saturating_sub(self.table_memory()).max(least));
    }
}
