//! Whether a database takes calls and writes, and why not: closed, read-only, poisoned, or a flush that
//! fails.

use super::Context;
use crate::error::{Error, ErrorKind, Result};
use crate::operator::check_outside;
use crate::sync::{AtomicBool, Mutex, Ordering};
use std::sync::OnceLock;

/// The state that calls and writes are refused by.
pub(crate) struct Health {
    is_read_only: bool,
    closed: AtomicBool,
    /// Why WAL or manifest take nothing any more. Each write asks twice, so nothing is locked for it.
    pub(crate) poisoned: OnceLock<Error>,
    /// Why flushing fails at present.
    pub(crate) flush_error: Mutex<Option<Error>>,
}

/// The error of whatever a database that was opened read-only does not do.
pub(crate) fn read_only_error() -> Error {
    Error::new(ErrorKind::ReadOnly, "the database was opened read-only")
}

impl Health {
    pub(super) fn new(is_read_only: bool) -> Self {
        Self {
            is_read_only,
            closed: AtomicBool::new(false),
            poisoned: OnceLock::new(),
            flush_error: Mutex::default(),
        }
    }

    pub(crate) fn is_open(&self) -> bool {
        !self.closed.load(Ordering::Acquire)
    }

    /// Makes calls answer `Closed` from now on; whether they did not before.
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

    /// An error where writes and background work are refused: after `close`, read-only, poisoned, and to a
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
