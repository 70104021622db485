//! Whether a database takes calls and writes, and why not: closed, poisoned, or background work that fails.

use super::Commit;
use super::store::Store;
use crate::error::{Error, ErrorKind, Result};
use crate::log::Log;
use crate::operator::check_outside;
use crate::snapshot::Snapshot;
use crate::sync::{AtomicBool, Mutex, Ordering};
use crate::types::StoreId;
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

/// See the page above.
#[derive(Default)]
pub(crate) struct Health {
    closed: AtomicBool,
    /// Why the log or the manifest takes nothing any more. Each write asks twice, so nothing is locked for
    /// it.
    pub(crate) poisoned: OnceLock<Error>,
    /// Why flushing fails at present.
    pub(crate) background_error: Mutex<Option<Error>>,
    /// The stores whose merges have failed and failed again, and why.
    pub(crate) failing: Mutex<BTreeMap<StoreId, (Arc<Store>, Error)>>,
}

impl Health {
    pub(crate) fn is_open(&self) -> bool {
        !self.closed.load(Ordering::Acquire)
    }

    /// From now on calls answer `Closed`; whether they did not before.
    pub(crate) fn close(&self) -> bool {
        !self.closed.swap(true, Ordering::AcqRel)
    }
}

impl Commit {
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
        self.stages()?;
        self.check_not_poisoned()
    }

    pub(crate) fn check_not_poisoned(&self) -> Result<()> {
        self.health.poisoned.get().map_or(Ok(()), |why| {
            let message = format!("writes are refused until the database is reopened, since: {why}");
            Err(Error::new(ErrorKind::Poisoned, message))
        })
    }

    pub(crate) fn poison(&self, why: &Error) {
        self.health.poisoned.get_or_init(|| why.clone());
        self.scheduler.notify();
    }

    pub(super) fn read_only_error() -> Error {
        Error::new(ErrorKind::ReadOnly, "the database was opened read-only")
    }

    pub(crate) fn log(&self) -> Result<&Arc<Log>> {
        self.log.as_ref().ok_or_else(Self::read_only_error)
    }

    pub(crate) fn check_snapshot(&self, snapshot: &Snapshot) -> Result<()> {
        if snapshot.belongs_to(&self.snapshots) {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Invalid, "the snapshot is of another database"))
    }

    /// Why background work does not get on, if it does not.
    pub(crate) fn background_failure(&self) -> Option<Error> {
        let of_flush = self.health.background_error.lock().clone();
        of_flush.or_else(|| self.health.failing.lock().first_key_value().map(|(_, (_, error))| error.clone()))
    }

    /// A merge of the store is done, or what it failed for is to be tried anew.
    pub(crate) fn gets_on(&self, store: &Store) {
        if std::mem::take(&mut store.work.lock().merges.failures) > 0 {
            self.health.failing.lock().remove(&store.id);
        }
    }
}
