//! How long a writer is delayed per byte it writes: not at all without pressure, then more and more, without
//! a jump, so that writers slow down to the speed of flushes and compactions before they have to stop.
//!
//! Each cause is a *fill* between 0 (where it begins to matter) and 1 (its hard bound); the largest counts.
//! With `x` that fill, the delay is `x^2 / (1 - x)` times the present cost of draining a byte. Where the
//! factor is 1 (x about 0.62) writers go exactly at the speed of the drain; they cannot exceed it for long.
//! The delay is at most 64 drain costs. Only at the bound itself does a write stop, until a step or a flush
//! has made room.

/// What the delay depends on. A bound that is zero or below its start is ignored.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pressure {
    /// Write memory in use, flush set included.
    pub(crate) memory_used: u64,
    /// Bytes that in-memory compactions use in addition. They end soon and free them, so they delay nobody;
    /// but they count at the bound.
    pub(crate) memory_joining: u64,
    /// Writers are delayed from here on.
    pub(crate) memory_low: u64,
    /// Writers stop here.
    pub(crate) memory_hard: u64,
    pub(crate) debt: u64,
    pub(crate) debt_low: u64,
    pub(crate) debt_hard: u64,
    /// Runs in L0, and the number where they begin to matter.
    pub(crate) level0_runs: u64,
    pub(crate) level0_low: u64,
    pub(crate) level0_hard: u64,
    /// What a written byte costs flushes and compactions at present, in nanoseconds.
    pub(crate) drain_ns_per_byte: f64,
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Delay {
    /// Wait this long for each byte; mostly zero.
    NsPerByte(f64),
    /// Stop until a flush or compaction has made room.
    Stop,
}

/// The largest delay, in drain costs.
const COSTS_MAX: f64 = 64.0;

pub(crate) fn backpressure(p: &Pressure) -> Delay {
    let x = fill(p.memory_used, p.memory_low, p.memory_hard)
        .max(fill(p.debt, p.debt_low, p.debt_hard))
        .max(fill(p.level0_runs, p.level0_low, p.level0_hard));
    let is_full = p.memory_hard > p.memory_low && p.memory_used + p.memory_joining >= p.memory_hard;
    if x >= 1.0 || is_full {
        return Delay::Stop;
    }
    Delay::NsPerByte((x * x / (1.0 - x)).min(COSTS_MAX) * p.drain_ns_per_byte.max(0.0))
}

/// The fill of a value between its low mark and its bound, from 0 to 1.
pub(super) fn fill(value: u64, low: u64, hard: u64) -> f64 {
    if hard <= low {
        return 0.0;
    }
    (value.saturating_sub(low) as f64 / (hard - low) as f64).min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pressure(memory_used: u64) -> Pressure {
        let (memory_low, memory_hard) = (1000, 3000);
        Pressure { memory_used, memory_low, memory_hard, drain_ns_per_byte: 10.0, ..Pressure::default() }
    }

    fn at(memory_used: u64) -> Delay {
        backpressure(&pressure(memory_used))
    }

    #[test]
    fn delay_grows_without_a_jump_and_stops_only_at_the_bound() {
        let mut last = 0.0;
        for used in 0..3000 {
            let Delay::NsPerByte(ns) = at(used) else { panic!("stopped at {used}") };
            assert!(ns >= last && ns <= 640.0);
            assert!(ns - last <= 0.01 * last + 1.0 || used > 2900, "a jump at {used}: {last} to {ns}");
            last = ns;
        }
        assert_eq!(at(1000), Delay::NsPerByte(0.0));
        assert_eq!(at(3000), Delay::Stop);
        let Delay::NsPerByte(ns) = at(2236) else { panic!() };
        assert!((ns - 10.0).abs() < 0.1, "the drain's own speed at 0.618: {ns}");
    }

    #[test]
    fn compactions_in_memory_count_at_the_bound_and_slow_nobody_before() {
        let with = |memory_joining| backpressure(&Pressure { memory_joining, ..pressure(1000) });
        assert_eq!(with(1999), Delay::NsPerByte(0.0));
        assert_eq!(with(2000), Delay::Stop);
        let unlimited = backpressure(&Pressure { memory_joining: 9, ..Pressure::default() });
        assert_eq!(unlimited, Delay::NsPerByte(0.0));
    }

    #[test]
    fn the_fullest_cause_counts_and_an_unset_bound_never_does() {
        let mut p =
            Pressure { debt: 9, debt_low: 0, debt_hard: 10, drain_ns_per_byte: 1.0, ..Pressure::default() };
        p.level0_runs = 1 << 40;
        let Delay::NsPerByte(ns) = backpressure(&p) else { panic!() };
        assert!((ns - 8.1).abs() < 1e-9);
        (p.level0_low, p.level0_hard) = (8, 20);
        assert_eq!(backpressure(&p), Delay::Stop);
    }
}
