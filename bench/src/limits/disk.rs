//! The limits of the disk and of the page cache.
//!
//! - In sequence: one file, 1 MiB requests, eight under way at once (threads), past the page cache where the
//!   file system allows it. The write ends with fdatasync.
//! - Synced: 4 KiB overwritten at the front of a file that was written before, then fdatasync, so that no
//!   metadata has to follow. That is the least a durable write can cost, and what synced puts are held
//!   against.
//! - Cached: 4 KiB read at random places of a file that the page cache holds.

use super::{limit, noise};
use crate::record::LimitRecord;
use rustix::fs::{Advice, FallocateFlags, OFlags, fadvise, fallocate};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const REQUEST: usize = 1 << 20;
const BLOCK: usize = 4 << 10;
/// Requests under way at once.
const DEPTH: usize = 8;
/// What O_DIRECT asks of addresses and offsets, everywhere we know.
const ALIGN: usize = 4 << 10;
/// Blocks that the synced overwrites go around in, as a recycled log does.
const SYNC_BLOCKS: u64 = 1024;

/// How much is read and written; less in tests.
pub(super) struct Effort {
    pub(super) file_bytes: u64,
    /// Time for each of the two rounds of synced overwrites.
    pub(super) sync: Duration,
    pub(super) pread: Duration,
}

impl Effort {
    pub(super) fn full() -> Self {
        Self { file_bytes: 256 << 20, sync: Duration::from_millis(2000), pread: Duration::from_millis(700) }
    }
}

/// All limits of the file system that holds `dir`. Leaves nothing behind.
pub(super) fn measure(dir: &Path, effort: &Effort) -> io::Result<Vec<LimitRecord>> {
    let dir = tempfile::Builder::new().prefix("limits-").tempdir_in(dir)?;
    // Small writes first: large ones keep the device busy for a while after they are over.
    let mut found = Vec::new();
    let (rate, mut syncs) = synced(dir.path(), 1, effort.sync)?;
    found.push(limit("fdatasync_4k_p50", quantile(&mut syncs, 0.5), "us"));
    found.push(limit("fdatasync_4k_p99", quantile(&mut syncs, 0.99), "us"));
    found.push(limit("overwrite_fdatasync_4k_1t", rate, "ops/s"));
    let (rate, mut syncs) = synced(dir.path(), 8, effort.sync)?;
    found.push(limit("fdatasync_4k_8t_p50", quantile(&mut syncs, 0.5), "us"));
    found.push(limit("fdatasync_4k_8t_p99", quantile(&mut syncs, 0.99), "us"));
    found.push(limit("overwrite_fdatasync_4k_8t", rate, "ops/s"));
    let path = dir.path().join("sequence");
    found.extend(sequence(&path, effort.file_bytes)?);
    found.push(limit("pread_4k_cached", cached(&path, effort.file_bytes, effort.pread)?, "ops/s"));
    std::fs::remove_file(&path)?;
    Ok(found)
}

/// Writes `bytes` to `path` and reads them back.
fn sequence(path: &Path, bytes: u64) -> io::Result<Vec<LimitRecord>> {
    let created = OpenOptions::new().write(true).create(true).truncate(true).open(path)?;
    // Not every file system can reserve; the writes then extend the file.
    let _ = fallocate(&created, FallocateFlags::empty(), 0, bytes);
    created.sync_all()?;
    let direct = |write: bool| {
        OpenOptions::new()
            .read(!write)
            .write(write)
            .custom_flags(OFlags::DIRECT.bits().cast_signed())
            .open(path)
    };
    // Some file systems take the flag at open and refuse the request, so the first request decides.
    let writes_direct = direct(true).and_then(|file| probe(&file)).is_ok();
    let way = if writes_direct { "direct" } else { "buffered" };

    let file = if writes_direct { direct(true)? } else { OpenOptions::new().write(true).open(path)? };
    let started = Instant::now();
    requests(bytes, |buffer, offset| file.write_all_at(buffer, offset))?;
    file.sync_data()?;
    let wrote = rate(bytes, started);

    let file = if writes_direct { direct(false)? } else { File::open(path)? };
    if !writes_direct {
        fadvise(&file, 0, None, Advice::DontNeed)?;
    }
    let started = Instant::now();
    requests(bytes, |buffer, offset| file.read_exact_at(buffer, offset))?;
    let read = rate(bytes, started);
    Ok(vec![
        limit(&format!("seq_write_{way}"), wrote, "MiB/s"),
        limit(&format!("seq_read_{way}"), read, "MiB/s"),
    ])
}

/// One aligned block to the front of the file.
fn probe(file: &File) -> io::Result<()> {
    let mut buffer = vec![0; BLOCK + ALIGN];
    file.write_all_at(&aligned(&mut buffer)[..BLOCK], 0)
}

