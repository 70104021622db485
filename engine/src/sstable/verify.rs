//! Checks a whole SSTable: all checksums, and everything it records about itself.

use super::block_cursor::BlockCursor;
use super::footer::{FOOTER_BYTES, HEADER_BYTES, Header};
use super::frame::{BlockKind, Handle, read_at};
use super::properties::{Properties, VersionCounter};
use super::reader::Sstable;
use super::reference::{Fetched, Images, Reference};
use crate::cache::Filter;
use crate::error::{Error, ErrorKind, Result};
use crate::types::{KeyRange, SeqNo, Sketch, Timestamp, hash, successor};
use std::sync::Arc;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Verified {
    /// Data blocks read.
    pub(crate) blocks: u64,
    /// Data blocks below the clip, which nobody reads and whose bytes may be gone.
    pub(crate) dead_blocks: u64,
    /// Cells in the data blocks read.
    pub(crate) cells: u64,
    /// Bytes of the file under checksums that hold, header and footer included.
    pub(crate) bytes: u64,
}

impl Sstable {
    /// Reads every byte of the file, and every value in the WAL that it refers to, and checks them:
    /// checksums, order, bounds, that there are no gaps between blocks, and that index, filters, sketch and
    /// properties agree with the cells. Blocks wholly below the clip of the info that the SSTable was opened
    /// with are skipped.
    pub(crate) fn verify(&self) -> Result<Verified> {
        let mut first = None;
        let verified = self.verify_telling(&mut |damage| _ = first.get_or_insert(damage))?;
        first.map_or(Ok(verified), Err)
    }

    /// Checks the index alone: order, bounds, that there are no gaps between data blocks and that their cells
    /// add up to the count in the SSTable's info. Reads the index, and no data.
    pub(crate) fn verify_index(&self) -> Result<()> {
        let mut check = Check::new(self);
        let (mut last, mut cells) = (Vec::new(), 0u64);
        for item in self.block_entries() {
            let (separator, entry) = item?;
            check.tile(entry.handle)?;
            if separator < last {
                return Err(self.bad(entry.handle.offset, "index entry is out of order"));
            }
            cells = cells.saturating_add(entry.cells);
            last = separator;
        }
        let info = self.info();
        if cells != info.cells {
            let message = format!("index counts {cells} cells, expected {}", info.cells);
            return Err(self.bad(self.footer.top.offset, message));
        }
        if cells > 0 && last < info.range.start {
            return Err(self.bad(self.footer.top.offset, "index ends before the table's first key"));
        }
        Ok(())
    }

    /// Checks the whole SSTable as `verify` does, but goes on after a damaged data block, and calls `told`
    /// with each error.
    pub(crate) fn verify_telling(&self, told: &mut dyn FnMut(Error)) -> Result<Verified> {
        let mut lost = false;
        let mut header = [0; HEADER_BYTES];
        read_at(&*self.file, &self.path, &mut header, 0)?;
        Header::decode(&self.path, &header)?;
        let clip = self.info().clip.as_ref().map(|clip| clip.key.as_slice());
        let mut check = Check::new(self);
        let mut verified = Verified::default();
        let mut filter: Option<Filter> = None;
        let mut partition_end = 0;
        let mut next_partition = 0;
        let mut continues = false;
        let mut blocks_in_partition = 0;
        for item in self.block_entries() {
            let (separator, entry) = item?;
            check.tile(entry.handle)?;
            if entry.handle.offset >= partition_end {
                check.partition_blocks(next_partition, blocks_in_partition)?;
                let Some(partition) = self.top.partitions().get(next_partition) else {
                    return Err(self.bad(entry.handle.offset, "data block is in no partition"));
                };
                partition_end = partition.data_end;
                next_partition += 1;
                blocks_in_partition = 0;
                filter = partition.filter.map(|handle| self.uncached_filter(handle)).transpose()?;
            }
            blocks_in_partition += 1;
            if clip.is_some_and(|clip| separator.as_slice() < clip) {
                verified.dead_blocks += 1;
                check.skip(entry.cells);
                continues = entry.continues;
                continue;
            }
            if let Err(damage) =
                check.block(entry.handle, entry.cells, &separator, continues, filter.as_ref())
            {
                if damage.kind() != ErrorKind::Corruption {
                    return Err(damage);
                }
                told(damage);
                lost = true;
            }
            continues = entry.continues;
            verified.blocks += 1;
        }
        check.partition_blocks(next_partition, blocks_in_partition)?;
        if continues || next_partition != self.top.partitions().len() {
            return Err(self.bad(self.footer.top.offset, "index promises more data blocks than there are"));
        }
        self.verify_other_blocks(&mut check)?;
        if !lost {
            check.summary(verified.dead_blocks > 0)?;
        }
        verified.cells = check.found.cells.saturating_sub(check.skipped_cells);
        verified.bytes = check.tiled + FOOTER_BYTES as u64 - check.dead;
        Ok(verified)
    }

