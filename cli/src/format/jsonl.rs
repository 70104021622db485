//! One JSON object a line.

use super::Row;
use crate::escape::{unescape, unicode};
use serde::{Deserialize, Serialize};
use std::io::{self, Write};

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    key: String,
    value: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    timestamp: Option<u64>,
}

pub(super) fn parse(line: &[u8]) -> Result<Row, String> {
    let line: Line = serde_json::from_slice(line).map_err(|e| {
        // The reader's own line number is always 1.
        let text = e.to_string();
        let what = text.split(" at line ").next().unwrap_or(&text);
        format!("{what} (column {})", e.column())
    })?;
    let (key, value) = (unescape(line.key.as_bytes())?, unescape(line.value.as_bytes())?);
    Ok(Row { key, value, timestamp: line.timestamp })
}

pub(super) fn write(out: &mut impl Write, row: &Row) -> io::Result<()> {
    let line = Line { key: unicode(&row.key), value: unicode(&row.value), timestamp: row.timestamp };
    serde_json::to_writer(&mut *out, &line)?;
    writeln!(out)
}
