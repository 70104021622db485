//! Followers of a shared database: what they see beside the owner, and that they change nothing.

use crate::strategies;
use siltstone::schedule::SimScheduler;
use siltstone::storage::sim::{Rng, SimClock, SimObjects, SimStorage, SimWorld};
use siltstone::storage::{ObjectStore, PutOnce};
use siltstone::{
    Batch, Builder, Db, Error, ErrorKind, Family, FamilyOptions, Follower, KeyRange, MergeOperator, Options,
    Result, SeqNo, Tuning,
};
use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

const KEYS: u64 = 40;
const SEEDS: u64 = 200;
const STEPS: u64 = 160;

type Rows = BTreeMap<Vec<u8>, Vec<u8>>;
/// The families with their rows.
type Model = BTreeMap<String, Rows>;

/// So a cell that is met twice shows.
struct Append;

impl MergeOperator for Append {
    fn merge(&self, _: &[u8], base: Option<&[u8]>, operands: &[&[u8]]) -> Result<Vec<u8>> {
        Ok([base.unwrap_or_default(), &operands.concat()].concat())
    }
}

/// A store that lets nothing be changed, and counts who tries. Reads fail now and then, if asked for.
#[derive(Debug)]
struct ReadOnly {
    store: Arc<SimObjects>,
    changes: AtomicU64,
    faults: Option<Mutex<Rng>>,
}

impl ReadOnly {
    fn of(store: Arc<SimObjects>, faults: Option<u64>) -> Arc<Self> {
        let faults = faults.map(|seed| Mutex::new(Rng::new(seed)));
        Arc::new(Self { store, changes: AtomicU64::new(0), faults })
    }

    fn read<T>(&self, read: impl FnOnce(&SimObjects) -> io::Result<T>) -> io::Result<T> {
        if self.faults.as_ref().is_some_and(|rng| rng.lock().unwrap().one_in(300)) {
            return Err(io::Error::other("a planned failure"));
        }
        read(&self.store)
    }

    fn refuse<T>(&self) -> io::Result<T> {
        self.changes.fetch_add(1, Ordering::SeqCst);
        Err(io::Error::other("a follower was to change something"))
    }

    fn assert_unchanged(&self) {
        assert_eq!(self.changes.load(Ordering::SeqCst), 0, "changes that a follower tried");
    }
}

impl ObjectStore for ReadOnly {
    fn location(&self) -> String {
        self.store.location()
    }
    fn put(&self, _: &str, _: &[u8]) -> io::Result<()> {
        self.refuse()
    }
    fn put_once(&self, _: &str, _: &[u8]) -> io::Result<PutOnce> {
        self.refuse()
    }
    fn get(&self, name: &str, range: Range<u64>) -> io::Result<Vec<u8>> {
        self.read(|store| store.get(name, range))
    }
    fn len(&self, name: &str) -> io::Result<u64> {
        self.read(|store| store.len(name))
    }
    fn list(&self) -> io::Result<Vec<String>> {
        self.read(|store| store.list())
    }
    fn list_below(&self, folder: &str) -> io::Result<Vec<String>> {
        self.read(|store| store.list_below(folder))
    }
    fn delete(&self, _: &str) -> io::Result<()> {
        self.refuse()
    }
}

/// Where a database is shared.
struct Place {
    disk: Arc<SimStorage>,
    clock: Arc<SimClock>,
}

impl Place {
    fn new(seed: u64) -> Self {
        Self { disk: Arc::new(SimStorage::new(seed)), clock: Arc::default() }
    }

    fn objects(&self) -> Arc<SimObjects> {
        SimObjects::new(self.disk.clone(), self.clock.clone(), Path::new("objects"), None)
    }

    fn follow(&self, faults: Option<u64>) -> (Follower, Arc<ReadOnly>) {
        let store = ReadOnly::of(self.objects(), faults);
        let follower = patient(|| builder(&SimWorld::new(9), store.clone()).open_follower());
        (follower, store)
    }
}

fn builder(world: &SimWorld, store: Arc<dyn ObjectStore>) -> Builder {
    let tuning = Tuning {
        wal_file_bytes: 8 << 10,
        wal_clean_bytes: 24 << 10,
        compaction_step_bytes: 8 << 10,
        ..Tuning::default()
    };
    let options = Options { write_memory: 16 << 10, memory_budget: 64 << 10, tuning, ..Options::default() };
    Builder::new().options(options).env(world.env()).merge_operator("append", Arc::new(Append)).shared(store)
}

