//! A family that moves: out of one database into a directory, into a second database, and back again by
//! another directory. Wherever that crashes each database opens and holds what was promised, the family is in
//! one place at least, and wherever it is it is whole.

use super::Run;
use crate::campaign::CaseResult;
use crate::history::End;
use crate::model::Op;
use crate::power::{Camera, Image};
use crate::subject::{self, Setup, Subject, difference, rows, world_of};
use siltstone::storage::sim::{Rng, SimWorld};
use siltstone::storage::{Clock, ObjectStore, Storage};
use siltstone::testing::with_kill_hook;
use siltstone::{Db, Durability, ErrorKind, Family, check, check_with_objects};
use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

/// The family that moves.
const FAMILY: &str = "versions";
/// The second database, and where the family lies between the two.
const SECOND: &str = "second";
const THERE: &str = "there";
const BACK: &str = "back";
/// Between these stages both databases go on.
const STAGES: &[&str] =
    &["detach-refusing", "detach-linked", "detach-described", "family-drop-committed", "attach-linked"];

pub(super) fn case(seed: u64) -> CaseResult {
    let mut run = Run::new(seed, if seed.is_multiple_of(2) { 24 << 10 } else { 64 << 10 }, u64::MAX)?;
    let second =
        alone(&run.setup).builder_at(&run.world, SECOND).open(SECOND).map_err(|e| format!("open: {e:?}"))?;
    for _ in 0..run.rng.range(1..3) {
        run.work()?;
    }
    let before = run.history.len();
    let moving = run.subject.families[1].clone();
    let mut case = Case { run, second, written: 0, acknowledged: 0, synced: 0, before, back: false };
    for _ in 0..case.run.rng.range(0..200) {
        case.write_second()?;
    }
    let first = case.run.subject.db.clone();
    case.step(Some(moving), |_| first.detach(FAMILY, THERE)).map_err(|e| format!("detach: {e}"))?;
    case.synced = case.written;
    case.step(None, |second| second.attach(FAMILY, THERE).map(|_| ())).map_err(|e| format!("attach: {e}"))?;
    let family = case.second.family(FAMILY).map_err(|e| format!("{e:?}"))?;
    if case.run.rng.chance(50) {
        family.compact::<&[u8]>(..).map_err(|e| format!("compact: {e:?}"))?;
    }
    case.back = true;
    case.step(Some(family), |second| second.detach(FAMILY, BACK)).map_err(|e| format!("detach: {e}"))?;
    case.step(None, |_| first.attach(FAMILY, BACK).map(|_| ())).map_err(|e| format!("attach: {e}"))?;
    case.at_home(first)
}

/// The setup without the family that moves, whose opening does not make it.
fn alone(setup: &Setup) -> Setup {
    Setup { families: setup.families[..1].to_vec(), ..setup.clone() }
}

struct Case {
    run: Run,
    second: Db,
    /// The second database holds that many keys of its own.
    written: u64,
    /// So many of them no kill may lose, and so many no power loss where the family is there, which came
    /// after them.
    acknowledged: u64,
    synced: u64,
    /// The batches that the family holds while it is away.
    before: usize,
    /// It is on its way back.
    back: bool,
}

fn is_of_default(op: &Op) -> bool {
    let (Op::Put { family, .. }
    | Op::Delete { family, .. }
    | Op::Merge { family, .. }
    | Op::DeleteRange { family, .. }) = op;
    *family == 0
}

fn second_key(n: u64) -> [u8; 8] {
    n.to_be_bytes()
}

impl Case {
    fn write_second(&mut self) -> Result<(), String> {
        let key = second_key(self.written);
        self.second.put(key, [7; 100]).map_err(|e| format!("write the second: {e:?}"))?;
        self.written += 1;
        Ok(())
    }

