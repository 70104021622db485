//! Workers on the caller's thread, in an order drawn from a seed: whenever a caller waits, or a test says
//! [`SimScheduler::run`], a random worker gets a turn. A wait that nobody can end is a deadlock and panics.
//!
//! In a simulated world ([`SimScheduler::for_world`]) waiting takes simulated time, as work may become due
//! only later: an idle turn in a wait advances the clock to when the worker goes on, or by the time that idle
//! threads sleep.

use super::{Scheduler, Turn, Worker};
use crate::storage::Random;
use crate::storage::sim::{SimClock, SimRandom, SimWorld};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Every worker idle for this many rounds while somebody waits is a deadlock.
const IDLE_ROUNDS_MAX: u32 = 10_000;
/// Simulated time that an idle turn takes.
const IDLE_US: u64 = 20_000;

/// Runs workers on the caller's thread.
pub struct SimScheduler {
    random: Arc<dyn Random>,
    clock: Option<Arc<SimClock>>,
    workers: Mutex<Vec<Option<Box<dyn Worker>>>>,
    notices: AtomicU64,
}

impl std::fmt::Debug for SimScheduler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SimScheduler").finish_non_exhaustive()
    }
}

impl SimScheduler {
    /// Draws the order of turns from `random`.
    pub fn new(random: Arc<dyn Random>) -> Self {
        Self { random, clock: None, workers: Mutex::default(), notices: AtomicU64::new(0) }
    }

    /// A scheduler for a database in that world: waits advance its clock. The order of turns is drawn from a
    /// number of the world's randomness, drawn now, so that it does not depend on what the database draws.
    pub fn for_world(world: &SimWorld) -> Self {
        let random = Arc::new(SimRandom::new(world.random.next_u64()));
        Self { clock: Some(world.clock.clone()), ..Self::new(random) }
    }

    /// The number of notifications. Here workers get turns without them.
    pub fn notices(&self) -> u64 {
        self.notices.load(Ordering::Relaxed)
    }

    /// Gives `turns` turns; returns whether any worker did something.
    pub fn run(&self, turns: u32) -> bool {
        (0..turns).fold(false, |worked, _| self.one_turn() == Turn::Worked || worked)
    }

    /// Gives turns until every worker is idle.
    pub fn settle(&self) {
        let count = self.workers.lock().len() as u32;
        let mut idle = 0;
        while idle < 4 * count {
            match self.one_turn() {
                Turn::Worked => idle = 0,
                Turn::Idle => idle += 1,
                Turn::Until(ns) if self.clock.is_some() => self.pass(ns),
                Turn::Until(_) => idle += 1,
            }
        }
    }

    /// Lets simulated time pass.
    fn pass(&self, ns: u64) {
        if let Some(clock) = &self.clock {
            clock.advance_us(ns.div_ceil(1000));
        }
    }

    fn one_turn(&self) -> Turn {
        // The worker is taken out while it runs, so that a turn may itself end up here.
        let (at, worker) = {
            let mut workers = self.workers.lock();
            let here: Vec<usize> = (0..workers.len()).filter(|i| workers[*i].is_some()).collect();
            if here.is_empty() {
                return Turn::Idle;
            }
            let at = here[(self.random.next_u64() % here.len() as u64) as usize];
            (at, workers[at].take())
        };
        let Some(mut worker) = worker else { return Turn::Idle };
        let turn = worker.turn();
        if let Some(slot) = self.workers.lock().get_mut(at) {
            *slot = Some(worker);
        }
        turn
    }
}

impl Scheduler for SimScheduler {
    fn start(&self, workers: Vec<Box<dyn Worker>>) -> std::io::Result<()> {
        self.workers.lock().extend(workers.into_iter().map(Some));
        Ok(())
    }

    fn notify(&self) {
        self.notices.fetch_add(1, Ordering::Relaxed);
    }

    fn wait(&self, condition: &mut dyn FnMut() -> bool) {
        let mut idle = 0;
        while !condition() {
            match self.one_turn() {
                Turn::Worked => {
                    idle = 0;
                    continue;
                }
                Turn::Idle => self.pass(IDLE_US * 1000),
                Turn::Until(ns) => self.pass(ns.min(IDLE_US * 1000)),
            }
            idle += 1;
            assert!(idle < IDLE_ROUNDS_MAX, "deadlock: a caller waits and no worker has anything to do");
        }
    }

    fn pause(&self, ns: u64) {
        self.pass(ns);
        self.one_turn();
    }

    fn stop(&self) {
        self.workers.lock().clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::Clock;

    struct Alarm(Arc<SimClock>, u64);

    impl Worker for Alarm {
        fn turn(&mut self) -> Turn {
            match self.1.saturating_sub(self.0.monotonic_ns()) {
                0 => Turn::Idle,
                left => Turn::Until(left),
            }
        }
    }

    #[test]
    fn a_wait_for_what_is_due_later_moves_the_clock_there() {
        let world = SimWorld::new(1);
        let scheduler = SimScheduler::for_world(&world);
        let due = 50_000_000;
        scheduler.start(vec![Box::new(Alarm(world.clock.clone(), due))]).unwrap();
        scheduler.wait(&mut || world.clock.monotonic_ns() >= due);
        assert_eq!(world.clock.monotonic_ns(), due);
        let (due, before) = (80_000_000, world.clock.monotonic_ns());
        scheduler.start(vec![Box::new(Alarm(world.clock.clone(), due))]).unwrap();
        scheduler.settle();
        assert_eq!((before, world.clock.monotonic_ns()), (50_000_000, due));
    }
}
