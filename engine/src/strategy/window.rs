//! The choice of runs adjacent in age and of about one size, as in HBase (OFF-8): of all windows that keep
//! the ratio, the one of most runs.

use std::ops::Range;

/// HBase's default ratio: each run has at most so many times the bytes of the others together.
pub(super) const RATIO: f64 = 1.2;

pub(super) struct WindowRules {
    pub(super) min_runs: usize,
    pub(super) max_runs: usize,
    pub(super) max_bytes: u64,
}

impl Default for WindowRules {
    fn default() -> Self {
        Self { min_runs: 3, max_runs: 10, max_bytes: u64::MAX }
    }
}

impl WindowRules {
    /// The best window of these runs, oldest first, and whether it keeps the ratio. If the selection is
    /// `stuck`, a window is found even if none keeps it.
    pub(super) fn select(
        &self,
        sizes: &[u64],
        stuck: bool,
        flush_bytes: u64,
        ratio: f64,
    ) -> Option<(Range<usize>, bool)> {
        let (mut best, mut smallest) = (None::<Window>, None::<Window>);
        for start in 0..sizes.len() {
            let most = sizes.len().min(start.saturating_add(self.max_runs));
            for end in start + self.min_runs..=most {
                let window = Window { start, end, bytes: sizes[start..end].iter().sum() };
                if smallest.is_none_or(|smallest| window.bytes < smallest.bytes) {
                    smallest = Some(window);
                }
                let in_ratio = || {
                    sizes[start..end].iter().all(|size| *size as f64 <= (window.bytes - size) as f64 * ratio)
                };
                if window.bytes <= self.max_bytes
                    && (window.bytes < flush_bytes || in_ratio())
                    && best.is_none_or(|best| window.is_better_than(&best, stuck))
                {
                    best = Some(window);
                }
            }
        }
        let range = |window: Window| window.start..window.end;
        best.map(|best| (range(best), true)).or(smallest.filter(|_| stuck).map(|least| (range(least), false)))
    }
}

#[derive(Clone, Copy)]
struct Window {
    start: usize,
    end: usize,
    bytes: u64,
}

/// The factor by which a window must remove more runs a byte than the best to be better, while stuck.
const BETTER_BY: f64 = 1.05;

impl Window {
    fn is_better_than(&self, best: &Window, stuck: bool) -> bool {
        let runs = |window: &Window| window.end - window.start;
        if stuck && best.bytes > 0 {
            let gain = |window: &Window| runs(window) as f64 / window.bytes.max(1) as f64;
            return gain(self) > gain(best) * BETTER_BY;
        }
        (runs(self), std::cmp::Reverse(self.bytes)) > (runs(best), std::cmp::Reverse(best.bytes))
    }
}
