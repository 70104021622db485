//! A store at one moment: memory and SSTables in one immutable object (invariant I3). A reader loads it
//! once, takes its read point second, and sees either side of any change, never a mixture. Changes build a
//! new object and swap it in; a thread that loses the race builds again from the winner's.

use super::OldSides;
use super::memtables::Memtables;
use super::opener::Opener;
use super::wal_refs::Shelf;
use crate::error::{Error, ErrorKind, Result};
use crate::memtable::{ActiveMemtable, Memtable};
use crate::shape::{Shape, TableInfo};
use crate::sstable::{CursorOptions, Sstable, TableCursor};
use crate::sync::{AtomicBool, Mutex, Ordering};
use crate::types::{KeyRange, LogFileId, TableId, TimeRange, Timestamp, common_prefix, prefix64};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::{Arc, OnceLock};

/// A store at one moment.
pub(crate) struct Version {
    /// The memory, newer than all SSTables.
    pub(crate) memory: Memtables,
    /// The SSTables as plain data.
    pub(crate) shape: Arc<Shape>,
    /// The runs of `shape` with their SSTables to be read, newest data first.
    pub(crate) runs: Arc<[OpenRun]>,
    /// The keys that the store answers for: all, unless it was split. Cells of other keys in its memory and
    /// SSTables belong to other stores.
    pub(crate) bounds: Arc<KeyRange>,
    /// SSTables for scans that are not to read both sides of a compaction; `None` in most databases.
    pub(crate) old_side: OldSides,
}

crate::types::sent!(Version { memory, shape, runs, bounds, old_side });

/// A run of SSTables to be read.
pub(crate) struct OpenRun {
    pub(crate) tables: Arc<[OpenTable]>,
    /// Whether any of its SSTables has range tombstones.
    pub(crate) has_ranges: bool,
    /// The common beginning of the SSTables' first keys, and eight bytes of each behind that: a search among
    /// them touches one array instead of a key somewhere in memory at each step.
    shared: Vec<u8>,
    starts: Vec<u64>,
}

/// An SSTable with its description in the shape. It is open, or opened by whoever needs it first.
#[derive(Clone)]
pub(crate) struct OpenTable {
    pub(crate) info: Arc<TableInfo>,
    pub(crate) handle: Arc<TableHandle>,
}

impl OpenTable {
    /// The open SSTable; opens it if it was left unread ([`TableHandle::table`]).
    #[inline]
    pub(crate) fn table(&self) -> Result<&Arc<Sstable>> {
        self.handle.table()
    }

    /// The SSTable, if it is open.
    pub(crate) fn opened(&self) -> Option<&Arc<Sstable>> {
        self.handle.opened()
    }

    /// Whether it has range tombstones. Said without opening it.
    pub(crate) fn has_ranges(&self) -> bool {
        self.info.range_tombstones > 0
    }

    /// A cursor over its file, which reads no block below its clip: the bytes there may have been freed.
    pub(crate) fn cursor(&self, options: CursorOptions) -> Result<TableCursor> {
        let mut cursor = self.table()?.cursor(options);
        if self.info.clip.is_some() {
            cursor.set_floor(self.start());
        }
        Ok(cursor)
    }

    /// The bytes of its file, about, that a reader which stays at or above the key does not need. Reads the
    /// index.
    pub(crate) fn dead_below(&self, key: &[u8]) -> Result<u64> {
        let options = CursorOptions { fill_cache: false, read_ahead_bytes: 0, ..CursorOptions::default() };
        self.table()?.cursor(options).dead_below(key)
    }

    /// Whether the SSTable answers for the key.
    #[inline]
    pub(crate) fn covers(&self, key: &[u8]) -> bool {
        key >= self.start() && self.info.range.ends_after(key)
    }

