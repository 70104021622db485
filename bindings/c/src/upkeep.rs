//! Looking after databases: statistics, copies, checks.

use crate::bytes::path;
use crate::db::{Db, open};
use crate::error::{Answer, Error, answer, invalid};
use crate::handle::{Place, emptied, given};
use crate::text::handed_out;
use serde::Serialize;
use siltstone::storage::Env;
use siltstone::{Backups, Result};
use std::ffi::c_char;
use std::mem::MaybeUninit;
use std::ptr::null_mut;

/// Answers data as JSON.
fn json<T: Serialize>(place: Place<'_, *mut c_char>, data: impl FnOnce() -> Result<T>) -> Answer {
    answer(|| {
        let place = emptied(place, "json", null_mut())?;
        let json = serde_json::to_vec(&data()?).map_err(|why| invalid(why.to_string()))?;
        *place = handed_out(&json);
        Ok(())
    })
}

/// Statistics of the database since it was opened, as a JSON object. Freed with `siltstone_text_free`.
#[unsafe(no_mangle)]
pub extern "C" fn siltstone_stats(
    db: Option<&Db>,
    json: Option<&mut MaybeUninit<*mut c_char>>,
) -> Option<Box<Error>> {
    self::json(json, || Ok(open(db)?.statistics()))
}

/// Recent flushes, compactions and the like, oldest first, as a JSON array of texts. Freed with
/// `siltstone_text_free`.
#[unsafe(no_mangle)]
pub extern "C" fn siltstone_events(
    db: Option<&Db>,
    json: Option<&mut MaybeUninit<*mut c_char>>,
) -> Option<Box<Error>> {
    self::json(json, || {
        let events = open(db)?.events();
        Ok(events.iter().map(ToString::to_string).collect::<Vec<_>>())
    })
}

/// Makes a database of its own in a new directory, by hard links where it can.
#[unsafe(no_mangle)]
pub extern "C" fn siltstone_checkpoint(db: Option<&Db>, dir: *const c_char) -> Option<Box<Error>> {
    answer(|| given(db, "db")?.db.checkpoint(path(dir, "dir")?).map(drop))
}

/// Adds a backup to a directory of backups and puts its number into `id`, which may be NULL. What earlier
/// ones have is not copied again.
#[unsafe(no_mangle)]
pub extern "C" fn siltstone_backup(
    db: Option<&Db>,
    dir: *const c_char,
    id: Option<&mut u64>,
) -> Option<Box<Error>> {
    answer(|| {
        let made = given(db, "db")?.db.backup(path(dir, "dir")?)?;
        if let Some(id) = id {
            *id = made.id;
        }
        Ok(())
    })
}

/// The backups in a directory, oldest first, as a JSON array. Freed with `siltstone_text_free`.
#[unsafe(no_mangle)]
pub extern "C" fn siltstone_backups(
    dir: *const c_char,
    json: Option<&mut MaybeUninit<*mut c_char>>,
) -> Option<Box<Error>> {
    self::json(json, || Backups::new(&Env::local(), path(dir, "dir")?).list())
}

/// Writes a backup, the newest one for id 0, to a new directory.
#[unsafe(no_mangle)]
pub extern "C" fn siltstone_restore(dir: *const c_char, id: u64, to: *const c_char) -> Option<Box<Error>> {
    answer(|| {
        let (dir, to) = (path(dir, "dir")?, path(to, "to")?);
        let id = (id != 0).then_some(id);
        Backups::new(&Env::local(), dir).restore(id, to, &mut |_| {}).map(drop)
    })
}

/// Reads a closed database whole and tells what is wrong with it, as a JSON object. Freed with
/// `siltstone_text_free`.
#[unsafe(no_mangle)]
pub extern "C" fn siltstone_check(
    dir: *const c_char,
    json: Option<&mut MaybeUninit<*mut c_char>>,
) -> Option<Box<Error>> {
    self::json(json, || siltstone::check(&Env::local(), path(dir, "dir")?, &mut |_| {}))
}

/// Saves what can be saved of a damaged database that is closed, and tells what, as a JSON object. Freed with
/// `siltstone_text_free`.
#[unsafe(no_mangle)]
pub extern "C" fn siltstone_repair(
    dir: *const c_char,
    json: Option<&mut MaybeUninit<*mut c_char>>,
) -> Option<Box<Error>> {
    self::json(json, || siltstone::repair(&Env::local(), path(dir, "dir")?, &mut |_| {}))
}

/// Deletes a database that is closed, with all that it holds. `SILTSTONE_KIND_NOT_FOUND` where there is none.
#[unsafe(no_mangle)]
pub extern "C" fn siltstone_destroy(dir: *const c_char) -> Option<Box<Error>> {
    answer(|| siltstone::destroy(&Env::local(), path(dir, "dir")?))
}
