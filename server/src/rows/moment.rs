//! The moment at which rows are read: a snapshot, or a snapshot with writes over it that are not made yet.

use crate::cells::row_key::Span;
use siltstone::{
    Cursor, Entry, Error, ErrorKind, Family, Result, Snapshot, Timestamp, Transaction, TransactionScan,
};
use std::ops::{Bound, Range};

/// A moment at which stores are read.
pub(crate) trait Moment: Clone {
    /// A place among the entries of a store.
    type Place: Place;

    /// The entries of a store with these keys. Where times are given, no others are needed.
    fn entries(&self, store: &Family, keys: Span, times: Option<Range<Timestamp>>) -> Self::Place;
}

/// A place among entries, moved as a [`Cursor`] is.
pub(crate) trait Place {
    fn entry(&self) -> Option<&Entry>;
    fn first(&mut self) -> Result<bool>;
    fn last(&mut self) -> Result<bool>;
    fn seek(&mut self, key: impl AsRef<[u8]>) -> Result<bool>;
    fn next(&mut self) -> Result<bool>;
    fn prev(&mut self) -> Result<bool>;
}

fn bounds(start: Vec<u8>, end: Option<Vec<u8>>) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
    (Bound::Included(start), end.map_or(Bound::Unbounded, Bound::Excluded))
}

impl Moment for Snapshot {
    type Place = Cursor;

    fn entries(&self, store: &Family, keys: Span, times: Option<Range<Timestamp>>) -> Cursor {
        let scan = store.at(self).scan::<Vec<u8>>(bounds(keys.start, keys.end));
        match times {
            None => scan,
            Some(times) => scan.times(times),
        }
        .cursor()
    }
}

impl Place for Cursor {
    fn entry(&self) -> Option<&Entry> {
        Cursor::entry(self)
    }

    fn first(&mut self) -> Result<bool> {
        Cursor::first(self)
    }

    fn last(&mut self) -> Result<bool> {
        Cursor::last(self)
    }

    fn seek(&mut self, key: impl AsRef<[u8]>) -> Result<bool> {
        Cursor::seek(self, key)
    }

    fn next(&mut self) -> Result<bool> {
        Cursor::next(self)
    }

    fn prev(&mut self) -> Result<bool> {
        Cursor::prev(self)
    }
}

/// The transaction's snapshot, under its writes. It is read forward only.
impl<'t> Moment for &'t Transaction {
    type Place = Unwritten<'t>;

    fn entries(&self, store: &Family, keys: Span, _: Option<Range<Timestamp>>) -> Unwritten<'t> {
        Unwritten { transaction: self, store: store.clone(), keys, scan: None, at: None }
    }
}

/// A place among the entries that a transaction sees.
pub(crate) struct Unwritten<'t> {
    transaction: &'t Transaction,
    store: Family,
    keys: Span,
    scan: Option<TransactionScan<'t>>,
    at: Option<Entry>,
}

fn goes_forward_only() -> Error {
    Error::new(ErrorKind::Unsupported, "writes that are not made yet are read forward only")
}

impl Unwritten<'_> {
    fn begin_at(&mut self, start: Vec<u8>) -> Result<bool> {
        let range = bounds(start, self.keys.end.clone());
        self.scan = Some(self.transaction.scan::<Vec<u8>>(&self.store, range));
        self.next()
    }
}

impl Place for Unwritten<'_> {
    fn entry(&self) -> Option<&Entry> {
        self.at.as_ref()
    }

    fn first(&mut self) -> Result<bool> {
        self.begin_at(self.keys.start.clone())
    }

    fn last(&mut self) -> Result<bool> {
        Err(goes_forward_only())
    }

    fn seek(&mut self, key: impl AsRef<[u8]>) -> Result<bool> {
        let start = key.as_ref().max(&self.keys.start).to_vec();
        self.begin_at(start)
    }

    fn next(&mut self) -> Result<bool> {
        self.at = None;
        self.at = self.scan.as_mut().and_then(Iterator::next).transpose()?;
        Ok(self.at.is_some())
    }

    fn prev(&mut self) -> Result<bool> {
        Err(goes_forward_only())
    }
}
