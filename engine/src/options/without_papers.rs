//! Options that a build without the feature `papers` finds in a database: the family opens with defaults in
//! their place, and refuses changes until it is altered.

use super::FamilyOptions;
use super::tuning::{ACTIVE_MEMTABLE_SHARE, WAL_VALUES_WRITE_AMP_MAX};
use crate::error::{Error, ErrorKind};
use crate::strategy::{NEEDS_PAPERS, SizeTieredOptions};
use serde_json::{Map, Value};

/// Values of `cache_fill` that need the feature.
#[cfg(not(feature = "papers"))]
pub(super) const CACHE_FILLS: [&str; 2] = ["before", "remote"];
/// Family options that are constants without the feature: name, name in options of older databases, value.
pub(super) const CONSTANTS: [(&str, &str, f64); 2] = [
    ("active_memtable_share", "active_share", ACTIVE_MEMTABLE_SHARE),
    ("wal_values_write_amp_max", "log_tables_merged_max", WAL_VALUES_WRITE_AMP_MAX),
];

/// The names of `memtable_policy`, of `size_tiered`, and of `runs` in options of older databases.
const OLD_MEMTABLE_POLICY: [&str; 2] = ["memory", "memory_policy"];
const OLD_SIZE_TIERED: &str = "sma";
const OLD_RUNS: [&str; 2] = ["k", "p"];

/// A family's options in what is stored of it, with defaults where the feature is needed, and the error that
/// names what needs it.
pub(crate) fn stored_options(family: &str, json: &str) -> serde_json::Result<(FamilyOptions, Option<Error>)> {
    #[cfg(feature = "papers")]
    if !crate::hooks::lacks_papers() {
        return Ok((serde_json::from_str(json)?, None));
    }
    let mut options: Map<String, Value> = serde_json::from_str(json)?;
    if let Some(policy) = OLD_MEMTABLE_POLICY.iter().find_map(|old| options.remove(*old)) {
        options.insert("memtable_policy".into(), policy);
    }
    let finds = [("strategy", strategy as Find), ("memtable_policy", memory), ("hot_keys", hot_keys)];
    let mut needed = Vec::new();
    for (option, find) in finds {
        if let Some(name) = options.get(option).and_then(find) {
            needed.push(format!("{option} `{name}`"));
            options.remove(option);
        }
    }
    for (option, old, constant) in CONSTANTS {
        let stored = [option, old].map(|name| options.remove(name));
        let other = stored.into_iter().flatten().find(|value| value.as_f64() != Some(constant));
        needed.extend(other.map(|value| format!("{option} `{value}`")));
    }
    let missing = (!needed.is_empty()).then(|| {
        let message = format!(
            "family {family} has {}, which {NEEDS_PAPERS}: it can be read, and written to once it is altered",
            needed.join(" and ")
        );
        Error::new(ErrorKind::Unsupported, message)
    });
    Ok((serde_json::from_value(Value::Object(options))?, missing))
}

/// Finds the name of what needs the feature in the value of an option.
type Find = fn(&Value) -> Option<&str>;

fn strategy(value: &Value) -> Option<&str> {
    match variant(value)? {
        ("exploring", _) => Some("exploring"),
        ("size_tiered" | OLD_SIZE_TIERED, settings) if runs(settings) == Some(SizeTieredOptions::NEVER) => {
            Some("nomerge")
        }
        ("geometric", settings) if runs(settings) == Some(1) => Some("remerge"),
        _ => None,
    }
}

fn runs(settings: &Value) -> Option<u64> {
    std::iter::once("runs").chain(OLD_RUNS).find_map(|name| settings.get(name)?.as_u64())
}

fn memory(value: &Value) -> Option<&str> {
    variant(value).map(|(name, _)| name).filter(|name| ["basic", "eager", "adaptive"].contains(name))
}

fn hot_keys(value: &Value) -> Option<&str> {
    variant(value).map(|(name, _)| name).filter(|name| *name == "top")
}

/// The name of an enum's variant, and its settings.
fn variant(value: &Value) -> Option<(&str, &Value)> {
    value.as_object()?.iter().next().map(|(name, settings)| (&**name, settings))
}

#[cfg(test)]
mod tests {
    use super::super::Options;
    use super::*;

    /// Settings are counted so that they do not grow in number unseen.
    #[test]
    fn users_have_few_settings_of_a_database_and_a_family() {
        let names = |options: Value| options.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
        let mut all = names(serde_json::to_value(Options::default()).unwrap());
        all.extend(names(serde_json::to_value(FamilyOptions::default()).unwrap()));
        let constant = |name: &String| CONSTANTS.iter().any(|(constant, ..)| constant == name);
        all.retain(|name| name != "tuning" && !constant(name));
        assert!(all.len() <= 31, "{} settings: {all:?}", all.len());
    }
}
