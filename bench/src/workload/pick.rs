//! Which of n things the next operation takes: rank 0 is the most popular one. What a rank stands for (a
//! scattered key, the newest key) is the stream's business.

use super::random::Rng;

/// A distribution over ranks 0..n.
#[derive(Clone, Debug)]
pub(crate) enum Pick {
    Uniform(u64),
    Zipf(Zipf),
    /// A share of the ranks takes a share of the picks, evenly within each part.
    Hot {
        n: u64,
        hot: u64,
        accesses: f64,
    },
}

impl Pick {
    /// `share` of the ranks gets `accesses` of the picks.
    pub(crate) fn hot(n: u64, share: f64, accesses: f64) -> Self {
        let hot = ((n as f64 * share) as u64).clamp(1, n);
        if hot == n { Pick::Uniform(n) } else { Pick::Hot { n, hot, accesses } }
    }

    #[inline]
    pub(crate) fn next(&self, rng: &mut Rng) -> u64 {
        match self {
            Pick::Uniform(n) => rng.below(*n),
            Pick::Zipf(zipf) => zipf.next(rng),
            Pick::Hot { n, hot, accesses } => {
                if rng.unit() < *accesses {
                    rng.below(*hot)
                } else {
                    hot + rng.below(n - hot)
                }
            }
        }
    }
}

/// Zipf's law with YCSB's exponent, drawn by the method of Gray et al. (SIGMOD 1994), which YCSB uses too:
/// the two first ranks by comparison, the rest by inverting an approximation of the sum.
#[derive(Clone, Debug)]
pub(crate) struct Zipf {
    n: u64,
    zeta: f64,
    eta: f64,
}

const THETA: f64 = 0.99;

impl Zipf {
    /// Sums n terms: 20 million take half a second, so make one and clone it.
    pub(crate) fn new(n: u64) -> Self {
        let zeta = (1..=n).map(|i| (i as f64).powf(-THETA)).sum::<f64>();
        let zeta2 = 1.0 + 0.5f64.powf(THETA);
        let eta = (1.0 - (2.0 / n as f64).powf(1.0 - THETA)) / (1.0 - zeta2 / zeta);
        Zipf { n, zeta, eta }
    }

    #[inline]
    fn next(&self, rng: &mut Rng) -> u64 {
        let u = rng.unit();
        let uz = u * self.zeta;
        let rank = if uz < 1.0 {
            0
        } else if uz < 1.0 + 0.5f64.powf(THETA) {
            1
        } else {
            (self.n as f64 * (self.eta * u - self.eta + 1.0).powf(1.0 / (1.0 - THETA))) as u64
        };
        rank.min(self.n - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(pick: &Pick, n: usize, draws: u64) -> Vec<f64> {
        let mut rng = Rng::new(3, "pick", 0);
        let mut counts = vec![0.0; n];
        (0..draws).for_each(|_| counts[pick.next(&mut rng) as usize] += 1.0 / draws as f64);
        counts
    }

    #[test]
    fn zipf_gives_each_rank_its_share() {
        let n = 1000;
        let zeta: f64 = (1..=n).map(|i| (i as f64).powf(-THETA)).sum();
        let counts = counts(&Pick::Zipf(Zipf::new(n as u64)), n, 2_000_000);
        for (ranks, tolerance) in
            [(0..1, 0.02), (1..2, 0.02), (2..10, 0.15), (10..100, 0.1), (100..1000, 0.1)]
        {
            let expected: f64 = ranks.clone().map(|i| (i as f64 + 1.0).powf(-THETA) / zeta).sum();
            let seen: f64 = counts[ranks.clone()].iter().sum();
            assert!((seen / expected - 1.0).abs() < tolerance, "{ranks:?}: {seen} for {expected}");
        }
    }

    #[test]
    fn the_hot_part_takes_its_accesses() {
        let counts = counts(&Pick::hot(1000, 0.01, 0.99), 1000, 1_000_000);
        let hot: f64 = counts[..10].iter().sum();
        assert!((hot - 0.99).abs() < 0.002, "{hot}");
        assert!(counts[..10].iter().all(|share| (share - 0.099).abs() < 0.005));
    }
}
