//! The mark of a directory that is the local part of a shared database.

use crate::error::{Error, Result};
use crate::storage::{Env, SMALL_FILE_BYTES, create_over_own, mark_begun, read_file, remove_mark};
use std::path::Path;

/// The file by which a directory is the local part of a shared database: its number, and where it lies.
pub(crate) const SHARED: &str = "SHARED";
pub(super) const SHARED_NEW: &str = "SHARED.new";
const SHARED_TITLE: &str = "local part of a shared database";

/// Whether a file begins as the mark of a local part does.
pub(super) fn begins_as_mark(head: &[u8]) -> bool {
    SHARED_TITLE.as_bytes().starts_with(&head[..head.len().min(SHARED_TITLE.len())])
}

/// The database whose local part the directory is, and where that lies; `None` if it is none's.
pub(crate) fn local_part(env: &Env, dir: &Path) -> Result<Option<(u64, String)>> {
    let path = dir.join(SHARED);
    if !env.storage.exists(&path).map_err(|e| Error::io("look for", &path, e))? {
        return Ok(None);
    }
    let bytes = read_file(env, &path, SMALL_FILE_BYTES)?;
    let text = String::from_utf8_lossy(&bytes);
    let mut lines = text.lines();
    let number = match lines.next() {
        Some(SHARED_TITLE) => lines.next().and_then(|line| u64::from_str_radix(line, 16).ok()),
        _ => None,
    };
    match (number, lines.next()) {
        (Some(number), Some(location)) => Ok(Some((number, location.to_string()))),
        _ => Err(Error::corruption(path, 0, "no number and place of a shared database")),
    }
}

/// The error of an open of a shared database's local part as a database of its own.
pub(crate) fn refuse_local_part(env: &Env, dir: &Path) -> Result<()> {
    let Some((_, location)) = local_part(env, dir)? else { return Ok(()) };
    let message = format!(
        "{} is the local part of the shared database in {location}: open it with option shared",
        dir.display()
    );
    Err(Error::invalid(message))
}

/// Says in the directory whose local part it is, before anything else is written there.
pub(super) fn mark_local_part(env: &Env, dir: &Path, database: u64, location: &str) -> Result<()> {
    if local_part(env, dir)? == Some((database, location.to_string())) {
        return Ok(());
    }
    let (new, path) = (dir.join(SHARED_NEW), dir.join(SHARED));
    let failed = |e| Error::io("write", &new, e);
    mark_begun(&*env.storage, dir).map_err(failed)?;
    let mut file = create_over_own(&*env.storage, &new, begins_as_mark).map_err(failed)?;
    let text = format!("{SHARED_TITLE}\n{database:016x}\n{location}\n");
    file.write(text.as_bytes()).and_then(|()| file.sync()).map_err(failed)?;
    env.storage.rename(&new, &path).map_err(|e| Error::io("rename to", &path, e))?;
    env.storage.sync_dir(dir).map_err(|e| Error::io("sync the directory", dir, e))?;
    remove_mark(&*env.storage, dir);
    Ok(())
}
