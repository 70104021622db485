//! Compaction of flat memtables of one range in memory (ACC-4, ACC-5), as a job beside flushes and
//! compactions of SSTables. When one is due is said in `due.rs`.
//!
//! The job joins its memtables on the side, and swaps the result in for them. A flush does not wait for it:
//! it takes the memtables as they are, and the compaction, which finds them gone, is dropped (ACC-7, ACC-9).
//! So a crash or failure here cannot lose anything: nothing but memory is touched.
//!
//! What a data compaction drops, no read point can see: `visible` was read before it looks at any cell,
//! snapshots after it (`visibility.rs`). The new memtable takes the newest of its sources' generations, which
//! is what the next flush claims anyway (invariant I1), and needs the WAL from the oldest source that has a
//! cell left, once all that covers the cells that went is durable: until then a power cut may bring them back
//! into sight.
//!
//! While it runs, its memory counts as write memory, chunks and arrays by their capacity.

use super::due::{Due, FREES_MIN, due, flats, memory_options};
use super::visibility::Visible;
use crate::catalog::Catalog;
use crate::commit::Store;
use crate::error::Result;
use crate::event::EventKind;
use crate::memtable::{Memtable, MemtableCompaction, WalPlace};
use crate::strategy::MemtableCompactionKind;
use crate::types::{Generation, LogPosition};
use crate::version::{Memtables, Version};
use crate::work::jobs::outcome::JobProgress;
use std::ops::Range;
use std::sync::Arc;

/// Entries taken between two looks at whether the compaction is still wanted.
const ENTRIES: usize = 2_000;

/// A compaction of flat memtables that is under way: of their indices, or of their cells too.
pub(crate) struct MemtableCompactionJob {
    pub(crate) id: u32,
    store: Arc<Store>,
    /// What it began with; `None` once it has ended.
    due: Option<Due>,
    join: Option<MemtableCompaction>,
    /// All cells of the sources were logged before this.
    logged_to: LogPosition,
    bytes: u64,
    /// Bytes of its own memory that are counted.
    counted: u64,
    busy_ns: u64,
}

impl MemtableCompactionJob {
    pub(crate) fn start(catalog: &Catalog, store: &Arc<Store>) -> Option<Self> {
        let due = due(catalog, store, &store.version_full())?;
        // Several that are begun together each see what the others will take.
        catalog.commit.room.joining.add(due.expected);
        let seen = Visible::now(catalog);
        let keep = (due.kind != MemtableCompactionKind::Indices).then(|| memory_options(store, &due));
        let join = MemtableCompaction::new(&flats(&due.sources), &seen.by(store), keep);
        Some(Self {
            id: catalog.next_job(),
            store: store.clone(),
            join: Some(join),
            logged_to: catalog.commit.wal().map_or(LogPosition::default(), |wal| wal.end()),
            bytes: due.sources.iter().map(|source| source.bytes() as u64).sum(),
            counted: due.expected,
            busy_ns: 0,
            due: Some(due),
        })
    }

    pub(crate) fn advance(&mut self, catalog: &Catalog) -> Result<JobProgress> {
        let from = catalog.cx.env.clock.monotonic_ns();
        let Some(due) = &self.due else { return Ok(JobProgress::Done) };
        if place_of(&self.store.version(), due).is_none() {
            self.overtaken(catalog);
            self.leave(catalog);
            return Ok(JobProgress::Done);
        }
        let more = self.join.as_mut().is_some_and(|join| join.advance(ENTRIES));
        let taken = self.join.as_ref().map_or(0, |join| join.bytes() as u64);
        let count = taken.max(due.expected);
        self.count(catalog, count);
        self.busy_ns += catalog.cx.env.clock.monotonic_ns() - from;
        if more {
            return Ok(JobProgress::More);
        }
        if let Some(join) = self.join.take() {
            self.finish(catalog, join);
        }
        self.leave(catalog);
        Ok(JobProgress::Done)
    }

    /// Swaps the new memtable in for its sources.
    fn finish(&mut self, catalog: &Catalog, join: MemtableCompaction) {
        let Some(due) = &self.due else { return };
        let taken = join.taken();
        let from = catalog.cx.env.clock.monotonic_ns();
        let durable = catalog.commit.wal().is_ok_and(|wal| wal.synced() >= self.logged_to);
        let needed = due.sources.iter().zip(join.lives()).filter(|(_, lives)| *lives || !durable);
        let places: Vec<WalPlace> = needed.map(|(source, _)| source.wal_place()).collect();
        let joined = join.finish(!due.is_of_range);
        let joined = Memtable::flat(Arc::new(joined), WalPlace::of_all(&places));
        kill_point!("join-before-swap");
        let mut swapped = false;
        self.store.swap_if(|now| {
            let place = place_of(now, due);
            swapped = place.is_some();
            place.map(|(number, place)| {
                let mut memtables = now.memory.ranges.memtables_of(number).to_vec();
                memtables.splice(place, [joined.clone()]);
                let ranges = Arc::new(now.memory.ranges.with(number, memtables));
                now.with_memory(Memtables { ranges, ..now.memory.clone() })
            })
        });
        self.busy_ns += catalog.cx.env.clock.monotonic_ns() - from;
        if !swapped {
            return self.overtaken(catalog);
        }
        kill_point!("join-after-swap");
        self.count(catalog, 0);
        catalog.commit.recount(&self.store);
        catalog.commit.touch(self.store.id);
        self.note_done(catalog, taken, &joined);
    }

