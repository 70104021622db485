//! Backups of tables: made of the engine's backups, restored by moving their families into the database that
//! goes on.
//!
//! A backup is an engine backup of the stores of one table, in a directory of its own beside the database's
//! or in an object store (`backup_places`), and a record in the engine family `tables` that says what the
//! table was like. Files that an earlier backup has are not copied again. The record is written last, and
//! deleted first; a note that is written before both lets the next start, or the next check, remove what is
//! left. A copy of a backup is one more record of the same engine backup, which goes when no record names it;
//! of another server's, found by its name in the object store, it is an engine backup of its own.
//!
//! To restore, the engine backup becomes a database beside ours, whose families are copied here under a new
//! table's id. Both steps share the backup's SSTables by hard links, so no byte of one is copied if all three
//! directories lie on one file system; SSTables that are compacted later are the restored table's own. An
//! SSTable's file is freed when neither a backup nor a table of this server has it any more, which the file
//! system counts, and no part of it before. The restored table is there from the moment its record is
//! written; before that, its stores are orphans as any others.

use crate::names;
use crate::net::auth::{Right, Scope, Who};
use crate::proto::admin;
use crate::status::{file_failed, status};
use crate::tables::backup_records::{Backup, Head, NewBackup, record, record_key};
use crate::tables::instance_set;
use crate::tables::layout::{Table, owner_of};
use crate::tables::registry::Tables;
use crate::tables::schema::{self, Schema};
use siltstone::storage::Env;
use siltstone::{Backups, Batch, Durability, ErrorKind, Options};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tonic::{Code, Status};

/// The note that an engine backup is being made, with the highest number of those before it, and its place.
const MAKING: &[u8] = b"making-backup";
/// The prefix of notes of engine backups to be deleted; then number and place.
const UNWANTED: &[u8] = b"unwanted-backup/";
/// The prefix of notes of backups whose changes the object store does not have yet.
const UNTOLD: &[u8] = b"untold-backup/";
/// The place of this server in an object store of backups.
const SERVER: &[u8] = b"backup-server";

/// A number and a place, as notes have them.
fn numbered(id: u64, place: &str) -> Vec<u8> {
    [&id.to_be_bytes()[..], place.as_bytes()].concat()
}

/// Number and place of a note.
fn number_of(note: &[u8]) -> Option<(u64, String)> {
    let (id, place) = note.split_first_chunk::<8>()?;
    Some((u64::from_be_bytes(*id), String::from_utf8(place.to_vec()).ok()?))
}

fn unwanted(id: u64, place: &str) -> Vec<u8> {
    [UNWANTED, &numbered(id, place)].concat()
}

fn untold(name: &str) -> Vec<u8> {
    [UNTOLD, name.as_bytes()].concat()
}

fn no_backup(name: &str) -> Status {
    Status::not_found(format!("no backup {name}"))
}

impl Tables {
    /// The numbers of engine backups in a place that records name.
    fn known(&self, place: &str) -> Result<Vec<u64>, Status> {
        self.known_backups.numbers_in(place)
    }

    fn engine_backups(&self, place: &str) -> Result<Backups, Status> {
        self.backup_places.at(place, &self.known(place)?)
    }

    fn own_backup(&self, name: &str) -> Result<Option<Backup>, Status> {
        let value = self.records.get(record_key(name)).map_err(status)?;
        value.map(|value| record(name, &value)).transpose()
    }

    /// The backup of that name; of this server, or of one with the same object store of backups. That store
    /// is asked only for callers with some right in the backup's instance: others would keep threads waiting
    /// for it.
    fn find_backup(&self, name: &str, who: &Who) -> Result<Backup, Status> {
        names::backup(name)?;
        let asks_store = || who.sees_of(Scope::Instance(names::instance_of(name)));
        let found = match (self.own_backup(name)?, self.backup_places.in_store()) {
            (None, Some(store)) if asks_store() => store.find_foreign(name)?,
            (own, _) => own,
        };
        found.ok_or_else(|| no_backup(name))
    }

    /// The backup of that name, if the caller may learn that it exists: with any right on its table.
    pub(crate) fn backup(&self, name: &str, who: &Who) -> Result<Backup, Status> {
        let backup = self.find_backup(name, who)?;
        if who.sees(&backup.source_table) { Ok(backup) } else { Err(no_backup(name)) }
    }

    fn is_foreign(&self, backup: &Backup) -> bool {
        let store = self.backup_places.in_store();
        store.is_some_and(|store| !backup.place.is_empty() && store.is_foreign(&backup.place))
    }

