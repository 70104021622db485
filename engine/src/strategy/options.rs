//! Strategies by name: `leveled`, `leveled{multiplier=8, table_bytes=32MiB}`. A new method is a file with its
//! options, a variant here, and a line in each `match`.

use super::{LeveledOptions, RangemergeOptions, Strategy};
use crate::types::parse_size;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::fmt;
use std::str::FromStr;

/// A merge strategy and its settings, chosen per column family.
///
/// ```
/// use siltstone::strategy::StrategyOptions;
/// let strategy: StrategyOptions = "leveled{multiplier=8}".parse().unwrap();
/// assert_eq!(strategy.to_string(), "leveled{multiplier=8}");
/// let error = "leveled{multiplyer=8}".parse::<StrategyOptions>().unwrap_err();
/// assert!(error.contains("multiplyer"));
/// ```
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StrategyOptions {
    /// One run a level below level 0, each level some ten times the one above.
    Leveled(LeveledOptions),
    /// One run of files that each have a key range of their own; memory is merged with one of them at a time.
    Rangemerge(RangemergeOptions),
}

impl Default for StrategyOptions {
    fn default() -> Self {
        StrategyOptions::Leveled(LeveledOptions::default())
    }
}

const NAMES: &str = "leveled, rangemerge";

impl StrategyOptions {
    /// The method itself.
    pub(crate) fn strategy(&self) -> &dyn Strategy {
        match self {
            StrategyOptions::Leveled(options) => options,
            StrategyOptions::Rangemerge(options) => options,
        }
    }

    /// The same method with tables so large that this much data is about `tables_max` of them at most, and the
    /// factor by which they grew.
    pub(crate) fn with_tables_for(&self, data_bytes: u64, tables_max: u64) -> (Self, f64) {
        // Upper levels hold a good tenth beside the data, and tables come out smaller than they may be.
        let least = data_bytes / tables_max / 2 * 3;
        let mut scaled = self.clone();
        let table_bytes = match &mut scaled {
            StrategyOptions::Leveled(options) => &mut options.table_bytes,
            StrategyOptions::Rangemerge(options) => &mut options.f,
        };
        let factor = (least as f64 / *table_bytes as f64).max(1.0);
        *table_bytes = (*table_bytes).max(least);
        (scaled, factor)
    }

    /// Says which setting is out of bounds.
    pub fn check(&self) -> Result<(), String> {
        match self {
            StrategyOptions::Leveled(options) => options.check(),
            StrategyOptions::Rangemerge(options) => options.check(),
        }
    }

    fn name_and_settings(&self) -> (&'static str, Map<String, Value>) {
        match self {
            StrategyOptions::Leveled(options) => ("leveled", changed(options)),
            StrategyOptions::Rangemerge(options) => ("rangemerge", changed(options)),
        }
    }
}

impl FromStr for StrategyOptions {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let (name, settings) = match text.split_once('{') {
            Some((name, rest)) => {
                let rest = rest
                    .strip_suffix('}')
                    .ok_or_else(|| format!("strategy `{text}`: expected `}}` at the end"))?;
                (name.trim(), rest)
            }
            None => (text, ""),
        };
        let strategy = match name {
            "leveled" => StrategyOptions::Leveled(parse_settings(name, settings)?),
            "rangemerge" => StrategyOptions::Rangemerge(parse_settings(name, settings)?),
            _ => return Err(format!("unknown strategy `{name}`; there is: {NAMES}")),
        };
        strategy.check().map_err(|why| format!("strategy {name}: {why}"))?;
        Ok(strategy)
    }
}

impl fmt::Display for StrategyOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, settings) = self.name_and_settings();
        f.write_str(name)?;
        let mut open = "{";
        for (key, value) in &settings {
            match value {
                Value::String(word) => write!(f, "{open}{key}={word}")?,
                value => write!(f, "{open}{key}={value}")?,
            }
            open = ", ";
        }
        if settings.is_empty() { Ok(()) } else { f.write_str("}") }
    }
}

/// Each setting is read alone first, so that an error can name it.
pub(super) fn parse_settings<T: DeserializeOwned>(name: &str, text: &str) -> Result<T, String> {
    let mut settings = Map::new();
    for setting in text.split(',').map(str::trim).filter(|s| !s.is_empty()) {
        let wrong = |why: &dyn fmt::Display| format!("strategy {name}: option `{setting}`: {why}");
        let (key, value) = setting.split_once('=').ok_or_else(|| wrong(&"expected `name=value`"))?;
        let (key, value) = (key.trim(), value.trim());
        let parsed: Value = match serde_json::from_str(value) {
            Ok(parsed) => parsed,
            Err(_) => parse_size(value).map(Value::from).unwrap_or_else(|_| Value::from(value)),
        };
        let alone = Map::from_iter([(key.to_string(), parsed.clone())]);
        T::deserialize(Value::Object(alone)).map_err(|e| wrong(&e))?;
        if settings.insert(key.to_string(), parsed).is_some() {
            return Err(wrong(&"given twice"));
        }
    }
    T::deserialize(Value::Object(settings)).map_err(|e| format!("strategy {name}: {e}"))
}

/// The settings that differ from the default.
fn changed<T: Serialize + Default>(options: &T) -> Map<String, Value> {
    let object = |options: &T| match serde_json::to_value(options) {
        Ok(Value::Object(map)) => map,
        _ => Map::new(),
    };
    let default = object(&T::default());
    object(options).into_iter().filter(|(key, value)| default.get(key) != Some(value)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_strategy_is_parsed_and_printed_with_what_differs_from_the_default() {
        let text = "leveled{multiplier=8, table_bytes=32MiB, defer_below=0.4}";
        let strategy: StrategyOptions = text.parse().unwrap();
        let StrategyOptions::Leveled(options) = &strategy else { unreachable!() };
        assert_eq!((options.multiplier, options.table_bytes, options.defer_below), (8, 32 << 20, Some(0.4)));
        assert_eq!(strategy.to_string().parse::<StrategyOptions>().unwrap(), strategy);
        assert_eq!(StrategyOptions::default().to_string(), "leveled");
        let text = "rangemerge{f=65536, victim=most-bytes}";
        let strategy: StrategyOptions = "rangemerge{f=64KiB, deltas=0, victim=most-bytes}".parse().unwrap();
        assert_eq!(strategy.to_string(), text);
        assert_eq!(text.parse(), Ok(strategy));
    }

    #[test]
    fn a_wrong_option_is_named() {
        for (text, parts) in [
            ("level", ["unknown strategy `level`", "leveled"]),
            ("leveled{fanout=3}", ["`fanout=3`", "unknown field"]),
            ("leveled{multiplier=x}", ["`multiplier=x`", "expected u64"]),
            ("leveled{multiplier=1}", ["multiplier", "at least 2"]),
            ("leveled{multiplier=8, multiplier=9}", ["`multiplier=9`", "twice"]),
            ("leveled{multiplier=8", ["expected `}`", "leveled"]),
            ("rangemerge{victim=least}", ["`victim=least`", "most-bytes"]),
            ("rangemerge{deltas=1000}", ["deltas", "at most"]),
            ("leveled{levels}", ["`levels`", "name=value"]),
        ] {
            let error = text.parse::<StrategyOptions>().unwrap_err();
            assert!(parts.iter().all(|part| error.contains(part)), "{text}: {error}");
        }
    }
}
