//! Streams of HTTP/2 under way, counted by their kind.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Kinds of streams of HTTP/2 whose numbers have limits of their own: each call is one from its headers to
/// the end of its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Calls that do something.
    Call,
    /// Streams of changes, which stay.
    Changes,
    /// Questions for the health.
    Health,
    /// Watches of the health, which stay.
    Watch,
}

/// How many streams there are of each kind.
#[derive(Debug, Default)]
pub(crate) struct Counts([AtomicUsize; 4]);

impl Counts {
    /// How many there are of a kind.
    pub(crate) fn of(&self, kind: Kind) -> usize {
        self.0[kind as usize].load(Ordering::Relaxed)
    }

    /// How many there are.
    pub(crate) fn all(&self) -> usize {
        self.0.iter().map(|count| count.load(Ordering::Relaxed)).sum()
    }

    /// Counts one more, unless there are as many already.
    pub(crate) fn enter(&self, kind: Kind, most: usize) -> bool {
        let fits = self.0[kind as usize].fetch_add(1, Ordering::Relaxed) < most;
        if !fits {
            self.leave(kind);
        }
        fits
    }

    /// Counts one less.
    pub(crate) fn leave(&self, kind: Kind) {
        self.0[kind as usize].fetch_sub(1, Ordering::Relaxed);
    }
}
