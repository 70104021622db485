//! A memtable as readers and the version see it: active or flat, with the WAL files that its cells are in.

use super::active::ActiveMemtable;
use super::active_cursor::ActiveCursor;
use super::flat::{FlatCursor, FlatMemtable};
use super::flatten::Visibility;
use super::prefetch::prefetch_value;
use crate::error::Result;
use crate::sync::{AtomicU64, Mutex, Ordering};
use crate::types::{
    CellRef, Cursor, Generation, Heat, KeyRange, LogFileId, Pinned, RangeTombstone, SeqNo, TimeRange,
    Timestamp, Visit, Window, Within,
};
use std::ops::{ControlFlow, RangeInclusive};
use std::sync::Arc;

/// A memtable, active or flat. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Memtable {
    cells: Cells,
    /// The WAL files that its cells are in: one record for all clones, passed on by flattening, but separate
    /// for each part.
    logged: Arc<Logged>,
    /// The part that belongs to this store, where stores that were split share the memtable. The other cells
    /// are invisible.
    part: Option<Arc<Part>>,
}

struct Part {
    keys: KeyRange,
    /// The part's share of the memtable, about, in 1,024ths.
    share: usize,
}

/// The WAL files with the cells of a memtable: cells below a sequence number were logged again, from one file
/// on; the others are where they were first logged, from another file on. `u64::MAX` for no such cells.
struct Logged {
    first: AtomicU64,
    again: Mutex<Again>,
}

/// The cells of a memtable that were logged again, and where.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Again {
    /// The bound: all cells with a smaller sequence number were logged again.
    pub(crate) below: SeqNo,
    /// The first WAL file that has them.
    pub(crate) front: u64,
}

/// The WAL files with the cells of a memtable, for another one that is made from it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct WalPlace {
    pub(crate) again: Again,
    first: u64,
}

impl WalPlace {
    /// The WAL files with the cells of all, for a memtable made from several.
    pub(crate) fn of_all(places: &[WalPlace]) -> Option<WalPlace> {
        let below = places.iter().map(|place| place.again.below).min()?;
        let front = places.iter().map(|place| place.again.front).min()?;
        let first = places.iter().map(|place| match place.again.below > below {
            true => place.first.min(place.again.front),
            false => place.first,
        });
        Some(WalPlace { again: Again { below, front }, first: first.min()? })
    }
}

impl Again {
    const NOTHING: Again = Again { below: SeqNo::ZERO, front: u64::MAX };
}

#[derive(Clone)]
enum Cells {
    ActiveMemtable(Arc<ActiveMemtable>),
    FlatMemtable(Arc<FlatMemtable>),
}

/// Calls the same method of either layout.
macro_rules! either {
    ($self:ident, $cells:ident => $call:expr) => {
        match &$self.cells {
            Cells::ActiveMemtable($cells) => $call,
            Cells::FlatMemtable($cells) => $call,
        }
    };
}

impl From<Arc<ActiveMemtable>> for Memtable {
    fn from(active: Arc<ActiveMemtable>) -> Self {
        let logged = Arc::new(Logged::new(u64::MAX, Again::NOTHING));
        Self { cells: Cells::ActiveMemtable(active), logged, part: None }
    }
}

impl Logged {
    fn new(first: u64, again: Again) -> Self {
        Self { first: AtomicU64::new(first), again: Mutex::new(again) }
    }

    /// A copy for a part: cleaning of one part does not log the others again.
    fn apart(&self) -> Self {
        let again = self.again.lock();
        Self::new(self.first.load(Ordering::Acquire), *again)
    }
}

impl Memtable {
    /// A flat memtable whose cells are in the WAL at that place; `None`: the WAL need not have them.
    pub(crate) fn flat(flat: Arc<FlatMemtable>, place: Option<WalPlace>) -> Self {
        let place = place.unwrap_or(WalPlace { again: Again::NOTHING, first: u64::MAX });
        let logged = Arc::new(Logged::new(place.first, place.again));
        Self { cells: Cells::FlatMemtable(flat), logged, part: None }
    }

    /// A flat memtable whose cells were all logged again, from that WAL file on.
    pub(crate) fn logged_again(flat: Arc<FlatMemtable>, front: LogFileId) -> Self {
        let again = Again { below: SeqNo::MAX, front: front.0 };
        Self::flat(flat, Some(WalPlace { again, first: u64::MAX }))
    }

