//! Schedules of writers, of checkpoints beside them and of a put that fails; see `crate::sync`. The stream is
//! one in memory that acknowledges entries in the order of their places, as `Writer` does.

use super::*;
use crate::storage::sim::SimClock;
use crate::stream::{Object, items};
use crate::sync::thread::{JoinHandle, spawn, yield_now};
use crate::sync::{Limits, check, is_loom};
use std::sync::atomic::{AtomicUsize, Ordering};

const LIMITS: Limits = Limits { preemptions: 3, schedules: 20_000 };
/// For each way and place to fail.
const LIMITS_OF_EACH: Limits = Limits { preemptions: 2, schedules: 4_000 };
/// A bound of the WAL that no model reaches.
const FAR: u64 = 1 << 20;

/// Writers, and writes of each. Loom tries all interleavings, so it gets fewer.
fn load() -> (usize, usize) {
    if is_loom() { (2, 1) } else { (3, 2) }
}

/// Lets others run. Loom switches at each lock anyway.
fn pause() {
    if !is_loom() {
        (0..2).for_each(|_| yield_now());
    }
}

/// How a put fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Failure {
    /// Another process has sealed the stream at this place.
    Sealed,
    /// The storage answers an error, and the entry is not there.
    Lost,
    /// The storage answers an error, and the entry is there.
    Landed,
}

impl Failure {
    fn error(self) -> Error {
        match self {
            Failure::Sealed => Error::new(ErrorKind::Busy, "sealed by another"),
            Failure::Lost | Failure::Landed => Error::new(ErrorKind::Io, "no answer"),
        }
    }
}

/// The stream, as its owner has it.
#[derive(Debug)]
struct Log {
    /// The number of the place whose put fails, and how.
    fails: Option<(u64, Failure)>,
    state: Mutex<State>,
    moved: Condvar,
}

#[derive(Debug)]
struct State {
    next: Place,
    /// The first place that is not acknowledged.
    known: Place,
    landed: BTreeMap<Place, Entry>,
    in_flight: usize,
    in_flight_most: usize,
    rolls: bool,
    /// From where on nothing is acknowledged, and why.
    ended: Option<(Place, Error)>,
    /// Whether a caller of the outbox has heard of the failure.
    is_told: bool,
    checkpoints: Vec<Place>,
}

impl State {
    /// Gives up the rest of the stream to that error.
    fn end(&mut self, from: Place, why: Error) {
        self.ended.get_or_insert((from, why));
    }

    fn acknowledge(&mut self) {
        let end = self.ended.as_ref().map(|(from, _)| *from);
        while self.landed.contains_key(&self.known) && Some(self.known) != end {
            self.known = self.known.next();
        }
    }

    /// The outcome of the entry at a place; `None` while that is open.
    fn outcome(&self, place: Place) -> Option<Result<()>> {
        if place < self.known {
            return Some(Ok(()));
        }
        let (from, why) = self.ended.as_ref()?;
        (*from <= place).then(|| Err(why.clone()))
    }
}

impl Log {
    fn new(fails: Option<(u64, Failure)>) -> Self {
        let first = Place::new(1, 1);
        let state = State {
            next: first,
            known: first,
            landed: BTreeMap::new(),
            in_flight: 0,
            in_flight_most: 0,
            rolls: false,
            ended: None,
            is_told: false,
            checkpoints: Vec::new(),
        };
        Self { fails, state: Mutex::new(state), moved: Condvar::new() }
    }

    /// The entries that a reader finds: those before the first empty place.
    fn entries(&self) -> Vec<(Place, Entry)> {
        let state = self.state.lock();
        let (mut next, mut entries) = (Place::new(1, 1), Vec::new());
        for (place, entry) in &state.landed {
            // An incarnation ends with all that it was given.
            if place.incarnation > next.incarnation {
                next = Place::new(place.incarnation, 1);
            }
            if *place != next {
                break;
            }
            next = place.next();
            entries.push((*place, entry.clone()));
        }
        entries
    }

    fn frames(&self) -> Vec<LogPosition> {
        self.entries().iter().flat_map(|(_, entry)| frames_of(entry)).collect()
    }
}

/// Where the frames of an entry are in the WAL.
fn frames_of(entry: &Entry) -> Vec<LogPosition> {
    let items = items(&entry.payload);
    let frames = items.map(|item| match item {
        Ok(Item::Wal(at, b"f")) => at,
        other => panic!("no frame was queued that reads as {other:?}"),
    });
    frames.collect()
}

