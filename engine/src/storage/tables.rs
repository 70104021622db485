//! The place of a database's SSTables: beside WAL and manifest, in another directory, or in an object store.
//!
//! Each place belongs to one database, as an open removes SSTables that its manifest does not name. A
//! separate directory or an object store is *claimed*: an object `OWNER` with the database's number is put
//! there if there is none, nor anything of another database. The database's own directory has a note of it
//! (`DATABASE`), so that a repair without a manifest knows that the SSTables are elsewhere, and a creation
//! that a crash interrupted can be repeated.

use super::objects::{ObjectFiles, ObjectStore, OpenObjectStore, PutOnce};
use super::{
    BEGUN, DirLock, LOCK_FILE, Maker, SMALL_FILE_BYTES, Storage, copy_file, create_dir_durably,
    create_over_own, is_mark, is_own_lock, lock_dir, maker, mark_begun, read_whole, remove_mark,
};
use crate::error::{Error, ErrorKind, Result};
use crate::types::TableId;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The object with the number of the database that owns a place.
const OWNER: &str = "OWNER";
const OWNER_NEW: &str = "OWNER.new";
/// The note in the database's own directory: its number, and the place of its SSTables if that is elsewhere.
pub(crate) const NOTE: &str = "DATABASE";
/// The prefix of an object store's location in the manifest.
const OBJECTS: &str = "objects:";

/// The directory that a file system makes at the top of each disk.
pub(crate) const LOST_AND_FOUND: &str = "lost+found/";

/// Whether a file begins as `OWNER` and the note do: with a database's number.
pub(crate) fn begins_with_number(head: &[u8]) -> bool {
    head.iter().take(16).all(u8::is_ascii_hexdigit) && head.get(16).is_none_or(|end| *end == b'\n')
}

/// The place of a database's SSTables.
#[derive(Clone, Debug)]
pub(crate) struct TableStore {
    storage: Arc<dyn Storage>,
    dir: PathBuf,
    kind: Kind,
}

#[derive(Clone, Debug)]
enum Kind {
    Beside,
    Directory,
    Objects(Arc<dyn ObjectStore>),
}

impl TableStore {
    /// The store of SSTables in the database's own directory.
    pub(crate) fn beside(storage: &Arc<dyn Storage>, dir: &Path) -> Self {
        Self { storage: storage.clone(), dir: dir.to_path_buf(), kind: Kind::Beside }
    }

    /// The store of SSTables in another directory.
    pub(crate) fn directory(storage: &Arc<dyn Storage>, dir: &Path) -> Self {
        Self { storage: storage.clone(), dir: dir.to_path_buf(), kind: Kind::Directory }
    }

    /// This store with its directory, which must exist, held open, so that no other can take its name.
    pub(crate) fn bound(self) -> Result<Self> {
        if !matches!(self.kind, Kind::Directory) {
            return Ok(self);
        }
        let bound =
            self.storage.bind(&self.dir).map_err(|e| Error::io("open the directory", &self.dir, e))?;
        Ok(Self { storage: bound.unwrap_or(self.storage), ..self })
    }

    /// Creates its directory, if it has a separate one.
    pub(crate) fn create_dir(&self) -> Result<()> {
        match self.kind {
            Kind::Directory => create_dir_durably(&*self.storage, &self.dir)
                .map_err(|e| Error::io("create the directory", &self.dir, e)),
            Kind::Beside | Kind::Objects(_) => Ok(()),
        }
    }

    /// The store of SSTables in an object store.
    pub(crate) fn objects(store: Arc<dyn ObjectStore>) -> Self {
        let dir = PathBuf::from(format!("{OBJECTS}{}", store.location()));
        Self { storage: Arc::new(ObjectFiles(store.clone())), dir, kind: Kind::Objects(store) }
    }

    /// The store that a manifest names; `stores` finds object stores.
    pub(crate) fn at(
        location: &str,
        storage: &Arc<dyn Storage>,
        dir: &Path,
        stores: Option<&OpenObjectStore>,
    ) -> Result<Self> {
        match (location, Self::object_location(location)) {
            ("", _) => Ok(Self::beside(storage, dir)),
            (_, Some(objects)) => Self::found(objects, stores),
            (_, None) => Ok(Self::directory(storage, Path::new(location))),
        }
    }

    /// The object store of that location.
    pub(crate) fn found(location: &str, stores: Option<&OpenObjectStore>) -> Result<Self> {
        let Some(open) = stores else {
            let message = format!("the tables lie in an object store ({location}), which was not given");
            return Err(Error::new(ErrorKind::Unsupported, message));
        };
        let store = open(location).map_err(|e| Error::io("open the object store", Path::new(location), e))?;
        Ok(Self::objects(store))
    }

