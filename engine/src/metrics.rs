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
    pub(crate) families_planned: Counter,
    pub(crate) user_bytes: Counter,
    pub(crate) flushes: Counter,
    pub(crate) flushed_bytes: Counter,
    pub(crate) wal_value_sstables: Counter,
    pub(crate) wal_value_bytes_saved: Counter,
    pub(crate) compactions: Counter,
    pub(crate) compaction_steps: Counter,
    pub(crate) trivial_moves: Counter,
    pub(crate) compaction_written_bytes: Counter,
    pub(crate) compaction_read_bytes: Counter,
    pub(crate) cells_dropped: Counter,
    pub(crate) write_delays: Counter,
    pub(crate) write_delay_ns: Counter,
    pub(crate) write_stops: Counter,
    pub(crate) memtable_freezes: Counter,
    pub(crate) memtable_index_compactions: Counter,
    pub(crate) memtable_data_compactions: Counter,
    pub(crate) memtable_compactions_aborted: Counter,
    pub(crate) memtable_freed_bytes: Counter,
    pub(crate) hot_cells: Counter,
    pub(crate) hot_bytes: Counter,
    pub(crate) wal_cleanings: Counter,
    pub(crate) wal_cleaned_bytes: Counter,
    pub(crate) timers: Timers,
}

/// Counts of work on one store.
#[derive(Debug, Default)]
pub(crate) struct StoreMetrics {
    pub(crate) flushes: Counter,
    pub(crate) flushed_bytes: Counter,
    pub(crate) compactions: Counter,
    pub(crate) compaction_read_bytes: Counter,
    pub(crate) compaction_written_bytes: Counter,
}

