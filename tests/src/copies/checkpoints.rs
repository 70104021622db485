//! Checkpoints: batches are written between the stages of each. A half-made checkpoint must either be refused
//! with an error that says that it is no database, or hold exactly the batches that had been acknowledged
//! when it began. Those that came to their end stay exact whatever becomes of their source, and what is
//! written to one is not seen by the source.

use super::Run;
use crate::campaign::CaseResult;
use crate::model::Op;
use crate::power::{Camera, Image, recovered_batches};
use crate::subject::{Subject, world_of};
use siltstone::storage::sim::Survive;
use siltstone::storage::{Clock, Storage};
use siltstone::testing::with_kill_hook;
use siltstone::{Durability, ErrorKind};
use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;

/// Between these stages of a checkpoint more is written.
const STAGES: &[&str] =
    &["checkpoint-sstables-linked", "checkpoint-wal-copied", "checkpoint-manifest-written"];

pub(super) fn case(seed: u64) -> CaseResult {
    // What is written in mid-checkpoint must find room: a flush would wait for the checkpoint.
    let mut case = Case { run: Run::new(seed, 128 << 10, u64::MAX)?, made: Vec::new() };
    for number in 0..case.run.rng.range(2..5) {
        case.run.work()?;
        case.checkpoint(number).map_err(|e| format!("checkpoint {number}: {e}"))?;
    }
    case.run.work()?;
    case.check_made()?;
    Ok(case.run.crashes)
}

struct Case {
    run: Run,
    /// Directories of whole checkpoints, and the batches that each holds.
    made: Vec<(String, usize)>,
}

impl Case {
    fn checkpoint(&mut self, number: u64) -> Result<(), String> {
        let dir = format!("copy-{number}");
        let before = self.run.history.len();
        let load: Vec<Vec<Op>> =
            (1..=STAGES.len()).map(|n| self.run.setup.batch(&mut self.run.rng, before + n)).collect();
        let camera = Camera::install(&self.run.world.storage, self.run.rng.fork(), 3);
        let written = self.checkpoint_under_load(&dir, load.clone())?;
        let images = camera.take();
        drop(camera);
        // In the copies the batches of the load may be there or not, in order.
        let ids: Vec<_> = load
            .into_iter()
            .zip(&written)
            .map(|(ops, now_us)| self.run.history.start(ops, *now_us))
            .collect();
        for image in images {
            let moment = image.moment.clone();
            let begun = self.check_image(image, &dir, before).map_err(|e| format!("{moment}: {e}"))?;
            self.run.crashes += u64::from(begun);
        }
        // Once acknowledged it is durable.
        let left = self.run.world.storage.clone_crashed(Survive::None, self.run.rng.next_u64());
        let world = world_of(left, self.run.world.clock.wall_us(), self.run.rng.next_u64());
        let copy = self
            .run
            .setup
            .builder_at(&world, &dir)
            .open(&dir)
            .map_err(|e| format!("open the copy: {e:?}"))?;
        self.run.is_exact(&copy, before)?;
        ids.into_iter().for_each(|id| self.run.history.buffered(id));
        self.made.push((dir, before));
        Ok(())
    }

    /// Makes the checkpoint, with a batch written at each stage. Answers with the moments of these writes.
    fn checkpoint_under_load(&mut self, dir: &str, load: Vec<Vec<Op>>) -> Result<Vec<u64>, String> {
        let written = Rc::new(RefCell::new(Vec::new()));
        let (into, subject, setup) = (written.clone(), self.run.subject.clone(), self.run.setup.clone());
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
        let made = with_kill_hook(hook, || self.run.subject.db.checkpoint(dir));
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
        let world = world_of(image.storage, self.run.world.clock.wall_us(), self.run.rng.next_u64());
        let names = world.storage.list(Path::new(dir)).unwrap_or_default();
        let begun = names
            .iter()
            .any(|name| name.ends_with(".table") || name.ends_with(".log") || name.starts_with("manifest-"));
        match self.run.setup.builder_at(&world, dir).open(dir) {
            Ok(copy) if begun => self.run.is_exact(&copy, before)?,
            // Nothing had come there yet.
            Ok(_) => {}
            // Remains without their first bytes cannot be recognised: `Invalid`.
            Err(e)
                if matches!(e.kind(), ErrorKind::Corruption | ErrorKind::NotFound | ErrorKind::Invalid) =>
            {
                if names.iter().any(|name| name == "CURRENT") {
                    return Err(format!("a checkpoint with its CURRENT is refused: {e:?}"));
                }
            }
            Err(e) => return Err(format!("a checkpoint that is half made answers {e:?}")),
        }
        let source = Subject::open(&self.run.setup, &world).map_err(|e| format!("open the source: {e:?}"))?;
        recovered_batches(&source, &self.run.setup, &self.run.history, image.end)
            .map(|_| begun)
            .map_err(|e| format!("the source: {e}"))
    }

    /// Whole checkpoints, long after, before and after the source's end.
    fn check_made(&mut self) -> Result<(), String> {
        for (dir, batches) in std::mem::take(&mut self.made) {
            let named = |e: String| format!("{dir}: {e}");
            let copy = self
                .run
                .setup
                .builder_at(&self.run.world, &dir)
                .open(&dir)
                .map_err(|e| named(format!("open: {e:?}")))?;
            self.run.is_exact(&copy, batches).map_err(named)?;
            let family =
                copy.family(self.run.setup.families[0].name).map_err(|e| format!("family: {e:?}"))?;
            family.delete_range::<&[u8]>(..).map_err(|e| format!("delete in a copy: {e:?}"))?;
            family.compact::<&[u8]>(..).map_err(|e| format!("compact a copy: {e:?}"))?;
        }
        self.run.check_source()
    }
}
