//! Cleaning the WAL from its front: what memory still holds of the oldest file is logged again at the end, so
//! that the file can go (ACC-8, TRI-2, RNG-5).
//!
//! Which cells came from a file? WAL files hold ascending sequence numbers, so the file's own entries are
//! below the number that the next file began with, and so are all copies in it. What of a memtable was logged
//! again before is known by a bound (`memtable/memtable.rs`): everything below it stands in later files. So
//! of each memtable that needs the file, the cells between that bound and the next file's first number are
//! taken. What a newer cell covers is left out: the WAL is read only after a crash, and no snapshot outlives
//! one.
//!
//! A copy keeps its sequence number and gets the generation of the memtable in which it was found (invariant
//! I1). A flush that takes this memtable claims at least that generation, whether it ends before or after the
//! copy is logged: so a copy of a cell that has been in an SSTable since, and was deleted there, does not
//! come back.
//!
//! Order: copies, sync, then the memtables are told that they need the file no more, then the manifest, then
//! the file goes. The sync covers what covers the cells left out, too. A crash in between finds some cells
//! twice, which is once (`replay.rs`).

use super::outcome::{FlushRequest, JobProgress};
use crate::catalog::Catalog;
use crate::commit::Store;
use crate::compaction::Merging;
use crate::error::{Error, ErrorKind, Result};
use crate::event::EventKind;
use crate::memtable::{Again, Judge, Memtable, MemtableCursor, Visibility};
use crate::strategy::{FrontFacts, FrontPlan, plan_front};
use crate::types::{
    Cell, Cursor, Generation, KeyRange, LogFileId, LogPosition, RangeTombstone, SeqNo, StoreId,
};
use crate::version::edit::Change;
use crate::wal::Entry;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Cells looked at between two turns.
const CELLS: usize = 2_000;

/// The pause after a look that changed nothing.
const PAUSE_NS: u64 = 10_000_000;

/// What a look at the WAL's oldest file leads to.
#[derive(Default)]
pub(crate) struct Cleaned {
    /// A flush that is wanted, of the store that most of the file belongs to.
    pub(crate) flush: Option<FlushRequest>,
    /// The moment before which no other look comes (monotonic ns).
    pub(crate) pause_until: Option<u64>,
    /// The file, if it is not looked at again while the WAL is below its limit.
    pub(crate) left: Option<LogFileId>,
}

/// A cleaning of the WAL's oldest file that is under way.
pub(crate) struct CleanJob {
    pub(crate) id: u32,
    front: LogFileId,
    /// The WAL's files by the sequence number they begin with; the second one is the next after `front`.
    files: Vec<(SeqNo, LogFileId)>,
    facts: FrontFacts,
    visible: SeqNo,
    stores: Vec<Cleaning>,
    /// Whether the file is cleaned whatever is needed of it.
    pub(super) must: bool,
    /// What the look leads to.
    pub(crate) outcome: Cleaned,
    /// The store being looked at.
    at: usize,
    began_ns: u64,
}

/// A store that needs the file.
struct Cleaning {
    store: Arc<Store>,
    /// Newest first.
    memtables: Vec<Part>,
    cursor: Option<Merging<MemtableCursor>>,
    judge: Judge,
    key: Option<Vec<u8>>,
    /// Bytes found to be needed.
    live: u64,
}

/// A memtable and what was found of it.
struct Part {
    memtable: Memtable,
    generation: Generation,
    /// The sequence numbers between which its cells are logged again; equal where it does not need the file.
    from: SeqNo,
    below: SeqNo,
    cells: Vec<Cell>,
    tombstones: Vec<RangeTombstone>,
    /// The smallest sequence number met at or above `below`.
    rest: Option<SeqNo>,
    is_active: bool,
}

