//! Reading: what a family, a database and a snapshot have in common.

//! Reading: what a family, a database and a snapshot have in common.

use crate::arrow::ArrowScan;
use crate::bytes::Bytes;
use crate::cursor::Cursor;
use crate::error::OrRaise;
use crate::forked::OfProcess;
use crate::range::{given, of_slice};
use crate::scan::{Scan, Yields};
use crate::time::Time;
use parking_lot::RwLock;
use pyo3::exceptions::PyKeyError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PySlice};
use siltstone::{Error, ErrorKind, KeyRange, Pinned, Timestamp};
use std::ops::Bound as End;
use std::sync::Arc;

/// A snapshot, of which all readers are closed at once.
pub(crate) type Moment = Arc<RwLock<Option<siltstone::Snapshot>>>;

/// The source of reads: a family at each call, or a family at the moment of a snapshot.
pub(crate) struct Source {
    pub(crate) family: siltstone::Family,
    pub(crate) at: Option<Moment>,
}

impl Source {
    /// Asks the family, or its reader at the moment.
    fn ask<T>(
        &self,
        family: impl FnOnce(&siltstone::Family) -> siltstone::Result<T>,
        reader: impl FnOnce(&siltstone::Reader) -> siltstone::Result<T>,
    ) -> siltstone::Result<T> {
        let Some(at) = &self.at else { return family(&self.family) };
        let at = at.read().as_ref().map(|snapshot| self.family.at(snapshot));
        reader(&at.ok_or_else(|| Error::new(ErrorKind::Closed, "the snapshot was closed"))?)
    }

    fn get(&self, key: &[u8]) -> siltstone::Result<Option<Pinned>> {
        self.ask(|family| family.get(key), |reader| reader.get(key))
    }

    fn scan(&self, range: &KeyRange) -> siltstone::Result<siltstone::Scan> {
        self.ask(|family| Ok(family.scan(range.clone())), |reader| Ok(reader.scan(range.clone())))
    }
}

/// Reads a family, as it is now (`Family`, `Db`) or was when a snapshot was taken (`Snapshot`). A mapping of
/// bytes to bytes.
#[pyclass(frozen, subclass, module = "siltstone")]
pub(crate) struct Reader(OfProcess<Source>);

impl Reader {
    pub(crate) fn new(family: siltstone::Family, at: Option<Moment>) -> Self {
        Self(OfProcess::new(Source { family, at }))
    }

    pub(crate) fn source(&self, py: Python<'_>) -> PyResult<&Source> {
        self.0.get(py)
    }

    fn value<'py>(&self, py: Python<'py>, key: &Bytes<'py>) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let (source, key) = (self.source(py)?, key.as_bytes());
        let found = py.detach(|| source.get(key)).or_raise(py)?;
        Ok(found.map(|value| PyBytes::new(py, &value)))
    }

    fn range(&self, py: Python<'_>, range: &KeyRange) -> PyResult<siltstone::Scan> {
        let source = self.source(py)?;
        py.detach(|| source.scan(range)).or_raise(py)
    }

    fn end<'py>(&self, py: Python<'py>, last: bool) -> PyResult<Option<Item<'py>>> {
        let mut cursor = self.range(py, &KeyRange::all())?.cursor();
        let found = py.detach(|| {
            // Of the last key, too, the newest version.
            if last && cursor.last()? {
                let key = cursor.entry().map(|entry| entry.key.clone());
                return key.map_or(Ok(false), |key| cursor.seek(key));
            }
            if last { Ok(false) } else { cursor.first() }
        });
        found.or_raise(py)?;
        Ok(cursor.entry().map(|entry| (PyBytes::new(py, &entry.key), PyBytes::new(py, &entry.value))))
    }
}

/// A key and its value.
type Item<'py> = (Bound<'py, PyBytes>, Bound<'py, PyBytes>);

/// A range of timestamps, the second one left out.
type Times = (Option<Time>, Option<Time>);

fn time_bounds(times: Option<Times>) -> (End<Timestamp>, End<Timestamp>) {
    let (from, to) = times.unwrap_or_default();
    let from = from.map_or(End::Unbounded, |time| End::Included(time.0));
    (from, to.map_or(End::Unbounded, |time| End::Excluded(time.0)))
}

