//! Reading a stream beside its owner: from where a reader starts to the first empty place, and on from there.
//! Nothing is put, not even a seal.
//!
//! A follower takes an entry once it has read all places before: of two puts in flight the later one may have
//! landed alone. Then the entry stays for ever, as whoever takes the stream over seals the first empty place,
//! which is behind it.
//!
//! An incarnation ends at the seal that the next claim names, and at no other: somebody slow may have sealed
//! a place that was collected. So the follower waits at a seal until there is a claim. A place that is empty
//! though there is a claim was collected, or was written since it was looked at, which a second look tells.

use super::access::Stream;
use super::ahead::WINDOW_MIN;
use super::object::{Body, Entry, Object, Sealed, Start};
use super::place::Place;
use crate::error::{Error, ErrorKind, Result};

/// How many objects are read together at first by one who is up to date as a rule: a look that finds nothing
/// takes two requests.
const WINDOW_AT_END: usize = 1;

/// What a follower begins with.
pub(crate) struct Begun {
    /// From where it starts: first it reads the checkpoint that counts, if there is one.
    pub(crate) start: Start,
    /// What it replays then.
    pub(crate) entries: Vec<(Place, Entry)>,
    /// The first place that was not read.
    pub(crate) next: Place,
}

impl Stream {
    /// Reads what a follower needs to begin. The hint is an incarnation that may be near the newest one.
    ///
    /// # Errors
    /// `NotFound` if there is no stream, or if something was collected meanwhile: call it again. `Corruption`
    /// if something is damaged.
    pub(crate) fn begin_following(&self, hint: u64) -> Result<Begun> {
        let (incarnation, claim) = self.newest(hint)?;
        let (mut start, mut of_newest, mut next) = (claim.start, Vec::new(), Place::new(incarnation, 1));
        for read in self.ahead(next.onwards(), WINDOW_MIN) {
            let (place, Some(Object { body: Body::Entry(entry), .. })) = read? else { break };
            start = entry.start.unwrap_or(start);
            next = place.next();
            of_newest.push((place, entry));
        }
        match self.all_entries(incarnation, &claim, start, of_newest)? {
            Ok(entries) => Ok(Begun { start, entries, next }),
            Err(place) => Err(self.collected(place)),
        }
    }

    /// Visits the entries from that place on, in order, as far as they are there without a gap. Returns the
    /// first place that was not read.
    ///
    /// # Errors
    /// `NotFound` if the place was collected: begin anew. That of `visit` ends it.
    pub(crate) fn follow(
        &self,
        from: Place,
        visit: &mut dyn FnMut(Place, Entry) -> Result<()>,
    ) -> Result<Place> {
        let mut at = from;
        loop {
            let mut nonce = None;
            for read in self.ahead(at.onwards(), WINDOW_AT_END) {
                match read? {
                    (place, Some(Object { body: Body::Entry(entry), .. })) => {
                        visit(place, entry)?;
                        at = place.next();
                    }
                    (_, object) => {
                        nonce = object.map(|object| object.nonce);
                        break;
                    }
                }
            }
            let claim = self.claim(at.incarnation + 1)?;
            let Some(end) = claim.and_then(|claim| claim.follows) else { return Ok(at) };
            match nonce {
                Some(nonce) if end == (Sealed { place: at, nonce }) => at = Place::new(at.incarnation + 1, 1),
                // It came after the first look.
                None if at <= end.place && self.read(at)?.is_some() => {}
                _ => return Err(self.collected(at)),
            }
        }
    }

    fn collected(&self, place: Place) -> Error {
        let message = format!("{} is not there any more: a reader is to begin anew", self.name(place));
        Error::new(ErrorKind::NotFound, message)
    }
}
