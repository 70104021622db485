//! Shared databases: what comes back on a machine that has nothing, what a former owner is told, and what is
//! refused.

use siltstone::schedule::SimScheduler;
use siltstone::storage::sim::{SimClock, SimObjects, SimStorage, SimWorld};
use siltstone::storage::{ObjectStore, PutOnce};
use siltstone::{
    Batch, Builder, ChangeBatch, Condition, Db, Durability, ErrorKind, Expected, FamilyOptions, Options,
    SeqNo, Timestamp, Timestamps, Tuning, check, repair,
};
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier, Condvar, Mutex};
use std::time::Duration;

const DIR: &str = "/db";

struct Machine {
    world: SimWorld,
    scheduler: Arc<SimScheduler>,
}

impl Machine {
    fn new(seed: u64) -> Self {
        let world = SimWorld::new(seed);
        Self { scheduler: Arc::new(SimScheduler::for_world(&world)), world }
    }

    fn builder(&self, options: Options) -> Builder {
        Builder::new().options(options).env(self.world.env()).scheduler(self.scheduler.clone())
    }

    fn open(&self, store: &Arc<dyn ObjectStore>) -> Db {
        self.builder(options()).shared(store.clone()).open(DIR).unwrap()
    }

    /// Lets background work and time go on.
    fn rest(&self, seconds: u64) {
        for _ in 0..seconds.min(20) {
            self.world.clock.advance_us(1_000_000 * seconds.div_ceil(20));
            self.scheduler.run(50);
        }
    }
}

fn options() -> Options {
    Options {
        write_memory: 64 << 10,
        memory_budget: 1 << 20,
        change_log_bytes: 1 << 20,
        tuning: Tuning { wal_file_bytes: 16 << 10, ..Tuning::default() },
        ..Options::default()
    }
}

fn place() -> Arc<dyn ObjectStore> {
    let disk = Arc::new(SimStorage::new(99));
    SimObjects::new(disk, Arc::new(SimClock::default()), Path::new("objects"), None)
}

fn rows(db: &Db) -> Vec<(Vec<u8>, Vec<u8>)> {
    let row =
        |row: siltstone::Result<siltstone::Entry>| row.map(|row| (row.key, row.value.to_vec())).unwrap();
    db.scan::<&[u8]>(..).map(row).collect()
}

fn changes(db: &Db) -> Vec<ChangeBatch> {
    db.changes_since(SeqNo::ZERO).unwrap().map(Result::unwrap).collect()
}

fn filled(db: &Db, from: u32, to: u32) {
    for n in from..to {
        db.put(format!("key{n:04}"), [n as u8; 300]).unwrap();
    }
}

#[test]
fn all_comes_back_on_a_machine_that_has_nothing() {
    let place = place();
    let first = Machine::new(1);
    let db = first.open(&place);
    let history = FamilyOptions { timestamps: Timestamps::Explicit, versions: 2, ..FamilyOptions::default() };
    let family = db.create_family("history", history).unwrap();
    filled(&db, 0, 300);
    family.put_at(b"row", Timestamp(7), b"seven").unwrap();
    db.flush().unwrap();
    let batch = &mut Batch::new();
    db.write_with(batch.put(&family, b"a", b"1").delete(&db.default_family(), b"key0000"), Durability::Sync)
        .unwrap();
    let (all, seq, told) = (rows(&db), db.snapshot().seq(), changes(&db));
    assert!(all.len() == 299 && !told.is_empty());
    // Its machine is gone.
    drop(db);
    let second = Machine::new(2);
    let db = second.open(&place);
    assert_eq!(rows(&db), all);
    assert_eq!(db.snapshot().seq(), seq);
    assert_eq!(changes(&db), told);
    let family = db.family("history").unwrap();
    assert_eq!(family.options().timestamps, Timestamps::Explicit);
    assert_eq!(family.get(b"row").unwrap().unwrap(), b"seven");
    filled(&db, 300, 310);
    assert!(db.snapshot().seq() > seq);
}

