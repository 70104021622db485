//! Taking over a shared database: from its place in shared storage to the manifest's state and local WAL
//! files, with which the open goes on as any other does.
//!
//! The stream alone decides what the database holds. The local directory is a cache that may be lost: it has
//! the WAL's files as the stream has their bytes, because streams of changes, the WAL's cleaning and backups
//! read them. So positions in the WAL mean the same on every machine, and the manifest can go on naming them;
//! only the stream's reader starts by places. What an earlier life of the directory logged beyond the stream
//! was never acknowledged, and is dropped.

use super::directory::refuse_occupied;
use super::local_part::{local_part, mark_local_part};
use super::shared_id::{SharedId, probe};
use crate::error::{Error, ErrorKind, Result};
use crate::lease::Claimed;
use crate::options::Options;
use crate::storage::{Env, Folder, ObjectStore, Random, WriteFile};
use crate::stream::{Begun, Entry, Item, Outbox, Place, Recovered, Stream, Terms, items};
use crate::types::{LogFileId, LogPosition};
use crate::version::edit::State;
use crate::version::manifest;
use crate::wal;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// A shared database that this process owns.
pub(crate) struct TakenOver {
    pub(crate) state: State,
    pub(crate) is_new: bool,
    pub(crate) outbox: Arc<Outbox>,
    /// Where the WAL ends, if the stream has any of it that is needed.
    pub(crate) wal_end: Option<LogPosition>,
    pub(crate) lease: Claimed,
}

/// Where a shared database keeps its SSTables.
pub(crate) fn tables_of(store: &Arc<dyn ObjectStore>, database: u64) -> Arc<dyn ObjectStore> {
    Folder::of(store, &format!("t/{database:016x}"))
}

/// The stream of the database with that number.
pub(super) fn stream_of(store: &Arc<dyn ObjectStore>, database: u64, random: &Arc<dyn Random>) -> Stream {
    Stream::new(store.clone(), format!("d/{database:016x}"), random.clone())
}

/// Takes the database in that place over, or creates it; `dir`, which is locked and bound to `env`, is its
/// local part. `claim` ends the lease of the owner before, or waits for its end.
pub(crate) fn take_over(
    env: &Env,
    dir: &Path,
    store: &Arc<dyn ObjectStore>,
    options: &Options,
    claim: &mut dyn FnMut(&Env) -> Result<Claimed>,
) -> Result<TakenOver> {
    let found = SharedId::find(&**store)?;
    check_local_part(env, dir, found.as_ref().map(SharedId::number))?;
    // What a creation left that a crash ended is no database yet, and nobody's to be disturbed.
    let exists = match &found {
        Some(id) => stream_of(store, id.number(), &env.random).is_written()?,
        None => false,
    };
    if exists && options.error_if_exists {
        return Err(Error::invalid(format!("{} holds a database already", store.location())));
    }
    if !exists && !options.create_if_missing {
        let message = format!("{} holds no shared database", store.location());
        return Err(Error::new(ErrorKind::NotFound, message));
    }
    probe(store, &*env.random)?;
    let id = match found {
        Some(id) => id,
        None => create(env, store)?,
    };
    let database = id.number();
    check_local_part(env, dir, Some(database))?;
    mark_local_part(env, dir, database, &store.location())?;
    let stream = stream_of(store, database, &env.random);
    let (lease, recovered) = loop {
        let lease = claim(env)?;
        if lease.has_waited() {
            // Its format may be a newer one by now.
            SharedId::find(&**store)?;
        }
        let recovered = stream.recover(1, Terms { revision: 0, numbers_ahead: 0 })?;
        // Of several that are at it together, the one that comes last here has both.
        if lease.is_newest()? {
            break (lease, recovered);
        }
    };
    let owned = recovered.writer.incarnation();
    let taken = take_in(env, dir, database, lease, recovered, &stream, options.wal_limit());
    taken.map_err(|e| match stream.is_claimed(owned + 1) {
        // What is missing another has collected.
        Ok(true) => Error::new(ErrorKind::Busy, format!("another process took the database over: {e}")),
        _ => e,
    })
}

/// Makes the place a database. Its stream comes before its id, so where there is an id a missing stream is
/// damage, and never begun anew.
fn create(env: &Env, store: &Arc<dyn ObjectStore>) -> Result<SharedId> {
    let database = env.random.next_u64() | 1;
    stream_of(store, database, &env.random).create(u128::from(database), 0)?;
    SharedId::create(&**store, database, &*env.random)
}

/// Reads what the new owner of the stream begins with.
fn take_in(
    env: &Env,
    dir: &Path,
    database: u64,
    lease: Claimed,
    recovered: Recovered,
    stream: &Stream,
    wal_limit: u64,
) -> Result<TakenOver> {
    let (mut state, is_new) = state_of(stream, &recovered, database)?;
    // It has moved here (`adopt`).
    state.shared = None;
    let first = state.wal_oldest();
    let (files, wal_end) = write_wal_files(env, dir, database, &recovered.entries, first, stream)?;
    let claim = Place::new(recovered.writer.incarnation(), 0);
    let begun = (files, recovered.entries.len() as u64);
    let outbox = Arc::new(Outbox::new(Arc::new(recovered.writer), claim, begun, wal_limit, &env.clock));
    Ok(TakenOver { state, is_new, outbox, wal_end, lease })
}

