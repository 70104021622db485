//! What becomes of a store's flat memtables: the policies of in-memory compaction (ACC-6), as pure functions.
//!
//! A longer pipeline costs readers one search per memtable; an index compaction costs moving entries; a data
//! compaction also costs copying cells, and frees versions that nobody can see any more, so that more updates
//! fit into memory before a disk flush. All policies keep the pipeline at `memtables` or less; they differ in
//! when they compact:
//!
//! * `none` lets memtables gather until the disk flush takes them, as a baseline;
//! * `basic` compacts indices when there are too many;
//! * `eager` compacts data at every freeze;
//! * `adaptive`, Accordion's: after a disk flush it compacts indices first; from then on it compacts data
//!   with a probability that grows with what was written since, if the last compaction found more than `r`
//!   redundant cells;
//! * `sketch`, ours: the memtables' distinct-count sketches estimate how much a data compaction would free.
//!   It compacts when the bytes freed, at the measured cost of a flush, are worth more than copying the
//!   remaining bytes, at the measured cost of copying. Nothing is drawn or tried. If that has a better rate,
//!   it compacts the newest memtable alone, whose dead cells are known: then a cell is copied once, and not
//!   at every later compaction.

use super::options::{parse_settings, split_settings};
#[cfg(not(feature = "papers"))]
use super::papers::needs_papers;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// How a family's immutable memtables are kept small and readable.
///
/// ```
/// use siltstone::strategy::MemtablePolicy;
/// let policy: MemtablePolicy = "sketch{memtables=2}".parse().unwrap();
/// assert_eq!(policy.to_string(), "sketch{memtables=2}");
/// assert!("sketch{memtables=0}".parse::<MemtablePolicy>().is_err());
/// ```
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MemtablePolicy {
    /// Memtables stay as they were frozen.
    None,
    /// Indices are compacted when there are too many memtables.
    #[cfg(feature = "papers")]
    Basic(MemtableLimit),
    /// Versions that no reader sees are dropped at every freeze.
    #[cfg(feature = "papers")]
    Eager(MemtableLimit),
    /// Versions that no reader sees are dropped with a probability that depends on the last compactions.
    #[cfg(feature = "papers")]
    Adaptive(Adaptive),
    /// Versions that no reader sees are dropped when the memtables' sketches say that it pays.
    Sketch(MemtableLimit),
}

impl Default for MemtablePolicy {
    /// The policy `sketch`: best where keys repeat within memory, and within a few percent of the best
    /// elsewhere (docs/performance.md).
    fn default() -> Self {
        MemtablePolicy::Sketch(MemtableLimit::default())
    }
}

/// The limit of immutable memtables.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MemtableLimit {
    /// The most immutable memtables; more are compacted (S). Default 5; 2 for read-heavy use.
    #[serde(alias = "segments")]
    pub memtables: u32,
}

impl Default for MemtableLimit {
    fn default() -> Self {
        Self { memtables: 5 }
    }
}

/// Settings of `adaptive`.
#[cfg(feature = "papers")]
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Adaptive {
    /// The most immutable memtables, as in [`MemtableLimit`], but by default 2: the policy decides by the
    /// last in-memory compactions.
    #[serde(alias = "segments")]
    pub memtables: u32,
    /// The share of redundant cells above which a data compaction is considered (R): 0.2, 0.35 or 0.5.
    /// Default 0.5.
    pub r: f64,
}

#[cfg(feature = "papers")]
impl Default for Adaptive {
    fn default() -> Self {
        Self { memtables: 2, r: 0.5 }
    }
}

#[cfg(feature = "papers")]
const NAMES: &str = "none, basic, eager, adaptive, sketch";
#[cfg(not(feature = "papers"))]
const NAMES: &str = "none, sketch";
/// Probability of a data compaction right after a disk flush, and its growth at every in-memory flush.
const THROTTLE_FIRST: f64 = 0.5;
const THROTTLE_GROWTH: f64 = 1.02;

