//! Write stalls: writers are delayed and stopped by how full memory and L0 are and by the compaction debt
//! (`strategy::backpressure` says how long). Compaction pacing: rate and pauses of compactions follow the
//! debt.
//!
//! A writer is delayed only for the families that it writes to, and gets an error if damage keeps compactions
//! from making room.

use super::Commit;
use super::store::Store;
use crate::error::{Error, ErrorKind, Result};
use crate::event::EventKind;
use crate::metrics::Counter;
use crate::strategy::{Delay, Pressure, backpressure, compaction_rate, pacing};
use crate::sync::{AtomicU64, Ordering};

/// The shortest pause of a writer: smaller delays are summed up to it.
const PAUSE_NS: u64 = 500_000;

/// The shortest stop of writers that is recorded as an event.
const STALL_NS: u64 = 10_000_000;

/// The assumed cost of draining a byte until a flush has been measured.
const DRAIN_NS_PER_BYTE: f64 = 10.0;

const MIB: f64 = (1 << 20) as f64;

/// The measured cost of flushing, and the delay that writers have not paid yet.
#[derive(Default)]
pub(crate) struct Drain {
    ns_per_mib: Counter,
    /// The number of bytes that `ns_per_mib` is the mean over.
    bytes: Counter,
    /// Nanoseconds of delay that writers have not paid yet.
    delay_due_ns: AtomicU64,
}

/// The time between two checks of a writer that waits for a limited time.
const STOP_LOOK_NS: u64 = 20_000_000;

impl Commit {
    /// Sets the rate at which compactions write, by the debt.
    pub(crate) fn tune_rate(&self) {
        let rate = compaction_rate(
            self.cx.settings.options.rate_limit_auto,
            self.cx.rates.limit.get(),
            &self.compaction_pressure(),
        );
        if rate != self.cx.rates.compactions.rate() {
            self.cx.rates.compactions.set_rate(rate);
        }
    }

    /// The pauses of compactions beside readers, as a multiple of their working time. It is the same for all
    /// stores and goes by the one with the most excess runs in L0.
    pub(crate) fn pacing(&self) -> f64 {
        pacing(self.cx.settings.options.tuning().compaction_pacing, &self.compaction_pressure())
    }

    /// The nanoseconds for which compactions still pause.
    pub(crate) fn pacing_left(&self, now: u64) -> u64 {
        let left = self.cx.rates.pace.until().saturating_sub(now);
        if left > 0 && self.pacing() == 0.0 {
            // The debt has grown meanwhile.
            self.cx.rates.pace.end();
            return 0;
        }
        left
    }

    /// The pressure for compactions: with all debt, also the inherited part that delays no writer.
    fn compaction_pressure(&self) -> Pressure {
        Pressure { debt: self.tally.debt.get(), ..self.pressure(self.tally.level0_runs.get()) }
    }

    /// The pressure on a writer to families with so many excess runs in L0.
    fn pressure(&self, level0_runs: u64) -> Pressure {
        let memory_hard = self.cx.settings.write_memory();
        let memory_low = self.memory_low().midpoint(memory_hard);
        let slowed = self.cx.settings.options.tuning().slow_writers;
        let debt_low = memory_hard.saturating_mul(4).saturating_add(self.tally.table_bytes.get() / 4);
        Pressure {
            memory_used: self.tally.memory.get(),
            memory_joining: self.room.joining.get(),
            memory_low,
            memory_hard,
            debt: self.tally.debt_of_writers.get(),
            debt_low,
            debt_hard: debt_low.saturating_mul(4),
            level0_runs,
            level0_low: 8,
            level0_hard: 36,
            drain_ns_per_byte: if slowed { self.drain_ns_per_byte() } else { 0.0 },
        }
    }

    /// Whether the store's writers are delayed for compactions.
    pub(crate) fn compactions_press(&self, store: &Store) -> bool {
        let p = self.pressure(store.level0_over());
        p.debt > p.debt_low || p.level0_runs > p.level0_low
    }

    /// Whether a writer to the store with the fullest L0 would be delayed or stopped now.
    pub(crate) fn is_write_stalled(&self) -> bool {
        backpressure(&self.pressure(self.tally.level0_runs.get())) != Delay::NsPerByte(0.0)
    }

    /// The measured cost of flushing a byte of memory.
    pub(crate) fn drain_ns_per_byte(&self) -> f64 {
        match self.drain.ns_per_mib.get() {
            0 => DRAIN_NS_PER_BYTE,
            ns => ns as f64 / MIB,
        }
    }

