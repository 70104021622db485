//! Listings for people: a database's memtables, WAL and statistics, and the contents of one SSTable file.

use super::{Db, Family};
use crate::cache::BlockCache;
use crate::commit::Store;
use crate::error::Result;
use crate::metrics::{FamilyStatistics, Statistics};
use crate::sstable::{BlockListing, Sstable};
use crate::storage::Env;
use crate::types::{KeyRange, SeqNo, Timestamp};
use crate::wal::WalFileInfo;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A memtable of a family's memory.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// let db = siltstone::Db::open(dir.path())?;
/// db.put(b"k", b"v")?;
/// let memtables = db.default_family().memtables();
/// assert_eq!((memtables[0].state, memtables[0].cells), ("active", 1));
/// # Ok::<(), siltstone::Error>(())
/// ```
#[derive(Clone, Debug, Serialize)]
pub struct MemtableListing {
    /// `active`, `frozen`, `flat` or `flushing`.
    pub state: &'static str,
    /// Its id; grows with recency.
    pub generation: u64,
    /// Capacity.
    pub bytes: u64,
    /// Cells, range tombstones apart.
    pub cells: u64,
    /// Bytes of hot cells, which flushes left in memory; an upper bound.
    pub hot_bytes: u64,
    /// The oldest WAL file it needs.
    pub log_front: Option<u64>,
}

/// A WAL file.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// let db = siltstone::Db::open(dir.path())?;
/// db.put(b"k", b"v")?;
/// assert!(db.wal_files().iter().all(|file| file.used <= file.reserved));
/// # Ok::<(), siltstone::Error>(())
/// ```
#[derive(Clone, Debug, Serialize)]
pub struct WalListing {
    /// Its number.
    pub file: u64,
    /// Bytes on disk.
    pub reserved: u64,
    /// Bytes of history.
    pub used: u64,
}

/// The properties and data blocks of an SSTable file, which need not belong to an open database.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// use siltstone::{Db, TableListing, storage::Env};
/// let db = Db::open(dir.path())?;
/// db.put(b"k", b"v")?;
/// db.flush()?;
/// let table = db.default_family().shape().tables().next().unwrap().2.id.file_name();
/// let listing = TableListing::read(&Env::local(), &dir.path().join(table))?;
/// assert_eq!((listing.cells, listing.blocks.len()), (1, 1));
/// # Ok::<(), siltstone::Error>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
// Over 15 fields: a row of a listing.
pub struct TableListing {
    /// File size.
    pub bytes: u64,
    /// Cells of any kind, range tombstones apart.
    pub cells: u64,
    /// Point tombstones among them.
    pub tombstones: u64,
    /// Merge operands among them.
    pub operands: u64,
    /// Range tombstones.
    pub range_tombstones: u64,
    /// Distinct keys.
    pub distinct: u64,
    /// Bytes of all keys.
    pub key_bytes: u64,
    /// Bytes of all values.
    pub value_bytes: u64,
    /// Bytes of those values that are not in the file but in the WAL.
    pub log_bytes: u64,
    /// The WAL files they are in.
    pub logs: Vec<u64>,
    /// The keys it covers, range tombstones included.
    pub range: KeyRange,
    /// Smallest and largest sequence number.
    pub seqs: (SeqNo, SeqNo),
    /// Smallest and largest timestamp.
    pub times: (Timestamp, Timestamp),
    /// Wall-clock microseconds when it was made.
    pub created: u64,
    /// Raw bytes at which a data block was cut.
    pub block_bytes: u64,
    /// Filter bits a key; 0 for none.
    pub bloom_bits: u64,
    /// The compression that was chosen for its blocks.
    pub compression: String,
    /// Free-form names: who wrote it and the like.
    pub names: BTreeMap<String, String>,
    /// Its data blocks, in order.
    pub blocks: Vec<BlockListing>,
}

impl TableListing {
    /// Reads the SSTable in that file: head, properties and every data block.
    pub fn read(env: &Env, path: &Path) -> Result<TableListing> {
        let table = Sstable::open_unknown(&env.storage, path, &BlockCache::new(1 << 20))?;
        let blocks = table.blocks().collect::<Result<_>>()?;
        let p = table.properties().clone();
        Ok(TableListing {
            bytes: table.info().bytes,
            cells: p.cells,
            tombstones: p.tombstones,
            operands: p.operands,
            range_tombstones: p.range_tombstones,
            distinct: p.distinct,
            key_bytes: p.key_bytes,
            value_bytes: p.value_bytes,
            log_bytes: p.log_bytes,
            logs: p.logs.keys().map(|file| file.0).collect(),
            range: p.range,
            seqs: p.seqs,
            times: p.times,
            created: p.created,
            block_bytes: p.block_bytes,
            bloom_bits: p.bloom_bits,
            compression: p.compression.to_string(),
            names: p.names,
            blocks,
        })
    }
}

pub(crate) fn wal_listings(files: &[WalFileInfo]) -> Vec<WalListing> {
    files.iter().map(|f| WalListing { file: f.file.0, reserved: f.reserved, used: f.used }).collect()
}

impl Db {
    /// The WAL's files; of a read-only database those that were there when it was opened.
    pub fn wal_files(&self) -> Vec<WalListing> {
        let wal = self.inner.commit.wal();
        wal.map_or_else(|_| self.inner.wal_found.clone(), |wal| wal_listings(&wal.files()))
    }

