//! Durations of calls and background work, as histograms.
//!
//! Buckets grow with the value, 32 per power of two, so that a quantile is right to 3 %. Flushes, compactions
//! and write delays are always counted, as they are rare; gets and writes only with
//! [`Options::latencies`](crate::Options::latencies), since reading the clock twice costs a get in memory a
//! tenth.

use histogram::AtomicHistogram;
use std::fmt;
use std::time::Duration;

/// Binary logarithm of the number of buckets per power of two.
const GROUPING: u8 = 5;
/// The longest duration that is distinguished: 2^42 ns, 73 minutes; longer ones count as that.
const LONGEST: u8 = 42;

/// A histogram that many threads add durations to.
pub(crate) struct Timer(AtomicHistogram);

impl Default for Timer {
    fn default() -> Self {
        Timer(AtomicHistogram::new(GROUPING, LONGEST).expect("5 is less than 42"))
    }
}

impl Timer {
    pub(crate) fn note_ns(&self, ns: u64) {
        // Within the range, so it cannot fail.
        let _ = self.0.increment(ns.min((1 << LONGEST) - 1));
    }

    pub(crate) fn load(&self) -> Histogram {
        Histogram(self.0.load())
    }
}

impl fmt::Debug for Timer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.load().fmt(f)
    }
}

/// A database's timers: one per kind of call and background work.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    pub(crate) get: Timer,
    pub(crate) write: Timer,
    pub(crate) write_stall: Timer,
    pub(crate) flush: Timer,
    pub(crate) compaction: Timer,
}

impl Timers {
    pub(crate) fn load(&self) -> Latencies {
        Latencies {
            get: self.get.load(),
            write: self.write.load(),
            write_stall: self.write_stall.load(),
            flush: self.flush.load(),
            compaction: self.compaction.load(),
        }
    }
}

/// Durations of a database's calls and background work, since it was opened; see
/// [`Db::latencies`](crate::Db::latencies).
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// let options = siltstone::Options { latencies: true, ..Default::default() };
/// let db = siltstone::Db::builder().options(options).open(dir.path())?;
/// db.put("k", "v")?;
/// assert_eq!(db.latencies().write.count(), 1);
/// # Ok::<(), siltstone::Error>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Latencies {
    /// Gets of single keys. Counted with [`Options::latencies`](crate::Options::latencies).
    pub get: Histogram,
    /// Writes of batches and single keys, with their waits. Counted with
    /// [`Options::latencies`](crate::Options::latencies).
    pub write: Histogram,
    /// Write delays and stops.
    pub write_stall: Histogram,
    /// Flushes, from start to end.
    pub flush: Histogram,
    /// Compactions, from start to end.
    pub compaction: Histogram,
}

/// Durations, counted in buckets of 3 %.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// let db = siltstone::Db::open(dir.path())?;
/// db.put("k", "v")?;
/// db.flush()?;
/// let flushes = db.latencies().flush;
/// assert_eq!(flushes.count(), 1);
/// assert!(flushes.quantile(0.99) >= flushes.quantile(0.5) && flushes.quantile(0.5).is_some());
/// # Ok::<(), siltstone::Error>(())
/// ```
#[derive(Clone)]
pub struct Histogram(histogram::Histogram);

impl Histogram {
    /// The number of durations.
    pub fn count(&self) -> u64 {
        self.0.as_slice().iter().sum()
    }

    /// The duration at or below which that share of them lies, 0 to 1; `None` if there are none, or if the
    /// share lies outside 0 to 1. O(1,300).
    pub fn quantile(&self, share: f64) -> Option<Duration> {
        let bucket = self.0.quantile_bucket(share).ok()??;
        Some(Duration::from_nanos(bucket.end()))
    }

    /// Non-empty buckets: the longest duration in each, and its count.
    pub fn buckets(&self) -> impl Iterator<Item = (Duration, u64)> + '_ {
        let filled = self.0.iter().filter(|bucket| bucket.count() > 0);
        filled.map(|bucket| (Duration::from_nanos(bucket.end()), bucket.count()))
    }
}

impl fmt::Debug for Histogram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Histogram({} durations", self.count())?;
        for (name, share) in [("p50", 0.5), ("p99", 0.99), ("max", 1.0)] {
            if let Some(duration) = self.quantile(share) {
                write!(f, ", {name} {duration:?}")?;
            }
        }
        f.write_str(")")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_right_to_three_per_cent_and_the_longest_durations_are_counted() {
        let timer = Timer::default();
        (1..=1000u64).for_each(|micros| timer.note_ns(micros * 1_000));
        let histogram = timer.load();
        for share in [0.1, 0.5, 0.99, 1.0] {
            let found = histogram.quantile(share).unwrap().as_nanos() as f64;
            let right = 1e6 * share;
            assert!((right..=1.04 * right).contains(&found), "{share}: {found} of {right}");
        }
        assert_eq!(histogram.count(), histogram.buckets().map(|(_, count)| count).sum::<u64>());
        assert!(histogram.quantile(1.5).is_none() && Timer::default().load().quantile(0.5).is_none());
        timer.note_ns(u64::MAX);
        assert_eq!(timer.load().count(), 1001);
    }
}