    /// The immutable memtable as a flat one; itself if it is flat already. See [`FlatMemtable::from_active`].
    /// Of a shared one only the part is copied; an empty part is not flattened.
    #[must_use]
    pub(crate) fn flatten(&self, keep: &Visibility<'_>) -> Memtable {
        let flat = match &self.cells {
            Cells::ActiveMemtable(active) => Arc::new(FlatMemtable::from_active(active, keep)),
            Cells::FlatMemtable(flat) => flat.clone(),
        };
        let cells = match &self.part {
            None => Cells::FlatMemtable(flat),
            Some(part) => match FlatMemtable::gathered(&[flat], &part.keys, keep) {
                Some(own) => Cells::FlatMemtable(Arc::new(own)),
                None => return self.clone(),
            },
        };
        Memtable { cells, logged: self.logged.clone(), part: None }
    }

    /// The part that belongs to a store with those keys. `None` if it has no keys: otherwise a store that is
    /// split and joined again and again without a flush would have twice as many parts after each time.
    #[must_use]
    pub(crate) fn part(&self, keys: &KeyRange) -> Option<Memtable> {
        let keys = self.part.as_ref().map_or_else(|| keys.clone(), |part| part.keys.intersect(keys));
        if keys.is_empty() {
            return None;
        }
        let share = match &self.cells {
            Cells::ActiveMemtable(_) => self.part.as_ref().map_or(1024, |part| part.share) / 2,
            Cells::FlatMemtable(flat) => {
                (1024 * flat.bytes_within(&keys) / (flat.user_bytes() as u64).max(1)) as usize
            }
        };
        let part = Some(Arc::new(Part { keys, share: share.clamp(1, 1024) }));
        Some(Memtable { cells: self.cells.clone(), logged: Arc::new(self.logged.apart()), part })
    }

    /// The union of two adjacent parts of one memtable; `None` if they are not such parts.
    pub(crate) fn reunited(&self, with: &Memtable) -> Option<Memtable> {
        let is_one = match (&self.cells, &with.cells) {
            (Cells::ActiveMemtable(a), Cells::ActiveMemtable(b)) => Arc::ptr_eq(a, b),
            (Cells::FlatMemtable(a), Cells::FlatMemtable(b)) => Arc::ptr_eq(a, b),
            _ => false,
        };
        let (a, b) = (self.part.as_deref()?, with.part.as_deref()?);
        if !is_one || !a.keys.adjoins(&b.keys) {
            return None;
        }
        let place = WalPlace::of_all(&[self.wal_place(), with.wal_place()])?;
        let part = Part { keys: a.keys.cover(&b.keys), share: (a.share + b.share).min(1024) };
        let logged = Arc::new(Logged::new(place.first, place.again));
        Some(Memtable { cells: self.cells.clone(), logged, part: Some(Arc::new(part)) })
    }

    /// Whether it is the same memtable, flattened or not. Parts of one have the same generation but are not
    /// the same.
    pub(crate) fn is(&self, other: &Memtable) -> bool {
        Arc::ptr_eq(&self.logged, &other.logged)
    }

    /// Whether it is a part of a shared memtable.
    pub(crate) fn is_part(&self) -> bool {
        self.part.is_some()
    }

    /// Whether the key belongs to its part.
    #[inline]
    fn has(&self, key: &[u8]) -> bool {
        self.part.as_ref().is_none_or(|part| part.keys.contains(key))
    }

