//! The interface of all sorted sources of cells, for reads and compactions: a sorted stream of cells, and the
//! visit of one key.

use super::cell::CellRef;
use super::key::KeyRange;
use super::pinned::{Owner, Pinned};
use super::update_count::Heat;
use crate::error::Result;
use std::ops::ControlFlow;

/// A position in a sorted source of cells (see [`CellRef::order`]). A new cursor is not valid until a seek.
/// After an error it is not valid.
pub(crate) trait Cursor: Send {
    /// Moves to the first cell whose key is at or after `key`.
    fn seek(&mut self, key: &[u8]) -> Result<()>;
    /// Moves to the last cell whose key is before `key`; to the very last cell for `None`.
    fn seek_before(&mut self, key: Option<&[u8]>) -> Result<()>;
    /// Moves to the next cell. Must be valid.
    fn next(&mut self) -> Result<()>;
    /// Moves to the previous cell. Must be valid.
    fn prev(&mut self) -> Result<()>;
    /// Whether there is a current cell.
    fn valid(&self) -> bool;
    /// The current cell. Must be valid. In a mapped block its value is only right if `pin_value` gives the
    /// same without an error.
    fn cell(&self) -> CellRef<'_>;
    /// The current key, which costs less than the whole cell. Must be valid.
    fn key(&self) -> &[u8] {
        self.cell().key
    }
    /// Puts the current value into `into`, kept alive, without copying if possible. Must be valid.
    fn pin_value(&self, into: &mut Pinned) -> Result<()>;
    /// How often the current key was written, as far as this source knows. Must be valid, at the key's first
    /// cell.
    fn heat(&self) -> Heat {
        Heat::default()
    }
    /// Whether readers are likely to want the current key: in an SSTable if it was read lately, in memory if
    /// it was written more than once. Must be valid, at the key's first cell.
    fn is_warm(&self) -> bool {
        self.heat().updates > 1
    }
}

impl Cursor for Box<dyn Cursor> {
    fn seek(&mut self, key: &[u8]) -> Result<()> {
        (**self).seek(key)
    }
    fn seek_before(&mut self, key: Option<&[u8]>) -> Result<()> {
        (**self).seek_before(key)
    }
    fn next(&mut self) -> Result<()> {
        (**self).next()
    }
    fn prev(&mut self) -> Result<()> {
        (**self).prev()
    }
    fn valid(&self) -> bool {
        (**self).valid()
    }
    fn cell(&self) -> CellRef<'_> {
        (**self).cell()
    }
    fn key(&self) -> &[u8] {
        (**self).key()
    }
    fn pin_value(&self, into: &mut Pinned) -> Result<()> {
        (**self).pin_value(into)
    }
    fn heat(&self) -> Heat {
        (**self).heat()
    }
    fn is_warm(&self) -> bool {
        (**self).is_warm()
    }
}

/// A source of which only some keys count.
pub(crate) struct Within<C> {
    cursor: C,
    keys: KeyRange,
}

impl<C: Cursor> Within<C> {
    pub(crate) fn new(cursor: C, keys: KeyRange) -> Self {
        Self { cursor, keys }
    }

    /// The source's keys from `floor` on.
    pub(crate) fn above(cursor: C, floor: Vec<u8>) -> Self {
        Self::new(cursor, KeyRange { start: floor, end: None })
    }
}

impl<C: Cursor> Cursor for Within<C> {
    fn seek(&mut self, key: &[u8]) -> Result<()> {
        self.cursor.seek(key.max(&self.keys.start))
    }
    fn seek_before(&mut self, key: Option<&[u8]>) -> Result<()> {
        let end = self.keys.end.as_deref();
        self.cursor.seek_before(match (key, end) {
            (Some(key), Some(end)) => Some(key.min(end)),
            (key, end) => key.or(end),
        })
    }
    fn next(&mut self) -> Result<()> {
        self.cursor.next()
    }
    fn prev(&mut self) -> Result<()> {
        self.cursor.prev()
    }
    #[inline]
    fn valid(&self) -> bool {
        self.cursor.valid() && self.keys.contains(self.cursor.key())
    }
    #[inline]
    fn cell(&self) -> CellRef<'_> {
        self.cursor.cell()
    }
    #[inline]
    fn key(&self) -> &[u8] {
        self.cursor.key()
    }
    fn pin_value(&self, into: &mut Pinned) -> Result<()> {
        self.cursor.pin_value(into)
    }
    fn heat(&self) -> Heat {
        self.cursor.heat()
    }
}

/// Called with each cell of one key in order, and with what keeps its bytes alive; `Break` ends the visit.
pub(crate) type Visit<'v> = dyn FnMut(&CellRef<'_>, &dyn Owner) -> ControlFlow<()> + 'v;
