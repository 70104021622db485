//! Small work that belongs to no job, and whether anything is left to do.

use super::Work;
use super::jobs::{clean_now, lay_out_one};
use super::queue::SLICE_NS;
use crate::commit::Store;
use crate::strategy::{DbFacts, plan_db};
use crate::sync::Ordering;
use std::sync::Arc;

/// WAL files with little in them that an open leaves beside the one being written, where it logs again what
/// is needed of others.
const FILES_LEFT: usize = 1;
/// WAL files with little in them that may come to be where the WAL has more in it than is logged again at
/// every open.
const FILES_LEFT_OF_MUCH: usize = 8;

impl Work {
    /// Whether nothing runs and nothing is due, and nothing is left to be opened behind the open.
    pub(crate) fn is_settled(&self) -> bool {
        if !self.queue.list.lock().is_empty() || self.catalog.tables.is_behind() {
            return false;
        }
        let now = self.cx.env.clock.monotonic_ns();
        // Most that are not done are among those that were touched.
        self.catalog.touched().iter().all(|store| self.is_store_settled(store, now))
            && self.catalog.stores().iter().all(|store| self.is_store_settled(store, now))
            && !self.memory_is_due(now)
    }

    /// Whether nothing runs or is due for the store; else it is looked at again.
    fn is_store_settled(&self, store: &Arc<Store>, now: u64) -> bool {
        // A job that is just being started is known to its store before it is in the list.
        let begun = {
            let work = store.work.lock();
            // What failed is tried again.
            work.flush.is_under_way()
                || work.memory.compacts.is_some()
                || work.compactions.is_running()
                || work.compactions.failures > 0
        };
        let version = store.version();
        let flat = version.memory.waiting.is_empty();
        let settled = !begun
            && !self.is_compacting(store.id)
            && flat
            && version.memory.flushing.is_empty()
            && version.memory.unflushed_bytes() <= self.cx.settings.half()
            && self.plan_store(store, 1, now).is_empty();
        if !settled {
            self.commit.touch(store.id);
        }
        settled
    }

    /// Whether some store is to be flushed as all memory together is over its mark. O(stores) where it is.
    fn memory_is_due(&self, now: u64) -> bool {
        let stores = self.catalog.stores();
        if !self.catalog.is_over_low(&stores) {
            return false;
        }
        let facts: Vec<_> = stores.iter().map(|store| self.store_facts(store, &[], 0, now)).collect();
        !plan_db(&facts, &DbFacts { workers_free: 1, ..self.memory_facts(&stores) }).is_empty()
    }

    /// The marks, and the memory of all other stores; the rest is zero.
    pub(crate) fn memory_facts(&self, stores: &[Arc<Store>]) -> DbFacts {
        let counted: u64 = stores.iter().map(|store| store.counted_memory()).sum();
        DbFacts {
            memory_elsewhere: self.commit.tally.memory.get().saturating_sub(counted),
            memory_low: self.commit.memory_low(),
            memory_wait: self.commit.memory_wait(),
            ..DbFacts::default()
        }
    }

    /// Small work that belongs to no job; whether there was any.
    pub(super) fn chores(&self) -> bool {
        let mut worked = false;
        if let Ok(wal) = self.commit.wal() {
            // A full disk shows again when the file is really needed; a WAL that failed, at the next write.
            if wal.needs_write_back() {
                let now = self.cx.env.clock.monotonic_ns();
                let _ = wal.write_back(now.saturating_sub(self.wal_written_ns.swap(now, Ordering::Relaxed)));
            }
            if wal.needs_prepare() {
                worked |= wal.prepare().unwrap_or(false);
            }
        }
        for store in self.catalog.touched() {
            worked |= lay_out_one(&self.catalog, &store);
        }
        worked |= self.sweep();
        let now = self.cx.env.clock.monotonic_ns();
        let saved = self.events_saved.load(Ordering::Relaxed);
        if now.saturating_sub(saved) > 1_000_000_000
            && self.events_saved.compare_exchange(saved, now, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        {
            // For people only: a failure to write it is not worth failing for.
            let _ = self.cx.events.save();
            self.commit.room.spares.rest();
            self.catalog.remove_strays(now);
            self.catalog.tend_shared(now);
        }
        worked
    }

    /// Frees what nobody reads any more, for a slice of time at most; whether there was something.
    fn sweep(&self) -> bool {
        self.catalog.sweep_until(self.cx.env.clock.monotonic_ns().saturating_add(SLICE_NS))
    }

    /// Logs again, before workers begin, what memory holds of the oldest WAL files, until few are left: many
    /// short lives leave many files with little in them. It is at most a quarter of a file at each open, or,
    /// where there is more in the WAL, all of it once in some opens. So opens leave a bounded number of
    /// files, also where none lives long enough for a worker to do anything. No SSTable is written, whatever
    /// the number of families. A failure changes nothing: the next open tries again.
    pub(crate) fn gather_wal(&self) {
        let Ok(wal) = self.commit.wal() else { return };
        let file_bytes = self.cx.settings.options.tuning().wal_file_bytes;
        let newest = wal.files().last().map(|file| file.file);
        let at_first = |bytes: u64| if bytes > file_bytes / 4 { FILES_LEFT_OF_MUCH } else { FILES_LEFT };
        // Once begun it goes on until few are left.
        let mut left = None;
        loop {
            let files = wal.files();
            let bytes: u64 = files.iter().map(|file| file.used).sum();
            let front = files.first().map(|file| file.file);
            let small = files.iter().filter(|file| file.used < file_bytes / 4).count();
            let is_over = small > 1 + left.unwrap_or_else(|| at_first(bytes));
            if !is_over || front >= newest || planted!(Bug::KeepWalFiles) {
                return;
            }
            left = Some(FILES_LEFT);
            let Some(outcome) = clean_now(&self.catalog) else { return };
            self.cleaned(outcome);
            if wal.files().first().map(|file| file.file) == front {
                return;
            }
        }
    }
}
