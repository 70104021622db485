//! Skipping deleted keys in a scan: which range tombstones cover its position, and how it gets past them.
//!
//! A queue is read at its front and deleted up to there, so a scan meets all deleted messages before the
//! first live one. Visiting each of their cells would make the nth message cost n. Instead:
//!
//! - Tombstones are looked up around the scan's place ([`Version::look_around`]), not gathered when it opens.
//! - After a few covered cells, all sources whose cells are older than the tombstone skip its range at once,
//!   however many cells they have there.
//! - A source with newer cells among them has to be walked through. That is the active memtable, where
//!   deletes and puts alternate. The covered cells that scans visit there are counted, and once they are
//!   several times the cells of the memtable, the next write freezes it ([`Store::is_mostly_dead`]): laid out
//!   flat, it has no covered cells any more, and an in-memory index compaction drops those that tombstones of
//!   other memtables cover.
//! - Consecutive keys that were deleted one by one are visited once. The scan notes the range, and later
//!   scans skip it as if one tombstone covered it (`commit/emptied.rs`).

use crate::commit::{EmptyRanges, Store};
use crate::error::Result;
use crate::types::{Fragments, KeyRange, SeqNo, Timestamp, successor};
use crate::version::Version;
use std::sync::Arc;

/// Covered cells that are visited one by one before the sources skip all others.
const LOOKS: u32 = 8;

/// The least length of a run of deleted keys that is noted.
const RUN_MIN: u32 = if cfg!(feature = "testing") { 10 } else { 64 };

pub(crate) struct Covers {
    read: SeqNo,
    /// Whether there are range tombstones at all.
    any: bool,
    /// The keys that `fragments` and `whole` hold for; empty if none are known yet.
    known: KeyRange,
    fragments: Fragments,
    /// The newest tombstone over all timestamps.
    whole: Option<SeqNo>,
    /// Covered cells visited since sources last skipped some, and in all.
    here: u32,
    looks: u64,
    /// Ranges in which earlier scans found nothing left.
    emptied: Option<Arc<EmptyRanges>>,
    /// The length of the present run of deleted keys, and its first key.
    run: u32,
    run_first: Vec<u8>,
}

impl Covers {
    pub(crate) fn new(store: &Store, version: &Version, read: SeqNo) -> Self {
        let any = version.has_ranges();
        Self {
            any,
            emptied: any.then(|| store.emptied.found()),
            run: 0,
            run_first: Vec::new(),
            read,
            known: KeyRange { start: Vec::new(), end: Some(Vec::new()) },
            fragments: Fragments::default(),
            whole: None,
            here: 0,
            looks: 0,
        }
    }

    /// The range tombstones that cover the key in that version, which must be the same in all calls.
    #[inline]
    pub(crate) fn over(&mut self, version: &Version, key: &[u8]) -> Result<&Fragments> {
        if self.any && !self.known.contains(key) {
            self.look_around(version, key)?;
        }
        Ok(&self.fragments)
    }

    fn look_around(&mut self, version: &Version, key: &[u8]) -> Result<()> {
        let emptied = self.emptied.as_ref().and_then(|found| found.over(&version.bounds, key, self.read));
        let window = version.look_around(key, self.read, emptied)?;
        (self.known, self.fragments, self.whole) = window.into_parts();
        self.here = 0;
        Ok(())
    }

    /// Whether a cell of the key without a timestamp, with that sequence number, is deleted.
    #[inline]
    pub(crate) fn is_covered(&mut self, version: &Version, key: &[u8], seq: SeqNo) -> Result<bool> {
        if !self.any {
            return Ok(false);
        }
        let read = self.read;
        let newest = self.over(version, key)?.newest_over(key, Timestamp::ZERO, read);
        Ok(newest.is_some_and(|over| seq < over))
    }

    /// Whether all cells of the last key asked for are covered, the newest of which has that number.
    pub(crate) fn covers_all(&self, newest: SeqNo) -> bool {
        self.whole.is_some_and(|whole| newest < whole)
    }

