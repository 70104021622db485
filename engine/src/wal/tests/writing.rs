//! Appending, syncing, poison, reserving and recycling.

use super::disk::Call;
use super::*;
use crate::error::ErrorKind;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

#[test]
fn history_over_many_files_is_read_back_in_order() {
    let disk = Disk::default();
    let (wal, mut appender) = fresh(&disk.env(), 1024);
    let appended: Vec<_> = (0..50).map(|n| put(&mut appender, n, 100).unwrap()).collect();
    assert!(wal.files().len() > 5);
    let (batches, recovered) = read_back(&disk, 1, LogPosition::default(), &[]).unwrap();
    assert_eq!(batches, (0..50).collect::<Vec<_>>());
    assert_eq!((recovered.end, recovered.max_seq), (appended[49].end, Some(SeqNo(49))));
    assert_eq!((recovered.end, recovered.frames), (wal.end(), 50));
    assert_eq!(recovered.files, wal.files());
    assert_eq!(recovered.bytes, wal.bytes());
    assert!(appended.windows(2).all(|w| w[0].end <= w[1].start));
}

#[test]
fn a_frame_larger_than_a_file_gets_a_file_of_its_own_size() {
    let disk = Disk::default();
    let (wal, mut appender) = fresh(&disk.env(), 1024);
    put(&mut appender, 0, 10).unwrap();
    wal.prepare().unwrap();
    let large = put(&mut appender, 1, 5000).unwrap();
    put(&mut appender, 2, 10).unwrap();
    let files = wal.files();
    assert_eq!(files.iter().map(|f| f.file.0).collect::<Vec<_>>(), [1, 2, 3]);
    assert_eq!((files[1].reserved, files[1].used), (large.end.offset, large.end.offset));
    assert_eq!(read_back(&disk, 1, wal.end(), &[]).unwrap().0, [0, 1, 2]);
    // It is not kept for recycling.
    wal.release(LogFileId(3)).unwrap();
    let names = disk.env().storage.list(dir()).unwrap();
    assert_eq!(names, [file_name(LogFileId(1)), file_name(LogFileId(3))]);
}

#[test]
fn a_sync_covers_all_files_and_a_second_one_has_nothing_to_do() {
    let disk = Disk::default();
    let (wal, mut appender) = fresh(&disk.env(), 1024);
    put_all(&mut appender, 0..12, 100);
    assert_eq!(wal.sync().unwrap(), wal.end());
    let syncs = disk.syncs();
    assert_eq!(wal.sync().unwrap(), wal.synced());
    assert_eq!(disk.syncs(), syncs);
    disk.crash(&mut || false);
    assert_eq!(read_back(&disk, 1, wal.synced(), &[]).unwrap().0, (0..12).collect::<Vec<_>>());
}

#[test]
fn only_the_two_newest_files_are_ever_unsynced() {
    let disk = Disk::default();
    let (wal, mut appender) = fresh(&disk.env(), 1024);
    for n in 0..60 {
        let end = put(&mut appender, n, 100).unwrap().end;
        assert!(wal.synced().file.0 + 2 >= end.file.0, "{} at {end}", wal.synced());
    }
    disk.crash(&mut || false);
    let (batches, _) = read_back(&disk, 1, wal.synced(), &[]).unwrap();
    assert!(batches.len() > 40 && batches.len() < 60, "{}", batches.len());
}

#[test]
fn a_failed_sync_poisons_for_good_and_is_not_retried() {
    for (call, nth) in [(Call::Sync, 0), (Call::SyncDir, 0)] {
        let disk = Disk::default();
        let (wal, mut appender) = fresh(&disk.env(), 1024);
        put(&mut appender, 0, 100).unwrap();
        disk.fail(call, nth);
        assert_eq!(wal.sync().unwrap_err().kind(), ErrorKind::Poisoned);
        let syncs = disk.syncs();
        let again = wal.sync().unwrap_err();
        assert_eq!(again.kind(), ErrorKind::Poisoned);
        assert!(again.to_string().contains("reopened"), "{again}");
        assert_eq!(put(&mut appender, 1, 100).unwrap_err().kind(), ErrorKind::Poisoned);
        assert_eq!(wal.prepare().unwrap_err().kind(), ErrorKind::Poisoned);
        assert_eq!(wal.release(LogFileId(1)).unwrap_err().kind(), ErrorKind::Poisoned);
        assert_eq!(disk.syncs(), syncs, "no sync after {call:?} failed");
        assert_eq!(wal.synced(), position(1, 0));
    }
}

