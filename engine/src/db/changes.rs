//! The stream of changes: what was written since a sequence number, from the WAL.

use super::{Db, Shared};
use crate::error::{Error, ErrorKind, Result};
use crate::types::{KeyRange, Kind, SeqNo, StoreId, Timestamp};
use crate::wal::{Entry, Followed, Follower, Logged};
use std::sync::Arc;
use std::time::Duration;

/// Writes that became visible together; see [`Db::changes_since`].
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// let db = siltstone::Db::open(dir.path())?;
/// let mut batch = siltstone::Batch::new();
/// batch.put(&db.default_family(), "a", "1").put(&db.default_family(), "b", "2");
/// let last = db.write(&batch)?;
/// let changes = db.changes_since(siltstone::SeqNo::ZERO)?.next().unwrap()?;
/// assert_eq!((changes.last, changes.changes.len()), (last, 2));
/// # Ok::<(), siltstone::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct ChangeBatch {
    /// The sequence number of its last write: where to go on from.
    pub last: SeqNo,
    /// When it was written, in microseconds since 1970.
    pub written_us: u64,
    /// The writes, in order.
    pub changes: Vec<Change>,
}

/// One write of a [`ChangeBatch`].
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// use siltstone::{ChangeKind, Db, SeqNo};
/// let db = Db::open(dir.path())?;
/// db.put("k", "v")?;
/// let batch = db.changes_since(SeqNo::ZERO)?.next().unwrap()?;
/// let change = &batch.changes[0];
/// assert_eq!(change.family.as_deref(), Some("default"));
/// assert!(matches!(&change.kind, ChangeKind::Put { key, .. } if key == b"k"));
/// # Ok::<(), siltstone::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Change {
    /// Its sequence number.
    pub seq: SeqNo,
    /// The name of the family that it was written to; none where that was dropped and the database opened
    /// again since.
    pub family: Option<Arc<str>>,
    /// The change.
    pub kind: ChangeKind,
}

/// The kind of a [`Change`]. Timestamps are zero in families with implicit ones.
///
/// ```
/// use siltstone::{ChangeKind, Timestamp};
/// let kind = ChangeKind::Delete { key: b"k".to_vec(), timestamp: Timestamp::ZERO };
/// assert_eq!(kind.clone(), kind);
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ChangeKind {
    /// A value was set.
    #[expect(missing_docs, reason = "as the call's")]
    Put { key: Vec<u8>, timestamp: Timestamp, value: Vec<u8> },
    /// A merge operand was added.
    #[expect(missing_docs, reason = "as the call's")]
    Merge { key: Vec<u8>, timestamp: Timestamp, operand: Vec<u8> },
    /// Versions at or below the timestamp were deleted.
    #[expect(missing_docs, reason = "as the call's")]
    Delete { key: Vec<u8>, timestamp: Timestamp },
    /// Versions of a range of keys, with timestamps between two, both included, were deleted.
    #[expect(missing_docs, reason = "as the call's")]
    DeleteRange { range: KeyRange, from: Timestamp, to: Timestamp },
}

/// A stream of changes, in the order in which they became visible, batch by batch. Each batch comes whole and
/// once, and what comes is durable: where the newest writes are not synced yet, the stream syncs the WAL.
///
/// It reads the WAL. Files that it has not read yet are retained for it, up to 256 MiB, or
/// [`Options::change_log_bytes`](crate::Options::change_log_bytes) if that is more. What the WAL does not
/// have (any more) makes an error of kind [`ChangesLost`](ErrorKind::ChangesLost) that names the sequence
/// numbers; the stream goes on behind them. Ingested SSTables and attached families are such, too: they take
/// sequence numbers and are not logged.
///
/// As an iterator it ends where nothing more is visible for now, and may go on later; an error that is not
/// `ChangesLost` ends it for good.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// use std::time::Duration;
/// let db = siltstone::Db::open(dir.path())?;
/// let mut changes = db.changes_since(db.snapshot().seq())?;
/// assert!(changes.next_batch()?.is_none());
/// db.put("k", "v")?;
/// db.flush()?;
/// let batch = changes.wait(Duration::from_secs(1))?.unwrap();
/// assert_eq!(batch.changes.len(), 1);
/// # Ok::<(), siltstone::Error>(())
/// ```
pub struct Changes {
    follower: Option<Follower>,
    db: Shared,
    failed: bool,
    lost: Option<(SeqNo, SeqNo)>,
    /// The family of the last write.
    family: Option<(StoreId, Option<Arc<str>>)>,
}

/// How long a wait for changes sleeps before it looks again.
const LOOK_EVERY: Duration = Duration::from_millis(2);

