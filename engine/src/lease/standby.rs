//! The standby at work: it announces itself, follows the chain, and takes the database over.

use super::claim::{ClaimEnv, Claimed};
use super::numbered::At;
use super::object::{Announcement, LeaseObject};
use super::waiter::{Step, Waiter};
use crate::error::{Error, ErrorKind, Result};
use crate::storage::{Clock, PutOnce};

/// How long it waits after a call of the store has failed.
const AGAIN_NS: u64 = 1_000_000_000;
/// How many numbers it tries for an announcement.
const TRIES: u64 = 100;

/// What a standby waits for; see [`Builder::stand_by`](crate::Builder::stand_by).
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// use siltstone::{Builder, Options, Waiting};
/// let shared = || Options { shared: Some(dir.path().join("shared")), ..Options::default() };
/// let owner = Builder::new().options(shared()).open(dir.path().join("one"))?;
/// owner.put("river", "silt")?;
/// let standby = Builder::new().options(shared());
/// let none = standby.stand_by(dir.path().join("two"), |waiting| {
///     assert!(matches!(waiting, Waiting::Unanswered | Waiting::Ready));
///     false
/// });
/// assert!(none?.is_none(), "it was told not to wait");
/// # Ok::<(), siltstone::Error>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Waiting {
    /// The owner does not know of it yet: if the owner ends now without closing the database, nothing may
    /// tell it so.
    Unanswered,
    /// The owner keeps a lease, and it takes over when that ends.
    Ready,
    /// The store failed; it tries again.
    Failing(Error),
}

/// A standby that waits.
pub(super) struct StandBy {
    pub(super) claimed: Claimed,
    pub(super) waiter: Waiter,
    /// The number of its newest announcement; 0 for none.
    announced: u64,
}

impl Claimed {
    /// Waits until the lease of the owner has ended, and takes the database over then; `None` once `goes_on`
    /// says no.
    pub(crate) fn by_waiting(
        with: &ClaimEnv<'_>,
        goes_on: &mut dyn FnMut(&Waiting) -> bool,
    ) -> Result<Option<Self>> {
        let mut standby = StandBy::new(with);
        loop {
            let waiting = match standby.step(with) {
                Ok(true) => return Ok(Some(standby.claimed)),
                Ok(false) if standby.waiter.is_answered() => Waiting::Ready,
                Ok(false) => Waiting::Unanswered,
                Err(e) => {
                    (with.pause)(AGAIN_NS);
                    Waiting::Failing(e)
                }
            };
            if !goes_on(&waiting) {
                standby.leave();
                return Ok(None);
            }
        }
    }
}

impl StandBy {
    pub(super) fn new(with: &ClaimEnv<'_>) -> Self {
        let mut claimed = Claimed::new(with);
        claimed.has_waited = true;
        Self { claimed, waiter: Waiter::default(), announced: 0 }
    }

    /// Does what is to be done now; whether it has taken the database over.
    pub(super) fn step(&mut self, with: &ClaimEnv<'_>) -> Result<bool> {
        let (clock, storage) = (&*with.env.clock, &with.env.storage);
        let has_ended = self.waiter.process().is_some_and(|process| storage.has_ended(process));
        match self.waiter.step(clock.boottime_ns(), has_ended) {
            Step::Announce => self.announce(clock),
            Step::Wait(ns) => {
                (with.pause)(ns);
                let newer = self.claimed.chain.onwards(self.waiter.number())?.pop();
                Ok(self.looked(clock, newer))
            }
            Step::Take(number) => self.take(clock, number),
        }
    }

    /// Notes what it read of the chain; whether that is an object of its own, put by a call that failed.
    fn looked(&mut self, clock: &dyn Clock, newer: Option<At<LeaseObject>>) -> bool {
        let own = newer.as_ref().filter(|(_, object)| object.holder == self.claimed.life.id);
        let own = own.map(|(number, _)| *number);
        self.waiter.looked(clock.boottime_ns(), newer.map(|(_, object)| object));
        let is_own = own.is_some() && self.waiter.is_following();
        self.claimed.newest = own.filter(|_| is_own).unwrap_or(self.claimed.newest);
        is_own
    }

    fn announce(&mut self, clock: &dyn Clock) -> Result<bool> {
        let is_following = self.waiter.is_following();
        if !is_following {
            self.announced = self.claimed.announcements.newest(1)?.pop().map_or(0, |(number, _)| number);
        }
        self.put_announcement(true)?;
        if is_following {
            self.waiter.announced(clock.boottime_ns(), self.announced);
            return Ok(false);
        }
        // An object that answers the announcement was put after it, whatever the listing says.
        let there = clock.boottime_ns();
        let newest = self.claimed.chain.newest(1)?.pop();
        self.waiter.announced(there, self.announced);
        Ok(self.looked(clock, newest))
    }

    /// Puts an announcement under the next free number.
    fn put_announcement(&mut self, waits: bool) -> Result<()> {
        let (standby, nonce) = (self.claimed.life.id, self.claimed.life.nonce());
        for number in self.announced + 1..=self.announced + TRIES {
            let announcement = Announcement { number, standby, nonce, waits };
            if self.claimed.announcements.put(number, &announcement)? == PutOnce::Mine {
                self.announced = number;
                return Ok(());
            }
        }
        // The next try begins where a listing ends.
        self.waiter = Waiter::default();
        let name = self.claimed.announcements.name(self.announced + 1);
        Err(Error::new(ErrorKind::Busy, format!("{name} and many after it are taken")))
    }

    /// Takes the database over behind that object, if it is the newest.
    fn take(&mut self, clock: &dyn Clock, number: u64) -> Result<bool> {
        let newest = self.claimed.chain.newest(1)?.pop();
        let newer = newest.filter(|(newest, _)| *newest > number);
        let has_changed = newer.is_some();
        let is_own = self.looked(clock, newer);
        if has_changed || !self.waiter.is_following() {
            return Ok(is_own);
        }
        let put = self.claimed.take_behind(number, 0)?;
        // After a long pause the number may be one that was deleted.
        Ok(put == PutOnce::Mine && self.waiter.is_recent(clock.boottime_ns()))
    }

    /// Says that it waits no more.
    fn leave(&mut self) {
        if self.announced > 0 {
            // The owner notices by itself, later.
            let _ = self.put_announcement(false);
        }
    }
}
