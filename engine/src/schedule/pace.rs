//! Compaction pacing: while there are readers, compactions work for a moment and rest for many times as long.
//!
//! A share of time rather than of bytes, because it adapts to the machine: on a slow or busy device a piece
//! of work takes longer, and the rest after it as well. Moments are short, so that a read that arrives in one
//! waits little, and waiting reads are served in the rest. All compactions of a database rest together:
//! otherwise many side by side would load the machine like one that never rests. `strategy::pacing` says how
//! the rest depends on the debt.

use crate::sync::Mutex;

/// The least work between two rests.
const MOMENT_NS: u64 = 500_000;
/// The longest rest: a sync that took a second need not stop everything for many.
const REST_MAX_NS: u64 = 100_000_000;

#[derive(Debug, Default)]
pub(crate) struct Pace(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    worked_ns: u64,
    /// The number of reads at the last piece of work.
    reads: u64,
    beside_readers: bool,
    /// The end of the present rest (monotonic ns).
    until_ns: u64,
}

impl Pace {
    /// Records a piece of work of `ns` until `now`, after so many reads; returns how many nanoseconds to
    /// rest, if rests are `times` as long as the work.
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

    /// The end of the present or last rest.
    pub(crate) fn until(&self) -> u64 {
        self.0.lock().until_ns
    }

    /// Ends the rest for all.
    pub(crate) fn end(&self) {
        self.0.lock().until_ns = 0;
    }

    /// Begins a compaction, after so many reads; returns whether there are readers: at the last check or
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
    fn compactions_rest_many_times_as_long_as_they_worked_and_only_beside_readers() {
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
