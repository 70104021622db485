//! A local database that becomes a shared one, in steps, of which a kill may end any. Whoever runs them again
//! goes on. Until the step that decides they can be undone, and then the database is a local one again.
//!
//! | manifest | ids in the place | what there is |
//! |---|---|---|
//! | not marked | any | a local database; nothing has begun |
//! | marked with nonce x | none, or the newest is "undone"; none has x | a local database that nobody opens: the place is not reserved |
//! | marked with x | "moving" with x is the newest | the same; SSTables, WAL and state are on their way |
//! | marked with x | "undone" follows on "moving" with x | the same; it goes on under a new nonce, or loses its mark |
//! | marked with x | others, and the newest is not "undone" | the same; another copy of the directory, or another database, has the place |
//! | marked with x | "database" follows on "moving" with x | the shared database; what the directory holds is of no use any more |
//! | none, but `SHARED` | as above | the shared database, and its local part |
//!
//! The steps, and why in this order (`tests/models/src/adopt.rs` is their model):
//!
//! 1. No SSTable has values in the WAL: `db/adopt.rs` has them merged. Another machine has no such file.
//! 2. The manifest is marked. From now on no release writes to the directory.
//! 3. The place is reserved by an id with the mark's nonce, which is durable then: a command that goes on
//!    knows its own id, however it ended. Two copies of a directory have different SSTables of one name, so
//!    nothing is uploaded before: one copy reserves the place, and the other is refused.
//! 4. SSTables are uploaded under their names.
//! 5. An owner of the stream puts the bytes of the WAL's files, and then the manifest's state as a
//!    checkpoint, unless its recovery finds such a checkpoint with this mark. So the state is put once, and
//!    never over what a later owner wrote, even if somebody copied the marked directory.
//! 6. The id that follows on the one of step 3 names the database. That decides: undoing puts another one
//!    under the same name. Until then nobody opens the place.
//! 7. The directory's SSTables and WAL files go, it becomes a local part, and its manifest goes last: until
//!    then the mark tells what it is.

use super::local_part::mark_local_part;
use super::recover::{highest_manifest, read_wal};
use super::shared::{remove_wal_files, state_of, stream_of, tables_of};
use super::shared_id::{Move, probe};
use crate::cache::BlockCache;
use crate::error::{Error, ErrorKind, Result};
use crate::shape::TableInfo;
use crate::sstable::{self, Access, Sstable};
use crate::storage::{Env, NOTE, ObjectStore, TableStore, begins_with_number, copy_file, remove_own};
use crate::stream::{Outbox, Place, Recovered, Terms};
use crate::types::{LogFileId, LogPosition, SeqNo, TableId};
use crate::version::SharedMark;
use crate::version::edit::State;
use crate::version::manifest::{self, CURRENT, Loaded, Manifest};
use crate::wal::{self, WalFileInfo, still_kept};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// Bytes of a WAL file that are put together.
const PIECE: u64 = 8 << 20;
/// Footers and indices are read once.
const CACHE_BYTES: u64 = 4 << 20;

/// Told of bytes that are in the place: of which file, and how many.
pub(crate) type Advanced<'a> = &'a mut dyn FnMut(&str, u64);

/// A database, closed and locked, that moves to a place.
pub(crate) struct Adoption<'a> {
    pub(crate) env: &'a Env,
    pub(crate) dir: &'a Path,
    pub(crate) place: &'a Arc<dyn ObjectStore>,
    /// Where its SSTables lie.
    pub(crate) tables: TableStore,
    pub(crate) loaded: Loaded,
    /// The limit of its WAL.
    pub(crate) wal_limit: u64,
}

