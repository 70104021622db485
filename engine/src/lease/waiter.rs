//! When the standby may take the database over: a state machine that knows no clock and no store.
//!
//! Its driver says what time it is and what the newest object of the chain is, and does what [`Waiter::step`]
//! says. A `held` object binds its owner until that puts another one. So where the same one is the newest for
//! its TTL and a margin, from when it was first read, its owner answers no read any more. Without a lease
//! nothing is concluded from silence.
//!
//! That the object is the newest is known from following the chain without a long pause, since the owner
//! answered the announcement by naming it. Where it does not, since it has ended before, more time than it
//! has for an answer must pass.

use super::object::{Kind, LeaseObject};
use super::{ANNOUNCE_NS, LOOK_NS, MARGIN_NS, TTL_NS};

/// How often the standby looks at the chain.
const POLL_NS: u64 = TTL_NS / 4;
/// How long it may not have looked: after that it begins anew.
const GAP_NS: u64 = 60_000_000_000;
/// After how long an owner that lives has answered an announcement.
const ANSWER_NS: u64 = 2 * LOOK_NS + 10_000_000_000;

/// What is to be done now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Step {
    /// Announce itself; where [`Waiter::is_following`] does not hold, find the newest object by a listing.
    Announce,
    /// Wait for so many nanoseconds, and read the chain onwards.
    Wait(u64),
    /// Take over behind that object, if a listing shows no newer one.
    Take(u64),
}

/// The announcements that it made since it began.
#[derive(Clone, Copy, Debug)]
struct Announced {
    /// The number of the first one, and when that was there.
    first: u64,
    since: u64,
    /// When the newest was there.
    last: u64,
}

/// The newest object of the chain.
#[derive(Clone, Debug)]
struct Seen {
    object: LeaseObject,
    /// When it was first read.
    since: u64,
}

/// The standby's side of the lease.
#[derive(Debug, Default)]
pub(super) struct Waiter {
    announced: Option<Announced>,
    seen: Option<Seen>,
    /// When it looked last.
    looked: u64,
}

impl Waiter {
    /// Notes that an announcement of that number is there.
    pub(super) fn announced(&mut self, now: u64, number: u64) {
        match &mut self.announced {
            Some(announced) => announced.last = now,
            announced => {
                *announced = Some(Announced { first: number, since: now, last: now });
                self.looked = now;
            }
        }
    }

    /// Whether it has looked at the chain since it announced itself.
    pub(super) fn is_following(&self) -> bool {
        self.announced.is_some() && self.seen.is_some()
    }

    /// The number of the newest object, 0 for none.
    pub(super) fn number(&self) -> u64 {
        self.seen.as_ref().map_or(0, |seen| seen.object.counter)
    }

    /// The process of the newest object.
    pub(super) fn process(&self) -> Option<&str> {
        self.seen.as_ref()?.object.process.as_deref()
    }

    /// Whether the owner has answered: silence from now on says that it is gone.
    pub(super) fn is_answered(&self) -> bool {
        self.seen
            .as_ref()
            .is_some_and(|seen| seen.object.kind == Kind::Held && self.is_named_by(&seen.object))
    }

    fn is_named_by(&self, object: &LeaseObject) -> bool {
        self.announced.is_some_and(|announced| object.seen >= announced.first)
    }

    /// Notes that it has read the chain onwards: to a newer object, or to none. After too long a pause it
    /// forgets all.
    pub(super) fn looked(&mut self, now: u64, newer: Option<LeaseObject>) {
        if !self.is_recent(now) {
            *self = Self::default();
            return;
        }
        self.looked = now;
        if let Some(object) = newer.filter(|object| object.counter > self.number()) {
            self.seen = Some(Seen { object, since: now });
        }
    }

    /// Whether it has looked just now, as far as deleted objects are concerned.
    pub(super) fn is_recent(&self, now: u64) -> bool {
        now.saturating_sub(self.looked) <= GAP_NS
    }

    /// What is to be done now; `has_ended` says that the newest object's process is proved to have ended.
    pub(super) fn step(&mut self, now: u64, has_ended: bool) -> Step {
        if !self.is_recent(now) {
            *self = Self::default();
        }
        let Some(announced) = self.announced else { return Step::Announce };
        if now >= announced.last + ANNOUNCE_NS {
            return Step::Announce;
        }
        let Some(Seen { object, since }) = &self.seen else { return Step::Wait(POLL_NS) };
        match object.kind {
            Kind::Released => Step::Take(object.counter),
            // The lease that it took may not have ended yet.
            Kind::Taken if has_ended && object.ttl_ms > 0 => take_at(object, *since, now),
            _ if has_ended => Step::Take(object.counter),
            // The owner took this standby for gone.
            Kind::Ended if announced.last < *since => Step::Announce,
            Kind::Taken | Kind::Ended => Step::Wait(POLL_NS),
            Kind::Held => {
                let from = match self.is_named_by(object) {
                    true => *since,
                    false => announced.since.max(*since) + ANSWER_NS,
                };
                take_at(object, from, now)
            }
        }
    }
}

