//! Column families: the handle, creating, changing and dropping them.

use super::{CompactionControl, Entry, Scan, Shared};
use crate::commit::{Action, Op, Store};
use crate::error::{Error, Result};
use crate::options::{Durability, FamilyOptions};
use crate::shape::Shape;
use crate::snapshot::Snapshot;
use crate::types::{KeyRange, Kind, Pinned, SeqNo, TimeRange, Timestamp};
use std::ops::RangeBounds;
use std::sync::Arc;

/// A column family: a sorted map of its own, written together with the others. A cheap handle.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// use siltstone::{Db, FamilyOptions, Timestamp, Timestamps};
/// let db = Db::open(dir.path())?;
/// let options = FamilyOptions { timestamps: Timestamps::Explicit, versions: 2, ..Default::default() };
/// let history = db.create_family("history", options)?;
/// for (time, value) in [(1, "a"), (2, "b"), (3, "c")] {
///     history.put_at(b"k", Timestamp(time), value.as_bytes())?;
/// }
/// let versions = history.get_versions(b"k", 10)?;
/// assert_eq!(versions.iter().map(|(t, _)| t.0).collect::<Vec<_>>(), [3, 2]);
/// # Ok::<(), siltstone::Error>(())
/// ```
#[derive(Clone)]
pub struct Family {
    pub(crate) db: Shared,
    pub(crate) store: Arc<Store>,
}

impl std::fmt::Debug for Family {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Family({})", self.store.name)
    }
}

impl Family {
    pub(crate) fn new(db: Shared, store: Arc<Store>) -> Self {
        Self { db, store }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.store.name
    }

    /// Why the family refuses writes and is not compacted until it is altered: it has options of the cargo
    /// feature `papers`, which this build lacks. `None` for all other families.
    pub fn missing_options(&self) -> Option<Error> {
        self.store.settings().check_papers().err()
    }

    /// Its options, with defaults in the place of those that this build lacks ([`Family::missing_options`]).
    pub fn options(&self) -> FamilyOptions {
        self.store.settings().options.clone()
    }

    /// Changes its options, without rewriting data. `timestamps` cannot change. A new strategy goes on from
    /// the shape that the old one left, and compactions that run are finished as they were planned.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// let db = siltstone::Db::open(dir.path())?;
    /// let family = db.default_family();
    /// let strategy = "size_tiered{runs=4}".parse().unwrap();
    /// family.alter(siltstone::FamilyOptions { strategy, ..family.options() })?;
    /// assert_eq!(family.options().strategy.to_string(), "size_tiered");
    /// # Ok::<(), siltstone::Error>(())
    /// ```
    pub fn alter(&self, options: FamilyOptions) -> Result<()> {
        self.db.catalog.alter_families(vec![(self.store.clone(), options)])
    }

    fn cell(
        &self,
        kind: Kind,
        key: &[u8],
        timestamp: Timestamp,
        value: &[u8],
        durability: Durability,
    ) -> Result<SeqNo> {
        self.db.cx.check_writable()?;
        self.store.prefetch();
        let action = Action::Cell { kind, key, timestamp, value };
        self.db.catalog.write(&[Op::new(&self.store, action)], durability, None)
    }

    /// The timestamp of a write that names none: where timestamps are explicit, now, or for a delete all of
    /// them.
    pub(crate) fn default_timestamp(&self, kind: Kind, now: Timestamp) -> Timestamp {
        match (self.store.settings().explicit, kind) {
            (false, _) => Timestamp::ZERO,
            (true, Kind::Tombstone) => Timestamp::MAX,
            (true, _) => now,
        }
    }

    fn unnamed(&self, kind: Kind) -> Timestamp {
        match self.store.settings().explicit {
            true => self.default_timestamp(kind, Timestamp(self.db.cx.env.clock.wall_us())),
            false => Timestamp::ZERO,
        }
    }

    /// Sets the key's value; where timestamps are explicit, at the present time. `Buffered`.
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<SeqNo> {
        self.put_with(key.as_ref(), value.as_ref(), Durability::Buffered)
    }

