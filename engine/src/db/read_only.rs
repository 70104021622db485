//! Opening for reading, also beside a process that writes.

use super::builder::Builder;
use super::claim::table_store;
use super::open::{Opened, Replaying, assemble, cache_for, default_of, events_of, open_stores, open_tables};
use super::{Db, Shared};
use crate::catalog::{Found, Replay, no_database, read_wal};
use crate::commit::Generations;
use crate::error::{Error, ErrorKind, Result};
use crate::storage::{Env, lock_dir};
use crate::version::Graveyard;
use crate::version::manifest::{self, Manifest};
use std::path::Path;
use std::sync::Arc;

impl Builder {
    /// Opens it for reading: as it is at this moment, without its lock, without changing a byte on disk. If
    /// another process writes to it, files that this removes meanwhile cause errors.
    pub fn open_read_only(mut self, dir: impl AsRef<Path>) -> Result<Db> {
        self.options.validate()?;
        if self.shared.is_some() || self.options.shared.is_some() {
            let message = "a shared database is opened for reading by a follower, which has no directory";
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
        let dir = self.absolute(dir.as_ref())?;
        self.env = self.env.bound_if_there(&dir)?;
        open_read_only(self, &dir)
    }
}

/// How often a read-only open begins again where a writer changes what it reads.
const READ_AGAIN: usize = 50;

/// Beside a writer, files vanish and grow between reading one and the next, which may look like damage. So an
/// error counts only if nothing was written meanwhile.
fn open_read_only(builder: Builder, dir: &Path) -> Result<Db> {
    let env = builder.env.clone();
    let mut failed = None;
    for _ in 0..READ_AGAIN {
        let before = manifest::load(&env, dir).ok().flatten().map(|loaded| loaded.mark);
        match open_read_only_once(builder.clone(), dir) {
            Err(e) if matches!(e.kind(), ErrorKind::Corruption | ErrorKind::Io | ErrorKind::NotFound) => {
                let after = manifest::load(&env, dir).ok().flatten().map(|loaded| loaded.mark);
                // A writer also writes to the WAL, which the manifest need not show.
                let rests = before == after && !is_locked(&env, dir);
                if rests || planted!(Bug::ReadOnlyOnce) {
                    return Err(e);
                }
                failed = Some(e);
            }
            opened => return opened,
        }
    }
    let why = failed.map_or(String::new(), |e| format!(" (last: {e})"));
    let message = format!("{} is being written to faster than it can be read{why}", dir.display());
    Err(Error::new(ErrorKind::Busy, message))
}

/// Whether somebody has the database open for writing, as far as that is visible without changing anything.
fn is_locked(env: &Env, dir: &Path) -> bool {
    lock_dir(&*env.storage, dir, false).is_err_and(|e| e.kind() == ErrorKind::Busy)
}

fn open_read_only_once(builder: Builder, dir: &Path) -> Result<Db> {
    let env = &builder.env;
    let Some(loaded) = manifest::load(env, dir)? else { return Err(no_database(env, dir)) };
    let mut state = loaded.state;
    let cache = cache_for(&builder.options);
    let (graveyard, generations) = (Arc::new(Graveyard::default()), Arc::new(Generations::default()));
    graveyard.logs.set_first(state.wal_first);
    let store = table_store(&builder, dir, false, &mut state)?.bound()?;
    let tables = open_tables(&builder, dir, store, &cache, &graveyard)?;
    let stores = open_stores(&builder, &state, &tables, &graveyard, &generations)?;
    let mut replay = Replay::new(&state, stores, &generations);
    let events = events_of(&builder, dir);
    let mut told = Replaying::new(&events, &*env.clock);
    let mark = Some(loaded.mark);
    let recovered =
        read_wal(env, dir, &state, mark, &mut |frame| replay.frame(frame), &mut |done, total| {
            told.progress(done, total);
        })?;
    let last_seq = replay.max_seq.max(recovered.max_seq.unwrap_or_default()).max(state.last_seq);
    let epoch = state.epoch;
    let manifest = Manifest::read_only(env, dir, loaded.mark, state);
    let stores = replay.finish();
    let wal_found = super::inspect::wal_listings(&recovered.files);
    let found = Found { stores, manifest, cache, tables, graveyard, epoch, offload: builder.offload.clone() };
    let (writing, lease) = (None, None);
    let opened = Opened { found, last_seq, wal_found, events, generations, writing, lease };
    let inner = assemble(builder, dir, opened);
    default_of(Shared::new(inner))
}
