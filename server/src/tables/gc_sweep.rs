//! Sweeps for cells that are hidden by a rule which the engine cannot apply ([`Gc::is_judged_here`]): deletes
//! them, so that compactions drop them.
//!
//! All versions behind the first that is gone are gone, too: the later ones are older and more are newer. So
//! one tombstone a column does. It is written only if nothing was written to the column since the snapshot by
//! which it was judged: a delete of newer versions meanwhile may have brought older ones back.
//!
//! A table is walked in chunks, each at a snapshot of its own, every hour from five minutes after the start
//! on, and before [`Server::compact`](crate::Server::compact). Tables whose changes are streamed are left
//! out, as these deletes are nobody's.

use crate::cells::gc::Gc;
use crate::status::status;
use crate::tables::layout::{Layout, Region, Stores, Table};
use crate::tables::registry::Tables;
use siltstone::{Batch, Condition, Durability, ErrorKind, Expected, Snapshot, Timestamp};
use std::ops::Bound;
use tonic::Status;

/// Cells and bytes looked at in a chunk, as a rule: it ends with a column.
const CELLS: usize = 10_000;
const BYTES: usize = 16 << 20;
/// Columns deleted from in one batch.
const COLUMNS: usize = 100;

/// The position of a sweep.
#[derive(Debug, Default)]
pub(crate) struct Walk {
    /// Families that are done.
    families: usize,
    /// The key from which it goes on.
    from: Vec<u8>,
    /// Columns deleted from.
    pub(crate) deleted: u64,
}

/// A key and the newest of its hidden timestamps.
type Gone = (Vec<u8>, Timestamp);

/// Whether there is something to walk for.
pub(crate) fn concerns(layout: &Layout) -> bool {
    layout.schema.change_retention_us.is_none() && layout.families.iter().any(|f| f.gc.is_judged_here())
}

impl Tables {
    /// Walks a chunk of a table; false at its end. After an error it may be walked on.
    pub(crate) fn collect(&self, table: &Table, walk: &mut Walk, now_us: u64) -> Result<bool, Status> {
        // Rules, and keys, stay as they are until what was found is deleted.
        let _changing = self.change();
        let _hold = table.hold();
        let layout = table.now();
        if !concerns(&layout) {
            return Ok(false);
        }
        let mut judged = layout.families.iter().filter(|family| family.gc.is_judged_here());
        let Some(family) = judged.nth(walk.families) else { return Ok(false) };
        let Some(region) = family.within(&walk.from, None).first() else { return Ok(false) };
        let snapshot = self.db.snapshot();
        let found = find(region, &walk.from, &snapshot, &family.gc, now_us);
        // If something cannot be read, the remaining region is left out.
        let (gone, next, failed) = match found {
            Ok((gone, next)) => (gone, next, Ok(true)),
            Err(e) => (Vec::new(), None, Err(e)),
        };
        match next.or_else(|| region.store.range().end) {
            Some(next) => walk.from = next,
            None => (walk.families, walk.from) = (walk.families + 1, Vec::new()),
        }
        for some in gone.chunks(COLUMNS) {
            walk.deleted += self.delete_gone(family, some, &snapshot)?;
        }
        failed
    }

    /// Deletes them, all but those written to since; how many.
    fn delete_gone(&self, family: &Stores, gone: &[Gone], snapshot: &Snapshot) -> Result<u64, Status> {
        let (mut batch, mut conditions) = (Batch::new(), Vec::new());
        for (key, newest) in gone {
            let store = family.of(key);
            batch.delete_at(store, key, *newest);
            conditions.push(Condition::new(store, key.clone(), Expected::NotNewerThan(snapshot.seq())));
        }
        match self.db.write_if(&conditions, &batch, Durability::Buffered) {
            Ok(_) => Ok(gone.len() as u64),
            Err(e) if e.kind() != ErrorKind::Conflict => Err(status(e)),
            // The next walk judges it anew.
            Err(_) if gone.len() == 1 => Ok(0),
            Err(_) => {
                let (some, others) = gone.split_at(gone.len() / 2);
                Ok(self.delete_gone(family, some, snapshot)? + self.delete_gone(family, others, snapshot)?)
            }
        }
    }
}

/// The hidden cells of a region's store from a key on, and the key from which to go on, if the store has
/// more.
fn find(
    region: &Region,
    from: &[u8],
    snapshot: &Snapshot,
    gc: &Gc,
    now_us: u64,
) -> Result<(Vec<Gone>, Option<Vec<u8>>), Status> {
    let bounds = (Bound::Included(from.to_vec()), Bound::Unbounded);
    let mut cursor = region.store.at(snapshot).scan::<Vec<u8>>(bounds).cursor();
    cursor.first().map_err(status)?;
    let (mut gone, mut column, mut newest) = (Vec::new(), Vec::new(), 0);
    let (mut looked, mut bytes) = (0, 0);
    while let Some(entry) = cursor.entry() {
        if entry.key != column {
            if looked >= CELLS || bytes >= BYTES {
                return Ok((gone, Some(entry.key.clone())));
            }
            (column, newest) = (entry.key.clone(), 0);
        }
        looked += 1;
        bytes += entry.value.len();
        if gc.is_gone(newest, entry.timestamp.0, now_us) {
            gone.push((column.clone(), entry.timestamp));
            cursor.seek([&column[..], b"\0"].concat()).map_err(status)?;
        } else {
            newest += 1;
            cursor.next().map_err(status)?;
        }
    }
    Ok((gone, None))
}
