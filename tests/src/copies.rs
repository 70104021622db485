//! Checkpoints taken while writers go on, and crashes in their middle.
//!
//! While a checkpoint is made, more batches are written between its stages, and the disk is copied as a kill or a power
//! cut would leave it before random storage calls. In each such copy the source must hold every promised batch and a
//! prefix of the rest; the half-made checkpoint must either be refused with an error that says that it is no database,
//! or hold exactly the batches that had been acknowledged when it began. Checkpoints that came to their end stay exact
//! whatever becomes of their source, and what is written to one is not seen by the source.

use crate::campaign::{CaseResult, Row};
use crate::history::{End, History};
use crate::model::Op;
use crate::power::{Camera, Image, recovered_batches};
use crate::subject::{Setup, Subject, difference, rows, world_of};
use siltstone::storage::sim::{Rng, SimWorld, Survive};
use siltstone::storage::{Clock, Storage};
use siltstone::testing::with_kill_hook;
use siltstone::{Db, Durability, ErrorKind};
use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;

/// Crashes while a checkpoint is made.
pub const COPIES: Row =
    Row { name: "copies", unit: "crashes in mid-checkpoint", gate: 2_000, case: copies_case, needs: None };

/// Between these stages of a checkpoint more is written.
const STAGES: &[&str] =
    &["checkpoint-tables-linked", "checkpoint-logs-copied", "checkpoint-manifest-written"];

fn copies_case(seed: u64) -> CaseResult {
    let mut rng = Rng::new(seed);
    let world = SimWorld::new(rng.next_u64());
    let mut setup = Setup::draw(&mut rng, world.clock.wall_us());
    setup.marker = true;
    // What is written in mid-checkpoint must find room: a flush would wait for the checkpoint.
    setup.options.write_memory = 128 << 10;
    setup.options.memory_budget = 256 << 10;
    setup.value_bytes = setup.value_bytes.min(200);
    let history = History::new(setup.rules());
    let subject = Subject::open(&setup, &world).map_err(|e| format!("open: {e:?}"))?;
    let mut run = Run { setup, world, rng, history, subject: Rc::new(subject), made: Vec::new(), crashes: 0 };
    for number in 0..run.rng.range(2..5) {
        run.work()?;
        run.checkpoint(number).map_err(|e| format!("checkpoint {number}: {e}"))?;
    }
    run.work()?;
    run.check_made()?;
    Ok(run.crashes)
}

struct Run {
    setup: Setup,
    world: SimWorld,
    rng: Rng,
    history: History,
    subject: Rc<Subject>,
    /// Directories of whole checkpoints, and the batches that each holds.
    made: Vec<(String, usize)>,
    crashes: u64,
}

impl Run {
    fn write(&mut self) -> Result<(), String> {
        let ops = self.setup.batch(&mut self.rng, self.history.len() + 1);
        let id = self.history.start(ops.clone(), self.subject.now_us());
        let synced = self.rng.chance(20);
        let durability = if synced { Durability::Sync } else { Durability::Buffered };
        self.subject.write(&self.setup, &ops, durability).map_err(|e| format!("write: {e:?}"))?;
        if synced {
            self.history.synced(id)
        } else {
            self.history.buffered(id)
        }
        Ok(())
    }

    /// Writes, flushes and merges, some of them left half-way; in the end memory is nearly empty.
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

    fn checkpoint(&mut self, number: u64) -> Result<(), String> {
        let dir = format!("copy-{number}");
        let before = self.history.len();
        let load: Vec<Vec<Op>> =
            (1..=STAGES.len()).map(|n| self.setup.batch(&mut self.rng, before + n)).collect();
        let camera = Camera::install(&self.world.storage, self.rng.fork(), 3);
        let written = self.checkpoint_under_load(&dir, load.clone())?;
        let images = camera.take();
        drop(camera);
        // In the copies the batches of the load may be there or not, in order.
        let ids: Vec<_> =
            load.into_iter().zip(&written).map(|(ops, now_us)| self.history.start(ops, *now_us)).collect();
        for image in images {
            let moment = image.moment.clone();
            let begun = self.check_image(image, &dir, before).map_err(|e| format!("{moment}: {e}"))?;
            self.crashes += u64::from(begun);
        }
        // Once acknowledged it is durable.
        let left = self.world.storage.clone_crashed(Survive::None, self.rng.next_u64());
        let world = world_of(left, self.world.clock.wall_us(), self.rng.next_u64());
        let copy = self.setup.builder(&world).open(&dir).map_err(|e| format!("open the copy: {e:?}"))?;
        self.is_exact(&copy, before)?;
        ids.into_iter().for_each(|id| self.history.buffered(id));
        self.made.push((dir, before));
        Ok(())
    }

