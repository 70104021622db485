//! Merge operators and compaction filters that are written in Python.
//!
//! They are called by whoever reads, flushes or merges, mostly a worker of the engine, which waits for its turn to run
//! Python. What they raise is a refusal: reads of that key raise `MergeRefusedError`, and the operands stay.

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use siltstone::{CompactionFilter, Error, ErrorKind, MergeOperator, Timestamp};

/// A function of Python's: `(key, base or None, operands)` to the value.
pub(crate) struct Operator(pub(crate) Py<PyAny>);

impl MergeOperator for Operator {
    fn merge(&self, key: &[u8], base: Option<&[u8]>, operands: &[&[u8]]) -> siltstone::Result<Vec<u8>> {
        let refused = |why: String| {
            let why = format!("the merge operator refused key \"{}\": {why}", key.escape_ascii());
            Err(Error::new(ErrorKind::MergeRefused, why))
        };
        let called = Python::try_attach(|py| -> PyResult<Vec<u8>> {
            let bytes = |bytes| PyBytes::new(py, bytes);
            let operands: Vec<_> = operands.iter().map(|operand| bytes(operand)).collect();
            let merged = self.0.bind(py).call1((bytes(key), base.map(bytes), operands))?;
            Ok(merged.extract::<crate::bytes::Bytes<'_>>()?.as_bytes().to_vec())
        });
        match called {
            Some(Ok(merged)) => Ok(merged),
            Some(Err(raised)) => refused(raised.to_string()),
            None => refused("Python is ending".to_string()),
        }
    }
}

/// A function of Python's: `(key, timestamp, value, now in microseconds)` to whether the value is unwanted.
pub(crate) struct Filter(pub(crate) Py<PyAny>);

impl CompactionFilter for Filter {
    /// A value about which the filter raises stays.
    fn remove(&self, key: &[u8], timestamp: Timestamp, value: &[u8], now_us: u64) -> bool {
        let called = Python::try_attach(|py| {
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