    /// Whether a read of those timestamps may depend on the SSTable (ACC-10): a tombstone deletes all
    /// timestamps up to its own. The SSTable's times are those of its cells; range tombstones have theirs,
    /// which only an open SSTable knows.
    pub(crate) fn speaks_of(&self, times: TimeRange) -> bool {
        let (first, last) = self.info.times;
        let first = if self.info.tombstones > 0 { Timestamp::ZERO } else { first };
        let ranges_speak = || self.opened().is_none_or(|table| table.fragments().speak_of(times));
        times.overlaps(&(first..=last)) || self.has_ranges() && ranges_speak()
    }

    /// Whether the SSTable's part goes on behind that key of its file. Only a part ends before its file does.
    #[inline]
    pub(crate) fn ends_after(&self, key: &[u8]) -> bool {
        self.info.above.is_none() || self.info.range.ends_after(key) || planted!(Bug::PartOffByOne)
    }

    /// The key at which the SSTable's part ends, if its file goes on behind it.
    pub(crate) fn end_of_part(&self) -> Option<&[u8]> {
        self.info.above.and(self.info.range.end.as_deref())
    }

    /// First key that the SSTable answers for.
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
        let has_ranges = tables.iter().any(OpenTable::has_ranges);
        let shared = match (tables.first(), tables.last()) {
            (Some(first), Some(last)) => first.start()[..common_prefix(first.start(), last.start())].to_vec(),
            _ => Vec::new(),
        };
        let starts = tables.iter().map(|t| prefix64(&t.start()[shared.len()..])).collect();
        Self { tables, has_ranges, shared, starts }
    }

    /// The number of SSTables that start at or before the key.
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

    /// The numbers of the SSTables that may answer for keys of the range. O(log n).
    pub(crate) fn within(&self, range: &KeyRange) -> Range<usize> {
        let from = self.tables.partition_point(|t| !t.info.range.ends_after(&range.start));
        let to = self.tables.partition_point(|t| range.ends_after(t.start()));
        from..to.max(from)
    }

    /// The SSTable that answers for the key. O(log n).
    #[inline]
    pub(crate) fn find(&self, key: &[u8]) -> Option<&OpenTable> {
        let at = match &self.tables[..] {
            [_] => 0,
            _ => self.starting_upto(key).checked_sub(1)?,
        };
        Some(&self.tables[at]).filter(|t| t.covers(key))
    }
}

/// The place where last references go, so that no get pays for freeing memory or removing files.
#[derive(Default)]
pub(crate) struct Graveyard {
    versions: Mutex<Buried>,
    files: Mutex<VecDeque<Dead>>,
    punches: Mutex<VecDeque<Punch>>,
    /// The WAL files that SSTables need.
    pub(crate) logs: Shelf,
}

/// A file that may be removed.
pub(crate) enum Dead {
    /// An SSTable, and its open file if anybody ever opened it. Blocks of it may still be in the cache: a
    /// reader of an old version may have read more of it since it was replaced.
    Sstable(TableId, Option<Arc<Sstable>>),
    /// A WAL file that SSTables needed.
    Wal(LogFileId),
}

/// Versions that were swapped out, numbered in that order.
#[derive(Default)]
struct Buried {
    count: u64,
    held: Vec<(u64, Arc<Version>)>,
    /// How many versions had been swapped out when each [`PinnedTables`] began.
    copied_since: Vec<u64>,
}

/// SSTables whose files are being copied: as long as this is held none of them is removed, and no part of
/// them is freed that was in use when it began. Memory is not held.
pub(crate) struct PinnedTables {
    since: u64,
    graveyard: Arc<Graveyard>,
    _handles: Vec<Arc<TableHandle>>,
}

impl Drop for PinnedTables {
    fn drop(&mut self) {
        let since = &mut self.graveyard.versions.lock().copied_since;
        if let Some(at) = since.iter().position(|one| *one == self.since) {
            since.swap_remove(at);
        }
    }
}