    /// Notes that a covered cell was visited. If it is time to skip the others, answers the keys that are
    /// covered like it, and the sequence number that all cells of a source must be below.
    pub(crate) fn looked(&mut self) -> Option<(KeyRange, SeqNo)> {
        self.looks += 1;
        self.here += 1;
        let whole = self.whole?;
        if self.here < LOOKS {
            return None;
        }
        self.here = 0;
        Some((self.known.clone(), whole))
    }

    /// Notes that the next key with cells is deleted: all are older than a tombstone over all timestamps.
    #[inline]
    pub(crate) fn met_deleted(&mut self, key: &[u8]) {
        if self.run == 0 {
            self.run_first.clear();
            self.run_first.extend_from_slice(key);
        }
        self.run = self.run.saturating_add(1);
    }

    /// Whether a run of deleted keys was met that no other key has ended yet.
    #[inline]
    pub(crate) fn has_run(&self) -> bool {
        self.run > 0
    }

    /// Ends the run of deleted keys, if any, before `key`. The range in which nothing is left, if the run is
    /// long enough to be noted.
    pub(crate) fn end_run(&mut self, key: &[u8], backward: bool) -> Option<KeyRange> {
        let run = std::mem::take(&mut self.run);
        if run < RUN_MIN {
            return None;
        }
        let first = self.run_first.as_slice();
        Some(match backward {
            false => KeyRange { start: first.to_vec(), end: Some(key.to_vec()) },
            true => KeyRange { start: successor(key), end: Some(successor(first)) },
        })
    }
}

/// Reports to the store how many covered cells a scan visited in the active memtable, if they were many.
pub(super) fn tell_dead_looks(store: &Store, looks: u64) {
    if looks > u64::from(LOOKS) {
        store.note_dead_looks(looks);
    }
}

#[cfg(all(test, not(models)))]
mod tests {
    use crate::types::{Rng, looks};
    use crate::{Db, Entry, Family, FamilyOptions, Result, Timestamps};
    use std::collections::BTreeMap;
    use std::ops::Range;

    /// Counted work: of a queue that is read at its front and trimmed there while others write at its end,
    /// the thousandth message costs a reader no more visited cells than the hundredth.
    #[test]
    fn what_was_deleted_before_the_front_of_a_queue_costs_its_reader_nothing() {
        for apart in [false, true] {
            let dir = tempfile::tempdir().unwrap();
            let db = Db::open(dir.path()).unwrap();
            let family = db.default_family();
            let key = |n: u32| n.to_be_bytes();
            (0..10).for_each(|n| _ = family.put(key(n), b"message").unwrap());
            let (mut most, mut looks) = (0, 0);
            for n in 0..2_000u32 {
                family.put(key(n + 10), b"message").unwrap();
                let mut scan = family.scan::<&[u8]>(..);
                let first = scan.next().unwrap().unwrap().key;
                assert_eq!(first, key(n));
                looks += scan.covers().looks;
                drop(scan);
                let start = if apart { key(n) } else { key(0) };
                family.delete_range(&start[..]..=&first).unwrap();
                if n % 10 == 9 {
                    // Waits until background work has laid it out flat.
                    db.wait_idle().unwrap();
                }
                if n % 500 == 499 {
                    most = most.max(std::mem::take(&mut looks));
                }
            }
            // Without freezing, the last 500 messages would visit 1.8 million cells.
            assert!(most < 500 * 250, "{most} looks for 500 messages, apart: {apart}");
        }
    }

    fn key(n: u32) -> [u8; 4] {
        n.to_be_bytes()
    }

    fn delete(family: &Family, n: u32) {
        family.delete_range(&key(n)[..]..=&key(n)[..]).unwrap();
    }

    /// Deletes these rows in any order: each by itself, or by ranges of which each begins so many behind
    /// another and is twice as long.
    fn delete_all(family: &Family, rows: Range<u32>, apart: u32) {
        let mut starts: Vec<u32> = rows.clone().step_by(apart as usize).collect();
        Rng::new(3).shuffle(&mut starts);
        for start in starts {
            match apart {
                1 => delete(family, start),
                _ => {
                    let end = key(rows.end.min(start + 2 * apart));
                    family.delete_range(&key(start)[..]..&end[..]).unwrap();
                }
            }
        }
    }

