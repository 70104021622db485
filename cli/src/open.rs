//! How commands open a database: reading never changes a byte of it, and nothing is created by mistake. A
//! shared database is read by its owner alone, so commands that read take it over, too.

use crate::failure::{Failure, Outcome};
use clap::Args;
use siltstone::storage::ObjectStore;
use siltstone::{Builder, Db, Family, FamilyOptions, Options};
use siltstone_storage_object::LazyObjectStores;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A database as it is named on the command line.
#[derive(Args)]
pub(crate) struct Database {
    /// Directory of the database
    #[arg(id = "db", value_name = "DB")]
    pub(crate) dir: PathBuf,
    /// Place of a shared database: a directory, or an object store, as s3://bucket/prefix. The command takes
    /// it over, so a server that has it open can write no more
    #[arg(long, value_name = "LOCATION", value_parser = place)]
    shared: Option<PathBuf>,
}

impl Database {
    fn options(&self) -> Options {
        Options { shared: self.shared.clone(), ..Options::default() }
    }
}

/// A place as the engine takes it: an object store's location, or a directory's absolute path.
pub(crate) fn place(text: &str) -> Result<PathBuf, String> {
    match text.contains("://") {
        true => Ok(text.into()),
        false => std::path::absolute(text).map_err(|e| e.to_string()),
    }
}

/// Finds object stores, by the settings of the environment. A single command uses no disk cache.
pub(crate) fn object_stores() -> impl Fn(&str) -> std::io::Result<Arc<dyn ObjectStore>> + Send + Sync {
    let stores = LazyObjectStores::default();
    move |location| stores.open(location)
}

/// Opening databases, wherever their SSTables lie.
pub(crate) fn builder() -> Builder {
    Builder::new().object_stores(object_stores())
}

/// The database as it is now, open for reading without its lock; a shared one as its owner.
pub(crate) fn to_read(database: &Database) -> Outcome<Db> {
    match database.shared {
        None => Ok(builder().open_read_only(&database.dir)?),
        Some(_) => to_write(database),
    }
}

/// For writing; it must exist.
pub(crate) fn to_write(database: &Database) -> Outcome<Db> {
    let options = Options { create_if_missing: false, ..database.options() };
    Ok(builder().options(options).open(&database.dir)?)
}

/// For writing; made anew where the directory is missing or holds nothing.
pub(crate) fn to_write_or_create(database: &Database) -> Outcome<Db> {
    Ok(builder().options(database.options()).open(&database.dir)?)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_an_absolute_path_or_a_location() {
        assert_eq!(place("s3://bucket/prefix").unwrap(), Path::new("s3://bucket/prefix"));
        assert_eq!(place("/mnt/prod").unwrap(), Path::new("/mnt/prod"));
        assert_eq!(place("prod").unwrap(), std::env::current_dir().unwrap().join("prod"));
        assert!(place("").is_err());
    }
}
