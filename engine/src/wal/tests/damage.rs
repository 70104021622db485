//! Damage at rest: every byte flipped, every length cut, files missing or swapped.

use super::*;
use crate::error::ErrorKind;

/// A WAL of 30 batches in a few files, synced or not, and its end.
fn fixture(synced: bool) -> (Disk, LogPosition, Vec<WalFileInfo>) {
    let disk = Disk::default();
    let (wal, mut appender) = fresh(&disk.env(), 1024);
    put_all(&mut appender, 0..30, 60);
    if synced {
        wal.sync().unwrap();
    }
    (disk, wal.end(), wal.files())
}

/// Recovers a damaged copy; the result must be a prefix of what was written.
fn prefix_length(disk: &Disk, known_synced: LogPosition) -> Result<usize> {
    let (batches, _) = read_back(disk, 1, known_synced, &[])?;
    assert!(batches.iter().copied().eq(0..batches.len() as u64), "not a prefix: {batches:?}");
    Ok(batches.len())
}

#[test]
fn any_damage_below_the_synced_end_is_an_error_and_dead_bytes_do_not_matter() {
    let (disk, end, files) = fixture(true);
    let mut damages = 0;
    for info in &files {
        let path = path(info.file.0);
        let bytes = disk.bytes(&path);
        for at in 0..bytes.len() {
            let mut bad = bytes.clone();
            bad[at] ^= 1 << (at % 8);
            let damaged = disk.copy();
            damaged.set_bytes(&path, bad);
            match prefix_length(&damaged, end) {
                Ok(n) => assert!(n == 30 && at as u64 >= info.used, "byte {at} of {info:?} went unnoticed"),
                Err(e) => {
                    assert_eq!(e.kind(), ErrorKind::Corruption, "{e}");
                    assert!((at as u64) < info.used, "dead byte {at} of {info:?}: {e}");
                    assert!(e.file().is_some() && e.offset().is_some(), "{e}");
                }
            }
            damages += 1;
        }
    }
    assert!(damages >= 3072);
}

#[test]
fn without_knowing_what_was_synced_damage_yields_a_prefix_or_an_error() {
    let (disk, _, files) = fixture(false);
    let (mut errors, mut prefixes) = (0, 0);
    for info in &files {
        let path = path(info.file.0);
        let bytes = disk.bytes(&path);
        for at in 0..info.used as usize {
            let mut bad = bytes.clone();
            bad[at] ^= 0x81;
            let damaged = disk.copy();
            damaged.set_bytes(&path, bad);
            match prefix_length(&damaged, LogPosition::default()) {
                Ok(n) => {
                    assert!(n < 30, "byte {at} of {info:?} went unnoticed");
                    prefixes += 1;
                }
                Err(e) => {
                    assert_eq!(e.kind(), ErrorKind::Corruption);
                    // Only bytes that later files record as synced may be an error.
                    assert!(info.file.0 + 2 <= files.last().unwrap().file.0, "{e}");
                    errors += 1;
                }
            }
        }
    }
    assert!(errors > 500 && prefixes > 500, "{errors} errors, {prefixes} prefixes");
}

#[test]
fn every_truncation_is_noticed_up_to_the_synced_end() {
    let (disk, end, files) = fixture(true);
    for info in &files {
        let path = path(info.file.0);
        let bytes = disk.bytes(&path);
        for length in 0..bytes.len() {
            let damaged = disk.copy();
            damaged.set_bytes(&path, bytes[..length].to_vec());
            match prefix_length(&damaged, end) {
                Ok(n) => assert!(n == 30 && length as u64 >= info.used, "{info:?} cut to {length}"),
                Err(e) => assert_eq!(e.kind(), ErrorKind::Corruption),
            }
            let unknown = prefix_length(&damaged, LogPosition::default());
            assert!(unknown.is_ok() || info.file.0 < files.last().unwrap().file.0);
        }
    }
}

