//! One shared database and three machines on one thread, over a store that loses answers, lands puts late,
//! refuses calls and lists an earlier state. Any machine may take the database over at any call of another,
//! may die in the middle of a call of its own, and may lose its directory. What must hold: what was
//! acknowledged is found by whoever opens the database next; a machine acknowledges nothing once another has
//! taken over; the newest owner answers with what was written last; and a calm open at the end, on a machine
//! that has nothing, finds it all.

use crate::campaign::{CaseResult, Checked, Row};
use parking_lot::Mutex;
use siltstone::schedule::SimScheduler;
use siltstone::storage::sim::{Rng, SimClock, SimObjects, SimStorage, SimWorld, Survive};
use siltstone::storage::{ObjectStore, PutOnce};
use siltstone::{Batch, Builder, Db, Durability, Error, ErrorKind, FamilyOptions, Options, Tuning};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

/// Owners of a shared database that come and go.
pub const SHARED: Row = Row::new("shared", "steps of owners of shared databases", 60_000, case);

const MACHINES: usize = 3;
const STEPS: usize = 1_000;
const KEYS: u64 = 30;
/// How deep calls may interrupt each other.
const DEPTH_MAX: usize = 2;
const DIR: &str = "db";

/// What a key may hold; none where it was deleted or never written.
type Value = Option<Vec<u8>>;

struct Case {
    store: Arc<SimObjects>,
    /// One in so many turns of a machine without the database takes it over, while another has it.
    takes_over_in: u64,
    /// One in so many calls to the store is a process' last.
    dies_in: u64,
    facts: Mutex<Facts>,
}

struct Facts {
    rng: Rng,
    depth: usize,
    /// None while a machine is in a call.
    machines: Vec<Option<Machine>>,
    /// The machine and life that opened the database last.
    owner: Option<(usize, u64)>,
    lives: u64,
    writes: u64,
    /// What each key may hold: one value, or more where a write's outcome is unknown.
    possible: BTreeMap<Vec<u8>, BTreeSet<Value>>,
    /// Keys that are being written in a call that is interrupted.
    busy: BTreeSet<Vec<u8>>,
    met: Met,
    wrong: Option<String>,
}

/// What happened, so that a case that met nothing is noticed.
#[derive(Clone, Copy, Debug, Default)]
struct Met {
    acknowledged: u64,
    unknown: u64,
    opened: u64,
    taken_over: u64,
    died: u64,
    read: u64,
}

struct Machine {
    at: usize,
    world: SimWorld,
    life: Option<Life>,
}

/// A process that has the database open.
struct Life {
    number: u64,
    db: Db,
    scheduler: Arc<SimScheduler>,
    link: Arc<Link>,
    /// Whether each write so far was acknowledged.
    is_sure: bool,
}

/// The store as one process has it, until it dies.
#[derive(Debug)]
struct Link {
    case: Weak<Case>,
    store: Arc<SimObjects>,
    is_dead: AtomicBool,
}

impl std::fmt::Debug for Case {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Case")
    }
}

impl Link {
    fn call<T>(&self, call: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        let dead = || Err(io::Error::other("the process has died"));
        let Some(case) = self.case.upgrade() else { return dead() };
        if self.is_dead.load(Ordering::SeqCst) {
            return dead();
        }
        case.interrupt();
        let (dies, is_done) = case.draw(|rng| (rng.one_in(case.dies_in), rng.chance(50)));
        if !dies {
            return call();
        }
        if is_done {
            let _ = call();
        }
        self.is_dead.store(true, Ordering::SeqCst);
        dead()
    }
}

impl ObjectStore for Link {
    fn location(&self) -> String {
        self.store.location()
    }
    fn put(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.call(|| self.store.put(name, bytes))
    }
    fn put_once(&self, name: &str, bytes: &[u8]) -> io::Result<PutOnce> {
        self.call(|| self.store.put_once(name, bytes))
    }
    fn get(&self, name: &str, range: Range<u64>) -> io::Result<Vec<u8>> {
        self.store.get(name, range)
    }
    fn len(&self, name: &str) -> io::Result<u64> {
        self.call(|| self.store.len(name))
    }
    fn list(&self) -> io::Result<Vec<String>> {
        self.call(|| self.store.list())
    }
    fn list_below(&self, folder: &str) -> io::Result<Vec<String>> {
        self.call(|| self.store.list_below(folder))
    }
    fn delete(&self, name: &str) -> io::Result<()> {
        self.call(|| self.store.delete(name))
    }
}

