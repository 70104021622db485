//! Reads between the steps of flushes and compactions, and flushes and compactions in the middle of reads.
//!
//! Values that do not compress, small SSTables and small steps let every flush and compaction take many
//! steps. The workers get one turn at a time, and while a flush or compaction stands between two of its
//! steps, every key is read: by get, and by scans both ways. Then reads are held up half-way, between their
//! version and their read point: meanwhile all keys are overwritten, flushed and compacted. Such a read must
//! answer with what held at one moment between its begin and its end. Now and then the family is copied,
//! mostly with SSTables that compactions have passed in part: the copy, which shares them, stays as it is.
//! Now and then the process is killed between steps, and the next one must find everything.

use crate::campaign::{CaseResult, Checked, Row, failed};
use crate::settings::FILLS;
use crate::strategies;
use crate::subject::{DIR, draw_mechanisms};
use siltstone::schedule::SimScheduler;
use siltstone::storage::sim::{Rng, SimWorld};
use siltstone::testing::with_kill_hook;
use siltstone::{
    Builder, CacheFill, Compression, Db, Family, FamilyOptions, Options, Result, Scan, Timestamp, Timestamps,
    Tuning,
};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

/// Checks of readers while steps are taken.
pub const BETWEEN: Row = Row::new("between", "moments in mid-way", 3_000, between_case);

/// A copy of the family.
const COPY: &str = "copy";
const KEYS: u64 = 40;
const VALUE_BYTES: usize = 1 << 10;
/// Where a read has its version and not yet its read point.
const HALF_WAY: &str = "read-half-way";

type Contents = BTreeMap<Vec<u8>, Vec<u8>>;

fn between_case(seed: u64) -> CaseResult {
    let mut rng = Rng::new(seed);
    let world = SimWorld::new(rng.next_u64());
    let explicit = rng.chance(50);
    let options = FamilyOptions {
        timestamps: if explicit { Timestamps::Explicit } else { Timestamps::Implicit },
        compression: Compression::None,
        block_bytes: *rng.pick(&[300, 4096]),
        strategy: strategies::draw(&mut rng),
        ..FamilyOptions::default()
    };
    let options = draw_mechanisms(&mut rng, &options);
    let cache_fill = *rng.pick(&FILLS);
    let store = Store::open(&world, &options, cache_fill)?;
    let mut run =
        Run { rng, world, options, cache_fill, store, model: Contents::new(), copy: None, moments: 0 };
    run.overwrite(KEYS)?;
    for round in 0..12 {
        run.round().map_err(|e| format!("round {round}: {e}"))?;
    }
    Ok(run.moments)
}

/// The open database, its workers and its one family.
#[derive(Clone)]
struct Store {
    scheduler: Arc<SimScheduler>,
    db: Db,
    family: Family,
    explicit: bool,
}

impl Store {
    fn open(world: &SimWorld, options: &FamilyOptions, cache_fill: CacheFill) -> Checked<Self> {
        let scheduler = Arc::new(SimScheduler::for_world(world));
        let write_memory = 64 << 10;
        let settings = Options {
            write_memory,
            memory_budget: write_memory + (64 << 10),
            cache_fill,
            tuning: Tuning {
                wal_file_bytes: 32 << 10,
                compaction_step_bytes: 4 << 10,
                events_max: 10,
                ..Tuning::default()
            },
            ..Options::default()
        };
        let builder = Builder::new().options(settings).env(world.env()).scheduler(scheduler.clone());
        let db = builder.family("f", options.clone()).open(DIR).map_err(failed("open"))?;
        let family = db.family("f").map_err(failed("family"))?;
        Ok(Self { scheduler, db, family, explicit: options.timestamps == Timestamps::Explicit })
    }

    /// Writes a value; with explicit timestamps always at the same, so that it replaces the one before.
    fn put(&self, key: &[u8], value: &[u8]) -> Checked {
        let put = match self.explicit {
            true => self.family.put_at(key, Timestamp(1), value),
            false => self.family.put(key, value),
        };
        put.map(|_| ()).map_err(failed("put"))
    }

    /// Whether a flush or a compaction stands between two of its steps.
    fn is_in_steps(&self) -> bool {
        let shape = self.family.shape();
        let clipped = shape.tables().any(|(_, _, info)| info.clip.is_some());
        let flushing = self.family.memtables().into_iter().filter(|s| s.state == "flushing");
        // The SSTables of a flush form a run that is numbered as the newest memtable flushed.
        let run = flushing.map(|s| s.generation).max();
        clipped || shape.levels.first().is_some_and(|level| level.runs.iter().any(|r| Some(r.id) == run))
    }
}

struct Run {
    rng: Rng,
    world: SimWorld,
    options: FamilyOptions,
    cache_fill: CacheFill,
    store: Store,
    model: Contents,
    /// The contents of the copy, if there is one.
    copy: Option<Contents>,
    /// Counted.
    moments: u64,
}

/// Neighbours, half of them with nothing between, so that a bound that is one off hits some key.
fn key(n: u64) -> Vec<u8> {
    let mut key = format!("key{:03}", n / 2).into_bytes();
    key.extend((n % 2 == 1).then_some(0));
    key
}

impl Run {
    fn round(&mut self) -> Checked {
        let writes = self.rng.range(10..30);
        self.overwrite(writes)?;
        if self.rng.one_in(4) {
            self.store.scheduler.run(self.rng.range(0..10) as u32);
            self.copy_anew()?;
        }
        for _ in 0..self.rng.range(5..40) {
            self.store.scheduler.run(1);
            if self.store.is_in_steps() {
                self.moments += 1;
                self.read_everything()?;
                if self.rng.one_in(60) {
                    self.kill()?;
                }
            }
        }
        self.read_copy()?;
        self.read_in_pieces()
    }

