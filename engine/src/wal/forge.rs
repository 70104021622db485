//! The WAL's decoders on forged bytes, for fuzzing; see `testing::decoders`.
#![allow(clippy::ptr_arg, reason = "signers share one function type, and some of them grow the input")]

use super::delta_frame::{self, decode_frame};
use super::encoder::FrameEncoder;
use super::file::{HEADER_BYTES, Header, file_path};
use super::frame::{Note, sign_frame};
use super::head::{ALIGN, Base, FileIdentity, HEAD_BYTES};
use super::salvage::salvage;
use crate::hooks::{Target, work_of};
use crate::storage::sim::SimWorld;
use crate::types::{CellRef, Generation, KeyRange, Kind, LogFileId, LogPosition, RangeTombstone};
use crate::types::{SeqNo, StoreId, Timestamp};
use std::path::Path;

const DATABASE: u64 = 0xdb;
const FILE: LogFileId = LogFileId(9);
const OFFSET: u64 = 80;

pub(crate) const TARGETS: &[Target] = &[
    Target { name: "wal-frame", seeds: frame_seeds, sign, decode: frame },
    Target { name: "wal-short-frame", seeds: short_seeds, sign: sign_short, decode: short_frame },
    Target { name: "wal-header", seeds: header_seeds, sign: sign_header, decode: header },
    Target { name: "wal-salvage", seeds: salvage_seeds, sign: sign_heads, decode: salvaged },
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
    // The frame's length, in eights, as it must be.
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

/// The base of short frames.
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
    delta_frame::sign(bytes, identity(), OFFSET, &base());
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

/// A file of some frames, and one that is nothing but heads, each of which claims that much of the rest as
/// its frame.
fn salvage_seeds() -> Vec<Vec<u8>> {
    let header = header_seeds().concat();
    let frames = frame_seeds();
    let long = [[0; 4], 500_u32.to_le_bytes()].concat();
    let mut head = [long, vec![0; HEAD_BYTES - 8]].concat();
    head[23] = 1;
    let mut seeds = vec![
        [header.clone(), frames[0].clone(), frames[1].clone()].concat(),
        [header, head.repeat(300)].concat(),
    ];
    seeds.iter_mut().for_each(sign_heads);
    seeds
}

/// Fixes the checksums of the file's header and of every frame's head.
fn sign_heads(bytes: &mut Vec<u8>) {
    sign_header(bytes);
    let mut at = HEADER_BYTES as usize;
    while let Some(head) = bytes.get_mut(at..at + HEAD_BYTES) {
        let length = u32::from_le_bytes([head[4], head[5], head[6], head[7]]) as usize * ALIGN as usize;
        let is_head = matches!(head[23], 1 | 2) && length >= HEAD_BYTES;
        if is_head {
            let sum = crc32c::crc32c_append(identity().seed(at as u64), &head[4..]);
            head[..4].copy_from_slice(&sum.to_le_bytes());
        }
        let is_whole = is_head && at + length <= bytes.len();
        at += if is_whole { length } else { ALIGN as usize };
    }
}

/// Salvages a damaged WAL; reads each byte only a few times.
fn salvaged(bytes: &[u8]) {
    let (world, dir) = (SimWorld::new(1), Path::new("log"));
    let env = world.env();
    let written = env
        .storage
        .create_dir(dir)
        .and_then(|()| env.storage.create(&file_path(dir, FILE)))
        .and_then(|mut file| file.write(bytes));
    if written.is_err() {
        return;
    }
    let synced = LogPosition { file: FILE, offset: OFFSET };
    let (found, work) = work_of(|| salvage(&env, dir, DATABASE, FILE, synced, &[], &mut |_| Ok(())));
    assert!(work <= 64 * (bytes.len() as u64 + 1_024), "{work} bytes looked at of {}", bytes.len());
    if let Ok(found) = found {
        assert!(found.frames <= bytes.len() as u64, "more frames than bytes");
    }
}
