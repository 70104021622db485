//! What lies in a directory, and the log's history behind what its manifest knows.

use crate::error::{Error, ErrorKind, Result};
use crate::log::{Frame, RecoverOptions, Recovered, recover};
use crate::storage::{Env, TableStore};
use crate::types::{LogFileId, TableId};
use crate::version::edit::State;
use crate::version::manifest::{self, Mark};
use std::collections::BTreeSet;
use std::path::Path;

/// Why there is nothing to open: what lies there tells whether a database lost its `CURRENT`.
pub(crate) fn no_database(env: &Env, dir: &Path) -> Error {
    let nothing = || Error::new(ErrorKind::NotFound, format!("{} holds no database", dir.display()));
    match refuse_leftovers(env, dir) {
        Err(e) if e.kind() == ErrorKind::Corruption => e,
        _ => nothing(),
    }
}

/// A directory without `CURRENT` but with manifests or tables is a damaged database, not an empty place. (What a
/// crash during creation leaves is one manifest and no table or log.)
pub(crate) fn refuse_leftovers(env: &Env, dir: &Path) -> Result<()> {
    let names = env.storage.list(dir).map_err(|e| Error::io("list", dir, e))?;
    // One that somebody has made since it was looked for is none without a `CURRENT`.
    if names.iter().any(|name| name == "CURRENT") {
        return Ok(());
    }
    let has = |what: fn(&str) -> bool| names.iter().find(|name| what(name));
    let left = has(|n| TableId::parse_file_name(n).is_some())
        .or_else(|| has(|n| crate::log::parse_file_name(n).is_some()))
        .or_else(|| has(|n| manifest::parse_file_name(n).is_some_and(|number| number > 1)));
    match left {
        None => Ok(()),
        Some(name) => {
            let message = format!("CURRENT is missing, expected it beside {name}");
            Err(Error::corruption(dir.join("CURRENT"), 0, message))
        }
    }
}

/// Reads the log's history behind what the manifest knows, and checks from its notes that the manifest is whole.
pub(crate) fn read_log(
    env: &Env,
    dir: &Path,
    state: &State,
    mark: Option<Mark>,
    visit: &mut dyn FnMut(&Frame<'_>) -> Result<()>,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Recovered> {
    let options = RecoverOptions {
        database_id: state.database,
        first_file: state.log_first,
        known_synced: state.log_synced,
        ends: &state.log_ends,
    };
    let recovered = recover(env, dir, &options, visit, progress)?;
    if let (Some(note), Some(mark)) = (recovered.note, mark)
        && (note.manifest, note.length) > (mark.number, mark.length)
    {
        let path = dir.join(manifest::file_name(mark.number));
        let message = format!(
            "manifest ends at byte {}, expected it to reach byte {} of manifest {}: the log knew of that much",
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

/// Removes what no manifest names: outputs of merges that a crash ended, logs that are no part of history. What
/// cannot be removed now is tried again at the next open.
pub(crate) fn remove_orphans(
    env: &Env,
    dir: &Path,
    tables: &TableStore,
    state: &State,
    recovered: &Recovered,
) {
    let needed = needed_logs(state);
    remove_unnamed_tables(env, dir, tables, state);
    for file in
        recovered.stale.iter().filter(|file| !needed.contains(file) || planted!(Bug::ForgetShelvedLogs))
    {
        let _ = env.storage.remove(&dir.join(crate::log::file_name(*file)));
    }
}

/// The part of it that can be done while the manifest before is in force.
pub(crate) fn remove_unnamed_tables(env: &Env, dir: &Path, tables: &TableStore, state: &State) {
    let named = state.stores.values().flat_map(|store| store.shape.tables());
    let live: BTreeSet<TableId> = named.map(|(_, _, table)| table.id).collect();
    // Only lower epochs: a higher one would be another owner's (invariant I5).
    let orphans = tables.list().unwrap_or_default();
    for id in orphans.into_iter().filter(|id| id.epoch < state.epoch && !live.contains(id)) {
        let _ = tables.remove(id);
    }
    for name in env.storage.list(dir).unwrap_or_default().iter().filter(|name| name.ends_with(".new")) {
        let _ = env.storage.remove(&dir.join(name));
    }
}

/// The log files that tables have values in.
pub(crate) fn needed_logs(state: &State) -> BTreeSet<LogFileId> {
    let tables = state.stores.values().flat_map(|store| store.shape.tables());
    tables.flat_map(|(_, _, table)| table.logs.iter().copied()).collect()
}
