//! Counts of what the stores of a database hold, updated with each change, and the list of stores that
//! background work has to look at. So the cost of a worker's turn, a freeze or an install does not depend on
//! the number of families.
//!
//! - *Memory, hot cells in it, SSTables, L0, debt*: each store has its last count, and the sums change by the
//!   difference to it. One thread at a time counts a store, and reads the version while it does, so the last
//!   count is of the last version.
//! - *WAL*: each store is listed under the oldest WAL file that its memory needs, or under an older one. The
//!   first write into empty memory lists it. A query for the oldest file that is needed moves the stores
//!   listed under older files to where they belong.
//! - *Due*: the next turn looks at a store whose memory was frozen, whose SSTables changed, of which a job
//!   ended, or which has a new request. Each turn also looks at a few others, in rotation, since strategies
//!   also depend on time and on readers.

use super::Commit;
use super::store::Store;
use super::store_work::StoreWork;
use crate::metrics::Counter;
use crate::sync::{Mutex, Ordering};
use crate::types::{Counts, LogFileId, StoreId};
use crate::version::Version;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The number of stores that a turn looks at in rotation.
const IN_TURN: usize = if cfg!(feature = "testing") { 2 } else { 16 };

#[derive(Default)]
pub(crate) struct Tally {
    /// Bytes of unflushed writes; backpressure goes by it.
    pub(crate) memory: Counter,
    pub(crate) table_bytes: Counter,
    /// The part of `memory` that flushes left there: hot cells.
    kept: Counter,
    pub(crate) debt: Counter,
    pub(crate) debt_of_writers: Counter,
    /// The most excess runs in L0 that any store has.
    pub(crate) level0_runs: Counter,
    /// The numbers of excess runs, of the stores that have some.
    level0: Mutex<Counts<u64>>,
    fronts: Mutex<BTreeMap<LogFileId, BTreeMap<StoreId, Arc<Store>>>>,
    due: Mutex<Due>,
}

#[derive(Default)]
struct Due {
    touched: BTreeSet<StoreId>,
    /// Stores that become due at a moment (monotonic ns).
    later: BTreeSet<(u64, StoreId)>,
    /// The last store that was looked at in rotation.
    last: StoreId,
}

/// Changes a shared sum by the difference of two values.
fn change(sum: &Counter, before: u64, now: u64) {
    match now >= before {
        true => sum.add(now - before),
        false => sum.sub(before - now),
    }
}

impl Tally {
    /// Counts the memory of a write to the store; returns the sum of all memory before it. The sum grows
    /// before the store's count: otherwise a recount in between could take the sum below zero, which would
    /// stop all writers.
    #[inline]
    pub(crate) fn grew(&self, store: &Store, bytes: u64) -> u64 {
        let before = self.memory.take_add(bytes);
        store.counted.memory.fetch_add(bytes, Ordering::Release);
        before
    }

    pub(super) fn count_memory(&self, store: &Store, bytes: u64) {
        change(&self.memory, store.counted.memory.swap(bytes, Ordering::AcqRel), bytes);
    }

    /// Counts the bytes of the store's SSTables and of its hot cells anew.
    fn count_held(&self, store: &Store, tables: u64, kept: u64) {
        change(&self.table_bytes, store.counted.tables.swap(tables, Ordering::Relaxed), tables);
        change(&self.kept, store.counted.kept.swap(kept, Ordering::Relaxed), kept);
    }

    /// Counts the store's excess runs in L0 anew; whether it had more before.
    fn count_level0(&self, store: &Store, runs: u64) -> bool {
        let before = store.level0_over.swap(runs, Ordering::Relaxed);
        if before != runs {
            let mut level0 = self.level0.lock();
            level0.remove(&before);
            if runs > 0 {
                level0.add(runs);
            }
            self.level0_runs.set(level0.last().copied().unwrap_or(0));
        }
        runs < before
    }

