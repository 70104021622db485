//! Owners and standbys on one thread, from a seed, over a store that loses answers, lands puts late, refuses
//! calls and lists an earlier state. Any of them may stop for a while or end at any call; in the middle of a
//! call time passes and others go on; clocks run apart. What must hold: nobody answers a read once another
//! has acknowledged a write, and a standby begins only when no lease is left.

use super::claim::{ClaimEnv, Claimed};
use super::keeper::Keeper;
use super::object::Kind;
use super::standby::StandBy;
use super::{MARGIN_NS, TTL_NS};
use crate::context::{Context, Settings};
use crate::error::{ErrorKind, Result};
use crate::event::Events;
use crate::hooks::Bug;
use crate::options::Options;
use crate::schedule::SimScheduler;
use crate::storage::sim::{Rng, SimClock, SimObjects, SimRandom, SimStorage};
use crate::storage::{Clock, Env, ObjectStore, OsRandom, PutOnce, Random};
use crate::stream::{Outbox, Place, Stream, Terms};
use crate::sync::Mutex;
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

const PROCESSES: usize = 3;
const STEPS: usize = 3_000;
/// How deep calls may interrupt each other.
const DEPTH_MAX: usize = 3;
const S: u64 = 1_000_000_000;
/// What lets no time pass.
const NO_TIME: &dyn Fn(u64) = &|_| {};
/// How often an owner is given a turn, and a standby.
const TURN_NS: u64 = S / 2;
const POLL_NS: u64 = TTL_NS / 4;

/// A clock that runs a little faster or slower than the true one, from another moment on.
#[derive(Debug)]
struct Skewed {
    truth: Arc<SimClock>,
    millionths: u64,
    ahead: u64,
}

impl Clock for Skewed {
    fn wall_us(&self) -> u64 {
        self.truth.wall_us()
    }
    fn monotonic_ns(&self) -> u64 {
        self.ahead + self.truth.monotonic_ns() / 1_000 * self.millionths / 1_000
    }
}

/// What happened, so that a test that met nothing is noticed.
#[derive(Clone, Copy, Debug, Default)]
struct Met {
    leased_reads: u64,
    refused_reads: u64,
    kept_after_lapse: u64,
    acknowledged: u64,
    released: u64,
    waited_out: u64,
    taken_at_once: u64,
    ended_in_a_call: u64,
}

struct Facts {
    rng: Rng,
    depth: usize,
    met: Met,
    /// The highest incarnation of the stream in which a write was acknowledged.
    written: u64,
    /// Processes; none while one is in a call.
    processes: Vec<Option<Process>>,
}

struct World {
    store: Arc<SimObjects>,
    truth: Arc<SimClock>,
    facts: Mutex<Facts>,
}

struct Process {
    /// When it goes on.
    wakes: u64,
    phase: Phase,
}

enum Phase {
    Down,
    Waiting(Box<Waiting>),
    Owner(Box<Owner>),
}

struct Waiting {
    link: Arc<Link>,
    env: Env,
    standby: StandBy,
}

