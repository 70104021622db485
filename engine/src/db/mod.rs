//! The database: what a caller holds, and the paths of a write, a read and a scan.
//!
//! - `builder`, `claim`, `open`, `stand_by`, `read_only`, `close`, `destroy`: what a database is opened with,
//!   whose its directory is, recovery, opening once another process is gone, opening for reading, ending in
//!   good order, and deleting. `follower` reads a shared database beside its owner; `adopt` moves a closed
//!   one into shared storage.
//! - `batch`, `transaction`: what is written together; how it is written is `commit`. `condition` has what
//!   must hold at a write, `conflicts` what others have written since, `write_set` what a transaction has
//!   written itself.
//! - `get`, `multi_get`, `scan`, `cursor`: the read paths. Scans and cursors yield an `entry`, and are walks
//!   (`direction`) over `sources`, that is memtables and SSTables; `visible` and `tombstone_skip` decide what
//!   a reader sees.
//! - `family`, `checkpoint`, `backup`, `detach`, `copying`, `ingest`, `inspect`, `estimate`, `changes` (the
//!   stream of what is written), `export` (statistics): the rest of what a caller can do.
//!
//! This folder owns no format and no background work. It joins `commit` (the write path and what stores
//! hold), `catalog` (stores, manifest and SSTables) and `work` (flushes, compactions and other jobs).

mod adopt;
mod backup;
mod batch;
mod builder;
mod changes;
mod checkpoint;
mod claim;
mod close;
mod condition;
mod conflicts;
mod copying;
mod cursor;
mod destroy;
mod detach;
mod direction;
mod entry;
mod estimate;
#[cfg(feature = "metrics")]
mod export;
mod family;
mod follower;
mod get;
mod ingest;
mod inspect;
#[cfg(all(test, models))]
mod model;
mod multi_get;
mod open;
mod read_only;
mod scan;
mod sources;
mod stand_by;
mod tombstone_skip;
mod transaction;
mod visible;
mod write_set;

pub use crate::commit::DEFAULT_FAMILY;
pub use crate::sstable::BlockListing;
pub use crate::work::CompactionControl;
pub use adopt::Adopted;
pub use batch::{Batch, Operation};
pub use builder::Builder;
pub use changes::{Change, ChangeBatch, ChangeKind, Changes};
pub(crate) use close::Shared;
pub use condition::{Condition, Expected};
pub use cursor::Cursor;
pub use destroy::destroy;
pub use entry::Entry;
pub use estimate::Estimate;
pub use family::{Family, Reader};
pub use follower::{Follower, FollowerLag};
pub use ingest::SstableWriter;
pub use inspect::{MemtableListing, TableListing, WalListing};
pub use scan::{Keys, Scan};
pub use transaction::{Isolation, Transaction, TransactionScan};

use crate::catalog::Catalog;
use crate::commit::Commit;
use crate::context::Context;
use crate::error::{Error, ErrorKind, Result};
use crate::event::Event;
use crate::latency::Latencies;
use crate::lease::Keeper;
use crate::operator::check_outside;
use crate::options::{Durability, FamilyOptions, Options};
use crate::snapshot::Snapshot;
use crate::sync::Mutex;
use crate::types::{Pinned, SeqNo};
use crate::work::Work;
use std::ops::RangeBounds;
use std::path::Path;
use std::sync::Arc;

/// The shared state behind all handles.
pub(crate) struct Inner {
    pub(crate) cx: Arc<Context>,
    pub(crate) commit: Arc<Commit>,
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) work: Arc<Work>,
    /// The lease of a shared database.
    keeper: Option<Arc<Keeper>>,
    /// The WAL files that recovery found, for a read-only database to list.
    wal_found: Vec<WalListing>,
    /// Locks of the database's directory and of the one where SSTables lie; none when read-only.
    locks: Mutex<Vec<Box<dyn Send + Sync>>>,
}

crate::types::sent!(Inner { cx, commit, catalog, work, keeper, wal_found, locks });

/// A database. A cheap handle: clone it freely; the database is closed when the last handle, family and scan
/// is dropped, or by [`Db::close`].
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// use siltstone::{Batch, Db};
/// let db = Db::open(dir.path())?;
/// db.put(b"river", b"silt")?;
/// assert_eq!(db.get(b"river")?.unwrap(), b"silt");
/// let mut batch = Batch::new();
/// batch.put(&db.default_family(), b"lake", b"mud").delete(&db.default_family(), b"river");
/// db.write(&batch)?;
/// assert!(db.get(b"river")?.is_none());
/// db.close()?;
/// # Ok::<(), siltstone::Error>(())
/// ```
#[derive(Clone)]
pub struct Db {
    pub(crate) inner: Shared,
    default: Family,
}

impl std::fmt::Debug for Db {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Db({})", self.inner.catalog.dir.display())
    }
}

