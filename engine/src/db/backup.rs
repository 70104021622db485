//! Backups of an open database: exact at one sequence number over all families, while writers and compactions
//! go on.
//!
//! As with a checkpoint, one moment (`catalog/moment.rs`) decides what the copy consists of. But nothing is
//! linked, since a backup may lie on another file system, and copying takes too long to hold the manifest's
//! lock. Instead:
//!
//! - The backup pins the WAL files. They are few (the WAL's limit) and copied first.
//! - Handles pin the SSTables: compactions may drop them from the manifest but not delete their files, and
//!   punch no hole for a clip that was raised after the moment ([`crate::version::PinnedTables`]). Below the
//!   clip of the moment an SSTable may have holes; no reader of the copy reads there either.
//! - If the database is closed meanwhile, another process may open it and delete those files. So the backup
//!   fails unless the database is still open at its end.

use super::Db;
use crate::backup::{BackupInfo, Backups, Descriptor, Making};
use crate::catalog::PinnedCopy;
use crate::error::{Error, Result};
use crate::event::EventKind;
use crate::repair::CheckProgress;
use crate::version::manifest;
use std::path::Path;

impl Db {
    /// Adds an exact copy of the database as it is now to a directory of backups, which is created if
    /// missing; see [`Backups`](crate::Backups). Copies only SSTables that no earlier backup of the directory
    /// has. Writers go on meanwhile. After a crash or an error the earlier backups are unchanged, and this
    /// one does not exist.
    pub fn backup(&self, dir: impl AsRef<Path>) -> Result<BackupInfo> {
        self.backup_with(dir, &mut |_| {})
    }

    /// [`Db::backup`] that reports its progress.
    pub fn backup_with(
        &self,
        dir: impl AsRef<Path>,
        progress: &mut dyn FnMut(CheckProgress),
    ) -> Result<BackupInfo> {
        self.backup_families_to(&self.backups_in(dir.as_ref()), &|_| true, progress)
    }

    /// A backup of the families that `picks` names, and of the default one; a database restored from it has
    /// only these. It has no SSTables of other families, but the whole WAL, which all families share. As
    /// exact, and as safe from crashes, as [`Db::backup`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// use siltstone::{Backups, Db, FamilyOptions, storage::Env};
    /// let db = Db::open(dir.path().join("db"))?;
    /// for name in ["rivers", "lakes"] {
    ///     db.create_family(name, FamilyOptions::default())?.put(name, "1")?;
    /// }
    /// db.backup_families(dir.path().join("backups"), &|name| name == "rivers", &mut |_| {})?;
    /// let backups = Backups::new(&Env::local(), dir.path().join("backups"));
    /// backups.restore(None, dir.path().join("restored"), &mut |_| {})?;
    /// let restored = Db::open(dir.path().join("restored"))?;
    /// assert_eq!(restored.families(), ["default", "rivers"]);
    /// assert_eq!(restored.family("rivers")?.get("rivers")?.unwrap(), "1");
    /// # Ok::<(), siltstone::Error>(())
    /// ```
    pub fn backup_families(
        &self,
        dir: impl AsRef<Path>,
        picks: &dyn Fn(&str) -> bool,
        progress: &mut dyn FnMut(CheckProgress),
    ) -> Result<BackupInfo> {
        self.backup_families_to(&self.backups_in(dir.as_ref()), picks, progress)
    }

    /// [`Db::backup_families`] to where backups lie, which may be an object store
    /// ([`Backups::in_object_store`]).
    pub fn backup_families_to(
        &self,
        backups: &Backups,
        picks: &dyn Fn(&str) -> bool,
        progress: &mut dyn FnMut(CheckProgress),
    ) -> Result<BackupInfo> {
        let db = &self.inner;
        db.cx.check_writable()?;
        let database = format!("{:016x}", db.catalog.manifest.lock().state().database);
        let mut making = Making::begin(backups, &database)?;
        let held = db.catalog.hold_moment(picks)?;
        let PinnedCopy { state, manifest_number, mut logs, wal_files_of_tables, created_us, .. } = held;
        let (tables, held_wal, held_tables) = (held.tables, held.held_wal, held.held_tables);
        kill_point!("backup-moment");
        // A backup must not hold writes that this database could still lose.
        db.commit.wal()?.sync().inspect_err(|e| db.cx.poison(e))?;

        let tables: Vec<_> = tables.into_iter().map(|info| (making.known(&info), info)).collect();
        let missing = tables.iter().filter(|(known, _)| known.is_none()).map(|(_, info)| info.bytes);
        for name in wal_files_of_tables {
            let path = db.catalog.dir.join(&name);
            let bytes = db.cx.env.storage.open(&path).and_then(|file| file.len());
            logs.push((name, bytes.map_err(|e| Error::io("look at", &path, e))?));
        }
        let total = missing.sum::<u64>() + logs.iter().map(|(_, bytes)| bytes).sum::<u64>();
        let mut done = 0;
        let mut advance = |file: &str, bytes: u64| {
            done += bytes;
            progress(CheckProgress { file: file.to_string(), done, total });
        };
        let mut stored_logs = Vec::new();
        for (name, bytes) in &logs {
            let from = db.catalog.dir.join(name);
            stored_logs.push(
                making.copy(&*db.cx.env.storage, &from, name.clone(), *bytes, &mut |n| advance(name, n))?,
            );
        }
        drop(held_wal);
        kill_point!("backup-wal-copied");
        let mut stored_tables = Vec::new();
        for (known, info) in tables {
            let name = info.id.file_name();
            stored_tables.push(match known {
                Some(stored) => stored,
                None => making.copy_table(db.catalog.tables.store(), &info, &mut |n| advance(&name, n))?,
            });
            kill_point!("backup-sstable-copied");
        }
        db.cx.check_open()?;
        drop(held_tables);

        let bytes = manifest::encode_whole(&state, manifest_number);
        let descriptor = Descriptor {
            id: making.id,
            database,
            seq: state.last_seq,
            created_us,
            manifest_number,
            manifest: making.write_manifest(&bytes)?,
            logs: stored_logs,
            tables: stored_tables,
        };
        let made = making.finish(&descriptor)?;
        let BackupInfo { id, seq, bytes, copied_bytes, .. } = made;
        let numbers = [("id", id), ("seq", seq.0), ("bytes", bytes), ("copied_bytes", copied_bytes)];
        db.cx.events.record(EventKind::Backup, "", format!("into {}", backups.dir.display()), &numbers);
        Ok(made)
    }

    fn backups_in(&self, dir: &Path) -> Backups {
        Backups::new(&self.inner.cx.env, dir)
    }
}
