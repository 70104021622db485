//! Copies that share SSTables: backups are restored by reference, and the families of what was restored are
//! copied, by reference too, into a database that goes on. Wherever that crashes, that database has all
//! families of a copy or none, and each copy made earlier as it was. Then some copies are overwritten and
//! compacted, so that SSTables go and are freed in part, and backups are removed: the other copies stay
//! exact, and so does every byte of the backups that are left.

use super::Run;
use crate::campaign::{CaseResult, failed};
use crate::power::{Camera, Image};
use crate::subject::world_of;
use siltstone::schedule::SimScheduler;
use siltstone::storage::sim::SimWorld;
use siltstone::storage::{Clock, Random, Storage};
use siltstone::testing::with_kill_hook;
use siltstone::{Backups, Db, ErrorKind, Family, FamilyOptions, Timestamp, Timestamps, check};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

const BACKUPS: &str = "backups";
/// The database that takes the copies in.
const SECOND: &str = "second";

pub(super) fn case(seed: u64) -> CaseResult {
    let write_memory = if seed.is_multiple_of(2) { 24 << 10 } else { 64 << 10 };
    let mut run = Run::new(seed, write_memory, 4 << 10)?;
    if run.rng.chance(60) {
        // Enough for SSTables of which a step frees a part.
        (run.setup.keys, run.setup.value_bytes) = (100, 200);
    }
    let (second, turns) = open(&run, &run.world, SECOND)?;
    let mut case = Case { run, second, turns, backups: BTreeMap::new(), copies: BTreeMap::new() };
    for number in 0..case.run.rng.range(2..5) {
        case.run.work()?;
        case.copy(number).map_err(|e| format!("copy {number}: {e}"))?;
        if case.run.rng.chance(70) {
            case.spend().map_err(|e| format!("after copy {number}: {e}"))?;
        }
        if case.run.rng.one_in(3) {
            let keep = case.run.rng.range(1..case.backups.len() as u64 + 1) as usize;
            let removed = backups(&case.run.world).keep_last(keep).map_err(failed("remove backups"))?;
            case.backups.retain(|id, _| !removed.contains(id));
        }
        case.check_all().map_err(|e| format!("after copy {number}: {e}"))?;
    }
    case.end()
}

struct Case {
    run: Run,
    second: Db,
    turns: Arc<SimScheduler>,
    /// The batches of each backup, by its number.
    backups: BTreeMap<u64, usize>,
    /// The batches of each copy in the second database that was not written to.
    copies: BTreeMap<u64, usize>,
}

fn backups(world: &SimWorld) -> Backups {
    Backups::new(&world.env(), BACKUPS)
}

/// The names of the families of a copy.
fn named(number: u64, family: &str) -> String {
    format!("copy-{number}-{family}")
}

fn open(run: &Run, world: &SimWorld, dir: &str) -> Result<(Db, Arc<SimScheduler>), String> {
    let turns = Arc::new(SimScheduler::for_world(world));
    let builder = run.setup.builder_at(world, dir).scheduler(turns.clone());
    builder.open(dir).map(|db| (db, turns)).map_err(|e| format!("open {dir}: {e:?}"))
}

