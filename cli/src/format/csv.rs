//! Comma-separated rows; quoting and line ends are the business of the crate `csv`.

use super::{Malformed, Row, parse_timestamp};
use csv::{ByteRecord, ReaderBuilder, Writer, WriterBuilder};
use std::io::{self, Read, Write};

pub(super) fn rows(input: impl Read) -> impl Iterator<Item = Result<(u64, Row), Malformed>> {
    let reader = ReaderBuilder::new().has_headers(false).flexible(true).from_reader(input);
    reader.into_byte_records().map(|record| match record {
        Err(e) => {
            let line = e.position().map_or(0, |position| position.line());
            Err(Malformed { line, what: format!("could not be read: {e}") })
        }
        Ok(record) => {
            let line = record.position().map_or(0, |position| position.line());
            parse(&record).map(|row| (line, row)).map_err(|what| Malformed { line, what })
        }
    })
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

pub(super) fn write<W: Write>(out: &mut Writer<W>, row: &Row) -> io::Result<()> {
    let timestamp = row.timestamp.map(|timestamp| timestamp.to_string());
    let fields = [row.key.as_slice(), row.value.as_slice()];
    out.write_record(fields.into_iter().chain(timestamp.as_deref().map(str::as_bytes)))
        .map_err(io::Error::from)
}
