//! Turns in ticket order: the apply stage of the write path (see `write`).

use crate::sync::{Condvar, Mutex, MutexGuard};

/// Whose turn it is.
pub(super) struct Turns {
    turn: Mutex<u64>,
    /// Who waits for a ticket waits at the place of its number, so that the end of a turn wakes the next and not all.
    turned: [Condvar; PLACES],
}

/// More than writers that usually wait.
const PLACES: usize = 16;

impl Turns {
    /// Ticket 0 comes first.
    pub(super) fn new() -> Self {
        Self { turn: Mutex::new(0), turned: std::array::from_fn(|_| Condvar::new()) }
    }

    /// Waits for the ticket's turn. Each ticket must be waited for, and its turn ended, once.
    pub(super) fn wait(&self, ticket: u64) -> MutexGuard<'_, u64> {
        let mut turn = self.turn.lock();
        while *turn != ticket {
            self.turned[ticket as usize % PLACES].wait(&mut turn);
        }
        turn
    }

    /// Ends a turn and begins the next.
    pub(super) fn end(&self, mut turn: MutexGuard<'_, u64>) {
        *turn += 1;
        let next = *turn as usize % PLACES;
        drop(turn);
        self.turned[next].notify_all();
    }

    /// Waits until all turns before this ticket are over. The caller keeps further tickets from being given out.
    pub(super) fn wait_all(&self, next_ticket: u64) {
        drop(self.wait(next_ticket));
    }
}

/// Schedules of writers; see `crate::sync`.
#[cfg(all(test, any(loom, shuttle)))]
mod model {
    use super::*;
    use crate::sync::thread::{spawn, yield_now};
    use crate::sync::{AtomicU64, Limits, Ordering, check};
    use std::sync::Arc;

    const LIMITS: Limits = Limits { preemptions: 3, schedules: 20_000 };
    /// Loom tries everything, so it gets less.
    const WRITERS: usize = if cfg!(loom) { 2 } else { 3 };
    const WRITES: usize = if cfg!(loom) { 1 } else { 2 };

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
            let turn = self.turns.wait(ticket);
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
            let writers = (0..WRITERS).map(|n| {
                let path = path.clone();
                spawn(move || (0..WRITES).for_each(|_| path.write(n == 0)))
            });
            let writers: Vec<_> = writers.collect();
            writers.into_iter().for_each(|w| w.join().unwrap());
            assert_eq!(path.applied.load(Ordering::SeqCst), (WRITERS * WRITES) as u64);
        });
    }

    #[test]
    fn who_holds_writes_sees_all_that_was_logged_in_memory() {
        check(LIMITS, || {
            let path = Path::new();
            let writers = (1..WRITERS).map(|_| {
                let path = path.clone();
                spawn(move || (0..WRITES).for_each(|_| path.write(true)))
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