    /// The backups of this server whose names begin so, and that are asked for, by name.
    pub(crate) fn backups(
        &self,
        begin: &str,
        is_asked: impl Fn(&Head) -> bool,
    ) -> Result<Vec<(String, Head)>, Status> {
        self.known_backups.list(begin, is_asked)
    }

    fn commit(&self, batch: &Batch) -> Result<(), Status> {
        self.db.write_with(batch, Durability::Sync).map(|_| ()).map_err(status)
    }

    /// Commits a batch with records of backups: after an error they are there or not.
    fn commit_records(&self, batch: &Batch) -> Result<(), Status> {
        self.commit(batch).inspect_err(|_| self.known_backups.distrust())
    }

    /// Writes the record of a backup, with what else belongs to the change.
    fn write_backup(&self, name: &str, backup: &Backup, mut with: Batch) -> Result<(), Status> {
        let record = serde_json::to_vec(backup).map_err(|e| Status::internal(e.to_string()))?;
        let bytes = record.len();
        with.put(&self.records, record_key(name), record);
        if !backup.place.is_empty() {
            with.put(&self.records, untold(name), []);
        }
        self.commit_records(&with)?;
        self.known_backups.put(name, backup.head(), bytes);
        if !backup.place.is_empty() {
            self.tell_all(&[name]);
        }
        Ok(())
    }

    /// Writes the records of these backups to the object store; if that fails, a later check does.
    fn tell_all(&self, names: &[&str]) {
        for name in names {
            let Err(error) = self.tell(name) else { continue };
            self.backups_left.store(true, Ordering::Relaxed);
            tracing::warn!(backup = name, error = error.message(), "other servers are told of it later");
            if error.code() == Code::Unavailable {
                // Each of the others would wait for the store as long.
                break;
            }
        }
    }

    fn tell(&self, name: &str) -> Result<(), Status> {
        let Some(store) = self.backup_places.in_store() else { return Ok(()) };
        let own = self.own_backup(name)?.filter(|backup| !backup.place.is_empty());
        store.publish(name, own.as_ref())?;
        self.note(&untold(name), None)
    }

    fn refuse_taken(&self, name: &str) -> Result<(), Status> {
        match self.find_backup(name, &Who::ANYONE) {
            Ok(_) => Err(Status::already_exists(format!("backup {name} exists"))),
            Err(e) if e.code() == Code::NotFound => Ok(()),
            Err(e) => Err(e),
        }
    }

    /// The backup of that name, if the caller may administer its table.
    fn allowed(&self, name: &str, who: &Who) -> Result<Backup, Status> {
        let backup = self.backup(name, who)?;
        who.may(Right::Admin, &backup.source_table).map(|()| backup)
    }

    /// The backup of that name, if the caller may change it.
    fn allowed_own(&self, name: &str, who: &Who) -> Result<Backup, Status> {
        let backup = self.allowed(name, who)?;
        match self.is_foreign(&backup) {
            true => Err(Status::failed_precondition(format!("backup {name} is another server's"))),
            false => Ok(backup),
        }
    }

    /// Makes an engine backup in a place, after a note by which it is found if nothing comes of it. The
    /// caller is alone.
    fn make_engine_backup(
        &self,
        place: &str,
        make: impl FnOnce(&Backups) -> Result<siltstone::BackupInfo, siltstone::Error>,
    ) -> Result<siltstone::BackupInfo, Status> {
        self.clean_if_left()?;
        let backups = self.engine_backups(place)?;
        // By their names alone: one that is damaged keeps nobody from making others.
        let last = backups.ids().map_err(status)?.last().copied().unwrap_or(0);
        self.backups_left.store(true, Ordering::Relaxed);
        self.note(MAKING, Some(&numbered(last, place)))?;
        make(&backups).map_err(status)
    }

    /// Writes the record of a backup whose engine backup was made.
    fn finish_backup(&self, name: &str, backup: &Backup, mut with: Batch) -> Result<(), Status> {
        with.delete(&self.records, MAKING);
        // After an error here it may exist or not; the next check finds out.
        self.write_backup(name, backup, with)
    }

    /// Backs a table up as it is now.
    pub(crate) fn create_backup(
        &self,
        name: &str,
        source_table: &str,
        new: &NewBackup,
    ) -> Result<Backup, Status> {
        let _alone = self.alone()?;
        self.create_backup_alone(name, source_table, new, Batch::new())
    }

