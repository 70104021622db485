//! Compaction of a store's flat memtables in memory (ACC-4, ACC-5): when its policy says so, as a job beside
//! flushes and compactions of SSTables.
//!
//! The job joins the flat memtables that there are when it starts, on the side, and swaps the result in for
//! them. A disk flush does not wait for it: it takes the memtables as they are, and the join, which finds
//! them gone, is dropped (ACC-7, ACC-9). So a crash or failure here cannot lose anything: nothing but memory
//! is touched.
//!
//! What a data compaction drops, no read point can see: `visible` was read before the join looks at any cell,
//! snapshots after it (`visibility.rs`). The joined memtable takes the newest of its sources' generations,
//! which is what the next disk flush claims anyway (invariant I1), and needs the WAL from the oldest source
//! that has a cell left, once all that covers the cells that went is durable: until then a power cut may
//! bring them back into sight.
//!
//! While it runs, a join's memory counts as write memory, chunks and arrays by their capacity. One that would
//! not fit under the bound is not begun: writers would stop for it, and the disk flush that comes instead
//! frees more.

use super::facts::pipeline_facts;
use super::visibility::Visible;
use crate::catalog::Catalog;
use crate::commit::{MemtableCompactionTurn, Store};
use crate::error::Result;
use crate::event::EventKind;
use crate::memtable::{FlatMemtable, LogPlace, Memtable, MemtableCompaction};
use crate::strategy::{MemtableCompactionKind, PipelineFacts};
use crate::types::{Generation, LogPosition};
use crate::version::Version;
use crate::work::jobs::layout::Layout;
use crate::work::jobs::outcome::JobProgress;
use std::ops::Range;
use std::sync::Arc;

/// Entries taken between two looks at whether the join is still wanted.
const ENTRIES: usize = 2_000;

/// A compaction of flat memtables that is under way: of their indices, or of their cells too.
pub(crate) struct MemtableCompactionJob {
    id: u32,
    /// `None` once it has ended.
    turn: Option<MemtableCompactionTurn>,
    store: Arc<Store>,
    join: Option<MemtableCompaction>,
    kind: MemtableCompactionKind,
    reason: String,
    /// The facts that the decision rested on.
    facts: PipelineFacts,
    sources: Vec<Memtable>,
    /// All cells of the sources were logged before this.
    logged_to: LogPosition,
    bytes: u64,
    /// Bytes of its own memory that are counted.
    counted: u64,
    /// Bytes that it was expected to take when it began.
    expected: u64,
    /// Flushes of the store that had been tried when it began.
    flushes: u64,
    busy_ns: u64,
}

impl MemtableCompactionJob {
    /// Begins one if the store's policy wants one and none is under way.
    pub(crate) fn start(catalog: &Catalog, store: &Arc<Store>) -> Option<Self> {
        let version = store.version_full();
        let mut sources: Vec<Memtable> =
            version.frozen.iter().filter(|segment| segment.as_flat().is_some()).cloned().collect();
        if !Layout::of(&store.settings()).is_whole() {
            return None;
        }
        // Memtables still to be flattened are newer than all flat ones, except for a moment.
        if sources.is_empty() || place_of(&version, &sources).is_none() || store.flush_is_asked() {
            return None;
        }
        let mut flats: Vec<Arc<FlatMemtable>> = sources.iter().filter_map(|s| s.as_flat().cloned()).collect();
        let (kind, reason, facts, flushes, expected, turn) = {
            let mut work = store.work.lock();
            if work.memory.is_compacting() || work.flush.is_under_way() || store.is_dropped() {
                return None;
            }
            let newest = sources[0].generation();
            if work.memory.joined_upto >= newest {
                return None;
            }
            let facts = pipeline_facts(catalog, work.memory.copy_ns_per_byte, &flats);
            // It is asked once for each memtable that comes: nothing else changes the answer, but for the
            // draw.
            work.memory.joined_upto = newest;
            let (kind, reason) = store.settings().options.memory.plan(&facts, &work.memory.pipeline)?;
            let copies =
                kind == MemtableCompactionKind::Indices && !MemtableCompaction::can_share_chunks(&flats);
            let kind = if copies { MemtableCompactionKind::Compact } else { kind };
            let expected = expected_bytes(kind, &facts);
            let (taken, bound) = (catalog.commit.memory_taken(), catalog.cx.settings.write_memory());
            if taken + expected > bound {
                drop(work);
                let reason = format!("{reason}; there is no room for it");
                let numbers =
                    [("begun", 0), ("expected_bytes", expected), ("memory_bytes", taken), ("bound", bound)];
                catalog.cx.events.record(EventKind::MemoryAbort, &store.name, reason, &numbers);
                return None;
            }
            let turn = MemtableCompactionTurn::begin(store, &mut work);
            // Several that are begun together each see what the others will take.
            catalog.commit.room.joining.add(expected);
            (kind, reason, facts, work.flush.tries(), expected, turn)
        };
        if kind == MemtableCompactionKind::CompactNewest {
            sources.truncate(1);
            flats.truncate(1);
        }
        let bytes = sources.iter().map(|s| s.bytes() as u64).sum();
        let seen = Visible::now(catalog);
        let keep = (kind != MemtableCompactionKind::Indices).then(|| store.memory_options());
        let join = Some(MemtableCompaction::new(&flats, &seen.by(store), keep));
        let logged_to = catalog.commit.log().map_or(LogPosition::default(), |log| log.end());
        Some(Self {
            logged_to,
            id: catalog.next_job(),
            turn: Some(turn),
            store: store.clone(),
            join,
            kind,
            reason,
            facts,
            sources,
            bytes,
            expected,
            counted: expected,
            flushes,
            busy_ns: 0,
        })
    }

