//! What the stores of a database hold, counted as it changes, and which of them may have something to do. So a turn of a
//! worker, a freeze and an install cost what they change, however many families there are.
//!
//! - *Memory, what of it was kept by flushes, tables, level 0, debt*: each store knows what was last counted of it, and
//!   the sums change by the difference. One at a time counts a store, and reads its version then: the last count is of
//!   the last version.
//! - *Log*: stores stand under the log file that their memory needs, or under an older one. They are entered by the first
//!   write into empty memory; that memory needs only later files by now is found out when the front is asked for, of the
//!   stores at the front alone.
//! - *Due*: a store is looked at in the next turn when it was touched: its memory was frozen, its tables changed, a job of
//!   it ended, somebody asked for something. Each turn looks at a few others in turn besides, since strategies also go by
//!   time and by what readers do.

use super::Inner;
use super::install::{front_without_flush, store_front};
use super::store::Store;
use super::{State, store};
use crate::metrics::Counter;
use crate::sync::{Mutex, Ordering};
use crate::types::{Counts, LogFileId, StoreId};
use crate::version::Version;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Stores that a turn looks at though nobody touched them.
const IN_TURN: usize = if cfg!(feature = "testing") { 2 } else { 16 };
/// Stores among which those to flush are chosen: the ones with most memory.
const CHOSEN_FROM: usize = 64;

#[derive(Default)]
pub(crate) struct Tally {
    /// Bytes of unflushed writes; what backpressure looks at.
    pub(super) memory: Counter,
    pub(super) table_bytes: Counter,
    /// Of the memory, what flushes left there.
    kept: Counter,
    pub(super) debt: Counter,
    pub(super) debt_of_writers: Counter,
    /// The most runs too many in level 0 of any store.
    pub(super) level0_runs: Counter,
    /// The numbers of runs too many, of the stores that have some.
    level0: Mutex<Counts<u64>>,
    fronts: Mutex<BTreeMap<LogFileId, BTreeSet<StoreId>>>,
    due: Mutex<Due>,
}

#[derive(Default)]
struct Due {
    touched: BTreeSet<StoreId>,
    /// To be touched at that moment (monotonic ns).
    later: BTreeSet<(u64, StoreId)>,
    /// The last one that was looked at in turn.
    last: StoreId,
}

/// Adds the difference to a sum that others change, too.
fn change(sum: &Counter, before: u64, now: u64) {
    match now >= before {
        true => sum.add(now - before),
        false => sum.sub(before - now),
    }
}

