//! Uncompressed blocks in memory, under one budget.
//!
//! Two caches: one of data blocks, one of index and filter blocks. An evicted index or filter block costs
//! every key under it a read, so theirs has a share of its own that data never takes: it starts small and
//! grows with use, up to half the budget. Open SSTables may pin index and filter blocks (a read then needs no
//! lookup), up to a quarter of the budget in all; pinned blocks are not in the caches and count as index and
//! filter bytes. The key of a block is (SSTable, offset), with a new number for each open of an SSTable, so
//! that a block is never found after its file is closed.
//!
//! Compactions put blocks of their outputs in before anybody reads them ([`Filling`]) and remove dead blocks.
//! The cache counts *periods*, each of several reads for every cached block: by these, `recency` knows what
//! was read lately.
//!
//! Cached are blocks ready to be searched (`block`) and partitions of filters (`filter`). `buffers` reuses
//! the memory of evicted blocks. Blocks of mapped SSTables are not cached: `recently_checked` knows those
//! that were verified a moment ago.
//!
//! Not owned here: reading and verifying blocks (`sstable`), which blocks are worth warming (`sstable`,
//! `compaction`), when the blocks of a compaction enter (`work`).

pub(crate) mod block;
pub(crate) mod buffers;
mod filter;
mod recency;
mod recently_checked;

pub(crate) use block::{Block, Borrowed};
pub(crate) use filter::Filter;
pub(crate) use recency::Warmth;
use recently_checked::Believed;

use crate::storage::Clock;
use crate::sync::Mutex;
use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{OptionsBuilder, Weighter};
use std::hash::{BuildHasherDefault, Hash, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct BlockKey {
    /// Number of the open SSTable, from [`BlockCache::next_table_id`].
    pub(crate) table: u64,
    pub(crate) offset: u64,
}

impl Hash for BlockKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.table.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ self.offset);
    }
}

/// The hasher of `BlockKey`, which writes one number. It has no random seed: evictions must be reproducible.
#[derive(Default)]
struct Spread(u64);

type Spreading = BuildHasherDefault<Spread>;

impl Hasher for Spread {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(self.0 ^ u64::from(byte));
        }
    }
    fn write_u64(&mut self, n: u64) {
        let n = (n ^ (n >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
        self.0 = n ^ (n >> 32);
    }
}

#[derive(Clone)]
enum Meta {
    Index(Arc<Block>),
    Filter(Arc<Filter>),
}

/// The cache's own memory per entry, about.
const ENTRY_BYTES: u64 = 64;

#[derive(Clone, Copy)]
struct Bytes;

impl Weighter<BlockKey, Arc<Block>> for Bytes {
    fn weight(&self, _: &BlockKey, block: &Arc<Block>) -> u64 {
        block.memory_bytes() as u64 + ENTRY_BYTES
    }
}

impl Weighter<BlockKey, Meta> for Bytes {
    fn weight(&self, _: &BlockKey, meta: &Meta) -> u64 {
        let bytes = match meta {
            Meta::Index(block) => block.memory_bytes(),
            Meta::Filter(filter) => filter.memory_bytes(),
        };
        bytes as u64 + ENTRY_BYTES
    }
}

type Store<V> = Cache<BlockKey, V, Bytes, Spreading, DefaultLifecycle<BlockKey, V>>;

/// The memory of a block, counted as long as it is used: by the cache, a pinned value, a scan, a compaction.
#[derive(Debug)]
pub(crate) struct Counted {
    sum: Arc<AtomicU64>,
    bytes: u64,
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.sum.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

pub(crate) struct BlockCache {
    data: Store<Arc<Block>>,
    meta: Store<Meta>,
    shares: Mutex<Shares>,
    next_table: AtomicU64,
    hits: [Counter; 3],
    misses: [Counter; 3],
    filling: Filling,
    /// Bytes of data blocks in memory, in the cache and elsewhere.
    alive: Arc<AtomicU64>,
    /// Memory of open SSTables outside the cache.
    tables: Counter,
    period: Counter,
    /// The number of requests for data blocks when the period began.
    period_began: Counter,
    /// The number of requests for data blocks at which the length of the period is checked.
    period_ends: Counter,
    filled: Moved,
    evicted: Moved,
    /// The mapped blocks that were verified lately; set if SSTables are mapped.
    believed: OnceLock<Believed>,
}

/// Which blocks that compactions and flushes write enter the cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Filling {
    /// No block enters while it is written.
    #[default]
    Off,
    All,
    /// Blocks with cells that were read lately in the inputs; reads are recorded for this (`recency`).
    Warm,
}

/// Blocks and bytes that compactions moved in or out.
#[derive(Default)]
struct Moved {
    blocks: Counter,
    bytes: Counter,
}

impl Moved {
    fn add(&self, bytes: u64) {
        self.blocks.0.fetch_add(1, Ordering::Relaxed);
        self.bytes.0.fetch_add(bytes, Ordering::Relaxed);
    }

    fn so_far(&self) -> (u64, u64) {
        (self.blocks.0.load(Ordering::Relaxed), self.bytes.0.load(Ordering::Relaxed))
    }
}

#[derive(Clone, Copy)]
struct Shares {
    capacity: u64,
    meta: u64,
    /// Index and filter bytes that open SSTables pin.
    kept: u64,
    /// Bytes set aside for `kept`: a little more than that, since each change of a cache's capacity visits
    /// all of its parts.
    kept_room: u64,
    /// What is left to the cache and to the memory of open SSTables together, and what the cache has of it at
    /// least; set by [`BlockCache::fit`].
    fitted: Option<(u64, u64)>,
}

impl Shares {
    fn data(&self) -> u64 {
        // However much of a larger budget SSTables pinned, a little is left.
        self.capacity.saturating_sub(self.meta + self.kept_room).max(self.capacity / 8)
    }
}

/// A counter on a cache line of its own, so that counting does not slow reads of adjacent data.
#[derive(Default)]
#[repr(align(64))]
pub(crate) struct Counter(pub(crate) AtomicU64);

#[derive(Clone, Copy)]
enum Class {
    Data = 0,
    Index = 1,
    Filter = 2,
}

#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct HitCount {
    pub(crate) hits: u64,
    pub(crate) misses: u64,
}

