//! Atomics of this folder by one name, so that `--cfg loom` puts the index's publication protocol under a
//! model checker (see `model`).

#[cfg(loom)]
pub(super) use loom::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};
#[cfg(not(loom))]
pub(super) use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};
