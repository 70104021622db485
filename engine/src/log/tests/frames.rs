//! Frames alone: what goes in comes out, and nothing else ever does.

use super::*;
use crate::types::{Cell, KeyRange, RangeTombstone};
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Write {
    Part(u32, u64),
    Cell(Cell, bool),
    Tombstone(RangeTombstone, bool),
}

fn bytes(max: usize) -> impl Strategy<Value = Vec<u8>> {
    proptest::collection::vec(any::<u8>(), 0..max)
}

fn number() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0), 1..300u64, any::<u64>()]
}

fn write() -> impl Strategy<Value = Write> {
    let part = (any::<u32>(), number()).prop_map(|(store, generation)| Write::Part(store, generation));
    let cell = (bytes(40), number(), number(), 0..3u8, number(), bytes(300), any::<bool>());
    let cell = cell.prop_map(|(key, timestamp, seq, kind, written, value, copied)| {
        let kind = Kind::from_u8(kind).unwrap();
        let value = if kind == Kind::Tombstone { Vec::new() } else { value };
        let (timestamp, seq) = (Timestamp(timestamp), SeqNo(seq));
        Write::Cell(Cell { key, timestamp, seq, kind, written, value }, copied)
    });
    let tombstone = (bytes(20), proptest::option::of(bytes(20)), number(), number(), number(), any::<bool>());
    let tombstone = tombstone.prop_map(|(start, end, from, to, seq, copied)| {
        let (from, to, seq) = (Timestamp(from), Timestamp(to), SeqNo(seq));
        Write::Tombstone(RangeTombstone { range: KeyRange { start, end }, from, to, seq }, copied)
    });
    prop_oneof![1 => part, 4 => cell, 2 => tombstone]
}

/// What one entry must decode to; the flag says whether it is a copy.
type Expected = (StoreId, Generation, Place, bool, Write);

/// Encodes the writes as one frame at `offset`; returns its bytes and the entries it must decode to.
fn encode(writes: &[Write], offset: u64, synced: Option<LogPosition>) -> (Vec<u8>, Vec<Expected>) {
    let mut encoder = FrameEncoder::new();
    encoder.begin(SeqNo(500), 99);
    let (mut part, mut expected) = ((StoreId(0), Generation(0)), Vec::new());
    encoder.part(part.0, part.1);
    for write in writes {
        let (mut write, copied) = match write {
            Write::Part(store, generation) => {
                part = (StoreId(*store), Generation(*generation));
                encoder.part(part.0, part.1);
                continue;
            }
            Write::Cell(_, copied) | Write::Tombstone(_, copied) => (write.clone(), *copied),
        };
        match &mut write {
            Write::Cell(cell, true) => encoder.copied_cell(&cell.as_ref()),
            Write::Cell(cell, false) => cell.seq = encoder.cell(&cell.as_ref()),
            Write::Tombstone(tombstone, true) => encoder.copied_range_tombstone(tombstone),
            Write::Tombstone(tombstone, false) => tombstone.seq = encoder.range_tombstone(tombstone),
            Write::Part(..) => {}
        }
        expected.push((part.0, part.1, copied, write));
    }
    let places: Vec<Place> = encoder.places(position(3, offset)).collect();
    let length = encoder.frame_bytes();
    let bytes = encoder.finish(FileIdentity::new(DATABASE, LogFileId(3)), offset, synced).to_vec();
    assert_eq!(bytes.len() as u64, length);
    let expected = expected.into_iter().zip(places);
    (bytes, expected.map(|((store, generation, copied, w), p)| (store, generation, p, copied, w)).collect())
}

fn decode(bytes: &[u8], file: u64, offset: u64) -> Result<Frame<'_>, Fault> {
    decode_frame(bytes, FileIdentity::new(DATABASE, LogFileId(file)), offset)
}

