//! Rows as the messages of ReadRows: cells in chunks, none of them and no message too large for clients.
//!
//! A row is kept in one message where it fits. One that does not is cut between cells, and within a value only where that alone
//! is too large. The first chunk of each message names its row, if it is no piece of a value: one client (Python's) takes it for
//! a row out of order otherwise.

use crate::proto::read_rows::{CellChunk, ReadRowsResponse, RowStatus};
use crate::reader::Row;
use bytes::Bytes;
use std::sync::Arc;

/// Bytes of a message, about, unless a single row takes more.
const MESSAGE_BYTES: usize = 512 << 10;
/// Bytes of a row that is kept in one message; clients take up to 4 MiB.
const ROW_BYTES: usize = 3 << 20;
/// Bytes of a piece of a value.
const PIECE_BYTES: usize = 1 << 20;
/// Bytes of a chunk besides its key, names and value, about.
const CHUNK_BYTES: usize = 24;

/// Puts rows into messages.
#[derive(Default)]
pub(crate) struct Chunker {
    chunks: Vec<CellChunk>,
    bytes: usize,
    full: Vec<ReadRowsResponse>,
    /// The family named last, as it goes into chunks.
    family: Option<(Arc<str>, Bytes)>,
}

impl Chunker {
    /// Adds a row, which has cells.
    pub(crate) fn row(&mut self, (key, cells): Row) {
        let (mut family, mut qualifier): (Option<Arc<str>>, Option<Bytes>) = (None, None);
        let (begin, last) = (self.chunks.len(), cells.len() - 1);
        let mut bytes = key.len();
        for (at, cell) in cells.into_iter().enumerate() {
            let mut chunk =
                CellChunk { timestamp_micros: cell.timestamp, labels: cell.labels, ..Default::default() };
            if at == 0 {
                chunk.row_key = key.clone();
            }
            let new_family = family.as_ref() != Some(&cell.family);
            if new_family {
                chunk.family_name = Some(self.name(&cell.family));
            }
            if new_family || qualifier.as_ref() != Some(&cell.qualifier) {
                chunk.qualifier = Some(cell.qualifier.clone());
            }
            (family, qualifier) = (Some(cell.family), Some(cell.qualifier));
            chunk.value = cell.value;
            chunk.row_status = (at == last).then_some(RowStatus::CommitRow(true));
            bytes += size_of(&chunk);
            self.chunks.push(chunk);
        }
        if bytes <= ROW_BYTES {
            if begin > 0 && self.bytes + bytes > MESSAGE_BYTES {
                let row = self.chunks.split_off(begin);
                self.finish_message();
                self.chunks = row;
            }
            self.bytes += bytes;
            return;
        }
        let row = self.chunks.split_off(begin);
        self.finish_message();
        for chunk in row {
            self.piece_by_piece(&key, chunk);
        }
    }

    fn name(&mut self, family: &Arc<str>) -> Bytes {
        if let Some((last, name)) = &self.family
            && Arc::ptr_eq(last, family)
        {
            return name.clone();
        }
        let name = Bytes::copy_from_slice(family.as_bytes());
        self.family = Some((family.clone(), name.clone()));
        name
    }

    /// Adds a cell of a row that takes several messages.
    fn piece_by_piece(&mut self, key: &Bytes, mut chunk: CellChunk) {
        let (bytes, whole) = (size_of(&chunk), i32::try_from(chunk.value.len()).unwrap_or(i32::MAX));
        if self.bytes + bytes > PIECE_BYTES {
            self.finish_message();
        }
        if self.chunks.is_empty() {
            chunk.row_key = key.clone();
        }
        let (mut value, row_status) = (std::mem::take(&mut chunk.value), chunk.row_status.take());
        while value.len() > PIECE_BYTES {
            chunk.value = value.split_to(PIECE_BYTES);
            chunk.value_size = whole;
            self.chunks.push(std::mem::take(&mut chunk));
            self.finish_message();
        }
        chunk.value = value;
        chunk.row_status = row_status;
        self.bytes += size_of(&chunk);
        self.chunks.push(chunk);
    }