impl Adoption<'_> {
    /// Takes all steps that are left; returns how many bytes of SSTables were uploaded.
    pub(crate) fn run(mut self, advanced: Advanced<'_>) -> Result<u64> {
        let mut uploaded = 0;
        if self.reserve()? != Move::Done {
            uploaded = self.upload(advanced)?;
            self.share()?;
            self.decide()?;
        }
        self.clear()?;
        Ok(uploaded)
    }

    /// The SSTables that it has, each once.
    pub(crate) fn tables_in_use(&self) -> BTreeMap<TableId, Arc<TableInfo>> {
        let all = self.loaded.state.stores.values().flat_map(|store| store.shape.tables());
        all.map(|(_, _, info)| (info.id, info.clone())).collect()
    }

    fn database(&self) -> u64 {
        self.loaded.state.database
    }

    /// Marks the manifest, unless it is marked, and reserves the place.
    fn reserve(&mut self) -> Result<Move> {
        let marked = self.loaded.state.shared.as_ref().map(|mark| mark.nonce);
        let nonce = match marked {
            Some(nonce) if Move::find(&**self.place, nonce)? != Move::Undone => nonce,
            _ => self.mark()?,
        };
        let found = Move::begin(&**self.place, self.database(), nonce)?;
        kill_point!("adopt-reserved");
        match found {
            Move::Begun(_) | Move::Done => Ok(found),
            Move::Taken(by) => Err(self.taken(by)),
            Move::Free(_) | Move::Undone => Err(self.undone()),
        }
    }

    /// Marks the manifest, once it is known that nothing of the database is missing, and that the place is
    /// free and of a store that will do; returns the new nonce.
    fn mark(&mut self) -> Result<u64> {
        let nonce = self.env.random.next_u64();
        if let Move::Taken(by) = Move::find(&**self.place, nonce)? {
            return Err(self.taken(by));
        }
        probe(self.place, &*self.env.random)?;
        for info in self.tables_in_use().values() {
            if info.has_wal_values() {
                let table = self.tables.path(info.id);
                let message =
                    format!("{} has values in the WAL that no compaction took out", table.display());
                return Err(Error::new(ErrorKind::Unsupported, message));
            }
            self.check_table(&self.tables, info)?;
        }
        let Loaded { state, mark } = &self.loaded;
        read_wal(self.env, self.dir, state, Some(*mark), &mut |_| Ok(()), &mut |_, _| {})?;
        let shared = SharedMark { location: self.place.location(), nonce };
        self.loaded = write_manifest(self.env, self.dir, &self.loaded, Some(shared))?;
        kill_point!("adopt-marked");
        Ok(nonce)
    }

    /// Opens an SSTable, which compares it with the manifest's description.
    fn check_table(&self, tables: &TableStore, info: &Arc<TableInfo>) -> Result<()> {
        let (path, cache) = (tables.path(info.id), BlockCache::new(CACHE_BYTES));
        let access = Access { logs: Some((&*self.env.storage, self.dir)), ..Access::default() };
        Sstable::open_with(tables.storage(), &path, info.clone(), &cache, access).map(|_| ())
    }

    /// Uploads the SSTables that are not there; returns how many bytes.
    fn upload(&self, advanced: Advanced<'_>) -> Result<u64> {
        let to = TableStore::objects(tables_of(self.place, self.database()));
        to.claim(self.database(), true)?;
        let mut uploaded = 0;
        for info in self.tables_in_use().values() {
            let (from, path) = (self.tables.path(info.id), to.path(info.id));
            let name = info.id.file_name();
            // One of another copy of the directory, whose move was undone, has that copy's identity.
            if to.exists(info.id)? && self.check_table(&to, info).is_ok() {
                advanced(&name, info.bytes);
                continue;
            }
            to.storage().forget(&path);
            let (source, target) = (&**self.tables.storage(), &**to.storage());
            copy_file(source, &from, target, &path, info.bytes, &mut |bytes| advanced(&name, bytes))?;
            self.check_table(&to, info)?;
            uploaded += info.bytes;
            kill_point!("adopt-table-uploaded");
        }
        to.sync_names()?;
        Ok(uploaded)
    }

    /// Puts WAL and state into the stream, unless they are there.
    fn share(&self) -> Result<()> {
        let database = self.database();
        let stream = stream_of(self.place, database, &self.env.random);
        stream.create(u128::from(database), 0)?;
        let recovered = stream.recover(1, Terms { revision: 0, numbers_ahead: 0 })?;
        let (there, is_new) = state_of(&stream, &recovered, database)?;
        if there.shared == self.loaded.state.shared {
            return Ok(());
        }
        if !is_new && there.shared.is_none() {
            let name = stream.name(recovered.start.first);
            return Err(Error::invalid(format!("{name} is of a database that was in use there")));
        }
        let Recovered { writer, .. } = recovered;
        let claim = Place::new(writer.incarnation(), 0);
        let outbox = Arc::new(Outbox::new(
            Arc::new(writer),
            claim,
            (BTreeMap::new(), 0),
            self.wal_limit,
            &self.env.clock,
        ));
        let state = self.share_wal(&outbox)?;
        kill_point!("adopt-wal-shared");
        Manifest::start_shared(self.env, self.dir, &outbox, state)?;
        kill_point!("adopt-state-shared");
        Ok(())
    }

    /// Puts the WAL's files, those that are kept for streams of changes first; returns the state that goes
    /// with them.
    fn share_wal(&self, outbox: &Outbox) -> Result<State> {
        let Loaded { state, mark } = &self.loaded;
        let recovered = read_wal(self.env, self.dir, state, Some(*mark), &mut |_| Ok(()), &mut |_, _| {})?;
        let told = state.wal_retained.values().copied();
        let kept = still_kept(self.env, self.dir, state.database, told, u64::MAX);
        let last_seq = state.last_seq.max(recovered.max_seq.unwrap_or_default());
        for info in kept.iter().chain(&recovered.files) {
            self.share_file(outbox, info, last_seq)?;
        }
        let is_kept = |file: &LogFileId| kept.iter().any(|info| info.file == *file);
        let mut state = state.clone();
        Arc::make_mut(&mut state.wal_retained).retain(|file, _| is_kept(file));
        state.tables = TableStore::objects(tables_of(self.place, state.database)).location();
        Ok(state)
    }

    /// Puts the history in a WAL file.
    fn share_file(&self, outbox: &Outbox, info: &WalFileInfo, last_seq: SeqNo) -> Result<()> {
        let path = self.dir.join(wal::file_name(info.file));
        let failed = |e| Error::io("read", &path, e);
        let file = self.env.storage.open(&path).map_err(failed)?;
        let mut offset = 0;
        while offset < info.used {
            let mut piece = vec![0; (info.used - offset).min(PIECE) as usize];
            file.read_exact_at(&mut piece, offset).map_err(failed)?;
            outbox.wal(LogPosition { file: info.file, offset }, &piece, last_seq);
            outbox.ship()?;
            offset += piece.len() as u64;
        }
        Ok(())
    }

    /// Makes the place the database.
    fn decide(&self) -> Result<()> {
        let nonce = self.loaded.state.shared.as_ref().map_or(0, |mark| mark.nonce);
        let ended = Move::end(&**self.place, self.database(), nonce, &*self.env.random)?;
        kill_point!("adopt-decided");
        if ended == Move::Done { Ok(()) } else { Err(self.undone()) }
    }

    /// Makes the directory a local part, and removes what it does not need as such.
    fn clear(&self) -> Result<()> {
        let (env, dir, storage) = (self.env, self.dir, &*self.env.storage);
        for table in self.tables.list()? {
            let path = self.tables.path(table);
            let failed = |e| Error::io("remove", &path, e);
            let of_tables = &**self.tables.storage();
            if self.tables.is_far() || sstable::is_own_file(of_tables, &path).map_err(failed)? {
                self.tables.remove(table).map_err(failed)?;
            }
        }
        self.tables.sync_names()?;
        kill_point!("adopt-tables-removed");
        remove_wal_files(env, dir, self.database())?;
        manifest::free_reserve(env, dir);
        remove_own(storage, &dir.join(NOTE), begins_with_number);
        mark_local_part(env, dir, self.database(), &self.place.location())?;
        kill_point!("adopt-local-part");
        let current = dir.join(CURRENT);
        storage.remove(&current).map_err(|e| Error::io("remove", &current, e))?;
        storage.sync_dir(dir).map_err(|e| Error::io("sync the directory", dir, e))?;
        kill_point!("adopt-current-removed");
        remove_manifests(env, dir, self.database())
    }

    /// The error where the place is another's.
    fn taken(&self, by: u64) -> Error {
        let (dir, place) = (self.dir.display(), self.place.location());
        let mut message = match by == self.database() {
            true => format!("{place} is, or becomes, the database that another copy of {dir} was"),
            false => format!("{place} is, or becomes, another database"),
        };
        if self.loaded.state.shared.is_some() {
            message += &format!(
                ": `siltstone shared adopt {dir} {place} --undo` makes {dir} a local database again"
            );
        }
        Error::invalid(message)
    }

    fn undone(&self) -> Error {
        let message = format!("the move of {} was undone by another process", self.dir.display());
        Error::new(ErrorKind::Conflict, message)
    }
}