/// Families differ by the seed in what happens to their memory and SSTables.
fn family(seed: u64) -> FamilyOptions {
    let strategies = strategies(4 << 10);
    let at = (seed / 3) as usize % strategies.len();
    let policies = ["sketch{memtables=2}", "none"];
    let hot_keys = ["factor{hot_factor=1}", "off"];
    FamilyOptions {
        strategy: strategies[at].clone(),
        memtable_policy: policies[seed as usize % 2].parse().unwrap(),
        hot_keys: hot_keys[usize::from(seed.is_multiple_of(3))].parse().unwrap(),
        block_bytes: 300,
        merge_operator: Some("append".into()),
        ..FamilyOptions::default()
    }
}

/// A process that has the database open.
struct Owner {
    world: SimWorld,
    scheduler: Arc<SimScheduler>,
    db: Db,
}

impl Owner {
    /// Takes the database over, on a machine that has nothing.
    fn open(place: &Place, seed: u64, family: FamilyOptions) -> Self {
        let world = SimWorld::new(seed);
        let scheduler = Arc::new(SimScheduler::for_world(&world));
        let builder = builder(&world, place.objects()).scheduler(scheduler.clone());
        let db = builder.family("default", family).open("db").unwrap();
        Self { world, scheduler, db }
    }

    /// Lets time pass, and workers work.
    fn rest(&self, seconds: u64) {
        self.world.clock.advance_us(seconds * 1_000_000);
        self.scheduler.run(8);
    }
}

/// Calls again where the store fails.
fn patient<T>(call: impl Fn() -> Result<T>) -> T {
    for _ in 0..1_000 {
        match call() {
            Err(e) if e.kind() == ErrorKind::Io => {}
            done => return done.unwrap(),
        }
    }
    panic!("the store fails again and again");
}

fn key(n: u64) -> Vec<u8> {
    format!("k{n:02}").into_bytes()
}

fn rows(family: &Family) -> Result<Rows> {
    family.scan::<&[u8]>(..).map(|row| row.map(|row| (row.key, row.value.to_vec()))).collect()
}

/// Compares all that the handle shows with the model, by scans and by gets.
fn check(db: &Db, model: &Model) -> Result<()> {
    let mut families = db.families();
    families.sort();
    assert_eq!(families, model.keys().cloned().collect::<Vec<_>>());
    for (name, expected) in model {
        let family = db.family(name)?;
        assert_eq!(&rows(&family)?, expected, "{name}");
        for key in (0..KEYS).map(key).filter(|key| family.range().contains(key)) {
            let got = family.get(&key)?.map(|value| value.to_vec());
            assert_eq!(got.as_ref(), expected.get(&key), "{name}: {}", key.escape_ascii());
        }
    }
    Ok(())
}

fn kind<T>(result: Result<T, Error>) -> Option<ErrorKind> {
    result.err().map(|e| e.kind())
}

#[test]
fn each_acknowledged_write_is_seen_after_the_next_catch_up_and_earlier_handles_stay() {
    let place = Place::new(1);
    let owner = Owner::open(&place, 1, family(0));
    let (follower, store) = place.follow(None);
    let mut handles = Vec::new();
    for n in 0..60u64 {
        let seq = owner.db.put(key(n % 7), n.to_be_bytes()).unwrap();
        assert!(follower.catch_up().unwrap() > 0);
        let db = follower.db();
        assert_eq!(db.snapshot().seq(), seq);
        handles.push((n, db));
    }
    for (n, db) in &handles {
        for m in 0..7 {
            let newest = (0..=*n).rev().find(|write| write % 7 == m);
            let got = db.get(key(m)).unwrap().map(|value| value.to_vec());
            assert_eq!(got, newest.map(|write| write.to_be_bytes().to_vec()));
        }
    }
    assert_eq!(follower.catch_up().unwrap(), 0);
    let lag = follower.lag();
    assert!(lag.place.incarnation >= 2 && lag.place.number > 60, "{lag:?}");
    assert!(lag.newest_write_us.is_some() && lag.caught_up_us > 0, "{lag:?}");
    for refused in [kind(follower.db().put(b"k", b"v")), kind(follower.db().create_family("f", family(0)))] {
        assert_eq!(refused, Some(ErrorKind::ReadOnly));
    }
    store.assert_unchanged();
}

