//! Concurrent appends, syncs and releases of one WAL, on a disk that keeps only synced bytes.

use super::disk::Call;
use super::*;
use crate::sync::thread::spawn;
use crate::sync::{Limits, Mutex, check};
use crate::wal::pool::Pool;

/// The WAL as its users share it.
struct Shared {
    disk: Disk,
    wal: Arc<Wal>,
    appender: Mutex<Appender>,
}

impl Shared {
    fn new(file_bytes: u64) -> Arc<Self> {
        let disk = Disk::default();
        let (wal, appender) = fresh(&disk.env(), file_bytes);
        Arc::new(Self { disk, wal, appender: Mutex::new(appender) })
    }

    fn put(&self, n: u64, bytes: u64) -> Result<Appended> {
        put(&mut self.appender.lock(), n, bytes)
    }

    /// The batches that would certainly survive a power loss now.
    fn survivors(&self) -> Vec<u64> {
        read_back(&self.disk.survivor(), 1, LogPosition::default(), &[]).expect("a torn end is no error").0
    }
}

#[test]
fn callers_that_share_a_sync_all_return_with_their_own_batch_durable() {
    check(Limits { preemptions: 3, schedules: 5_000 }, || {
        let shared = Shared::new(512);
        shared.put(1, 1).unwrap();
        let work = |shared: &Shared, n| {
            let end = shared.put(n, 1).unwrap().end;
            assert!(shared.wal.sync().unwrap() >= end);
            assert!(shared.survivors().contains(&n), "batch {n} was acknowledged");
        };
        let other = {
            let shared = shared.clone();
            spawn(move || work(&shared, 2))
        };
        work(&shared, 3);
        other.join().unwrap();
    });
}

#[test]
fn a_sync_beside_appends_into_a_new_file_claims_no_more_than_is_durable() {
    check(Limits { preemptions: 3, schedules: 5_000 }, || {
        let shared = Shared::new(512);
        shared.put(1, 100).unwrap();
        let writer = {
            let shared = shared.clone();
            // The second does not fit after the first.
            spawn(move || [(2, 300), (3, 1)].map(|(n, bytes)| shared.put(n, bytes).unwrap()))
        };
        let before = shared.wal.end();
        let synced = shared.wal.sync().unwrap();
        assert!(synced >= before);
        let survivor = shared.disk.survivor();
        let (batches, recovered) = read_back(&survivor, 1, synced, &[]).unwrap();
        assert!(recovered.end >= synced, "{synced} is said to be durable, {batches:?} are");
        writer.join().unwrap();
    });
}

#[test]
fn after_a_failed_sync_nobody_is_told_of_success() {
    check(Limits { preemptions: 3, schedules: 5_000 }, || {
        let shared = Shared::new(512);
        shared.put(1, 1).unwrap();
        shared.disk.fail(Call::Sync, 0);
        let work = |shared: &Shared, n| {
            if shared.put(n, 1).is_ok() && shared.wal.sync().is_ok() {
                assert!(shared.survivors().contains(&n), "batch {n} was acknowledged");
            }
        };
        let other = {
            let shared = shared.clone();
            spawn(move || work(&shared, 2))
        };
        work(&shared, 3);
        other.join().unwrap();
        assert!(shared.wal.check().is_err() && shared.put(4, 1).is_err(), "the failure is for good");
    });
}

#[test]
fn a_release_beside_appends_takes_no_file_that_is_still_needed() {
    check(Limits { preemptions: 3, schedules: 5_000 }, || {
        let shared = Shared::new(512);
        shared.put(1, 300).unwrap();
        shared.put(2, 300).unwrap();
        let writer = {
            let shared = shared.clone();
            spawn(move || shared.put(3, 300).unwrap())
        };
        shared.wal.release(LogFileId(2)).unwrap();
        writer.join().unwrap();
        shared.wal.sync().unwrap();
        let files: Vec<u64> = shared.wal.files().iter().map(|f| f.file.0).collect();
        assert_eq!(files, [2, 3]);
        let (batches, _) = read_back(&shared.disk.survivor(), 2, LogPosition::default(), &[]).unwrap();
        assert_eq!(batches, [2, 3]);
    });
}

#[test]
fn a_file_reserved_ahead_is_handed_out_once_and_its_flag_is_true_in_the_end() {
    check(Limits { preemptions: 3, schedules: 5_000 }, || {
        let disk = Disk::default();
        let pool = Arc::new(Pool::new(disk.env().storage, dir(), 512, 2, LogFileId(1)));
        let ahead = {
            let pool = pool.clone();
            spawn(move || [pool.prepare(false).unwrap(), pool.prepare(false).unwrap()])
        };
        let first = pool.take(8, false).unwrap().0;
        let second = pool.take(8, false).unwrap().0;
        ahead.join().unwrap();
        assert_eq!((first, second), (LogFileId(1), LogFileId(2)));
        assert_eq!(pool.is_ready(), pool.idle_bytes() > 0);
    });
}
