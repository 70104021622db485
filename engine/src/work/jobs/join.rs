//! In-memory merging of a store's flat segments (ACC-4, ACC-5): when its policy says so, as a job beside flushes and
//! merges.
//!
//! The job joins the flat segments that there are when it starts, on the side, and swaps the result in for them. A
//! disk flush does not wait for it: it takes the segments as they are, and the join, which finds them gone, is dropped
//! (ACC-7, ACC-9). So a crash or failure here cannot lose anything: nothing but memory is touched.
//!
//! What a compaction drops, no read point can see: `visible` was read before the join looks at any cell, snapshots
//! after it (see `flatten_oldest`). The joined segment takes the newest of its sources' generations, which is what the
//! next disk flush claims anyway (invariant I1), and needs the log from the oldest source that has a cell left, once all
//! that covers the cells that went is durable: until then a power cut may bring them back into sight.
//!
//! While it runs a join's memory counts as write memory, chunks and arrays by their capacity. One that would not fit under the
//! bound is not begun: writers would stop for it, and the disk flush that comes instead frees more.

use super::Advanced;
use super::lay_out::Seen;
use super::layout::Layout;
use crate::catalog::Catalog;
use crate::commit::{Store, StoreWork};
use crate::error::Result;
use crate::event::EventKind;
use crate::memory::{Flat, Join, LogPlace, Segment};
use crate::strategy::{MemoryMerge, PipelineFacts};
use crate::types::{Generation, LogPosition, Sketch};
use crate::version::Version;
use std::ops::Range;
use std::sync::Arc;

/// Entries taken between two looks at whether the join is still wanted.
const ENTRIES: usize = 2_000;

/// More than that merges are not held against a byte that is flushed: most of it comes late, and it may be overwritten by then.
const WRITTEN_AGAIN_MAX: f64 = 4.0;

/// What copying a byte in memory costs until it was measured.
const COPY_NS_PER_BYTE: f64 = 2.0;

pub(crate) struct JoinJob {
    id: u32,
    store: Arc<Store>,
    join: Option<Join>,
    kind: MemoryMerge,
    reason: String,
    /// What the decision rested on.
    facts: PipelineFacts,
    sources: Vec<Segment>,
    /// All cells of the sources were logged before this.
    logged_to: LogPosition,
    bytes: u64,
    /// What is counted of its own memory.
    counted: u64,
    /// What it was expected to take when it began.
    expected: u64,
    /// Of the store, when it began.
    flushes: u64,
    busy_ns: u64,
}

