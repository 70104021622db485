//! Following a shared database: reading it beside its owner, a little later, without an object put or
//! deleted.
//!
//! A follower reads the stream on, and so has the manifest's state and memory as of a place
//! (`catalog/following.rs`). Readers get *images*: read-only databases with the stores as they are there,
//! read at the newest sequence number there. An image never changes. It shares memtables with those before
//! it, to which the follower only adds cells with higher sequence numbers, or such as the image cannot meet;
//! SSTables are open once for all images, and the cache is one. So catching up costs what is new, and some
//! microseconds for each family.
//!
//! The owner keeps SSTables for ten minutes after it gave them up (`catalog/given_up.rs`), and what it
//! collects of the stream is unneeded by whoever begins then. Who is slower than that finds things gone, and
//! begins anew where readers start now.

use super::builder::Builder;
use super::open::{Opened, assemble, cache_for, default_of, open_tables, settings_of};
use super::{Db, Shared};
use crate::cache::BlockCache;
use crate::catalog::{Following, Found, tables_of};
use crate::commit::{Generations, Store};
use crate::error::{Error, ErrorKind, Result};
use crate::event::Events;
use crate::memtable::{ActiveMemtable, MemoryOptions};
use crate::schedule::ThreadScheduler;
use crate::shape::TableInfo;
use crate::sstable::tail_bytes;
use crate::storage::TableStore;
use crate::stream::{Place, Stream};
use crate::sync::Mutex;
use crate::types::StoreId;
use crate::version::edit::StoreState;
use crate::version::manifest::{Manifest, Mark};
use crate::version::{Graveyard, OpenTables, TableHandle, Version};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

/// How often a follower begins anew where what it is to read is gone by then.
const TRIES: usize = 20;

/// A follower of a shared database: it reads what the owner writes, a little later, and changes nothing, not
/// an object. Any number of processes may follow one. It needs no directory.
///
/// Nothing happens by itself: [`Follower::catch_up`] reads on, and is to be called again and again, as often
/// as reads are to be fresh. [`Follower::db`] is the database as of the last such call, for reading alone.
/// Handles, snapshots and scans of earlier ones stay as they are; SSTables under them exist for ten minutes
/// after the owner needs them no more, and then reads of what is not cached fail with `Io`.
///
/// Memory takes about as many bytes as the owner's WAL has, and reads visit a memtable for each one that the
/// owner began in that part of the WAL, which it may have joined since. The block cache gets what
/// [`Options::memory_budget`](crate::Options::memory_budget) leaves.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// use siltstone::{Builder, Options};
/// let options = Options { shared: Some(dir.path().join("shared")), ..Options::default() };
/// let owner = Builder::new().options(options.clone()).open(dir.path().join("local"))?;
/// let follower = Builder::new().options(options).open_follower()?;
/// owner.put(b"river", b"silt")?;
/// let before = follower.db();
/// follower.catch_up()?;
/// assert_eq!(follower.db().get(b"river")?.unwrap(), b"silt");
/// assert!(before.get(b"river")?.is_none(), "it stays as it was");
/// # Ok::<(), siltstone::Error>(())
/// ```
pub struct Follower {
    source: Source,
    /// What was read, by one call at a time.
    reading: Mutex<Reading>,
    shown: Mutex<Shown>,
}

/// How far a follower is behind the owner.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FollowerLag {
    /// The first place of the stream that it has not read.
    pub place: Place,
    /// When the newest write was made that it found in the stream, by the owner's wall clock (microseconds).
    /// `None` if it found none since it began: all were in SSTables.
    pub newest_write_us: Option<u64>,
    /// When the last [`Follower::catch_up`] that succeeded began, by this process's wall clock
    /// (microseconds). What was acknowledged before, the follower has.
    pub caught_up_us: u64,
}

/// What is followed, and what all images share.
struct Source {
    /// What images are assembled with.
    builder: Builder,
    /// The place, as images have it for their directory. Nothing is read or written there.
    dir: PathBuf,
    stream: Stream,
    database: u64,
    cache: Arc<BlockCache>,
    tables: Arc<OpenTables>,
    graveyard: Arc<Graveyard>,
    generations: Arc<Generations>,
}

struct Reading {
    following: Following,
    /// Each store with its memory and open SSTables.
    versions: BTreeMap<StoreId, Version>,
    /// How many entries were applied when the last image was made.
    shown: u64,
}

/// What readers get.
struct Shown {
    db: Db,
    lag: FollowerLag,
}

impl std::fmt::Debug for Follower {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Follower({})", self.source.dir.display())
    }
}

