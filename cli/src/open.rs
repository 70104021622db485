//! How commands open a database: reading never changes a byte of it, and nothing is created by mistake.

use crate::failure::{Failure, Outcome};
use siltstone::storage::ObjectStore;
use siltstone::{Builder, Db, Family, FamilyOptions, Options};
use siltstone_storage_object::LazyObjectStores;
use std::path::Path;
use std::sync::Arc;

/// Finds object stores, by the settings of the environment. A single command uses no disk cache.
pub(crate) fn object_stores() -> impl Fn(&str) -> std::io::Result<Arc<dyn ObjectStore>> + Send + Sync {
    let stores = LazyObjectStores::default();
    move |location| stores.open(location)
}

/// Opening databases, wherever their SSTables lie.
pub(crate) fn builder() -> Builder {
    Builder::new().object_stores(object_stores())
}

/// The database as it is now, open for reading without its lock.
pub(crate) fn to_read(dir: &Path) -> Outcome<Db> {
    Ok(builder().open_read_only(dir)?)
}

/// For writing; it must exist.
pub(crate) fn to_write(dir: &Path) -> Outcome<Db> {
    let options = Options { create_if_missing: false, ..Options::default() };
    Ok(builder().options(options).open(dir)?)
}

/// For writing; made anew where the directory is missing or holds nothing.
pub(crate) fn to_write_or_create(dir: &Path) -> Outcome<Db> {
    Ok(builder().open(dir)?)
}

/// For commands that read files by themselves: refuses a directory that is not there.
pub(crate) fn directory(dir: &Path) -> Outcome<&Path> {
    match std::fs::metadata(dir) {
        Ok(found) if found.is_dir() => Ok(dir),
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
            Err(Failure::Failed(format!("open the directory {}: {e}", dir.display())))
        }
        _ => Err(Failure::Failed(format!("{} holds no database", dir.display()))),
    }
}

/// The family of that name; made with default options if there is none and `create` says so.
pub(crate) fn family(db: &Db, name: &str, create: bool) -> Outcome<Family> {
    if create && !db.families().iter().any(|family| family == name) {
        return Ok(db.create_family(name, FamilyOptions::default())?);
    }
    Ok(db.family(name)?)
}
