//! Limits on how fast compactions write and put blocks into the cache, and their pacing.

use crate::metrics::Counter;
use crate::options::Options;
use crate::schedule::{Limiter, Pace};
use crate::storage::Clock;
use std::sync::Arc;

/// The limits for all compactions of a database together.
pub(crate) struct Rates {
    pub(crate) pace: Pace,
    pub(crate) compactions: Limiter,
    /// The fixed limit of bytes a second.
    pub(crate) limit: Counter,
    pub(crate) fills: Limiter,
    /// Each compaction whose steps put blocks into the cache has a clone.
    pub(crate) filling: Arc<()>,
}

impl Rates {
    pub(crate) fn of(options: &Options, clock: &Arc<dyn Clock>) -> Self {
        let limit = Counter::default();
        limit.set(options.rate_limit);
        Self {
            pace: Pace::default(),
            compactions: Limiter::new(clock.clone(), options.rate_limit),
            limit,
            fills: Limiter::new(clock.clone(), options.tuning().cache_fill_rate),
            filling: Arc::new(()),
        }
    }
}
