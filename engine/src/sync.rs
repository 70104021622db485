//! Locks, atomics, swapped pointers and threads of whatever threads share, by one name, so that model checkers see
//! the code that runs and not a copy of it.
//!
//! * Plainly: `parking_lot`, `std` and `arc_swap`, by another name and nothing else.
//! * `--cfg loom`: loom, which tries the interleavings and the reorderings that the memory model allows, up to a bound
//!   on preemptions. For small parts: `cargo xtask loom`.
//! * `--cfg shuttle`: shuttle, which draws schedules at random. For a whole database: `cargo xtask shuttle`.
//!
//! In models nothing times out: who waits is woken by a notification only, so that a lost wake-up shows as a deadlock.
//! A pointer that is swapped is a locked one there; what is modelled is what happens between loading and swapping.
//! Outside models these types do not work in such builds, so only tests named `model` run there. Counters that
//! nobody decides by stay with `std`, as every access is a place where schedules part.

#[cfg(any(loom, shuttle))]
mod checked;

#[cfg(not(any(loom, shuttle)))]
pub(crate) use arc_swap::{ArcSwap, Guard};
#[cfg(any(loom, shuttle))]
pub(crate) use checked::{
    ArcSwap, AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Condvar, Guard, Mutex, MutexGuard,
    thread,
};
#[cfg(all(test, any(loom, shuttle)))]
pub(crate) use checked::{Limits, check};
#[cfg(not(any(loom, shuttle)))]
pub(crate) use parking_lot::{Condvar, Mutex, MutexGuard};
pub(crate) use std::sync::atomic::Ordering;
#[cfg(not(any(loom, shuttle)))]
pub(crate) use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize};
#[cfg(not(any(loom, shuttle)))]
pub(crate) use std::thread;
