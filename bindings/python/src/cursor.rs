//! Cursors: a place in a range that can be moved both ways.

use crate::bytes::Bytes;
use crate::error::OrRaise;
use crate::forked::OfProcess;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// A place in a range. Each move says whether there is an entry where it came to; it sees the moment it was
/// made.
#[pyclass(module = "siltstone")]
pub(crate) struct Cursor(OfProcess<siltstone::Cursor>);

impl Cursor {
    pub(crate) fn new(scan: siltstone::Scan) -> Self {
        Self(OfProcess::new(scan.cursor()))
    }

    fn moved(
        &mut self,
        py: Python<'_>,
        to: impl FnOnce(&mut siltstone::Cursor) -> siltstone::Result<bool> + Send,
    ) -> PyResult<bool> {
        let cursor = self.0.get_mut(py)?;
        py.detach(|| to(cursor)).or_raise(py)
    }
}

#[pymethods]
impl Cursor {
    /// To the first entry.
    fn first(&mut self, py: Python<'_>) -> PyResult<bool> {
        self.moved(py, siltstone::Cursor::first)
    }

    /// To the last entry.
    fn last(&mut self, py: Python<'_>) -> PyResult<bool> {
        self.moved(py, siltstone::Cursor::last)
    }

    /// To the entry behind this one.
    fn next(&mut self, py: Python<'_>) -> PyResult<bool> {
        self.moved(py, siltstone::Cursor::next)
    }

    /// To the entry before this one.
    fn prev(&mut self, py: Python<'_>) -> PyResult<bool> {
        self.moved(py, siltstone::Cursor::prev)
    }

    /// To the first entry at or after that key.
    #[pyo3(signature = (key, /))]
    fn seek<'py>(&mut self, py: Python<'py>, key: Bytes<'py>) -> PyResult<bool> {
        let key = key.as_bytes();
        self.moved(py, |cursor| cursor.seek(key))
    }

    /// To the last entry at or before that key.
    #[pyo3(signature = (key, /))]
    fn seek_back<'py>(&mut self, py: Python<'py>, key: Bytes<'py>) -> PyResult<bool> {
        let key = key.as_bytes();
        self.moved(py, |cursor| cursor.seek_back(key))
    }

    /// The key where it stands, or None.
    #[getter]
    fn key<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyBytes>>> {
        Ok(self.0.get(py)?.entry().map(|entry| PyBytes::new(py, &entry.key)))
    }

    /// The value where it stands, or None.
    #[getter]
    fn value<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyBytes>>> {
        Ok(self.0.get(py)?.entry().map(|entry| PyBytes::new(py, &entry.value)))
    }

    /// The timestamp where it stands, or None.
    #[getter]
    fn timestamp(&self, py: Python<'_>) -> PyResult<Option<u64>> {
        Ok(self.0.get(py)?.entry().map(|entry| entry.timestamp.0))
    }

    fn __bool__(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.0.get(py)?.entry().is_some())
    }

    /// Lets go of what it holds.
    fn close(&mut self, py: Python<'_>) -> PyResult<()> {
        self.0.close(py)
    }
}
