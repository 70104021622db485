//! Writing one backup: files first, descriptor last.

use super::descriptor::{self, Descriptor, MANIFEST, StoredFile, StoredTable, stored_name};
use super::{BackupInfo, Backups};
use crate::error::{Error, Result};
use crate::shape::TableInfo;
use crate::storage::{
    BEGUN, DirLock, Storage, TableStore, absolute, copy_file, create_dir_durably, mark_begun, remove_mark,
};
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// A backup in the making. Dropped before its end it takes its files away again.
pub(crate) struct Making {
    backups: Backups,
    pub(crate) id: u64,
    /// The SSTables of earlier backups, by name.
    known: HashMap<String, Vec<StoredFile>>,
    written: Vec<PathBuf>,
    /// Whether the directory has the mark of a first backup.
    is_marked: bool,
    _lock: Option<DirLock>,
}

impl Making {
    /// Begins a backup of the database of that id, in hexadecimal, beside those there are; `Invalid` if they
    /// are another database's.
    pub(crate) fn begin(backups: &Backups, database: &str) -> Result<Self> {
        let dir = &absolute(&backups.env, &backups.dir)?;
        let backups = Backups { dir: dir.clone(), ..backups.clone() };
        let storage = &backups.env.storage;
        let current = dir.join("CURRENT");
        if storage.exists(&current).map_err(|e| Error::io("look for", &current, e))? {
            let message =
                format!("{} holds a database; backups need a directory of their own", dir.display());
            return Err(Error::invalid(message));
        }
        if backups.is_there()? {
            backups.refuse_other_things()?;
        }
        create_dir_durably(&**storage, dir).map_err(|e| Error::io("create the directory", dir, e))?;
        let backups = Backups { env: backups.env.bound_to(dir)?, ..backups };
        let lock = backups.lock(true)?;
        let ids = backups.ids()?;
        let (mut earlier, mut all_are_read) = (Vec::with_capacity(ids.len()), true);
        for id in ids.iter().copied() {
            // An unreadable backup has nothing to share; listing or restoring it reports the error.
            let Ok(descriptor) = backups.read(id) else {
                all_are_read = false;
                continue;
            };
            if descriptor.database != database {
                let (dir, other) = (dir.display(), descriptor.database);
                let message = format!("{dir} holds backups of database {other}, this is {database}");
                return Err(Error::invalid(message));
            }
            earlier.push(descriptor);
        }
        // An unreadable backup may name anything.
        let is_first = ids.is_empty() && !backups.are_objects();
        if is_first {
            mark_begun(&**storage, dir).map_err(|e| Error::io("create a file in", dir, e))?;
        }
        if all_are_read {
            backups.remove_all_but(&earlier)?;
        }
        let mut known: HashMap<String, Vec<StoredFile>> = HashMap::new();
        for table in earlier.into_iter().flat_map(|descriptor| descriptor.tables) {
            known.entry(table.name.clone()).or_default().push(table);
        }
        // Numbers in names that somebody else made, also of directories, are passed over, too.
        let names = backups.env.storage.list_all(dir).map_err(|e| Error::io("list", dir, e))?;
        let is_marked = is_first || names.iter().any(|name| name == BEGUN);
        let taken = names.iter().filter_map(|n| descriptor::number_in(n.trim_end_matches('/')));
        let id = taken.chain(ids).max().unwrap_or(0) + 1;
        Ok(Self { backups, id, known, written: Vec::new(), is_marked, _lock: lock })
    }

    /// The SSTable as an earlier backup has it: [`Making::known_as`].
    pub(crate) fn known(&self, info: &TableInfo) -> Option<StoredFile> {
        self.known_as(&info.id.file_name(), info.bytes, StoredTable::of(info))
    }

