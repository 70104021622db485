//! Regions: a family is split and joined under writes, flushes, compactions, snapshots and ends of all kinds,
//! and is one family to whoever reads all its parts. Nothing acknowledged is lost, nothing comes back, no
//! SSTable is lost or left.
//!
//! At every kill point of a split and of a join, and at random calls of the disk, the disk is copied as a
//! kill or a power cut would leave it. Each copy opens as it was before or after, is written on and
//! compacted.

use crate::campaign::{CaseResult, Row};
use crate::power::Camera;
use crate::strategies;
use crate::subject::{Concat, world_of};
use parking_lot::Mutex;
use siltstone::schedule::SimScheduler;
use siltstone::storage::sim::{Rng, SimStorage, SimWorld, Survive};
use siltstone::storage::{Clock, Storage};
use siltstone::testing::with_kill_hook;
use siltstone::{
    Builder, Db, Durability, Error, ErrorKind, Family, FamilyOptions, Options, Snapshot, Tuning,
};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

/// Splits and joins.
pub const REGIONS: Row = Row::new("regions", "splits and joins", 10_000, case);

const CALLS: u64 = 400;
const DIR: &str = "db";
const LEVELED: [&str; 2] =
    ["leveled{sstable_bytes=4KiB, base_bytes=4KiB}", "leveled{sstable_bytes=8KiB, base_bytes=16KiB}"];
/// Compacted in steps that are shorter than its SSTables.
const WIDE: &str = "leveled{sstable_bytes=64KiB, base_bytes=64KiB}";

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// A disk after its end.
struct Image {
    storage: SimStorage,
    /// Whether all that was written is there.
    killed: bool,
    moment: String,
}

struct Case {
    world: SimWorld,
    scheduler: Arc<SimScheduler>,
    rng: Rng,
    options: Options,
    family: FamilyOptions,
    model: Model,
    /// What there was after each write that no sync has followed, oldest first; the last is the model.
    unsynced: Vec<Model>,
    /// Bounds between regions that there may be after an end: before a split or join, and after.
    cuts: Vec<BTreeSet<Vec<u8>>>,
    snapshots: Vec<(Snapshot, Model)>,
    next: u32,
    done: u64,
    value_bytes: u64,
    wide: bool,
}

fn key(rng: &mut Rng) -> Vec<u8> {
    format!("k{:03}", rng.range(0..240)).into_bytes()
}

fn at(e: &Error) -> String {
    format!("{e:?}")
}

/// The parts of the whole, in order of keys.
fn regions(db: &Db) -> Vec<Family> {
    let mut all: Vec<Family> = db.families().iter().filter_map(|name| db.family(name).ok()).collect();
    all.sort_by_key(|family| family.range().start);
    all
}

fn cuts(regions: &[Family]) -> BTreeSet<Vec<u8>> {
    regions.iter().skip(1).map(|family| family.range().start).collect()
}

fn region_of<'a>(regions: &'a [Family], key: &[u8]) -> &'a Family {
    regions.iter().find(|family| family.range().contains(key)).expect("regions have all keys")
}

/// Adds what a region of these keys shows.
fn add(all: &mut Model, rows: siltstone::Scan, keys: &siltstone::KeyRange) -> Result<(), String> {
    for row in rows {
        let row = row.map_err(|e| at(&e))?;
        if !keys.contains(&row.key) {
            return Err(format!("{} shown by the region of {keys}", row.key.escape_ascii()));
        }
        all.insert(row.key, row.value.to_vec());
    }
    Ok(())
}

fn contents(db: &Db, snapshot: Option<&Snapshot>) -> Result<Model, String> {
    let mut all = Model::new();
    for region in regions(db) {
        let rows = match snapshot {
            Some(snapshot) => region.at(snapshot).scan::<&[u8]>(..),
            None => region.scan::<&[u8]>(..),
        };
        add(&mut all, rows, &region.range())?;
    }
    Ok(all)
}

fn same(found: &Model, expected: &Model, what: &str) -> Result<(), String> {
    let keys: BTreeSet<_> = found.keys().chain(expected.keys()).collect();
    let wrong = keys.into_iter().find(|key| found.get(*key) != expected.get(*key));
    wrong.map_or(Ok(()), |key| {
        let text = |value: Option<&Vec<u8>>| {
            value.map(|value| {
                format!("{} ({} bytes)", value[..value.len().min(8)].escape_ascii(), value.len())
            })
        };
        let (found, expected) = (text(found.get(key)), text(expected.get(key)));
        Err(format!("{what}: {} is {found:?}, expected {expected:?}", key.escape_ascii()))
    })
}

