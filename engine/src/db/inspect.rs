//! What a person wants to see of a running database: memory, log, statistics.

use super::Inner;
use super::store::Store;
use crate::metrics::Statistics;
use serde::Serialize;

/// A segment of a family's memory.
#[derive(Clone, Debug, Serialize)]
pub struct SegmentListing {
    /// `active`, `frozen`, `flat` or `flushing`.
    pub state: &'static str,
    /// Its id; grows with recency.
    pub generation: u64,
    /// Capacity.
    pub bytes: u64,
    /// Cells, range tombstones apart.
    pub cells: u64,
    /// The oldest log file it needs.
    pub log_front: Option<u64>,
}

/// A log file.
#[derive(Clone, Debug, Serialize)]
pub struct LogListing {
    /// Its number.
    pub file: u64,
    /// Bytes on disk.
    pub reserved: u64,
    /// Bytes of history.
    pub used: u64,
}

pub(super) fn segments(store: &Store) -> Vec<SegmentListing> {
    let version = store.version();
    let list = |state: &'static str, segment: &crate::memory::Segment| SegmentListing {
        state,
        generation: segment.generation().0,
        bytes: segment.bytes() as u64,
        cells: segment.cells() as u64,
        log_front: segment.log_front().map(|file| file.0),
    };
    let frozen = version.frozen.iter().map(|s| list(if s.as_flat().is_some() { "flat" } else { "frozen" }, s));
    std::iter::once(list("active", &version.active))
        .chain(frozen)
        .chain(version.flush.segments.iter().map(|s| list("flushing", s)))
        .collect()
}

impl Inner {
    pub(super) fn log_listing(&self) -> Vec<LogListing> {
        let files = self.log.as_ref().map(|log| log.files()).unwrap_or_default();
        files.iter().map(|f| LogListing { file: f.file.0, reserved: f.reserved, used: f.used }).collect()
    }

    pub(super) fn statistics(&self) -> Statistics {
        self.recount_memory();
        let m = &self.metrics;
        let log = self.log.as_ref().map(|log| (log.stats(), log.bytes()));
        let (log, log_bytes) = log.unwrap_or_default();
        let cache = self.cache.stats();
        let stores = self.stores();
        Statistics {
            writes: m.writes.get(),
            user_bytes: m.user_bytes.get(),
            log_bytes_written: log.appended_bytes,
            log_bytes_written_ahead: log.written_ahead_bytes,
            log_syncs: log.syncs,
            log_bytes,
            flushes: m.flushes.get(),
            flushed_bytes: m.flushed_bytes.get(),
            merges: m.merges.get(),
            merge_steps: m.merge_steps.get(),
            moves: m.moves.get(),
            merged_bytes: m.merged_bytes.get(),
            merged_in_bytes: m.merged_in_bytes.get(),
            cells_dropped: m.cells_dropped.get(),
            delays: m.delays.get(),
            delayed_ns: m.delayed_ns.get(),
            stops: m.stops.get(),
            freezes: m.freezes.get(),
            write_memory: self.memory_used.get(),
            tables: stores.iter().map(|s| s.version().tables().count() as u64).sum(),
            table_bytes: self.table_bytes.get(),
            debt: self.debt.get(),
            snapshots: self.snapshots.count() as u64,
            old_versions: self.graveyard.held() as u64,
            cache_hits: cache.data.hits,
            cache_misses: cache.data.misses,
            cache_bytes: cache.data_bytes + cache.meta_bytes,
        }
    }
}
