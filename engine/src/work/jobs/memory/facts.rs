//! What is known of memtables before it is decided whether they are compacted or flushed.

use crate::catalog::Catalog;
use crate::commit::{FamilySettings, Store, StoreWork};
use crate::memtable::{FlatMemtable, Memtable};
use crate::strategy::PipelineFacts;
use crate::types::Sketch;
use crate::version::{Memtables, Version};
use std::sync::Arc;

/// The most that compactions are held against a byte that is flushed: most of it comes late, and the byte may
/// be overwritten by then.
const WRITTEN_AGAIN_MAX: f64 = 4.0;

/// The cost of copying a byte in memory, until it was measured.
const COPY_NS_PER_BYTE: f64 = 2.0;

/// The bytes that a compaction in memory, under way or brought by the next memtable, may be expected to free:
/// as much as the last one since the disk flush did. Nothing is known before that one.
pub(crate) fn compactable_bytes(store: &Store, version: &Version, work: &StoreWork) -> u64 {
    let Memtables { waiting, ranges, .. } = &version.memory;
    let newest = waiting.first().or(ranges.memtables().next()).map(Memtable::generation);
    let due = work.memory.is_compacting() || newest.is_some_and(|newest| newest > work.memory.joined_upto);
    if work.memory.pipeline.compactions == 0 || !due || !store.settings().options.memtable_policy.compacts() {
        return 0;
    }
    let waiting: u64 = waiting.iter().map(|memtable| memtable.bytes() as u64).sum();
    ((waiting + ranges.bytes()) as f64 * (1.0 - work.memory.pipeline.stayed)) as u64
}

/// About how much of a store's memory a flush would find that is not dead by then. `survived` is that share
/// of the last flush.
pub(crate) fn surviving_share(version: &Version, settings: &FamilySettings, survived: Option<f64>) -> f64 {
    let (mut cells, mut keys, mut live, mut dead) = (0, Sketch::new(), 0, 0);
    let Memtables { active, waiting, ranges, .. } = &version.memory;
    // Where a flush takes one range, what all of them would tell is not worth what it costs to ask: planning
    // does at each turn, and this hashes all keys.
    let asks = ranges.is_one() && settings.by_range().is_none();
    let asked = if asks { ranges.memtables_of(0) } else { &[] };
    for flat in asked.iter().filter_map(|memtable| memtable.as_flat()) {
        cells += flat.cells();
        live += flat.user_bytes();
        dead += flat.dead().bytes;
        flat.sketch_into(&mut keys);
    }
    if cells == 0 {
        // Memtables that are not flat do not know their keys. What the last flush found may hold again.
        return survived.unwrap_or(1.0);
    }
    // Flat ones do, and also what was dead within them: it will be like that with the others.
    let all = std::iter::once(active).chain(waiting).chain(asked);
    let user_bytes: usize = all.map(Memtable::user_bytes).sum();
    let fresh = (user_bytes - live) as f64 * live as f64 / (live + dead).max(1) as f64;
    let unique = keys.estimate() as f64 / cells as f64;
    (unique * (live as f64 + fresh) / user_bytes.max(1) as f64).min(1.0)
}

/// How often a byte of memory is written to SSTables in the end: once by the flush, and as often again as
/// compactions were seen to.
fn written_again(catalog: &Catalog) -> f64 {
    let (flushed, merged) =
        (catalog.cx.metrics.flushed_bytes.get(), catalog.cx.metrics.compaction_written_bytes.get());
    if flushed == 0 { 1.0 } else { 1.0 + (merged as f64 / flushed as f64).min(WRITTEN_AGAIN_MAX) }
}

/// The facts of flat memtables, newest first; there is at least one.
pub(super) fn pipeline_facts(catalog: &Catalog, copy_ns: f64, flats: &[Arc<FlatMemtable>]) -> PipelineFacts {
    let mut sketch = Sketch::new();
    flats.iter().for_each(|flat| flat.sketch_into(&mut sketch));
    PipelineFacts {
        memtables: flats.len(),
        cells: flats.iter().map(|flat| flat.cells() as u64).sum(),
        distinct: sketch.estimate(),
        bytes: flats.iter().map(|flat| flat.bytes() as u64).sum(),
        dead_bytes: flats.iter().map(|flat| flat.dead().bytes as u64).sum(),
        newest_bytes: flats[0].bytes() as u64,
        newest_dead_bytes: flats[0].dead().bytes as u64,
        flush_ns: catalog.commit.drain_ns_per_byte() * written_again(catalog),
        copy_ns: if copy_ns == 0.0 { COPY_NS_PER_BYTE } else { copy_ns },
        draw: catalog.cx.env.random.next_u64() as f64 / (u64::MAX as f64 + 1.0),
    }
}

/// What a byte of keys and values takes in an SSTable, as an open one of the store's has it.
pub(crate) fn bytes_per_user_byte(version: &Version) -> f64 {
    let mut telling = version.tables().filter(|open| open.info.cells > 0 && !open.info.has_wal_values());
    let Some((bytes, table)) = telling.find_map(|open| Some((open.info.bytes, open.opened()?))) else {
        return 1.0;
    };
    let properties = table.properties();
    bytes as f64 / (properties.key_bytes + properties.value_bytes).max(1) as f64
}

#[cfg(all(test, not(models)))]
mod tests {
    use super::*;
    use crate::memtable::{ActiveMemtable, MemoryOptions, MemtableRanges, Sizes, Visibility};
    use crate::operator::Registry;
    use crate::options::FamilyOptions;
    use crate::types::{CellRef, Generation, Kind, SeqNo, Timestamp};

    fn memtable(keys: &[&[u8]]) -> Memtable {
        let memory = MemoryOptions { chunks: Sizes::all(1 << 10), spares: None };
        let active = ActiveMemtable::new(Generation(1), memory);
        for (seq, key) in (1..).zip(keys) {
            let (timestamp, seq) = (Timestamp::ZERO, SeqNo(seq));
            let cell = CellRef { key, timestamp, seq, kind: Kind::Value, written: 0, value: b"" };
            assert!(active.writer().insert(&cell));
        }
        Arc::new(active).into()
    }

    /// Planning asks at each turn, and hashing all keys of a range took 7 % of a load's time.
    #[test]
    fn keys_are_hashed_only_where_a_flush_takes_all_memory() {
        let mut version = Version::new(memtable(&[]));
        let visible = Visibility { counts: false, visible: SeqNo::MAX, snapshots: &[] };
        let flat = memtable(&[b"a", b"b"]).flatten(&visible);
        version.memory.ranges = Arc::new(MemtableRanges::one(vec![flat], Generation(1)));
        let share = |strategy: &str| {
            let options = FamilyOptions { strategy: strategy.parse().unwrap(), ..Default::default() };
            let settings = FamilySettings::resolve("f", options, &Registry::default()).unwrap();
            surviving_share(&version, &settings, Some(0.25))
        };
        assert!(share("leveled") > 0.9, "all keys differ");
        assert!((share("rangemerge") - 0.25).abs() < 1e-9, "what the last flush found is taken");
    }
}