    /// The covered cells that a scan to its first row visits, and how often it looks for tombstones.
    fn to_the_first(family: &Family, expected: u32, backward: bool) -> (u64, u64) {
        let mut covered = 0;
        let touched = looks::count(|| {
            let mut scan = family.scan::<&[u8]>(..);
            let first = if backward { scan.next_back() } else { scan.next() };
            assert_eq!(first.unwrap().unwrap().key, key(expected));
            covered = scan.covers().looks;
        });
        (covered, touched)
    }

    fn options(explicit: bool) -> FamilyOptions {
        let timestamps = if explicit { Timestamps::Explicit } else { Timestamps::Implicit };
        FamilyOptions { timestamps, versions: 1, ..FamilyOptions::default() }
    }

    /// Counted work: over n rows that were deleted one by one or by many ranges, wherever rows and tombstones
    /// lie and from whichever end it comes, a scan visits each once, at the cost of a logarithm. Later scans
    /// cost a logarithm in all, except for visiting cells of the active memtable.
    #[test]
    fn rows_deleted_one_by_one_are_gone_through_once() {
        for (n, explicit, apart) in
            [(1_000u32, false, 1), (10_000, false, 1), (10_000, true, 1), (10_000, false, 10)]
        {
            gone_through_once(n, explicit, apart, false);
            gone_through_once(n, explicit, apart, true);
        }
    }

    fn gone_through_once(n: u32, explicit: bool, apart: u32, backward: bool) {
        let look = 16 * u64::from(n.ilog2());
        let few = 80;
        let rows = u64::from(n);
        let of = format!("{n}, {apart} apart, backward: {backward}");
        // The row that is left, where the scan comes last.
        let (left, dead) = if backward { (0, 1..n + 1) } else { (n, 0..n) };
        let to_the_first = |family: &Family| to_the_first(family, left, backward);
        let dir = tempfile::tempdir().unwrap();
        let open = || Db::open(dir.path()).unwrap();
        let mut family = open().create_family("rows", options(explicit)).unwrap();

        // All of it in the active memtable.
        (0..=n).for_each(|n| _ = family.put(key(n), b"row").unwrap());
        match apart {
            1 => dead.clone().for_each(|n| delete(&family, n)),
            _ => delete_all(&family, dead.clone(), apart),
        }
        let (covered, touched) = to_the_first(&family);
        assert!(covered <= rows && touched <= rows * look, "{covered}, {touched} of {of}");
        let (_, touched) = to_the_first(&family);
        assert!(touched <= few * look, "{touched} of {of}, known already");
        // Neither memtables nor SSTables have anything left of them.
        family.flush().unwrap();
        let (covered, touched) = to_the_first(&family);
        assert!(covered == 0 && touched <= look, "{covered}, {touched} of {of} after a flush");

        // Rows in an SSTable, and tombstones in memory, in another order.
        dead.clone().for_each(|n| _ = family.put(key(n), b"row").unwrap());
        family.flush().unwrap();
        delete_all(&family, dead, apart);
        let mut opened = 0;
        loop {
            let (covered, touched) = to_the_first(&family);
            assert!(covered <= rows && touched <= rows * look, "{covered}, {touched} of {of}");
            let (covered, touched) = to_the_first(&family);
            assert!(covered <= few && touched <= few * look, "{covered}, {touched} of {of}, known already");
            opened += 1;
            match opened {
                // All tombstones come into one active memtable.
                1 => {
                    drop(family);
                    family = open().family("rows").unwrap();
                }
                // Rows and tombstones in SSTables, unless these are compacted already.
                2 => family.flush().unwrap(),
                _ => break,
            }
        }
    }

