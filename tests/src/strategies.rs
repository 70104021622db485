//! Strategies with settings for tiny stores, for the campaigns to draw from.

use siltstone::storage::sim::Rng;
use siltstone::strategy::{METHODS, StrategyOptions};

/// Settings beside those of the engine's `METHODS`, so that each has some value that is not the default.
const SETTINGS: [&str; 6] = [
    "auto{runs_max=4}",
    "auto",
    "exploring{min_runs=2, max_runs=4, blocking_runs=5}",
    "rangemerge{victim=most-bytes}",
    "rangemerge{deltas_max=2}",
    "exploring{min_runs=2, max_bytes=20000, ratio=0.8, off_peak_ratio=3, off_peak_start=6, off_peak_end=2, \
     major_period_s=300, major_jitter=1}",
];

/// All beside `leveled`, whose settings are options of their own in `settings`.
pub fn others() -> impl Iterator<Item = &'static str> {
    METHODS.iter().copied().filter(|method| *method != "leveled").chain(SETTINGS)
}

/// One of the others, with SSTables of that size.
pub fn other(which: usize, sstable_bytes: u64) -> StrategyOptions {
    let text = others().nth(which).expect("one of them");
    let strategy: StrategyOptions = text.parse().expect("a strategy as it should be written");
    strategy.with_sstable_bytes(sstable_bytes)
}

/// One of the others, drawn, with SSTables of that size.
pub fn draw_other(rng: &mut Rng, sstable_bytes: u64) -> StrategyOptions {
    other(rng.index(others().count()), sstable_bytes)
}

/// Any strategy.
pub fn draw(rng: &mut Rng) -> StrategyOptions {
    let sstable_bytes = *rng.pick(&[4096, 10_000, 1 << 20]);
    if rng.chance(60) {
        return draw_other(rng, sstable_bytes);
    }
    let leveled = format!(
        "leveled{{l0_runs_trigger={}, multiplier=2, base_bytes={}, sstable_bytes={sstable_bytes}{}}}",
        rng.range(1..5),
        rng.pick(&[4096, 16384]),
        rng.pick(&["", ", defer_below=0.4", ", defer_below=0.9, defer_runs_max=8", ", candidates=1"]),
    );
    leveled.parse().expect("the strategy is written as it should be")
}
