//! A shape as text, for people and for tests that are stories:
//!
//! ```text
//! L0 #7: 12:[a,m) 64M, 13:[m,..) 64M tomb 20000
//! L5 #3: 4:[a,c) 32M clip b 10M, 5:[c,f) 64M
//! ```
//!
//! One run per line, newest data first. An SSTable is its name (epoch and job only where they are not zero),
//! the keys it covers (`..` for no end), its size, then what differs from a plain SSTable: `clip KEY BYTES`,
//! `cells N`, `tomb N`, `rtomb N`, `distinct N`. In keys, bytes other than letters, digits, `-` and `_` are
//! `\xNN`. When parsing, a missing name is numbered by position, and missing cells are one per kilobyte, all
//! distinct. Times, sequence numbers and the SSTable's identity are not part of the text.

use super::{Clip, Level, Run, Shape, TABLE_COUNT_MAX, TableInfo};
use crate::types::{KeyRange, StoreId, TableId, parse_size};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// The cells of an SSTable whose text has none: one per kilobyte.
fn plain_cells(bytes: u64) -> u64 {
    bytes.div_ceil(1024)
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (level, run) in self.runs() {
            write!(f, "L{level} #{}:", run.id)?;
            for (i, table) in run.tables().iter().enumerate() {
                f.write_str(if i == 0 { " " } else { ", " })?;
                table.fmt(f)?;
            }
            f.write_str("\n")?;
        }
        Ok(())
    }
}

impl fmt::Display for TableInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.id {
            TableId { store: StoreId::ZERO, epoch: 0, job: 0, part } => write!(f, "{part}")?,
            id => write!(f, "{id}")?,
        }
        write!(f, ":{} {}", range_text(&self.range), exact(self.bytes))?;
        if let Some(clip) = &self.clip {
            write!(f, " clip {} {}", key_text(&clip.key), exact(clip.bytes_below))?;
        }
        if let Some(above) = self.above {
            write!(f, " above {}", exact(above))?;
        }
        if self.cells != plain_cells(self.bytes) {
            write!(f, " cells {}", self.cells)?;
        }
        for (word, n) in [("tomb", self.tombstones), ("rtomb", self.range_tombstones)] {
            if n > 0 {
                write!(f, " {word} {n}")?;
            }
        }
        if self.log_bytes > 0 {
            write!(f, " log {}", exact(self.log_bytes))?;
        }
        if self.distinct != self.cells {
            write!(f, " distinct {}", self.distinct)?;
        }
        Ok(())
    }
}

impl FromStr for Shape {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut shape = Shape::default();
        let mut next_part = 1;
        for (i, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            parse_line(line.trim(), &mut shape, &mut next_part)
                .map_err(|why| format!("line {}: {why}", i + 1))?;
        }
        shape.check()?;
        Ok(shape)
    }
}

fn parse_line(line: &str, shape: &mut Shape, next_part: &mut u32) -> Result<(), String> {
    let (head, body) = line.split_once(": ").ok_or("expected `L<level> #<run>: tables`")?;
    let (level, run) = head
        .strip_prefix('L')
        .and_then(|head| head.split_once(" #"))
        .ok_or_else(|| format!("expected `L<level> #<run>`, found `{head}`"))?;
    let level: usize = number(level)?;
    if level > 63 {
        return Err(format!("level {level} is too deep"));
    }
    let mut tables = Vec::new();
    for text in body.split(", ") {
        let table = parse_table(text.trim(), *next_part)?;
        *next_part = table.id.part.saturating_add(1).max(*next_part);
        tables.push(Arc::new(table));
    }
    if shape.levels.len() <= level {
        shape.levels.resize_with(level + 1, Level::default);
    }
    shape.levels[level].runs.push(Run::new(number(run)?, tables));
    Ok(())
}

fn parse_table(text: &str, next_part: u32) -> Result<TableInfo, String> {
    let mut words = text.split_whitespace();
    let first = words.next().ok_or("expected a table")?;
    let (id, range) = match first.split_once(':') {
        Some((id, range)) => (parse_id(id)?, range),
        None => (TableId { part: next_part, ..TableId::default() }, first),
    };
    let mut word = |what: &str| words.next().ok_or_else(|| format!("`{text}`: expected {what}"));
    let bytes = parse_size(word("a size")?)?;
    let cells = plain_cells(bytes);
    let mut table = TableInfo { range: parse_range(range)?, cells, ..TableInfo::plain(id, bytes) };
    let mut distinct = None;
    while let Ok(name) = word("a word") {
        match name {
            "clip" => {
                let key = parse_key(word("the clip's key")?)?;
                table.clip = Some(Clip { key, bytes_below: parse_size(word("the bytes below")?)? });
            }
            "cells" => table.cells = number(word("a number")?)?,
            "tomb" => table.tombstones = number(word("a number")?)?,
            "rtomb" => table.range_tombstones = number(word("a number")?)?,
            "log" => table.log_bytes = parse_size(word("the bytes in the log")?)?,
            "distinct" => distinct = Some(number(word("a number")?)?),
            _ => return Err(format!("`{text}`: unknown word `{name}`")),
        }
    }
    table.distinct = distinct.unwrap_or(table.cells);
    let TableInfo { bytes, log_bytes, cells, tombstones, range_tombstones, distinct, .. } = table;
    let counts = [bytes, log_bytes, cells, tombstones, range_tombstones, distinct];
    if counts.iter().any(|count| *count > TABLE_COUNT_MAX) {
        return Err(format!("`{text}`: a table's count over 2^44"));
    }
    Ok(table)
}

