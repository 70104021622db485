//! The record of a measurement: plain data. Running fills it in, `compare` relates several of them, the
//! reports print them; nothing else passes between those parts. One record is one line of JSON, a public
//! form: fields are added, never renamed.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The class of durability: which acknowledged writes a kill or a power cut may take. Ratios are made within
/// one class only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Durability {
    /// The end of a process loses writes.
    Volatile,
    /// The end of a process loses nothing, a power cut may.
    Buffered,
    /// Nothing is lost.
    Sync,
}

/// One measured phase of one store.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct RunRecord {
    /// `"run"`.
    pub(crate) kind: String,
    /// Name as on the command line: `fillrandom`, `ycsb-a`, `ws1:r50`, `syncput`.
    pub(crate) workload: String,
    /// `siltstone`, `rocksdb`, `fjall`, `lmdb`.
    pub(crate) store: String,
    /// Variant: `tuned`, `default`, or our own with one mechanism off.
    pub(crate) config: String,
    /// Version of the store's library.
    pub(crate) version: String,
    /// Every setting that differs from the store's defaults, and the workload's sizes.
    pub(crate) settings: BTreeMap<String, String>,
    /// Number of the alternating round, from 1.
    pub(crate) run: u32,
    /// Seed of the streams of keys, values and choices.
    pub(crate) seed: u64,
    /// Threads that issued operations.
    pub(crate) threads: u32,
    /// Operations measured.
    pub(crate) ops: u64,
    /// Seconds from the first operation to the end of the last.
    pub(crate) seconds: f64,
    /// Operations a second, over `seconds`.
    pub(crate) ops_s: f64,
    /// CPU time of the whole process an operation, in microseconds, background work until settled included.
    pub(crate) cpu_us_op: f64,
    /// Bytes of keys and values that the operations wrote.
    pub(crate) user_bytes: u64,
    /// Bytes the process caused to be written to the device, until settled.
    pub(crate) device_write_bytes: u64,
    /// Bytes the process caused to be read from the device.
    pub(crate) device_read_bytes: u64,
    /// Bytes of SSTables that the store's flushes wrote; absent, as the next four, where the store does not
    /// tell.
    #[serde(default)]
    pub(crate) flushed_bytes: Option<u64>,
    /// Bytes of SSTables that its compactions wrote.
    #[serde(default, alias = "merged_bytes")]
    pub(crate) compaction_written_bytes: Option<u64>,
    /// Bytes that it wrote to its WAL, zeros ahead of use included.
    #[serde(default, alias = "log_bytes")]
    pub(crate) wal_bytes: Option<u64>,
    /// Flushes that wrote SSTables.
    #[serde(default)]
    pub(crate) flushes: Option<u64>,
    /// Compactions that wrote SSTables.
    #[serde(default, alias = "merges")]
    pub(crate) compactions: Option<u64>,
    /// `device_write_bytes` over `user_bytes`; absent where nothing was written.
    pub(crate) write_amp: Option<f64>,
    /// Bytes on disk when settled over bytes of live keys and values.
    pub(crate) space_amp: Option<f64>,
    /// Latencies over all operations, in microseconds.
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
    pub(crate) p999_us: f64,
    pub(crate) max_us: f64,
    /// The most memory the process had resident.
    pub(crate) peak_rss_bytes: u64,
    /// The most bytes its directory took.
    pub(crate) peak_disk_bytes: u64,
    /// The failures that acknowledged writes survive.
    pub(crate) durability: Durability,
    /// `lz4`, `none`.
    pub(crate) compression: String,
    /// Whether compactions were waited for; `settle_seconds` says how long that took.
    pub(crate) settled: bool,
    /// Seconds from the last operation until no compaction was due.
    pub(crate) settle_seconds: f64,
    /// Latencies by kind of operation: `read`, `write`, `scan`, `modify`, `open`.
    pub(crate) latency: BTreeMap<String, Latency>,
    /// Latencies of the calm seconds: in them, and in the two before each, other machines took at most 2 % of
    /// the processors. Runs that do not look at the processors count every second as calm.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) calm: BTreeMap<String, Latency>,
    #[serde(default)]
    pub(crate) calm_seconds: u64,
    /// One entry a second of the run.
    pub(crate) timeline: Vec<Second>,
    /// Windows of a run with a compaction in its middle.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) windows: Vec<Window>,
    /// The most memory resident during the compaction in the middle, beyond what was when it began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) extra_memory_bytes: Option<u64>,
    /// And p99 of all gets before the compaction, of calm windows if there are any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) before_p99_us: Option<f64>,
    /// The most runs of SSTables that might hold one key, seen five times a second; absent, as the next one,
    /// where the store does not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) runs_max: Option<u64>,
    /// The most bytes of SSTables that one compaction, or one flush with input SSTables, read and wrote.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) largest_merge_bytes: Option<u64>,
    /// Share of the time of all processors that other machines on the same hardware took while this one had
    /// work, until settled; absent where the kernel does not tell. What is measured while it is large says
    /// little of latencies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) stolen: Option<f64>,
    /// Scans of each second, in a run with scans beside its puts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) scan_timeline: Vec<Second>,
    /// Lateness of a control thread that does nothing at due times, in a run whose operations have due times:
    /// how late the machine and the store's own threads make any operation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) control: Option<Latency>,
    /// Latencies while compactions ran and while none did, in a run of `felt`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) beside_merges: Option<BesideMerges>,
}

