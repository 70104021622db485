//! Which cells of a compaction survive. (What a *reader* sees is decided in `db/visible.rs`; the two must
//! agree on expiry, filters and shadowing but never share a function, as they answer different questions.)
//!
//! Read points (registered snapshots) cut history into *stripes*: two cells in one stripe are seen by exactly
//! the same readers, so of two versions of one (key, timestamp) in one stripe only the newer is ever seen.
//! Everything newer than the last snapshot is one stripe: a reader without snapshot takes its version before
//! its read point, so it never needs what a compaction has dropped from under a newer cell.
//!
//! For the cells of one key, in their order (timestamp descending, sequence descending), a cell is dropped
//! when
//! - a newer value or tombstone of the same timestamp lies in its stripe (shadowed);
//! - an earlier point tombstone of the key, or a range tombstone of this compaction, is newer and lies in its
//!   stripe;
//! - the version limit pushed it out (`types/version_limit.rs`), in its own stripe;
//! - it is expired or removed by the filter; while something older may lie below, a tombstone takes its
//!   place.
//!
//! Where versions are counted, one that the filter hides counts like any other, for readers too. If its cell
//! were dropped, it would depend on the time of compactions whether an older version is visible. So a cell
//! without value stays in its place ([`Kind::Hidden`]) as long as the value would count: until a delete, the
//! limit or the TTL removes it. That is at most as many cells of a key as versions are kept. (Not counting
//! hidden versions would need no such cell, but a filter may hide later what it does not hide now: versions
//! that a compaction has dropped as pushed out would come back where no compaction ran.)
//!
//! Merge operands are held back until their base arrives: operands and base of one stripe become one value.
//! With nothing below and no older reader they become one value without base; else they are passed on.
//!
//! A range tombstone with a lowest timestamp may later delete a version that had pushed others out, without
//! these. While older versions may lie below or a reader sees them, all versions under such a tombstone are
//! kept as they are, as a record of which existed when. (Any other delete of a version also deletes the older
//! ones that it had pushed out.)
//!
//! Writes that vanish without a trace are remembered by a bound: the highest sequence number that was the
//! newest of its key, or of a range tombstone, and of which nothing is left. If a search finds no cell of a
//! key, it cannot tell whether the key was written up to that bound (`db/conflicts.rs`). So of each key
//! written after a read point something stays: its newest cell, or a range tombstone over that. Then the
//! bound is not above any read point.
//!
//! A tombstone itself goes when nothing of its key can lie below and no snapshot is older than it: whatever
//! it deletes within this compaction is in its own stripe and dropped with it.

use crate::error::Result;
use crate::operator::{CompactionFilter, MergeOperator, is_unwanted, merged};
use crate::types::{Cell, CellRef, Fragments, KeyRange, Kind, Pushed, RangeTombstone, SeqNo, Timestamp};
use std::sync::Arc;

/// A `RetentionSpec`, which describes the fields, with operator and filter at hand.
#[derive(Clone)]
pub(crate) struct RetentionRules {
    pub(crate) read_points: Arc<[SeqNo]>,
    pub(crate) explicit: bool,
    pub(crate) versions: u32,
    pub(crate) ttl_us: u64,
    pub(crate) now_us: u64,
    pub(crate) operator: Option<Arc<dyn MergeOperator>>,
    pub(crate) filter: Option<Arc<dyn CompactionFilter>>,
    pub(crate) below: TombstoneElision,
}

/// Keys that may have older data outside a compaction, as sorted, disjoint ranges. Their tombstones stay.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct TombstoneElision {
    ranges: Vec<KeyRange>,
}

impl TombstoneElision {
    pub(crate) fn new(ranges: Vec<KeyRange>) -> Self {
        Self { ranges: disjoint(ranges) }
    }

    fn holds(&self, key: &[u8]) -> bool {
        let after = self.ranges.partition_point(|r| r.start.as_slice() <= key);
        after.checked_sub(1).is_some_and(|at| self.ranges[at].ends_after(key))
    }

    /// O(log n).
    fn overlaps(&self, range: &KeyRange) -> bool {
        let ends_after = self.ranges.partition_point(|r| !r.ends_after(&range.start));
        self.ranges.get(ends_after).is_some_and(|r| r.overlaps(range))
    }
}

