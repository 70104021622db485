//! Options of a table's stores as text: what `--set OPTION=VALUE` takes, and what is stored of a table's
//! settings.

use siltstone::FamilyOptions;
use tonic::Status;

/// Options that a table's families and rules decide.
const OWN: [&str; 5] = ["timestamps", "versions", "ttl_us", "merge_operator", "filter"];

/// Whether an option of a table's stores can be set.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn check(name: &str, text: &str) -> Result<(), String> {
    match OWN.contains(&name) {
        true => Err(format!("option `{name}` follows from the column family and its rules")),
        false => FamilyOptions::default().set(name, text).map_err(|e| e.to_string()),
    }
}

/// Options with these set, one after the other.
///
/// # Errors
/// One that this version of the engine does not take.
pub(crate) fn with<'a>(
    mut options: FamilyOptions,
    settings: impl IntoIterator<Item = (&'a String, &'a String)>,
) -> Result<FamilyOptions, Status> {
    for (name, text) in settings {
        options.set(name, text).map_err(|e| Status::invalid_argument(e.to_string()))?;
    }
    Ok(options)
}
