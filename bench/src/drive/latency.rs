//! Latencies of one thread, and what becomes of those of all threads.
//!
//! Recording must not show in what is recorded: an operation costs one clock reading and one increment. So
//! only the histograms of the current second are kept at hand; when a second is over they are folded into the
//! totals, and the second itself is kept as its non-empty buckets.

use crate::record::{Latency, Second};
use hdrhistogram::Histogram;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// The kinds of operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    Read,
    Write,
    Scan,
    Modify,
    Open,
    Nothing,
}

const CLASSES: [&str; 6] = ["read", "write", "scan", "modify", "open", "nothing"];

/// Nanoseconds; longer ones count as this.
const LONGEST: u64 = 600_000_000_000;
const DIGITS: u8 = 3;

pub(super) fn empty() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LONGEST, DIGITS).expect("the bounds are valid")
}

/// A compact histogram, which takes much less memory: value and count of each bucket in use.
pub(super) type Buckets = Vec<(u64, u64)>;

pub(super) fn buckets(histogram: &Histogram<u64>) -> Buckets {
    let used = histogram.iter_recorded().map(|b| (b.value_iterated_to(), b.count_at_value()));
    let mut buckets: Buckets = used.collect();
    buckets.shrink_to_fit();
    buckets
}

/// Adds a compact histogram.
pub(super) fn add(histogram: &mut Histogram<u64>, buckets: &Buckets) {
    buckets.iter().for_each(|(value, count)| histogram.saturating_record_n(*value, *count));
}

/// Operations of one kind in a finished second of one thread.
#[derive(Clone)]
struct Kept {
    number: u64,
    class: usize,
    buckets: Buckets,
}

/// The recorder of one thread.
#[derive(Clone)]
pub(crate) struct Recorder {
    began: Instant,
    second: u64,
    second_ends: Instant,
    current: [Histogram<u64>; CLASSES.len()],
    total: [Histogram<u64>; CLASSES.len()],
    kept: Vec<Kept>,
    ended: Instant,
}

impl Recorder {
    /// `began`: the same for all threads.
    pub(crate) fn new() -> Self {
        let now = Instant::now();
        Recorder {
            began: now,
            second: 0,
            second_ends: now,
            current: std::array::from_fn(|_| empty()),
            total: std::array::from_fn(|_| empty()),
            kept: Vec::new(),
            ended: now,
        }
    }

    /// Starts the clock: the same instant for all threads.
    pub(crate) fn begin(&mut self, began: Instant) {
        (self.began, self.second_ends, self.ended) = (began, began + Duration::from_secs(1), began);
    }

    /// `count` operations that took `took` and ended `now`. Answers with the instant from which the next is
    /// measured: `now`, unless housekeeping lay between.
    #[inline]
    pub(crate) fn record(&mut self, class: Class, took: Duration, now: Instant, count: u64) -> Instant {
        let resume = if now >= self.second_ends { self.turn(now) } else { now };
        self.current[class as usize].saturating_record_n(took.as_nanos() as u64, count);
        self.ended = now;
        resume
    }

    #[cold]
    fn turn(&mut self, now: Instant) -> Instant {
        self.fold();
        self.second = now.duration_since(self.began).as_secs();
        self.second_ends = self.began + Duration::from_secs(self.second + 1);
        Instant::now()
    }

    /// When its clock was started.
    pub(super) fn began(&self) -> Instant {
        self.began
    }

    /// When its last operation ended.
    pub(super) fn ended(&self) -> Instant {
        self.ended
    }

    /// The records of each second, by its number, and by kind of operation.
    pub(super) fn by_second(&mut self) -> impl Iterator<Item = (u64, &'static str, &Buckets)> {
        self.fold();
        self.kept.iter().map(|kept| (kept.number, CLASSES[kept.class], &kept.buckets))
    }

    /// Memory that finished seconds take.
    pub(super) fn kept_bytes(&self) -> u64 {
        self.kept.iter().map(|kept| size_of_val(&*kept.buckets) as u64).sum()
    }

    fn fold(&mut self) {
        for (class, (current, total)) in self.current.iter_mut().zip(&mut self.total).enumerate() {
            if !current.is_empty() {
                total.add(&*current).expect("same bounds");
                self.kept.push(Kept { number: self.second, class, buckets: buckets(current) });
                current.reset();
            }
        }
    }
}

/// The records of all threads together.
pub(crate) struct Recorded {
    pub(crate) ops: u64,
    /// From the beginning to the end of the last operation.
    pub(crate) took: Duration,
    pub(crate) all: Latency,
    pub(crate) classes: BTreeMap<String, Latency>,
    pub(crate) timeline: Vec<Second>,
    /// Latencies of the calm seconds alone; `calm_seconds` is how many these are.
    pub(crate) calm: BTreeMap<String, Latency>,
    pub(crate) calm_seconds: u64,
}

