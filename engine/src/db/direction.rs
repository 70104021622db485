//! A walk through the entries of a range in one direction, of which scans and cursors are made.
//!
//! A [`View`] pins one version and one read point; a [`Walk`] goes over it in one direction. With implicit
//! timestamps going forward, the first cell of a key that is at or below the read point decides, so nothing
//! is collected or copied but the key (to skip its older cells). Everything else (operands, explicit
//! timestamps, going backward) gathers a key's cells and resolves them as a get does.

use super::Shared;
use super::entry::Entry;
use super::sources::{Source, sources};
use super::tombstone_skip::{Covers, tell_dead_looks};
use super::visible::{Found, resolve};
use crate::commit::{FamilySettings, ReadRules, Store};
use crate::compaction::Merging;
use crate::error::{Error, Result};
use crate::snapshot::Snapshot;
use crate::types::{CellRef, Cursor as _, KeyRange, Kind, Pinned, SeqNo, TimeRange, Timestamp};
use crate::version::Version;
use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The pinned state that a scan or cursor walks over, in either direction.
pub(super) struct View {
    version: Arc<Version>,
    store: Arc<Store>,
    settings: Arc<FamilySettings>,
    range: KeyRange,
    times: TimeRange,
    /// The timestamps that have to be looked at to answer for `times`.
    looks_at: TimeRange,
    read: SeqNo,
    now_us: u64,
    /// Entries come without values.
    pub(super) keys_alone: bool,
    /// Covered cells visited in the active memtable.
    seek_misses: AtomicU64,
    /// The error of the first step: the view is refused, or nothing can be said of `times`.
    pub(super) refused: Option<Error>,
    untimed: Option<Error>,
    _snapshot: Option<Snapshot>,
    db: Shared,
}

impl View {
    pub(super) fn new(db: &Shared, store: &Arc<Store>, range: KeyRange, snapshot: Option<Snapshot>) -> View {
        let refused = db.cx.check_open().and_then(|()| store.check_not_dropped());
        let refused = refused.and_then(|()| {
            let Some(snapshot) = &snapshot else { return Ok(()) };
            db.commit.check_snapshot(snapshot)?;
            store.check_read_point(snapshot.seq())
        });
        let settings = crate::sync::Guard::into_inner(store.settings());
        let refused = refused.and_then(|()| settings.read.check_filter());
        let now_us = db.now_for(&settings.read);
        let (version, read) = db.view(snapshot.as_ref().map(Snapshot::seq), || store.version_full());
        let range = match version.bounds.covers(&range) {
            true => range,
            false => range.intersect(&version.bounds),
        };
        View {
            #[cfg(feature = "papers")]
            version: version.for_scan(&range),
            #[cfg(not(feature = "papers"))]
            version,
            range,
            store: store.clone(),
            settings,
            times: TimeRange::ALL,
            looks_at: TimeRange::ALL,
            read,
            now_us,
            keys_alone: false,
            seek_misses: AtomicU64::new(0),
            refused: refused.err(),
            untimed: None,
            _snapshot: snapshot,
            db: db.clone(),
        }
    }

    pub(super) fn set_times(&mut self, times: TimeRange) {
        self.times = times;
        match self.settings.read.looks_at(times) {
            Ok(looks_at) => (self.looks_at, self.untimed) = (looks_at, None),
            Err(why) => self.untimed = Some(why),
        }
    }

    /// Whether a key may have several entries, one for each version.
    pub(super) fn has_versions(&self) -> bool {
        self.settings.read.explicit
    }

    /// The error that the next step is to return, if any: the view is refused, or the lease has ended.
    #[inline]
    pub(super) fn check(&self) -> Result<()> {
        match (&self.refused, &self.untimed) {
            (None, None) => self.db.cx.check_lease(),
            (Some(why), _) | (None, Some(why)) => Err(why.clone()),
        }
    }

    /// Notes that a walk found nothing left in the range.
    #[cold]
    fn note_emptied(&self, range: KeyRange) {
        // Of other times there may be something. And where another active memtable was begun after the
        // version was taken, that may have something from before the read point.
        if self.looks_at == TimeRange::ALL
            && self.store.version().memory.active.is(&self.version.memory.active)
        {
            self.store.emptied.note(&self.version.bounds, range, self.read);
        }
    }

    /// Opens what lies in the range.
    pub(super) fn walk(&self, direction: Direction) -> Walk {
        let cursors = match self.looks_at.is_empty() {
            true => Vec::new(),
            false => sources(&self.version, &self.range, self.read, self.looks_at),
        };
        Walk {
            cursor: Merging::new(cursors),
            covers: Covers::new(&self.store, &self.version, self.read),
            direction,
            started: false,
            key: Vec::new(),
            key_taken: false,
            stays: false,
            ready: VecDeque::new(),
            cells: Vec::new(),
        }
    }
}

impl Drop for View {
    fn drop(&mut self) {
        tell_dead_looks(&self.store, *self.seek_misses.get_mut());
    }
}

