//! Settings: plain data that can be read from a file or code. Components (storage, operators, filters) are
//! given to [`crate::Builder`] instead. `text` reads options by name; `tuning` has those that only builds
//! with the feature `papers` can set, and `without_papers` reads what such builds stored.

mod text;
mod tuning;
#[cfg(any(not(feature = "papers"), feature = "testing"))]
mod without_papers;

#[cfg(feature = "papers")]
pub use tuning::Tuning;
#[cfg(any(not(feature = "papers"), feature = "testing"))]
pub(crate) use without_papers::stored_options;

use crate::error::{Error, Result};
use crate::sstable::Compression;
use crate::storage::{FileAccess, TableStore};
use crate::strategy::{HotKeys, MemtablePolicy, StrategyOptions};
use serde::{Deserialize, Serialize};
use std::path::Path;
#[cfg(not(feature = "papers"))]
use tuning::Tuning;

/// A family's options in what is stored of it. With the feature, nothing is missing.
#[cfg(all(feature = "papers", not(feature = "testing")))]
pub(crate) fn stored_options(_: &str, json: &str) -> serde_json::Result<(FamilyOptions, Option<Error>)> {
    Ok((serde_json::from_str(json)?, None))
}

/// Bytes of the smallest active memtable.
const ACTIVE_BYTES_MIN: f64 = 1024.0;

/// Settings of a database. All can differ from one open to the next.
///
/// ```
/// let options = siltstone::Options { memory_budget: 512 << 20, ..Default::default() };
/// assert!(options.validate().is_ok());
/// ```
// Over 15 fields: each is a setting.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Options {
    /// Create the database when the directory holds none. Default true.
    pub create_if_missing: bool,
    /// Refuse to open an existing database. Default false.
    pub error_if_exists: bool,
    /// Bytes of memory for everything that grows: write memory, block cache, SSTable metadata. Default 256
    /// MiB. How it is divided can change while the database runs: [`crate::Db::set_memory_limits`].
    pub memory_budget: u64,
    /// Share of the budget, in bytes, that unflushed writes of all families may take. Default 64 MiB.
    pub write_memory: u64,
    /// Bytes of WAL that are kept for [`changes_since`](crate::Db::changes_since) beyond what recovery needs,
    /// also over reopens, so that a reader of changes can go on after a pause. Default 0.
    pub change_log_bytes: u64,
    /// Bytes of WAL beyond which its oldest part is cleaned, or the family that needs most of that part is
    /// flushed; at least four times `write_memory`, which is also the default (written as 0). Where it is
    /// more, parts of which at most half is needed are cleaned from the default on. A batch may take a
    /// quarter. At most four WAL files' space comes on top: the reserved rest of the newest file, the next
    /// one, and two to be recycled (`Statistics::wal_disk_bytes` counts them all).
    pub wal_bytes_max: u64,
    /// Background workers for flushes and compactions. Default 2.
    pub workers: usize,
    /// Bytes a second that flushes and compactions may write together; 0 for no limit. Flushes count towards
    /// the limit but never wait for it, as writers wait for the memory that they free; compactions do wait.
    /// Default 0.
    pub rate_limit: u64,
    /// Bytes a second that compactions may write while there is no compaction debt. The rate rises with the
    /// debt until only `rate_limit` bounds it, before writers would be delayed. 0 for `rate_limit` alone.
    /// Default 0.
    pub rate_limit_auto: u64,
    /// Milliseconds that a write stall at a hard bound of memory or debt lasts before the write fails with
    /// `Busy` and nothing is written; 0 for no such limit. Default 0.
    pub write_stop_ms_max: u64,
    /// Which blocks of the outputs of flushes and compactions enter the block cache before they are read.
    /// Default `step`.
    pub cache_fill: CacheFill,
    /// How SSTables are read. Default `page-cache`.
    pub sstable_reads: SstableReads,
    /// Where SSTables lie, apart from WAL and manifest: a directory, by an absolute path, or an object store,
    /// such as `s3://bucket/prefix`, if [`Builder::object_stores`](crate::Builder::object_stores) finds it.
    /// The place belongs to one database. `None`: in the database's directory. Set when the database is
    /// created; later opens find it by themselves and refuse another one. Default `None`.
    pub sstable_store: Option<std::path::PathBuf>,
    /// Where the whole database lies, if it is a shared one: a directory, by an absolute path, or an object
    /// store, such as `s3://bucket/prefix`, if
    /// [`Builder::object_stores`](crate::Builder::object_stores) finds it. See
    /// [`Builder::shared`](crate::Builder::shared). Set at each open. Default `None`.
    pub shared: Option<std::path::PathBuf>,
    /// SSTable files that are open at a time, at most: those read last. 0 for three quarters of what the
    /// process may have open, for which its soft limit is raised to the hard one. Default 0.
    pub open_files_max: usize,
    /// Access rights to the files and directories that the database creates: by default its user alone.
    /// Existing ones keep their mode. In text `owner`, `group` or `umask`.
    pub file_access: FileAccess,
    /// Measure how long each get and write takes, for [`Db::latencies`](crate::Db::latencies). Default false.
    pub latencies: bool,
    /// Settings that experiments and tests change.
    #[cfg(feature = "papers")]
    pub tuning: Tuning,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            create_if_missing: true,
            error_if_exists: false,
            memory_budget: 256 << 20,
            write_memory: 64 << 20,
            change_log_bytes: 0,
            wal_bytes_max: 0,
            workers: 2,
            rate_limit: 0,
            rate_limit_auto: 0,
            write_stop_ms_max: 0,
            cache_fill: CacheFill::default(),
            sstable_reads: SstableReads::default(),
            sstable_store: None,
            shared: None,
            open_files_max: 0,
            file_access: FileAccess::default(),
            latencies: false,
            #[cfg(feature = "papers")]
            tuning: Tuning::DEFAULT,
        }
    }
}