/// A frame with every kind of item in it.
fn sample() -> Vec<u8> {
    let (key, value) = (b"key".to_vec(), b"value".to_vec());
    let (timestamp, seq, kind) = (Timestamp(300), SeqNo(4), Kind::Value);
    let cell = Cell { key, timestamp, seq, kind, written: 70_000, value };
    let range = KeyRange::new("a", "b");
    let tombstone = RangeTombstone { range, from: Timestamp(2), to: Timestamp(900), seq };
    let writes = [
        Write::Cell(cell.clone(), false),
        Write::Part(5, 900),
        Write::Cell(cell, true),
        Write::Tombstone(tombstone.clone(), false),
        Write::Tombstone(tombstone, true),
    ];
    encode(&writes, 1024, Some(position(2, 808))).0
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn what_is_encoded_is_decoded(writes in proptest::collection::vec(write(), 0..12), eights in 0..1000u64) {
        let offset = eights * 8;
        let synced = (eights % 2 == 0).then(|| position(eights % 4, offset));
        let (bytes, expected) = encode(&writes, offset, synced);
        let frame = decode(&bytes, 3, offset).unwrap();
        prop_assert_eq!(frame.head.synced, synced);
        prop_assert_eq!((frame.head.first_seq, frame.head.wall_us), (SeqNo(500), 99));
        prop_assert_eq!(frame.end(), position(3, offset + bytes.len() as u64));
        let given = expected.iter().filter(|e| !e.3).count() as u64;
        prop_assert_eq!(frame.last_seq, given.checked_sub(1).map(|n| SeqNo(500 + n)));
        let decoded: Vec<_> = frame.entries().map(|logged| {
            let write = match logged.entry {
                Entry::Cell(cell) => Write::Cell(cell.to_cell(), logged.copied),
                Entry::RangeTombstone(tombstone) => Write::Tombstone(tombstone, logged.copied),
            };
            (logged.store, logged.generation, logged.place, logged.copied, write)
        }).collect();
        prop_assert_eq!(format!("{decoded:?}"), format!("{expected:?}"));
    }

    #[test]
    fn arbitrary_bytes_are_refused_without_panic(bytes in bytes(400), offset in any::<u64>()) {
        prop_assert!(decode(&bytes, 3, offset & !7).is_err());
    }

    /// Behind a checksum that holds, the decoder meets arbitrary items; it must refuse or read them, not panic.
    #[test]
    fn arbitrary_items_behind_good_checksums_do_not_panic(body in bytes(200)) {
        let mut bytes = encode(&[], 0, None).0[..HEAD_BYTES].to_vec();
        bytes.extend_from_slice(&body);
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        let units = (bytes.len() / 8) as u32;
        bytes[4..8].copy_from_slice(&units.to_le_bytes());
        let seed = FileIdentity::new(DATABASE, LogFileId(3)).seed(0);
        let crc = crc32c::crc32c_append(seed, &bytes[4..HEAD_BYTES]);
        bytes[..4].copy_from_slice(&crc.to_le_bytes());
        if let Ok(frame) = decode(&bytes, 3, 0) {
            prop_assert!(frame.entries().count() <= body.len());
        }
    }
}

#[test]
fn every_flipped_bit_and_every_truncation_of_a_frame_is_noticed() {
    let bytes = sample();
    assert_eq!(decode(&bytes, 3, 1024).unwrap().entries().count(), 4);
    for bit in 0..bytes.len() * 8 {
        let mut bad = bytes.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        assert!(decode(&bad, 3, 1024).is_err(), "bit {bit}");
    }
    for length in 0..bytes.len() {
        assert!(matches!(decode(&bytes[..length], 3, 1024), Err(Fault::Short { .. })), "{length} bytes");
    }
}

#[test]
fn a_frame_is_refused_at_any_other_place() {
    let bytes = sample();
    assert!(decode(&bytes, 3, 1032).is_err());
    assert!(decode(&bytes, 4, 1024).is_err());
    let other = FileIdentity::new(DATABASE + 1, LogFileId(3));
    assert!(decode_frame(&bytes, other, 1024).is_err());
}

#[test]
fn a_large_batch_does_not_keep_its_buffer() {
    let mut encoder = FrameEncoder::new();
    let value = vec![1; 4 << 20];
    let (timestamp, seq) = (Timestamp::ZERO, SeqNo::ZERO);
    let cell = CellRef { key: b"k", timestamp, seq, kind: Kind::Value, written: 0, value: &value };
    encoder.begin(SeqNo(1), 0);
    encoder.part(StoreId(0), Generation(0));
    encoder.cell(&cell);
    assert!(encoder.frame_bytes() > 4 << 20);
    encoder.begin(SeqNo(2), 0);
    assert!(encoder.buffer_bytes() < 4096);
}
