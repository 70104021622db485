//! The expected contents of a simulated SSTable: for each stretch of the key line over which the workload is
//! even (`line`; all of it, where keys are scattered) two densities, the share of its keys that the fill put
//! there, and the draws of the workload (per key) in it. The union of SSTables adds both; the number of
//! distinct keys follows from the workload alone.

use std::fmt;
use std::str::FromStr;

/// Which keys are written.
///
/// ```
/// use siltstone::simulate::Workload;
/// assert_eq!("zipf:0.99".parse(), Ok(Workload::Zipf(0.99)));
/// ```
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Workload {
    /// All keys with the same probability.
    Uniform,
    /// The k-th most popular key with probability proportional to k to the minus theta; popular keys are
    /// scattered.
    Zipf(f64),
    /// Zipf's law with the popular keys side by side, at the beginning of all keys.
    Head(f64),
    /// All keys with the same probability; but in the fill, this share of them comes in key order.
    Sorted(f64),
}

impl Workload {
    pub(super) fn check(&self) -> Result<(), String> {
        match self {
            Workload::Zipf(theta) | Workload::Head(theta) if !(0.0..=5.0).contains(theta) => {
                Err(format!("zipf's theta must lie between 0 and 5, not {theta}"))
            }
            Workload::Sorted(share) if !(0.0..=1.0).contains(share) => {
                Err(format!("the share of keys in order must lie between 0 and 1, not {share}"))
            }
            _ => Ok(()),
        }
    }
}

impl FromStr for Workload {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let all = "uniform, zipf:THETA (like zipf:0.99), head:THETA, sorted:SHARE";
        let wrong = || format!("unknown workload `{text}`; there is: {all}");
        let (name, number) = text.split_once(':').unwrap_or((text, ""));
        let number = || number.parse().map_err(|_| wrong());
        let workload = match name {
            "uniform" if name == text => Workload::Uniform,
            "zipf" => Workload::Zipf(number()?),
            "head" => Workload::Head(number()?),
            "sorted" => Workload::Sorted(number()?),
            _ => return Err(wrong()),
        };
        workload.check()?;
        Ok(workload)
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Workload::Uniform => f.write_str("uniform"),
            Workload::Zipf(theta) => write!(f, "zipf:{theta}"),
            Workload::Head(theta) => write!(f, "head:{theta}"),
            Workload::Sorted(share) => write!(f, "sorted:{share}"),
        }
    }
}

#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(super) struct Content {
    /// Share of the keys here that the fill wrote, each once.
    pub(super) filled: f64,
    /// Draws of the workload here, per key.
    pub(super) draws: f64,
}

impl Content {
    pub(super) fn add(self, other: Content) -> Content {
        Content { filled: (self.filled + other.filled).min(1.0), draws: self.draws + other.draws }
    }
}

/// A stretch of the key line with one content.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Piece {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) content: Content,
}

/// The mean content of pieces that do not overlap, over the keys that they cover.
pub(super) fn mean(pieces: &[Piece]) -> Content {
    let width: f64 = pieces.iter().map(|p| (p.end - p.start) as f64).sum();
    let mean = |part: fn(&Content) -> f64| {
        pieces.iter().map(|p| part(&p.content) * (p.end - p.start) as f64).sum::<f64>() / width
    };
    Content { filled: mean(|c| c.filled), draws: mean(|c| c.draws) }
}

/// The union of overlapping pieces as pieces that do not overlap, in key order.
pub(super) fn union(pieces: &[Piece]) -> Vec<Piece> {
    let mut bounds: Vec<u64> = pieces.iter().flat_map(|p| [p.start, p.end]).collect();
    bounds.sort_unstable();
    bounds.dedup();
    let mut by_start: Vec<&Piece> = pieces.iter().collect();
    by_start.sort_by_key(|p| p.start);
    let mut starting = by_start.into_iter().peekable();
    let mut open: Vec<&Piece> = Vec::new();
    let mut united = Vec::with_capacity(bounds.len());
    for pair in bounds.windows(2) {
        open.retain(|p| p.end > pair[0]);
        while let Some(p) = starting.next_if(|p| p.start == pair[0]) {
            open.push(p);
        }
        if !open.is_empty() {
            let content = open.iter().fold(Content::default(), |sum, p| sum.add(p.content));
            united.push(Piece { start: pair[0], end: pair[1], content });
        }
    }
    united
}

/// The share of a stretch's keys that draws touch; where popular keys are scattered, a lookup table over the
/// logarithm of draws per key.
pub(super) struct Density {
    /// Logarithms of the share; empty where all keys of a stretch are alike.
    shares: Vec<f64>,
}