    /// Lists the store under the WAL file that has the first write into its empty memory. Called with the WAL
    /// stage locked.
    pub(crate) fn enter_front(&self, store: &Arc<Store>, file: LogFileId) {
        Self::place(&mut self.fronts.lock(), store, Some(file));
    }

    /// The stores whose memory may need that WAL file or an older one.
    pub(crate) fn needing(&self, file: LogFileId) -> Vec<Arc<Store>> {
        let fronts = self.fronts.lock();
        let mut stores: Vec<_> =
            fronts.range(..=file).flat_map(|(_, stores)| stores.values().cloned()).collect();
        stores.sort_by_key(|store| store.id);
        stores
    }

    pub(crate) fn place(
        fronts: &mut BTreeMap<LogFileId, BTreeMap<StoreId, Arc<Store>>>,
        store: &Arc<Store>,
        front: Option<LogFileId>,
    ) {
        if let Some(before) = store.front()
            && let Some(there) = fronts.get_mut(&before)
        {
            there.remove(&store.id);
            if there.is_empty() {
                fronts.remove(&before);
            }
        }
        store.counted.front.store(front.unwrap_or(LogFileId::MAX).0, Ordering::Relaxed);
        if let Some(front) = front.filter(|_| !store.is_gone()) {
            fronts.entry(front).or_default().insert(store.id, store.clone());
        }
    }

    /// Takes the stores that are due now, and some others in rotation.
    pub(crate) fn take_due(&self, stores: &[Arc<Store>], now: u64) -> BTreeSet<StoreId> {
        let mut due = self.due.lock();
        while let Some((at, store)) = due.later.first().copied().filter(|(at, _)| *at <= now) {
            due.later.remove(&(at, store));
            due.touched.insert(store);
        }
        let mut taken = std::mem::take(&mut due.touched);
        let from = stores.partition_point(|store| store.id <= due.last);
        let in_turn = if planted!(Bug::PlanForAllFamilies) { stores.len() } else { IN_TURN };
        let in_turn = stores[from..].iter().chain(&stores[..from]).take(in_turn);
        for store in in_turn {
            due.last = store.id;
            taken.insert(store.id);
        }
        taken
    }

    pub(crate) fn touched(&self) -> Vec<StoreId> {
        self.due.lock().touched.iter().copied().collect()
    }
}

/// The store of that number. O(log n).
pub(crate) fn by_id(stores: &[Arc<Store>], id: StoreId) -> Option<&Arc<Store>> {
    stores.binary_search_by_key(&id, |store| store.id).ok().map(|at| &stores[at])
}

impl Commit {
    /// Marks the store as due: the next turn looks at it.
    pub(crate) fn touch(&self, store: StoreId) {
        self.tally.due.lock().touched.insert(store);
    }

    pub(crate) fn touch_all(&self, stores: &[Arc<Store>]) {
        self.tally.due.lock().touched.extend(stores.iter().map(|store| store.id));
    }

    /// Makes the store due at that moment (monotonic ns).
    pub(crate) fn touch_at(&self, store: StoreId, at_ns: u64) {
        self.tally.due.lock().later.insert((at_ns, store));
    }

    /// Counts the runs in L0 for which the store's writers are delayed; returns whether there are fewer than
    /// before.
    pub(crate) fn count_level0(&self, store: &Store, version: &Version) -> bool {
        let runs = version.shape.levels.first().map_or(0, |l| l.runs.len());
        let settings = store.settings();
        let usual = settings.options.strategy.strategy().level0_runs();
        let over = settings.inherited.level0_beyond(runs.saturating_sub(usual) as u64);
        self.tally.count_level0(store, over)
    }

    /// Counts the debt that the store's plan found; returns whether writers are delayed for less than before.
    pub(crate) fn count_debt(&self, work: &mut StoreWork, debt: u64, of_writers: u64) -> bool {
        let falls = of_writers < work.compactions.debt_of_writers;
        change(&self.tally.debt, std::mem::replace(&mut work.compactions.debt, debt), debt);
        let before = std::mem::replace(&mut work.compactions.debt_of_writers, of_writers);
        change(&self.tally.debt_of_writers, before, of_writers);
        falls
    }

