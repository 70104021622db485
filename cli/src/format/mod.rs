//! Rows in files: tsv, csv, jsonl, read and written with bounded memory.
//!
//! | format | a row | bytes that are not plain text |
//! |---|---|---|
//! | tsv | key, tab, value, newline | `\t`, `\n`, `\\`, `\xNN` |
//! | csv | key, comma, value; quoted where needed (RFC 4180), no heading | as they are |
//! | jsonl | `{"key": "..", "value": ".."}` | in the string: `\\` for a backslash, `\xNN` for what is not UTF-8 (then JSON's own escapes) |
//!
//! Rows of families with explicit timestamps have a third field (`"timestamp"`), microseconds since the epoch
//! or whatever the application counts. Nothing here knows a database.

mod csv;
mod jsonl;
mod tsv;

use crate::escape::BYTE_ORDER_MARK;
use crate::failure::{Failure, Outcome};
use clap::ValueEnum;
use std::io::{self, BufRead, Write};
use std::path::Path;

/// A key with its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) key: Vec<u8>,
    pub(crate) value: Vec<u8>,
    pub(crate) timestamp: Option<u64>,
}

/// A line that is not a row, or could not be read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Malformed {
    /// From 1.
    pub(crate) line: u64,
    pub(crate) what: String,
}

/// Rows with the line each begins in. Ends at the first malformed one.
pub(crate) type Rows<'a> = Box<dyn Iterator<Item = Result<(u64, Row), Malformed>> + 'a>;

/// How rows are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Key, tab, value
    Tsv,
    /// Key, comma, value
    Csv,
    /// One JSON object a line
    Jsonl,
}

impl Format {
    /// The one asked for, or the one the file's name ends in.
    pub(crate) fn choose(asked: Option<Format>, file: &Path) -> Outcome<Format> {
        let end = file.extension().and_then(|end| end.to_str()).unwrap_or_default();
        let guessed = match end.to_ascii_lowercase().as_str() {
            "tsv" => Some(Format::Tsv),
            "csv" => Some(Format::Csv),
            "jsonl" | "ndjson" => Some(Format::Jsonl),
            _ => None,
        };
        asked.or(guessed).ok_or_else(|| {
            let file = file.display();
            Failure::Usage(format!(
                "which format has {file}? its name does not tell; use --format tsv, csv or jsonl"
            ))
        })
    }

    /// The rows of a file.
    pub(crate) fn rows<'a>(self, input: impl BufRead + 'a) -> Rows<'a> {
        match self {
            Format::Tsv => Box::new(until_error(texts(input).map(|line| parse(line?, tsv::parse)))),
            Format::Csv => Box::new(until_error(csv::rows(input))),
            Format::Jsonl => Box::new(until_error(texts(input).map(|line| parse(line?, jsonl::parse)))),
        }
    }

    /// A writer of rows.
    pub(crate) fn writer<W: Write>(self, out: W) -> RowWriter<W> {
        match self {
            Format::Tsv => RowWriter::Tsv(out),
            Format::Csv => RowWriter::Csv { out: Box::new(csv::writer(out)), is_first: true },
            Format::Jsonl => RowWriter::Jsonl(out),
        }
    }
}

/// Writes rows; [`RowWriter::finish`] ends it.
pub(crate) enum RowWriter<W: Write> {
    Tsv(W),
    Csv { out: Box<::csv::Writer<W>>, is_first: bool },
    Jsonl(W),
}

impl<W: Write> RowWriter<W> {
    pub(crate) fn write(&mut self, row: &Row) -> io::Result<()> {
        match self {
            RowWriter::Tsv(out) => tsv::write(out, row),
            RowWriter::Csv { out, is_first } => csv::write(out, row, std::mem::take(is_first)),
            RowWriter::Jsonl(out) => jsonl::write(out, row),
        }
    }

    /// Hands what is buffered on.
    pub(crate) fn finish(self) -> io::Result<()> {
        match self {
            RowWriter::Tsv(mut out) | RowWriter::Jsonl(mut out) => out.flush(),
            RowWriter::Csv { mut out, .. } => out.flush(),
        }
    }
}

