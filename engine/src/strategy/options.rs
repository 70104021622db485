//! Strategies by name: `leveled`, `leveled{multiplier=8, table_bytes=32MiB}`, `sma{k=2}`. A new strategy
//! needs a file with its options, a variant here, and a line in each `match`.

#[cfg(feature = "papers")]
use super::ExploringOptions;
#[cfg(not(feature = "papers"))]
use super::papers::needs_papers;
use super::{AutoOptions, GeometricOptions, LeveledOptions, RangemergeOptions, SmaOptions, Strategy};
use crate::types::parse_size;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::fmt;
use std::str::FromStr;

/// The strategies, with settings worth comparing: none is best at everything. `auto` is missing, because its
/// costs depend on readers, and a simulation has none.
///
/// ```
/// use siltstone::strategy::{METHODS, StrategyOptions};
/// assert!(METHODS.iter().all(|text| text.parse::<StrategyOptions>().is_ok()));
/// ```
pub const METHODS: &[&str] = &[
    "leveled",
    "sma{k=4}",
    "sma{k=2}",
    "geometric{r=2}",
    "geometric{r=3}",
    "geometric{p=2}",
    #[cfg(feature = "papers")]
    "remerge",
    "rangemerge",
    "rangemerge{deltas=4}",
    #[cfg(feature = "papers")]
    "exploring",
    #[cfg(feature = "papers")]
    "nomerge",
];

/// A compaction strategy and its settings, chosen per column family.
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
    /// `leveled`, with an L0 that is compacted as late as reads allow.
    Auto(AutoOptions),
    /// One run per level below L0, each level some ten times as large as the one above.
    Leveled(LeveledOptions),
    /// One run of files, each with a key range of its own; memory is merged with one of them at a time.
    Rangemerge(RangemergeOptions),
    /// Size-tiered: the `k` runs of a level become one run of the next when another comes. `nomerge` is `k`
    /// without end.
    Sma(SmaOptions),
    /// One run per level, each bounded `r` times higher than the one above, or `p` runs at all sizes.
    /// `remerge` is `p` 1.
    Geometric(GeometricOptions),
    /// HBase's selection of runs adjacent in age, of about one size.
    #[cfg(feature = "papers")]
    Exploring(ExploringOptions),
}

impl Default for StrategyOptions {
    fn default() -> Self {
        StrategyOptions::Leveled(LeveledOptions::default())
    }
}

#[cfg(feature = "papers")]
const NAMES: &str = "auto, leveled, sma, nomerge, geometric, remerge, exploring, rangemerge";
#[cfg(not(feature = "papers"))]
const NAMES: &str = "auto, leveled, sma, geometric, rangemerge";

impl StrategyOptions {
    /// The strategy behind the name.
    pub(crate) fn strategy(&self) -> &dyn Strategy {
        match self {
            StrategyOptions::Auto(options) => options,
            StrategyOptions::Leveled(options) => options,
            StrategyOptions::Rangemerge(options) => options,
            StrategyOptions::Sma(options) => options,
            StrategyOptions::Geometric(options) => options,
            #[cfg(feature = "papers")]
            StrategyOptions::Exploring(options) => options,
        }
    }

    /// This strategy with SSTables so large that this much data has at most about `tables_max` of them, and
    /// the factor by which they grew.
    pub(crate) fn with_tables_for(&self, data_bytes: u64, tables_max: u64) -> (Self, f64) {
        // Levels above the last add a good tenth, runs of other strategies as much again, and SSTables come
        // out smaller than their target.
        let least = match self {
            StrategyOptions::Leveled(_) | StrategyOptions::Auto(_) => data_bytes / tables_max / 2 * 3,
            _ => data_bytes / tables_max * 3,
        };
        let mut scaled = self.clone();
        let table_bytes = scaled.table_bytes();
        let factor = (least as f64 / *table_bytes as f64).max(1.0);
        *table_bytes = least.max(*table_bytes);
        (scaled, factor)
    }

    /// This strategy with SSTables of that size, for tests that take all of [`METHODS`].
    #[cfg(any(test, feature = "testing"))]
    #[doc(hidden)]
    #[must_use]
    pub fn with_table_bytes(mut self, table_bytes: u64) -> Self {
        *self.table_bytes() = table_bytes;
        self
    }

    /// The option for the target size of SSTables.
    fn table_bytes(&mut self) -> &mut u64 {
        match self {
            StrategyOptions::Auto(options) => &mut options.table_bytes,
            StrategyOptions::Leveled(options) => &mut options.table_bytes,
            StrategyOptions::Rangemerge(options) => &mut options.f,
            StrategyOptions::Sma(options) => &mut options.table_bytes,
            StrategyOptions::Geometric(options) => &mut options.table_bytes,
            #[cfg(feature = "papers")]
            StrategyOptions::Exploring(options) => &mut options.table_bytes,
        }
    }

