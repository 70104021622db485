//! SSTables that are read in a mapping: the same answers, and none from bytes of failed pages.

use super::*;
use crate::ErrorKind;
use crate::storage::MappedRead;
use crate::storage::sim::SimWorld;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Some hundred pages. Nearly all blocks were read and count as verified, as the clock stands still. Indices
/// are pinned.
fn read_once(compression: Compression) -> (Fixture, Arc<Sstable>) {
    let fixture = Fixture::new(numbered(10_000, 1), Vec::new(), small(compression));
    fixture.cache.set_capacity(8 << 20);
    fixture.cache.believe(&SimWorld::new(1).env().clock);
    let table = fixture.open_through(Through::Mapping).unwrap();
    let mut cursor = table.cursor(CursorOptions::default());
    cursor.seek(b"").unwrap();
    assert!(forward(&mut cursor).unwrap() == fixture.cells);
    (fixture, table)
}

#[test]
fn of_uncompressed_blocks_nothing_is_asked_of_the_cache() {
    let (fixture, table) = read_once(Compression::None);
    for cell in &fixture.cells {
        assert_eq!(get(&table, &cell.key, SeqNo::MAX).unwrap(), std::slice::from_ref(cell));
    }
    let stats = fixture.cache.stats();
    assert_eq!((stats.data.hits, stats.data.misses, stats.data_bytes), (0, 0, 0));
    let (fixture, _table) = read_once(Compression::Lz4);
    let stats = fixture.cache.stats();
    assert!(stats.data.misses > 0 && stats.data_bytes > 0, "compressed ones come by the cache");
}

#[test]
fn a_value_outlives_its_table_and_its_file() {
    let (fixture, table) = read_once(Compression::None);
    let mut cursor = table.cursor(CursorOptions::default());
    cursor.seek(&fixture.cells[5_000].key).unwrap();
    let (first, expected) = (pinned(&cursor), fixture.cells[5_000].value.clone());
    let mut again = first.clone();
    cursor.next().unwrap();
    cursor.pin_value(&mut again).unwrap();
    assert_eq!(again, fixture.cells[5_001].value);
    drop((cursor, table));
    std::fs::OpenOptions::new().write(true).open(&fixture.path).unwrap().set_len(0).unwrap();
    assert_eq!(first, expected);
}

#[test]
fn a_file_that_is_cut_short_under_its_readers_is_an_error_and_ends_nothing() {
    let (fixture, table) = read_once(Compression::None);
    let (cells, len) = (&fixture.cells, fixture.info.bytes);
    let mut there = table.cursor(CursorOptions::default());
    there.seek(&cells[6_000].key).unwrap();
    let mut before = table.cursor(CursorOptions::default());
    before.seek(b"").unwrap();
    // Index and filter are pinned from now on.
    let _ = [100, 9_000].map(|n: usize| get(&table, &cells[n].key, SeqNo::MAX).unwrap());
    std::fs::OpenOptions::new().write(true).open(&fixture.path).unwrap().set_len(len / 2).unwrap();
    // A get reads the file instead and reports the error.
    let told = get(&table, &cells[9_000].key, SeqNo::MAX).unwrap_err();
    assert!(told.file() == Some(&*fixture.path) && told.kind() == ErrorKind::Corruption, "{told:?}");
    assert!(told.to_string().contains("file ends within"), "{told}");
    assert_eq!(get(&table, &cells[100].key, SeqNo::MAX).unwrap(), cells[100..101]);
    // Cursors, one in the failed part and one that reaches it, return some of the cells and an error.
    let mut value = Pinned::default();
    let told = there.pin_value(&mut value).unwrap_err();
    assert!(told.to_string().contains("mapping could not be read") && told.kind() == ErrorKind::Io, "{told}");
    assert!(there.next().is_err() && !there.valid());
    let mut found = Vec::new();
    let end = loop {
        found.push(before.cell().to_cell());
        match before.next() {
            Ok(()) => assert!(before.valid()),
            Err(e) => break e,
        }
    };
    assert!(found[..] == cells[..found.len()] && end.file() == Some(&*fixture.path), "{end}");
}

