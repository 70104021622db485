//! Rows as the messages of ReadRows: cells in chunks, none of them and no message too large for clients.
//!
//! Chunks are encoded where a cell is read, straight from the memory it lies in, and never held in any other form: a scan would
//! spend half its time on that. Of a row's last chunk it is known only behind it that it is the last, so the mark that commits
//! the row is put in then ([`Chunker::end`]).
//!
//! A row is kept in one message where it fits. One that does not is cut between cells, and within a value only where that alone
//! is too large. The first chunk of each message names its row, if it is no piece of a value: one client (Python's) takes it for
//! a row out of order otherwise. Another one (Go's) takes no row that is cut, so for it a row is put together whole, as far as
//! there is memory for it ([`Chunker::whole_rows`]).
//!
//! Of a row that is cut no more is encoded than there is room for: what is left of a large value waits ([`Chunker::go_on`]).

use crate::filter::Cell;
use crate::reader::Cells;
use bytes::{BufMut, Bytes};
use prost::encoding::{encode_varint, encoded_len_varint};
use siltstone::Pinned;
use std::collections::VecDeque;
use std::sync::Arc;
use tonic::Status;

/// Bytes of a message, about, unless a single row takes more.
const MESSAGE_BYTES: usize = 512 << 10;
/// Bytes of a row that is kept in one message; clients take up to 4 MiB.
const ROW_BYTES: usize = 3 << 20;
/// Bytes of a chunk with a small value.
const CHUNK_BYTES: usize = 128;
/// Bytes of a piece of a value.
pub(crate) const PIECE_BYTES: usize = 1 << 20;
/// Bytes of a row that a client needs whole.
const WHOLE_ROW_BYTES: usize = 256 << 20;

/// Field `chunks` of `google.bigtable.v2.ReadRowsResponse`; it has a length.
const CHUNKS: u8 = key(1, true);

/// The key of a field on the wire; fields of numbers to 15 have one byte.
const fn key(number: u8, has_length: bool) -> u8 {
    number << 3 | if has_length { 2 } else { 0 }
}

/// Bytes of a field that has a length.
fn field_len(bytes: usize) -> usize {
    1 + encoded_len_varint(bytes as u64) + bytes
}

/// Bytes of a text or bytes that are left out where they are empty.
fn bytes_len(bytes: &[u8]) -> usize {
    if bytes.is_empty() { 0 } else { field_len(bytes.len()) }
}

fn put_head(number: u8, len: usize, out: &mut Vec<u8>) {
    out.push(key(number, true));
    encode_varint(len as u64, out);
}

fn put_bytes(number: u8, bytes: &[u8], out: &mut Vec<u8>) {
    if !bytes.is_empty() {
        put_head(number, bytes.len(), out);
        out.put_slice(bytes);
    }
}

fn put_number(number: u8, value: u64, out: &mut Vec<u8>) {
    if value != 0 {
        out.push(key(number, false));
        encode_varint(value, out);
    }
}

/// `google.bigtable.v2.ReadRowsResponse.CellChunk`, as it is encoded.
#[derive(Clone, Copy, Default)]
struct Chunk<'a> {
    row_key: &'a [u8],
    /// `google.protobuf.StringValue`.
    family_name: Option<&'a [u8]>,
    /// `google.protobuf.BytesValue`.
    qualifier: Option<&'a [u8]>,
    timestamp_micros: i64,
    labels: &'a [String],
    value: &'a [u8],
    value_size: usize,
}

impl Chunk<'_> {
    fn encoded_len(&self) -> usize {
        let number = |value: u64| if value == 0 { 0 } else { 1 + encoded_len_varint(value) };
        let name = |name: Option<&[u8]>| name.map_or(0, |name| field_len(bytes_len(name)));
        let labels: usize = self.labels.iter().map(|label| field_len(label.len())).sum();
        let names = name(self.family_name) + name(self.qualifier);
        let numbers = number(self.timestamp_micros.cast_unsigned()) + number(self.value_size as u64);
        bytes_len(self.row_key) + names + labels + bytes_len(self.value) + numbers
    }

    /// Appends it without its length.
    fn encode(&self, out: &mut Vec<u8>) {
        put_bytes(1, self.row_key, out);
        for (number, name) in [(2, self.family_name), (3, self.qualifier)] {
            if let Some(name) = name {
                put_head(number, bytes_len(name), out);
                put_bytes(1, name, out);
            }
        }
        put_number(4, self.timestamp_micros.cast_unsigned(), out);
        for label in self.labels {
            put_head(5, label.len(), out);
            out.put_slice(label.as_bytes());
        }
        put_bytes(6, self.value, out);
        put_number(7, self.value_size as u64, out);
    }
}

