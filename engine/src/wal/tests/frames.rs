//! Frames alone, full and short: decoding returns what was encoded, and nothing else ever verifies.

use super::super::head::Base;
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

/// What one entry must decode to; the flag is set for a copy.
type Expected = (StoreId, Generation, bool, Write);

/// Encodes the writes as one frame at `offset`, which may count from `base`; returns its bytes and the
/// expected entries.
fn encode(
    writes: &[Write],
    offset: u64,
    synced: Option<LogPosition>,
    mut base: Option<Base>,
) -> (Vec<u8>, Vec<Expected>) {
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
    let most = encoder.frame_bytes();
    let bytes = encoder.finish(identity(3), offset, synced, &mut base).to_vec();
    assert!(bytes.len() as u64 <= most);
    (bytes, expected)
}

fn identity(file: u64) -> FileIdentity {
    FileIdentity::new(DATABASE, LogFileId(file))
}

fn decode<'a>(bytes: &'a [u8], file: u64, offset: u64, base: Option<&Base>) -> Result<Frame<'a>, Fault> {
    decode_frame(bytes, identity(file), offset, base)
}

/// A full frame before one that `encode` makes, written to that store with the WAL synced up to `synced`.
fn base(offset: u64, synced: Option<LogPosition>, store: u32) -> Base {
    let part = Some((StoreId(store), Generation(0)));
    Base {
        offset: offset.saturating_sub(4000),
        first_seq: SeqNo(480),
        wall_us: 90,
        synced,
        part,
        told_before: true,
    }
}

fn a_cell() -> Cell {
    let (key, value) = (b"key".to_vec(), b"value".to_vec());
    Cell { key, timestamp: Timestamp(300), seq: SeqNo(4), kind: Kind::Value, written: 70_000, value }
}

/// A frame with every kind of item in it.
fn sample() -> Vec<Write> {
    let (cell, seq, range) = (a_cell(), SeqNo(4), KeyRange::new("a", "b"));
    let tombstone = RangeTombstone { range, from: Timestamp(2), to: Timestamp(900), seq };
    vec![
        Write::Cell(cell.clone(), false),
        Write::Part(5, 900),
        Write::Cell(cell, true),
        Write::Tombstone(tombstone.clone(), false),
        Write::Tombstone(tombstone, true),
    ]
}

const SYNCED: Option<LogPosition> = Some(LogPosition { file: LogFileId(2), offset: 808 });

