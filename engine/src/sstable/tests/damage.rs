//! Damaged SSTables: a right answer or an error that names the file, never a panic or a wrong answer.

#![expect(clippy::disallowed_methods, reason = "damage is done behind the storage trait's back")]

use super::*;
use crate::ErrorKind;
use crate::cache::Block;

fn fixture(compression: &str) -> Fixture {
    let tombstones =
        vec![tombstone("a/common/prefix/000010", "a/common/prefix/000020", 9), tombstone("b", "d", 4)];
    Fixture::new(numbered(60, 2), tombstones, small(compression.parse().unwrap()))
}

/// Reads everything by every way; each answer must be right or an error of corruption in this file.
fn assert_right_or_refused(fixture: &Fixture, whole: &Arc<Sstable>, what: &str) -> bool {
    let mut refused = false;
    let mut judge = |result: Result<bool, crate::Error>, way: &str| match result {
        Ok(right) => assert!(right, "{what}: wrong answer by {way}"),
        Err(e) => {
            assert!(matches!(e.kind(), ErrorKind::Corruption | ErrorKind::Unsupported), "{what}: {e:?}");
            assert!(e.file() == Some(&*fixture.path) || e.kind() == ErrorKind::Unsupported, "{what}: {e:?}");
            refused = true;
        }
    };
    let (table, mapped) = match (fixture.open(), fixture.open_through(Through::Mapping)) {
        (Ok(table), Ok(mapped)) => (table, mapped),
        (table, mapped) => {
            let told = [table.err(), mapped.err()].map(|e| e.expect("both are refused"));
            told.into_iter().for_each(|e| judge(Err(e), "open"));
            return true;
        }
    };
    judge(Ok(table.fragments() == whole.fragments()), "fragments");
    judge(table.sketch().map(|s| s == whole.sketch().unwrap_or_default()), "sketch");
    let mut cursor = table.cursor(CursorOptions { read_ahead_bytes: 4096, ..BARE });
    judge(cursor.seek(b"").and_then(|()| forward(&mut cursor)).map(|cells| cells == fixture.cells), "next");
    judge(
        cursor.seek_before(None).and_then(|()| backward(&mut cursor)).map(|cells| cells == fixture.cells),
        "prev",
    );
    for i in (0..fixture.cells.len()).step_by(2) {
        let key = &fixture.cells[i].key;
        judge(get(&table, key, SeqNo::MAX).map(|cells| cells == fixture.cells[i..i + 2]), "get");
        judge(get(&mapped, key, SeqNo::MAX).map(|cells| cells == fixture.cells[i..i + 2]), "mapped get");
    }
    let mut cursor = mapped.cursor(CursorOptions::default());
    judge(cursor.seek(b"").and_then(|()| forward(&mut cursor)).map(|cells| cells == fixture.cells), "mapped");
    judge(table.verify().map(|v| v.cells == fixture.cells.len() as u64), "verify");
    refused
}

#[test]
fn every_flipped_byte_is_found_and_no_answer_is_wrong() {
    for compression in ["none", "lz4"] {
        let fixture = fixture(compression);
        let good = std::fs::read(&fixture.path).unwrap();
        let whole = fixture.open().unwrap();
        for at in 0..good.len() {
            let mut bytes = good.clone();
            bytes[at] ^= 1 << (at % 8);
            std::fs::write(&fixture.path, &bytes).unwrap();
            let is_found = assert_right_or_refused(&fixture, &whole, &format!("flip at {at}"));
            assert!(is_found, "flip at {at} not found");
        }
    }
}

#[test]
fn every_truncation_is_refused_at_open() {
    let fixture = fixture("lz4");
    let good = std::fs::read(&fixture.path).unwrap();
    for len in 0..good.len() {
        std::fs::write(&fixture.path, &good[..len]).unwrap();
        assert_eq!(fixture.open().unwrap_err().kind(), ErrorKind::Corruption, "cut to {len}");
    }
    std::fs::write(&fixture.path, [&good[..], b"x"].concat()).unwrap();
    assert_eq!(fixture.open().unwrap_err().kind(), ErrorKind::Corruption);
}