/// Latencies, separated by whether a compaction was seen in the second in which an operation ended. Stores
/// are looked at five times a second; a compaction that ended between two checks counts too.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct BesideMerges {
    /// By kind of operation, of the seconds with a compaction, and of those without.
    pub(crate) with: BTreeMap<String, Latency>,
    pub(crate) without: BTreeMap<String, Latency>,
    pub(crate) with_seconds: u64,
    pub(crate) without_seconds: u64,
    /// Data blocks found in the cache, of all that were looked for; absent where the store does not tell.
    pub(crate) hit_ratio: Option<f64>,
    /// The compaction debt that the store reported, in bytes, on average and at most.
    pub(crate) debt_mean: Option<f64>,
    pub(crate) debt_max: Option<u64>,
    /// By kind of operation, each second.
    pub(crate) timelines: BTreeMap<String, Vec<Second>>,
    /// Numbers of the seconds with a compaction.
    pub(crate) merging: Vec<u64>,
}

/// Where in a run with a compaction in its middle a window lies. A window in which the compaction ran at all
/// is `During`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Stage {
    Before,
    During,
    After,
}

/// A few seconds of a run with a compaction in its middle. Operations count where they were due.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Window {
    /// Seconds since the first operation.
    pub(crate) at: f64,
    pub(crate) stage: Stage,
    pub(crate) gets: u64,
    pub(crate) get_mean_us: f64,
    pub(crate) get_p99_us: f64,
    pub(crate) scans: u64,
    pub(crate) scan_mean_us: f64,
    /// Data blocks found in the cache, of all that were looked for; absent where the store does not tell.
    pub(crate) hit_ratio: Option<f64>,
    /// Memory resident at its end, what measuring itself keeps taken off.
    #[serde(default)]
    pub(crate) rss_bytes: u64,
    /// [`RunRecord::stolen`] of this window alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) stolen: Option<f64>,
    /// Whether that was at most 2 % in it and in the window before it, as far as known.
    #[serde(default = "calm")]
    pub(crate) calm: bool,
}

/// Latencies of one kind of operation.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Latency {
    pub(crate) count: u64,
    pub(crate) mean_us: f64,
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
    pub(crate) p999_us: f64,
    pub(crate) max_us: f64,
    /// The raw histogram, nanoseconds: pairs of (highest value of the bucket, count), zero counts left out.
    pub(crate) histogram: Vec<(u64, u64)>,
}

/// One second of a run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Second {
    /// Seconds since the first operation.
    pub(crate) at: f64,
    pub(crate) ops: u64,
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
    #[serde(default)]
    pub(crate) p999_us: f64,
    pub(crate) max_us: f64,
}

fn calm() -> bool {
    true
}

impl BesideMerges {
    /// A figure of one kind of operation in the seconds with a compaction, over that in the others.
    pub(crate) fn ratio(&self, kind: &str, figure: fn(&Latency) -> f64) -> Option<f64> {
        let ratio = figure(self.with.get(kind)?) / figure(self.without.get(kind)?);
        ratio.is_finite().then_some(ratio)
    }
}

impl RunRecord {
    /// SSTable bytes that flushes and compactions wrote.
    pub(crate) fn flushed_merged_bytes(&self) -> Option<f64> {
        Some((self.flushed_bytes? + self.compaction_written_bytes?) as f64)
    }
}

/// One metric of two stores on one workload, over alternating rounds: `a` over `b`, round by round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct RatioRecord {
    /// `"ratio"`.
    pub(crate) kind: String,
    pub(crate) workload: String,
    /// A field of [`RunRecord`], as `ops_s`, or made of several, as `flushed_merged_bytes` and `read_p99_us`.
    pub(crate) metric: String,
    /// `store:config` above the line.
    pub(crate) a: String,
    /// `store:config` below the line.
    pub(crate) b: String,
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
    pub(crate) runs: u32,
}

/// One figure of a paper beside ours, or a bar that is our own.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct FigureRecord {
    /// `"figure"`.
    pub(crate) kind: String,
    /// Names the paper's figure or table and the row.
    pub(crate) id: String,
    /// The paper's figure, or the bar; absent where the paper does not say.
    pub(crate) paper: Option<f64>,
    /// The figure of a simulation, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) simulated: Option<f64>,
    pub(crate) ours: f64,
    /// The goal of Siltstone, in words.
    pub(crate) goal: String,
    pub(crate) holds: bool,
}

/// One limit of the machine, measured by this tool beside the results.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct LimitRecord {
    /// `"limit"`.
    pub(crate) kind: String,
    /// `seq_write`, `fdatasync_4k`, `memcpy`, `crc32c`, `lz4_compress`, ...
    pub(crate) what: String,
    pub(crate) value: f64,
    /// `MiB/s`, `us`, `GB/s`, `ops/s`.
    pub(crate) unit: String,
}

/// A ratio that `compare` would not make.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct RefusalRecord {
    /// `"refusal"`.
    pub(crate) kind: String,
    pub(crate) workload: String,
    /// `store:config` that would have been above the line.
    pub(crate) a: String,
    /// `store:config` that would have been below the line.
    pub(crate) b: String,
    /// Why not, in words.
    pub(crate) why: String,
}
