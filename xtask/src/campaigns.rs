//! The long tests: one table. Rows are those of the goal table of faults (`docs/open.md` names the rows that have no
//! program yet). Every campaign prints its seed and how to run a failing case again, and ends with 0 only if all
//! cases held. They run the binaries that the tests were built with, so nothing is compiled twice.

use crate::guards::{self, Guard};
use crate::run::{Tally, command, root};
use std::process::Command;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

struct Campaign {
    /// Row of the goal table.
    row: &'static str,
    what: &'static str,
    /// Binary and arguments; `--count` and `--seed` follow.
    run: &'static str,
    /// Cases for every change.
    gate: u64,
    /// Cases before a release, summed over runs.
    release: u64,
}

/// The row of the planted bugs.
const PLANTED: &str = "25";

const CAMPAIGNS: &[Campaign] = &[
    Campaign {
        row: "8",
        what: "one list of calls under configurations with every pair of option values",
        run: "siltstone-torture metamorphic --threads 1",
        // First, as one case may take as long as ten others, on one thread.
        gate: 8,
        release: 40_000,
    },
    Campaign {
        row: "1",
        what: "kills of the process, at random and at every kill point",
        run: "siltstone-kill",
        gate: 500,
        release: 50_000,
    },
    Campaign {
        row: "1",
        what: "kills on ext4, tmpfs, xfs, btrfs and overlay (those that can be mounted)",
        run: "siltstone-kill --disk all",
        gate: 50,
        release: 10_000,
    },
    Campaign {
        row: "2",
        what: "power cuts: unsynced blocks and names survive or not",
        run: "siltstone-torture power",
        gate: 50_000,
        release: 5_000_000,
    },
    Campaign {
        row: "3",
        what: "failing calls of every kind, once and for good",
        run: "siltstone-torture faults",
        gate: 6_000,
        release: 160_000,
    },
    Campaign {
        row: "4",
        what: "a sync that fails, and later ones that succeed",
        run: "siltstone-torture sync",
        gate: 1_000,
        release: 50_000,
    },
    Campaign {
        row: "5",
        what: "full disks that are given room again",
        run: "siltstone-torture full",
        gate: 500,
        release: 10_000,
    },
    Campaign {
        row: "5",
        what: "real small file systems that fill up (0 where none can be mounted)",
        run: "siltstone-torture small-disk",
        gate: 3,
        release: 200,
    },
    Campaign {
        row: "6",
        what: "damaged files: flipped, cut, swapped, stale, missing",
        run: "siltstone-torture rot --threads 1",
        // A tenth of what is done to one fixture.
        gate: 25_000,
        release: 20_000_000,
    },
    Campaign {
        row: "6",
        what: "every length and every bit of all files of a small store",
        run: "siltstone-torture every-bit --threads 1",
        gate: 25_000,
        release: 8_000_000,
    },
    Campaign {
        row: "7",
        what: "torn ends of logs, manifests and tables, at every offset",
        run: "siltstone-torture torn",
        gate: 20_000,
        release: 400_000,
    },
    Campaign {
        row: "19",
        what: "crashes at any two of the places where memory, log and log tables change hands",
        run: "siltstone-torture twice",
        // Whether the rarest pair was met often enough is asked of 160,000 and more.
        gate: 30_000,
        release: 2_000_000,
    },
    Campaign {
        row: "21",
        what: "repairs of damaged databases",
        run: "siltstone-torture rescue",
        gate: 200,
        release: 10_000,
    },
    Campaign {
        row: "21",
        what: "checkpoints, backups, restores and moves of a family under load that crash in their middle",
        run: "siltstone-torture copies",
        gate: 6_000,
        release: 200_000,
    },
    Campaign {
        row: "14",
        what: "the same seed twice",
        run: "siltstone-torture replay",
        gate: 50,
        release: 1_000,
    },
    Campaign {
        row: "25",
        what: "planted bugs, each of which some campaign must notice",
        run: "siltstone-torture planted",
        // Drawn.
        gate: 12,
        release: 35,
    },
    Campaign {
        row: "9",
        what: "random calls against the reference model",
        run: "siltstone-torture model",
        gate: 1_500,
        release: 1_000_000,
    },
    Campaign {
        row: "9",
        what: "reads between steps, and steps in the middle of reads",
        run: "siltstone-torture between",
        gate: 3_000,
        release: 300_000,
    },
    Campaign {
        row: "9",
        what: "corners: short lives, a thousand families, merges that fail, readers beside writers, nested deletes",
        run: "siltstone-torture corners",
        gate: 2_000,
        release: 50_000,
    },
    Campaign {
        row: "17",
        what: "tables in an object store that is slow, fails, loses answers and lists what was there before",
        run: "siltstone-torture objects",
        gate: 100_000,
        release: 1_000_000,
    },
    Campaign {
        row: "18",
        what: "merges run elsewhere by one that lies, hangs, forgets, works on unheard, answers twice or late: eleven faults",
        run: "siltstone-torture offload",
        gate: 550,
        release: 110_000,
    },
    Campaign {
        row: "17",
        what: "regions: splits and joins under writes, compactions, snapshots and ends at each of their kill points",
        run: "siltstone-torture regions",
        gate: 6_000,
        release: 1_000_000,
    },
    Campaign {
        row: "21",
        what: "the server killed under clients, at random and at kill points: rows, streams, backups against histories",
        run: "siltstone-siege kills",
        gate: 20,
        release: 10_000,
    },
    Campaign {
        row: "16",
        what: "compaction servers and their manager killed and paused, and the server with them: every acknowledged row is there",
        run: "siltstone-siege offload",
        gate: 24,
        release: 20_000,
    },
    Campaign {
        row: "24",
        what: "a ring of rows in the server, with kills and splits: none points to nothing",
        run: "siltstone-siege ring",
        gate: 250_000,
        release: 25_000_000,
    },
    Campaign {
        row: "11",
        what: "twelve attacks on the server beside a client that behaves",
        run: "siltstone-siege hostile",
        gate: 30_000,
        release: 50_000_000,
    },
    Campaign {
        row: "12",
        what: "seconds of more writes than the server's merges can take",
        run: "siltstone-siege overload",
        gate: 15,
        release: 28_800,
    },
    Campaign {
        row: "10",
        what: "damaged messages to every method of the server, and damaged configurations",
        run: "siltstone-siege messages",
        gate: 75_000,
        release: 100_000_000,
    },
    Campaign {
        row: "10",
        what: "damaged messages to a compaction server and a compaction manager",
        run: "siltstone-siege peers",
        gate: 4_000,
        release: 10_000_000,
    },
    Campaign {
        row: "10",
        what: "hostile bytes for every decoder",
        run: "siltstone-fuzz all",
        gate: 10_000_000,
        release: 2_000_000_000,
    },
];

