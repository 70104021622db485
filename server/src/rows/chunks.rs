//! Rows as the messages of ReadRows: cells in chunks, none of them and no message too large for clients.
//!
//! Chunks are encoded where a cell is read, straight from the memory it lies in, and never copied into any
//! other form: a scan would spend half its time on that. A row's last chunk is known to be the last only
//! after it, so the mark that commits the row is put in then ([`Chunker::end`]).
//!
//! A row that fits into a message of 4 MiB, which is what gRPC's clients take, is in one message. A larger
//! one is cut between cells, and within a value only where that alone does not fit. What the clients' readers
//! ask for:
//!
//! - All: the first chunk of a row names row, family and qualifier. A family comes with a qualifier. A key
//!   within a row is the row's. No piece of a value commits a row, but the last one.
//! - Go: each message ends with the end of a row, and a piece of a value names nothing. So no row is cut for
//!   it ([`Chunker::whole_rows`]).
//! - Python, both APIs: the first chunk of each message names its row, a piece of a value, too. Without a key
//!   it is taken for a row out of order, and a scan that is resumed behind such a row begins anew.
//! - Java, and HBase over it: further pieces of a value have neither family, qualifier, timestamp nor labels.
//!   All but the last one have the size of the value, and the first one has bytes.
//! - C++: adds up the labels of all pieces. Node, Ruby and PHP ask for nothing more.
//!
//! A chunk that names a family names its row, too. (The emulator's name both in each chunk, which would cost
//! a scan more.)
//!
//! The first messages of a scan are small, so that its first rows come soon.
//!
//! No more is encoded than there is room for: cells for which there is none wait ([`Chunker::wants`]), as
//! does what is left of a value that is cut ([`Chunker::go_on`]). Where there is no memory for a row in one
//! message it is cut ([`Chunker::cut`]).

use crate::cells::filter::Cell;
use crate::rows::row_cursor::Cells;
use bytes::{BufMut, Bytes};
use prost::encoding::{encode_varint, encoded_len_varint};
use siltstone::Pinned;
use std::collections::VecDeque;
use std::sync::Arc;
use tonic::Status;

/// Bytes of a message, unless a single row takes more.
const MESSAGE_BYTES: usize = 512 << 10;
/// Bytes of a message at the beginning of a scan, and how long that is.
const FIRST_MESSAGE_BYTES: usize = 64 << 10;
const FIRST_BYTES: usize = 512 << 10;
/// Bytes of a message that all clients take.
const MESSAGE_MAX: usize = 4 << 20;
/// Bytes of a value that is in one chunk, whatever the row.
const VALUE_BYTES: usize = 7 << 19;
/// Bytes that are put together before more memory is asked for.
pub(crate) const ROOM_BYTES: usize = 1 << 20;
/// Bytes of a piece of a value; with what names it there is room for it.
pub(crate) const PIECE_BYTES: usize = ROOM_BYTES - (64 << 10);
/// Bytes of a row that a client needs whole.
const WHOLE_ROW_BYTES: usize = 256 << 20;
/// Bytes of a chunk with a small value.
const CHUNK_BYTES: usize = 128;

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

/// Bytes of a chunk in its message, if it commits the row.
fn size_of(bytes: usize) -> usize {
    field_len(bytes + COMMIT_ROW.len())
}

/// Puts rows into messages.
#[derive(Default)]
pub(crate) struct Chunker {
    /// The message that is being filled.
    message: Vec<u8>,
    /// Bytes of the message before, as the next may be as long.
    usual: usize,
    full: Vec<Bytes>,
    full_bytes: usize,
    /// Bytes of all full messages of the scan.
    scanned_bytes: usize,
    row: Vec<u8>,
    /// The offset of the row in the message.
    begin: usize,
    /// The offset of the length of the row's last chunk in the message.
    last: Option<usize>,
    /// The family and the qualifier named last in the row.
    family: Option<Arc<str>>,
    qualifier: Vec<u8>,
    /// The row is too large for a message, or for the memory that there is.
    is_cut: bool,
    lacks_memory: bool,
    /// A value that is in messages up to there.
    rest: Option<(Bytes, usize)>,
    /// The next cells, for which there is no room yet, and the bytes of each.
    next: VecDeque<(Cell, usize)>,
    /// Bytes for which there is memory beyond [`ROOM_BYTES`].
    more_room: usize,
    /// No row is cut.
    whole_rows: bool,
}

