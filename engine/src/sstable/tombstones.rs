//! The block of range tombstones, in the order in which they were added.

use crate::types::codec::{Decoded, Decoder, Malformed, put_bytes, put_u64, put_varint};
use crate::types::{KeyRange, RangeTombstone, SeqNo, Timestamp};

pub(super) fn encode(tombstones: &[RangeTombstone]) -> Vec<u8> {
    let mut out = Vec::new();
    put_varint(&mut out, tombstones.len() as u64);
    for t in tombstones {
        put_bytes(&mut out, &t.range.start);
        out.push(u8::from(t.range.end.is_some()));
        if let Some(end) = &t.range.end {
            put_bytes(&mut out, end);
        }
        put_u64(&mut out, t.from.0);
        put_u64(&mut out, t.to.0);
        put_varint(&mut out, t.seq.0);
    }
    out
}

pub(super) fn decode(bytes: &[u8]) -> Decoded<Vec<RangeTombstone>> {
    let mut d = Decoder::new(bytes);
    let count = d.varint()?;
    let mut tombstones = Vec::new();
    for _ in 0..count {
        let start = d.bytes()?.to_vec();
        let end = match d.u8()? {
            0 => None,
            1 => Some(d.bytes()?.to_vec()),
            _ => return Err(Malformed("end flag of a range tombstone is neither 0 nor 1")),
        };
        let (from, to, seq) = (Timestamp(d.u64()?), Timestamp(d.u64()?), SeqNo(d.varint()?));
        tombstones.push(RangeTombstone { range: KeyRange { start, end }, from, to, seq });
    }
    d.finish()?;
    Ok(tombstones)
}
