//! Strategies with settings for tiny stores, for the campaigns to draw from.

use siltstone::storage::sim::Rng;
use siltstone::strategy::StrategyOptions;

/// Beside `leveled`, whose settings are options of their own in `settings`. Sizes of tables are added.
pub const OTHERS: &[&str] = &[
    "auto{runs_max=4",
    "auto{",
    "sma{k=2",
    "sma{k=4",
    "nomerge{",
    "geometric{r=2",
    "geometric{r=3",
    "geometric{p=2",
    "remerge{",
    "exploring{min_runs=2, max_runs=4, blocking_runs=5",
    "rangemerge{victim=most-bytes",
    "rangemerge{",
    "rangemerge{deltas=2",
    "exploring{min_runs=2, max_bytes=20000, ratio=0.8, off_peak_ratio=3, off_peak_start=6, off_peak_end=2, \
     major_period_s=300, major_jitter=1",
];

/// One of the others, with tables of that size.
pub fn other(which: usize, table_bytes: u64) -> StrategyOptions {
    let start = OTHERS[which];
    let comma = if start.ends_with('{') { "" } else { ", " };
    let size = if start.starts_with("rangemerge") { "f" } else { "table_bytes" };
    format!("{start}{comma}{size}={table_bytes}}}").parse().expect("a strategy as it should be written")
}

/// Any strategy.
pub fn draw(rng: &mut Rng) -> StrategyOptions {
    let table_bytes = *rng.pick(&[4096, 10_000, 1 << 20]);
    if rng.chance(60) {
        return other(rng.index(OTHERS.len()), table_bytes);
    }
    let leveled = format!(
        "leveled{{l0_runs_trigger={}, multiplier=2, base_bytes={}, table_bytes={table_bytes}{}}}",
        rng.range(1..5),
        rng.pick(&[4096, 16384]),
        rng.pick(&["", ", defer_below=0.4", ", defer_below=0.9, defer_runs_max=8", ", candidates=1"]),
    );
    leveled.parse().expect("the strategy is written as it should be")
}
