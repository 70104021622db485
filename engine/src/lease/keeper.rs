//! The owner at work: it looks for standbys, and keeps the lease while one waits.

use super::claim::Claimed;
use super::holder::Holder;
use super::object::{Announcement, Kind};
use super::watch::Watch;
use crate::context::Context;
use crate::error::Result;
use crate::event::EventKind;
use crate::schedule::{Turn, Worker};
use crate::storage::PutOnce;
use crate::stream::Outbox;
use crate::sync::Mutex;
use std::sync::{Arc, Weak};

/// Old objects are deleted where the number of its own is a multiple of this: more at a time than come to be.
const CLEAN_EVERY: u64 = 64;
/// How many announcements are read of a listing.
const LISTED: usize = 16;
/// How many objects of its own may lie where it puts its last one.
const RELEASE_TRIES: usize = 3;

/// The owner's side of the lease; see the page of the folder.
pub(crate) struct Keeper {
    cx: Arc<Context>,
    outbox: Arc<Outbox>,
    claimed: Claimed,
    state: Mutex<State>,
}

struct State {
    holder: Holder,
    watch: Watch,
    /// What was told last.
    told: &'static str,
}

impl Keeper {
    /// The keeper of a database that this process has claimed.
    pub(crate) fn new(cx: &Arc<Context>, outbox: Arc<Outbox>, mut claimed: Claimed) -> Self {
        claimed.is_kept = true;
        let holder = Holder::new(claimed.newest);
        let state = State { told: holder.says(), holder, watch: Watch::new() };
        Self { cx: cx.clone(), outbox, claimed, state: Mutex::new(state) }
    }

    fn now(&self) -> u64 {
        self.cx.env.clock.boottime_ns()
    }

    /// Does what is due.
    pub(crate) fn turn(&self) {
        let state = &mut *self.state.lock();
        self.renew(state);
        if state.watch.is_due(self.now()) && !state.holder.is_gone() {
            let has_read = self.look(state).is_ok();
            state.watch.looked(self.now(), has_read);
            self.renew(state);
        }
    }

    /// Reads the announcements of standbys that it does not know.
    fn look(&self, state: &mut State) -> Result<()> {
        let watch = &mut state.watch;
        let announcements = &self.claimed.announcements;
        let found = match watch.lists(self.now()) {
            true => announcements.newest(LISTED)?,
            false => announcements.onwards(watch.newest)?,
        };
        let now = self.now();
        let known = watch.newest;
        for (number, announcement) in found.into_iter().filter(|(number, _)| *number > known) {
            // It may have been one itself.
            let waits = announcement.waits && announcement.standby != self.claimed.life.id;
            watch.heard(now, &Announcement { number, waits, ..announcement });
        }
        Ok(())
    }

    /// Puts the next object of the chain if that is due, and an entry into the stream where reads wait for
    /// that.
    fn renew(&self, state: &mut State) {
        let State { holder, watch, .. } = state;
        if holder.is_in_doubt(self.now()) {
            self.judge(holder);
        }
        let now = self.now();
        let is_over = || self.outbox.check().is_err() || self.cx.check_not_poisoned().is_err();
        if watch.awaited(now).is_some() && is_over() && !holder.is_gone() {
            // It never writes again; a standby can.
            self.give_up(holder);
        }
        let put = holder.next(now, watch.awaited(now), || self.claimed.life.nonce());
        // Before it is sent: who reads it counts on it.
        self.publish(holder);
        if let Some(put) = put {
            let object = self.claimed.life.object(put.number, put.kind, put.seen, put.nonce);
            if let Ok(outcome) = self.claimed.chain.put(put.number, &object) {
                holder.learned(self.now(), outcome);
            }
            if put.number.is_multiple_of(CLEAN_EVERY) {
                // What stays is deleted the next time.
                let _ = self.claimed.chain.clean(holder.newest());
                let _ = self.claimed.announcements.clean(watch.newest);
            }
        }
        if holder.wants_proof(self.now()) && self.outbox.ship_something().is_ok() {
            holder.proved(self.now());
        }
        self.publish(holder);
        self.tell(state);
    }

    /// Decides whether another process has the database, or only began to take it.
    fn judge(&self, holder: &mut Holder) {
        if self.outbox.ship_something().is_err() {
            // No later entry can be acknowledged either.
            holder.release();
        } else if let Ok(newer) = self.claimed.chain.onwards(holder.newest()) {
            holder.resume(newer.last().map_or(0, |(number, _)| *number));
        }
    }

    fn publish(&self, holder: &Holder) {
        self.cx.health.answer_reads_until(holder.answers_until());
    }

    fn tell(&self, state: &mut State) {
        let says = state.holder.says();
        if says != state.told {
            state.told = says;
            self.cx.events.record(EventKind::Lease, "", says.into(), &[]);
        }
    }

    /// Lets no read be answered from now on and says so, so that a standby takes over at once.
    pub(crate) fn release(&self) {
        self.give_up(&mut self.state.lock().holder);
    }

    fn give_up(&self, holder: &mut Holder) {
        let number = holder.release();
        self.publish(holder);
        let Some(mut number) = number else { return };
        let life = &self.claimed.life;
        for _ in 0..RELEASE_TRIES {
            let object = life.object(number, Kind::Released, 0, life.nonce());
            match self.claimed.chain.put(number, &object) {
                Ok(PutOnce::Theirs) => {}
                // Without it the standby waits for the end of the lease.
                Ok(PutOnce::Mine) | Err(_) => return,
            }
            match self.claimed.chain.read(number) {
                // The answer to a put of its own was lost.
                Ok(Some(found)) if found.holder == life.id => number += 1,
                _ => return,
            }
        }
    }
}

/// Keeps the lease in the background, on a thread of its own: it must not wait behind compactions.
pub(crate) struct KeeperWorker(Weak<Keeper>);

impl KeeperWorker {
    pub(crate) fn new(keeper: &Arc<Keeper>) -> Self {
        Self(Arc::downgrade(keeper))
    }
}

impl Worker for KeeperWorker {
    /// An idle worker is asked again soon enough.
    fn turn(&mut self) -> Turn {
        if let Some(keeper) = self.0.upgrade() {
            keeper.turn();
        }
        Turn::Idle
    }
}
