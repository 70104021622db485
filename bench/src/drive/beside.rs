//! Latencies beside compactions: those of the seconds in which a compaction of SSTables ran, and those of the
//! others.

use super::latency::{Recorder, add, empty, latency, second};
use super::watch::Look;
use crate::record::BesideMerges;
use hdrhistogram::Histogram;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

/// Nothing if the store does not report its compactions. All recorders began at the same instant.
pub(super) fn of(recorders: &mut [Recorder], looks: &[Look], hit_ratio: Option<f64>) -> Option<BesideMerges> {
    let began = recorders.first()?.began();
    let ended = recorders.iter().map(Recorder::ended).max()?;
    // Before and after it there are other compactions, and while the store settles its debt is smaller.
    let looks: Vec<&Look> = looks.iter().filter(|look| (began..=ended).contains(&look.at)).collect();
    looks.first()?;
    // A compaction that was seen may have run since the check before.
    let number = |at: Instant| at.saturating_duration_since(began).as_secs();
    let before = std::iter::once(began).chain(looks.iter().map(|look| look.at));
    let merging = looks.iter().zip(before).filter(|(look, _)| look.merging);
    let merging: BTreeSet<u64> =
        merging.flat_map(|(look, before)| number(before)..=number(look.at)).collect();
    // A last second that was cut short would be one of few operations.
    let whole = (ended - began).as_secs().max(1);

    let (mut split, mut seconds) = ([BTreeMap::new(), BTreeMap::new()], BTreeMap::new());
    let mut numbers = BTreeSet::new();
    for recorder in recorders {
        for (number, kind, buckets) in recorder.by_second() {
            if number >= whole {
                continue;
            }
            numbers.insert(number);
            let of = &mut split[usize::from(merging.contains(&number))];
            add(of.entry(kind).or_insert_with(empty), buckets);
            let timeline: &mut BTreeMap<u64, Histogram<u64>> = seconds.entry(kind).or_default();
            add(timeline.entry(number).or_insert_with(empty), buckets);
        }
    }
    let [without, with] = split.map(|kinds: BTreeMap<&str, _>| {
        kinds.iter().map(|(kind, histogram)| (kind.to_string(), latency(histogram))).collect()
    });
    let debts: Vec<u64> = looks.iter().filter_map(|look| look.debt).collect();
    let with_seconds = numbers.intersection(&merging).count() as u64;
    Some(BesideMerges {
        with,
        without,
        with_seconds,
        without_seconds: numbers.len() as u64 - with_seconds,
        hit_ratio,
        debt_mean: (!debts.is_empty()).then(|| debts.iter().sum::<u64>() as f64 / debts.len() as f64),
        debt_max: debts.iter().copied().max(),
        timelines: seconds
            .into_iter()
            .map(|(kind, seconds)| {
                let seconds = seconds.iter().map(|(number, histogram)| second(*number, histogram));
                (kind.to_string(), seconds.collect())
            })
            .collect(),
        merging: numbers.intersection(&merging).copied().collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drive::latency::Class;
    use std::time::Duration;

    #[test]
    fn seconds_with_a_compaction_are_told_apart_from_the_others() {
        let began = Instant::now();
        let recorder = |class, us: [u64; 3]| {
            let mut recorder = Recorder::new();
            recorder.begin(began);
            for (second, us) in us.into_iter().enumerate() {
                let at = |tenth: u64| began + Duration::from_millis(1000 * second as u64 + 100 * tenth + 1);
                (0..10).for_each(|tenth| {
                    recorder.record(class, Duration::from_micros(us), at(tenth), 1);
                });
            }
            recorder
        };
        let look = |millis, merging, debt| Look { at: began + Duration::from_millis(millis), merging, debt };
        let looks = [
            look(500, false, Some(10)),
            look(1100, false, None),
            look(1500, true, Some(30)),
            look(2500, false, Some(20)),
            // While the store settles.
            look(3500, true, Some(1000)),
        ];
        let mut recorders = [recorder(Class::Read, [10, 70, 10]), recorder(Class::Write, [5, 5, 6])];
        let told = of(&mut recorders, &looks, Some(0.5)).unwrap();
        // The third second was cut short.
        assert_eq!((told.with_seconds, told.without_seconds, &told.merging[..]), (1, 1, &[1][..]));
        assert!(
            (told.with["read"].max_us - 70.0).abs() < 0.1 && (told.without["read"].max_us - 10.0).abs() < 0.1
        );
        assert_eq!((told.with["write"].count, told.without["write"].count), (10, 10));
        assert_eq!((told.debt_mean, told.debt_max, told.hit_ratio), (Some(20.0), Some(30), Some(0.5)));
        assert_eq!(told.timelines["read"].iter().map(|s| s.ops).collect::<Vec<_>>(), [10, 10]);
        // Just after a second began: the compaction may have run in the one before.
        let early = of(&mut recorders, &[look(900, false, None), look(1100, true, None)], None).unwrap();
        assert_eq!((&early.merging[..], early.debt_max), (&[0, 1][..], None));
        assert!(of(&mut recorders, &[], None).is_none(), "a store that does not tell");
    }
}
