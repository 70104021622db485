//! The check of a database: reads everything, by the code that opens and reads databases, and lists what is
//! wrong.

use super::plan::in_force;
use super::{CheckProgress, CheckReport, Damage, Meter, list, logged};
use crate::cache::BlockCache;
use crate::catalog::{NOTE_NEW, needed_wal_files, read_wal, refuse_local_part};
use crate::error::{Error, Result};
use crate::event::EVENTS_NEW;
use crate::options::stored_options;
use crate::shape::TableInfo;
use crate::sstable::{Access, Sstable};
use crate::storage::{BEGUN, Env, OpenObjectStore, TableStore, absolute, lock_dir};
use crate::types::TableId;
use crate::version::edit::{State, StoreState};
use crate::version::manifest::{self, CURRENT_NEW, Loaded};
use crate::wal;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

/// Verification reads past the cache; index and filters need a little room.
pub(super) const CACHE_BYTES: u64 = 4 << 20;

/// Reads every byte of use in a database that is not open anywhere and lists what is wrong. Changes nothing.
///
/// `Busy` when the database is open for writing, `NotFound` when there is none. Bytes that no read can meet
/// (blocks below an SSTable's clip, the unused end of a WAL file, leftover files) are not judged.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// let db = siltstone::Db::open(dir.path())?;
/// db.put(b"silt", b"stone")?;
/// db.close()?;
/// let report = siltstone::check(&siltstone::storage::Env::local(), dir.path(), &mut |_| {})?;
/// assert!(report.is_clean());
/// # Ok::<(), siltstone::Error>(())
/// ```
pub fn check(env: &Env, dir: &Path, progress: &mut dyn FnMut(CheckProgress)) -> Result<CheckReport> {
    check_in(env, dir, None, progress)
}

/// [`check`] of a database whose SSTables may lie in an object store, which `stores` finds by its location.
pub fn check_with_objects(
    env: &Env,
    dir: &Path,
    stores: &OpenObjectStore,
    progress: &mut dyn FnMut(CheckProgress),
) -> Result<CheckReport> {
    check_in(env, dir, Some(stores), progress)
}

fn check_in(
    env: &Env,
    dir: &Path,
    stores: Option<&OpenObjectStore>,
    progress: &mut dyn FnMut(CheckProgress),
) -> Result<CheckReport> {
    let dir = &absolute(env, dir)?;
    let env = &env.bound_if_there(dir)?;
    let _lock = lock_dir(&*env.storage, dir, false)?;
    refuse_local_part(env, dir)?;
    let files = list(env, dir)?;
    let total = files.iter().filter(|(name, _)| is_ours(name)).map(|(_, bytes)| bytes).sum();
    let check = Check {
        env,
        dir,
        stores,
        files: &files,
        meter: Meter::new(progress, total),
        report: CheckReport::default(),
    };
    check.run()
}

/// The files that a crash may leave half-written.
const UNFINISHED: [&str; 4] = [BEGUN, CURRENT_NEW, NOTE_NEW, EVENTS_NEW];

fn is_ours(name: &str) -> bool {
    name == "CURRENT"
        || TableId::parse_file_name(name).is_some()
        || wal::parse_file_name(name).is_some()
        || manifest::parse_file_name(name).is_some()
}

struct Check<'a> {
    env: &'a Env,
    dir: &'a Path,
    /// Finds object stores, if the caller gave something that can.
    stores: Option<&'a OpenObjectStore>,
    files: &'a [(String, u64)],
    meter: Meter<'a>,
    report: CheckReport,
}

