//! A database out of a backup. Every file is compared with the length and checksum its descriptor gives while
//! it is copied, and the manifest with the files; `CURRENT` comes last. So what was restored was whole, and
//! before that there is nothing that opens.
//!
//! SSTables may be shared instead of copied, by hard links, as `db/copying.rs` explains. WAL files are
//! overwritten in place, so they are copied.

use super::descriptor::{Descriptor, StoredFile};
use super::{BackupInfo, Backups};
use crate::error::{Error, ErrorKind, Result};
use crate::repair::CheckProgress;
use crate::storage::{
    Copied, DirLock, Env, LOCK_FILE, LOST_AND_FOUND, absolute, copy_file, create_dir_durably, is_mark,
    is_own_lock, lock_dir, read_file,
};
use crate::version::edit::State;
use crate::version::manifest::{self, Manifest};
use std::collections::BTreeMap;
use std::io;
use std::path::Path;

impl Backups {
    /// Makes a database of the backup of that number, or of the newest, in a directory that is new or empty.
    /// A backup that is damaged in any byte is an error that names the file, and nothing is left in the
    /// directory.
    pub fn restore(
        &self,
        id: Option<u64>,
        to: impl AsRef<Path>,
        progress: &mut dyn FnMut(CheckProgress),
    ) -> Result<BackupInfo> {
        self.restore_by(id, to.as_ref(), false, progress)
    }

    /// Makes a database of a backup like [`Backups::restore`], but shares the SSTables with the backup where
    /// both directories lie on one file system that has hard links. Their bytes are neither copied nor read,
    /// so a damaged block is found only when the database reads it. Damage to a shared SSTable concerns both:
    /// [`Backups::restore`] is the one that protects from a failing disk.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// use siltstone::{Backups, Db, storage::Env};
    /// let db = Db::open(dir.path().join("db"))?;
    /// db.put(b"river", b"elbe")?;
    /// db.backup(dir.path().join("backups"))?;
    /// let backups = Backups::new(&Env::local(), dir.path().join("backups"));
    /// let backup = backups.restore_shared(None, dir.path().join("clone"), &mut |_| {})?;
    /// backups.delete(backup.id)?;
    /// assert_eq!(Db::open(dir.path().join("clone"))?.get(b"river")?.unwrap(), b"elbe");
    /// # Ok::<(), siltstone::Error>(())
    /// ```
    pub fn restore_shared(
        &self,
        id: Option<u64>,
        to: impl AsRef<Path>,
        progress: &mut dyn FnMut(CheckProgress),
    ) -> Result<BackupInfo> {
        // Objects have no second names.
        self.restore_by(id, to.as_ref(), !self.are_objects(), progress)
    }

    fn restore_by(
        &self,
        id: Option<u64>,
        to: &Path,
        shares: bool,
        progress: &mut dyn FnMut(CheckProgress),
    ) -> Result<BackupInfo> {
        let to = &absolute(&self.local, to)?;
        let _reading = self.lock_to_read()?;
        let ids = self.ids()?;
        let id = match id {
            Some(id) if ids.contains(&id) => id,
            Some(id) => return Err(self.no_backup(id)),
            None => *ids.last().ok_or_else(|| {
                Error::new(ErrorKind::NotFound, format!("{} holds no backups", self.dir.display()))
            })?,
        };
        let backup = self.read(id)?;
        let storage = &self.local.storage;
        let existed = storage.exists(to).map_err(|e| Error::io("look for", to, e))?;
        if existed {
            refuse_things_in(&self.local, to)?;
        }
        create_dir_durably(&**storage, to).map_err(|e| Error::io("create the directory", to, e))?;
        let env = self.local.bound_to(to)?;
        let had_lock = env.storage.exists(&to.join(LOCK_FILE)).map_err(|e| Error::io("look for", to, e))?;
        let _writing = lock_dir(&*env.storage, to, true)?;
        // Declared after the lock, so that it is dropped before the lock is released.
        let mut copied = Copied::new(&env, to, !existed);
        if !had_lock {
            copied.made(LOCK_FILE);
        }
        // Checked again, under the lock.
        refuse_things_in(&env, to)?;
        self.restore_into(&backup, &env, shares, &mut copied, progress)?;
        copied.keep();
        Ok(backup.info())
    }

    /// Takes the lock that keeps backups from being removed. On a read-only file system there is none: nobody
    /// can remove them there.
    pub(super) fn lock_to_read(&self) -> Result<Option<DirLock>> {
        match self.lock(false) {
            Err(e) if e.kind() == ErrorKind::Io => Ok(None),
            locked => locked,
        }
    }

