//! Databases whose SSTables lie in an object store: which requests an open and the first reads make.

use siltstone::schedule::SimScheduler;
use siltstone::storage::sim::SimWorld;
use siltstone::storage::{ObjectStore, PutOnce};
use siltstone::{
    Builder, Compression, Db, ErrorKind, Event, EventKind, FamilyOptions, Options, SstableWriter,
};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

const BUDGET: u64 = 64 << 20;
/// The most requests that an open makes, for whatever is there.
const OPENING_MAX: u32 = 8;

/// Objects in memory, and what was asked for.
#[derive(Debug, Default)]
struct Counted(Mutex<Held>);

#[derive(Debug, Default)]
struct Held {
    objects: BTreeMap<String, Vec<u8>>,
    /// How often the end of each object was asked for, as whoever opens an SSTable does.
    tails: BTreeMap<String, u32>,
    /// All other calls.
    others: u32,
    /// Whether no end is to be had.
    fails: bool,
}

impl Held {
    fn whole(&self, name: &str) -> io::Result<&[u8]> {
        Ok(self.objects.get(name).ok_or(io::ErrorKind::NotFound)?)
    }
}

impl Counted {
    fn call<T>(&self, work: impl FnOnce(&mut Held) -> T) -> T {
        let mut held = self.0.lock().unwrap();
        held.others += 1;
        work(&mut held)
    }

    /// The ends that were asked for, and the number of other calls, since this was called last.
    fn asked(&self) -> (BTreeMap<String, u32>, u32) {
        let mut held = self.0.lock().unwrap();
        (std::mem::take(&mut held.tails), std::mem::take(&mut held.others))
    }

    fn fail(&self, fails: bool) {
        self.0.lock().unwrap().fails = fails;
    }
}

impl ObjectStore for Counted {
    fn location(&self) -> String {
        "memory".into()
    }
    fn put(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.call(|held| held.objects.insert(name.into(), bytes.into()));
        Ok(())
    }
    fn put_once(&self, name: &str, bytes: &[u8]) -> io::Result<PutOnce> {
        self.call(|held| {
            let found = held.objects.entry(name.into()).or_insert_with(|| bytes.into());
            Ok(PutOnce::told_by(bytes, found))
        })
    }
    fn get(&self, name: &str, range: Range<u64>) -> io::Result<Vec<u8>> {
        let part = |held: &mut Held| -> io::Result<Vec<u8>> {
            let part = held.whole(name)?.get(range.start as usize..range.end as usize);
            Ok(part.ok_or(io::ErrorKind::UnexpectedEof)?.to_vec())
        };
        self.call(part)
    }
    fn len(&self, name: &str) -> io::Result<u64> {
        self.call(|held| held.whole(name).map(|object| object.len() as u64))
    }
    fn tail(&self, name: &str, bytes: u64) -> io::Result<(u64, Vec<u8>)> {
        let mut held = self.0.lock().unwrap();
        *held.tails.entry(name.into()).or_default() += 1;
        if held.fails {
            return Err(io::Error::other("no answer"));
        }
        let object = held.whole(name)?;
        let from = object.len().saturating_sub(bytes as usize);
        Ok((object.len() as u64, object[from..].to_vec()))
    }
    fn list(&self) -> io::Result<Vec<String>> {
        Ok(self.call(|held| held.objects.keys().filter(|name| !name.contains('/')).cloned().collect()))
    }
    fn list_below(&self, folder: &str) -> io::Result<Vec<String>> {
        let is_below = |name: &&String| name.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'));
        Ok(self.call(|held| held.objects.keys().filter(is_below).cloned().collect()))
    }
    fn delete(&self, name: &str) -> io::Result<()> {
        self.call(|held| held.objects.remove(name));
        Ok(())
    }
}

/// A machine, and the store of its SSTables.
struct Place {
    world: SimWorld,
    store: Arc<Counted>,
    family: FamilyOptions,
}

impl Place {
    fn new(seed: u64, strategy: &str) -> Self {
        let family = FamilyOptions {
            strategy: strategy.parse().unwrap(),
            compression: Compression::None,
            ..FamilyOptions::default()
        };
        Self { world: SimWorld::new(seed), store: Arc::default(), family }
    }

