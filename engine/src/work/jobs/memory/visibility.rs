//! What readers may see while memory is laid out and compacted, and what is told of a memtable laid out.

use crate::catalog::Catalog;
use crate::commit::Store;
use crate::event::EventKind;
use crate::memtable::{Memtable, Visibility};
use crate::types::SeqNo;
use std::sync::Arc;

/// What readers may see: everything up to a sequence number, and what snapshots hold.
pub(super) struct Visible {
    visible: SeqNo,
    snapshots: Arc<[SeqNo]>,
}

impl Visible {
    /// What they may see now. What is visible is read first, snapshots second: one taken between them is at
    /// or above what is visible now.
    pub(super) fn now(catalog: &Catalog) -> Self {
        let visible = catalog.commit.snapshots.visible();
        Self { visible, snapshots: catalog.commit.snapshots.read_points() }
    }

    pub(super) fn by(&self, store: &Store) -> Visibility<'_> {
        let counts = store.settings().counts_versions();
        Visibility { counts, visible: self.visible, snapshots: &self.snapshots }
    }
}

/// Counts a memtable that was laid out, and records the event.
pub(super) fn note_memory_flush(catalog: &Catalog, store: &Store, memtable: &Memtable, began_ns: u64) {
    catalog.cx.metrics.memtable_freezes.add(1);
    catalog.commit.recount(store);
    catalog.commit.touch(store.id);
    let version = store.version();
    let numbers = [
        ("cells", memtable.cells() as u64),
        ("bytes", memtable.bytes() as u64),
        ("generation", memtable.generation().0),
        ("memtables", (version.memory.waiting.len() + version.memory.ranges.depth()) as u64),
        ("share", store.active_bytes()),
        ("micros", (catalog.cx.env.clock.monotonic_ns() - began_ns) / 1_000),
    ];
    let reason = "a memtable was frozen".into();
    catalog.cx.events.record(EventKind::MemtableFreeze, &store.name, reason, &numbers);
}
