//! The database: what a caller holds, and the paths of a write, a read and a scan.
//!
//! - `open`, `replay`, `close`: recovery, and ending in good order.
//! - `write`: the write path; `get`, `scan`: the read paths, with `visible` deciding what a reader sees.
//! - `store`: one column family inside. `install`: the one place where tables change.
//! - `budget`: how memory is divided. `tally`: what stores hold, counted as it changes.
//! - `background`, `flush`, `scatter`, `keep`, `clean`, `log_table`, `merges`, `manual`: work on workers.
//! - `family`, `transaction`, `checkpoint`, `backup`, `moving`, `ingest`, `inspect`: the rest of what a caller can do.
//!
//! This folder owns no format, no choice of merges and no merging; it joins `log`, `memory`, `table`, `version`,
//! `strategy`, `merge` and `schedule`.

mod background;
mod backup;
mod batch;
mod budget;
mod checkpoint;
mod clean;
mod close;
mod covers;
mod family;
mod flush;
mod get;
mod ingest;
mod inspect;
mod install;
mod keep;
mod log_table;
mod manual;
mod marks;
mod merges;
#[cfg(all(test, models))]
mod model;
mod moving;
mod open;
mod pipeline;
mod replay;
mod scan;
mod scatter;
mod store;
mod tally;
mod throttle;
mod transaction;
mod turns;
mod unique;
mod visible;
mod warm;
mod write;

pub use batch::Batch;
pub(crate) use close::Shared;
pub use family::{Family, Reader};
pub use ingest::TableWriter;
pub use inspect::{BlockListing, LogListing, SegmentListing, TableListing};
pub(crate) use log_table::needed_logs;
pub use manual::CompactionControl;
pub use open::Builder;
pub(crate) use open::{read_log, refuse_leftovers};
pub use scan::{Entry, Scan};
pub(crate) use store::{FAMILY, OPTIONS, STORE, table_names};
pub use transaction::{Condition, Expected, Transaction};

use crate::cache::BlockCache;
use crate::error::{Error, ErrorKind, Result};
use crate::event::{Event, Events};
use crate::log::Log;
use crate::memory::Spares;
use crate::metrics::{Counter, Metrics, Statistics};
use crate::operator::Registry;
use crate::options::{Durability, FamilyOptions, Options};
use crate::schedule::{Limiter, Scheduler};
use crate::snapshot::{Snapshot, Snapshots};
use crate::storage::{Env, OpenFiles};
use crate::sync::{ArcSwap, AtomicU8, AtomicU32, AtomicU64, Mutex, Ordering};
use crate::types::{Pinned, SeqNo, StoreId};
use crate::version::Graveyard;
use crate::version::manifest::Manifest;
use background::Jobs;
use budget::Budget;
use std::collections::BTreeMap;
use std::ops::RangeBounds;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use store::Store;
use tally::Tally;
use write::Commit;

/// Everything behind the handles.
pub(crate) struct Inner {
    pub(crate) env: Env,
    pub(crate) dir: PathBuf,
    /// As at the open; how memory is divided since is in `budget`.
    pub(crate) options: Options,
    budget: Budget,
    largest: marks::Largest,
    /// One change of the cache's size at a time.
    fitting: Mutex<()>,
    registry: Registry,
    epoch: u32,
    state: AtomicU8,
    /// Why the log or the manifest takes nothing any more.
    poisoned: Mutex<Option<Error>>,
    /// Why flushing fails at present.
    background_error: Mutex<Option<Error>>,
    /// Why merges of these families do not get on: they have failed and failed again.
    failing: Mutex<BTreeMap<StoreId, Error>>,
    stores: ArcSwap<Vec<Arc<Store>>>,
    /// One change of the set of families at a time.
    families: Mutex<()>,
    pub(crate) snapshots: Arc<Snapshots>,
    /// Absent when read-only.
    log: Option<Arc<Log>>,
    /// The log's files as recovery found them; what a read-only database lists.
    log_found: Vec<LogListing>,
    commit: Option<Commit>,
    manifest: Mutex<Manifest>,
    cache: Arc<BlockCache>,
    /// The tables' files.
    files: Arc<OpenFiles>,
    graveyard: Arc<Graveyard>,
    limiter: Limiter,
    /// The fixed limit of bytes a second.
    rate_limit: Counter,
    /// Of what merges put into the cache.
    fill_limiter: Limiter,
    /// A copy is held by each merge whose steps put something into the cache.
    filling: Arc<()>,
    jobs: Jobs,
    next_job: AtomicU32,
    scheduler: Arc<dyn Scheduler>,
    events: Events,
    events_saved: AtomicU64,
    metrics: Metrics,
    /// What stores hold, and which may have something to do.
    tally: Tally,
    /// Chunks of memory to be used again.
    spares: Arc<Spares>,
    /// What merges in memory take beside that while they run.
    joining: Counter,
    /// What deletes have taken with the disk full since a flush or merge was done.
    beyond_full: Counter,
    /// What flushes under way may leave in memory.
    keeping: Counter,
    /// What flushing cost lately, and how many bytes that is the mean of.
    drain_ns_per_mib: Counter,
    drained: Counter,
    delay_owed: AtomicU64,
    /// The directory's lock; absent when read-only.
    lock: Mutex<Option<Box<dyn Send + Sync>>>,
}

