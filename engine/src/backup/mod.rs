//! Backups: several states of one database in a directory of their own, which may be on another file system.
//!
//! A backup is a descriptor (`descriptor.rs`) that names files beside it: a manifest, copies of WAL files up
//! to the moment, and SSTables. SSTables never change, so those that an earlier backup of the directory has
//! are named again instead of copied. Every file carries the number of the backup that copied it in its name,
//! so no file is ever written over, and two databases that grew out of one (a backup restored and written to)
//! can share a directory though their SSTables have equal names. The descriptor comes last, by rename: before
//! it nothing of the backup is visible, and the next backup removes what no descriptor names.
//!
//! - `making.rs`: writes a backup's files. `db/backup.rs` decides what is copied, and when.
//! - `restore.rs`: makes a database of a backup, and checks every byte on the way.
//! - `copy.rs`: brings a backup from one directory to another.
//!
//! The directory may be an object store. There are no locks there: the caller must be the only one that uses
//! it.
//!
//! This folder knows no open database.

mod copy;
mod descriptor;
mod making;
mod restore;

#[cfg(any(test, feature = "testing"))]
pub(crate) use descriptor::forge;

pub(crate) use descriptor::Descriptor;
pub(crate) use making::Making;

use crate::error::{Error, ErrorKind, Result};
use crate::sstable;
use crate::storage::{
    BEGUN, DirLock, Env, LOST_AND_FOUND, Maker, ObjectFiles, ObjectStore, Storage, is_blank, is_mark,
    is_own_lock, lock_dir, maker, mark_begun, read_file, remove_mark,
};
use crate::sync::Mutex;
use crate::types::SeqNo;
use crate::version::manifest;
use crate::wal;
use serde::Serialize;
use std::cell::LazyCell;
use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// One backup.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// let db = siltstone::Db::open(dir.path().join("db"))?;
/// db.put(b"k", b"v")?;
/// let backup = db.backup(dir.path().join("backups"))?;
/// assert_eq!((backup.id, backup.seq), (1, db.snapshot().seq()));
/// # Ok::<(), siltstone::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct BackupInfo {
    /// Its number in its directory; later ones have higher.
    pub id: u64,
    /// It holds exactly the writes up to this one.
    pub seq: SeqNo,
    /// Wall-clock microseconds of that moment.
    pub created_us: u64,
    /// SSTables in it.
    pub tables: u64,
    /// Bytes of all its files.
    pub bytes: u64,
    /// Bytes of those that were copied for it; the others it shares with earlier backups.
    pub copied_bytes: u64,
}

/// The maker of a file of the directory, judged as the kind of file that `name` says it is. It may be of any
/// database.
fn maker_of_stored(storage: &dyn Storage, path: &Path, name: &str) -> io::Result<Maker> {
    let is_own = match name {
        descriptor::MANIFEST => manifest::is_own_manifest(storage, path, None),
        _ if wal::parse_file_name(name).is_some() => wal::is_own_file(storage, path, None),
        _ => sstable::is_own_file(storage, path),
    };
    match is_own? {
        true if is_blank(storage, path)? => Ok(Maker::Unknown),
        true => Ok(Maker::Us),
        false => Ok(Maker::Other),
    }
}

/// A directory of backups, made by [`Db::backup`](crate::Db::backup).
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// use siltstone::{Backups, Db, storage::Env};
/// let db = Db::open(dir.path().join("db"))?;
/// for n in 0..5u8 {
///     db.put(b"n", &[n])?;
///     db.backup(dir.path().join("backups"))?;
/// }
/// let backups = Backups::new(&Env::local(), dir.path().join("backups"));
/// backups.keep_last(2)?;
/// assert_eq!(backups.list()?.iter().map(|b| b.id).collect::<Vec<_>>(), [4, 5]);
/// backups.restore(Some(4), dir.path().join("restored"), &mut |_| {})?;
/// assert_eq!(Db::open(dir.path().join("restored"))?.get(b"n")?.unwrap(), [3]);
/// # Ok::<(), siltstone::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Backups {
    /// Environment of the directory that holds the backups.
    env: Env,
    pub(crate) dir: PathBuf,
    /// Environment in which databases are restored.
    local: Env,
    /// The numbers of backups that are in the object store whatever a listing says, until they are removed
    /// here; `None` for a directory.
    known: Option<Arc<Mutex<Vec<u64>>>>,
}

impl Backups {
    /// The backups in a directory, of which nothing is read yet.
    pub fn new(env: &Env, dir: impl AsRef<Path>) -> Self {
        Self { env: env.clone(), dir: dir.as_ref().to_path_buf(), local: env.clone(), known: None }
    }

