//! The claim on a directory: its lock, what it may hold where a database is to be created, and the place of
//! the SSTables.

use super::builder::Builder;
use crate::catalog::{
    NOTE_NEW, TakenOver, local_part, no_database, refuse_local_part, refuse_occupied, take_over,
};
use crate::error::{Error, ErrorKind, Result};
use crate::lease::{ClaimEnv, Claimed};
use crate::options::SstableReads;
use crate::storage::{
    DirLock, Env, LOCK_FILE, NOTE, ObjectStore, SMALL_FILE_BYTES, TableStore, begins_with_number,
    create_dir_durably, create_over_own, lock_dir, mark_begun, read_file,
};
use crate::version::edit::State as ManifestState;
use crate::version::manifest::{self, Mark};
use std::path::Path;
use std::sync::Arc;

/// How often an open begins again where the directory is removed or replaced meanwhile.
const LOCK_AGAIN: usize = 10;

/// Takes the directory's lock and reads the manifest, or makes the state of a new database. The builder's
/// storage is bound to the directory then.
pub(super) fn lock_and_load(
    builder: &mut Builder,
    dir: &Path,
) -> Result<(DirLock, ManifestState, Option<Mark>)> {
    let lock = lock_in(builder, dir, &directory_for)?;
    let env = &builder.env;
    // Read again under the lock: another process may have been here.
    let (state, mark) = match manifest::load(env, dir)? {
        Some(loaded) => (loaded.state, Some(loaded.mark)),
        None => {
            refuse_occupied(env, dir)?;
            (ManifestState { database: env.random.next_u64() | 1, ..ManifestState::default() }, None)
        }
    };
    check_direct_reads(builder, dir)?;
    Ok((lock, state, mark))
}

/// How a process comes to have a shared database: at once, or as a standby.
pub(super) type Claim<'a> = dyn FnMut(&ClaimEnv<'_>) -> Result<Claimed> + 'a;

/// Takes the directory's lock and the shared database in that place. The builder's storage is bound to the
/// directory then.
pub(super) fn lock_and_take_over(
    builder: &mut Builder,
    dir: &Path,
    place: &Arc<dyn ObjectStore>,
    claim: &mut Claim<'_>,
) -> Result<(DirLock, TakenOver)> {
    let create = |builder: &Builder, dir: &Path| {
        let storage = &*builder.env.storage;
        create_dir_durably(storage, dir).map_err(|e| Error::io("create the directory", dir, e))?;
        builder.env.bound_to(dir)
    };
    let lock = lock_in(builder, dir, &create)?;
    let scheduler = (builder.scheduler)();
    let pause = |ns| scheduler.pause(ns);
    let mut claim = |env: &Env| claim(&ClaimEnv { env, store: place, pause: &pause });
    let taken = take_over(&builder.env, dir, place, &builder.options, &mut claim)?;
    Ok((lock, taken))
}

/// Takes the lock of a directory that holds a database or was one. The builder's storage is bound to it then.
pub(super) fn lock_to_adopt(builder: &mut Builder, dir: &Path) -> Result<DirLock> {
    let find = |builder: &Builder, dir: &Path| {
        let unbound = &builder.env;
        if !unbound.storage.exists(dir).map_err(|e| Error::io("look for", dir, e))? {
            return Err(Error::new(ErrorKind::NotFound, format!("{} holds no database", dir.display())));
        }
        let env = unbound.bound_to(dir)?;
        match manifest::current(&env, dir)?.is_some() || local_part(&env, dir)?.is_some() {
            true => Ok(env),
            false => Err(no_database(&env, dir)),
        }
    };
    lock_in(builder, dir, &find)
}

/// Fails where SSTables are to be read directly and cannot be. Before any is there to be refused.
fn check_direct_reads(builder: &Builder, dir: &Path) -> Result<()> {
    if builder.options.sstable_reads == SstableReads::Direct {
        let path = dir.join(LOCK_FILE);
        builder.env.storage.open_direct(&path).map_err(|e| Error::io("read directly", &path, e))?;
    }
    Ok(())
}

