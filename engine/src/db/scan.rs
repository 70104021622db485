//! Scans, both ways.
//!
//! A scan pins one version and one read point. With implicit timestamps going forward, the first cell of a key that
//! is at or below the read point decides, so nothing is collected or copied but the key (to skip its older
//! cells). Everything else (operands, explicit timestamps, going backward) gathers a key's cells and resolves
//! them as a get does.

use super::covers::Covers;
use super::visible::{Found, resolve};
use super::{Inner, Shared};
use crate::commit::{FamilySettings, ReadRules, Store};
use crate::error::{Error, ErrorKind, Result};
use crate::memory::{Segment, SegmentCursor};
use crate::merge::{Floor, Merging, RunCursor};
use crate::snapshot::Snapshot;
use crate::table::CursorOptions;
use crate::types::{CellRef, Cursor, KeyRange, Kind, Pinned, SeqNo, TimeRange, Timestamp};
use crate::version::{Chain, OpenRun, Version};
use std::collections::VecDeque;
use std::ops::{ControlFlow, RangeBounds};
use std::sync::Arc;

/// A key and its value, as a scan yields them.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// let db = siltstone::Db::open(dir.path())?;
/// db.put(b"k", b"v")?;
/// let entry = db.scan("a".."z").next().unwrap()?;
/// assert_eq!((&entry.key[..], &*entry.value), (&b"k"[..], &b"v"[..]));
/// # Ok::<(), siltstone::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Entry {
    /// The key.
    pub key: Vec<u8>,
    /// Zero in families with implicit timestamps.
    pub timestamp: Timestamp,
    /// The value.
    pub value: Pinned,
}

/// Walks over a range of keys in order; an iterator of [`Entry`]s. It sees the database as it was when it was made.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// let db = siltstone::Db::open(dir.path())?;
/// for key in ["ant", "bee", "cat"] {
///     db.put(key.as_bytes(), b"1")?;
/// }
/// let keys: Vec<_> = db.scan("b"..).map(|entry| entry.map(|e| e.key)).collect::<siltstone::Result<_>>()?;
/// assert_eq!(keys, [b"bee", b"cat"]);
/// let last = db.scan::<&str>(..).reverse().next().unwrap()?;
/// assert_eq!(last.key, b"cat");
/// # Ok::<(), siltstone::Error>(())
/// ```
pub struct Scan {
    cursor: Merging<Source>,
    settings: Arc<FamilySettings>,
    covers: Covers,
    range: KeyRange,
    times: TimeRange,
    /// What has to be known for that.
    looks_at: TimeRange,
    read: SeqNo,
    now_us: u64,
    reverse: bool,
    started: bool,
    failed: bool,
    /// Why there is nothing to scan, or nothing of those times; the first step says so.
    refused: Option<Error>,
    untimed: Option<Error>,
    /// The last key taken, whose older cells are to be skipped.
    key: Vec<u8>,
    key_taken: bool,
    /// Resolved versions of the current key not yet yielded.
    ready: VecDeque<(Timestamp, Pinned)>,
    cells: Vec<Found>,
    _snapshot: Option<Snapshot>,
    _db: Shared,
}

impl Inner {
    pub(crate) fn scan(db: &Shared, store: &Arc<Store>, range: KeyRange, snapshot: Option<Snapshot>) -> Scan {
        let refused = db.commit.check_open().and_then(|()| store.check_not_dropped());
        let refused = refused.and_then(|()| {
            let Some(snapshot) = &snapshot else { return Ok(()) };
            db.commit.check_snapshot(snapshot)?;
            store.check_read_point(snapshot.seq())
        });
        let settings = crate::sync::Guard::into_inner(store.settings());
        let refused = refused.and_then(|()| settings.read.check_filter());
        let now_us = db.now_for(&settings.read);
        let (version, read) = db.view(snapshot.as_ref().map(Snapshot::seq), || store.version_full());
        let range = range.intersect(&version.bounds);
        Scan {
            cursor: Merging::new(sources(&version, &range, read, TimeRange::ALL)),
            settings,
            covers: Covers::new(version, store, read),
            range,
            times: TimeRange::ALL,
            looks_at: TimeRange::ALL,
            read,
            now_us,
            reverse: false,
            started: false,
            failed: false,
            key: Vec::new(),
            key_taken: false,
            ready: VecDeque::new(),
            cells: Vec::new(),
            _snapshot: snapshot,
            _db: db.clone(),
            refused: refused.err(),
            untimed: None,
        }
    }

