//! Randomness and time from a seed and the test, never from the machine.

use crate::storage::{Clock, Random};
use crate::types::random::{STEP, mix};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

/// The database's randomness, from a seed.
#[derive(Debug)]
pub struct SimRandom {
    state: AtomicU64,
}

impl SimRandom {
    /// A generator with that seed.
    pub fn new(seed: u64) -> Self {
        Self { state: AtomicU64::new(mix(seed ^ STEP)) }
    }
}

impl Random for SimRandom {
    fn next_u64(&self) -> u64 {
        mix(self.state.fetch_add(STEP, Ordering::Relaxed).wrapping_add(STEP))
    }
}

/// Time that stands still until the test, or an operation of the simulated storage, advances it.
#[derive(Debug)]
pub struct SimClock {
    monotonic_ns: AtomicU64,
    /// Wall time minus monotonic time.
    wall_offset_us: AtomicI64,
}

impl SimClock {
    /// A clock with monotonic time zero and this wall time.
    pub fn new(wall_us: u64) -> Self {
        Self { monotonic_ns: AtomicU64::new(0), wall_offset_us: AtomicI64::new(wall_us as i64) }
    }

    /// Advances both times.
    pub fn advance_us(&self, us: u64) {
        self.monotonic_ns.fetch_add(us * 1000, Ordering::SeqCst);
    }

    /// Changes wall time alone, forward or back, as an operator or NTP does.
    pub fn jump_wall_us(&self, us: i64) {
        self.wall_offset_us.fetch_add(us, Ordering::SeqCst);
    }
}

impl Default for SimClock {
    /// A clock that starts in November 2023.
    fn default() -> Self {
        Self::new(1_700_000_000_000_000)
    }
}

impl Clock for SimClock {
    fn wall_us(&self) -> u64 {
        let us = (self.monotonic_ns() / 1000) as i64 + self.wall_offset_us.load(Ordering::SeqCst);
        us.max(0) as u64
    }
    fn monotonic_ns(&self) -> u64 {
        self.monotonic_ns.load(Ordering::SeqCst)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::Rng;

    #[test]
    fn the_same_seed_gives_the_same_numbers_and_another_seed_others() {
        let draw = |seed| {
            let mut rng = Rng::new(seed);
            [(); 5].map(|()| rng.next_u64())
        };
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
        assert_eq!(SimRandom::new(3).next_u64(), SimRandom::new(3).next_u64());
    }

    #[test]
    fn wall_time_jumps_while_monotonic_time_does_not() {
        let clock = SimClock::new(5_000_000);
        clock.advance_us(10);
        clock.jump_wall_us(-1_000_000);
        assert_eq!((clock.wall_us(), clock.monotonic_ns()), (4_000_010, 10_000));
    }
}
