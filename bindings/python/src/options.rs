//! Settings as Python gives them: by name, as in the engine's `Options` and `FamilyOptions`, with what reads better in
//! Python: a strategy or policy as text (`"sma{k=4}"`), and `ttl` as a `timedelta` instead of `ttl_us`.

use crate::error::invalid;
use crate::time::duration_us;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};
use pythonize::{depythonize, pythonize};
use siltstone::{FamilyOptions, Options};

/// A family's options: `base`, with what Python says otherwise.
pub(crate) fn of_family(base: &FamilyOptions, said: Option<&Bound<'_, PyDict>>) -> PyResult<FamilyOptions> {
    let Some(said) = said else { return Ok(base.clone()) };
    let py = said.py();
    let all = pythonize(py, base).map_err(|why| invalid(py, why.to_string()))?.cast_into::<PyDict>()?;
    let mut texts = Vec::new();
    for (name, value) in said.iter() {
        let name: String = name.extract()?;
        match (name.as_str(), value.cast::<PyString>()) {
            ("strategy" | "memory" | "hot_keys", Ok(text)) => texts.push((name, text.to_string())),
            ("ttl", _) => all.set_item("ttl_us", ttl_us(&value)?)?,
            _ => all.set_item(name, value)?,
        }
    }
    let mut options: FamilyOptions =
        depythonize(&all).map_err(|why| invalid(py, format!("family option {why}")))?;
    for (name, text) in texts {
        let refused = |why: String| invalid(py, format!("family option {name}: {why}"));
        match name.as_str() {
            "strategy" => options.strategy = text.parse().map_err(refused)?,
            "memory" => options.memory = text.parse().map_err(refused)?,
            _ => options.hot_keys = text.parse().map_err(refused)?,
        }
    }
    Ok(options)
}

/// `None` for never.
fn ttl_us(ttl: &Bound<'_, PyAny>) -> PyResult<u64> {
    if ttl.is_none() { Ok(0) } else { duration_us(ttl) }
}

/// A database's options; those under `experimental` by a dictionary of their own.
pub(crate) fn of_db(said: &Bound<'_, PyDict>) -> PyResult<Options> {
    depythonize(said).map_err(|why| invalid(said.py(), format!("option {why}")))
}

/// Any plain data of the engine as dictionaries, lists, numbers and texts.
pub(crate) fn plain<'py>(py: Python<'py>, data: &impl serde::Serialize) -> PyResult<Bound<'py, PyAny>> {
    pythonize(py, data).map_err(|why| invalid(py, why.to_string()))
}
