//! A list of writes that happen together.

use super::{Family, Inner};
use crate::commit::{Action, Op};
use crate::error::{Error, ErrorKind, Result};
use crate::types::{KeyRange, Kind, Timestamp};
use std::ops::{Range, RangeBounds};
use std::sync::Arc;

/// Writes over any families of one database that become visible and durable together, all or none. Later
/// writes of a key win over earlier ones of the same batch. Limit: a quarter of the WAL's limit.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = siltstone::Db::open(dir.path())?;
/// let family = db.default_family();
/// let mut batch = siltstone::Batch::new();
/// batch.put(&family, b"a", b"1").put(&family, b"b", b"2").delete_range(&family, "c".."d");
/// assert_eq!(batch.len(), 3);
/// db.write(&batch)?;
/// # Ok::<(), siltstone::Error>(())
/// ```
#[derive(Clone, Default)]
pub struct Batch {
    bytes: Vec<u8>,
    entries: Vec<Entry>,
    families: Vec<Family>,
}

#[derive(Clone)]
struct Entry {
    family: usize,
    what: What,
}

#[derive(Clone)]
enum What {
    Cell { kind: Kind, key: Range<usize>, timestamp: Option<Timestamp>, value: Range<usize> },
    DeleteRange { range: KeyRange, from: Timestamp, to: Timestamp },
}

/// A write of a [`Batch`], as it reads back. Without a timestamp: where timestamps are explicit, that of the
/// moment of writing; a delete deletes all versions.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Operation<'a> {
    /// See [`Family::put`].
    #[expect(missing_docs, reason = "as the call's")]
    Put { family: &'a Family, key: &'a [u8], timestamp: Option<Timestamp>, value: &'a [u8] },
    /// See [`Family::merge`].
    #[expect(missing_docs, reason = "as the call's")]
    Merge { family: &'a Family, key: &'a [u8], timestamp: Option<Timestamp>, operand: &'a [u8] },
    /// See [`Family::delete`].
    #[expect(missing_docs, reason = "as the call's")]
    Delete { family: &'a Family, key: &'a [u8], timestamp: Option<Timestamp> },
    /// See [`Family::delete_range_at`].
    #[expect(missing_docs, reason = "as the call's")]
    DeleteRange { family: &'a Family, range: &'a KeyRange, from: Timestamp, to: Timestamp },
}

impl<'a> Operation<'a> {
    /// The family that it writes to, and the key, unless it deletes a range.
    pub(super) fn target(&self) -> (&'a Family, Option<&'a [u8]>) {
        match *self {
            Self::Put { family, key, .. }
            | Self::Merge { family, key, .. }
            | Self::Delete { family, key, .. } => (family, Some(key)),
            Self::DeleteRange { family, .. } => (family, None),
        }
    }
}

impl std::fmt::Debug for Batch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Batch({} writes, {} bytes)", self.len(), self.bytes.len())
    }
}

impl Batch {
    /// No writes.
    pub fn new() -> Self {
        Self::default()
    }

