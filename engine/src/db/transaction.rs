//! Optimistic transactions: reads are noted, and checked again at the moment of writing, with nothing else
//! being written meanwhile.

mod scan;

pub use scan::TransactionScan;

use super::write_set::Own;
use super::{Batch, Db, Family, Operation};
use crate::commit::{Depends, InFlight};
use crate::error::{Error, ErrorKind, Result};
use crate::options::Durability;
use crate::snapshot::Snapshot;
use crate::sync::Mutex;
use crate::types::{KeyRange, Kind, Pinned, SeqNo, StoreId, Timestamp};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeBounds;

/// Which concurrent writes make a [`Transaction`]'s commit fail.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// use siltstone::{Db, Durability, Isolation};
/// let db = Db::open(dir.path())?;
/// let family = db.default_family();
/// let mut transaction = db.begin_with(Isolation::Snapshot);
/// transaction.get(&family, "read")?;
/// transaction.put(&family, "written", "1");
/// db.put("read", "changed")?; // No conflict: the key was only read.
/// transaction.commit(Durability::Buffered)?;
/// # Ok::<(), siltstone::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Isolation {
    /// Writes to anything that the transaction read: committed transactions are as if run one after the
    /// other.
    #[default]
    Serializable,
    /// Writes to anything that the transaction wrote, or read by [`Transaction::get_for_update`]: it sees one
    /// moment, and of two that write the same key one fails.
    Snapshot,
}

/// An optimistic transaction: reads see the database as it was when it began, under the transaction's own
/// writes. The commit writes all or nothing, and fails with `Conflict` if others wrote meanwhile to what its
/// [`Isolation`] names. It blocks nobody before that. Dropping it discards its writes.
///
/// Its writes are held in memory, as a [`Batch`] with the same limit. Where timestamps are explicit, a write
/// that names none has the time at which it was called. `get`, `put` and the like cost O(log n) for n writes
/// and reads before.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// use siltstone::{Db, Durability, ErrorKind};
/// let db = Db::open(dir.path())?;
/// let family = db.default_family();
/// db.put("balance", [7])?;
/// let mut transaction = db.begin();
/// let balance = transaction.get(&family, "balance")?.unwrap();
/// transaction.put(&family, "balance", [balance[0] + 1]);
/// db.put("balance", [0])?;
/// assert_eq!(transaction.commit(Durability::Buffered).unwrap_err().kind(), ErrorKind::Conflict);
/// # Ok::<(), siltstone::Error>(())
/// ```
pub struct Transaction {
    db: Db,
    snapshot: Snapshot,
    isolation: Isolation,
    reads: Mutex<Reads>,
    batch: Batch,
    own: Own,
    /// The length that the batch had at each savepoint.
    savepoints: Vec<usize>,
}

/// The keys and ranges that the transaction read, which must not have changed.
#[derive(Default)]
struct Reads {
    /// The keys read in each family, each once.
    keys: BTreeMap<StoreId, (Family, BTreeSet<Vec<u8>>)>,
    ranges: Vec<(Family, KeyRange)>,
}

impl Reads {
    fn key(&mut self, family: &Family, key: &[u8]) {
        let (_, keys) = self.keys.entry(family.store.id).or_insert_with(|| (family.clone(), BTreeSet::new()));
        if !keys.contains(key) {
            keys.insert(key.to_vec());
        }
    }
}

/// The ranges, with those that overlap or touch joined. O(n log n).
fn joined(ranges: &[(Family, KeyRange)]) -> Vec<(Family, KeyRange)> {
    let mut sorted: Vec<&(Family, KeyRange)> = ranges.iter().filter(|(_, range)| !range.is_empty()).collect();
    sorted.sort_by(|(a, left), (b, right)| (a.store.id, &left.start).cmp(&(b.store.id, &right.start)));
    let mut joined: Vec<(Family, KeyRange)> = Vec::new();
    for (family, range) in sorted {
        match joined.last_mut() {
            Some((last, before))
                if last.store.id == family.store.id
                    && before.end.as_ref().is_none_or(|end| *end >= range.start) =>
            {
                *before = before.cover(range);
            }
            _ => joined.push((family.clone(), range.clone())),
        }
    }
    joined
}