impl Db {
    /// Opens the database in a directory, creating it if there is none, with default options. `Busy` when it
    /// is open for writing already, here or in another process.
    ///
    /// Which file systems are supported, and what holds for networks and for processes that fork, is in
    /// docs/filesystems.md: in short, local disks, and no `fork` without `exec` while a database is open.
    pub fn open(dir: impl AsRef<Path>) -> Result<Db> {
        Builder::new().open(dir)
    }

    /// Options and components for opening.
    pub fn builder() -> Builder {
        Builder::new()
    }

    /// The directory of the database.
    pub fn path(&self) -> &Path {
        &self.inner.catalog.dir
    }

    /// The family named `default`.
    pub fn default_family(&self) -> Family {
        self.default.clone()
    }

    /// The family of that name; `NotFound` if there is none.
    pub fn family(&self, name: &str) -> Result<Family> {
        Ok(Family::new(self.inner.clone(), self.inner.catalog.find(name)?))
    }

    /// The names of all families, in order of creation.
    pub fn families(&self) -> Vec<String> {
        self.inner.catalog.stores().iter().map(|s| s.name.clone()).collect()
    }

    /// All families, in order of creation.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap(); let db = siltstone::Db::open(dir.path())?;
    /// db.create_family("users", Default::default())?; assert_eq!(db.all_families().iter().map(|family|
    /// family.name()).collect::<Vec<_>>(), ["default", "users"]);
    /// # Ok::<(), siltstone::Error>(())
    /// ```
    pub fn all_families(&self) -> Vec<Family> {
        let stores = self.inner.catalog.stores();
        stores.iter().map(|store| Family::new(self.inner.clone(), store.clone())).collect()
    }

    /// Changes the options of several families, as [`Family::alter`] does of one: all or none, at the cost of
    /// one.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// let db = siltstone::Db::open(dir.path())?;
    /// let options = siltstone::FamilyOptions { ttl_us: 3_600_000_000, ..Default::default() };
    /// db.alter_families(db.all_families().into_iter().map(|family| (family, options.clone())))?;
    /// assert_eq!(db.default_family().options(), options);
    /// # Ok::<(), siltstone::Error>(())
    /// ```
    pub fn alter_families(&self, changes: impl IntoIterator<Item = (Family, FamilyOptions)>) -> Result<()> {
        let mut altered = Vec::new();
        for (family, options) in changes {
            if !Arc::ptr_eq(&family.db, &self.inner) {
                return Err(Error::invalid("a family of another database was to be altered"));
            }
            altered.push((family.store, options));
        }
        self.inner.catalog.alter_families(altered)
    }

    /// Creates a family; `Invalid` if the name is taken.
    pub fn create_family(&self, name: &str, options: FamilyOptions) -> Result<Family> {
        let store = self.inner.catalog.create_family(name, options)?;
        Ok(Family::new(self.inner.clone(), store))
    }

    /// Drops a family and all it holds. Handles and scans of it answer `NotFound` from now on.
    pub fn drop_family(&self, name: &str) -> Result<()> {
        self.inner.catalog.drop_family(name)
    }

    /// Writes a batch, all or nothing, over any of this database's families; its sequence number.
    pub fn write(&self, batch: &Batch) -> Result<SeqNo> {
        self.write_with(batch, Durability::Buffered)
    }

    /// [`Db::write`] with a durability of choice.
    pub fn write_with(&self, batch: &Batch, durability: Durability) -> Result<SeqNo> {
        self.inner.catalog.write(&batch.ops(&self.inner)?, durability, None)
    }

    /// Writes the batch if all conditions hold at that moment, else `Conflict`. Atomic with respect to all
    /// other writes.
    pub fn write_if(&self, conditions: &[Condition], batch: &Batch, durability: Durability) -> Result<SeqNo> {
        let depends = condition::Conditions { db: &self.inner, all: conditions };
        let written = self.inner.catalog.write(&batch.ops(&self.inner)?, durability, Some(&depends));
        if written.as_ref().is_err_and(|e| e.kind() == ErrorKind::Conflict) {
            // It says what was read.
            self.inner.cx.check_lease()?;
        }
        written
    }

    /// Begins an optimistic transaction, [serializable](Isolation::Serializable).
    pub fn begin(&self) -> Transaction {
        self.begin_with(Isolation::default())
    }

    /// [`Db::begin`] with an isolation of choice.
    pub fn begin_with(&self, isolation: Isolation) -> Transaction {
        Transaction::new(self.clone(), isolation)
    }

    /// A snapshot of the present, over all families.
    pub fn snapshot(&self) -> Snapshot {
        self.inner.commit.snapshots.take()
    }

    /// The default family as the snapshot sees it.
    pub fn at(&self, snapshot: &Snapshot) -> Reader {
        self.default.at(snapshot)
    }

    /// [`Family::put`] on the default family.
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<SeqNo> {
        self.default.put(key.as_ref(), value.as_ref())
    }

    /// [`Family::delete`] on the default family.
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<SeqNo> {
        self.default.delete(key.as_ref())
    }

