//! Backups: between the stages of each more is written, flushed and compacted, so that SSTables vanish and
//! are freed in part while they are copied. Wherever making one, removing old ones or restoring one crashes,
//! every backup that is listed restores to exactly its batches, all that came to their end are listed, and
//! the next backup takes away what the crash left.

use super::Run;
use crate::campaign::CaseResult;
use crate::model::Op;
use crate::power::{Camera, Image, recovered_batches};
use crate::subject::{Setup, Subject, world_of};
use siltstone::storage::sim::{Rng, SimWorld};
use siltstone::storage::{Clock, Storage};
use siltstone::testing::with_kill_hook;
use siltstone::{Backups, Durability, ErrorKind, FamilyOptions};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::Path;
use std::rc::Rc;

const DIR: &str = "backups";
const RESTORED: &str = "restored";
/// Between these stages of a backup the database goes on.
const STAGES: &[&str] =
    &["backup-moment", "backup-wal-copied", "backup-sstable-copied", "backup-files-synced", "backup-made"];

/// The batches that each backup holds, by its number.
type Made = BTreeMap<u64, usize>;

pub(super) fn case(seed: u64) -> CaseResult {
    let write_memory = if seed.is_multiple_of(2) { 24 << 10 } else { 64 << 10 };
    let mut case = Case { run: Run::new(seed, write_memory, 4 << 10)?, made: Made::new() };
    if case.run.rng.chance(60) {
        // Enough for SSTables of which a step frees a part.
        (case.run.setup.keys, case.run.setup.value_bytes) = (100, 200);
    }
    for _ in 0..case.run.rng.range(3..6) {
        case.cut(1 << 20).map_err(|e| format!("alter: {e:?}"))?;
        case.run.work()?;
        case.backup().map_err(|e| format!("backup {}: {e}", case.made.len() + 1))?;
        match case.run.rng.range(0..4) {
            0 => case.keep_last().map_err(|e| format!("removing backups: {e}"))?,
            1 => case.restore().map_err(|e| format!("restoring: {e}"))?,
            _ => {}
        }
    }
    let (world, made) = (case.run.world.clone(), case.made.clone());
    case.check_listed(&world, &made, &made)?;
    case.run.check_source()?;
    Ok(case.run.crashes)
}

struct Case {
    run: Run,
    /// Whole ones that were not removed.
    made: Made,
}

/// What the database did in mid-backup: batches with their moments.
type Load = Rc<RefCell<Vec<(Vec<Op>, u64)>>>;

/// Writes, and lets some background work happen or all of it be compacted.
fn go_on(subject: &Subject, setup: &Setup, rng: &mut Rng, before: usize, load: &Load) -> Result<(), String> {
    for _ in 0..rng.range(0..20) {
        let number = before + load.borrow().len() + 1;
        let (ops, now_us) = (setup.batch(rng, number), subject.now_us());
        subject.write(setup, &ops, Durability::Buffered).map_err(|e| format!("write: {e:?}"))?;
        load.borrow_mut().push((ops, now_us));
    }
    match rng.range(0..5) {
        0 => subject.families[rng.index(subject.families.len())]
            .compact::<&[u8]>(..)
            .map_err(|e| format!("compact: {e:?}"))?,
        1 => {}
        _ => stop_in_a_merge(subject).map_err(|e| format!("flush: {e:?}"))?,
    }
    subject.scheduler.run(rng.range(0..30) as u32);
    Ok(())
}

/// Compacts until an input was passed in part, and what lies before there was freed.
fn stop_in_a_merge(subject: &Subject) -> siltstone::Result<()> {
    subject.db.flush()?;
    let clipped = || {
        let mut shapes = subject.families.iter().map(|family| family.shape());
        shapes.any(|shape| shape.tables().any(|(_, _, table)| table.clip.is_some()))
    };
    for _ in 0..200 {
        if !subject.scheduler.run(1) {
            return Ok(());
        }
        if clipped() {
            // The versions from before go first, what only they read after them.
            subject.scheduler.run(2);
            return Ok(());
        }
    }
    Ok(())
}

