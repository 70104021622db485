//! Settings: plain data that can be read from a file or code. Components (storage, operators, filters) are
//! given to [`crate::Builder`] instead. `text` reads options by name; `without_papers` knows those that a
//! build without the feature `papers` does not have.

mod text;
#[cfg(any(not(feature = "papers"), feature = "testing"))]
mod without_papers;

#[cfg(any(not(feature = "papers"), feature = "testing"))]
pub(crate) use without_papers::without_papers;

use crate::error::{Error, Result};
use crate::sstable::Compression;
use crate::storage::{FileAccess, TableStore};
use crate::strategy::{HotKeys, MemoryPolicy, StrategyOptions};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// A build with the feature has all that a family's options may name.
#[cfg(all(feature = "papers", not(feature = "testing")))]
pub(crate) fn without_papers(_: &str, _: &str) -> Option<(FamilyOptions, Error)> {
    None
}

/// Bytes of the smallest active segment.
const ACTIVE_BYTES_MIN: f64 = 1024.0;

/// Settings of a database. All can differ from one open to the next.
///
/// ```
/// let options = siltstone::Options { memory_budget: 512 << 20, ..Default::default() };
/// assert!(options.validate().is_ok());
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Options {
    /// Create the database when the directory holds none. Default true.
    pub create_if_missing: bool,
    /// Refuse to open an existing database. Default false.
    pub error_if_exists: bool,
    /// Bytes of memory for everything that grows: write memory, block cache, table metadata. Default 256 MiB.
    /// How it is divided can change while the database runs: [`crate::Db::set_memory`].
    pub memory_budget: u64,
    /// Share of the budget, in bytes, that unflushed writes of all families may take. Default 64 MiB.
    pub write_memory: u64,
    /// Bytes of log that are kept for [`changes_since`](crate::Db::changes_since) beyond what recovery needs,
    /// also over reopens, so that a reader who comes back later finds them. Default 0.
    pub changes_kept: u64,
    /// Background workers that flush and merge. Default 2.
    pub workers: usize,
    /// Bytes a second that flushes and merges may write together; 0 for no limit. Flushes count towards the
    /// limit but never wait for it, as writers wait for the memory that they free; merges do. Default 0.
    pub rate_limit: u64,
    /// Which blocks of what merges and flushes write enter the block cache before they are read. Default
    /// `step`.
    pub cache_fill: CacheFill,
    /// Read tables past the page cache (`O_DIRECT`), so that the block cache is the only one. Opening fails
    /// where the file system refuses that. Log files are read through the page cache. Default false.
    pub direct_reads: bool,
    /// Read what tables hold uncompressed ([`FamilyOptions::compression`]) through memory mappings, so that
    /// the page cache is the cache. Gets and scans take half to three quarters of the time as long as the
    /// tables fit it. Where they do not, leave this off: each page that is missing costs a fault and a read
    /// of 4 KiB. Values are copied when they are handed out. Blocks are checked when they are read, but not
    /// twice within a second. A handler for SIGBUS is installed in the process, which turns pages that cannot
    /// be read into errors; another library that takes this signal for itself must pass it on. Up to 32,768
    /// tables of a process are mapped. Without effect with `direct_reads` and for tables in an object store.
    /// Default false.
    pub mapped_reads: bool,
    /// Where tables lie, apart from log and manifest: a directory, by an absolute path, or an object store,
    /// such as `s3://bucket/prefix`, if [`Builder::object_stores`](crate::Builder::object_stores) finds it.
    /// It belongs to one database. `None`: beside them. Said when the database is created; later opens find
    /// it by themselves, and another one is refused. Default `None`.
    pub tables: Option<std::path::PathBuf>,
    /// Who may read the files and directories that the database makes: by default its user alone. What is
    /// there keeps its mode. In text `owner`, `group` or `umask`.
    pub file_access: FileAccess,
    /// Measure how long each get and write takes, for [`Db::latencies`](crate::Db::latencies). Default false.
    pub latencies: bool,
    /// What few need to change.
    pub experimental: Experimental,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            create_if_missing: true,
            error_if_exists: false,
            memory_budget: 256 << 20,
            write_memory: 64 << 20,
            changes_kept: 0,
            workers: 2,
            rate_limit: 0,
            cache_fill: CacheFill::default(),
            direct_reads: false,
            mapped_reads: false,
            tables: None,
            file_access: FileAccess::default(),
            latencies: false,
            experimental: Experimental::default(),
        }
    }
}