    fn builder(&self, scheduler: &Arc<SimScheduler>) -> Builder {
        let options = Options { write_memory: 64 << 10, memory_budget: BUDGET, ..Options::default() };
        Db::builder()
            .options(options)
            .env(self.world.env())
            .scheduler(scheduler.clone())
            .object_store(self.store.clone())
            .family("default", self.family.clone())
    }

    /// The database. Workers act when a call waits for them, or when the scheduler is told to let them.
    fn open(&self) -> (Db, Arc<SimScheduler>) {
        let scheduler = Arc::new(SimScheduler::for_world(&self.world));
        self.store.asked();
        (self.builder(&scheduler).open("/db").unwrap(), scheduler)
    }
}

fn names(db: &Db) -> BTreeSet<String> {
    db.default_family().shape().tables().map(|(_, _, table)| table.id.file_name()).collect()
}

/// The SSTables that may have the key.
fn may_have(db: &Db, key: &[u8]) -> BTreeSet<String> {
    let shape = db.default_family().shape();
    let tables = shape.tables().filter(|(_, _, table)| table.range.contains(key));
    tables.map(|(_, _, table)| table.id.file_name()).collect()
}

#[test]
fn an_open_asks_for_no_table_and_a_get_for_those_that_may_have_its_key() {
    const ROWS: u32 = 6_000;
    let key = |n: u32| n.wrapping_mul(2_654_435_761).to_be_bytes();
    let place = Place::new(1, "leveled{sstable_bytes=4KiB, base_bytes=16KiB, multiplier=4}");
    let (db, _) = place.open();
    for n in 0..ROWS {
        db.put(key(n), [n as u8; 300]).unwrap();
    }
    db.flush().unwrap();
    db.wait_idle().unwrap();
    // Some newer ones above.
    for n in 0..20 {
        db.put(key(n * 7), [n as u8; 300]).unwrap();
    }
    db.flush().unwrap();
    db.wait_idle().unwrap();
    db.close().unwrap();
    let (db, scheduler) = place.open();
    let (tails, others) = place.store.asked();
    assert!(tails.is_empty() && others <= OPENING_MAX, "{tails:?}, and {others} other requests");
    let levels: BTreeSet<usize> = db.default_family().shape().runs().map(|(level, _)| level).collect();
    assert!(names(&db).len() >= 300 && levels.len() >= 2, "{} tables in {levels:?}", names(&db).len());
    // The first reads.
    let mut asked: BTreeMap<String, u32> = BTreeMap::new();
    for n in [7, 5_001, 3_333, 5_001] {
        assert!(db.get(key(n)).unwrap().is_some());
        let (tails, _) = place.store.asked();
        let may_have = may_have(&db, &key(n));
        assert!(tails.keys().all(|name| may_have.contains(name)), "{tails:?} of {may_have:?}");
        tails.into_iter().for_each(|(name, times)| *asked.entry(name).or_default() += times);
    }
    assert!(!asked.is_empty());
    // Behind the open, each of the others.
    scheduler.settle();
    place.store.asked().0.into_iter().for_each(|(name, times)| *asked.entry(name).or_default() += times);
    assert!(asked.values().all(|times| *times == 1), "{asked:?}");
    assert!(names(&db).iter().all(|name| asked.contains_key(name)));
    for n in 0..ROWS {
        assert!(db.get(key(n)).unwrap().is_some());
    }
    assert_eq!(place.store.asked().0, BTreeMap::new());
    db.close().unwrap();
}

