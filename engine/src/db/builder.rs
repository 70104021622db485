//! The builder of a database: options, families, and components such as storage and scheduler.

use crate::error::{Error, ErrorKind, Result};
use crate::event::Listener;
use crate::offload::{CompactionRunner, Offload};
use crate::operator::{CompactionFilter, MergeOperator, Registry};
use crate::options::{FamilyOptions, Options};
use crate::schedule::{MakeScheduler, ThreadScheduler};
use crate::storage::{DirectoryObjects, Env, ObjectStore, OpenObjectStore, TableStore, absolute};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// How to open a database.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// use siltstone::{Builder, FamilyOptions, Options};
/// let db = Builder::new()
///     .options(Options { write_memory: 8 << 20, ..Default::default() })
///     .family("users", FamilyOptions::default())
///     .open(dir.path())?;
/// db.family("users")?.put(b"ada", b"1815")?;
/// # Ok::<(), siltstone::Error>(())
/// ```
#[derive(Clone)]
pub struct Builder {
    pub(crate) options: Options,
    pub(crate) env: Env,
    pub(crate) scheduler: MakeScheduler,
    pub(crate) registry: Registry,
    pub(crate) listener: Option<Listener>,
    pub(crate) families: Vec<(String, FamilyOptions)>,
    pub(crate) objects: Option<Arc<dyn ObjectStore>>,
    /// Where WAL, manifest and SSTables lie, if the database is shared.
    pub(crate) shared: Option<Arc<dyn ObjectStore>>,
    pub(crate) stores: Option<Arc<OpenObjectStore>>,
    /// Offers compactions to other processes, if set.
    pub(crate) offload: Option<Arc<dyn Offload>>,
}

impl Default for Builder {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for Builder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Builder").field("options", &self.options).finish_non_exhaustive()
    }
}

impl Builder {
    /// Default options, the machine's own files and clock, workers on threads.
    pub fn new() -> Self {
        Self {
            options: Options::default(),
            env: Env::local(),
            scheduler: Arc::new(|| Arc::new(ThreadScheduler::new())),
            registry: Registry::default(),
            listener: None,
            families: Vec::new(),
            objects: None,
            shared: None,
            stores: None,
            offload: None,
        }
    }

    /// Settings.
    #[must_use]
    pub fn options(mut self, options: Options) -> Self {
        self.options = options;
        self
    }

    /// Files, clock and randomness to live in.
    #[must_use]
    pub fn env(mut self, env: Env) -> Self {
        self.env = env;
        self
    }

    /// The scheduler of background work.
    #[must_use]
    pub fn scheduler(mut self, scheduler: Arc<dyn crate::schedule::Scheduler>) -> Self {
        self.scheduler = Arc::new(move || scheduler.clone());
        self
    }

    /// Registers a merge operator under a name that families refer to.
    #[must_use]
    pub fn merge_operator(mut self, name: &str, operator: Arc<dyn MergeOperator>) -> Self {
        self.registry.operators.insert(name.to_string(), operator);
        self
    }

    /// Registers a compaction filter under a name that families refer to.
    #[must_use]
    pub fn filter(mut self, name: &str, filter: Arc<dyn CompactionFilter>) -> Self {
        self.registry.filters.insert(name.to_string(), filter);
        self
    }

    /// The object store for SSTables; WAL and manifest stay in the directory. It belongs to one database:
    /// name it when the database is created, and at each open.
    #[must_use]
    pub fn object_store(mut self, store: Arc<dyn ObjectStore>) -> Self {
        self.objects = Some(store);
        self
    }

    /// Makes the database a shared one: all of it lies in that store, and the directory is a cache that may
    /// be lost. Whoever opens it last owns it; writes of a former owner fail with `Busy` or `Poisoned` from
    /// then on. A write is acknowledged, and seen by readers, once it is in the store. Option
    /// [`Options::shared`] names a store by its location. docs/shared.md has the whole.
    ///
    /// # Errors
    /// At the open: `Unsupported` if the store does not refuse to put an object over another.
    #[must_use]
    pub fn shared(mut self, store: Arc<dyn ObjectStore>) -> Self {
        self.shared = Some(store);
        self
    }

