//! Regions that were busy: what ListHotTablets tells.
//!
//! The measure is a region's traffic ([`crate::tables::traffic`]): ranges read and cells written a second, as
//! a share of the rate at which a region is split (`region-rate`). It is sampled every ten seconds. For each
//! region that had a fifth of that or more, the busiest sample of each quarter of an hour stays in memory,
//! for 14 days at most; a restart forgets all.

use crate::cells::row_key;
use crate::config::Config;
use crate::proto::admin::{HotTablet, ListHotTabletsRequest, ListHotTabletsResponse};
use crate::tables::layout::Layout;
use crate::tables::registry::Tables;
use parking_lot::Mutex;
use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use tonic::Status;

/// Percent of the rate from which a region is hot.
const HOT: f64 = 20.0;
/// The rate that counts as 100 percent if regions are not split by traffic.
const RATE: f64 = 20_000.0;
/// Microseconds.
const SECOND: u64 = 1_000_000;
const LOOK: u64 = 10 * SECOND;
const INTERVAL: u64 = 15 * 60 * SECOND;
const HOUR: u64 = 3_600 * SECOND;
const KEPT: u64 = 14 * 24 * HOUR;
const RANGE_MAX: u64 = 48 * HOUR;
/// The most regions of an interval, and the most bytes of all samples.
const REGIONS_MAX: usize = 100;
const BYTES_MAX: usize = 4 << 20;
/// Tablets of one page.
const PAGE: usize = 1_000;

/// A region when it was busiest.
#[derive(Clone, Debug)]
struct Hot {
    percent: f64,
    /// When that was seen.
    at_us: u64,
    end: Vec<u8>,
}

/// Which region: its table, and the key it begins with.
type Region = (Arc<str>, Arc<[u8]>);

#[derive(Debug, Default)]
struct Interval {
    /// Which quarter of an hour since 1970.
    number: u64,
    regions: BTreeMap<Region, Hot>,
}

impl Interval {
    fn bytes(&self) -> usize {
        let of = |((table, start), hot): (&Region, &Hot)| table.len() + start.len() + hot.end.len() + 200;
        self.regions.iter().map(of).sum()
    }

    fn note(&mut self, region: Region, hot: Hot) {
        match self.regions.get_mut(&region) {
            Some(known) if known.percent >= hot.percent => {}
            Some(known) => *known = hot,
            None => drop(self.regions.insert(region, hot)),
        }
        if self.regions.len() > REGIONS_MAX {
            let coldest = self.regions.iter().min_by(|a, b| a.1.percent.total_cmp(&b.1.percent));
            if let Some(coldest) = coldest.map(|(region, _)| region.clone()) {
                self.regions.remove(&coldest);
            }
        }
    }
}

/// A request of hot tablets.
#[derive(Debug)]
pub(crate) struct Asked {
    from_us: u64,
    to_us: u64,
    page: usize,
    /// Tablets that were on pages before.
    skipped: usize,
}

impl Asked {
    /// # Errors
    /// What is wrong with the request, by its field.
    pub(crate) fn new(request: &ListHotTabletsRequest, now_us: u64) -> Result<Self, Status> {
        let us = |time: &prost_types::Timestamp| crate::time::micros(time.seconds, time.nanos).unwrap_or(0);
        let to_us = request.end_time.as_ref().map_or(now_us, us);
        let from_us = request.start_time.as_ref().map_or(to_us.saturating_sub(24 * HOUR), us);
        let wrong = |what: &str| Err(Status::invalid_argument(what));
        if from_us >= to_us {
            return wrong("start_time is not before end_time");
        }
        if to_us - from_us > RANGE_MAX {
            return wrong("start_time and end_time are more than 48 hours apart");
        }
        if from_us < now_us.saturating_sub(KEPT) {
            return wrong("start_time is more than 14 days ago");
        }
        let page = crate::names::page_size(request.page_size, PAGE)?;
        let skipped = match request.page_token.as_str() {
            "" => 0,
            token => {
                token.parse().map_err(|_| Status::invalid_argument("page_token is none of this server"))?
            }
        };
        Ok(Self { from_us, to_us, page, skipped })
    }
}

/// All that were hot.
pub(crate) struct HotTablets {
    /// The rate of which a region's traffic is a share.
    rate: f64,
    intervals: Mutex<VecDeque<Interval>>,
}

impl HotTablets {
    #[expect(clippy::cast_precision_loss, reason = "a rate")]
    pub(crate) fn new(config: &Config) -> Self {
        let rate = if config.region_rate == 0 { RATE } else { config.region_rate as f64 };
        Self { rate, intervals: Mutex::default() }
    }

