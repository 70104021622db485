//! Power cuts and kills at any storage operation of a random workload, recovery included.
//!
//! While the workload runs, its disk is copied as a power cut (or a kill) at that moment would leave it. Each
//! copy is opened as a database of its own and must hold every promised batch and a prefix of the rest. Some
//! copies lose power again during that recovery; some are written on and lose power then.

use crate::campaign::{CaseResult, Row};
use crate::history::{End, History};
use crate::model;
use crate::subject::{MARKER, Setup, Subject, change_options, difference, draw_memory, world_of};
use parking_lot::Mutex;
use siltstone::Durability;
use siltstone::storage::Clock;
use siltstone::storage::sim::{Rng, SimStorage, SimWorld, Survive};
use std::sync::Arc;

/// Power loss at 50,000 points.
pub const POWER: Row = Row::new("power", "crash points", 50_000, power_case);

/// A disk after its end.
pub(crate) struct Image {
    pub(crate) storage: SimStorage,
    pub(crate) end: End,
    /// For messages.
    pub(crate) moment: String,
}

/// Copies a disk at random operations.
pub(crate) struct Camera {
    storage: SimStorage,
    images: Arc<Mutex<Vec<Image>>>,
}

impl Camera {
    pub(crate) fn install(storage: &SimStorage, mut rng: Rng, one_in: u64) -> Self {
        let images = Arc::new(Mutex::new(Vec::new()));
        let (disk, into) = (storage.clone(), images.clone());
        let rng = Mutex::new(rng.fork());
        storage.on_op(move |op, path| {
            let mut rng = rng.lock();
            if !rng.one_in(one_in) {
                return;
            }
            let keep = |storage, end, how: &str| {
                let moment = format!("{how} before {op:?} of {}", path.display());
                into.lock().push(Image { storage, end, moment });
            };
            for survive in [Survive::None, Survive::Half, Survive::All] {
                let copy = disk.clone_crashed(survive, rng.next_u64());
                keep(copy, End::PowerLoss, &format!("power loss, surviving {survive:?},"));
            }
            if rng.one_in(3) {
                keep(disk.clone_killed(), End::Kill, "kill");
            }
        });
        Self { storage: storage.clone(), images }
    }

    pub(crate) fn take(&self) -> Vec<Image> {
        std::mem::take(&mut *self.images.lock())
    }
}

impl Drop for Camera {
    fn drop(&mut self) {
        self.storage.clear_on_op();
    }
}

/// How many of the history's batches are there, if that is a prefix that keeps every promise.
pub fn recovered_batches(
    subject: &Subject,
    setup: &Setup,
    history: &History,
    end: End,
) -> Result<usize, String> {
    let before_us = subject.now_us();
    let contents = subject.contents().map_err(|e| format!("scan failed: {e:?}"))?;
    // Reading takes time, in which a row may have expired.
    at_one_time(&contents, setup, history, end, before_us)
        .or_else(|wrong| at_one_time(&contents, setup, history, end, subject.now_us()).map_err(|_| wrong))
}

/// How many of the history's batches are there, where each is there or was never acknowledged. The stream of
/// changes must show them, too.
pub fn recovered_and_shown(
    subject: &Subject,
    setup: &Setup,
    history: &History,
    end: End,
) -> Result<usize, String> {
    let batches = recovered_batches(subject, setup, history, end)?;
    if setup.marker {
        // Without it not all that is there may be known.
        crate::stream::check_tail(&subject.db, setup, &history.ops(batches))?;
    }
    Ok(batches)
}

fn at_one_time(
    contents: &[Vec<model::Row>],
    setup: &Setup,
    history: &History,
    end: End,
    now_us: u64,
) -> Result<usize, String> {
    if setup.marker {
        let marker = contents[0].iter().find(|row| row.0 == MARKER);
        let bytes = marker.map_or([0; 8], |row| row.2.as_slice().try_into().unwrap_or([0xff; 8]));
        let batches = u64::from_le_bytes(bytes) as usize;
        if (history.promised(end)..=history.len()).contains(&batches)
            && history.model(batches).contents(now_us) == contents
        {
            return Ok(batches);
        }
    }
    history.check(end, contents, now_us).map(|(_, longest)| longest)
}

fn power_case(seed: u64) -> CaseResult {
    let mut rng = Rng::new(seed);
    let world = SimWorld::new(rng.next_u64());
    let setup = Setup::draw(&mut rng, world.clock.wall_us());
    let mut run = PowerRun {
        history: History::new(setup.rules()),
        camera: Camera::install(&world.storage, rng.fork(), *rng.clone().pick(&[8, 12, 20])),
        world,
        setup,
        rng,
        points: 0,
    };
    run.workload()?;
    Ok(run.points)
}

struct PowerRun {
    setup: Setup,
    world: SimWorld,
    rng: Rng,
    history: History,
    camera: Camera,
    points: u64,
}