/// Settings of a database that few people need. They are there to be measured and may change, or go, in any
/// release.
///
/// ```
/// use siltstone::{Experimental, Options};
/// let experimental = Experimental { step_bytes: 16 << 20, ..Default::default() };
/// assert!(Options { experimental, ..Default::default() }.validate().is_ok());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Experimental {
    /// Bytes of one log file. Default 16 MiB.
    pub log_file_bytes: u64,
    /// Bytes of log that recovery needs no more and open streams of changes may hold, or `changes_kept` if
    /// that is more. A stream that falls further behind is told what it lost. Default 256 MiB.
    pub changes_held_max: u64,
    /// Bytes of log beyond which its oldest part is cleaned, or the family that holds most of that flushed;
    /// at least four times `write_memory`, which is also the default (written as 0). On disk come what is
    /// reserved of the newest file, the one that is prepared and two that are used again: four log files at
    /// most (`Statistics::log_disk_bytes` has all of it).
    pub log_bytes_max: u64,
    /// Bytes of log beyond which files at its front of which at most half is still needed are cleaned: what
    /// memory holds of them is logged again at the end. 0 for `log_bytes_max`; less bounds the time of
    /// recovery. Default 0.
    pub log_clean_bytes: u64,
    /// Share of `write_memory`: while memory holds less, a log over its limit is cleaned whatever is needed
    /// of it, and nothing is flushed for it. Default 0.25.
    pub log_flush_threshold: f64,
    /// Write log files full of zeros before first use, so that each sync needs no metadata; costs device
    /// bytes once, as files are recycled. Pays where most writes are `Sync`. Default false.
    pub log_written_ahead: bool,
    /// Bytes of one merge step: bounds the pause, the I/O burst and the extra disk space that any merge can
    /// cause (but with `CacheFill::Before`, where a merge is one step). A step has at least one whole
    /// table, so larger tables (`table_bytes` of a strategy, or `f`) make larger steps. Default 64 MiB.
    pub step_bytes: u64,
    /// Ratio of sleep to work of merges beside readers, while little merging is owed: less the more is owed,
    /// and none where writers would be slowed for merges. All merges of a database sleep together, for some
    /// milliseconds mostly and 100 at most. Readers notice such merges less, which take that much longer. 0
    /// for no sleep. Default 7.
    pub merge_rest: u32,
    /// Bytes a second that merges may write while nothing is owed: the rate rises from there with the debt,
    /// and beyond any limit but `rate_limit` before writers would be slowed for it. 0 for `rate_limit` alone.
    /// Default 0.
    pub rate_limit_auto: u64,
    /// Bytes a second that merges may put into the block cache, whatever `cache_fill` lets them put there; 0
    /// for no limit. A merge that fills faster waits, so with `write-through` this limits what merges write,
    /// too. A flush that merges with tables only takes its part, as of [`Options::rate_limit`]. Default 0.
    pub cache_fill_rate: u64,
    /// A scan that begins over the key up to which a merge has come reads the tables as they were before the
    /// merge, and none that it wrote, as in the paper on offloaded compaction. It sees the same either way.
    /// What merges replace then stays on disk until they end. There to be compared with. Default false.
    #[cfg(feature = "papers")]
    pub scan_one_side: bool,
    /// Writers are slowed down, more and more, between a low mark and the hard bound of memory, level 0 and
    /// debt. Without it they go at full speed until they are stopped at the bound. There to be compared with.
    /// Default true.
    #[cfg(feature = "papers")]
    pub slow_writers: bool,
    /// Table files that are open at a time, at most: those read lately. 0 for three quarters of what the
    /// process may have open, for which its soft limit is raised to the hard one. Default 0.
    pub open_tables: usize,
    /// Milliseconds that a writer waits at a hard bound of memory or debt before it is turned away with
    /// `Busy`, nothing written; 0 for no such limit. Default 0.
    pub stop_wait_ms: u64,
    /// Keep running events and decisions in memory for `inspect`, this many. Default 1,000.
    pub events_kept: usize,
}

