//! Whether a database accepts calls and writes, and why not: closed, read-only, poisoned, or a failing flush;
//! and whether it may answer reads.

use super::Context;
use crate::error::{Error, ErrorKind, Result};
use crate::operator::check_outside;
use crate::sync::{AtomicBool, AtomicU64, Mutex, Ordering};
use std::sync::OnceLock;

/// The state for which calls and writes are refused.
#[derive(Default)]
pub(crate) struct Health {
    is_read_only: bool,
    closed: AtomicBool,
    /// Until when reads may be answered, by [`boottime_ns`](crate::storage::Clock::boottime_ns): the end of
    /// the lease of a shared database. `u64::MAX` where none is kept.
    reads_until: AtomicU64,
    /// The error after which WAL or manifest take no more writes. Each write checks it twice, so it needs no
    /// lock.
    pub(crate) poisoned: OnceLock<Error>,
    /// The error of the present failing flush.
    pub(crate) flush_error: Mutex<Option<Error>>,
}

/// The error of calls that a read-only database refuses.
pub(crate) fn read_only_error() -> Error {
    Error::new(ErrorKind::ReadOnly, "the database was opened read-only")
}

impl Health {
    pub(super) fn new(is_read_only: bool) -> Self {
        Self { is_read_only, reads_until: AtomicU64::new(u64::MAX), ..Self::default() }
    }

    /// Lets reads be answered until then; `u64::MAX` for ever.
    pub(crate) fn answer_reads_until(&self, ns: u64) {
        self.reads_until.store(ns, Ordering::Release);
    }

    pub(crate) fn is_open(&self) -> bool {
        !self.closed.load(Ordering::Acquire)
    }

    /// Makes calls fail with `Closed` from now on; returns whether they did not before.
    pub(crate) fn close(&self) -> bool {
        !self.closed.swap(true, Ordering::AcqRel)
    }
}

impl Context {
    pub(crate) fn check_open(&self) -> Result<()> {
        match self.health.is_open() {
            true => Ok(()),
            false => Err(Error::new(ErrorKind::Closed, "the database is closed")),
        }
    }

    /// An error if a read must not be answered, as the lease has ended by which it may be: another process
    /// may have the database now. Called once the read is done, so that the answer held while it was under
    /// way.
    #[inline]
    pub(crate) fn check_lease(&self) -> Result<()> {
        match self.health.reads_until.load(Ordering::Acquire) {
            u64::MAX => Ok(()),
            until => self.check_lease_until(until),
        }
    }

    #[cold]
    fn check_lease_until(&self, until: u64) -> Result<()> {
        if self.env.clock.boottime_ns() < until || planted!(Bug::ReadAfterLease) {
            return Ok(());
        }
        let message = "reads wait for a new lease on the shared database, which another process may have now";
        Err(Error::new(ErrorKind::Busy, message))
    }

    /// What was read, unless it must not be answered.
    #[inline]
    pub(crate) fn leased<T>(&self, read: Result<T>) -> Result<T> {
        let read = read?;
        self.check_lease()?;
        Ok(read)
    }

    /// An error if writes and background work are refused: after `close`, if read-only or poisoned, and in a
    /// function that the database itself has called.
    pub(crate) fn check_writable(&self) -> Result<()> {
        check_outside()?;
        self.check_open()?;
        if self.health.is_read_only {
            return Err(read_only_error());
        }
        self.check_not_poisoned()
    }

    pub(crate) fn check_not_poisoned(&self) -> Result<()> {
        self.health.poisoned.get().map_or(Ok(()), |why| {
            let message = format!("writes are refused until the database is reopened, since: {why}");
            Err(Error::new(ErrorKind::Poisoned, message))
        })
    }

    /// Refuses all writes from now on, until the database is opened again.
    pub(crate) fn poison(&self, why: &Error) {
        self.health.poisoned.get_or_init(|| why.clone());
        self.scheduler.notify();
    }
}
