//! Which keys stay in memory when their store is flushed (TRI-1), as a pure function of what its flushes met.
//!
//! A key written again and again is flushed again and again, and each time its older versions are compacted
//! away. So a flush leaves the keys that were *updated most* in memory and writes the others. This saves
//! their share of the flush and of all compactions that follow; it costs writing their newest cells into the
//! WAL once more.
//!
//! A flush goes through its keys in order and cannot know beforehand how often they were updated on average.
//! It decides by the store's last whole flush: keys and bytes by number of updates. From these it computes a
//! threshold that a hot key's updates must exceed: the rule's (a multiple of the mean, or what only the top
//! few percent have), or more, if what stays would be over the budget.
//!
//! The rule switches itself off where it would save little:
//! * at most `updates - keys` keys were updated more than once; under a twentieth of all keys, that saves too
//!   little;
//! * when most of the hot cells of the last flush were not written again since, that flush only put off
//!   writing them. Then some flushes keep no hot cells.
//!
//! When a cell stays in memory, half of its count stays with it, so that a key is as hot as it lately was. A
//! cell that stayed eight times without a new write goes to disk whatever its count.

use super::options::{parse_settings, split_settings};
#[cfg(not(feature = "papers"))]
use super::papers::needs_papers;
use crate::types::Heats;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Which keys of a family stay in memory at a flush.
///
/// ```
/// use siltstone::strategy::HotKeys;
/// let rule: HotKeys = "factor{hot_factor=1}".parse().unwrap();
/// assert_eq!(rule.to_string(), "factor{hot_factor=1}");
/// assert_eq!(HotKeys::default().to_string(), "factor{hot_factor=2}");
/// assert!("factor{hot_factor=-1}".parse::<HotKeys>().is_err());
/// ```
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HotKeys {
    /// No key stays in memory.
    Off,
    /// Keys updated more often than the mean times this factor stay.
    Factor(HotFactor),
    /// The most updated keys stay: a given percentage.
    #[cfg(feature = "papers")]
    Top(HotTop),
}

impl Default for HotKeys {
    fn default() -> Self {
        HotKeys::Factor(HotFactor::default())
    }
}

/// Settings of `factor`.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HotFactor {
    /// The multiple of the mean number of updates that a hot key exceeds. Default 2.
    pub hot_factor: f64,
}

impl Default for HotFactor {
    fn default() -> Self {
        Self { hot_factor: 2.0 }
    }
}

/// Settings of `top`.
#[cfg(feature = "papers")]
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HotTop {
    /// Percent of the keys that are hot. Default 1.
    pub percent: f64,
}

#[cfg(feature = "papers")]
impl Default for HotTop {
    fn default() -> Self {
        Self { percent: 1.0 }
    }
}

#[cfg(feature = "papers")]
const NAMES: &str = "off, factor, top";
#[cfg(not(feature = "papers"))]
const NAMES: &str = "off, factor";

/// The number of flushes that may leave a cell in memory without a new write to its key; then it goes to
/// disk.
pub(crate) const KEPT_MAX: u8 = 8;
/// The number of flushes that keep no hot cells after one that found its last hot cells unwritten.
const PAUSE: u32 = 8;
/// The fewest hot cells from which anything is concluded.
const ENOUGH: u64 = 16;

#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct HotState {
    met: Option<Heats>,
    /// The number of coming flushes that keep no hot cells.
    pause: u32,
}

impl HotState {
    /// Takes note of the updates that a flush of all of the store's memory found.
    pub(crate) fn learn(&mut self, met: Heats) {
        self.pause = match met.kept >= ENOUGH && met.kept_updated * 4 < met.kept {
            true => PAUSE,
            false => self.pause.saturating_sub(1),
        };
        self.met = Some(met);
    }
}

#[derive(Clone, PartialEq, Debug)]
pub(crate) struct HotPlan {
    /// The number of updates that a hot key exceeds; `None`: no key is hot.
    pub(crate) over: Option<u32>,
    pub(crate) reason: String,
}

/// The bytes of hot keys that a flush of `flush_bytes` may leave: a tenth of the store's limit; not more than
/// leaves all stores together a tenth of the database's, where running flushes count with what `others` have;
/// and at most half of what it takes, so that each flush frees memory.
pub(crate) fn keep_budget(limit: u64, all: u64, others: u64, flush_bytes: u64) -> u64 {
    (limit / 10).min((all / 10).saturating_sub(others)).min(flush_bytes / 2)
}

impl HotKeys {
    /// The keys that stay when at most `budget` bytes may. O(1).
    pub(crate) fn plan(&self, budget: u64, state: &HotState) -> HotPlan {
        let none = |reason: String| HotPlan { over: None, reason };
        let Some(met) = state.met.as_ref().filter(|met| met.keys > 0) else {
            return none("no flush has met a key yet".into());
        };
        let (keys, mean) = (met.keys, met.updates as f64 / met.keys as f64);
        let by_rule = match self {
            HotKeys::Off => return none("off".into()),
            HotKeys::Factor(f) => (f.hot_factor * mean) as u32,
            #[cfg(feature = "papers")]
            HotKeys::Top(top) => met.keys_over((keys as f64 * top.percent / 100.0) as u64),
        };
        if (met.updates - keys) * 20 < keys {
            return none(format!("the last flush met {mean:.2} updates a key, so few are hot"));
        }
        if state.pause > 0 {
            return none(format!("too few hot cells were written again; off for {} flushes", state.pause));
        }
        // A key written once is never hot.
        let by_rule = by_rule.max(1);
        let by_budget = met.bytes_over(budget);
        let over = by_rule.max(by_budget);
        let why = if by_budget > by_rule { "the budget" } else { "the rule" };
        let what = format!("updated more than {over} times, by {why}");
        HotPlan { over: Some(over), reason: format!("{what}; the last flush met {mean:.2} updates a key") }
    }

