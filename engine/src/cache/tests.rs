use super::*;
use crate::types::hash;

fn filter(bytes: usize) -> Arc<Filter> {
    let hashes: Vec<u64> = (0..bytes as u64).map(|n| hash(&n.to_le_bytes())).collect();
    Arc::new(Filter::new(Filter::build(&hashes, 8)).unwrap())
}

fn block() -> Arc<Block> {
    // No entries, no restarts: the smallest block, in a buffer of its usual size.
    let mut bytes = Vec::with_capacity(4096);
    bytes.extend_from_slice(&[0; 8]);
    Arc::new(Block::new(bytes).unwrap())
}

fn key(offset: u64) -> BlockKey {
    BlockKey { table: 1, offset }
}

#[test]
fn data_never_pushes_out_index_and_filter_blocks() {
    let cache = BlockCache::new(4 << 20);
    (0..256).for_each(|n| cache.insert_filter(key(n), filter(4096)));
    (1000..9000).for_each(|n| cache.insert_data(key(n), block()));
    let kept = (0..256).filter(|&n| cache.filter(key(n)).is_some()).count();
    assert!(kept >= 240, "{kept} of 256 filters are left");
    let stats = cache.stats();
    assert!(stats.data_bytes + stats.meta_bytes <= stats.capacity, "{stats:?}");
    assert!(stats.data_bytes > 2 << 20, "{stats:?}");
}

#[test]
fn index_and_filter_blocks_take_at_most_half() {
    let cache = BlockCache::new(4 << 20);
    (0..2000).for_each(|n| cache.insert_filter(key(n), filter(4096)));
    (10_000..12_000).for_each(|n| cache.insert_data(key(n), block()));
    let stats = cache.stats();
    assert!(stats.meta_bytes <= 2 << 20 && stats.data_bytes > 3 << 19, "{stats:?}");
}

#[test]
fn a_smaller_budget_holds_at_once_and_evicted_blocks_are_gone() {
    let cache = BlockCache::new(8 << 20);
    (0..4000).for_each(|n| cache.insert_data(key(n), block()));
    cache.set_capacity(1 << 20);
    assert!(cache.stats().data_bytes <= 1 << 20);
    cache.insert_data(key(5000), block());
    assert!(cache.data(key(5000)).is_some());
    cache.evict_data(key(5000));
    assert!(cache.data(key(5000)).is_none() && !cache.holds_data(key(5000)));
    assert_eq!(cache.stats().data, HitCount { hits: 1, misses: 1 });
    assert_eq!(cache.stats().evicted.0, 1);
}

#[test]
fn what_tables_keep_is_taken_from_data_and_given_back() {
    let cache = BlockCache::new(4 << 20);
    assert!(cache.may_keep(1 << 20), "a quarter may be kept");
    assert!(!cache.may_keep(1), "but no more");
    (0..4000).for_each(|n| cache.insert_data(key(n), block()));
    let stats = cache.stats();
    assert!(stats.meta_bytes >= 1 << 20 && stats.data_bytes + stats.meta_bytes <= 4 << 20, "{stats:?}");
    cache.let_go(1 << 20);
    (0..4000).for_each(|n| cache.insert_data(key(n), block()));
    assert!(cache.stats().data_bytes > 3 << 20, "{:?}", cache.stats());
    assert!(cache.may_keep(1 << 20));
}

#[test]
fn what_a_compaction_fills_stays_until_it_can_be_read_and_never_passes_the_budget() {
    let cache = BlockCache::filled_by_compactions(8 << 20, Filling::Warm);
    // Full, and every block used twice.
    for _ in 0..2 {
        for n in 0..1600 {
            if cache.data(key(n)).is_none() {
                cache.insert_data(key(n), block());
            }
        }
    }
    let filled = |lasting: bool, from: u64| {
        for n in from..from + 300 {
            cache.fill_data(key(n), block(), lasting);
            let stats = cache.stats();
            assert!(stats.data_bytes + stats.meta_bytes <= stats.capacity, "{stats:?}");
        }
        // Others are read meanwhile.
        (from + 1000..from + 1300).for_each(|n| cache.insert_data(key(n), block()));
        (from..from + 300).filter(|&n| cache.holds_data(key(n))).count()
    };
    let (lasting, passing) = (filled(true, 10_000), filled(false, 20_000));
    assert!(lasting > 290 && passing < 100, "{lasting} of 300, {passing} of those not marked");
    assert_eq!(cache.stats().filled.0, 600);
}

#[test]
fn a_period_ends_after_some_reads_for_each_block_that_is_held() {
    let cache = BlockCache::filled_by_compactions(4 << 20, Filling::Warm);
    let read = |n| {
        if cache.data(key(n)).is_none() {
            cache.insert_data(key(n), block());
        }
    };
    (2..PERIOD_READS).for_each(|_| (0..500).for_each(read));
    read(1000);
    assert_eq!(cache.period(), 0, "fifteen reads of each are not enough");
    (0..3).for_each(|_| (0..500).for_each(read));
    read(1001);
    read(1002);
    assert_eq!(cache.period(), 1);
    (5000..9000).for_each(|n| cache.fill_data(key(n), block(), true));
    assert_eq!(cache.period(), 1, "what compactions put in was not read");
}
