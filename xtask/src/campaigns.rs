//! The long tests: one table. Rows are those of the goal table of faults (`docs/open.md` names the rows that have no
//! program yet). Every campaign prints its seed and how to run a failing case again, and ends with 0 only if all
//! cases held.

use crate::run::{Tally, cargo};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

struct Campaign {
    /// Row of the goal table.
    row: &'static str,
    what: &'static str,
    package: &'static str,
    /// Binary and arguments; `--count` and `--seed` follow.
    run: &'static str,
    /// Cases for every change.
    gate: u64,
    /// Cases before a release, summed over runs.
    release: u64,
}

const CAMPAIGNS: &[Campaign] = &[
    Campaign {
        row: "1",
        what: "kills of the process, at random and at every kill point",
        package: "siltstone-tests",
        run: "siltstone-kill",
        gate: 1_000,
        release: 50_000,
    },
    Campaign {
        row: "2",
        what: "power cuts: unsynced blocks and names survive or not",
        package: "siltstone-tests",
        run: "siltstone-torture power",
        gate: 50_000,
        release: 5_000_000,
    },
    Campaign {
        row: "3",
        what: "failing calls of every kind, once and for good",
        package: "siltstone-tests",
        run: "siltstone-torture faults",
        gate: 8_000,
        release: 160_000,
    },
    Campaign {
        row: "4",
        what: "a sync that fails, and later ones that succeed",
        package: "siltstone-tests",
        run: "siltstone-torture sync",
        gate: 1_000,
        release: 50_000,
    },
    Campaign {
        row: "5",
        what: "full disks that are given room again",
        package: "siltstone-tests",
        run: "siltstone-torture full",
        gate: 500,
        release: 10_000,
    },
    Campaign {
        row: "5",
        what: "real small file systems that fill up (0 where none can be mounted)",
        package: "siltstone-tests",
        run: "siltstone-torture small-disk",
        gate: 4,
        release: 200,
    },
    Campaign {
        row: "6",
        what: "damaged files: flipped, cut, swapped, stale, missing",
        package: "siltstone-tests",
        run: "siltstone-torture rot --threads 1",
        gate: 300_000,
        release: 20_000_000,
    },
    Campaign {
        row: "6",
        what: "every length and every bit of all files of a small store",
        package: "siltstone-tests",
        run: "siltstone-torture every-bit --threads 1",
        gate: 400_000,
        release: 8_000_000,
    },
    Campaign {
        row: "7",
        what: "torn ends of logs, manifests and tables, at every offset",
        package: "siltstone-tests",
        run: "siltstone-torture torn",
        gate: 20_000,
        release: 400_000,
    },
    Campaign {
        row: "19",
        what: "crashes at any two of the places where memory, log and log tables change hands",
        package: "siltstone-tests",
        run: "siltstone-torture twice",
        gate: 160_000,
        release: 2_000_000,
    },
    Campaign {
        row: "21",
        what: "repairs of damaged databases",
        package: "siltstone-tests",
        run: "siltstone-torture rescue",
        gate: 200,
        release: 10_000,
    },
    Campaign {
        row: "21",
        what: "checkpoints, backups, restores and moves of a family under load that crash in their middle",
        package: "siltstone-tests",
        run: "siltstone-torture copies",
        gate: 6_000,
        release: 200_000,
    },
    Campaign {
        row: "8",
        what: "one list of calls under configurations with every pair of option values",
        package: "siltstone-tests",
        run: "siltstone-torture metamorphic",
        gate: 40,
        release: 40_000,
    },
    Campaign {
        row: "14",
        what: "the same seed twice",
        package: "siltstone-tests",
        run: "siltstone-torture replay",
        gate: 50,
        release: 1_000,
    },
    Campaign {
        row: "25",
        what: "planted bugs, each of which some campaign must notice",
        package: "siltstone-tests",
        run: "siltstone-torture planted",
        gate: 20,
        release: 20,
    },
    Campaign {
        row: "9",
        what: "random calls against the reference model",
        package: "siltstone-tests",
        run: "siltstone-torture model",
        gate: 2_000,
        release: 1_000_000,
    },
    Campaign {
        row: "9",
        what: "reads between steps, and steps in the middle of reads",
        package: "siltstone-tests",
        run: "siltstone-torture between",
        gate: 3_000,
        release: 300_000,
    },
    Campaign {
        row: "10",
        what: "hostile bytes for every decoder",
        package: "siltstone-fuzz",
        run: "siltstone-fuzz all",
        gate: 10_000_000,
        release: 2_000_000_000,
    },
];

/// Seed of the gate, so that what CI says of a change can be said again anywhere. A soak draws its own.
const GATE_SEED: u64 = 1;

/// The campaigns with the counts that every change must reach.
pub(crate) fn gate(tally: &mut Tally) {
    if build(tally) {
        CAMPAIGNS.iter().for_each(|campaign| campaign.run(tally, campaign.gate, GATE_SEED));
    }
}

/// The campaigns with the counts of a release: once, or again and again until the hours are over.
pub(crate) fn soak(tally: &mut Tally, hours: f64) {
    let drawn = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let end = Instant::now() + Duration::from_secs_f64(hours.clamp(0.0, 1e5) * 3600.0);
    if !build(tally) {
        return;
    }
    // Cases take the seeds from theirs upwards, so rounds lie far apart.
    for round in 0.. {
        let seed = (drawn + round) << 24;
        CAMPAIGNS.iter().for_each(|campaign| campaign.run(tally, campaign.release, seed));
        if Instant::now() >= end {
            return;
        }
    }
}

/// The table for people.
pub(crate) fn list() -> String {
    let mut text = format!("{:<8}{:>12}{:>14}  {}\n", "row", "gate", "release", "what");
    for c in CAMPAIGNS {
        text.push_str(&format!("{:<8}{:>12}{:>14}  {}\n", c.row, c.gate, c.release, c.what));
    }
    text
}

/// Builds what the campaigns run, optimised and with assertions.
fn build(tally: &mut Tally) -> bool {
    let mut packages: Vec<&str> = CAMPAIGNS.iter().map(|c| c.package).collect();
    packages.dedup();
    packages.iter().all(|package| {
        let args = format!("build --quiet --profile torture --bins -p {package}");
        tally.step(&format!("build {package}"), &mut cargo(&args))
    })
}

impl Campaign {
    fn run(&self, tally: &mut Tally, count: u64, seed: u64) {
        let (binary, args) = self.run.split_once(' ').unwrap_or((self.run, ""));
        let args = format!(
            "run --quiet --profile torture -p {} --bin {binary} -- {args} --count {count} --seed {seed}",
            self.package
        );
        let name = format!("row {}: {} ({count}, seed {seed})", self.row, self.what);
        tally.step(&name, &mut cargo(&args));
    }
}