    /// Whether something that concerns a key of the range may have been written after `seq`. Looks into memory alone; a `true`
    /// may be wrong.
    pub(crate) fn range_may_have_changed(&self, store: &Store, range: &KeyRange, seq: SeqNo) -> bool {
        let version = store.version();
        let changed = version.memory().filter(|segment| segment.has_newer(seq)).any(|segment| {
            let mut cursor = segment.cursor();
            let mut newer = || -> Result<bool> {
                cursor.seek(&range.start)?;
                while cursor.valid() && range.ends_after(cursor.cell().key) {
                    if cursor.cell().seq > seq {
                        return Ok(true);
                    }
                    cursor.next()?;
                }
                Ok(false)
            };
            segment.has_newer_tombstone(range, seq) || newer().unwrap_or(true)
        });
        let in_tables = |run: &OpenRun| run.tables[run.within(range)].iter().any(|t| t.info.seqs.1 > seq);
        changed || version.runs.iter().any(in_tables) || store.forgotten() > seq || store.attached_at() > seq
    }

    /// Whether anything concerning a key of the range was written after `seq`, or may have been: as
    /// [`Inner::is_unchanged_since`].
    pub(crate) fn written_since(&self, store: &Store, range: &KeyRange, seq: SeqNo) -> Result<bool> {
        let version = store.version();
        if store.attached_at() > seq {
            return Ok(true);
        }
        let in_tables = |run: &OpenRun| {
            let mut newer = run.tables[run.within(range)].iter().filter(|open| open.info.seqs.1 > seq);
            newer.any(|open| {
                let within = range.intersect(&open.info.live_range());
                open.table().fragments().tombstones_within(&within).any(|t| t.seq > seq)
            })
        };
        if version.memory().any(|segment| segment.has_newer_tombstone(range, seq))
            || version.runs.iter().filter(|run| run.has_ranges).any(in_tables)
        {
            return Ok(true);
        }
        for cursor in &mut sources(&version, range, SeqNo::MAX, TimeRange::ALL) {
            cursor.seek(&range.start)?;
            while cursor.valid() && range.ends_after(cursor.cell().key) {
                if cursor.cell().seq > seq {
                    return Ok(true);
                }
                cursor.next()?;
            }
        }
        Ok(store.forgotten() > seq)
    }
}

/// One source of a scan, some with the newest sequence number there; an enum, as a call through a table of functions for
/// each cell would cost more than the step.
enum Source {
    Segment(SegmentCursor, Option<SeqNo>),
    Flushing(Floor<SegmentCursor>),
    Chain(Floor<Chain>),
    Run(Box<RunCursor>),
}

macro_rules! each {
    ($self:ident, $cursor:ident => $call:expr) => {
        match $self {
            Source::Segment($cursor, _) => $call,
            Source::Flushing($cursor) => $call,
            Source::Chain($cursor) => $call,
            Source::Run($cursor) => $call,
        }
    };
}

impl Cursor for Source {
    fn seek(&mut self, key: &[u8]) -> Result<()> {
        each!(self, cursor => cursor.seek(key))
    }
    fn seek_before(&mut self, key: Option<&[u8]>) -> Result<()> {
        each!(self, cursor => cursor.seek_before(key))
    }
    #[inline]
    fn next(&mut self) -> Result<()> {
        each!(self, cursor => cursor.next())
    }
    fn prev(&mut self) -> Result<()> {
        each!(self, cursor => cursor.prev())
    }
    #[inline]
    fn valid(&self) -> bool {
        each!(self, cursor => cursor.valid())
    }
    #[inline]
    fn cell(&self) -> CellRef<'_> {
        each!(self, cursor => cursor.cell())
    }
    fn pinned_value(&self) -> Pinned {
        each!(self, cursor => cursor.pinned_value())
    }
}