impl Recorded {
    /// `is_calm`: whether others let the machine alone in a second, by when the clock was started and the
    /// second's number.
    pub(crate) fn of(mut recorders: Vec<Recorder>, is_calm: impl Fn(Instant, u64) -> bool) -> Self {
        let mut all = empty();
        let mut calm: [Histogram<u64>; CLASSES.len()] = std::array::from_fn(|_| empty());
        let mut calm_seconds = BTreeMap::new();
        let mut classes: [Histogram<u64>; CLASSES.len()] = std::array::from_fn(|_| empty());
        let mut seconds: BTreeMap<u64, Histogram<u64>> = BTreeMap::new();
        let mut took = Duration::ZERO;
        for recorder in &mut recorders {
            recorder.fold();
            took = took.max(recorder.ended - recorder.began);
            for (class, total) in classes.iter_mut().zip(&recorder.total) {
                class.add(total).expect("same bounds");
                all.add(total).expect("same bounds");
            }
            for kept in &recorder.kept {
                if *calm_seconds.entry(kept.number).or_insert_with(|| is_calm(recorder.began, kept.number)) {
                    add(&mut calm[kept.class], &kept.buckets);
                }
                add(seconds.entry(kept.number).or_insert_with(empty), &kept.buckets);
            }
        }
        // A last second that was cut short would look like a stall.
        if seconds.len() > 1 {
            seconds.retain(|number, _| *number < took.as_secs());
        }
        let timeline = seconds.iter().map(|(number, histogram)| second(*number, histogram));
        let named = |classes: &[Histogram<u64>]| {
            let named = CLASSES.iter().zip(classes).filter(|(_, histogram)| !histogram.is_empty());
            named.map(|(name, histogram)| (name.to_string(), latency(histogram))).collect()
        };
        Recorded {
            ops: all.len(),
            took,
            timeline: timeline.collect(),
            classes: named(&classes),
            calm: named(&calm),
            calm_seconds: calm_seconds.values().filter(|is_calm| **is_calm).count() as u64,
            all: latency(&all),
        }
    }
}

/// The latencies of all that one thread recorded.
pub(super) fn total(recorder: &mut Recorder) -> Latency {
    let mut all = empty();
    recorder.by_second().for_each(|(_, _, buckets)| add(&mut all, buckets));
    latency(&all)
}

fn us(nanos: u64) -> f64 {
    nanos as f64 / 1000.0
}

/// The record of one second.
pub(super) fn second(number: u64, histogram: &Histogram<u64>) -> Second {
    Second {
        at: number as f64,
        ops: histogram.len(),
        p50_us: us(histogram.value_at_quantile(0.5)),
        p99_us: us(histogram.value_at_quantile(0.99)),
        p999_us: us(histogram.value_at_quantile(0.999)),
        max_us: us(histogram.max()),
    }
}

pub(super) fn latency(histogram: &Histogram<u64>) -> Latency {
    Latency {
        count: histogram.len(),
        mean_us: histogram.mean() / 1000.0,
        p50_us: us(histogram.value_at_quantile(0.5)),
        p99_us: us(histogram.value_at_quantile(0.99)),
        p999_us: us(histogram.value_at_quantile(0.999)),
        max_us: us(histogram.max()),
        histogram: buckets(histogram),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_add_up_and_seconds_are_told_apart() {
        let began = Instant::now();
        let recorder = |class, us: u64| {
            let mut recorder = Recorder::new();
            recorder.begin(began);
            for i in 0..2500u64 {
                let now = began + Duration::from_millis(i + 1);
                recorder.record(class, Duration::from_micros(us), now, 1);
            }
            recorder
        };
        let recorders = vec![recorder(Class::Read, 10), recorder(Class::Write, 1000)];
        let recorded = Recorded::of(recorders, |of, number| of == began && number == 1);
        assert_eq!((recorded.ops, recorded.took), (5000, Duration::from_millis(2500)));
        assert_eq!(recorded.classes.keys().collect::<Vec<_>>(), ["read", "write"]);
        assert!((recorded.classes["read"].p50_us - 10.0).abs() < 0.02);
        assert!((recorded.all.p99_us - 1000.0).abs() < 2.0);
        // Two whole seconds; the half one at the end is left out of the timeline, not of the totals.
        let ops: Vec<u64> = recorded.timeline.iter().map(|second| second.ops).collect();
        assert_eq!(ops, [1998, 2000]);
        assert_eq!(
            (recorded.calm_seconds, recorded.calm["read"].count, recorded.calm["write"].count),
            (1, 1000, 1000)
        );
    }
}