/// The keys of some ranges as sorted ranges that do not overlap.
pub(super) fn disjoint(mut ranges: Vec<KeyRange>) -> Vec<KeyRange> {
    ranges.retain(|r| !r.is_empty());
    ranges.sort_by(|a, b| a.start.cmp(&b.start));
    let mut disjoint: Vec<KeyRange> = Vec::new();
    for range in ranges {
        match disjoint.last_mut() {
            Some(last) if last.ends_after(&range.start) => *last = last.cover(&range),
            _ => disjoint.push(range),
        }
    }
    disjoint
}

pub(crate) type Sink<'s> = dyn FnMut(&CellRef<'_>) -> Result<()> + 's;

/// Takes a compaction's cells in order and passes on those that survive.
// Over 15 fields: the state of the current key, timestamp and stripe.
pub(crate) struct Retention {
    rules: RetentionRules,
    tombstones: Fragments,
    key: Vec<u8>,
    started: bool,
    /// Whether the current key may have older data outside the inputs.
    key_below: bool,
    timestamp: Timestamp,
    /// The stripe of the last value or tombstone of the current (key, timestamp).
    shadow: Option<usize>,
    /// Point tombstones of the current key: newest sequence number by stripe.
    deleted: Vec<(usize, SeqNo)>,
    /// Which versions of the current key are pushed out.
    pushed: Pushed,
    /// The cells of the current timestamp, where versions are counted.
    group: Vec<(SeqNo, Kind)>,
    /// Whether versions of the current key may be deleted alone, so that a record must stay of which existed
    /// when.
    careful: bool,
    /// The newest cell of the current key that was read, and that was kept.
    newest: (SeqNo, SeqNo),
    forgotten: std::cell::Cell<SeqNo>,
    /// Operands of the current (key, timestamp) in one stripe, newest first.
    pending: Vec<Cell>,
    pub(crate) taken: u64,
    pub(crate) kept: u64,
}

impl Retention {
    pub(crate) fn new(rules: RetentionRules, tombstones: Fragments) -> Self {
        Self {
            tombstones,
            key: Vec::new(),
            started: false,
            key_below: false,
            timestamp: Timestamp::ZERO,
            shadow: None,
            deleted: Vec::new(),
            pushed: Pushed::new(if rules.explicit { rules.versions } else { 0 }),
            group: Vec::new(),
            careful: false,
            newest: (SeqNo::ZERO, SeqNo::ZERO),
            forgotten: std::cell::Cell::new(SeqNo::ZERO),
            pending: Vec::new(),
            taken: 0,
            kept: 0,
            rules,
        }
    }

    /// The sequence number up to which writes may have vanished without a trace: of every newer write so far,
    /// a cell of its key was kept.
    pub(crate) fn forgotten(&self) -> SeqNo {
        self.forgotten.get()
    }

    /// The number of read points older than the cell: equal for cells that the same readers see.
    fn stripe(&self, seq: SeqNo) -> usize {
        match self.rules.read_points.len() {
            0 => 0,
            _ => self.rules.read_points.partition_point(|point| *point < seq),
        }
    }

    /// Whether `key` begins a new group, so that an SSTable may end before it.
    pub(crate) fn is_new_key(&self, key: &[u8]) -> bool {
        !self.started || self.key != key
    }

    /// Takes the next cell in order.
    pub(crate) fn push(&mut self, cell: &CellRef<'_>, sink: &mut Sink<'_>) -> Result<()> {
        if self.is_new_key(cell.key) {
            self.end_key(sink)?;
            self.begin_key(cell);
        } else if cell.timestamp != self.timestamp {
            self.end_timestamp(sink)?;
            self.begin_timestamp(cell.timestamp);
        }
        self.taken += 1;
        self.newest.0 = self.newest.0.max(cell.seq);
        let stripe = self.stripe(cell.seq);
        if self.pushed.counts() {
            self.group.push((cell.seq, cell.kind));
        }
        let careful = self.careful && (self.key_below || stripe > 0);
        let is_shadowed =
            self.shadow == Some(stripe) && !(self.rules.explicit && cell.kind == Kind::Tombstone);
        if is_shadowed && !careful {
            return Ok(());
        }
        if self.pending.last().is_some_and(|newer| self.stripe(newer.seq) != stripe) {
            self.pass_pending(sink)?;
        }
        let deleted = self.is_deleted(cell, stripe, careful);
        if deleted && cell.kind != Kind::Tombstone {
            return self.combine_pending(None, sink);
        }
        // Cells below may have pushed out the versions that this one seems to push out, and been deleted
        // alone since.
        let sees_all = !(self.careful && self.key_below);
        if cell.kind != Kind::Tombstone && sees_all && self.is_pushed_out(cell.seq, stripe) {
            return Ok(());
        }
        if careful && cell.kind != Kind::Tombstone {
            self.pass_pending(sink)?;
            return self.pass(cell, sink);
        }
        match cell.kind {
            Kind::Tombstone => {
                self.combine_pending(None, sink)?;
                let shadowed = self.shadow == Some(stripe) && !self.rules.explicit;
                self.shadow = Some(stripe);
                if deleted || shadowed {
                    return Ok(());
                }
                self.deleted.push((stripe, cell.seq));
                if self.key_below || stripe > 0 { self.pass(cell, sink) } else { Ok(()) }
            }
            Kind::Operand if self.rules.operator.is_none() => self.pass(cell, sink),
            Kind::Operand => {
                self.pending.push(cell.to_cell());
                Ok(())
            }
            Kind::Value | Kind::Hidden => {
                self.shadow = Some(stripe);
                if !self.pending.is_empty() {
                    return self.combine_pending(Some(cell), sink);
                }
                self.pass_value(cell, stripe, sink)
            }
        }
    }