    fn restore_into(
        &self,
        backup: &Descriptor,
        env: &Env,
        shares: bool,
        copied: &mut Copied,
        progress: &mut dyn FnMut(CheckProgress),
    ) -> Result<()> {
        let to = copied.dir().to_path_buf();
        let state = self.manifest_of(backup)?;
        let total = backup.all_files().map(|file| file.bytes).sum();
        let mut done = backup.manifest.bytes;
        for file in backup.tables.iter().chain(&backup.logs) {
            let from = self.dir.join(&file.file);
            self.check_length(file)?;
            let mut advanced = |bytes| {
                done += bytes;
                progress(CheckProgress { file: file.file.clone(), done, total });
            };
            let target = copied.file(&file.name);
            if shares
                && file.table.is_some()
                && env.storage.second_name(&from, &target).map_err(|e| Error::io("link to", &target, e))?
            {
                // Durable except for the name, as when the backup was made.
                advanced(file.bytes);
                continue;
            }
            let (source, storage) = (&*self.env.storage, &*env.storage);
            let found = copy_file(source, &from, storage, &target, file.bytes, &mut advanced)?;
            self.check_sum(file, found)?;
        }
        env.storage.sync_dir(&to).map_err(|e| Error::io("sync the directory", &to, e))?;
        kill_point!("restore-files-copied");
        manifest::files_of_start(backup.manifest_number).iter().for_each(|name| drop(copied.file(name)));
        Manifest::start(env, &to, backup.manifest_number, state)?;
        kill_point!("restore-manifest-written");
        Ok(())
    }

    /// The backup's manifest, which must name just the SSTables that the descriptor names.
    pub(super) fn manifest_of(&self, backup: &Descriptor) -> Result<State> {
        self.check_length(&backup.manifest)?;
        let path = self.dir.join(&backup.manifest.file);
        let bytes = read_file(&self.env, &path, manifest::MANIFEST_BYTES_MAX)?;
        self.check_sum(&backup.manifest, crc32c::crc32c(&bytes))?;
        let wrong = |what: String| Error::corruption(&path, 0, what);
        let database = u64::from_str_radix(&backup.database, 16);
        let database = database.map_err(|_| wrong(format!("database id is \"{}\"", backup.database)))?;
        let state = manifest::parse(&bytes, &path, database, backup.manifest_number)?.state;
        let mut named: BTreeMap<&str, u64> =
            backup.tables.iter().map(|table| (table.name.as_str(), table.bytes)).collect();
        // An SSTable that several families have counts once.
        let tables = state.stores.values().flat_map(|store| store.shape.tables());
        let needed: BTreeMap<_, _> = tables.map(|(_, _, info)| (info.id, info.bytes)).collect();
        for (id, bytes) in needed {
            let name = id.file_name();
            if named.remove(name.as_str()) != Some(bytes) {
                return Err(wrong(format!(
                    "manifest needs table {name}, which the descriptor does not name"
                )));
            }
        }
        match named.first_key_value() {
            None => Ok(state),
            Some((name, _)) => Err(wrong(format!("manifest does not know table {name} of the descriptor"))),
        }
    }

    pub(super) fn check_length(&self, file: &StoredFile) -> Result<()> {
        let path = self.dir.join(&file.file);
        match self.env.storage.open(&path).and_then(|file| file.len()) {
            Ok(found) if found == file.bytes => Ok(()),
            Ok(found) => {
                let message = format!("file of the backup has {found} bytes, expected {}", file.bytes);
                Err(Error::corruption(&path, found.min(file.bytes), message))
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                Err(Error::corruption(&path, 0, "file of the backup is missing"))
            }
            Err(e) => Err(Error::io("open", &path, e)),
        }
    }

    pub(super) fn check_sum(&self, file: &StoredFile, found: u32) -> Result<()> {
        if found == file.crc32c {
            return Ok(());
        }
        let message = format!("checksum of the whole file is {found:08x}, expected {:08x}", file.crc32c);
        Err(Error::corruption(self.dir.join(&file.file), 0, message))
    }
}

/// A database is restored into an empty directory; the lock may be there, of a try that was cut short.
fn refuse_things_in(env: &Env, to: &Path) -> Result<()> {
    let names = env.storage.list_all(to).map_err(|e| Error::io("list", to, e))?;
    // A mark that a creation left is removed at the first open.
    let is_fine = |name: &String| {
        name == LOST_AND_FOUND
            || is_own_lock(&*env.storage, to, name).is_ok_and(|own| own)
            || is_mark(&*env.storage, to, name).is_ok_and(|mark| mark)
    };
    match names.iter().find(|name| !is_fine(name)) {
        Some(name) => Err(Error::invalid(format!(
            "{} holds `{name}`; restoring needs a new or empty directory",
            to.display()
        ))),
        None => Ok(()),
    }
}
