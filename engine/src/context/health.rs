//! Whether a database accepts calls and writes, and why not: closed, read-only, poisoned, or a failing flush.

use super::Context;
use crate::error::{Error, ErrorKind, Result};
use crate::operator::check_outside;
use crate::sync::{AtomicBool, Mutex, Ordering};
use std::sync::OnceLock;

/// The state for which calls and writes are refused.
#[derive(Default)]
pub(crate) struct Health {
    is_read_only: bool,
    closed: AtomicBool,
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
        Self { is_read_only, ..Self::default() }
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
            Err(Error::new(why.kind().of_what_follows(), message))
        })
    }

    /// Refuses all writes from now on, until the database is opened again.
    pub(crate) fn poison(&self, why: &Error) {
        self.health.poisoned.get_or_init(|| why.clone());
        self.scheduler.notify();
    }
}