#[test]
fn swapped_and_foreign_blocks_and_files_are_refused() {
    let same_size =
        || (0..200).map(|i| cell(format!("{i:08}").as_bytes(), 1, b"0123456789")).collect::<Vec<_>>();
    let fixture = Fixture::new(same_size(), Vec::new(), small(Compression::None));
    let table = fixture.open().unwrap();
    let blocks: Vec<BlockListing> = table.blocks().collect::<Result<_, _>>().unwrap();
    assert_eq!(blocks[2].file_bytes, blocks[3].file_bytes);
    let good = std::fs::read(&fixture.path).unwrap();
    let (a, b, n) = (blocks[2].offset as usize, blocks[3].offset as usize, blocks[2].file_bytes as usize);
    let mut swapped = good.clone();
    swapped.copy_within(b..b + n, a);
    swapped[b..b + n].copy_from_slice(&good[a..a + n]);
    std::fs::write(&fixture.path, &swapped).unwrap();
    let error = table.verify().unwrap_err();
    assert!(error.to_string().contains("check of"), "{error}");
    assert_eq!((error.kind(), error.offset()), (ErrorKind::Corruption, Some(a as u64)));

    // The same cells under another identity: every byte but the checksums may be equal.
    std::fs::remove_file(&fixture.path).unwrap();
    let options = small(Compression::None);
    let mut builder = TableBuilder::new(&*fixture.storage, &fixture.path, ID, 0xbad, &options, 77).unwrap();
    fixture.cells.iter().for_each(|c| builder.add(&c.as_ref()).unwrap());
    builder.finish().unwrap();
    assert!(fixture.open().unwrap_err().to_string().contains("identity"));
    let foreign = std::fs::read(&fixture.path).unwrap();
    let mut mixed = good.clone();
    mixed[a..a + n].copy_from_slice(&foreign[a..a + n]);
    std::fs::write(&fixture.path, &mixed).unwrap();
    assert_eq!(table.verify().unwrap_err().offset(), Some(a as u64));
}

#[test]
fn a_scan_rescues_all_blocks_but_the_damaged_one() {
    let fixture = fixture("lz4");
    let table = fixture.open().unwrap();
    let blocks: Vec<BlockListing> = table.blocks().collect::<Result<_, _>>().unwrap();
    let good = std::fs::read(&fixture.path).unwrap();
    let scan = |bytes: &[u8], identity| {
        std::fs::write(&fixture.path, bytes).unwrap();
        let mut cells = Vec::new();
        let report =
            scan_readable(&*fixture.storage, &fixture.path, identity, 0, &mut |c| cells.push(c.to_cell()))
                .unwrap();
        (report, cells)
    };
    let (report, cells) = scan(&good, None);
    assert_eq!((report.lost.len(), report.tombstones.as_ref().map(Vec::len)), (0, Some(2)));
    assert_eq!(cells, fixture.cells);

    let hurt = &blocks[3];
    // A damaged head loses the length and the next block must be searched; with a damaged payload it is
    // known.
    for at in [hurt.offset, hurt.offset + 2, hurt.offset + 12, hurt.offset + hurt.file_bytes - 1] {
        let mut bytes = good.clone();
        bytes[at as usize] ^= 0x40;
        let (report, cells) = scan(&bytes, None);
        assert_eq!(report.lost, vec![hurt.offset..hurt.offset + hurt.file_bytes], "at {at}");
        assert_eq!(cells.len() as u64, fixture.info.cells - hurt.cells);
        assert!(cells.iter().all(|c| fixture.cells.contains(c)));
    }
    // Index, footer and all after them lost: every cell is still found.
    let (report, cells) = scan(&good[..table.data_end() as usize + 3], None);
    assert_eq!((cells, report.tombstones), (fixture.cells.clone(), None));
    // Header and footer lost: nothing without the identity, everything with it.
    let mut bytes = good.clone();
    bytes[0] = 0;
    bytes.truncate(good.len() - 5);
    assert_eq!(scan(&bytes, None).1, []);
    assert_eq!(scan(&bytes, Some(0x5eed)).1, fixture.cells);
}

#[test]
fn bytes_below_the_clip_may_be_gone() {
    let mut fixture = fixture("none");
    let table = fixture.open().unwrap();
    let blocks: Vec<BlockListing> = table.blocks().collect::<Result<_, _>>().unwrap();
    let clip = blocks[10].first_key.clone();
    let mut cursor = table.cursor(CursorOptions::default());
    cursor.seek(&clip).unwrap();
    let dead_end = cursor.offset();
    fixture.info.clip = Some(crate::shape::Clip { key: clip.clone(), bytes_below: dead_end });
    let mut bytes = std::fs::read(&fixture.path).unwrap();
    bytes[blocks[0].offset as usize..dead_end as usize].fill(0);
    std::fs::write(&fixture.path, bytes).unwrap();
    assert!(table.verify().is_err());
    let clipped = fixture.open().unwrap();
    let verified = clipped.verify().unwrap();
    assert!(verified.dead_blocks >= 9, "{verified:?}");
    let mut cursor = clipped.cursor(BARE);
    cursor.seek(&clip).unwrap();
    let live = fixture.cells.iter().filter(|c| c.key >= clip).count();
    assert_eq!(forward(&mut cursor).unwrap().len(), live);
}