impl SharedLog for Log {
    fn place(&self, _: &Entry) -> Result<Place> {
        let mut state = self.state.lock();
        assert!(!state.is_told, "nothing is put once a caller has heard of a failure");
        assert!(!state.rolls, "nothing is put while the log rolls");
        if let Some((_, why)) = &state.ended {
            return Err(why.clone());
        }
        let place = state.next;
        state.next = place.next();
        state.in_flight += 1;
        state.in_flight_most = state.in_flight_most.max(state.in_flight);
        assert!(state.in_flight <= IN_FLIGHT_MAX);
        Ok(place)
    }

    fn put(&self, place: Place, entry: Entry) -> Result<()> {
        pause();
        let mut state = self.state.lock();
        assert!(place < state.next && !state.landed.contains_key(&place), "each place is used once");
        let failure = self.fails.filter(|(number, _)| *number == place.number).map(|(_, failure)| failure);
        if let Some(failure) = failure {
            state.end(place, failure.error());
        }
        if matches!(failure, None | Some(Failure::Landed)) {
            state.landed.insert(place, entry);
        }
        state.acknowledge();
        self.moved.notify_all();
        let outcome = loop {
            if let Some(outcome) = state.outcome(place) {
                break outcome;
            }
            self.moved.wait(&mut state);
        };
        state.in_flight -= 1;
        drop(state);
        pause();
        outcome
    }

    fn roll(&self) -> Result<Place> {
        {
            let mut state = self.state.lock();
            assert_eq!((state.in_flight, state.known), (0, state.next), "no put is in flight");
            assert!(!state.is_told && !state.rolls);
            state.rolls = true;
        }
        pause();
        let mut state = self.state.lock();
        let claim = Place::new(state.next.incarnation + 1, 0);
        (state.next, state.known, state.rolls) = (claim.next(), claim.next(), false);
        Ok(claim)
    }

    fn put_checkpoint(&self, place: Place, _: &[u8]) -> Result<()> {
        self.state.lock().checkpoints.push(place);
        Ok(())
    }

    fn delete_checkpoints(&self, _: Place) -> Result<u64> {
        unreachable!("nothing is collected")
    }

    fn seal(&self) -> Result<Place> {
        unreachable!("an outbox seals nothing")
    }

    fn read(&self, _: Place) -> Result<Option<Object>> {
        unreachable!("an outbox reads nothing")
    }

    fn collect(&self, _: Place) -> Result<u64> {
        unreachable!("nothing is collected")
    }
}

type Outcomes = Vec<Result<()>>;

/// The log stage and the sync of a write as `write` joins them.
struct Path {
    log: Arc<Log>,
    outbox: Outbox,
    /// The frames that were queued, in that order.
    queued: Mutex<Vec<LogPosition>>,
}

impl Path {
    fn new(fails: Option<(u64, Failure)>, wal_limit: u64) -> Arc<Self> {
        let log = Arc::new(Log::new(fails));
        let clock: Arc<dyn Clock> = Arc::new(SimClock::default());
        let files = (BTreeMap::new(), 0);
        let outbox = Outbox::new(log.clone(), Place::new(1, 0), files, wal_limit, &clock);
        let path = Self { log, outbox, queued: Mutex::new(Vec::new()) };
        path.begin(LogFileId(1));
        Arc::new(path)
    }

    fn queue(&self, queued: &mut Vec<LogPosition>, at: LogPosition) {
        self.outbox.wal(at, b"f", SeqNo(at.offset));
        queued.push(at);
    }

    /// Begins a WAL file between two writes. Its header is a frame here.
    fn begin(&self, file: LogFileId) {
        let mut queued = self.queued.lock();
        self.queue(&mut queued, LogPosition { file, offset: 0 });
    }

    fn write(&self) -> Result<()> {
        let queued = {
            let mut queued = self.queued.lock();
            let last = *queued.last().expect("a file has begun");
            self.queue(&mut queued, LogPosition { offset: last.offset + 1, ..last });
            queued.to_vec()
        };
        match self.outbox.ship() {
            Ok(upto) => {
                let frames = self.log.frames();
                assert!(frames.starts_with(&queued), "{queued:?} was acknowledged, not all of {frames:?}");
                let last = LogPosition { offset: upto.offset - 1, ..upto };
                assert!(queued.last() <= Some(&last) && frames.contains(&last), "all up to {upto} is there");
                Ok(())
            }
            Err(e) => {
                self.log.state.lock().is_told = true;
                Err(e)
            }
        }
    }

    fn start(self: &Arc<Self>, writers: usize, writes: usize) -> Vec<JoinHandle<Outcomes>> {
        let writer = |_| {
            let path = self.clone();
            spawn(move || (0..writes).map(|_| path.write()).collect::<Outcomes>())
        };
        (0..writers).map(writer).collect()
    }

