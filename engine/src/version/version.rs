//! A store at one moment: memory and open tables in one immutable object (invariant I3). A reader loads it
//! once, takes its read point second, and sees either side of any change, never a mixture. Changes build a
//! new object and swap it in; who loses the race builds again from the winner's.

use super::one_side::OldSide;
use super::scattered::Scattered;
use super::shelf::Shelf;
use crate::error::{Error, ErrorKind, Result};
use crate::memory::{Active, Segment};
use crate::shape::{Run, Shape, TableInfo};
use crate::sync::{AtomicBool, Mutex, Ordering};
use crate::table::{CursorOptions, Table, TableCursor};
use crate::types::{Generation, KeyRange, LogFileId, TableId, TimeRange, Timestamp, common_prefix, prefix64};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

/// A store at one moment.
pub(crate) struct Version {
    /// Takes the writes.
    pub(crate) active: Segment,
    /// Frozen segments that are not being flushed, newest first.
    pub(crate) frozen: Vec<Segment>,
    /// Older than these: memory held apart by key range. Of most strategies there is none.
    pub(crate) scattered: Arc<Scattered>,
    /// The flush set, older than both, newest first.
    pub(crate) flush: FlushSet,
    /// The tables as plain data.
    pub(crate) shape: Arc<Shape>,
    /// The same tables open, newest data first.
    pub(crate) runs: Arc<[OpenRun]>,
    /// The keys that the store answers for: all, unless it was split. What memory and tables have of others
    /// is another's.
    pub(crate) bounds: Arc<KeyRange>,
    /// For scans that are not to read both sides of a merge; of most databases there is none.
    pub(crate) old_side: Option<Arc<OldSide>>,
}

crate::types::sent!(Version { active, frozen, scattered, flush, shape, runs, bounds, old_side });

/// The segments being flushed. Cells below `clip` are in tables already, or kept in a frozen segment.
#[derive(Clone, Default)]
pub(crate) struct FlushSet {
    pub(crate) segments: Vec<Segment>,
    /// Older than these.
    pub(crate) scattered: Arc<Scattered>,
    /// It is the memory of one range, up to `end`.
    pub(crate) of_range: bool,
    pub(crate) clip: Vec<u8>,
    pub(crate) end: Option<Vec<u8>>,
    /// Of its keys nothing up to this generation is in memory elsewhere.
    pub(crate) generation: Generation,
    /// The id for the cells it keeps: above those of its segments, below that of any newer one (invariant
    /// I1).
    pub(crate) reserved: Generation,
    /// The run of level 0 that it becomes.
    pub(crate) run: u64,
}

/// The run of level 0 that memory up to that generation becomes: of that number, as a rule, as what is newer
/// comes after it. Not where the store has taken in a neighbour whose newer memory was flushed before: then
/// the one after the newest run.
pub(crate) fn flushed_run(shape: &Shape, generation: Generation, range: &KeyRange) -> u64 {
    let level0 = shape.levels.first().map_or(&[][..], |level| &level.runs);
    let is_over =
        |run: &Run| run.id >= generation.0 && run.tables().iter().any(|table| table.overlaps(range));
    match level0.first() {
        Some(newest) if level0.iter().any(is_over) => newest.id + 1,
        _ => generation.0,
    }
}

impl FlushSet {
    pub(crate) fn is_empty(&self) -> bool {
        self.segments.is_empty() && self.scattered.is_empty()
    }

    /// The keys that are left of it.
    pub(crate) fn range(&self) -> KeyRange {
        KeyRange { start: self.clip.clone(), end: self.end.clone() }
    }

    /// All of it; those that share keys newest first.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Segment> {
        self.segments.iter().chain(self.scattered.pieces())
    }
}

/// A run with its tables open.
pub(crate) struct OpenRun {
    pub(crate) tables: Arc<[OpenTable]>,
    /// Whether any of them has range tombstones.
    pub(crate) has_ranges: bool,
    /// What the tables' first keys all begin with, and eight bytes of each behind that: a search among them
    /// touches one array instead of a key somewhere in memory a step.
    shared: Vec<u8>,
    starts: Vec<u64>,
}