    /// Finds the object store of a location such as `s3://bucket/prefix`, which [`Options::sstable_store`],
    /// [`Options::shared`] or the database itself names. Crate `siltstone-storage-object` has one for S3 and
    /// HDFS.
    #[must_use]
    pub fn object_stores(
        mut self,
        open: impl Fn(&str) -> std::io::Result<Arc<dyn ObjectStore>> + Send + Sync + 'static,
    ) -> Self {
        self.stores = Some(Arc::new(open));
        self
    }

    /// Offers compactions to `offload`, which runs those that it accepts in another process; see
    /// [`crate::offload`].
    #[must_use]
    pub fn offload(mut self, offload: Arc<dyn Offload>) -> Self {
        self.offload = Some(offload);
        self
    }

    /// Runs the compactions of other databases in this process, with the operators, filters, object store and
    /// files of this builder. It caches indices and the like in `cache_bytes` of memory, and outputs of
    /// compactions that ask for it ([`crate::offload::RetainOutputs`]) in `kept_bytes`.
    pub fn compaction_runner(&self, cache_bytes: u64, kept_bytes: u64) -> CompactionRunner {
        let objects = (self.objects.clone(), self.stores.clone());
        CompactionRunner::new(&self.env, &self.registry, objects, cache_bytes, kept_bytes)
    }

    /// Called for every event.
    #[must_use]
    pub fn listener(mut self, listener: impl Fn(&crate::event::Event) + Send + Sync + 'static) -> Self {
        self.listener = Some(Arc::new(listener));
        self
    }

    /// Creates the family if it is missing, or else gives it these options.
    #[must_use]
    pub fn family(mut self, name: &str, options: FamilyOptions) -> Self {
        self.families.push((name.to_string(), options));
        self
    }

    /// The place of the SSTables of the database in `dir`, by these options.
    pub(crate) fn place(&self, dir: &Path) -> Result<TableStore> {
        let storage = &self.env.storage;
        match (&self.objects, &self.options.sstable_store) {
            (Some(objects), _) => Ok(TableStore::objects(objects.clone())),
            (None, Some(tables)) if TableStore::is_location(tables) => {
                TableStore::found(&tables.to_string_lossy(), self.stores.as_deref())
            }
            (None, Some(tables)) => Ok(TableStore::directory(storage, tables)),
            (None, None) => Ok(TableStore::beside(storage, dir)),
        }
    }

    /// The place of the whole database, if it is a shared one.
    pub(super) fn shared_place(&self) -> Result<Option<Arc<dyn ObjectStore>>> {
        let place = match (&self.shared, &self.options.shared) {
            (Some(store), _) => store.clone(),
            (None, Some(place)) if TableStore::is_location(place) => {
                let place = place.to_string_lossy();
                let Some(open) = &self.stores else {
                    let message =
                        format!("the database lies in {place}, and nothing was given that finds it");
                    return Err(Error::new(ErrorKind::Unsupported, message));
                };
                open(&place).map_err(|e| Error::io("open the object store", Path::new(&*place), e))?
            }
            (None, Some(dir)) => DirectoryObjects::new(&self.env.storage, self.env.random.clone(), dir)
                .map_err(|e| Error::io("open the directory", dir, e))?,
            (None, None) => return Ok(None),
        };
        if self.objects.is_some() || self.options.sstable_store.is_some() {
            return Err(Error::invalid("a shared database has its SSTables in its place, and in no other"));
        }
        Ok(Some(place))
    }

    /// The absolute path of the directory; makes that of its SSTables in the options absolute, too.
    pub(super) fn absolute(&mut self, dir: &Path) -> Result<PathBuf> {
        if let Some(tables) =
            self.options.sstable_store.as_mut().filter(|tables| !TableStore::is_location(tables))
        {
            *tables = absolute(&self.env, tables)?;
        }
        if let Some(place) = self.options.shared.as_mut().filter(|place| !TableStore::is_location(place)) {
            *place = absolute(&self.env, place)?;
        }
        absolute(&self.env, dir)
    }
}