/// The contents of the cache, and how often lookups hit.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct CacheStats {
    pub(crate) data: HitCount,
    pub(crate) index: HitCount,
    pub(crate) filter: HitCount,
    /// Blocks and bytes that compactions put in, and that they removed.
    pub(crate) filled: (u64, u64),
    pub(crate) evicted: (u64, u64),
    /// Cached bytes, by data and by index and filter blocks.
    pub(crate) data_bytes: u64,
    pub(crate) meta_bytes: u64,
    pub(crate) capacity: u64,
}

/// The initial share of index and filter blocks, as a part of the budget.
const META_SHARE_FIRST: u64 = 16;
/// The largest share of pinned index and filter blocks, as a part of the budget.
const KEPT_SHARE: u64 = 4;
/// The number of steps in which the space for pinned blocks grows, from nothing to the whole budget.
const KEPT_STEPS: u64 = 128;
/// A period lasts for so many requests per cached block: with keys by Zipf's law, keys that a cache of a
/// tenth of the data should just hold are requested once in about that.
const PERIOD_READS: u64 = 16;
const PERIOD_BLOCKS_MIN: u64 = 16;
/// Largest number of independently locked parts.
const SHARDS_MAX: u64 = 16;
/// A part must hold a few blocks, or large ones would never fit.
const SHARD_BYTES_MIN: u64 = 1 << 20;

impl std::fmt::Debug for BlockCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "BlockCache({:?})", self.stats())
    }
}

impl BlockCache {
    /// A cache of about `capacity` bytes. The number of its parts depends on this first capacity.
    pub(crate) fn new(capacity: u64) -> Arc<Self> {
        Self::filled_by_compactions(capacity, Filling::Off)
    }

    /// A cache into which compactions put the blocks of `filling`.
    pub(crate) fn filled_by_compactions(capacity: u64, filling: Filling) -> Arc<Self> {
        let meta = capacity / META_SHARE_FIRST;
        Arc::new(Self {
            data: store(capacity - meta, capacity),
            meta: store(meta, capacity / 2),
            shares: Mutex::new(Shares { capacity, meta, kept: 0, kept_room: 0, fitted: None }),
            next_table: AtomicU64::new(1),
            hits: Default::default(),
            misses: Default::default(),
            filling,
            alive: Arc::default(),
            tables: Counter::default(),
            period: Counter::default(),
            period_began: Counter::default(),
            period_ends: Counter::default(),
            filled: Moved::default(),
            evicted: Moved::default(),
            believed: OnceLock::new(),
        })
    }

