//! What a database does next, across its stores: which memory to flush, whether to clean the WAL, and which
//! compactions get workers.
//!
//! *Flush*, for one of two reasons, with as few flushes as possible:
//! - a store is over its own limit;
//! - all stores together are over the low watermark (RNG-9; writers wait only above it): the stores that gain
//!   most per byte written are flushed, until the remaining memory, without running flushes, is back under
//!   it. A data compaction in memory that is due or running (ACC-5) counts for what it is expected to free,
//!   so that it comes before the flush; but only up to the *waiting mark*, near which writers would soon
//!   stall.
//!
//! A WAL over its limit is cleaned from its oldest file (`clean`), which may also flush a store.
//!
//! The gain of a flush is the memory it frees plus the WAL it releases, over the bytes it writes and the cost
//! of its syncs.
//!
//! *Compactions* get the workers that flushes leave: first those that remove runs of L0, then by score.

use super::CompactionPlan;
use crate::types::{StoreId, size_text};

#[derive(Clone, Debug)]
pub(crate) struct StoreFacts<'a> {
    pub(crate) store: StoreId,
    /// Memory that flushes would free.
    pub(crate) memory_bytes: u64,
    /// Memory that the next flush would free: all, unless the store's memory is flushed range by range.
    pub(crate) freed_bytes: u64,
    /// The store's own limit; zero if it has none.
    pub(crate) memory_limit: u64,
    /// Bytes that an in-memory compaction, due or running, is expected to free.
    pub(crate) compactable_bytes: u64,
    /// Memory in a running flush.
    pub(crate) flushing_bytes: u64,
    /// Bytes that a flush would write: memory less its redundancy.
    pub(crate) flush_write_bytes: u64,
    /// WAL bytes that a flush of this store would release.
    pub(crate) wal_freed_bytes: u64,
    /// The strategy's compactions, best first, without conflicts.
    pub(crate) compactions: &'a [CompactionPlan],
}

#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct DbFacts {
    /// Memory of stores that are not in the list.
    pub(crate) memory_elsewhere: u64,
    /// Flushes begin when all memory together exceeds this.
    pub(crate) memory_low: u64,
    /// Flushes wait for in-memory compactions up to here.
    pub(crate) memory_wait: u64,
    pub(crate) wal_bytes: u64,
    /// Cleaning begins when the WAL has more bytes.
    pub(crate) wal_clean_bytes: u64,
    /// Whether the oldest file may be cleaned: it is complete, it is not being cleaned, and it was not left
    /// before, unless the WAL is over its limit.
    pub(crate) can_clean: bool,
    pub(crate) workers_free: usize,
}

#[derive(Clone, PartialEq, Debug)]
pub(crate) enum DbAction {
    Flush {
        store: StoreId,
        reason: String,
    },
    Clean,
    /// Start the compaction of that index in the store's list.
    Compaction {
        store: StoreId,
        index: usize,
    },
}

