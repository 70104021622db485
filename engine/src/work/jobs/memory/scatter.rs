//! Scattering: an immutable memtable is divided by key range, for a strategy that flushes one range at a time
//! (`strategy/by_range.rs`; Rangemerge).
//!
//! *How memory is held.* Writes go to one active memtable, as ever. When that is frozen, a chore *scatters*
//! it: its cells are copied once into one exactly sized piece a range, range tombstones cut at the ranges'
//! bounds, and it goes. A range has a short list of pieces (`version/scattered.rs`), kept short by copying
//! the newest of them along with what comes (`pieces_to_join`), less what nobody can see any more. A flush
//! takes all pieces of one range as flush set, merges them with the range's SSTables (`flush/range.rs`), and
//! by its last step they are gone: no flushed cell stays readable, and what it freed is counted to the byte.
//!
//! Before a range is flushed its pieces may be compacted (`compact_range.rs`). Hot keys and values in the WAL
//! are off: what they could save is measured in docs/experiments/rangemerge.md.
//!
//! *Bounds* come from the SSTables (`ByRange::bounds`). They are looked at before a flush chooses its range
//! (`ranges.rs`); where a file was split since, the few pieces that came meanwhile are copied apart, where
//! two were joined their lists are put together.
//!
//! *Generations* (I1). A piece has the generation of the memtable it came from, the highest if it came of
//! several. A range is flushed only when no immutable memtable waits to be scattered, so all its cells of
//! generations up to the newest one scattered, in any range, are in its pieces: that is what the flush
//! claims, for the range's keys alone. (So too after a recovery, which puts cells of all generations that the
//! WAL held into memtables of its own: what it put in memory was frozen then.)
//!
//! *What a reader visits* (I3): the active memtable, the immutable ones, the pieces of its key's range, the
//! flush set, SSTables. Memtables are scattered oldest first, so that all of what is scattered is older than
//! what waits. While a flush set of *all* memory is under way nothing is scattered: the cells it keeps would
//! come in front of newer ones.
//!
//! *The WAL.* A piece needs the WAL from where its memtable did; what it left out is covered by cells that
//! stand in the WAL behind that. A scatter or a copy tells nobody but memory, so a crash at any point of it
//! loses nothing: the WAL replays. A crash between two steps of a range's merge finds a manifest that says
//! which keys of the range are in SSTables up to which generation, and the inputs' clips; the rest of the
//! range is replayed, and its SSTables still answer above the clip.

use super::ranges::piece;
use super::visibility::{Visible, note_memory_flush};
use crate::catalog::Catalog;
use crate::commit::Store;
use crate::memtable::{Memtable, Visibility};
use crate::strategy::{ByRange, pieces_to_join};
use crate::version::{Scattered, Version};
use std::sync::Arc;

/// Scatters the oldest immutable memtable of a store whose memory is held by range; whether there was one.
pub(crate) fn scatter_oldest(catalog: &Catalog, store: &Store, by_range: &dyn ByRange) -> bool {
    let version = store.version_full();
    let Some(oldest) = version.frozen.last().filter(|_| may_scatter(&version)) else { return false };
    let seen = Visible::now(catalog);
    let began_ns = catalog.cx.env.clock.monotonic_ns();
    let scattered = Arc::new(scatter(&version, oldest, by_range, &seen.by(store)));
    kill_point!("scatter-copied");
    let mut swapped = false;
    store.swap_if(|now| {
        swapped = may_scatter(now)
            && Arc::ptr_eq(&now.scattered, &version.scattered)
            && now.frozen.last().is_some_and(|last| last.is(oldest));
        swapped.then(|| {
            let frozen = now.frozen[..now.frozen.len() - 1].to_vec();
            now.with_scattered(frozen, scattered.clone(), now.flush.clone())
        })
    });
    if swapped {
        note_memory_flush(catalog, store, oldest, began_ns);
    }
    true
}

/// Whether a memtable may be scattered: not while a flush of all memory is under way; see the page above.
fn may_scatter(version: &Version) -> bool {
    version.flush.is_empty() || version.flush.of_range
}

/// The memory by range once the memtable is scattered.
fn scatter(
    version: &Version,
    segment: &Memtable,
    by_range: &dyn ByRange,
    keep: &Visibility<'_>,
) -> Scattered {
    let before = &version.scattered;
    let bounds = match before.is_empty() {
        true => by_range.bounds(&version.shape),
        false => before.bounds().to_vec(),
    };
    let empty = Scattered::new(bounds.clone(), vec![Vec::new(); bounds.len() + 1], before.newest());
    let before = if before.is_empty() { &empty } else { &**before };
    let flat = segment.flatten(keep);
    // It may be a part in which there is nothing.
    let Some(cells) = flat.as_flat() else { return before.clone() };
    let ranges = before.ranges().map(|(range, pieces)| {
        if !cells.touches(&range) {
            return pieces.to_vec();
        }
        let sizes: Vec<u64> = pieces.iter().map(|piece| piece.bytes() as u64).collect();
        let joined = pieces_to_join(cells.bytes_within(&range), &sizes);
        let sources: Vec<&Memtable> = std::iter::once(&flat).chain(&pieces[..joined]).collect();
        piece(&sources, &range, keep).into_iter().chain(pieces[joined..].iter().cloned()).collect()
    });
    let newest = before.newest().max(segment.generation());
    Scattered::new(bounds, ranges.collect(), newest)
}