impl Chunker {
    /// One that cuts no row.
    pub(crate) fn whole_rows() -> Self {
        Self { whole_rows: true, ..Self::default() }
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
        timestamp: i64,
        labels: &[String],
        value: &[u8],
        keep: impl FnOnce() -> Bytes,
    ) -> bool {
        let new_family = self.family.as_ref() != Some(family);
        let new_qualifier = new_family || self.qualifier != qualifier;
        let mut chunk = Chunk { timestamp_micros: timestamp, labels, value, ..Chunk::default() };
        let row = std::mem::take(&mut self.row);
        if new_family {
            chunk.row_key = &row;
            chunk.family_name = Some(family.as_bytes());
        }
        if new_qualifier {
            chunk.qualifier = Some(qualifier);
        }
        let others_wait = self.has_rest();
        let bytes = match others_wait {
            true => chunk.encoded_len(),
            false => self.fit(&mut chunk, &row),
        };
        let with = self.full_bytes + self.message.len() + size_of(bytes);
        if others_wait || with > ROOM_BYTES + self.more_room {
            let (family, qualifier) = (family.clone(), Bytes::copy_from_slice(qualifier));
            let cell = Cell { family, qualifier, timestamp, value: keep(), labels: labels.to_vec() };
            self.next.push_back((cell, size_of(bytes)));
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
        self.put(&chunk, bytes);
        if chunk.value_size > 0 {
            self.finish_message();
            self.rest = Some((keep(), PIECE_BYTES));
        }
        self.row = row;
        self.is_full()
    }

    /// Ends the message where the chunk does not fit into it, and cuts the row and the value where it must
    /// be. Returns the chunk's bytes.
    fn fit<'a>(&mut self, chunk: &mut Chunk<'a>, row: &'a [u8]) -> usize {
        let bytes = chunk.encoded_len();
        if self.begin > 0 && self.message.len() + size_of(bytes) > self.message_bytes() {
            self.cut_off_row();
        }
        if !self.is_cut {
            if self.whole_rows || self.message.len() + size_of(bytes) <= MESSAGE_MAX {
                return bytes;
            }
            self.finish_message();
            self.is_cut = true;
        }
        if self.message.len() + size_of(bytes) > PIECE_BYTES {
            self.finish_message();
        }
        if self.message.is_empty() {
            chunk.row_key = row;
        }
        let (value, most) = (chunk.value, if self.lacks_memory { PIECE_BYTES } else { VALUE_BYTES });
        if value.len() > most {
            chunk.value_size = value.len();
            chunk.value = &value[..PIECE_BYTES];
        }
        chunk.encoded_len()
    }

    /// Adds what waits: the next piece of a value, or cells for which there is room now.
    pub(crate) fn go_on(&mut self) {
        if let Some((value, at)) = self.rest.take() {
            let end = value.len().min(at + PIECE_BYTES);
            let value_size = if end == value.len() { 0 } else { value.len() };
            let row = std::mem::take(&mut self.row);
            let piece = Chunk { row_key: &row, value: &value[at..end], value_size, ..Chunk::default() };
            self.put(&piece, piece.encoded_len());
            self.row = row;
            if value_size > 0 {
                self.finish_message();
                self.rest = Some((value, end));
                return;
            }
        }
        for (cell, _) in std::mem::take(&mut self.next) {
            self.add_cell(&cell);
        }
    }

    /// Whether something waits.
    pub(crate) fn has_rest(&self) -> bool {
        self.rest.is_some() || !self.next.is_empty()
    }

    /// How many bytes of memory more are needed before it can go on with the row; none as a rule.
    ///
    /// # Errors
    /// The row is larger than one that is put together may be.
    pub(crate) fn wants(&self) -> Result<usize, Status> {
        let Some((_, size)) = self.next.front() else { return Ok(0) };
        // These go first.
        if self.rest.is_some() || !self.full.is_empty() {
            return Ok(0);
        }
        let bytes = self.message.len() + size;
        match self.whole_rows && bytes > WHOLE_ROW_BYTES {
            true => Err(too_large(WHOLE_ROW_BYTES)),
            false => Ok(bytes.saturating_sub(ROOM_BYTES + self.more_room)),
        }
    }

    /// There is memory for so many bytes more of the row.
    pub(crate) fn allow(&mut self, bytes: usize) {
        self.more_room += bytes;
    }

    /// Whether a row is needed whole.
    pub(crate) fn needs_whole_rows(&self) -> bool {
        self.whole_rows
    }

    /// Cuts the row, which is not needed whole, as there is no memory for more of it at once.
    pub(crate) fn cut(&mut self) {
        self.finish_message();
        (self.is_cut, self.lacks_memory) = (true, true);
        self.go_on();
    }

