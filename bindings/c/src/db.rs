//! Databases: opening, families, closing.

use crate::batch::Batch;
use crate::bytes::{path, utf8, utf8_if_given};
use crate::error::{Answer, Error, answer};
use crate::family::Family;
use crate::handle::{Place, check_open, free, given, no_handle};
use crate::options::{Options, of_family};
use crate::snapshot::Snapshot;
use crate::text::{handed_out, text};
use siltstone::{DEFAULT_FAMILY, FamilyOptions, Result};
use std::ffi::{CString, c_char};
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;

/// An open database. May be used by several threads at once.
pub struct Db {
    pub(crate) db: siltstone::Db,
    path: CString,
}

/// A database that must be there and open: for calls of which the engine itself does not ask.
pub(crate) fn open(db: Option<&Db>) -> Result<&siltstone::Db> {
    let db = &given(db, "db")?.db;
    check_open(db)?;
    Ok(db)
}

/// The version of this library.
#[unsafe(no_mangle)]
pub extern "C" fn siltstone_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}

fn opened(
    dir: *const c_char,
    options: Option<&Options>,
    db: Place<'_, Option<Box<Db>>>,
    read_only: bool,
) -> Answer {
    answer(|| {
        let (place, dir) = (no_handle(db, "db")?, path(dir, "dir")?);
        let builder = options.map_or_else(siltstone::Db::builder, Options::builder);
        let db = if read_only { builder.open_read_only(dir) } else { builder.open(dir) }?;
        let path = text(db.path().as_os_str().as_bytes());
        *place = Some(Box::new(Db { db, path }));
        Ok(())
    })
}

/// Opens the database in a directory, and makes one where there is none. `options` may be NULL. `*db` is
/// freed with `siltstone_db_free`; where this fails it becomes NULL.
#[unsafe(no_mangle)]
pub extern "C" fn siltstone_open(
    dir: *const c_char,
    options: Option<&Options>,
    db: Option<&mut MaybeUninit<Option<Box<Db>>>>,
) -> Option<Box<Error>> {
    opened(dir, options, db, false)
}

/// Opens a database read-only: nothing on disk changes, writes are refused. Another process may have it open.
#[unsafe(no_mangle)]
pub extern "C" fn siltstone_open_read_only(
    dir: *const c_char,
    options: Option<&Options>,
    db: Option<&mut MaybeUninit<Option<Box<Db>>>>,
) -> Option<Box<Error>> {
    opened(dir, options, db, true)
}

/// Closes a database: waits for its workers and unlocks its directory. Calls that come later, by this handle
/// and all that were made of it, answer `SILTSTONE_KIND_CLOSED`. Values stay, and batches and transactions
/// may still be filled, but not committed. May be called again.
#[unsafe(no_mangle)]
pub extern "C" fn siltstone_close(db: Option<&Db>) -> Option<Box<Error>> {
    answer(|| given(db, "db")?.db.close())
}

/// Frees a database's handle and sets the pointer to NULL. Unless `siltstone_close` did so, the database
/// itself is closed when all families, iterators, transactions and batches with writes that were made of it
/// are freed, too. NULL, and a pointer to NULL, are fine.
#[unsafe(no_mangle)]
pub extern "C" fn siltstone_db_free(db: Option<&mut Option<Box<Db>>>) {
    free(db);
}

/// The database's directory; lives as long as the handle. NULL for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn siltstone_db_path(db: Option<&Db>) -> *const c_char {
    db.map_or(std::ptr::null(), |db| db.path.as_ptr())
}

/// Puts the family of that name into `*family`, or the one named "default", which every database has, for
/// NULL. Freed with `siltstone_family_free`.
#[unsafe(no_mangle)]
pub extern "C" fn siltstone_family_open(
    db: Option<&Db>,
    name: *const c_char,
    family: Option<&mut MaybeUninit<Option<Box<Family>>>>,
) -> Option<Box<Error>> {
    answer(|| {
        let (place, db) = (no_handle(family, "family")?, open(db)?);
        let name = utf8_if_given(name, "name")?.unwrap_or(DEFAULT_FAMILY);
        *place = Some(Family::boxed(db.clone(), db.family(name)?));
        Ok(())
    })
}