#[pymethods]
impl Reader {
    /// The key's newest value, or `default`.
    #[pyo3(signature = (key, default=None, /))]
    fn get<'py>(
        &self,
        py: Python<'py>,
        key: Bytes<'py>,
        default: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        Ok(self.value(py, &key)?.map(Bound::into_any).or(default))
    }

    fn __getitem__<'py>(&self, py: Python<'py>, key: Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        if let Ok(slice) = key.cast::<PySlice>() {
            let scan = Scan::new(self.range(py, &of_slice(slice)?)?, Yields::Items, false);
            return Ok(Bound::new(py, scan)?.into_any());
        }
        match self.value(py, &key.extract()?)? {
            Some(value) => Ok(value.into_any()),
            None => Err(PyKeyError::new_err(key.unbind())),
        }
    }

    fn __contains__<'py>(&self, py: Python<'py>, key: Bytes<'py>) -> PyResult<bool> {
        let (source, key) = (self.source(py)?, key.as_bytes());
        py.detach(|| Ok(source.get(key)?.is_some())).or_raise(py)
    }

    fn __iter__(&self, py: Python<'_>) -> PyResult<Scan> {
        Ok(Scan::new(self.range(py, &KeyRange::all())?, Yields::Keys, false))
    }

    /// The values of many keys, as of one moment, in the order asked; None for what is not there. Cheaper
    /// than a `get` each.
    fn get_many<'py>(&self, py: Python<'py>, keys: Vec<Bytes<'py>>) -> PyResult<Bound<'py, PyList>> {
        let source = self.source(py)?;
        let keys: Vec<&[u8]> = keys.iter().map(Bytes::as_bytes).collect();
        let found =
            py.detach(|| source.ask(|family| family.multi_get(&keys), |reader| reader.multi_get(&keys)));
        PyList::new(
            py,
            found.or_raise(py)?.iter().map(|value| value.as_ref().map(|value| PyBytes::new(py, value))),
        )
    }

    /// The newest versions of a key, newest first, as pairs of timestamp and value; those with timestamps
    /// from `times[0]` up to, but not including, `times[1]`. Without explicit timestamps there is one
    /// version, with timestamp 0.
    #[pyo3(signature = (key, limit=None, *, times=None))]
    fn versions<'py>(
        &self,
        py: Python<'py>,
        key: Bytes<'py>,
        limit: Option<usize>,
        times: Option<Times>,
    ) -> PyResult<Vec<(u64, Bound<'py, PyBytes>)>> {
        let (source, key, limit) = (self.source(py)?, key.as_bytes(), limit.unwrap_or(usize::MAX));
        let times = time_bounds(times);
        let found = py.detach(|| {
            source.ask(
                |family| family.get_versions_in(key, times, limit),
                |reader| reader.get_versions_in(key, times, limit),
            )
        });
        let found = found.or_raise(py)?;
        Ok(found.iter().map(|(timestamp, value)| (timestamp.0, PyBytes::new(py, value))).collect())
    }

    /// Iterates over the keys and values of a range, in order: from `start` up to, but not including, `stop`,
    /// or those that begin with `prefix`. It sees the family as it was when the scan was made. With explicit
    /// timestamps each key comes with its newest version, of those in `times`; with `timestamps` each version
    /// comes, newest first, as `(key, timestamp, value)`.
    #[pyo3(signature = (start=None, stop=None, *, prefix=None, reverse=false, times=None, timestamps=false))]
    #[expect(clippy::too_many_arguments, reason = "Python names them")]
    fn scan<'py>(
        &self,
        py: Python<'py>,
        start: Option<Bytes<'py>>,
        stop: Option<Bytes<'py>>,
        prefix: Option<Bytes<'py>>,
        reverse: bool,
        times: Option<Times>,
        timestamps: bool,
    ) -> PyResult<Scan> {
        let scan = self.range(py, &given(py, start, stop, prefix)?)?;
        let scan = if times.is_some() { scan.times(time_bounds(times)) } else { scan };
        let yields = if timestamps { Yields::Versions } else { Yields::Items };
        Ok(Scan::new(scan, yields, reverse))
    }

    /// `scan`, the keys alone: values are not copied.
    #[pyo3(signature = (start=None, stop=None, *, prefix=None, reverse=false))]
    fn keys<'py>(
        &self,
        py: Python<'py>,
        start: Option<Bytes<'py>>,
        stop: Option<Bytes<'py>>,
        prefix: Option<Bytes<'py>>,
        reverse: bool,
    ) -> PyResult<Scan> {
        Ok(Scan::new(self.range(py, &given(py, start, stop, prefix)?)?, Yields::Keys, reverse))
    }

    /// All values, in the order of their keys.
    fn values(&self, py: Python<'_>) -> PyResult<Scan> {
        Ok(Scan::new(self.range(py, &KeyRange::all())?, Yields::Values, false))
    }

    /// All keys and values, in order.
    fn items(&self, py: Python<'_>) -> PyResult<Scan> {
        Ok(Scan::new(self.range(py, &KeyRange::all())?, Yields::Items, false))
    }

    /// A place in a range that can be moved both ways. With explicit timestamps it stands at each version,
    /// newest first.
    #[pyo3(signature = (start=None, stop=None, *, prefix=None))]
    fn cursor<'py>(
        &self,
        py: Python<'py>,
        start: Option<Bytes<'py>>,
        stop: Option<Bytes<'py>>,
        prefix: Option<Bytes<'py>>,
    ) -> PyResult<Cursor> {
        Ok(Cursor::new(self.range(py, &given(py, start, stop, prefix)?)?))
    }

    /// The range as Arrow record batches with the columns `key` and `value`, and with `timestamps` of all
    /// versions, with a column `timestamp`.
    #[pyo3(signature = (start=None, stop=None, *, prefix=None, batch_rows=8_192, timestamps=false))]
    fn scan_arrow<'py>(
        &self,
        py: Python<'py>,
        start: Option<Bytes<'py>>,
        stop: Option<Bytes<'py>>,
        prefix: Option<Bytes<'py>>,
        batch_rows: usize,
        timestamps: bool,
    ) -> PyResult<ArrowScan> {
        let scan = self.range(py, &given(py, start, stop, prefix)?)?;
        ArrowScan::new(py, scan, batch_rows, timestamps)
    }

    /// The entry with the lowest key, or None.
    fn first<'py>(&self, py: Python<'py>) -> PyResult<Option<Item<'py>>> {
        self.end(py, false)
    }

    /// The entry with the highest key, or None.
    fn last<'py>(&self, py: Python<'py>) -> PyResult<Option<Item<'py>>> {
        self.end(py, true)
    }
}
