//! Read points.

use crate::handle::free;

/// A read point, made by `siltstone_snapshot_new`. May be used by several threads at once.
pub struct Snapshot(pub(crate) siltstone::Snapshot);

/// The sequence number of the last write that it sees; 0 for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn siltstone_snapshot_seq(snapshot: Option<&Snapshot>) -> u64 {
    snapshot.map_or(0, |snapshot| snapshot.0.seq().0)
}

/// Frees a snapshot and sets the pointer to NULL. Iterators that were made at it go on. NULL, and a pointer
/// to NULL, are fine.
#[unsafe(no_mangle)]
pub extern "C" fn siltstone_snapshot_free(snapshot: Option<&mut Option<Box<Snapshot>>>) {
    free(snapshot);
}
