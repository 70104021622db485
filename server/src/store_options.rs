//! Options of a table's stores as text: what `--set OPTION=VALUE` takes, and what is stored of a table's
//! settings.

use serde::{Deserialize, Deserializer};
use siltstone::FamilyOptions;
use std::collections::BTreeMap;
use tonic::Status;

/// Options that a table's families and rules decide.
const OWN: [&str; 5] = ["timestamps", "versions", "ttl_us", "merge_operator", "compaction_filter"];

/// Options whose names were others when older servers kept settings of tables.
const OLD_NAMES: [(&str, &str); 3] =
    [("memory", "memtable_policy"), ("memory_policy", "memtable_policy"), ("log_tables", "wal_values")];

/// Options that older servers took and that have fixed values now, by all the names that they had.
const FIXED: [&str; 4] =
    ["active_share", "active_memtable_share", "log_tables_merged_max", "wal_values_write_amp_max"];

/// Settings of a table as they were kept, by the names that the options have now, without those that have
/// fixed values.
pub(crate) fn kept<'de, D: Deserializer<'de>>(from: D) -> Result<BTreeMap<String, String>, D::Error> {
    let settings = BTreeMap::<String, String>::deserialize(from)?;
    let still = settings.into_iter().filter(|(name, _)| !FIXED.contains(&&**name));
    let by_new_name = still.map(|(name, text)| {
        let new = OLD_NAMES.iter().find(|(old, _)| *old == name).map(|(_, new)| new.to_string());
        (new.unwrap_or(name), text)
    });
    Ok(by_new_name.collect())
}

/// Whether an option of a table's stores can be set.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn check(name: &str, text: &str) -> Result<(), String> {
    if OWN.contains(&name) {
        return Err(format!("option `{name}` follows from the column family and its rules"));
    }
    if FIXED.contains(&name) {
        return Err(format!("option `{name}` has a fixed value"));
    }
    FamilyOptions::default().set(name, text).map_err(|e| e.to_string())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_of_older_servers_are_read_but_for_those_that_have_fixed_values() {
        let old =
            serde_json::json!({ "memory": "none", "active_share": "0.2", "wal_values_write_amp_max": "2" });
        let expected = BTreeMap::from([("memtable_policy".to_string(), "none".to_string())]);
        assert_eq!(kept(old).unwrap(), expected);
        assert!(check("active_memtable_share", "0.2").is_err());
    }
}