    fn begin_key(&mut self, cell: &CellRef<'_>) {
        self.started = true;
        self.key.clear();
        self.key.extend_from_slice(cell.key);
        self.key_below = self.rules.below.holds(cell.key);
        self.deleted.clear();
        self.pushed.clear();
        self.newest = (SeqNo::ZERO, SeqNo::ZERO);
        self.careful = self.pushed.counts()
            && self
                .tombstones
                .find(cell.key)
                .is_some_and(|f| f.covers.iter().any(|c| c.from > Timestamp::ZERO));
        self.begin_timestamp(cell.timestamp);
    }

    fn begin_timestamp(&mut self, timestamp: Timestamp) {
        self.timestamp = timestamp;
        self.shadow = None;
    }

    /// Ends the current key: all its surviving cells have been passed on.
    pub(crate) fn end_key(&mut self, sink: &mut Sink<'_>) -> Result<()> {
        self.end_timestamp(sink)?;
        let (taken, passed) = self.newest;
        // A newer range tombstone over the key records the write, and is counted itself where it is dropped.
        if taken > passed && !self.is_under_newer(&self.key, taken) {
            self.forget(taken);
        }
        Ok(())
    }

    /// Notes that nothing records this write any more. Read points of the compaction always see it:
    /// transactions ask for writes since theirs.
    fn forget(&self, seq: SeqNo) {
        debug_assert_eq!(
            self.stripe(seq),
            0,
            "a compaction forgets {seq:?}, which is newer than a read point"
        );
        self.forgotten.set(self.forgotten.get().max(seq));
    }

    fn end_timestamp(&mut self, sink: &mut Sink<'_>) -> Result<()> {
        if !self.group.is_empty() {
            let fragment = self.tombstones.find(&self.key);
            self.pushed.add(self.timestamp, self.group.iter().copied(), fragment, SeqNo::MAX);
            self.group.clear();
        }
        if let Some(newest) = self.pending.first()
            && !self.key_below
            && self.stripe(newest.seq) == 0
        {
            return self.combine_pending(None, sink);
        }
        self.pass_pending(sink)
    }

    /// Whether a tombstone of this compaction deletes the cell for every reader that would see it; if
    /// `careful`, one that also deletes all earlier timestamps.
    fn is_deleted(&self, cell: &CellRef<'_>, stripe: usize, careful: bool) -> bool {
        if self.deleted.iter().any(|(at, seq)| *seq > cell.seq && *at == stripe) {
            return true;
        }
        let Some(fragment) = self.tombstones.find(cell.key) else { return false };
        // A point tombstone reaches down to timestamp zero; only a range tombstone that does too replaces it.
        let whole = careful || cell.kind == Kind::Tombstone;
        let from = if whole { Timestamp::ZERO } else { cell.timestamp };
        fragment.covers.iter().any(|cover| {
            cover.seq > cell.seq
                && cover.from <= from
                && cell.timestamp <= cover.to
                && self.stripe(cover.seq) == stripe
        })
    }

    /// Whether the version limit pushed the version out for every reader that would see it. A version that
    /// never counted stays while a read point is older, as it may be the only record of a write to the key.
    fn is_pushed_out(&self, seq: SeqNo, stripe: usize) -> bool {
        let goes = |when: SeqNo| self.stripe(when) == stripe && (when > seq || stripe == 0);
        self.pushed.counts() && self.pushed.when(seq).is_some_and(goes)
    }

