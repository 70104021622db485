//! How merges give way to readers: they work for a moment and rest for many times as long, as long as anybody
//! reads.
//!
//! A share of time rather than of bytes, because it fits itself to the machine: where the device is slow or
//! busy a piece of work takes longer, and the rest after it as well. Moments are short, so that a reader who
//! comes in one finds only a little before him, and what waits meanwhile is served in the rest. All merges of
//! a database rest together: many beside each other would else take the machine as one that never rests does.
//! How long they rest for what is owed says `strategy::rest`.

use crate::sync::Mutex;

/// Work between two rests is at least this long.
const MOMENT_NS: u64 = 500_000;
/// None rests for longer than this from now on: a sync that took a second need not stop everything for many.
const REST_MAX_NS: u64 = 100_000_000;

#[derive(Debug, Default)]
pub(crate) struct Pace(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    worked_ns: u64,
    /// Reads when there was work last.
    reads: u64,
    beside_readers: bool,
    /// Nobody works before that moment (monotonic ns).
    until_ns: u64,
}

impl Pace {
    /// A piece of work has taken so long, until `now`, and there have been so many reads: how many
    /// nanoseconds to rest, if rests are `times` as long as the work.
    pub(crate) fn worked(&self, ns: u64, now: u64, reads: u64, times: f64) -> u64 {
        let mut state = self.0.lock();
        state.worked_ns += ns;
        if state.worked_ns >= MOMENT_NS {
            state.beside_readers = reads != state.reads;
            state.reads = reads;
            let worked = std::mem::take(&mut state.worked_ns);
            if state.beside_readers && times > 0.0 {
                let rest = (worked as f64 * times) as u64;
                state.until_ns = (state.until_ns.max(now) + rest).min(now + REST_MAX_NS);
            }
        }
        state.until_ns.saturating_sub(now)
    }

    /// Until when merges rest, or did last.
    pub(crate) fn until(&self) -> u64 {
        self.0.lock().until_ns
    }

    /// Nobody rests any longer.
    pub(crate) fn end(&self) {
        self.0.lock().until_ns = 0;
    }

    /// A merge begins, with so many reads by now. Whether somebody reads: when that was last looked at, or
    /// since.
    pub(crate) fn begin(&self, reads: u64) -> bool {
        let mut state = self.0.lock();
        let before = std::mem::replace(&mut state.reads, reads);
        state.beside_readers || reads != before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merges_rest_many_times_as_long_as_they_worked_and_only_beside_readers() {
        let pace = Pace::default();
        assert_eq!(pace.worked(MOMENT_NS - 1, 10, 1, 7.0), 0, "a moment is not over");
        assert_eq!(pace.worked(1, 10, 1, 7.0), 7 * MOMENT_NS);
        assert_eq!(pace.until(), 10 + 7 * MOMENT_NS);
        let later = 10 + 8 * MOMENT_NS;
        assert_eq!(
            (pace.until().saturating_sub(later), pace.worked(MOMENT_NS, later, 1, 7.0)),
            (0, 0),
            "nobody read meanwhile"
        );
        assert!(pace.begin(2) && !pace.begin(2), "somebody read since");
        assert_eq!(pace.worked(MOMENT_NS, later, 2, 7.0), 0, "but not since it began");
        assert_eq!(pace.worked(MOMENT_NS, later, 3, 0.0), 0, "where much is owed nobody rests");
        assert_eq!(pace.worked(1_000_000_000, later, 4, 7.0), REST_MAX_NS);
    }

    #[test]
    fn the_rests_of_all_add_up_and_end_together() {
        let pace = Pace::default();
        pace.worked(MOMENT_NS, 0, 1, 7.0);
        assert_eq!(pace.worked(MOMENT_NS, MOMENT_NS, 2, 7.0), 13 * MOMENT_NS, "two worked at the same time");
        pace.end();
        assert_eq!(pace.until(), 0);
    }
}
