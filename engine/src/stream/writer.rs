//! The owner of a stream: it puts entries at the places of its incarnation, and begins the next itself.

use super::access::{Stream, check};
use super::collect::collect;
use super::object::{Body, Claim, Entry, Object, Sealed, Start};
use super::place::Place;
use super::shared_log::SharedLog;
use crate::error::{Error, ErrorKind, Result};
use crate::storage::PutOnce;
use crate::sync::{Condvar, Mutex};
use std::collections::BTreeMap;

/// The owner of the newest incarnation, until it meets another's object where it writes.
///
/// A place is given out under a lock, and the put is made by the caller's thread without it, so that puts
/// overlap. They may land in any order; they are acknowledged in that of their places.
#[derive(Debug)]
pub struct Writer {
    stream: Stream,
    revision: u64,
    state: Mutex<State>,
    /// Something was acknowledged, a new incarnation began, or no more is written.
    moved: Condvar,
}

#[derive(Debug)]
struct State {
    /// The next place to be given out.
    next: Place,
    /// The first place that is not acknowledged.
    known: Place,
    /// The places from `known` to `next`.
    in_flight: BTreeMap<Place, Sent>,
    /// Up to which sequence number acknowledged objects let any be given out.
    numbers_upto: u64,
    /// From where a reader starts, by the newest acknowledged object that says it.
    start: Start,
    /// Whether a seal of our own is in flight, or the claim that follows: no place is given out.
    is_rolling: bool,
    ended: Option<Ended>,
}

/// An object in flight, with what it will say once it is acknowledged.
#[derive(Debug, Default)]
struct Sent {
    is_there: bool,
    numbers_upto: u64,
    start: Option<Start>,
}

/// Why no more is written.
#[derive(Debug)]
struct Ended {
    /// What is to come at this place and after it will not be acknowledged.
    from: Place,
    why: Error,
}

impl State {
    fn give_out(&mut self, sent: Sent) -> Place {
        let place = self.next;
        self.next = place.next();
        self.in_flight.insert(place, sent);
        place
    }

    fn end(&mut self, from: Place, why: Error) {
        self.is_rolling = false;
        if self.ended.as_ref().is_none_or(|ended| from < ended.from) {
            self.ended = Some(Ended { from, why });
        }
    }

    /// Acknowledges what is there without a gap.
    fn acknowledge(&mut self) {
        while let Some(first) = self.in_flight.first_entry()
            && first.get().is_there
        {
            let (place, sent) = first.remove_entry();
            self.known = place.next();
            self.numbers_upto = self.numbers_upto.max(sent.numbers_upto);
            self.start = sent.start.unwrap_or(self.start);
        }
    }

    /// What became of the object at a place; `None` while that is open.
    fn outcome(&self, place: Place) -> Option<Result<()>> {
        if place < self.known {
            return Some(Ok(()));
        }
        let ended = self.ended.as_ref().filter(|ended| ended.from <= place)?;
        Some(Err(ended.why.clone()))
    }
}

impl Writer {
    /// The owner of an incarnation whose claim has just been put.
    pub(super) fn new(stream: Stream, incarnation: u64, claim: &Claim) -> Self {
        let next = Place::new(incarnation, 1);
        let state = State {
            next,
            known: next,
            in_flight: BTreeMap::new(),
            numbers_upto: claim.numbers_upto,
            start: claim.start,
            is_rolling: false,
            ended: None,
        };
        Self { stream, revision: claim.revision, state: Mutex::new(state), moved: Condvar::new() }
    }

    /// Up to which sequence number the owner may give any out. Entries allow more once they are acknowledged.
    pub fn numbers_upto(&self) -> u64 {
        self.state.lock().numbers_upto
    }

    /// The incarnation that the owner writes, for the next opener's hint.
    pub fn incarnation(&self) -> u64 {
        self.state.lock().next.incarnation
    }

    /// Puts the seal at the next place, and returns when all before it are there. No place is given out from
    /// then on, until the caller allows it.
    fn put_seal(&self) -> Result<Sealed> {
        let place = self.give_out(|state| {
            state.is_rolling = true;
            Ok(Sent::default())
        })?;
        Ok(Sealed { place, nonce: self.put_and_wait(place, &Body::Seal)? })
    }

    /// Puts an object at a place that was given out, and returns its nonce when all places up to it are
    /// there.
    fn put_and_wait(&self, place: Place, body: &Body) -> Result<u128> {
        let mut unwinding = Unwinding { writer: self, place: Some(place) };
        let put = self.stream.put(place, body);
        unwinding.place = None;
        let nonce = put.as_ref().map_or(0, |(_, nonce)| *nonce);
        self.settle(place, put.map(|(outcome, _)| outcome));
        self.wait(place)?;
        Ok(nonce)
    }

