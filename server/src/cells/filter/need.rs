//! The part of a family that a filter needs to read: without cells that it excludes for certain.

use crate::cells::subset::Columns;
use bytes::Bytes;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

/// The part of a family to be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Need {
    /// Qualifiers.
    pub(crate) columns: (Bound<Bytes>, Bound<Bytes>),
    /// Qualifiers that the call's view has; all, where it names none.
    view: Option<Arc<Columns>>,
    /// Timestamps: from, and up to, exclusive.
    pub(crate) times: (i64, Option<i64>),
    /// The newest of each column.
    pub(crate) newest: Option<usize>,
    /// The first of each row, of all families that are read.
    pub(crate) first: Option<usize>,
    /// The filter changes nothing of what is read by this.
    pub(crate) is_all: bool,
}

impl Default for Need {
    fn default() -> Self {
        let all = (Bound::Unbounded, Bound::Unbounded);
        Self { columns: all, view: None, times: (0, None), newest: None, first: None, is_all: true }
    }
}

impl Need {
    /// The part of this that a view has.
    pub(crate) fn within(self, view: &Arc<Columns>) -> Self {
        Self { view: (!view.is_all()).then(|| view.clone()), ..self }
    }

    /// Whether cells of that column are read.
    pub(crate) fn has(&self, qualifier: &[u8]) -> bool {
        self.columns.contains(qualifier) && self.view.as_ref().is_none_or(|view| view.has(qualifier))
    }

    /// The first column to be read after one that is not.
    pub(crate) fn next(&self, qualifier: &[u8]) -> Option<Vec<u8>> {
        let from = match &self.columns.0 {
            Bound::Included(at) if qualifier < &at[..] => at.to_vec(),
            Bound::Excluded(at) if qualifier <= &at[..] => [&at[..], b"\0"].concat(),
            _ => qualifier.to_vec(),
        };
        let next: &[u8] = match &self.view {
            Some(view) => view.first_from(&from)?,
            None => &from,
        };
        (next > qualifier && self.columns.contains(next)).then(|| next.to_vec())
    }

    /// Leaves of the qualifiers those of a range.
    pub(super) fn narrow(&mut self, (from, to): &(Bound<Bytes>, Bound<Bytes>)) {
        let key = |bound: &Bound<Bytes>| match bound {
            Bound::Included(at) => Some((at.clone(), 0)),
            Bound::Excluded(at) => Some((at.clone(), 1)),
            Bound::Unbounded => None,
        };
        if key(from) > key(&self.columns.0) {
            self.columns.0 = from.clone();
        }
        // An end that is excluded is less than one that is not; none is the greatest.
        let end = |bound: &Bound<Bytes>| key(bound).map(|(at, open)| (at, 1 - open));
        let narrower = match (end(to), end(&self.columns.1)) {
            (Some(new), Some(old)) => new < old,
            (new, None) => new.is_some(),
            (None, Some(_)) => false,
        };
        if narrower {
            self.columns.1 = to.clone();
        }
    }
}