impl CleanJob {
    /// Looks at the oldest file, if that is complete and no flush is about to free it.
    pub(crate) fn start(catalog: &Catalog) -> Option<Self> {
        let wal = catalog.commit.wal().ok()?;
        // With writes held, so that all that the complete files hold is in memory. Only stores that may need
        // the oldest.
        let held = catalog.commit.with_writes_held(|_| {
            let files = wal.files();
            let needing = files.first().map_or(Vec::new(), |front| catalog.commit.tally.needing(front.file));
            let versions: Vec<_> = needing.iter().map(|store| store.version_full()).collect();
            (needing, versions, files)
        });
        let (stores, versions, files) = held.ok()?;
        // A store that is being dropped needs its files until the manifest has forgotten it, which is soon.
        if stores.iter().any(|store| store.is_dropped()) {
            return None;
        }
        let (front, file_bytes) = files.first().map(|file| (file.file, file.used))?;
        let files: Vec<_> = files.iter().map(|file| (file.first_seq, file.file)).collect();
        let below = files.get(1)?.0;
        let mut cleaning = Vec::new();
        // Visible first; no snapshot counts.
        let visible = catalog.commit.snapshots.visible();
        for (store, version) in stores.iter().zip(&versions) {
            let needs = |s: &Memtable| s.log_front().is_some_and(|file| file <= front);
            if version.memory.flushing.all().any(needs) {
                return None;
            }
            let memtables: Vec<&Memtable> =
                std::iter::once(&version.memory.active).chain(version.memory.unflushed()).collect();
            if memtables.iter().any(|memtable| needs(memtable)) {
                cleaning.push(Cleaning::new(store, &memtables, front, below, visible));
            }
        }
        debug_assert!(files.is_sorted_by_key(|(seq, _)| *seq), "WAL files ascend: {files:?}");
        let options = catalog.cx.settings.now();
        let facts = FrontFacts {
            file_bytes,
            live: Vec::new(),
            wal_bytes: wal.bytes(),
            wal_limit: options.wal_limit(),
            memory_bytes: catalog.commit.tally.memory.get(),
            memory_small: (options.write_memory as f64 * options.tuning().wal_flush_threshold) as u64,
        };
        let began_ns = catalog.cx.env.clock.monotonic_ns();
        let id = catalog.next_job();
        Some(Self {
            id,
            front,
            files,
            facts,
            visible,
            stores: cleaning,
            must: false,
            at: 0,
            began_ns,
            outcome: Cleaned::default(),
        })
    }

    pub(crate) fn advance(&mut self, catalog: &Arc<Catalog>) -> Result<JobProgress> {
        if let Some(cleaning) = self.stores.get_mut(self.at) {
            let more = cleaning.look(CELLS)?;
            let most = self.stores.iter().map(|cleaning| cleaning.live).max().unwrap_or(0);
            let small = self.facts.memory_bytes < self.facts.memory_small
                && self.facts.wal_bytes > self.facts.wal_limit;
            // Once one store needs too much, which is then the one that needs most, no more is gathered.
            if self.must || small || 2 * most <= self.facts.file_bytes {
                self.at += usize::from(!more);
                return Ok(JobProgress::More);
            }
        }
        self.facts.live = self.stores.iter().map(|cleaning| (cleaning.store.id, cleaning.live)).collect();
        let plan = match self.must {
            true => FrontPlan::Clean { reason: "many WAL files have little in them".into() },
            false => plan_front(&self.facts),
        };
        match plan {
            FrontPlan::Clean { reason } => self.clean(catalog, reason)?,
            FrontPlan::Flush { store, reason } => {
                self.record(catalog, format!("{reason}: it is flushed"), Some(store), 0, false);
                if let Some(cleaning) = self.stores.iter().find(|cleaning| cleaning.store.id == store) {
                    let store = cleaning.store.clone();
                    let may_stay = !store.flush_is_requested();
                    let is_whole = store.settings().by_range().is_none();
                    match cleaning.most_of_it() {
                        at if at.is_some() || is_whole || !may_stay => {
                            self.outcome.flush = Some(FlushRequest { store, reason, may_stay, at });
                        }
                        // It is in what is written now, and a range only once that is laid out.
                        _ => catalog.commit.freeze(&store),
                    }
                }
                self.pause(catalog, PAUSE_NS);
            }
            FrontPlan::Leave { reason } => {
                self.record(catalog, format!("{reason}: it is left"), None, 0, false);
                self.outcome.left = Some(self.front);
                self.pause(catalog, PAUSE_NS);
            }
        }
        Ok(JobProgress::Done)
    }

    /// Logs the cells again, and lets the file go.
    fn clean(&mut self, catalog: &Catalog, reason: String) -> Result<()> {
        kill_point!("clean-looked");
        let wal = catalog.commit.wal()?;
        let mut fronts = Vec::new();
        for cleaning in &self.stores {
            for part in &cleaning.memtables {
                let cells = part.cells.iter().map(|cell| Entry::Cell(cell.as_ref()));
                let tombstones = part.tombstones.iter().cloned().map(Entry::RangeTombstone);
                let copied =
                    catalog.commit.log_copies(&cleaning.store, part.generation, cells.chain(tombstones))?;
                fronts.push(copied.map(|copied| copied.start.file));
            }
        }
        kill_point!("clean-copied");
        let upto = wal.end();
        if !planted!(Bug::CleanUnsynced) {
            wal.sync_to(upto).inspect_err(|e| catalog.cx.poison(e))?;
        }
        kill_point!("clean-synced");
        let mut fronts = fronts.into_iter();
        for cleaning in &self.stores {
            let version = cleaning.store.version();
            for part in &cleaning.memtables {
                let copied = fronts.next().flatten();
                let is_flushing = version.memory.flushing.all().any(|s| s.is(&part.memtable));
                part.mark(self.front, copied, &self.files, is_flushing);
            }
        }
        kill_point!("clean-marked");
        let is_gone = self.cut(catalog, upto)?;
        catalog.cx.metrics.wal_cleanings.add(1);
        let copied =
            |part: &Part| part.cells.iter().map(|cell| cell.as_ref().user_bytes() as u64).sum::<u64>();
        let bytes = self.stores.iter().flat_map(|cleaning| &cleaning.memtables).map(copied).sum();
        catalog.cx.metrics.wal_cleaned_bytes.add(bytes);
        self.record(catalog, reason, None, bytes, is_gone);
        Ok(())
    }

