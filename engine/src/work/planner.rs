//! What is due: facts for the strategies and for the plan across stores, and jobs started from what they say.

use super::Work;
use super::jobs::{Cleaned, FlushRequest, Job, compactable_bytes, surviving_share};
use super::manual::ManualCompaction;
use super::queue::{Slot, Urgency};
use crate::commit::{FamilySettings, Store, by_id};
use crate::error::Result;
use crate::event::EventKind;
use crate::sstable::Sstable;
use crate::strategy::{CompactionPlan, DbAction, DbFacts, Facts, StoreFacts, long_bytes, plan_db};
use crate::sync::Ordering;
use crate::types::{LogFileId, SeqNo, StoreId, TableId};
use crate::version::{OpenTable, Version};
use std::cell::OnceCell;
use std::sync::Arc;

/// Compactions for each worker that may be started at once though no place is free, each of another family.
const BEYOND_MAX: usize = 4;

/// Pause before the WAL is looked at again when a flush is about to free its oldest file.
const CLEAN_AGAIN_NS: u64 = 10_000_000;

/// Compactions that are planned where only one of L0 is wanted, which need not be the first.
const PLANS_OF_LEVEL0: usize = 4;

/// Plans see time in steps of this many seconds.
const CLOCK_BUCKET_S: u64 = 2;

impl Work {
    /// Starts what is due: flushes, manual compactions, and those that strategies want. It looks at the
    /// stores that are due to be looked at (`tally`).
    pub(super) fn start_due(&self) {
        let now = self.cx.env.clock.monotonic_ns();
        self.start_manual();
        let (flushing, merging, working) = {
            let list = self.queue.list.lock();
            let count = |urgency| list.iter().filter(|s| s.urgency == urgency && !s.is_manual).count();
            let merging = count(Urgency::Compaction) + count(Urgency::Level0Compaction);
            let working: Vec<StoreId> = list.iter().filter_map(|slot| slot.store).collect();
            (count(Urgency::Flush), merging, working)
        };
        let stores = self.catalog.take_due(&working, now);
        self.cx.metrics.families_planned.add(stores.len() as u64);
        for store in &stores {
            if let Some(job) = Job::begin_memtable_compaction(&self.catalog, store) {
                self.add_job(Urgency::MemtableCompaction, Some(store.id), job);
            }
        }
        let compactions_free = self.cx.settings.options.workers.saturating_sub(merging);
        let plans: Vec<_> =
            stores.iter().map(|store| self.plan_store(store, compactions_free, now)).collect();
        // Compactions that a store may start whatever else runs.
        let urgent = if compactions_free == 0 { plans.iter().map(Vec::len).sum() } else { 0 };
        let beyond = urgent.min(BEYOND_MAX * self.cx.settings.options.workers);
        // What a flush would gain is of use when some are to be chosen.
        let chosen = self.commit.tally.memory.get() > self.commit.memory_low();
        let held_alone = if chosen { self.wal_held_alone(&stores) } else { None };
        let wal_freed =
            |store: &Store| held_alone.filter(|(id, _)| *id == store.id).map_or(0, |(_, bytes)| bytes);
        let facts: Vec<StoreFacts<'_>> = stores
            .iter()
            .zip(&plans)
            .map(|(store, compactions)| self.store_facts(store, compactions, wal_freed(store), now))
            .collect();
        let db = DbFacts {
            wal_bytes: self.commit.wal().map_or(0, |wal| wal.bytes()),
            wal_clean_bytes: self.cx.settings.now().wal_clean_limit(),
            can_clean: self.can_clean(now),
            workers_free: stores.len() + compactions_free + beyond - flushing.min(stores.len()),
            ..self.memory_facts(&stores)
        };
        self.start_chosen(&stores, &plans, plan_db(&facts, &db), compactions_free + beyond, now);
        for (store, plans) in stores.iter().zip(&plans) {
            let requested = store.flush_is_requested();
            if requested && now >= store.work.lock().flush.not_before {
                let (store, reason) = (store.clone(), "it was asked for".into());
                self.start_flush(FlushRequest { store, reason, may_stay: false, at: None });
            }
            if plans.is_empty() && compactions_free > 0 {
                self.forget_failures(store, now);
            }
            if requested || !plans.is_empty() || self.has_more(store) {
                self.commit.touch(store.id);
            }
        }
    }