impl Builder {
    /// Follows the shared database in the place of [`Builder::shared`] or
    /// [`Options::shared`](crate::Options::shared): reads it beside its owner. Of the builder's families only
    /// the options count that concern reading, and none is created.
    ///
    /// # Errors
    /// `NotFound` if no shared database is there. `Busy` if it is still being created, or changes faster than
    /// it can be read. `Unsupported` if a newer release wrote it, or SSTables have values in the WAL.
    pub fn open_follower(self) -> Result<Follower> {
        self.options.validate()?;
        refuse_absent(&self)?;
        let Some(place) = self.shared_place()? else {
            return Err(Error::invalid("a follower needs the place of a shared database (option shared)"));
        };
        // Images have no workers, and their end is no event.
        let builder = Builder {
            scheduler: Arc::new(|| Arc::new(ThreadScheduler::new())),
            listener: None,
            offload: None,
            ..self
        };
        let began_us = builder.env.clock.wall_us();
        let (stream, database) = Following::find(&place, &builder.env.random)?;
        let dir = PathBuf::from(place.location());
        let cache = cache_for(&builder.options);
        let graveyard = Arc::new(Graveyard::default());
        let store = TableStore::objects(tables_of(&place, database));
        let tables = open_tables(&builder, &dir, store, &cache, &graveyard)?;
        let generations = Arc::default();
        let source = Source { builder, dir, stream, database, cache, tables, graveyard, generations };
        let (reading, db) = source.begin(1)?;
        let lag = reading.lag(began_us);
        Ok(Follower { source, reading: Mutex::new(reading), shown: Mutex::new(Shown { db, lag }) })
    }
}

/// Refuses a directory that is not there: whoever looks for objects in it would make it.
fn refuse_absent(builder: &Builder) -> Result<()> {
    let by_options = builder.options.shared.as_deref().filter(|_| builder.shared.is_none());
    let Some(dir) = by_options.filter(|place| !TableStore::is_location(place)) else { return Ok(()) };
    if builder.env.storage.exists(dir).map_err(|e| Error::io("look for", dir, e))? {
        return Ok(());
    }
    Err(Error::new(ErrorKind::NotFound, format!("{} holds no shared database", dir.display())))
}

impl Follower {
    /// Reads the stream on, as far as it goes, and makes [`Follower::db`] the database as it is there. So all
    /// that was acknowledged before the call is found afterwards. Returns how many entries were applied.
    /// Calls of several threads wait for each other; readers never do.
    ///
    /// Costs what is new, and O(families and SSTables) if anything is. If what it is to read is gone, as it
    /// was called too rarely, it begins anew, which takes as long as an open.
    ///
    /// # Errors
    /// What the store meets: [`Follower::db`] stays as it was, or got on by a part of what is new, and the
    /// next call goes on. `Busy` if the database changes faster than it can be read.
    pub fn catch_up(&self) -> Result<u64> {
        let mut reading = self.reading.lock();
        let began_us = self.source.builder.env.clock.wall_us();
        let applied = match self.go_on(&mut reading) {
            Err(e) if e.kind() == ErrorKind::NotFound => self.begin_anew(&mut reading),
            caught_up => caught_up,
        }?;
        self.shown.lock().lag = reading.lag(began_us);
        Ok(applied)
    }

    /// The database as of the last [`Follower::catch_up`]. All that would write fails with `ReadOnly`.
    /// Dropping the handle is enough: [`Db::close`] closes it for all who got it since then.
    pub fn db(&self) -> Db {
        self.shown.lock().db.clone()
    }

    /// How far it is behind, as of the last [`Follower::catch_up`] that succeeded.
    pub fn lag(&self) -> FollowerLag {
        self.shown.lock().lag
    }

    fn go_on(&self, reading: &mut Reading) -> Result<u64> {
        if reading.following.is_broken() {
            return self.begin_anew(reading);
        }
        let before = reading.following.applied();
        let read = reading.following.read_on();
        let applied = reading.following.applied();
        // Also what an earlier call has read and could not show.
        if applied > reading.shown && !reading.following.is_broken() {
            let db = self.source.image(reading)?;
            self.show(db);
        }
        read.map(|()| applied - before)
    }

    fn begin_anew(&self, reading: &mut Reading) -> Result<u64> {
        let (fresh, db) = self.source.begin(reading.following.place().incarnation)?;
        *reading = fresh;
        self.show(db);
        Ok(reading.following.applied())
    }

    fn show(&self, db: Db) {
        let before = std::mem::replace(&mut self.shown.lock().db, db);
        // Perhaps the last handle, which closes it: with no lock held.
        drop(before);
    }
}