    /// Whether the option `tables` names an object store and not a directory.
    pub(crate) fn is_location(tables: &Path) -> bool {
        tables.to_str().is_some_and(|text| text.contains("://"))
    }

    /// The location of the object store that a manifest names.
    pub(crate) fn object_location(location: &str) -> Option<&str> {
        location.strip_prefix(OBJECTS)
    }

    /// The location to be recorded in a manifest: empty for the database's own directory.
    pub(crate) fn location(&self) -> String {
        match &self.kind {
            Kind::Beside => String::new(),
            Kind::Directory | Kind::Objects(_) => self.dir.to_string_lossy().into_owned(),
        }
    }

    /// Claims the place for the database, if it has no owner and the database is `new`; returns a lock to be
    /// held while the database is open. `Invalid` if it belongs to another database.
    pub(crate) fn claim(&self, database: u64, new: bool) -> Result<Option<DirLock>> {
        if new {
            self.refuse_others()?;
        }
        let text = format!("{database:016x}\n");
        let path = self.dir.join(OWNER);
        let failed = |e| Error::io("claim", &path, e);
        let another = || self.is_of_another();
        let lock = match &self.kind {
            Kind::Directory => lock_dir(&*self.storage, &self.dir, true)?,
            Kind::Beside | Kind::Objects(_) => None,
        };
        let owned = self.storage.exists(&path).map_err(failed)?;
        let absent = match &self.kind {
            Kind::Beside if owned => return Err(another()),
            Kind::Beside => return Ok(None),
            _ if !owned && !new => {
                let message = format!("{} is missing, expected it beside the tables", path.display());
                return Err(Error::corruption(&path, 0, message));
            }
            _ if !owned && self.is_used()? => return Err(another()),
            Kind::Objects(store) => {
                !owned && store.put_once(OWNER, text.as_bytes()).map_err(failed)? == PutOnce::Mine
            }
            Kind::Directory => {
                if !owned {
                    mark_begun(&*self.storage, &self.dir).map_err(failed)?;
                    let part = self.dir.join(OWNER_NEW);
                    let mut file =
                        create_over_own(&*self.storage, &part, begins_with_number).map_err(failed)?;
                    file.write(text.as_bytes()).and_then(|()| file.sync()).map_err(failed)?;
                    self.storage.rename(&part, &path).map_err(failed)?;
                }
                if new {
                    // Even if it exists: the try that wrote it may have ended before its name was durable.
                    self.storage.sync_dir(&self.dir).map_err(failed)?;
                }
                remove_mark(&*self.storage, &self.dir);
                !owned
            }
        };
        // An earlier try may have written it.
        if absent || read_whole(&*self.storage, &path, SMALL_FILE_BYTES)? == text.as_bytes() {
            return Ok(lock);
        }
        Err(another())
    }

    fn is_of_another(&self) -> Error {
        Error::invalid(format!("{} holds the tables of another database", self.dir.display()))
    }

    /// Refuses a separate directory with anything that an earlier try cannot have left.
    pub(crate) fn refuse_others(&self) -> Result<()> {
        if !matches!(self.kind, Kind::Directory)
            || !self.storage.exists(&self.dir).map_err(|e| Error::io("look for", &self.dir, e))?
        {
            return Ok(());
        }
        let names = self.storage.list_all(&self.dir).map_err(|e| Error::io("list", &self.dir, e))?;
        let is_begun = names.iter().any(|name| name == BEGUN);
        let is_ours = |name: &str| match name {
            LOST_AND_FOUND => Ok(true),
            // It is renamed when it is complete. `claim` judges its owner by its text.
            OWNER => Ok(maker(&*self.storage, &self.dir.join(name), begins_with_number)? == Maker::Us),
            LOCK_FILE => is_own_lock(&*self.storage, &self.dir, name),
            BEGUN => is_mark(&*self.storage, &self.dir, name),
            OWNER_NEW => {
                let maker = maker(&*self.storage, &self.dir.join(name), begins_with_number)?;
                Ok(maker.is_ours(|| is_begun))
            }
            _ => Ok(false),
        };
        for name in &names {
            if is_ours(name).map_err(|e| Error::io("look at", self.dir.join(name), e))? {
                continue;
            }
            if self.is_used()? {
                // A present user is reported first.
                lock_dir(&*self.storage, &self.dir, false)?;
                return Err(self.is_of_another());
            }
            let message = "tables need a directory of their own, or an absent or empty one";
            let dir = self.dir.display();
            return Err(Error::invalid(format!("{dir} holds other things (`{name}`): {message}")));
        }
        Ok(())
    }

    /// Whether it has a file of any database.
    fn is_used(&self) -> Result<bool> {
        let names = self.storage.list(&self.dir).map_err(|e| Error::io("list", &self.dir, e))?;
        let is_of_database = |name: &String| {
            name.starts_with("CURRENT") || name.starts_with("manifest-") || name.ends_with(".log")
        };
        Ok(names.iter().any(|name| TableId::parse_file_name(name).is_some() || is_of_database(name)))
    }

