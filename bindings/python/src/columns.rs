//! Columns of keys and values for `put_many`: lists, arrays of numpy, and what speaks Arrow.

use crate::bytes::Bytes;
use crate::capsule;
use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef};
use arrow_schema::DataType;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// A column, as Python gave it.
pub(crate) enum Given<'py> {
    /// One object a row.
    Objects(Vec<Bytes<'py>>),
    /// An array of numpy: rows of that many bytes, one behind the other.
    Fixed(Bound<'py, PyBytes>, usize),
    /// Arrays of Arrow, one behind the other.
    Arrow(Vec<ArrayRef>),
}

/// The same, as it can be read while Python runs on.
pub(crate) enum Column<'a> {
    Objects(Vec<&'a [u8]>),
    Fixed(&'a [u8], usize),
    Arrow(&'a [ArrayRef]),
}

/// The two columns of a table, or of two arguments.
pub(crate) fn given<'py>(
    keys: &Bound<'py, PyAny>,
    values: Option<&Bound<'py, PyAny>>,
) -> PyResult<(Given<'py>, Given<'py>)> {
    if let Some(values) = values {
        return Ok((Given::of(keys)?, Given::of(values)?));
    }
    if keys.hasattr("__arrow_c_stream__")? {
        return of_table(keys);
    }
    let (mut all_keys, mut all_values) = (Vec::new(), Vec::new());
    for row in keys.try_iter()? {
        let (key, value) = row?.extract::<(Bytes<'py>, Bytes<'py>)>()?;
        all_keys.push(key);
        all_values.push(value);
    }
    Ok((Given::Objects(all_keys), Given::Objects(all_values)))
}

/// The columns `key` and `value` of a table.
fn of_table<'py>(table: &Bound<'py, PyAny>) -> PyResult<(Given<'py>, Given<'py>)> {
    let (mut keys, mut values) = (Vec::new(), Vec::new());
    for batch in capsule::take_batches(&table.call_method0("__arrow_c_stream__")?)? {
        let column = |name| {
            let missing = || PyValueError::new_err(format!("the table has no column {name}"));
            batch.column_by_name(name).cloned().ok_or_else(missing)
        };
        keys.push(checked(column("key")?, "key")?);
        values.push(checked(column("value")?, "value")?);
    }
    Ok((Given::Arrow(keys), Given::Arrow(values)))
}

/// Of byte strings or text, without nulls.
fn checked(array: ArrayRef, name: &str) -> PyResult<ArrayRef> {
    use DataType::{Binary, BinaryView, FixedSizeBinary, LargeBinary, LargeUtf8, Utf8, Utf8View};
    match array.data_type() {
        Binary | LargeBinary | BinaryView | FixedSizeBinary(_) | Utf8 | LargeUtf8 | Utf8View => {}
        other => {
            return Err(PyTypeError::new_err(format!("the column {name} is of type {other}, not of bytes")));
        }
    }
    match array.null_count() {
        0 => Ok(array),
        nulls => Err(PyValueError::new_err(format!("the column {name} has {nulls} nulls"))),
    }
}

impl<'py> Given<'py> {
    fn of(column: &Bound<'py, PyAny>) -> PyResult<Self> {
        if column.hasattr("__arrow_c_array__")? {
            return Ok(Self::Arrow(vec![of_array(column)?]));
        }
        // In pieces.
        if column.hasattr("__arrow_c_stream__")? {
            let arrays = capsule::take_arrays(&column.call_method0("__arrow_c_stream__")?)?;
            return Ok(Self::Arrow(
                arrays.into_iter().map(|array| checked(array, "given")).collect::<PyResult<_>>()?,
            ));
        }
        if column.hasattr("__array_interface__")? {
            return of_numpy(column);
        }
        let rows = column.try_iter()?.map(|row| row?.extract()).collect::<PyResult<_>>()?;
        Ok(Self::Objects(rows))
    }

    pub(crate) fn column(&self) -> Column<'_> {
        match self {
            Self::Objects(rows) => Column::Objects(rows.iter().map(Bytes::as_bytes).collect()),
            Self::Fixed(bytes, width) => Column::Fixed(bytes.as_bytes(), *width),
            Self::Arrow(arrays) => Column::Arrow(arrays),
        }
    }
}

fn of_array(array: &Bound<'_, PyAny>) -> PyResult<ArrayRef> {
    let (schema, array) =
        array.call_method0("__arrow_c_array__")?.extract::<(Bound<'_, PyAny>, Bound<'_, PyAny>)>()?;
    checked(capsule::take_array(&schema, &array)?, "given")
}

/// Each element of the first dimension is a row, as its bytes lie in memory.
fn of_numpy<'py>(array: &Bound<'py, PyAny>) -> PyResult<Given<'py>> {
    let kind = array.getattr("dtype")?.getattr("kind")?.extract::<String>()?;
    if kind == "O" {
        let rows = array.call_method0("tolist")?;
        return Given::of(&rows);
    }
    if kind == "U" || kind == "M" || kind == "m" {
        return Err(PyTypeError::new_err(
            "arrays of text or times have no bytes of their own: encode them first",
        ));
    }
    let shape = array.getattr("shape")?.extract::<Vec<usize>>()?;
    let [rows, ..] = shape[..] else {
        return Err(PyTypeError::new_err("an array of no dimension has no rows"));
    };
    let bytes = array.call_method0("tobytes")?.cast_into::<PyBytes>()?;
    if rows > 0 && bytes.as_bytes().is_empty() {
        return Err(PyValueError::new_err("the rows of the array have no bytes"));
    }
    let width = bytes.as_bytes().len() / rows.max(1);
    Ok(Given::Fixed(bytes, width.max(1)))
}

impl Column<'_> {
    pub(crate) fn rows(&self) -> usize {
        match self {
            Self::Objects(rows) => rows.len(),
            Self::Fixed(bytes, width) => bytes.len() / width,
            Self::Arrow(arrays) => arrays.iter().map(|array| array.len()).sum(),
        }
    }

    /// Its rows, in order.
    pub(crate) fn iter(&self) -> Box<dyn Iterator<Item = &[u8]> + '_> {
        match self {
            Self::Objects(rows) => Box::new(rows.iter().copied()),
            Self::Fixed(bytes, width) => Box::new(bytes.chunks_exact(*width)),
            Self::Arrow(arrays) => Box::new(arrays.iter().flat_map(|array| of_arrow(array))),
        }
    }
}

fn of_arrow(array: &ArrayRef) -> Box<dyn Iterator<Item = &[u8]> + '_> {
    // `checked` let these types in, without nulls.
    match array.data_type() {
        DataType::Binary => Box::new(array.as_binary::<i32>().iter().flatten()),
        DataType::LargeBinary => Box::new(array.as_binary::<i64>().iter().flatten()),
        DataType::BinaryView => Box::new(array.as_binary_view().iter().flatten()),
        DataType::FixedSizeBinary(_) => Box::new(array.as_fixed_size_binary().iter().flatten()),
        DataType::Utf8 => Box::new(array.as_string::<i32>().iter().flatten().map(str::as_bytes)),
        DataType::LargeUtf8 => Box::new(array.as_string::<i64>().iter().flatten().map(str::as_bytes)),
        _ => Box::new(array.as_string_view().iter().flatten().map(str::as_bytes)),
    }
}
