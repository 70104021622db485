//! SSTables as a whole: cells are read back, by every way of reading.

use super::*;
use crate::cache::BlockCache;
use crate::shape::TableInfo;
use crate::storage::{LocalStorage, Storage};
use crate::types::{
    Cell, CellRef, Cursor, KEY_BYTES_MAX, KeyRange, Kind, Pinned, RangeTombstone, SeqNo, StoreId, TableId,
    Timestamp, hash,
};
use proptest::prelude::*;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;

mod damage;
mod mapped;
mod references;

struct Fixture {
    _dir: tempfile::TempDir,
    path: PathBuf,
    storage: Arc<dyn Storage>,
    cache: Arc<BlockCache>,
    info: TableInfo,
    cells: Vec<Cell>,
}

/// A cursor that reads block by block, past the cache.
const BARE: CursorOptions = CursorOptions { fill_cache: false, read_ahead_bytes: 0, through_cache: false };
const ID: TableId = TableId { store: StoreId(4), epoch: 1, job: 2, part: 3 };

fn small(compression: Compression) -> TableOptions {
    let (block_bytes, index_partition_bytes) = (200, 150);
    TableOptions { block_bytes, restart_interval: 4, compression, bloom_bits: 10, index_partition_bytes }
}

fn cell(key: &[u8], seq: u64, value: &[u8]) -> Cell {
    let (key, value, timestamp) = (key.into(), value.into(), Timestamp::ZERO);
    Cell { key, timestamp, seq: SeqNo(seq), kind: Kind::Value, written: 0, value }
}

fn tombstone(start: &str, end: &str, seq: u64) -> RangeTombstone {
    let range = KeyRange::new(start, end);
    RangeTombstone { range, from: Timestamp::ZERO, to: Timestamp::MAX, seq: SeqNo(seq) }
}

/// `n` keys with a long common prefix and gaps, each with `versions` versions.
fn numbered(n: usize, versions: u64) -> Vec<Cell> {
    (0..n)
        .flat_map(|i| {
            let key = format!("a/common/prefix/{:06}", i * 2);
            (0..versions).rev().map(move |v| {
                let value = format!("value {i} {v}").repeat(1 + i % 3);
                cell(key.as_bytes(), 1000 * v + i as u64 + 1, value.as_bytes())
            })
        })
        .collect()
}

impl Fixture {
    fn new(cells: Vec<Cell>, tombstones: Vec<RangeTombstone>, options: TableOptions) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(ID.file_name());
        let storage: Arc<dyn Storage> = Arc::new(LocalStorage::new());
        let mut builder = TableBuilder::new(&*storage, &path, ID, 0x5eed, &options, 77).unwrap();
        cells.iter().for_each(|cell| builder.add(&cell.as_ref()).unwrap());
        tombstones.into_iter().for_each(|t| builder.add_range_tombstone(t).unwrap());
        let info = builder.finish().unwrap();
        Self { _dir: dir, path, storage, cache: BlockCache::new(1 << 20), info, cells }
    }

    fn open(&self) -> Result<Arc<Sstable>, crate::Error> {
        self.open_through(Through::PageCache)
    }

    fn open_through(&self, through: Through) -> Result<Arc<Sstable>, crate::Error> {
        let access = Access { through, ..Access::default() };
        Sstable::open_with(&self.storage, &self.path, Arc::new(self.info.clone()), &self.cache, access)
    }
}

fn get(table: &Sstable, key: &[u8], read: SeqNo) -> Result<Vec<Cell>, crate::Error> {
    let mut found = Vec::new();
    let flow = table.get(key, hash(key), read, &mut |cell: &CellRef<'_>, _: &dyn crate::types::Owner| {
        found.push(cell.to_cell());
        ControlFlow::Continue(())
    })?;
    assert!(flow.is_continue());
    Ok(found)
}

fn forward(cursor: &mut TableCursor) -> Result<Vec<Cell>, crate::Error> {
    let mut found = Vec::new();
    while cursor.valid() {
        found.push(cursor.cell().to_cell());
        cursor.next()?;
    }
    Ok(found)
}

fn here(cursor: &TableCursor) -> Option<Cell> {
    cursor.valid().then(|| cursor.cell().to_cell())
}

fn backward(cursor: &mut TableCursor) -> Result<Vec<Cell>, crate::Error> {
    let mut found = Vec::new();
    while cursor.valid() {
        found.push(cursor.cell().to_cell());
        cursor.prev()?;
    }
    found.reverse();
    Ok(found)
}

