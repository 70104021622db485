//! Which server a store's compactions go to: a pure function of the store's number and a list of servers, so
//! that the mapping of ten thousand regions is one short list, new regions have a server from the moment that
//! they are made, and every data server that has the list maps alike without asking.
//!
//! The list, a *ring*, names each server once for each share that it is to have. Store number n goes to the
//! entry n modulo its length. A compaction server has no durable state, so moving a store to another one
//! costs nothing.

use crate::protocol::CompactorState;
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

/// How a manager spreads stores over servers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Spread {
    /// Evenly: each server has as many stores as any other, give or take one.
    #[default]
    RoundRobin,
    /// By free capacity: idle processors, and free slots.
    Load,
}

impl std::str::FromStr for Spread {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "round-robin" => Ok(Self::RoundRobin),
            "load" => Ok(Self::Load),
            _ => Err(format!("{text} is neither round-robin nor load")),
        }
    }
}

impl std::fmt::Display for Spread {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::RoundRobin => "round-robin",
            Self::Load => "load",
        })
    }
}

/// Shares of a server at most.
const SHARES_MAX: u64 = 8;

/// The shares of a server in that state.
fn shares(spread: Spread, state: &CompactorState) -> u64 {
    let idle = (1.0 - state.load()).clamp(0.0, 1.0);
    let slots = state.slots.max(1) as f64;
    let free = (1.0 - state.merges() as f64 / slots).clamp(0.0, 1.0);
    match spread {
        Spread::RoundRobin => 1,
        // Half by each, and at least one share: a server that is busy now may be idle in a second.
        Spread::Load => (((idle + free) / 2.0 * SHARES_MAX as f64).round() as u64).max(1),
    }
}

/// The ring of these servers: in the order of their addresses, each as often as it has shares, apart from
/// each other.
pub(crate) fn ring(spread: Spread, servers: &BTreeMap<String, CompactorState>) -> Vec<String> {
    let all: Vec<(&String, u64)> = servers.iter().map(|(at, state)| (at, shares(spread, state))).collect();
    let rounds = all.iter().map(|(_, shares)| *shares).max().unwrap_or(0);
    let in_round = |round| all.iter().filter(move |(_, shares)| *shares > round).map(|(at, _)| (*at).clone());
    (0..rounds).flat_map(in_round).collect()
}

/// The number of a ring: its names' hash, so that it is the same after a manager began anew.
pub(crate) fn number(ring: &[String]) -> u64 {
    let mut hasher = DefaultHasher::new();
    ring.hash(&mut hasher);
    hasher.finish().max(1)
}

/// The server on the ring that has the store.
pub(crate) fn server_of<T>(ring: &[T], store: u32) -> Option<&T> {
    ring.get(store as usize % ring.len().max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(cpu_percent: u64, running: u64) -> CompactorState {
        CompactorState { processors: 2, slots: 4, cpu_percent, running, ..CompactorState::default() }
    }

    fn servers(states: &[(&str, CompactorState)]) -> BTreeMap<String, CompactorState> {
        states.iter().map(|(at, state)| ((*at).to_string(), state.clone())).collect()
    }

    fn counts(ring: &[String], stores: u32) -> BTreeMap<&str, u32> {
        let mut counts = BTreeMap::new();
        for store in 0..stores {
            *counts.entry(server_of(ring, store).unwrap().as_str()).or_default() += 1;
        }
        counts
    }

    #[test]
    fn stores_go_round_and_those_of_one_that_left_go_to_the_others() {
        let mut known = servers(&[("a", state(0, 0)), ("b", state(200, 4)), ("c", state(90, 1))]);
        let all = ring(Spread::RoundRobin, &known);
        assert_eq!(all, ["a", "b", "c"]);
        assert_eq!(counts(&all, 10_000), [("a", 3_334), ("b", 3_333), ("c", 3_333)].into());
        known.remove("b");
        assert_eq!(counts(&ring(Spread::RoundRobin, &known), 10_001), [("a", 5_001), ("c", 5_000)].into());
        assert_eq!(server_of(&ring(Spread::RoundRobin, &BTreeMap::new()), 7), None);
    }

    #[test]
    fn by_load_one_that_is_idle_has_more_and_one_that_is_busy_still_some() {
        let known = servers(&[("busy", state(200, 4)), ("half", state(100, 2)), ("idle", state(0, 0))]);
        let all = ring(Spread::Load, &known);
        assert_eq!(counts(&all, 13_000), [("busy", 1_000), ("half", 4_000), ("idle", 8_000)].into());
        // Stores that follow each other, which are likely to compact at the same time, are spread.
        assert_eq!(all[..4], ["busy", "half", "idle", "half"]);
    }

    #[test]
    fn names_of_spreads_are_those_that_are_read() {
        for spread in [Spread::RoundRobin, Spread::Load] {
            assert_eq!(spread.to_string().parse(), Ok(spread));
        }
        assert!("even".parse::<Spread>().is_err());
    }
}