pub(super) const LOG_FIRST: f64 = -30.0;
pub(super) const LOG_LAST: f64 = LOG_FIRST + LOG_STEP * (POINTS - 1) as f64;
const LOG_STEP: f64 = 0.05;
const POINTS: usize = 1000;

impl Density {
    pub(super) fn new(workload: Workload, keys: f64) -> Self {
        let shares = match workload {
            Workload::Uniform | Workload::Head(_) | Workload::Sorted(_) => Vec::new(),
            Workload::Zipf(theta) => {
                let classes = popularity(theta, keys);
                let total: f64 = classes.iter().map(|(count, weight)| count * weight).sum();
                let share = |draws: f64| -> f64 {
                    let touched = classes.iter().map(|(count, weight)| {
                        // The expected number of keys of this weight that so many draws over the whole
                        // database touch.
                        count * -(-draws * keys * weight / total).exp_m1()
                    });
                    touched.sum::<f64>() / keys
                };
                (0..POINTS).map(|i| share((LOG_FIRST + LOG_STEP * i as f64).exp()).ln()).collect()
            }
        };
        Density { shares }
    }

    /// Distinct keys of the content, as a share of the keys of its stretch.
    pub(super) fn of(&self, content: Content) -> f64 {
        1.0 - (1.0 - content.filled) * (1.0 - self.of_draws(content.draws))
    }

    pub(super) fn of_draws(&self, draws: f64) -> f64 {
        if draws <= 0.0 {
            return 0.0;
        }
        if self.shares.is_empty() {
            return -(-draws).exp_m1();
        }
        let at = ((draws.ln() - LOG_FIRST) / LOG_STEP).clamp(0.0, (POINTS - 2) as f64 + 0.999);
        let (i, part) = (at as usize, at.fract());
        (self.shares[i] * (1.0 - part) + self.shares[i + 1] * part).exp().min(draws).min(1.0)
    }
}

/// Zipf's keys as (how many, weight of each): the first thousand one by one, the rest in classes 2 % apart.
fn popularity(theta: f64, keys: f64) -> Vec<(f64, f64)> {
    let mut classes = Vec::new();
    let mut rank = 1.0;
    while rank <= keys {
        let next = if rank < 1000.0 { rank + 1.0 } else { (rank * 1.02).min(keys + 1.0).max(rank + 1e-9) };
        let middle: f64 = if rank < 1000.0 { rank } else { (rank * next).sqrt() };
        classes.push((next - rank, middle.powf(-theta)));
        rank = if next > keys { keys + 1.0 } else { next };
    }
    classes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distinct_counts_agree_with_drawn_keys() {
        let keys = 20_000usize;
        for theta in [0.5, 0.99] {
            let weights: Vec<f64> = (1..=keys).map(|k| (k as f64).powf(-theta)).collect();
            let total: f64 = weights.iter().sum();
            let mut sums: Vec<f64> = Vec::new();
            weights.iter().fold(0.0, |sum, w| {
                sums.push(sum + w / total);
                sum + w / total
            });
            let (mut seen, mut random) = (vec![false; keys], 7);
            for _ in 0..keys {
                random = crate::types::random::after(random);
                let draw = (random >> 11) as f64 / (1u64 << 53) as f64;
                seen[sums.partition_point(|s| *s < draw).min(keys - 1)] = true;
            }
            let drawn = seen.iter().filter(|s| **s).count() as f64 / keys as f64;
            let density = Density::new(Workload::Zipf(theta), keys as f64);
            let expected = density.of(Content { filled: 0.0, draws: 1.0 });
            assert!((drawn - expected).abs() < 0.01, "theta {theta}: {drawn} drawn, {expected} expected");
            let line = super::super::line::Line::new(Workload::Zipf(theta), keys as f64);
            assert!((line.draws_for(&density, expected) - 1.0).abs() < 1e-3);
        }
    }

    #[test]
    fn a_union_has_a_piece_for_every_stretch() {
        let piece = |start, end, filled| Piece { start, end, content: Content { filled, draws: 0.0 } };
        let united = union(&[piece(0, 10, 0.25), piece(5, 20, 0.5), piece(30, 40, 0.125)]);
        assert_eq!(united, [piece(0, 5, 0.25), piece(5, 10, 0.75), piece(10, 20, 0.5), piece(30, 40, 0.125)]);
    }

    #[test]
    fn a_workload_is_parsed_or_refused_by_name() {
        for workload in [Workload::Uniform, Workload::Zipf(0.99), Workload::Head(1.5), Workload::Sorted(0.25)]
        {
            assert_eq!(workload.to_string().parse(), Ok(workload));
        }
        for wrong in ["zipf", "zipf:x", "zipf:9", "hot", "zipf:nan", "uniform:1", "sorted:1.1", "head:-1"] {
            assert!(wrong.parse::<Workload>().is_err(), "{wrong}");
        }
    }
}