#[test]
fn a_former_owner_writes_nothing_and_is_told_why() {
    let place = place();
    let (first, second) = (Machine::new(1), Machine::new(2));
    let old = first.open(&place);
    filled(&old, 0, 10);
    let new = second.open(&place);
    let refused = old.put(b"late", b"1").unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Poisoned, "{refused}");
    assert!(refused.to_string().contains("another process writes the stream now"), "{refused}");
    assert_eq!(old.get(b"late").unwrap(), None);
    assert!(old.create_family("late", FamilyOptions::default()).is_err());
    assert_eq!(new.get(b"late").unwrap(), None);
    new.put(b"key0000", b"newer").unwrap();
    assert_eq!(rows(&new).len(), 10);
    // The old one begins again, and then the other is a former owner.
    drop(old);
    let again = first.open(&place);
    assert_eq!(again.get(b"key0000").unwrap().unwrap(), b"newer");
    assert_eq!(new.put(b"late", b"1").unwrap_err().kind(), ErrorKind::Poisoned);
}

#[test]
fn a_long_life_leaves_few_objects_and_few_to_be_read() {
    let place = place();
    let first = Machine::new(1);
    let options = || Options { change_log_bytes: 0, ..options() };
    let db = first.builder(options()).shared(place.clone()).open(DIR).unwrap();
    for round in 0..40 {
        filled(&db, round * 100, round * 100 + 100);
        first.rest(2);
    }
    let stream = |kind: &str| place.list_below(kind).unwrap().len();
    // 4,000 writes were 4,000 entries; twice the bound of 4,096 counts less here, where the WAL is short.
    let left = stream("d");
    assert!(left < 2_000, "{left} objects");
    let all = rows(&db);
    assert_eq!(all.len(), 4_000);
    drop(db);
    let second = Machine::new(2);
    let db = second.builder(options()).shared(place.clone()).open(DIR).unwrap();
    assert_eq!(rows(&db), all);
    // Given-up SSTables go once ten minutes have passed.
    second.rest(20_000);
    let named = db.default_family().shape().tables().count();
    let there = place.list_below("t").unwrap().iter().filter(|name| name.ends_with(".table")).count();
    assert_eq!(there, named);
}

#[test]
fn values_are_not_left_in_a_wal_that_the_stream_does_not_keep() {
    let place = place();
    let first = Machine::new(1);
    let db = first.open(&place);
    let family = FamilyOptions { wal_values: true, ..FamilyOptions::default() };
    let family = db.create_family("values", family).unwrap();
    (0..100u8).for_each(|n| _ = family.put([n], [n; 3_000]).unwrap());
    db.flush().unwrap();
    assert!(family.shape().tables().all(|(_, _, table)| table.logs.is_empty()));
    drop((family, db));
    let db = Machine::new(2).open(&place);
    assert_eq!(db.family("values").unwrap().get([7]).unwrap().unwrap(), [7; 3_000]);
}

