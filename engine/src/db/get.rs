//! The read of one key: sources in order, newest first, one function a kind of source.

use super::Inner;
use super::visible::{Found, Lookup, pin, resolve};
use crate::commit::{ReadRules, Store};
use crate::error::Result;
use crate::types::{
    CellRef, Fragments, KeyRange, Owner, Pinned, RangeTombstone, SeqNo, TimeRange, Timestamp, hash, successor,
};
use crate::version::Version;
use std::ops::ControlFlow;

impl Inner {
    /// The newest visible value of the key. `read`: a snapshot's sequence number, or `None` for now.
    pub(crate) fn get(&self, store: &Store, key: &[u8], read: Option<SeqNo>) -> Result<Option<Pinned>> {
        store.check_not_dropped()?;
        let settings = store.settings();
        let rules = &settings.read;
        if rules.explicit {
            return Ok(self.get_versions(store, key, read, TimeRange::ALL, 1)?.pop().map(|(_, value)| value));
        }
        rules.check_filter()?;
        let now_us = self.now_for(rules);
        let (version, read) = self.view(read, || store.version());
        version.check_key(key)?;
        let mut lookup = Lookup::new(rules, key, now_us);
        search(&version, key, read, &mut lookup)?;
        lookup.finish()
    }

    /// Up to `count` visible versions of those times, newest first.
    pub(crate) fn get_versions(
        &self,
        store: &Store,
        key: &[u8],
        read: Option<SeqNo>,
        times: TimeRange,
        count: usize,
    ) -> Result<Vec<(Timestamp, Pinned)>> {
        store.check_not_dropped()?;
        let settings = store.settings();
        let rules = &settings.read;
        let looks_at = rules.looks_at(times)?;
        rules.check_filter()?;
        if times.is_empty() {
            return Ok(Vec::new());
        }
        let now_us = self.now_for(rules);
        let (version, read) = self.view(read, || store.version());
        version.check_key(key)?;
        let mut found = Vec::new();
        // A few cells of each source are enough as a rule, however many versions the key has.
        let mut most = count.saturating_mul(2).max(CELLS_AT_FIRST);
        loop {
            found.clear();
            let mut cells: Vec<Found> = Vec::new();
            let mut take = |cell: &CellRef<'_>, owner: &dyn Owner| {
                let says = ReadRules::says_of(cell, looks_at);
                if says {
                    cells.push(Found::new(cell, pin(cell, owner)));
                }
                says
            };
            let (tombstones, known_above) = collect(&version, key, read, looks_at, most, &mut take)?;
            cells.sort_by(Found::order);
            cells.dedup_by(|a, b| a.timestamp == b.timestamp && a.seq == b.seq);
            // Versions at or below that timestamp may be missing.
            cells.retain(|cell| known_above.is_none_or(|above| cell.timestamp > above));
            resolve(rules, key, &cells, &tombstones, read, now_us, &mut |timestamp, value| {
                if times.contains(timestamp) && found.len() < count {
                    found.push((timestamp, value));
                }
                if timestamp > times.first && found.len() < count {
                    ControlFlow::Continue(())
                } else {
                    ControlFlow::Break(())
                }
            })?;
            if known_above.is_none_or(|above| found.len() == count || above < times.first) {
                return Ok(found);
            }
            most = most.saturating_mul(8);
        }
    }

    /// All cells of the key at or below the read point, in order, and the range tombstones over it.
    pub(super) fn cells(
        &self,
        store: &Store,
        key: &[u8],
        read: SeqNo,
    ) -> Result<(Vec<Found>, Vec<RangeTombstone>)> {
        self.cx.check_open()?;
        store.check_not_dropped()?;
        store.check_read_point(read)?;
        let version = store.version();
        version.check_key(key)?;
        let mut cells = Vec::new();
        let mut take = |cell: &CellRef<'_>, owner: &dyn Owner| {
            cells.push(Found::new(cell, pin(cell, owner)));
            true
        };
        let (tombstones, _) = collect(&version, key, read, TimeRange::ALL, usize::MAX, &mut take)?;
        cells.sort_by(Found::order);
        cells.dedup_by(|a, b| a.timestamp == b.timestamp && a.seq == b.seq);
        let only = KeyRange { start: key.to_vec(), end: Some(successor(key)) };
        let tombstones = tombstones.tombstones_within(&only).filter(|t| t.seq <= read).collect();
        Ok((cells, tombstones))
    }

    /// The version and read point of a read, taken in this order. A compaction drops a cell only for what is
    /// visible before its version is swapped in, so a read point older than the version may miss cells.
    #[inline]
    pub(crate) fn view<V>(&self, read: Option<SeqNo>, version: impl FnOnce() -> V) -> (V, SeqNo) {
        if planted!(Bug::ReadPointBeforeVersion) {
            let read = read.unwrap_or_else(|| self.commit.snapshots.visible());
            kill_point!("read-half-way");
            return (version(), read);
        }
        let version = version();
        kill_point!("read-half-way");
        (version, read.unwrap_or_else(|| self.commit.snapshots.visible()))
    }

    pub(crate) fn now_for(&self, rules: &ReadRules) -> u64 {
        if rules.needs_now() { self.cx.env.clock.wall_us() } else { 0 }
    }
}

