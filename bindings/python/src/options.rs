//! Settings as Python gives them: by name, as in the engine's `Options` and `FamilyOptions`, as values or as
//! texts that these read (`"size_tiered{runs=4}"`, `"64MiB"`), with `ttl` as a `timedelta` instead of
//! `ttl_us`.

use crate::error::{OrRaise, invalid};
use crate::path::Place;
use crate::time::duration_us;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};
use pythonize::{depythonize, pythonize};
use siltstone::{FamilyOptions, Options};
use std::path::PathBuf;

/// A family's options: `base`, with what Python says otherwise.
pub(crate) fn of_family(base: &FamilyOptions, said: Option<&Bound<'_, PyDict>>) -> PyResult<FamilyOptions> {
    let Some(said) = said else { return Ok(base.clone()) };
    let py = said.py();
    let all = pythonize(py, base).map_err(|why| invalid(py, why.to_string()))?.cast_into::<PyDict>()?;
    let mut texts = Vec::new();
    for (name, value) in said.iter() {
        let name: String = name.extract()?;
        match (name.as_str(), value.cast::<PyString>()) {
            ("ttl", _) => all.set_item("ttl_us", ttl_us(&value)?)?,
            // Names may be any text, also one that would be read as something else.
            ("merge_operator" | "compaction_filter", _) | (_, Err(_)) => all.set_item(name, value)?,
            (_, Ok(text)) => texts.push((name, text.to_string())),
        }
    }
    let mut options: FamilyOptions =
        depythonize(&all).map_err(|why| invalid(py, format!("family option {why}")))?;
    texts.iter().try_for_each(|(name, text)| options.set(name, text)).or_raise(py)?;
    Ok(options)
}

/// `None` for never.
fn ttl_us(ttl: &Bound<'_, PyAny>) -> PyResult<u64> {
    if ttl.is_none() { Ok(0) } else { duration_us(ttl) }
}

/// A database's options.
pub(crate) fn of_db(said: &Bound<'_, PyDict>) -> PyResult<Options> {
    let values = said.copy()?;
    let (mut texts, mut shared) = (Vec::new(), None);
    for (name, value) in said.iter() {
        let name: String = name.extract()?;
        if name == "shared" && !value.is_none() {
            shared = Some(place(&value)?);
        } else if let Ok(text) = value.cast::<PyString>() {
            texts.push((name.clone(), text.to_string()));
        } else {
            continue;
        }
        values.del_item(name)?;
    }
    let mut options: Options =
        depythonize(&values).map_err(|why| invalid(said.py(), format!("option {why}")))?;
    texts.iter().try_for_each(|(name, text)| options.set(name, text)).or_raise(said.py())?;
    options.shared = shared;
    Ok(options)
}

/// The place of a shared database: a directory, by its absolute path, or an object store's location.
fn place(said: &Bound<'_, PyAny>) -> PyResult<PathBuf> {
    let Place(place) = said.extract()?;
    if place.to_string_lossy().contains("://") {
        return Ok(place);
    }
    std::path::absolute(&place).map_err(|why| invalid(said.py(), format!("option shared: {why}")))
}

/// Any plain data of the engine as dictionaries, lists, numbers and texts.
pub(crate) fn plain<'py>(py: Python<'py>, data: &impl serde::Serialize) -> PyResult<Bound<'py, PyAny>> {
    pythonize(py, data).map_err(|why| invalid(py, why.to_string()))
}
