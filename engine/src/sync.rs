//! Locks, atomics, swapped pointers and threads for all shared state, so that model checkers run the real
//! code and not a copy of it.
//!
//! * Normally these are `parking_lot`, `std` and `arc_swap` under other names.
//! * `--cfg models`: the two model checkers, of which each process runs one. Loom tries the interleavings and
//!   the reorderings that the memory model allows, up to a bound on preemptions, of small parts
//!   (`cargo xtask loom`). Shuttle draws schedules at random, of whole databases too (`cargo xtask shuttle`).
//!
//! In models nothing times out: only a notification wakes a waiter, so that a lost wake-up shows as a
//! deadlock. A swapped pointer is a locked one there; the models cover what happens between loading and
//! swapping. In such builds these types do not work outside models, so only tests named `model` run. Counters
//! that no decision depends on stay with `std`, as every access multiplies the schedules.

#[cfg(models)]
mod checked;

#[cfg(not(models))]
pub(crate) use arc_swap::{ArcSwap, Guard};
#[cfg(models)]
pub(crate) use checked::is_loom;
#[cfg(models)]
pub(crate) use checked::{
    ArcSwap, AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Condvar, Guard, Mutex, MutexGuard, thread,
};
#[cfg(all(test, models))]
pub(crate) use checked::{Limits, check};
#[cfg(not(models))]
pub(crate) use parking_lot::{Condvar, Mutex, MutexGuard};
pub(crate) use std::sync::atomic::Ordering;
#[cfg(not(models))]
pub(crate) use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize};
#[cfg(not(models))]
pub(crate) use std::thread;