    /// Says which setting is out of bounds.
    pub fn check(&self) -> Result<(), String> {
        match self {
            StrategyOptions::Auto(options) => options.check(),
            StrategyOptions::Leveled(options) => options.check(),
            StrategyOptions::Rangemerge(options) => options.check(),
            StrategyOptions::Sma(options) => options.check(),
            StrategyOptions::Geometric(options) => options.check(),
            #[cfg(feature = "papers")]
            StrategyOptions::Exploring(options) => options.check(),
        }
    }

    fn name_and_settings(&self) -> (&'static str, Map<String, Value>) {
        match self {
            StrategyOptions::Auto(options) => ("auto", changed(options)),
            StrategyOptions::Leveled(options) => ("leveled", changed(options)),
            StrategyOptions::Rangemerge(options) => ("rangemerge", changed(options)),
            StrategyOptions::Sma(options) => match options.k {
                SmaOptions::NEVER => ("nomerge", without(changed(options), "k")),
                _ => ("sma", changed(options)),
            },
            StrategyOptions::Geometric(options) => match options.p {
                Some(1) => ("remerge", without(changed(options), "p")),
                _ => ("geometric", changed(options)),
            },
            #[cfg(feature = "papers")]
            StrategyOptions::Exploring(options) => ("exploring", changed(options)),
        }
    }
}

impl FromStr for StrategyOptions {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, settings) = split_settings("strategy", text)?;
        let strategy = match name {
            "auto" => StrategyOptions::Auto(parse_settings(name, settings)?),
            "leveled" => StrategyOptions::Leveled(parse_settings(name, settings)?),
            "rangemerge" => StrategyOptions::Rangemerge(parse_settings(name, settings)?),
            "sma" => StrategyOptions::Sma(parse_settings(name, settings)?),
            #[cfg(not(feature = "papers"))]
            "nomerge" | "remerge" | "exploring" => return Err(needs_papers("strategy", name)),
            #[cfg(feature = "papers")]
            "nomerge" => StrategyOptions::Sma(SmaOptions {
                k: SmaOptions::NEVER,
                ..parse_named(name, settings, &["k"])?
            }),
            "geometric" => StrategyOptions::Geometric(parse_settings(name, settings)?),
            #[cfg(feature = "papers")]
            "remerge" => StrategyOptions::Geometric(GeometricOptions {
                p: Some(1),
                ..parse_named(name, settings, &["r", "p"])?
            }),
            #[cfg(feature = "papers")]
            "exploring" => StrategyOptions::Exploring(parse_settings(name, settings)?),
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
fn parse_named<T: DeserializeOwned>(name: &str, text: &str, said: &[&str]) -> Result<T, String> {
    let given = text.split(',').filter_map(|setting| Some(setting.split_once('=')?.0.trim()));
    match given.into_iter().find(|option| said.contains(option)) {
        Some(option) => Err(format!("strategy {name}: option `{option}` is what the name says")),
        None => parse_settings(name, text),
    }
}

fn without(mut settings: Map<String, Value>, name: &str) -> Map<String, Value> {
    settings.remove(name);
    settings
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
        let StrategyOptions::Leveled(options) = &strategy else { panic!("{strategy}") };
        assert_eq!((options.multiplier, options.table_bytes, options.defer_below), (8, 32 << 20, Some(0.4)));
        assert_eq!(strategy.to_string().parse::<StrategyOptions>().unwrap(), strategy);
        assert_eq!(StrategyOptions::default().to_string(), "leveled");
        for text in [
            "auto",
            "auto{runs_max=24}",
            "sma",
            "sma{k=2}",
            "nomerge",
            "nomerge{table_bytes=8192}",
            "geometric",
            "geometric{r=3}",
            "geometric{p=2}",
            "remerge",
            "rangemerge{f=65536, victim=most-bytes}",
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
            ("rangemerge{deltas=1000}", ["deltas", "at most"]),
            ("leveled{levels}", ["`levels`", "name=value"]),
            ("sma{k=1}", ["k must be", "at least 2"]),
            ("nomerge{k=3}", ["nomerge", "`k`"]),
            ("geometric{r=2, p=2}", ["r and p", "exclude"]),
            ("remerge{p=2}", ["remerge", "`p`"]),
            ("exploring{min_runs=5, max_runs=4}", ["max_runs", "at least 5"]),
            ("exploring{ratio=0}", ["ratio", "between 0.1"]),
        ] {
            let error = text.parse::<StrategyOptions>().unwrap_err();
            assert!(parts.iter().all(|part| error.contains(part)), "{text}: {error}");
        }
    }
}
