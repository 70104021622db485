//! Settings that no user needs: constants, but in builds with the feature `papers`, whose experiments and
//! tests change them.
#![cfg_attr(not(feature = "papers"), allow(unreachable_pub, reason = "public with the feature alone"))]

use serde::{Deserialize, Serialize};

// Manifests hold these two: who changes one must have its old value accepted too (`without_papers`).

/// The share of a flush that is one memtable, where `FamilyOptions` cannot say it: Accordion's tenth.
pub(super) const ACTIVE_MEMTABLE_SHARE: f64 = 0.1;
/// The bound on write amplification for values in the WAL, where `FamilyOptions` cannot say it. Above it they
/// cost more than they save (docs/experiments/wal-values.md).
pub(super) const WAL_VALUES_WRITE_AMP_MAX: f64 = 1.0;

/// Settings of a database that experiments and tests change. They may change, or go, in any release. Other
/// builds have [`Tuning::DEFAULT`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Tuning {
    /// Bytes of one WAL file. Default 16 MiB: the WAL gets shorter by a file at a time, and this is a
    /// sixteenth of its default limit.
    pub wal_file_bytes: u64,
    /// Bytes of WAL that open streams of changes may hold beyond what recovery needs, or `change_log_bytes`
    /// if that is more. A stream that falls further behind fails, and its error names what it lost. Default
    /// 256 MiB: what the WAL may have by default anyway.
    pub change_log_open_bytes_max: u64,
    /// Bytes of WAL beyond which its oldest files are cleaned if at most half of each is still needed: the
    /// cells in memory that come from them are logged again at the end. Default 0 for four times
    /// `write_memory`, so that a larger `wal_bytes_max`, which large batches need, makes no recovery longer.
    pub wal_clean_bytes: u64,
    /// Share of `write_memory`: while memory holds less, a WAL over its limit is cleaned however much of it
    /// is needed, and nothing is flushed for it (TRIAD's FLUSH_TH). Default 0.25: below it a flush would
    /// write SSTables under a quarter of the usual size.
    pub wal_flush_threshold: f64,
    /// Write WAL files full of zeros before first use, so that each sync needs no metadata; costs device
    /// bytes once, because files are recycled. Default false: zeros go a short window ahead of the WAL's end
    /// instead (docs/decisions/wal.md).
    pub wal_prefill: bool,
    /// Bytes of one compaction step: bounds the pause, the I/O burst and the extra disk space that any
    /// compaction can cause (except with `CacheFill::Before`, where a compaction is one step). A step has at
    /// least one whole SSTable, so larger SSTables (`sstable_bytes` of a strategy) make larger steps.
    /// Default 64 MiB: the default write memory, so that a step asks for no more room than a flush.
    pub compaction_step_bytes: u64,
    /// Compaction pacing: the ratio of sleep to work of compactions while there are readers and no debt. The
    /// sleep gets shorter as debt grows, and is zero where writers would be delayed for compactions. All
    /// compactions of a database sleep together, mostly for some milliseconds, and 100 at most. They disturb
    /// readers less and take that much longer. 0 for no sleep. Default 7, measured beside 0 and 2
    /// (docs/experiments/pauses.md).
    pub compaction_pacing: u32,
    /// Bytes a second that compactions may put into the block cache, for every `cache_fill`; 0 for no limit.
    /// A compaction that fills faster waits, so with `write-through` this also limits what compactions write.
    /// A flush that merges with SSTables counts but does not wait, as with `rate_limit`. Default 0: filling
    /// step by step keeps the hit ratio without (docs/experiments/caches.md).
    pub cache_fill_rate: u64,
    /// Scans that begin above the key that a running compaction has reached read the SSTables as they were
    /// before it, and none of its outputs, as in the paper on offloaded compaction. Results are the same
    /// either way. Inputs then stay on disk until these scans end. For comparisons. Default false.
    #[cfg(feature = "papers")]
    pub scan_one_side: bool,
    /// Writers are delayed, more and more, between a low mark and the hard bound of memory, L0 and debt.
    /// Without it they go at full speed until they are stopped at the bound. For comparisons. Default true.
    pub slow_writers: bool,
    /// Offer flushes that compact a range with its SSTables (`rangemerge`) to compaction servers, like other
    /// compactions. Their memory goes along in SSTables, which are written for that: hence false by default.
    pub offload_range_flushes: bool,
    /// Number of events and decisions that are kept in memory for `inspect`. Default 1,000: some hundred
    /// kilobytes.
    pub events_max: usize,
}

impl Tuning {
    /// The settings of builds without the feature `papers`.
    pub const DEFAULT: Self = Self {
        wal_file_bytes: 16 << 20,
        change_log_open_bytes_max: 256 << 20,
        wal_clean_bytes: 0,
        wal_flush_threshold: 0.25,
        wal_prefill: false,
        compaction_step_bytes: 64 << 20,
        compaction_pacing: 7,
        cache_fill_rate: 0,
        #[cfg(feature = "papers")]
        scan_one_side: false,
        slow_writers: true,
        offload_range_flushes: false,
        events_max: 1_000,
    };

    /// Checks that the settings make sense; an error says which one does not.
    pub(super) fn check(&self) -> Result<(), &'static str> {
        if self.wal_file_bytes < 4 << 10 || self.wal_file_bytes > 1 << 30 {
            return Err("wal_file_bytes is not between 4 KiB and 1 GiB");
        }
        if !(0.0..=1.0).contains(&self.wal_flush_threshold) {
            return Err("wal_flush_threshold is not between 0 and 1");
        }
        if self.compaction_step_bytes < 4 << 10 {
            return Err("compaction_step_bytes is under 4 KiB");
        }
        Ok(())
    }
}

impl Default for Tuning {
    fn default() -> Self {
        Self::DEFAULT
    }
}
