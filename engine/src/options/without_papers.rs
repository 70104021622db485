//! Options that a build without the feature `papers` finds in a database: the family opens with defaults in
//! their place, and refuses changes until it is altered.

use super::FamilyOptions;
use crate::error::{Error, ErrorKind};
use crate::strategy::{NEEDS_PAPERS, SizeTieredOptions};
use serde_json::{Map, Value};

/// Database options that need the feature.
#[cfg(not(feature = "papers"))]
pub(super) const EXPERIMENTAL: [&str; 2] = ["scan_one_side", "slow_writers"];
/// Values of `cache_fill` that need the feature.
#[cfg(not(feature = "papers"))]
pub(super) const CACHE_FILLS: [&str; 2] = ["before", "remote"];

/// The names of `memory_policy`, of `size_tiered`, and of `runs` in options of older databases.
const OLD_MEMORY: &str = "memory";
const OLD_SIZE_TIERED: &str = "sma";
const OLD_RUNS: [&str; 2] = ["k", "p"];

/// The family's options, with defaults where the feature is needed, and the error that names what needs it;
/// `None` where nothing does.
pub(crate) fn without_papers(family: &str, json: &str) -> Option<(FamilyOptions, Error)> {
    #[cfg(feature = "papers")]
    if !crate::hooks::lacks_papers() {
        return None;
    }
    let mut options: Map<String, Value> = serde_json::from_str(json).ok()?;
    if let Some(policy) = options.remove(OLD_MEMORY) {
        options.insert("memory_policy".into(), policy);
    }
    let finds = [("strategy", strategy as Find), ("memory_policy", memory), ("hot_keys", hot_keys)];
    let needed: Vec<String> = finds
        .into_iter()
        .filter_map(|(option, find)| {
            let name = find(options.get(option)?)?.to_string();
            options.remove(option);
            Some(format!("{option} `{name}`"))
        })
        .collect();
    if needed.is_empty() {
        return None;
    }
    let message = format!(
        "family {family} has {}, which {NEEDS_PAPERS}: it can be read, and written to once it is altered",
        needed.join(" and ")
    );
    let options = serde_json::from_value(Value::Object(options)).ok()?;
    Some((options, Error::new(ErrorKind::Unsupported, message)))
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