    /// Bytes that wait, and are not in full messages.
    pub(crate) fn held(&self) -> usize {
        let next = self.next.iter().map(|(cell, _)| cell.value.len()).sum::<usize>();
        self.message.len() + next + self.rest.as_ref().map_or(0, |(value, at)| value.len() - at)
    }

    fn put(&mut self, chunk: &Chunk<'_>, bytes: usize) {
        let len = self.message.len();
        if self.message.capacity() == 0 {
            self.message.reserve(self.usual + CHUNK_BYTES);
        } else if len > MESSAGE_MAX / 4 * 3 && self.message.capacity() - len < bytes + CHUNK_BYTES {
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
        if self.message.len() >= self.message_bytes() {
            self.finish_message();
        }
        true
    }

    /// Bytes of the message, unless its row takes more.
    fn message_bytes(&self) -> usize {
        if self.scanned_bytes < FIRST_BYTES { FIRST_MESSAGE_BYTES } else { MESSAGE_BYTES }
    }

    /// The bytes before the row become a message of their own.
    fn cut_off_row(&mut self) {
        let row = &self.message[self.begin..];
        // The next message may be as long.
        let mut next = Vec::with_capacity(self.begin.max(row.len()) + CHUNK_BYTES);
        next.extend_from_slice(row);
        self.message.truncate(self.begin);
        self.finish_message();
        self.message = next;
    }

    fn finish_message(&mut self) {
        self.begin = 0;
        self.last = None;
        let mut message = std::mem::take(&mut self.message);
        if !message.is_empty() {
            self.usual = message.len().min(MESSAGE_BYTES);
            self.full_bytes += message.len();
            self.scanned_bytes += message.len();
            // It may wait for a client for long.
            if message.capacity() - message.len() > message.len() / 8 {
                message.shrink_to_fit();
            }
            self.full.push(message.into());
        }
    }

    /// Whether there is enough to send, or no room for more until it was sent.
    pub(crate) fn is_full(&self) -> bool {
        self.full_bytes >= MESSAGE_BYTES || !(self.full.is_empty() || self.next.is_empty())
    }

    /// Messages that are full.
    pub(crate) fn full_messages(&self) -> usize {
        self.full.len()
    }

    /// The messages that are full; what there is of the next one stays.
    pub(crate) fn take_full(&mut self) -> Vec<Bytes> {
        if !self.full.is_empty() {
            (self.full_bytes, self.more_room) = (0, 0);
        }
        std::mem::take(&mut self.full)
    }

    /// All that there is, in messages, each a `google.bigtable.v2.ReadRowsResponse` as it is encoded.
    pub(crate) fn take(&mut self) -> Vec<Bytes> {
        self.finish_message();
        self.take_full()
    }
}

impl Cells for Chunker {
    fn begin(&mut self, row: &[u8]) {
        self.row.clear();
        self.row.extend_from_slice(row);
        (self.begin, self.last, self.family) = (self.message.len(), None, None);
        (self.is_cut, self.lacks_memory) = (false, false);
    }

    fn add(&mut self, family: &Arc<str>, qualifier: &[u8], timestamp: i64, value: &Pinned) -> bool {
        self.cell(family, qualifier, timestamp, &[], value, || Bytes::from_owner(value.clone()))
    }
}

/// The error of a row that would need more memory in the client than it may take.
pub(crate) fn too_large(most: usize) -> Status {
    Status::failed_precondition(format!(
        "the row has over {most} bytes, and this client takes no row in several messages: read it in parts, by a filter"
    ))
}

#[cfg(any(test, feature = "testing"))]
impl Chunker {
    /// Adds a complete row, if it has cells.
    pub(crate) fn row(&mut self, row: &[u8], cells: &[Cell]) {
        self.begin(row);
        for cell in cells {
            self.add_cell(cell);
            while self.has_rest() {
                self.more_room = 1 << 40;
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

    /// A client's decoding of the messages, which it encodes to the same bytes again.
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
                (3, true, true, true)
            ]
        );
        assert!(chunker.take().is_empty());
    }

    /// A row's key and its cells: family, qualifier and bytes of the value.
    type Told = (Bytes, Vec<(String, Vec<u8>, usize)>);

