//! Batches: writes that become true together.

use crate::bytes::Bytes;
use crate::error::OrRaise;
use crate::forked::OfProcess;
use crate::handle::{Family, durability};
use crate::range::{given, of_slice};
use crate::time::Time;
use pyo3::prelude::*;
use pyo3::types::{PySlice, PyTuple};
use siltstone::{Db, KeyRange, Timestamp};

/// One write, for a batch or a transaction.
pub(crate) enum Write<'a> {
    Put { key: &'a [u8], value: &'a [u8], timestamp: Option<Time> },
    Delete { key: &'a [u8], timestamp: Option<Time> },
    Merge { key: &'a [u8], operand: &'a [u8], timestamp: Option<Time> },
    DeleteRange(KeyRange),
}

impl Write<'_> {
    pub(crate) fn add_to(self, batch: &mut siltstone::Batch, family: &siltstone::Family) {
        match self {
            Self::Put { key, value, timestamp: None } => batch.put(family, key, value),
            Self::Put { key, value, timestamp: Some(Time(at)) } => batch.put_at(family, key, at, value),
            Self::Delete { key, timestamp: None } => batch.delete(family, key),
            Self::Delete { key, timestamp: Some(Time(at)) } => batch.delete_at(family, key, at),
            Self::Merge { key, operand, timestamp: None } => batch.merge(family, key, operand),
            Self::Merge { key, operand, timestamp: Some(Time(at)) } => {
                batch.merge_at(family, key, at, operand)
            }
            Self::DeleteRange(range) => batch.delete_range_at(family, range, Timestamp::ZERO, Timestamp::MAX),
        };
    }
}

/// Writes that become true together, when its `with` block ends or by `write`. Calls go to the family that
/// made it, unless they name another one.
#[pyclass(module = "siltstone")]
pub(crate) struct Batch(OfProcess<Inside>);

struct Inside {
    db: Db,
    /// The family of writes that name none.
    family: siltstone::Family,
    batch: siltstone::Batch,
    sync: bool,
}

impl Batch {
    pub(crate) fn new(db: Db, family: siltstone::Family, sync: bool) -> Self {
        Self(OfProcess::new(Inside { db, family, batch: siltstone::Batch::new(), sync }))
    }

    fn add(&mut self, py: Python<'_>, family: Option<PyRef<'_, Family>>, write: Write<'_>) -> PyResult<()> {
        let Inside { family: own, batch, .. } = self.0.get_mut(py)?;
        match family {
            Some(family) => write.add_to(batch, &family.inside(py)?.family),
            None => write.add_to(batch, own),
        }
        Ok(())
    }
}

#[pymethods]
impl Batch {
    /// See `Family.put`.
    #[pyo3(signature = (key, value, *, timestamp=None, family=None))]
    fn put<'py>(
        &mut self,
        py: Python<'py>,
        key: Bytes<'py>,
        value: Bytes<'py>,
        timestamp: Option<Time>,
        family: Option<PyRef<'py, Family>>,
    ) -> PyResult<()> {
        self.add(py, family, Write::Put { key: key.as_bytes(), value: value.as_bytes(), timestamp })
    }

    /// See `Family.delete`.
    #[pyo3(signature = (key, *, timestamp=None, family=None))]
    fn delete<'py>(
        &mut self,
        py: Python<'py>,
        key: Bytes<'py>,
        timestamp: Option<Time>,
        family: Option<PyRef<'py, Family>>,
    ) -> PyResult<()> {
        self.add(py, family, Write::Delete { key: key.as_bytes(), timestamp })
    }

    /// See `Family.merge`.
    #[pyo3(signature = (key, operand, *, timestamp=None, family=None))]
    fn merge<'py>(
        &mut self,
        py: Python<'py>,
        key: Bytes<'py>,
        operand: Bytes<'py>,
        timestamp: Option<Time>,
        family: Option<PyRef<'py, Family>>,
    ) -> PyResult<()> {
        self.add(py, family, Write::Merge { key: key.as_bytes(), operand: operand.as_bytes(), timestamp })
    }

    /// See `Family.delete_range`.
    #[pyo3(signature = (start=None, stop=None, *, prefix=None, family=None))]
    fn delete_range<'py>(
        &mut self,
        py: Python<'py>,
        start: Option<Bytes<'py>>,
        stop: Option<Bytes<'py>>,
        prefix: Option<Bytes<'py>>,
        family: Option<PyRef<'py, Family>>,
    ) -> PyResult<()> {
        self.add(py, family, Write::DeleteRange(given(py, start, stop, prefix)?))
    }

    fn __setitem__<'py>(&mut self, py: Python<'py>, key: Bytes<'py>, value: Bytes<'py>) -> PyResult<()> {
        self.put(py, key, value, None, None)
    }

    fn __delitem__<'py>(&mut self, py: Python<'py>, key: Bound<'py, PyAny>) -> PyResult<()> {
        match key.cast::<PySlice>() {
            Ok(slice) => self.add(py, None, Write::DeleteRange(of_slice(slice)?)),
            Err(_) => self.delete(py, key.extract()?, None, None),
        }
    }

    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(self.0.get(py)?.batch.len())
    }

    /// Bytes of its keys and values.
    #[getter]
    fn nbytes(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(self.0.get(py)?.batch.user_bytes())
    }

    /// Forgets what it has.
    fn clear(&mut self, py: Python<'_>) -> PyResult<()> {
        self.0.get_mut(py)?.batch.clear();
        Ok(())
    }

    /// Writes and clears it. Answers the last sequence number.
    #[pyo3(signature = (*, sync=None))]
    fn write(&mut self, py: Python<'_>, sync: Option<bool>) -> PyResult<u64> {
        let inside = self.0.get_mut(py)?;
        let durability = durability(sync.unwrap_or(inside.sync));
        let written = py.detach(|| inside.db.write_with(&inside.batch, durability)).or_raise(py)?;
        inside.batch.clear();
        Ok(written.0)
    }

    fn __enter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    #[pyo3(signature = (*raised))]
    fn __exit__(&mut self, py: Python<'_>, raised: &Bound<'_, PyTuple>) -> PyResult<bool> {
        match raised.get_item(0)?.is_none() {
            true => self.write(py, None).map(drop)?,
            false => self.clear(py)?,
        }
        Ok(false)
    }
}
