//! Key, tab, value; see the table in the folder's page.

use super::{Row, parse_timestamp};
use crate::escape::{printable, unescape};
use std::io::{self, Write};

pub(super) fn parse(line: &[u8]) -> Result<Row, String> {
    let mut fields = line.split(|byte| *byte == b'\t');
    let (Some(key), Some(value)) = (fields.next(), fields.next()) else {
        return Err("expected a tab between key and value".to_string());
    };
    let timestamp = fields.next().map(parse_timestamp).transpose()?;
    if fields.next().is_some() {
        return Err("more than three fields; a tab inside one is written \\t".to_string());
    }
    Ok(Row { key: unescape(key)?, value: unescape(value)?, timestamp })
}

pub(super) fn write(out: &mut impl Write, row: &Row) -> io::Result<()> {
    write!(out, "{}\t{}", printable(&row.key), printable(&row.value))?;
    match row.timestamp {
        None => writeln!(out),
        Some(timestamp) => writeln!(out, "\t{timestamp}"),
    }
}