impl Default for Experimental {
    fn default() -> Self {
        Self {
            log_file_bytes: 16 << 20,
            changes_held_max: 256 << 20,
            log_bytes_max: 0,
            log_clean_bytes: 0,
            log_flush_threshold: 0.25,
            log_written_ahead: false,
            step_bytes: 64 << 20,
            merge_rest: 7,
            rate_limit_auto: 0,
            cache_fill_rate: 0,
            #[cfg(feature = "papers")]
            scan_one_side: false,
            #[cfg(feature = "papers")]
            slow_writers: true,
            open_tables: 0,
            stop_wait_ms: 0,
            events_kept: 1_000,
        }
    }
}

impl Options {
    /// Checks that the settings make sense together.
    pub fn validate(&self) -> Result<()> {
        let refuse = |what: &str| Err(Error::invalid(format!("option {what}")));
        if self.write_memory < 16 << 10 {
            return refuse("write_memory is under 16 KiB");
        }
        // The manifest names it, whatever directory is the current one then.
        let is_place =
            |dir: &Path| TableStore::is_location(dir) || dir.is_absolute() && dir.to_str().is_some();
        if !self.tables.as_deref().is_none_or(is_place) {
            return refuse("tables is neither an absolute path in UTF-8 nor the location of an object store");
        }
        if self.memory_budget > 1 << 50 {
            return refuse("memory_budget is over 2^50 bytes");
        }
        if self.memory_budget < self.write_memory {
            return refuse("memory_budget is smaller than write_memory");
        }
        if self.experimental.log_file_bytes < 4 << 10 || self.experimental.log_file_bytes > 1 << 30 {
            return refuse("log_file_bytes is not between 4 KiB and 1 GiB");
        }
        if self.experimental.log_bytes_max != 0 && self.experimental.log_bytes_max < 4 * self.write_memory {
            return refuse("log_bytes_max is under four times write_memory");
        }
        if !(0.0..=1.0).contains(&self.experimental.log_flush_threshold) {
            return refuse("log_flush_threshold is not between 0 and 1");
        }
        if self.workers == 0 || self.workers > 256 {
            return refuse("workers is not between 1 and 256");
        }
        if self.experimental.step_bytes < 4 << 10 {
            return refuse("step_bytes is under 4 KiB");
        }
        Ok(())
    }

    pub(crate) fn log_limit(&self) -> u64 {
        (4 * self.write_memory).max(self.experimental.log_bytes_max)
    }

    pub(crate) fn log_clean_limit(&self) -> u64 {
        if self.experimental.log_clean_bytes == 0 {
            self.log_limit()
        } else {
            self.experimental.log_clean_bytes.min(self.log_limit())
        }
    }

    /// Largest batch with so much write memory: a quarter of the log limit.
    pub(crate) fn batch_bytes_max(&self, write_memory: u64) -> u64 {
        write_memory.max(self.experimental.log_bytes_max / 4)
    }

    /// What the block cache may take.
    pub(crate) fn cache_bytes(&self) -> u64 {
        self.memory_budget - self.write_memory
    }
}

/// How caches stay warm when merges replace files: which blocks of their outputs enter the block cache before
/// anybody reads them. Blocks of files that are gone leave it with each of these.
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
    /// Every block, as it is written.
    WriteThrough,
    /// Every block of a merge's whole output, read back before the merge replaces its inputs all at once.
    /// Such a merge needs as much disk space again as its inputs have. Flushes fill nothing, nor do those
    /// that merge with tables.
    #[cfg(feature = "papers")]
    Before,
    /// Blocks with cells that were cached and read lately where they come from, or were updated in memory
    /// before a flush; in steps, each of which replaces its part of the inputs. With them their indices and
    /// filters, and those that replace some which readers keep: a get costs no more after a merge. These two
    /// are not counted by [`Experimental::cache_fill_rate`].
    #[default]
    Step,
    /// None where a merge runs here. Of one that a compaction server ran, readers have blocks from the memory
    /// of that server, not from storage, as long as it has them (the paper's remote cache, RC).
    #[cfg(feature = "papers")]
    Remote,
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

