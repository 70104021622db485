//! Which cells of a compaction survive. (What a *reader* sees is decided in `db/visible.rs`; the two must
//! agree on expiry, filters and shadowing but never share a function, as they answer different questions.)
//!
//! Read points (registered snapshots) cut history into *stripes*: two cells in one stripe are seen by exactly
//! the same readers, so of two versions of one (key, timestamp) in one stripe only the newer is ever seen.
//! Everything newer than the last snapshot is one stripe: a reader without snapshot takes its version before
//! its read point, so it never needs what a merge has dropped from under a newer cell.
//!
//! For the cells of one key, in their order (timestamp descending, sequence descending), a cell is dropped
//! when
//! - a newer value or tombstone of the same timestamp lies in its stripe (shadowed);
//! - a point tombstone met before it, or a range tombstone of this merge, is newer and lies in its stripe;
//! - the count pushed it out (`types/version_limit.rs`), in its own stripe;
//! - it is expired or removed by the filter; while something older may lie below, a tombstone takes its
//!   place.
//!
//! Where versions are counted, one that the filter hides counts like any other, for readers too. If its cell
//! went, a later write under it would be there or not by when merges ran. So a cell without value stays in
//! its place ([`Kind::Hidden`]) as long as the value would count: until a delete, the count or the TTL takes
//! it. That is at most as many cells of a key as versions are kept. (Not to count what is hidden would need
//! no such cell, but a filter may hide later what it does not hide now: what a merge drops as pushed out by
//! that would come back where no merge ran.)
//!
//! Merge operands are held back until their base arrives: operands and base of one stripe become one value.
//! With nothing below and no older reader they become one value without base; else they are passed on.
//!
//! What pushed a version out may be deleted later, alone, by a range tombstone that has a lowest timestamp.
//! While older versions may lie below or a reader sees them, all versions under such a tombstone are kept as
//! they are: they say which were there when. (Whatever else deletes a version deletes the lower ones that it
//! had pushed out, too.)
//!
//! What vanishes without a trace is remembered as a bound: the highest sequence number that was the newest of
//! its key, or of a range tombstone, and of which nothing is left. If a search finds no cell of a key, it
//! cannot tell whether the key was written up to that bound (`db/conflicts.rs`). So of what is newer than a
//! read point something stays for each key that was written to: its newest cell, or a range tombstone over
//! that. Then the bound is not above any read point.
//!
//! A tombstone itself goes when nothing of its key can lie below and no snapshot is older than it: whatever
//! it deletes within this merge is in its own stripe and dropped with it.

use crate::error::Result;
use crate::operator::{CompactionFilter, MergeOperator, is_unwanted, merged};
use crate::types::{Cell, CellRef, Fragments, KeyRange, Kind, Pushed, RangeTombstone, SeqNo, Timestamp};
use std::sync::Arc;

/// The rules of one compaction.
#[derive(Clone)]
pub(crate) struct RetentionRules {
    /// Sequence numbers of registered snapshots, ascending.
    pub(crate) read_points: Arc<[SeqNo]>,
    /// Whether timestamps are part of the key, so that versions are counted.
    pub(crate) explicit: bool,
    /// Versions kept of a key; 0 for all.
    pub(crate) versions: u32,
    /// Microseconds of life; 0 for ever.
    pub(crate) ttl_us: u64,
    /// Wall clock for expiry and filter.
    pub(crate) now_us: u64,
    pub(crate) operator: Option<Arc<dyn MergeOperator>>,
    pub(crate) filter: Option<Arc<dyn CompactionFilter>>,
    /// Keys under which older data lies that is no input.
    pub(crate) below: TombstoneElision,
}

/// Keys under which older data may lie outside a compaction: sorted, disjoint ranges.
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

/// Where the surviving cells go.
pub(crate) type Sink<'s> = dyn FnMut(&CellRef<'_>) -> Result<()> + 's;

/// Takes a compaction's cells in order and passes on those that survive.
// Over 15 fields: what is known of the key, the timestamp and the stripe at which a merge stands.
pub(crate) struct Retention {
    rules: RetentionRules,
    /// Range tombstones of all inputs.
    tombstones: Fragments,
    key: Vec<u8>,
    started: bool,
    /// Whether something older may lie under the current key.
    key_below: bool,
    timestamp: Timestamp,
    /// Stripe in which a value or tombstone of the current (key, timestamp) was seen last.
    shadow: Option<usize>,
    /// Point tombstones of the current key: newest sequence number by stripe.
    deleted: Vec<(usize, SeqNo)>,
    /// Which versions of the current key are pushed out.
    pushed: Pushed,
    /// The cells of the current timestamp, where versions are counted.
    group: Vec<(SeqNo, Kind)>,
    /// Whether versions of the current key may be deleted alone, so that it must stay known which were there
    /// when.
    careful: bool,
    /// The newest cell of the current key that was taken in, and that was passed on.
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

