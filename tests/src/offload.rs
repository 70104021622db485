//! Compactions that run elsewhere, where one kind of thing goes wrong, again and again ([`CompactionFault`]):
//! lies, silence, a server that forgets or works on unheard, answers twice or late, SSTables that vanish,
//! wrong bits. No call fails by it, no answer is wrong, nothing is applied twice, and once the database has
//! been opened again there is no SSTable that it does not name. Everything runs on one thread, by a seed.

use crate::campaign::{CaseResult, Checked, Row, Together, failed};
use crate::subject::Concat;
use siltstone::schedule::SimScheduler;
use siltstone::storage::sim::{Rng, SimObjects, SimWorld};
use siltstone::storage::{ObjectStore, Storage};
use siltstone::testing::{CompactionFault, Elsewhere};
use siltstone::{Builder, CacheFill, Db, FamilyOptions, Options, Tuning};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Databases whose compactions run elsewhere, under one kind of fault each.
pub const OFFLOAD: Row = Row {
    together: Some(Together { least: 20 * CompactionFault::ALL.len() as u64, check: together }),
    ..Row::new("offload", "databases whose compactions run where something goes wrong", 550, case)
};

const CALLS: u64 = 250;
const DIR: &str = "db";
/// Faults met by all cases of this process, by kind.
static MET: [AtomicU64; CompactionFault::ALL.len()] =
    [const { AtomicU64::new(0) }; CompactionFault::ALL.len()];
/// Steps that came from elsewhere.
static STEPS: AtomicU64 = AtomicU64::new(0);

/// Each kind is met once in each of its cases, taken together.
fn together(count: u64) -> Result<String, String> {
    let met: Vec<u64> = MET.iter().map(|met| met.load(Ordering::Relaxed)).collect();
    let told: Vec<String> =
        CompactionFault::ALL.iter().zip(&met).map(|(kind, met)| format!("{kind:?} {met}")).collect();
    let told = format!("{} steps came from elsewhere; {}", STEPS.load(Ordering::Relaxed), told.join(", "));
    let fewest = count / CompactionFault::ALL.len() as u64;
    if met.iter().all(|met| *met >= fewest) { Ok(told) } else { Err(format!("too few of a kind: {told}")) }
}

struct Case {
    world: SimWorld,
    options: Options,
    family: FamilyOptions,
    objects: Option<Arc<SimObjects>>,
    kind: CompactionFault,
    rng: Rng,
    model: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl Case {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let world = SimWorld::new(seed);
        let options = Options {
            write_memory: 16 << 10,
            memory_budget: 64 << 10,
            cache_fill: *rng.pick(&crate::settings::FILLS),
            tuning: Tuning {
                wal_file_bytes: 8 << 10,
                compaction_step_bytes: *rng.pick(&[4 << 10, 8 << 10, 1 << 20]),
                ..Tuning::default()
            },
            ..Options::default()
        };
        let family = FamilyOptions {
            strategy: "leveled{sstable_bytes=4KiB, base_bytes=4KiB}".parse().expect("a strategy"),
            block_bytes: 300,
            merge_operator: Some("concat".into()),
            ..FamilyOptions::default()
        };
        let storage: Arc<dyn Storage> = Arc::new(world.storage.clone());
        let objects =
            rng.one_in(3).then(|| SimObjects::new(storage, world.clock.clone(), Path::new("objects"), None));
        let kind = CompactionFault::ALL[seed as usize % CompactionFault::ALL.len()];
        // A bit is flipped where something is read.
        let fills = options.cache_fill != CacheFill::None || kind != CompactionFault::Damage;
        let options =
            Options { cache_fill: if fills { options.cache_fill } else { CacheFill::Step }, ..options };
        Self { world, options, family, objects, kind, rng, model: BTreeMap::new() }
    }

    fn builder(&self) -> Builder {
        let builder = Builder::new()
            .options(self.options.clone())
            .env(self.world.env())
            .scheduler(Arc::new(SimScheduler::for_world(&self.world)))
            .merge_operator("concat", Arc::new(Concat))
            .family("default", self.family.clone());
        match &self.objects {
            Some(objects) => builder.object_store(objects.clone()),
            None => builder,
        }
    }

    /// A database, and who runs its compactions.
    fn open(&mut self) -> Checked<(Db, Elsewhere)> {
        let builder = self.builder();
        let elsewhere = Elsewhere::faulty(&builder, &[self.kind], self.rng.next_u64());
        let db = builder.offload(Arc::new(elsewhere.clone())).open(DIR).map_err(failed("open"))?;
        Ok((db, elsewhere))
    }

    fn call(&mut self, db: &Db) -> Checked {
        let key = format!("key{:03}", self.rng.range(0..150)).into_bytes();
        match self.rng.range(0..100) {
            0..50 => {
                let len = self.rng.range(0..400) as usize;
                let value = self.rng.bytes(len);
                db.put(&key, &value).map_err(failed("put"))?;
                self.model.insert(key, value);
            }
            // Applied twice, it would show.
            50..68 => {
                let operand = self.rng.bytes(8);
                db.default_family().merge(&key, &operand).map_err(failed("merge"))?;
                self.model.entry(key).or_default().extend_from_slice(&operand);
            }
            68..78 => {
                db.delete(&key).map_err(failed("delete"))?;
                self.model.remove(&key);
            }
            78..91 => {
                let found = db.get(&key).map_err(failed("get"))?.map(|value| value.to_vec());
                if found.as_ref() != self.model.get(&key) {
                    return Err(format!("{} is not as written", key.escape_ascii()));
                }
            }
            91..95 => db.flush().map_err(failed("flush"))?,
            95..99 => db.default_family().compact::<&[u8]>(..).map_err(failed("compact"))?,
            _ => self.check(db)?,
        }
        Ok(())
    }

    fn check(&self, db: &Db) -> Checked {
        let all = db.scan::<&[u8]>(..).map(|row| row.map(|row| (row.key, row.value.to_vec())));
        let found: BTreeMap<Vec<u8>, Vec<u8>> = all.collect::<Result<_, _>>().map_err(failed("scan"))?;
        if found == self.model { Ok(()) } else { Err("a scan does not show what was written".into()) }
    }

    /// SSTables that are there.
    fn tables(&self) -> Checked<usize> {
        let names = match &self.objects {
            Some(objects) => objects.list().map_err(|e| e.to_string())?,
            None => self.world.storage.list(Path::new(DIR)).map_err(|e| e.to_string())?,
        };
        Ok(names.iter().filter(|name| name.ends_with(".table")).count())
    }
}

fn case(seed: u64) -> CaseResult {
    let mut case = Case::new(seed);
    for _ in 0..2 {
        let (db, elsewhere) = case.open()?;
        for call in 0..CALLS {
            case.call(&db).map_err(|e| format!("call {call}, {:?}: {e}", case.kind))?;
        }
        db.flush().map_err(failed("flush"))?;
        db.default_family().compact::<&[u8]>(..).map_err(failed("compact"))?;
        case.check(&db)?;
        db.close().map_err(failed("close"))?;
        MET[seed as usize % MET.len()].fetch_add(elsewhere.faults(), Ordering::Relaxed);
        STEPS.fetch_add(elsewhere.steps(), Ordering::Relaxed);
    }
    let db = case.builder().open(DIR).map_err(failed("open without another end"))?;
    case.check(&db)?;
    let (named, there) = (db.default_family().shape().tables().count(), case.tables()?);
    db.close().map_err(failed("close"))?;
    if there == named { Ok(1) } else { Err(format!("{there} tables, {named} in the database")) }
}