/// A table with what the shape says of it.
#[derive(Clone)]
pub(crate) struct OpenTable {
    pub(crate) info: Arc<TableInfo>,
    pub(crate) handle: Arc<TableHandle>,
}

impl OpenTable {
    pub(crate) fn table(&self) -> &Arc<Table> {
        &self.handle.table
    }

    /// A cursor over its file, which reads no block below its clip: what is there may have been freed.
    pub(crate) fn cursor(&self, options: CursorOptions) -> TableCursor {
        let mut cursor = self.table().cursor(options);
        if self.info.clip.is_some() {
            cursor.set_floor(self.start());
        }
        cursor
    }

    /// About how many bytes of its file no reader needs who stays at or above the key. Reads the index.
    pub(crate) fn dead_below(&self, key: &[u8]) -> Result<u64> {
        let options = CursorOptions { fill_cache: false, read_ahead_bytes: 0, ..CursorOptions::default() };
        self.table().cursor(options).dead_below(key)
    }

    /// Whether the table answers for the key.
    #[inline]
    pub(crate) fn covers(&self, key: &[u8]) -> bool {
        key >= self.start() && self.info.range.ends_after(key)
    }

    /// Whether cells of those timestamps may depend on what the table holds (ACC-10): a tombstone speaks of
    /// all up to its own. The table's times are those of its cells; range tombstones have theirs.
    pub(crate) fn speaks_of(&self, times: TimeRange) -> bool {
        let (first, last) = self.info.times;
        let first = if self.info.tombstones > 0 { Timestamp::ZERO } else { first };
        times.overlaps(&(first..=last)) || self.table().fragments().speak_of(times)
    }

    /// Whether the table's part goes on behind that key of its file. Only a part ends before its file does.
    #[inline]
    pub(crate) fn ends_after(&self, key: &[u8]) -> bool {
        self.info.above.is_none() || self.info.range.ends_after(key) || planted!(Bug::PartOffByOne)
    }

    /// Where the table's part ends, if its file goes on behind it.
    pub(crate) fn end_of_part(&self) -> Option<&[u8]> {
        self.info.above.and(self.info.range.end.as_deref())
    }

    /// First key the table answers for.
    #[inline]
    pub(crate) fn start(&self) -> &[u8] {
        match &self.info.clip {
            Some(clip) => clip.key.as_slice().max(self.info.range.start.as_slice()),
            None => &self.info.range.start,
        }
    }
}

impl OpenRun {
    fn new(tables: Arc<[OpenTable]>) -> Self {
        let has_ranges = tables.iter().any(|t| !t.table().fragments().is_empty());
        let shared = match (tables.first(), tables.last()) {
            (Some(first), Some(last)) => first.start()[..common_prefix(first.start(), last.start())].to_vec(),
            _ => Vec::new(),
        };
        let starts = tables.iter().map(|t| prefix64(&t.start()[shared.len()..])).collect();
        Self { tables, has_ranges, shared, starts }
    }

    /// How many tables start at or before the key.
    #[inline]
    pub(super) fn starting_upto(&self, key: &[u8]) -> usize {
        let Some(rest) = key.strip_prefix(self.shared.as_slice()) else {
            return if key < self.shared.as_slice() { 0 } else { self.tables.len() };
        };
        let wanted = prefix64(rest);
        let from = self.starts.partition_point(|start| *start < wanted);
        let tied = self.starts[from..].iter().take_while(|start| **start == wanted).count();
        from + self.tables[from..from + tied].partition_point(|t| t.start() <= key)
    }

    /// The numbers of the tables that may answer for keys of the range. O(log n).
    pub(crate) fn within(&self, range: &KeyRange) -> Range<usize> {
        let from = self.tables.partition_point(|t| !t.info.range.ends_after(&range.start));
        let to = self.tables.partition_point(|t| range.ends_after(t.start()));
        from..to.max(from)
    }

    /// The table that answers for the key. O(log n).
    #[inline]
    pub(crate) fn find(&self, key: &[u8]) -> Option<&OpenTable> {
        let at = match &self.tables[..] {
            [_] => 0,
            _ => self.starting_upto(key).checked_sub(1)?,
        };
        Some(&self.tables[at]).filter(|t| t.covers(key))
    }
}

