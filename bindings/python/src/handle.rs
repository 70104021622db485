//! The class of families as batches and transactions take it; `family.rs` has what it does.

use crate::forked::OfProcess;
use crate::reader::Reader;
use pyo3::prelude::*;
use siltstone::{Db, Durability};

/// A column family: a mapping of bytes to bytes that can be changed.
#[pyclass(frozen, subclass, extends = Reader, module = "siltstone")]
pub(crate) struct Family(OfProcess<Inside>);

/// A family and its database.
pub(crate) struct Inside {
    pub(crate) db: Db,
    pub(crate) family: siltstone::Family,
}

/// The durability of a write that waits for a sync, or for none.
pub(crate) fn durability(sync: bool) -> Durability {
    if sync { Durability::Sync } else { Durability::Buffered }
}

impl Family {
    pub(crate) fn new(db: Db, family: siltstone::Family) -> PyClassInitializer<Self> {
        let reader = Reader::new(family.clone(), None);
        PyClassInitializer::from(reader).add_subclass(Self(OfProcess::new(Inside { db, family })))
    }

    pub(crate) fn inside(&self, py: Python<'_>) -> PyResult<&Inside> {
        self.0.get(py)
    }
}
