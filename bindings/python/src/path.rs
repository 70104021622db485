//! Paths as they come from Python.

use pyo3::prelude::*;
use std::path::PathBuf;

/// A path: `str`, `bytes`, or an object with `__fspath__`.
pub(crate) struct Place(pub(crate) PathBuf);

impl<'py> FromPyObject<'_, 'py> for Place {
    type Error = PyErr;

    fn extract(given: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let text = given.py().import("os")?.call_method1("fsdecode", (given.to_owned(),))?;
        Ok(Self(text.extract::<PathBuf>()?))
    }
}