impl JoinJob {
    /// Begins a join if the store's policy wants one and none is under way.
    pub(crate) fn start(catalog: &Catalog, store: &Arc<Store>) -> Option<Self> {
        let version = store.version_full();
        let mut sources: Vec<Segment> =
            version.frozen.iter().filter(|segment| segment.as_flat().is_some()).cloned().collect();
        if !Layout::of(&store.settings()).is_whole() {
            return None;
        }
        // Those still to be flattened are newer than all flat ones, except for a moment.
        if sources.is_empty() || place_of(&version, &sources).is_none() || store.flush_is_asked() {
            return None;
        }
        let mut flats: Vec<Arc<Flat>> = sources.iter().filter_map(|s| s.as_flat().cloned()).collect();
        let (kind, reason, facts, flushes, expected) = {
            let mut work = store.work.lock();
            if work.memory.joining || work.flush.under_way || store.is_dropped() {
                return None;
            }
            let newest = sources[0].generation();
            if work.memory.joined_upto >= newest {
                return None;
            }
            let facts = facts(catalog, work.memory.copy_ns_per_byte, &flats);
            // Asked once for each segment that comes: nothing else changes the answer, but for the draw.
            work.memory.joined_upto = newest;
            let (kind, reason) = store.settings().options.memory.plan(&facts, &work.memory.pipeline)?;
            let copies = kind == MemoryMerge::Indices && !Join::can_share_chunks(&flats);
            let kind = if copies { MemoryMerge::Compact } else { kind };
            let expected = expected_bytes(kind, &facts);
            let (taken, bound) = (catalog.commit.memory_taken(), catalog.commit.settings.write_memory());
            if taken + expected > bound {
                drop(work);
                let reason = format!("{reason}; there is no room for it");
                let numbers =
                    [("begun", 0), ("expected_bytes", expected), ("memory_bytes", taken), ("bound", bound)];
                catalog.commit.events.record(EventKind::MemoryAbort, &store.name, reason, &numbers);
                return None;
            }
            work.memory.joining = true;
            // Of several that are begun together each sees what the others will take.
            catalog.commit.room.joining.add(expected);
            (kind, reason, facts, work.flush.tries, expected)
        };
        if kind == MemoryMerge::CompactNewest {
            sources.truncate(1);
            flats.truncate(1);
        }
        let bytes = sources.iter().map(|s| s.bytes() as u64).sum();
        let seen = Seen::now(catalog);
        let keep = (kind != MemoryMerge::Indices).then(|| store.memory_options());
        let join = Some(Join::new(&flats, &seen.by(store), keep));
        let logged_to = catalog.commit.log().map_or(LogPosition::default(), |log| log.end());
        Some(Self {
            logged_to,
            id: catalog.next_job(),
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

    pub(crate) fn advance(&mut self, catalog: &Catalog) -> Result<Advanced> {
        let from = catalog.commit.env.clock.monotonic_ns();
        if place_of(&self.store.version(), &self.sources).is_none() {
            self.leave(catalog);
            self.overtaken(catalog);
            return Ok(Advanced::Done);
        }
        let more = self.join.as_mut().is_some_and(|join| join.advance(ENTRIES));
        let taken = self.join.as_ref().map_or(0, |join| join.bytes() as u64);
        self.count(catalog, taken.max(self.expected));
        self.busy_ns += catalog.commit.env.clock.monotonic_ns() - from;
        if more {
            return Ok(Advanced::More);
        }
        if let Some(join) = self.join.take() {
            self.finish(catalog, join);
        }
        self.leave(catalog);
        Ok(Advanced::Done)
    }

    fn finish(&mut self, catalog: &Catalog, join: Join) {
        let (cells, keys) = join.taken();
        let from = catalog.commit.env.clock.monotonic_ns();
        let durable = catalog.commit.log().is_ok_and(|log| log.synced() >= self.logged_to);
        let needed = self.sources.iter().zip(join.lives()).filter(|(_, lives)| *lives || !durable);
        let places: Vec<LogPlace> = needed.map(|(source, _)| source.log_place()).collect();
        let joined = Segment::flat(Arc::new(join.finish()), LogPlace::of_all(&places));
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
        self.busy_ns += catalog.commit.env.clock.monotonic_ns() - from;
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
            if self.kind == MemoryMerge::CompactNewest {
                // Without what was dead in it the pipeline may be worth a compaction, too.
                work.memory.joined_upto = Generation::ZERO;
            } else if work.flush.tries == self.flushes {
                // What a flush that has begun since starts with is not about these segments, which it takes or has taken.
                let stayed = 1.0 - freed as f64 / self.bytes.max(1) as f64;
                work.memory.pipeline.merged(cells, keys, stayed, self.kind);
            }
            if self.kind != MemoryMerge::Indices {
                work.memory.note_copy(joined.bytes() as u64, self.busy_ns);
            }
        }
        match self.kind {
            MemoryMerge::Indices => catalog.commit.metrics.index_merges.add(1),
            _ => catalog.commit.metrics.memory_compactions.add(1),
        }
        catalog.commit.metrics.memory_freed_bytes.add(freed);
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
            MemoryMerge::Indices => EventKind::MemoryMerge,
            _ => EventKind::MemoryCompaction,
        };
        catalog.commit.events.record(kind, &self.store.name, self.reason.clone(), &numbers);
    }

    /// A flush has taken the segments meanwhile (ACC-7).
    pub(crate) fn overtaken(&self, catalog: &Catalog) {
        catalog.commit.metrics.joins_aborted.add(1);
        let reason = format!("{}; a flush took its segments", self.reason);
        let segments = self.sources.len() as u64;
        let numbers = [
            ("begun", 1),
            ("segments", segments),
            ("bytes", self.bytes),
            ("expected_bytes", self.expected),
            ("micros", self.busy_ns / 1_000),
        ];
        catalog.commit.events.record(EventKind::MemoryAbort, &self.store.name, reason, &numbers);
    }

    /// Whether it works on that store's memory.
    pub(crate) fn is_of(&self, store: &Store) -> bool {
        self.store.id == store.id
    }

    /// Gives up: the segments stay as they are.
    pub(crate) fn abandon(mut self, catalog: &Catalog) -> Arc<Store> {
        self.leave(catalog);
        self.store
    }

    fn leave(&mut self, catalog: &Catalog) {
        self.count(catalog, 0);
        self.store.work.lock().memory.joining = false;
    }

    /// It takes so much memory now beside its sources.
    fn count(&mut self, catalog: &Catalog, bytes: u64) {
        catalog.commit.room.joining.add(bytes);
        catalog.commit.room.joining.sub(self.counted);
        self.counted = bytes;
    }
}

/// What a join is expected to take at most beside its sources.
fn expected_bytes(kind: MemoryMerge, facts: &PipelineFacts) -> u64 {
    match kind {
        MemoryMerge::Indices => facts.cells * (size_of::<u64>() + size_of::<u32>()) as u64,
        _ => facts.stays(kind),
    }
}

/// What a compaction that is under way, or that the next segment will bring, may be expected to free: as much as the last
/// one since the disk flush did. Nothing is known before that one.
pub(crate) fn compactable_bytes(store: &Store, version: &Version, work: &StoreWork) -> u64 {
    let newest = version.frozen.first().map(Segment::generation);
    let due = work.memory.joining || newest.is_some_and(|newest| newest > work.memory.joined_upto);
    if work.memory.pipeline.compactions == 0 || !due || !store.settings().options.memory.compacts() {
        return 0;
    }
    let frozen: u64 = version.frozen.iter().map(|segment| segment.bytes() as u64).sum();
    (frozen as f64 * (1.0 - work.memory.pipeline.stayed)) as u64
}

/// About how much of a store's memory a flush would find that is not dead by then; `survived` says it of the last flush.
pub(crate) fn surviving_share(version: &Version, survived: Option<f64>) -> f64 {
    let (mut cells, mut keys, mut live, mut dead) = (0, Sketch::new(), 0, 0);
    for flat in version.frozen.iter().filter_map(|segment| segment.as_flat()) {
        cells += flat.cells();
        live += flat.user_bytes();
        dead += flat.dead().bytes;
        flat.sketch_into(&mut keys);
    }
    if cells == 0 {
        // Segments that are not flat do not know their keys. What the last flush found may hold again.
        return survived.unwrap_or(1.0);
    }
    // Those that are do, and of them it is known what was dead within: it will be like that with the others.
    let segments = version.frozen.iter().chain(std::iter::once(&version.active));
    let user_bytes: usize = segments.map(Segment::user_bytes).sum();
    let fresh = (user_bytes - live) as f64 * live as f64 / (live + dead).max(1) as f64;
    let unique = keys.estimate() as f64 / cells as f64;
    (unique * (live as f64 + fresh) / user_bytes.max(1) as f64).min(1.0)
}

/// How often a byte of memory is written to tables in the end: once by the flush, and as often again as merges were seen to.
fn written_again(catalog: &Catalog) -> f64 {
    let (flushed, merged) =
        (catalog.commit.metrics.flushed_bytes.get(), catalog.commit.metrics.merged_bytes.get());
    if flushed == 0 { 1.0 } else { 1.0 + (merged as f64 / flushed as f64).min(WRITTEN_AGAIN_MAX) }
}

/// The facts of flat segments, newest first; there is at least one.
pub(super) fn facts(catalog: &Catalog, copy_ns: f64, flats: &[Arc<Flat>]) -> PipelineFacts {
    let mut sketch = Sketch::new();
    flats.iter().for_each(|flat| flat.sketch_into(&mut sketch));
    PipelineFacts {
        segments: flats.len(),
        cells: flats.iter().map(|flat| flat.cells() as u64).sum(),
        distinct: sketch.estimate(),
        bytes: flats.iter().map(|flat| flat.bytes() as u64).sum(),
        dead_bytes: flats.iter().map(|flat| flat.dead().bytes as u64).sum(),
        newest_bytes: flats[0].bytes() as u64,
        newest_dead_bytes: flats[0].dead().bytes as u64,
        flush_ns: catalog.commit.drain_ns_per_byte() * written_again(catalog),
        copy_ns: if copy_ns == 0.0 { COPY_NS_PER_BYTE } else { copy_ns },
        draw: catalog.commit.env.random.next_u64() as f64 / (u64::MAX as f64 + 1.0),
    }
}

/// Where the segments are among the version's frozen ones, all of them, as they are and one behind the other.
fn place_of(version: &Version, sources: &[Segment]) -> Option<Range<usize>> {
    let first = version.frozen.iter().position(|s| s.is(&sources[0]))?;
    let there = version.frozen.get(first..first + sources.len())?;
    let same = there.iter().zip(sources).all(|(a, b)| a.is(b));
    same.then(|| first..first + sources.len())
}
