//! The primitives of the two model checkers, with the interfaces of `parking_lot` and `arc_swap`.
//!
//! One build has both: the environment variable `SILTSTONE_CHECKER` says which of them this process runs
//! under, and every lock, atomic and thread is made by that one. The engine is compiled once for all models
//! so.

use std::fmt::{Debug, Formatter, Result};
use std::ops::{Deref, DerefMut};
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

const NO_PANIC: &str = "no model panics with a lock held";

/// Whether this process runs under loom.
pub(crate) fn is_loom() -> bool {
    static LOOM: OnceLock<bool> = OnceLock::new();
    *LOOM.get_or_init(|| match std::env::var("SILTSTONE_CHECKER").as_deref() {
        Ok("loom") => true,
        Ok("shuttle") => false,
        _ => panic!("SILTSTONE_CHECKER is to be loom or shuttle: `cargo xtask loom`, `cargo xtask shuttle`"),
    })
}

/// A primitive of the checker that runs.
pub(crate) enum Of<L, S> {
    Loom(L),
    Shuttle(S),
}

macro_rules! make {
    ($loom:expr, $shuttle:expr) => {
        if is_loom() { Of::Loom($loom) } else { Of::Shuttle($shuttle) }
    };
}

macro_rules! each {
    ($of:expr, $one:ident => $call:expr) => {
        match $of {
            Of::Loom($one) => $call,
            Of::Shuttle($one) => $call,
        }
    };
}

macro_rules! atomics {
    ($($name:ident $value:ty: $($method:ident)*;)*) => {$(
        pub(crate) struct $name(Of<loom::sync::atomic::$name, shuttle::sync::atomic::$name>);

        #[allow(dead_code, reason = "not all atomics need all of it")]
        impl $name {
            pub(crate) fn new(value: $value) -> Self {
                Self(make!(loom::sync::atomic::$name::new(value), shuttle::sync::atomic::$name::new(value)))
            }

            pub(crate) fn load(&self, order: Ordering) -> $value {
                each!(&self.0, one => one.load(order))
            }

            pub(crate) fn store(&self, value: $value, order: Ordering) {
                each!(&self.0, one => one.store(value, order));
            }

            pub(crate) fn compare_exchange(
                &self,
                from: $value,
                to: $value,
                done: Ordering,
                failed: Ordering,
            ) -> std::result::Result<$value, $value> {
                each!(&self.0, one => one.compare_exchange(from, to, done, failed))
            }

            pub(crate) fn fetch_update(
                &self,
                done: Ordering,
                failed: Ordering,
                change: impl FnMut($value) -> Option<$value>,
            ) -> std::result::Result<$value, $value> {
                each!(&self.0, one => one.fetch_update(done, failed, change))
            }

            $(pub(crate) fn $method(&self, value: $value, order: Ordering) -> $value {
                each!(&self.0, one => one.$method(value, order))
            })*
        }

        impl Default for $name {
            fn default() -> Self {
                Self::new(Default::default())
            }
        }

        impl Debug for $name {
            fn fmt(&self, f: &mut Formatter<'_>) -> Result {
                f.write_str(stringify!($name))
            }
        }
    )*};
}

atomics! {
    AtomicBool bool: swap fetch_and fetch_or;
    AtomicU32 u32: swap fetch_add fetch_sub fetch_max fetch_min fetch_and fetch_or;
    AtomicU64 u64: swap fetch_add fetch_sub fetch_max fetch_min fetch_and fetch_or;
    AtomicUsize usize: swap fetch_add fetch_sub fetch_max fetch_min fetch_and fetch_or;
}

pub(crate) struct Mutex<T>(Of<loom::sync::Mutex<T>, shuttle::sync::Mutex<T>>);

type Held<'a, T> = Of<loom::sync::MutexGuard<'a, T>, shuttle::sync::MutexGuard<'a, T>>;

/// A guard; empty only while a condition variable has it.
pub(crate) struct MutexGuard<'a, T>(Option<Held<'a, T>>);

pub(crate) struct Condvar(Of<loom::sync::Condvar, shuttle::sync::Condvar>);

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(make!(loom::sync::Mutex::new(value), shuttle::sync::Mutex::new(value)))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        MutexGuard(Some(match &self.0 {
            Of::Loom(one) => Of::Loom(one.lock().expect(NO_PANIC)),
            Of::Shuttle(one) => Of::Shuttle(one.lock().expect(NO_PANIC)),
        }))
    }

    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        let held = match &self.0 {
            Of::Loom(one) => Of::Loom(one.try_lock().ok()?),
            Of::Shuttle(one) => Of::Shuttle(one.try_lock().ok()?),
        };
        Some(MutexGuard(Some(held)))
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
        each!(self.0.as_ref().expect("held"), one => one)
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        each!(self.0.as_mut().expect("held"), one => one)
    }
}