    /// Checks that the stream has each frame once, in the order in which they were queued.
    fn expect_all(&self) {
        let queued = self.queued.lock().to_vec();
        assert_eq!(self.log.frames(), queued);
    }
}

fn join(writers: Vec<JoinHandle<Outcomes>>) -> Vec<Outcomes> {
    writers.into_iter().map(|writer| writer.join().unwrap()).collect()
}

#[test]
fn writers_return_once_their_frames_and_all_before_are_in_the_stream() {
    // The most puts in flight, and the most frames of an entry.
    let (most, longest) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let met = (most.clone(), longest.clone());
    check(LIMITS, move || {
        let path = Path::new(None, FAR);
        let (writers, writes) = load();
        let outcomes = join(path.start(writers, writes));
        assert!(outcomes.iter().flatten().all(Result::is_ok), "{outcomes:?}");
        path.expect_all();
        met.0.fetch_max(path.log.state.lock().in_flight_most, Ordering::Relaxed);
        let entries = path.log.entries();
        let longest = entries.iter().map(|(_, entry)| frames_of(entry).len()).max();
        met.1.fetch_max(longest.unwrap_or(0), Ordering::Relaxed);
    });
    assert_eq!(most.load(Ordering::Relaxed), IN_FLIGHT_MAX, "puts overlap");
    assert!(longest.load(Ordering::Relaxed) > 2, "one entry has frames of several writers");
}

#[test]
fn where_a_put_fails_only_those_succeed_whose_frames_are_in_the_stream() {
    for failure in [Failure::Sealed, Failure::Lost, Failure::Landed] {
        for number in 1..=2 {
            let failed = Arc::new(AtomicUsize::new(0));
            let met = failed.clone();
            check(LIMITS_OF_EACH, move || {
                if fails_at(number, failure) {
                    met.fetch_add(1, Ordering::Relaxed);
                }
            });
            assert!(failed.load(Ordering::Relaxed) > 0, "{failure:?} was never met at {number}");
        }
    }
}

/// Runs writers whose put at that place fails, if there is one; returns whether there was.
fn fails_at(number: u64, failure: Failure) -> bool {
    let path = Path::new(Some((number, failure)), FAR);
    let (writers, writes) = load();
    let outcomes = join(path.start(writers, writes));
    let has_ended = path.log.state.lock().ended.is_some();
    for outcomes in &outcomes {
        assert!(outcomes.is_sorted_by_key(Result::is_err), "after an error nothing succeeds: {outcomes:?}");
    }
    let mut errors = outcomes.iter().flatten().filter_map(|outcome| outcome.as_ref().err()).peekable();
    assert_eq!(errors.peek().is_some(), has_ended, "who puts an entry hears what became of it");
    let is_sealed = failure == Failure::Sealed;
    assert!(errors.all(|e| (e.kind() == ErrorKind::Busy) == is_sealed), "{outcomes:?}");
    if has_ended {
        let e = path.outbox.ship_something().unwrap_err();
        assert_eq!(e.kind() == ErrorKind::Busy, is_sealed, "{e}");
        assert!(path.outbox.check().is_err());
    } else {
        path.expect_all();
    }
    has_ended
}

#[test]
fn a_checkpoint_beside_writers_names_a_place_before_all_that_it_needs() {
    check(Limits { preemptions: 2, schedules: 20_000 }, || {
        // Each checkpoint ends an incarnation.
        let path = Path::new(None, 0);
        let (writers, checkpoints) = if is_loom() { (1, 1) } else { (2, 2) };
        let writers = path.start(writers, 2);
        let checkpoint = |n: u64| {
            let file = LogFileId(n + 1);
            path.begin(file);
            let start = path.outbox.checkpoint(b"manifest", file).unwrap();
            let entries = path.log.entries();
            let says_it = |(place, entry): &&(Place, Entry)| entry.start == Some(start) && start.fits(*place);
            assert_eq!(entries.iter().filter(says_it).count(), 1, "it is acknowledged");
            let state = path.log.state.lock();
            assert_eq!(state.next.incarnation, n + 1);
            assert_eq!(state.checkpoints.last(), start.checkpoint.as_ref());
            (file, start)
        };
        let starts: Vec<(LogFileId, Start)> = (1..=checkpoints).map(checkpoint).collect();
        let outcomes = join(writers);
        assert!(outcomes.iter().flatten().all(Result::is_ok), "{outcomes:?}");
        path.expect_all();
        for (place, entry) in path.log.entries() {
            let frames = frames_of(&entry);
            for (file, start) in &starts {
                let is_needed = frames.iter().any(|at| at.file >= *file);
                assert!(!is_needed || start.first <= place, "{start:?} leaves out {place}, with {frames:?}");
            }
        }
    });
}