    /// [`Family::get`] on the default family.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Pinned>> {
        self.default.get(key.as_ref())
    }

    /// [`Family::multi_get`] on the default family.
    pub fn multi_get<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Option<Pinned>>> {
        self.default.multi_get(keys)
    }

    /// [`Family::scan`] on the default family.
    pub fn scan<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Scan {
        self.default.scan(range)
    }

    /// Makes everything written so far survive a power loss.
    pub fn sync(&self) -> Result<()> {
        self.inner.cx.check_writable()?;
        self.inner.commit.wal()?.sync().map(|_| ()).inspect_err(|e| self.inner.cx.poison(e))
    }

    /// Writes all memory of all families to SSTables.
    pub fn flush(&self) -> Result<()> {
        self.inner.catalog.stores().iter().try_for_each(|store| self.inner.work.flush(store))
    }

    /// Waits until no flush and no compaction runs or is due, and all SSTables are open that an open left to
    /// background work. The error of background work that fails again and again ends it.
    pub fn wait_idle(&self) -> Result<()> {
        self.inner.work.wait_idle()
    }

    /// Writes an exact copy of the database as it is now into a new directory, on the same file system
    /// without copying SSTables. Writers go on meanwhile.
    pub fn checkpoint(&self, dir: impl AsRef<Path>) -> Result<SeqNo> {
        self.inner.checkpoint(dir.as_ref())
    }

    /// Whether the disk is full: a flush or a compaction failed for lack of space, and none has succeeded
    /// since.
    pub fn is_disk_full(&self) -> bool {
        let failure = self.inner.commit.background_failure();
        failure.is_some_and(|error| error.kind() == ErrorKind::DiskFull)
    }

    /// How long gets, writes, delays, flushes and compactions took since it was opened.
    pub fn latencies(&self) -> Latencies {
        self.inner.cx.metrics.timers.load()
    }

    /// Recent events, oldest first.
    pub fn events(&self) -> Vec<Event> {
        self.inner.cx.events.list()
    }

    /// Divides memory anew, without a restart: `write_memory` bytes of `memory_budget` are for unflushed
    /// writes, the rest is for the cache. If the cache shrinks, this call evicts blocks. If write memory
    /// shrinks, flushes free it, and the cache grows as they do. Less write memory also means a smaller WAL
    /// and smaller batches (a quarter of the WAL's limit). It lasts until the database is closed: the next
    /// open takes what its [`Options`] say.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// let db = siltstone::Db::open(dir.path())?;
    /// let now = db.options();
    /// // The nightly import is about to begin: writes get half of the budget.
    /// db.set_memory_limits(now.memory_budget / 2, now.memory_budget)?;
    /// assert_eq!(db.options().write_memory, now.memory_budget / 2);
    /// # Ok::<(), siltstone::Error>(())
    /// ```
    pub fn set_memory_limits(&self, write_memory: u64, memory_budget: u64) -> Result<()> {
        check_outside()?;
        self.inner.catalog.set_memory_limits(write_memory, memory_budget)
    }

    /// The settings as they are now.
    pub fn options(&self) -> Options {
        self.inner.cx.settings.now()
    }

    /// Whether a write now would stall, as flushes or compactions are behind: for callers that must not wait.
    /// O(1); a moment later the answer may differ.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// let db = siltstone::Db::open(dir.path())?;
    /// assert!(!db.is_write_stalled());
    /// # Ok::<(), siltstone::Error>(())
    /// ```
    pub fn is_write_stalled(&self) -> bool {
        self.inner.commit.is_write_stalled()
    }

    /// Changes the limit of bytes a second that flushes and compactions write; 0 for none.
    pub fn set_rate_limit(&self, bytes_per_second: u64) {
        self.inner.cx.rates.limit.set(bytes_per_second);
        self.inner.commit.tune_rate();
    }

    /// Changes the limit of bytes a second that compactions put into the block cache; 0 for none.
    pub fn set_cache_fill_rate(&self, bytes_per_second: u64) {
        self.inner.cx.rates.fills.set_rate(bytes_per_second);
    }

    /// Ends background work, syncs the WAL and closes. Later calls answer `Closed`; memory that was not
    /// flushed is in the WAL. Dropping the last handle does the same but cannot tell of a failure.
    pub fn close(&self) -> Result<()> {
        check_outside()?;
        self.inner.close()
    }

    /// An error of kind `Busy` if reads are not answered now: the lease on a shared database, which its owner
    /// keeps while a [standby](Builder::stand_by) waits, has ended, and another process may have it.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// let db = siltstone::Db::open(dir.path())?;
    /// db.check_lease()?; // of a database that is not shared it never fails
    /// # Ok::<(), siltstone::Error>(())
    /// ```
    pub fn check_lease(&self) -> Result<()> {
        self.inner.cx.check_lease()
    }

    /// Whether it was closed. Scans and cursors that were made before still work, as they hold their data
    /// (those of a shared database do not: another process may have it); callers that do not want this can
    /// ask here.
    pub fn is_closed(&self) -> bool {
        !self.inner.cx.health.is_open()
    }
}
