//! Rounds of working, killing and checking, until so many children were killed.
//!
//! A child that died at one of the places where memory and WAL change hands ([`PLACES`]) often leaves what it
//! did to one that is to die at another of them, the pair that was tried least.

use crate::kill::check::Known;
use crate::kill::oracle::Oracle;
use crate::kill::work::{self, Paths};
use crate::twice::PLACES;
use siltstone::storage::sim::Rng;
use siltstone::testing::KILL_POINTS;
use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Rounds that one directory lives through.
const ROUNDS: u64 = 40;
/// A child that takes longer than this to end by itself hangs.
const HANGS: Duration = Duration::from_secs(30);
/// Children to die at each kill point, where so many are killed that each has its part.
const KILLS_MIN: u64 = 3;
/// Kills for each kill point from which that is demanded; of fewer kills each has the same part of them.
const ENOUGH: u64 = 14;
/// Kills of which one at least comes with a comparison of the whole database.
const CHECKED_AMONG: u64 = 4;
/// Kills for each two places that have to have followed each other.
const PAIRED_AMONG: u64 = 100;
const SIGKILL: i32 = 9;
const SIGABRT: i32 = 6;

/// Children that have to die at each kill point where so many are killed.
fn kills_min(count: u64) -> u64 {
    (count * KILLS_MIN / (ENOUGH * KILL_POINTS.len() as u64)).min(KILLS_MIN)
}

/// From so many kills on each kill point has to have its part.
pub fn least() -> u64 {
    (ENOUGH * KILL_POINTS.len() as u64).div_ceil(KILLS_MIN)
}

/// The options of the campaign.
#[derive(Clone, Debug)]
pub struct Campaign {
    /// Kills to make.
    pub count: u64,
    /// All else is drawn from this, the moments at which threads meet apart.
    pub seed: u64,
    /// Directories worked on at the same time.
    pub jobs: usize,
    /// No round is begun after this time.
    pub time: Option<Duration>,
    /// Folder for the directories.
    pub base: PathBuf,
    /// The program to start as child: `PROGRAM child DIR SEED ROUND LIFE_MS`.
    pub program: PathBuf,
}

/// The counts of the campaign.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    /// Children killed at a random moment.
    pub random: u64,
    /// Children that died at each kill point.
    pub points: BTreeMap<&'static str, u64>,
    /// Children that came to their end: closed in good order.
    pub ended: u64,
    /// Comparisons of a whole database.
    pub checks: u64,
    /// Comparisons of a checkpoint.
    pub checkpoints: u64,
    /// Comparisons of a restored backup.
    pub backups: u64,
    /// Batches in the databases when they were given up.
    pub batches: u64,
    /// Pairs of places at which two children died one after the other, and how often.
    pub pairs: BTreeMap<(&'static str, &'static str), u64>,
    /// Whether the time was over before there were enough.
    pub is_cut_short: bool,
    /// Children started at each kill point.
    tried: BTreeMap<&'static str, u64>,
    /// Children started at rare kill points when there were enough kills.
    tried_rare: u64,
    /// Children started behind one that died at a place, for such pairs.
    tried_after: BTreeMap<(&'static str, &'static str), u64>,
}

impl Counts {
    /// All kills.
    pub fn kills(&self) -> u64 {
        self.random + self.points.values().sum::<u64>()
    }

    /// Whether there were so many kills. It goes on at kill points that have not had their part, as they
    /// hardly come in a child's life, for as many children again at most.
    fn are_enough(&self, count: u64) -> bool {
        self.kills() >= count && (self.tried_rare >= count || self.rare(count).is_empty())
    }

    /// The kill points at which too few children died for so many kills.
    fn rare(&self, count: u64) -> Vec<&'static str> {
        let died = |point: &&'static str| self.points.get(point).copied().unwrap_or(0);
        KILL_POINTS.iter().copied().filter(|point| died(point) < kills_min(count)).collect()
    }

    /// An error if so many kills should have met more. Where the time was over, it could not go on at rare
    /// kill points.
    pub fn lacks(&self, count: u64) -> Result<(), String> {
        let (rare, least) = (self.rare(count), kills_min(count));
        if !rare.is_empty() && !self.is_cut_short {
            return Err(format!("killed fewer than {least} times at: {}", rare.join(", ")));
        }
        if self.checks < count / CHECKED_AMONG {
            return Err(format!("only {} databases were compared after {count} kills", self.checks));
        }
        let all = PLACES.len() * PLACES.len();
        let pairs = all.min((count / PAIRED_AMONG) as usize);
        if self.pairs.len() < pairs {
            let every = PLACES.iter().flat_map(|a| PLACES.iter().map(move |b| (*a, *b)));
            let missed: Vec<_> = every.filter(|pair| !self.pairs.contains_key(pair)).collect();
            return Err(format!(
                "fewer than {pairs} of {all} pairs of places followed each other: not {missed:?}"
            ));
        }
        Ok(())
    }

    /// The place that was tried least behind a death at that one.
    fn least_tried_after(&mut self, first: &'static str) -> &'static str {
        let tried = |second: &&&'static str| self.tried_after.get(&(first, **second)).copied().unwrap_or(0);
        let second = PLACES.iter().min_by_key(tried).expect("there are places");
        *self.tried_after.entry((first, second)).or_default() += 1;
        second
    }

    /// The kill point that was tried least.
    fn least_tried(&self) -> &'static str {
        let dead = |p: &&&str| {
            (self.points.get(**p).copied().unwrap_or(0), self.tried.get(**p).copied().unwrap_or(0))
        };
        // Points that do not come in a child's life must not be tried for ever.
        KILL_POINTS.iter().min_by_key(|p| dead(p).0 + dead(p).1).expect("there are kill points")
    }
}

