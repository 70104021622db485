//! How busy a region is: ranges read (most are one row) and cells written a second, and the keys they go to,
//! so that a region that is too busy is split where its traffic is halved.
//!
//! Counting is one addition for each; one key of 64 is sampled, and the last 64 samples stay. A check, once a
//! second, makes a rate of the counts that follows them over ten seconds, and counts the busy seconds in a
//! row: a burst is no reason to split.

use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// One key of so many is sampled.
const SAMPLE_EVERY: u64 = 64;
/// The number of samples that stay.
const SAMPLES: usize = 64;
/// The share of the last second in the rate.
const SHARE: f64 = 0.1;

/// One region of one family.
#[derive(Debug, Default)]
pub(crate) struct Traffic {
    count: AtomicU64,
    looked: Mutex<RegionChanges>,
    samples: Mutex<Samples>,
}

/// The state at the last check.
#[derive(Debug)]
struct RegionChanges {
    count: u64,
    rate: f64,
    /// Looks one after the other at which it was busy.
    busy: u32,
    /// Looks since it was a quarter as busy, or was called so.
    calm: u32,
}

impl Default for RegionChanges {
    fn default() -> Self {
        Self { count: 0, rate: 0.0, busy: 0, calm: u32::MAX }
    }
}

#[derive(Debug, Default)]
struct Samples {
    keys: Vec<Vec<u8>>,
    next: usize,
}

/// The result of a check.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    /// Something was read or written since the last check.
    pub(crate) is_changed: bool,
    /// Looks one after the other at which it was busy.
    pub(crate) busy: u32,
    /// Looks since it was a quarter as busy, or was called so.
    pub(crate) calm: u32,
}

impl Traffic {
    /// A range is read from this key on, or a cell written there.
    #[inline]
    pub(crate) fn note(&self, key: &[u8]) {
        if self.count.fetch_add(1, Ordering::Relaxed).is_multiple_of(SAMPLE_EVERY) {
            self.sample(key);
        }
    }

    #[cold]
    fn sample(&self, key: &[u8]) {
        // A call that would have to wait for the lock samples no key.
        let Some(mut samples) = self.samples.try_lock() else { return };
        let at = samples.next % SAMPLES;
        samples.next += 1;
        match samples.keys.get_mut(at) {
            Some(old) => {
                old.clear();
                old.extend_from_slice(key);
            }
            None => samples.keys.push(key.to_vec()),
        }
    }

    /// Checks, `seconds` after the last time; it was busy if it had `busy` a second since.
    #[expect(clippy::cast_precision_loss, reason = "a rate")]
    pub(crate) fn look(&self, seconds: f64, busy: f64) -> Seen {
        let count = self.count.load(Ordering::Relaxed);
        let mut looked = self.looked.lock();
        let is_changed = count != looked.count;
        let now = (count - looked.count) as f64 / seconds.max(0.001);
        looked.count = count;
        looked.rate += (now - looked.rate) * (SHARE * seconds).min(1.0);
        looked.busy = if now >= busy { looked.busy.saturating_add(1) } else { 0 };
        looked.calm = if now >= busy / 4.0 { 0 } else { looked.calm.saturating_add(1) };
        Seen { is_changed, busy: looked.busy, calm: looked.calm }
    }

    /// Ranges read and cells written a second, by the last check.
    pub(crate) fn rate(&self) -> f64 {
        self.looked.lock().rate
    }

    /// It came of a region that was too busy: it is not calm, and what counts is how busy it is from now on.
    pub(crate) fn call_busy(&self) {
        let mut looked = self.looked.lock();
        (looked.busy, looked.calm) = (0, 0);
    }

    /// The key below which half of the traffic goes, if there are samples enough. Forgets the samples, as the
    /// region is cut there.
    pub(crate) fn take_middle(&self) -> Option<Vec<u8>> {
        let mut samples = self.samples.lock();
        if samples.keys.len() < SAMPLES {
            return None;
        }
        let mut keys = std::mem::take(&mut *samples).keys;
        keys.sort_unstable();
        // The first that is no less than a quarter and no more than three has below it.
        let of = &keys[SAMPLES / 4..SAMPLES * 3 / 4];
        let middle = of.len() / 2;
        let changes = (1..of.len()).filter(|at| of[*at] != of[*at - 1]);
        let at = changes.min_by_key(|at| at.abs_diff(middle))?;
        Some(of[at].clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_follows_the_counts_over_ten_seconds_and_busy_seconds_count_without_a_break() {
        let traffic = Traffic::default();
        assert!(!traffic.look(1.0, 50.0).is_changed);
        for second in 0..30 {
            (0..100).for_each(|_| traffic.note(b"k"));
            let seen = traffic.look(1.0, 50.0);
            assert_eq!((seen.is_changed, seen.busy, seen.calm), (true, second + 1, 0));
            assert_eq!(traffic.rate() > 50.0, second >= 6);
        }
        assert!((95.0..=100.0).contains(&traffic.rate()));
        (0..20).for_each(|_| traffic.note(b"k"));
        let seen = traffic.look(1.0, 50.0);
        assert_eq!((seen.busy, seen.calm), (0, 0), "neither busy nor calm");
        let seen = (0..30).map(|_| traffic.look(1.0, 50.0)).last().unwrap();
        assert_eq!((seen.is_changed, seen.busy, seen.calm), (false, 0, 30));
        assert!(traffic.rate() < 10.0);
    }

    #[test]
    fn the_middle_halves_the_traffic_and_one_hot_key_has_none() {
        let traffic = Traffic::default();
        (0..SAMPLE_EVERY * 10).for_each(|_| traffic.note(b"k"));
        assert_eq!(traffic.take_middle(), None, "too little is known");
        (0..SAMPLE_EVERY * 100).for_each(|_| traffic.note(b"k"));
        assert_eq!(traffic.take_middle(), None, "nothing can be halved");
        let key = |n: u64| format!("{:03}", n / SAMPLE_EVERY * 37 % 64).into_bytes();
        (0..SAMPLE_EVERY * 64).for_each(|n| traffic.note(&key(n)));
        let middle = String::from_utf8(traffic.take_middle().unwrap()).unwrap();
        assert_eq!(middle, "032");
        assert_eq!(traffic.take_middle(), None, "it was taken");
        // Nine tenths go to one key: what is beside it is no half.
        (0..SAMPLE_EVERY * 64)
            .for_each(|n| traffic.note(if (n / SAMPLE_EVERY).is_multiple_of(10) { b"a" } else { b"b" }));
        assert_eq!(traffic.take_middle(), None);
    }
}
