//! Strategies by name: `leveled`, `leveled{multiplier=8, sstable_bytes=32MiB}`, `size_tiered{runs=2}`. A new
//! strategy needs a file with its options, a variant here, and a line in each `match`.

#[cfg(feature = "papers")]
use super::ExploringOptions;
#[cfg(not(feature = "papers"))]
use super::papers::needs_papers;
use super::{AutoOptions, GeometricOptions, LeveledOptions, RangemergeOptions, SizeTieredOptions, Strategy};
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
    "size_tiered{runs=4}",
    "size_tiered{runs=2}",
    "geometric{ratio=2}",
    "geometric{ratio=3}",
    "geometric{runs=2}",
    #[cfg(feature = "papers")]
    "remerge",
    "rangemerge",
    "rangemerge{deltas_max=4}",
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
    /// Size-tiered: the `runs` runs of a level become one run of the next when another comes. `nomerge` is
    /// `runs` without end.
    #[serde(alias = "sma")]
    SizeTiered(SizeTieredOptions),
    /// One run per level, each bounded `ratio` times higher than the one above, or `runs` runs at all sizes.
    /// `remerge` is `runs` 1.
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
const NAMES: &str = "auto, leveled, size_tiered, nomerge, geometric, remerge, exploring, rangemerge";
#[cfg(not(feature = "papers"))]
const NAMES: &str = "auto, leveled, size_tiered, geometric, rangemerge";

/// The name of `size_tiered` in settings of tables that older servers kept as text, and of options that
/// `nomerge` and `remerge` set.
const OLD_SIZE_TIERED: &str = "sma";
#[cfg(feature = "papers")]
const OLD_SET: [&str; 3] = ["k", "r", "p"];

impl StrategyOptions {
    /// The strategy behind the name.
    pub(crate) fn strategy(&self) -> &dyn Strategy {
        match self {
            StrategyOptions::Auto(options) => options,
            StrategyOptions::Leveled(options) => options,
            StrategyOptions::Rangemerge(options) => options,
            StrategyOptions::SizeTiered(options) => options,
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
        let sstable_bytes = scaled.sstable_bytes();
        let factor = (least as f64 / *sstable_bytes as f64).max(1.0);
        *sstable_bytes = least.max(*sstable_bytes);
        (scaled, factor)
    }

    /// This strategy with SSTables of that size, for tests that take all of [`METHODS`].
    #[cfg(any(test, feature = "testing"))]
    #[doc(hidden)]
    #[must_use]
    pub fn with_sstable_bytes(mut self, sstable_bytes: u64) -> Self {
        *self.sstable_bytes() = sstable_bytes;
        self
    }

    /// The option for the target size of SSTables.
    fn sstable_bytes(&mut self) -> &mut u64 {
        match self {
            StrategyOptions::Auto(options) => &mut options.sstable_bytes,
            StrategyOptions::Leveled(options) => &mut options.sstable_bytes,
            StrategyOptions::Rangemerge(options) => &mut options.sstable_bytes,
            StrategyOptions::SizeTiered(options) => &mut options.sstable_bytes,
            StrategyOptions::Geometric(options) => &mut options.sstable_bytes,
            #[cfg(feature = "papers")]
            StrategyOptions::Exploring(options) => &mut options.sstable_bytes,
        }
    }

    /// Says which setting is out of bounds.
    pub fn check(&self) -> Result<(), String> {
        self.strategy().check()
    }

    fn name_and_settings(&self) -> (&'static str, Map<String, Value>) {
        match self {
            StrategyOptions::Auto(options) => ("auto", changed(options)),
            StrategyOptions::Leveled(options) => ("leveled", changed(options)),
            StrategyOptions::Rangemerge(options) => ("rangemerge", changed(options)),
            StrategyOptions::SizeTiered(options) => match options.runs {
                SizeTieredOptions::NEVER => ("nomerge", without(changed(options), "runs")),
                _ => ("size_tiered", changed(options)),
            },
            StrategyOptions::Geometric(options) => match options.runs {
                Some(1) => ("remerge", without(changed(options), "runs")),
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
            "size_tiered" | OLD_SIZE_TIERED => StrategyOptions::SizeTiered(parse_settings(name, settings)?),
            #[cfg(not(feature = "papers"))]
            "nomerge" | "remerge" | "exploring" => return Err(needs_papers("strategy", name)),
            #[cfg(feature = "papers")]
            "nomerge" => StrategyOptions::SizeTiered(SizeTieredOptions {
                runs: SizeTieredOptions::NEVER,
                ..parse_named(name, settings, &["runs"])?
            }),
            "geometric" => StrategyOptions::Geometric(parse_settings(name, settings)?),
            #[cfg(feature = "papers")]
            "remerge" => StrategyOptions::Geometric(GeometricOptions {
                runs: Some(1),
                ..parse_named(name, settings, &["ratio", "runs"])?
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
    match given.into_iter().find(|option| said.contains(option) || OLD_SET.contains(option)) {
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
