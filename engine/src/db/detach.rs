//! Moving a family between databases: detach and attach.
//!
//! A detached family is a database of its own, without a WAL: a directory with the SSTables, linked or
//! copied, and a manifest that knows this family and an empty default one. So it can be checked, read and
//! repaired like any other, and be moved by whatever moves files.
//!
//! The order of steps ensures that a crash anywhere leaves the data in one usable place or in both, never in
//! none:
//!
//! Detach: the family takes no more writes; its memory is flushed; the SSTables get their second names,
//! durably; the directory becomes a database by its `CURRENT`, durably (now it is in both places); one edit
//! drops the family from this database (now it is only in the directory). A crash or an error before that
//! edit leaves the family as it was, and the directory with a stale copy or with nothing that opens. An error
//! of the edit itself leaves both, since it may prove durable.
//!
//! Attach: the SSTables get second names in this database, durably; one edit adds the family with all of
//! them. Before it the names are orphans, which the next open removes. The directory stays as it is, for the
//! caller to remove; attached twice it makes two families.
//!
//! Things that must not clash:
//! - Names: SSTables are renamed to this epoch and a job of its own. The id in the file stays the old one; an
//!   SSTable is recognised by its random identity.
//! - Generations: the family keeps its own, as they order only the runs and the memory of one store; its
//!   store's number is new here, so no frame of this WAL is for it.
//! - Sequence numbers: the cells keep theirs, and this database goes on above the highest of both. A snapshot
//!   from before would see some of the cells and not others, so it is refused ([`Store::check_read_point`]).

use super::{CompactionControl, DEFAULT_FAMILY, Db, Family, Inner};
use crate::catalog::{Catalog, check_name};
use crate::commit::{FamilySettings, Store, first_active};
use crate::error::{Error, ErrorKind, Result};
use crate::event::EventKind;
use crate::shape::{Shape, ShapeChange, TableInfo};
use crate::storage::{Copied, Env, absolute, create_dir_durably, lock_dir};
use crate::types::{Generation, KeyRange, SeqNo, StoreId, TableId};
use crate::version::edit::{Change, Edit, State, StoreState};
use crate::version::manifest::{self, Manifest};
use crate::version::{PinnedTables, TableHandle, Version};
use crate::wal;
use std::collections::{BTreeMap, BTreeSet};
use std::iter::successors;
use std::path::Path;
use std::sync::Arc;

/// Bound on the flushes that empty a family's memory: each may keep hot cells, but none for ever.
const FLUSHES_MAX: u32 = 10;

/// An SSTable of an attached family: level, run and what it is called here.
type Linked = (usize, u64, Arc<TableInfo>);

/// Gives an SSTable of another database, named first, a name here, and says how many bytes it has. Durable
/// but for the name.
pub(super) type BringIn<'a> = &'a dyn Fn(TableId, TableId, u64) -> Result<()>;

/// A family that is about to be added.
pub(super) struct Arriving {
    name: String,
    /// The family's state in the database that it comes from.
    state: StoreState,
    settings: FamilySettings,
    /// Its SSTables that were given names here, including the one at which that failed.
    linked: Vec<Linked>,
}

impl Arriving {
    /// Run ids of L0 are generations too.
    fn last_generation(&self) -> Generation {
        let runs = self.linked.iter().filter(|(level, _, _)| *level == 0).map(|(_, run, _)| *run).max();
        Generation(self.state.last_generation.0.max(runs.unwrap_or(0)))
    }

    /// The manifest changes that add it as a store of that number; the attach takes the sequence numbers from
    /// the first of these to the last.
    fn changes(&self, store: StoreId, (first, seq): (SeqNo, SeqNo)) -> [Change; 7] {
        let added = self.linked.clone();
        let change = ShapeChange { range: KeyRange::all(), added, ..ShapeChange::default() };
        let options = self.state.options.clone();
        [
            Change::NewStore { id: store, name: self.name.clone(), options },
            Change::LastGeneration { store, generation: self.last_generation() },
            Change::Shape { store, change },
            Change::Region { store, range: self.state.range.clone(), origins: Vec::new() },
            // The first of these marks the beginning of the skipped sequence numbers.
            Change::Attached { store, seq: first },
            Change::Attached { store, seq },
            Change::Forgotten { store, seq },
        ]
    }
}

