//! How much of a family lies in a range of keys, from what SSTables say of themselves.

use super::family::Family;
use crate::error::Result;
use crate::shape::TableInfo;
use crate::sstable::CursorOptions;
use crate::types::{Cursor, KeyRange};
use crate::version::OpenTable;
use serde::Serialize;
use std::ops::RangeBounds;

/// An estimate of what SSTables hold in a range of keys; what is still in memory does not count.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug, Serialize)]
pub struct Estimate {
    /// Bytes of SSTable files.
    pub bytes: u64,
    /// Cells: each version, tombstone and operand counts, so there may be more than keys.
    pub cells: u64,
}

impl Family {
    /// About how many bytes and cells of SSTables a range has. Off by up to a data block for each SSTable at
    /// either end of the range, and where some keys have much larger cells than others. Nothing of memory
    /// counts: flush for that.
    ///
    /// Reads the data blocks at the range's ends: O(SSTables) in memory, two blocks at most of each run.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// let db = siltstone::Db::open(dir.path())?;
    /// for number in 0..1_000 {
    ///     db.put(format!("user/{number:04}"), "a value")?;
    /// }
    /// db.flush()?;
    /// let users = db.default_family();
    /// assert_eq!(users.estimate("user/".."user0")?.cells, 1_000);
    /// assert_eq!(users.estimate("x"..)?.bytes, 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn estimate<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Result<Estimate> {
        self.store.check_not_dropped()?;
        let version = self.store.version_full();
        let range = KeyRange::from_bounds(&range).intersect(&version.bounds);
        let mut all = Estimate::default();
        for open in version.tables().filter(|open| open.info.overlaps(&range)) {
            let info = &open.info;
            let whole = TableInfo { clip: None, above: None, ..TableInfo::clone(info) }.live_bytes();
            let (a, b) = match info.is_whole() && range.covers(&info.range) {
                true => (1, 1),
                false => between(open, &range.intersect(&info.live_range()))?,
            };
            all.bytes += part(whole, a, b);
            all.cells += part(info.cells, a, b);
        }
        Ok(all)
    }
}

/// Bytes of an SSTable's data that lie in a range, and bytes of all its data.
fn between(open: &OpenTable, range: &KeyRange) -> Result<(u64, u64)> {
    let options = CursorOptions { fill_cache: true, read_ahead_bytes: 0, ..CursorOptions::default() };
    let table = open.table()?;
    let all = table.data_end();
    let mut cursor = table.cursor(options);
    let mut before = |key: &[u8]| cursor.seek(key).map(|()| cursor.offset());
    let begin = before(&range.start)?;
    let end = match &range.end {
        Some(end) => before(end)?,
        None => all,
    };
    Ok((end.saturating_sub(begin), all))
}

/// The share `a / b` of a number, rounded down.
fn part(of: u64, a: u64, b: u64) -> u64 {
    (u128::from(of) * u128::from(a) / u128::from(b.max(1))) as u64
}