    /// Number of writes.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is no write.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Bytes of all keys and values.
    pub fn user_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// The writes, in order.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = siltstone::Db::open(dir.path())?;
    /// use siltstone::Operation;
    /// let mut batch = siltstone::Batch::new();
    /// batch.put(&db.default_family(), "k", "v");
    /// let first = batch.iter().next().unwrap();
    /// assert!(matches!(first, Operation::Put { key: b"k", value: b"v", timestamp: None, .. }));
    /// # Ok::<(), siltstone::Error>(())
    /// ```
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Operation<'_>> {
        (0..self.len()).map(|i| self.operation(i))
    }

    pub(super) fn operation(&self, i: usize) -> Operation<'_> {
        let entry = &self.entries[i];
        let family = &self.families[entry.family];
        let (kind, key, timestamp, value) = match &entry.what {
            What::Cell { kind, key, timestamp, value } => {
                (*kind, &self.bytes[key.clone()], *timestamp, &self.bytes[value.clone()])
            }
            What::DeleteRange { range, from, to } => {
                return Operation::DeleteRange { family, range, from: *from, to: *to };
            }
        };
        match kind {
            Kind::Value => Operation::Put { family, key, timestamp, value },
            Kind::Operand => Operation::Merge { family, key, timestamp, operand: value },
            Kind::Tombstone => Operation::Delete { family, key, timestamp },
            Kind::Hidden => unreachable!("only compactions make it"),
        }
    }

    /// Forgets the writes behind the first `len`.
    pub fn truncate(&mut self, len: usize) {
        let first = self.entries.iter().skip(len).find_map(|entry| match &entry.what {
            What::Cell { key, .. } => Some(key.start),
            What::DeleteRange { .. } => None,
        });
        self.bytes.truncate(first.unwrap_or(self.bytes.len()));
        self.entries.truncate(len);
    }

    /// Forgets all writes, keeping the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.entries.clear();
        self.families.clear();
    }

    fn family(&mut self, family: &Family) -> usize {
        let known = self.families.iter().rposition(|f| Arc::ptr_eq(&f.store, &family.store));
        known.unwrap_or_else(|| {
            self.families.push(family.clone());
            self.families.len() - 1
        })
    }

    fn store(&mut self, bytes: &[u8]) -> Range<usize> {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(bytes);
        start..self.bytes.len()
    }

    fn cell(
        &mut self,
        family: &Family,
        kind: Kind,
        key: &[u8],
        timestamp: Option<Timestamp>,
        value: &[u8],
    ) -> &mut Self {
        let family = self.family(family);
        let (key, value) = (self.store(key), self.store(value));
        self.entries.push(Entry { family, what: What::Cell { kind, key, timestamp, value } });
        self
    }

    /// See [`Family::put`].
    pub fn put(&mut self, family: &Family, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> &mut Self {
        self.cell(family, Kind::Value, key.as_ref(), None, value.as_ref())
    }

    /// See [`Family::put_at`].
    pub fn put_at(
        &mut self,
        family: &Family,
        key: impl AsRef<[u8]>,
        timestamp: Timestamp,
        value: impl AsRef<[u8]>,
    ) -> &mut Self {
        self.cell(family, Kind::Value, key.as_ref(), Some(timestamp), value.as_ref())
    }

    /// See [`Family::delete`].
    pub fn delete(&mut self, family: &Family, key: impl AsRef<[u8]>) -> &mut Self {
        self.cell(family, Kind::Tombstone, key.as_ref(), None, &[])
    }

    /// See [`Family::delete_at`].
    pub fn delete_at(&mut self, family: &Family, key: impl AsRef<[u8]>, timestamp: Timestamp) -> &mut Self {
        self.cell(family, Kind::Tombstone, key.as_ref(), Some(timestamp), &[])
    }

    /// See [`Family::merge`].
    pub fn merge(&mut self, family: &Family, key: impl AsRef<[u8]>, operand: impl AsRef<[u8]>) -> &mut Self {
        self.cell(family, Kind::Operand, key.as_ref(), None, operand.as_ref())
    }

    /// [`Batch::merge`] at a timestamp of choice.
    pub fn merge_at(
        &mut self,
        family: &Family,
        key: impl AsRef<[u8]>,
        timestamp: Timestamp,
        operand: impl AsRef<[u8]>,
    ) -> &mut Self {
        self.cell(family, Kind::Operand, key.as_ref(), Some(timestamp), operand.as_ref())
    }

    /// See [`Family::delete_range`].
    pub fn delete_range<K: AsRef<[u8]>>(&mut self, family: &Family, range: impl RangeBounds<K>) -> &mut Self {
        self.delete_range_at(family, range, Timestamp::ZERO, Timestamp::MAX)
    }

    /// See [`Family::delete_range_at`].
    pub fn delete_range_at<K: AsRef<[u8]>>(
        &mut self,
        family: &Family,
        range: impl RangeBounds<K>,
        from: Timestamp,
        to: Timestamp,
    ) -> &mut Self {
        let family = self.family(family);
        let range = self.families[family].own(KeyRange::from_bounds(&range));
        self.entries.push(Entry { family, what: What::DeleteRange { range, from, to } });
        self
    }

    /// The writes as the write path takes them.
    pub(crate) fn ops(&self, db: &Arc<Inner>) -> Result<Vec<Op<'_>>> {
        if self.families.iter().any(|f| !Arc::ptr_eq(&f.db, db)) {
            return Err(Error::new(ErrorKind::Invalid, "the batch names a family of another database"));
        }
        let now = Timestamp(db.cx.env.clock.wall_us());
        Ok(self
            .entries
            .iter()
            .map(|entry| {
                let family = &self.families[entry.family];
                let action = match &entry.what {
                    What::Cell { kind, key, timestamp, value } => Action::Cell {
                        kind: *kind,
                        key: &self.bytes[key.clone()],
                        timestamp: timestamp.unwrap_or_else(|| family.default_timestamp(*kind, now)),
                        value: &self.bytes[value.clone()],
                    },
                    What::DeleteRange { range, from, to } => {
                        Action::DeleteRange { range, from: *from, to: *to }
                    }
                };
                Op::new(&family.store, action)
            })
            .collect())
    }
}
