//! The figures of a row, for the text and for the page.

use super::{Row, Spread, digits};
use crate::record::{Durability, RunRecord, Second};

/// One figure of a row.
pub(super) struct Column {
    pub(super) head: &'static str,
    /// What it means, for the page.
    pub(super) help: &'static str,
    pub(super) cell: fn(&Row<'_>) -> String,
}

/// All of them, in order; the name of the store goes before.
pub(super) const COLUMNS: &[Column] = &[
    Column {
        head: "n",
        help: "Runs; every other figure is the median over them",
        cell: |r| r.runs.len().to_string(),
    },
    Column {
        head: "kops/s",
        help: "Thousand operations a second",
        cell: |r| median(r, |run| run.ops_s / 1e3),
    },
    Column {
        head: "min..max",
        help: "Thousand operations a second: the slowest and the fastest run",
        cell: range,
    },
    Column {
        head: "CPU us/op",
        help: "CPU time of the whole process an operation, in microseconds, background work included",
        cell: |r| median(r, |run| run.cpu_us_op),
    },
    Column {
        head: "WA",
        help: "Bytes written to the device over bytes of the user",
        cell: |r| maybe(r, |run| run.write_amp),
    },
    Column {
        head: "SA",
        help: "Bytes on disk when settled over live bytes",
        cell: |r| maybe(r, |run| run.space_amp),
    },
    Column {
        head: "dev W MB",
        help: "Bytes written to the device until settled, in MB",
        cell: |r| median(r, |run| run.device_write_bytes as f64 / 1e6),
    },
    Column {
        head: "dev R MB",
        help: "Bytes read from the device, in MB",
        cell: |r| median(r, |run| run.device_read_bytes as f64 / 1e6),
    },
    Column {
        head: "p50 us",
        help: "Half of the operations took at most this, in microseconds",
        cell: |r| median(r, |run| run.p50_us),
    },
    Column {
        head: "p99",
        help: "99 % of the operations took at most this, in microseconds",
        cell: |r| median(r, |run| run.p99_us),
    },
    Column {
        head: "p99.9",
        help: "99.9 % of the operations took at most this, in microseconds",
        cell: |r| median(r, |run| run.p999_us),
    },
    Column {
        head: "max",
        help: "The slowest operation, in microseconds",
        cell: |r| median(r, |run| run.max_us),
    },
    Column {
        head: "low s",
        help: "Operations in the slowest second over those of a mean second, the last second left out",
        cell: |r| r.over(slowest_second).map_or("-".into(), |s| format!("{:.0}%", s.median * 100.0)),
    },
    Column {
        head: "RSS MB",
        help: "The most memory resident, in MB",
        cell: |r| median(r, |run| run.peak_rss_bytes as f64 / 1e6),
    },
    Column {
        head: "disk MB",
        help: "The most bytes that its directory took, in MB",
        cell: |r| median(r, |run| run.peak_disk_bytes as f64 / 1e6),
    },
    Column { head: "settle s", help: "Seconds from the last operation until no merge was due", cell: settle },
    Column {
        head: "class",
        help: "What acknowledged writes survive",
        cell: |r| durability(r.runs[0].durability).into(),
    },
    Column { head: "comp", help: "Compression", cell: |r| r.runs[0].compression.clone() },
    Column {
        head: "±W %",
        help: "How far the written bytes of a run are from the median at most, in percent",
        cell: |r| percent(r.over(device_bytes)),
    },
    Column {
        head: "±CPU %",
        help: "How far the CPU time an operation of a run is from the median at most, in percent",
        cell: |r| percent(r.over(cpu)),
    },
];

/// The figure that says how far written bytes repeat.
pub(super) fn device_bytes(run: &RunRecord) -> Option<f64> {
    Some(run.device_write_bytes as f64)
}

/// The figure that says how far CPU time repeats.
pub(super) fn cpu(run: &RunRecord) -> Option<f64> {
    Some(run.cpu_us_op)
}

pub(super) fn durability(class: Durability) -> &'static str {
    match class {
        Durability::Volatile => "volatile",
        Durability::Buffered => "buffered",
        Durability::Sync => "sync",
    }
}

/// The seconds of a run that count as whole: the last is cut off by the run's end.
pub(super) fn whole_seconds(run: &RunRecord) -> &[Second] {
    match run.timeline.as_slice() {
        [whole @ .., _] if !whole.is_empty() => whole,
        all => all,
    }
}

fn slowest_second(run: &RunRecord) -> Option<f64> {
    let seconds = whole_seconds(run);
    let mean = seconds.iter().map(|s| s.ops).sum::<u64>() as f64 / seconds.len() as f64;
    let slowest = seconds.iter().map(|s| s.ops).min()? as f64;
    (run.timeline.len() > 2 && mean > 0.0).then(|| slowest / mean)
}

fn median(row: &Row<'_>, figure: impl Fn(&RunRecord) -> f64) -> String {
    maybe(row, |run| Some(figure(run)))
}

fn maybe(row: &Row<'_>, figure: impl Fn(&RunRecord) -> Option<f64>) -> String {
    row.over(figure).map_or("-".into(), |spread| digits(spread.median))
}

fn range(row: &Row<'_>) -> String {
    let spread = row.over(|run| Some(run.ops_s / 1e3));
    spread.map_or("-".into(), |s| format!("{}..{}", digits(s.min), digits(s.max)))
}

fn settle(row: &Row<'_>) -> String {
    match row.runs.iter().all(|run| run.settled) {
        true => median(row, |run| run.settle_seconds),
        false => "not".into(),
    }
}

fn percent(spread: Option<Spread>) -> String {
    spread.and_then(|s| s.deviation()).map_or("-".into(), |d| format!("{:.1}", d * 100.0))
}
