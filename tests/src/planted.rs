//! Whether the campaigns notice mistakes: each bug that the engine can be asked to make is planted in a child
//! process, and some campaign must fail there within its usual count.

use crate::ROWS;
use siltstone::storage::sim::Rng;
use siltstone::testing::Bug;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The campaigns in the order in which they are tried, cheapest first.
const TRIED: &[&str] = &["twice", "sync", "power", "model", "faults", "full"];
/// Bugs that no campaign meets: unit tests of the engine's module `lease` plant them.
const OF_UNIT_TESTS: &[Bug] = &[Bug::ReadAfterLease, Bug::TakeWithoutWaiting];
/// Where a bug is looked for first, as only that campaign goes there: damaged SSTables, failed syncs, moments
/// in mid-way, answers while nothing crashes. Those that are tried for all take minutes until they have found
/// nothing.
const FIRST: &[(Bug, &str)] = &[
    // It has threads of its own.
    (Bug::SkipBlockChecksum, "rot --threads 1"),
    (Bug::ClipOffByOne, "between"),
    (Bug::ReadPointBeforeVersion, "between"),
    (Bug::IgnoreFailedSync, "sync"),
    (Bug::FilterFalseNegative, "model"),
    (Bug::ForgetLaterVersions, "model"),
    (Bug::IgnoreSnapshotInCompaction, "model"),
    (Bug::KeepUnderTombstone, "model"),
    (Bug::ForgetWhatCompactionsDropped, "model"),
    (Bug::UnverifiedResult, "model"),
    (Bug::DeleteShared, "regions"),
    (Bug::PunchShared, "regions"),
    (Bug::PartOffByOne, "regions"),
    (Bug::JudgeOutsideAlone, "corners"),
    (Bug::BelieveCounts, "corners"),
    (Bug::HideFailingCompactions, "corners"),
    (Bug::KeepWalFiles, "corners"),
    (Bug::KeepWalTails, "corners"),
    (Bug::ReadOnlyOnce, "corners"),
    (Bug::PlanForAllFamilies, "corners"),
    (Bug::TakeOwnPutForTheirs, "shared"),
    (Bug::TakeTheirsForOwn, "shared"),
    (Bug::SealAboveHole, "shared"),
    (Bug::CollectClaims, "shared"),
    (Bug::CollectUnsealed, "shared"),
    (Bug::ReplayFromCheckpoint, "shared"),
    (Bug::RemoveForeign, "strangers"),
    (Bug::RightsAfterBody, "siege attack --count 1 --only forbidden-bodies"),
    (Bug::UncountedDecode, "siege attack --count 1 --only written-entries"),
    (Bug::WorkInPlace, "siege attack --count 1 --only patterns"),
];
/// The program whose attacks find what callers of the server may do; it lies beside this one.
const SIEGE: &str = "siltstone-siege";
/// By what the usual count is multiplied where a bug is looked for first: a case that shows it may be one in
/// a hundred.
const LOOK_LONGER: u64 = 8;
/// A campaign that takes longer says nothing: it is ended, and the bug is looked for elsewhere.
const PATIENCE: Duration = Duration::from_secs(300);

/// The bugs to plant: all, or so many drawn by the seed.
pub fn bugs(draw: Option<usize>, seed: u64) -> Vec<Bug> {
    let mut bugs = Bug::ALL.to_vec();
    bugs.retain(|bug| !OF_UNIT_TESTS.contains(bug));
    if let Some(draw) = draw {
        Rng::new(seed).shuffle(&mut bugs);
        bugs.truncate(draw);
    }
    bugs
}

/// Runs the campaigns with the bug planted until one fails, and says which.
pub fn caught_by(executable: &Path, bug: Bug, seed: u64) -> Option<&'static str> {
    let noticed = |(tried, times): &(&'static str, u64)| {
        let mut command = match tried.strip_prefix("siege ") {
            // The server is a process of its own, and gets the bug from there.
            Some(attack) => {
                let mut siege = Command::new(executable.with_file_name(SIEGE));
                siege.args(attack.split(' '));
                siege
            }
            None => of_ours(executable, tried, *times),
        };
        command.args(["--seed", &seed.to_string()]).env("SILTSTONE_BUG", bug.name());
        command.stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().is_ok_and(fails)
    };
    let first = FIRST.iter().filter(|(of, _)| *of == bug).map(|(_, tried)| (*tried, LOOK_LONGER));
    first.chain(TRIED.iter().map(|tried| (*tried, 1))).find(noticed).map(|(tried, _)| tried)
}

/// A campaign of this program, with so many times its usual count.
fn of_ours(executable: &Path, tried: &str, times: u64) -> Command {
    let mut words = tried.split(' ');
    let name = words.next().unwrap_or_default();
    let count = ROWS.iter().find(|row| row.name == name).map_or(1, |row| row.usual) * times;
    let mut command = Command::new(executable);
    command.arg(name).args(["--count", &count.to_string()]).args(words);
    command
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_a_bug_is_looked_for_there_is_a_campaign() {
        for tried in TRIED.iter().chain(FIRST.iter().map(|(_, tried)| tried)) {
            let name = tried.split(' ').next().unwrap_or_default();
            assert!(name == "siege" || ROWS.iter().any(|row| row.name == name), "{tried}");
        }
    }
}
