//! The context of every part of an open database: environment (files, clock, randomness), settings, events,
//! metrics, the scheduler of background work, rates and health.
//!
//! [`Context`] knows neither stores nor SSTables nor the WAL, so that each part can be built on it alone.
//! `settings` are the database's present ones; `rates` limits how fast compactions write; `health` says
//! whether calls and writes are accepted, and why not.

mod health;
mod rates;
mod settings;

pub(crate) use health::{Health, read_only_error};
pub(crate) use rates::Rates;
pub(crate) use settings::Settings;

use crate::event::Events;
use crate::latency::{Timer, Timers};
use crate::metrics::Metrics;
use crate::schedule::Scheduler;
use crate::storage::Env;
use std::sync::Arc;

/// The surroundings of one open database; see the page above.
pub(crate) struct Context {
    pub(crate) env: Env,
    pub(crate) settings: Settings,
    pub(crate) events: Events,
    pub(crate) metrics: Metrics,
    pub(crate) scheduler: Arc<dyn Scheduler>,
    pub(crate) rates: Rates,
    pub(crate) health: Health,
}

impl Context {
    pub(crate) fn new(
        env: &Env,
        settings: Settings,
        events: Events,
        scheduler: Arc<dyn Scheduler>,
        is_read_only: bool,
    ) -> Arc<Self> {
        Arc::new(Self {
            rates: Rates::of(&settings.options, &env.clock),
            env: env.clone(),
            settings,
            events,
            metrics: Metrics::default(),
            scheduler,
            health: Health::new(is_read_only),
        })
    }

    /// Runs it and measures its duration, if that is wanted.
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
}