    /// Samples the traffic of all regions.
    pub(crate) fn look(&self, tables: &Tables, now_us: u64) {
        for (name, table) in tables.all().iter() {
            let mut hot = busy(&table.now());
            hot.retain(|(_, rate, _)| rate * 100.0 / self.rate >= HOT);
            if hot.is_empty() {
                continue;
            }
            let name: Arc<str> = name.as_str().into();
            let mut intervals = self.intervals.lock();
            let interval = current(&mut intervals, now_us / INTERVAL);
            for (start, rate, end) in hot {
                let percent = (rate * 100.0 / self.rate).min(100.0);
                interval.note((name.clone(), start), Hot { percent, at_us: now_us, end });
            }
        }
        let mut intervals = self.intervals.lock();
        let oldest = now_us.saturating_sub(KEPT) / INTERVAL;
        intervals.retain(|interval| interval.number >= oldest);
        while intervals.len() > 1 && intervals.iter().map(Interval::bytes).sum::<usize>() > BYTES_MAX {
            intervals.pop_front();
        }
    }

    /// Hot tablets of a cluster that are asked for, of tables of its instance that may be known of; the
    /// hottest first.
    pub(crate) fn list(
        &self,
        cluster: &str,
        asked: &Asked,
        sees: impl Fn(&str) -> bool,
    ) -> ListHotTabletsResponse {
        let begin = format!("{}/tables/", crate::names::instance_of(cluster));
        let mut found = Vec::new();
        for interval in self.intervals.lock().iter() {
            let all = interval.regions.iter();
            for ((table, start), hot) in
                all.filter(|((table, _), _)| table.starts_with(&begin) && sees(table))
            {
                let from_us = hot.at_us.saturating_sub(LOOK);
                if (asked.from_us..=asked.to_us).contains(&from_us) {
                    found.push(message(cluster, table, start, hot, from_us));
                }
            }
        }
        found.sort_by(|a, b| {
            b.node_cpu_usage_percent.total_cmp(&a.node_cpu_usage_percent).then_with(|| a.name.cmp(&b.name))
        });
        let behind = asked.skipped.saturating_add(asked.page);
        let next_page_token = if found.len() > behind { behind.to_string() } else { String::new() };
        let hot_tablets = found.into_iter().skip(asked.skipped).take(asked.page).collect();
        ListHotTabletsResponse { hot_tablets, next_page_token }
    }
}

/// The interval of that number, which is the last; those that a clock that was set back has made later go.
fn current(intervals: &mut VecDeque<Interval>, number: u64) -> &mut Interval {
    while intervals.back().is_some_and(|last| last.number > number) {
        intervals.pop_back();
    }
    if intervals.back().is_none_or(|last| last.number < number) {
        intervals.push_back(Interval { number, ..Interval::default() });
    }
    let last = intervals.len() - 1;
    &mut intervals[last]
}

/// Where the regions of a table begin that are used, how busy each is over all families, and where it ends.
fn busy(layout: &Layout) -> Vec<(Arc<[u8]>, f64, Vec<u8>)> {
    let mut rates: BTreeMap<Arc<[u8]>, (f64, Vec<u8>)> = BTreeMap::new();
    for family in &layout.families {
        for (at, region) in family.regions.iter().enumerate() {
            let rate = region.traffic.rate();
            if rate > 0.0 {
                let end = || family.regions.get(at + 1).map_or(Vec::new(), |next| next.start.to_vec());
                rates.entry(region.start.clone()).or_insert_with(|| (0.0, end())).0 += rate;
            }
        }
    }
    rates.into_iter().map(|(start, (rate, end))| (start, rate, end)).collect()
}

/// The row of a key as text; where it is none, with escapes.
fn row_text(key: &[u8]) -> String {
    let row = row_key::row_len(key).map_or_else(Cow::default, |len| row_key::row_of(&key[..len]));
    match std::str::from_utf8(&row) {
        Ok(text) => text.to_string(),
        Err(_) => row.escape_ascii().to_string(),
    }
}

