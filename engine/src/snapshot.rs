//! Snapshots: registered read points.

use crate::sync::{AtomicU64, Mutex, Ordering};
use crate::types::{Counts, SeqNo};
use std::sync::Arc;

/// The registered snapshots of a database, and the highest visible sequence number.
#[derive(Default)]
pub(crate) struct Snapshots {
    visible: AtomicU64,
    held: Mutex<ReadPoints>,
}

#[derive(Default)]
struct ReadPoints {
    /// The number of snapshots at each read point.
    points: Counts<SeqNo>,
    /// The read points for compactions, cached until a snapshot is taken or released.
    listed: Option<Arc<[SeqNo]>>,
}

impl Snapshots {
    /// The highest visible sequence number.
    #[inline]
    pub(crate) fn visible(&self) -> SeqNo {
        SeqNo(self.visible.load(Ordering::Acquire))
    }

    /// Makes all writes up to `seq` visible.
    #[inline]
    pub(crate) fn publish(&self, seq: SeqNo) {
        self.visible.store(seq.0, Ordering::Release);
    }

    /// The read points that a compaction starting now must serve, ascending. A later snapshot is at or above
    /// every possible input of the compaction.
    ///
    /// O(1) while no snapshot is taken or released.
    pub(crate) fn read_points(&self) -> Arc<[SeqNo]> {
        let mut held = self.held.lock();
        let ReadPoints { points, listed } = &mut *held;
        listed.get_or_insert_with(|| points.keys().copied().collect()).clone()
    }

    /// The oldest read point. O(log n).
    pub(crate) fn oldest(&self) -> Option<SeqNo> {
        self.held.lock().points.first().copied()
    }

    pub(crate) fn take(self: &Arc<Self>) -> Snapshot {
        let mut held = self.held.lock();
        // Read under the lock: a compaction that does not find this snapshot registered started before.
        let seq = self.visible();
        if held.points.add(seq) {
            held.listed = None;
        }
        Snapshot(Arc::new(Registered { seq, of: self.clone() }))
    }

    /// Number of registered snapshots.
    pub(crate) fn count(&self) -> usize {
        self.held.lock().points.total()
    }
}

/// A read point: reads through it see the database as it was when it was taken. Cheap to clone; released when
/// the last clone is dropped.
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
        if held.points.remove(&self.seq) {
            held.listed = None;
        }
    }
}

/// Snapshots concurrent with writes and compactions; see `crate::sync`.
#[cfg(all(test, models))]
mod model {
    use super::*;
    use crate::sync::thread::spawn;
    use crate::sync::{Limits, check};

    #[test]
    fn a_compaction_that_does_not_find_a_snapshot_drops_nothing_that_it_reads() {
        check(Limits { preemptions: 3, schedules: 5_000 }, || {
            let snapshots = Arc::new(Snapshots::default());
            let writer = {
                let snapshots = snapshots.clone();
                spawn(move || (1..=2).for_each(|seq| snapshots.publish(SeqNo(seq))))
            };
            let reader = {
                let snapshots = snapshots.clone();
                spawn(move || snapshots.take())
            };
            // With this order a compaction keeps what is visible now, what snapshots see, and all that comes
            // later.
            let visible = snapshots.visible();
            let served = snapshots.read_points();
            let snapshot = reader.join().unwrap();
            let seq = snapshot.seq();
            assert!(
                seq >= visible || served.contains(&seq),
                "{seq} is below {visible} and not in {served:?}"
            );
            writer.join().unwrap();
            assert_eq!((snapshots.count(), snapshots.visible()), (1, SeqNo(2)));
            drop(snapshot);
            assert_eq!((snapshots.count(), snapshots.read_points().len()), (0, 0));
        });
    }
}