impl Depends for Transaction {
    fn judge(&self) -> Result<()> {
        let (db, seq) = (&self.db.inner, self.snapshot.seq());
        self.depends_on(
            &mut |family, key| db.check_key_since(&family.store, key, seq),
            &mut |family, range| db.check_range_since(&family.store, range, seq),
        )
    }

    fn may_have_changed(&self, since: SeqNo) -> bool {
        let db = &self.db.inner;
        let unless = |changed| if changed { Err(Error::new(ErrorKind::Conflict, "")) } else { Ok(()) };
        let unchanged = self.depends_on(
            &mut |family, key| unless(db.may_have_changed(&family.store, key, since)),
            &mut |family, range| unless(db.range_may_have_changed(&family.store, range, since)),
        );
        unchanged.is_err()
    }

    fn newest_in_flight(&self, in_flight: &InFlight) -> Option<u64> {
        let (mut of_keys, mut of_ranges) = (None, None);
        let visited = self.depends_on(
            &mut |family, key| {
                of_keys = of_keys.max(in_flight.newest_on(family.store.id, key));
                Ok(())
            },
            &mut |family, range| {
                of_ranges = of_ranges.max(in_flight.newest_in(family.store.id, range));
                Ok(())
            },
        );
        debug_assert!(visited.is_ok(), "neither refuses");
        of_keys.max(of_ranges)
    }
}

impl std::fmt::Debug for Transaction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let reads = self.reads.lock();
        let keys: usize = reads.keys.values().map(|(_, keys)| keys.len()).sum();
        let (at, ranges) = (self.snapshot.seq(), reads.ranges.len());
        write!(f, "Transaction(at {at}, {keys} keys and {ranges} ranges read, {:?})", self.batch)
    }
}

impl Transaction {
    pub(crate) fn new(db: Db, isolation: Isolation) -> Self {
        let (snapshot, reads) = (db.snapshot(), Mutex::new(Reads::default()));
        let (batch, own, savepoints) = (Batch::new(), Own::new(snapshot.seq()), Vec::new());
        Self { db, snapshot, isolation, reads, batch, own, savepoints }
    }

    /// Visits the keys and ranges that must not have changed, until one of the two refuses.
    fn depends_on(
        &self,
        key: &mut dyn FnMut(&Family, &[u8]) -> Result<()>,
        range: &mut dyn FnMut(&Family, &KeyRange) -> Result<()>,
    ) -> Result<()> {
        let reads = self.reads.lock();
        for (family, keys) in reads.keys.values() {
            keys.iter().try_for_each(|read| key(family, read))?;
        }
        joined(&reads.ranges).iter().try_for_each(|(family, read)| range(family, read))?;
        if self.isolation == Isolation::Snapshot {
            for (family, own) in self.own.written() {
                own.keys.keys().try_for_each(|written| key(family, written))?;
                own.deleted_ranges().iter().try_for_each(|deleted| range(family, deleted))?;
            }
        }
        Ok(())
    }

    fn now_us(&self) -> u64 {
        self.db.inner.cx.env.clock.wall_us()
    }

    fn read(&self, family: &Family, key: &[u8], tracked: bool) -> Result<Option<Pinned>> {
        let track = || {
            if tracked {
                self.reads.lock().key(family, key);
            }
        };
        if let Some(own) = self.own.of(family)
            && let Some(versions) = own.versions(&self.batch, key, self.now_us(), track)?
        {
            return Ok(versions.into_iter().next().map(|(_, value)| value));
        }
        track();
        family.at(&self.snapshot).get(key)
    }

