//! The kernel's figures of this process: CPU time, bytes to and from the device, memory; and the size of a
//! directory.

use hdrhistogram::Histogram;
use rustix::time::{ClockId, clock_gettime};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// An empty histogram of times up to an hour in the unit, nanoseconds or microseconds, of which there are so
/// many in a second. (One that is made without bounds grows when told a large value, but not when told to cut
/// it off.)
pub(crate) fn times(in_a_second: u64) -> Histogram<u64> {
    Histogram::new_with_bounds(1, 3_600 * in_a_second, 3).expect("these bounds are right")
}

/// Counters that only rise.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Usage {
    /// Processor time of all threads, user and system.
    pub(crate) cpu: Duration,
    /// Counted when a page becomes dirty, so it repeats however the kernel times its writing.
    pub(crate) device_write_bytes: u64,
    pub(crate) device_read_bytes: u64,
}

impl Usage {
    pub(crate) fn now() -> Self {
        let cpu = clock_gettime(ClockId::ProcessCPUTime);
        let io = std::fs::read_to_string("/proc/self/io").unwrap_or_default();
        Usage {
            cpu: Duration::new(cpu.tv_sec as u64, cpu.tv_nsec as u32),
            device_write_bytes: field(&io, "write_bytes:"),
            device_read_bytes: field(&io, "read_bytes:"),
        }
    }

    /// Both together.
    pub(crate) fn and(&self, other: &Usage) -> Usage {
        Usage {
            cpu: self.cpu + other.cpu,
            device_write_bytes: self.device_write_bytes + other.device_write_bytes,
            device_read_bytes: self.device_read_bytes + other.device_read_bytes,
        }
    }

    /// The use since `earlier`.
    pub(crate) fn since(&self, earlier: &Usage) -> Usage {
        Usage {
            cpu: self.cpu - earlier.cpu,
            device_write_bytes: self.device_write_bytes - earlier.device_write_bytes,
            device_read_bytes: self.device_read_bytes - earlier.device_read_bytes,
        }
    }
}

/// Time of all processors of this machine, in the kernel's ticks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Processors {
    all: u64,
    /// Where this is a virtual machine: the time in which it had work and another had the processor.
    stolen: u64,
}

impl Processors {
    pub(crate) fn now() -> Self {
        Processors::of(&std::fs::read_to_string("/proc/stat").unwrap_or_default())
    }

    fn of(stat: &str) -> Self {
        // user, nice, system, idle, iowait, irq, softirq, steal; guests' time, which follows, is in the first
        // two.
        let line = stat.lines().find_map(|line| line.strip_prefix("cpu ")).unwrap_or_default();
        let ticks: Vec<u64> = line.split_whitespace().take(8).filter_map(|n| n.parse().ok()).collect();
        Processors { all: ticks.iter().sum(), stolen: ticks.get(7).copied().unwrap_or(0) }
    }

    /// The share that was stolen since `earlier`; nothing where the kernel does not tell or no tick passed.
    pub(crate) fn stolen_since(&self, earlier: &Processors) -> Option<f64> {
        let all = self.all.saturating_sub(earlier.all);
        (all > 0).then(|| self.stolen.saturating_sub(earlier.stolen) as f64 / all as f64)
    }
}

/// The processor time of others, second by second.
#[derive(Debug, Default)]
pub(crate) struct Stolen(Vec<(Instant, Processors)>);

/// The share of a second that makes it one of which others took too much.
pub(crate) const CALM: f64 = 0.02;
/// What was held up in one second may be seen so many seconds later.
const AFTER: u64 = 2;

impl Stolen {
    /// To be called several times a second.
    pub(crate) fn look(&mut self) {
        self.0.push((Instant::now(), Processors::now()));
    }

    /// Whether others took little of the second of that number after `began`, and of those before it.
    pub(crate) fn is_calm(&self, began: Instant, number: u64) -> bool {
        let share = |number: u64| {
            let start = began + Duration::from_secs(number);
            let first = self.0.partition_point(|(at, _)| *at <= start).saturating_sub(1);
            let last = self.0.partition_point(|(at, _)| *at < start + Duration::from_secs(1));
            let (first, last) = (self.0.get(first)?, self.0.get(last)?);
            last.1.stolen_since(&first.1)
        };
        (number.saturating_sub(AFTER)..=number).all(|number| share(number).is_some_and(|share| share <= CALM))
    }
}