    /// The range, cut to its part.
    fn seen<'a>(&self, range: &'a KeyRange) -> std::borrow::Cow<'a, KeyRange> {
        match &self.part {
            None => std::borrow::Cow::Borrowed(range),
            Some(part) => std::borrow::Cow::Owned(part.keys.intersect(range)),
        }
    }

    /// The active memtable, to write to.
    pub(crate) fn as_active(&self) -> Option<&Arc<ActiveMemtable>> {
        match &self.cells {
            Cells::ActiveMemtable(active) => Some(active),
            Cells::FlatMemtable(_) => None,
        }
    }

    /// Prefetches the first memory that a write touches, of an active memtable.
    #[inline]
    pub(crate) fn prefetch_active(&self) {
        if let Cells::ActiveMemtable(active) = &self.cells {
            prefetch_value(&**active);
            prefetch_value(&*self.logged);
        }
    }

    /// The flat memtable, if all of it belongs to this store.
    pub(crate) fn as_flat(&self) -> Option<&Arc<FlatMemtable>> {
        match &self.cells {
            Cells::FlatMemtable(_) if self.is_part() => None,
            Cells::ActiveMemtable(_) => None,
            Cells::FlatMemtable(flat) => Some(flat),
        }
    }

    /// Notes that its cells are in that WAL file too. Called before the file could be released.
    pub(crate) fn fed_by(&self, file: LogFileId) {
        self.logged.first.fetch_min(file.0, Ordering::AcqRel);
    }

    /// The first WAL file that it needs; `None` if nothing was logged for it.
    pub(crate) fn log_front(&self) -> Option<LogFileId> {
        // The lock is held so that no file is missed while `log_again` moves cells from one to the other.
        let again = self.logged.again.lock();
        let file = self.logged.first.load(Ordering::Acquire).min(again.front);
        (file != u64::MAX).then_some(LogFileId(file))
    }

    /// The cells that were logged again.
    pub(crate) fn again(&self) -> Again {
        *self.logged.again.lock()
    }

    /// The WAL files with its cells; for a memtable that takes no more writes.
    pub(crate) fn wal_place(&self) -> WalPlace {
        let again = self.logged.again.lock();
        let first = self.logged.first.load(Ordering::Acquire);
        // If it has no cell below its smallest number, all below that may count as logged again.
        let smallest = self.seqs().map_or(SeqNo::MAX, |seqs| *seqs.start());
        WalPlace { again: Again { below: again.below.max(smallest), ..*again }, first }
    }

    /// Notes that all cells below a sequence number are in the WAL from file `again.front` on, and the others
    /// from `first` on.
    pub(crate) fn log_again(&self, again: Again, first: Option<LogFileId>) {
        let mut now = self.logged.again.lock();
        *now = again;
        self.logged.first.store(first.map_or(u64::MAX, |file| file.0), Ordering::Release);
    }

    /// The id of the memtable that its cells were written to (I1).
    pub(crate) fn generation(&self) -> Generation {
        either!(self, cells => cells.generation())
    }

    /// Visits the cells of a key whose sequence number is at most `read`, in order, until `visit` breaks.
    #[inline]
    pub(crate) fn get(&self, key: &[u8], read: SeqNo, visit: &mut Visit<'_>) -> ControlFlow<()> {
        if !self.has(key) {
            return ControlFlow::Continue(());
        }
        either!(self, cells => cells.get(key, read, visit))
    }

    /// Whether a reader at `read` has to search it for keys of the range. Always true for an active memtable:
    /// its range grows during the read.
    pub(crate) fn concerns(&self, range: &KeyRange, read: SeqNo) -> bool {
        match &self.cells {
            Cells::ActiveMemtable(_) => true,
            Cells::FlatMemtable(flat) => flat.concerns(&self.seen(range), read),
        }
    }

    /// Whether it holds range tombstones.
    #[inline]
    pub(crate) fn has_ranges(&self) -> bool {
        either!(self, cells => cells.has_ranges())
    }

    /// A cursor over its cells.
    pub(crate) fn cursor(&self) -> MemtableCursor {
        let cursor = match &self.cells {
            Cells::ActiveMemtable(active) => MemtableCursor::ActiveMemtable(active.cursor()),
            Cells::FlatMemtable(flat) => MemtableCursor::FlatMemtable(flat.cursor()),
        };
        match &self.part {
            None => cursor,
            Some(part) => MemtableCursor::Part(Box::new(Within::new(cursor, part.keys.clone()))),
        }
    }

    /// The range tombstones, cut to the range. O(n).
    pub(crate) fn tombstones_within(&self, range: &KeyRange) -> Vec<RangeTombstone> {
        either!(self, cells => cells.tombstones_within(&self.seen(range)))
    }

    /// The range tombstones over a key that count at read point `read`; `only` is the range of that key
    /// alone.
    pub(crate) fn tombstones_over(&self, only: &KeyRange, read: SeqNo) -> Vec<RangeTombstone> {
        match self.has(&only.start) {
            true => either!(self, cells => cells.tombstones_over(only, read)),
            false => Vec::new(),
        }
    }

    /// Adds the range tombstones that cover the key at read point `read` to the window, and narrows the
    /// window to the keys that the same ones cover.
    pub(crate) fn look_around(&self, key: &[u8], read: SeqNo, window: &mut Window) {
        let matters = |seqs: RangeInclusive<SeqNo>| !window.is_above(*seqs.end());
        if self.has_ranges() && self.seqs().is_some_and(matters) {
            if let Some(Part { keys, .. }) = self.part.as_deref() {
                if key < keys.start.as_slice() {
                    return window.ends_before(&keys.start);
                }
                if let Some(end) = keys.end.as_deref().filter(|end| *end <= key) {
                    return window.starts_at(end);
                }
                window.within(keys);
            }
            either!(self, cells => cells.look_around(key, read, window));
        }
    }

    /// The newest range tombstone at or below `read` that deletes cells of the key with that timestamp.
    pub(crate) fn newest_over(&self, key: &[u8], timestamp: Timestamp, read: SeqNo) -> Option<SeqNo> {
        if !self.has(key) {
            return None;
        }
        either!(self, cells => cells.newest_over(key, timestamp, read))
    }

    /// Its memory. An active memtable and the flat one made from it share chunks that both count.
    #[inline]
    pub(crate) fn bytes(&self) -> usize {
        let bytes = either!(self, cells => cells.bytes());
        self.part.as_ref().map_or(bytes, |part| bytes / 1024 * part.share)
    }

    /// Key and value bytes.
    pub(crate) fn user_bytes(&self) -> usize {
        let bytes = either!(self, cells => cells.user_bytes());
        self.part.as_ref().map_or(bytes, |part| bytes / 1024 * part.share)
    }

    /// Number of cells, without range tombstones.
    pub(crate) fn cells(&self) -> usize {
        either!(self, cells => cells.cells())
    }

    /// Whether it has neither cells nor range tombstones.
    pub(crate) fn is_empty(&self) -> bool {
        either!(self, cells => cells.is_empty())
    }

    /// The smallest range holding all keys and range tombstones.
    pub(crate) fn key_range(&self) -> Option<KeyRange> {
        let keys = either!(self, cells => cells.key_range())?;
        Some(self.seen(&keys).into_owned()).filter(|keys| !keys.is_empty())
    }

    /// Sequence numbers of cells and range tombstones.
    pub(crate) fn seqs(&self) -> Option<RangeInclusive<SeqNo>> {
        either!(self, cells => cells.seqs())
    }

    /// Whether it holds anything with a higher sequence number.
    pub(crate) fn has_newer(&self, seq: SeqNo) -> bool {
        self.seqs().is_some_and(|seqs| *seqs.end() > seq)
    }

    /// Whether a range tombstone with a higher sequence number reaches into the range.
    pub(crate) fn has_newer_tombstone(&self, range: &KeyRange, seq: SeqNo) -> bool {
        self.has_newer(seq) && either!(self, cells => cells.has_newer_tombstone(&self.seen(range), seq))
    }

    /// Timestamps that it can affect; see [`ActiveMemtable::times`].
    pub(crate) fn times(&self) -> Option<RangeInclusive<Timestamp>> {
        either!(self, cells => cells.times())
    }

    /// Whether it can affect cells of those timestamps (ACC-10). Called after a read point is taken, the
    /// answer covers all that is visible at that point.
    pub(crate) fn speaks_of(&self, times: TimeRange) -> bool {
        times == TimeRange::ALL || self.times().is_some_and(|mine| times.overlaps(&mine))
    }
}

