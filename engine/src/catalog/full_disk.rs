//! The entry of writes into the catalog, which adds to the write path what a full disk asks for: what is set
//! aside goes, so that deletes make room.

use super::Catalog;
use crate::commit::{CELL_BYTES, Depends, Op};
use crate::error::{ErrorKind, Result};
use crate::options::Durability;
use crate::types::SeqNo;

/// The limit of bytes of deletes of keys with the disk full, until a flush or compaction succeeds; with those
/// of ranges twice as many.
const BEYOND_FULL_BYTES: u64 = 64 << 10;

impl Catalog {
    /// Writes like `Commit::write`. On a full disk it gives up retained WAL and tries again, and deletes also
    /// with the reserve.
    pub(crate) fn write(
        &self,
        ops: &[Op<'_>],
        durability: Durability,
        depends: Option<&dyn Depends>,
    ) -> Result<SeqNo> {
        let write = || self.commit.write(ops, durability, depends, false);
        let written = self.cx.timed(|timers| &timers.write, write);
        let full = |written: &Result<SeqNo>| written.as_ref().is_err_and(|e| e.kind() == ErrorKind::DiskFull);
        if !full(&written) {
            return written;
        }
        let written = if self.give_up_retained_wal() { write() } else { written };
        if !full(&written) || !ops.iter().all(Op::deletes) {
            return written;
        }
        // The reserve for a full disk is for deletes, which make room on disk and in memory. They may not
        // take all of it, as an SSTable and version edits must fit; deletes of single keys leave some of it
        // to a range delete, which may empty everything.
        let bytes = ops.iter().map(|op| (op.bytes() + CELL_BYTES) as u64).sum();
        let is_range = ops.iter().any(Op::deletes_range);
        let most = if is_range { 2 * BEYOND_FULL_BYTES } else { BEYOND_FULL_BYTES };
        if self.commit.room.beyond_full.get() + bytes > most {
            return written;
        }
        self.manifest.lock().free_reserve();
        let written = self.commit.write(ops, durability, depends, true);
        if written.is_ok() {
            self.commit.room.beyond_full.add(bytes);
        }
        written
    }
}
