//! The writes of a transaction, as its own reads see them.
//!
//! Its batch holds the writes; this finds them by key. A transaction's own writes of a key are resolved
//! together with the cells that its snapshot sees, by the rules of any read, as newer than all of them.

use super::visible::{Found, resolve};
use super::{Batch, Family, Operation};
use crate::commit::ReadRules;
use crate::error::Result;
use crate::memtable::Ranges;
use crate::types::{Fragments, KeyRange, Kind, Pinned, RangeTombstone, SeqNo, StoreId, Timestamp, successor};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

pub(super) struct Own {
    /// The snapshot's sequence number.
    before: SeqNo,
    families: BTreeMap<StoreId, OfFamily>,
}

pub(super) struct OfFamily {
    family: Family,
    before: SeqNo,
    /// By key, its writes as numbers in the batch, in order.
    pub(super) keys: BTreeMap<Vec<u8>, Vec<usize>>,
    /// Its range deletes.
    ranges: Ranges,
}

impl Own {
    pub(super) fn new(before: SeqNo) -> Self {
        Self { before, families: BTreeMap::new() }
    }

    pub(super) fn of(&self, family: &Family) -> Option<&OfFamily> {
        self.families.get(&family.store.id)
    }

    /// All that was written to: keys, and ranges that were deleted.
    pub(super) fn written(&self) -> impl Iterator<Item = (&Family, &OfFamily)> {
        self.families.values().map(|of| (&of.family, of))
    }

    /// Takes in the batch's last write. O(log n).
    pub(super) fn note_last(&mut self, batch: &Batch) {
        let n = batch.len() - 1;
        let operation = batch.operation(n);
        let (family, key) = operation.target();
        let of = self.families.entry(family.store.id).or_insert_with(|| OfFamily {
            family: family.clone(),
            before: self.before,
            keys: BTreeMap::new(),
            ranges: Ranges::new(),
        });
        let Some(key) = key else { return of.add_range(&operation, n) };
        match of.keys.get_mut(key) {
            Some(writes) => writes.push(n),
            None => _ = of.keys.insert(key.to_vec(), vec![n]),
        }
    }

    /// Forgets the writes of the batch from the nth on, which are still in it.
    pub(super) fn forget_from(&mut self, batch: &Batch, n: usize) {
        let mut recut = BTreeSet::new();
        for operation in (n..batch.len()).rev().map(|n| batch.operation(n)) {
            let (family, key) = operation.target();
            let Some(key) = key else {
                recut.insert(family.store.id);
                continue;
            };
            let Some(of) = self.families.get_mut(&family.store.id) else { continue };
            if let Some(writes) = of.keys.get_mut(key) {
                writes.pop();
                if writes.is_empty() {
                    of.keys.remove(key);
                }
            }
        }
        for store in recut {
            let Some(of) = self.families.get_mut(&store) else { continue };
            of.ranges = Ranges::new();
            for (n, operation) in batch.iter().enumerate().take(n) {
                if operation.target().0.store.id == store {
                    of.add_range(&operation, n);
                }
            }
        }
    }
}

/// The sequence number that the nth write counts as.
fn seq_of(before: SeqNo, n: usize) -> SeqNo {
    SeqNo(before.0 + 1 + n as u64)
}

impl OfFamily {
    /// Takes in the nth write, if it is a range delete.
    fn add_range(&mut self, operation: &Operation<'_>, n: usize) {
        if let Operation::DeleteRange { range, from, to, .. } = *operation {
            self.ranges.add(RangeTombstone { range: range.clone(), from, to, seq: seq_of(self.before, n) });
        }
    }

    pub(super) fn deleted_ranges(&self) -> Vec<KeyRange> {
        self.ranges.within(&KeyRange::all()).into_iter().map(|tombstone| tombstone.range).collect()
    }

    /// Whether a version of a key that has no write of its own is deleted by a range.
    pub(super) fn deletes(&self, key: &[u8], timestamp: Timestamp) -> bool {
        self.ranges.len() > 0 && self.ranges.newest_over(key, timestamp, SeqNo::MAX).is_some()
    }

    /// The key's versions, newest first, with its own writes over what was there before; none where nothing
    /// was written to the key. `reads` is called where what was there before counts.
    pub(super) fn versions(
        &self,
        batch: &Batch,
        key: &[u8],
        now_us: u64,
        reads: impl FnOnce(),
    ) -> Result<Option<Vec<(Timestamp, Pinned)>>> {
        let writes = self.keys.get(key).map_or(&[][..], |writes| writes);
        let only = KeyRange { start: key.to_vec(), end: Some(successor(key)) };
        let mut deletes =
            if self.ranges.len() > 0 { self.ranges.over(&only, SeqNo::MAX) } else { Vec::new() };
        if writes.is_empty() && deletes.is_empty() {
            return Ok(None);
        }
        let Self { family, before, .. } = self;
        let settings = family.store.settings();
        let rules: &ReadRules = &settings.read;
        rules.check_filter()?;
        let mut cells: Vec<Found> = writes.iter().map(|&n| self.cell(batch, n, now_us)).collect();
        let decides = |cell: &Found| cell.kind != Kind::Operand;
        if rules.explicit || (deletes.is_empty() && !cells.iter().any(decides)) {
            reads();
            let (older, tombstones) = family.db.cells(&family.store, key, *before)?;
            cells.extend(older);
            deletes.extend(tombstones);
        }
        cells.sort_by(Found::order);
        let mut versions = Vec::new();
        let read = seq_of(*before, batch.len());
        resolve(rules, key, &cells, &Fragments::new(deletes), read, now_us, &mut |timestamp, value| {
            versions.push((timestamp, value));
            if rules.explicit { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        Ok(Some(versions))
    }

    /// The nth write, which is to a key.
    fn cell(&self, batch: &Batch, n: usize, now_us: u64) -> Found {
        let (kind, timestamp, value) = match batch.operation(n) {
            Operation::Put { timestamp, value, .. } => (Kind::Value, timestamp, value),
            Operation::Merge { timestamp, operand, .. } => (Kind::Operand, timestamp, operand),
            Operation::Delete { timestamp, .. } => (Kind::Tombstone, timestamp, &[][..]),
            Operation::DeleteRange { .. } => unreachable!("range deletes are kept apart"),
        };
        let timestamp = timestamp.unwrap_or_else(|| self.family.default_timestamp(kind, Timestamp(now_us)));
        Found { timestamp, seq: seq_of(self.before, n), kind, written: now_us, value: Pinned::from(value) }
    }
}