/// The number after a name at the start of a line.
fn field(text: &str, name: &str) -> u64 {
    let rest = text.lines().find_map(|line| line.strip_prefix(name));
    rest.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

/// CPU time that another process has used.
pub(crate) fn cpu_of(process: u32) -> Duration {
    let text = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    // Behind its name, which may hold anything; user and system time in hundredths of a second.
    let fields = text.rsplit(')').next().unwrap_or_default().split_whitespace();
    let ticks: u64 = fields.skip(11).take(2).filter_map(|ticks| ticks.parse::<u64>().ok()).sum();
    Duration::from_millis(ticks * 10)
}

/// The memory that is resident.
pub(crate) fn rss_bytes() -> u64 {
    rss_bytes_of("self")
}

/// Memory that another process has resident.
pub(crate) fn rss_bytes_of(process: &str) -> u64 {
    field(&std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default(), "VmRSS:") * 1024
}

/// The most memory that was resident since [`forget_peak`].
pub(crate) fn peak_rss_bytes() -> u64 {
    field(&std::fs::read_to_string("/proc/self/status").unwrap_or_default(), "VmHWM:") * 1024
}

/// Starts the peak anew from what is resident now. Where the kernel refuses, the peak of an earlier phase
/// stays.
pub(crate) fn forget_peak() {
    let _ = std::fs::write("/proc/self/clear_refs", "5");
}

/// Bytes allocated to the files below `dir`. Files that vanish meanwhile count as nothing.
pub(crate) fn directory_bytes(dir: &Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(dir) else { return 0 };
    let sizes = entries.flatten().map(|entry| match entry.metadata() {
        Ok(about) if about.is_dir() => directory_bytes(&entry.path()),
        Ok(about) => about.blocks() * 512,
        Err(_) => 0,
    });
    sizes.sum()
}

/// Drops the files of a directory from the page cache.
pub(crate) fn forget_files(dir: &Path) -> std::io::Result<()> {
    use rustix::fs::{Advice, fadvise};
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        if entry.metadata()?.is_dir() {
            forget_files(&entry.path())?;
            continue;
        }
        let file = std::fs::File::open(entry.path())?;
        // What was not written yet would stay.
        file.sync_all()?;
        fadvise(&file, 0, None, Advice::DontNeed)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_were_forgotten_are_read_from_the_device() {
        let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        std::fs::create_dir(dir.path().join("in")).unwrap();
        let path = dir.path().join("in").join("file");
        std::fs::write(&path, vec![7u8; 1 << 20]).unwrap();
        let read = || {
            let before = Usage::now();
            assert_eq!(std::fs::read(&path).unwrap().len(), 1 << 20);
            Usage::now().since(&before).device_read_bytes
        };
        assert!(read() < 1 << 20, "it was just written");
        forget_files(dir.path()).unwrap();
        assert!(read() >= 1 << 20);
    }

    #[test]
    fn stolen_is_the_eighth_column_of_the_first_line_over_the_first_eight() {
        let earlier = Processors::of("cpu  10 0 10 60 0 0 0 20 5 0\ncpu0 1 2 3 4 5 6 7 8\n");
        let now = Processors::of("cpu  40 0 20 100 0 0 0 40 99 9\n");
        assert_eq!(now.stolen_since(&earlier), Some(0.2));
        assert_eq!(now.stolen_since(&now), None);
        assert_eq!(Processors::of("none of it"), Processors::default());
        assert!(Processors::now().all > 0);
    }

    #[test]
    fn a_second_is_calm_if_little_of_it_and_of_the_two_before_it_was_stolen() {
        let began = Instant::now();
        let at = |tenths: u64, stolen| {
            (began + Duration::from_millis(100 * tenths), Processors { all: 20 * tenths, stolen })
        };
        // A look twice a second for ten seconds; in the fourth others take a tenth.
        let looks = (0..=20).map(|n| at(5 * n, if n > 7 { 20 } else { 0 }));
        let stolen = Stolen(looks.collect());
        let calm: Vec<u64> = (0..12).filter(|number| stolen.is_calm(began, *number)).collect();
        assert_eq!(calm, [0, 1, 2, 6, 7, 8, 9], "not behind it, and not where nobody looked");
    }

    #[test]
    fn what_a_process_does_is_seen() {
        // The device is seen only on a file system that has one.
        let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let before = Usage::now();
        std::fs::write(dir.path().join("file"), vec![7u8; 1 << 20]).unwrap();
        let mut sum = 0u64;
        while Usage::now().since(&before).cpu < Duration::from_millis(5) {
            sum = std::hint::black_box(sum + 1);
        }
        std::fs::File::open(dir.path().join("file")).unwrap().sync_all().unwrap();
        assert!(Usage::now().since(&before).device_write_bytes >= 1 << 20);
        assert!(directory_bytes(dir.path()) >= 1 << 20);
        assert!(peak_rss_bytes() > 1 << 20);
    }
}