/// A position in a memtable.
pub(crate) enum MemtableCursor {
    ActiveMemtable(ActiveCursor),
    FlatMemtable(FlatCursor),
    Part(Box<Within<MemtableCursor>>),
}

macro_rules! either_cursor {
    ($self:ident, $cursor:ident => $call:expr) => {
        match $self {
            MemtableCursor::ActiveMemtable($cursor) => $call,
            MemtableCursor::FlatMemtable($cursor) => $call,
            MemtableCursor::Part($cursor) => $call,
        }
    };
}

impl Cursor for MemtableCursor {
    fn seek(&mut self, key: &[u8]) -> Result<()> {
        either_cursor!(self, cursor => cursor.seek(key))
    }
    fn seek_before(&mut self, key: Option<&[u8]>) -> Result<()> {
        either_cursor!(self, cursor => cursor.seek_before(key))
    }
    fn next(&mut self) -> Result<()> {
        either_cursor!(self, cursor => cursor.next())
    }
    fn prev(&mut self) -> Result<()> {
        either_cursor!(self, cursor => cursor.prev())
    }
    fn valid(&self) -> bool {
        either_cursor!(self, cursor => cursor.valid())
    }
    fn cell(&self) -> CellRef<'_> {
        either_cursor!(self, cursor => cursor.cell())
    }
    #[inline]
    fn key(&self) -> &[u8] {
        either_cursor!(self, cursor => cursor.key())
    }
    fn pin_value(&self, into: &mut Pinned) -> Result<()> {
        either_cursor!(self, cursor => cursor.pin_value(into))
    }
    fn heat(&self) -> Heat {
        either_cursor!(self, cursor => cursor.heat())
    }
}