impl Case {
    /// Backs the source up, restores that by reference, and copies its families into the second database.
    fn copy(&mut self, number: u64) -> Result<(), String> {
        let batches = self.run.history.len();
        let made = self.run.subject.db.backup(BACKUPS).map_err(failed("backup"))?;
        self.backups.insert(made.id, batches);
        let whole = format!("whole-{number}");
        self.restore(made.id, &whole, batches)?;
        let (from, _turns) = open(&self.run, &self.run.world, &whole)?;
        self.run.is_exact(&from, batches)?;
        let names: Vec<(&str, String)> =
            self.run.setup.families.iter().map(|family| (family.name, named(number, family.name))).collect();
        let pairs: Vec<(&str, &str)> = names.iter().map(|(theirs, ours)| (*theirs, ours.as_str())).collect();
        let camera = Camera::install(&self.run.world.storage, self.run.rng.fork(), 40);
        let (source, gone_on) = (from.clone(), Rc::new(RefCell::new(Ok(()))));
        let into = gone_on.clone();
        let hook = move |point: &'static str| {
            if point == "copy-families-held" {
                *into.borrow_mut() = go_on(&source);
            }
        };
        let copied = with_kill_hook(hook, || self.second.copy_families(&from, &pairs));
        let images = camera.take();
        drop(camera);
        copied.map_err(failed("copy families"))?;
        gone_on.replace(Ok(())).map_err(failed("go on with what is copied"))?;
        for image in images {
            let moment = image.moment.clone();
            self.check_image(image, number, batches).map_err(|e| format!("{moment}: {e}"))?;
        }
        self.copies.insert(number, batches);
        from.close().map_err(failed("close"))?;
        drop(from);
        let storage = &self.run.world.storage;
        for name in storage.list(Path::new(&whole)).map_err(|e| e.to_string())? {
            storage.remove(&Path::new(&whole).join(name)).map_err(|e| e.to_string())?;
        }
        Ok(())
    }

    /// Restores by reference; wherever that crashes there is a whole database or none.
    fn restore(&mut self, id: u64, to: &str, batches: usize) -> Result<(), String> {
        let camera = Camera::install(&self.run.world.storage, self.run.rng.fork(), 8);
        let restored = backups(&self.run.world).restore_shared(Some(id), to, &mut |_| {});
        restored.map_err(failed("restore"))?;
        let images = camera.take();
        drop(camera);
        for Image { storage, moment, .. } in images {
            let world = world_of(storage, self.run.world.clock.wall_us(), self.run.rng.next_u64());
            let names = world.storage.list(Path::new(to)).unwrap_or_default();
            let begun = names.iter().any(|name| name != "LOCK");
            match self.run.setup.builder_at(&world, to).open(to) {
                Ok(db) if begun => self.run.is_exact(&db, batches).map_err(|e| format!("{moment}: {e}"))?,
                Ok(_) => {}
                // Remains without their first bytes cannot be recognised.
                Err(e)
                    if matches!(e.kind(), ErrorKind::Corruption | ErrorKind::Invalid)
                        && !names.iter().any(|name| name == "CURRENT") => {}
                Err(e) => return Err(format!("{moment}: half restored it answers {e:?}")),
            }
            if self.run.rng.one_in(4) {
                self.check_backup(&world, id, batches).map_err(|e| format!("{moment}: {e}"))?;
            }
            self.run.crashes += u64::from(begun);
        }
        Ok(())
    }

    /// Writes over a copy and compacts it, mostly not to the end; from here on it is not looked at.
    fn spend(&mut self) -> Result<(), String> {
        let numbers: Vec<u64> = self.copies.keys().copied().collect();
        let number = *self.run.rng.pick(&numbers);
        self.copies.remove(&number);
        for setup in &self.run.setup.families {
            let family = self.second.family(&named(number, setup.name)).map_err(failed("family"))?;
            // Compactions that write smaller SSTables than they read pass their inputs in several steps.
            let strategy = "leveled{l0_runs_trigger=2, multiplier=2, base_bytes=4096, sstable_bytes=4096}";
            let strategy = strategy.parse()?;
            let altered = family.alter(FamilyOptions { strategy, ..family.options() });
            altered.map_err(failed("alter"))?;
            write_over(&family).map_err(failed("write over"))?;
        }
        self.second.flush().map_err(failed("flush"))?;
        self.turns.run(self.run.rng.range(0..60) as u32);
        if self.run.rng.chance(30) {
            let family = self.second.family(&named(number, "default")).map_err(failed("family"))?;
            family.compact::<&[u8]>(..).map_err(failed("compact"))?;
        }
        Ok(())
    }

    /// The copies that were not written to, and every byte of every backup.
    fn check_all(&self) -> Result<(), String> {
        for (number, batches) in &self.copies {
            let exact = self.run.is_exact_as(&self.second, *batches, |name| named(*number, name));
            exact.map_err(|e| format!("copy {number}: {e}"))?;
        }
        let check = |(id, batches): (&u64, &usize)| self.check_backup(&self.run.world, *id, *batches);
        self.backups.iter().try_for_each(check)
    }

    /// Restored by copying, which compares every byte with what it was.
    fn check_backup(&self, world: &SimWorld, id: u64, batches: usize) -> Result<(), String> {
        let to = format!("checked-{}", world.random.next_u64());
        let restored = backups(world).restore(Some(id), &to, &mut |_| {});
        restored.map_err(|e| format!("backup {id}: {e:?}"))?;
        let (db, _turns) = open(&self.run, world, &to)?;
        self.run.is_exact(&db, batches).map_err(|e| format!("backup {id}: {e}"))
    }

    /// The second database has all of the copy that was being made or nothing of it, and the others as they
    /// were.
    fn check_image(&mut self, image: Image, number: u64, batches: usize) -> Result<(), String> {
        let world = world_of(image.storage, self.run.world.clock.wall_us(), self.run.rng.next_u64());
        let (second, _turns) = open(&self.run, &world, SECOND)?;
        for (other, batches) in &self.copies {
            let exact = self.run.is_exact_as(&second, *batches, |name| named(*other, name));
            exact.map_err(|e| format!("copy {other}: {e}"))?;
        }
        let families = second.families();
        let begin = named(number, "");
        match families.iter().filter(|name| name.starts_with(&begin)).count() {
            0 => {}
            n if n == self.run.setup.families.len() => {
                self.run.is_exact_as(&second, batches, |name| named(number, name))?;
            }
            n => return Err(format!("{n} families of the copy are there")),
        }
        second.close().map_err(failed("close"))?;
        is_clean(&world)?;
        if self.run.rng.one_in(4) {
            let id = self.backups.last_key_value().map_or(0, |(id, _)| *id);
            self.check_backup(&world, id, batches)?;
        }
        self.run.crashes += 1;
        Ok(())
    }

    /// After the last copy and the last backup, no SSTable is left.
    fn end(mut self) -> CaseResult {
        for name in self.second.families().iter().filter(|name| name.starts_with("copy-")) {
            self.second.drop_family(name).map_err(failed("drop a copy"))?;
        }
        self.copies.clear();
        self.check_all()?;
        self.turns.settle();
        let tables = |dir: &str| -> Result<usize, String> {
            let names = self.run.world.storage.list(Path::new(dir)).map_err(|e| e.to_string())?;
            Ok(names.iter().filter(|name| name.ends_with(".table")).count())
        };
        match tables(SECOND)? {
            0 => {}
            left => return Err(format!("{left} tables are left of copies that were dropped")),
        }
        for id in self.backups.keys() {
            backups(&self.run.world).delete(*id).map_err(failed("delete a backup"))?;
        }
        match tables(BACKUPS)? {
            0 => {}
            left => return Err(format!("{left} tables are left of backups that were deleted")),
        }
        // Last, as it kills the process that has all of them open.
        self.run.check_source()?;
        Ok(self.run.crashes)
    }
}

/// Writes over a family and compacts the SSTables that are being copied away.
fn go_on(source: &Db) -> siltstone::Result<()> {
    let family = source.default_family();
    write_over(&family)?;
    source.flush()?;
    family.compact::<&[u8]>(..)
}

/// Writes over every second key that is there.
fn write_over(family: &Family) -> siltstone::Result<()> {
    let keys = family.scan::<&[u8]>(..).keys().collect::<siltstone::Result<Vec<_>>>()?;
    for key in keys.iter().step_by(2) {
        match family.options().timestamps {
            Timestamps::Explicit => family.put_at(key, Timestamp(1 << 40), [7; 150])?,
            Timestamps::Implicit => family.put(key, [7; 150])?,
        };
    }
    Ok(())
}

fn is_clean(world: &SimWorld) -> Result<(), String> {
    let report = check(&world.env(), Path::new(SECOND), &mut |_| {}).map_err(failed("check"))?;
    match report.is_clean() && report.leftovers.is_empty() {
        true => Ok(()),
        false => Err(format!("{:?} {:?}", report.damages, report.leftovers)),
    }
}
