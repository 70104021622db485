//! What the threads of a server share: the objects, the counts, how long requests take, and what becomes of
//! each.

use crate::Settings;
use crate::objects::Objects;
use parking_lot::Mutex;
use std::time::Duration;

/// Requests that a server carried out, also those whose condition did not hold, and the bytes of objects in
/// them.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Counts {
    /// Puts of objects and of parts; also uploads begun and completed, and buckets created.
    pub puts: u64,
    /// Gets.
    pub gets: u64,
    /// Requests for the length of an object, or for whether a bucket is there.
    pub heads: u64,
    /// Pages of listings.
    pub lists: u64,
    /// Deletes, one for up to a thousand objects; also uploads given up.
    pub deletes: u64,
    /// Bytes of objects and parts that were put.
    pub bytes_in: u64,
    /// Bytes of objects that were got.
    pub bytes_out: u64,
    /// Requests that were answered by 503 and not carried out; they count nowhere else.
    pub unavailable: u64,
    /// Requests that were carried out and whose answer was lost.
    pub lost_answers: u64,
}

/// Faults that are drawn from a seed, request by request in the order in which these come.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Faults {
    /// The seed.
    pub seed: u64,
    /// One request in so many is answered by 503 and not carried out; 0 for none.
    pub unavailable_in: u32,
    /// One request in so many is carried out, and answered by 500 or by a closed connection; 0 for none.
    pub lost_answers_in: u32,
}

/// The fate of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fate {
    Served,
    /// It is answered by 503 and not carried out.
    Unavailable,
    /// It is carried out; the connection is closed without an answer.
    Dropped,
    /// It is carried out, and answered by 500.
    Failed,
}

/// Draws fates.
#[derive(Default)]
struct Draws {
    faults: Faults,
    drawn: u64,
}

impl Draws {
    fn draw(&mut self) -> Fate {
        let (faults, place) = (self.faults, self.drawn * 3);
        self.drawn += 1;
        let number = |n: u64| mix(mix(faults.seed) ^ (place + n));
        let hits = |one_in: u32, n: u64| one_in > 0 && number(n).is_multiple_of(u64::from(one_in));
        if hits(faults.unavailable_in, 0) {
            Fate::Unavailable
        } else if !hits(faults.lost_answers_in, 1) {
            Fate::Served
        } else if hits(2, 2) {
            Fate::Dropped
        } else {
            Fate::Failed
        }
    }
}

/// A hash of a number (SplitMix64).
fn mix(number: u64) -> u64 {
    let number = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

/// See the page above.
pub(crate) struct Shared {
    pub(crate) objects: Mutex<Objects>,
    counts: Mutex<Counts>,
    latency: Mutex<Duration>,
    bytes_a_second: Option<u64>,
    draws: Mutex<Draws>,
}

impl Shared {
    pub(crate) fn new(settings: Settings) -> Self {
        let mut objects = settings.objects.unwrap_or_default();
        objects.have_bucket(&settings.bucket);
        let draws = Draws { faults: settings.faults.unwrap_or_default(), drawn: 0 };
        Self {
            objects: Mutex::new(objects),
            counts: Mutex::default(),
            latency: Mutex::new(settings.latency),
            bytes_a_second: settings.bytes_a_second,
            draws: Mutex::new(draws),
        }
    }

    pub(crate) fn counts(&self) -> Counts {
        *self.counts.lock()
    }

    pub(crate) fn count(&self, add: impl FnOnce(&mut Counts)) {
        add(&mut self.counts.lock());
    }

    pub(crate) fn set_latency(&self, latency: Duration) {
        *self.latency.lock() = latency;
    }

    pub(crate) fn set_faults(&self, faults: Option<Faults>) {
        self.draws.lock().faults = faults.unwrap_or_default();
    }

    /// Waits as long as a request or an answer with so many bytes is on its way.
    pub(crate) async fn travel(&self, bytes: u64) {
        let of_bytes =
            self.bytes_a_second.map_or(0, |rate| bytes.saturating_mul(1_000_000_000) / rate.max(1));
        let time = *self.latency.lock() / 2 + Duration::from_nanos(of_bytes);
        if !time.is_zero() {
            tokio::time::sleep(time).await;
        }
    }

    /// The fate of the next request, which is counted.
    pub(crate) fn fate(&self) -> Fate {
        let fate = self.draws.lock().draw();
        match fate {
            Fate::Served => {}
            Fate::Unavailable => self.count(|counts| counts.unavailable += 1),
            Fate::Dropped | Fate::Failed => self.count(|counts| counts.lost_answers += 1),
        }
        fate
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_as_often_as_asked_for_and_the_same_for_one_seed() {
        let drawn = |seed: u64| {
            let faults = Faults { seed, unavailable_in: 10, lost_answers_in: 5 };
            let mut draws = Draws { faults, drawn: 0 };
            (0..10_000).map(|_| draws.draw()).collect::<Vec<_>>()
        };
        let fates = drawn(1);
        let of = |fate: Fate| fates.iter().filter(|f| **f == fate).count();
        assert!((900..1_100).contains(&of(Fate::Unavailable)), "{}", of(Fate::Unavailable));
        assert!((800..1_000).contains(&of(Fate::Dropped)), "{}", of(Fate::Dropped));
        assert!((800..1_000).contains(&of(Fate::Failed)), "{}", of(Fate::Failed));
        assert_eq!(fates, drawn(1));
        assert_ne!(fates, drawn(2));
        let mut none = Draws::default();
        assert!((0..1_000).all(|_| none.draw() == Fate::Served));
    }
}