/// An open table; its file goes when the last version that names it is gone, if it was made obsolete.
pub(crate) struct TableHandle {
    pub(crate) table: Arc<Table>,
    obsolete: AtomicBool,
    graveyard: Arc<Graveyard>,
}

impl TableHandle {
    pub(crate) fn new(table: Arc<Table>, graveyard: Arc<Graveyard>) -> Arc<Self> {
        graveyard.logs.hold(&table.info().logs);
        Arc::new(Self { table, obsolete: AtomicBool::new(false), graveyard })
    }

    /// The manifest no longer names the table.
    pub(crate) fn make_obsolete(&self) {
        self.obsolete.store(true, Ordering::Release);
    }
}

impl Drop for TableHandle {
    fn drop(&mut self) {
        let obsolete = self.obsolete.load(Ordering::Acquire);
        let logs = self.graveyard.logs.let_go(&self.table.info().logs, obsolete);
        if obsolete {
            let mut files = self.graveyard.files.lock();
            files.push_back(Dead::Table(self.table.clone()));
            files.extend(logs.into_iter().map(Dead::Log));
        }
    }
}

/// Where last references go, so that no get pays for freeing memory or removing files.
#[derive(Default)]
pub(crate) struct Graveyard {
    versions: Mutex<Buried>,
    files: Mutex<VecDeque<Dead>>,
    punches: Mutex<VecDeque<Punch>>,
    /// The log files that tables need.
    pub(crate) logs: Shelf,
}

/// A file that may be removed.
pub(crate) enum Dead {
    /// Of a table. Blocks of it may still be in the cache: whoever held an old version may have read more of
    /// it since it was replaced.
    Table(Arc<Table>),
    /// A log file that tables needed.
    Log(LogFileId),
}

/// Versions that were swapped out, numbered in that order.
#[derive(Default)]
struct Buried {
    count: u64,
    held: Vec<(u64, Arc<Version>)>,
    /// How many versions had been swapped out when each [`TablesHeld`] began.
    copied_since: Vec<u64>,
}

/// Tables whose files somebody copies: as long as this is held none of them is removed, and nothing of them
/// is freed that was read when it began. Memory is not held.
pub(crate) struct TablesHeld {
    since: u64,
    graveyard: Arc<Graveyard>,
    _handles: Vec<Arc<TableHandle>>,
}

impl Drop for TablesHeld {
    fn drop(&mut self) {
        let since = &mut self.graveyard.versions.lock().copied_since;
        if let Some(at) = since.iter().position(|one| *one == self.since) {
            since.swap_remove(at);
        }
    }
}

/// A table's lower part that has moved elsewhere, to be freed when no version swapped out before reads it.
struct Punch {
    after: u64,
    handle: Arc<TableHandle>,
    upto: u64,
}

impl Graveyard {
    /// Keeps a version that was swapped out until no reader has it.
    pub(crate) fn bury(&self, version: Arc<Version>) {
        let mut versions = self.versions.lock();
        versions.count += 1;
        let number = versions.count;
        versions.held.push((number, version));
    }

    /// Holds the files of these tables as they are now. What is clipped from them later waits.
    pub(crate) fn hold(self: &Arc<Self>, handles: Vec<Arc<TableHandle>>) -> TablesHeld {
        let mut versions = self.versions.lock();
        let since = versions.count;
        versions.copied_since.push(since);
        TablesHeld { since, graveyard: self.clone(), _handles: handles }
    }

    /// Frees the table's blocks before that offset once nobody can read them any more. The clip that says so
    /// is in the manifest, and the version that has it swapped in.
    pub(crate) fn punch(&self, handle: Arc<TableHandle>, upto: u64) {
        let after = self.versions.lock().count;
        self.punches.lock().push_back(Punch { after, handle, upto });
    }

    /// A punch that is due: table and the offset below which it may be freed.
    pub(crate) fn next_punch(&self) -> Option<(TableId, u64)> {
        let oldest = {
            let versions = self.versions.lock();
            let held = versions.held.iter().map(|(number, _)| *number);
            held.chain(versions.copied_since.iter().copied()).min().unwrap_or(u64::MAX)
        };
        // Nearly in the order of what they wait for; one in front that is not due holds up those behind it
        // for a moment.
        loop {
            let mut punches = self.punches.lock();
            let is_due = punches.front().is_some_and(|punch| punch.after < oldest);
            let Punch { handle, upto, .. } = if is_due { punches.pop_front()? } else { return None };
            drop(punches);
            // What is gone needs no hole.
            if !handle.obsolete.load(Ordering::Acquire) {
                return Some((handle.table.info().id, upto));
            }
        }
    }

