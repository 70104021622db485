//! The project's one random number generator: splitmix64. Not for secrets.

use std::ops::Range;

/// The increment of a generator's state.
pub(crate) const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// The output function of splitmix64.
pub(crate) fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The successor of a number in the sequence of a generator that has no state of its own.
pub(crate) fn after(number: u64) -> u64 {
    mix(number.wrapping_add(STEP))
}

/// A random number generator for tests: equal seeds give equal numbers on every machine and release.
#[derive(Clone, Debug)]
pub struct Rng {
    state: u64,
}

impl Rng {
    /// A generator with that seed; neighbouring seeds give unrelated numbers.
    pub fn new(seed: u64) -> Self {
        Self { state: mix(seed ^ STEP) }
    }

    /// A uniformly random number.
    pub fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(STEP);
        mix(self.state)
    }

    /// A number of a range, which must not be empty.
    pub fn range(&mut self, range: Range<u64>) -> u64 {
        assert!(range.start < range.end, "an empty range has no number to draw");
        let width = range.end - range.start;
        range.start + ((u128::from(self.next_u64()) * u128::from(width)) >> 64) as u64
    }

    /// An index below `len`, which must not be zero.
    pub fn index(&mut self, len: usize) -> usize {
        self.range(0..len as u64) as usize
    }

    /// True in that many of 100 cases: never at 0, always at 100.
    pub fn chance(&mut self, percent: u8) -> bool {
        self.range(0..100) < u64::from(percent)
    }

    /// True once in that many cases.
    pub fn one_in(&mut self, cases: u64) -> bool {
        self.range(0..cases.max(1)) == 0
    }

    /// One of the items, which must not be empty.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.index(items.len())]
    }

    /// A vector of `len` random bytes.
    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(len + 8);
        while bytes.len() < len {
            bytes.extend_from_slice(&self.next_u64().to_le_bytes());
        }
        bytes.truncate(len);
        bytes
    }

    /// Puts the items in a random order.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.index(i + 1));
        }
    }

    /// A separate generator for one actor, so that its draws do not shift those of others.
    #[must_use]
    pub fn fork(&mut self) -> Self {
        Self::new(self.next_u64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chances_are_never_always_and_about_half() {
        let mut rng = Rng::new(1);
        let hits = |rng: &mut Rng, percent| (0..10_000).filter(|_| rng.chance(percent)).count();
        assert_eq!((hits(&mut rng, 0), hits(&mut rng, 100)), (0, 10_000));
        assert!((4_700..5_300).contains(&hits(&mut rng, 50)));
        assert!((0..1000).map(|_| rng.range(5..8)).all(|n| (5..8).contains(&n)));
    }
}
