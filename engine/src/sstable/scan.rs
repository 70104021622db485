//! Rescue: reads whatever is readable of a damaged SSTable, without trusting its index, footer or properties.
//!
//! Blocks follow one another and each has its length, so a walk from the front finds them all. If one is
//! damaged but its head is sound, the walk steps over it; if the head is damaged too, it tries each following
//! byte until a head's check holds (one chance in 65,536 for noise) and then the block's whole checksum.
//! Every checksum depends on the SSTable's identity, which is in header and footer; the caller may know it
//! from the manifest.

use super::block_cursor::BlockCursor;
use super::footer::{FOOTER_BYTES, Footer, HEADER_BYTES, Header};
use super::frame::{BlockKind, HEAD_BYTES, Head};
use super::properties::Properties;
use super::reference::{Fetched, FoundWalFiles};
use super::tombstones;
use crate::cache::block::Block;
use crate::error::{Error, Result};
use crate::storage::{ReadFile, Storage};
use crate::types::{CellRef, KeyRange, RangeTombstone, TableId, successor};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// Bytes read at once.
const WINDOW_BYTES: u64 = 1 << 20;

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct ScanReport {
    /// The SSTable's name and identity, if header or footer is sound.
    pub(crate) id: Option<(TableId, u64)>,
    /// Cells passed to the caller.
    pub(crate) cells: u64,
    /// Data blocks they came from.
    pub(crate) blocks: u64,
    /// Range tombstones; `None` if their block was lost, so that deleted cells may come back.
    pub(crate) tombstones: Option<Vec<RangeTombstone>>,
    pub(crate) properties: Option<Properties>,
    /// Byte ranges of the file that were not readable, in order.
    pub(crate) lost: Vec<Range<u64>>,
    /// The keys whose cells were in lost data blocks, as narrowly as the adjacent blocks show; the bounds are
    /// keys that may have lost only some of their cells.
    pub(crate) lost_keys: Vec<KeyRange>,
    last: Vec<u8>,
    /// Whether a data block may be lost after the last key.
    gap: bool,
    /// Whether a block of another kind was found: data blocks come first.
    past_data: bool,
}