/// Every way of reading must give the written cells.
fn assert_reads_back(fixture: &Fixture, probes: &[Vec<u8>]) {
    for through in [Through::PageCache, Through::Device, Through::Mapping] {
        match fixture.open_through(through) {
            Ok(table) => assert_table_reads_back(fixture, &table, probes),
            // Some file systems do not support it.
            Err(e) => assert_eq!((through, e.kind()), (Through::Device, crate::ErrorKind::Unsupported)),
        }
    }
}

fn assert_table_reads_back(fixture: &Fixture, table: &Arc<Sstable>, probes: &[Vec<u8>]) {
    let cells = &fixture.cells;
    let verified = table.verify().unwrap();
    assert_eq!((verified.cells, verified.bytes), (cells.len() as u64, fixture.info.bytes));
    let unknown = Sstable::open_unknown(&fixture.storage, &fixture.path, &fixture.cache).unwrap();
    assert_eq!(**unknown.info(), fixture.info);
    for options in [CursorOptions::default(), BARE, CursorOptions { read_ahead_bytes: 1 << 20, ..BARE }] {
        let mut cursor = table.cursor(options);
        assert!(!cursor.valid());
        cursor.seek(b"").unwrap();
        assert_eq!(forward(&mut cursor).unwrap(), *cells);
        cursor.seek_before(None).unwrap();
        assert_eq!(backward(&mut cursor).unwrap(), *cells);
        for probe in probes {
            let at = cells.partition_point(|c| c.key < *probe);
            let (found, before) = (cells.get(at).cloned(), at.checked_sub(1).map(|i| cells[i].clone()));
            cursor.seek(probe).unwrap();
            assert_eq!(here(&cursor), found);
            if cursor.valid() {
                cursor.prev().unwrap();
                assert_eq!(here(&cursor), before);
            }
            cursor.seek_before(Some(probe)).unwrap();
            assert_eq!(here(&cursor), before);
            if cursor.valid() {
                cursor.next().unwrap();
                assert_eq!(here(&cursor), found);
            }
        }
    }
    for probe in probes {
        for read in [SeqNo::MAX, SeqNo(500), SeqNo::ZERO] {
            let expected: Vec<Cell> =
                cells.iter().filter(|c| c.key == *probe && c.seq <= read).cloned().collect();
            assert_eq!(get(table, probe, read).unwrap(), expected, "{}", probe.escape_ascii());
        }
    }
}

fn probes(cells: &[Cell]) -> Vec<Vec<u8>> {
    let near = |key: &Vec<u8>| [key.clone(), [key.as_slice(), b"\0"].concat(), key[..key.len() / 2].to_vec()];
    let mut probes: Vec<_> = cells.iter().flat_map(|c| near(&c.key)).collect();
    probes.extend([b"".to_vec(), b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff".to_vec()]);
    probes.sort();
    probes.dedup();
    probes
}

fn a_cell() -> impl Strategy<Value = Cell> {
    let key = prop_oneof![
        Just(Vec::new()),
        proptest::collection::vec(0u8..3, 0..12),
        proptest::collection::vec(any::<u8>(), 1..4),
        "[ab]{0,3}".prop_map(|s| [b"a long prefix that many keys share/".as_slice(), s.as_bytes()].concat()),
    ];
    let value = prop_oneof![
        8 => proptest::collection::vec(any::<u8>(), 0..40),
        1 => (0usize..5000).prop_map(|n| vec![7; n]),
    ];
    let times = prop_oneof![Just(0), 1u64..5, any::<u64>()];
    (key, 0u64..1000, 0u8..3, times.clone(), times, value).prop_map(
        |(key, seq, kind, timestamp, written, value)| {
            let kind = Kind::from_u8(kind).unwrap();
            let value = if kind == Kind::Tombstone { Vec::new() } else { value };
            Cell { key, timestamp: Timestamp(timestamp), seq: SeqNo(seq), kind, written, value }
        },
    )
}

fn sorted(mut cells: Vec<Cell>) -> Vec<Cell> {
    cells.sort_by(|a, b| a.as_ref().order(&b.as_ref()));
    cells.dedup_by(|a, b| a.as_ref().order(&b.as_ref()).is_eq());
    cells
}

/// The slowest codec of this build.
const ZSTD: &str = if cfg!(feature = "zstd") { "zstd:1" } else { "lz4" };

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]
    #[test]
    fn whatever_was_written_is_read_back(
        cells in proptest::collection::vec(a_cell(), 0..120),
        compression in prop_oneof![Just("none"), Just("lz4"), Just(ZSTD)],
        (block, restart, bloom, partition) in (64usize..600, 1usize..9, 0u32..16, 64usize..400),
    ) {
        let options = TableOptions {
            block_bytes: block,
            restart_interval: restart,
            compression: compression.parse().unwrap(),
            bloom_bits: bloom,
            index_partition_bytes: partition,
        };
        let fixture = Fixture::new(sorted(cells), Vec::new(), options);
        let probes = probes(&fixture.cells);
        assert_reads_back(&fixture, &probes);
    }
}

