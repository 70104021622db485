//! Bytes as text and back. One set of escapes everywhere: `\t`, `\n`, `\\`, and `\xNN` for any byte.
//!
//! What is valid UTF-8 and printable stays as it is, so that most data reads as itself.

use std::str::FromStr;

/// The bytes with which some programs begin a file of UTF-8.
pub(crate) const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Bytes as one printable field: no tab, newline or other control character is left.
pub(crate) fn printable(bytes: &[u8]) -> String {
    escape(bytes, true)
}

/// Bytes as the text of a JSON string, which has escapes of its own for control characters.
pub(crate) fn unicode(bytes: &[u8]) -> String {
    escape(bytes, false)
}

fn escape(bytes: &[u8], controls: bool) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\\' => text.push_str("\\\\"),
                // At the beginning of a file it would be taken for a byte order mark.
                '\u{feff}' => BYTE_ORDER_MARK.iter().for_each(|byte| push_hex(&mut text, *byte)),
                '\t' if controls => text.push_str("\\t"),
                '\n' if controls => text.push_str("\\n"),
                c if controls && c.is_control() => {
                    let mut utf8 = [0; 4];
                    c.encode_utf8(&mut utf8).bytes().for_each(|byte| push_hex(&mut text, byte));
                }
                c => text.push(c),
            }
        }
        chunk.invalid().iter().for_each(|byte| push_hex(&mut text, *byte));
    }
    text
}

fn push_hex(text: &mut String, byte: u8) {
    text.push_str(&format!("\\x{byte:02x}"));
}

/// The bytes that [`printable`] or [`unicode`] wrote; other raw bytes stand for themselves.
pub(crate) fn unescape(text: &[u8]) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.iter().position(|byte| *byte == b'\\') {
        bytes.extend_from_slice(&rest[..at]);
        let (byte, length) = match &rest[at + 1..] {
            [b't', ..] => (b'\t', 1),
            [b'n', ..] => (b'\n', 1),
            [b'\\', ..] => (b'\\', 1),
            [b'x', high, low, ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                (hex_digit(*high) << 4 | hex_digit(*low), 3)
            }
            [next, ..] => {
                let next = [*next];
                let next = next.escape_ascii();
                return Err(format!("unknown escape `\\{next}`; there are \\t, \\n, \\\\ and \\xNN"));
            }
            [] => return Err("a lone backslash at the end; write it as \\\\".to_string()),
        };
        bytes.push(byte);
        rest = &rest[at + 1 + length..];
    }
    bytes.extend_from_slice(rest);
    Ok(bytes)
}

fn hex_digit(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        _ => (digit | 0x20) - b'a' + 10,
    }
}

/// A key or value given on the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Bytes(pub(crate) Vec<u8>);

impl FromStr for Bytes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        unescape(text.as_bytes()).map(Bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_string_is_read_back_from_both_texts() {
        let all: Vec<u8> = (0..=255).collect();
        let mut cases = vec![all.clone(), all.iter().rev().copied().collect(), "größe\u{2028}\u{85}".into()];
        cases.extend([b"".to_vec(), b"\\".to_vec(), b"\\x41".to_vec(), b"a\tb\nc\r".to_vec()]);
        for case in cases {
            let text = printable(&case);
            assert!(!text.chars().any(char::is_control), "{text}");
            assert_eq!(unescape(text.as_bytes()).unwrap(), case);
            assert_eq!(unescape(unicode(&case).as_bytes()).unwrap(), case);
        }
        assert_eq!(printable("größe\t\u{1}\\".as_bytes()), "größe\\t\\x01\\\\");
        assert_eq!(unicode(b"a\nb\xff"), "a\nb\\xff");
        assert_eq!(unescape(b"\\x4A\\x4a").unwrap(), b"JJ");
    }

    #[test]
    fn a_wrong_escape_is_refused_with_its_text() {
        for (text, what) in
            [("a\\q", "`\\q`"), ("a\\", "lone backslash"), ("\\x4", "`\\x`"), ("\\xzz", "`\\x`")]
        {
            let error = unescape(text.as_bytes()).unwrap_err();
            assert!(error.contains(what), "{error}");
        }
    }
}
