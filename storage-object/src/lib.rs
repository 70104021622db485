//! SSTables of [`siltstone`] databases in an object store: S3 and what speaks its protocol, and HDFS (feature
//! `hdfs`).
//!
//! WAL and manifest stay in the database's own directory, so that writes cost what they always do. A flush or
//! compaction uploads its SSTables by parts while it writes them; reads are requests for ranges, whose bytes
//! are cached on the local disk within a budget. Only the database that owns the place deletes there, after
//! its manifest no longer names the SSTable; the next open removes what a crash left. Compaction servers
//! reach the same store by themselves.
//!
//! `location` names a place and finds what holds it, `calls` are its requests, `store` its calls, which wait
//! for them, `upload` an object that comes by parts, `ahead` fetches the ends of SSTables that will be
//! opened, `disk` keeps blocks on the local disk.
//!
//! ```no_run
//! use siltstone::{Db, Options};
//! use siltstone_storage_object::{DiskCache, ObjectStores, Settings};
//!
//! // Credentials, region and endpoint come from the environment, as for other programs: AWS_ACCESS_KEY_ID,
//! // AWS_SECRET_ACCESS_KEY, AWS_REGION, AWS_ENDPOINT_URL.
//! let disk = DiskCache { dir: "/var/cache/siltstone".into(), bytes: 10 << 30 };
//! let stores = ObjectStores::new(&Settings { disk: Some(disk), ..Settings::default() })?;
//! let db = Db::builder()
//!     .object_stores(move |location| stores.open(location))
//!     .options(Options { sstable_store: Some("s3://bucket/orders".into()), ..Options::default() })
//!     .open("/var/lib/siltstone")?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A shared database lies there with WAL and manifest, too:
//!
//! ```no_run
//! use siltstone::{Db, Options};
//! use siltstone_storage_object::{ObjectStores, Settings};
//!
//! let stores = ObjectStores::new(&Settings::default())?;
//! let db = Db::builder()
//!     .object_stores(move |location| stores.open(location))
//!     .options(Options { shared: Some("s3://prod/orders".into()), ..Options::default() })
//!     .open("/var/lib/orders")?;
//! db.put(b"river", b"silt")?; // returns once it is in the bucket
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod ahead;
mod calls;
mod disk;
mod location;
mod store;
mod upload;

pub use disk::{DiskCache, DiskUse};

use disk::Disk;
use parking_lot::Mutex;
use siltstone::storage::ObjectStore;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use store::Objects;
use tokio::runtime::Runtime;
use tokio::task::AbortHandle;

/// How object stores are reached.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The disk cache for blocks that were read, if there is one.
    pub disk: Option<DiskCache>,
    /// How long a call that fails is tried again, with growing pauses, before its error is returned.
    pub patience: Duration,
    /// How long one request may take. Of an upload that is a part of 8 MiB.
    pub timeout: Duration,
    /// Settings that override those of the environment, by the same names: `AWS_ENDPOINT_URL`,
    /// `AWS_ACCESS_KEY_ID`. Of HDFS, the settings of its client.
    pub variables: BTreeMap<String, String>,
}

impl Default for Settings {
    fn default() -> Self {
        let (patience, timeout) = (Duration::from_secs(60), Duration::from_secs(20));
        Self { disk: None, patience, timeout, variables: BTreeMap::new() }
    }
}

/// Object stores, found by their location. Clones share threads, connections and disk cache.
#[derive(Clone, Debug)]
pub struct ObjectStores(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    settings: Settings,
    disk: Option<Disk>,
    runtime: Arc<Threads>,
}

/// [`ObjectStores`] that start when the first location is asked for, so that a program that needs none starts
/// no threads and no cache.
#[derive(Debug, Default)]
pub struct LazyObjectStores {
    settings: Settings,
    stores: Mutex<Option<ObjectStores>>,
}

impl LazyObjectStores {
    /// Starts nothing.
    pub fn new(settings: Settings) -> Self {
        Self { settings, stores: Mutex::default() }
    }

    /// See [`ObjectStores::open`].
    ///
    /// # Errors
    /// As there; the first time as [`ObjectStores::new`], too.
    pub fn open(&self, location: &str) -> io::Result<Arc<dyn ObjectStore>> {
        let mut stores = self.stores.lock();
        let stores = match &mut *stores {
            Some(stores) => stores,
            none => none.insert(ObjectStores::new(&self.settings)?),
        };
        stores.open(location)
    }

    /// See [`ObjectStores::close`].
    ///
    /// # Errors
    /// As there.
    pub fn close(&self) -> io::Result<()> {
        self.stores.lock().take().map_or(Ok(()), |stores| stores.close())
    }
}

/// The threads that requests run on. They end with the last store.
#[derive(Debug)]
struct Threads(Option<Runtime>);

impl Threads {
    fn start() -> io::Result<Arc<Self>> {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let runtime = builder.worker_threads(2).thread_name("siltstone-objects").enable_all().build()?;
        Ok(Arc::new(Self(Some(runtime))))
    }

    /// Runs it there; the calling thread, which may be one that runs futures itself, waits.
    fn wait<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> io::Result<T> {
        let (send, receive) = std::sync::mpsc::sync_channel(1);
        self.spawn(async move {
            let _ = send.send(work.await);
        });
        receive.recv().map_err(|_| io::Error::other("a request to the object store ended by a panic"))
    }

    fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) -> Option<AbortHandle> {
        self.0.as_ref().map(|runtime| runtime.spawn(work).abort_handle())
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        // The last store may be dropped where futures run, which must not wait.
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

impl ObjectStores {
    /// Starts the threads, and opens the disk cache.
    ///
    /// # Errors
    /// What opening the disk cache meets; `AlreadyExists` where another process uses its directory.
    pub fn new(settings: &Settings) -> io::Result<Self> {
        // One may be there already: then it is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let runtime = Threads::start()?;
        let disk = match settings.disk.clone() {
            Some(cache) => Some(runtime.wait(Disk::open(cache))??),
            None => None,
        };
        Ok(Self(Arc::new(Shared { settings: settings.clone(), disk, runtime })))
    }

    /// The store of that location: `s3://bucket/prefix`, or `hdfs://name:port/path` with feature `hdfs`.
    /// Nothing is asked of it yet.
    ///
    /// # Errors
    /// `InvalidInput` where it is no such location, or the environment does not say what is needed to get
    /// there.
    pub fn open(&self, location: &str) -> io::Result<Arc<dyn ObjectStore>> {
        let Shared { settings, disk, runtime } = &*self.0;
        let found = location::find(location, settings)?;
        Ok(Arc::new(Objects::new(found, disk.clone(), runtime.clone())))
    }

    /// Writes what the disk cache still has in memory, and ends it. Without this call that is lost, and
    /// fetched again.
    ///
    /// # Errors
    /// What writing it meets.
    pub fn close(&self) -> io::Result<()> {
        match self.0.disk.clone() {
            Some(disk) => self.0.runtime.wait(async move { disk.close().await })?,
            None => Ok(()),
        }
    }

    /// Counts of the disk cache, if there is one.
    pub fn disk_use(&self) -> Option<DiskUse> {
        self.0.disk.as_ref().map(Disk::used)
    }
}