#[test]
fn a_scan_over_pages_that_are_gone_gives_no_zeros() {
    let (fixture, table) = read_once(Compression::None);
    std::fs::OpenOptions::new().write(true).open(&fixture.path).unwrap().set_len(8192).unwrap();
    let mut cursor = table.cursor(CursorOptions::default());
    let mut value = Pinned::default();
    cursor.seek(b"").unwrap();
    let mut count = 0;
    while cursor.pin_value(&mut value).is_ok() {
        assert!(cursor.key() == fixture.cells[count].key && value == fixture.cells[count].value);
        count += 1;
        if cursor.next().is_err() {
            break;
        }
    }
    assert!(count > 10 && count < 1000, "{count}");
}

/// A mapping that loses one of its pages after a number of accesses. The file stays whole.
struct Losing {
    whole: Vec<u8>,
    torn: Vec<u8>,
    left: AtomicUsize,
    failed: AtomicBool,
}

impl MappedRead for Losing {
    fn bytes(&self) -> &[u8] {
        let left = self.left.load(Ordering::Relaxed);
        self.left.store(left.saturating_sub(1), Ordering::Relaxed);
        if left == 0 {
            self.failed.store(true, Ordering::Relaxed);
        }
        if left == 0 { &self.torn } else { &self.whole }
    }
    fn failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }
}

#[test]
fn of_a_block_that_is_lost_half_way_no_key_is_passed_over() {
    let fixture = Fixture::new(numbered(300, 1), Vec::new(), small(Compression::None));
    fixture.cache.set_capacity(8 << 20);
    fixture.cache.believe(&SimWorld::new(1).env().clock);
    let mut table = fixture.open_through(Through::Mapping).unwrap();
    let whole = table.map.as_ref().unwrap().bytes().to_vec();
    let (cells, mut told) = (&fixture.cells, 0);
    for (page, left) in (0..whole.len() / 64).flat_map(|page| [(page, 0), (page, 1), (page, 2)]) {
        // All blocks count as verified.
        table = fixture.open_through(Through::Mapping).unwrap();
        let mut cursor = table.cursor(CursorOptions::default());
        cursor.seek(b"").unwrap();
        assert_eq!(forward(&mut cursor).unwrap(), *cells);
        drop(cursor);
        let mut torn = whole.clone();
        torn[page * 64..][..64].fill(0);
        let losing = || {
            let (whole, torn) = (whole.clone(), torn.clone());
            Arc::new(Losing { whole, torn, left: AtomicUsize::new(left), failed: AtomicBool::new(false) })
        };
        for at in (page % 7..cells.len()).step_by(7) {
            Arc::get_mut(&mut table).expect("nobody else has it").map = Some(losing());
            match get(&table, &cells[at].key, SeqNo::MAX) {
                Ok(found) => assert_eq!(found, cells[at..=at], "get {at}, page {page}, {left}"),
                Err(_) => told += 1,
            }
            for forwards in [true, false] {
                Arc::get_mut(&mut table).expect("nobody else has it").map = Some(losing());
                let mut cursor = table.cursor(CursorOptions::default());
                let sought = match forwards {
                    true => cursor.seek(&cells[at].key),
                    false => cursor.seek_before(Some(&cells[at].key)),
                };
                let mut next = if forwards { Some(at) } else { at.checked_sub(1) };
                let mut found = sought;
                for _ in 0..6 {
                    if found.is_err() {
                        told += 1;
                        break;
                    }
                    let expected = next.and_then(|next| cells.get(next));
                    assert_eq!(
                        cursor.valid().then(|| cursor.key().to_vec()),
                        expected.map(|c| c.key.clone())
                    );
                    if !cursor.valid() {
                        break;
                    }
                    next = if forwards { next.map(|n| n + 1) } else { next.and_then(|n| n.checked_sub(1)) };
                    found = if forwards { cursor.next() } else { cursor.prev() };
                }
            }
        }
    }
    assert!(told > 100, "{told}");
}
