//! Comma-separated rows; quoting is the business of the crate `csv`.
//!
//! That crate takes a quote that is never closed for a very long field, and where a record begins it says
//! only roughly (not behind empty lines, not where lines end as on Windows). Both are mended by watching the
//! bytes go by: the place of each line end and each quote is kept until the record it lies in is read.

use super::{LINE_BYTES_MAX, Malformed, Row, parse_timestamp};
use crate::escape::BYTE_ORDER_MARK;
use csv::{ByteRecord, ReaderBuilder, Writer, WriterBuilder};
use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::rc::Rc;

pub(super) fn rows(input: impl Read) -> impl Iterator<Item = Result<(u64, Row), Malformed>> {
    let seen = Rc::new(RefCell::new(Seen::default()));
    let watched = Watched { input, seen: seen.clone() };
    let mut reader = ReaderBuilder::new().has_headers(false).flexible(true).from_reader(watched);
    let mut record = ByteRecord::new();
    std::iter::from_fn(move || {
        let read = reader.read_byte_record(&mut record);
        let (line_ends, quotes) = seen.borrow_mut().pass(reader.position().byte());
        let inside = record.iter().flatten().filter(|byte| **byte == b'\n').count() as u64;
        let unclosed = quotes % 2 == 1;
        // A field that was never closed swallowed the file's last line end.
        let swallowed = unclosed && record.iter().next_back().is_some_and(|field| field.ends_with(b"\n"));
        let line = 1 + (line_ends + u64::from(swallowed)).saturating_sub(inside);
        let row = match read {
            Ok(false) => return None,
            Ok(true) if unclosed => Err("a quote is not closed, or stands alone in a field".to_string()),
            Ok(true) => parse(&record),
            Err(e) => Err(format!("could not be read: {e}")),
        };
        Some(row.map(|row| (line, row)).map_err(|what| Malformed { line, what }))
    })
}

/// Passes bytes on and notes what stands where.
struct Watched<R> {
    input: R,
    seen: Rc<RefCell<Seen>>,
}

#[derive(Default)]
struct Seen {
    /// Bytes handed to the parser, and how many of them belong to records that are done.
    offset: u64,
    done: u64,
    /// Line ends and quotes that were handed on and lie in no record yet.
    marks: VecDeque<(u64, u8)>,
    line_ends: u64,
}

impl Seen {
    /// A record ends before `end`: the line ends before its last byte since the beginning, and the quotes in
    /// it.
    fn pass(&mut self, end: u64) -> (u64, u64) {
        let mut quotes = 0;
        while let Some((_, mark)) =
            self.marks.pop_front_if(|(at, mark)| *at + u64::from(*mark == b'\n') < end)
        {
            match mark {
                b'\n' => self.line_ends += 1,
                _ => quotes += 1,
            }
        }
        self.done = end;
        (self.line_ends, quotes)
    }
}
impl<R: Read> Read for Watched<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.input.read(buffer)?;
        let seen = &mut *self.seen.borrow_mut();
        for (i, byte) in buffer[..read].iter().enumerate() {
            if matches!(byte, b'\n' | b'"') {
                seen.marks.push_back((seen.offset + i as u64, *byte));
            }
        }
        seen.offset += read as u64;
        if seen.offset - seen.done > LINE_BYTES_MAX {
            return Err(io::Error::other("the row is longer than 1 GiB"));
        }
        Ok(read)
    }
}

fn parse(record: &ByteRecord) -> Result<Row, String> {
    let (Some(key), Some(value), 2 | 3) = (record.get(0), record.get(1), record.len()) else {
        let (n, s) = (record.len(), if record.len() == 1 { "" } else { "s" });
        return Err(format!("expected key and value, found {n} field{s}"));
    };
    let timestamp = record.get(2).map(parse_timestamp).transpose()?;
    Ok(Row { key: key.to_vec(), value: value.to_vec(), timestamp })
}

pub(super) fn writer<W: Write>(out: W) -> Writer<W> {
    WriterBuilder::new().flexible(true).from_writer(out)
}

pub(super) fn write<W: Write>(out: &mut Writer<W>, row: &Row, is_first: bool) -> io::Result<()> {
    let timestamp = row.timestamp.map(|timestamp| timestamp.to_string());
    let mut key = Cow::from(&row.key);
    // Readers skip one byte order mark, unless a quote stands before it.
    let is_quoted = row.key.iter().any(|byte| b",\"\r\n".contains(byte));
    if is_first && !is_quoted && row.key.starts_with(BYTE_ORDER_MARK) {
        key.to_mut().splice(..0, BYTE_ORDER_MARK.iter().copied());
    }
    let fields = [key.as_ref(), row.value.as_slice()];
    out.write_record(fields.into_iter().chain(timestamp.as_deref().map(str::as_bytes)))
        .map_err(io::Error::from)
}
