//! Moving a closed local database into shared storage, and undoing that. The steps, and what a kill between
//! any two of them leaves, are in `catalog/adopt.rs`; here are what comes before them (who may, values in the
//! WAL, the lock) and the result.
//!
//! Nothing is opened for it but a database with values in the WAL: WAL, manifest and SSTables move as they
//! are, so no merge operator or filter needs to be registered.

use super::builder::Builder;
use super::claim::lock_to_adopt;
use crate::catalog::{Adoption, local_part, remove_manifests, undo_adoption};
use crate::error::{Error, ErrorKind, Result};
use crate::options::{Options, stored_options};
use crate::repair::CheckProgress;
use crate::storage::{ObjectStore, TableStore};
use crate::version::edit::State;
use crate::version::manifest;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A database that [`Builder::adopt`] has moved.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Adopted {
    /// SSTables that it had in its directory; 0 where an earlier call had come to the end.
    pub tables: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// Bytes of those that this call uploaded; the others were in the place already.
    pub uploaded_bytes: u64,
}

impl Builder {
    /// Makes the local database in `dir`, which nobody has open, the shared one in the place that
    /// [`Builder::shared`] or [`Options::shared`] names. It keeps its contents, options, sequence numbers and
    /// the WAL that is kept for streams of changes; `dir` becomes its local part. From the beginning on `dir`
    /// is refused by every other call, also by that of a release that knows no shared databases. After an
    /// error or a kill the same call goes on, and [`Builder::undo_adoption`] gives up. Values in the WAL are
    /// compacted into SSTables first.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// use siltstone::{Builder, Db, Options};
    /// let (data, place) = (dir.path().join("data"), dir.path().join("place"));
    /// let db = Db::open(&data)?;
    /// db.put(b"river", b"silt")?;
    /// db.close()?;
    /// drop(db);
    /// let shared = Builder::new().options(Options { shared: Some(place), ..Default::default() });
    /// shared.clone().adopt(&data, &mut |_| {})?;
    /// assert!(Db::open(&data).is_err());
    /// let db = shared.open(dir.path().join("elsewhere"))?;
    /// assert_eq!(db.get(b"river")?.unwrap(), b"silt");
    /// # Ok::<(), siltstone::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Invalid` if the place is another database's, or that of another copy of the directory, or no place is
    /// named. `Busy` if the database is open. `Unsupported` if a family leaves values in the WAL
    /// ([`FamilyOptions::wal_values`](crate::FamilyOptions::wal_values)), or the store does not refuse to put
    /// an object over another.
    pub fn adopt(
        mut self,
        dir: impl AsRef<Path>,
        progress: &mut dyn FnMut(CheckProgress),
    ) -> Result<Adopted> {
        let (dir, place) = self.prepare_move(dir.as_ref())?;
        self.merge_wal_values(&dir)?;
        let _lock = lock_to_adopt(&mut self, &dir)?;
        let Some(loaded) = manifest::load_marked(&self.env, &dir)? else {
            let database = self.moved_before(&dir, &place)?;
            remove_manifests(&self.env, &dir, database)?;
            return Ok(Adopted::default());
        };
        refuse_elsewhere(&dir, &place, &loaded.state)?;
        refuse_wal_values(&loaded.state)?;
        let env = &self.env;
        let tables = TableStore::at(&loaded.state.tables, &env.storage, &dir, self.stores.as_deref())?;
        let tables = tables.bound()?;
        let _of_tables = tables.claim(loaded.state.database, false)?;
        let wal_limit = self.options.wal_limit();
        let adoption = Adoption { env, dir: &dir, place: &place, tables, loaded, wal_limit };
        let in_use = adoption.tables_in_use();
        let bytes: u64 = in_use.values().map(|info| info.bytes).sum();
        let mut done = 0;
        let uploaded_bytes = adoption.run(&mut |file, more| {
            done += more;
            progress(CheckProgress { file: file.to_string(), done, total: bytes });
        })?;
        Ok(Adopted { tables: in_use.len() as u64, bytes, uploaded_bytes })
    }