    /// Lets the file go, unless something needs it again: memtables may have been joined while this looked at
    /// them. Whether it went.
    fn cut(&mut self, catalog: &Catalog, synced: LogPosition) -> Result<bool> {
        let front = {
            // Fronts are compared under the manifest's lock, as a step of a flush does.
            let mut manifest = catalog.manifest.lock();
            let front = catalog.commit.log_front(None);
            if front <= self.front {
                drop(manifest);
                self.pause(catalog, PAUSE_NS);
                return Ok(false);
            }
            let mut edit =
                vec![Change::LastSeq(catalog.commit.snapshots.visible()), Change::WalSynced(synced)];
            edit.extend(catalog.front_changes(front)?);
            let mark = catalog.commit_to(&mut manifest, &edit)?;
            drop(manifest);
            catalog.commit.log_note(mark);
            front
        };
        kill_point!("clean-committed");
        match catalog.release_wal(front) {
            Err(e) if e.kind() == ErrorKind::Poisoned => {
                catalog.cx.poison(&e);
                Err(e)
            }
            // What is not released now is with the next; that comes later where somebody copies the WAL's
            // files meanwhile.
            _ => {
                let stays = catalog.commit.wal()?.files().first().is_some_and(|file| file.file <= self.front);
                if stays {
                    self.pause(catalog, PAUSE_NS);
                }
                Ok(!stays)
            }
        }
    }

    fn record(
        &self,
        catalog: &Catalog,
        reason: String,
        store: Option<StoreId>,
        logged_bytes: u64,
        is_gone: bool,
    ) {
        let cells = self.stores.iter().flat_map(|c| &c.memtables).map(|part| part.cells.len() as u64).sum();
        let numbers = [
            ("file", self.front.0),
            ("file_bytes", self.facts.file_bytes),
            ("live_bytes", self.stores.iter().map(|cleaning| cleaning.live).sum()),
            ("cells", cells),
            ("wal_bytes", self.facts.wal_bytes),
            ("memory_bytes", self.facts.memory_bytes),
            ("logged_bytes", logged_bytes),
            ("is_gone", u64::from(is_gone)),
            ("visible", self.visible.0),
            ("micros", (catalog.cx.env.clock.monotonic_ns() - self.began_ns) / 1_000),
        ];
        let name = self.stores.iter().find(|cleaning| Some(cleaning.store.id) == store);
        let name = name.map_or("", |cleaning| &cleaning.store.name);
        catalog.cx.events.record(EventKind::WalClean, name, reason, &numbers);
    }

    /// Puts the next look off for so long.
    fn pause(&mut self, catalog: &Catalog, ns: u64) {
        self.outcome.pause_until = Some(catalog.cx.env.clock.monotonic_ns() + ns);
    }

    /// Gives up: nothing has been let go yet, and copies do no harm.
    pub(crate) fn abandon(&mut self, catalog: &Catalog, why: &Error, pause_ns: u64) {
        self.pause(catalog, pause_ns);
        if why.kind() != ErrorKind::Closed {
            catalog.cx.events.record(EventKind::Failure, "", format!("WAL cleaning failed: {why}"), &[]);
        }
    }
}

impl Cleaning {
    fn new(
        store: &Arc<Store>,
        memtables: &[&Memtable],
        front: LogFileId,
        below: SeqNo,
        visible: SeqNo,
    ) -> Self {
        let parts = memtables.iter().map(|memtable| Part::new(memtable, front, below)).collect();
        let cursors = memtables.iter().map(|memtable| memtable.cursor()).collect();
        Self {
            store: store.clone(),
            memtables: parts,
            cursor: Some(Merging::new(cursors)),
            judge: Judge::new(
                Visibility { counts: store.settings().counts_versions(), visible, snapshots: &[] },
                memtables.iter().any(|memtable| memtable.has_ranges()),
            ),
            key: None,
            live: 0,
        }
    }