/// Calls `visit` with every cell in a readable data block, in file order (which is the order of cells). Only
/// a file that cannot be opened or measured is an error; everything else is in the report. Values in the WAL
/// are fetched from the WAL of `database`; a cell whose value is lost there is lost.
pub(crate) fn scan_readable(
    storage: &dyn Storage,
    path: &Path,
    identity: Option<u64>,
    database: u64,
    visit: &mut dyn FnMut(CellRef<'_>),
) -> Result<ScanReport> {
    let file = storage.open(path).map_err(|e| Error::io("open table", path, e))?;
    let len = file.len().map_err(|e| Error::io("measure table", path, e))?;
    let mut report = ScanReport::default();
    let header = read(&*file, 0, HEADER_BYTES).and_then(|bytes| Header::decode(path, &bytes).ok());
    let footer_at = len.saturating_sub(FOOTER_BYTES as u64);
    let footer =
        read(&*file, footer_at, FOOTER_BYTES).and_then(|bytes| Footer::decode(path, &bytes, len).ok());
    report.id = header.map(|h| (h.id, h.identity)).or(footer.map(|f| (f.id, f.identity)));
    let Some(identity) = identity.or(report.id.map(|(_, identity)| identity)) else {
        report.lose(0..len);
        report.lost_keys.push(KeyRange::all());
        return Ok(report);
    };
    if header.is_none() {
        report.lose(0..len.min(HEADER_BYTES as u64));
    }
    let end = if footer.is_some() { footer_at } else { len };
    let mut logs = FoundWalFiles::new(storage, path.parent().unwrap_or(Path::new("")), database);
    let mut walk = Walk { file: &*file, identity, end, window: 0..0, bytes: Vec::new() };
    let mut at = HEADER_BYTES as u64;
    while at < end {
        match walk.head(at) {
            Some(head) => {
                let payload = walk.payload(&head);
                if payload.is_none_or(|payload| !report.take(&head, &payload, &mut logs, visit)) {
                    report.gap |= head.kind == BlockKind::Data;
                    report.lose(at..head.handle.end());
                }
                at = head.handle.end();
            }
            None => {
                let found = walk.find_block(at + 1);
                report.gap |= !report.past_data;
                report.lose(at..found);
                at = found;
            }
        }
    }
    // A truncated file may lack more than can be seen.
    if report.gap || (footer.is_none() && !report.past_data) {
        report.lost_keys.push(KeyRange { start: std::mem::take(&mut report.last), end: None });
    }
    Ok(report)
}

impl ScanReport {
    fn lose(&mut self, range: Range<u64>) {
        match self.lost.last_mut() {
            Some(last) if last.end == range.start => last.end = range.end,
            _ if range.is_empty() => {}
            _ => self.lost.push(range),
        }
    }

    /// Takes a block whose checksum holds; false if it does not decode all the same.
    fn take(
        &mut self,
        head: &Head,
        payload: &[u8],
        logs: &mut FoundWalFiles<'_>,
        visit: &mut dyn FnMut(CellRef<'_>),
    ) -> bool {
        self.past_data |= head.kind != BlockKind::Data;
        match head.kind {
            BlockKind::Data => {
                let Ok(block) = Block::new(payload.to_vec()) else { return false };
                let mut cursor = BlockCursor::default();
                cursor.set(Arc::new(block));
                let mut moved = cursor.first();
                while moved == Ok(true) {
                    let mut cell = cursor.cell();
                    let mut fetched = Fetched::default();
                    if cursor.is_reference() {
                        if !logs.fetch(&cell, &mut fetched) {
                            self.lost_keys.push(KeyRange::new(cell.key, successor(cell.key)));
                            moved = cursor.next();
                            continue;
                        }
                        cell.value = fetched.value();
                    }
                    if std::mem::take(&mut self.gap) {
                        self.lost_keys.push(KeyRange::new(&self.last[..], successor(cell.key)));
                    }
                    visit(cell);
                    self.last.clear();
                    self.last.extend_from_slice(cell.key);
                    self.cells += 1;
                    moved = cursor.next();
                }
                self.blocks += 1;
                moved.is_ok()
            }
            BlockKind::Tombstones => {
                self.tombstones = tombstones::decode(payload).ok();
                self.tombstones.is_some()
            }
            BlockKind::Properties => {
                self.properties = Properties::decode(payload).ok();
                self.properties.is_some()
            }
            _ => true,
        }
    }
}

/// Reads a file piece by piece; what cannot be read is `None`.
struct Walk<'f> {
    file: &'f dyn ReadFile,
    identity: u64,
    end: u64,
    window: Range<u64>,
    bytes: Vec<u8>,
}

impl Walk<'_> {
    /// The head at `at`, if its check holds.
    fn head(&mut self, at: u64) -> Option<Head> {
        let (identity, end) = (self.identity, self.end);
        let bytes: [u8; HEAD_BYTES] = self.piece(at, HEAD_BYTES as u64)?.try_into().ok()?;
        Head::decode(&bytes, identity, at, end).ok()
    }

    /// The uncompressed payload, if the checksum holds.
    fn payload(&mut self, head: &Head) -> Option<Vec<u8>> {
        let identity = self.identity;
        let bytes = self.piece(head.handle.offset, head.handle.file_bytes())?;
        let (first, payload) = bytes.split_at_checked(HEAD_BYTES)?;
        head.open(first, payload, identity).ok()
    }

    /// The offset of the first whole block from `at` on; the end if there is none.
    fn find_block(&mut self, mut at: u64) -> u64 {
        while at + HEAD_BYTES as u64 <= self.end {
            if let Some(head) = self.head(at)
                && self.payload(&head).is_some()
            {
                return at;
            }
            at += 1;
        }
        self.end
    }

    fn piece(&mut self, at: u64, len: u64) -> Option<&[u8]> {
        let end = at.checked_add(len).filter(|end| *end <= self.end)?;
        if at < self.window.start || end > self.window.end {
            let to = end.max(at + WINDOW_BYTES).min(self.end);
            self.window = 0..0;
            // A bad sector in the window must not lose its neighbours: then only the needed bytes are read.
            let (to, bytes) = match read(self.file, at, (to - at) as usize) {
                Some(bytes) => (to, bytes),
                None => (end, read(self.file, at, len as usize)?),
            };
            self.bytes = bytes;
            self.window = at..to;
        }
        let start = (at - self.window.start) as usize;
        self.bytes.get(start..start + len as usize)
    }
}

fn read(file: &dyn ReadFile, at: u64, len: usize) -> Option<Vec<u8>> {
    let mut bytes = vec![0; len];
    file.read_exact_at(&mut bytes, at).ok()?;
    Some(bytes)
}
