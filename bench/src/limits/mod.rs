//! The limits of the machine without any store, to compare the results with.
//!
//! Everything is measured in about ten seconds, right beside the runs, because a shared machine is another
//! machine an hour later. Every figure of the processor is the median of several short windows, so that one
//! that was interrupted does not count; every figure of the disk says in its name whether it went past the
//! page cache. `memory` is about a core and its memory, `disk` about the disk.

mod disk;
mod memory;

use crate::record::LimitRecord;
use crate::report;
use crate::workload::random::Rng;
use std::io::{self, Write};
use std::path::Path;

/// The command: measures, then prints a table or one JSON object a line.
pub(crate) fn run(dir: &Path, json: bool) -> io::Result<()> {
    let limits = measure(dir)?;
    let mut out = io::stdout().lock();
    if json {
        for limit in &limits {
            writeln!(out, "{}", serde_json::to_string(limit)?)?;
        }
        return Ok(());
    }
    let text = report::table(&report::Records { limits, ..Default::default() });
    out.write_all(text.as_bytes())
}

/// All limits: of the file system that holds `dir`, of the processor and of the memory.
pub(crate) fn measure(dir: &Path) -> io::Result<Vec<LimitRecord>> {
    let mut found = machine();
    found.extend(disk::measure(dir, &disk::Effort::full())?);
    found.extend(memory::measure(&memory::Effort::full())?);
    Ok(found)
}

/// How large the machine is, and how busy it is with other work.
fn machine() -> Vec<LimitRecord> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let mut found = vec![limit("cores", cores as f64, "cores")];
    let kib = std::fs::read_to_string("/proc/meminfo").ok().and_then(|text| {
        let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
        line.split_whitespace().next()?.parse::<f64>().ok()
    });
    found.extend(kib.map(|kib| limit("memory", kib / 1024.0 / 1024.0, "GiB")));
    let waited = std::fs::read_to_string("/proc/pressure/cpu").ok().and_then(|text| {
        let share = text.split_whitespace().find_map(|word| word.strip_prefix("avg10="))?;
        share.parse::<f64>().ok()
    });
    found.extend(waited.map(|percent| limit("cpu_pressure", percent, "%")));
    found
}

fn limit(what: &str, value: f64, unit: &str) -> LimitRecord {
    LimitRecord { kind: "limit".into(), what: what.into(), value, unit: unit.into() }
}

/// Bytes that no compressor shortens, the same in every run.
fn noise(len: usize, seed: u64) -> Vec<u8> {
    let mut rng = Rng::new(seed, "limits", 0);
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        bytes.extend_from_slice(&rng.next().to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn every_limit_is_measured_and_positive() {
        let dir = tempfile::tempdir().unwrap();
        let disk = disk::Effort {
            file_bytes: 4 << 20,
            sync: Duration::from_millis(30),
            pread: Duration::from_millis(30),
        };
        let memory = memory::Effort { windows: 2, window: Duration::from_millis(2), copy_bytes: 1 << 20 };
        let mut found = machine();
        found.extend(disk::measure(dir.path(), &disk).unwrap());
        found.extend(memory::measure(&memory).unwrap());
        for limit in &found {
            let idle = limit.what == "cpu_pressure" && limit.value == 0.0;
            assert!((idle || limit.value > 0.0) && limit.value.is_finite(), "{limit:?}");
        }
        let value = |what: &str| found.iter().find(|l| l.what == what).map(|l| l.value).unwrap();
        assert!(value("fdatasync_4k_p50") <= value("fdatasync_4k_p99"));
        assert!(value("overwrite_fdatasync_4k_1t") > 0.0 && value("overwrite_fdatasync_4k_8t") > 0.0);
        for what in ["seq_write", "seq_read"] {
            let ways = found.iter().filter(|l| l.what.starts_with(what)).count();
            assert_eq!(ways, 1, "{what} is measured one way, and its name says which");
        }
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "files stay behind");
    }
}
