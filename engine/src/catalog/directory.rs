//! Where a database may be created: in a directory that is absent, empty, or has what a creation left that a
//! crash ended.
//!
//! A directory with anything else in it is surely not the one that was meant, and what lies there might have
//! a name that a database uses. What a creation leaves is the lock, its mark, a note, the first manifest and
//! the next `CURRENT`; SSTables, WAL files and higher manifests show that there was a database which lost its
//! `CURRENT`. A blank file counts as left by a creation only beside the mark (`storage/own.rs`).

use super::local_part::{SHARED_NEW, begins_as_mark, refuse_local_part};
use crate::error::{Error, ErrorKind, Result};
use crate::sstable;
use crate::storage::{
    BEGUN, Env, LOCK_FILE, LOST_AND_FOUND, NOTE, Storage, begins_with_number, is_blank, is_mark, is_own,
    is_own_lock,
};
use crate::types::TableId;
use crate::version::manifest::{self, CURRENT, CURRENT_NEW};
use crate::wal;
use std::io;
use std::path::Path;

/// The next note, until it takes its name.
pub(crate) const NOTE_NEW: &str = "DATABASE.new";

/// The error of an open without `CURRENT`: the directory's files show whether a database lost it.
pub(crate) fn no_database(env: &Env, dir: &Path) -> Error {
    match refuse_leftovers(env, dir) {
        // It lost its `CURRENT`, or is the local part of a shared one.
        Err(e) if matches!(e.kind(), ErrorKind::Corruption | ErrorKind::Invalid) => e,
        _ => Error::new(ErrorKind::NotFound, format!("{} holds no database", dir.display())),
    }
}

/// A directory without `CURRENT` but with WAL files, SSTables or manifests is a damaged database, not an
/// empty place. One file that begins as ours do is enough to say so.
pub(crate) fn refuse_leftovers(env: &Env, dir: &Path) -> Result<()> {
    let names = env.storage.list(dir).map_err(|e| Error::io("list", dir, e))?;
    if names.iter().any(|name| name == CURRENT) {
        return Ok(());
    }
    refuse_local_part(env, dir)?;
    match part_among(env, dir, &names)? {
        None => Ok(()),
        Some(name) => {
            let message = format!("CURRENT is missing, expected it beside {name}");
            Err(Error::corruption(dir.join(CURRENT), 0, message))
        }
    }
}

/// `NotFound` if no file there is a database's by its bytes: neither `CURRENT`, which may be another
/// program's, nor any part.
pub(crate) fn refuse_no_database(env: &Env, dir: &Path) -> Result<()> {
    let names = env.storage.list(dir).map_err(|e| Error::io("list", dir, e))?;
    let current = dir.join(CURRENT);
    let has_current = names.iter().any(|name| name == CURRENT)
        && manifest::is_unfinished(&*env.storage, &current).is_ok_and(|own| own)
        && is_blank(&*env.storage, &current).is_ok_and(|blank| !blank);
    match has_current || part_among(env, dir, &names)?.is_some() {
        true => Ok(()),
        false => Err(Error::new(ErrorKind::NotFound, format!("{} holds no database", dir.display()))),
    }
}

fn part_among<'n>(env: &Env, dir: &Path, names: &'n [String]) -> Result<Option<&'n str>> {
    for name in names {
        let path = dir.join(name);
        if is_part(&*env.storage, &path, name).map_err(|e| Error::io("look at", &path, e))? {
            return Ok(Some(name));
        }
    }
    Ok(None)
}

/// Refuses to make a database beside anything that no unfinished creation has left: `Corruption` where there
/// was one, else `Invalid`.
pub(crate) fn refuse_occupied(env: &Env, dir: &Path) -> Result<()> {
    let storage = &*env.storage;
    refuse_leftovers(env, dir)?;
    let names = storage.list_all(dir).map_err(|e| Error::io("list", dir, e))?;
    // A `CURRENT` that another process has made meanwhile is no other thing.
    if names.iter().any(|name| name == CURRENT) {
        return Ok(());
    }
    let is_begun = names.iter().any(|name| name == BEGUN);
    for name in &names {
        let is_left = is_unfinished(storage, dir, name, is_begun);
        if !is_left.map_err(|e| Error::io("look at", dir.join(name), e))? {
            return Err(Error::invalid(format!(
                "{} holds no database but other things (`{name}`); a new one needs an absent or empty directory",
                dir.display()
            )));
        }
    }
    Ok(())
}

/// Whether the file is a part of a database that was opened once, by its name and its bytes.
fn is_part(storage: &dyn Storage, path: &Path, name: &str) -> io::Result<bool> {
    Ok(is_own_part(storage, path, name)? && !is_blank(storage, path)?)
}

fn is_own_part(storage: &dyn Storage, path: &Path, name: &str) -> io::Result<bool> {
    if TableId::parse_file_name(name).is_some() {
        return sstable::is_own_file(storage, path);
    }
    if wal::parse_file_name(name).is_some() {
        return wal::is_own_file(storage, path, None);
    }
    match manifest::parse_file_name(name) {
        Some(number) if number > 1 => manifest::is_own_manifest(storage, path, None),
        _ => Ok(false),
    }
}

/// Whether the entry is what an unfinished creation left, or a file system made. Without the mark of one,
/// what is blank may be anybody's.
fn is_unfinished(storage: &dyn Storage, dir: &Path, name: &str, is_begun: bool) -> io::Result<bool> {
    let path = &dir.join(name);
    let is_left = match name {
        LOST_AND_FOUND => return Ok(true),
        // A creation never writes to either.
        LOCK_FILE => return is_own_lock(storage, dir, name),
        BEGUN => return is_mark(storage, dir, name),
        NOTE | NOTE_NEW => is_own(storage, path, begins_with_number),
        CURRENT_NEW => manifest::is_unfinished(storage, path),
        SHARED_NEW => is_own(storage, path, begins_as_mark),
        _ if manifest::parse_file_name(name) == Some(1) => manifest::is_own_manifest(storage, path, None),
        _ => Ok(false),
    };
    Ok(is_left? && (is_begun || !is_blank(storage, path)?))
}
