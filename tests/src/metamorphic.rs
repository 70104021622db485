//! One list of calls, many configurations: what readers see must not depend on how large memory, tables, blocks or
//! steps are, on compression, filters, workers, or when merges happen. Together the configurations of a list have every
//! pair of values that two options can have (`settings` has the values, `pairs` makes the rows and counts). A list that
//! gives two histories is cut down by halves as long as it still does.

use crate::campaign::{CaseResult, Row};
use crate::model::Op;
use crate::pairs::{Pairs, covering};
use crate::settings;
use crate::strategies;
use crate::subject::{Merges, Setup, Subject, Tables, bounds, change_strategy, draw_memory, rows};
use siltstone::storage::Clock;
use siltstone::storage::sim::{Rng, SimWorld};
use siltstone::strategy::StrategyOptions;
use siltstone::{Durability, KeyRange, Snapshot};

/// Wrong results by configuration.
pub const METAMORPHIC: Row = Row::new("metamorphic", "runs of 5,000 calls", 40, metamorphic_case);

const CALLS: usize = 5_000;
/// A list has at least as many configurations.
const CONFIGURATIONS: usize = 40;
/// A list is cut down by at most this many tries.
const TRIES_MAX: u32 = 300;

#[derive(Clone, Debug)]
enum Call {
    Write(Vec<Op>),
    Get(usize, Vec<u8>),
    Scan(usize, KeyRange, bool),
    TakeSnapshot,
    ReadSnapshot(usize, KeyRange),
    Flush,
    Compact(usize, KeyRange),
    Strategy(usize, StrategyOptions),
    /// Another division of memory, drawn from this.
    Memory(u64),
    Reopen,
}

fn draw_calls(setup: &Setup, rng: &mut Rng) -> Vec<Call> {
    let mut draw = || {
        let family = rng.index(setup.families.len());
        match rng.range(0..200) {
            0..120 => Call::Write(setup.batch(rng, 0)),
            120..150 => Call::Get(family, setup.key(rng)),
            150..175 => Call::Scan(family, setup.range(rng), rng.chance(50)),
            175..180 => Call::TakeSnapshot,
            180..193 => Call::ReadSnapshot(family, setup.range(rng)),
            193..195 => Call::Flush,
            195..197 => Call::Compact(family, setup.range(rng)),
            197 => Call::Memory(rng.next_u64()),
            198 => Call::Strategy(family, strategies::draw(rng)),
            _ => Call::Reopen,
        }
    };
    (0..CALLS).map(|_| draw()).collect()
}

/// The same families with the settings of that row.
fn configuration(base: &Setup, row: &[usize]) -> Setup {
    let mut setup = base.clone();
    let mut families: Vec<_> = setup.families.iter_mut().map(|family| &mut family.options).collect();
    settings::set(row, &mut setup.options, &mut families);
    setup.merges = match digest(row) {
        drawn if drawn % 6 == 0 => Merges::Elsewhere,
        drawn if drawn % 6 == 1 => Merges::Faulty(drawn),
        _ => Merges::Here,
    };
    setup.tables = match digest(row) / 6 {
        drawn if drawn % 6 == 0 => Tables::Directory,
        drawn if drawn % 6 == 1 => Tables::Objects,
        _ => Tables::Beside,
    };
    setup
}

fn digest(what: impl std::hash::Hash) -> u64 {
    use std::hash::Hasher;
    let mut hasher = std::hash::DefaultHasher::new();
    what.hash(&mut hasher);
    hasher.finish()
}