impl PowerRun {
    fn workload(&mut self) -> Result<(), String> {
        let mut subject = self.open()?;
        let steps = self.rng.range(20..90);
        for step in 0..steps {
            let at = |e: siltstone::Error| format!("step {step}: {e:?}");
            match self.rng.range(0..100) {
                0..70 => {
                    let durability =
                        if self.rng.chance(30) { Durability::Sync } else { Durability::Buffered };
                    let ops = self.setup.batch(&mut self.rng, self.history.len() + 1);
                    let id = self.history.start(ops.clone(), subject.now_us());
                    subject.write(&self.setup, &ops, durability).map_err(at)?;
                    self.check_images()?;
                    match durability {
                        Durability::Sync => self.history.synced(id),
                        Durability::Buffered => self.history.buffered(id),
                    }
                }
                70..85 => drop(subject.scheduler.run(self.rng.range(1..12) as u32)),
                85..86 => {
                    let (write_memory, budget) = draw_memory(&self.setup.options, &mut self.rng);
                    subject.db.set_memory_limits(write_memory, budget).map_err(at)?;
                }
                86..88 => {
                    subject.db.flush().map_err(at)?;
                    self.check_images()?;
                    self.history.all_synced();
                }
                88..90 => {
                    let family = self.rng.pick(&subject.families).clone();
                    family.compact::<&[u8]>(..).map_err(at)?;
                }
                90..93 => {
                    subject.db.sync().map_err(at)?;
                    self.check_images()?;
                    self.history.all_synced();
                }
                93..94 => subject.db.wait_idle().map_err(at)?,
                94..95 => {
                    let family = self.rng.pick(&subject.families).clone();
                    change_options(&family, &mut self.rng).map_err(at)?;
                }
                95..97 => self.world.clock.advance_us(self.rng.range(0..400_000_000)),
                _ => {
                    subject.db.close().map_err(at)?;
                    self.check_images()?;
                    self.history.all_synced();
                    drop(subject);
                    subject = self.open()?;
                }
            }
            self.check_images()?;
        }
        let batches = recovered_and_shown(&subject, &self.setup, &self.history, End::Kill)?;
        if batches != self.history.len() && self.setup.marker {
            return Err(format!("{batches} of {} batches are there at the end", self.history.len()));
        }
        Ok(())
    }

    fn open(&mut self) -> Result<Subject, String> {
        let subject = Subject::open(&self.setup, &self.world).map_err(|e| format!("open: {e:?}"))?;
        self.check_images()?;
        Ok(subject)
    }

    fn check_images(&mut self) -> Result<(), String> {
        for image in self.camera.take() {
            let moment = image.moment.clone();
            let now_us = self.world.clock.wall_us();
            let points = check_image(image, &self.setup, &self.history, now_us, &mut self.rng);
            self.points += points.map_err(|e| {
                let batches = self.history.len();
                format!("{moment} with {batches} batches begun: {e}")
            })?;
        }
        Ok(())
    }
}

/// Opens what a crash left and compares. Answers how many crashes were looked at.
fn check_image(
    image: Image,
    setup: &Setup,
    history: &History,
    now_us: u64,
    rng: &mut Rng,
) -> Result<u64, String> {
    let (mut end, mut points) = (image.end, 1);
    let mut world = world_of(image.storage, now_us, rng.next_u64());
    if rng.one_in(4) {
        // The power goes during recovery, or soon after.
        world.storage.crash_at(rng.range(1..60));
        drop(Subject::open(setup, &world).map(|subject| subject.scheduler.run(20)));
        let survive = *rng.pick(&[Survive::None, Survive::Half, Survive::All]);
        world = world_of(world.storage.crash(survive, rng.next_u64()), now_us, rng.next_u64());
        end = End::PowerLoss;
        points += 1;
    }
    let subject = Subject::open(setup, &world).map_err(|e| format!("open after {points} crashes: {e:?}"))?;
    let batches = recovered_and_shown(&subject, setup, history, end)
        .map_err(|e| format!("after {points} crashes: {e}"))?;
    if !rng.one_in(6) {
        return Ok(points);
    }
    // Without a marker it may not be known which batches are there: the last may have deleted what nobody
    // saw.
    let contents = |batches| history.model(batches).contents(subject.now_us());
    if !setup.marker && (history.promised(end)..batches).any(|fewer| contents(fewer) == contents(batches)) {
        return Ok(points);
    }
    // What was found is durable now. It is written on, and the power goes again.
    let mut history = history.clone();
    history.recovered(batches, true);
    for _ in 0..rng.range(1..12) {
        let durability = if rng.chance(40) { Durability::Sync } else { Durability::Buffered };
        let ops = setup.batch(rng, history.len() + 1);
        let id = history.start(ops.clone(), subject.now_us());
        subject.write(setup, &ops, durability).map_err(|e| format!("write after recovery: {e:?}"))?;
        match durability {
            Durability::Sync => history.synced(id),
            Durability::Buffered => history.buffered(id),
        }
        subject.scheduler.run(rng.range(0..8) as u32);
    }
    let (now_us, expected) = (subject.now_us(), history.model(history.len()));
    let found = subject.contents().map_err(|e| format!("scan after recovery: {e:?}"))?;
    for (expected, found) in expected.contents(now_us).iter().zip(&found) {
        if expected != found {
            return Err(format!("written on after recovery: {}", difference(expected, found)));
        }
    }
    let survive = *rng.pick(&[Survive::None, Survive::Half, Survive::All]);
    let storage = world.storage.crash(survive, rng.next_u64());
    drop(subject);
    let world = world_of(storage, now_us, rng.next_u64());
    let subject = Subject::open(setup, &world).map_err(|e| format!("open after going on: {e:?}"))?;
    recovered_and_shown(&subject, setup, &history, End::PowerLoss)
        .map_err(|e| format!("after going on: {e}"))?;
    Ok(points + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::campaign::must_hold;

    #[test]
    fn no_power_loss_and_no_kill_loses_a_promised_batch_or_leaves_a_hole() {
        must_hold(&POWER, 1, 600);
    }
}