    /// Makes the checkpoint, with a batch written at each stage. Answers with the moments of these writes.
    fn checkpoint_under_load(&mut self, dir: &str, load: Vec<Vec<Op>>) -> Result<Vec<u64>, String> {
        let written = Rc::new(RefCell::new(Vec::new()));
        let (into, subject, setup) = (written.clone(), self.subject.clone(), self.setup.clone());
        let (batches, mut left) = (load.len(), load.into_iter());
        let hook = move |point: &'static str| {
            if STAGES.contains(&point)
                && let Some(ops) = left.next()
            {
                let now_us = subject.now_us();
                let write = subject.write(&setup, &ops, Durability::Buffered);
                into.borrow_mut().push(write.map(|_| now_us));
            }
        };
        let made = with_kill_hook(hook, || self.subject.db.checkpoint(dir));
        made.map_err(|e| format!("it failed: {e:?}"))?;
        let written: Result<Vec<u64>, _> = written.take().into_iter().collect();
        let written = written.map_err(|e| format!("a write in its middle failed: {e:?}"))?;
        if written.len() != batches {
            return Err(format!("{} of {batches} writes came in its middle", written.len()));
        }
        Ok(written)
    }

    /// Whether something of the checkpoint was there.
    fn check_image(&mut self, image: Image, dir: &str, before: usize) -> Result<bool, String> {
        let world = world_of(image.storage, self.world.clock.wall_us(), self.rng.next_u64());
        let names = world.storage.list(Path::new(dir)).unwrap_or_default();
        let begun = names
            .iter()
            .any(|name| name.ends_with(".table") || name.ends_with(".log") || name.starts_with("manifest-"));
        match self.setup.builder(&world).open(dir) {
            Ok(copy) if begun => self.is_exact(&copy, before)?,
            // Nothing had come there yet.
            Ok(_) => {}
            Err(e) if matches!(e.kind(), ErrorKind::Corruption | ErrorKind::NotFound) => {
                if names.iter().any(|name| name == "CURRENT") {
                    return Err(format!("a checkpoint with its CURRENT is refused: {e:?}"));
                }
            }
            Err(e) => return Err(format!("a checkpoint that is half made answers {e:?}")),
        }
        let source = Subject::open(&self.setup, &world).map_err(|e| format!("open the source: {e:?}"))?;
        recovered_batches(&source, &self.setup, &self.history, image.end)
            .map(|_| begun)
            .map_err(|e| format!("the source: {e}"))
    }

    /// It holds just these batches.
    fn is_exact(&self, copy: &Db, batches: usize) -> Result<(), String> {
        let now_us = self.world.clock.wall_us();
        let expected = self.history.model(batches).contents(now_us);
        for (setup, expected) in self.setup.families.iter().zip(&expected) {
            let family = copy.family(setup.name).map_err(|e| format!("family: {e:?}"))?;
            let found = rows(family.scan::<&[u8]>(..)).map_err(|e| format!("scan: {e:?}"))?;
            if *expected != found {
                let what = difference(expected, &found);
                return Err(format!("a copy of {batches} batches, family {}: {what}", setup.name));
            }
        }
        Ok(())
    }

    /// Whole checkpoints, long after, before and after the source's end.
    fn check_made(&mut self) -> Result<(), String> {
        for (dir, batches) in std::mem::take(&mut self.made) {
            let named = |e: String| format!("{dir}: {e}");
            let copy =
                self.setup.builder(&self.world).open(&dir).map_err(|e| named(format!("open: {e:?}")))?;
            self.is_exact(&copy, batches).map_err(named)?;
            let family = copy.family(self.setup.families[0].name).map_err(|e| format!("family: {e:?}"))?;
            family.delete_range::<&[u8]>(..).map_err(|e| format!("delete in a copy: {e:?}"))?;
            family.compact::<&[u8]>(..).map_err(|e| format!("compact a copy: {e:?}"))?;
        }
        let all = self.history.len();
        let source = |subject: &Subject, history: &History| {
            let found = recovered_batches(subject, &self.setup, history, End::Kill)?;
            if found == all { Ok(()) } else { Err(format!("the source shows {found} of {all} batches")) }
        };
        source(&self.subject, &self.history)?;
        let world = self.world.kill();
        source(&Subject::open(&self.setup, &world).map_err(|e| format!("open: {e:?}"))?, &self.history)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::campaign::must_hold;

    #[test]
    fn a_checkpoint_is_exact_or_refused_and_its_source_is_unharmed_wherever_it_crashes() {
        must_hold(&COPIES, 1, 400);
    }
}