fn parse(line: (u64, Vec<u8>), parser: fn(&[u8]) -> Result<Row, String>) -> Result<(u64, Row), Malformed> {
    let (number, bytes) = line;
    parser(&bytes).map(|row| (number, row)).map_err(|what| Malformed { line: number, what })
}

/// A line that never ends must not take all memory.
const LINE_BYTES_MAX: u64 = 1 << 30;

/// The lines that hold something, without a byte order mark. (The crate `csv` skips both, too.)
fn texts(input: impl BufRead) -> impl Iterator<Item = Result<(u64, Vec<u8>), Malformed>> {
    let without_mark = |item: Result<(u64, Vec<u8>), Malformed>| {
        item.map(|(number, mut line)| {
            if number == 1 && line.starts_with(BYTE_ORDER_MARK) {
                line.drain(..BYTE_ORDER_MARK.len());
            }
            (number, line)
        })
    };
    let is_text =
        |item: &Result<(u64, Vec<u8>), Malformed>| !matches!(item, Ok((_, line)) if line.is_empty());
    lines(input).map(without_mark).filter(is_text)
}

/// Lines without their ends (`\n` or `\r\n`), numbered from 1.
fn lines(mut input: impl BufRead) -> impl Iterator<Item = Result<(u64, Vec<u8>), Malformed>> {
    let mut number = 0;
    std::iter::from_fn(move || {
        number += 1;
        let mut line = Vec::new();
        let failed = |what: String| Some(Err(Malformed { line: number, what }));
        match io::Read::take(&mut input, LINE_BYTES_MAX + 1).read_until(b'\n', &mut line) {
            Err(e) => return failed(format!("could not be read: {e}")),
            Ok(0) => return None,
            Ok(length) if length as u64 > LINE_BYTES_MAX => {
                return failed("is longer than 1 GiB".to_string());
            }
            Ok(_) => {}
        }
        if line.pop_if(|end| *end == b'\n').is_some() {
            line.pop_if(|end| *end == b'\r');
        }
        Some(Ok((number, line)))
    })
}

fn until_error<T, E>(items: impl Iterator<Item = Result<T, E>>) -> impl Iterator<Item = Result<T, E>> {
    let mut failed = false;
    items.take_while(move |item| !std::mem::replace(&mut failed, item.is_err()))
}