#[test]
fn bytes_below_any_clip_may_be_gone_for_seeks_to_it_gets_and_steps_back() {
    let fixture = fixture("none");
    let good = std::fs::read(&fixture.path).unwrap();
    let table = fixture.open().unwrap();
    // Every key, and one in each gap between two.
    let keys = fixture.cells.iter().flat_map(|c| [c.key.clone(), [&c.key[..], b"+"].concat()]);
    let mut gone = 0;
    for clip in keys {
        let dead_end = table.cursor(BARE).dead_below(&clip).unwrap();
        gone = gone.max(dead_end);
        let mut bytes = good.clone();
        if dead_end > footer::HEADER_BYTES as u64 {
            bytes[footer::HEADER_BYTES..dead_end as usize].fill(0);
        }
        std::fs::write(&fixture.path, bytes).unwrap();
        let clipped = fixture.open().unwrap();
        let mut cursor = clipped.cursor(BARE);
        cursor.seek(&clip).unwrap();
        let live = fixture.cells.iter().filter(|c| c.key >= clip).count();
        assert_eq!(forward(&mut cursor).unwrap().len(), live);
        cursor.seek(&clip).unwrap();
        if cursor.valid() {
            get(&clipped, cursor.cell().key, SeqNo::MAX).unwrap();
            cursor.prev().unwrap();
        }
        cursor.seek_before(Some(&[&clip[..], b"+"].concat())).unwrap();
    }
    assert!(gone > table.data_end() / 2, "most of the table can go in the end");
}

#[test]
fn forged_blocks_never_panic() {
    // Past the checksum: bytes that a hostile or broken writer could have signed.
    let mut builder = block_builder::BlockBuilder::new(3);
    let cells = numbered(12, 2);
    cells.iter().for_each(|c| builder.add(&c.as_ref()));
    let good = builder.finish().to_vec();
    let mut random = 1u64;
    for round in 0..40_000 {
        let mut bytes = good.clone();
        for _ in 0..1 + round % 3 {
            random = hash(&random.to_le_bytes());
            let at = random as usize % bytes.len();
            bytes[at] = (random >> 32) as u8;
        }
        if round % 7 == 0 {
            bytes.drain(..random as usize % 40);
        }
        let Ok(block) = Block::new(bytes) else { continue };
        let mut cursor = block_cursor::BlockCursor::default();
        cursor.set(Arc::new(block));
        let _ = cursor.first();
        for _ in 0..40 {
            let _ = cursor.next();
        }
        for c in cells.iter().step_by(5) {
            let _ = cursor.seek(&c.key);
            let _ = cursor.seek_before(&c.key);
            let _ = cursor.prev();
        }
        let _ = cursor.last();
        let _ = cursor.prev();
    }
}

#[test]
fn going_back_to_the_clip_reads_no_block_below_it() {
    let fixture = fixture("none");
    let table = fixture.open().unwrap();
    let blocks: Vec<_> = table.blocks().collect::<Result<_, _>>().unwrap();
    let middle = &blocks[blocks.len() / 2];
    let clip = middle.first_key.clone();
    let live = fixture.cells.iter().filter(|cell| cell.key >= clip).count();
    // Blocks below the clip may be gone.
    let mut bytes = std::fs::read(&fixture.path).unwrap();
    bytes[blocks[0].offset as usize..blocks[blocks.len() / 2 - 1].offset as usize].fill(0);
    std::fs::write(&fixture.path, &bytes).unwrap();
    let mut cursor = table.cursor(BARE);
    cursor.set_floor(&clip);
    cursor.seek_before(None).unwrap();
    let found = backward(&mut cursor).unwrap();
    assert!(found.len() >= live && found.len() < fixture.cells.len());
    cursor.set_floor(b"");
    cursor.seek_before(None).unwrap();
    assert_eq!(backward(&mut cursor).unwrap_err().kind(), ErrorKind::Corruption);
}
