//! Whether keys and ranges were written to since some sequence number: the question of conditions and
//! transactions.
//!
//! Each question has two forms. The exact one searches SSTables, too. The other searches memory alone, as it
//! is asked while all other writers wait; its yes *may* be wrong. A family that was dropped or joined to
//! another, and keys that a split gave to another, count as changed.

use super::Inner;
use super::get::{collect, search};
use super::sources::sources;
use super::visible::Lookup;
use crate::commit::{ReadRules, Store};
use crate::error::{Error, ErrorKind, Result};
use crate::types::{CellRef, Cursor, KeyRange, Owner, SeqNo, TimeRange, successor};
use crate::version::OpenRun;
use std::ops::ControlFlow;

/// `Conflict` where something was written, or may have been: the evidence was compacted away, or is in
/// another family.
fn check_unchanged(is_written: bool, is_known: bool, what: impl FnOnce() -> String) -> Result<()> {
    match (is_written, is_known) {
        (true, _) => Err(written(what())),
        (false, true) => Ok(()),
        (false, false) => Err(may_be_written(what())),
    }
}

fn written(what: String) -> Error {
    Error::new(ErrorKind::Conflict, what + " was written to")
}

fn may_be_written(what: String) -> Error {
    Error::new(ErrorKind::Conflict, what + " may have been written to")
}

impl Inner {
    /// `Conflict` if anything that concerns the key was written after `seq`, or may have been: a compaction
    /// has dropped a delete of the key with all that it deleted.
    pub(super) fn check_key_since(&self, store: &Store, key: &[u8], seq: SeqNo) -> Result<()> {
        store.check_not_dropped()?;
        let what = || format!("key \"{}\" of family {}", key.escape_ascii(), store.name);
        let (newest, has_cell) = self.newest_write(store, key)?;
        if planted!(Bug::ForgetWhatCompactionsDropped) {
            return check_unchanged(newest.max(store.attached_at) > seq, true, what);
        }
        // Without timestamps, if a cell of the key is left, it is the newest: a tombstone is dropped with all
        // that it deleted. (A range tombstone may stay for other keys, and does not show what came after it.)
        let is_known = has_cell && !store.settings().read.explicit;
        // Asked after the version was taken.
        let is_known = store.attached_at <= seq && (is_known || store.forgotten() <= seq);
        check_unchanged(newest > seq, is_known, what)
    }

    /// Whether something that concerns the key may have been written after `seq`. Searches memory alone, and
    /// there a few versions of the key at most: a `true` may be wrong.
    pub(crate) fn may_have_changed(&self, store: &Store, key: &[u8], seq: SeqNo) -> bool {
        const LOOKS: usize = 32;
        let version = store.version();
        if store.is_dropped() || version.check_key(key).is_err() {
            return true;
        }
        for memtable in version.memory.at(key).filter(|memtable| memtable.has_newer(seq)) {
            if memtable.has_ranges() {
                let only = KeyRange { start: key.to_vec(), end: Some(successor(key)) };
                if memtable.tombstones_over(&only, SeqNo::MAX).iter().any(|t| t.seq > seq) {
                    return true;
                }
            }
            let mut looks = 0;
            let found = memtable.get(key, SeqNo::MAX, &mut |cell, _| {
                looks += 1;
                match cell.seq > seq || looks > LOOKS {
                    true => ControlFlow::Break(()),
                    false => ControlFlow::Continue(()),
                }
            });
            if found.is_break() {
                return true;
            }
        }
        let in_tables = version.runs.iter().filter_map(|run| run.find(key));
        in_tables.into_iter().any(|open| open.info.seqs.1 > seq)
            || store.forgotten() > seq
            || store.attached_at > seq
    }

    /// The sequence number of the newest write that concerns the key, deletes included; zero when there is
    /// none in what the database holds. And whether that has a cell of the key.
    fn newest_write(&self, store: &Store, key: &[u8]) -> Result<(SeqNo, bool)> {
        let version = store.version();
        version.check_key(key)?;
        let read = SeqNo::MAX;
        let rules = ReadRules::default();
        let mut newest = SeqNo::ZERO;
        if store.settings().read.explicit {
            // A write of any timestamp, or a range tombstone of any, concerns the key.
            let mut note = |cell: &CellRef<'_>, _: &dyn Owner| {
                newest = newest.max(cell.seq);
                true
            };
            let (fragments, _) = collect(&version, key, read, TimeRange::ALL, usize::MAX, &mut note)?;
            let covers = fragments.find(key).map_or(SeqNo::ZERO, |f| f.covers[0].seq);
            return Ok((newest.max(covers), newest > SeqNo::ZERO));
        }
        let mut lookup = Lookup::new(&rules, key, 0);
        search(&version, key, read, &mut lookup)?;
        Ok((lookup.newest, lookup.has_cell))
    }

    /// Whether something that concerns a key of the range may have been written after `seq`. Searches memory
    /// alone; a `true` may be wrong.
    pub(crate) fn range_may_have_changed(&self, store: &Store, range: &KeyRange, seq: SeqNo) -> bool {
        let version = store.version();
        if store.is_dropped() || version.check_range(range).is_err() {
            return true;
        }
        let changed = version.memory.all().filter(|memtable| memtable.has_newer(seq)).any(|memtable| {
            let mut cursor = memtable.cursor();
            let mut newer = || -> Result<bool> {
                cursor.seek(&range.start)?;
                while cursor.valid() && range.ends_after(cursor.key()) {
                    if cursor.cell().seq > seq {
                        return Ok(true);
                    }
                    cursor.next()?;
                }
                Ok(false)
            };
            memtable.has_newer_tombstone(range, seq) || newer().unwrap_or(true)
        });
        let in_tables = |run: &OpenRun| run.tables[run.within(range)].iter().any(|t| t.info.seqs.1 > seq);
        changed || version.runs.iter().any(in_tables) || store.forgotten() > seq || store.attached_at > seq
    }

    /// [`Inner::check_key_since`] of all keys of a range.
    pub(super) fn check_range_since(&self, store: &Store, range: &KeyRange, seq: SeqNo) -> Result<()> {
        store.check_not_dropped()?;
        let what = || format!("range {range} of family {}", store.name);
        let version = store.version();
        // Keys that another family has now may have been written to there.
        if store.attached_at > seq || version.check_range(range).is_err() {
            return Err(may_be_written(what()));
        }
        if version.memory.all().any(|memtable| memtable.has_newer_tombstone(range, seq)) {
            return Err(written(what()));
        }
        let runs = version.runs.iter().filter(|run| run.has_ranges);
        let tables = runs.flat_map(|run| &run.tables[run.within(range)]);
        for open in tables.filter(|open| open.has_ranges() && open.info.seqs.1 > seq) {
            let within = range.intersect(&open.info.live_range());
            if open.table()?.fragments().has_newer(&within, seq) {
                return Err(written(what()));
            }
        }
        for cursor in &mut sources(&version, range, SeqNo::MAX, TimeRange::ALL) {
            cursor.seek(&range.start)?;
            while cursor.valid() && range.ends_after(cursor.key()) {
                if cursor.cell().seq > seq {
                    return Err(written(what()));
                }
                cursor.next()?;
            }
        }
        check_unchanged(false, store.forgotten() <= seq, what)
    }
}
