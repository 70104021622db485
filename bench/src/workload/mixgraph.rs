//! mixgraph: what a social graph asks of its store, modelled on traces of production (Cao, Dong, Vemuri, Du:
//! "Characterizing, Modeling, and Benchmarking RocksDB Key-Value Workloads at Facebook", USENIX FAST 2020).
//!
//! The numbers below are those that RocksDB's db_bench publishes for its benchmark of that name in the
//! variant with hot ranges of keys ("prefix_dist", facebook/rocksdb pull request 5953 and its wiki page on
//! traces): 85 % gets, 14 % puts, 1 % seeks; key ranges whose popularity falls as the sum of two
//! exponentials; within a range a power law; lengths of values and scans by a generalised Pareto
//! distribution. The variation of the load over the day is left out: this measures what a store can do, not
//! what it is asked to.

use super::random::{Rng, Shuffle, mix};

const KEY_RANGES: u64 = 30;
const RANGE: [f64; 4] = [14.18, -2.917, 0.0164, -0.08082];
const KEY: [f64; 2] = [0.002312, 0.3467];
const VALUE: [f64; 2] = [0.2615, 25.45];
const SCAN: [f64; 2] = [2.517, 14.236];
const VALUE_BYTES_MIN: f64 = 10.0;
const VALUE_BYTES_MAX: f64 = 1024.0;
const SCAN_MAX: f64 = 10_000.0;

pub(crate) const GETS: f64 = 0.85;
pub(crate) const PUTS: f64 = 0.14;

/// Draws keys.
#[derive(Clone, Debug)]
pub(crate) struct MixGraph {
    keys_in_range: u64,
    /// The end of the share of [0, 1) that each range has.
    ends: Vec<f64>,
    /// Where on the key space each range lies: the hottest is not the first.
    places: Shuffle,
    seed: u64,
}

impl MixGraph {
    pub(crate) fn new(keys: u64, seed: u64) -> Self {
        let ranges = KEY_RANGES.min(keys);
        let [a, b, c, d] = RANGE;
        let weight = |x: f64| a * (b * x).exp() + c * (d * x).exp();
        let total: f64 = (1..=ranges).map(|i| weight(i as f64)).sum();
        let ends = (1..=ranges).scan(0.0, |sum, i| {
            *sum += weight(i as f64) / total;
            Some(*sum)
        });
        let (ends, places) = (ends.collect(), Shuffle::new(ranges, seed));
        MixGraph { keys_in_range: keys / ranges, ends, places, seed }
    }

    /// The number of the next key.
    pub(crate) fn key(&self, rng: &mut Rng) -> u64 {
        let share = rng.unit();
        let range = self.ends.partition_point(|end| *end <= share).min(self.ends.len() - 1) as u64;
        let [a, b] = KEY;
        let rank = (rng.unit() / a).powf(1.0 / b).ceil() as u64;
        self.places.at(range) * self.keys_in_range + mix(rank ^ self.seed) % self.keys_in_range
    }
}

fn pareto(u: f64, [k, sigma]: [f64; 2]) -> f64 {
    sigma * ((1.0 - u).powf(-k) - 1.0) / k
}

/// Entries of the next scan.
pub(crate) fn scan_length(rng: &mut Rng) -> u32 {
    pareto(rng.unit(), SCAN).clamp(1.0, SCAN_MAX) as u32
}

/// Bytes of the value of a key: the same each time it is written, so that what lives can be counted.
pub(crate) fn value_bytes(number: u64) -> usize {
    let u = Rng::new(number, "mixgraph value", 0).unit();
    pareto(u, VALUE).clamp(VALUE_BYTES_MIN, VALUE_BYTES_MAX) as usize
}

/// Bytes of the longest value.
pub(crate) const LONGEST: usize = VALUE_BYTES_MAX as usize;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_ranges_take_most_accesses_and_keys_stay_in_bounds() {
        let graph = MixGraph::new(30_000, 1);
        let mut rng = Rng::new(1, "graph", 0);
        let mut ranges = vec![0u32; 30];
        for _ in 0..100_000 {
            let key = graph.key(&mut rng);
            assert!(key < 30_000);
            ranges[(key / 1000) as usize] += 1;
        }
        ranges.sort_unstable();
        // The hottest range weighs 0.767 + 0.015, all thirty together 0.99.
        assert!((75_000..83_000).contains(&ranges[29]), "{ranges:?}");
    }

    #[test]
    fn values_are_short_and_some_are_long() {
        let lengths: Vec<usize> = (0..100_000).map(value_bytes).collect();
        let mean = lengths.iter().sum::<usize>() as f64 / lengths.len() as f64;
        assert!((33.0..38.0).contains(&mean), "{mean}");
        assert!(lengths.iter().any(|n| *n > 300));
    }
}