/// An SSTable's lower part that has moved elsewhere, to be freed when no version swapped out before reads it.
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

    /// Holds the files of these SSTables as they are now. Parts that are clipped from them later wait.
    pub(crate) fn hold(self: &Arc<Self>, handles: Vec<Arc<TableHandle>>) -> PinnedTables {
        let mut versions = self.versions.lock();
        let since = versions.count;
        versions.copied_since.push(since);
        PinnedTables { since, graveyard: self.clone(), _handles: handles }
    }

    /// Frees the SSTable's blocks before that offset once nobody can read them any more. The clip that allows
    /// it is in the manifest, and the version that has it swapped in.
    pub(crate) fn punch(&self, handle: Arc<TableHandle>, upto: u64) {
        let after = self.versions.lock().count;
        self.punches.lock().push_back(Punch { after, handle, upto });
    }

    /// A punch that is due: the SSTable, and the offset below which it may be freed.
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
            if !handle.is_obsolete() {
                return Some((handle.info().id, upto));
            }
        }
    }

    /// Drops versions that nobody else holds.
    pub(crate) fn sweep(&self) {
        let mut versions = self.versions.lock();
        let free: Vec<_> = versions.held.extract_if(.., |(_, v)| Arc::strong_count(v) == 1).collect();
        // Dropping a version frees memory and locks `files`.
        drop(versions);
        drop(free);
    }

    /// Takes a file that may be removed; its blocks leave the cache.
    pub(crate) fn next_file(&self) -> Option<Dead> {
        let dead = self.files.lock().pop_front()?;
        if let Dead::Sstable(_, Some(table)) = &dead {
            table.evict(&[], None);
        }
        Some(dead)
    }

    /// Takes files that may be removed.
    pub(super) fn add(&self, files: impl Iterator<Item = Dead>) {
        self.files.lock().extend(files);
    }

    /// Gives files back whose removal failed.
    pub(crate) fn retry(&self, files: Vec<Dead>) {
        self.files.lock().extend(files);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.versions.lock().held.is_empty() && self.files.lock().is_empty() && self.punches.lock().is_empty()
    }

    /// The number of versions that are still read.
    pub(crate) fn held(&self) -> usize {
        self.versions.lock().held.len()
    }
}

/// The handle of an SSTable, which all that use the SSTable share. If it was made obsolete, its file is
/// removed when the last version that names it is gone.
///
/// Where each read is a request to a remote store, an open leaves the SSTables that the manifest names
/// unread: with thousands of them the first answer then waits for those that it needs, not for all. Whoever
/// needs one first opens it, and others who come meanwhile wait for that. An error is that caller's alone:
/// the next one tries again.
pub(crate) struct TableHandle {
    /// The open SSTable: set from the beginning, or by the first caller who needs it.
    table: OnceLock<Arc<Sstable>>,
    info: Arc<TableInfo>,
    /// The way to open it, until it is open. Held while it is read.
    opener: Mutex<Option<Arc<Opener>>>,
    obsolete: AtomicBool,
    graveyard: Arc<Graveyard>,
}

impl TableHandle {
    /// The handle of an open SSTable.
    pub(crate) fn new(table: Arc<Sstable>, graveyard: Arc<Graveyard>) -> Arc<Self> {
        let info = table.info().clone();
        Self::of(OnceLock::from(table), info, None, graveyard)
    }

    /// The handle of an SSTable of which nothing was read yet.
    pub(super) fn unread(info: Arc<TableInfo>, opener: Arc<Opener>, graveyard: Arc<Graveyard>) -> Arc<Self> {
        Self::of(OnceLock::new(), info, Some(opener), graveyard)
    }

    fn of(
        table: OnceLock<Arc<Sstable>>,
        info: Arc<TableInfo>,
        opener: Option<Arc<Opener>>,
        graveyard: Arc<Graveyard>,
    ) -> Arc<Self> {
        graveyard.logs.hold(&info.logs);
        let (opener, obsolete) = (Mutex::new(opener), AtomicBool::new(false));
        Arc::new(Self { table, info, opener, obsolete, graveyard })
    }

