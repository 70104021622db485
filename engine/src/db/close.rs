//! Ending in good order: workers first, then the log's end is synced and told to the manifest, so that the next open
//! knows every byte of the log to be history.

use super::{Inner, State};
use crate::error::Result;
use crate::event::EventKind;
use crate::sync::Ordering;
use crate::version::edit::Change;
use std::ops::Deref;
use std::sync::Arc;

impl Inner {
    pub(super) fn close(&self) -> Result<()> {
        // A family being created or dropped ends first.
        let families = self.families.lock();
        let was = self.state.swap(State::Closed as u8, Ordering::AcqRel);
        if was == State::Closed as u8 {
            return Ok(());
        }
        drop(families);
        self.scheduler.notify();
        self.scheduler.stop();
        self.abandon_jobs();
        let ended = self.end_log();
        self.events.record(EventKind::Close, "", "closed".into(), &[]);
        if self.log.is_some() {
            // For people only.
            let _ = self.events.save();
        }
        self.sweep_until(u64::MAX);
        self.spares.set_room(0);
        kill_point!("close-before-unlock");
        *self.lock.lock() = None;
        ended
    }

    fn end_log(&self) -> Result<()> {
        let Some(log) = &self.log else { return Ok(()) };
        // What was acknowledged as buffered may not be durable, and whoever closes must hear of it.
        if let Some(error) = self.poisoned.lock().clone() {
            return Err(error);
        }
        let last = self.with_writes_held(|last| last)?;
        let synced = log.sync()?;
        kill_point!("close-log-synced");
        self.commit_edit(&vec![Change::LastSeq(last), Change::LogSynced(synced)])?;
        kill_point!("close-manifest-committed");
        log.close().map(|_| ())
    }
}

/// What every handle of a database shares. Workers hold [`Inner`] for a turn at a time, so it is not the last
/// reference to that but to this which closes the database.
struct Handle(Arc<Inner>);

/// A counted handle; see [`Handle`].
#[derive(Clone)]
pub(crate) struct Shared(Arc<Handle>);

impl Shared {
    pub(super) fn new(inner: Arc<Inner>) -> Self {
        Self(Arc::new(Handle(inner)))
    }
}

impl Deref for Shared {
    type Target = Arc<Inner>;
    fn deref(&self) -> &Arc<Inner> {
        &self.0.0
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // A failure to sync here loses nothing that was promised: `Buffered` writes are in the log already.
        let _ = self.0.close();
    }
}