#[test]
fn a_failed_write_into_reserved_space_poisons() {
    for nth in [0, 1] {
        let disk = Disk::default();
        let (_wal, mut appender) = fresh(&disk.env(), 1024);
        disk.fail(Call::MapWrite, nth);
        assert_eq!(put(&mut appender, 0, 100).unwrap_err().kind(), ErrorKind::Poisoned);
        assert_eq!(put(&mut appender, 0, 100).unwrap_err().kind(), ErrorKind::Poisoned);
    }
}

#[test]
fn a_full_disk_is_no_poison_and_a_later_append_succeeds() {
    let disk = Disk::default();
    let (wal, mut appender) = fresh(&disk.env(), 1024);
    let mut written = Vec::new();
    let mut full = 0;
    for n in 0..40 {
        disk.fail(Call::Map, 0);
        match put(&mut appender, n, 100) {
            Ok(_) => written.push(n),
            Err(e) => {
                assert_eq!(e.kind(), ErrorKind::DiskFull);
                full += 1;
                put(&mut appender, n, 100).unwrap();
                written.push(n);
            }
        }
        if n % 5 == 0 {
            disk.fail(Call::Map, 0);
            if let Err(e) = wal.prepare() {
                assert_eq!(e.kind(), ErrorKind::DiskFull);
            }
        }
    }
    assert!(full > 3);
    wal.sync().unwrap();
    disk.crash(&mut || false);
    assert_eq!(read_back(&disk, 1, wal.synced(), &[]).unwrap().0, written);
}

/// The name of a prepared file is durable; if extending the file fails, the next file must not count as named
/// for that.
#[test]
fn a_file_made_after_a_failed_one_gets_its_own_name_synced() {
    let disk = Disk::default();
    let (wal, mut appender) = fresh(&disk.env(), 1024);
    put(&mut appender, 0, 100).unwrap();
    wal.prepare().unwrap();
    disk.fail(Call::Map, 0);
    assert_eq!(put(&mut appender, 1, 3000).unwrap_err().kind(), ErrorKind::DiskFull);
    put(&mut appender, 1, 3000).unwrap();
    wal.sync().unwrap();
    disk.crash(&mut || false);
    assert_eq!(read_back(&disk, 1, wal.synced(), &[]).unwrap().0, [0, 1]);
}

#[test]
fn a_wal_file_is_written_back_piece_by_piece_and_each_once() {
    const KIB: u64 = 1024;
    const LONG: u64 = 1_000_000_000;
    let disk = Disk::default();
    let (wal, mut appender) = fresh(&disk.env(), 1300 * KIB);
    let mut n = 0;
    let mut put_to = |file: u64, offset: u64| {
        let mut pieces = 0;
        while wal.end() < position(file, offset) {
            pieces += u32::from(put(&mut appender, n, 50_000).unwrap().ends_piece());
            n += 1;
        }
        pieces
    };
    assert_eq!(put_to(1, 100 * KIB), 0);
    assert!(!wal.needs_write_back(), "not a whole piece");
    assert_eq!(put_to(1, 530 * KIB), 1);
    assert!(wal.needs_write_back());
    wal.write_back(LONG).unwrap();
    wal.write_back(LONG).unwrap();
    assert!(!wal.needs_write_back());
    assert_eq!(disk.written_back(), [(0, 512 * KIB)]);
    assert_eq!(wal.synced(), position(1, 0), "it decides nothing");
    // The remainder of the file is synced, as it is complete.
    put_to(2, 600 * KIB);
    wal.write_back(LONG).unwrap();
    assert_eq!(disk.written_back()[1..], [(0, 512 * KIB)]);
    put_to(2, 1100 * KIB);
    wal.write_back(LONG).unwrap();
    assert_eq!(disk.written_back()[2..], [(512 * KIB, 1024 * KIB)]);
    put_to(3, 600 * KIB);
    wal.write_back(1_000_000).unwrap();
    assert_eq!(disk.written_back().len(), 3, "it is full soon");
    put_to(3, 1100 * KIB);
    disk.fail(Call::WriteBack, 0);
    assert!(wal.write_back(LONG).is_err());
    assert_eq!(wal.write_back(LONG).unwrap_err().kind(), ErrorKind::Poisoned, "bytes are lost");
    assert!(wal.sync().is_err());
}