/// Binds the builder's storage to the directory, as `directory` finds or makes it, and takes its lock.
fn lock_in(
    builder: &mut Builder,
    dir: &Path,
    directory: &dyn Fn(&Builder, &Path) -> Result<Env>,
) -> Result<DirLock> {
    for _ in 0..LOCK_AGAIN {
        let env = directory(builder, dir)?;
        let lock = match lock_dir(&*env.storage, dir, true) {
            Ok(lock) => lock.expect("its file is made"),
            Err(_) if !is_there_still(&env, dir)? => continue,
            Err(e) => return Err(e),
        };
        // The last owner may have deleted the directory, or given its name to another one.
        if !is_there_still(&env, dir)? {
            continue;
        }
        builder.env = env;
        return Ok(lock);
    }
    Err(Error::new(ErrorKind::Busy, format!("{} is removed or replaced again and again", dir.display())))
}

fn is_there_still(env: &Env, dir: &Path) -> Result<bool> {
    env.storage.is_bound_still(dir).map_err(|e| Error::io("look for", dir, e))
}

/// The environment bound to the directory, which is made where there is none and one is to be made. Until it
/// is known that a database lies there, or may be made there, nothing is touched.
fn directory_for(builder: &Builder, dir: &Path) -> Result<Env> {
    let (options, unbound) = (&builder.options, &builder.env);
    let is_there = unbound.storage.exists(dir).map_err(|e| Error::io("look for", dir, e))?;
    let env = if is_there { unbound.bound_to(dir)? } else { unbound.clone() };
    if is_there {
        refuse_local_part(&env, dir)?;
    }
    if manifest::current(&env, dir)?.is_some() {
        if options.error_if_exists {
            return Err(Error::invalid(format!("{} holds a database already", dir.display())));
        }
        return Ok(env);
    }
    if is_there {
        if !options.create_if_missing {
            return Err(no_database(&env, dir));
        }
        refuse_occupied(&env, dir)?;
    } else if !options.create_if_missing {
        return Err(Error::new(ErrorKind::NotFound, format!("{} holds no database", dir.display())));
    }
    builder.place(dir)?.refuse_others()?;
    create_dir_durably(&*unbound.storage, dir).map_err(|e| Error::io("create the directory", dir, e))?;
    unbound.bound_to(dir)
}

/// The place of the SSTables: the manifest's, or the builder's if the database is new and its directory
/// marked.
pub(super) fn table_store(
    builder: &Builder,
    dir: &Path,
    is_new: bool,
    state: &mut ManifestState,
) -> Result<TableStore> {
    if is_new {
        mark_begun(&*builder.env.storage, dir).map_err(|e| Error::io("create a file in", dir, e))?;
        let store = builder.place(dir)?;
        state.tables = store.location();
        if !state.tables.is_empty() {
            state.database = number_to_claim_by(&builder.env, dir, state.database, &state.tables)?;
        }
        return Ok(store);
    }
    match builder.place(dir)? {
        store if store.location() == state.tables => Ok(store),
        store if store.location().is_empty() => {
            TableStore::at(&state.tables, &builder.env.storage, dir, builder.stores.as_deref())
        }
        store => {
            let there = if state.tables.is_empty() { "its own directory" } else { &state.tables };
            let (dir, said) = (dir.display(), store.location());
            Err(Error::invalid(format!("the tables of {dir} lie in {there}, not in {said}")))
        }
    }
}

/// The number of a database that is being created. It is noted before the place of its SSTables is claimed by
/// it, so that a creation that a crash ended can be begun again. The note stays, for a repair that finds no
/// manifest.
fn number_to_claim_by(env: &Env, dir: &Path, drawn: u64, tables: &str) -> Result<u64> {
    let path = dir.join(NOTE);
    let mut number = drawn;
    if env.storage.exists(&path).map_err(|e| Error::io("look for", &path, e))? {
        let noted = read_file(env, &path, SMALL_FILE_BYTES)?;
        let text = std::str::from_utf8(&noted).unwrap_or_default();
        if let Some((noted, rest)) = text.split_once('\n')
            && rest.strip_suffix('\n') == Some(tables)
            && let Ok(noted) = u64::from_str_radix(noted, 16)
        {
            number = noted;
        }
    }
    // Also where it is there: the creation that wrote it may have ended before it was durable.
    let failed = |e| Error::io("write", &path, e);
    let new = dir.join(NOTE_NEW);
    let mut file = create_over_own(&*env.storage, &new, begins_with_number).map_err(failed)?;
    file.write(format!("{number:016x}\n{tables}\n").as_bytes()).and_then(|()| file.sync()).map_err(failed)?;
    env.storage.rename(&new, &path).map_err(failed)?;
    env.storage.sync_dir(dir).map_err(failed)?;
    Ok(number)
}
