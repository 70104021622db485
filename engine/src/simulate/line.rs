//! The key line, and the distribution of puts on it. It is cut into stretches over which a workload is even:
//! one for keys that are scattered, many where popular keys are neighbours or keys come in order. The content
//! of an SSTable or a range of memory has one piece per stretch (`content`), so it stays small however often
//! it is compacted.

use super::KEYS_END;
use super::content::{Content, Density, LOG_FIRST, LOG_LAST, Piece, Workload};

/// Number of stretches for keys in order; the filled part ends somewhere in one of them.
const PARTS_IN_ORDER: u64 = 256;

#[derive(Clone, Copy, Debug)]
pub(super) enum Put {
    /// Keys that are put for the first time: this share of all keys, after that share.
    New { from: f64, share: f64 },
    /// This many draws from the workload, per key of the database.
    Draws(f64),
}

impl Put {
    /// The `i`-th of `of` equal parts.
    pub(super) fn part(self, i: u32, of: u32) -> Put {
        let part = 1.0 / f64::from(of);
        match self {
            Put::New { from, share } => {
                Put::New { from: from + share * part * f64::from(i), share: share * part }
            }
            Put::Draws(draws) => Put::Draws(draws * part),
        }
    }

    /// The number of puts, per key of the database.
    pub(super) fn per_key(self) -> f64 {
        match self {
            Put::New { share, .. } => share,
            Put::Draws(draws) => draws,
        }
    }
}

/// A stretch, and its draws as a multiple of the average.
#[derive(Clone, Copy, Debug)]
struct Stretch {
    start: u64,
    end: u64,
    weight: f64,
}

impl Stretch {
    fn share(&self) -> f64 {
        (self.end - self.start) as f64 / KEYS_END as f64
    }
}

pub(super) struct Line {
    stretches: Vec<Stretch>,
    /// The share of first puts that comes in key order.
    in_order: f64,
}

impl Line {
    pub(super) fn new(workload: Workload, keys: f64) -> Self {
        let (stretches, in_order) = match workload {
            Workload::Uniform | Workload::Zipf(_) => {
                (vec![Stretch { start: 0, end: KEYS_END, weight: 1.0 }], 0.0)
            }
            Workload::Sorted(share) => {
                let bound = |i| KEYS_END / PARTS_IN_ORDER * i;
                let part = |i| Stretch { start: bound(i), end: bound(i + 1), weight: 1.0 };
                ((0..PARTS_IN_ORDER).map(part).collect(), share)
            }
            Workload::Head(theta) => (head(theta, keys), 0.0),
        };
        Line { stretches, in_order }
    }

    /// The pieces that a put adds, in key order; stretches that get nothing are left out.
    pub(super) fn pieces(&self, put: Put) -> Vec<Piece> {
        let mut pieces = Vec::with_capacity(self.stretches.len() + 2);
        for stretch in &self.stretches {
            let Stretch { start, end, weight } = *stretch;
            match put {
                Put::Draws(draws) => {
                    let content = Content { filled: 0.0, draws: draws * weight };
                    pieces.push(Piece { start, end, content });
                }
                Put::New { from, share } => {
                    let even = share * (1.0 - self.in_order);
                    let place = |share: f64| ((share * KEYS_END as f64) as u64).clamp(start, end);
                    let window = match self.in_order > 0.0 {
                        true => (place(from), place(from + share)),
                        false => (start, start),
                    };
                    for (start, end, filled) in [
                        (start, window.0, even),
                        (window.0, window.1, even + self.in_order),
                        (window.1, end, even),
                    ] {
                        if start < end && (filled > 0.0 || self.in_order == 0.0) {
                            pieces.push(Piece { start, end, content: Content { filled, draws: 0.0 } });
                        }
                    }
                }
            }
        }
        pieces
    }

    /// `pieces` averaged to one piece per stretch, from the first key with content to the last. The pieces
    /// are in key order, and each lies in one stretch.
    pub(super) fn even(&self, pieces: &[Piece]) -> Vec<Piece> {
        let mut even: Vec<Piece> = Vec::new();
        let mut rest = pieces;
        while let Some(first) = rest.first() {
            let after = self.stretches.partition_point(|stretch| stretch.end <= first.start);
            let end = self.stretches.get(after).map_or(KEYS_END, |stretch| stretch.end);
            let (of_one, others) = rest.split_at(rest.partition_point(|piece| piece.start < end));
            let (start, end) = (first.start, of_one[of_one.len() - 1].end);
            let mean = |part: fn(&Content) -> f64| {
                let sum: f64 = of_one.iter().map(|p| part(&p.content) * (p.end - p.start) as f64).sum();
                sum / (end - start) as f64
            };
            let content = Content { filled: mean(|c| c.filled), draws: mean(|c| c.draws) };
            even.push(Piece { start, end, content });
            rest = others;
        }
        even
    }