    /// The SSTable of that name and length as an earlier backup has it, if its file is still there in full
    /// length.
    pub(super) fn known_as(&self, name: &str, bytes: u64, table: StoredTable) -> Option<StoredFile> {
        let fits = |file: &&StoredFile| {
            let serves = file.table.as_ref().is_some_and(|stored| stored.serves(&table));
            let path = self.backups.dir.join(&file.file);
            let length = || self.backups.env.storage.open(&path).and_then(|file| file.len()).ok();
            file.bytes == bytes && serves && length() == Some(file.bytes)
        };
        let found = self.known.get(name)?.iter().find(fits)?;
        Some(StoredFile { table: Some(table), ..found.clone() })
    }

    /// Copies the file, or its first `bytes`. Calls `advanced` with each piece's length.
    pub(crate) fn copy(
        &mut self,
        of: &dyn Storage,
        from: &Path,
        name: String,
        bytes: u64,
        advanced: &mut dyn FnMut(u64),
    ) -> Result<StoredFile> {
        let file = stored_name(self.id, &name);
        let to = self.backups.dir.join(&file);
        self.written.push(to.clone());
        let crc32c = copy_file(of, from, &*self.backups.env.storage, &to, bytes, advanced)?;
        Ok(StoredFile { name, file, bytes, crc32c, table: None })
    }

    pub(crate) fn copy_table(
        &mut self,
        tables: &TableStore,
        info: &TableInfo,
        advanced: &mut dyn FnMut(u64),
    ) -> Result<StoredFile> {
        let copied =
            self.copy(&**tables.storage(), &tables.path(info.id), info.id.file_name(), info.bytes, advanced)?;
        Ok(StoredFile { table: Some(StoredTable::of(info)), ..copied })
    }

    pub(crate) fn write_manifest(&mut self, bytes: &[u8]) -> Result<StoredFile> {
        let file = stored_name(self.id, MANIFEST);
        let path = self.backups.dir.join(&file);
        self.written.push(path.clone());
        self.write(&path, bytes)?;
        let (bytes, crc32c) = (bytes.len() as u64, crc32c::crc32c(bytes));
        Ok(StoredFile { name: MANIFEST.into(), file, bytes, crc32c, table: None })
    }

    fn write(&self, path: &Path, bytes: &[u8]) -> Result<()> {
        let failed = |e| Error::io("write", path, e);
        let mut file = self.backups.env.storage.create(path).map_err(failed)?;
        file.write(bytes).map_err(failed)?;
        file.sync().map_err(failed)
    }

    /// Makes it a backup. After an error from here it may be one all the same: a failed sync leaves that
    /// open.
    pub(crate) fn finish(mut self, descriptor: &Descriptor) -> Result<BackupInfo> {
        let bytes = descriptor.encode()?;
        self.backups.sync_dir()?;
        kill_point!("backup-files-synced");
        let path = self.backups.dir.join(descriptor::file_name(self.id));
        let temporary = self.backups.dir.join(descriptor::unfinished_name(self.id));
        self.written.push(temporary.clone());
        self.write(&temporary, &bytes)?;
        kill_point!("backup-descriptor-written");
        if self.backups.are_objects() {
            // The object may exist though the call failed: the files that it names must stay. If it does not,
            // the next backup cleans up.
            self.written.clear();
        }
        let renamed = self.backups.env.storage.rename(&temporary, &path);
        renamed.map_err(|e| Error::io("rename to", &path, e))?;
        self.written.clear();
        self.backups.sync_dir()?;
        kill_point!("backup-made");
        Ok(descriptor.info())
    }
}

impl Drop for Making {
    fn drop(&mut self) {
        let storage = &self.backups.env.storage;
        // The next backup removes what cannot be removed now.
        let removed = self.written.iter().map(|path| storage.remove(path)).filter(Result::is_ok).count();
        // The mark shows whose the remaining files are, so it is removed last.
        if self.is_marked && removed == self.written.len() && self.backups.sync_dir().is_ok() {
            remove_mark(&**storage, &self.backups.dir);
        }
    }
}
