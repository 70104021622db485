//! How a cell of a table lies in the engine: one key for each column of a row.
//!
//! ```text
//! key       = row key, each 00 as 00 ff | 00 01 | qualifier
//! timestamp = the cell's, explicit
//! ```
//!
//! Keys are in the order of (row, qualifier), so a row is a range of keys, and so is a range of rows. The
//! longest key, of a row of 4 KiB of zeros and a qualifier of 16 KiB, is far below the engine's limit.

use std::borrow::Cow;
use tonic::Status;

/// Bytes of a row key, at most.
pub(crate) const ROW_KEY_MAX: usize = 4 << 10;
/// Bytes of a qualifier, at most.
pub(crate) const QUALIFIER_MAX: usize = 16 << 10;
/// Bytes of a cell's value, at most.
pub(crate) const VALUE_MAX: usize = 100 << 20;

/// A range of engine keys; `None` for no end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) start: Vec<u8>,
    pub(crate) end: Option<Vec<u8>>,
}

impl Span {
    pub(crate) fn is_empty(&self) -> bool {
        self.end.as_ref().is_some_and(|end| *end <= self.start)
    }

    pub(crate) fn has(&self, key: &[u8]) -> bool {
        *key >= self.start[..] && self.end.as_deref().is_none_or(|end| key < end)
    }

    /// The intersection of two spans.
    pub(crate) fn intersect(&self, start: &[u8], end: Option<&[u8]>) -> Self {
        let own = self.end.as_deref();
        let end = match (own, end) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        Self { start: self.start.as_slice().max(start).to_vec(), end: end.map(<[u8]>::to_vec) }
    }
}

fn escaped(row: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(row.len() + 24);
    for &byte in row {
        out.push(byte);
        if byte == 0 {
            out.push(0xff);
        }
    }
    out
}

/// The start of a row's cells.
pub(crate) fn row_start(row: &[u8]) -> Vec<u8> {
    let mut key = escaped(row);
    key.extend([0, 1]);
    key
}

/// The end of a row's cells.
pub(crate) fn row_end(row: &[u8]) -> Vec<u8> {
    let mut key = escaped(row);
    key.extend([0, 2]);
    key
}

/// The keys of one row.
pub(crate) fn row_span(row: &[u8]) -> Span {
    Span { start: row_start(row), end: Some(row_end(row)) }
}

/// The first bytes after all that begin with these; `None` if there are none.
pub(crate) fn behind_prefix(prefix: &[u8]) -> Option<Vec<u8>> {
    let mut end = prefix.to_vec();
    while end.last() == Some(&0xff) {
        end.pop();
    }
    *end.last_mut()? += 1;
    Some(end)
}

/// The keys of all rows that begin with these bytes.
pub(crate) fn prefix_span(prefix: &[u8]) -> Span {
    Span { start: escaped(prefix), end: behind_prefix(prefix).map(|end| escaped(&end)) }
}

/// The union of these spans, in order, without overlaps.
pub(crate) fn merged(mut spans: Vec<Span>) -> Vec<Span> {
    spans.retain(|span| !span.is_empty());
    spans.sort_by(|a, b| a.start.cmp(&b.start));
    let mut merged: Vec<Span> = Vec::new();
    for span in spans {
        match merged.last_mut() {
            Some(last) if last.end.as_ref().is_none_or(|end| *end >= span.start) => {
                if last.end.is_some() && span.end.as_ref().is_none_or(|end| Some(end) > last.end.as_ref()) {
                    last.end = span.end;
                }
            }
            _ => merged.push(span),
        }
    }
    merged
}

/// The key of one column of a row.
pub(crate) fn cell_key(row: &[u8], qualifier: &[u8]) -> Vec<u8> {
    let mut key = row_start(row);
    key.extend_from_slice(qualifier);
    key
}

/// How many bytes of a key belong to its row; `None` if it is no cell's key.
pub(crate) fn row_len(key: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        at += key.get(at..)?.iter().position(|byte| *byte == 0)?;
        match key.get(at + 1)? {
            0xff => at += 2,
            1 => return Some(at + 2),
            _ => return None,
        }
    }
}

/// The row key in the first `row_len` bytes of a key.
pub(crate) fn row_of(row_part: &[u8]) -> Cow<'_, [u8]> {
    let escaped = &row_part[..row_part.len().saturating_sub(2)];
    if !escaped.contains(&0) {
        return Cow::Borrowed(escaped);
    }
    let mut row = Vec::with_capacity(escaped.len());
    let mut bytes = escaped.iter();
    while let Some(&byte) = bytes.next() {
        row.push(byte);
        if byte == 0 {
            bytes.next();
        }
    }
    Cow::Owned(row)
}

/// A row key that may be written.
pub(crate) fn check_row(row: &[u8]) -> Result<(), Status> {
    match row.len() {
        0 => Err(Status::invalid_argument("Row keys must be non-empty")),
        len if len > ROW_KEY_MAX => {
            Err(Status::invalid_argument(format!("row key has {len} bytes, the limit is {ROW_KEY_MAX}")))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROWS: &[&[u8]] = &[
        b"\0", b"\0\0", b"\0\x01", b"\x01", b"a", b"a\0", b"a\0\0", b"a\0b", b"a\x01", b"ab", b"b", b"\xff",
    ];

    #[test]
    fn keys_are_in_the_order_of_rows_and_qualifiers() {
        let qualifiers: &[&[u8]] = &[b"", b"\0", b"\x01", b"q", b"\xff"];
        let cells: Vec<_> = ROWS.iter().flat_map(|r| qualifiers.iter().map(move |q| (*r, *q))).collect();
        let keys: Vec<_> = cells.iter().map(|(row, qualifier)| cell_key(row, qualifier)).collect();
        assert!(keys.is_sorted());
        for ((row, qualifier), key) in cells.iter().zip(&keys) {
            let len = row_len(key).unwrap();
            assert_eq!((&*row_of(&key[..len]), &key[len..]), (*row, *qualifier));
            let span = row_span(row);
            assert!(span.start <= *key && *key < span.end.unwrap());
        }
    }

    #[test]
    fn a_prefix_has_the_rows_that_begin_with_it_and_no_others() {
        for prefix in ROWS.iter().copied().chain([&b""[..], b"\xff\xff"]) {
            let span = prefix_span(prefix);
            for row in ROWS.iter().copied().chain([&b"\xff\xff\x01"[..]]) {
                let key = cell_key(row, b"q");
                let inside = span.start <= key && span.end.as_ref().is_none_or(|end| key < *end);
                assert_eq!(inside, row.starts_with(prefix), "{prefix:?} {row:?}");
            }
        }
    }

    #[test]
    fn keys_of_no_cell_have_no_row() {
        for key in [&b""[..], b"a", b"a\0", b"a\0\x02", b"a\0\xff"] {
            assert_eq!(row_len(key), None, "{key:?}");
        }
    }
}
