//! The readable part of a damaged WAL, on its way into SSTables.
//!
//! The cells wait in memory: a WAL holds a few times what write memory does. Cells that SSTables hold already
//! are left out by generation (invariant I1), as replay does.

use crate::error::Result;
use crate::storage::Env;
use crate::types::{Cell, Generation, RangeTombstone, SeqNo, StoreId};
use crate::version::edit::{Flushed, State};
use crate::wal::{self, Entry, Frame, SalvagedWal};
use std::collections::BTreeMap;
use std::path::Path;

/// A family's part of the WAL.
#[derive(Default)]
pub(super) struct Part {
    pub(super) cells: Vec<Cell>,
    pub(super) tombstones: Vec<RangeTombstone>,
    /// The highest generation met.
    pub(super) generation: Generation,
    pub(super) max_seq: SeqNo,
}

/// Visits every readable frame of the WAL that the manifest's state names, and finds the gaps between.
pub(super) fn salvage(
    env: &Env,
    dir: &Path,
    state: &State,
    visit: &mut dyn FnMut(&Frame<'_>) -> Result<()>,
) -> Result<SalvagedWal> {
    let (first, synced, ends) = (state.wal_first, state.wal_synced, &state.wal_ends);
    wal::salvage(env, dir, state.database, first, synced, ends, visit)
}

pub(super) fn collect(
    env: &Env,
    dir: &Path,
    state: &State,
) -> Result<(BTreeMap<StoreId, Part>, SalvagedWal)> {
    let mut parts: BTreeMap<StoreId, Part> = BTreeMap::new();
    let found = salvage(env, dir, state, &mut |frame| {
        take(frame, state, &mut parts);
        Ok(())
    })?;
    for part in parts.values_mut() {
        part.cells.sort_by(|a, b| a.as_ref().order(&b.as_ref()));
        part.cells.dedup_by(|a, b| a.as_ref().order(&b.as_ref()).is_eq());
    }
    Ok((parts, found))
}

fn take(frame: &Frame<'_>, state: &State, parts: &mut BTreeMap<StoreId, Part>) {
    let nothing = Flushed::default();
    for logged in frame.entries() {
        let part = parts.entry(logged.store).or_default();
        let flushed = state.stores.get(&logged.store).map_or(&nothing, |store| &store.flushed);
        let generation = logged.generation;
        part.generation = part.generation.max(generation);
        match logged.entry {
            Entry::Cell(cell) => {
                part.max_seq = part.max_seq.max(cell.seq);
                if generation > flushed.at(cell.key) {
                    part.cells.push(cell.to_cell());
                }
            }
            Entry::RangeTombstone(tombstone) => {
                part.max_seq = part.max_seq.max(tombstone.seq);
                let open = flushed.intervals().filter(|(_, at)| *at < generation);
                let cut = open.map(|(interval, _)| RangeTombstone {
                    range: tombstone.range.intersect(&interval),
                    ..tombstone.clone()
                });
                part.tombstones.extend(cut.filter(|t| !t.range.is_empty()));
            }
        }
    }
}
