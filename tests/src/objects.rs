//! SSTables in an object store that is slow, fails, loses answers and lists what was there before. Each call
//! that fails is made again, as a caller would; nothing acknowledged is lost, and no answer is wrong. Two
//! databases never share a store.

use crate::campaign::{CaseResult, Row};
use siltstone::schedule::SimScheduler;
use siltstone::storage::sim::{Rng, SimObjects, SimWorld};
use siltstone::storage::{ObjectStore, Storage};
use siltstone::{Builder, Db, Error, ErrorKind, FamilyOptions, Options, Tuning};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// Slow, failing object stores.
pub const OBJECTS: Row = Row::new("objects", "calls to flaky object stores", 100_000, case);

const CALLS: u64 = 300;
/// A call that fails so often in a row fails for another reason.
const TRIES: u32 = 200;
const DIR: &str = "db";

struct Case {
    world: SimWorld,
    store: Arc<SimObjects>,
    /// Scheduler of the open database.
    scheduler: Arc<SimScheduler>,
    rng: Rng,
    model: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl Case {
    fn builder(&self, store: &Arc<SimObjects>) -> Builder {
        let options = Options {
            write_memory: 16 << 10,
            memory_budget: 48 << 10,
            tuning: Tuning { wal_file_bytes: 8 << 10, compaction_step_bytes: 8 << 10, ..Tuning::default() },
            ..Options::default()
        };
        let family = FamilyOptions {
            strategy: "leveled{sstable_bytes=4KiB, base_bytes=4KiB}".parse().expect("a strategy"),
            block_bytes: 300,
            ..FamilyOptions::default()
        };
        Builder::new()
            .options(options)
            .env(self.world.env())
            .scheduler(self.scheduler.clone())
            .object_store(store.clone())
            .family("default", family)
    }

    /// Makes the call until it succeeds.
    fn insist<T>(&self, what: &str, mut call: impl FnMut() -> Result<T, Error>) -> Result<T, String> {
        let mut last = String::new();
        for _ in 0..TRIES {
            match call() {
                Ok(done) => return Ok(done),
                Err(e) if e.kind() == ErrorKind::Io => {
                    last = e.to_string();
                    self.world.clock.advance_us(300_000);
                    self.scheduler.run(20);
                }
                Err(e) => return Err(format!("{what}: {e:?}")),
            }
        }
        Err(format!("{what}: failed {TRIES} times: {last}"))
    }

    fn open(&mut self) -> Result<Db, String> {
        for _ in 0..TRIES {
            self.scheduler = Arc::new(SimScheduler::for_world(&self.world));
            match self.builder(&self.store).open(DIR) {
                Ok(db) => return Ok(db),
                Err(e) if e.kind() == ErrorKind::Io => {}
                Err(e) => return Err(format!("open: {e:?}")),
            }
        }
        Err(format!("open: failed {TRIES} times"))
    }

    fn call(&mut self, db: &mut Db) -> Result<(), String> {
        let key = format!("key{:03}", self.rng.range(0..200)).into_bytes();
        match self.rng.range(0..100) {
            0..70 => {
                let len = self.rng.range(0..400) as usize;
                let value = self.rng.bytes(len);
                self.insist("put", || db.put(&key, &value))?;
                self.model.insert(key, value);
            }
            70..80 => {
                self.insist("delete", || db.delete(&key))?;
                self.model.remove(&key);
            }
            80..93 => {
                let found = self.insist("get", || db.get(&key))?.map(|value| value.to_vec());
                if found.as_ref() != self.model.get(&key) {
                    return Err(format!("{} is not as written", key.escape_ascii()));
                }
            }
            93..96 => self.insist("flush", || db.flush())?,
            96..98 => self.insist("compact", || db.default_family().compact::<&[u8]>(..))?,
            98 => self.check(db)?,
            _ => {
                db.close().map_err(|e| format!("close: {e:?}"))?;
                *db = self.open()?;
            }
        }
        Ok(())
    }

    fn check(&self, db: &Db) -> Result<(), String> {
        let all = || db.scan::<&[u8]>(..).map(|row| row.map(|row| (row.key, row.value.to_vec()))).collect();
        let found: BTreeMap<Vec<u8>, Vec<u8>> = self.insist("scan", all)?;
        if found == self.model { Ok(()) } else { Err("a scan does not show what was written".into()) }
    }
}

fn case(seed: u64) -> CaseResult {
    let mut rng = Rng::new(seed);
    let world = SimWorld::new(seed);
    let store = |seed| {
        let storage: Arc<dyn Storage> = Arc::new(world.storage.clone());
        SimObjects::new(storage, world.clock.clone(), Path::new("objects"), seed)
    };
    let flaky = store(Some(rng.next_u64()));
    let mut case = Case {
        scheduler: Arc::new(SimScheduler::for_world(&world)),
        world: world.clone(),
        store: flaky,
        rng,
        model: BTreeMap::new(),
    };
    let mut db = case.open()?;
    for call in 0..CALLS {
        case.call(&mut db).map_err(|e| format!("call {call}: {e}"))?;
    }
    case.check(&db)?;
    db.close().map_err(|e| format!("close: {e:?}"))?;
    // In good weather there is nothing but what the database names, and nobody else may use it.
    let calm = store(None);
    case.scheduler = Arc::new(SimScheduler::for_world(&world));
    let db = case.builder(&calm).open(DIR).map_err(|e| format!("open: {e:?}"))?;
    case.check(&db)?;
    let named: usize = db.default_family().shape().tables().count();
    let there = calm.list().map_err(|e| e.to_string())?;
    let tables = there.iter().filter(|name| name.ends_with(".table")).count();
    if tables != named {
        return Err(format!("{tables} tables in the store, {named} in the database"));
    }
    case.scheduler = Arc::new(SimScheduler::for_world(&world));
    let other = case.builder(&calm).open("other");
    if other.as_ref().err().map(Error::kind) != Some(ErrorKind::Invalid) {
        return Err(format!("a second database in the same store: {other:?}"));
    }
    Ok(CALLS)
}