#[test]
fn what_makes_no_sense_is_refused_in_a_sentence() {
    let (here, there) = (place(), place());
    let machine = Machine::new(1);
    let refused = |builder: Builder, kind: ErrorKind, says: &str| {
        let error = builder.open(DIR).expect_err("it is refused");
        assert!(error.kind() == kind && error.to_string().contains(says), "{error:?}");
    };
    let absent = Options { create_if_missing: false, ..options() };
    refused(machine.builder(absent).shared(here.clone()), ErrorKind::NotFound, "holds no shared database");
    let db = machine.open(&here);
    db.put(b"k", b"v").unwrap();
    db.close().unwrap();
    drop(db);
    let new = Options { error_if_exists: true, ..options() };
    refused(machine.builder(new).shared(here.clone()), ErrorKind::Invalid, "holds a database already");
    refused(machine.builder(options()), ErrorKind::Invalid, "open it with option shared");
    refused(machine.builder(options()).shared(there.clone()), ErrorKind::Invalid, "another shared database");
    let both = Options { sstable_store: Some("/tables".into()), ..options() };
    refused(machine.builder(both).shared(here.clone()), ErrorKind::Invalid, "in its place, and in no other");
    let shared = machine.builder(options()).shared(here.clone());
    assert_eq!(shared.open_read_only(DIR).err().map(|e| e.kind()), Some(ErrorKind::Unsupported));
    let read = machine.builder(options()).open_read_only(DIR).expect_err("it is refused");
    assert!(read.to_string().contains("open it with option shared"), "{read}");
    let env = machine.world.env();
    let checked = check(&env, Path::new(DIR), &mut |_| {}).expect_err("it is refused");
    let repaired = repair(&env, Path::new(DIR), &mut |_| {}).expect_err("it is refused");
    for error in [checked, repaired] {
        assert!(error.to_string().contains("shared"), "{error}");
    }
    let local = Machine::new(2);
    local.builder(options()).open(DIR).unwrap().put(b"k", b"v").unwrap();
    refused(local.builder(options()).shared(here.clone()), ErrorKind::Invalid, "a database of its own");
    // None of that has changed anything.
    assert_eq!(machine.open(&here).get(b"k").unwrap().unwrap(), b"v");
}

#[test]
fn an_object_that_is_missing_is_named() {
    let place = place();
    let db = Machine::new(1).open(&place);
    filled(&db, 0, 20);
    drop(db);
    let entries = place.list_below("d").unwrap();
    let entry = entries.iter().filter(|name| !name.contains("checkpoint")).max().unwrap().clone();
    let claim = entry.rsplit_once('/').unwrap().0.to_string() + "/0000000000000000";
    // A claim that is gone is no beginning.
    let bytes = place.get_whole(&claim).unwrap();
    place.delete(&claim).unwrap();
    let first = entries.iter().find(|name| name.ends_with("0000000000000001/0000000000000000")).unwrap();
    let of_first = place.get_whole(first).unwrap();
    place.delete(first).unwrap();
    let opened = Machine::new(2).builder(options()).shared(place.clone()).open(DIR);
    let error = opened.expect_err("its stream is gone");
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    assert!(error.to_string().contains("there is no stream"), "{error}");
    place.put(first, &of_first).unwrap();
    place.put(&claim, &bytes).unwrap();
    assert_eq!(rows(&Machine::new(3).open(&place)).len(), 20);
}

/// A store that puts over what is there, and says that it did not.
#[derive(Debug)]
struct Careless(Arc<dyn ObjectStore>);

impl ObjectStore for Careless {
    fn location(&self) -> String {
        self.0.location()
    }
    fn put(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.0.put(name, bytes)
    }
    fn put_once(&self, name: &str, bytes: &[u8]) -> io::Result<PutOnce> {
        self.0.put(name, bytes).map(|()| PutOnce::Mine)
    }
    fn get(&self, name: &str, range: Range<u64>) -> io::Result<Vec<u8>> {
        self.0.get(name, range)
    }
    fn len(&self, name: &str) -> io::Result<u64> {
        self.0.len(name)
    }
    fn list(&self) -> io::Result<Vec<String>> {
        self.0.list()
    }
    fn list_below(&self, folder: &str) -> io::Result<Vec<String>> {
        self.0.list_below(folder)
    }
    fn delete(&self, name: &str) -> io::Result<()> {
        self.0.delete(name)
    }
}

#[test]
fn a_store_that_refuses_no_second_put_is_refused() {
    let careless: Arc<dyn ObjectStore> = Arc::new(Careless(place()));
    let machine = Machine::new(1);
    let error = machine.builder(options()).shared(careless).open(DIR).expect_err("it is refused");
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    assert!(error.to_string().contains("If-None-Match"), "{error}");
}