    /// Backs a table up for a caller that is alone, with what is to be written with the record.
    pub(crate) fn create_backup_alone(
        &self,
        name: &str,
        source_table: &str,
        new: &NewBackup,
        with: Batch,
    ) -> Result<Backup, Status> {
        instance_set::check_cluster(self, names::cluster_of(name))?;
        self.refuse_taken(name)?;
        let table = self.get(source_table)?;
        self.known_backups.refuse_full(source_table)?;
        let schema = Schema::clone(&table.now().schema);
        let start_us = crate::time::now_us();
        let place = self.backup_places.own();
        let picks = |store: &str| owner_of(store).is_some_and(|(table, _)| table == schema.id);
        let made = self
            .make_engine_backup(place, |backups| self.db.backup_families_to(backups, &picks, &mut |_| {}))?;
        // Tables and families are taken out of sight before their stores are dropped: what is still seen was
        // whole.
        let ids = |schema: &Schema| schema.families.values().map(|family| family.id).collect::<BTreeSet<_>>();
        let is_same =
            |now: Arc<Table>| Arc::ptr_eq(&now, &table) && ids(&now.now().schema).is_superset(&ids(&schema));
        if !self.get(source_table).is_ok_and(is_same) {
            self.clean_if_left()?;
            return Err(Status::aborted("the table was changed as the backup was made: try again"));
        }
        let backup = Backup {
            id: made.id,
            place: place.to_string(),
            source_table: source_table.to_string(),
            source_backup: String::new(),
            // A right to a view of the table is none to a view of another table.
            schema: Schema {
                deletion_protection: false,
                change_retention_us: None,
                automated_backups: None,
                views: BTreeMap::new(),
                ..schema
            },
            start_us,
            end_us: crate::time::now_us(),
            expire_us: new.expire_us,
            bytes: made.bytes,
            hot: new.hot,
            hot_until_us: new.hot_until_us,
        };
        self.finish_backup(name, &backup, with)?;
        Ok(backup)
    }

    /// One more name for a backup; of another server's, a backup of its own.
    pub(crate) fn copy_backup(
        &self,
        name: &str,
        source: &str,
        expire_us: u64,
        who: &Who,
    ) -> Result<Backup, Status> {
        // Rights are checked before the lock, here and below: a caller without them makes nobody wait, and
        // learns nothing of names.
        self.allowed(source, who)?;
        let _alone = self.alone()?;
        instance_set::check_cluster(self, names::cluster_of(name))?;
        self.refuse_taken(name)?;
        let of = self.allowed(source, who)?;
        self.known_backups.refuse_full(&of.source_table)?;
        let mut copy = Backup { source_backup: source.to_string(), expire_us, ..of };
        match self.backup_places.in_store() {
            Some(store) if self.is_foreign(&copy) => {
                let from = self.backup_places.at(&copy.place, &[copy.id])?;
                let place = store.for_copies_of(&copy.place);
                let made = self.make_engine_backup(&place, |backups| from.copy_to(copy.id, backups))?;
                (copy.id, copy.place, copy.bytes) = (made.id, place, made.bytes);
                self.finish_backup(name, &copy, Batch::new())?;
            }
            _ => self.write_backup(name, &copy, Batch::new())?,
        }
        Ok(copy)
    }

    /// Changes the fields of a backup that an update names.
    pub(crate) fn update_backup(
        &self,
        asked: &admin::Backup,
        paths: &[String],
        who: &Who,
    ) -> Result<Backup, Status> {
        self.allowed_own(&asked.name, who)?;
        let _alone = self.alone()?;
        let mut backup = self.allowed_own(&asked.name, who)?;
        backup.update(asked, paths, crate::time::now_us())?;
        self.write_backup(&asked.name, &backup, Batch::new())?;
        Ok(backup)
    }

    /// Deletes a backup; its files go with the last copy.
    pub(crate) fn delete_backup(&self, name: &str, who: &Who) -> Result<(), Status> {
        self.allowed_own(name, who)?;
        let _alone = self.alone()?;
        let backup = self.allowed_own(name, who)?;
        self.forget(&[(name.to_string(), backup.head())])
    }

    /// Deletes the records of these backups, and the engine backups that no other record names. The caller is
    /// alone.
    fn forget(&self, backups: &[(String, Head)]) -> Result<(), Status> {
        let last = self.known_backups.only_of(backups)?;
        let mut batch = Batch::new();
        for (place, ids) in &last {
            for id in ids {
                batch.put(&self.records, unwanted(*id, place), []);
            }
        }
        let mut abroad = Vec::new();
        for (name, backup) in backups {
            batch.delete(&self.records, record_key(name));
            if !backup.place.is_empty() {
                batch.put(&self.records, untold(name), []);
                abroad.push(name.as_str());
            }
        }
        self.commit_records(&batch)?;
        backups.iter().for_each(|(name, _)| self.known_backups.remove(name));
        self.tell_all(&abroad);
        for (place, ids) in &last {
            self.delete_engine_backups(place, ids);
        }
        Ok(())
    }