    /// Lets mapped blocks count as verified for a second, by that clock. Without this call each is verified
    /// at each read.
    pub(crate) fn believe(&self, clock: &Arc<dyn Clock>) {
        let believed = Believed::new(self.capacity(), clock);
        self.count_table(believed.memory_bytes(), true);
        let _ = self.believed.set(believed);
    }

    /// Whether SSTables are mapped, so that their uncompressed blocks are not read through the cache.
    pub(crate) fn serves_mapped(&self) -> bool {
        self.believed.get().is_some()
    }

    /// Whether a mapped block was verified a moment ago.
    #[inline]
    pub(crate) fn believes(&self, key: BlockKey) -> bool {
        self.believed.get().is_some_and(|believed| believed.has(key))
    }

    /// Notes that a mapped block was verified just now.
    pub(crate) fn note_checked(&self, key: BlockKey) {
        if let Some(believed) = self.believed.get() {
            believed.note(key);
        }
    }

    /// Which blocks compactions put in.
    #[inline]
    pub(crate) fn filling(&self) -> Filling {
        self.filling
    }

    #[inline]
    pub(crate) fn period(&self) -> u64 {
        self.period.0.load(Ordering::Relaxed)
    }

    /// A unique number for an SSTable being opened.
    pub(crate) fn next_table_id(&self) -> u64 {
        self.next_table.fetch_add(1, Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn data(&self, key: BlockKey) -> Option<Arc<Block>> {
        self.counted(Class::Data, self.data.get(&key))
    }

    #[inline]
    pub(crate) fn index(&self, key: BlockKey) -> Option<Arc<Block>> {
        let found = match self.meta.get(&key) {
            Some(Meta::Index(block)) => Some(block),
            _ => None,
        };
        self.counted(Class::Index, found)
    }

    #[inline]
    pub(crate) fn filter(&self, key: BlockKey) -> Option<Arc<Filter>> {
        let found = match self.meta.get(&key) {
            Some(Meta::Filter(filter)) => Some(filter),
            _ => None,
        };
        self.counted(Class::Filter, found)
    }

    /// Counts a data block's memory until its last use.
    pub(crate) fn adopt(&self, block: Block) -> Arc<Block> {
        let bytes = block.memory_bytes() as u64;
        self.alive.fetch_add(bytes, Ordering::Relaxed);
        Arc::new(block.with_count(Counted { sum: self.alive.clone(), bytes }))
    }

    /// Bytes of data blocks that are not in the cache but used by values, scans and compactions.
    pub(crate) fn held_elsewhere(&self) -> u64 {
        let here = self.data.weight().saturating_sub(self.data.len() as u64 * ENTRY_BYTES);
        self.alive.load(Ordering::Relaxed).saturating_sub(here)
    }

    /// Puts a data block in after a read.
    pub(crate) fn insert_data(&self, key: BlockKey, block: Arc<Block>) {
        if self.filling == Filling::Warm {
            self.end_period();
        }
        self.data.insert(key, block);
    }

    /// The number of requests for data blocks.
    pub(crate) fn blocks_asked_for(&self) -> u64 {
        let count = |counters: &[Counter; 3]| counters[Class::Data as usize].0.load(Ordering::Relaxed);
        count(&self.hits) + count(&self.misses)
    }

    /// Begins a new period if the present one has lasted long enough. Called at misses only: a cache without
    /// misses needs no periods.
    fn end_period(&self) {
        let asked = self.blocks_asked_for();
        if asked < self.period_ends.0.load(Ordering::Relaxed) {
            return;
        }
        // Counting the blocks takes the lock of each part of the cache.
        let lasts = PERIOD_READS * (self.data.len() as u64).max(PERIOD_BLOCKS_MIN);
        let began = self.period_began.0.load(Ordering::Relaxed);
        if asked.saturating_sub(began) < lasts {
            self.period_ends.0.store(began + lasts, Ordering::Relaxed);
        } else if self
            .period_began
            .0
            .compare_exchange(began, asked, Ordering::Relaxed, Ordering::Relaxed)
            .is_ok()
        {
            self.period_ends.0.store(asked + lasts, Ordering::Relaxed);
            self.period.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Puts a data block of a compaction's output in. With `lasting` it counts as read twice: an unread block
    /// is evicted first, and before its SSTable is published nobody can read it.
    pub(crate) fn fill_data(&self, key: BlockKey, block: Arc<Block>, lasting: bool) {
        self.filled.add(Bytes.weight(&key, &block));
        self.data.insert(key, block);
        if lasting {
            self.data.get(&key);
            self.data.get(&key);
        }
    }

    pub(crate) fn insert_index(&self, key: BlockKey, block: Arc<Block>) {
        self.insert_meta(key, Meta::Index(block));
    }

    pub(crate) fn insert_filter(&self, key: BlockKey, filter: Arc<Filter>) {
        self.insert_meta(key, Meta::Filter(filter));
    }

    fn insert_meta(&self, key: BlockKey, meta: Meta) {
        let needed = self.meta.weight() + Bytes.weight(&key, &meta);
        let mut shares = self.shares.lock();
        // Before it is full, as the parts of the cache never fill evenly.
        if needed > shares.meta / 4 * 3 && shares.meta < shares.capacity / 2 {
            shares.meta = (shares.meta + shares.meta / 4).max(needed * 2).min(shares.capacity / 2);
            self.data.set_capacity(shares.data());
            self.meta.set_capacity(shares.meta);
        }
        drop(shares);
        self.meta.insert(key, meta);
    }

    /// Adds bytes of an open SSTable's memory outside the cache, or (`false`) subtracts them.
    pub(crate) fn count_table(&self, bytes: u64, is_more: bool) {
        if is_more {
            self.tables.0.fetch_add(bytes, Ordering::Relaxed);
        } else {
            let before = self.tables.0.fetch_sub(bytes, Ordering::Relaxed);
            debug_assert!(before >= bytes, "{bytes} bytes of tables go where {before} were counted");
        }
    }

    /// Memory of open SSTables outside the cache.
    pub(crate) fn table_memory(&self) -> u64 {
        self.tables.0.load(Ordering::Relaxed)
    }

    /// Whether an open SSTable may pin an index or filter block of that size; if so it counts until
    /// [`BlockCache::let_go`].
    pub(crate) fn may_keep(&self, bytes: u64) -> bool {
        let mut shares = self.shares.lock();
        if shares.kept + bytes > shares.capacity / KEPT_SHARE {
            return false;
        }
        shares.kept += bytes;
        if shares.kept > shares.kept_room {
            shares.kept_room = shares.kept + shares.capacity / KEPT_STEPS;
            self.data.set_capacity(shares.data());
        }
        true
    }

    /// Bytes of index and filter blocks that open SSTables and compactions may pin in all.
    pub(crate) fn may_keep_at_most(&self) -> u64 {
        self.shares.lock().capacity / KEPT_SHARE
    }

    /// Subtracts bytes that [`BlockCache::may_keep`] counted.
    pub(crate) fn let_go(&self, bytes: u64) {
        if bytes > 0 {
            let mut shares = self.shares.lock();
            shares.kept -= bytes;
            let room = shares.kept + shares.capacity / KEPT_STEPS;
            if room + shares.capacity / KEPT_STEPS < shares.kept_room {
                shares.kept_room = room;
                self.data.set_capacity(shares.data());
            }
        }
    }

    /// Whether the data block is cached, without counting as a use.
    pub(crate) fn holds_data(&self, key: BlockKey) -> bool {
        self.data.contains_key(&key)
    }

    /// The data block if it is cached, without counting as a use.
    pub(crate) fn peek_data(&self, key: BlockKey) -> Option<Arc<Block>> {
        self.data.peek(&key)
    }

    /// Whether another data block would probably evict none: parts of the cache do not fill evenly.
    pub(crate) fn has_room(&self) -> bool {
        self.data.weight() < self.data.capacity() / 16 * 15
    }

    /// Whether the index or filter partition is cached, without counting as a use.
    pub(crate) fn holds_meta(&self, key: BlockKey) -> bool {
        self.meta.contains_key(&key)
    }

    /// An index partition if it is cached, without counting as a use.
    pub(crate) fn peek_index(&self, key: BlockKey) -> Option<Arc<Block>> {
        match self.meta.peek(&key) {
            Some(Meta::Index(block)) => Some(block),
            _ => None,
        }
    }

    /// Removes a data block of an SSTable that was replaced or never published; returns its bytes if it was
    /// in the cache.
    pub(crate) fn evict_data(&self, key: BlockKey) -> Option<u64> {
        let (key, block) = self.data.remove(&key)?;
        let bytes = Bytes.weight(&key, &block);
        self.evicted.add(bytes);
        Some(bytes)
    }

    /// Removes an index or filter partition of an SSTable that was replaced or never published.
    pub(crate) fn evict_meta(&self, key: BlockKey) {
        if let Some((key, meta)) = self.meta.remove(&key) {
            self.evicted.add(Bytes.weight(&key, &meta));
        }
    }

    /// Changes the budget, and evicts at once what exceeds it.
    #[cfg(test)]
    pub(crate) fn set_capacity(&self, capacity: u64) {
        self.resize(&mut self.shares.lock(), capacity);
    }

    /// Gives the cache what the memory of open SSTables leaves of these bytes, and `least` in any case.
    pub(crate) fn fit(&self, bytes: u64, least: u64) {
        let mut shares = self.shares.lock();
        shares.fitted = Some((bytes, least));
        self.resize(&mut shares, bytes.saturating_sub(self.table_memory()).max(least));
    }

    /// Fits the cache again to the bytes that [`BlockCache::fit`] told, as another SSTable is open.
    pub(crate) fn refit(&self) {
        let mut shares = self.shares.lock();
        let Some((bytes, least)) = shares.fitted else { return };
        let capacity = bytes.saturating_sub(self.table_memory()).max(least);
        if capacity != shares.capacity {
            self.resize(&mut shares, capacity);
        }
    }

    fn resize(&self, shares: &mut Shares, capacity: u64) {
        let first = capacity / META_SHARE_FIRST;
        let meta = (self.meta.weight() / 3 * 4).clamp(first, capacity / 2);
        (shares.capacity, shares.meta) = (capacity, meta);
        self.meta.set_capacity(meta);
        self.data.set_capacity(shares.data());
        // With fewer blocks it ends earlier.
        self.period_ends.0.store(0, Ordering::Relaxed);
    }

    pub(crate) fn capacity(&self) -> u64 {
        self.shares.lock().capacity
    }

    pub(crate) fn stats(&self) -> CacheStats {
        let count = |class: Class| HitCount {
            hits: self.hits[class as usize].0.load(Ordering::Relaxed),
            misses: self.misses[class as usize].0.load(Ordering::Relaxed),
        };
        let shares = *self.shares.lock();
        CacheStats {
            data: count(Class::Data),
            index: count(Class::Index),
            filter: count(Class::Filter),
            filled: self.filled.so_far(),
            evicted: self.evicted.so_far(),
            data_bytes: self.data.weight(),
            meta_bytes: self.meta.weight() + shares.kept,
            capacity: shares.capacity,
        }
    }

    #[inline]
    fn counted<T>(&self, class: Class, found: Option<T>) -> Option<T> {
        let counters = if found.is_some() { &self.hits } else { &self.misses };
        counters[class as usize].0.fetch_add(1, Ordering::Relaxed);
        found
    }
}

fn store<V: Clone>(capacity: u64, capacity_max: u64) -> Store<V>
where
    Bytes: Weighter<BlockKey, V>,
{
    let shards = (capacity_max / SHARD_BYTES_MIN).clamp(1, SHARDS_MAX) as usize;
    let options = OptionsBuilder::new()
        .shards(shards)
        .estimated_items_capacity((capacity / 4096).clamp(64, 1 << 20) as usize)
        .weight_capacity(capacity)
        .build()
        .expect("all that is required is set");
    Cache::with_options(options, Bytes, Spreading::default(), DefaultLifecycle::default())
}

#[cfg(all(test, models))]
mod model;
#[cfg(test)]
mod tests;