struct Owner {
    link: Arc<Link>,
    cx: Arc<Context>,
    keeper: Keeper,
    outbox: Arc<Outbox>,
    incarnation: u64,
    has_lapsed: bool,
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
        let (ends, is_done) = world.draw(|rng| (rng.one_in(4_000), rng.chance(50)));
        if !ends {
            let done = call();
            world.interrupt();
            return done;
        }
        world.facts.lock().met.ended_in_a_call += 1;
        if is_done {
            let _ = call();
        }
        self.is_dead.store(true, Ordering::SeqCst);
        dead()
    }

    fn is_dead(&self) -> bool {
        self.is_dead.load(Ordering::SeqCst)
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

/// The owner that a claim makes.
fn own(
    env: &Env,
    store: Arc<dyn ObjectStore>,
    claim: &mut dyn FnMut() -> Result<Claimed>,
) -> Result<OwnedBy> {
    let stream = Stream::new(store, "d/one", env.random.clone());
    stream.create(7, 0)?;
    loop {
        let claimed = claim()?;
        let writer = stream.recover(1, Terms { revision: 0, numbers_ahead: 0 })?.writer;
        if claimed.is_newest()? {
            let incarnation = writer.incarnation();
            let at = Place::new(incarnation, 0);
            let outbox =
                Arc::new(Outbox::new(Arc::new(writer), at, (BTreeMap::new(), 0), 1 << 20, &env.clock));
            let options = Options::default();
            let events = Events::new(env, Path::new("/"), 0, None);
            let scheduler = Arc::new(SimScheduler::new(env.random.clone()));
            let cx = Context::new(env, Settings::of(&options), events, scheduler, false);
            let keeper = Keeper::new(&cx, outbox.clone(), claimed);
            return Ok(OwnedBy { cx, keeper, outbox, incarnation });
        }
    }
}

struct OwnedBy {
    cx: Arc<Context>,
    keeper: Keeper,
    outbox: Arc<Outbox>,
    incarnation: u64,
}

impl World {
    fn new(seed: u64, met: Met) -> Arc<Self> {
        let (disk, truth) = (Arc::new(SimStorage::new(seed)), Arc::new(SimClock::default()));
        let store = SimObjects::new(disk, truth.clone(), Path::new("objects"), Some(seed));
        store.put_late();
        let down = || Some(Process { wakes: 0, phase: Phase::Down });
        let processes = (0..PROCESSES).map(|_| down()).collect();
        let facts = Facts { rng: Rng::new(seed), depth: 0, met, written: 0, processes };
        Arc::new(Self { store, truth, facts: Mutex::new(facts) })
    }

    fn draw<T>(&self, draw: impl FnOnce(&mut Rng) -> T) -> T {
        draw(&mut self.facts.lock().rng)
    }

    fn now(&self) -> u64 {
        self.truth.monotonic_ns()
    }

    fn env(&self) -> Env {
        let (seed, slower, ahead) =
            self.draw(|rng| (rng.next_u64(), rng.range(0..40_000), rng.range(0..1_000) * S));
        // Two hundredths either way, which the margins cover.
        let clock = Skewed { truth: self.truth.clone(), millionths: 980_000 + slower, ahead };
        let (storage, random) = (Arc::new(SimStorage::new(seed)), Arc::new(SimRandom::new(seed)));
        Env { storage, clock: Arc::new(clock), random }
    }

    /// In the middle of a call time passes, and others go on.
    fn interrupt(self: &Arc<Self>) {
        let (ms, steps) = {
            let mut facts = self.facts.lock();
            let may = facts.depth < DEPTH_MAX;
            let ms = match facts.rng.range(0..400) {
                0 => 9_000,
                1..4 => 3_000,
                _ => 20,
            };
            (facts.rng.range(1..ms), if may && facts.rng.one_in(10) { facts.rng.range(1..12) } else { 0 })
        };
        self.truth.advance_us(ms * 1_000);
        (0..steps).for_each(|_| self.step());
    }

    /// Lets the process go on that was to go on first; time passes until then.
    fn step(self: &Arc<Self>) {
        let (at, mut process) = {
            let mut facts = self.facts.lock();
            let wakes = |process: &Option<Process>| process.as_ref().map(|process| process.wakes);
            let next = facts.processes.iter().enumerate().filter_map(|(at, one)| Some((wakes(one)?, at)));
            let Some((wakes, at)) = next.min() else { return };
            let left = wakes.saturating_sub(self.now());
            self.truth.advance_us(left.div_ceil(1_000));
            let Some(process) = facts.processes[at].take() else { return };
            facts.depth += 1;
            (at, process)
        };
        let (phase, ns) = match process.phase {
            Phase::Down => self.begin(),
            Phase::Waiting(waiting) => self.wait(waiting),
            Phase::Owner(owner) => self.live(owner),
        };
        // A process may be stopped for a while.
        let stopped = self.draw(|rng| match rng.range(0..900) {
            0 => rng.range(1..40),
            1 => rng.range(1..400),
            _ => 0,
        });
        process = Process { wakes: self.now() + ns + stopped * S, phase };
        let mut facts = self.facts.lock();
        facts.depth -= 1;
        facts.processes[at] = Some(process);
    }

    fn link(self: &Arc<Self>) -> Arc<Link> {
        let (world, store, is_dead) = (Arc::downgrade(self), self.store.clone(), AtomicBool::new(false));
        Arc::new(Link { world, store, is_dead })
    }

    /// A process begins: as a standby, or at once where every other process is a standby or down. A database
    /// that is taken at once while its owner keeps no lease may be read late, and nothing is to be shown of
    /// it.
    fn begin(self: &Arc<Self>) -> (Phase, u64) {
        let (link, env) = (self.link(), self.env());
        let store: Arc<dyn ObjectStore> = link.clone();
        let with = ClaimEnv { env: &env, store: &store, pause: NO_TIME };
        let is_owned = {
            let facts = self.facts.lock();
            let is_idle = |process: &Option<Process>| {
                process.as_ref().is_some_and(|process| !matches!(process.phase, Phase::Owner(_)))
            };
            // Its own place is empty.
            facts.processes.iter().filter(|process| !is_idle(process)).count() > 1
        };
        if is_owned || self.draw(|rng| rng.chance(50)) {
            let standby = StandBy::new(&with);
            return (Phase::Waiting(Box::new(Waiting { link, env, standby })), 0);
        }
        let truth = &self.truth;
        let pause = |ns: u64| truth.advance_us(ns / 900);
        let with = ClaimEnv { pause: &pause, ..with };
        // Nobody comes to own it meanwhile.
        self.facts.lock().depth += DEPTH_MAX;
        let owned = own(&env, store.clone(), &mut || Claimed::at_once(&with));
        self.facts.lock().depth -= DEPTH_MAX;
        match owned {
            Ok(owned) => {
                self.facts.lock().met.taken_at_once += 1;
                (self.owner(link, owned), 0)
            }
            Err(e) => self.failed(e.kind()),
        }
    }

    fn failed(&self, kind: ErrorKind) -> (Phase, u64) {
        assert!(matches!(kind, ErrorKind::Io | ErrorKind::Busy), "{kind:?}");
        (Phase::Down, self.draw(|rng| rng.range(0..20)) * S)
    }

    fn owner(&self, link: Arc<Link>, owned: OwnedBy) -> Phase {
        let OwnedBy { cx, keeper, outbox, incarnation } = owned;
        Phase::Owner(Box::new(Owner { link, cx, keeper, outbox, incarnation, has_lapsed: false }))
    }

    fn wait(self: &Arc<Self>, mut waiting: Box<Waiting>) -> (Phase, u64) {
        if self.draw(|rng| rng.one_in(400)) {
            return (Phase::Down, 0);
        }
        let store: Arc<dyn ObjectStore> = waiting.link.clone();
        let with = ClaimEnv { env: &waiting.env, store: &store, pause: NO_TIME };
        let taken = waiting.standby.step(&with);
        match taken {
            _ if waiting.link.is_dead() => (Phase::Down, 0),
            Ok(true) => {
                let Waiting { link, env, standby } = *waiting;
                let mut claimed = Some(standby.claimed);
                // Where another was at it, too, it is over for this one.
                let lost = || crate::error::Error::new(ErrorKind::Busy, "another has it");
                match own(&env, store.clone(), &mut || claimed.take().ok_or_else(lost)) {
                    Ok(owned) => {
                        self.facts.lock().met.waited_out += 1;
                        (self.owner(link, owned), 0)
                    }
                    Err(e) => self.failed(e.kind()),
                }
            }
            Ok(false) => (Phase::Waiting(waiting), POLL_NS),
            Err(e) => {
                assert!(matches!(e.kind(), ErrorKind::Io | ErrorKind::Busy), "{e:?}");
                (Phase::Waiting(waiting), S)
            }
        }
    }

    fn live(self: &Arc<Self>, mut owner: Box<Owner>) -> (Phase, u64) {
        owner.keeper.turn();
        self.read(&mut owner);
        if self.draw(|rng| rng.one_in(6)) && owner.outbox.ship_something().is_ok() {
            let mut facts = self.facts.lock();
            facts.met.acknowledged += 1;
            facts.written = facts.written.max(owner.incarnation);
        }
        self.read(&mut owner);
        match self.draw(|rng| rng.range(0..700)) {
            0 => return (Phase::Down, self.draw(|rng| rng.range(0..100)) * S),
            1 => {
                owner.keeper.release();
                assert!(owner.cx.check_lease().is_err(), "it is released");
                self.facts.lock().met.released += 1;
                return (Phase::Down, self.draw(|rng| rng.range(0..100)) * S);
            }
            _ => {}
        }
        let is_over =
            owner.link.is_dead() || owner.outbox.check().is_err() && self.draw(|rng| rng.one_in(40));
        if is_over { (Phase::Down, 0) } else { (Phase::Owner(owner), TURN_NS) }
    }

    /// The owner answers a read, if it may: no successor has acknowledged a write.
    fn read(&self, owner: &mut Owner) {
        let may = owner.cx.check_lease().is_ok();
        let mut facts = self.facts.lock();
        let (written, incarnation) = (facts.written, owner.incarnation);
        assert!(!may || written <= incarnation, "{incarnation} answers a read, and {written} has written");
        let met = &mut facts.met;
        *(if may { &mut met.leased_reads } else { &mut met.refused_reads }) += 1;
        met.kept_after_lapse += u64::from(may && owner.has_lapsed);
        owner.has_lapsed = !may;
    }
}

fn case(seed: u64, so_far: Met) -> Met {
    let world = World::new(seed, so_far);
    (0..STEPS).for_each(|_| world.step());
    world.facts.lock().met
}

#[test]
fn no_read_is_answered_once_another_has_written() {
    let count =
        std::env::var("SILTSTONE_SEEDS").ok().and_then(|count| count.parse::<u64>().ok()).unwrap_or(40);
    let fresh = OsRandom::new().next_u64() >> 16;
    let mut all = Met::default();
    for seed in (1..=count / 2).chain(fresh..).take(count as usize) {
        println!("seed {seed}");
        all = case(seed, all);
    }
    println!("{all:?}");
    let Met { leased_reads, refused_reads, kept_after_lapse, acknowledged, .. } = all;
    let Met { released, waited_out, taken_at_once, ended_in_a_call, .. } = all;
    let of_owners = [leased_reads, refused_reads, kept_after_lapse, acknowledged, released];
    let mut met = of_owners.into_iter().chain([waited_out, taken_at_once, ended_in_a_call]);
    assert!(count < 40 || met.all(|met| met >= count / 10), "too little was met: {all:?}");
}

/// Planted bugs are of the whole process, so each has one of its own.
#[test]
fn planted_bugs_are_found() {
    let program = std::env::current_exe().unwrap();
    let simulated = "lease::tests::no_read_is_answered_once_another_has_written";
    // What a standby that is early does to an owner shows seldom; that it is early shows at once.
    let early =
        "lease::waiter::tests::it_takes_over_when_the_same_answer_was_the_newest_for_the_ttl_and_a_margin";
    for (bug, test) in [(Bug::ReadAfterLease, simulated), (Bug::TakeWithoutWaiting, early)] {
        let mut command = Command::new(&program);
        let found = command.args(["--exact", test]).env("SILTSTONE_BUG", bug.name()).output().unwrap();
        let said = String::from_utf8_lossy(&found.stdout);
        assert!(!found.status.success() && said.contains("1 failed"), "{bug:?}: {said}");
        assert!(!said.contains("too little was met"), "{bug:?} is not found: {said}");
    }
}

/// An owner and a standby over a store without faults, with one clock.
struct Pair {
    clock: Arc<SimClock>,
    env: Env,
    store: Arc<dyn ObjectStore>,
    owned: OwnedBy,
}

impl Pair {
    fn new() -> Self {
        let (disk, clock) = (Arc::new(SimStorage::new(1)), Arc::new(SimClock::default()));
        let store: Arc<dyn ObjectStore> = SimObjects::new(disk, clock.clone(), Path::new("objects"), None);
        let storage = Arc::new(SimStorage::new(2));
        let env = Env { storage, clock: clock.clone(), random: Arc::new(SimRandom::new(1)) };
        let with = ClaimEnv { env: &env, store: &store, pause: NO_TIME };
        let owned = own(&env, store.clone(), &mut || Claimed::at_once(&with)).unwrap();
        Self { clock, env, store, owned }
    }

    fn with(&self) -> ClaimEnv<'_> {
        ClaimEnv { env: &self.env, store: &self.store, pause: NO_TIME }
    }

    /// Lets time pass, with turns of the owner and of the standby, until the standby has taken over; after
    /// how long. At most two minutes.
    fn until_taken(&self, standby: &mut StandBy, lives: bool) -> Option<u64> {
        let began = self.clock.monotonic_ns();
        for step in 0..2_400u64 {
            if lives && step.is_multiple_of(10) {
                self.owned.keeper.turn();
            }
            if step.is_multiple_of(25) && standby.step(&self.with()).unwrap() {
                return Some(self.clock.monotonic_ns() - began);
            }
            self.clock.advance_us(50_000);
        }
        None
    }
}