/// A seed that no run had before, so that runs add up. It is printed with each campaign. Cases take the seeds from theirs
/// upwards, so those of two runs lie far apart.
pub(crate) fn fresh_seed() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |since| since.as_secs()) << 24
}

/// The campaigns with the counts that every change must reach; those that leave a processor idle run two at a time. The planted
/// bugs only where something that finds or plants them has changed since they were last looked for.
pub(crate) fn gate(tally: &mut Tally, seed: u64) {
    let (beside, others): (Vec<&Campaign>, Vec<&Campaign>) =
        CAMPAIGNS.iter().partition(|campaign| campaign.leaves_a_processor());
    let steps = beside.iter().map(|campaign| campaign.command(campaign.gate, seed)).collect();
    tally.beside(steps, 2);
    for campaign in others {
        match campaign.row == PLANTED {
            true => guards::run(tally, Guard::Planted, |tally| campaign.run(tally, campaign.gate, seed)),
            false => _ = campaign.run(tally, campaign.gate, seed),
        }
    }
}

/// The campaigns up to their counts of a release. Where hours are given, each gets an even share of what is left of them, and
/// how far it came is said at the end.
pub(crate) fn soak(tally: &mut Tally, hours: Option<f64>, seed: u64) {
    let end = hours.map(|hours| Instant::now() + Duration::from_secs_f64(hours.clamp(0.0, 1e5) * 3600.0));
    let mut reached = Vec::new();
    for (at, campaign) in CAMPAIGNS.iter().enumerate() {
        let left = end.map(|end| end.saturating_duration_since(Instant::now()));
        let share = left.map(|left| left / (CAMPAIGNS.len() - at) as u32);
        reached.push(campaign.soak(tally, share, seed));
    }
    println!("{:<8}{:>14}{:>14}  what", "row", "reached", "release");
    for (campaign, reached) in CAMPAIGNS.iter().zip(reached) {
        println!("{:<8}{reached:>14}{:>14}  {}", campaign.row, campaign.release, campaign.what);
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

impl Campaign {
    /// Whether it works on one thread, or waits for other processes and for disks.
    fn leaves_a_processor(&self) -> bool {
        let waits =
            ["siltstone-kill", "small-disk", "siege kills", "siege offload", "siege peers", "siege hostile"];
        self.run.ends_with("--threads 1") || waits.iter().any(|part| self.run.contains(part))
    }

    fn run(&self, tally: &mut Tally, count: u64, seed: u64) -> bool {
        let (name, mut command) = self.command(count, seed);
        tally.step(&name, &mut command)
    }

    /// Up to the count of a release, or as far as it comes in that time. How many cases there were, as the campaign says.
    fn soak(&self, tally: &mut Tally, share: Option<Duration>, seed: u64) -> u64 {
        let (mut name, mut command) = self.command(self.release, seed);
        if let Some(share) = share {
            let seconds = share.as_secs().max(1).to_string();
            command.args(["--seconds", &seconds]);
            name.push_str(&format!(", as far as it comes in {seconds} s"));
        }
        let mut reached = 0;
        tally.step_with_lines(&name, &mut command, |line| {
            reached = line.strip_prefix("count ").and_then(|count| count.parse().ok()).unwrap_or(reached);
        });
        reached
    }

    /// Its name with the count, and what runs it.
    fn command(&self, count: u64, seed: u64) -> (String, Command) {
        let (binary, args) = self.run.split_once(' ').unwrap_or((self.run, ""));
        let program = root().join("target/debug").join(binary);
        let args = format!("{args} --count {count} --seed {seed}");
        let name = format!("row {}: {} ({count}, seed {seed})", self.row, self.what);
        (name, command(&program.to_string_lossy(), &args))
    }
}