    /// Makes the database in `dir` a local one again that [`Builder::adopt`] has begun to move, or was to
    /// move to a place that another copy of `dir` had. What was uploaded stays in the place.
    ///
    /// # Errors
    /// `Invalid` if it is the shared database already.
    pub fn undo_adoption(mut self, dir: impl AsRef<Path>) -> Result<()> {
        let (dir, place) = self.prepare_move(dir.as_ref())?;
        let _lock = lock_to_adopt(&mut self, &dir)?;
        let Some(loaded) = manifest::load_marked(&self.env, &dir)? else {
            self.moved_before(&dir, &place)?;
            let (dir, place) = (dir.display(), place.location());
            return Err(Error::invalid(format!(
                "{dir} is the local part of the database in {place} already"
            )));
        };
        refuse_elsewhere(&dir, &place, &loaded.state)?;
        undo_adoption(&self.env, &dir, &place, &loaded)
    }

    /// The directory and the place.
    fn prepare_move(&mut self, dir: &Path) -> Result<(PathBuf, Arc<dyn ObjectStore>)> {
        self.options.validate()?;
        let dir = self.absolute(dir)?;
        if self.options.shared.as_ref().is_some_and(|place| place.starts_with(&dir)) {
            return Err(Error::invalid("the place of the shared database lies in the directory that moves"));
        }
        self.env = self.env.with_access(self.options.file_access);
        let unnamed = || Error::invalid("no place is named for the shared database");
        let place = self.shared_place()?.ok_or_else(unnamed)?;
        Ok((dir, place))
    }

    /// The number of the database, if the directory without a manifest is its local part.
    fn moved_before(&self, dir: &Path, place: &Arc<dyn ObjectStore>) -> Result<u64> {
        match local_part(&self.env, dir)? {
            Some((database, location)) if location == place.location() => Ok(database),
            Some((_, location)) => {
                let dir = dir.display();
                Err(Error::invalid(format!("{dir} is the local part of the shared database in {location}")))
            }
            None => {
                let message = format!("{} holds no database", dir.display());
                Err(Error::new(ErrorKind::NotFound, message))
            }
        }
    }

    /// Compacts SSTables with values in the WAL, whose files no other machine has.
    fn merge_wal_values(&self, dir: &Path) -> Result<()> {
        let env = self.env.bound_if_there(dir)?;
        let Some(loaded) = manifest::load_marked(&env, dir)? else { return Ok(()) };
        let mut tables = loaded.state.stores.values().flat_map(|store| store.shape.tables());
        if loaded.state.shared.is_some() || !tables.any(|(_, _, info)| info.has_wal_values()) {
            return Ok(());
        }
        refuse_wal_values(&loaded.state)?;
        drop(env);
        let options = Options {
            shared: None,
            create_if_missing: false,
            error_if_exists: false,
            // What is kept for streams of changes moves, too.
            change_log_bytes: u64::MAX,
            ..self.options.clone()
        };
        let local = Self { shared: None, options, families: Vec::new(), ..self.clone() };
        let db = local.open(dir)?;
        let stores = db.inner.catalog.stores();
        let merged = stores.iter().try_for_each(|store| db.inner.compact_wal_values(store));
        let closed = db.close();
        merged.and(closed)
    }
}

/// Refuses a place that is not the one to which the database is moving.
fn refuse_elsewhere(dir: &Path, place: &Arc<dyn ObjectStore>, state: &State) -> Result<()> {
    match &state.shared {
        Some(mark) if mark.location != place.location() => Err(mark.refusal(dir)),
        _ => Ok(()),
    }
}

/// Refuses families that would leave values in WAL files again.
fn refuse_wal_values(state: &State) -> Result<()> {
    for store in state.stores.values() {
        let name = &store.name;
        let options = stored_options(name, &store.options);
        // Options that this release does not know are the next open's to judge.
        if options.is_ok_and(|(options, _)| options.wal_values) {
            let message = format!(
                "family {name} has the option wal_values, which a shared database does not have: alter it first"
            );
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
    }
    Ok(())
}
