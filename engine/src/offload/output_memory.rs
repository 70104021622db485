//! The SSTables that a compaction runner wrote lately, in memory: the remote cache of the databases that it
//! works for (OFF-3).
//!
//! Each SSTable is held as in its file, from the first byte on, so that any block can be read by its offset.
//! The compaction says for how long ([`RetainOutputs`]). The bound is never exceeded: SSTables that are held
//! only as long as there is room leave first, the oldest before the others; if that is not enough, the
//! SSTable being written is not held at all. (Pieces that are being read, and copies made for readers, may
//! exceed it while that lasts.)

use super::RetainOutputs;
use crate::compaction::{CompactionSpec, WriteTo, sum};
use crate::storage::WriteFile;
use crate::sync::Mutex;
use crate::types::TableId;
use std::collections::{BTreeMap, VecDeque};
use std::fmt::Debug;
use std::io;
use std::ops::Range;
use std::sync::Arc;

/// An SSTable's name, with the number of its database.
type Name = (u64, TableId);

/// See the page above.
pub struct KeptOutputs {
    bytes_max: u64,
    tables: Mutex<Tables>,
}

#[derive(Default)]
struct Tables {
    bytes: u64,
    by_name: BTreeMap<Name, RetainedOutput>,
    /// SSTables that may be evicted, the oldest first.
    leaving: VecDeque<Name>,
}

#[derive(Default)]
struct RetainedOutput {
    /// The pieces that were written, each with the offset behind it.
    pieces: Vec<(u64, Arc<[u8]>)>,
    bytes: u64,
}

impl Debug for KeptOutputs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "KeptOutputs({} of {} bytes)", self.bytes(), self.bytes_max)
    }
}

impl Tables {
    fn remove(&mut self, name: &Name) {
        if let Some(kept) = self.by_name.remove(name) {
            self.bytes -= kept.bytes;
        }
    }
}

impl KeptOutputs {
    pub(super) fn new(bytes_max: u64) -> Arc<Self> {
        Arc::new(Self { bytes_max, tables: Mutex::default() })
    }

    /// Bytes held.
    pub fn bytes(&self) -> u64 {
        self.tables.lock().bytes
    }

    /// These parts of an SSTable's file, one behind the other; `None` if the SSTable is not held, or has no
    /// such parts. `database` is the number of the database ([`CompactionSpec::database`]) that the SSTable
    /// is for. Parts together may have `bytes_max` bytes. O(log SSTables + parts x log pieces + bytes).
    pub fn read(
        &self,
        database: u64,
        table: TableId,
        parts: &[Range<u64>],
        bytes_max: u64,
    ) -> Option<Vec<u8>> {
        let lens = parts.iter().map(|part| part.end.saturating_sub(part.start));
        if sum(lens) > bytes_max {
            return None;
        }
        let mut found: Vec<(Arc<[u8]>, Range<usize>)> = Vec::new();
        let mut bytes = 0u64;
        {
            let tables = self.tables.lock();
            let kept = tables.by_name.get(&(database, table))?;
            for part in parts {
                if part.start > part.end || part.end > kept.bytes {
                    return None;
                }
                bytes = bytes.checked_add(part.end - part.start)?;
                let mut at = part.start;
                let first = kept.pieces.partition_point(|(end, _)| *end <= at);
                for (end, piece) in &kept.pieces[first..] {
                    if at >= part.end {
                        break;
                    }
                    let begin = end - piece.len() as u64;
                    found.push((piece.clone(), (at - begin) as usize..(part.end.min(*end) - begin) as usize));
                    at = *end;
                }
            }
        }
        let mut all = Vec::with_capacity(usize::try_from(bytes).ok()?);
        found.iter().for_each(|(piece, range)| all.extend_from_slice(&piece[range.clone()]));
        Some(all)
    }

