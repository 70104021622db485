//! Snapshots: readers of one moment.

use crate::error::OrRaise;
use crate::forked::OfProcess;
use crate::handle::Family;
use crate::reader::{Moment, Reader};
use parking_lot::RwLock;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use siltstone::Db;
use std::sync::Arc;

/// A reader of one moment. While it is open, everything it sees stays on disk.
#[pyclass(frozen, extends = Reader, module = "siltstone")]
pub(crate) struct Snapshot(OfProcess<Inside>);

struct Inside {
    db: Db,
    moment: Moment,
    seq: u64,
}

impl Snapshot {
    /// A snapshot of the present.
    pub(crate) fn take(db: &Db) -> PyClassInitializer<Self> {
        let snapshot = db.snapshot();
        let seq = snapshot.seq().0;
        Self::of(db.clone(), db.default_family(), Arc::new(RwLock::new(Some(snapshot))), seq)
    }

    fn of(db: Db, family: siltstone::Family, moment: Moment, seq: u64) -> PyClassInitializer<Self> {
        let reader = Reader::new(family, Some(moment.clone()));
        PyClassInitializer::from(reader).add_subclass(Self(OfProcess::new(Inside { db, moment, seq })))
    }
}

/// A family by its name or itself.
#[derive(FromPyObject)]
pub(crate) enum Named<'py> {
    Itself(PyRef<'py, Family>),
    Name(String),
}

impl Named<'_> {
    pub(crate) fn family(&self, py: Python<'_>, db: &Db) -> PyResult<siltstone::Family> {
        match self {
            Self::Itself(family) => Ok(family.inside(py)?.family.clone()),
            Self::Name(name) => db.family(name).or_raise(py),
        }
    }
}

#[pymethods]
impl Snapshot {
    /// The sequence number of the last write that it sees.
    #[getter]
    fn seq(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(self.0.get(py)?.seq)
    }

    /// This moment of another family, by itself or its name. Closed with this one.
    fn family<'py>(&self, py: Python<'py>, family: Named<'py>) -> PyResult<Bound<'py, Self>> {
        let Inside { db, moment, seq } = self.0.get(py)?;
        Bound::new(py, Self::of(db.clone(), family.family(py, db)?, moment.clone(), *seq))
    }

    /// Lets go of the moment, in all families.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let moment = &self.0.get(py)?.moment;
        py.detach(|| drop(moment.write().take()));
        Ok(())
    }

    fn __enter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    #[pyo3(signature = (*_raised))]
    fn __exit__(&self, py: Python<'_>, _raised: &Bound<'_, PyTuple>) -> PyResult<bool> {
        self.close(py).map(|()| false)
    }
}
