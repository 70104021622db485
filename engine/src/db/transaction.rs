//! Conditional writes and optimistic transactions: reads are noted, and checked again at the moment of writing, with
//! nothing else being written meanwhile.

use super::{Batch, Db, Entry, Family, Inner};
use crate::commit::Depends;
use crate::error::{Error, ErrorKind, Result};
use crate::options::Durability;
use crate::snapshot::Snapshot;
use crate::types::{KeyRange, Pinned, SeqNo, StoreId};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeBounds;
use std::sync::Arc;

/// What a key must be for a conditional write.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// let db = siltstone::Db::open(dir.path())?;
/// use siltstone::{Batch, Condition, Durability, Expected};
/// let family = db.default_family();
/// let seq = db.put(b"k", b"v")?;
/// let unchanged = Condition::new(&family, b"k", Expected::NotNewerThan(seq));
/// db.write_if(&[unchanged], Batch::new().put(&family, b"k", b"w"), Durability::Buffered)?;
/// # Ok::<(), siltstone::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expected {
    /// It has no value.
    Absent,
    /// It has some value.
    Present,
    /// It has this value.
    Value(Vec<u8>),
    /// Nothing concerning it was written after this. Once a merge has dropped deletes or versions of the family that are newer
    /// than this number, that cannot be told of a key that is not there (with explicit timestamps, of any key), and the
    /// answer is `Conflict`. So hold the number only for a short time, or a [`Snapshot`] from which it is: what is
    /// newer than a snapshot is not dropped.
    NotNewerThan(SeqNo),
}

/// A condition of a conditional write; see [`Db::write_if`].
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// use siltstone::{Batch, Condition, Db, Durability, ErrorKind, Expected};
/// let db = Db::open(dir.path())?;
/// let family = db.default_family();
/// let mut batch = Batch::new();
/// batch.put(&family, b"lock", b"mine");
/// let absent = [Condition::new(&family, b"lock", Expected::Absent)];
/// db.write_if(&absent, &batch, Durability::Buffered)?;
/// let second = db.write_if(&absent, &batch, Durability::Buffered);
/// assert_eq!(second.unwrap_err().kind(), ErrorKind::Conflict);
/// # Ok::<(), siltstone::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Condition {
    family: Family,
    key: Vec<u8>,
    expected: Expected,
}

impl Condition {
    /// The key must be as expected.
    pub fn new(family: &Family, key: impl Into<Vec<u8>>, expected: Expected) -> Self {
        Self { family: family.clone(), key: key.into(), expected }
    }

    fn check(&self, db: &Inner) -> Result<()> {
        let Self { family, key, expected } = self;
        if !std::ptr::eq(Arc::as_ptr(&family.db), db) {
            return Err(Error::new(ErrorKind::Invalid, "the condition names a family of another database"));
        }
        let holds = match expected {
            Expected::NotNewerThan(seq) => db.is_unchanged_since(&family.store, key, *seq)?,
            Expected::Absent => db.get(&family.store, key, None)?.is_none(),
            Expected::Present => db.get(&family.store, key, None)?.is_some(),
            Expected::Value(value) => db.get(&family.store, key, None)?.is_some_and(|v| *v == value[..]),
        };
        if holds {
            return Ok(());
        }
        let message =
            format!("key \"{}\" of family {} is not as expected", key.escape_ascii(), family.name());
        Err(Error::new(ErrorKind::Conflict, message))
    }
}

/// An optimistic transaction: reads see the database as it was when it began, plus its own writes of single keys;
/// the commit fails with `Conflict` if anything that was read (keys and whole ranges) was written by others since.
/// Committed transactions are serializable. Dropping it forgets it.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// use siltstone::{Db, Durability, ErrorKind};
/// let db = Db::open(dir.path())?;
/// let family = db.default_family();
/// db.put(b"balance", b"7")?;
/// let mut transaction = db.begin();
/// let balance = transaction.get(&family, b"balance")?.unwrap();
/// transaction.put(&family, b"balance", &[balance[0] + 1]);
/// db.put(b"balance", b"0")?;
/// assert_eq!(transaction.commit(Durability::Buffered).unwrap_err().kind(), ErrorKind::Conflict);
/// # Ok::<(), siltstone::Error>(())
/// ```
pub struct Transaction {
    db: Db,
    snapshot: Snapshot,
    /// What was read, each key once.
    keys: BTreeMap<StoreId, (Family, BTreeSet<Vec<u8>>)>,
    ranges: Vec<(Family, KeyRange)>,
    batch: Batch,
    /// Values of keys written here; `None` for a delete.
    own: BTreeMap<StoreId, BTreeMap<Vec<u8>, Option<Vec<u8>>>>,
}