    /// Reads the blocks after the data, which with it make up the file.
    fn verify_other_blocks(&self, check: &mut Check<'_>) -> Result<()> {
        for partition in self.top.partitions() {
            if let Some(filter) = partition.filter {
                self.uncached_filter(filter)?;
                check.tile(filter)?;
            }
        }
        for partition in self.top.partitions() {
            self.uncached_index(partition)?;
            check.tile(partition.index)?;
        }
        for (kind, handle) in [
            (BlockKind::Tombstones, self.footer.tombstones),
            (BlockKind::Sketch, self.footer.sketch),
            (BlockKind::Properties, self.footer.properties),
            (BlockKind::Top, self.footer.top),
        ] {
            self.read(kind, handle)?;
            check.tile(handle)?;
        }
        if check.tiled + FOOTER_BYTES as u64 == self.footer.file_bytes {
            return Ok(());
        }
        Err(self.bad(check.tiled, "bytes between the last block and the footer belong to nothing"))
    }
}

/// Sums over the blocks seen so far.
struct Check<'t> {
    table: &'t Sstable,
    /// The end of the last block, where the next begins.
    tiled: u64,
    found: Properties,
    versions: VersionCounter,
    skipped_cells: u64,
    dead: u64,
    sketch: Sketch,
    first_key: Option<Vec<u8>>,
    last_key: Vec<u8>,
    last: Option<(Timestamp, SeqNo)>,
    last_handle: Handle,
    images: Images,
    fetched: Fetched,
}

impl<'t> Check<'t> {
    fn new(table: &'t Sstable) -> Self {
        Self {
            table,
            tiled: HEADER_BYTES as u64,
            found: Properties::default(),
            versions: VersionCounter::default(),
            skipped_cells: 0,
            dead: 0,
            sketch: Sketch::new(),
            first_key: None,
            last_key: Vec::new(),
            last: None,
            last_handle: Handle::default(),
            images: Images::new(&table.logs, &table.cache),
            fetched: Fetched::default(),
        }
    }

    /// Checks that the block begins where the last one ended, so that no byte is outside a checksum.
    fn tile(&mut self, handle: Handle) -> Result<()> {
        if handle.offset != self.tiled {
            let message = format!("next block is at {}, expected here", handle.offset);
            return Err(self.table.bad(self.tiled, message));
        }
        self.tiled = handle.end();
        self.last_handle = handle;
        Ok(())
    }

    fn skip(&mut self, cells: u64) {
        self.skipped_cells += cells;
        self.found.cells += cells;
        self.found.data_blocks += 1;
        self.dead += self.last_handle.file_bytes();
    }

    fn partition_blocks(&self, entered: usize, found: u64) -> Result<()> {
        let Some(partition) = entered.checked_sub(1).and_then(|i| self.table.top.partitions().get(i)) else {
            return Ok(());
        };
        if partition.blocks == found {
            return Ok(());
        }
        let message = format!("partition has {found} data blocks, expected {}", partition.blocks);
        Err(self.table.bad(partition.index.offset, message))
    }