    /// The backups in an object store; nothing is asked of it yet. There are no locks: nobody else may make
    /// or remove any there meanwhile. A listing may be older than what was put, so `known` has the numbers of
    /// all backups that the caller knows of. Their files stay until this value or a clone of it removes those
    /// backups. Databases are restored into local directories.
    pub fn in_object_store(store: Arc<dyn ObjectStore>, known: &[u64]) -> Self {
        let (dir, local) = (PathBuf::from(store.location()), Env::local());
        let env = Env { storage: Arc::new(ObjectFiles(store)), ..local.clone() };
        Self { env, dir, local, known: Some(Arc::new(Mutex::new(known.to_vec()))) }
    }

    fn are_objects(&self) -> bool {
        self.known.is_some()
    }

    /// Takes the directory's lock; an object store has none.
    fn lock(&self, create: bool) -> Result<Option<DirLock>> {
        if self.are_objects() { Ok(None) } else { lock_dir(&*self.env.storage, &self.dir, create) }
    }

    fn is_there(&self) -> Result<bool> {
        let exists = || self.env.storage.exists(&self.dir).map_err(|e| Error::io("look for", &self.dir, e));
        if self.are_objects() { Ok(true) } else { exists() }
    }

    /// The whole backups, oldest first. One whose descriptor is damaged is an error that names it.
    pub fn list(&self) -> Result<Vec<BackupInfo>> {
        let read = |id| self.read(id).map(|descriptor| descriptor.info());
        self.ids()?.into_iter().map(read).collect()
    }

    /// The numbers of all backups, ascending, by the names of their descriptors: one that is damaged is among
    /// them. A directory that is not there holds none.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// use siltstone::{Backups, Db, storage::Env};
    /// let db = Db::open(dir.path().join("db"))?;
    /// (0..3).try_for_each(|_| db.backup(dir.path().join("backups")).map(drop))?;
    /// let backups = Backups::new(&Env::local(), dir.path().join("backups"));
    /// backups.delete_all(&[1, 3, 7])?;
    /// assert_eq!(backups.ids()?, [2]);
    /// # Ok::<(), siltstone::Error>(())
    /// ```
    pub fn ids(&self) -> Result<Vec<u64>> {
        let mut ids: Vec<u64> =
            self.names()?.iter().filter_map(|name| descriptor::parse_file_name(name)).collect();
        if let Some(known) = &self.known {
            ids.extend(known.lock().iter());
        }
        ids.sort_unstable();
        ids.dedup();
        Ok(ids)
    }

    /// Removes a backup, and the files that no other names.
    pub fn delete(&self, id: u64) -> Result<()> {
        let _lock = self.lock(false)?;
        if !self.ids()?.contains(&id) {
            return Err(self.no_backup(id));
        }
        self.remove(&[id])
    }

    /// Removes several backups, and then in one pass the files that no other backup names, including those
    /// that a failed call has left. Backups that do not exist are passed over.
    pub fn delete_all(&self, ids: &[u64]) -> Result<()> {
        let _lock = self.lock(false)?;
        let mut there = self.ids()?;
        there.retain(|id| ids.contains(id));
        if there.is_empty() { self.clean() } else { self.remove(&there) }
    }

    /// Removes all but the newest `count` backups, and the files that those do not name; the numbers of those
    /// removed.
    pub fn keep_last(&self, count: usize) -> Result<Vec<u64>> {
        if count == 0 {
            return Err(Error::invalid("at least one backup is kept; delete the directory to have none"));
        }
        let _lock = self.lock(false)?;
        let mut ids = self.ids()?;
        ids.truncate(ids.len().saturating_sub(count));
        self.remove(&ids)?;
        Ok(ids)
    }

    /// The descriptors go first, durably: a backup without some of its files must never be seen.
    fn remove(&self, ids: &[u64]) -> Result<()> {
        if ids.is_empty() {
            return Ok(());
        }
        // Without a descriptor, blank files of theirs are known by the mark alone.
        let removes_all = !self.are_objects() && self.ids()?.iter().all(|id| ids.contains(id));
        if removes_all {
            mark_begun(&*self.env.storage, &self.dir)
                .map_err(|e| Error::io("create a file in", &self.dir, e))?;
        }
        for id in ids {
            let path = self.dir.join(descriptor::file_name(*id));
            self.env.storage.remove(&path).map_err(|e| Error::io("remove", &path, e))?;
            if let Some(known) = &self.known {
                known.lock().retain(|known| known != id);
            }
        }
        self.sync_dir()?;
        kill_point!("backup-descriptors-removed");
        self.clean()?;
        if removes_all {
            remove_mark(&*self.env.storage, &self.dir);
        }
        Ok(())
    }