    /// Deletes engine backups that were noted as unwanted; a later check deletes what cannot be deleted now.
    fn delete_engine_backups(&self, place: &str, ids: &BTreeSet<u64>) {
        let all: Vec<u64> = ids.iter().copied().collect();
        let deleted = self.engine_backups(place).and_then(|backups| match backups.delete_all(&all) {
            Err(e) if e.kind() != ErrorKind::NotFound => Err(status(e)),
            _ => {
                let mut notes = Batch::new();
                for id in &all {
                    notes.delete(&self.records, unwanted(*id, place));
                }
                self.commit(&notes)
            }
        });
        if let Err(error) = deleted {
            self.backups_left.store(true, Ordering::Relaxed);
            tracing::warn!(ids = ?all, error = error.message(), "the files of backups are left for now");
        }
    }

    /// Writes a note of what is being done, or takes it back.
    fn note(&self, key: &[u8], value: Option<&[u8]>) -> Result<(), Status> {
        let mut batch = Batch::new();
        match value {
            Some(value) => drop(batch.put(&self.records, key, value)),
            None => drop(batch.delete(&self.records, key)),
        }
        self.commit(&batch)
    }

    /// Deletes the backups whose time is over, unless a backup or restore is under way.
    pub(super) fn drop_expired_backups(&self, now_us: u64) -> Result<(), Status> {
        let Some(_alone) = self.backing_up.try_lock() else { return Ok(()) };
        let expired = self.known_backups.expired(now_us)?;
        if expired.is_empty() {
            return Ok(());
        }
        self.forget(&expired)?;
        for (name, _) in &expired {
            tracing::info!(backup = name, "expired");
        }
        Ok(())
    }

    /// Opens the places of backups, and removes the remains of unfinished changes. The first check removes
    /// those in an object store, so that nothing waits for it here.
    pub(crate) fn open_backups(&self) -> Result<(), Status> {
        // One that is not ours stays; a restore says so.
        let _ = remove_restoring(&self.restoring);
        if let Some(store) = self.backup_places.in_store() {
            store.check()?;
            let own = match self.records.get(SERVER).map_err(status)? {
                Some(own) => String::from_utf8_lossy(&own).into_owned(),
                None => {
                    let own = format!("{:016x}", Env::local().random.next_u64());
                    self.note(SERVER, Some(own.as_bytes()))?;
                    own
                }
            };
            store.own_is(own);
        } else if let Err(error) = self.clean_if_left() {
            tracing::warn!(error = error.message(), "what is left of changes of backups stays for now");
        }
        Ok(())
    }

    /// Removes what is left, as it is noted: an engine backup that was being made and that no record names,
    /// and those that were to be deleted. What is not noted is not ours to remove: the directory may have
    /// backups of another time. Tells the object store what it does not know. The caller is alone.
    pub(super) fn clean_if_left(&self) -> Result<(), Status> {
        if !self.backups_left.swap(false, Ordering::Relaxed) {
            return Ok(());
        }
        self.clean_backups().inspect_err(|_| self.backups_left.store(true, Ordering::Relaxed))
    }

    fn clean_backups(&self) -> Result<(), Status> {
        if let Some(note) = self.records.get(MAKING).map_err(status)? {
            let mut batch = Batch::new();
            match number_of(&note) {
                Some((last, place)) if self.backup_places.reaches(&place) => {
                    let named = self.known(&place)?;
                    let made = self.backup_places.at(&place, &named)?.ids().map_err(status)?;
                    for id in made.into_iter().filter(|id| *id > last && !named.contains(id)) {
                        batch.put(&self.records, unwanted(id, &place), []);
                    }
                }
                // The setting has changed since.
                _ => tracing::warn!("a backup that was being made is left where backups do not lie any more"),
            }
            batch.delete(&self.records, MAKING);
            self.commit(&batch)?;
        }
        let mut by_place = BTreeMap::<String, BTreeSet<u64>>::new();
        for (id, place) in self.notes(UNWANTED)?.iter().filter_map(|note| number_of(note)) {
            if self.backup_places.reaches(&place) {
                by_place.entry(place).or_default().insert(id);
            }
        }
        for (place, ids) in &by_place {
            self.delete_engine_backups(place, ids);
        }
        let names = self.notes(UNTOLD)?;
        let names: Vec<_> = names.iter().map(|name| String::from_utf8_lossy(name)).collect();
        self.tell_all(&names.iter().map(|name| &**name).collect::<Vec<_>>());
        Ok(())
    }