impl Case {
    fn draw(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let world = SimWorld::new(rng.next_u64());
        let mut options = Options {
            write_memory: 16 << 10,
            memory_budget: 64 << 10,
            tuning: Tuning {
                wal_file_bytes: *rng.pick(&[4 << 10, 16 << 10]),
                compaction_step_bytes: *rng.pick(&[4 << 10, 1 << 20]),
                ..Tuning::default()
            },
            ..Options::default()
        };
        let mut value_bytes = *rng.pick(&[300, 300, 1_500]);
        // SSTables wider than a step, of which a compaction frees parts while others have them.
        let wide = rng.one_in(4);
        if wide {
            options.tuning.compaction_step_bytes = 4 << 10;
            value_bytes = 1_500;
        }
        let parsed = |text: &str| text.parse().expect("a strategy");
        let strategy = match wide {
            true => parsed(WIDE),
            false if rng.one_in(3) => parsed(rng.pick::<&str>(&LEVELED)),
            false => strategies::draw_other(&mut rng, 8 << 10),
        };
        let family = FamilyOptions {
            strategy,
            block_bytes: 300,
            merge_operator: Some("concat".into()),
            wal_values: rng.one_in(4),
            ..FamilyOptions::default()
        };
        Self {
            scheduler: Arc::new(SimScheduler::for_world(&world)),
            world,
            rng,
            options,
            family,
            model: Model::new(),
            unsynced: Vec::new(),
            cuts: vec![BTreeSet::new()],
            snapshots: Vec::new(),
            next: 0,
            done: 0,
            value_bytes,
            wide,
        }
    }

    fn builder(&self, world: &SimWorld, scheduler: &Arc<SimScheduler>) -> Builder {
        Builder::new()
            .options(self.options.clone())
            .env(world.env())
            .scheduler(scheduler.clone())
            .merge_operator("concat", Arc::new(Concat))
            .family("default", self.family.clone())
    }

    fn open(&mut self) -> Result<Db, String> {
        self.scheduler = Arc::new(SimScheduler::for_world(&self.world));
        self.builder(&self.world, &self.scheduler).open(DIR).map_err(|e| format!("open: {}", at(&e)))
    }

    fn wrote(&mut self, durability: Durability) {
        match durability {
            Durability::Sync => self.unsynced.clear(),
            _ => self.unsynced.push(self.model.clone()),
        }
    }

    fn write(&mut self, db: &Db) -> Result<(), String> {
        let (regions, key) = (regions(db), key(&mut self.rng));
        let region = region_of(&regions, &key);
        // The model before stays possible until the write is synced.
        if self.unsynced.is_empty() {
            self.unsynced.push(self.model.clone());
        }
        let durability = if self.rng.one_in(4) { Durability::Sync } else { Durability::Buffered };
        let mut batch = siltstone::Batch::new();
        // Wide SSTables need cells that stay.
        let kinds = if self.wide && !self.rng.one_in(16) { 0..9 } else { 0..10 };
        match self.rng.range(kinds) {
            0..6 => {
                let len = self.rng.range(0..self.value_bytes) as usize;
                let value = self.rng.bytes(len);
                batch.put(region, &key, &value);
                self.model.insert(key, value);
            }
            6 => {
                batch.delete(region, &key);
                self.model.remove(&key);
            }
            7 | 8 => {
                let operand = self.rng.bytes(3);
                batch.merge(region, &key, &operand);
                self.model.entry(key).or_default().extend(operand);
            }
            _ => {
                // Of all keys: those of the region go.
                let keys = region.range();
                batch.delete_range::<Vec<u8>>(region, key.clone()..);
                self.model.retain(|at, _| at < &key || !keys.contains(at));
            }
        }
        db.write_with(&batch, durability).map_err(|e| format!("write: {}", at(&e)))?;
        self.wrote(durability);
        Ok(())
    }

    fn split(&mut self, db: &Db) -> Result<(), String> {
        let (regions, key) = (regions(db), key(&mut self.rng));
        let region = region_of(&regions, &key);
        self.next += 1;
        let name = format!("r{}", self.next);
        let before = cuts(&regions);
        if before.contains(&key) {
            let refused = region.split(&key, &name).err().map(|e| e.kind());
            return match refused {
                Some(ErrorKind::Invalid) => Ok(()),
                other => Err(format!("split where a region begins: {other:?}")),
            };
        }
        let mut after = before.clone();
        after.insert(key.clone());
        self.cuts = vec![before, after.clone()];
        let parts = self.with_images(|| region.split(&key, &name))?;
        let (left, right) = parts.map_err(|e| format!("split: {}", at(&e)))?;
        if left.range().end.as_ref() != Some(&key) || right.range().start != key {
            return Err(format!(
                "split at {} into {} and {}",
                key.escape_ascii(),
                left.range(),
                right.range()
            ));
        }
        self.cuts = vec![after];
        self.done += 1;
        // The part above compacts first what both parts have yet: what it frees of an SSTable must leave the
        // part below whole.
        if self.rng.one_in(3) {
            right.compact::<&[u8]>(..).map_err(|e| format!("compact {name}: {}", at(&e)))?;
            same(&contents(db, None)?, &self.model, "one part compacted")?;
        }
        Ok(())
    }

