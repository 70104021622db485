//! Copies of backups, such as from one server's part of an object store to another's.

use super::descriptor::{Descriptor, StoredFile};
use super::{BackupInfo, Backups, Making};
use crate::error::Result;

impl Backups {
    /// Copies the backup of that number to other `Backups`, where it gets a number of its own and shares
    /// SSTables that another backup there has. Compares every file with its length and checksum. After an
    /// error the other `Backups` are unchanged.
    pub fn copy_to(&self, id: u64, to: &Backups) -> Result<BackupInfo> {
        let _reading = self.lock_to_read()?;
        if !self.ids()?.contains(&id) {
            return Err(self.no_backup(id));
        }
        let backup = self.read(id)?;
        self.manifest_of(&backup)?;
        let mut making = Making::begin(to, &backup.database)?;
        let mut logs = Vec::with_capacity(backup.logs.len());
        for log in &backup.logs {
            logs.push(self.copy_file(log, &mut making)?);
        }
        let mut tables = Vec::with_capacity(backup.tables.len());
        for file in &backup.tables {
            let table = file.table.clone();
            let known = table.and_then(|table| making.known_as(&file.name, file.bytes, table));
            tables.push(known.map_or_else(|| self.copy_file(file, &mut making), Ok)?);
        }
        let manifest = self.copy_file(&backup.manifest, &mut making)?;
        let copy = Descriptor { id: making.id, manifest, logs, tables, ..backup };
        making.finish(&copy)
    }

    fn copy_file(&self, file: &StoredFile, making: &mut Making) -> Result<StoredFile> {
        self.check_length(file)?;
        let from = self.dir.join(&file.file);
        let copied = making.copy(&*self.env.storage, &from, file.name.clone(), file.bytes, &mut |_| {})?;
        self.check_sum(file, copied.crc32c)?;
        Ok(StoredFile { table: file.table.clone(), ..copied })
    }
}
