//! Readers that have the blocks of a compaction's outputs from the memory of the server that ran it (the
//! paper's remote cache, RC), and not from storage. There to be compared with.

use crate::catalog::Catalog;
use crate::error::Result;
use crate::offload::{RemoteCache, RemoteFile};
use crate::options::CacheFill;
use crate::shape::TableInfo;
use crate::storage::ReadFile;
use crate::version::TableHandle;
use std::sync::Arc;

/// The output, open so that it is read from there; `None` where the option does not say so.
pub(super) fn open(
    catalog: &Catalog,
    info: &Arc<TableInfo>,
    remote: Option<&Arc<dyn RemoteCache>>,
) -> Result<Option<Arc<TableHandle>>> {
    let is_asked = catalog.cx.settings.options.cache_fill == CacheFill::Remote;
    let Some(remote) = remote.filter(|_| is_asked) else { return Ok(None) };
    let bytes = &catalog.remote_bytes;
    let wrap = |file| -> Arc<dyn ReadFile> {
        Arc::new(RemoteFile::new(file, info.id, remote.clone(), bytes.clone()))
    };
    catalog.tables.open_by(info, None, Some(&wrap)).map(Some)
}
