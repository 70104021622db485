//! Arrow's C data interface: streams and arrays of other libraries, which hand them over in capsules.
//!
//! The only unsafe code of this crate. What it relies on is the interface's own promise: a capsule with one
//! of these names holds a pointer to the structure of that name, and whoever takes the content out leaves it
//! released.

#![expect(unsafe_code, reason = "the interface is made of C structures")]

use arrow_array::ffi::{FFI_ArrowArray, FFI_ArrowSchema, from_ffi};
use arrow_array::ffi_stream::{ArrayStreamReader, FFI_ArrowArrayStream};
use arrow_array::{ArrayRef, RecordBatchReader, make_array};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;
use std::ffi::CStr;
use std::ptr::NonNull;

const STREAM: &CStr = c"arrow_array_stream";
const SCHEMA: &CStr = c"arrow_schema";
const ARRAY: &CStr = c"arrow_array";

/// A stream of record batches for others.
pub(crate) fn give<'py>(
    py: Python<'py>,
    reader: Box<dyn RecordBatchReader + Send>,
) -> PyResult<Bound<'py, PyCapsule>> {
    PyCapsule::new_with_value(py, FFI_ArrowArrayStream::new(reader), STREAM)
}

fn refused(why: impl ToString) -> PyErr {
    PyValueError::new_err(format!("these Arrow data cannot be read: {}", why.to_string()))
}

/// The content of a capsule of that name, which must belong to `T`.
fn pointer<T>(capsule: &Bound<'_, PyAny>, name: &CStr) -> PyResult<NonNull<T>> {
    Ok(capsule.cast::<PyCapsule>()?.pointer_checked(Some(name))?.cast())
}

/// The stream in a capsule.
fn stream(capsule: &Bound<'_, PyAny>) -> PyResult<FFI_ArrowArrayStream> {
    let stream = pointer::<FFI_ArrowArrayStream>(capsule, STREAM)?;
    // SAFETY: the capsule's name says what it points to. `from_raw` takes the stream and leaves a released
    // one behind, and the interpreter lets nobody else at it meanwhile.
    Ok(unsafe { FFI_ArrowArrayStream::from_raw(stream.as_ptr()) })
}

/// The arrays of a column, or the batches of a table, from what its `__arrow_c_stream__` gave.
pub(crate) fn take_arrays(capsule: &Bound<'_, PyAny>) -> PyResult<ArrayStreamReader> {
    ArrayStreamReader::try_new(stream(capsule)?).map_err(refused)
}

/// The next of them. Where the stream has to wait, Python runs on.
pub(crate) fn next(py: Python<'_>, arrays: &mut ArrayStreamReader) -> PyResult<Option<ArrayRef>> {
    py.detach(|| arrays.next()).transpose().map_err(refused)
}

/// An array: what its `__arrow_c_array__` gave.
pub(crate) fn take_array(schema: &Bound<'_, PyAny>, array: &Bound<'_, PyAny>) -> PyResult<ArrayRef> {
    let (schema, array) =
        (pointer::<FFI_ArrowSchema>(schema, SCHEMA)?, pointer::<FFI_ArrowArray>(array, ARRAY)?);
    // SAFETY: the capsules' names say what they point to. `from_raw` takes the array and leaves a released
    // one behind; the schema is only looked at, and its capsule lives as long as this call.
    let (array, schema) = unsafe { (FFI_ArrowArray::from_raw(array.as_ptr()), schema.as_ref()) };
    if array.is_released() {
        return Err(refused("they were taken before"));
    }
    // SAFETY: the array is whole, and described by the schema that came with it.
    unsafe { from_ffi(array, schema) }.map(make_array).map_err(refused)
}