/// What to start now, most urgent first; at most one action per idle worker.
pub(crate) fn plan_db(stores: &[StoreFacts<'_>], db: &DbFacts) -> Vec<DbAction> {
    let mut actions = flushes(stores, db);
    if db.can_clean && db.wal_bytes > db.wal_clean_bytes {
        actions.push(DbAction::Clean);
    }
    actions.truncate(db.workers_free);
    let mut compactions: Vec<(&StoreFacts<'_>, usize, &CompactionPlan)> = stores
        .iter()
        .flat_map(|s| s.compactions.iter().enumerate().map(move |(i, compaction)| (s, i, compaction)))
        .collect();
    compactions
        .sort_by(|(_, _, a), (_, _, b)| b.is_urgent().cmp(&a.is_urgent()).then(b.score.total_cmp(&a.score)));
    let left = db.workers_free - actions.len();
    actions.extend(
        compactions
            .into_iter()
            .take(left)
            .map(|(s, index, _)| DbAction::Compaction { store: s.store, index }),
    );
    actions
}

fn flushes(stores: &[StoreFacts<'_>], db: &DbFacts) -> Vec<DbAction> {
    // One flush per store at a time.
    let mut ready: Vec<&StoreFacts<'_>> =
        stores.iter().filter(|s| s.memory_bytes > 0 && s.flushing_bytes == 0).collect();
    ready.sort_by(|a, b| gain(b).total_cmp(&gain(a)));
    let mut actions = Vec::new();
    let mut in_memory: u64 = db.memory_elsewhere + stores.iter().map(|s| s.memory_bytes).sum::<u64>();
    let mut low = db.memory_low;
    if in_memory <= db.memory_wait {
        // The watermark is raised rather than the stores' sizes lowered: a flush frees the whole of a store.
        low += stores.iter().map(|s| s.compactable_bytes).sum::<u64>();
    }
    let is_over = |s: &&StoreFacts<'_>| s.memory_limit > 0 && s.memory_bytes > s.memory_limit;
    let (over, later): (Vec<_>, Vec<_>) = ready.into_iter().partition(is_over);
    for s in over {
        let reason = format!("the store has {} of {}", size_text(s.memory_bytes), size_text(s.memory_limit));
        in_memory -= s.freed_bytes;
        actions.push(DbAction::Flush { store: s.store, reason });
    }
    for s in later {
        if in_memory <= low {
            break;
        }
        let [all, mark, freed, written] =
            [in_memory, db.memory_low, s.freed_bytes, s.flush_write_bytes].map(size_text);
        let over = format!("memory has {all} over the low mark of {mark}");
        let reason = format!("{over}; this store frees {freed} and writes {written}");
        in_memory -= s.freed_bytes;
        actions.push(DbAction::Flush { store: s.store, reason });
    }
    actions
}

/// The fixed cost of a flush (a new file, four syncs), in bytes that could be written meanwhile.
const SYNCS_COST: u64 = 256 << 10;

fn gain(s: &StoreFacts<'_>) -> f64 {
    (s.freed_bytes + s.wal_freed_bytes) as f64 / (s.flush_write_bytes + SYNCS_COST) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::strategy::{CompactionKind, InputRun, Target};

    const M: u64 = 1 << 20;

    /// A store with sizes in MiB.
    fn store(id: u32, memory: u64, writes: u64) -> StoreFacts<'static> {
        StoreFacts {
            store: StoreId(id),
            memory_bytes: memory * M,
            freed_bytes: memory * M,
            memory_limit: 0,
            compactable_bytes: 0,
            flushing_bytes: 0,
            flush_write_bytes: writes * M,
            wal_freed_bytes: 0,
            compactions: &[],
        }
    }

    const DB: DbFacts = DbFacts {
        memory_elsewhere: 0,
        memory_low: 100 * M,
        memory_wait: 150 * M,
        wal_bytes: 0,
        wal_clean_bytes: 800,
        can_clean: true,
        workers_free: 4,
    };

    fn flushed(stores: &[StoreFacts<'_>], db: &DbFacts) -> Vec<u32> {
        let flush = |action| match action {
            DbAction::Flush { store, .. } => Some(store.0),
            DbAction::Clean | DbAction::Compaction { .. } => None,
        };
        plan_db(stores, db).into_iter().filter_map(flush).collect()
    }

    #[test]
    fn over_the_low_mark_the_store_that_frees_most_per_byte_written_goes_first_and_no_more_than_needed() {
        assert_eq!(flushed(&[store(1, 60, 60), store(2, 50, 10)], &DB), [2]);
        assert_eq!(flushed(&[store(1, 60, 60), store(2, 40, 10)], &DB), [0; 0]);
        assert_eq!(flushed(&[store(1, 300, 300), store(2, 40, 10)], &DB), [2, 1]);
        let frees_wal = StoreFacts { wal_freed_bytes: 500 * M, ..store(3, 50, 50) };
        assert_eq!(flushed(&[store(2, 60, 10), frees_wal], &DB), [3]);
        let alike = [store(1, 40, 40), store(2, 60, 60), store(3, 50, 50)];
        assert_eq!(flushed(&alike, &DB), [2], "of small stores that gain alike the largest goes first");
        let busy = StoreFacts { flushing_bytes: 500 * M, ..store(1, 0, 0) };
        assert_eq!(flushed(&[busy, store(2, 90, 90)], &DB), [0; 0], "what is being flushed counts as gone");
    }

    #[test]
    fn a_flush_waits_for_a_compaction_in_memory_up_to_the_waiting_mark() {
        let compactable = |memory| StoreFacts { compactable_bytes: 60 * M, ..store(1, memory, memory) };
        assert_eq!(flushed(&[compactable(140)], &DB), [0; 0]);
        assert_eq!(flushed(&[compactable(151)], &DB), [1]);
        assert_eq!(flushed(&[StoreFacts { compactable_bytes: 30 * M, ..store(1, 140, 140) }], &DB), [1]);
    }

    #[test]
    fn of_a_store_that_is_flushed_by_range_only_the_range_counts_as_gone() {
        let by_range = StoreFacts { freed_bytes: 10 * M, ..store(1, 110, 5) };
        assert_eq!(flushed(&[by_range.clone(), store(2, 30, 30)], &DB), [1, 2]);
        assert_eq!(flushed(&[by_range, store(2, 0, 0)], &DB), [1]);
    }

    #[test]
    fn a_stores_own_limit_forces_a_flush_below_the_low_mark() {
        let own = StoreFacts { memory_limit: 10 * M, ..store(1, 20, 20) };
        assert_eq!(flushed(&[own, store(2, 30, 30)], &DB), [1]);
    }

    #[test]
    fn a_wal_over_its_limit_is_looked_at_where_that_is_of_use_and_flushes_nothing_by_itself() {
        let stores = [store(2, 30, 1), store(3, 10, 10)];
        let full = DbFacts { wal_bytes: 801, ..DB };
        assert_eq!(plan_db(&stores, &full), [DbAction::Clean]);
        assert_eq!(plan_db(&stores, &DbFacts { can_clean: false, ..full }), []);
        assert_eq!(plan_db(&stores, &DbFacts { wal_bytes: 800, ..full }), []);
    }

    #[test]
    fn workers_go_to_flushes_then_to_level_0_then_to_the_best_score() {
        let compaction = |level, score| CompactionPlan {
            inputs: vec![InputRun { level, run: 1, tables: Vec::new() }],
            output: Target { level: 5, run: 1 },
            range: Default::default(),
            kind: CompactionKind::Merge,
            bytes: 0,
            sstable_bytes: 0,
            score,
            reason: String::new(),
        };
        let (deep, level0) = ([compaction(4, 9.0), compaction(3, 1.5)], [compaction(0, 1.1)]);
        let a = StoreFacts { compactions: &deep, ..store(1, 10, 10) };
        let b = StoreFacts { compactions: &level0, ..store(2, 200, 10) };
        let actions = plan_db(&[a, b], &DbFacts { workers_free: 3, ..DB });
        assert!(matches!(actions[0], DbAction::Flush { store: StoreId(2), .. }));
        assert_eq!(actions[1], DbAction::Compaction { store: StoreId(2), index: 0 });
        assert_eq!(actions[2], DbAction::Compaction { store: StoreId(1), index: 0 });
        assert_eq!(actions.len(), 3);
    }
}
