//! Keys and values as they come from Python.

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyMemoryView};

/// A key, value or operand: `bytes`, or a copy of whatever else holds bytes (`bytearray`, `memoryview`, an
/// array).
pub(crate) struct Bytes<'py>(Bound<'py, PyBytes>);

impl Bytes<'_> {
    pub(crate) fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

impl<'py> FromPyObject<'_, 'py> for Bytes<'py> {
    type Error = PyErr;

    fn extract(given: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        match given.cast::<PyBytes>() {
            Ok(bytes) => Ok(Self(bytes.to_owned())),
            Err(_) => copied(&given).map(Self),
        }
    }
}

fn copied<'py>(given: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
    let view = PyMemoryView::from(given).map_err(|_| {
        let kind = given.get_type().name().map_or_else(|_| "it".to_string(), |name| name.to_string());
        PyTypeError::new_err(format!("keys and values are bytes, not {kind}"))
    })?;
    Ok(view.call_method0("tobytes")?.cast_into()?)
}
