//! Laying out frozen segments: flat (ACC-3), or over the ranges of a store whose memory is held by range.

use super::compact_range::compact_range;
use super::layout::Layout;
use crate::catalog::Catalog;
use crate::commit::Store;
use crate::event::EventKind;
use crate::memory::{Segment, Visibility};
use crate::types::SeqNo;
use std::sync::Arc;

/// What readers may see.
pub(super) struct Seen {
    visible: SeqNo,
    snapshots: Arc<[SeqNo]>,
}

impl Seen {
    /// Visible first, snapshots second: one taken between them is at or above what is visible now.
    pub(super) fn now(catalog: &Catalog) -> Self {
        let visible = catalog.commit.snapshots.visible();
        Self { visible, snapshots: catalog.commit.snapshots.read_points() }
    }

    pub(super) fn by(&self, store: &Store) -> Visibility<'_> {
        let counts = store.settings().counts_versions();
        Visibility { counts, visible: self.visible, snapshots: &self.snapshots }
    }
}

/// Lays one frozen segment of the store out, as its memory is held, or compacts a range of it. Whether there was one.
pub(in crate::work) fn lay_out_one(catalog: &Catalog, store: &Store) -> bool {
    let settings = store.settings();
    let layout = Layout::of(&settings);
    let compacts = store.work.lock().memory.compacts.is_some();
    if !(compacts || store.version().frozen.iter().any(|segment| layout.is_due(segment)))
        || std::mem::replace(&mut store.work.lock().memory.laying_out, true)
    {
        return false;
    }
    let laid_out = compact_range(catalog, store) || layout.lay_out_oldest(catalog, store);
    store.work.lock().memory.laying_out = false;
    laid_out
}

/// Turns one frozen segment into a flat one (ACC-3, invariant I4).
pub(super) fn flatten_oldest(catalog: &Catalog, store: &Store) -> bool {
    let version = store.version_full();
    let Some(segment) = version.frozen.iter().rev().find(|s| s.as_active().is_some() || s.is_part()) else {
        return false;
    };
    let seen = Seen::now(catalog);
    let began_ns = catalog.commit.env.clock.monotonic_ns();
    let flat = segment.flatten(&seen.by(store));
    let mut swapped = false;
    store.swap_if(|now| {
        // A flush may have taken it.
        let is_it = |s: &Segment| s.is(segment) && (s.as_active().is_some() || s.is_part());
        swapped = now.frozen.iter().any(is_it);
        swapped.then(|| {
            // A part with nothing in it goes.
            let rest = now.frozen.iter().filter(|s| !is_it(s) || flat.as_flat().is_some());
            let frozen = rest.map(|s| if is_it(s) { flat.clone() } else { s.clone() }).collect();
            now.with_memory(now.active.clone(), frozen, now.flush.clone())
        })
    });
    if swapped {
        note_memory_flush(catalog, store, segment, began_ns);
    }
    true
}

/// A full segment was laid out flat, or over the ranges of memory.
pub(super) fn note_memory_flush(catalog: &Catalog, store: &Store, segment: &Segment, began_ns: u64) {
    catalog.commit.metrics.freezes.add(1);
    catalog.commit.recount(store);
    catalog.commit.touch(store.id);
    let version = store.version();
    let numbers = [
        ("cells", segment.cells() as u64),
        ("bytes", segment.bytes() as u64),
        ("generation", segment.generation().0),
        ("segments", version.frozen.len() as u64),
        ("share", store.active_bytes()),
        ("micros", (catalog.commit.env.clock.monotonic_ns() - began_ns) / 1_000),
    ];
    catalog.commit.events.record(
        EventKind::MemoryFlush,
        &store.name,
        "a segment was frozen".into(),
        &numbers,
    );
}