    /// Whether each read is a request to a remote store.
    pub(crate) fn is_far(&self) -> bool {
        matches!(self.kind, Kind::Objects(_))
    }

    /// The storage that reads and writes its files.
    pub(crate) fn storage(&self) -> &Arc<dyn Storage> {
        &self.storage
    }

    /// The path of an SSTable.
    pub(crate) fn path(&self, table: TableId) -> PathBuf {
        self.dir.join(table.file_name())
    }

    /// Makes the names of SSTables that were written or removed durable.
    pub(crate) fn sync_names(&self) -> Result<()> {
        self.storage.sync_dir(&self.dir).map_err(|e| Error::io("sync the directory", &self.dir, e))
    }

    pub(crate) fn exists(&self, table: TableId) -> Result<bool> {
        let path = self.path(table);
        self.storage.exists(&path).map_err(|e| Error::io("look for", &path, e))
    }

    /// The SSTables in it, perhaps as of some time ago.
    pub(crate) fn list(&self) -> Result<Vec<TableId>> {
        let names = self.storage.list(&self.dir).map_err(|e| Error::io("list", &self.dir, e))?;
        Ok(names.iter().filter_map(|name| TableId::parse_file_name(name)).collect())
    }

    pub(crate) fn remove(&self, table: TableId) -> std::io::Result<()> {
        self.storage.remove(&self.path(table))
    }

    /// Frees a part of an SSTable's file, if that is possible.
    pub(crate) fn punch_hole(&self, table: TableId, offset: u64, len: u64) -> std::io::Result<bool> {
        self.storage.punch_hole(&self.path(table), offset, len)
    }

    /// Adds a file under that name, durably but for the name: as a second name of it, or copied.
    pub(crate) fn bring_in(
        &self,
        from: &Path,
        of: &Arc<dyn Storage>,
        table: TableId,
        bytes: u64,
    ) -> Result<()> {
        let to = self.path(table);
        if self.is_far() {
            return copy_file(&**of, from, &*self.storage, &to, bytes, &mut |_| {}).map(|_| ());
        }
        self.storage.link(from, &to).map_err(|e| Error::io("link to", &to, e))?;
        // The file may not have been synced before.
        let synced = self.storage.append(&to).and_then(|mut file| file.sync());
        synced.map_err(|e| {
            // If not even that is possible, the name is useless.
            let _ = self.storage.remove(&to);
            Error::io("sync", &to, e)
        })
    }

    /// Adds an SSTable of another database, where it is durable: as a second name of its file, else as a
    /// copy. Durable but for the name. Returns whether it is a second name.
    pub(crate) fn share_from(
        &self,
        other: &Self,
        theirs: TableId,
        ours: TableId,
        bytes: u64,
    ) -> Result<bool> {
        let (from, to) = (other.path(theirs), self.path(ours));
        let is_second = !self.is_far()
            && !other.is_far()
            && self.finds(other)?
            && match self.storage.second_name(&from, &to) {
                // Impossible on this storage, or its directory was just moved.
                Err(e) if e.kind() == std::io::ErrorKind::NotFound => false,
                linked => linked.map_err(|e| Error::io("link to", &to, e))?,
            };
        if !is_second {
            copy_file(&*other.storage, &from, &*self.storage, &to, bytes, &mut |_| {})?;
        }
        Ok(is_second)
    }

    /// Whether the paths of the other store's SSTables lead to them from this one's storage, too: its
    /// directory may have been renamed since it was opened, and another one may have its name.
    fn finds(&self, other: &Self) -> Result<bool> {
        if std::ptr::eq(self, other) {
            return Ok(true);
        }
        other.storage.is_bound_still(&other.dir).map_err(|e| Error::io("look for", &other.dir, e))
    }

    /// Announces SSTables that will be opened soon.
    pub(crate) fn expect(&self, tables: impl Iterator<Item = (TableId, u64)>) {
        if let Kind::Objects(store) = &self.kind {
            store.expect(&tables.map(|(id, bytes)| (id.file_name(), bytes)).collect::<Vec<_>>());
        }
    }

    /// Gives an SSTable a second name elsewhere, or copies it there.
    pub(crate) fn take_out(
        &self,
        table: TableId,
        to: &Path,
        of: &Arc<dyn Storage>,
        bytes: u64,
    ) -> Result<()> {
        let from = self.path(table);
        if self.is_far() {
            return copy_file(&*self.storage, &from, &**of, to, bytes, &mut |_| {}).map(|_| ());
        }
        self.storage.link(&from, to).map_err(|e| Error::io("link to", to, e))
    }
}