    /// Counts the compaction, records its event, and remembers what it met.
    fn note_done(&self, catalog: &Catalog, (cells, keys): (usize, usize), joined: &Memtable) {
        let Some(due) = &self.due else { return };
        let after = joined.bytes() as u64;
        let freed = self.bytes.saturating_sub(after);
        {
            let mut work = self.store.work.lock();
            if due.is_of_range {
                // What sketches do not know: that a cell's other versions stay, or that a snapshot sees them.
                work.memory.compacted_in_vain = freed < self.bytes / FREES_MIN;
            } else if due.kind == MemtableCompactionKind::CompactNewest {
                // Without what was dead in it all may be worth a compaction, too.
                work.memory.joined_upto = Generation::ZERO;
            } else if work.flush.tries() == due.flushes {
                // What a flush that has begun since starts with is not about these memtables, which it takes
                // or has taken.
                let stayed = 1.0 - freed as f64 / self.bytes.max(1) as f64;
                work.memory.pipeline.merged(cells, keys, stayed, due.kind);
            }
            if due.kind != MemtableCompactionKind::Indices {
                work.memory.note_copy(after, self.busy_ns);
            }
        }
        let (kind, count) = match due.kind {
            MemtableCompactionKind::Indices => {
                (EventKind::MemtableIndexCompaction, &catalog.cx.metrics.memtable_index_compactions)
            }
            _ => (EventKind::MemtableDataCompaction, &catalog.cx.metrics.memtable_data_compactions),
        };
        count.add(1);
        catalog.cx.metrics.memtable_freed_bytes.add(freed);
        let numbers = [
            ("memtables", due.sources.len() as u64),
            ("cells_in", cells as u64),
            ("keys", keys as u64),
            ("cells_out", joined.cells() as u64),
            ("freed_bytes", freed),
            ("expected_keys", due.facts.distinct),
            ("dead_bytes", due.facts.dead_bytes),
            ("flush_ns_per_kib", (due.facts.flush_ns * 1024.0) as u64),
            ("copy_ns_per_kib", (due.facts.copy_ns * 1024.0) as u64),
            ("micros", self.busy_ns / 1_000),
        ];
        catalog.cx.events.record(kind, &self.store.name, due.reason.clone(), &numbers);
    }

    /// Records that the memtables are gone: a flush has taken them (ACC-7), or the store was split or joined.
    pub(crate) fn overtaken(&self, catalog: &Catalog) {
        let Some(due) = &self.due else { return };
        catalog.cx.metrics.memtable_compactions_aborted.add(1);
        let reason = format!("{}; a flush took its memtables", due.reason);
        let numbers = [
            ("begun", 1),
            ("memtables", due.sources.len() as u64),
            ("bytes", self.bytes),
            ("expected_bytes", due.expected),
            ("micros", self.busy_ns / 1_000),
        ];
        catalog.cx.events.record(EventKind::MemtableAbort, &self.store.name, reason, &numbers);
    }

    /// Whether it works on that store's memory.
    pub(crate) fn is_of(&self, store: &Store) -> bool {
        self.store.id == store.id
    }

    /// Gives up: the memtables stay as they are.
    pub(crate) fn abandon(mut self, catalog: &Catalog) -> Arc<Store> {
        self.leave(catalog);
        self.store
    }

    fn leave(&mut self, catalog: &Catalog) {
        self.count(catalog, 0);
        self.due = None;
        // Writers may wait for the room, and a flush for the answer.
        catalog.cx.scheduler.notify();
    }

    /// Counts the memory that it takes now beside its sources.
    fn count(&mut self, catalog: &Catalog, bytes: u64) {
        catalog.commit.room.joining.add(bytes);
        catalog.commit.room.joining.sub(self.counted);
        self.counted = bytes;
    }
}

/// The range's number and the place of the memtables in it: all of them, as they are and one behind the
/// other.
fn place_of(version: &Version, Due { range, sources, .. }: &Due) -> Option<(usize, Range<usize>)> {
    let ranges = &version.memory.ranges;
    let number = ranges.find(&range.start);
    let memtables = ranges.memtables_of(number);
    let first = memtables.iter().position(|one| one.is(&sources[0]))?;
    let there = memtables.get(first..first + sources.len())?;
    let is_same = there.iter().zip(sources).all(|(a, b)| a.is(b)) && ranges.range(number) == *range;
    is_same.then(|| (number, first..first + sources.len()))
}