    /// Delays a writer of so many bytes by as much as memory and compaction debt ask for, and stops it at the
    /// hard bound until a flush or a compaction has made room. `fullest` is the store with the most excess
    /// runs in L0 of those written to: writers to other families are not delayed for them.
    pub(crate) fn throttle<'s>(&self, bytes: u64, fullest: &dyn Fn() -> Option<&'s Store>) -> Result<()> {
        let delay = match backpressure(&self.pressure(fullest().map_or(0, Store::level0_over))) {
            Delay::NsPerByte(0.0) => return Ok(()),
            Delay::NsPerByte(ns) => (ns * bytes as f64) as u64,
            Delay::Stop => return self.wait_for_room(fullest),
        };
        let due_ns = self.drain.delay_due_ns.fetch_add(delay, Ordering::Relaxed) + delay;
        if due_ns >= PAUSE_NS {
            let due_ns = self.drain.delay_due_ns.swap(0, Ordering::Relaxed);
            self.cx.metrics.write_delays.add(1);
            self.cx.metrics.write_delay_ns.add(due_ns);
            self.cx.metrics.timers.write_stall.note_ns(due_ns.min(20 * PAUSE_NS));
            self.cx.scheduler.pause(due_ns.min(20 * PAUSE_NS));
        }
        Ok(())
    }

    fn wait_for_room<'s>(&self, fullest: &dyn Fn() -> Option<&'s Store>) -> Result<()> {
        self.cx.metrics.write_stops.add(1);
        let from = self.cx.env.clock.monotonic_ns();
        let now = || self.pressure(fullest().map_or(0, Store::level0_over));
        let pressure = now();
        self.cx.scheduler.notify();
        let mut failed = None;
        let mut goes_on = || {
            failed = self.cx.check_writable().err().or_else(|| self.cx.health.flush_error.lock().clone());
            let pressure = now();
            failed = failed.take().or_else(|| self.in_the_way(&pressure, fullest()));
            failed.is_some() || backpressure(&pressure) != Delay::Stop
        };
        match self.cx.settings.options.write_stop_ms_max {
            0 => self.cx.scheduler.wait(&mut goes_on),
            limit => {
                // The time alone wakes nobody.
                while !goes_on() {
                    if self.cx.env.clock.monotonic_ns() - from >= limit.saturating_mul(1_000_000) {
                        let message =
                            format!("writers are stopped at a bound for more than {limit} ms: try again");
                        failed = Some(Error::new(ErrorKind::Busy, message));
                        break;
                    }
                    self.cx.scheduler.pause(STOP_LOOK_NS);
                }
            }
        }
        let waited = self.cx.env.clock.monotonic_ns() - from;
        self.cx.metrics.timers.write_stall.note_ns(waited);
        if waited >= STALL_NS {
            let numbers = [
                ("micros", waited / 1_000),
                ("memory_bytes", pressure.memory_used + pressure.memory_joining),
                ("memory_bound", pressure.memory_hard),
                ("compaction_debt_bytes", pressure.debt),
                ("compaction_debt_bound", pressure.debt_hard),
                ("l0_runs", pressure.level0_runs),
            ];
            self.cx.events.record(EventKind::WriteStall, "", "writers stopped at a bound".into(), &numbers);
        }
        failed.map_or(Ok(()), Err)
    }

    /// The error that keeps compactions from ending a stop: of the store with the fullest L0 among those
    /// written to, or of one without whose debt writers would not be stopped.
    fn in_the_way(&self, pressure: &Pressure, fullest: Option<&Store>) -> Option<Error> {
        let stops = |debt, level0_runs| {
            let of_compactions =
                Pressure { memory_used: 0, memory_joining: 0, debt, level0_runs, ..*pressure };
            backpressure(&of_compactions) == Delay::Stop
        };
        let of_level0 = fullest.filter(|_| stops(0, pressure.level0_runs));
        of_level0.and_then(|store| self.failing.of(store, |_| true)).or_else(|| {
            self.failing.of_any(|debt| {
                stops(pressure.debt, 0) && !stops(pressure.debt.saturating_sub(debt), pressure.level0_runs)
            })
        })
    }

    /// Notes the cost of a flush that was made because memory was full, for the delay of writers. The mean
    /// goes over the last bytes flushed, at most twice the write memory, as the cost of flushes of ranges
    /// varies.
    pub(crate) fn note_drain(&self, bytes: u64, ns: u64) {
        let drained = (self.drain.bytes.get() + bytes).min(2 * self.cx.settings.write_memory());
        self.drain.bytes.set(drained);
        let share = (bytes as f64 / drained.max(1) as f64).min(1.0);
        let before = self.drain_ns_per_byte() * MIB;
        let measured = ns as f64 * MIB / bytes.max(1) as f64;
        self.drain.ns_per_mib.set((before + (measured - before) * share).max(1.0) as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Db, Options};

    #[test]
    fn what_a_byte_costs_is_its_mean_over_cheap_and_dear_flushes() {
        let dir = tempfile::tempdir().unwrap();
        let db = Db::builder()
            .options(Options { write_memory: 10 << 20, ..Options::default() })
            .open(dir.path())
            .unwrap();
        let inner = &db.inner.commit;
        assert_eq!(inner.drain_ns_per_byte(), DRAIN_NS_PER_BYTE);
        inner.note_drain(1 << 20, 5 << 20);
        assert!(
            (inner.drain_ns_per_byte() - 5.0).abs() < 0.01,
            "the first one: {}",
            inner.drain_ns_per_byte()
        );
        inner.note_drain(3 << 20, 3 << 20);
        assert!((inner.drain_ns_per_byte() - 2.0).abs() < 0.1, "both: {}", inner.drain_ns_per_byte());
        // Eight at 1 and then one at 91, all of one size.
        for n in 0..900 {
            let bytes = 100 << 10;
            inner.note_drain(bytes, bytes * if n % 9 == 8 { 91 } else { 1 });
        }
        let mean = inner.drain_ns_per_byte();
        assert!((10.0..12.5).contains(&mean), "{mean}");
    }
}