#[test]
fn a_key_whose_versions_span_partitions_is_read_whole() {
    let mut cells = numbered(5, 1);
    cells.extend((1..=900).rev().map(|seq| cell(b"hot", seq, b"some value of the hot key")));
    cells.extend(numbered(5, 1).into_iter().map(|c| Cell { key: [b"z".as_slice(), &c.key].concat(), ..c }));
    let fixture = Fixture::new(cells, Vec::new(), small(Compression::None));
    let table = fixture.open().unwrap();
    assert!(table.properties().data_blocks > 50);
    let probes = probes(&fixture.cells);
    assert_reads_back(&fixture, &probes);
    let mut first = None;
    let stop = table
        .get(b"hot", hash(b"hot"), SeqNo(450), &mut |cell: &CellRef<'_>, _: &dyn crate::types::Owner| {
            first = Some(cell.seq);
            ControlFlow::Break(())
        })
        .unwrap();
    assert!(stop.is_break());
    assert_eq!(first, Some(SeqNo(450)));
}

#[test]
fn a_value_larger_than_all_buffers_survives_every_compression() {
    let noise: Vec<u8> = (0..3u64 << 17).flat_map(|n| hash(&n.to_le_bytes()).to_le_bytes()).collect();
    for compression in ["none", "lz4", ZSTD] {
        let cells = vec![
            cell(b"a", 1, b"x"),
            cell(b"b", 2, &noise),
            cell(b"c", 3, &vec![0; 3 << 20]),
            cell(b"d", 4, b""),
        ];
        let options = TableOptions { compression: compression.parse().unwrap(), ..TableOptions::default() };
        let fixture = Fixture::new(cells, Vec::new(), options);
        assert_reads_back(&fixture, &[b"b".to_vec(), b"c".to_vec(), b"d".to_vec()]);
    }
}

/// The cursor's current value, pinned.
fn pinned(cursor: &TableCursor) -> Pinned {
    let mut value = Pinned::default();
    cursor.pin_value(&mut value).unwrap();
    value
}

#[test]
fn a_pinned_value_outlives_cursor_table_and_cache() {
    let fixture = Fixture::new(numbered(100, 1), Vec::new(), small(Compression::Lz4));
    let mut cursor = fixture.open().unwrap().cursor(CursorOptions::default());
    cursor.seek(&fixture.cells[42].key).unwrap();
    let pinned = pinned(&cursor);
    cursor.next().unwrap();
    drop(cursor);
    fixture.cache.set_capacity(0);
    assert_eq!(pinned, fixture.cells[42].value);
}

#[test]
fn a_cached_get_reads_nothing_and_an_absent_key_stops_at_the_filter() {
    let fixture = Fixture::new(numbered(2000, 1), Vec::new(), TableOptions::default());
    let table = fixture.open().unwrap();
    let key = &fixture.cells[1234].key;
    get(&table, key, SeqNo::MAX).unwrap();
    let cold = fixture.cache.stats();
    assert_eq!((cold.data.misses, cold.index.misses, cold.filter.misses), (1, 1, 1));
    get(&table, key, SeqNo::MAX).unwrap();
    let warm = fixture.cache.stats();
    assert_eq!((warm.data.misses, warm.index.misses, warm.filter.misses), (1, 1, 1));
    // The SSTable pins its index and filter.
    assert_eq!((warm.data.hits, warm.index.hits, warm.filter.hits), (1, 0, 0));
    let mut passed = 0;
    for i in 0..1999 {
        let before = fixture.cache.stats().data;
        let absent = format!("a/common/prefix/{:06}", 2 * i + 1);
        assert!(get(&table, absent.as_bytes(), SeqNo::MAX).unwrap().is_empty());
        passed += u32::from(fixture.cache.stats().data != before);
    }
    assert!(passed < 60, "{passed} of 1999 absent keys passed the filter");
}

#[test]
fn the_last_key_of_a_block_costs_one_data_block() {
    let fixture = Fixture::new(numbered(2000, 1), Vec::new(), small(Compression::None));
    let table = fixture.open().unwrap();
    for c in &fixture.cells {
        let before = fixture.cache.stats().data;
        get(&table, &c.key, SeqNo::MAX).unwrap();
        let after = fixture.cache.stats().data;
        assert_eq!(after.hits + after.misses, before.hits + before.misses + 1);
    }
}