/// What a database is in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Open = 0,
    Closed = 1,
}

impl Inner {
    fn state(&self) -> State {
        if self.state.load(Ordering::Acquire) == State::Open as u8 { State::Open } else { State::Closed }
    }

    fn check_open(&self) -> Result<()> {
        match self.state() {
            State::Open => Ok(()),
            State::Closed => Err(Error::new(ErrorKind::Closed, "the database is closed")),
        }
    }

    fn check_writable(&self) -> Result<()> {
        self.check_open()?;
        self.commit()?;
        self.check_not_poisoned()
    }

    fn check_not_poisoned(&self) -> Result<()> {
        match &*self.poisoned.lock() {
            None => Ok(()),
            Some(why) => {
                let message = format!("writes are refused until the database is reopened, since: {why}");
                Err(Error::new(ErrorKind::Poisoned, message))
            }
        }
    }

    fn poison(&self, why: &Error) {
        self.poisoned.lock().get_or_insert_with(|| why.clone());
        self.scheduler.notify();
    }

    fn read_only_error() -> Error {
        Error::new(ErrorKind::ReadOnly, "the database was opened read-only")
    }

    fn commit(&self) -> Result<&Commit> {
        self.commit.as_ref().ok_or_else(Self::read_only_error)
    }

    fn log(&self) -> Result<&Arc<Log>> {
        self.log.as_ref().ok_or_else(Self::read_only_error)
    }

    pub(crate) fn stores(&self) -> Arc<Vec<Arc<Store>>> {
        self.stores.load_full()
    }

    fn check_snapshot(&self, snapshot: &Snapshot) -> Result<()> {
        if snapshot.belongs_to(&self.snapshots) {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Invalid, "the snapshot is of another database"))
    }
}

/// A database. A cheap handle: clone it freely; the database is closed when the last handle, family and scan is
/// dropped, or by [`Db::close`].
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
    inner: Shared,
    default: Family,
}

impl std::fmt::Debug for Db {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Db({})", self.inner.dir.display())
    }
}

/// Name of the family that every database has.
pub const DEFAULT_FAMILY: &str = "default";

impl Db {
    /// Opens the database in a directory, creating it if there is none, with default options. `Busy` when it is open for
    /// writing already, here or in another process.
    ///
    /// Which file systems are supported, and what holds for networks and for processes that fork, is in docs/filesystems.md: in
    /// short, local disks, and no `fork` without `exec` while a database is open.
    pub fn open(dir: impl AsRef<Path>) -> Result<Db> {
        Builder::new().open(dir)
    }

    /// Options and components for opening.
    pub fn builder() -> Builder {
        Builder::new()
    }

    /// Where it lies.
    pub fn path(&self) -> &Path {
        &self.inner.dir
    }

    /// The family named `default`.
    pub fn default_family(&self) -> Family {
        self.default.clone()
    }

    /// The family of that name; `NotFound` if there is none.
    pub fn family(&self, name: &str) -> Result<Family> {
        let stores = self.inner.stores();
        let store = stores.iter().find(|s| s.name == name);
        let store =
            store.ok_or_else(|| Error::new(ErrorKind::NotFound, format!("there is no family {name}")))?;
        Ok(Family::new(self.inner.clone(), store.clone()))
    }

    /// The names of all families, in order of creation.
    pub fn families(&self) -> Vec<String> {
        self.inner.stores().iter().map(|s| s.name.clone()).collect()
    }

    /// Creates a family; `Invalid` if the name is taken.
    pub fn create_family(&self, name: &str, options: FamilyOptions) -> Result<Family> {
        let store = self.inner.create_family(name, options)?;
        Ok(Family::new(self.inner.clone(), store))
    }

    /// Drops a family and all it holds. Handles and scans of it answer `NotFound` from now on.
    pub fn drop_family(&self, name: &str) -> Result<()> {
        self.inner.drop_family(name)
    }

    /// Writes a batch, all or nothing, over any of this database's families; its sequence number.
    pub fn write(&self, batch: &Batch) -> Result<SeqNo> {
        self.write_with(batch, Durability::Buffered)
    }

