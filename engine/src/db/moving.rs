//! Moving a family between databases: detach and attach.
//!
//! A detached family is a database of its own, without a log: a directory with the tables, linked or copied, and a manifest
//! that knows this family and an empty default one. So it can be checked, read and repaired like any other, and be moved
//! by whatever moves files.
//!
//! In which order, so that a crash anywhere leaves the data in one usable place or in both, never in none:
//!
//! Detach: the family takes no more writes; its memory is flushed; the tables get their second names, durably; the
//! directory becomes a database by its `CURRENT`, durably (from here on in both places); one edit drops the family here
//! (from here on only there). A crash or an error before that edit leaves the family as it was, and the directory with a stale
//! copy or with nothing that opens. An error of the edit itself leaves both, since it may prove durable.
//!
//! Attach: the tables get second names in this database, durably; one edit adds the family with all of them. Before
//! it the names are orphans, which the next open removes. The directory stays as it is, for the caller to
//! remove; attached twice it makes two families.
//!
//! What must not clash:
//! - Names: tables are renamed to this epoch and a job of its own. The id in the file stays the old one; what a table is
//!   recognised by is its random identity.
//! - Generations: the family keeps its own, as they order only the runs and the memory of one store; its store's number
//!   is new here, so no frame of this log speaks of it.
//! - Sequence numbers: the cells keep theirs, and this database goes on above the highest of both. A snapshot from before
//!   would see some of the cells and not others, so it is refused ([`Store::check_read_point`]).

use super::{CompactionControl, DEFAULT_FAMILY, Db, Family, Inner};
use crate::catalog::{Catalog, check_name};
use crate::commit::{FamilySettings, Store, memory_options};
use crate::error::{Error, ErrorKind, Result};
use crate::event::EventKind;
use crate::log;
use crate::memory::Active;
use crate::shape::{ShapeChange, TableInfo};
use crate::storage::{Copied, Env, absolute, create_dir_durably, lock_dir};
use crate::types::{Generation, KeyRange, SeqNo, StoreId, TableId};
use crate::version::edit::{Change, Edit, State, StoreState};
use crate::version::manifest::{self, Manifest};
use crate::version::{TableHandle, TablesHeld, Version};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// A flush may keep hot cells in memory, but none for ever: after so many there is none left.
const FLUSHES_MAX: u32 = 10;

/// A table of an attached family: level, run and what it is called here.
type Linked = (usize, u64, Arc<TableInfo>);

impl Db {
    /// Takes a family out of this database and leaves it in a new directory, to be attached elsewhere. From the beginning
    /// writes to it answer `Busy`, at the end it is gone as after [`Db::drop_family`]; after an error it takes writes
    /// again. Values that stand in the log are merged into tables first. The directory is a database too, with this family, but one that is written to cannot be attached any more.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// use siltstone::{Db, FamilyOptions};
    /// let (from, to) = (Db::open(dir.path().join("a"))?, Db::open(dir.path().join("b"))?);
    /// from.create_family("rivers", FamilyOptions::default())?.put(b"elbe", b"1094 km")?;
    /// from.detach("rivers", dir.path().join("moving"))?;
    /// let rivers = to.attach("rivers", dir.path().join("moving"))?;
    /// assert_eq!(rivers.get(b"elbe")?.unwrap(), b"1094 km");
    /// # Ok::<(), siltstone::Error>(())
    /// ```
    pub fn detach(&self, family: &str, dir: impl AsRef<Path>) -> Result<()> {
        self.inner.detach(family, dir.as_ref())
    }

    /// Adds the family that [`Db::detach`] left in a directory, under a name that is free here. Its tables are linked, or
    /// copied from another file system; the directory stays and may be removed. Snapshots taken before do not see the family.
    pub fn attach(&self, family: &str, dir: impl AsRef<Path>) -> Result<Family> {
        let store = self.inner.attach(family, dir.as_ref())?;
        Ok(Family::new(self.inner.clone(), store))
    }
}

fn has_log_tables(store: &Store) -> bool {
    store.version().tables().any(|open| open.info.is_log_table())
}

impl Inner {
    fn detach(self: &Arc<Self>, name: &str, dir: &Path) -> Result<()> {
        self.commit.check_writable()?;
        let dir = &absolute(&self.commit.env, dir)?;
        let storage = &self.commit.env.storage;
        if storage.exists(dir).map_err(|e| Error::io("look for", dir, e))? {
            let message = format!("{} exists; detaching needs a new directory", dir.display());
            return Err(Error::invalid(message));
        }
        let _one = self.catalog.families.lock();
        self.commit.check_writable()?;
        let store = self.catalog.removable(name)?;
        // Most of it while writes go on.
        self.merge_log_tables(&store)?;
        let left = self.leave(&store, dir);
        if left.is_err() {
            store.set_leaving(false);
        }
        let tables = left?;
        let numbers = [("tables", tables)];
        self.commit.events.record(
            EventKind::Family,
            name,
            format!("detached into {}", dir.display()),
            &numbers,
        );
        Ok(())
    }