impl TableInfo {
    /// An SSTable of which only name and size are known: it covers every key and has no cells.
    pub(crate) fn plain(id: TableId, bytes: u64) -> Self {
        TableInfo {
            id,
            identity: 0,
            bytes,
            cells: 0,
            tombstones: 0,
            range_tombstones: 0,
            distinct: 0,
            range: KeyRange::all(),
            seqs: Default::default(),
            times: Default::default(),
            created: 0,
            log_bytes: 0,
            logs: Vec::new(),
            ingested_at: None,
            clip: None,
            above: None,
        }
    }
}

#[cfg(test)]
impl TableInfo {
    /// A plain SSTable over these keys; its name is its part.
    pub(crate) fn over(part: u32, range: KeyRange, bytes: u64) -> Self {
        Self { range, ..Self::plain(TableId { part, ..TableId::default() }, bytes) }
    }
}

fn parse_id(text: &str) -> Result<TableId, String> {
    match text.parse() {
        Ok(part) if !text.contains('-') => Ok(TableId { part, ..TableId::default() }),
        _ => TableId::parse_file_name(&format!("{text}.table"))
            .ok_or_else(|| format!("`{text}` is no table name")),
    }
}

fn number<T: FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("`{text}` is no number"))
}

/// A range as text: `[a,m)`, `[m,..)`.
pub(crate) fn range_text(range: &KeyRange) -> String {
    let end = range.end.as_deref().map_or("..".to_string(), key_text);
    format!("[{},{end})", key_text(&range.start))
}

pub(crate) fn parse_range(text: &str) -> Result<KeyRange, String> {
    let wrong = || format!("expected a range like `[a,m)`, found `{text}`");
    let inner = text.strip_prefix('[').and_then(|t| t.strip_suffix(')')).ok_or_else(wrong)?;
    let (start, end) = inner.split_once(',').ok_or_else(wrong)?;
    let end = if end == ".." { None } else { Some(parse_key(end)?) };
    Ok(KeyRange { start: parse_key(start)?, end })
}

pub(crate) fn key_text(key: &[u8]) -> String {
    let mut text = String::with_capacity(key.len());
    for &byte in key {
        match byte {
            b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' | b'-' | b'_' => text.push(byte as char),
            _ => text.push_str(&format!("\\x{byte:02x}")),
        }
    }
    text
}

pub(crate) fn parse_key(text: &str) -> Result<Vec<u8>, String> {
    let wrong = || format!("`{text}` is no key: only letters, digits, `-`, `_` and \\xNN");
    let mut key = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        match byte {
            b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' | b'-' | b'_' => key.push(byte),
            b'\\' => {
                let hex = rest.strip_prefix(b"x").and_then(|r| r.first_chunk::<2>()).ok_or_else(wrong)?;
                let hex = std::str::from_utf8(hex).map_err(|_| wrong())?;
                key.push(u8::from_str_radix(hex, 16).map_err(|_| wrong())?);
                rest = &rest[3..];
            }
            _ => return Err(wrong()),
        }
    }
    Ok(key)
}

/// A size without loss: `64M` where it is a whole number of the unit, else plain bytes.
fn exact(bytes: u64) -> String {
    for (unit, shift) in [('T', 40), ('G', 30), ('M', 20), ('K', 10)] {
        if bytes > 0 && bytes.is_multiple_of(1 << shift) {
            return format!("{}{unit}", bytes >> shift);
        }
    }
    bytes.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_a_shape_parses_to_the_same_shape() {
        let text = "L0 #7: 12:[a,m) 64M, 13:[m,..) 100 cells 7 tomb 3 rtomb 1 distinct 5\n\
                    L0 #6: 000007-000001-000002-0003:[,\\x00z) 1G\nL5 #3: 4:[a,c) 32M clip b 10M, 5:[c,f) 3T\n";
        let shape: Shape = text.parse().unwrap();
        assert_eq!(shape.to_string(), text);
        assert_eq!(shape.level_bytes(5), (22 << 20) + (3 << 40));
    }

    #[test]
    fn a_wrong_text_is_refused_with_its_line_and_reason() {
        for (text, why) in [
            ("L0 #1: [a,c) 1M, [b,d) 1M", "overlap"),
            ("L0 #1: [a,c) 1M\nL0 #2: [a,c) 1M", "stands before"),
            ("L0 #1: [a,c) 1M\nL1 #1: [a,c) 1X", "line 2: `1X`"),
            ("L0 #1: [a,c) 1M, [c,d) 18446744073709551615", "over 2^44"),
            ("L0 #1: [a,c) 1M hello 3", "unknown word `hello`"),
            ("L0 1: [a,c) 1M", "expected `L<level> #<run>`"),
            ("L0 #1: [a,c) 1M clip d 1M", "answers for no key"),
            ("L0 #1: 1:[a,b) 1M, 1:[c,d) 1M", "there twice"),
        ] {
            let error = text.parse::<Shape>().unwrap_err();
            assert!(error.contains(why), "{error}");
        }
    }
}