#[test]
fn a_missing_or_foreign_file_is_noticed() {
    let (disk, end, files) = fixture(true);
    for info in &files {
        let damaged = disk.copy();
        damaged.env().storage.remove(&path(info.file.0)).unwrap();
        let e = prefix_length(&damaged, end).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::Corruption);
        // Another WAL file under this name.
        for other in files.iter().filter(|other| other.file != info.file) {
            damaged.set_bytes(&path(info.file.0), disk.bytes(&path(other.file.0)));
            assert_eq!(prefix_length(&damaged, end).unwrap_err().kind(), ErrorKind::Corruption);
        }
    }
    let (first_file, known_synced) = (LogFileId(1), LogPosition::default());
    let options = RecoverOptions { database_id: DATABASE + 1, first_file, known_synced, ends: &[] };
    let foreign = recover(&disk.env(), dir(), &options, &mut |_| Ok(()), &mut |_, _| {}).unwrap_err();
    assert!(foreign.to_string().contains("expected database"), "{foreign}");
}

#[test]
fn a_damaged_frame_before_a_later_frame_that_knew_it_synced_is_an_error() {
    let disk = Disk::default();
    let (wal, mut appender) = fresh(&disk.env(), 8192);
    put_all(&mut appender, 0..3, 60);
    let second = put(&mut appender, 3, 60).unwrap();
    wal.sync().unwrap();
    put(&mut appender, 4, 60).unwrap();
    change(&disk, 1, |bytes| bytes[second.start.offset as usize + 5] ^= 1);
    let e = prefix_length(&disk, LogPosition::default()).unwrap_err();
    assert_eq!((e.kind(), e.offset()), (ErrorKind::Corruption, Some(second.start.offset)));
    // The frame that recorded the sync is lost too: nothing is known, and history ends.
    let at = second.end.offset as usize;
    change(&disk, 1, |bytes| bytes[at..at + 4].fill(0));
    assert_eq!(prefix_length(&disk, LogPosition::default()).unwrap(), 3);
}

#[test]
fn a_bad_sector_takes_what_was_synced_and_all_evidence_of_it_only_while_no_other_sector_was_begun() {
    let disk = Disk::default();
    let (wal, mut appender) = fresh(&disk.env(), 8192);
    put_all(&mut appender, 0..12, 60);
    wal.sync().unwrap();
    let sector = put(&mut appender, 12, 60).unwrap().start.offset / 512 * 512;
    let damage = || {
        let damaged = disk.copy();
        change(&damaged, 1, |bytes| bytes[sector as usize..][..512].fill(7));
        prefix_length(&damaged, LogPosition::default())
    };
    assert!(damage().unwrap() < 12, "as if nothing had been synced");
    let mut n = 13;
    while put(&mut appender, n, 60).unwrap().start.offset < sector + 512 {
        n += 1;
    }
    assert_eq!(damage().unwrap_err().kind(), ErrorKind::Corruption);
}

#[test]
fn whole_frames_behind_a_damaged_base_are_told_as_lost_though_no_full_frame_follows() {
    let disk = Disk::default();
    let (wal, mut appender) = fresh(&disk.env(), 8192);
    let mut n = 0;
    let base = loop {
        let start = put(&mut appender, n, 60).unwrap().start;
        n += 1;
        if start.offset > 1024 {
            break start.offset;
        }
    };
    let salvaged = || {
        let mut frames = 0;
        let mut count = |_: &Frame<'_>| {
            frames += 1;
            Ok(())
        };
        let found =
            salvage(&disk.env(), dir(), DATABASE, LogFileId(1), LogPosition::default(), &[], &mut count);
        (frames, found.unwrap().lost)
    };
    assert_eq!(salvaged(), (n, Vec::new()));
    put_all(&mut appender, n..n + 5, 60);
    // A full frame follows at the latest at the end of the first one's reach.
    let first = position(1, HEADER_BYTES);
    change(&disk, 1, |bytes| bytes[first.offset as usize + 40] ^= 1);
    let (left, lost) = salvaged();
    assert!(left > 0 && lost.len() == 1 && lost[0].bytes.start == first.offset, "{left} {lost:?}");
    // The other base is lost too: nothing can be read, and that is reported though nothing was synced.
    let second = lost[0].bytes.end;
    change(&disk, 1, |bytes| bytes[second as usize + 40] ^= 1);
    let (left, lost) = salvaged();
    assert!(left == 0 && lost.len() == 1 && lost[0].bytes.start == first.offset, "{left} {lost:?}");
    assert!(base > second && wal.end().offset > base);
}

