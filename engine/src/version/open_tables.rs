//! The tables that are open. Whoever asks for a table gets the one handle that there is of it: stores that
//! share a table, and compactions that read it.

use super::{Graveyard, TableHandle};
use crate::cache::BlockCache;
use crate::error::Result;
use crate::shape::TableInfo;
use crate::sstable::{Access, Filled, Sstable, Through, WrapFile};
use crate::storage::{OpenFiles, Storage, TableStore};
use crate::sync::Mutex;
use crate::types::TableId;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Weak};

/// See the page above.
pub(crate) struct OpenTables {
    store: TableStore,
    /// Where WAL files are.
    storage: Arc<dyn Storage>,
    dir: PathBuf,
    cache: Arc<BlockCache>,
    files: Arc<OpenFiles>,
    graveyard: Arc<Graveyard>,
    /// How they are read.
    through: Through,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    handles: BTreeMap<TableId, Weak<TableHandle>>,
    /// So many there are when those that are gone are taken out again.
    sweep_at: usize,
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
        Arc::new(Self {
            store,
            storage: storage.clone(),
            dir,
            cache: cache.clone(),
            files: files.clone(),
            graveyard: graveyard.clone(),
            through,
            known: Mutex::default(),
        })
    }

    /// Where the tables lie.
    pub(crate) fn store(&self) -> &TableStore {
        &self.store
    }

    /// The table, opened if it is not; `filled` is what was put into the cache when it was written. O(log n).
    pub(crate) fn open(
        &self,
        info: &Arc<TableInfo>,
        filled: Option<&mut Filled>,
    ) -> Result<Arc<TableHandle>> {
        let found = self.known.lock().handles.get(&info.id).and_then(Weak::upgrade);
        match found.filter(|handle| handle.table.info().identity == info.identity) {
            Some(handle) => Ok(handle),
            None => self.open_by(info, filled, None),
        }
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
        let path = self.store.path(info.id);
        let logs = Some((&*self.storage, &*self.dir));
        let access = Access { through: self.through, files: Some(&self.files), filled, logs, wrap };
        let table = Sstable::open_with(self.store.storage(), &path, info.clone(), &self.cache, access)?;
        let handle = TableHandle::new(table, self.graveyard.clone());
        let mut known = self.known.lock();
        if known.handles.len() >= known.sweep_at {
            known.handles.retain(|_, handle| handle.strong_count() > 0);
            known.sweep_at = (2 * known.handles.len()).max(64);
        }
        known.handles.insert(info.id, Arc::downgrade(&handle));
        Ok(handle)
    }
}
