//! Owners and recoverers on one thread, from a seed, over a store that loses answers, lands puts late,
//! refuses calls and lists an earlier state. Any of them may end at any call; a call of one is interrupted
//! by calls of the others. What must hold: nothing acknowledged is lost, and nothing that a successor has
//! not read is acknowledged; an incarnation has one owner; no number is given out twice, and they ascend;
//! entries come without gaps; whatever a reader needs is there.

use super::*;
use crate::error::{Error, ErrorKind, Result};
use crate::hooks::Bug;
use crate::storage::sim::{Rng, SimClock, SimObjects, SimRandom, SimStorage};
use crate::storage::{ObjectStore, OsRandom, PutOnce, Random};
use crate::sync::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

mod follow;
mod requests;

const PREFIX: &str = "d/one";
const PROCESSES: usize = 4;
const STEPS: usize = 400;
/// How many numbers a claim and an entry allow.
const AHEAD: u64 = 4;
/// How deep calls may interrupt each other.
const DEPTH_MAX: usize = 3;

/// What happened, so that a test that met nothing is noticed.
#[derive(Clone, Copy, Debug, Default)]
struct Met {
    acknowledged: u64,
    taken_over: u64,
    lost_to_another: u64,
    above_a_hole: u64,
    read_beyond_a_hole: u64,
    collected: u64,
    rolled: u64,
    ended_in_a_call: u64,
}

/// The numbers of writes.
type Numbers = BTreeSet<u64>;

struct Facts {
    rng: Rng,
    depth: usize,
    met: Met,
    given: Numbers,
    acknowledged: BTreeMap<u64, Place>,
    checkpoints: BTreeMap<Place, Numbers>,
    /// What the owner of each incarnation had read when it began.
    read: BTreeMap<u64, Numbers>,
    /// Processes; none while one is in a call.
    processes: Vec<Option<Phase>>,
}

struct World {
    store: Arc<SimObjects>,
    /// A stream of those objects without faults.
    calm: Stream,
    random: Arc<SimRandom>,
    facts: Mutex<Facts>,
}

enum Phase {
    Down,
    Owner(Box<Owner>),
}

/// A process that owns the stream, or believes it.
struct Owner {
    writer: Writer,
    stream: Stream,
    link: Arc<Link>,
    has: Numbers,
    next: u64,
    last: Place,
    in_flight: Vec<Flight>,
}

struct Flight {
    place: Place,
    entry: Entry,
    number: Option<u64>,
    is_put: bool,
}

/// The store as one process sees it, until the process ends.
struct Link {
    world: Weak<World>,
    store: Arc<SimObjects>,
    is_dead: AtomicBool,
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Link")
    }
}