#[test]
fn a_standby_takes_over_soon_after_the_owner_has_ended_and_not_while_it_lives() {
    let pair = Pair::new();
    let may_read = || pair.owned.cx.check_lease().is_ok();
    pair.owned.keeper.turn();
    let mut standby = StandBy::new(&pair.with());
    assert_eq!(pair.until_taken(&mut standby, true), None, "the owner lives");
    assert!(may_read() && standby.waiter.is_answered());
    let after = pair.until_taken(&mut standby, false).expect("the owner has ended");
    assert!(after <= TTL_NS + MARGIN_NS + 2 * POLL_NS, "{after}");
    assert!(after > TTL_NS - TTL_NS / 3 && !may_read());
    // It goes on, finds the database taken, and answers nothing.
    pair.owned.keeper.turn();
    assert!(!may_read());
    let mut claimed = Some(standby.claimed);
    let next = own(&pair.env, pair.store.clone(), &mut || Ok(claimed.take().unwrap())).unwrap();
    assert!(next.cx.check_lease().is_ok() && next.outbox.ship_something().is_ok());
    assert_eq!(pair.owned.outbox.ship_something().unwrap_err().kind(), ErrorKind::Busy);
    pair.owned.keeper.turn();
    assert!(!may_read());
}

#[test]
fn an_owner_goes_on_where_the_one_that_took_the_database_over_does_not_open_it() {
    let pair = Pair::new();
    let may_read = || pair.owned.cx.check_lease().is_ok();
    let mut standby = StandBy::new(&pair.with());
    assert!(!standby.step(&pair.with()).unwrap());
    pair.owned.keeper.turn();
    assert!(pair.until_taken(&mut standby, false).is_some());
    pair.owned.keeper.turn();
    assert!(!may_read());
    drop(standby);
    for _ in 0..60 {
        pair.clock.advance_us(500_000);
        pair.owned.keeper.turn();
    }
    assert!(may_read());
}