/// The state of a policy between decisions; fresh after every disk flush.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct PipelineState {
    /// In-memory compactions since the disk flush.
    pub(crate) merges: u32,
    /// In-memory compactions since the disk flush that dropped versions.
    pub(crate) compactions: u32,
    /// Keys over cells in the last in-memory compaction.
    pub(crate) unique: f64,
    /// The share of the bytes that the last data compaction left.
    pub(crate) stayed: f64,
    /// The probability t.
    pub(crate) throttle: f64,
}

impl Default for PipelineState {
    fn default() -> Self {
        Self { merges: 0, compactions: 0, unique: 0.0, stayed: 1.0, throttle: THROTTLE_FIRST }
    }
}

impl PipelineState {
    /// The state before any in-memory compaction, which expects the redundancy of so many cells of so many
    /// keys.
    pub(crate) fn expecting(distinct: u64, cells: u64) -> Self {
        let unique = (distinct as f64 / cells.max(1) as f64).min(1.0);
        Self { merges: 1, unique, ..Self::default() }
    }

    pub(crate) fn froze(&mut self) {
        self.throttle = (self.throttle * THROTTLE_GROWTH).min(1.0);
    }

    /// Takes note of an in-memory compaction of so many cells of so many keys, which left the share `stayed`
    /// of their bytes.
    pub(crate) fn merged(&mut self, cells: usize, keys: usize, stayed: f64, kind: MemtableCompactionKind) {
        self.merges += 1;
        self.unique = keys as f64 / cells.max(1) as f64;
        if kind == MemtableCompactionKind::Compact {
            self.compactions += 1;
            self.stayed = stayed;
        }
    }
}

/// The immutable memtables as a policy sees them.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct PipelineFacts {
    pub(crate) memtables: usize,
    pub(crate) cells: u64,
    /// Distinct keys over all of them, estimated.
    pub(crate) distinct: u64,
    /// Their bytes, and how many of these are known to be dead within one memtable.
    pub(crate) bytes: u64,
    pub(crate) dead_bytes: u64,
    /// Bytes of the newest, and how many of these are known to be dead.
    pub(crate) newest_bytes: u64,
    pub(crate) newest_dead_bytes: u64,
    /// Measured costs, in nanoseconds a byte: of flushing, with the compactions it leads to, and of copying
    /// within memory.
    pub(crate) flush_ns: f64,
    pub(crate) copy_ns: f64,
    /// A random number, uniform in [0, 1).
    pub(crate) draw: f64,
}

impl PipelineFacts {
    /// The bytes that an in-memory compaction of that kind is expected to leave.
    pub(crate) fn stays(&self, kind: MemtableCompactionKind) -> u64 {
        let live = self.bytes - self.dead_bytes;
        match kind {
            MemtableCompactionKind::Indices => self.bytes,
            MemtableCompactionKind::CompactNewest => self.newest_bytes - self.newest_dead_bytes,
            MemtableCompactionKind::Compact if self.cells == 0 => live,
            MemtableCompactionKind::Compact => {
                (live as f64 * (self.distinct as f64 / self.cells as f64).min(1.0)) as u64
            }
        }
    }

    fn trade(&self, kind: MemtableCompactionKind) -> Trade {
        let bytes =
            if kind == MemtableCompactionKind::CompactNewest { self.newest_bytes } else { self.bytes };
        let stays = self.stays(kind);
        let gain = bytes.saturating_sub(stays) as f64 * self.flush_ns;
        Trade { kind, gain, cost: stays as f64 * self.copy_ns }
    }
}

/// The trade of a data compaction, in nanoseconds of flushing saved and of copying spent.
struct Trade {
    kind: MemtableCompactionKind,
    gain: f64,
    cost: f64,
}

impl Trade {
    fn pays(&self) -> bool {
        self.gain > self.cost
    }

    /// Nanoseconds saved per nanosecond spent.
    fn rate(&self) -> f64 {
        self.gain / self.cost.max(1.0)
    }
}