/// What went wrong, and where it can be looked at.
#[derive(Clone, Debug)]
pub struct Failure {
    /// Directory with database, oracle and the child's last words; kept.
    pub dir: PathBuf,
    /// Seed of the directory that failed.
    pub seed: u64,
    /// In which round.
    pub round: u64,
    /// The orders of the child.
    pub end: String,
    /// What is wrong.
    pub what: String,
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Failure { dir, seed, round, end, what } = self;
        write!(f, "{what}\n  directory {} (kept), its seed {seed}, round {round}, {end}", dir.display())
    }
}

/// How a child is to die.
#[derive(Clone, Debug)]
enum End {
    After(Duration),
    At(&'static str, u64),
}

impl Campaign {
    /// Runs it.
    pub fn run(&self) -> Result<Counts, Failure> {
        let counts = Mutex::new(Counts::default());
        let failed = Mutex::new(None);
        let end = self.time.map(|time| Instant::now() + time);
        let is_over =
            &|counts: &Counts| counts.are_enough(self.count) || end.is_some_and(|end| Instant::now() >= end);
        std::thread::scope(|scope| {
            for job in 0..self.jobs {
                let (counts, failed) = (&counts, &failed);
                scope.spawn(move || {
                    for lane in 0.. {
                        let seed = work::rng(self.seed, [300, job as u64, lane]).next_u64() >> 16;
                        if is_over(&counts.lock().unwrap()) || failed.lock().unwrap().is_some() {
                            return;
                        }
                        if let Err(failure) = self.lane(seed, counts, is_over) {
                            failed.lock().unwrap().get_or_insert(failure);
                        }
                    }
                });
            }
        });
        match failed.into_inner().unwrap() {
            Some(failure) => Err(failure),
            None => {
                let counts = counts.into_inner().unwrap();
                Ok(Counts { is_cut_short: !counts.are_enough(self.count), ..counts })
            }
        }
    }

    /// One directory's life.
    fn lane(
        &self,
        seed: u64,
        counts: &Mutex<Counts>,
        is_over: &dyn Fn(&Counts) -> bool,
    ) -> Result<(), Failure> {
        let dir = tempfile::Builder::new()
            .prefix("siltstone-kill-")
            .tempdir_in(&self.base)
            .expect("a temporary directory");
        let mut lane = Lane {
            dir: dir.path(),
            seed,
            known: Known::new(seed),
            rng: Rng::new(seed),
            batches: 0,
            died: None,
        };
        for round in 1..=ROUNDS {
            if is_over(&counts.lock().unwrap()) {
                break;
            }
            let end = lane.draw_end(&mut counts.lock().unwrap(), self.count);
            if let Err(what) = self.round(&mut lane, round, &end, counts) {
                let end = format!("{end:?}");
                return Err(Failure { dir: dir.keep(), seed, round, end, what });
            }
        }
        counts.lock().unwrap().batches += lane.batches;
        Ok(())
    }

    fn round(
        &self,
        lane: &mut Lane<'_>,
        round: u64,
        end: &End,
        counts: &Mutex<Counts>,
    ) -> Result<(), String> {
        let died_at = self.live(lane, round, end)?;
        {
            let mut counts = counts.lock().unwrap();
            match died_at {
                Died::Killed => counts.random += 1,
                Died::At(point) => *counts.points.entry(point).or_default() += 1,
                Died::Ended => counts.ended += 1,
            }
            let died = match died_at {
                Died::At(point) => PLACES.iter().copied().find(|place| *place == point),
                Died::Killed | Died::Ended => None,
            };
            let pair = lane.died.zip(died);
            pair.into_iter().for_each(|pair| *counts.pairs.entry(pair).or_default() += 1);
            lane.died = died;
        }
        let paths = Paths::in_dir(lane.dir);
        let oracle = Oracle::open(&paths.oracle).map_err(|e| format!("oracle: {e}"))?;
        lane.known.note(&oracle, round)?;
        let checkpointed = lane.known.check_checkpoint(&paths, &oracle)?;
        let backed_up = lane.rng.chance(30) && lane.known.check_backup(&paths, &oracle)?;
        // Else the next child opens what this one left, and may die of it again.
        let check = round == ROUNDS || lane.rng.chance(70);
        if check {
            lane.batches = lane.known.check(&paths, &oracle)?;
        }
        let mut counts = counts.lock().unwrap();
        counts.checks += u64::from(check);
        counts.checkpoints += u64::from(checkpointed);
        counts.backups += u64::from(backed_up);
        Ok(())
    }

