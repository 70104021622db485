//! Taking a stream over: from finding its end to owning the next incarnation.

use super::access::Stream;
use super::ahead::{WINDOW_MAX, WINDOW_MIN};
use super::object::{Body, Claim, Entry, Object, Sealed, Start};
use super::place::Place;
use super::writer::Writer;
use crate::error::{Error, ErrorKind, Result};
use crate::storage::PutOnce;

/// On what terms a process takes a stream over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Terms {
    /// The revision of the order that it acts on. One that is older than the owner's is refused.
    pub revision: u64,
    /// How many sequence numbers its claim allows it to give out.
    pub numbers_ahead: u64,
}

/// What a new owner begins with.
#[derive(Debug)]
pub struct Recovered {
    /// The owner's side of the stream.
    pub writer: Writer,
    /// From where the reader starts: first it reads the checkpoint that counts, if there is one.
    pub start: Start,
    /// What it replays then: all entries from [`Start::replay_from`] on.
    pub entries: Vec<(Place, Entry)>,
    /// The sequence number up to which others may have been given out: the owner's begin above.
    pub numbers_taken: u64,
}

/// What the newest incarnation holds, when it was read up to its seal.
struct Newest {
    claim: Claim,
    entries: Vec<(Place, Entry)>,
    start: Start,
    numbers_upto: u64,
    seal: Sealed,
}

/// Some incarnations between two, or all if they are few.
fn between(found: u64, absent: u64) -> Vec<u64> {
    let parts = WINDOW_MAX as u64;
    match absent - found {
        gap if gap > parts => (1..parts).map(|part| found + gap / parts * part).collect(),
        _ => (found + 1..absent).collect(),
    }
}

impl Stream {
    /// Takes the stream over: seals the newest incarnation, reads what a new owner needs, and claims the
    /// next. The hint is an incarnation that may be near the newest one. Of several recoverers that are at
    /// it together, the last one is the owner. A call that failed may have sealed the stream, so that
    /// nobody owns it.
    ///
    /// # Errors
    /// `NotFound` if there is no stream, `Conflict` if the owner acts on a newer order (nothing was sealed
    /// then), `Corruption` if something is missing or damaged. What the store meets: call it again.
    pub fn recover(&self, hint: u64, terms: Terms) -> Result<Recovered> {
        let mut newest = self.newest(hint)?;
        let mut missed = None;
        loop {
            let (incarnation, claim) = newest;
            if claim.revision > terms.revision {
                let (theirs, ours) = (claim.revision, terms.revision);
                let message = format!("the stream's owner acts on order {theirs}, this process on {ours}");
                return Err(Error::new(ErrorKind::Conflict, message));
            }
            let mut read = self.seal_and_read(incarnation, claim)?;
            let of_newest = std::mem::take(&mut read.entries);
            match self.all_entries(incarnation, &read.claim, read.start, of_newest)? {
                Ok(entries) => {
                    if let Some(writer) = self.claim_next(&read, terms)? {
                        let (start, numbers_taken) = (read.start, read.numbers_upto);
                        return Ok(Recovered { writer, start, entries, numbers_taken });
                    }
                }
                // Others have collected it if there is a newer incarnation. Then that is read.
                Err(place) if missed.replace((incarnation, place)) == Some((incarnation, place)) => {
                    let name = self.name(place);
                    return Err(Error::corruption(&name, 0, "missing, and a reader of the stream needs it"));
                }
                Err(_) => {}
            }
            newest = self.newest(incarnation)?;
        }
    }

    /// Whether the incarnation is claimed.
    pub(crate) fn is_claimed(&self, incarnation: u64) -> Result<bool> {
        Ok(self.claim(incarnation)?.is_some())
    }

    /// Whether anything was ever written to the stream that is known to count: its owner names a checkpoint,
    /// or has put an entry. Seals nothing.
    pub(crate) fn is_written(&self) -> Result<bool> {
        let (incarnation, claim) = self.newest(1)?;
        let first = self.read(Place::new(incarnation, 1))?;
        Ok(claim.start.checkpoint.is_some() || first.is_some_and(|first| first.body != Body::Seal))
    }

    /// The newest incarnation and its claim. Claims stay for ever and have no gaps: the newest is found
    /// from any of them.
    pub(super) fn newest(&self, hint: u64) -> Result<(u64, Claim)> {
        let hint = hint.max(1);
        let newest = match self.newest_from(hint)? {
            None if hint > 1 => self.newest_from(1)?,
            newest => newest,
        };
        newest.ok_or_else(|| {
            let message = format!("there is no stream: no object {}", self.name(Place::new(1, 0)));
            Error::new(ErrorKind::NotFound, message)
        })
    }

