//! Ranges of timestamps.

use super::Timestamp;
use std::fmt;
use std::ops::{Bound, RangeBounds, RangeInclusive};

/// A range of timestamps, both ends included; empty if `first` is larger.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct TimeRange {
    pub(crate) first: Timestamp,
    pub(crate) last: Timestamp,
}

impl TimeRange {
    pub(crate) const ALL: TimeRange = TimeRange { first: Timestamp::ZERO, last: Timestamp::MAX };
    const EMPTY: TimeRange = TimeRange { first: Timestamp::MAX, last: Timestamp::ZERO };

    /// The range of any Rust range of timestamps.
    pub(crate) fn from_bounds(range: &impl RangeBounds<Timestamp>) -> TimeRange {
        let first = match range.start_bound() {
            Bound::Included(first) => Some(*first),
            Bound::Excluded(before) => before.0.checked_add(1).map(Timestamp),
            Bound::Unbounded => Some(Timestamp::ZERO),
        };
        let last = match range.end_bound() {
            Bound::Included(last) => Some(*last),
            Bound::Excluded(end) => end.0.checked_sub(1).map(Timestamp),
            Bound::Unbounded => Some(Timestamp::MAX),
        };
        first.zip(last).map_or(TimeRange::EMPTY, |(first, last)| TimeRange { first, last })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.first > self.last
    }

    #[inline]
    pub(crate) fn contains(&self, time: Timestamp) -> bool {
        self.first <= time && time <= self.last
    }

    /// Whether the ranges share a timestamp.
    #[inline]
    pub(crate) fn overlaps(&self, other: &RangeInclusive<Timestamp>) -> bool {
        self.first.max(*other.start()) <= self.last.min(*other.end())
    }
}

impl fmt::Display for TimeRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.is_empty() {
            true => write!(f, "no timestamp"),
            false => write!(f, "timestamps {} to {}", self.first, self.last),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_of_every_kind_hold_what_they_hold_in_rust() {
        let at = Timestamp;
        let edges = [0, 1, 5, u64::MAX - 1, u64::MAX].map(at);
        let ends = |t| [Bound::Included(t), Bound::Excluded(t), Bound::Unbounded];
        for (from, to) in edges.iter().flat_map(|from| edges.iter().map(move |to| (*from, *to))) {
            for bounds in ends(from).into_iter().flat_map(|from| ends(to).map(|to| (from, to))) {
                let range = TimeRange::from_bounds(&bounds);
                for time in edges {
                    assert_eq!(range.contains(time), bounds.contains(&time), "{time} in {bounds:?}");
                    assert_eq!(
                        range.overlaps(&(time..=time)),
                        bounds.contains(&time),
                        "{time} and {bounds:?}"
                    );
                }
            }
        }
        assert!(TimeRange::from_bounds(&(at(3)..at(5))).overlaps(&(at(4)..=at(9))));
        assert!(!TimeRange::from_bounds(&(at(3)..at(5))).overlaps(&(at(5)..=at(9))));
    }
}
