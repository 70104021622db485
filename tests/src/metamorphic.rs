//! One list of calls, many configurations: what readers see must not depend on how large memory, SSTables,
//! blocks or steps are, on compression, filters, workers, or when compactions happen. Together the
//! configurations of a list have every pair of values that two options can have (`settings` has the values,
//! `pairs` makes the rows and counts). A list that gives two histories is cut down by halves as long as it
//! still does, and then tried with each option as the base has it.

use crate::campaign::{CaseResult, Row};
use crate::model::Op;
use crate::pairs::{Pairs, covering};
use crate::settings;
use crate::strategies;
use crate::subject::{Compactions, Setup, Subject, Tables, bounds, change_strategy, draw_memory, rows};
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
/// A report shows so many calls, the last ones, and of each so many characters.
const CALLS_SHOWN: usize = 20;
const CHARS_SHOWN: usize = 400;

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

/// The base's families with the settings of a row; the column `left` stays as the base has it.
fn configuration(base: &Setup, row: &[usize], left: Option<usize>) -> Setup {
    let mut setup = base.clone();
    let mut families: Vec<_> = setup.families.iter_mut().map(|family| &mut family.options).collect();
    settings::set(row, left, &mut setup.options, &mut families);
    setup.compactions = match digest(row) {
        drawn if drawn % 6 == 0 => Compactions::Elsewhere,
        drawn if drawn % 6 == 1 => Compactions::Faulty(drawn),
        _ => Compactions::Here,
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

/// The result of a call.
#[derive(Debug, Hash)]
enum Answer {
    Done,
    Versions(Vec<(u64, Vec<u8>)>),
    Cells(Vec<(Vec<u8>, u64, Vec<u8>)>),
}

/// A digest of what each call showed.
fn history(setup: &Setup, seed: u64, calls: &[Call]) -> Result<Vec<u64>, String> {
    let mut digests = Vec::with_capacity(calls.len());
    run(setup, seed, calls, |answer| digests.push(digest(answer)))?;
    Ok(digests)
}

/// Makes the calls, and tells what each showed.
fn run(setup: &Setup, seed: u64, calls: &[Call], mut tell: impl FnMut(Answer)) -> Result<(), String> {
    let world = SimWorld::new(seed);
    let mut subject = Subject::open(setup, &world).map_err(|e| format!("open: {e:?}"))?;
    let mut snapshots: Vec<Snapshot> = Vec::new();
    for (i, call) in calls.iter().enumerate() {
        let at = |e: siltstone::Error| format!("call {i}: {e:?}");
        let done = |()| Answer::Done;
        tell(match call {
            Call::Write(ops) => {
                subject.write(setup, ops, Durability::Buffered).map_err(at)?;
                subject.scheduler.run(i as u32 % 3);
                Answer::Done
            }
            Call::Get(family, key) => {
                let versions = subject.families[*family].get_versions(key, 3).map_err(at)?;
                Answer::Versions(versions.iter().map(|(t, v)| (t.0, v.to_vec())).collect())
            }
            Call::Scan(family, range, back) => {
                let scan = subject.families[*family].scan::<&[u8]>(bounds(range));
                Answer::Cells(if *back { rows(scan.rev()) } else { rows(scan) }.map_err(at)?)
            }
            Call::TakeSnapshot => {
                snapshots.push(subject.db.snapshot());
                if snapshots.len() > 4 {
                    snapshots.remove(0);
                }
                Answer::Done
            }
            Call::ReadSnapshot(family, range) => match snapshots.first() {
                None => Answer::Done,
                Some(snapshot) => {
                    let of = subject.families[*family].at(snapshot);
                    Answer::Cells(rows(of.scan::<&[u8]>(bounds(range))).map_err(at)?)
                }
            },
            Call::Flush => subject.db.flush().map(done).map_err(at)?,
            Call::Compact(family, range) => {
                subject.families[*family].compact::<&[u8]>(bounds(range)).map(done).map_err(at)?
            }
            Call::Strategy(family, strategy) => {
                change_strategy(&subject.families[*family], strategy.clone()).map(done).map_err(at)?
            }
            Call::Memory(draw) => {
                let (write_memory, budget) = draw_memory(&setup.options, &mut Rng::new(*draw));
                subject.db.set_memory_limits(write_memory, budget).map(done).map_err(at)?
            }
            Call::Reopen => {
                snapshots.clear();
                drop(subject);
                subject = Subject::open(setup, &world).map_err(at)?;
                Answer::Done
            }
        });
    }
    Ok(())
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
        let make = |left| configuration(&base, row, left);
        let other = Other { base: &base, base_seed: seed, make: &make, row, seed: rng.next_u64() };
        let found = history(&make(None), other.seed, &calls);
        let found = found.map_err(|e| format!("configuration {i}: {e}"))?;
        if found != expected {
            return Err(format!("configuration {i} answers otherwise\n{}", other.report(calls)));
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

/// A configuration that may answer otherwise than the base.
struct Other<'a> {
    base: &'a Setup,
    base_seed: u64,
    row: &'a [usize],
    /// The configuration, where a column may be left as the base has it.
    make: &'a dyn Fn(Option<usize>) -> Setup,
    seed: u64,
}

impl Other<'_> {
    fn differs(&self, setup: &Setup, calls: &[Call]) -> bool {
        history(self.base, self.base_seed, calls) != history(setup, self.seed, calls)
    }

    /// The first call that differs in a list as short as may be, both answers, and which single options make
    /// it go.
    fn report(&self, calls: Vec<Call>) -> String {
        let setup = (self.make)(None);
        let (all, mut calls) = (calls.len(), shrink(calls, |calls| self.differs(&setup, calls)));
        let of_base = history(self.base, self.base_seed, &calls);
        let of_other = history(&setup, self.seed, &calls);
        if let (Ok(base), Ok(other)) = (&of_base, &of_other) {
            calls.truncate(1 + base.iter().zip(other).take_while(|(a, b)| a == b).count());
        }
        let number = calls.len().saturating_sub(1);
        let mut lines = vec![format!("call {number} of the {} that matter, of {all}, differs:", calls.len())];
        let first = calls.len().saturating_sub(CALLS_SHOWN);
        lines.extend(calls.iter().enumerate().skip(first).map(|(n, call)| format!("  {n}: {}", shown(call))));
        lines.push(format!("the base answers: {}", last_answer(self.base, self.base_seed, &calls)));
        lines.push(format!("this one answers: {}", last_answer(&setup, self.seed, &calls)));
        let goes = |left: usize| !self.differs(&(self.make)(Some(left)), &calls);
        let names = (0..self.row.len()).filter(|left| goes(*left));
        let mut names: Vec<String> = names.map(|left| settings::name(left, self.row[left])).collect();
        let here = Setup { compactions: Compactions::Here, ..setup.clone() };
        if !self.differs(&here, &calls) {
            names.push(format!("merges {:?}", setup.compactions));
        }
        let beside = Setup { tables: Tables::Beside, ..setup.clone() };
        if !self.differs(&beside, &calls) {
            names.push(format!("tables {:?}", setup.tables));
        }
        let none = "no single option".to_string();
        let names = if names.is_empty() { none } else { names.join(", ") };
        lines.push(format!("with the base's value of one of these it answers alike: {names}"));
        lines.join("\n")
    }
}

fn last_answer(setup: &Setup, seed: u64, calls: &[Call]) -> String {
    let mut last = None;
    match run(setup, seed, calls, |answer| last = Some(answer)) {
        Ok(()) => last.map_or("nothing".to_string(), |answer| shown(&answer)),
        Err(error) => error,
    }
}

/// Short, and with lists of bytes as text.
fn shown(what: &impl std::fmt::Debug) -> String {
    let debug = format!("{what:?}");
    let mut text = String::new();
    let mut rest = debug.as_str();
    while let Some(at) = rest.find('[') {
        let (before, list) = rest.split_at(at);
        text.push_str(before);
        let end = list.find(']').map_or(list.len(), |end| end + 1);
        let inner = list[..end].trim_start_matches('[').trim_end_matches(']');
        let bytes: Option<Vec<u8>> = inner.split(", ").map(|byte| byte.parse().ok()).collect();
        match bytes {
            Some(bytes) => {
                text.push_str(&format!("b\"{}\"", bytes.escape_ascii()));
                rest = &list[end..];
            }
            None => {
                text.push('[');
                rest = &list[1..];
            }
        }
    }
    text.push_str(rest);
    match text.char_indices().nth(CHARS_SHOWN) {
        Some((end, _)) => format!("{} ... ({} characters)", &text[..end], text.chars().count()),
        None => text,
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
    use siltstone::Timestamps;

    #[test]
    fn shrinking_leaves_what_matters() {
        let calls: Vec<Call> = (0..100).map(|n| Call::Get(n, Vec::new())).collect();
        let has =
            |calls: &[Call], n| calls.iter().any(|call| matches!(call, Call::Get(found, _) if *found == n));
        let short = shrink(calls, |calls| has(calls, 17) && has(calls, 80));
        assert_eq!(short.len(), 2, "{short:?}");
    }

    #[test]
    fn a_report_names_the_call_both_answers_and_the_options() {
        let mut base = draw_base(&mut Rng::new(5));
        let row = vec![0; settings::columns(base.families.len()).len()];
        base.families[0].options.timestamps = Timestamps::Explicit;
        base.families[0].rules.explicit = true;
        base.families[0].options.versions = u32::MAX;
        let mut fewer = base.clone();
        fewer.families[0].options.versions = 1;
        let put = |timestamp| Op::Put { family: 0, key: b"k".to_vec(), timestamp, value: vec![7] };
        let mut calls: Vec<Call> = (0..40).map(|n| Call::Get(0, vec![n])).collect();
        calls.insert(10, Call::Write(vec![put(1), put(2)]));
        calls.push(Call::Get(0, b"k".to_vec()));
        let report = |make: &dyn Fn(Option<usize>) -> Setup| {
            Other { base: &base, base_seed: 1, row: &row, make, seed: 2 }.report(calls.clone())
        };
        let always = report(&|_| fewer.clone());
        for part in ["call 1 of the 2", "Get(0, b\"k\")", "(1, b\"\\x07\")", "no single option"] {
            assert!(always.contains(part), "{part} in\n{always}");
        }
        let by_third = report(&|left| if left == Some(2) { base.clone() } else { fewer.clone() });
        assert!(by_third.ends_with(&settings::name(2, 0)), "{by_third}");
    }

    #[test]
    fn two_configurations_answer_alike() {
        let mut rng = Rng::new(5);
        let base = draw_base(&mut rng);
        let calls = &draw_calls(&base, &mut rng)[..600];
        let row: Vec<usize> = settings::columns(2).iter().map(|values| rng.index(*values)).collect();
        let other = configuration(&base, &row, None);
        assert_eq!(history(&base, 1, calls), history(&other, 2, calls));
    }
}
