//! A scheduler on the caller's thread that lets a test act between the turns of workers, in the middle of a
//! call that waits for them: what others do meanwhile on threads of their own.

use siltstone::schedule::{Scheduler, SimScheduler, Worker};
use siltstone::storage::sim::{SimClock, SimWorld};
use std::sync::{Arc, Mutex};

type Act = Box<dyn FnMut() + Send>;

pub(crate) struct Between {
    sim: SimScheduler,
    clock: Arc<SimClock>,
    act: Mutex<Option<Act>>,
}

impl std::fmt::Debug for Between {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.sim.fmt(f)
    }
}

impl Between {
    pub(crate) fn new(world: &SimWorld) -> Arc<Self> {
        let (sim, clock) = (SimScheduler::for_world(world), world.clock.clone());
        Arc::new(Self { sim, clock, act: Mutex::new(None) })
    }

    /// Gives workers so many turns.
    pub(crate) fn run(&self, turns: u32) {
        self.sim.run(turns);
    }

    /// Runs `call`, and `act` after every turn that it waits for.
    pub(crate) fn during<T>(&self, act: impl FnMut() + Send + 'static, call: impl FnOnce() -> T) -> T {
        *self.act.lock().unwrap() = Some(Box::new(act));
        let result = call();
        self.act.lock().unwrap().take();
        result
    }

    fn turn(&self) -> bool {
        let worked = self.sim.run(1);
        // Taken out while it runs, as it may wait itself.
        let act = self.act.lock().unwrap().take();
        if let Some(mut act) = act {
            act();
            *self.act.lock().unwrap() = Some(act);
        }
        worked
    }
}

impl Scheduler for Between {
    fn start(&self, workers: Vec<Box<dyn Worker>>) -> std::io::Result<()> {
        self.sim.start(workers)
    }

    fn notify(&self) {}

    fn wait(&self, condition: &mut dyn FnMut() -> bool) {
        let mut idle = 0;
        while !condition() {
            idle = if self.turn() { 0 } else { idle + 1 };
            if idle > 0 {
                self.clock.advance_us(1_000);
            }
            assert!(idle < 100_000, "a caller waits and no worker has anything to do");
        }
    }

    fn pause(&self, ns: u64) {
        self.sim.pause(ns);
    }

    fn stop(&self) {
        self.sim.stop();
    }
}
