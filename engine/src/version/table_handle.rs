//! The handle of an SSTable, which all that use the SSTable share.
//!
//! Where each read is a request to a remote store, an open leaves the SSTables that the manifest names
//! unread: with thousands of them the first answer then waits for those that it needs, not for all. Whoever
//! needs one first opens it, and others who come meanwhile wait for that. An error is that caller's alone:
//! the next one tries again.

use super::open_tables::Opener;
use super::version::{Dead, Graveyard};
use crate::error::Result;
use crate::shape::TableInfo;
use crate::sstable::Sstable;
use crate::sync::{AtomicBool, Mutex, Ordering};
use std::sync::{Arc, OnceLock};

/// An SSTable. If it was made obsolete, its file is removed when the last version that names it is gone.
pub(crate) struct TableHandle {
    /// The open SSTable: set from the beginning, or by the first caller who needs it.
    table: OnceLock<Arc<Sstable>>,
    info: Arc<TableInfo>,
    /// The way to open it, until it is open. Held while it is read.
    opener: Mutex<Option<Arc<Opener>>>,
    obsolete: AtomicBool,
    graveyard: Arc<Graveyard>,
}

impl TableHandle {
    /// The handle of an open SSTable.
    pub(crate) fn new(table: Arc<Sstable>, graveyard: Arc<Graveyard>) -> Arc<Self> {
        let info = table.info().clone();
        Self::of(OnceLock::from(table), info, None, graveyard)
    }

    /// The handle of an SSTable of which nothing was read yet.
    pub(super) fn unread(info: Arc<TableInfo>, opener: Arc<Opener>, graveyard: Arc<Graveyard>) -> Arc<Self> {
        Self::of(OnceLock::new(), info, Some(opener), graveyard)
    }

    fn of(
        table: OnceLock<Arc<Sstable>>,
        info: Arc<TableInfo>,
        opener: Option<Arc<Opener>>,
        graveyard: Arc<Graveyard>,
    ) -> Arc<Self> {
        graveyard.logs.hold(&info.logs);
        let (opener, obsolete) = (Mutex::new(opener), AtomicBool::new(false));
        Arc::new(Self { table, info, opener, obsolete, graveyard })
    }

    /// The description with which it was opened, or is to be.
    pub(crate) fn info(&self) -> &Arc<TableInfo> {
        &self.info
    }

    /// The open SSTable; the first caller opens it, if it was left unread.
    ///
    /// For one that is open, this is a load and a branch that is always taken, beside the pointer that the
    /// caller follows.
    #[inline]
    pub(crate) fn table(&self) -> Result<&Arc<Sstable>> {
        match self.table.get() {
            Some(table) => Ok(table),
            None => self.open(),
        }
    }

    /// The SSTable, if it is open.
    pub(crate) fn opened(&self) -> Option<&Arc<Sstable>> {
        self.table.get()
    }

    #[cold]
    fn open(&self) -> Result<&Arc<Sstable>> {
        let mut opener = self.opener.lock();
        let table = match &*opener {
            Some(opener) => opener.open_unread(&self.info)?,
            // Another caller was first.
            None => return Ok(self.table.get().expect("an SSTable without an opener is open")),
        };
        *opener = None;
        Ok(self.table.get_or_init(|| table))
    }

    /// Marks the SSTable as no longer named by the manifest.
    pub(crate) fn make_obsolete(&self) {
        self.obsolete.store(true, Ordering::Release);
    }

    pub(super) fn is_obsolete(&self) -> bool {
        self.obsolete.load(Ordering::Acquire)
    }
}

impl Drop for TableHandle {
    fn drop(&mut self) {
        let obsolete = self.is_obsolete();
        let logs = self.graveyard.logs.let_go(&self.info.logs, obsolete);
        if obsolete {
            let table = Dead::Sstable(self.info.id, self.table.take());
            self.graveyard.add(std::iter::once(table).chain(logs.into_iter().map(Dead::Wal)));
        }
    }
}