/// The conditions of a write to that database.
pub(super) struct Conditions<'a> {
    pub(super) db: &'a Inner,
    pub(super) all: &'a [Condition],
}

impl Depends for Conditions<'_> {
    fn judge(&self) -> Result<()> {
        self.all.iter().try_for_each(|condition| condition.check(self.db))
    }

    fn may_have_changed(&self, since: SeqNo) -> bool {
        let db = self.db;
        self.all.iter().any(|condition| db.may_have_changed(&condition.family.store, &condition.key, since))
    }
}

impl Depends for Transaction {
    fn judge(&self) -> Result<()> {
        let db = &self.db.inner;
        let seq = self.snapshot.seq();
        let conflict = |message: String| Err(Error::new(ErrorKind::Conflict, message));
        for (family, keys) in self.keys.values() {
            for key in keys {
                if !db.is_unchanged_since(&family.store, key, seq)? {
                    let (key, family) = (key.escape_ascii(), family.name());
                    return conflict(format!("key \"{key}\" of family {family} was written to"));
                }
            }
        }
        for (family, range) in &self.ranges {
            if db.written_since(&family.store, range, seq)? {
                return conflict(format!("range {range} of family {} was written to", family.name()));
            }
        }
        Ok(())
    }

    fn may_have_changed(&self, since: SeqNo) -> bool {
        let db = &self.db.inner;
        let mut keys =
            self.keys.values().flat_map(|(family, keys)| keys.iter().map(move |key| (family, key)));
        keys.any(|(family, key)| db.may_have_changed(&family.store, key, since))
            || self
                .ranges
                .iter()
                .any(|(family, range)| db.range_may_have_changed(&family.store, range, since))
    }
}

impl std::fmt::Debug for Transaction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "Transaction(at {}, {} reads, {:?})",
            self.snapshot.seq(),
            self.keys.values().map(|(_, keys)| keys.len()).sum::<usize>() + self.ranges.len(),
            self.batch
        )
    }
}

impl Transaction {
    pub(crate) fn new(db: Db) -> Self {
        let snapshot = db.snapshot();
        let (keys, own) = (BTreeMap::new(), BTreeMap::new());
        Self { db, snapshot, keys, ranges: Vec::new(), batch: Batch::new(), own }
    }

    /// The key's value: the transaction's own, else as of its beginning.
    pub fn get(&mut self, family: &Family, key: impl AsRef<[u8]>) -> Result<Option<Pinned>> {
        if let Some(value) = self.own.get(&family.store.id).and_then(|own| own.get(key.as_ref())) {
            return Ok(value.clone().map(Pinned::from));
        }
        let read = self.keys.entry(family.store.id).or_insert_with(|| (family.clone(), BTreeSet::new()));
        read.1.insert(key.as_ref().to_vec());
        family.at(&self.snapshot).get(key.as_ref())
    }

    /// The keys of a range as of the transaction's beginning, without its own writes. At the commit the whole range
    /// must be as it was.
    pub fn scan<K: AsRef<[u8]>>(
        &mut self,
        family: &Family,
        range: impl RangeBounds<K>,
    ) -> Result<Vec<Entry>> {
        let range = KeyRange::from_bounds(&range);
        self.ranges.push((family.clone(), range.clone()));
        let db = &self.db.inner;
        Inner::scan(db, &family.store, range, Some(self.snapshot.clone())).collect()
    }

    /// Puts at the commit.
    pub fn put(&mut self, family: &Family, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) {
        self.batch.put(family, key.as_ref(), value.as_ref());
        self.own
            .entry(family.store.id)
            .or_default()
            .insert(key.as_ref().to_vec(), Some(value.as_ref().to_vec()));
    }

    /// Deletes at the commit.
    pub fn delete(&mut self, family: &Family, key: impl AsRef<[u8]>) {
        self.batch.delete(family, key.as_ref());
        self.own.entry(family.store.id).or_default().insert(key.as_ref().to_vec(), None);
    }

    /// Makes all writes true, if nothing that was read has been written since; else `Conflict`.
    pub fn commit(self, durability: Durability) -> Result<SeqNo> {
        let db = &self.db.inner;
        db.catalog.write(&self.batch.ops(db)?, durability, Some(&self))
    }
}
