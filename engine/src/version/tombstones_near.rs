//! Range tombstones around one key, over all memory and SSTables of a version. A scan asks again when it
//! leaves the keys for which the answer holds, so that opening one costs nothing for tombstones that it does
//! not meet.

use super::memtables::Memtables;
use super::version::{OpenRun, Version};
use crate::error::Result;
use crate::memtable::{Memtable, MemtableRanges};
use crate::types::{KeyRange, RangeTombstone, SeqNo, Window};

impl Version {
    /// Whether there are range tombstones anywhere. (More may come to an active memtable, but readers that
    /// have their read point already do not see them.)
    pub(crate) fn has_ranges(&self) -> bool {
        let Memtables { active, waiting, ranges, flushing } = &self.memory;
        std::iter::once(active).chain(waiting).any(Memtable::has_ranges)
            || ranges.has_tombstones()
            || flushing.ranges.has_tombstones()
            || self.runs.iter().any(|run| run.has_ranges)
    }

    /// The tombstones at or below `read` that cover the key, and the keys around it that no others cover.
    /// Those older than one over all timestamps are left out: it deletes what they delete. O(log n) for each
    /// memtable and run. `emptied`: a range around the key in which no cell is left that was written before
    /// it.
    pub(crate) fn look_around(
        &self,
        key: &[u8],
        read: SeqNo,
        emptied: Option<&RangeTombstone>,
    ) -> Result<Window> {
        let mut window = Window::all();
        self.ask(key, read, &mut window)?;
        window = window.bounded(emptied);
        self.ask(key, read, &mut window)?;
        Ok(window)
    }

    fn ask(&self, key: &[u8], read: SeqNo, window: &mut Window) -> Result<()> {
        let Memtables { active, waiting, ranges, flushing } = &self.memory;
        for memtable in std::iter::once(active).chain(waiting) {
            memtable.look_around(key, read, window);
        }
        ranges.look_around(key, read, window);
        let KeyRange { start, end } = &flushing.range;
        if key < start.as_slice() {
            window.ends_before(start);
        } else if let Some(end) = end.as_deref().filter(|end| *end <= key) {
            window.starts_at(end);
        } else {
            window.within(&flushing.range);
            flushing.ranges.look_around(key, read, window);
        }
        for run in self.runs.iter().filter(|run| run.has_ranges) {
            run.look_around(key, read, window)?;
        }
        Ok(())
    }
}

impl MemtableRanges {
    /// Narrows the window by the tombstones in the memtables of the key's range, for
    /// [`Version::look_around`].
    fn look_around(&self, key: &[u8], read: SeqNo, window: &mut Window) {
        if self.has_tombstones() {
            window.within(&self.range(self.find(key)));
            self.at(key).iter().for_each(|memtable| memtable.look_around(key, read, window));
        }
    }
}

impl OpenRun {
    /// Narrows the window by the tombstones in the SSTable of the key, or to the gap between two, for
    /// [`Version::look_around`].
    fn look_around(&self, key: &[u8], read: SeqNo, window: &mut Window) -> Result<()> {
        let next = self.starting_upto(key);
        if let Some(after) = self.tables.get(next) {
            window.ends_before(after.start());
        }
        let Some(at) = next.checked_sub(1) else { return Ok(()) };
        let open = &self.tables[at];
        if window.is_above(open.info.seqs.1) {
            window.starts_at(open.start());
            return Ok(());
        }
        if open.covers(key) {
            window.within(&open.info.live_range());
            if open.has_ranges() {
                open.table()?.fragments().look_around(key, read, window);
            }
        } else if let Some(end) = &open.info.range.end {
            window.starts_at(end);
        }
        Ok(())
    }
}
