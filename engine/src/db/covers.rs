//! Range tombstones before a scan: what covers the keys where it is, and how it gets past them.
//!
//! A queue is read at its front and deleted up to there, so a scan meets all that was deleted before it comes to what is left.
//! Looking at each cell of that would make the nth message cost n. Instead:
//!
//! - Tombstones are looked up around the scan's place ([`Version::look_around`]), not gathered when it opens.
//! - After a few covered cells all sources whose cells are older than what covers them go past it at once, however much
//!   lies there.
//! - A source with newer cells among them has to be walked through. That is the active segment, where deletes and puts come one
//!   after the other. What scans look at there in vain is counted, and once it is several times what the segment holds, the next
//!   write freezes it ([`Store::is_mostly_dead`]): laid out flat it has no covered cells any more, and when its index is merged
//!   with others those go that are covered by tombstones of these.

use crate::commit::Store;
use crate::types::{Fragments, KeyRange, SeqNo, Timestamp};
use crate::version::Version;

/// Covered cells that are looked at one by one before the sources go past all others.
const LOOKS: u32 = 8;

pub(crate) struct Covers {
    read: SeqNo,
    /// Whether there are range tombstones at all.
    any: bool,
    /// Keys of which the following holds; none yet if empty.
    known: KeyRange,
    fragments: Fragments,
    /// The newest tombstone over all timestamps.
    whole: Option<SeqNo>,
    /// Covered cells looked at since sources last went past some, and in all.
    here: u32,
    looks: u64,
}

impl Covers {
    pub(crate) fn new(version: &Version, read: SeqNo) -> Self {
        Self {
            any: version.has_ranges(),
            read,
            known: KeyRange { start: Vec::new(), end: Some(Vec::new()) },
            fragments: Fragments::default(),
            whole: None,
            here: 0,
            looks: 0,
        }
    }

    /// What covers the key in that version, which is the same in all calls.
    #[inline]
    pub(crate) fn over(&mut self, version: &Version, key: &[u8]) -> &Fragments {
        if self.any && !self.known.contains(key) {
            self.look_around(version, key);
        }
        &self.fragments
    }

    fn look_around(&mut self, version: &Version, key: &[u8]) {
        (self.known, self.fragments, self.whole) = version.look_around(key, self.read).into_parts();
        self.here = 0;
    }

    /// Whether a cell of the key without a timestamp, with that sequence number, is deleted.
    #[inline]
    pub(crate) fn is_covered(&mut self, version: &Version, key: &[u8], seq: SeqNo) -> bool {
        let read = self.read;
        self.any
            && self.over(version, key).newest_over(key, Timestamp::ZERO, read).is_some_and(|over| seq < over)
    }

    /// Whether all cells of the last key asked for are, the newest of which has that number.
    pub(crate) fn covers_all(&self, newest: SeqNo) -> bool {
        self.whole.is_some_and(|whole| newest < whole)
    }

    /// A covered cell was looked at. Where it is time to go past the others: the keys
    /// that are covered like it, and the tombstone that all cells of a source must be older than.
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
}

/// What was looked at in vain in the active segment, as far as a scan's end tells the store of it.
pub(super) fn tell_dead_looks(store: &Store, looks: u64) {
    if looks > u64::from(LOOKS) {
        store.note_dead_looks(looks);
    }
}

#[cfg(all(test, not(models)))]
mod tests {
    use crate::Db;

    /// Counted work: of a queue that is read at its front and trimmed there while others write at its end, the thousandth
    /// message costs a reader no more looks than the hundredth.
    #[test]
    fn what_was_deleted_before_the_front_of_a_queue_costs_its_reader_nothing() {
        for apart in [false, true] {
            let dir = tempfile::tempdir().unwrap();
            let db = Db::open(dir.path()).unwrap();
            let family = db.default_family();
            let key = |n: u32| n.to_be_bytes();
            (0..10).for_each(|n| _ = family.put(key(n), b"message").unwrap());
            let (mut most, mut looks) = (0, 0);
            for n in 0..4_000u32 {
                family.put(key(n + 10), b"message").unwrap();
                let mut scan = family.scan::<&[u8]>(..);
                let first = scan.next().unwrap().unwrap().key;
                assert_eq!(first, key(n));
                looks += scan.covers().looks;
                drop(scan);
                let start = if apart { key(n) } else { key(0) };
                family.delete_range(&start[..]..=&first).unwrap();
                if n % 500 == 499 {
                    most = most.max(std::mem::take(&mut looks));
                    // What is laid out in the background is done.
                    db.settle().unwrap();
                }
            }
            // Without freezing the last 500 messages would look at 1.8 million.
            assert!(most < 500 * 250, "{most} looks for 500 messages, apart: {apart}");
        }
    }
}
