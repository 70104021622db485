//! One token bucket for the bytes that flushes and merges write. A taker goes ahead first and pays after, so the
//! bucket may be in debt; who finds it in debt waits. Flushes take from it without waiting: they free memory that
//! writers wait for.

use crate::storage::Clock;
use crate::sync::Mutex;
use std::sync::Arc;

/// At most this long a burst is saved up while nothing is written.
const BURST_NS: f64 = 100e6;

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
    /// `bytes_per_second` 0 is no limit.
    pub(crate) fn new(clock: Arc<dyn Clock>, bytes_per_second: u64) -> Self {
        let at_ns = clock.monotonic_ns();
        let state = State { bytes_per_ns: bytes_per_second as f64 / 1e9, available: 0.0, at_ns };
        Self { clock, state: Mutex::new(state) }
    }

    pub(crate) fn set_rate(&self, bytes_per_second: u64) {
        self.state.lock().bytes_per_ns = bytes_per_second as f64 / 1e9;
    }

    /// Takes bytes that were just written; how many nanoseconds to wait before writing more.
    pub(crate) fn take(&self, bytes: u64) -> u64 {
        let mut state = self.state.lock();
        if state.bytes_per_ns == 0.0 {
            return 0;
        }
        let now = self.clock.monotonic_ns();
        let earned = now.saturating_sub(state.at_ns) as f64 * state.bytes_per_ns;
        state.at_ns = now;
        state.available = (state.available + earned).min(BURST_NS * state.bytes_per_ns) - bytes as f64;
        if state.available >= 0.0 { 0 } else { (-state.available / state.bytes_per_ns) as u64 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    #[derive(Debug, Default)]
    struct Hand(AtomicU64);
    impl Clock for Hand {
        fn wall_us(&self) -> u64 {
            0
        }
        fn monotonic_ns(&self) -> u64 {
            self.0.load(Ordering::Relaxed)
        }
    }

    #[test]
    fn the_rate_holds_over_time_and_bursts_are_bounded() {
        let clock = Arc::new(Hand::default());
        let limiter = Limiter::new(clock.clone(), 1_000_000);
        assert_eq!(limiter.take(1_000), 1_000_000, "1,000 bytes at 1 MB/s cost a millisecond");
        clock.0.store(1_000_000, Ordering::Relaxed);
        assert_eq!(limiter.take(0), 0);
        clock.0.store(60_000_000_000, Ordering::Relaxed);
        assert_eq!(limiter.take(100_000), 0, "a tenth of a second is saved up");
        assert!(limiter.take(1) > 0, "but not a minute");
        limiter.set_rate(0);
        assert_eq!(limiter.take(u64::MAX), 0);
    }
}