/// `commit_row`, true.
const COMMIT_ROW: [u8; 2] = [key(9, false), 1];

/// Rows that are put together whole, whatever their size.
struct Whole {
    /// Bytes of a row for which there is memory.
    room: usize,
    /// The next cells, for which there is none yet, and the bytes of the row with each.
    next: VecDeque<(Cell, usize)>,
}

/// Puts rows into messages.
#[derive(Default)]
pub(crate) struct Chunker {
    /// The message that is being filled.
    message: Vec<u8>,
    /// Bytes of the message before, as the next may be as long.
    usual: usize,
    full: Vec<Bytes>,
    row: Vec<u8>,
    /// Where the row begins in the message.
    begin: usize,
    /// Where the length of the row's last chunk lies in the message.
    last: Option<usize>,
    /// The family and the qualifier named last in the row.
    family: Option<Arc<str>>,
    qualifier: Vec<u8>,
    /// The row is too large for a message.
    is_cut: bool,
    /// A value that is in messages up to there.
    rest: Option<(Bytes, usize)>,
    /// No row is cut.
    whole: Option<Whole>,
}

impl Chunker {
    /// One that cuts no row.
    pub(crate) fn whole_rows() -> Self {
        Self { whole: Some(Whole { room: ROW_BYTES, next: VecDeque::new() }), ..Self::default() }
    }

    /// Adds a cell of the row. Returns whether there is no room for another now.
    pub(crate) fn add_cell(&mut self, cell: &Cell) -> bool {
        let Cell { family, qualifier, timestamp, value, labels } = cell;
        self.cell(family, qualifier, *timestamp, labels, value, || value.clone())
    }

    /// `keep` gives the value for later.
    fn cell(
        &mut self,
        family: &Arc<str>,
        qualifier: &[u8],
        timestamp_micros: i64,
        labels: &[String],
        value: &[u8],
        keep: impl FnOnce() -> Bytes,
    ) -> bool {
        let is_first = self.family.is_none();
        let new_family = self.family.as_ref() != Some(family);
        let new_qualifier = new_family || self.qualifier != qualifier;
        let mut chunk = Chunk { timestamp_micros, labels, value, ..Chunk::default() };
        if new_family {
            chunk.family_name = Some(family.as_bytes());
        }
        if new_qualifier {
            chunk.qualifier = Some(qualifier);
        }
        let row = std::mem::take(&mut self.row);
        if is_first {
            chunk.row_key = &row;
        }
        let bytes = chunk.encoded_len();
        let with_row = self.message.len() - self.begin + bytes;
        if with_row > ROW_BYTES && !self.is_cut && self.begin > 0 {
            self.cut_off_row();
        }
        if let Some(whole) = &mut self.whole
            && (with_row > whole.room || !whole.next.is_empty())
        {
            let (family, qualifier) = (family.clone(), Bytes::copy_from_slice(qualifier));
            let (timestamp, labels) = (timestamp_micros, labels.to_vec());
            whole.next.push_back((Cell { family, qualifier, timestamp, value: keep(), labels }, with_row));
            self.row = row;
            return true;
        }
        if new_family {
            self.family = Some(family.clone());
        }
        if new_qualifier {
            self.qualifier.clear();
            self.qualifier.extend_from_slice(qualifier);
        }
        if self.whole.is_none() && !self.is_cut && with_row > ROW_BYTES {
            self.finish_message();
            self.is_cut = true;
        }
        match self.is_cut {
            true => self.piece_by_piece(&row, chunk, bytes, keep),
            false => self.put(&chunk, bytes),
        }
        self.row = row;
        self.is_full()
    }

