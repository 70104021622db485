//! Copies taken while writers go on, and crashes in their middle: checkpoints, backups with their restores,
//! families that move between databases, and copies that share SSTables.
//!
//! While a copy is made, more is written and compacted between its stages, and the disk is copied as a kill
//! or a power cut would leave it before random storage calls. In each such image the source must hold every
//! promised batch and a prefix of the rest, and each copy is whole and exact or no copy at all. A kind of
//! copy is a file: `checkpoints`, `backups`, `moves` and `clones`.

mod backups;
mod checkpoints;
mod clones;
mod moves;

use crate::campaign::{CaseResult, Row};
use crate::history::{End, History};
use crate::power::recovered_batches;
use crate::subject::{Setup, Subject, difference, rows};
use siltstone::storage::Clock;
use siltstone::storage::sim::{Rng, SimWorld};
use siltstone::{Db, Durability, SeqNo};
use std::rc::Rc;

/// Crashes while something is copied.
pub const COPIES: Row = Row::new("copies", "crashes in mid-copy", 6_000, copies_case);

fn copies_case(seed: u64) -> CaseResult {
    match seed % 4 {
        0 => checkpoints::case(seed),
        1 => backups::case(seed),
        2 => moves::case(seed),
        _ => clones::case(seed),
    }
}

/// A database that is written to.
struct Run {
    setup: Setup,
    world: SimWorld,
    rng: Rng,
    history: History,
    subject: Rc<Subject>,
    /// Sequence number of the newest batch.
    seq: SeqNo,
    crashes: u64,
}

impl Run {
    fn new(seed: u64, write_memory: u64, step_bytes_max: u64) -> Result<Self, String> {
        let mut rng = Rng::new(seed);
        let world = SimWorld::new(rng.next_u64());
        let mut setup = Setup::draw(&mut rng, world.clock.wall_us());
        setup.marker = true;
        setup.options.write_memory = write_memory;
        setup.options.memory_budget = write_memory + (1 << 20);
        setup.options.tuning.compaction_step_bytes =
            setup.options.tuning.compaction_step_bytes.min(step_bytes_max);
        setup.value_bytes = setup.value_bytes.min(200);
        let history = History::new(setup.rules());
        let subject = Subject::open(&setup, &world).map_err(|e| format!("open: {e:?}"))?;
        let subject = Rc::new(subject);
        Ok(Self { setup, world, rng, history, subject, seq: SeqNo::ZERO, crashes: 0 })
    }

    /// Writes a batch.
    fn write(&mut self) -> Result<(), String> {
        let ops = self.setup.batch(&mut self.rng, self.history.len() + 1);
        let id = self.history.start(ops.clone(), self.subject.now_us());
        let synced = self.rng.chance(20);
        let durability = if synced { Durability::Sync } else { Durability::Buffered };
        self.seq = self.subject.write(&self.setup, &ops, durability).map_err(|e| format!("write: {e:?}"))?;
        if synced {
            self.history.synced(id)
        } else {
            self.history.buffered(id)
        }
        Ok(())
    }

    /// Writes, flushes and compacts, sometimes only half-way; in the end memory is nearly empty.
    fn work(&mut self) -> Result<(), String> {
        for _ in 0..self.rng.range(10..40) {
            match self.rng.range(0..12) {
                0..9 => self.write()?,
                9..11 => drop(self.subject.scheduler.run(self.rng.range(1..8) as u32)),
                _ => self.subject.families[0].compact::<&[u8]>(..).map_err(|e| format!("compact: {e:?}"))?,
            }
        }
        self.subject.db.flush().map_err(|e| format!("flush: {e:?}"))?;
        self.history.all_synced();
        (0..self.rng.range(0..8)).try_for_each(|_| self.write())
    }

    /// It holds just these batches.
    fn is_exact(&self, copy: &Db, batches: usize) -> Result<(), String> {
        self.is_exact_as(copy, batches, str::to_string)
    }

    /// The copy holds just these batches, in families that `named` renames.
    fn is_exact_as(&self, copy: &Db, batches: usize, named: impl Fn(&str) -> String) -> Result<(), String> {
        let now_us = self.world.clock.wall_us();
        let expected = self.history.model(batches).contents(now_us);
        for (setup, expected) in self.setup.families.iter().zip(&expected) {
            let family = copy.family(&named(setup.name)).map_err(|e| format!("family: {e:?}"))?;
            let found = rows(family.scan::<&[u8]>(..)).map_err(|e| format!("scan: {e:?}"))?;
            if *expected != found {
                let what = difference(expected, &found);
                return Err(format!("a copy of {batches} batches, family {}: {what}", setup.name));
            }
        }
        Ok(())
    }

    /// The source holds everything, now and after a kill.
    fn check_source(&self) -> Result<(), String> {
        let all = self.history.len();
        let source = |subject: &Subject| {
            let found = recovered_batches(subject, &self.setup, &self.history, End::Kill)?;
            if found == all { Ok(()) } else { Err(format!("the source shows {found} of {all} batches")) }
        };
        source(&self.subject)?;
        let world = self.world.kill();
        source(&Subject::open(&self.setup, &world).map_err(|e| format!("open: {e:?}"))?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::campaign::must_hold;

    #[test]
    fn a_checkpoint_is_exact_or_refused_and_its_source_is_unharmed_wherever_it_crashes() {
        must_hold(&Row { case: checkpoints::case, ..COPIES }, 1, 400);
    }

    #[test]
    fn backups_restore_exactly_wherever_making_removing_or_restoring_one_crashes() {
        must_hold(&Row { case: backups::case, ..COPIES }, 1, 400);
    }

    #[test]
    fn what_shares_tables_stays_as_it_is_whatever_becomes_of_the_others_and_wherever_that_crashes() {
        must_hold(&Row { case: clones::case, ..COPIES }, 1, 400);
    }

    #[test]
    fn a_family_is_in_one_place_or_two_and_whole_wherever_its_move_crashes() {
        must_hold(&Row { case: moves::case, ..COPIES }, 1, 400);
    }
}
