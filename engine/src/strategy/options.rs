//! Strategies, policies and rules as text: `leveled`, `leveled{multiplier=8, sstable_bytes=32MiB}`.

use crate::types::parse_size;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use std::fmt;

/// The old names of options that `nomerge` and `remerge` set, which servers kept as text.
#[cfg(feature = "papers")]
const OLD_SET: [&str; 3] = ["k", "r", "p"];

/// The name and the settings of a `kind` of thing that is written `name` or `name{settings}`.
pub(super) fn split_settings<'t>(kind: &str, text: &'t str) -> Result<(&'t str, &'t str), String> {
    let text = text.trim();
    let Some((name, rest)) = text.split_once('{') else { return Ok((text, "")) };
    let settings = rest.strip_suffix('}');
    Ok((name.trim(), settings.ok_or_else(|| format!("{kind} `{text}`: expected `}}` at the end"))?))
}

/// Parses settings. Each is read alone first, so that an error can name it.
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

/// Parses the settings of a strategy whose name already sets the options in `said`.
#[cfg(feature = "papers")]
pub(super) fn parse_named<T: DeserializeOwned>(name: &str, text: &str, said: &[&str]) -> Result<T, String> {
    let given = text.split(',').filter_map(|setting| Some(setting.split_once('=')?.0.trim()));
    match given.into_iter().find(|option| said.contains(option) || OLD_SET.contains(option)) {
        Some(option) => Err(format!("strategy {name}: option `{option}` is what the name says")),
        None => parse_settings(name, text),
    }
}

/// The settings but the one of that name.
pub(super) fn without(mut settings: Map<String, Value>, name: &str) -> Map<String, Value> {
    settings.remove(name);
    settings
}

/// The settings that differ from the default.
pub(super) fn changed<T: Serialize + Default>(options: &T) -> Map<String, Value> {
    let object = |options: &T| match serde_json::to_value(options) {
        Ok(Value::Object(map)) => map,
        _ => Map::new(),
    };
    let default = object(&T::default());
    object(options).into_iter().filter(|(key, value)| default.get(key) != Some(value)).collect()
}

#[cfg(all(test, feature = "papers"))]
mod tests {
    use crate::strategy::StrategyOptions;

    #[test]
    fn a_strategy_is_parsed_and_printed_with_what_differs_from_the_default() {
        let text = "leveled{multiplier=8, sstable_bytes=32MiB, defer_below=0.4}";
        let strategy: StrategyOptions = text.parse().unwrap();
        let StrategyOptions::Leveled(options) = &strategy else { panic!("{strategy}") };
        let found = (options.multiplier, options.sstable_bytes, options.defer_below);
        assert_eq!(found, (8, 32 << 20, Some(0.4)));
        assert_eq!(strategy.to_string().parse::<StrategyOptions>().unwrap(), strategy);
        assert_eq!(StrategyOptions::default().to_string(), "leveled");
        for text in [
            "auto",
            "auto{runs_max=24}",
            "size_tiered",
            "size_tiered{runs=2}",
            "nomerge",
            "nomerge{sstable_bytes=8192}",
            "geometric",
            "geometric{ratio=3}",
            "geometric{runs=2}",
            "remerge",
            "rangemerge{sstable_bytes=65536, victim=most-bytes}",
            "exploring{off_peak_end=6, off_peak_start=22, ratio=3.0}",
        ] {
            let strategy: StrategyOptions = text.parse().unwrap();
            assert_eq!(strategy.to_string(), text);
            let json = serde_json::to_string(&strategy).unwrap();
            assert_eq!(serde_json::from_str::<StrategyOptions>(&json).unwrap(), strategy, "{json}");
        }
    }

    #[test]
    fn a_wrong_option_is_named() {
        for (text, parts) in [
            ("level", ["unknown strategy `level`", "leveled"]),
            ("leveled{fanout=3}", ["`fanout=3`", "unknown field"]),
            ("leveled{multiplier=x}", ["`multiplier=x`", "expected u64"]),
            ("auto{runs_max=3}", ["runs_max", "at least 4"]),
            ("leveled{multiplier=1}", ["multiplier", "at least 2"]),
            ("leveled{multiplier=8, multiplier=9}", ["`multiplier=9`", "twice"]),
            ("leveled{multiplier=8", ["expected `}`", "leveled"]),
            ("rangemerge{victim=least}", ["`victim=least`", "most-bytes"]),
            ("rangemerge{deltas_max=1000}", ["deltas_max", "at most"]),
            ("leveled{levels}", ["`levels`", "name=value"]),
            ("size_tiered{runs=1}", ["runs must be", "at least 2"]),
            ("nomerge{runs=3}", ["nomerge", "`runs`"]),
            ("geometric{ratio=2, runs=2}", ["ratio and runs", "exclude"]),
            ("remerge{runs=2}", ["remerge", "`runs`"]),
            ("exploring{min_runs=5, max_runs=4}", ["max_runs", "at least 5"]),
            ("exploring{ratio=0}", ["ratio", "between 0.1"]),
        ] {
            let error = text.parse::<StrategyOptions>().unwrap_err();
            assert!(parts.iter().all(|part| error.contains(part)), "{text}: {error}");
        }
    }
}
