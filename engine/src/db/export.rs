//! Statistics through the crate `metrics` (feature `metrics`), for whatever recorder the program has
//! installed.

use super::Db;
use crate::metrics::FamilyStatistics;
use serde_json::Value;

/// Statistics that are gauges; all others only grow.
const GAUGES: [&str; 17] = [
    "wal_bytes",
    "change_log_bytes",
    "wal_disk_bytes",
    "write_memory",
    "spare_memory",
    "pinned_bytes",
    "sstables",
    "sstable_bytes",
    "compaction_debt_bytes",
    "compactions_running",
    "compaction_rate",
    "snapshots",
    "old_versions",
    "cache_bytes",
    "cache_capacity",
    "sstable_memory_bytes",
    "background_error",
];
/// Statistics of a family that are gauges.
const FAMILY_GAUGES: [&str; 6] =
    ["memory_bytes", "memtables", "l0_runs", "runs", "sstables", "sstable_bytes"];

impl Db {
    /// Hands statistics and latencies to the recorder of the crate `metrics`: call it now and then, or when
    /// somebody scrapes. Names begin with `siltstone_`; what only grows is a counter, all else a gauge;
    /// families have the label `family`. Nanoseconds become whole seconds. Latencies are gauges of
    /// seconds with the label `quantile`.
    /// O(families).
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// let db = siltstone::Db::open(dir.path())?;
    /// db.put("k", "v")?;
    /// db.record_metrics();
    /// # Ok::<(), siltstone::Error>(())
    /// ```
    pub fn record_metrics(&self) {
        let place = self.path().display().to_string();
        for name in self.families() {
            let Ok(family) = self.family(&name) else { continue };
            family.statistics().record(&[("db", place.clone()), ("family", name)]);
        }
        self.record_own_metrics();
    }

    /// Hands the statistics and latencies of the database to the recorder, without those of its families: for
    /// callers that sum these up in another way ([`FamilyStatistics::record`]).
    pub fn record_own_metrics(&self) {
        let place = self.path().display().to_string();
        if let Ok(Value::Object(all)) = serde_json::to_value(self.statistics()) {
            for (name, value) in &all {
                let labels = [("db", place.clone())];
                record(name, value, GAUGES.contains(&name.as_str()), &labels);
            }
        }
        let latencies = self.latencies();
        let histograms = [
            ("get", latencies.get),
            ("write", latencies.write),
            ("write_stall", latencies.write_stall),
            ("flush", latencies.flush),
            ("compaction", latencies.compaction),
        ];
        for (name, histogram) in histograms {
            for share in [0.5, 0.99, 0.999, 1.0] {
                let Some(duration) = histogram.quantile(share) else { continue };
                let labels = [("db", place.clone()), ("quantile", share.to_string())];
                ::metrics::gauge!(format!("siltstone_{name}_seconds"), &labels).set(duration.as_secs_f64());
            }
        }
    }
}

impl FamilyStatistics {
    /// Hands them to the recorder of the crate `metrics`, as [`Db::record_metrics`] does, with these labels.
    pub fn record(&self, labels: &[(&'static str, String)]) {
        if let Ok(Value::Object(all)) = serde_json::to_value(self) {
            for (name, value) in &all {
                record(&format!("family_{name}"), value, FAMILY_GAUGES.contains(&name.as_str()), labels);
            }
        }
    }
}

fn record(name: &str, value: &Value, is_gauge: bool, labels: &[(&'static str, String)]) {
    // A present error counts as 1.
    let number = value.as_u64().unwrap_or(u64::from(value.is_string()));
    let (name, number) = match name.strip_suffix("_ns") {
        Some(name) => (format!("{name}_seconds"), number / 1_000_000_000),
        None => (name.to_string(), number),
    };
    let labels = &labels.to_vec();
    match is_gauge {
        true => ::metrics::gauge!(format!("siltstone_{name}"), labels).set(number as f64),
        false => ::metrics::counter!(format!("siltstone_{name}_total"), labels).absolute(number),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Statistics;

    #[test]
    fn every_name_in_the_lists_of_gauges_is_a_statistic() {
        let of = |value: Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
        let (database, family) = (
            of(serde_json::to_value(Statistics::default()).unwrap()),
            of(serde_json::to_value(FamilyStatistics::default()).unwrap()),
        );
        assert!(GAUGES.iter().all(|name| database.iter().any(|known| known == name)));
        assert!(FAMILY_GAUGES.iter().all(|name| family.iter().any(|known| known == name)));
    }

    #[test]
    fn statistics_reach_the_recorder_that_is_installed() {
        use ::metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};
        use std::sync::Mutex;

        #[derive(Default)]
        struct Names(Mutex<Vec<String>>);
        impl Recorder for Names {
            fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
            fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
            fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
            fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
                self.0.lock().unwrap().push(key.to_string());
                Counter::noop()
            }
            fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
                self.0.lock().unwrap().push(key.to_string());
                Gauge::noop()
            }
            fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
                Histogram::noop()
            }
        }

        let dir = tempfile::tempdir().unwrap();
        let db = Db::open(dir.path()).unwrap();
        db.put("k", "v").unwrap();
        db.flush().unwrap();
        let names = Names::default();
        ::metrics::with_local_recorder(&names, || db.record_metrics());
        let names = names.0.into_inner().unwrap();
        let there = |wanted: &str| names.iter().any(|name| name.contains(wanted));
        assert!(
            there("siltstone_writes_total")
                && there("siltstone_write_memory")
                && there("siltstone_family_runs")
        );
        assert!(there("siltstone_write_delay_seconds_total"));
        assert!(there("siltstone_flush_seconds") && there("quantile = 0.99"), "{names:?}");
    }
}
