//! Conditions of writes: what must hold at the moment of writing, with nothing else being written meanwhile.

use super::{Family, Inner};
use crate::commit::{Depends, InFlight};
use crate::error::{Error, ErrorKind, Result};
use crate::operator::inside;
use crate::types::{KeyRange, SeqNo};
use std::ops::RangeBounds;
use std::sync::Arc;

/// The state that a key must have for a conditional write.
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
    /// Nothing concerning it was written after this sequence number. Compactions drop the evidence in time:
    /// deletes, and overwritten versions. Then the answer for a key that is missing (with explicit
    /// timestamps, for any key) is a `Conflict` that says "may have been written to". So use a recent number,
    /// or hold the [`Snapshot`](crate::Snapshot) that it is from: compactions retain what shows later writes
    /// than a snapshot's.
    NotNewerThan(SeqNo),
}

/// A condition of a conditional write; see [`Db::write_if`](crate::Db::write_if).
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
#[derive(Clone)]
pub struct Condition(What);

#[derive(Clone)]
enum What {
    Key { family: Family, key: Vec<u8>, expected: Expected },
    Holds { rests_on: Vec<(Family, KeyRange)>, holds: Arc<dyn Fn() -> Result<bool> + Send + Sync> },
}

impl Condition {
    /// The key must be as expected.
    pub fn new(family: &Family, key: impl Into<Vec<u8>>, expected: Expected) -> Self {
        Self(What::Key { family: family.clone(), key: key.into(), expected })
    }

    /// `holds` must answer true. It reads the present through [`Family`] handles, and no more of it than is
    /// named by [`Condition::rests_on`]: what is written elsewhere between its last call and the write goes
    /// unnoticed. It may be called several times, also while all writers wait; it may only read (a write,
    /// flush or split in it is refused with `Invalid`, as it would wait for itself), and its error is the
    /// write's.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// use siltstone::{Batch, Condition, Db, Durability};
    /// let db = Db::open(dir.path())?;
    /// let family = db.default_family();
    /// db.put("seat/1", "free")?;
    /// let reader = family.clone();
    /// let any_free = Condition::when(move || Ok(reader.scan_prefix("seat/").any(|seat| seat.is_ok_and(|s| s.value == "free"))))
    ///     .rests_on(&family, "seat/".."seat0");
    /// db.write_if(&[any_free], Batch::new().put(&family, "seat/1", "taken"), Durability::Buffered)?;
    /// # Ok::<(), siltstone::Error>(())
    /// ```
    pub fn when(holds: impl Fn() -> Result<bool> + Send + Sync + 'static) -> Self {
        Self(What::Holds { rests_on: Vec::new(), holds: Arc::new(holds) })
    }

    /// The keys that a [closure](Condition::when) reads. (A condition on one key rests on that key anyway.)
    #[must_use]
    pub fn rests_on<K: AsRef<[u8]>>(mut self, family: &Family, range: impl RangeBounds<K>) -> Self {
        if let What::Holds { rests_on, .. } = &mut self.0 {
            rests_on.push((family.clone(), family.own(KeyRange::from_bounds(&range))));
        }
        self
    }

    fn families(&self) -> Vec<&Family> {
        match &self.0 {
            What::Key { family, .. } => vec![family],
            What::Holds { rests_on, .. } => rests_on.iter().map(|(family, _)| family).collect(),
        }
    }

    fn check(&self, db: &Inner) -> Result<()> {
        if self.families().iter().any(|family| !std::ptr::eq(Arc::as_ptr(&family.db), db)) {
            return Err(Error::new(ErrorKind::Invalid, "the condition names a family of another database"));
        }
        let conflict = |message: String| Err(Error::new(ErrorKind::Conflict, message));
        let (family, key, expected) = match &self.0 {
            What::Key { family, key, expected } => (family, key, expected),
            What::Holds { holds, .. } if inside(|| holds())? => return Ok(()),
            What::Holds { .. } => return conflict("the condition does not hold".into()),
        };
        let holds = match expected {
            Expected::NotNewerThan(seq) => return db.check_key_since(&family.store, key, *seq),
            Expected::Absent => db.get(&family.store, key, None)?.is_none(),
            Expected::Present => db.get(&family.store, key, None)?.is_some(),
            Expected::Value(value) => db.get(&family.store, key, None)?.is_some_and(|v| *v == value[..]),
        };
        if holds {
            return Ok(());
        }
        conflict(format!("key \"{}\" of family {} is not as expected", key.escape_ascii(), family.name()))
    }

    fn may_have_changed(&self, db: &Inner, since: SeqNo) -> bool {
        match &self.0 {
            What::Key { family, key, .. } => db.may_have_changed(&family.store, key, since),
            What::Holds { rests_on, .. } => {
                rests_on.iter().any(|(family, range)| db.range_may_have_changed(&family.store, range, since))
            }
        }
    }

    fn newest_in_flight(&self, in_flight: &InFlight) -> Option<u64> {
        match &self.0 {
            What::Key { family, key, .. } => in_flight.newest_on(family.store.id, key),
            What::Holds { rests_on, .. } => {
                let newest =
                    |(family, range): &(Family, KeyRange)| in_flight.newest_in(family.store.id, range);
                rests_on.iter().filter_map(newest).max()
            }
        }
    }
}

impl std::fmt::Debug for Condition {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.0 {
            What::Key { family, key, expected } => {
                write!(f, "Condition({family:?} \"{}\" {expected:?})", key.escape_ascii())
            }
            What::Holds { rests_on, .. } => write!(f, "Condition(over {rests_on:?})"),
        }
    }
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
        self.all.iter().any(|condition| condition.may_have_changed(self.db, since))
    }

    fn newest_in_flight(&self, in_flight: &InFlight) -> Option<u64> {
        self.all.iter().filter_map(|condition| condition.newest_in_flight(in_flight)).max()
    }
}
