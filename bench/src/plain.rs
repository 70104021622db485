//! Records as a short table: medians over rounds, then ratios.

use crate::compare::median;
use crate::record::{RatioRecord, RefusalRecord, RunRecord};
use std::fmt::Write;

pub(crate) fn table(runs: &[RunRecord], ratios: &[RatioRecord], refusals: &[RefusalRecord]) -> String {
    let mut text = format!(
        "{:22} {:20} {:>10} {:>21} {:>8} {:>9} {:>9} {:>10} {:>6} {:>6} {:>8}\n",
        "workload",
        "store",
        "ops/s",
        "min..max",
        "CPU us",
        "p50 us",
        "p99 us",
        "p99.9 us",
        "WA",
        "SA",
        "RSS MiB"
    );
    let mut done: Vec<(&str, &str, &str)> = Vec::new();
    for run in runs {
        let of = |run: &'_ RunRecord| (run.workload.clone(), run.store.clone(), run.config.clone());
        if done.contains(&(&run.workload, &run.store, &run.config)) {
            continue;
        }
        done.push((&run.workload, &run.store, &run.config));
        let same: Vec<&RunRecord> = runs.iter().filter(|other| of(other) == of(run)).collect();
        let sorted = |figure: fn(&RunRecord) -> f64| {
            let mut values: Vec<f64> = same.iter().map(|run| figure(run)).collect();
            values.sort_by(f64::total_cmp);
            values
        };
        let mid = |figure: fn(&RunRecord) -> f64| median(&sorted(figure));
        let rates = sorted(|run| run.ops_s);
        let mark = if run.compression == "none" { "*" } else { "" };
        let _ = writeln!(
            text,
            "{:22} {:20} {:>10.0} {:>21} {:>8.2} {:>9.2} {:>9.1} {:>10.1} {:>6.2} {:>6.2} {:>8.0}",
            run.workload,
            format!("{}:{}{mark}", run.store, run.config),
            median(&rates),
            format!("{:.0}..{:.0}", rates[0], rates[rates.len() - 1]),
            mid(|run| run.cpu_us_op),
            mid(|run| run.p50_us),
            mid(|run| run.p99_us),
            mid(|run| run.p999_us),
            mid(|run| run.write_amp.unwrap_or(0.0)),
            mid(|run| run.space_amp.unwrap_or(0.0)),
            mid(|run| run.peak_rss_bytes as f64 / (1 << 20) as f64),
        );
    }
    for ratio in ratios {
        let RatioRecord { workload, metric, a, b, median, min, max, .. } = ratio;
        let _ = writeln!(text, "{workload:22} {metric:20} {a} / {b} = {median:.2} ({min:.2}..{max:.2})");
    }
    for refusal in refusals {
        let RefusalRecord { workload, a, b, why, .. } = refusal;
        let _ = writeln!(text, "{workload:22} no ratio of {a} to {b}: {why}");
    }
    if runs.iter().any(|run| run.compression == "none") {
        text.push_str("* uncompressed\n");
    }
    text
}
