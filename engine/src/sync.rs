//! Locks, atomics, swapped pointers and threads of whatever threads share, by one name, so that model
//! checkers see the code that runs and not a copy of it.
//!
//! * Plainly: `parking_lot`, `std` and `arc_swap`, by another name and nothing else.
//! * `--cfg models`: the two model checkers, of which each process runs one. Loom tries the interleavings and
//!   the reorderings that the memory model allows, up to a bound on preemptions, of small parts (`cargo xtask
//!   loom`). Shuttle draws schedules at random, of whole databases too (`cargo xtask shuttle`).
//!
//! In models nothing times out: who waits is woken by a notification only, so that a lost wake-up shows as a
//! deadlock. A pointer that is swapped is a locked one there; what is modelled is what happens between
//! loading and swapping. Outside models these types do not work in such builds, so only tests named `model`
//! run there. Counters that nobody decides by stay with `std`, as every access is a place where schedules
//! part.

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