    /// Rows as the readers of clients find them, which must accept all, and how many messages each takes.
    fn accepted(messages: &[Bytes]) -> (Vec<Told>, Vec<usize>) {
        let (mut rows, mut parts): (Vec<Told>, Vec<usize>) = Default::default();
        let (mut in_row, mut family, mut qualifier, mut left) = (false, String::new(), Vec::new(), None);
        for message in read(messages) {
            assert!(message.encoded_len() <= MESSAGE_MAX && !message.chunks[0].row_key.is_empty());
            if in_row {
                *parts.last_mut().unwrap() += 1;
            }
            for chunk in message.chunks {
                if !in_row {
                    assert!(chunk.family_name.is_some() && chunk.qualifier.is_some());
                    assert!(rows.last().is_none_or(|(row, _)| *row < chunk.row_key));
                    rows.push((chunk.row_key.clone(), Vec::new()));
                    parts.push(1);
                    in_row = true;
                }
                let (row, cells) = rows.last_mut().unwrap();
                assert!(chunk.row_key.is_empty() || chunk.row_key == *row);
                assert!(chunk.family_name.is_none() || chunk.qualifier.is_some());
                let value_size = usize::try_from(chunk.value_size).unwrap();
                if let Some((size, bytes)) = left.take() {
                    assert!(
                        chunk.qualifier.is_none() && chunk.timestamp_micros == 0 && chunk.labels.is_empty()
                    );
                    assert!(value_size == 0 || value_size == size);
                    let bytes: usize = bytes + chunk.value.len();
                    assert!(value_size > 0 || bytes == size);
                    cells.last_mut().unwrap().2 = bytes;
                    left = (value_size > 0).then_some((size, bytes));
                } else {
                    family = chunk.family_name.unwrap_or(family);
                    qualifier = chunk.qualifier.unwrap_or(qualifier);
                    cells.push((family.clone(), qualifier.clone(), chunk.value.len()));
                    assert!(value_size == 0 || !chunk.value.is_empty());
                    left = (value_size > 0).then_some((value_size, chunk.value.len()));
                }
                if chunk.row_status.is_some() {
                    assert!(left.is_none());
                    in_row = false;
                }
            }
        }
        assert!(!in_row);
        (rows, parts)
    }

    /// Rows of so many cells of so many bytes, between small ones.
    fn rows_of(sizes: &[(usize, usize)]) -> Vec<(Bytes, Vec<Cell>)> {
        let row = |n: u8, cells: usize, bytes: usize| {
            let cell = |at: usize| cell(["f", "g"][at * 2 / cells], &format!("q{at:06}"), 1, bytes);
            (Bytes::from(vec![n]), (0..cells).map(cell).collect())
        };
        let rows = (1u8..).step_by(2).zip(sizes);
        rows.flat_map(|(n, (cells, bytes))| [row(n, 1, 10), row(n + 1, *cells, *bytes)]).collect()
    }

    /// What was put in.
    fn told(rows: &[(Bytes, Vec<Cell>)]) -> Vec<Told> {
        let cell = |cell: &Cell| (cell.family.to_string(), cell.qualifier.to_vec(), cell.value.len());
        rows.iter().map(|(row, cells)| (row.clone(), cells.iter().map(cell).collect())).collect()
    }

    #[test]
    fn rows_of_one_to_64_mebibytes_are_cut_only_where_they_do_not_fit_a_message() {
        let sizes = [
            (1, 1 << 20),
            (4, 900 << 10),
            (30_000, 100),
            (1, (4 << 20) - 100),
            (2, 1990 << 10),
            (3, 1500 << 10),
            (2, VALUE_BYTES),
            (1, 5 << 20),
            (100_000, 40),
            (1_000, 64 << 10),
            (1, 64 << 20),
        ];
        let rows = rows_of(&sizes);
        let mut chunker = Chunker::default();
        rows.iter().for_each(|(row, cells)| chunker.row(row, cells));
        let messages = chunker.take();
        let (found, parts) = accepted(&messages);
        assert!(found == told(&rows));
        let parts: Vec<_> = parts.into_iter().skip(1).step_by(2).collect();
        assert_eq!(parts[..5], [1; 5]);
        assert!(parts[5..].iter().all(|messages| *messages > 1), "{parts:?}");
        // Only values that are larger are cut.
        let chunks = read(&messages).into_iter().flat_map(|message| message.chunks);
        let cut: Vec<_> = chunks.map(|chunk| chunk.value_size).filter(|bytes| *bytes > 0).collect();
        assert!(!cut.is_empty() && cut.iter().all(|bytes| *bytes >= 5 << 20), "{cut:?}");
    }

    #[test]
    fn a_row_of_a_byte_more_than_a_message_has_is_cut() {
        for (more, expected) in [(0, 1), (1, 2)] {
            let mut chunker = Chunker::default();
            let first = cell("f", "a", 1, 1 << 20);
            chunker.row(b"row", &[first.clone(), cell("f", "b", 1, 1 << 20)]);
            let around = chunker.take()[0].len() - (2 << 20);
            // The length of a larger value takes a byte more, and that of its chunk.
            let second = cell("f", "b", 1, MESSAGE_MAX - (1 << 20) - around + more - 2);
            chunker.row(b"row", &[first, second]);
            let messages = chunker.take();
            assert_eq!(messages.len(), expected, "{more}: {:?}", messages[0].len());
        }
    }

