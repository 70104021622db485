//! The figures of a row, for the text and for the page.

use super::{Row, Spread, digits};
use crate::record::{Durability, RunRecord, Second};

/// One figure of a row.
pub(super) struct Column {
    pub(super) head: &'static str,
    /// Its meaning, for the page.
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
        head: "flush MB",
        help: "Bytes of tables that flushes wrote, as the store tells, in MB",
        cell: |r| maybe(r, |run| Some(run.flushed_bytes? as f64 / 1e6)),
    },
    Column {
        head: "merge MB",
        help: "Bytes of tables that merges wrote, as the store tells, in MB",
        cell: |r| maybe(r, |run| Some(run.compaction_written_bytes? as f64 / 1e6)),
    },
    Column {
        head: "log MB",
        help: "Bytes of log, as the store tells, in MB",
        cell: |r| maybe(r, |run| Some(run.wal_bytes? as f64 / 1e6)),
    },
    Column { head: "flushes", help: "Flushes that wrote tables", cell: |r| count(r, |run| run.flushes) },
    Column {
        head: "merges",
        help: "Compactions that wrote SSTables",
        cell: |r| count(r, |run| run.compactions),
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
        help: "Operations in the slowest second over those of a mean second, whole seconds only",
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
    Column {
        head: "settle s",
        help: "Seconds from the last operation until no compaction was due",
        cell: settle,
    },
    Column {
        head: "stolen %",
        help: "Time of all processors that other machines on the same hardware took, in percent, in the run where it was most",
        cell: |r| r.over(|run| run.stolen).map_or("-".into(), |s| format!("{:.1}", s.max * 100.0)),
    },
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

/// The whole seconds of a run in order, and what was done in each: nothing is recorded of a second in which
/// no operation ended, and what is left over at the end would look like a stall. Empty when no second was
/// recorded.
pub(super) fn whole_seconds(run: &RunRecord) -> Vec<(f64, Option<&Second>)> {
    let of = |number: u64| run.timeline.iter().find(|second| second.at as u64 == number);
    let count = if run.timeline.is_empty() { 0 } else { run.seconds as u64 };
    (0..count).map(|number| (number as f64, of(number))).collect()
}

fn slowest_second(run: &RunRecord) -> Option<f64> {
    let ops: Vec<u64> = whole_seconds(run).iter().map(|(_, second)| second.map_or(0, |s| s.ops)).collect();
    let mean = ops.iter().sum::<u64>() as f64 / ops.len() as f64;
    let slowest = *ops.iter().min()? as f64;
    (ops.len() > 1 && mean > 0.0).then(|| slowest / mean)
}

fn median(row: &Row<'_>, figure: impl Fn(&RunRecord) -> f64) -> String {
    maybe(row, |run| Some(figure(run)))
}

fn maybe(row: &Row<'_>, figure: impl Fn(&RunRecord) -> Option<f64>) -> String {
    row.over(figure).map_or("-".into(), |spread| digits(spread.median))
}

fn count(row: &Row<'_>, figure: fn(&RunRecord) -> Option<u64>) -> String {
    row.over(|run| Some(figure(run)? as f64)).map_or("-".into(), |spread| format!("{:.0}", spread.median))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{blocks, made_up};

    #[test]
    fn a_second_in_which_nothing_ended_is_the_slowest_and_a_cut_off_one_does_not_count() {
        let mut run = made_up::records().runs.remove(0);
        let second = |at: f64, ops| Second { at, ops, ..Second::default() };
        (run.seconds, run.timeline) =
            (3.4, vec![second(0.0, 90), second(1.0, 110), second(2.0, 100), second(3.0, 5)]);
        assert_eq!(slowest_second(&run), Some(0.9));
        run.timeline.remove(1);
        assert_eq!(slowest_second(&run), Some(0.0));
        assert_eq!(
            whole_seconds(&run).iter().map(|(at, s)| (*at, s.is_some())).collect::<Vec<_>>(),
            [(0.0, true), (1.0, false), (2.0, true)]
        );
        run.seconds = 0.4;
        assert_eq!(slowest_second(&run), None);
    }

    #[test]
    fn a_row_with_one_unsettled_run_is_not_settled() {
        let mut runs = made_up::records().runs;
        runs[2].settled = false;
        let blocks = blocks(&runs);
        assert_eq!(
            (settle(&blocks[0].rows[0]).as_str(), settle(&blocks[0].rows[1]).as_str()),
            ("not", "1.25")
        );
    }
}
