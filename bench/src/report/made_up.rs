//! Records that nobody measured, for the tests: a workload of writes and one of reads and writes.

use super::Records;
use crate::record::{
    BesideMerges, Durability, FigureRecord, Latency, LimitRecord, RatioRecord, RefusalRecord, RunRecord,
    Second, Stage, Window,
};

pub(super) fn records() -> Records {
    let mut runs = Vec::new();
    for round in 1..=3 {
        let drift = f64::from(round) - 2.0;
        runs.push(run("fillrandom", "siltstone", "default", round, 262_000.0 + 4_000.0 * drift));
        runs.push(run("fillrandom", "rocksdb", "tuned", round, 145_000.0 - 3_000.0 * drift));
    }
    runs.push(RunRecord { compression: "none".into(), ..run("fillrandom", "lmdb", "default", 1, 269_000.0) });
    for store in ["siltstone", "rocksdb"] {
        let mut mixed =
            run("ycsb-a", store, if store == "rocksdb" { "tuned" } else { "default" }, 1, 180_000.0);
        mixed.threads = 2;
        mixed.settled = store == "siltstone";
        mixed.latency.insert("read".into(), latency(4.0));
        runs.push(mixed);
    }
    let ratio = |metric: &str, b: &str, median: f64| RatioRecord {
        kind: "ratio".into(),
        workload: "fillrandom".into(),
        metric: metric.into(),
        a: "siltstone:default".into(),
        b: b.into(),
        median,
        min: median * 0.98,
        max: median * 1.03,
        runs: 3,
    };
    let limit = |what: &str, value: f64, unit: &str| LimitRecord {
        kind: "limit".into(),
        what: what.into(),
        value,
        unit: unit.into(),
    };
    Records {
        runs,
        ratios: vec![
            ratio("ops_s", "rocksdb:tuned", 1.81),
            ratio("cpu_us_op", "rocksdb:tuned", 0.55),
            ratio("ops_s", "lmdb:default", 0.97),
        ],
        refusals: vec![RefusalRecord {
            kind: "refusal".into(),
            workload: "ycsb-a".into(),
            a: "siltstone:default".into(),
            b: "rocksdb:tuned".into(),
            why: "only one of them was settled".into(),
        }],
        figures: vec![FigureRecord {
            kind: "figure".into(),
            id: "a paper, table 1, row 2".into(),
            paper: Some(2.5),
            simulated: None,
            ours: 2.75,
            goal: "at least the paper's".into(),
            holds: true,
        }],
        limits: vec![limit("seq_write_direct", 1261.0, "MiB/s"), limit("fdatasync_4k_p50", 74.25, "us")],
    }
}

pub(crate) fn run(workload: &str, store: &str, config: &str, round: u32, ops_s: f64) -> RunRecord {
    let ops = 2_000_000;
    let seconds = ops as f64 / ops_s;
    let cpu_us_op = 1e6 / ops_s * 1.1 * (1.0 + f64::from(round) / 100.0);
    let second = |at: u64| Second {
        at: at as f64,
        ops: ops_s as u64 - 20_000 * (at % 3),
        p50_us: 2.0,
        p99_us: 20.0 + 5.0 * at as f64,
        p999_us: 80.0,
        max_us: 900.0 * (1 + at % 4) as f64,
    };
    RunRecord {
        kind: "run".into(),
        workload: workload.into(),
        store: store.into(),
        config: config.into(),
        version: "1.2.3".into(),
        settings: [("memtable".to_string(), "64 MiB".to_string()), ("keys".to_string(), ops.to_string())]
            .into(),
        run: round,
        seed: 7,
        threads: 1,
        ops,
        seconds,
        ops_s,
        cpu_us_op,
        user_bytes: 232_000_000,
        device_write_bytes: 500_000_000 + u64::from(round) * 1_000_000,
        device_read_bytes: 0,
        flushed_bytes: (store != "lmdb").then_some(120_000_000),
        compaction_written_bytes: (store != "lmdb").then_some(130_000_000),
        wal_bytes: (store != "lmdb").then_some(240_000_000),
        flushes: (store != "lmdb").then_some(4),
        compactions: (store != "lmdb").then_some(2),
        write_amp: Some(2.2),
        space_amp: None,
        p50_us: 3.1,
        p99_us: 16.4,
        p999_us: 210.0,
        max_us: 14_200.0,
        peak_rss_bytes: 181_000_000,
        peak_disk_bytes: 420_000_000,
        durability: Durability::Buffered,
        compression: "lz4".into(),
        settled: true,
        settle_seconds: 1.25,
        latency: [("write".to_string(), latency(3.1))].into(),
        calm: Default::default(),
        calm_seconds: 0,
        timeline: (0..seconds.ceil() as u64).map(second).collect(),
        windows: Vec::new(),
        extra_memory_bytes: None,
        before_p99_us: None,
        runs_max: None,
        largest_merge_bytes: None,
        stolen: Some(0.02),
        scan_timeline: Vec::new(),
        beside_merges: None,
        control: None,
    }
}