fn builder(world: &SimWorld, scheduler: &Arc<SimScheduler>, store: Arc<dyn ObjectStore>) -> Builder {
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
        .env(world.env())
        .scheduler(scheduler.clone())
        .shared(store)
        .family("default", family)
}

impl Case {
    fn draw<T>(&self, draw: impl FnOnce(&mut Rng) -> T) -> T {
        draw(&mut self.facts.lock().rng)
    }

    /// Lets others go on in the middle of a call.
    fn interrupt(self: &Arc<Self>) {
        let goes_on = {
            let mut facts = self.facts.lock();
            facts.depth < DEPTH_MAX && facts.rng.one_in(12)
        };
        if goes_on {
            self.step();
        }
    }

    /// One step of a machine that is in no call.
    fn step(self: &Arc<Self>) {
        let mut machine = {
            let mut facts = self.facts.lock();
            let at = facts.rng.index(MACHINES);
            // One that is in a call counts.
            let has_life = |machine: &Option<Machine>| machine.as_ref().is_none_or(|m| m.life.is_some());
            let is_up = has_life(&facts.machines[at]);
            let others_rest = !facts.machines.iter().any(has_life);
            // Taking over is rarer, so that owners get somewhere.
            let rests = !is_up && !others_rest && !facts.rng.one_in(self.takes_over_in);
            let Some(machine) = facts.machines[at].take_if(|_| !rests) else { return };
            facts.depth += 1;
            machine
        };
        let at = machine.at;
        let done = match machine.life.take() {
            None => self.open(&mut machine),
            Some(life) => self.live(&mut machine, life),
        };
        let mut facts = self.facts.lock();
        facts.depth -= 1;
        facts.machines[at] = Some(machine);
        if let Err(why) = done {
            facts.wrong.get_or_insert(why);
        }
    }

    fn open(self: &Arc<Self>, machine: &mut Machine) -> Checked {
        if self.draw(|rng| rng.one_in(4)) {
            // Another machine, which has nothing.
            let seed = self.draw(Rng::next_u64);
            machine.world = SimWorld::new(seed);
        }
        let link =
            Arc::new(Link { case: Arc::downgrade(self), store: self.store.clone(), is_dead: false.into() });
        let scheduler = Arc::new(SimScheduler::for_world(&machine.world));
        let opened = builder(&machine.world, &scheduler, link.clone()).open(DIR);
        let is_dead = link.is_dead.load(Ordering::SeqCst);
        match opened {
            Ok(db) if !is_dead => {
                let mut facts = self.facts.lock();
                facts.lives += 1;
                facts.met.opened += 1;
                let number = facts.lives;
                let before = facts.owner.replace((machine.at, number));
                let others =
                    |(at, _): &(usize, u64)| facts.machines[*at].as_ref().is_none_or(|m| m.life.is_some());
                let took_over = before.as_ref().is_some_and(others);
                facts.met.taken_over += u64::from(took_over);
                drop(facts);
                machine.life = Some(Life { number, db, scheduler, link, is_sure: true });
                Ok(())
            }
            Err(e) if !is_dead && !is_fault(&e) => Err(format!("open: {e:?}")),
            _ => {
                self.die(machine);
                Ok(())
            }
        }
    }

    /// The machine's process is gone; perhaps the power went with it.
    fn die(&self, machine: &mut Machine) {
        let (seed, loses_power) = self.draw(|rng| (rng.next_u64(), rng.chance(50)));
        self.facts.lock().met.died += 1;
        machine.world =
            if loses_power { machine.world.crash(Survive::Half, seed) } else { machine.world.kill() };
    }

