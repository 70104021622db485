//! Backups of tables: made of the engine's backups, restored by moving their families into the database that goes on.
//!
//! A backup is an engine backup of the stores of one table, in a directory of its own beside the database's, and a record in the
//! engine family `tables` that says what the table was like. Files that an earlier backup has are not copied again. The record is
//! written last, and deleted first; a note that is written before both lets the next start remove what is left. A copy of a backup is
//! one more record of the same engine backup, which goes when no record names it.
//!
//! To restore, the engine backup becomes a database beside ours, whose families are detached and attached here under a new table's
//! id, by links. The table is there from the moment its record is written; before that, its stores are orphans as any others.

use crate::names;
use crate::proto::admin;
use crate::schema::{self, Schema};
use crate::status::{file_failed, status};
use crate::tables::{self, Table, Tables};
use parking_lot::MutexGuard;
use serde::{Deserialize, Serialize};
use siltstone::storage::Env;
use siltstone::{Backups, Batch, Durability, ErrorKind, Options};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tonic::Status;

/// What the names of backups begin with among the records.
const BACKUP: &[u8] = b"backup/";
/// The note that an engine backup is being made, with the highest number of those before it.
const MAKING: &[u8] = b"making-backup";
/// What notes of engine backups that are to be deleted begin with.
const UNWANTED: &[u8] = b"unwanted-backup/";
/// How long a change of the set of backups waits for another.
const ALONE_WAIT: Duration = Duration::from_secs(5);

/// Whether somebody may do what they are about to do with a backup.
pub(crate) type May<'a> = &'a dyn Fn(&Backup) -> Result<(), Status>;

fn unwanted(id: u64) -> Vec<u8> {
    [UNWANTED, &id.to_be_bytes()].concat()
}

/// A backup as it is stored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Backup {
    /// The engine's backup.
    id: u64,
    /// Full name of the table it is of.
    pub(crate) source_table: String,
    /// Full name of the backup it was copied from, or empty.
    #[serde(default)]
    pub(crate) source_backup: String,
    schema: Schema,
    pub(crate) start_us: u64,
    pub(crate) end_us: u64,
    /// When it may be deleted.
    expire_us: u64,
    bytes: u64,
}

pub(crate) fn time(us: u64) -> prost_types::Timestamp {
    prost_types::Timestamp {
        seconds: i64::try_from(us / 1_000_000).unwrap_or(i64::MAX),
        nanos: i32::try_from(us % 1_000_000 * 1_000).unwrap_or_default(),
    }
}

/// When a backup expires: in the future.
pub(crate) fn expiry(time: Option<prost_types::Timestamp>) -> Result<u64, Status> {
    let time = time.ok_or_else(|| Status::invalid_argument("a backup needs an expire_time"))?;
    match crate::micros(time.seconds, time.nanos) {
        Some(us) if us > crate::now_us() => Ok(us),
        _ => Err(Status::invalid_argument("expire_time is not in the future")),
    }
}

impl Backup {
    pub(crate) fn to_message(&self, name: &str) -> admin::Backup {
        admin::Backup {
            name: name.to_string(),
            source_table: self.source_table.clone(),
            source_backup: self.source_backup.clone(),
            expire_time: Some(time(self.expire_us)),
            start_time: Some(time(self.start_us)),
            end_time: Some(time(self.end_us)),
            size_bytes: i64::try_from(self.bytes).unwrap_or(i64::MAX),
            state: admin::backup::State::Ready as i32,
            backup_type: admin::backup::BackupType::Standard as i32,
            ..Default::default()
        }
    }

    pub(crate) fn info(&self, name: &str) -> admin::BackupInfo {
        admin::BackupInfo {
            backup: name.to_string(),
            start_time: Some(time(self.start_us)),
            end_time: Some(time(self.end_us)),
            source_table: self.source_table.clone(),
            source_backup: self.source_backup.clone(),
        }
    }
}

fn record_key(name: &str) -> Vec<u8> {
    [BACKUP, name.as_bytes()].concat()
}

fn record(name: &str, value: &[u8]) -> Result<Backup, Status> {
    serde_json::from_slice(value).map_err(|e| Status::data_loss(format!("the record of backup {name}: {e}")))
}

impl Tables {
    fn engine_backups(&self) -> Backups {
        Backups::new(&Env::local(), &self.places.backups)
    }

    /// The backup of that name.
    pub(crate) fn backup(&self, name: &str) -> Result<Backup, Status> {
        names::backup(name)?;
        match self.records.get(record_key(name)).map_err(status)? {
            Some(value) => record(name, &value),
            None => Err(Status::not_found(format!("no backup {name}"))),
        }
    }

