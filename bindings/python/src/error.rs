//! The engine's errors as Python's exceptions: a class for each way to react, in `siltstone/_errors.py`.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use siltstone::{Error, ErrorKind};

/// The name of the class.
fn class(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::Invalid => "InvalidError",
        ErrorKind::OutOfRange => "OutOfRangeError",
        ErrorKind::NotFound => "NotFoundError",
        ErrorKind::Conflict => "ConflictError",
        ErrorKind::Busy => "BusyError",
        ErrorKind::Corruption => "CorruptionError",
        ErrorKind::Io => "IoError",
        ErrorKind::DiskFull => "DiskFullError",
        ErrorKind::Poisoned => "PoisonedError",
        ErrorKind::Closed => "ClosedError",
        ErrorKind::ReadOnly => "ReadOnlyError",
        ErrorKind::Unsupported => "UnsupportedError",
        ErrorKind::ChangesLost => "ChangesLostError",
        ErrorKind::Canceled => "CanceledError",
        ErrorKind::MergeRefused => "MergeRefusedError",
        _ => "Error",
    }
}

/// The exception for an error, with its file and offset.
pub(crate) fn raised(py: Python<'_>, error: &Error) -> PyErr {
    static CLASSES: PyOnceLock<Py<PyModule>> = PyOnceLock::new();
    let made = || {
        let classes = CLASSES.get_or_try_init(py, || py.import("siltstone._errors").map(Bound::unbind))?;
        let file = error.file().map(|file| file.display().to_string());
        classes.bind(py).getattr(class(error.kind()))?.call1((error.to_string(), file, error.offset()))
    };
    made().map_or_else(|failed| failed, PyErr::from_value)
}

/// Turns an error into the exception for it.
pub(crate) trait OrRaise<T> {
    /// See the trait.
    fn or_raise(self, py: Python<'_>) -> PyResult<T>;
}

impl<T> OrRaise<T> for Result<T, Error> {
    fn or_raise(self, py: Python<'_>) -> PyResult<T> {
        self.map_err(|error| raised(py, &error))
    }
}

/// An exception for a wrong call that the engine was not asked about.
pub(crate) fn invalid(py: Python<'_>, message: impl Into<String>) -> PyErr {
    raised(py, &Error::new(ErrorKind::Invalid, message))
}
