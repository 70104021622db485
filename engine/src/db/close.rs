//! Closing in good order: workers end first; then the WAL's end is synced and recorded in the manifest, so
//! that the next open knows that every byte of the WAL is history.

use super::Inner;
use crate::error::Result;
use crate::event::EventKind;
use crate::version::edit::Change;
use std::ops::Deref;
use std::sync::Arc;

impl Inner {
    pub(crate) fn close(&self) -> Result<()> {
        // A family being created or dropped ends first.
        let families = self.catalog.families.lock();
        if !self.cx.health.close() {
            return Ok(());
        }
        drop(families);
        self.cx.scheduler.notify();
        self.cx.scheduler.stop();
        self.work.abandon_jobs();
        let ended = self.end_wal();
        self.cx.events.record(EventKind::Close, "", "closed".into(), &[]);
        if self.commit.wal().is_ok() {
            // For people only.
            let _ = self.cx.events.save();
        }
        self.catalog.sweep_until(u64::MAX);
        self.commit.room.spares.set_room(0);
        if let Some(keeper) = &self.keeper {
            // After the last read and the last put.
            keeper.release();
        }
        kill_point!("close-before-unlock");
        self.locks.lock().clear();
        ended
    }

    fn end_wal(&self) -> Result<()> {
        let Ok(wal) = self.commit.wal() else { return Ok(()) };
        // Buffered writes may not be durable, and the caller must learn of it.
        if let Some(error) = self.cx.health.poisoned.get().cloned() {
            return Err(error);
        }
        let last = self.commit.with_writes_held(|last| last)?;
        let synced = wal.sync()?;
        kill_point!("close-wal-synced");
        self.catalog.commit_edit(&vec![Change::LastSeq(last), Change::WalSynced(synced)])?;
        kill_point!("close-manifest-committed");
        wal.close().map(|_| ())
    }
}

/// The shared part of a database's handles. Workers hold [`Inner`] for a turn at a time, so the database is
/// closed when the last reference to this goes, not the last one to `Inner`.
struct Handle(Arc<Inner>);

/// A counted handle; see [`Handle`].
#[derive(Clone)]
pub(crate) struct Shared(Arc<Handle>);

impl Shared {
    pub(crate) fn new(inner: Arc<Inner>) -> Self {
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
        // A failure to sync here loses nothing that was promised: `Buffered` writes are in the WAL already.
        let _ = self.0.close();
    }
}