#[expect(clippy::cast_possible_truncation, reason = "a percentage")]
fn message(cluster: &str, table: &str, start: &[u8], hot: &Hot, from_us: u64) -> HotTablet {
    let id = crate::names::fingerprint(&[table.as_bytes(), start, &hot.at_us.to_be_bytes()].concat());
    HotTablet {
        name: format!("{cluster}/hotTablets/{id}"),
        table_name: table.to_string(),
        start_time: Some(crate::time::timestamp(from_us)),
        end_time: Some(crate::time::timestamp(hot.at_us)),
        start_key: row_text(start),
        end_key: row_text(&hot.end),
        node_cpu_usage_percent: hot.percent as f32,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLUSTER: &str = "projects/p/instances/i/clusters/c";
    /// In the middle of an interval.
    const NOW: u64 = 100_000 * INTERVAL + INTERVAL / 2;

    fn hot() -> HotTablets {
        HotTablets::new(&Config { region_rate: 0, ..Config::default() })
    }

    fn note(hot: &HotTablets, instance: &str, row: &str, percent: f64, at_us: u64) {
        let region = (
            format!("projects/p/instances/{instance}/tables/t").into(),
            row_key::row_start(row.as_bytes()).into(),
        );
        let seen = Hot { percent, at_us, end: Vec::new() };
        current(&mut hot.intervals.lock(), at_us / INTERVAL).note(region, seen);
    }

    fn listed(hot: &HotTablets, request: &ListHotTabletsRequest) -> (Vec<(String, f32)>, String) {
        let answer = hot.list(CLUSTER, &Asked::new(request, NOW).unwrap(), |_| true);
        let of = |tablet: HotTablet| (tablet.start_key, tablet.node_cpu_usage_percent);
        (answer.hot_tablets.into_iter().map(of).collect(), answer.next_page_token)
    }

    fn at(us: u64) -> Option<prost_types::Timestamp> {
        Some(crate::time::timestamp(us))
    }

    #[test]
    fn the_busiest_look_of_each_interval_is_told_the_hottest_first() {
        let hot = hot();
        note(&hot, "i", "a", 30.0, NOW - INTERVAL);
        note(&hot, "i", "a", 50.0, NOW);
        note(&hot, "i", "a", 40.0, NOW + SECOND);
        note(&hot, "i", "b", 90.0, NOW);
        note(&hot, "other", "c", 99.0, NOW);
        let all =
            ["b", "a", "a"].map(String::from).into_iter().zip([90.0_f32, 50.0, 30.0]).collect::<Vec<_>>();
        let request = ListHotTabletsRequest::default();
        assert_eq!(listed(&hot, &request), (all.clone(), String::new()));
        let (first, token) = listed(&hot, &ListHotTabletsRequest { page_size: 2, ..request.clone() });
        let second = ListHotTabletsRequest { page_size: 2, page_token: token, ..request.clone() };
        assert_eq!(
            ([first, listed(&hot, &second).0].concat(), listed(&hot, &second).1),
            (all, String::new())
        );
        let earlier = ListHotTabletsRequest { end_time: at(NOW - INTERVAL), ..request };
        assert_eq!(listed(&hot, &earlier).0, [("a".to_string(), 30.0_f32)]);
        let none = hot.list(CLUSTER, &Asked::new(&earlier, NOW).unwrap(), |_| false);
        assert!(none.hot_tablets.is_empty());
    }

    #[test]
    fn what_is_kept_has_a_limit_and_the_coldest_go() {
        let hot = hot();
        let most = u32::try_from(REGIONS_MAX).unwrap();
        (0..=most).for_each(|n| note(&hot, "i", &format!("{n:04}"), 20.0 + f64::from(n) / 2.0, NOW));
        let (listed, _) = listed(&hot, &ListHotTabletsRequest::default());
        assert_eq!(listed.len(), REGIONS_MAX);
        assert!(listed.iter().all(|(row, _)| row != "0000"));
    }

    #[test]
    fn times_that_cannot_be_asked_for_are_refused() {
        let asked = |start_time, end_time| {
            let request = ListHotTabletsRequest { start_time, end_time, ..Default::default() };
            Asked::new(&request, NOW).map_err(|e| e.message().to_string())
        };
        assert!(asked(None, None).is_ok() && asked(at(NOW - 48 * HOUR), at(NOW)).is_ok());
        for (from, to, word) in
            [(NOW, NOW, "before"), (NOW - 49 * HOUR, NOW, "48"), (NOW - KEPT - HOUR, NOW - KEPT, "14 days")]
        {
            let refused = asked(at(from), at(to)).unwrap_err();
            assert!(refused.contains(word), "{refused}");
        }
        let page = ListHotTabletsRequest { page_token: "x".into(), ..Default::default() };
        assert!(Asked::new(&page, NOW).is_err());
    }
}