impl Source {
    fn is_active(&self) -> bool {
        matches!(self, Source::Segment(_, None))
    }

    /// Goes past the cells of the range that are all older than `whole`, if it knows that they are.
    fn pass(&mut self, range: &KeyRange, whole: SeqNo, reverse: bool) -> Result<()> {
        // Elsewhere it is beyond them already.
        if !range.contains(self.cell().key) {
            return Ok(());
        }
        match self {
            Source::Segment(cursor, Some(newest)) if *newest < whole => match (reverse, &range.end) {
                (true, _) => cursor.seek_before(Some(&range.start)),
                (false, Some(end)) => cursor.seek(end),
                // There is nothing behind it.
                (false, None) => {
                    cursor.seek_before(None)?;
                    if cursor.valid() { cursor.next() } else { Ok(()) }
                }
            },
            Source::Run(cursor) => cursor.pass(range, whole, reverse),
            _ => Ok(()),
        }
    }
}

/// Cursors over everything in the version that overlaps the range and speaks of those times, newest first.
fn sources(version: &Version, range: &KeyRange, read: SeqNo, times: TimeRange) -> Vec<Source> {
    let mut cursors = Vec::new();
    let concerns =
        |segment: &Segment, range: &KeyRange| segment.concerns(range, read) && segment.speaks_of(times);
    // Nothing is written to any segment but the active one, so that what is newest there stays so.
    let segment =
        |segment: &Segment| Source::Segment(segment.cursor(), segment.seqs().map(|seqs| *seqs.end()));
    if !version.active.is_empty() && version.active.speaks_of(times) {
        cursors.push(Source::Segment(version.active.cursor(), None));
    }
    cursors.extend(version.frozen.iter().filter(|segment| concerns(segment, range)).map(segment));
    let chains = version.scattered.chains(range, times);
    cursors.extend(chains.map(|chain| Source::Chain(Floor::new(chain, Vec::new()))));
    let clip = &version.flush.clip;
    let above = range.intersect(&KeyRange { start: clip.clone(), end: None });
    for flushing in version.flush.segments.iter().filter(|segment| concerns(segment, &above)) {
        match clip.is_empty() {
            true => cursors.push(segment(flushing)),
            false => cursors.push(Source::Flushing(Floor::new(flushing.cursor(), clip.clone()))),
        }
    }
    let apart = &version.flush.scattered;
    cursors.extend(apart.chains(&above, times).map(|chain| Source::Chain(Floor::new(chain, clip.clone()))));
    let options = CursorOptions { fill_cache: true, read_ahead_bytes: 0, through_cache: true };
    for run in &version.runs {
        let within = run.within(range);
        if within.is_empty() {
            continue;
        }
        let tables = &run.tables[within.clone()];
        let cursor = match times == TimeRange::ALL || tables.iter().all(|open| open.speaks_of(times)) {
            true => RunCursor::new(&run.tables, within, options),
            false => {
                let some: Arc<[_]> = tables.iter().filter(|open| open.speaks_of(times)).cloned().collect();
                if some.is_empty() {
                    continue;
                }
                RunCursor::new(&some, 0..some.len(), options)
            }
        };
        cursors.push(Source::Run(Box::new(cursor)));
    }
    cursors
}

impl Scan {
    /// The same range from its end to its start. Before the first entry was taken.
    #[must_use]
    pub fn reverse(mut self) -> Self {
        assert!(!self.started, "a scan cannot turn around once it began");
        self.reverse = !self.reverse;
        self
    }

