//! Columns of keys and values for `put_many`: lists, arrays of numpy, and what speaks Arrow.

use crate::bytes::Bytes;
use crate::capsule;
use arrow_array::cast::AsArray;
use arrow_array::ffi_stream::ArrayStreamReader;
use arrow_array::types::UInt64Type;
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

/// A column as it can be read while Python runs on.
pub(crate) enum Column<'a> {
    Objects(Vec<&'a [u8]>),
    Fixed(&'a [u8], usize),
    Arrow(&'a [ArrayRef]),
}

/// Rows that are to be put.
pub(crate) struct Rows<'py> {
    pub(crate) keys: Given<'py>,
    pub(crate) values: Given<'py>,
    pub(crate) timestamps: Option<Vec<u64>>,
}

/// A table of Arrow, a batch at a time; or everything at once.
pub(crate) enum Source<'py> {
    Table(ArrayStreamReader),
    Rows(Option<Rows<'py>>),
}

impl<'py> Source<'py> {
    /// From two columns, or from a table or pairs.
    pub(crate) fn of(keys: &Bound<'py, PyAny>, values: Option<&Bound<'py, PyAny>>) -> PyResult<Self> {
        if let Some(values) = values {
            let (keys, values) = (Given::of(keys)?, Given::of(values)?);
            return Ok(Self::Rows(Some(Rows { keys, values, timestamps: None })));
        }
        if keys.hasattr("__arrow_c_stream__")? {
            return Ok(Self::Table(capsule::take_arrays(&keys.call_method0("__arrow_c_stream__")?)?));
        }
        let (mut all_keys, mut all_values) = (Vec::new(), Vec::new());
        for row in keys.try_iter()? {
            let (key, value) = pair(&row?)?;
            all_keys.push(key);
            all_values.push(value);
        }
        let (keys, values) = (Given::Objects(all_keys), Given::Objects(all_values));
        Ok(Self::Rows(Some(Rows { keys, values, timestamps: None })))
    }

    pub(crate) fn next(&mut self, py: Python<'py>) -> PyResult<Option<Rows<'py>>> {
        match self {
            Self::Rows(rows) => Ok(rows.take()),
            Self::Table(arrays) => capsule::next(py, arrays)?.map(|array| of_batch(&array)).transpose(),
        }
    }
}

/// A key and a value: a tuple or list of two.
pub(crate) fn pair<'py>(row: &Bound<'py, PyAny>) -> PyResult<(Bytes<'py>, Bytes<'py>)> {
    let row = row.extract::<Vec<Bytes<'py>>>()?;
    let pair: [Bytes<'py>; 2] = row
        .try_into()
        .map_err(|row: Vec<_>| PyValueError::new_err(format!("a row has two parts, not {}", row.len())))?;
    let [key, value] = pair;
    Ok((key, value))
}

/// The columns `key` and `value` of a batch, and `timestamp` if it is there.
fn of_batch<'py>(batch: &ArrayRef) -> PyResult<Rows<'py>> {
    let batch = batch
        .as_struct_opt()
        .ok_or_else(|| PyTypeError::new_err("this is a column of Arrow, not a table"))?;
    if batch.null_count() > 0 {
        return Err(PyValueError::new_err("rows of the table are null"));
    }
    let (mut keys, mut values, mut timestamps) = (None, None, None);
    for (name, column) in batch.column_names().into_iter().zip(batch.columns()) {
        match name {
            "key" => keys = Some(checked(column.clone(), name)?),
            "value" => values = Some(checked(column.clone(), name)?),
            "timestamp" => timestamps = Some(times(column)?),
            other => {
                return Err(PyValueError::new_err(format!("the table has a column {other}: what is it?")));
            }
        }
    }
    match (keys, values) {
        (Some(keys), Some(values)) => {
            let (keys, values) = (Given::Arrow(vec![keys]), Given::Arrow(vec![values]));
            Ok(Rows { keys, values, timestamps })
        }
        _ => Err(PyValueError::new_err("the table has no column key, or no column value")),
    }
}

/// Timestamps in microseconds, without nulls.
fn times(column: &ArrayRef) -> PyResult<Vec<u64>> {
    match column.as_primitive_opt::<UInt64Type>() {
        Some(times) if times.null_count() == 0 => Ok(times.values().to_vec()),
        Some(_) => Err(PyValueError::new_err("the column timestamp has nulls")),
        None => Err(PyTypeError::new_err(format!(
            "the column timestamp is of type {}, not uint64",
            column.data_type()
        ))),
    }
}

/// The array, if it is of byte strings or text and has no nulls.
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
            let mut pieces = capsule::take_arrays(&column.call_method0("__arrow_c_stream__")?)?;
            let mut arrays = Vec::new();
            while let Some(array) = capsule::next(column.py(), &mut pieces)? {
                arrays.push(checked(array, "given")?);
            }
            return Ok(Self::Arrow(arrays));
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
    let dtype = array.getattr("dtype")?;
    let kind = dtype.getattr("kind")?.extract::<String>()?;
    if kind == "O" {
        return Given::of(&array.call_method0("tolist")?);
    }
    if dtype.getattr("hasobject")?.is_truthy()? || ["U", "T", "M", "m"].contains(&kind.as_str()) {
        return Err(PyTypeError::new_err(format!(
            "arrays of {dtype} have no bytes of their own: encode them first"
        )));
    }
    if array.hasattr("mask")? {
        return Err(PyTypeError::new_err(
            "a masked array has rows that are not there: fill or compress it first",
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