impl std::fmt::Debug for View {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} at {}", self.range, self.read)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Direction {
    Forward,
    Backward,
}

/// A place in a view, and the way on from there.
pub(super) struct Walk {
    cursor: Merging<Source>,
    pub(super) covers: Covers,
    pub(super) direction: Direction,
    started: bool,
    /// The last key taken, whose other cells are to be skipped.
    key: Vec<u8>,
    key_taken: bool,
    /// Whether the cursor is still at the cell whose value was yielded last: it moves on only when more is
    /// wanted.
    stays: bool,
    /// Resolved versions of that key not yet yielded.
    ready: VecDeque<(Timestamp, Pinned)>,
    cells: Vec<Found>,
}

impl Walk {
    /// How far it has come: a key, and whether versions of it are left.
    pub(super) fn reached(&self) -> Option<(&[u8], bool)> {
        self.key_taken.then_some((&self.key[..], !self.ready.is_empty()))
    }

    /// Moves to the first key of the range at or after `key`, going forward from now on.
    pub(super) fn seek(&mut self, view: &View, key: &[u8]) -> Result<()> {
        self.forget(view, Direction::Forward);
        self.cursor.seek(key.max(&view.range.start))
    }

    /// Moves to the last key of the range before `end`, going backward from now on.
    pub(super) fn seek_before(&mut self, view: &View, end: Option<&[u8]>) -> Result<()> {
        self.forget(view, Direction::Backward);
        let last = view.range.end.as_deref();
        let end = match (end, last) {
            (Some(end), Some(last)) => Some(end.min(last)),
            (end, last) => end.or(last),
        };
        self.cursor.seek_before(end)
    }

    fn forget(&mut self, view: &View, direction: Direction) {
        self.end_run(view);
        self.direction = direction;
        self.ready.clear();
        self.key_taken = false;
        self.stays = false;
        self.started = true;
    }

    /// Whether the cell here lies in the range, and not beyond where a walk the other way has come.
    fn in_range(&self, view: &View, met: Option<(&[u8], bool)>) -> bool {
        self.cursor.valid() && {
            let key = self.cursor.key();
            let within = match self.direction {
                Direction::Forward => view.range.ends_after(key),
                Direction::Backward => key >= view.range.start.as_slice(),
            };
            within
                && met.is_none_or(|(other, has_more)| match self.direction {
                    Direction::Forward => key < other || (has_more && key == other),
                    Direction::Backward => key > other || (has_more && key == other),
                })
        }
    }

    /// The next entry, in the walk's direction. `met` is where a walk the other way has come.
    #[inline]
    pub(super) fn advance(&mut self, view: &View, met: Option<(&[u8], bool)>) -> Result<Option<Entry>> {
        let mut value = Pinned::default();
        let found = self.step(view, met, &mut value)?;
        Ok(found.map(|timestamp| Entry { key: self.key.clone(), timestamp, value }))
    }

    /// Puts the next entry into `entry`, whose memory is used again; `false` if there is none.
    pub(super) fn advance_into(&mut self, view: &View, entry: &mut Entry) -> Result<bool> {
        let Some(timestamp) = self.step(view, None, &mut entry.value)? else { return Ok(false) };
        entry.timestamp = timestamp;
        entry.key.clear();
        entry.key.extend_from_slice(&self.key);
        Ok(true)
    }

    /// Moves to the next entry: its key is in `self.key`, its value in `value`, and its timestamp is the
    /// answer.
    fn step(
        &mut self,
        view: &View,
        met: Option<(&[u8], bool)>,
        value: &mut Pinned,
    ) -> Result<Option<Timestamp>> {
        if !self.started {
            match self.direction {
                Direction::Forward => self.seek(view, &view.range.start)?,
                Direction::Backward => self.seek_before(view, None)?,
            }
        }
        if std::mem::take(&mut self.stays) {
            self.cursor.next()?;
        }
        loop {
            if let Some((timestamp, ready)) = self.ready.pop_front() {
                *value = ready;
                return Ok(Some(timestamp));
            }
            if !self.in_range(view, met) {
                self.end_run(view);
                return Ok(None);
            }
            if self.direction == Direction::Forward && !view.settings.read.explicit {
                if self.forward_one(view, value)? {
                    return Ok(Some(Timestamp::ZERO));
                }
            } else {
                self.gather_key(view)?;
            }
        }
    }