impl Reading {
    fn lag(&self, caught_up_us: u64) -> FollowerLag {
        let (place, newest_write_us) = (self.following.place(), self.following.newest_write_us());
        FollowerLag { place, newest_write_us, caught_up_us }
    }
}

impl Source {
    /// Reads the database from where readers start now.
    fn begin(&self, hint: u64) -> Result<(Reading, Db)> {
        let mut last = None;
        for _ in 0..TRIES {
            match self.begin_once(hint) {
                Err(e) if e.kind() == ErrorKind::NotFound => last = Some(e),
                begun => return begun,
            }
        }
        let why = last.map_or(String::new(), |e| format!(" (last: {e})"));
        let message = format!("{} changes faster than it can be read{why}", self.dir.display());
        Err(Error::new(ErrorKind::Busy, message))
    }

    fn begin_once(&self, hint: u64) -> Result<(Reading, Db)> {
        let following = Following::begin(&self.stream, self.database, hint)?;
        let mut reading = Reading { following, versions: BTreeMap::new(), shown: 0 };
        let db = self.image(&mut reading)?;
        Ok((reading, db))
    }

    /// A read-only database with what was read; `NotFound` if an SSTable is gone.
    fn image(&self, reading: &mut Reading) -> Result<Db> {
        self.renew(reading)?;
        let Reading { following, versions, shown } = reading;
        let state = following.state();
        let mut stores = Vec::with_capacity(versions.len());
        for (id, version) in &*versions {
            if let Some(store) = state.stores.get(id) {
                stores.push(self.store(*id, store, version)?);
            }
        }
        let env = &self.builder.env;
        let found = Found {
            stores,
            manifest: Manifest::read_only(env, &self.dir, Mark::default(), state.clone()),
            cache: self.cache.clone(),
            tables: self.tables.clone(),
            graveyard: self.graveyard.clone(),
            epoch: state.epoch,
            offload: None,
        };
        let opened = Opened {
            found,
            last_seq: following.last_seq(),
            wal_found: Vec::new(),
            events: Events::new(env, &self.dir, 0, None),
            generations: self.generations.clone(),
            writing: None,
            lease: None,
        };
        let db = default_of(Shared::new(assemble(self.builder.clone(), &self.dir, opened)))?;
        *shown = following.applied();
        Ok(db)
    }

    /// Makes the versions of those stores anew that have changed.
    fn renew(&self, reading: &mut Reading) -> Result<()> {
        let Reading { following, versions, .. } = reading;
        for id in following.changed() {
            match following.state().stores.get(id) {
                Some(store) => _ = versions.insert(*id, self.version(following, *id, store)?),
                None => _ = versions.remove(id),
            }
        }
        following.forget_changed();
        Ok(())
    }

    fn version(&self, following: &Following, id: StoreId, store: &StoreState) -> Result<Version> {
        let new = store.shape.tables().filter(|(_, _, info)| !self.tables.is_open(info.id));
        self.tables.store().expect(new.map(|(_, _, info)| (info.id, tail_bytes(info.bytes))));
        let mut handles = BTreeMap::new();
        for (_, _, info) in store.shape.tables() {
            handles.insert(info.id, self.table(info)?);
        }
        // Nothing is ever written to it.
        let none = ActiveMemtable::new(self.generations.take(), MemoryOptions::for_active_bytes(0, 0, None));
        let version = Version::new(Arc::new(none).into()).with_shape(Arc::new(store.shape.clone()), &handles);
        let mut version = version.within(store.range.clone());
        version.memory.waiting = following.memory_of(id)?;
        Ok(version)
    }

    fn table(&self, info: &Arc<TableInfo>) -> Result<Arc<TableHandle>> {
        let path = || self.tables.store().path(info.id);
        if info.has_wal_values() {
            let message = format!("{} has values in the WAL, which no follower has", path().display());
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
        self.tables.open(info, None).map_err(|e| match self.tables.store().exists(info.id) {
            Ok(false) => {
                Error::new(ErrorKind::NotFound, format!("{} is not there any more", path().display()))
            }
            _ => e,
        })
    }

    fn store(&self, id: StoreId, state: &StoreState, version: &Version) -> Result<Arc<Store>> {
        let settings = settings_of(&self.builder, state)?;
        let version = version.with_memory(version.memory.clone());
        let (name, graveyard) = (state.name.clone(), self.graveyard.clone());
        let attached = (state.attached_from, state.attached);
        let store = Store::new(id, name, settings, version, &self.generations, graveyard, attached);
        store.fit_memory(self.builder.options.write_memory);
        store.forget(state.forgotten);
        Ok(store)
    }
}