    /// Drops versions that nobody else holds.
    pub(crate) fn sweep(&self) {
        let free: Vec<(u64, Arc<Version>)> = {
            let mut versions = self.versions.lock();
            let (free, held) = versions.held.drain(..).partition(|(_, v)| Arc::strong_count(v) == 1);
            versions.held = held;
            free
        };
        drop(free);
    }

    /// A file that may be removed; what the cache has of it goes.
    pub(crate) fn next_file(&self) -> Option<Dead> {
        let dead = self.files.lock().pop_front()?;
        if let Dead::Table(table) = &dead {
            table.evict(&[], None);
        }
        Some(dead)
    }

    /// Gives files back whose removal failed.
    pub(crate) fn retry(&self, files: Vec<Dead>) {
        self.files.lock().extend(files);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.versions.lock().held.is_empty() && self.files.lock().is_empty() && self.punches.lock().is_empty()
    }

    /// Number of versions that somebody still reads.
    pub(crate) fn held(&self) -> usize {
        self.versions.lock().held.len()
    }
}

impl Version {
    /// A store without tables.
    pub(crate) fn new(active: Segment) -> Self {
        Self {
            active,
            frozen: Vec::new(),
            scattered: Arc::default(),
            flush: FlushSet::default(),
            shape: Arc::default(),
            runs: Arc::default(),
            bounds: Arc::default(),
            old_side: None,
        }
    }

    /// The segment that takes the writes.
    pub(crate) fn active(&self) -> &Arc<Active> {
        self.active.as_active().expect("the first segment is never flat")
    }

    /// The same with the active segment frozen (left out if empty) and another in its place.
    pub(crate) fn with_fresh_active(&self, active: Arc<Active>) -> Version {
        let mut frozen = Vec::with_capacity(self.frozen.len() + 1);
        if !self.active.is_empty() {
            frozen.push(self.active.clone());
        }
        frozen.extend_from_slice(&self.frozen);
        self.with_memory(active.into(), frozen, self.flush.clone())
    }

    /// The same of a store that answers for those keys.
    pub(crate) fn within(&self, bounds: KeyRange) -> Version {
        Version {
            bounds: Arc::new(bounds),
            old_side: None,
            ..self.with_memory(self.active.clone(), self.frozen.clone(), self.flush.clone())
        }
    }

    /// An error for a key that the store does not answer for.
    #[inline]
    pub(crate) fn check_key(&self, key: &[u8]) -> Result<()> {
        if self.bounds.contains(key) { Ok(()) } else { Err(self.out_of_range(key)) }
    }

    #[cold]
    fn out_of_range(&self, key: &[u8]) -> Error {
        let message =
            format!("key \"{}\" is outside of the family's keys, {}", key.escape_ascii(), self.bounds);
        Error::new(ErrorKind::OutOfRange, message)
    }

    /// An error for keys that the store does not all answer for.
    pub(crate) fn check_range(&self, range: &KeyRange) -> Result<()> {
        if self.bounds.covers(range) { Ok(()) } else { Err(self.out_of_range(&range.start)) }
    }