/// The manifest's state as the stream has it, and whether nothing was ever recorded.
pub(super) fn state_of(stream: &Stream, recovered: &Recovered, database: u64) -> Result<(State, bool)> {
    let mut state = State::default();
    let mut is_new = true;
    if let Some(place) = recovered.start.checkpoint {
        let name = stream.checkpoint_name(place);
        let missing = || Error::corruption(&name, 0, "checkpoint is missing, expected it by the stream");
        let payload = stream.checkpoint(place)?.ok_or_else(missing)?;
        manifest::apply_encoded(&mut state, &payload).map_err(|why| Error::corruption(&name, 0, why))?;
        is_new = false;
    }
    let checkpoint = recovered.start.checkpoint;
    for (place, entry) in recovered.entries.iter().filter(|(place, _)| checkpoint < Some(*place)) {
        for item in items_of(stream, *place, entry) {
            if let Item::Edit(payload) = item? {
                let wrong = |why| Error::corruption(stream.name(*place), 0, why);
                manifest::apply_encoded(&mut state, payload).map_err(wrong)?;
                is_new = false;
            }
        }
    }
    if is_new {
        state.database = database;
    }
    if state.database != database {
        let name = stream.name(recovered.start.first);
        return Err(Error::corruption(name, 0, "stream is of another database"));
    }
    Ok((state, is_new))
}

/// The items of an entry; the error of one that is damaged names the object.
pub(super) fn items_of<'e>(
    stream: &Stream,
    place: Place,
    entry: &'e Entry,
) -> impl Iterator<Item = Result<Item<'e>>> + use<'e> {
    let name = stream.name(place);
    items(&entry.payload).map(move |item| item.map_err(|e| Error::corruption(&name, 0, e.0)))
}

/// Replaces the directory's WAL files by what the stream has of those from `first` on. Returns the entries in
/// which they begin, and where the last one ends.
fn write_wal_files(
    env: &Env,
    dir: &Path,
    database: u64,
    entries: &[(Place, Entry)],
    first: LogFileId,
    stream: &Stream,
) -> Result<(BTreeMap<LogFileId, Begun>, Option<LogPosition>)> {
    remove_wal_files(env, dir, database)?;
    let mut begun = BTreeMap::new();
    let mut open: Option<(LogPosition, Box<dyn WriteFile>)> = None;
    for (before, (place, entry)) in entries.iter().enumerate() {
        for item in items_of(stream, *place, entry) {
            let Item::Wal(at, bytes) = item? else { continue };
            if at.file < first {
                continue;
            }
            let path = dir.join(wal::file_name(at.file));
            let failed = |e| Error::io("write", &path, e);
            let (end, file) = match &mut open {
                Some((end, file)) if *end == at => (end, file),
                _ if at.offset == 0 => {
                    begun.insert(at.file, Begun { place: *place, entries: before as u64 });
                    let file = env.storage.create(&path).map_err(failed)?;
                    let (end, file) = open.insert((at, file));
                    (end, file)
                }
                _ => {
                    let what = format!("WAL goes on at {at}, and what is before is missing");
                    return Err(Error::corruption(stream.name(*place), 0, what));
                }
            };
            file.write(bytes).map_err(failed)?;
            end.offset += bytes.len() as u64;
        }
    }
    Ok((begun, open.map(|(end, _)| end)))
}

/// Removes the WAL files of the directory's earlier lives.
pub(super) fn remove_wal_files(env: &Env, dir: &Path, database: u64) -> Result<()> {
    let names = env.storage.list(dir).map_err(|e| Error::io("list", dir, e))?;
    for name in names.iter().filter(|name| wal::parse_file_name(name).is_some()) {
        let path = dir.join(name);
        let failed = |e| Error::io("remove", &path, e);
        if !wal::is_own_file(&*env.storage, &path, Some(database)).map_err(failed)? {
            return Err(Error::invalid(format!("{} is of no part of this database", path.display())));
        }
        env.storage.remove(&path).map_err(failed)?;
    }
    Ok(())
}

/// Refuses a directory that is neither empty nor the local part of that database.
fn check_local_part(env: &Env, dir: &Path, database: Option<u64>) -> Result<()> {
    // One that is moving there says so.
    let is_local = manifest::load(env, dir)?.is_some();
    let Some((number, location)) = local_part(env, dir)? else {
        if is_local {
            let message = format!(
                "{} holds a database of its own; a shared one needs an absent or empty directory, or `siltstone \
                 shared adopt` moves it",
                dir.display()
            );
            return Err(Error::invalid(message));
        }
        return refuse_occupied(env, dir);
    };
    if manifest::current(env, dir)?.is_some() {
        let message = format!(
            "{} is the local part of a shared database and holds one of its own, too: move it away",
            dir.display()
        );
        return Err(Error::invalid(message));
    }
    if Some(number) == database {
        return Ok(());
    }
    let message = format!("{} is the local part of another shared database, in {location}", dir.display());
    Err(Error::invalid(message))
}