/// What each call showed.
fn history(setup: &Setup, seed: u64, calls: &[Call]) -> Result<Vec<u64>, String> {
    let world = SimWorld::new(seed);
    let mut subject = Subject::open(setup, &world).map_err(|e| format!("open: {e:?}"))?;
    let mut snapshots: Vec<Snapshot> = Vec::new();
    let mut shown = Vec::with_capacity(calls.len());
    for (i, call) in calls.iter().enumerate() {
        let at = |e: siltstone::Error| format!("call {i}: {e:?}");
        shown.push(match call {
            Call::Write(ops) => {
                subject.write(setup, ops, Durability::Buffered).map_err(at)?;
                subject.scheduler.run(i as u32 % 3);
                0
            }
            Call::Get(family, key) => {
                let versions = subject.families[*family].get_versions(key, 3).map_err(at)?;
                digest(versions.iter().map(|(t, v)| (t.0, v.to_vec())).collect::<Vec<_>>())
            }
            Call::Scan(family, range, back) => {
                let scan = subject.families[*family].scan::<&[u8]>(bounds(range));
                digest(if *back { rows(scan.rev()) } else { rows(scan) }.map_err(at)?)
            }
            Call::TakeSnapshot => {
                snapshots.push(subject.db.snapshot());
                if snapshots.len() > 4 {
                    snapshots.remove(0);
                }
                0
            }
            Call::ReadSnapshot(family, range) => match snapshots.first() {
                None => 0,
                Some(snapshot) => {
                    let of = subject.families[*family].at(snapshot);
                    digest(rows(of.scan::<&[u8]>(bounds(range))).map_err(at)?)
                }
            },
            Call::Flush => subject.db.flush().map(|()| 0).map_err(at)?,
            Call::Compact(family, range) => {
                subject.families[*family].compact::<&[u8]>(bounds(range)).map(|()| 0).map_err(at)?
            }
            Call::Strategy(family, strategy) => {
                change_strategy(&subject.families[*family], strategy.clone()).map(|()| 0).map_err(at)?
            }
            Call::Memory(draw) => {
                let (write_memory, budget) = draw_memory(&setup.options, &mut Rng::new(*draw));
                subject.db.set_memory(write_memory, budget).map(|()| 0).map_err(at)?
            }
            Call::Reopen => {
                snapshots.clear();
                drop(subject);
                subject = Subject::open(setup, &world).map_err(at)?;
                0
            }
        });
    }
    Ok(shown)
}

fn draw_base(rng: &mut Rng) -> Setup {
    let mut base = Setup::draw(rng, SimWorld::new(0).clock.wall_us());
    // Time passes differently in each configuration.
    for family in &mut base.families {
        (family.options.ttl_us, family.rules.ttl_us) = (0, 0);
        (family.first_stamp, family.stamp_step) = (1, 1);
    }
    Setup { marker: false, ..base }
}

fn metamorphic_case(seed: u64) -> CaseResult {
    let mut rng = Rng::new(seed);
    let base = draw_base(&mut rng);
    let calls = draw_calls(&base, &mut rng);
    let columns = settings::columns(base.families.len());
    let (rows, mut pairs) = (covering(&columns, CONFIGURATIONS, &mut rng), Pairs::new(&columns));
    let expected = history(&base, seed, &calls)?;
    for (i, row) in rows.iter().enumerate() {
        let (other, config) = (configuration(&base, row), rng.next_u64());
        let found = history(&other, config, &calls).map_err(|e| format!("configuration {i}: {e}"))?;
        if found != expected {
            let differs = |calls: &[Call]| history(&base, seed, calls) != history(&other, config, calls);
            let short = shrink(calls, differs);
            return Err(format!("configuration {i} ({other:?}) answers otherwise: {short:?}"));
        }
        pairs.meet(row);
    }
    println!("metamorphic: seed {seed}: pairs {} of {} in {} runs", pairs.count(), pairs.all(), rows.len());
    match pairs.missing().first() {
        None => Ok(rows.len() as u64),
        Some([a, b]) => {
            let (a, b) = (settings::name(a.0, a.1), settings::name(b.0, b.1));
            Err(format!("no configuration had {a} with {b}"))
        }
    }
}

/// Leaves out parts, halves first, as long as the list still fails.
fn shrink(mut calls: Vec<Call>, fails: impl Fn(&[Call]) -> bool) -> Vec<Call> {
    let (mut part, mut tries) = (calls.len() / 2, 0);
    while part > 0 {
        let mut at = 0;
        while at < calls.len() && tries < TRIES_MAX {
            tries += 1;
            let mut fewer = calls.clone();
            fewer.drain(at..(at + part).min(calls.len()));
            if fails(&fewer) { calls = fewer } else { at += part }
        }
        part /= 2;
    }
    calls
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shrinking_leaves_what_matters() {
        let calls: Vec<Call> = (0..100).map(|n| Call::Get(n, Vec::new())).collect();
        let has =
            |calls: &[Call], n| calls.iter().any(|call| matches!(call, Call::Get(found, _) if *found == n));
        let short = shrink(calls, |calls| has(calls, 17) && has(calls, 80));
        assert_eq!(short.len(), 2, "{short:?}");
    }

    #[test]
    fn two_configurations_answer_alike() {
        let mut rng = Rng::new(5);
        let base = draw_base(&mut rng);
        let calls = &draw_calls(&base, &mut rng)[..600];
        let row: Vec<usize> = settings::columns(2).iter().map(|values| rng.index(*values)).collect();
        let other = configuration(&base, &row);
        assert_eq!(history(&base, 1, calls), history(&other, 2, calls));
    }
}