/// Takes over behind that object when its TTL and the margin have passed from then on.
fn take_at(object: &LeaseObject, from: u64, now: u64) -> Step {
    let due = from.saturating_add(object.ttl_ms.saturating_mul(1_000_000)).saturating_add(MARGIN_NS);
    match due.saturating_sub(now) {
        _ if planted!(Bug::TakeWithoutWaiting) => Step::Take(object.counter),
        0 => Step::Take(object.counter),
        left => Step::Wait(left.min(POLL_NS)),
    }
}

#[cfg(all(test, not(models)))]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    fn object(counter: u64, kind: Kind, seen: u64) -> LeaseObject {
        LeaseObject { counter, holder: 1, nonce: counter, kind, ttl_ms: 5_000, seen, process: None }
    }

    /// A standby that announced itself at 10 s as number 4.
    fn waiting(newest: Option<LeaseObject>) -> Waiter {
        let mut waiter = Waiter::default();
        assert_eq!(waiter.step(10 * S, false), Step::Announce);
        waiter.announced(10 * S, 4);
        assert!(!waiter.is_following());
        waiter.looked(10 * S, newest);
        waiter
    }

    /// Looks until that time and finds nothing new; the last step.
    fn look_until(waiter: &mut Waiter, from: u64, end: u64) -> Step {
        let mut step = Step::Wait(0);
        for now in (from..=end).step_by(S as usize) {
            waiter.looked(now, None);
            step = waiter.step(now, false);
            if step == Step::Announce {
                waiter.announced(now, 5);
                step = waiter.step(now, false);
            }
            if now < end {
                assert!(matches!(step, Step::Wait(_)), "{now}: {step:?}");
            }
        }
        step
    }

    #[test]
    fn it_takes_over_when_the_same_answer_was_the_newest_for_the_ttl_and_a_margin() {
        let mut waiter = waiting(Some(object(7, Kind::Taken, 0)));
        assert!(waiter.is_following() && !waiter.is_answered());
        waiter.looked(60 * S, Some(object(8, Kind::Held, 4)));
        assert!(waiter.is_answered());
        assert_eq!(waiter.step(60 * S, false), Step::Wait(POLL_NS));
        waiter.looked(62 * S, Some(object(9, Kind::Held, 4)));
        assert_eq!(look_until(&mut waiter, 63 * S, 67 * S), Step::Wait(S));
        waiter.looked(68 * S, Some(object(9, Kind::Held, 4)));
        assert_eq!(waiter.step(68 * S, false), Step::Take(9), "6 s after it was first read");
        // A newer one shows at the last moment.
        waiter.looked(68 * S, Some(object(10, Kind::Held, 4)));
        assert_eq!(waiter.step(68 * S, false), Step::Wait(POLL_NS));
    }

    #[test]
    fn an_owner_that_does_not_answer_has_two_looks_and_without_a_lease_all_time() {
        let mut waiter = waiting(Some(object(7, Kind::Held, 3)));
        let due = 10 * S + ANSWER_NS + 6 * S;
        assert_eq!(look_until(&mut waiter, 11 * S, due - S), Step::Wait(S));
        assert_eq!(look_until(&mut waiter, due, due), Step::Take(7));
        for newest in [None, Some(object(7, Kind::Taken, 0)), Some(object(7, Kind::Ended, 0))] {
            let mut waiter = waiting(newest);
            assert!(matches!(look_until(&mut waiter, 11 * S, 3_000 * S), Step::Wait(_)));
            assert!(!waiter.is_answered());
        }
    }

    #[test]
    fn a_database_that_is_released_or_whose_process_has_ended_is_taken_at_once() {
        let mut waiter = waiting(Some(object(7, Kind::Released, 0)));
        assert_eq!(waiter.step(10 * S, false), Step::Take(7));
        for kind in [Kind::Taken, Kind::Held, Kind::Ended] {
            let mut waiter = waiting(Some(LeaseObject { ttl_ms: 0, ..object(7, kind, 0) }));
            assert_eq!(waiter.step(10 * S, true), Step::Take(7));
        }
        // It ended while it waited for the lease of the owner before.
        let mut waiter = waiting(Some(object(7, Kind::Taken, 0)));
        assert_eq!(waiter.step(15 * S, true), Step::Wait(S));
        assert_eq!(waiter.step(16 * S, true), Step::Take(7));
    }

    #[test]
    fn it_announces_itself_again_where_it_is_taken_for_gone_and_begins_anew_after_a_pause() {
        let mut waiter = waiting(Some(object(7, Kind::Held, 4)));
        waiter.looked(11 * S, Some(object(8, Kind::Ended, 4)));
        assert_eq!(waiter.step(11 * S, false), Step::Announce);
        waiter.announced(12 * S, 5);
        assert!(waiter.is_following());
        assert_eq!(waiter.step(12 * S, false), Step::Wait(POLL_NS));
        waiter.looked(13 * S, Some(object(9, Kind::Held, 5)));
        assert!(waiter.is_recent(13 * S + GAP_NS));
        assert_eq!(waiter.step(13 * S + GAP_NS + 1, false), Step::Announce);
        waiter.announced(80 * S, 6);
        assert!(!waiter.is_following() && waiter.number() == 0);
        // What names an announcement of before does not count as an answer.
        waiter.looked(80 * S, Some(object(9, Kind::Held, 5)));
        assert!(!waiter.is_answered());
        assert_eq!(look_until(&mut waiter, 81 * S, 100 * S), Step::Wait(POLL_NS));
    }
}