impl Options {
    /// Checks that the settings fit together.
    pub fn validate(&self) -> Result<()> {
        let refuse = |what: &str| Err(Error::invalid(format!("option {what}")));
        if self.write_memory < 16 << 10 {
            return refuse("write_memory is under 16 KiB");
        }
        // The manifest stores the path for later processes, whose current directory may be another one.
        let is_place =
            |dir: &Path| TableStore::is_location(dir) || dir.is_absolute() && dir.to_str().is_some();
        if !self.sstable_store.as_deref().is_none_or(is_place) {
            return refuse(
                "sstable_store is neither an absolute path in UTF-8 nor the location of an object store",
            );
        }
        if !self.shared.as_deref().is_none_or(is_place) {
            return refuse("shared is neither an absolute path in UTF-8 nor the location of an object store");
        }
        if self.memory_budget > 1 << 50 {
            return refuse("memory_budget is over 2^50 bytes");
        }
        if self.memory_budget < self.write_memory {
            return refuse("memory_budget is smaller than write_memory");
        }
        if self.wal_bytes_max != 0 && self.wal_bytes_max < 4 * self.write_memory {
            return refuse("wal_bytes_max is under four times write_memory");
        }
        if self.workers == 0 || self.workers > 256 {
            return refuse("workers is not between 1 and 256");
        }
        self.tuning().check().or_else(refuse)
    }

    /// The settings that only builds with the feature `papers` can change.
    pub(crate) fn tuning(&self) -> Tuning {
        #[cfg(feature = "papers")]
        {
            self.tuning
        }
        #[cfg(not(feature = "papers"))]
        {
            Tuning::DEFAULT
        }
    }

    pub(crate) fn wal_limit(&self) -> u64 {
        (4 * self.write_memory).max(self.wal_bytes_max)
    }

    pub(crate) fn wal_clean_limit(&self) -> u64 {
        match self.tuning().wal_clean_bytes {
            0 => 4 * self.write_memory,
            bytes => bytes.min(self.wal_limit()),
        }
    }

    /// Largest batch with so much write memory: a quarter of the WAL limit.
    pub(crate) fn batch_bytes_max(&self, write_memory: u64) -> u64 {
        write_memory.max(self.wal_bytes_max / 4)
    }

    /// Bytes that the block cache may take.
    pub(crate) fn cache_bytes(&self) -> u64 {
        self.memory_budget - self.write_memory
    }
}

/// Cache fill: which blocks of the outputs of compactions and flushes enter the block cache before anybody
/// reads them. With every method, blocks of removed files leave the cache.
///
/// ```
/// use siltstone::{CacheFill, Options};
/// let options = Options { cache_fill: CacheFill::WriteThrough, ..Default::default() };
/// assert!(options.validate().is_ok());
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CacheFill {
    /// None: readers warm them.
    None,
    /// Every block, when it is written.
    WriteThrough,
    /// Every block of a compaction's whole output, read back before the output replaces the inputs all at
    /// once. Such a compaction needs as much extra disk space as its inputs have. Flushes fill nothing, not
    /// even those that merge with SSTables.
    #[cfg(feature = "papers")]
    Before,
    /// Blocks with cells that were cached and read lately in the inputs, or updated in memory before a flush;
    /// step by step, as each step replaces its part of the inputs. Their indices and filters come with them,
    /// and those that replace pinned ones: a get costs no more after a compaction.
    /// [`Db::set_cache_fill_rate`](crate::Db::set_cache_fill_rate) does not count these two.
    #[default]
    Step,
    /// Nothing for local compactions. Outputs of a compaction server are read from that server's memory, not
    /// from storage, as long as it has them (the paper's remote cache, RC).
    #[cfg(feature = "papers")]
    Remote,
}

