//! Memory that calls have freed goes back to the system.
//!
//! The C library's allocator keeps it: what is freed lies in pieces between what lives on, in an arena for each of several
//! threads, and goes back by itself only from an arena's end. After a burst of calls a server would so hold for good what the
//! burst needed. Asked to, the allocator gives back every free page; that takes its locks, so it is asked once most calls
//! are over, and seldom.

use siltstone_server::Server;
use std::time::Duration;

/// How often it is looked what calls hold.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Looks from one time that memory is given back to the next, at least.
const LOOKS_BETWEEN: u32 = 10;
/// Bytes that calls must have freed.
const FREED_MIN: u64 = 64 << 20;

/// When memory is to be given back.
struct GivingBack {
    /// The most that calls held since it was given back.
    peak: u64,
    /// Looks since then.
    looks: u32,
}

impl GivingBack {
    fn new() -> Self {
        Self { peak: 0, looks: LOOKS_BETWEEN }
    }

    /// Whether it is now, where calls hold so much: they have freed much, and three quarters at least of what they held.
    fn is_due(&mut self, used: u64) -> bool {
        self.looks = self.looks.saturating_add(1);
        self.peak = self.peak.max(used);
        let is_due = self.looks > LOOKS_BETWEEN && self.peak - used >= FREED_MIN && used <= self.peak / 4;
        if is_due {
            *self = Self { peak: used, looks: 0 };
        }
        is_due
    }
}

/// Gives memory back that calls of the server have freed, for as long as it is polled.
pub(crate) async fn give_back_freed(server: &Server) {
    let mut giving = GivingBack::new();
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        if giving.is_due(server.call_memory()) {
            let _ = tokio::task::spawn_blocking(give_back).await;
        }
    }
}

/// Gives all free pages back to the system.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[expect(unsafe_code, reason = "the allocator is asked by a function of the C library")]
fn give_back() {
    // SAFETY: it may be called at any time, from any thread; the argument is the number of bytes to keep.
    unsafe { libc::malloc_trim(0) };
}

/// Other allocators do so by themselves.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
fn give_back() {}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn memory_is_given_back_once_a_burst_is_over_and_not_while_calls_go_on() {
        let mut giving = GivingBack::new();
        assert!(!giving.is_due(0) && !giving.is_due(1_000 * MIB) && !giving.is_due(600 * MIB));
        assert!(giving.is_due(200 * MIB), "most is freed");
        // What is left is freed, but it was given back just before.
        for _ in 0..LOOKS_BETWEEN {
            assert!(!giving.is_due(0));
        }
        assert!(giving.is_due(0));
        for _ in 0..100 {
            assert!(!giving.is_due(0), "once");
        }
        for _ in 0..100 {
            assert!(!giving.is_due(60 * MIB) && !giving.is_due(0), "small bursts are not worth it");
        }
    }

    #[test]
    fn a_server_that_is_always_busy_is_left_alone() {
        let mut giving = GivingBack::new();
        for n in 0..1_000 {
            assert!(!giving.is_due((300 + n * 37 % 500) * MIB));
        }
    }

    #[test]
    fn the_allocator_takes_the_call() {
        give_back();
    }
}
