//! Ranges as Arrow record batches: columns `key` and `value`, and `timestamp` where it is asked for. No
//! object is made for a row, and no copy beyond the one into the batch.

use crate::capsule;
use crate::error::invalid;
use crate::forked::OfProcess;
use arrow_array::{ArrayRef, BinaryArray, RecordBatch, RecordBatchReader, UInt64Array};
use arrow_buffer::{OffsetBuffer, ScalarBuffer};
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef};
use pyo3::prelude::*;
use pyo3::types::PyCapsule;
use siltstone::Cursor;
use std::sync::Arc;

/// Bytes of keys or values after which a batch ends: with the largest value beyond them, its offsets still
/// fit 31 bits.
const BATCH_BYTES: usize = 64 << 20;

/// A range that is read once, by the caller that takes its stream (`__arrow_c_stream__`: pyarrow, polars,
/// duckdb and others do).
#[pyclass(module = "siltstone")]
pub(crate) struct ArrowScan(OfProcess<Batches>);

impl ArrowScan {
    pub(crate) fn new(
        py: Python<'_>,
        scan: siltstone::Scan,
        batch_rows: usize,
        timestamps: bool,
    ) -> PyResult<Self> {
        if batch_rows == 0 || batch_rows > 1 << 24 {
            return Err(invalid(py, "batch_rows is not between 1 and 2**24"));
        }
        let column = |name, kind| Field::new(name, kind, false);
        let mut columns = vec![column("key", DataType::Binary), column("value", DataType::Binary)];
        if timestamps {
            columns.push(column("timestamp", DataType::UInt64));
        }
        let (cursor, schema) = (OfProcess::new(scan.cursor()), Arc::new(Schema::new(columns)));
        let last = None;
        Ok(Self(OfProcess::new(Batches {
            cursor,
            begun: false,
            ended: false,
            rows: batch_rows,
            schema,
            last,
        })))
    }
}

#[pymethods]
impl ArrowScan {
    /// The stream, once. A schema that is asked for is not looked at, as the interface allows.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &mut self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        drop(requested_schema);
        match self.0.take(py)? {
            Some(batches) => capsule::give(py, Box::new(batches)),
            None => Err(invalid(py, "this scan was read already: make another one")),
        }
    }

    /// A `pyarrow.RecordBatchReader` over it.
    fn reader<'py>(this: Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let pyarrow = this.py().import("pyarrow")?;
        pyarrow.getattr("RecordBatchReader")?.call_method1("from_stream", (this,))
    }

    /// All of it as a `pyarrow.Table`.
    fn read_all<'py>(this: Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        Self::reader(this)?.call_method0("read_all")
    }

    /// Its `pyarrow.RecordBatch`es.
    fn __iter__<'py>(this: Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        Ok(Self::reader(this)?.try_iter()?.into_any())
    }
}

/// The record batches of a cursor's range.
struct Batches {
    cursor: OfProcess<Cursor>,
    begun: bool,
    ended: bool,
    rows: usize,
    schema: SchemaRef,
    /// The last key of the batch before.
    last: Option<Vec<u8>>,
}

/// A column of byte strings that is being filled.
struct Column {
    bytes: Vec<u8>,
    ends: Vec<i32>,
}

impl Column {
    fn new(rows: usize) -> Self {
        let mut ends = Vec::with_capacity(rows + 1);
        ends.push(0);
        Self { bytes: Vec::new(), ends }
    }

    fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        // No column is longer than `BATCH_BYTES` and one value more.
        self.ends.push(self.bytes.len() as i32);
    }

    fn last(&self) -> Option<&[u8]> {
        let start = *self.ends.iter().rev().nth(1)?;
        self.bytes.get(start as usize..)
    }

    fn done(self) -> Result<ArrayRef, ArrowError> {
        let ends = OffsetBuffer::new(ScalarBuffer::from(self.ends));
        Ok(Arc::new(BinaryArray::try_new(ends, self.bytes.into(), None)?))
    }
}

impl Batches {
    fn step(&mut self) -> Result<bool, ArrowError> {
        let gone =
            || ArrowError::ExternalError("it was opened in the process that this one was forked from".into());
        let cursor = self.cursor.get_here().ok_or_else(gone)?;
        let stepped = if std::mem::replace(&mut self.begun, true) { cursor.next() } else { cursor.first() };
        // A C string must not have a zero.
        stepped.map_err(|why| ArrowError::ExternalError(why.to_string().replace('\0', "\\0").into()))
    }

    fn fill(&mut self) -> Result<Option<RecordBatch>, ArrowError> {
        let (mut keys, mut values, mut timestamps) =
            (Column::new(self.rows), Column::new(self.rows), Vec::new());
        let with_timestamps = self.schema.fields().len() == 3;
        let mut rows = 0;
        while rows < self.rows && keys.bytes.len().max(values.bytes.len()) < BATCH_BYTES {
            if !self.step()? {
                self.ended = true;
                break;
            }
            let Some(entry) = self.cursor.get_here().and_then(|cursor| cursor.entry()) else { break };
            // Of a key with versions the newest alone, where they are not told apart.
            let before = keys.last().or(self.last.as_deref());
            if !with_timestamps && before == Some(&entry.key[..]) {
                continue;
            }
            keys.push(&entry.key);
            values.push(&entry.value);
            if with_timestamps {
                timestamps.push(entry.timestamp.0);
            }
            rows += 1;
        }
        if rows == 0 {
            return Ok(None);
        }
        self.last = keys.last().map(<[u8]>::to_vec);
        let mut columns = vec![keys.done()?, values.done()?];
        if with_timestamps {
            columns.push(Arc::new(UInt64Array::from(timestamps)));
        }
        RecordBatch::try_new(self.schema.clone(), columns).map(Some)
    }
}

impl Iterator for Batches {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let batch = self.fill().transpose();
        self.ended |= !matches!(batch, Some(Ok(_)));
        batch
    }
}

impl RecordBatchReader for Batches {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }
}