    /// Starts what was chosen among all stores.
    fn start_chosen(
        &self,
        stores: &[Arc<Store>],
        plans: &[Vec<CompactionPlan>],
        actions: Vec<DbAction>,
        mut compactions_left: usize,
        now: u64,
    ) {
        for action in actions {
            match action {
                DbAction::Flush { store, reason } => {
                    if let Some(store) = by_id(stores, store) {
                        let may_stay = !store.flush_is_requested();
                        self.start_flush(FlushRequest { store: store.clone(), reason, may_stay, at: None });
                    }
                }
                DbAction::Clean => match Job::begin_cleaning(&self.catalog) {
                    Some(job) => self.add_job(Urgency::Clean, None, job),
                    None => self.queue.pause_cleaning(now + CLEAN_AGAIN_NS, None),
                },
                DbAction::Compaction { store, index } => {
                    let Some(at) = stores.iter().position(|s| s.id == store) else { continue };
                    if compactions_left > 0 {
                        compactions_left -= 1;
                        // An error was noted with the store.
                        let _ = self.start_compaction(&stores[at], plans[at][index].clone(), None);
                    }
                }
            }
        }
    }

    /// Nothing is to be merged any more: earlier failures are nobody's concern.
    fn forget_failures(&self, store: &Store, now: u64) {
        let is_over = {
            let work = store.work.lock();
            work.compactions.failures > 0
                && now >= work.compactions.not_before
                && !work.compactions.is_running()
        };
        if is_over {
            self.commit.gets_on(store);
            self.cx.scheduler.notify();
        }
    }

    /// Whether there is something to do about the store's memory in another turn: memtables to be laid out,
    /// what an interrupted flush left, more than the store may have.
    fn has_more(&self, store: &Store) -> bool {
        let version = store.version();
        let settings = store.settings();
        let limit = settings.options.write_memory;
        let compacts = store.work.lock().memory.compacts.is_some();
        !store.is_dropped()
            && (compacts
                || !version.memory.waiting.is_empty()
                || (!version.memory.flushing.is_empty() && !store.work.lock().flush.is_under_way())
                || (limit > 0 && version.memory.unflushed_bytes() > limit))
    }

    /// Whether it is of use to look at the WAL's oldest file.
    fn can_clean(&self, now: u64) -> bool {
        let Ok(wal) = self.commit.wal() else { return false };
        let files = wal.files();
        let left = self.queue.front_left.load(Ordering::Relaxed);
        let is_left = files.first().is_some_and(|file| file.file.0 == left);
        files.len() > 1
            && now >= self.queue.clean_not_before.load(Ordering::Relaxed)
            && (!is_left || wal.bytes() > self.cx.settings.now().wal_limit())
            && !self.queue.is_cleaning()
    }