    /// Counted work: the same where after each hundred a row is left, to the end of the scan.
    #[test]
    fn rows_left_among_deleted_ones_cost_a_look_at_each() {
        for n in [1_000u32, 10_000] {
            let (rows, look) = (u64::from(n), 16 * u64::from(n.ilog2()));
            let dir = tempfile::tempdir().unwrap();
            let db = Db::open(dir.path()).unwrap();
            let family = db.create_family("rows", options(false)).unwrap();
            let left: Vec<u32> = (99..n).step_by(100).collect();
            let dead = || (0..n).filter(|n| n % 100 != 99);
            (0..n).for_each(|n| _ = family.put(key(n), b"row").unwrap());
            dead().for_each(|n| delete(&family, n));
            // In the active memtable; rows in an SSTable, and tombstones in memory; and in SSTables, unless
            // these are compacted already.
            for lies in ["active", "apart", "tables"] {
                match lies {
                    "active" => {}
                    "apart" => {
                        dead().for_each(|n| _ = family.put(key(n), b"row").unwrap());
                        family.flush().unwrap();
                        dead().for_each(|n| delete(&family, n));
                    }
                    _ => family.flush().unwrap(),
                }
                // Each twice: some of what is gone is known the second time.
                for backward in [false, true, false, true] {
                    let (mut covered, mut found) = (0, Vec::new());
                    let touched = looks::count(|| {
                        let mut scan = family.scan::<&[u8]>(..);
                        while let Some(row) = if backward { scan.next_back() } else { scan.next() } {
                            found.push(u32::from_be_bytes(row.unwrap().key.try_into().unwrap()));
                        }
                        covered = scan.covers().looks;
                    });
                    if backward {
                        found.reverse();
                    }
                    let of = format!("{n}, {lies}, backward: {backward}");
                    assert_eq!(found, left, "{of}");
                    assert!(covered <= rows && touched <= rows * look, "{covered}, {touched} of {of}");
                }
            }
        }
    }

    /// A queue that is emptied and read in turns, with what it is read by, among other keys.
    #[test]
    fn scans_find_what_is_left_after_others_have_noted_what_is_not() {
        for (seed, explicit) in [(1, false), (2, true)] {
            let mut rng = Rng::new(seed);
            let dir = tempfile::tempdir().unwrap();
            let db = Db::open(dir.path()).unwrap();
            let family = db.create_family("rows", options(explicit)).unwrap();
            let mut rows = BTreeMap::new();
            let mut held = Vec::new();
            for turn in 0..400u32 {
                let first = rng.range(0..600) as u32;
                let last = first + rng.range(0..200) as u32;
                for n in first..last {
                    if turn % 2 == 0 {
                        family.put(key(n), turn.to_be_bytes()).unwrap();
                        rows.insert(n, turn);
                    } else {
                        delete(&family, n);
                        rows.remove(&n);
                    }
                }
                if rng.one_in(40) {
                    family.flush().unwrap();
                }
                if rng.one_in(20) {
                    held.push((db.snapshot(), rows.clone()));
                }
                let from = rng.range(0..800) as u32;
                let found = |at: &mut dyn Iterator<Item = Result<Entry>>| -> Vec<(Vec<u8>, Vec<u8>)> {
                    at.map(|entry| entry.map(|e| (e.key, e.value.to_vec())).unwrap()).collect()
                };
                let of = |rows: &BTreeMap<u32, u32>| -> Vec<(Vec<u8>, Vec<u8>)> {
                    let left = rows.range(from..);
                    left.map(|(n, turn)| (key(*n).to_vec(), turn.to_be_bytes().to_vec())).collect()
                };
                let start = key(from);
                assert_eq!(found(&mut family.scan(&start[..]..)), of(&rows), "turn {turn} of {seed}");
                let mut back = found(&mut family.scan(&start[..]..).rev());
                back.reverse();
                assert_eq!(back, of(&rows), "turn {turn} of {seed}, backward");
                for (snapshot, then) in &held {
                    let reader = family.at(snapshot);
                    assert_eq!(found(&mut reader.scan(&start[..]..)), of(then), "turn {turn}, as it was");
                }
                held.truncate(3);
            }
        }
    }
}
