//! Cursors: a place among the entries of a range that can be moved both ways.

use super::direction::{Direction, View, Walk};
use super::entry::Entry;
use crate::error::Result;
use crate::types::{Pinned, Timestamp, successor};

/// A place among the entries of a range; it can be moved either way, and put anywhere. It sees the database
/// as it was when its [scan](super::Scan::cursor) was made, and keeps its SSTables open, so many seeks with
/// one cursor are cheaper than many scans.
///
/// Each move says whether there is an entry where it came to. Past either end there is none; [`Cursor::next`]
/// and [`Cursor::prev`] stay there. After an error the cursor stands nowhere, and can be put somewhere again.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// let db = siltstone::Db::open(dir.path())?;
/// for key in ["ant", "bee", "dog"] {
///     db.put(key, "1")?;
/// }
/// let mut cursor = db.scan::<&str>(..).cursor();
/// assert!(cursor.seek("cat")?);
/// assert_eq!(cursor.entry().unwrap().key, b"dog");
/// assert!(cursor.prev()? && cursor.prev()?);
/// assert_eq!(cursor.entry().unwrap().key, b"ant");
/// assert!(!cursor.prev()?);
/// assert!(cursor.seek_back("cat")?);
/// assert_eq!(cursor.entry().unwrap().key, b"bee");
/// # Ok::<(), siltstone::Error>(())
/// ```
pub struct Cursor {
    view: View,
    walk: Option<Walk>,
    /// The entry that it stands at, if `stands`; its memory is used again for the next.
    at: Entry,
    stands: bool,
}

impl Cursor {
    pub(super) fn new(view: View) -> Self {
        let at = Entry { key: Vec::new(), timestamp: Timestamp::ZERO, value: Pinned::default() };
        Self { view, walk: None, at, stands: false }
    }

    /// The entry that the cursor stands at.
    pub fn entry(&self) -> Option<&Entry> {
        self.stands.then_some(&self.at)
    }

    /// Moves to the first entry; whether there is one.
    pub fn first(&mut self) -> Result<bool> {
        self.seek([])
    }

    /// Moves to the last entry; whether there is one.
    pub fn last(&mut self) -> Result<bool> {
        self.put_before(None)?;
        self.step()
    }

    /// Moves to the first entry at or after that key; whether there is one.
    pub fn seek(&mut self, key: impl AsRef<[u8]>) -> Result<bool> {
        self.put_at(key.as_ref())?;
        self.step()
    }

    /// Moves to the last entry at or before that key; whether there is one.
    pub fn seek_back(&mut self, key: impl AsRef<[u8]>) -> Result<bool> {
        self.put_before(Some(&successor(key.as_ref())))?;
        self.step()
    }

    /// Moves to the entry behind this one; whether there is one.
    #[expect(clippy::should_implement_trait, reason = "cursors go both ways; scans are iterators")]
    pub fn next(&mut self) -> Result<bool> {
        if !std::mem::take(&mut self.stands) {
            return Ok(false);
        }
        if self.goes(Direction::Forward) {
            return self.step();
        }
        let at = self.at.clone();
        if !self.view.has_versions() {
            self.put_at(&successor(&at.key))?;
            return self.step();
        }
        self.put_at(&at.key)?;
        self.step_past(|entry| entry.key == at.key && entry.timestamp >= at.timestamp)
    }

    /// Moves to the entry before this one; whether there is one.
    pub fn prev(&mut self) -> Result<bool> {
        if !std::mem::take(&mut self.stands) {
            return Ok(false);
        }
        if self.goes(Direction::Backward) {
            return self.step();
        }
        let at = self.at.clone();
        if !self.view.has_versions() {
            self.put_before(Some(&at.key))?;
            return self.step();
        }
        self.put_before(Some(&successor(&at.key)))?;
        self.step_past(|entry| entry.key == at.key && entry.timestamp <= at.timestamp)
    }

    fn goes(&self, direction: Direction) -> bool {
        self.walk.as_ref().is_some_and(|walk| walk.direction == direction)
    }

    fn put_at(&mut self, key: &[u8]) -> Result<()> {
        let (walk, view) = self.walk()?;
        walk.seek(view, key)
    }

    fn put_before(&mut self, end: Option<&[u8]>) -> Result<()> {
        let (walk, view) = self.walk()?;
        walk.seek_before(view, end)
    }

    fn walk(&mut self) -> Result<(&mut Walk, &View)> {
        self.leave();
        self.view.check()?;
        let walk = self.walk.get_or_insert_with(|| self.view.walk(Direction::Forward));
        Ok((walk, &self.view))
    }

    /// Stands nowhere, and holds no block.
    fn leave(&mut self) {
        self.stands = false;
        if !self.at.value.is_empty() {
            self.at.value = Pinned::default();
        }
    }

    fn step(&mut self) -> Result<bool> {
        let Some(walk) = &mut self.walk else { return Ok(false) };
        let found = walk.advance_into(&self.view, &mut self.at);
        self.stands = matches!(found, Ok(true));
        if !self.stands {
            self.leave();
        }
        found
    }

    fn step_past(&mut self, near: impl Fn(&Entry) -> bool) -> Result<bool> {
        while self.step()? {
            if !near(&self.at) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

impl std::fmt::Debug for Cursor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Cursor({:?})", self.view)
    }
}