    fn live(self: &Arc<Self>, machine: &mut Machine, mut life: Life) -> Checked {
        let drawn = self.draw(|rng| rng.range(0..100));
        let done = match drawn {
            0..45 => self.write(machine.at, &mut life),
            45..65 => self.read(machine.at, &life),
            65..80 => {
                let turns = self.draw(|rng| rng.range(1..12));
                life.scheduler.run(turns as u32);
                Ok(())
            }
            80..90 => {
                let seconds = self.draw(|rng| *rng.pick(&[1, 2, 700]));
                machine.world.clock.advance_us(seconds * 1_000_000);
                life.scheduler.run(4);
                Ok(())
            }
            90..94 => self.expect(&mut life, |db| db.flush()),
            94..96 => self.expect(&mut life, |db| db.default_family().compact::<&[u8]>(..)),
            96 => self.expect(&mut life, |db| db.close()).map(|()| life.is_sure = false),
            _ => Ok(()),
        };
        let is_over = life.link.is_dead.load(Ordering::SeqCst) || !life.is_sure;
        if is_over {
            let _ = life.db.close();
            drop(life);
            self.die(machine);
        } else {
            machine.life = Some(life);
        }
        done
    }

    /// A call that may fail by the store's faults.
    fn expect(&self, life: &mut Life, call: impl FnOnce(&Db) -> Result<(), Error>) -> Checked {
        match call(&life.db) {
            Ok(()) => Ok(()),
            Err(e) if is_fault(&e) => Ok(()),
            // Once another owns the database, its tables may be gone.
            Err(_) if self.is_stale(life) => Ok(()),
            Err(e) => Err(format!("{e:?}")),
        }
    }

    fn is_stale(&self, life: &Life) -> bool {
        self.facts.lock().owner.is_none_or(|(_, newest)| newest != life.number)
    }

    fn write(&self, at: usize, life: &mut Life) -> Checked {
        let (written, number) = {
            let mut facts = self.facts.lock();
            facts.writes += 1;
            let number = facts.writes;
            let mut written: BTreeMap<Vec<u8>, Value> = BTreeMap::new();
            for _ in 0..facts.rng.range(1..4) {
                let key = key(facts.rng.range(0..KEYS));
                let len = facts.rng.range(0..600) as usize;
                let filler = facts.rng.bytes(len);
                let value = (!facts.rng.one_in(8)).then(|| [&number.to_le_bytes()[..], &filler].concat());
                if !facts.busy.contains(&key) {
                    written.insert(key, value);
                }
            }
            for (key, value) in &written {
                facts.busy.insert(key.clone());
                facts.possible.entry(key.clone()).or_insert_with(|| [None].into()).insert(value.clone());
            }
            (written, number)
        };
        let family = life.db.default_family();
        let mut batch = Batch::new();
        for (key, value) in &written {
            match value {
                Some(value) => batch.put(&family, key, value),
                None => batch.delete(&family, key),
            };
        }
        let was_stale = self.is_stale(life);
        let outcome = life.db.write_with(&batch, Durability::Sync);
        let mut facts = self.facts.lock();
        written.keys().for_each(|key| _ = facts.busy.remove(key));
        match outcome {
            Ok(_) if was_stale && !written.is_empty() => {
                let (owner, _) = facts.owner.unwrap_or_default();
                Err(format!("write {number}: machine {at} acknowledged it, and {owner} had taken over"))
            }
            Ok(_) => {
                facts.met.acknowledged += 1;
                for (key, value) in written {
                    facts.possible.insert(key, [value].into());
                }
                Ok(())
            }
            Err(e) if is_fault(&e) => {
                facts.met.unknown += 1;
                life.is_sure = false;
                Ok(())
            }
            Err(e) => Err(format!("write {number}: {e:?}")),
        }
    }

