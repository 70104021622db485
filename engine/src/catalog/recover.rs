//! Reading a directory and the WAL's history behind what its manifest knows.

use super::directory::NOTE_NEW;
use crate::error::{Error, Result};
use crate::event;
use crate::sstable;
use crate::storage::{Env, TableStore, begins_with_number, is_blank, remove_mark, remove_own};
use crate::types::{LogFileId, TableId};
use crate::version::edit::State;
use crate::version::manifest::{self, Mark};
use crate::wal::{self, Frame, RecoverOptions, Recovered, recover};
use std::collections::BTreeSet;
use std::path::Path;

/// Reads the WAL's history behind what the manifest knows, and checks from its notes that the manifest is
/// whole.
pub(crate) fn read_wal(
    env: &Env,
    dir: &Path,
    state: &State,
    mark: Option<Mark>,
    visit: &mut dyn FnMut(&Frame<'_>) -> Result<()>,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Recovered> {
    let options = RecoverOptions {
        database_id: state.database,
        first_file: state.wal_first,
        known_synced: state.wal_synced,
        ends: &state.wal_ends,
    };
    let recovered = recover(env, dir, &options, visit, progress)?;
    if let (Some(note), Some(mark)) = (recovered.note, mark)
        && (note.manifest, note.length) > (mark.number, mark.length)
    {
        let path = dir.join(manifest::file_name(mark.number));
        let message = format!(
            "manifest ends at byte {}, expected it to reach byte {} of manifest {}: the WAL knew of that much",
            mark.length, note.length, note.manifest
        );
        return Err(Error::corruption(path, mark.length, message));
    }
    Ok(recovered)
}

pub(crate) fn highest_manifest(env: &Env, dir: &Path) -> Result<u64> {
    let names = env.storage.list(dir).map_err(|e| Error::io("list", dir, e))?;
    Ok(names.iter().filter_map(|n| manifest::parse_file_name(n)).max().unwrap_or(0))
}

/// Removes WAL files that are no part of history. What cannot be removed now is tried again at the next open,
/// and a file with such a name but other bytes stays.
pub(crate) fn remove_orphans(env: &Env, dir: &Path, state: &State, recovered: &Recovered) {
    let needed = needed_wal_files(state);
    remove_mark(&*env.storage, dir);
    for file in recovered
        .stale
        .iter()
        .filter(|file| !needed.contains(file) || planted!(Bug::ForgetReferencedWalFiles))
    {
        let path = dir.join(wal::file_name(*file));
        if wal::is_own_file(&*env.storage, &path, Some(state.database)).is_ok_and(|own| own) {
            let _ = env.storage.remove(&path);
        }
    }
}

/// Removes what no manifest names: outputs of compactions that a crash ended. Safe while the manifest before
/// is in force.
pub(crate) fn remove_unnamed_tables(env: &Env, dir: &Path, tables: &TableStore, state: &State) {
    let named = state.stores.values().flat_map(|store| store.shape.tables());
    let live: BTreeSet<TableId> = named.map(|(_, _, table)| table.id).collect();
    // Only lower epochs: a higher one would be another owner's (invariant I5).
    let orphans = tables.list().unwrap_or_default();
    for id in orphans.into_iter().filter(|id| id.epoch < state.epoch && !live.contains(id)) {
        // Objects belong to the database whose number is in their place.
        let (storage, path) = (&**tables.storage(), tables.path(id));
        // An SSTable that lost its beginning may be all there is of its rows: a repair reads it.
        let is_lost = || {
            let is_blank = is_blank(storage, &path).unwrap_or(true);
            is_blank && sstable::ends_as_table(storage, &path).unwrap_or(true)
        };
        let is_own = || sstable::is_own_file(storage, &path).is_ok_and(|own| own) && !is_lost();
        if tables.is_far() || is_own() {
            let _ = tables.remove(id);
        }
    }
    manifest::remove_unfinished(env, dir);
    event::remove_unfinished(env, dir);
    remove_own(&*env.storage, &dir.join(NOTE_NEW), begins_with_number);
}

/// The WAL files that SSTables have values in.
pub(crate) fn needed_wal_files(state: &State) -> BTreeSet<LogFileId> {
    let tables = state.stores.values().flat_map(|store| store.shape.tables());
    tables.flat_map(|(_, _, table)| table.logs.iter().copied()).collect()
}