    /// Only versions with these timestamps, of a family with explicit ones (of another the first step says so). Which
    /// versions a key has does not depend on it: a version is the newest, or deleted, or one too many, by all of
    /// them. Before the first entry was taken, and before a seek; it panics afterwards.
    ///
    /// Memory and tables that say nothing about these times are not read (Accordion, section 2.1). Where only so many
    /// versions are kept, those with later timestamps are, as they decide which these are; so are those with a delete
    /// of all versions.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # use siltstone::{Db, FamilyOptions, Timestamp, Timestamps};
    /// # let db = Db::open(dir.path())?;
    /// let options = FamilyOptions { timestamps: Timestamps::Explicit, versions: 0, ..Default::default() };
    /// let events = db.create_family("events", options)?;
    /// for day in 1..=9 {
    ///     events.put_at(b"door", Timestamp(day), b"opened")?;
    /// }
    /// let days = events.scan::<&str>(..).times(Timestamp(3)..Timestamp(6));
    /// let days: Vec<_> = days.map(|entry| entry.map(|e| e.timestamp.0)).collect::<siltstone::Result<_>>()?;
    /// assert_eq!(days, [5, 4, 3]);
    /// # Ok::<(), siltstone::Error>(())
    /// ```
    #[must_use]
    pub fn times(mut self, times: impl RangeBounds<Timestamp>) -> Self {
        assert!(!self.started, "a scan's times are said before it begins");
        self.times = TimeRange::from_bounds(&times);
        match self.settings.read.looks_at(self.times) {
            Ok(looks_at) => {
                let cursors = match looks_at.is_empty() {
                    true => Vec::new(),
                    false => sources(&self.covers.version, &self.range, self.read, looks_at),
                };
                self.cursor = Merging::new(cursors);
                (self.looks_at, self.untimed) = (looks_at, None);
            }
            Err(why) => self.untimed = Some(why),
        }
        self
    }

    /// Goes to the first key at or after `key` (going backward: at or before it) within the range. Reuses the open
    /// cursors, so many seeks over one scan are cheaper than many scans.
    pub fn seek(&mut self, key: impl AsRef<[u8]>) -> Result<()> {
        self.check()?;
        self.ready.clear();
        self.key_taken = false;
        self.started = true;
        let sought = match self.reverse {
            false => self.cursor.seek(key.as_ref().max(&self.range.start)),
            true => {
                let after = crate::types::successor(key.as_ref());
                let end = self.range.end.as_deref().filter(|end| *end < after.as_slice());
                let end = end.unwrap_or(&after).to_vec();
                self.cursor.seek_before(Some(&end))
            }
        };
        self.failed = sought.is_err();
        sought
    }

    /// Whether there is anything to scan.
    fn check(&self) -> Result<()> {
        self.refused.as_ref().or(self.untimed.as_ref()).map_or(Ok(()), |why| Err(why.clone()))
    }

    fn start(&mut self) -> Result<()> {
        self.started = true;
        match self.reverse {
            false => self.cursor.seek(&self.range.start),
            true => self.cursor.seek_before(self.range.end.as_deref()),
        }
    }

    fn in_range(&self) -> bool {
        self.cursor.valid() && {
            let key = self.cursor.cell().key;
            if self.reverse { key >= self.range.start.as_slice() } else { self.range.ends_after(key) }
        }
    }

    fn advance(&mut self) -> Result<Option<Entry>> {
        if !self.started {
            self.start()?;
        }
        loop {
            if let Some((timestamp, value)) = self.ready.pop_front() {
                return Ok(Some(Entry { key: self.key.clone(), timestamp, value }));
            }
            if !self.in_range() {
                return Ok(None);
            }
            if !self.reverse && !self.settings.read.explicit {
                if let Some(entry) = self.forward_one()? {
                    return Ok(Some(entry));
                }
            } else {
                self.gather_key()?;
            }
        }
    }