    /// Counts the store's memory and SSTables anew: they have changed. O(its memtables and SSTables).
    pub(crate) fn recount(&self, store: &Store) {
        self.recount_one(store);
        self.counted();
    }

    pub(crate) fn recount_one(&self, store: &Store) {
        let _counting = store.counted.counting.lock();
        if store.is_dropped() {
            return;
        }
        let version = store.version();
        self.tally.count_memory(store, version.memory.bytes());
        self.tally.count_held(store, version.shape.live_bytes(), version.memory.ranges.hot_bytes());
        self.count_level0(store, &version);
    }

    /// Bytes of hot cells in the memory of all other stores.
    pub(crate) fn kept_by_others(&self, store: &Store) -> u64 {
        self.tally.kept.get().saturating_sub(store.counted.kept.load(Ordering::Relaxed))
    }

    /// Takes a dropped store out of all sums.
    pub(crate) fn discount(&self, store: &Arc<Store>) {
        {
            let _counting = store.counted.counting.lock();
            self.tally.count_memory(store, 0);
            self.tally.count_held(store, 0, 0);
            self.tally.count_level0(store, 0);
        }
        self.count_debt(&mut store.work.lock(), 0, 0);
        {
            let mut fronts = self.tally.fronts.lock();
            Tally::place(&mut fronts, store, None);
            // A write that began before the drop may still add to its memory, which needs no WAL any more.
            store.mark_gone();
        }
        // A dropped store is listed nowhere.
        self.failing.remove(store.id);
        self.counted();
    }

    pub(crate) fn counted(&self) {
        self.room.largest.note_memory(self.tally.memory.get());
        // A closed database retains none.
        let room = self.cx.settings.write_memory().saturating_sub(self.memory_taken());
        self.room.spares.set_room(if self.cx.health.is_open() { room as usize } else { 0 });
        self.tune_rate();
    }

    /// The oldest WAL file that memory still needs, with the flush set of `without` counted as gone.
    pub(crate) fn log_front(&self, without: Option<&Arc<Store>>) -> LogFileId {
        // Writers wait, so that nothing is logged into empty memory meanwhile.
        self.with_writes_held(|_| self.wal_front_held(without)).unwrap_or(LogFileId::ZERO)
    }

    fn wal_front_held(&self, without: Option<&Arc<Store>>) -> LogFileId {
        let end = self.wal().map_or(LogFileId::MAX, |wal| wal.end().file);
        let of_without = without.and_then(|store| store.version().memory.wal_front_without_flush());
        let mut best = end.min(of_without.unwrap_or(LogFileId::MAX));
        let mut fronts = self.tally.fronts.lock();
        let mut from = LogFileId::ZERO;
        // Stores under an older file than they need move to the right one; the first that need not move gives
        // the answer.
        while let Some((&front, there)) = fronts.range(from..).next().filter(|(front, _)| **front < best) {
            let mut stays = false;
            for store in there.values().cloned().collect::<Vec<_>>() {
                // A store that is being dropped needs its files until the manifest no longer names it.
                if without.is_some_and(|without| without.id == store.id) {
                    continue;
                }
                let needs = store.version().memory.log_front();
                // Less where its memory was copied while the front was cleaned: what the copy says of a file
                // that is gone since stands in later ones.
                if needs.is_some_and(|needs| needs <= front) {
                    stays = true;
                    break;
                }
                Tally::place(&mut fronts, &store, needs);
            }
            if stays {
                best = front;
            }
            from = front.next();
        }
        best
    }

    /// Lists stores under the WAL files that their memory needs, after recovery.
    pub(crate) fn enter_fronts(&self, stores: &[Arc<Store>]) {
        let mut fronts = self.tally.fronts.lock();
        for store in stores {
            Tally::place(&mut fronts, store, store.version().memory.log_front());
        }
    }
}
