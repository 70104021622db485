//! The items of an entry's payload: bytes of WAL files and edits of the manifest, in the order in which they
//! were logged; docs/format.md has the layout.

use crate::types::codec::{Decoded, Decoder, Malformed, put_bytes, put_varint};
use crate::types::{LogFileId, LogPosition};

const WAL: u8 = 1;
const EDIT: u8 = 2;

/// An item of a payload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Item<'a> {
    /// Bytes of a WAL file, from that position on: its header, or a frame.
    Wal(LogPosition, &'a [u8]),
    /// An edit of the manifest, encoded.
    Edit(&'a [u8]),
}

impl Item<'_> {
    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        match self {
            Item::Wal(at, bytes) => {
                out.push(WAL);
                put_varint(out, at.file.0);
                put_varint(out, at.offset);
                put_bytes(out, bytes);
            }
            Item::Edit(edit) => {
                out.push(EDIT);
                put_bytes(out, edit);
            }
        }
    }
}

/// The items of a payload; at damage the last one is an error.
pub(crate) fn items(payload: &[u8]) -> impl Iterator<Item = Decoded<Item<'_>>> {
    let mut rest = Decoder::new(payload);
    let mut failed = false;
    std::iter::from_fn(move || {
        if failed || rest.is_empty() {
            return None;
        }
        let item = next(&mut rest);
        failed = item.is_err();
        Some(item)
    })
}

fn next<'a>(rest: &mut Decoder<'a>) -> Decoded<Item<'a>> {
    match rest.u8()? {
        WAL => {
            let (file, offset) = (LogFileId(rest.varint()?), rest.varint()?);
            Ok(Item::Wal(LogPosition { file, offset }, rest.bytes()?))
        }
        EDIT => Ok(Item::Edit(rest.bytes()?)),
        _ => Err(Malformed("an item of an unknown kind")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_read_back_in_order_and_a_cut_payload_ends_with_an_error() {
        let at = LogPosition { file: LogFileId(300), offset: 80 };
        let all = [Item::Wal(at, b"frame"), Item::Edit(b"edit"), Item::Wal(at, b"")];
        let mut payload = Vec::new();
        let ends: Vec<usize> = all
            .iter()
            .map(|item| {
                item.put(&mut payload);
                payload.len()
            })
            .collect();
        assert_eq!(items(&payload).collect::<Decoded<Vec<_>>>().unwrap(), all);
        for cut in 0..payload.len() {
            let read: Vec<_> = items(&payload[..cut]).collect();
            let whole = ends.iter().filter(|end| **end <= cut).count();
            assert_eq!(read.iter().filter(|item| item.is_ok()).count(), whole, "cut at {cut}");
            let is_whole = cut == 0 || ends.contains(&cut);
            assert_eq!(read.last().is_some_and(Result::is_err), !is_whole, "cut at {cut}");
        }
        assert!(items(&[9]).next().unwrap().is_err());
    }
}
