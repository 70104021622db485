//! Options by name, as text: for configuration files, command lines and other languages.

use super::{FamilyOptions, Options};
#[cfg(not(feature = "papers"))]
use super::{tuning::Tuning, without_papers};
#[cfg(not(feature = "papers"))]
use crate::error::ErrorKind;
use crate::error::{Error, Result};
#[cfg(not(feature = "papers"))]
use crate::strategy::NEEDS_PAPERS;
use crate::strategy::{HotKeys, MemtablePolicy, StrategyOptions};
use crate::types::parse_size;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use std::str::FromStr;

impl Options {
    /// Sets one option by its name to a number, a truth value, a text or a size such as `64MiB`. An unknown
    /// name or a wrong value is `Invalid` and changes nothing. Builds with the feature `papers` also have
    /// options whose names are `tuning.NAME`.
    ///
    /// ```
    /// let mut options = siltstone::Options::default();
    /// options.set("write_memory", "128MiB")?;
    /// options.set("sstable_reads", "mapped")?;
    /// assert_eq!(options.write_memory, 128 << 20);
    /// assert!(options.set("write_memroy", "1").unwrap_err().to_string().contains("write_memory"));
    /// # Ok::<(), siltstone::Error>(())
    /// ```
    pub fn set(&mut self, name: &str, text: &str) -> Result<()> {
        match name.strip_prefix("tuning.") {
            #[cfg(feature = "papers")]
            Some(name) => set(&mut self.tuning, "tuning option", name, text),
            #[cfg(not(feature = "papers"))]
            Some(tuned) if values(&Tuning::DEFAULT).contains_key(tuned) => Err(needs_papers("option", name)),
            #[cfg(not(feature = "papers"))]
            Some(_) => set(self, "option", name, text),
            None => set(self, "option", name, text),
        }
    }
}

impl FamilyOptions {
    /// Sets one option by its name to a number, a truth value, a text, a size such as `64MiB`, or a time such
    /// as `30days` (for options in microseconds). Strategies and policies are written as in
    /// `size_tiered{runs=4}`. An unknown name or a wrong value is `Invalid` and changes nothing.
    ///
    /// ```
    /// let mut options = siltstone::FamilyOptions::default();
    /// options.set("block_bytes", "16KiB")?;
    /// options.set("strategy", "size_tiered{runs=4}")?;
    /// options.set("ttl_us", "30days")?;
    /// assert_eq!((options.block_bytes, options.ttl_us), (16 << 10, 30 * 86_400 * 1_000_000));
    /// # Ok::<(), siltstone::Error>(())
    /// ```
    pub fn set(&mut self, name: &str, text: &str) -> Result<()> {
        #[cfg(not(feature = "papers"))]
        if without_papers::CONSTANTS.iter().any(|(constant, ..)| *constant == name) {
            return Err(needs_papers("family option", name));
        }
        set(self, "family option", name, text)
    }

    /// All options by their names, each with its value as [`FamilyOptions::set`] takes it.
    ///
    /// ```
    /// let texts = siltstone::FamilyOptions::default().texts();
    /// assert!(texts.contains(&("strategy".to_string(), "leveled".to_string())));
    /// ```
    pub fn texts(&self) -> Vec<(String, String)> {
        let texts = values(self).into_iter().map(|(name, value)| {
            let text = self.text(&name, &value);
            (name, text)
        });
        texts.collect()
    }

    /// An option's value as text, in the short form if that loses nothing.
    fn text(&self, name: &str, value: &Value) -> String {
        let short = match name {
            "strategy" => Some(self.strategy.to_string()),
            "memtable_policy" => Some(self.memtable_policy.to_string()),
            "hot_keys" => Some(self.hot_keys.to_string()),
            _ => None,
        };
        match short {
            Some(text) if read(name, &text).is_ok_and(|read| read == *value) => text,
            // Quotes a text that would be read as something else, such as `null`.
            _ => match value.as_str() {
                Some(text) if serde_json::from_str::<Value>(text).is_err() => text.to_string(),
                _ => value.to_string(),
            },
        }
    }
}

