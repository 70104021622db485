//! Until when the owner may answer reads: a state machine that knows no clock and no store.
//!
//! Its driver says what time it is and what became of a put, and does what [`Holder::next`] says. All times
//! are of one clock that never stops. A put counts from when it was sent first: the object may be there since
//! then, whatever became of the answer, and a standby may count from there.

use super::object::Kind;
use super::{MARGIN_NS, TTL_NS};
use crate::storage::PutOnce;

/// How long reads are answered from when a `held` object was sent.
const ANSWERS_NS: u64 = TTL_NS - MARGIN_NS;
/// After how long the next one is sent.
const RENEW_NS: u64 = TTL_NS / 3;
/// How long one that has taken the database over is given to open it.
const OPENS_NS: u64 = 2 * TTL_NS;

/// An object that is to be put, or may have been.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Put {
    pub(super) number: u64,
    pub(super) kind: Kind,
    pub(super) seen: u64,
    pub(super) nonce: u64,
    /// When it was sent first.
    pub(super) sent: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// No lease is kept: reads need none.
    Free,
    /// Reads are answered until then.
    Kept(u64),
    /// A lease has ended: reads wait for a new one, and for an entry that is acknowledged after that. The new
    /// one, if it was acquired, lasts until then; for ever if it was ended by an object of its own.
    Lapsed(Option<u64>),
    /// Another process has put an object of its own where the next one was to lie. It may have ended before
    /// it had the stream: after that time it is looked whether that is still this process' own.
    Lost(u64),
    /// The database is another process' now, or was released.
    Gone,
}

/// The owner's side of the lease.
#[derive(Debug)]
pub(super) struct Holder {
    state: State,
    /// The number of the newest object of the chain, which is its own.
    newest: u64,
    /// When the next object is to be sent.
    renew_at: u64,
    /// A put whose outcome is not known.
    pending: Option<Put>,
}

impl Holder {
    /// The holder of a process that has put the object of that number, and keeps no lease yet.
    pub(super) fn new(newest: u64) -> Self {
        Self { state: State::Free, newest, renew_at: 0, pending: None }
    }

    /// Until when reads may be answered; `u64::MAX` for ever, 0 for not now.
    pub(super) fn answers_until(&self) -> u64 {
        match self.state {
            State::Free => u64::MAX,
            State::Kept(until) => until,
            State::Lapsed(_) | State::Lost(_) | State::Gone => 0,
        }
    }

    /// The number of the newest object that it knows to be its own.
    pub(super) fn newest(&self) -> u64 {
        self.newest
    }

    /// Whether it is over for this process.
    pub(super) fn is_gone(&self) -> bool {
        self.state == State::Gone
    }