#[test]
fn an_open_makes_no_more_requests_for_5000_tables() {
    let place = Place::new(2, "nomerge");
    let (db, _) = place.open();
    for round in 0..10u8 {
        let write = |n: u32| {
            let path = PathBuf::from(format!("/{round}-{n}.table"));
            let mut table = SstableWriter::create_in(&place.world.env(), &path, &place.family).unwrap();
            table.put(n.to_be_bytes(), [round; 10]).unwrap();
            table.finish().unwrap();
            path
        };
        let made: Vec<PathBuf> = (0..500).map(write).collect();
        db.default_family().ingest(&made).unwrap();
    }
    db.close().unwrap();
    let (db, scheduler) = place.open();
    let (tails, others) = place.store.asked();
    assert!(tails.is_empty() && others <= OPENING_MAX, "{tails:?}, and {others} other requests");
    assert_eq!(names(&db).len(), 5_000);
    let before = db.statistics();
    // The newest run answers.
    assert_eq!(db.get(250u32.to_be_bytes()).unwrap().unwrap(), [9u8; 10]);
    assert_eq!(place.store.asked().0.len(), 1);
    assert!(db.get(500u32.to_be_bytes()).unwrap().is_none());
    assert_eq!(place.store.asked().0.len(), 0);
    // Once all are open, the cache has less.
    db.wait_idle().unwrap();
    let (tails, _) = place.store.asked();
    assert_eq!((tails.len(), tails.values().max()), (4_999, Some(&1)));
    let after = db.statistics();
    assert!(after.sstable_memory_bytes > before.sstable_memory_bytes);
    assert!(after.cache_capacity < before.cache_capacity);
    assert!(after.cache_capacity + after.sstable_memory_bytes <= BUDGET, "{after:?}");
    drop(scheduler);
    db.close().unwrap();
}

/// A database of five SSTables with a row each.
fn five(seed: u64) -> Place {
    let place = Place::new(seed, "nomerge");
    let (db, _) = place.open();
    for n in 0..5u8 {
        db.put([n], [n; 10]).unwrap();
        db.flush().unwrap();
    }
    db.close().unwrap();
    place
}

#[test]
fn a_request_that_fails_is_an_error_of_one_read_and_made_again_by_the_next() {
    let place = five(3);
    let (db, scheduler) = place.open();
    place.store.fail(true);
    assert_eq!(db.get([3]).unwrap_err().kind(), ErrorKind::Io);
    assert!(db.scan::<&[u8]>(..).any(|row| row.is_err_and(|e| e.kind() == ErrorKind::Io)));
    place.store.asked();
    // Behind the open each is tried once.
    scheduler.settle();
    let (tails, _) = place.store.asked();
    assert_eq!((tails.len(), tails.values().max()), (5, Some(&1)));
    place.store.fail(false);
    assert_eq!(db.get([3]).unwrap().unwrap(), [3u8; 10]);
    assert_eq!(place.store.asked().0.len(), 1);
    assert_eq!(db.scan::<&[u8]>(..).map(Result::unwrap).count(), 5);
    let (tails, _) = place.store.asked();
    assert_eq!((tails.len(), tails.values().max()), (4, Some(&1)));
    db.wait_idle().unwrap();
    db.close().unwrap();
}

#[test]
fn a_table_that_is_missing_is_told_by_whoever_needs_it_by_an_event_and_by_a_check() {
    let place = five(4);
    let missing = "table is missing, expected it by the manifest";
    let (db, _) = place.open();
    let name = may_have(&db, &[2]).into_iter().next().unwrap();
    db.close().unwrap();
    place.store.delete(&name).unwrap();
    let scheduler = Arc::new(SimScheduler::for_world(&place.world));
    let told: Arc<Mutex<Vec<Event>>> = Arc::default();
    let into = told.clone();
    let builder = place.builder(&scheduler).listener(move |event| into.lock().unwrap().push(event.clone()));
    let db = builder.open("/db").unwrap();
    assert_eq!(db.get([1]).unwrap().unwrap(), [1u8; 10]);
    let e = db.get([2]).unwrap_err();
    assert!(e.kind() == ErrorKind::Corruption && e.to_string().contains(missing), "{e}");
    scheduler.settle();
    let is_told = |event: &Event| event.kind == EventKind::Failure && event.reason.contains(missing);
    assert_eq!(told.lock().unwrap().iter().filter(|event| is_told(event)).count(), 1);
    db.close().unwrap();
    let there = place.store.clone();
    let find = move |_: &str| -> io::Result<Arc<dyn ObjectStore>> { Ok(there.clone()) };
    let report =
        siltstone::check_with_objects(&place.world.env(), Path::new("/db"), &find, &mut |_| {}).unwrap();
    assert!(report.damages.iter().any(|damage| damage.message.contains(missing)), "{report:?}");
}