/// Settings of a column family. Stored in the database; `timestamps` never changes, the rest may at any open.
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
    /// Microseconds after which a cell is gone: counted from its timestamp where explicit, else from its
    /// writing. 0 for never.
    pub ttl_us: u64,
    /// Compression of blocks. Default lz4.
    pub compression: Compression,
    /// Compression of the last level, where most data lies; `None` for the same as `compression`.
    pub compression_last: Option<Compression>,
    /// Raw bytes of a data block. Default 4 KiB.
    pub block_bytes: usize,
    /// Filter bits a key; 0 for no filters. Default 10.
    pub bloom_bits: u32,
    /// When and what to merge. Default `leveled`.
    pub strategy: StrategyOptions,
    /// When frozen segments are merged in memory. Default `sketch`.
    pub memory: MemoryPolicy,
    /// Which keys stay in memory when it is flushed. Default: those updated more than twice the mean.
    pub hot_keys: HotKeys,
    /// Whether a flush may leave values in the log where that pays, so that they are not written a second
    /// time. Default false.
    pub log_tables: bool,
    /// Upper bound on the family's recent write amplification by merges, in bytes merged for each byte
    /// written: values are left in the log only below it, as a merge has to read them, uncompressed, and
    /// write them to a table. Default 1.
    pub log_tables_merged_max: f64,
    /// Bytes of unflushed writes of this family alone; 0 for no limit but the database's. Default 0.
    pub write_memory: u64,
    /// Share of what a flush takes at which the segment being written is frozen (A): 0.02 to 0.5. A flush
    /// takes half of the database's write memory, or the family's own. Less makes smaller segments, which are
    /// searched faster and merged in memory more often. Default 0.1.
    pub active_share: f64,
    /// Name of a registered [`crate::MergeOperator`].
    pub merge_operator: Option<String>,
    /// Name of a registered [`crate::CompactionFilter`].
    pub filter: Option<String>,
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
            memory: MemoryPolicy::default(),
            hot_keys: HotKeys::default(),
            log_tables: false,
            log_tables_merged_max: 1.0,
            write_memory: 0,
            active_share: 0.1,
            merge_operator: None,
            filter: None,
        }
    }
}

impl FamilyOptions {
    /// Checks that the settings make sense together.
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
        if !(0.02..=0.5).contains(&self.active_share) {
            return refuse("active_share is not between 0.02 and 0.5");
        }
        if !(0.0..=1e6).contains(&self.log_tables_merged_max) {
            return refuse("log_tables_merged_max is not between 0 and 1,000,000");
        }
        self.memory.check().map_err(|why| Error::invalid(format!("family option memory: {why}")))?;
        self.hot_keys.check().map_err(|why| Error::invalid(format!("family option hot_keys: {why}")))?;
        self.strategy.check().map_err(|why| Error::invalid(format!("family option strategy: {why}")))
    }

    /// What its unflushed writes may take where the database's may take `all`.
    pub(crate) fn write_limit(&self, all: u64) -> u64 {
        if self.write_memory == 0 { all } else { self.write_memory.min(all) }
    }

    /// Bytes at which its active segment is frozen (ACC-2), where the database's write memory is `all`. A few
    /// cells at least, however small a limit of its own is.
    pub(crate) fn active_bytes(&self, all: u64) -> u64 {
        let flushed = self.write_limit(all).min(all / 2);
        (flushed as f64 * self.active_share).max(ACTIVE_BYTES_MIN) as u64
    }

    /// Families that count a TTL from the moment of writing keep that moment in each cell.
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
    /// When no kill of the process can lose it any more. A power loss may lose the newest writes, never an
    /// older one before a newer one.
    #[default]
    Buffered,
    /// When no power loss can lose it any more.
    Sync,
}