    /// The part after that prefix in the keys of notes.
    pub(crate) fn notes(&self, begin: &[u8]) -> Result<Vec<Vec<u8>>, Status> {
        let keys = self.records.scan_prefix(begin);
        keys.map(|entry| Ok(entry.map_err(status)?.key[begin.len()..].to_vec())).collect()
    }

    /// Makes a table of a backup.
    pub(crate) fn restore(&self, name: &str, table: &str, who: &Who) -> Result<(Arc<Table>, Backup), Status> {
        self.allowed(name, who)?;
        let _alone = self.alone()?;
        let backup = self.allowed(name, who)?;
        self.refuse_table(table)?;
        let restoring = &self.restoring;
        remove_restoring(restoring)?;
        create_restoring(restoring)
            .map_err(|e| file_failed("create the directory to restore in", restoring, &e))?;
        let restored = self.restore_by(&backup, table, restoring);
        // The next start removes what cannot be removed now.
        let _ = remove_restoring(restoring);
        restored.map(|table| (table, backup))
    }

    fn restore_by(&self, backup: &Backup, table: &str, restoring: &Path) -> Result<Arc<Table>, Status> {
        let from = restoring.join("whole");
        let backups = self.backup_places.at(&backup.place, &[backup.id])?;
        backups.restore_shared(Some(backup.id), &from, &mut |_| {}).map_err(status)?;
        let options = Options { memory_budget: 64 << 20, write_memory: 16 << 20, ..Options::default() };
        let db = schema::builder(options).open(&from).map_err(status)?;
        let mut stores = Vec::new();
        for store in db.families() {
            let Some((table, family)) = owner_of(&store) else { continue };
            if table != backup.schema.id {
                return Err(Status::data_loss(format!("engine backup {} is of another table", backup.id)));
            }
            // One that was dropped while the backup was made.
            if backup.schema.families.values().all(|own| own.id != family) {
                continue;
            }
            stores.push(store);
        }
        // Nobody waits for this; what follows keeps other changes of tables waiting.
        db.flush().map_err(status)?;
        let table = self.create_from(table, backup.schema.clone(), &db, &stores)?;
        // Its directory goes: of what an error here is about nothing is needed any more.
        let _ = db.close();
        Ok(table)
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

/// Removes that directory, if it has our mark or nothing: the mark goes last, so that a removal that is cut
/// short is gone on with.
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
        assert_eq!(remove_restoring(&path).unwrap_err().code(), Code::FailedPrecondition);
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
        let tables = Tables::open(db, config.store_settings(), config.directories()).unwrap();
        let (table, in_an_hour) = ("projects/p/instances/i/tables/t", crate::time::now_us() + 3_600_000_000);
        let backup = |id| format!("projects/p/instances/i/clusters/c/backups/{id}");
        let families = [("f".to_string(), admin::ColumnFamily::default())].into();
        tables
            .create(table, &admin::Table { column_families: families, ..Default::default() }, &[""; 0])
            .unwrap();
        let (hidden, copy) = (backup("hidden"), backup("copy"));
        let new = NewBackup { expire_us: in_an_hour, hot: false, hot_until_us: None };
        tables.create_backup(&hidden, table, &new).unwrap();
        let reader = Who::with(Right::Read, table);
        let named = admin::Backup {
            name: hidden.clone(),
            expire_time: Some(crate::time::timestamp(in_an_hour)),
            ..Default::default()
        };
        let _alone = tables.alone().unwrap();
        // Calls that wait for the lock, which this test has, get UNAVAILABLE.
        let denied = [
            tables.copy_backup(&copy, &hidden, in_an_hour, &reader).err(),
            tables.copy_backup(&hidden, &hidden, in_an_hour, &reader).err(),
            tables.update_backup(&named, &["expire_time".to_string()], &reader).err(),
            tables.delete_backup(&hidden, &reader).err(),
            tables.restore(&hidden, table, &reader).err(),
        ];
        for status in denied {
            assert_eq!(status.unwrap().code(), Code::PermissionDenied);
        }
        let none = tables.delete_backup(&backup("none"), &reader).unwrap_err();
        assert_eq!(none.code(), Code::NotFound);
    }
}