/// A third file proves that the first one was synced, even if only its header is left.
#[test]
fn the_header_of_a_later_file_alone_proves_that_what_it_follows_was_synced() {
    let disk = Disk::default();
    let (wal, mut appender) = fresh(&disk.env(), 1024);
    while wal.end().file < LogFileId(3) {
        put(&mut appender, wal.stats().frames, 60).unwrap();
    }
    for file in 1..=3 {
        change(&disk, file, |bytes| bytes[HEADER_BYTES as usize..].fill(0));
    }
    let e = prefix_length(&disk, LogPosition::default()).unwrap_err();
    assert_eq!((e.kind(), e.offset()), (ErrorKind::Corruption, Some(HEADER_BYTES)));
    disk.env().storage.remove(&path(3)).unwrap();
    assert_eq!(prefix_length(&disk, LogPosition::default()).unwrap(), 0);
}

#[test]
fn a_last_frame_torn_at_any_byte_leaves_the_frames_before_it() {
    let disk = Disk::default();
    let (wal, mut appender) = fresh(&disk.env(), 4096);
    put_all(&mut appender, 0..5, 60);
    wal.sync().unwrap();
    let known = wal.synced();
    let last = put(&mut appender, 5, 300).unwrap();
    let bytes = disk.bytes(&path(1));
    for cut in last.start.offset..last.end.offset {
        for fill in [0, 0xff, 0x81] {
            let mut torn = bytes.clone();
            torn[cut as usize..].fill(fill);
            let disk = disk.copy();
            disk.set_bytes(&path(1), torn.clone());
            let n = prefix_length(&disk, known).unwrap();
            // Padding is zeros: a cut inside it, filled with zeros, changes nothing.
            assert!(n == 5 || (n == 6 && torn == bytes), "cut at {cut}");
            torn[cut as usize..].copy_from_slice(&bytes[cut as usize..]);
            torn[last.start.offset as usize..cut as usize].fill(fill);
            disk.set_bytes(&path(1), torn.clone());
            let n = prefix_length(&disk, known).unwrap();
            assert!(n == 5 || (n == 6 && torn == bytes), "lost before {cut}");
        }
    }
}

#[test]
fn an_empty_or_headerless_newest_file_is_no_history() {
    let (disk, end, files) = fixture(true);
    let next = files.last().unwrap().file.0 + 1;
    for bytes in [Vec::new(), vec![0; 1024], vec![7; 79], disk.bytes(&path(1))] {
        let disk = disk.copy();
        disk.set_bytes(&path(next), bytes);
        let (batches, recovered) = read_back(&disk, 1, end, &[]).unwrap();
        assert_eq!((batches.len(), recovered.end), (30, end));
        assert_eq!(recovered.stale, [LogFileId(next)]);
        assert_eq!(recovered.next_file, LogFileId(next + 1));
    }
}

#[test]
fn a_header_of_a_newer_format_is_told_apart_from_damage() {
    let (disk, end, _) = fixture(true);
    change(&disk, 1, |bytes| {
        bytes[8] = 9;
        let crc = crc32c::crc32c(&bytes[..76]).to_le_bytes();
        bytes[76..80].copy_from_slice(&crc);
    });
    assert_eq!(prefix_length(&disk, end).unwrap_err().kind(), ErrorKind::Unsupported);
}
