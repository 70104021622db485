//! The log's decoders on forged bytes, for fuzzing; see `testing::decoders`.
#![allow(clippy::ptr_arg, reason = "signers share one function type, and some of them grow the input")]

use super::encoder::FrameEncoder;
use super::file::Header;
use super::frame::{FileIdentity, HEAD_BYTES, Note, decode_frame, sign_frame};
use super::short::{self, Base};
use crate::hooks::Target;
use crate::types::{CellRef, Generation, KeyRange, Kind, LogFileId, LogPosition, RangeTombstone};
use crate::types::{SeqNo, StoreId, Timestamp};
use std::path::Path;

const DATABASE: u64 = 0xdb;
const FILE: LogFileId = LogFileId(9);
const OFFSET: u64 = 80;

pub(crate) const TARGETS: &[Target] = &[
    Target { name: "log-frame", seeds: frame_seeds, sign, decode: frame },
    Target { name: "log-short-frame", seeds: short_seeds, sign: sign_short, decode: short_frame },
    Target { name: "log-header", seeds: header_seeds, sign: sign_header, decode: header },
];

fn identity() -> FileIdentity {
    FileIdentity::new(DATABASE, FILE)
}

fn frame_seeds() -> Vec<Vec<u8>> {
    let mut encoder = FrameEncoder::new();
    let mut seeds = Vec::new();
    let synced = Some(LogPosition { file: LogFileId(8), offset: 800 });
    encoder.begin(SeqNo(100), 5_000_000);
    for n in 0..8u64 {
        let kind = [Kind::Value, Kind::Tombstone, Kind::Operand][n as usize % 3];
        let value = vec![n as u8; n as usize];
        let value = if kind == Kind::Tombstone { &[][..] } else { &value };
        let cell = CellRef { key: b"key", timestamp: Timestamp(n), seq: SeqNo(n), kind, written: n, value };
        encoder.part(StoreId(n as u32 / 3), Generation(n));
        if n % 4 == 3 {
            encoder.copied_cell(&cell);
        } else {
            encoder.cell(&cell);
        }
        let range = KeyRange { start: b"a".to_vec(), end: (n % 2 == 0).then(|| b"z".to_vec()) };
        encoder.range_tombstone(&RangeTombstone {
            range,
            from: Timestamp(1),
            to: Timestamp(n + 2),
            seq: SeqNo(n),
        });
    }
    seeds.push(encoder.finish(identity(), OFFSET, synced, &mut None).to_vec());
    encoder.note(Note { manifest: 3, length: 4000 }, SeqNo(7), 1);
    seeds.push(encoder.finish(identity(), OFFSET, None, &mut None).to_vec());
    seeds
}

fn sign(bytes: &mut Vec<u8>) {
    // Its own length, in eights, as a frame must be.
    while bytes.len() < HEAD_BYTES || !bytes.len().is_multiple_of(8) {
        bytes.push(0);
    }
    let eights = bytes.len() as u32 / 8;
    bytes[4..8].copy_from_slice(&eights.to_le_bytes());
    sign_frame(bytes, identity(), OFFSET);
}

fn frame(bytes: &[u8]) {
    decode(bytes, None);
}

/// The full frame that short ones count from.
fn base() -> Base {
    let part = Some((StoreId(1), Generation(3)));
    Base {
        offset: OFFSET - 80,
        first_seq: SeqNo(97),
        wall_us: 5_000_000,
        synced: None,
        part,
        told_before: true,
    }
}

fn short_seeds() -> Vec<Vec<u8>> {
    let mut encoder = FrameEncoder::new();
    let mut seeds = Vec::new();
    for n in 0..8u64 {
        encoder.begin(SeqNo(100), 5_000_000 + n * 1000);
        encoder.part(StoreId(1 + n as u32 % 2), Generation(3));
        for cell in 0..=n / 3 {
            let kind = [Kind::Value, Kind::Tombstone, Kind::Operand][(n + cell) as usize % 3];
            let value = if kind == Kind::Tombstone { &[][..] } else { b"some value" };
            let timestamp = Timestamp(n * cell);
            let cell = CellRef { key: b"key", timestamp, seq: SeqNo(n), kind, written: n % 4, value };
            if n == 7 {
                encoder.copied_cell(&cell);
            } else {
                encoder.cell(&cell);
            }
        }
        seeds.push(encoder.finish(identity(), OFFSET, None, &mut Some(base())).to_vec());
    }
    seeds
}

fn sign_short(bytes: &mut Vec<u8>) {
    short::sign(bytes, identity(), OFFSET, &base());
}

fn short_frame(bytes: &[u8]) {
    decode(bytes, Some(&base()));
}

fn decode(bytes: &[u8], base: Option<&Base>) {
    let Ok(frame) = decode_frame(bytes, identity(), OFFSET, base) else { return };
    let entries = frame.entries().count();
    assert!(entries <= bytes.len(), "more entries than bytes");
    let _ = (frame.note(), frame.end());
}

fn header_seeds() -> Vec<Vec<u8>> {
    let at = |file, offset| LogPosition { file: LogFileId(file), offset };
    let header = Header {
        database_id: DATABASE,
        file: FILE,
        reserved: 65536,
        previous: at(8, 5000),
        synced: at(8, 800),
    };
    vec![header.encode().to_vec()]
}

fn sign_header(bytes: &mut Vec<u8>) {
    if let Some((fields, sum)) = bytes.split_at_mut_checked(76)
        && let Some(sum) = sum.first_chunk_mut::<4>()
    {
        *sum = crc32c::crc32c(fields).to_le_bytes();
    }
}

fn header(bytes: &[u8]) {
    let _ = Header::decode(bytes, DATABASE, FILE, Path::new("forged"));
}