    /// Looks at the cell here: its entry if it decides its key with a value; goes on by at least one cell.
    fn forward_one(&mut self) -> Result<Option<Entry>> {
        let cell = self.cursor.cell();
        if (self.key_taken && cell.key == self.key) || cell.seq > self.read {
            self.cursor.next()?;
            return Ok(None);
        }
        if cell.kind == Kind::Operand {
            self.gather_key()?;
            return Ok(None);
        }
        self.key.clear();
        self.key.extend_from_slice(cell.key);
        self.key_taken = true;
        let covered = self.covers.is_covered(cell.key, cell.seq);
        let in_active = covered && self.cursor.front().is_active();
        let gone =
            covered || cell.kind == Kind::Tombstone || is_gone(&self.settings.read, &cell, self.now_us);
        let entry = (!gone).then(|| {
            let value = self.cursor.pinned_value();
            Entry { key: self.key.clone(), timestamp: Timestamp::ZERO, value }
        });
        self.cursor.next()?;
        if covered {
            self.pass_covered(in_active)?;
        }
        Ok(entry)
    }

    /// What it knows of range tombstones.
    #[cfg(all(test, not(models)))]
    pub(crate) fn covers(&self) -> &Covers {
        &self.covers
    }

    /// Behind a covered cell: goes past all that is covered like it, where that can be done at once.
    fn pass_covered(&mut self, in_active: bool) -> Result<()> {
        let Some((keys, whole)) = self.covers.looked(in_active) else { return Ok(()) };
        let keys = keys.intersect(&self.range);
        let reverse = self.reverse;
        self.cursor.pass(|source| source.pass(&keys, whole, reverse))
    }

    /// Gathers all cells of the key here, leaves the cursor behind them (in its direction), and resolves them.
    fn gather_key(&mut self) -> Result<()> {
        let in_active = self.cursor.front().is_active();
        self.key.clear();
        self.key.extend_from_slice(self.cursor.cell().key);
        self.key_taken = true;
        self.cells.clear();
        while self.cursor.valid() && self.cursor.cell().key == self.key {
            let cell = self.cursor.cell();
            if cell.seq <= self.read && ReadRules::says_of(&cell, self.looks_at) {
                let (timestamp, seq, kind, written) = (cell.timestamp, cell.seq, cell.kind, cell.written);
                let value = self.cursor.pinned_value();
                self.cells.push(Found { timestamp, seq, kind, written, value });
            }
            if self.reverse { self.cursor.prev()? } else { self.cursor.next()? }
        }
        if self.reverse {
            self.cells.reverse();
        }
        self.cells.dedup_by(|a, b| a.timestamp == b.timestamp && a.seq == b.seq);
        let covered = self.cells.iter().map(|cell| cell.seq).max();
        let Self { settings, key, cells, covers, ready, times, .. } = self;
        let tombstones = covers.over(key);
        resolve(&settings.read, key, cells, tombstones, self.read, self.now_us, &mut |timestamp, value| {
            if times.contains(timestamp) {
                ready.push_back((timestamp, value));
            }
            if settings.read.explicit { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        if self.reverse {
            self.ready.make_contiguous().reverse();
        }
        if covered.is_some_and(|newest| self.covers.covers_all(newest)) {
            self.pass_covered(in_active)?;
        }
        Ok(())
    }
}

/// Whether the cell is hidden by age or by the family's filter.
fn is_gone(rules: &ReadRules, cell: &CellRef<'_>, now_us: u64) -> bool {
    (rules.ttl_us > 0 && cell.born_us(false).saturating_add(rules.ttl_us) <= now_us)
        || rules.filter.as_ref().is_some_and(|f| f.remove(cell.key, Timestamp::ZERO, cell.value, now_us))
}

impl Iterator for Scan {
    type Item = Result<Entry>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        if let Err(why) = self.check() {
            self.failed = true;
            return Some(Err(why));
        }
        let next = self.advance();
        // What the merge operator refused concerns one key, which is behind us.
        self.failed = next.as_ref().is_err_and(|e| e.kind() != ErrorKind::MergeRefused);
        next.transpose()
    }
}

impl std::fmt::Debug for Scan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Scan({} at {})", self.range, self.read)
    }
}