    /// [`Family::put`] with a durability of choice.
    pub fn put_with(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        durability: Durability,
    ) -> Result<SeqNo> {
        self.cell(Kind::Value, key.as_ref(), self.unnamed(Kind::Value), value.as_ref(), durability)
    }

    /// Sets the value of a version (explicit timestamps).
    pub fn put_at(
        &self,
        key: impl AsRef<[u8]>,
        timestamp: Timestamp,
        value: impl AsRef<[u8]>,
    ) -> Result<SeqNo> {
        self.cell(Kind::Value, key.as_ref(), timestamp, value.as_ref(), Durability::Buffered)
    }

    /// Deletes the key, all its versions.
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<SeqNo> {
        self.cell(Kind::Tombstone, key.as_ref(), self.unnamed(Kind::Tombstone), &[], Durability::Buffered)
    }

    /// Deletes the key's versions with a timestamp at or below this one (explicit timestamps).
    pub fn delete_at(&self, key: impl AsRef<[u8]>, timestamp: Timestamp) -> Result<SeqNo> {
        self.cell(Kind::Tombstone, key.as_ref(), timestamp, &[], Durability::Buffered)
    }

    /// Deletes all keys of a range.
    pub fn delete_range<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Result<SeqNo> {
        self.delete_range_at(range, Timestamp::ZERO, Timestamp::MAX)
    }

    /// Deletes the versions of all keys of a range whose timestamp lies between two, both included (explicit
    /// timestamps). How it combines with `versions`: a version that a newer one has already pushed out does
    /// not come back.
    pub fn delete_range_at<K: AsRef<[u8]>>(
        &self,
        range: impl RangeBounds<K>,
        from: Timestamp,
        to: Timestamp,
    ) -> Result<SeqNo> {
        let range = self.own(KeyRange::from_bounds(&range));
        let action = Action::DeleteRange { range: &range, from, to };
        self.db.catalog.write(&[Op::new(&self.store, action)], Durability::Buffered, None)
    }

    /// The part of the range that is the family's.
    pub(crate) fn own(&self, range: KeyRange) -> KeyRange {
        range.intersect(&self.store.version().bounds)
    }

    /// The key range of the family: all keys, unless it was split.
    pub fn range(&self) -> KeyRange {
        (*self.store.version().bounds).clone()
    }

    /// The sequence number that [`Db::attach`](crate::Db::attach) gave it, which no write in the WAL has.
    /// `None` for a family that was created in this database.
    pub fn attached_at(&self) -> Option<SeqNo> {
        Some(self.store.attached_at).filter(|seq| *seq > SeqNo::ZERO)
    }

    /// The first of the sequence numbers that the attach skipped, so no write has them; the last is
    /// [`Family::attached_at`]. They are several if the database that it came from had given out higher
    /// numbers than this one.
    pub fn attached_from(&self) -> Option<SeqNo> {
        self.attached_at().map(|_| self.store.attached_from)
    }

    /// Splits the family at a key, by one edit of the manifest whatever its size: this one keeps the keys
    /// below, a new family of that name has those from there on, with the same options. Memory, WAL and
    /// SSTables are divided by key; SSTables over the key are shared until compactions have divided them.
    /// Earlier scans and snapshots see what they saw. From now on each family refuses the other's keys
    /// ([`ErrorKind::OutOfRange`](crate::ErrorKind)); a scan or range delete concerns its own.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// let db = siltstone::Db::open(dir.path())?;
    /// let left = db.create_family("events", Default::default())?;
    /// left.put(b"a", b"1")?;
    /// left.put(b"m", b"2")?;
    /// let (left, right) = left.split(b"k", "events/k")?;
    /// assert_eq!((left.scan::<&str>(..).count(), right.get(b"m")?.unwrap().len()), (1, 1));
    /// left.join(&right)?;
    /// assert_eq!(left.scan::<&str>(..).count(), 2);
    /// # Ok::<(), siltstone::Error>(())
    /// ```
    pub fn split(&self, at: impl AsRef<[u8]>, name: &str) -> Result<(Family, Family)> {
        let right = self.db.catalog.split(&self.store, at.as_ref(), name)?;
        Ok((self.clone(), Family::new(self.db.clone(), right)))
    }

