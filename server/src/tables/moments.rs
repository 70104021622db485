//! Moments, and up to where had been written by then.

use crate::time::now_us;
use parking_lot::Mutex;
use siltstone::{Db, SeqNo};
use std::collections::VecDeque;

/// Moments that are noted, one a second: a day.
const MOMENTS_MAX: usize = 86_400;

/// Moments in microseconds since 1970, with the sequence numbers up to which had been written by then.
#[derive(Default)]
pub(crate) struct Moments(Mutex<VecDeque<(u64, SeqNo)>>);

impl Moments {
    /// Notes up to where has been written by now.
    pub(crate) fn note(&self, db: &Db) {
        let mut moments = self.0.lock();
        // In this order: what has that number was written before.
        let seq = db.snapshot().seq();
        let now = now_us();
        if moments.back().is_some_and(|(at, _)| *at > now) {
            // The clock was set back: of earlier moments nothing is known.
            moments.clear();
        }
        moments.push_back((now, seq));
        if moments.len() > MOMENTS_MAX {
            moments.pop_front();
        }
    }

    /// A sequence number behind which everything is that was written at that time or later.
    pub(crate) fn seq_before(&self, us: u64) -> SeqNo {
        let moments = self.0.lock();
        let behind = moments.partition_point(|(at, _)| *at < us);
        behind.checked_sub(1).map_or(SeqNo::ZERO, |at| moments[at].1)
    }
}
