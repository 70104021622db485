//! Whether keys and ranges were written to since some sequence number: what conditions and transactions rest on.
//!
//! Each question has two forms. The exact one looks into tables, too. The one that *may* be wrong when it says yes looks
//! into memory alone: it is asked while all other writers wait. A family that was dropped or joined to another, and keys
//! that a split gave to another, are nothing that can be answered for here: that counts as changed.

use super::Inner;
use super::get::{collect, memory_of, search};
use super::sources::sources;
use super::visible::Lookup;
use crate::commit::{ReadRules, Store};
use crate::error::Result;
use crate::types::{CellRef, Cursor, KeyRange, Owner, SeqNo, TimeRange, successor};
use crate::version::OpenRun;
use std::ops::ControlFlow;

impl Inner {
    /// Whether nothing that concerns the key was written after `seq`. Where a merge dropped a delete of it, and all that was
    /// deleted, that cannot be told: then the answer is `false`.
    pub(crate) fn is_unchanged_since(&self, store: &Store, key: &[u8], seq: SeqNo) -> Result<bool> {
        store.check_not_dropped()?;
        let (found, has_cell) = self.newest_write(store, key)?;
        let newest = found.max(store.attached_at());
        if planted!(Bug::ForgetWhatMergesDropped) {
            return Ok(newest <= seq);
        }
        // Where a cell is left of a family without timestamps it is the newest: what deletes goes with all that it deleted. (A
        // range tombstone may stay for other keys, and tells nothing of what came after it.)
        let is_known = has_cell && !store.settings().read.explicit;
        // Asked after the version was taken.
        Ok(newest <= seq && (is_known || store.forgotten() <= seq))
    }

    /// Whether something that concerns the key may have been written after `seq`. Looks into memory alone, and there at a few
    /// versions of the key at most: a `true` may be wrong.
    pub(crate) fn may_have_changed(&self, store: &Store, key: &[u8], seq: SeqNo) -> bool {
        const LOOKS: usize = 32;
        let version = store.version();
        if store.is_dropped() || version.check_key(key).is_err() {
            return true;
        }
        for segment in memory_of(&version, key).filter(|segment| segment.has_newer(seq)) {
            if segment.has_ranges() {
                let only = KeyRange { start: key.to_vec(), end: Some(successor(key)) };
                if segment.tombstones_over(&only, SeqNo::MAX).iter().any(|t| t.seq > seq) {
                    return true;
                }
            }
            let mut looks = 0;
            let found = segment.get(key, SeqNo::MAX, &mut |cell, _| {
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
            || store.attached_at() > seq
    }

    /// The sequence number of the newest write that concerns the key, deletes included; zero when there is none
    /// in what the database holds. And whether that has a cell of the key.
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
        Ok((lookup.newest(), lookup.has_cell()))
    }

    /// Whether something that concerns a key of the range may have been written after `seq`. Looks into memory alone; a `true`
    /// may be wrong.
    pub(crate) fn range_may_have_changed(&self, store: &Store, range: &KeyRange, seq: SeqNo) -> bool {
        let version = store.version();
        if store.is_dropped() || version.check_range(range).is_err() {
            return true;
        }
        let changed = version.memory().filter(|segment| segment.has_newer(seq)).any(|segment| {
            let mut cursor = segment.cursor();
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
            segment.has_newer_tombstone(range, seq) || newer().unwrap_or(true)
        });
        let in_tables = |run: &OpenRun| run.tables[run.within(range)].iter().any(|t| t.info.seqs.1 > seq);
        changed || version.runs.iter().any(in_tables) || store.forgotten() > seq || store.attached_at() > seq
    }

    /// Whether anything concerning a key of the range was written after `seq`, or may have been: as
    /// [`Inner::is_unchanged_since`].
    pub(crate) fn written_since(&self, store: &Store, range: &KeyRange, seq: SeqNo) -> Result<bool> {
        store.check_not_dropped()?;
        let version = store.version();
        // What another family has the keys of now may have been written there.
        if store.attached_at() > seq || version.check_range(range).is_err() {
            return Ok(true);
        }
        let in_tables = |run: &OpenRun| {
            let mut newer = run.tables[run.within(range)].iter().filter(|open| open.info.seqs.1 > seq);
            newer.any(|open| {
                let within = range.intersect(&open.info.live_range());
                open.table().fragments().has_newer(&within, seq)
            })
        };
        if version.memory().any(|segment| segment.has_newer_tombstone(range, seq))
            || version.runs.iter().filter(|run| run.has_ranges).any(in_tables)
        {
            return Ok(true);
        }
        for cursor in &mut sources(&version, range, SeqNo::MAX, TimeRange::ALL) {
            cursor.seek(&range.start)?;
            while cursor.valid() && range.ends_after(cursor.key()) {
                if cursor.cell().seq > seq {
                    return Ok(true);
                }
                cursor.next()?;
            }
        }
        Ok(store.forgotten() > seq)
    }
}