#[test]
fn a_prepared_file_is_what_the_next_rotation_takes() {
    let disk = Disk::default();
    let (wal, mut appender) = fresh(&disk.env(), 1024);
    assert!(wal.needs_prepare());
    assert!(wal.prepare().unwrap());
    assert!(!wal.needs_prepare() && !wal.prepare().unwrap());
    put(&mut appender, 0, 100).unwrap();
    assert!(!wal.needs_prepare(), "a nearly empty file needs no successor yet");
    put_all(&mut appender, 1..4, 100);
    assert!(wal.needs_prepare() && wal.prepare().unwrap());
    disk.fail(Call::Map, 0);
    put_all(&mut appender, 4..8, 100);
    assert_eq!((wal.end().file, wal.stats().files_reserved), (LogFileId(2), 2));
    assert!(wal.needs_prepare(), "the complete file is to be synced");
    assert!(wal.synced() < position(2, 0));
    let _ = wal.prepare();
    assert!(wal.synced() > position(1, HEADER_BYTES));
}

#[test]
fn released_files_are_used_again_and_their_frames_never_replay() {
    let disk = Disk::default();
    let (wal, mut appender) = fresh(&disk.env(), 1024);
    let mut n = 0;
    for round in 0..20 {
        for _ in 0..10 {
            put(&mut appender, n, 100).unwrap();
            n += 1;
        }
        let before = wal.end().file;
        wal.release(before).unwrap();
        wal.prepare().unwrap();
        assert_eq!(wal.files()[0].file, before);
        assert_eq!(wal.files().len(), 1);
        assert!(wal.disk_bytes() <= 4 * 1024);
        let (batches, recovered) = read_back(&disk, before.0, wal.synced(), &[]).unwrap();
        assert_eq!(recovered.end, wal.end());
        assert!(batches.iter().copied().eq(n - batches.len() as u64..n), "round {round}: {batches:?}");
        let shorter = read_back(&disk, before.0, LogPosition::default(), &[]).unwrap();
        assert_eq!(shorter.0, batches);
    }
    let stats = wal.stats();
    assert!(stats.files_recycled > 20 && stats.files_reserved < 8, "{stats:?}");
    wal.close().unwrap();
    let left = disk.env().storage.list(dir()).unwrap();
    assert_eq!(left, [file_name(wal.end().file)]);
}

#[test]
fn zeros_written_ahead_in_a_file_used_again_meet_no_frame() {
    let disk = Disk::default();
    let (wal, mut appender) = fresh(&disk.env(), 512 << 10);
    let mut n = 0;
    let mut fill = |appender: &mut Appender, frames: u64| {
        for _ in 0..frames {
            put(appender, n, 1000).unwrap();
            n += 1;
        }
        n
    };
    // A window and a half of the first file, which is then released and recycled beyond that.
    let second = fill(&mut appender, 180);
    appender.begin_next(SeqNo(second)).unwrap();
    fill(&mut appender, 10);
    wal.release(LogFileId(2)).unwrap();
    assert!(wal.prepare().unwrap());
    assert_eq!(wal.stats().files_recycled, 1);
    appender.begin_next(SeqNo(190)).unwrap();
    assert_ne!(disk.bytes(&path(3))[150 << 10..][..4], [0; 4], "what the first file left there");
    let end = fill(&mut appender, 400);
    assert_eq!(wal.end().file, LogFileId(3));
    let (batches, recovered) = read_back(&disk, 2, wal.synced(), &[]).unwrap();
    assert_eq!(recovered.end, wal.end());
    assert!(batches.iter().copied().eq(second..end), "{batches:?}");
}

#[test]
fn a_file_that_cannot_be_renamed_is_replaced_by_a_new_one() {
    let disk = Disk::default();
    let (wal, mut appender) = fresh(&disk.env(), 1024);
    put_all(&mut appender, 0..8, 100);
    wal.release(LogFileId(2)).unwrap();
    disk.fail(Call::Rename, 0);
    assert!(wal.prepare().unwrap());
    assert_eq!(wal.stats().files_recycled, 0);
    put_all(&mut appender, 8..16, 100);
    wal.sync().unwrap();
    let (batches, recovered) = read_back(&disk, 2, wal.end(), &[]).unwrap();
    assert_eq!(batches.last(), Some(&15));
    assert_eq!(recovered.stale, [LogFileId(1)]);
}

#[test]
fn notes_are_recovered_by_the_longest_manifest() {
    let disk = Disk::default();
    let (_wal, mut appender) = fresh(&disk.env(), 1024);
    let mut encoder = FrameEncoder::new();
    for (i, (manifest, length)) in [(1, 900), (2, 100), (2, 300), (2, 200)].into_iter().enumerate() {
        put(&mut appender, i as u64, 10).unwrap();
        encoder.note(Note { manifest, length }, SeqNo(i as u64 + 1), 5);
        appender.append(&mut encoder).unwrap();
    }
    let (batches, recovered) = read_back(&disk, 1, LogPosition::default(), &[]).unwrap();
    assert_eq!(batches, [0, 1, 2, 3]);
    assert_eq!(recovered.note, Some(Note { manifest: 2, length: 300 }));
    assert_eq!((recovered.frames, recovered.max_seq), (8, Some(SeqNo(3))));
}

