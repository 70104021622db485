//! A caller's read point.

use crate::types::SeqNo;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The registered snapshots of a database, and the sequence number up to which writes are visible.
#[derive(Default)]
pub(crate) struct Snapshots {
    visible: AtomicU64,
    held: Mutex<BTreeMap<SeqNo, usize>>,
}

impl Snapshots {
    /// Up to where writes are visible.
    #[inline]
    pub(crate) fn visible(&self) -> SeqNo {
        SeqNo(self.visible.load(Ordering::Acquire))
    }

    /// Makes everything up to here visible.
    #[inline]
    pub(crate) fn publish(&self, seq: SeqNo) {
        self.visible.store(seq.0, Ordering::Release);
    }

    /// The read points a merge starting now must serve, ascending. A snapshot taken later is at or above
    /// everything the merge can have as input.
    pub(crate) fn read_points(&self) -> Vec<SeqNo> {
        self.held.lock().keys().copied().collect()
    }

    pub(crate) fn take(self: &Arc<Self>) -> Snapshot {
        let mut held = self.held.lock();
        // Read under the lock: a merge that does not find this snapshot registered started before.
        let seq = self.visible();
        *held.entry(seq).or_insert(0) += 1;
        Snapshot(Arc::new(Registered { seq, of: self.clone() }))
    }

    /// Number of snapshots held.
    pub(crate) fn count(&self) -> usize {
        self.held.lock().values().sum()
    }
}

/// A read point: reads through it see the database as it was when it was taken. Cheap to clone; released when the
/// last clone is dropped.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// let db = siltstone::Db::open(dir.path())?;
/// db.put(b"k", b"before")?;
/// let snapshot = db.snapshot();
/// db.put(b"k", b"after")?;
/// assert_eq!(db.at(&snapshot).get(b"k")?.unwrap(), b"before");
/// # Ok::<(), siltstone::Error>(())
/// ```
#[derive(Clone)]
pub struct Snapshot(Arc<Registered>);

struct Registered {
    seq: SeqNo,
    of: Arc<Snapshots>,
}

impl Snapshot {
    /// The sequence number of the newest write it sees.
    pub fn seq(&self) -> SeqNo {
        self.0.seq
    }

    pub(crate) fn belongs_to(&self, snapshots: &Arc<Snapshots>) -> bool {
        Arc::ptr_eq(&self.0.of, snapshots)
    }
}

impl std::fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Snapshot({})", self.0.seq)
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        let mut held = self.of.held.lock();
        if let Some(count) = held.get_mut(&self.seq) {
            *count -= 1;
            if *count == 0 {
                held.remove(&self.seq);
            }
        }
    }
}