impl Check<'_> {
    fn run(mut self) -> Result<CheckReport> {
        match in_force(self.env, self.dir)? {
            Ok(loaded) => self.database(&loaded)?,
            Err(e) => self.without_manifest(&e)?,
        }
        self.meter.end();
        Ok(self.report)
    }

    fn damaged(&mut self, file: &str, e: &Error) {
        let name = e.file().and_then(Path::file_name).map(|name| name.to_string_lossy().into_owned());
        let file = name.unwrap_or_else(|| file.to_string());
        // A place is reported once.
        let damage = Damage { file, offset: e.offset(), message: e.to_string() };
        if !self.report.damages.contains(&damage) {
            self.report.damages.push(damage);
        }
    }

    /// Lists what else is wrong where the manifest in force cannot be read whole.
    fn without_manifest(&mut self, why: &Error) -> Result<()> {
        self.damaged("CURRENT", why);
        if let Ok(Some((database, number))) = manifest::current(self.env, self.dir)
            && let Some(found) = manifest::salvage(self.env, self.dir, number, Some(database))
        {
            let name = manifest::file_name(number);
            for lost in found.lost.iter().filter(|lost| why.offset() != Some(lost.start)) {
                let what =
                    format!("bytes {} to {} hold no manifest record that is whole", lost.start, lost.end);
                self.damaged(&name, &Error::corruption(self.dir.join(&name), lost.start, what));
            }
            // The manifest's state of the WAL may be old. Then damage in a part that is needed no more is
            // listed, too.
            self.note_wal_damages(&found.state, why)?;
        }
        self.tables_alone();
        Ok(())
    }

    /// Lists every part of the WAL that cannot be read, except one that is listed already.
    fn note_wal_damages(&mut self, state: &State, told: &Error) -> Result<()> {
        let found = logged::salvage(self.env, self.dir, state, &mut |_| Ok(()))?;
        for lost in &found.lost {
            let path = self.dir.join(wal::file_name(lost.file));
            if told.file() == Some(&path) && told.offset().is_some_and(|at| lost.bytes.contains(&at)) {
                continue;
            }
            let what = format!("{lost} cannot be read");
            self.damaged("log", &Error::corruption(path, lost.bytes.start, what));
        }
        Ok(())
    }

    fn database(&mut self, loaded: &Loaded) -> Result<()> {
        let Loaded { state, mark } = loaded;
        let manifest_name = manifest::file_name(mark.number);
        self.report.database = Some(state.database);
        self.report.bytes += mark.length + self.length("CURRENT");
        self.meter.file(&manifest_name, self.length(&manifest_name) + self.length("CURRENT"));
        let tables = TableStore::at(&state.tables, &self.env.storage, self.dir, self.stores)?.bound()?;
        let mut names = BTreeSet::new();
        for store in state.stores.values() {
            self.report.families += 1;
            if !names.insert(&store.name) {
                let what =
                    Error::corruption(&manifest_name, 0, format!("two families are named {}", store.name));
                self.damaged(&manifest_name, &what);
            }
            self.store(&manifest_name, store, &tables);
        }
        let mut live: BTreeSet<String> = BTreeSet::from([manifest_name]);
        let named = state.stores.values().flat_map(|store| store.shape.tables());
        live.extend(named.map(|(_, _, info)| info.id.file_name()));
        live.extend(needed_wal_files(state).into_iter().map(wal::file_name));
        live.extend(state.wal_retained.keys().map(|file| wal::file_name(*file)));
        let log_bytes = self.files.iter().filter(|(name, _)| wal::parse_file_name(name).is_some());
        self.meter.file("log", log_bytes.map(|(_, bytes)| bytes).sum());
        match read_wal(self.env, self.dir, state, Some(*mark), &mut |_| Ok(()), &mut |_, _| {}) {
            Ok(recovered) => {
                self.report.log_files += recovered.files.len() as u64;
                self.report.log_frames += recovered.frames;
                self.report.bytes += recovered.bytes;
                live.extend(recovered.files.iter().map(|file| wal::file_name(file.file)));
            }
            Err(e) => {
                self.damaged("log", &e);
                self.note_wal_damages(state, &e)?;
                // It is not known which part of the WAL is needed.
                live.extend(self.files.iter().map(|(name, _)| name.clone()).filter(|n| n.ends_with(".log")));
            }
        }
        let ours = |name: &str| (is_ours(name) && name != "CURRENT") || UNFINISHED.contains(&name);
        let left = self.files.iter().map(|(name, _)| name).filter(|name| ours(name) && !live.contains(*name));
        self.report.leftovers = left.cloned().collect();
        if !state.tables.is_empty() {
            let there = tables.list()?.into_iter().map(TableId::file_name);
            self.report.leftovers.extend(there.filter(|name| !live.contains(name)));
        }
        Ok(())
    }

    fn store(&mut self, manifest_name: &str, store: &StoreState, tables: &TableStore) {
        let wrong =
            |what: String| Error::corruption(manifest_name, 0, format!("family {}: {what}", store.name));
        let options = stored_options(&store.name, &store.options).map_err(|e| wrong(e.to_string()));
        if let Err(e) = options.and_then(|(options, _)| options.validate()) {
            self.damaged(manifest_name, &e);
        }
        if let Err(what) = store.shape.check() {
            self.damaged(manifest_name, &wrong(what));
        }
        for (_, _, info) in store.shape.tables() {
            let name = info.id.file_name();
            self.table(&name, info.bytes, || open_named(self.env, self.dir, tables, info));
        }
    }

    /// Without a manifest each SSTable can still be checked against its own properties.
    fn tables_alone(&mut self) {
        for (name, bytes) in self.files.iter().filter(|(name, _)| TableId::parse_file_name(name).is_some()) {
            self.table(name, *bytes, || open_unknown(self.env, self.dir, name));
        }
    }

    /// Reads one SSTable, and lists every damaged data block of it.
    fn table(&mut self, name: &str, bytes: u64, open: impl FnOnce() -> Result<Arc<Sstable>>) {
        self.meter.file(name, bytes);
        self.report.tables += 1;
        let mut damages = Vec::new();
        match open().and_then(|table| table.verify_telling(&mut |damage| damages.push(damage))) {
            Ok(verified) => {
                self.report.blocks += verified.blocks;
                self.report.dead_blocks += verified.dead_blocks;
                self.report.cells += verified.cells;
                self.report.bytes += verified.bytes;
            }
            Err(e) => damages.push(e),
        }
        damages.iter().for_each(|damage| self.damaged(name, damage));
    }

    fn length(&self, name: &str) -> u64 {
        self.files.iter().find(|(n, _)| n == name).map_or(0, |(_, bytes)| *bytes)
    }
}

/// Opens an SSTable of which only the file is known.
pub(super) fn open_unknown(env: &Env, dir: &Path, file: &str) -> Result<Arc<Sstable>> {
    Sstable::open_unknown(&env.storage, &dir.join(file), &BlockCache::new(CACHE_BYTES))
}

/// Opens an SSTable as the manifest describes it.
pub(super) fn open_named(
    env: &Env,
    dir: &Path,
    tables: &TableStore,
    info: &Arc<TableInfo>,
) -> Result<Arc<Sstable>> {
    let path = tables.path(info.id);
    if !tables.exists(info.id)? {
        return Err(Error::corruption(&path, 0, "table is missing, expected it by the manifest"));
    }
    let access = Access { logs: Some((&*env.storage, dir)), ..Access::default() };
    Sstable::open_with(tables.storage(), &path, info.clone(), &BlockCache::new(CACHE_BYTES), access)
}