/// Makes a family. Its options are TOML text (`strategy = "size_tiered{runs=4}"`), NULL for the defaults.
#[unsafe(no_mangle)]
pub extern "C" fn siltstone_create_family(
    db: Option<&Db>,
    name: *const c_char,
    toml: *const c_char,
    family: Option<&mut MaybeUninit<Option<Box<Family>>>>,
) -> Option<Box<Error>> {
    answer(|| {
        let (place, db) = (no_handle(family, "family")?, given(db, "db")?);
        let options = of_family(FamilyOptions::default(), utf8_if_given(toml, "toml")?.unwrap_or_default())?;
        *place = Some(Family::boxed(db.db.clone(), db.db.create_family(utf8(name, "name")?, options)?));
        Ok(())
    })
}

/// Drops a family with all that it holds. Handles of it answer `SILTSTONE_KIND_NOT_FOUND` then.
#[unsafe(no_mangle)]
pub extern "C" fn siltstone_drop_family(db: Option<&Db>, name: *const c_char) -> Option<Box<Error>> {
    answer(|| given(db, "db")?.db.drop_family(utf8(name, "name")?))
}

/// The names of the families, each on a line of its own. Freed with `siltstone_text_free`.
#[unsafe(no_mangle)]
pub extern "C" fn siltstone_family_names(
    db: Option<&Db>,
    names: Option<&mut MaybeUninit<*mut c_char>>,
) -> Option<Box<Error>> {
    answer(|| {
        let place = crate::handle::emptied(names, "names", std::ptr::null_mut())?;
        let names: Vec<String> = open(db)?.families().iter().map(|name| format!("{name}\n")).collect();
        *place = handed_out(names.concat().as_bytes());
        Ok(())
    })
}

/// Writes all of a batch or nothing. `seq` gets the sequence number of its last write; it may be NULL. The
/// batch stays as it is.
#[unsafe(no_mangle)]
pub extern "C" fn siltstone_write(
    db: Option<&Db>,
    batch: Option<&Batch>,
    durability: i32,
    seq: Option<&mut u64>,
) -> Option<Box<Error>> {
    answer(|| {
        let (db, batch) = (given(db, "db")?, given(batch, "batch")?);
        let last = db.db.write_with(&batch.0, crate::family::durability(durability)?)?;
        if let Some(seq) = seq {
            *seq = last.0;
        }
        Ok(())
    })
}

/// A read point: reads that are given it see what was there now. Until it is freed, everything it sees stays
/// on disk.
#[unsafe(no_mangle)]
pub extern "C" fn siltstone_snapshot_new(
    db: Option<&Db>,
    snapshot: Option<&mut MaybeUninit<Option<Box<Snapshot>>>>,
) -> Option<Box<Error>> {
    answer(|| {
        let place = no_handle(snapshot, "snapshot")?;
        *place = Some(Box::new(Snapshot(open(db)?.snapshot())));
        Ok(())
    })
}

/// Makes all that was written durable.
#[unsafe(no_mangle)]
pub extern "C" fn siltstone_sync(db: Option<&Db>) -> Option<Box<Error>> {
    answer(|| given(db, "db")?.db.sync())
}

/// Flushes the memory of all families to SSTables.
#[unsafe(no_mangle)]
pub extern "C" fn siltstone_flush(db: Option<&Db>) -> Option<Box<Error>> {
    answer(|| given(db, "db")?.db.flush())
}

/// Waits until no flush and no compaction is running or due.
#[unsafe(no_mangle)]
pub extern "C" fn siltstone_wait_idle(db: Option<&Db>) -> Option<Box<Error>> {
    answer(|| given(db, "db")?.db.wait_idle())
}

/// Sets the limits of memory, in bytes: for unflushed writes, and in total.
#[unsafe(no_mangle)]
pub extern "C" fn siltstone_set_memory_limits(
    db: Option<&Db>,
    write_memory: u64,
    memory_budget: u64,
) -> Option<Box<Error>> {
    answer(|| given(db, "db")?.db.set_memory_limits(write_memory, memory_budget))
}

/// Bytes a second that flushes and compactions may write together; 0 for no limit.
#[unsafe(no_mangle)]
pub extern "C" fn siltstone_set_rate_limit(db: Option<&Db>, bytes_per_second: u64) -> Option<Box<Error>> {
    answer(|| {
        open(db)?.set_rate_limit(bytes_per_second);
        Ok(())
    })
}
