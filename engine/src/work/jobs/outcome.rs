//! What jobs hand to whoever runs them: how far they are, and a flush that is wanted next.

use crate::commit::Store;
use std::sync::Arc;

/// How far an advance has brought a job.
pub(crate) enum JobProgress {
    /// There is more to do.
    More,
    /// There is more to do, after so many nanoseconds: zero after a step, so that what it made free goes
    /// first.
    Wait(u64),
    /// The job could not do anything; it is to be advanced again after so many nanoseconds.
    NotYet(u64),
    Done,
}

/// A flush that is wanted.
pub(crate) struct FlushRequest {
    pub(crate) store: Arc<Store>,
    pub(crate) reason: String,
    /// Whether a part of memory may stay: hot keys, or other ranges.
    pub(crate) may_stay: bool,
    /// A key of the range to be flushed, where memory is held by range.
    pub(crate) at: Option<Vec<u8>>,
}
