//! SSTables with values in the WAL: they read as any other, by every way of reading.

use super::*;
use crate::storage::Env;
use crate::types::{Generation, StoreId};
use crate::wal::{FrameEncoder, PlaceScan, Wal, WalOptions, WalStart, entry_bytes};

const DATABASE: u64 = 77;
/// The first entry's offset: after a file's header, a frame's head and two small numbers.
const FIRST_ENTRY: u64 = 80 + 32 + 3;

/// An SSTable over `cells`, with the newest version of each key in the WAL, and others in the SSTable.
fn wal_values_table(cells: Vec<Cell>, cache_bytes: u64) -> Fixture {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(ID.file_name());
    let env = Env::local();
    let options = WalOptions { file_bytes: 512, ..WalOptions::default() };
    let (wal, mut appender) = Wal::open(&env, dir.path(), options, WalStart::fresh(DATABASE)).unwrap();
    // Logged in order of sequence numbers, not of keys.
    let mut logged: Vec<&Cell> = cells.iter().collect();
    logged.sort_by_key(|cell| cell.seq);
    let mut encoder = FrameEncoder::new();
    let mut next = SeqNo(1);
    for cell in logged {
        if cell.seq != next {
            // A WAL with gaps in its numbers within a file does not give positions.
            appender.begin_next(cell.seq).unwrap();
        }
        next = cell.seq.next();
        encoder.begin(cell.seq, 1);
        encoder.part(StoreId(1), Generation(1));
        encoder.cell(&cell.as_ref());
        appender.append(&mut encoder).unwrap();
    }
    appender.begin_next(SeqNo(u64::MAX)).unwrap();
    let files = wal.complete_files();
    assert!(files.len() > 3);
    let mut scan = PlaceScan::new(&env, dir.path(), DATABASE, StoreId(1), files);
    while scan.advance().unwrap() {}
    let places = scan.finish();
    let storage = env.storage;
    let table = small(Compression::Lz4);
    let mut builder = TableBuilder::new(&*storage, &path, ID, 0x5eed, &table, 77).unwrap();
    builder.set_log_database(DATABASE);
    for cell in &cells {
        let place = places.find(&cell.as_ref()).unwrap();
        let reference = Reference { file: place.at.file, offset: place.at.offset, length: place.length };
        let long = cell.value.len() > 12;
        builder.add_with(&cell.as_ref(), long.then_some(&reference)).unwrap();
    }
    let info = builder.finish().unwrap();
    assert!(info.has_wal_values() && info.log_bytes > 0);
    Fixture { _dir: dir, path, storage, cache: BlockCache::new(cache_bytes), info, cells }
}

#[test]
fn values_in_the_wal_read_back_whether_compactions_may_hold_the_wal_or_not() {
    let probes: Vec<Vec<u8>> = (0..80).map(|i| format!("a/common/prefix/{i:06}").into_bytes()).collect();
    for cache_bytes in [1 << 20, 0] {
        assert_reads_back(&wal_values_table(numbered(40, 3), cache_bytes), &probes);
    }
}

#[test]
fn a_pinned_value_outlives_the_next_step_of_its_cursor() {
    let fixture = wal_values_table(numbered(40, 1), 1 << 20);
    let mut cursor = fixture.open().unwrap().cursor(CursorOptions::default());
    cursor.seek(b"").unwrap();
    let mut pins: Vec<Pinned> = Vec::new();
    while cursor.valid() {
        pins.push(pinned(&cursor));
        cursor.next().unwrap();
    }
    drop(cursor);
    assert!(pins.iter().zip(&fixture.cells).all(|(pin, cell)| *pin == cell.value));
    assert_eq!(pins.len(), fixture.cells.len());
}

#[test]
fn a_reference_to_a_sound_entry_of_another_cell_is_refused() {
    let mut fixture = wal_values_table(numbered(40, 1), 1 << 20);
    let options = small(Compression::None);
    let storage = fixture.storage.clone();
    storage.remove(&fixture.path).unwrap();
    let mut builder = TableBuilder::new(&*storage, &fixture.path, ID, 0x5eed, &options, 77).unwrap();
    builder.set_log_database(DATABASE);
    let cell = fixture.cells[0].as_ref();
    let other = fixture.cells[1].as_ref();
    let reference = Reference { file: fixture.info.logs[0], offset: FIRST_ENTRY, length: entry_bytes(&cell) };
    builder.add_with(&CellRef { key: other.key, ..cell }, Some(&reference)).unwrap();
    fixture.info = builder.finish().unwrap();
    let table = fixture.open().unwrap();
    let refused = get(&table, other.key, SeqNo::MAX).unwrap_err();
    assert!(refused.to_string().contains("another cell"), "{refused}");
    assert!(table.verify().unwrap_err().to_string().contains("another cell"));
}