    /// Adds a cell of a row that takes several messages, or the first piece of its value.
    fn piece_by_piece<'a>(
        &mut self,
        row: &'a [u8],
        mut chunk: Chunk<'a>,
        bytes: usize,
        keep: impl FnOnce() -> Bytes,
    ) {
        if self.message.len() + bytes > PIECE_BYTES {
            self.finish_message();
        }
        if self.message.is_empty() {
            chunk.row_key = row;
        }
        if chunk.value.len() > PIECE_BYTES {
            chunk.value_size = chunk.value.len();
            chunk.value = &chunk.value[..PIECE_BYTES];
            self.put(&chunk, chunk.encoded_len());
            self.finish_message();
            self.rest = Some((keep(), PIECE_BYTES));
        } else {
            self.put(&chunk, chunk.encoded_len());
        }
    }

    /// Adds what waits: the next piece of a value, or cells for which there is room now.
    pub(crate) fn go_on(&mut self) {
        if let Some((value, at)) = self.rest.take() {
            let end = value.len().min(at + PIECE_BYTES);
            let is_last = end == value.len();
            let value_size = if is_last { 0 } else { value.len() };
            let piece = Chunk { value: &value[at..end], value_size, ..Chunk::default() };
            self.put(&piece, piece.encoded_len());
            if !is_last {
                self.finish_message();
                self.rest = Some((value, end));
            }
        }
        let next = self.whole.as_mut().map(|whole| std::mem::take(&mut whole.next));
        for (cell, _) in next.into_iter().flatten() {
            self.add_cell(&cell);
        }
    }

    /// Whether something waits.
    pub(crate) fn has_rest(&self) -> bool {
        self.rest.is_some() || self.whole.as_ref().is_some_and(|whole| !whole.next.is_empty())
    }

    /// How many bytes of memory more are needed before it can go on with the row; none as a rule.
    ///
    /// # Errors
    /// The row is larger than one that is put together may be.
    pub(crate) fn wants(&self) -> Result<usize, Status> {
        let Some(Whole { room, next }) = &self.whole else { return Ok(0) };
        match next.front() {
            None => Ok(0),
            Some((_, bytes)) if *bytes > WHOLE_ROW_BYTES => Err(too_large(WHOLE_ROW_BYTES)),
            Some((_, bytes)) => Ok(bytes.saturating_sub(*room)),
        }
    }

    /// There is memory for so many bytes more of the row.
    pub(crate) fn allow(&mut self, bytes: usize) {
        if let Some(whole) = &mut self.whole {
            whole.room += bytes;
        }
    }

    /// Bytes that wait, and are not in full messages.
    pub(crate) fn held(&self) -> usize {
        self.message.len() + self.rest.as_ref().map_or(0, |(value, at)| value.len() - at)
    }

    fn put(&mut self, chunk: &Chunk<'_>, bytes: usize) {
        let len = self.message.len();
        if self.message.capacity() == 0 {
            self.message.reserve(self.usual + CHUNK_BYTES);
        } else if len > ROW_BYTES && self.message.capacity() - len < bytes + CHUNK_BYTES {
            // Twice as much at a time would be a lot.
            self.message.reserve_exact((bytes + CHUNK_BYTES).max(len / 8));
        }
        self.message.push(CHUNKS);
        self.last = Some(self.message.len());
        encode_varint(bytes as u64, &mut self.message);
        chunk.encode(&mut self.message);
    }

    /// Ends the row: its last chunk commits it. Returns whether it has a cell.
    pub(crate) fn end(&mut self) -> bool {
        let Some(last) = self.last.take() else { return false };
        // The length again, which may take a byte more.
        let mut length = &self.message[last..];
        let bytes = prost::encoding::decode_varint(&mut length).unwrap_or(0);
        let at = self.message.len() - length.len();
        let mut head = [0; 10];
        let mut room = &mut head[..];
        encode_varint(bytes + COMMIT_ROW.len() as u64, &mut room);
        let used = 10 - room.len();
        match used == at - last {
            true => self.message[last..at].copy_from_slice(&head[..used]),
            false => drop(self.message.splice(last..at, head[..used].iter().copied())),
        }
        self.message.extend(COMMIT_ROW);
        if let Some(whole) = &mut self.whole {
            whole.room = ROW_BYTES;
        }
        if !self.is_cut && self.begin > 0 && self.message.len() > MESSAGE_BYTES {
            self.cut_off_row();
        }
        true
    }

    /// What lies before the row becomes a message of its own.
    fn cut_off_row(&mut self) {
        let row = self.message[self.begin..].to_vec();
        self.message.truncate(self.begin);
        self.finish_message();
        self.message = row;
    }

    fn finish_message(&mut self) {
        self.begin = 0;
        self.last = None;
        let mut message = std::mem::take(&mut self.message);
        if !message.is_empty() {
            self.usual = message.len().min(ROW_BYTES);
            // It may wait for a client for long.
            if message.capacity() - message.len() > message.len() / 8 {
                message.shrink_to_fit();
            }
            self.full.push(message.into());
        }
    }

    /// Whether there is enough for a message.
    pub(crate) fn is_full(&self) -> bool {
        !self.full.is_empty()
    }

    /// The messages that are full; what there is of a row that may still fit into one stays.
    pub(crate) fn take_full(&mut self) -> Vec<Bytes> {
        std::mem::take(&mut self.full)
    }

    /// All that there is, in messages, each a `google.bigtable.v2.ReadRowsResponse` as it is encoded.
    pub(crate) fn take(&mut self) -> Vec<Bytes> {
        self.finish_message();
        std::mem::take(&mut self.full)
    }
}

