//! Numbers that look random and are a pure function of what they are seeded with: every store gets the same
//! streams, on every machine, whatever version of whatever crate is linked.

/// A bijection of 64-bit numbers whose images look unrelated (the finaliser of splitmix64).
#[inline]
pub(crate) fn mix(x: u64) -> u64 {
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// splitmix64: a counter and [`mix`]. Two nanoseconds a number, no state beyond eight bytes.
#[derive(Clone, Debug)]
pub(crate) struct Rng(u64);

impl Rng {
    /// A generator for this place: the words say which.
    pub(crate) fn new(seed: u64, place: &str, number: u64) -> Self {
        let place = place.bytes().fold(0, |hash, byte| mix(hash ^ u64::from(byte)).wrapping_add(GOLDEN));
        Rng(mix(mix(seed.wrapping_add(GOLDEN)) ^ place).wrapping_add(mix(number)))
    }

    #[inline]
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(GOLDEN);
        mix(self.0)
    }

    /// Below `n`, which is not 0. Not exactly uniform, by less than n / 2^64.
    #[inline]
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(n)) >> 64) as u64
    }

    /// In [0, 1).
    #[inline]
    pub(crate) fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// A bijection of 0..n in an order that looks random: a Feistel network over the next even number of bits,
/// walked until it lands below n (at most four steps on average). It needs no table, so it costs no memory
/// that would be measured.
#[derive(Clone, Debug)]
pub(crate) struct Shuffle {
    n: u64,
    half_bits: u32,
    seed: u64,
}

impl Shuffle {
    pub(crate) fn new(n: u64, seed: u64) -> Self {
        let bits = u64::BITS - n.saturating_sub(1).leading_zeros();
        Shuffle { n, half_bits: bits.div_ceil(2).max(1), seed: mix(seed) }
    }

    #[inline]
    pub(crate) fn at(&self, i: u64) -> u64 {
        debug_assert!(i < self.n);
        let mask = (1u64 << self.half_bits) - 1;
        let mut x = i;
        loop {
            let (mut left, mut right) = (x >> self.half_bits, x & mask);
            for round in 0..4u64 {
                let scrambled = mix(right ^ self.seed.wrapping_add(round.wrapping_mul(GOLDEN)));
                (left, right) = (right, left ^ (scrambled & mask));
            }
            x = left << self.half_bits | right;
            if x < self.n {
                return x;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shuffle_reaches_every_number_once_and_not_in_order() {
        for n in [1, 2, 3, 1000, 4096, 4097] {
            let shuffle = Shuffle::new(n, 7);
            let image: Vec<u64> = (0..n).map(|i| shuffle.at(i)).collect();
            let mut sorted = image.clone();
            sorted.sort_unstable();
            assert_eq!(sorted, (0..n).collect::<Vec<_>>());
            assert!(n < 1000 || image != sorted);
        }
    }

    #[test]
    fn numbers_below_a_bound_fill_it_evenly() {
        let mut rng = Rng::new(1, "here", 0);
        let mut counts = [0u32; 10];
        (0..100_000).for_each(|_| counts[rng.below(10) as usize] += 1);
        assert!(counts.iter().all(|n| (9_500..10_500).contains(n)), "{counts:?}");
    }
}