#[test]
fn an_owner_that_cannot_write_any_more_hands_over_to_a_standby() {
    let pair = Pair::new();
    let mut standby = StandBy::new(&pair.with());
    assert!(!standby.step(&pair.with()).unwrap());
    pair.owned.keeper.turn();
    let stream = Stream::new(pair.store.clone(), "d/one", pair.env.random.clone());
    drop(stream.recover(1, Terms { revision: 0, numbers_ahead: 0 }).unwrap());
    assert!(pair.owned.outbox.ship_something().is_err());
    pair.owned.keeper.turn();
    assert!(pair.owned.cx.check_lease().is_err());
    assert!(pair.until_taken(&mut standby, false).is_some_and(|after| after <= 2 * POLL_NS));
}

#[test]
fn a_released_database_is_taken_at_once_and_one_that_was_never_leased_is_not() {
    let pair = Pair::new();
    let mut standby = StandBy::new(&pair.with());
    assert_eq!(pair.until_taken(&mut standby, false), None, "it was not answered");
    pair.owned.keeper.release();
    assert!(pair.owned.cx.check_lease().is_err());
    assert_eq!(pair.until_taken(&mut standby, false), Some(POLL_NS));
    let newest = standby.claimed.chain.newest(3).unwrap();
    let kinds: Vec<_> = newest.into_iter().map(|(_, object)| object.kind).collect();
    assert_eq!(kinds, [Kind::Taken, Kind::Released, Kind::Taken]);
}