    /// All frozen memory that is not being flushed; what shares keys newest first.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = &Segment> {
        self.frozen.iter().chain(self.scattered.pieces())
    }

    /// All frozen memory, what shares keys newest first, the flush set last.
    pub(crate) fn segments(&self) -> impl Iterator<Item = &Segment> {
        self.waiting().chain(self.flush.all())
    }

    /// All memory: the active segment, and then the others.
    pub(crate) fn memory(&self) -> impl Iterator<Item = &Segment> {
        std::iter::once(&self.active).chain(self.segments())
    }

    /// The newest generation of which there is something in memory.
    pub(crate) fn newest_generation(&self) -> Generation {
        let written = self.memory().filter(|segment| !segment.is_empty());
        written.map(Segment::generation).max().unwrap_or_default()
    }

    /// Bytes of memory the version holds.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.unflushed_bytes() + self.flush.all().map(|s| s.bytes() as u64).sum::<u64>()
    }

    /// Bytes that a flush starting now would take.
    pub(crate) fn unflushed_bytes(&self) -> u64 {
        let frozen: u64 = self.frozen.iter().map(|s| s.bytes() as u64).sum();
        self.active.bytes() as u64 + frozen + self.scattered.bytes()
    }

    /// The oldest log file that its memory came from; `None` when it holds nothing.
    pub(crate) fn log_front(&self) -> Option<LogFileId> {
        let flushing = self.flush.all().filter_map(Segment::log_front);
        flushing.chain(self.log_front_without_flush()).min()
    }

    /// The same, the flush set counted as gone.
    pub(crate) fn log_front_without_flush(&self) -> Option<LogFileId> {
        self.waiting().filter_map(Segment::log_front).chain(self.active.log_front()).min()
    }

    /// Whether a flush set left behind by a failed flush may be joined by newer memory: of all keys still,
    /// and without pieces of ranges, as these lie below the segments of their set. Also where there is none.
    pub(crate) fn may_join_flush(&self) -> bool {
        let FlushSet { scattered, of_range, clip, end, .. } = &self.flush;
        let whole = clip.is_empty() && end.is_none() && !of_range && scattered.is_empty();
        self.flush.is_empty() || (whole && self.scattered.is_empty())
    }

    /// Every open table.
    pub(crate) fn tables(&self) -> impl Iterator<Item = &OpenTable> {
        self.runs.iter().flat_map(|run| run.tables.iter())
    }

    /// The same memory with other tables: those of `shape`, found among this version's and `opened`.
    pub(crate) fn with_shape(
        &self,
        shape: Arc<Shape>,
        opened: &BTreeMap<TableId, Arc<TableHandle>>,
    ) -> Version {
        let runs = open_runs(&shape, &self.runs, opened);
        Version {
            active: self.active.clone(),
            frozen: self.frozen.clone(),
            scattered: self.scattered.clone(),
            flush: self.flush.clone(),
            shape,
            runs,
            bounds: self.bounds.clone(),
            old_side: None,
        }
    }

    /// What cells that flushes kept take of memory.
    pub(crate) fn kept_bytes(&self) -> u64 {
        self.frozen.iter().filter_map(|s| s.as_flat()).map(|flat| flat.kept_bytes() as u64).sum()
    }

    /// The same with other frozen segments.
    pub(crate) fn with_memory(&self, active: Segment, frozen: Vec<Segment>, flush: FlushSet) -> Version {
        let (scattered, shape, runs) = (self.scattered.clone(), self.shape.clone(), self.runs.clone());
        let (bounds, old_side) = (self.bounds.clone(), self.old_side.clone());
        Version { active, frozen, scattered, flush, shape, runs, bounds, old_side }
    }

    /// The same with other memory behind the active segment.
    pub(crate) fn with_scattered(
        &self,
        frozen: Vec<Segment>,
        scattered: Arc<Scattered>,
        flush: FlushSet,
    ) -> Version {
        Version { scattered, ..self.with_memory(self.active.clone(), frozen, flush) }
    }
}

/// The runs of a shape in reading order: their tables are among those of `before` and `opened`.
pub(crate) fn open_runs(
    shape: &Shape,
    before: &[OpenRun],
    opened: &BTreeMap<TableId, Arc<TableHandle>>,
) -> Arc<[OpenRun]> {
    let before = before.iter().flat_map(|run| run.tables.iter());
    let handles: BTreeMap<TableId, &Arc<TableHandle>> = before
        .map(|open| (open.info.id, &open.handle))
        .chain(opened.iter().map(|(id, handle)| (*id, handle)))
        .collect();
    let mut runs = Vec::new();
    for level in &shape.levels {
        for run in &level.runs {
            let tables: Arc<[OpenTable]> = run
                .tables()
                .iter()
                .map(|info| OpenTable { info: info.clone(), handle: handles[&info.id].clone() })
                .collect();
            runs.push(OpenRun::new(tables));
        }
    }
    runs.into()
}
