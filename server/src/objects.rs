//! The object stores that tables of this server may lie in, with a disk cache beside the database.

use parking_lot::Mutex;
use siltstone::storage::ObjectStore;
use siltstone_storage_object::{DiskCache, ObjectStores, Settings};
use std::path::Path;
use std::sync::Arc;

/// Object stores, reached when the first is asked for.
pub(crate) struct FoundStores {
    settings: Settings,
    stores: Mutex<Option<ObjectStores>>,
}

impl FoundStores {
    /// Bytes of their objects are kept in that directory, so many at most.
    pub(crate) fn new(disk_bytes: u64, dir: &Path) -> Self {
        let disk = (disk_bytes > 0).then(|| DiskCache { dir: dir.to_path_buf(), bytes: disk_bytes });
        Self { settings: Settings { disk, ..Settings::default() }, stores: Mutex::default() }
    }

    pub(crate) fn open(&self, location: &str) -> std::io::Result<Arc<dyn ObjectStore>> {
        let mut stores = self.stores.lock();
        if stores.is_none() {
            *stores = Some(ObjectStores::new(&self.settings)?);
        }
        stores.as_ref().expect("it is made").open(location)
    }

    pub(crate) fn close(&self) {
        if let Some(Err(error)) = self.stores.lock().take().map(|stores| stores.close()) {
            tracing::warn!(%error, "what the disk cache had in memory could not be written");
        }
    }
}
