//! The live data in the store after a phase, found by going through its streams again once the clock has
//! stopped: the streams are pure, so the measured loop need not keep count.

use crate::workload::{Op, Picks, Stream, Workload};

/// The set of loaded keys that live, and how many were inserted beyond them.
pub(crate) struct Live {
    bits: Vec<u64>,
    inserted: u64,
}

impl Live {
    /// No key is live yet.
    pub(crate) fn new(keys: u64) -> Self {
        Live { bits: vec![0; keys.div_ceil(64) as usize], inserted: 0 }
    }

    pub(crate) fn add(&mut self, number: u64) {
        match self.bits.get_mut((number / 64) as usize) {
            Some(word) => *word |= 1 << (number % 64),
            None => self.inserted += 1,
        }
    }

    /// Applies all streams of a phase.
    pub(crate) fn apply(&mut self, workload: &Workload, picks: &Picks, seed: u64) {
        for thread in 0..workload.threads - workload.readers {
            for op in Stream::new(workload, picks, seed, thread) {
                match op {
                    Op::Put { number, .. } => self.add(number),
                    Op::Delete(number) => self.bits[(number / 64) as usize] &= !(1 << (number % 64)),
                    Op::Get(_) | Op::Miss(_) | Op::Modify { .. } | Op::Scan { .. } | Op::Walk => {}
                }
            }
        }
    }

    pub(crate) fn count(&self) -> u64 {
        self.bits.iter().map(|word| u64::from(word.count_ones())).sum::<u64>() + self.inserted
    }

    /// Bytes of all live keys and values.
    pub(crate) fn bytes(&self, workload: &Workload) -> u64 {
        let numbers =
            (0..self.bits.len() as u64 * 64).filter(|n| self.bits[(n / 64) as usize] >> (n % 64) & 1 == 1);
        let values: u64 = numbers.map(|number| workload.row_value_bytes(number)).sum();
        let new_value = workload.row_value_bytes(u64::MAX);
        values + self.inserted * new_value + self.count() * workload.row_key_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::{Scale, named};

    #[test]
    fn distinct_keys_are_counted_once_and_deleted_ones_not() {
        let scale = Scale { keys: Some(1000), ops: Some(1000), ..Scale::default() };
        let live = |name: &str| {
            let workload = &named(name, &scale).unwrap()[0];
            let mut live = Live::new(workload.keys);
            workload.loaded(1).for_each(|number| live.add(number));
            live.apply(workload, &Picks::new(workload, 1), 1);
            (live.count(), live.bytes(workload))
        };
        assert_eq!(live("fillseq"), (1000, 116_000));
        assert_eq!(live("deleteseq"), (0, 0));
        let (random, bytes) = live("fillrandom");
        assert!((590..670).contains(&random), "1 - 1/e of them: {random}");
        assert_eq!(bytes, random * 116);
        let (rows, bytes) = live("accordion-uniform");
        assert_eq!(bytes, rows * 4 * (25 + 25), "a row is four cells");
        let (with_inserts, _) = live("ycsb-d");
        assert!((1030..1070).contains(&with_inserts), "{with_inserts}");
    }
}
