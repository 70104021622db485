//! The SSTable's decoders on forged bytes, for fuzzing: each with valid bytes to start from and, where a
//! checksum would refuse forged ones, a way to sign them. Decoded data is also used, as a reader would.
#![allow(clippy::ptr_arg, reason = "signers share one function type, and some of them grow the input")]

use super::block_builder::BlockBuilder;
use super::block_cursor::BlockCursor;
use super::compression::{Codec, Compression, Compressor};
use super::footer::{Footer, Header};
use super::frame::{BlockKind, HEAD_BYTES, Handle, Head, open_block, seed};
use super::index::{BlockEntry, Partition, TopIndex};
use super::properties::Properties;
use super::reference::Reference;
use super::tombstones;
use crate::cache::{Block, Filter};
use crate::hooks::Target;
use crate::types::{
    Cell, Fragments, KeyRange, Kind, LogFileId, RangeTombstone, SeqNo, Sketch, StoreId, TableId, Timestamp,
};
use std::path::Path;
use std::sync::Arc;

const IDENTITY: u64 = 0x5eed;
const ID: TableId = TableId { store: StoreId::ZERO, epoch: 1, job: 2, part: 3 };
const OFFSET: u64 = 36;
/// The end of the file for handles in forged blocks.
const FILE_END: u64 = 1 << 20;

pub(crate) const TARGETS: &[Target] = &[
    Target { name: "sstable-header", seeds: header_seeds, sign: sign_header, decode: header },
    Target { name: "sstable-footer", seeds: footer_seeds, sign: sign_footer, decode: footer },
    Target { name: "block-frame", seeds: frame_seeds, sign: sign_frame, decode: frame },
    Target { name: "sorted-block", seeds: block_seeds, sign: |_| {}, decode: block },
    Target { name: "index-partition", seeds: index_seeds, sign: |_| {}, decode: index },
    Target { name: "top-index", seeds: top_seeds, sign: |_| {}, decode: top },
    Target { name: "filter", seeds: filter_seeds, sign: |_| {}, decode: filter },
    Target { name: "properties", seeds: properties_seeds, sign: |_| {}, decode: properties },
    Target { name: "range-tombstones", seeds: tombstone_seeds, sign: |_| {}, decode: range_tombstones },
    Target { name: "reference", seeds: reference_seeds, sign: |_| {}, decode: reference },
    Target { name: "sketch", seeds: sketch_seeds, sign: |_| {}, decode: sketch },
];

fn reference_seeds() -> Vec<Vec<u8>> {
    let encoded = |file, offset, length| {
        let mut bytes = Vec::new();
        Reference { file: LogFileId(file), offset, length }.encode(&mut bytes);
        bytes
    };
    vec![encoded(1, 80, 300), encoded(u64::MAX, u64::from(u32::MAX), 1 << 30)]
}

fn reference(bytes: &[u8]) {
    if let Ok(reference) = Reference::decode(bytes) {
        assert!(reference.end() >= reference.offset);
    }
}

fn path() -> &'static Path {
    Path::new("forged")
}

fn header_seeds() -> Vec<Vec<u8>> {
    vec![Header { id: ID, identity: IDENTITY }.encode()]
}

/// Sets the checksum, seeded with the identity at `identity_at`, over the fields before it.
fn sign_fields(bytes: &mut [u8], identity_at: usize, offset: u64, tail: &[u8]) {
    let Some(end) = bytes.len().checked_sub(4 + tail.len()) else { return };
    let Some(identity) = bytes.get(identity_at..).and_then(|b| b.first_chunk()) else { return };
    let start = seed(u64::from_le_bytes(*identity), offset);
    let crc = crc32c::crc32c_append(crc32c::crc32c_append(start, &bytes[..end]), tail);
    bytes[end..end + 4].copy_from_slice(&crc.to_le_bytes());
    bytes[end + 4..].copy_from_slice(tail);
}

fn sign_header(bytes: &mut Vec<u8>) {
    // After magic, version and the SSTable's id.
    sign_fields(bytes, 8 + 4 + 16, 0, &[]);
}

fn header(bytes: &[u8]) {
    let _ = Header::decode(path(), bytes);
}

fn footer_seeds() -> Vec<Vec<u8>> {
    let at = |offset| Handle { offset, stored: 40, raw: 50 };
    let (tombstones, sketch, properties, top) = (at(100), at(200), at(300), at(400));
    let (id, identity) = (ID, IDENTITY);
    vec![Footer { tombstones, sketch, properties, top, file_bytes: 1000, id, identity }.encode()]
}