    /// All backups, by name.
    pub(crate) fn backups(&self) -> Result<Vec<(String, Backup)>, Status> {
        let named = self.records.scan_prefix(BACKUP).map(|entry| {
            let entry = entry.map_err(status)?;
            let name = String::from_utf8_lossy(&entry.key[BACKUP.len()..]).into_owned();
            let backup = record(&name, &entry.value)?;
            Ok((name, backup))
        });
        named.collect()
    }

    fn write_backup(&self, name: &str, backup: Option<&Backup>) -> Result<(), Status> {
        let mut batch = Batch::new();
        match backup {
            Some(backup) => {
                let record = serde_json::to_vec(backup).map_err(|e| Status::internal(e.to_string()))?;
                batch.put(&self.records, record_key(name), record);
            }
            None => drop(batch.delete(&self.records, record_key(name))),
        }
        self.db.write_with(&batch, Durability::Sync).map(|_| ()).map_err(status)
    }

    fn refuse_taken(&self, name: &str) -> Result<(), Status> {
        match self.backup(name) {
            Ok(_) => Err(Status::already_exists(format!("backup {name} exists"))),
            Err(e) if e.code() == tonic::Code::NotFound => Ok(()),
            Err(e) => Err(e),
        }
    }

    /// One change of the set of backups at a time; who has waited for long is told to come again.
    fn alone(&self) -> Result<MutexGuard<'_, ()>, Status> {
        let alone = self.backing_up.try_lock_for(ALONE_WAIT);
        alone.ok_or_else(|| Status::unavailable("another backup or restore is under way: try again"))
    }

    /// The backup of that name, if the caller may know of it and `may` says so.
    fn allowed(&self, name: &str, may: May<'_>) -> Result<Backup, Status> {
        let backup = self.backup(name)?;
        may(&backup).map(|()| backup)
    }

    /// Backs a table up as it is now.
    pub(crate) fn create_backup(
        &self,
        name: &str,
        source_table: &str,
        expire_us: u64,
    ) -> Result<Backup, Status> {
        let _alone = self.alone()?;
        self.refuse_taken(name)?;
        let table = self.get(source_table)?;
        let schema = Schema::clone(&table.now().schema);
        let start_us = crate::now_us();
        let last =
            self.engine_backups().list().map_err(status)?.iter().map(|made| made.id).max().unwrap_or(0);
        self.note(MAKING, Some(&last.to_be_bytes()))?;
        let picks = |store: &str| tables::owner_of(store).is_some_and(|(table, _)| table == schema.id);
        let made = self.db.backup_families(&self.places.backups, &picks, &mut |_| {}).map_err(status)?;
        // Tables and families are taken out of sight before their stores are dropped: what is still seen was whole.
        let ids = |schema: &Schema| schema.families.values().map(|family| family.id).collect::<BTreeSet<_>>();
        let is_same =
            |now: Arc<Table>| Arc::ptr_eq(&now, &table) && ids(&now.now().schema).is_superset(&ids(&schema));
        if !self.get(source_table).is_ok_and(is_same) {
            self.delete_engine_backup(made.id);
            return Err(Status::aborted("the table was changed as the backup was made: try again"));
        }
        let backup = Backup {
            id: made.id,
            source_table: source_table.to_string(),
            source_backup: String::new(),
            // Whoever may read a view of the table has no right to one of another table.
            schema: Schema {
                deletion_protection: false,
                change_retention_us: None,
                views: BTreeMap::new(),
                ..schema
            },
            start_us,
            end_us: crate::now_us(),
            expire_us,
            bytes: made.bytes,
        };
        // After an error here it is there or not; the next start finds out.
        self.write_backup(name, Some(&backup))?;
        self.note(MAKING, None)?;
        Ok(backup)
    }

    /// One more name for a backup.
    pub(crate) fn copy_backup(
        &self,
        name: &str,
        source: &str,
        expire_us: u64,
        may: May<'_>,
    ) -> Result<Backup, Status> {
        // Rights come before the lock, here and below: who has none makes nobody wait, and learns nothing of names.
        self.allowed(source, may)?;
        let _alone = self.alone()?;
        self.refuse_taken(name)?;
        let copy = Backup { source_backup: source.to_string(), expire_us, ..self.allowed(source, may)? };
        self.write_backup(name, Some(&copy))?;
        Ok(copy)
    }

    /// Gives a backup another time to expire.
    pub(crate) fn update_backup(&self, name: &str, expire_us: u64, may: May<'_>) -> Result<Backup, Status> {
        self.allowed(name, may)?;
        let _alone = self.alone()?;
        let backup = Backup { expire_us, ..self.allowed(name, may)? };
        self.write_backup(name, Some(&backup))?;
        Ok(backup)
    }

    /// Deletes a backup; its files go with the last copy.
    pub(crate) fn delete_backup(&self, name: &str, may: May<'_>) -> Result<(), Status> {
        self.allowed(name, may)?;
        let _alone = self.alone()?;
        let backup = self.allowed(name, may)?;
        self.forget(name, &backup)
    }

    fn forget(&self, name: &str, backup: &Backup) -> Result<(), Status> {
        let is_last = self.backups()?.iter().all(|(other, of)| other == name || of.id != backup.id);
        if is_last {
            self.note(&unwanted(backup.id), Some(&[]))?;
        }
        self.write_backup(name, None)?;
        if is_last {
            self.delete_engine_backup(backup.id);
        }
        Ok(())
    }

    /// Deletes an engine backup that was noted as unwanted; what cannot be deleted now is at the next start.
    fn delete_engine_backup(&self, id: u64) {
        let deleted = match self.engine_backups().delete(id) {
            Err(e) if e.kind() != ErrorKind::NotFound => Err(status(e)),
            _ => self.note(&unwanted(id), None),
        };
        if let Err(error) = deleted {
            tracing::warn!(
                id,
                error = error.message(),
                "the files of a backup are left until the next start"
            );
        }
    }

    /// Writes a note of what is being done, or takes it back.
    fn note(&self, key: &[u8], value: Option<&[u8]>) -> Result<(), Status> {
        let mut batch = Batch::new();
        match value {
            Some(value) => drop(batch.put(&self.records, key, value)),
            None => drop(batch.delete(&self.records, key)),
        }
        self.db.write_with(&batch, Durability::Sync).map(|_| ()).map_err(status)
    }

    /// Deletes the backups whose time is over, unless a backup or restore is under way. Returns how many.
    pub(crate) fn drop_expired_backups(&self, now_us: u64) -> Result<usize, Status> {
        let Some(_alone) = self.backing_up.try_lock() else { return Ok(0) };
        let expired: Vec<_> = self.backups()?.into_iter().filter(|(_, of)| of.expire_us <= now_us).collect();
        for (name, backup) in &expired {
            self.forget(name, backup)?;
            tracing::info!(backup = name, "expired");
        }
        Ok(expired.len())
    }

    /// Removes what changes that did not come to their end have left, as they are noted: an engine backup that was being made and
    /// that no record names, those that were to be deleted, and a database that was being restored. What is not noted is not
    /// ours to remove: the directory may have backups of another time.
    pub(crate) fn clean_backups(&self) -> Result<(), Status> {
        // One that is not ours stays; a restore says so.
        let _ = remove_restoring(&self.places.restoring);
        if let Some(last) = self.records.get(MAKING).map_err(status)? {
            let last = last[..].try_into().map_or(u64::MAX, u64::from_be_bytes);
            let named: BTreeSet<u64> = self.backups()?.iter().map(|(_, backup)| backup.id).collect();
            match self.engine_backups().list() {
                Ok(all) => {
                    let ids = all.iter().map(|made| made.id);
                    ids.filter(|id| *id > last && !named.contains(id))
                        .for_each(|id| self.delete_engine_backup(id));
                }
                Err(error) => tracing::warn!(%error, "a backup that was being made is left"),
            }
            self.note(MAKING, None)?;
        }
        let left: Result<Vec<_>, Status> =
            self.records.scan_prefix(UNWANTED).map(|entry| Ok(entry.map_err(status)?.key)).collect();
        for key in left? {
            if let Ok(id) = key[UNWANTED.len()..].try_into() {
                self.delete_engine_backup(u64::from_be_bytes(id));
            }
        }
        Ok(())
    }

    /// Makes a table of a backup.
    pub(crate) fn restore(
        &self,
        name: &str,
        table: &str,
        may: May<'_>,
    ) -> Result<(Arc<Table>, Backup), Status> {
        self.allowed(name, may)?;
        let _alone = self.alone()?;
        let backup = self.allowed(name, may)?;
        self.refuse_table(table)?;
        let restoring = &self.places.restoring;
        remove_restoring(restoring)?;
        create_restoring(restoring)
            .map_err(|e| file_failed("create the directory to restore in", restoring, &e))?;
        let restored = self.restore_by(&backup, table, restoring);
        // What cannot be removed now is at the next start.
        let _ = remove_restoring(restoring);
        restored.map(|table| (table, backup))
    }

    fn restore_by(&self, backup: &Backup, table: &str, restoring: &Path) -> Result<Arc<Table>, Status> {
        let from = restoring.join("whole");
        self.engine_backups().restore(Some(backup.id), &from, &mut |_| {}).map_err(status)?;
        let options = Options { memory_budget: 64 << 20, write_memory: 16 << 20, ..Options::default() };
        let db = schema::builder(options).open(&from).map_err(status)?;
        let mut moved = Vec::new();
        for store in db.families() {
            let Some((table, family)) = tables::owner_of(&store) else { continue };
            if table != backup.schema.id {
                return Err(Status::data_loss(format!("engine backup {} is of another table", backup.id)));
            }
            // One that was dropped while the backup was made.
            if backup.schema.families.values().all(|own| own.id != family) {
                continue;
            }
            let at = restoring.join(&store);
            db.detach(&store, &at).map_err(status)?;
            moved.push((store, at));
        }
        db.close().map_err(status)?;
        self.create_from(table, backup.schema.clone(), &moved)
    }
}