#[test]
fn an_ingested_table_takes_one_sequence_number_everywhere() {
    let mut fixture = Fixture::new(numbered(50, 1), vec![tombstone("b", "c", 3)], small(Compression::Lz4));
    let key = fixture.cells[7].key.clone();
    fixture.info.ingested_at = Some(SeqNo(9000));
    fixture.info.id = TableId { epoch: 9, job: 9, part: 9, ..TableId::default() };
    fixture.info.seqs = (SeqNo(9000), SeqNo(9000));
    let table = fixture.open().unwrap();
    assert!(get(&table, &key, SeqNo(8999)).unwrap().is_empty());
    assert_eq!(get(&table, &key, SeqNo(9000)).unwrap()[0].seq, SeqNo(9000));
    let mut cursor = table.cursor(CursorOptions::default());
    cursor.seek(b"").unwrap();
    assert!(forward(&mut cursor).unwrap().iter().all(|c| c.seq == SeqNo(9000)));
    assert_eq!(table.fragments().newest_over(b"bb", Timestamp::ZERO, SeqNo::MAX), Some(SeqNo(9000)));
    table.verify().unwrap();
}

#[test]
fn a_table_of_range_tombstones_alone_covers_their_range() {
    let range = KeyRange { start: b"k".to_vec(), end: None };
    let tombstone =
        RangeTombstone { range: range.clone(), from: Timestamp(1), to: Timestamp(5), seq: SeqNo(8) };
    let fixture = Fixture::new(Vec::new(), vec![tombstone], TableOptions::default());
    assert_eq!(
        (fixture.info.range.clone(), fixture.info.cells, fixture.info.range_tombstones),
        (range, 0, 1)
    );
    assert_eq!(fixture.info.seqs, (SeqNo(8), SeqNo(8)));
    let table = fixture.open().unwrap();
    assert_eq!(table.fragments().newest_over(b"z", Timestamp(5), SeqNo::MAX), Some(SeqNo(8)));
    assert_reads_back(&fixture, &[b"k".to_vec()]);
}

#[test]
fn info_counts_what_was_added() {
    let mut cells = numbered(10, 2);
    cells.push(Cell { kind: Kind::Tombstone, timestamp: Timestamp(50), ..cell(b"b", 9999, b"") });
    cells.push(Cell { kind: Kind::Operand, written: 40, ..cell(b"c", 5, b"+1") });
    let fixture = Fixture::new(cells, Vec::new(), TableOptions::default());
    let info = &fixture.info;
    assert_eq!((info.cells, info.tombstones, info.distinct, info.created), (22, 1, 12, 77));
    assert_eq!(info.seqs, (SeqNo(1), SeqNo(9999)));
    assert_eq!(info.times, (Timestamp(0), Timestamp(50)));
    assert_eq!(info.range, KeyRange::new("a/common/prefix/000000", b"c\0".as_slice()));
    assert_eq!(info.bytes, std::fs::metadata(&fixture.path).unwrap().len());
    let table = fixture.open().unwrap();
    assert_eq!(table.properties().operands, 1);
    assert_eq!(table.sketch().unwrap().estimate(), 12);
}

#[test]
fn blocks_are_listed_with_what_is_in_them() {
    let fixture = Fixture::new(numbered(300, 1), Vec::new(), TableOptions::default());
    let table = fixture.open().unwrap();
    let blocks: Vec<BlockListing> = table.blocks().collect::<Result<_, _>>().unwrap();
    assert_eq!(blocks.iter().map(|b| b.cells).sum::<u64>(), 300);
    assert_eq!(blocks.len() as u64, table.properties().data_blocks);
    assert_eq!(blocks[0].first_key, fixture.cells[0].key);
    assert!(blocks.iter().all(|b| b.raw_bytes < 5000 && b.file_bytes < b.raw_bytes));
    let mut cursor = table.cursor(CursorOptions::default());
    cursor.seek(&blocks[2].first_key).unwrap();
    assert_eq!(cursor.offset(), blocks[2].offset);
}

#[test]
fn oversized_keys_are_refused_and_disorder_panics() {
    let dir = tempfile::tempdir().unwrap();
    let storage = LocalStorage::new();
    let path = dir.path().join("t");
    let mut builder = TableBuilder::new(&storage, &path, ID, 1, &TableOptions::default(), 0).unwrap();
    let error = builder.add(&cell(&vec![1; KEY_BYTES_MAX + 1], 1, b"").as_ref()).unwrap_err();
    assert_eq!(error.kind(), crate::ErrorKind::Invalid);
    builder.add(&cell(&vec![1; KEY_BYTES_MAX], 1, b"").as_ref()).unwrap();
    let out_of_order = std::panic::AssertUnwindSafe(|| builder.add(&cell(b"\0", 1, b"").as_ref()));
    assert!(std::panic::catch_unwind(out_of_order).is_err());
}
