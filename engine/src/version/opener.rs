//! How the tables of a database are opened.

use crate::cache::BlockCache;
use crate::error::{Error, Result};
use crate::shape::TableInfo;
use crate::sstable::{Access, Filled, Sstable, Through, WrapFile};
use crate::storage::{OpenFiles, Storage, TableStore};
use std::path::PathBuf;
use std::sync::Arc;

/// The place of a database's tables, and the way in which they are opened.
pub(super) struct Opener {
    pub(super) store: TableStore,
    /// Where WAL files are.
    pub(super) storage: Arc<dyn Storage>,
    pub(super) dir: PathBuf,
    pub(super) cache: Arc<BlockCache>,
    pub(super) files: Arc<OpenFiles>,
    /// How they are read.
    pub(super) through: Through,
}

impl Opener {
    /// The table, opened; `filled` is what was put into the cache when it was written. Its file is read
    /// through what `wrap` makes of it.
    pub(super) fn open(
        &self,
        info: &Arc<TableInfo>,
        filled: Option<&mut Filled>,
        wrap: Option<&WrapFile<'_>>,
    ) -> Result<Arc<Sstable>> {
        let path = self.store.path(info.id);
        let logs = Some((&*self.storage, &*self.dir));
        let access = Access { through: self.through, files: Some(&self.files), filled, logs, wrap };
        Sstable::open_with(self.store.storage(), &path, info.clone(), &self.cache, access)
    }

    /// The table, opened; the manifest names it, so it must be there.
    pub(super) fn open_named(&self, info: &Arc<TableInfo>) -> Result<Arc<Sstable>> {
        self.open(info, None, None).map_err(|e| match self.store.exists(info.id) {
            Ok(false) => {
                let path = self.store.path(info.id);
                Error::corruption(&path, 0, "table is missing, expected it by the manifest")
            }
            _ => e,
        })
    }

    /// The table, opened by whoever needs it first.
    pub(super) fn open_unread(&self, info: &Arc<TableInfo>) -> Result<Arc<Sstable>> {
        let table = self.open_named(info)?;
        self.cache.refit();
        Ok(table)
    }
}
