//! Ranges of keys as Python says them: by `start` and `stop` (which is left out), by a prefix, or by a slice.

use crate::bytes::Bytes;
use crate::error::invalid;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PySlice;
use siltstone::KeyRange;

/// From `start` up to `stop`; either may be missing.
fn between(start: Option<Bytes<'_>>, stop: Option<Bytes<'_>>) -> KeyRange {
    let owned = |key: Bytes<'_>| key.as_bytes().to_vec();
    KeyRange { start: start.map(owned).unwrap_or_default(), end: stop.map(owned) }
}

/// From a prefix, or from `start` up to `stop`.
pub(crate) fn given(
    py: Python<'_>,
    start: Option<Bytes<'_>>,
    stop: Option<Bytes<'_>>,
    prefix: Option<Bytes<'_>>,
) -> PyResult<KeyRange> {
    match prefix {
        None => Ok(between(start, stop)),
        Some(prefix) if start.is_none() && stop.is_none() => Ok(KeyRange::prefix(prefix.as_bytes())),
        Some(_) => Err(invalid(py, "a range is given by start and stop, or by a prefix, not by both")),
    }
}

/// From a slice of keys, which goes forward key by key.
pub(crate) fn of_slice(slice: &Bound<'_, PySlice>) -> PyResult<KeyRange> {
    if !slice.getattr("step")?.is_none() {
        return Err(PyTypeError::new_err("a slice of keys has no step; scan(reverse=True) goes backward"));
    }
    let end = |name: &str| slice.getattr(name)?.extract::<Option<Bytes<'_>>>();
    Ok(between(end("start")?, end("stop")?))
}