    pub(crate) fn store_facts<'a>(
        &self,
        store: &Store,
        compactions: &'a [CompactionPlan],
        wal_freed_bytes: u64,
        now: u64,
    ) -> StoreFacts<'a> {
        let version = store.version();
        let work = store.work.lock();
        let memory_bytes = version.memory.unflushed_bytes();
        let left_over = !version.memory.flushing.is_empty() && !work.flush.is_under_way();
        let flushing_bytes =
            if work.flush.is_under_way() { version.memory.bytes() - memory_bytes } else { 0 };
        // After a failure the store waits; what an interrupted flush left over is due at once.
        let waits = now < work.flush.not_before;
        let settings = store.settings();
        let empty = version.memory.active.is_empty() && version.memory.unflushed().next().is_none();
        let due = match () {
            () if waits || (empty && !left_over) => 0,
            () if left_over => self.cx.settings.write_memory(),
            () => memory_bytes,
        };
        let (freed_bytes, taken, rewritten) = flush_size(&version, &settings, due, left_over);
        let survive = if self.commit.tally.memory.get() > self.commit.memory_low() {
            surviving_share(&version, &settings, work.flush.survived)
        } else {
            1.0
        };
        StoreFacts {
            store: store.id,
            memory_bytes: due,
            freed_bytes,
            memory_limit: settings.options.write_memory,
            compactable_bytes: compactable_bytes(store, &version, &work),
            flushing_bytes,
            flush_write_bytes: (taken as f64 * survive) as u64 + rewritten,
            wal_freed_bytes,
            compactions,
        }
    }

    /// The store whose memory needs the WAL's oldest file, and the bytes of the WAL that only it needs from
    /// there on. O(stores log stores).
    fn wal_held_alone(&self, stores: &[Arc<Store>]) -> Option<(StoreId, u64)> {
        let front = |store: &Arc<Store>| store.version().memory.wal_front_without_flush();
        let mut fronts: Vec<_> = stores.iter().filter_map(|store| Some((front(store)?, store.id))).collect();
        fronts.sort_unstable();
        let (_, first) = *fronts.first()?;
        let upto = fronts.get(1).map_or(LogFileId::MAX, |(front, _)| *front);
        let files = self.commit.wal().ok()?.files();
        Some((first, files.iter().filter(|file| file.file < upto).map(|file| file.used).sum()))
    }

    /// Begins a flush of a store, if none is under way there.
    pub(crate) fn start_flush(&self, request: FlushRequest) {
        let store = request.store.clone();
        if let Some(job) = Job::begin_flush(&self.catalog, request, self.queue.is_cleaning()) {
            self.queue.drop_join_of(&self.catalog, &store);
            self.add_job(Urgency::Flush, Some(store.id), job);
        }
    }

    /// Does what a look at the WAL's oldest file leads to.
    pub(super) fn cleaned(&self, outcome: Cleaned) {
        if let Some(request) = outcome.flush {
            self.start_flush(request);
        }
        if let Some(until_ns) = outcome.pause_until {
            self.queue.pause_cleaning(until_ns, outcome.left);
        }
    }

    /// Begins the compaction that the plan says, for a caller if one waits for it; whether it began.
    pub(crate) fn start_compaction(
        &self,
        store: &Arc<Store>,
        plan: CompactionPlan,
        manual: Option<Arc<ManualCompaction>>,
    ) -> Result<bool> {
        let (is_manual, since_ns) = (manual.is_some(), self.cx.env.clock.monotonic_ns());
        let urgency =
            if plan.is_urgent() && !is_manual { Urgency::Level0Compaction } else { Urgency::Compaction };
        match Job::begin_compaction(&self.catalog, store, plan, manual) {
            Err(e) => {
                self.compaction_not_begun(store, &e, is_manual);
                Err(e)
            }
            Ok(Some(job)) => {
                let slot = Slot { is_manual, ..Slot::new(urgency, Some(store.id), job, since_ns) };
                self.queue.list.lock().push(slot);
                Ok(true)
            }
            Ok(None) => Ok(false),
        }
    }

    fn add_job(&self, urgency: Urgency, store: Option<StoreId>, job: Job) {
        let since_ns = self.cx.env.clock.monotonic_ns();
        let slot = Slot::new(urgency, store, job, since_ns);
        self.queue.list.lock().push(slot);
    }

    /// The compactions the store's strategy would start now, best first, with so many places for them free.
    ///
    /// A store whose L0 has more than it should may start one that takes of it though no place is free (a job
    /// is no thread), if no short one does; and while a manual compaction waits for compactions to end, a
    /// short one within L0.
    pub(crate) fn plan_store(&self, store: &Arc<Store>, free: usize, now: u64) -> Vec<CompactionPlan> {
        let version = store.version_full();
        let mut work = store.work.lock();
        let is_known = store.settings().check_papers().is_ok();
        if store.is_dropped() || !is_known || now < work.compactions.not_before {
            return Vec::new();
        }
        let running = work.compactions.running();
        let waits = self.waits_for_compactions(store);
        let level0_only = free == 0 || waits;
        let compactions_max = if level0_only { PLANS_OF_LEVEL0 } else { free };
        let unions = std::mem::take(&mut work.compactions.unions);
        let settings = store.settings();
        let unique = |tables: &[TableId]| unions.left(&version, &[], tables, settings.versions_kept());
        let seen = Seen::of(&version, settings.versions_kept());
        let facts = Facts {
            clock: self.cx.env.clock.wall_us() / 1_000_000 / CLOCK_BUCKET_S * CLOCK_BUCKET_S,
            draw: self.cx.env.random.next_u64(),
            running: &running,
            flushing: (!version.memory.flushing.is_empty()).then_some(version.memory.flushing.run),
            flush_bytes: match settings.options.write_memory {
                0 => self.cx.settings.half(),
                own => own.min(self.cx.settings.half()),
            },
            pressed: self.commit.compactions_press(store),
            within_level0: waits,
            compactions_max,
            unique: &unique,
            looks: &|table| seen.at(table).looks,
            surplus: &|table| seen.at(table).surplus,
            settled_to: self.commit.snapshots.oldest().unwrap_or(SeqNo::MAX),
            ttl_us: settings.options.ttl_us,
        };
        let strategy = settings.options.strategy.strategy();
        let debt = strategy.debt(&version.shape, &facts, &work.compactions.plan_state);
        let fewer_runs = self.commit.count_level0(store, &version);
        if self.commit.count_debt(&mut work, debt, settings.inherited.debt_beyond(debt)) || fewer_runs {
            self.cx.scheduler.notify();
        }
        let question =
            work.compactions.level_zero_question(&version.shape, &settings, facts.flush_bytes, waits);
        let is_known = work.compactions.nothing_of_level0.as_ref() == Some(&question);
        if level0_only && (store.level0_over() == 0 || is_known || (waits && running.is_empty())) {
            work.compactions.unions = unions;
            return Vec::new();
        }
        let mut plan = strategy.plan(&version.shape, &facts, &work.compactions.plan_state);
        let long = long_bytes(&version.shape, facts.flush_bytes);
        work.compactions.unions = unions;
        if level0_only {
            let is_short = |plan: &CompactionPlan| plan.empties_level0() && plan.bytes < long;
            let is_taken = running.iter().any(|compaction| is_short(&compaction.plan));
            let is_within = |plan: &CompactionPlan| plan.output.level == 0 && is_short(plan);
            plan.compactions.retain(|plan| plan.is_urgent() && !is_taken && (!waits || is_within(plan)));
            plan.compactions.truncate(1);
            work.compactions.nothing_of_level0 = plan.compactions.is_empty().then_some(question);
            work.compactions.plan_state.unread = work.compactions.plan_state.unread.min(plan.state.unread);
            return plan.compactions;
        }
        work.compactions.plan_state = plan.state;
        if work.compactions.deferred != plan.deferred {
            // Told once, not at every turn until it may start.
            for why in plan.deferred.iter().filter(|d| !work.compactions.deferred.contains(d)) {
                self.cx.events.record(EventKind::CompactionDeferred, &store.name, why.clone(), &[]);
            }
            work.compactions.deferred = plan.deferred;
        }
        plan.compactions
    }
}