    fn read(&self, _at: usize, life: &Life) -> Checked {
        let key = key(self.draw(|rng| rng.range(0..KEYS)));
        let got = match life.db.get(&key) {
            Ok(got) => got.map(|value| value.to_vec()),
            Err(e) if is_fault(&e) || self.is_stale(life) => return Ok(()),
            Err(e) => return Err(format!("get: {e:?}")),
        };
        if self.is_stale(life) {
            return Ok(());
        }
        let mut facts = self.facts.lock();
        facts.met.read += 1;
        if facts.busy.contains(&key) {
            return Ok(());
        }
        facts.found(&key, got)
    }

    /// Opens the database in good weather, on a machine that has nothing, and compares all.
    fn check_at_last(&self, calm: Arc<dyn ObjectStore>) -> Checked {
        let world = SimWorld::new(self.draw(Rng::next_u64));
        let scheduler = Arc::new(SimScheduler::for_world(&world));
        let db = builder(&world, &scheduler, calm).open(DIR).map_err(|e| format!("the last open: {e:?}"))?;
        for n in 0..KEYS {
            let got = db.get(key(n)).map_err(|e| format!("the last reads: {e:?}"))?;
            self.facts.lock().found(&key(n), got.map(|value| value.to_vec()))?;
        }
        db.close().map_err(|e| format!("the last close: {e:?}"))
    }
}

impl Facts {
    /// The newest owner found that value.
    fn found(&mut self, key: &[u8], got: Value) -> Checked {
        let possible = self.possible.entry(key.to_vec()).or_insert_with(|| [None].into());
        if !possible.contains(&got) {
            let number = |value: &Value| value.as_ref().map(|bytes| bytes[0] as u64 + bytes[1] as u64 * 256);
            let all: Vec<_> = possible.iter().map(number).collect();
            let name = key.escape_ascii();
            return Err(format!("{name} holds write {:?}, which may be one of {all:?}", number(&got)));
        }
        // What the owner reads is in the stream, and so is the outcome of what came before.
        *possible = [got].into();
        Ok(())
    }
}

/// Whether an error is of the store, or says that the database is another's.
fn is_fault(e: &Error) -> bool {
    matches!(e.kind(), ErrorKind::Io | ErrorKind::Busy | ErrorKind::Poisoned)
}

fn key(n: u64) -> Vec<u8> {
    format!("key{n:03}").into_bytes()
}

fn case(seed: u64) -> CaseResult {
    let mut rng = Rng::new(seed);
    let (disk, clock) = (Arc::new(SimStorage::new(seed)), Arc::new(SimClock::default()));
    let objects = |seed| SimObjects::new(disk.clone(), clock.clone(), Path::new("objects"), seed);
    let store = objects(Some(rng.next_u64()));
    if rng.chance(30) {
        store.put_late();
    }
    // In some cases owners live long, so that they put checkpoints and collect.
    let (takes_over_in, dies_in) = *rng.pick(&[(25, 800), (25, 5_000), (400, 2_000), (1_000, 20_000)]);
    let machines =
        (0..MACHINES).map(|at| Some(Machine { at, world: SimWorld::new(rng.next_u64()), life: None }));
    let machines = machines.collect();
    let facts = Facts {
        rng,
        depth: 0,
        machines,
        owner: None,
        lives: 0,
        writes: 0,
        possible: BTreeMap::new(),
        busy: BTreeSet::new(),
        met: Met::default(),
        wrong: None,
    };
    let case = Arc::new(Case { store, takes_over_in, dies_in, facts: Mutex::new(facts) });
    for step in 0..STEPS {
        case.step();
        if let Some(why) = case.facts.lock().wrong.take() {
            return Err(format!("step {step}: {why}"));
        }
    }
    case.check_at_last(objects(None))?;
    let met = case.facts.lock().met;
    if std::env::var_os("SILTSTONE_MET").is_some() {
        eprintln!("{seed}: {met:?}");
    }
    // Lives that end only now must not call into a case that is being dropped.
    let machines = std::mem::take(&mut case.facts.lock().machines);
    for machine in machines.into_iter().flatten() {
        if let Some(life) = machine.life {
            life.link.is_dead.store(true, Ordering::SeqCst);
        }
    }
    Ok(STEPS as u64)
}