    /// [`Db::write`] with a durability of choice.
    pub fn write_with(&self, batch: &Batch, durability: Durability) -> Result<SeqNo> {
        self.inner.write(&batch.ops(&self.inner)?, durability, None)
    }

    /// Writes the batch if all conditions hold at that moment, else `Conflict`. Atomic with respect to all other
    /// writes.
    pub fn write_if(&self, conditions: &[Condition], batch: &Batch, durability: Durability) -> Result<SeqNo> {
        self.inner.write(&batch.ops(&self.inner)?, durability, Some(&conditions))
    }

    /// Begins an optimistic transaction.
    pub fn begin(&self) -> Transaction {
        Transaction::new(self.clone())
    }

    /// The present as a read point, over all families.
    pub fn snapshot(&self) -> Snapshot {
        self.inner.snapshots.take()
    }

    /// The default family as the snapshot sees it.
    pub fn at(&self, snapshot: &Snapshot) -> Reader {
        self.default.at(snapshot)
    }

    /// [`Family::put`] on the default family.
    pub fn put(&self, key: &[u8], value: &[u8]) -> Result<SeqNo> {
        self.default.put(key, value)
    }

    /// [`Family::delete`] on the default family.
    pub fn delete(&self, key: &[u8]) -> Result<SeqNo> {
        self.default.delete(key)
    }

    /// [`Family::get`] on the default family.
    pub fn get(&self, key: &[u8]) -> Result<Option<Pinned>> {
        self.default.get(key)
    }

    /// [`Family::scan`] on the default family.
    pub fn scan<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Scan {
        self.default.scan(range)
    }

    /// Makes everything written so far survive a power loss.
    pub fn sync(&self) -> Result<()> {
        self.inner.check_writable()?;
        self.inner.log()?.sync().map(|_| ()).inspect_err(|e| self.inner.poison(e))
    }

    /// Writes all memory of all families to tables.
    pub fn flush(&self) -> Result<()> {
        self.inner.stores().iter().try_for_each(|store| self.inner.flush(store))
    }

    /// Waits until no flush and no merge runs or is due. The error of background work that fails again and again ends it.
    pub fn settle(&self) -> Result<()> {
        self.inner.settle()
    }

    /// Writes an exact copy of the database as it is now into a new directory, on the same file system without
    /// copying tables. Writers go on meanwhile.
    pub fn checkpoint(&self, dir: impl AsRef<Path>) -> Result<SeqNo> {
        self.inner.checkpoint(dir.as_ref())
    }

    /// What it has done and holds.
    pub fn statistics(&self) -> Statistics {
        self.inner.statistics()
    }

    /// The newest decisions and deeds, oldest first.
    pub fn events(&self) -> Vec<Event> {
        self.inner.events.list()
    }

    /// The log's files; of a read-only database those that were there when it was opened.
    pub fn log_listing(&self) -> Vec<LogListing> {
        self.inner.log_listing()
    }

    /// Divides memory anew, at once and without a restart: so many bytes for unflushed writes of a budget of so many in all,
    /// the rest for the cache. What the cache loses is evicted in this call; writes beyond the new limit are flushed, as
    /// ever by what frees most per byte written, and the cache grows as they go. With less write memory come less log and
    /// smaller batches (a quarter of the log's limit). It lasts until the database is closed: the next open takes what its
    /// [`Options`] say.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// let db = siltstone::Db::open(dir.path())?;
    /// let now = db.options();
    /// // The nightly import is about to begin: writes get half of the budget.
    /// db.set_memory(now.memory_budget / 2, now.memory_budget)?;
    /// assert_eq!(db.options().write_memory, now.memory_budget / 2);
    /// # Ok::<(), siltstone::Error>(())
    /// ```
    pub fn set_memory(&self, write_memory: u64, memory_budget: u64) -> Result<()> {
        self.inner.set_memory(write_memory, memory_budget)
    }

    /// The settings as they are now.
    pub fn options(&self) -> Options {
        self.inner.options_now()
    }

    /// Changes the limit of bytes a second that flushes and merges write; 0 for none.
    pub fn set_rate_limit(&self, bytes_per_second: u64) {
        self.inner.rate_limit.set(bytes_per_second);
        self.inner.tune_rate();
    }

    /// Changes the limit of bytes a second that merges put into the block cache; 0 for none.
    pub fn set_cache_fill_rate(&self, bytes_per_second: u64) {
        self.inner.fill_limiter.set_rate(bytes_per_second);
    }

    /// Ends background work, syncs the log and closes. Later calls answer `Closed`; memory that was not flushed is
    /// in the log. Dropping the last handle does the same but cannot tell of a failure.
    pub fn close(&self) -> Result<()> {
        self.inner.close()
    }
}
