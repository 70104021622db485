//! The tables that are open. Whoever asks for a table gets the one handle that there is of it: stores that
//! share a table, and compactions that read it.
//!
//! Tables in a remote store that the manifest names are left unread by an open ([`TableHandle`]), and
//! opened behind it, one by one, as workers find time.

use super::opener::Opener;
use super::version::{Graveyard, TableHandle};
use crate::cache::BlockCache;
use crate::error::Result;
use crate::shape::TableInfo;
use crate::sstable::{Filled, Through, WrapFile, tail_bytes};
use crate::storage::{OpenFiles, Storage, TableStore};
use crate::sync::Mutex;
use crate::types::TableId;
use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::sync::{Arc, Weak};

/// How many tables are announced together that are to be opened behind an open: the store may fetch their
/// ends ahead, which take memory until they are asked for.
const ANNOUNCED: usize = 64;

/// See the page above.
pub(crate) struct OpenTables {
    opener: Arc<Opener>,
    graveyard: Arc<Graveyard>,
    known: Mutex<Known>,
    behind: Mutex<Behind>,
}

#[derive(Default)]
struct Known {
    handles: BTreeMap<TableId, Weak<TableHandle>>,
    /// So many there are when those that are gone are taken out again.
    sweep_at: usize,
}

/// The tables that are to be opened behind an open.
#[derive(Default)]
struct Behind {
    left: VecDeque<TableId>,
    /// So many of the first of `left` were announced.
    announced: usize,
    /// So many are being opened.
    under_way: usize,
}

impl OpenTables {
    pub(crate) fn new(
        store: TableStore,
        storage: &Arc<dyn Storage>,
        dir: PathBuf,
        cache: &Arc<BlockCache>,
        files: &Arc<OpenFiles>,
        graveyard: &Arc<Graveyard>,
        through: Through,
    ) -> Arc<Self> {
        let (storage, cache, files) = (storage.clone(), cache.clone(), files.clone());
        Arc::new(Self {
            opener: Arc::new(Opener { store, storage, dir, cache, files, through }),
            graveyard: graveyard.clone(),
            known: Mutex::default(),
            behind: Mutex::default(),
        })
    }

    /// Where the tables lie.
    pub(crate) fn store(&self) -> &TableStore {
        &self.opener.store
    }

    /// The table, opened if it is not; `filled` is what was put into the cache when it was written. O(log n).
    pub(crate) fn open(
        &self,
        info: &Arc<TableInfo>,
        filled: Option<&mut Filled>,
    ) -> Result<Arc<TableHandle>> {
        match self.find(info) {
            Some(handle) => {
                handle.table()?;
                Ok(handle)
            }
            None => self.open_by(info, filled, None),
        }
    }

    /// The table, which the manifest names. It is opened, but where that takes a request to a remote store it
    /// is left unread. O(log n).
    pub(crate) fn open_named(&self, info: &Arc<TableInfo>) -> Result<Arc<TableHandle>> {
        if let Some(handle) = self.find(info) {
            return Ok(handle);
        }
        let graveyard = self.graveyard.clone();
        Ok(self.add(match self.store().is_far() {
            true => TableHandle::unread(info.clone(), self.opener.clone(), graveyard),
            false => TableHandle::new(self.opener.open_named(info)?, graveyard),
        }))
    }

    /// Whether anybody has the table.
    pub(crate) fn is_open(&self, table: TableId) -> bool {
        self.known.lock().handles.get(&table).is_some_and(|handle| handle.strong_count() > 0)
    }

    /// The table, opened anew, through what `wrap` makes of its file.
    pub(crate) fn open_by(
        &self,
        info: &Arc<TableInfo>,
        filled: Option<&mut Filled>,
        wrap: Option<&WrapFile<'_>>,
    ) -> Result<Arc<TableHandle>> {
        let table = self.opener.open(info, filled, wrap)?;
        Ok(self.add(TableHandle::new(table, self.graveyard.clone())))
    }

    fn add(&self, handle: Arc<TableHandle>) -> Arc<TableHandle> {
        let mut known = self.known.lock();
        if known.handles.len() >= known.sweep_at {
            known.handles.retain(|_, handle| handle.strong_count() > 0);
            known.sweep_at = (2 * known.handles.len()).max(64);
        }
        known.handles.insert(handle.info().id, Arc::downgrade(&handle));
        handle
    }

    fn get(&self, table: TableId) -> Option<Arc<TableHandle>> {
        self.known.lock().handles.get(&table).and_then(Weak::upgrade)
    }

    fn find(&self, info: &TableInfo) -> Option<Arc<TableHandle>> {
        self.get(info.id).filter(|handle| handle.info().identity == info.identity)
    }

    fn unread(&self, table: TableId) -> Option<Arc<TableHandle>> {
        self.get(table).filter(|handle| handle.opened().is_none())
    }

    /// Says in which order those of these tables that were left unread are to be opened behind the open.
    pub(crate) fn open_behind(&self, order: impl Iterator<Item = TableId>) {
        if self.store().is_far() {
            self.behind.lock().left.extend(order);
        }
    }

    /// Opens the next table that was left unread and that nobody has opened since; `None` if there is none.
    /// One that fails is left to whoever needs it.
    pub(crate) fn open_next(&self) -> Option<Result<()>> {
        let handle = self.next_unread()?;
        let opened = handle.table().map(|_| ());
        self.behind.lock().under_way -= 1;
        Some(opened)
    }

    /// Whether tables are to be opened behind the open, or being opened.
    pub(crate) fn is_behind(&self) -> bool {
        let behind = self.behind.lock();
        behind.under_way > 0 || !behind.left.is_empty()
    }

    fn next_unread(&self) -> Option<Arc<TableHandle>> {
        let mut behind = self.behind.lock();
        while !behind.left.is_empty() {
            if behind.announced == 0 {
                behind.announced = behind.left.len().min(ANNOUNCED);
                let next = behind.left.iter().take(behind.announced);
                let unread = next.filter_map(|table| Some((*table, self.unread(*table)?.info().bytes)));
                self.store().expect(unread.map(|(table, bytes)| (table, tail_bytes(bytes))));
            }
            let table = behind.left.pop_front()?;
            behind.announced -= 1;
            if let Some(handle) = self.unread(table) {
                behind.under_way += 1;
                return Some(handle);
            }
        }
        None
    }
}

#[cfg(all(test, not(models)))]
#[path = "open_tables_tests.rs"]
mod tests;
