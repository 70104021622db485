//! Merge operators and compaction filters that are written in Python.
//!
//! They are called by threads that read, flush or compact, mostly a worker of the engine, which waits for its
//! turn to run Python. What they raise is a refusal: reads of that key raise `MergeRefusedError`, and the
//! operands stay.

use crate::attach::{interrupt, with_python};
use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use siltstone::{CompactionFilter, Error, ErrorKind, MergeOperator, Timestamp};

/// A function of Python's: `(key, base or None, operands)` to the value.
pub(crate) struct Operator(pub(crate) Py<PyAny>);

impl MergeOperator for Operator {
    fn merge(&self, key: &[u8], base: Option<&[u8]>, operands: &[&[u8]]) -> siltstone::Result<Vec<u8>> {
        let called = with_python(|py| {
            let bytes = |bytes| PyBytes::new(py, bytes);
            let operands: Vec<_> = operands.iter().map(|operand| bytes(operand)).collect();
            let merged = self.0.bind(py).call1((bytes(key), base.map(bytes), operands));
            let owned = |merged: Bound<'_, PyAny>| {
                merged.extract::<crate::bytes::Bytes<'_>>().map(|merged| merged.as_bytes().to_vec())
            };
            merged.and_then(owned).map_err(|raised| told(py, &raised))
        });
        let merged = called.unwrap_or_else(|| Err("Python is ending".to_string()));
        merged.map_err(|why| {
            let why = format!("the merge operator refused key \"{}\": {why}", key.escape_ascii());
            Error::new(ErrorKind::MergeRefused, why)
        })
    }
}

/// The text of what was raised. An interrupt is not the operator's own: the main thread gets it, too.
fn told(py: Python<'_>, raised: &PyErr) -> String {
    let text = raised.to_string();
    if raised.is_instance_of::<PyKeyboardInterrupt>(py) {
        interrupt(py);
    }
    text
}

/// A function of Python's: `(key, timestamp, value, now in microseconds)` to whether the value is unwanted.
pub(crate) struct Filter(pub(crate) Py<PyAny>);

impl CompactionFilter for Filter {
    /// A value about which the filter raises stays.
    fn remove(&self, key: &[u8], timestamp: Timestamp, value: &[u8], now_us: u64) -> bool {
        let called = with_python(|py| {
            let bytes = |bytes| PyBytes::new(py, bytes);
            let asked = self.0.bind(py).call1((bytes(key), timestamp.0, bytes(value), now_us));
            asked.and_then(|unwanted| unwanted.is_truthy()).unwrap_or_else(|raised| {
                raised.write_unraisable(py, Some(self.0.bind(py)));
                false
            })
        });
        called.unwrap_or(false)
    }
}
