//! Counters of a database, and the statistics made of them.

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
    /// The same; what it was before.
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

/// What was done to one store.
#[derive(Debug, Default)]
pub(crate) struct StoreMetrics {
    pub(crate) flushes: Counter,
    pub(crate) flushed_bytes: Counter,
    pub(crate) merges: Counter,
    pub(crate) merged_in_bytes: Counter,
    pub(crate) merged_bytes: Counter,
}

impl StoreMetrics {
    /// What was done to another store counts as done to this one, which took it in.
    pub(crate) fn take_in(&self, other: &Self) {
        self.flushes.add(other.flushes.get());
        self.flushed_bytes.add(other.flushed_bytes.get());
        self.merges.add(other.merges.get());
        self.merged_in_bytes.add(other.merged_in_bytes.get());
        self.merged_bytes.add(other.merged_bytes.get());
    }
}

/// What a family holds, and what was done to it since the database was opened. Bytes unless said otherwise.
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
    /// Unflushed writes, with what a flush is writing.
    pub memory_bytes: u64,
    /// Segments in memory.
    pub segments: u64,
    /// Runs of tables in level 0.
    pub level0_runs: u64,
    /// Runs of tables in all levels: how many tables a get looks into at most.
    pub runs: u64,
    /// Tables.
    pub tables: u64,
    /// Of them, what is the family's.
    pub table_bytes: u64,
    /// Flushes finished, or given up after a step of them was installed.
    pub flushes: u64,
    /// Table bytes written by flushes.
    pub flushed_bytes: u64,
    /// Merges finished, or given up after a step of them was installed.
    pub merges: u64,
    /// Table bytes read by finished merges.
    pub merged_in_bytes: u64,
    /// Table bytes written by merges.
    pub merged_bytes: u64,
}

/// Of several families together.
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

/// Of several families together.
impl Sum for FamilyStatistics {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |mut sum, of| {
            sum += of;
            sum
        })
    }
}

/// What a database has done since it was opened, and what it holds now. Bytes unless said otherwise.
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
    /// Frames and headers appended to the log.
    pub log_bytes_written: u64,
    /// Log files filled with zeros ahead of use.
    pub log_bytes_written_ahead: u64,
    /// Syncs of the log.
    pub log_syncs: u64,
    /// Log on disk now.
    pub log_bytes: u64,
    /// Log that recovery needs no more and streams of changes may still read.
    pub log_kept_bytes: u64,
    /// Bytes on disk that the log takes: its files as reserved, the next one, and those to be used again.
    /// (What tables have in log files that the log needs no more is not counted.)
    pub log_disk_bytes: u64,
    /// Flushes finished, or given up after a step of them was installed.
    pub flushes: u64,
    /// Table bytes written by flushes.
    pub flushed_bytes: u64,
    /// Tables written by flushes that left values in the log.
    pub log_tables: u64,
    /// Bytes of those values, which were not written again.
    pub log_table_bytes_saved: u64,
    /// Merges finished, or given up after a step of them was installed; moves apart.
    pub merges: u64,
    /// Steps made durable by merges.
    pub merge_steps: u64,
    /// Tables moved down without rewriting.
    pub moves: u64,
    /// Table bytes written by merges.
    pub merged_bytes: u64,
    /// Table bytes that merges took as input.
    pub merged_in_bytes: u64,
    /// Cells that merges and flushes found nobody needs.
    pub cells_dropped: u64,
    /// Writes held up a little.
    pub delays: u64,
    /// Nanoseconds of it in all.
    pub delayed_ns: u64,
    /// Writes that had to wait at the hard bound of write memory.
    pub stops: u64,
    /// Active segments frozen and laid out flat.
    pub freezes: u64,
    /// Merges of frozen segments' indices.
    pub index_merges: u64,
    /// Compactions of frozen segments in memory.
    pub memory_compactions: u64,
    /// In-memory merges dropped because a flush took their segments.
    pub memory_merges_aborted: u64,
    /// Memory that in-memory merging freed.
    pub memory_freed_bytes: u64,
    /// Cells of hot keys that flushes left in memory.
    pub kept_cells: u64,
    /// Memory that these took, each time.
    pub kept_bytes: u64,
    /// Log files whose needed part was logged again.
    pub log_cleanings: u64,
    /// Keys and values logged again for that.
    pub log_cleaned_bytes: u64,
    /// Unflushed writes in memory, capacity counted, with what merges in memory that are under way take
    /// beside them.
    pub write_memory: u64,
    /// Bytes of chunks that are kept to be used again, beside that.
    pub spare_memory: u64,
    /// Whole blocks and chunks of memory that values ([`crate::Pinned`]), scans and merges hold beside cache
    /// and write memory. A lower bound: what write memory counts beside chunks is subtracted, too.
    pub pinned_bytes: u64,
    /// Tables, all families.
    pub tables: u64,
    /// What the tables answer for.
    pub table_bytes: u64,
    /// Merging still owed.
    pub debt: u64,
    /// Merges of tables that have begun and not ended, also those that rest or wait.
    pub merges_running: u64,
    /// Bytes a second that merges may write at present; 0 for no limit.
    pub merge_rate: u64,
    /// Snapshots held.
    pub snapshots: u64,
    /// Old versions that some reader or scan still holds.
    pub old_versions: u64,
    /// Block cache: found, not found, bytes held.
    pub cache_hits: u64,
    /// Blocks that had to be read.
    pub cache_misses: u64,
    /// Data blocks that merges and flushes put into the block cache, and their bytes there.
    pub cache_filled_blocks: u64,
    /// See above.
    pub cache_filled_bytes: u64,
    /// Bytes of tables that came from the memory of compaction servers, compressed as in the file, for the
    /// cache or for readers.
    pub remote_cache_bytes: u64,
    /// Blocks that left the block cache with the files they were of, and their bytes there.
    pub cache_evicted_blocks: u64,
    /// See above.
    pub cache_evicted_bytes: u64,
    /// Bytes of cached blocks.
    pub cache_bytes: u64,
    /// Bytes the block cache may hold: the budget less write memory and `table_memory`.
    pub cache_capacity: u64,
    /// Bytes that open tables hold beside the cache.
    pub table_memory: u64,
    /// How often planning looked at a family.
    pub families_planned: u64,
    /// Why writes are refused, or flushes or merges do not get on, if that is so.
    pub background_error: Option<String>,
}

impl Statistics {
    /// Table bytes written by flushes and merges for each byte flushed.
    pub fn write_amplification(&self) -> f64 {
        (self.flushed_bytes + self.merged_bytes) as f64 / self.flushed_bytes.max(1) as f64
    }
}
