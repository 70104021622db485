//! Growth of the share of index and filter blocks, concurrent with changes of the budget.

use super::*;
use crate::sync::thread::spawn;
use crate::sync::{Limits, check};

/// An index block of that size in memory.
fn index(bytes: usize) -> Arc<Block> {
    let mut whole = vec![0; 8];
    whole.reserve_exact(bytes);
    Arc::new(Block::new(whole).expect("no entries, no restarts"))
}

#[test]
fn the_two_shares_are_the_budget_whoever_changes_them() {
    check(Limits { preemptions: 3, schedules: 5_000 }, || {
        let cache = BlockCache::new(64 << 10);
        let key = |offset| BlockKey { table: 1, offset };
        let threads: Vec<_> = (0..2)
            .map(|n| {
                let cache = cache.clone();
                spawn(move || match n {
                    0 => cache.insert_index(key(0), index(8 << 10)),
                    _ => cache.set_capacity(32 << 10),
                })
            })
            .collect();
        cache.insert_index(key(1), index(6 << 10));
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        let stats = cache.stats();
        assert_eq!(stats.capacity, 32 << 10);
        assert_eq!(cache.data.capacity() + cache.meta.capacity(), stats.capacity);
        assert!(stats.data_bytes + stats.meta_bytes <= stats.capacity, "{stats:?}");
    });
}