    /// Gives the next place out, unless no more is written.
    fn give_out(&self, sent: impl FnOnce(&mut State) -> Result<Sent>) -> Result<Place> {
        let mut state = self.state.lock();
        loop {
            if let Some(ended) = &state.ended {
                let message = format!("no more is written to the stream: {}", ended.why);
                let kind = match ended.why.kind() {
                    kind @ (ErrorKind::Busy | ErrorKind::Closed) => kind,
                    _ => ErrorKind::Poisoned,
                };
                return Err(Error::new(kind, message));
            }
            if !state.is_rolling {
                let sent = sent(&mut state)?;
                return Ok(state.give_out(sent));
            }
            self.moved.wait(&mut state);
        }
    }

    /// Notes what became of the put of an object.
    pub(super) fn settle(&self, place: Place, put: Result<PutOnce>) {
        let mut state = self.state.lock();
        match put {
            Ok(PutOnce::Mine) => {
                if let Some(sent) = state.in_flight.get_mut(&place) {
                    sent.is_there = true;
                }
                state.acknowledge();
            }
            Ok(PutOnce::Theirs) => {
                let name = self.stream.name(place);
                let message = format!("another process writes the stream now, by its object {name}");
                state.end(place, Error::new(ErrorKind::Busy, message));
            }
            Err(e) => state.end(place, e),
        }
        self.moved.notify_all();
    }

    /// What became of the object at a place; `None` while that is open.
    #[cfg(test)]
    pub(super) fn outcome(&self, place: Place) -> Option<Result<()>> {
        self.state.lock().outcome(place)
    }

    fn wait(&self, place: Place) -> Result<()> {
        let mut state = self.state.lock();
        loop {
            if let Some(outcome) = state.outcome(place) {
                return outcome;
            }
            self.moved.wait(&mut state);
        }
    }
}

/// A put under way. Where its thread panics, its outcome is unknown, as after an error.
struct Unwinding<'a> {
    writer: &'a Writer,
    place: Option<Place>,
}

impl Drop for Unwinding<'_> {
    fn drop(&mut self) {
        if let Some(place) = self.place {
            let why = Error::new(ErrorKind::Poisoned, "a put panicked (see standard error)");
            self.writer.settle(place, Err(why));
        }
    }
}

impl SharedLog for Writer {
    fn place(&self, entry: &Entry) -> Result<Place> {
        self.give_out(|state| {
            check(entry, state.next)?;
            Ok(Sent { is_there: false, numbers_upto: entry.numbers_upto, start: entry.start })
        })
    }

    fn put(&self, place: Place, entry: Entry) -> Result<()> {
        let is_its = |sent: &Sent| {
            !sent.is_there && (sent.numbers_upto, sent.start) == (entry.numbers_upto, entry.start)
        };
        if !self.state.lock().in_flight.get(&place).is_some_and(is_its) {
            return Err(Error::invalid(format!("place {place} was not given to this entry")));
        }
        self.put_and_wait(place, &Body::Entry(entry))?;
        Ok(())
    }

    /// Two puts, while calls of [`SharedLog::place`] wait.
    fn roll(&self) -> Result<Place> {
        let seal = self.put_seal()?;
        let place = Place::new(seal.place.incarnation + 1, 0);
        let claim = {
            let mut state = self.state.lock();
            let (start, numbers_upto) = (state.start, state.numbers_upto);
            state.in_flight.insert(place, Sent { numbers_upto, ..Sent::default() });
            Claim { follows: Some(seal), start, revision: self.revision, numbers_upto }
        };
        self.put_and_wait(place, &Body::Claim(claim))?;
        let mut state = self.state.lock();
        state.next = place.next();
        state.is_rolling = false;
        self.moved.notify_all();
        Ok(place)
    }

    fn put_checkpoint(&self, place: Place, payload: &[u8]) -> Result<()> {
        self.stream.put_checkpoint(place, payload)
    }

    fn delete_checkpoints(&self, before: Place) -> Result<u64> {
        self.stream.delete_checkpoints(before)
    }

    fn seal(&self) -> Result<Place> {
        let place = self.put_seal()?.place;
        let mut state = self.state.lock();
        state.end(place.next(), Error::new(ErrorKind::Closed, "its owner has sealed it"));
        self.moved.notify_all();
        Ok(place)
    }

    fn read(&self, place: Place) -> Result<Option<Object>> {
        self.stream.read(place)
    }

    fn collect(&self, upto: Place) -> Result<u64> {
        let (owner, start) = {
            let state = self.state.lock();
            (state.known.incarnation, state.start)
        };
        collect(&self.stream, owner, upto.min(start.replay_from()))
    }
}
