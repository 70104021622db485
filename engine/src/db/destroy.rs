//! Deleting a database.
//!
//! `CURRENT`, by which a directory holds a database, is renamed first. A crash in between leaves files that
//! no open takes for a database, and the renamed file, which is the only evidence that they were one: the
//! next call goes on with them. A directory with SSTables alone may be where another database has its
//! SSTables.

use crate::catalog::no_database;
use crate::error::{Error, ErrorKind, Result};
use crate::event::{self, EVENTS, EVENTS_NEW};
use crate::sstable;
use crate::storage::{Env, LOCK_FILE, NOTE, Storage, absolute, lock_dir, remove_mark};
use crate::types::TableId;
use crate::version::manifest::{self, CURRENT, CURRENT_NEW, RESERVE};
use crate::wal;
use std::io;
use std::path::Path;

/// The name of `CURRENT` while all other files are deleted.
const DESTROYED: &str = "DESTROYED";

/// Deletes a database that is closed, with all that it holds, and its directory if nothing else lies in it.
/// Checkpoints and backups of it stay, and so does what a [repair](crate::repair) put into `lost`.
///
/// `NotFound` where there is none, `Busy` where it is open for writing, `Unsupported` where its SSTables lie
/// elsewhere ([`Options::sstable_store`](crate::Options::sstable_store)), and `Corruption` where its
/// manifest, which says where they lie, cannot be read; nothing is deleted then. Read-only handles of it will
/// meet errors.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// use siltstone::storage::Env;
/// let path = dir.path().join("db");
/// let db = siltstone::Db::open(&path)?;
/// db.put("k", "v")?;
/// db.close()?;
/// siltstone::destroy(&Env::local(), &path)?;
/// assert!(!path.exists());
/// # Ok::<(), siltstone::Error>(())
/// ```
pub fn destroy(env: &Env, dir: impl AsRef<Path>) -> Result<()> {
    let dir = &absolute(env, dir.as_ref())?;
    let env = &env.bound_if_there(dir)?;
    let storage = &*env.storage;
    let exists = |path: &Path| storage.exists(path).map_err(|e| Error::io("look for", path, e));
    let sync = || storage.sync_dir(dir).map_err(|e| Error::io("sync the directory", dir, e));
    let remove = |name: &str| {
        let path = dir.join(name);
        storage.remove(&path).map_err(|e| Error::io("remove", &path, e))
    };
    if !exists(dir)? {
        return Err(Error::new(ErrorKind::NotFound, format!("{} holds no database", dir.display())));
    }
    let elsewhere = |place: &str| {
        Error::new(ErrorKind::Unsupported, format!("{} has its tables elsewhere{place}", dir.display()))
    };
    let destroyed = dir.join(DESTROYED);
    let loaded = manifest::load(env, dir)?;
    let begun = manifest::read_current(env, &destroyed)?.map(|(database, _)| database);
    let database = loaded.as_ref().map(|loaded| loaded.state.database).or(begun);
    match loaded {
        Some(loaded) if !loaded.state.tables.is_empty() => {
            return Err(elsewhere(&format!(": {}", loaded.state.tables)));
        }
        _ if exists(&dir.join(NOTE))? => return Err(elsewhere("")),
        None if begun.is_none() => return Err(no_database(env, dir)),
        _ => {}
    }
    let lock = lock_dir(&*env.storage, dir, true)?;
    let current = dir.join(CURRENT);
    if exists(&current)? {
        storage.rename(&current, &destroyed).map_err(|e| Error::io("rename", &current, e))?;
    }
    sync()?;
    let listed = storage.list(dir).map_err(|e| Error::io("list", dir, e))?;
    for name in &listed {
        // A file that cannot be judged must not be left behind.
        if is_ours(storage, dir, name, database).map_err(|e| Error::io("look at", dir.join(name), e))? {
            remove(name)?;
        }
    }
    remove_mark(storage, dir);
    sync()?;
    remove(DESTROYED)?;
    remove(LOCK_FILE)?;
    drop(lock);
    // Others' files may lie there, too.
    let _ = storage.remove_dir(dir);
    Ok(())
}

/// Whether the file belongs to that database, by its name and its first bytes; files with a rule of their own
/// are not.
fn is_ours(storage: &dyn Storage, dir: &Path, name: &str, database: Option<u64>) -> io::Result<bool> {
    let path = dir.join(name);
    match name {
        CURRENT_NEW => manifest::is_unfinished(storage, &path),
        EVENTS | EVENTS_NEW => event::is_own_file(storage, &path),
        RESERVE => manifest::is_own_reserve(storage, &path),
        _ if TableId::parse_file_name(name).is_some() => sstable::is_own_file(storage, &path),
        _ if wal::parse_file_name(name).is_some() => wal::is_own_file(storage, &path, database),
        _ if manifest::parse_file_name(name).is_some() => manifest::is_own_manifest(storage, &path, database),
        _ => Ok(false),
    }
}
