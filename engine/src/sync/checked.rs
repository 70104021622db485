//! What the two model checkers offer, with the interfaces of `parking_lot` and `arc_swap`.

#[cfg(loom)]
use loom as checker;
#[cfg(shuttle)]
use shuttle as checker;

pub(crate) use checker::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize};
use std::fmt::{Debug, Formatter, Result};
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Duration;

const NO_PANIC: &str = "no model panics with a lock held";

pub(crate) struct Mutex<T>(checker::sync::Mutex<T>);

/// Empty only while a condition variable has it.
pub(crate) struct MutexGuard<'a, T>(Option<checker::sync::MutexGuard<'a, T>>);

pub(crate) struct Condvar(checker::sync::Condvar);

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(checker::sync::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        MutexGuard(Some(self.0.lock().expect(NO_PANIC)))
    }

    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        self.0.try_lock().ok().map(|guard| MutexGuard(Some(guard)))
    }
}

impl<T: Default> Default for Mutex<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T> Debug for Mutex<T> {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        f.write_str("Mutex")
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        self.0.as_ref().expect("held")
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.0.as_mut().expect("held")
    }
}

impl Condvar {
    pub(crate) fn new() -> Self {
        Self(checker::sync::Condvar::new())
    }

    pub(crate) fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        let held = guard.0.take().expect("held");
        guard.0 = Some(self.0.wait(held).expect(NO_PANIC));
    }

    /// Time never passes here.
    pub(crate) fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, _limit: Duration) {
        self.wait(guard);
    }

    pub(crate) fn notify_all(&self) {
        self.0.notify_all();
    }
}

impl Default for Condvar {
    fn default() -> Self {
        Self::new()
    }
}

impl Debug for Condvar {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        f.write_str("Condvar")
    }
}

pub(crate) struct ArcSwap<T>(Mutex<Arc<T>>);

pub(crate) struct Guard<T>(T);

impl<T> ArcSwap<T> {
    pub(crate) fn from_pointee(value: T) -> Self {
        Self(Mutex::new(Arc::new(value)))
    }

    pub(crate) fn load(&self) -> Guard<Arc<T>> {
        Guard(self.load_full())
    }

    pub(crate) fn load_full(&self) -> Arc<T> {
        self.0.lock().clone()
    }

    pub(crate) fn store(&self, value: Arc<T>) {
        // What was there is dropped with the lock released: dropping may be work.
        let _before = std::mem::replace(&mut *self.0.lock(), value);
    }

    pub(crate) fn rcu(&self, mut change: impl FnMut(&Arc<T>) -> Arc<T>) -> Arc<T> {
        loop {
            let before = self.load_full();
            let after = change(&before);
            let mut now = self.0.lock();
            if Arc::ptr_eq(&now, &before) {
                return std::mem::replace(&mut *now, after);
            }
        }
    }
}

impl<T> Guard<T> {
    pub(crate) fn into_inner(guard: Self) -> T {
        guard.0
    }
}

impl<T> Deref for Guard<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.0
    }
}

/// Threads of a model.
pub(crate) mod thread {
    use super::checker;
    #[cfg(test)]
    pub(crate) use checker::thread::spawn;
    pub(crate) use checker::thread::{Builder, JoinHandle, current, yield_now};

    /// Others go on; how long does not count.
    pub(crate) fn sleep(_duration: std::time::Duration) {
        yield_now();
    }
}

/// How far the two checkers go with a model.
#[cfg(test)]
#[derive(Clone, Copy)]
pub(crate) struct Limits {
    /// For loom: how often a thread may be interrupted where it could have gone on.
    #[cfg_attr(shuttle, allow(dead_code))]
    pub(crate) preemptions: usize,
    /// For shuttle: schedules drawn.
    #[cfg_attr(loom, allow(dead_code))]
    pub(crate) schedules: usize,
}

/// Runs a model under the checker that this build is for. Loom tries everything within the bound; shuttle draws from
/// a fixed seed, or from the one in `SHUTTLE_RANDOM_SEED`, and prints that of a schedule that failed.
#[cfg(test)]
pub(crate) fn check(limits: Limits, model: impl Fn() + Send + Sync + 'static) {
    #[cfg(loom)]
    {
        let mut builder = loom::model::Builder::new();
        // LOOM_MAX_PREEMPTIONS says otherwise for all.
        builder.preemption_bound = builder.preemption_bound.or(Some(limits.preemptions));
        builder.max_branches = 20_000;
        builder.check(model);
    }
    #[cfg(shuttle)]
    {
        let mut config = shuttle::Config::new();
        // A whole database needs more stack than a model of a few locks.
        config.stack_size = 256 << 10;
        let scheduler = shuttle::scheduler::RandomScheduler::new_from_seed(1, limits.schedules);
        shuttle::Runner::new(scheduler, config).run(model);
    }
}