#[test]
fn a_lease_that_lapsed_is_given_back_and_is_ended_once_the_standby_is_not_heard_of() {
    let pair = Pair::new();
    let mut standby = StandBy::new(&pair.with());
    assert!(!standby.step(&pair.with()).unwrap());
    pair.owned.keeper.turn();
    assert!(pair.owned.cx.check_lease().is_ok());
    pair.clock.advance_us(4_100_000);
    assert_eq!(pair.owned.cx.check_lease().unwrap_err().kind(), ErrorKind::Busy);
    pair.owned.keeper.turn();
    assert!(pair.owned.cx.check_lease().is_ok(), "an entry was acknowledged after the new lease");
    let newest = || standby.claimed.chain.newest(1).unwrap().pop().unwrap().1.kind;
    for _ in 0..2_000 {
        pair.clock.advance_us(1_000_000);
        pair.owned.keeper.turn();
    }
    assert_eq!(newest(), Kind::Ended);
    pair.clock.advance_us(100_000_000);
    assert!(pair.owned.cx.check_lease().is_ok());
}

/// A store that counts requests.
#[derive(Debug)]
struct Counted(Arc<SimObjects>, AtomicU64);

impl Counted {
    fn one(&self) -> &SimObjects {
        self.1.fetch_add(1, Ordering::SeqCst);
        &self.0
    }
}