fn footer_length(bytes: &[u8]) -> u64 {
    bytes.get(64..).and_then(|b| b.first_chunk()).map_or(0, |b| u64::from_le_bytes(*b))
}

fn sign_footer(bytes: &mut Vec<u8>) {
    let offset = footer_length(bytes).saturating_sub(super::footer::FOOTER_BYTES as u64);
    sign_fields(bytes, 64 + 8 + 16, offset, b"SiltSEnd");
}

fn footer(bytes: &[u8]) {
    let _ = Footer::decode(path(), bytes, 1000);
    let _ = Footer::decode(path(), bytes, footer_length(bytes));
}

fn frame_seeds() -> Vec<Vec<u8>> {
    let raw = block_seeds().concat();
    let zeros = vec![0; 30_000];
    let mut seeds = Vec::new();
    for compression in [Compression::None, Compression::Lz4, Compression::Zstd { level: 3 }] {
        for raw in [&raw, &zeros] {
            let Ok(mut compressor) = Compressor::new(compression) else { continue };
            let (codec, payload) = compressor.compress(raw);
            if codec == Codec::Raw && raw == &zeros {
                continue;
            }
            let head = Head::encode(BlockKind::Data, codec, raw.len(), payload, IDENTITY, OFFSET);
            seeds.push([&head[..], payload].concat());
        }
    }
    seeds
}

fn sign_frame(bytes: &mut Vec<u8>) {
    if bytes.len() < HEAD_BYTES {
        return;
    }
    let stored = (bytes.len() - HEAD_BYTES) as u32;
    bytes[1..5].copy_from_slice(&stored.to_le_bytes());
    let start = crc32c::crc32c_append(seed(IDENTITY, OFFSET), &bytes[..9]);
    bytes[9..11].copy_from_slice(&(start as u16).to_le_bytes());
    let crc = crc32c::crc32c_append(start, &bytes[HEAD_BYTES..]);
    bytes[11..15].copy_from_slice(&crc.to_le_bytes());
}

fn frame(bytes: &[u8]) {
    let number = |at: usize| bytes.get(at..).and_then(|b| b.first_chunk()).map(|b| u32::from_le_bytes(*b));
    let (Some(stored), Some(raw)) = (number(1), number(5)) else { return };
    if let Ok(handle) = Handle::checked(OFFSET, stored.into(), raw.into(), OFFSET + bytes.len() as u64) {
        let _ = open_block(path(), bytes, IDENTITY, BlockKind::Data, handle);
    }
}

fn cell(n: u64, kind: Kind) -> Cell {
    let key = format!("common/{:04}", n / 2).into_bytes();
    let value = if kind == Kind::Tombstone { Vec::new() } else { vec![n as u8; n as usize % 40] };
    Cell { key, timestamp: Timestamp(n % 3), seq: SeqNo(1000 - n), kind, written: n % 2 * 77, value }
}

fn block_seeds() -> Vec<Vec<u8>> {
    let kinds = [Kind::Value, Kind::Tombstone, Kind::Operand];
    let mut seeds = vec![BlockBuilder::new(4).finish().to_vec()];
    for interval in [1, 3, 16] {
        let mut builder = BlockBuilder::new(interval);
        (0..40).for_each(|n| builder.add(&cell(n, kinds[n as usize % 3]).as_ref()));
        seeds.push(builder.finish().to_vec());
    }
    seeds
}

/// Walks in both directions, and checks that a walk has no more steps than the block has bytes.
fn walk(block: Block, visit: &mut dyn FnMut(&BlockCursor)) {
    let limit = block.bytes().len();
    let mut cursor = BlockCursor::default();
    cursor.set(Arc::new(block));
    let mut steps = 0;
    let mut more = cursor.first();
    while let Ok(true) = more {
        visit(&cursor);
        steps += 1;
        assert!(steps <= limit, "a block of {limit} bytes has no end");
        more = cursor.next();
    }
    let mut more = cursor.last();
    while let Ok(true) = more {
        visit(&cursor);
        steps += 1;
        assert!(steps <= 2 * limit, "a block of {limit} bytes has no beginning");
        more = cursor.prev();
    }
    for key in [&b""[..], b"common/0007", b"common/0007x", b"d"] {
        if let Ok(true) = cursor.seek(key) {
            visit(&cursor);
        }
        if let Ok(true) = cursor.seek_before(key) {
            visit(&cursor);
        }
    }
}