    fn join(&mut self, db: &Db) -> Result<(), String> {
        let regions = regions(db);
        if regions.len() < 2 {
            return Ok(());
        }
        let at_left = self.rng.range(0..regions.len() as u64 - 1) as usize;
        let (mut own, mut other) = (&regions[at_left], &regions[at_left + 1]);
        if other.name() == "default" || (own.name() != "default" && self.rng.one_in(2)) {
            (own, other) = (other, own);
        }
        let before = cuts(&regions);
        let mut after = before.clone();
        after.remove(&regions[at_left + 1].range().start);
        self.cuts = vec![before, after.clone()];
        self.with_images(|| own.join(other))?.map_err(|e| format!("join: {}", at(&e)))?;
        self.cuts = vec![after];
        self.done += 1;
        Ok(())
    }

    /// Makes a call, and looks at the disk as it was at each kill point on the way.
    fn with_images<T>(&mut self, call: impl FnOnce() -> T) -> Result<T, String> {
        if !self.rng.one_in(4) {
            return Ok(call());
        }
        let images = Arc::new(Mutex::new(Vec::new()));
        let (into, storage, mut rng) = (images.clone(), self.world.storage.clone(), self.rng.fork());
        let hook = move |point: &'static str| {
            if !rng.one_in(2) {
                return;
            }
            let killed = rng.one_in(3);
            let survive = *rng.pick(&[Survive::None, Survive::Half, Survive::All]);
            let storage = match killed {
                true => storage.clone_killed(),
                false => storage.clone_crashed(survive, rng.next_u64()),
            };
            into.lock().push(Image { storage, killed, moment: point.to_string() });
        };
        let result = with_kill_hook(hook, call);
        for image in std::mem::take(&mut *images.lock()) {
            let moment = image.moment.clone();
            let possible = if image.killed { Vec::new() } else { self.unsynced.clone() };
            let cuts = self.cuts.clone();
            self.look(image, &possible, &cuts).map_err(|e| format!("ended at {moment}: {e}"))?;
        }
        Ok(result)
    }

    /// Opens what an end has left, which is one of these or the model, and goes on there.
    fn look(
        &mut self,
        image: Image,
        possible: &[Model],
        possible_cuts: &[BTreeSet<Vec<u8>>],
    ) -> Result<(), String> {
        let world = world_of(image.storage, self.world.clock.wall_us(), self.rng.next_u64());
        let scheduler = Arc::new(SimScheduler::for_world(&world));
        let db = self.builder(&world, &scheduler).open(DIR).map_err(|e| format!("open: {}", at(&e)))?;
        let found = contents(&db, None)?;
        let there = cuts(&regions(&db));
        if !possible_cuts.contains(&there) {
            return Err(format!("regions begin at {there:?}, expected one of {possible_cuts:?}"));
        }
        if !possible.contains(&found) {
            same(&found, &self.model, "after an end")?;
        }
        self.settled(&db, &world, &scheduler, &found)
    }

    /// All told apart, and again together: what is there is what should be, and no SSTable is there that
    /// nobody has.
    fn settled(
        &self,
        db: &Db,
        world: &SimWorld,
        scheduler: &Arc<SimScheduler>,
        expected: &Model,
    ) -> Result<(), String> {
        for region in regions(db) {
            region.compact::<&[u8]>(..).map_err(|e| format!("compact {}: {}", region.name(), at(&e)))?;
        }
        same(&contents(db, None)?, expected, "compacted")?;
        let default = db.default_family();
        let touches = |other: &Family| {
            let (own, other) = (default.range(), other.range());
            own.end.as_ref() == Some(&other.start) || other.end.as_ref() == Some(&own.start)
        };
        while let Some(other) =
            regions(db).into_iter().find(|other| other.name() != "default" && touches(other))
        {
            default.join(&other).map_err(|e| format!("join {}: {}", other.name(), at(&e)))?;
        }
        same(&contents(db, None)?, expected, "joined")?;
        db.close().map_err(|e| format!("close: {}", at(&e)))?;
        scheduler.run(100);
        let again = Arc::new(SimScheduler::for_world(world));
        let db = self.builder(world, &again).open(DIR).map_err(|e| format!("open again: {}", at(&e)))?;
        same(&contents(&db, None)?, expected, "opened again")?;
        db.flush().map_err(|e| format!("flush: {}", at(&e)))?;
        db.close().map_err(|e| format!("close: {}", at(&e)))?;
        let named: BTreeSet<String> = default_tables(&db);
        let there = world.storage.list(Path::new(DIR)).map_err(|e| e.to_string())?;
        // One that lost its beginning in a crash stays for a repair.
        let is_whole = |name: &String| {
            let mut head = [0; 8];
            let file = world.storage.open(&Path::new(DIR).join(name));
            file.and_then(|file| file.read_exact_at(&mut head, 0)).is_ok() && head != [0; 8]
        };
        let files = there.into_iter().filter(|name| name.ends_with(".table"));
        let files: BTreeSet<String> = files.filter(is_whole).collect();
        if files != named {
            return Err(format!("tables {files:?} are there, {named:?} are named"));
        }
        let report = siltstone::check(&world.env(), Path::new(DIR), &mut |_| {}).map_err(|e| at(&e))?;
        if !report.damages.is_empty() {
            return Err(format!("check: {:?}", report.damages));
        }
        Ok(())
    }

    fn call(&mut self, db: &mut Db) -> Result<(), String> {
        match self.rng.range(0..100) {
            0..70 => self.write(db)?,
            70..76 => self.split(db)?,
            76..81 => self.join(db)?,
            81..85 => {
                let (regions, key) = (regions(db), key(&mut self.rng));
                for region in &regions {
                    let found = region.get(&key);
                    match (region.range().contains(&key), found) {
                        (true, Ok(found)) if found.as_deref() == self.model.get(&key).map(Vec::as_slice) => {}
                        (false, Err(e)) if e.kind() == ErrorKind::OutOfRange => {}
                        (_, found) => {
                            return Err(format!("{} of {}: {found:?}", key.escape_ascii(), region.range()));
                        }
                    }
                }
            }
            85..88 => {
                let all = regions(db);
                self.rng.pick(&all).flush().map_err(|e| format!("flush: {}", at(&e)))?;
            }
            88..90 => {
                let all = regions(db);
                let compacted = self.rng.pick(&all).compact::<&[u8]>(..);
                compacted.map_err(|e| format!("compact: {}", at(&e)))?;
            }
            90..92 => {
                if self.snapshots.len() > 2 {
                    self.snapshots.remove(0);
                }
                self.snapshots.push((db.snapshot(), self.model.clone()));
            }
            92..94 => {
                for (snapshot, model) in &self.snapshots {
                    same(&contents(db, Some(snapshot))?, model, "a snapshot")?;
                }
            }
            94..96 => {
                same(&contents(db, None)?, &self.model, "a scan")?;
            }
            96 => {
                db.sync().map_err(|e| format!("sync: {}", at(&e)))?;
                self.unsynced.clear();
            }
            97 => {
                self.world.clock.advance_us(10_000);
                self.scheduler.run(50);
            }
            98 => {
                self.snapshots.clear();
                db.close().map_err(|e| format!("close: {}", at(&e)))?;
                self.unsynced.clear();
                *db = self.open()?;
                same(&contents(db, None)?, &self.model, "opened")?;
            }
            _ => self.snapshots.clear(),
        }
        Ok(())
    }
}