impl Cells for Chunker {
    fn begin(&mut self, row: &[u8]) {
        self.row.clear();
        self.row.extend_from_slice(row);
        (self.begin, self.last, self.family, self.is_cut) = (self.message.len(), None, None, false);
    }

    fn add(&mut self, family: &Arc<str>, qualifier: &[u8], timestamp: i64, value: &Pinned) -> bool {
        self.cell(family, qualifier, timestamp, &[], value, || Bytes::from_owner(value.clone()))
    }
}

/// What is said of a row for which a client would need more memory than it may take.
pub(crate) fn too_large(most: usize) -> Status {
    Status::failed_precondition(format!(
        "the row has over {most} bytes, and this client takes no row in several messages: read it in parts, by a filter"
    ))
}

#[cfg(any(test, feature = "testing"))]
impl Chunker {
    /// Adds a row that is there, if it has cells.
    pub(crate) fn row(&mut self, row: &[u8], cells: &[Cell]) {
        self.begin(row);
        for cell in cells {
            self.add_cell(cell);
            while self.has_rest() {
                self.go_on();
            }
        }
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::data::ReadRowsResponse;
    use crate::proto::data::read_rows_response::{CellChunk, cell_chunk::RowStatus};
    use prost::Message;

    /// What a client finds in the messages. It encodes them to the same bytes.
    fn read(messages: &[Bytes]) -> Vec<ReadRowsResponse> {
        let read = |message: &Bytes| {
            let read = ReadRowsResponse::decode(&message[..]).unwrap();
            assert_eq!(read.encode_to_vec(), message[..]);
            read
        };
        messages.iter().map(read).collect()
    }

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
        let cells = [cell("f", "a", 2, 1), cell("f", "a", 1, 1), cell("f", "b", 1, 1), cell("g", "b", 1, 1)];
        chunker.row(b"row", &cells);
        chunker.row(b"without cells", &[]);
        let message = read(&chunker.take()).remove(0);
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
        chunker.row(b"row", &[cell("f", "a", 1, 5 << 20), cell("f", "b", 1, 0)]);
        let messages = read(&chunker.take());
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
            (vec![n], cells)
        };
        let mut chunker = Chunker::default();
        let add = |chunker: &mut Chunker, (row, cells): (Vec<u8>, Vec<Cell>)| chunker.row(&row, &cells);
        for n in 1..=3 {
            add(&mut chunker, row(n, 100, 4 << 10));
        }
        let messages = read(&chunker.take());
        assert_eq!(messages.iter().map(|m| m.chunks.len()).collect::<Vec<_>>(), [100, 100, 100]);
        add(&mut chunker, row(4, 1_000, 10 << 10));
        add(&mut chunker, row(5, 1, 1));
        let messages = read(&chunker.take());
        assert!(messages.len() > 5 && messages.iter().all(|message| message.encoded_len() < 4 << 20));
        assert!(messages.iter().all(|message| !message.chunks[0].row_key.is_empty()));
        assert_eq!(messages.iter().map(|m| m.chunks.len()).sum::<usize>(), 1_001);
    }

    #[test]
    fn chunks_are_encoded_as_the_messages_of_the_api_are() {
        let lengths = [0, 1, 60, 61, 100, 110, 111, 112, 113, 127, 128, 129, 16_370, 16_383, 16_384, 1 << 20];
        let (mut chunker, mut all) = (Chunker::default(), Vec::new());
        for (n, len) in (0u8..).zip(lengths) {
            let labels = vec!["a".to_string(), "long-label".to_string()];
            let cells = [
                Cell { timestamp: 0, ..cell("fam\u{fc}", "", 0, len) },
                Cell { labels, ..cell("fam\u{fc}", "q", i64::MAX, 0) },
                Cell { timestamp: -5, ..cell("g", "q", 0, len) },
            ];
            let row = vec![n + 1; usize::from(n) * 20 + 1];
            chunker.row(&row, &cells);
            let chunk = |(at, cell): (usize, Cell)| CellChunk {
                row_key: if at == 0 { row.clone().into() } else { Bytes::new() },
                family_name: [Some("fam\u{fc}"), None, Some("g")][at].map(Into::into),
                qualifier: Some(cell.qualifier.to_vec()),
                timestamp_micros: cell.timestamp,
                labels: cell.labels,
                value: cell.value,
                value_size: 0,
                row_status: (at == 2).then_some(RowStatus::CommitRow(true)),
            };
            all.extend(cells.into_iter().enumerate().map(chunk));
        }
        let messages = read(&chunker.take());
        assert!(messages.len() > 1, "both values of the last row are large");
        assert_eq!(messages.into_iter().flat_map(|message| message.chunks).collect::<Vec<_>>(), all);
    }

    #[test]
    fn of_a_large_value_no_more_than_a_piece_is_encoded_at_a_time() {
        let mut chunker = Chunker::default();
        chunker.begin(b"row");
        assert!(chunker.add_cell(&cell("f", "a", 1, 50 << 20)));
        let mut messages = 0;
        while chunker.has_rest() {
            let full = chunker.take_full();
            assert!(full.iter().map(Bytes::len).sum::<usize>() < 2 << 20);
            messages += full.len();
            chunker.go_on();
        }
        chunker.end();
        assert!(messages > 45 && chunker.take().len() == 1);
    }

    #[test]
    fn a_row_that_is_needed_whole_waits_for_memory_and_comes_in_one_message() {
        let mut chunker = Chunker::whole_rows();
        chunker.row(b"a", &[cell("f", "a", 1, 1)]);
        chunker.begin(b"row");
        let mut wanted = 0;
        for n in 0..20 {
            if chunker.add_cell(&cell("f", &format!("q{n:02}"), 1, 1 << 20)) && chunker.has_rest() {
                let more = chunker.wants().unwrap();
                assert!(more > 0, "{n}");
                // With the row before, and what stands around each cell.
                assert!(chunker.held() <= ROW_BYTES + wanted + 1_000, "{n}: {}", chunker.held());
                wanted += more;
                chunker.allow(more);
                chunker.go_on();
                assert!(!chunker.has_rest());
            }
        }
        assert!(chunker.end() && (16 << 20..18 << 20).contains(&wanted), "{wanted}");
        let messages = read(&chunker.take());
        assert_eq!(messages.iter().map(|message| message.chunks.len()).collect::<Vec<_>>(), [1, 20]);
        chunker.begin(b"more");
        let huge = Cell { value: vec![0; WHOLE_ROW_BYTES].into(), ..cell("f", "q", 1, 0) };
        assert!(chunker.add_cell(&huge));
        assert_eq!(chunker.wants().unwrap_err().code(), tonic::Code::FailedPrecondition);
    }
}