    #[test]
    fn a_row_for_which_there_is_no_memory_is_cut_and_no_more_is_put_together() {
        let rows = rows_of(&[(1, 3 << 20), (40, 200 << 10), (1, ROOM_BYTES), (1, 20 << 20)]);
        let (mut chunker, mut messages) = (Chunker::default(), Vec::new());
        let mut make_room = |chunker: &mut Chunker| {
            while chunker.has_rest() || chunker.is_full() {
                let full = chunker.take_full();
                let bytes: usize = full.iter().map(Bytes::len).sum();
                assert!(bytes + chunker.message.len() <= ROOM_BYTES, "{bytes}");
                messages.extend(full);
                match chunker.wants().unwrap() {
                    0 => chunker.go_on(),
                    _ => chunker.cut(),
                }
            }
        };
        for (row, cells) in &rows {
            chunker.begin(row);
            for cell in cells {
                chunker.add_cell(cell);
                make_room(&mut chunker);
            }
            chunker.end();
            make_room(&mut chunker);
        }
        messages.extend(chunker.take());
        assert!(accepted(&messages).0 == told(&rows));
    }

    #[test]
    fn the_first_messages_of_a_scan_are_small() {
        let mut chunker = Chunker::default();
        for n in 0..5_000u32 {
            chunker.row(&n.to_be_bytes(), &[cell("f", "q", 1, 1 << 10)]);
        }
        let sizes: Vec<_> = chunker.take().iter().map(Bytes::len).collect();
        let early = sizes.iter().take_while(|bytes| **bytes <= FIRST_MESSAGE_BYTES).count();
        assert!(
            (FIRST_BYTES..FIRST_BYTES + FIRST_MESSAGE_BYTES).contains(&sizes[..early].iter().sum::<usize>())
        );
        let (_, late) = sizes[early..].split_last().unwrap();
        let is_large = |bytes: &usize| (MESSAGE_BYTES - (2 << 10)..=MESSAGE_BYTES).contains(bytes);
        assert!(late.len() > 5 && late.iter().all(is_large), "{sizes:?}");
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
        assert!(messages.len() > 5 && messages.iter().all(|message| message.encoded_len() <= MESSAGE_MAX));
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
                row_key: if at == 1 { Bytes::new() } else { row.clone().into() },
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
        assert!(messages.len() > 1);
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
    fn a_value_that_waits_for_its_message_counts() {
        let mut chunker = Chunker::default();
        chunker.begin(b"row");
        for n in 0..9 {
            chunker.add_cell(&cell("f", &format!("q{n}"), 1, 100 << 10));
        }
        chunker.add_cell(&cell("f", "r", 1, 50 << 20));
        let full = chunker.take_full().iter().map(Bytes::len).sum::<usize>();
        assert!(full + chunker.held() > 50 << 20, "{full} and {}", chunker.held());
    }

    #[test]
    fn a_row_that_is_needed_whole_waits_for_memory_and_comes_in_one_message() {
        let mut chunker = Chunker::whole_rows();
        chunker.row(b"a", &[cell("f", "a", 1, 1)]);
        chunker.begin(b"row");
        let (mut wanted, mut messages) = (0, Vec::new());
        for n in 0..20 {
            chunker.add_cell(&cell("f", &format!("q{n:02}"), 1, 1 << 20));
            while chunker.has_rest() {
                messages.extend(chunker.take_full());
                let more = chunker.wants().unwrap();
                assert!(chunker.held() <= ROOM_BYTES + wanted + (1 << 20), "{n}: {}", chunker.held());
                wanted += more;
                chunker.allow(more);
                chunker.go_on();
            }
        }
        assert!(chunker.end() && (19 << 20..20 << 20).contains(&wanted), "{wanted}");
        messages.extend(chunker.take());
        let messages = read(&messages);
        assert_eq!(messages.iter().map(|message| message.chunks.len()).collect::<Vec<_>>(), [1, 20]);
        chunker.begin(b"more");
        let huge = Cell { value: vec![0; WHOLE_ROW_BYTES].into(), ..cell("f", "q", 1, 0) };
        assert!(chunker.add_cell(&huge));
        assert_eq!(chunker.wants().unwrap_err().code(), tonic::Code::FailedPrecondition);
    }
}
