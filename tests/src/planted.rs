//! Whether the campaigns notice mistakes: each bug that the engine can be asked to make is planted in a child process,
//! and some campaign must fail there within its usual count.

use crate::rows::ROWS;
use siltstone::storage::sim::Rng;
use siltstone::testing::Bug;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The campaigns in the order in which they are tried, cheapest first.
const TRIED: &[&str] = &["twice", "sync", "power", "model", "faults", "full"];
/// Where a bug is looked for first, as only that campaign goes there: damaged tables, failed syncs, moments in mid-way, answers
/// while nothing crashes. Those that are tried for all take minutes until they have found nothing.
const FIRST: &[(Bug, &str)] = &[
    // It has threads of its own.
    (Bug::SkipBlockChecksum, "rot --threads 1"),
    (Bug::ClipOffByOne, "between"),
    (Bug::ReadPointBeforeVersion, "between"),
    (Bug::IgnoreFailedSync, "sync"),
    (Bug::FilterFalseNegative, "model"),
    (Bug::ForgetLaterVersions, "model"),
    (Bug::IgnoreSnapshotInMerge, "model"),
    (Bug::KeepUnderTombstone, "model"),
    (Bug::ForgetWhatMergesDropped, "model"),
    (Bug::UnverifiedResult, "model"),
    (Bug::DeleteShared, "regions"),
    (Bug::PunchShared, "regions"),
    (Bug::PartOffByOne, "regions"),
    (Bug::JudgeOutsideAlone, "corners"),
    (Bug::HideFailingMerges, "corners"),
    (Bug::KeepLogFiles, "corners"),
    (Bug::KeepLogTails, "corners"),
    (Bug::ReadOnlyOnce, "corners"),
    (Bug::PlanForAllFamilies, "corners"),
];
/// By what the usual count is multiplied where a bug is looked for first: a case that shows it may be one in a hundred.
const LOOK_LONGER: u64 = 8;
/// A campaign that takes longer says nothing: it is ended, and the bug is looked for elsewhere.
const PATIENCE: Duration = Duration::from_secs(300);

/// The bugs to plant: all, or so many drawn by the seed.
pub fn bugs(draw: Option<usize>, seed: u64) -> Vec<Bug> {
    let mut bugs = Bug::ALL.to_vec();
    if let Some(draw) = draw {
        Rng::new(seed).shuffle(&mut bugs);
        bugs.truncate(draw);
    }
    bugs
}

/// Runs the campaigns with the bug planted until one fails, and says which.
pub fn caught_by(executable: &Path, bug: Bug, seed: u64) -> Option<&'static str> {
    let noticed = |(tried, times): &(&'static str, u64)| {
        let mut words = tried.split(' ');
        let name = words.next().unwrap_or_default();
        let count = ROWS.iter().find(|row| row.name == name).map_or(1, |row| row.usual) * times;
        let mut command = Command::new(executable);
        command.arg(name).args(["--count", &count.to_string(), "--seed", &seed.to_string()]).args(words);
        command.env("SILTSTONE_BUG", bug.name()).stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().is_ok_and(fails)
    };
    let first = FIRST.iter().filter(|(of, _)| *of == bug).map(|(_, tried)| (*tried, LOOK_LONGER));
    first.chain(TRIED.iter().map(|tried| (*tried, 1))).find(noticed).map(|(tried, _)| tried)
}

/// Whether the campaign ended, with an error.
fn fails(mut child: Child) -> bool {
    let began = Instant::now();
    while began.elapsed() < PATIENCE {
        match child.try_wait() {
            Ok(Some(status)) => return !status.success(),
            Ok(None) => std::thread::sleep(Duration::from_millis(10)),
            Err(_) => break,
        }
    }
    let _ = child.kill();
    let _ = child.wait();
    false
}