/// A full frame, a short batch, and a cell alone with and without its part: the base of each, and its bytes.
fn samples() -> Vec<(Option<Base>, Vec<u8>)> {
    let alone = [Write::Cell(a_cell(), false)];
    let of = |base, writes: &[Write]| (base, encode(writes, 1024, SYNCED, base).0);
    let (same, other) = (Some(base(1024, SYNCED, 0)), Some(base(1024, SYNCED, 9)));
    vec![of(None, &sample()), of(same, &sample()), of(other, &alone), of(same, &alone)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn what_is_encoded_is_decoded(
        writes in proptest::collection::vec(write(), 0..12),
        eights in 0..1000u64,
        kind in 0..3,
    ) {
        let offset = eights * 8;
        let synced = (eights % 2 == 0).then(|| position(eights % 4, offset));
        let told = (kind > 0).then(|| base(offset, synced, kind as u32 - 1));
        let (bytes, expected) = encode(&writes, offset, synced, told);
        let frame = decode(&bytes, 3, offset, told.as_ref()).unwrap();
        let is_short = decode(&bytes, 3, offset, None).is_err();
        prop_assert_eq!(is_short, told.is_some() && bytes.len() <= 4096);
        prop_assert_eq!(frame.head.synced, synced);
        prop_assert_eq!((frame.head.first_seq, frame.head.wall_us), (SeqNo(500), 99));
        prop_assert_eq!(frame.end(), position(3, offset + bytes.len() as u64));
        let given = expected.iter().filter(|e| !e.2).count() as u64;
        prop_assert_eq!(frame.last_seq, given.checked_sub(1).map(|n| SeqNo(500 + n)));
        let decoded: Vec<_> = frame.entries().map(|logged| {
            let write = match logged.entry {
                Entry::Cell(cell) => Write::Cell(cell.to_cell(), logged.copied),
                Entry::RangeTombstone(tombstone) => Write::Tombstone(tombstone, logged.copied),
            };
            // Every entry can be verified alone.
            let at = (logged.place.at.offset - offset) as usize;
            let entry = &bytes[at..at + logged.place.length as usize];
            let (covered, stored) = entry.split_last_chunk::<4>().unwrap();
            let sum = crc32c::crc32c_append(identity(3).seed(logged.place.at.offset), covered);
            assert_eq!(sum, u32::from_le_bytes(*stored));
            (logged.store, logged.generation, logged.copied, write)
        }).collect();
        prop_assert_eq!(format!("{decoded:?}"), format!("{expected:?}"));
    }

    #[test]
    fn arbitrary_bytes_are_refused_without_panic(mut bytes in bytes(400), offset in any::<u64>()) {
        let told = base(offset & !7, None, 1);
        prop_assert!(decode(&bytes, 3, offset & !7, None).is_err());
        for first in [2, 0xa1, 0xf1] {
            bytes.splice(..bytes.len().min(1), [first]);
            prop_assert!(decode(&bytes, 3, offset & !7, Some(&told)).is_err());
        }
    }

    /// Behind a checksum that holds, the decoder meets arbitrary items; it must refuse or read them, not
    /// panic.
    #[test]
    fn arbitrary_items_behind_good_checksums_do_not_panic(body in bytes(200)) {
        let mut bytes = encode(&[], 0, None, None).0[..HEAD_BYTES].to_vec();
        bytes.extend_from_slice(&body);
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        let units = (bytes.len() / 8) as u32;
        bytes[4..8].copy_from_slice(&units.to_le_bytes());
        let seed = FileIdentity::new(DATABASE, LogFileId(3)).seed(0);
        let crc = crc32c::crc32c_append(seed, &bytes[4..HEAD_BYTES]);
        bytes[..4].copy_from_slice(&crc.to_le_bytes());
        if let Ok(frame) = decode(&bytes, 3, 0, None) {
            prop_assert!(frame.entries().count() <= body.len());
        }
    }
}

#[test]
fn every_flipped_bit_and_every_truncation_of_a_frame_is_noticed() {
    for (base, bytes) in samples() {
        let decode =
            |bytes: &[u8]| decode(bytes, 3, 1024, base.as_ref()).map(|frame| frame.entries().count());
        assert!(decode(&bytes).is_ok_and(|entries| entries == 4 || entries == 1));
        for bit in 0..bytes.len() * 8 {
            let mut bad = bytes.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(decode(&bad).is_err(), "bit {bit} of {base:?}");
        }
        for length in 0..bytes.len() {
            let cut = decode(&bytes[..length]);
            assert!(cut.is_err(), "{length} bytes of {base:?}");
            assert!(base.is_some() || matches!(cut, Err(Fault::Short { .. })), "{length} bytes: {cut:?}");
        }
    }
}

#[test]
fn a_frame_is_refused_at_any_other_place_and_a_short_one_with_any_other_base() {
    for (base, bytes) in samples() {
        let short = base.is_some();
        assert!(decode(&bytes, 3, 1032, base.as_ref()).is_err());
        assert!(decode(&bytes, 4, 1024, base.as_ref()).is_err());
        let other = FileIdentity::new(DATABASE + 1, LogFileId(3));
        assert!(decode_frame(&bytes, other, 1024, base.as_ref()).is_err());
        assert_eq!(decode(&bytes, 3, 1024, None).is_err(), short);
        let other = base.map(|base| Base { offset: base.offset + 8, ..base });
        assert_eq!(decode(&bytes, 3, 1024, other.as_ref()).is_err(), short);
    }
}

#[test]
fn a_frame_is_short_only_where_its_base_is_near_and_all_that_it_leaves_out_is_the_same() {
    let short = |base: Base, offset| {
        let bytes = encode(&[Write::Cell(a_cell(), false)], offset, SYNCED, Some(base)).0;
        decode(&bytes, 3, offset, None).is_err()
    };
    let like = base(8000, SYNCED, 0);
    assert!(short(like, 8000) && short(Base { offset: 3912, ..like }, 8000));
    assert!(!short(Base { offset: 3904, ..like }, 8000), "too far behind its base");
    assert!(!short(Base { first_seq: SeqNo(501), ..like }, 8000), "sequence numbers went back");
    assert!(!short(Base { wall_us: 100, ..like }, 8000), "the clock went back");
    assert!(!short(Base { synced: None, ..like }, 8000), "the WAL was synced since");
    // The first frame that records a sync is followed by another one in the next sector.
    let first = Base { told_before: false, ..like };
    assert!(short(Base { offset: 7680, ..first }, 8184) && !short(Base { offset: 8184, ..first }, 8192));
}

#[test]
fn a_single_put_takes_at_most_20_bytes_beyond_key_and_value_and_one_of_a_batch_8() {
    let bytes_of = |cells: usize, store, value: usize| {
        let value = vec![7; value];
        let cell = Cell { key: vec![1; 16], timestamp: Timestamp::ZERO, written: 0, value, ..a_cell() };
        let writes = vec![Write::Cell(cell, false); cells];
        let told = Some(base(8000, SYNCED, store));
        encode(&writes, 8000, SYNCED, told).0.len()
    };
    let beyond = |store, values: Range<usize>| -> Vec<usize> {
        values.map(|value| bytes_of(1, store, value) - 16 - value).collect()
    };
    let mean = |beyond: &[usize]| beyond.iter().sum::<usize>() as f64 / beyond.len() as f64;
    assert!(beyond(0, 0..128).iter().all(|beyond| *beyond <= 20));
    assert!(mean(&beyond(0, 0..128)) < 16.0 && mean(&beyond(0, 128..2000)) < 17.0);
    // Alternating between two families.
    assert!(mean(&beyond(1, 0..2000)) < 20.0);
    assert!((32..100).all(|cells| bytes_of(cells, 0, 20) - cells * 36 <= cells * 8));
}

#[test]
fn a_large_batch_does_not_keep_its_buffer() {
    let mut encoder = FrameEncoder::new();
    let value = vec![1; 4 << 20];
    encoder.begin(SeqNo(1), 0);
    encoder.part(StoreId(0), Generation(0));
    encoder.cell(&CellRef::plain(b"k", 0, &value));
    assert!(encoder.frame_bytes() > 4 << 20);
    encoder.begin(SeqNo(2), 0);
    assert!(encoder.buffer_bytes() < 4096);
}