    /// Says which setting is out of bounds.
    pub fn check(&self) -> Result<(), String> {
        match self {
            HotKeys::Factor(f) if !(0.0..=1e6).contains(&f.hot_factor) => {
                Err("hot_factor is not between 0 and 1,000,000".into())
            }
            #[cfg(feature = "papers")]
            HotKeys::Top(top) if !(top.percent > 0.0 && top.percent <= 100.0) => {
                Err("percent is not over 0 and at most 100".into())
            }
            _ => Ok(()),
        }
    }
}

impl FromStr for HotKeys {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, settings) = split_settings("rule", text)?;
        let rule = match name {
            "off" if settings.is_empty() => HotKeys::Off,
            "factor" => HotKeys::Factor(parse_settings(name, settings)?),
            #[cfg(feature = "papers")]
            "top" => HotKeys::Top(parse_settings(name, settings)?),
            #[cfg(not(feature = "papers"))]
            "top" => return Err(needs_papers("rule", name)),
            _ => return Err(format!("unknown rule `{}`; there is: {NAMES}", text.trim())),
        };
        rule.check().map_err(|why| format!("rule {name}: {why}"))?;
        Ok(rule)
    }
}

impl fmt::Display for HotKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HotKeys::Off => f.write_str("off"),
            HotKeys::Factor(factor) => write!(f, "factor{{hot_factor={}}}", factor.hot_factor),
            #[cfg(feature = "papers")]
            HotKeys::Top(top) => write!(f, "top{{percent={}}}", top.percent),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The state after a flush of so many keys with so many updates each, of 100 bytes a key.
    fn met(keys: &[(u64, u32)]) -> HotState {
        let mut met = Heats::default();
        keys.iter().for_each(|(n, updates)| (0..*n).for_each(|_| met.key(*updates, 100)));
        HotState { met: Some(met), pause: 0 }
    }

    fn over(rule: &str, budget: u64, state: &HotState) -> Option<u32> {
        rule.parse::<HotKeys>().unwrap().plan(budget, state).over
    }

    #[test]
    fn hot_is_what_was_updated_more_than_so_many_times_the_mean() {
        // 1,900 updates of 1,000 keys.
        let state = met(&[(900, 1), (90, 5), (10, 55)]);
        assert_eq!(over("factor", u64::MAX, &state), Some(3));
        assert_eq!(over("factor{hot_factor=1}", u64::MAX, &state), Some(1));
        assert_eq!(over("factor{hot_factor=10}", u64::MAX, &state), Some(19));
        assert_eq!(over("top", u64::MAX, &state), Some(5));
        assert_eq!(over("top{percent=10}", u64::MAX, &state), Some(1));
        assert_eq!(over("off", u64::MAX, &state), None);
        assert_eq!(over("factor", u64::MAX, &HotState::default()), None);
    }

    #[test]
    fn what_does_not_fit_the_budget_raises_the_bar() {
        let state = met(&[(900, 1), (90, 5), (10, 55)]);
        assert_eq!(over("factor", 10_000, &state), Some(3));
        assert_eq!(over("factor", 9_999, &state), Some(5));
        assert_eq!(over("factor", 999, &state), Some(55));
    }

    #[test]
    fn all_stores_together_keep_a_tenth_and_a_flush_at_most_half() {
        assert_eq!(keep_budget(500, 1000, 0, 400), 50, "a tenth of its own limit");
        assert_eq!(keep_budget(1000, 1000, 0, 400), 100);
        assert_eq!(keep_budget(1000, 1000, 70, 400), 30, "the others have the rest");
        assert_eq!(keep_budget(1000, 1000, 130, 400), 0);
        assert_eq!(keep_budget(1000, 1000, 0, 60), 30);
    }

    #[test]
    fn nothing_is_kept_where_keys_are_written_once_or_what_was_kept_is_not_written_again() {
        assert_eq!(over("factor{hot_factor=1}", u64::MAX, &met(&[(1_000, 1), (40, 2)])), None);
        assert_eq!(over("factor{hot_factor=1}", u64::MAX, &met(&[(1_000, 1), (60, 2)])), Some(1));
        let mut state = met(&[]);
        let Some(hot) = met(&[(90, 1), (10, 50)]).met else { unreachable!() };
        state.learn(Heats { kept: 100, kept_updated: 25, ..hot.clone() });
        assert!(over("factor", u64::MAX, &state).is_some());
        state.learn(Heats { kept: 100, kept_updated: 24, ..hot.clone() });
        for _ in 0..PAUSE {
            assert_eq!(over("factor", u64::MAX, &state), None);
            state.learn(hot.clone());
        }
        assert!(over("factor", u64::MAX, &state).is_some());
    }
}
