//! Removes SSTables that a compaction in another process wrote and that were never installed. That process
//! may be slow to notice that the compaction was given up, and finish one more. So they are looked for at
//! once, and a few times later. The next open removes those that come later still, like everything that no
//! manifest names.

use super::Catalog;
use crate::compaction::Verifier;
use crate::types::TableId;

/// The times, in seconds, after which they are looked for again.
const LOOK_AFTER_S: [u64; 4] = [1, 10, 60, 600];

/// A compaction elsewhere that was given up.
pub(crate) struct Stray {
    /// The names of its SSTables, and which were installed.
    of: Verifier,
    looks: usize,
    next_ns: u64,
}

impl Catalog {
    /// Removes the SSTables of a compaction that was given up or has failed, now and a few times later.
    pub(crate) fn remove_strays_of(&self, compaction: &Verifier) {
        self.remove_tables(&self.tables_there(|table| compaction.may_remove(table)));
        let next_ns = self.cx.env.clock.monotonic_ns() + LOOK_AFTER_S[0] * 1_000_000_000;
        self.strays.lock().push(Stray { of: compaction.clone(), looks: 0, next_ns });
    }

    /// Removes the SSTables of those compactions that are due to be looked at again. O(1) where none is.
    pub(crate) fn remove_strays(&self, now_ns: u64) {
        let mut strays = self.strays.lock();
        if !strays.iter().any(|stray| stray.next_ns <= now_ns) {
            return;
        }
        let is_due = |table| strays.iter().any(|stray| stray.next_ns <= now_ns && stray.of.may_remove(table));
        self.remove_tables(&self.tables_there(is_due));
        for stray in strays.iter_mut().filter(|stray| stray.next_ns <= now_ns) {
            stray.looks += 1;
            if let Some(after) = LOOK_AFTER_S.get(stray.looks) {
                stray.next_ns = now_ns + after * 1_000_000_000;
            }
        }
        strays.retain(|stray| stray.looks < LOOK_AFTER_S.len());
    }

    /// The files in the table store with such names; none if they cannot be listed.
    fn tables_there(&self, is_of: impl Fn(TableId) -> bool) -> Vec<TableId> {
        let all = self.tables.store().list().unwrap_or_default();
        all.into_iter().filter(|table| is_of(*table)).collect()
    }
}
