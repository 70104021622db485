//! How background work that nobody waits for gives way to readers: it works for a moment and rests for many times as
//! long, as long as anybody reads.
//!
//! A share of time rather than of bytes, because it fits itself to the machine: where the device is slow or busy a piece of
//! work takes longer, and the rest after it as well. Moments are short, so that a reader who comes in one finds only
//! a little before him, and what waits meanwhile is served in the rest.

/// Work between two rests is at least this long.
const MOMENT_NS: u64 = 500_000;
/// No single rest is longer: a sync that took a second need not stop everything for many.
const REST_MAX_NS: u64 = 100_000_000;

#[derive(Debug)]
pub(crate) struct Pace {
    /// A rest is so many times as long as the work before it.
    rest: u64,
    worked_ns: u64,
    /// Reads when it worked last.
    reads: u64,
    beside_readers: bool,
}

impl Pace {
    /// After so many reads; `rest` 0 never rests.
    pub(crate) fn new(rest: u32, reads: u64) -> Self {
        Self { rest: rest.into(), worked_ns: 0, reads, beside_readers: false }
    }

    /// Whether it ever does.
    pub(crate) fn rests(&self) -> bool {
        self.rest > 0
    }

    /// After so long a piece of work, and so many reads by then: how many nanoseconds to rest.
    pub(crate) fn worked(&mut self, ns: u64, reads: u64) -> u64 {
        self.worked_ns += ns;
        if self.rest == 0 || self.worked_ns < MOMENT_NS {
            return 0;
        }
        self.beside_readers = reads != self.reads;
        self.reads = reads;
        let worked = std::mem::take(&mut self.worked_ns);
        if self.beside_readers { worked.saturating_mul(self.rest).min(REST_MAX_NS) } else { 0 }
    }

    /// Whether somebody read when that was last looked at.
    pub(crate) fn is_beside_readers(&self) -> bool {
        self.beside_readers
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_rests_many_times_as_long_as_it_worked_and_only_beside_readers() {
        let mut pace = Pace::new(7, 9);
        assert_eq!(pace.worked(MOMENT_NS - 1, 10), 0, "a moment is not over");
        assert_eq!(pace.worked(1, 10), 7 * MOMENT_NS);
        assert!(pace.is_beside_readers());
        assert_eq!(pace.worked(MOMENT_NS, 10), 0, "nobody read meanwhile");
        assert!(!pace.is_beside_readers());
        assert_eq!(pace.worked(2 * MOMENT_NS, 11), 14 * MOMENT_NS);
        assert_eq!(pace.worked(1_000_000_000, 12), REST_MAX_NS);
        assert_eq!(Pace::new(0, 0).worked(u64::MAX, 1), 0);
    }
}
