//! The durable contents of a database: its stores, their SSTables and the manifest that names them.
//!
//! [`Catalog`] owns the list of stores (`stores`), the manifest, the files of SSTables and the list of those
//! to be removed (`tables`). `install` is the one place where SSTables change. `regions` splits and joins
//! stores. `full_disk` frees the reserve for deletes. `moment` says what a copy consists of, `directory`
//! where a database may be made, `recover` and `replay` bring back what WAL and manifest hold, `shared` takes
//! over a database in shared storage, known by its `shared_id` and its directory's mark (`local_part`);
//! `adopt` moves a local one there, `given_up` removes SSTables there. `following` reads such a database
//! beside its owner, with its memory in `logged_memory`. `strays` removes SSTables that a compaction
//! elsewhere left behind.
//!
//! Not owned here: the path of a write (`commit`), who flushes and compacts, and when (`work`).

mod adopt;
mod directory;
mod following;
mod full_disk;
mod given_up;
mod install;
mod local_part;
mod logged_memory;
mod moment;
mod recover;
mod regions;
mod replay;
mod shared;
mod shared_id;
mod stores;
mod strays;
mod tables;

pub(crate) use adopt::{Adoption, remove_manifests, undo_adoption};
pub(crate) use directory::{NOTE_NEW, no_database, refuse_leftovers, refuse_no_database, refuse_occupied};
pub(crate) use following::Following;
pub(crate) use install::{Flushed, Install};
pub(crate) use local_part::{local_part, refuse_local_part};
pub(crate) use moment::PinnedCopy;
pub(crate) use recover::{
    highest_manifest, needed_wal_files, read_wal, remove_orphans, remove_unnamed_tables,
};
pub(crate) use regions::check_bounds;
pub(crate) use replay::Replay;
pub(crate) use shared::{TakenOver, tables_of, take_over};
pub(crate) use stores::check_name;

use crate::cache::BlockCache;
use crate::commit::{Commit, Store};
use crate::compaction::Local;
use crate::context::Context;
use crate::error::{Error, ErrorKind, Result};
use crate::offload::Offload;
use crate::operator::Registry;
use crate::sync::{ArcSwap, AtomicU32, Mutex, Ordering};
use crate::types::{LogFileId, StoreId, TableId};
use crate::version::manifest::Manifest;
use crate::version::{Graveyard, OpenTables};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

// Over 15 fields: what a database shares between its stores, each with a lock of its own.
pub(crate) struct Catalog {
    pub(crate) cx: Arc<Context>,
    pub(crate) commit: Arc<Commit>,
    pub(crate) dir: PathBuf,
    /// The database's random number.
    pub(crate) database: u64,
    pub(crate) epoch: u32,
    next_job: AtomicU32,
    pub(crate) registry: Registry,
    stores: ArcSwap<Vec<Arc<Store>>>,
    /// Names of dropped stores, with the WAL file in which their last writes may be.
    names_gone: Mutex<BTreeMap<StoreId, (LogFileId, Arc<str>)>>,
    /// One change of the set of stores, or of how memory is divided, at a time.
    pub(crate) families: Mutex<()>,
    pub(crate) manifest: Mutex<Manifest>,
    pub(crate) cache: Arc<BlockCache>,
    pub(crate) tables: Arc<OpenTables>,
    pub(crate) graveyard: Arc<Graveyard>,
    /// The executor of compactions in this process, and the way to other processes.
    pub(crate) local: Local,
    pub(crate) offload: Option<Arc<dyn Offload>>,
    /// Bytes of SSTables that came from the memory of other processes.
    pub(crate) remote_bytes: Arc<std::sync::atomic::AtomicU64>,
    /// Compactions elsewhere that were given up.
    strays: Mutex<Vec<strays::Stray>>,
    /// SSTables that a shared database has given up.
    given_up: Option<Mutex<given_up::GivenUp>>,
    /// One change of the cache's size at a time.
    fitting: Mutex<()>,
}

/// The results of opening a database, of which a [`Catalog`] is made.
pub(crate) struct Found {
    pub(crate) stores: Vec<Arc<Store>>,
    pub(crate) manifest: Manifest,
    pub(crate) cache: Arc<BlockCache>,
    pub(crate) tables: Arc<OpenTables>,
    pub(crate) graveyard: Arc<Graveyard>,
    pub(crate) epoch: u32,
    /// The way to compactions in other processes, if there is one.
    pub(crate) offload: Option<Arc<dyn Offload>>,
}

impl Catalog {
    pub(crate) fn new(commit: &Arc<Commit>, dir: &Path, registry: Registry, found: Found) -> Arc<Self> {
        let Found { stores, manifest, cache, tables, graveyard, epoch, offload } = found;
        let now_ns = commit.cx.env.clock.monotonic_ns();
        let given_up = manifest.is_shared().then(|| Mutex::new(given_up::GivenUp::since(now_ns)));
        let local = Local {
            env: commit.cx.env.clone(),
            tables: tables.clone(),
            cache: cache.clone(),
            registry: registry.clone(),
            writes_over: true,
            written: None,
        };
        stores.iter().for_each(|store| store.use_spares(&commit.room.spares));
        let catalog = Arc::new(Self {
            cx: commit.cx.clone(),
            commit: commit.clone(),
            dir: dir.to_path_buf(),
            database: manifest.state().database,
            epoch,
            next_job: AtomicU32::new(1),
            registry,
            stores: ArcSwap::from_pointee(stores),
            names_gone: Mutex::default(),
            families: Mutex::new(()),
            manifest: Mutex::new(manifest),
            cache,
            tables,
            graveyard,
            offload,
            local,
            remote_bytes: Arc::default(),
            strays: Mutex::default(),
            given_up,
            fitting: Mutex::new(()),
        });
        catalog.recount_all();
        commit.enter_fronts(&catalog.stores());
        commit.touch_all(&catalog.stores());
        catalog.fit_cache();
        catalog
    }

    /// All stores, by number.
    pub(crate) fn stores(&self) -> Arc<Vec<Arc<Store>>> {
        self.stores.load_full()
    }

    /// The store of the family of that name; `NotFound` if there is none.
    pub(crate) fn find(&self, name: &str) -> Result<Arc<Store>> {
        let store = self.stores().iter().find(|store| store.name == name).cloned();
        store.ok_or_else(|| Error::new(ErrorKind::NotFound, format!("there is no family {name}")))
    }

    /// The name of the first SSTable that a new job makes for the store.
    pub(crate) fn next_name(&self, store: StoreId) -> TableId {
        TableId { store, epoch: self.epoch, job: self.next_job(), part: 0 }
    }

    /// Number for the names of a job's outputs.
    pub(crate) fn next_job(&self) -> u32 {
        self.next_job.fetch_add(1, Ordering::Relaxed)
    }
}
