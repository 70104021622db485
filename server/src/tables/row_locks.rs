//! Locks of rows that are read before they are written.

use parking_lot::{Mutex, MutexGuard};

/// How many locks there are for all rows.
const ROW_LOCKS: usize = 256;

/// The locks, each for the rows that fall to it by their hash.
pub(crate) struct RowLocks(Vec<Mutex<()>>);

impl Default for RowLocks {
    fn default() -> Self {
        Self((0..ROW_LOCKS).map(|_| Mutex::default()).collect())
    }
}

impl RowLocks {
    /// One call at a time reads a row to write it.
    pub(crate) fn lock(&self, row: &[u8]) -> MutexGuard<'_, ()> {
        let hash = row.iter().fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
        });
        self.0[usize::try_from(hash % ROW_LOCKS as u64).unwrap_or(0)].lock()
    }
}