    fn finish_message(&mut self) {
        self.bytes = 0;
        let chunks = std::mem::take(&mut self.chunks);
        if !chunks.is_empty() {
            self.full.push(ReadRowsResponse { chunks, ..Default::default() });
        }
    }

    /// Whether there is enough for a message.
    pub(crate) fn is_full(&self) -> bool {
        !self.full.is_empty()
    }

    /// All that there is, in messages.
    pub(crate) fn take(&mut self) -> Vec<ReadRowsResponse> {
        self.finish_message();
        std::mem::take(&mut self.full)
    }
}

fn size_of(chunk: &CellChunk) -> usize {
    let names =
        chunk.family_name.as_ref().map_or(0, Bytes::len) + chunk.qualifier.as_ref().map_or(0, Bytes::len);
    let labels: usize = chunk.labels.iter().map(|label| label.len() + 2).sum();
    CHUNK_BYTES + names + labels + chunk.value.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filter::Cell;
    use prost::Message;

    fn cell(family: &str, qualifier: &str, timestamp: i64, bytes: usize) -> Cell {
        Cell {
            family: family.into(),
            qualifier: Bytes::copy_from_slice(qualifier.as_bytes()),
            timestamp,
            value: Bytes::from(vec![7; bytes]),
            labels: Vec::new(),
        }
    }

    #[test]
    fn names_are_said_where_they_change_and_the_last_chunk_commits() {
        let mut chunker = Chunker::default();
        chunker.row((
            Bytes::from_static(b"row"),
            vec![cell("f", "a", 2, 1), cell("f", "a", 1, 1), cell("f", "b", 1, 1), cell("g", "b", 1, 1)],
        ));
        let message = chunker.take().remove(0);
        let said = |c: &CellChunk| {
            (c.row_key.len(), c.family_name.is_some(), c.qualifier.is_some(), c.row_status.is_some())
        };
        let said: Vec<_> = message.chunks.iter().map(said).collect();
        assert_eq!(
            said,
            [
                (3, true, true, false),
                (0, false, false, false),
                (0, false, true, false),
                (0, true, true, true)
            ]
        );
        assert!(chunker.take().is_empty());
    }

    #[test]
    fn large_values_come_in_pieces_and_no_message_is_over_four_mebibytes() {
        let mut chunker = Chunker::default();
        chunker.row((Bytes::from_static(b"row"), vec![cell("f", "a", 1, 5 << 20), cell("f", "b", 1, 0)]));
        let messages = chunker.take();
        assert!(messages.len() > 4 && messages.iter().all(|message| message.encoded_len() < 2 << 20));
        let chunks: Vec<_> = messages.iter().flat_map(|message| &message.chunks).collect();
        let (last, pieces) = chunks[..chunks.len() - 1].split_last().unwrap();
        assert!(pieces.iter().all(|chunk| chunk.value_size == 5 << 20) && last.value_size == 0);
        assert_eq!(chunks.iter().map(|chunk| chunk.value.len()).sum::<usize>(), 5 << 20);
        assert!(pieces[1..].iter().all(|chunk| chunk.qualifier.is_none() && chunk.row_key.is_empty()));
    }

    #[test]
    fn a_row_is_kept_in_one_message_or_named_in_each() {
        let row = |n: u8, cells: usize, bytes: usize| {
            let cells = (0..cells).map(|at| cell("f", &format!("q{at:04}"), 1, bytes)).collect();
            (Bytes::from(vec![n]), cells)
        };
        let mut chunker = Chunker::default();
        for n in 1..=3 {
            chunker.row(row(n, 100, 4 << 10));
        }
        let messages = chunker.take();
        assert_eq!(messages.iter().map(|m| m.chunks.len()).collect::<Vec<_>>(), [100, 100, 100]);
        chunker.row(row(4, 1_000, 10 << 10));
        chunker.row(row(5, 1, 1));
        let messages = chunker.take();
        assert!(messages.len() > 5 && messages.iter().all(|message| message.encoded_len() < 4 << 20));
        assert!(messages.iter().all(|message| !message.chunks[0].row_key.is_empty()));
        assert_eq!(messages.iter().map(|m| m.chunks.len()).sum::<usize>(), 1_001);
    }
}
