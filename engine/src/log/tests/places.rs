//! Where cells lie in closed files, and reading one of them alone.

use super::*;
use crate::types::KeyRange;

/// Reads every file through for the store's values.
fn places(disk: &Disk, files: Vec<LogFileInfo>, store: u32) -> Places {
    let mut scan = PlaceScan::new(&disk.env(), dir(), DATABASE, StoreId(store), files);
    while scan.advance().unwrap() {}
    scan.finish()
}

fn cell<'a>(key: &'a [u8], timestamp: u64, kind: Kind, value: &'a [u8]) -> CellRef<'a> {
    CellRef { key, timestamp: Timestamp(timestamp), seq: SeqNo::ZERO, kind, written: timestamp / 2, value }
}

/// Fetches the cell whose value is there.
fn fetch(disk: &Disk, file: LogFileId, offset: u64, length: u64) -> Result<crate::types::Cell> {
    let log = ClosedLogFile::open(&*disk.env().storage, dir(), DATABASE, file)?;
    let mut bytes = vec![0; length as usize];
    log.read(&mut bytes, offset)?;
    log.cell(&bytes, offset).map(|cell| cell.to_cell())
}

#[test]
fn every_value_of_the_store_is_found_over_many_files_and_nothing_else() {
    let disk = Disk::default();
    let (log, mut appender) = fresh(&disk.env(), 2048);
    let mut encoder = FrameEncoder::new();
    let mut values = Vec::new();
    let mut seq = 1;
    for n in 0..200u64 {
        encoder.begin(SeqNo(seq), n);
        encoder.part(StoreId(2), Generation(1));
        encoder.cell(&cell(b"another store's", 0, Kind::Value, b"not wanted"));
        encoder.part(StoreId(1), Generation(1));
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
    let files = log.complete_files();
    assert!(files.len() > 10);
    let places = places(&disk, files, 1);
    let mut found = 0;
    for n in 0..seq + 10 {
        match (places.find(SeqNo(n)), values.iter().find(|(seq, _)| seq.0 == n)) {
            (Some((file, offset)), Some((_, cell))) => {
                found += 1;
                let length = entry_bytes(&cell.as_ref());
                assert_eq!(&fetch(&disk, file, offset, length).unwrap(), cell);
            }
            (None, None) => {}
            (place, wanted) => panic!("seq {n}: found {place:?}, logged {wanted:?}"),
        }
    }
    assert_eq!(found, 200);
}

#[test]
fn places_take_four_bytes_an_operation() {
    let disk = Disk::default();
    let (log, mut appender) = fresh(&disk.env(), 64 << 10);
    (1..=1000).for_each(|n| assert!(put(&mut appender, n, 20).is_ok()));
    appender.begin_next(SeqNo(u64::MAX)).unwrap();
    let places = places(&disk, log.complete_files(), 1);
    assert_eq!(places.memory_bytes(), 4 * 1000);
}

#[test]
fn a_damaged_file_is_left_out_and_a_damaged_entry_is_refused() {
    let disk = Disk::default();
    let (log, mut appender) = fresh(&disk.env(), 2048);
    (1..=40).for_each(|n| assert!(put(&mut appender, n, 100).is_ok()));
    appender.begin_next(SeqNo(u64::MAX)).unwrap();
    let files = log.complete_files();
    let (file, offset) = places(&disk, files.clone(), 1).find(SeqNo(1)).unwrap();
    let key = 1u64.to_be_bytes();
    let length = entry_bytes(&cell(&key, 0, Kind::Value, &value_of(1, 100)));
    fetch(&disk, file, offset, length).unwrap();
    for (at, n) in [(offset + 1, length), (offset, length - 1), (offset - 8, length)] {
        assert_eq!(fetch(&disk, file, at, n).unwrap_err().kind(), crate::error::ErrorKind::Corruption);
    }
    let mut bytes = disk.bytes(&path(file.0));
    bytes[offset as usize + 30] ^= 8;
    disk.set_bytes(&path(file.0), bytes);
    let damaged = fetch(&disk, file, offset, length).unwrap_err();
    assert_eq!(damaged.offset(), Some(offset));
    assert!(damaged.to_string().contains(&file_name(file)), "{damaged}");
    let left = places(&disk, files.clone(), 1);
    assert_eq!(left.find(SeqNo(1)), None);
    assert_eq!(left.files(), files.len() - 1);
    assert!(left.find(SeqNo(40)).is_some());
}