    pub(crate) fn id(&self) -> u32 {
        self.id
    }

    pub(crate) fn advance(&mut self, catalog: &Catalog) -> Result<JobProgress> {
        let from = catalog.cx.env.clock.monotonic_ns();
        if place_of(&self.store.version(), &self.sources).is_none() {
            self.leave(catalog);
            self.overtaken(catalog);
            return Ok(JobProgress::Done);
        }
        let more = self.join.as_mut().is_some_and(|join| join.advance(ENTRIES));
        let taken = self.join.as_ref().map_or(0, |join| join.bytes() as u64);
        self.count(catalog, taken.max(self.expected));
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

    /// Swaps the joined memtable in for its sources.
    fn finish(&mut self, catalog: &Catalog, join: MemtableCompaction) {
        let (cells, keys) = join.taken();
        let from = catalog.cx.env.clock.monotonic_ns();
        let durable = catalog.commit.log().is_ok_and(|log| log.synced() >= self.logged_to);
        let needed = self.sources.iter().zip(join.lives()).filter(|(_, lives)| *lives || !durable);
        let places: Vec<LogPlace> = needed.map(|(source, _)| source.log_place()).collect();
        let joined = Memtable::flat(Arc::new(join.finish()), LogPlace::of_all(&places));
        kill_point!("join-before-swap");
        let mut swapped = false;
        self.store.swap_if(|now| {
            let place = place_of(now, &self.sources);
            swapped = place.is_some();
            place.map(|place| {
                let mut frozen = now.frozen.clone();
                frozen.splice(place, [joined.clone()]);
                now.with_memory(now.active.clone(), frozen, now.flush.clone())
            })
        });
        self.busy_ns += catalog.cx.env.clock.monotonic_ns() - from;
        if !swapped {
            self.overtaken(catalog);
            return;
        }
        kill_point!("join-after-swap");
        self.count(catalog, 0);
        catalog.commit.recount(&self.store);
        catalog.commit.touch(self.store.id);
        let freed = self.bytes.saturating_sub(joined.bytes() as u64);
        {
            let mut work = self.store.work.lock();
            if self.kind == MemtableCompactionKind::CompactNewest {
                // Without what was dead in it the pipeline may be worth a compaction, too.
                work.memory.joined_upto = Generation::ZERO;
            } else if work.flush.tries() == self.flushes {
                // What a flush that has begun since starts with is not about these memtables, which it takes
                // or has taken.
                let stayed = 1.0 - freed as f64 / self.bytes.max(1) as f64;
                work.memory.pipeline.merged(cells, keys, stayed, self.kind);
            }
            if self.kind != MemtableCompactionKind::Indices {
                work.memory.note_copy(joined.bytes() as u64, self.busy_ns);
            }
        }
        match self.kind {
            MemtableCompactionKind::Indices => catalog.cx.metrics.index_merges.add(1),
            _ => catalog.cx.metrics.memory_compactions.add(1),
        }
        catalog.cx.metrics.memory_freed_bytes.add(freed);
        let numbers = [
            ("segments", self.sources.len() as u64),
            ("cells_in", cells as u64),
            ("keys", keys as u64),
            ("cells_out", joined.cells() as u64),
            ("freed_bytes", freed),
            ("expected_keys", self.facts.distinct),
            ("dead_bytes", self.facts.dead_bytes),
            ("flush_ns_per_kib", (self.facts.flush_ns * 1024.0) as u64),
            ("copy_ns_per_kib", (self.facts.copy_ns * 1024.0) as u64),
            ("micros", self.busy_ns / 1_000),
        ];
        let kind = match self.kind {
            MemtableCompactionKind::Indices => EventKind::MemoryMerge,
            _ => EventKind::MemoryCompaction,
        };
        catalog.cx.events.record(kind, &self.store.name, self.reason.clone(), &numbers);
    }

    /// Records that a flush has taken the memtables meanwhile (ACC-7).
    pub(crate) fn overtaken(&self, catalog: &Catalog) {
        catalog.cx.metrics.joins_aborted.add(1);
        let reason = format!("{}; a flush took its segments", self.reason);
        let segments = self.sources.len() as u64;
        let numbers = [
            ("begun", 1),
            ("segments", segments),
            ("bytes", self.bytes),
            ("expected_bytes", self.expected),
            ("micros", self.busy_ns / 1_000),
        ];
        catalog.cx.events.record(EventKind::MemoryAbort, &self.store.name, reason, &numbers);
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
        self.turn = None;
    }

    /// Counts the memory that it takes now beside its sources.
    fn count(&mut self, catalog: &Catalog, bytes: u64) {
        catalog.commit.room.joining.add(bytes);
        catalog.commit.room.joining.sub(self.counted);
        self.counted = bytes;
    }
}

/// The bytes that a join is expected to take at most beside its sources.
fn expected_bytes(kind: MemtableCompactionKind, facts: &PipelineFacts) -> u64 {
    match kind {
        MemtableCompactionKind::Indices => facts.cells * (size_of::<u64>() + size_of::<u32>()) as u64,
        _ => facts.stays(kind),
    }
}

/// The place of the memtables among the version's immutable ones: all of them, as they are and one behind the
/// other.
fn place_of(version: &Version, sources: &[Memtable]) -> Option<Range<usize>> {
    let first = version.frozen.iter().position(|s| s.is(&sources[0]))?;
    let there = version.frozen.get(first..first + sources.len())?;
    let same = there.iter().zip(sources).all(|(a, b)| a.is(b));
    same.then(|| first..first + sources.len())
}
