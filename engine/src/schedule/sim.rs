//! Workers on the caller's thread, in an order drawn from a seed: whenever a caller waits, or a test says
//! [`SimScheduler::run`], a random worker gets a turn. A wait that nobody can end is a deadlock and panics.

use super::{Scheduler, Turn, Worker};
use crate::storage::Random;
use parking_lot::Mutex;
use std::sync::Arc;

/// Every worker idle for this many rounds while somebody waits is a deadlock.
const IDLE_ROUNDS_MAX: u32 = 10_000;

/// Runs workers on the caller's thread.
#[derive(Debug)]
pub struct SimScheduler {
    random: Arc<dyn Random>,
    workers: Mutex<Workers>,
}

struct Workers(Vec<Option<Box<dyn Worker>>>);

impl std::fmt::Debug for Workers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} workers", self.0.len())
    }
}

impl SimScheduler {
    /// Draws the order of turns from `random`.
    pub fn new(random: Arc<dyn Random>) -> Self {
        Self { random, workers: Mutex::new(Workers(Vec::new())) }
    }

    /// Gives `turns` turns; whether any of them worked.
    pub fn run(&self, turns: u32) -> bool {
        (0..turns).fold(false, |worked, _| self.one_turn() == Turn::Worked || worked)
    }

    /// Gives turns until every worker is idle.
    pub fn settle(&self) {
        let count = self.workers.lock().0.len() as u32;
        let mut idle = 0;
        while idle < 4 * count {
            if self.one_turn() == Turn::Worked { idle = 0 } else { idle += 1 }
        }
    }

    fn one_turn(&self) -> Turn {
        // The worker is taken out while it runs, so that a turn may itself end up here.
        let (at, worker) = {
            let mut workers = self.workers.lock();
            let here: Vec<usize> = (0..workers.0.len()).filter(|i| workers.0[*i].is_some()).collect();
            if here.is_empty() {
                return Turn::Idle;
            }
            let at = here[(self.random.next_u64() % here.len() as u64) as usize];
            (at, workers.0[at].take())
        };
        let Some(mut worker) = worker else { return Turn::Idle };
        let turn = worker.turn();
        if let Some(slot) = self.workers.lock().0.get_mut(at) {
            *slot = Some(worker);
        }
        turn
    }
}

impl Scheduler for SimScheduler {
    fn start(&self, workers: Vec<Box<dyn Worker>>) {
        self.workers.lock().0.extend(workers.into_iter().map(Some));
    }

    fn notify(&self) {}

    fn wait(&self, condition: &mut dyn FnMut() -> bool) {
        let mut idle = 0;
        while !condition() {
            if self.one_turn() == Turn::Worked {
                idle = 0;
            } else {
                idle += 1;
                assert!(idle < IDLE_ROUNDS_MAX, "deadlock: a caller waits and no worker has anything to do");
            }
        }
    }

    fn pause(&self, _ns: u64) {
        self.one_turn();
    }

    fn stop(&self) {
        self.workers.lock().0.clear();
    }
}