    /// A key of the memory range in which most of what is needed lies, the active memtable apart.
    fn most_of_it(&self) -> Option<Vec<u8>> {
        let version = self.store.version();
        let mut ranges: BTreeMap<usize, (u64, &[u8])> = BTreeMap::new();
        for part in self.memtables.iter().filter(|part| !part.is_active) {
            for cell in part.cells.iter().map(Cell::as_ref) {
                let range = ranges.entry(version.memory.ranges.find(cell.key)).or_insert((0, cell.key));
                range.0 += cell.user_bytes() as u64 + ENTRY_BYTES;
            }
        }
        ranges.into_values().max_by_key(|(bytes, _)| *bytes).map(|(_, key)| key.to_vec())
    }

    /// Goes on through the store's memory; whether there is more.
    fn look(&mut self, cells: usize) -> Result<bool> {
        let Some(cursor) = &mut self.cursor else { return Ok(false) };
        if self.key.is_none() {
            cursor.seek(&[])?;
            self.key = Some(Vec::new());
            self.judge.next_key(&[]);
            for part in &mut self.memtables {
                self.live += part.take_tombstones();
            }
        }
        for _ in 0..cells {
            if !cursor.valid() {
                self.cursor = None;
                return Ok(false);
            }
            let cell = cursor.cell();
            if self.key.as_deref() != Some(cell.key) {
                self.key = Some(cell.key.to_vec());
                self.judge.next_key(cell.key);
            }
            let kept = self.judge.keeps(cell.timestamp, cell.seq, cell.kind);
            let part = &mut self.memtables[cursor.source()];
            if cell.seq >= part.below {
                part.rest = Some(part.rest.map_or(cell.seq, |rest| rest.min(cell.seq)));
            } else if kept && cell.seq >= part.from {
                self.live += cell.user_bytes() as u64 + ENTRY_BYTES;
                part.cells.push(cell.to_cell());
            }
            cursor.next()?;
        }
        Ok(true)
    }
}

/// The bytes that an entry takes in the WAL beside its key and value, about.
const ENTRY_BYTES: u64 = 16;

impl Part {
    fn new(memtable: &Memtable, front: LogFileId, below: SeqNo) -> Self {
        let again = memtable.again();
        let from = match memtable.log_front().is_some_and(|file| file <= front) {
            // Everything below was logged again into later files, unless into this one.
            true if again.front > front.0 => again.below.min(below),
            true => SeqNo::ZERO,
            false => below,
        };
        Self {
            memtable: memtable.clone(),
            generation: memtable.generation(),
            from,
            below,
            cells: Vec::new(),
            tombstones: Vec::new(),
            rest: None,
            is_active: memtable.as_active().is_some(),
        }
    }

    /// Takes the range tombstones; their bytes.
    fn take_tombstones(&mut self) -> u64 {
        let all = KeyRange::all();
        for tombstone in self.memtable.tombstones_within(&all) {
            if tombstone.seq >= self.below {
                self.rest = Some(self.rest.map_or(tombstone.seq, |rest| rest.min(tombstone.seq)));
            } else if tombstone.seq >= self.from {
                self.tombstones.push(tombstone);
            }
        }
        let bytes = |t: &RangeTombstone| t.range.start.len() + t.range.end.as_ref().map_or(0, Vec::len);
        self.tombstones.iter().map(|t| bytes(t) as u64 + ENTRY_BYTES).sum()
    }

    /// Tells the memtable that it needs the file no more.
    fn mark(
        &self,
        front: LogFileId,
        copied: Option<LogFileId>,
        files: &[(SeqNo, LogFileId)],
        is_flushing: bool,
    ) {
        if self.from == self.below && self.memtable.log_front().is_none_or(|file| file > front) {
            return;
        }
        let before = self.memtable.again();
        // What was logged again before stays where it is, unless it was in this file and is among the copies.
        let older = if before.front > front.0 { before.front } else { u64::MAX };
        let again = Again {
            below: before.below.max(self.below),
            front: older.min(copied.map_or(u64::MAX, |file| file.0)),
        };
        let (next, newest) = (files[1].1, files[files.len() - 1].1);
        let holding = |seq: SeqNo| files[files.partition_point(|(first, _)| *first <= seq) - 1].1;
        let rest = match self.rest.map(holding) {
            // A flush that took the memtable meanwhile may log cells that it keeps anywhere behind the front.
            _ if is_flushing => Some(next),
            // What was written since this looked is in the newest file of then, or later.
            rest if self.is_active => Some(rest.map_or(newest, |rest| rest.min(newest))),
            rest => rest,
        };
        self.memtable.log_again(again, rest);
    }
}