    /// The family out of here and into the directory; how many tables it has.
    fn leave(self: &Arc<Self>, store: &Arc<Store>, dir: &Path) -> Result<u64> {
        self.commit.with_writes_held(|_| store.set_leaving(true))?;
        kill_point!("detach-refusing");
        self.flush_out(store)?;
        self.merge_log_tables(store)?;
        if has_log_tables(store) {
            let message = format!("family {} has values in the log that no merge took out of it", store.name);
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
        let storage = &self.commit.env.storage;
        create_dir_durably(&**storage, dir).map_err(|e| Error::io("create the directory", dir, e))?;
        let env = self.commit.env.bound_to(dir)?;
        let mut copied = Copied::new(&env, dir);
        let (state, held) = self.state_alone(store)?;
        let tables = self.write_detached(&env, dir, state, &mut copied)?;
        copied.keep();
        drop(held);
        kill_point!("detach-described");
        self.catalog.forget(store)?;
        Ok(tables)
    }

    /// Compacts a store that has values in the log, which stays behind.
    fn merge_log_tables(self: &Arc<Self>, store: &Arc<Store>) -> Result<()> {
        match has_log_tables(store) {
            true => self.work.compact(store, KeyRange::all(), &CompactionControl::default()),
            false => Ok(()),
        }
    }

    /// Flushes a store that takes no writes until nothing of it is in memory.
    fn flush_out(self: &Arc<Self>, store: &Arc<Store>) -> Result<()> {
        for _ in 0..FLUSHES_MAX {
            self.work.flush(store)?;
            let version = store.version();
            if version.active.is_empty() && version.segments().next().is_none() {
                return Ok(());
            }
        }
        Err(Error::new(ErrorKind::Busy, format!("family {} cannot be flushed to its end", store.name)))
    }

    /// What a database would know that has only this store. Its tables are held as they are now.
    fn state_alone(&self, store: &Arc<Store>) -> Result<(State, TablesHeld)> {
        let manifest = self.catalog.manifest.lock();
        let now = manifest.state();
        let of_store = now.stores.get(&store.id).cloned();
        // Nothing of it is in a log.
        let of_store = of_store.map(|store| StoreState { origins: Default::default(), ..store });
        let of_store = of_store.ok_or_else(|| Error::invalid("a family that the manifest does not know"))?;
        let default =
            StoreState { name: DEFAULT_FAMILY.into(), options: "{}".into(), ..StoreState::default() };
        let default_id = StoreId(now.last_store.0 + 1);
        let state = State {
            // A number of its own: it goes its own way from here.
            database: self.commit.env.random.next_u64() | 1,
            epoch: now.epoch,
            last_seq: self.commit.snapshots.visible(),
            last_store: default_id,
            stores: [(store.id, of_store), (default_id, default)].into(),
            ..State::default()
        };
        let handles = store.version().tables().map(|open| open.handle.clone()).collect();
        Ok((state, self.catalog.graveyard.hold(handles)))
    }

    fn write_detached(&self, env: &Env, dir: &Path, state: State, copied: &mut Copied) -> Result<u64> {
        let storage = &env.storage;
        let mut tables = 0;
        for (_, _, info) in state.stores.values().flat_map(|store| store.shape.tables()) {
            let target = copied.file(&info.id.file_name());
            self.catalog.tables.store().take_out(info.id, &target, storage, info.bytes)?;
            tables += 1;
        }
        storage.sync_dir(dir).map_err(|e| Error::io("sync the directory", dir, e))?;
        kill_point!("detach-linked");
        manifest::files_of_start(1).iter().for_each(|name| drop(copied.file(name)));
        Manifest::start(env, dir, 1, state)?;
        Ok(tables)
    }

    fn attach(&self, name: &str, dir: &Path) -> Result<Arc<Store>> {
        self.commit.check_writable()?;
        check_name(name)?;
        // Nobody may write to it meanwhile.
        let _reading = lock_dir(&self.commit.env, dir, false)?;
        let (arriving, floor) = self.read_detached(dir)?;
        let options = Catalog::parse_options(name, &arriving.options)?;
        let settings = FamilySettings::resolve(name, options, &self.catalog.registry)?;
        let _one = self.catalog.families.lock();
        self.commit.check_writable()?;
        self.catalog.check_name_is_free(name)?;
        let mut linked = Vec::new();
        let done = self.link_attached(dir, &arriving, &mut linked);
        let infos: Vec<_> = linked.iter().map(|(_, _, info)| info.clone()).collect();
        let opened = done.and_then(|()| self.catalog.open_tables(&infos, &mut []));
        // No edit names them yet.
        let opened = opened.inspect_err(|_| self.catalog.remove_outputs(&infos))?;
        kill_point!("attach-linked");
        let store = self.add_attached(name, arriving, settings, linked, opened, floor)?;
        kill_point!("attach-committed");
        self.commit.recount(&store);
        self.catalog.fit_cache();
        self.commit.touch(store.id);
        self.commit.scheduler.notify();
        let numbers = [("tables", store.version().tables().count() as u64)];
        self.commit.events.record(
            EventKind::Family,
            name,
            format!("attached from {}", dir.display()),
            &numbers,
        );
        Ok(store)
    }

    /// The family in the directory, and the last sequence number of the database it comes from.
    fn read_detached(&self, dir: &Path) -> Result<(StoreState, SeqNo)> {
        let refuse = |why: &str| Err(Error::invalid(format!("{} {why}", dir.display())));
        let Some(loaded) = manifest::load(&self.commit.env, dir)? else {
            let message = format!("{} holds no detached family", dir.display());
            return Err(Error::new(ErrorKind::NotFound, message));
        };
        let names = self.commit.env.storage.list(dir).map_err(|e| Error::io("list", dir, e))?;
        if names.iter().any(|name| log::parse_file_name(name).is_some()) {
            return refuse("has a log: it is a database that was opened for writing, not a detached family");
        }
        let last_seq = loaded.state.last_seq;
        let (default, mut others): (Vec<StoreState>, Vec<StoreState>) =
            loaded.state.stores.into_values().partition(|store| store.name == DEFAULT_FAMILY);
        if default.iter().any(|store| store.shape.tables().next().is_some()) || others.len() != 1 {
            return refuse("holds more or less than one detached family");
        }
        Ok((others.remove(0), last_seq))
    }

    /// Gives the tables names in this database, durably: each with its level, run and new info. `linked` has those that
    /// got one also after a failure.
    fn link_attached(&self, dir: &Path, arriving: &StoreState, linked: &mut Vec<Linked>) -> Result<()> {
        let storage = &self.commit.env.storage;
        // With the set of families locked, the next store is this one.
        let store = self.catalog.manifest.lock().state().last_store.next();
        let first = self.catalog.next_name(store);
        for (part, (level, run, info)) in arriving.shape.tables().enumerate() {
            let id = TableId { part: part as u32, ..first };
            let from = dir.join(info.id.file_name());
            linked.push((level, run.id, Arc::new(TableInfo { id, ..(**info).clone() })));
            self.catalog.tables.store().bring_in(&from, storage, id, info.bytes)?;
        }
        self.catalog.tables.store().sync_names()
    }

    /// The one edit, with writes held; after it the store is in the list.
    fn add_attached(
        &self,
        name: &str,
        arriving: StoreState,
        settings: FamilySettings,
        linked: Vec<Linked>,
        opened: BTreeMap<TableId, Arc<TableHandle>>,
        floor: SeqNo,
    ) -> Result<Arc<Store>> {
        // Run ids of level 0 are generations too.
        let runs = linked.iter().filter(|(level, _, _)| *level == 0).map(|(_, run, _)| *run).max();
        let last_generation = Generation(arriving.last_generation.0.max(runs.unwrap_or(0)));
        let mut manifest = self.catalog.manifest.lock();
        let id = manifest.state().last_store.next();
        let mut attached = None;
        self.commit.with_one_seq(floor, |seq| {
            // What was written before must not be lost by a power cut that keeps the family (I2).
            let log_synced = self.commit.log()?.sync().inspect_err(|e| self.commit.poison(e))?;
            let change = ShapeChange { range: KeyRange::all(), added: linked, ..ShapeChange::default() };
            let edit: Edit = vec![
                Change::NewStore { id, name: name.to_string(), options: arriving.options },
                Change::LastGeneration { store: id, generation: last_generation },
                Change::Shape { store: id, change },
                Change::Region { store: id, range: arriving.range.clone(), origins: Vec::new() },
                Change::Attached { store: id, seq },
                Change::Forgotten { store: id, seq },
                Change::LastSeq(seq),
                Change::LogSynced(log_synced),
            ];
            let mark = self.catalog.commit_to(&mut manifest, &edit)?;
            let shape = Arc::new(manifest.state().stores[&id].shape.clone());
            attached = Some((seq, mark, shape));
            Ok(true)
        })?;
        drop(manifest);
        let (seq, mark, shape) = attached.expect("set in the turn that succeeded");
        self.commit.log_note(mark);
        self.commit.generations.above(last_generation);
        let first = self.commit.generations.take();
        let write_memory = self.commit.settings.write_memory();
        let active = Arc::new(Active::new(first, memory_options(&settings.options, write_memory)));
        let version = Version::new(active.into()).with_shape(shape, &opened).within(arriving.range);
        let (name, generations) = (name.to_string(), &self.commit.generations);
        let graveyard = self.catalog.graveyard.clone();
        let store = Store::attached(id, name, settings, version, generations, graveyard, seq);
        store.fit_memory(write_memory);
        self.catalog.add_store(store.clone());
        Ok(store)
    }
}
