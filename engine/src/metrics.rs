//! Counters of a database, and the statistics made from them.

use crate::latency::Timers;
use serde::Serialize;
use std::iter::Sum;
use std::ops::AddAssign;
use std::sync::atomic::{AtomicU64, Ordering};

/// A number that many threads add to.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    #[inline]
    pub(crate) fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }
    /// Adds `n` and returns the count from before.
    #[inline]
    pub(crate) fn take_add(&self, n: u64) -> u64 {
        self.0.fetch_add(n, Ordering::Relaxed)
    }
    #[inline]
    pub(crate) fn sub(&self, n: u64) {
        self.0.fetch_sub(n, Ordering::Relaxed);
    }
    #[inline]
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
    pub(crate) fn set(&self, n: u64) {
        self.0.store(n, Ordering::Relaxed);
    }
}

#[derive(Debug, Default)]
// Over 15 fields: one counter each.
pub(crate) struct Metrics {
    pub(crate) writes: Counter,
    pub(crate) planned: Counter,
    pub(crate) user_bytes: Counter,
    pub(crate) flushes: Counter,
    pub(crate) flushed_bytes: Counter,
    pub(crate) log_tables: Counter,
    pub(crate) log_table_bytes_saved: Counter,
    pub(crate) merges: Counter,
    pub(crate) merge_steps: Counter,
    pub(crate) moves: Counter,
    pub(crate) merged_bytes: Counter,
    pub(crate) merged_in_bytes: Counter,
    pub(crate) cells_dropped: Counter,
    pub(crate) delays: Counter,
    pub(crate) delayed_ns: Counter,
    pub(crate) stops: Counter,
    pub(crate) freezes: Counter,
    pub(crate) index_merges: Counter,
    pub(crate) memory_compactions: Counter,
    pub(crate) joins_aborted: Counter,
    pub(crate) memory_freed_bytes: Counter,
    pub(crate) kept_cells: Counter,
    pub(crate) kept_bytes: Counter,
    pub(crate) cleanings: Counter,
    pub(crate) cleaned_bytes: Counter,
    pub(crate) timers: Timers,
}

/// Counts of work on one store.
#[derive(Debug, Default)]
pub(crate) struct StoreMetrics {
    pub(crate) flushes: Counter,
    pub(crate) flushed_bytes: Counter,
    pub(crate) merges: Counter,
    pub(crate) merged_in_bytes: Counter,
    pub(crate) merged_bytes: Counter,
}

impl StoreMetrics {
    /// Adds the counts of another store, whose data this one took over.
    pub(crate) fn take_in(&self, other: &Self) {
        self.flushes.add(other.flushes.get());
        self.flushed_bytes.add(other.flushed_bytes.get());
        self.merges.add(other.merges.get());
        self.merged_in_bytes.add(other.merged_in_bytes.get());
        self.merged_bytes.add(other.merged_bytes.get());
    }
}

/// What a family contains, and the work on it since the database was opened. Bytes unless said otherwise.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// let db = siltstone::Db::open(dir.path())?;
/// db.put("k", "v")?;
/// db.flush()?;
/// let statistics = db.default_family().statistics();
/// assert_eq!((statistics.flushes, statistics.tables), (1, 1));
/// # Ok::<(), siltstone::Error>(())
/// ```
#[derive(Clone, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct FamilyStatistics {
    /// Unflushed writes, with those in a running flush.
    pub memory_bytes: u64,
    /// Memtables: the active one, the immutable ones and those that are being flushed.
    pub segments: u64,
    /// Runs of SSTables in L0.
    pub level0_runs: u64,
    /// Runs of SSTables in all levels: the most SSTables that a get searches.
    pub runs: u64,
    /// SSTables.
    pub tables: u64,
    /// Bytes of these SSTables that belong to this family: families that were split share SSTables.
    pub table_bytes: u64,
    /// Flushes finished, or given up after a step of them was installed.
    pub flushes: u64,
    /// SSTable bytes written by flushes.
    pub flushed_bytes: u64,
    /// Compactions finished, or given up after a step of them was installed.
    pub merges: u64,
    /// SSTable bytes read by finished compactions.
    pub merged_in_bytes: u64,
    /// SSTable bytes written by compactions.
    pub merged_bytes: u64,
}

/// Adds the figures of another family.
impl AddAssign for FamilyStatistics {
    fn add_assign(&mut self, other: Self) {
        self.memory_bytes += other.memory_bytes;
        self.segments += other.segments;
        self.level0_runs += other.level0_runs;
        self.runs += other.runs;
        self.tables += other.tables;
        self.table_bytes += other.table_bytes;
        self.flushes += other.flushes;
        self.flushed_bytes += other.flushed_bytes;
        self.merges += other.merges;
        self.merged_in_bytes += other.merged_in_bytes;
        self.merged_bytes += other.merged_bytes;
    }
}

/// Adds up the figures of several families.
impl Sum for FamilyStatistics {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |mut sum, of| {
            sum += of;
            sum
        })
    }
}