    /// Judges the present cell. If it decides its key with a value, puts that into `value` and returns
    /// `true`; else moves on by at least one cell.
    fn forward_one(&mut self, view: &View, value: &mut Pinned) -> Result<bool> {
        let cell = self.cursor.cell();
        if (self.key_taken && cell.key == self.key) || cell.seq > view.read {
            self.cursor.next()?;
            return Ok(false);
        }
        if cell.kind == Kind::Operand {
            self.gather_key(view)?;
            return Ok(false);
        }
        // Before the key is taken: after an error it is still to come.
        let covered = self.covers.is_covered(&view.version, cell.key, cell.seq)?;
        self.key.clear();
        self.key.extend_from_slice(cell.key);
        self.key_taken = true;
        let in_active = covered && self.cursor.front().is_active();
        let rules = &view.settings.read;
        let gone = covered
            || matches!(cell.kind, Kind::Tombstone | Kind::Hidden)
            || match rules.filter.is_some() {
                // The filter judges the copy that the caller gets: bytes in a mapping are not trusted.
                true => {
                    self.cursor.pin_value(value)?;
                    is_gone(rules, &CellRef { value: &value[..], ..cell }, view.now_us)
                }
                false => is_too_old(rules, &cell, view.now_us),
            };
        match (gone, view.keys_alone) {
            (true, _) => {}
            (false, true) => *value = Pinned::default(),
            (false, false) if rules.filter.is_some() => {}
            (false, false) => self.cursor.pin_value(value)?,
        }
        // A key that a point tombstone deletes neither extends nor ends the run of deleted keys.
        if covered && self.covers.covers_all(cell.seq) {
            self.covers.met_deleted(&self.key);
        } else if self.covers.has_run() && (covered || cell.kind != Kind::Tombstone) {
            self.note_run(view);
        }
        self.stays = !gone;
        if !self.stays {
            self.cursor.next()?;
        }
        if covered {
            self.pass_covered(view, in_active)?;
        }
        Ok(!gone)
    }

    /// Ends the run of deleted keys that the walk has met, if any, before `self.key`.
    #[inline]
    fn end_run(&mut self, view: &View) {
        if self.covers.has_run() {
            self.note_run(view);
        }
    }

    #[cold]
    fn note_run(&mut self, view: &View) {
        let backward = self.direction == Direction::Backward;
        if let Some(range) = self.covers.end_run(&self.key, backward) {
            view.note_emptied(range);
        }
    }

    /// Skips all cells that are covered like the one just passed, where that can be done at once.
    fn pass_covered(&mut self, view: &View, in_active: bool) -> Result<()> {
        if in_active {
            view.seek_misses.fetch_add(1, Ordering::Relaxed);
        }
        let Some((keys, whole)) = self.covers.looked() else { return Ok(()) };
        let keys = keys.intersect(&view.range);
        let backward = self.direction == Direction::Backward;
        self.cursor.pass(|source| source.pass(&keys, whole, backward))
    }

    /// Gathers all cells of the key here, leaves the cursor behind them (in its direction), and resolves
    /// them.
    fn gather_key(&mut self, view: &View) -> Result<()> {
        // Before the key is taken: after an error it is still to come.
        self.covers.over(&view.version, self.cursor.key())?;
        let backward = self.direction == Direction::Backward;
        let in_active = self.cursor.front().is_active();
        self.key.clear();
        self.key.extend_from_slice(self.cursor.key());
        self.key_taken = true;
        self.cells.clear();
        while self.cursor.valid() && self.cursor.key() == self.key {
            let cell = self.cursor.cell();
            if cell.seq <= view.read && ReadRules::says_of(&cell, view.looks_at) {
                let mut value = Pinned::default();
                self.cursor.pin_value(&mut value)?;
                self.cells.push(Found::new(&cell, value));
            }
            if backward { self.cursor.prev()? } else { self.cursor.next()? }
        }
        if backward {
            self.cells.reverse();
        }
        self.cells.dedup_by(|a, b| a.timestamp == b.timestamp && a.seq == b.seq);
        let covered = self.cells.iter().map(|cell| cell.seq).max();
        let Self { key, cells, covers, ready, .. } = self;
        let rules = &view.settings.read;
        let resolved = resolve(
            rules,
            key,
            cells,
            covers.over(&view.version, key)?,
            view.read,
            view.now_us,
            &mut |timestamp, value| {
                if view.times.contains(timestamp) {
                    ready.push_back((timestamp, if view.keys_alone { Pinned::default() } else { value }));
                }
                if rules.explicit { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            },
        );
        if resolved.is_err() {
            // The key is refused as a whole.
            ready.clear();
            self.end_run(view);
        }
        resolved?;
        if backward {
            self.ready.make_contiguous().reverse();
        }
        if covered.is_some_and(|newest| self.covers.covers_all(newest)) {
            self.covers.met_deleted(&self.key);
            self.pass_covered(view, in_active)?;
        } else if covered.is_some() {
            self.end_run(view);
        }
        Ok(())
    }
}

/// Whether the cell is hidden by age or by the family's filter.
fn is_gone(rules: &ReadRules, cell: &CellRef<'_>, now_us: u64) -> bool {
    is_too_old(rules, cell, now_us) || rules.unwanted(cell.key, Timestamp::ZERO, cell.value, now_us)
}

/// Whether the cell is hidden by age.
#[inline(always)]
fn is_too_old(rules: &ReadRules, cell: &CellRef<'_>, now_us: u64) -> bool {
    rules.ttl_us > 0 && cell.born_us(false).saturating_add(rules.ttl_us) <= now_us
}