    /// The last before the first that is not claimed, from that incarnation on. There are no gaps, so it is
    /// looked for among more and more distant ones, and then between the last found and the first missed:
    /// some windows of requests, however many incarnations there are.
    fn newest_from(&self, first: u64) -> Result<Option<(u64, Claim)>> {
        let (mut newest, mut absent) = (None, None);
        let mut asked: Vec<u64> =
            std::iter::once(first).chain((0..32).map(|bit| first.saturating_add(1 << bit))).collect();
        while !asked.is_empty() {
            let places = asked.iter().map(|incarnation| Place::new(*incarnation, 0));
            for read in self.ahead(places, WINDOW_MAX) {
                let (place, object) = read?;
                let Some(claim) = object.and_then(Object::into_claim) else {
                    absent = Some(place.incarnation);
                    break;
                };
                newest = Some((place.incarnation, claim));
            }
            let (Some((found, _)), Some(absent)) = (&newest, absent) else { break };
            asked = between(*found, absent);
        }
        Ok(newest)
    }

    /// Reads an incarnation place by place and seals the first that is empty, unless a seal comes before.
    fn seal_and_read(&self, incarnation: u64, claim: Claim) -> Result<Newest> {
        let (mut start, mut numbers_upto) = (claim.start, claim.numbers_upto);
        let (mut at, mut entries) = (Place::new(incarnation, 1), Vec::new());
        let mut objects = self.ahead(at.onwards(), WINDOW_MIN);
        let seal = loop {
            let Some(object) = objects.next().transpose()?.and_then(|(_, object)| object) else {
                let place = if planted!(Bug::SealAboveHole) { self.above_hole(at)? } else { at };
                match self.put(place, &Body::Seal)? {
                    (PutOnce::Mine, nonce) => break Sealed { place, nonce },
                    // The owner was faster, or another recoverer: read it, and anew what was found beyond.
                    (PutOnce::Theirs, _) => objects = self.ahead(at.onwards(), WINDOW_MIN),
                }
                continue;
            };
            match object.body {
                Body::Entry(entry) => {
                    if let Some(later) = entry.start {
                        start = later;
                        // What a reader needs no more is not kept.
                        entries.retain(|(place, _)| *place >= later.replay_from());
                    }
                    numbers_upto = numbers_upto.max(entry.numbers_upto);
                    entries.push((at, entry));
                    at = at.next();
                }
                Body::Seal | Body::Claim(_) => break Sealed { place: at, nonce: object.nonce },
            }
        };
        Ok(Newest { claim, entries, start, numbers_upto, seal })
    }

    /// Where a recoverer seals that does not know better: after the last object that is there.
    fn above_hole(&self, hole: Place) -> Result<Place> {
        let mut place = hole;
        while self.read(place.next())?.is_some() {
            place = place.next();
        }
        Ok(if place == hole { hole } else { place.next() })
    }

    /// All entries that a reader replays who begins at `start`, from those of older incarnations on to those
    /// of the newest, with its claim; or the place of one that is missing.
    pub(super) fn all_entries(
        &self,
        newest: u64,
        claim: &Claim,
        start: Start,
        of_newest: Vec<(Place, Entry)>,
    ) -> Result<Result<Vec<(Place, Entry)>, Place>> {
        let from = start.replay_from();
        let seals = match self.seals(from.incarnation, newest, claim)? {
            Ok(seals) => seals,
            Err(missing) => return Ok(Err(missing)),
        };
        let places = seals.into_iter().flat_map(|seal| {
            let first = if seal.incarnation == from.incarnation { from.number } else { 1 };
            (first..seal.number).map(move |number| Place { number, ..seal })
        });
        let mut entries = Vec::new();
        for object in self.ahead(places, WINDOW_MAX) {
            match object? {
                (place, Some(Object { body: Body::Entry(entry), .. })) => entries.push((place, entry)),
                // It was collected, and a slow recoverer may have sealed its place.
                (place, _) => return Ok(Err(place)),
            }
        }
        entries.extend(of_newest.into_iter().filter(|(place, _)| *place >= from));
        Ok(Ok(entries))
    }

    /// Where the incarnations from that one on end, up to the newest, whose claim is given; or the claim that
    /// is missing.
    fn seals(&self, from: u64, newest: u64, claim: &Claim) -> Result<Result<Vec<Place>, Place>> {
        let mut seals = Vec::new();
        let claims = (from.saturating_add(1)..newest).map(|incarnation| Place::new(incarnation, 0));
        for read in self.ahead(claims, WINDOW_MAX) {
            let (place, object) = read?;
            // An incarnation ends at the seal that the next claim names, not at the lowest one.
            match object.and_then(Object::into_claim).and_then(|claim| claim.follows) {
                Some(seal) => seals.push(seal.place),
                None => return Ok(Err(place)),
            }
        }
        seals.extend(claim.follows.filter(|_| from < newest).map(|seal| seal.place));
        Ok(Ok(seals))
    }

    /// The owner of the next incarnation, unless another has claimed it.
    fn claim_next(&self, read: &Newest, terms: Terms) -> Result<Option<Writer>> {
        let incarnation = read.seal.place.incarnation + 1;
        let claim = Claim {
            follows: Some(read.seal),
            start: read.start,
            revision: terms.revision,
            numbers_upto: read.numbers_upto.saturating_add(terms.numbers_ahead),
        };
        let body = Body::Claim(claim.clone());
        match self.put(Place::new(incarnation, 0), &body)? {
            (PutOnce::Mine, _) => Ok(Some(Writer::new(self.clone(), incarnation, &claim))),
            (PutOnce::Theirs, _) => Ok(None),
        }
    }
}
