//! Scheduling of background work: a set of [`Worker`]s gets turns from the [`Scheduler`], which also makes
//! callers wait. On threads (`threads`) workers run beside the callers; in a simulation (`sim`, feature
//! `testing`) everything happens on the caller's thread, in an order drawn from a seed.
//!
//! `limiter` is the one rate limiter of flushes and compactions, `pace` makes compactions rest while there
//! are readers. Not owned here: what to run (see `strategy` and `work/queue.rs`).

mod limiter;
mod pace;
#[cfg(any(test, feature = "testing"))]
mod sim;
mod threads;

pub(crate) use limiter::Limiter;
pub(crate) use pace::Pace;
#[cfg(any(test, feature = "testing"))]
pub use sim::SimScheduler;
pub use threads::ThreadScheduler;

use std::fmt::Debug;
use std::sync::Arc;

/// The result of a turn.
///
/// ```
/// use siltstone::schedule::Turn;
/// let in_a_millisecond = Turn::Until(1_000_000);
/// assert_ne!(in_a_millisecond, Turn::Idle);
/// ```
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
///
/// ```
/// use siltstone::schedule::{Scheduler, ThreadScheduler, Turn, Worker};
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicU32, Ordering};
///
/// struct Countdown(Arc<AtomicU32>);
///
/// impl Worker for Countdown {
///     fn turn(&mut self) -> Turn {
///         match self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)) {
///             Ok(_) => Turn::Worked,
///             Err(_) => Turn::Idle,
///         }
///     }
/// }
///
/// let left = Arc::new(AtomicU32::new(3));
/// let scheduler = ThreadScheduler::new();
/// scheduler.start(vec![Box::new(Countdown(left.clone()))]).unwrap();
/// while left.load(Ordering::SeqCst) > 0 {
///     scheduler.pause(1_000_000);
/// }
/// scheduler.stop();
/// ```
pub trait Worker: Send {
    /// Does a little work, if there is any.
    fn turn(&mut self) -> Turn;
}

/// Runs workers and makes callers wait.
///
/// ```
/// use siltstone::schedule::{Scheduler, ThreadScheduler};
/// let scheduler: Box<dyn Scheduler> = Box::new(ThreadScheduler::new());
/// let mut asked = 0;
/// scheduler.wait(&mut || {
///     asked += 1;
///     asked > 1
/// });
/// ```
pub trait Scheduler: Send + Sync + Debug {
    /// Takes over the workers and gives them turns until `stop`.
    ///
    /// Fails if the system gives no thread; then no worker runs.
    fn start(&self, workers: Vec<Box<dyn Worker>>) -> std::io::Result<()>;
    /// Wakes idle workers and waiting callers, for whom something may have changed. Cheap.
    fn notify(&self);
    /// Returns once the condition holds, which is checked after every notification.
    fn wait(&self, condition: &mut dyn FnMut() -> bool);
    /// Makes the caller wait for about that many nanoseconds.
    fn pause(&self, ns: u64);
    /// Ends the workers after their current turn, and waits for that.
    fn stop(&self);
}

/// Makes a scheduler for a database being opened.
pub(crate) type MakeScheduler = Arc<dyn Fn() -> Arc<dyn Scheduler> + Send + Sync>;
