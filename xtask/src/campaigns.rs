//! Runs the campaigns, the long tests (`list` is their table, with the row of the goal table of faults that
//! each belongs to). Every campaign prints its seed and how to run a failing case again, and ends with 0 only
//! if all cases held. They run the binaries that the tests were built with, so nothing is compiled twice.

use crate::guards::{self, Guard};
use crate::list::{CAMPAIGNS, Campaign};
use crate::run::{Tally, command, root};
use std::process::Command;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// How many there are.
pub(crate) const COUNT: usize = CAMPAIGNS.len();

/// The row of the planted bugs.
const PLANTED: &str = "25";
/// The row that takes longest, by its seed one to four minutes: one list of calls under many configurations.
const LONGEST: &str = "8";

/// A seed that no run had before, so that runs add up. It is printed with each campaign. Cases take the seeds
/// from theirs upwards, so those of two runs lie far apart.
pub(crate) fn fresh_seed() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |since| since.as_secs()) << 24
}

/// The campaigns with the counts that every change must reach; those that leave a processor idle run two at a
/// time. The planted bugs only where something that finds or plants them has changed since they were last
/// looked for.
pub(crate) fn gate(tally: &mut Tally, seed: u64) {
    let (mut beside, others): (Vec<&Campaign>, Vec<&Campaign>) =
        CAMPAIGNS.iter().partition(|campaign| campaign.leaves_a_processor());
    // The longest begins first, so that the others end beside it.
    beside.sort_by_key(|campaign| campaign.row != LONGEST);
    let steps = beside.iter().map(|campaign| campaign.command(campaign.gate, seed)).collect();
    tally.beside(steps, 2);
    for campaign in others {
        match campaign.row == PLANTED {
            true => guards::run(tally, Guard::Planted, |tally| campaign.run(tally, campaign.gate, seed)),
            false => _ = campaign.run(tally, campaign.gate, seed),
        }
    }
}

/// The campaigns up to their counts of a release. Where hours are given, each gets an even share of what is
/// left of them, and how far it came is said at the end.
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
    let mut text =
        format!("{:<6}{:>12}{:>9}{:>14}  {:<46}what\n", "row", "gate", "least", "release", "command");
    for c in CAMPAIGNS {
        text.push_str(&format!(
            "{:<6}{:>12}{:>9}{:>14}  {:<46}{}\n",
            c.row, c.gate, c.least, c.release, c.run, c.what
        ));
    }
    text
}

impl Campaign {
    /// Whether it works on one thread, or waits for other processes and for disks.
    fn leaves_a_processor(&self) -> bool {
        let waits = [
            "siltstone-kill",
            "small-disk",
            "siege beside",
            "siege kills",
            "siege offload",
            "siege peers",
            "siege hostile",
        ];
        self.run.ends_with("--threads 1") || waits.iter().any(|part| self.run.contains(part))
    }

    fn run(&self, tally: &mut Tally, count: u64, seed: u64) -> bool {
        let (name, mut command) = self.command(count, seed);
        tally.step(&name, &mut command)
    }

    /// Up to the count of a release, or as far as it comes in that time. How many cases there were, as the
    /// campaign says.
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