/// Says that a directory is one in which tables are restored: all of it is ours.
const RESTORING: &str = "SILTSTONE-RESTORING";

/// Makes the directory in which a table is restored, for the server's user alone.
fn create_restoring(dir: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    std::fs::DirBuilder::new().mode(0o700).create(dir)?;
    std::fs::File::create_new(dir.join(RESTORING)).map(drop)
}

/// Removes that directory, if it has our mark or nothing: the mark goes last, so that a removal that is cut short is gone on with.
fn remove_restoring(dir: &Path) -> Result<(), Status> {
    let failed = |e: &std::io::Error| file_failed("remove the directory to restore in", dir, e);
    let entries = match std::fs::read_dir(dir) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        entries => entries.and_then(Iterator::collect::<Result<Vec<_>, _>>).map_err(|e| failed(&e))?,
    };
    if !entries.is_empty() && !entries.iter().any(|entry| entry.file_name() == RESTORING) {
        let message = "the directory to restore in holds other things; the server's log names it";
        tracing::error!(directory = %dir.display(), "nothing can be restored: the directory holds other things");
        return Err(Status::failed_precondition(message));
    }
    for entry in entries.iter().filter(|entry| entry.file_name() != RESTORING) {
        let path = entry.path();
        let is_dir = entry.file_type().map_err(|e| failed(&e))?.is_dir();
        let removed = if is_dir { std::fs::remove_dir_all(&path) } else { std::fs::remove_file(&path) };
        removed.map_err(|e| failed(&e))?;
    }
    let mark = dir.join(RESTORING);
    let removed = if entries.is_empty() { Ok(()) } else { std::fs::remove_file(mark) };
    removed.and_then(|()| std::fs::remove_dir(dir)).map_err(|e| failed(&e))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    #[test]
    fn a_directory_to_restore_in_that_is_not_ours_stays() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("data-restoring");
        std::fs::create_dir(&path).unwrap();
        std::fs::write(path.join("thesis"), "precious").unwrap();
        assert_eq!(remove_restoring(&path).unwrap_err().code(), tonic::Code::FailedPrecondition);
        assert_eq!(std::fs::read(path.join("thesis")).unwrap(), b"precious");
        std::fs::remove_file(path.join("thesis")).unwrap();
        remove_restoring(&path).unwrap();
        create_restoring(&path).unwrap();
        std::fs::create_dir_all(path.join("whole/lost")).unwrap();
        remove_restoring(&path).unwrap();
        assert!(!path.exists() && remove_restoring(&path).is_ok());
    }

    #[test]
    fn who_has_no_right_to_a_backup_does_not_wait_for_its_turn() {
        let dir = tempfile::tempdir().unwrap();
        let config = Config { dir: dir.path().join("data"), ..Config::default() };
        let db = schema::builder(config.options()).open(&config.dir).unwrap();
        let tables = Tables::open(db, config.store_settings(), config.places()).unwrap();
        let (table, in_an_hour) = ("projects/p/instances/i/tables/t", crate::now_us() + 3_600_000_000);
        let backup = |id| format!("projects/p/instances/i/clusters/c/backups/{id}");
        let families = [("f".to_string(), admin::ColumnFamily::default())].into();
        tables
            .create(table, &admin::Table { column_families: families, ..Default::default() }, &[""; 0])
            .unwrap();
        let (hidden, copy) = (backup("hidden"), backup("copy"));
        tables.create_backup(&hidden, table, in_an_hour).unwrap();
        let refuse: May<'_> = &|_| Err(Status::permission_denied("no"));
        let _alone = tables.alone().unwrap();
        // Who waits for the lock, which this test has, is told UNAVAILABLE.
        let denied = [
            tables.copy_backup(&copy, &hidden, in_an_hour, refuse).err(),
            tables.copy_backup(&hidden, &hidden, in_an_hour, refuse).err(),
            tables.update_backup(&hidden, in_an_hour, refuse).err(),
            tables.delete_backup(&hidden, refuse).err(),
            tables.restore(&hidden, table, refuse).err(),
        ];
        for status in denied {
            assert_eq!(status.unwrap().code(), tonic::Code::PermissionDenied);
        }
        let none = tables.delete_backup(&backup("none"), refuse).unwrap_err();
        assert_eq!(none.code(), tonic::Code::NotFound);
    }
}