    /// Begins to hold the outputs of this compaction.
    pub(super) fn begin(
        self: &Arc<Self>,
        spec: &CompactionSpec,
        keep: RetainOutputs,
    ) -> Arc<RetainedCompaction> {
        Arc::new(RetainedCompaction {
            all: self.clone(),
            database: spec.database(),
            keep,
            tables: Mutex::default(),
        })
    }

    /// Adds a piece of an SSTable; returns whether there was room.
    fn append(&self, name: Name, bytes: &[u8]) -> bool {
        let mut tables = self.tables.lock();
        let len = bytes.len() as u64;
        while tables.bytes + len > self.bytes_max {
            let Some(oldest) = tables.leaving.pop_front() else {
                tables.remove(&name);
                return false;
            };
            tables.remove(&oldest);
        }
        tables.bytes += len;
        let kept = tables.by_name.entry(name).or_default();
        kept.bytes += len;
        kept.pieces.push((kept.bytes, bytes.into()));
        true
    }

    fn remove(&self, names: impl Iterator<Item = Name>) {
        let mut tables = self.tables.lock();
        names.for_each(|name| tables.remove(&name));
    }

    fn leave_in_time(&self, names: impl Iterator<Item = Name>) {
        let mut tables = self.tables.lock();
        let Tables { by_name, leaving, .. } = &mut *tables;
        leaving.extend(names.filter(|name| by_name.contains_key(name)));
    }
}

/// The outputs of one compaction. When this is dropped they are removed, or may be evicted.
pub(super) struct RetainedCompaction {
    all: Arc<KeptOutputs>,
    database: u64,
    keep: RetainOutputs,
    /// Outputs that are held, in order.
    tables: Mutex<VecDeque<TableId>>,
}

impl RetainedCompaction {
    /// The SSTables up to this one are published.
    pub(super) fn published(&self, last: TableId) {
        let mut tables = self.tables.lock();
        let done = tables.partition_point(|table| *table <= last);
        self.let_go(tables.drain(..done));
    }

    fn let_go(&self, tables: impl Iterator<Item = TableId>) {
        let names = tables.map(|table| (self.database, table));
        match self.keep {
            RetainOutputs::WhileThereIsRoom => self.all.leave_in_time(names),
            RetainOutputs::No | RetainOutputs::UntilPublished => self.all.remove(names),
        }
    }
}

impl Drop for RetainedCompaction {
    fn drop(&mut self) {
        let mut tables = self.tables.lock();
        self.let_go(tables.drain(..));
    }
}

impl WriteTo for RetainedCompaction {
    fn also(&self, table: TableId, file: Box<dyn WriteFile>) -> Box<dyn WriteFile> {
        // A copy of the database has the same number, and may use the same names.
        self.all.remove(std::iter::once((self.database, table)));
        self.tables.lock().push_back(table);
        Box::new(Twice { file, name: (self.database, table), into: Some(self.all.clone()) })
    }
}

/// A file that is written to memory too, as long as there is room.
struct Twice {
    file: Box<dyn WriteFile>,
    name: Name,
    into: Option<Arc<KeptOutputs>>,
}

impl WriteFile for Twice {
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write(bytes)?;
        self.into = self.into.take().filter(|kept| kept.append(self.name, bytes));
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        self.file.sync()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compaction::sample;
    use proptest::prelude::*;

    struct Nowhere;