impl fmt::Display for Trade {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.1} ms of flushing saved for {:.1} ms of copying", self.gain / 1e6, self.cost / 1e6)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum MemtableCompactionKind {
    /// Index compaction (ACC-4): all versions stay.
    Indices,
    /// Data compaction (ACC-5): versions that no reader sees are dropped.
    Compact,
    /// Data compaction of the newest memtable alone.
    CompactNewest,
}

impl MemtablePolicy {
    /// The in-memory compaction to start now, and its reason in words. O(1).
    #[cfg_attr(not(feature = "papers"), allow(unused_variables))]
    pub(crate) fn plan(
        &self,
        facts: &PipelineFacts,
        state: &PipelineState,
    ) -> Option<(MemtableCompactionKind, String)> {
        let PipelineFacts { memtables, cells, distinct, .. } = *facts;
        if memtables < 2 && !matches!(self, MemtablePolicy::Sketch(_)) {
            return None;
        }
        let most = self.memtables()?;
        let many = || format!("{memtables} memtables where {most} may be");
        let too_many = memtables > most as usize;
        let indices = || too_many.then(|| (MemtableCompactionKind::Indices, many()));
        match self {
            MemtablePolicy::None => None,
            #[cfg(feature = "papers")]
            MemtablePolicy::Basic(_) => indices(),
            #[cfg(feature = "papers")]
            MemtablePolicy::Eager(_) => Some((MemtableCompactionKind::Compact, "at every freeze".into())),
            #[cfg(feature = "papers")]
            MemtablePolicy::Adaptive(Adaptive { r, .. }) => {
                let redundant = 1.0 - state.unique;
                if too_many && state.merges > 0 && redundant > *r && facts.draw < state.throttle {
                    let met = format!("the last compaction met {redundant:.2} redundant, over {r}");
                    let drawn = format!("{:.2} was drawn under {:.2}", facts.draw, state.throttle);
                    let why = format!("{}; {met}, and {drawn}", many());
                    return Some((MemtableCompactionKind::Compact, why));
                }
                indices()
            }
            MemtablePolicy::Sketch(_) => {
                let all = (memtables > 1).then(|| facts.trade(MemtableCompactionKind::Compact));
                let trades = all.into_iter().chain([facts.trade(MemtableCompactionKind::CompactNewest)]);
                let best = trades.filter(Trade::pays).max_by(|a, b| a.rate().total_cmp(&b.rate()));
                if let Some(trade) = best {
                    let what = match trade.kind {
                        MemtableCompactionKind::CompactNewest => "dead cells in the newest memtable".into(),
                        _ => format!("about {distinct} keys in {cells} cells"),
                    };
                    return Some((trade.kind, format!("{what}: {trade}")));
                }
                indices()
            }
        }
    }

    /// Whether the policy ever drops cells.
    pub(crate) fn compacts(&self) -> bool {
        match self {
            MemtablePolicy::None => false,
            #[cfg(feature = "papers")]
            MemtablePolicy::Basic(_) => false,
            _ => true,
        }
    }

    fn memtables(&self) -> Option<u32> {
        match self {
            MemtablePolicy::None => None,
            MemtablePolicy::Sketch(s) => Some(s.memtables),
            #[cfg(feature = "papers")]
            MemtablePolicy::Basic(s) | MemtablePolicy::Eager(s) => Some(s.memtables),
            #[cfg(feature = "papers")]
            MemtablePolicy::Adaptive(a) => Some(a.memtables),
        }
    }

    /// Says which setting is out of bounds.
    pub fn check(&self) -> Result<(), String> {
        if self.memtables().is_some_and(|s| !(1..=64).contains(&s)) {
            return Err("memtables is not between 1 and 64".into());
        }
        match self {
            #[cfg(feature = "papers")]
            MemtablePolicy::Adaptive(Adaptive { r, .. }) if !(0.0..=1.0).contains(r) => {
                Err("r is not between 0 and 1".into())
            }
            _ => Ok(()),
        }
    }
}

