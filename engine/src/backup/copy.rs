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
        let mut copy = |file: &StoredFile| {
            let table = file.table.clone();
            let known = table.and_then(|table| making.known_as(&file.name, file.bytes, table));
            known.map_or_else(|| self.copy_file(file, &mut making), Ok)
        };
        let logs = backup.logs.iter().map(&mut copy).collect::<Result<_>>()?;
        let tables = backup.tables.iter().map(&mut copy).collect::<Result<_>>()?;
        let manifest = copy(&backup.manifest)?;
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