/// The size of a flush that begins now, with `due` bytes in memory: the bytes of memory that it frees, those
/// that it takes before what is dead in them is left out, and those of SSTables that are compacted with it.
fn flush_size(version: &Version, settings: &FamilySettings, due: u64, left_over: bool) -> (u64, u64, u64) {
    let memory = &version.memory;
    let Some(by_range) = settings.by_range() else { return (due, memory.unflushed_bytes(), 0) };
    // A range, or what has not been laid out yet.
    let part = memory.ranges.largest().max(memory.active.bytes() as u64);
    let freed = if left_over { due } else { due.min(part) };
    (freed, part, by_range.rewritten(&version.shape))
}

/// What open SSTables tell. It is asked about L0 at every plan (`auto`), about other levels every few
/// seconds; all SSTables are gone through only for these.
struct Seen<'v> {
    version: &'v Version,
    /// How many versions of a key the family keeps.
    kept: u64,
    /// In the order of the ids.
    level0: OnceCell<Vec<(TableId, SeenTable)>>,
    all: OnceCell<Vec<(TableId, SeenTable)>>,
}

/// What one SSTable tells: see [`Facts`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
struct SeenTable {
    looks: u64,
    surplus: u64,
}

impl<'v> Seen<'v> {
    fn of(version: &'v Version, kept: u64) -> Self {
        Self { version, kept, level0: OnceCell::new(), all: OnceCell::new() }
    }

    fn at(&self, table: TableId) -> SeenTable {
        let find = |seen: &[(TableId, SeenTable)]| {
            seen.binary_search_by_key(&table, |(id, _)| *id).ok().map(|at| seen[at].1)
        };
        let of_level0 = || {
            let runs = self.version.shape.levels.first().into_iter().flat_map(|level0| &level0.runs);
            self.first(runs.map(|run| run.tables().len()).sum())
        };
        find(self.level0.get_or_init(of_level0))
            .or_else(|| find(self.all.get_or_init(|| self.first(usize::MAX))))
            .unwrap_or_default()
    }

    /// What the first `count` SSTables tell, L0 first.
    fn first(&self, count: usize) -> Vec<(TableId, SeenTable)> {
        let tell = |table: &Arc<Sstable>| SeenTable {
            looks: table.looks(),
            surplus: table.properties().surplus(self.kept),
        };
        // What was left unread tells nothing yet; once all are open, stores are planned again.
        let of = |open: &OpenTable| (open.info.id, open.opened().map(tell).unwrap_or_default());
        let mut seen: Vec<_> = self.version.tables().take(count).map(of).collect();
        seen.sort_unstable();
        seen
    }
}