    /// The key's newest value.
    pub fn get(&self, family: &Family, key: impl AsRef<[u8]>) -> Result<Option<Pinned>> {
        self.read(family, key.as_ref(), self.isolation == Isolation::Serializable)
    }

    /// [`Transaction::get`] of a key on which others must not have written at the commit, whatever the
    /// isolation.
    pub fn get_for_update(&self, family: &Family, key: impl AsRef<[u8]>) -> Result<Option<Pinned>> {
        self.read(family, key.as_ref(), true)
    }

    /// [`Transaction::get`] of a key that others may write to, whatever the isolation.
    pub fn get_untracked(&self, family: &Family, key: impl AsRef<[u8]>) -> Result<Option<Pinned>> {
        self.read(family, key.as_ref(), false)
    }

    /// The entries of a range, from both ends. With [`Isolation::Serializable`], the part of the range that
    /// the scan has gone through must be unchanged at the commit.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// use siltstone::{Db, Durability};
    /// let db = Db::open(dir.path())?;
    /// let family = db.default_family();
    /// db.put("a", "1")?;
    /// db.put("b", "2")?;
    /// let mut transaction = db.begin();
    /// transaction.delete(&family, "a");
    /// transaction.put(&family, "c", "3");
    /// let keys: Vec<_> = transaction.scan::<&str>(&family, ..).map(|e| e.map(|e| e.key)).collect::<siltstone::Result<_>>()?;
    /// assert_eq!(keys, [b"b", b"c"]);
    /// # Ok::<(), siltstone::Error>(())
    /// ```
    pub fn scan<K: AsRef<[u8]>>(&self, family: &Family, range: impl RangeBounds<K>) -> TransactionScan<'_> {
        TransactionScan::new(self, family, KeyRange::from_bounds(&range))
    }

    /// [`Transaction::scan`] of the keys that begin with `prefix`.
    pub fn scan_prefix(&self, family: &Family, prefix: impl AsRef<[u8]>) -> TransactionScan<'_> {
        TransactionScan::new(self, family, KeyRange::prefix(prefix.as_ref()))
    }

    /// The snapshot that it reads.
    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// Its writes so far.
    pub fn batch(&self) -> &Batch {
        &self.batch
    }

    fn timestamp(&self, family: &Family, kind: Kind) -> Timestamp {
        family.default_timestamp(kind, Timestamp(self.now_us()))
    }

    fn write(&mut self, write: impl FnOnce(&mut Batch)) {
        write(&mut self.batch);
        self.own.note_last(&self.batch);
    }

    /// Puts at the commit.
    pub fn put(&mut self, family: &Family, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) {
        self.put_at(family, key, self.timestamp(family, Kind::Value), value);
    }

    /// [`Family::put_at`] at the commit.
    pub fn put_at(
        &mut self,
        family: &Family,
        key: impl AsRef<[u8]>,
        timestamp: Timestamp,
        value: impl AsRef<[u8]>,
    ) {
        self.write(|batch| _ = batch.put_at(family, key, timestamp, value));
    }

    /// Deletes at the commit.
    pub fn delete(&mut self, family: &Family, key: impl AsRef<[u8]>) {
        self.delete_at(family, key, self.timestamp(family, Kind::Tombstone));
    }

    /// [`Family::delete_at`] at the commit.
    pub fn delete_at(&mut self, family: &Family, key: impl AsRef<[u8]>, timestamp: Timestamp) {
        self.write(|batch| _ = batch.delete_at(family, key, timestamp));
    }

    /// Adds a merge operand at the commit.
    pub fn merge(&mut self, family: &Family, key: impl AsRef<[u8]>, operand: impl AsRef<[u8]>) {
        self.merge_at(family, key, self.timestamp(family, Kind::Operand), operand);
    }

    /// [`Transaction::merge`] with a timestamp of choice.
    pub fn merge_at(
        &mut self,
        family: &Family,
        key: impl AsRef<[u8]>,
        timestamp: Timestamp,
        operand: impl AsRef<[u8]>,
    ) {
        self.write(|batch| _ = batch.merge_at(family, key, timestamp, operand));
    }

    /// Deletes all keys of a range at the commit, those included that others have put there by then.
    pub fn delete_range<K: AsRef<[u8]>>(&mut self, family: &Family, range: impl RangeBounds<K>) {
        self.delete_range_at(family, range, Timestamp::ZERO, Timestamp::MAX);
    }

    /// [`Family::delete_range_at`] at the commit.
    pub fn delete_range_at<K: AsRef<[u8]>>(
        &mut self,
        family: &Family,
        range: impl RangeBounds<K>,
        from: Timestamp,
        to: Timestamp,
    ) {
        self.write(|batch| _ = batch.delete_range_at(family, range, from, to));
    }

    /// Makes a batch's writes at the commit, behind those so far. The families are of the same database, or
    /// the commit is `Invalid`.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// let db = siltstone::Db::open(dir.path())?;
    /// let family = db.default_family();
    /// let mut batch = siltstone::Batch::new();
    /// batch.put(&family, "k", "v").delete(&family, "old");
    /// let mut transaction = db.begin();
    /// transaction.append(&batch);
    /// assert_eq!(transaction.get(&family, "k")?.unwrap(), "v");
    /// # Ok::<(), siltstone::Error>(())
    /// ```
    pub fn append(&mut self, batch: &Batch) {
        for operation in batch.iter() {
            match operation {
                Operation::Put { family, key, timestamp, value } => {
                    let at = timestamp.unwrap_or_else(|| self.timestamp(family, Kind::Value));
                    self.put_at(family, key, at, value);
                }
                Operation::Merge { family, key, timestamp, operand } => {
                    let at = timestamp.unwrap_or_else(|| self.timestamp(family, Kind::Operand));
                    self.merge_at(family, key, at, operand);
                }
                Operation::Delete { family, key, timestamp } => {
                    let at = timestamp.unwrap_or_else(|| self.timestamp(family, Kind::Tombstone));
                    self.delete_at(family, key, at);
                }
                Operation::DeleteRange { family, range, from, to } => {
                    self.delete_range_at(family, range.clone(), from, to);
                }
            }
        }
    }

    /// Marks this moment, for [`Transaction::rollback_to_savepoint`]. They may be nested.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// let db = siltstone::Db::open(dir.path())?;
    /// let family = db.default_family();
    /// let mut transaction = db.begin();
    /// transaction.put(&family, "k", "kept");
    /// transaction.savepoint();
    /// transaction.put(&family, "k", "taken back");
    /// assert!(transaction.rollback_to_savepoint());
    /// assert_eq!(transaction.get(&family, "k")?.unwrap(), "kept");
    /// # Ok::<(), siltstone::Error>(())
    /// ```
    pub fn savepoint(&mut self) {
        self.savepoints.push(self.batch.len());
    }

    /// Discards what was written since the newest savepoint, and that savepoint; false if there is none. What
    /// was read since still counts at the commit.
    pub fn rollback_to_savepoint(&mut self) -> bool {
        let Some(len) = self.savepoints.pop() else { return false };
        self.own.forget_from(&self.batch, len);
        self.batch.truncate(len);
        true
    }

    /// Forgets the newest savepoint and keeps what was written since; false if there is none.
    pub fn release_savepoint(&mut self) -> bool {
        self.savepoints.pop().is_some()
    }

    /// Makes all writes true, or none: with `Conflict`, as its [`Isolation`] says; with `OutOfRange` or
    /// `NotFound` if a family that it read or wrote was split at such a key, joined to another or dropped
    /// meanwhile. Its cost is that of reading again what it has read.
    pub fn commit(self, durability: Durability) -> Result<SeqNo> {
        let db = &self.db.inner;
        db.catalog.write(&self.batch.ops(db)?, durability, Some(&self))
    }

    /// Discards its writes, as dropping it does.
    pub fn rollback(self) {}
}
