//! Turns in ticket order: the apply stage of the write path (see `write`).
//!
//! A turn lasts about a microsecond, so who comes too early looks again for a while before sleeping: being woken takes
//! fifty times as long. It looks for longer than that: else two writers of whom one once slept would go on sleeping by
//! turns, as each waits for the other to be woken. Whose turn it is and whether anybody sleeps stand in one word: who
//! ends a turn either sees that somebody sleeps, or that sleeper, about to say so, sees that the turn has ended.

use crate::sync::{AtomicU64, Condvar, Mutex, Ordering, thread};

/// Whose turn it is.
pub(crate) struct Turns {
    /// Twice the ticket, and one more while somebody sleeps.
    turn: AtomicU64,
    /// How many sleep.
    sleepers: Mutex<usize>,
    /// Who waits for a ticket sleeps at the place of its number, so that the end of a turn wakes the next and not all.
    turned: [Condvar; PLACES],
}

/// More than writers that usually wait.
const PLACES: usize = if cfg!(models) { 16 } else { 256 };
/// Who is no more turns than these away looks before sleeping. Where hundreds wait, those that look would take the processor from
/// the one whose turn it is.
const NEAR: u64 = 16;
/// How long to look before sleeping.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Patience {
    /// Some microseconds: for who syncs, and is among those whom one sync has served or who wait for it.
    Short,
    /// Some hundred, leaving the processor to whoever wants it.
    Long,
}

/// Looks at full speed, then between yields. Where schedules are explored there is nothing to gain.
const LOOKS: u32 = if cfg!(models) { 0 } else { 100 };
const YIELDS: u32 = if cfg!(models) { 0 } else { 200 };
const SLEEPS: u64 = 1;

/// Looks until there is something, but not for ever.
#[inline]
pub(crate) fn look_again<T>(patience: Patience, mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let looks = LOOKS + if patience == Patience::Long { YIELDS } else { 0 };
    for n in 0..looks {
        if let Some(found) = look() {
            return Some(found);
        }
        match n < LOOKS {
            true => std::hint::spin_loop(),
            false => thread::yield_now(),
        }
    }
    None
}

/// The turn of a ticket, to be ended with [`Turns::end`].
pub(crate) struct Turn(u64);

impl Turns {
    /// Ticket 0 comes first.
    pub(crate) fn new() -> Self {
        let turned = std::array::from_fn(|_| Condvar::new());
        Self { turn: AtomicU64::new(0), sleepers: Mutex::new(0), turned }
    }

    #[inline]
    fn is_turn_of(&self, ticket: u64) -> bool {
        self.turn.load(Ordering::Acquire) / 2 == ticket
    }

    /// Waits for the ticket's turn. Each ticket must be waited for, and its turn ended, once.
    #[inline]
    pub(crate) fn wait(&self, ticket: u64, patience: Patience) -> Turn {
        if !self.is_turn_of(ticket) {
            self.wait_long(ticket, patience);
        }
        Turn(ticket)
    }

    #[cold]
    fn wait_long(&self, ticket: u64, patience: Patience) {
        let is_near = ticket - self.turn.load(Ordering::Acquire) / 2 <= NEAR;
        if is_near && look_again(patience, || self.is_turn_of(ticket).then_some(())).is_some() {
            return;
        }
        let mut sleepers = self.sleepers.lock();
        *sleepers += 1;
        while self.turn.fetch_or(SLEEPS, Ordering::AcqRel) / 2 != ticket {
            self.turned[ticket as usize % PLACES].wait(&mut sleepers);
        }
        *sleepers -= 1;
        if *sleepers == 0 {
            self.turn.fetch_and(!SLEEPS, Ordering::AcqRel);
        }
    }

    /// Ends a turn and begins the next.
    #[inline]
    pub(crate) fn end(&self, Turn(ticket): Turn) {
        let before = self.turn.fetch_add(2, Ordering::AcqRel);
        debug_assert_eq!(before / 2, ticket, "only the turn that is on can end");
        if before & SLEEPS != 0 {
            // Who said that he sleeps has the lock until he does.
            drop(self.sleepers.lock());
            self.turned[(ticket + 1) as usize % PLACES].notify_all();
        }
    }

    /// Waits until all turns before this ticket are over. The caller keeps further tickets from being given out.
    pub(crate) fn wait_all(&self, next_ticket: u64) {
        let Turn(_) = self.wait(next_ticket, Patience::Long);
    }
}

/// Schedules of writers; see `crate::sync`.
#[cfg(all(test, models))]
mod model {
    use super::*;
    use crate::sync::thread::{spawn, yield_now};
    use crate::sync::{Limits, check};
    use std::sync::Arc;

    const LIMITS: Limits = Limits { preemptions: 3, schedules: 20_000 };
    /// Writers, and writes of each. Loom tries everything, so it gets less.
    fn load() -> (usize, usize) {
        if crate::sync::is_loom() { (2, 1) } else { (3, 2) }
    }

    /// The two stages as `write` joins them: `stage` gives out tickets, `applied` is what memory holds.
    struct Path {
        stage: Mutex<u64>,
        turns: Turns,
        applied: AtomicU64,
    }

    impl Path {
        fn new() -> Arc<Self> {
            Arc::new(Self { stage: Mutex::new(0), turns: Turns::new(), applied: AtomicU64::new(0) })
        }

        fn write(&self, syncs: bool) {
            let ticket = {
                let mut stage = self.stage.lock();
                *stage += 1;
                *stage - 1
            };
            if syncs {
                yield_now();
            }
            let turn = self.turns.wait(ticket, Patience::Long);
            assert_eq!(self.applied.fetch_add(1, Ordering::SeqCst), ticket, "applied in the order logged");
            self.turns.end(turn);
        }

        /// What freezing does: nothing is logged meanwhile, and everything logged is in memory.
        fn freeze(&self) {
            let stage = self.stage.lock();
            self.turns.wait_all(*stage);
            assert_eq!(self.applied.load(Ordering::SeqCst), *stage, "memory holds all that was logged");
            yield_now();
            assert_eq!(self.applied.load(Ordering::SeqCst), *stage, "and nothing comes while it is held");
        }
    }

    #[test]
    fn writers_apply_in_the_order_they_logged_and_none_waits_for_ever() {
        check(LIMITS, || {
            let path = Path::new();
            let (count, writes) = load();
            let writers = (0..count).map(|n| {
                let path = path.clone();
                spawn(move || (0..writes).for_each(|_| path.write(n == 0)))
            });
            let writers: Vec<_> = writers.collect();
            writers.into_iter().for_each(|w| w.join().unwrap());
            assert_eq!(path.applied.load(Ordering::SeqCst), (count * writes) as u64);
        });
    }

    #[test]
    fn who_holds_writes_sees_all_that_was_logged_in_memory() {
        check(LIMITS, || {
            let path = Path::new();
            let (count, writes) = load();
            let writers = (1..count).map(|_| {
                let path = path.clone();
                spawn(move || (0..writes).for_each(|_| path.write(true)))
            });
            let writers: Vec<_> = writers.collect();
            let freezer = {
                let path = path.clone();
                spawn(move || path.freeze())
            };
            path.freeze();
            writers.into_iter().for_each(|w| w.join().unwrap());
            freezer.join().unwrap();
        });
    }
}