    fn live(&self, lane: &mut Lane<'_>, round: u64, end: &End) -> Result<Died, String> {
        let words = lane.dir.join("last-words");
        let stderr = std::fs::File::create(&words).map_err(|e| format!("create {}: {e}", words.display()))?;
        let life = match end {
            End::After(_) => Duration::from_secs(5),
            End::At(..) => Duration::from_millis(lane.rng.range(20..70)),
        };
        let mut command = Command::new(&self.program);
        command.arg("child").arg(lane.dir);
        command.args([lane.seed, round, life.as_millis() as u64].map(|n| n.to_string()));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(stderr).env_remove("SILTSTONE_KILL");
        if let End::At(point, nth) = end {
            command.env("SILTSTONE_KILL", format!("{point}:{nth}"));
        }
        let mut child = command.spawn().map_err(|e| format!("start {}: {e}", self.program.display()))?;
        let began = Instant::now();
        if let End::After(moment) = end {
            std::thread::sleep(*moment);
            child.kill().map_err(|e| format!("kill: {e}"))?;
        }
        let status = loop {
            match child.try_wait().map_err(|e| format!("wait: {e}"))? {
                Some(status) => break status,
                None if began.elapsed() > HANGS => {
                    let _ = child.kill();
                    let _ = child.wait();
                    return Err("the child hangs: it did not come to its end".into());
                }
                None => std::thread::sleep(Duration::from_micros(500)),
            }
        };
        match (end, status.signal()) {
            (End::After(_), Some(SIGKILL)) => Ok(Died::Killed),
            (End::At(point, _), Some(SIGABRT)) => Ok(Died::At(point)),
            (End::At(..), None) if status.success() => Ok(Died::Ended),
            _ => {
                let words = std::fs::read_to_string(&words).unwrap_or_default();
                Err(format!("the child failed ({status}): {}", words.trim()))
            }
        }
    }
}

enum Died {
    Killed,
    At(&'static str),
    Ended,
}

struct Lane<'a> {
    dir: &'a Path,
    seed: u64,
    known: Known,
    rng: Rng,
    batches: u64,
    /// At which of the places the last child did.
    died: Option<&'static str>,
}

impl Lane<'_> {
    fn draw_end(&mut self, counts: &mut Counts, count: u64) -> End {
        let rare = if counts.kills() >= count { counts.rare(count) } else { Vec::new() };
        if !rare.is_empty() {
            counts.tried_rare += 1;
            return End::At(rare[self.rng.index(rare.len())], 1);
        }
        if let Some(first) = self.died.filter(|_| self.rng.chance(60)) {
            return End::At(counts.least_tried_after(first), 1 << self.rng.range(0..3));
        }
        if self.rng.chance(50) {
            // Opening takes some milliseconds, and is worth being killed in.
            let most = *self.rng.pick(&[8_000, 40_000, 120_000]);
            return End::After(Duration::from_micros(self.rng.range(500..most)));
        }
        let point = counts.least_tried();
        let tries = counts.tried.entry(point).or_default();
        *tries += 1;
        // The first visit at first, and again when later ones do not come.
        let nth = if *tries % 2 == 1 { 1 } else { 1 << self.rng.range(0..6) };
        End::At(point, nth)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kills_that_left_a_kill_point_out_or_compared_nothing_are_too_few_at_every_count_from_the_least_on() {
        for count in [least(), 600, 50_000] {
            let pairs = PLACES.iter().flat_map(|a| PLACES.iter().map(move |b| (*a, *b)));
            let counts = Counts {
                checks: count / CHECKED_AMONG,
                points: KILL_POINTS.iter().map(|point| (*point, kills_min(count))).collect(),
                pairs: pairs.map(|pair| (pair, 1)).collect(),
                ..Counts::default()
            };
            assert!(kills_min(count) > 0 && counts.lacks(count).is_ok(), "{count}");
            let left_out = Counts { points: BTreeMap::new(), ..counts.clone() };
            assert!(left_out.lacks(count).is_err(), "{count}");
            assert!(Counts { checks: 0, ..counts.clone() }.lacks(count).is_err(), "{count}");
            assert!(Counts { pairs: BTreeMap::new(), ..counts }.lacks(count).is_err(), "{count}");
        }
    }
}