#[test]
fn flushes_compactions_and_families_that_come_and_go_are_followed() {
    for seed in 0..6 {
        let place = Place::new(seed);
        let owner = Owner::open(&place, seed, family(seed));
        let (follower, store) = place.follow(None);
        let mut model = Model::from([("default".into(), Rows::new())]);
        let see = |model: &Model| {
            follower.catch_up().unwrap();
            check(&follower.db(), model).unwrap();
            // Whoever begins now sees the same.
            check(&place.follow(None).0.db(), model).unwrap();
        };
        for round in 0..4u8 {
            for n in 0..30 {
                owner.db.put(key(n), [round; 90]).unwrap();
                model.get_mut("default").unwrap().insert(key(n), vec![round; 90]);
            }
            see(&model);
            owner.db.flush().unwrap();
            see(&model);
            owner.db.delete(key(u64::from(round))).unwrap();
            model.get_mut("default").unwrap().remove(&key(u64::from(round)));
            owner.db.default_family().compact::<&[u8]>(..).unwrap();
            see(&model);
        }
        let more = owner.db.create_family("more", family(seed)).unwrap();
        more.put(key(1), b"one").unwrap();
        model.insert("more".into(), Rows::from([(key(1), b"one".to_vec())]));
        see(&model);
        let before = (follower.db(), model.clone());
        owner.db.drop_family("more").unwrap();
        model.remove("more");
        see(&model);
        check(&before.0, &before.1).unwrap();
        store.assert_unchanged();
    }
}

#[test]
fn a_follower_goes_on_with_the_next_owner() {
    let place = Place::new(3);
    let mut owner = Owner::open(&place, 3, family(0));
    let (follower, store) = place.follow(None);
    let mut model = Model::from([("default".into(), Rows::new())]);
    for life in 0..5u64 {
        for n in 0..20 {
            owner.db.put(key(n), [life as u8; 300]).unwrap();
            model.get_mut("default").unwrap().insert(key(n), vec![life as u8; 300]);
        }
        if life % 2 == 0 {
            follower.catch_up().unwrap();
            check(&follower.db(), &model).unwrap();
        }
        let next = Owner::open(&place, 10 + life, family(0));
        let before = std::mem::replace(&mut owner, next);
        let refused = kind(before.db.put(key(0), b"late"));
        assert!(matches!(refused, Some(ErrorKind::Busy | ErrorKind::Poisoned)), "{refused:?}");
        follower.catch_up().unwrap();
        check(&follower.db(), &model).unwrap();
        assert_eq!(follower.lag().place.incarnation, place.follow(None).0.lag().place.incarnation);
    }
    store.assert_unchanged();
}

#[test]
fn a_follower_that_was_too_slow_begins_anew() {
    let place = Place::new(4);
    let owner = Owner::open(&place, 4, family(0));
    owner.db.put(key(1), b"early").unwrap();
    let (follower, store) = place.follow(None);
    let (stood, seq) = (follower.lag().place, follower.db().snapshot().seq());
    let mut model = Model::from([("default".into(), Rows::new())]);
    for n in 0..3_000u64 {
        owner.db.put(key(n % KEYS), [n as u8; 200]).unwrap();
        model.get_mut("default").unwrap().insert(key(n % KEYS), vec![n as u8; 200]);
        owner.scheduler.run(2);
    }
    for _ in 0..4 {
        owner.rest(700);
    }
    let objects = place.objects().list_below("d").unwrap();
    assert!(!objects.iter().any(|name| name.ends_with(&stood.name())), "{stood} was not collected");
    let applied = follower.catch_up().unwrap();
    check(&follower.db(), &model).unwrap();
    assert!(follower.lag().place.incarnation > stood.incarnation, "{:?}", follower.lag());
    assert!(applied < 2_000, "only what readers need now was read, not {applied} entries");
    assert!(follower.db().snapshot().seq() > SeqNo(seq.0 + 2_000));
    store.assert_unchanged();
}