impl Db {
    /// Takes a family out of this database and leaves it in a new directory, to be attached elsewhere. From
    /// the beginning writes to it answer `Busy`, at the end it is gone as after [`Db::drop_family`]; after an
    /// error it takes writes again. Values in the WAL are compacted into SSTables first. The directory is a
    /// database too, with this family, but one that is written to cannot be attached any more.
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

    /// Adds the family that [`Db::detach`] left in a directory, under a name that is free here. Its SSTables
    /// are linked, or copied from another file system; the directory stays and may be removed. Snapshots
    /// taken before do not see the family.
    pub fn attach(&self, family: &str, dir: impl AsRef<Path>) -> Result<Family> {
        let store = self.inner.attach(family, dir.as_ref())?;
        Ok(Family::new(self.inner.clone(), store))
    }
}

/// The manifest's state of a store, without origins, as nothing of it is in a WAL.
pub(super) fn known_of(state: &State, store: &Store) -> Result<StoreState> {
    let known = state.stores.get(&store.id).cloned();
    let known = known.ok_or_else(|| Error::invalid("a family that the manifest does not know"))?;
    Ok(StoreState { origins: Default::default(), ..known })
}

fn has_wal_values(store: &Store) -> bool {
    store.version().tables().any(|open| open.info.has_wal_values())
}

impl Inner {
    fn detach(self: &Arc<Self>, name: &str, dir: &Path) -> Result<()> {
        self.cx.check_writable()?;
        let dir = &absolute(&self.cx.env, dir)?;
        let storage = &self.cx.env.storage;
        if storage.exists(dir).map_err(|e| Error::io("look for", dir, e))? {
            let message = format!("{} exists; detaching needs a new directory", dir.display());
            return Err(Error::invalid(message));
        }
        let _one = self.catalog.families.lock();
        self.cx.check_writable()?;
        let store = self.catalog.removable(name)?;
        // Most of it while writes go on.
        self.compact_wal_values(&store)?;
        let left = self.leave(&store, dir);
        if left.is_err() {
            store.set_leaving(false);
        }
        let tables = left?;
        let numbers = [("sstables", tables)];
        self.cx.events.record(EventKind::Family, name, format!("detached into {}", dir.display()), &numbers);
        Ok(())
    }

    /// The family out of here and into the directory; how many SSTables it has.
    fn leave(self: &Arc<Self>, store: &Arc<Store>, dir: &Path) -> Result<u64> {
        self.commit.with_writes_held(|_| store.set_leaving(true))?;
        kill_point!("detach-refusing");
        self.empty_memory(store)?;
        let storage = &self.cx.env.storage;
        create_dir_durably(&**storage, dir).map_err(|e| Error::io("create the directory", dir, e))?;
        let env = self.cx.env.bound_to(dir)?;
        let mut copied = Copied::new(&env, dir, true);
        let (state, held) = self.state_alone(store)?;
        let tables = self.write_detached(&env, dir, state, &mut copied)?;
        copied.keep();
        drop(held);
        kill_point!("detach-described");
        self.catalog.forget(store)?;
        Ok(tables)
    }