    /// A directory with other things and no backup is surely not the one that was meant.
    fn refuse_other_things(&self) -> Result<()> {
        let storage = &*self.env.storage;
        let names = storage.list_all(&self.dir).map_err(|e| Error::io("list", &self.dir, e))?;
        let has_descriptor = names.iter().any(|name| descriptor::parse_file_name(name).is_some());
        if has_descriptor && self.are_ours(&names) {
            return Ok(());
        }
        let is_begun = LazyCell::new(|| self.is_begun(&names));
        let is_ours = |name: &str| {
            let is_empty = is_own_lock(storage, &self.dir, name).is_ok_and(|own| own)
                || is_mark(storage, &self.dir, name).is_ok_and(|mark| mark);
            is_empty || name == LOST_AND_FOUND || self.is_left(name, || *is_begun)
        };
        match names.iter().find(|name| !is_ours(name)) {
            Some(name) => {
                let dir = self.dir.display();
                Err(Error::invalid(format!("{dir} holds no backups but other things (`{name}`)")))
            }
            None => Ok(()),
        }
    }

    /// Whether a file's bytes show that backups lie here: a descriptor, or, if that is damaged, a file copied
    /// for one.
    fn are_ours(&self, names: &[String]) -> bool {
        let is_descriptor = |name: &&String| descriptor::parse_file_name(name).is_some();
        let is_stored = |name: &&String| descriptor::stored_of(name).is_some();
        let told = names.iter().filter(is_descriptor).chain(names.iter().filter(is_stored));
        told.into_iter().any(|name| self.maker(name) == Maker::Us)
    }

    /// Whether a blank file under a name of ours is ours.
    fn is_begun(&self, names: &[String]) -> bool {
        names.iter().any(|name| name == BEGUN) || self.are_ours(names)
    }

    /// Whether a file may be left of an unfinished or deleted backup, by its name and its bytes.
    fn is_left(&self, name: &str, is_begun: impl FnOnce() -> bool) -> bool {
        descriptor::parse_file_name(name).is_none() && self.maker(name).is_ours(is_begun)
    }

    /// The maker of a file with a name that backups use.
    fn maker(&self, name: &str) -> Maker {
        let (storage, path) = (&*self.env.storage, self.dir.join(name));
        let maker = match descriptor::stored_of(name) {
            Some(stored) => maker_of_stored(storage, &path, stored),
            None if descriptor::number_in(name).is_some() => maker(storage, &path, descriptor::begins),
            None => Ok(Maker::Other),
        };
        maker.unwrap_or(Maker::Other)
    }

    fn names(&self) -> Result<Vec<String>> {
        if !self.is_there()? {
            return Ok(Vec::new());
        }
        self.env.storage.list(&self.dir).map_err(|e| Error::io("list", &self.dir, e))
    }

    fn read(&self, id: u64) -> Result<Descriptor> {
        let path = self.dir.join(descriptor::file_name(id));
        let bytes = read_file(&self.env, &path, descriptor::DESCRIPTOR_BYTES_MAX)?;
        Descriptor::decode(&bytes, id, &path)
    }

    /// Removes the files of backups that no descriptor names: those of deleted ones, and of one that never
    /// came to its end. As long as a descriptor cannot be read nothing is removed, since it may name
    /// anything.
    fn clean(&self) -> Result<()> {
        let read: Result<Vec<Descriptor>> = self.ids()?.into_iter().map(|id| self.read(id)).collect();
        read.map_or(Ok(()), |descriptors| self.remove_all_but(&descriptors))
    }

    /// Removes the files of backups that none of these descriptors names; they are all that there are.
    fn remove_all_but(&self, descriptors: &[Descriptor]) -> Result<()> {
        let named: HashSet<&str> =
            descriptors.iter().flat_map(|d| d.all_files()).map(|file| file.file.as_str()).collect();
        let mut removed = false;
        let names = self.names()?;
        let is_begun = LazyCell::new(|| self.is_begun(&names));
        for name in &names {
            if !named.contains(name.as_str()) && self.is_left(name, || *is_begun) {
                let path = self.dir.join(name);
                self.env.storage.remove(&path).map_err(|e| Error::io("remove", &path, e))?;
                removed = true;
            }
        }
        if removed { self.sync_dir() } else { Ok(()) }
    }

    fn sync_dir(&self) -> Result<()> {
        self.env.storage.sync_dir(&self.dir).map_err(|e| Error::io("sync the directory", &self.dir, e))
    }

    fn no_backup(&self, id: u64) -> Error {
        Error::new(ErrorKind::NotFound, format!("{} holds no backup {id}", self.dir.display()))
    }
}
