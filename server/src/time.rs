//! Points in time and lengths of time, as the server counts them (in microseconds) and as messages have them.

use prost_types::{Duration, Timestamp};

/// Wall-clock microseconds since 1970.
pub(crate) fn now_us() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| u64::try_from(since.as_micros()).unwrap_or(u64::MAX))
}

/// The present time, as metadata of operations have it.
pub(crate) fn now() -> Option<Timestamp> {
    Some(timestamp(now_us()))
}

/// Microseconds since 1970 as a message.
pub(crate) fn timestamp(us: u64) -> Timestamp {
    Timestamp {
        seconds: i64::try_from(us / 1_000_000).unwrap_or(i64::MAX),
        nanos: i32::try_from(us % 1_000_000 * 1_000).unwrap_or_default(),
    }
}

/// Microseconds as a message.
pub(crate) fn duration(us: u64) -> Duration {
    Duration {
        seconds: i64::try_from(us / 1_000_000).unwrap_or(i64::MAX),
        nanos: i32::try_from(us % 1_000_000 * 1_000).unwrap_or_default(),
    }
}

/// Seconds and nanoseconds of a message as microseconds; `None` for less than none.
pub(crate) fn micros(seconds: i64, nanos: i32) -> Option<u64> {
    let us = seconds.saturating_mul(1_000_000).saturating_add(i64::from(nanos / 1_000));
    u64::try_from(us).ok()
}