fn values(options: &impl Serialize) -> Map<String, Value> {
    match serde_json::to_value(options) {
        Ok(Value::Object(values)) => values,
        _ => Map::new(),
    }
}

/// Parses a text as a value of the option of that name.
fn read(name: &str, text: &str) -> Result<Value, String> {
    fn value<T: FromStr<Err = String> + Serialize>(text: &str) -> Result<Value, String> {
        serde_json::to_value(text.parse::<T>()?).map_err(|e| e.to_string())
    }
    match name {
        "strategy" => value::<StrategyOptions>(text),
        "memtable_policy" => value::<MemtablePolicy>(text),
        "hot_keys" => value::<HotKeys>(text),
        #[cfg(not(feature = "papers"))]
        "cache_fill" if without_papers::CACHE_FILLS.contains(&text) => {
            Err(format!("`{text}` {NEEDS_PAPERS}"))
        }
        _ => Ok(Value::from(text)),
    }
}

/// The refusal of an option that other builds have.
#[cfg(not(feature = "papers"))]
fn needs_papers(what: &str, name: &str) -> Error {
    Error::new(ErrorKind::Unsupported, format!("{what} {name} {NEEDS_PAPERS}"))
}

/// Sets an option from text; the type of its present value says how to read the text.
fn set<T: Serialize + DeserializeOwned>(options: &mut T, what: &str, name: &str, text: &str) -> Result<()> {
    let all = values(options);
    let is_one = |value: &Value| !matches!((name, value), ("tuning", Value::Object(_)));
    if !all.get(name).is_some_and(is_one) {
        let names: Vec<&str> = all.keys().map(String::as_str).collect();
        return Err(Error::invalid(format!("there is no {what} `{name}`; there are {}", names.join(", "))));
    }
    let kinds = [
        serde_json::from_str(text).ok(),
        read(name, text).ok(),
        name.ends_with("_us").then(|| microseconds(text)).flatten().map(Value::from),
        // A plain number is no size: it would lose its decimals.
        text.ends_with(char::is_alphabetic).then(|| parse_size(text).ok()).flatten().map(Value::from),
    ];
    let mut why = read(name, text).err().unwrap_or_default();
    for value in kinds.into_iter().flatten() {
        let mut all = all.clone();
        all.insert(name.to_string(), value);
        match serde_json::from_value(Value::Object(all)) {
            Ok(set) => {
                *options = set;
                return Ok(());
            }
            Err(e) if why.is_empty() => why = e.to_string(),
            Err(_) => {}
        }
    }
    let message = format!("{what} {name} cannot be `{text}`: {why}");
    #[cfg(not(feature = "papers"))]
    if why.contains(NEEDS_PAPERS) {
        return Err(Error::new(ErrorKind::Unsupported, message));
    }
    Err(Error::invalid(message))
}