#[test]
fn nothing_is_followed_where_nothing_is_and_nothing_is_made_there() {
    let (place, world) = (Place::new(5), SimWorld::new(5));
    let store = ReadOnly::of(place.objects(), None);
    assert_eq!(kind(builder(&world, store.clone()).open_follower()), Some(ErrorKind::NotFound));
    store.assert_unchanged();
    assert_eq!(kind(Builder::new().open_follower()), Some(ErrorKind::Invalid));
    let dir = tempfile::tempdir().unwrap();
    let options = Options { shared: Some(dir.path().join("absent")), ..Options::default() };
    assert_eq!(kind(Builder::new().options(options).open_follower()), Some(ErrorKind::NotFound));
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

/// An owner whose every write is acknowledged, and what it has written.
struct Case {
    rng: Rng,
    place: Place,
    family: FamilyOptions,
    owner: Owner,
    model: Model,
    /// Numbers values and names of families.
    number: u64,
}

impl Case {
    fn new(seed: u64) -> Self {
        let (place, family) = (Place::new(seed), family(seed));
        let owner = Owner::open(&place, seed, family.clone());
        let model = Model::from([("default".into(), Rows::new())]);
        Self { rng: Rng::new(seed), place, family, owner, model, number: 0 }
    }

    fn number(&mut self) -> u64 {
        self.number += 1;
        self.number
    }

    fn any_family(&mut self) -> Family {
        let at = self.rng.index(self.model.len());
        let name = self.model.keys().nth(at).unwrap();
        self.owner.db.family(name).unwrap()
    }

    fn rows(&mut self, family: &Family) -> &mut Rows {
        self.model.get_mut(family.name()).unwrap()
    }

    fn step(&mut self) {
        match self.rng.range(0..100) {
            0..50 => self.write(),
            50..56 => {
                let (from, to) = (key(self.rng.range(0..KEYS)), key(self.rng.range(0..KEYS)));
                let family = self.any_family();
                if from < to && family.range().overlaps(&KeyRange::new(from.clone(), to.clone())) {
                    family.delete_range(from.as_slice()..to.as_slice()).unwrap();
                    self.rows(&family).retain(|key, _| *key < from || *key >= to);
                }
            }
            56..64 => self.any_family().flush().unwrap(),
            64..67 => self.any_family().compact::<&[u8]>(..).unwrap(),
            67..80 => {
                let turns = self.rng.range(1..20);
                self.owner.scheduler.run(turns as u32);
            }
            80..84 => {
                let seconds = self.rng.range(1..4);
                self.owner.rest(seconds);
            }
            84..87 if self.model.len() < 5 => {
                let name = format!("f{}", self.number());
                self.owner.db.create_family(&name, self.family.clone()).unwrap();
                self.model.insert(name, Rows::new());
            }
            87..89 => {
                let name = self.any_family().name().to_string();
                if name != "default" {
                    self.owner.db.drop_family(&name).unwrap();
                    self.model.remove(&name);
                }
            }
            89..93 => self.split(),
            93..96 => self.join(),
            96..98 => {
                let seed = self.rng.next_u64();
                if self.rng.chance(50) {
                    self.owner.db.close().unwrap();
                }
                self.owner = Owner::open(&self.place, seed, self.family.clone());
            }
            _ => {}
        }
    }

    /// A batch over some families.
    fn write(&mut self) {
        let mut batch = Batch::new();
        for _ in 0..self.rng.range(1..6) {
            let family = self.any_family();
            // Some keys are written often.
            let n = if self.rng.chance(50) { self.rng.range(0..4) } else { self.rng.range(0..KEYS) };
            let key = key(n);
            if !family.range().contains(&key) {
                continue;
            }
            let number = self.number();
            let len = self.rng.range(0..300) as usize;
            let value = [&number.to_be_bytes()[..], &self.rng.bytes(len)].concat();
            match self.rng.range(0..10) {
                0 => {
                    batch.delete(&family, &key);
                    self.rows(&family).remove(&key);
                }
                1..4 if self.rows(&family).get(&key).is_none_or(|value| value.len() < 1_000) => {
                    batch.merge(&family, &key, &value[..8]);
                    self.rows(&family).entry(key).or_default().extend_from_slice(&value[..8]);
                }
                _ => {
                    batch.put(&family, &key, &value);
                    self.rows(&family).insert(key, value);
                }
            }
        }
        self.owner.db.write(&batch).unwrap();
    }

    fn split(&mut self) {
        let (family, at) = (self.any_family(), key(self.rng.range(0..KEYS)));
        if self.model.len() > 6 {
            return;
        }
        let name = format!("s{}", self.number());
        // Where the key is none within the family it is refused.
        if family.split(&at, &name).is_ok() {
            let right = self.rows(&family).split_off(&at);
            self.model.insert(name, right);
        }
    }

    fn join(&mut self) {
        let (family, with) = (self.any_family(), self.any_family());
        if family.join(&with).is_ok() {
            let rows = self.model.remove(with.name()).unwrap();
            self.rows(&family).extend(rows);
        }
    }
}

#[test]
fn whatever_the_owner_does_a_follower_that_caught_up_has_what_was_acknowledged() {
    for seed in 1..=SEEDS {
        let mut case = Case::new(seed);
        let (follower, store) = case.place.follow(seed.is_multiple_of(2).then_some(seed));
        let mut earlier: Option<(Db, Model)> = None;
        for step in 0..STEPS {
            println!("seed {seed}, step {step}");
            case.step();
            if case.rng.one_in(150) {
                // SSTables under earlier handles may go, and what a slow follower would read.
                earlier = None;
                case.owner.rest(700);
            }
            if case.rng.one_in(5) || step + 1 == STEPS {
                patient(|| follower.catch_up());
                patient(|| check(&follower.db(), &case.model));
                assert_eq!(follower.db().snapshot().seq(), case.owner.db.snapshot().seq());
            }
            if let Some((db, model)) = &earlier {
                patient(|| check(db, model));
            }
            if case.rng.one_in(12) {
                patient(|| follower.catch_up());
                earlier = Some((follower.db(), case.model.clone()));
            }
        }
        let begun = case.place.follow(None).0;
        check(&begun.db(), &case.model).unwrap();
        store.assert_unchanged();
    }
}
