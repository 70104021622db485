//! Opening behind the open: SSTables in an object store, which the open left unread, are opened by workers
//! that have nothing else to do, so that most readers find them open.

use super::Work;
use crate::error::ErrorKind;
use crate::event::EventKind;

impl Work {
    /// Opens an SSTable that the open left unread; whether there was one.
    pub(super) fn open_behind(&self) -> bool {
        let Some(opened) = self.catalog.tables.open_next() else { return false };
        // A request that failed is made again by whoever needs the SSTable. Other errors will not go away.
        if let Err(e) = &opened
            && e.kind() != ErrorKind::Io
        {
            let reason = format!("an SSTable cannot be opened: {e}");
            self.cx.events.record(EventKind::Failure, "", reason, &[]);
        }
        if !self.catalog.tables.is_behind() {
            // Plans go by what open SSTables tell.
            self.commit.touch_all(&self.catalog.stores());
            self.cx.scheduler.notify();
        }
        true
    }
}
