//! From a caller's write to the log and memory.
//!
//! [`Commit`] owns the log and the stages that a write goes through (`write`, `turns`), what is visible and
//! to whom (snapshots), what holds writers up (`throttle`, `room`, with what `tally` counts) and whether
//! writes are taken at all (`health`). `store` is one column family as writers and readers meet it, `family`
//! its options, `rules` what readers may see of it, `emptied` where they found nothing, `store_work` what
//! background work knows of it. `settings` are the database's, as they are now. `held` is what happens
//! between two writes.
//!
//! Not owned here: which stores there are, tables and the manifest (`catalog`), and who flushes and merges
//! (`work`).

mod emptied;
mod family;
mod health;
mod held;
#[cfg(all(test, models))]
mod model;
mod room;
mod rules;
mod settings;
mod store;
mod store_work;
mod tally;
mod throttle;
mod turns;
mod write;

pub(crate) use emptied::EmptyRanges;
pub use family::DEFAULT_FAMILY;
pub(crate) use family::{FAMILY, FamilySettings, OPTIONS, STORE, memory_options, table_names};
pub(crate) use health::Health;
pub(crate) use room::Room;
pub(crate) use rules::ReadRules;
pub(crate) use settings::Settings;
pub(crate) use store::{Generations, Store};
pub(crate) use store_work::StoreWork;
pub(crate) use tally::{Tally, by_id};
pub(crate) use throttle::{Drain, Rates};
pub(crate) use write::{Action, CELL_BYTES, Depends, Op, Stages};

use crate::event::Events;
use crate::latency::{Timer, Timers};
use crate::log::Log;
use crate::metrics::Metrics;
use crate::schedule::Scheduler;
use crate::snapshot::Snapshots;
use crate::storage::Env;
use std::sync::Arc;

/// See the page above.
pub(crate) struct Commit {
    pub(crate) env: Env,
    pub(crate) settings: Settings,
    pub(crate) snapshots: Arc<Snapshots>,
    pub(crate) generations: Arc<Generations>,
    /// Absent when read-only, as are the stages.
    log: Option<Arc<Log>>,
    stages: Option<Stages>,
    pub(crate) health: Health,
    /// What stores hold, and which may have something to do.
    pub(crate) tally: Tally,
    pub(crate) room: Room,
    pub(crate) drain: Drain,
    pub(crate) rates: Rates,
    pub(crate) scheduler: Arc<dyn Scheduler>,
    pub(crate) events: Events,
    pub(crate) metrics: Metrics,
}

impl Commit {
    /// Runs it and notes how long it took, where that is asked for.
    #[inline]
    pub(crate) fn timed<T>(&self, of: fn(&Timers) -> &Timer, run: impl FnOnce() -> T) -> T {
        if !self.settings.options.latencies {
            return run();
        }
        let began = self.env.clock.monotonic_ns();
        let done = run();
        of(&self.metrics.timers).note_ns(self.env.clock.monotonic_ns() - began);
        done
    }

    /// Of a database that is being opened, for writing where there is a log.
    pub(crate) fn new(
        env: &Env,
        settings: Settings,
        events: Events,
        scheduler: Arc<dyn Scheduler>,
        generations: Arc<Generations>,
        writing: Option<(Arc<Log>, Stages)>,
    ) -> Arc<Self> {
        let (log, stages) = writing.map_or((None, None), |(log, stages)| (Some(log), Some(stages)));
        Arc::new(Self {
            rates: Rates::of(&settings.options, &env.clock),
            env: env.clone(),
            settings,
            snapshots: Arc::default(),
            generations,
            log,
            stages,
            health: Health::default(),
            tally: Tally::default(),
            room: Room::default(),
            drain: Drain::default(),
            scheduler,
            events,
            metrics: Metrics::default(),
        })
    }
}