    /// Drops the copy and makes another.
    fn copy_anew(&mut self) -> Checked {
        let db = &self.store.db;
        if self.copy.take().is_some() {
            db.drop_family(COPY).map_err(failed("drop the copy"))?;
        }
        db.copy_families(db, &[("f", COPY)]).map_err(failed("copy"))?;
        self.copy = Some(self.model.clone());
        self.read_copy()
    }

    fn read_copy(&self) -> Checked {
        let Some(expected) = &self.copy else { return Ok(()) };
        let copy = self.store.db.family(COPY).map_err(failed("the copy"))?;
        let found = contents(copy.scan::<&[u8]>(..), false).map_err(failed("scan of the copy"))?;
        if found != *expected {
            return Err(format!("the copy {}", differs(expected, &found)));
        }
        Ok(())
    }

    fn overwrite(&mut self, writes: u64) -> Checked {
        for n in 0..writes {
            let at = if writes == KEYS { n } else { self.rng.range(0..KEYS) };
            let value = self.rng.bytes(VALUE_BYTES);
            self.store.put(&key(at), &value)?;
            self.model.insert(key(at), value);
        }
        Ok(())
    }

    fn read_everything(&self) -> Checked {
        for (key, value) in &self.model {
            let found = self.store.family.get(key).map_err(failed("get"))?;
            if found.as_deref() != Some(value) {
                return Err(format!("get of {} is {}", key.escape_ascii(), shown(found.as_deref())));
            }
        }
        for back in [false, true] {
            let found = contents(self.store.family.scan::<&[u8]>(..), back).map_err(failed("scan"))?;
            if found != self.model {
                return Err(format!("a scan, backward {back}, {}", differs(&self.model, &found)));
            }
        }
        Ok(())
    }

    fn kill(&mut self) -> Checked {
        self.world = self.world.kill();
        self.store = Store::open(&self.world, &self.options, self.cache_fill)?;
        self.read_everything().and_then(|()| self.read_copy()).map_err(|e| format!("after a kill: {e}"))
    }

    /// A get, and a scan, that are held up half-way.
    fn read_in_pieces(&mut self) -> Checked {
        let wanted = key(self.rng.range(0..KEYS));
        let family = self.store.family.clone();
        let (found, held) = self.meanwhile(|| family.get(&wanted))?;
        let found = found.map_err(failed("get"))?;
        if !held.iter().any(|held| held.get(&wanted).map(Vec::as_slice) == found.as_deref()) {
            let (key, found) = (wanted.escape_ascii(), shown(found.as_deref()));
            return Err(format!("get of {key} with work done in between is {found}"));
        }
        let back = self.rng.chance(50);
        let (found, held) = self.meanwhile(|| contents(family.scan::<&[u8]>(..), back))?;
        let found = found.map_err(failed("scan"))?;
        if !held.contains(&found) {
            let what = differs(&held[0], &found);
            return Err(format!("a scan, backward {back}, with work done in between {what}"));
        }
        Ok(())
    }

    /// Runs the read; half-way through, keys are overwritten, flushed and compacted. Answers with all that
    /// held from begin to end.
    fn meanwhile<T>(&mut self, read: impl FnOnce() -> T) -> Checked<(T, Vec<Contents>)> {
        let held = Rc::new(RefCell::new(vec![self.model.clone()]));
        let done = Rc::new(RefCell::new(None));
        let (store, mut rng) = (self.store.clone(), self.rng.fork());
        let (into, outcome) = (held.clone(), done.clone());
        let hook = move |point: &'static str| {
            if point == HALF_WAY && outcome.borrow().is_none() {
                *outcome.borrow_mut() = Some(work(&store, &mut rng, &mut into.borrow_mut()));
            }
        };
        let found = with_kill_hook(hook, read);
        done.take().ok_or("the read did not come half-way")??;
        self.moments += 1;
        let held = held.take();
        self.model = held.last().cloned().unwrap_or_default();
        Ok((found, held))
    }
}

/// Overwrites every key, some twice, and lets what was there be dropped.
fn work(store: &Store, rng: &mut Rng, held: &mut Vec<Contents>) -> Checked {
    let mut order: Vec<u64> = (0..KEYS).chain(0..KEYS / 4).collect();
    rng.shuffle(&mut order);
    for n in order {
        let value = rng.bytes(VALUE_BYTES);
        store.put(&key(n), &value)?;
        let mut next = held.last().cloned().unwrap_or_default();
        next.insert(key(n), value);
        held.push(next);
    }
    store.db.flush().map_err(failed("flush"))?;
    match rng.chance(50) {
        true => store.family.compact::<&[u8]>(..).map_err(failed("compact")),
        false => Ok(()),
    }
}

fn contents(scan: Scan, back: bool) -> Result<Contents> {
    let row = |entry: Result<siltstone::Entry>| entry.map(|entry| (entry.key, entry.value.to_vec()));
    if back { scan.rev().map(row).collect() } else { scan.map(row).collect() }
}

fn shown(value: Option<&[u8]>) -> String {
    value.map_or("absent".into(), |value| format!("{} other bytes", value.len()))
}

fn differs(expected: &Contents, found: &Contents) -> String {
    let wrong = expected.iter().find(|(key, value)| found.get(*key) != Some(value));
    let (counts, wrong) = ((expected.len(), found.len()), wrong.map(|(key, _)| key.escape_ascii()));
    match wrong {
        Some(key) => format!("has {} of {} keys, {key} is wrong", counts.1, counts.0),
        None => format!("has {} keys, expected {}", counts.1, counts.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::campaign::must_hold;

    #[test]
    fn reads_are_right_between_steps_and_with_steps_in_the_middle_of_them() {
        must_hold(&BETWEEN, 1, 500);
    }
}