/// A run of `unseen` with windows of five seconds: two before the compaction, with so many gets and such hit
/// ratios, two during it and one after it, with such p99s.
pub(crate) fn around_a_merge(
    store: &str,
    config: &str,
    before: [(u64, f64); 2],
    worst_us: [f64; 3],
) -> RunRecord {
    let before = before.map(|(gets, hits)| (Stage::Before, gets, 200.0, hits));
    let later = [Stage::During, Stage::During, Stage::After];
    let later = later.into_iter().zip(worst_us).map(|(stage, p99_us)| (stage, 100, p99_us, 0.6));
    let windows = before.into_iter().chain(later).enumerate();
    let mut run = run("unseen", store, config, 1, 200_000.0);
    run.windows = windows
        .map(|(number, (stage, gets, get_p99_us, hits))| Window {
            at: 5.0 * number as f64,
            stage,
            gets,
            get_mean_us: 50.0,
            get_p99_us,
            scans: 0,
            scan_mean_us: 0.0,
            hit_ratio: Some(hits),
            rss_bytes: 0,
            stolen: None,
            calm: true,
        })
        .collect();
    run.settings.insert("memory_cache".into(), "100000000".into());
    run.extra_memory_bytes = Some(10_000_000);
    run.before_p99_us = Some(200.0);
    run
}

/// A run of `felt` of four seconds, in one of which a compaction ran and gets took so long.
pub(crate) fn beside_merges(store: &str, beside_us: f64) -> RunRecord {
    let of = |p99_us: f64| Latency {
        count: 100,
        p99_us,
        p999_us: 2.0 * p99_us,
        max_us: 3.0 * p99_us,
        ..latency(1.0)
    };
    let second = |at: u64| Second {
        at: at as f64,
        ops: 100,
        p50_us: 1.0,
        p99_us: if at == 2 { beside_us } else { 100.0 },
        p999_us: 200.0,
        max_us: 900.0,
    };
    let mut run = run("felt:p50", store, "default", 1, 200_000.0);
    let timeline: Vec<Second> = (0..4).map(second).collect();
    run.beside_merges = Some(BesideMerges {
        with: [("read".to_string(), of(beside_us))].into(),
        without: [("read".to_string(), of(100.0))].into(),
        with_seconds: 1,
        without_seconds: 3,
        hit_ratio: Some(0.6),
        debt_mean: Some(5e6),
        debt_max: Some(9_000_000),
        timelines: ["read", "write"].map(|kind| (kind.to_string(), timeline.clone())).into(),
        merging: vec![2],
    });
    run
}

/// Most operations near `typical_us`, and ever fewer up to a thousand times that.
fn latency(typical_us: f64) -> Latency {
    let bucket = |at: i32| {
        let nanos = typical_us * 1e3 * 1.25_f64.powi(at);
        (nanos as u64, (1e6 / 2.2_f64.powi(at.abs())).ceil() as u64)
    };
    let histogram: Vec<(u64, u64)> = (-6..=31).map(bucket).collect();
    Latency {
        count: histogram.iter().map(|(_, count)| count).sum(),
        mean_us: typical_us * 1.4,
        p50_us: typical_us,
        p99_us: typical_us * 6.0,
        p999_us: typical_us * 40.0,
        max_us: typical_us * 1_000.0,
        histogram,
    }
}