    /// Brings all of a store that takes no writes into SSTables, none of which has values in the WAL.
    pub(super) fn empty_memory(self: &Arc<Self>, store: &Arc<Store>) -> Result<()> {
        self.flush_out(store)?;
        self.compact_wal_values(store)?;
        if has_wal_values(store) {
            let message =
                format!("family {} has values in the WAL that no compaction took out of it", store.name);
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
        Ok(())
    }

    /// Compacts a store that has values in the WAL, which stays behind.
    pub(super) fn compact_wal_values(self: &Arc<Self>, store: &Arc<Store>) -> Result<()> {
        match has_wal_values(store) {
            true => self.work.compact(store, KeyRange::all(), &CompactionControl::default()),
            false => Ok(()),
        }
    }

    /// Flushes a store that takes no writes until nothing of it is in memory.
    fn flush_out(self: &Arc<Self>, store: &Arc<Store>) -> Result<()> {
        for _ in 0..FLUSHES_MAX {
            self.work.flush(store)?;
            if store.version().memory.is_empty() {
                return Ok(());
            }
        }
        Err(Error::new(ErrorKind::Busy, format!("family {} cannot be flushed to its end", store.name)))
    }

    /// The state of a database that has only this store. Its SSTables are pinned as they are now.
    fn state_alone(&self, store: &Arc<Store>) -> Result<(State, PinnedTables)> {
        let manifest = self.catalog.manifest.lock();
        let now = manifest.state();
        let of_store = known_of(now, store)?;
        let default =
            StoreState { name: DEFAULT_FAMILY.into(), options: "{}".into(), ..StoreState::default() };
        let default_id = StoreId(now.last_store.0 + 1);
        let state = State {
            // A number of its own: it goes its own way from here.
            database: self.cx.env.random.next_u64() | 1,
            epoch: now.epoch,
            last_seq: self.commit.snapshots.visible(),
            last_store: default_id,
            stores: [(store.id, of_store), (default_id, default)].into(),
            ..State::default()
        };
        Ok((state, self.catalog.hold_tables(std::slice::from_ref(store))))
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
        self.cx.check_writable()?;
        // Nobody may write to it meanwhile.
        let _reading = lock_dir(&*self.cx.env.storage, dir, false)?;
        let (state, floor) = self.read_detached(dir)?;
        let arriving = self.arriving(name, state)?;
        let (tables, storage) = (self.catalog.tables.store(), &self.cx.env.storage);
        let mut stores = self.take_in(vec![arriving], floor, &|theirs, ours, bytes| {
            tables.bring_in(&dir.join(theirs.file_name()), storage, ours, bytes)
        })?;
        let store = stores.remove(0);
        let numbers = [("sstables", store.version().tables().count() as u64)];
        self.cx.events.record(EventKind::Family, name, format!("attached from {}", dir.display()), &numbers);
        Ok(store)
    }

    /// A family with that state, to be added under that name.
    pub(super) fn arriving(&self, name: &str, state: StoreState) -> Result<Arriving> {
        check_name(name)?;
        let (options, papers_missing) = Catalog::parse_options(name, &state.options)?;
        let settings = FamilySettings::resolve(name, options, &self.catalog.registry)?;
        let settings = FamilySettings { papers_missing, ..settings };
        Ok(Arriving { name: name.to_string(), state, settings, linked: Vec::new() })
    }

    /// Adds families by one edit, all of them or none.
    pub(super) fn take_in(
        &self,
        mut arriving: Vec<Arriving>,
        floor: SeqNo,
        bring_in: BringIn<'_>,
    ) -> Result<Vec<Arc<Store>>> {
        let _one = self.catalog.families.lock();
        self.cx.check_writable()?;
        let mut names = BTreeSet::new();
        for Arriving { name, .. } in &arriving {
            self.catalog.check_name_is_free(name)?;
            if !names.insert(name) {
                return Err(Error::invalid(format!("two families are to be called {name}")));
            }
        }
        let done = self.link_attached(&mut arriving, bring_in);
        let linked = arriving.iter().flat_map(|family| &family.linked);
        let infos: Vec<_> = linked.map(|(_, _, info)| info.clone()).collect();
        let opened = done.and_then(|()| self.catalog.open_tables(&infos, &mut []));
        // No edit names them yet.
        let opened = opened.inspect_err(|_| self.catalog.remove_outputs(&infos))?;
        kill_point!("attach-linked");
        let stores = self.add_attached(arriving, &opened, floor)?;
        kill_point!("attach-committed");
        for store in &stores {
            self.commit.recount(store);
            self.commit.touch(store.id);
        }
        self.catalog.fit_cache();
        self.cx.scheduler.notify();
        Ok(stores)
    }

    /// The family in the directory, and the last sequence number of the database it comes from.
    fn read_detached(&self, dir: &Path) -> Result<(StoreState, SeqNo)> {
        let refuse = |why: &str| Err(Error::invalid(format!("{} {why}", dir.display())));
        let Some(loaded) = manifest::load(&self.cx.env, dir)? else {
            let message = format!("{} holds no detached family", dir.display());
            return Err(Error::new(ErrorKind::NotFound, message));
        };
        let names = self.cx.env.storage.list(dir).map_err(|e| Error::io("list", dir, e))?;
        if names.iter().any(|name| wal::parse_file_name(name).is_some()) {
            return refuse("has a WAL: it is a database that was opened for writing, not a detached family");
        }
        let last_seq = loaded.state.last_seq;
        let (default, mut others): (Vec<StoreState>, Vec<StoreState>) =
            loaded.state.stores.into_values().partition(|store| store.name == DEFAULT_FAMILY);
        if default.iter().any(|store| store.shape.tables().next().is_some()) || others.len() != 1 {
            return refuse("holds more or less than one detached family");
        }
        Ok((others.remove(0), last_seq))
    }

    /// Gives the SSTables names in this database, durably: each with its level, run and new info.
    fn link_attached(&self, arriving: &mut [Arriving], bring_in: BringIn<'_>) -> Result<()> {
        // With the set of families locked, the next stores are these.
        let mut store = self.catalog.manifest.lock().state().last_store;
        for family in arriving {
            store = store.next();
            let first = self.catalog.next_name(store);
            for (part, (level, run, info)) in family.state.shape.tables().enumerate() {
                let id = TableId { part: part as u32, ..first };
                family.linked.push((level, run.id, Arc::new(TableInfo { id, ..(**info).clone() })));
                bring_in(info.id, id, info.bytes)?;
            }
        }
        self.catalog.tables.store().sync_names()
    }

    /// The one edit, while writers wait; after it the stores are in the list.
    fn add_attached(
        &self,
        arriving: Vec<Arriving>,
        opened: &BTreeMap<TableId, Arc<TableHandle>>,
        floor: SeqNo,
    ) -> Result<Vec<Arc<Store>>> {
        let mut manifest = self.catalog.manifest.lock();
        let before = manifest.state().last_store;
        let next = |id: &StoreId| Some(id.next());
        let ids: Vec<StoreId> = successors(next(&before), next).take(arriving.len()).collect();
        let mut attached = None;
        self.commit.with_one_seq(floor, |first, seq| {
            // Earlier writes must not be lost by a power cut that leaves the families (I2).
            let wal_synced = self.commit.wal()?.sync().inspect_err(|e| self.cx.poison(e))?;
            let mut edit: Edit = Vec::new();
            for (family, id) in arriving.iter().zip(&ids) {
                edit.extend(family.changes(*id, (first, seq)));
            }
            edit.extend([Change::LastSeq(seq), Change::WalSynced(wal_synced)]);
            attached = Some(((first, seq), self.catalog.commit_to(&mut manifest, &edit)?));
            Ok(true)
        })?;
        let shape = |id: &StoreId| Arc::new(manifest.state().stores[id].shape.clone());
        let shapes: Vec<Arc<Shape>> = ids.iter().map(shape).collect();
        drop(manifest);
        let (taken, mark) = attached.expect("set in the turn that succeeded");
        self.commit.log_note(mark);
        let write_memory = self.cx.settings.write_memory();
        let mut stores = Vec::with_capacity(ids.len());
        for ((family, id), shape) in arriving.into_iter().zip(ids).zip(shapes) {
            self.commit.generations.above(family.last_generation());
            let generations = &self.commit.generations;
            let Arriving { name, state, settings, .. } = family;
            let active = first_active(&settings.options, generations.take(), write_memory);
            let version = Version::new(active.into()).with_shape(shape, opened).within(state.range);
            let graveyard = self.catalog.graveyard.clone();
            let store = Store::new(id, name, settings, version, generations, graveyard, taken);
            store.fit_memory(write_memory);
            self.catalog.add_store(store.clone());
            stores.push(store);
        }
        Ok(stores)
    }
}
