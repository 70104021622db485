//! Positions of cells in closed files, and reads of one of them alone.

use super::*;
use crate::types::{Cell, KeyRange};

/// Scans every file for the store's values.
fn places(disk: &Disk, files: Vec<WalFileInfo>, store: u32) -> ValuePositions {
    let mut scan = PlaceScan::new(&disk.env(), dir(), DATABASE, StoreId(store), files);
    while scan.advance().unwrap() {}
    scan.finish()
}

fn cell<'a>(key: &'a [u8], timestamp: u64, kind: Kind, value: &'a [u8]) -> CellRef<'a> {
    CellRef { key, timestamp: Timestamp(timestamp), seq: SeqNo::ZERO, kind, written: timestamp / 2, value }
}

/// Reads the cell whose entry is at that position.
fn fetch(disk: &Disk, place: EntryPosition) -> Result<Cell> {
    let wal = ClosedWalFile::open(&*disk.env().storage, dir(), DATABASE, place.at.file)?;
    let mut bytes = vec![0; place.length as usize];
    wal.read(&mut bytes, place.at.offset)?;
    wal.cell(&bytes, place.at.offset).map(|cell| cell.to_cell())
}

#[test]
fn every_value_of_the_store_is_found_over_many_files_and_nothing_else() {
    let disk = Disk::default();
    let (wal, mut appender) = fresh(&disk.env(), 2048);
    let mut encoder = FrameEncoder::new();
    let mut values = Vec::new();
    let mut seq = 1;
    for n in 0..200u64 {
        // Some are frames by themselves, with and without their part.
        for alone in 0..2 {
            encoder.begin(SeqNo(seq), n);
            encoder.part(StoreId(1), Generation(n / 50));
            let (key, value) = ([n as u8, alone], value_of(n, n % 70));
            let wanted = cell(&key, u64::from(alone), Kind::Value, &value);
            values.push((encoder.cell(&wanted), CellRef { seq: SeqNo::ZERO, ..wanted }.to_cell()));
            appender.append(&mut encoder).unwrap();
            seq += 1;
        }
        encoder.begin(SeqNo(seq), n);
        encoder.part(StoreId(2), Generation(1));
        encoder.cell(&cell(b"another store's", 0, Kind::Value, b"not wanted"));
        encoder.part(StoreId(1), Generation(n / 50));
        let (key, value) = (n.to_be_bytes(), value_of(n, n % 90));
        let wanted = cell(&key, n % 3 * 1000, Kind::Value, &value);
        let at = encoder.cell(&wanted);
        values.push((at, CellRef { seq: SeqNo::ZERO, ..wanted }.to_cell()));
        encoder.cell(&cell(b"gone", 0, Kind::Tombstone, b""));
        encoder.cell(&cell(b"part of a value", 0, Kind::Operand, b"not wanted"));
        encoder.range_tombstone(&crate::types::RangeTombstone {
            range: KeyRange::all(),
            from: Timestamp::ZERO,
            to: Timestamp::MAX,
            seq: SeqNo::ZERO,
        });
        encoder.copied_cell(&CellRef { seq: SeqNo(1), ..cell(b"copied", 0, Kind::Value, b"not wanted") });
        appender.append(&mut encoder).unwrap();
        seq += 5;
    }
    appender.begin_next(SeqNo(u64::MAX)).unwrap();
    let files = wal.complete_files();
    assert!(files.len() > 10);
    let places = places(&disk, files, 1);
    let mut found = 0;
    for n in 0..seq + 10 {
        let wanted = values.iter().find(|(seq, _)| seq.0 == n).map(|(_, cell)| cell.clone());
        let cell = wanted.clone().unwrap_or(cell(b"", 0, Kind::Value, b"").to_cell());
        match (places.find(&CellRef { seq: SeqNo(n), ..cell.as_ref() }), wanted) {
            (Some(place), Some(cell)) => {
                found += 1;
                assert_eq!(fetch(&disk, place).unwrap(), cell);
            }
            (None, None) => {}
            (place, wanted) => panic!("seq {n}: found {place:?}, logged {wanted:?}"),
        }
    }
    assert_eq!(found, 600);
}

#[test]
fn places_take_five_bytes_an_operation() {
    let disk = Disk::default();
    let (wal, mut appender) = fresh(&disk.env(), 64 << 10);
    (1..=1000).for_each(|n| assert!(put(&mut appender, n, 20).is_ok()));
    appender.begin_next(SeqNo(u64::MAX)).unwrap();
    let places = places(&disk, wal.complete_files(), 1);
    assert_eq!(places.memory_bytes(), 5 * 1000);
}

#[test]
fn a_damaged_file_is_left_out_and_a_damaged_entry_is_refused() {
    let disk = Disk::default();
    let (wal, mut appender) = fresh(&disk.env(), 2048);
    (1..=40).for_each(|n| assert!(put(&mut appender, n, 100).is_ok()));
    appender.begin_next(SeqNo(u64::MAX)).unwrap();
    let files = wal.complete_files();
    let key = |n: u64| n.to_be_bytes();
    let at = |places: &ValuePositions, n: u64| {
        places.find(&CellRef { seq: SeqNo(n), ..cell(&key(n), 0, Kind::Value, &value_of(n, 100)) })
    };
    // The first is in a full frame, the second alone.
    for n in [1, 2] {
        let place = at(&places(&disk, files.clone(), 1), n).unwrap();
        fetch(&disk, place).unwrap();
        let (EntryPosition { at: LogPosition { file, offset }, length }, whole) =
            (place, disk.bytes(&path(place.at.file.0)));
        for (offset, length) in [(offset + 1, length), (offset, length - 1), (offset - 8, length)] {
            let wrong = EntryPosition { at: LogPosition { file, offset }, length };
            assert_eq!(fetch(&disk, wrong).unwrap_err().kind(), crate::error::ErrorKind::Corruption);
        }
        let mut bytes = whole.clone();
        bytes[offset as usize + 30] ^= 8;
        disk.set_bytes(&path(file.0), bytes);
        let damaged = fetch(&disk, place).unwrap_err();
        assert_eq!(damaged.offset(), Some(offset));
        assert!(damaged.to_string().contains(&file_name(file)), "{damaged}");
        let left = places(&disk, files.clone(), 1);
        assert_eq!(at(&left, 1), None);
        assert_eq!(left.files(), files.len() - 1);
        assert!(at(&left, 40).is_some());
        disk.set_bytes(&path(file.0), whole);
    }
}