fn microseconds(text: &str) -> Option<u64> {
    humantime::parse_duration(text).ok().and_then(|time| u64::try_from(time.as_micros()).ok())
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
            ("strategy", "geometric{ratio=2}"),
            ("timestamps", "explicit"),
            ("wal_values", "true"),
            ("compaction_filter", "old"),
        ] {
            options.set(name, text).unwrap();
        }
        assert_eq!((options.write_memory, options.ttl_us), (64 << 20, 30 * 86_400 * 1_000_000));
        assert_eq!((options.block_bytes, options.wal_values), (8192, true));
        assert_eq!(options.compaction_filter.as_deref(), Some("old"));
        for name in ["null", "3", "\"", "true"] {
            let named = FamilyOptions { compaction_filter: Some(name.to_string()), ..options.clone() };
            let text = named.texts().into_iter().find(|(name, _)| name == "compaction_filter").unwrap().1;
            let mut same = options.clone();
            same.set("compaction_filter", &text).unwrap();
            assert_eq!(same, named, "{text}");
        }
        let mut without = options.clone();
        without.set("compaction_filter", "null").unwrap();
        assert_eq!(without.compaction_filter, None);
        // Every text is accepted again.
        for (name, text) in options.texts() {
            let mut same = options.clone();
            same.set(&name, &text).unwrap();
            assert_eq!(same, options, "{name}={text}");
        }
    }

    #[cfg(feature = "papers")]
    #[test]
    fn options_of_older_databases_are_read_by_the_names_that_they_had() {
        const OLD_JSON: &str = r#"{"memory": {"sketch": {"segments": 3}}, "log_tables": true,
            "log_tables_merged_max": 2.0, "active_share": 0.2, "filter": "old",
            "strategy": {"sma": {"k": 3, "table_bytes": 65536}}}"#;
        let old: FamilyOptions = serde_json::from_str(OLD_JSON).unwrap();
        let mut new = FamilyOptions::default();
        for (name, text) in [
            ("memtable_policy", "sketch{memtables=3}"),
            ("wal_values", "true"),
            ("wal_values_write_amp_max", "2"),
            ("active_memtable_share", "0.2"),
            ("compaction_filter", "old"),
            ("strategy", "size_tiered{runs=3, sstable_bytes=64KiB}"),
        ] {
            new.set(name, text).unwrap();
        }
        assert_eq!(old, new);
        const OLD_STRATEGIES: [(&str, &str); 3] = [
            (r#"{"geometric": {"r": 3, "table_bytes": 65536}}"#, "geometric{ratio=3, sstable_bytes=65536}"),
            (r#"{"geometric": {"p": 2}}"#, "geometric{runs=2}"),
            (r#"{"rangemerge": {"f": 65536, "deltas": 2}}"#, "rangemerge{deltas_max=2, sstable_bytes=65536}"),
        ];
        for (json, text) in OLD_STRATEGIES {
            assert_eq!(serde_json::from_str::<StrategyOptions>(json).unwrap().to_string(), text);
        }
    }

    #[test]
    fn what_is_no_option_or_value_is_named_and_changes_nothing() {
        let before = FamilyOptions::default();
        let mut options = before.clone();
        for (name, text, named) in [
            ("strateg", "size_tiered", "there are "),
            ("versions", "many", "family option versions cannot be `many`"),
            ("strategy", "flat", "flat"),
            ("ttl_us", "soon", "soon"),
            ("versions", "1.5", "1.5"),
            ("ttl_us", "99999999999999weeks", "weeks"),
        ] {
            let why = options.set(name, text).unwrap_err().to_string();
            assert!(why.contains(named), "{why}");
            assert_eq!(options, before);
        }
        let mut options = Options::default();
        for (name, text, named) in [
            ("tuning.step", "1", "there are"),
            ("tuning", "{\"compaction_step_bytes\": 65536}", "there are"),
            ("workers", "1.9", "1.9"),
            ("tuning.compaction_pacing", "often", "compaction_pacing"),
            ("workers", "-1", "option workers cannot be `-1`"),
        ] {
            let why = options.set(name, text).unwrap_err().to_string();
            assert!(why.contains(named), "{why}");
        }
        assert_eq!(options, Options::default());
    }

    /// By `cargo test -p siltstone --lib` alone: the tests of the workspace have the feature.
    #[cfg(not(feature = "papers"))]
    #[test]
    fn settings_that_are_constant_in_this_build_are_refused_as_such() {
        let mut options = Options::default();
        let why = options.set("tuning.compaction_pacing", "0").unwrap_err();
        assert!(why.kind() == ErrorKind::Unsupported && why.to_string().contains("papers"), "{why}");
        let why = options.set("tuning.compaction_pacng", "0").unwrap_err();
        assert_eq!(why.kind(), ErrorKind::Invalid, "{why}");
        let why = FamilyOptions::default().set("active_memtable_share", "0.2").unwrap_err();
        assert!(why.kind() == ErrorKind::Unsupported && why.to_string().contains("papers"), "{why}");
    }
}