impl FromStr for MemtablePolicy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, settings) = split_settings("policy", text)?;
        let policy = match name {
            "none" if settings.is_empty() => MemtablePolicy::None,
            #[cfg(feature = "papers")]
            "basic" => MemtablePolicy::Basic(parse_settings(name, settings)?),
            #[cfg(feature = "papers")]
            "eager" => MemtablePolicy::Eager(parse_settings(name, settings)?),
            #[cfg(feature = "papers")]
            "adaptive" => MemtablePolicy::Adaptive(parse_settings(name, settings)?),
            #[cfg(not(feature = "papers"))]
            "basic" | "eager" | "adaptive" => return Err(needs_papers("policy", name)),
            "sketch" => MemtablePolicy::Sketch(parse_settings(name, settings)?),
            _ => return Err(format!("unknown policy `{}`; there is: {NAMES}", text.trim())),
        };
        policy.check().map_err(|why| format!("policy {name}: {why}"))?;
        Ok(policy)
    }
}

impl fmt::Display for MemtablePolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MemtablePolicy::None => f.write_str("none"),
            #[cfg(feature = "papers")]
            MemtablePolicy::Basic(s) => write!(f, "basic{{memtables={}}}", s.memtables),
            #[cfg(feature = "papers")]
            MemtablePolicy::Eager(s) => write!(f, "eager{{memtables={}}}", s.memtables),
            #[cfg(feature = "papers")]
            MemtablePolicy::Adaptive(a) => write!(f, "adaptive{{memtables={}, r={}}}", a.memtables, a.r),
            MemtablePolicy::Sketch(s) => write!(f, "sketch{{memtables={}}}", s.memtables),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(memtables: usize, cells: u64, distinct: u64) -> PipelineFacts {
        let bytes = cells * 100;
        PipelineFacts {
            memtables,
            cells,
            distinct,
            bytes,
            dead_bytes: 0,
            newest_bytes: bytes / memtables as u64,
            newest_dead_bytes: 0,
            flush_ns: 10.0,
            copy_ns: 2.0,
            draw: 0.4,
        }
    }

    /// What each policy does with a pipeline.
    fn kinds(facts: PipelineFacts, state: PipelineState) -> String {
        [
            "none",
            "basic{memtables=3}",
            "eager{memtables=3}",
            "adaptive{memtables=3, r=0.35}",
            "sketch{memtables=3}",
        ]
        .map(|policy| match policy.parse::<MemtablePolicy>().unwrap().plan(&facts, &state) {
            None => "-",
            Some((MemtableCompactionKind::Indices, _)) => "indices",
            Some((MemtableCompactionKind::Compact, _)) => "compact",
            Some((MemtableCompactionKind::CompactNewest, _)) => "newest",
        })
        .join(" ")
    }

    #[test]
    fn stories_of_pipelines() {
        let fresh = PipelineState::default();
        let redundant = PipelineState { merges: 1, unique: 0.5, ..fresh };
        for (story, facts, state, expected) in [
            ("one memtable is nothing to merge", facts(1, 100, 10), redundant, "- - - - -"),
            ("few memtables of unique keys", facts(2, 100, 100), fresh, "- - compact - -"),
            ("few memtables of hot keys", facts(2, 100, 60), fresh, "- - compact - compact"),
            ("too many, all unique", facts(4, 100, 100), fresh, "- indices compact indices indices"),
            (
                "the first compaction after a flush",
                facts(4, 100, 60),
                fresh,
                "- indices compact indices compact",
            ),
            ("redundancy met before", facts(4, 100, 60), redundant, "- indices compact compact compact"),
            (
                "the draw says no",
                PipelineFacts { draw: 0.6, ..facts(4, 100, 60) },
                redundant,
                "- indices compact indices compact",
            ),
            (
                "hardly redundant by keys, but half of the bytes are known to be dead",
                PipelineFacts { dead_bytes: 5_000, ..facts(4, 100, 90) },
                fresh,
                "- indices compact indices compact",
            ),
            (
                "hardly redundant",
                facts(4, 100, 90),
                PipelineState { unique: 0.9, ..redundant },
                "- indices compact indices indices",
            ),
            (
                "copying is dear here",
                PipelineFacts { copy_ns: 20.0, ..facts(4, 100, 60) },
                fresh,
                "- indices compact indices indices",
            ),
        ] {
            assert_eq!(kinds(facts, state), expected, "{story}");
        }
    }

    #[test]
    fn the_throttle_grows_with_freezes_and_never_beyond_one() {
        let mut state = PipelineState::default();
        state.froze();
        assert_eq!(state.throttle, 0.5 * 1.02);
        (0..100).for_each(|_| state.froze());
        assert_eq!(state.throttle, 1.0);
        state.merged(100, 25, 1.0, MemtableCompactionKind::Indices);
        assert_eq!((state.merges, state.compactions, state.unique), (1, 0, 0.25));
        state.merged(100, 50, 0.4, MemtableCompactionKind::Compact);
        assert_eq!((state.merges, state.compactions, state.stayed), (2, 1, 0.4));
        state.merged(100, 50, 1.0, MemtableCompactionKind::Indices);
        assert_eq!(state.stayed, 0.4, "of the last compaction");
    }

    #[test]
    fn the_newest_memtable_is_compacted_alone_where_that_gives_more_and_by_sketch_alone() {
        let plan = |policy: &str, facts: &PipelineFacts| {
            let policy = policy.parse::<MemtablePolicy>().unwrap();
            policy.plan(facts, &PipelineState::default()).map(|(kind, _)| kind)
        };
        // 2.5 KB, of which so much is dead: the freed bytes are worth five times the remaining ones.
        let dead = |newest_dead_bytes, distinct| PipelineFacts {
            dead_bytes: newest_dead_bytes,
            newest_dead_bytes,
            ..facts(4, 100, distinct)
        };
        assert_eq!(plan("sketch", &dead(500, 100)), Some(MemtableCompactionKind::CompactNewest));
        assert_eq!(plan("sketch", &dead(400, 100)), None, "no more than it costs");
        assert_eq!(plan("sketch", &PipelineFacts { copy_ns: 3.0, ..dead(500, 100) }), None);
        let all = plan("sketch", &dead(500, 60));
        assert_eq!(all, Some(MemtableCompactionKind::Compact), "all of it gives more");
        assert_eq!(plan("sketch", &dead(1_500, 80)), Some(MemtableCompactionKind::CompactNewest));
        let only =
            PipelineFacts { bytes: 2_500, dead_bytes: 500, newest_dead_bytes: 500, ..facts(1, 25, 25) };
        assert_eq!(plan("sketch", &only), Some(MemtableCompactionKind::CompactNewest));
        for policy in ["none", "basic", "adaptive{memtables=5, r=0.5}"] {
            assert_eq!(plan(policy, &only), None, "{policy}");
            assert_eq!(plan(policy, &dead(1_500, 80)), None, "{policy}");
        }
        let ranges = PipelineFacts { cells: 0, distinct: 0, ..facts(2, 1, 1) };
        assert_eq!(plan("sketch", &ranges), None, "range tombstones alone");
    }

    #[test]
    fn a_policy_is_parsed_and_printed_and_a_wrong_one_named() {
        for text in [
            "none",
            "basic{memtables=2}",
            "eager{memtables=5}",
            "adaptive{memtables=5, r=0.2}",
            "sketch{memtables=7}",
        ] {
            assert_eq!(text.parse::<MemtablePolicy>().unwrap().to_string(), text);
        }
        for (text, part) in [
            ("lazy", "unknown policy `lazy`"),
            ("none{memtables=2}", "unknown policy"),
            ("basic{memtables=0}", "between 1 and 64"),
            ("adaptive{r=1.5}", "r is not between"),
            ("sketch{r=0.5}", "unknown field"),
            ("basic{memtables=2", "expected `}`"),
        ] {
            let error = text.parse::<MemtablePolicy>().unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
