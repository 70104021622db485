//! Visibility: what a reader sees of a key. (What a *compaction* retains is decided in
//! `compaction/retention.rs`.)
//!
//! A reader has a read point and one `now`. Of the cells of a key with a sequence number at or below the read
//! point, in order: a tombstone deletes what is older at or below its timestamp; the newest of each timestamp
//! counts; operands combine with what is under them; expired values and those that a filter hides are left
//! out; the first `versions` timestamps that are left are the answer. With implicit timestamps the first
//! decisive cell, going from the newest source to the oldest, ends the search ([`Lookup`]).

use crate::commit::ReadRules;
use crate::error::Result;
use crate::types::{CellRef, Fragments, Kind, Owner, Pinned, Pushed, SeqNo, Timestamp, born_us};
use std::ops::ControlFlow;

/// The search for the value of one key with implicit timestamps, newest source first.
pub(crate) struct Lookup<'a> {
    rules: &'a ReadRules,
    key: &'a [u8],
    now_us: u64,
    /// The newest range tombstone over the key so far: older cells are deleted.
    deleted_below: SeqNo,
    operands: Vec<Pinned>,
    answer: Option<Pinned>,
    /// The newest write met that concerns the key.
    pub(super) newest: SeqNo,
    /// Whether a cell of the key was met.
    pub(super) has_cell: bool,
}

impl<'a> Lookup<'a> {
    pub(crate) fn new(rules: &'a ReadRules, key: &'a [u8], now_us: u64) -> Self {
        Self {
            rules,
            key,
            now_us,
            deleted_below: SeqNo::ZERO,
            operands: Vec::new(),
            answer: None,
            newest: SeqNo::ZERO,
            has_cell: false,
        }
    }

    /// The newest range tombstone over the key in the source that is visited next.
    #[inline]
    pub(crate) fn cover(&mut self, newest: Option<SeqNo>) {
        if let Some(seq) = newest {
            self.deleted_below = seq.max(self.deleted_below);
            self.newest = seq.max(self.newest);
        }
    }

    /// Takes a cell of the key; cells come newest first. `Break` when the answer is known.
    pub(crate) fn take(&mut self, cell: &CellRef<'_>, owner: &dyn Owner) -> ControlFlow<()> {
        self.newest = cell.seq.max(self.newest);
        self.has_cell = true;
        if cell.seq < self.deleted_below || matches!(cell.kind, Kind::Tombstone | Kind::Hidden) {
            return ControlFlow::Break(());
        }
        if self.rules.expired(cell.born_us(false), self.now_us) {
            return ControlFlow::Break(());
        }
        match cell.kind {
            Kind::Operand => {
                self.operands.push(pin(cell, owner));
                ControlFlow::Continue(())
            }
            _ => {
                self.answer = Some(pin(cell, owner));
                ControlFlow::Break(())
            }
        }
    }

    /// The value, once the search broke off or every source was visited.
    pub(crate) fn finish(self) -> Result<Option<Pinned>> {
        let value = match self.operands.is_empty() {
            true => self.answer,
            false => Some(self.rules.combine(self.key, self.answer.as_deref(), &self.operands)?),
        };
        Ok(value.filter(|value| !self.rules.unwanted(self.key, Timestamp::ZERO, value, self.now_us)))
    }
}

pub(crate) fn pin(cell: &CellRef<'_>, owner: &dyn Owner) -> Pinned {
    // SAFETY: the cell was handed out together with this owner.
    #[expect(unsafe_code, reason = "the one call that pins what a visit handed out")]
    unsafe {
        Pinned::held(cell.value, owner)
    }
}

/// A cell met while reading a key, without the key.
#[derive(Clone)]
pub(crate) struct Found {
    pub(crate) timestamp: Timestamp,
    pub(crate) seq: SeqNo,
    pub(crate) kind: Kind,
    pub(crate) written: u64,
    pub(crate) value: Pinned,
}

impl Found {
    pub(crate) fn new(cell: &CellRef<'_>, value: Pinned) -> Self {
        let CellRef { timestamp, seq, kind, written, .. } = *cell;
        Self { timestamp, seq, kind, written, value }
    }

    pub(crate) fn order(&self, other: &Self) -> std::cmp::Ordering {
        other.timestamp.cmp(&self.timestamp).then_with(|| other.seq.cmp(&self.seq))
    }
}

/// The visible versions of one key: calls `emit` with (timestamp, value), newest first, until it breaks off.
/// `cells` are all cells of the key at or below the read point, in order; equal ones (of two sources) count
/// once. Where only some timestamps are [looked at](ReadRules::looks_at), all of those and all later
/// tombstones.
///
/// If the number of versions is limited, a version that newer ones exceed it by is gone from that write on: a
/// later delete of newer versions does not bring it back ([`Pushed`]). A version that the filter hides, or a
/// compaction has left [hidden](Kind::Hidden), counts like any other.
pub(crate) fn resolve(
    rules: &ReadRules,
    key: &[u8],
    cells: &[Found],
    tombstones: &Fragments,
    read: SeqNo,
    now_us: u64,
    emit: &mut dyn FnMut(Timestamp, Pinned) -> ControlFlow<()>,
) -> Result<()> {
    let fragment = tombstones.find(key);
    // The newest point tombstone so far: all further cells have a timestamp at or below its own.
    let mut deleted_below = SeqNo::ZERO;
    let mut pushed = Pushed::new(if rules.explicit { rules.versions } else { 0 });
    let mut at = 0;
    while at < cells.len() && !pushed.all_at(read) {
        let timestamp = cells[at].timestamp;
        let end = at + cells[at..].iter().take_while(|c| c.timestamp == timestamp).count();
        let covered = fragment.and_then(|f| f.newest_over(timestamp, read)).unwrap_or(SeqNo::ZERO);
        let gone_below = deleted_below.max(covered);
        let mut operands: Vec<Pinned> = Vec::new();
        let mut base = None;
        for cell in &cells[at..end] {
            let born = born_us(rules.explicit, timestamp, cell.written);
            let gone = cell.seq < gone_below || rules.expired(born, now_us);
            let gone = gone || (pushed.counts() && pushed.when(cell.seq).is_some_and(|when| when <= read));
            if gone || matches!(cell.kind, Kind::Tombstone | Kind::Hidden) {
                break;
            }
            if cell.kind == Kind::Value {
                base = Some(cell.value.clone());
                break;
            }
            operands.push(cell.value.clone());
        }
        for cell in cells[at..end].iter().filter(|cell| cell.kind == Kind::Tombstone) {
            deleted_below = deleted_below.max(cell.seq);
        }
        let of_timestamp = cells[at..end].iter().map(|cell| (cell.seq, cell.kind));
        pushed.add(timestamp, of_timestamp, fragment, read);
        at = end;
        let value = match (operands.is_empty(), base) {
            (true, None) => continue,
            (true, Some(base)) => base,
            (false, base) => rules.combine(key, base.as_deref(), &operands)?,
        };
        if rules.unwanted(key, timestamp, &value, now_us) {
            continue;
        }
        if emit(timestamp, value).is_break() {
            return Ok(());
        }
    }
    Ok(())
}