impl Db {
    /// The writes after that sequence number, of all families, as a stream; [`SeqNo::ZERO`] for all that the
    /// WAL holds.
    ///
    /// `ChangesLost` for a number that was never given out, or was and a power loss took the writes: start
    /// again from the present. To notice that for certain, go on only from numbers that a
    /// [stream](Changes::seq) or a `Sync` write gave. `ReadOnly` of a database that was opened so.
    pub fn changes_since(&self, seq: SeqNo) -> Result<Changes> {
        let commit = &self.inner.commit;
        commit.cx.check_open()?;
        let wal = commit.wal()?;
        let visible = commit.snapshots.visible();
        if seq > visible {
            let message = format!("changes since {seq} were asked for; the newest write is {visible}");
            return Err(Error::new(ErrorKind::ChangesLost, message));
        }
        let follower = Some(wal.follow(&commit.cx.env, seq));
        Ok(Changes { follower, db: self.inner.clone(), failed: false, lost: None, family: None })
    }
}

impl Changes {
    /// Whether writes were begun that are not to be seen yet: in a shared database each waits for its store,
    /// perhaps for long. They come later than their times say.
    pub fn is_behind(&self) -> bool {
        self.db.commit.has_writes_in_flight()
    }

    /// The sequence number up to which it has come, with what was lost: where another stream goes on.
    pub fn seq(&self) -> SeqNo {
        self.follower.as_ref().map_or(SeqNo::ZERO, Follower::position)
    }

    /// The first and the last sequence number that the last error of kind
    /// [`ChangesLost`](ErrorKind::ChangesLost) was about.
    pub fn lost(&self) -> Option<(SeqNo, SeqNo)> {
        self.lost
    }

    /// The next batch, if there is one by now.
    pub fn next_batch(&mut self) -> Result<Option<ChangeBatch>> {
        self.db.cx.check_open()?;
        let Self { follower: Some(follower), db, family, .. } = self else { return Ok(None) };
        let visible = db.commit.snapshots.visible();
        let file = follower.file();
        let mut batch = None;
        let found = follower.next(visible, &mut |frame, from| {
            // Cells that were logged again: they have their old numbers.
            let news = frame.entries().filter(|logged| logged.seq() >= from);
            let changes = news.map(|logged| {
                if family.as_ref().is_none_or(|(store, _)| *store != logged.store) {
                    *family = Some((logged.store, db.catalog.name_of(logged.store)));
                }
                let name = family.as_ref().and_then(|(_, name)| name.clone());
                Change { seq: logged.seq(), family: name, kind: kind_of(logged) }
            });
            let changes: Vec<Change> = changes.collect();
            let last = changes.last().map_or(from, |change| change.seq);
            batch = Some(ChangeBatch { last, written_us: frame.head.wall_us, changes });
        });
        let found = found.inspect_err(|_| {
            // Its sync of the WAL may have failed.
            if let Err(poison) = db.commit.wal().and_then(|wal| wal.check()) {
                db.cx.poison(&poison);
            }
        })?;
        if follower.file() != file {
            // Files that it has read may be removed.
            db.catalog.trim_wal();
        }
        match found {
            Followed::Nothing => Ok(None),
            Followed::Frame => Ok(batch),
            Followed::Missing(from, to) => {
                self.lost = Some((from, to));
                let message = format!("the WAL does not hold the writes {from} to {to}");
                Err(Error::new(ErrorKind::ChangesLost, message))
            }
        }
    }

    /// The next batch, waiting for it that long at most. It polls every 2 milliseconds.
    pub fn wait(&mut self, timeout: Duration) -> Result<Option<ChangeBatch>> {
        let clock = self.db.cx.env.clock.clone();
        let began = clock.monotonic_ns();
        loop {
            if let Some(batch) = self.next_batch()? {
                return Ok(Some(batch));
            }
            let left = timeout.saturating_sub(Duration::from_nanos(clock.monotonic_ns() - began));
            if left.is_zero() {
                return Ok(None);
            }
            self.db.cx.scheduler.pause(left.min(LOOK_EVERY).as_nanos() as u64);
        }
    }
}

fn kind_of(logged: Logged<'_>) -> ChangeKind {
    match logged.entry {
        Entry::RangeTombstone(t) => ChangeKind::DeleteRange { range: t.range, from: t.from, to: t.to },
        Entry::Cell(cell) => {
            let (key, timestamp, value) = (cell.key.to_vec(), cell.timestamp, cell.value);
            match cell.kind {
                Kind::Value => ChangeKind::Put { key, timestamp, value: value.to_vec() },
                Kind::Operand => ChangeKind::Merge { key, timestamp, operand: value.to_vec() },
                Kind::Tombstone => ChangeKind::Delete { key, timestamp },
                Kind::Hidden => unreachable!("the WAL has none"),
            }
        }
    }
}

impl Drop for Changes {
    fn drop(&mut self) {
        // Files that were retained for this stream alone are removed.
        self.follower = None;
        self.db.catalog.trim_wal();
    }
}

impl Iterator for Changes {
    type Item = Result<ChangeBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        let next = self.next_batch();
        self.failed = next.as_ref().is_err_and(|e| e.kind() != ErrorKind::ChangesLost);
        next.transpose()
    }
}

impl std::fmt::Debug for Changes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Changes({:?})", self.follower)
    }
}
