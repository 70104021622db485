//! What this process uses: processor time and memory, as Linux tells it.

use parking_lot::Mutex;
use std::time::{Duration, Instant};

/// Rates are of at least this long.
const WINDOW: Duration = Duration::from_millis(500);

/// Rates of processor time and bytes, of the time between two looks.
pub(crate) struct Load(Mutex<LoadSample>);

struct LoadSample {
    at: Instant,
    cpu: Duration,
    bytes: u64,
    rates: Rates,
}

/// Hundredths of a processor, bytes a second.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Rates {
    pub(crate) cpu_percent: u64,
    pub(crate) bytes_per_second: u64,
}

impl Load {
    pub(crate) fn new() -> Self {
        let looked = LoadSample { at: Instant::now(), cpu: cpu(), bytes: 0, rates: Rates::default() };
        Self(Mutex::new(looked))
    }

    /// The rates lately, where so many bytes were written by now.
    pub(crate) fn rates(&self, bytes: u64) -> Rates {
        let mut looked = self.0.lock();
        let passed = looked.at.elapsed();
        if passed >= WINDOW {
            let cpu = cpu();
            let part = |amount: f64| (amount / passed.as_secs_f64()) as u64;
            looked.rates = Rates {
                cpu_percent: part((cpu.saturating_sub(looked.cpu)).as_secs_f64() * 100.0),
                bytes_per_second: part(bytes.saturating_sub(looked.bytes) as f64),
            };
            (looked.at, looked.cpu, looked.bytes) = (Instant::now(), cpu, bytes);
        }
        looked.rates
    }

    /// The share of all processors that this process used when it was last looked at.
    pub(crate) fn share(&self) -> f64 {
        self.0.lock().rates.cpu_percent as f64 / 100.0 / processors() as f64
    }
}

/// Processors that this process may use.
pub(crate) fn processors() -> u64 {
    std::thread::available_parallelism().map_or(1, |n| n.get() as u64)
}

/// Processor time of this process; zero where it is not told.
fn cpu() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // Behind the name, which may have spaces: the 12th and 13th field are user and system time.
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
    let ticks: u64 =
        fields.split_whitespace().skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
    Duration::from_secs_f64(ticks as f64 / rustix::param::clock_ticks_per_second().max(1) as f64)
}

/// Memory of this process in use, in bytes; zero where it is not told.
pub(crate) fn memory_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm.split_whitespace().nth(1).and_then(|pages| pages.parse::<u64>().ok());
    pages.unwrap_or(0) * rustix::param::page_size() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_process_uses_shows() {
        let load = Load::new();
        let began = Instant::now();
        let mut sum = 0u64;
        while began.elapsed() < Duration::from_millis(600) {
            sum = std::hint::black_box(sum.wrapping_add(1));
        }
        let rates = load.rates(6_000_000);
        assert!(rates.cpu_percent > 0, "{rates:?}");
        assert!((1_000_000..=12_000_000).contains(&rates.bytes_per_second), "{rates:?}");
        assert!(memory_bytes() > 1 << 20);
    }
}