/// How SSTables are read. WAL files are read through the page cache.
///
/// ```
/// use siltstone::{Options, SstableReads};
/// let options = Options { sstable_reads: SstableReads::Mapped, ..Default::default() };
/// assert!(options.validate().is_ok());
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SstableReads {
    /// Through the page cache.
    #[default]
    PageCache,
    /// Past the page cache (`O_DIRECT`), so that the block cache is the only one. Opening fails where the
    /// file system refuses that.
    Direct,
    /// Uncompressed blocks ([`FamilyOptions::compression`]) through memory mappings, so that the page cache
    /// is the cache; other blocks, and SSTables in an object store, as with `PageCache`. Gets and scans take
    /// half to three quarters of the time as long as the SSTables fit it. Where they do not, this is not for
    /// you: each page that is not cached costs a fault and a read of 4 KiB. Values are copied when they are
    /// handed out. Checksums are verified on reads, but not twice within a second. A handler for SIGBUS is
    /// installed in the process, which turns pages that cannot be read into errors; another library that
    /// takes this signal for itself must pass it on. Up to 32,768 SSTables of a process are mapped.
    Mapped,
}

/// Whether cells of a family carry timestamps.
///
/// ```
/// use siltstone::{FamilyOptions, Timestamps};
/// let options = FamilyOptions { timestamps: Timestamps::Explicit, versions: 3, ..Default::default() };
/// assert!(options.validate().is_ok());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Timestamps {
    /// One value a key; a newer write replaces it.
    #[default]
    Implicit,
    /// Versions by timestamp, given with each write.
    Explicit,
}

/// Settings of a column family. Stored in the database; `timestamps` never changes, the others may at any
/// open. Options that older builds stored are read by the names that they had then.
///
/// ```
/// use siltstone::{Compression, FamilyOptions};
/// let options = FamilyOptions { compression: Compression::None, bloom_bits: 16, ..Default::default() };
/// assert!(options.validate().is_ok());
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
// Over 15 fields: one setting each.
pub struct FamilyOptions {
    /// Whether cells carry timestamps. Fixed when the family is created.
    pub timestamps: Timestamps,
    /// With explicit timestamps: how many versions of a key are kept, newest first; 0 keeps all. Default 1.
    pub versions: u32,
    /// Microseconds after which a cell expires: counted from its timestamp where explicit, else from its
    /// writing. 0 for never.
    pub ttl_us: u64,
    /// Compression of blocks. Default lz4.
    pub compression: Compression,
    /// Compression of the last level, which has most of the data; `None` for the same as `compression`.
    pub compression_last: Option<Compression>,
    /// Raw bytes of a data block. Default 4 KiB.
    pub block_bytes: usize,
    /// Filter bits a key; 0 for no filters. Default 10.
    pub bloom_bits: u32,
    /// When and what to compact. Default `leveled`.
    pub strategy: StrategyOptions,
    /// When immutable memtables are compacted in memory. Default `sketch`.
    #[serde(alias = "memory", alias = "memory_policy")]
    pub memtable_policy: MemtablePolicy,
    /// Which keys stay in memory when it is flushed. Default: those updated more than twice as often as the
    /// mean.
    pub hot_keys: HotKeys,
    /// Whether a flush may leave values in the WAL where that pays, so that they are not written twice.
    /// Default false.
    #[serde(alias = "log_tables")]
    pub wal_values: bool,
    /// Upper bound on the family's recent write amplification by compactions, in bytes compacted for each
    /// byte written. Above it values are not left in the WAL, because a compaction has to read them
    /// uncompressed and write them to an SSTable. Default 1.
    #[cfg(feature = "papers")]
    #[serde(alias = "log_tables_merged_max")]
    pub wal_values_write_amp_max: f64,
    /// Bytes of unflushed writes of this family alone; 0 for no limit but the database's. Default 0.
    pub write_memory: u64,
    /// Share of what a flush takes at which the active memtable is frozen (A): 0.02 to 0.5. A flush takes
    /// half of the database's write memory, or the family's own. Less makes smaller memtables, which are
    /// searched faster and compacted in memory more often. Default 0.1.
    #[cfg(feature = "papers")]
    #[serde(alias = "active_share")]
    pub active_memtable_share: f64,
    /// Name of a registered [`crate::MergeOperator`].
    pub merge_operator: Option<String>,
    /// Name of a registered [`crate::CompactionFilter`].
    #[serde(alias = "filter")]
    pub compaction_filter: Option<String>,
}

