//! Tests of the WAL on a `disk` in memory: `frames` and `value_positions` by themselves, `writing`, `crash`
//! (power loss and kills), and `damage` at rest.

mod crash;
mod damage;
mod disk;
mod frames;
#[cfg(models)]
mod model;
mod value_positions;
mod writing;

use super::*;
use crate::error::Result;
use crate::storage::Env;
use crate::types::{CellRef, Generation, Kind, SeqNo, StoreId, Timestamp};
use disk::Disk;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const DATABASE: u64 = 0x5117_5709_e000_0001;

fn dir() -> &'static Path {
    Path::new("db")
}

fn path(file: u64) -> PathBuf {
    dir().join(file_name(LogFileId(file)))
}

fn position(file: u64, offset: u64) -> LogPosition {
    LogPosition { file: LogFileId(file), offset }
}

fn options(file_bytes: u64) -> WalOptions {
    WalOptions { file_bytes, recycle_max: 2, written_ahead: WrittenAhead::Never, ..WalOptions::default() }
}

fn fresh(env: &Env, file_bytes: u64) -> (Arc<Wal>, Appender) {
    Wal::open(env, dir(), options(file_bytes), WalStart::fresh(DATABASE)).unwrap()
}

/// Value bytes of batch `n`: their number and content depend on it, so that batches can be told apart.
fn value_of(n: u64, bytes: u64) -> Vec<u8> {
    (0..bytes).map(|i| (n.wrapping_mul(31) + i * 7) as u8).collect()
}

/// Appends batch `n`: one cell with that sequence number and `bytes` of value.
fn put(appender: &mut Appender, n: u64, bytes: u64) -> Result<Appended> {
    let mut encoder = FrameEncoder::new();
    encoder.begin(SeqNo(n), 1000 + n);
    encoder.part(StoreId(1), Generation(7));
    assert_eq!(encoder.cell(&CellRef::plain(&n.to_be_bytes(), 0, &value_of(n, bytes))), SeqNo(n));
    appender.append(&mut encoder)
}

/// Appends these batches, each with so many bytes of value.
fn put_all(appender: &mut Appender, batches: Range<u64>, bytes: u64) {
    for n in batches {
        put(appender, n, bytes).unwrap();
    }
}

/// Changes a file behind the WAL's back.
fn change(disk: &Disk, file: u64, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = disk.bytes(&path(file));
    change(&mut bytes);
    disk.set_bytes(&path(file), bytes);
}

/// The number of the batch in the frame, checked to be what `put` wrote.
fn batch_of(frame: &Frame<'_>) -> Option<u64> {
    let mut entries = frame.entries();
    let logged = entries.next()?;
    assert!(entries.next().is_none());
    assert_eq!((logged.store, logged.generation), (StoreId(1), Generation(7)));
    let Entry::Cell(cell) = logged.entry else { panic!("a range tombstone nobody wrote") };
    let n = cell.seq.0;
    assert_eq!((cell.key, cell.value), (&n.to_be_bytes()[..], &value_of(n, cell.value.len() as u64)[..]));
    assert_eq!(frame.head.wall_us, 1000 + n);
    Some(n)
}

/// Recovers with what a manifest would have.
fn read_back(
    disk: &Disk,
    first: u64,
    known_synced: LogPosition,
    ends: &[WalEnd],
) -> Result<(Vec<u64>, Recovered)> {
    let options = RecoverOptions { database_id: DATABASE, first_file: LogFileId(first), known_synced, ends };
    let mut batches = Vec::new();
    let mut visit = |frame: &Frame<'_>| {
        batches.extend(batch_of(frame));
        Ok(())
    };
    let mut last = (0, 0);
    let recovered = recover(&disk.env(), dir(), &options, &mut visit, &mut |done, total| {
        assert!(
            done > last.0 && done <= total && (last.1 == 0 || last.1 == total),
            "{done} of {total}, {last:?}"
        );
        last = (done, total);
    })?;
    if recovered.frames > 0 {
        // The difference is only headers of files without frames.
        let headers = HEADER_BYTES * recovered.files.len() as u64;
        assert!(
            last.0 <= recovered.bytes && last.0 + headers >= recovered.bytes,
            "{last:?} of {recovered:?}"
        );
    }
    Ok((batches, recovered))
}