impl Condvar {
    pub(crate) fn new() -> Self {
        Self(make!(loom::sync::Condvar::new(), shuttle::sync::Condvar::new()))
    }

    pub(crate) fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        let held = guard.0.take().expect("held");
        guard.0 = Some(match (&self.0, held) {
            (Of::Loom(one), Of::Loom(held)) => Of::Loom(one.wait(held).expect(NO_PANIC)),
            (Of::Shuttle(one), Of::Shuttle(held)) => Of::Shuttle(one.wait(held).expect(NO_PANIC)),
            _ => unreachable!("one process runs under one checker"),
        });
    }

    /// Waits without a limit: time never passes in a model.
    pub(crate) fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, _limit: Duration) {
        self.wait(guard);
    }

    pub(crate) fn notify_one(&self) {
        each!(&self.0, one => one.notify_one());
    }

    pub(crate) fn notify_all(&self) {
        each!(&self.0, one => one.notify_all());
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
        // The old value is dropped after the lock is released: dropping may be work.
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
    use super::{Of, is_loom};

    pub(crate) struct JoinHandle<T>(Of<loom::thread::JoinHandle<T>, shuttle::thread::JoinHandle<T>>);

    pub(crate) struct Thread(Of<loom::thread::Thread, shuttle::thread::Thread>);

    #[derive(PartialEq, Eq)]
    pub(crate) enum ThreadId {
        Loom(loom::thread::ThreadId),
        Shuttle(shuttle::thread::ThreadId),
    }

    impl<T> JoinHandle<T> {
        pub(crate) fn join(self) -> std::thread::Result<T> {
            each!(self.0, one => one.join())
        }

        pub(crate) fn thread(&self) -> Thread {
            Thread(match &self.0 {
                Of::Loom(one) => Of::Loom(one.thread().clone()),
                Of::Shuttle(one) => Of::Shuttle(one.thread().clone()),
            })
        }
    }

    impl Thread {
        pub(crate) fn id(&self) -> ThreadId {
            match &self.0 {
                Of::Loom(one) => ThreadId::Loom(one.id()),
                Of::Shuttle(one) => ThreadId::Shuttle(one.id()),
            }
        }
    }

    pub(crate) fn spawn<T: 'static + Send>(run: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
        JoinHandle(make!(loom::thread::spawn(run), shuttle::thread::spawn(run)))
    }

    /// A builder of threads; checkers ignore names.
    pub(crate) struct Builder;

    impl Builder {
        pub(crate) fn new() -> Self {
            Self
        }

        pub(crate) fn name(self, _name: String) -> Self {
            self
        }

        pub(crate) fn spawn<T: 'static + Send>(
            self,
            run: impl FnOnce() -> T + Send + 'static,
        ) -> std::io::Result<JoinHandle<T>> {
            Ok(spawn(run))
        }
    }

    pub(crate) fn current() -> Thread {
        Thread(make!(loom::thread::current(), shuttle::thread::current()))
    }

    pub(crate) fn yield_now() {
        match is_loom() {
            true => loom::thread::yield_now(),
            false => shuttle::thread::yield_now(),
        }
    }

    /// Lets other threads run; the duration does not matter.
    pub(crate) fn sleep(_duration: std::time::Duration) {
        yield_now();
    }
}

/// The bounds of the two checkers for a model.
#[cfg(test)]
#[derive(Clone, Copy)]
pub(crate) struct Limits {
    /// For loom: the most preemptions of a thread.
    pub(crate) preemptions: usize,
    /// For shuttle: schedules drawn, this many times what `SILTSTONE_SCHEDULES_TIMES` says.
    pub(crate) schedules: usize,
}

/// Runs a model under this process's checker. Loom tries everything within the bound; shuttle draws from the
/// seed in `SILTSTONE_SEED` (else 1), or the one schedule of `SHUTTLE_RANDOM_SEED`, and prints the seed of a
/// schedule that failed.
#[cfg(test)]
pub(crate) fn check(limits: Limits, model: impl Fn() + Send + Sync + 'static) {
    if is_loom() {
        let mut builder = loom::model::Builder::new();
        // LOOM_MAX_PREEMPTIONS overrides it for all models.
        builder.preemption_bound = builder.preemption_bound.or(Some(limits.preemptions));
        builder.max_branches = 20_000;
        builder.check(model);
    } else {
        let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
        let mut config = shuttle::Config::new();
        // A whole database needs more stack than a model of a few locks.
        config.stack_size = 256 << 10;
        let seed = number("SILTSTONE_SEED").unwrap_or(1);
        let times = number("SILTSTONE_SCHEDULES_TIMES").unwrap_or(1) as usize;
        let scheduler = shuttle::scheduler::RandomScheduler::new_from_seed(seed, limits.schedules * times);
        shuttle::Runner::new(scheduler, config).run(model);
    }
}
