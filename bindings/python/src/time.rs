//! Timestamps and durations: `datetime` and `timedelta`, or numbers of microseconds.

use pyo3::exceptions::{PyOverflowError, PyTypeError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use siltstone::Timestamp;

/// Python objects for conversions of time, made once.
struct Units {
    /// 1970, in UTC.
    epoch: Py<PyAny>,
    microsecond: Py<PyAny>,
    datetime: Py<PyAny>,
    timedelta: Py<PyAny>,
}

fn units(py: Python<'_>) -> PyResult<&Units> {
    static UNITS: PyOnceLock<Units> = PyOnceLock::new();
    UNITS.get_or_try_init(py, || {
        let module = py.import("datetime")?;
        let (datetime, timedelta) = (module.getattr("datetime")?, module.getattr("timedelta")?);
        let utc = module.getattr("timezone")?.getattr("utc")?;
        let epoch = datetime.call_method1("fromtimestamp", (0, utc))?.unbind();
        let microsecond = timedelta.call1((0, 0, 1))?.unbind();
        Ok(Units { epoch, microsecond, datetime: datetime.unbind(), timedelta: timedelta.unbind() })
    })
}

/// Microseconds of a `timedelta`, or a number of them.
pub(crate) fn duration_us(given: &Bound<'_, PyAny>) -> PyResult<u64> {
    let units = units(given.py())?;
    match given.is_instance(units.timedelta.bind(given.py()))? {
        true => count(&given.floor_div(&units.microsecond)?),
        false => count(given),
    }
}

fn count(number: &Bound<'_, PyAny>) -> PyResult<u64> {
    number.extract().map_err(|_| match number.extract::<i128>() {
        Ok(_) => PyOverflowError::new_err("a time in microseconds lies between 0 and 2**64"),
        Err(_) => PyTypeError::new_err("a time is a datetime or timedelta, or a number of microseconds"),
    })
}

/// A timestamp: microseconds since 1970, or a `datetime` that knows its time zone.
pub(crate) struct Time(pub(crate) Timestamp);

impl<'py> FromPyObject<'_, 'py> for Time {
    type Error = PyErr;

    fn extract(given: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let units = units(given.py())?;
        if !given.is_instance(units.datetime.bind(given.py()))? {
            return count(&given).map(|us| Self(Timestamp(us)));
        }
        let since = given.sub(&units.epoch).map_err(|_| {
            PyTypeError::new_err(
                "a datetime without a time zone is no moment: give it one, such as timezone.utc",
            )
        })?;
        Ok(Self(Timestamp(duration_us(&since)?)))
    }
}