    /// What is to be told of it.
    pub(super) fn says(&self) -> &'static str {
        match self.state {
            State::Free => "no standby waits, and reads need no lease",
            State::Kept(_) => "a standby waits, and reads are answered while the lease lasts",
            State::Lapsed(_) => "the lease ended before it was renewed, and reads wait for a new one",
            State::Lost(_) => "another process takes the database over, and no read is answered",
            State::Gone => "the database is another process' now, or released",
        }
    }

    /// Notes what time it is: a lease that has ended is over.
    fn notice(&mut self, now: u64) {
        self.state = match self.state {
            State::Kept(until) if now >= until => State::Lapsed(None),
            State::Lapsed(Some(until)) if now >= until => State::Lapsed(None),
            state => state,
        };
    }

    /// The object that is to be put now, if any; `awaited` is up to which announcement the owner has looked,
    /// if a standby waits. The driver heeds [`Holder::answers_until`] before it puts it, and says what became
    /// of that by [`Holder::learned`]. Where it does not learn it, the next call gives the same object again.
    pub(super) fn next(
        &mut self,
        now: u64,
        awaited: Option<u64>,
        nonce: impl FnOnce() -> u64,
    ) -> Option<Put> {
        self.notice(now);
        if self.pending.is_some() {
            return self.pending;
        }
        let kind = match (self.state, awaited) {
            (State::Lost(_) | State::Gone, _) => return None,
            (State::Free | State::Lapsed(Some(u64::MAX)), None) => return None,
            (State::Kept(_) | State::Lapsed(_), None) => Kind::Ended,
            (State::Kept(_) | State::Lapsed(Some(0..u64::MAX)), Some(_)) if now < self.renew_at => {
                return None;
            }
            (State::Free | State::Kept(_) | State::Lapsed(_), Some(_)) => Kind::Held,
        };
        if self.state == State::Free {
            // Nobody can count from an object that is not there yet.
            self.state = State::Kept(now + ANSWERS_NS);
        }
        let put =
            Put { number: self.newest + 1, kind, seen: awaited.unwrap_or(0), nonce: nonce(), sent: now };
        self.pending = Some(put);
        self.pending
    }

    /// Notes whose the object is that lies where the last put was made.
    pub(super) fn learned(&mut self, now: u64, outcome: PutOnce) {
        let Some(put) = self.pending.take() else { return };
        self.notice(now);
        if outcome == PutOnce::Theirs {
            self.state = State::Lost(now + OPENS_NS);
            return;
        }
        self.newest = put.number;
        self.renew_at = put.sent + RENEW_NS;
        let until = if put.kind == Kind::Ended { u64::MAX } else { put.sent + ANSWERS_NS };
        self.state = match self.state {
            State::Kept(_) if until == u64::MAX => State::Free,
            State::Kept(before) => State::Kept(before.max(until)),
            State::Lapsed(_) => State::Lapsed(Some(until).filter(|until| now < *until)),
            state @ (State::Free | State::Lost(_) | State::Gone) => state,
        };
    }

    /// Whether an entry that is acknowledged from now on would let reads be answered again.
    pub(super) fn wants_proof(&mut self, now: u64) -> bool {
        self.notice(now);
        matches!(self.state, State::Lapsed(Some(_)))
    }

    /// Notes that an entry was acknowledged which was sent after [`Holder::wants_proof`] said so.
    pub(super) fn proved(&mut self, now: u64) {
        self.notice(now);
        self.state = match self.state {
            State::Lapsed(Some(u64::MAX)) => State::Free,
            State::Lapsed(Some(until)) => State::Kept(until),
            state => state,
        };
    }

    /// Whether it is to be looked, by an entry, if the stream is still this process' own.
    pub(super) fn is_in_doubt(&self, now: u64) -> bool {
        matches!(self.state, State::Lost(until) if now >= until)
    }

    /// Notes that it is: whoever took the database over does not have it. A new lease is put behind that
    /// object.
    pub(super) fn resume(&mut self, newest: u64) {
        if matches!(self.state, State::Lost(_)) {
            (self.state, self.newest) = (State::Lapsed(None), newest.max(self.newest));
        }
    }

    /// Ends it: no read is answered from now on. Returns the number of the object that is to say so, unless
    /// the database is another's.
    pub(super) fn release(&mut self) -> Option<u64> {
        let is_others = matches!(self.state, State::Lost(_) | State::Gone);
        (self.state, self.pending) = (State::Gone, None);
        (!is_others).then_some(self.newest + 1)
    }
}