    /// Statistics of the database.
    pub fn statistics(&self) -> Statistics {
        let inner = &self.inner;
        inner.catalog.recount_all();
        let m = &inner.cx.metrics;
        let wal =
            inner.commit.wal().ok().map(|wal| (wal.stats(), wal.bytes(), wal.kept_bytes(), wal.disk_bytes()));
        let (wal, wal_bytes, change_log_bytes, wal_disk_bytes) = wal.unwrap_or_default();
        let cache = inner.catalog.cache.stats();
        let stores = inner.catalog.stores();
        let poisoned = inner.cx.health.poisoned.get().cloned();
        Statistics {
            writes: m.writes.get(),
            user_bytes: m.user_bytes.get(),
            wal_bytes_written: wal.appended_bytes,
            wal_bytes_written_ahead: wal.written_ahead_bytes,
            wal_syncs: wal.syncs,
            wal_bytes,
            change_log_bytes,
            wal_disk_bytes,
            flushes: m.flushes.get(),
            flushed_bytes: m.flushed_bytes.get(),
            wal_value_sstables: m.wal_value_sstables.get(),
            wal_value_bytes_saved: m.wal_value_bytes_saved.get(),
            compactions: m.compactions.get(),
            compaction_steps: m.compaction_steps.get(),
            trivial_moves: m.trivial_moves.get(),
            compaction_written_bytes: m.compaction_written_bytes.get(),
            compaction_read_bytes: m.compaction_read_bytes.get(),
            cells_dropped: m.cells_dropped.get(),
            write_delays: m.write_delays.get(),
            write_delay_ns: m.write_delay_ns.get(),
            write_stops: m.write_stops.get(),
            memtable_freezes: m.memtable_freezes.get(),
            memtable_index_compactions: m.memtable_index_compactions.get(),
            memtable_data_compactions: m.memtable_data_compactions.get(),
            memtable_compactions_aborted: m.memtable_compactions_aborted.get(),
            memtable_freed_bytes: m.memtable_freed_bytes.get(),
            hot_cells: m.hot_cells.get(),
            hot_bytes: m.hot_bytes.get(),
            wal_cleanings: m.wal_cleanings.get(),
            wal_cleaned_bytes: m.wal_cleaned_bytes.get(),
            write_memory: inner.commit.memory_taken(),
            spare_memory: inner.commit.room.spares.held() as u64,
            pinned_bytes: inner.catalog.cache.held_elsewhere()
                + (inner.commit.room.spares.out() as u64).saturating_sub(inner.commit.memory_taken()),
            sstables: count_tables(&stores),
            sstable_bytes: inner.commit.tally.table_bytes.get(),
            compaction_debt_bytes: inner.commit.tally.debt.get(),
            compactions_running: inner.work.compactions_running(),
            compaction_rate: inner.cx.rates.compactions.rate(),
            snapshots: inner.commit.snapshots.count() as u64,
            old_versions: inner.catalog.graveyard.held() as u64,
            cache_hits: cache.data.hits,
            cache_misses: cache.data.misses,
            cache_filled_blocks: cache.filled.0,
            cache_filled_bytes: cache.filled.1,
            remote_cache_bytes: inner.catalog.remote_bytes.load(Ordering::Relaxed),
            cache_evicted_blocks: cache.evicted.0,
            cache_evicted_bytes: cache.evicted.1,
            cache_bytes: cache.data_bytes + cache.meta_bytes,
            cache_capacity: cache.capacity,
            sstable_memory_bytes: inner.catalog.cache.table_memory(),
            families_planned: m.families_planned.get(),
            background_error: poisoned.or_else(|| inner.commit.background_failure()).map(|e| e.to_string()),
        }
    }
}

impl Family {
    /// Counts of its contents, and of operations and background work since the database was opened.
    pub fn statistics(&self) -> FamilyStatistics {
        let store = &self.store;
        self.db.commit.recount(store);
        let version = store.version();
        let runs = || version.shape.runs();
        FamilyStatistics {
            memory_bytes: store.counted.memory.load(Ordering::Relaxed),
            memtables: version.memory.all().count() as u64,
            l0_runs: runs().filter(|(level, _)| *level == 0).count() as u64,
            runs: runs().count() as u64,
            sstables: version.tables().count() as u64,
            sstable_bytes: store.counted.tables.load(Ordering::Relaxed),
            flushes: store.metrics.flushes.get(),
            flushed_bytes: store.metrics.flushed_bytes.get(),
            compactions: store.metrics.compactions.get(),
            compaction_read_bytes: store.metrics.compaction_read_bytes.get(),
            compaction_written_bytes: store.metrics.compaction_written_bytes.get(),
        }
    }

    /// Its memtables.
    pub fn memtables(&self) -> Vec<MemtableListing> {
        let version = self.store.version();
        let list = |state: &'static str, memtable: &crate::memtable::Memtable| MemtableListing {
            state,
            generation: memtable.generation().0,
            bytes: memtable.bytes() as u64,
            cells: memtable.cells() as u64,
            hot_bytes: memtable.as_flat().map_or(0, |flat| flat.kept_bytes() as u64),
            log_front: memtable.log_front().map(|file| file.0),
        };
        std::iter::once(list("active", &version.memory.active))
            .chain(version.memory.waiting.iter().map(|s| list("immutable", s)))
            .chain(version.memory.ranges.memtables().map(|s| list("flat", s)))
            .chain(version.memory.flushing.all().map(|s| list("flushing", s)))
            .collect()
    }
}

/// How many SSTables stores have; one that several have counts once.
fn count_tables(stores: &[Arc<Store>]) -> u64 {
    let (mut whole, mut parts) = (0, BTreeSet::new());
    for store in stores {
        for open in store.version().tables() {
            match open.info.is_whole() {
                true => whole += 1,
                false => _ = parts.insert(open.info.id),
            }
        }
    }
    whole + parts.len() as u64
}