    /// A step of the move under load, and everything as a crash in it would leave it. `leaving` is the family
    /// that must take no writes.
    fn step(
        &mut self,
        leaving: Option<Family>,
        step: impl FnOnce(&Db) -> siltstone::Result<()>,
    ) -> Result<(), String> {
        self.acknowledged = self.written;
        let camera = Camera::install(&self.run.world.storage, self.run.rng.fork(), 20);
        let load: Rc<RefCell<Load>> = Rc::default();
        let (into, subject, setup) = (load.clone(), self.run.subject.clone(), self.run.setup.clone());
        let (mut rng, second, written) = (self.run.rng.fork(), self.second.clone(), self.written);
        let number = self.run.history.len();
        let hook = move |point: &'static str| {
            if STAGES.contains(&point) {
                let mut load = into.borrow_mut();
                if load.failed.is_none() {
                    let ops = load.batches.len() + number + 1;
                    load.failed = load.go_on(&subject, &setup, &mut rng, ops).err();
                    let put = second.put(second_key(written + load.written), [7; 100]);
                    load.written += 1;
                    load.failed = load.failed.take().or(put.err().map(|e| format!("{e:?}")));
                    if let Some(leaving) = &leaving {
                        let refused = leaving.delete(b"k").err().map(|e| e.kind());
                        if !matches!(refused, Some(ErrorKind::Busy | ErrorKind::NotFound)) {
                            load.failed = Some(format!("a write to the leaving family answers {refused:?}"));
                        }
                    }
                }
            }
        };
        with_kill_hook(hook, || step(&self.second)).map_err(|e| format!("{e:?}"))?;
        let images = camera.take();
        drop(camera);
        let load = load.take();
        if let Some(why) = load.failed {
            return Err(format!("in its middle: {why}"));
        }
        self.written += load.written;
        let ids: Vec<_> =
            load.batches.into_iter().map(|(ops, now_us)| self.run.history.start(ops, now_us)).collect();
        for image in images {
            let moment = image.moment.clone();
            self.check_image(image).map_err(|e| format!("{moment}: {e}"))?;
            self.run.crashes += 1;
        }
        ids.into_iter().for_each(|id| self.run.history.buffered(id));
        Ok(())
    }

    fn check_image(&mut self, image: Image) -> Result<(), String> {
        let world = world_of(image.storage, self.run.world.clock.wall_us(), self.run.rng.next_u64());
        let mut places = 0;
        for dir in [THERE, BACK] {
            places += u64::from(self.is_detached(&world, dir).map_err(|e| format!("{dir}: {e}"))?);
        }
        let first = self.open(&world, subject::DIR)?;
        let at_home = first.families().iter().any(|name| name == FAMILY);
        self.check_first(&first, at_home, image.end).map_err(|e| format!("the first: {e}"))?;
        let second = self.open(&world, SECOND)?;
        let arrived = second.families().iter().any(|name| name == FAMILY);
        let holds = self.check_second(&second, arrived).map_err(|e| format!("the second: {e}"))?;
        let least = match image.end {
            End::Kill => self.acknowledged,
            End::PowerLoss if arrived => self.synced,
            End::PowerLoss => 0,
        };
        if holds < least || holds > self.written {
            return Err(format!("the second holds {holds} of {} writes", self.written));
        }
        if places + u64::from(at_home) + u64::from(arrived) == 0 {
            return Err("the family is nowhere".into());
        }
        for (db, dir) in [(first, subject::DIR), (second, SECOND)] {
            db.close().map_err(|e| format!("close: {e:?}"))?;
            let objects = self.run.setup.objects(&world).filter(|_| dir == subject::DIR);
            let report = match objects {
                None => check(&world.env(), Path::new(dir), &mut |_| {}),
                Some(objects) => {
                    let stores =
                        move |_: &str| -> std::io::Result<Arc<dyn ObjectStore>> { Ok(objects.clone()) };
                    check_with_objects(&world.env(), Path::new(dir), &stores, &mut |_| {})
                }
            };
            let report = report.map_err(|e| format!("{e:?}"))?;
            if !report.is_clean() || !report.leftovers.is_empty() {
                return Err(format!("{dir}: {:?} {:?}", report.damages, report.leftovers));
            }
        }
        Ok(())
    }

    fn open(&self, world: &SimWorld, dir: &str) -> Result<Db, String> {
        alone(&self.run.setup).builder_at(world, dir).open(dir).map_err(|e| format!("open {dir}: {e:?}"))
    }

    /// Whether a detached family is there; if so it must be whole.
    fn is_detached(&self, world: &SimWorld, dir: &str) -> Result<bool, String> {
        let names = world.storage.list(Path::new(dir)).unwrap_or_default();
        if !names.iter().any(|name| name == "CURRENT") {
            return Ok(false);
        }
        let db = alone(&self.run.setup)
            .builder_at(world, dir)
            .open_read_only(dir)
            .map_err(|e| format!("{e:?}"))?;
        self.is_whole(&db).map(|()| true)
    }

    /// It holds the family as it was when it left.
    fn is_whole(&self, db: &Db) -> Result<(), String> {
        let expected = self.run.history.model(self.before).contents(self.run.world.clock.wall_us());
        let family = db.family(FAMILY).map_err(|e| format!("{e:?}"))?;
        let found = rows(family.scan::<&[u8]>(..)).map_err(|e| format!("scan: {e:?}"))?;
        if found == expected[1] { Ok(()) } else { Err(difference(&expected[1], &found)) }
    }

    /// A prefix of the batches; all up to the move if the family has left, since it took its part of them
    /// along.
    fn check_first(&self, db: &Db, at_home: bool, end: End) -> Result<(), String> {
        let now_us = self.run.world.clock.wall_us();
        let found = |family: Family| rows(family.scan::<&[u8]>(..)).map_err(|e| format!("scan: {e:?}"));
        let default = found(db.default_family())?;
        if at_home && !self.back {
            let family = db.family(FAMILY).map_err(|e| format!("{e:?}"))?;
            return self.run.history.check(end, &[default, found(family)?], now_us).map(|_| ());
        }
        if at_home {
            self.is_whole(db)?;
        }
        let least = self.run.history.promised(end).max(self.before);
        let fits = |batches: usize| self.run.history.model(batches).contents(now_us)[0] == default;
        if (least..=self.run.history.len()).any(fits) { Ok(()) } else { Err("it holds no prefix".into()) }
    }

    /// How many writes of its own the second holds, which must be the first ones.
    fn check_second(&self, db: &Db, arrived: bool) -> Result<u64, String> {
        if arrived {
            self.is_whole(db)?;
        }
        let keys = rows(db.scan::<&[u8]>(..)).map_err(|e| format!("scan: {e:?}"))?;
        match keys.iter().enumerate().find(|(n, row)| row.0 != second_key(*n as u64)) {
            None => Ok(keys.len() as u64),
            Some((n, _)) => Err(format!("its write {n} is missing")),
        }
    }

    /// Back where it was, the database goes on with both families as if nothing had been.
    fn at_home(mut self, first: Db) -> CaseResult {
        let failed = |e: siltstone::Error| format!("reopen: {e:?}");
        self.second.close().map_err(failed)?;
        first.close().map_err(failed)?;
        self.run.subject = Rc::new(Subject::open(&self.run.setup, &self.run.world).map_err(failed)?);
        self.run.work()?;
        self.run.check_source()?;
        Ok(self.run.crashes)
    }
}

/// What happened in the middle of a step.
#[derive(Default)]
struct Load {
    batches: Vec<(Vec<Op>, u64)>,
    /// To the second database.
    written: u64,
    failed: Option<String>,
}

impl Load {
    /// Writes a batch to the family that stays, and lets some background work happen.
    fn go_on(
        &mut self,
        subject: &Subject,
        setup: &Setup,
        rng: &mut Rng,
        number: usize,
    ) -> Result<(), String> {
        let ops: Vec<Op> = setup.batch(rng, number).into_iter().filter(is_of_default).collect();
        let now_us = subject.now_us();
        subject.write(setup, &ops, Durability::Buffered).map_err(|e| format!("write: {e:?}"))?;
        self.batches.push((ops, now_us));
        subject.scheduler.run(rng.range(0..20) as u32);
        Ok(())
    }
}