impl Tally {
    /// The store has so many runs too many in level 0; whether it had more before.
    fn count_level0(&self, store: &Store, runs: u64) -> bool {
        let before = store.set_level0_over(runs);
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

    /// The store's first write since its memory was empty went there. Called with the log stage held.
    pub(super) fn enter_front(&self, store: &Store, file: LogFileId) {
        Self::place(&mut self.fronts.lock(), store, Some(file));
    }

    /// The stores whose memory may need that log file or an older one.
    pub(super) fn needing(&self, file: LogFileId) -> Vec<StoreId> {
        self.fronts.lock().range(..=file).flat_map(|(_, stores)| stores.iter().copied()).collect()
    }

    fn place(fronts: &mut BTreeMap<LogFileId, BTreeSet<StoreId>>, store: &Store, front: Option<LogFileId>) {
        if let Some(before) = store.front()
            && let Some(there) = fronts.get_mut(&before)
        {
            there.remove(&store.id);
            if there.is_empty() {
                fronts.remove(&before);
            }
        }
        store.set_front(front);
        if let Some(front) = front {
            fronts.entry(front).or_default().insert(store.id);
        }
    }

    /// Takes the stores to look at now out of those that were touched, and some others.
    fn take_due(&self, stores: &[Arc<Store>], now: u64) -> BTreeSet<StoreId> {
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

    fn touched(&self) -> Vec<StoreId> {
        self.due.lock().touched.iter().copied().collect()
    }
}

/// The store of that number. O(log n).
pub(super) fn by_id(stores: &[Arc<Store>], id: StoreId) -> Option<&Arc<Store>> {
    stores.binary_search_by_key(&id, |store| store.id).ok().map(|at| &stores[at])
}

impl Inner {
    /// The store is to be looked at.
    pub(super) fn touch(&self, store: StoreId) {
        self.tally.due.lock().touched.insert(store);
    }

    /// The same, not before that moment.
    pub(super) fn touch_at(&self, store: StoreId, at_ns: u64) {
        self.tally.due.lock().later.insert((at_ns, store));
    }

    /// All stores are.
    pub(super) fn touch_all(&self) {
        self.tally.due.lock().touched.extend(self.stores().iter().map(|store| store.id));
    }

    /// The stores that planning looks at now: those that were touched, those with jobs, some in turn, and where memory
    /// is to be made free those that have most of it. By number.
    pub(super) fn take_due(&self, working: &[StoreId], now: u64) -> Vec<Arc<Store>> {
        let stores = self.stores();
        let mut ids = self.tally.take_due(&stores, now);
        ids.extend(working);
        if self.is_over_low(&stores) {
            let mut by_memory: Vec<(u64, StoreId)> = stores
                .iter()
                .map(|store| (store.counted_memory(), store.id))
                .filter(|(bytes, _)| *bytes > 0)
                .collect();
            if by_memory.len() > CHOSEN_FROM {
                by_memory.select_nth_unstable_by_key(CHOSEN_FROM, |(bytes, _)| std::cmp::Reverse(*bytes));
                by_memory.truncate(CHOSEN_FROM);
            }
            ids.extend(by_memory.into_iter().map(|(_, id)| id));
        }
        ids.into_iter().filter_map(|id| by_id(&stores, id).cloned()).collect()
    }

    /// The stores that were touched and not looked at yet.
    pub(super) fn touched(&self) -> Vec<Arc<Store>> {
        let stores = self.stores();
        self.tally.touched().into_iter().filter_map(|id| by_id(&stores, id).cloned()).collect()
    }

    /// Counts the runs in level 0 for which the store's writers are held up; whether there are fewer than before.
    pub(super) fn count_level0(&self, store: &Store, version: &Version) -> bool {
        let runs = version.shape.levels.first().map_or(0, |l| l.runs.len());
        let settings = store.settings();
        let usual = settings.options.strategy.strategy().level0_runs();
        let over = settings.inherited.level0_beyond(runs.saturating_sub(usual) as u64);
        self.tally.count_level0(store, over)
    }

    /// The store's plan found that debt; whether writers are held up for less than before.
    pub(super) fn count_debt(&self, work: &mut store::StoreWork, debt: u64, of_writers: u64) -> bool {
        let falls = of_writers < work.debt_of_writers;
        change(&self.tally.debt, std::mem::replace(&mut work.debt, debt), debt);
        let before = std::mem::replace(&mut work.debt_of_writers, of_writers);
        change(&self.tally.debt_of_writers, before, of_writers);
        falls
    }

    /// Counts the store's memory and tables anew: they have changed. O(its segments and tables).
    pub(crate) fn recount(&self, store: &Store) {
        self.recount_one(store);
        self.counted();
    }

    fn recount_one(&self, store: &Store) {
        let _counting = store.counted.counting.lock();
        if store.is_dropped() {
            return;
        }
        let version = store.version();
        let memory = version.memory_bytes();
        change(&self.tally.memory, store.count_memory(memory), memory);
        let tables = version.shape.live_bytes();
        change(&self.tally.table_bytes, store.count_tables(tables), tables);
        let kept = version.kept_bytes();
        change(&self.tally.kept, store.count_kept(kept), kept);
        self.count_level0(store, &version);
    }

    /// What flushes left in the memory of all other stores.
    pub(super) fn kept_by_others(&self, store: &Store) -> u64 {
        self.tally.kept.get().saturating_sub(store.counted.kept.load(Ordering::Relaxed))
    }

    /// The store is no more.
    pub(super) fn discount(&self, store: &Store) {
        self.failing.lock().remove(&store.id);
        {
            let _counting = store.counted.counting.lock();
            change(&self.tally.memory, store.count_memory(0), 0);
            change(&self.tally.table_bytes, store.count_tables(0), 0);
            change(&self.tally.kept, store.count_kept(0), 0);
            self.tally.count_level0(store, 0);
        }
        self.count_debt(&mut store.work.lock(), 0, 0);
        Tally::place(&mut self.tally.fronts.lock(), store, None);
        self.counted();
    }

    /// Counts everything anew. O(everything).
    pub(crate) fn recount_all(&self) {
        self.stores().iter().for_each(|store| self.recount_one(store));
        self.counted();
    }

    fn counted(&self) {
        self.largest.note_memory(self.tally.memory.get());
        // A database that is closed keeps none.
        let room = self.budget.write_memory().saturating_sub(self.memory_taken());
        self.spares.set_room(if self.state() == State::Open { room as usize } else { 0 });
        self.tune_rate();
    }

    /// Enters all stores under the log that their memory needs: what recovery has found.
    pub(super) fn enter_fronts(&self) {
        let mut fronts = self.tally.fronts.lock();
        for store in self.stores().iter() {
            Tally::place(&mut fronts, store, store_front(&store.version()));
        }
    }

    /// The oldest log file that memory still needs; the flush set of `without` counted as gone.
    pub(crate) fn log_front(&self, without: Option<&Arc<Store>>) -> LogFileId {
        // With writes held, so that nothing is logged into empty memory meanwhile.
        self.with_writes_held(|_| self.log_front_held(without)).unwrap_or(LogFileId::ZERO)
    }

    fn log_front_held(&self, without: Option<&Arc<Store>>) -> LogFileId {
        let end = self.log().map_or(LogFileId::MAX, |log| log.end().file);
        let of_without = without.and_then(|store| front_without_flush(&store.version()));
        let mut best = end.min(of_without.unwrap_or(LogFileId::MAX));
        let stores = self.stores();
        let mut fronts = self.tally.fronts.lock();
        let mut from = LogFileId::ZERO;
        // Who stands under an older file than it needs goes on to the one it needs; the first that stays is the answer.
        while let Some((&front, there)) = fronts.range(from..).next().filter(|(front, _)| **front < best) {
            let mut stays = false;
            for id in there.clone() {
                if without.is_some_and(|without| without.id == id) {
                    continue;
                }
                let Some(store) = by_id(&stores, id) else {
                    // Dropped a moment ago: it needs nothing.
                    continue;
                };
                let needs = store_front(&store.version());
                debug_assert!(needs.is_none_or(|needs| needs >= front), "{needs:?} before {front:?}");
                if needs == Some(front) {
                    stays = true;
                    break;
                }
                Tally::place(&mut fronts, store, needs);
            }
            if stays {
                best = front;
            }
            from = front.next();
        }
        best
    }
}

impl Store {
    /// Bytes of memory as last counted.
    pub(super) fn counted_memory(&self) -> u64 {
        self.counted.memory.load(Ordering::Relaxed)
    }

    fn count_memory(&self, bytes: u64) -> u64 {
        self.counted.memory.swap(bytes, Ordering::Relaxed)
    }

    /// A write took so much.
    #[inline]
    pub(super) fn grew(&self, bytes: u64) {
        self.counted.memory.fetch_add(bytes, Ordering::Relaxed);
    }

    fn count_tables(&self, bytes: u64) -> u64 {
        self.counted.tables.swap(bytes, Ordering::Relaxed)
    }

    fn count_kept(&self, bytes: u64) -> u64 {
        self.counted.kept.swap(bytes, Ordering::Relaxed)
    }

    /// The log file that it stands under; `None` while it has no memory.
    #[inline]
    pub(super) fn front(&self) -> Option<LogFileId> {
        Some(LogFileId(self.counted.front.load(Ordering::Relaxed))).filter(|front| *front != LogFileId::MAX)
    }

    fn set_front(&self, front: Option<LogFileId>) {
        self.counted.front.store(front.unwrap_or(LogFileId::MAX).0, Ordering::Relaxed);
    }
}