    impl WriteFile for Nowhere {
        fn write(&mut self, _: &[u8]) -> io::Result<()> {
            Ok(())
        }
        fn sync(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn table(part: u32) -> TableId {
        TableId { part, ..TableId::default() }
    }

    fn bytes(part: u32, len: usize) -> Vec<u8> {
        (0..len).map(|n| (n * 7 + part as usize) as u8).collect()
    }

    fn write(compaction: &Arc<RetainedCompaction>, part: u32, len: usize, piece: usize) {
        let mut file = compaction.also(table(part), Box::new(Nowhere));
        bytes(part, len).chunks(piece).for_each(|piece| file.write(piece).unwrap());
        file.sync().unwrap();
    }

    fn begin(kept: &Arc<KeptOutputs>, keep: RetainOutputs) -> Arc<RetainedCompaction> {
        kept.begin(&sample::spec("a", "z", 1), keep)
    }

    fn has(kept: &KeptOutputs, compaction: &RetainedCompaction, part: u32) -> bool {
        kept.read(compaction.database, table(part), std::slice::from_ref(&(0..1)), 1 << 20).is_some()
    }

    proptest! {
        #[test]
        fn parts_are_those_of_the_file(
            len in 1usize..2_000,
            piece in 1usize..300,
            cuts in proptest::collection::vec((0u64..2_200, 0u64..2_200), 0..6),
        ) {
            let kept = KeptOutputs::new(1 << 20);
            let compaction = begin(&kept, RetainOutputs::UntilPublished);
            write(&compaction, 3, len, piece);
            let whole = bytes(3, len);
            let parts: Vec<Range<u64>> = cuts.iter().map(|(a, b)| *a..*b).collect();
            let slice = |part: &Range<u64>| whole.get(part.start as usize..part.end as usize);
            let expected = parts.iter().map(slice).collect::<Option<Vec<_>>>().map(|parts| parts.concat());
            prop_assert_eq!(kept.read(compaction.database, table(3), &parts, 1 << 20), expected);
            prop_assert_eq!(kept.read(compaction.database ^ 1, table(3), &parts, 1 << 20), None);
        }
    }

    #[test]
    fn a_step_leaves_when_it_is_published_and_all_does_with_the_compaction() {
        let kept = KeptOutputs::new(1_000);
        let compaction = begin(&kept, RetainOutputs::UntilPublished);
        (0..4).for_each(|part| write(&compaction, part, 200, 64));
        assert_eq!(kept.bytes(), 800);
        compaction.published(table(1));
        assert_eq!(kept.bytes(), 400);
        assert!(!has(&kept, &compaction, 1) && has(&kept, &compaction, 2));
        // Beyond the bound an SSTable is not held, and those before it stay.
        write(&compaction, 4, 700, 64);
        assert!(!has(&kept, &compaction, 4) && has(&kept, &compaction, 3));
        assert_eq!(kept.bytes(), 400);
        drop(compaction);
        assert_eq!(kept.bytes(), 0);
    }

    #[test]
    fn what_may_stay_leaves_the_oldest_first_where_room_is_needed() {
        let kept = KeptOutputs::new(1_000);
        let compaction = begin(&kept, RetainOutputs::WhileThereIsRoom);
        (0..4).for_each(|part| write(&compaction, part, 200, 64));
        compaction.published(table(3));
        assert_eq!(kept.bytes(), 800);
        (4..8).for_each(|part| write(&compaction, part, 200, 64));
        assert!(kept.bytes() <= 1_000);
        let left: Vec<u32> = (0..8).filter(|part| has(&kept, &compaction, *part)).collect();
        assert_eq!(left, [3, 4, 5, 6, 7], "the oldest are gone");
        drop(compaction);
        let other = begin(&kept, RetainOutputs::UntilPublished);
        (8..12).for_each(|part| write(&other, part, 200, 64));
        assert!((8..12).all(|part| has(&kept, &other, part)), "what is wanted now goes before what may stay");
    }

    #[test]
    fn more_bytes_than_are_allowed_are_refused() {
        let kept = KeptOutputs::new(1_000);
        let compaction = begin(&kept, RetainOutputs::UntilPublished);
        write(&compaction, 0, 500, 100);
        let twice = [0..500, 0..500];
        assert!(kept.read(compaction.database, table(0), &twice, 1_000).is_some());
        let often = [0..500, 0..500, 0..1];
        assert_eq!(kept.read(compaction.database, table(0), &often, 1_000), None);
    }
}