/// A store whose puts of a stream's objects wait behind a gate.
#[derive(Debug)]
struct Gated {
    store: Arc<dyn ObjectStore>,
    gate: Mutex<Gate>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Gate {
    is_closed: bool,
    waiting: usize,
}

impl Gated {
    fn set(&self, is_closed: bool) {
        self.gate.lock().unwrap().is_closed = is_closed;
        self.changed.notify_all();
    }

    /// Whether so many puts wait, which may take a while.
    fn come(&self, puts: usize) -> bool {
        let gate = self.gate.lock().unwrap();
        let waited = self.changed.wait_timeout_while(gate, Duration::from_secs(20), |g| g.waiting < puts);
        !waited.unwrap().1.timed_out()
    }
}

impl ObjectStore for Gated {
    fn location(&self) -> String {
        self.store.location()
    }
    fn put(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.store.put(name, bytes)
    }
    fn put_once(&self, name: &str, bytes: &[u8]) -> io::Result<PutOnce> {
        let mut gate = self.gate.lock().unwrap();
        gate.waiting += 1;
        self.changed.notify_all();
        let mut gate = self.changed.wait_while(gate, |gate| gate.is_closed).unwrap();
        gate.waiting -= 1;
        drop(gate);
        self.store.put_once(name, bytes)
    }
    fn get(&self, name: &str, range: Range<u64>) -> io::Result<Vec<u8>> {
        self.store.get(name, range)
    }
    fn len(&self, name: &str) -> io::Result<u64> {
        self.store.len(name)
    }
    fn list(&self) -> io::Result<Vec<String>> {
        self.store.list()
    }
    fn list_below(&self, folder: &str) -> io::Result<Vec<String>> {
        self.store.list_below(folder)
    }
    fn delete(&self, name: &str) -> io::Result<()> {
        self.store.delete(name)
    }
}

#[test]
fn conditional_writes_wait_for_puts_of_what_they_rest_on_alone() {
    let gated = Arc::new(Gated { store: place(), gate: Mutex::default(), changed: Condvar::new() });
    let store: Arc<dyn ObjectStore> = gated.clone();
    let db = Machine::new(1).open(&store);
    let family = db.default_family();
    let absent = |key: &str| Condition::new(&family, key, Expected::Absent);
    let put_if = &|condition: Condition, key: &str| {
        db.write_if(&[condition], Batch::new().put(&family, key, "conditional"), Durability::Sync)
    };
    gated.set(true);
    std::thread::scope(|scope| {
        scope.spawn(|| db.put("a", "blind").unwrap());
        let first = gated.come(1);
        // Two rest on what is under way: they are judged, and wait.
        let judged = Arc::new(Barrier::new(2));
        let (reader, begun) = (family.clone(), judged.clone());
        let is_first = AtomicBool::new(true);
        let none = Condition::when(move || {
            if is_first.swap(false, Ordering::SeqCst) {
                begun.wait();
            }
            Ok(reader.scan("a".."b").next().is_none())
        });
        let none = none.rests_on(&family, "a".."b");
        let waits = scope.spawn(|| put_if(absent("a"), "c"));
        let ranged = scope.spawn(|| put_if(none, "d"));
        judged.wait();
        // These rest on other keys: one of them is the second put in flight, and the rest goes with the next.
        let others: Vec<_> = (0..8)
            .map(|n| {
                let key = format!("other{n}");
                let condition = absent(&key);
                scope.spawn(move || put_if(condition, &key))
            })
            .collect();
        let second = gated.come(2);
        gated.set(false);
        assert!(first && second, "a conditional write waits for a put of other keys");
        others.into_iter().for_each(|other| assert!(other.join().unwrap().is_ok()));
        for refused in [waits, ranged] {
            assert_eq!(refused.join().unwrap().unwrap_err().kind(), ErrorKind::Conflict);
        }
    });
    assert_eq!(rows(&db).len(), 9, "a and eight others");
}