    fn is_unwanted(&self, cell: &CellRef<'_>) -> bool {
        let rules = &self.rules;
        let asks = |f: &Arc<dyn CompactionFilter>| {
            is_unwanted(&**f, cell.key, cell.timestamp, cell.value, rules.now_us)
        };
        rules.filter.as_ref().is_some_and(asks)
    }

    fn pass(&mut self, cell: &CellRef<'_>, sink: &mut Sink<'_>) -> Result<()> {
        self.kept += 1;
        self.newest.1 = self.newest.1.max(cell.seq);
        sink(cell)
    }

    /// Passes a value on unless it is expired or the filter removes it.
    fn pass_value(&mut self, cell: &CellRef<'_>, stripe: usize, sink: &mut Sink<'_>) -> Result<()> {
        let rules = &self.rules;
        let expired =
            rules.ttl_us > 0 && cell.born_us(rules.explicit).saturating_add(rules.ttl_us) <= rules.now_us;
        let last = !self.key_below && stripe == 0;
        // Where newer sources may have operands the filter is left to the reader, who applies it to the
        // combined value.
        let wanted = || cell.kind == Kind::Value && (rules.operator.is_some() || !self.is_unwanted(cell));
        if !expired && wanted() {
            return self.pass(cell, sink);
        }
        if last && (expired || !self.pushed.counts()) {
            return Ok(());
        }
        if !expired && rules.explicit {
            // A tombstone here would delete older timestamps too.
            return self.pass(&CellRef { kind: Kind::Hidden, value: &[], written: 0, ..*cell }, sink);
        }
        self.deleted.push((stripe, cell.seq));
        self.pass(&CellRef { kind: Kind::Tombstone, value: &[], written: 0, ..*cell }, sink)
    }

    /// Passes held-back operands on as they are.
    fn pass_pending(&mut self, sink: &mut Sink<'_>) -> Result<()> {
        let pending = std::mem::take(&mut self.pending);
        for operand in &pending {
            self.pass(&operand.as_ref(), sink)?;
        }
        Ok(())
    }

    /// Turns held-back operands and their base into one value.
    fn combine_pending(&mut self, base: Option<&CellRef<'_>>, sink: &mut Sink<'_>) -> Result<()> {
        let pending = std::mem::take(&mut self.pending);
        let (Some(newest), Some(operator)) = (pending.first(), self.rules.operator.clone()) else {
            return Ok(());
        };
        let operands: Vec<&[u8]> = pending.iter().rev().map(|c| c.value.as_slice()).collect();
        let under = base.filter(|base| base.kind == Kind::Value).map(|base| base.value);
        let Ok(value) = merged(&*operator, &newest.key, under, &operands) else {
            // The operator refused: everything stays as it is, and readers of the key get the error.
            self.pending = pending;
            self.pass_pending(sink)?;
            return base.map_or(Ok(()), |base| self.pass(base, sink));
        };
        let stripe = self.stripe(newest.seq);
        self.shadow = Some(stripe);
        let combined = CellRef { kind: Kind::Value, value: &value, ..newest.as_ref() };
        self.pass_value(&combined, stripe, sink)
    }

    /// Whether a range tombstone of this compaction over the key is newer than `seq`.
    pub(super) fn is_under_newer(&self, key: &[u8], seq: SeqNo) -> bool {
        self.tombstones.find(key).is_some_and(|f| f.covers.iter().any(|cover| cover.seq > seq))
    }

    /// The range tombstones that must be kept within `range`.
    pub(crate) fn tombstones_within(&self, range: &KeyRange) -> Vec<RangeTombstone> {
        let mut kept: Vec<RangeTombstone> = Vec::new();
        for tombstone in self.tombstones.tombstones_within(range) {
            let stripe = self.stripe(tombstone.seq);
            if stripe == 0 && !self.rules.below.overlaps(&tombstone.range) {
                self.forget(tombstone.seq);
                continue;
            }
            // Newest first within a fragment: one that a newer one of its stripe includes is dropped; but not
            // where versions are counted and one of them deletes versions alone.
            let alone = self.pushed.counts() && tombstone.from > Timestamp::ZERO;
            let said = !alone
                && kept.iter().rev().take_while(|k| k.range == tombstone.range).any(|k| {
                    self.stripe(k.seq) == stripe && k.from <= tombstone.from && tombstone.to <= k.to
                });
            if !said {
                kept.push(tombstone);
            }
        }
        kept
    }
}

#[cfg(test)]
#[path = "retention_tests.rs"]
mod tests;