    /// Takes in the keys of a neighbour, by one edit of the manifest; the neighbour is gone. Both must have
    /// the same kind of timestamps; this one's options hold from now on.
    pub fn join(&self, neighbour: &Family) -> Result<()> {
        if !Arc::ptr_eq(&self.db, &neighbour.db) {
            return Err(Error::invalid("the neighbour is a family of another database"));
        }
        self.db.catalog.join(&self.store, &neighbour.store)
    }

    /// Adds a merge operand; where timestamps are explicit, at the present time.
    pub fn merge(&self, key: impl AsRef<[u8]>, operand: impl AsRef<[u8]>) -> Result<SeqNo> {
        let timestamp = self.unnamed(Kind::Operand);
        self.cell(Kind::Operand, key.as_ref(), timestamp, operand.as_ref(), Durability::Buffered)
    }

    /// The key's newest value.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Pinned>> {
        self.db.cx.check_open()?;
        let read = || self.db.get(&self.store, key.as_ref(), None);
        self.db.cx.leased(self.db.cx.timed(|timers| &timers.get, read))
    }

    /// The values of many keys, as of one moment, in the order asked. Cheaper than a `get` each where several
    /// keys lie in the same blocks. A key that is refused or out of range fails all of them.
    pub fn multi_get<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Option<Pinned>>> {
        self.db.cx.check_open()?;
        self.db.cx.leased(self.db.multi_get(&self.store, keys, None))
    }

    /// The newest versions of a key, at most `count`, newest first.
    pub fn get_versions(&self, key: impl AsRef<[u8]>, count: usize) -> Result<Vec<(Timestamp, Pinned)>> {
        self.get_versions_in(key.as_ref(), .., count)
    }

    /// The newest versions of a key with these timestamps, at most `count`, newest first. Where timestamps
    /// are implicit there is an answer for all times only. Memory and SSTables that say nothing about the
    /// times are not read, as in [`Scan::times`].
    pub fn get_versions_in(
        &self,
        key: impl AsRef<[u8]>,
        times: impl RangeBounds<Timestamp>,
        count: usize,
    ) -> Result<Vec<(Timestamp, Pinned)>> {
        self.db.cx.check_open()?;
        let times = TimeRange::from_bounds(&times);
        self.db.cx.leased(self.db.get_versions(&self.store, key.as_ref(), None, times, count))
    }

    /// The keys of a range in order, as of now. An error shows at the first step.
    pub fn scan<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Scan {
        Scan::new(&self.db, &self.store, KeyRange::from_bounds(&range), None)
    }

    /// The keys that begin with `prefix`.
    pub fn scan_prefix(&self, prefix: impl AsRef<[u8]>) -> Scan {
        Scan::new(&self.db, &self.store, KeyRange::prefix(prefix.as_ref()), None)
    }

    /// The entry with the lowest key. It may have to go past deleted ones.
    pub fn first(&self) -> Result<Option<Entry>> {
        self.scan::<&[u8]>(..).next().transpose()
    }

    /// The entry with the highest key; of a family with explicit timestamps, that key's oldest version.
    pub fn last(&self) -> Result<Option<Entry>> {
        self.scan::<&[u8]>(..).next_back().transpose()
    }

    /// The family as a snapshot sees it.
    pub fn at(&self, snapshot: &Snapshot) -> Reader {
        Reader { family: self.clone(), snapshot: snapshot.clone() }
    }

    /// Writes its memory to SSTables. If flushes are failing, it waits for the next attempt, as the cause may
    /// be gone by then.
    pub fn flush(&self) -> Result<()> {
        self.db.work.flush(&self.store)
    }

    /// Compacts everything in the range that was written before this call into the last level: by one
    /// compaction, or by one for each range if the strategy has ranges (several together if an SSTable lies
    /// over them). An SSTable that is alone in the last level already is rewritten only if it has tombstones,
    /// values in the WAL, expired, overwritten or surplus versions, or if the family has a filter, or on
    /// [request](CompactionControl::rewriting). Without snapshots, the result has no more cells than a scan
    /// returns (except versions that a [filter](crate::CompactionFilter) hides but that count, and operands
    /// without an operator).
    ///
    /// On a full disk it uses the reserved space, and fails with [`DiskFull`](crate::ErrorKind::DiskFull) if
    /// that is too small: delete more, then try again.
    pub fn compact<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Result<()> {
        self.compact_with(range, &CompactionControl::default())
    }

    /// [`Family::compact`] that another thread may cancel and watch, or that writes everything anew.
    pub fn compact_with<K: AsRef<[u8]>>(
        &self,
        range: impl RangeBounds<K>,
        control: &CompactionControl,
    ) -> Result<()> {
        self.db.work.compact(&self.store, KeyRange::from_bounds(&range), control)
    }

    /// Its SSTables as plain data.
    pub fn shape(&self) -> Shape {
        (*self.store.version().shape).clone()
    }
}