impl ObjectStore for Counted {
    fn location(&self) -> String {
        self.0.location()
    }
    fn put(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.one().put(name, bytes)
    }
    fn put_once(&self, name: &str, bytes: &[u8]) -> io::Result<PutOnce> {
        self.one().put_once(name, bytes)
    }
    fn get(&self, name: &str, range: Range<u64>) -> io::Result<Vec<u8>> {
        self.one().get(name, range)
    }
    fn len(&self, name: &str) -> io::Result<u64> {
        self.one().len(name)
    }
    fn get_whole(&self, name: &str) -> io::Result<Vec<u8>> {
        self.one().get_whole(name)
    }
    fn list(&self) -> io::Result<Vec<String>> {
        self.one().list()
    }
    fn list_below(&self, folder: &str) -> io::Result<Vec<String>> {
        self.one().list_below(folder)
    }
    fn delete(&self, name: &str) -> io::Result<()> {
        self.one().delete(name)
    }
}

#[test]
fn without_a_standby_the_owner_asks_the_store_once_a_minute() {
    let (disk, clock) = (Arc::new(SimStorage::new(1)), Arc::new(SimClock::default()));
    let objects = SimObjects::new(disk, clock.clone(), Path::new("objects"), None);
    let counted = Arc::new(Counted(objects, AtomicU64::new(0)));
    let store: Arc<dyn ObjectStore> = counted.clone();
    let storage = Arc::new(SimStorage::new(2));
    let env = Env { storage, clock: clock.clone(), random: Arc::new(SimRandom::new(1)) };
    let with = ClaimEnv { env: &env, store: &store, pause: NO_TIME };
    let owned = own(&env, store.clone(), &mut || Claimed::at_once(&with)).unwrap();
    let before = counted.1.load(Ordering::SeqCst);
    for _ in 0..7_200 {
        owned.keeper.turn();
        clock.advance_us(500_000);
    }
    let requests = counted.1.load(Ordering::SeqCst) - before;
    // The first look is a listing and a read.
    assert!((60..=61).contains(&requests), "{requests} in an hour");
    assert!(owned.cx.check_lease().is_ok());
}