/// A third field.
fn parse_timestamp(text: &[u8]) -> Result<u64, String> {
    let number = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
    number.ok_or_else(|| format!("expected a timestamp as third field, found `{}`", text.escape_ascii()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(key: &[u8], value: &[u8]) -> Row {
        Row { key: key.to_vec(), value: value.to_vec(), timestamp: None }
    }

    fn read(format: Format, text: &[u8]) -> Result<Vec<(u64, Row)>, Malformed> {
        format.rows(text).collect()
    }

    #[test]
    fn every_format_gives_back_every_row() {
        let all: Vec<u8> = (0..=255).collect();
        let mut rows =
            vec![row(&all, &all), row(b"", b""), row(b"k", b""), row(b"", b"v"), row(b"\"", b"a,\"b\"\r\n")];
        rows.push(row("größe".as_bytes(), b"\\x41\\"));
        rows.push(Row { timestamp: Some(u64::MAX), ..row(b"k", b"v") });
        rows.push(row(b"last\r", b"ends in \r"));
        rows.push(row(b"\xef\xbb\xbfmarked", b"\xef\xbb\xbf"));
        for format in [Format::Tsv, Format::Csv, Format::Jsonl].repeat(2) {
            // Once with each of the ends first.
            rows.reverse();
            let mut text = Vec::new();
            let mut writer = format.writer(&mut text);
            rows.iter().for_each(|row| writer.write(row).unwrap());
            writer.finish().unwrap();
            let found: Vec<Row> = read(format, &text).unwrap().into_iter().map(|(_, row)| row).collect();
            assert_eq!(found, rows, "{format:?}: {}", text.escape_ascii());
        }
    }

    #[test]
    fn a_malformed_line_gives_its_number_and_ends_the_rows() {
        for (format, text, line, what) in [
            (Format::Tsv, "a\tb\nno tab\nc\td\n", 2, "expected a tab"),
            (Format::Tsv, "a\tb\n\na\tb\r\n\r\n\nab", 6, "expected a tab"),
            (Format::Tsv, "a\tb\\q\n", 1, "unknown escape"),
            (Format::Tsv, "a\tb\tc\n", 1, "timestamp"),
            (Format::Tsv, "a\tb\t1\t2\n", 1, "more than three"),
            (Format::Csv, "a,b\n\"c\nc\",d\ne\n", 4, "found 1 field"),
            (Format::Csv, "a,b,c,d\n", 1, "found 4 fields"),
            (Format::Csv, "a,b\r\n\r\nc,d\r\n\n\ne\r\n", 6, "found 1 field"),
            (Format::Csv, "a,b\n\"c\n\nc,d\ne,f\n", 2, "a quote is not closed"),
            (Format::Csv, "a,b\nc\"c,d\ne,f\n", 2, "a quote is not closed"),
            (Format::Csv, "a,b\n\"c\n\"\"\r\n\",\"\"\"\"\ne\n", 5, "found 1 field"),
            (Format::Jsonl, "{\"key\":\"a\",\"value\":\"b\"}\n{\"key\":\"a\"}\n", 2, "missing field `value`"),
            (Format::Jsonl, "{\"key\":\"a\",\"value\":\"b\",\"x\":1}", 1, "unknown field `x`"),
            (Format::Jsonl, "{\"key\":\"\\\\q\",\"value\":\"b\"}", 1, "unknown escape"),
            (Format::Jsonl, "\n{", 2, "EOF"),
        ] {
            let mut rows = format.rows(text.as_bytes());
            let error = rows.find_map(Result::err).unwrap();
            assert!(error.line == line && error.what.contains(what), "{format:?} {text:?}: {error:?}");
            assert!(rows.next().is_none());
        }
    }

    #[test]
    fn a_byte_order_mark_and_empty_lines_are_skipped() {
        let mark = std::str::from_utf8(BYTE_ORDER_MARK).unwrap();
        for (format, text) in [
            (Format::Tsv, "\n\r\na\t1\n\nb\t2\n\n"),
            (Format::Csv, "\n\r\na,1\n\nb,2\n\n"),
            (Format::Jsonl, "\n\r\n{\"key\":\"a\",\"value\":\"1\"}\n\n{\"key\":\"b\",\"value\":\"2\"}\n\n"),
        ] {
            for text in [text.to_string(), format!("{mark}{text}"), format!("{mark}{}", text.trim_start())] {
                let rows = read(format, text.as_bytes()).unwrap().into_iter().map(|(_, row)| row);
                assert_eq!(rows.collect::<Vec<_>>(), [row(b"a", b"1"), row(b"b", b"2")], "{text:?}");
            }
        }
    }

    #[test]
    fn lines_may_end_as_on_windows_or_not_at_all() {
        let expected = vec![(1, row(b"a", b"1")), (2, row(b"b", b"2"))];
        assert_eq!(read(Format::Tsv, b"a\t1\r\nb\t2"), Ok(expected.clone()));
        assert_eq!(read(Format::Csv, b"a,1\r\nb,2"), Ok(expected));
    }

    #[test]
    fn the_format_follows_from_the_name_unless_given() {
        let choose = |asked, file: &str| Format::choose(asked, Path::new(file)).ok();
        assert_eq!(choose(None, "x/rows.TSV"), Some(Format::Tsv));
        assert_eq!(choose(None, "rows.jsonl"), Some(Format::Jsonl));
        assert_eq!(choose(Some(Format::Csv), "rows.tsv"), Some(Format::Csv));
        assert_eq!((choose(None, "-"), choose(None, "rows.txt")), (None, None));
    }
}
