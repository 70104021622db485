//! The command line's rows in files, and its escapes. What is read is written so that it reads the same.

use crate::escape::{printable, unescape, unicode};
use crate::format::Format;
use siltstone::testing::Target;

/// Rows of an input that are written again.
const ROWS_MAX: usize = 20;

pub(crate) fn all() -> Vec<Target> {
    let target = |name, seeds, decode| Target { name, seeds, sign: |_| {}, decode };
    vec![
        target("rows-jsonl", jsonl_seeds, jsonl),
        target("rows-csv", csv_seeds, csv),
        target("rows-tsv", tsv_seeds, tsv),
        target("escapes", escape_seeds, escapes),
    ]
}

fn read(format: Format, bytes: &[u8]) {
    for row in format.rows(bytes).take(ROWS_MAX) {
        let Ok((_, row)) = row else { return };
        let mut out = Vec::new();
        let mut writer = format.writer(&mut out);
        let written = writer.write(&row).and_then(|()| writer.finish());
        written.expect("a vector takes all");
        let again = format.rows(&out[..]).next();
        assert_eq!(
            again.map(|row| row.map(|(_, row)| row)),
            Some(Ok(row)),
            "a row is written as it was read"
        );
    }
}

fn jsonl_seeds() -> Vec<Vec<u8>> {
    vec![
        br#"{"key": "river", "value": "s\\x00ilt", "timestamp": 7}
{"key": "\u00e9\\\\", "value": ""}
"#
        .to_vec(),
    ]
}

fn jsonl(bytes: &[u8]) {
    read(Format::Jsonl, bytes);
}

fn csv_seeds() -> Vec<Vec<u8>> {
    vec![b"river,silt,7\r\n\"a \"\"b\"\"\nc\",\xff\n".to_vec(), b"key,value\n".to_vec()]
}

fn csv(bytes: &[u8]) {
    read(Format::Csv, bytes);
}

fn tsv_seeds() -> Vec<Vec<u8>> {
    vec![b"river\tsi\\tlt\\x00\t7\nlake\t\xff\\\\\n".to_vec()]
}

fn tsv(bytes: &[u8]) {
    read(Format::Tsv, bytes);
}

fn escape_seeds() -> Vec<Vec<u8>> {
    vec![b"a\\tb\\n\\\\\\xff\xc3\xa9".to_vec()]
}

/// Any bytes as text and back, and any text as bytes.
fn escapes(bytes: &[u8]) {
    for text in [printable(bytes), unicode(bytes)] {
        assert_eq!(unescape(text.as_bytes()).as_deref(), Ok(bytes), "{text}");
    }
    let _ = unescape(bytes);
}