fn block(bytes: &[u8]) {
    let Ok(block) = Block::new(bytes.to_vec()) else { return };
    if let Ok(Some(entry)) = block.lower_bound(b"common/0009") {
        block.is_key(&entry, b"common/0009");
        block.value(&entry);
    }
    walk(block, &mut |cursor| drop(cursor.cell().to_cell()));
}

fn index_seeds() -> Vec<Vec<u8>> {
    let mut builder = BlockBuilder::new(1);
    for n in 0..20u64 {
        let handle = Handle { offset: 100 * n, stored: 80, raw: 200 };
        let entry = BlockEntry { handle, cells: n, continues: n % 4 == 0 };
        builder.add_plain(format!("common/{n:04}").as_bytes(), &entry.encode());
    }
    vec![builder.finish().to_vec()]
}

fn index(bytes: &[u8]) {
    let Ok(block) = Block::new(bytes.to_vec()) else { return };
    walk(block, &mut |cursor| {
        let _ = BlockEntry::decode(cursor.cell().value, FILE_END);
    });
}

fn top_seeds() -> Vec<Vec<u8>> {
    let mut builder = BlockBuilder::new(1);
    for n in 1..10u64 {
        let handle = |offset| Handle { offset, stored: 80, raw: 200 };
        let filter = (n % 2 == 0).then(|| handle(500 * n));
        let partition = Partition { index: handle(1000 * n + 90_000), filter, data_end: 1000 * n, blocks: n };
        builder.add_plain(format!("common/{n:04}").as_bytes(), &partition.encode());
    }
    vec![builder.finish().to_vec()]
}

fn top(bytes: &[u8]) {
    let Ok(top) = Block::new(bytes.to_vec()).and_then(|block| TopIndex::new(block, FILE_END)) else { return };
    for key in [&b""[..], b"common/0003", b"d"] {
        let _ = top.find(key);
    }
    for i in 0..top.partitions().len() {
        let _ = top.separator(i);
    }
    let _ = (top.data_end(), top.memory_bytes());
}

fn filter_seeds() -> Vec<Vec<u8>> {
    let hashes: Vec<u64> = (0..50u64).map(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15)).collect();
    [1, 10, 64].map(|bits| Filter::build(&hashes, bits)).to_vec()
}

fn filter(bytes: &[u8]) {
    let Ok(filter) = Filter::new(bytes.to_vec()) else { return };
    for hash in [0, 1, u64::MAX, 0x9e37_79b9_7f4a_7c15] {
        let _ = filter.may_contain(hash);
    }
}

fn properties_seeds() -> Vec<Vec<u8>> {
    let mut full = Properties::default();
    full.names.insert("made by".into(), "a test".into());
    full.range = KeyRange { start: b"a".to_vec(), end: Some(b"z".to_vec()) };
    let plain = Properties { compression: Compression::None, ..Properties::default() };
    vec![plain.encode(), full.encode()]
}

fn properties(bytes: &[u8]) {
    if let Ok(properties) = Properties::decode(bytes) {
        properties.info(TableId::default(), 1, 2);
    }
}

fn tombstone_seeds() -> Vec<Vec<u8>> {
    let tombstone = |n: u64| {
        let (start, end) = (vec![n as u8; 3], (!n.is_multiple_of(3)).then(|| vec![n as u8 + 5; 2]));
        let (from, to) = (Timestamp(n), Timestamp(n + 100));
        RangeTombstone { range: KeyRange { start, end }, from, to, seq: SeqNo(n) }
    };
    vec![tombstones::encode(&[]), tombstones::encode(&(0..12).map(tombstone).collect::<Vec<_>>())]
}

fn range_tombstones(bytes: &[u8]) {
    if let Ok(tombstones) = tombstones::decode(bytes) {
        Fragments::new(tombstones);
    }
}

fn sketch_seeds() -> Vec<Vec<u8>> {
    let mut sketch = Sketch::new();
    (0..100u32).for_each(|n| sketch.add(&n.to_be_bytes()));
    vec![sketch.as_bytes().to_vec()]
}

fn sketch(bytes: &[u8]) {
    if let Ok(mut sketch) = Sketch::from_bytes(bytes) {
        let _ = sketch.estimate();
        sketch.merge(&Sketch::new());
    }
}
