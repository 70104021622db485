//! One token bucket for the bytes that flushes and compactions write. A taker writes first and pays after, so
//! the bucket may be in debt; compactions wait while it is. Flushes take from it without waiting: they free
//! memory that writers wait for. As the rate may change at any time, a waiting compaction checks again after
//! a while.

use crate::storage::Clock;
use crate::sync::{Mutex, MutexGuard};
use std::sync::Arc;

/// The longest burst that is saved up while nothing is written.
const BURST_NS: f64 = 100e6;
/// A waiting compaction checks again after this time, as the rate may have changed.
const LOOK_AGAIN_NS: u64 = 20_000_000;

pub(crate) struct Limiter {
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
}

struct State {
    bytes_per_ns: f64,
    /// Bytes that may be written now; negative when in debt.
    available: f64,
    at_ns: u64,
}

impl Limiter {
    /// A limiter; `bytes_per_second` 0 is no limit.
    pub(crate) fn new(clock: Arc<dyn Clock>, bytes_per_second: u64) -> Self {
        let at_ns = clock.monotonic_ns();
        let state = State { bytes_per_ns: bytes_per_second as f64 / 1e9, available: 0.0, at_ns };
        Self { clock, state: Mutex::new(state) }
    }

    /// Sets the rate; 0 is no limit. Earlier bytes count at the earlier rate; ending the limit clears the
    /// debt, and a lower limit clears what is beyond one second of it: otherwise a brief burst at high rate
    /// would block compactions for hours.
    pub(crate) fn set_rate(&self, bytes_per_second: u64) {
        let now = self.clock.monotonic_ns();
        let mut state = self.state.lock();
        state.earn(now);
        state.bytes_per_ns = bytes_per_second as f64 / 1e9;
        state.available = state.available.max(-1e9 * state.bytes_per_ns);
    }

    /// Bytes a second; 0 for no limit.
    pub(crate) fn rate(&self) -> u64 {
        (self.state.lock().bytes_per_ns * 1e9).round() as u64
    }

    /// Takes bytes just written by a flush, which never waits. Its debt beyond a second is cleared: others
    /// would wait for it long after the flush has ended.
    pub(crate) fn take_without_limit(&self, bytes: u64) {
        let mut state = self.taken(bytes);
        let owed = if state.bytes_per_ns > 0.0 { state.available + bytes as f64 } else { state.available };
        state.available = state.available.max(owed.min(-1e9 * state.bytes_per_ns));
    }

    /// Takes bytes that were just written.
    pub(crate) fn take(&self, bytes: u64) {
        drop(self.taken(bytes));
    }

    fn taken(&self, bytes: u64) -> MutexGuard<'_, State> {
        let now = self.clock.monotonic_ns();
        let mut state = self.state.lock();
        state.earn(now);
        if state.bytes_per_ns > 0.0 {
            state.available -= bytes as f64;
        }
        state
    }

    /// Nanoseconds to wait before checking again; zero if writing is allowed.
    pub(crate) fn wait(&self) -> u64 {
        let now = self.clock.monotonic_ns();
        let mut state = self.state.lock();
        state.earn(now);
        if state.available >= 0.0 {
            return 0;
        }
        ((-state.available / state.bytes_per_ns) as u64).clamp(1, LOOK_AGAIN_NS)
    }
}

impl State {
    fn earn(&mut self, now: u64) {
        let earned = now.saturating_sub(self.at_ns) as f64 * self.bytes_per_ns;
        self.at_ns = now;
        self.available = (self.available + earned).min(BURST_NS * self.bytes_per_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::sim::SimClock;

    fn limiter(bytes_per_second: u64) -> (Arc<SimClock>, Limiter) {
        let clock = Arc::new(SimClock::default());
        (clock.clone(), Limiter::new(clock, bytes_per_second))
    }

    #[test]
    fn what_flushes_owe_is_forgiven_beyond_a_second() {
        let (clock, limiter) = limiter(1_000_000);
        limiter.take_without_limit(1 << 40);
        clock.advance_us(999_000);
        assert!(limiter.wait() > 0);
        clock.advance_us(2_000);
        assert_eq!(limiter.wait(), 0);
    }

    #[test]
    fn what_flushes_take_forgives_nothing_of_what_compactions_owe() {
        let (clock, limiter) = limiter(1_000_000);
        limiter.take(10_000_000);
        limiter.take_without_limit(1);
        clock.advance_us(9_900_000);
        assert!(limiter.wait() > 0, "ten seconds of merging are owed");
        clock.advance_us(101_000);
        assert_eq!(limiter.wait(), 0);
        limiter.take_without_limit(1_500_000);
        limiter.take_without_limit(1_500_000);
        clock.advance_us(1_001_000);
        assert_eq!(limiter.wait(), 0, "two flushes owe a second together");
    }

    #[test]
    fn the_rate_holds_over_time_and_bursts_are_bounded() {
        let (clock, limiter) = limiter(1_000_000);
        limiter.take(1_000);
        assert_eq!(limiter.wait(), 1_000_000, "1,000 bytes at 1 MB/s cost a millisecond");
        clock.advance_us(1_000);
        assert_eq!(limiter.wait(), 0);
        clock.advance_us(59_999_000);
        limiter.take(100_000);
        assert_eq!(limiter.wait(), 0, "a tenth of a second is saved up");
        limiter.take(1);
        assert!(limiter.wait() > 0, "but not a minute");
        limiter.set_rate(0);
        limiter.take(u64::MAX);
        assert_eq!((limiter.wait(), limiter.rate()), (0, 0));
    }

    #[test]
    fn who_waits_learns_of_a_higher_rate_soon_and_what_was_earned_counts_at_the_rate_of_its_time() {
        let (clock, limiter) = limiter(1_000);
        limiter.take(100_000);
        assert_eq!(limiter.wait(), LOOK_AGAIN_NS, "a hundred seconds, looked at in between");
        clock.advance_us(10_000_000);
        limiter.set_rate(1_000_000_000);
        assert_eq!(limiter.wait(), 90_000, "10,000 bytes were earned at the low rate");
        limiter.set_rate(0);
        limiter.set_rate(1_000);
        assert_eq!(limiter.wait(), 0, "what was written without a limit is forgiven");
    }

    #[test]
    fn a_lower_rate_forgives_what_is_beyond_a_second_of_its_own() {
        let (clock, limiter) = limiter(1_000_000_000);
        limiter.take(1_000_000_000);
        limiter.set_rate(1_000);
        clock.advance_us(999_000);
        assert!(limiter.wait() > 0);
        clock.advance_us(2_000);
        assert_eq!(limiter.wait(), 0);
    }
}