#[cfg(all(test, not(models)))]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    /// A holder whose first lease was sent at 10 s and acknowledged.
    fn kept() -> Holder {
        let mut holder = Holder::new(7);
        assert_eq!((holder.answers_until(), holder.next(9 * S, None, || 1)), (u64::MAX, None));
        let put = holder.next(10 * S, Some(3), || 1).unwrap();
        assert_eq!(put, Put { number: 8, kind: Kind::Held, seen: 3, nonce: 1, sent: 10 * S });
        assert_eq!(holder.answers_until(), 14 * S, "it obeys from when it is sent");
        holder.learned(10 * S + 5, PutOnce::Mine);
        assert_eq!(holder.answers_until(), 14 * S, "from when it was sent, not from the answer");
        holder
    }

    #[test]
    fn a_lease_is_renewed_every_third_of_the_ttl_and_lasts_from_when_it_was_sent() {
        let mut holder = kept();
        assert_eq!(holder.next(10 * S + RENEW_NS - 1, Some(3), || 2), None);
        let put = holder.next(12 * S, Some(4), || 2).unwrap();
        assert_eq!((put.number, put.seen, put.sent), (9, 4, 12 * S));
        assert_eq!(holder.answers_until(), 14 * S);
        // The answer is lost, and the same bytes are put again.
        assert_eq!(holder.next(13 * S, Some(5), || 3), Some(put));
        holder.learned(13 * S + 1, PutOnce::Mine);
        assert_eq!(holder.answers_until(), 16 * S);
    }

    #[test]
    fn a_lease_that_has_ended_once_is_given_back_by_a_new_one_and_an_entry_after_it() {
        let mut holder = kept();
        let put = holder.next(14 * S, Some(3), || 2).unwrap();
        assert_eq!((put.number, holder.answers_until(), holder.wants_proof(14 * S)), (9, 0, false));
        holder.learned(15 * S, PutOnce::Mine);
        assert_eq!((holder.answers_until(), holder.wants_proof(15 * S)), (0, true));
        holder.proved(16 * S);
        assert_eq!(holder.answers_until(), 18 * S);
        // An answer that comes when the lease before has ended acquires a new one.
        holder.next(17 * S, Some(3), || 3).unwrap();
        holder.learned(18 * S, PutOnce::Mine);
        assert_eq!((holder.answers_until(), holder.wants_proof(18 * S)), (0, true));
        // The proof comes too late.
        holder.proved(21 * S);
        assert_eq!((holder.answers_until(), holder.wants_proof(21 * S)), (0, false));
        assert!(holder.next(21 * S, Some(3), || 4).is_some());
        holder.learned(25 * S, PutOnce::Mine);
        assert!(!holder.wants_proof(25 * S), "the answer came when it had ended again");
    }

    #[test]
    fn without_a_standby_the_lease_is_ended_by_an_object_and_reads_need_none() {
        let mut holder = kept();
        let put = holder.next(11 * S, None, || 2).unwrap();
        assert_eq!(
            (put.kind, holder.answers_until()),
            (Kind::Ended, 14 * S),
            "until it is known to be there"
        );
        holder.learned(12 * S, PutOnce::Mine);
        assert_eq!((holder.answers_until(), holder.next(13 * S, None, || 3)), (u64::MAX, None));

        let mut lapsed = kept();
        assert_eq!(lapsed.next(20 * S, None, || 2).unwrap().kind, Kind::Ended);
        lapsed.learned(21 * S, PutOnce::Mine);
        assert_eq!((lapsed.answers_until(), lapsed.next(22 * S, None, || 3)), (0, None));
        // A standby comes before the proof.
        let put = lapsed.next(23 * S, Some(5), || 3).unwrap();
        assert_eq!((put.kind, put.number), (Kind::Held, 10));
        lapsed.learned(23 * S, PutOnce::Mine);
        lapsed.proved(24 * S);
        assert_eq!(lapsed.answers_until(), 27 * S);

        let mut proved = kept();
        proved.next(20 * S, None, || 2).unwrap();
        proved.learned(21 * S, PutOnce::Mine);
        proved.proved(90 * S);
        assert_eq!(proved.answers_until(), u64::MAX);
    }

    #[test]
    fn once_another_has_taken_the_database_nothing_is_answered_or_put_unless_it_does_not_have_it() {
        let lost = || {
            let mut holder = kept();
            holder.next(12 * S, Some(3), || 2).unwrap();
            holder.learned(12 * S, PutOnce::Theirs);
            assert_eq!(holder.answers_until(), 0);
            assert!(!holder.is_in_doubt(12 * S + OPENS_NS - 1) && holder.is_in_doubt(12 * S + OPENS_NS));
            assert_eq!((holder.next(99 * S, Some(3), || 3), holder.wants_proof(99 * S)), (None, false));
            holder.proved(99 * S);
            assert_eq!(holder.answers_until(), 0);
            holder
        };
        let mut gone = lost();
        assert_eq!((gone.release(), gone.is_gone()), (None, true));
        gone.resume(11);
        assert_eq!((gone.next(99 * S, Some(3), || 3), gone.is_in_doubt(99 * S)), (None, false));
        let mut resumed = lost();
        resumed.resume(11);
        assert_eq!((resumed.answers_until(), resumed.wants_proof(30 * S)), (0, false));
        assert_eq!(resumed.next(30 * S, Some(3), || 3).unwrap().number, 12);
        resumed.learned(31 * S, PutOnce::Mine);
        assert_eq!((resumed.answers_until(), resumed.wants_proof(31 * S)), (0, true));
        resumed.proved(32 * S);
        assert_eq!(resumed.answers_until(), 34 * S);
        let mut released = kept();
        assert_eq!((released.release(), released.answers_until()), (Some(9), 0));
        assert_eq!(released.next(11 * S, Some(3), || 2), None);
    }
}