    fn block(
        &mut self,
        handle: Handle,
        cells: u64,
        separator: &[u8],
        continued: bool,
        filter: Option<&Filter>,
    ) -> Result<()> {
        let bad = |message: String| Error::corruption(self.table.path(), handle.offset, message);
        let (block, _) = self.table.open_data(handle)?;
        let mut cursor = BlockCursor::default();
        cursor.set(Arc::clone(&block));
        self.table.check(handle.offset, cursor.first())?;
        let mut count = 0;
        while cursor.valid() {
            let mut cell = cursor.cell();
            if cursor.is_reference() {
                self.table.fetch(handle.offset, &cell, Some(&mut self.images), &mut self.fetched)?;
                let file = Reference::decode(cell.value).map(|reference| (reference.file, reference.end()));
                let (file, end) = self.table.check(handle.offset, file)?;
                let known = self.found.logs.entry(file).or_default();
                *known = end.max(*known);
                cell.value = self.fetched.value();
                self.found.log_bytes += cell.value.len() as u64;
            }
            let hash = hash(cell.key);
            let same_key = self.last.is_some() && self.last_key == cell.key;
            if self.last.is_some() && self.last_key.as_slice() > cell.key
                || same_key && self.last <= Some((cell.timestamp, cell.seq))
            {
                return Err(bad(format!("cell {count} is out of order")));
            }
            if count == 0 && self.last.is_some() && same_key != continued {
                let says = format!("index says {continued} of the last key going on here, found {same_key}");
                return Err(bad(says));
            }
            if !same_key {
                if filter.is_some_and(|filter| !filter.may_contain(hash)) {
                    return Err(bad(format!("key {} is missing in the filter", cell.key.escape_ascii())));
                }
                // The search of a get must find what the walk finds.
                let found = self.table.check(handle.offset, block.lower_bound(cell.key))?;
                if !found.is_some_and(|entry| block.is_key(&entry, cell.key)) {
                    return Err(bad(format!("key {} is not found by search", cell.key.escape_ascii())));
                }
                self.sketch.add_hash(hash);
                self.found.distinct += 1;
                self.first_key.get_or_insert_with(|| cell.key.to_vec());
                self.last_key.clear();
                self.last_key.extend_from_slice(cell.key);
            }
            self.found.count(&cell, self.last.is_none());
            self.found.note_seq(cell.seq, self.last.is_none());
            self.versions.count(&mut self.found, &cell, same_key);
            self.last = Some((cell.timestamp, cell.seq));
            count += 1;
            let moved = cursor.next();
            self.table.check(handle.offset, moved)?;
        }
        if count != cells {
            return Err(bad(format!("block has {count} cells, expected {cells}")));
        }
        if self.last_key.as_slice() > separator {
            return Err(bad("last key lies behind the block's separator in the index".into()));
        }
        self.found.data_blocks += 1;
        Ok(())
    }

    /// Compares counts, range and sketch; where blocks were skipped, only what is still known.
    fn summary(&mut self, skipped: bool) -> Result<()> {
        let table = self.table;
        let expected = table.properties();
        let mut covers = table.fragments().iter().flat_map(|fragment| &fragment.covers);
        let is_outside = |seq: SeqNo| seq < expected.seqs.0 || seq > expected.seqs.1;
        if table.info().ingested_at.is_none() && covers.any(|cover| is_outside(cover.seq)) {
            return Err(table.bad(table.footer.tombstones.offset, "range tombstone outside the seq range"));
        }
        let at = table.footer.properties.offset;
        let mut found = self.found.clone();
        let cells_inside = self.last.is_none()
            || !is_outside(found.seqs.0)
                && !is_outside(found.seqs.1)
                && (skipped || found.times == expected.times);
        let covered = match &self.first_key {
            Some(first) => expected
                .range
                .covers(&KeyRange { start: first.clone(), end: Some(successor(&self.last_key)) }),
            None => true,
        };
        if !cells_inside || !covered || !table.fragments().bounds().is_none_or(|b| expected.range.covers(&b))
        {
            return Err(table.bad(at, "cells lie outside the key, time or sequence range in the properties"));
        }
        if found.cells != expected.cells || found.data_blocks != expected.data_blocks {
            let counts = |p: &Properties| format!("{} cells in {} blocks", p.cells, p.data_blocks);
            let message = format!("found {}, properties say {}", counts(&found), counts(expected));
            return Err(table.bad(at, message));
        }
        if skipped {
            return Ok(());
        }
        // Fields that are compared elsewhere, or are no counts.
        found.seqs = expected.seqs;
        found.times = expected.times;
        found.range = expected.range.clone();
        found.range_tombstones = expected.range_tombstones;
        (found.created, found.block_bytes, found.bloom_bits) =
            (expected.created, expected.block_bytes, expected.bloom_bits);
        found.log_database = expected.log_database;
        (found.compression, found.names) = (expected.compression, expected.names.clone());
        if (expected.overwritten, expected.later_versions, expected.later_versions_max) == (0, 0, 0) {
            // Older releases did not count these.
            (found.overwritten, found.later_versions, found.later_versions_max) = (0, 0, 0);
        }
        if found != *expected {
            return Err(table.bad(at, format!("properties say {expected:?}, found {found:?}")));
        }
        if table.sketch()? != self.sketch {
            return Err(table.bad(table.footer.sketch.offset, "sketch is not that of the keys"));
        }
        Ok(())
    }
}