/// Calls `each` for every whole request of a file of `bytes` bytes, from `DEPTH` threads.
fn requests(bytes: u64, each: impl Fn(&mut [u8], u64) -> io::Result<()> + Sync) -> io::Result<()> {
    let next = AtomicU64::new(0);
    let worker = || {
        let mut buffer = noise(REQUEST + ALIGN, 1);
        let buffer = &mut aligned(&mut buffer)[..REQUEST];
        loop {
            let offset = next.fetch_add(REQUEST as u64, Ordering::Relaxed);
            if offset + REQUEST as u64 > bytes {
                return Ok(());
            }
            each(buffer, offset)?;
        }
    };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..DEPTH).map(|_| scope.spawn(worker)).collect();
        workers.into_iter().try_for_each(joined)
    })
}

fn joined<T>(worker: thread::ScopedJoinHandle<'_, io::Result<T>>) -> io::Result<T> {
    worker.join().unwrap_or_else(|_| Err(io::Error::other("a thread panicked")))
}

/// The part of `buffer` that begins at an aligned address.
fn aligned(buffer: &mut [u8]) -> &mut [u8] {
    let skip = buffer.as_ptr().align_offset(ALIGN);
    &mut buffer[skip..]
}

/// Reads a second that 4 KiB preads make when the page cache holds the file.
fn cached(path: &Path, bytes: u64, time: Duration) -> io::Result<f64> {
    let file = File::open(path)?;
    let mut buffer = vec![0; REQUEST];
    for offset in (0..bytes).step_by(REQUEST) {
        file.read_exact_at(&mut buffer, offset)?;
    }
    let places: Vec<u64> = noise(8 << 12, 2)
        .chunks_exact(8)
        .map(|word| word.iter().fold(0, |place, byte| place << 8 | u64::from(*byte)))
        .map(|word| word % (bytes / BLOCK as u64) * BLOCK as u64)
        .collect();
    let (started, mut reads) = (Instant::now(), 0_u64);
    while started.elapsed() < time {
        for place in &places {
            file.read_exact_at(&mut buffer[..BLOCK], *place)?;
        }
        reads += places.len() as u64;
    }
    Ok(reads as f64 / started.elapsed().as_secs_f64())
}

/// Overwrites and syncs from `threads` threads, each in its own file: how often a second altogether, and how
/// long each fdatasync took, in microseconds.
fn synced(dir: &Path, threads: usize, time: Duration) -> io::Result<(f64, Vec<f64>)> {
    let files: Vec<(PathBuf, File)> = (0..threads)
        .map(|n| {
            let path = dir.join(format!("synced-{n}"));
            let file = OpenOptions::new().write(true).create(true).truncate(true).open(&path)?;
            file.write_all_at(&noise(BLOCK * SYNC_BLOCKS as usize, n as u64), 0)?;
            file.sync_all()?;
            Ok((path, file))
        })
        .collect::<io::Result<_>>()?;
    let block = noise(BLOCK, 3);
    let started = Instant::now();
    let worker = |file: &File| {
        let mut syncs = Vec::new();
        while started.elapsed() < time {
            let at = syncs.len() as u64 % SYNC_BLOCKS * BLOCK as u64;
            file.write_all_at(&block, at)?;
            let before = Instant::now();
            file.sync_data()?;
            syncs.push(before.elapsed().as_secs_f64() * 1e6);
        }
        Ok(syncs)
    };
    let worker = &worker;
    let syncs = thread::scope(|scope| {
        let workers: Vec<_> = files.iter().map(|(_, file)| scope.spawn(move || worker(file))).collect();
        workers.into_iter().map(joined).collect::<io::Result<Vec<_>>>()
    })?
    .concat();
    let rate = syncs.len() as f64 / started.elapsed().as_secs_f64();
    files.iter().try_for_each(|(path, _)| std::fs::remove_file(path))?;
    Ok((rate, syncs))
}

fn rate(bytes: u64, started: Instant) -> f64 {
    bytes as f64 / f64::from(1 << 20) / started.elapsed().as_secs_f64()
}

/// The value that a share of `values` does not exceed.
fn quantile(values: &mut [f64], share: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let rank = (values.len() as f64 * share).ceil() as usize;
    values.get(rank.max(1) - 1).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_is_a_value_that_was_seen() {
        let mut values: Vec<f64> = (1..=100).rev().map(f64::from).collect();
        assert_eq!(quantile(&mut values, 0.5), 50.0);
        assert_eq!(quantile(&mut values, 0.99), 99.0);
        assert_eq!(quantile(&mut [7.0], 0.99), 7.0);
        assert_eq!(quantile(&mut [], 0.5), 0.0);
    }

    #[test]
    fn requests_cover_the_file_once() {
        let seen = std::sync::Mutex::new(Vec::new());
        requests(5 * REQUEST as u64, |buffer, offset| {
            assert!(buffer.len() == REQUEST && buffer.as_ptr().align_offset(ALIGN) == 0);
            seen.lock().unwrap().push(offset / REQUEST as u64);
            Ok(())
        })
        .unwrap();
        let mut seen = seen.into_inner().unwrap();
        seen.sort_unstable();
        assert_eq!(seen, [0, 1, 2, 3, 4]);
        let failed = requests(REQUEST as u64, |_, _| Err(io::Error::other("full")));
        assert_eq!(failed.unwrap_err().to_string(), "full");
    }
}