impl Default for FamilyOptions {
    fn default() -> Self {
        Self {
            timestamps: Timestamps::Implicit,
            versions: 1,
            ttl_us: 0,
            compression: Compression::Lz4,
            compression_last: None,
            block_bytes: 4 << 10,
            bloom_bits: 10,
            strategy: StrategyOptions::default(),
            memtable_policy: MemtablePolicy::default(),
            hot_keys: HotKeys::default(),
            wal_values: false,
            #[cfg(feature = "papers")]
            wal_values_write_amp_max: tuning::WAL_VALUES_WRITE_AMP_MAX,
            write_memory: 0,
            #[cfg(feature = "papers")]
            active_memtable_share: tuning::ACTIVE_MEMTABLE_SHARE,
            merge_operator: None,
            compaction_filter: None,
        }
    }
}

impl FamilyOptions {
    /// Checks that the settings fit together.
    pub fn validate(&self) -> Result<()> {
        let refuse = |what: &str| Err(Error::invalid(format!("family option {what}")));
        self.compression.check_supported()?;
        self.compression_last.map_or(Ok(()), Compression::check_supported)?;
        let implicit = self.timestamps == Timestamps::Implicit;
        if implicit && self.versions != 1 {
            return refuse("versions needs timestamps = explicit");
        }
        if implicit && self.ttl_us > 0 && self.merge_operator.is_some() {
            return refuse("ttl_us with merge_operator needs timestamps = explicit");
        }
        if !(64..=16 << 20).contains(&self.block_bytes) {
            return refuse("block_bytes is not between 64 B and 16 MiB");
        }
        if self.bloom_bits > 64 {
            return refuse("bloom_bits is over 64");
        }
        if !(0.02..=0.5).contains(&self.active_share()) {
            return refuse("active_memtable_share is not between 0.02 and 0.5");
        }
        if !(0.0..=1e6).contains(&self.write_amp_max()) {
            return refuse("wal_values_write_amp_max is not between 0 and 1,000,000");
        }
        self.memtable_policy
            .check()
            .map_err(|why| Error::invalid(format!("family option memtable_policy: {why}")))?;
        self.hot_keys.check().map_err(|why| Error::invalid(format!("family option hot_keys: {why}")))?;
        self.strategy.check().map_err(|why| Error::invalid(format!("family option strategy: {why}")))
    }

    /// Bytes that the family's unflushed writes may take, where those of the database may take `all`.
    pub(crate) fn write_limit(&self, all: u64) -> u64 {
        if self.write_memory == 0 { all } else { self.write_memory.min(all) }
    }

    /// Bytes at which its active memtable is frozen (ACC-2), where the database's write memory is `all`:
    /// enough for a few cells, however small the family's own limit is.
    pub(crate) fn active_bytes(&self, all: u64) -> u64 {
        let flushed = self.write_limit(all).min(all / 2);
        (flushed as f64 * self.active_share()).max(ACTIVE_BYTES_MIN) as u64
    }

    fn active_share(&self) -> f64 {
        #[cfg(feature = "papers")]
        {
            self.active_memtable_share
        }
        #[cfg(not(feature = "papers"))]
        {
            tuning::ACTIVE_MEMTABLE_SHARE
        }
    }

    /// The write amplification by compactions above which a flush leaves no values in the WAL.
    pub(crate) fn write_amp_max(&self) -> f64 {
        #[cfg(feature = "papers")]
        {
            self.wal_values_write_amp_max
        }
        #[cfg(not(feature = "papers"))]
        {
            tuning::WAL_VALUES_WRITE_AMP_MAX
        }
    }

    /// Whether each cell keeps the time of its writing: only families that count a TTL from it.
    pub(crate) fn keeps_written(&self) -> bool {
        self.ttl_us > 0 && self.timestamps == Timestamps::Implicit
    }
}

/// When a write is acknowledged.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// let db = siltstone::Db::open(dir.path())?;
/// db.default_family().put_with(b"k", b"v", siltstone::Durability::Sync)?;
/// # Ok::<(), siltstone::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Durability {
    /// Once it survives a kill of the process. A power loss may lose the newest writes, never an older one
    /// before a newer one.
    #[default]
    Buffered,
    /// Once it survives a power loss.
    Sync,
}