impl Case {
    fn backup(&mut self) -> Result<(), String> {
        if self.run.rng.chance(70) {
            self.cut(4096).map_err(|e| format!("alter: {e:?}"))?;
        }
        let before = self.run.history.len();
        let seq = self.run.seq;
        let camera = Camera::install(&self.run.world.storage, self.run.rng.fork(), 30);
        let load: Load = Rc::default();
        let failed = Rc::new(RefCell::new(None));
        let (into, why) = (load.clone(), failed.clone());
        let (subject, setup) = (self.run.subject.clone(), self.run.setup.clone());
        let (mut rng, mut left) = (self.run.rng.fork(), 30);
        let hook = move |point: &'static str| {
            if STAGES.contains(&point) && left > 0 && why.borrow().is_none() {
                left -= 1;
                *why.borrow_mut() = go_on(&subject, &setup, &mut rng, before, &into).err();
            }
        };
        let made = with_kill_hook(hook, || self.run.subject.db.backup(DIR)).map_err(|e| format!("{e:?}"))?;
        if let Some(why) = failed.take() {
            return Err(format!("in its middle: {why}"));
        }
        if made.seq != seq {
            return Err(format!("it says {}, the newest write was {seq}", made.seq));
        }
        let images = camera.take();
        drop(camera);
        let ids: Vec<_> =
            load.take().into_iter().map(|(ops, now_us)| self.run.history.start(ops, now_us)).collect();
        let must = self.made.clone();
        self.made.insert(made.id, before);
        for image in images {
            let moment = image.moment.clone();
            let may = self.made.clone();
            self.check_image(image, &must, &may).map_err(|e| format!("{moment}: {e}"))?;
        }
        ids.into_iter().for_each(|id| self.run.history.buffered(id));
        Ok(())
    }

    /// From now on SSTables end at that size. Compactions that write smaller ones than they read pass their
    /// inputs in several steps.
    fn cut(&self, sstable_bytes: u64) -> siltstone::Result<()> {
        let strategy = format!(
            "leveled{{l0_runs_trigger=2, multiplier=2, base_bytes=4096, sstable_bytes={sstable_bytes}}}"
        );
        for family in &self.run.subject.families {
            let strategy = strategy.parse().expect("a strategy");
            family.alter(FamilyOptions { strategy, ..family.options() })?;
        }
        Ok(())
    }

    fn keep_last(&mut self) -> Result<(), String> {
        let keep = self.run.rng.range(1..self.made.len() as u64 + 1) as usize;
        let camera = Camera::install(&self.run.world.storage, self.run.rng.fork(), 8);
        let kept = Backups::new(&self.run.world.env(), DIR).keep_last(keep);
        let removed = kept.map_err(|e| format!("{e:?}"))?;
        let images = camera.take();
        drop(camera);
        let may = self.made.clone();
        self.made.retain(|id, _| !removed.contains(id));
        for image in images {
            let moment = image.moment.clone();
            let must = self.made.clone();
            self.check_image(image, &must, &may).map_err(|e| format!("{moment}: {e}"))?;
        }
        let left = self.run.world.storage.list(Path::new(DIR)).map_err(|e| format!("list: {e}"))?;
        let descriptors = left.iter().filter(|name| name.ends_with(".backup")).count();
        if descriptors != keep {
            return Err(format!("{descriptors} of {keep} backups are there: {left:?}"));
        }
        Ok(())
    }

    /// Restores one; its directory must open wholly or not at all wherever that crashes.
    fn restore(&mut self) -> Result<(), String> {
        let ids: Vec<u64> = self.made.keys().copied().collect();
        let id = *self.run.rng.pick(&ids);
        let batches = self.made[&id];
        let to = format!("{RESTORED}-{}", self.run.rng.next_u64());
        let camera = Camera::install(&self.run.world.storage, self.run.rng.fork(), 8);
        let restored = Backups::new(&self.run.world.env(), DIR).restore(Some(id), &to, &mut |_| {});
        restored.map_err(|e| format!("{e:?}"))?;
        let images = camera.take();
        drop(camera);
        for image in images {
            let world = world_of(image.storage, self.run.world.clock.wall_us(), self.run.rng.next_u64());
            let names = world.storage.list(Path::new(&to)).unwrap_or_default();
            let begun = names.iter().any(|name| name != "LOCK");
            match self.run.setup.builder_at(&world, &to).open(&to) {
                Ok(copy) if begun => {
                    self.run.is_exact(&copy, batches).map_err(|e| format!("{}: {e}", image.moment))?;
                }
                Ok(_) => {}
                // Remains without their first bytes cannot be recognised.
                Err(e)
                    if matches!(e.kind(), ErrorKind::Corruption | ErrorKind::Invalid)
                        && !names.iter().any(|n| n == "CURRENT") => {}
                Err(e) => return Err(format!("{}: half restored it answers {e:?}", image.moment)),
            }
            self.run.crashes += u64::from(begun);
        }
        let copy = self.run.setup.builder_at(&self.run.world, &to).open(&to);
        self.run.is_exact(&copy.map_err(|e| format!("open: {e:?}"))?, batches)
    }

    /// Everything that must be there is listed and nothing that may not; one backup restores exactly, the
    /// source too, and a further backup ends well.
    fn check_image(&mut self, image: Image, must: &Made, may: &Made) -> Result<(), String> {
        let world = world_of(image.storage, self.run.world.clock.wall_us(), self.run.rng.next_u64());
        let begun = !world.storage.list(Path::new(DIR)).unwrap_or_default().is_empty();
        self.check_listed(&world, must, may)?;
        let source = Subject::open(&self.run.setup, &world).map_err(|e| format!("open the source: {e:?}"))?;
        let batches = recovered_batches(&source, &self.run.setup, &self.run.history, image.end)
            .map_err(|e| format!("the source: {e}"))?;
        if self.run.rng.one_in(4) {
            let made = source.db.backup(DIR).map_err(|e| format!("the next backup: {e:?}"))?;
            let backups = Backups::new(&world.env(), DIR);
            backups.keep_last(1).map_err(|e| format!("keep the next backup: {e:?}"))?;
            let only = Made::from([(made.id, batches)]);
            self.check_listed(&world, &only, &only).map_err(|e| format!("the next backup: {e}"))?;
            let left = world.storage.list(Path::new(DIR)).map_err(|e| format!("list: {e}"))?;
            let expected = made.tables as usize + 3;
            let logs = left.iter().filter(|name| name.ends_with(".log")).count();
            if left.len() != expected + logs {
                return Err(format!("a backup of {} tables leaves {left:?}", made.tables));
            }
        }
        self.run.crashes += u64::from(begun);
        Ok(())
    }

    fn check_listed(&mut self, world: &SimWorld, must: &Made, may: &Made) -> Result<(), String> {
        let backups = Backups::new(&world.env(), DIR);
        let listed = backups.list().map_err(|e| format!("list: {e:?}"))?;
        let listed: Vec<u64> = listed.iter().map(|backup| backup.id).collect();
        if let Some(id) = must.keys().find(|id| !listed.contains(id)) {
            return Err(format!("backup {id} is gone, there are {listed:?}"));
        }
        if listed.is_empty() {
            return Ok(());
        }
        let id = *self.run.rng.pick(&listed);
        let batches = *may.get(&id).ok_or_else(|| format!("there is a backup {id}"))?;
        let to = format!("{RESTORED}-{}", self.run.rng.next_u64());
        let named = |e: String| format!("backup {id}: {e}");
        backups.restore(Some(id), &to, &mut |_| {}).map_err(|e| named(format!("restore: {e:?}")))?;
        let copy =
            self.run.setup.builder_at(world, &to).open(&to).map_err(|e| named(format!("open: {e:?}")))?;
        self.run.is_exact(&copy, batches).map_err(named)
    }
}
