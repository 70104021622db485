//! Flattening: an immutable memtable becomes flat, without the versions that nobody sees (ACC-3, I4).

use super::visibility::{Visible, note_memory_flush};
use crate::catalog::Catalog;
use crate::commit::Store;
use crate::memtable::Memtable;

/// Turns the oldest immutable memtable that is not flat into a flat one; whether there was one.
pub(crate) fn flatten_oldest(catalog: &Catalog, store: &Store) -> bool {
    let version = store.version_full();
    let Some(segment) = version.frozen.iter().rev().find(|s| s.as_active().is_some() || s.is_part()) else {
        return false;
    };
    let seen = Visible::now(catalog);
    let began_ns = catalog.cx.env.clock.monotonic_ns();
    let flat = segment.flatten(&seen.by(store));
    let mut swapped = false;
    store.swap_if(|now| {
        // A flush may have taken it.
        let is_it = |s: &Memtable| s.is(segment) && (s.as_active().is_some() || s.is_part());
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