impl Link {
    fn call<T>(&self, call: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        let dead = || Err(io::Error::other("the process has ended"));
        let Some(world) = self.world.upgrade() else { return dead() };
        if self.is_dead.load(Ordering::SeqCst) {
            return dead();
        }
        world.interrupt();
        let mut facts = world.facts.lock();
        let ends = facts.rng.one_in(150);
        let is_done = facts.rng.chance(50);
        facts.met.ended_in_a_call += u64::from(ends);
        drop(facts);
        if !ends {
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
    fn get_whole(&self, name: &str) -> io::Result<Vec<u8>> {
        self.call(|| self.store.get_whole(name))
    }
    /// One after the other in a drawn order, so that one may be seen without another that was there before.
    fn get_all(&self, names: &[String]) -> Vec<io::Result<Vec<u8>>> {
        let mut order: Vec<usize> = (0..names.len()).collect();
        if let Some(world) = self.world.upgrade() {
            world.draw(|rng| rng.shuffle(&mut order));
        }
        let found = order.into_iter().map(|at| (at, self.get_whole(&names[at])));
        let found: Vec<_> = found.collect::<BTreeMap<_, _>>().into_values().collect();
        let is_absent = |e: &io::Error| e.kind() == io::ErrorKind::NotFound;
        let hole = found.iter().position(|found| found.as_ref().is_err_and(is_absent));
        let is_beyond = hole.is_some_and(|hole| found[hole..].iter().any(Result::is_ok));
        if let Some(world) = self.world.upgrade() {
            world.facts.lock().met.read_beyond_a_hole += u64::from(is_beyond);
        }
        found
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

fn number_of(entry: &Entry) -> Option<u64> {
    entry.payload.as_slice().try_into().ok().map(u64::from_le_bytes)
}

impl World {
    fn new(seed: u64) -> Arc<Self> {
        let (disk, clock) = (Arc::new(SimStorage::new(seed)), Arc::new(SimClock::default()));
        let objects = |seed| SimObjects::new(disk.clone(), clock.clone(), Path::new("objects"), seed);
        let store = objects(Some(seed));
        store.put_late();
        let random = Arc::new(SimRandom::new(seed));
        let calm = Stream::new(objects(None), PREFIX, random.clone());
        calm.create(u128::from(seed), 0).unwrap();
        let facts = Facts {
            rng: Rng::new(seed),
            depth: 0,
            met: Met::default(),
            given: Numbers::new(),
            acknowledged: BTreeMap::new(),
            checkpoints: BTreeMap::new(),
            read: BTreeMap::new(),
            processes: (0..PROCESSES).map(|_| Some(Phase::Down)).collect(),
        };
        Arc::new(Self { store, calm, random, facts: Mutex::new(facts) })
    }

    fn draw<T>(&self, draw: impl FnOnce(&mut Rng) -> T) -> T {
        draw(&mut self.facts.lock().rng)
    }

    /// Lets others go on in the middle of a call.
    fn interrupt(self: &Arc<Self>) {
        let steps = {
            let mut facts = self.facts.lock();
            if facts.depth >= DEPTH_MAX { 0 } else { facts.rng.range(0..6).saturating_sub(2) }
        };
        (0..steps).for_each(|_| self.step());
    }

    /// One step of a process that is in no call.
    fn step(self: &Arc<Self>) {
        let (at, phase) = {
            let mut facts = self.facts.lock();
            let at = facts.rng.index(PROCESSES);
            // Taking over is rarer, so that owners get somewhere.
            let rests = matches!(facts.processes[at], Some(Phase::Down)) && !facts.rng.one_in(60);
            let Some(phase) = facts.processes[at].take_if(|_| !rests) else { return };
            facts.depth += 1;
            (at, phase)
        };
        let phase = match phase {
            Phase::Down => self.take_over(),
            Phase::Owner(owner) => self.own(owner),
        };
        let mut facts = self.facts.lock();
        facts.depth -= 1;
        facts.processes[at] = Some(phase);
    }

    fn link(self: &Arc<Self>) -> (Arc<Link>, Stream) {
        let (world, store, is_dead) = (Arc::downgrade(self), self.store.clone(), AtomicBool::new(false));
        let link = Arc::new(Link { world, store, is_dead });
        (link.clone(), Stream::new(link, PREFIX, self.random.clone()))
    }

    fn take_over(self: &Arc<Self>) -> Phase {
        let (link, stream) = self.link();
        let newest = self.facts.lock().read.keys().last().copied().unwrap_or(1);
        let hint = self.draw(|rng| if rng.one_in(3) { rng.range(0..newest + 2) } else { newest });
        match stream.recover(hint, Terms { revision: 0, numbers_ahead: AHEAD }) {
            Ok(recovered) => Phase::Owner(Box::new(self.begin(link, stream, recovered))),
            Err(e) => {
                assert_eq!(e.kind(), ErrorKind::Io, "{e:?}");
                Phase::Down
            }
        }
    }

    /// What a recoverer has, as its start and its entries say.
    fn has(&self, recovered: &Recovered) -> Numbers {
        let Recovered { start, entries, .. } = recovered;
        let mut at = start.replay_from();
        for (place, _) in entries {
            assert!(
                *place == at || place.incarnation > at.incarnation && place.number == 1,
                "{place}, not {at}"
            );
            at = place.next();
        }
        let numbers: Vec<u64> = entries.iter().filter_map(|(_, entry)| number_of(entry)).collect();
        assert!(numbers.is_sorted_by(|a, b| a < b), "{numbers:?} ascend");
        let facts = self.facts.lock();
        let checkpoint = start.checkpoint.map(|place| facts.checkpoints.get(&place));
        let checkpoint = checkpoint.map(|found| found.expect("the checkpoint that counts is there").clone());
        checkpoint.unwrap_or_default().into_iter().chain(numbers).collect()
    }

    fn begin(&self, link: Arc<Link>, stream: Stream, recovered: Recovered) -> Owner {
        let has = self.has(&recovered);
        let Recovered { writer, entries, numbers_taken, .. } = recovered;
        let incarnation = writer.incarnation();
        let mut facts = self.facts.lock();
        facts.met.taken_over += 1;
        for (number, place) in &facts.acknowledged {
            assert!(place.incarnation < incarnation, "{place} is of a successor of {incarnation}");
            assert!(has.contains(number), "{number}, acknowledged at {place}, is lost in {incarnation}");
        }
        let before = facts.read.insert(incarnation, has.clone());
        assert!(before.is_none(), "incarnation {incarnation} has two owners");
        let last = entries.last().map_or(Place::new(incarnation, 0), |(place, _)| *place);
        Owner { writer, stream, link, has, next: numbers_taken + 1, last, in_flight: Vec::new() }
    }

    fn own(&self, mut owner: Box<Owner>) -> Phase {
        let drawn = self.draw(|rng| rng.range(0..40));
        let is_quiet = owner.in_flight.is_empty();
        let done = match drawn {
            0..14 => owner.send(self),
            14..30 => owner.put(self),
            30 | 31 if is_quiet => owner.writer.roll().map(|_| self.facts.lock().met.rolled += 1),
            32 if is_quiet => match owner.writer.seal() {
                Ok(_) => return Phase::Down,
                Err(e) => Err(e),
            },
            33..36 => match owner.writer.collect(Place::new(u64::MAX, 0)) {
                Ok(deleted) => {
                    self.facts.lock().met.collected += deleted;
                    Ok(())
                }
                // Some is left.
                Err(_) => Ok(()),
            },
            36 if self.draw(|rng| rng.one_in(5)) => return Phase::Down,
            _ => Ok(()),
        };
        match done.and_then(|()| owner.learn(self)) {
            Ok(()) if !owner.link.is_dead.load(Ordering::SeqCst) => Phase::Owner(owner),
            Ok(()) => Phase::Down,
            Err(e) => {
                self.stopped(&owner, &e);
                Phase::Down
            }
        }
    }

    /// An owner writes no more: was that right?
    fn stopped(&self, owner: &Owner, why: &Error) {
        match why.kind() {
            ErrorKind::Io | ErrorKind::Poisoned => {}
            ErrorKind::Busy => {
                self.facts.lock().met.lost_to_another += 1;
                let name = why.to_string();
                let own = |flight: &&Flight| name.contains(&flight.place.name());
                if let Some(flight) = owner.in_flight.iter().find(own) {
                    let found = self.calm.read(flight.place).unwrap().expect("an object refused the put");
                    assert_ne!(
                        found.body,
                        Body::Entry(flight.entry.clone()),
                        "{}: it is its own",
                        flight.place
                    );
                }
            }
            _ => panic!("{why:?}"),
        }
    }

    fn acknowledge(&self, number: u64, place: Place) {
        let mut facts = self.facts.lock();
        facts.met.acknowledged += 1;
        for (incarnation, has) in facts.read.range(place.incarnation + 1..) {
            assert!(has.contains(&number), "{number} is acknowledged at {place}, and {incarnation} lacks it");
        }
        facts.acknowledged.insert(number, place);
    }
}

impl Owner {
    /// Takes a place for a write, or for an entry that only allows more numbers. Some name a checkpoint.
    fn send(&mut self, world: &World) -> Result<()> {
        let number = Some(self.next).filter(|next| *next <= self.writer.numbers_upto());
        let payload = number.map_or(Vec::new(), |number| number.to_le_bytes().to_vec());
        let mut facts = world.facts.lock();
        if let Some(number) = number {
            assert!(facts.given.insert(number), "{number} is given out twice");
            self.next += 1;
        }
        let start = (facts.rng.one_in(5) && self.last.number > 0).then(|| {
            // A checkpoint that is there already, as it is the same.
            facts.checkpoints.entry(self.last).or_insert_with(|| self.has.clone());
            Start { checkpoint: Some(self.last), first: self.last.next() }
        });
        drop(facts);
        let entry = Entry { numbers_upto: self.next + AHEAD, start, payload };
        let place = self.writer.place(&entry)?;
        self.in_flight.push(Flight { place, entry, number, is_put: false });
        Ok(())
    }

    /// Puts one of those in flight.
    fn put(&mut self, world: &World) -> Result<()> {
        let waiting: Vec<usize> =
            (0..self.in_flight.len()).filter(|at| !self.in_flight[*at].is_put).collect();
        if waiting.is_empty() {
            return Ok(());
        }
        let at = world.draw(|rng| *rng.pick(&waiting));
        let flight = &mut self.in_flight[at];
        flight.is_put = true;
        let put = self.stream.put(flight.place, &Body::Entry(flight.entry.clone()));
        let is_there = matches!(put, Ok((PutOnce::Mine, _)));
        world.facts.lock().met.above_a_hole += u64::from(is_there && at != waiting[0]);
        self.writer.settle(flight.place, put.map(|(outcome, _)| outcome));
        Ok(())
    }

    /// Learns what was acknowledged.
    fn learn(&mut self, world: &World) -> Result<()> {
        while let Some(flight) = self.in_flight.first()
            && let Some(outcome) = self.writer.outcome(flight.place)
        {
            outcome?;
            let flight = self.in_flight.remove(0);
            self.last = flight.place;
            if let Some(number) = flight.number {
                self.has.insert(number);
                world.acknowledge(number, flight.place);
            }
            if let Some(Start { checkpoint: Some(named), .. }) = flight.entry.start {
                world.facts.lock().checkpoints.retain(|place, _| *place >= named);
            }
        }
        Ok(())
    }
}

/// Adds what was met to what was met so far.
fn case(seed: u64, so_far: Met) -> Met {
    let world = World::new(seed);
    world.facts.lock().met = so_far;
    (0..STEPS).for_each(|_| world.step());
    // Who comes last, in good weather, finds all.
    let last = world.calm.recover(1, Terms { revision: 0, numbers_ahead: AHEAD }).unwrap();
    let (link, stream) = world.link();
    world.begin(link, stream, last);
    world.facts.lock().met
}

#[test]
fn nothing_acknowledged_is_lost_by_owners_and_recoverers() {
    let count =
        std::env::var("SILTSTONE_SEEDS").ok().and_then(|count| count.parse::<u64>().ok()).unwrap_or(300);
    let fresh = OsRandom::new().next_u64() >> 16;
    let mut all = Met::default();
    for seed in (1..=count / 2).chain(fresh..).take(count as usize) {
        println!("seed {seed}");
        all = case(seed, all);
    }
    println!("{all:?}");
    let Met { acknowledged, taken_over, lost_to_another, above_a_hole, .. } = all;
    let Met { read_beyond_a_hole, collected, rolled, ended_in_a_call, .. } = all;
    let of_owners = [acknowledged, lost_to_another, above_a_hole, collected, rolled, ended_in_a_call];
    let of_recoverers = [taken_over, read_beyond_a_hole];
    let mut met = of_owners.into_iter().chain(of_recoverers);
    assert!(count < 100 || met.all(|met| met >= count / 10), "too little was met: {all:?}");
}

/// Planted bugs are of the whole process, so each has one of its own.
#[test]
fn planted_bugs_are_found() {
    let program = std::env::current_exe().unwrap();
    for bug in [Bug::TakeOwnPutForTheirs, Bug::SealAboveHole, Bug::CollectClaims] {
        let mut command = Command::new(&program);
        command.args(["--exact", "stream::tests::nothing_acknowledged_is_lost_by_owners_and_recoverers"]);
        let found = command.env("SILTSTONE_BUG", bug.name()).output().unwrap();
        let said = String::from_utf8_lossy(&found.stdout);
        assert!(!found.status.success() && said.contains("seed 1\n"), "{bug:?}: {said}");
        assert!(!said.contains("too little was met"), "{bug:?} is not found: {said}");
    }
}

fn calm(seed: u64) -> Stream {
    let (disk, clock) = (Arc::new(SimStorage::new(seed)), Arc::new(SimClock::default()));
    let store = SimObjects::new(disk, clock, Path::new("objects"), None);
    Stream::new(store, PREFIX, Arc::new(SimRandom::new(seed)))
}

fn terms(revision: u64) -> Terms {
    Terms { revision, numbers_ahead: 1000 }
}

fn entry(payload: &[u8]) -> Entry {
    Entry { numbers_upto: 0, start: None, payload: payload.to_vec() }
}

#[test]
fn a_stream_is_begun_once_and_found_from_any_hint() {
    let stream = calm(1);
    assert_eq!(stream.recover(1, terms(0)).unwrap_err().kind(), ErrorKind::NotFound);
    stream.create(7, 500).unwrap();
    stream.create(7, 500).unwrap();
    assert_eq!(stream.create(8, 500).unwrap_err().kind(), ErrorKind::Conflict);
    for (n, hint) in [0, 1, 99, 3, 2].into_iter().enumerate() {
        let Recovered { writer, entries, numbers_taken, .. } = stream.recover(hint, terms(4)).unwrap();
        assert_eq!((writer.incarnation(), entries.len()), (n as u64 + 2, 0));
        assert_eq!((numbers_taken, writer.numbers_upto()), (500 + 1000 * n as u64, 1500 + 1000 * n as u64));
    }
    // Who acts on an older order does not even seal.
    assert_eq!(stream.recover(1, terms(3)).unwrap_err().kind(), ErrorKind::Conflict);
    assert_eq!(stream.read(Place::new(6, 1)).unwrap(), None);
}

#[test]
fn an_owner_that_was_sealed_acknowledges_nothing_more() {
    let stream = calm(2);
    stream.create(7, 0).unwrap();
    let old = stream.recover(1, terms(0)).unwrap().writer;
    assert_eq!(old.append(entry(b"one")).unwrap(), Place::new(2, 1));
    let new = stream.recover(1, terms(0)).unwrap();
    assert_eq!(new.entries, [(Place::new(2, 1), entry(b"one"))]);
    let refused = old.append(entry(b"two")).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Busy, "{refused}");
    assert_eq!(old.roll().unwrap_err().kind(), ErrorKind::Busy);
    let new = new.writer;
    assert_eq!(new.append(entry(b"three")).unwrap(), Place::new(3, 1));
    assert_eq!(new.seal().unwrap(), Place::new(3, 2));
    assert_eq!(new.append(entry(b"four")).unwrap_err().kind(), ErrorKind::Closed);
    let last = stream.recover(1, terms(0)).unwrap();
    assert_eq!(
        last.entries.iter().map(|(place, _)| *place).collect::<Vec<_>>(),
        [Place::new(2, 1), Place::new(3, 1)]
    );
    assert_eq!(last.writer.read(Place::new(3, 2)).unwrap().map(|object| object.body), Some(Body::Seal));
}

#[test]
fn only_what_no_reader_needs_is_collected() {
    let stream = calm(3);
    stream.create(7, 0).unwrap();
    let owner = stream.recover(1, terms(0)).unwrap().writer;
    for _ in 0..4 {
        owner.append(entry(b"e")).unwrap();
    }
    // No acknowledged object says that a reader starts later.
    owner.roll().unwrap();
    assert_eq!(owner.collect(Place::new(9, 9)).unwrap(), 0);
    let start = Start { checkpoint: Some(Place::new(2, 4)), first: Place::new(2, 4) };
    owner.append(Entry { start: Some(start), ..entry(b"names it") }).unwrap();
    assert_eq!(owner.collect(Place::new(2, 2)).unwrap(), 1);
    assert_eq!(owner.collect(Place::new(9, 9)).unwrap(), 2);
    let there = |n| stream.read(Place::new(2, n)).unwrap().is_some();
    assert_eq!([0, 1, 2, 3, 4, 5].map(there), [true, false, false, false, true, true]);
    let next = stream.recover(1, terms(0)).unwrap();
    assert_eq!(next.start, start);
    assert_eq!(
        next.entries.iter().map(|(place, _)| *place).collect::<Vec<_>>(),
        [Place::new(2, 4), Place::new(3, 1)]
    );
    let late = Some(Start { checkpoint: None, first: Place::new(9, 9) });
    let refused = next.writer.append(Entry { start: late, ..entry(b"") }).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid);
}

#[test]
fn entries_of_many_threads_have_places_without_gaps() {
    let stream = calm(4);
    stream.create(7, 0).unwrap();
    let owner = stream.recover(1, terms(0)).unwrap().writer;
    let write = |thread: u8| -> Vec<(Place, Vec<u8>)> {
        let payloads = (0..50).map(|n| vec![thread, n]);
        payloads.map(|payload| (owner.append(entry(&payload)).unwrap(), payload)).collect()
    };
    let (mut written, rolled) = std::thread::scope(|threads| {
        let writers: Vec<_> = (0..6).map(|thread| threads.spawn(move || write(thread))).collect();
        let rolled = (0..3).filter(|_| owner.roll().is_ok()).count();
        let written = writers.into_iter().flat_map(|writer| writer.join().unwrap());
        (written.collect::<Vec<_>>(), rolled)
    });
    written.sort();
    assert_eq!((written.len(), rolled, owner.incarnation()), (300, 3, 5));
    let found = stream.recover(1, terms(0)).unwrap().entries.into_iter();
    assert_eq!(found.map(|(place, entry)| (place, entry.payload)).collect::<Vec<_>>(), written);
}

#[test]
fn places_are_given_first_and_their_entries_put_in_any_order() {
    let stream = calm(5);
    stream.create(7, 0).unwrap();
    let owner = &stream.recover(1, terms(0)).unwrap().writer;
    let entries: Vec<Entry> = (0..8u8).map(|n| Entry { numbers_upto: u64::from(n), ..entry(&[n]) }).collect();
    let places: Vec<Place> = entries.iter().map(|entry| owner.place(entry).unwrap()).collect();
    assert_eq!(places, (1..9).map(|number| Place::new(2, number)).collect::<Vec<_>>());
    let refused = |place: Place, of: usize| owner.put(place, entries[of].clone()).unwrap_err().kind();
    assert_eq!(refused(places[0], 1), ErrorKind::Invalid, "the place of another entry");
    assert_eq!(refused(places[7].next(), 7), ErrorKind::Invalid, "a place that was not given out");
    std::thread::scope(|threads| {
        for (place, entry) in places.iter().zip(&entries).rev() {
            threads.spawn(move || owner.put(*place, entry.clone()).unwrap());
        }
    });
    assert_eq!(refused(places[0], 0), ErrorKind::Invalid, "it is there already");
    let found = stream.recover(1, terms(0)).unwrap().entries.into_iter();
    assert_eq!(found.map(|(_, entry)| entry).collect::<Vec<_>>(), entries);
}