#[test]
fn files_are_written_ahead_only_while_syncs_dominate() {
    for syncs in [false, true] {
        let disk = Disk::default();
        let options = WalOptions { written_ahead: WrittenAhead::WhenSyncsDominate, ..options(1024) };
        let (wal, mut appender) = Wal::open(&disk.env(), dir(), options, WalStart::fresh(DATABASE)).unwrap();
        for n in 0..20 {
            put(&mut appender, n, 100).unwrap();
            if syncs {
                wal.sync().unwrap();
            }
        }
        assert_eq!(wal.stats().written_ahead_bytes > 0, syncs);
    }
}

#[test]
fn syncs_run_beside_appends_and_cover_what_was_appended_before() {
    let disk = Disk::default();
    let (wal, mut appender) = fresh(&disk.env(), 4096);
    let (appended, done) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while !done.load(Ordering::Acquire) {
                    let before = appended.load(Ordering::Acquire);
                    let synced = wal.sync().unwrap();
                    let word = (synced.file.0 << 32) | synced.offset;
                    assert!(word >= before, "{synced} does not cover what was appended before");
                }
            });
        }
        scope.spawn(|| {
            while !done.load(Ordering::Acquire) {
                if wal.needs_prepare() {
                    wal.prepare().unwrap();
                }
                wal.release(LogFileId(wal.end().file.0.saturating_sub(3))).unwrap();
            }
        });
        for n in 0..20_000 {
            let end = put(&mut appender, n, 50).unwrap().end;
            appended.store((end.file.0 << 32) | end.offset, Ordering::Release);
        }
        done.store(true, Ordering::Release);
    });
    wal.sync().unwrap();
    let first = wal.files()[0].file.0;
    disk.crash(&mut || false);
    let (batches, recovered) = read_back(&disk, first, wal.synced(), &[]).unwrap();
    assert_eq!(recovered.end, wal.end());
    assert!(batches.iter().copied().eq(20_000 - batches.len() as u64..20_000));
}

#[test]
fn callers_that_wait_for_one_sync_are_served_by_the_next_one() {
    let disk = Disk::default();
    let (wal, mut appender) = fresh(&disk.env(), 1 << 20);
    for n in 0..200 {
        put(&mut appender, n, 50).unwrap();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| wal.sync().unwrap());
            }
        });
    }
    assert_eq!(disk.syncs(), 200, "four callers with nothing new between them share one sync");
}

#[test]
fn the_local_file_system_gives_back_what_was_appended() {
    let temp = tempfile::tempdir().unwrap();
    let env = Env::local();
    let (wal, mut appender) = Wal::open(&env, temp.path(), options(8192), WalStart::fresh(DATABASE)).unwrap();
    for n in 0..300 {
        put(&mut appender, n, 100).unwrap();
        if n % 50 == 0 {
            wal.sync().unwrap();
        }
    }
    wal.sync().unwrap();
    let (known_synced, first_file) = (wal.synced(), LogFileId(1));
    let options = RecoverOptions { database_id: DATABASE, first_file, known_synced, ends: &[] };
    let mut batches = Vec::new();
    let mut visit = |frame: &Frame<'_>| {
        batches.extend(batch_of(frame));
        Ok(())
    };
    let recovered = recover(&env, temp.path(), &options, &mut visit, &mut |_, _| {});
    assert_eq!(batches, (0..300).collect::<Vec<_>>());
    recovered.unwrap().make_durable(&env, temp.path(), DATABASE).unwrap();
}

#[test]
fn held_files_are_neither_released_nor_used_again_until_the_last_hold_is_gone() {
    let disk = Disk::default();
    let (wal, mut appender) = fresh(&disk.env(), 1024);
    put_all(&mut appender, 0..20, 100);
    let (one, two) = (wal.hold(), wal.hold());
    let held = wal.files();
    for hold in [one, two] {
        wal.release(wal.end().file).unwrap();
        wal.prepare().unwrap();
        assert_eq!(wal.files(), held);
        drop(hold);
    }
    wal.release(wal.end().file).unwrap();
    assert_eq!(wal.files().len(), 1);
}
