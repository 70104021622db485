//! Scans: iterators over the entries of a range, from both ends.

use super::Shared;
use super::cursor::Cursor;
use super::direction::{Direction, View, Walk};
use super::entry::Entry;
use crate::commit::Store;
use crate::error::{Error, ErrorKind, Result};
use crate::snapshot::Snapshot;
use crate::types::{KeyRange, TimeRange, Timestamp};
use std::iter::FusedIterator;
use std::ops::RangeBounds;
use std::sync::Arc;

/// An iterator over the [`Entry`]s of a range of keys, in order, from both ends. It sees the database as it
/// was when the scan was made. In a family with explicit timestamps each version of a key is an entry, newest
/// first.
///
/// An error ends it, except where the merge operator refused one key: the scan goes on behind that key. To
/// move back and forth, or to jump, make it a [cursor](Scan::cursor).
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// let db = siltstone::Db::open(dir.path())?;
/// for key in ["ant", "bee", "cat", "dog"] {
///     db.put(key, "1")?;
/// }
/// let keys: Vec<_> = db.scan("b".."d").map(|entry| entry.map(|e| e.key)).collect::<siltstone::Result<_>>()?;
/// assert_eq!(keys, [b"bee", b"cat"]);
/// let mut scan = db.scan::<&str>(..);
/// assert_eq!(scan.next_back().unwrap()?.key, b"dog");
/// assert_eq!(scan.next().unwrap()?.key, b"ant");
/// assert_eq!(scan.rev().count(), 2);
/// # Ok::<(), siltstone::Error>(())
/// ```
pub struct Scan {
    view: View,
    front: Option<Walk>,
    back: Option<Box<Walk>>,
    /// The last timestamps taken at either end.
    taken: (Option<Timestamp>, Option<Timestamp>),
    ended: bool,
}

impl Scan {
    /// A scan; the settings' explicit timestamps decide what it yields, see [`View`].
    pub(super) fn new(db: &Shared, store: &Arc<Store>, range: KeyRange, snapshot: Option<Snapshot>) -> Self {
        let view = View::new(db, store, range, snapshot);
        Self { view, front: None, back: None, taken: (None, None), ended: false }
    }

    /// Only versions with these timestamps, of a family with explicit ones (of another the first step answers
    /// `Invalid`, as it does where the scan has begun already). Which versions a key has does not depend on
    /// it: a version is the newest, or deleted, or one too many, by all timestamps of the key.
    ///
    /// Memtables and SSTables without these times are not read (Accordion, section 2.1). But if the number of
    /// versions is limited, those with later timestamps are, as they decide which versions count; and so are
    /// those with a delete of all versions.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # use siltstone::{Db, FamilyOptions, Timestamp, Timestamps};
    /// # let db = Db::open(dir.path())?;
    /// let options = FamilyOptions { timestamps: Timestamps::Explicit, versions: 0, ..Default::default() };
    /// let events = db.create_family("events", options)?;
    /// for day in 1..=9 {
    ///     events.put_at("door", Timestamp(day), "opened")?;
    /// }
    /// let days = events.scan::<&str>(..).times(Timestamp(3)..Timestamp(6));
    /// let days: Vec<_> = days.map(|entry| entry.map(|e| e.timestamp.0)).collect::<siltstone::Result<_>>()?;
    /// assert_eq!(days, [5, 4, 3]);
    /// # Ok::<(), siltstone::Error>(())
    /// ```
    #[must_use]
    pub fn times(mut self, times: impl RangeBounds<Timestamp>) -> Self {
        match self.front.is_some() || self.back.is_some() {
            false => self.view.set_times(TimeRange::from_bounds(&times)),
            true => {
                self.view.refused = Some(Error::invalid("the times of a scan are set before its first step"));
            }
        }
        self
    }

    /// The keys alone: no value is copied or held.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// let db = siltstone::Db::open(dir.path())?;
    /// db.put("silt", "settles")?;
    /// let keys: Vec<_> = db.scan::<&str>(..).keys().collect::<siltstone::Result<_>>()?;
    /// assert_eq!(keys, [b"silt"]);
    /// # Ok::<(), siltstone::Error>(())
    /// ```
    pub fn keys(mut self) -> Keys {
        self.view.keys_alone = true;
        Keys(self)
    }

    /// A cursor over the scan's whole range, standing nowhere yet.
    pub fn cursor(self) -> Cursor {
        Cursor::new(self.view)
    }

    fn step(&mut self, direction: Direction) -> Option<Result<Entry>> {
        if self.ended {
            return None;
        }
        if let Err(why) = self.view.check() {
            self.ended = true;
            return Some(Err(why));
        }
        let Self { view, front, back, taken, .. } = self;
        let (walk, other, taken) = match direction {
            Direction::Forward => {
                (front.get_or_insert_with(|| view.walk(direction)), back.as_deref(), (&mut taken.0, taken.1))
            }
            Direction::Backward => {
                let walk = back.get_or_insert_with(|| Box::new(view.walk(direction)));
                (&mut **walk, front.as_ref(), (&mut taken.1, taken.0))
            }
        };
        let met = other.and_then(Walk::reached);
        let next = walk.advance(view, met);
        if let Ok(Some(entry)) = &next {
            *taken.0 = Some(entry.timestamp);
        }
        // Within the versions of one key both ends may meet.
        let passed = |entry: &Entry| {
            let (Some((key, _)), Some(theirs)) = (met, taken.1) else { return false };
            entry.key == key
                && match direction {
                    Direction::Forward => entry.timestamp <= theirs,
                    Direction::Backward => entry.timestamp >= theirs,
                }
        };
        let next = next.map(|entry| entry.filter(|entry| !passed(entry)));
        self.ended = match &next {
            Ok(entry) => entry.is_none(),
            // The merge operator refused one key, which is passed already.
            Err(e) => e.kind() != ErrorKind::MergeRefused,
        };
        next.transpose()
    }

    /// The covers of the walk in the direction in which the scan goes.
    #[cfg(all(test, not(models)))]
    pub(super) fn covers(&self) -> &super::tombstone_skip::Covers {
        &self.front.as_ref().or(self.back.as_deref()).expect("it has begun").covers
    }
}

impl Iterator for Scan {
    type Item = Result<Entry>;

    fn next(&mut self) -> Option<Self::Item> {
        self.step(Direction::Forward)
    }
}

impl DoubleEndedIterator for Scan {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.step(Direction::Backward)
    }
}

impl FusedIterator for Scan {}

impl std::fmt::Debug for Scan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Scan({:?})", self.view)
    }
}

/// The keys of a [`Scan`]; of a family with explicit timestamps, one for each version.
#[derive(Debug)]
pub struct Keys(Scan);

impl Iterator for Keys {
    type Item = Result<Vec<u8>>;

    fn next(&mut self) -> Option<Self::Item> {
        Some(self.0.next()?.map(|entry| entry.key))
    }
}

impl DoubleEndedIterator for Keys {
    fn next_back(&mut self) -> Option<Self::Item> {
        Some(self.0.next_back()?.map(|entry| entry.key))
    }
}

impl FusedIterator for Keys {}