/// Undoes a move that has not come to the step that decides. The place has what was uploaded still, of which
/// the next move makes use.
///
/// # Errors
/// `Invalid` if the database is the shared one already.
pub(crate) fn undo_adoption(
    env: &Env,
    dir: &Path,
    place: &Arc<dyn ObjectStore>,
    loaded: &Loaded,
) -> Result<()> {
    let Some(mark) = &loaded.state.shared else { return Ok(()) };
    if !Move::undo(&**place, loaded.state.database, mark.nonce, &*env.random)? {
        let (dir, place) = (dir.display(), &mark.location);
        let message =
            format!("{dir} is the shared database in {place} already; run the command without --undo");
        return Err(Error::invalid(message));
    }
    kill_point!("adopt-undone");
    write_manifest(env, dir, loaded, None).map(|_| ())
}

/// Removes what a move has left of the manifests of a directory that is a local part.
pub(crate) fn remove_manifests(env: &Env, dir: &Path, database: u64) -> Result<()> {
    for number in manifest::numbers(env, dir)? {
        let path = dir.join(manifest::file_name(number));
        let failed = |e| Error::io("remove", &path, e);
        if manifest::is_own_manifest(&*env.storage, &path, Some(database)).map_err(failed)? {
            env.storage.remove(&path).map_err(failed)?;
        }
    }
    Ok(())
}

/// Replaces the manifest by one of the same state but for the mark.
fn write_manifest(env: &Env, dir: &Path, loaded: &Loaded, shared: Option<SharedMark>) -> Result<Loaded> {
    let number = highest_manifest(env, dir)?.max(loaded.mark.number) + 1;
    let state = State { shared, ..loaded.state.clone() };
    let manifest = Manifest::start(env, dir, number, state)?;
    Ok(Loaded { state: manifest.state().clone(), mark: manifest.mark() })
}