    /// The number of draws per key that touch this share of all keys.
    pub(super) fn draws_for(&self, density: &Density, share: f64) -> f64 {
        let touched = |draws: f64| -> f64 {
            self.stretches.iter().map(|s| s.share() * density.of_draws(draws * s.weight)).sum()
        };
        let (mut low, mut high) = (LOG_FIRST, LOG_LAST);
        for _ in 0..100 {
            let middle = (low + high) / 2.0;
            if touched(middle.exp()) < share { low = middle } else { high = middle }
        }
        low.exp()
    }
}

/// Zipf's keys by rank from the beginning of the line on, in stretches each twice as long as the one before.
fn head(theta: f64, keys: f64) -> Vec<Stretch> {
    let place = |rank: f64| ((rank - 1.0) / keys * KEYS_END as f64) as u64;
    let mut stretches = Vec::new();
    let mut rank = 1.0;
    while rank <= keys {
        let next = if 2.0 * rank > keys { keys + 1.0 } else { 2.0 * rank };
        // The integral of rank to the minus theta over half a rank to each side.
        let (a, b) = (rank - 0.5, next - 0.5);
        let drawn = match theta == 1.0 {
            true => (b / a).ln(),
            false => (b.powf(1.0 - theta) - a.powf(1.0 - theta)) / (1.0 - theta),
        };
        stretches.push(Stretch { start: place(rank), end: place(next).min(KEYS_END), weight: drawn });
        rank = next;
    }
    let total: f64 = stretches.iter().map(|stretch| stretch.weight).sum();
    stretches.iter_mut().for_each(|stretch| stretch.weight /= total * stretch.share());
    stretches
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(pieces: &[Piece], part: fn(&Content) -> f64) -> f64 {
        pieces.iter().map(|p| part(&p.content) * (p.end - p.start) as f64 / KEYS_END as f64).sum()
    }

    #[test]
    fn a_fill_puts_every_key_once_whatever_share_comes_in_order() {
        for share in [0.0, 0.3, 1.0] {
            let line = Line::new(Workload::Sorted(share), 1e6);
            let whole = Put::New { from: 0.0, share: 1.0 };
            let parts: Vec<Vec<Piece>> = (0..7).map(|i| line.pieces(whole.part(i, 7))).collect();
            for pieces in &parts {
                assert!((sum(pieces, |c| c.filled) - 1.0 / 7.0).abs() < 1e-9);
                let evened = line.even(pieces);
                assert!((sum(&evened, |c| c.filled) - 1.0 / 7.0).abs() < 1e-9, "a mean loses nothing");
                assert!(evened.len() <= pieces.len() && evened.len() <= PARTS_IN_ORDER as usize);
            }
            let all = line.even(&super::super::content::union(&parts.concat()));
            assert!(all.iter().all(|piece| (piece.content.filled - 1.0).abs() < 1e-6), "{share}");
        }
        let line = Line::new(Workload::Sorted(1.0), 1e6);
        let pieces = line.pieces(Put::New { from: 0.25, share: 0.1 });
        let at = |place: u64| place as f64 / KEYS_END as f64;
        let (first, last) = (at(pieces[0].start), at(pieces[pieces.len() - 1].end));
        assert!((first - 0.25).abs() < 1e-9 && (last - 0.35).abs() < 1e-9, "in order: {first} to {last}");
    }

    #[test]
    fn the_head_of_the_line_is_drawn_as_zipf_says() {
        for theta in [0.5, 0.99, 1.0, 1.5] {
            let keys = 100_000.0;
            let line = Line::new(Workload::Head(theta), keys);
            let drawn = line.pieces(Put::Draws(1.0));
            assert!((sum(&drawn, |c| c.draws) - 1.0).abs() < 1e-9);
            let weight = |ranks: u32| (1..=ranks).map(|rank| f64::from(rank).powf(-theta)).sum::<f64>();
            let popular = sum(&drawn[..10], |c| c.draws);
            let expected = weight(1023) / weight(100_000);
            assert!((popular / expected - 1.0).abs() < 0.03, "{theta}: {popular}, not {expected}");
        }
    }

    #[test]
    fn draws_for_a_share_touch_that_share() {
        for workload in [Workload::Uniform, Workload::Zipf(0.99), Workload::Head(0.99)] {
            let (line, density) = (Line::new(workload, 1e6), Density::new(workload, 1e6));
            let draws = line.draws_for(&density, 0.05);
            let share = |p: &Piece| density.of(p.content) * (p.end - p.start) as f64 / KEYS_END as f64;
            let touched: f64 = line.pieces(Put::Draws(draws)).iter().map(share).sum();
            assert!((touched - 0.05).abs() < 1e-6, "{workload}: {touched}");
        }
    }
}
