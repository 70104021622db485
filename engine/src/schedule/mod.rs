//! Who runs when. Background work is a set of [`Worker`]s that are given turns; every wait of a caller goes through
//! the [`Scheduler`]. On threads (`threads`) workers run beside the callers; in a simulation (`sim`, feature
//! `testing`) everything happens on the caller's thread, in an order drawn from a seed.
//!
//! `limiter` is the one rate limiter of flushes and merges. What is worth running is not decided here (see
//! `strategy` and `db/background.rs`).

mod limiter;
#[cfg(any(test, feature = "testing"))]
mod sim;
mod threads;

pub(crate) use limiter::Limiter;
#[cfg(any(test, feature = "testing"))]
pub use sim::SimScheduler;
pub use threads::ThreadScheduler;

use std::fmt::Debug;
use std::sync::Arc;

/// What came of a turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Turn {
    /// Something was done; there may be more.
    Worked,
    /// Nothing to do until notified.
    Idle,
    /// Nothing to do for that many nanoseconds, unless notified.
    Until(u64),
}

/// A background worker. Turns are short: a few milliseconds.
pub trait Worker: Send {
    /// Does a little work, if there is any.
    fn turn(&mut self) -> Turn;
}

/// Runs workers and makes callers wait.
pub trait Scheduler: Send + Sync + Debug {
    /// Takes over the workers and gives them turns until `stop`.
    fn start(&self, workers: Vec<Box<dyn Worker>>);
    /// Something may have become due for a worker, or true for a waiting caller. Cheap.
    fn notify(&self);
    /// Returns once the condition holds. It is asked again after every notification.
    fn wait(&self, condition: &mut dyn FnMut() -> bool);
    /// Holds the caller up for about that many nanoseconds.
    fn pause(&self, ns: u64);
    /// Ends the workers after their current turn, and waits for that.
    fn stop(&self);
}

/// Makes a scheduler for a database being opened.
pub(crate) type MakeScheduler = Arc<dyn Fn() -> Arc<dyn Scheduler> + Send + Sync>;