/// The files of the default family's SSTables.
fn default_tables(db: &Db) -> BTreeSet<String> {
    let shape = db.default_family().shape();
    shape.tables().map(|(_, _, table)| table.id.file_name()).collect()
}

fn case(seed: u64) -> CaseResult {
    let mut case = Case::draw(seed);
    let mut db = case.open()?;
    let camera_rng = case.rng.fork();
    let camera = case.rng.one_in(2).then(|| Camera::install(&case.world.storage, camera_rng, 3_000));
    for call in 0..CALLS {
        // While a call is made the disk may end as before it or after.
        let mut possible = case.unsynced.clone();
        let (before, mut cuts) = (case.model.clone(), case.cuts.clone());
        case.call(&mut db).map_err(|e| format!("call {call}: {e}"))?;
        possible.push(before.clone());
        possible.extend(case.unsynced.iter().cloned());
        cuts.extend(case.cuts.iter().cloned());
        for image in camera.as_ref().map_or(Vec::new(), Camera::take) {
            let killed = image.end == crate::history::End::Kill;
            let (moment, storage) = (image.moment.clone(), image.storage);
            let image = Image { storage, killed, moment: moment.clone() };
            let possible = if killed { std::slice::from_ref(&before) } else { &possible[..] };
            case.look(image, possible, &cuts).map_err(|e| format!("call {call}: {moment}: {e}"))?;
        }
    }
    drop(camera);
    case.snapshots.clear();
    same(&contents(&db, None)?, &case.model, "at the end")?;
    case.settled(&db, &case.world.clone(), &case.scheduler.clone(), &case.model.clone())?;
    Ok(case.done.max(1))
}