impl StoreMetrics {
    /// Adds the counts of another store, whose data this one took over.
    pub(crate) fn take_in(&self, other: &Self) {
        self.flushes.add(other.flushes.get());
        self.flushed_bytes.add(other.flushed_bytes.get());
        self.compactions.add(other.compactions.get());
        self.compaction_read_bytes.add(other.compaction_read_bytes.get());
        self.compaction_written_bytes.add(other.compaction_written_bytes.get());
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
/// assert_eq!((statistics.flushes, statistics.sstables), (1, 1));
/// # Ok::<(), siltstone::Error>(())
/// ```
#[derive(Clone, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct FamilyStatistics {
    /// Unflushed writes, with those in a running flush.
    pub memory_bytes: u64,
    /// Memtables: the active one, the immutable ones and those that are being flushed.
    pub memtables: u64,
    /// Runs of SSTables in L0.
    pub l0_runs: u64,
    /// Runs of SSTables in all levels: the most SSTables that a get searches.
    pub runs: u64,
    /// SSTables.
    pub sstables: u64,
    /// Bytes of these SSTables that belong to this family: families that were split share SSTables.
    pub sstable_bytes: u64,
    /// Flushes finished, or given up after a step of them was installed.
    pub flushes: u64,
    /// SSTable bytes written by flushes.
    pub flushed_bytes: u64,
    /// Compactions finished, or given up after a step of them was installed.
    pub compactions: u64,
    /// SSTable bytes read by finished compactions.
    pub compaction_read_bytes: u64,
    /// SSTable bytes written by compactions.
    pub compaction_written_bytes: u64,
}

/// Adds the figures of another family.
impl AddAssign for FamilyStatistics {
    fn add_assign(&mut self, other: Self) {
        self.memory_bytes += other.memory_bytes;
        self.memtables += other.memtables;
        self.l0_runs += other.l0_runs;
        self.runs += other.runs;
        self.sstables += other.sstables;
        self.sstable_bytes += other.sstable_bytes;
        self.flushes += other.flushes;
        self.flushed_bytes += other.flushed_bytes;
        self.compactions += other.compactions;
        self.compaction_read_bytes += other.compaction_read_bytes;
        self.compaction_written_bytes += other.compaction_written_bytes;
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
    pub wal_bytes_written: u64,
    /// WAL files filled with zeros ahead of use.
    pub wal_bytes_written_ahead: u64,
    /// Syncs of the WAL.
    pub wal_syncs: u64,
    /// WAL on disk at present.
    pub wal_bytes: u64,
    /// WAL that recovery no longer needs and that is retained for streams of changes.
    pub change_log_bytes: u64,
    /// Bytes on disk of the WAL: its files as reserved, the next one, and those to be recycled. (WAL files
    /// that only SSTables still refer to are not counted.)
    pub wal_disk_bytes: u64,
    /// Flushes finished, or given up after a step of them was installed.
    pub flushes: u64,
    /// SSTable bytes written by flushes.
    pub flushed_bytes: u64,
    /// SSTables written by flushes that left values in the WAL.
    pub wal_value_sstables: u64,
    /// Bytes of the values that flushes left in the WAL instead of writing them again.
    pub wal_value_bytes_saved: u64,
    /// Compactions finished, or given up after a step of them was installed; without trivial moves.
    pub compactions: u64,
    /// Steps of compactions made durable.
    pub compaction_steps: u64,
    /// Trivial moves: SSTables moved down without rewriting.
    pub trivial_moves: u64,
    /// SSTable bytes written by compactions.
    pub compaction_written_bytes: u64,
    /// SSTable bytes that compactions took as input.
    pub compaction_read_bytes: u64,
    /// Cells that compactions and flushes dropped because no reader needs them.
    pub cells_dropped: u64,
    /// Writes that were delayed by a write stall.
    pub write_delays: u64,
    /// Nanoseconds of write delays in all.
    pub write_delay_ns: u64,
    /// Writes that were stopped at a hard bound of write memory, compaction debt or L0.
    pub write_stops: u64,
    /// Active memtables frozen and laid out flat.
    pub memtable_freezes: u64,
    /// Index compactions of immutable memtables, which keep all versions.
    pub memtable_index_compactions: u64,
    /// Data compactions of immutable memtables, which drop versions that no reader sees.
    pub memtable_data_compactions: u64,
    /// In-memory compactions dropped because a flush took their memtables.
    pub memtable_compactions_aborted: u64,
    /// Memory that in-memory compactions freed.
    pub memtable_freed_bytes: u64,
    /// Hot cells that flushes left in memory.
    pub hot_cells: u64,
    /// Memory of the hot cells that flushes left, added up over flushes.
    pub hot_bytes: u64,
    /// WAL files whose needed part was logged again.
    pub wal_cleanings: u64,
    /// Keys and values logged again so that a WAL file could be released.
    pub wal_cleaned_bytes: u64,
    /// Unflushed writes in memory, with unused capacity, and the additional memory of running in-memory
    /// compactions.
    pub write_memory: u64,
    /// Bytes of chunks that are kept for reuse, not counted in `write_memory`.
    pub spare_memory: u64,
    /// Whole blocks and chunks of memory that values ([`crate::Pinned`]), scans and compactions hold beside
    /// cache and write memory. A lower bound: memory of `write_memory` other than chunks is subtracted, too.
    pub pinned_bytes: u64,
    /// SSTables of all families.
    pub sstables: u64,
    /// Bytes of SSTables in use: parts that compactions have moved elsewhere are not counted.
    pub sstable_bytes: u64,
    /// Compaction debt: bytes still to be compacted beyond what the strategies let gather.
    pub compaction_debt_bytes: u64,
    /// Running compactions, also those that rest or wait.
    pub compactions_running: u64,
    /// Bytes a second that compactions may write at present; 0 for no limit.
    pub compaction_rate: u64,
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
    /// Bytes that the block cache may take: the budget less write memory and `sstable_memory_bytes`.
    pub cache_capacity: u64,
    /// Memory of open SSTables outside the cache.
    pub sstable_memory_bytes: u64,
    /// The number of times that compactions were planned for a family.
    pub families_planned: u64,
    /// The error for which writes are refused, or flushes or compactions make no progress, if there is one.
    pub background_error: Option<String>,
}

impl Statistics {
    /// SSTable bytes written by flushes and compactions for each byte flushed.
    pub fn write_amplification(&self) -> f64 {
        (self.flushed_bytes + self.compaction_written_bytes) as f64 / self.flushed_bytes.max(1) as f64
    }
}