    /// The sequence number up to which cells may have vanished without a trace: whatever newer was taken in
    /// so far left a cell of its key.
    pub(crate) fn forgotten(&self) -> SeqNo {
        self.forgotten.get()
    }

    /// How many read points are older than the cell: equal for cells that the same readers see.
    fn stripe(&self, seq: SeqNo) -> usize {
        match self.rules.read_points.len() {
            0 => 0,
            _ => self.rules.read_points.partition_point(|point| *point < seq),
        }
    }

    /// Whether `key` begins a new group, so that a table may end before it.
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
            self.combine_pending(None, sink)?;
            return Ok(());
        }
        // Of what lies below some may have pushed out what seems to push out here, and be deleted alone
        // since.
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
                if self.key_below || stripe > 0 {
                    self.pass(cell, sink)?;
                }
                Ok(())
            }
            Kind::Operand => {
                match self.rules.operator {
                    Some(_) => self.pending.push(cell.to_cell()),
                    None => self.pass(cell, sink)?,
                }
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

    /// Ends the current key: after this, all that survives of it has been passed on.
    pub(crate) fn end_key(&mut self, sink: &mut Sink<'_>) -> Result<()> {
        self.end_timestamp(sink)?;
        let (taken, passed) = self.newest;
        // A newer range tombstone over the key tells of it, and is forgotten itself where it goes.
        if taken > passed && !self.is_under_newer(&self.key, taken) {
            self.forget(taken);
        }
        Ok(())
    }

    /// Nothing tells of that write any more. It is never one that a read point of the merge does not see:
    /// transactions ask what was written since theirs.
    fn forget(&self, seq: SeqNo) {
        debug_assert_eq!(self.stripe(seq), 0, "a merge forgets {seq:?}, which is newer than a read point");
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

    /// Whether a tombstone of this merge deletes the cell for everyone who would see it; if `careful`, one
    /// that does not delete it alone.
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

    /// Whether the count pushed the version out for everyone who would see it. One that never lived stays
    /// while a read point is older, as it may be all that tells of a write to the key.
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

    /// Passes a value on unless it is expired or unwanted.
    fn pass_value(&mut self, cell: &CellRef<'_>, stripe: usize, sink: &mut Sink<'_>) -> Result<()> {
        let rules = &self.rules;
        let expired =
            rules.ttl_us > 0 && cell.born_us(rules.explicit).saturating_add(rules.ttl_us) <= rules.now_us;
        let last = !self.key_below && stripe == 0;
        // Where operands may lie in newer sources the filter is the reader's business: it judges the combined
        // value.
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
            // It refused: everything stays as it is, and readers of the key are told.
            self.pending = pending;
            self.pass_pending(sink)?;
            return base.map_or(Ok(()), |base| self.pass(base, sink));
        };
        let stripe = self.stripe(newest.seq);
        self.shadow = Some(stripe);
        let combined = CellRef { kind: Kind::Value, value: &value, ..newest.as_ref() };
        self.pass_value(&combined, stripe, sink)
    }

    /// Whether a range tombstone of this merge over the key is newer than that.
    pub(super) fn is_under_newer(&self, key: &[u8], seq: SeqNo) -> bool {
        self.tombstones.find(key).is_some_and(|f| f.covers.iter().any(|cover| cover.seq > seq))
    }

    /// The range tombstones that must go on within `range`.
    pub(crate) fn tombstones_within(&self, range: &KeyRange) -> Vec<RangeTombstone> {
        let mut kept: Vec<RangeTombstone> = Vec::new();
        for tombstone in self.tombstones.tombstones_within(range) {
            let stripe = self.stripe(tombstone.seq);
            if stripe == 0 && !self.rules.below.overlaps(&tombstone.range) {
                self.forget(tombstone.seq);
                continue;
            }
            // Newest first within a fragment: one that a newer one of its stripe includes says nothing; but
            // where versions are counted, when one of them was deleted alone.
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