/// A database's work since it was opened, and its present contents. Bytes unless said otherwise.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// let db = siltstone::Db::open(dir.path())?;
/// db.put(b"k", b"v")?;
/// assert_eq!(db.statistics().writes, 1);
/// # Ok::<(), siltstone::Error>(())
/// ```
#[derive(Clone, Debug, Default, Serialize)]
#[non_exhaustive]
// Over 15 fields: one figure each.
pub struct Statistics {
    /// Cells and range tombstones written.
    pub writes: u64,
    /// Keys and values written.
    pub user_bytes: u64,
    /// Frames and headers appended to the WAL.
    pub log_bytes_written: u64,
    /// WAL files filled with zeros ahead of use.
    pub log_bytes_written_ahead: u64,
    /// Syncs of the WAL.
    pub log_syncs: u64,
    /// WAL on disk at present.
    pub log_bytes: u64,
    /// WAL that recovery no longer needs and that is retained for streams of changes.
    pub log_kept_bytes: u64,
    /// Bytes on disk of the WAL: its files as reserved, the next one, and those to be recycled. (WAL files
    /// that only SSTables still refer to are not counted.)
    pub log_disk_bytes: u64,
    /// Flushes finished, or given up after a step of them was installed.
    pub flushes: u64,
    /// SSTable bytes written by flushes.
    pub flushed_bytes: u64,
    /// SSTables written by flushes that left values in the WAL.
    pub log_tables: u64,
    /// Bytes of the values that flushes left in the WAL instead of writing them again.
    pub log_table_bytes_saved: u64,
    /// Compactions finished, or given up after a step of them was installed; without trivial moves.
    pub merges: u64,
    /// Steps of compactions made durable.
    pub merge_steps: u64,
    /// Trivial moves: SSTables moved down without rewriting.
    pub moves: u64,
    /// SSTable bytes written by compactions.
    pub merged_bytes: u64,
    /// SSTable bytes that compactions took as input.
    pub merged_in_bytes: u64,
    /// Cells that compactions and flushes dropped because no reader needs them.
    pub cells_dropped: u64,
    /// Writes that were delayed by a write stall.
    pub delays: u64,
    /// Nanoseconds of write delays in all.
    pub delayed_ns: u64,
    /// Writes that were stopped at a hard bound of write memory, compaction debt or L0.
    pub stops: u64,
    /// Active memtables frozen and laid out flat.
    pub freezes: u64,
    /// Index compactions of immutable memtables, which keep all versions.
    pub index_merges: u64,
    /// Data compactions of immutable memtables, which drop versions that no reader sees.
    pub memory_compactions: u64,
    /// In-memory compactions dropped because a flush took their memtables.
    pub memory_merges_aborted: u64,
    /// Memory that in-memory compactions freed.
    pub memory_freed_bytes: u64,
    /// Hot cells that flushes left in memory.
    pub kept_cells: u64,
    /// Memory of the hot cells that flushes left, added up over flushes.
    pub kept_bytes: u64,
    /// WAL files whose needed part was logged again.
    pub log_cleanings: u64,
    /// Keys and values logged again so that a WAL file could be released.
    pub log_cleaned_bytes: u64,
    /// Unflushed writes in memory, with unused capacity, and the additional memory of running in-memory
    /// compactions.
    pub write_memory: u64,
    /// Bytes of chunks that are kept for reuse, not counted in `write_memory`.
    pub spare_memory: u64,
    /// Whole blocks and chunks of memory that values ([`crate::Pinned`]), scans and compactions hold beside
    /// cache and write memory. A lower bound: memory of `write_memory` other than chunks is subtracted, too.
    pub pinned_bytes: u64,
    /// SSTables of all families.
    pub tables: u64,
    /// Bytes of SSTables in use: parts that compactions have moved elsewhere are not counted.
    pub table_bytes: u64,
    /// Compaction debt: bytes still to be compacted beyond what the strategies let gather.
    pub debt: u64,
    /// Running compactions, also those that rest or wait.
    pub merges_running: u64,
    /// Bytes a second that compactions may write at present; 0 for no limit.
    pub merge_rate: u64,
    /// Snapshots held.
    pub snapshots: u64,
    /// Old versions that some reader or scan still holds.
    pub old_versions: u64,
    /// Blocks that were found in the block cache.
    pub cache_hits: u64,
    /// Blocks that were not in the block cache and had to be read.
    pub cache_misses: u64,
    /// Data blocks that compactions and flushes put into the block cache.
    pub cache_filled_blocks: u64,
    /// Bytes of data blocks that compactions and flushes put into the block cache.
    pub cache_filled_bytes: u64,
    /// SSTable bytes, compressed, that were read from the memory of compaction servers, for the cache or for
    /// readers.
    pub remote_cache_bytes: u64,
    /// Blocks removed from the block cache because their files were removed.
    pub cache_evicted_blocks: u64,
    /// Bytes of blocks removed from the block cache because their files were removed.
    pub cache_evicted_bytes: u64,
    /// Bytes of cached blocks.
    pub cache_bytes: u64,
    /// Bytes that the block cache may take: the budget less write memory and `table_memory`.
    pub cache_capacity: u64,
    /// Memory of open SSTables outside the cache.
    pub table_memory: u64,
    /// The number of times that compactions were planned for a family.
    pub families_planned: u64,
    /// The error for which writes are refused, or flushes or compactions make no progress, if there is one.
    pub background_error: Option<String>,
}

impl Statistics {
    /// SSTable bytes written by flushes and compactions for each byte flushed.
    pub fn write_amplification(&self) -> f64 {
        (self.flushed_bytes + self.merged_bytes) as f64 / self.flushed_bytes.max(1) as f64
    }
}