/// A family as a snapshot sees it.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// let db = siltstone::Db::open(dir.path())?;
/// let before = db.snapshot();
/// db.put(b"k", b"v")?;
/// assert!(db.at(&before).get(b"k")?.is_none());
/// # Ok::<(), siltstone::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Reader {
    family: Family,
    snapshot: Snapshot,
}

impl Reader {
    fn check(&self) -> Result<()> {
        self.family.db.cx.check_open()?;
        self.family.db.commit.check_snapshot(&self.snapshot)?;
        self.family.store.check_read_point(self.snapshot.seq())
    }

    /// A reader of another family at this snapshot.
    pub fn family(&self, family: &Family) -> Reader {
        family.at(&self.snapshot)
    }

    /// See [`Family::get`].
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Pinned>> {
        self.check()?;
        let Family { db, store } = &self.family;
        let read = Some(self.snapshot.seq());
        db.cx.leased(db.cx.timed(|timers| &timers.get, || db.get(store, key.as_ref(), read)))
    }

    /// See [`Family::multi_get`].
    pub fn multi_get<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Option<Pinned>>> {
        self.check()?;
        let Family { db, store } = &self.family;
        db.cx.leased(db.multi_get(store, keys, Some(self.snapshot.seq())))
    }

    /// See [`Family::get_versions`].
    pub fn get_versions(&self, key: impl AsRef<[u8]>, count: usize) -> Result<Vec<(Timestamp, Pinned)>> {
        self.get_versions_in(key.as_ref(), .., count)
    }

    /// See [`Family::get_versions_in`].
    pub fn get_versions_in(
        &self,
        key: impl AsRef<[u8]>,
        times: impl RangeBounds<Timestamp>,
        count: usize,
    ) -> Result<Vec<(Timestamp, Pinned)>> {
        self.check()?;
        let Family { db, store } = &self.family;
        let (read, times) = (Some(self.snapshot.seq()), TimeRange::from_bounds(&times));
        db.cx.leased(db.get_versions(store, key.as_ref(), read, times, count))
    }

    /// See [`Family::scan`].
    pub fn scan<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Scan {
        self.scan_range(KeyRange::from_bounds(&range))
    }

    /// See [`Family::scan_prefix`].
    pub fn scan_prefix(&self, prefix: impl AsRef<[u8]>) -> Scan {
        self.scan_range(KeyRange::prefix(prefix.as_ref()))
    }

    fn scan_range(&self, range: KeyRange) -> Scan {
        Scan::new(&self.family.db, &self.family.store, range, Some(self.snapshot.clone()))
    }

    /// See [`Family::first`].
    pub fn first(&self) -> Result<Option<Entry>> {
        self.scan::<&[u8]>(..).next().transpose()
    }

    /// See [`Family::last`].
    pub fn last(&self) -> Result<Option<Entry>> {
        self.scan::<&[u8]>(..).next_back().transpose()
    }
}