/// Goes through the sources, newest first, until the lookup breaks off.
pub(super) fn search(version: &Version, key: &[u8], read: SeqNo, lookup: &mut Lookup<'_>) -> Result<()> {
    if search_memory(version, key, read, lookup).is_break() {
        return Ok(());
    }
    search_tables(version, key, read, lookup)
}

pub(super) fn search_memory(
    version: &Version,
    key: &[u8],
    read: SeqNo,
    lookup: &mut Lookup<'_>,
) -> ControlFlow<()> {
    for memtable in version.memory.at(key) {
        if memtable.has_ranges() {
            lookup.cover(memtable.newest_over(key, Timestamp::ZERO, read));
        }
        memtable.get(key, read, &mut |cell, owner| lookup.take(cell, owner))?;
    }
    ControlFlow::Continue(())
}

fn search_tables(version: &Version, key: &[u8], read: SeqNo, lookup: &mut Lookup<'_>) -> Result<()> {
    if version.runs.is_empty() {
        return Ok(());
    }
    let hash = hash(key);
    for run in version.runs.iter() {
        let Some(open) = run.find(key) else { continue };
        let table = open.table()?;
        if !table.fragments().is_empty() {
            lookup.cover(table.fragments().newest_over(key, Timestamp::ZERO, read));
        }
        if table.get(key, hash, read, &mut |cell, owner| lookup.take(cell, owner))?.is_break() {
            return Ok(());
        }
    }
    Ok(())
}

/// How many cells of a key are read from each source at first.
const CELLS_AT_FIRST: usize = 16;

/// Visits the cells of the key, from the highest timestamp down, in every source that may have those times,
/// at most so many of each that `take` counts. Gathers the range tombstones over it. If cells were left out,
/// returns the timestamp above which none is missing.
pub(super) fn collect(
    version: &Version,
    key: &[u8],
    read: SeqNo,
    times: TimeRange,
    most: usize,
    take: &mut dyn FnMut(&CellRef<'_>, &dyn Owner) -> bool,
) -> Result<(Fragments, Option<Timestamp>)> {
    let known_above = std::cell::Cell::new(None);
    let taken = std::cell::Cell::new(0);
    let mut visit = |cell: &CellRef<'_>, owner: &dyn Owner| {
        taken.set(taken.get() + usize::from(take(cell, owner)));
        if taken.get() < most {
            return ControlFlow::Continue(());
        }
        known_above.set(known_above.get().max(Some(cell.timestamp)));
        ControlFlow::Break(())
    };
    let only = KeyRange { start: key.to_vec(), end: Some(successor(key)) };
    let mut tombstones = Vec::new();
    for memtable in version.memory.at(key).filter(|memtable| memtable.speaks_of(times)) {
        if memtable.has_ranges() {
            tombstones.extend(memtable.tombstones_over(&only, read));
        }
        taken.set(0);
        let _ = memtable.get(key, read, &mut visit);
    }
    let hash = hash(key);
    for run in version.runs.iter() {
        let Some(open) = run.find(key).filter(|open| open.speaks_of(times)) else { continue };
        let table = open.table()?;
        let fragments = table.fragments();
        if !fragments.is_empty() {
            tombstones.extend(fragments.tombstones_within(&only));
        }
        taken.set(0);
        let _ = table.get(key, hash, read, &mut visit)?;
    }
    Ok((Fragments::new(tombstones), known_above.get()))
}