    /// The description with which it was opened, or is to be.
    pub(crate) fn info(&self) -> &Arc<TableInfo> {
        &self.info
    }

    /// The open SSTable; the first caller opens it, if it was left unread.
    ///
    /// For one that is open, this is a load and a branch that is always taken, beside the pointer that the
    /// caller follows.
    #[inline]
    pub(crate) fn table(&self) -> Result<&Arc<Sstable>> {
        match self.table.get() {
            Some(table) => Ok(table),
            None => self.open(),
        }
    }

    /// The SSTable, if it is open.
    pub(crate) fn opened(&self) -> Option<&Arc<Sstable>> {
        self.table.get()
    }

    #[cold]
    fn open(&self) -> Result<&Arc<Sstable>> {
        let mut opener = self.opener.lock();
        let table = match &*opener {
            Some(opener) => opener.open_unread(&self.info)?,
            // Another caller was first.
            None => return Ok(self.table.get().expect("an SSTable without an opener is open")),
        };
        *opener = None;
        Ok(self.table.get_or_init(|| table))
    }

    /// Marks the SSTable as no longer named by the manifest.
    pub(crate) fn make_obsolete(&self) {
        self.obsolete.store(true, Ordering::Release);
    }

    fn is_obsolete(&self) -> bool {
        self.obsolete.load(Ordering::Acquire)
    }
}

impl Drop for TableHandle {
    fn drop(&mut self) {
        let obsolete = self.is_obsolete();
        let logs = self.graveyard.logs.let_go(&self.info.logs, obsolete);
        if obsolete {
            let table = Dead::Sstable(self.info.id, self.table.take());
            self.graveyard.add(std::iter::once(table).chain(logs.into_iter().map(Dead::Wal)));
        }
    }
}

impl Version {
    /// A store without SSTables.
    pub(crate) fn new(active: Memtable) -> Self {
        Self {
            memory: Memtables::new(active),
            shape: Arc::default(),
            runs: Arc::default(),
            bounds: Arc::default(),
            old_side: Default::default(),
        }
    }

    /// The memtable that takes the writes.
    pub(crate) fn active(&self) -> &Arc<ActiveMemtable> {
        self.memory.active.as_active().expect("the first memtable is never flat")
    }

    /// This version with other memory.
    pub(crate) fn with_memory(&self, memory: Memtables) -> Version {
        let (shape, runs) = (self.shape.clone(), self.runs.clone());
        let (bounds, old_side) = (self.bounds.clone(), self.old_side.clone());
        Version { memory, shape, runs, bounds, old_side }
    }

    /// This version with its active memtable frozen (left out if empty) and `active` in its place.
    pub(crate) fn with_fresh_active(&self, active: Arc<ActiveMemtable>) -> Version {
        self.with_memory(self.memory.with_fresh_active(active))
    }

    /// This version for a store that answers for those keys only.
    pub(crate) fn within(&self, bounds: KeyRange) -> Version {
        let version = self.with_memory(self.memory.clone());
        Version { bounds: Arc::new(bounds), old_side: Default::default(), ..version }
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

    /// Every SSTable.
    pub(crate) fn tables(&self) -> impl Iterator<Item = &OpenTable> {
        self.runs.iter().flat_map(|run| run.tables.iter())
    }

    /// This version with other SSTables: those of `shape`, found among this version's and `opened`.
    pub(crate) fn with_shape(
        &self,
        shape: Arc<Shape>,
        opened: &BTreeMap<TableId, Arc<TableHandle>>,
    ) -> Version {
        let runs = open_runs(&shape, &self.runs, opened);
        let (memory, bounds) = (self.memory.clone(), self.bounds.clone());
        Version { memory, shape, runs, bounds, old_side: Default::default() }
    }
}

/// The runs of a shape in reading order: their SSTables are among those of `before` and `opened`.
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
