//! Options of the engine's families as text: what `--set OPTION=VALUE` takes, and what is kept of a table's settings.

use serde::Serialize;
use serde_json::{Map, Value};
use siltstone::strategy::{HotKeys, MemoryPolicy, StrategyOptions};
use siltstone::{FamilyOptions, parse_size};
use std::str::FromStr;

/// Options that a table's families and rules decide.
const OWN: [&str; 5] = ["timestamps", "versions", "ttl_us", "merge_operator", "filter"];

/// Whether an option of a table's stores can be set.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn check(name: &str, text: &str) -> Result<(), String> {
    match OWN.contains(&name) {
        true => Err(format!("option `{name}` follows from the column family and its rules")),
        false => with_option(&FamilyOptions::default(), name, text).map(drop),
    }
}

/// All options, each with its value as [`with_option`] takes it.
///
/// # Errors
/// None that is known: the serializer's.
pub fn option_texts(options: &FamilyOptions) -> Result<Vec<(String, String)>, String> {
    let values = values(options).map_err(|e| e.to_string())?;
    Ok(values.iter().map(|(name, value)| (name.clone(), text(options, name, value))).collect())
}

fn values(options: &FamilyOptions) -> Result<Map<String, Value>, serde_json::Error> {
    match serde_json::to_value(options)? {
        Value::Object(settings) => Ok(settings),
        _ => Ok(Map::new()),
    }
}

/// The text of an option that has a way of its own to be written.
fn short(options: &FamilyOptions, name: &str) -> Option<String> {
    match name {
        "strategy" => Some(options.strategy.to_string()),
        "memory" => Some(options.memory.to_string()),
        "hot_keys" => Some(options.hot_keys.to_string()),
        _ => None,
    }
}

fn read(name: &str, text: &str) -> Result<Value, String> {
    fn value<T: FromStr<Err = String> + Serialize>(text: &str) -> Result<Value, String> {
        serde_json::to_value(text.parse::<T>()?).map_err(|e| e.to_string())
    }
    match name {
        "strategy" => value::<StrategyOptions>(text),
        "memory" => value::<MemoryPolicy>(text),
        "hot_keys" => value::<HotKeys>(text),
        _ => Ok(Value::from(text)),
    }
}

/// An option as `--set` takes it: in short where that says all.
fn text(options: &FamilyOptions, name: &str, value: &Value) -> String {
    match short(options, name) {
        Some(text) if read(name, &text).is_ok_and(|read| read == *value) => text,
        _ => value.as_str().map_or_else(|| value.to_string(), str::to_string),
    }
}

/// The options with one of another value: a number, a text, a size such as 64MiB, a time such as 30days. What kind of value it
/// takes, the option itself says.
///
/// ```
/// use siltstone::FamilyOptions;
/// use siltstone_server::with_option;
/// let options = with_option(&FamilyOptions::default(), "block_bytes", "16KiB")?;
/// assert_eq!(options.block_bytes, 16 << 10);
/// assert!(with_option(&options, "blokc_bytes", "1").unwrap_err().contains("block_bytes"));
/// # Ok::<(), String>(())
/// ```
///
/// # Errors
/// An option that is none, with the names of all; a value that is none of its kind.
pub fn with_option(options: &FamilyOptions, name: &str, text: &str) -> Result<FamilyOptions, String> {
    let settings = values(options).map_err(|e| e.to_string())?;
    if !settings.contains_key(name) {
        let names: Vec<&str> = settings.keys().map(String::as_str).collect();
        return Err(format!("there is no option `{name}`; there are {}", names.join(", ")));
    }
    let duration =
        || humantime::parse_duration(text).ok().and_then(|time| u64::try_from(time.as_micros()).ok());
    let kinds = [
        serde_json::from_str(text).ok(),
        read(name, text).ok(),
        name.ends_with("_us").then(duration).flatten().map(Value::from),
        parse_size(text).ok().map(Value::from),
    ];
    let mut why = read(name, text).err().unwrap_or_default();
    for value in kinds.into_iter().flatten() {
        let mut settings = settings.clone();
        settings.insert(name.to_string(), value);
        match serde_json::from_value(Value::Object(settings)) {
            Ok(options) => return Ok(options),
            Err(e) if why.is_empty() => why = e.to_string(),
            Err(_) => {}
        }
    }
    Err(format!("option {name} cannot be `{text}`: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_option_takes_numbers_texts_sizes_and_times() {
        let mut options = FamilyOptions::default();
        for (name, text) in [
            ("write_memory", "64MiB"),
            ("ttl_us", "30days"),
            ("block_bytes", "8192"),
            ("compression", "zstd:3"),
            ("strategy", "geometric{r=2}"),
            ("timestamps", "explicit"),
            ("log_tables", "true"),
            ("filter", "old"),
        ] {
            options = with_option(&options, name, text).unwrap();
        }
        assert_eq!((options.write_memory, options.ttl_us), (64 << 20, 30 * 86_400 * 1_000_000));
        assert_eq!((options.block_bytes, options.log_tables), (8192, true));
        assert_eq!(options.filter.as_deref(), Some("old"));
        assert_eq!(with_option(&options, "filter", "null").unwrap().filter, None);
        // Everything that `show` prints is taken back.
        for (name, text) in option_texts(&options).unwrap() {
            assert_eq!(with_option(&options, &name, &text).unwrap(), options, "{name}={text}");
        }
        assert!(with_option(&options, "strateg", "sma").unwrap_err().contains("there are active_share"));
        assert!(
            with_option(&options, "versions", "many")
                .unwrap_err()
                .contains("option versions cannot be `many`")
        );
        assert!(with_option(&options, "strategy", "flat").unwrap_err().contains("flat"));
    }
}
